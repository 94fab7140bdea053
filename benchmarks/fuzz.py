"""Coverage-guided fuzzing of the readers of files: models, arrays and tables.

Each target takes bytes, in the form that reaches furthest into a reader:

``archive``  a whole model file                ``json``   its model.json, re-signed
``array``    an array of a model, as npy       ``table``  a table or Gram matrices; the
                                                          first byte tells which kind

A reader may accept the bytes or reject them with its own error; anything else is a
finding, and atheris stores the input. Needs ``pip install '.[fuzz]'``; if this is
not installed, the script says so and only reads its corpus.

    python benchmarks/fuzz.py --seconds 10     # shared by the targets
    python benchmarks/fuzz.py --target json --seconds 600
    python benchmarks/fuzz.py --corpus         # writes the inputs that it starts from
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import io
import os
import shutil
import subprocess
import sys
import tempfile
import warnings
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
CORPUS = HERE / "corpus"
KINDS = (".csv", ".tsv", ".csv.gz", ".parquet", ".npy", ".npz")
FOLDER = Path(tempfile.gettempdir())


def written(data, end):
    path = FOLDER / f"mklearn-fuzz-{os.getpid()}{end}"
    path.write_bytes(data)
    return path


def archive(data):
    """Load a model file, and read the kernels of the model."""
    from mklearn.persistence import ModelFileError, load, read_header

    path = written(data, ".mkl")
    try:
        read_header(path)
        load(path)
    except ModelFileError:
        pass
    finally:
        path.unlink()


def json(data):
    """Load a model file with another model.json and a valid digest."""
    with zipfile.ZipFile(CORPUS / "archive" / "classifier.mkl") as base:
        members = {n: base.read(n) for n in base.namelist() if n != "sha256"}
    members["model.json"] = data
    total = hashlib.sha256()
    for name in sorted(members):
        for part in (name.encode(), members[name]):
            total.update(len(part).to_bytes(8, "little"))
            total.update(part)
    members["sha256"] = total.hexdigest().encode()
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as made:
        for name, content in members.items():
            made.writestr(name, content)
    archive(stream.getvalue())


def array(data):
    """Read an array in the format of a model file."""
    from mklearn import persistence

    try:
        persistence._read_array(data)
    except ValueError:
        pass


def table(data):
    """Read a table like the command line."""
    from mklearn.table import (
        TableError,
        find_layout,
        is_gram_file,
        read_grams,
        read_table,
    )

    path = written(data[1:], KINDS[data[0] % len(KINDS)] if data else ".csv")
    try:
        if is_gram_file(path):
            read_grams(path, "y")
        else:
            frame = read_table(path)
            find_layout(frame, frame.columns[-1])
    except TableError:
        pass
    finally:
        path.unlink()


TARGETS = {"archive": archive, "json": json, "array": array, "table": table}


def replay(name):
    """Run a target on its corpus and return the number of inputs."""
    paths = sorted((CORPUS / name).iterdir())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for path in paths:
            TARGETS[name](path.read_bytes())
    return len(paths)


def fuzz(name, seconds):
    """Fuzz one target until the time is over; libFuzzer ends the process."""
    import atheris

    import mklearn.persistence  # and all below, which need not be looked into

    again = ("mklearn.persistence", "mklearn.table", "zipfile")
    for module in [name for name in sys.modules if name.startswith(again)]:
        del sys.modules[module]
    with atheris.instrument_imports(include=list(again)):
        import zipfile  # noqa: F401

        import mklearn.persistence
        import mklearn.table  # noqa: F401
    warnings.simplefilter("ignore")
    replay(name)  # so that nothing is compiled later
    with tempfile.TemporaryDirectory() as grown:
        options = [
            sys.argv[0], f"-max_total_time={seconds}", "-rss_limit_mb=3000",
            "-timeout=20", "-print_final_stats=1", "-verbosity=0", "-seed=0",
            f"-artifact_prefix={FOLDER}/mklearn-finding-", grown, str(CORPUS / name),
        ]  # fmt: skip
        atheris.Setup(options, TARGETS[name])
        atheris.Fuzz()


def write_corpus():
    """Write the inputs that fuzzing starts from."""
    import gzip

    import numpy as np
    import pandas as pd

    from mklearn import MKLClassifier, MKLRegressor, kernels
    from mklearn.persistence import save

    shutil.rmtree(CORPUS, ignore_errors=True)
    for name in TARGETS:
        (CORPUS / name).mkdir(parents=True)
    X = np.random.default_rng(0).normal(size=(8, 2)).round(2)
    y = np.arange(8) % 2
    low = MKLRegressor(["rbf"], approximation="nystroem", rank=3)
    for name, model in {
        "classifier": MKLClassifier([kernels.RBF(1.0), kernels.Linear()]).fit(X, y),
        "low-rank": low.fit(X, X[:, 0]),
    }.items():
        save(model, CORPUS / "archive" / f"{name}.mkl")
        with zipfile.ZipFile(CORPUS / "archive" / f"{name}.mkl") as made:
            (CORPUS / "json" / f"{name}.json").write_bytes(made.read("model.json"))
    for i, one in enumerate((X, y, y > 0, np.array(["a", "bc"]), X.T, np.array(1.0))):
        np.save(CORPUS / "array" / f"{i}.npy", one)
    sound = (CORPUS / "array" / "0.npy").read_bytes()  # and what fuzzing has found
    (CORPUS / "array" / "type.npy").write_bytes(sound.replace(b"<f8", b"<f7"))
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(c=list("xyxyxyxy"), y=y)
    text = frame.to_csv(index=False).encode()
    K = X @ X.T
    grams = io.BytesIO()
    np.savez(grams, K=K[:, :, None], y=y, names=["one"])
    single, parquet = io.BytesIO(), io.BytesIO()
    np.save(single, K[:, :, None])
    frame.to_parquet(parquet)
    contents = (
        text, text.replace(b",", b"\t"), gzip.compress(text, mtime=0),
        parquet.getvalue(), single.getvalue(), grams.getvalue(),
    )  # fmt: skip
    for kind, content in enumerate(contents):
        (CORPUS / "table" / KINDS[kind][1:]).write_bytes(bytes([kind]) + content)
    for i, odd in enumerate(
        (b"a,a\n1,2\n", b"a;b\n1;2\n", b'"a\n', b"\xff\xfea,b\n1\n")
    ):
        (CORPUS / "table" / f"odd{i}").write_bytes(b"\0" + odd)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--target", choices=list(TARGETS))
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--corpus", action="store_true")
    args = parser.parse_args()
    if args.corpus:
        write_corpus()
        return
    if importlib.util.find_spec("atheris") is None:
        counts = {name: replay(name) for name in TARGETS}
        print(f"The corpus was read: {counts}. Fuzzing is skipped: atheris is not "
              "installed; pip install atheris, if there is a build.")  # fmt: skip
        return
    if args.target is not None:
        fuzz(args.target, args.seconds)
        return
    share = max(1, args.seconds // len(TARGETS))
    for name in TARGETS:
        command = [sys.executable, __file__, "--target", name, "--seconds", str(share)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        stats = [line.split() for line in done.stderr.splitlines() if "stat::" in line]
        runs = next((w[1] for w in stats if "executed_units" in w[0]), "?")
        print(f"{name}: {runs} inputs, exit code {done.returncode}", flush=True)
        if done.returncode:
            print(done.stdout[-2000:], done.stderr[-6000:])
            sys.exit(1)


if __name__ == "__main__":
    main()
