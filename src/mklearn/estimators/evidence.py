"""Regression with kernel weights that maximise the evidence."""

from __future__ import annotations

import warnings
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from mklearn.data.checks import NothingToLearnError, check_values
from mklearn.data.dask import ColumnChunks, computed, is_dask
from mklearn.data.threads import one_blas_thread
from mklearn.estimators._base import EXPLAINED, StatisticsMixin
from mklearn.estimators._own import (
    Assembled,
    ChunkFit,
    ChunkRun,
    LaterErrors,
    as_chunks,
    check_weights,
    is_own,
    is_shared,
    record,
    target_groups,
)
from mklearn.estimators._parameters import check_limits
from mklearn.estimators._predictor import GramPredictor
from mklearn.estimators._targets import NumbersMixin, Shifted, target_indices
from mklearn.estimators._training import GramTraining, Training, check_approximation
from mklearn.problems.evidence import EvidenceProblem, WeightErrors
from mklearn.problems.targets import Likelihoods, OwnEvidence
from mklearn.solvers import History, Iterate, Solution, solve
from mklearn.solvers.evidence import AverageInformation
from mklearn.solvers.profiles import Profile
from mklearn.solvers.targets import OwnWeights

FloatArray = NDArray[np.float64]

_OF_ALL = 1e-3  # tolerance of the log evidence for shared weights
_OF_EACH, _MOST = 1 / 8, 2.5  # the same for one target, per kernel and in total


class EvidenceMKLRegressor(NumbersMixin, StatisticsMixin):
    """Regression on the combination of kernels with the highest evidence (REML).

    The target is modelled as the sum of a constant, Gaussian processes with the
    covariances ``s theta_m k_m``, and noise with the variance ``s``. The weights
    ``theta >= 0`` maximise the restricted likelihood (REML), in which the constant and
    ``s`` have been integrated or profiled out. The predictions are those of kernel
    ridge regression on ``sum_m theta_m k_m`` with a free intercept and unit penalty.

    No cross-validation is needed, because the size of the weights determines the
    strength of the regularisation. Many weights are exactly zero. The likelihood
    accounts for the flexibility of each kernel, so that narrow kernels are not favoured
    for fitting the training samples closely, as they are in :class:`MKLRegressor`. On
    the other hand the likelihood is not concave: the weights are a local maximum,
    without a bound on how much better others could be.

    Each iteration takes the time of a few factorisations of an (n, n) matrix, and
    memory for about four such matrices is needed in addition to the kernels. With an
    ``approximation`` of D features in total the matrices are (D, D), whatever the
    number of samples, which are read only once.

    Parameters
    ----------
    kernels : kernel, name, callable, list of these, "auto" or "precomputed"
        The kernels to combine, as in :class:`MKLClassifier`.
    fixed : str, int, or list of these, optional
        Covariates, as in :class:`MKLClassifier`: the constant is replaced by a linear
        function of them, which the restricted likelihood accounts for.
    weights : {"shared", "per-target"} or array of shape (n_outputs,)
        Whether all outputs share one set of kernel weights ("shared"), each output has
        its own ("per-target"), or the outputs of a group share theirs (an array that
        gives the group of each output). With "per-target", thousands of outputs are
        processed together efficiently.
    normalize : {None, "center", "trace", "multiplicative", "spherical"}
        How the kernels are normalised. The scale of a kernel only affects the unit of
        its weight.
    psd : {"check", "clip", "ignore"}
        As in :class:`MKLClassifier`.
    uncertainty : bool
        Whether to keep the (n, n) matrix that ``predict(X, return_std=True)`` needs.
        Not available with ``approximation``.
    tol : float, optional
        Stop when the log-likelihood is expected to grow by less than this. The default
        is 0.001; with ``weights="per-target"`` it is, in the mean over targets, 1/8 per
        kernel but at most 2.5, which is the loss if a weight is off by half its
        standard error. Below 0.05 the matrix of each target is factorised at the end,
        as if the target were fitted alone, which takes nearly as long.
    max_iter : int
    time_limit : float, optional
        Limit in seconds.
    memory_limit : int, optional
        As in :class:`MKLClassifier`, for the kernels. With ``weights="per-target"``,
        coefficients that exceed it are kept in a temporary file.
    callback : callable, optional
        Called with the history after each iteration; it may return True to stop. If y
        is a Dask array whose chunks are fitted by workers, it is called after each
        chunk.
    verbose : int
        If positive, print a line for each iteration to standard error.
    approximation, rank, landmarks, random_state
        Low-rank features in place of the exact kernels, as in :class:`MKLRegressor`.
        The model is computed from sums over the samples, which may be given in blocks.
        With ``weights="per-target"`` targets are then solved one by one.

    Attributes
    ----------
    solution_ : Solution
        The solution; its ``upper`` is minus the log evidence.
    predictor_ : Predictor
        The fitted prediction function, an immutable object: ``scores(X)`` returns the
        scores, ``parts(X)`` splits them by kernel.
    evidence_ : Likelihood, Likelihoods, or list of Likelihood
        The likelihood, how it was computed, and its expected improvement by further
        small changes; with an entry for each output if ``weights="per-target"``, and a
        list of one for each group of outputs.
    noise_ : array of shape (n_outputs,)
        Variance of the noise.
    kernel_weights_std_ : array of the shape of the weights
        Standard errors of the kernel weights, from the average information; infinite if
        kernels cannot be distinguished. For a weight of zero, it is the standard error
        that the weight would have in addition to the positive ones. Unless
        ``weights="shared"``, these and the errors below are computed when one of them
        is first used, by a factorisation for each output or group; until then, the
        model keeps a reference to the samples, which is not saved with it.
    variance_explained_, variance_explained_std_ : arrays of the shape of the weights
        Share of the variance of y, apart from covariates, that each kernel explains,
        and its standard error by the delta method.
    weight_errors_ : WeightErrors
        All of these errors, and the share that the kernels explain together.
    kernel_names_ : tuple of str
    kernels_ : tuple
        The kernels with all their parameters resolved to numbers (None for precomputed
        kernels).
    kernel_weights_ : array of shape (n_kernels,), or (n_outputs, n_kernels)
        The ``theta`` above, for the normalised kernels; one row per output unless
        ``weights="shared"``. With ``normalize="multiplicative"``, a weight is the
        variance explained by its kernel relative to that of the noise. All weights are
        zero if y looks like pure noise.
    kernel_contributions_ : array of the shape of the weights
        Scale-free shares ``theta_m |w_m / theta_m|^2`` that sum to one.
    support_ : array
        Indices of the rows of X with a nonzero coefficient.
    dual_coef_ : array of shape (n_outputs, n_support)
    intercept_ : array of shape (n_outputs,)
    fixed_effects_ : array of shape (n_covariates,), or (n_outputs, n_covariates)
        Coefficients of the covariates, in the units of X.
    fixed_effects_std_ : array of the same shape
        Standard errors of the effects, treating the kernel weights as known.
    intercept_std_ : array of shape (n_outputs,)
        Standard error of the intercept, that is, where all covariates are zero.
    fixed_names_, fixed_dropped_ : tuple of str
        As in :class:`MKLClassifier`.
    n_iter_ : int

    References
    ----------
    Patterson, H. D. and Thompson, R. (1971). Recovery of inter-block information when
    block sizes are unequal. *Biometrika* 58, 545-554.

    Gilmour, A. R., Thompson, R. and Cullis, B. R. (1995). Average information REML: an
    efficient algorithm for variance parameter estimation in linear mixed models.
    *Biometrics* 51, 1440-1450.

    Rasmussen, C. E. and Williams, C. K. I. (2006). *Gaussian processes for machine
    learning*. MIT Press.

    Examples
    --------
    >>> import numpy as np
    >>> from mklearn import EvidenceMKLRegressor, kernels
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-3, 3, size=(100, 4))
    >>> y = np.sin(X[:, 0]) + 0.1 * rng.standard_normal(100)
    >>> model = EvidenceMKLRegressor(kernels.per_feature("rbf")).fit(X, y)
    >>> int(model.kernel_weights_.argmax()), bool(0.005 < model.noise_[0] < 0.02)
    (0, True)
    """

    def __init__(
        self,
        kernels: Any = "auto",
        *,
        fixed: Any = None,
        weights: Any = "shared",
        normalize: str | None = "multiplicative",
        psd: str = "check",
        uncertainty: bool = False,
        tol: float | None = None,
        max_iter: int = 100,
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
        self.weights = weights
        self.normalize = normalize
        self.psd = psd
        self.uncertainty = uncertainty
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

    solution_: Any
    evidence_: Any
    _later: LaterErrors | None

    @one_blas_thread
    def fit(
        self, X: Any, y: Any = None, sample_weight: Any = None
    ) -> EvidenceMKLRegressor:
        """Learn the kernel weights and the regression function.

        Parameters
        ----------
        X : array, sparse matrix, DataFrame, MultiView, or Gram matrices
        y : array of shape (n_samples,) or (n_samples, n_outputs)
            Outputs share the kernel weights unless ``weights`` says otherwise; each has
            its own noise variance. With ``weights="per-target"`` y is not copied: it
            may be a memory-mapped file, and if it has single precision, so do the
            coefficients. The chunks of columns of a Dask array are then fitted by the
            workers that read them, unless there is an ``approximation``.
        sample_weight : array of shape (n_samples,), optional
            Precision of the values: the noise variance of a sample is ``noise_``
            divided by its weight. Multiplying all weights by a constant changes the
            units of ``noise_`` and ``kernel_weights_``, but no prediction. Identical
            rows of a table with identical values are merged into one with the sum of
            their weights; the rows of Gram matrices, views and blocks are not compared
            and count as separate measurements.
        """
        self._check_parameters()
        return self._learn(self._training(X, y, sample_weight))

    def _target(self, y: Any, weight: FloatArray) -> Any:
        if not is_own(self.weights) or self.approximation is not None:
            return super()._target(y, weight)
        chunks = as_chunks(y, len(weight))
        if chunks is not None:
            self._flat = False
            return chunks
        if is_dask(y):
            y = computed([y])[0]
        y = check_values(y, len(weight), large=True)
        self._flat = y.ndim == 1
        return np.asarray(y.reshape(len(y), -1))

    def _check_parameters(self) -> None:
        check_limits(self, _OF_ALL if self.tol is None else self.tol)
        check_weights(self.weights)
        if self.uncertainty and not is_shared(self.weights):
            raise ValueError(
                "uncertainty= needs one set of weights for all targets; use "
                "weights='shared', or fit each target separately."
            )
        if self.approximation is None:
            return
        check_approximation(self.approximation, self.rank, self.landmarks)
        if self.uncertainty:
            raise ValueError(
                "uncertainty= needs all samples, but approximation= keeps only sums "
                "over them; use one or the other."
            )

    def _learn(self, training: Training) -> EvidenceMKLRegressor:
        """Create and solve the problem, and store the result."""
        if is_own(self.weights) and training.exact:
            assert isinstance(training, GramTraining)
            return self._learn_own(training)
        training, problem, shift = self._problem(training)
        if training.explained().any():
            raise NothingToLearnError(EXPLAINED)
        if not is_shared(self.weights):
            return self._learn_groups(training, shift)
        solution = self._solve(training, problem)
        theta, A = solution.theta, solution.A
        bias, effects = self._effects(solution.bias, shift)
        predictor = training.predictor(theta, A, bias, whole=self.uncertainty)
        predictor = predictor.with_effects(effects)
        self._keep(training, predictor, theta, A, problem.contributions(theta, A))
        self.solution_, self.evidence_ = solution, solution.about
        found = problem.at(theta)
        assert found is not None  # or the solution would have no evidence
        self._later = None
        self.weight_errors_ = found.errors()
        self._effects_std = problem.effects_std(found, self._units())
        self._spread = found.spread() if self.uncertainty else None
        self.noise_, self.n_iter_ = self.evidence_.noise, solution.n_iter
        return self

    def _learn_own(self, training: GramTraining) -> EvidenceMKLRegressor:
        """Learn the weights of all targets together, here or in chunks on workers."""
        chunks, rest = training.target, self._rest(len(training.names))
        apart = isinstance(chunks, ColumnChunks)
        # targets are centred where they are read, a block at a time
        values = np.zeros((len(chunks), 0)) if apart else chunks
        training = replace(training, Y=values, cost=training.weight)
        own = OwnEvidence(training.evidence(), self.memory_limit)
        if apart:
            problem = replace(own.all, bank=own.bank.travelling())
            fit = ChunkFit(
                OwnEvidence(problem), OwnWeights(rest=rest), rest, self.max_iter,
                training.beside, centred=False,
            )  # fmt: skip
            run = ChunkRun(chunks, fit, training.clock, self.callback, self.verbose)
            solution, shares = run.solve(self.memory_limit)
        else:
            if training.explained().any():
                raise NothingToLearnError(EXPLAINED)
            solution = self._solve(training, own, OwnWeights(rest=rest))
            shares = own.contributions(solution.theta, solution.A)
        self.solution_, self.evidence_ = solution, solution.about
        self.noise_, self.n_iter_ = self.evidence_.noise, solution.n_iter
        self._keep_apart(training, solution, shares, 0.0)
        if not apart:
            groups = target_groups(self.weights, own.n_targets)
            self._later = LaterErrors(groups, own.one, self._units())
        return self

    def _learn_groups(self, training: Training, shift: Any) -> EvidenceMKLRegressor:
        """Learn the weights of each group of targets; of each target, from features."""
        T, own = training.n_targets, is_own(self.weights)
        groups = target_groups(self.weights, T)
        rest = self._rest(len(training.names))
        solver = AverageInformation(rest=rest) if own else None
        solutions, shares, history = [], [], History()
        problems = [training.evidence(group) for group in groups]
        for problem in problems:
            found = self._solve(training, problem, solver)
            solutions.append(found)
            shares.append(problem.contributions(found.theta, found.A))
            record(history, found, sum(solution.time for solution in solutions))
        parts = zip(groups, solutions, shares, strict=True)
        made = Assembled.of(parts, T, len(training.names))
        each = [solution.about for solution in solutions]
        self.noise_ = np.empty(T)
        for group, about in zip(groups, each, strict=True):
            self.noise_[group] = about.noise
        if own:
            self.evidence_ = Likelihoods.of(each)
            self.solution_ = made.solution(solutions, self.evidence_, history)
        else:
            self.evidence_, self.solution_ = each, solutions
        self.n_iter_ = max(solution.n_iter for solution in solutions)
        self._keep_apart(training, made, made.shares, shift)
        self._later = LaterErrors(groups, problems.__getitem__, self._units())
        return self

    def _rest(self, n_kernels: int) -> float:
        """Return the tolerance for targets that each have their own weights."""
        return min(_OF_EACH * n_kernels, _MOST) if self.tol is None else self.tol

    def _keep_apart(
        self,
        training: Training,
        found: Solution | Assembled,
        shares: FloatArray,
        shift: Any,
    ) -> None:
        """Store a model with a row of weights for each target."""
        bias, effects = self._effects(found.bias, shift)
        predictor = training.predictor(found.theta, found.A, bias)
        predictor = predictor.with_effects(effects)
        self._keep(training, predictor, found.theta, found.A, shares)
        self._spread = self._later = None
        for name in ("weight_errors_", "_effects_std"):  # of an earlier fit
            self.__dict__.pop(name, None)

    def _solve(self, training: Training, problem: Any, solver: Any = None) -> Solution:
        """Solve a problem within the limits of the estimator."""
        if solver is None:
            solver = AverageInformation(rest=_OF_ALL if self.tol is None else self.tol)
        return solve(
            problem,
            solver,
            tol=solver.rest,
            max_iter=self.max_iter,
            time_limit=training.clock.left(),
            callback=self.callback,
            verbose=self.verbose,
        )

    def _problem(self, training: Training) -> tuple[Training, EvidenceProblem, Any]:
        """Return a training with values around zero, its problem, and the shift."""
        # the constant is unpenalised: a shift only improves accuracy
        shift = training.middle()
        training = training.encoded(Shifted(shift))
        return training, training.evidence(), shift

    def _units(self) -> FloatArray | None:
        """Return the map from effects of the problem to effects in the units of X."""
        return None if self._fixed is None else self._fixed.coding.to_units

    @cached_property
    def weight_errors_(self) -> WeightErrors:
        """Standard errors of weights and shares; of each target, when first used."""
        return self._errors_apart()[0]

    @cached_property
    def _effects_std(self) -> FloatArray:
        return self._errors_apart()[1]

    def errors_of_targets(self, targets: Any) -> WeightErrors:
        """Return the standard errors of some targets with separate weights.

        Unlike ``weight_errors_``, which has those of all targets, this takes no time
        for the others.

        Parameters
        ----------
        targets : sequence of int
            Indices of columns of y.

        Returns
        -------
        WeightErrors
            With a row for each of these targets.

        Examples
        --------
        >>> import numpy as np
        >>> from mklearn import EvidenceMKLRegressor, kernels
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(60, 2))
        >>> Y = X[:, :1] + rng.normal(size=(60, 20))
        >>> family = kernels.per_feature("linear")
        >>> model = EvidenceMKLRegressor(family, weights="per-target").fit(X, Y)
        >>> model.errors_of_targets([3, 5]).shares.shape
        (2, 2)
        """
        check_is_fitted(self)
        if np.ndim(self.kernel_weights_) != 2:
            raise ValueError(
                "errors_of_targets needs targets with separate weights, but these "
                "share theirs; read weight_errors_."
            )
        chosen = target_indices(targets, len(self.kernel_weights_))
        if "weight_errors_" in self.__dict__:
            return self.weight_errors_.of_targets(chosen)
        return self._errors_apart(chosen)[0].of_targets(chosen)

    @one_blas_thread
    def _errors_apart(
        self, only: NDArray[np.intp] | None = None
    ) -> tuple[WeightErrors, FloatArray]:
        """Compute the standard errors of all or some targets with separate weights."""
        later = vars(self).get("_later")
        if later is None:
            # an AttributeError, as for any attribute that is not there
            raise AttributeError(
                "Standard errors of targets with separate weights are computed from "
                "the samples when they are first used. There are none if the model is "
                "not fitted, if it was saved before, or if y was a Dask array in "
                "chunks; read kernel_weights_std_ before saving the model, or fit the "
                "targets in question with y in memory."
            )
        errors, effects = later.at(self.kernel_weights_, only)
        if only is not None:
            return errors, effects
        self.__dict__["weight_errors_"] = errors
        self.__dict__["_effects_std"] = effects
        self._later = None  # the samples are no longer needed
        return errors, effects

    def __getstate__(self) -> Any:
        """Return the state without the samples of standard errors."""
        state = dict(super().__getstate__())
        if state.get("_later") is not None:
            state["_later"] = None
        return state

    @property
    def intercept_std_(self) -> FloatArray:
        """Standard errors of the intercepts, shape (n_outputs,)."""
        return np.asarray(self._effects_std[0])

    @property
    def fixed_effects_std_(self) -> FloatArray:
        """Standard errors of the coefficients of covariates, in their shape."""
        std = self._effects_std[1:].T
        return np.asarray(std[0] if len(std) == 1 else std)

    @property
    def kernel_weights_std_(self) -> FloatArray:
        """Standard errors of the kernel weights, in their shape."""
        return self.weight_errors_.weights

    @property
    def variance_explained_(self) -> FloatArray:
        """The share of the variance that each kernel explains, as the weights."""
        return self.weight_errors_.shares

    @property
    def variance_explained_std_(self) -> FloatArray:
        """Standard errors of these shares, in their shape."""
        return self.weight_errors_.shares_std

    @one_blas_thread
    def profile_intervals(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        of: str = "share",
        level: float = 0.95,
        kernels: Any = None,
        target: int | None = None,
    ) -> FloatArray:
        """Return profile-likelihood intervals for shares of variance, or for weights.

        An interval contains the values at which the restricted likelihood, maximised
        over all other weights, is not significantly smaller than at the estimate.
        Unlike intervals based on standard errors, it stays within the range of possible
        values and need not be symmetric. Each end takes several fits.

        Parameters
        ----------
        X, y, sample_weight
            The data that the model was fitted on.
        of : {"share", "weight"}
            Whether the intervals are for shares of the variance or for kernel weights.
        level : float
            Confidence level, between 0 and 1.
        kernels : sequence of int, optional
            Indices of the kernels; all by default.
        target : int, optional
            The column of y, if each target or group has its own weights. For groups
            the intervals are those of its whole group. The maximum of the likelihood is
            recomputed to an accuracy of 0.001, because a fit of many targets only ends
            near it.

        Returns
        -------
        array of shape (n_kernels, 2)
            The ends of the intervals; NaN for kernels that were not requested.

        Examples
        --------
        >>> import numpy as np
        >>> from mklearn import EvidenceMKLRegressor, kernels
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(60, 2))
        >>> y = np.sin(X[:, 0]) + 0.5 * rng.normal(size=60)
        >>> model = EvidenceMKLRegressor(kernels.per_feature("rbf")).fit(X, y)
        >>> low, high = model.profile_intervals(X, y, kernels=[0])[0]
        >>> bool(0 < low < model.variance_explained_[0] < high < 1)
        True
        """
        check_is_fitted(self)
        if of not in ("share", "weight"):
            raise ValueError(f"of must be 'share' or 'weight', got {of!r}.")
        if not 0 < level < 1:
            raise ValueError(f"level must be between 0 and 1, got {level!r}.")
        M = len(self.kernel_names_)
        asked = list(range(M) if kernels is None else kernels)
        if not all(isinstance(m, (int, np.integer)) and 0 <= m < M for m in asked):
            raise ValueError(f"kernels must be indices from 0 to {M - 1}, got {asked}.")
        problem, theta = self._profiled(X, y, sample_weight, target)
        profile = Profile(problem, theta, of == "share")
        drop = 0.5 * float(chi2.isf(1.0 - level, 1))
        ends = np.full((M, 2), np.nan)
        for m in asked:
            ends[m] = profile.interval(int(m), drop)
        return ends

    def _profiled(
        self, X: Any, y: Any, sample_weight: Any, target: int | None
    ) -> tuple[EvidenceProblem, FloatArray]:
        """Return the problem of a profile, and the weights at its maximum."""
        theta, again, rough = self.kernel_weights_, clone(self), False
        about: Any = self.evidence_
        if np.ndim(theta) == 2:
            if target is None:
                raise ValueError(
                    "Each target or group has its own kernel weights; say for which "
                    "column of y the intervals are, such as target=0."
                )
            t = int(target_indices([target], len(theta))[0])
            groups = target_groups(self.weights, len(theta))
            number = next(i for i, group in enumerate(groups) if t in group)
            noise, theta, group = self.noise_[groups[number]], theta[t], groups[number]
            if is_own(self.weights):
                known, rough = about.evidence[t], not about.exact[t]
            else:
                known = about[number].evidence
        elif target is not None:
            raise ValueError(
                "target= is for targets with separate weights, but those of this model "
                "share theirs; leave it out."
            )
        else:
            known, noise, group = about.evidence, self.noise_, None
        if is_dask(y):
            y = computed([y])[0]
        training, found = again._training(X, y, sample_weight), None
        T = len(self.noise_)
        if group is not None and training.exact and training.target.shape[1] == T:
            # without a copy of all targets
            training = replace(training, target=training.target[:, group])
            T, group = len(group), None
        training = again._problem(training)[0]
        if training.n_targets == T:
            problem = training.evidence(group)
            if len(problem.bank.names) == len(theta):
                found = problem.at(theta)
        # an estimated evidence has an error of a few tenths
        error = 1.0 if rough else 1e-6 * max(1.0, abs(known))
        if (
            found is None
            or abs(found.value - known) > error
            or np.abs(found.noise - noise).max() > 0.01 * noise.max()
        ):
            raise ValueError(
                "These are not the samples that the model was fitted on: there its "
                f"log evidence is {known:.6g}. Give the same X, y and sample_weight as "
                "to fit."
            )
        if target is not None and is_own(self.weights):  # the fit ends near the maximum
            start = Iterate(theta, problem.first().A)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                alone = AverageInformation(rest=_OF_ALL)
                theta = solve(problem, alone, tol=_OF_ALL, start=start).theta
        return problem, theta

    @one_blas_thread
    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Return the predictions and, if requested, their standard deviations.

        Parameters
        ----------
        X : as in ``fit``; with precomputed kernels (n_samples, n_training, n_kernels)
        return_std : bool
            Whether to return the standard deviations of new values (of weight one) as
            well. They include the uncertainty of the function and the noise, but not
            the uncertainty of the kernel weights. This needs a model with
            ``uncertainty=True`` and, for precomputed kernels, their diagonals:
            ``KernelBank.from_grams(B, row_diag=...)``.

        Returns
        -------
        array of shape (n_samples,), or (n_samples, n_outputs) if y was 2-D; with
        ``return_std`` two of these
        """
        values = super().predict(X)
        if not return_std:
            return values
        if self._spread is None:
            raise ValueError(
                "return_std=True needs a model that was fitted with uncertainty=True."
            )
        assert isinstance(self.predictor_, GramPredictor)
        rows = self.checked(X)
        bank, theta = self.predictor_.cross(rows), self.predictor_.theta[0]
        design = None
        if self._fixed is not None:
            design = self._fixed.coding.standardised(rows.covariates)
        found = self._spread.deviations(
            bank.combine(theta), bank.diag() @ theta, design
        )
        return values, found[:, 0] if self._flat else found
