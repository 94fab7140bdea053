"""Times to an event: curves, concordance and areas, as users import them."""

from mklearn.estimators.event_times import (
    StepFunction,
    concordance_index,
    dynamic_auc,
    kaplan_meier,
)

__all__ = ["StepFunction", "concordance_index", "dynamic_auc", "kaplan_meier"]
