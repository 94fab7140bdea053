"""Baselines: the plain sum, the best aligned sum, and single kernels."""

from __future__ import annotations

import warnings
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone, is_classifier
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from mklearn.data.threads import one_blas_thread
from mklearn.estimators._base import BaseKernelMachine
from mklearn.estimators._folds import Part, SearchMixin, best_cell
from mklearn.estimators._predictor import GramPredictor, Predictor
from mklearn.estimators._targets import LabelsMixin, decided
from mklearn.estimators._training import GramTraining
from mklearn.estimators.classifier import MKLClassifier
from mklearn.estimators.discriminant import MKLDiscriminant
from mklearn.kernels.measures import centred_products
from mklearn.problems.base import shares
from mklearn.solvers.rules import alignment_weights


class UniformMKLClassifier(MKLClassifier):
    """Support vector classifier on the unweighted sum of the kernels.

    This is :class:`MKLClassifier` with ``norm=inf``, a baseline that is often hard to
    improve on.

    Parameters
    ----------
    kernels, fixed, C, normalize, class_weight, psd
        As in :class:`MKLClassifier`.
    tol, max_iter, time_limit, memory_limit
        As in :class:`MKLClassifier`.

    Attributes
    ----------
    kernel_weights_ : array of ones of shape (n_kernels,)
        They are not learned.
    classes_, C_, kernel_names_, kernels_, kernel_contributions_, support_
        As in :class:`MKLClassifier`.
    dual_coef_, intercept_, duality_gap_, n_iter_, solution_, predictor_
        As in :class:`MKLClassifier`.

    References
    ----------
    Kloft, M., Brefeld, U., Sonnenburg, S. and Zien, A. (2011). ℓp-norm multiple kernel
    learning. *Journal of Machine Learning Research* 12, 953-997.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from mklearn import UniformMKLClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = UniformMKLClassifier().fit(X, y)
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
            norm=np.inf,
            normalize=normalize,
            class_weight=class_weight,
            psd=psd,
            tol=tol,
            max_iter=max_iter,
            time_limit=time_limit,
            memory_limit=memory_limit,
        )


class _GivenWeights(MKLClassifier):
    """A classifier on kernels whose weights were found without it."""

    def _fit_weights(self, training: GramTraining, theta: NDArray[np.float64]) -> None:
        """Learn the classifier on the plain sum of the weighted kernels."""
        training = training.encoded(self._against_rest(training))
        self._check_beside(training)
        used = np.flatnonzero(theta)
        problem = training.problem(self._formula(), float(self.C), self._weights())
        problem = replace(problem, bank=training.bank.weighted(theta).select(used))
        solution = self._solve(training, problem)
        A = solution.A
        parts = np.zeros(len(theta))
        parts[used] = problem.bank.quad(A)
        bias, effects = self._effects(solution.bias)
        predictor = training.predictor(theta, A, bias).with_effects(effects)
        self._keep(training, predictor, theta, A, shares(parts))
        self.solution_, self.duality_gap_ = solution, solution.gap
        self.n_iter_, self.C_ = solution.n_iter, float(self.C)


class AlignmentMKLClassifier(_GivenWeights):
    """Support vector classifier on the sum of kernels best aligned with the classes.

    The weights maximise the centred alignment ``<G_theta, L> / (|G_theta| |L|)`` with
    the kernel L of the class indicators, over ``theta >= 0, |theta|_2 = 1`` (Cortes,
    Mohri and Rostamizadeh 2012, "alignf"): a small quadratic program that needs the
    Gram matrices only once. The classifier is fitted afterwards, so the weights do not
    depend on C.

    Parameters
    ----------
    kernels, fixed, C, normalize, class_weight, psd
        As in :class:`MKLClassifier`.
    tol, max_iter, time_limit, memory_limit
        As in :class:`MKLClassifier`.

    Attributes
    ----------
    alignment_ : float
        Alignment of the weighted sum, from 0 to 1.
    kernel_weights_ : array of shape (n_kernels,)
        The weights, with Euclidean norm one.
    solution_ : Solution
        Solution of the classifier for these weights.
    classes_, C_, kernel_names_, kernels_, kernel_contributions_, support_
        As in :class:`MKLClassifier`.
    dual_coef_, intercept_, duality_gap_, n_iter_, predictor_
        As in :class:`MKLClassifier`.

    References
    ----------
    Cortes, C., Mohri, M. and Rostamizadeh, A. (2012). Algorithms for learning kernels
    based on centered alignment. *Journal of Machine Learning Research* 13, 795-828.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from mklearn import AlignmentMKLClassifier
    >>> X, y = load_wine(return_X_y=True)
    >>> model = AlignmentMKLClassifier().fit(X, y)
    >>> bool(model.score(X, y) > 0.95), bool(model.alignment_ > 0.5)
    (True, True)
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
            norm=np.inf,
            normalize=normalize,
            class_weight=class_weight,
            psd=psd,
            tol=tol,
            max_iter=max_iter,
            time_limit=time_limit,
            memory_limit=memory_limit,
        )

    @one_blas_thread
    def fit(
        self, X: Any, y: Any = None, sample_weight: Any = None
    ) -> AlignmentMKLClassifier:
        """Find the weights, then fit the classifier.

        Parameters
        ----------
        X, y, sample_weight
            As in :class:`MKLClassifier`.
        """
        self._check_parameters()
        training = self._grams(X, y, sample_weight)
        bank, k = training.bank, len(self.classes_)
        w = training.weight
        Z = np.eye(k)[training.target]
        Z = Z - w @ Z / w.sum()
        inner, with_target = centred_products(bank, Z, w)
        theta = alignment_weights(inner, with_target)
        self._fit_weights(training, theta)
        size = np.sqrt(theta @ inner @ theta) * np.linalg.norm(Z.T @ (w[:, None] * Z))
        self.alignment_ = float(theta @ with_target / size) if size > 0 else 0.0
        return self


class BestKernelClassifier(SearchMixin, _GivenWeights):
    """Support vector classifier on the single kernel that is best in cross-validation.

    Parameters
    ----------
    kernels, fixed, C, normalize, class_weight
        As in :class:`MKLClassifier`.
    cv : int, splitter or iterable
        Cross-validation folds, on which each kernel is tried alone.
    psd, tol, max_iter, time_limit, memory_limit
        As in :class:`MKLClassifier`.
    n_jobs : int, optional
        Number of kernels tried in parallel.

    Attributes
    ----------
    best_index_ : int
        Index of the chosen kernel.
    cv_scores_ : array of shape (n_kernels,)
        Mean accuracy of each kernel alone.
    kernel_weights_ : array of shape (n_kernels,)
        One for the chosen kernel and zero for the others.
    classes_, C_, kernel_names_, kernels_, kernel_contributions_, support_
        As in :class:`MKLClassifier`.
    dual_coef_, intercept_, duality_gap_, n_iter_, solution_, predictor_
        As in :class:`MKLClassifier`.

    References
    ----------
    Kloft, M., Brefeld, U., Sonnenburg, S. and Zien, A. (2011). ℓp-norm multiple kernel
    learning. *Journal of Machine Learning Research* 12, 953-997.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from mklearn import BestKernelClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = BestKernelClassifier(["linear", "rbf"], cv=3).fit(X, y)
    >>> model.cv_scores_.shape, sorted(model.kernel_weights_.tolist())
    ((2,), [0.0, 1.0])
    """

    def __init__(
        self,
        kernels: Any = "auto",
        *,
        fixed: Any = None,
        C: float = 1.0,
        normalize: str | None = "multiplicative",
        class_weight: Any = None,
        cv: Any = 5,
        psd: str = "check",
        tol: float = 1e-3,
        max_iter: int = 1000,
        time_limit: float | None = None,
        memory_limit: int | None = None,
        n_jobs: int | None = None,
    ) -> None:
        super().__init__(
            kernels,
            fixed=fixed,
            C=C,
            norm=1,
            normalize=normalize,
            class_weight=class_weight,
            psd=psd,
            tol=tol,
            max_iter=max_iter,
            time_limit=time_limit,
            memory_limit=memory_limit,
        )
        self.cv = cv
        self.n_jobs = n_jobs

    @one_blas_thread
    def fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, groups: Any = None
    ) -> BestKernelClassifier:
        """Choose the kernel by cross-validation, then fit it on all samples.

        Parameters
        ----------
        X, y, sample_weight
            As in :class:`MKLClassifier`; the weights are used in the scores as well.
        groups : array of shape (n_samples,), optional
            Group labels, such as subjects, passed on to ``cv.split``. With an integer
            ``cv`` all samples of a group fall into the same fold. If there are fewer
            groups than folds, or fewer that contain some class, there are only as many
            folds as these groups.
        """
        self._check_parameters()
        self._warn_of_subjects(X, y, groups)
        training = self._grams(X, y, sample_weight)
        folds = self._folds(training, y, sample_weight, groups)
        each = np.arange(training.raw.shape[2])[:, None]
        scores: NDArray[np.float64] = np.array(
            folds.run(self._score, self.n_jobs, each)
        )
        self.cv_scores_ = scores.mean(axis=1)
        (self.best_index_,) = best_cell(scores, lambda m: m)
        weights = np.zeros(training.raw.shape[2])
        weights[self.best_index_] = 1.0
        self._fit_weights(training, weights)
        self.kernel_contributions_ = weights.copy()
        return self

    def _score(self, part: Part) -> float:
        """Return the accuracy of one kernel on one fold."""
        if part.whole.design is not None:
            return self._score_beside(part)
        model = MKLClassifier(
            "precomputed",
            C=self.C,
            norm=1,
            normalize=self.normalize,
            class_weight=self.class_weight,
            psd="ignore",
            tol=self.tol,
            max_iter=self.max_iter,
            time_limit=self.time_limit,
        )
        return part.score(model, self.classes_[part.whole.target])

    def _score_beside(self, part: Part) -> float:
        """Return the same with covariates."""
        with warnings.catch_warnings():
            # a kernel that is constant on a fold is simply a bad kernel
            warnings.simplefilter("ignore", UserWarning)
            training, cross = part.normalised(self.normalize)
            training = training.encoded(self._against_rest(training))
            formula, C = self._formula(), float(self.C)
            solution = self._solve(
                training, training.problem(formula, C, self._weights())
            )
        scores = cross.apply(solution.theta, solution.A)
        new = part.design_tested()
        assert new is not None
        scores = scores + new @ solution.bias
        target = part.whole.target[part.fold.tested]
        return part.fold.accuracy(decided(scores) == target)


class SingleKernelCV(SearchMixin, LabelsMixin, BaseKernelMachine):
    """One kernel and its regularisation, both chosen by cross-validation.

    This is the baseline in the papers on discriminant kernel learning: every kernel is
    tried alone with every value of the regularisation ("double" cross-validation), and
    the best pair is fitted on all samples. With a single kernel, only its
    regularisation is chosen.

    Parameters
    ----------
    estimator : MKLDiscriminant, MKLClassifier or another classifier of mklearn
        The model to fit on each kernel; its own ``kernels`` are ignored. The parameter
        chosen is ``reg`` if the model has one, otherwise ``C``. To choose one kernel
        for numbers or survival times, use ``MKLRegressorCV(select="one")`` or
        ``MKLCoxCV(select="one")``.
    kernels : kernel, name, callable, list of these, "auto" or "precomputed"
        The kernels to choose from, as in :class:`MKLClassifier`.
    fixed : str, int, or list of these, optional
        Covariates, as in :class:`MKLClassifier`, for an estimator that supports them;
        its own ``fixed`` is ignored.
    values : array, optional
        Values to choose from; by default 13 values of ``reg`` from 1e-6 to 1, or of
        ``C`` from 0.001 to 1000.
    cv : int, splitter or iterable
        Cross-validation folds, the same for all kernels and values.
    psd, memory_limit
        As in :class:`MKLClassifier`.
    n_jobs : int, optional
        Number of kernels tried in parallel.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
    best_index_ : int
        Index of the chosen kernel.
    best_value_ : float
        The chosen regularisation.
    best_values_ : array of shape (n_kernels,)
        The best regularisation of each kernel.
    values_ : array of shape (n_values,)
    cv_scores_ : array of shape (n_kernels, n_values)
        Mean accuracies.
    estimator_ : estimator
        The model fitted on the chosen kernel, with class indices as labels.
    kernel_weights_ : array of shape (n_kernels,)
        One for the chosen kernel and zero for the others.
    kernel_names_, kernels_, kernel_contributions_, support_, dual_coef_, intercept_
        As in :class:`MKLClassifier`, for the final fit.
    fixed_effects_, fixed_names_, fixed_dropped_
        As in :class:`MKLClassifier`.
    solution_, predictor_
        The solution of ``estimator_``, and its predictor, which takes samples instead
        of Gram matrices.

    References
    ----------
    Ye, J., Ji, S. and Chen, J. (2008). Multi-class discriminant kernel learning via
    convex programming. *Journal of Machine Learning Research* 9, 719-758.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from mklearn import MKLDiscriminant, SingleKernelCV
    >>> X, y = load_iris(return_X_y=True)
    >>> model = SingleKernelCV(MKLDiscriminant(), ["linear", "rbf"], values=[1e-3, 0.1])
    >>> model.fit(X, y).cv_scores_.shape, bool(model.score(X, y) > 0.95)
    ((2, 2), True)
    """

    normalize = None
    predictor_: OfOneKernel

    def __init__(
        self,
        estimator: Any,
        kernels: Any = "auto",
        *,
        fixed: Any = None,
        values: Any = None,
        cv: Any = 5,
        psd: str = "check",
        memory_limit: int | None = None,
        n_jobs: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.kernels = kernels
        self.fixed = fixed
        self.values = values
        self.cv = cv
        self.psd = psd
        self.memory_limit = memory_limit
        self.n_jobs = n_jobs

    @one_blas_thread
    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None
    ) -> SingleKernelCV:
        """Choose kernel and regularisation, then fit them on all samples.

        Parameters
        ----------
        X, y, sample_weight
            As in :class:`MKLClassifier`; the weights are used in the scores as well.
        groups : array of shape (n_samples,), optional
            Group labels, such as subjects, passed on to ``cv.split``. With an integer
            ``cv`` all samples of a group fall into the same fold. If there are fewer
            groups than folds, or fewer that contain some class, there are only as many
            folds as these groups.
        """
        if not is_classifier(self.estimator):
            raise ValueError(
                "SingleKernelCV needs a classifier as estimator, got "
                f"{type(self.estimator).__name__}. To choose one kernel for other "
                "targets, use MKLRegressorCV or MKLCoxCV with select='one'."
            )
        name = "reg" if "reg" in self.estimator.get_params() else "C"
        default = np.logspace(-6, 0, 13) if name == "reg" else np.logspace(-3, 3, 13)
        values = default if self.values is None else self.values
        self.values_ = np.asarray(values, dtype=np.float64)
        if self.values_.ndim != 1 or not len(self.values_):
            raise ValueError(f"values must be a list of numbers, got {self.values!r}.")
        if self._has_fixed() and "fixed" not in self.estimator.get_params():
            raise ValueError(
                f"{type(self.estimator).__name__} does not support covariates; use an "
                "estimator with the parameter fixed, such as MKLClassifier."
            )
        self._warn_of_subjects(X, y, groups)
        training = self._coded(self._grams(X, y, sample_weight))
        folds = self._folds(training, y, sample_weight, groups)
        M = training.raw.shape[2]
        job = partial(self._scores_alone, name=name)
        found = folds.run(job, self.n_jobs, np.arange(M)[:, None])
        scores = np.moveaxis(np.array(found), 1, 2)
        self.cv_scores_ = scores.mean(axis=2)
        self.best_index_, at = best_cell(scores, lambda m, i: (m, i))
        self.best_value_ = float(self.values_[at])
        self.best_values_ = self.values_[self.cv_scores_.round(12).argmax(axis=1)]
        alone = training.raw.select([self.best_index_])
        self.estimator_ = self._alone(**{name: self.best_value_})
        self.estimator_.fit(alone, training.target, sample_weight=training.weight)
        weights = np.zeros(M)
        weights[self.best_index_] = 1.0
        n = len(training.weight)
        kept = training.predictor(weights, np.ones((n, 1)), np.zeros(1))
        chosen = OfOneKernel.of(kept, self.estimator_.predictor_)
        if self._fixed is not None and chosen.effects is None:  # all were dropped
            chosen = chosen.with_effects(np.zeros((0, len(chosen.bias))))
        self._keep(training, chosen, weights, np.zeros((n, 1)), weights.copy())
        support = training.index[self.estimator_.support_]
        order = np.argsort(support)
        self.support_ = support[order]
        self.dual_coef_ = self.estimator_.dual_coef_[:, order]
        self.solution_ = self.estimator_.solution_
        return self

    @property
    def intercept_(self) -> NDArray[np.float64]:
        """The intercept of the model on the chosen kernel."""
        return self.estimator_.intercept_

    @intercept_.setter
    def intercept_(self, value: Any) -> None:
        self.estimator_.intercept_ = value
        kept, alone = self.predictor_.kept, self.estimator_.predictor_
        self.predictor_ = OfOneKernel.of(kept, alone)

    def _coded(self, training: GramTraining) -> GramTraining:
        """Return the training whose kernels carry the covariates as numbers.

        They are coded once, so that a category may be missing on a fold.
        """
        if self._fixed is None or training.design is None:
            return training
        coding = self._fixed.coding
        values = (training.design @ np.linalg.inv(coding.to_units))[:, 1:]
        raw = copy(training.raw)
        raw.beside = dict(zip(coding.names, values.T, strict=True))
        return replace(training, raw=raw)

    def _alone(self, **settings: Any) -> Any:
        model = clone(self.estimator)
        if "fixed" in model.get_params():
            names = () if self._fixed is None else self._fixed.coding.names
            settings["fixed"] = list(names) or None
        return model.set_params(kernels="precomputed", psd="ignore", **settings)

    def _scores_alone(self, part: Part, name: str) -> list[float]:
        """Return the accuracy of one kernel on one fold for every value."""
        target = part.whole.target
        if type(self.estimator) is MKLDiscriminant:  # not another class that fits anew
            model = self._alone(reg=float(self.values_[0]))
            return part.scores_alone(model, target, self.values_)
        return [
            part.score(self._alone(**{name: value}), target)
            for value in self.values_.tolist()
        ]

    @available_if(lambda self: hasattr(self.estimator, "predict_proba"))
    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probability of each class.

        Parameters
        ----------
        X : as in ``fit``; with precomputed kernels (n_samples, n_training, n_kernels)
        """
        check_is_fitted(self)
        rows = self.checked(X)
        cross = self.predictor_.kept.cross(rows)
        if self.fixed_names_:
            cross = cross.with_covariates(rows.covariates)
        return self.estimator_.predict_proba(cross)


@dataclass(frozen=True)
class OfOneKernel(Predictor):
    """The predictor of a model on one kernel, for samples in place of its Grams.

    Attributes
    ----------
    kept : GramPredictor
        Makes the kernel between new samples and all those of training.
    alone : Predictor
        Of the model that takes it.
    """

    kept: GramPredictor
    alone: Predictor

    @classmethod
    def of(cls, kept: GramPredictor, alone: Predictor) -> OfOneKernel:
        """Return the two, one after the other; covariates are added at the end."""
        bias, effects, origin = alone.bias, alone.effects, alone.origin
        if alone.rule is not None:
            effects = None if effects is None else effects @ alone.rule.T
            origin = None if origin is None else origin @ alone.rule.T
        bias = bias if origin is None else bias + origin
        plain = alone.with_effects(None)
        return cls(kept.n_kernels, kept.used, bias, kept, plain, effects=effects)

    @property
    def takes_samples(self) -> bool:
        """As the kernels ask for it."""
        return self.kept.takes_samples

    @property
    def n_coordinates(self) -> int:
        """Number of scores."""
        return len(self.bias)

    def example(self, n: int) -> Any:
        """Return samples, or Grams, as the kernels ask for it."""
        return self.kept.example(n)

    def project(self, X: Any) -> NDArray[np.float64]:
        """Return the scores of the model on the kernel, without bias."""
        return np.asarray(self.alone.scores(self.kept.cross(X)) - self.alone.bias)

    def terms(self, X: Any) -> NDArray[np.float64]:
        """Return the contribution of the kernel to the scores."""
        return self.alone.parts(self.kept.cross(X))

    def check(self) -> None:
        """Raise ValueError if the values are inconsistent."""
        super().check()
        self.kept.check()
        self.alone.check()
