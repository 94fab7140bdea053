"""Estimators that choose C and the norm by warm-started paths on folds."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import r2_score

from mklearn.data.checks import structured_times
from mklearn.data.clock import Clock
from mklearn.data.spelling import plural
from mklearn.estimators._folds import Fold, Folds, Part, stop_on_ctrl_c
from mklearn.estimators._own import is_own, is_shared, target_groups
from mklearn.estimators._path_search import SLACK, PathSearch, choose_cell
from mklearn.estimators._targets import NumbersMixin, decided
from mklearn.estimators._training import GramTraining
from mklearn.estimators.classifier import MKLClassifier
from mklearn.estimators.event_times import concordance_index
from mklearn.estimators.regressor import MKLRegressor
from mklearn.estimators.survival import MKLCox
from mklearn.kernels import KernelBank
from mklearn.problems import LpBall, TwoLevel
from mklearn.problems.targets import OwnSquared
from mklearn.solvers import Status
from mklearn.solvers.path import NORMS
from mklearn.solvers.target_grid import RidgeGrid
from mklearn.solvers.targets import OwnWeights

FloatArray = NDArray[np.float64]

_FEW = 16  # number of targets up to which folds are solved without approximation
_SEARCH = 0.5  # share of the time limit for the folds of many targets


class MKLClassifierCV(PathSearch, MKLClassifier):
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
    norms : list of float or TwoLevel
        Norms p to try, from 1 (sparse) to ``inf`` (plain sum), and two-level norms.
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


class MKLRegressorCV(PathSearch, MKLRegressor):
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
    tol, max_iter
        As in :class:`MKLClassifierCV`.
    time_limit : float, optional
        As in :class:`MKLClassifierCV`; with ``weights="per-target"`` and the squared
        loss, time limit in seconds for the whole fit: half of it for all folds, the
        rest for the final fit. If it ends early, the choice is made from the folds and
        weights so far.
    memory_limit, n_jobs
        As in :class:`MKLClassifierCV`.
    callback : callable, optional
        As in :class:`MKLClassifierCV`; with ``weights="per-target"``, the squared loss
        and more than 16 outputs only in the final fit.
    verbose : int
        As in :class:`MKLClassifierCV`.

    Attributes
    ----------
    rejected_, select_scores_
        As in :class:`MKLClassifierCV`.
    C_, norm_, scores_, mean_scores_, Cs_, norms_, best_index_, gain_over_sum_, path_
        As in :class:`MKLClassifierCV`. Unless ``weights="shared"``, ``C_`` and
        ``norm_`` are arrays of shape (n_outputs,), the scores have an additional axis
        for outputs or groups, and there is no ``gain_over_sum_``; with "per-target" and
        the squared loss there is no ``path_`` either, and the scores of folds that
        ``time_limit`` left no time for are NaN.
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

    def _scorer(self, fold: Fold, weighted: bool) -> Callable[[FloatArray], float]:
        if self.scoring is not None or len(fold.truth) < 2:
            return super()._scorer(fold, weighted)
        weight = fold.row_weight if weighted else None
        truth = np.asarray(fold.truth).reshape(len(fold.truth), -1)
        spread = np.average(
            (truth - np.average(truth, axis=0, weights=weight)) ** 2,
            axis=0,
            weights=weight,
        )

        def r2(values: FloatArray) -> float:
            error = np.average((truth - values) ** 2, axis=0, weights=weight)
            same = np.where(error > 0, 0.0, 1.0)  # a constant is right or wrong
            divisor = np.where(spread > 0, spread, 1.0)
            return float(np.where(spread > 0, 1.0 - error / divisor, same).mean())

        return r2

    _target = NumbersMixin._target  # folds take rows of all targets
    _solve_shared = MKLRegressor._solve_shared
    _fewer = MKLRegressor._fewer

    def _search(self, training: GramTraining, folds: Folds, weighted: bool) -> Any:
        if is_shared(self.weights):
            return super()._search(training, folds, weighted)
        if any(isinstance(p, TwoLevel) for p in self.norms):
            raise ValueError(
                "norms may have TwoLevel norms only with weights='shared', got "
                f"weights={self.weights!r}."
            )
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
        self.Cs_ = np.sort(self._costs_tried())
        self.norms_ = np.array([float(p) for p in self.norms])
        found = self._folds_in_time(training, folds, weighted)
        T = training.target.shape[1]
        scores = np.full((len(self.norms_), len(self.Cs_), len(found), T), np.nan)
        for number, one in enumerate(found):
            if one is not None:
                scores[:, :, number] = one
        done = scores[:, :, [one is not None for one in found]]
        cells = [
            choose_cell(done[..., t], self.Cs_, self.norms_, self.rule)
            for t in range(T)
        ]
        whole, shift = self._encoded(training)
        assert isinstance(whole, GramTraining)
        which, costs = np.array(cells).T
        problem = self._own(whole, 1.0, LpBall(1.0))
        groups, problems, solutions = [], [], []
        for i in np.unique(which):
            group = np.flatnonzero(which == i)
            ball = LpBall(float(self.norms_[i]))
            part = problem.among(group, self.Cs_[costs[group]], ball)
            groups.append(group)
            problems.append(part)
            solutions.append(self._solve_own(whole, part))
        chosen = np.array([self.Cs_[costs], self.norms_[which]])
        self._store_groups(whole, groups, problems, solutions, shift)
        self.duality_gap_ = max(float(s.about.gaps.max()) for s in solutions)
        self._keep_choices(chosen, scores, done)
        self.path_ = ()
        return self

    def _own_solver(self) -> OwnWeights:
        return replace(super()._own_solver(), few=0)  # groups share their factors

    def _folds_in_time(
        self, training: GramTraining, folds: Folds, weighted: bool
    ) -> list[FloatArray | None]:
        """Return the scores of each fold, None if there was no time; one at least."""
        left, seconds = training.clock.left(), None
        if left is not None:
            turns = -(-len(folds.folds) // effective_n_jobs(self.n_jobs))
            seconds = _SEARCH * left / turns
        job = partial(self._run_own, weighted=weighted, seconds=seconds)
        (found,) = folds.run(job, self.n_jobs)
        if all(one is None for one in found):
            job = partial(self._run_own, weighted=weighted, seconds=0.0, late=True)
            ((first,),) = replace(folds, folds=folds.folds[:1]).run(job)
            found = [first, *found[1:]]
        missing = sum(one is None for one in found)
        early = sum(one is not None and one[1] for one in found)
        if missing or early:
            warnings.warn(
                f"time_limit left no time for {missing} of "
                f"{plural(len(found), 'fold')}, and {early} ended before the weights "
                "were good enough to choose by; the choice is based on the scores so "
                "far. Raise time_limit, or try a "
                "smaller grid.",
                ConvergenceWarning,
                stacklevel=2,
            )
        return [None if one is None else one[0] for one in found]

    def _keep_choices(
        self, chosen: FloatArray, scores: FloatArray, done: FloatArray | None = None
    ) -> None:
        """Store what was chosen for each target, from the folds that were ``done``."""
        self.__dict__.pop("gain_over_sum_", None)  # of a group, or an earlier fit
        self.rejected_, self.select_scores_ = (), None
        Cs, norms = chosen
        self.scores_ = scores
        self.mean_scores_ = (scores if done is None else done).mean(axis=2)
        known = self.norms_.tolist()
        which = np.array([known.index(p) for p in norms.tolist()])
        self.C_, self.norm_ = Cs, norms
        self.best_index_ = (which, np.searchsorted(self.Cs_, Cs))

    def _run_own(
        self, part: Part, weighted: bool, seconds: float | None, late: bool = False
    ) -> tuple[FloatArray, bool] | None:
        """Return the score of every cell for each target on a fold, (P, K, T).

        Parameters
        ----------
        part : Part
        weighted : bool
            Whether samples have weights.
        seconds : float or None
            Time limit for this fold.
        late : bool
            Whether to return a result even if the limit of the whole fit is over.

        Returns
        -------
        tuple or None
            The scores, and whether the time limit ended the search for weights; None
            if the limit of the whole fit was over before this fold.
        """
        fold, clock = part.fold, Clock.start(seconds)
        if part.whole.clock.left() == 0.0 and not late:
            return None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            training, cross = part.normalised(self.normalize)
            whole, shift = self._encoded(training)
        assert isinstance(whole, GramTraining)
        problem = self._own(whole, 1.0, LpBall(1.0))
        scores = np.empty((len(self.norms_), len(self.Cs_), len(shift)))
        truth = fold.truth.reshape(len(fold.place), len(shift))
        found, early = self._rough(problem, clock, cross, part.design_tested())
        for here, values in found:
            cut = replace(fold, truth=truth[:, here])
            for i, k in np.ndindex(scores.shape[:2]):
                each = (values[i, k] + shift[here])[fold.place]
                scores[i, k, here] = self._score_each(cut, each, weighted)
        return scores, early

    def _rough(
        self,
        problem: OwnSquared,
        clock: Clock,
        cross: KernelBank,
        new: FloatArray | None,
    ) -> tuple[Iterable[tuple[slice, FloatArray]], bool]:
        """Return predictions for the test samples of a fold, and if there was no time.

        Predictions of all cells, (P, K, n_new, count), come in blocks of targets.
        """
        T, early = problem.n_targets, False
        if T > _FEW:
            grid = RidgeGrid(problem, self.norms_, self.Cs_, SLACK * self.tol)
            for _ in grid.rounds():
                if clock.left() == 0.0:
                    early = True
                    break
            return grid.predictions(cross, new), early
        values = np.empty((len(self.norms_), len(self.Cs_), cross.shape[0], T))
        rough = clone(self).set_params(tol=SLACK * self.tol)
        each = np.tile(np.arange(T), len(self.Cs_))
        for i, p in enumerate(self.norms_):
            # every target once for each cost
            part = problem.among(each, np.repeat(self.Cs_, T), LpBall(float(p)))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                solution = rough._solve_by(rough._own_solver(), part, clock)
            stop_on_ctrl_c([solution])
            early |= solution.status is Status.TIME_LIMIT
            F = cross.apply_each(solution.theta, solution.A)
            F = F + (solution.bias if new is None else new @ solution.bias)
            values[i] = F.reshape(len(F), -1, T).transpose(1, 0, 2)
        return [(slice(0, T), values)], early

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


class MKLCoxCV(PathSearch, MKLCox):
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
            As in :meth:`MKLClassifierCV.fit`.
        strata : array of shape (n_samples,), optional
            As in :meth:`MKLCox.fit`. Scores on folds compare samples of all strata.
        """
        return super().fit(X, self._stratified(X, y, strata), sample_weight, groups)

    def _truth(self, target: NDArray[Any]) -> NDArray[Any]:
        """Return targets as scikit-survival has them, for scorers."""
        return structured_times(target)

    def _kinds(self, target: NDArray[Any]) -> NDArray[np.intp] | None:
        """Return who had an event, if there are enough of both kinds for all folds."""
        kinds = target[:, 1].astype(np.intp)
        count = np.bincount(kinds, minlength=2)
        return kinds if count.min() >= self._n_folds() else None

    def _check_fold(self, training: Any, fold: Fold, number: int) -> None:
        super()._check_fold(training, fold, number)
        learned = training.target[fold.members, 1].any()
        comparable = concordance_index(fold.truth, np.zeros(len(fold.truth)))
        if not learned or (self.scoring is None and np.isnan(comparable)):
            part = "test" if learned else "training"
            raise ValueError(
                f"The {part} part of fold {number} has no event that other samples "
                "outlive; use fewer folds, or folds that all have events."
            )

    def _plain(self) -> MKLCox:
        return MKLCox(
            ties=self.ties,
            tol=self.tol,
            max_iter=self.max_iter,
            time_limit=self.time_limit,
        )

    def _cell(self) -> MKLCox:
        return self._plain()
