"""KernelBank: many kernels over the same samples that answer questions lazily."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from mklearn.kernels import store
from mklearn.kernels.functions import Prepared, prepare
from mklearn.kernels.multiview import MultiView
from mklearn.kernels.specs import (
    ComputedKernel,
    Kernel,
    KernelLike,
    VectorKernel,
    expand_kernels,
)
from mklearn.kernels.store import Index, MemoryEstimate

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Affine:
    """How normalised kernels follow from raw ones, entry by entry.

    ``K~[m] = scale[m] * u[m, i] * v[m, j] * K[m] - row[m, i] - col[m, j] + const[m]``;
    None stands for ones (u, v) or zeros (row, col, const). ``curved`` marks the kernels
    whose u or v are not all ones.
    """

    scale: FloatArray
    u: FloatArray | None = None
    v: FloatArray | None = None
    row: FloatArray | None = None
    col: FloatArray | None = None
    const: FloatArray | None = None

    @property
    def curved(self) -> NDArray[np.bool_]:
        """Which kernels have a scale for each sample."""
        if self.u is None or self.v is None:
            return np.zeros(len(self.scale), dtype=bool)
        return np.asarray((self.u != 1).any(axis=1) | (self.v != 1).any(axis=1))

    def take(self, kernels: Any = None, rows: Any = None, cols: Any = None) -> Affine:
        """Return the part for some kernels, rows and columns."""

        def part(array: FloatArray | None, samples: Any) -> FloatArray | None:
            if array is None:
                return None
            array = array if kernels is None else array[kernels]
            return array if samples is None else array[:, samples]

        return Affine(
            self.scale if kernels is None else self.scale[kernels],
            part(self.u, rows),
            part(self.v, cols),
            part(self.row, rows),
            part(self.col, cols),
            part(self.const, None),
        )


@dataclass(frozen=True)
class _Part:
    """A source, the samples of it that the bank uses, and where its kernels stand."""

    source: store.Source
    which: Index  # kernels of the source
    positions: Index  # their places in the bank
    rows: Index | None = None
    cols: Index | None = None

    def row_index(self, rows: Index) -> Index:
        return rows if self.rows is None else self.rows[rows]

    def col_index(self, cols: Index) -> Index:
        return cols if self.cols is None else self.cols[cols]


class KernelBank:
    """Several kernels on the same samples, evaluated only as far as asked.

    The bank says ``shape == (n_rows, n_cols, n_kernels)``, kernels last, and
    ``bank[np.ix_(rows, cols)]`` is a smaller bank over the same store: this is what
    scikit-learn's splitters ask of pairwise input. Whether values are stored or
    computed again is settled by :meth:`stored`.

    Parameters
    ----------
    X : array, DataFrame, sparse matrix or MultiView
        The samples.
    kernels : kernel, name, callable, list of these, or "auto"
    sample_weight : array of shape (n_samples,), optional
        Weights of the samples in data-dependent parameters (widths, standardising).

    Examples
    --------
    >>> import numpy as np
    >>> from mklearn import KernelBank, kernels
    >>> X = np.arange(6.0).reshape(3, 2)
    >>> bank = KernelBank(X, [kernels.Linear(), kernels.RBF(0.1)])
    >>> bank.shape
    (3, 3, 2)
    >>> bank.combine([1.0, 0.0]).tolist()
    [[1.0, 3.0, 5.0], [3.0, 13.0, 23.0], [5.0, 23.0, 41.0]]
    """

    def __init__(
        self,
        X: Any,
        kernels: KernelLike = "auto",
        *,
        sample_weight: ArrayLike | None = None,
    ) -> None:
        data = X if isinstance(X, MultiView) else MultiView({"X": X})
        weight = None if sample_weight is None else np.asarray(sample_weight, float)
        self._features = _FeatureSets(data, weight)
        specs = expand_kernels(kernels, data)
        self.kernels: tuple[Kernel | None, ...] = tuple(
            self._features.resolve(kernel) for kernel in specs
        )
        # names come from what the user wrote; resolved numbers are in `kernels`
        self.names = _unique([kernel.label() for kernel in self.kernels if kernel])
        rows = self._features.rows(data)
        self._parts = _make_parts(self.kernels, rows, rows)
        self._size = (len(data), len(data))
        self._affine: Affine | None = None
        self.memory_limit: int | None = None
        self.storage = "recompute"

    @classmethod
    def from_grams(
        cls,
        grams: Any,
        names: Iterable[str] | None = None,
        *,
        row_diag: ArrayLike | None = None,
    ) -> KernelBank:
        """Return a bank of Gram matrices that are given.

        Parameters
        ----------
        grams : array of shape (n_rows, n_cols, n_kernels), or sequence of matrices
            The arrays are used where they lie, not copied.
        names : iterable of str, optional
        row_diag : array of shape (n_rows, n_kernels), optional
            ``k(x, x)`` of the rows, for cross Grams that are normalised spherically.
        """
        if isinstance(grams, (list, tuple)):
            matrices = [np.asarray(g) for g in grams]
            if not matrices:
                raise ValueError("The list of Gram matrices is empty.")
            shapes = {g.shape for g in matrices}
            if len(shapes) > 1 or matrices[0].ndim != 2:
                raise ValueError(
                    f"Gram matrices must be 2-D and of one shape, got {sorted(shapes)}."
                )
            matrices = [_as_float(g) for g in matrices]
            shape = (*matrices[0].shape, len(matrices))
            source = store.GramSource(matrices)
        else:
            array = _as_float(np.asarray(grams))
            if array.ndim == 2:
                array = array[:, :, None]
            if array.ndim != 3 or 0 in array.shape:
                raise ValueError(
                    "Precomputed kernels have shape (n_rows, n_cols, n_kernels), "
                    f"kernels last, got {array.shape}."
                )
            shape = array.shape
            source = store.GramSource(array)
        for K in source.grams:
            if not np.isfinite(K).all():
                raise ValueError("A Gram matrix contains NaN or infinity.")
        if row_diag is not None:
            source.row_diag = np.asarray(row_diag, dtype=float)
            if source.row_diag.shape != (shape[0], shape[2]):
                raise ValueError(
                    f"row_diag must have shape {(shape[0], shape[2])}, got "
                    f"{source.row_diag.shape}."
                )
        bank = object.__new__(cls)
        bank._features = None  # type: ignore[assignment]
        bank.kernels = (None,) * shape[2]
        given = [f"K{m}" for m in range(shape[2])] if names is None else list(names)
        if len(given) != shape[2]:
            raise ValueError(f"Got {len(given)} names for {shape[2]} kernels.")
        bank.names = _unique(given)
        all_kernels = np.arange(shape[2])
        bank._parts = [_Part(source, all_kernels, all_kernels)]
        bank._size = (shape[0], shape[1])
        bank._affine = None
        bank.memory_limit = None
        bank.storage = "given"
        return bank

    # --- shape, slices, storage -------------------------------------------------------

    @property
    def shape(self) -> tuple[int, int, int]:
        """Number of rows, columns and kernels."""
        return (*self._size, len(self.names))

    ndim = 3

    def __len__(self) -> int:
        return self._size[0]

    def __repr__(self) -> str:
        n, m, k = self.shape
        return f"KernelBank({n} x {m} samples, {k} kernels, {self.storage})"

    def __array__(self, dtype: Any = None, copy: Any = None) -> NDArray[Any]:
        raise TypeError(
            "A KernelBank is not an array: its Grams may not fit in memory. Use "
            "bank.gram(m), bank.combine(theta) or kernels='precomputed'."
        )

    def __getitem__(self, samples: Any) -> KernelBank:
        """Return the bank on some samples: ``bank[np.ix_(rows, cols)]``."""
        if not isinstance(samples, tuple):
            samples = (samples, slice(None))
        if len(samples) != 2 or samples[1] is Ellipsis:
            samples = (samples[0], slice(None))
        rows, cols = (
            _as_index(s, n) for s, n in zip(samples, self._size, strict=True)
        )
        bank = copy.copy(self)
        bank._parts = [
            replace(p, rows=p.row_index(rows), cols=p.col_index(cols))
            for p in self._parts
        ]
        bank._size = (len(rows), len(cols))
        if self._affine is not None:
            bank._affine = self._affine.take(None, rows, cols)
        return bank

    def select(self, kernels: Any) -> KernelBank:
        """Return the bank with some kernels (numbers, mask or names), in that order."""
        if isinstance(kernels, (str, int, np.integer)):
            kernels = [kernels]
        index = np.asarray(
            [self.names.index(k) if isinstance(k, str) else k for k in kernels]
        )
        index = np.flatnonzero(index) if index.dtype == bool else index.astype(int)
        if len(index) == 0:
            raise ValueError("No kernel selected; a bank needs at least one.")
        bank = copy.copy(self)
        bank.names = tuple(self.names[i] for i in index)
        bank.kernels = tuple(self.kernels[i] for i in index)
        bank._parts = []
        for part in self._parts:
            where = {int(p): w for p, w in zip(part.positions, part.which, strict=True)}
            new = [(j, where[int(i)]) for j, i in enumerate(index) if int(i) in where]
            if new:
                positions, which = (np.array(v, dtype=np.intp) for v in zip(*new))
                bank._parts.append(replace(part, which=which, positions=positions))
        if self._affine is not None:
            bank._affine = self._affine.take(index)
        return bank

    def cross(self, X: Any) -> KernelBank:
        """Return the raw kernels between new samples (rows) and this bank's columns."""
        if self._features is None:
            raise ValueError(
                "This bank was made from Gram matrices and cannot compute new ones; "
                "pass the (n_new, n, n_kernels) cross Grams instead."
            )
        data = X if isinstance(X, MultiView) else MultiView({"X": X})
        wanted = [k for k in self.kernels if k is not None]
        self._features.require(wanted, data)
        bank = copy.copy(self)
        rows = self._features.rows(data)
        bank._parts = []
        for part in self._parts:
            every = np.arange(self._size[1])
            reduced = part.source.restrict(every[:0], part.col_index(every))
            columns = reduced if reduced is not None else part.source
            chosen = [self.kernels[p] for p in part.positions]
            new = _make_source(chosen, rows, None, columns)
            bank._parts.append(
                _Part(
                    new,
                    np.arange(len(chosen)),
                    part.positions,
                    None,
                    None if reduced is not None else part.col_index(every),
                )
            )
        bank._size = (len(data), self._size[1])
        bank._affine = None
        bank.storage = "recompute"
        return bank

    def reference(self, cols: ArrayLike) -> KernelBank:
        """Return what :meth:`cross` needs for some columns, and nothing else."""
        if self._features is None:
            raise ValueError("A bank of given Grams keeps no samples.")
        cols = np.asarray(cols, dtype=np.intp)
        none = np.empty(0, dtype=np.intp)
        bank = copy.copy(self.with_affine(None)[np.ix_(none, cols)])
        bank._features = copy.copy(self._features)
        bank._features._data = bank._features._weight = None  # type: ignore[assignment]
        parts = []
        for part in bank._parts:
            inner = getattr(part.source, "source", part.source)
            if isinstance(inner, store.BaseSource):
                inner = replace(inner, matrix=None, owner=None)
            source = inner.restrict(part.rows, part.cols)
            parts.append(_Part(source, part.which, part.positions))
        bank._parts = parts
        bank.storage = "recompute"
        return bank

    def replace_gram(self, m: int, K: FloatArray) -> KernelBank:
        """Return the bank with one Gram matrix exchanged for a given one."""
        bank = copy.copy(self)
        bank._parts = []
        for part in self._parts:
            keep = part.positions != m
            if keep.any():
                bank._parts.append(
                    replace(part, which=part.which[keep], positions=part.positions[keep])
                )
        one = np.zeros(1, dtype=np.intp)
        diag = self.diag()[:, [m]] if self._size[0] != self._size[1] else None
        source = store.GramSource([K], row_diag=diag)
        bank._parts.append(_Part(source, one, one + m))
        return bank

    def estimate_memory(
        self, memory_limit: int | None = None, storage: str = "auto"
    ) -> MemoryEstimate:
        """Tell what :meth:`stored` would do and take, allocating nothing."""
        sources = [self._compact(part).source for part in self._parts]
        return store.estimate(sources, self.shape, memory_limit, storage)

    def stored(
        self, memory_limit: int | None = None, storage: str = "auto"
    ) -> KernelBank:
        """Return the bank with its values kept as far as a budget allows.

        Parameters
        ----------
        memory_limit : int, optional
            Bytes that values, blocks in flight and a solver's rows may take together;
            by default half of what is free.
        storage : {"auto", "float64", "float32", "mmap", "recompute"}
            "auto" takes the first that fits: float64, float32, then recomputing for
            kernels that are formulas of a dot product or distance and memory-mapped
            files for those that are costly functions. Kernels that share a base store
            the base once. Grams that were given stay where they are.
        """
        plan = self.estimate_memory(memory_limit, storage)
        bank = copy.copy(self)
        parts = [self._compact(part) for part in self._parts]
        bank._parts = [
            replace(part, source=part.source.store(plan.storage)) for part in parts
        ]
        bank.memory_limit = plan.limit
        if self.storage != "given":
            bank.storage = plan.storage
        return bank

    def row_budget(self) -> int:
        """Return how many combined float64 rows a solver may keep within the budget."""
        limit = self.memory_limit
        if limit is None:
            limit = store.available_memory() // 2
        plan = self.estimate_memory(limit, self._stored_as())
        left = limit - plan.stored - plan.working
        return int(max(64, min(self._size[0], left // (8 * max(1, self._size[1])))))

    def _stored_as(self) -> str:
        return self.storage if self.storage in store.STORAGES else "recompute"

    def _compact(self, part: _Part) -> _Part:
        if part.rows is None and part.cols is None:
            return part
        source = part.source.restrict(part.rows, part.cols)
        return part if source is None else _Part(source, part.which, part.positions)

    # --- questions --------------------------------------------------------------------

    def gram(self, m: int) -> FloatArray:
        """Return one Gram matrix, shape (n_rows, n_cols)."""
        return self.select([range(self.shape[2])[m]]).combine(np.ones(1))

    def combine(self, theta: ArrayLike) -> FloatArray:
        """Return ``sum_m theta[m] K[m]``, shape (n_rows, n_cols)."""
        return self._combine_rows(np.arange(self._size[0]), self._check_theta(theta))

    def columns(self, idx: ArrayLike, theta: ArrayLike) -> FloatArray:
        """Return columns of the combined kernel as rows, shape (len(idx), n).

        Only for square banks, where column i is row i.
        """
        return self._combine_rows(np.asarray(idx, np.intp), self._check_theta(theta))

    def apply(self, theta: ArrayLike, A: ArrayLike) -> FloatArray:
        """Return ``(sum_m theta[m] K[m]) A``, shape (n_rows, n_targets), by blocks.

        Rows of A that are zero are never evaluated.
        """
        theta = self._check_theta(theta)
        A = self._check_targets(A)
        used = np.flatnonzero(A.any(axis=1))
        bank = self[:, used] if len(used) < len(A) else self
        if (theta == 0).any() and (theta != 0).any():
            bank, theta = bank.select(np.flatnonzero(theta)), theta[theta != 0]
        out = np.empty((self._size[0], A.shape[1]))
        a = A[used]

        def work(block: Index) -> None:
            out[block] = bank._combine_block(block, theta) @ a

        store.run_blocks(work, store.row_blocks(self._size[0], max(1, len(used))))
        return out

    def multiply(self, A: ArrayLike) -> FloatArray:
        """Return ``K[m] A`` for every kernel, shape (n_rows, n_targets, n_kernels)."""
        A = self._check_targets(A)
        used = np.flatnonzero(A.any(axis=1))
        bank = self[:, used] if len(used) < len(A) else self
        a = A[used]
        out = np.empty((self._size[0], A.shape[1], self.shape[2]))

        def work(block: Index) -> None:
            out[block] = bank._multiply_block(block, a)

        store.run_blocks(work, store.row_blocks(self._size[0], max(1, len(used))))
        return out

    def quad(self, A: ArrayLike) -> FloatArray:
        """Return ``sum_t A[:, t]' K[m] A[:, t]`` for every kernel, shape (n_kernels,).

        Only the rows of A that are not zero are touched, and half of the pairs.
        """
        A = self._check_targets(A)
        used = np.flatnonzero(A.any(axis=1))
        if len(used) == 0:
            return np.zeros(self.shape[2])
        bank, a = self[np.ix_(used, used)], A[used]

        def work(block: Index) -> FloatArray:
            # K is symmetric: pairs right of the diagonal block count twice
            start = block[0]
            right = 2.0 * a[start:]
            right[: len(block)] *= 0.5
            S = bank[start:, start:]._multiply_block(block - start, right)
            return np.einsum("it,itm->m", a[block], S)

        return np.sum(
            store.run_blocks(work, store.row_blocks(len(used), len(used))), axis=0
        )

    def diag(self) -> FloatArray:
        """Return ``K[m][i, i]`` of the row samples, shape (n_rows, n_kernels).

        For a cross bank these are the raw kernels of the new samples with themselves.
        """
        return self._diag(True)

    def col_diag(self) -> FloatArray:
        """Return the raw ``k(x, x)`` of the column samples, shape (n_cols, M)."""
        return self._diag(False)

    def totals(self, weight: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Return the weighted row means and grand means of every square Gram.

        Parameters
        ----------
        weight : array of shape (n_cols,), summing to one

        Returns
        -------
        row_means : array of shape (n_kernels, n_rows)
        mean : array of shape (n_kernels,)
        """
        w = np.asarray(weight, dtype=float)
        row_means = np.ascontiguousarray(self.multiply(w[:, None])[:, 0, :].T)
        return row_means, row_means @ w

    def with_affine(self, affine: Affine | None) -> KernelBank:
        """Return the bank whose answers are for normalised kernels."""
        bank = copy.copy(self)
        bank._affine = affine
        return bank

    # --- blocks -----------------------------------------------------------------------

    def _check_theta(self, theta: ArrayLike) -> FloatArray:
        theta = np.asarray(theta, dtype=np.float64)
        if theta.shape != (self.shape[2],):
            raise ValueError(
                f"theta must have shape ({self.shape[2]},), got {theta.shape}."
            )
        return theta

    def _check_targets(self, A: ArrayLike) -> FloatArray:
        A = np.asarray(A, dtype=np.float64)
        A = A[:, None] if A.ndim == 1 else A
        if A.ndim != 2 or len(A) != self._size[1]:
            raise ValueError(
                f"Expected one row for each of the {self._size[1]} column samples, got "
                f"shape {A.shape}."
            )
        return A

    def _combine_rows(self, rows: Index, theta: FloatArray) -> FloatArray:
        out = np.empty((len(rows), self._size[1]))

        def work(block: Index) -> None:
            out[block] = self._combine_block(rows[block], theta)

        store.run_blocks(work, store.row_blocks(len(rows), self._size[1]))
        return out

    def _combine_block(self, rows: Index, theta: FloatArray) -> FloatArray:
        cols = np.arange(self._size[1])
        out = np.zeros((len(rows), len(cols)))
        affine = self._affine
        raw = theta if affine is None else theta * affine.scale
        curved = np.zeros(len(theta), bool) if affine is None else affine.curved
        for part in self._parts:
            r, c = part.row_index(rows), part.col_index(cols)
            weights = np.zeros(part.source.n_kernels)
            weights[part.which] = np.where(curved, 0.0, raw)[part.positions]
            if weights.any():
                part.source.combine(weights, r, c, out)
            for k, m in zip(part.which, part.positions, strict=True):
                if curved[m] and raw[m] != 0 and affine is not None:
                    K = part.source.gram(int(k), r, c)
                    K *= affine.u[m][rows, None] * affine.v[m]  # type: ignore[index]
                    out += raw[m] * K
        if affine is not None and affine.row is not None:
            out -= (theta @ affine.row[:, rows])[:, None]
            out -= theta @ affine.col - theta @ affine.const  # type: ignore[operator]
        return out

    def _multiply_block(self, rows: Index, A: FloatArray) -> FloatArray:
        """Return ``K[m][rows] A``, shape (len(rows), n_targets, n_kernels)."""
        cols = np.arange(self._size[1])
        out = np.empty((len(rows), A.shape[1], self.shape[2]))
        affine = self._affine
        At = np.ascontiguousarray(A.T)[None]
        for part in self._parts:
            r, c = part.row_index(rows), part.col_index(cols)
            a = At
            if affine is not None and affine.v is not None:
                a = At * affine.v[part.positions][:, None, :]
            S = part.source.multiply(part.which, r, c, a)
            out[:, :, part.positions] = np.moveaxis(S, 0, 2)
        if affine is not None:
            if affine.u is not None:
                out *= affine.u[:, rows].T[:, None, :]
            out *= affine.scale
            if affine.row is not None and affine.const is not None:
                total = A.sum(axis=0)
                out -= affine.row[:, rows].T[:, None, :] * total[None, :, None]
                out -= (affine.col @ A).T[None] - total[None, :, None] * affine.const
        return out

    def _diag(self, rows: bool) -> FloatArray:
        n = self._size[0] if rows else self._size[1]
        every = np.arange(n)
        out = np.empty((n, self.shape[2]))
        for part in self._parts:
            index = part.row_index(every) if rows else part.col_index(every)
            for k, m in zip(part.which, part.positions, strict=True):
                out[:, m] = part.source.diag(int(k), rows, index)
        affine = self._affine
        if affine is not None and rows:
            out *= affine.scale
            if affine.u is not None and affine.v is not None:
                out *= (affine.u * affine.v).T
            if affine.row is not None and affine.const is not None:
                out -= (affine.row + affine.col).T - affine.const
        return out


# --- from samples to sources ----------------------------------------------------------


class _FeatureSets:
    """Which columns each kernel sees, and their standardising, fitted once."""

    def __init__(self, data: MultiView, weight: FloatArray | None) -> None:
        self.names = data.names
        self.widths = {
            name: None if data.is_text(name) else data[name].shape[1] for name in data
        }
        self._data, self._weight = data, weight
        self._scaling: dict[Any, tuple[FloatArray, FloatArray]] = {}
        self._index: dict[Any, Index] = {}
        self._origin: dict[Any, FloatArray] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_data": None, "_weight": None}

    def key(self, kernel: Kernel) -> Any:
        """Return what identifies the features of a kernel."""
        view = self.names[0] if kernel.view is None else kernel.view
        columns = kernel.columns
        if isinstance(columns, slice):
            columns = (columns.start, columns.stop, columns.step, "slice")
        return view, columns, getattr(kernel, "standardize", False)

    def resolve(self, kernel: Kernel) -> Kernel:
        data = self._data
        view = data.view_name(kernel.view)
        text = data.is_text(view)
        if text != getattr(kernel, "text", False):
            needs = "strings" if getattr(kernel, "text", False) else "numbers"
            has = "strings" if text else "numbers"
            raise ValueError(
                f"Kernel {kernel.label()!r} needs {needs} but view {view!r} holds {has}."
            )
        key = self.key(kernel)
        if not text and key not in self._index:
            index = data.column_index(view, kernel.columns)
            if len(index) == 0:
                raise ValueError(f"Kernel {kernel.label()!r} sees no column.")
            self._index[key] = index
            if getattr(kernel, "standardize", False):
                self._scaling[key] = _standardizer(
                    _take_columns(data[view], index), self._weight
                )
        features = self.features(data, kernel)
        if isinstance(kernel, VectorKernel):
            kernel.check_domain(features)
        resolved = kernel.resolve(features, self._weight)
        return resolved

    def features(self, data: MultiView, kernel: Kernel) -> Any:
        view = data.view_name(kernel.view)
        if data.is_text(view):
            return data[view]
        key = self.key(kernel)
        X = _take_columns(data[view], self._index[key])
        if key in self._scaling:
            shift, scale = self._scaling[key]
            if sparse.issparse(X):
                return sparse.csr_array(X.multiply(scale[None, :]))
            return (X - shift) * scale
        return X

    def origin(self, kernel: Kernel, X: FloatArray) -> FloatArray:
        """Return the point that distances are measured from: the first mean seen."""
        return self._origin.setdefault(self.key(kernel), X.mean(axis=0))

    def rows(self, data: MultiView) -> _Rows:
        return _Rows(self, data)

    def require(self, kernels: Sequence[Kernel], data: MultiView) -> None:
        """Raise ValueError where new samples lack what the kernels look at."""
        for kernel in kernels:
            view = self.names[0] if kernel.view is None else kernel.view
            if len(self.names) == 1 and len(data.names) == 1:
                view_here = data.names[0]
            elif view in data:
                view_here = view
            else:
                raise ValueError(
                    f"The new samples lack view {view!r}; they have {list(data.names)}."
                )
            width = None if data.is_text(view_here) else data[view_here].shape[1]
            if width != self.widths[view]:
                raise ValueError(
                    f"View {view!r} had {self.widths[view]} columns in training and has "
                    f"{width} now."
                )
            if isinstance(kernel, VectorKernel):
                kernel.check_domain(_take_columns(
                    data[view_here], self._index[self.key(kernel)]
                ))  # fmt: skip


class _Rows:
    """The feature rows of one set of samples, prepared once for each feature set."""

    def __init__(self, sets: _FeatureSets, data: MultiView) -> None:
        self._sets, self._data = sets, data
        self._cache: dict[Any, Any] = {}

    def get(self, kernel: Kernel, ready: bool) -> Any:
        # distances do not change with the origin, and lose fewer digits near it
        origin = kernel.base == "sqdist"
        key = (self._sets.key(kernel), ready, origin)
        if key not in self._cache:
            X = self._sets.features(self._data, kernel)
            if origin and not sparse.issparse(X):
                X = X - self._sets.origin(kernel, X)
            self._cache[key] = prepare(X) if ready else X
        return self._cache[key]

    def group_key(self, kernel: Kernel) -> Any:
        return (self._sets.key(kernel), kernel.base)


def _make_parts(
    kernels: Sequence[Kernel | None], rows: _Rows, cols: _Rows
) -> list[_Part]:
    groups: dict[Any, list[int]] = {}
    for m, kernel in enumerate(kernels):
        assert kernel is not None
        groups.setdefault(rows.group_key(kernel), []).append(m)
    parts = []
    for members in groups.values():
        source = _make_source([kernels[m] for m in members], rows, cols, None)
        positions = np.array(members, dtype=np.intp)
        parts.append(_Part(source, np.arange(len(members)), positions))
    return parts


def _make_source(
    kernels: Sequence[Kernel | None],
    rows: _Rows,
    cols: _Rows | None,
    column_source: Any,
) -> store.Source:
    first = kernels[0]
    assert first is not None
    if isinstance(first, VectorKernel):
        a: Prepared = rows.get(first, True)
        b = column_source.cols if cols is None else cols.get(first, True)
        return store.BaseSource(str(first.base), tuple(kernels), a, b)  # type: ignore[arg-type]
    assert isinstance(first, ComputedKernel)
    x = rows.get(first, False)
    if cols is not None:
        return store.ComputedSource(tuple(kernels), x, x, True)  # type: ignore[arg-type]
    inner = getattr(column_source, "source", column_source)
    return store.ComputedSource(tuple(kernels), x, inner.cols, False)  # type: ignore[arg-type]


def _take_columns(X: Any, index: Index) -> Any:
    if len(index) == X.shape[1] and (index == np.arange(len(index))).all():
        return X
    return X[:, index]


def _standardizer(
    X: Any, weight: FloatArray | None
) -> tuple[FloatArray, FloatArray]:
    w = np.ones(X.shape[0]) if weight is None else weight
    w = w / w.sum()
    mean = np.asarray(w @ X).ravel()
    if sparse.issparse(X):
        variance = np.asarray(w @ X.multiply(X)).ravel() - mean**2
    else:
        variance = w @ (X - mean) ** 2
    # a constant column stays constant: zero after centring, whatever the scale
    tiny = (10 * np.finfo(float).eps * np.maximum(1.0, np.abs(mean))) ** 2
    return mean, np.where(variance > tiny, np.maximum(variance, 1e-300), 1.0) ** -0.5


def _as_float(array: NDArray[Any]) -> NDArray[Any]:
    if array.dtype in (np.dtype(np.float64), np.dtype(np.float32)):
        return array
    if array.dtype.kind not in "biuf":
        raise ValueError(f"Gram matrices must be numbers, got dtype {array.dtype}.")
    return array.astype(np.float64)


def _as_index(samples: Any, n: int) -> Index:
    if isinstance(samples, slice):
        return np.arange(n, dtype=np.intp)[samples]
    index = np.asarray(samples).ravel()
    if index.dtype == bool:
        return np.flatnonzero(index)
    return np.arange(n, dtype=np.intp)[index.astype(np.intp)]


def _unique(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names, repeated ones numbered."""
    seen: dict[str, int] = {}
    out = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        out.append(name if seen[name] == 1 else f"{name}#{seen[name]}")
    return tuple(out)
