"""The argument ``kernels=``: names, ladders, kernels per column or view, and "auto".

Families (:func:`rbf_ladder`, :func:`per_feature`, :func:`per_view`) are lists of
kernels, or objects that turn into a list once the data are known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mklearn.data.views import Columns, MultiView
from mklearn.kernels.specs import (
    RBF,
    Chi2,
    Cosine,
    Function,
    HistogramIntersection,
    Kernel,
    Laplacian,
    Linear,
    Matern32,
    Matern52,
    Polynomial,
    Product,
    Spectrum,
    Tanimoto,
    WeightedDegree,
)

LADDER = 5  # number of widths from which a search may leave out the narrowest ones


@dataclass(frozen=True)
class Family:
    """Kernels that are repeated for columns or views once the data are known."""

    kernels: tuple[Kernel, ...]
    over: str
    names: tuple[str, ...] | None = None

    def __mul__(self, other: Any) -> Family:
        """Return the family of the products with another kernel.

        A kernel without columns and view is repeated, like those of the family.
        """
        if not isinstance(other, Kernel):
            return NotImplemented
        return replace(self, kernels=tuple(kernel * other for kernel in self.kernels))

    def __rmul__(self, other: Any) -> Family:
        """Return the family of the products with another kernel, which comes first."""
        if not isinstance(other, Kernel):
            return NotImplemented
        return replace(self, kernels=tuple(other * kernel for kernel in self.kernels))

    def expand(self, data: MultiView) -> list[Kernel]:
        """Return the kernels, one set for each column or view of ``data``."""
        if self.over == "names" and len(data.names) == 1:
            return list(self.kernels)
        if self.over in ("views", "names"):
            wanted = self.names if self.names is not None else data.names
            return [
                _moved(kernel, view=view)
                for view in wanted
                for kernel in self.kernels
                if self.names is not None or data.is_text(view) == bool(kernel.text)
            ]
        out = []
        for kernel in self.kernels:
            view = data.view_name(kernel.view)
            index = data.column_index(view, kernel.columns)
            names = data.column_names(view) or ()
            by_name = len(set(names)) == data[view].shape[1]
            out += [
                _moved(kernel, columns=names[i] if by_name else int(i)) for i in index
            ]
        return out


def _moved(kernel: Kernel, **place: Any) -> Kernel:
    """Return the kernel on another view or columns, as its name, if any, then says."""
    moved = kernel.put(**place)
    if kernel.name is None:
        return moved
    return replace(moved, name=replace(Kernel(), **place).at_place(kernel.name))


KernelLike = Kernel | Family | str | Callable[..., Any] | Sequence[Any]

BY_NAME: dict[str, type[Kernel]] = {
    cls.__name__.lower(): cls
    for cls in (
        Linear, Polynomial, RBF, Laplacian, Matern32, Matern52, Chi2,
        HistogramIntersection, Cosine, Tanimoto, Spectrum, WeightedDegree,
    )
}  # fmt: skip


def rbf_ladder(
    n: int = 10,
    *,
    gammas: Iterable[float] | None = None,
    sigmas: Iterable[float] | None = None,
    convention: str | None = None,
    spread: float = 100.0,
    columns: Columns = None,
    view: str | None = None,
    standardize: bool = False,
) -> list[RBF]:
    """Return RBF kernels of several widths that share one distance matrix.

    Parameters
    ----------
    n : int
        Number of widths around the median distance, if neither ``gammas`` nor
        ``sigmas`` are given: gamma runs geometrically from ``1/sqrt(spread)`` to
        ``sqrt(spread)`` times one over the median squared distance.
    gammas : iterable of float, optional
        Widths as in ``exp(-gamma * d2)`` where d2 is the squared distance.
    sigmas : iterable of float, optional
        Widths in the notation named by ``convention``.
    convention : {"2sigma^2", "sigma^2", "sigma"}
        The divisor of the squared distance; required with ``sigmas`` because papers
        differ.
    spread : float
        Ratio of the largest to the smallest gamma around the median.
    columns, view, standardize
        Passed to each kernel.

    Examples
    --------
    >>> [k.gamma for k in rbf_ladder(sigmas=[1, 2], convention="2sigma^2")]
    [0.5, 0.125]
    """
    place: dict[str, Any] = {
        "columns": columns,
        "view": view,
        "standardize": standardize,
    }
    if gammas is not None and sigmas is not None:
        raise ValueError("Give gammas or sigmas, not both.")
    if sigmas is not None:
        divisors: dict[str, Callable[[float], float]] = {
            "2sigma^2": lambda s: 2.0 * s * s,
            "sigma^2": lambda s: s * s,
            "sigma": lambda s: s,
        }
        if convention not in divisors:
            raise ValueError(
                f"With sigmas, convention must be one of {list(divisors)} (the divisor "
                f"of the squared distance), got {convention!r}."
            )
        sigmas = [float(s) for s in sigmas]
        if not all(0 < s < math.inf for s in sigmas):
            raise ValueError(f"sigmas must be positive numbers, got {sigmas}.")
        gammas = [1.0 / divisors[convention](s) for s in sigmas]
    if gammas is not None:
        return [RBF(float(g), **place) for g in gammas]
    if n < 1 or spread < 1:
        raise ValueError(f"rbf_ladder needs n >= 1 and spread >= 1, got {n}, {spread}.")
    half = math.log(spread) / 2
    steps = [0.0] if n == 1 else np.linspace(-half, half, n)
    return [RBF("median", factor=math.exp(t), **place) for t in steps]


def per_feature(*kernels: KernelLike) -> Family:
    """Return a family with one copy of each kernel for each single column.

    Parameters
    ----------
    *kernels : kernel, name, callable or list of these

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from mklearn import KernelBank
    >>> from mklearn.kernels import RBF, per_feature
    >>> KernelBank(load_iris().data, per_feature(RBF(1.0))).shape
    (150, 150, 4)
    """
    return Family(tuple(_flatten(kernels)), "features")


def per_view(*kernels: KernelLike, views: Iterable[str] | None = None) -> Family:
    """Return a family with one copy of each kernel for each view.

    Sequence kernels go to the views of strings, the others to the numeric ones,
    unless ``views`` names them.

    Parameters
    ----------
    *kernels : kernel, name, callable or list of these
    views : iterable of str, optional
        Names of the views; by default all views that suit a kernel.

    Examples
    --------
    >>> from mklearn import KernelBank, MultiView
    >>> from mklearn.kernels import Linear, Spectrum, per_view
    >>> X = MultiView({"a": [[0.0], [1.0]], "b": [[2.0], [5.0]], "word": ["xy", "yx"]})
    >>> KernelBank(X, per_view(Linear(), Spectrum(1))).names
    ('a:linear', 'b:linear', 'word:spectrum(k=1)')
    """
    return Family(
        tuple(_flatten(kernels)), "views", None if views is None else tuple(views)
    )


def auto_kernels(data: MultiView) -> list[Kernel]:
    """Return the default kernels for ``data``: linear, and several widths.

    Each numeric view gets a linear kernel and five RBF kernels (gamma from 1/16 to 16
    times one over the mean squared distance) on standardised columns; a view of
    strings gets spectrum kernels of length 1 to 3, and weighted-degree kernels if all
    strings have the same length.
    """
    out: list[Kernel] = []
    for name in data.names:
        view = name if len(data.names) > 1 else None
        if data.is_text(name):
            out += [Spectrum(k, view=view) for k in (1, 2, 3)]
            if len({len(s) for s in data[name][~data.absent(name)]}) == 1:
                out += [WeightedDegree(3, shift, view=view) for shift in (0, 2)]
            continue
        out.append(Linear(view=view, standardize=True))
        out += [
            RBF("scale", factor, view=view, standardize=True)
            for factor in (1 / 16, 1 / 4, 1.0, 4.0, 16.0)
        ]
    return out


def width_ranges(kernels: Sequence[Kernel | None]) -> list[NDArray[np.intp]]:
    """Return choices of kernels: all, and those without the narrowest widths.

    Kernels that differ only in their width are a ladder. From each ladder of
    five widths or more the narrowest fifth is left out, or the narrowest two fifths: a
    narrow kernel can memorise any labels, so that neither the training objective nor
    the weights that minimise it show whether it is useful. Held-out samples do.

    Parameters
    ----------
    kernels : sequence of Kernel or None
        Kernels with numeric widths, such as those of a bank; None for given Gram
        matrices.

    Returns
    -------
    list of arrays of int
        Indices of kernels. The first choice is all of them; it is the only one if there
        is no ladder.

    Examples
    --------
    >>> from mklearn.kernels import Linear
    >>> kernels = [Linear(), *rbf_ladder(gammas=[1, 2, 4, 8, 16])]
    >>> [len(choice) for choice in width_ranges(kernels)]
    [6, 5, 4]
    """
    ladders: dict[Any, list[tuple[float, int]]] = {}
    for m, kernel in enumerate(kernels):
        found = None if kernel is None else kernel.exponential()
        if kernel is not None and found is not None:
            place = (type(kernel), kernel.view, repr(kernel.columns))
            ladders.setdefault(place, []).append((found[0], m))
    long = [sorted(one) for one in ladders.values() if len(one) >= LADDER]
    choices = [np.arange(len(kernels))]
    for fifths in (1, 2) if long else ():
        out = [m for one in long for _, m in one[len(one) - fifths * len(one) // 5 :]]
        choices.append(np.setdiff1d(choices[0], out))
    return choices


def expand_kernels(kernels: KernelLike, data: MultiView) -> list[Kernel]:
    """Return the list of kernels that ``kernels`` stands for, given ``data``."""
    if isinstance(kernels, str) and kernels == "auto":
        return auto_kernels(data)
    out: list[Kernel] = []
    for item in _flatten([kernels], keep_families=True):
        out += item.expand(data) if isinstance(item, Family) else [item]
    if not out:
        raise ValueError("The list of kernels is empty; give at least one kernel.")
    return [
        kernel.settled() if isinstance(kernel, Product) else kernel for kernel in out
    ]


def flat_kernels(kernels: Iterable[Any]) -> list[Kernel]:
    """Return kernels, names, callables and lists of these as a list of kernels."""
    return _flatten(kernels)


def _flatten(kernels: Iterable[Any], keep_families: bool = False) -> list[Any]:
    out: list[Any] = []
    for item in kernels:
        if isinstance(item, Kernel) or (keep_families and isinstance(item, Family)):
            out.append(item)
        elif isinstance(item, str):
            key = item.lower().replace("_", "")
            if key not in BY_NAME:
                raise ValueError(
                    f"Unknown kernel {item!r}; choose from {sorted(BY_NAME)}. 'auto' "
                    "and 'precomputed' cannot be part of a list."
                )
            named = BY_NAME[key]()
            # a name stands for a kernel on each of the views
            out.append(Family((named,), "names") if keep_families else named)
        elif isinstance(item, type) and issubclass(item, Kernel):
            raise TypeError(f"Got the class {item.__name__}; pass an instance of it.")
        elif callable(item):
            out.append(Function(item))
        elif isinstance(item, (list, tuple)):
            out += _flatten(item, keep_families)
        else:
            raise TypeError(
                "A kernel must be a mklearn kernel, a name, a callable (X, Z) -> "
                f"array or a scikit-learn Gaussian-process kernel; got {item!r}."
            )
    return out
