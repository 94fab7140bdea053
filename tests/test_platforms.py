"""What can be known of Windows and macOS without such a machine."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

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
from mklearn import MKLClassifierCV
from mklearn.kernels import rbf_ladder


def fitted(n_jobs):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3))
    y = np.where(X[:, 0] + 0.5 * rng.standard_normal(60) > 0, 1, 0)
    grid = dict(Cs=[0.1, 1.0], norms=[1], cv=2)
    return MKLClassifierCV(rbf_ladder(2), **grid, n_jobs=n_jobs).fit(X, y)


def scores(n_jobs):
    return fitted(n_jobs).mean_scores_.tolist()


if __name__ == "__main__":
    multiprocessing.set_start_method("spawn")
    alone = scores(None)
    with parallel_config(backend="multiprocessing"):
        assert scores(2) == alone
    with multiprocessing.Pool(1) as pool:
        assert pool.apply(scores, (None,)) == alone
        model = pool.apply(fitted, (None,))  # a model that comes back from a process
    assert model.mean_scores_.tolist() == alone
    print("alike")
"""


def test_spawned_processes_give_the_same_answer(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SPAWNED, encoding="utf-8")
    run = subprocess.run([sys.executable, script], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout == "alike\n"


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
        "--norm", "2", "--reg", "1", "--out", "answer", "--json",
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
