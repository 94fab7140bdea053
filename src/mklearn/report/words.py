"""Sentences and signs for what is known of a model, the same wherever they stand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sklearn.base import is_regressor

from mklearn.estimators import MKLDiscriminant, MKLOneClass, SubspaceKernel
from mklearn.solvers import Solution, Status

ANOTHER_QUESTION = (
    "How well the model does on new samples is another question; that is what the "
    "cross-validated score is for."
)
MOST_LIKELY = (
    "The weights are those under which the values of these samples are most likely, "
    "among all weights near them; there is no proof that others, far from these, are "
    f"not better. {ANOTHER_QUESTION}"
)
DIFFERENCES = (
    "Differences are to the first row, on the same folds; ± is one standard error, and "
    "less than two of them is no clear difference."
)
CONTRIBUTIONS = (
    "A contribution is a kernel's share in the squared norm of the decision function; "
    "contributions sum to 100 % and do not depend on the kernels' scales. A dash "
    "stands for a kernel that is not used."
)
ALIKE = (
    "One means that two kernels are equal up to scale. Kernels that are much alike "
    "share their weight, and how they share it says little."
)
ABSENT = "A sample without a view counts as the average of those that have it."


# --- the certificate ------------------------------------------------------------------


def plain_words(solution: Solution, model: Any = None) -> str:
    """Return what a certificate means, for readers who do not optimise.

    Parameters
    ----------
    solution : Solution
    model : estimator, optional
        Fitted; it decides what the words call its setting and what it has learned.
    """
    setting, learned = _terms(model)
    if solution.status is Status.OPTIMAL:
        start = "The computation is finished, and there is a proof: with"
    else:
        start = "The computation stopped early, but it is known how far it got: with"
    return (
        f"{start} these kernels, these samples and {setting}, no other weights and no "
        f"other {learned} could lower the training objective by more than "
        f"{100 * solution.gap:.2g} %. {ANOTHER_QUESTION}"
    )


def _terms(model: Any) -> tuple[str, str]:
    """Return what is given, and what is learned with the weights, in words."""
    if isinstance(model, MKLDiscriminant):
        learned = "discriminant directions"
        if isinstance(model.reg, str) and model.reg == "learn":
            return "this criterion", f"regularisation or {learned}"
        return f"reg = {model.reg_:.3g}", learned
    if isinstance(model, SubspaceKernel):
        return "these settings", "subspace or classifier in it"
    if isinstance(model, MKLOneClass):
        return f"nu = {model.nu:.3g}", "boundary"
    cost = getattr(model, "C", None)
    if cost == "learn":
        return "this loss", "cost or classifier"
    cost = getattr(model, "C_", cost)
    setting = f"C = {cost:.3g}" if isinstance(cost, (int, float)) else "this C"
    values = model is not None and is_regressor(model)
    return setting, "regression function" if values else "classifier"


# --- cells of tables ------------------------------------------------------------------


def scoring_name(scoring: str) -> str:
    """Return how a score is called."""
    return {"r2": "R²"}.get(scoring, scoring)


def score(row: Mapping[str, Any], scoring: str) -> str:
    """Return the score of a row of a comparison, and its standard error."""
    scale, digits, unit = _scale(scoring)
    mean, error = scale * row["score"], scale * row["standard_error"]
    return f"{mean:.{digits}f} ± {error:.{digits}f}{unit}"


def difference(row: Mapping[str, Any], scoring: str) -> str:
    """Return how far a row of a comparison is from the first, and how sure that is."""
    scale, digits, _ = _scale(scoring)
    mean = round(scale * row["difference"], digits) + 0.0  # no minus before a zero
    return f"{mean:+.{digits}f} ± {scale * row['difference_error']:.{digits}f}"


def _scale(scoring: str) -> tuple[float, int, str]:
    return (100.0, 1, " %") if scoring == "accuracy" else (1.0, 3, "")


def seconds(row: Mapping[str, Any]) -> str:
    """Return the time of a fit of a row of a comparison."""
    return f"{row['fit_seconds']:.2g}"


def kernels_used(row: Mapping[str, Any], without: str = "-") -> str:
    """Return how many kernels a row of a comparison uses; some have no weights."""
    if not row["n_kernels"]:
        return without
    return f"{row['kernels_used']:.3g} of {row['n_kernels']}"


def weight(row: Mapping[str, Any]) -> str:
    """Return the weight of a kernel."""
    return f"{row['weight']:.3f}" if row["used"] else "-"


def contribution(row: Mapping[str, Any]) -> str:
    """Return the contribution of a kernel."""
    return f"{row['contribution']:.1%}" if row["used"] else "-"
