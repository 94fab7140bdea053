"""Conversion of labels and values to targets, and of scores back to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils import column_or_1d

from mklearn.data.blocks import Block, Blocks
from mklearn.data.checks import check_given, check_labels, check_size, check_values
from mklearn.data.reading import by_blocks
from mklearn.data.views import paired
from mklearn.estimators._predictor import Predictor
from mklearn.problems.scatter import Gathered

FloatArray = NDArray[np.float64]

# Relative difference of sums of thousands of terms in double precision, generously.
_ROUNDING = 2.0**-40


# --- from the input of fit to targets and costs ---------------------------------------


@dataclass(frozen=True)
class AgainstRest:
    """Targets -1 and 1: one column for two classes, else one for each.

    Parameters
    ----------
    factors : array of shape (k,)
        Factors of the costs, by class.
    """

    factors: FloatArray

    def __call__(self, block: Block) -> Block:
        """Return the block with targets, and weights times the factor of the class."""
        labels = np.asarray(block.y)
        Y = one_vs_rest(labels, len(self.factors))
        return Block(block.X, Y, block.weight * self.factors[labels])

    def of_sums(self, found: Gathered) -> Gathered:
        """Return sums over indicators of the classes as sums over these targets."""
        k = len(found.statistics.target)
        B = 2.0 * np.eye(k)
        if k == 2:
            B = B[:, 1:]
        # a shift of all targets changes their means, but not their deviations
        made = found.statistics.with_targets(B)
        return replace(found, statistics=replace(made, target=made.target - 1.0))


@dataclass(frozen=True)
class Indicators:
    """Indicators of the classes, (n, k); multilabel indicators are not changed."""

    n_classes: int
    factors: None = None

    def __call__(self, block: Block) -> Block:
        """Return the block with indicators."""
        y = np.asarray(block.y)
        if y.ndim == 1:
            y = y[:, None] == np.arange(self.n_classes)
        return Block(block.X, y.astype(np.float64), block.weight)

    def of_sums(self, found: Gathered) -> Gathered:
        """Return the sums unchanged, as they are over indicators."""
        return found


@dataclass(frozen=True)
class Shifted:
    """Values (n, T) minus a shift, which improves accuracy and not the solution."""

    shift: FloatArray
    factors: None = None

    def __call__(self, block: Block) -> Block:
        """Return the block with values minus the shift."""
        y = np.asarray(block.y, dtype=np.float64)
        return Block(block.X, y.reshape(len(y), -1) - self.shift, block.weight)

    def of_sums(self, found: Gathered) -> Gathered:
        """Return the sums unchanged, as they are over the original values."""
        return found


@dataclass(frozen=True)
class Censored:
    """Log times minus a shift, plus ``1j`` if they are censored, shape (n, 1)."""

    shift: float
    factors: None = None

    def __call__(self, block: Block) -> Block:
        """Return the block with marked log times, from columns of time and event."""
        y = np.asarray(block.y, dtype=np.float64)
        marked = np.log(y[:, :1]) - self.shift + 1j * (1.0 - y[:, 1:2])
        return Block(block.X, marked, block.weight)

    def of_sums(self, found: Gathered) -> Gathered:
        """Raise ValueError: the loss of censored times is not a function of sums."""
        raise ValueError("Sums over samples are not enough for censored times.")


Encoding = AgainstRest | Indicators | Shifted | Censored


def one_vs_rest(labels: NDArray[np.intp], k: int) -> FloatArray:
    """Return targets of -1 and 1: one column for two classes, else one for each."""
    columns = np.arange(1, 2) if k == 2 else np.arange(k)
    return np.where(labels[:, None] == columns[None, :], 1.0, -1.0)


# --- decisions ------------------------------------------------------------------------


class Decides:
    """Mixin with an intercept, which is that of the predictor."""

    predictor_: Predictor

    @property
    def intercept_(self) -> FloatArray:
        """Constants that are added to the sum over kernels, shape (n_scores,)."""
        return self.predictor_.bias

    @intercept_.setter
    def intercept_(self, value: Any) -> None:
        self.predictor_ = self.predictor_.with_bias(value)


# --- labels ---------------------------------------------------------------------------


@dataclass(frozen=True)
class LabelCounts:
    """The distinct labels, sorted, and the sums of their weights."""

    values: NDArray[Any]
    weight: FloatArray

    def __add__(self, other: LabelCounts) -> LabelCounts:
        return _counted(
            np.concatenate([self.values, other.values]),
            np.concatenate([self.weight, other.weight]),
        )


def _counted(y: NDArray[Any], weight: FloatArray) -> LabelCounts:
    values, number = np.unique(y, return_inverse=True)
    return LabelCounts(values, np.bincount(number, weight, len(values)).astype(float))


def count_labels(block: Block) -> LabelCounts:
    """Return the labels of a block and their weights."""
    return _counted(column_or_1d(check_given(block.y)), block.weight)


@dataclass(frozen=True)
class Numbered:
    """Conversion of labels to class indices."""

    classes: NDArray[Any]

    def __call__(self, block: Block) -> Block:
        """Return the block with class indices as targets."""
        return Block(block.X, np.searchsorted(self.classes, block.y), block.weight)


class LabelsMixin(Decides, ClassifierMixin):
    """Classification on top of scores, one column for two classes, else one for each.

    Subclasses have the parameter ``class_weight``.
    """

    def _target(self, y: Any, weight: NDArray[np.float64]) -> NDArray[np.intp]:
        """Return the class indices and store ``classes_``."""
        self.classes_, labels = check_labels(y, weight, type(self).__name__)
        return labels

    def _block_targets(self, blocks: Blocks) -> Blocks:
        """Return blocks with class indices as targets and store ``classes_``."""
        found = blocks.reduce(count_labels)
        self._target(found.values, found.weight)
        return blocks.then(Numbered(self.classes_))

    def _against_rest(self, training: Any) -> AgainstRest:
        """Return the conversion of class indices to targets and costs."""
        k = len(self.classes_)
        return AgainstRest(self._factors(lambda: training.counts(k)))

    def _costs(self, training: Any) -> FloatArray:
        """Return each distinct sample's weight times that of its class, shape (n,)."""
        factors = self._against_rest(training).factors
        return np.asarray(training.weight * factors[training.target])

    def _factors(self, count: Callable[[], NDArray[np.float64]]) -> NDArray[np.float64]:
        """Return the factor of each class; ``count`` computes their total weights."""
        factors = np.ones(len(self.classes_))
        if isinstance(self.class_weight, Mapping):
            known = self.classes_.tolist()
            strange = [label for label in self.class_weight if label not in known]
            if strange and not set(known) <= set(self.class_weight):
                raise ValueError(
                    f"class_weight names {strange}, but the classes are {known}."
                )
            for label, factor in self.class_weight.items():
                if not (isinstance(factor, Real) and 0 < float(factor) < np.inf):
                    raise ValueError(
                        "class_weight must hold positive numbers, got "
                        f"{factor!r} for class {label!r}."
                    )
                if label in known:
                    factors[known.index(label)] = float(factor)
        elif isinstance(self.class_weight, str) and self.class_weight == "balanced":
            counts = count()
            factors = counts.sum() / (len(factors) * counts)
        elif self.class_weight is not None:
            raise ValueError(
                "class_weight must be None, 'balanced' or a dict, got "
                f"{self.class_weight!r}."
            )
        return factors

    @by_blocks
    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return the scores: (n_samples,) for two classes, else (n_samples, n_classes).

        Parameters
        ----------
        X : as in ``fit``; with precomputed kernels (n_samples, n_training, n_kernels)
        """
        scores = self._scores(X)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    @by_blocks
    def predict(self, X: Any) -> NDArray[Any]:
        """Return the class of each sample.

        Parameters
        ----------
        X : as in ``fit``; with precomputed kernels (n_samples, n_training, n_kernels)
        """
        scores = self.decision_function(X)
        return self.classes_[decided(scores.reshape(len(scores), -1))]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy; ``y`` is paired with the samples as in ``fit``.

        Parameters
        ----------
        X : as in ``predict``
        y : array of shape (n_samples,)
        sample_weight : array of shape (n_samples,), optional
        """
        weight = paired(X, sample_weight, "sample_weight")
        return float(super().score(X, paired(X, y), weight))


def decided(scores: NDArray[np.float64]) -> NDArray[np.intp]:
    """Return the predicted class indices for scores (n, 1) or (n, n_classes).

    Of scores that differ by rounding only, the first class wins: a sample on the margin
    of two classes has the same score for both, in theory. Rounding depends on the
    processor and on how many samples are predicted together, and must not decide.
    """
    if scores.shape[1] == 1:
        return (scores[:, 0] > 0).astype(np.intp)
    rounding = _ROUNDING * np.abs(scores).max(axis=1, keepdims=True)
    largest = scores.max(axis=1, keepdims=True)
    return (scores >= largest - rounding).argmax(axis=1)


# --- values ---------------------------------------------------------------------------


def count_outputs(block: Block) -> int:
    """Return the number of columns of y, 0 if it is one-dimensional."""
    y = np.asarray(check_given(block.y))
    check_size(np.asarray(y, dtype=np.float64))
    return 0 if y.ndim == 1 else int(y.shape[1])


class NumbersMixin(Decides, RegressorMixin):
    """Regression on top of scores, one column for each output."""

    _takes_labels = False

    def _target(self, y: Any, weight: NDArray[np.float64]) -> NDArray[np.float64]:
        y = check_values(y, len(weight))
        self._flat = y.ndim == 1
        return y.reshape(len(y), -1)

    def _block_targets(self, blocks: Blocks) -> Blocks:
        """Return the blocks, and store whether y is one-dimensional."""
        outputs = set(blocks.map(count_outputs))
        if len(outputs) > 1:
            raise ValueError(f"Blocks differ in the shape of y: {sorted(outputs)}.")
        self._flat = outputs.pop() == 0
        return blocks

    @by_blocks
    def predict(self, X: Any) -> NDArray[np.float64]:
        """Return the values: (n_samples,), or (n_samples, n_outputs) if y was 2-D.

        Parameters
        ----------
        X : as in ``fit``; with precomputed kernels (n_samples, n_training, n_kernels)
        """
        scores = self._scores(X)
        return scores[:, 0] if self._flat else scores

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return R squared; ``y`` is paired with the samples as in ``fit``.

        Parameters
        ----------
        X : as in ``predict``
        y : array of shape (n_samples,) or (n_samples, n_outputs)
        sample_weight : array of shape (n_samples,), optional
        """
        weight = paired(X, sample_weight, "sample_weight")
        return float(super().score(X, paired(X, y), weight))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


def target_indices(targets: Any, n_targets: int) -> NDArray[np.intp]:
    """Return indices of targets, or raise ValueError if they are none."""
    found = np.asarray(targets)
    if found.ndim != 1 or found.dtype.kind not in "iu" or not len(found):
        raise ValueError(
            "targets must be a sequence of indices of columns of y, such as [0, 3], "
            f"got {targets!r}."
        )
    if found.min() < 0 or found.max() >= n_targets:
        raise ValueError(
            f"targets must be indices from 0 to {n_targets - 1}, got {targets!r}."
        )
    return found.astype(np.intp)
