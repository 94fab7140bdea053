"""History of the cost of every public estimator with default settings.

A cell calls one estimator or command with its defaults, including validation. The unit
is the usual alternative without multiple kernel learning; it differs from cell to cell,
and each cell names it. Both are timed alternately in a separate process: CPU time of
all threads, the shortest of a few repetitions, and the ratio of the two. In quick mode
one process measures all cells, one after the other, so its peak memory is that of all
cells so far; cells that are measured again have their own process.

    python benchmarks/history.py               run all cells, append to history.csv
    python benchmarks/history.py --quick       small cells; compare with the last entry
    python benchmarks/history.py --against DIR also run the cells on another checkout

The quick mode fails if a cell takes twice the CPU time of the last quick entry. Ratios
of milliseconds differ between machines and over time, so a ratio above twice the last
one is only a suspicion: the cell is measured again, and then alternately with the
library at the version of the entry, on this machine. This comparison decides, unless
git does not have that version.

``--record`` adds an entry for the committed version, also with ``--only WORD ...``,
which selects cells by words in their names: all measurements of one commit on one day
are one entry, in any number of parts.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import io
import json
import os
import platform
import resource
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
HISTORY = Path(__file__).parent / "history.csv"
PAGE = ROOT / "docs" / "results" / "history.md"
FIELDS = (
    "date", "commit", "mode", "processor", "load", "cell", "unit", "ratio", "cpu",
    "wall", "unit_cpu", "unit_wall", "peak_mb",
)  # fmt: skip
LIMIT = 2.0  # multiple of the ratio of the last entry
ATTEMPTS = 2
TURNS = 3  # repetitions of the comparison of both versions in case of doubt
ENOUGH = {"full": 0.5, "quick": 0.2}  # total CPU seconds of the repetitions of a call
REPEATS = 5  # maximum number of repetitions

Call = Callable[[], Any]
Found = dict[str, float]


@dataclass(frozen=True)
class Cell:
    """A call of this library and the call it is compared with.

    ``make`` is a function of ``quick`` that returns both calls. With ``process``, the
    calls start processes, whose CPU time counts.
    """

    name: str
    unit: str
    make: Callable[[bool], tuple[Call, Call]]
    process: bool = False


# --- data and units -------------------------------------------------------------------


def table(name: str, quick: bool) -> tuple[Any, Any]:
    """Return a data set of scikit-learn, with fewer rows in quick mode."""
    from sklearn import datasets

    if name == "wide":  # two classes, as many rows and columns as filters of mail see
        X, y = datasets.make_classification(
            300 if quick else 1500, 57, n_informative=12, random_state=0
        )
    else:
        X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    most = 300 if quick else 1000
    if name != "wide" and len(y) > most:
        import numpy as np

        chosen = np.sort(np.random.default_rng(0).permutation(len(y))[:most])
        X, y = X[chosen], y[chosen]
    return X, y


def svc() -> Any:
    """Return the usual alternative for classification."""
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVC

    return make_pipeline(StandardScaler(), SVC())


def svr() -> Any:
    """Return the same for numbers."""
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVR

    return make_pipeline(StandardScaler(), SVR())


def search(model: Any, step: str) -> Any:
    """Return a search over 16 cells and 5 folds."""
    from sklearn.model_selection import GridSearchCV

    grid = {
        f"{step}__C": [0.1, 1.0, 10.0, 100.0],
        f"{step}__gamma": [0.001, 0.01, 0.1, 1.0],
    }
    return GridSearchCV(model, grid, cv=5)


def fits(
    estimator: str, data: str, unit: Callable[[], Any], **parameters: Any
) -> Callable[[bool], tuple[Call, Call]]:
    """Return the factory of a cell that fits an estimator with some parameters."""

    def make(quick: bool) -> tuple[Call, Call]:
        import mklearn

        X, y = table(data, quick)
        cls = getattr(mklearn, estimator)
        return lambda: cls(**parameters).fit(X, y), lambda: unit().fit(X, y)

    return make


def grams(
    norm: float, n: int, M: int, **parameters: Any
) -> Callable[[bool], tuple[Call, Call]]:
    """Return the factory of a cell that learns from given Gram matrices."""

    def make(quick: bool) -> tuple[Call, Call]:
        import numpy as np
        from sklearn.datasets import load_digits
        from sklearn.metrics.pairwise import euclidean_distances
        from sklearn.svm import SVC

        from mklearn import MKLClassifier

        rng = np.random.default_rng(0)
        X, digit = load_digits(return_X_y=True)
        rows, kernels = (n // 4, M // 5) if quick else (n, M)
        chosen = np.sort(rng.permutation(np.arange(rows) % len(digit)))
        if rows < len(digit):
            chosen = np.sort(rng.permutation(len(digit))[:rows])
        X, y = X[chosen] / 16.0, digit[chosen] % 2
        X = X + 0.1 * rng.standard_normal(X.shape)
        if kernels <= 64:  # widths of one distance
            D = euclidean_distances(X, squared=True)
            K = np.stack([np.exp(-D / 1.2**m) for m in range(kernels)], axis=2)
        else:  # one column each, drawn with noise
            columns = rng.integers(X.shape[1], size=kernels)
            Z = X[:, columns] + 0.3 * rng.standard_normal((rows, kernels))
            K = np.empty((rows, rows, kernels))
            for z, out in zip(Z, K, strict=True):
                np.exp(-((z - Z) ** 2), out=out)

        def unit() -> Any:
            return SVC(kernel="precomputed").fit(K.sum(axis=2), y)

        model = MKLClassifier("precomputed", norm=norm, **parameters)
        return lambda: model.fit(K, y), unit

    return make


def outliers(quick: bool) -> tuple[Call, Call]:
    """One-class learning."""
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import OneClassSVM

    from mklearn import MKLOneClass

    X, _ = table("breast_cancer", quick)
    return (
        lambda: MKLOneClass().fit(X),
        lambda: make_pipeline(StandardScaler(), OneClassSVM()).fit(X),
    )


def survival(estimator: str) -> Callable[[bool], tuple[Call, Call]]:
    """Return the factory of a cell that learns from times, a third of them censored.

    The alternative is regression of their logarithms.
    """

    def make(quick: bool) -> tuple[Call, Call]:
        import numpy as np

        import mklearn

        X = table("diabetes", quick)[0][: 150 if quick else None]
        rng = np.random.default_rng(0)
        event = rng.exponential(np.exp(-5 * X[:, :3].sum(axis=1)))
        end = rng.exponential(2.0, len(X))
        y = np.column_stack([np.minimum(event, end), event <= end])
        cls, unit = getattr(mklearn, estimator), svr
        if estimator.endswith("CV"):
            unit = grid_svr
        logs = np.log(y[:, 0])
        return lambda: cls().fit(X, y), lambda: unit().fit(X, logs)

    return make


def views(quick: bool) -> tuple[Call, Call]:
    """Transformers of two views, compared with those of columns of a table."""
    from sklearn.compose import make_column_transformer
    from sklearn.impute import SimpleImputer
    from sklearn.preprocessing import StandardScaler

    from mklearn import MultiView, ViewTransformer

    X, _ = table("wide", quick)
    both = MultiView({"first": X[:, :30], "second": X[:, 30:]})
    ours = ViewTransformer({"first": StandardScaler(), "second": SimpleImputer()})
    unit = make_column_transformer(
        (StandardScaler(), slice(0, 30)), (SimpleImputer(), slice(30, 57))
    )
    return lambda: ours.fit_transform(both), lambda: unit.fit_transform(X)


def reduction(quick: bool) -> tuple[Call, Call]:
    """Supervised dimension reduction."""
    from sklearn.decomposition import KernelPCA
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    from mklearn import SubspaceKernel

    X, y = table("breast_cancer", quick)
    unit = make_pipeline(StandardScaler(), KernelPCA(2, kernel="rbf"))
    return (
        lambda: SubspaceKernel().fit_transform(X, y),
        lambda: unit.fit_transform(X),
    )


def single_kernel(quick: bool) -> tuple[Call, Call]:
    """One kernel and its regularisation, chosen together."""
    from mklearn import MKLDiscriminant, SingleKernelCV

    X, y = table("wine", quick)
    model = SingleKernelCV(MKLDiscriminant())
    return lambda: model.fit(X, y), lambda: grid_svc().fit(X, y)


def many_rows(loss: str) -> Callable[[bool], tuple[Call, Call]]:
    """Return the factory of a cell that learns from many rows in feature space."""

    def make(quick: bool) -> tuple[Call, Call]:
        from sklearn.datasets import make_classification
        from sklearn.kernel_approximation import Nystroem
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler
        from sklearn.svm import LinearSVC

        from mklearn import MKLClassifier

        n = 2000 if quick else 20_000
        X, y = make_classification(n, 20, n_informative=8, random_state=0)
        model = MKLClassifier(loss=loss, approximation="nystroem", rank=100)
        unit = make_pipeline(
            StandardScaler(), Nystroem(n_components=600, random_state=0), LinearSVC()
        )
        return lambda: model.fit(X, y), lambda: unit.fit(X, y)

    return make


def predictions(quick: bool) -> tuple[Call, Call]:
    """Prediction for many rows."""
    import numpy as np

    from mklearn import MKLClassifier

    X, y = table("wide", quick)
    new = np.random.default_rng(0).standard_normal((1000 if quick else 20_000, 57))
    ours, unit = MKLClassifier().fit(X, y), svc().fit(X, y)
    return lambda: ours.predict(new), lambda: unit.predict(new)


def many_widths(quick: bool) -> tuple[Call, Call]:
    """Fifty widths of one distance, computed on demand."""
    import numpy as np
    from sklearn.datasets import make_classification
    from sklearn.svm import SVC

    from mklearn import MKLClassifier, kernels

    X, y = make_classification(
        500 if quick else 5000, 20, n_informative=8, random_state=0
    )
    ladder = kernels.rbf_ladder(gammas=np.logspace(-3, 1, 50))
    return lambda: MKLClassifier(ladder).fit(X, y), lambda: SVC().fit(X, y)


def fifty_kernels(quick: bool) -> tuple[Call, Call]:
    """Prediction with many support vectors, since the labels are noise."""
    import warnings

    import numpy as np
    from sklearn.svm import SVC

    from mklearn import MKLClassifier, kernels

    rng = np.random.default_rng(0)
    n, rows, columns = (300, 1000, 20) if quick else (3000, 10_000, 20)
    X, y = rng.normal(size=(n, columns)), rng.integers(2, size=n)
    new = rng.normal(size=(rows, columns))
    ladder = kernels.rbf_ladder(gammas=np.logspace(-1, 1, 50) / columns)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a step is enough for what is measured here
        ours = MKLClassifier(ladder, norm=4, max_iter=1).fit(X, y)
    unit = SVC(gamma=1 / columns).fit(X, y)
    return lambda: ours.predict(new), lambda: unit.predict(new)


def evidence(quick: bool) -> tuple[Call, Call]:
    """Noise and weights by the evidence, with enough rows for factors to dominate."""
    from sklearn.datasets import make_friedman1

    from mklearn import EvidenceMKLRegressor

    X, y = make_friedman1(200 if quick else 1500, noise=1.0, random_state=0)
    return lambda: EvidenceMKLRegressor().fit(X, y), lambda: svr().fit(X, y)


def run(*command: str) -> None:
    """Run a command that must succeed, without its output.

    Installed packages have bytecode; a checkout gets it from the first process.
    """
    environment = dict(os.environ)
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    subprocess.run(command, check=True, capture_output=True, env=environment)


def imports(quick: bool) -> tuple[Call, Call]:
    """A process that only imports."""
    return (
        lambda: run(sys.executable, "-c", "import mklearn"),
        lambda: run(sys.executable, "-c", "import sklearn.svm"),
    )


def first_fit(quick: bool) -> tuple[Call, Call]:
    """A process that imports and fits once; compiled functions are on disk."""
    begin = "from sklearn.datasets import load_wine; d = load_wine(return_X_y=True); "
    ours = begin + "from mklearn import MKLClassifier; MKLClassifier().fit(*d)"
    unit = begin + (
        "from sklearn.svm import SVC; from sklearn.pipeline import make_pipeline; "
        "from sklearn.preprocessing import StandardScaler; "
        "make_pipeline(StandardScaler(), SVC()).fit(*d)"
    )
    return (
        lambda: run(sys.executable, "-c", ours),
        lambda: run(sys.executable, "-c", unit),
    )


_SCRIPT = """
import sys
import joblib, pandas as pd
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

folder, task, folds = sys.argv[1:]
table = pd.read_csv(folder + "/table.csv")
if task == "fit":
    X, y = table.drop(columns="kind"), table["kind"]
    grid = {"svc__C": [0.1, 1.0, 10.0, 100.0], "svc__gamma": [0.001, 0.01, 0.1, 1.0]}
    model = GridSearchCV(make_pipeline(StandardScaler(), SVC()), grid, cv=5)
    if folds != "0":
        print(cross_val_score(model, X, y, cv=int(folds)).mean())
    joblib.dump(model.fit(X, y), folder + "/model.joblib")
else:
    model = joblib.load(folder + "/model.joblib")
    rows = table.drop(columns="kind")
    out = pd.DataFrame({"prediction": model.predict(rows)})
    out.to_csv(folder + "/out.csv", index=False)
"""


def command(which: str) -> Callable[[bool], tuple[Call, Call]]:
    """Return the factory of a cell that runs a command on a table.

    In quick mode there are half as many rows, and two outer folds instead of five.
    """

    def make(quick: bool) -> tuple[Call, Call]:
        import pandas as pd

        X, y = (part[:: 2 if quick else 1] for part in table("wine", quick))
        folder = tempfile.mkdtemp()
        frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(X.shape[1])])
        frame.assign(kind=[f"c{k}" for k in y]).to_csv(
            f"{folder}/table.csv", index=False
        )
        mklearn = (sys.executable, "-m", "mklearn")
        fit = (
            *mklearn, "fit", f"{folder}/table.csv", "--target", "kind",
            "--out", f"{folder}/out",
        )  # fmt: skip
        predict = (
            *mklearn, "predict", f"{folder}/out/model.mkl", f"{folder}/table.csv",
            "--out", f"{folder}/predicted.csv",
        )  # fmt: skip
        script = (sys.executable, "-c", _SCRIPT, folder)
        if which == "fit":
            fewer = ("--cv", "2") if quick else ()
            folds = "2" if quick else "5"
            return lambda: run(*fit, *fewer), lambda: run(*script, "fit", folds)
        # any model will do for predictions: one without a search
        run(*fit, "--cv", "2", "--norm", "2", "--reg", "1"), run(*script, "fit", "0")
        return lambda: run(*predict), lambda: run(*script, "predict", "0")

    return make


_SVC = "StandardScaler + SVC"
_SVR = "StandardScaler + SVR"
_GRID = "GridSearchCV, 16 cells"
_SUM = "sum of the Grams + SVC"
_LINEAR = "Nystroem(600) + LinearSVC"


def grid_svc() -> Any:
    """Return the search with which CV estimators are compared."""
    return search(svc(), "svc")


def grid_svr() -> Any:
    """Return the same for numbers."""
    return search(svr(), "svr")


CELLS = (
    Cell("import mklearn", "import sklearn.svm", imports, True),
    Cell("first fit, new process", _SVC, first_fit, True),
    Cell("MKLClassifier, wine", _SVC, fits("MKLClassifier", "wine", svc)),
    Cell(
        "MKLClassifier norm=1, breast cancer", _SVC,
        fits("MKLClassifier", "breast_cancer", svc, norm=1),
    ),
    Cell("MKLClassifier, digits", _SVC, fits("MKLClassifier", "digits", svc)),
    Cell("MKLClassifier, 1500 x 57", _SVC, fits("MKLClassifier", "wide", svc)),
    Cell(
        "MKLClassifier loss=logistic, breast cancer", _SVC,
        fits("MKLClassifier", "breast_cancer", svc, loss="logistic"),
    ),
    Cell("MKLClassifier norm=1, 50 Grams of 1000", _SUM, grams(1, 1000, 50)),
    Cell("MKLClassifier norm=2, 50 Grams of 1000", _SUM, grams(2, 1000, 50)),
    Cell("MKLClassifier norm=2, 50 Grams of 2000", _SUM, grams(2, 2000, 50)),
    Cell("MKLClassifier norm=1, 2000 Grams of 300", _SUM, grams(1, 300, 2000)),
    Cell("MKLClassifier norm=1, 10 000 Grams of 100", _SUM, grams(1, 100, 10_000)),
    Cell(
        "MKLClassifier interleaved, 50 Grams of 1000", _SUM,
        grams(2, 1000, 50, solver="interleaved"),
    ),
    Cell("MKLClassifier, 50 widths of 5000 rows", "SVC", many_widths),
    Cell("MKLClassifier squared, 20 000 rows", _LINEAR, many_rows("squared")),
    Cell("MKLClassifier hinge, 20 000 rows", _LINEAR, many_rows("hinge")),
    Cell("MKLClassifier.predict, 20 000 rows", _SVC, predictions),
    Cell("MKLClassifier.predict, 50 kernels", "SVC, one kernel", fifty_kernels),
    Cell("MKLClassifierCV, wine", _GRID, fits("MKLClassifierCV", "wine", grid_svc)),
    Cell(
        "MKLClassifierCV, breast cancer", _GRID,
        fits("MKLClassifierCV", "breast_cancer", grid_svc),
    ),
    Cell("MKLRegressor, diabetes", _SVR, fits("MKLRegressor", "diabetes", svr)),
    Cell(
        "MKLRegressorCV, diabetes", _GRID, fits("MKLRegressorCV", "diabetes", grid_svr)
    ),
    Cell(
        "EvidenceMKLRegressor, diabetes", _GRID,
        fits("EvidenceMKLRegressor", "diabetes", grid_svr),
    ),
    Cell("EvidenceMKLRegressor, 1500 rows", _SVR, evidence),
    Cell("MKLCox, 442 times", f"{_SVR} of logarithms", survival("MKLCox")),
    Cell("MKLCoxCV, 442 times", f"{_GRID} of logarithms", survival("MKLCoxCV")),
    Cell(
        "MKLSurvivalSVM, 442 times", f"{_SVR} of logarithms",
        survival("MKLSurvivalSVM"),
    ),
    Cell("ViewTransformer, 1500 x 57", "ColumnTransformer", views),
    Cell("MKLOneClass, breast cancer", "StandardScaler + OneClassSVM", outliers),
    Cell("MKLDiscriminant, wine", _SVC, fits("MKLDiscriminant", "wine", svc)),
    Cell("MKLDiscriminant, 1500 x 57", _SVC, fits("MKLDiscriminant", "wide", svc)),
    Cell(
        "BilinearMKLClassifier, wine", _SVC, fits("BilinearMKLClassifier", "wine", svc)
    ),
    Cell(
        "BilinearMKLClassifier, digits", _SVC,
        fits("BilinearMKLClassifier", "digits", svc),
    ),
    Cell("SubspaceKernel, breast cancer", "StandardScaler + KernelPCA", reduction),
    Cell("SubspaceClassifier, wine", _SVC, fits("SubspaceClassifier", "wine", svc)),
    Cell(
        "SubspaceClassifierCV, wine", _GRID,
        fits("SubspaceClassifierCV", "wine", grid_svc),
    ),
    Cell(
        "UniformMKLClassifier, digits", _SVC,
        fits("UniformMKLClassifier", "digits", svc),
    ),
    Cell(
        "AlignmentMKLClassifier, digits", _SVC,
        fits("AlignmentMKLClassifier", "digits", svc),
    ),
    Cell(
        "BestKernelClassifier, wine", _GRID,
        fits("BestKernelClassifier", "wine", grid_svc),
    ),
    Cell("SingleKernelCV of MKLDiscriminant, wine", _GRID, single_kernel),
    Cell(
        "CrammerSingerClassifier, digits", _SVC,
        fits("CrammerSingerClassifier", "digits", svc),
    ),
    Cell("mklearn fit, wine", "script: nested GridSearchCV", command("fit"), True),
    Cell("mklearn predict, wine", "script: joblib + SVC", command("predict"), True),
)  # fmt: skip


# --- measuring ------------------------------------------------------------------------


def cpu(process: bool) -> float:
    """Return the CPU seconds so far, of this process or of its child processes."""
    who = resource.RUSAGE_CHILDREN if process else resource.RUSAGE_SELF
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


def repeated(call: Call, process: bool, most: int = 20) -> tuple[float, float, int]:
    """Return the CPU and wall seconds of a number of calls, and that number.

    CPU times of a few milliseconds are not measured well: short calls are repeated.
    """
    number, used, began = 0, cpu(process), time.perf_counter()
    while True:
        call()
        number += 1
        took = cpu(process) - used
        if took > 0.1 or number == most:
            return took, time.perf_counter() - began, number


def measure(cell: Cell, quick: bool) -> Found:
    """Return the shortest times of both calls, run alternately after a warm-up."""
    calls = dict(zip(("ours", "unit"), cell.make(quick), strict=True))
    best = {name: [float("inf")] * 2 for name in calls}
    spent = dict.fromkeys(calls, 0.0)
    enough = ENOUGH["quick" if quick else "full"]
    for call in calls.values() if not cell.process else ():
        call()  # may compile
    for repeat in range(REPEATS):
        for name, call in calls.items():
            if (quick or repeat > 1) and spent[name] > enough:
                continue
            took, wall, number = repeated(call, cell.process)
            spent[name] += took
            new = (took / number, wall / number)
            best[name] = [min(a, b) for a, b in zip(best[name], new, strict=True)]
    who = resource.RUSAGE_CHILDREN if cell.process else resource.RUSAGE_SELF
    return {
        "ratio": best["ours"][0] / max(best["unit"][0], 1e-6),
        "cpu": best["ours"][0],
        "wall": best["ours"][1],
        "unit_cpu": best["unit"][0],
        "unit_wall": best["unit"][1],
        "peak_mb": resource.getrusage(who).ru_maxrss / 1024,
    }


class CellError(RuntimeError):
    """The process of a cell ended with an error."""


def in_process(cells: Sequence[Cell], quick: bool, source: Path) -> list[Found]:
    """Measure cells in one new process, with the library of a checkout."""
    paths = [str(source), os.environ.get("PYTHONPATH", "")]
    names = [part for cell in cells for part in ("--cell", cell.name)]
    done = subprocess.run(
        [sys.executable, __file__, *names, *["--quick"] * quick],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    found = [json.loads(line) for line in done.stdout.splitlines()]
    if done.returncode:
        cell = cells[len(found)]
        raise CellError(f"{cell.name}: the process ended with {done.returncode}")
    return found


def measure_again(cell: Cell, quick: bool, source: Path) -> Found:
    """Measure one cell in a process to itself."""
    [found] = in_process([cell], quick, source)
    return found


@cache
def checkout(commit: str) -> Path | None:
    """Return a folder with the sources of a commit, None if it is unknown."""
    found = git("archive", commit, "src")
    if found is None:
        return None
    folder = Path(tempfile.mkdtemp())
    with tarfile.open(fileobj=io.BytesIO(found)) as archive:
        archive.extractall(folder, filter="data")
    return folder / "src"


def git(*arguments: str) -> bytes | None:
    """Return the output of git, None on errors."""
    command = ["git", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, cwd=ROOT, check=False)
    except OSError:
        return None
    return None if done.returncode else done.stdout


def as_entered(commit: str) -> Path | None:
    """Return the sources at the time of an entry.

    If the commit does not exist any more, the sources are those of the commit that
    added the last entry; in a shallow clone this commit is unknown.
    """
    found = checkout(commit)
    if found is None and git("rev-parse", "--is-shallow-repository") == b"false\n":
        brought = git("log", "-1", "--format=%H", "--", str(HISTORY))
        if brought is not None and brought.strip():
            return checkout(brought.decode().strip())
    return found


def slowdown(cell: Cell, quick: bool, commit: str) -> float | None:
    """Return the CPU time of a cell relative to that with the sources of a commit.

    Both are measured alternately on this machine, so that other load affects both. None
    if the commit, or what the cell calls, does not exist.
    """
    before = as_entered(commit)
    if before is None:
        return None
    best = {ROOT / "src": float("inf"), before: float("inf")}
    for _ in range(TURNS):
        for source, least in best.items():
            try:
                best[source] = min(least, measure_again(cell, quick, source)["cpu"])
            except CellError:
                return None
    return best[ROOT / "src"] / best[before]


# --- the history ----------------------------------------------------------------------


def about(mode: str) -> dict[str, str]:
    """Return the values that all cells of an entry share."""
    found = git("rev-parse", "--short", "HEAD")
    return {
        "date": datetime.date.today().isoformat(),
        "commit": (found or b"?").decode().strip(),
        "mode": mode,
        "processor": processor(),
        "load": f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "",
    }


def processor() -> str:
    """Return the name of the processor, and the number of its cores."""
    name = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        named = (line for line in lines if line.startswith("model name"))
        name = next(named).split(":")[1].strip()
    except (OSError, StopIteration):
        pass
    return f"{name}, {os.cpu_count()} cores"


def entries(mode: str) -> list[list[dict[str, str]]]:
    """Return the entries of a mode, oldest first, each a list of its cells."""
    if not HISTORY.exists():
        return []
    with HISTORY.open(newline="") as lines:
        rows = [row for row in csv.DictReader(lines) if row["mode"] == mode]
    found: dict[tuple[str, str], list[dict[str, str]]] = {}
    for row in rows:
        found.setdefault((row["date"], row["commit"]), []).append(row)
    return list(found.values())


def append(rows: list[dict[str, Any]]) -> None:
    """Add an entry to the table."""
    new = not HISTORY.exists()
    with HISTORY.open("a", newline="") as out:
        writer = csv.DictWriter(out, FIELDS, lineterminator="\n")
        if new:
            writer.writeheader()
        for row in rows:
            writer.writerow(
                {k: f"{v:.4g}" if isinstance(v, float) else v for k, v in row.items()}
            )


def write_page() -> None:
    """Write the page: the last entry in full, and the ratios of those before."""
    known = entries("full")[-6:]
    last = list({row["cell"]: row for row in known[-1]}.values())  # measured last
    first = last[0]
    lines = [
        "# Cost of each estimator with default settings",
        "",
        "Written by `python benchmarks/history.py`, which calls every public estimator "
        "and both commands with their defaults and compares the CPU time with that of "
        "the usual alternative on the same data (the *unit*). The last entry was "
        f"recorded on {first['date']} at commit {first['commit']} on "
        f"{first['processor']}, for {len({row['cell'] for row in last})} of "
        f"{len(CELLS)} cells; the last column is the load of the machine when a cell "
        "was started. If it exceeds the number of cores, wall times depend mostly on "
        "other processes.",
        "",
        "| cell | unit | ratio | CPU s | wall s | unit CPU s | unit wall s | peak MB "
        "| load |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    keys = ("ratio", "cpu", "wall", "unit_cpu", "unit_wall", "peak_mb", "load")
    for row in last:
        shown = (f"{float(row[key] or 'nan'):.3g}" for key in keys)
        lines.append(f"| {row['cell']} | {row['unit']} | " + " | ".join(shown) + " |")
    if len(known) > 1:
        names = [f"{e[0]['date']} {e[0]['commit']}" for e in known]
        lines += [
            "", "## CPU ratios of the last entries", "",
            "| cell | " + " | ".join(names) + " |", "|---|" + "---:|" * len(known),
        ]  # fmt: skip
        for row in last:
            of_cell = ({r["cell"]: r["ratio"] for r in entry} for entry in known)
            ratios = [found.get(row["cell"], "") for found in of_cell]
            lines.append(f"| {row['cell']} | " + " | ".join(ratios) + " |")
    PAGE.write_text("\n".join(lines) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument(
        "--record", action="store_true", help="of quick, or of some cells, too"
    )
    parser.add_argument("--only", nargs="+", metavar="WORD", help="cells with a word")
    parser.add_argument("--against", type=Path, help="another checkout of the library")
    parser.add_argument("--cell", action="append", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.cell:
        known = {cell.name: cell for cell in CELLS}
        for name in args.cell:
            print(json.dumps(measure(known[name], args.quick)), flush=True)
        return 0
    mode = "quick" if args.quick else "full"
    cells = [c for c in CELLS if not args.only or any(w in c.name for w in args.only)]
    same, before = about(mode), entries(mode)
    # of each cell the last ratio: an entry may be of some cells only
    last = {row["cell"]: row for rows in before for row in rows}
    print(f"{same['processor']}, load {same['load']}, commit {same['commit']}")
    head = (
        f"{'cell':45} {'ratio':>7} {'CPU s':>8} {'wall s':>8} {'unit CPU':>9} {'MB':>6}"
    )
    print(head + ("   new / old CPU" if args.against else ""), flush=True)
    rows, worse = [], []
    groups = [cells] if args.quick else [[cell] for cell in cells]
    measured = (in_process(group, args.quick, ROOT / "src") for group in groups)
    for cell, found in zip(cells, chain.from_iterable(measured), strict=True):
        known = last.get(cell.name)
        was = float(known["ratio"]) if known else float("inf")
        for _ in range(ATTEMPTS - 1):
            if found["ratio"] <= LIMIT * was:
                break
            again = measure_again(cell, args.quick, ROOT / "src")
            found = min(found, again, key=lambda one: one["ratio"])
        line = (
            f"{cell.name:45} {found['ratio']:7.2f} {found['cpu']:8.4f} "
            f"{found['wall']:8.4f} {found['unit_cpu']:9.4f} {found['peak_mb']:6.0f}"
        )
        if args.against:
            old = measure_again(cell, args.quick, args.against / "src")
            again = measure_again(cell, args.quick, ROOT / "src")
            line += f"   {min(found['cpu'], again['cpu']) / old['cpu']:.2f}"
        if args.quick and known and found["ratio"] > LIMIT * was:
            times = slowdown(cell, args.quick, known["commit"])
            said = "unknown" if times is None else f"{times:.2f} times the CPU time"
            said = (
                f"{found['ratio']:.2f}, was {was:.2f}; beside {known['commit']} {said}"
            )
            line += f"   {said}"
            if times is None or times > LIMIT:
                worse.append(f"{cell.name}: {said}")
        print(line, flush=True)
        rows.append({**same, "cell": cell.name, "unit": cell.unit, **found})
    if args.record or not (args.only or args.quick):
        append(rows)
        if not args.quick:
            write_page()
    if worse:
        print(f"above {LIMIT:g} times the last entry:", *worse, sep="\n  ")
    return bool(worse)


if __name__ == "__main__":
    sys.exit(main())
