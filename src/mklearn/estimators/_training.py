"""Training sets: samples represented by Gram matrices, or by features.

The representation is chosen once, when a training set is created
(:meth:`~mklearn.estimators._base.BaseKernelMachine._training`). Both representations
have the same methods for counting classes, encoding targets, and creating problems and
predictors.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from mklearn.data.blocks import ArrayBlocks, Block, Blocks
from mklearn.data.clock import Clock, OutOfTimeError
from mklearn.data.covariates import Covariates
from mklearn.data.dask import ColumnChunks
from mklearn.data.sampling import RowSample
from mklearn.data.spelling import plural
from mklearn.data.views import MultiView
from mklearn.estimators._predictor import (
    FeaturePredictor,
    GramPredictor,
    block_rows,
)
from mklearn.estimators._targets import Encoding, count_labels
from mklearn.kernels.bank import KernelBank
from mklearn.kernels.feature_map import APPROXIMATIONS, FeatureMap, check_rank
from mklearn.kernels.landmarks import LANDMARKS
from mklearn.kernels.memory import available_memory
from mklearn.kernels.normalise import (
    Clip,
    Normaliser,
    Scaling,
    check_definite,
    sum_is_definite,
)
from mklearn.problems import MKLProblem
from mklearn.problems.design import Design
from mklearn.problems.evidence import EvidenceProblem
from mklearn.problems.losses import Pointwise, Softmax
from mklearn.problems.lowrank import FeatureProblem
from mklearn.problems.mkl import hard_margin
from mklearn.problems.ordered import SLOPE, TARGETS, OrderedProblem
from mklearn.problems.protocols import Formula
from mklearn.problems.pseudo_samples import Reduced, ReducedEvidence, weights_of
from mklearn.problems.scatter import Gathered, Statistics, gather
from mklearn.problems.separation import Separation, find_separation, one_sided
from mklearn.problems.softmax import SoftmaxProblem
from mklearn.problems.survival import CoxFormula
from mklearn.problems.targets import FewerColumns
from mklearn.problems.weights import WeightSet, for_kernels
from mklearn.solvers import Solution, Status
from mklearn.solvers.registry import choose_solver

FloatArray = NDArray[np.float64]
Index = NDArray[np.intp]

SAMPLE = 20_000  # rows that a feature map is fitted on, if rows come in blocks
_BLOCK_BYTES = 2**26
_STEPS = 2.0**20  # resolution of a column where rows are put in order
_NOISE = 2.0**-26  # below it, relative to the largest column, values may be rounding
_MIXER = np.uint64(0x9E3779B97F4A7C15)  # 2^64 divided by the golden ratio
_COMPARED = 3  # columns of targets that put equal rows in order
_LARGE = 2**28  # size in bytes from which coefficients are not copied
_SUMS = 8  # scatter matrices in memory per thread: being computed, waiting, added
_COPIES = 5  # copies of the features of a block for its sums: centred, weighted, ...

ALL = slice(None)


# --- what covariates tell -------------------------------------------------------------


class BesideMixin(ABC):
    """Which samples covariates separate, found once for each loss."""

    clock: Clock

    @property
    @abstractmethod
    def free(self) -> int:
        """Number of covariates."""

    @abstractmethod
    def covariate_rows(self) -> Blocks:
        """Return rows whose last columns are covariates, encoded targets and costs."""

    def separated(self, loss: Pointwise) -> tuple[NDArray[np.bool_], ...]:
        """Return for which targets covariates separate some samples, or all, (T,)."""
        found = self._separation(loss)
        return found.some, found.perfect

    def apart(self, loss: Any, tasks: slice | Index) -> FloatArray | None:
        """Return effects that separate samples which then lose nothing, (1 + k, T).

        None if there are no such samples.
        """
        if not self.free or not isinstance(loss, Pointwise) or not one_sided(loss):
            return None
        if loss.content(np.ones((1, 1))) is None:
            return None
        effects = self._separation(loss).effects[:, tasks]
        return effects if effects.any() else None

    def _separation(self, loss: Pointwise) -> Separation:
        found = self._separations.get(loss)
        if found is None:
            with self.clock.preparing():
                found = find_separation(self.covariate_rows(), loss, self.free)
            self._separations[loss] = found
        return found

    @cached_property
    def _separations(self) -> dict[Pointwise, Separation]:
        return {}


# --- Gram matrices --------------------------------------------------------------------


@dataclass(frozen=True)
class GramTraining(BesideMixin):
    """Distinct samples, their weights, and the kernels between them.

    Attributes
    ----------
    raw, bank : KernelBank
        Kernels as they are, and normalised.
    normaliser : Normaliser
    clip : Clip or None
    target : array or ColumnChunks
        (n,) class indices, (n, T) values; zeros without targets. Values that workers
        read, one chunk of columns at a time, are encoded there.
    weight : array of shape (n,)
    index : array of int
        The first row in X of each distinct sample.
    group : array of int
        The distinct sample of each row in X; -1 if its weight is zero.
    precomputed : bool
        Whether X consists of Gram matrices.
    ids : array or None
        The names of the rows in X.
    Y, cost : arrays of shape (n, T) and (n,)
        Encoded targets, and costs at C = 1.
    clock : Clock
        Started at the beginning of ``fit``.
    design : array of shape (n, 1 + k) or None
        Ones and coded covariates, if there are any.
    """

    exact: ClassVar[bool] = True

    raw: KernelBank
    bank: KernelBank
    normaliser: Normaliser
    clip: Clip | None
    target: Any
    weight: FloatArray
    index: Index
    group: Index
    precomputed: bool
    ids: NDArray[Any] | None = field(default=None, repr=False)
    Y: FloatArray = field(default_factory=lambda: np.zeros((0, 0)), repr=False)
    cost: FloatArray = field(default_factory=lambda: np.zeros(0), repr=False)
    clock: Clock = field(default_factory=Clock, repr=False)
    design: FloatArray | None = field(default=None, repr=False)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the kernels."""
        return self.raw.names

    @property
    def kernels(self) -> tuple[Any, ...]:
        """The kernels; None for those given as Gram matrices."""
        return self.raw.kernels

    @property
    def n_rows(self) -> int:
        """Number of distinct samples."""
        return len(self.weight)

    @property
    def n_targets(self) -> int:
        """Number of columns of the encoded targets."""
        return int(self.Y.shape[1])

    def fewer(self) -> FewerColumns | None:
        """Return fewer columns that stand for all targets, if these outnumber rows."""
        n, T = self.Y.shape
        return FewerColumns.of(self.Y) if n < T else None

    def among(self, kernels: Index) -> GramTraining:
        """Return the same samples with some of the kernels, for problems on them."""
        return replace(
            self, raw=self.raw.select(kernels), bank=self.bank.select(kernels)
        )

    def counts(self, n_classes: int) -> FloatArray:
        """Return the total weight of each class."""
        return np.bincount(self.target, self.weight, n_classes).astype(float)

    def middle(self) -> FloatArray:
        """Return the median of the values, by which targets can be shifted."""
        return np.asarray(np.median(self.target, axis=0))

    def encoded(self, encode: Encoding) -> GramTraining:
        """Return the same samples with targets and costs."""
        block = encode(Block(None, self.target, self.weight))
        return replace(self, Y=block.y, cost=block.weight)

    def problem(
        self, loss: Formula, C: float, weights: WeightSet, tasks: slice | Index = ALL
    ) -> MKLProblem:
        """Return the problem of some tasks, which share their weights."""
        made: Any = self._beside(loss.of(self.Y[:, tasks], self.cost, C))
        apart = self.apart(loss, tasks)
        if apart is not None:
            made = made.leaving(apart)
        return MKLProblem(self.bank, made, weights)

    @property
    def free(self) -> int:
        """Number of covariates."""
        return 0 if self.design is None else self.design.shape[1] - 1

    def covariate_rows(self) -> Blocks:
        """Return covariates, encoded targets and costs."""
        assert self.design is not None
        return ArrayBlocks(self.design[:, 1:], self.Y, self.cost)

    def targets(self) -> tuple[FloatArray, FloatArray]:
        """Return the encoded targets of all samples, and their costs at C = 1."""
        return self.Y, self.cost

    def scores(self, theta: FloatArray, A: FloatArray, bias: FloatArray) -> FloatArray:
        """Return the scores of the samples, shape (n, T)."""
        beside = bias if self.design is None else self.design @ bias
        return self.bank.apply(theta, A) + beside

    def evidence(self, tasks: Index | None = None) -> EvidenceProblem:
        """Return the restricted likelihood of the values; weights are precisions."""
        Y = self.Y if tasks is None else self.Y[:, tasks]
        return EvidenceProblem(self.bank, Y, self.cost, self.design)

    def hard_margin(self, weights: WeightSet, unit: float, tasks: slice) -> MKLProblem:
        """Return the problem in which ``1 / C`` is the weight of another kernel."""
        made = hard_margin(self.bank, self.Y[:, tasks], self.cost, weights, unit)
        return replace(made, loss=self._beside(made.loss))

    def _beside(self, loss: Any) -> Any:
        """Return a loss with the covariates, if there are any."""
        if self.beside is None:
            return loss
        if "design" not in {one.name for one in fields(loss)}:
            raise ValueError(
                f"fixed= is not available for the loss {type(loss).__name__}, whose "
                "problem has no place for fixed effects; use another loss."
            )
        return replace(loss, design=self.beside)

    @cached_property
    def beside(self) -> Design | None:
        """Design of constant and covariates, None without covariates."""
        return None if self.design is None else Design(self.design)

    def explained(self) -> NDArray[np.bool_]:
        """Return which targets are explained by covariates alone, shape (T,)."""
        if self.beside is None:
            return np.zeros(self.Y.shape[1], dtype=bool)
        return self.beside.explains(np.real(self.Y))

    def solver(self, solver: Any, problem: Any) -> Any:
        """Return the solver for a name and a problem of samples."""
        return choose_solver(solver, problem)

    def confirm(self, solution: Solution, problem: Any, psd: str) -> None:
        """Raise ValueError if bounds are invalid because a kernel is indefinite.

        The first check, on a subset of each kernel, may have missed it. All kernels are
        checked completely if their weighted sum is not positive semidefinite, if the
        solver stalled, or if the bounds cross.
        """
        if psd != "check":
            return
        stuck = solution.status in (Status.STALLED, Status.ROUNDED)
        theta, K = solution.theta[..., : self.raw.shape[2]], None
        if isinstance(problem, MKLProblem) and problem.bank is self.bank:
            K = problem.known_sum(theta)
        with suppress(OutOfTimeError), self.clock.within():
            if solution.crossed or stuck or not sum_is_definite(self.bank, theta, K):
                check_definite(self.raw, psd, exact=True)

    def shares(self, problem: Any, solution: Solution) -> FloatArray:
        """Return each kernel's share in the solution, without auxiliary kernels."""
        M = self.raw.shape[2]
        theta, A, quads = solution.theta[..., :M], solution.A, solution.quads
        if quads is not None:
            return np.asarray(problem.contributions(theta, A, quads[..., :M]))
        if problem.bank.shape[2] > M:
            problem = replace(problem, bank=self.bank)
        return np.asarray(problem.contributions(theta, A))

    def predictor(
        self, theta: FloatArray, A: FloatArray, bias: FloatArray, whole: bool = False
    ) -> GramPredictor:
        """Return the predictor; see :meth:`GramPredictor.of`."""
        _check_finite(theta, A, bias)
        return GramPredictor.of(self, theta, A, bias, whole)

    def fitted(self, A: FloatArray) -> dict[str, Any]:
        """Return the fitted attributes that only this representation has."""
        support = np.flatnonzero(A.any(axis=1))
        # distinct samples have a different order from the rows of the user
        support = support[np.argsort(self.index[support])]
        coef = rows_at(A, support).T
        if A.nbytes < _LARGE:  # larger arrays are stored once, in the predictor
            coef = coef.copy()
        return {"support_": self.index[support], "dual_coef_": coef}


# --- features -------------------------------------------------------------------------


@dataclass(frozen=True)
class FeatureTraining(BesideMixin):
    """Rows in blocks, and the map to their features.

    Attributes
    ----------
    rows : Blocks or None
        Raw samples with checked targets (class indices, or values) and weights; after
        encoding, features with targets and costs. None if only sums are available.
    features : FeatureMap
    normalize : str or None
    memory : int
        Maximum size in bytes of the Gram matrices of pseudo-samples.
    found : Gathered or None
        Sums over all rows, after encoding (or if only sums are available).
    median : array of shape (T,)
        Median of the values, if they are in memory; zero otherwise.
    clock : Clock
        Started at the beginning of ``fit``.
    n_rows : int
        Number of rows, if there are rows.
    coding : Covariates or None
        Coding of covariates, if there are any: rows carry them, and after encoding they
        are the last columns of the features.
    """

    exact: ClassVar[bool] = False

    rows: Blocks | None
    features: FeatureMap
    normalize: str | None
    memory: int
    found: Gathered | None = field(default=None, repr=False)
    median: FloatArray = field(default_factory=lambda: np.zeros(1), repr=False)
    clock: Clock = field(default_factory=Clock, repr=False)
    n_rows: int = 0
    coding: Covariates | None = field(default=None, repr=False)

    @classmethod
    def of(
        cls,
        rows: Blocks,
        features: FeatureMap,
        sample: RowSample,
        normalize: str | None,
        memory: int,
        median: FloatArray,
        coding: Covariates | None = None,
    ) -> FeatureTraining:
        """Return the training set, with means for rows that lack a view.

        The feature map was fitted on a sample of the rows; means over all rows may take
        another pass.
        """
        if sample.holes and sample.n_rows > sample.size:
            means = rows.reduce(partial(_presence, features=features))
            features = features.with_means(means)
        n = sample.n_rows
        return cls(
            rows, features, normalize, memory, None, median, n_rows=n, coding=coding
        )

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the kernels."""
        return self.features.names

    @property
    def kernels(self) -> tuple[Any, ...]:
        """The kernels."""
        return self.features.kernels

    @cached_property
    def statistics(self) -> Statistics:
        """Statistics of features and targets."""
        found = self.gathered.statistics
        if self.places is None:
            return found
        check_scatter(len(self.places), self.features)
        return found.at(self.places)

    @property
    def places(self) -> Index | None:
        """Index of each feature and covariate among the columns of a row."""
        places = self.features.places
        if places is None:
            return None
        return np.append(places, self.features.n_columns + np.arange(self.free))

    @cached_property
    def passes(self) -> Blocks | None:
        """The rows with all features, for problems that are solved in passes."""
        if self.rows is None or self.places is None:
            return self.rows
        return self.rows.then(partial(_widened, places=self.places))

    @property
    def gathered(self) -> Gathered:
        """Sums over all rows."""
        if self.found is None:
            raise ValueError("Targets must be encoded before fitting.")
        return self.found

    @cached_property
    def scaling(self) -> Scaling:
        """Normalisation of the features."""
        moments, places = self.gathered.moments, self.features.places
        at = slice(self.features.n_features) if places is None else places
        return Scaling.fit(
            self.normalize,
            self.features,
            moments.total,
            moments.mean[at],
            moments.scatter[at],
        )

    @property
    def free(self) -> int:
        """Number of columns of the coded covariates."""
        return 0 if self.coding is None else len(self.coding.names)

    @cached_property
    def beside(self) -> Design | None:
        """Design of constant and covariates, None without covariates."""
        if self.coding is None:
            return None
        assert self.rows is not None
        columns = self.rows.map(partial(_last_columns, count=self.free))
        C = np.concatenate(columns)
        return Design(np.column_stack([np.ones(len(C)), C]))

    def explained(self) -> NDArray[np.bool_]:
        """Return which targets are explained by covariates alone, shape (T,)."""
        found = self.gathered.statistics
        size = np.diagonal(found.HH)
        if not self.free:
            return np.zeros(len(size), dtype=bool)
        left = np.diagonal(found.apart(self.free)[0].HH)
        # sums of squares are accurate only up to rounding
        return np.asarray((left <= 1e-13 * size) & (size > 0))

    @cached_property
    def reduced(self) -> Reduced:
        """Pseudo-samples that represent all samples, for the squared loss."""
        features = self.features
        return Reduced.of(
            self.gathered.statistics, self.scaling, features.slices, features.names,
            self.memory, self.free, features.places,
        )  # fmt: skip

    @property
    def n_targets(self) -> int:
        """Number of columns of the encoded targets."""
        return len(self.gathered.statistics.target)

    def fewer(self) -> FewerColumns | None:
        """Return None: sums over samples are small for any number of targets."""
        return None

    def counts(self, n_classes: int) -> FloatArray:
        """Return the total weight of each class."""
        if self.rows is None:
            statistics = self.gathered.statistics
            return np.asarray(statistics.total * statistics.target)
        return np.asarray(self.rows.reduce(count_labels).weight)

    def middle(self) -> FloatArray:
        """Return the median of values in memory; zero for values in blocks."""
        return self.median

    def encoded(self, encode: Encoding) -> FeatureTraining:
        """Return features with targets and costs, and the sums over them."""
        if self.rows is None:
            return replace(self, found=encode.of_sums(self.gathered))
        make = partial(
            _featurised, features=self.features, to=encode, coding=self.coding
        )
        rows = self.rows.then(make)
        width = self.features.n_columns + self.free + 2
        rows = rows.held(8 * self.n_rows * width)
        with self.clock.preparing():
            found = rows.reduce(partial(gather, factors=encode.factors))
        return replace(self, rows=rows, found=found)

    def problem(
        self, loss: Formula, C: float, weights: WeightSet, tasks: slice | Index = ALL
    ) -> Any:
        """Return the problem of some tasks, which share their weights."""
        weights = for_kernels(weights, self.kernels, self.names)
        if isinstance(loss, CoxFormula):
            return self._in_order(loss, float(C), weights)
        if loss.quadratic:
            return self.reduced.squared(float(C), weights, tasks)
        if self.passes is None:
            raise ValueError(f"Sums over samples are not enough for {loss!r}.")
        T = len(self.statistics.target)
        part = self.statistics.with_targets(np.eye(T)[:, tasks])
        slices = self.features.slices
        if isinstance(loss, Softmax):
            return SoftmaxProblem(
                self.passes, loss, float(C), weights, slices, self.scaling, part,
                free=self.free,
            )  # fmt: skip
        assert isinstance(loss, Pointwise)
        return FeatureProblem(
            self.passes, loss, float(C), weights, slices, self.scaling, part, tasks,
            free=self.free, apart=self.apart(loss, tasks),
        )  # fmt: skip

    def covariate_rows(self) -> Blocks:
        """Return rows whose last columns are covariates, encoded targets and costs."""
        assert self.rows is not None
        return self.rows

    def evidence(self, tasks: Index | None = None) -> ReducedEvidence:
        """Return the restricted likelihood of the values; weights are precisions."""
        some = self.reduced if tasks is None else self.reduced.among(tasks)
        return some.evidence()

    def targets(self) -> tuple[FloatArray, FloatArray]:
        """Return the encoded targets of all samples, and their costs at C = 1."""
        assert self.rows is not None
        Y, cost = zip(*self.rows.map(_targets), strict=True)
        return np.concatenate(Y), np.concatenate(cost)

    def scores(self, theta: FloatArray, A: FloatArray, bias: FloatArray) -> FloatArray:
        """Return the scores of the samples, shape (n, T)."""
        assert self.rows is not None
        w = weights_of(theta, A, self.features.slices)
        effects = np.zeros((0, w.shape[1]))
        if self.free:
            bias, effects = bias[0], bias[1:]
        w, bias = self.scaling.raw(w, bias)
        at = np.vstack([self.features.folded(w), effects]), bias
        return np.concatenate(self.rows.map(partial(_scored, at=at)))

    def _in_order(self, loss: CoxFormula, C: float, weights: WeightSet) -> Any:
        """Return the problem of rows that are ordered by their times."""
        assert self.passes is not None
        Y, cost = self.targets()
        T = len(self.statistics.target)
        return OrderedProblem(
            self.passes,
            loss,
            C,
            weights,
            self.features.slices,
            self.scaling,
            self.statistics.with_targets(np.eye(T)[:, [SLOPE]]),
            slice(SLOPE, SLOPE + 1),
            joint=replace(loss.of(Y[:, TARGETS], cost, C), design=self.beside),
            free=self.free,
        )

    def hard_margin(self, weights: WeightSet, unit: float, tasks: slice) -> Any:
        """Raise ValueError: this needs Gram matrices."""
        raise ValueError(
            "C='learn' needs a kernel that distinguishes all samples, which "
            "approximate features cannot; give C as a number, or use "
            "approximation=None."
        )

    def solver(self, solver: Any, problem: Any) -> Any:
        """Return the solver for a name and a problem of passes or pseudo-samples."""
        return choose_solver(solver, problem, samples=False)

    def confirm(self, solution: Solution, problem: Any, psd: str) -> None:
        """Do nothing: products of features are positive semidefinite."""

    def shares(self, problem: Any, solution: Solution) -> FloatArray:
        """Return each kernel's share in the solution."""
        return np.asarray(problem.contributions(solution.theta, solution.A))

    def predictor(
        self, theta: FloatArray, A: FloatArray, bias: FloatArray, whole: bool = False
    ) -> FeaturePredictor:
        """Return the predictor, from A (D, T) in the coordinates of the features."""
        _check_finite(theta, A, bias)
        slices = self.features.slices
        if np.ndim(theta) == 1:
            w = weights_of(theta, A, slices)
        else:
            w = np.column_stack(
                [weights_of(t, A[:, [j]], slices) for j, t in enumerate(theta)]
            )
        return FeaturePredictor.of(self.features, self.scaling, theta, w, bias)

    def fitted(self, A: FloatArray) -> dict[str, Any]:
        """Return the fitted attributes that only this representation has."""
        return {"approximation_error_": self.features.error}


Training = GramTraining | FeatureTraining

OF_ONE = ("support_", "dual_coef_", "approximation_error_")


def _check_finite(theta: FloatArray, A: FloatArray, bias: FloatArray) -> None:
    """Raise ValueError if the result of a fit is not finite."""
    parts = {"kernel weights": theta, "dual variables": A, "bias": bias}
    wrong = [name for name, part in parts.items() if not np.isfinite(part).all()]
    if wrong:
        raise ValueError(
            f"The fit ended with values that are not finite ({', '.join(wrong)}): "
            "numbers have exceeded the range of floating-point arithmetic. Rescale "
            "kernels (normalize='multiplicative'), targets, costs and weights closer "
            "to one."
        )


def _featurised(
    block: Block, features: FeatureMap, to: Encoding, coding: Covariates | None = None
) -> Block:
    Z = with_covariates(features.columns(block.X), block.X, coding)
    return to(Block(Z, block.y, block.weight))


def with_covariates(Z: FloatArray, X: Any, coding: Covariates | None) -> FloatArray:
    """Return features with the covariates of their samples as last columns."""
    if coding is None:
        return Z
    return np.column_stack([Z, coding.standardised(X.covariates)[:, 1:]])


def _widened(block: Block, places: Index) -> Block:
    return Block(block.X[:, places], block.y, block.weight)


def _last_columns(block: Block, count: int) -> FloatArray:
    return np.asarray(block.X[:, block.X.shape[1] - count :])


def _targets(block: Block) -> tuple[FloatArray, FloatArray]:
    return block.y, block.weight


def _scored(block: Block, at: tuple[FloatArray, FloatArray]) -> FloatArray:
    w, bias = at
    return np.asarray(block.X @ w + bias)


def _presence(block: Block, features: FeatureMap) -> Any:
    return features.presence(block.X, block.weight)


def room(memory_limit: int | None) -> int:
    """Return the bytes that features may take: the limit, or half the free memory."""
    limit = available_memory() // 2 if memory_limit is None else int(memory_limit)
    return max(0, limit // 8, limit - 8 * _BLOCK_BYTES)


def check_approximation(approximation: Any, rank: Any, landmarks: Any) -> None:
    """Raise ValueError for invalid parameters."""
    if approximation is not None and approximation not in APPROXIMATIONS:
        raise ValueError(
            f"approximation must be None or one of {APPROXIMATIONS}, got "
            f"{approximation!r}."
        )
    check_rank(rank)
    if landmarks not in LANDMARKS:
        raise ValueError(f"landmarks must be one of {LANDMARKS}, got {landmarks!r}.")


def check_size(features: FeatureMap) -> None:
    """Raise ValueError if the scatter of the columns does not fit into memory."""
    check_scatter(features.n_columns, features)


def check_scatter(D: int, features: FeatureMap) -> None:
    """Raise ValueError if the scatter of D features does not fit into memory."""
    free = available_memory()
    if 4 * 8 * D**2 > free:  # two blocks, their sum, and a factor
        raise ValueError(
            f"There are {plural(D, 'feature')} of "
            f"{plural(len(features.names), 'kernel')}. Their scatter matrix takes "
            f"{8e-9 * D**2:.3g} gigabytes and is needed four times, but only "
            f"{1e-9 * free:.3g} gigabytes are free; use a lower rank or fewer kernels."
        )


def portion(n_features: int, limit: int) -> tuple[int, int]:
    """Return the rows of a block, and the threads, that fit into a limit in bytes.

    A quarter of the limit is for copies of blocks, and for the sums of each thread. The
    number of rows does not depend on that of threads. There is always at least one
    thread, with the sums that any fit needs, whatever the limit is.
    """
    part = max(1, limit // 4)
    row = _COPIES * 8 * n_features
    rows = int(np.clip(part // (4 * row), 16, block_rows(n_features)))
    return rows, max(1, part // (rows * row + _SUMS * 8 * n_features**2))


# --- samples --------------------------------------------------------------------------


def as_views(data: Any, names: Any) -> MultiView:
    """Return a table as the only view of a MultiView."""
    if isinstance(data, MultiView):
        return data
    return MultiView.from_table(data, names)


def is_all(index: NDArray[np.intp], n: int) -> bool:
    """Return whether an index consists of all samples in order."""
    return len(index) == n and bool((index == np.arange(n)).all())


def rows_at(values: Any, index: NDArray[np.intp]) -> Any:
    """Return some rows of an array; the array itself if these are all its rows."""
    return values if is_all(index, len(values)) else values[index]


def merge_equal(
    data: Any,
    target: NDArray[Any] | ColumnChunks,
    weight: NDArray[np.float64],
    others: FloatArray | None = None,
) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.float64]]:
    """Drop samples of weight zero and merge identical rows with the same target.

    Identical samples with the same target become one sample with the sum of their
    weights: the optimum is the same and the problem smaller. Rows of a table are put in
    an order that depends only on their content, so neither folds nor the result depend
    on the order of the rows. Rounding hardly changes it (see ``_places``). ``others``,
    shape (n, k), must also be equal.

    Returns the first row, the group of each row (-1: dropped), and the weights.
    """
    n = len(target)
    present = np.flatnonzero(weight > 0)
    group = np.full(n, -1, dtype=np.intp)
    if isinstance(data, (KernelBank, MultiView)):
        group[present] = np.arange(len(present))
        return present, group, weight[present]
    if isinstance(target, ColumnChunks):
        # targets matter only where samples are equal
        found = merge_equal(data, np.zeros((n, 0)), weight, others)
        if len(found[0]) == len(present):
            return found
        target = np.hstack(target.map(_row_marks))
    if others is not None:
        target = np.column_stack([target.reshape(n, -1), others + 0.0])
    contents = _sparse_rows(data) if sparse.issparse(data) else _dense_rows(data)
    blake2b = hashlib.blake2b
    digests = np.array(
        [
            blake2b(content + target[i].tobytes(), digest_size=16).digest()
            for i, content in enumerate(contents)
            if weight[i] > 0
        ],
        dtype="V16",
    )
    _, first, inverse = np.unique(digests, return_index=True, return_inverse=True)
    first = present[first]
    order = _order(_places(data, first), target[first].reshape(len(first), -1))
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    group[present] = rank[inverse]
    merged = np.bincount(group[present], weight[present], len(first)).astype(float)
    return first[order], group, merged


def _order(places: NDArray[np.uint64], target: NDArray[Any]) -> NDArray[np.intp]:
    """Return the order of rows by their places, with rows of one place spread out.

    Many rows may have the same content, for instance if columns are categories, or
    doses. Side by side, they would all be in the same fold. Among them, the order of
    their targets, shape (n, T), determines how they are spread.
    """
    columns = target[:, :_COMPARED].T[::-1]
    order = np.lexsort((*columns, places))
    here = places[order]
    starts = np.flatnonzero(np.append(True, here[1:] != here[:-1]))
    counts = np.diff(np.append(starts, len(here)))
    rank = np.empty(len(here), dtype=np.uint64)
    rank[order] = np.arange(len(here)) - np.repeat(starts, counts)
    spread = np.where(rank == 0, places, _mixed(places + rank * _MIXER))
    return np.argsort(spread, kind="stable")


def _mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return numbers whose high bits depend on all bits."""
    numbers = (numbers ^ (numbers >> np.uint64(32))) * _MIXER
    return np.asarray(numbers ^ (numbers >> np.uint64(29)))


def _places(data: Any, rows: NDArray[np.intp]) -> NDArray[np.uint64]:
    """Return pseudo-random numbers for some rows, functions of their rounded content.

    Values that were computed on another processor, such as standardised columns, differ
    in their last digits. With few exceptions they lead to the same numbers, and thus to
    the same order of the rows: values are rounded to ``_STEPS`` steps up to the largest
    one of a column, or up to a small part of the largest one of all columns, because a
    column of much smaller values may consist of rounding errors.
    """
    n, width = data.shape
    # numbers in a row, on average; wide sparse tables have few
    each = width if not sparse.issparse(data) else data.nnz // n
    count = max(1, _BLOCK_BYTES // (8 * max(1, each)))
    parts = [rows[at : at + count] for at in range(0, len(rows), count)]
    largest = np.zeros(width)
    for part in parts:
        high = abs(_taken(data, part)).max(axis=0)
        high = high.toarray().ravel() if sparse.issparse(high) else high
        np.maximum(largest, high, out=largest)
    size = np.maximum(largest, largest.max() * _NOISE)
    size[size == 0] = 1.0
    # sums of integers modulo 2^64 are exact in any order
    factors = np.random.PCG64(0).random_raw(width) | np.uint64(1)

    def steps(values: Any, of: FloatArray) -> NDArray[np.uint64]:
        return np.rint(values / of * _STEPS).astype(np.int64).view(np.uint64)

    def total(part: Any) -> NDArray[np.uint64]:
        if not sparse.issparse(part):
            return np.asarray(steps(part, size) @ factors)
        terms = steps(part.data, size[part.indices]) * factors[part.indices]
        sums = np.cumsum(np.append(np.uint64(0), terms), dtype=np.uint64)
        return np.asarray(np.diff(sums[part.indptr]))

    return _mixed(np.concatenate([total(_taken(data, part)) for part in parts]))


def _taken(data: Any, rows: NDArray[np.intp]) -> Any:
    """Return a copy of some rows; of sparse ones, with one number for each place."""
    part = data[rows]
    if sparse.issparse(part):
        part.sum_duplicates()
    return part


def _row_marks(values: NDArray[Any], _: float | None) -> NDArray[np.uint8]:
    """Return 16 bytes for each row, equal where the values are."""
    marks = [
        hashlib.blake2b(row, digest_size=16).digest() for row in _dense_rows(values)
    ]
    return np.frombuffer(b"".join(marks), dtype=np.uint8).reshape(-1, 16)


def _dense_rows(data: FloatArray) -> Iterator[bytes]:
    """Yield the bytes of each row; at most one block is copied at a time."""
    size = max(1, _BLOCK_BYTES // max(1, data[:1].nbytes))
    for start in range(0, len(data), size):
        part = np.ascontiguousarray(data[start : start + size]) + 0.0  # no -0.0
        width = part.shape[1] * part.itemsize
        whole = part.tobytes()
        for i in range(len(part)):
            yield whole[i * width : (i + 1) * width]


def _sparse_rows(data: Any) -> Iterator[bytes]:
    """Yield the bytes of each row: the indices of nonzero entries, and their values."""
    data = data.copy()
    data.sum_duplicates()  # which also sorts the indices
    data.eliminate_zeros()
    ends = data.indptr
    for i in range(data.shape[0]):
        part = slice(ends[i], ends[i + 1])
        indices = data.indices[part].astype(np.int64)
        yield indices.tobytes() + data.data[part].tobytes()
