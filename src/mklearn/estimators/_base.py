"""Base classes of the estimators: from X and y to a training and a solution."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import chain
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import validate_data

from mklearn.data.blocks import ArrayBlocks, Block, Blocks
from mklearn.data.checks import (
    NothingToLearnError,
    check_enough,
    check_given,
    check_weight,
)
from mklearn.data.clock import Clock
from mklearn.data.containers import require_no_container
from mklearn.data.covariates import (
    Covariates,
    Fixed,
    Place,
    Values,
    check_present,
    code_blocks,
    find_columns,
    find_places,
    sort_keys,
    split,
    take_rows,
)
from mklearn.data.reading import as_blocks, comes_in_blocks
from mklearn.data.sampling import RowSample, sample_rows
from mklearn.data.threads import one_blas_thread
from mklearn.data.views import MultiView, holds_views, paired
from mklearn.estimators._fitted import FittedMachine, as_numbers
from mklearn.estimators._parameters import check_limits
from mklearn.estimators._predictor import (
    as_bank,
    block_rows,
    kernels_first,
)
from mklearn.estimators._training import (
    SAMPLE,
    FeatureTraining,
    GramTraining,
    Training,
    as_views,
    check_approximation,
    check_size,
    is_all,
    merge_equal,
    portion,
    room,
    rows_at,
)
from mklearn.estimators.accumulator import Accumulator
from mklearn.kernels.bank import KernelBank, beside_grams
from mklearn.kernels.columns import columns_used
from mklearn.kernels.families import expand_kernels
from mklearn.kernels.feature_map import FeatureMap
from mklearn.kernels.normalise import check_definite, fit_normaliser, look_at
from mklearn.problems.weights import WeightSet, weight_set
from mklearn.solvers import Iterate, Solution, solve

FloatArray = NDArray[np.float64]

EXPLAINED = (
    "The covariates explain the target exactly, which leaves nothing for the kernels "
    "to learn; leave out the covariate that encodes the target."
)
TOLD = (
    "The covariates separate all classes perfectly, which leaves nothing for the "
    "kernels to learn; leave out the covariate that encodes the target."
)


class Samples(NamedTuple):
    """Checked samples and targets, and which of them are distinct.

    ``data`` is a table with its ``names``, views or a bank of given Grams, of all rows;
    ``rows`` says which of them are taken, ``group`` which of these a row is, and
    ``weight`` what they weigh. ``fixed`` are the covariates of the model, and ``table``
    their values, where there are any.
    """

    data: Any
    names: Any
    target: NDArray[Any]
    rows: NDArray[np.intp]
    group: NDArray[np.intp]
    weight: FloatArray
    fixed: Fixed | None = None
    table: Values | None = None

    def taken(self) -> Any:
        """Return the distinct samples, as they were given or as views."""
        if self.fixed is None or self.table is None:
            return self.data[self.rows]
        views = as_views(self.data, self.names)[self.rows]
        return self.fixed.prepared(views, self.of_taken())

    def design(self) -> FloatArray | None:
        """Return ones and coded covariates of the distinct samples, None if none."""
        if self.fixed is None:
            return None
        return self.fixed.coding.design(self.of_taken(), len(self.rows))

    def of_taken(self) -> Values | None:
        """Return the covariates of the distinct samples."""
        return None if self.table is None else take_rows(self.table, self.rows)


class BaseKernelMachine(FittedMachine):
    """Base class of models ``f(x) = sum_m theta_m sum_i A_i k_m(x_i, x) + b``.

    Subclasses have the parameters ``kernels``, ``normalize``, ``psd`` and
    ``memory_limit``. Those that can work with explicit features also have
    ``approximation``, ``rank``, ``landmarks`` and ``random_state``, and those that take
    covariates have ``fixed``. They define the target in ``_target``, get their
    ``_training`` in ``fit``, and ``_keep`` a predictor.
    """

    kernels: Any
    normalize: str | None
    psd: str
    memory_limit: int | None
    approximation: str | None = None
    rank: int | float
    landmarks: str
    random_state: Any
    fixed: Any = None
    time_limit: float | None = None
    _takes_labels = True

    # --- fit --------------------------------------------------------------------------

    def _target(self, y: Any, weight: FloatArray) -> NDArray[Any]:
        """Return the checked target, one row for each sample; zeros without any."""
        return np.zeros(len(weight))

    def _training(self, X: Any, y: Any, sample_weight: Any) -> Training:
        """Return what to learn from: Grams or features, decided here and only here."""
        if self.approximation is None:
            return self._grams(X, y, sample_weight)
        with self._in_time() as clock:
            return replace(self._features(X, y, sample_weight), clock=clock)

    @contextmanager
    def _in_time(self) -> Iterator[Clock]:
        """Start the clock of a fit, whose time limit holds for every pass within it."""
        clock = Clock.start(self.time_limit)
        with clock.preparing():
            yield clock

    def _features(self, X: Any, y: Any, sample_weight: Any) -> FeatureTraining:
        """Return samples described by features."""
        if self._precomputed():
            raise ValueError(
                "approximation= needs the samples themselves to compute features, but "
                "with kernels='precomputed' there are only Gram matrices; give "
                "kernels, or use approximation=None."
            )
        blocks = as_blocks(X, y, sample_weight)
        if blocks is None:
            return self._features_of_arrays(X, y, sample_weight)
        if blocks.one_pass:  # data that can be read only once is summed right away
            return self._of_sums(self._summed(blocks))
        return self._features_of_blocks(blocks)

    def _grams(self, X: Any, y: Any, sample_weight: Any) -> GramTraining:
        """Validate, merge equal samples, compute and normalise the kernels."""
        with self._in_time() as clock:
            return replace(self._compared(X, y, sample_weight), clock=clock)

    def _compared(self, X: Any, y: Any, sample_weight: Any) -> GramTraining:
        samples = self._distinct(X, y, sample_weight)
        data, names, target, index, group, weight = samples[:6]
        if isinstance(data, KernelBank):
            raw = data if is_all(index, len(data)) else data[np.ix_(index, index)]
        else:
            rows = samples.taken() if samples.fixed else as_views(data, names)[index]
            raw = KernelBank(rows, self.kernels, sample_weight=weight)
        raw = raw.stored(self.memory_limit)
        seen = look_at(raw, weight) if self._precomputed() else None
        clip = check_definite(raw, self.psd, seen)
        if clip is not None:
            raw, seen = clip.train(raw), None
        normaliser = fit_normaliser(self.normalize, raw, weight, seen)
        bank, given = normaliser.train(raw), self._precomputed()
        ids = data.ids if isinstance(data, MultiView) else None
        return GramTraining(
            raw, bank, normaliser, clip, rows_at(target, index), weight, index, group,
            given, ids=ids, design=samples.design(),
        )  # fmt: skip

    def _distinct(self, X: Any, y: Any, sample_weight: Any) -> Samples:
        """Return checked samples and targets, and which of them are distinct."""
        require_no_container(X)
        if holds_views(X):
            X = MultiView(X)
        places = self._places(X)
        data, names, table = self._validate(X, places)
        check_enough(data.shape[0])
        sample_weight = paired(data, sample_weight, "sample_weight")
        weight = check_weight(sample_weight, data.shape[0])
        target = self._target(paired(data, y), weight)
        self.__dict__.pop("_fixed", None)
        if table is None:
            parts = merge_equal(data, target, weight)
            return Samples(data, names, target, *parts)
        check_present(table, np.flatnonzero(weight > 0))
        index, group, weight = merge_equal(data, target, weight, sort_keys(table))
        coding = Covariates.fit(take_rows(table, index), len(index))
        self._fixed = Fixed(places, coding)
        return Samples(data, names, target, index, group, weight, self._fixed, table)

    def _places(self, X: Any) -> tuple[Place, ...]:
        """Return the positions of the covariates in X; none by default."""
        fixed = self.fixed
        if not self._has_fixed():
            return ()
        if self._precomputed():
            return find_columns(fixed, tuple(beside_grams(X)))
        if not isinstance(X, MultiView):
            X = X if hasattr(X, "shape") else np.array(X, dtype=object)
            if len(X.shape) != 2:
                raise ValueError(
                    "fixed= names columns of X, so X must be a table or a MultiView, "
                    f"got shape {tuple(X.shape)}."
                )
        return find_places(fixed, X)

    def _has_fixed(self) -> bool:
        """Tell whether there are covariates."""
        fixed = self.fixed
        return fixed is not None and (isinstance(fixed, str) or np.size(fixed) > 0)

    def _validate(
        self, X: Any, places: tuple[Place, ...] = ()
    ) -> tuple[Any, Any, Values | None]:
        """Return X as bank, MultiView or table, names of its columns, covariates."""
        self._keep_views(None)
        if comes_in_blocks(X):
            raise ValueError(
                f"X comes in blocks ({type(X).__name__}), but exact kernels need all "
                "samples at once. Use approximation='nystroem' or 'rff' with an "
                "estimator that has this parameter, or give X as an array."
            )
        if self._precomputed():
            bank = as_bank(X, finite=True)  # checked once everything has been read
            rows, cols, _ = bank.shape
            if rows != cols:
                raise ValueError(
                    "Precomputed training kernels must have shape (n, n, M), with the "
                    "kernels last, got "
                    f"{bank.shape}.{kernels_first(cols == bank.shape[2])}"
                )
            self.n_features_in_ = rows
            if not places:
                return bank, None, None
            held = beside_grams(bank)
            return bank, None, {place.name: held[place.name] for place in places}
        if isinstance(X, KernelBank):
            raise ValueError("To pass a KernelBank as X, set kernels='precomputed'.")
        if isinstance(X, MultiView) or holds_views(X):
            X = MultiView.wrap(X)
            self._keep_views(X)
            self.n_features_in_ = X.shape[1]
            return X, None, split(X, places).table if places else None
        if getattr(X, "ndim", 2) == 3:
            raise ValueError(
                "Found array with dim 3; a table has 2. For Gram matrices pass "
                "kernels='precomputed'."
            )
        unused = self._unused(X, places, fitted=False)
        if places or unused:
            validate_data(self, X, skip_check_array=True)
            data = as_numbers(split(X, (*places, *unused)).numbers)
            values = split(X, places).table if places else None
            return data, getattr(self, "feature_names_in_", None), values
        data = validate_data(self, X, accept_sparse="csr", dtype=np.float64)
        return data, getattr(self, "feature_names_in_", None), None

    def _columns_used(self, like: MultiView, fitted: bool) -> set[int]:
        if fitted and hasattr(self, "kernels_"):
            return super()._columns_used(like, fitted)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # they are to come
            return columns_used(expand_kernels(self.kernels, like), like)

    def _precomputed(self) -> bool:
        return isinstance(self.kernels, str) and self.kernels == "precomputed"

    # --- in feature space -------------------------------------------------------------

    def _features_of_arrays(
        self, X: Any, y: Any, sample_weight: Any
    ) -> FeatureTraining:
        """Return rows of arrays in blocks, and the map to their features."""
        samples = self._distinct(X, y, sample_weight)
        data, names, target, index, _, weight = samples[:6]
        data, target = samples.taken(), target[index]
        # the sample that blocks of the same rows would give: the same features
        sample = sample_rows(Block(data, None, weight), self._sample(), self._seed())
        features = self._feature_map(as_views(sample.X, names), sample.weight)
        size = block_rows(features.n_columns)
        rows: Blocks = ArrayBlocks(as_views(data, names), target, weight, rows=size)
        median = np.zeros(1) if self._takes_labels else np.median(target, axis=0)
        coding = None if samples.fixed is None else samples.fixed.coding
        kept = rows.keeping(self._room())
        return self._in_features(kept, features, sample, median, coding)

    def _features_of_blocks(self, blocks: Blocks) -> FeatureTraining:
        """Return the blocks of the user, with checked targets, and their features."""
        blocks = blocks.keeping(self._room())
        sample = blocks.reduce(
            partial(sample_rows, size=self._sample(), seed=self._seed())
        )
        check_enough(sample.n_rows)
        data = as_views(sample.X, blocks.names)
        self.n_features_in_ = data.shape[1]
        self._keep_names(blocks.names)
        self._keep_views(sample.X)
        self.__dict__.pop("_fixed", None)
        coding = None
        if self._has_fixed():
            places = find_places(self.fixed, sample.X, blocks.names)
            coding = code_blocks(blocks, places, sample.n_rows)
            self._fixed = fixed = Fixed(places, coding)
            blocks = blocks.then(partial(_with_coded, fixed=fixed, names=blocks.names))
            # the sample that arrays of the same rows would give
            sample = blocks.reduce(
                partial(sample_rows, size=self._sample(), seed=self._seed())
            )
            data = sample.X
        rows = self._block_targets(blocks)
        features = self._feature_map(data, sample.weight)
        return self._in_features(rows, features, sample, np.zeros(1), coding)

    def _in_features(
        self,
        rows: Blocks,
        features: FeatureMap,
        sample: RowSample,
        median: FloatArray,
        coding: Covariates | None = None,
    ) -> FeatureTraining:
        memory = room(self.memory_limit)
        if self.memory_limit is not None:
            rows = rows.within(*portion(features.n_columns, int(self.memory_limit)))
        return FeatureTraining.of(
            rows, features, sample, self.normalize, memory, median, coding
        )

    def _of_sums(self, sums: Accumulator) -> FeatureTraining:
        """Return a training from sums over samples, without the samples."""
        if sums.labels != self._takes_labels:
            kinds = ("labels", "values") if sums.labels else ("values", "labels")
            raise ValueError(
                f"These sums are over samples with {kinds[0]}, but "
                f"{type(self).__name__} learns from {kinds[1]}."
            )
        check_enough(sums.n_rows)
        self.n_features_in_ = sums.width
        self._keep_names(sums.names)
        self._keep_views(None)
        found = sums.gathered()
        if sums.labels:
            self._target(sums.classes, found.statistics.target)
        else:
            self._flat = sums.flat
        self.__dict__.pop("_fixed", None)
        coding = None
        wanted = () if not self._has_fixed() else self._listed_fixed()
        if wanted != sums.wanted:
            raise ValueError(
                f"These sums were taken with fixed={list(sums.wanted)}, and the model "
                f"has fixed={list(wanted)}; make the accumulator by a model with the "
                "same covariates."
            )
        if sums.fixed is not None:
            self._fixed, coding = sums.fixed, sums.fixed.coding
        memory = room(self.memory_limit)
        return FeatureTraining(
            None, sums.features, self.normalize, memory, found, coding=coding
        )

    def _listed_fixed(self) -> tuple[Any, ...]:
        """Return what ``fixed`` names, one by one."""
        fixed = self.fixed
        return (fixed,) if np.ndim(fixed) == 0 else tuple(fixed)

    def _summed(self, blocks: Blocks) -> Accumulator:
        """Return sums over blocks; features are chosen on the first rows."""
        self._require_sums()
        rows = iter(blocks)
        first, found = [], None
        for block in rows:
            part = sample_rows(block, self._sample(), self._seed())
            first.append(block)
            found = part if found is None else found + part
            if found.n_rows >= self._sample():
                break
        if found is None:
            raise ValueError(f"{blocks!r} contains no samples.")
        sums = self._empty(found, blocks.names)
        for block in chain(first, rows):
            check_given(block.y)
            sums.add(block)
        return sums

    def _empty(self, found: RowSample, names: Any) -> Accumulator:
        """Return an empty accumulator of features that are chosen on some samples.

        Covariates are coded as these samples have them.
        """
        data, fixed = as_views(found.X, names), None
        width, wanted = data.shape[1], ()
        if self._has_fixed():
            places = find_places(self.fixed, found.X, names)
            table = split(found.X, places).table
            check_present(table, np.flatnonzero(found.weight > 0))
            fixed = Fixed(places, Covariates.fit(table, len(data)))
            wanted = self._listed_fixed()
            # the sample that arrays of the same rows would give
            beside = Block(fixed.prepared(data, table), None, found.weight)
            found = sample_rows(beside, self._sample(), self._seed())
            data = found.X
        features = self._feature_map(data, found.weight)
        return Accumulator(
            features, width, names, labels=self._takes_labels, fixed=fixed,
            wanted=wanted,
        )  # fmt: skip

    def _require_sums(self) -> None:
        """Raise ValueError unless sums over samples are enough to fit from."""
        if self.approximation is None:
            raise ValueError(
                "Fitting from sums over samples needs explicit features: use "
                "approximation='nystroem' or 'rff'."
            )
        for name, value in self._beyond_sums().items():
            raise ValueError(
                f"Sums over samples are not enough for {name}={value!r}, which needs "
                "several passes over them. Pass arrays, files, or a function that "
                "returns a new iterator of blocks at each call, or use the squared "
                "loss."
            )

    def _beyond_sums(self) -> dict[str, Any]:
        """Return the parameters, with their values, that one pass is not enough for."""
        return {}

    def _keep_views(self, X: Any) -> None:
        """Store the columns of views, or forget those of an earlier fit."""
        self.__dict__.pop("_views_in", None)
        if isinstance(X, MultiView):
            self._views_in = {view: X.column_names(view) for view in X}

    def _keep_names(self, names: Any) -> None:
        """Store the names of the columns, or forget those of an earlier fit."""
        if names is not None:
            self.feature_names_in_ = np.asarray(names, dtype=object)
        else:
            self.__dict__.pop("feature_names_in_", None)

    def _block_targets(self, blocks: Blocks) -> Blocks:
        """Return the blocks with targets as ``_target`` makes them."""
        return blocks

    def _room(self) -> int:
        """Return the bytes for features that later passes need again."""
        return room(self.memory_limit) if self._beyond_sums() else 0

    def _sample(self) -> int:
        """Return how many rows features are chosen on."""
        return SAMPLE if self.rank < 1 else max(SAMPLE, 10 * int(self.rank))

    def _seed(self) -> int:
        if isinstance(self.random_state, Integral):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _feature_map(self, data: Any, weight: Any) -> FeatureMap:
        assert self.approximation is not None
        features = FeatureMap.fit(
            data,
            self.kernels,
            approximation=self.approximation,
            rank=self.rank,
            landmarks=self.landmarks,
            sample_weight=weight,
            random_state=self._seed(),
            spherical=self.normalize == "spherical",
            psd=self.psd,
        )
        check_size(features)
        return features

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        pairwise = self._precomputed()
        tags.input_tags.pairwise = pairwise
        tags.input_tags.three_d_array = pairwise
        return tags


class BaseMKL(BaseKernelMachine):
    """A kernel machine whose weights and coefficients solve an MKL problem.

    Subclasses have the parameters of :class:`BaseKernelMachine` and ``norm``,
    ``solver``, ``tol``, ``max_iter``, ``time_limit``, ``callback`` and ``verbose``.
    """

    norm: Any
    solver: Any
    tol: float
    max_iter: int
    time_limit: float | None
    callback: Any
    verbose: int

    def _solve(
        self, training: Training, problem: Any, start: Iterate | None = None
    ) -> Solution:
        """Solve a problem of a training set within the limits of the estimator."""
        solver = self._chosen(training, problem, start)
        solution = self._solve_by(solver, problem, training.clock, start)
        training.confirm(solution, problem, self.psd)
        return solution

    def _chosen(self, training: Training, problem: Any, start: Iterate | None) -> Any:
        """Return the solver of a problem of a training set."""
        return training.solver(self.solver, problem)

    def _solve_by(
        self, solver: Any, problem: Any, clock: Clock, start: Iterate | None = None
    ) -> Solution:
        return solve(
            problem,
            solver,
            tol=self.tol,
            max_iter=self.max_iter,
            time_limit=clock.left(),
            callback=self.callback,
            verbose=self.verbose,
            start=start,
        )

    def _store(
        self,
        training: Training,
        problems: Sequence[Any],
        solutions: Sequence[Solution],
        shift: Any = 0.0,
    ) -> None:
        """Store the solutions: of one problem for all tasks, or of one for each.

        ``shift`` is what was subtracted from the values.
        """
        M, one = len(training.names), len(solutions) == 1
        theta = np.stack([s.theta[..., :M] for s in solutions])
        shares = np.stack(
            [training.shares(p, s) for p, s in zip(problems, solutions, strict=True)]
        )
        if one:
            theta, shares = theta[0], shares[0]
        A = np.column_stack([s.A for s in solutions])
        bias = np.concatenate([s.bias for s in solutions], axis=-1)
        bias, effects = self._effects(bias, shift)
        predictor = training.predictor(theta, A, bias).with_effects(effects)
        self._keep(training, predictor, theta, A, shares)
        self.solution_ = solutions[0] if one else list(solutions)
        self.duality_gap_ = max(s.gap for s in solutions)
        self.n_iter_ = max(s.n_iter for s in solutions)

    def _check_beside(self, training: Any) -> None:
        """Raise ValueError if covariates leave nothing for kernels to explain."""
        if training.explained().all():
            raise NothingToLearnError(EXPLAINED)

    def _weights(self) -> WeightSet:
        """Return the set of the kernel weights."""
        return weight_set(self.norm)

    def _check_parameters(self) -> None:
        weight_set(self.norm)
        if self.approximation is not None:
            check_approximation(self.approximation, self.rank, self.landmarks)
        check_limits(self)


def _has_approximation(model: Any) -> bool:
    return "approximation" in model.get_params(deep=False)


class PosedMixin(BaseMKL):
    """Access to the optimisation problems that an estimator solves.

    Subclasses return in ``_encoded`` a training with encoded targets, and what was
    subtracted from these, and in ``_posed`` the resulting problems.
    """

    _encoded: Callable[[Any], tuple[Any, Any]]
    _posed: Callable[[Any], list[Any]]

    def posed(self, X: Any, y: Any, sample_weight: Any = None) -> list[Any]:
        """Return the problems that ``fit`` solves, one for each set of weights.

        Parameters
        ----------
        X, y, sample_weight : as in ``fit``
        """
        model = clone(self)
        model._check_parameters()
        training = model._training(X, y, sample_weight)
        return model._posed(model._encoded(training)[0])


class StatisticsMixin(BaseKernelMachine):
    """Fitting from an :class:`Accumulator`, for losses that need nothing else.

    Subclasses are estimators with an ``approximation`` that say in ``_learn`` what
    ``fit`` does with a training.
    """

    @available_if(_has_approximation)
    def accumulator(self, X: Any, sample_weight: Any = None) -> Accumulator:
        """Choose the features using some samples, and return an empty accumulator.

        Parameters
        ----------
        X : array, sparse matrix, DataFrame or MultiView
            Samples that are representative of those to come, at least ``rank`` of them;
            they are not added to the sums.
        sample_weight : array of shape (n_samples,), optional
        """
        self._require_sums()
        model = clone(self)
        model._check_parameters()
        data, names, _ = model._validate(X)
        weight = check_weight(sample_weight, data.shape[0])
        found = sample_rows(Block(data, None, weight), model._sample(), model._seed())
        return model._empty(found, names)

    @available_if(_has_approximation)
    @one_blas_thread
    def fit_statistics(self, sums: Accumulator) -> Any:
        """Fit from sums over samples, without the samples themselves.

        Parameters
        ----------
        sums : Accumulator
            Created by ``accumulator`` of a model with the same kernels and
            approximation; C, reg, norm, solver and tol may differ.
        """
        self._check_parameters()
        self._require_sums()
        if not isinstance(sums, Accumulator):
            raise ValueError(
                f"fit_statistics takes an Accumulator, got {type(sums).__name__}; "
                "create one with model.accumulator(X)."
            )
        return self._learn(self._of_sums(sums))


def _with_coded(block: Block, fixed: Fixed, names: Any) -> Block:
    """Return a block whose samples carry their coded covariates."""
    data, table = split(block.X, fixed.places)
    return Block(fixed.prepared(as_views(data, names), table), block.y, block.weight)
