"""The weight set: support function and analytic update against their definitions."""

import numpy as np
import pytest
from scipy.optimize import minimize

from mklearn import LpBall

PS = [1, 1.01, 4 / 3, 2, 4, 50, np.inf]


def dual_exponent(p):
    return 1.0 if np.isinf(p) else np.inf if p == 1 else p / (p - 1)


def sphere(p, n_kernels, count, rng):
    """Return random weights on the boundary of the positive part of the ball."""
    theta = rng.exponential(size=(count, n_kernels)) ** rng.uniform(0.1, 4, (count, 1))
    return theta / np.linalg.norm(theta, p, axis=1)[:, None]


@pytest.mark.parametrize("p", PS)
def test_support_is_the_dual_norm(p):
    q = np.random.default_rng(0).uniform(0, 3, 6)
    expected = np.linalg.norm(q, dual_exponent(p))
    assert LpBall(p).support(q) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("p", PS)
def test_support_is_an_upper_bound_that_is_attained(p):
    rng = np.random.default_rng(1)
    q, ball = rng.uniform(0, 3, 4), LpBall(p)
    assert (sphere(p, 4, 2000, rng) @ q <= ball.support(q) * (1 + 1e-12)).all()
    # Hoelder: the maximiser is proportional to q ** (p* - 1)
    if p == 1:
        best = np.eye(4)[q.argmax()]
    elif np.isinf(p):
        best = np.ones(4)
    else:
        best = (q / q.max()) ** (1 / (p - 1))
        best /= np.linalg.norm(best, p)
    assert ball.contains(best)
    assert best @ q == pytest.approx(ball.support(q), rel=1e-10)


@pytest.mark.parametrize("p", [4 / 3, 2, 4])
def test_support_by_numerical_maximisation(p):
    q = np.array([0.3, 2.0, 0.0, 1.1])
    found = minimize(
        lambda theta: -theta @ q,
        np.full(4, 0.3),
        bounds=[(0, None)] * 4,
        constraints={"type": "ineq", "fun": lambda t: 1 - np.sum(np.abs(t) ** p)},
        method="SLSQP",
        options={"ftol": 1e-12},
    )
    assert LpBall(p).support(q) == pytest.approx(-found.fun, rel=1e-6)


@pytest.mark.parametrize("p", PS)
@pytest.mark.parametrize("scale", [1e-200, 1e-8, 1.0, 1e200])
def test_support_and_step_know_no_scale(p, scale):
    q, ball = np.array([0.5, 0.0, 2.0, 1.0]), LpBall(p)
    assert ball.support(scale * q) == pytest.approx(scale * ball.support(q), rel=1e-10)
    np.testing.assert_allclose(ball.step(scale * q), ball.step(q), rtol=1e-10)


@pytest.mark.parametrize("p", PS)
def test_rounding_below_zero_counts_as_zero(p):
    ball = LpBall(p)
    q = np.array([1.0, -1e-18, 0.0])
    assert ball.support(q) == ball.support(np.maximum(q, 0))
    np.testing.assert_array_equal(ball.step(q), ball.step(np.maximum(q, 0)))


@pytest.mark.parametrize("p", PS)
def test_nothing_to_weigh(p):
    ball, zero = LpBall(p), np.zeros(3)
    assert ball.support(zero) == 0.0
    np.testing.assert_array_equal(ball.step(zero), ball.center(3))


@pytest.mark.parametrize("p", PS)
@pytest.mark.parametrize("n_kernels", [1, 2, 1000])
def test_center_is_an_even_member_on_the_boundary(p, n_kernels):
    center = LpBall(p).center(n_kernels)
    assert np.ptp(center) == 0.0
    assert np.linalg.norm(center, p) == pytest.approx(1.0)
    assert LpBall(p).contains(center)


@pytest.mark.parametrize("p", PS)
def test_step_beats_every_other_member(p):
    rng = np.random.default_rng(2)
    norms2, ball = rng.uniform(0.01, 3, 4), LpBall(p)
    theta = ball.step(norms2)
    assert ball.contains(theta)
    best = np.sum(norms2 / theta)
    assert (np.sum(norms2 / sphere(p, 4, 2000, rng), axis=1) >= best - 1e-9).all()


@pytest.mark.parametrize("p", [1, 1.01, 4 / 3, 2, 4, 50])
def test_step_meets_the_optimality_conditions(p):
    # norms2 / theta^2 = multiplier * theta^(p - 1), on the boundary
    norms2 = np.array([0.2, 1.0, 3.0, 0.01])
    theta = LpBall(p).step(norms2)
    multiplier = norms2 / theta ** (p + 1)
    np.testing.assert_allclose(multiplier, multiplier[0], rtol=1e-9)
    assert np.linalg.norm(theta, p) == pytest.approx(1.0)


@pytest.mark.parametrize("p", [1, 4 / 3, 2, 4])
def test_step_by_numerical_minimisation(p):
    norms2 = np.array([0.2, 1.0, 3.0])
    found = minimize(
        lambda theta: np.sum(norms2 / theta),
        np.full(3, 0.3),
        jac=lambda theta: -norms2 / theta**2,
        bounds=[(1e-6, None)] * 3,
        constraints={"type": "ineq", "fun": lambda t: 1 - np.sum(t**p)},
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    np.testing.assert_allclose(LpBall(p).step(norms2), found.x, rtol=1e-4)


@pytest.mark.parametrize("p", PS)
def test_value_at_the_step_is_the_squared_block_norm(p):
    # min over theta of sum |w_m|^2 / theta_m is |w|_{2, r}^2 with r = 2p / (p + 1)
    norms = np.array([0.5, 1.5, 0.1, 2.0])
    r = 2.0 if np.isinf(p) else 2 * p / (p + 1)
    value = np.sum(norms**2 / LpBall(p).step(norms**2))
    assert value == pytest.approx(np.linalg.norm(norms, r) ** 2, rel=1e-10)


@pytest.mark.parametrize("p", [1, 1.01, 2, 50])
def test_step_drops_kernels_without_norm(p):
    theta = LpBall(p).step(np.array([0.0, 1.0, 0.0]))
    np.testing.assert_array_equal(theta, [0.0, 1.0, 0.0])


def test_exact_ends():
    q = np.array([3.0, 1.0, 2.0])
    assert LpBall(1).support(q) == 3.0
    assert LpBall(np.inf).support(q) == 6.0
    np.testing.assert_array_equal(LpBall(np.inf).step(q), np.ones(3))
    np.testing.assert_allclose(LpBall(1).step(q), np.sqrt(q) / np.sqrt(q).sum())


def test_ends_are_limits():
    q = np.array([3.0, 1.0, 2.0])
    assert LpBall(1 + 1e-9).support(q) == pytest.approx(LpBall(1).support(q), rel=1e-6)
    assert LpBall(1e9).support(q) == pytest.approx(LpBall(np.inf).support(q), rel=1e-6)
    np.testing.assert_allclose(LpBall(1e9).step(q), np.ones(3), rtol=1e-6)


@pytest.mark.parametrize("p", PS)
def test_members(p):
    ball = LpBall(p)
    assert ball.contains(np.zeros(3))
    assert not ball.contains(1.001 * ball.center(3))
    assert not ball.contains(np.array([-0.01, 0.1, 0.1]))
    assert not ball.contains(np.array([np.nan, 0.1, 0.1]))


@pytest.mark.parametrize("p", [0.99, 0, -1, -np.inf, np.nan])
def test_norms_below_one_are_refused(p):
    with pytest.raises(ValueError, match=r"p >= 1.*norm=1"):
        LpBall(p)
