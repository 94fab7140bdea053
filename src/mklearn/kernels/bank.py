"""KernelBank: many kernels on the same samples, evaluated lazily."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mklearn.data.covariates import Values, as_values, take_rows
from mklearn.data.spelling import plural
from mklearn.data.threads import run_blocks
from mklearn.data.views import MultiView
from mklearn.kernels import memory
from mklearn.kernels.affine import Affine, Mask, Terms
from mklearn.kernels.columns import (
    Features,
    FeatureSet,
    columns_in,
    example,
    feature_key,
    fit_features,
    grouped,
    sharing,
    union_of,
    weight_if_given,
)
from mklearn.kernels.computed_source import source_of
from mklearn.kernels.families import KernelLike, expand_kernels
from mklearn.kernels.feature_source import (
    ColumnSource,
    DiagonalSource,
    FeatureSource,
    SharedSource,
)
from mklearn.kernels.gram_source import GramSource, add_each, triangle
from mklearn.kernels.memory import Index, MemoryEstimate
from mklearn.kernels.sources import Limits, Request, Seen, Source, same
from mklearn.kernels.specs import Kernel, unique_names
from mklearn.kernels.state import BankState, Reference
from mklearn.kernels.twofold import add_products

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Part:
    """A source, the samples of it that the bank uses, and where its kernels stand.

    ``rows`` and ``cols`` None are all samples; ``features`` None are given Grams.
    """

    source: Source
    which: Index  # kernels of the source
    positions: Index  # their places in the bank
    features: Features | None
    rows: Index | None = None
    cols: Index | None = None

    def request(
        self,
        rows: Index,
        start: int,
        stop: int,
        u: FloatArray | None = None,
        v: FloatArray | None = None,
    ) -> Request:
        """Return what to ask the source about rows and a range of columns."""
        return Request(
            self.which,
            rows if self.rows is None else self.rows[rows],
            slice(start, stop) if self.cols is None else self.cols[start:stop],
            u,
            v,
        )

    def compact(self) -> Part:
        """Return the part without indices, where its source can be cut to size."""
        n_kernels = len(self.which)
        source = self.source.restrict(self.which, self.rows, self.cols)
        if source is None:
            return self
        return Part(source, np.arange(n_kernels), self.positions, self.features)

    def copied_bytes(self) -> int:
        """Return what a copy of its kernels takes, 0 if they lie well as they are."""
        return self.source.copied_bytes(len(self.which))

    def gathered(self, single: bool) -> Part:
        """Return the part with a copy of its kernels, if that is read faster."""
        source = self.source.gathered(self.which, single)
        if source is None:
            return self
        return replace(self, source=source, which=np.arange(len(self.which)))

    def raw(self) -> Part:
        """Return the part without stored values, which may lie differently."""
        return replace(self, source=self.source.raw())


NOT_FINITE = (
    "A Gram matrix contains NaN or infinity; check the kernel, or drop the samples it "
    "fails on."
)
_TILE = 512  # columns that are computed at once at the least
_TABULATE = 2**14  # values of a sum that are worth a table of it


class KernelBank:
    """Several kernels on the same samples, evaluated lazily.

    A bank has ``shape == (n_rows, n_cols, n_kernels)``, kernels last, and
    ``bank[np.ix_(rows, cols)]`` is a smaller bank that shares its storage, as
    scikit-learn's splitters require of pairwise input. :meth:`stored` determines
    whether values are stored or recomputed.

    If a sample lacks the view of a kernel, its row and column of the raw Gram matrix
    are zero; a fitted normalisation places it at the mean of the samples that have the
    view.

    Parameters
    ----------
    X : array, DataFrame, sparse matrix or MultiView
        The samples.
    kernels : kernel, name, callable, list of these, or "auto"
    sample_weight : array of shape (n_samples,), optional
        Sample weights used for data-dependent parameters (widths, standardisation).

    Attributes
    ----------
    names : tuple of str
        Names of the kernels, all different.
    kernels : tuple of Kernel or None
        The kernels with all parameters resolved to numbers; None for given Gram
        matrices.
    memory_limit : int or None
        The memory budget in bytes, once :meth:`stored` has set it.
    beside : dict or None
        The covariates of given Gram matrices by name, one value for each row.

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

    names: tuple[str, ...]
    kernels: tuple[Kernel | None, ...]
    memory_limit: int | None = None
    _parts: list[Part]
    _size: tuple[int, int]
    _affine: Affine | None = None
    _mask: Mask | None = None
    beside: Values | None = None
    covariates: NDArray[np.float64] | None = None  # coded, by an estimator

    def __init__(
        self,
        X: Any,
        kernels: KernelLike = "auto",
        *,
        sample_weight: ArrayLike | None = None,
    ) -> None:
        data = MultiView.wrap(X)
        if len(data) == 0:
            raise ValueError(
                f"Found array with 0 sample(s) (shape={data.shape}) while a minimum of "
                "1 is required."
            )
        weight = weight_if_given(sample_weight, len(data))
        specs = expand_kernels(kernels, data)
        # names come from what was asked for, not from numbers found in the data
        self.names = unique_names([spec.label() for spec in specs])
        self._parts = []
        found: dict[int, Kernel] = {}
        shared = sharing(specs, data)
        for members in shared:
            kernels_of = [specs[m] for m in members]
            union = FeatureSet.fit(union_of(kernels_of, data), data, weight)
            groups = columns_in(kernels_of, union)
            columns = SharedSource.of(kernels_of, union.take(data), groups)
            which = np.arange(len(members))
            self._parts.append(Part(columns, which, members, union))
            found.update(zip(members.tolist(), kernels_of, strict=True))
        others = np.setdiff1d(np.arange(len(specs)), np.concatenate([[], *shared]))
        for chosen in grouped(feature_key(specs[m], data) for m in others):
            members = others[chosen]
            features = fit_features(specs[members[0]], data, weight)
            samples = features.take(data)
            holes = features.absent(data)
            there, w = samples, weight
            if holes is not None:
                there, w = samples[~holes], None if w is None else w[~holes]
            known: dict[Any, Any] = {}
            for m in members:
                specs[m].check_domain(there)
                found[m] = specs[m].resolve(there, w, known)
            for inner in grouped(specs[m].base for m in members):
                positions = members[inner]
                source = source_of([found[m] for m in positions], samples)
                which = np.arange(len(positions))
                self._parts.append(Part(source, which, positions, features))
        self.kernels = tuple(found[m] for m in range(len(specs)))
        self._size = (len(data), len(data))
        present = self._find_present(data)
        self._mask = None if present is None else Mask(present, present)

    @classmethod
    def from_grams(
        cls,
        grams: Any,
        names: Iterable[str] | None = None,
        *,
        row_diag: ArrayLike | None = None,
        cross: bool = False,
        finite: bool = False,
        covariates: Any = None,
    ) -> KernelBank:
        """Return a bank of given Gram matrices.

        Parameters
        ----------
        grams : array of shape (n_rows, n_cols, n_kernels), or sequence of matrices
            The matrices; they are not copied.
        names : iterable of str, optional
        row_diag : array of shape (n_rows, n_kernels), optional
            The values ``k(x, x)`` of the rows, for cross Gram matrices with spherical
            normalisation.
        cross : bool
            Whether rows and columns are different samples, even if there are equally
            many.
        finite : bool
            Whether the values are known to be finite, or will be checked by
            :meth:`survey`; otherwise they are checked here.
        covariates : array of shape (n_rows, k), DataFrame or mapping, optional
            Covariates of the rows, numbers or categories, for estimators whose
            ``fixed`` names its columns. They are sliced together with the rows.
        """
        given: NDArray[Any] | list[NDArray[Any]]
        if isinstance(grams, (list, tuple)):
            given = [_as_gram(g, 2, finite) for g in grams]
            shapes = {g.shape for g in given}
            if len(shapes) != 1:
                raise ValueError(
                    "At least one Gram matrix is needed, and all must have the same "
                    "shape, got "
                    f"{sorted(shapes)}."
                )
            n_rows, n_cols = given[0].shape
            n_kernels = len(given)
        else:
            grams = np.asarray(grams)
            grams = grams[:, :, None] if grams.ndim == 2 else grams
            given = _as_gram(grams, 3, finite)
            n_rows, n_cols, n_kernels = given.shape
        diag = None if row_diag is None else np.asarray(row_diag, dtype=np.float64)
        if diag is not None and diag.shape != (n_rows, n_kernels):
            raise ValueError(
                f"row_diag must have shape {(n_rows, n_kernels)}, got {diag.shape}."
            )
        square = n_rows == n_cols and not cross
        bank = cls.from_sources([GramSource(given, diag, square=square)], names)
        if covariates is not None:
            bank.beside = as_values(covariates, n_rows)
        return bank

    @classmethod
    def from_features(
        cls,
        Z: FloatArray,
        slices: Sequence[slice] | Sequence[NDArray[np.intp]],
        names: Iterable[str] | None = None,
        *,
        scale: ArrayLike | None = None,
    ) -> KernelBank:
        """Return the bank of the kernels ``Z[:, s] @ Z[:, s].T`` for s in ``slices``.

        It stores the features instead of the Gram matrices: n times their number,
        whatever the number of kernels.

        Parameters
        ----------
        Z : array of shape (n, D)
        slices : sequence of slice, or of arrays of int
            The columns of each kernel. Where they are arrays, kernels may have columns
            in common.
        names : iterable of str, optional
        scale : array of shape (M,), optional
            Factors of the kernels, if they have columns in common.

        Examples
        --------
        >>> import numpy as np
        >>> from mklearn import KernelBank
        >>> bank = KernelBank.from_features(np.eye(3), [slice(0, 1), slice(1, 3)])
        >>> bank.combine([1.0, 2.0]).diagonal().tolist()
        [1.0, 2.0, 2.0]
        """
        Z = np.ascontiguousarray(Z)
        if all(isinstance(columns, slice) for columns in slices):
            source = FeatureSource(Z, Z, tuple(slices))  # type: ignore[arg-type]
        else:
            groups = [np.asarray(columns, dtype=np.intp) for columns in slices]
            factors = np.ones(len(groups)) if scale is None else np.asarray(scale)
            source = ColumnSource.over(Z, groups, factors)
        return cls.from_sources([source], names)

    @classmethod
    def from_sources(
        cls, sources: Sequence[Source], names: Iterable[str] | None = None
    ) -> KernelBank:
        """Return the bank of all kernels of some sources, one source after the other.

        Parameters
        ----------
        sources : sequence of Source
            Sources on the same rows and columns, whose values need no samples.
        names : iterable of str, optional
        """
        sizes = {source.shape[:2] for source in sources}
        if len(sizes) != 1:
            raise ValueError(
                "A bank needs at least one source, and all must have the same size, "
                f"got {sorted(sizes)}."
            )
        ends = np.cumsum([source.shape[2] for source in sources]).tolist()
        M = ends[-1]
        wanted = [f"K{m}" for m in range(M)] if names is None else list(names)
        if len(wanted) != M:
            raise ValueError(f"Got {len(wanted)} names for {plural(M, 'kernel')}.")
        parts = []
        for source, end in zip(sources, ends, strict=True):
            which = np.arange(source.shape[2])
            parts.append(Part(source, which, which + (end - len(which)), None))
        none: tuple[Kernel | None, ...] = (None,) * M
        return cls._made(unique_names(wanted), none, parts, sizes.pop())

    @classmethod
    def from_state(cls, state: BankState) -> KernelBank:
        """Return the bank of a saved state; raise ValueError if it is inconsistent.

        Parameters
        ----------
        state : BankState
        """
        if not isinstance(state, BankState):
            raise ValueError(f"A bank is restored from a BankState, got {type(state)}.")
        parts: list[Part] = []
        found: dict[int, Kernel] = {}
        for source, of in zip(state.sources(), state.references, strict=True):
            which = np.arange(len(of.kernels))
            parts.append(Part(source, which, of.positions, of.features))
            found.update(zip(of.positions.tolist(), of.kernels, strict=True))
        names, size = state.names, parts[0].source.shape[:2]
        mask = None
        if state.present is not None:
            mask = Mask(np.ones((len(names), 0)), state.present)
        kernels = tuple(found[m] for m in range(len(names)))
        return cls._made(tuple(names), kernels, parts, size, mask)

    @classmethod
    def _made(
        cls,
        names: tuple[str, ...],
        kernels: tuple[Kernel | None, ...],
        parts: list[Part],
        size: tuple[int, int],
        mask: Mask | None = None,
    ) -> KernelBank:
        bank = cls.__new__(cls)
        bank.names, bank.kernels = names, kernels
        bank._parts, bank._size, bank._mask = parts, size, mask
        return bank

    # --- shape, slices, storage -------------------------------------------------------

    @property
    def shape(self) -> tuple[int, int, int]:
        """Number of rows, columns and kernels."""
        return (*self._size, len(self.names))

    ndim = 3

    @property
    def present(self) -> NDArray[np.bool_] | None:
        """Whether rows have the view of a kernel, (n_kernels, n_rows); None if all do.

        For cross banks these are the new samples.
        """
        return None if self._mask is None else self._mask.rows > 0

    @property
    def several_views(self) -> bool:
        """Whether the samples have several views, of which some may be missing."""
        return any(
            part.features is not None and not part.features.only_view
            for part in self._parts
        )

    def hide(self, present: FloatArray) -> KernelBank:
        """Return the bank with the columns hidden where ``present`` (M, n_cols) is 0.

        The rows that are hidden stay hidden.
        """
        rows = np.ones((self.shape[2], self._size[0]))
        if self._mask is not None:
            rows, present = self._mask.rows, self._mask.cols * present
        bank = copy.copy(self)
        bank._mask = Mask(rows, present).take()
        return bank

    def _find_present(self, data: MultiView) -> FloatArray | None:
        """Return which samples have the views of the kernels, None if all have them."""
        found = None
        for part in self._parts:
            holes = None if part.features is None else part.features.absent(data)
            if holes is not None:
                if found is None:
                    found = np.ones((len(self.names), len(data)))
                found[part.positions] = ~holes
        return found

    @property
    def storage(self) -> str:
        """How values are stored: given, float64, float32, mmap, recompute, or mixed."""
        kinds = {part.source.storage for part in self._parts}
        return kinds.pop() if len(kinds) == 1 else "mixed"

    @property
    def eps(self) -> float:
        """Relative rounding error of the least precise values."""
        return max(part.source.eps for part in self._parts)

    def __len__(self) -> int:
        return self._size[0]

    def __repr__(self) -> str:
        n, m, k = self.shape
        kernels = plural(k, "kernel")
        return f"KernelBank({n} x {m} samples, {kernels}, {self.storage})"

    def __array__(self, dtype: Any = None, copy: Any = None) -> NDArray[Any]:
        raise TypeError(
            "A KernelBank is not an array: its Gram matrices may not fit into memory. "
            "Use bank.gram(m), bank.combine(theta) or kernels='precomputed'."
        )

    def __getitem__(self, samples: Any) -> KernelBank:
        """Return the bank on some samples: ``bank[np.ix_(rows, cols)]``."""
        if not isinstance(samples, tuple):
            samples = (samples,)
        samples = tuple(s for s in samples if s is not Ellipsis)
        if len(samples) > 2:
            raise IndexError(
                "A KernelBank is indexed by samples, bank[np.ix_(rows, cols)]; choose "
                "kernels with bank.select(kernels)."
            )
        samples += (slice(None),) * (2 - len(samples))
        rows, cols = (_as_index(s, n) for s, n in zip(samples, self._size, strict=True))
        bank = copy.copy(self)
        bank._parts = [
            replace(p, rows=_chain(p.rows, rows), cols=_chain(p.cols, cols))
            for p in self._parts
        ]
        bank._size = (
            self._size[0] if rows is None else len(rows),
            self._size[1] if cols is None else len(cols),
        )
        if self._affine is not None:
            bank._affine = self._affine.take(None, rows, cols)
        if self._mask is not None:
            bank._mask = self._mask.take(None, rows, cols)
        if rows is not None and self.beside is not None:
            bank.beside = take_rows(self.beside, rows)
        if rows is not None and self.covariates is not None:
            bank.covariates = self.covariates[rows]
        return bank

    def with_covariates(self, values: NDArray[np.float64]) -> KernelBank:
        """Return the bank whose rows carry coded covariates, shape (n_rows, k)."""
        bank = copy.copy(self)
        bank.covariates = values
        return bank

    def select(self, kernels: Any) -> KernelBank:
        """Return the bank with some kernels (numbers, mask or names), in that order."""
        if isinstance(kernels, (str, int, np.integer)):
            kernels = [kernels]
        wanted = [self._number(k) if isinstance(k, str) else k for k in kernels]
        if not wanted:
            raise ValueError("No kernel selected; a bank needs at least one.")
        index = _as_index(wanted, len(self.names))
        if index is None or len(index) == 0:
            raise ValueError("No kernel selected; a bank needs at least one.")
        bank = copy.copy(self)
        bank.names = tuple(self.names[i] for i in index)
        bank.kernels = tuple(self.kernels[i] for i in index)
        bank._parts = []
        for part in self._parts:
            place = np.full(len(self.names), -1)
            place[part.positions] = part.which
            positions = np.flatnonzero(place[index] >= 0)
            if len(positions):
                which = place[index[positions]]
                bank._parts.append(replace(part, which=which, positions=positions))
        if self._affine is not None:
            bank._affine = self._affine.take(index)
        if self._mask is not None:
            bank._mask = self._mask.take(index)
        return bank

    def gathered(
        self, before: KernelBank | None = None, single: bool = False
    ) -> KernelBank:
        """Return the bank with copies of given Grams that lie among many others.

        A stack of Gram matrices, kernels last, is read as a whole even for a single
        kernel. Nothing is copied if there is not enough memory.

        Parameters
        ----------
        before : KernelBank, optional
            An earlier answer for other kernels of the same bank, whose copies are used
            again.
        single : bool
            Whether copies may be in single precision, for computations that are checked
            with the bank itself afterwards.
        """
        if before is not None and not set(self.names).isdisjoint(before.names):
            return self._gathered_after(before, single)
        size = sum(part.copied_bytes() for part in self._parts)
        if size == 0 or size > memory.available_memory() // 4:
            return self
        bank = copy.copy(self)
        bank._parts = [part.gathered(single) for part in self._parts]
        return bank

    def _gathered_after(self, before: KernelBank, single: bool) -> KernelBank:
        place = {name: k for k, name in enumerate(before.names)}
        known = np.array([place.get(name, -1) for name in self.names])
        kept, new = np.flatnonzero(known >= 0), np.flatnonzero(known < 0)
        bank = copy.copy(self)
        bank._parts = []
        banks = [(kept, before.select(known[kept]).gathered(single=single))]
        if len(new):
            banks.append((new, self.select(new).gathered(single=single)))
        for at, some in banks:
            for part in some._parts:
                bank._parts.append(replace(part, positions=at[part.positions]))
        return bank

    def _number(self, name: str) -> int:
        if name not in self.names:
            raise ValueError(
                f"There is no kernel {name!r}; the bank has {list(self.names[:20])}."
            )
        return self.names.index(name)

    def cross(self, X: Any) -> KernelBank:
        """Return the raw kernels between new samples (rows) and this bank's columns."""
        data = MultiView.wrap(X)
        known = self._without_rows(None)
        bank = copy.copy(known)
        bank._parts = []
        for part in known._parts:
            assert part.features is not None
            samples = part.features.take(data)
            for m in part.positions:
                kernel = self.kernels[m]
                assert kernel is not None
                kernel.check_domain(samples)
            bank._parts.append(replace(part, source=part.source.cross(samples)))
        bank._size = (len(data), self._size[1])
        present = known._find_present(data)
        if present is not None or known._mask is not None:
            n_kernels = len(self.names)
            rows = np.ones((n_kernels, len(data))) if present is None else present
            cols = np.ones((n_kernels, self._size[1]))
            cols = cols if known._mask is None else known._mask.cols
            bank._mask = Mask(rows, cols)
        return bank

    def reference(self, cols: ArrayLike) -> KernelBank:
        """Return what :meth:`cross` needs for some columns, and nothing else."""
        return self._without_rows(_as_index(cols, self._size[1]))

    def state(self) -> BankState:
        """Return what is saved of a bank without rows, as plain values.

        Only a bank returned by :meth:`reference`, with kernels computed from samples,
        has a state; :meth:`from_state` restores the bank from it.
        """
        if len(self):
            raise ValueError("A bank with rows has no state; use bank.reference(cols).")
        references = tuple(
            Reference.of(part.source.known(), part.positions, part.features)
            for part in self._parts
        )
        present = None if self._mask is None else self._mask.cols
        return BankState(self.names, references, present)

    def example(self, n: int) -> Any:
        """Return ``n`` samples that are valid input of :meth:`cross`."""
        return example((p.features for p in self._parts if p.features), n)

    def _without_rows(self, cols: Index | None) -> KernelBank:
        """Return the raw bank of no rows and some columns, cut down to these."""
        bank = self.with_affine(None)[:, slice(None) if cols is None else cols]
        none = np.empty(0, dtype=np.intp)
        bank._parts = [replace(p.raw(), rows=none).compact() for p in bank._parts]
        bank._size = (0, bank._size[1])
        if bank._mask is not None:
            bank._mask = bank._mask.take(None, none)
        return bank

    def replace_gram(
        self,
        m: int,
        K: FloatArray,
        row_diag: FloatArray | None = None,
        cross: bool = False,
    ) -> KernelBank:
        """Return the bank with one Gram matrix exchanged for a given one.

        ``row_diag`` (n_rows,) are the ``k(x, x)`` that go with it, by default the
        diagonal of K; a ``cross`` Gram has none. Samples and formula are kept, so that
        :meth:`cross` and :meth:`reference` still refer to the raw kernel.
        """
        if K.shape != self._size:
            raise ValueError(
                f"The Gram matrix must have shape {self._size}, got {K.shape}."
            )
        m = range(len(self.names))[m]
        square = K.shape[0] == K.shape[1] and not cross
        bank = copy.copy(self)
        bank._parts = []
        for part in self._parts:
            keep = part.positions != m
            if keep.any():
                which, positions = part.which[keep], part.positions[keep]
                bank._parts.append(replace(part, which=which, positions=positions))
            if not keep.all():
                one = replace(part, which=part.which[~keep])
                origin = None if one.features is None else one.raw().compact().source
                source = GramSource(
                    [K], None if row_diag is None else row_diag[:, None], origin, square
                )
                zero = np.zeros(1, dtype=np.intp)
                bank._parts.append(Part(source, zero, zero + m, one.features))
        return bank

    def with_diagonal(self, values: ArrayLike, name: str = "identity") -> KernelBank:
        """Return the square bank with ``diag(values)`` as a further, last kernel.

        Its value is ``values[i]`` for sample i with itself and zero for any two
        different samples. Hence it contributes nothing to new samples and is left out
        of cross kernels. It takes n numbers instead of n^2, and the bank's
        normalisation does not apply to it.

        Parameters
        ----------
        values : array of shape (n,)
            Nonnegative numbers.
        name : str

        Examples
        --------
        >>> import numpy as np
        >>> from mklearn import KernelBank
        >>> bank = KernelBank.from_grams(np.ones((2, 2, 1))).with_diagonal([1.0, 3.0])
        >>> bank.combine([1.0, 2.0]).tolist()
        [[3.0, 1.0], [1.0, 7.0]]
        """
        n, n_cols, _ = self.shape
        values = np.asarray(values, dtype=np.float64)
        if n != n_cols or values.shape != (n,):
            raise ValueError(
                f"A diagonal needs a square bank and one value for each sample, got a "
                f"bank of shape {self.shape} and values of shape {values.shape}."
            )
        return self._with_last(DiagonalSource(values), name)

    def with_features(self, Z: FloatArray, name: str = "features") -> KernelBank:
        """Return the square bank with ``Z Z'`` as a further, last kernel.

        It is not changed by the bank's normalisation.

        Parameters
        ----------
        Z : array of shape (n, D)
        name : str

        Examples
        --------
        >>> import numpy as np
        >>> from mklearn import KernelBank
        >>> bank = KernelBank.from_grams(np.ones((2, 2, 1)))
        >>> bank.with_features(np.array([[1.0], [2.0]])).combine([1.0, 1.0]).tolist()
        [[2.0, 3.0], [3.0, 5.0]]
        """
        n, n_cols, _ = self.shape
        if n != n_cols or Z.ndim != 2 or len(Z) != n:
            raise ValueError(
                f"Features need a square bank and one row for each sample, got a bank "
                f"of shape {self.shape} and features of shape {Z.shape}."
            )
        Z = np.ascontiguousarray(Z, dtype=np.float64)
        return self._with_last(FeatureSource(Z, Z, (slice(0, Z.shape[1]),)), name)

    def _with_last(self, source: Source, name: str) -> KernelBank:
        """Return the bank with the one kernel of a source as the last."""
        bank = copy.copy(self)
        bank.names = unique_names([*self.names, name])
        bank.kernels = (*self.kernels, None)
        which = np.zeros(1, dtype=np.intp)
        last = Part(source, which, which + self.shape[2], None)
        bank._parts = [*self._parts, last]
        bank._mask = None if self._mask is None else self._mask.extended()
        bank._affine = None if self._affine is None else self._affine.extended()
        return bank

    def estimate_memory(
        self, memory_limit: int | None = None, storage: str = "auto"
    ) -> MemoryEstimate:
        """Return the storage and memory that :meth:`stored` would use."""
        uses = [(part.source, len(part.which), *self._size) for part in self._parts]
        return memory.estimate(uses, self.shape, memory_limit, storage)

    def stored(
        self, memory_limit: int | None = None, storage: str = "auto"
    ) -> KernelBank:
        """Return the bank with its values stored as far as the memory budget allows.

        Parameters
        ----------
        memory_limit : int, optional
            Memory in bytes for stored values, blocks in progress and the rows kept by a
            solver; by default 2 GB (half of the free memory if that is less, or if
            values are costly to compute). The samples themselves are not counted.
        storage : {"auto", "float64", "float32", "mmap", "recompute"}
            "auto" uses the first that fits: float64, float32, then recomputation for
            kernels that are formulas of a dot product or distance, and memory-mapped
            files for costly functions. Kernels that share a base store the base once.
            Gram matrices that were given or already stored stay as they are.
        """
        plan = self.estimate_memory(memory_limit, storage)
        bank = copy.copy(self)
        bank.memory_limit = plan.limit
        bank._parts = []
        for part in self._parts:
            kept = plan.storage
            if storage == "auto" and kept == "mmap" and not part.source.slow():
                kept = "recompute"
            part = part.compact()
            source = part.source.store(kept, plan.limit)
            bank._parts.append(replace(part, source=source))
        return bank

    def rough(self) -> KernelBank:
        """Return the bank with values in single precision where that is faster.

        Sums are still in double precision. This is for computations that are checked
        with the exact bank afterwards.
        """
        bank = copy.copy(self)
        bank._parts = [replace(p, source=p.source.rough()) for p in self._parts]
        return bank

    def travelling(self) -> KernelBank:
        """Return the bank with stored values that go along when it is pickled.

        If a process recomputed them for a subset of the samples, the last digits would
        differ.
        """
        bank = copy.copy(self)
        bank._parts = [replace(p, source=p.source.travelling()) for p in self._parts]
        return bank

    def row_budget(self) -> int:
        """Return how many combined float64 rows a solver may keep within the budget.

        The minimum is 64, which solvers need to make progress.
        """
        left = self.spare_bytes() // (8 * max(1, self._size[1]))
        return int(max(64, min(self._size[0], left)))

    def spare_bytes(self) -> int:
        """Return what the budget leaves beside stored values and blocks in flight."""
        plan = self.estimate_memory(self.memory_limit, "recompute")
        return max(0, plan.limit - plan.stored - plan.working)

    # --- questions --------------------------------------------------------------------

    def gram(self, m: int) -> FloatArray:
        """Return one Gram matrix, shape (n_rows, n_cols)."""
        return self.select([range(self.shape[2])[m]]).combine(np.ones(1))

    def combine(self, theta: ArrayLike) -> FloatArray:
        """Return ``sum_m theta[m] K[m]``, shape (n_rows, n_cols)."""
        return self._combine_rows(np.arange(self._size[0]), self._check_theta(theta))

    def combine_symmetric(
        self, theta: ArrayLike, out: FloatArray | None = None
    ) -> FloatArray:
        """Return :meth:`combine` of a square bank from the values above the diagonal.

        The Gram matrices are assumed to be symmetric: half of their values are never
        read. ``out`` (n, n) is written to if it is given.
        """
        self._require_square("combine_symmetric")
        theta, n = self._check_theta(theta), self._size[0]
        out = np.empty((n, n)) if out is None else out
        out[:] = 0.0
        bank = self._compact()

        def work(block: Index) -> None:
            first, end = int(block[0]), int(block[-1]) + 1
            bank._combine_block(block, theta, out[first:end, first:], first, True)
            out[end:, first:end] = out[first:end, end:].T

        run_blocks(work, np.array_split(np.arange(n), max(1, min(n // 96, 16))))
        return out

    def columns(
        self, idx: ArrayLike, theta: ArrayLike, many: bool = False
    ) -> FloatArray:
        """Return columns of the combined kernel as rows, shape (len(idx), n).

        Only for square banks, where column i is row i. ``many`` announces that more
        columns of the same sum will be requested.
        """
        self._require_square("columns")
        rows = _as_index(idx, self._size[0])
        every = np.arange(self._size[0])
        return self._combine_rows(
            every if rows is None else rows, self._check_theta(theta), many
        )

    def holds_sum(self) -> bool:
        """Return whether a combined kernel is read from memory, and fits into it."""
        kept = self.storage in ("given", "float64", "float32")
        return kept and self._symmetric and self.row_budget() >= self._size[0]

    def apply(self, theta: ArrayLike, A: ArrayLike) -> FloatArray:
        """Return ``(sum_m theta[m] K[m]) A``, shape (n_rows, n_targets), by blocks.

        Rows of A that are zero are never evaluated.
        """
        theta, A = self._check_theta(theta), self._check_targets(A)
        if self._symmetric and not self._recomputed:
            return self._apply_rows(theta, A)
        bank, a = self._on_support(A)
        out = np.zeros((self._size[0], a.shape[1]))
        if len(a) == 0 or not theta.any():
            return out
        tabulate = self._size[0] * len(a) > _TABULATE

        def work(block: Index) -> None:
            for start, stop in bank._col_ranges(len(block)):
                K = np.zeros((len(block), stop - start))
                bank._combine_block(block, theta, K, start, tabulate)
                out[block] += K @ a[start:stop]

        blocks = bank._row_blocks(self._size[0], int(np.count_nonzero(theta)))
        run_blocks(work, blocks)
        return out

    def _apply_rows(self, theta: FloatArray, A: FloatArray) -> FloatArray:
        """Return ``K A`` from the rows of K where A is not zero, which lie together."""
        used = np.flatnonzero(A.any(axis=1))
        n_rows = self._size[0]
        if len(used) == 0 or not theta.any():
            return np.zeros((n_rows, A.shape[1]))
        tabulate = len(used) * n_rows > _TABULATE

        def work(block: Index) -> FloatArray:
            rows = used[block]
            K = np.zeros((len(rows), n_rows))
            self._combine_block(rows, theta, K, 0, tabulate)
            return np.asarray(K.T @ A[rows])

        blocks = self._row_blocks(len(used), int(np.count_nonzero(theta)))
        return np.asarray(np.sum(run_blocks(work, blocks), axis=0))

    def combine_each(self, thetas: ArrayLike) -> FloatArray:
        """Return ``sum_m thetas[t, m] K[m]`` for every t, shape (T, n_rows, n_cols).

        Each kernel value is computed once, whatever the number of combinations.
        """
        D = np.asarray(thetas, dtype=np.float64)
        n_kernels = self.shape[2]
        if D.ndim != 2 or D.shape[1] != n_kernels:
            raise ValueError(f"thetas must have shape (T, {n_kernels}), got {D.shape}.")
        if len(D) == 1:
            return self.combine(D[0])[None]
        out = np.zeros((len(D), *self._size))
        used = np.flatnonzero(D.any(axis=0))
        weights = np.ascontiguousarray(D[:, used])
        dense = 4 * np.count_nonzero(weights) > weights.size > 0
        bank = self._compact()

        def work(block: Index) -> None:
            one = np.zeros(n_kernels)
            for start, stop in bank._col_ranges(len(block)):
                # for many weights a product of matrices, a few rows at a time
                most = max(8, (1 << 21) // max(1, len(used) * (stop - start)))
                cuts = range(most, len(block), most) if dense else []
                for rows in np.split(block, cuts):
                    first, shape = int(rows[0]), (len(rows), stop - start)
                    values = np.zeros((len(used) if dense else 1, *shape))
                    for i, m in enumerate(used):
                        value = values[i if dense else 0]
                        one[m] = 1.0
                        bank._combine_block(rows, one, value, start, False)
                        one[m] = 0.0
                        if not dense:
                            add_each(value, weights[:, i], out, first, start)
                            value[:] = 0.0
                    if dense:
                        sums = weights @ values.reshape(len(used), -1)
                        here = slice(first, first + len(rows))
                        out[:, here, start:stop] = sums.reshape(len(D), *shape)

        blocks = bank._row_blocks(self._size[0], max(1, len(used)))
        run_blocks(work, blocks)
        return out

    def apply_each(self, thetas: ArrayLike, A: ArrayLike) -> FloatArray:
        """Return ``(sum_m thetas[t, m] K[m]) A[:, t]`` for every target t, by blocks.

        Parameters
        ----------
        thetas : array of shape (n_targets, n_kernels)
        A : array of shape (n_cols, n_targets)

        Returns
        -------
        array of shape (n_rows, n_targets)
        """
        D = np.asarray(thetas, dtype=np.float64)
        bank, a = self._on_support(self._check_targets(A))
        if D.shape != (a.shape[1], self.shape[2]):
            raise ValueError(
                f"thetas must have shape {(a.shape[1], self.shape[2])}, got {D.shape}."
            )
        out = np.zeros((self._size[0], a.shape[1]))
        used = np.flatnonzero(D.any(axis=0))
        if len(a) == 0 or len(used) == 0:
            return out
        if len(used) < len(self.names):
            bank, D = bank.select(used), D[:, used]

        def work(block: Index) -> None:
            for start, stop in bank._col_ranges(len(block)):
                S = bank._multiply_block(block, a[start:stop], start)
                out[block] += np.einsum("itm,tm->it", S, D)

        blocks = bank._row_blocks(self._size[0], len(used), a.shape[1])
        run_blocks(work, blocks)
        return out

    def multiply(self, A: ArrayLike) -> FloatArray:
        """Return ``K[m] A`` for every kernel, shape (n_rows, n_targets, n_kernels)."""
        bank, a = self._on_support(self._check_targets(A))
        out = np.zeros((self._size[0], a.shape[1], self.shape[2]))
        if len(a) == 0:
            return out

        def work(block: Index) -> None:
            for start, stop in bank._col_ranges(len(block)):
                out[block] += bank._multiply_block(block, a[start:stop], start)

        blocks = bank._row_blocks(self._size[0], self.shape[2], a.shape[1])
        run_blocks(work, blocks)
        return out

    def multiply_inside(self, A: FloatArray) -> FloatArray | None:
        """Return ``K[m] A`` on the samples where A is not zero, from half of the pairs.

        The Gram matrices are assumed to be symmetric. The quadratic forms follow from
        this, so one pass yields both.

        Returns
        -------
        array of shape (n, n_targets, n_kernels), or None
            Zero for samples where A is zero. None if :meth:`multiply` is faster: for
            values that are not stored, many targets, or factors for each sample.
        """
        used = np.flatnonzero(A.any(axis=1))
        bank = self[np.ix_(used, used)] if len(used) < len(A) else self
        affine = bank._affine
        curved = affine is not None and affine.u is not None
        if len(used) == 0 or curved or bank._mask is not None:
            return None
        At = np.ascontiguousarray(A[used].T)
        inside = np.empty((len(used), A.shape[1], self.shape[2]))
        for part in bank._parts:
            at = np.arange(len(used)) if part.rows is None else part.rows
            if not same(part.rows, part.cols) or (np.diff(at) <= 0).any():
                return None

            def work(
                piece: tuple[int, int], part: Part = part, at: Index = at
            ) -> FloatArray | None:
                rows = slice(*piece)
                return part.source.multiply_half(part.which, at, rows, At)

            total = np.zeros((len(used), A.shape[1], len(part.which)))
            pieces = triangle(len(used), len(part.which))
            for (first, _), sums in zip(pieces, run_blocks(work, pieces), strict=True):
                if sums is None:
                    return None
                total[first:] += sums
            inside[:, :, part.positions] = total
        every = np.arange(len(used), dtype=np.intp)
        out = np.zeros((*A.shape, self.shape[2]))
        out[used] = bank._normalised(inside, every, A[used], 0)
        return out

    def quad(self, A: ArrayLike) -> FloatArray:
        """Return ``sum_t A[:, t]' K[m] A[:, t]`` for every kernel, shape (n_kernels,).

        Only the nonzero rows of A and half of the pairs are used: the Gram matrices are
        assumed to be symmetric.
        """
        return self._quads(A, each=False)[0]

    def quads(self, A: ArrayLike) -> FloatArray:
        """Return ``A[:, t]' K[m] A[:, t]``, shape (n_targets, n_kernels)."""
        return self._quads(A, each=True)

    def _quads(self, A: ArrayLike, each: bool) -> FloatArray:
        """Return the quadratic forms of each target, or their sum as the only row."""
        self._require_square("quad")
        A = self._check_targets(A)
        used = np.flatnonzero(A.any(axis=1))
        shape = (A.shape[1] if each else 1, self.shape[2])
        if len(used) == 0:
            return np.zeros(shape)
        bank, a = self, A
        if len(used) < len(A):
            bank, a = self[np.ix_(used, used)], A[used]
        bank = bank._compact()

        def work(block: Index) -> list[FloatArray]:
            # pairs right of the diagonal block count twice
            total: list[FloatArray] = []
            end = int(block[-1]) + 1
            for start, stop in bank._col_ranges(len(block), int(block[0])):
                right = 2.0 * a[start:stop]
                right[: max(0, end - start)] *= 0.5
                here = quad_block(block, a[block], right, start)
                total = here if not total else _added(total, here)
            return total

        def quad_block(
            rows: Index, left: FloatArray, right: FloatArray, start: int
        ) -> list[FloatArray]:
            if short:
                return bank._short_quads(rows, left, right, start, each, count)
            S = bank._multiply_block(rows, right, start)
            how = "it,itm->tm" if each else "it,itm->m"
            return [np.einsum(how, left, S).reshape(shape)]

        count = len(used) ** 2 // 2
        one = np.arange(1)
        short = bool(bank._short_quads(one, a[:1], a[:1], 0, each, count))
        # the smaller the blocks, the nearer is half
        size = (1, 0) if short else (self.shape[2], a.shape[1])
        blocks = bank._row_blocks(len(used), *size)
        sums = reduce(_added, run_blocks(work, blocks))
        if not short:
            return sums[0]
        out = np.empty(shape)
        for part, sum_ in zip(bank._parts, sums, strict=True):
            out[:, part.positions] = part.source.settle(part.which, sum_)
        return out if bank._affine is None else out * bank._affine.scale

    def twofold(
        self, thetas: FloatArray, A: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return what ``apply_each`` and ``quads`` do, summed in twice the precision.

        The Gram matrices are those of :meth:`gram`, treated as exact. This takes many
        times as long.

        Parameters
        ----------
        thetas : array of shape (n_targets, n_kernels)
        A : array of shape (n_cols, n_targets)
        """
        self._require_square("twofold")
        used = np.flatnonzero(A.any(axis=1))
        hi, lo = np.zeros(A.shape), np.zeros(A.shape)
        quads = np.zeros((A.shape[1], self.shape[2]))
        for m in range(self.shape[2]):
            K = np.ascontiguousarray(self.gram(m)[:, used])
            quads[:, m] = add_products(K, A, used, thetas[:, m], hi, lo)
        return hi + lo, quads

    def grams(self) -> FloatArray:
        """Return all Gram matrices, shape (n_kernels, n_rows, n_cols)."""
        if self._affine is None and self._mask is None and len(self._parts) == 1:
            part = self._parts[0]
            every = np.arange(self._size[0], dtype=np.intp)
            values = part.source.each(part.request(every, 0, self._size[1]))
            if values is not None:
                order = np.argsort(part.positions)
                return values if (np.diff(order) == 1).all() else values[order]
        return np.stack([self.gram(m) for m in range(self.shape[2])])

    def survey(self, weight: ArrayLike, tol: float) -> Seen:
        """Examine raw, square kernels in one pass, in memory order.

        Parameters
        ----------
        weight : array of shape (n,)
            Weights of the samples in the row means.
        tol : float
            Tolerance for rounding errors, relative to the largest diagonal entry, in
            differences of mirror images and in negative eigenvalues of two samples.
        """
        self._require_square("survey")
        w = np.asarray(weight, dtype=np.float64)
        diag = self.diag()
        if not np.isfinite(diag).all():
            raise ValueError(NOT_FINITE)
        slack = tol * np.maximum(diag.max(axis=0), 0.0)
        tiny = np.finfo(float).tiny
        limits = Limits(slack, 1.0 / np.maximum(diag + slack, tiny))
        n, _, M = self.shape
        out = Seen(np.empty((M, n)), *np.empty((3, M)))
        for part in self._parts:
            at = part.positions
            mine = Limits(limits.unlike[at], limits.reach[:, at])
            found = None
            if self._mask is None and same(part.rows, part.cols):
                found = part.source.survey(part.which, part.rows, w, mine)
            if found is None:
                found = self._only(part)._survey_blocks(w, mine)
            for mine_, all_ in zip(found, out, strict=True):
                all_[at] = mine_
        return out

    def _survey_blocks(self, weight: FloatArray, limits: Limits) -> Seen:
        """Do what :meth:`survey` does with values that have to be asked for."""
        n, _, M = self.shape
        out = Seen(np.empty((M, n)), *np.zeros((3, M)))
        for rows in memory.row_blocks(n, 16 * n, self.memory_limit):
            here, mirrored = self[rows], self[:, rows]
            for m in range(M):
                K, reach = here.gram(m), limits.reach[:, m]
                out.means[m, rows] = K @ weight
                apart = np.abs(K - mirrored.gram(m).T) > limits.unlike[m]
                out.unlike[m] += np.count_nonzero(apart)
                K *= K
                out.squares[m] += K.sum()
                K *= reach[rows, None] * reach
                K[np.arange(len(rows)), rows] = 0.0
                out.beyond[m] += np.count_nonzero(K > 1.0)
        return out

    def inner(self, matrix: FloatArray, upper: bool = False) -> FloatArray:
        """Return ``sum_ij K[m][i, j] matrix[i, j]`` for every kernel, (n_kernels,).

        With ``upper``, the matrix is assumed to be symmetric, and only its upper
        triangle is read, which takes half of the work.
        """
        if matrix.shape != self._size:
            raise ValueError(
                f"The matrix must have shape {self._size}, got {matrix.shape}."
            )
        bank = self._compact()
        n_rows, n_cols = self._size
        blocks = memory.row_blocks(n_rows, 8 * n_cols, self.memory_limit, n_cols)
        tabulate = n_rows * n_cols > _TABULATE

        each = [(part.positions, bank._only(part)) for part in bank._parts]

        def work(rows: Index) -> FloatArray:
            here = slice(int(rows[0]), int(rows[-1]) + 1)
            start, found = here.start if upper else 0, np.zeros(self.shape[2])
            right = matrix[here, start:]
            if upper:  # pairs right of the diagonal block count twice
                right = 2.0 * right
                right[:, : len(rows)] = np.triu(right[:, : len(rows)])
                right[np.diag_indices(len(rows))] *= 0.5
            for places, alone in each:
                for m, theta in zip(places, np.eye(len(places)), strict=True):
                    values = np.zeros(right.shape)
                    alone._combine_block(rows, theta, values, start, tabulate)
                    found[m] = np.vdot(values, right)
            return found

        return np.asarray(np.sum(run_blocks(work, blocks), axis=0))

    def _only(self, part: Part) -> KernelBank:
        """Return the bank of the kernels of one part."""
        at = part.positions
        bank = copy.copy(self)
        bank.names = tuple(self.names[m] for m in at)
        bank.kernels = tuple(self.kernels[m] for m in at)
        bank._parts = [replace(part, positions=np.arange(len(at)))]
        bank._affine = None if self._affine is None else self._affine.take(at)
        bank._mask = None if self._mask is None else self._mask.take(at)
        return bank

    def diag(self) -> FloatArray:
        """Return ``K[m][i, i]`` of the row samples, shape (n_rows, n_kernels).

        For a cross bank these are the kernels of the new samples with themselves.
        """
        out = self._raw_diag()
        affine = self._affine
        if affine is not None:
            out *= affine.scale
            if affine.u is not None:
                out *= (affine.u**2).T
            if affine.row is not None and affine.const is not None:
                out -= 2.0 * affine.row.T - affine.const
        if self._mask is not None:
            out *= self._mask.rows.T
        if affine is not None and affine.outer is not None:
            out += 2.0 * affine.outer.row.T + affine.outer.const
        return out

    def sizes(self) -> FloatArray:
        """Return bounds on the terms of all entries, shape (n_rows, n_kernels).

        In a square bank of positive semidefinite kernels, the value ``K[m][i, j]``, and
        each term from which a normalisation computes it, is at most the product of
        entries i and j of column m. Rounding errors are proportional to these.
        """
        affine, out = self._affine, self._raw_diag()
        if affine is None:
            return np.asarray(np.sqrt(np.maximum(out, 0.0)))
        out *= np.abs(affine.scale)
        if affine.u is not None:
            out *= (affine.u**2).T
        added = [affine.row, affine.col, affine.const]
        if affine.outer is not None:
            added += affine.outer
        for term in added:
            if term is not None:
                out += np.abs(term).reshape(len(term), -1).max(axis=1, initial=0.0)
        return np.asarray(np.sqrt(np.maximum(out, 0.0)))

    def rounding(self, n_terms: int) -> float:
        """Return the relative error of sums of ``n_terms`` products.

        It holds for any order of summation. Values that are computed on demand may
        differ slightly from one call to the next.
        """
        unit = float(np.finfo(np.float64).eps) / 2
        again = max(part.source.slip for part in self._parts)
        return (n_terms + self.shape[2] + 16) * unit + again

    def _raw_diag(self) -> FloatArray:
        """Return the diagonals without normalisation, shape (n_rows, n_kernels)."""
        out = np.empty((self._size[0], self.shape[2]))
        for part in self._parts:
            rows = slice(None) if part.rows is None else part.rows
            out[:, part.positions] = part.source.diags(part.which, rows)
        return out

    def totals(self, weight: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Return the weighted row means of every Gram, and the means of these.

        Parameters
        ----------
        weight : array of shape (n_cols,), summing to one

        Returns
        -------
        row_means : array of shape (n_kernels, n_rows)
        mean : array of shape (n_kernels,)
            Weighted over the rows too, for square banks; NaN for others.
        """
        w = np.asarray(weight, dtype=np.float64)
        row_means = np.ascontiguousarray(self.multiply(w[:, None])[:, 0, :].T)
        if self._size[0] != self._size[1]:
            return row_means, np.full(len(row_means), np.nan)
        return row_means, row_means @ w

    def with_affine(self, affine: Affine | None) -> KernelBank:
        """Return the bank of the normalised kernels."""
        if affine is not None:
            n_rows, n_cols, M = self.shape
            terms: list[tuple[FloatArray | None, tuple[int, ...]]] = [
                (affine.scale, (M,)),
                (affine.u, (M, n_rows)),
                (affine.v, (M, n_cols)),
                (affine.row, (M, n_rows)),
                (affine.col, (M, n_cols)),
                (affine.const, (M,)),
            ]
            if affine.outer is not None:
                shapes = ((M, n_rows), (M, n_cols), (M,))
                terms += zip(affine.outer, shapes, strict=True)
            for array, shape in terms:
                if array is not None and array.shape != shape:
                    raise ValueError(
                        "The normalisation was fitted for other kernels or samples: "
                        f"the bank has shape {self.shape} and needs terms of shape "
                        f"{shape}, got {array.shape}."
                    )
        bank = copy.copy(self)
        bank._affine = affine
        return bank

    def weighted(self, theta: ArrayLike) -> KernelBank:
        """Return the bank of the kernels ``theta[m] K[m]``."""
        theta = self._check_theta(theta)
        affine = Affine(np.ones(len(theta))) if self._affine is None else self._affine

        def times(array: Any) -> Any:
            return None if array is None else (theta * array.T).T

        outer = affine.outer
        return self.with_affine(
            replace(
                affine,
                scale=times(affine.scale),
                row=times(affine.row),
                col=times(affine.col),
                const=times(affine.const),
                outer=None if outer is None else Terms(*map(times, outer)),
            )
        )

    # --- blocks -----------------------------------------------------------------------

    def _require_square(self, method: str) -> None:
        if self._size[0] != self._size[1]:
            raise ValueError(
                f"{method} needs a square bank, got shape {self.shape}; use apply or "
                "combine for cross kernels."
            )

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

    def _compact(self) -> KernelBank:
        """Return the bank with its sources cut to the samples and kernels it uses."""
        bank = copy.copy(self)
        bank._parts = [part.compact() for part in self._parts]
        return bank

    def _on_support(self, A: FloatArray) -> tuple[KernelBank, FloatArray]:
        """Return the bank on the columns where A is not zero, and these rows of A."""
        used = np.flatnonzero(A.any(axis=1))
        if len(used) == len(A):
            return self._compact(), A
        return self[:, used]._compact(), A[used]

    def _row_blocks(
        self, n_rows: int, n_kernels: int, n_targets: int = 0
    ) -> list[Index]:
        # products with all kernels are held three times: by source, in place, result
        n_cols = self._size[1]
        width = min(n_cols, _TILE) if self._recomputed else n_cols
        row_bytes = 8 * (width + 3 * n_targets * n_kernels)
        row_work = 0 if self._recomputed else n_cols * max(1, n_kernels)
        return memory.row_blocks(n_rows, row_bytes, self.memory_limit, row_work)

    def _col_ranges(self, n_rows: int, start: int = 0) -> list[tuple[int, int]]:
        """Return ranges of columns for a block of rows.

        Values that are computed come in tiles, because a product of few samples with
        all others reads them all for little work; values that are stored come row by
        row, as they lie.
        """
        n_cols = self._size[1]
        step = n_cols
        if self._recomputed:
            step = max(_TILE, memory.block_bytes(self.memory_limit) // (8 * n_rows))
        return [(i, min(i + step, n_cols)) for i in range(start, n_cols, step)]

    @property
    def _symmetric(self) -> bool:
        """Whether rows and columns are the same samples in the same order."""
        return all(
            part.source.square and same(part.rows, part.cols) for part in self._parts
        )

    @property
    def _recomputed(self) -> bool:
        return any(part.source.storage == "recompute" for part in self._parts)

    def _combine_rows(
        self, rows: Index, theta: FloatArray, many: bool = False
    ) -> FloatArray:
        out = np.zeros((len(rows), self._size[1]))
        bank = self._compact()
        tabulate = many or len(rows) * self._size[1] > _TABULATE

        def work(block: Index) -> None:
            here = slice(int(block[0]), int(block[-1]) + 1)
            for start, stop in bank._col_ranges(len(block)):
                tile = out[here, start:stop]
                bank._combine_block(rows[here], theta, tile, start, tabulate)

        blocks = bank._row_blocks(len(rows), int(np.count_nonzero(theta)))
        run_blocks(work, blocks)
        return out

    def _combine_block(
        self,
        rows: Index,
        theta: FloatArray,
        out: FloatArray,
        start: int,
        tabulate: bool,
    ) -> None:
        """Add the combined kernel to ``out``, whose columns begin at ``start``."""
        affine, stop = self._affine, start + out.shape[1]
        raw = theta if affine is None else theta * affine.scale
        for part in self._parts:
            weights = raw[part.positions]
            if not weights.any():
                continue
            asked = self._request(part, rows, start, stop)
            part.source.combine(asked, weights, out, tabulate)
        if affine is None or affine.row is None:
            return
        assert affine.col is not None and affine.const is not None
        if self._mask is None:
            out -= (theta @ affine.row[:, rows])[:, None]
            out -= theta @ affine.col[:, start:stop] - theta @ affine.const
        else:
            p, q = self._mask.rows[:, rows], self._mask.cols[:, start:stop]
            p = theta[:, None] * p
            out -= (p * affine.row[:, rows]).T @ q
            out -= p.T @ (q * (affine.col[:, start:stop] - affine.const[:, None]))
        if affine.outer is not None:
            row, col, const = affine.outer
            out += (theta @ row[:, rows])[:, None]
            out += theta @ col[:, start:stop] + theta @ const

    def _request(self, part: Part, rows: Index, start: int, stop: int) -> Request:
        """Return what to ask the source of a part, with factors that are not ones."""
        affine, at = self._affine, part.positions
        u = v = None
        if affine is not None and affine.u is not None and affine.v is not None:
            if affine.curved[at].any():
                u, v = affine.u[at[:, None], rows], affine.v[at, start:stop]
        if self._mask is not None:
            p, q = self._mask.rows[at[:, None], rows], self._mask.cols[at, start:stop]
            if not (p.all() and q.all()):
                u, v = (p, q) if u is None or v is None else (p * u, q * v)
        return part.request(rows, start, stop, u, v)

    def _multiply_block(self, rows: Index, A: FloatArray, start: int) -> FloatArray:
        """Return ``K[m][rows, start:stop] A``, (len(rows), n_targets, n_kernels)."""
        out = np.empty((len(rows), A.shape[1], self.shape[2]))
        stop = start + len(A)
        At = np.ascontiguousarray(A.T)
        for part in self._parts:
            S = part.source.multiply(self._request(part, rows, start, stop), At)
            out[:, :, part.positions] = np.moveaxis(S, 0, 2)
        return self._normalised(out, rows, A, start)

    def _normalised(
        self, out: FloatArray, rows: Index, A: FloatArray, start: int
    ) -> FloatArray:
        """Return products with normalised kernels, from those with raw ones."""
        affine, stop = self._affine, start + len(A)
        if affine is None:
            return self._hidden(out, rows)
        if affine.u is not None:
            out *= affine.u[:, rows].T[:, None, :]
        out *= affine.scale
        if affine.row is None:
            return self._hidden(out, rows)
        assert affine.col is not None and affine.const is not None
        total = A.sum(axis=0)
        if self._mask is None:
            out -= affine.row[:, rows].T[:, None, :] * total[:, None]
            out -= (affine.col[:, start:stop] @ A).T - total[:, None] * affine.const
        else:
            q = self._mask.cols[:, start:stop]
            out -= affine.row[:, rows].T[:, None, :] * (q @ A).T
            out -= ((affine.col[:, start:stop] - affine.const[:, None]) * q @ A).T
            out = self._hidden(out, rows)
        if affine.outer is not None:
            row, col, const = affine.outer
            out += row[:, rows].T[:, None, :] * total[:, None]
            out += (col[:, start:stop] @ A).T + total[:, None] * const
        return out

    def _hidden(self, products: FloatArray, rows: Index) -> FloatArray:
        """Return products (len(rows), n_targets, n_kernels), zero for absent rows."""
        if self._mask is not None:
            products *= self._mask.rows[:, rows].T[:, None, :]
        return products

    def _short_quads(
        self,
        rows: Index,
        left: FloatArray,
        A: FloatArray,
        start: int,
        each: bool,
        count: int,
    ) -> list[FloatArray]:
        """Return what the sources know of ``left[:, t]' K[m][rows, start:] A[:, t]``.

        One array for each part, none at all if products do as well for one of them.
        """
        affine, stop = self._affine, start + len(A)
        plain = affine is None or (affine.u is None and affine.row is None)
        if not plain or self._mask is not None:
            return []
        found = []
        for part in self._parts:
            asked = part.request(rows, start, stop)
            q = part.source.quad(asked, left, A.T, each, count)
            if q is None:
                return []
            found.append(q)
        return found


def _added(one: list[FloatArray], other: list[FloatArray]) -> list[FloatArray]:
    return [a + b for a, b in zip(one, other, strict=True)]


def _as_gram(gram: Any, ndim: int, finite: bool) -> NDArray[Any]:
    """Return a Gram, or a stack of them, as a float array; not copied if it is one."""
    array = np.asarray(gram)
    if array.ndim != ndim or 0 in array.shape:
        needed = "(n_rows, n_cols, n_kernels), kernels last" if ndim == 3 else "2-D"
        raise ValueError(
            f"Precomputed kernels must have shape {needed} and must not be empty; got "
            "shape "
            f"{array.shape}."
        )
    if array.dtype.kind not in "biuf":
        raise ValueError(
            f"Gram matrices must be real numbers, got dtype {array.dtype}."
        )
    if array.dtype not in (np.dtype(np.float64), np.dtype(np.float32)):
        array = array.astype(np.float64)
    if not finite and not all(np.isfinite(row).all() for row in array):
        raise ValueError(NOT_FINITE)
    return array


def beside_grams(X: Any) -> Values:
    """Return the covariates of a bank of given Grams."""
    table = X.beside if isinstance(X, KernelBank) else None
    if table is None:
        raise ValueError(
            "fixed= names covariates, but Gram matrices alone have none. Give "
            "X=KernelBank.from_grams(B, covariates=table) both to fit and to predict; "
            "the table has a row for each row of B and is sliced along with B."
        )
    return table


def _as_index(samples: Any, n: int) -> Index | None:
    """Return sample numbers from 0 to n - 1, None for all samples."""
    if isinstance(samples, slice):
        if samples == slice(None):
            return None
        return np.arange(n, dtype=np.intp)[samples]
    index = np.asarray(samples).ravel()
    if index.dtype != bool and index.dtype.kind not in "iu":
        if index.size:
            raise IndexError(
                "Samples and kernels are selected by indices, a mask or a slice, got "
                f"dtype {index.dtype}."
            )
        index = index.astype(np.intp)
    return np.arange(n, dtype=np.intp)[index]  # checks the range and mask length


def _chain(first: Index | None, then: Index | None) -> Index | None:
    if first is None or then is None:
        return first if then is None else then
    return first[then]
