"""Discriminant analysis that learns its kernel."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin, clone
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import check_is_fitted

from mklearn.data.checks import check_given, check_indicators
from mklearn.data.reading import by_blocks
from mklearn.data.threads import one_blas_thread
from mklearn.estimators._base import BaseMKL, StatisticsMixin
from mklearn.estimators._parameters import check_positive
from mklearn.estimators._predictor import Predictor
from mklearn.estimators._spaces import FeatureSpace, Fit, GramSpace, Model, space_of
from mklearn.estimators._targets import Indicators, LabelsMixin, decided
from mklearn.estimators._training import Training
from mklearn.kernels.normalise import CENTRED_TRACE
from mklearn.problems.discriminant import (
    criterion,
    gaussian_rule,
    projection,
    temperature,
)
from mklearn.solvers import Iterate, Multilevel, Solution

FloatArray = NDArray[np.float64]

CHOICES = ("learn", "loo", "gcv")
REGS = np.logspace(-6, 0, 13)
_MANY = 600  # number of samples from which to start with a subset


class MKLDiscriminant(
    ClassNamePrefixFeaturesOutMixin,
    LabelsMixin,
    TransformerMixin,
    StatisticsMixin,
    BaseMKL,
):
    """Kernel discriminant analysis on a learned combination of kernels.

    Kernels are centred and scaled to unit trace, ``G = sum_m theta_m G_m``, and the
    weights on the simplex (or in another set) optimise, to a certified duality gap,

    - ``criterion="rkda"``: ``min tr H'(I + G/reg)^-1 H``, regularised discriminant
      analysis of any number of classes, with class targets H (Ye, Ji and Chen 2008);
    - ``criterion="kfda"``: the largest Fisher discriminant ratio of two classes, with
      the scatter ``S+ + S-`` (Kim, Magnani and Boyd 2006).

    Samples are classified in the space of the discriminant directions, which has at
    most n_classes - 1 dimensions, using the class means and the common regularised
    covariance ``W'(S + reg I)W``, as in linear discriminant analysis with shrinkage.
    For two classes of equal priors the threshold is the midpoint of the projected class
    means.

    Parameters
    ----------
    kernels : kernel, name, callable, list of these, "auto" or "precomputed"
        As in :class:`MKLClassifier`.
    fixed : str, int, or list of these, optional
        Covariates, as in :class:`MKLClassifier`, for ``criterion="rkda"`` only. The
        discriminant directions then have an unregularised linear part in the
        covariates.
    reg : float or {"learn", "loo", "gcv"}
        The regularisation ``lam`` in ``G + lam I``, on the scale of unit traces.
        "learn" learns it together with the weights, as the weight of an additional
        kernel, the identity. "loo" and "gcv" choose the value in ``regs`` with the
        smallest leave-one-out error or generalised cross-validation score, both of
        which have a closed form given the weights learned for each value. For KFDA it
        must be a number.
    criterion : {"rkda", "kfda"}
    norm : float, matrix or weight set
        As in :class:`MKLClassifier`; 1 is the simplex of the papers.
    solver : str or Solver
        "newton" (the default; with many samples it starts from the solution for a
        subset), "silp", "qcqp", "sdp", "sdp-approx", the name of another solver, or a
        solver object such as ``Semidefinite(backend="scs")``.
    priors : None, "empirical" or array of shape (n_classes,)
        Prior probabilities of the classes: equal (None), those of the training samples,
        or given ones, for instance to account for misclassification costs. They only
        affect the intercepts.
    regs : array, optional
        Values that "loo" and "gcv" choose from; by default 13 values from 1e-6 to 1.
    n_components : int, optional
        Number of directions that ``transform`` returns; all by default.
    psd, tol, max_iter, time_limit, memory_limit, callback, verbose
        As in :class:`MKLClassifier`.
    approximation, rank, landmarks, random_state
        As in :class:`MKLClassifier`; for RKDA only. A single pass over the samples
        suffices, except that the temperature and "loo" need about 20 000 left-out
        samples.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
        Class labels; column indices if y is a matrix of label indicators.
    kernel_names_, kernels_, kernel_contributions_, support_, n_iter_
        As in :class:`MKLClassifier`.
    kernel_weights_ : array of shape (n_kernels,)
        Weights of the kernels scaled to unit trace. With ``norm=1`` they sum to one; if
        reg is learned, the sum includes the weight of I/n, ``n * reg_``.
    reg_ : float
        The regularisation used, whether given, learned or chosen.
    objective_ : float
        Value of the criterion: F of RKDA (smaller is better) or F* of KFDA (larger is
        better).
    explained_ratio_ : array of shape (n_directions,)
        Share of between-class scatter in the regularised total scatter along each
        direction.
    dual_coef_ : array of shape (n_directions, n_support)
        The directions.
    means_ : array of shape (n_classes, n_directions)
        Projected class means.
    coef_ : array of shape (1 or n_classes, n_directions)
        Coefficients of the decision function in the projected space.
    intercept_ : array of shape (1 or n_classes,)
        Intercepts of the decision function. They may be changed, for instance to choose
        another point on the ROC curve.
    fixed_effects_, fixed_names_, fixed_dropped_
        Effects of the covariates on the decision function, as in
        :class:`MKLClassifier`.
    temperature_ : float, or array of shape (n_labels,)
        Factor between the decision function and the log-odds in ``predict_proba``,
        chosen to maximise the likelihood of left-out training samples.
    duality_gap_ : float
    solution_ : Solution
        With ``approximation``, the solution for the approximate kernels.
    predictor_ : Predictor
        The fitted prediction function, an immutable object: ``scores(X)`` returns the
        scores, ``parts(X)`` splits them by kernel.
    approximation_error_ : ApproximationError
        Estimated approximation error of each kernel; only with ``approximation``.
    regs_, loo_, gcv_ : arrays of shape (n_regs,)
        The values tried and their scores, if reg was chosen by "loo" or "gcv".

    References
    ----------
    Ye, J., Ji, S. and Chen, J. (2008). Multi-class discriminant kernel learning via
    convex programming. *Journal of Machine Learning Research* 9, 719-758.

    Kim, S.-J., Magnani, A. and Boyd, S. (2006). Optimal kernel selection in kernel
    Fisher discriminant analysis. *International Conference on Machine Learning*.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from mklearn import MKLDiscriminant
    >>> X, y = load_wine(return_X_y=True)
    >>> model = MKLDiscriminant(reg="learn").fit(X, y)
    >>> model.transform(X).shape, bool(model.duality_gap_ <= 1e-6)
    ((178, 2), True)
    """

    normalize = CENTRED_TRACE

    temperature_: float | FloatArray

    def __init__(
        self,
        kernels: Any = "auto",
        *,
        fixed: Any = None,
        reg: float | str = 5e-4,
        criterion: str = "rkda",
        norm: Any = 1,
        solver: Any = "newton",
        priors: Any = None,
        regs: Any = None,
        n_components: int | None = None,
        psd: str = "check",
        tol: float = 1e-6,
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
        self.reg = reg
        self.criterion = criterion
        self.norm = norm
        self.solver = solver
        self.priors = priors
        self.regs = regs
        self.n_components = n_components
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

    # --- fit --------------------------------------------------------------------------

    @one_blas_thread
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> MKLDiscriminant:
        """Learn the kernel weights and the discriminant directions.

        Parameters
        ----------
        X : array, sparse matrix, DataFrame, MultiView, or Gram matrices
        y : array of shape (n_samples,), or indicators of shape (n_samples, n_labels)
        sample_weight : array of shape (n_samples,), optional
            A weight of 2 is equivalent to giving the sample twice, a weight of 0 to
            leaving it out.
        """
        self._check_parameters()
        return self._learn(self._training(X, y, sample_weight))

    def _learn(self, training: Training) -> MKLDiscriminant:
        """Solve for the given reg, or for several, and keep the best."""
        space = self._space(training)
        if isinstance(self.reg, str) and self.reg != "learn":
            fit = self._choose(space)
        else:
            fit = self._fit_reg(space, self.reg)
        self._keep_fit(space, fit)
        return self

    def _space(self, training: Training) -> GramSpace | FeatureSpace:
        """Return the analysis on Gram matrices or on features."""
        encoded = training.encoded(Indicators(len(self.classes_)))
        self._check_beside(encoded)
        return space_of(encoded, not self._multilabel, self.criterion)

    @one_blas_thread
    def reg_path(
        self, X: Any, y: Any, regs: Any, sample_weight: Any = None
    ) -> list[MKLDiscriminant]:
        """Return a fitted model for each of several values of ``reg``.

        Kernels are computed once, and each problem is warm-started from the previous
        one. The values are solved in descending order; the models are returned in the
        order of ``regs``.

        Parameters
        ----------
        X, y
            As in :meth:`fit`.
        regs : array of float
            Values of ``reg``, in any order.
        sample_weight : array of shape (n_samples,), optional
            As in :meth:`fit`.

        Returns
        -------
        list of MKLDiscriminant
        """
        self._check_parameters()
        regs = _check_regs(regs)
        space = self._space(self._training(X, y, sample_weight))
        models: dict[float, MKLDiscriminant] = {}
        start = None
        for reg in sorted(set(regs.tolist()), reverse=True):
            fit = self._fit_reg(space, reg, start)
            start = fit.solution
            models[reg] = clone(self).set_params(reg=reg)
            for name in ("n_features_in_", "feature_names_in_", "classes_", "_fixed",
                         "_views_in"):  # fmt: skip
                if name in vars(self):
                    setattr(models[reg], name, getattr(self, name))
            models[reg]._multilabel = self._multilabel
            models[reg]._keep_fit(space, fit)
        return [models[reg] for reg in regs.tolist()]

    def _decided_alone(
        self, X: Any, y: Any, X_new: Any, regs: Any, sample_weight: Any = None
    ) -> Iterator[NDArray[Any]]:
        """Yield the predictions for new samples, for each of several values of ``reg``.

        This is for a search: all kernels but one have been left out, so there is no
        problem to solve, and everything that does not depend on ``reg`` is shared.

        Parameters
        ----------
        X, y, sample_weight
            As in :meth:`fit`, with a single precomputed kernel.
        X_new : KernelBank
            The kernel between new samples and X.
        regs : array of float
        """
        self._check_parameters()
        space = self._space(self._training(X, y, sample_weight))
        assert isinstance(space, GramSpace)
        rows: Any = None
        for reg in _check_regs(regs).tolist():
            model = space.alone(reg, self._weights())
            self.predictor_, _ = self._rule(space, model, self._turned(model))
            rows = self.checked(X_new) if rows is None else rows
            yield self.classes_[decided(self.predictor_.scores(rows))]

    def _choose(self, space: GramSpace | FeatureSpace) -> Fit:
        """Return the best fit of those with the values in ``regs``."""
        self.regs_ = _check_regs(REGS if self.regs is None else self.regs)
        found: dict[float, tuple[float, float]] = {}
        best, start = None, None
        for reg in sorted(set(self.regs_.tolist()), reverse=True):
            fit = self._fit_reg(space, reg, start)
            start = fit.solution
            found[reg] = (fit.press, fit.gcv)
            if best is None or getattr(fit, self._score) < getattr(best, self._score):
                best = fit
        assert best is not None
        scores = np.array([found[reg] for reg in self.regs_.tolist()])
        self.loo_, self.gcv_ = scores.T.copy()
        return best

    @property
    def _score(self) -> str:
        return "press" if self.reg == "loo" else "gcv"

    def _fit_reg(
        self,
        space: GramSpace | FeatureSpace,
        reg: Any,
        start: Solution | None = None,
    ) -> Fit:
        """Solve for one reg, starting from the solution for another."""
        first = None if start is None else Iterate(start.theta, start.A)
        solve = partial(self._solve, space.training)
        return space.fit(reg, self._weights(), solve, first)

    def _chosen(self, training: Training, problem: Any, start: Iterate | None) -> Any:
        """Return the solver; with many samples, it starts on a subset to save time."""
        solver = super()._chosen(training, problem, start)
        many = training.exact and training.n_rows >= _MANY
        named = isinstance(self.solver, str) and self.solver == "newton"
        if many and named and start is None and self.criterion == "rkda":
            solver = Multilevel(solver, coarsest=_MANY // 4)
        return solver

    def _keep_fit(self, space: GramSpace | FeatureSpace, fit: Fit) -> None:
        """Store directions, decision rule and probabilities."""
        turn = self._turned(fit)
        predictor, coef = self._rule(space, fit, turn)
        bias = predictor.bias
        self._keep(space.training, predictor, fit.theta, coef, space.shares(fit))
        out = fit.out @ turn @ self.coef_.T + bias
        if self._multilabel:
            self.temperature_ = np.array(
                [
                    temperature(out[:, [j]], fit.labels[:, j], fit.weight)
                    for j in range(len(self.classes_))
                ]
            )
        else:
            self.temperature_ = temperature(out, fit.labels, fit.weight)
        self.solution_ = space.shown(fit)
        self.duality_gap_, self.n_iter_ = fit.solution.gap, fit.solution.n_iter
        self.reg_ = fit.reg
        given = None if self.reg == "learn" else fit.reg
        self.objective_ = criterion(fit.problem, fit.solution.upper, given)
        q = turn.shape[1]
        self._n_features_out = min(q, self.n_components or q)

    def _turned(self, fit: Model) -> FloatArray:
        """Store the directions, and return the map to them from the scores."""
        rank = fit.A.shape[1] if self._multilabel else len(self.classes_) - 1
        turn, self.explained_ratio_ = projection(fit.targets, fit.F, fit.balance, rank)
        self.means_ = fit.means @ turn
        return turn

    def _rule(
        self, space: GramSpace | FeatureSpace, fit: Model, turn: FloatArray
    ) -> tuple[Predictor, FloatArray]:
        """Store the rule, and return the predictor and its coefficients."""
        rules = self._label_rules if self._multilabel else self._class_rule
        self.coef_, bias = rules(space, fit, turn)
        coef = fit.coef @ turn
        plain = space.training.predictor(fit.theta, coef, np.zeros(coef.shape[1]))
        if fit.effects is not None:
            assert self._fixed is not None
            effects = self._fixed.coding.in_units(fit.effects @ turn)
            plain = plain.with_effects(effects[1:], effects[0])
        return plain.with_rule(self.coef_, bias), coef

    def _class_rule(
        self, space: GramSpace | FeatureSpace, fit: Model, turn: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Store the rule of normal classes with the covariance of the criterion."""
        k = len(self.classes_)
        covariance = turn.T @ (fit.within + fit.stiff) @ turn / fit.size
        priors = _check_priors(self.priors, k, space.counts / space.size)
        each, shift = gaussian_rule(self.means_, covariance, priors)
        if k == 2:
            each, shift = each[[1]] - each[[0]], shift[[1]] - shift[[0]]
        return each, shift

    def _label_rules(
        self, space: GramSpace | FeatureSpace, fit: Model, turn: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Store a rule for each label, along its own scores."""
        k, size, stiff = len(self.classes_), space.size, fit.stiff
        odds, shift = np.empty(k), np.empty(k)
        for j in range(k):
            n = np.array([size - space.counts[j], space.counts[j]])
            # scores have mean zero: those without the label are on the other side
            total = float(fit.means[j, j] * n[1])
            means = np.array([[-total], [total]]) / n[:, None]
            scatter = fit.total[j, j] - n @ means[:, 0] ** 2
            covariance = np.array([[(scatter + stiff[j, j]) / size]])
            priors = _check_priors(self.priors, 2, n / size)
            each, rest = gaussian_rule(means, covariance, priors)
            odds[j], shift[j] = each[1, 0] - each[0, 0], rest[1] - rest[0]
        # scores are rotated coordinates
        return (np.linalg.pinv(turn) * odds).T, shift

    def _beyond_sums(self) -> dict[str, Any]:
        return {"reg": self.reg} if self.reg == "loo" else {}

    def _block_targets(self, blocks: Any) -> Any:
        """Return blocks with class indices; several labels need arrays in memory."""
        self._multilabel = False
        return super()._block_targets(blocks)

    def _target(self, y: Any, weight: FloatArray) -> NDArray[Any]:
        """Return class indices, or the indicators of labels."""
        listed = isinstance(check_given(y), (list, tuple)) and len(y) > 0
        table = getattr(y, "ndim", 1) == 2 or (listed and np.ndim(y[0]) == 1)
        self._multilabel = table and type_of_target(y, input_name="y").startswith(
            "multilabel"
        )
        if not self._multilabel:
            return super()._target(y, weight)
        Y = check_indicators(y, weight)
        self.classes_ = np.arange(Y.shape[1])
        return Y

    # --- predict ----------------------------------------------------------------------

    @by_blocks
    @one_blas_thread
    def transform(self, X: Any) -> FloatArray:
        """Return the coordinates along the discriminant directions.

        They have mean zero on the training samples, and the regularised total scatter
        along each direction is one.

        Parameters
        ----------
        X : as in ``fit``; with precomputed kernels (n_samples, n_training, n_kernels)
        """
        check_is_fitted(self)
        found = self.predictor_.coordinates(self.checked(X))
        return found[:, : self._n_features_out]

    @by_blocks
    def predict(self, X: Any) -> NDArray[Any]:
        """Return the class of each sample, or indicators of its labels.

        Parameters
        ----------
        X : as in ``fit``; with precomputed kernels (n_samples, n_training, n_kernels)
        """
        check_is_fitted(self)
        if self._multilabel:
            return (self._scores(X) > 0).astype(int)
        return super().predict(X)

    @by_blocks
    def predict_proba(self, X: Any) -> FloatArray:
        """Return the probability of each class, or of each label.

        The posterior probabilities are computed from the decision function divided by
        ``temperature_``, which corrects for overconfidence: discriminants look better
        on their training samples than on new ones.

        Parameters
        ----------
        X : as in ``fit``; with precomputed kernels (n_samples, n_training, n_kernels)
        """
        scores = self._scores(X) * self.temperature_
        if self._multilabel:
            return np.asarray(expit(scores))
        if scores.shape[1] == 1:
            return np.column_stack([expit(-scores), expit(scores)])
        return np.asarray(softmax(scores, axis=1))

    # --- checks -----------------------------------------------------------------------

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.criterion == "kfda" and self.approximation is not None:
            raise ValueError(
                "criterion='kfda' needs the exact kernels; with approximation= use "
                "criterion='rkda'."
            )
        if self.criterion not in ("rkda", "kfda"):
            raise ValueError(
                f"criterion must be 'rkda' or 'kfda', got {self.criterion!r}."
            )
        if isinstance(self.reg, str):
            if self.reg not in CHOICES:
                raise ValueError(
                    "reg must be a positive number, 'learn', 'loo' or 'gcv', got "
                    f"{self.reg!r}."
                )
            if self.criterion == "kfda":
                raise ValueError(
                    f"reg={self.reg!r} is for criterion='rkda'; for 'kfda' give a "
                    "number, or compare the models of reg_path."
                )
        else:
            check_positive("reg", self.reg, ", 'learn', 'loo' or 'gcv'")
        n = self.n_components
        if n is not None and not (isinstance(n, Integral) and n >= 1):
            raise ValueError(f"n_components must be a positive integer, got {n!r}.")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = self.criterion != "kfda"
        tags.classifier_tags.multi_label = self.criterion != "kfda"
        return tags


def _check_priors(priors: Any, k: int, frequency: FloatArray) -> FloatArray:
    if priors is None:
        return np.full(k, 1.0 / k)
    if isinstance(priors, str):
        if priors == "empirical":
            return frequency
        raise ValueError(
            f"priors must be None, 'empirical' or an array, got {priors!r}."
        )
    given = np.asarray(priors, dtype=np.float64)
    if given.shape != (k,) or not (given > 0).all():
        raise ValueError(
            f"priors must be {k} positive numbers, one for each class, got {priors!r}."
        )
    return given / given.sum()


def _check_regs(regs: Any) -> FloatArray:
    values = np.asarray(regs, dtype=np.float64)
    if values.ndim != 1 or not len(values):
        raise ValueError(f"regs must be a list of positive numbers, got {regs!r}.")
    for value in values.tolist():
        check_positive("regs", value)
    return values
