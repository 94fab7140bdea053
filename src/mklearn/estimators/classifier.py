"""Classifiers that learn their kernel."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.utils.metaestimators import available_if

from mklearn.data.checks import NothingToLearnError
from mklearn.data.reading import by_blocks
from mklearn.data.threads import one_blas_thread
from mklearn.estimators._base import TOLD, PosedMixin, StatisticsMixin
from mklearn.estimators._parameters import check_loss, check_positive
from mklearn.estimators._targets import LabelsMixin
from mklearn.estimators._training import SAMPLE, Training
from mklearn.problems.losses import Softmax, by_name
from mklearn.solvers import Solution


def _gives_probabilities(model: MKLClassifier) -> bool:
    if model.loss in ("logistic", "multinomial"):
        return True
    raise AttributeError(
        "Probabilities need loss='logistic' or 'multinomial', but loss is "
        f"{model.loss!r}."
    )


def _many(training: Any) -> bool:
    """Return whether there are too many samples for a linear program."""
    return not training.exact and training.n_rows > SAMPLE


class MKLClassifier(LabelsMixin, StatisticsMixin, PosedMixin):
    """Classifier on a learned combination of kernels (ℓp-norm MKL).

    Solves, to a certified duality gap, ::

        min  C sum_i V(f(x_i), y_i) + ½ sum_m |w_m|^2 / theta_m
        s.t. theta >= 0, |theta|_p <= 1,    f(x) = sum_m <w_m, phi_m(x)> + b

    over ``w``, ``b`` and the kernel weights ``theta`` jointly (Kloft et al. 2011).

    Parameters
    ----------
    kernels : kernel, name, callable, list of these, "auto" or "precomputed"
        The kernels to combine. "auto" builds a bank from X: for each view, a linear
        kernel and RBF kernels of five widths on standardised columns. With
        "precomputed", X holds Gram matrices, as an array of shape (n, n, n_kernels),
        kernels last, or as a :class:`KernelBank`.
    fixed : str, int, or list of these, optional
        Covariates, given by the names or indices of columns of X, or by the names of
        views. They enter the model linearly and unpenalised, like the intercept, and no
        kernel uses them unless it names them. Categories become indicators of all
        values but the first; collinear columns are dropped. Columns that are not
        covariates must be numeric.
    C : float or "learn"
        Cost of errors. "learn" (only for ``loss="squared_hinge"``) learns it together
        with the weights: ``1 / C`` is then the weight of an additional kernel, the
        identity, under the same norm constraint (SM2_C of Lanckriet et al. 2004).
    norm : float, matrix or weight set
        The p of the norm on the weights, from 1 (sparse) to ``inf`` (plain sum); a
        positive definite matrix E for ``theta'E theta <= 1``, with one row for each
        kernel (and a last one for the identity if C is learned); or a weight set such
        as ``ElasticNet(0.5)`` or ``BlockNorm(4)``.
    loss : {"hinge", "squared_hinge", "squared", "logistic", "multinomial"}
        ``V(f, y)`` for labels -1 and 1: ``max(0, 1 - y f)``, ``½ max(0, 1 - y f)^2``,
        ``½ (y - f)^2`` or ``log(1 + exp(-y f))``; or, for all classes jointly,
        ``log(sum_c exp(f_c)) - f_y``, which for two classes is the logistic loss. Each
        step with the multinomial loss needs one (n, n) factorisation per class or, with
        ``approximation``, a few passes over the rows.
    normalize : {None, "center", "trace", "multiplicative", "spherical"}
        How the kernels are normalised, using statistics of the training samples. None
        uses them exactly as given.
    weights : {"shared", "per-class"}
        With more than two classes (one-vs-rest): one set of kernel weights shared by
        all classes, or one for each class.
    solver : str or Solver
        "auto", a name such as "newton" or "alternating", or a solver object.
    class_weight : dict, "balanced" or None
        Multiplies C for the samples of each class.
    psd : {"check", "clip", "ignore"}
        What to do with precomputed or callable kernels that are not positive
        semidefinite: raise an error, clip the negative eigenvalues, or do nothing.
    tol : float
        Relative duality gap to reach.
    max_iter : int
        Limit on the solver's iterations.
    time_limit : float, optional
        Time limit for ``fit`` in seconds, including the computation and checking of the
        kernels. When it is reached, the best solution so far is kept with a warning; if
        not all kernels have been computed by then, an error is raised.
    memory_limit : int, optional
        Memory that the kernels may use, in bytes; by default 2 GB, or half of the free
        memory if that is less or if the kernels are costly to compute.
    callback : callable, optional
        Called with the history after each iteration; it may return True to stop.
    verbose : int
        1 shows a progress bar, 2 prints a line for each iteration.
    approximation : {None, "nystroem", "rff"}
        None uses the exact kernels. Otherwise each kernel is replaced by explicit
        features (:class:`~mklearn.kernels.FeatureMap`), for data sets whose kernel
        matrices would not fit into memory; X may then also be given in blocks, see the
        guide on large data.
    rank : int or float
        Number of features per kernel, or, if between 0 and 1, the largest relative
        error allowed for any kernel.
    landmarks : {"kmeans", "uniform", "leverage"}
        How the landmarks of Nyström features are chosen.
    random_state : int, RandomState or None
        Seed for the choice of landmarks and for random features.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
    C_ : float, or array of shape (n_classes,) if learned per class
        The value of C used, whether given or learned; ``inf`` if the optimum is a hard
        margin.
    kernel_names_ : tuple of str
    kernels_ : tuple
        The kernels with all their parameters resolved to numbers (None for precomputed
        kernels).
    kernel_weights_ : array of shape (n_kernels,) or (n_classes, n_kernels)
        The ``theta`` above, for the normalised kernels.
    kernel_contributions_ : array of the same shape
        Scale-free shares ``theta_m |w_m / theta_m|^2``, each row sums to one.
    support_ : array
        Indices of the rows of X that are support vectors (without ``approximation``).
    dual_coef_ : array of shape (1 or n_classes, n_support)
        Without ``approximation``.
    intercept_ : array of shape (1 or n_classes,)
    fixed_effects_ : array of shape (n_covariates,) or (n_classes, n_covariates)
        Coefficients of the covariates, in the units of X.
    fixed_names_ : tuple of str
        Names of the columns that encode the covariates.
    fixed_dropped_ : tuple of str
        Names of the columns dropped because they are constant or collinear with earlier
        ones.
    duality_gap_ : float
        The relative gap that certifies the solution; the largest one if several
        problems were solved.
    n_iter_ : int
    solution_ : Solution, or list of them with weights per class
        With ``approximation``, the solution for the approximate kernels.
    predictor_ : Predictor
        The fitted prediction function, an immutable object: ``scores(X)`` returns the
        scores, ``parts(X)`` splits them by kernel.
    approximation_error_ : ApproximationError
        Estimated approximation error of each kernel; only with ``approximation``.

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
        fixed: Any = None,
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
        self.fixed = fixed
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

    @one_blas_thread
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> MKLClassifier:
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
        return self._learn(self._training(X, y, sample_weight))

    def _learn(self, training: Training) -> MKLClassifier:
        """Create and solve the problems, and store the results."""
        training, _ = self._encoded(training)
        self._check_beside(training)
        problems = self._posed(training)
        solutions = [self._solve(training, problem) for problem in problems]
        self._store(training, problems, solutions)
        self.C_ = self._cost_used(training, solutions)
        return self

    def _check_beside(self, training: Any) -> None:
        """Raise ValueError if covariates explain the target; warn of infinite effects.

        Infinite effects are reported as large as the tolerance requires, which works
        only with exact kernels.
        """
        super()._check_beside(training)
        formula = self._formula()
        if self._fixed is None or formula.quadratic:
            return
        if isinstance(formula, Softmax):
            if _many(training):
                return
            beside, (Y, _) = training.beside, training.targets()
            told = beside.told_classes(Y.argmax(axis=1), Y.shape[1])
            some, perfect = np.array([told > 1e-6]), np.array([told > 1.0 - 1e-6])
            rewarded = True
        else:
            some, perfect = training.separated(formula)
            rewarded = formula.value(np.full(1, 40.0), np.ones(1))[0] > 0
        if perfect.all():
            raise NothingToLearnError(TOLD)
        if perfect.any() and getattr(self, "weights", "shared") != "shared":
            label = self.classes_[perfect.argmax()]
            raise NothingToLearnError(
                f"The covariates separate class {label!s} from the others perfectly, "
                "which leaves nothing to learn for the kernel weights of this class; "
                "leave out the covariate that encodes it, or use weights='shared'."
            )
        if not rewarded or not some.any():
            return
        said = (
            f"The covariates alone separate some of the samples{self._whose(training)} "
            f"perfectly, so their optimal effects are infinite for loss={self.loss!r}"
        )
        remedy = "Merge rare categories, or leave these covariates out"
        if not training.exact:
            raise ValueError(
                f"{said}, and with low-rank features no solution can be certified. "
                f"{remedy}; exact kernels (approximation=None) accept them."
            )
        warnings.warn(
            f"{said}; those in fixed_effects_ are only as large as tol requires. "
            f"{remedy}.",
            UserWarning,
            stacklevel=3,
        )

    def _whose(self, training: Any) -> str:
        """Return the classes of the samples that are separated from all other ones."""
        k = len(self.classes_)
        if k == 2 or _many(training):
            return ""
        labels = training.targets()[0].argmax(axis=1)
        told = training.beside.told_pairs(labels, k).sum(axis=1) > k - 1.5
        names = [str(self.classes_[c]) for c in np.unique(labels[told])]
        return f" (class{'es' * (len(names) > 1)} {', '.join(names)})" if names else ""

    def _posed(self, training: Training) -> list[Any]:
        """Return a problem for each set of classes that share their weights."""
        return [self._problem(training, which) for which in self._sharing()]

    def _problem(self, training: Training, tasks: slice) -> Any:
        """Return the problem of some classes against the rest."""
        if isinstance(self.C, str):
            return training.hard_margin(self._weights(), self._unit(training), tasks)
        return training.problem(self._formula(), self.C, self._weights(), tasks)

    def _encoded(self, training: Training) -> tuple[Training, float]:
        """Return the training with targets -1 and 1, and no shift of values."""
        if self.loss == "multinomial" and len(self.classes_) > 2:
            if getattr(self, "weights", "shared") != "shared":
                raise ValueError(
                    "loss='multinomial' is a joint problem of all classes, which "
                    "share their kernel weights; use weights='shared', or "
                    "loss='logistic'."
                )
        return training.encoded(self._against_rest(training)), 0.0

    def _formula(self) -> Any:
        two = len(getattr(self, "classes_", ())) == 2
        return by_name("logistic" if self.loss == "multinomial" and two else self.loss)

    def _sharing(self) -> list[slice]:
        """Return the sets of target columns that share kernel weights."""
        k = len(self.classes_)
        if self.weights == "shared":
            return [slice(None)]
        return [slice(t, t + 1) for t in range(1 if k == 2 else k)]

    def _cost_used(self, training: Training, solutions: list[Solution]) -> Any:
        """Return the given C, or one over the weight of the identity."""
        if not isinstance(self.C, str):
            return float(self.C)
        M = len(training.names)
        with np.errstate(divide="ignore"):
            C = self._unit(training) / np.array([s.theta[M] for s in solutions])
        return float(C[0]) if len(C) == 1 else C

    def _unit(self, training: Any) -> float:
        """Return the trace of the kernels, relative to that of the identity."""
        return float(training.weight.sum()) if self.normalize == "trace" else 1.0

    def _beyond_sums(self) -> dict[str, Any]:
        if self.class_weight is not None:
            return {"class_weight": self.class_weight}
        return {} if self._formula().quadratic else {"loss": self.loss}

    @available_if(_gives_probabilities)
    @by_blocks
    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probability of each class, shape (n_samples, n_classes).

        For two classes these are the probabilities of the logistic model. For more they
        are those of the multinomial model (``loss="multinomial"``), or the one-vs-rest
        probabilities divided by their sum (``loss="logistic"``).

        Parameters
        ----------
        X : as in ``fit``; with precomputed kernels (n_samples, n_training, n_kernels)
        """
        scores = self._scores(X)
        if scores.shape[1] == 1:
            return np.column_stack([expit(-scores), expit(scores)])
        # shifting all logarithms keeps the ratios even if all probabilities underflow
        logs = scores
        if self.loss == "logistic":
            logs = -np.logaddexp(0.0, -scores)
        p = np.exp(logs - logs.max(axis=1, keepdims=True))
        return np.asarray(p / p.sum(axis=1, keepdims=True))

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
        if self.weights not in ("shared", "per-class"):
            raise ValueError(
                f"weights must be 'shared' or 'per-class', got {self.weights!r}."
            )
