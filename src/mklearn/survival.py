"""Survival curves and metrics: the public names."""

from mklearn.estimators.event_times import (
    StepFunction,
    concordance_index,
    dynamic_auc,
    kaplan_meier,
)

__all__ = ["StepFunction", "concordance_index", "dynamic_auc", "kaplan_meier"]
