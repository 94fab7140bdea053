"""A fitted model in words, numbers and a page, and files written whole or not."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import is_regressor
from sklearn.metrics import (
    confusion_matrix,
    mean_absolute_error,
    r2_score,
    roc_auc_score,
    roc_curve,
    root_mean_squared_error,
)
from sklearn.utils.validation import check_is_fitted

from mklearn.estimators import MKLDiscriminant, MKLOneClass, SubspaceKernel
from mklearn.estimators._predictor import as_bank
from mklearn.kernels import KernelBank, MultiView, alignment
from mklearn.kernels.normalise import fit_normaliser
from mklearn.report import html as page
from mklearn.solvers import Solution, Status

if TYPE_CHECKING:
    from mklearn.model_selection import Comparison

NEGLIGIBLE = 1e-4  # part of the largest weight below which a kernel does not count


@dataclass(frozen=True)
class KernelRow:
    """One kernel of a fitted model; with weights per class the means over classes."""

    name: str
    view: str | None
    parameters: dict[str, Any]
    weight: float
    contribution: float
    used: bool

    @property
    def short_name(self) -> str:
        """The name without the view."""
        return self.name.removeprefix(f"{self.view}:")


def kernel_rows(model: Any) -> list[KernelRow]:
    """Return the kernels of a fitted model in their order, with what they count."""
    check_is_fitted(model)
    weights = np.atleast_2d(model.kernel_weights_).mean(axis=0)
    shares = np.atleast_2d(model.kernel_contributions_).mean(axis=0)
    return [
        KernelRow(
            name,
            None if kernel is None else kernel.view,
            {} if kernel is None else kernel.parameters(),
            float(weight),
            float(share),
            bool(counts),
        )
        for name, kernel, weight, share, counts in zip(
            model.kernel_names_,
            model.kernels_,
            weights,
            shares,
            used_kernels(model.kernel_weights_),
            strict=True,
        )
    ]


def used_kernels(weights: ArrayLike) -> NDArray[np.bool_]:
    """Tell which kernels have more than a ten-thousandth of the largest weight.

    Below that a weight says how exactly the problem was solved, not that a kernel
    matters.

    Parameters
    ----------
    weights : array of shape (n_kernels,) or (n_classes, n_kernels)
    """
    size = np.abs(np.atleast_2d(weights)).max(axis=0)
    return np.asarray(size > NEGLIGIBLE * size.max())


def widest(solutions: Any) -> Any:
    """Return the solution with the largest gap of one or several."""
    if not isinstance(solutions, list):
        return solutions
    return max(solutions, key=lambda solution: solution.gap)


def kernel_alignment(model: Any, X: Any) -> NDArray[np.float64]:
    """Return the centred alignment of the kernels of a fitted model on some samples.

    Parameters
    ----------
    model : fitted estimator
    X : as in ``fit``; with precomputed kernels square ones

    Returns
    -------
    array of shape (n_kernels, n_kernels)
    """
    check_is_fitted(model)
    given = model._precomputed()
    bank = as_bank(X) if given else KernelBank(X, list(model.kernels_))
    return alignment(fit_normaliser(model.normalize, bank).train(bank))


def rows_by_view(rows: list[KernelRow]) -> dict[str | None, list[KernelRow]]:
    """Return the rows grouped by view, views in the order they appear."""
    groups: dict[str | None, list[KernelRow]] = {}
    for row in rows:
        groups.setdefault(row.view, []).append(row)
    return groups


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
        f"{100 * solution.gap:.2g} %. How well the model does on new samples is "
        "another question; that is what the cross-validated score is for."
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
    if getattr(model, "C", None) == "learn":
        return "this loss", "cost or classifier"
    C = getattr(model, "C_", getattr(model, "C", None))
    setting = "this C" if not isinstance(C, (int, float)) else f"C = {C:.3g}"
    values = is_regressor(model) if model is not None else False
    return setting, "regression function" if values else "classifier"


def certificate(solution: Solution, model: Any = None) -> dict[str, Any]:
    """Return the bounds and what they say, ready for JSON."""
    return {
        "objective": solution.upper,
        "lower_bound": solution.lower,
        "relative_gap": solution.gap,
        "status": solution.status.name,
        "n_iter": solution.n_iter,
        "solver": solution.solver,
        "message": solution.message,
        "plain_words": plain_words(solution, model),
    }


def evidence(solution: Solution) -> dict[str, Any]:
    """Return how likely the values are and what that says, ready for JSON."""
    return {
        "log_evidence": solution.about.evidence,
        "log_evidence_of_nothing": solution.about.nothing,
        "promise": solution.about.promise,
        "noise": solution.about.noise.tolist(),
        "status": solution.status.name,
        "n_iter": solution.n_iter,
        "message": solution.message,
        "plain_words": (
            "The weights are those under which the values of these samples are most "
            "likely, among all weights near them; there is no proof that others, far "
            "from these, are not better. How well the model does on new samples is "
            "another question; that is what the cross-validated score is for."
        ),
    }


@contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a temporary path beside ``path``; it takes its place if all goes well.

    Readers see the old file or the new one, never a part of it, and nothing is left
    behind after an error or Ctrl-C.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def whole_files(folder: str | os.PathLike[str]) -> Iterator[Path]:
    """Give an empty folder; its files move to ``folder`` together if all goes well.

    The results of one run are either all there or none of them is, and what an earlier
    run has left stays as it was.
    """
    folder = Path(folder)
    temporary = folder / f".{os.getpid()}.tmp"
    temporary.mkdir()
    try:
        yield temporary
        for path in sorted(temporary.iterdir()):
            os.replace(path, folder / path.name)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def write_json(path: str | os.PathLike[str], content: Any) -> None:
    """Write ``content`` as JSON, whole or not at all."""
    text = json.dumps(content, indent=2, allow_nan=False) + "\n"
    with whole_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


# --- report.html ----------------------------------------------------------------------


@dataclass(frozen=True)
class DataSummary:
    """What was learned from.

    Attributes
    ----------
    n_samples : int
    views : mapping of str to int
        Columns of each view.
    classes : mapping of str to int
        Samples of each class, empty without classes.
    missing : int
        Values that were missing and had to be filled in.
    source : str
        Where the samples are from.
    absent : mapping of str to int
        Samples that lack a view, for views that some lack.
    """

    n_samples: int
    views: Mapping[str, int]
    classes: Mapping[str, int] = field(default_factory=dict)
    missing: int = 0
    source: str = ""
    absent: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Predictions:
    """Cross-validated predictions: each made by a model that had not seen the sample.

    Attributes
    ----------
    truth, predicted : arrays of shape (n_samples,)
        Class labels, or numbers if the model of the report is a regressor.
    scores : array of shape (n_samples,), optional
        Decision values for the second of two classes.
    """

    truth: NDArray[Any]
    predicted: NDArray[Any]
    scores: NDArray[np.float64] | None = None


@dataclass(frozen=True)
class Report:
    """What ``report.html`` shows; parts that are None are left out.

    Attributes
    ----------
    title : str
    data : DataSummary
    model : fitted estimator of mklearn
    comparison : Comparison, optional
        As :func:`mklearn.model_selection.compare` returns it.
    scoring : str
        What its scores are.
    alignment : array of shape (n_kernels, n_kernels), optional
        As :func:`kernel_alignment` returns it.
    predictions : Predictions, optional
    loading : str
        Code that loads the model, shown as it is.
    """

    title: str
    data: DataSummary
    model: Any
    comparison: Comparison | None = None
    scoring: str = "accuracy"
    alignment: NDArray[np.float64] | None = None
    predictions: Predictions | None = None
    loading: str = ""


def describe_data(
    X: Any, y: Any = None, *, missing: int = 0, source: str = ""
) -> DataSummary:
    """Return the summary of samples and, if ``y`` is given, of their classes."""
    if isinstance(X, KernelBank) or getattr(X, "ndim", 2) == 3:
        views = {"precomputed kernels": X.shape[2]}
    elif isinstance(X, MultiView):
        views = {name: 1 if X.is_text(name) else X[name].shape[1] for name in X}
    else:
        views = {"X": np.shape(X)[1]}
    absent = {}
    if isinstance(X, MultiView):
        counts = {name: int(X.absent(name).sum()) for name in X}
        absent = {name: count for name, count in counts.items() if count}
    classes = {}
    if y is not None:
        labels, counts = np.unique(np.asarray(y), return_counts=True)
        classes = {str(k): int(n) for k, n in zip(labels, counts, strict=True)}
    return DataSummary(X.shape[0], views, classes, missing, source, absent)


def write_html(path: str | os.PathLike[str], report: Report) -> None:
    """Write a report as one HTML file that needs no other, whole or not at all.

    Figures need matplotlib; without it their numbers stand in tables alone.
    """
    html = report_html(report)
    with whole_file(path) as temporary:
        temporary.write_text(html, encoding="utf-8")


def report_html(report: Report) -> str:
    """Return the report as a page."""
    from mklearn import __version__

    sections = [("Data", _data_section(report.data))]
    if report.comparison is not None:
        sections.append(("Comparison", _comparison_section(report)))
    sections.append(("Kernels", _kernels_section(report.model)))
    if report.alignment is not None:
        sections.append(("Alignment", _alignment_section(report)))
    if hasattr(report.model, "solution_") and not hasattr(report.model, "evidence_"):
        sections.append(("Certificate", _certificate_section(report.model)))
    if hasattr(report.model, "evidence_"):
        sections.append(("Evidence", _evidence_section(report.model.solution_)))
    if report.predictions is not None:
        values = is_regressor(report.model)
        show = _differences_section if values else _confusion_section
        sections.append(("Errors", show(report.predictions)))
    sections.append(("Loading the model", _loading_section(report.loading)))
    return page.page(report.title, sections, f"mklearn {__version__}")


def _data_section(data: DataSummary) -> str:
    filled = f"{data.missing} missing values were filled in"
    if not data.missing:
        filled = "no values were missing"
    start = f"{data.n_samples} samples; {filled}."
    parts = [
        page.paragraph(f"{start} Source: {data.source}." if data.source else start)
    ]
    heads, views = ["view", "columns"], list(data.views.items())
    if data.absent:
        heads = [*heads, "samples without it"]
        views = [(name, n, data.absent.get(name, 0)) for name, n in views]
    parts.append(page.table("Views of the samples", heads, views))
    if data.absent:
        parts.append(
            page.paragraph(
                "A sample without a view counts as the average of those that have it."
            )
        )
    if data.classes:
        rows = [
            (k, n, page.Number(f"{100.0 * n / data.n_samples:.1f} %"))
            for k, n in data.classes.items()
        ]
        parts.append(page.table("Classes", ["class", "samples", "share"], rows))
    return "".join(parts)


def _comparison_section(report: Report) -> str:
    comparison = report.comparison
    assert comparison is not None
    scale, digits, unit = (
        (100.0, 1, " %") if report.scoring == "accuracy" else (1, 3, "")
    )
    first, rows = comparison.names[0], []
    for i, row in enumerate(comparison.table()):
        used = "-"
        if row["n_kernels"]:
            used = f"{row['kernels_used']:.3g} of {row['n_kernels']}"
        score, error = scale * row["score"], scale * row["standard_error"]
        mean, spread = (scale * v for v in comparison.difference(row["model"], first))
        mean = round(mean, digits) + 0.0  # no minus before a zero
        rows.append(
            (
                row["model"],
                page.Number(f"{score:.{digits}f} ± {error:.{digits}f}{unit}"),
                page.Number(f"{mean:+.{digits}f} ± {spread:.{digits}f}" if i else ""),
                page.Number(f"{row['fit_seconds']:.2g}"),
                used,
            )
        )
    heads = ["model", report.scoring, "difference", "seconds", "kernels used"]
    folds = comparison.scores.shape[1]
    caption = f"Mean {report.scoring} on the same {folds} folds, and the time of a fit"
    return page.table(caption, heads, rows) + page.paragraph(
        "Differences are to the first row; ± is one standard error, and less than two "
        "of them is no clear difference."
    )


def _kernels_section(model: Any) -> str:
    rows = kernel_rows(model)
    top = max([row.weight for row in rows] + [1e-300])
    shown = [
        (
            r.name,
            r.view or "-",
            page.Number(f"{r.weight:.3f}" if r.used else "-"),
            page.Bar(r.weight / top),
            page.Number(f"{r.contribution:.1%}" if r.used else "-"),
        )
        for r in rows
    ]
    heads = ["kernel", "view", "weight", "relative", "contribution"]
    words = (
        "A contribution is a kernel's share in the squared norm of the decision "
        "function; contributions sum to 100 % and do not depend on the kernels' "
        "scales. A dash stands for a kernel that is not used."
    )
    used = sum(row.used for row in rows)
    caption = f"Kernel weights: {used} of {len(rows)} kernels are used"
    if np.ndim(model.kernel_weights_) == 2:
        caption += "; each class has its own, and here are their means"
    return page.table(caption, heads, shown) + page.paragraph(words)


def _alignment_section(report: Report) -> str:
    names, values = report.model.kernel_names_, np.asarray(report.alignment)
    words = page.paragraph(
        "One means that two kernels are equal up to scale. Kernels that are much alike "
        "share their weight, and how they share it says little."
    )
    figsize = (2.5 + 0.45 * len(names), 1.8 + 0.4 * len(names))
    drawn = _new_figure(figsize)
    if drawn is not None:
        from mklearn.plotting import KernelAlignmentDisplay

        # a dollar would start a formula
        plain = [page.clean(name).replace("$", r"\$") for name in names]
        shown = KernelAlignmentDisplay(alignment=values, names=plain)
        shown.plot(drawn.subplots())
        alt = f"Heat map: centred alignment of the {len(names)} kernels, pair by pair"
        words += page.figure(drawn, alt, 1, wide=len(names) > 4)
    above = np.triu(np.ones(values.shape, dtype=bool), 1)
    pairs = sorted(np.argwhere(above).tolist(), key=lambda ij: -values[tuple(ij)])[:10]
    rows = [(f"{names[i]} and {names[j]}", float(values[i, j])) for i, j in pairs]
    if rows:
        caption = "The pairs of kernels that are most alike"
        words += page.table(caption, ["kernels", "centred alignment"], rows)
    return words


def _certificate_section(model: Any) -> str:
    solution = widest(model.solution_)
    parts = page.paragraph(plain_words(solution, model), "words")
    parts += page.paragraph(solution.message)
    drawn = _new_figure((7, 4))
    if drawn is not None:
        from mklearn.plotting import ConvergenceDisplay

        ConvergenceDisplay.from_solution(solution, ax=drawn.subplots())
        alt = (
            f"Upper and lower bound on the optimum over {solution.n_iter} iterations; "
            f"they end at {solution.upper:.6g} and {solution.lower:.6g}"
        )
        parts += page.figure(drawn, alt, 2)
    return parts


def _evidence_section(solution: Solution) -> str:
    found = evidence(solution)
    parts = page.paragraph(found["plain_words"], "words")
    parts += page.paragraph(solution.message)
    rows = [
        (f"noise of output {i + 1}, standard deviation", _size(np.sqrt(s)))
        for i, s in enumerate(solution.about.noise)
    ]
    return parts + page.table("What the kernels leave", ["", "value"], rows)


def _differences_section(found: Predictions) -> str:
    truth, predicted = found.truth, found.predicted
    share = float(r2_score(truth, predicted))
    rows = [
        ("R²", page.Number(f"{share:.3f}")),
        ("mean absolute error", _size(mean_absolute_error(truth, predicted))),
        (
            "root of the mean squared error",
            _size(root_mean_squared_error(truth, predicted)),
        ),
        ("standard deviation of the target", _size(np.std(truth))),
    ]
    caption = f"Cross-validated predictions of {len(truth)} samples"
    parts = page.table(caption, ["error", "value"], rows)
    drawn = _new_figure((5, 5))
    if drawn is None:
        return parts
    ax = drawn.subplots()
    ends = [min(truth.min(), predicted.min()), max(truth.max(), predicted.max())]
    ax.plot(ends, ends, color="0.5", ls="--", lw=1)
    ax.scatter(truth, predicted, color="#0072B2", s=12, alpha=0.6, linewidths=0)
    ax.set(xlabel="target", ylabel="prediction", aspect="equal")
    alt = (
        f"Cross-validated predictions against the target, with R² {share:.3f}; on the "
        "dashed line both are equal"
    )
    return parts + page.figure(drawn, alt, 3)


def _size(value: Any) -> page.Number:
    return page.Number(f"{float(value):.3g}")


def _confusion_section(found: Predictions) -> str:
    labels = np.unique(np.concatenate([found.truth, found.predicted]))
    counts = confusion_matrix(found.truth, found.predicted, labels=labels)
    rows = [
        (str(k), *(page.Share(int(n), int(row.sum())) for n in row))
        for k, row in zip(labels, counts, strict=True)
    ]
    heads = ["true class", *(f"predicted {k}" for k in labels)]
    right = float(np.mean(found.truth == found.predicted))
    caption = (
        f"Confusion matrix of cross-validated predictions, {100 * right:.1f} % of "
        "which are right"
    )
    parts = page.table(caption, heads, rows)
    if found.scores is None or len(labels) != 2:
        return parts
    second = found.truth == labels[1]
    area = float(roc_auc_score(second, found.scores))
    alt = f"ROC curve for class {labels[1]}; the area under it is {area:.3f}"
    drawn = _new_figure((5, 5))
    if drawn is None:
        return parts + page.paragraph(alt)
    ax = drawn.subplots()
    ax.plot(*roc_curve(second, found.scores)[:2], color="#0072B2", lw=2)
    ax.plot([0, 1], [0, 1], color="0.5", ls="--", lw=1)
    ax.set(xlabel="false positive rate", ylabel="true positive rate", aspect="equal")
    return parts + page.figure(drawn, alt, 3)


def _loading_section(loading: str) -> str:
    if not loading:
        return page.paragraph("The model was not saved.")
    return f"<pre><code>{page.text(loading)}</code></pre>"


def _new_figure(figsize: tuple[float, float]) -> Any:
    """Return a figure that no window knows of, None without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return None
    return Figure(figsize=figsize, layout="constrained")
