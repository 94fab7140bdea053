"""Classifiers that learn their kernel."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.utils.metaestimators import available_if

from mklearn.data.reading import by_blocks
from mklearn.estimators._base import Training
from mklearn.estimators._features import FeatureTraining, against_rest, gather
from mklearn.estimators._labels import LabelsMixin, one_vs_rest
from mklearn.estimators._mkl import BaseMKL, check_loss, check_positive, weight_set
from mklearn.estimators.accumulator import Accumulator, StatisticsMixin
from mklearn.kernels.diagonal import add_diagonal
from mklearn.problems import Hinge
from mklearn.problems.losses import by_name


def _gives_probabilities(model: MKLClassifier) -> bool:
    if model.loss == "logistic":
        return True
    raise AttributeError(
        f"Probabilities need loss='logistic', and loss is {model.loss!r}."
    )


class MKLClassifier(LabelsMixin, StatisticsMixin, BaseMKL):
    """Classifier on a learned combination of kernels (ℓp-norm MKL).

    Solves, to a certified duality gap, ::

        min  C sum_i V(f(x_i), y_i) + ½ sum_m |w_m|^2 / theta_m
        s.t. theta >= 0, |theta|_p <= 1,    f(x) = sum_m <w_m, phi_m(x)> + b

    over ``w``, ``b`` and the kernel weights ``theta`` together (Kloft et al. 2011).

    Parameters
    ----------
    kernels : kernel, name, callable, list of these, "auto" or "precomputed"
        What to combine. "auto" builds a bank from X: a linear kernel and five RBF
        widths on standardised columns for each view. "precomputed" takes Gram matrices
        of shape (n, n, n_kernels), kernels last, or a :class:`KernelBank`, as X.
    C : float or "learn"
        Cost of errors. "learn" (only for ``loss="squared_hinge"``) finds it together
        with the weights: ``1 / C`` is the weight of one more kernel, the identity,
        within the same norm (SM2_C of Lanckriet et al. 2004).
    norm : float, matrix or weight set
        The p of the norm on the weights, from 1 (sparse) to ``inf`` (plain sum); a
        positive definite matrix E for ``theta'E theta <= 1``, one row for each kernel
        (and a last one for the identity if C is learned); or a set such as
        ``ElasticNet(0.5)`` or ``BlockNorm(4)``.
    loss : {"hinge", "squared_hinge", "squared", "logistic"}
        ``V(f, y)`` for labels -1 and 1: ``max(0, 1 - y f)``, ``½ max(0, 1 - y f)^2``,
        ``½ (y - f)^2`` or ``log(1 + exp(-y f))``.
    normalize : {None, "center", "trace", "multiplicative", "spherical"}
        How kernels are made comparable, with the statistics of the training samples.
        None takes them exactly as given.
    weights : {"shared", "per-class"}
        With more than two classes (one against the rest): one set of kernel weights
        for all classes, or one for each.
    solver : str or Solver
        "auto", a name such as "newton" or "alternating", or an instance.
    class_weight : dict, "balanced" or None
        Factors of C by class.
    psd : {"check", "clip", "ignore"}
        What to do about precomputed or callable kernels that are not positive
        semidefinite: raise an error, remove the negative part, or nothing.
    tol : float
        Relative duality gap to reach.
    max_iter : int
        Limit on the solver's iterations.
    time_limit : float, optional
        Limit in seconds for each problem solved.
    memory_limit : int, optional
        Bytes that kernels may take; half of what is free by default.
    callback : callable, optional
        Called with the history after each iteration; a true answer stops.
    verbose : int
        1 for a progress bar, 2 for a line for each iteration.
    approximation : {None, "nystroem", "rff"}
        None works with the kernels themselves. The others replace each by explicit
        features (:class:`~mklearn.kernels.FeatureMap`), for more samples than a kernel
        matrix has room for; X may then also come in blocks, see the guide on large
        data.
    rank : int or float
        Features of each kernel, or, between 0 and 1, the relative error that no kernel
        may exceed.
    landmarks : {"kmeans", "uniform", "leverage"}
        How the landmarks of Nyström features are chosen.
    random_state : int, RandomState or None
        Of landmarks and random features.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
    C_ : float, or array of shape (n_classes,) if learned per class
        The C used, given or learned; ``inf`` if no error was worth its cost.
    kernel_names_ : tuple of str
    kernels_ : tuple
        The kernels with all parameters as numbers (None for precomputed ones).
    kernel_weights_ : array of shape (n_kernels,) or (n_classes, n_kernels)
        The ``theta`` above, on the normalised kernels.
    kernel_contributions_ : array of the same shape
        Scale-free shares ``theta_m |w_m / theta_m|^2``, each row sums to one.
    support_ : array
        Rows of X that are support vectors (without ``approximation``).
    dual_coef_ : array of shape (1 or n_classes, n_support)
        Without ``approximation``.
    intercept_ : array of shape (1 or n_classes,)
    duality_gap_ : float
        The relative gap that certifies the solution (the largest over problems).
    n_iter_ : int
    solution_ : Solution, or list of them with weights per class
        With ``approximation``, that of the problem with the approximate kernels.
    approximation_error_ : ApproximationError
        Of the features, with ``approximation`` only: estimates for each kernel.

    References
    ----------
    Kloft, M., Brefeld, U., Sonnenburg, S. and Zien, A. (2011). ℓp-norm multiple kernel
    learning. *Journal of Machine Learning Research* 12, 953-997.

    Lanckriet, G., Cristianini, N., Bartlett, P., El Ghaoui, L. and Jordan, M. (2004).
    Learning the kernel matrix with semidefinite programming. *Journal of Machine
    Learning Research* 5, 27-72.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from mklearn import MKLClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = MKLClassifier(norm=1).fit(X, y)
    >>> bool(model.score(X, y) > 0.95), bool(model.duality_gap_ <= 1e-3)
    (True, True)
    """

    def __init__(
        self,
        kernels: Any = "auto",
        *,
        C: float | str = 1.0,
        norm: Any = 2,
        loss: str = "hinge",
        normalize: str | None = "multiplicative",
        weights: str = "shared",
        solver: Any = "auto",
        class_weight: Any = None,
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
        self.norm = norm
        self.loss = loss
        self.normalize = normalize
        self.weights = weights
        self.solver = solver
        self.class_weight = class_weight
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

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> MKLClassifier:
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
        if self.approximation is not None:
            return self._fit_rows(X, y, sample_weight)
        training = self._training(X, y, sample_weight)
        Y = one_vs_rest(training.target, len(self.classes_))
        tasks = [Y] if self.weights == "shared" else [y[:, None] for y in Y.T]
        cost = self._costs(training)
        if isinstance(self.C, str):
            self._learn_cost(training, tasks, cost)
        else:
            self._learn(training, [self._loss(Y, self.C * cost) for Y in tasks])
            self.C_ = float(self.C)
        return self

    def _fit_features(self, training: FeatureTraining) -> MKLClassifier:
        """Learn in feature space."""
        factors = self._factors(lambda: self._counts(training.rows))
        rows = training.encoded(partial(against_rest, factors=factors))
        found = rows.reduce(partial(gather, factors=factors))
        loss = None if self.loss == "squared" else by_name(self.loss)
        tasks = self._feature_tasks()
        self._learn_features(training.features, rows, found, loss, float(self.C), tasks)
        self.C_ = float(self.C)
        return self

    def _fit_sums(self, sums: Accumulator) -> None:
        found, tasks = sums.against_rest(), self._feature_tasks()
        self._learn_features(sums.features, None, found, None, float(self.C), tasks)
        self.C_ = float(self.C)

    def _not_quadratic(self) -> str:
        if self.class_weight is not None:
            return f"class_weight={self.class_weight!r}"
        return "" if self.loss == "squared" else f"loss={self.loss!r}"

    def _feature_tasks(self) -> list[slice]:
        """Return which columns of the targets share their kernel weights."""
        k = len(self.classes_)
        if self.weights == "shared":
            return [slice(None)]
        return [slice(t, t + 1) for t in range(1 if k == 2 else k)]

    @available_if(_gives_probabilities)
    @by_blocks
    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probability of each class, shape (n_samples, n_classes).

        For two classes this is the logistic model; for more, the probabilities of each
        class against the rest, divided by their sum.

        Parameters
        ----------
        X : as in ``fit``; with precomputed kernels (n_samples, n_training, n_kernels)
        """
        scores = self._scores(X)
        if scores.shape[1] == 1:
            return np.column_stack([expit(-scores), expit(scores)])
        # shifting all logarithms keeps the ratios where every probability underflows
        logs = -np.logaddexp(0.0, -scores)
        p = np.exp(logs - logs.max(axis=1, keepdims=True))
        return np.asarray(p / p.sum(axis=1, keepdims=True))

    def _loss(self, Y: NDArray[np.float64], cost: NDArray[np.float64]) -> Any:
        return by_name(self.loss).on(Y, np.repeat(cost[:, None], Y.shape[1], axis=1))

    def _learn_cost(
        self,
        training: Training,
        tasks: list[NDArray[np.float64]],
        cost: NDArray[np.float64],
    ) -> None:
        """Learn ``1 / C`` as the weight of the identity kernel.

        The slacks ``xi = max(0, 1 - y f)`` of the squared hinge loss cost ``½ sum_i C
        s_i xi_i^2``. This is ``½ |w_0|^2 / theta_0`` for ``theta_0 = 1 / C`` and one
        more kernel ``diag(1 / s)``, whose features tell each training sample from all
        others: with it in ``f`` every sample keeps the margin ``y f >= 1``, and what is
        left is a hard margin problem, the hinge loss without a bound on alpha.
        """
        # Any bound that the optimum keeps leaves it as it is, and makes the value of
        # every f finite. Along its ray alpha has 1'alpha = 2 V at the optimum V, and
        # y'alpha = 0 gives each class half of it: alpha_i <= V. And V is at most the
        # value at w = 0, equal weights and the best bias, summed over the tasks:
        # 2 S+ S- / ((S+ + S-) theta_0), S the sums of s by class. A smaller theta_0
        # is on the safe side; at most 1 covers BlockNorm, where w_0 alone costs
        # ½ |w_0|^2.
        M = training.raw.shape[2]
        unit = training.weight.sum() if self.normalize == "trace" else 1.0
        bank = add_diagonal(training.bank, 1.0 / (unit * cost))
        even = min(1.0, float(weight_set(self.norm).center(M + 1)[-1]))
        losses = []
        for Y in tasks:
            plus, minus = (cost @ (Y == sign) for sign in (1.0, -1.0))
            bound = np.sum(2 * unit * plus * minus / (plus + minus)) / even
            losses.append(Hinge(Y, np.full(Y.shape, bound)))
        solutions = self._learn(training, losses, bank)
        with np.errstate(divide="ignore"):
            C = unit / np.array([s.theta[M] for s in solutions])
        self.C_ = float(C[0]) if len(C) == 1 else C

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_loss(self.loss, "labels")
        if self.loss == "squared_hinge":
            if not (isinstance(self.C, str) and self.C == "learn"):
                check_positive("C", self.C, " or 'learn'")
        elif isinstance(self.C, str) and self.C == "learn":
            raise ValueError(
                "C='learn' needs loss='squared_hinge', where 1 / C is a kernel weight, "
                f"got loss={self.loss!r}."
            )
        else:
            check_positive("C", self.C)
        if isinstance(self.C, str) and self.approximation is not None:
            raise ValueError(
                "C='learn' needs a kernel that tells all samples apart, which "
                "features cannot; give a number, or approximation=None."
            )
        if self.weights not in ("shared", "per-class"):
            raise ValueError(
                f"weights must be 'shared' or 'per-class', got {self.weights!r}."
            )
