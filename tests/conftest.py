"""Settings of all tests."""

import os

import pytest
from hypothesis import HealthCheck, settings

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
    """Let the searches of ``mklearn fit`` try little: they are tested on their own."""
    models = pytest.importorskip("mklearn.cli.models")
    few = {
        "NORMS": (1.0, 2.0, float("inf")),
        "COSTS": [0.1, 10.0],
        "SVM_COSTS": (1.0,),
        "SVM_WIDTHS": (0.25, 1.0),
        "RATES": (0.2,),
    }
    before = {name: getattr(models, name) for name in few}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in few.items():
            patch.setattr(models, name, value)
        yield before
