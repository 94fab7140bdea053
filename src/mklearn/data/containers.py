"""Tables with named rows and columns, and those in AnnData and MuData objects.

Neither package is needed to import this module: objects are recognised by their
attributes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from mklearn.data.labels import as_labels, places, require_distinct

_ENTRIES = 2**23  # number of entries that are read from a file at a time


@dataclass(frozen=True, eq=False)
class Table:
    """Values of a view, with the names of columns and rows, if any.

    ``absent`` marks rows without values; None if there are none.
    """

    values: Any
    columns: tuple[str, ...] | None = None
    ids: NDArray[Any] | None = None
    absent: NDArray[np.bool_] | None = None

    def at(self, ids: NDArray[Any]) -> Table:
        """Return the rows of some samples; unknown samples are absent."""
        if self.ids is None or self.ids.tolist() == ids.tolist():
            return self
        place = places(self.ids, ids)
        absent = place < 0
        if not absent.any():
            return Table(self.values[place], self.columns, ids)
        return Table(_with_holes(self.values, place), self.columns, ids, absent)


def _with_holes(values: Any, place: NDArray[np.intp]) -> Any:
    """Return the rows at ``place``; -1 stands for a row of NaN or None.

    In a sparse matrix it stands for an empty row, since NaN would make it dense.
    """
    absent = place < 0
    if sparse.issparse(values):
        empty = sparse.csr_array((1, values.shape[1]), dtype=values.dtype)
        below = sparse.csr_array(sparse.vstack([values, empty]))
        return below[np.where(absent, values.shape[0], place)]
    taken = values[np.where(absent, 0, place)]
    if taken.ndim == 1:
        taken[absent] = None
    else:
        taken = taken.astype(np.float64, copy=False)
        taken[absent] = np.nan
    return taken


def is_anndata(X: Any) -> bool:
    """Return whether X is an AnnData object."""
    return all(hasattr(X, name) for name in ("obs_names", "var_names", "obsm"))


def require_table(X: Any, what: str = "X") -> None:
    """Raise ValueError for an AnnData or MuData object, and for columns of times."""
    require_no_container(X, what)
    require_no_times(X, what)


def require_no_container(X: Any, what: str = "X") -> None:
    """Raise ValueError for an AnnData or MuData object."""
    if is_anndata(X) or (hasattr(X, "mod") and hasattr(X, "obsmap")):
        kind = "MuData" if hasattr(X, "mod") else "AnnData"
        raise ValueError(
            f"{what} is an object of class {type(X).__name__}; make views of its "
            f"matrices with MultiView.from_{kind.lower()}(...)."
        )


def require_no_times(X: Any, what: str = "X") -> None:
    """Raise ValueError for columns of times.

    They would become a number of nanoseconds, or whatever their unit is.
    """
    if hasattr(X, "dtypes") and hasattr(X, "columns"):
        found = zip(X.columns, map(str, X.dtypes), strict=True)
        times = [(name, kind) for name, kind in found if is_time(kind)]
    else:
        kind = str(getattr(X, "dtype", ""))
        times = [(getattr(X, "name", None), kind)] if is_time(kind) else []
    if times:
        name, kind = times[0]
        where = "values" if name is None else f"column {name!r}"
        raise ValueError(
            f"{what} has times instead of numbers ({where}, of type {kind}); convert "
            "dates to durations since a fixed day, and durations to numbers, for "
            "instance with .dt.total_seconds()."
        )


def is_time(kind: str) -> bool:
    """Return whether a type of pandas, polars or numpy is one of dates or durations."""
    first = kind.lower().lstrip("<>=|")
    words = ("timedelta", "datetime", "duration", "date", "time", "period", "m8")
    return first.startswith(words)


def anndata_tables(
    adata: Any,
    X: str | None,
    layers: Iterable[str] | Mapping[str, str] | None,
    obsm: Iterable[str] | Mapping[str, str] | None,
) -> dict[str, Table]:
    """Return matrices of an AnnData object by the names of their views."""
    if hasattr(adata, "mod"):
        raise ValueError(
            f"from_anndata takes an AnnData object, got {type(adata).__name__}, which "
            "has several; use MultiView.from_mudata(mdata), or mdata[name] for one of "
            "them."
        )
    if not is_anndata(adata):
        raise ValueError(
            f"from_anndata takes an AnnData object, got {type(adata).__name__}; read a "
            "file with anndata.read_h5ad(path)."
        )
    ids = as_labels(adata.obs_names)
    require_distinct(
        ids, "the AnnData object (its obs_names)",
        "Make them different with adata.obs_names_make_unique() if they are different "
        "cells, or else keep one of each.",
    )  # fmt: skip
    genes = tuple(map(str, adata.var_names))
    tables: dict[str, Table] = {}
    if X is not None:
        if adata.X is None:
            raise ValueError(
                "The AnnData object has no X; pass X=None, and layers or obsm."
            )
        tables[X] = Table(_in_memory(adata.X), genes, ids)
    for part, wanted, columns in (("layers", layers, genes), ("obsm", obsm, None)):
        for name, key in _named(wanted, part).items():
            if name in tables:
                raise ValueError(f"Two views are called {name!r}; rename one of them.")
            tables[name] = _entry(adata, part, key, columns, ids)
    if not tables:
        raise ValueError(
            "There are no views: X is None, and no layers or obsm are given."
        )
    return tables


def mudata_tables(
    mdata: Any, layers: Mapping[str, str], obsm: Mapping[str, str]
) -> dict[str, Table]:
    """Return one matrix of each modality of a MuData object, by their names."""
    if not hasattr(mdata, "mod"):
        raise ValueError(
            f"from_mudata takes a MuData object, got {type(mdata).__name__}; read a "
            "file with mudata.read(path)."
        )
    strange = [name for name in (*layers, *obsm) if name not in mdata.mod]
    if strange:
        raise ValueError(
            f"Unknown modality {strange[0]!r}; the object has {list(mdata.mod)}."
        )
    tables: dict[str, Table] = {}
    for name, part in mdata.mod.items():
        if name in layers and name in obsm:
            raise ValueError(f"Modality {name!r} is given both in layers and in obsm.")
        chosen = {name: layers[name]} if name in layers else {}
        other = {name: obsm[name]} if name in obsm else {}
        own = None if chosen or other else name
        tables |= anndata_tables(part, own, chosen, other)
    return tables


def _named(
    wanted: Iterable[str] | Mapping[str, str] | None, part: str
) -> dict[str, str]:
    if wanted is None:
        return {}
    if isinstance(wanted, str):
        raise ValueError(
            f"{part} must be a list of names, or a mapping from views to names, got "
            f"{wanted!r}; write [{wanted!r}]."
        )
    if isinstance(wanted, Mapping):
        return dict(wanted)
    return {name: name for name in wanted}


def _entry(
    adata: Any, part: str, key: str, columns: tuple[str, ...] | None, ids: NDArray[Any]
) -> Table:
    held = getattr(adata, part)
    if key not in held:
        raise ValueError(f"There is no {key!r} in {part}, which has {list(held)}.")
    values = held[key]
    if hasattr(values, "columns"):  # a DataFrame
        columns, values = tuple(map(str, values.columns)), values.to_numpy()
    return Table(_in_memory(values), columns, ids)


def _in_memory(matrix: Any) -> Any:
    """Return a matrix as float64 array or CSR; files are read in blocks of rows."""
    if isinstance(matrix, np.ndarray) or sparse.issparse(matrix):
        return _numbers(matrix)
    n, width = matrix.shape
    size = max(1, _ENTRIES // max(1, width))
    parts = rows_of(matrix, size)
    if hasattr(matrix, "to_memory"):  # sparse
        return sparse.csr_array(sparse.vstack(list(parts), format="csr"))
    out = np.empty((n, width))
    for i, part in enumerate(parts):
        out[i * size : (i + 1) * size] = part
    return out


def rows_of(matrix: Any, size: int) -> Iterator[Any]:
    """Yield a matrix, in memory or in a file, in blocks of rows, as float64.

    In a file, a sparse matrix consists of three arrays, of which only the parts of
    these rows are read; a matrix that is stored by columns is read as a whole.
    """
    n, width = matrix.shape
    if getattr(matrix, "format", None) == "csc" and hasattr(matrix, "to_memory"):
        matrix = matrix.to_memory()
    if sparse.issparse(matrix):
        matrix = matrix.tocsr()
    stored = hasattr(matrix, "to_memory")
    for start in range(0, n, size):
        stop = min(n, start + size)
        if stored:
            group = matrix.group
            ends = group["indptr"][start : stop + 1]
            part = slice(int(ends[0]), int(ends[-1]))
            entries = (group["data"][part], group["indices"][part], ends - ends[0])
            yield _numbers(sparse.csr_array(entries, shape=(stop - start, width)))
        else:
            yield _numbers(matrix[start:stop])


def _numbers(matrix: Any) -> Any:
    """Return a matrix in memory as float64 array or CSR."""
    if sparse.issparse(matrix):
        return matrix.tocsr().astype(np.float64, copy=False)
    return np.asarray(matrix, dtype=np.float64)
