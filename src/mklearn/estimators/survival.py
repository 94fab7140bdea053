"""Survival analysis on a learned kernel."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mklearn.data.blocks import Block, Blocks
from mklearn.data.checks import (
    NothingToLearnError,
    check_strata,
    check_times,
    with_strata,
)
from mklearn.data.reading import by_blocks, comes_in_blocks
from mklearn.data.threads import one_blas_thread
from mklearn.data.views import paired
from mklearn.estimators._base import BaseMKL, Samples
from mklearn.estimators._parameters import check_positive
from mklearn.estimators._predictor import check_finite, require
from mklearn.estimators._targets import Censored, Decides, Shifted
from mklearn.estimators._training import FeatureTraining, Training
from mklearn.estimators.event_times import (
    StepFunction,
    baseline_hazard,
    bounded_exp,
    concordance_index,
)
from mklearn.problems.ordered import TARGETS, numbered
from mklearn.problems.protocols import Formula
from mklearn.problems.survival import (
    TIES,
    CensoredEpsilon,
    CensoredSquared,
    CoxFormula,
)

FloatArray = NDArray[np.float64]

_FLAT = 1e-10  # slopes of the likelihood that are zero up to rounding


class SurvivalMixin(BaseMKL):
    """Fitting to possibly censored times; the scores are risks."""

    predict: Callable[[Any], FloatArray]
    _takes_labels = False

    def _target(self, y: Any, weight: FloatArray) -> FloatArray:
        """Return times, events and strata, shape (n, 3)."""
        target = check_times(y, len(weight))
        if not target[weight > 0, 1].any():
            raise NothingToLearnError(
                "All samples with an event have weight zero; at "
                "least one event with positive weight is "
                "needed."
            )
        return target

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the concordance index of the predicted risks.

        Parameters
        ----------
        X : as in ``fit``; with precomputed kernels (n_samples, n_training, n_kernels)
        y : times and events, as in ``fit``
            They are paired with the samples as in ``fit``.
        sample_weight : array of shape (n_samples,), optional
            A pair counts with the product of the weights of its samples.
        """
        weight = paired(X, sample_weight, "sample_weight")
        return concordance_index(paired(X, y), self.predict(X), weight)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.target_tags.positive_only = True
        return tags


class MKLCox(SurvivalMixin):
    """Cox's proportional hazards on a learned combination of kernels.

    The hazard of a sample is ``h_0(t) exp(f(x))`` with an unspecified baseline ``h_0``.
    Solves, to a certified duality gap, ::

        min  -C log L(f) + ½ sum_m |w_m|^2 / theta_m
        s.t. theta >= 0, |theta|_p <= 1,    f(x) = sum_m <w_m, phi_m(x)>

    over ``w`` and the kernel weights ``theta`` jointly, where L is Cox's partial
    likelihood. With one linear kernel and ``normalize=None`` this is Cox regression
    with a ridge penalty of ``1 / C``; with p = 1 and a linear kernel for each group of
    columns, it is the group lasso for Cox regression. The likelihood and its
    derivatives are computed from cumulative sums over the samples sorted by time,
    without forming pairs.

    Parameters
    ----------
    kernels : kernel, name, callable, list of these, "auto" or "precomputed"
        The kernels to combine, as in :class:`MKLClassifier`.
    fixed : str, int, or list of these, optional
        Covariates, as in :class:`MKLClassifier`: they add ``z'beta`` to ``f(x)``, with
        unpenalised coefficients beta.
    C : float
        Weight of the negative log-likelihood, which is a sum over events.
    ties : {"breslow", "efron"}
        How tied event times are handled. Efron's approximation is closer to the exact
        likelihood if there are many ties.
    norm : float, matrix or weight set
        The p of the norm on the weights, from 1 (sparse) to ``inf`` (plain sum), or a
        set as in :class:`MKLClassifier`.
    normalize : {None, "center", "trace", "multiplicative", "spherical"}
        How the kernels are normalised, using statistics of the training samples. None
        uses them exactly as given.
    solver : str or Solver
        "auto", a name such as "newton" or "alternating", or a solver object.
    psd, tol, max_iter, time_limit, memory_limit, callback, verbose
        As in :class:`MKLClassifier`.
    approximation, rank, landmarks, random_state
        As in :class:`MKLClassifier`; X must be in memory or a ``numpy.memmap``, because
        rows are read in the order of their times.

    Attributes
    ----------
    kernel_names_ : tuple of str
    kernels_ : tuple
        The kernels with all their parameters resolved to numbers (None for precomputed
        kernels).
    kernel_weights_ : array of shape (n_kernels,)
        The ``theta`` above, for the normalised kernels.
    kernel_contributions_ : array of shape (n_kernels,)
        Scale-free shares ``theta_m |w_m / theta_m|^2`` that sum to one.
    unique_times_ : array of shape (n_times,)
        Distinct times of the training samples, at which predicted functions have steps.
    baseline_cumulative_hazard_ : array of shape (n_strata, n_times)
        Breslow's estimate of the cumulative hazard at ``f(x) = 0``. With covariates
        this refers to numeric covariates at their means and categories at their first
        value.
    strata_ : array of shape (n_strata,)
        Distinct values of ``strata``; a single zero if there were no strata.
    fixed_effects_, fixed_names_, fixed_dropped_
        Effects of the covariates, as in :class:`MKLClassifier`: log hazard ratios.
    support_ : array
        Indices of the rows of X with a nonzero coefficient (without ``approximation``).
    dual_coef_ : array of shape (1, n_support)
        Without ``approximation``.
    duality_gap_ : float
        The relative gap that certifies the solution.
    n_iter_ : int
    solution_ : Solution
        With ``approximation``, the solution for the approximate kernels.
    predictor_ : Predictor
        The fitted prediction function, an immutable object: ``scores(X)`` returns the
        scores, ``parts(X)`` splits them by kernel.
    approximation_error_ : ApproximationError
        Estimated approximation error of each kernel; only with ``approximation``.

    References
    ----------
    Cox, D. R. (1972). Regression models and life-tables. *Journal of the Royal
    Statistical Society B* 34, 187-220.

    Efron, B. (1977). The efficiency of Cox's likelihood function for censored data.
    *Journal of the American Statistical Association* 72, 557-565.

    Examples
    --------
    >>> import numpy as np
    >>> from mklearn import MKLCox
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100, 3))
    >>> time = rng.exponential(np.exp(-X[:, 0]))
    >>> event = time < 2
    >>> y = np.column_stack([np.minimum(time, 2), event])
    >>> model = MKLCox(["linear", "rbf"]).fit(X, y)
    >>> bool(model.score(X, y) > 0.7)
    True
    >>> survival = model.predict_survival_function(X[:1])[0]
    >>> bool(0 < survival(1.0) < survival(0.1) < 1)
    True
    """

    def __init__(
        self,
        kernels: Any = "auto",
        *,
        fixed: Any = None,
        C: float = 1.0,
        ties: str = "breslow",
        norm: Any = 2,
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
        self.ties = ties
        self.norm = norm
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
    def fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, strata: Any = None
    ) -> MKLCox:
        """Learn the kernel weights and the log hazards.

        Parameters
        ----------
        X : array, sparse matrix, DataFrame, MultiView, or Gram matrices
        y : structured array, or array or DataFrame of two columns
            Times, and whether an event was observed (True or 1) or the time is
            censored. A structured array, as in scikit-survival, has one boolean field
            and one field of times; two columns are time and event, in this order. A
            single column holds the times of events, none of them censored.
        sample_weight : array of shape (n_samples,), optional
            A weight of 2 is equivalent to giving the sample twice, a weight of 0 to
            leaving it out. With ``ties="efron"`` the weights must be whole numbers.
        strata : array of shape (n_samples,), optional
            Stratum of each sample. Each stratum has its own baseline hazard and its own
            risk sets. A Series with the labels of the samples is paired with them, as y
            is.
        """
        self._check_parameters()
        return self._learn(
            self._training(X, self._stratified(X, y, strata), sample_weight)
        )

    def _learn(self, training: Training) -> MKLCox:
        """Create and solve the problem, and store the result."""
        training, _ = self._encoded(training)
        self._check_beside(training)
        problem = training.problem(self._formula(), self.C, self._weights())
        self._store(training, [problem], [self._solve(training, problem)])
        return self

    def _check_beside(self, training: Any) -> None:
        """Warn if the effects of the covariates have no finite optimum."""
        if training.beside is None:
            return
        Y, cost = training.targets()
        Y = Y if training.exact else Y[:, TARGETS]
        loss = replace(self._formula().of(Y, cost, 1.0), design=training.beside)
        if loss.unbounded():
            warnings.warn(
                "The covariates alone order some of the events perfectly, so their "
                "optimal effects are infinite; those in fixed_effects_ are only as "
                "large as tol requires. Merge rare categories, or leave these "
                "covariates out.",
                UserWarning,
                stacklevel=3,
            )

    def _stratified(self, X: Any, y: Any, strata: Any) -> Any:
        """Return y with indices of strata, in the order of X, and store the strata."""
        self._strata = None
        if strata is None:
            return y
        values = check_strata(paired(X, strata, "strata"))
        self._strata, number = np.unique(values, return_inverse=True)
        return with_strata(paired(X, y), number)

    def _encoded(self, training: Training) -> tuple[Training, Any]:
        return training.encoded(Shifted(np.zeros(1))), 0.0

    def _formula(self) -> CoxFormula:
        return CoxFormula(self.ties)

    def _distinct(self, X: Any, y: Any, sample_weight: Any) -> Samples:
        """Return the distinct samples; for features, in the order of their times."""
        samples = super()._distinct(X, y, sample_weight)
        rows, weight = samples.rows, samples.weight
        target = samples.target[rows]
        loss = self._formula().of(target, weight, 1.0)
        slope = loss.slope(np.zeros(loss.shape))[:, 0] / weight
        if np.abs(slope).max() <= _FLAT:
            raise NothingToLearnError(
                "No event has other samples"
                + (" of its stratum" if np.ptp(target[:, 2]) > 0 else "")
                + " at risk that outlive it, so there is no order to learn from; "
                "events before the last time, or larger strata, are needed."
            )
        if self.approximation is None:
            return samples
        order = loss.sets.order
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        own = numbered(target[order], slope[order])
        made = np.zeros((len(samples.target), own.shape[1]))
        made[rows[order]] = own
        group = np.where(samples.group >= 0, place[samples.group], -1)
        return samples._replace(
            target=made, rows=rows[order], group=group, weight=weight[order]
        )

    def _features(self, X: Any, y: Any, sample_weight: Any) -> FeatureTraining:
        if comes_in_blocks(X):
            raise ValueError(
                f"{type(self).__name__} reads rows in the order of their times, which "
                "is not possible in blocks: pass X as an array or numpy.memmap, or use "
                "MKLSurvivalSVM."
            )
        return super()._features(X, y, sample_weight)

    def _beyond_sums(self) -> dict[str, Any]:
        return {"ties": self.ties}

    def _store(
        self, training: Training, problems: Any, solutions: Any, shift: Any = 0.0
    ) -> None:
        """Store the solution and the corresponding baseline hazard."""
        super()._store(training, problems, solutions, shift)
        (found,) = solutions
        Y, cost = training.targets()
        Y = Y if training.exact else Y[:, TARGETS]
        scores = training.scores(found.theta, found.A, found.bias)[:, 0]
        self.unique_times_ = np.unique(Y[:, 0])
        numbers, known = np.unique(Y[:, 2]), self.__dict__.pop("_strata", None)
        self.strata_ = numbers if known is None else known[numbers.astype(np.intp)]
        rows = []
        for number in numbers:
            here = Y[:, 2] == number
            times, hazard = baseline_hazard(
                Y[here, 0], Y[here, 1], cost[here], scores[here]
            )
            place = np.searchsorted(times, self.unique_times_, side="right")
            rows.append(np.append(0.0, hazard)[place])
        self.baseline_cumulative_hazard_ = np.stack(rows)

    # --- predict ----------------------------------------------------------------------

    @by_blocks
    def predict(self, X: Any) -> FloatArray:
        """Return the predicted risk, the log hazard ``f(x)``, of shape (n_samples,).

        Parameters
        ----------
        X : as in ``fit``; with precomputed kernels (n_samples, n_training, n_kernels)
        """
        return self._scores(X)[:, 0]

    def predict_cumulative_hazard_function(
        self, X: Any, strata: Any = None, return_array: bool = False
    ) -> NDArray[Any]:
        """Return the cumulative hazard of each sample as a function of time.

        Parameters
        ----------
        X : as in ``fit``; with precomputed kernels (n_samples, n_training, n_kernels)
        strata : array of shape (n_samples,), optional
            Stratum of each sample, whose baseline is used; required if the model has
            strata.
        return_array : bool
            Whether to return an array of values at ``unique_times_``, of shape
            (n_samples, n_times), instead of functions.

        Returns
        -------
        array of shape (n_samples,) of :class:`StepFunction`, or of values
        """
        hazards = self._hazards(X, strata)
        return hazards if return_array else self._functions(hazards, 0.0)

    def predict_survival_function(
        self, X: Any, strata: Any = None, return_array: bool = False
    ) -> NDArray[Any]:
        """Return the survival function of each sample.

        Parameters
        ----------
        X, strata, return_array
            As in :meth:`predict_cumulative_hazard_function`.

        Returns
        -------
        array of shape (n_samples,) of :class:`StepFunction`, or of values
        """
        chances = np.exp(-self._hazards(X, strata))
        return chances if return_array else self._functions(chances, 1.0)

    def _hazards(self, X: Any, strata: Any) -> FloatArray:
        """Return cumulative hazards at the steps, shape (n_samples, n_times)."""
        risk = self.predict(X)
        if strata is None:
            if len(self.strata_) > 1:
                raise ValueError(
                    f"The model has {len(self.strata_)} strata, each with its own "
                    "baseline; pass strata= with one value for each sample."
                )
            place = np.zeros(len(risk), dtype=np.intp)
        else:
            values = check_strata(paired(X, strata, "strata"))
            place = np.searchsorted(self.strata_, values)
            place = np.minimum(place, len(self.strata_) - 1)
            known = self.strata_[place] == values
            if values.shape != risk.shape or not np.all(known):
                raise ValueError(
                    f"strata must be {len(risk)} values, each one of "
                    f"{self.strata_[:5].tolist()}."
                )
        with np.errstate(divide="ignore"):  # of zero, before the first event
            logs = np.log(self.baseline_cumulative_hazard_)
        return bounded_exp(risk[:, None] + logs[place])

    def _check_own_state(self) -> None:
        times, hazard = self.unique_times_, self.baseline_cumulative_hazard_
        strata = self.strata_
        arrays = all(isinstance(one, np.ndarray) for one in (times, hazard, strata))
        require(arrays and times.ndim == strata.ndim == 1, "baseline")
        require(hazard.shape == (len(strata), len(times)) and hazard.size > 0, "steps")
        check_finite("unique_times_", times)
        check_finite("baseline_cumulative_hazard_", hazard)
        rises = np.diff(hazard, axis=1, prepend=0.0) >= 0
        require(bool((np.diff(times) > 0).all() and rises.all()), "steps in order")
        require(len(set(strata.tolist())) == len(strata), "strata")

    def _functions(self, values: FloatArray, start: float) -> NDArray[Any]:
        made = np.empty(len(values), dtype=object)
        for i, row in enumerate(values):
            made[i] = StepFunction(self.unique_times_, row, start=start)
        return made

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_positive("C", self.C)
        if self.ties not in TIES:
            raise ValueError(f"ties must be one of {TIES}, got {self.ties!r}.")


class MKLSurvivalSVM(Decides, SurvivalMixin):
    """Support vector regression of the log time, with censored samples.

    Solves, to a certified duality gap, ::

        min  C sum_i V(f(x_i), log t_i) + ½ sum_m |w_m|^2 / theta_m
        s.t. theta >= 0, |theta|_p <= 1,    f(x) = sum_m <w_m, phi_m(x)> + b

    where censored samples incur a loss only if the predicted time is too early, because
    their events come after ``t_i``. With one kernel and the squared loss this is
    ``FastKernelSurvivalSVM(alpha=C, rank_ratio=0)`` of scikit-survival.

    Parameters
    ----------
    kernels : kernel, name, callable, list of these, "auto" or "precomputed"
        The kernels to combine, as in :class:`MKLClassifier`.
    fixed : str, int, or list of these, optional
        Covariates, as in :class:`MKLClassifier`.
    C : float
        Cost of errors.
    loss : {"squared", "epsilon_insensitive"}
        ``V(f, y)``: ``½ (y - f)^2`` or ``max(0, |y - f| - epsilon)``, with ``max(0, y -
        f)`` in the place of ``|y - f|`` for censored samples.
    epsilon : float
        Errors up to this size cost nothing (for ``loss="epsilon_insensitive"``); 0.1 is
        about a tenth of the time.
    norm, normalize, solver
        As in :class:`MKLRegressor`.
    psd, tol, max_iter, time_limit, memory_limit, callback, verbose
        As in :class:`MKLClassifier`.
    approximation, rank, landmarks, random_state
        As in :class:`MKLClassifier`.

    Attributes
    ----------
    kernel_names_, kernels_, kernel_weights_, kernel_contributions_
        As in :class:`MKLRegressor`.
    support_, dual_coef_, intercept_, duality_gap_, n_iter_, approximation_error_
        As in :class:`MKLRegressor`; the intercept refers to the log time.
    fixed_effects_, fixed_names_, fixed_dropped_
        Effects of the covariates on the log time, as in :class:`MKLRegressor`.
    solution_ : Solution
        Solution for the log times minus their median, which differs only in the bias.
    predictor_ : Predictor
        The fitted prediction function, an immutable object.

    References
    ----------
    Shivaswamy, P. K., Chu, W. and Jansche, M. (2007). A support vector approach to
    censored targets. *ICDM*, 655-660.

    Pölsterl, S., Navab, N. and Katouzian, A. (2016). An efficient training algorithm
    for kernel survival support vector machines. *arXiv:1611.07054*.

    Examples
    --------
    >>> import numpy as np
    >>> from mklearn import MKLSurvivalSVM
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100, 3))
    >>> time = rng.exponential(np.exp(-X[:, 0]))
    >>> y = np.column_stack([np.minimum(time, 2), time < 2])
    >>> model = MKLSurvivalSVM(["linear", "rbf"]).fit(X, y)
    >>> bool(model.score(X, y) > 0.7)
    True
    >>> model.predict_time(X[:2]).shape
    (2,)
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
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> MKLSurvivalSVM:
        """Learn the kernel weights and the regression of the log time.

        Parameters
        ----------
        X : array, sparse matrix, DataFrame, MultiView, or Gram matrices
        y : structured array, or array or DataFrame of two columns
            Times, and whether they are events or censored, as in :meth:`MKLCox.fit`.
            The times must be positive, because their logarithms are used.
        sample_weight : array of shape (n_samples,), optional
            Multiplied by C. A weight of 2 is equivalent to giving the sample twice, a
            weight of 0 to leaving it out.
        """
        self._check_parameters()
        training = self._training(X, y, sample_weight)
        middle = float(np.ravel(training.middle())[0])
        shift = float(np.log(middle)) if middle > 0 else 0.0
        training = training.encoded(Censored(shift))
        self._check_beside(training)
        problem = training.problem(self._formula(), self.C, self._weights())
        self._store(training, [problem], [self._solve(training, problem)], shift)
        return self

    def _target(self, y: Any, weight: FloatArray) -> FloatArray:
        target = super()._target(y, weight)
        check_logs(target)
        time, event = target[weight > 0, 0], target[weight > 0, 1] > 0
        if np.ptp(time[event]) == 0 and time.max() == time[event][0]:
            raise NothingToLearnError(
                "All events are at the last time, which is therefore a perfect "
                "prediction for every sample; there is nothing to learn."
            )
        return target[:, :2]

    def _block_targets(self, blocks: Blocks) -> Blocks:
        """Return blocks with times and events; raise if there are no events."""
        made = blocks.then(_timed)
        if not made.reduce(_count_events) > 0:
            raise NothingToLearnError(
                "All times are censored or have weight zero; at least one event is "
                "needed to "
                "learn from."
            )
        return made

    def _formula(self) -> Formula:
        if self.loss == "squared":
            return CensoredSquared()
        return CensoredEpsilon(float(self.epsilon))

    def _beyond_sums(self) -> dict[str, Any]:
        return {"loss": self.loss}

    @by_blocks
    def predict(self, X: Any) -> FloatArray:
        """Return the predicted risk: minus the predicted log time, shape (n_samples,).

        Parameters
        ----------
        X : as in ``fit``; with precomputed kernels (n_samples, n_training, n_kernels)
        """
        return -self._scores(X)[:, 0]

    @by_blocks
    def predict_time(self, X: Any) -> FloatArray:
        """Return the predicted time to the event, shape (n_samples,).

        Parameters
        ----------
        X : as in ``fit``; with precomputed kernels (n_samples, n_training, n_kernels)
        """
        return bounded_exp(self._scores(X)[:, 0])

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_positive("C", self.C)
        if self.loss not in ("squared", "epsilon_insensitive"):
            raise ValueError(
                f"loss must be 'squared' or 'epsilon_insensitive', got {self.loss!r}."
            )
        epsilon = self.epsilon
        if not (isinstance(epsilon, Real) and np.isfinite(epsilon) and epsilon >= 0):
            raise ValueError(f"epsilon must be a nonnegative number, got {epsilon!r}.")


def check_logs(target: FloatArray) -> None:
    """Raise ValueError unless all times have a logarithm."""
    if not (target[:, 0] > 0).all():
        count = int((target[:, 0] <= 0).sum())
        raise ValueError(
            f"{count} times are zero and have no logarithm; drop these samples, or set "
            "their times to half of the smallest time unit."
        )


def _timed(block: Block) -> Block:
    target = check_times(block.y, block.n_rows, needs_event=False)
    check_logs(target)
    return Block(block.X, target[:, :2], block.weight)


def _count_events(block: Block) -> float:
    return float(block.weight @ block.y[:, 1])
