"""What all tests have in common."""

import os

from hypothesis import HealthCheck, settings

# a busy machine draws examples slowly
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
