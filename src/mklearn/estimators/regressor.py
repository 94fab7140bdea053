"""Regression on a learned kernel."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np

from mklearn.data.threads import one_blas_thread
from mklearn.estimators._base import (
    BaseMKL,
    StatisticsMixin,
    check_loss,
    check_positive,
)
from mklearn.estimators._targets import NumbersMixin, Shifted
from mklearn.estimators._training import Training
from mklearn.problems.losses import Pointwise, by_name


class MKLRegressor(NumbersMixin, StatisticsMixin, BaseMKL):
    """Regression on a learned combination of kernels (ℓp-norm MKL).

    Solves, to a certified duality gap, ::

        min  C sum_i V(f(x_i), y_i) + ½ sum_m |w_m|^2 / theta_m
        s.t. theta >= 0, |theta|_p <= 1,    f(x) = sum_m <w_m, phi_m(x)> + b

    over ``w``, ``b`` and the kernel weights ``theta`` together (Kloft et al. 2011).
    With one kernel this is kernel ridge regression with a free intercept and the
    penalty ``1 / C``, or support vector regression.

    Parameters
    ----------
    kernels : kernel, name, callable, list of these, "auto" or "precomputed"
        What to combine, as in :class:`MKLClassifier`.
    C : float
        Cost of errors.
    loss : {"squared", "epsilon_insensitive"}
        ``V(f, y)``: ``½ (y - f)^2`` or ``max(0, |y - f| - epsilon)``.
    epsilon : float
        Errors up to this size cost nothing (for ``loss="epsilon_insensitive"``).
    norm : float, matrix or weight set
        The p of the norm on the weights, from 1 (sparse) to ``inf`` (plain sum), or a
        set as in :class:`MKLClassifier`.
    normalize : {None, "center", "trace", "multiplicative", "spherical"}
        How kernels are made comparable, with the statistics of the training samples.
        None takes them exactly as given.
    solver : str or Solver
        "auto", a name such as "newton" or "alternating", or an instance.
    psd, tol, max_iter, time_limit, memory_limit, callback, verbose
        As in :class:`MKLClassifier`.
    approximation, rank, landmarks, random_state
        As in :class:`MKLClassifier`.

    Attributes
    ----------
    kernel_names_ : tuple of str
    kernels_ : tuple
        The kernels with all parameters as numbers (None for precomputed ones).
    kernel_weights_ : array of shape (n_kernels,)
        The ``theta`` above, on the normalised kernels, shared by all outputs.
    kernel_contributions_ : array of shape (n_kernels,)
        Scale-free shares ``theta_m |w_m / theta_m|^2`` that sum to one.
    support_ : array
        Rows of X with a coefficient that is not zero (without ``approximation``).
    dual_coef_ : array of shape (n_outputs, n_support)
        Without ``approximation``.
    intercept_ : array of shape (n_outputs,)
    duality_gap_ : float
        The relative gap that certifies the solution.
    n_iter_ : int
    solution_ : Solution
        Of the problem with ``y - median(y)``, which differs in the bias only; with
        ``approximation``, of that with the approximate kernels.
    predictor_ : Predictor
        What remains to predict with, a frozen value: ``scores(X)``, and ``parts(X)`` of
        them by kernel.
    approximation_error_ : ApproximationError
        Of the features, with ``approximation`` only: estimates for each kernel.

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
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> MKLRegressor:
        """Learn kernel weights and regression function.

        Parameters
        ----------
        X : array, sparse matrix, DataFrame, MultiView; Grams if precomputed
        y : array of shape (n_samples,) or (n_samples, n_outputs)
            Outputs share the kernel weights; bring them to comparable scales.
        sample_weight : array of shape (n_samples,), optional
            Factors of C; weight 2 equals the sample given twice, weight 0 its absence.
        """
        self._check_parameters()
        return self._learn(self._training(X, y, sample_weight))

    def _learn(self, training: Training) -> MKLRegressor:
        """Pose the problem, solve it, and keep what was found."""
        training, shift = self._encoded(training)
        problem = training.problem(self._formula(), self.C, self._weights())
        self._store(training, [problem], [self._solve(training, problem)], shift)
        return self

    def _encoded(self, training: Training) -> tuple[Training, Any]:
        """Return the training with values around zero, and what was subtracted."""
        shift = training.middle()
        return training.encoded(Shifted(shift)), shift

    def _formula(self) -> Pointwise:
        return by_name(self.loss, epsilon=float(self.epsilon))

    def _beyond_sums(self) -> dict[str, Any]:
        return {} if self._formula().quadratic else {"loss": self.loss}

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_positive("C", self.C)
        check_loss(self.loss, "numbers")
        epsilon = self.epsilon
        if not (isinstance(epsilon, Real) and np.isfinite(epsilon) and epsilon >= 0):
            raise ValueError(f"epsilon must be a number from 0 on, got {epsilon!r}.")
