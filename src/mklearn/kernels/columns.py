"""The features that a kernel uses: columns of a view, possibly standardised."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from mklearn.data import checks
from mklearn.data.labels import told
from mklearn.data.spelling import plural
from mklearn.data.views import MultiView
from mklearn.kernels.functions import moments
from mklearn.kernels.joint import Joint
from mklearn.kernels.specs import Kernel, Linear, Product

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class FeatureSet:
    """Features as defined by the training samples, which can be taken from any samples.

    ``index`` are the columns of ``view``, None means all of them; ``shift`` and
    ``scale`` standardise them, None leaves them unchanged. ``filler`` is a sample, not
    yet standardised, that replaces samples that lack the view: the bank masks the
    values computed from it. The other fields describe the form of new samples.
    """

    view: str
    only_view: bool
    text: bool
    sparse: bool
    width: int
    names: tuple[str, ...] | None
    index: NDArray[np.intp] | None = None
    shift: FloatArray | None = None
    scale: FloatArray | None = None
    filler: Any = None

    def __post_init__(self) -> None:
        width = self.width
        if not isinstance(width, int) or width < 1:
            raise ValueError(f"A view has at least one column, got {width!r}.")
        if self.names is not None and len(self.names) != width:
            raise ValueError(f"{len(self.names)} names are those of other columns.")
        if self.index is not None:
            index = np.asarray(self.index)
            if index.dtype.kind != "i" or index.ndim != 1 or not len(index):
                raise ValueError("Columns are chosen by an array of whole numbers.")
            if index.min() < 0 or index.max() >= width:
                raise ValueError(f"A column is out of range: there are {width}.")
            width = len(index)
        for array in (self.shift, self.scale):
            if array is not None and not _is_sound(array, (width,)):
                raise ValueError(
                    f"Standardising needs finite numbers of shape ({width},), got "
                    f"{np.shape(array)}."
                )
        if not (self.text or self.filler is None or _is_sound(self.filler, (1, width))):
            raise ValueError(f"The filler must have {width} finite columns.")

    @classmethod
    def fit(
        cls, kernel: Kernel, data: MultiView, weight: FloatArray | None
    ) -> FeatureSet:
        """Return the features of ``kernel``, fitted on the training samples."""
        view, index = _place(kernel, data)
        X = data[view]
        if data.has_absent(view):
            X, weight = _present(X, data.absent(view), weight, view)
        text = data.is_text(view)
        width = 1 if text else X.shape[1]
        common = (
            view, len(data.names) == 1, text, sparse.issparse(X), width,
            data.column_names(view), index,
        )  # fmt: skip
        if index is not None:
            X = X[:, index]
        filler = X[0] if text else X[:1].copy()  # not a view, which would keep X
        if not kernel.standardized:
            return cls(*common, filler=filler)
        mean, variance = moments(X, weight)
        # a constant column is zero after centring, whatever the scale
        scale = np.where(variance > 0, variance, 1.0) ** -0.5
        return cls(*common, mean, scale, filler)

    def take(self, data: MultiView) -> Any:
        """Return the features of ``data``: array, CSR matrix or strings."""
        view = self._find_view(data)
        X = data[view]
        holes = data.absent(view) if data.has_absent(view) else None
        if holes is not None and holes.all():
            return self._fillers(len(data))
        if self.text:
            return X if holes is None else np.where(holes, self.filler, X)
        if self.index is not None:
            X = X[:, self.index]
        if self.sparse != sparse.issparse(X):  # a source needs the same format
            X = sparse.csr_array(X) if self.sparse else X.toarray()
        if holes is not None:
            X = self._filled(X, holes)
        return self._scaled(X)

    @property
    def n_columns(self) -> int:
        """Number of columns of the features."""
        return self.width if self.index is None else len(self.index)

    def some(self, columns: NDArray[np.intp]) -> FeatureSet:
        """Return the set with some of its columns."""
        if self.n_columns == len(columns):
            return self
        index = np.arange(self.width) if self.index is None else self.index
        return replace(
            self,
            index=index[columns],
            shift=None if self.shift is None else self.shift[columns],
            scale=None if self.scale is None else self.scale[columns],
            filler=None if self.filler is None else self.filler[:, columns],
        )

    def check(self) -> None:
        """Raise ValueError unless there is a sample that replaces absent ones."""
        if self.filler is None or isinstance(self.filler, str) != self.text:
            raise ValueError("The sample that represents absent ones is missing.")

    def example(self, n: int) -> Any:
        """Return a view of ``n`` samples that is valid input of :meth:`take`."""
        if self.text:
            return np.array([self.filler] * n, dtype=object)
        index = np.arange(self.width) if self.index is None else self.index
        if not self.sparse:
            view = np.zeros((n, self.width))
            view[:, index] = 0.0 if self.filler is None else self.filler
            return view
        one = sparse.csr_array((1, len(index)) if self.filler is None else self.filler)
        parts = (one.data, index[one.indices], one.indptr)
        row = sparse.csr_array(parts, shape=(1, self.width))
        return sparse.csr_array(sparse.vstack([row] * n))

    def absent(self, data: MultiView) -> NDArray[np.bool_] | None:
        """Return which samples of ``data`` lack the view, None if all have it."""
        view = self._find_view(data)
        return data.absent(view) if data.has_absent(view) else None

    def _filled(self, X: Any, holes: NDArray[np.bool_]) -> Any:
        if not self.sparse:
            return np.where(holes[:, None], self.filler, X)
        place = np.where(holes, len(holes), np.arange(len(holes)))
        return sparse.csr_array(sparse.vstack([X, self.filler]))[place]

    def _fillers(self, n: int) -> Any:
        """Return the features of ``n`` samples that lack the view."""
        if self.text:
            return np.array([self.filler] * n, dtype=object)
        return self._scaled(self.filler[np.zeros(n, dtype=np.intp)])

    def _scaled(self, X: Any) -> Any:
        if self.scale is None or self.shift is None:
            return X
        if self.sparse:
            return sparse.csr_array(X.multiply(self.scale[None, :]))
        return (X - self.shift) * self.scale

    def _find_view(self, data: MultiView) -> str:
        """Return the name of the view in ``data``; raise ValueError if it differs."""
        view = self.view
        if view not in data:
            if not (self.only_view and len(data.names) == 1):
                raise ValueError(
                    f"The new samples lack view {view!r}; they have {list(data.names)}."
                    " Add the view, with NaN in all columns for samples without it."
                )
            view = data.names[0]
        if data.has_absent(view) and data.absent(view).all():
            return view  # the view is absent for all samples
        if data.is_text(view) != self.text:
            kinds = ("strings", "numbers") if self.text else ("numbers", "strings")
            raise ValueError(
                f"View {view!r} contained {kinds[0]} in training but contains "
                f"{kinds[1]} now."
            )
        width = 1 if self.text else data[view].shape[1]
        names = data.column_names(view)
        changed = ""
        if self.names is not None and names is not None:
            changed = _changed(self.names, names)
        if width != self.width:
            raise ValueError(
                f"View {view!r} had {plural(self.width, 'column')} in training but has "
                f"{width} now.{changed}"
            )
        if self.names is not None and names is not None and names != self.names:
            raise ValueError(
                f"The columns of view {view!r} differ from those in training, in name "
                f"or in order: {list(self.names[:5])} ... in training, but "
                f"{list(names[:5])} ... now.{changed}"
            )
        return view


def _changed(before: Sequence[str], now: Sequence[str]) -> str:
    """Return which columns only one of two tables has, as a sentence for each."""
    here, there = set(before), set(now)
    lost = [name for name in before if name not in there]
    new = [name for name in now if name not in here]
    return "".join(
        f" {what}: {told(names)}."
        for what, names in (("Missing", lost), ("New", new))
        if names
    )


@dataclass(frozen=True)
class JointFeatures:
    """Features of the factors of a product, each of its own columns and view.

    Attributes
    ----------
    parts : tuple of FeatureSet
        The features of each factor.
    """

    parts: tuple[FeatureSet, ...]

    text: ClassVar[bool] = False

    @classmethod
    def fit(
        cls, kernel: Product, data: MultiView, weight: FloatArray | None
    ) -> JointFeatures:
        """Return the features, fitted on the samples that have all of the views."""
        views = {data.view_name(factor.view) for factor in kernel.factors}
        holes = _any_of(data.absent(v) if data.has_absent(v) else None for v in views)
        if holes is not None:
            known = None if weight is None else weight[~holes]
            if holes.all() or (known is not None and not known.any()):
                raise ValueError(
                    f"None of the {len(data)} training samples has all of the views "
                    f"{sorted(views)} of kernel {kernel.label()!r}; leave it out, or "
                    "use other samples."
                )
            data, weight = data[~holes], known
        return cls(tuple(FeatureSet.fit(f, data, weight) for f in kernel.factors))

    @property
    def only_view(self) -> bool:
        """Whether the samples had a single view."""
        return all(part.only_view for part in self.parts)

    @property
    def n_columns(self) -> int:
        """Number of columns of all parts."""
        return sum(part.n_columns for part in self.parts)

    def take(self, data: MultiView) -> Joint:
        """Return the features of ``data``."""
        return Joint(tuple(part.take(data) for part in self.parts))

    def absent(self, data: MultiView) -> NDArray[np.bool_] | None:
        """Return which samples lack any of the views, None if all have them."""
        return _any_of(part.absent(data) for part in self.parts)

    def some(self, columns: NDArray[np.intp]) -> JointFeatures:
        """Return the features themselves: products use all of them."""
        return self

    def check(self) -> None:
        """Raise ValueError unless there are samples that replace absent ones."""
        if not (isinstance(self.parts, tuple) and self.parts):
            raise ValueError("A product has features for each factor.")
        for part in self.parts:
            if not isinstance(part, FeatureSet):
                raise ValueError("A factor of a product has no features.")
            part.check()


Features = FeatureSet | JointFeatures


def fit_features(
    kernel: Kernel, data: MultiView, weight: FloatArray | None
) -> Features:
    """Return the features of a kernel, fitted on the training samples."""
    if isinstance(kernel, Product):
        return JointFeatures.fit(kernel, data, weight)
    return FeatureSet.fit(kernel, data, weight)


def _any_of(
    masks: Iterable[NDArray[np.bool_] | None],
) -> NDArray[np.bool_] | None:
    """Return where any of the masks is true, None if there are none."""
    found = [mask for mask in masks if mask is not None]
    return np.logical_or.reduce(found) if found else None


def example(features: Iterable[Features], n: int) -> Any:
    """Return samples with the views from which some features are taken.

    They are a table if there was only one view, else a :class:`MultiView`.
    """
    known: dict[str, FeatureSet] = {}
    views: dict[str, Any] = {}
    listed = [f.parts if isinstance(f, JointFeatures) else (f,) for f in features]
    for one in chain.from_iterable(listed):
        first = known.setdefault(one.view, one)
        if (one.width, one.text, one.sparse) != (first.width, first.text, first.sparse):
            raise ValueError(f"View {one.view!r} has two shapes.")
        view = one.example(n)
        if one.view not in views or one.text:
            views[one.view] = view
        elif one.index is not None and not one.sparse:
            views[one.view][:, one.index] = view[:, one.index]
    alone = {one.only_view for one in known.values()} == {True}
    return views.popitem()[1] if alone and len(views) == 1 else MultiView(views)


def feature_key(kernel: Kernel, data: MultiView) -> Hashable:
    """Return a key that is equal for kernels on the same features."""
    if isinstance(kernel, Product):
        return tuple(feature_key(factor, data) for factor in kernel.factors)
    view, index = _place(kernel, data)
    return view, None if index is None else index.tobytes(), kernel.standardized


MANY = 32  # number of linear kernels from which on they share columns


def sharing(specs: Sequence[Kernel], data: MultiView) -> list[NDArray[np.intp]]:
    """Return sets of linear kernels on many different groups of the same columns."""
    keys: list[Hashable] = []
    for kernel in specs:
        key = None
        if type(kernel) is Linear and _plainly_told(kernel.columns):
            key = data.view_name(kernel.view), kernel.standardized
        keys.append(key)
    return [
        members
        for members in grouped(keys)
        if keys[members[0]] is not None
        and len({feature_key(specs[m], data) for m in members}) >= MANY
    ]


def is_linear(kernels: Iterable[Kernel]) -> bool:
    """Return whether all kernels are plain dot products."""
    return all(type(kernel) is Linear for kernel in kernels)


def _plainly_told(columns: Any) -> bool:
    """Return whether columns are distinct indices or names."""
    listed = columns if isinstance(columns, tuple) else (columns,)
    plain = all(
        isinstance(c, str) or (type(c) is int and c >= 0) for c in listed
    )  # no masks, and no negative indices
    return plain and len(set(listed)) == len(listed)


def union_of(kernels: Sequence[Kernel], data: MultiView) -> Kernel:
    """Return a kernel on the union of the columns of several kernels on one view."""
    view = kernels[0].view
    parts = [data.column_index(view, kernel.columns) for kernel in kernels]
    return replace(kernels[0], columns=tuple(np.unique(np.concatenate(parts)).tolist()))


def columns_in(
    kernels: Sequence[Kernel], features: FeatureSet
) -> list[NDArray[np.intp]]:
    """Return the positions of the columns of each kernel among those of a set.

    Raise ValueError if a kernel uses other columns.
    """
    index = np.arange(features.width) if features.index is None else features.index
    place: dict[Any, int] = {int(column): i for i, column in enumerate(index)}
    numbers: dict[Any, Any] = {name: i for i, name in enumerate(features.names or ())}
    out = []
    for kernel in kernels:
        columns: Any = kernel.columns
        wanted = columns if isinstance(columns, tuple) else (columns,)
        found = [place.get(numbers.get(c, c), -1) for c in wanted]
        if not _plainly_told(columns) or min(found, default=-1) < 0:
            raise ValueError(f"Kernel {kernel.label()!r} uses other columns.")
        out.append(np.array(sorted(found), dtype=np.intp))
    return out


def grouped(keys: Iterable[Hashable]) -> list[NDArray[np.intp]]:
    """Return the positions of equal keys, in the order of first occurrence."""
    found: dict[Hashable, list[int]] = {}
    for position, key in enumerate(keys):
        found.setdefault(key, []).append(position)
    return [np.array(positions, dtype=np.intp) for positions in found.values()]


def columns_used(kernels: Iterable[Kernel | None], data: MultiView) -> set[int]:
    """Return the columns of the only view that kernels use; none for given Grams."""
    used: set[int] = set()
    for kernel in kernels:
        parts = kernel.factors if isinstance(kernel, Product) else (kernel,)
        for part in parts:
            if part is not None:
                used.update(data.column_index(part.view, part.columns).tolist())
    return used


def _place(kernel: Kernel, data: MultiView) -> tuple[str, NDArray[np.intp] | None]:
    """Return the view and the columns of a kernel, None for all columns."""
    view = data.view_name(kernel.view)
    text = data.is_text(view)
    if kernel.text is not None and text != kernel.text:
        needs, has = ("strings", "numbers") if kernel.text else ("numbers", "strings")
        raise ValueError(
            f"Kernel {kernel.label()!r} needs {needs}, but view {view!r} contains "
            f"{has}."
        )
    if kernel.columns is None and data.visible(view) is None:
        return view, None
    index = data.column_index(view, kernel.columns)
    if len(index) == 0:
        raise ValueError(f"Kernel {kernel.label()!r} uses no column of view {view!r}.")
    if np.array_equal(index, np.arange(data[view].shape[1])):
        return view, None
    return view, index


def _present(
    X: Any, absent: NDArray[np.bool_], weight: FloatArray | None, view: str
) -> tuple[Any, FloatArray | None]:
    """Return the samples that have a view, and their weights."""
    known = None if weight is None else weight[~absent]
    if absent.all() or (known is not None and not known.any()):
        raise ValueError(
            f"View {view!r} is missing for all {len(absent)} training samples; leave "
            "it out, or use other samples."
        )
    return X[~absent], known


def _is_sound(array: Any, shape: tuple[int, ...]) -> bool:
    """Return whether a dense or sparse array has a given shape and finite values."""
    values = array.data if sparse.issparse(array) else np.asarray(array)
    return (
        np.shape(array) == shape
        and values.dtype.kind == "f"
        and bool(np.isfinite(values).all())
    )


def weight_if_given(sample_weight: ArrayLike | None, n: int) -> FloatArray | None:
    """Return the checked sample weights, or None if there are none."""
    return None if sample_weight is None else checks.check_weight(sample_weight, n)
