"""Data sets by name, from the first source that has them, with checks."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator, Mapping
from http.client import HTTPException
from itertools import pairwise
from typing import Any

import numpy as np
import sklearn
import sklearn.datasets
from numpy.typing import NDArray
from sklearn.utils import Bunch

from mklearn.data.containers import Table
from mklearn.data.spelling import did_you_mean
from mklearn.data.views import MultiView
from mklearn.datasets.catalogue import CATALOGUE, VARIABLE, DataSet, OpenML, find_file


def load(
    name: str,
    *,
    folder: Any = None,
    download: bool = True,
    return_X_y: bool = False,
) -> Any:
    """Return a data set by its name.

    These sources are tried in turn: the file in ``folder``, whose SHA-256 checksum must
    match; the copy in scikit-learn; OpenML. For every source, sizes and class counts
    must be as documented, and the labels are the same. Values are raw: neither scaled
    nor shuffled.

    Parameters
    ----------
    name : str
        One of :func:`available`.
    folder : path, optional
        Folder of the npz files, by default the one that the environment variable
        MKLEARN_DATA names.
    download : bool
        Whether to download data sets that are not available locally from OpenML.
    return_X_y : bool
        Return ``(data, target)`` alone.

    Returns
    -------
    Bunch
        ``data``: array of shape (n_samples, n_features), or a :class:`MultiView` where
        there are several views or strings; ``target``: array of labels, None without
        classes; ``views``: names of the views, empty for an array; ``split``: array of
        "train" and "test" where there is an official split, else None;
        ``feature_names``: list, or list per view, None where unknown;
        ``target_names``: what the sorted labels mean, None where unknown;
        ``sample_names``: array or None; ``DESCR``; ``source``: where it came from.
        Some sets have more, as their remarks say.

    Raises
    ------
    ValueError
        If there is no such data set, or the data found differ from it.
    FileNotFoundError
        If no source has the data; the message says which file is needed, and where.

    Examples
    --------
    >>> from mklearn.datasets import load
    >>> wine = load("wine")
    >>> wine.data.shape, wine.target[:3].tolist()
    ((178, 13), [1, 1, 1])
    """
    if name not in CATALOGUE:
        raise ValueError(
            f"There is no data set {name!r}. {did_you_mean(name, CATALOGUE)}The names "
            f"are {', '.join(CATALOGUE)}."
        )
    entry = CATALOGUE[name]
    bunch = _read(entry.base or name, folder, download)
    if entry.base:
        bunch = _PARTS[name](bunch)
        bunch.DESCR = entry.describe()
        _check(name, entry, bunch)
    return (bunch.data, bunch.target) if return_X_y else bunch


def _read(name: str, folder: Any, download: bool) -> Bunch:
    """Return a data set from the first source that has it."""
    entry = CATALOGUE[name]
    path = find_file(entry, folder)
    if path is not None and path.is_file():
        arrays = _verified(path.read_bytes(), entry, path)
        bunch = _from_arrays(entry, arrays)
        bunch.source = f"file {entry.file}"
    elif entry.loader:
        bunch = _from_sklearn(entry)
        bunch.source = f"scikit-learn {sklearn.__version__}, {entry.loader}"
    elif entry.openml and download:
        bunch = _from_openml(name, entry, entry.openml, folder)
        bunch.source = f"OpenML {entry.openml.data_id}"
    else:
        asked = "OpenML was not asked because of download=False" if entry.openml else ""
        raise FileNotFoundError(_missing(name, entry, folder, asked))
    bunch.target_names = list(entry.classes) or None
    bunch.views = entry.views
    bunch.DESCR = entry.describe()
    _check(name, entry, bunch)
    return bunch


def _verified(content: bytes, entry: DataSet, path: Any) -> dict[str, NDArray[Any]]:
    """Return the arrays of a file whose sum is right."""
    found = hashlib.sha256(content).hexdigest()
    if found != entry.sha256:
        raise ValueError(
            f"{path} is not the expected file: it has SHA-256 {found}, expected "
            f"{entry.sha256}; replace it with an undamaged copy, or move it away."
        )
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        return {key: arrays[key] for key in arrays.files}


def _from_arrays(entry: DataSet, arrays: Mapping[str, NDArray[Any]]) -> Bunch:
    """Return the data of a file."""
    names: Any = None
    data: Any
    if "seq" in arrays:
        data = MultiView({view: _strings(arrays) for view in entry.views})
    elif entry.views:
        parts = {view: arrays[f"X_{view}"] for view in entry.views}
        if all(f"names_{view}" in arrays for view in entry.views):
            names = {view: arrays[f"names_{view}"].tolist() for view in entry.views}
            parts = {v: Table(part, tuple(names[v])) for v, part in parts.items()}
        data = MultiView(parts)
    else:
        data = arrays["X"] if "X" in arrays else arrays["K"]
        if "feature_names" in arrays:
            names = arrays["feature_names"].tolist()
    return Bunch(
        data=data,
        target=_labels(arrays["y"]) if "y" in arrays else None,
        split=arrays.get("split"),
        feature_names=names,
        sample_names=arrays.get(entry.sample_names),
        **{key: arrays[array] for key, array in entry.extras.items()},
    )


def _strings(arrays: Mapping[str, NDArray[Any]]) -> list[str]:
    """Return the sequences that a file holds as letters in a row and their bounds."""
    letters, bounds = arrays["seq"].tobytes().decode("ascii"), arrays["offsets"]
    return [letters[a:b] for a, b in pairwise(bounds)]


def _labels(y: NDArray[Any]) -> NDArray[Any]:
    """Return labels with room to calculate: small integers would overflow."""
    return y.astype(np.int64) if y.dtype.kind in "iu" else y


def _from_sklearn(entry: DataSet) -> Bunch:
    """Return scikit-learn's copy with our labels."""
    found = getattr(sklearn.datasets, entry.loader)()
    return Bunch(
        data=found.data,
        target=np.array(sorted(entry.counts))[found.target],
        split=None,
        feature_names=list(found.feature_names),
        sample_names=None,
    )


def _from_openml(name: str, entry: DataSet, openml: OpenML, folder: Any) -> Bunch:
    """Return OpenML's copy with our labels, without rows that miss values."""
    try:
        # this parser needs no pandas
        found = sklearn.datasets.fetch_openml(
            data_id=openml.data_id, as_frame=False, parser="liac-arff"
        )
    except (OSError, HTTPException, ValueError) as error:
        why = f"OpenML did not return data set {openml.data_id} ({error})"
        raise FileNotFoundError(_missing(name, entry, folder, why)) from error
    X = np.asarray(found.data, dtype=np.float64)
    unknown = sorted({str(label) for label in found.target} - set(openml.labels))
    if unknown:
        raise ValueError(
            f"OpenML {openml.data_id} is not {name!r}: it has labels {unknown[:5]}, "
            f"expected {list(openml.labels)}; {_advice(entry)}"
        )
    y = np.array([openml.labels[str(label)] for label in found.target])
    whole = np.isfinite(X).all(axis=1)
    X, y = X[whole], y[whole]
    if X.size == 0 or not np.isclose(X.mean(), openml.mean, rtol=1e-4, atol=0):
        mean = X.mean() if X.size else np.nan
        raise ValueError(
            f"OpenML {openml.data_id} is not {name!r}: the mean of its values is "
            f"{mean:.6g}, expected {openml.mean:.6g}; {_advice(entry)}"
        )
    split = None
    if entry.test:  # the training part comes first
        n_train = entry.n_samples - sum(entry.test.values())
        split = np.where(np.arange(len(y)) < n_train, "train", "test")
    return Bunch(
        data=X.astype(openml.dtype),
        target=y,
        split=split,
        feature_names=list(found.feature_names),
        sample_names=None,
    )


def _check(name: str, entry: DataSet, bunch: Bunch) -> None:
    """Raise an error if sizes or class counts are not the documented ones."""
    for what, found, needed in _facts(entry, bunch):
        if found != needed:
            raise ValueError(
                f"The data from {bunch.source} are not {name!r}: {what} {found}, "
                f"expected {needed}; {_advice(entry)}"
            )


def _facts(entry: DataSet, bunch: Bunch) -> Iterator[tuple[str, Any, Any]]:
    """Yield what is documented of a data set: its name, as found, as needed."""
    X, y = bunch.data, bunch.target
    yield "samples and features", tuple(X.shape), (entry.n_samples, entry.n_features)
    if entry.views:
        sizes = {view: 1 if X.is_text(view) else X[view].shape[1] for view in X}
        yield "views", sizes, entry.features
    if entry.counts:
        yield "class counts", _counts(y), entry.counts
    if entry.test:
        yield "class counts of the test part", _counts(y, bunch.split), entry.test


def _counts(y: NDArray[Any], split: NDArray[Any] | None = None) -> dict[Any, int]:
    """Return the samples of each class, of the test part where a split is given."""
    part = y if split is None else y[split == "test"]
    labels, counts = np.unique(part, return_counts=True)
    return dict(zip(labels.tolist(), counts.tolist(), strict=True))


def _missing(name: str, entry: DataSet, folder: Any, why: str) -> str:
    """Return the sentence for a data set that no source has."""
    path = find_file(entry, folder)
    place = f"{path} does not exist" if path else f"{VARIABLE} is not set"
    reason = f"{place}, and {why}" if why else place
    return f"Data set {name!r} is not available: {reason}; {_advice(entry)}"


def _advice(entry: DataSet) -> str:
    """Return advice on how to obtain a data set."""
    entry = CATALOGUE[entry.base] if entry.base else entry
    if not entry.file:
        return f"install a scikit-learn that has {entry.loader}."
    return (
        f"put {entry.file} (SHA-256 {entry.sha256}) into a folder and name the folder "
        f"in the environment variable {VARIABLE}, or pass folder=..."
    )


def _wave_alone(bunch: Bunch) -> Bunch:
    """Return waveform40 without its noise."""
    bunch.data = bunch.data[:, :21]
    if bunch.feature_names is not None:
        bunch.feature_names = bunch.feature_names[:21]
    return bunch


def _with_proteins(bunch: Bunch) -> Bunch:
    """Return the rows of tcga_breast for which proteins are known."""
    rows = np.flatnonzero(bunch.split == "train")
    known = bunch.data[rows]
    proteins, names = bunch.pop("protein"), bunch.pop("protein_names")
    bunch.data = MultiView({**{v: known[v] for v in known}, "protein": proteins})
    bunch.views = bunch.data.names
    bunch.feature_names = {**bunch.feature_names, "protein": names.tolist()}
    bunch.target, bunch.split = bunch.target[rows], None
    return bunch


_PARTS = {"waveform21": _wave_alone, "tcga_breast_train": _with_proteins}
