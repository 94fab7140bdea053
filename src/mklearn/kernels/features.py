"""Which features a kernel sees: a view, some of its columns, perhaps standardised."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from mklearn.kernels.functions import moments
from mklearn.kernels.multiview import MultiView
from mklearn.kernels.specs import Kernel

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class FeatureSet:
    """Features as the training samples define them, to be taken from any samples.

    ``index`` numbers the columns of ``view``, None means all of them; ``shift`` and
    ``scale`` standardise them, None leaves them as they are. The other fields say what
    new samples must look like.
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

    @classmethod
    def fit(
        cls, kernel: Kernel, data: MultiView, weight: FloatArray | None
    ) -> FeatureSet:
        """Learn from the training samples what ``kernel`` sees."""
        view, index = _place(kernel, data)
        X = data[view]
        text = data.is_text(view)
        width = 1 if text else X.shape[1]
        common = (
            view, len(data.names) == 1, text, sparse.issparse(X), width,
            data.column_names(view), index,
        )  # fmt: skip
        if not _standardized(kernel):
            return cls(*common)
        mean, variance = moments(X if index is None else X[:, index], weight)
        # a constant column stays constant: zero after centring, whatever the scale
        return cls(*common, mean, np.where(variance > 0, variance, 1.0) ** -0.5)

    def take(self, data: MultiView) -> Any:
        """Return the features of ``data``: array, CSR matrix or strings."""
        X = data[self._find_view(data)]
        if self.text:
            return X
        if self.index is not None:
            X = X[:, self.index]
        if self.sparse != sparse.issparse(X):  # a source compares like with like
            X = sparse.csr_array(X) if self.sparse else X.toarray()
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
                )
            view = data.names[0]
        if data.is_text(view) != self.text:
            kinds = ("strings", "numbers") if self.text else ("numbers", "strings")
            raise ValueError(
                f"View {view!r} held {kinds[0]} in training and holds {kinds[1]} now."
            )
        width = 1 if self.text else data[view].shape[1]
        if width != self.width:
            raise ValueError(
                f"View {view!r} had {self.width} columns in training and has {width} "
                "now."
            )
        names = data.column_names(view)
        if self.names is not None and names is not None and names != self.names:
            raise ValueError(
                f"The columns of view {view!r} have other names, or another order, "
                f"than in training: {list(self.names[:5])} ... then, "
                f"{list(names[:5])} ... now."
            )
        return view


def feature_key(kernel: Kernel, data: MultiView) -> Hashable:
    """Return what kernels on the same features have in common."""
    view, index = _place(kernel, data)
    return view, None if index is None else index.tobytes(), _standardized(kernel)


def _standardized(kernel: Kernel) -> bool:
    return bool(getattr(kernel, "standardize", False))


def _place(kernel: Kernel, data: MultiView) -> tuple[str, NDArray[np.intp] | None]:
    """Return the view and the columns of a kernel, None for all columns."""
    view = data.view_name(kernel.view)
    text = data.is_text(view)
    if kernel.text is not None and text != kernel.text:
        needs, has = ("strings", "numbers") if kernel.text else ("numbers", "strings")
        raise ValueError(
            f"Kernel {kernel.label()!r} needs {needs} but view {view!r} holds {has}."
        )
    if kernel.columns is None:
        return view, None
    index = data.column_index(view, kernel.columns)
    if len(index) == 0:
        raise ValueError(f"Kernel {kernel.label()!r} sees no column of view {view!r}.")
    if np.array_equal(index, np.arange(data[view].shape[1])):
        return view, None
    return view, index


def check_weight(sample_weight: ArrayLike | None, n: int) -> FloatArray | None:
    """Return the sample weights as an array, or raise ValueError."""
    if sample_weight is None:
        return None
    weight = np.asarray(sample_weight, dtype=np.float64)
    if weight.shape != (n,):
        raise ValueError(
            f"sample_weight must have one entry for each of the {n} samples, got shape "
            f"{weight.shape}."
        )
    if not np.isfinite(weight).all() or (weight < 0).any() or not weight.any():
        raise ValueError(
            "sample_weight must be finite and at least 0, with a positive sum; got "
            f"values from {weight.min():.4g} to {weight.max():.4g}."
        )
    return weight
