"""Saved models: arrays and JSON in one file, which loads without executing code.

A model file is an uncompressed zip archive of ``model.json``, of arrays in numpy's npy
format, and of a SHA-256 digest of them all. Loading it creates objects of the classes
listed here, and of no others, from plain values; nothing is unpickled, imported by name
or called. The digest detects damage and accidental changes, but not forgery: whoever
writes a file can write its digest.

Therefore the contents are validated. The memory is bounded by the size of the file
before anything is created; numbers must be finite, indices in range and shapes
consistent; and the model must make a prediction for an example sample before it is
returned.
"""

from __future__ import annotations

import hashlib
import inspect
import io
import json
import math
import os
import platform
import re
import stat
import struct
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, BinaryIO

import numpy as np
import scipy
import sklearn
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

import mklearn
from mklearn import estimators, problems
from mklearn.data.covariates import CodedColumn, Covariates, Fixed, Place
from mklearn.data.writing import whole_file
from mklearn.estimators._predictor import FeaturePredictor, GramPredictor
from mklearn.estimators._state import check_state
from mklearn.estimators.baselines import OfOneKernel
from mklearn.kernels import KernelBank
from mklearn.kernels.columns import FeatureSet, JointFeatures
from mklearn.kernels.families import BY_NAME, Family
from mklearn.kernels.feature_map import (
    Columns,
    Explicit,
    FeatureMap,
    Fourier,
    Nystroem,
)
from mklearn.kernels.groups import GroupFamily
from mklearn.kernels.joint import Joint
from mklearn.kernels.landmarks import ApproximationError
from mklearn.kernels.normalise import Clip, NegativePart, Normaliser
from mklearn.kernels.specs import Precomputed, Product
from mklearn.kernels.state import BankState, Reference
from mklearn.problems.evidence import Likelihood, Spread, WeightErrors
from mklearn.problems.lowrank import Anchor, Passed, Point
from mklearn.problems.subspace import Cut, JointPoint, Subspace
from mklearn.problems.targets import Bounds, Likelihoods
from mklearn.solvers import Solution, Status
from mklearn.solvers.base import History
from mklearn.table import Column, TableModel

FORMAT = "mklearn model"
FORMAT_VERSION = 3

_CONTENT, _DIGEST = "model.json", "sha256"
_MOST_MEMBERS = 60_000  # maximum number of members, which fit into a directory of 4 MB
_MOST_SHARED = 64  # maximum average number of references to an array
_FREE = 2**24  # bytes, or columns of a sparse array, that any file may request
_PART = 128  # approximate overhead of an array, in bytes
_HEADER = re.compile(
    rb"\{'descr': '([<>|](?:b1|[iu][1248]|f(?:2|4|8|16)|U[0-9]{1,8}))', "
    rb"'fortran_order': (True|False), "
    rb"'shape': \(((?:[0-9]{1,18}, ?)*(?:[0-9]{1,18})?)\), \} *\n"
)

ESTIMATORS: dict[str, type] = {
    **{name: getattr(estimators, name) for name in estimators.__all__},
    "TableModel": TableModel,
}
_RECORDS: dict[str, type] = {
    cls.__name__: cls
    for cls in (
        *BY_NAME.values(), Precomputed, Product, Family, GroupFamily, Normaliser, Clip,
        NegativePart, FeatureSet, JointFeatures, Joint, BankState, Reference,
        problems.LpBall, problems.Ellipsoid, problems.ElasticNet, problems.BlockNorm,
        problems.TwoLevel,
        Solution, History, Subspace, JointPoint, Cut, Likelihood, Passed, Point, Anchor,
        Column, Spread, WeightErrors, Likelihoods, Bounds,
        GramPredictor, FeaturePredictor, OfOneKernel,
        Fixed, Place, Covariates, CodedColumn,
        FeatureMap, ApproximationError, Nystroem, Fourier, Explicit, Columns,
    )
}  # fmt: skip
_NOT_KEPT = (
    "_later",
    "path_",
)  # what predictions do not need
# parameters that only fit uses: objects are replaced by the default
_OF_FIT = ("callback", "cv", "scoring", "solver", "random_state")


class ModelFileError(ValueError):
    """A file that is not a valid model file."""


# --- save and load --------------------------------------------------------------------


def save(
    model: Any, path: str | os.PathLike[str], notes: Mapping[str, Any] | None = None
) -> None:
    """Save a fitted model in one file, atomically.

    The file contains what predictions need: parameters, resolved kernels, support
    vectors, normalisation and certificate, but not the other training samples.

    Parameters
    ----------
    model : estimator of mklearn, or TableModel
        Fitted.
    path : path
        Any file name; the command line uses ``model.mkl``.
    notes : mapping, optional
        Any JSON content; :func:`read_header` returns it.

    Raises
    ------
    ValueError
        If a part of the model is code or an object of another package, such as a
        callable kernel, or if the model could not be loaded again.

    Examples
    --------
    >>> import tempfile, os
    >>> from sklearn.datasets import load_iris
    >>> from mklearn import MKLClassifier
    >>> from mklearn.persistence import load, save
    >>> X, y = load_iris(return_X_y=True)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "model.mkl")
    ...     save(MKLClassifier().fit(X, y), path)
    ...     load(path).predict(X[:3]).tolist()
    [0, 0, 0]
    """
    if type(model).__name__ not in ESTIMATORS:
        raise ValueError(
            f"{type(model).__name__} is not an estimator of mklearn, so it cannot be "
            "saved in a file without code; save its parts, or use joblib for trusted "
            "files."
        )
    check_is_fitted(model)
    writer = _Writer()
    content = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "class": type(model).__name__,
        "versions": versions(),
        "notes": dict(notes or {}),
        "model": writer.encode(model, "model"),
    }
    members = {_CONTENT: json.dumps(content, allow_nan=False, indent=1).encode()}
    members.update(writer.members())
    if len(members) > _MOST_MEMBERS:
        raise ValueError(
            f"{path} would contain {len(members)} arrays, but a model file can contain "
            f"at most {_MOST_MEMBERS}; use fewer kernels."
        )
    try:
        _decoded(members, content)
    except Exception as error:
        raise ValueError(
            f"This {type(model).__name__} could not be loaded again, so it is not "
            f"saved: {_reason(error)}."
        ) from error
    with whole_file(path) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        # ZipInfo has a fixed date: the same model gives the same file
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name), data)
        archive.writestr(zipfile.ZipInfo(_DIGEST), _digest(members))


def load(path: str | os.PathLike[str]) -> Any:
    """Return a model saved by :func:`save`.

    Parameters
    ----------
    path : path

    Returns
    -------
    estimator
        The fitted model, with the same predictions as the one that was saved.

    Raises
    ------
    ModelFileError
        If the file is not a model file, or is damaged, modified or of another format
        version. Nothing in it is ever executed.
    OSError
        If it cannot be read.
    """
    members, content = _open(path)
    try:
        return _decoded(members, content)
    except Exception as error:  # a damaged file may fail anywhere
        raise ModelFileError(
            f"{path} is not a valid model file: {_reason(error)}."
        ) from error


def _decoded(members: Mapping[str, bytes], content: Mapping[str, Any]) -> Any:
    """Return the model of a file, sound in all its parts."""
    model = _Reader(members).decode(content["model"])
    if type(model).__name__ != content.get("class"):
        raise ValueError("its class differs")
    _check_sound(model)
    return model


def _reason(error: Exception) -> str:
    """Return the message of an error, in one line that a terminal can show."""
    if isinstance(error, RecursionError):
        return "too deep"
    text = " ".join(str(error).split()) or type(error).__name__
    shown = "".join(c if c.isprintable() else "?" for c in text)
    return (shown if len(shown) < 300 else shown[:300] + " ...").rstrip(".")


def _check_sound(model: Any) -> None:
    """Raise ValueError if a model's parts do not fit together."""
    with np.errstate(all="ignore"):  # values that are not finite are checked
        if isinstance(model, TableModel):
            model.check_columns()
            check_state(model.estimator_)
            model.check_answers()
        else:
            check_state(model)


def read_header(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return class, versions, notes and size of a saved model, after its checks.

    Parameters
    ----------
    path : path

    Returns
    -------
    dict
    """
    _, content = _open(path)
    header = {key: content.get(key) for key in ("class", "format_version", "versions")}
    header["notes"] = content.get("notes") or {}
    if not (isinstance(header["notes"], dict) and isinstance(header["versions"], dict)):
        raise ModelFileError(
            f"{path} is not a valid model file: its header is invalid."
        )
    header["bytes"] = os.path.getsize(path)
    return header


def versions() -> dict[str, str]:
    """Return the versions of what a model depends on."""
    return {
        "mklearn": mklearn.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "scikit-learn": sklearn.__version__,
    }


def _open(path: str | os.PathLike[str]) -> tuple[dict[str, bytes], dict[str, Any]]:
    """Return the members of a file and its content, digest and version checked."""
    with open(path, "rb") as file:  # an OSError only if it cannot be opened
        try:
            members = _read_members(file)
        except Exception as error:
            raise ModelFileError(
                f"{path} is not a model file of mklearn, or only a part of one: "
                f"{_reason(error)}."
            ) from error
    if _CONTENT not in members:
        raise ModelFileError(
            f"{path} is a zip archive but not a model file of mklearn: it has no "
            f"{_CONTENT}."
        )
    try:
        content = json.loads(
            members[_CONTENT], parse_constant=_no_number, parse_float=_finite
        )
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{path} is damaged: {_CONTENT} is not JSON.") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ModelFileError(f"{path} is not a model file of mklearn.")
    version = content.get("format_version")
    if version != FORMAT_VERSION:
        saved = content.get("versions")
        by = saved.get("mklearn") if isinstance(saved, dict) else None
        older = isinstance(version, int) and version < FORMAT_VERSION
        remedy = "Fit the model again" if older else "Update mklearn"
        raise ModelFileError(
            f"{path} has format version {version!r}, saved by mklearn {by}; this is "
            f"mklearn {mklearn.__version__}, which reads version {FORMAT_VERSION}. "
            f"{remedy}."
        )
    digest = members.pop(_DIGEST, b"")
    if digest != _digest(members):
        raise ModelFileError(
            f"{path} was modified or damaged after it was saved: its SHA-256 does not "
            "match its contents. Get the file again, or fit the model again."
        )
    return members, content


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is not a number")


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _no_number(text)


def _read_members(file: BinaryIO) -> dict[str, bytes]:
    """Return the members of an archive, in total no larger than the file."""
    size = os.fstat(file.fileno()).st_size
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        raise ValueError("it is a device, not a file")
    if _listing_bytes(file, size) > 70 * _MOST_MEMBERS:
        raise ValueError("its list of contents is too long")
    with zipfile.ZipFile(file) as archive:
        infos = archive.infolist()
        names = {info.filename for info in infos}
        ours = all(_is_ours(info) for info in infos)
        if not ours or len(names) != len(infos):
            raise ValueError("it is a zip archive but not a model file")
        # overlapping members could take the square of that, before any digest
        if sum(info.file_size for info in infos) > size:
            raise ValueError("its members are larger than the file")
        return {info.filename: archive.read(info) for info in infos}


def _listing_bytes(file: BinaryIO, size: int) -> int:
    """Return the length of an archive's list of contents, as its end says it."""
    file.seek(max(0, size - 22))
    end = file.read(22)
    if len(end) < 22 or end[:4] != b"PK\x05\x06" or end[20:] != b"\0\0":
        raise ValueError("its end is missing")
    count, length = struct.unpack("<HI", end[10:16])
    if count == 0xFFFF or length == 0xFFFFFFFF:
        raise ValueError("its list of contents is too long")
    return int(length)


def _is_ours(info: zipfile.ZipInfo) -> bool:
    """Return whether a member could have been written by :func:`save`."""
    known = info.filename in (_CONTENT, _DIGEST) or re.fullmatch(
        r"arrays/[0-9]{1,9}\.npy", info.filename
    )
    stored = info.compress_type == zipfile.ZIP_STORED
    return bool(known) and stored and info.file_size == info.compress_size


def _digest(members: Mapping[str, bytes]) -> bytes:
    """Return the SHA-256 of names, lengths and bytes, in the order of names."""
    total = hashlib.sha256()
    for name in sorted(members):
        for part in (name.encode(), members[name]):
            total.update(len(part).to_bytes(8, "little"))
            total.update(part)
    return total.hexdigest().encode()


# --- objects to values ----------------------------------------------------------------


class _Writer:
    """Turns a model into JSON values and numbered arrays."""

    def __init__(self) -> None:
        self._arrays: list[NDArray[Any]] = []
        self._known: dict[int, list[int]] = {}  # index and use count of each array
        self._held: list[Any] = []  # so that no id is used twice

    def members(self) -> Iterator[tuple[str, bytes]]:
        """Yield the arrays as files."""
        for number, array in enumerate(self._arrays):
            stream = io.BytesIO()
            np.lib.format.write_array(stream, array, allow_pickle=False)
            yield _array_name(number), stream.getvalue()

    def encode(self, value: Any, at: str) -> Any:
        """Return JSON for ``value``, which stands at the place ``at`` of the model."""
        if value is None or isinstance(value, (bool, str)):
            return str(value) if isinstance(value, np.str_) else value
        if isinstance(value, (np.bool_, np.integer, np.floating)):
            value = value.item()
        if isinstance(value, int):
            return value
        if isinstance(value, float):
            return value if math.isfinite(value) else {"$": "float", "is": repr(value)}
        if isinstance(value, np.ndarray):
            return self._array(value, at)
        if sparse.issparse(value):
            parts = {k: getattr(value, k) for k in ("data", "indices", "indptr")}
            return {"$": "csr", "shape": list(value.shape), **self._named(parts, at)}
        if isinstance(value, Status):
            return {"$": "status", "is": value.name}
        if isinstance(value, slice):
            ends = [value.start, value.stop, value.step]
            return {"$": "slice", "is": [self.encode(end, at) for end in ends]}
        if isinstance(value, KernelBank):
            return {"$": "bank", "is": self.encode(value.state(), at)}
        name = type(value).__name__
        if _RECORDS.get(name) is type(value):
            state = {k: getattr(value, k) for k in _fields(value)}
            return {"$": "record", "class": name, "is": self._named(state, at)}
        if ESTIMATORS.get(name) is type(value):
            return {"$": "estimator", "class": name, "is": self._estimator(value, at)}
        if isinstance(value, Mapping):
            pairs = [
                [self.encode(k, at), self.encode(v, f"{at}[{k!r}]")]
                for k, v in value.items()
            ]
            return {"$": "dict", "is": pairs}
        if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
            return self._sequence(value, at)
        raise ValueError(
            f"{at} is {value!r}, which cannot be saved in a file without code. Use "
            "kernels of mklearn, or Gram matrices with kernels='precomputed'."
        )

    def _named(self, state: Mapping[str, Any], at: str) -> dict[str, Any]:
        return {k: self.encode(v, f"{at}.{k}") for k, v in state.items()}

    def _array(self, array: NDArray[Any], at: str) -> Any:
        if array.dtype.kind in "OT":
            values = [self.encode(v, at) for v in array.ravel().tolist()]
            return {"$": "objects", "shape": list(array.shape), "is": values}
        if array.dtype.kind not in "biufU":
            raise ValueError(f"{at} is an array of dtype {array.dtype}, not of values.")
        known = self._known.get(id(array))
        if known is None or known[1] == _MOST_SHARED:
            known = self._known[id(array)] = [len(self._arrays), 0]
            self._held.append(array)
            self._arrays.append(np.asarray(array))
        known[1] += 1
        return {"$": "array", "is": known[0]}

    def _sequence(self, values: Any, at: str) -> Any:
        kind = type(values).__name__
        # a stack is read in C order, and products of arrays in another order differ in
        # their last digits
        arrays = len(values) > 1 and all(
            isinstance(v, np.ndarray) and v.flags.c_contiguous for v in values
        )
        alike = arrays and len({(v.shape, v.dtype.str) for v in values}) == 1
        if alike and values[0].size:
            return {"$": "stack", "kind": kind, "is": self._array(np.stack(values), at)}
        parts = [self.encode(v, f"{at}[{i}]") for i, v in enumerate(values)]
        return parts if kind == "list" else {"$": "tuple", "is": parts}

    def _estimator(self, model: Any, at: str) -> dict[str, Any]:
        """Return parameters and fitted attributes."""
        defaults = inspect.signature(type(model)).parameters
        state = {}
        for name, value in vars(model).items():
            if name in _NOT_KEPT:
                continue
            try:
                state[name] = self.encode(value, f"{at}.{name}")
            except ValueError:
                if name not in _OF_FIT:
                    raise
                default = defaults[name].default if name in defaults else None
                state[name] = self.encode(default, f"{at}.{name}")
        return state


def _fields(value: Any) -> list[str]:
    if is_dataclass(value):
        return [f.name for f in fields(value) if f.init]
    return list(value._fields)


def _array_name(number: int) -> str:
    return f"arrays/{number}.npy"


# --- values to objects ----------------------------------------------------------------


class _Reader:
    """Makes a model from JSON values and arrays; knows the listed classes only.

    The memory of its results is at most a multiple of the bytes read.
    """

    def __init__(self, members: Mapping[str, bytes]) -> None:
        self._members = members
        self._arrays: dict[int, NDArray[Any]] = {}
        self._size = sum(map(len, members.values()))
        self._left = _FREE + _MOST_SHARED * self._size

    def decode(self, value: Any) -> Any:
        """Return the object that a JSON value stands for."""
        if isinstance(value, list):
            return [self.decode(v) for v in value]
        if isinstance(value, str):
            value.encode()  # half a character cannot be shown
        if not isinstance(value, dict):
            return value
        kind = value.get("$")
        make = getattr(self, f"_make_{kind}", None) if isinstance(kind, str) else None
        if make is None:
            raise ValueError(f"it holds a value of the unknown kind {kind!r}")
        return make(value)

    def _named(self, state: Mapping[str, Any]) -> dict[str, Any]:
        return {k: self.decode(v) for k, v in state.items()}

    def _make_float(self, value: dict[str, Any]) -> float:
        return float(value["is"])

    def _make_array(self, value: dict[str, Any]) -> NDArray[Any]:
        number = value["is"]
        if type(number) is not int:
            raise ValueError(f"{number!r} is not the number of an array")
        if number not in self._arrays:
            array = _read_array(self._members[_array_name(number)])
            self._check_axes(array.shape)
            self._arrays[number] = array
        self._spend(self._arrays[number].nbytes)
        return self._arrays[number]

    def _make_objects(self, value: dict[str, Any]) -> NDArray[Any]:
        self._check_axes(value["shape"])
        array = np.empty(len(value["is"]), dtype=object)
        for i, v in enumerate(value["is"]):
            array[i] = self.decode(v)
        return array.reshape(value["shape"])

    def _make_stack(self, value: dict[str, Any]) -> Any:
        array = self.decode(value["is"])
        if not array.size:
            raise ValueError("a stack of arrays is empty")
        self._spend(_PART * len(array))
        parts = list(array)
        return tuple(parts) if value["kind"] == "tuple" else parts

    def _make_csr(self, value: dict[str, Any]) -> Any:
        parts = [self.decode(value[k]) for k in ("data", "indices", "indptr")]
        shape = tuple(value["shape"])
        if not all(type(n) is int and n <= max(_FREE, self._size) for n in shape):
            raise ValueError(f"a sparse array has the shape {shape}")
        array = sparse.csr_array(tuple(parts), shape=shape)
        array.check_format(full_check=True)  # an index out of range would reach C code
        return array

    def _check_axes(self, shape: Any) -> None:
        """Raise ValueError for axes that are not backed by elements of the file."""
        most = max(2**16, self._size)
        if not all(type(n) is int and 0 <= n <= most for n in shape):
            raise ValueError(f"an array has the shape {tuple(shape)}")

    def _spend(self, count: int) -> None:
        """Raise ValueError if a file makes more of its bytes than it may."""
        self._left -= count
        if self._left < 0:
            raise ValueError("it repeats its arrays too often")

    def _make_status(self, value: dict[str, Any]) -> Status:
        return Status[value["is"]]

    def _make_slice(self, value: dict[str, Any]) -> slice:
        return slice(*self.decode(value["is"]))

    def _make_tuple(self, value: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(self.decode(value["is"]))

    def _make_dict(self, value: dict[str, Any]) -> dict[Any, Any]:
        return {self.decode(k): self.decode(v) for k, v in value["is"]}

    def _make_bank(self, value: dict[str, Any]) -> KernelBank:
        return KernelBank.from_state(self.decode(value["is"]))

    def _make_record(self, value: dict[str, Any]) -> Any:
        return self._class(_RECORDS, value["class"])(**self._named(value["is"]))

    def _make_estimator(self, value: dict[str, Any]) -> Any:
        cls = self._class(ESTIMATORS, value["class"])
        model = object.__new__(cls)
        for name, one in self._named(value["is"]).items():
            if callable(getattr(cls, name, None)):
                raise ValueError(f"it gives {value['class']}.{name}, a method, a value")
            vars(model)[name] = one
        return model

    def _class(self, known: Mapping[str, type], name: Any) -> type:
        if name not in known:
            raise ValueError(
                f"it holds an object of class {name!r}, which is not allowed in a "
                "model file"
            )
        return known[name]


def _read_array(data: bytes) -> NDArray[Any]:
    """Return an array from npy bytes that are as long as their header says.

    The header must have the form written by :func:`save`, and is not evaluated.
    """
    if data[:8] not in (b"\x93NUMPY\x01\x00", b"\x93NUMPY\x02\x00"):
        raise ValueError("an array is not an npy file of version 1 or 2")
    length = 2 if data[6] == 1 else 4
    start = 8 + length + int.from_bytes(data[8 : 8 + length], "little")
    header = _HEADER.fullmatch(data, 8 + length, start)
    if header is None:
        raise ValueError("an array holds objects, or has an unexpected header")
    descr, fortran, sizes = header.groups()
    dtype = np.dtype(descr.decode())
    shape = tuple(int(n) for n in sizes.split(b",") if n.strip())
    if dtype.itemsize == 0 or math.prod(shape) * dtype.itemsize != len(data) - start:
        raise ValueError("the size of an array differs from its header")
    if dtype.kind == "U":
        codes = np.frombuffer(data, dtype.str[0] + "u4", offset=start)
        if ((codes > 0x10FFFF) | ((codes >= 0xD800) & (codes < 0xE000))).any():
            raise ValueError("an array of texts has invalid characters")
    if dtype.kind == "b" and (np.frombuffer(data, "u1", offset=start) > 1).any():
        raise ValueError("a boolean array has values other than 0 and 1")
    array = np.frombuffer(data, dtype, math.prod(shape), start)
    if fortran == b"True":
        return array.reshape(shape[::-1]).T.copy(order="K")
    return array.reshape(shape).copy()


__all__ = ["ModelFileError", "load", "read_header", "save", "versions"]
