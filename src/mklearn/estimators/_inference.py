"""Table of weights with intervals, p-values and selection frequencies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.stats import norm
from sklearn.base import is_classifier


def inference_columns(
    model: Any,
    tests: Any = None,
    stability: Any = None,
    *,
    level: float = 0.95,
    control: str = "holm",
    profile: Any = None,
    selection: Any = None,
) -> dict[str, Any]:
    """Return the columns of ``inference_frame`` of a fitted model.

    Parameters
    ----------
    model : fitted estimator
    tests : KernelTests, optional
    stability : WeightStability, optional
    level : float
    control : str
    profile : array of shape (M, 2), or mapping of "share" and "weight" to such arrays
        Intervals that replace those of standard errors.
    selection : CertifiedSelection, optional
    """
    if not 0 < level < 1:
        raise ValueError(f"level must be between 0 and 1, got {level!r}.")
    names = tuple(model.kernel_names_)
    for what, known in (
        ("tests", getattr(tests, "names", names)),
        ("stability", getattr(stability, "kernel_names", names)),
        ("selection", getattr(selection, "names", names)),
    ):
        if tuple(known) != names:
            raise ValueError(
                f"{what} refer to other kernels than those of the model "
                f"({', '.join(known[:3])}, ...); compute them with the same kernels."
            )
    if np.ndim(model.kernel_weights_) == 2 and not is_classifier(model):
        raise ValueError(
            "Each target has its own kernel weights; use weights_frame() for them, and "
            "for the intervals of an EvidenceMKLRegressor kernel_weights_std_, "
            "variance_explained_ and variance_explained_std_, with a row for each."
        )
    if np.ndim(model.kernel_weights_) == 2:
        raise ValueError(
            "Each class has its own kernel weights; use weights_frame() and "
            "weight_stability(...).to_frame() for each class."
        )
    columns: dict[str, Any] = {"kernel": list(names), "weight": model.kernel_weights_}
    errors = getattr(model, "weight_errors_", None)
    if errors is not None:
        z = float(norm.isf((1.0 - level) / 2.0))
        ends = _ends(model.kernel_weights_, z * errors.weights, np.inf)
        columns["weight_low"], columns["weight_high"] = ends
        columns["share"] = errors.shares
        ends = _ends(errors.shares, z * errors.shares_std, 1.0)
        columns["share_low"], columns["share_high"] = ends
    else:
        tails = [(1.0 - level) / 2.0, (1.0 + level) / 2.0]
        if stability is not None:
            ends = np.quantile(stability.weights, tails, axis=0)
            columns["weight_low"], columns["weight_high"] = ends
        columns["share"] = model.kernel_contributions_
        if stability is not None:
            ends = np.quantile(stability.contributions, tails, axis=0)
            columns["share_low"], columns["share_high"] = ends
    for of, ends in _intervals(profile, len(names)).items():
        columns[f"{of}_low"], columns[f"{of}_high"] = ends
    if tests is not None:
        columns["p"] = tests.p_values
        columns[f"p_{control}"] = tests.adjusted(control)
    if stability is not None:
        columns["selected"] = stability.selection_frequency
    if selection is not None:
        if not np.array_equal(selection.weights, model.kernel_weights_):
            raise ValueError(
                "selection is that of other weights than those of the model; compute "
                "it with certified_selection(model, X, y)."
            )
        columns["proved"] = list(selection.states)
    return columns


def _intervals(profile: Any, M: int) -> dict[str, Any]:
    """Return the ends of given intervals, shape (2, M), by what they are of."""
    if profile is None:
        return {}
    given = profile if isinstance(profile, Mapping) else {"share": profile}
    found = {}
    for of, ends in given.items():
        if of not in ("share", "weight") or np.shape(ends) != (M, 2):
            raise ValueError(
                f"profile needs intervals of shape ({M}, 2) for 'share' or 'weight', "
                f"as returned by profile_intervals, got shape {np.shape(ends)} for "
                f"{of!r}."
            )
        found[of] = np.asarray(ends, dtype=np.float64).T
    return found


def _ends(value: Any, half: Any, most: float) -> tuple[Any, Any]:
    """Return the ends of intervals, clipped to the possible range."""
    return np.maximum(value - half, 0.0), np.minimum(value + half, most)
