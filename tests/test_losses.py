"""Losses: bias, feasible set, dual term and derivatives against their definitions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cases import hinge
from mklearn.problems import (
    EpsilonInsensitive,
    Hinge,
    Logistic,
    OneClass,
    Squared,
    SquaredHinge,
)

CLASSES = [Hinge, SquaredHinge, Squared, EpsilonInsensitive, Logistic, OneClass]
TARGETED = CLASSES[:-1]
CERTAIN = [Hinge, SquaredHinge, Logistic]  # targets are -1 and 1
BOXED = [Hinge, SquaredHinge, EpsilonInsensitive, OneClass]
SMOOTH = [Squared, Logistic]
KINKED = [Hinge, EpsilonInsensitive, OneClass]


def random_loss(kind, seed, n=12, equal=False, **options):
    """Return a loss of one task, with some costs of zero."""
    rng = np.random.default_rng(seed)
    C = np.ones(n) if equal else rng.exponential(size=n) * (rng.random(n) < 0.9)
    C[:2] += 0.1
    if kind is OneClass:
        return OneClass((C * max(1.5 / C.sum(), 1.0))[:, None])
    y = np.where(rng.random(n) < rng.uniform(0.2, 0.8), 1.0, -1.0)
    y[:2] = 1.0, -1.0
    if kind not in CERTAIN:
        y = rng.normal(size=n)
    return kind(y[:, None], C[:, None], **options)


def random_scores(seed, n=12):
    """Return scores, some of them repeated."""
    rng = np.random.default_rng(seed + 1)
    return rng.normal(size=(n, 1)).round(int(rng.integers(0, 3)))


def value(loss, F, b):
    return loss.primal(F, np.array([float(b)]))


def knots(loss, F):
    """Return where the primal may have a kink as a function of the bias."""
    if isinstance(loss, OneClass):
        return -F[:, 0]
    r = (loss.Y - F)[:, 0]
    width = getattr(loss, "epsilon", 0.0)
    return np.r_[r - width, r + width]


def total(loss):
    """Return the sum that a feasible column has, None if any."""
    return (1.0 if isinstance(loss, OneClass) else 0.0) if loss.hyperplane else None


# --- bias -----------------------------------------------------------------------------


def test_bias_of_large_scores():
    # the slope is constant but for steps, far apart and of the width of one
    for seed in range(20):
        rng = np.random.default_rng(seed)
        f = np.round(400.0 * rng.standard_normal((30, 1)))
        y = np.sign(rng.standard_normal((30, 1)))
        loss = Logistic(y, np.full((30, 1), 10.0))
        b = loss.bias(f)
        near = [loss.primal(f, b + step) for step in (-0.01, 0.0, 0.01)]
        assert near[1] <= min(near) * (1 + 1e-12)


@pytest.mark.parametrize("kind", CLASSES)
@settings(max_examples=60, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6), equal=st.booleans())
def test_bias_is_a_minimiser(kind, seed, equal):
    loss, F = random_loss(kind, seed, equal=equal), random_scores(seed)
    b = loss.bias(F)[0]
    best = value(loss, F, b)
    others = np.r_[knots(loss, F), b + np.linspace(-3, 3, 601), b + 1e-3, b - 1e-3]
    least = min(value(loss, F, o) for o in others)
    assert best <= least + 1e-9 * (1 + abs(least))


@settings(max_examples=50, deadline=None, derandomize=True)
@given(st.sampled_from(KINKED), st.integers(0, 10**6))
def test_bias_is_in_the_middle_of_the_minimisers(kind, seed):
    loss, F = random_loss(kind, seed, equal=True), random_scores(seed)
    b = loss.bias(F)[0]
    best = value(loss, F, b)
    flat = [k for k in knots(loss, F) if value(loss, F, k) <= best + 1e-9]
    assert b == pytest.approx((min(flat) + max(flat)) / 2)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_bias_of_one_class_costs_nothing(sign):
    loss = hinge(np.full(5, sign))
    F = np.random.default_rng(0).normal(size=(5, 1))
    assert loss.primal(F, loss.bias(F)) == pytest.approx(0.0, abs=1e-14)


@pytest.mark.parametrize("kind", CLASSES)
def test_bias_moves_with_the_scores(kind):
    loss, F = random_loss(kind, 3, n=40), random_scores(3, n=40)
    np.testing.assert_allclose(loss.bias(F + 7.5), loss.bias(F) - 7.5, atol=1e-12)


@pytest.mark.parametrize("kind", TARGETED)
def test_there_is_no_bias_if_none_is_wanted(kind):
    loss = random_loss(kind, 3, with_bias=False)
    assert not loss.hyperplane
    np.testing.assert_array_equal(loss.bias(random_scores(3)), [0.0])


@pytest.mark.parametrize("kind", CLASSES)
def test_bias_does_not_depend_on_the_order_of_samples(kind):
    loss, F = random_loss(kind, 3, n=41), random_scores(3, n=41)
    order = np.random.default_rng(0).permutation(41)
    shuffled = loss.take(order, 1.0)
    np.testing.assert_allclose(shuffled.bias(F[order]), loss.bias(F), rtol=1e-12)


@pytest.mark.parametrize("kind", TARGETED)
def test_bias_does_not_depend_on_the_unit_of_cost(kind):
    loss, F = random_loss(kind, 5, n=41), random_scores(5, n=41)
    for unit in (1e-12, 1e12):
        scaled = loss.take(np.arange(41), unit)
        np.testing.assert_allclose(scaled.bias(F), loss.bias(F), rtol=1e-12)


@pytest.mark.parametrize("kind", TARGETED)
def test_tasks_are_independent(kind):
    losses = [random_loss(kind, s) for s in (0, 1, 2)]
    scores = [random_scores(s) for s in (0, 1, 2)]
    F = np.hstack(scores)
    both = kind(np.hstack([t.Y for t in losses]), np.hstack([t.C for t in losses]))
    pairs = list(zip(losses, scores, strict=True))
    b = both.bias(F)
    alone = np.concatenate([t.bias(f) for t, f in pairs])
    np.testing.assert_allclose(b, alone, rtol=1e-12, atol=1e-14)
    assert both.primal(F, b) == pytest.approx(
        sum(t.primal(f, t.bias(f)) for t, f in pairs)
    )
    A = np.random.default_rng(0).normal(size=F.shape)
    alone = [t.repair(A[:, [j]]) for j, t in enumerate(losses)]
    np.testing.assert_allclose(both.repair(A), np.hstack(alone))
    assert both.dual(both.repair(A)) == pytest.approx(
        sum(t.dual(a) for t, a in zip(losses, alone, strict=True))
    )


# --- the feasible set -----------------------------------------------------------------


def is_feasible(loss, A):
    mass = np.abs(A).sum(axis=0) + 1e-300
    if loss.hyperplane and (np.abs(A.sum(axis=0) - total(loss)) > 1e-13 * mass).any():
        return False
    above = loss.C * (1 + 1e-14)
    if isinstance(loss, Squared):
        return bool((A[loss.C == 0] == 0).all())
    if isinstance(loss, EpsilonInsensitive):
        return bool((np.abs(A) <= above).all())
    if isinstance(loss, OneClass):
        return bool((A >= 0).all() and (above >= A).all())
    alpha = loss.Y * A
    limit = np.where(loss.C > 0, np.inf, 0.0) if type(loss) is SquaredHinge else above
    return bool((alpha >= 0).all() and (alpha <= limit).all())


@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("kind", CLASSES)
@settings(max_examples=60, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6), size=st.floats(1e-3, 1e3))
def test_repair_is_feasible_and_leaves_feasible_points_alone(
    kind, with_bias, seed, size
):
    options = {} if kind is OneClass else {"with_bias": with_bias}
    loss = random_loss(kind, seed, **options)
    A = size * np.random.default_rng(seed).normal(size=loss.shape)
    before = A.copy()
    once = loss.repair(A)
    assert is_feasible(loss, once)
    np.testing.assert_allclose(loss.repair(once), once, rtol=1e-13, atol=1e-15 * size)
    np.testing.assert_array_equal(A, before)


@pytest.mark.parametrize("kind", CERTAIN)
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_one_class_has_only_the_zero_dual_point(kind, sign):
    loss = kind(np.full((4, 1), sign), np.ones((4, 1)))
    np.testing.assert_array_equal(loss.repair(np.ones((4, 1)) * sign), np.zeros((4, 1)))


@pytest.mark.parametrize("kind", BOXED)
def test_box_is_the_dual(kind):
    # ½ c'diag(ridge)c + linear'c is minus the dual term, on the same feasible set
    loss = random_loss(kind, 4)
    box = loss.box(0)
    n = loss.shape[0]
    assert box.hyperplane
    for seed in range(5):
        A = loss.repair(np.random.default_rng(seed).normal(size=loss.shape))
        a = A[:, 0]
        c = a if len(box.linear) == n else np.r_[np.maximum(a, 0), np.minimum(a, 0)]
        assert (c >= box.lower - 1e-12).all() and (c <= box.upper + 1e-12).all()
        term = 0.5 * box.ridge @ c**2 + box.linear @ c
        assert -term == pytest.approx(loss.dual(A), abs=1e-12)
    corner = np.clip(np.full(len(box.linear), 1e9), box.lower, box.upper)
    finite = np.isfinite(box.upper)
    np.testing.assert_array_equal(corner[finite], box.upper[finite])


def test_costs_of_one_class_that_are_too_small_are_refused():
    with pytest.raises(ValueError, match="sum to one"):
        OneClass(np.full((4, 1), 0.2))


def test_a_part_of_a_one_class_problem_has_costs_that_suffice():
    part = OneClass(np.full((10, 1), 0.15)).take(np.arange(3), 1.0)
    assert part.C.sum() == pytest.approx(1.0)


# --- conjugates -----------------------------------------------------------------------


@pytest.mark.parametrize("y", [1.0, -1.0])
@pytest.mark.parametrize("C", [0.3, 2.0])
@pytest.mark.parametrize("kind", TARGETED)
def test_dual_term_is_minus_the_conjugate(kind, y, C):
    # -C V*(-a / C) = min over f of C V(f) + a f, for a in the feasible range
    loss = kind(np.array([[y]]), np.array([[C]]), with_bias=False)
    f = np.linspace(-60, 60, 240001)
    primal = {
        Hinge: C * np.maximum(0, 1 - y * f),
        SquaredHinge: 0.5 * C * np.maximum(0, 1 - y * f) ** 2,
        Squared: 0.5 * C * (y - f) ** 2,
        EpsilonInsensitive: C * np.maximum(0, np.abs(y - f) - 0.1),
        Logistic: C * np.log1p(np.exp(-y * f)),
    }[kind]
    for share in np.linspace(-1.5, 1.5, 13):
        A = loss.repair(np.array([[y * C * share]]))
        numeric = np.min(primal + A[0, 0] * f)
        assert loss.dual(A) == pytest.approx(numeric, abs=1e-6)


def test_conjugate_is_infinite_outside_of_the_feasible_range():
    f = np.linspace(-1e6, 1e6, 2001)
    for alpha in (-0.1, 1.1):
        assert np.min(np.maximum(0, 1 - f) + alpha * f) < -1e4


@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("kind", CLASSES)
@settings(max_examples=40, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6))
def test_weak_duality_for_any_scores(kind, with_bias, seed):
    # primal(F, b) >= dual(A) - <A, F> for feasible A and any bias
    options = {} if kind is OneClass else {"with_bias": with_bias}
    loss, F = random_loss(kind, seed, **options), random_scores(seed)
    A = loss.repair(np.random.default_rng(seed).normal(size=loss.shape))
    b = np.random.default_rng(seed + 1).normal() if loss.hyperplane else 0.0
    assert value(loss, F, b) >= loss.dual(A) - np.sum(A * F) - 1e-10


@pytest.mark.parametrize("kind", SMOOTH)
def test_the_implied_dual_point_closes_the_gap(kind):
    # Fenchel: equality holds where A is minus the slope of the primal
    loss, F = random_loss(kind, 2, with_bias=False), random_scores(2)
    A = loss.slope(F)
    assert value(loss, F, 0.0) == pytest.approx(loss.dual(A) - np.sum(A * F), abs=1e-12)


def test_primal_is_the_sum_of_margins_missed():
    loss = hinge([1.0, -1.0, 1.0], [1.0, 2.0, 3.0])
    # margins 2, -0.5 and 0 miss one by 0, 1.5 and 1
    F = np.array([[2.0], [0.5], [0.0]])
    assert value(loss, F, 0.0) == 0.0 + 2 * 1.5 + 3 * 1.0


def test_logistic_loss_does_not_overflow():
    loss = Logistic(np.array([[1.0], [-1.0]]), np.ones((2, 1)))
    F = np.array([[-2000.0], [-2000.0]])
    assert value(loss, F, 0.0) == pytest.approx(2000.0)
    assert np.isfinite(loss.slope(F)).all() and np.isfinite(loss.bend(F)).all()


# --- derivatives ----------------------------------------------------------------------


@pytest.mark.parametrize("kind", SMOOTH)
def test_slope_and_bend_are_derivatives(kind):
    loss, F = random_loss(kind, 0), np.random.default_rng(1).normal(size=(12, 1))
    h = 1e-5
    for i in range(12):
        e = h * np.eye(12)[:, [i]]
        up, here, down = (value(loss, F + s * e, 0.0) for s in (1, 0, -1))
        assert loss.slope(F)[i, 0] == pytest.approx(-(up - down) / (2 * h), abs=1e-7)
        second = -(loss.slope(F + e) - loss.slope(F - e))[i, 0] / (2 * h)
        assert loss.bend(F)[i, 0] == pytest.approx(second, abs=1e-7)
        assert loss.bend(F)[i, 0] * h**2 == pytest.approx(
            up - 2 * here + down, abs=1e-13
        )


@pytest.mark.parametrize("kind", CLASSES)
def test_curvature_is_minus_the_second_derivative_of_the_dual(kind):
    loss = random_loss(kind, 1)
    A = loss.repair(0.3 * np.random.default_rng(0).normal(size=loss.shape))
    curvature = loss.curvature(A)
    assert np.isfinite(curvature).any()
    h = 1e-5
    for i in np.flatnonzero(np.isfinite(curvature[:, 0])):
        e = h * np.eye(12)[:, [i]]
        if abs(A[i, 0]) <= 10 * h:  # the step would cross a kink
            continue
        second = (loss.dual(A + e) - 2 * loss.dual(A) + loss.dual(A - e)) / h**2
        assert curvature[i, 0] == pytest.approx(-second, rel=1e-3, abs=1e-4)


@pytest.mark.parametrize("kind", CLASSES)
def test_variables_that_cannot_move_have_infinite_curvature(kind):
    loss = random_loss(kind, 1)
    costless = loss.C == 0
    A = loss.repair(np.ones(loss.shape))
    assert np.isinf(loss.curvature(A)[costless]).all()
    if kind is not Squared:
        zero = np.zeros(loss.shape)
        assert np.isinf(loss.curvature(zero)).all()
    if kind in (Hinge, EpsilonInsensitive):
        full = loss.C * (loss.Y if kind is Hinge else 1.0)
        assert np.isinf(loss.curvature(full)).all()


@pytest.mark.parametrize("kind", [Hinge, SquaredHinge, EpsilonInsensitive, Logistic])
def test_a_fold_without_any_cost_has_no_curvature(kind):
    """Covariates may separate all samples of a small fold, so that none is left."""
    loss = kind(np.array([[1.0], [-1.0], [1.0]]), np.zeros((3, 1)))
    assert loss.concavity == 0.0
    assert loss.dual(loss.repair(np.ones((3, 1)))) == 0.0
