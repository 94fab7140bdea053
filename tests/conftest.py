"""Settings of all tests."""

import os
import pkgutil
import sys
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"

# on a busy machine, drawing examples may be slow
settings.register_profile("any machine", suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


def pytest_addoption(parser):
    parser.addoption(
        "--screenshots", metavar="FOLDER", help="keep what the browser has shown here"
    )


def pytest_configure(config):
    # Workers of pytest-xdist share the cores: threads of BLAS beyond a worker's share
    # wait for each other in loops, which takes the time of the other workers.
    workers = config.getoption("numprocesses", default=None)
    if workers:
        share = max(1, (os.cpu_count() or 1) // workers)
        os.environ.setdefault("OPENBLAS_NUM_THREADS", str(share))


@pytest.fixture(scope="module")
def few_to_choose_from():
    """Let ``mklearn fit`` try and repeat little: that is tested on its own."""
    models = pytest.importorskip("mklearn.cli.models")
    from mklearn.interpretation import kernel_importance

    folds = models._inner_folds
    few = {
        "learning.PARTS": (0.5, 1.0),
        "models._inner_folds": lambda *given: min(3, folds(*given)),
        "models.NORMS": (1.0, 2.0, float("inf")),
        "models.COSTS": [0.1, 10.0],
        "models.SVM_COSTS": (1.0,),
        "models.SVM_WIDTHS": (0.25, 1.0),
        "models.RATES": (0.2,),
        "models.ROUNDS": 20,
        "refits.EXACT": 2,
        "refits.ORDERS": 4,
        "shares.RESAMPLES": 4,
        "shares.kernel_importance": partial(kernel_importance, n_repeats=9),
    }
    few = {f"mklearn.cli.{name}": value for name, value in few.items()}
    before = {name: pkgutil.resolve_name(name) for name in few}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in few.items():
            patch.setattr(name, value)
        yield before


@pytest.fixture
def benchmarks(monkeypatch):
    """Let scripts of benchmarks/ be imported by name; forget them afterwards."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield
    for script in BENCHMARKS.glob("*.py"):
        sys.modules.pop(script.stem, None)
