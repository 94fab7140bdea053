"""Figures: kernel weights by view, class and path, alignments, bounds, and subspaces.

Displays draw into the given axes and keep them; matplotlib is imported on the first
call. The colours are those of Okabe and Ito, which colour-blind readers can
distinguish.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import is_regressor
from sklearn.utils.validation import check_is_fitted

from mklearn.data.spelling import plural
from mklearn.estimators._inference import inference_columns
from mklearn.fitted import kernel_alignment, kernel_rows, widest
from mklearn.kernels import KernelBank, alignment
from mklearn.problems import TwoLevel
from mklearn.solvers import Solution

# safe for the colour-blind; grey in place of yellow, which is too light on white
OKABE_ITO = (
    "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#999999",
)  # fmt: skip


class KernelWeightsDisplay:
    """Kernel weights as bars, one colour for each view.

    Create it with :meth:`from_estimator` or :meth:`from_stability`; :meth:`plot` draws
    it again.

    Parameters
    ----------
    weights : array of shape (n_kernels,)
    names : sequence of str
    views : sequence of str or None, optional
        The view of each kernel.
    notes : sequence of str, optional
        Text next to the bars.
    interval : array of shape (2, n_kernels), optional
        Lower and upper ends, drawn as whiskers.
    label : str
        Label of the axis.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    bars_ : list of matplotlib BarContainer, one for each view

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from sklearn.datasets import load_iris
    >>> from mklearn import MKLClassifier
    >>> from mklearn.plotting import KernelWeightsDisplay
    >>> X, y = load_iris(return_X_y=True)
    >>> model = MKLClassifier(["linear", "rbf"]).fit(X, y)
    >>> ax = Figure().subplots()
    >>> display = KernelWeightsDisplay.from_estimator(model, ax=ax)
    >>> len(display.ax_.patches)
    2
    """

    def __init__(
        self,
        *,
        weights: ArrayLike,
        names: Any,
        views: Any = None,
        notes: Any = None,
        interval: ArrayLike | None = None,
        label: str = "weight θ",
    ) -> None:
        self.weights = weights
        self.names = names
        self.views = views
        self.notes = notes
        self.interval = interval
        self.label = label

    @classmethod
    def from_estimator(
        cls, estimator: Any, *, ax: Any = None, title: str | None = None
    ) -> KernelWeightsDisplay:
        """Draw the weights of a fitted model, with their contributions beside them.

        Weights per class are averaged; see :class:`ClassKernelHeatmapDisplay` for them.

        Parameters
        ----------
        estimator : fitted estimator
        ax : matplotlib Axes, optional
            The axes to draw into; new ones by default.
        title : str, optional
        """
        rows = kernel_rows(estimator)
        display = cls(
            weights=[row.weight for row in rows],
            names=[row.short_name for row in rows],
            views=[row.view for row in rows],
            notes=[f"{100 * r.contribution:.0f} %" if r.used else "0" for r in rows],
            label="weight θ (number: contribution to the decision)",
        )
        return display.plot(ax, title=title)

    @classmethod
    def from_stability(
        cls, stability: Any, *, ax: Any = None, title: str | None = None
    ) -> KernelWeightsDisplay:
        """Draw mean weights over resamples, with intervals and selection frequencies.

        Weights per class are averaged over the classes of each resample.

        Parameters
        ----------
        stability : WeightStability
            As returned by :func:`mklearn.interpretation.weight_stability`.
        ax : matplotlib Axes, optional
            The axes to draw into; new ones by default.
        title : str, optional
        """
        if stability.classes is not None:
            stability = replace(
                stability,
                weights=stability.weights.mean(axis=1),
                contributions=stability.contributions.mean(axis=1),
                classes=None,
            )
        display = cls(
            weights=stability.mean,
            names=stability.kernel_names,
            notes=[f"{100 * f:.0f} %" for f in stability.selection_frequency],
            interval=stability.interval,
            label=f"mean weight θ, {100 * stability.level:g} % of resamples\n"
            "(number: how often used)",
        )
        default = f"Kernel weights over {len(stability.weights)} resamples"
        return display.plot(ax, title=title or default)

    def plot(self, ax: Any = None, *, title: str | None = None) -> KernelWeightsDisplay:
        """Draw into axes.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            The axes to draw into; new ones by default.
        title : str, optional
        """
        ax = _axes(ax)
        weights = np.asarray(self.weights, dtype=float)
        low, high = (weights, weights) if self.interval is None else self.interval
        views = [None] * len(weights) if self.views is None else list(self.views)
        groups: dict[Any, list[int]] = {}
        for m, view in enumerate(views):
            groups.setdefault(view, []).append(m)
        top = max(float(np.max(high)), 1e-12)
        place, ticks, names, self.bars_ = 0.0, [], [], []
        for i, (view, members) in enumerate(groups.items()):
            if view is not None:  # beside the bars, so that no colour must be known
                ax.text(0.01 * top, place, view, va="center", fontweight="bold")
                place += 1.0
            places = place + np.arange(len(members))
            color, line = OKABE_ITO[i % len(OKABE_ITO)], {"lw": 0.5}
            bars = ax.barh(
                places, weights[members], color=color, edgecolor="black", **line
            )
            self.bars_.append(bars)
            if self.interval is not None:
                ends = np.asarray(low)[members], np.asarray(high)[members]
                ax.hlines(places, *ends, color="black", lw=1.5)
            for y, m in zip(places, members, strict=True):
                if self.notes is not None:
                    x = max(weights[m], high[m]) + 0.015 * top
                    style = {"fontsize": "small", "color": "0.25"}
                    ax.text(x, y, self.notes[m], va="center", **style)
            ticks += places.tolist()
            names += [self.names[m] for m in members]
            place = places[-1] + 1.4
        ax.set_yticks(ticks, names)
        ax.set_ylim(ticks[-1] + 0.8, -0.8)  # the first kernel on top
        ax.set_xlim(0, 1.15 * top)
        ax.set_xlabel(self.label)
        ax.set_title(title or "Kernel weights")
        _open_frame(ax)
        self.ax_, self.figure_ = ax, ax.figure
        return self


def plot_weights(model: Any, ax: Any = None, *, label: str | None = None) -> Any:
    """Return axes with :class:`KernelWeightsDisplay` of a model, titled ``label``.

    Parameters
    ----------
    model : fitted estimator
    ax : matplotlib Axes, optional
        The axes to draw into; new ones by default.
    label : str, optional
        The title.
    """
    return KernelWeightsDisplay.from_estimator(model, ax=ax, title=label).ax_


class ViewScoresDisplay:
    """Score attributed to views or kernels, as bars with standard errors.

    Create it with :meth:`from_scores`; :meth:`plot` draws it again.

    Parameters
    ----------
    scores : array of shape (n_names,)
    names : sequence of str
    errors : array of shape (n_names,), optional
        Standard errors, drawn as whiskers to both sides; NaN for none.
    total : float, optional
        Total score, shown in the title.
    label : str
        Label of the axis.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    bars_ : matplotlib BarContainer

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from sklearn.datasets import load_diabetes
    >>> from mklearn import EvidenceMKLRegressor
    >>> from mklearn.interpretation import score_by_view
    >>> from mklearn.plotting import ViewScoresDisplay
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = EvidenceMKLRegressor(["linear", "rbf"]).fit(X[:200], y[:200])
    >>> found = score_by_view(model, X[200:], y[200:], by="kernel")
    >>> display = ViewScoresDisplay.from_scores(found, ax=Figure().subplots())
    >>> len(display.bars_)  # two kernels and the intercept
    3
    """

    def __init__(
        self,
        *,
        scores: ArrayLike,
        names: Any,
        errors: ArrayLike | None = None,
        total: float | None = None,
        label: str = "score",
    ) -> None:
        self.scores = scores
        self.names = names
        self.errors = errors
        self.total = total
        self.label = label

    @classmethod
    def from_scores(
        cls, found: Any, *, ax: Any = None, title: str | None = None
    ) -> ViewScoresDisplay:
        """Draw scores by view.

        Parameters
        ----------
        found : ScoreByView
            As returned by :func:`mklearn.interpretation.score_by_view`.
        ax : matplotlib Axes, optional
            The axes to draw into; new ones by default.
        title : str, optional
        """
        kinds = {
            "product": "product measure",
            "unique": "lost without it",
            "shapley": "Shapley value",
        }
        display = cls(
            scores=found.scores,
            names=found.names,
            errors=found.standard_errors,
            total=found.total,
            label=f"{found.scoring}: {kinds[found.kind]}",
        )
        return display.plot(ax, title=title)

    def plot(self, ax: Any = None, *, title: str | None = None) -> ViewScoresDisplay:
        """Draw into axes.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            The axes to draw into; new ones by default.
        title : str, optional
        """
        ax = _axes(ax)
        scores = np.asarray(self.scores, dtype=float)
        places = np.arange(len(scores))
        self.bars_ = ax.barh(
            places, scores, color=OKABE_ITO[0], edgecolor="black", lw=0.5
        )
        if self.errors is not None:
            errors = np.asarray(self.errors, dtype=float)
            ends = scores - errors, scores + errors
            known = np.isfinite(errors)
            ax.hlines(places[known], *(end[known] for end in ends), color="black")
        ax.axvline(0.0, color="black", lw=0.8)
        ax.set_yticks(places, list(self.names))
        ax.set_ylim(len(scores) - 0.4, -0.6)  # the first name on top
        ax.set_xlabel(self.label)
        default = "Score by view"
        if self.total is not None:
            default += f" (total {self.total:.3g})"
        ax.set_title(title or default)
        _open_frame(ax)
        self.ax_, self.figure_ = ax, ax.figure
        return self


class ForestDisplay:
    """Estimates with their intervals, one row for each kernel: a forest plot.

    Create it with :meth:`from_estimator`; :meth:`plot` draws it again.

    Parameters
    ----------
    estimates : array of shape (n_kernels,)
    interval : array of shape (2, n_kernels)
        Lower and upper ends; infinite ones are drawn as arrows to the edge.
    names : sequence of str
    notes : sequence of str, optional
        Text next to the intervals.
    label : str
        Label of the axis.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    points_ : matplotlib Line2D

    Examples
    --------
    >>> import numpy as np
    >>> from matplotlib.figure import Figure
    >>> from mklearn import EvidenceMKLRegressor, kernels
    >>> from mklearn.plotting import ForestDisplay
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(60, 2))
    >>> y = np.sin(X[:, 0]) + 0.5 * rng.normal(size=60)
    >>> model = EvidenceMKLRegressor(kernels.per_feature("rbf")).fit(X, y)
    >>> display = ForestDisplay.from_estimator(model, ax=Figure().subplots())
    >>> len(display.points_.get_xdata())
    2
    """

    def __init__(
        self,
        *,
        estimates: ArrayLike,
        interval: ArrayLike,
        names: Any,
        notes: Any = None,
        label: str = "share of the variance",
    ) -> None:
        self.estimates = estimates
        self.interval = interval
        self.names = names
        self.notes = notes
        self.label = label

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        *,
        tests: Any = None,
        stability: Any = None,
        of: str = "share",
        level: float = 0.95,
        profile: Any = None,
        target: int | None = None,
        ax: Any = None,
        title: str | None = None,
    ) -> ForestDisplay:
        """Draw the shares, or the weights, of a fitted model with their intervals.

        Parameters
        ----------
        estimator : fitted estimator
            An :class:`~mklearn.EvidenceMKLRegressor`; any other with ``stability``.
        tests, stability : optional
            As in ``inference_frame``; adjusted p-values are shown next to the
            intervals.
        of : {"share", "weight"}
        level : float
        profile : array of shape (n_kernels, 2) or mapping, optional
            As in ``inference_frame``.
        target : int, optional
            The target to draw, if targets have their own weights.
        ax : matplotlib Axes, optional
            The axes to draw into; new ones by default.
        title : str, optional
        """
        if (
            target is None
            and np.ndim(estimator.kernel_weights_) == 2
            and is_regressor(estimator)
        ):
            raise ValueError(
                "Each target has its own kernel weights; say which one to draw, such "
                "as target=0."
            )
        if of not in ("share", "weight"):
            raise ValueError(f"of must be 'share' or 'weight', got {of!r}.")
        found = inference_columns(
            estimator, tests, stability, level=level, profile=profile,
            targets=None if target is None else [target],
        )  # fmt: skip
        if f"{of}_low" not in found:
            raise ValueError(
                f"{type(estimator).__name__} has no standard errors; pass "
                "stability=weight_stability(...) for intervals."
            )
        notes = None
        if tests is not None:
            notes = [f"p = {p:.2g}" for p in found["p_holm"]]
        variance = hasattr(type(estimator), "weight_errors_")
        share = "share of the variance" if variance else "contribution"
        display = cls(
            estimates=found[of],
            interval=np.array([found[f"{of}_low"], found[f"{of}_high"]]),
            names=estimator.kernel_names_,
            notes=notes,
            label=f"{share if of == 'share' else 'weight θ'}, {100 * level:g} % "
            "interval" + (" (number: adjusted p)" if notes else ""),
        )
        return display.plot(ax, title=title)

    def plot(self, ax: Any = None, *, title: str | None = None) -> ForestDisplay:
        """Draw into axes.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            The axes to draw into; new ones by default.
        title : str, optional
        """
        ax = _axes(ax)
        values = np.asarray(self.estimates, dtype=float)
        low, high = np.asarray(self.interval, dtype=float)
        known = [*values, *high[np.isfinite(high)]]
        top = 1.1 * max([float(v) for v in known] + [1e-12])
        places = np.arange(len(values))
        ax.hlines(places, low, np.minimum(high, top), color="black", lw=1.5)
        open_ended = ~np.isfinite(high)
        ax.plot(np.full(int(open_ended.sum()), top), places[open_ended], ">k", ms=5)
        style = {"color": OKABE_ITO[0], "markeredgecolor": "black", "ms": 7}
        (self.points_,) = ax.plot(values, places, "s", **style)
        ax.axvline(0.0, color="0.6", lw=0.8)
        if self.notes is not None:
            for y, note in zip(places, self.notes, strict=True):
                ax.text(
                    1.02 * top, y, note, va="center", fontsize="small", color="0.25"
                )
        ax.set_yticks(places, list(self.names))
        ax.set_ylim(len(values) - 0.4, -0.6)  # the first kernel on top
        ax.set_xlim(-0.02 * top, 1.25 * top if self.notes is not None else 1.04 * top)
        ax.set_xlabel(self.label)
        ax.set_title(title or "Which kernels matter")
        _open_frame(ax)
        self.ax_, self.figure_ = ax, ax.figure
        return self


class ConvergenceDisplay:
    """Convergence of the upper and lower bounds on the optimum.

    Create it with :meth:`from_estimator` or :meth:`from_solution`; :meth:`plot` draws
    it again.

    Parameters
    ----------
    upper, lower : arrays of shape (n_iterations,)
    title : str

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    lines_ : list of matplotlib Line2D, the upper and the lower bound

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from sklearn.datasets import load_iris
    >>> from mklearn import MKLClassifier
    >>> from mklearn.plotting import ConvergenceDisplay
    >>> X, y = load_iris(return_X_y=True)
    >>> model = MKLClassifier().fit(X, y)
    >>> ax = Figure().subplots()
    >>> display = ConvergenceDisplay.from_estimator(model, ax=ax)
    >>> bool(display.lower[-1] <= display.upper[-1])
    True
    """

    def __init__(
        self, *, upper: ArrayLike, lower: ArrayLike, title: str = "Bounds"
    ) -> None:
        self.upper = upper
        self.lower = lower
        self.title = title

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None) -> ConvergenceDisplay:
        """Draw the bounds of a fitted model (of the problem with the widest gap).

        Parameters
        ----------
        estimator : fitted estimator with ``solution_``
        ax : matplotlib Axes, optional
            The axes to draw into; new ones by default.
        """
        check_is_fitted(estimator, "solution_")
        return cls.from_solution(widest(estimator.solution_), ax=ax)

    @classmethod
    def from_solution(cls, solution: Any, *, ax: Any = None) -> ConvergenceDisplay:
        """Draw the bounds of a run.

        Parameters
        ----------
        solution : Solution
        ax : matplotlib Axes, optional
            The axes to draw into; new ones by default.
        """
        steps = plural(solution.n_iter, "iteration")
        title = f"Gap {100 * solution.gap:.2g} % after {steps}"
        history = solution.history
        return cls(upper=history.upper, lower=history.lower, title=title).plot(ax)

    def plot(self, ax: Any = None) -> ConvergenceDisplay:
        """Draw into axes.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            The axes to draw into; new ones by default.
        """
        ax = _axes(ax)
        upper, lower = np.asarray(self.upper), np.asarray(self.lower)
        n = np.arange(1, len(upper) + 1)
        ax.fill_between(
            n, lower, upper, color="0.5", alpha=0.25, lw=0,
            label="contains the optimum",
        )  # fmt: skip
        above = {"color": OKABE_ITO[5], "label": "upper bound: best model so far"}
        below = {"color": OKABE_ITO[0], "label": "lower bound: from duality"}
        self.lines_ = ax.plot(n, upper, "o-", ms=4, **above)
        self.lines_ += ax.plot(n, lower, "s-", ms=4, **below)
        ax.set_xlabel("iteration")
        ax.set_ylabel("training objective")
        ax.set_title(self.title)
        # early bounds may be far off and would flatten the rest
        ends = np.r_[upper[len(upper) // 4 :], lower[len(lower) // 4 :]]
        margin = 0.06 * np.ptp(ends) or 0.06 * abs(ends[0]) or 1.0
        ax.set_ylim(ends.min() - margin, ends.max() + margin)
        ax.locator_params(axis="x", integer=True)
        ax.legend(frameon=False)
        _open_frame(ax)
        self.ax_, self.figure_ = ax, ax.figure
        return self


def plot_convergence(solution: Solution, ax: Any = None) -> Any:
    """Return axes with :class:`ConvergenceDisplay` of a solution.

    Parameters
    ----------
    solution : Solution
    ax : matplotlib Axes, optional
        The axes to draw into; new ones by default.
    """
    return ConvergenceDisplay.from_solution(solution, ax=ax).ax_


class KernelAlignmentDisplay:
    """Centred alignment of each pair of kernels as a heat map.

    A value of one means equal up to scale; the weight can be divided among such kernels
    in any way.

    Parameters
    ----------
    alignment : array of shape (n_kernels, n_kernels)
    names : sequence of str

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    image_ : matplotlib AxesImage
    text_ : list of matplotlib Text, the numbers in the cells, none if there are many

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from sklearn.datasets import load_iris
    >>> from mklearn import KernelBank
    >>> from mklearn.plotting import KernelAlignmentDisplay
    >>> bank = KernelBank(load_iris().data, ["linear", "rbf"])
    >>> display = KernelAlignmentDisplay.from_bank(bank, ax=Figure().subplots())
    >>> display.alignment.shape
    (2, 2)
    """

    def __init__(self, *, alignment: ArrayLike, names: Any) -> None:
        self.alignment = alignment
        self.names = names

    @classmethod
    def from_bank(cls, bank: KernelBank, *, ax: Any = None) -> KernelAlignmentDisplay:
        """Draw the alignments of the kernels of a bank.

        Parameters
        ----------
        bank : KernelBank
        ax : matplotlib Axes, optional
            The axes to draw into; new ones by default.
        """
        return cls(alignment=alignment(bank), names=bank.names).plot(ax)

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, *, ax: Any = None
    ) -> KernelAlignmentDisplay:
        """Draw the alignments, on some samples, of the kernels of a fitted model.

        Parameters
        ----------
        estimator : fitted estimator
        X : as in ``fit``; with precomputed kernels square ones
        ax : matplotlib Axes, optional
            The axes to draw into; new ones by default.
        """
        values = kernel_alignment(estimator, X)
        return cls(alignment=values, names=estimator.kernel_names_).plot(ax)

    def plot(self, ax: Any = None) -> KernelAlignmentDisplay:
        """Draw into axes.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            The axes to draw into; new ones by default.
        """
        ax = _axes(ax)
        table = np.asarray(self.alignment, dtype=float)
        # indefinite kernels may point away from each other
        least = min(0.0, float(table.min()))
        self.image_ = ax.imshow(table, cmap="cividis", vmin=least, vmax=1.0)
        turned = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"}
        ax.set_xticks(range(len(table)), self.names, **turned)
        ax.set_yticks(range(len(table)), self.names)
        self.text_ = []
        if len(table) <= 12:
            style = {"ha": "center", "va": "center", "fontsize": "small"}
            for (i, j), value in np.ndenumerate(table):
                shade = _ink(self.image_, value)
                drawn = ax.text(j, i, f"{value:.2f}", color=shade, **style)
                self.text_.append(drawn)
        ax.figure.colorbar(self.image_, ax=ax, label="centred alignment")
        ax.set_title("Similarity of the kernels")
        self.ax_, self.figure_ = ax, ax.figure
        return self


class PathDisplay:
    """Kernel weights along a path over the cost or the norm.

    Create it with :meth:`from_estimator`; :meth:`plot` draws it again.

    Parameters
    ----------
    x : array of shape (n_points,)
        Costs or norms, ascending.
    weights : array of shape (n_folds, n_points, n_kernels)
        Weights on each fold; the mean and the range over folds are drawn. A single path
        has one fold.
    names : sequence of str
        The kernels.
    against : {"C", "norm"}
    fixed : float
        The norm if ``against="C"``, else the cost.
    chosen : float, optional
        The point that the estimator chose.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    lines_ : list of matplotlib Line2D, one for each kernel named, the largest first

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from sklearn.datasets import load_iris
    >>> from mklearn import MKLClassifierCV
    >>> from mklearn.plotting import PathDisplay
    >>> X, y = load_iris(return_X_y=True)
    >>> model = MKLClassifierCV(Cs=3, norms=[1, 2], cv=2).fit(X, y)
    >>> ax = Figure().subplots()
    >>> display = PathDisplay.from_estimator(model, against="norm", ax=ax)
    >>> display.ax_.get_xlabel()
    'norm p'
    """

    def __init__(
        self,
        *,
        x: ArrayLike,
        weights: ArrayLike,
        names: Any,
        against: str = "C",
        fixed: float = 2.0,
        chosen: float | None = None,
    ) -> None:
        self.x = x
        self.weights = weights
        self.names = names
        self.against = against
        self.fixed = fixed
        self.chosen = chosen

    @classmethod
    def from_estimator(
        cls, estimator: Any, *, against: str = "C", ax: Any = None, top: int = 7
    ) -> PathDisplay:
        """Draw the weights that an estimator found on its folds.

        Parameters
        ----------
        estimator : fitted MKLClassifierCV or MKLRegressorCV
        against : {"C", "norm"}
            The parameter that varies; the other one has its chosen value.
        ax : matplotlib Axes, optional
            The axes to draw into; new ones by default.
        top : int
            Number of kernels shown with colour and name, those with the largest
            weights; at most 7.
        """
        check_is_fitted(estimator, "path_")
        if against not in ("C", "norm"):
            raise ValueError(f"against must be 'C' or 'norm', got {against!r}.")
        if against == "norm" and estimator.norms_.dtype == object:
            raise ValueError(
                "Two-level norms have no order that weights could be drawn against; "
                "use against='C'."
            )
        theta = np.stack([path.theta for path in estimator.path_])
        i, k = estimator.best_index_
        if against == "C":
            x, weights, chosen = estimator.Cs_, theta[:, i], estimator.C_
            fixed = estimator.norm_
        else:
            order = np.argsort(estimator.norms_)
            x, weights = estimator.norms_[order], theta[:, order, k]
            chosen, fixed = estimator.norm_, estimator.C_
        display = cls(
            x=x,
            weights=weights,
            names=estimator.kernel_names_,
            against=against,
            fixed=fixed,
            chosen=chosen,
        )
        return display.plot(ax, top=top)

    def plot(self, ax: Any = None, *, top: int = 7) -> PathDisplay:
        """Draw into axes.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            The axes to draw into; new ones by default.
        top : int
            Number of kernels shown with colour and name; the others are grey.
        """
        ax = _axes(ax)
        weights = np.asarray(self.weights, dtype=float)
        along_costs = self.against == "C"
        # norms go to infinity: equal steps, named
        values = np.asarray(self.x, dtype=float)
        x = values if along_costs else np.arange(len(values), dtype=float)
        mean, low, high = (f(weights, axis=0) for f in (np.mean, np.min, np.max))
        size = np.nan_to_num(mean).max(axis=0)
        order = np.argsort(-size, kind="stable")
        named = order[: min(top, len(OKABE_ITO))]
        for m in order[len(named) :]:
            (others,) = ax.plot(x, mean[:, m], color="0.8", lw=1)
        self.lines_ = []
        for j, m in enumerate(named):
            # markers besides colours, for those who cannot tell these apart
            style = {"color": OKABE_ITO[j], "marker": "osD^vPX"[j], "ms": 5}
            self.lines_ += ax.plot(x, mean[:, m], label=self.names[m], **style)
            if len(weights) > 1:
                ax.fill_between(
                    x, low[:, m], high[:, m], color=OKABE_ITO[j], alpha=0.15, lw=0
                )
        if len(order) > len(named):
            others.set_label("other kernels")
        if self.chosen is not None:
            place = x[int(np.argmin(np.where(values == self.chosen, 0, 1)))]
            ax.axvline(place, color="0.4", ls="--", lw=1, label="chosen", zorder=0)
        if along_costs:
            ax.set_xscale("log")
            ax.set_xlabel("cost C")
            ax.set_title(f"Kernel weights, p = {_norm_name(self.fixed)}")
        else:
            ax.set_xticks(x, [_norm_name(p) for p in values])
            ax.set_xlabel("norm p")
            ax.set_title(f"Kernel weights, C = {self.fixed:.3g}")
        ax.set_ylabel("weight θ")
        ax.set_ylim(bottom=0)
        # beside the axes: the lines may be anywhere within
        ax.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
        _open_frame(ax)
        self.ax_, self.figure_ = ax, ax.figure
        return self


class SubspaceDisplay:
    """Samples in the first two features of a subspace, by class.

    Create it with :meth:`from_estimator`; :meth:`plot` draws it again.

    Parameters
    ----------
    features : array of shape (n_samples, n_components)
        Features of the samples. A single feature is drawn against the sample's position
        in its class.
    y : array of shape (n_samples,)
        Class labels.
    names : sequence of str, optional
        Names of the features.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    scatters_ : list of matplotlib PathCollection, one for each class

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from sklearn.datasets import load_iris
    >>> from mklearn import SubspaceKernel
    >>> from mklearn.plotting import SubspaceDisplay
    >>> X, y = load_iris(return_X_y=True)
    >>> model = SubspaceKernel().fit(X, y)
    >>> ax = Figure().subplots()
    >>> display = SubspaceDisplay.from_estimator(model, X, y, ax=ax)
    >>> display.ax_.get_xlabel()
    'subspacekernel0'
    """

    def __init__(self, *, features: ArrayLike, y: Any, names: Any = None) -> None:
        self.features = features
        self.y = y
        self.names = names

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, y: Any, *, ax: Any = None
    ) -> SubspaceDisplay:
        """Draw the features that a fitted transformer computes for samples.

        Parameters
        ----------
        estimator : fitted SubspaceKernel, or another transformer
        X : as the estimator takes it
        y : array of shape (n_samples,)
        ax : matplotlib Axes, optional
            The axes to draw into; new ones by default.
        """
        check_is_fitted(estimator)
        names = getattr(estimator, "get_feature_names_out", None)
        display = cls(
            features=estimator.transform(X),
            y=y,
            names=None if names is None else names(),
        )
        return display.plot(ax)

    def plot(self, ax: Any = None) -> SubspaceDisplay:
        """Draw into axes.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            The axes to draw into; new ones by default.
        """
        ax = _axes(ax)
        Z, y = np.asarray(self.features, dtype=float), np.asarray(self.y)
        if Z.ndim != 2 or Z.shape[1] == 0 or len(Z) != len(y):
            raise ValueError(
                "SubspaceDisplay needs features of shape (n_samples, n_components) "
                f"and as many labels, got shapes {Z.shape} and {y.shape}."
            )
        self.scatters_ = []
        for j, label in enumerate(np.unique(y)):
            rows = y == label
            x, up = Z[rows, 0], np.arange(rows.sum())
            if Z.shape[1] > 1:
                up = Z[rows, 1]
            # markers besides colours, for those who cannot tell these apart
            style = {
                "color": OKABE_ITO[j % len(OKABE_ITO)],
                "marker": "osD^vPX"[(j + j // len(OKABE_ITO)) % 7],
            }
            drawn = ax.scatter(x, up, s=18, alpha=0.7, lw=0, label=str(label), **style)
            self.scatters_.append(drawn)
        names = [f"feature {i}" for i in range(2)] if self.names is None else self.names
        ax.set_xlabel(str(names[0]))
        ax.set_ylabel(str(names[1]) if Z.shape[1] > 1 else "sample of its class")
        ax.set_title("Subspace features")
        ax.legend(
            title="class", frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5)
        )
        _open_frame(ax)
        self.ax_, self.figure_ = ax, ax.figure
        return self


class ClassKernelHeatmapDisplay:
    """Kernel weights of each class as a heat map, with classes in rows.

    Create it with :meth:`from_estimator`; :meth:`plot` draws it again.

    Parameters
    ----------
    weights : array of shape (n_classes, n_kernels)
    class_names, kernel_names : sequences of str
    label : str
        Label of the colour bar.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    image_ : matplotlib AxesImage
    text_ : list of matplotlib Text, the numbers in the cells, none if there are many

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from sklearn.datasets import load_iris
    >>> from mklearn import BilinearMKLClassifier
    >>> from mklearn.plotting import ClassKernelHeatmapDisplay
    >>> X, y = load_iris(return_X_y=True)
    >>> model = BilinearMKLClassifier().fit(X, y)
    >>> ax = Figure().subplots()
    >>> display = ClassKernelHeatmapDisplay.from_estimator(model, ax=ax)
    >>> display.weights.shape
    (3, 6)
    """

    def __init__(
        self,
        *,
        weights: ArrayLike,
        class_names: Any,
        kernel_names: Any,
        label: str = "weight",
    ) -> None:
        self.weights = weights
        self.class_names = class_names
        self.kernel_names = kernel_names
        self.label = label

    @classmethod
    def from_estimator(
        cls, estimator: Any, *, values: str = "weights", ax: Any = None
    ) -> ClassKernelHeatmapDisplay:
        """Draw the weights of a classifier, one row if its classes share them.

        Parameters
        ----------
        estimator : fitted BilinearMKLClassifier or MKLClassifier
        values : {"weights", "contributions"}
            The weights, or each kernel's share in the score of a class, which does not
            depend on the scale of kernels and classes.
        ax : matplotlib Axes, optional
            The axes to draw into; new ones by default.
        """
        check_is_fitted(estimator, "kernel_weights_")
        labels = {"weights": "weight", "contributions": "contribution to the score"}
        if values not in labels:
            raise ValueError(
                f"values must be 'weights' or 'contributions', got {values!r}."
            )
        table = np.atleast_2d(getattr(estimator, f"kernel_{values}_"))
        names = ["all classes"]
        if len(table) > 1:
            rows = getattr(estimator, "classes_", range(len(table)))
            names = [str(label) for label in rows]
        display = cls(
            weights=table,
            class_names=names,
            kernel_names=estimator.kernel_names_,
            label=labels[values],
        )
        return display.plot(ax)

    def plot(self, ax: Any = None) -> ClassKernelHeatmapDisplay:
        """Draw into axes.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            The axes to draw into; new ones by default.
        """
        ax = _axes(ax)
        table = np.asarray(self.weights, dtype=float)
        top = float(table.max(initial=0.0)) or 1.0
        # light is little: zero weights are white, in print as well
        self.image_ = ax.imshow(table, cmap="Blues", vmin=0.0, vmax=top, aspect="auto")
        ax.set_yticks(range(len(table)), self.class_names)
        turned = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"}
        ax.set_xticks(range(table.shape[1]), self.kernel_names, **turned)
        ax.set_xticks(np.arange(table.shape[1] + 1) - 0.5, minor=True)
        ax.set_yticks(np.arange(len(table) + 1) - 0.5, minor=True)
        ax.grid(which="minor", color="0.9", lw=0.5)
        ax.tick_params(which="minor", length=0)
        self.text_ = []
        if table.size <= 150:
            for (c, r), value in np.ndenumerate(table):
                shown = f"{value:.2g}" if value > 5e-3 * top else "0"
                shade = _ink(self.image_, value)
                self.text_.append(
                    ax.text(
                        r, c, shown, ha="center", va="center", color=shade,
                        fontsize="small",
                    )
                )  # fmt: skip
        ax.figure.colorbar(self.image_, ax=ax, label=self.label)
        ax.set_xlabel("kernel")
        ax.set_ylabel("class")
        what = "contributions" if "contribution" in self.label else "weights"
        ax.set_title(f"Kernel {what} by class")
        self.ax_, self.figure_ = ax, ax.figure
        return self


def _norm_name(p: Any) -> str:
    if isinstance(p, TwoLevel):
        return f"{_norm_name(p.outer)} between groups, {_norm_name(p.inner)} within"
    if np.isinf(p):
        return "∞"
    near = Fraction(float(p)).limit_denominator(64)
    return str(near) if abs(float(near) - p) < 1e-9 else f"{p:.3g}"


def _axes(ax: Any) -> Any:
    if ax is not None:
        return ax
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError(
            "Figures need an additional package: pip install matplotlib."
        ) from error
    return pyplot.subplots(layout="constrained")[1]


def _ink(image: Any, value: float) -> str:
    """Return the colour of a number on a cell, for the better contrast of two."""
    red, green, blue, _ = np.asarray(image.cmap(image.norm(value))) ** 2.2
    # not black, which takes the page's colour where a report is dark
    return "0.05" if 0.21 * red + 0.72 * green + 0.07 * blue > 0.18 else "white"


def _open_frame(ax: Any) -> None:
    ax.spines[["top", "right"]].set_visible(False)
