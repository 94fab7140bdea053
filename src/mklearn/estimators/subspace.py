"""Subspace kernels: a few features of kernels that separate the classes."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from mklearn.data.checks import NothingToLearnError
from mklearn.data.spelling import plural
from mklearn.data.threads import one_blas_thread
from mklearn.estimators._base import BaseKernelMachine
from mklearn.estimators._parameters import check_limits, check_positive
from mklearn.estimators._targets import LabelsMixin, one_vs_rest
from mklearn.estimators._training import GramTraining
from mklearn.kernels.normalise import CENTRED_TRACE, fit_normaliser
from mklearn.problems import Hinge
from mklearn.problems.base import shares
from mklearn.problems.subspace import (
    LABEL_KERNELS,
    Alignment,
    JointProblem,
    Kernels,
    Subspace,
    label_factor,
    principal,
)
from mklearn.solvers import Solution
from mklearn.solvers.subspace import (
    METHODS,
    integrate,
    maximise_alignment,
    solve_joint,
    svm_on,
    without_bounds,
)

FloatArray = NDArray[np.float64]

CRITERIA = ("hsic", "svm", "alignment")
SHARE = 5e-4  # reg="auto": this fraction of the kernel's trace


@dataclass(frozen=True)
class _Learned:
    """Result of ``fit``: a subspace, and SVMs if they were learned with it."""

    theta: FloatArray
    subspace: Subspace
    reg: float
    objective: float
    solution: Solution
    C: float = np.nan
    n_iter: int = 1


class SubspaceKernel(
    ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseKernelMachine
):
    """A few features of a kernel that separate the classes.

    Finds coefficients W such that the linear kernel of the features ``Z = G W`` depends
    on the labels as much as possible (Chen et al. 2008), where G is the centred kernel,
    or a learned combination of several. It is a transformer, for use before any
    classifier; :class:`SubspaceClassifier` adds the SVMs of the paper.

    =============  ==============  =====================================================
    ``criterion``  uncorrelated    problem
    =============  ==============  =====================================================
    "hsic"         False           (8) ``max tr((W'(G + reg I)W)^-1 W'GHGW)``
    "hsic"         True            (19) ``max tr(Q'GHGQ)``, ``Q'(GG + reg G)Q = I``
    "svm"          False           (9) subspace and SVMs together
    "svm"          True            (20) the same with the features of (19)
    "alignment"                    ``GW(W'GW)^-1 W'G`` aligned with H (SKFE)
    =============  ==============  =====================================================

    HSIC takes one Cholesky factorisation and an eigenproblem whose size is the number
    of classes. With several kernels the weights minimise (27),
    ``tr((I + G/reg)^-1 H)``, for "hsic" to a certified duality gap, or, for "svm" and
    uncorrelated features, solve (39).

    Parameters
    ----------
    kernels : kernel, name, callable, list of these, "auto" or "precomputed"
        As in :class:`MKLClassifier`.
    criterion : {"hsic", "svm", "alignment"}
    uncorrelated : bool
        Whether the features of the training samples are uncorrelated, as in (19), or
        come from an orthogonal projection, as in (8). Ignored for "alignment".
    n_components : int, optional
        Number of features. By default the maximum: n_classes - 1 for "hsic", and one
        for each SVM for "svm". Larger numbers are reduced to the maximum, with a
        warning.
    reg : float or "auto"
        Regularisation: lam of (8) or xi of (19), on the scale of G (see
        ``unit_trace``). "auto" is 5e-4 times the trace of G.
    label_kernel : {"H2", "H1"}
        ``H = Y (Y'Y)^-1 Y'`` with class indicators Y, or ``H = YY'``, which gives more
        weight to large classes.
    C : float or "auto"
        Cost of errors in the SVMs on the features ("svm" only). As the features are
        small, C has to be large: "auto" is the inverse of their mean squared length.
    joint : {"auto", "exact", "damped", "alternating"}
        How (9), (20) and (39) are solved; see :func:`mklearn.solvers.solve_joint`.
        "auto" gives a certified solution if n_components is at least the number of
        SVMs; "alternating" is the method of the paper, which may not converge.
    unit_trace : bool or "auto"
        Whether the centred kernel is scaled to unit trace, which makes reg relative. If
        there are several kernels, they are always scaled. With "auto", a single kernel
        is only centred, and reg is as in the formulas.
    solver : str or Solver
        Solver for the weights of several kernels: "newton", "silp", "qcqp", "sdp",
        "sdp-approx" or another one, as in :class:`MKLDiscriminant`.
    class_weight : dict, "balanced" or None
        Multiplies C for the samples of each class.
    random_state : int
        Seed of the random start that "alignment" uses if there are more features than
        class means.
    psd : {"check", "clip", "ignore"}
        As in :class:`MKLClassifier`.
    tol : float
        Relative duality gap to reach for the weights and the joint problem; where the
        joint problem has no certificate, the relative change of its objective.
    max_iter : int
        Limit on the iterations for the joint problem and for "alignment". The latter
        usually reaches it: early stopping is its only regularisation.
    time_limit : float, optional
        Limit in seconds.
    memory_limit : int, optional
        As in :class:`MKLClassifier`.
    callback : callable, optional
        Called with the history after each iteration; it may return True to stop.
    verbose : int
        2 prints a line for each iteration.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
    kernel_names_, kernels_, kernel_contributions_, support_, n_iter_
        As in :class:`MKLClassifier`.
    kernel_weights_ : array of shape (n_kernels,)
        Weights of the kernels scaled to unit trace; they sum to one.
    dual_coef_ : array of shape (n_components, n_support)
        Coefficients W' or Q' of the training samples in ``support_``.
    n_components_ : int
    rank_ : int
        The largest possible number of features.
    criterion_values_ : array of shape (n_components,)
        What each feature adds to the criterion.
    objective_ : float
        HSIC (8) or (19) or the alignment, which are maximised; or the joint objective
        (9), (20) or (39), which is minimised.
    reg_, C_ : float
        The values used, on the scale of the kernel and of the features.
    duality_gap_ : float
        Relative gap of the weights or of the joint problem; 0 where the solution has a
        closed form, and NaN for "alignment", which has no certificate.
    solution_ : Solution
        Solution of the joint problem or of the problem for the weights; for a single
        kernel, the closed form, or the local maximum of the alignment.
    predictor_ : Predictor
        The fitted prediction function, an immutable object: ``project(X)`` returns the
        features, ``terms(X)`` the contribution of each kernel to them.

    References
    ----------
    Chen, J., Ji, S., Ceran, B., Li, Q., Wu, M. and Ye, J. (2008). Learning subspace
    kernels for classification. *Knowledge Discovery and Data Mining*.

    Wu, M. and Farquhar, J. (2007). A subspace kernel for nonlinear feature extraction.
    *International Joint Conference on Artificial Intelligence*.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> from sklearn.pipeline import make_pipeline
    >>> from mklearn import SubspaceKernel
    >>> X, y = load_wine(return_X_y=True)
    >>> features = SubspaceKernel().fit(X, y)
    >>> features.transform(X).shape
    (178, 2)
    >>> model = make_pipeline(SubspaceKernel(), KNeighborsClassifier()).fit(X, y)
    >>> bool(model.score(X, y) > 0.95)
    True
    """

    normalize = CENTRED_TRACE
    _target = LabelsMixin._target
    _costs = LabelsMixin._costs
    _factors = LabelsMixin._factors
    _against_rest = LabelsMixin._against_rest

    def __init__(
        self,
        kernels: Any = "auto",
        *,
        criterion: str = "hsic",
        uncorrelated: bool = True,
        n_components: int | None = None,
        reg: float | str = "auto",
        label_kernel: str = "H2",
        C: float | str = "auto",
        joint: str = "auto",
        unit_trace: bool | str = "auto",
        solver: Any = "newton",
        class_weight: Any = None,
        random_state: int = 0,
        psd: str = "check",
        tol: float = 1e-4,
        max_iter: int = 100,
        time_limit: float | None = None,
        memory_limit: int | None = None,
        callback: Any = None,
        verbose: int = 0,
    ) -> None:
        self.kernels = kernels
        self.criterion = criterion
        self.uncorrelated = uncorrelated
        self.n_components = n_components
        self.reg = reg
        self.label_kernel = label_kernel
        self.C = C
        self.joint = joint
        self.unit_trace = unit_trace
        self.solver = solver
        self.class_weight = class_weight
        self.random_state = random_state
        self.psd = psd
        self.tol = tol
        self.max_iter = max_iter
        self.time_limit = time_limit
        self.memory_limit = memory_limit
        self.callback = callback
        self.verbose = verbose

    # --- fit --------------------------------------------------------------------------

    @one_blas_thread
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> SubspaceKernel:
        """Learn the kernel weights and the features.

        Parameters
        ----------
        X : array, sparse matrix, DataFrame, MultiView, or Gram matrices
        y : array of shape (n_samples,)
            Class labels, numbers or strings.
        sample_weight : array of shape (n_samples,), optional
            A weight of 2 is equivalent to giving the sample twice, a weight of 0 to
            leaving it out.
        """
        self._check_parameters()
        training = self._grams(X, y, sample_weight)
        if training.raw.shape[2] == 1 and self.unit_trace is not True:
            training = own_scale(training)
        self._store(training, self._learn(training))
        return self

    def _learn(self, training: GramTraining) -> _Learned:
        w = training.weight
        L = label_factor(training.target, len(self.classes_), self.label_kernel, w)
        reg = self._regularisation(float(np.mean(w @ training.bank.diag())))
        kernels = self._kernels(training, reg)
        settings: dict[str, Any] = {
            "time_limit": training.clock.left(),
            "callback": self.callback,
            "verbose": self.verbose,
        }
        first = self._first(kernels, L, **settings)
        self._check_rank(first.subspace)
        learned = replace(first, C=self._cost(first.subspace.features, w))
        if self.criterion == "svm":
            loss = self._loss(training, learned.C)
            found = self._joint(kernels, loss, L, **settings)
            learned = replace(
                learned, theta=found.theta, subspace=found.about.subspace,
                objective=found.upper, solution=found, n_iter=found.n_iter,
            )  # fmt: skip
        if not self.uncorrelated or self.criterion == "alignment":
            return learned
        made = kernels.criterion(learned.theta)
        return replace(learned, subspace=principal(made, learned.subspace))

    def _joint(
        self, kernels: Kernels, loss: Hinge, L: FloatArray, **settings: Any
    ) -> Solution:
        """Solve jointly for subspace, SVMs and, with several kernels, weights."""
        n_components = self.n_components or loss.shape[1]
        return solve_joint(
            JointProblem(loss, n_components, kernels, L),
            self.joint,
            tol=self.tol,
            max_iter=self.max_iter,
            solver=self.solver,
            weights_tol=self.tol,
            **settings,
        )

    def _kernels(self, training: GramTraining, reg: float) -> Kernels:
        one = np.ones(1) if training.bank.shape[2] == 1 else None
        return Kernels(training.bank, reg, self.uncorrelated, training.weight, one)

    def _first(
        self,
        kernels: Kernels,
        L: FloatArray,
        start: FloatArray | None = None,
        **settings: Any,
    ) -> _Learned:
        """Return the features for the labels, and the weights if labels determine them.

        For (39) the SVMs determine the weights of several kernels; then the features
        are those of the mean kernel.
        """
        M = kernels.bank.shape[2]
        middle = np.full(M, 1.0 / M)
        if self.criterion == "alignment":
            problem = Alignment(kernels.bank.combine(middle), L, kernels.weight)
            found, value, n_iter = maximise_alignment(
                problem,
                min(self.n_components or len(self.classes_) - 1, len(L)),
                tol=self.tol,
                max_iter=self.max_iter,
                random_state=self.random_state,
            )
            local = without_bounds(middle, found, value, n_iter, local=True)
            return _Learned(middle, found, kernels.reg, value, local, n_iter=n_iter)
        solution: Solution | None = None
        n_iter = 1
        open_weights = self.criterion == "svm" and self.uncorrelated
        if kernels.theta is None and not open_weights:
            solution = integrate(
                kernels, L, self.solver, start=start, tol=self.tol, **settings
            )
            kernels.theta, n_iter = solution.theta, max(1, solution.n_iter)
        theta = middle if kernels.theta is None else kernels.theta
        N = kernels.weight[:, None] * L
        found = kernels.criterion(theta).best(N, self.n_components)
        value = float(found.values.sum())
        if solution is None:
            solution = without_bounds(theta, found, value)
        return _Learned(theta, found, kernels.reg, value, solution, n_iter=n_iter)

    def _check_rank(self, found: Subspace) -> None:
        if found.rank == 0:
            raise NothingToLearnError(
                "No direction of the kernel depends on the labels, so there is "
                "nothing to learn; check the kernel and its parameters."
            )

    def _regularisation(self, trace: float) -> float:
        return SHARE * trace if isinstance(self.reg, str) else float(self.reg)

    def _cost(self, features: FloatArray, w: FloatArray) -> float:
        return unit_cost(features, w) if isinstance(self.C, str) else float(self.C)

    def _loss(self, training: GramTraining, C: float) -> Hinge:
        """Return the loss of one SVM for each class against the rest."""
        Y = one_vs_rest(training.target, len(self.classes_))
        cost = C * self._costs(training)
        return Hinge(Y, np.repeat(cost[:, None], Y.shape[1], axis=1))

    def _store(self, training: GramTraining, learned: _Learned) -> None:
        found = learned.subspace
        q = found.coef.shape[1]
        if self.n_components is not None and self.n_components > q:
            warnings.warn(
                f"n_components={self.n_components} exceeds the rank, which allows only "
                f"{plural(q, 'feature')}, so n_components_ is {q}.",
                UserWarning,
                stacklevel=3,
            )
        theta, coef = learned.theta, found.coef
        predictor = training.predictor(theta, coef, np.zeros(q))
        parts = shares(theta * training.bank.quad(coef))
        self._keep(training, predictor, theta, coef, parts)
        self.n_components_ = self._n_features_out = q
        self.rank_ = found.rank
        self.criterion_values_ = found.values
        self.objective_, self.reg_, self.C_ = learned.objective, learned.reg, learned.C
        self.n_iter_ = learned.n_iter
        self.solution_ = learned.solution
        local = self.criterion == "alignment"
        self.duality_gap_ = np.nan if local else learned.solution.gap

    # --- predict ----------------------------------------------------------------------

    @one_blas_thread
    def transform(self, X: Any) -> FloatArray:
        """Return the features, shape ``(n_samples, n_components_)``.

        They have mean zero on the training samples; uncorrelated features satisfy
        ``Z'Z + reg Q'GQ = I``, with sample weights.

        Parameters
        ----------
        X : as in ``fit``; with precomputed kernels (n_samples, n_training, n_kernels)
        """
        check_is_fitted(self)
        return self.predictor_.project(self.checked(X))

    # --- checks -----------------------------------------------------------------------

    def _check_parameters(self) -> None:
        for name, known in (
            ("criterion", CRITERIA),
            ("label_kernel", LABEL_KERNELS),
            ("joint", METHODS),
        ):
            value = getattr(self, name)
            if value not in known:
                raise ValueError(f"{name} must be one of {known}, got {value!r}.")
        for name in ("reg", "C"):
            value = getattr(self, name)
            if not (isinstance(value, str) and value == "auto"):
                check_positive(name, value, " or 'auto'")
        if self.unit_trace not in (True, False, "auto"):
            raise ValueError(
                f"unit_trace must be True, False or 'auto', got {self.unit_trace!r}."
            )
        n = self.n_components
        if n is not None and not (isinstance(n, Integral) and n >= 1):
            raise ValueError(f"n_components must be a positive integer, got {n!r}.")
        check_limits(self)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags


def own_scale(training: GramTraining) -> GramTraining:
    """Return the training set with kernels that are centred and not scaled."""
    normaliser = fit_normaliser("center", training.raw, training.weight)
    bank = normaliser.train(training.raw)
    return replace(training, bank=bank, normaliser=normaliser)


def unit_cost(features: FloatArray, w: FloatArray) -> float:
    """Return one over the weighted mean squared length of the features."""
    return float(w.sum() / (w @ np.sum(features**2, axis=1)))


class SubspaceClassifier(LabelsMixin, SubspaceKernel):
    """SVMs on the features of :class:`SubspaceKernel`, one for each class.

    With ``criterion="hsic"`` or ``"alignment"`` the features are found first and the
    SVMs are trained on them; with ``"svm"`` both are learned jointly. Two classes need
    only one SVM, which the joint objective counts once, whereas the paper counts it
    twice.

    Parameters
    ----------
    kernels, criterion, uncorrelated, n_components, reg, label_kernel, C, joint
        As in :class:`SubspaceKernel`.
    unit_trace, solver, class_weight, random_state, psd, tol, max_iter, time_limit
        As in :class:`SubspaceKernel`.
    memory_limit, callback, verbose
        As in :class:`SubspaceKernel`.

    Attributes
    ----------
    coef_ : array of shape (1 or n_classes, n_components)
        Coefficients of the features in the decision function.
    intercept_ : array of shape (1 or n_classes,)
    classes_, kernel_names_, kernels_, kernel_weights_, kernel_contributions_
        As in :class:`SubspaceKernel`.
    support_, dual_coef_, n_components_, rank_, criterion_values_, objective_
        As in :class:`SubspaceKernel`.
    reg_, C_, duality_gap_, n_iter_, solution_, predictor_
        As in :class:`SubspaceKernel`.

    References
    ----------
    Chen, J., Ji, S., Ceran, B., Li, Q., Wu, M. and Ye, J. (2008). Learning subspace
    kernels for classification. *Knowledge Discovery and Data Mining*.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from mklearn import SubspaceClassifier
    >>> X, y = load_wine(return_X_y=True)
    >>> model = SubspaceClassifier(criterion="svm").fit(X, y)
    >>> bool(model.score(X, y) > 0.95), bool(model.duality_gap_ <= 1e-4)
    (True, True)
    """

    def _store(self, training: GramTraining, learned: _Learned) -> None:
        super()._store(training, learned)
        Z = learned.subspace.features
        found = learned.solution
        if self.criterion != "svm":
            loss = self._loss(training, learned.C)
            found = svm_on(Z, loss, tol=self.tol, time_limit=self.time_limit)
        self.coef_ = found.A.T @ Z
        self.predictor_ = self.predictor_.with_rule(self.coef_, found.bias)
