"""Fitting to samples that arrive over time, from their accumulated statistics."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from mklearn.data.blocks import Block
from mklearn.data.checks import check_given
from mklearn.data.covariates import Fixed, check_present, split
from mklearn.data.dask import ClusterError, DaskBlocks, is_dask
from mklearn.data.files import GeneratorBlocks
from mklearn.data.spelling import plural
from mklearn.data.threads import one_blas_thread
from mklearn.estimators._predictor import block_rows
from mklearn.estimators._training import as_views, with_covariates
from mklearn.kernels.feature_map import FeatureMap
from mklearn.problems.scatter import Gathered, gather

FloatArray = NDArray[np.float64]

_PORTION = 16  # partitions that are lost together if a cluster is


class Accumulator:
    """Sums over the samples seen so far, from which a model can be fitted.

    An accumulator is created by ``model.accumulator(X)``, which chooses the features
    using the samples X, and is used by ``model.fit_statistics``. In between, samples
    may be added in portions of any size and in any order, also on several machines: two
    accumulators can be added with ``+`` if both began as copies of the same one.
    Classes need not be known in advance.

    Models with different ``C``, ``reg`` or ``norm`` can be fitted from the same sums.
    With covariates (``fixed``), X also determines how they are coded: a category that
    does not occur in X is an error later, and a covariate that is constant or collinear
    in X is dropped.

    Attributes
    ----------
    features : FeatureMap
    n_rows : int
        Number of samples so far.
    classes : array or None
        Labels seen so far, sorted; None if the targets are numbers.

    Examples
    --------
    >>> from mklearn import MKLClassifier
    >>> from mklearn.datasets import make_groups
    >>> model = MKLClassifier(loss="squared", approximation="nystroem", rank=20)
    >>> X, y = make_groups(400, n_noise=0, random_state=0)
    >>> here = model.accumulator(X[:100])
    >>> there = here.copy()
    >>> for start in range(0, 200, 50):
    ...     here.update(X[start : start + 50], y[start : start + 50])
    >>> there.update(X[200:], y[200:])
    >>> (here + there).n_rows
    400
    >>> bool(model.fit_statistics(here + there).score(X, y) > 0.7)
    True
    """

    def __init__(
        self,
        features: FeatureMap,
        width: int,
        names: Any = None,
        *,
        labels: bool,
        fixed: Fixed | None = None,
        wanted: tuple[Any, ...] = (),
    ) -> None:
        self.features = features
        self.width = width
        self.names = names
        self.labels = labels
        self.fixed = fixed
        self.wanted = wanted
        self.classes: NDArray[Any] | None = None
        self.flat = True
        self._found: Gathered | None = None
        self._origin = uuid4().hex  # copies know that their features are the same

    @property
    def n_rows(self) -> int:
        """Number of samples so far."""
        return 0 if self._found is None else self._found.statistics.n

    def __repr__(self) -> str:
        width = plural(self.features.n_features, "feature")
        return f"Accumulator({plural(self.n_rows, 'sample')}, {width})"

    def copy(self) -> Accumulator:
        """Return an accumulator with the same features and sums."""
        other = Accumulator(
            self.features, self.width, self.names, labels=self.labels,
            fixed=self.fixed, wanted=self.wanted,
        )  # fmt: skip
        other.classes, other.flat, other._found = self.classes, self.flat, self._found
        other._origin = self._origin
        return other

    @one_blas_thread
    def update(self, X: Any, y: Any, sample_weight: Any = None) -> None:
        """Add samples to the sums.

        Parameters
        ----------
        X : array, sparse matrix, DataFrame or MultiView, or a Dask collection
            The partitions of a Dask collection are added a few at a time. If the
            cluster is lost, the error says which of them have been added, so that you
            can continue with the others.
        y : array of shape (n_samples,); values may have shape (n_samples, n_outputs)
        sample_weight : array of shape (n_samples,), optional
        """
        check_given(y)
        if is_dask(X):
            self._update_on_cluster(DaskBlocks(X, y, sample_weight))
            return
        source = GeneratorBlocks([(X, y, sample_weight)])
        source.names = None if self.names is None else tuple(self.names)
        for block in source:
            self.add(block)

    def _update_on_cluster(self, blocks: DaskBlocks) -> None:
        """Add the partitions of Dask, whose workers add up what they hold."""
        none = self.copy()
        none._found = None
        for start, portion in blocks.portions(_PORTION):
            try:
                found = portion.total(partial(_of_block, none=none))
            except ClusterError as error:
                raise ClusterError(
                    f"The cluster was lost; the first {start} of {len(blocks)} "
                    "partitions have been added. Continue with "
                    f"update(X.partitions[{start}:], y.partitions[{start}:]) when it "
                    f"is back. ({error})"
                ) from error
            if found is not None:
                total = self + found
                self.classes, self.flat = total.classes, total.flat
                self._found = total._found

    def add(self, block: Block) -> None:
        """Add a block of checked samples to the sums."""
        if block.X.shape[1] != self.width:
            raise ValueError(
                f"X has {plural(block.X.shape[1], 'column')}, but the features were "
                f"chosen on samples with {self.width}."
            )
        y = np.asarray(block.y)
        if self.labels:
            self._learn_classes(np.unique(y))
            assert self.classes is not None
            H = (y[:, None] == self.classes).astype(np.float64)
        else:
            flat = y.ndim == 1
            if self._found is not None and flat != self.flat:
                raise ValueError("y has a different number of dimensions than before.")
            self.flat = flat
            H = y.reshape(len(y), -1).astype(np.float64)
        X, coding = block.X, None
        if self.fixed is not None:
            data, table = split(X, self.fixed.places)
            check_present(table, np.flatnonzero(block.weight > 0))
            X = self.fixed.prepared(as_views(data, self.names), table)
            coding = self.fixed.coding
        size = block_rows(self.features.n_columns)
        for start in range(0, block.n_rows, size):
            rows = slice(start, start + size)
            Z = with_covariates(self.features.columns(X[rows]), X[rows], coding)
            part = gather(Block(Z, H[rows], block.weight[rows]))
            self._found = part if self._found is None else self._found + part

    def _learn_classes(self, labels: NDArray[Any]) -> None:
        """Make room for classes that were not seen before."""
        known = self.classes
        if known is None:
            self.classes = labels
            return
        if (known.dtype.kind in "OUS") != (labels.dtype.kind in "OUS"):
            raise ValueError(
                f"The labels were {_kind(known)} before, such as {known[0]!r}, and are "
                f"{_kind(labels)} now, such as {labels[0]!r}; use labels of a single "
                "type for all samples."
            )
        classes = np.union1d(known, labels)
        if len(classes) > len(known) and self._found is not None:
            self._found = _spread(self._found, np.searchsorted(classes, known), classes)
        self.classes = classes

    def __add__(self, other: Accumulator) -> Accumulator:
        """Return the sums over the samples of both accumulators."""
        if not isinstance(other, Accumulator):
            return NotImplemented
        if self._origin != other._origin:
            raise ValueError(
                "These sums are over different features; start both as copies of the "
                "same accumulator: other = accumulator.copy()."
            )
        if self._found is None or other._found is None:
            return (other if self._found is None else self).copy()
        one, two = self.copy(), other.copy()
        if self.labels:
            one._learn_classes(two.classes)  # type: ignore[arg-type]
            two._learn_classes(one.classes)  # type: ignore[arg-type]
        one._found = one._found + two._found  # type: ignore[operator]
        return one

    # --- for estimators ---------------------------------------------------------------

    def gathered(self) -> Gathered:
        """Return the sums, with one target for each class, or the values."""
        if self._found is None:
            raise ValueError("There are no samples yet; call update(X, y) first.")
        return self._found


def _kind(labels: NDArray[Any]) -> str:
    return "text" if labels.dtype.kind in "OUS" else "numbers"


def _of_block(block: Block, none: Accumulator) -> Accumulator:
    """Return the sums of one block, on the worker that has it."""
    sums = none.copy()
    sums.add(block)
    return sums


def _spread(
    found: Gathered, places: NDArray[np.intp], classes: NDArray[Any]
) -> Gathered:
    """Return sums with more classes; those that are new were never seen."""
    old, k = found.statistics, len(classes)
    target, ZH = np.zeros(k), np.zeros((len(old.mean), k))
    HH = np.zeros((k, k))
    target[places], ZH[:, places] = old.target, old.ZH
    HH[np.ix_(places, places)] = old.HH
    return replace(found, statistics=replace(old, target=target, ZH=ZH, HH=HH))
