"""Regression on the kernels under which the values are most likely."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from mklearn.data.checks import NothingToLearnError
from mklearn.data.threads import one_blas_thread
from mklearn.estimators._base import EXPLAINED, StatisticsMixin, check_limits
from mklearn.estimators._own import (
    Assembled,
    check_weights,
    is_own,
    is_shared,
    target_groups,
)
from mklearn.estimators._predictor import GramPredictor
from mklearn.estimators._targets import NumbersMixin, Shifted
from mklearn.estimators._training import GramTraining, Training, check_approximation
from mklearn.problems.evidence import EvidenceProblem
from mklearn.problems.targets import OwnEvidence
from mklearn.solvers import Solution, solve
from mklearn.solvers.evidence import AverageInformation
from mklearn.solvers.profiles import Profile
from mklearn.solvers.targets import OwnWeights

FloatArray = NDArray[np.float64]

_OF_ALL = 1e-3  # log evidence that shared weights may yet gain,
_OF_EACH, _MOST = 1 / 8, 2.5  # and those of a target, for each kernel and in all


class EvidenceMKLRegressor(NumbersMixin, StatisticsMixin):
    """Regression on the combination of kernels under which the values are most likely.

    Values are taken for a constant, a sum of Gaussian processes with the covariances
    ``s theta_m k_m``, and noise with the variance ``s``. The weights ``theta >= 0``
    maximise the restricted likelihood (REML), in which the constant and ``s`` have been
    accounted for; the prediction is then that of kernel ridge regression with a free
    intercept, on ``sum_m theta_m k_m`` with the penalty one.

    Nothing has to be chosen by cross-validation: how strongly to regularise is in the
    size of the weights. Many of them are exactly zero. The likelihood takes account of
    how flexible a kernel is, so that narrow kernels are not preferred for fitting the
    training samples well, as they are by :class:`MKLRegressor`. In return it is not
    concave: the weights are a local maximum, and there is no bound on others.

    Each iteration takes the time of a few factorisations of an (n, n) matrix, and about
    four such matrices are in memory beside the kernels. With an ``approximation`` it is
    a (D, D) matrix, for D features in all, whatever the number of samples: these are
    read once.

    Parameters
    ----------
    kernels : kernel, name, callable, list of these, "auto" or "precomputed"
        What to combine, as in :class:`MKLClassifier`.
    fixed : str, int, or list of these, optional
        Covariates, as in :class:`MKLClassifier`: the constant becomes a linear function
        of them, which the restricted likelihood accounts for.
    weights : {"shared", "per-target"} or array of shape (n_outputs,)
        Whether all outputs share one set of kernel weights, each has its own, or those
        of a group share theirs: the array names the group of each output. With
        "per-target" thousands of outputs are worked on together.
    normalize : {None, "center", "trace", "multiplicative", "spherical"}
        How kernels are made comparable. The scale of a kernel changes the unit of its
        weight and nothing else.
    psd : {"check", "clip", "ignore"}
        As in :class:`MKLClassifier`.
    uncertainty : bool
        Keep what ``predict(X, return_std=True)`` needs: an (n, n) matrix. Not with an
        ``approximation``.
    tol : float, optional
        Stop when the log likelihood can be expected to grow by less. By default 0.001;
        with ``weights="per-target"``, in the mean over targets, 1/8 for each kernel and
        2.5 at most: what a weight that is off by half its standard error costs. Below
        0.05 each target ends with a factor of its own matrix, as if it were fitted
        alone, and this takes nearly as long.
    max_iter : int
    time_limit : float, optional
        Seconds.
    memory_limit : int, optional
        As in :class:`MKLClassifier`, for the kernels.
    callback : callable, optional
        Called after each iteration with the history; return True to stop.
    verbose : int
        Above zero, a line for each iteration, on standard error.
    approximation, rank, landmarks, random_state
        Explicit features of low rank in place of the kernels, as in
        :class:`MKLRegressor`: the model is that of the features, found from sums over
        the samples, which may come in blocks.

    Attributes
    ----------
    solution_ : Solution
        Its ``upper`` is minus the log evidence.
    predictor_ : Predictor
        What remains to predict with, a frozen value: ``scores(X)``, and ``parts(X)`` of
        them by kernel.
    evidence_ : Likelihood
        The likelihood, how it was found, and what small changes still promise.
    noise_ : array of shape (n_outputs,)
        Variance of the noise.
    kernel_weights_std_ : array of shape (n_kernels,)
        Standard errors of the kernel weights, from the average information; infinite
        where kernels say the same. That of a weight of zero is what it would have
        beside the positive ones.
    variance_explained_, variance_explained_std_ : arrays of shape (n_kernels,)
        The part of the variance of y, covariates apart, that each kernel explains, and
        its standard error by the delta method.
    weight_errors_ : WeightErrors
        All of these, with the share that the kernels explain together.
    kernel_names_ : tuple of str
    kernels_ : tuple
        The kernels with all parameters as numbers (None for precomputed ones).
    kernel_weights_ : array of shape (n_kernels,), or (n_outputs, n_kernels)
        The ``theta`` above, on the normalised kernels; a row for each output unless
        ``weights="shared"``. With
        ``normalize="multiplicative"``, the variance that a kernel explains in units of
        that of the noise. All are zero if the values look like noise.
    kernel_contributions_ : array of the shape of the weights
        Scale-free shares ``theta_m |w_m / theta_m|^2`` that sum to one.
    support_ : array
        Rows of X with a coefficient that is not zero.
    dual_coef_ : array of shape (n_outputs, n_support)
    intercept_ : array of shape (n_outputs,)
    fixed_effects_ : array of shape (n_covariates,), or (n_outputs, n_covariates)
        Coefficients of the covariates, in the units of X.
    fixed_effects_std_ : array of the same shape
        Their standard errors, kernel weights taken for known.
    intercept_std_ : array of shape (n_outputs,)
        That of the intercept, where all covariates are zero.
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

    @one_blas_thread
    def fit(
        self, X: Any, y: Any = None, sample_weight: Any = None
    ) -> EvidenceMKLRegressor:
        """Learn kernel weights and regression function.

        Parameters
        ----------
        X : array, sparse matrix, DataFrame, MultiView; Grams if precomputed
        y : array of shape (n_samples,) or (n_samples, n_outputs)
            Outputs share the kernel weights unless ``weights`` says otherwise, and each
            has a noise of its own.
        sample_weight : array of shape (n_samples,), optional
            How exact the values are: the noise of a sample has the variance ``noise_``
            over its weight. A factor for all of them changes the units of ``noise_``
            and ``kernel_weights_`` and no prediction. Equal rows of equal value count
            as one of their common weight; in Grams, views and blocks, whose rows are
            not compared, they are separate measurements.
        """
        self._check_parameters()
        return self._learn(self._training(X, y, sample_weight))

    def _check_parameters(self) -> None:
        check_limits(self, _OF_ALL if self.tol is None else self.tol)
        check_weights(self.weights)
        if not is_shared(self.weights):
            for name in ("uncertainty", "approximation"):
                if getattr(self, name) not in (None, False):
                    raise ValueError(
                        f"{name}= needs one set of weights for all targets; give "
                        "weights='shared', or fit a target alone."
                    )
        if self.approximation is None:
            return
        check_approximation(self.approximation, self.rank, self.landmarks)
        if self.uncertainty:
            raise ValueError(
                "uncertainty= needs all samples, and approximation= keeps sums over "
                "them; give one of the two."
            )

    def _learn(self, training: Training) -> EvidenceMKLRegressor:
        """Pose the problem, solve it, and keep what was found."""
        training, problem, shift = self._problem(training)
        if training.explained().any():
            raise NothingToLearnError(EXPLAINED)
        if not is_shared(self.weights):
            assert isinstance(training, GramTraining)
            return self._learn_apart(training, problem, shift)
        solution = self._solve(training, problem)
        theta, A = solution.theta, solution.A
        bias, effects = self._effects(solution.bias, shift)
        predictor = training.predictor(theta, A, bias, whole=self.uncertainty)
        predictor = predictor.with_effects(effects)
        self._keep(training, predictor, theta, A, problem.contributions(theta, A))
        self.solution_, self.evidence_ = solution, solution.about
        found = problem.at(theta)
        assert found is not None  # or the solution would have no evidence
        self.weight_errors_ = found.errors()
        self._effects_std = problem.effects_std(found, self._units())
        self._spread = found.spread() if self.uncertainty else None
        self.noise_, self.n_iter_ = self.evidence_.noise, solution.n_iter
        return self

    def _learn_apart(
        self, training: GramTraining, problem: EvidenceProblem, shift: Any
    ) -> EvidenceMKLRegressor:
        """Find weights for each target, all of them together, or for each group."""
        if is_own(self.weights):
            own = OwnEvidence(problem)
            rest = self.tol
            if rest is None:
                rest = min(_OF_EACH * problem.bank.shape[2], _MOST)
            solution = self._solve(training, own, OwnWeights(rest=rest))
            theta, A, bias = solution.theta, solution.A, solution.bias
            shares = own.contributions(theta, A)
            self.solution_, self.evidence_ = solution, solution.about
            self.noise_, self.n_iter_ = self.evidence_.noise, solution.n_iter
        else:
            groups = target_groups(self.weights, problem.Y.shape[1])
            parts = [replace(problem, Y=problem.Y[:, group]) for group in groups]
            solutions = [self._solve(training, part) for part in parts]
            found = Assembled.of(
                groups,
                solutions,
                lambda g: parts[g].contributions(solutions[g].theta, solutions[g].A),
                len(training.names),
            )
            theta, A, bias, shares = found.theta, found.A, found.bias, found.shares
            self.solution_ = solutions
            self.evidence_ = [solution.about for solution in solutions]
            self.noise_ = np.empty(len(theta))
            for group, about in zip(groups, self.evidence_, strict=True):
                self.noise_[group] = about.noise
            self.n_iter_ = max(solution.n_iter for solution in solutions)
        bias, effects = self._effects(bias, shift)
        predictor = training.predictor(theta, A, bias).with_effects(effects)
        self._keep(training, predictor, theta, A, shares)
        self._spread = None
        for name in ("weight_errors_", "_effects_std"):  # of an earlier fit
            self.__dict__.pop(name, None)
        return self

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
        # the constant is free: a shift changes rounding only, and makes constants zero
        shift = training.middle()
        training = training.encoded(Shifted(shift))
        return training, training.evidence(), shift

    def _units(self) -> FloatArray | None:
        """Return what makes effects in the units of X of those of the problem."""
        return None if self._fixed is None else self._fixed.coding.to_units

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
        """Standard errors of the kernel weights, shape (n_kernels,)."""
        return self.weight_errors_.weights

    @property
    def variance_explained_(self) -> FloatArray:
        """The share of the variance that each kernel explains, shape (n_kernels,)."""
        return self.weight_errors_.shares

    @property
    def variance_explained_std_(self) -> FloatArray:
        """Standard errors of these shares, shape (n_kernels,)."""
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
    ) -> FloatArray:
        """Return intervals of shares of variance, or of weights, by likelihood.

        An interval holds the values at which the restricted likelihood, with all other
        weights the best ones beside it, is not significantly smaller than at the
        weights that were found. Unlike one made of standard errors it stays within what
        is possible and need not be symmetric. Each end takes several fits.

        Parameters
        ----------
        X, y, sample_weight
            What the model was fitted on.
        of : {"share", "weight"}
            Of the variance, or of the kernel weights.
        level : float
            Between 0 and 1.
        kernels : sequence of int, optional
            Which kernels; all by default.

        Returns
        -------
        array of shape (n_kernels, 2)
            Rows of NaN for kernels that were not asked for.

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
        M, theta = len(self.kernel_names_), self.kernel_weights_
        asked = list(range(M) if kernels is None else kernels)
        if not all(isinstance(m, (int, np.integer)) and 0 <= m < M for m in asked):
            raise ValueError(f"kernels must be numbers from 0 to {M - 1}, got {asked}.")
        again = clone(self)
        problem = again._problem(again._training(X, y, sample_weight))[1]
        found = None
        if problem.bank.shape[2] == M:
            found = problem.at(theta)
        known = self.evidence_.evidence
        if found is None or abs(found.value - known) > 1e-6 * max(1.0, abs(known)):
            raise ValueError(
                "These are not the samples that the model was fitted on: its log "
                f"evidence is {known:.6g} there. Give the same X, y and sample_weight."
            )
        profile = Profile(problem, theta, of == "share")
        drop = 0.5 * float(chi2.isf(1.0 - level, 1))
        ends = np.full((M, 2), np.nan)
        for m in asked:
            ends[m] = profile.interval(int(m), drop)
        return ends

    @one_blas_thread
    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Return the values, and how far new ones may lie from them.

        Parameters
        ----------
        X : as in ``fit``; with precomputed kernels (n_samples, n_training, n_kernels)
        return_std : bool
            Return standard deviations of new values (of weight one) as well, with what
            is not known of the function and with the noise; but not with what is not
            known of the weights. Needs ``uncertainty=True`` in ``fit``, and for
            precomputed kernels the diagonals,
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
