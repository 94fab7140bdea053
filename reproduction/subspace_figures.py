"""Dimensions, bounds and iterations (Chen et al. 2008, section 6.2, figures 1 to 3)."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone

from mklearn import Hinge, KernelBank
from mklearn.kernels.normalise import fit_normaliser
from mklearn.plotting import OKABE_ITO
from mklearn.problems.subspace import Criterion, label_factor
from mklearn.solvers.subspace import svm_on
from reproduction.cells import Results, Table, Values, on_splits
from reproduction.page import save

DIMENSIONS = tuple(range(1, 16))
ITERATIONS = 10
HALVES = 5
METHODS = ("SKFE", "HSIC", "uHSIC", "SVM_joint", "uSVM_joint")
JOINT = METHODS[3:]
USPS, SATIMAGE, SEGMENT, WINE = "USPS", "satimage", "segment", "wine"

CHOICES = {
    "figures": f"the samples of Table 2; {HALVES} random halves, as the number is not "
    "stated; sigma, lambda and C by cross-validation on each training half, as there. "
    "The alternation starts from the features of the label kernel and takes ten "
    "rounds; the exact solution is that of the SVMs on the kernel of all directions, "
    "which is optimal for as many features as classes",
}

_DIMENSION_KEYS = ("smallest error", "best dimension")
_BOUND_KEYS = ("gap of bounds", "above the optimum")
_ERROR_KEYS = (
    "first error",
    "best error",
    "best iteration",
    "last error",
    "exact error",
)

TABLES = (
    Table(
        "figure1",
        "smallest test error in percent over 1 to 15 features, and at how many",
        (USPS, SATIMAGE),
        METHODS,
        HALVES,
        keys=_DIMENSION_KEYS,
    ),
    Table(
        "figure2",
        "bounds after ten rounds of the joint methods: how far they are apart, and the "
        "upper one above the exact optimum, in percent",
        (WINE, SATIMAGE, SEGMENT),
        JOINT,
        HALVES,
        keys=_BOUND_KEYS,
    ),
    Table(
        "figure3",
        "test error in percent over ten rounds, and of the exact solution",
        (SEGMENT, SATIMAGE),
        JOINT,
        HALVES,
        keys=_ERROR_KEYS,
        of=("figure2",),
    ),
)
QUICK = (
    Table("figure1", "over features", (WINE,), ("uHSIC",), 1, keys=_DIMENSION_KEYS),
    Table("figure2", "over rounds", (WINE,), ("uSVM_joint",), 1, keys=_BOUND_KEYS),
)
BANDS = (
    *on_splits(WINE, ("uHSIC",), "smallest error", 2.27, 88, change=2),
    *on_splits(WINE, ("uSVM_joint",), "exact error", 4.55, 88, change=2),
)
CLASSES = {USPS: 10, SATIMAGE: 6, SEGMENT: 7, WINE: 3}


# --- cells ----------------------------------------------------------------------------


def work(name: str, model: Any, train: Any, test: Any) -> Values:
    """Return what a figure shows of a method, given its chosen parameters.

    Parameters
    ----------
    name : str
        Of the figure.
    model : SubspaceClassifier
        With one kernel, reg and C.
    train, test : (X, y)
    """
    part = by_dimension if name == "figure1" else alternation
    return part(model, train, test)


def by_dimension(model: Any, train: Any, test: Any) -> Values:
    """Return the test error for each number of features."""
    curve = []
    for q in DIMENSIONS:
        with warnings.catch_warnings():
            # above the rank nothing changes, which is what the figure shows
            warnings.simplefilter("ignore")
            fitted = clone(model).set_params(n_components=q).fit(*train)
        curve.append(100 * (1.0 - float(fitted.score(*test))))
    best = int(np.argmin(curve))
    return {
        "curve": curve,
        "smallest error": curve[best],
        "best dimension": DIMENSIONS[best],
    }


def alternation(model: Any, train: Any, test: Any) -> Values:
    """Return bounds and errors of each round, and those of the exact solution."""
    (X, y), (X_new, y_new) = train, test
    labels, y = np.unique(y, return_inverse=True)
    raw = KernelBank(X, model.kernels).stored()
    normaliser = fit_normaliser("center", raw)
    G = normaliser.train(raw).gram(0)
    new = normaliser.cross(raw.cross(X_new)).gram(0)
    k = len(labels)
    Y = np.where(y[:, None] == np.arange(k), 1.0, -1.0)
    loss = Hinge(Y, np.full(Y.shape, float(model.C)))
    criterion = Criterion(G, float(model.reg), bool(model.uncorrelated))

    def error(found: Any, svms: Any) -> float:
        scores = (new @ found.coef) @ (found.features.T @ svms.A) + svms.bias
        return 100 * float(np.mean(labels[scores.argmax(axis=1)] != y_new))

    upper, lower, errors = [], [], []
    found, A = criterion.best(label_factor(y, k), k), None
    for _ in range(ITERATIONS):
        svms = svm_on(found.features, loss, start=A)
        A = svms.A
        then = criterion.best(A, k)
        upper.append(float(svms.upper))
        lower.append(float(loss.dual(A) - 0.5 * float(then.values.sum())))
        errors.append(error(found, svms))
        found = then
    svms = svm_on(KernelBank.from_grams(criterion.whole()), loss)
    exact = float(svms.upper)
    best = int(np.argmin(errors))
    return {
        "upper": upper,
        "lower": lower,
        "errors": errors,
        "exact": exact,
        "gap of bounds": 100 * (min(upper) - max(lower)) / abs(min(upper)),
        "above the optimum": 100 * (min(upper) / exact - 1.0),
        "first error": errors[0],
        "best error": errors[best],
        "best iteration": best + 1,
        "last error": errors[-1],
        "exact error": error(criterion.best(svms.A, k), svms),
    }


# --- what the results say -------------------------------------------------------------


def claims(results: Results) -> list[str]:
    """Compare with what the paper says about the figures."""
    text = []
    for table in results.tables:
        for data in table.data if table.name == "figure1" else ():
            k = CLASSES[data]
            for method in table.methods:
                curves = [c["curve"] for c in results.of(table, data, method)]
                if not curves:
                    continue
                mean = np.mean(curves, axis=0)
                falls = bool((np.diff(mean[: k - 1]) <= 0).all())
                text.append(
                    f"- Figure 1, {data}, {method}: the mean error is smallest at "
                    f"{DIMENSIONS[int(mean.argmin())]} features ({k} classes), with "
                    f"{mean.min():.2f} %; below the number of classes it "
                    f"{'falls' if falls else 'does not fall'} at every step; at "
                    f"{k - 1} features it is {mean[k - 2]:.2f} %."
                )
        for data in table.data if table.name == "figure2" else ():
            for method in table.methods:
                cells = results.of(table, data, method)
                if not cells:
                    continue
                rounds = [first_within(c, 0.01) for c in cells]
                met = [r for r in rounds if r is not None]
                error = np.mean([c["errors"] for c in cells], axis=0)
                text.append(
                    f"- Figures 2 and 3, {data}, {method}: the bounds of alternation "
                    f"meet to 1 % in {len(met)} of {len(cells)} runs"
                    + (f", after {np.mean(met):.1f} rounds" if met else "")
                    + f"; the mean error is smallest in round {int(error.argmin()) + 1}"
                    f" ({error.min():.2f} %), and {error[-1]:.2f} % in the last; of "
                    "the exact solution it is "
                    f"{np.mean([c['exact error'] for c in cells]):.2f} %."
                )
    if not text:
        return []
    return [
        "",
        "## The paper's claims about the figures",
        "",
        "It says that errors fall as long as there are fewer features than classes and "
        "are smallest near one less; that the bounds meet after few rounds, and that "
        "the best error is there within three or four. More features than the rank of "
        "the criterion do not exist, so that errors stay from there on; SKFE alone has "
        "more.",
        "",
        *text,
    ]


def first_within(cell: Values, share: float) -> int | None:
    """Return the first round in which the best bounds are as near as asked, or None."""
    upper = np.minimum.accumulate(cell["upper"])
    lower = np.maximum.accumulate(cell["lower"])
    near = np.flatnonzero(upper - lower <= share * np.abs(upper))
    return int(near[0]) + 1 if len(near) else None


def draw(results: Results, folder: Path) -> list[str]:
    """Draw the three figures, as far as their cells are there."""
    tables = {table.name: table for table in results.tables}
    suffix = "_quick" * results.settings.quick
    names = []
    if "figure1" in tables:
        names += _draw_dimensions(results, tables["figure1"], folder, suffix)
    if "figure2" in tables:
        names += _draw_bounds(results, tables["figure2"], folder, suffix)
        names += _draw_errors(results, tables["figure2"], folder, suffix)
    return names


def _panels(results: Results, table: Table) -> list[tuple[str, str]]:
    return [
        (data, method)
        for data in table.data
        for method in table.methods
        if results.of(table, data, method)
    ]


def _axes(count: int) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    rows = -(-count // 2)
    columns = min(count, 2)
    figure = Figure(figsize=(4.8 * columns, 3.2 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
        ax.locator_params(axis="x", integer=True)
    return figure, axes


def _draw_dimensions(
    results: Results, table: Table, folder: Path, suffix: str
) -> list[str]:
    done = list(dict.fromkeys(data for data, _ in _panels(results, table)))
    if not done:
        return []
    figure, axes = _axes(len(done))
    for ax, data in zip(axes, done, strict=False):
        for j, method in enumerate(table.methods):
            curves = [c["curve"] for c in results.of(table, data, method)]
            if curves:
                style = {"color": OKABE_ITO[j], "marker": "osD^v"[j], "ms": 4}
                ax.plot(DIMENSIONS, np.mean(curves, axis=0), label=method, **style)
        ax.axvline(CLASSES[data] - 1, color="0.6", ls=":", lw=1)
        ax.set_title(data)
        ax.set_xlabel("features wanted")
    axes[0].set_ylabel("test error (%)")
    axes[0].legend(frameon=False, fontsize="small")
    return [save(figure, folder / f"figure1{suffix}.png")]


def _draw_bounds(
    results: Results, table: Table, folder: Path, suffix: str
) -> list[str]:
    panels = [(d, m) for d, m in _panels(results, table) if d != SEGMENT]
    if not panels:
        return []
    figure, axes = _axes(len(panels))
    rounds = np.arange(1, ITERATIONS + 1)
    for ax, (data, method) in zip(axes, panels, strict=False):
        cell = results.of(table, data, method)[0]
        ax.plot(rounds, cell["upper"], "o-", color=OKABE_ITO[5], label="upper")
        ax.plot(rounds, cell["lower"], "s-", color=OKABE_ITO[0], label="lower")
        ax.axhline(cell["exact"], color="0.4", ls="--", lw=1, label="exact optimum")
        if min(cell["lower"]) < 0.5 * cell["exact"]:  # far apart, or even negative
            ax.set_yscale("symlog", linthresh=abs(cell["exact"]))
        ax.set_title(f"{data}, {method}, first half")
        ax.set_xlabel("round")
    axes[0].legend(frameon=False, fontsize="small")
    return [save(figure, folder / f"figure2{suffix}.png")]


def _draw_errors(
    results: Results, table: Table, folder: Path, suffix: str
) -> list[str]:
    panels = [(d, m) for d, m in _panels(results, table) if d != WINE]
    if not panels:
        return []
    figure, axes = _axes(len(panels))
    rounds = np.arange(1, ITERATIONS + 1)
    for ax, (data, method) in zip(axes, panels, strict=False):
        cells = results.of(table, data, method)
        error = np.mean([c["errors"] for c in cells], axis=0)
        level = float(np.mean([c["exact error"] for c in cells]))
        ax.plot(rounds, error, "o-", color=OKABE_ITO[0], label="alternating")
        ax.axhline(level, color="0.4", ls="--", lw=1, label="exact solution")
        ax.set_title(f"{data}, {method}")
        ax.set_xlabel("round")
        ax.set_ylabel("test error (%)")
    axes[0].legend(frameon=False, fontsize="small")
    return [save(figure, folder / f"figure3{suffix}.png")]
