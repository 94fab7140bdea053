"""Discriminant analysis that learns its kernel."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import expit, log_expit, log_softmax, softmax
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin, clone
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import check_is_fitted

from mklearn.data.checks import check_given, check_indicators
from mklearn.data.reading import by_blocks
from mklearn.estimators._base import Training
from mklearn.estimators._feature_discriminant import FeatureFit, FeatureSpace
from mklearn.estimators._features import (
    FeatureTraining,
    contributions,
    indicators,
    room,
)
from mklearn.estimators._labels import LabelsMixin
from mklearn.estimators._mkl import BaseMKL, check_positive
from mklearn.estimators.accumulator import StatisticsMixin
from mklearn.kernels.normalise import CENTRED_TRACE
from mklearn.problems import MKLProblem
from mklearn.problems.discriminant import (
    class_targets,
    criterion,
    gaussian_rule,
    gcv,
    joint_reg,
    kfda,
    label_targets,
    least_squares,
    left_out,
    press,
    projection,
    rkda,
    rkda_joint,
    within_scatter,
)
from mklearn.problems.statistics import Statistics
from mklearn.solvers import Iterate, Solution, solve
from mklearn.solvers.inner import LinearSolver

FloatArray = NDArray[np.float64]

CHOICES = ("learn", "loo", "gcv")
REGS = np.logspace(-6, 0, 13)


@dataclass(frozen=True)
class _Fit:
    """A solved problem and the least-squares model on its kernel."""

    problem: MKLProblem
    solution: Solution
    theta: FloatArray  # of the training bank's kernels
    reg: float
    targets: FloatArray  # (n, T), as all that follows
    A: FloatArray
    scores: FloatArray
    out: FloatArray  # scores of left-out samples
    balance: FloatArray  # (n,) what the samples count: their weights, or class shares
    press: float
    gcv: float


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

    Classes are told apart in the space of the discriminant directions, of at most
    n_classes - 1 dimensions, by their means and their common regularised covariance
    ``W'(S + reg I)W``, as in linear discriminant analysis with shrinkage. For two
    classes of equal priors the threshold is the midpoint of the projected class means.

    Parameters
    ----------
    kernels : kernel, name, callable, list of these, "auto" or "precomputed"
        As in :class:`MKLClassifier`.
    reg : float or {"learn", "loo", "gcv"}
        The regularisation ``lam`` in ``G + lam I``, on the scale of unit traces.
        "learn" finds it together with the weights, as the weight of one more kernel,
        the identity; "loo" and "gcv" take the one of ``regs`` with the least
        leave-one-out error or generalised cross-validation score of the scores, both
        in closed form for the weights learned with each. For KFDA it is a number.
    criterion : {"rkda", "kfda"}
    norm : float, matrix or weight set
        As in :class:`MKLClassifier`; 1 is the simplex of the papers.
    solver : str or Solver
        "newton" (the default), "silp", "qcqp", "sdp", "sdp-approx", the name of any
        other solver, or an instance such as ``Semidefinite(backend="scs")``.
    priors : None, "empirical" or array of shape (n_classes,)
        Probabilities of the classes: equal ones, those of the training samples, or
        given ones (misclassification costs). They move the intercepts only.
    regs : array, optional
        What "loo" and "gcv" choose from; 13 values from 1e-6 to 1 by default.
    n_components : int, optional
        Directions that ``transform`` returns; all by default.
    psd, tol, max_iter, time_limit, memory_limit, callback, verbose
        As in :class:`MKLClassifier`.
    approximation, rank, landmarks, random_state
        As in :class:`MKLClassifier`; for RKDA. Everything but the temperature and
        "loo", which look at up to 20 000 left-out samples or somewhat more, follows
        from one pass over the samples.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
        Numbers of the columns if y holds several labels for each sample.
    kernel_names_, kernels_, kernel_contributions_, support_, n_iter_
        As in :class:`MKLClassifier`.
    kernel_weights_ : array of shape (n_kernels,)
        On the kernels of unit trace; they sum to one with ``norm=1``, if reg is learned
        together with the weight of I/n, ``n * reg_``.
    reg_ : float
        The lam used, learned or chosen.
    objective_ : float
        The criterion: F of RKDA, which is to be small, or F* of KFDA, to be large.
    explained_ratio_ : array of shape (n_directions,)
        Share of the regularised scatter along each direction that lies between classes.
    dual_coef_ : array of shape (n_directions, n_support)
        The directions.
    means_ : array of shape (n_classes, n_directions)
        Projected class means.
    coef_ : array of shape (1 or n_classes, n_directions)
        Of the decision function in the projected space.
    intercept_ : array of shape (1 or n_classes,)
        Of the decision function. It may be set, for instance to a point of the ROC
        curve.
    temperature_ : float, or array of shape (n_labels,)
        Factor between decision function and log-odds in ``predict_proba``, the one that
        makes the left-out training samples most likely.
    duality_gap_ : float
    solution_ : Solution
        With ``approximation``, that of the problem with the approximate kernels.
    approximation_error_ : ApproximationError
        Of the features, with ``approximation`` only: estimates for each kernel.
    regs_, loo_, gcv_ : arrays of shape (n_regs,)
        What was tried, if reg is chosen, and its scores.

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

    def __init__(
        self,
        kernels: Any = "auto",
        *,
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

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> MKLDiscriminant:
        """Learn kernel weights and discriminant directions.

        Parameters
        ----------
        X : array, sparse matrix, DataFrame, MultiView; Grams if precomputed
        y : array of shape (n_samples,), or indicators of shape (n_samples, n_labels)
        sample_weight : array of shape (n_samples,), optional
            Weight 2 equals the sample given twice, weight 0 its absence.
        """
        self._check_parameters()
        if self.approximation is not None:
            return self._fit_rows(X, y, sample_weight)
        training = self._training(X, y, sample_weight)
        if isinstance(self.reg, str) and self.reg != "learn":
            self._store(training, self._choose(partial(self._fit_reg, training)))
        else:
            self._store(training, self._fit_reg(training, self.reg))
        return self

    def reg_path(
        self, X: Any, y: Any, regs: Any, sample_weight: Any = None
    ) -> list[MKLDiscriminant]:
        """Return a fitted model for each of several values of ``reg``.

        Kernels are computed once, and each problem starts from the weights of the one
        before it: the values are solved in descending order and returned as given.

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
        training: Any
        if self.approximation is None:
            training = self._training(X, y, sample_weight)
            solve_one, store = self._fit_reg, "_store"
        else:
            training = self._space(self._feature_training(X, y, sample_weight))
            solve_one, store = self._fit_reg_features, "_store_features"
        models: dict[float, MKLDiscriminant] = {}
        start = None
        for reg in sorted(set(regs.tolist()), reverse=True):
            fit = solve_one(training, reg, start)
            start = fit.solution
            models[reg] = clone(self).set_params(reg=reg)
            for name in ("n_features_in_", "feature_names_in_", "classes_"):
                if hasattr(self, name):
                    setattr(models[reg], name, getattr(self, name))
            models[reg]._multilabel = self._multilabel
            getattr(models[reg], store)(training, fit)
        return [models[reg] for reg in regs.tolist()]

    def _choose(self, solve_one: Any) -> Any:
        """Return the best fit of those with the values in ``regs``."""
        self.regs_ = _check_regs(REGS if self.regs is None else self.regs)
        found: dict[float, tuple[float, float]] = {}
        best, start = None, None
        for reg in sorted(set(self.regs_.tolist()), reverse=True):
            fit = solve_one(reg, start)
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
        self, training: Training, reg: Any, start: Solution | None = None
    ) -> _Fit:
        """Solve for one reg, then the least-squares model on the combined kernel."""
        bank, w = training.bank, training.weight
        problem = self._problem(training, reg)
        solution = solve(
            problem,
            self.solver,
            tol=self.tol,
            max_iter=self.max_iter,
            time_limit=self.time_limit,
            callback=self.callback,
            verbose=self.verbose,
            start=None if start is None else Iterate(start.theta, start.A),
        )
        theta = solution.theta[: bank.shape[2]]
        if isinstance(reg, str):
            reg = joint_reg(solution.theta, float(w.sum()))
        system = least_squares(problem, reg, w)
        linear = LinearSolver(bank, system, theta)
        A, scores = linear.best(theta)
        inverse = linear.inverse_diagonal()
        out = left_out(system.right, A, inverse)
        mean = np.mean(system.right - system.ridge[:, None] * A - scores, axis=0)
        return _Fit(
            problem=problem,
            solution=solution,
            theta=theta,
            reg=float(reg),
            targets=system.right,
            A=A,
            scores=scores,
            out=out - mean,
            balance=reg / system.ridge,
            press=press(system.right, out, w),
            gcv=gcv(A, inverse, system.ridge, w),
        )

    def _problem(self, training: Training, reg: Any) -> MKLProblem:
        bank, target, w = training.bank, training.target, training.weight
        weights = self._weights()
        if self.criterion == "kfda":
            if self._multilabel or len(self.classes_) > 2:
                kind = "multilabel-indicator" if self._multilabel else "multiclass"
                raise ValueError(
                    "Only binary classification is supported. The type of the target "
                    f"is {kind}; use criterion='rkda'."
                )
            return kfda(bank, target, float(reg), weights, w)
        if self._multilabel:
            H = label_targets(target, w)
        else:
            H = class_targets(target, len(self.classes_), w)
        if isinstance(reg, str):
            return rkda_joint(bank, H, weights, w)
        return rkda(bank, H, float(reg), weights, w)

    def _store(self, training: Training, fit: _Fit) -> None:
        """Keep directions, decision rule and probabilities."""
        labels, w = training.target, training.weight
        rank = fit.A.shape[1] if self._multilabel else len(self.classes_) - 1
        turn, self.explained_ratio_ = projection(
            fit.targets, fit.scores, fit.balance, rank
        )
        coef, Z = fit.A @ turn, fit.scores @ turn
        self._keep(training, fit.theta, coef, np.zeros(coef.shape[1]))
        if self._multilabel:
            self._label_rules(fit, turn, labels, w)
        else:
            self._class_rule(fit, coef, Z, labels, w)
        out = fit.out @ turn @ self.coef_.T + self.intercept_
        if self._multilabel:
            self.temperature_ = np.array(
                [_temperature(out[:, [j]], labels[:, j], w) for j in range(len(out.T))]
            )
        else:
            self.temperature_ = _temperature(out, labels, w)
        self.kernel_contributions_ = MKLProblem(
            training.bank, fit.problem.loss, self._weights()
        ).contributions(fit.theta, fit.A)
        self.solution_ = fit.solution
        self.duality_gap_, self.n_iter_ = fit.solution.gap, fit.solution.n_iter
        self.reg_ = fit.reg
        given = None if self.reg == "learn" else fit.reg
        self.objective_ = criterion(fit.problem, fit.solution.upper, given)
        q = coef.shape[1]
        self._n_features_out = min(q, self.n_components or q)

    def _class_rule(
        self,
        fit: _Fit,
        coef: FloatArray,
        Z: FloatArray,
        labels: NDArray[np.intp],
        w: FloatArray,
    ) -> None:
        """Take classes as normal, with the criterion's covariance."""
        means, scatter = within_scatter(Z, labels, fit.balance)
        covariance = (scatter + fit.reg * coef.T @ Z) / fit.balance.sum()
        counts = np.bincount(labels, w, len(self.classes_))
        self._normal_classes(means, covariance, counts / w.sum())

    def _normal_classes(
        self, means: FloatArray, covariance: FloatArray, frequency: FloatArray
    ) -> None:
        """Set the decision rule from the classes' means and covariance."""
        k = len(self.classes_)
        self.means_ = means
        priors = _check_priors(self.priors, k, frequency)
        each, shift = gaussian_rule(self.means_, covariance, priors)
        if k == 2:
            each, shift = each[[1]] - each[[0]], shift[[1]] - shift[[0]]
        self.coef_, self.intercept_ = each, shift

    def _label_rules(
        self, fit: _Fit, turn: FloatArray, Y: FloatArray, w: FloatArray
    ) -> None:
        """Tell samples with a label from those without it along its own scores."""
        k = Y.shape[1]
        odds, shift = np.empty(k), np.empty(k)
        for j in range(k):
            F, has = fit.scores[:, [j]], Y[:, j].astype(np.intp)
            means, scatter = within_scatter(F, has, w)
            covariance = (scatter + fit.reg * fit.A[:, [j]].T @ F) / w.sum()
            frequency = np.bincount(has, w, 2) / w.sum()
            priors = _check_priors(self.priors, 2, frequency)
            each, rest = gaussian_rule(means, covariance, priors)
            odds[j], shift[j] = each[1, 0] - each[0, 0], rest[1] - rest[0]
        # scores are coordinates turned back
        back = np.linalg.pinv(turn)
        self.coef_, self.intercept_ = (back * odds).T, shift
        counts = w @ Y
        self.means_ = (Y * w[:, None]).T @ (fit.scores @ turn) / counts[:, None]

    # --- in feature space -------------------------------------------------------------

    def _space(self, training: FeatureTraining) -> FeatureSpace:
        rows = training.encoded(partial(indicators, n_classes=len(self.classes_)))
        statistics = rows.reduce(Statistics.of_block)
        exclusive, memory = not self._multilabel, room(self.memory_limit)
        return FeatureSpace(training.features, statistics, exclusive, rows, memory)

    def _fit_features(self, training: FeatureTraining) -> MKLDiscriminant:
        return self._fit_space(self._space(training))

    def _fit_sums(self, sums: Any) -> None:
        statistics = sums.gathered().statistics
        memory = room(self.memory_limit)
        self._fit_space(FeatureSpace(sums.features, statistics, True, None, memory))

    def _not_quadratic(self) -> str:
        return "reg='loo'" if self.reg == "loo" else ""

    def _fit_space(self, space: FeatureSpace) -> MKLDiscriminant:
        if isinstance(self.reg, str) and self.reg != "learn":
            fit = self._choose(partial(self._fit_reg_features, space))
        else:
            fit = self._fit_reg_features(space, self.reg)
        self._store_features(space, fit)
        return self

    def _fit_reg_features(
        self, space: FeatureSpace, reg: Any, start: Solution | None = None
    ) -> FeatureFit:
        first = None if start is None else Iterate(start.theta, start.A)
        return space.fit(reg, self._weights(), self._run, first)

    def _store_features(self, space: FeatureSpace, fit: FeatureFit) -> None:
        """Keep directions, decision rule and probabilities."""
        rank = fit.w.shape[1] if self._multilabel else len(self.classes_) - 1
        turn, self.explained_ratio_ = space.projection(fit, rank)
        coef = fit.w @ turn
        self._keep_features(space.features, space.scaling, fit.theta, coef)
        self.kernel_weights_ = fit.theta
        means, scatter = space.within(coef)
        stiff = fit.reg * fit.A.T @ fit.F
        if self._multilabel:
            self.means_ = means
            self._label_features(space, fit, stiff, turn)
        else:
            covariance = (scatter + turn.T @ stiff @ turn) / space.total
            self._normal_classes(means, covariance, space.statistics.target)
        out = fit.out @ turn @ self.coef_.T + self.intercept_
        if self._multilabel:
            self.temperature_ = np.array(
                [
                    _temperature(out[:, [j]], fit.labels[:, j], fit.weight)
                    for j in range(len(self.classes_))
                ]
            )
        else:
            self.temperature_ = _temperature(out, fit.labels.argmax(axis=1), fit.weight)
        slices, A = space.features.slices, space.reduced.dual(fit.A)
        self.kernel_contributions_ = contributions(fit.theta, A, slices)
        self.solution_ = replace(
            fit.solution,
            A=space.reduced.dual(fit.solution.A),
            dual=space.reduced.dual(fit.solution.dual),
        )
        self.duality_gap_, self.n_iter_ = fit.solution.gap, fit.solution.n_iter
        self.reg_ = fit.reg
        given = None if self.reg == "learn" else fit.reg
        self.objective_ = criterion(fit.problem, fit.solution.upper, given)
        q = coef.shape[1]
        self._n_features_out = min(q, self.n_components or q)

    def _label_features(
        self, space: FeatureSpace, fit: FeatureFit, stiff: FloatArray, turn: FloatArray
    ) -> None:
        """Tell samples with a label from those without it along its own scores."""
        k = len(self.classes_)
        odds, shift = np.empty(k), np.empty(k)
        for j in range(k):
            w, n = fit.w[:, j], np.array([space.total, 0.0])
            n += np.array([-1.0, 1.0]) * space.counts[j]
            total = float(space.sums[:, j] @ w)
            means = np.array([[-total], [total]]) / n[:, None]
            scatter = w @ space.scatter @ w - n @ means[:, 0] ** 2
            covariance = np.array([[(scatter + stiff[j, j]) / space.total]])
            priors = _check_priors(self.priors, 2, n / space.total)
            each, rest = gaussian_rule(means, covariance, priors)
            odds[j], shift[j] = each[1, 0] - each[0, 0], rest[1] - rest[0]
        self.coef_ = (np.linalg.pinv(turn) * odds).T
        self.intercept_ = shift

    def _run(self, problem: MKLProblem, start: Iterate | None = None) -> Solution:
        return self._solved(problem, self.solver, start)

    def _block_targets(self, blocks: Any) -> Any:
        """Return blocks with class numbers; several labels need arrays in memory."""
        self._multilabel = False
        return super()._block_targets(blocks)

    def _target(self, y: Any, weight: FloatArray) -> NDArray[Any]:
        """Return class numbers, or the indicators of labels."""
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
    def transform(self, X: Any) -> FloatArray:
        """Return the coordinates along the discriminant directions.

        They have mean zero on the training samples, and along each the regularised
        total scatter is one.

        Parameters
        ----------
        X : as in ``fit``; with precomputed kernels (n_samples, n_training, n_kernels)
        """
        check_is_fitted(self)
        return self._project(X)[:, : self._n_features_out]

    def _project(self, X: Any) -> FloatArray:
        if self._on_features:
            return np.asarray(self._model.scores(self._new(X)))
        return np.asarray(self._cross(X).apply(self._theta[0], self._A))

    def _scores(self, X: Any) -> FloatArray:
        """Return the decision function, one column for two classes."""
        check_is_fitted(self)
        return np.asarray(self._project(X) @ self.coef_.T + self.intercept_)

    def _parts(self, X: Any) -> FloatArray:
        """Return what each kernel adds to the decision function."""
        return np.einsum("iqm,tq->itm", super()._parts(X), self.coef_)

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

        The log-posteriors of the decision function, flattened by ``temperature_``: on
        their own training samples discriminants look better than they are.

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
                "criterion='kfda' works with the kernels themselves; with "
                "approximation= use criterion='rkda'."
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
            raise ValueError(f"n_components must be a whole number >= 1, got {n!r}.")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = self.criterion != "kfda"
        tags.classifier_tags.multi_label = self.criterion != "kfda"
        return tags


def _temperature(scores: FloatArray, labels: NDArray[Any], w: FloatArray) -> float:
    """Return the factor, at most one, that makes the labels most likely."""
    rows = np.arange(len(scores))
    size = float(np.abs(scores).max(initial=0.0))
    if not (np.isfinite(size) and size > 0):
        return 1.0

    def cost(log_factor: float) -> float:
        s = np.exp(log_factor) * scores
        if s.shape[1] == 1:
            return -float(w @ log_expit(np.where(labels == 1, s[:, 0], -s[:, 0])))
        return -float(w @ log_softmax(s, axis=1)[rows, labels])

    # between certainty as claimed and hardly any
    least = min(np.log(1e-3 / size), -1.0)
    found = minimize_scalar(cost, bounds=(least, 0.0), method="bounded")
    return float(np.exp(found.x))


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
