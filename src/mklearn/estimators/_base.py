"""What all estimators share: from X and y to a model, and from a model to scores."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import chain
from numbers import Integral, Real
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from mklearn.data.blocks import ArrayBlocks, Block, Blocks
from mklearn.data.checks import check_enough, check_given, check_weight
from mklearn.data.reading import as_blocks, comes_in_blocks
from mklearn.data.sampling import RowSample, sample_rows
from mklearn.data.threads import one_blas_thread
from mklearn.data.views import MultiView
from mklearn.estimators._predictor import (
    Predictor,
    as_bank,
    block_rows,
    check_finite,
    kernels_first,
    require,
)
from mklearn.estimators._targets import Decides
from mklearn.estimators._training import (
    OF_ONE,
    SAMPLE,
    FeatureTraining,
    GramTraining,
    Training,
    as_views,
    check_approximation,
    check_size,
    is_all,
    merge_equal,
    room,
)
from mklearn.estimators.accumulator import Accumulator
from mklearn.kernels.bank import KernelBank
from mklearn.kernels.feature_map import FeatureMap
from mklearn.kernels.normalise import check_definite, fit_normaliser
from mklearn.problems.losses import loss_names
from mklearn.problems.weights import WeightSet, weight_set
from mklearn.solvers import Iterate, Solution, solve

FloatArray = NDArray[np.float64]


class BaseKernelMachine(BaseEstimator):
    """Scores ``f(x) = sum_m theta_m sum_i A_i k_m(x_i, x) + b``, whoever finds them.

    Subclasses have parameters ``kernels``, ``normalize``, ``psd`` and ``memory_limit``,
    those that can do with explicit features ``approximation``, ``rank``, ``landmarks``
    and ``random_state`` as well. They say in ``_target`` what they learn, take a
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
    predictor_: Predictor
    classes_: NDArray[Any]
    _takes_labels = True

    # --- fit --------------------------------------------------------------------------

    def _target(self, y: Any, weight: FloatArray) -> NDArray[Any]:
        """Return the checked target, one row for each sample; zeros without any."""
        return np.zeros(len(weight))

    def _training(self, X: Any, y: Any, sample_weight: Any) -> Training:
        """Return what to learn from: Grams or features, decided here and only here."""
        if self.approximation is None:
            return self._grams(X, y, sample_weight)
        if self._precomputed():
            raise ValueError(
                "approximation= makes features of samples, and kernels='precomputed' "
                "has none; give kernels, or approximation=None."
            )
        blocks = as_blocks(X, y, sample_weight)
        if blocks is None:
            return self._features_of_arrays(X, y, sample_weight)
        if blocks.one_pass:  # what can be read only once becomes sums at once
            return self._of_sums(self._summed(blocks))
        return self._features_of_blocks(blocks)

    def _grams(self, X: Any, y: Any, sample_weight: Any) -> GramTraining:
        """Validate, merge equal samples, compute and normalise the kernels."""
        data, names, target, index, group, weight = self._distinct(X, y, sample_weight)
        if isinstance(data, KernelBank):
            raw = data if is_all(index, len(data)) else data[np.ix_(index, index)]
        else:
            samples = as_views(data, names)[index]
            raw = KernelBank(samples, self.kernels, sample_weight=weight)
        raw = raw.stored(self.memory_limit)
        clip = check_definite(raw, self.psd)
        if clip is not None:
            raw = clip.train(raw)
        normaliser = fit_normaliser(self.normalize, raw, weight)
        bank, given = normaliser.train(raw), self._precomputed()
        return GramTraining(
            raw, bank, normaliser, clip, target[index], weight, index, group, given
        )

    def _distinct(self, X: Any, y: Any, sample_weight: Any) -> tuple[Any, ...]:
        """Return checked samples and targets, and which of them are distinct."""
        data, names = self._validate(X)
        check_enough(data.shape[0])
        weight = check_weight(sample_weight, data.shape[0])
        target = self._target(y, weight)
        index, group, weight = merge_equal(data, target, weight)
        return data, names, target, index, group, weight

    def _validate(self, X: Any) -> tuple[Any, Any]:
        """Return X as bank, MultiView or table, and the names of its columns."""
        if comes_in_blocks(X):
            raise ValueError(
                f"X comes in blocks ({type(X).__name__}), but kernels between all "
                "samples need them all at once: give approximation='nystroem' or "
                "'rff' to an estimator that has it, or X as an array."
            )
        if self._precomputed():
            bank = as_bank(X)
            rows, cols, _ = bank.shape
            if rows != cols:
                raise ValueError(
                    f"Precomputed training kernels must have shape (n, n, M), kernels "
                    f"last, got {bank.shape}.{kernels_first(cols == bank.shape[2])}"
                )
            self.n_features_in_ = rows
            return bank, None
        if isinstance(X, KernelBank):
            raise ValueError("Pass a KernelBank together with kernels='precomputed'.")
        if isinstance(X, MultiView):
            self.n_features_in_ = X.shape[1]
            return X, None
        if getattr(X, "ndim", 2) == 3:
            raise ValueError(
                "Found array with dim 3; a table has 2. For Gram matrices pass "
                "kernels='precomputed'."
            )
        data = validate_data(self, X, accept_sparse="csr", dtype=np.float64)
        return data, getattr(self, "feature_names_in_", None)

    def _precomputed(self) -> bool:
        return isinstance(self.kernels, str) and self.kernels == "precomputed"

    # --- in feature space -------------------------------------------------------------

    def _features_of_arrays(
        self, X: Any, y: Any, sample_weight: Any
    ) -> FeatureTraining:
        """Return rows of arrays in blocks, and the map to their features."""
        data, names, target, index, _, weight = self._distinct(X, y, sample_weight)
        data, target = data[index], target[index]
        # the sample that blocks of the same rows would give: the same features
        sample = sample_rows(Block(data, None, weight), self._sample(), self._seed())
        features = self._feature_map(as_views(sample.X, names), sample.weight)
        size = block_rows(features.n_features)
        rows = ArrayBlocks(as_views(data, names), target, weight, rows=size)
        median = np.zeros(1) if self._takes_labels else np.median(target, axis=0)
        return self._in_features(rows.keeping(self._room()), features, sample, median)

    def _features_of_blocks(self, blocks: Blocks) -> FeatureTraining:
        """Return blocks from elsewhere with checked targets, and their features."""
        blocks = blocks.keeping(self._room())
        sample = blocks.reduce(
            partial(sample_rows, size=self._sample(), seed=self._seed())
        )
        check_enough(sample.n_rows)
        data = as_views(sample.X, blocks.names)
        self.n_features_in_ = data.shape[1]
        self._keep_names(blocks.names)
        rows = self._block_targets(blocks)
        features = self._feature_map(data, sample.weight)
        return self._in_features(rows, features, sample, np.zeros(1))

    def _in_features(
        self, rows: Blocks, features: FeatureMap, sample: RowSample, median: FloatArray
    ) -> FeatureTraining:
        memory = room(self.memory_limit)
        return FeatureTraining.of(
            rows, features, sample, self.normalize, memory, median
        )

    def _of_sums(self, sums: Accumulator) -> FeatureTraining:
        """Return a training that knows sums over samples, and no samples."""
        if sums.labels != self._takes_labels:
            kinds = ("labels", "values") if sums.labels else ("values", "labels")
            raise ValueError(
                f"These sums are over samples with {kinds[0]}, and "
                f"{type(self).__name__} learns {kinds[1]}."
            )
        check_enough(sums.n_rows)
        self.n_features_in_ = sums.width
        self._keep_names(sums.names)
        found = sums.gathered()
        if sums.labels:
            self._target(sums.classes, found.statistics.target)
        else:
            self._flat = sums.flat
        memory = room(self.memory_limit)
        return FeatureTraining(None, sums.features, self.normalize, memory, found)

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
            raise ValueError(f"{blocks!r} holds no samples.")
        sums = self._empty(found, blocks.names)
        for block in chain(first, rows):
            check_given(block.y)
            sums.add(block)
        return sums

    def _empty(self, found: RowSample, names: Any) -> Accumulator:
        """Return sums over no samples yet, of features chosen on some."""
        data = as_views(found.X, names)
        features = self._feature_map(data, found.weight)
        return Accumulator(features, data.shape[1], names, labels=self._takes_labels)

    def _require_sums(self) -> None:
        """Raise ValueError unless sums over samples are enough to fit from."""
        if self.approximation is None:
            raise ValueError(
                "Sums over samples need explicit features: give "
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

    # --- what remains -----------------------------------------------------------------

    def _keep(
        self,
        training: Training,
        predictor: Predictor,
        theta: FloatArray,
        A: FloatArray,
        shares: FloatArray,
    ) -> None:
        """Store the predictor, and what is to be read of it."""
        self.predictor_ = predictor
        self.kernel_names_, self.kernels_ = training.names, training.kernels
        self.kernel_weights_, self.kernel_contributions_ = theta, shares
        for name in OF_ONE:  # those of an earlier fit may be of the other kind
            self.__dict__.pop(name, None)
        self.__dict__.update(training.fitted(A))

    # --- predict ----------------------------------------------------------------------

    @one_blas_thread
    def _scores(self, X: Any) -> FloatArray:
        """Return ``f`` at new samples, shape (n_samples, T)."""
        check_is_fitted(self)
        return self.predictor_.scores(self.checked(X))

    def checked(self, X: Any) -> Any:
        """Return new samples, checked as the predictor needs it.

        Parameters
        ----------
        X : as in ``fit``; with precomputed kernels (n_samples, n_training, n_kernels)
        """
        if isinstance(X, MultiView) or not self.predictor_.takes_samples:
            return X
        return validate_data(
            self, X, accept_sparse="csr", dtype=np.float64, reset=False
        )

    # --- reading ----------------------------------------------------------------------

    def weights_frame(self) -> Any:
        """Return a pandas DataFrame: name, parameters, weight, share of each kernel.

        With weights per class there is one weight and one contribution column for each.
        """
        check_is_fitted(self)
        try:
            import pandas as pd
        except ImportError as error:
            raise ImportError(
                "weights_frame() returns a pandas DataFrame; install pandas, or read "
                "kernel_names_, kernel_weights_ and kernel_contributions_."
            ) from error
        table: dict[str, Any] = {
            "kernel": list(self.kernel_names_),
            "parameters": [
                {} if kernel is None else kernel.parameters()
                for kernel in self.kernels_
            ],
        }
        weights = np.atleast_2d(self.kernel_weights_)
        shares = np.atleast_2d(self.kernel_contributions_)
        for j, (w, s) in enumerate(zip(weights, shares, strict=True)):
            suffix = "" if len(weights) == 1 else f"_{self.classes_[j]}"
            table[f"weight{suffix}"], table[f"contribution{suffix}"] = w, s
        return pd.DataFrame(table)

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
        return self._solve_by(training.solver(self.solver, problem), problem, start)

    def _solve_by(
        self, solver: Any, problem: Any, start: Iterate | None = None
    ) -> Solution:
        return solve(
            problem,
            solver,
            tol=self.tol,
            max_iter=self.max_iter,
            time_limit=self.time_limit,
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
        """Keep what was solved: one problem for all tasks, or one for each.

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
        bias = np.concatenate([s.bias for s in solutions]) + shift
        self._keep(training, training.predictor(theta, A, bias), theta, A, shares)
        self.solution_ = solutions[0] if one else list(solutions)
        self.duality_gap_ = max(s.gap for s in solutions)
        self.n_iter_ = max(s.n_iter for s in solutions)

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


class StatisticsMixin(BaseKernelMachine):
    """Fitting from an :class:`Accumulator`, for losses that need nothing else.

    Subclasses are estimators with an ``approximation`` that say in ``_learn`` what
    ``fit`` does with a training.
    """

    @available_if(_has_approximation)
    def accumulator(self, X: Any, sample_weight: Any = None) -> Accumulator:
        """Choose the features on some samples, and return sums over none yet.

        Parameters
        ----------
        X : array, sparse matrix, DataFrame or MultiView
            Samples like those to come, at least as many as ``rank``; they are not
            added to the sums.
        sample_weight : array of shape (n_samples,), optional
        """
        self._require_sums()
        model = clone(self)
        model._check_parameters()
        data, names = model._validate(X)
        weight = check_weight(sample_weight, data.shape[0])
        found = sample_rows(Block(data, None, weight), model._sample(), model._seed())
        return model._empty(found, names)

    @available_if(_has_approximation)
    @one_blas_thread
    def fit_statistics(self, sums: Accumulator) -> Any:
        """Learn from sums over samples, without any of them.

        Parameters
        ----------
        sums : Accumulator
            From ``accumulator`` of a model with the same kernels and approximation;
            C, reg, norm, solver and tol may differ.
        """
        self._check_parameters()
        self._require_sums()
        if not isinstance(sums, Accumulator):
            raise ValueError(
                f"fit_statistics takes an Accumulator, got {type(sums).__name__}; make "
                "one by model.accumulator(X)."
            )
        return self._learn(self._of_sums(sums))


def check_state(model: BaseKernelMachine) -> None:
    """Raise ValueError if what a fitted model predicts with does not fit together.

    For models from files: a sum over arrays of other shapes, or with NaN, would be an
    answer as well, but not the model's.
    """
    M = len(model.kernel_names_)
    require(M > 0 and len(model.kernels_) == M, "kernels and their names")
    require(np.shape(model.kernel_weights_)[-1:] == (M,), "kernel weights")
    predictor = model.predictor_
    require(isinstance(predictor, Predictor), "no predictor")
    require(predictor.n_kernels == M, "kernels")
    predictor.check()
    for name in ("kernel_weights_", "kernel_contributions_", "dual_coef_",
                 "coef_", "means_", "temperature_"):  # fmt: skip
        check_finite(name, vars(model).get(name, 0.0))
    classes = vars(model).get("classes_")
    if classes is not None:
        require(np.ndim(classes) == 1 and len(classes) > 0, "classes")
        scores = len(predictor.bias)
        decides = isinstance(model, Decides)
        require(not decides or scores in (1, len(classes)), "a score for each class")


def check_loss(name: Any, targets: Literal["labels", "numbers"]) -> None:
    """Raise ValueError unless there is such a loss for labels, or for numbers."""
    known = loss_names(targets)
    if not isinstance(name, str) or name not in known:
        *others, last = map(repr, known)
        raise ValueError(f"loss must be {', '.join(others)} or {last}, got {name!r}.")


def check_limits(model: Any) -> None:
    """Raise ValueError unless ``tol``, ``max_iter`` and ``time_limit`` are positive."""
    check_positive("tol", model.tol)
    if not model.max_iter >= 1:
        raise ValueError(f"max_iter must be at least 1, got {model.max_iter!r}.")
    if model.time_limit is not None and not model.time_limit > 0:
        raise ValueError(f"time_limit must be positive, got {model.time_limit!r}.")


def check_positive(name: str, value: Any, otherwise: str = "") -> float:
    """Return a parameter that must be a positive number."""
    if not (isinstance(value, Real) and 0 < float(value) < np.inf):
        raise ValueError(f"{name} must be a positive number{otherwise}, got {value!r}.")
    return float(value)
