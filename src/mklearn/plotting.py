"""Figures: kernel weights by view, and the bounds of a run closing in.

The functions draw into given axes and return them; matplotlib is imported on the first
call. Colours are those of Okabe and Ito, which stay apart for colour-blind readers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mklearn.report import kernel_rows, rows_by_view
from mklearn.solvers import Solution

OKABE_ITO = (
    "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442",
)  # fmt: skip


def plot_weights(model: Any, ax: Any = None, *, label: str | None = None) -> Any:
    """Draw the kernel weights of a fitted model as bars, one colour for each view.

    The share of each kernel in the decision (its contribution) stands beside its bar.

    Parameters
    ----------
    model : fitted estimator
    ax : matplotlib Axes, optional
        New axes by default.
    label : str, optional
        Title of the axes.
    """
    ax = _axes(ax)
    groups = rows_by_view(kernel_rows(model))
    ordered = [row for rows in groups.values() for row in rows]
    top = max([row.weight for row in ordered] + [1e-12])
    place, ticks, names = 0.0, [], []
    for i, (view, rows) in enumerate(groups.items()):
        if view is not None:  # names beside the bars, so that no colour must be known
            ax.text(0.01 * top, place, view, va="center", fontweight="bold")
            place += 1.0
        places = place + np.arange(len(rows))
        ax.barh(
            places,
            [row.weight for row in rows],
            color=OKABE_ITO[i % len(OKABE_ITO)],
            edgecolor="black",
            linewidth=0.5,
        )
        for y, row in zip(places, rows, strict=True):
            text = f"{100 * row.contribution:.0f} %" if row.used else "0"
            x = row.weight + 0.015 * top
            ax.text(x, y, text, va="center", fontsize="small", color="0.25")
        ticks += places.tolist()
        names += [row.short_name for row in rows]
        place = places[-1] + 1.4
    ax.set_yticks(ticks, names)
    ax.set_ylim(ticks[-1] + 0.8, -0.8)  # the first kernel on top
    ax.set_xlim(0, 1.15 * top)
    ax.set_xlabel("weight θ (beside it: contribution to the decision)")
    ax.set_title(label or "Kernel weights")
    _open_frame(ax)
    return ax


def plot_convergence(solution: Solution, ax: Any = None) -> Any:
    """Draw how the two bounds on the optimum closed in on each other.

    Parameters
    ----------
    solution : Solution
    ax : matplotlib Axes, optional
        New axes by default.
    """
    ax = _axes(ax)
    history = solution.history
    upper, lower = np.array(history.upper), np.array(history.lower)
    n = np.arange(1, len(upper) + 1)
    ax.fill_between(n, lower, upper, color="0.88", label="the optimum is in here")
    ax.plot(n, upper, "o-", color=OKABE_ITO[5], ms=4, label="upper: best model so far")
    ax.plot(n, lower, "s-", color=OKABE_ITO[0], ms=4, label="lower: proven by duality")
    ax.set_xlabel("iteration")
    ax.set_ylabel("training objective")
    ax.set_title(f"Gap {100 * solution.gap:.2g} % after {solution.n_iter} iterations")
    # early bounds may be far off and would flatten the rest
    ends = np.r_[upper[len(upper) // 4 :], lower[len(lower) // 4 :]]
    margin = 0.06 * np.ptp(ends) or 0.06 * abs(ends[0]) or 1.0
    ax.set_ylim(ends.min() - margin, ends.max() + margin)
    ax.locator_params(axis="x", integer=True)
    ax.legend(frameon=False)
    _open_frame(ax)
    return ax


def _axes(ax: Any) -> Any:
    if ax is not None:
        return ax
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError(
            "Figures need matplotlib: pip install 'mklearn[plot]'."
        ) from error
    return pyplot.subplots(layout="constrained")[1]


def _open_frame(ax: Any) -> None:
    ax.spines[["top", "right"]].set_visible(False)
