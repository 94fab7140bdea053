"""What can be known of Windows and macOS without such a machine."""

import ast
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from mklearn import MKLClassifier
from mklearn.data.writing import whole_files
from mklearn.persistence import save
from mklearn.report import Report, describe_data, write_html, write_json

SOURCE = Path(__file__).parents[1] / "src" / "mklearn"
FILES = sorted(SOURCE.rglob("*.py"))
# modules of the standard library that Windows does not have
UNIX = {"crypt", "curses", "fcntl", "grp", "nis", "posix", "pty", "pwd", "resource",
        "syslog", "termios", "tty"}  # fmt: skip
# what other systems lack, or do otherwise
MISSING = {"fork", "forkpty", "getuid", "geteuid", "killpg", "mkfifo", "prctl",
           "sched_getaffinity", "setrlimit", "uname"}  # fmt: skip


def named(path):
    return path.relative_to(SOURCE).as_posix()


def calls(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            yield name, node


def keywords(node):
    return {keyword.arg for keyword in node.keywords}


@pytest.mark.parametrize("path", FILES, ids=named)
def test_nothing_is_imported_or_called_that_a_system_lacks(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    imported = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            imported.add(node.module.split(".")[0])
    assert not imported & UNIX
    assert not {name for name, _ in calls(tree)} & MISSING


def is_text(node):
    """Tell whether a call of open is for text: the mode is a constant without a b."""
    given = [*node.args[1:2], *(k.value for k in node.keywords if k.arg == "mode")]
    return not any(isinstance(m, ast.Constant) and "b" in str(m.value) for m in given)


@pytest.mark.parametrize("path", FILES, ids=named)
def test_text_has_one_encoding_and_one_end_of_line_everywhere(path):
    for name, node in calls(ast.parse(path.read_text(encoding="utf-8"))):
        where = f"{named(path)}, line {node.lineno}: {name}"
        if name == "open" and isinstance(node.func, ast.Name) and is_text(node):
            assert "encoding" in keywords(node), where
        elif name == "read_text":
            assert node.args or "encoding" in keywords(node), where
        elif name == "write_text":
            assert {"encoding", "newline"} <= keywords(node), where


# --- processes that are spawned, as on Windows and macOS ------------------------------

SPAWNED = """
import multiprocessing, sys
import numpy as np
from joblib import parallel_config
from mklearn import MKLClassifier, MKLClassifierCV
from mklearn.interpretation import weight_stability
from mklearn.kernels import rbf_ladder


def samples():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3))
    return X, np.where(X[:, 0] + 0.5 * rng.standard_normal(60) > 0, 1, 0)


def fitted(n_jobs):
    grid = dict(Cs=[0.1, 1.0], norms=[1], cv=2)
    return MKLClassifierCV(rbf_ladder(2), **grid, n_jobs=n_jobs).fit(*samples())


def scores(n_jobs):
    return fitted(n_jobs).mean_scores_.tolist()


def weights(n_jobs):
    model = MKLClassifier(rbf_ladder(2))
    options = dict(n_resamples=3, random_state=0, n_jobs=n_jobs)
    return weight_stability(model, *samples(), **options).weights.tolist()


def listed():
    from mklearn.cli import main

    sys.argv = ["mklearn", "kernels", "--json"]
    try:
        main()
    except SystemExit as end:
        return end.code or 0


if __name__ == "__main__":
    multiprocessing.set_start_method("spawn")
    alone = scores(None)
    with parallel_config(backend="multiprocessing"):
        assert scores(2) == alone
        assert weights(2) == weights(None)
    with multiprocessing.Pool(1) as pool:
        assert pool.apply(scores, (None,)) == alone
        model = pool.apply(fitted, (None,))  # a model that comes back from a process
        assert pool.apply(listed) == 0  # the command line
    assert model.mean_scores_.tolist() == alone
    print("alike")
"""


def test_spawned_processes_give_the_same_answer(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SPAWNED, encoding="utf-8")
    pytest.importorskip("typer")
    run = subprocess.run(
        [sys.executable, script], cwd=tmp_path, capture_output=True, encoding="utf-8"
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.endswith("alike\n")


# --- files that are open, as Windows treats them --------------------------------------


@pytest.fixture
def as_on_windows(monkeypatch):
    """Files that are open, by name: none of them can be replaced."""
    held, replace = {}, os.replace

    def refusing(source, target):
        held[Path(target).name] = held.get(Path(target).name, 0) - 1
        if held[Path(target).name] >= 0:
            why = "The process cannot access the file"
            raise PermissionError(13, why, str(source), None, str(target))
        replace(source, target)

    monkeypatch.setattr(os, "replace", refusing)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    return held


def write_report(path):
    report = Report(
        title="A", data=describe_data(X, Y), model=MKLClassifier("linear").fit(X, Y)
    )
    write_html(path, report)


X = np.random.default_rng(0).standard_normal((12, 2))
Y = np.arange(12) % 2
WRITERS = {
    "model.mkl": lambda path: save(MKLClassifier("linear").fit(X, Y), path),
    "report.html": write_report,
    "results.json": lambda path: write_json(path, {"a": 1}),
}


@pytest.mark.parametrize("name", WRITERS)
def test_files_are_replaced_when_their_reader_has_finished(
    name, tmp_path, as_on_windows
):
    path = tmp_path / name
    path.write_text("old", encoding="utf-8", newline="\n")
    as_on_windows[name] = 20  # so many attempts are refused
    WRITERS[name](path)
    assert path.read_bytes() != b"old"
    assert os.listdir(tmp_path) == [name]


@pytest.mark.parametrize("name", WRITERS)
def test_files_that_stay_open_stay_as_they_are(name, tmp_path, as_on_windows):
    path = tmp_path / name
    path.write_text("old", encoding="utf-8", newline="\n")
    as_on_windows[name] = 10**6
    with pytest.raises(PermissionError):
        WRITERS[name](path)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == [name]


def test_results_of_a_run_wait_for_each_of_their_readers(tmp_path, as_on_windows):
    for name in "ab":
        (tmp_path / name).write_text("old", encoding="utf-8", newline="\n")
    as_on_windows.update(a=3, b=5)
    with whole_files(tmp_path) as folder:
        for name in "abc":
            (folder / name).write_text("new", encoding="utf-8", newline="\n")
    assert {p.name: p.read_text(encoding="utf-8") for p in tmp_path.iterdir()} == (
        dict.fromkeys("abc", "new")
    )


def test_the_command_line_names_the_file_that_is_open(tmp_path, as_on_windows, capsys):
    pytest.importorskip("typer")
    from mklearn.cli.ends import writing

    (tmp_path / "report.html").write_text("old", encoding="utf-8", newline="\n")
    (tmp_path / "model.mkl").write_text("old", encoding="utf-8", newline="\n")
    as_on_windows["report.html"] = 10**6
    with pytest.raises(SystemExit) as end, writing(tmp_path):
        with whole_files(tmp_path) as folder:
            for name in ("model.mkl", "report.html"):
                (folder / name).write_text("new", encoding="utf-8", newline="\n")
    assert end.value.code == 2
    said = capsys.readouterr().err
    assert "is report.html open in another program?" in said and said.count("\n") == 1
    assert {p.read_text(encoding="utf-8") for p in tmp_path.iterdir()} == {"old"}


def test_archives_are_closed_before_they_take_their_name(tmp_path, monkeypatch):
    closed, replace = [], os.replace

    def checked(source, target):
        links = Path("/proc/self/fd")  # Windows would refuse to move an open file
        if links.is_dir():
            held = {os.path.realpath(link) for link in links.iterdir()}
            closed.append(os.path.realpath(source) not in held)
        replace(source, target)

    monkeypatch.setattr(os, "replace", checked)
    for name, write in WRITERS.items():
        write(tmp_path / name)
    assert all(closed)


# --- terminals and files of other encodings -------------------------------------------


def mklearn(*args, cwd, **environment):
    return subprocess.run(
        [sys.executable, "-m", "mklearn", *map(str, args)],
        cwd=cwd,
        env=os.environ | environment,
        capture_output=True,
    )


COMMANDS = """
import runpy, sys

for encoding in sys.argv[1:]:
    sys.stdout = open(encoding, "w", encoding=encoding, errors="strict")
    for arguments in (["kernels"], ["--help"], ["fit", "--help"]):
        sys.argv = ["mklearn", *arguments]
        try:
            runpy.run_module("mklearn", run_name="__main__")
        except SystemExit as end:
            assert not end.code, arguments
        print("done:", *arguments)
    sys.stdout.close()
"""
ENCODINGS = ("ascii", "cp1252", "cp437")


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """What one process shows on terminals of all encodings, one after another."""
    pytest.importorskip("typer")
    folder = tmp_path_factory.mktemp("terminals")
    run = subprocess.run(
        [sys.executable, "-c", COMMANDS, *ENCODINGS],
        cwd=folder,
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
        capture_output=True,
    )
    assert run.returncode == 0, run.stderr
    return {name: (folder / name).read_bytes() for name in ENCODINGS}


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_any_terminal_can_show_what_is_printed(encoding, shown):
    lines = shown[encoding].decode(encoding).splitlines()
    ends = [line for line in lines if line.startswith("done:")]
    assert ends == ["done: kernels", "done: --help", "done: fit --help"]
    assert len(lines) > 20


@pytest.mark.parametrize("encoding", ["utf-8", "cp1252"])
def test_names_beyond_ascii_survive_any_locale(encoding, tmp_path):
    pytest.importorskip("typer")
    pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    rows = ["größe,température,state"]
    for i in range(40):
        a, b = rng.normal(size=2) + i % 2
        rows.append(f"{a:.3f},{b:.3f},{'schön' if i % 2 else 'µ'}")
    (tmp_path / "table.csv").write_bytes("\n".join(rows).encode())
    run = mklearn(
        "fit", "table.csv", "--target", "state", "--cv", "2", "--kernels", "linear",
        "--norm", "2", "--reg", "1", "--by-view", "none", "--out", "answer", "--json",
        cwd=tmp_path, PYTHONIOENCODING=encoding, PYTHONUTF8="0", LC_ALL="C",
    )  # fmt: skip
    assert run.returncode == 0, run.stderr.decode("utf-8", "replace")
    assert json.loads(run.stdout.decode(encoding))["data"]["classes"].keys() == {
        "schön",
        "µ",
    }
    results = (tmp_path / "answer" / "predictions.csv").read_text(encoding="utf-8")
    assert "schön" in results
    assert b"\r" not in (tmp_path / "answer" / "weights.csv").read_bytes()


UNKNOWN = """
import sys
from mklearn.cli import commands

commands.make_app = lambda: lambda: print("µ \\u2026")
commands.main()
"""


def test_characters_that_a_terminal_lacks_are_escaped(tmp_path):
    pytest.importorskip("typer")
    run = subprocess.run(
        [sys.executable, "-c", UNKNOWN],
        cwd=tmp_path,
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
        capture_output=True,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.decode("ascii").strip() == r"\xb5 \u2026"
