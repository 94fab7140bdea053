"""Regression on the kernels under which the values are most likely."""

from __future__ import annotations

from typing import Any

from mklearn.data.threads import one_blas_thread
from mklearn.estimators._base import BaseKernelMachine, check_limits
from mklearn.estimators._predictor import GramPredictor
from mklearn.estimators._targets import NumbersMixin
from mklearn.problems.evidence import EvidenceProblem
from mklearn.solvers import solve
from mklearn.solvers.evidence import AverageInformation


class EvidenceMKLRegressor(NumbersMixin, BaseKernelMachine):
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
    four such matrices are in memory beside the kernels.

    Parameters
    ----------
    kernels : kernel, name, callable, list of these, "auto" or "precomputed"
        What to combine, as in :class:`MKLClassifier`.
    normalize : {None, "center", "trace", "multiplicative", "spherical"}
        How kernels are made comparable. The scale of a kernel changes the unit of its
        weight and nothing else.
    psd : {"check", "clip", "ignore"}
        As in :class:`MKLClassifier`.
    uncertainty : bool
        Keep what ``predict(X, return_std=True)`` needs: an (n, n) matrix.
    tol : float
        Stop when the log likelihood can be expected to grow by less.
    max_iter : int
    time_limit : float, optional
        Seconds.
    memory_limit : int, optional
        As in :class:`MKLClassifier`, for the kernels.
    callback : callable, optional
        Called after each iteration with the history; a true answer stops.
    verbose : int
        Above zero, a line for each iteration, on standard error.

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
    kernel_names_ : tuple of str
    kernels_ : tuple
        The kernels with all parameters as numbers (None for precomputed ones).
    kernel_weights_ : array of shape (n_kernels,)
        The ``theta`` above, on the normalised kernels, shared by all outputs. With
        ``normalize="multiplicative"``, the variance that a kernel explains in units of
        that of the noise. All are zero if the values look like noise.
    kernel_contributions_ : array of shape (n_kernels,)
        Scale-free shares ``theta_m |w_m / theta_m|^2`` that sum to one.
    support_ : array
        Rows of X with a coefficient that is not zero.
    dual_coef_ : array of shape (n_outputs, n_support)
    intercept_ : array of shape (n_outputs,)
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
        normalize: str | None = "multiplicative",
        psd: str = "check",
        uncertainty: bool = False,
        tol: float = 1e-3,
        max_iter: int = 100,
        time_limit: float | None = None,
        memory_limit: int | None = None,
        callback: Any = None,
        verbose: int = 0,
    ) -> None:
        self.kernels = kernels
        self.normalize = normalize
        self.psd = psd
        self.uncertainty = uncertainty
        self.tol = tol
        self.max_iter = max_iter
        self.time_limit = time_limit
        self.memory_limit = memory_limit
        self.callback = callback
        self.verbose = verbose

    predictor_: GramPredictor

    @one_blas_thread
    def fit(
        self, X: Any, y: Any = None, sample_weight: Any = None
    ) -> EvidenceMKLRegressor:
        """Learn kernel weights and regression function.

        Parameters
        ----------
        X : array, sparse matrix, DataFrame, MultiView; Grams if precomputed
        y : array of shape (n_samples,) or (n_samples, n_outputs)
            Outputs share the kernel weights, and each has a noise of its own.
        sample_weight : array of shape (n_samples,), optional
            How exact the values are: the noise of a sample has the variance ``noise_``
            over its weight. A factor for all of them changes the units of ``noise_``
            and ``kernel_weights_`` and no prediction. Equal rows of equal value count
            as one of their common weight; in Grams and views, whose rows are not
            compared, they are separate measurements.
        """
        check_limits(self)
        training = self._grams(X, y, sample_weight)
        # the constant is free: a shift changes rounding only, and makes constants zero
        shift = training.middle()
        problem = EvidenceProblem(
            training.bank, training.target - shift, training.weight
        )
        solution = solve(
            problem,
            AverageInformation(rest=self.tol),
            tol=self.tol,
            max_iter=self.max_iter,
            time_limit=self.time_limit,
            callback=self.callback,
            verbose=self.verbose,
        )
        theta, A, bias = solution.theta, solution.A, solution.bias + shift
        predictor = training.predictor(theta, A, bias, whole=self.uncertainty)
        self._keep(training, predictor, theta, A, problem.contributions(theta, A))
        self.solution_, self.evidence_ = solution, solution.about
        found = problem.at(theta) if self.uncertainty else None
        self._spread = None if found is None else found.spread()
        self.noise_, self.n_iter_ = self.evidence_.noise, solution.n_iter
        return self

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
        bank, theta = self.predictor_.cross(self.checked(X)), self.predictor_.theta[0]
        found = self._spread.deviations(bank.combine(theta), bank.diag() @ theta)
        return values, found[:, 0] if self._flat else found
