"""Class labels: their numbers, their costs, and how scores become labels again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils import column_or_1d

from mklearn.data.blocks import Block
from mklearn.data.checks import check_given, check_labels
from mklearn.data.reading import by_blocks
from mklearn.estimators._base import Training


class LabelsMixin(ClassifierMixin):
    """Classification on top of scores, one column for two classes, else one for each.

    Subclasses have the parameter ``class_weight``.
    """

    def _target(self, y: Any, weight: NDArray[np.float64]) -> NDArray[np.intp]:
        """Return the numbers of the classes and store ``classes_``."""
        self.classes_, labels = check_labels(y, weight, type(self).__name__)
        return labels

    def _block_targets(self, blocks: Any) -> Any:
        """Return blocks with class numbers for targets and store ``classes_``."""
        found = blocks.reduce(count_labels)
        self._target(found.values, found.weight)
        return blocks.then(partial(numbered, classes=self.classes_))

    def _counts(self, rows: Any) -> NDArray[np.float64]:
        """Return the total weight of each class of blocks with class numbers."""
        return np.asarray(rows.reduce(count_labels).weight)

    def _costs(self, training: Training) -> NDArray[np.float64]:
        """Return each distinct sample's weight times that of its class, shape (n,)."""
        labels, weight = training.target, training.weight
        factors = self._factors(lambda: np.bincount(labels, weight, len(self.classes_)))
        return np.asarray(weight * factors[labels])

    def _factors(self, count: Callable[[], NDArray[np.float64]]) -> NDArray[np.float64]:
        """Return the factor of each class; ``count`` finds their total weights."""
        factors = np.ones(len(self.classes_))
        if isinstance(self.class_weight, Mapping):
            known = self.classes_.tolist()
            strange = [label for label in self.class_weight if label not in known]
            if strange and not set(known) <= set(self.class_weight):
                raise ValueError(
                    f"class_weight names {strange}, but the classes are {known}."
                )
            for label, factor in self.class_weight.items():
                if not (
                    isinstance(factor, Real) and np.isfinite(factor) and factor > 0
                ):
                    raise ValueError(
                        "class_weight must hold positive numbers, got "
                        f"{factor!r} for class {label!r}."
                    )
                if label in known:
                    factors[known.index(label)] = factor
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
        if scores.ndim == 1:
            return self.classes_[(scores > 0).astype(int)]
        return self.classes_[scores.argmax(axis=1)]


@dataclass(frozen=True)
class LabelCounts:
    """Labels that occur, in order, and the sum of their weights."""

    values: NDArray[Any]
    weight: NDArray[np.float64]

    def __add__(self, other: LabelCounts) -> LabelCounts:
        return _counted(
            np.concatenate([self.values, other.values]),
            np.concatenate([self.weight, other.weight]),
        )


def _counted(y: NDArray[Any], weight: NDArray[np.float64]) -> LabelCounts:
    values, number = np.unique(y, return_inverse=True)
    return LabelCounts(values, np.bincount(number, weight, len(values)))


def count_labels(block: Block) -> LabelCounts:
    """Return the labels of a block and their weights."""
    return _counted(column_or_1d(check_given(block.y)), block.weight)


def numbered(block: Block, classes: NDArray[Any]) -> Block:
    """Return the block with the numbers of its labels."""
    return Block(block.X, np.searchsorted(classes, block.y), block.weight)


def one_vs_rest(labels: NDArray[np.intp], k: int) -> NDArray[np.float64]:
    """Return targets of -1 and 1: one column for two classes, else one for each."""
    columns = np.arange(1, 2) if k == 2 else np.arange(k)
    return np.where(labels[:, None] == columns[None, :], 1.0, -1.0)
