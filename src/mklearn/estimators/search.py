"""Estimators that choose cost and norm themselves, by warm-started paths on folds."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import check_scoring

from mklearn.data.threads import one_blas_thread
from mklearn.estimators._base import BaseMKL
from mklearn.estimators._folds import Part, SearchMixin, best_cell, stop_on_ctrl_c
from mklearn.estimators._predictor import KnownScores
from mklearn.estimators.classifier import MKLClassifier
from mklearn.estimators.regressor import MKLRegressor
from mklearn.kernels import KernelBank
from mklearn.problems import LpBall
from mklearn.problems.weights import WeightSet
from mklearn.solvers import Iterate, Path, Solution, mkl_path
from mklearn.solvers.path import NORMS, check_costs, scaled

FloatArray = NDArray[np.float64]

_BATCH = 2**26  # bytes of products with test kernels that are held at a time


@dataclass(frozen=True)
class _Scored:
    """What one fold found."""

    path: Path  # without solutions
    scores: FloatArray  # (P, K), NaN for cells that were not reached
    A: FloatArray  # (P, K, n_members, T)


class _PathSearch(SearchMixin, BaseMKL):
    """Cross-validation over costs and norms; a mixin before the plain estimator.

    Subclasses have the parameters ``Cs``, ``norms``, ``cv``, ``scoring``, ``rule`` and
    ``n_jobs`` besides those of the plain estimator but ``C`` and ``norm``, and say in
    ``_plain`` what one cell is, and in ``_cell`` what it knows on folds.
    """

    @one_blas_thread
    def fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, groups: Any = None
    ) -> Any:
        """Choose cost and norm by cross-validation, then learn from all samples.

        Parameters
        ----------
        X : array, sparse matrix, DataFrame, MultiView; Grams if precomputed
        y : array
        sample_weight : array of shape (n_samples,), optional
            Factors of C that count in the scores, too; weight 2 equals the sample given
            twice, weight 0 its absence.
        groups : array of shape (n_samples,), optional
            What ``cv.split`` is given as groups: ``cv=GroupKFold()`` keeps the samples
            of a group together.
        """
        self._check_parameters()
        training = self._grams(X, y, sample_weight)
        folds = self._folds(training, y, sample_weight, groups, together=True)
        job = partial(self._run_fold, weighted=sample_weight is not None)
        (found,) = folds.run(job, self.n_jobs)
        self.Cs_, self.norms_ = found[0].path.Cs, np.array(found[0].path.norms)
        self.path_ = tuple(one.path for one in found)
        self.scores_ = np.stack([one.scores for one in found], axis=2)
        self.mean_scores_ = self.scores_.mean(axis=2)
        self._warn_paths()
        i, k = choose_cell(self.scores_, self.Cs_, self.norms_, self.rule)
        self.best_index_ = (i, k)
        self.C_, self.norm_ = float(self.Cs_[k]), float(self.norms_[i])
        # folds share most of their samples: their mean is close to the last solution
        n, (_, T) = len(training.weight), found[0].A.shape[2:]
        A, count = np.zeros((n, T)), np.zeros((n, 1))
        for fold, one in zip(folds.folds, found, strict=True):
            A[fold.members] += one.A[i, k]
            count[fold.members] += 1
        theta = np.mean([one.path.theta[i, k] for one in found], axis=0)
        training, shift = self._encoded(training)
        weights = self._weights()
        problem = training.problem(self._formula(), self.C_, weights)
        start = Iterate(
            scaled(theta, weights), problem.loss.repair(A / np.maximum(count, 1))
        )
        solution = self._solve(training, problem, start)
        self._store(training, [problem], [solution], shift)
        return self

    def _weights(self) -> WeightSet:
        return LpBall(self.norm_)

    def _run_fold(self, part: Part, weighted: bool) -> _Scored:
        """Follow the path on the fold's samples and score every cell on the others."""
        fold = part.fold
        with warnings.catch_warnings():
            # a kernel that is constant on a fold has no part there; paths are judged
            # together
            warnings.simplefilter("ignore", UserWarning)
            training, cross = part.normalised(self.normalize)
            warnings.simplefilter("ignore", ConvergenceWarning)
            training, shift = self._encoded(training)
            one, formula = LpBall(1.0), self._formula()
            path = mkl_path(
                training.bank,
                lambda C: training.problem(formula, C, one).loss,
                self._costs_tried(),
                tuple(float(p) for p in self.norms),
                solver=self.solver,
                tol=self.tol,
                max_iter=self.max_iter,
                time_limit=self.time_limit,
                callback=self.callback,
                verbose=self.verbose,
            )
        stop_on_ctrl_c(s for row in path.solutions for s in row if s is not None)
        cell = self._cell()
        scorer = check_scoring(cell, scoring=self.scoring)
        weight = {"sample_weight": fold.row_weight} if weighted else {}
        numbers = np.arange(len(fold.place))[:, None]
        P, K, _ = path.shape
        scores = np.full((P, K), np.nan)
        A = np.full((P, K, *training.Y.shape), np.nan)
        for i in range(P):
            row = [s for s in path.solutions[i] if s is not None]
            for k, (s, F) in enumerate(zip(row, _decisions(cross, row), strict=True)):
                values = (F + s.bias + shift)[fold.place]
                cell.predictor_ = KnownScores.of(values)
                scores[i, k] = scorer(cell, numbers, fold.truth, **weight)
                A[i, k] = s.A
        # the solutions would take as much memory as the samples for each cell
        return _Scored(replace(path, solutions=()), scores, A)

    # --- checks -----------------------------------------------------------------------

    def _costs_tried(self) -> FloatArray:
        if isinstance(self.Cs, Integral) and not isinstance(self.Cs, bool):
            if int(self.Cs) < 1:
                raise ValueError(f"Cs must be at least 1 value, got {self.Cs!r}.")
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
        if self.rule not in ("best", "1se"):
            raise ValueError(f"rule must be 'best' or '1se', got {self.rule!r}.")
        self._plain()._check_parameters()

    def _warn_paths(self) -> None:
        gaps = np.stack([path.gap for path in self.path_])
        missing, loose = int(np.isnan(gaps).sum()), int((gaps > self.tol).sum())
        if missing or loose:
            warnings.warn(
                f"Of {gaps.size} problems on folds {missing} were not reached and "
                f"{loose} stopped above tol={self.tol:.2g}; raise time_limit or "
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
    rule : {"best", "1se"}
        The best mean score, or any that is at most one standard error of the best one
        below it. Among these, and among ties, the smallest C wins, then the largest p.
    """
    i, k = best_cell(scores, lambda i, k: (Cs[k], -norms[i], i), rule)
    return i, k


def _decisions(cross: KernelBank, solutions: list[Solution]) -> Iterator[FloatArray]:
    """Yield ``sum_m theta_m K_m A`` of each solution, shape (n_test, T).

    The kernels are evaluated once for many solutions, not once for each.
    """
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

    How sparse should the weights be? No theory says which norm p is best for given
    data, so it is tried, at little cost: the kernels are computed once for all samples
    and folds are views of them; on each fold one path of warm-started problems runs
    over all norms and costs (:func:`mkl_path`); and the last fit starts from the mean
    of the folds. Normalisation is fitted on each fold's training part. Parameters of
    kernels that follow from the data (widths, scales of columns) are found once, from
    all samples but no labels.

    Parameters
    ----------
    kernels : kernel, name, callable, list of these, "auto" or "precomputed"
        What to combine, as in :class:`MKLClassifier`.
    Cs : int or array
        Costs to try; an integer is the size of a logarithmic grid from 0.001 to 1000.
    norms : list of float
        Norms p to try, from 1 (sparse) to ``inf`` (plain sum).
    cv : int, splitter or iterable of (train, test)
        Folds. An integer makes stratified folds of the distinct samples, so that equal
        ones are never in training and test part, and a weight of 2 is a repetition.
    scoring : str or callable, optional
        As in scikit-learn; accuracy by default. A scorer is called with numbers of the
        test samples in place of X.
    rule : {"best", "1se"}
        The best mean score, or the simplest model that is at most one standard error
        below it. Simplest, also among ties: the smallest C, then the largest p.
    loss, normalize, solver, class_weight, psd
        As in :class:`MKLClassifier`.
    tol, max_iter
        As in :class:`MKLClassifier`, for each problem.
    time_limit : float, optional
        Limit in seconds for the path of each fold, and for the last fit.
    memory_limit : int, optional
        As in :class:`MKLClassifier`.
    n_jobs : int, optional
        Folds that are worked on at the same time.
    callback : callable, optional
        Called with the history after each iteration of each problem; a true answer
        stops the path.
    verbose : int
        1 for a line for each problem, 2 for each iteration.

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
        Where the choice is in ``mean_scores_``.
    path_ : tuple of Path, one for each fold
        Weights, bounds and iterations of every problem, without the solutions.
    classes_, kernel_names_, kernels_, kernel_weights_, kernel_contributions_
        As in :class:`MKLClassifier`, of the last fit.
    support_, dual_coef_, intercept_, duality_gap_, n_iter_, solution_, predictor_
        As in :class:`MKLClassifier`, of the last fit.

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
        Cs: Any = 7,
        norms: Any = NORMS,
        cv: Any = 5,
        scoring: Any = None,
        rule: str = "best",
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
        self.Cs = Cs
        self.norms = norms
        self.cv = cv
        self.scoring = scoring
        self.rule = rule
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


class MKLRegressorCV(_PathSearch, MKLRegressor):
    """:class:`MKLRegressor` that chooses C and the norm by cross-validation.

    As :class:`MKLClassifierCV`; the score is R² unless ``scoring`` says otherwise.

    Parameters
    ----------
    kernels : kernel, name, callable, list of these, "auto" or "precomputed"
        What to combine, as in :class:`MKLClassifier`.
    Cs, norms, cv, scoring, rule
        As in :class:`MKLClassifierCV`. With an integer ``cv`` the folds are of distinct
        samples; those of a table are in an order that follows from their content.
    loss, epsilon, normalize, solver, psd
        As in :class:`MKLRegressor`.
    tol, max_iter, time_limit, memory_limit, n_jobs, callback, verbose
        As in :class:`MKLClassifierCV`.

    Attributes
    ----------
    C_, norm_, scores_, mean_scores_, Cs_, norms_, best_index_, path_
        As in :class:`MKLClassifierCV`.
    kernel_names_, kernels_, kernel_weights_, kernel_contributions_
        As in :class:`MKLRegressor`, of the last fit.
    support_, dual_coef_, intercept_, duality_gap_, n_iter_, solution_, predictor_
        As in :class:`MKLRegressor`, of the last fit.

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
        Cs: Any = 7,
        norms: Any = NORMS,
        cv: Any = 5,
        scoring: Any = None,
        rule: str = "best",
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
        self.Cs = Cs
        self.norms = norms
        self.cv = cv
        self.scoring = scoring
        self.rule = rule
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
            tol=self.tol,
            max_iter=self.max_iter,
            time_limit=self.time_limit,
        )

    def _cell(self) -> MKLRegressor:
        cell = self._plain()
        cell._flat = self._flat
        return cell
