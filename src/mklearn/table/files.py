"""Files of tables and of Gram matrices."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mklearn.data.files import exact_numbers
from mklearn.data.labels import (
    as_labels,
    require_common,
    require_distinct,
    spelt_otherwise,
)
from mklearn.data.spelling import plural
from mklearn.kernels import KernelBank
from mklearn.table.columns import require_column
from mklearn.table.errors import TableError, need_pandas

SEPARATORS = {".csv": ",", ".tsv": "\t", ".tab": "\t", ".txt": "\t"}
PARQUET = (".parquet", ".pq")
GRAMS = (".npz", ".npy")


def is_gram_file(path: str | os.PathLike[str]) -> bool:
    """Return whether a file contains Gram matrices, judging by its name."""
    return Path(path).suffix.lower() in GRAMS


def read_table(path: str | os.PathLike[str]) -> Any:
    """Return a CSV, TSV or parquet file as a DataFrame, or raise TableError."""
    path = Path(path)
    pd = need_pandas()
    kinds = [s.lower() for s in path.suffixes]
    kind = (
        kinds[-2] if kinds[-1:] == [".gz"] and len(kinds) > 1 else "".join(kinds[-1:])
    )
    if kind not in SEPARATORS and kind not in PARQUET:
        raise TableError(
            f"the format of {path} is not supported: use .csv, .tsv or .parquet for "
            "tables, .npz or .npy for Gram matrices."
        )
    if not path.is_file():
        raise TableError(f"there is no file {path}.")
    try:
        if kind in PARQUET:
            frame = _unindexed(pd.read_parquet(path))
        else:
            options = {
                "sep": SEPARATORS[kind],
                "encoding": "utf-8-sig",
                **exact_numbers(pd),
            }
            header = {"header": None, "nrows": 1, "dtype": str}
            header["keep_default_na"] = False
            first = pd.read_csv(path, **header, **options)
            if kind == ".csv" and first.shape[1] == 1 and ";" in first.iloc[0, 0]:
                # only names tell: values may contain commas
                options["sep"] = ";"
                first = pd.read_csv(path, **header, **options)
            frame = pd.read_csv(path, **options)
            # pandas gives names that stand twice a number, and tells nobody
            _check_names(first.iloc[0], path)
    except ImportError as error:
        raise TableError(
            f"{path} is a parquet file; reading it needs an additional package: pip "
            "install pyarrow."
        ) from error
    except pd.errors.EmptyDataError as error:
        raise TableError(f"{path} is empty.") from error
    except UnicodeDecodeError as error:
        raise TableError(f"{path} is not UTF-8 text; save it as UTF-8.") from error
    except TableError:
        raise
    except Exception as error:
        # a damaged file may fail in any of zlib, pyarrow and pandas
        reason = " ".join(str(error).split()) or type(error).__name__
        raise TableError(f"{path} cannot be read: {reason.rstrip('.')}.") from error
    frame.columns = [str(c).strip() for c in frame.columns]
    _check_names(frame.columns, path)
    if not isinstance(frame.index, pd.RangeIndex):
        # more values than names: pandas takes the first columns as names of rows
        raise TableError(f"{path} has rows with more values than there are columns.")
    if len(frame) == 0:
        raise TableError(f"{path} has a header but no rows.")
    return frame


def _as_text(label: Any) -> str:
    """Return a sample's name as text; 5 and 5.0 are the same name."""
    whole = isinstance(label, float) and label.is_integer()
    return str(int(label)) if whole else str(label)


def read_tables(
    path: str | os.PathLike[str],
    name: str | None = None,
    tables: Mapping[str, str | os.PathLike[str]] | None = None,
) -> tuple[Any, dict[str, list[str]], list[str] | None]:
    """Return one table of several, the columns of each, and the names of the rows.

    Parameters
    ----------
    path : path
        The first table.
    name : str, optional
        The column that names the samples, in each of the tables.
    tables : mapping of str to path, optional
        Additional tables. Every sample in any of the tables gets a row, which is empty
        in the columns of tables without this sample.
    """
    frame = read_table(path)
    if name is None:
        if tables:
            raise TableError(
                "tables are joined on the names of their samples; give the column of "
                "names as --id COLUMN."
            )
        return frame, {}, None
    frames = {Path(path).stem: frame}
    for view, file in (tables or {}).items():
        if view in frames:
            raise TableError(f"two tables are called {view!r}; rename one of them.")
        frames[view] = read_table(file)
    pd = need_pandas()
    views: dict[str, list[str]] = {}
    parts, taken = [], set()
    for view, part in frames.items():
        require_column(part, name)
        if part[name].isna().any():
            raise TableError(f"table {view!r} has rows without a value of {name!r}.")
        ids = [_as_text(value) for value in part[name].tolist()]
        try:
            require_distinct(
                as_labels(ids), f"table {view!r}", "Keep one row for each of them."
            )
        except ValueError as error:
            raise TableError(str(error)) from error
        part = part.drop(columns=[name]).set_axis(pd.Index(ids, dtype=object))
        part = part.rename(columns={c: f"{view}.{c}" for c in part if c in taken})
        taken |= set(part.columns)
        views[view] = list(part.columns)
        parts.append(part)
    try:
        require_common(
            {
                view: as_labels(part.index)
                for view, part in zip(views, parts, strict=True)
            },
            f"Check that the values of {name!r} are the same in all files.",
        )
    except ValueError as error:
        raise TableError(str(error)) from error
    everyone = list(dict.fromkeys(i for part in parts for i in part.index))
    whole = pd.concat([part.reindex(everyone) for part in parts], axis=1)
    return whole.reset_index(drop=True), views if tables else {}, everyone


def id_words(
    frame: Any, views: Mapping[str, Sequence[str]], ids: Sequence[str] | None
) -> list[str]:
    """Return a warning about names of samples that differ only in their spelling.

    Parameters
    ----------
    frame, views, ids
        The result of :func:`read_tables`.
    """
    names = as_labels(ids or [])
    held = {
        view: names[frame[list(columns)].notna().to_numpy().any(axis=1)]
        for view, columns in views.items()
    }
    found = spelt_otherwise(held).strip()
    return [found] if found else []


def _check_names(columns: Any, path: Path) -> None:
    """Raise TableError for a name that two columns have."""
    seen = set()
    for name in (str(column).strip() for column in columns):
        if name in seen:
            raise TableError(f"{path} has more than one column called {name!r}.")
        if name:  # those without a name get one
            seen.add(name)


def _unindexed(frame: Any) -> Any:
    """Return the table with row names as a column where these have a name."""
    named = any(name is not None for name in frame.index.names)
    return frame.reset_index(drop=not named)


def read_grams(
    path: str | os.PathLike[str], target: str | None = None
) -> tuple[KernelBank, NDArray[Any] | None]:
    """Return the Gram matrices of a file, and the labels called ``target`` if any.

    An npy file contains one array of shape (n_rows, n_cols, n_kernels), kernels last.
    An npz file contains such an array, optionally with the ``names`` of its kernels, or
    one matrix for each kernel, under its name. Labels are a 1-D array in the npz file
    or in a separate file, npy or text with one label per line.
    """
    path = Path(path)
    if not path.is_file():
        raise TableError(f"there is no file {path}.")
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            arrays = {"K": loaded}
        else:
            with loaded:
                arrays = {**loaded}
    except Exception as error:
        # a damaged archive may fail in any of zipfile, zlib and numpy
        raise TableError(f"{path} cannot be read as numpy arrays: {error}.") from error
    labels = None
    if target is not None:
        labels = arrays.pop(target) if target in arrays else _read_labels(target, path)
    names = arrays.pop("names", None)
    stacks = {k: a for k, a in arrays.items() if a.ndim == 3}
    matrices = {k: a for k, a in arrays.items() if a.ndim == 2}
    try:
        if len(stacks) == 1:
            (stack,) = stacks.values()
            given = None if names is None else [str(n) for n in np.atleast_1d(names)]
            bank = KernelBank.from_grams(stack, given)
        elif matrices and not stacks:
            bank = KernelBank.from_grams(list(matrices.values()), list(matrices))
        else:
            shapes = {k: a.shape for k, a in arrays.items()}
            raise TableError(
                f"{path} must contain one array (n, n, n_kernels), kernels last, or "
                f"one matrix for each kernel; it contains {shapes}."
            )
    except TableError:
        raise
    except (TypeError, ValueError) as error:
        raise TableError(f"{path}: {error}") from error
    if labels is not None and labels.shape != (len(bank),):
        raise TableError(
            f"the labels {target!r} have shape {labels.shape}, but the Gram matrices "
            f"have {plural(len(bank), 'sample')}; give one label for each sample."
        )
    return bank, labels


def _read_labels(target: str, path: Path) -> NDArray[Any]:
    file = Path(target)
    if not file.is_file():
        raise TableError(
            f"{target!r} is neither an array in {path} nor a file of labels."
        )
    try:
        if file.suffix.lower() == ".npy":
            return np.atleast_1d(np.load(file, allow_pickle=False))
        lines = [line.strip() for line in file.read_text("utf-8").splitlines()]
    except (OSError, ValueError) as error:
        raise TableError(f"the labels {file} cannot be read: {error}.") from error
    words = np.array([line for line in lines if line])
    try:
        return words.astype(np.float64)
    except ValueError:
        return words
