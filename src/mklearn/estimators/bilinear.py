"""Joint classifiers for all classes, with the Crammer-Singer loss."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from mklearn.data.checks import NothingToLearnError
from mklearn.data.threads import one_blas_thread
from mklearn.estimators._base import TOLD, BaseMKL
from mklearn.estimators._parameters import check_positive
from mklearn.estimators._targets import LabelsMixin
from mklearn.kernels import KernelBank
from mklearn.problems import BilinearProblem, CrammerSinger, MKLProblem
from mklearn.solvers import Multilevel


class BilinearMKLClassifier(LabelsMixin, BaseMKL):
    """Multi-class classifier with kernel weights for each class.

    Solves, to a certified duality gap, ::

        min  C sum_i xi_i + ½ sum_c ( sum_r |w_c^r|^2 / d_c^r + |d_c|_p )
        s.t. f_y(x_i) - f_c(x_i) + [c = y_i] >= 1 - xi_i,  d >= 0

    with ``f_c(x) = sum_r <w_c^r, phi_r(x)>`` (Kobayashi & Otsu, p = 1): all classes are
    learned jointly rather than one-vs-rest, and each class has its own kernel weights.
    There is no intercept, unless there are covariates.

    Parameters
    ----------
    kernels : kernel, name, callable, list of these, "auto" or "precomputed"
        As in :class:`MKLClassifier`.
    fixed : str, int, or list of these, optional
        Covariates, as in :class:`MKLClassifier`; each class has its own effects, and
        an intercept in addition to them.
    C : float
        Cost of errors, the κ of the paper.
    weights : {"per-class", "shared"}
        One set of weights for each class, or a single set shared by all. In the latter
        case the regulariser is ``½ sum_r |w^r|^2 / theta_r`` with ``|theta|_p <= 1``,
        which for p = 1 is that of Zien & Ong (2007); C is then on a different scale.
    norm : float or matrix
        The p of the norm on the weights (of each class), from 1 (sparse) to ``inf``;
        or a positive definite matrix, as in :class:`MKLClassifier`.
    normalize : {None, "center", "trace", "multiplicative", "spherical"}
        How the kernels are normalised, using statistics of the training samples. None
        uses them exactly as given.
    solver : str or Solver
        "auto", "newton", "alternating" (the closed-form update), "multilevel",
        "conic"; "projected_gradient" (the paper's) for weights per class;
        "cutting_plane" or "reduced_gradient" for shared ones; or an instance.
    class_weight : dict, "balanced" or None
        Multiplies C for the samples of each class.
    psd : {"check", "clip", "ignore"}
        As in :class:`MKLClassifier`.
    tol : float
        Relative duality gap to reach.
    max_iter : int
        Limit on the solver's iterations.
    time_limit : float, optional
        Limit in seconds.
    memory_limit : int, optional
        Memory for kernel values in bytes; by default 2 GB, or half of the free memory
        if that is less.
    random_state : int, RandomState or None
        Determines the order in which "newton" and "projected_gradient" visit the
        samples; None is a fixed order, too. Results differ only within the duality gap.
    callback : callable, optional
        Called with the history after each iteration; it may return True to stop.
    verbose : int
        1 shows a progress bar, 2 prints a line for each iteration.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
    kernel_names_ : tuple of str
    kernels_ : tuple
        The kernels with all their parameters resolved to numbers (None for precomputed
        kernels).
    kernel_weights_ : array of shape (n_classes, n_kernels), or (n_kernels,) if shared
        The d (or theta) above, on the normalised kernels.
    kernel_contributions_ : array of the same shape
        Scale-free shares; each row sums to one.
    support_ : array
        Indices of the rows of X that are support vectors.
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
        The fitted prediction function, an immutable object: ``scores(X)`` returns the
        scores, ``parts(X)`` splits them by kernel.

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
        """Learn the kernel weights and the classifier.

        Parameters
        ----------
        X : array, sparse matrix, DataFrame, MultiView, or Gram matrices
        y : array of shape (n_samples,)
            Class labels, numbers or strings.
        sample_weight : array of shape (n_samples,), optional
            Multiplied by C. A weight of 2 is equivalent to giving the sample twice, a
            weight of 0 to leaving it out.
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

        For two classes it is the difference of their scores, of shape (n_samples,),
        which is positive where the second class is predicted, as in scikit-learn.

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
        """Return the solver with the seed of ``random_state``."""
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
        They are not learned.
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
