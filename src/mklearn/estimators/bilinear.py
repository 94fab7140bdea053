"""Classifiers for all classes at once, on the Crammer-Singer loss."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from mklearn.data.checks import NothingToLearnError
from mklearn.data.threads import one_blas_thread
from mklearn.estimators._base import TOLD, BaseMKL, check_positive
from mklearn.estimators._targets import LabelsMixin
from mklearn.kernels import KernelBank
from mklearn.problems import BilinearProblem, CrammerSinger, MKLProblem
from mklearn.solvers import Multilevel


class BilinearMKLClassifier(LabelsMixin, BaseMKL):
    """Multi-class classifier with kernel weights for every class.

    Solves, to a certified duality gap, ::

        min  C sum_i xi_i + ½ sum_c ( sum_r |w_c^r|^2 / d_c^r + |d_c|_p )
        s.t. f_y(x_i) - f_c(x_i) + [c = y_i] >= 1 - xi_i,  d >= 0

    with ``f_c(x) = sum_r <w_c^r, phi_r(x)>`` (Kobayashi & Otsu, p = 1): the classes
    compete for every sample, instead of each fighting all others alone, and each
    chooses its own kernels. There is no intercept, unless there are covariates.

    Parameters
    ----------
    kernels : kernel, name, callable, list of these, "auto" or "precomputed"
        As in :class:`MKLClassifier`.
    fixed : str, int, or list of these, optional
        Covariates, as in :class:`MKLClassifier`; each class has effects of its own, and
        an intercept beside them.
    C : float
        Cost of errors, the κ of the paper.
    weights : {"per-class", "shared"}
        Weights for every class, or one set for all: then the regulariser is
        ``½ sum_r |w^r|^2 / theta_r`` with ``|theta|_p <= 1``, for p = 1 that of Zien
        & Ong (2007), and on its own scale of C.
    norm : float or matrix
        The p of the norm on the weights (of each class), from 1 (sparse) to ``inf``;
        or a positive definite matrix, as in :class:`MKLClassifier`.
    normalize : {None, "center", "trace", "multiplicative", "spherical"}
        How kernels are made comparable, with the statistics of the training samples.
        None takes them exactly as given.
    solver : str or Solver
        "auto", "newton", "alternating" (the closed-form update), "multilevel",
        "conic"; "projected_gradient" (the paper's) for weights per class;
        "cutting_plane" or "reduced_gradient" for shared ones; or an instance.
    class_weight : dict, "balanced" or None
        Factors of C by class.
    psd : {"check", "clip", "ignore"}
        As in :class:`MKLClassifier`.
    tol : float
        Relative duality gap to reach.
    max_iter : int
        Limit on the solver's iterations.
    time_limit : float, optional
        Limit in seconds.
    memory_limit : int, optional
        Bytes for kernel values; 2 GB by default, or half of what is free if less.
    random_state : int, RandomState or None
        Order in which "newton" and "projected_gradient" visit samples; None is a fixed
        order as well. Answers differ within the duality gap only.
    callback : callable, optional
        Called after each iteration with the history; return True to stop.
    verbose : int
        1 shows a progress bar, 2 a line for each iteration.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
    kernel_names_ : tuple of str
    kernels_ : tuple
        The kernels with all parameters as numbers (None for precomputed ones).
    kernel_weights_ : array of shape (n_classes, n_kernels), or (n_kernels,) if shared
        The d (or theta) above, on the normalised kernels.
    kernel_contributions_ : array of the same shape
        Scale-free shares; each row sums to one.
    support_ : array
        Rows of X that are support vectors.
    dual_coef_ : array of shape (n_classes, n_support)
    intercept_ : array of shape (n_classes,)
        Zeros without covariates.
    fixed_effects_ : array of shape (n_classes, n_covariates)
        Coefficients of the covariates, in the units of X.
    fixed_names_, fixed_dropped_ : tuple of str
        As in :class:`MKLClassifier`.
    duality_gap_ : float
        The relative gap that certifies the solution.
    n_iter_ : int
    solution_ : Solution
    predictor_ : Predictor
        What remains to predict with, a frozen value: ``scores(X)``, and ``parts(X)`` of
        them by kernel.

    References
    ----------
    Kobayashi, T. and Otsu, N. Bilinear formulated multiple kernel learning for
    multi-class classification problem.

    Zien, A. and Ong, C. S. (2007). Multiclass multiple kernel learning.
    *International Conference on Machine Learning*.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from mklearn import BilinearMKLClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = BilinearMKLClassifier().fit(X, y)
    >>> bool(model.score(X, y) > 0.95), bool(model.duality_gap_ <= 1e-3)
    (True, True)
    >>> model.kernel_weights_.shape
    (3, 6)
    """

    def __init__(
        self,
        kernels: Any = "auto",
        *,
        fixed: Any = None,
        C: float = 1.0,
        weights: str = "per-class",
        norm: Any = 1,
        normalize: str | None = "multiplicative",
        solver: Any = "auto",
        class_weight: Any = None,
        psd: str = "check",
        tol: float = 1e-3,
        max_iter: int = 1000,
        time_limit: float | None = None,
        memory_limit: int | None = None,
        random_state: Any = None,
        callback: Any = None,
        verbose: int = 0,
    ) -> None:
        self.kernels = kernels
        self.fixed = fixed
        self.C = C
        self.weights = weights
        self.norm = norm
        self.normalize = normalize
        self.solver = solver
        self.class_weight = class_weight
        self.psd = psd
        self.tol = tol
        self.max_iter = max_iter
        self.time_limit = time_limit
        self.memory_limit = memory_limit
        self.random_state = random_state
        self.callback = callback
        self.verbose = verbose

    @one_blas_thread
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> BilinearMKLClassifier:
        """Learn kernel weights and classifier.

        Parameters
        ----------
        X : array, sparse matrix, DataFrame, MultiView; Grams if precomputed
        y : array of shape (n_samples,)
            Class labels, numbers or strings.
        sample_weight : array of shape (n_samples,), optional
            Factors of C; weight 2 equals the sample given twice, weight 0 its absence.
        """
        self._check_parameters()
        training = self._grams(X, y, sample_weight)
        k, beside = len(self.classes_), training.beside
        if beside is not None and beside.told_classes(training.target, k) > 1.0 - 1e-6:
            raise NothingToLearnError(TOLD)
        cost = self.C * self._costs(training)
        loss = CrammerSinger(training.target, cost, k, design=beside)
        problem = self._problem(training.bank, loss)
        solver = self._seeded(training.solver(self.solver, problem))
        solution = self._solve_by(solver, problem, training.clock)
        self._store(training, [problem], [solution])
        return self

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return the scores of the classes, shape (n_samples, n_classes).

        For two classes it is the difference of the scores, shape (n_samples,), which
        is positive where the second class wins, as scikit-learn has it.

        Parameters
        ----------
        X : as in ``fit``; with precomputed kernels (n_samples, n_training, n_kernels)
        """
        scores = self._scores(X)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def _problem(
        self, bank: KernelBank, loss: CrammerSinger
    ) -> BilinearProblem | MKLProblem:
        if self.weights == "per-class":
            return BilinearProblem(bank, loss, self._weights())
        return MKLProblem(bank, loss, self._weights())

    def _seeded(self, solver: Any) -> Any:
        """Return the solver with the seed that ``random_state`` gives."""
        if self.random_state is None:
            return solver
        if isinstance(solver, Multilevel):
            return replace(solver, solver=self._seeded(solver.solver))
        if not hasattr(solver, "seed"):
            return solver
        seed = int(check_random_state(self.random_state).randint(2**31))
        return replace(solver, seed=seed)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_positive("C", self.C)
        if self.weights not in ("shared", "per-class"):
            raise ValueError(
                f"weights must be 'per-class' or 'shared', got {self.weights!r}."
            )


class CrammerSingerClassifier(BilinearMKLClassifier):
    """Crammer-Singer support vector machine on the unweighted sum of the kernels.

    This is :class:`BilinearMKLClassifier` with ``weights="shared"`` and ``norm=inf``:
    ``min C sum_i xi_i + ½ sum_c |w_c|^2``, what ``LinearSVC`` solves for a linear
    kernel (with ``multi_class="crammer_singer"`` and no intercept).

    Parameters
    ----------
    kernels, fixed, C, normalize, class_weight, psd, tol, max_iter, time_limit
        As in :class:`BilinearMKLClassifier`.
    memory_limit
        As in :class:`BilinearMKLClassifier`.

    Attributes
    ----------
    kernel_weights_ : array of ones of shape (n_kernels,)
        Nothing is learned about them.
    classes_, kernel_names_, kernels_, kernel_contributions_, support_
        As in :class:`BilinearMKLClassifier`.
    fixed_effects_, fixed_names_, fixed_dropped_
        As in :class:`BilinearMKLClassifier`.
    dual_coef_, intercept_, duality_gap_, n_iter_, solution_, predictor_
        As in :class:`BilinearMKLClassifier`.

    References
    ----------
    Crammer, K. and Singer, Y. (2001). On the algorithmic implementation of multiclass
    kernel-based vector machines. *Journal of Machine Learning Research* 2, 265-292.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from mklearn import CrammerSingerClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = CrammerSingerClassifier().fit(X, y)
    >>> bool(model.score(X, y) > 0.95), model.kernel_weights_.tolist()
    (True, [1.0, 1.0, 1.0, 1.0, 1.0, 1.0])
    """

    def __init__(
        self,
        kernels: Any = "auto",
        *,
        fixed: Any = None,
        C: float = 1.0,
        normalize: str | None = "multiplicative",
        class_weight: Any = None,
        psd: str = "check",
        tol: float = 1e-3,
        max_iter: int = 1000,
        time_limit: float | None = None,
        memory_limit: int | None = None,
    ) -> None:
        super().__init__(
            kernels,
            fixed=fixed,
            C=C,
            weights="shared",
            norm=np.inf,
            normalize=normalize,
            class_weight=class_weight,
            psd=psd,
            tol=tol,
            max_iter=max_iter,
            time_limit=time_limit,
            memory_limit=memory_limit,
        )
