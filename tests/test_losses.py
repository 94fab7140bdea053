"""The hinge loss: bias, feasible set and dual term against their definitions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cases import hinge
from mklearn.problems import Hinge


def random_task(seed, n=12, equal=False):
    """Return a loss and scores, with repeated scores and some costs of zero."""
    rng = np.random.default_rng(seed)
    y = np.where(rng.random(n) < rng.uniform(0.2, 0.8), 1.0, -1.0)
    C = np.ones(n) if equal else rng.exponential(size=n) * (rng.random(n) < 0.9)
    F = rng.normal(size=n).round(int(rng.integers(0, 3)))
    return hinge(y, C), F[:, None]


def best_bias_value(loss, F):
    """Return the smallest primal value over all biases: it is at a knot."""
    knots = (loss.Y - F)[:, 0]
    return min(loss.primal(F + b) for b in knots)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.integers(0, 10**6), st.booleans())
def test_bias_is_a_minimiser(seed, equal):
    loss, F = random_task(seed, equal=equal)
    value = loss.primal(F + loss.bias(F))
    assert value == pytest.approx(best_bias_value(loss, F), rel=1e-9, abs=1e-12)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(st.integers(0, 10**6))
def test_bias_is_in_the_middle_of_the_minimisers(seed):
    loss, F = random_task(seed, equal=True)
    b = loss.bias(F)[0]
    best = loss.primal(F + b)
    flat = [k for k in (loss.Y - F)[:, 0] if loss.primal(F + k) <= best + 1e-9]
    assert b == pytest.approx((min(flat) + max(flat)) / 2)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_bias_of_one_class_costs_nothing(sign):
    loss = hinge(np.full(5, sign))
    F = np.random.default_rng(0).normal(size=(5, 1))
    assert loss.primal(F + loss.bias(F)) == pytest.approx(0.0, abs=1e-14)


def test_bias_moves_with_the_scores():
    loss, F = random_task(3, n=40)
    np.testing.assert_allclose(loss.bias(F + 7.5), loss.bias(F) - 7.5, atol=1e-12)


def test_bias_does_not_depend_on_the_order_of_samples():
    loss, F = random_task(3, n=41)
    order = np.random.default_rng(0).permutation(41)
    shuffled = Hinge(loss.Y[order], loss.C[order])
    np.testing.assert_allclose(shuffled.bias(F[order]), loss.bias(F), rtol=1e-12)


def test_bias_does_not_depend_on_the_unit_of_cost():
    loss, F = random_task(5, n=41)
    for unit in (1e-12, 1e12):
        scaled = Hinge(loss.Y, unit * loss.C)
        np.testing.assert_allclose(scaled.bias(F), loss.bias(F), rtol=1e-12)


def test_tasks_are_independent():
    losses, scores = zip(*(random_task(s) for s in (0, 1, 2)), strict=True)
    F = np.hstack(scores)
    both = Hinge(np.hstack([t.Y for t in losses]), np.hstack([t.C for t in losses]))
    pairs = list(zip(losses, scores, strict=True))
    np.testing.assert_array_equal(
        both.bias(F), np.concatenate([t.bias(f) for t, f in pairs])
    )
    assert both.primal(F) == pytest.approx(sum(t.primal(f) for t, f in pairs))
    A = np.random.default_rng(0).normal(size=F.shape)
    np.testing.assert_allclose(
        both.repair(A), np.hstack([t.repair(A[:, [j]]) for j, t in enumerate(losses)])
    )


def is_feasible(loss, A):
    alpha = loss.Y * A
    mass = np.abs(A).sum(axis=0)
    return (
        (alpha >= 0).all()
        and (alpha <= loss.C * (1 + 1e-15)).all()
        and (np.abs(A.sum(axis=0)) <= 1e-13 * mass + 1e-300).all()
    )


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.integers(0, 10**6), st.floats(1e-3, 1e3))
def test_repair_is_feasible_and_leaves_feasible_points_alone(seed, size):
    loss, _ = random_task(seed)
    A = size * np.random.default_rng(seed).normal(size=loss.shape)
    before = A.copy()
    once = loss.repair(A)
    assert is_feasible(loss, once)
    np.testing.assert_allclose(loss.repair(once), once, rtol=1e-14, atol=0)
    np.testing.assert_array_equal(A, before)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_one_class_has_only_the_zero_dual_point(sign):
    loss = hinge(np.full(4, sign))
    np.testing.assert_array_equal(loss.repair(np.ones((4, 1)) * sign), np.zeros((4, 1)))


def test_box_is_the_feasible_set():
    loss, _ = random_task(4)
    box = loss.box(0)
    y, C = loss.Y[:, 0], loss.C[:, 0]
    assert box.total == 0.0
    np.testing.assert_array_equal(box.linear, -y)
    np.testing.assert_array_equal(np.where(y > 0, box.upper, -box.lower), C)
    np.testing.assert_array_equal(np.where(y > 0, box.lower, box.upper), 0 * C)


def test_dual_term_is_minus_the_conjugate():
    # -C V*(-a / C) = min over f of C V(f) + a f, for a in the feasible range
    f = np.linspace(-50, 50, 20001)
    for y in (1.0, -1.0):
        for C in (0.3, 2.0):
            for alpha in C * np.linspace(0, 1, 7):
                loss = hinge([y], C)
                primal = C * np.maximum(0, 1 - y * f)
                numeric = np.min(primal + y * alpha * f)
                dual = loss.dual(np.array([[y * alpha]]))
                assert dual == pytest.approx(numeric, abs=1e-9)


def test_conjugate_is_infinite_outside_of_the_feasible_range():
    f = np.linspace(-1e6, 1e6, 2001)
    for alpha in (-0.1, 1.1):
        assert np.min(np.maximum(0, 1 - f) + alpha * f) < -1e4


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.integers(0, 10**6))
def test_weak_duality_for_any_scores(seed):
    # primal(F + b) >= dual(A) - <A, F> for feasible A, since sum(A) = 0
    loss, F = random_task(seed)
    A = loss.repair(np.random.default_rng(seed).normal(size=loss.shape))
    b = np.random.default_rng(seed + 1).normal()
    assert loss.primal(F + b) >= loss.dual(A) - np.sum(A * F) - 1e-10


def test_primal_is_the_sum_of_margins_missed():
    loss = hinge([1.0, -1.0, 1.0], [1.0, 2.0, 3.0])
    # margins 2, -0.5 and 0 miss one by 0, 1.5 and 1
    assert loss.primal(np.array([[2.0], [0.5], [0.0]])) == 0.0 + 2 * 1.5 + 3 * 1.0
