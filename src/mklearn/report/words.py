"""Sentences and signs for what is known of a model, the same wherever they stand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sklearn.base import is_regressor

from mklearn.estimators import MKLCox, MKLDiscriminant, MKLOneClass, SubspaceKernel
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
WIDTHS = (
    "Kernels that differ by their width alone are shown together: they resemble each "
    "other, and how they share a weight says little."
)
ALIKE_WIDTHS = (
    "Kernels that differ by their width alone resemble each other, and how they share "
    "a weight says little: read their sum, by view."
)
MATTER = (
    "A small p-value says that a kernel has something to do with the target, beyond "
    "covariates; p-values in the last column account for the number of kernels (Holm). "
    "Kernels that resemble each other are all found, even if only one of them matters: "
    "see how alike they are below. Cause is something else."
)
SHARES = (
    "A share is the part of the squared norm of the decision function that comes from "
    "the kernels of a view; shares sum to 100 %."
)
INTERVALS = "95 % of models of resampled samples have a share between the ends."
ADDS = (
    "What a view adds is the score that test samples lose when the view is given the "
    "rows of other samples; p is how often a view that tells nothing adds as much."
)
SHARES_SHORT = (
    "A share is a view's part of the decision function, with the interval of 95 % of "
    "resamples. What it adds is lost on test samples if the view is given rows of "
    "other samples; p says how often noise would add as much."
)
PARTS_OF_CLASSES = (
    "A number is what a view says for the predicted class and against the next one "
    "(the true one, where the prediction is wrong), by a model that had not seen the "
    "sample; with the intercepts they sum to the margin."
)
PARTS_OF_VALUES = (
    "A number is what a view adds to the prediction, by a model that had not seen the "
    "sample; with the intercept they sum to it."
)
ALL_WELL = (
    "None of the automatic checks found anything: better than guessing, no setting at "
    "the end of its grid, the optimum proven, no view that carries all, no rare class, "
    "no kernels that are the same, no column that tells the target, no equal samples."
)
PASTE = "Sentences for the methods section of a paper, to be checked before use:"
ALIKE = (
    "One means that two kernels are equal up to scale. Kernels that are much alike "
    "share their weight, and how they share it says little."
)
BY_VIEW = {
    "product": (
        "Each prediction is a sum of what the views say; the parts of the score sum to "
        "it, up to the rest. Views that say the same share what it is worth, and a "
        "part below zero makes predictions worse. The rest is what is lost because "
        "predictions are too high or too low on average."
    ),
    "unique": (
        "What the score loses when the model is fitted again without a view. Two views "
        "that say the same lose nothing one by one; what only several of them can say "
        "is in the rest."
    ),
    "shapley": (
        "What the score gains when a view is added to others, mean over all orders in "
        "which views may come, with a model fitted for each set of views. With the "
        "rest, the score of a model without any, the values sum to the score."
    ),
}
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
    if isinstance(model, MKLCox):
        return setting, "log hazards"
    values = model is not None and is_regressor(model)
    return setting, "regression function" if values else "classifier"


# --- the verdict ----------------------------------------------------------------------


def verdict_words(found: Mapping[str, Any], scoring: str) -> str:
    """Return the closing sentence of a comparison, from the facts of a verdict."""
    if found["over"] is None:
        return f"Verdict: there is nothing to compare {found['use']} with."
    by = f"{difference(found, scoring)}{' points' if _scale(scoring)[2] else ''}"
    if found["why"] == "nothing found":
        return (
            f"Verdict: no method predicts clearly better than the {found['over']} "
            f"(the best, {found['best']}: {by}), so there is no sign of a relation "
            "between these columns and the target."
        )
    if found["why"] == "rival":
        return (
            f"Verdict: {found['use']} is clearly better than {found['over']} ({by}): "
            "use it for prediction."
        )
    if found["why"] == "sum better":
        return (
            f"Verdict: the plain sum of the kernels is clearly better than learned "
            f"weights ({by}): use it (--method sum)."
        )
    if found["why"] == "learned better":
        return (
            "Verdict: learned weights are clearly better than the plain sum of the "
            f"kernels ({by}): use them."
        )
    if found["why"] == "sum as good":
        return (
            "Verdict: the plain sum of the kernels is as good as learned weights "
            f"(learned minus sum: {by}): use it (--method sum) unless you want the "
            "weights."
        )
    return (
        f"Verdict: no baseline is clearly better than {found['use']} (difference to "
        f"{found['over']}: {by})."
    )


def rise(found: tuple[float, float], scoring: str) -> str:
    """Return whether more samples would help, by the end of a learning curve."""
    mean, error = found
    by = difference({"difference": mean, "difference_error": error}, scoring)
    by += " points" if _scale(scoring)[2] else ""
    if mean > 2.0 * error:
        said = f"The score is still rising at the end ({by}): more samples would help."
    else:
        said = (
            f"At the end the score is not clearly rising any more ({by}): more samples "
            "of the same kind may not help much."
        )
    return f"{said} Settings are those chosen on all samples, for each part the same."


# --- the data -------------------------------------------------------------------------


def missing(filled: int, absent: Mapping[str, int]) -> str:
    """Return what was not there: values that were filled in, and whole views."""
    lacking = ", ".join(f"{count} lack {view}" for view, count in absent.items())
    if filled and absent:
        return f"{filled} missing values were filled in; of the samples, {lacking}"
    if absent:
        return f"of them {lacking}; no other values were missing"
    return (
        f"{filled} missing values were filled in"
        if filled
        else "no values were missing"
    )


# --- cells of tables ------------------------------------------------------------------


_SCORES = {
    "r2": "R²",
    "roc_auc": "AUC",
    "balanced_accuracy": "balanced accuracy",
    "average_precision": "average precision",
    "f1": "F1",
    "f1_macro": "F1, mean of classes",
    "neg_root_mean_squared_error": "-RMSE",
    "neg_mean_absolute_error": "-MAE",
}


def scoring_name(scoring: str) -> str:
    """Return how a score is called."""
    return _SCORES.get(scoring, scoring)


def concordance(errors: Mapping[str, Any]) -> str:
    """Return how well risks order times, in a sentence."""
    if errors["concordance"] is None:
        return "No two samples of a fold can be compared, so there is no concordance."
    error = errors["standard_error"]
    some = "" if error is None else f" ± {error:.3f}"
    return (
        f"Concordance {errors['concordance']:.3f}{some} on the folds: of two samples, "
        "that with the earlier event has the higher predicted risk in this share of "
        "the pairs; one half says nothing."
    )


def by_view(found: Mapping[str, Any]) -> str:
    """Return what scores by view are, and of how much in all, for a caption."""
    scale, digits, unit = _scale(found["scoring"])
    name = scoring_name(found["scoring"])
    if name == "correlation":
        name += " of scores with the target"
    shown = [f"{scale * found['total']:.{digits}f}{unit} in all"]
    # parts of a correlation sum to it, and what no view alone says is no part
    if (found["kind"], found["scoring"]) == ("product", "r2"):
        shown.append(f"{scale * found['rest']:+.{digits}f} for a wrong mean")
    if found["kind"] == "shapley":
        shown.append(f"{scale * found['rest']:.{digits}f}{unit} without views")
    kind = {
        "product": "parts of the score",
        "unique": "what is lost without a view",
        "shapley": "Shapley values",
    }[found["kind"]]
    return f"{kind}: {name}, {', '.join(shown)}"


def score(row: Mapping[str, Any], scoring: str) -> str:
    """Return the score of a row of a comparison, and its standard error."""
    scale, digits, unit = _scale(scoring)
    mean, error = scale * row["score"], scale * row["standard_error"]
    return f"{mean:.{digits}f} ± {error:.{digits}f}{unit}"


def value(number: float, scoring: str) -> str:
    """Return a score."""
    scale, digits, unit = _scale(scoring)
    return f"{scale * number:.{digits}f}{unit}"


def view_score(row: Mapping[str, Any], scoring: str) -> str:
    """Return what a view accounts for in a score, and how sure that is."""
    scale, digits, _ = _scale(scoring)
    text = f"{round(scale * row['score'], digits) + 0.0:+.{digits}f}"
    errors = [row["standard_error"], row["sampling_error"]]
    known = [f"± {scale * e:.{digits}f}" for e in errors if e is not None]
    return " ".join([text, *known])


def difference(row: Mapping[str, Any], scoring: str) -> str:
    """Return how far a row of a comparison is from the first, and how sure that is."""
    scale, digits, _ = _scale(scoring)
    mean = round(scale * row["difference"], digits) + 0.0  # no minus before a zero
    return f"{mean:+.{digits}f} ± {scale * row['difference_error']:.{digits}f}"


def scale(scoring: str) -> tuple[float, str]:
    """Return what a score is multiplied by where it is shown, and its unit."""
    factor, _, unit = _scale(scoring)
    return factor, unit


def _scale(scoring: str) -> tuple[float, int, str]:
    shares = ("accuracy", "balanced_accuracy")
    return (100.0, 1, " %") if scoring in shares else (1.0, 3, "")


def seconds(row: Mapping[str, Any]) -> str:
    """Return the time of a fit of a row of a comparison."""
    return f"{row['fit_seconds']:.2g}"


def kernels_used(row: Mapping[str, Any], without: str = "-") -> str:
    """Return how many kernels a row of a comparison uses; some have no weights."""
    if not row["n_kernels"]:
        return without
    return f"{row['kernels_used']:.3g} of {row['n_kernels']}"


def gain(value: float, scoring: str) -> str:
    """Return by how much a score changes."""
    scale, digits, _ = _scale(scoring)
    return f"{round(scale * value, digits) + 0.0:+.{digits}f}"


def p_value(value: float) -> str:
    """Return a p-value as papers print it."""
    return f"{value:.3f}" if value >= 1e-3 else f"{value:.0e}"


def percent(share: float) -> str:
    """Return a part of one, small ones as such."""
    return "< 0.1 %" if 0.0 < share < 5e-4 else f"{100.0 * share:.1f} %"


def rejected(names: Sequence[str]) -> str:
    """Return which kernels a search has left out, and why."""
    return (
        f"Left out, for the sum of the others did better on the folds: "
        f"{', '.join(names)}."
    )


def weight(row: Mapping[str, Any]) -> str:
    """Return the weight of a kernel; of several, how many have one."""
    if "n_used" in row:
        return f"{row['n_used']} of {row['n_kernels']} used"
    return f"{row['weight']:.3f}" if row["used"] else "-"


def contribution(row: Mapping[str, Any]) -> str:
    """Return the contribution of a kernel."""
    return f"{row['contribution']:.1%}" if row["used"] else "-"


def interval(low: float | None, high: float | None) -> str:
    """Return the ends of an interval; None is infinite."""
    ends = (
        "-∞" if low is None else f"{low:.3g}",
        "∞" if high is None else f"{high:.3g}",
    )
    return f"{ends[0]} to {ends[1]}"
