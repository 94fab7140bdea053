"""The methods section for a paper about a run, with references."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.base import is_regressor

from mklearn import __version__
from mklearn.data.covariates import Place
from mklearn.data.spelling import plural
from mklearn.estimators import MKLCox, MKLSurvivalSVM
from mklearn.fitted import KernelRow, kernel_rows, proofs, widest
from mklearn.kernels.groups import GroupFamily
from mklearn.problems import TwoLevel
from mklearn.report import words
from mklearn.report.facts import DataSummary, Report

MOST_LISTED = 8  # names that are listed

SOURCES = {
    "mkl": "Lanckriet, G. R. G., Cristianini, N., Bartlett, P., El Ghaoui, L. and "
    "Jordan, M. I. (2004). Learning the kernel matrix with semidefinite programming. "
    "Journal of Machine Learning Research 5, 27-72.",
    "lp": "Kloft, M., Brefeld, U., Sonnenburg, S. and Zien, A. (2011). lp-norm "
    "multiple kernel learning. Journal of Machine Learning Research 12, 953-997.",
    "cox": "Cox, D. R. (1972). Regression models and life-tables. Journal of the Royal "
    "Statistical Society B 34, 187-220.",
    "breslow": "Breslow, N. (1974). Covariance analysis of censored survival data. "
    "Biometrics 30, 89-99.",
    "efron": "Efron, B. (1977). The efficiency of Cox's likelihood function for "
    "censored data. Journal of the American Statistical Association 72, 557-565.",
    "survival svm": "Shivaswamy, P. K., Chu, W. and Jansche, M. (2007). A support "
    "vector approach to censored targets. IEEE International Conference on Data "
    "Mining, 655-660.",
    "concordance": "Harrell, F. E., Califf, R. M., Pryor, D. B., Lee, K. L. and "
    "Rosati, R. A. (1982). Evaluating the yield of medical tests. Journal of the "
    "American Medical Association 247, 2543-2546.",
    "differences": "Nadeau, C. and Bengio, Y. (2003). Inference for the "
    "generalization error. Machine Learning 52, 239-281.",
    "scikit-learn": "Pedregosa, F. et al. (2011). Scikit-learn: machine learning in "
    "Python. Journal of Machine Learning Research 12, 2825-2830.",
}


def methods_text(report: Report) -> tuple[str, list[str]]:
    """Return sentences for a methods section, and the sources that they cite.

    Parameters
    ----------
    report : Report
    """
    model, data = report.model, report.data
    rows, cited = kernel_rows(model), ["mkl"]
    views = _without_covariates(data.views, model)
    of_times = isinstance(model, (MKLCox, MKLSurvivalSVM))
    task = "regression" if is_regressor(model) else "classification"
    task = "a survival analysis" if of_times else task
    columns = ", ".join(f"{k}: {plural(n, 'column')}" for k, n in views.items())
    said = [
        f"{plural(data.n_samples, 'sample')}{_events(data)} in "
        f"{plural(len(views), 'view')} ({columns}) were used for {task} by multiple "
        "kernel learning (Lanckriet et al., 2004) with "
        f"{_kernels(model, rows, len(views))}."
    ]
    if of_times:
        text, sources = _likelihood(model)
        said.append(text)
        cited += sources
    covariates = _places(model)
    if covariates:
        names = list(dict.fromkeys(place.name for place in covariates))
        listed = f" ({', '.join(names)})" if len(names) <= MOST_LISTED else ""
        said.append(
            f"{plural(len(names), 'covariate')}{listed} entered linearly, with "
            f"{'an ' if len(names) == 1 else ''}unpenalised "
            f"coefficient{'s' if len(names) > 1 else ''}."
        )
    norm = getattr(model, "norm_", getattr(model, "norm", None))
    if isinstance(norm, (int, float)):
        if np.isinf(norm):
            kept = " that were kept" if getattr(model, "rejected_", ()) else ""
            said.append(f"All normalised kernels{kept} had the same weight.")
        else:
            said.append(
                f"Kernel weights were learned under an l{norm:.3g}-norm (Kloft et al., "
                "2011)."
            )
            cited.append("lp")
    if isinstance(norm, TwoLevel):
        of = "views" if norm.groups is None else "groups of kernels"
        said.append(
            f"Kernel weights were learned under a two-level norm, the l{norm.outer:.3g}"
            f"-norm between {of} and the l{norm.inner:.3g}-norm within them."
        )
    cost = getattr(model, "C_", getattr(model, "C", None))
    if hasattr(model, "Cs_"):
        said.append(
            f"C, out of {len(model.Cs_)} values from {min(model.Cs_):.3g} to "
            f"{max(model.Cs_):.3g}, and the norm, out of {len(model.norms_)}, were "
            "chosen by cross-validation within the training samples (C = "
            f"{model.C_:.3g} on all samples)."
        )
    elif isinstance(cost, (int, float)):
        said.append(f"C was {cost:.3g}.")
    if getattr(model, "rejected_", ()):
        said.append(
            f"{plural(len(model.rejected_), 'kernel')} with the narrowest widths "
            f"{'were' if len(model.rejected_) > 1 else 'was'} left out because the sum "
            "of the others scored better on the same folds."
        )
    solutions = proofs(model)
    if solutions:
        said.append(
            "A duality gap certifies that the training objective is within "
            f"{100 * widest(solutions).gap:.2g} % of the optimum."
        )
    if data.missing:
        verb = "was" if data.missing == 1 else "were"
        said.append(f"{plural(data.missing, 'missing value')} {verb} filled in.")
    if data.absent:
        lacking = ", ".join(
            f"{plural(n, 'sample')} lacked view {view}"
            for view, n in data.absent.items()
        )
        said.append(
            f"{lacking}; samples without a view were assigned the average of those "
            "that have it."
        )
    if report.comparison is not None:
        folds = report.comparison.scores.shape[1]
        score = words.scoring_name(report.scoring).removeprefix("-")
        if report.scoring == "concordance":
            score = "the concordance index (Harrell et al., 1982)"
            cited.append("concordance")
        said.append(
            f"All models were scored by {score} on the same {plural(folds, 'fold')}; "
            "standard errors of differences are corrected for the overlap of training "
            "sets (Nadeau and Bengio, 2003)."
        )
        cited.append("differences")
    said.append(
        f"Computations were done with mklearn {__version__} and scikit-learn "
        "(Pedregosa et al., 2011)."
    )
    cited.append("scikit-learn")
    return " ".join(said), [SOURCES[key] for key in cited]


def _events(data: DataSummary) -> str:
    if data.events is None:
        return ""
    censored = data.n_samples - data.events
    return f" ({data.events} with an event, {censored} censored)"


def _likelihood(model: Any) -> tuple[str, list[str]]:
    """Return what a survival model maximises or minimises, and the sources."""
    if isinstance(model, MKLSurvivalSVM):
        loss = "squared" if model.loss == "squared" else "epsilon-insensitive"
        return (
            "The logarithm of the time was predicted by a survival support vector "
            f"machine (Shivaswamy et al., 2007) with the {loss} loss, in which a "
            "censored sample is an error only if its predicted time is too early."
        ), ["survival svm"]
    named = {"breslow": "Breslow (1974)", "efron": "Efron (1977)"}[model.ties]
    strata = len(model.strata_)
    apart = (
        f" Each of {strata} strata had its own baseline hazard." if strata > 1 else ""
    )
    return (
        "The log hazard was estimated by Cox's partial likelihood (Cox, 1972), in "
        "which censored samples are at risk until their time; ties were handled by "
        f"the method of {named}.{apart}"
    ), ["cox", model.ties]


def _kernels(model: Any, rows: Sequence[KernelRow], n_views: int) -> str:
    """Return how many kernels there are, on what and of which kinds."""
    per = "each view" if n_views > 1 else "the samples"
    sizes = _set_sizes(model)
    others = [row for row in rows if row.name not in sizes]
    kinds = Counter(row.name.rpartition(":")[2] for row in others)
    short = len(kinds) <= MOST_LISTED
    listed = ", ".join(kinds) if short else plural(len(kinds), "kernel")
    if not sizes:
        return f"{plural(len(rows), 'kernel')}, on {per}: {listed}"
    least, most = min(sizes.values()), max(sizes.values())
    many = len(sizes) if others else "all"
    each = f"{least} to " if least < most else ""
    text = (
        f"{plural(len(rows), 'kernel')}, {many} of them on given sets of columns "
        f"(such as gene sets) of {each}{plural(most, 'column')} each"
    )
    return f"{text}, the others: {listed}" if others else text


def _set_sizes(model: Any) -> dict[str, int]:
    """Return the number of columns of each kernel on a given set of columns."""
    known = {name for family in _families(model.kernels) for name, _ in family.groups}
    found = {}
    for name, kernel in zip(model.kernel_names_, model.kernels_, strict=True):
        if not known or kernel is None or kernel.columns is None:
            continue
        short = name.removeprefix(f"{kernel.view}:")
        if short in known or short.rpartition(":")[0] in known:
            found[name] = len(kernel.columns)
    return found


def _families(kernels: Any) -> list[GroupFamily]:
    if isinstance(kernels, GroupFamily):
        return [kernels]
    if isinstance(kernels, (list, tuple)):
        return [family for part in kernels for family in _families(part)]
    return []


def _places(model: Any) -> tuple[Place, ...]:
    """Return where the covariates of a model are; none if it has none."""
    fixed = getattr(model, "_fixed", None)
    return () if fixed is None else fixed.places


def _without_covariates(views: Mapping[str, int], model: Any) -> dict[str, int]:
    """Return the number of columns of each view that are not covariates."""
    left = dict(views)
    for place in _places(model):
        view = place.view if place.view is not None else next(iter(views))
        left[view] = 0 if place.column is None else left[view] - 1
    return {view: n for view, n in left.items() if n > 0} or dict(views)
