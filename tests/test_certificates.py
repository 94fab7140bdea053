"""Certificates hold whatever rounding does, and no fit ends in what is no model."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from mklearn import (
    EvidenceMKLRegressor,
    KernelBank,
    MKLClassifier,
    MKLDiscriminant,
    MKLOneClass,
    MKLRegressor,
    solve,
)
from mklearn.problems import BilinearProblem, MKLProblem
from mklearn.problems.base import Certificate
from mklearn.problems.coupled import CrammerSinger, OneClass
from mklearn.problems.losses import Hinge, Squared
from mklearn.problems.weights import BlockNorm, ElasticNet, Ellipsoid, LpBall
from mklearn.solvers import Status

ROOT = Path(__file__).parents[1]
LONG = np.longdouble

extended = pytest.mark.skipif(
    np.finfo(LONG).nmant < 63, reason="there is no extended precision here"
)


def grams(n, M=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    d = ((X[:, None] - X[None]) ** 2).sum(axis=2)
    return np.stack([np.exp(-(0.1 + m) * d) for m in range(M)], axis=2)


def signs(n, seed=0):
    y = np.where(np.random.default_rng(seed).random(n) < 0.5, -1.0, 1.0)
    y[:2] = -1.0, 1.0
    return y[:, None]


def hinge(n, C, weights, seed=0):
    loss = Hinge(signs(n, seed), np.full((n, 1), C))
    return MKLProblem(KernelBank.from_grams(grams(n, seed=seed)), loss, weights)


# --- rounding -------------------------------------------------------------------------


@extended
@pytest.mark.parametrize("C", [1.0, 3.8e10, 1e15])
@pytest.mark.parametrize("n", [2, 12])
@pytest.mark.parametrize("p", [1, 2, np.inf])
def test_bounds_of_a_hinge_loss_in_extended_precision(n, C, p):
    task = hinge(n, C, LpBall(p))
    point = solve(hinge(n, 1.0, LpBall(p)), tol=1e-10).iterate()
    found = task.certify(point, point)
    K = [task.bank.gram(m).astype(LONG) for m in range(3)]
    theta, A = found.theta.astype(LONG), found.A[:, 0].astype(LONG)
    y = task.loss.Y[:, 0]
    q = np.array([A @ G @ A for G in K])
    f = sum(t * G @ A for t, G in zip(theta, K, strict=True)) + LONG(found.bias[0])
    size = theta.sum() if p == 1 else (theta**2).sum() ** LONG(0.5)
    size = max(LONG(1), size) if np.isfinite(p) else LONG(1)
    upper = LONG(C) * np.maximum(0, 1 - y * f).sum() + size * (theta @ q) / 2
    assert found.upper >= upper
    dual = found.dual[:, 0].astype(LONG)
    up, down = dual[dual > 0].sum(), -dual[dual < 0].sum()
    if up > 0 and down > 0:
        dual = dual * np.where(dual > 0, min(up, down) / up, min(up, down) / down)
    under = np.array([dual @ G @ dual for G in K])
    norm = {1: under.max(), 2: (under @ under) ** LONG(0.5), np.inf: under.sum()}[p]
    assert found.lower <= y @ dual - norm / 2
    assert found.gap >= (upper - (y @ dual - norm / 2)) / upper
    assert 0 < found.error <= found.upper - found.lower


def test_two_samples_at_a_high_cost():
    # rounding of the scores, times such a cost, is as large as the objective
    X, y = np.array([[0.3, 0.1], [0.7, 0.9]]), [0, 1]
    rng = np.random.default_rng(0)
    for _ in range(20):
        model = MKLClassifier(C=10.0 ** rng.uniform(14, 17), max_iter=20)
        with np.errstate(all="ignore"):
            try:
                model.fit(X, y)
            except ConvergenceWarning as warning:
                assert "rounding" in str(warning)
                continue
        assert model.solution_.rounding <= model.tol


def test_rounding_is_a_small_part_of_an_ordinary_gap():
    X = np.random.default_rng(0).normal(size=(100, 4))
    y = (X[:, 0] > 0).astype(int)
    for C in (0.1, 1.0, 10.0):
        solution = MKLClassifier(C=C).fit(X, y).solution_
        assert 0 < solution.rounding < 1e-9
        assert solution.status is Status.OPTIMAL


def test_rounding_far_below_the_tolerance_may_remain():
    task = hinge(12, 1e8, LpBall(1))
    point = solve(task, tol=1e-6).iterate()
    plain, exact = task.certify_to(point, point, 1.0), task.certify(point, point)
    assert exact.rounding < plain.rounding < 1e-2  # a share of that tolerance
    assert plain.lower <= exact.lower <= exact.upper <= plain.upper

    class Own(MKLProblem):
        def certify(self, point, dual):
            return "own"

    own = Own(task.bank, task.loss, task.weights)
    assert own.certify_to(point, point, 1.0) == "own"
    needed = task.certify_to(point, point, 1e-9)
    assert (needed.lower, needed.upper) == (exact.lower, exact.upper)


@pytest.mark.parametrize(
    "weights",
    [
        LpBall(1), LpBall(1.3), LpBall(np.inf), ElasticNet(0.3), BlockNorm(4.0),
        Ellipsoid(np.array([[2.0, -1, 0], [-1, 2, 0.5], [0, 0.5, 1]])),
    ],
)  # fmt: skip
def test_products_in_twice_the_precision_are_what_they_were(weights):
    # ten times the cost of one problem is rounded ten times as much: where that is too
    # much sums are taken again, and the bounds are the same but for rounding
    task = hinge(20, 1.0, weights)
    point = solve(task, tol=1e-8).iterate()
    plain = task.judge(point)
    found = task.certify(point, point)
    assert found.lower <= plain.lower + 1e-13 * abs(plain.lower)
    assert found.upper >= plain.upper - 1e-13 * abs(plain.upper)
    assert found.upper == pytest.approx(plain.upper, rel=1e-9)
    assert found.lower == pytest.approx(plain.lower, rel=1e-9)
    F, q = task.bank.twofold(point.theta[None], task.loss.repair(point.A))
    np.testing.assert_allclose(F, task.bank.apply(point.theta, point.A), rtol=1e-11)
    np.testing.assert_allclose(q[0], task.bank.quad(point.A), rtol=1e-11)


@extended
def test_twice_the_precision_is_extended_precision_at_least():
    bank = KernelBank.from_grams(grams(30))
    A = (
        np.random.default_rng(1).normal(size=(30, 2))
        * 10.0 ** np.arange(-3, 27, 1)[:, None]
    )  # what cancels is large
    theta = np.array([[0.2, 0.5, 1.0], [1.0, 0.0, 0.3]])
    F, q = bank.twofold(theta, A)
    K = [bank.gram(m).astype(LONG) for m in range(3)]
    for t, column in enumerate(A.T.astype(LONG)):
        exact = sum(w * G @ column for w, G in zip(theta[t], K, strict=True))
        size = sum(
            w * np.abs(G) @ np.abs(column) for w, G in zip(theta[t], K, strict=True)
        )
        assert (
            np.abs(F[:, t] - exact) <= 2.0**-52 * np.abs(exact) + 2e-18 * size
        ).all()
        quads = np.array([column @ G @ column for G in K])
        np.testing.assert_allclose(q[t], quads.astype(float), rtol=1e-14)


@pytest.mark.parametrize("per_class", [False, True])
def test_bounds_of_many_classes_have_an_error(per_class):
    labels = np.arange(15) % 3
    loss = CrammerSinger(labels, np.full(15, 1e9), 3)
    kind = BilinearProblem if per_class else MKLProblem
    task = kind(KernelBank.from_grams(grams(15)), loss, LpBall(1))
    point = solve(kind(task.bank, CrammerSinger(labels, np.ones(15), 3), LpBall(1)))
    found, plain = (
        f(point.iterate()) for f in (lambda p: task.certify(p, p), task.judge)
    )
    # computed in another way, they agree up to rounding, of which 1e9 is the unit
    eps = 1e4 * np.finfo(float).eps * 1e9
    assert found.upper == pytest.approx(plain.upper, abs=eps)
    assert found.lower == pytest.approx(plain.lower, abs=eps)
    assert 0 < found.error < eps


def test_crossed_bounds_tell_of_an_indefinite_kernel():
    # the objective falls without end along a direction in which the kernel is negative
    task = MKLProblem(
        KernelBank.from_grams(-0.5 * np.eye(4)[:, :, None]),
        Squared(np.ones((4, 1)), np.ones((4, 1)), False),
        LpBall(1),
    )
    point = task.first()
    far = type(point)(point.theta, np.full((4, 1), -1000.0))
    near = type(point)(point.theta, np.full((4, 1), 0.5))
    assert task.certify(far, near).crossed
    assert not task.certify(point, point).crossed
    assert isinstance(task.certify(point, point), Certificate)


@pytest.mark.parametrize("theta", [[1 + 5e-10], [1 - 1e-12]])
def test_weights_beyond_their_set_are_paid_for(theta):
    # members up to 1e-9 are accepted: what they save is added
    task = MKLProblem(
        KernelBank.from_grams(np.eye(4)[:, :, None]),
        Squared(np.ones((4, 1)), np.ones((4, 1)), False),
        LpBall(1),
    )
    A = np.full((4, 1), 0.5)
    point = type(task.first())(np.array(theta), A)
    w2 = theta[0] ** 2 * A[:, 0] @ A[:, 0]
    value = 2.0 * (1 - 0.5 * theta[0]) ** 2 + 0.5 * w2 / min(theta[0], 1.0)
    found = task.certify(point, point)
    assert value <= found.upper <= value * (1 + 1e-9)


# --- one class ------------------------------------------------------------------------


@pytest.mark.parametrize("n", [3, 7, 10, 23, 41, 49, 59])
def test_one_class_of_all_samples(n):
    # with nu = 1 all dual variables are 1 / n, whatever the kernels
    X = np.random.default_rng(n).normal(size=(n, 3))
    model = MKLOneClass(nu=1.0).fit(X)
    assert np.isfinite(model.decision_function(X)).all()
    assert model.duality_gap_ <= model.tol
    np.testing.assert_allclose(model.dual_coef_, np.full((1, n), 1.0 / n), rtol=1e-12)


@pytest.mark.parametrize("total", [1.0, 1 - 2e-16, 1 - 1e-12, 1 + 1e-12, 3.0])
def test_repair_of_one_class(total):
    rng = np.random.default_rng(0)
    C = rng.uniform(0.5, 1.0, (9, 1))
    loss = OneClass(total * C / C.sum())
    for A in (np.zeros((9, 1)), loss.C, rng.random((9, 1)), np.full((9, 1), 1 / 9)):
        B = loss.repair(A)
        assert (B >= 0).all() and (B <= loss.C * (1 + 1e-15)).all()
        assert B.sum() == pytest.approx(min(1.0, loss.C.sum()), rel=1e-14)


# --- errors ---------------------------------------------------------------------------


def test_what_is_not_finite_is_no_model(monkeypatch):
    X = np.random.default_rng(0).normal(size=(20, 3))
    y = (X[:, 0] > 0).astype(int)
    real = MKLProblem.certify_to

    def broken(self, point, dual, tol):
        found = real(self, point, dual, tol)
        object.__setattr__(found, "bias", found.bias * np.nan)
        return found

    monkeypatch.setattr(MKLProblem, "certify_to", broken)
    for model in (MKLClassifier(), MKLOneClass()):
        with pytest.raises(ValueError, match=r"not finite \(bias\).*closer to one"):
            model.fit(X, y)


@pytest.mark.parametrize(
    "model",
    [
        MKLRegressor(), MKLRegressor(loss="epsilon_insensitive"),
        MKLRegressor(approximation="rff", rank=5), EvidenceMKLRegressor(),
    ],
)  # fmt: skip
def test_targets_whose_squares_overflow(model):
    X = np.random.default_rng(0).normal(size=(20, 3))
    with pytest.raises(ValueError, match=r"as large as .*e\+160.*divide y"):
        model.fit(X, X[:, 0] * 1e160)


@pytest.mark.parametrize("C", [np.inf, np.nan, -1.0])
@pytest.mark.parametrize("loss", [Squared, Hinge])
def test_costs_of_a_loss_are_finite(loss, C):
    with pytest.raises(ValueError, match="must be finite numbers, none below zero"):
        loss(np.ones((3, 1)), np.full((3, 1), C))


def test_a_norm_next_to_one_as_a_semidefinite_program():
    pytest.importorskip("cvxpy")
    X = np.random.default_rng(0).normal(size=(20, 3))
    y = (X[:, 0] > 0).astype(int)
    near, at = (
        MKLDiscriminant(norm=p, solver="sdp", tol=1e-3).fit(X, y)
        for p in (1 + 1e-9, 1.0)
    )
    assert near.duality_gap_ <= 1e-3
    np.testing.assert_allclose(near.kernel_weights_, at.kernel_weights_, atol=1e-6)


def test_text_after_numbers_as_labels_of_sums():
    X = np.random.default_rng(0).normal(size=(40, 3))
    model = MKLClassifier(loss="squared", approximation="nystroem", rank=5)
    sums = model.accumulator(X)
    sums.update(X, np.arange(40) % 2)
    with pytest.raises(ValueError, match=r"were numbers.*are text.*of a single type"):
        sums.update(X, np.where(np.arange(40) % 2, "a", "b"))


@pytest.mark.parametrize("core", ["", "Prescott"])
def test_import_does_not_depend_on_rounding(core):
    # nothing is fitted when the package is imported, whatever the BLAS
    code = (
        "import numpy, scipy.linalg\n"
        "def no(*a, **k): raise AssertionError('fitted at import')\n"
        "for place, names in ((numpy.linalg, ['lstsq', 'solve']), (numpy, ['polyfit']),"
        " (numpy.polynomial.chebyshev, ['chebfit', 'chebinterpolate']),"
        " (numpy.polynomial.polynomial, ['polyfit'])):\n"
        "    for name in names: setattr(place, name, no)\n"
        "import mklearn; print('imported')\n"
    )
    where = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    if core:
        where["OPENBLAS_CORETYPE"] = core
    done = subprocess.run(
        [sys.executable, "-c", code], env=where, capture_output=True, text=True
    )
    assert done.stdout.strip() == "imported", done.stderr
