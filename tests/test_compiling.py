"""Compiled functions: where they are kept, and that compiling is announced once."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numba

import mklearn

CALL = """
import logging, sys
form = "%(name)s %(message)s"
logging.basicConfig(level=logging.INFO, stream=sys.stdout, format=form)
import numpy as np
from mklearn.kernels.functions import _add_scaled
from mklearn.solvers.sweeps import _axpy
out = np.zeros(2)
for _ in range(2):
    _axpy(2.0, np.array([1.0, -1.0]), out)
    _add_scaled(np.ones(2), 0.5, out)
print(out.tolist(), *(sum(f.stats.cache_hits.values()) for f in (_axpy, _add_scaled)))
"""


def run(source, **env):
    """Return what a new process says that calls two small compiled functions twice."""
    env = {**os.environ, "PYTHONPATH": str(source), **env}
    env.pop("NUMBA_CACHE_DIR", None)
    done = subprocess.run(
        [sys.executable, "-c", CALL], capture_output=True, text=True, env=env
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr  # no terminal is there to be written to
    lines = done.stdout.splitlines()  # other packages may log as well
    return [line for line in lines if line.startswith(("mklearn ", "["))]


def unwritable(folder):
    """Return a copy of the package beside which nothing can be kept.

    For the superuser no folder is read-only; a file in the place of the one that numba
    wants stops everybody.
    """
    package = shutil.copytree(
        Path(mklearn.__file__).parent,
        folder / "mklearn",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    for part in [package, *package.rglob("*/")]:
        (part / "__pycache__").touch()
    return folder


def test_compiled_functions_are_kept_for_the_user_beside_a_read_only_package(tmp_path):
    source, cache = unwritable(tmp_path / "source"), tmp_path / "cache"
    home = {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(cache)}
    notice, answer = run(source, **home)
    assert notice.startswith("mklearn ") and "compiling" in notice
    assert answer == "[5.0, -3.0] 0 0"
    assert list(cache.rglob("*.nbi"))
    assert run(source, **home) == ["[5.0, -3.0] 1 1"]  # from disk: nothing to announce


def test_compiled_functions_work_where_nothing_can_be_written(tmp_path):
    source = unwritable(tmp_path / "source")
    taken = tmp_path / "cache"
    taken.touch()
    lines = run(source, HOME=str(taken), XDG_CACHE_HOME=str(taken))
    assert lines[-1] == "[5.0, -3.0] 0 0" and len(lines) == 2


def test_functions_without_a_module_are_none_of_ours():
    # as the constructors that numba makes for classes of other packages
    space = {}
    exec("def plus(x):\n    return x + 1.0", {"__name__": None}, space)
    assert numba.njit(space["plus"])(1.0) == 2.0
