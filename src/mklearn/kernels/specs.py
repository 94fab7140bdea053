"""Kernels as values: what is compared, on which columns or view, under which name.

A kernel is a frozen dataclass. Parameters that depend on data (``gamma="median"``)
are turned into numbers by :meth:`Kernel.resolve` when a bank is made, on the training
samples only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import combinations_with_replacement
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from mklearn.data.spelling import plural
from mklearn.data.views import Columns
from mklearn.kernels.functions import (
    BASES,
    Prepared,
    exponential_map,
    moments,
    prepare,
)
from mklearn.kernels.joint import Joint
from mklearn.kernels.spectrum import spectrum_diag, spectrum_features, spectrum_gram
from mklearn.kernels.weighted_degree import weighted_degree_diag, weighted_degree_gram

Matrix = NDArray[Any]
Vector = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """Base class of kernels: the columns or view used, and the name.

    Parameters
    ----------
    columns : int, str, slice, sequence of these, mask, or None
        The columns of the view that the kernel uses, by position or by name; all of
        them by default.
    view : str or None
        The view of a :class:`MultiView`; may be None if there is only one.
    name : str or None
        The name shown in tables; by default it is derived from the parameters.
    """

    columns: Columns = None
    view: str | None = None
    name: str | None = None

    base: ClassVar[str | None] = None
    definite: ClassVar[bool] = True
    text: ClassVar[bool | None] = False  # takes strings; None: takes anything

    def __post_init__(self) -> None:
        if not isinstance(self.columns, (int, str, slice, type(None))):
            columns = np.asarray(self.columns, dtype=object).ravel().tolist()
            object.__setattr__(self, "columns", tuple(columns))

    def __mul__(self, other: Any) -> Kernel:
        """Return the product with another kernel."""
        if not isinstance(other, Kernel):
            return NotImplemented
        return Product(factors=(self, other))

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of the formula (not place or name)."""
        place = {f.name for f in fields(Kernel)}
        return {
            f.name: getattr(self, f.name) for f in fields(self) if f.name not in place
        }

    def describe(self) -> str:
        """Return the formula's name and parameters, as shown in tables."""
        shown = [
            f"{key}={_short(value)}"
            for key, value in self.parameters().items()
            if key not in ("standardize", "alphabet")
        ]
        name = type(self).__name__.lower()
        return f"{name}({', '.join(shown)})" if shown else name

    def label(self) -> str:
        """Return ``name``, or a name made from place and parameters."""
        if self.name is not None:
            return self.name
        return self.at_place(self.describe())

    def at_place(self, text: str) -> str:
        """Return ``text`` marked with the view and the columns."""
        view = "" if self.view is None else f"{self.view}:"
        columns = "" if self.columns is None else f"[{_short(self.columns)}]"
        return f"{view}{text}{columns}"

    @property
    def placed(self) -> bool:
        """Whether the kernel has its own columns or view."""
        return self.columns is not None or self.view is not None

    def put(self, **place: Any) -> Kernel:
        """Return the kernel on other ``columns``, another ``view``, or both."""
        return replace(self, **place)

    def check_domain(self, X: Any) -> None:
        """Raise ValueError where the formula does not hold for the samples ``X``."""

    def resolve(
        self,
        data: Any,
        sample_weight: Vector | None = None,
        known: dict[Any, Any] | None = None,
    ) -> Kernel:
        """Return the kernel with data-dependent parameters made numbers.

        ``known`` caches statistics of the data between kernels.
        """
        return self

    @property
    def standardized(self) -> bool:
        """Whether the kernel sees columns of mean 0 and variance 1."""
        return False

    def values(self, a: Any, b: Any, known: dict[Any, Any]) -> Vector:
        """Return the kernel between two sets of samples, shape ``(len(a), len(b))``.

        ``known`` caches what kernels on the same samples share, such as distances.
        """
        raise TypeError(f"{type(self).__name__} does not say how it is computed")

    def diagonal(self, a: Any) -> Vector:
        """Return ``k(x, x)`` for each sample."""
        raise TypeError(f"{type(self).__name__} does not say how it is computed")

    def n_explicit(self, X: Any) -> int | None:
        """Return how many features of ``X`` the kernel is made of, None if unknown."""
        return None

    def explicit(self, X: Any) -> Vector:
        """Return these features, shape ``(len(X), n_explicit)``."""
        raise TypeError(f"{type(self).__name__} is not made of features")

    def exponential(self) -> tuple[float, float, float, float] | None:
        """Return ``(gamma, root, c1, c2)`` for the exponential family, else None."""
        return None

    def spectral(self) -> tuple[str, float] | None:
        """Return the kind and the scale of the frequencies it is made of, if any.

        Kinds are "rbf", "laplacian" and "matern" with the smoothness.
        """
        return None


@dataclass(frozen=True, kw_only=True)
class VectorKernel(Kernel):
    """A kernel on numeric columns.

    ``standardize`` scales each column to mean 0 and variance 1 on the training samples.
    Sparse columns keep their zeros: they are scaled but not shifted.
    """

    standardize: bool = False

    @property
    def standardized(self) -> bool:
        """Whether the kernel sees columns of mean 0 and variance 1."""
        return self.standardize

    def values(self, a: Any, b: Any, known: dict[Any, Any]) -> Vector:
        """Return the values from the base, which is computed once for all kernels."""
        base = str(self.base)
        if base not in known:
            left, right = _near_zero(a, b) if base == "sqdist" else (a, b)
            rows, cols = prepare(left), prepare(right)
            B = np.ascontiguousarray(BASES[base](rows, cols))
            known[base] = B, rows.sqnorms, cols.sqnorms
        B, row_sq, col_sq = known[base]
        numbers = self.exponential()
        if numbers is None:
            return np.asarray(self.from_base(B, row_sq, col_sq), dtype=np.float64)
        out = np.empty_like(B)
        exponential_map(B, np.array(numbers), out)
        return out

    def diagonal(self, a: Any) -> Vector:
        """Return ``k(x, x)`` for each sample."""
        return self.diag(prepare(a))

    def from_base(self, B: Matrix, row_sq: Vector, col_sq: Vector) -> Matrix:
        """Return the kernel's values from the base matrix (a new float64 array)."""
        raise TypeError(f"{type(self).__name__} is evaluated by its exponential map")

    def diag(self, rows: Prepared) -> Vector:
        """Return ``k(x, x)`` for each row."""
        return np.ones(rows.n_rows)


@dataclass(frozen=True)
class Linear(VectorKernel):
    """``<x, z>``.

    Parameters
    ----------
    columns, view, name
        Columns and view used, and the name shown; see :class:`Kernel`.
    standardize : bool
        Whether to scale the columns to mean 0 and variance 1 on the training samples.
    """

    base: ClassVar[str | None] = "dot"

    def from_base(self, B: Matrix, row_sq: Vector, col_sq: Vector) -> Matrix:
        """Return the dot products."""
        return np.array(B, dtype=np.float64)

    def diag(self, rows: Prepared) -> Vector:
        """Return the squared norms."""
        return rows.sqnorms.copy()

    def n_explicit(self, X: Any) -> int | None:
        """Return the number of columns."""
        return int(X.shape[1])

    def explicit(self, X: Any) -> Vector:
        """Return the columns themselves."""
        return _dense(X)


@dataclass(frozen=True)
class Polynomial(VectorKernel):
    """``(gamma * <x, z> + coef0) ** degree``.

    Parameters
    ----------
    degree : int
        At least 1.
    gamma : float
        Factor of the dot product.
    coef0 : float
        Constant added to the scaled dot product, 0 or more.
    columns, view, name
        Columns and view used, and the name shown; see :class:`Kernel`.
    standardize : bool
        Whether to scale the columns to mean 0 and variance 1 on the training samples.
    """

    degree: int = 3
    gamma: float = 1.0
    coef0: float = 1.0

    base: ClassVar[str | None] = "dot"

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_count(self, "degree", 1)
        _require_positive(self, "gamma")
        if self.coef0 != 0:
            _require_positive(self, "coef0")

    def from_base(self, B: Matrix, row_sq: Vector, col_sq: Vector) -> Matrix:
        """Return the power of the shifted dot products."""
        K = self.gamma * np.asarray(B, dtype=np.float64)
        K += self.coef0
        return _power(K, self.degree)

    def diag(self, rows: Prepared) -> Vector:
        """Return the power of the shifted squared norms."""
        return _power(self.gamma * rows.sqnorms + self.coef0, self.degree)

    def n_explicit(self, X: Any) -> int | None:
        """Return the number of monomials."""
        d = int(X.shape[1]) + (self.coef0 > 0)
        return math.comb(d + self.degree - 1, self.degree)

    def explicit(self, X: Any) -> Vector:
        """Return all products of ``degree`` columns, with the roots of their counts."""
        X = math.sqrt(self.gamma) * _dense(X)
        if self.coef0 > 0:
            X = np.column_stack([X, np.full(len(X), math.sqrt(self.coef0))])
        chosen = list(combinations_with_replacement(range(X.shape[1]), self.degree))
        out = np.empty((len(X), len(chosen)))
        ways = math.factorial(self.degree)
        for j, columns in enumerate(chosen):
            repeats = math.prod(math.factorial(columns.count(c)) for c in set(columns))
            out[:, j] = math.sqrt(ways / repeats) * X[:, columns].prod(axis=1)
        return out


@dataclass(frozen=True)
class Cosine(VectorKernel):
    """``<x, z> / (|x| |z|)``; a row of zeros is orthogonal to everything.

    Parameters
    ----------
    columns, view, name
        Columns and view used, and the name shown; see :class:`Kernel`.
    standardize : bool
        Whether to scale the columns to mean 0 and variance 1 on the training samples.
    """

    base: ClassVar[str | None] = "dot"

    def from_base(self, B: Matrix, row_sq: Vector, col_sq: Vector) -> Matrix:
        """Return the dot products divided by the norms."""
        row, col = (np.where(sq > 0, sq, np.inf) ** -0.5 for sq in (row_sq, col_sq))
        K = B * row[:, None]
        K *= col
        return K

    def diag(self, rows: Prepared) -> Vector:
        """Return 1, or 0 for a row of zeros."""
        return (rows.sqnorms > 0).astype(np.float64)

    def n_explicit(self, X: Any) -> int | None:
        """Return the number of columns."""
        return int(X.shape[1])

    def explicit(self, X: Any) -> Vector:
        """Return the rows scaled to length one; a row of zeros stays."""
        X = _dense(X)
        size = np.sqrt(np.einsum("ij,ij->i", X, X))
        return np.asarray(X / np.where(size > 0, size, np.inf)[:, None])


@dataclass(frozen=True)
class Tanimoto(VectorKernel):
    """``<x, z> / (|x|^2 + |z|^2 - <x, z>)``, for fingerprints (0 or more).

    Parameters
    ----------
    columns, view, name
        Columns and view used, and the name shown; see :class:`Kernel`.
    standardize : bool
        Whether to scale the columns to mean 0 and variance 1 on the training samples.
    """

    base: ClassVar[str | None] = "dot"

    def from_base(self, B: Matrix, row_sq: Vector, col_sq: Vector) -> Matrix:
        """Return the dot products divided by the size of the union."""
        union = row_sq[:, None] + col_sq[None, :]
        union -= B
        # two empty fingerprints are the same: 0/0 counts as 1
        empty = (row_sq == 0)[:, None] & (col_sq == 0)
        union[empty] = 1.0
        np.divide(B, union, out=union)
        union[empty] = 1.0
        return union

    def check_domain(self, X: Any) -> None:
        """Raise ValueError for negative entries."""
        _require_nonnegative(X, self)


@dataclass(frozen=True)
class _Exponential(VectorKernel):
    """A kernel ``(1 + c1 s + c2 s^2) exp(-s)`` with a width.

    ``gamma`` is a number, ``"median"`` (one over the median of the base distance
    between samples that differ; from 1000 of them if there are more) or ``"scale"``
    (one over the mean over all pairs); ``factor`` multiplies it.
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
            if self.gamma not in ("median", "scale"):
                raise ValueError(
                    f"{type(self).__name__}: gamma must be a positive number, 'median' "
                    f"or 'scale', got {self.gamma!r}."
                )
        else:
            _require_positive(self, "gamma")
        _require_positive(self, "factor")

    def describe(self) -> str:
        """Return the name with the width as it was asked for."""
        name = type(self).__name__.lower()
        if isinstance(self.gamma, str):
            return f"{name}({self.factor:.3g}/{self.gamma})"
        return f"{name}(gamma={_short(self.gamma * self.factor)})"

    @property
    def number(self) -> float:
        """The width as a number."""
        if isinstance(self.gamma, str):
            raise ValueError(f"{self.label()} must be resolved on data first")
        return float(self.gamma * self.factor)

    def exponential(self) -> tuple[float, float, float, float] | None:
        """Return ``(gamma, root, c1, c2)``."""
        return self.number, float(self.root), self.c1, self.c2

    def resolve(
        self,
        data: Any,
        sample_weight: Vector | None = None,
        known: dict[Any, Any] | None = None,
    ) -> Kernel:
        """Return the kernel with ``gamma`` a number."""
        if not isinstance(self.gamma, str):
            return self
        known = {} if known is None else known
        key = (str(self.base), self.gamma)
        if key not in known:
            known[key] = _typical_distance(data, *key, sample_weight)
        distance = math.sqrt(known[key]) if self.root else known[key]
        # samples that are all equal have no scale: any width gives the same kernel
        gamma = self.factor * self.width / distance if distance > 0 else self.factor
        return replace(self, gamma=gamma, factor=1.0)


@dataclass(frozen=True)
class RBF(_Exponential):
    """``exp(-gamma * |x - z|^2)``.

    Parameters
    ----------
    gamma : float, "median" or "scale"
        A number, or one over the median ("median") or the mean ("scale") of the
        distances between training samples, as in the formula above; the median leaves
        out distances of zero.
    factor : float
        Multiplies gamma.
    columns, view, name
        Columns and view used, and the name shown; see :class:`Kernel`.
    standardize : bool
        Whether to scale the columns to mean 0 and variance 1 on the training samples.
    """

    base: ClassVar[str | None] = "sqdist"

    def spectral(self) -> tuple[str, float] | None:
        """Return the scale of normal frequencies."""
        return "rbf", math.sqrt(2.0 * self.number)


@dataclass(frozen=True)
class Laplacian(_Exponential):
    """``exp(-gamma * sum_j |x_j - z_j|)``.

    Parameters
    ----------
    gamma : float, "median" or "scale"
        A number, or one over the median ("median") or the mean ("scale") of the
        distances between training samples, as in the formula above; the median leaves
        out distances of zero.
    factor : float
        Multiplies gamma.
    columns, view, name
        Columns and view used, and the name shown; see :class:`Kernel`.
    standardize : bool
        Whether to scale the columns to mean 0 and variance 1 on the training samples.
    """

    base: ClassVar[str | None] = "l1dist"

    def spectral(self) -> tuple[str, float] | None:
        """Return the scale of Cauchy frequencies."""
        return "laplacian", self.number


@dataclass(frozen=True)
class Chi2(_Exponential):
    """``exp(-gamma * sum_j (x_j - z_j)^2 / (x_j + z_j))``, for histograms.

    Parameters
    ----------
    gamma : float, "median" or "scale"
        A number, or one over the median ("median") or the mean ("scale") of the
        distances between training samples, as in the formula above; the median leaves
        out distances of zero.
    factor : float
        Multiplies gamma.
    columns, view, name
        Columns and view used, and the name shown; see :class:`Kernel`.
    standardize : bool
        Whether to scale the columns to mean 0 and variance 1 on the training samples.
    """

    base: ClassVar[str | None] = "chi2dist"

    def check_domain(self, X: Any) -> None:
        """Raise ValueError for negative entries."""
        _require_nonnegative(X, self)


@dataclass(frozen=True)
class Matern32(_Exponential):
    """``(1 + s) exp(-s)``, ``s = gamma |x - z|`` (gamma is sqrt(3)/length).

    Parameters
    ----------
    gamma : float, "median" or "scale"
        A number (inversely proportional to the width), or a value derived from the
        median ("median") or the mean ("scale") of the squared distances between
        training samples.
    factor : float
        Multiplies gamma.
    columns, view, name
        Columns and view used, and the name shown; see :class:`Kernel`.
    standardize : bool
        Whether to scale the columns to mean 0 and variance 1 on the training samples.
    """

    base: ClassVar[str | None] = "sqdist"
    root: ClassVar[bool] = True
    c1: ClassVar[float] = 1.0
    width: ClassVar[float] = math.sqrt(3.0)

    def spectral(self) -> tuple[str, float] | None:
        """Return the scale of Student's frequencies; gamma is sqrt(2 nu) / length."""
        return "matern1.5", self.number / math.sqrt(3.0)


@dataclass(frozen=True)
class Matern52(_Exponential):
    """``(1 + s + s^2/3) exp(-s)``, ``s = gamma |x - z|`` (gamma is sqrt(5)/length).

    Parameters
    ----------
    gamma : float, "median" or "scale"
        A number (inversely proportional to the width), or a value derived from the
        median ("median") or the mean ("scale") of the squared distances between
        training samples.
    factor : float
        Multiplies gamma.
    columns, view, name
        Columns and view used, and the name shown; see :class:`Kernel`.
    standardize : bool
        Whether to scale the columns to mean 0 and variance 1 on the training samples.
    """

    base: ClassVar[str | None] = "sqdist"
    root: ClassVar[bool] = True
    c1: ClassVar[float] = 1.0
    c2: ClassVar[float] = 1.0 / 3.0
    width: ClassVar[float] = math.sqrt(5.0)

    def spectral(self) -> tuple[str, float] | None:
        """Return the scale of Student's frequencies; gamma is sqrt(2 nu) / length."""
        return "matern2.5", self.number / math.sqrt(5.0)


@dataclass(frozen=True)
class HistogramIntersection(VectorKernel):
    """``sum_j min(x_j, z_j)`` for histograms (0 or more).

    Parameters
    ----------
    columns, view, name
        Columns and view used, and the name shown; see :class:`Kernel`.
    standardize : bool
        Whether to scale the columns to mean 0 and variance 1 on the training samples.
    """

    base: ClassVar[str | None] = "intersection"

    def from_base(self, B: Matrix, row_sq: Vector, col_sq: Vector) -> Matrix:
        """Return the intersections."""
        return np.array(B, dtype=np.float64)

    def diag(self, rows: Prepared) -> Vector:
        """Return the sizes of the histograms."""
        return np.asarray(rows.rows.sum(axis=1), dtype=np.float64).ravel()

    def check_domain(self, X: Any) -> None:
        """Raise ValueError for negative entries."""
        _require_nonnegative(X, self)


@dataclass(frozen=True, kw_only=True)
class ComputedKernel(Kernel):
    """A kernel that is a function of two sets of samples."""

    def compute(self, a: Any, b: Any) -> Vector:
        """Return the values, shape ``(len(a), len(b))``."""
        raise TypeError(f"{type(self).__name__} does not say how it is computed")

    def values(self, a: Any, b: Any, known: dict[Any, Any]) -> Vector:
        """Return the values, shape ``(len(a), len(b))``."""
        return self.compute(a, b)

    def diagonal(self, a: Any) -> Vector:
        """Return ``k(x, x)`` for each sample."""
        return self.diag(a)

    def diag(self, a: Any) -> Vector:
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

    With ``min_k=None`` only substrings of length ``k`` are counted.

    Parameters
    ----------
    k : int
        Length of the substrings.
    min_k : int, optional
        The shortest length; ``k`` by default.
    alphabet : str, optional
        Letters to consider; by default those that occur in the training sequences.
    columns, view, name
        Columns and view used, and the name shown; see :class:`Kernel`.
    """

    k: int = 3
    min_k: int | None = None
    alphabet: str | None = None

    text: ClassVar[bool | None] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_count(self, "k", 1)
        if self.min_k is not None:
            _require_count(self, "min_k", 1, self.k)

    def describe(self) -> str:
        """Return the name with the lengths of the substrings."""
        shortest = "" if self.min_k is None else f", min_k={self.min_k}"
        return f"spectrum(k={self.k}{shortest})"

    def resolve(
        self,
        data: Any,
        sample_weight: Vector | None = None,
        known: dict[Any, Any] | None = None,
    ) -> Kernel:
        """Return the kernel with the alphabet of ``data``."""
        return self if self.alphabet else replace(self, alphabet=_letters(data))

    def compute(self, a: Any, b: Any) -> Vector:
        """Return the values, shape ``(len(a), len(b))``."""
        return spectrum_gram(a, b, self.k, self.alphabet, self.min_k)

    def diag(self, a: Any) -> Vector:
        """Return ``k(x, x)`` for each string."""
        return spectrum_diag(a, self.k, self.alphabet, self.min_k)

    def n_explicit(self, X: Any) -> int | None:
        """Return the number of substrings of the alphabet, in the samples or not."""
        if self.alphabet is None:
            return None
        shortest = self.k if self.min_k is None else self.min_k
        return sum(len(self.alphabet) ** k for k in range(shortest, self.k + 1))

    def explicit(self, X: Any) -> Vector:
        """Return the counts of all these substrings: exact for any strings."""
        codes = np.arange(self.n_explicit(X) or 0, dtype=np.int64)
        counts = spectrum_features(X, self.k, self.alphabet, self.min_k, codes)
        return np.asarray(counts.toarray())


@dataclass(frozen=True)
class WeightedDegree(ComputedKernel):
    """Matching substrings of aligned strings at the same position, up to ``shift``.

    Parameters
    ----------
    degree : int
        Length of the longest substrings.
    shift : int
        Largest distance between the positions of two matches.
    alphabet : str, optional
        Letters to consider; by default those that occur in the training sequences.
    columns, view, name
        Columns and view used, and the name shown; see :class:`Kernel`.
    """

    degree: int = 3
    shift: int = 0
    alphabet: str | None = None

    text: ClassVar[bool | None] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_count(self, "degree", 1)
        _require_count(self, "shift", 0)

    def check_domain(self, X: Any) -> None:
        """Raise ValueError for sequences of different lengths."""
        lengths = {len(s) for s in X}
        if len(lengths) > 1:
            raise ValueError(
                f"Kernel {self.label()!r} compares sequences of equal length, got "
                f"lengths from {min(lengths)} to {max(lengths)}; cut or align them, or "
                "use Spectrum."
            )

    def resolve(
        self,
        data: Any,
        sample_weight: Vector | None = None,
        known: dict[Any, Any] | None = None,
    ) -> Kernel:
        """Return the kernel with the alphabet of ``data``."""
        return self if self.alphabet else replace(self, alphabet=_letters(data))

    def compute(self, a: Any, b: Any) -> Vector:
        """Return the values, shape ``(len(a), len(b))``."""
        return weighted_degree_gram(a, b, self.degree, self.shift, self.alphabet)

    def diag(self, a: Any) -> Vector:
        """Return ``k(x, x)`` for each string."""
        return weighted_degree_diag(a, self.degree, self.shift, self.alphabet)


@dataclass(frozen=True, eq=False)
class Precomputed(ComputedKernel):
    """Look-up in a given Gram matrix; the single column of X contains row indices.

    This allows combining a Gram matrix with other views in a table or a
    :class:`MultiView`. If all kernels are given as Gram matrices, use
    ``kernels="precomputed"``.

    Parameters
    ----------
    gram : array of shape (n, n)
        The matrix.
    columns, view, name
        Columns and view used, and the name shown; see :class:`Kernel`.
    """

    gram: Any = None

    definite: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        gram = np.asarray(self.gram)
        if (
            gram.ndim != 2
            or gram.shape[0] != gram.shape[1]
            or gram.dtype.kind not in "biuf"
        ):
            raise ValueError(
                "Precomputed needs one square matrix of real numbers, got shape "
                f"{gram.shape} and dtype {gram.dtype}."
            )
        if not np.isfinite(gram).all():
            raise ValueError(
                "The matrix given to Precomputed contains NaN or infinity."
            )
        object.__setattr__(self, "gram", gram)

    def __deepcopy__(self, memo: dict[int, Any]) -> Precomputed:
        return self  # scikit-learn's clone would copy the matrix for each fit

    def parameters(self) -> dict[str, Any]:
        """Return the size of the matrix."""
        return {"n": len(self.gram)}

    def check_domain(self, X: Any) -> None:
        """Raise ValueError unless ``X`` is one column of row numbers."""
        self._ids(X)

    def compute(self, a: Any, b: Any) -> Vector:
        """Return the values, shape ``(len(a), len(b))``."""
        return self.gram[np.ix_(self._ids(a), self._ids(b))].astype(np.float64)

    def diag(self, a: Any) -> Vector:
        """Return ``k(x, x)`` for each row number."""
        ids = self._ids(a)
        return self.gram[ids, ids].astype(np.float64)

    def _ids(self, a: Any) -> NDArray[np.intp]:
        n = len(self.gram)
        column = (a.toarray() if sparse.issparse(a) else a)[:, 0]
        ids = column.astype(np.intp)
        fits = (ids == column) & (ids >= 0) & (ids < n)
        if a.shape[1] != 1 or not fits.all():
            wide = a.shape[1] != 1
            got = plural(a.shape[1], "column") if wide else f"{column[~fits][0]}"
            raise ValueError(
                f"Kernel {self.label()!r} looks up row indices from 0 to {n - 1} in "
                f"one column, got {got}; give the column as columns=, or put the "
                "indices in a separate view."
            )
        return ids


@dataclass(frozen=True)
class Function(ComputedKernel):
    """Any callable ``(X, Z) -> array``, or a Gaussian-process kernel of scikit-learn.

    It is called on blocks of samples, from several threads. Noise that a
    Gaussian-process kernel adds only to the diagonal of ``kernel(X)`` is ignored.

    Parameters
    ----------
    function : callable
        Takes two sets of samples and returns an array of shape (len(X), len(Z)).
    columns, view, name
        Columns and view used, and the name shown; see :class:`Kernel`.
    """

    function: Callable[[Any, Any], Any] | None = None

    definite: ClassVar[bool] = False
    text: ClassVar[bool | None] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not callable(self.function):
            raise TypeError(
                f"Function needs a callable (X, Z) -> array, got {self.function!r}."
            )

    def describe(self) -> str:
        """Return the name of the function."""
        return str(getattr(self.function, "__name__", self.function))

    def compute(self, a: Any, b: Any) -> Vector:
        """Return the values, shape ``(len(a), len(b))``."""
        assert self.function is not None
        K = self.function(a, b)
        K = np.asarray(K.toarray() if sparse.issparse(K) else K)
        if K.shape != (a.shape[0], b.shape[0]):
            raise ValueError(
                f"Kernel {self.label()!r} returned shape {K.shape} for "
                f"{a.shape[0]} x {b.shape[0]} samples; it must return (n_x, n_z)."
            )
        if K.dtype.kind not in "biuf" or not np.isfinite(K).all():
            what = "NaN or infinity" if K.dtype.kind == "f" else f"dtype {K.dtype}"
            raise ValueError(
                f"Kernel {self.label()!r} returned {what}; it must return finite real "
                "numbers."
            )
        return K.astype(np.float64)


@dataclass(frozen=True, eq=False)
class Product(ComputedKernel):
    """``k_1(x, z) k_2(x, z) ...``, for interactions.

    The product of a kernel on genes and one on an environment is large for samples that
    are similar in both, so that an effect may differ between environments. With a
    linear kernel on indicators of clusters it is a separate kernel for each cluster
    (localised multiple kernel learning with given clusters). ``a * b`` is short for
    ``Product([a, b])``.

    The factors may use different views. A sample that lacks one of them lacks the
    product; widths and scales are those of the samples that have all of them.

    Parameters
    ----------
    factors : sequence of Kernel
        Two or more kernels, each with its own columns and view. A factor without a view
        uses that of the others, if it is the same for all.
    columns, view, name
        ``columns`` must be None, because the factors have their own; ``view`` is given
        to the factors without a view.

    Examples
    --------
    >>> import numpy as np
    >>> from mklearn import KernelBank
    >>> from mklearn.kernels import Linear
    >>> X = np.array([[1.0, 2.0, 1.0], [3.0, 1.0, 0.0], [0.0, 1.0, 1.0]])
    >>> within = Linear(columns=[0, 1]) * Linear(columns=[2])
    >>> KernelBank(X, within).gram(0).tolist()
    [[5.0, 0.0, 2.0], [0.0, 0.0, 0.0], [2.0, 0.0, 1.0]]
    >>> views = {"genes": X[:, :2], "site": X[:, 2:]}
    >>> KernelBank(views, Linear(view="genes") * Linear(view="site")).names
    ('genes:linear * site:linear',)
    """

    factors: tuple[Kernel, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        flat: list[Kernel] = []
        for factor in self.factors:
            if not isinstance(factor, Kernel):
                raise TypeError(
                    f"A factor of a product must be a kernel, got {factor!r}."
                )
            flat += factor.factors if isinstance(factor, Product) else [factor]
        if len(flat) < 2 or self.columns is not None:
            raise ValueError(
                "Product needs at least two kernels, and no columns of its own."
            )
        free = any(factor.view is None for factor in flat)
        if self.view is not None and free:
            flat = [f if f.view else replace(f, view=self.view) for f in flat]
        views = [factor.view for factor in flat]
        found = None if None in views else " * ".join(dict.fromkeys(map(str, views)))
        if self.view is not None and not free and found != self.view:
            raise ValueError(
                f"The factors of the product {' * '.join(f.label() for f in flat)!r} "
                f"have their own views, so it cannot have view={self.view!r}."
            )
        object.__setattr__(self, "factors", tuple(flat))
        object.__setattr__(self, "view", found)

    @property
    def definite(self) -> bool:  # type: ignore[override]
        """Whether all factors are definite, and therefore their product."""
        return all(factor.definite for factor in self.factors)

    @property
    def text(self) -> bool | None:  # type: ignore[override]
        """Whether all factors take strings; None if only some of them do."""
        kinds = {factor.text for factor in self.factors}
        return kinds.pop() if len(kinds) == 1 else None

    @property
    def _across(self) -> bool:
        """Whether factors use different views."""
        return len({factor.view for factor in self.factors}) > 1

    def parameters(self) -> dict[str, Any]:
        """Return the names of the factors."""
        own = self.factors
        if not self._across:
            own = tuple(replace(factor, view=None) for factor in own)
        return {"factors": [factor.label() for factor in own]}

    def describe(self) -> str:
        """Return the names of the factors, one after the other."""
        return " * ".join(self.parameters()["factors"])

    def at_place(self, text: str) -> str:
        """Return ``text`` marked with the view, if it is the same for all factors."""
        return text if self._across else super().at_place(text)

    @property
    def placed(self) -> bool:
        """Whether all factors have their own columns or view."""
        return all(factor.placed for factor in self.factors)

    def put(self, **place: Any) -> Kernel:
        """Return the product with factors that have no place put there."""
        free = [
            factor.view is None and not ("columns" in place and factor.placed)
            for factor in self.factors
        ]
        if not any(free):
            raise ValueError(
                f"All factors of the product {self.label()!r} have their own columns "
                "or view, so that it cannot be repeated for others; leave one of them "
                "without."
            )
        factors = tuple(
            factor.put(**place) if moves else factor
            for factor, moves in zip(self.factors, free, strict=True)
        )
        return replace(self, factors=factors, view=None)

    def settled(self) -> Product:
        """Return the product in which factors without a view have that of the others.

        Raise ValueError if these use several.
        """
        views = list(dict.fromkeys(f.view for f in self.factors if f.view is not None))
        free = [factor.label() for factor in self.factors if factor.view is None]
        if not views or not free:
            return self
        if len(views) > 1:
            raise ValueError(
                f"Factor {free[0]!r} of a product has no view, while the others use "
                f"{views}; give it view=..."
            )
        return replace(self, view=views[0])

    def check_domain(self, X: Any) -> None:
        """Raise ValueError where a factor does not hold for the samples."""
        for factor, part in self._seen(X):
            factor.check_domain(part)

    def resolve(
        self,
        data: Any,
        sample_weight: Vector | None = None,
        known: dict[Any, Any] | None = None,
    ) -> Kernel:
        """Return the product of resolved kernels."""
        resolved = [f.resolve(part, sample_weight) for f, part in self._seen(data)]
        return replace(self, factors=tuple(resolved))

    def compute(self, a: Any, b: Any) -> Vector:
        """Return the values, shape ``(len(a), len(b))``."""
        out = np.ones((a.shape[0], b.shape[0]))
        for (factor, left), (_, right) in zip(
            self._seen(a), self._seen(b), strict=True
        ):
            out *= factor.values(left, right, {})
        return out

    def diag(self, a: Any) -> Vector:
        """Return ``k(x, x)`` for each sample."""
        out = np.ones(a.shape[0])
        for factor, part in self._seen(a):
            out *= factor.diagonal(part)
        return out

    def n_explicit(self, X: Any) -> int | None:
        """Return the number of products of features, one of each factor."""
        counts = [factor.n_explicit(part) for factor, part in self._seen(X)]
        known = [count for count in counts if count is not None]
        return math.prod(known) if len(known) == len(counts) else None

    def explicit(self, X: Any) -> Vector:
        """Return all products of features, one of each factor."""
        out = np.ones((X.shape[0], 1))
        for factor, part in self._seen(X):
            Z = factor.explicit(part)
            out = (out[:, :, None] * Z[:, None, :]).reshape(len(out), -1)
        return out

    def _seen(self, X: Any) -> list[tuple[Kernel, Any]]:
        """Return the factors, and the samples as each of them sees them."""
        if not isinstance(X, Joint) or len(X.parts) != len(self.factors):
            raise ValueError(
                f"Kernel {self.label()!r} was given features of another kernel."
            )
        return list(zip(self.factors, X.parts, strict=True))


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, (tuple, list)):
        text = ",".join(map(str, value[:3]))
        return text + (f",… {len(value)} in all" if len(value) > 3 else "")
    return str(value)


def _power(K: Matrix, degree: int) -> Matrix:
    """Return ``K ** degree`` by repeated squaring, several times faster than pow."""
    out = K.copy()
    for bit in bin(degree)[3:]:
        out *= out
        if bit == "1":
            out *= K
    return out


def _require_positive(kernel: Kernel, parameter: str) -> None:
    got = getattr(kernel, parameter)
    if not isinstance(got, Real) or not 0 < float(got) < math.inf:
        raise ValueError(
            f"{type(kernel).__name__} needs a positive number as {parameter}, got "
            f"{got!r}."
        )


def _require_count(
    kernel: Kernel, parameter: str, smallest: int, largest: float = math.inf
) -> None:
    got = getattr(kernel, parameter)
    if not isinstance(got, Integral) or not smallest <= int(got) <= largest:
        upto = "" if largest == math.inf else f" and at most {largest}"
        raise ValueError(
            f"{type(kernel).__name__} needs a whole number of at least "
            f"{smallest}{upto} as {parameter}, got {got!r}."
        )


def _dense(X: Any) -> Vector:
    return np.asarray(X.toarray() if sparse.issparse(X) else X, dtype=np.float64)


def _near_zero(a: Any, b: Any) -> tuple[Any, Any]:
    """Return both less the mean of ``b``: their distances lose fewer digits."""
    if sparse.issparse(b):
        return a, b
    mean = b.mean(axis=0)
    return a - mean, b - mean


def _require_nonnegative(X: Any, kernel: Kernel) -> None:
    values = X.data if sparse.issparse(X) else X
    if values.size and values.min() < 0:
        hint = "" if not kernel.standardized else (
            " after standardising; try standardize=False"
        )  # fmt: skip
        raise ValueError(
            f"Kernel {kernel.label()!r} needs non-negative columns (histograms, counts,"
            f" fingerprints), got a smallest value of {values.min():.4g}{hint}."
        )


def _letters(strings: Any) -> str:
    return "".join(sorted(set().union(*strings)))


def _typical_distance(
    X: Any, base: str, kind: str, sample_weight: Vector | None
) -> float:
    """Return the weighted median or mean base distance between samples."""
    if kind == "scale" and base == "sqdist":
        # mean |x - z|^2 over all pairs is twice the sum of the variances
        return float(2.0 * moments(X, sample_weight)[1].sum())
    n = X.shape[0]
    w = np.ones(n) if sample_weight is None else sample_weight
    if n > 1000:
        # equal steps of cumulated weight: deterministic, and true to the weights
        steps = (np.arange(1000) + 0.5) / 1000 * w.sum()
        keep = np.searchsorted(np.cumsum(w), steps)
        X, w = X[np.minimum(keep, n - 1)], np.ones(1000)
    if base == "sqdist" and not sparse.issparse(X):
        X = X - X.mean(axis=0)  # loses fewer digits
    rows = prepare(X)
    D = BASES[base](rows, rows)
    if kind == "scale":
        return float(w @ D @ w / w.sum() ** 2)
    i, j = np.triu_indices(rows.n_rows, 1)
    d, pair = D[i, j], w[i] * w[j]
    # duplicates say nothing about the scale, and their distance may be rounding
    size = rows.sqnorms[i] + rows.sqnorms[j] if base == "sqdist" else d.max(initial=0.0)
    different = (d > 1e-14 * X.shape[1] * size) & (pair > 0)
    if not different.any():
        return 0.0
    d, pair = d[different], pair[different]
    if (pair == pair[0]).all():
        middle = (len(d) - 1) // 2
        return float(np.partition(d, middle)[middle])
    order = np.argsort(d, kind="stable")
    cumulative = np.cumsum(pair[order])
    return float(d[order][np.searchsorted(cumulative, cumulative[-1] / 2)])


def unique_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names, repeated ones numbered."""
    out: list[str] = []
    taken, used = set(names), set()
    for name in names:
        new, count = name, 2
        if name in used:
            while (new := f"{name}#{count}") in taken:
                count += 1
            taken.add(new)
        used.add(new)
        out.append(new)
    return tuple(out)
