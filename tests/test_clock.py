"""The time limit of a fit: it ends passes, and what was reached is kept."""

import time

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from mklearn import Hinge, KernelBank, LpBall, MKLClassifier, MKLProblem, solve
from mklearn.data.clock import Clock, OutOfTimeError, check_time
from mklearn.data.threads import in_order, run_blocks
from mklearn.solvers import Status

EPS = np.finfo(float).eps


def test_passes_end_between_blocks():
    done = []

    def work(block):
        done.append(block)
        time.sleep(0.002)

    clock = Clock.start(0.01)
    for run in (run_blocks, lambda *args: list(in_order(*args))):
        done.clear()
        clock = Clock.start(0.01)
        with pytest.raises(OutOfTimeError, match="raise it"), clock.within():
            run(work, range(1000))
        assert 0 < len(done) < 1000
    assert clock.left() == 0.0
    check_time()  # nobody's time is over outside
    assert len(run_blocks(work, range(3))) == 3


def test_the_shorter_limit_holds():
    with Clock.start(1e-9).within(), Clock.start(100.0).within():
        time.sleep(1e-3)
        with pytest.raises(OutOfTimeError):
            check_time()
    with Clock(None).within():
        check_time()
    assert Clock.start(None).left() is None


def test_what_any_answer_needs_has_a_grace():
    clock = Clock.start(1e-9)
    time.sleep(1e-3)
    with clock.preparing():
        check_time()
    with clock.within(), clock.preparing(), pytest.raises(OutOfTimeError):
        check_time()
    with Clock.start(None).preparing():
        check_time()
    assert Clock.start(100.0).grace == 10.0


def test_a_limit_that_ends_before_the_kernels_is_an_error():
    def slow(X, Z):
        time.sleep(0.4)  # for a block of rows; the grace is half a second
        return X @ Z.T

    X = np.random.default_rng(0).normal(size=(200, 3))
    model = MKLClassifier([slow], time_limit=1e-9)
    with pytest.raises(TimeoutError, match="time_limit was reached before"):
        model.fit(X, np.arange(200) % 2)


def test_a_limit_that_ends_within_a_pass_of_the_solver_keeps_a_point():
    n = 600
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(n, 3)), np.where(np.arange(n) % 2, 1.0, -1.0)
    D = np.sum((X[:, None] - X) ** 2, axis=2)
    stack = np.stack([np.exp(-g * D) for g in np.logspace(-2, 1, 40)], axis=2)
    Y = y[:, None]
    loss = Hinge(Y, np.ones_like(Y))
    problem = MKLProblem(KernelBank.from_grams(stack), loss, LpBall(2.0))
    with pytest.warns(ConvergenceWarning, match="time_limit was reached"):
        found = solve(problem, tol=1e-9, time_limit=1e-6)
    assert found.status is Status.TIME_LIMIT
    assert found.lower <= found.upper and np.isfinite(found.upper)
    # the sums of a pass that was cut short are not in the order of those of the check
    assert found.check(problem) == pytest.approx(found.gap, abs=40 * n * EPS)
