"""Estimators that choose C and the norm by warm-started paths on folds."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import r2_score

from mklearn.estimators._folds import Fold, Folds, Part, stop_on_ctrl_c
from mklearn.estimators._own import is_own, is_shared, target_groups
from mklearn.estimators._path_search import SLACK, PathSearch, choose_cell
from mklearn.estimators._targets import NumbersMixin, decided
from mklearn.estimators._training import GramTraining
from mklearn.estimators.classifier import MKLClassifier
from mklearn.estimators.regressor import MKLRegressor
from mklearn.estimators.survival import MKLCox
from mklearn.problems import LpBall
from mklearn.solvers.path import NORMS

FloatArray = NDArray[np.float64]


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

    _target = NumbersMixin._target  # folds take rows of all targets
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
            rough = clone(self).set_params(tol=SLACK * self.tol)
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
        return kinds if count.min() >= self._n_folds() else None

    def _plain(self) -> MKLCox:
        return MKLCox(
            ties=self.ties,
            tol=self.tol,
            max_iter=self.max_iter,
            time_limit=self.time_limit,
        )

    def _cell(self) -> MKLCox:
        return self._plain()
