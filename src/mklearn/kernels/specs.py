"""Kernels as values: what is compared, on which columns or view, under which name.

A kernel is a frozen dataclass. Parameters that depend on data (``gamma="median"``)
are turned into numbers by :meth:`Kernel.resolve` when a bank is made, on the training
samples only. Families (:func:`rbf_ladder`, :func:`per_feature`, :func:`per_view`) are
lists of kernels, or know how to become one once the data are there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from mklearn.kernels import sequences
from mklearn.kernels.functions import BASES, Prepared, prepare
from mklearn.kernels.multiview import Columns, MultiView

Weights = NDArray[np.float64] | None


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """What all kernels have: where they look and how they are called.

    Parameters
    ----------
    columns : int, str, slice, sequence of these, or None
        The columns of the view that the kernel sees; all of them by default.
    view : str or None
        The view of a :class:`MultiView`; None where there is only one.
    name : str or None
        The name shown in tables; made from the parameters by default.
    """

    columns: Columns = None
    view: str | None = None
    name: str | None = None

    base: ClassVar[str | None] = None
    definite: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if isinstance(self.columns, (list, range, np.ndarray)):
            object.__setattr__(self, "columns", tuple(self.columns))

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of the formula (not place or name)."""
        place = {f.name for f in fields(Kernel)}
        return {
            f.name: getattr(self, f.name) for f in fields(self) if f.name not in place
        }

    def label(self) -> str:
        """Return ``name``, or a name made from place and parameters."""
        if self.name is not None:
            return self.name
        shown = [
            f"{key}={_short(value)}"
            for key, value in self.parameters().items()
            if key not in ("standardize", "factor", "alphabet")
        ]
        text = f"{type(self).__name__.lower()}({', '.join(shown)})"
        if self.view is not None:
            text = f"{self.view}:{text}"
        if self.columns is not None:
            text += f"[{_short(self.columns)}]"
        return text

    def resolve(self, data: Any, sample_weight: Weights = None) -> Kernel:
        """Return the kernel with data-dependent parameters made numbers."""
        return self


@dataclass(frozen=True, kw_only=True)
class VectorKernel(Kernel):
    """A kernel on numeric columns; ``standardize`` scales them on the training data."""

    standardize: bool = False

    def exponential(self) -> tuple[float, float, float, float] | None:
        """Return ``(gamma, root, c1, c2)`` for the exponential family, else None."""
        return None

    def from_base(
        self, B: NDArray[Any], row_sq: NDArray[Any], col_sq: NDArray[Any]
    ) -> NDArray[Any]:
        """Return the kernel's values from the base matrix (a new array)."""
        raise TypeError(f"{type(self).__name__} is evaluated by its exponential map")

    def diag(self, rows: Prepared) -> NDArray[np.float64]:
        """Return ``k(x, x)`` for each row."""
        return np.ones(len(rows))

    def check_domain(self, X: Any) -> None:
        """Raise ValueError where the formula does not hold for ``X``."""


@dataclass(frozen=True)
class Linear(VectorKernel):
    """``<x, z>``."""

    base: ClassVar[str | None] = "dot"

    def from_base(self, B, row_sq, col_sq):  # type: ignore[no-untyped-def]  # noqa: D102
        return np.array(B, dtype=np.float64)

    def diag(self, rows: Prepared) -> NDArray[np.float64]:  # noqa: D102
        return rows.sqnorms.copy()


@dataclass(frozen=True)
class Polynomial(VectorKernel):
    """``(gamma * <x, z> + coef0) ** degree``."""

    degree: int = 3
    gamma: float = 1.0
    coef0: float = 1.0

    base: ClassVar[str | None] = "dot"

    def __post_init__(self) -> None:
        super().__post_init__()
        _require(self.degree == int(self.degree) and self.degree >= 1, self, "degree")
        _require(self.gamma > 0, self, "gamma")
        _require(self.coef0 >= 0, self, "coef0")

    def from_base(self, B, row_sq, col_sq):  # type: ignore[no-untyped-def]  # noqa: D102
        K = self.gamma * np.asarray(B, dtype=np.float64)
        K += self.coef0
        return K**self.degree

    def diag(self, rows: Prepared) -> NDArray[np.float64]:  # noqa: D102
        return np.asarray((self.gamma * rows.sqnorms + self.coef0) ** self.degree)


@dataclass(frozen=True)
class Cosine(VectorKernel):
    """``<x, z> / (|x| |z|)``; a row of zeros is at right angles to everything."""

    base: ClassVar[str | None] = "dot"

    def from_base(self, B, row_sq, col_sq):  # type: ignore[no-untyped-def]  # noqa: D102
        inverse = [np.where(sq > 0, sq, np.inf) ** -0.5 for sq in (row_sq, col_sq)]
        return B * inverse[0][:, None] * inverse[1][None, :]

    def diag(self, rows: Prepared) -> NDArray[np.float64]:  # noqa: D102
        return (rows.sqnorms > 0).astype(np.float64)


@dataclass(frozen=True)
class Tanimoto(VectorKernel):
    """``<x, z> / (|x|^2 + |z|^2 - <x, z>)``, for fingerprints (0 or more)."""

    base: ClassVar[str | None] = "dot"

    def from_base(self, B, row_sq, col_sq):  # type: ignore[no-untyped-def]  # noqa: D102
        B = np.asarray(B, dtype=np.float64)
        below = row_sq[:, None] + col_sq[None, :] - B
        # two empty fingerprints are the same: 0/0 counts as 1
        return np.where(below > 0, B / np.where(below > 0, below, 1.0), 1.0)

    def check_domain(self, X: Any) -> None:  # noqa: D102
        _require_nonnegative(X, self)


@dataclass(frozen=True)
class _Exponential(VectorKernel):
    """A kernel ``(1 + c1 s + c2 s^2) exp(-s)`` with a width.

    ``gamma`` is a number, ``"median"`` (one over the median of the base distance
    between samples) or ``"scale"`` (one over its mean); ``factor`` multiplies it.
    """

    gamma: float | str = "median"
    factor: float = 1.0

    root: ClassVar[bool] = False
    c1: ClassVar[float] = 0.0
    c2: ClassVar[float] = 0.0
    width: ClassVar[float] = 1.0  # gamma = width / distance**power

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.gamma, str):
            _require(self.gamma in ("median", "scale"), self, "gamma")
        else:
            _require(np.isfinite(self.gamma) and self.gamma > 0, self, "gamma")
        _require(np.isfinite(self.factor) and self.factor > 0, self, "factor")

    def exponential(self) -> tuple[float, float, float, float] | None:  # noqa: D102
        if isinstance(self.gamma, str):
            raise ValueError(f"{self.label()} must be resolved on data first")
        return float(self.gamma), float(self.root), self.c1, self.c2

    def resolve(self, data: Any, sample_weight: Weights = None) -> Kernel:  # noqa: D102
        if not isinstance(self.gamma, str):
            return self
        distance = _typical_distance(data, self.base, self.gamma, sample_weight)
        if self.root:
            distance = math.sqrt(distance)
        # samples that are all equal have no scale: any width gives the same kernel
        gamma = self.factor * self.width / distance if distance > 0 else self.factor
        return replace(self, gamma=gamma, factor=1.0)


@dataclass(frozen=True)
class RBF(_Exponential):
    """``exp(-gamma * |x - z|^2)``."""

    base: ClassVar[str | None] = "sqdist"


@dataclass(frozen=True)
class Laplacian(_Exponential):
    """``exp(-gamma * sum_j |x_j - z_j|)``."""

    base: ClassVar[str | None] = "l1dist"


@dataclass(frozen=True)
class Chi2(_Exponential):
    """``exp(-gamma * sum_j (x_j - z_j)^2 / (x_j + z_j))`` for histograms (0 or more)."""

    base: ClassVar[str | None] = "chi2dist"

    def check_domain(self, X: Any) -> None:  # noqa: D102
        _require_nonnegative(X, self)


@dataclass(frozen=True)
class Matern32(_Exponential):
    """``(1 + s) exp(-s)``, ``s = gamma * |x - z|`` (gamma is sqrt(3) / length)."""

    base: ClassVar[str | None] = "sqdist"
    root: ClassVar[bool] = True
    c1: ClassVar[float] = 1.0
    width: ClassVar[float] = math.sqrt(3.0)


@dataclass(frozen=True)
class Matern52(_Exponential):
    """``(1 + s + s^2/3) exp(-s)``, ``s = gamma * |x - z|`` (gamma: sqrt(5) / length)."""

    base: ClassVar[str | None] = "sqdist"
    root: ClassVar[bool] = True
    c1: ClassVar[float] = 1.0
    c2: ClassVar[float] = 1.0 / 3.0
    width: ClassVar[float] = math.sqrt(5.0)


@dataclass(frozen=True)
class HistogramIntersection(VectorKernel):
    """``sum_j min(x_j, z_j)`` for histograms (0 or more)."""

    base: ClassVar[str | None] = "intersection"

    def from_base(self, B, row_sq, col_sq):  # type: ignore[no-untyped-def]  # noqa: D102
        return np.array(B, dtype=np.float64)

    def diag(self, rows: Prepared) -> NDArray[np.float64]:  # noqa: D102
        return np.asarray(rows.rows.sum(axis=1), dtype=np.float64).ravel()

    def check_domain(self, X: Any) -> None:  # noqa: D102
        _require_nonnegative(X, self)


@dataclass(frozen=True, kw_only=True)
class ComputedKernel(Kernel):
    """A kernel that is a function of two sets of samples."""

    text: ClassVar[bool] = False

    def compute(self, a: Any, b: Any) -> NDArray[np.float64]:
        """Return the values, shape ``(len(a), len(b))``."""
        raise TypeError(f"{type(self).__name__} does not say how it is computed")

    def diag(self, a: Any) -> NDArray[np.float64]:
        """Return ``k(x, x)`` for each sample, by small blocks."""
        n = a.shape[0]
        parts = [
            np.diagonal(self.compute(a[i : i + 32], a[i : i + 32])).copy()
            for i in range(0, n, 32)
        ]
        return np.concatenate(parts) if parts else np.empty(0)


@dataclass(frozen=True)
class Spectrum(ComputedKernel):
    """Inner product of the counts of all substrings of length ``min_k`` to ``k``.

    ``alphabet`` None takes the letters of the training sequences.
    """

    k: int = 3
    min_k: int | None = None
    alphabet: str | None = None

    text: ClassVar[bool] = True

    def resolve(self, data: Any, sample_weight: Weights = None) -> Kernel:  # noqa: D102
        return self if self.alphabet else replace(self, alphabet=_letters(data))

    def compute(self, a: Any, b: Any) -> NDArray[np.float64]:  # noqa: D102
        return sequences.spectrum_gram(a, b, self.k, self.alphabet, self.min_k)

    def diag(self, a: Any) -> NDArray[np.float64]:  # noqa: D102
        return sequences.spectrum_diag(a, self.k, self.alphabet, self.min_k)


@dataclass(frozen=True)
class WeightedDegree(ComputedKernel):
    """Matching substrings at the same place, up to ``shift``, of aligned sequences."""

    degree: int = 3
    shift: int = 0
    alphabet: str | None = None

    text: ClassVar[bool] = True

    def resolve(self, data: Any, sample_weight: Weights = None) -> Kernel:  # noqa: D102
        return self if self.alphabet else replace(self, alphabet=_letters(data))

    def compute(self, a: Any, b: Any) -> NDArray[np.float64]:  # noqa: D102
        return sequences.weighted_degree_gram(
            a, b, self.degree, self.shift, self.alphabet
        )

    def diag(self, a: Any) -> NDArray[np.float64]:  # noqa: D102
        return sequences.weighted_degree_diag(
            a, self.degree, self.shift, self.alphabet
        )


@dataclass(frozen=True, eq=False)
class Precomputed(ComputedKernel):
    """Look-up in a given Gram matrix: the (single) column holds row numbers of it.

    This lets a Gram travel in a table or a :class:`MultiView` beside other views. For
    input that is nothing but Grams see ``kernels="precomputed"``.
    """

    gram: Any = None

    definite: ClassVar[bool] = False

    def parameters(self) -> dict[str, Any]:  # noqa: D102
        return {"n": np.shape(self.gram)[0]}

    def compute(self, a: Any, b: Any) -> NDArray[np.float64]:  # noqa: D102
        return np.asarray(self.gram, dtype=np.float64)[np.ix_(self._ids(a), self._ids(b))]

    def diag(self, a: Any) -> NDArray[np.float64]:  # noqa: D102
        ids = self._ids(a)
        return np.asarray(self.gram, dtype=np.float64)[ids, ids]

    def _ids(self, a: Any) -> NDArray[np.intp]:
        n = np.shape(self.gram)[0]
        ids = np.asarray(a)[:, 0].astype(np.intp)
        valid = a.shape[1] == 1 and (ids == np.asarray(a)[:, 0]).all()
        if not valid or (ids < 0).any() or (ids >= n).any():
            raise ValueError(
                f"Precomputed looks up row numbers from 0 to {n - 1} in one column; "
                "the column given holds something else."
            )
        return ids


@dataclass(frozen=True)
class Function(ComputedKernel):
    """Any callable ``(X, Z) -> array``, or a Gaussian-process kernel of scikit-learn."""

    function: Callable[[Any, Any], Any] | Any = None

    definite: ClassVar[bool] = False

    def parameters(self) -> dict[str, Any]:  # noqa: D102
        return {"": getattr(self.function, "__name__", str(self.function))}

    def label(self) -> str:  # noqa: D102
        if self.name is not None:
            return self.name
        text = str(self.parameters()[""])
        if self.view is not None:
            text = f"{self.view}:{text}"
        return text if self.columns is None else f"{text}[{_short(self.columns)}]"

    def compute(self, a: Any, b: Any) -> NDArray[np.float64]:  # noqa: D102
        K = np.asarray(self.function(a, b), dtype=np.float64)
        if K.shape != (a.shape[0], b.shape[0]):
            raise ValueError(
                f"Kernel {self.label()!r} returned shape {K.shape} for "
                f"{a.shape[0]} x {b.shape[0]} samples; it must return (n_x, n_z)."
            )
        return K

    def diag(self, a: Any) -> NDArray[np.float64]:  # noqa: D102
        if hasattr(self.function, "diag"):
            return np.asarray(self.function.diag(a), dtype=np.float64)
        return super().diag(a)


@dataclass(frozen=True)
class Family:
    """Kernels to be repeated over columns or views once the data are known."""

    kernels: tuple[Kernel, ...]
    over: str
    names: tuple[str, ...] | None = None

    def expand(self, data: MultiView) -> list[Kernel]:
        """Return the kernels, one set for each column or view of ``data``."""
        if self.over == "views":
            wanted = self.names if self.names is not None else data.names
            return [
                replace(kernel, view=view)
                for view in wanted
                for kernel in self.kernels
                if self.names is not None
                or data.is_text(view) == getattr(kernel, "text", False)
            ]
        out = []
        for kernel in self.kernels:
            view = data.view_name(kernel.view)
            index = data.column_index(view, kernel.columns)
            names = data.column_names(view)
            out += [
                replace(kernel, columns=names[i] if names else int(i)) for i in index
            ]
        return out


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
        What divides the squared distance; needed with ``sigmas`` because papers
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
                f"sigmas need convention= one of {list(divisors)} (what divides the "
                f"squared distance), got {convention!r}."
            )
        gammas = [1.0 / divisors[convention](float(s)) for s in sigmas]
    if gammas is not None:
        return [RBF(float(g), **place) for g in gammas]
    if n < 1 or spread < 1:
        raise ValueError(f"rbf_ladder needs n >= 1 and spread >= 1, got {n}, {spread}.")
    half = math.log(spread) / 2
    steps = [0.0] if n == 1 else np.linspace(-half, half, n)
    return [
        RBF("median", factor=math.exp(t), name=f"{view + ':' if view else ''}"
            f"rbf({math.exp(t):.3g}/median)", **place)
        for t in steps
    ]  # fmt: skip


def per_feature(*kernels: KernelLike) -> Family:
    """Return a family with one copy of each kernel for each single column."""
    return Family(tuple(_flatten(kernels)), "features")


def per_view(*kernels: KernelLike, views: Iterable[str] | None = None) -> Family:
    """Return a family with one copy of each kernel for each view.

    Sequence kernels go to the views of strings, the others to the numeric ones,
    unless ``views`` names them.
    """
    return Family(
        tuple(_flatten(kernels)), "views", None if views is None else tuple(views)
    )


def auto_kernels(data: MultiView) -> list[Kernel]:
    """Return a sensible bank for ``data``: widths around its scale, and a linear one.

    Each numeric view gets a linear kernel and five RBF kernels (gamma from 1/16 to 16
    times one over the mean squared distance) on standardised columns; a view of
    strings gets spectrum kernels of length 1 to 3, and weighted-degree kernels if all
    strings have the same length.
    """
    out: list[Kernel] = []
    several = len(data.names) > 1
    for name in data.names:
        view = name if several else None
        prefix = f"{name}:" if several else ""
        if data.is_text(name):
            out += [Spectrum(k, view=view) for k in (1, 2, 3)]
            if len({len(s) for s in data[name]}) == 1:
                out += [WeightedDegree(3, shift, view=view) for shift in (0, 2)]
            continue
        out.append(Linear(view=view, standardize=True, name=f"{prefix}linear"))
        for factor in (1 / 16, 1 / 4, 1.0, 4.0, 16.0):
            label = f"{prefix}rbf({factor:g}/scale)"
            out.append(
                RBF("scale", factor, view=view, standardize=True, name=label)
            )
    return out


def expand_kernels(kernels: KernelLike, data: MultiView) -> list[Kernel]:
    """Return the plain list of kernels that ``kernels`` means for ``data``."""
    if isinstance(kernels, str) and kernels == "auto":
        return auto_kernels(data)
    out: list[Kernel] = []
    for item in _flatten([kernels], keep_families=True):
        out += item.expand(data) if isinstance(item, Family) else [item]
    if not out:
        raise ValueError("The list of kernels is empty; give at least one kernel.")
    return out


def _flatten(kernels: Iterable[Any], keep_families: bool = False) -> list[Any]:
    out: list[Any] = []
    for item in kernels:
        if isinstance(item, Kernel) or (keep_families and isinstance(item, Family)):
            out.append(item)
        elif isinstance(item, str):
            key = item.lower().replace("_", "")
            if key not in BY_NAME:
                raise ValueError(
                    f"Unknown kernel {item!r}; known are {sorted(BY_NAME)}, 'auto' "
                    "and 'precomputed'."
                )
            out.append(BY_NAME[key]())
        elif isinstance(item, type) and issubclass(item, Kernel):
            raise TypeError(f"Got the class {item.__name__}; pass an instance of it.")
        elif callable(item):
            out.append(Function(item))
        elif isinstance(item, (list, tuple)):
            out += _flatten(item, keep_families)
        else:
            raise TypeError(
                f"A kernel is a mklearn kernel, a name, a callable (X, Z) -> array or "
                f"a scikit-learn Gaussian-process kernel; got {item!r}."
            )
    return out


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, (tuple, list)):
        text = ",".join(map(str, value[:3]))
        return text + (f",… {len(value)} in all" if len(value) > 3 else "")
    return str(value)


def _require(condition: bool, kernel: Kernel, parameter: str) -> None:
    if not condition:
        got = getattr(kernel, parameter)
        raise ValueError(
            f"{type(kernel).__name__} got {parameter}={got!r}, which is out of range."
        )


def _require_nonnegative(X: Any, kernel: Kernel) -> None:
    values = X.data if sparse.issparse(X) else X
    if np.size(values) and np.min(values) < 0:
        raise ValueError(
            f"Kernel {kernel.label()!r} needs non-negative columns (histograms, counts,"
            f" fingerprints), got a smallest value of {np.min(values):.4g}."
        )


def _letters(strings: Any) -> str:
    return "".join(sorted(set().union(*strings)))


def _typical_distance(
    X: Any, base: str | None, kind: str, sample_weight: Weights
) -> float:
    """Return the weighted median or mean base distance between different samples."""
    n = X.shape[0]
    w = np.ones(n) if sample_weight is None else np.asarray(sample_weight, float)
    if kind == "scale" and base == "sqdist":
        # mean |x - z|^2 over all pairs is twice the sum of the variances
        mean = np.asarray((w / w.sum()) @ X).ravel()
        square = X.multiply(X) if sparse.issparse(X) else X * X
        return float(2.0 * np.sum(np.asarray((w / w.sum()) @ square) - mean**2))
    if n > 1000:  # a regular subsample is enough for a heuristic, and deterministic
        keep = np.linspace(0, n - 1, 1000).astype(int)
        X, w = X[keep], w[keep]
    rows = prepare(X)
    D = BASES[str(base)](rows, rows)
    if kind == "scale":
        return float(w @ D @ w / w.sum() ** 2)
    upper = np.triu_indices(len(rows), 1)
    d, pair = D[upper], (w[:, None] * w[None, :])[upper]
    positive = d > 0  # duplicates say nothing about the scale
    if not positive.any():
        return 0.0
    order = np.argsort(d[positive], kind="stable")
    cumulative = np.cumsum(pair[positive][order])
    middle = np.searchsorted(cumulative, cumulative[-1] / 2)
    return float(d[positive][order][middle])
