"""Outlier detection on a learned kernel."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import OutlierMixin

from mklearn.data.threads import one_blas_thread
from mklearn.estimators._base import BaseMKL
from mklearn.estimators._parameters import check_positive
from mklearn.estimators._predictor import as_bank
from mklearn.estimators._targets import Decides
from mklearn.problems import Hinge, MKLProblem, OneClass


class MKLOneClass(Decides, OutlierMixin, BaseMKL):
    """One-class classifier on a learned combination of kernels (ℓp-norm MKL).

    Separates the samples from the origin of feature space. With an expected fraction
    ``nu`` of outliers it solves, to a certified duality gap, ::

        min  sum_i max(0, rho - f(x_i)) / (nu n) - rho + ½ sum_m |w_m|^2 / theta_m
        s.t. theta >= 0, |theta|_p <= 1,    f(x) = sum_m <w_m, phi_m(x)>

    over ``w``, ``rho`` and the kernel weights ``theta`` jointly. If ``C`` is given, it
    solves the form of Kloft et al. (2011) instead, in which ``rho`` is one::

        min  C sum_i max(0, 1 - f(x_i)) + ½ sum_m |w_m|^2 / theta_m

    Minimising over the weights selects the kernels in which the samples lie farthest
    from the origin, so the kernels should be on a common scale
    (``normalize="spherical"`` puts all samples on the unit sphere).

    Parameters
    ----------
    kernels : kernel, name, callable, list of these, "auto" or "precomputed"
        The kernels to combine, as in :class:`MKLClassifier`.
    nu : float
        Fraction of outliers, in (0, 1]: at most this fraction of the training samples
        lies outside the learned region, and at least this fraction lies outside or on
        its border.
    C : float, optional
        Cost of samples outside the region; if given, ``nu`` is ignored.
    norm : float, matrix or weight set
        The p of the norm on the weights, from 1 (sparse) to ``inf`` (plain sum), or a
        set as in :class:`MKLClassifier`.
    normalize : {None, "trace", "multiplicative", "spherical"}
        How the kernels are normalised, using statistics of the training samples. None
        uses them exactly as given. Precomputed test kernels need their diagonals for
        "spherical": pass ``KernelBank.from_grams(B, row_diag=...)``.
    solver : str or Solver
        "auto", a name such as "newton" or "alternating", or a solver object.
    psd, tol, max_iter, time_limit, memory_limit, callback, verbose
        As in :class:`MKLClassifier`.

    Attributes
    ----------
    offset_ : float
        ``decision_function = score_samples - offset_``: the ``rho`` above, or 1.
    kernel_names_ : tuple of str
    kernels_ : tuple
        The kernels with all their parameters resolved to numbers (None for precomputed
        kernels).
    kernel_weights_ : array of shape (n_kernels,)
        The ``theta`` above, for the normalised kernels.
    kernel_contributions_ : array of shape (n_kernels,)
        Scale-free shares ``theta_m |w_m / theta_m|^2`` that sum to one.
    support_ : array
        Indices of the rows of X outside the region or on its border.
    dual_coef_ : array of shape (1, n_support)
        Coefficients of the support vectors; in the form with ``nu`` they sum to one.
    intercept_ : array of shape (1,)
        ``-offset_``.
    duality_gap_ : float
        The relative gap that certifies the solution.
    n_iter_ : int
    solution_ : Solution
    predictor_ : Predictor
        The fitted prediction function, an immutable object: ``scores(X)`` returns the
        scores, ``parts(X)`` splits them by kernel.

    References
    ----------
    Kloft, M., Brefeld, U., Sonnenburg, S. and Zien, A. (2011). ℓp-norm multiple kernel
    learning. *Journal of Machine Learning Research* 12, 953-997.

    Schölkopf, B., Platt, J., Shawe-Taylor, J., Smola, A. and Williamson, R. (2001).
    Estimating the support of a high-dimensional distribution. *Neural Computation* 13,
    1443-1471.

    Examples
    --------
    >>> import numpy as np
    >>> from mklearn import MKLOneClass, kernels
    >>> X = np.random.default_rng(0).normal(size=(100, 2))
    >>> model = MKLOneClass(kernels.rbf_ladder(), nu=0.1).fit(X)
    >>> model.predict([[0.0, 0.0], [9.0, 9.0]]).tolist()
    [1, -1]
    """

    def __init__(
        self,
        kernels: Any = "auto",
        *,
        nu: float = 0.5,
        C: float | None = None,
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
    ) -> None:
        self.kernels = kernels
        self.nu = nu
        self.C = C
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

    @one_blas_thread
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> MKLOneClass:
        """Learn the kernel weights and the region that contains the samples.

        Parameters
        ----------
        X : array, sparse matrix, DataFrame, MultiView, or Gram matrices
        y : ignored
        sample_weight : array of shape (n_samples,), optional
            A weight of 2 is equivalent to giving the sample twice, a weight of 0 to
            leaving it out.
        """
        self._check_parameters()
        training = self._grams(X, None, sample_weight)
        weight, shift = training.weight[:, None], 0.0
        if self.C is None:
            loss: Any = OneClass(weight / (self.nu * weight.sum()))
        else:
            loss = Hinge(np.ones_like(weight), self.C * weight, with_bias=False)
            shift = -1.0
        problem = MKLProblem(training.bank, loss, self._weights())
        self._store(training, [problem], [self._solve(training, problem)], shift)
        self.offset_ = -float(self.intercept_[0])
        return self

    def fit_predict(
        self, X: Any, y: Any = None, sample_weight: Any = None
    ) -> NDArray[np.intp]:
        """Fit to X and return 1 for inliers and -1 for outliers.

        Parameters
        ----------
        X, y, sample_weight
            As in :meth:`fit`.
        """
        if self._precomputed():
            X = as_bank(X)  # these are the training samples: the diagonal is known
        return self.fit(X, sample_weight=sample_weight).predict(X)

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return ``score_samples - offset_``, negative for outliers, (n_samples,).

        Parameters
        ----------
        X : as in ``fit``; with precomputed kernels (n_samples, n_training, n_kernels)
        """
        return self._scores(X)[:, 0]

    def score_samples(self, X: Any) -> NDArray[np.float64]:
        """Return ``f(x)``, which is higher for samples more like the training samples.

        Parameters
        ----------
        X : as in ``fit``; with precomputed kernels (n_samples, n_training, n_kernels)
        """
        return self.decision_function(X) + self.offset_

    def predict(self, X: Any) -> NDArray[np.intp]:
        """Return 1 for inliers and -1 for outliers.

        Parameters
        ----------
        X : as in ``fit``; with precomputed kernels (n_samples, n_training, n_kernels)
        """
        return np.where(self.decision_function(X) >= 0, 1, -1)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.C is not None:
            check_positive("C", self.C, " or None")
        elif not (isinstance(self.nu, Real) and 0 < self.nu <= 1):
            raise ValueError(f"nu must be a number in (0, 1], got {self.nu!r}.")
        if self.normalize == "center":
            raise ValueError(
                "normalize='center' moves the mean of the samples to the origin, from "
                "which they are to be separated, so nothing is left to learn; use "
                "'multiplicative' or 'spherical'."
            )
