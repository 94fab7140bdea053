"""Checks of parameters that several estimators share."""

from __future__ import annotations

from numbers import Real
from typing import Any, Literal

import numpy as np

from mklearn.problems.losses import loss_names


def check_loss(name: Any, targets: Literal["labels", "numbers"]) -> None:
    """Raise ValueError unless there is such a loss for labels, or for numbers."""
    known = loss_names(targets)
    if not isinstance(name, str) or name not in known:
        *others, last = map(repr, known)
        raise ValueError(f"loss must be {', '.join(others)} or {last}, got {name!r}.")


def check_limits(model: Any, tol: Any = None) -> None:
    """Raise ValueError unless ``tol``, ``max_iter`` and ``time_limit`` are positive.

    ``tol`` defaults to that of the model.
    """
    check_positive("tol", model.tol if tol is None else tol)
    if not model.max_iter >= 1:
        raise ValueError(f"max_iter must be at least 1, got {model.max_iter!r}.")
    if model.time_limit is not None and not model.time_limit > 0:
        raise ValueError(f"time_limit must be positive, got {model.time_limit!r}.")


def check_positive(name: str, value: Any, otherwise: str = "") -> float:
    """Return a parameter that must be a positive number."""
    if not (isinstance(value, Real) and 0 < float(value) < np.inf):
        raise ValueError(f"{name} must be a positive number{otherwise}, got {value!r}.")
    return float(value)
