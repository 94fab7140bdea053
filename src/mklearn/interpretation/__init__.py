"""Interpretation: stability of weights, importance of kernels, parts of decisions.

Weights alone are a weak basis for conclusions: similar kernels share weight, and the
weights vary in small samples. The functions of this package answer four questions:

- :func:`weight_stability`: would other samples have given the same weights?
- :func:`kernel_importance`: does a kernel improve the score on held-out samples?
- :func:`score_by_view`: how much of a score is due to each view, or kernel?
- :func:`decision_parts`: which kernels determined the decision for a sample?
"""

from mklearn.interpretation.decisions import DecisionParts, decision_parts
from mklearn.interpretation.importance import KernelImportance, kernel_importance
from mklearn.interpretation.stability import (
    StabilitySelection,
    WeightStability,
    weight_stability,
)
from mklearn.interpretation.view_scores import ScoreByView, ViewScorer, score_by_view

__all__ = [
    "DecisionParts",
    "KernelImportance",
    "ScoreByView",
    "StabilitySelection",
    "ViewScorer",
    "WeightStability",
    "decision_parts",
    "kernel_importance",
    "score_by_view",
    "weight_stability",
]
