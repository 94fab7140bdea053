"""Attacks on model files and on the command line, and their results.

``raw``       randomly changed bytes of model files: must be rejected, or give the same
              model
``resigned``  changed values and arrays with a valid digest: must be rejected, or give a
              model whose predictions are never NaN
``forged``    files made to exhaust memory, to run code or to access other files
``cli``       invalid tables, encodings and options: must give one line, and exit code 2
``kills``     runs killed at a random moment: must leave complete old or new results,
              and not impede the next run

Anything else is a finding: another error, NaN, a traceback, excessive memory, a file
left behind, executed code. Findings are listed, and make the exit code 1. All kinds of
estimators that can be saved are attacked. ``--seed`` determines everything except the
moments of the kills.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import multiprocessing
import os
import pickle
import random
import resource
import shutil
import signal
import struct
import sys
import tempfile
import time
import warnings
import zipfile
import zlib
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import sparse
from sklearn.datasets import load_iris
from typer.testing import CliRunner

from mklearn import (
    AlignmentMKLClassifier,
    BestKernelClassifier,
    BilinearMKLClassifier,
    CrammerSingerClassifier,
    ElasticNet,
    EvidenceMKLRegressor,
    MKLClassifier,
    MKLClassifierCV,
    MKLDiscriminant,
    MKLOneClass,
    MKLRegressor,
    MKLRegressorCV,
    MultiView,
    SingleKernelCV,
    SubspaceClassifier,
    SubspaceKernel,
    UniformMKLClassifier,
    kernels,
)
from mklearn.cli.application import FILES
from mklearn.cli.commands import main as run_command
from mklearn.cli.commands import make_app
from mklearn.persistence import ModelFileError, load, read_header, save
from mklearn.report import whole_file
from mklearn.table import TableModel

sys.path.insert(0, str(Path(__file__).parent))
from pages import page

SLOW, MEMORY = 60.0, 2**29  # limits in seconds and bytes; above, it is a finding
FORBIDDEN = (
    "pickle.find_class", "os.system", "os.exec", "os.posix_spawn", "os.fork",
    "subprocess.Popen", "socket.connect", "ctypes.dlopen", "shutil.rmtree", "os.remove",
)  # fmt: skip


class Watch:
    """Records the actions of the interpreter while a file is loaded."""

    def __init__(self):
        self.on, self.seen = False, []
        sys.addaudithook(self._hear)

    def _hear(self, event, args):
        if not self.on:
            return
        writes = (
            event == "open" and isinstance(args[1], str) and set(args[1]) & {*"wax+"}
        )
        if event in FORBIDDEN or writes:
            self.seen.append(f"{event} {args[:1]}")

    def __enter__(self):
        self.on, self.seen = True, []
        return self

    def __exit__(self, *_):
        self.on = False


WATCH = Watch()


class Tally:
    """Counts the outcomes of attacks, and collects the findings."""

    def __init__(self, name):
        self.name, self.ends, self.findings = name, Counter(), []
        self.start, self.clock = time.process_time(), time.time()

    def found(self, what):
        self.findings.append(what)
        print(f"FINDING {self.name}: {what}", flush=True)

    def row(self):
        ends = ", ".join(f"{n} {end}" for end, n in sorted(self.ends.items()))
        return {
            "attack": self.name, "tried": sum(self.ends.values()), "ended": ends,
            "findings": len(self.findings),
            "CPU seconds": round(time.process_time() - self.start),
        }  # fmt: skip


# --- models ---------------------------------------------------------------------------


def models():
    """Return fitted models of every kind, each with samples to predict."""
    X, y = load_iris(return_X_y=True)
    X, y = X[::5] + 0.0, y[::5]
    two, sets = y > 0, [kernels.RBF(), kernels.Linear(standardize=True)]
    rng = np.random.default_rng(0)
    words = np.array(["".join(rng.choice(list("ACGT"), 6)) for _ in y], dtype=object)
    views = MultiView({"flower": X, "dna": words, "sparse": sparse.csr_array(X)})
    holed = X.copy()
    holed[::4] = np.nan
    holed = MultiView({"a": holed, "b": X[:, :2]})
    on_views = [
        kernels.RBF(view="flower"), kernels.Spectrum(2, view="dna"),
        kernels.WeightedDegree(2, view="dna"), kernels.Linear(view="sparse"),
        kernels.Linear(view="flower", columns=slice(1, 3)),
    ]  # fmt: skip
    grams = np.stack([X @ X.T, np.tanh((X @ X.T - 40) / 20)], axis=2)
    frame = pd.DataFrame(X.copy(), columns=list("abcd"))
    frame["e"] = np.where(X[:, 0] > 5, "big", "small")
    frame.loc[3, "a"] = np.nan
    table = TableModel(MKLClassifier(), views={"l": ["a", "b"], "r": ["c", "e"]})
    low = {"approximation": "nystroem", "rank": 6}
    many = {
        "binary": (MKLClassifier(sets, norm=1), X, two),
        "classes": (MKLClassifier("auto"), X, np.array(["a", "b", "c"])[y]),
        "per class": (MKLClassifier(sets, weights="per-class", norm=1.5), X, y),
        "logistic": (MKLClassifier(sets, loss="logistic"), X, two),
        "centred": (MKLClassifier(sets, normalize="center", loss="squared"), X, y),
        "spherical": (MKLClassifier(sets, normalize="spherical"), X, two),
        "elastic net": (MKLClassifier(sets, norm=ElasticNet(0.5)), X, two),
        "search": (MKLClassifierCV(sets, Cs=[1.0], norms=[1, 2], cv=2), X, y),
        "regression": (MKLRegressor("auto"), X, X[:, 0]),
        "outputs": (MKLRegressor(sets), X, X[:, :2]),
        "values": (MKLRegressorCV(sets, Cs=[1.0], norms=[2], cv=2), X, X[:, 0]),
        "evidence": (EvidenceMKLRegressor(sets), X, X[:, :2] + 0.1 * X[:, 2:]),
        "one class": (MKLOneClass([kernels.RBF(), kernels.Laplacian()]), X, None),
        "discriminant": (MKLDiscriminant(sets), X, y),
        "learned": (MKLDiscriminant(sets, reg="learn"), X, two),
        "bilinear": (BilinearMKLClassifier(sets), X, y),
        "Crammer-Singer": (CrammerSingerClassifier(sets), X, y),
        "subspace": (SubspaceClassifier(sets), X, y),
        "features": (SubspaceKernel(sets), X, y),
        "uniform": (UniformMKLClassifier(sets), X, y),
        "aligned": (AlignmentMKLClassifier(sets), X, y),
        "best": (BestKernelClassifier(sets, cv=2), X, y),
        "single": (SingleKernelCV(MKLDiscriminant(), sets, values=[1e-3], cv=2), X, y),
        "views": (MKLClassifier(on_views, norm=4), views, y),
        "absent views": (MKLClassifier([kernels.RBF(view="a"), kernels.RBF(view="b")]),
                         holed, y),
        "Grams": (MKLClassifier("precomputed", psd="clip"), grams, two),
        "table": (table, frame, y),
        "Nyström": (MKLClassifier(sets, **low), X, y),
        "Fourier": (MKLRegressor(["rbf", "laplacian"], approximation="rff", rank=6), X,
                    X[:, 0]),
        "low-rank discriminant": (MKLDiscriminant(sets, **low), X, y),
        "low-rank views": (MKLClassifier(on_views[:2], norm=2, **low), views, y),
    }  # fmt: skip
    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, (model, data, target) in many.items():
            found[name] = model.fit(data, target), data
    return found


def answers(model, X):
    """Return all predictions of a model for samples."""
    names = ("predict", "decision_function", "predict_proba", "transform")
    return [np.asarray(getattr(model, n)(X)) for n in names if hasattr(model, n)]


def declared(model):
    """Return the form of the samples that a model declares."""
    inner = (
        getattr(model, "estimator_", model) if isinstance(model, TableModel) else model
    )
    predictor = inner.predictor_
    predictor = getattr(predictor, "kept", predictor)
    if hasattr(predictor, "features"):
        sets = [features for features, _, _ in predictor.features.pieces]
    elif predictor.reference is not None:
        sets = [of.features for of in predictor.reference.state().references]
    else:
        sets = []
    kinds = (getattr(predictor, "kernels", None), predictor.n_kernels)
    return (
        kinds,
        [(f.view, f.only_view, f.text, f.sparse, f.width, f.names) for f in sets],
        inner.n_features_in_,
        [str(n) for n in getattr(inner, "feature_names_in_", [])],
        vars(model).get("views_"),
        {k: c.kind for k, c in vars(model).get("columns_", {}).items()},
    )


class Files:
    """Model files of every kind, to be attacked."""

    def __init__(self, folder):
        self.path, self.known = folder / "attacked.mkl", []
        for i, (name, (model, X)) in enumerate(models().items()):
            path = folder / f"{i}.mkl"
            save(model, path)
            data, loaded = path.read_bytes(), load(path)
            members = members_of(path)
            self.known.append(
                (name, X, data, members, answers(loaded, X), declared(loaded))
            )

    def attack(self, tally, one, content, what):
        """Load a file, use the model, and record the outcome."""
        name, X, _, _, expected, takes = one
        self.path.write_bytes(content)
        clock = time.time()
        try:
            with WATCH:
                model = load(self.path)
            end = "loaded"
        except ModelFileError as error:
            end = "refused"
            text = str(error)
            if "\n" in text or not text.replace("\n", "").isprintable():
                tally.found(f"{name}, {what}: message {text!r}")
        except Exception as error:
            end = "failed"
            tally.found(f"{name}, {what}: {type(error).__name__} {error}")
        if WATCH.seen:
            tally.found(f"{name}, {what}: did {WATCH.seen}")
        if time.time() - clock > SLOW:
            tally.found(f"{name}, {what}: {time.time() - clock:.0f} seconds")
        tally.ends[end] += 1
        if end != "loaded":
            return
        try:
            found = answers(model, X)
        except Exception as error:
            if isinstance(error, ValueError) and declared(model) != takes:
                tally.ends["loaded"] -= 1
                tally.ends["loaded, for other samples"] += 1
                return
            tally.found(f"{name}, {what}: answers by {type(error).__name__} {error}")
            return
        for answer in found:
            if answer.dtype.kind == "f" and not np.isfinite(answer).all():
                tally.found(f"{name}, {what}: answers NaN or infinity")
                return
        if tally.name == "raw" and not all(
            np.array_equal(a, b) for a, b in zip(found, expected, strict=True)
        ):
            tally.found(f"{name}, {what}: is another model without being told")


def members_of(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def signed(members):
    """Return an archive with a valid digest."""
    members = {k: v for k, v in members.items() if k != "sha256"}
    total = hashlib.sha256()
    for name in sorted(members):
        for part in (name.encode(), members[name]):
            total.update(len(part).to_bytes(8, "little"))
            total.update(part)
    members["sha256"] = total.hexdigest().encode()
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return stream.getvalue()


# --- raw and re-signed ----------------------------------------------------------------


def spoilt(data, rng):
    """Return bytes with a random change, and its description."""
    data = bytearray(data or b"\0")
    at = rng.randrange(len(data))
    size = rng.choice([1, 1, 2, 4, 8, 64, 1024])
    kind = rng.choice(
        ["bit", "byte", "noise", "zeros", "cut", "gone", "twice", "moved"]
    )
    if kind == "bit":
        for _ in range(rng.choice([1, 1, 3, 20])):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif kind == "byte":
        if rng.random() < 0.5:  # in the directory of the archive
            at = rng.randrange(max(0, len(data) - 2000), len(data))
        data[at] = rng.choice([0, 1, 127, 128, 255, rng.randrange(256)])
    elif kind == "noise":
        data[at : at + size] = rng.randbytes(size)
    elif kind == "zeros":
        data[at : at + size] = bytes(size)
    elif kind == "cut":
        del data[at:]
    elif kind == "gone":
        del data[at : at + size]
    elif kind == "twice":
        data[at:at] = data[at : at + size]
    else:
        to = rng.randrange(len(data))
        data[to : to + size] = data[at : at + size]
    return bytes(data), f"{kind} at {at} of {size}"


def raw(files, count, rng):
    tally = Tally("raw")
    for _ in range(count):
        one = rng.choice(files.known)
        content, what = spoilt(one[2], rng)
        files.attack(tally, one, content, what)
    return tally


NUMBERS = [0, 1, -1, 2, 3, 7, 255, 2**31, -(2**31), 2**63, 10**30, 0.5, -0.5, 1e308,
           -1e308, 5e-324, 1e-300, 1e150]  # fmt: skip
WORDS = ["", "X", "center", "spherical", "linear", "\x00", "\ud800", "é" * 100, "inf",
         "__class__", "precomputed", "MKLClassifier", "RBF", "hinge", "squared", "nan",
         "array"]  # fmt: skip


def any_value(rng, depth=0):
    pick = rng.randrange(9 if depth < 2 else 5)
    if pick == 0:
        return None
    if pick == 1:
        return rng.random() < 0.5
    if pick == 2:
        return rng.choice(NUMBERS)
    if pick == 3:
        return rng.choice(WORDS)
    if pick == 4:
        return {"$": "array", "is": rng.randrange(30)}
    if pick == 5:
        return [any_value(rng, depth + 1) for _ in range(rng.randrange(4))]
    if pick == 6:
        inner = [any_value(rng, depth + 1) for _ in range(rng.randrange(4))]
        return {"$": rng.choice(["tuple", "slice", "dict", "stack"]), "is": inner}
    if pick == 7:
        return {"$": "float", "is": rng.choice(["nan", "inf", "-inf", "1"])}
    return {rng.choice(["$", "is", "class", "shape"]): any_value(rng, depth + 1)}


def places(value):
    """Return every container and key in a JSON value."""
    keys = value if isinstance(value, dict) else range(len(value))
    found = [(value, key) for key in keys]
    for key in list(keys):
        if isinstance(value[key], (dict, list)):
            found += places(value[key])
    return found


def changed_value(content, rng):
    """Change a value of model.json, slightly or completely."""
    where = places(content["model"])
    at, key = rng.choice(where)
    old = at[key]
    kind = rng.choice(["any", "near", "gone", "swapped"])
    if kind == "gone" and isinstance(at, dict):
        del at[key]
    elif kind == "swapped":
        other, name = rng.choice(where)
        at[key] = json.loads(json.dumps(other[name]))
    elif kind == "near" and isinstance(old, bool):
        at[key] = not old
    elif kind == "near" and isinstance(old, (int, float)):
        at[key] = rng.choice([old + 1, old - 1, -old, old * 1000, old / 3, float(old)])
    elif kind == "near" and isinstance(old, str):
        at[key] = rng.choice([old[:-1], old + old, old.upper(), rng.choice(WORDS)])
    else:
        at[key] = any_value(rng)
    new = at.get(key) if isinstance(at, dict) else at[key]
    return f"{kind} {key} was {str(old)[:60]!r} is {str(new)[:60]!r}"


def changed_array(data, rng):
    """Return the bytes of an array with other entries, shape or type."""
    try:
        array = np.load(io.BytesIO(data))
    except Exception:  # it was changed before
        return spoilt(data, rng)[0], "again"
    kind = rng.choice(["entry", "entry", "all", "shape", "type", "order", "bytes"])
    if kind in ("entry", "all") and array.size:
        where = rng.randrange(array.size) if kind == "entry" else slice(None)
        flat = array.ravel().copy()
        if array.dtype.kind == "f":
            flat[where] = rng.choice([
                np.nan, np.inf, -np.inf, 1e308, -1e300, 0.0, 1e160, 5e-324, -1.0,
                rng.random(),
            ])  # fmt: skip
        elif array.dtype.kind in "iu":
            number = rng.choice([0, 1, -1, 2, 100, 2**40, -(2**40)])
            flat[where] = np.array(number).astype(array.dtype)
        elif array.dtype.kind == "U":
            flat[where] = rng.choice(["", "a", "=1", "\x1b"])
        else:
            flat[where] = rng.random() < 0.5
        array = flat.reshape(array.shape)
    elif kind == "shape":
        array = rng.choice([
            lambda a: a[:-1] if a.ndim else a[None], lambda a: a[..., None],
            lambda a: a.ravel(), lambda a: a.T, lambda a: np.concatenate([a, a]),
            lambda a: a[:0], lambda a: np.resize(a, ()),
        ])(np.atleast_1d(array))  # fmt: skip
    elif kind == "type":
        types = ["f4", "i8", "u1", "U3", "?", ">f8", "f2", "i2"]
        with np.errstate(all="ignore"):
            try:
                array = array.astype(rng.choice(types))
            except ValueError:
                array = np.zeros(3)
    elif kind == "order":
        array = np.asfortranarray(array[::-1] if array.ndim else array)
    elif kind == "bytes":
        return spoilt(data, rng)[0], kind
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=False)
    return stream.getvalue(), f"{kind} {array.dtype}{array.shape}"


def resigned(files, count, rng):
    tally = Tally("resigned")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(count):
            one = rng.choice(files.known)
            members, what = dict(one[3]), []
            for _ in range(rng.choice([1, 1, 1, 2])):
                arrays = [name for name in members if name.startswith("arrays/")]
                if rng.random() < 0.5:
                    name = rng.choice(arrays)
                    members[name], said = changed_array(members[name], rng)
                    what.append(f"{name} {said}")
                else:
                    content = json.loads(members["model.json"])
                    what.append(changed_value(content, rng))
                    members["model.json"] = json.dumps(content).encode()
            files.attack(tally, one, signed(members), "; ".join(what))
    return tally


# --- forged ---------------------------------------------------------------------------


class Runs:
    """An object whose unpickling runs code."""

    def __reduce__(self):
        return os.system, ("true",)


def header(shape, descr="<f8", order="False"):
    text = f"{{'descr': {descr!r}, 'fortran_order': {order}, 'shape': {shape}, }}"
    text += " " * (-(len(text) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


def overlapping(count, size, names=None):
    """Return an archive whose members all refer to the same bytes."""
    body, first = b"\0" * size, b"arrays/0.npy"
    crc = zlib.crc32(body)
    local = struct.pack("<4s5H3I2H", b"PK\3\4", 20, 0, 0, 0, 33, crc, size, size,
                        len(first), 0) + first  # fmt: skip
    entries = []
    for i in range(count):
        name = b"arrays/%d.npy" % i
        entries.append(struct.pack(
            "<4s6H3I5H2I", b"PK\1\2", 20, 20, 0, 0, 0, 33, crc, size, size, len(name),
            0, 0, 0, 0, 0, 0) + name)  # fmt: skip
    listing = b"".join(entries)
    told = min(count, 0xFFFE)
    end = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, told, told, len(listing),
                      len(local) + size, 0)  # fmt: skip
    return local + body + listing + end


def forgeries(members):
    """Yield malicious files with a valid digest."""
    one = {"$": "array", "is": 0}

    def with_value(value, **more):
        content = json.loads(members["model.json"])
        content["model"]["is"]["tol"] = value
        return signed({**members, **more, "model.json": json.dumps(content).encode()})

    def with_array(data, value=one):
        return with_value(value, **{"arrays/0.npy": data})

    stack = {"$": "stack", "kind": "list", "is": one}
    for shape in ("(100000000, 0)", "(0, 100000000)", "(4, 0, 1000000000000)",
                  "(1000000000000000000,)", "(-1,)", "(1,) * 10**9", "(10**9,)",
                  "(4294967296, 4294967296)", "(True,)", "(1e9,)"):  # fmt: skip
        yield f"axes {shape}", with_array(header(shape))
        yield f"stack {shape}", with_array(header(shape), stack)
    for descr in ("<U0", "|V0", "|O", "<c16", "<M8[s]", "<U999999999", "|S0"):
        yield f"type {descr}", with_array(header("(1000000000,)", descr))
    yield "code in a header", with_array(header("__import__('os').system('true')"))
    yield "deep header", with_array(header("(" * 5000 + ")" * 5000))
    stream = io.BytesIO()
    np.save(stream, np.array([Runs()], dtype=object), allow_pickle=True)
    yield "pickled array", with_array(stream.getvalue())
    yield "pickle for an array", with_array(pickle.dumps(Runs()))
    yield "pickle for a file", pickle.dumps(Runs())
    for name in ("Popen", "Function", "type", "object", "BaseEstimator", "os.system"):
        yield f"class {name}", with_value({"$": "record", "class": name, "is": {}})
        yield f"model {name}", with_value({"$": "estimator", "class": name, "is": {}})
    for kind in ("import", "eval", "pickle", "named", "_init__", "class", "__class__"):
        yield f"kind {kind}", with_value({"$": kind, "is": "os"})
    for name in ("predict", "__class__", "__dict__", "fit", "__reduce__", "get_params"):
        content = json.loads(members["model.json"])
        content["model"]["is"][name] = "x"
        text = json.dumps(content).encode()
        yield f"attribute {name}", signed({**members, "model.json": text})
    for name in ("../escaped", "/tmp/escaped", "arrays/../../x.npy", "arrays/-1.npy",
                 "arrays/9.npy\x00.txt", "C:\\x"):  # fmt: skip
        yield f"name {name!r}", signed({**members, name: b"x"})
    big = {"arrays/0.npy": header("(8388608,)", "|u1") + b"\0" * 2**23}
    yield "one array often", with_value([one] * 100000, **big)
    flat = {"arrays/0.npy": header("(8388608, 1)", "|u1") + b"\0" * 2**23}
    yield "one stack often", with_value([stack] * 1000, **flat)
    csr = {"$": "csr", "shape": [1, 10**13], "data": one, "indices": one, "indptr": one}
    yield "wide sparse array", with_value(csr)
    yield "tall sparse array", with_value({**csr, "shape": [10**13, 1]})
    yield "objects", with_value({"$": "objects", "shape": [10**12, 0], "is": []})
    deep = b"[" * 10**6 + b"]" * 10**6
    yield "deep JSON", signed({**members, "model.json": deep})
    nested = {"$": "tuple", "is": []}
    for _ in range(5000):
        nested = {"$": "tuple", "is": [nested]}
    sys.setrecursionlimit(40000)
    text = json.dumps(nested).encode()
    sys.setrecursionlimit(1000)
    content = members["model.json"].replace(b'"tol": 0.001', b'"tol": ' + text)
    yield "deep values", signed({**members, "model.json": content})
    for number in (b"1" * 10**5, b"NaN", b"-Infinity", b"1e999", b"1" * 4000):
        content = members["model.json"].replace(b'"tol": 0.001', b'"tol": ' + number)
        yield f"number {number[:8]!r}", signed({**members, "model.json": content})
    yield "overlapping members", overlapping(5000, 10**6)
    yield "endless list of contents", overlapping(80000, 10)
    for method in (zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w", method) as archive:
            for name, data in members.items():
                archive.writestr(name, data)
            archive.writestr("arrays/99.npy", b"\0" * 2**26)
        yield f"compressed {method}", stream.getvalue()
    sound = signed(members)
    at = sound.rindex(b"PK\1\2")
    for offset, size in ((8, 2), (10, 2), (20, 4), (24, 4), (28, 2), (42, 4)):
        for value in (1, 2 ** (8 * size) - 1, 2 ** (8 * size - 1)):
            lie = bytearray(sound)
            lie[at + offset : at + offset + size] = value.to_bytes(size, "little")
            yield f"listing {offset} {value}", bytes(lie)
    for offset, size in ((8, 2), (10, 2), (12, 4), (16, 4), (20, 2)):
        lie = bytearray(sound)
        start = len(lie) - 22 + offset
        lie[start : start + size] = b"\xff" * size
        yield f"end {offset}", bytes(lie)
    yield "twice", sound + sound
    yield "before", b"#!/bin/sh\n" + sound
    yield (
        "JSON in UTF-16",
        signed(
            {**members, "model.json": members["model.json"].decode().encode("utf-16")}
        ),
    )


def forged(files, count):
    tally = Tally("forged")
    one = next(known for known in files.known if known[0] == "binary")
    for tried, (what, content) in enumerate(forgeries(one[3])):
        if tried == count:
            break
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        files.attack(tally, one, content, what)
        grown = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
        if grown > MEMORY:
            tally.found(f"{what}: took {grown / 2**20:.0f} MB")
    return tally


# --- the command line -----------------------------------------------------------------

CELLS = ["", "1", "-1.5", "1e308", "-1e308", "1e400", "nan", "inf", "NA", "x", "=1+1",
         "@SUM(A1)", "\x1b[31mred", "\x07", "\x00", "é", "日本", '"', '""', "'",
         "a b", "True", "0x10", "1,5", "1_000", "2020-01-01", "-", " ", "\t", "9" * 400,
         "5e-324", "ACGT", "🙂"]  # fmt: skip
NAMES = ["a", "b", "c", "y", "y", "", " ", "a", "=a", "\x1b[2Jb", "é", "1",
         "prediction", "names", "K", "view", '"q"', "a=b", "x" * 300]  # fmt: skip


def table_bytes(rng):
    """Return the bytes of a more or less valid table, and its file extension."""
    rows, columns = rng.choice([0, 1, 8, *[24] * 7]), rng.choice([0, *[1, 2, 3] * 4])
    names = [
        rng.choice(NAMES) if rng.random() < 0.1 else f"c{j}" for j in range(columns)
    ]
    if rng.random() < 0.9:
        names.append("y")
    odd, lines = rng.choice([0, 0, 0, 0, 0.01, 0.01, 0.1, 0.5]), [names]
    classes = rng.choice([2, 2, 2, 3, 3, 20])
    for i in range(rows):
        line = [f"{rng.gauss(i % classes, 1):.6g}" for _ in names[:-1]]
        line += [rng.choice([f"k{i % classes}", f"k{i % classes}", str(i % classes)])
                 if rng.random() < 0.05 else f"k{i % classes}"]  # fmt: skip
        line = [rng.choice(CELLS) if rng.random() < odd else cell for cell in line]
        if rng.random() < odd / 10:
            line = line[:-1] if rng.random() < 0.5 else [*line, "more"]
        lines.append(line)
    end = rng.choice(
        [".csv"] * 20 + [".tsv", ".txt", ".csv.gz", ".parquet", ".xyz", ""]
    )
    mark = {".csv": rng.choice([",", ",", ",", ";", "|"])}.get(end, "\t")
    text = rng.choice(["\n", "\n", "\r\n", "\r"]).join(mark.join(li) for li in lines)
    encoding = rng.choice(["utf-8"] * 20 + ["utf-8-sig", "utf-16", "latin-1", "cp037"])
    data = text.encode(encoding, "replace")
    if end == ".csv.gz":
        data = zlib.compress(data, wbits=31)
    if end == ".parquet" and rng.random() < 0.7:
        stream = io.BytesIO()
        frame = pd.DataFrame({f"c{j}": np.arange(rows) % (j + 2) for j in range(3)})
        frame.assign(y=np.arange(rows) % 2).to_parquet(stream)
        data = stream.getvalue()
    if rng.random() < 0.1 and data:
        data = spoilt(data, rng)[0]
    return data, end


def grams_bytes(rng):
    """Return the bytes of more or less valid Gram matrices."""
    n = rng.choice([0, 1, 4, 12])
    X = np.random.default_rng(rng.randrange(99)).normal(size=(n, 3))
    K = np.stack([X @ X.T, (1 + X @ X.T) ** 2], axis=2)
    arrays = {"K": K, "y": np.arange(n) % 2}
    names = rng.choice([None, ["a", "b"], "one", [1, 2], ["a", "a"], np.zeros((2, 2))])
    if names is not None:
        arrays["names"] = names
    how = rng.randrange(6)
    if how == 0:
        arrays["K"] = rng.choice([K * np.nan, K * 1e200, K[:, :-1], K.astype("U9"), -K,
                                  K[:, :, :0], np.zeros(()), K * 1j])  # fmt: skip
    elif how == 1:
        arrays["y"] = rng.choice([np.zeros(n), np.zeros(()), np.arange(n + 1),
                                  np.full(n, np.nan), np.array(["a"] * n)])  # fmt: skip
    stream = io.BytesIO()
    if how == 2:
        np.save(stream, K)
        data, end = stream.getvalue(), ".npy"
    else:
        np.savez(stream, **arrays)
        data, end = stream.getvalue(), ".npz"
    return (spoilt(data, rng)[0] if rng.random() < 0.3 and data else data), end


def options(rng, command):
    """Return options, some of which are invalid."""
    pool = [
        ("--norm", ["1", "2", "inf", "auto", "0.5", "nan", "x", "-1", "1e400", ""]),
        ("--reg", ["1", "0.1", "1e308", "inf", "-1", "auto", "loo", "nan", "learn"]),
        ("--kernels", ["linear", "rbf", "chi2", "magic", "", ",", "spectrum", "auto"]),
        ("--method", ["mkl", "discriminant", "subspace", "bilinear", "evidence", "x"]),
        ("--task", ["auto", "classification", "regression", "\x1b[2J"]),
        ("--cv", ["2", "2", "1", "99", "-3", "x"]),
        ("--views", ["a=c0", "a=c0,c1", "=c0", "a=", "a=c0,c0", "b=nothing", "y=y"]),
        ("--sequences", ["c0", "y", "nothing", ",,", "c0,c0"]),
        ("--seed", ["0", "-1", "99999999999999999999", "x"]),
        ("--jobs", ["1"]),
    ]
    chosen = []
    for name, values in pool:
        if rng.random() < 0.06 and not (
            command == "compare" and name in ("--method", "--norm")
        ):
            chosen += [name, rng.choice(values)]
    if "--cv" not in chosen:
        chosen += ["--cv", "2"]
    if "--kernels" not in chosen and rng.random() < 0.8:
        chosen += ["--kernels", "linear"]
    if command == "compare":
        chosen += ["--norms", rng.choice(["2", "1,2", "x", "", "0"])]
    return chosen


def cli(files, count, rng, folder):
    tally = Tally("cli")
    good = folder / "good.csv"
    X, y = load_iris(return_X_y=True)
    frame = pd.DataFrame(X[::6], columns=[f"c{i}" for i in range(4)])
    frame.assign(y=np.array(["k0", "k1", "k2"])[y[::6]]).to_csv(good, index=False)
    app, runner = make_app(), CliRunner()
    first = [str(a) for a in ("fit", good, "--target", "y", "--cv", 2, "--kernels",
                              "linear", "--out", folder / "model")]  # fmt: skip
    assert runner.invoke(app, first).exit_code == 0
    model = folder / "model" / "model.mkl"
    for tried in range(count):
        place = folder / "run"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        data, end = (grams_bytes if rng.random() < 0.2 else table_bytes)(rng)
        path = place / f"data{end}"
        path.write_bytes(data)
        command = rng.choice(["fit", "fit", "fit", "compare", "predict", "inspect"])
        out = place / "out"
        kind = rng.random()
        if kind < 0.05:
            out.write_text("a file")
        elif kind < 0.08:
            out = path if command != "fit" else path / "deeper"
        elif kind < 0.1:
            out = Path("/dev/null")
        elif kind < 0.12:
            (out / "results.json").mkdir(parents=True)
        target = rng.choice(["y"] * 12 + ["", "nothing", "c0", "names", "K", "\x1b[2J"])
        if command in ("fit", "compare"):
            args = [command, path, "--target", target, *options(rng, command)]
            if command == "fit" or kind < 0.5:
                args += ["--out", out]
        elif command == "predict":
            file = place / "damaged.mkl"
            file.write_bytes(spoilt(model.read_bytes(), rng)[0])
            args = [command, rng.choice([model, model, model, file, path, folder]),
                    rng.choice([path, path, good])]  # fmt: skip
            if kind < 0.5:
                args += ["--out", out]
        else:
            file = place / "damaged.mkl"
            changed = dict(rng.choice(files.known)[3])
            content = json.loads(changed["model.json"])
            changed_value(content, rng)
            content["notes"] = any_value(rng)
            changed["model.json"] = json.dumps(content).encode()
            file.write_bytes(signed(changed))
            args = [command, file]
        if rng.random() < 0.2:
            args.append("--json")
        before = {p: p.read_bytes() for p in place.rglob("*") if p.is_file()}
        entries = set(place.rglob("*"))
        args, clock = [str(a) for a in args], time.time()
        result = runner.invoke(app, args)
        text = " ".join(args).replace(str(folder), "")
        code = result.exit_code
        tally.ends[f"exit code {code}"] += 1
        if code not in (0, 2) or "Traceback" in result.output:
            tally.found(f"{tried} {text!r}: exit code {code}: {result.stderr[-300:]}"
                        f" {result.exception!r}")  # fmt: skip
        if "\x1b" in result.output or "\x07" in result.output:
            tally.found(f"{tried} {text!r}: control characters are shown")
        if time.time() - clock > 2 * SLOW:
            tally.found(f"{tried} {text!r}: {time.time() - clock:.0f} seconds")
        left = [p for p in place.rglob("*") if ".tmp" in p.name]
        if left:
            tally.found(f"{tried} {text!r}: left {left}")
        if code == 2:
            after = {p: p.read_bytes() for p in place.rglob("*") if p.is_file()}
            if after != before or set(place.rglob("*")) != entries:
                tally.found(f"{tried} {text!r}: failed, and files have changed")
            # the option parser shows usage in a box of several lines
            if "Usage:" not in result.stderr and "mklearn: " not in result.stderr:
                tally.found(f"{tried} {text!r}: says nothing: {result.stderr!r}")
        elif command == "fit" and code == 0:
            names = sorted(os.listdir(out))
            if names != sorted(FILES):
                tally.found(f"{tried} {text!r}: wrote {names}")
            load(out / "model.mkl")
    return tally


# --- kills ----------------------------------------------------------------------------


def run_to_end(args, log):
    """Run a command in its own process, which may be killed."""
    try:
        with open(log, "w") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        sys.argv = ["mklearn", *args]
        Path(log).with_suffix(".begun").touch()
        run_command()
    except KeyboardInterrupt:  # before the command or after it
        sys.exit(130)


def results_of(folder):
    """Return the run that wrote each file in a folder; raise if one is incomplete."""
    names = {}
    for path in folder.iterdir():
        if path.name == "model.mkl":
            load(path)
            names[path.name] = read_header(path)["notes"]["data"]["name"]
        elif path.name == "results.json":
            names[path.name] = json.loads(path.read_text())["data"]["name"]
        elif path.name == "report.html":
            text = path.read_text()
            assert text.endswith("</html>\n"), "half a report"
            names[path.name] = "new.csv" if "new.csv" in text else "old.csv"
        elif path.suffix == ".csv":
            assert path.read_text().endswith("\n"), "half a table"
    return names


def kills(count, rng, folder):
    tally = Tally("kills")
    X, y = load_iris(return_X_y=True)
    for name, part in (("old.csv", slice(0, None, 3)), ("new.csv", slice(1, None, 3))):
        frame = pd.DataFrame(X[part], columns=list("abcd"))
        frame.assign(y=y[part]).to_csv(folder / name, index=False)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["__main__", "mklearn.cli.commands"])
    out, log = folder / "killed", folder / "log"

    def begin(name):
        args = ["fit", str(folder / name), "--target", "y", "--cv", "2", "--kernels",
                "linear", "--out", str(out)]  # fmt: skip
        begun = log.with_suffix(".begun")
        begun.unlink(missing_ok=True)
        process = context.Process(target=run_to_end, args=(args, str(log)))
        process.start()
        while process.is_alive() and not begun.exists():
            time.sleep(0.005)
        return process

    def to_end(name):
        process, clock = begin(name), time.time()
        process.join()
        assert process.exitcode == 0, log.read_text()
        return time.time() - clock

    to_end("old.csv")
    took, old = to_end("old.csv"), folder / "kept"
    shutil.copytree(out, old)
    for tried in range(count):
        number = rng.choice([signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
        process, clock = begin("new.csv"), time.time()
        # files are written in the last tenth, so half of the kills are there
        low = 0.0 if rng.random() < 0.5 else 0.7
        wait = took * rng.uniform(low, 1.0)
        process.join(wait)
        alive = process.is_alive()
        if alive:
            os.kill(process.pid, number)
        process.join(SLOW)
        what = f"{tried} {number.name} after {wait:.3f} s"
        if process.is_alive():
            tally.found(f"{what}: does not end")
            process.kill()
            process.join()
        if not alive or process.exitcode == 0:
            took = 0.9 * took + 0.1 * (time.time() - clock)
        tally.ends[f"{number.name}, exit code {process.exitcode}"] += 1
        if process.exitcode not in (0, 130, 143, -signal.SIGKILL, -number):
            tally.found(
                f"{what}: exit code {process.exitcode}: {log.read_text()[-300:]}"
            )
        try:
            names = set(results_of(out).values())
        except Exception as error:
            tally.found(f"{what}: {type(error).__name__} {error}")
            continue
        finally:
            left = [p.name for p in out.iterdir() if p.name.startswith(".mklearn")]
        if len(names) != 1:
            tally.found(f"{what}: files of two runs, {results_of(out)}")
        if left and number != signal.SIGKILL:
            tally.found(f"{what}: left {left}")
        if left or tried % 10 == 0:  # the next run is unimpeded, and cleans up
            to_end("new.csv")
            if sorted(os.listdir(out)) != sorted(os.listdir(old)):
                tally.found(f"{what}: the next run leaves {os.listdir(out)}")
        if names != {"old.csv"} or left or tried % 10 == 0:
            shutil.rmtree(out)
            shutil.copytree(old, out)
    return tally


# --- main -----------------------------------------------------------------------------


def write_row(row):
    """Write the result of an attack to its row of the page."""
    path = Path(__file__).parent.parent / "docs" / "results" / "attacks.md"
    rows = {name: {"attack": name} for name in ATTACKS}
    if path.exists():
        lines = path.read_text(encoding="utf-8").splitlines()
        cells = [line.strip("| ").split(" | ") for line in lines if line[:2] == "| "]
        rows.update(
            {old[0]: dict(zip(cells[0], old, strict=True)) for old in cells[1:]}
        )
    rows[row["attack"]] = {key: str(value) for key, value in row.items()}
    full = [one for one in rows.values() if len(one) > 1]
    with whole_file(path) as temporary:
        text = page("Attacks", "attack.py --write", full)
        temporary.write_text(text, encoding="utf-8")


ATTACKS = ("raw", "resigned", "forged", "cli", "kills")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, count in (("raw", 20000), ("resigned", 20000), ("forged", 1000),
                        ("cli", 1000), ("kills", 100)):  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=None, metavar=str(count))
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--quick", action="store_true", help="a few of each")
    parser.add_argument("--write", action="store_true", help="docs/results/attacks.md")
    args = parser.parse_args()
    default = {"raw": 300, "resigned": 300, "forged": 1000, "cli": 15, "kills": 3}
    if not args.quick:
        default = {"raw": 20000, "resigned": 20000, "forged": 1000, "cli": 1000,
                   "kills": 100}  # fmt: skip
    asked = {name: getattr(args, name) for name in default}
    if any(count is not None for count in asked.values()):
        default = dict.fromkeys(default, 0)
    counts = {n: default[n] if c is None else c for n, c in asked.items()}
    print(f"seed {args.seed}: {counts}", flush=True)
    tallies = []

    def done(tally):
        tallies.append(tally)
        row = {**tally.row(), "seed": args.seed}
        print(row, flush=True)
        if args.write:
            write_row(row)

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rng = {n: random.Random(f"{args.seed} {n}") for n in counts}
        if counts["kills"]:
            done(kills(counts["kills"], rng["kills"], folder))
        if any(counts[n] for n in ("raw", "resigned", "forged", "cli")):
            files = Files(folder)
            if counts["raw"]:
                done(raw(files, counts["raw"], rng["raw"]))
            if counts["resigned"]:
                done(resigned(files, counts["resigned"], rng["resigned"]))
            if counts["forged"]:
                done(forged(files, counts["forged"]))
            if counts["cli"]:
                done(cli(files, counts["cli"], rng["cli"], folder))
    sys.exit(any(tally.findings for tally in tallies))


if __name__ == "__main__":
    main()
