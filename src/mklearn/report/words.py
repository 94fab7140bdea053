"""Sentences and table cells about a model, the same on the screen and in reports."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sklearn.base import is_regressor

from mklearn.data.spelling import plural
from mklearn.estimators import MKLCox, MKLDiscriminant, MKLOneClass, SubspaceKernel
from mklearn.solvers import Solution, Status

ANOTHER_QUESTION = (
    "This says nothing about the performance on new samples, which the "
    "cross-validated score estimates."
)
MOST_LIKELY = (
    "The weights are a local maximum of the likelihood of these samples; there is no "
    f"proof that other weights cannot be better. {ANOTHER_QUESTION}"
)
DIFFERENCES = (
    "Differences are relative to the first row, on the same folds; ± is one standard "
    "error, and a difference of less than two standard errors is not clear."
)
CONTRIBUTIONS = (
    "A contribution is a kernel's share in the squared norm of the decision function; "
    "contributions sum to 100 % and do not depend on the kernels' scales. A dash "
    "marks a kernel that is not used."
)
WIDTHS = (
    "Kernels that differ only in their width are shown together: they are similar, "
    "and how the weight is divided among them means little."
)
ALIKE_WIDTHS = (
    "Kernels that differ only in their width are similar, and how the weight is "
    "divided among them means little: interpret their sum, by view."
)
MATTER = (
    "A small p-value means that a kernel is associated with the target, beyond any "
    "covariates; adjusted p-values take the number of kernels into account "
    "(Holm). If kernels are similar, all of them have small p-values even if only one "
    "of them matters: see their similarity below. An association need not be causal."
)
PROFILE = (
    "Intervals of shares of variance are based on the profile likelihood, those of "
    "weights on standard errors, which are too short for few samples."
)
SHORT = (
    "Intervals are based on standard errors. With a few hundred samples, fewer than "
    "95 % of them contain the truth; model.profile_intervals(X, y) computes better "
    "ones, which takes longer."
)
RESAMPLED = (
    "Intervals contain 95 % of the values over models fitted to bootstrap samples."
)
USED = (
    "The last column is the share of models fitted to bootstrap samples that use the "
    "kernel."
)
SHARES = (
    "A share is the part of the squared norm of the decision function that is due to "
    "the kernels of a view; shares sum to 100 %."
)
INTERVALS = (
    "The interval contains the shares in 95 % of the models fitted to resamples."
)
PERMUTED = (
    "Permuted: the decrease of the score on test samples when the rows of the view are "
    "permuted; p is the probability of such a decrease for an uninformative view."
)
SHARES_SHORT = (
    "A share is a view's part of the decision function, with the interval of 95 % of "
    "resamples. Permuted: the decrease of the score on test samples when the rows of "
    "the view are permuted; p is the probability of such a decrease for an "
    "uninformative view."
)
REFITS = {"unique": "left out", "shapley": "Shapley value"}  # heads of columns
LEFT_OUT = (
    "Left out: the decrease of the score on the folds when the model is fitted without "
    "the view, which is small if another view carries the same information."
)
SHAPLEY = (
    "Shapley value: the gain of the score when the view is added to others, averaged "
    "over all orders of the views."
)
REFITTED = (
    "These models have the settings that were chosen on the training samples of each "
    "fold with all views; ± is one standard error over folds."
)
PARTS_OF_CLASSES = (
    "A number is the contribution of a view in favour of the predicted class and "
    "against the next one (the true one if the prediction is wrong), in a model that "
    "was not trained on the sample; with the intercepts the numbers sum to the margin."
)
PARTS_OF_VALUES = (
    "A number is the contribution of a view to the prediction, in a model that was "
    "not trained on the sample; with the intercept the numbers sum to the prediction."
)
ALL_WELL = (
    "None of the automatic checks found a problem: the model is better than guessing, "
    "no setting is at the edge of its grid, the optimum is certified, no view "
    "dominates, no class is rare, no kernels or samples are duplicates, no column "
    "determines the target."
)
PASTE = "Text for the methods section of a paper; please check it before use:"
ALIKE = (
    "An alignment of one means that two kernels are equal up to scale. Similar "
    "kernels share their weight, and how it is divided among them means little."
)
BY_VIEW = {
    "product": (
        "Each prediction is a sum of contributions of the views; the parts of the "
        "score sum to the score. Views with the same information share its value, and "
        "a view with a negative part makes the predictions worse. The part of the "
        "intercept, if there is one, is the loss due to predictions that are too high "
        "or too low on average."
    ),
    "unique": (
        "The decrease of the score when the model is refitted without a view. If two "
        "views carry the same information, leaving out one of them costs nothing; "
        "information that only several views provide together is in the rest."
    ),
    "shapley": (
        "The gain of the score when a view is added to others, averaged over all "
        "orders of the views, with a model fitted for each set of views. With the "
        "rest, the score of a model without any view, the values sum to the score."
    ),
}
ABSENT = "Samples without a view are assigned the average of those that have it."


# --- the certificate ------------------------------------------------------------------


def plain_words(solution: Solution, model: Any = None) -> str:
    """Return the meaning of a certificate, for readers who are not optimisers.

    Parameters
    ----------
    solution : Solution
    model : estimator, optional
        A fitted model; it determines the terms for its settings and what it learned.
    """
    setting, learned = _terms(model)
    if solution.status is Status.OPTIMAL:
        start = "The solution is certified to be optimal: with"
    else:
        start = "The solver stopped early, but the solution has a certificate: with"
    return (
        f"{start} these kernels, these samples and {setting}, no other weights and no "
        f"other {learned} could lower the training objective by more than "
        f"{100 * solution.gap:.2g} %. {ANOTHER_QUESTION}"
    )


def _terms(model: Any) -> tuple[str, str]:
    """Return terms for the given settings, and for what is learned besides weights."""
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
    """Return the conclusion of a comparison, from the facts of a verdict."""
    if found["over"] is None:
        return f"Verdict: there is no other method to compare {found['use']} with."
    by = f"{difference(found, scoring)}{' points' if _scale(scoring)[2] else ''}"
    if found["why"] == "nothing found":
        return (
            f"Verdict: no method predicts clearly better than the {found['over']} (the "
            f"best, {found['best']}: {by}), so there is no evidence of a relation "
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
    """Return whether more samples would help, according to the learning curve."""
    mean, error = found
    by = difference({"difference": mean, "difference_error": error}, scoring)
    by += " points" if _scale(scoring)[2] else ""
    if mean > 2.0 * error:
        said = (
            f"The score is still rising at the largest size ({by}): more samples would "
            "help."
        )
    else:
        said = (
            f"At the largest size, the score is no longer clearly rising ({by}): more "
            "samples of the same kind may not help much."
        )
    return f"{said} All sizes use the settings chosen on all samples."


# --- the data -------------------------------------------------------------------------


def missing(filled: int, absent: Mapping[str, int]) -> str:
    """Return a description of missing data: imputed values, and absent views."""
    said = [
        f"{plural(count, 'sample')} {'lacks' if count == 1 else 'lack'} view {view}"
        for view, count in absent.items()
    ]
    if filled:
        were = "was" if filled == 1 else "were"
        said.append(f"{plural(filled, 'missing value')} {were} filled in")
    else:
        said.append(f"no {'other ' if absent else ''}values were missing")
    return "; ".join(said)


# --- cells of tables ------------------------------------------------------------------


_SCORES = {
    "r2": "R²",
    "roc_auc": "AUC",
    "balanced_accuracy": "balanced accuracy",
    "average_precision": "average precision",
    "f1": "F1",
    "f1_macro": "F1, mean over classes",
    "matthews_corrcoef": "Matthews correlation",
    "neg_log_loss": "-log loss",
    "neg_root_mean_squared_error": "-RMSE",
    "neg_mean_absolute_error": "-MAE",
}


def scoring_name(scoring: str) -> str:
    """Return the display name of a score."""
    return _SCORES.get(scoring, scoring)


def differences(scoring: str) -> str:
    """Return how to read a comparison, and which scores are the better ones."""
    name = scoring_name(scoring)
    if not name.startswith("-"):
        return DIFFERENCES
    return (
        f"{DIFFERENCES} {name} is the {name[1:]} with a minus sign, so that greater is "
        "better, as for the other scores."
    )


def concordance(errors: Mapping[str, Any]) -> str:
    """Return how well risks order times, in a sentence."""
    if errors["concordance"] is None:
        return "No two samples of a fold are comparable, so there is no concordance."
    error = errors["standard_error"]
    some = "" if error is None else f" ± {error:.3f}"
    return (
        f"Concordance {errors['concordance']:.3f}{some} on the folds: the share of "
        "comparable pairs in which the sample with the earlier event has the higher "
        "predicted risk; one half is no better than chance."
    )


def by_view(found: Mapping[str, Any]) -> str:
    """Return a description of scores by view, with their total, for a caption."""
    scale, digits, unit = _scale(found["scoring"])
    name = scoring_name(found["scoring"])
    if name == "correlation":
        name += " of scores with the target"
    shown = [f"{scale * found['total']:.{digits}f}{unit} in all"]
    # parts of the product measure sum to the total
    if found["kind"] == "shapley":
        shown.append(f"{scale * found['rest']:.{digits}f}{unit} without views")
    kind = {
        "product": "parts of the score",
        "unique": "what is lost without a view",
        "shapley": "Shapley values",
    }[found["kind"]]
    return f"{kind}: {name}, {', '.join(shown)}"


def refits(kinds: Collection[str], left_out: Mapping[str, str], orders: int) -> str:
    """Return what models of some of the views were fitted for, and what not, and why.

    Parameters
    ----------
    kinds : collection of {"unique", "shapley"}
        What was computed.
    left_out : mapping of str to str
        Why others were not.
    orders : int
        Orders of the views that Shapley values were sampled from, 0 if from all.
    """
    said = [LEFT_OUT] if "unique" in kinds else []
    if "shapley" in kinds:
        said.append(SHAPLEY)
        if orders:
            said.append(
                f"It is sampled from {orders} orders; the second ± is the standard "
                "error of sampling."
            )
    if said:
        said.append(REFITTED)
    named = {"unique": "Scores without a view", "shapley": "Shapley values"}
    said += [
        f"{named[kind]} were not computed: {why}." for kind, why in left_out.items()
    ]
    return " ".join(said)


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
    """Return the score attributed to a view, and its standard errors."""
    scale, digits, _ = _scale(scoring)
    text = f"{round(scale * row['score'], digits) + 0.0:+.{digits}f}"
    errors = [row["standard_error"], row["sampling_error"]]
    known = [f"± {scale * e:.{digits}f}" for e in errors if e is not None]
    return " ".join([text, *known])


def refit_score(view: Mapping[str, Any], kind: str, scoring: str) -> str:
    """Return a score of a view by models of some of the views, with its errors."""
    drawn = view["sampling_error"] if kind == "shapley" else None
    row = {"score": view[kind], "standard_error": view[f"{kind}_error"]}
    return view_score({**row, "sampling_error": drawn}, scoring)


def difference(row: Mapping[str, Any], scoring: str) -> str:
    """Return the difference of a row of a comparison to the first, and its error."""
    scale, digits, _ = _scale(scoring)
    mean = round(scale * row["difference"], digits) + 0.0  # no negative zero
    return f"{mean:+.{digits}f} ± {scale * row['difference_error']:.{digits}f}"


def scale(scoring: str) -> tuple[float, str]:
    """Return the factor by which a score is shown, and its unit."""
    factor, _, unit = _scale(scoring)
    return factor, unit


def _scale(scoring: str) -> tuple[float, int, str]:
    shares = ("accuracy", "balanced_accuracy")
    return (100.0, 1, " %") if scoring in shares else (1.0, 3, "")


def seconds(row: Mapping[str, Any]) -> str:
    """Return the time of a fit of a row of a comparison."""
    return f"{row['fit_seconds']:.2g}"


def kernels_used(row: Mapping[str, Any], without: str = "-") -> str:
    """Return the number of kernels that a row of a comparison uses, if known."""
    if not row["n_kernels"]:
        return without
    return f"{row['kernels_used']:.3g} of {row['n_kernels']}"


def gain(value: float, scoring: str) -> str:
    """Return the change of a score."""
    scale, digits, _ = _scale(scoring)
    return f"{round(scale * value, digits) + 0.0:+.{digits}f}"


def p_value(value: float) -> str:
    """Return a p-value in the format of papers."""
    return f"{value:.3f}" if value >= 1e-3 else f"{value:.0e}"


def percent(share: float) -> str:
    """Return a share in percent; small ones as an upper bound."""
    return "< 0.1 %" if 0.0 < share < 5e-4 else f"{100.0 * share:.1f} %"


def rejected(names: Sequence[str]) -> str:
    """Return a sentence about the kernels that a search has left out."""
    return (
        "Left out because the sum of the others scored better on the folds: "
        f"{', '.join(names)}."
    )


def weight(row: Mapping[str, Any]) -> str:
    """Return the weight of a kernel; for several, how many are used."""
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
