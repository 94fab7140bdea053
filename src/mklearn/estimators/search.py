"""Estimators that choose C and the norm by warm-started paths on folds."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import check_scoring, r2_score

from mklearn.data.threads import one_blas_thread
from mklearn.estimators._base import BaseMKL
from mklearn.estimators._folds import (
    Fold,
    Folds,
    Part,
    SearchMixin,
    best_cell,
    error_over_folds,
    stop_on_ctrl_c,
)
from mklearn.estimators._own import is_own, is_shared, target_groups
from mklearn.estimators._predictor import KnownScores
from mklearn.estimators._targets import decided
from mklearn.estimators._training import GramTraining
from mklearn.estimators.classifier import MKLClassifier
from mklearn.estimators.regressor import MKLRegressor
from mklearn.estimators.survival import MKLCox
from mklearn.kernels import KernelBank
from mklearn.kernels.dense import DenseGrams
from mklearn.kernels.families import width_ranges
from mklearn.problems import LpBall
from mklearn.problems.targets import FewerColumns
from mklearn.problems.weights import WeightSet
from mklearn.solvers import Iterate, Path, Solution, mkl_path
from mklearn.solvers.path import NORMS, check_costs, rough_path, scaled

FloatArray = NDArray[np.float64]

_SLACK = 10.0  # gaps on folds, as multiples of the tolerance of the last fit
_SINGLE = 1e-4  # tolerances that single precision is good enough for on folds
_BATCH = 2**26  # bytes of products with test kernels that are held at a time
_HELD = 64  # sums, of all choices and costs, whose dual variables are held


@dataclass(frozen=True)
class _Scored:
    """What one fold found."""

    path: Path  # without solutions
    scores: FloatArray  # (P, K), NaN for cells that were not reached
    A: tuple[FloatArray | None, ...]  # (K, n_members, T), or of fewer columns, or none
    fewer: FewerColumns | None = None

    def dual(self, i: int, k: int) -> FloatArray | float:
        """Return the dual variables of a cell, shape (n_members, T); 0 if not held."""
        A = self.A[i]
        if A is None:
            return 0.0
        return A[k] if self.fewer is None else self.fewer.spread(A[k])

    def with_sums(self, sums: _Scored, norms: tuple[float, ...]) -> _Scored:
        """Return this with rows of a sum, for all norms that are infinite."""
        if len(self.scores) == len(norms):
            return self
        order = np.cumsum(np.isfinite(norms)) - 1
        order = np.where(np.isinf(norms), len(self.scores), order)

        def rows(mine: FloatArray, other: FloatArray) -> FloatArray:
            return np.concatenate([mine, other])[order]

        mine, other = self.path, sums.path
        path = replace(
            mine,
            norms=norms,
            theta=rows(mine.theta, other.theta),
            objective=rows(mine.objective, other.objective),
            lower=rows(mine.lower, other.lower),
            gap=rows(mine.gap, other.gap),
            n_iter=rows(mine.n_iter, other.n_iter),
            seconds=rows(mine.seconds, other.seconds),
        )
        A = (*self.A, *sums.A)
        scores = rows(self.scores, sums.scores)
        return _Scored(path, scores, tuple(A[i] for i in order), self.fewer)


@dataclass(frozen=True)
class _Ready:
    """A fold whose kernels are normalised and whose targets are encoded."""

    training: GramTraining
    kernels: Any  # between the samples to learn from: a bank, or dense Grams
    known: Any  # between the samples tested and those
    shift: Any  # what was subtracted from the targets
    fewer: FewerColumns | None
    score: Callable[[FloatArray], float]
    new: FloatArray | None  # covariates of the samples tested
    place: NDArray[np.intp]  # of each row tested, its sample


class _PathSearch(SearchMixin, BaseMKL):
    """Cross-validation over costs and norms; a mixin before the plain estimator.

    Subclasses have the parameters ``Cs``, ``norms``, ``cv``, ``scoring``, ``rule``,
    ``select`` and ``n_jobs`` besides those of the plain estimator but ``C`` and
    ``norm``, and say in ``_plain`` what one cell is, and in ``_cell`` what it knows on
    folds.
    """

    C_: Any
    norm_: Any
    best_index_: Any

    @one_blas_thread
    def fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, groups: Any = None
    ) -> Any:
        """Choose C and the norm by cross-validation, then fit on all samples.

        Parameters
        ----------
        X : array, sparse matrix, DataFrame, MultiView; Grams if precomputed
        y : array
        sample_weight : array of shape (n_samples,), optional
            Multiplied by C, and used in the scores as well. A weight of 2 is equivalent
            to giving the sample twice, a weight of 0 to leaving it out.
        groups : array of shape (n_samples,), optional
            Group labels, such as subjects, passed on to ``cv.split``. With an integer
            ``cv`` all samples of a group fall into the same fold.
        """
        self._check_parameters()
        training = self._grams(X, y, sample_weight)
        self._check_beside(self._encoded(training)[0])
        folds = self._folds(training, y, sample_weight, groups, together=True)
        return self._search(training, folds, sample_weight is not None)

    def _search(self, training: GramTraining, folds: Folds, weighted: bool) -> Any:
        """Choose one cell for all targets, and learn from all samples."""
        self._store(*self._chosen_by(training, folds, weighted))
        return self

    def _chosen_by(
        self, training: GramTraining, folds: Folds, weighted: bool
    ) -> tuple[Any, ...]:
        """Return training, problem, solution and shift of the cell that is best."""
        whole = training
        kept, sums = self._kept(folds, weighted)
        if len(kept) < len(whole.names):
            training = whole.among(kept)
            folds = replace(folds, training=training)
        norms = tuple(float(p) for p in self.norms)
        rest = norms if sums is None else tuple(p for p in norms if np.isfinite(p))
        found: list[Any] = sums or []
        if rest:
            job = partial(self._run_fold, norms=rest, weighted=weighted)
            (found,) = folds.run(job, self.n_jobs)
        if rest and sums is not None:
            pairs = zip(found, sums, strict=True)
            found = [one.with_sums(plain, norms) for one, plain in pairs]
        self.Cs_, self.norms_ = found[0].path.Cs, np.array(found[0].path.norms)
        self.path_ = tuple(
            replace(one.path, theta=_spread(one.path.theta, kept, len(whole.names)))
            for one in found
        )
        self.scores_ = np.stack([one.scores for one in found], axis=2)
        self.mean_scores_ = self.scores_.mean(axis=2)
        self._warn_paths()
        i, k = choose_cell(self.scores_, self.Cs_, self.norms_, self.rule)
        self.best_index_ = (i, k)
        self.C_, self.norm_ = float(self.Cs_[k]), float(self.norms_[i])
        sizes = [(len(fold.members), len(fold.place)) for fold in folds.folds]
        self.gain_over_sum_ = gain_over_sum(self.scores_, self.norms_, (i, k), sizes)
        # folds share most of their samples: their mean is close to the last solution
        theta = np.mean([one.path.theta[i, k] for one in found], axis=0)
        training, shift = self._encoded(training)
        weights = self._weights()
        problem = training.problem(self._formula(), self.C_, weights)
        A, count = np.zeros(training.Y.shape), np.zeros((len(training.Y), 1))
        for fold, one in zip(folds.folds, found, strict=True):
            A[fold.members] += one.dual(i, k)
            count[fold.members] += 1
        start = Iterate(
            scaled(theta, weights), problem.loss.repair(A / np.maximum(count, 1))
        )
        problem, solution = self._solve_shared(training, self.C_, start)
        if len(kept) < len(whole.names):
            # kernels that were left out are there, with weight zero
            training, _ = self._encoded(whole)
            problem = training.problem(self._formula(), self.C_, weights)
            theta = _spread(solution.theta, kept, len(whole.names))
            solution = replace(solution, theta=theta)
        return training, [problem], [solution], shift

    def _kept(
        self, folds: Folds, weighted: bool
    ) -> tuple[NDArray[np.intp], list[_Scored] | None]:
        """Return the kernels to learn from, chosen by their plain sums on the folds.

        The sum is the cheapest model of a choice. Among equals the choice with the
        fewest narrow kernels wins, or the first of single ones. What each fold found
        for the sum of these kernels comes along; None if nothing was compared.
        """
        training = folds.training
        everything = np.arange(len(training.names))
        self.rejected_: tuple[str, ...] = ()
        self.select_scores_: FloatArray | None = None
        choices: list[NDArray[np.intp]] = []
        if self.select == "widths":
            choices = width_ranges(training.kernels)[::-1]
        elif self.select == "one":
            choices = [np.array([m]) for m in everything]
        if len(choices) < 2:
            return everything, None
        job = partial(self._run_sums, choices=choices, weighted=weighted)
        (found,) = folds.run(job, self.n_jobs)
        scores = np.stack(
            [np.concatenate([one.scores for one in row]) for row in found], axis=2
        )
        if np.isnan(scores).any(axis=2).all():
            return everything, None  # out of time, which the paths will say
        number, _ = best_cell(scores, lambda i, k: (i, k))
        kept = choices[number]
        self.select_scores_ = scores[::-1] if self.select == "widths" else scores
        out = np.setdiff1d(everything, kept)
        self.rejected_ = tuple(training.names[m] for m in out)
        return kept, [row[number] for row in found]

    def _run_sums(
        self, part: Part, choices: Sequence[NDArray[np.intp]], weighted: bool
    ) -> list[_Scored]:
        """Return what the sum of each choice of kernels reaches on a fold."""
        ready = self._ready(part, weighted)
        held = len(choices) * len(self._costs_tried()) <= _HELD
        found = []
        for kernels in choices:
            one = self._followed(ready, (np.inf,), kernels)
            found.append(one if held else replace(one, A=(None,)))
        return found

    def _solve_shared(
        self, training: Any, C: float, start: Iterate | None = None
    ) -> tuple[Any, Solution]:
        """Solve the last problem."""
        problem = training.problem(self._formula(), C, self._weights())
        return problem, self._solve(training, problem, start)

    def _fewer(self, training: Any) -> FewerColumns | None:
        """Return fewer columns that stand for all targets, where there are any."""
        return None

    def _weights(self) -> WeightSet:
        return LpBall(self.norm_)

    def _run_fold(
        self, part: Part, norms: tuple[float, ...], weighted: bool
    ) -> _Scored:
        """Follow the path on the fold's samples and score every cell on the others."""
        return self._followed(self._ready(part, weighted), norms)

    def _ready(self, part: Part, weighted: bool) -> _Ready:
        """Return the kernels of a fold, normalised, its targets and its scorer."""
        with warnings.catch_warnings():
            # a kernel that is constant on a fold has no part there
            warnings.simplefilter("ignore", UserWarning)
            training, cross = part.normalised(self.normalize)
        training, shift = self._encoded(training)
        fewer = self._fewer(training)
        if fewer is not None:
            training = replace(training, Y=fewer.columns)
        kernels: Any = training.bank
        known: Any = cross
        if part.dense:
            rough = np.float32 if self.tol >= _SINGLE else np.float64
            kernels = DenseGrams.of(training.bank, rough)
            known = DenseGrams.of(cross, rough)
        score = self._scorer(part.fold, weighted)
        new = part.design_tested()
        return _Ready(
            training, kernels, known, shift, fewer, score, new, part.fold.place
        )

    def _followed(
        self,
        ready: _Ready,
        norms: tuple[float, ...],
        among: NDArray[np.intp] | None = None,
    ) -> _Scored:
        """Follow a path of norms on a fold, with some of the kernels."""
        training, fewer = ready.training, ready.fewer
        kernels, known = ready.kernels, ready.known
        if among is not None:
            kernels, known = kernels.select(among), known.select(among)
        one, formula = LpBall(1.0), self._formula()
        follow: Any = rough_path if isinstance(kernels, DenseGrams) else mkl_path
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # judged together
            path = follow(
                kernels,
                lambda C: training.problem(formula, C, one).loss,
                self._costs_tried(),
                norms,
                solver=self.solver,
                tol=_SLACK * self.tol,
                max_iter=self.max_iter,
                time_limit=self.time_limit,
                callback=self.callback,
                verbose=self.verbose,
            )
        stop_on_ctrl_c(s for row in path.solutions for s in row if s is not None)
        P, K, _ = path.shape
        scores = np.full((P, K), np.nan)
        A = np.full((P, K, *training.Y.shape), np.nan)
        for i in range(P):
            row = [s for s in path.solutions[i] if s is not None]
            for k, (s, F) in enumerate(zip(row, _decisions(known, row), strict=True)):
                beside = s.bias if training.design is None else ready.new @ s.bias
                values = F + beside
                values = values if fewer is None else fewer.spread(values)
                scores[i, k] = ready.score((values + ready.shift)[ready.place])
                A[i, k] = s.A
        # the solutions would take as much memory as the samples for each cell
        return _Scored(replace(path, solutions=()), scores, tuple(A), fewer)

    def _scorer(self, fold: Fold, weighted: bool) -> Callable[[FloatArray], float]:
        """Return what makes a score of the decisions on the rows of a fold."""
        cell = self._cell()
        scorer = check_scoring(cell, scoring=self.scoring)
        weight = {"sample_weight": fold.row_weight} if weighted else {}
        numbers = np.arange(len(fold.place))[:, None]

        def score(values: FloatArray) -> float:
            cell.predictor_ = KnownScores.of(values)
            return float(scorer(cell, numbers, fold.truth, **weight))

        return score

    # --- checks -----------------------------------------------------------------------

    def _costs_tried(self) -> FloatArray:
        if isinstance(self.Cs, Integral) and not isinstance(self.Cs, bool):
            if int(self.Cs) < 1:
                raise ValueError(f"Cs must have at least one value, got {self.Cs!r}.")
            return np.logspace(-3, 3, int(self.Cs)) if int(self.Cs) > 1 else np.ones(1)
        return check_costs(self.Cs)

    def _check_parameters(self) -> None:
        self._costs_tried()
        norms = self.norms
        if not np.ndim(norms) == 1 or not len(norms):
            raise ValueError(f"norms must be a list of numbers, got {norms!r}.")
        for p in norms:
            if not isinstance(p, Real):
                raise ValueError(f"norms must be numbers from 1 to inf, got {p!r}.")
            LpBall(float(p))
        if self.select not in ("widths", "one", None):
            raise ValueError(
                f"select must be 'widths', 'one' or None, got {self.select!r}."
            )
        if self.rule not in ("best", "1se", "sum"):
            raise ValueError(f"rule must be 'best', '1se' or 'sum', got {self.rule!r}.")
        self._plain()._check_parameters()

    def _warn_paths(self) -> None:
        gaps = np.stack([path.gap for path in self.path_])
        tol = _SLACK * self.tol
        missing, loose = int(np.isnan(gaps).sum()), int((gaps > tol).sum())
        if missing or loose:
            warnings.warn(
                f"Of {gaps.size} problems on folds, {missing} were not started and "
                f"{loose} stopped at gaps above {tol:.2g}; raise time_limit or "
                "max_iter, or try a smaller grid.",
                ConvergenceWarning,
                stacklevel=3,
            )


def choose_cell(
    scores: FloatArray, Cs: FloatArray, norms: FloatArray, rule: str = "best"
) -> tuple[int, int]:
    """Return the cell that a rule chooses, as numbers of norm and cost.

    Parameters
    ----------
    scores : array of shape (P, K, n_folds)
        Cells with NaN in any fold do not take part.
    Cs : array of shape (K,)
    norms : array of shape (P,)
    rule : {"best", "1se", "sum"}
        The best mean score; or any that is at most one standard error of the best one
        below it; or the best plain sum, ``p = inf``, unless another cell is better on
        the same folds by more than one standard error of the difference. Among these,
        and among ties, the smallest C wins, then the largest p.
    """

    def cost(i: int, k: int) -> Any:
        return Cs[k], -norms[i], i

    sums = np.isinf(norms)
    plain = np.where(sums[:, None, None], scores, np.nan)
    if rule == "sum" and np.isfinite(plain).all(axis=2).any():
        i, k = best_cell(scores, cost)
        j, at = best_cell(plain, cost)
        gains = scores[i, k] - scores[j, at]
        error = gains.std(ddof=1) / np.sqrt(len(gains)) if len(gains) > 1 else 0.0
        return (i, k) if gains.mean() > error else (j, at)
    i, k = best_cell(scores, cost, rule)
    return i, k


def gain_over_sum(
    scores: FloatArray,
    norms: FloatArray,
    chosen: tuple[int, int],
    sizes: Sequence[tuple[int, int]],
) -> tuple[float, float] | None:
    """Return by how much a cell scores better than the best plain sum, and its error.

    Parameters
    ----------
    scores : array of shape (P, K, n_folds)
    norms : array of shape (P,)
    chosen : tuple of int
        The numbers of norm and cost.
    sizes : sequence of (int, int)
        How many samples each fold learns from, and is tested on.

    Returns
    -------
    (float, float) or None
        None if the sum, ``p = inf``, was not tried to the end, or with one fold.
    """
    sums = scores[np.isinf(norms)]
    sums = sums[np.isfinite(sums).all(axis=2)]
    if not len(sums) or sums.shape[1] < 2:
        return None
    best = sums[sums.mean(axis=1).argmax()]
    gains = scores[chosen] - best
    return float(gains.mean()), float(error_over_folds(gains, sizes))


def _spread(theta: FloatArray, kept: NDArray[np.intp], M: int) -> FloatArray:
    """Return weights of all M kernels, zero for those that were not kept."""
    out = np.zeros((*theta.shape[:-1], M))
    out[..., kept] = theta
    return out


def _decisions(
    cross: KernelBank | DenseGrams, solutions: list[Solution]
) -> Iterator[FloatArray]:
    """Yield ``sum_m theta_m K_m A`` of each solution, shape (n_test, T).

    The kernels are evaluated once for many solutions, not once for each.
    """
    if isinstance(cross, DenseGrams):
        yield from (cross.apply(s.theta, s.A) for s in solutions)
        return
    n, _, M = cross.shape
    if not solutions:
        return
    T = solutions[0].A.shape[1]
    many = max(1, _BATCH // (8 * n * M * T))
    for at in range(0, len(solutions), many):
        part = solutions[at : at + many]
        if len(part) == 1:
            yield cross.apply(part[0].theta, part[0].A)
            continue
        theta = np.stack([s.theta for s in part])
        used = np.flatnonzero(theta.any(axis=0))
        products = cross.select(used).multiply(np.hstack([s.A for s in part]))
        products = products.reshape(n, len(part), T, len(used))
        yield from np.einsum("ictm,cm->cit", products, theta[:, used])


class MKLClassifierCV(_PathSearch, MKLClassifier):
    """:class:`MKLClassifier` that chooses C and the norm by cross-validation.

    Which norm p, and thus how sparse a combination, works best depends on the data, so
    it is chosen by cross-validation. This is cheap: the kernels are computed once for
    all samples, and folds are views of them; on each fold a single path of warm-started
    problems covers all norms and costs (:func:`mkl_path`); and the final fit starts
    from the mean of the folds' solutions. Normalisation is fitted on the training part
    of each fold. Kernel parameters that depend on the data (widths, scales of columns)
    are set once, from all samples but without the labels.

    Parameters
    ----------
    kernels : kernel, name, callable, list of these, "auto" or "precomputed"
        The kernels to combine, as in :class:`MKLClassifier`.
    fixed : str, int, or list of these, optional
        Covariates, as in :class:`MKLClassifier`. On each fold their effects are
        estimated on the training part; a category that does not occur there has no
        effect.
    Cs : int or array
        Values of C to try; an integer is the size of a logarithmic grid from 0.001 to
        1000.
    norms : list of float
        Norms p to try, from 1 (sparse) to ``inf`` (plain sum).
    cv : int, splitter or iterable of (train, test)
        Cross-validation folds. An integer gives that many stratified folds of the
        distinct samples: identical samples are never split between training and test
        part, and a weight of 2 is equivalent to a repeated sample.
    scoring : str or callable, optional
        As in scikit-learn; accuracy by default. A scorer is called with the indices of
        the test samples in place of X.
    rule : {"best", "1se", "sum"}
        "best" chooses the best mean score; "1se" the simplest model whose score is
        within one standard error of the best; "sum" the best plain sum of the kernels,
        unless another model is better on the same folds by more than one standard error
        of the difference. The simplest model, also among ties, has the smallest C, then
        the largest p.
    select : {"widths", "one"} or None
        Which kernels may be left out before the search. Very narrow kernels can
        memorise any labels, and weights learned from the same labels do not reveal
        this. "widths" therefore looks at kernels that differ only in their width, if
        there are at least five of them as in "auto": it compares the sum of all kernels
        with the sums without the narrowest one fifth and two fifths of the widths, on
        the same folds, and continues with the best. "one" continues with the single
        best kernel. None keeps all kernels.
    loss, normalize, solver, class_weight, psd
        As in :class:`MKLClassifier`.
    tol : float
        As in :class:`MKLClassifier`, for the final fit. On the folds problems are
        solved to ten times this gap, which is accurate enough to choose by.
    max_iter : int
        As in :class:`MKLClassifier`, for each problem.
    time_limit : float, optional
        Time limit in seconds for the path on each fold, and for the final fit.
    memory_limit : int, optional
        As in :class:`MKLClassifier`.
    n_jobs : int, optional
        Number of folds processed in parallel.
    callback : callable, optional
        Called with the history after each iteration of each problem; it may return True
        to stop the path.
    verbose : int
        1 prints a line for each problem, 2 one for each iteration.

    Attributes
    ----------
    C_, norm_ : float
        The choice.
    scores_ : array of shape (n_norms, n_Cs, n_folds)
    mean_scores_ : array of shape (n_norms, n_Cs)
    Cs_ : array of shape (n_Cs,)
        Ascending.
    norms_ : array of shape (n_norms,)
    best_index_ : tuple of int
        Index of the chosen model in ``mean_scores_``.
    gain_over_sum_ : tuple of (float, float), or None
        By how much the chosen model scored better on the folds than the plain sum with
        its best C, and the standard error of this difference; None if ``norms`` does
        not contain ``inf``. If the gain is less than two standard errors, the plain sum
        would have done as well. Since it is the gain of the best of many models, it is
        biased upwards; :func:`mklearn.model_selection.compare` measures it on samples
        not used for the choice.
    rejected_ : tuple of str
        Names of the kernels that ``select`` left out; their weights are zero.
    select_scores_ : array of shape (n_choices, n_Cs, n_folds), or None
        Scores of the candidates that ``select`` compared: the sums with and without the
        narrowest kernels, or the single kernels. None if there was nothing to choose.
    path_ : tuple of Path, one for each fold
        Weights, bounds and iterations of every problem, without the solutions.
    classes_, kernel_names_, kernels_, kernel_weights_, kernel_contributions_
        As in :class:`MKLClassifier`, for the final fit.
    support_, dual_coef_, intercept_, duality_gap_, n_iter_, solution_, predictor_
        As in :class:`MKLClassifier`, for the final fit.
    fixed_effects_, fixed_names_, fixed_dropped_
        As in :class:`MKLClassifier`, for the final fit.

    References
    ----------
    Kloft, M., Brefeld, U., Sonnenburg, S. and Zien, A. (2011). ℓp-norm multiple kernel
    learning. *Journal of Machine Learning Research* 12, 953-997.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from mklearn import MKLClassifierCV
    >>> X, y = load_iris(return_X_y=True)
    >>> model = MKLClassifierCV(Cs=[0.1, 1, 10], norms=[1, 2], cv=3).fit(X, y)
    >>> model.scores_.shape, bool(model.mean_scores_.max() > 0.9)
    ((2, 3, 3), True)
    """

    def __init__(
        self,
        kernels: Any = "auto",
        *,
        fixed: Any = None,
        Cs: Any = 7,
        norms: Any = NORMS,
        cv: Any = 5,
        scoring: Any = None,
        rule: str = "best",
        select: str | None = "widths",
        loss: str = "hinge",
        normalize: str | None = "multiplicative",
        solver: Any = "auto",
        class_weight: Any = None,
        psd: str = "check",
        tol: float = 1e-3,
        max_iter: int = 1000,
        time_limit: float | None = None,
        memory_limit: int | None = None,
        n_jobs: int | None = None,
        callback: Any = None,
        verbose: int = 0,
    ) -> None:
        self.kernels = kernels
        self.fixed = fixed
        self.Cs = Cs
        self.norms = norms
        self.cv = cv
        self.scoring = scoring
        self.rule = rule
        self.select = select
        self.loss = loss
        self.normalize = normalize
        self.solver = solver
        self.class_weight = class_weight
        self.psd = psd
        self.tol = tol
        self.max_iter = max_iter
        self.time_limit = time_limit
        self.memory_limit = memory_limit
        self.n_jobs = n_jobs
        self.callback = callback
        self.verbose = verbose

    def _plain(self) -> MKLClassifier:
        return MKLClassifier(
            loss=self.loss,
            tol=self.tol,
            max_iter=self.max_iter,
            time_limit=self.time_limit,
        )

    def _cell(self) -> MKLClassifier:
        cell = self._plain()
        cell.classes_ = self.classes_
        return cell

    def _scorer(self, fold: Fold, weighted: bool) -> Callable[[FloatArray], float]:
        if self.scoring is not None:
            return super()._scorer(fold, weighted)
        weight = fold.row_weight if weighted else None
        truth = np.searchsorted(self.classes_, fold.truth)

        def accuracy(values: FloatArray) -> float:
            return float(np.average(decided(values) == truth, weights=weight))

        return accuracy


class MKLRegressorCV(_PathSearch, MKLRegressor):
    """:class:`MKLRegressor` that chooses C and the norm by cross-validation.

    As :class:`MKLClassifierCV`; the score is R² unless ``scoring`` says otherwise.

    Parameters
    ----------
    kernels : kernel, name, callable, list of these, "auto" or "precomputed"
        The kernels to combine, as in :class:`MKLClassifier`.
    fixed : str, int, or list of these, optional
        Covariates, as in :class:`MKLClassifierCV`.
    Cs, norms, cv, scoring, rule, select
        As in :class:`MKLClassifierCV`; with ``weights="per-target"`` and the squared
        loss ``select`` has no effect: all kernels are kept. An integer ``cv`` gives
        folds of the distinct samples; the rows of a table are assigned in an order that
        depends only on their content.
    weights : {"shared", "per-target"} or array of shape (n_outputs,)
        As in :class:`MKLRegressor`. C and the norm are chosen for all outputs together,
        for each output, or for each group accordingly.
    loss, epsilon, normalize, solver, psd
        As in :class:`MKLRegressor`.
    tol, max_iter, time_limit, memory_limit, n_jobs, callback, verbose
        As in :class:`MKLClassifierCV`.

    Attributes
    ----------
    rejected_, select_scores_
        As in :class:`MKLClassifierCV`.
    C_, norm_, scores_, mean_scores_, Cs_, norms_, best_index_, gain_over_sum_, path_
        As in :class:`MKLClassifierCV`. Unless ``weights="shared"``, ``C_`` and
        ``norm_`` are arrays of shape (n_outputs,), the scores have an additional axis
        for outputs or groups, and there is no ``gain_over_sum_``; with "per-target" and
        the squared loss there is no ``path_`` either.
    kernel_names_, kernels_, kernel_weights_, kernel_contributions_
        As in :class:`MKLRegressor`, for the final fit.
    support_, dual_coef_, intercept_, duality_gap_, n_iter_, solution_, predictor_
        As in :class:`MKLRegressor`, for the final fit.
    fixed_effects_, fixed_names_, fixed_dropped_
        As in :class:`MKLRegressor`, for the final fit.

    References
    ----------
    Kloft, M., Brefeld, U., Sonnenburg, S. and Zien, A. (2011). ℓp-norm multiple kernel
    learning. *Journal of Machine Learning Research* 12, 953-997.

    Examples
    --------
    >>> import numpy as np
    >>> from mklearn import MKLRegressorCV
    >>> X = np.linspace(0, 6, 60)[:, None]
    >>> model = MKLRegressorCV(Cs=3, norms=[1, 2], cv=3).fit(X, np.sin(X[:, 0]))
    >>> model.C_, bool(model.score(X, np.sin(X[:, 0])) > 0.99)
    (1000.0, True)
    """

    def __init__(
        self,
        kernels: Any = "auto",
        *,
        fixed: Any = None,
        Cs: Any = 7,
        norms: Any = NORMS,
        cv: Any = 5,
        scoring: Any = None,
        rule: str = "best",
        select: str | None = "widths",
        weights: Any = "shared",
        loss: str = "squared",
        epsilon: float = 0.1,
        normalize: str | None = "multiplicative",
        solver: Any = "auto",
        psd: str = "check",
        tol: float = 1e-3,
        max_iter: int = 1000,
        time_limit: float | None = None,
        memory_limit: int | None = None,
        n_jobs: int | None = None,
        callback: Any = None,
        verbose: int = 0,
    ) -> None:
        self.kernels = kernels
        self.fixed = fixed
        self.Cs = Cs
        self.norms = norms
        self.cv = cv
        self.scoring = scoring
        self.rule = rule
        self.select = select
        self.weights = weights
        self.loss = loss
        self.epsilon = epsilon
        self.normalize = normalize
        self.solver = solver
        self.psd = psd
        self.tol = tol
        self.max_iter = max_iter
        self.time_limit = time_limit
        self.memory_limit = memory_limit
        self.n_jobs = n_jobs
        self.callback = callback
        self.verbose = verbose

    def _truth(self, target: NDArray[Any]) -> NDArray[Any]:
        return target[:, 0] if self._flat else target

    def _plain(self) -> MKLRegressor:
        return MKLRegressor(
            loss=self.loss,
            epsilon=self.epsilon,
            weights=self.weights,
            tol=self.tol,
            max_iter=self.max_iter,
            time_limit=self.time_limit,
        )

    def _cell(self) -> MKLRegressor:
        cell = self._plain()
        cell._flat = self._flat
        return cell

    _solve_shared = MKLRegressor._solve_shared
    _fewer = MKLRegressor._fewer

    def _search(self, training: GramTraining, folds: Folds, weighted: bool) -> Any:
        if is_shared(self.weights):
            return super()._search(training, folds, weighted)
        if is_own(self.weights) and self._formula().quadratic:
            return self._search_own(training, folds, weighted)
        return self._search_groups(training, folds, weighted)

    def _search_groups(
        self, training: GramTraining, folds: Folds, weighted: bool
    ) -> Any:
        """Choose a cell for each group of targets, one after the other."""
        T = training.target.shape[1]
        groups = target_groups(self.weights, T)
        problems, solutions = [], []
        paths: list[Any] = []
        chosen, scores, flat = np.empty((2, T)), [], self._flat
        for group in groups:
            part = replace(training, target=training.target[:, group])
            cut = tuple(
                replace(fold, truth=fold.truth.reshape(-1, T)[:, group])
                for fold in folds.folds
            )
            self._flat = False
            _, problem, solution, _ = self._chosen_by(part, Folds(part, cut), weighted)
            problems += problem
            solutions += solution
            chosen[:, group] = np.array([[self.C_], [self.norm_]])
            scores.append(self.scores_)
            paths.append(self.path_)
        self._flat = flat
        whole, shift = self._encoded(training)
        self._store_groups(whole, groups, problems, solutions, shift)
        self._keep_choices(chosen, np.stack(scores, axis=-1))
        self.path_ = tuple(paths)
        return self

    def _search_own(self, training: GramTraining, folds: Folds, weighted: bool) -> Any:
        """Choose a cell for each target, all targets together in each cell."""
        (found,) = folds.run(partial(self._run_own, weighted=weighted), self.n_jobs)
        scores = np.stack(found, axis=2)  # (P, K, n_folds, T)
        self.Cs_ = np.sort(self._costs_tried())
        self.norms_ = np.array([float(p) for p in self.norms])
        T = scores.shape[-1]
        cells = [
            choose_cell(scores[..., t], self.Cs_, self.norms_, self.rule)
            for t in range(T)
        ]
        whole, shift = self._encoded(training)
        assert isinstance(whole, GramTraining)
        groups, problems, solutions = [], [], []
        for i, k in sorted(set(cells)):
            group = np.array([t for t in range(T) if cells[t] == (i, k)])
            part = replace(whole, Y=whole.Y[:, group])
            ball = LpBall(float(self.norms_[i]))
            problem = self._own(part, float(self.Cs_[k]), ball)
            groups.append(group)
            problems.append(problem)
            solutions.append(self._solve_own(part, problem))
        chosen = np.array([[self.Cs_[k], self.norms_[i]] for i, k in cells]).T
        self._store_groups(whole, groups, problems, solutions, shift)
        self.duality_gap_ = max(float(s.about.gaps.max()) for s in solutions)
        self._keep_choices(chosen, scores)
        self.path_ = ()
        return self

    def _keep_choices(self, chosen: FloatArray, scores: FloatArray) -> None:
        """Store what was chosen for each target."""
        self.__dict__.pop("gain_over_sum_", None)  # of a group, or an earlier fit
        self.rejected_, self.select_scores_ = (), None
        Cs, norms = chosen
        self.scores_, self.mean_scores_ = scores, scores.mean(axis=2)
        known = self.norms_.tolist()
        which = np.array([known.index(p) for p in norms.tolist()])
        self.C_, self.norm_ = Cs, norms
        self.best_index_ = (which, np.searchsorted(self.Cs_, Cs))

    def _run_own(self, part: Part, weighted: bool) -> FloatArray:
        """Return the score of every cell for each target on a fold, (P, K, T)."""
        fold = part.fold
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            training, cross = part.normalised(self.normalize)
            warnings.simplefilter("ignore", ConvergenceWarning)
            whole, shift = self._encoded(training)
            assert isinstance(whole, GramTraining)
            new = part.design_tested()
            rough = clone(self).set_params(tol=_SLACK * self.tol)
            found = []
            for p in self.norms:
                for C in np.sort(self._costs_tried()):
                    problem = self._own(whole, float(C), LpBall(float(p)))
                    solution = rough._solve_own(whole, problem)
                    stop_on_ctrl_c([solution])
                    F = cross.apply_each(solution.theta, solution.A)
                    beside = solution.bias if new is None else new @ solution.bias
                    values = (F + beside + shift)[fold.place]
                    found.append(self._score_each(fold, values, weighted))
        return np.reshape(found, (len(self.norms), -1, len(shift)))

    def _score_each(self, fold: Fold, values: FloatArray, weighted: bool) -> FloatArray:
        """Return the score of each target."""
        n, T = values.shape
        truth = fold.truth.reshape(n, T)
        weight = fold.row_weight if weighted else None
        if self.scoring is None:
            found = r2_score(
                truth, values, sample_weight=weight, multioutput="raw_values"
            )
            return np.asarray(found, dtype=float)
        one = clone(self)
        one._flat = True
        cuts = [replace(fold, truth=truth[:, t]) for t in range(T)]
        return np.array(
            [one._scorer(cut, weighted)(values[:, [t]]) for t, cut in enumerate(cuts)]
        )


class MKLCoxCV(_PathSearch, MKLCox):
    """:class:`MKLCox` that chooses C and the norm by cross-validation.

    As :class:`MKLClassifierCV`; the score is the concordance index unless ``scoring``
    says otherwise.

    Parameters
    ----------
    kernels : kernel, name, callable, list of these, "auto" or "precomputed"
        The kernels to combine, as in :class:`MKLClassifier`.
    fixed : str, int, or list of these, optional
        Covariates, as in :class:`MKLClassifierCV`.
    Cs, norms
        As in :class:`MKLClassifierCV`.
    cv : int, splitter or iterable of (train, test)
        Cross-validation folds. An integer gives that many folds of the distinct
        samples, stratified by whether they had an event.
    scoring, rule, select
        As in :class:`MKLClassifierCV`.
    ties, normalize, solver, psd
        As in :class:`MKLCox`.
    tol, max_iter, time_limit, memory_limit, n_jobs, callback, verbose
        As in :class:`MKLClassifierCV`.

    Attributes
    ----------
    C_, norm_, scores_, mean_scores_, Cs_, norms_, best_index_, gain_over_sum_, path_
        As in :class:`MKLClassifierCV`.
    rejected_, select_scores_
        As in :class:`MKLClassifierCV`.
    kernel_names_, kernels_, kernel_weights_, kernel_contributions_
        As in :class:`MKLCox`, for the final fit.
    unique_times_, baseline_cumulative_hazard_, strata_
        As in :class:`MKLCox`, for the final fit.
    fixed_effects_, fixed_names_, fixed_dropped_
        As in :class:`MKLCox`, for the final fit.
    support_, dual_coef_, duality_gap_, n_iter_, solution_, predictor_
        As in :class:`MKLCox`, for the final fit.

    References
    ----------
    Cox, D. R. (1972). Regression models and life-tables. *Journal of the Royal
    Statistical Society B* 34, 187-220.

    Examples
    --------
    >>> import numpy as np
    >>> from mklearn import MKLCoxCV
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(80, 3))
    >>> y = rng.exponential(np.exp(-X[:, 0]))
    >>> model = MKLCoxCV(["linear", "rbf"], Cs=3, norms=[1, 2], cv=3).fit(X, y)
    >>> model.scores_.shape, bool(model.mean_scores_.max() > 0.6)
    ((2, 3, 3), True)
    """

    def __init__(
        self,
        kernels: Any = "auto",
        *,
        fixed: Any = None,
        Cs: Any = 7,
        norms: Any = NORMS,
        cv: Any = 5,
        scoring: Any = None,
        rule: str = "best",
        select: str | None = "widths",
        ties: str = "breslow",
        normalize: str | None = "multiplicative",
        solver: Any = "auto",
        psd: str = "check",
        tol: float = 1e-3,
        max_iter: int = 1000,
        time_limit: float | None = None,
        memory_limit: int | None = None,
        n_jobs: int | None = None,
        callback: Any = None,
        verbose: int = 0,
    ) -> None:
        self.kernels = kernels
        self.fixed = fixed
        self.Cs = Cs
        self.norms = norms
        self.cv = cv
        self.scoring = scoring
        self.rule = rule
        self.select = select
        self.ties = ties
        self.normalize = normalize
        self.solver = solver
        self.psd = psd
        self.tol = tol
        self.max_iter = max_iter
        self.time_limit = time_limit
        self.memory_limit = memory_limit
        self.n_jobs = n_jobs
        self.callback = callback
        self.verbose = verbose

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        groups: Any = None,
        *,
        strata: Any = None,
    ) -> Any:
        """Choose C and the norm by cross-validation, then fit on all samples.

        Parameters
        ----------
        X, y, sample_weight
            As in :meth:`MKLCox.fit`.
        groups : array of shape (n_samples,), optional
            Group labels passed on to ``cv.split``: with ``cv=GroupKFold()`` the samples
            of a group stay together.
        strata : array of shape (n_samples,), optional
            As in :meth:`MKLCox.fit`. Scores on folds compare samples of all strata.
        """
        return super().fit(X, self._stratified(y, strata), sample_weight, groups)

    def _truth(self, target: NDArray[Any]) -> NDArray[Any]:
        """Return targets as scikit-survival has them, for scorers."""
        out = np.empty(len(target), dtype=[("event", bool), ("time", np.float64)])
        out["event"], out["time"] = target[:, 1] > 0, target[:, 0]
        return out

    def _kinds(self, target: NDArray[Any]) -> NDArray[np.intp] | None:
        """Return who had an event, if there are enough of both kinds for all folds."""
        kinds = target[:, 1].astype(np.intp)
        count = np.bincount(kinds, minlength=2)
        return kinds if count.min() >= int(self.cv) else None

    def _plain(self) -> MKLCox:
        return MKLCox(
            ties=self.ties,
            tol=self.tol,
            max_iter=self.max_iter,
            time_limit=self.time_limit,
        )

    def _cell(self) -> MKLCox:
        return self._plain()
