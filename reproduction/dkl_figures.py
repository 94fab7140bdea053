"""Accuracy against lambda (Ye, Ji and Chen 2008, section 5.5, figures 3 and 4)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from mklearn.plotting import OKABE_ITO
from reproduction.cells import Results, Table, Values
from reproduction.claims import joined
from reproduction.page import save

LAMBDAS = np.logspace(-10, 2, 30)
EVERY = 5  # of the lambdas SDP takes
SPLITS = 5
METHODS = ("SILP_theta", "Newton_theta", "SDP_theta")
APART = "distance from the exact problem"
SUMMARY = ("lowest accuracy", "highest accuracy", "mean step", APART)

CHOICES = {
    "figures 3 and 4": "30 values of lambda, evenly on a logarithmic scale from 1e-10 "
    "to 1e2, the upper end being garbled. The exact problem by Newton steps to a gap "
    "of 1e-6 in place of QCQP, for which a conic solver needs many seconds at every "
    "lambda; SDP at every fifth lambda, for time. The two multi-class sets are not "
    f"legible and taken to be wine(3) and segment(3); {SPLITS} splits, as the number "
    "is not stated. *Mean step* is the mean change of accuracy from one lambda to the "
    "next, which tells how much a curve oscillates",
}

TABLES = tuple(
    Table(name, f"accuracy over lambda, {kind}", data, METHODS, SPLITS, keys=SUMMARY)
    for name, kind, data in (
        ("figure3", "two classes", ("sonar", "heart")),
        ("figure4", "more classes", ("wine(3)", "segment(3)")),
    )
)
QUICK = Table(
    "figure4", "accuracy over lambda", ("wine(3)",), ("SILP_theta",), 1, keys=SUMMARY
)
NAMES = tuple(table.name for table in TABLES)


def curve(model: Any, method: str, train: Any, test: Any) -> Values:
    """Return the accuracy at every lambda, and how far it moves.

    Parameters
    ----------
    model : MKLDiscriminant
        Fitted with every lambda in turn.
    method : str
        SDP takes every fifth lambda.
    train, test : (X, y)
    """
    at = range(0, len(LAMBDAS), EVERY if method.startswith("SDP") else 1)
    found, gaps, apart = [], [], []
    for i in at:
        one = clone(model).set_params(reg=float(LAMBDAS[i]))
        fitted = one.fit(*train)
        found.append(100 * float(fitted.score(*test)))
        gaps.append(float(fitted.duality_gap_))
        if not method.startswith("Newton"):
            exact = clone(one).set_params(solver="newton", tol=1e-6).fit(*train)
            apart.append(abs(found[-1] - 100 * float(exact.score(*test))))
    return {
        "curve": found,
        APART: max(apart, default=None),
        "at": list(at),
        "gaps": gaps,
        "lowest accuracy": min(found),
        "highest accuracy": max(found),
        "mean step": float(np.abs(np.diff(found)).mean()),
    }


def claims(results: Results) -> list[str]:
    """Compare with what the paper says about lambda."""
    text = []
    for table in results.tables:
        for data in table.data if table.name in NAMES else ():
            for method in ("SILP_theta", "SDP_theta"):
                ours, exact = paired(results, table, data, method)
                if not len(ours):
                    continue
                text.append(
                    f"- {data}: the mean accuracy of {method} goes from "
                    f"{ours.min():.2f} to {ours.max():.2f} %, that of the exact "
                    "problem at the same lambdas and splits from "
                    f"{exact.min():.2f} to {exact.max():.2f} %; they are "
                    f"at most {np.abs(ours - exact).max():.2f} points apart."
                )
            worst = [
                f"{max(max(c['gaps']) for c in cells):.0e} by {method}"
                for method in table.methods
                if (cells := done(results, table, data, method))
            ]
            if worst:
                text.append(
                    f"- {data}: the largest relative duality gap of the exact problem "
                    f"at any lambda is {joined(worst)}."
                )
    if not text:
        return []
    return [
        "",
        "## Accuracy over lambda",
        "",
        "The paper says that accuracies oscillate, that QCQP is less sensitive to "
        "lambda than SDP and SILP similar to QCQP, and that low accuracies of SDP are "
        "numerical failures. For more than two classes SDP is the approximate program "
        "(32), whose gap is that of another optimum.",
        "",
        *text,
    ]


def paired(
    results: Results, table: Table, data: str, method: str
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the mean accuracies of a method, and of Newton where both were run."""
    cells, newton = (
        done(results, table, data, name) for name in (method, "Newton_theta")
    )
    pairs = list(zip(cells, newton, strict=False))
    ours = [one["curve"] for one, _ in pairs]
    exact = [[other["curve"][i] for i in one["at"]] for one, other in pairs]
    if not pairs:
        return np.zeros(0), np.zeros(0)
    return np.mean(ours, axis=0), np.mean(exact, axis=0)


def done(results: Results, table: Table, data: str, method: str) -> list[Values]:
    """Return the finished curves."""
    return [cell for cell in results.of(table, data, method) if "curve" in cell]


def counted(splits: int) -> str:
    """Return how many splits there are, for the legend."""
    return f"{splits} split{'s' * (splits > 1)}"


def draw(results: Results, folder: Path) -> list[str]:
    """Draw one panel for each set."""
    tables = [t for t in results.tables if t.name in NAMES]
    panels = [
        (t, d)
        for t in tables
        for d in t.data
        if any(done(results, t, d, method) for method in METHODS)
    ]
    if not panels:
        return []
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.6 * len(panels), 3.2), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for ax, (table, data) in zip(axes, panels, strict=True):
        for j, method in enumerate(METHODS):
            cells = done(results, table, data, method)
            if cells:
                at = cells[0]["at"]
                mean = np.mean([cell["curve"] for cell in cells], axis=0)
                style = {"color": OKABE_ITO[j], "marker": "osD"[j], "ms": 4}
                label = f"{method}, {counted(len(cells))}"
                ax.semilogx(LAMBDAS[at], mean, label=label, lw=1.2, **style)
            if cells and len(cells) < len(done(results, table, data, "Newton_theta")):
                exact = paired(results, table, data, method)[1]
                label = f"Newton_theta, {counted(len(cells))}"
                ax.semilogx(LAMBDAS[at], exact, "k--", label=label, lw=1)
        ax.set_title(f"{table.heading}: {data}")
        ax.set_xlabel("lambda")
        ax.spines[["top", "right"]].set_visible(False)
        ax.legend(frameon=False, fontsize="small")
    axes[0].set_ylabel("test accuracy (%)")
    suffix = "_quick" * results.settings.quick
    return [save(figure, folder / f"figures3and4{suffix}.png")]
