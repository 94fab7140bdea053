"""One pool of threads: the right results, no deadlock, BLAS as it was."""

import os
import subprocess
import sys
import threading
import time

import numba
import numpy as np
import pytest
from threadpoolctl import threadpool_info

from mklearn import MKLClassifier
from mklearn.data import threads
from mklearn.data.threads import in_order, one_blas_thread, run_blocks


@pytest.fixture
def four(monkeypatch):
    monkeypatch.setattr(numba.config, "NUMBA_NUM_THREADS", 4)
    monkeypatch.setattr(threads, "_WORTH", 1e-9)  # wake them for anything


def blas():
    return [
        lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"
    ]


def slow_square(x):
    time.sleep(0.001)
    return x * x


def test_results_come_in_order(four):
    want = [x * x for x in range(50)]
    assert run_blocks(slow_square, range(50)) == want
    assert list(in_order(slow_square, range(50))) == want
    assert run_blocks(slow_square, []) == []


def test_calls_within_calls_from_many_threads(four):
    def sums(n):
        inner = [sum(run_blocks(slow_square, range(k))) for k in range(n)]
        return [*inner, sum(in_order(slow_square, range(n)))]

    want = [sums(n) for n in range(8)]
    found = {}

    def one(i):
        found[i] = run_blocks(sums, range(8))

    callers = [threading.Thread(target=one, args=(i,)) for i in range(12)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(60)
    assert [found[i] for i in range(12)] == [want] * 12
    ours = [t for t in threading.enumerate() if t.name.startswith("mklearn")]
    assert len(ours) <= max(4, os.cpu_count())


def test_an_error_in_a_block_is_the_callers(four):
    def fail(x):
        time.sleep(0.001)
        if x == 7:
            raise RuntimeError("seven")
        return x

    for _ in range(5):
        with pytest.raises(RuntimeError, match="seven"):
            run_blocks(fail, range(40))
        with pytest.raises(RuntimeError, match="seven"):
            list(in_order(fail, range(40)))


def test_blas_is_as_it_was_whoever_leaves_last(four):
    before, seen = blas(), []
    rng = np.random.default_rng(0)
    waits = rng.uniform(0, 0.01, (16, 2))

    def inside(first, then):
        time.sleep(first)
        with one_blas_thread:
            time.sleep(then)
            seen.append(blas())

    for _ in range(3):
        users = [threading.Thread(target=inside, args=tuple(w)) for w in waits]
        for user in users:
            user.start()
        for user in users:
            user.join()
        assert blas() == before
    assert seen == [[1] * len(before)] * 48


def test_concurrent_fits_are_those_of_one(four):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 3)), rng.integers(2, size=60)
    before, found = blas(), {}

    def fit(i):
        model = MKLClassifier(norm=1 + i % 3).fit(X[: 40 + i], y[: 40 + i])
        found[i] = model.kernel_weights_

    many = [threading.Thread(target=fit, args=(i,)) for i in range(9)]
    for one in many:
        one.start()
    for one in many:
        one.join()
    assert blas() == before
    for i in range(9):
        alone = MKLClassifier(norm=1 + i % 3).fit(X[: 40 + i], y[: 40 + i])
        np.testing.assert_array_equal(found[i], alone.kernel_weights_)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_has_threads_of_its_own(four):
    run_blocks(slow_square, range(20))  # the parent has some
    before = blas()
    inside, leave = threading.Event(), threading.Event()

    def stay():
        with one_blas_thread:
            inside.set()
            leave.wait(30)

    other = threading.Thread(target=stay)
    other.start()
    inside.wait(30)
    child = os.fork()
    if child == 0:
        right = run_blocks(slow_square, range(20)) == [x * x for x in range(20)]
        os._exit(0 if right and blas() == before else 1)
    leave.set()
    other.join()
    assert os.waitpid(child, 0)[1] == 0
    assert blas() == before


def test_one_thread_means_one():
    code = (
        "import threading, numpy as np\n"
        "from mklearn import MKLClassifier\n"
        "X = np.random.default_rng(0).normal(size=(400, 3))\n"
        "G = 1, 2, 3\n"
        "K = np.stack([np.exp(-g * ((X[:, None] - X) ** 2).sum(2)) for g in G], 2)\n"
        "y = X[:, 0] > 0\n"
        "MKLClassifier('precomputed').fit(K, y).predict(K)\n"
        "MKLClassifier(approximation='nystroem', rank=5).fit(X, y).predict(X)\n"
        "print(threading.active_count())\n"
    )
    alone = {**os.environ, "NUMBA_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=alone, capture_output=True, text=True
    )
    assert done.stdout.split() == ["1"], done.stderr
