"""Regression on a learned kernel."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mklearn.data.checks import NothingToLearnError
from mklearn.data.clock import Clock
from mklearn.data.dask import ColumnChunks
from mklearn.data.threads import one_blas_thread
from mklearn.estimators._base import EXPLAINED, PosedMixin, StatisticsMixin
from mklearn.estimators._own import (
    Assembled,
    ChunkFit,
    ChunkRun,
    as_chunks,
    check_weights,
    is_own,
    is_shared,
    spread_solution,
    target_groups,
)
from mklearn.estimators._parameters import check_loss, check_positive
from mklearn.estimators._targets import NumbersMixin, Shifted
from mklearn.estimators._training import GramTraining, Training
from mklearn.problems.losses import Pointwise, by_name
from mklearn.problems.targets import FewerColumns, OwnSquared
from mklearn.solvers import Iterate, Solution, Status
from mklearn.solvers.driver import warn_if_early
from mklearn.solvers.registry import choose_solver
from mklearn.solvers.targets import OwnWeights

FloatArray = NDArray[np.float64]


class MKLRegressor(NumbersMixin, StatisticsMixin, PosedMixin):
    """Regression on a learned combination of kernels (ℓp-norm MKL).

    Solves, to a certified duality gap, ::

        min  C sum_i V(f(x_i), y_i) + ½ sum_m |w_m|^2 / theta_m
        s.t. theta >= 0, |theta|_p <= 1,    f(x) = sum_m <w_m, phi_m(x)> + b

    over ``w``, ``b`` and the kernel weights ``theta`` jointly (Kloft et al. 2011). With
    one kernel this is kernel ridge regression with a free intercept and the penalty
    ``1 / C``, or support vector regression.

    Parameters
    ----------
    kernels : kernel, name, callable, list of these, "auto" or "precomputed"
        The kernels to combine, as in :class:`MKLClassifier`.
    fixed : str, int, or list of these, optional
        Covariates, as in :class:`MKLClassifier`.
    C : float
        Cost of errors.
    loss : {"squared", "epsilon_insensitive"}
        ``V(f, y)``: ``½ (y - f)^2`` or ``max(0, |y - f| - epsilon)``.
    epsilon : float
        Errors up to this size cost nothing (for ``loss="epsilon_insensitive"``).
    norm : float, matrix or weight set
        The p of the norm on the weights, from 1 (sparse) to ``inf`` (plain sum), or a
        set as in :class:`MKLClassifier`.
    weights : {"shared", "per-target"} or array of shape (n_outputs,)
        Whether all outputs share one set of kernel weights ("shared"), each output has
        its own ("per-target"), or the outputs of a group share theirs (an array that
        gives the group of each output). With "per-target" and the squared loss,
        thousands of outputs are solved together efficiently.
    normalize : {None, "center", "trace", "multiplicative", "spherical"}
        How the kernels are normalised, using statistics of the training samples. None
        uses them exactly as given.
    solver : str or Solver
        "auto", a name such as "newton" or "alternating", or a solver object.
    psd, tol, max_iter, time_limit, memory_limit, callback, verbose
        As in :class:`MKLClassifier`.
    approximation, rank, landmarks, random_state
        As in :class:`MKLClassifier`.

    Attributes
    ----------
    kernel_names_ : tuple of str
    kernels_ : tuple
        The kernels with all their parameters resolved to numbers (None for precomputed
        kernels).
    kernel_weights_ : array of shape (n_kernels,), or (n_outputs, n_kernels)
        The ``theta`` above, for the normalised kernels; one row per output unless
        ``weights="shared"``.
    kernel_contributions_ : array of the shape of the weights
        Scale-free shares ``theta_m |w_m / theta_m|^2`` that sum to one.
    support_ : array
        Indices of the rows of X with a nonzero coefficient (without ``approximation``).
    dual_coef_ : array of shape (n_outputs, n_support)
        Without ``approximation``.
    intercept_ : array of shape (n_outputs,)
    fixed_effects_ : array of shape (n_covariates,) or (n_outputs, n_covariates)
        Coefficients of the covariates, in the units of X.
    fixed_names_, fixed_dropped_ : tuple of str
        As in :class:`MKLClassifier`.
    duality_gap_ : float
        The relative gap that certifies the solution; the largest one if several
        problems were solved. With ``weights="per-target"``, ``solution_.about.gaps``
        holds the gap of each output.
    n_iter_ : int
    solution_ : Solution
        Solution for the target ``y - median(y)``, which differs from that for y only in
        the bias; with ``approximation``, for the approximate kernels.
    predictor_ : Predictor
        The fitted prediction function, an immutable object: ``scores(X)`` returns the
        scores, ``parts(X)`` splits them by kernel.
    approximation_error_ : ApproximationError
        Estimated approximation error of each kernel; only with ``approximation``.

    References
    ----------
    Kloft, M., Brefeld, U., Sonnenburg, S. and Zien, A. (2011). ℓp-norm multiple kernel
    learning. *Journal of Machine Learning Research* 12, 953-997.

    Examples
    --------
    >>> import numpy as np
    >>> from mklearn import MKLRegressor
    >>> X = np.linspace(0, 6, 60)[:, None]
    >>> model = MKLRegressor(C=10.0).fit(X, np.sin(X[:, 0]))
    >>> bool(model.score(X, np.sin(X[:, 0])) > 0.99)
    True
    """

    def __init__(
        self,
        kernels: Any = "auto",
        *,
        fixed: Any = None,
        C: float = 1.0,
        loss: str = "squared",
        epsilon: float = 0.1,
        norm: Any = 2,
        weights: Any = "shared",
        normalize: str | None = "multiplicative",
        solver: Any = "auto",
        psd: str = "check",
        tol: float = 1e-3,
        max_iter: int = 1000,
        time_limit: float | None = None,
        memory_limit: int | None = None,
        callback: Any = None,
        verbose: int = 0,
        approximation: str | None = None,
        rank: float = 200,
        landmarks: str = "kmeans",
        random_state: Any = 0,
    ) -> None:
        self.kernels = kernels
        self.fixed = fixed
        self.C = C
        self.loss = loss
        self.epsilon = epsilon
        self.norm = norm
        self.weights = weights
        self.normalize = normalize
        self.solver = solver
        self.psd = psd
        self.tol = tol
        self.max_iter = max_iter
        self.time_limit = time_limit
        self.memory_limit = memory_limit
        self.callback = callback
        self.verbose = verbose
        self.approximation = approximation
        self.rank = rank
        self.landmarks = landmarks
        self.random_state = random_state

    @one_blas_thread
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> MKLRegressor:
        """Learn the kernel weights and the regression function.

        Parameters
        ----------
        X : array, sparse matrix, DataFrame, MultiView, or Gram matrices
        y : array of shape (n_samples,) or (n_samples, n_outputs)
            All outputs share the kernel weights unless ``weights`` says otherwise, so
            they should have comparable scales. With ``weights="per-target"``, the
            squared loss and no ``approximation``, the chunks of columns of a Dask array
            are fitted by the workers that read them; ``callback`` is then called after
            each chunk.
        sample_weight : array of shape (n_samples,), optional
            Multiplied by C. A weight of 2 is equivalent to giving the sample twice, a
            weight of 0 to leaving it out.
        """
        self._check_parameters()
        return self._learn(self._training(X, y, sample_weight))

    def _learn(self, training: Training) -> MKLRegressor:
        """Pose the problem, solve it, and keep what was found."""
        if isinstance(getattr(training, "target", None), ColumnChunks):
            assert isinstance(training, GramTraining)
            return self._learn_chunks(training, training.target)
        training, shift = self._encoded(training)
        self._check_beside(training)
        self._learn_at(training, shift, self.C)
        return self

    def _learn_chunks(
        self, training: GramTraining, chunks: ColumnChunks
    ) -> MKLRegressor:
        """Learn the weights of each target in chunks of targets, on workers."""
        none = np.zeros((len(chunks), 0))
        training = replace(training, Y=none, cost=training.weight)
        problem = self._own(training, self.C, self._weights())
        fit = ChunkFit(
            replace(problem, bank=problem.bank.travelling()), self._own_solver(),
            self.tol, self.max_iter, training.beside, centred=True,
        )  # fmt: skip
        run = ChunkRun(chunks, fit, training.clock, self.callback, self.verbose)
        solution, shares = run.solve(self.memory_limit)
        if run.explained.all():
            raise NothingToLearnError(EXPLAINED)
        self._store_own(training, solution, shares, run.shift)
        return self

    def _learn_at(
        self, training: Training, shift: Any, C: Any, start: Any = None
    ) -> None:
        """Solve the problem of some cost, or of one for each target."""
        formula, weights = self._formula(), self._weights()
        if is_shared(self.weights):
            problem, solution = self._solve_shared(training, C, start)
            self._store(training, [problem], [solution], shift)
        elif is_own(self.weights) and self._at_once(training):
            assert isinstance(training, GramTraining)
            problem = self._own(training, C, weights)
            solution = self._solve_own(training, problem)
            theta, A = solution.theta, solution.A
            shares = problem.contributions(theta, A, solution.quads)
            self._store_own(training, solution, shares, shift)
        else:
            groups = target_groups(self.weights, training.n_targets)
            parts = [training.problem(formula, C, weights, g) for g in groups]
            solutions = [self._solve(training, problem) for problem in parts]
            self._store_groups(training, groups, parts, solutions, shift)

    def _posed(self, training: Training) -> list[Any]:
        """Return the one problem of all outputs, or that of each group."""
        formula, weights = self._formula(), self._weights()
        if is_shared(self.weights):
            return [training.problem(formula, self.C, weights)]
        groups = target_groups(self.weights, training.n_targets)
        return [training.problem(formula, self.C, weights, g) for g in groups]

    def _solve_shared(
        self, training: Training, C: float, start: Iterate | None = None
    ) -> tuple[Any, Solution]:
        """Solve the problem of all targets, as one of no more targets than samples."""
        formula, weights = self._formula(), self._weights()
        problem, fewer = training.problem(formula, C, weights), self._fewer(training)
        if fewer is None:
            return problem, self._solve(training, problem, start)
        assert isinstance(training, GramTraining)
        few = replace(training, Y=fewer.columns)
        if start is not None:
            start = Iterate(start.theta, start.A @ fewer.mix)
        found = self._solve(few, few.problem(formula, C, weights), start)
        return problem, spread_solution(found, fewer)

    def _fewer(self, training: Training) -> FewerColumns | None:
        """Return fewer equivalent columns for all targets, None if not possible."""
        return training.fewer() if self._formula().quadratic else None

    def _at_once(self, training: Training) -> bool:
        """Return whether all targets can be solved together."""
        return training.exact and self._formula().quadratic

    def _own(self, training: GramTraining, C: float, weights: Any) -> OwnSquared:
        cost = C * training.cost
        return OwnSquared(training.bank, training.Y, cost, weights, training.beside)

    def _solve_own(self, training: GramTraining, problem: OwnSquared) -> Solution:
        """Solve the problems of all targets together, and say if some are not."""
        problem, seconds = problem.until(training.clock)
        found = self._solve_by(self._own_solver(), problem, Clock.start(seconds))
        if found.status is Status.OPTIMAL and not found.about.proved.all():
            found = replace(found, status=Status.TIME_LIMIT)
            warn_if_early(found, self.tol)
        return found

    def _own_solver(self) -> OwnWeights:
        return OwnWeights(self.tol, partial(choose_solver, self.solver))

    def _store_own(
        self,
        training: GramTraining,
        solution: Solution,
        shares: FloatArray,
        shift: Any,
    ) -> None:
        theta, A = solution.theta, solution.A
        bias, effects = self._effects(solution.bias, shift)
        predictor = training.predictor(theta, A, bias).with_effects(effects)
        self._keep(training, predictor, theta, A, shares)
        self.solution_, self.n_iter_ = solution, solution.n_iter
        self.duality_gap_ = float(solution.about.gaps.max())

    def _store_groups(
        self,
        training: Training,
        groups: list[Any],
        problems: list[Any],
        solutions: list[Solution],
        shift: Any,
    ) -> None:
        """Keep what was solved, with a row of weights for each target."""
        shares = map(training.shares, problems, solutions)
        parts = zip(groups, solutions, shares, strict=True)
        found = Assembled.of(parts, training.n_targets, len(training.names))
        bias, effects = self._effects(found.bias, shift)
        predictor = training.predictor(found.theta, found.A, bias).with_effects(effects)
        self._keep(training, predictor, found.theta, found.A, found.shares)
        self.solution_ = solutions
        self.duality_gap_ = max(s.gap for s in solutions)
        self.n_iter_ = max(s.n_iter for s in solutions)

    def _encoded(self, training: Training) -> tuple[Training, Any]:
        """Return the training with values around zero, and what was subtracted."""
        shift = training.middle()
        return training.encoded(Shifted(shift)), shift

    def _target(self, y: Any, weight: FloatArray) -> Any:
        whole = self.approximation is not None or not self._formula().quadratic
        chunks = None
        if is_own(self.weights) and not whole:
            chunks = as_chunks(y, len(weight))
        if chunks is None:
            return super()._target(y, weight)
        self._flat = False
        return chunks

    def _formula(self) -> Pointwise:
        return by_name(self.loss, epsilon=float(self.epsilon))

    def _beyond_sums(self) -> dict[str, Any]:
        return {} if self._formula().quadratic else {"loss": self.loss}

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_positive("C", self.C)
        check_loss(self.loss, "numbers")
        check_weights(self.weights)
        epsilon = self.epsilon
        if not (isinstance(epsilon, Real) and np.isfinite(epsilon) and epsilon >= 0):
            raise ValueError(f"epsilon must be a nonnegative number, got {epsilon!r}.")
