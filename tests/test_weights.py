"""Weight sets: support, best step and description against their definitions."""

import numpy as np
import pytest
from scipy.optimize import minimize

from mklearn import LpBall
from mklearn.problems import (
    BlockNorm,
    ConvexSet,
    ElasticNet,
    Ellipsoid,
    WeightSet,
    block_norm,
)

PS = [1, 1.01, 4 / 3, 2, 4, 50, np.inf]


def dual_exponent(p):
    return 1.0 if np.isinf(p) else np.inf if p == 1 else p / (p - 1)


def step(weights, norms2):
    """Return the best weights for given ``|w_m|^2``."""
    return weights.step(np.ones(len(norms2)), norms2)


def sphere(p, n_kernels, count, rng):
    """Return random weights on the boundary of the positive part of the ball."""
    theta = rng.exponential(size=(count, 4)) ** rng.uniform(0.1, 4, (count, 1))
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
    np.testing.assert_allclose(step(ball, scale * q), step(ball, q), rtol=1e-10)


@pytest.mark.parametrize("p", PS)
def test_rounding_below_zero_counts_as_zero(p):
    ball = LpBall(p)
    q = np.array([1.0, -1e-18, 0.0])
    assert ball.support(q) == ball.support(np.maximum(q, 0))
    np.testing.assert_array_equal(step(ball, q), step(ball, np.maximum(q, 0)))


@pytest.mark.parametrize("p", PS)
def test_nothing_to_weigh(p):
    ball, zero = LpBall(p), np.zeros(3)
    assert ball.support(zero) == 0.0
    np.testing.assert_array_equal(step(ball, zero), ball.center(3))


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
    theta = step(ball, norms2)
    assert ball.contains(theta)
    best = np.sum(norms2 / theta)
    assert (np.sum(norms2 / sphere(p, 4, 2000, rng), axis=1) >= best - 1e-9).all()


@pytest.mark.parametrize("p", [1, 1.01, 4 / 3, 2, 4, 50])
def test_step_meets_the_optimality_conditions(p):
    # norms2 / theta^2 = multiplier * theta^(p - 1), on the boundary
    norms2 = np.array([0.2, 1.0, 3.0, 0.01])
    theta = step(LpBall(p), norms2)
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
    np.testing.assert_allclose(step(LpBall(p), norms2), found.x, rtol=1e-4)


@pytest.mark.parametrize("p", PS)
def test_value_at_the_step_is_the_squared_block_norm(p):
    # min over theta of sum |w_m|^2 / theta_m is |w|_{2, r}^2 with r = 2p / (p + 1)
    norms = np.array([0.5, 1.5, 0.1, 2.0])
    r = 2.0 if np.isinf(p) else 2 * p / (p + 1)
    value = np.sum(norms**2 / step(LpBall(p), norms**2))
    assert value == pytest.approx(np.linalg.norm(norms, r) ** 2, rel=1e-10)


@pytest.mark.parametrize("p", [1, 1.01, 2, 50])
def test_step_drops_kernels_without_norm(p):
    theta = step(LpBall(p), np.array([0.0, 1.0, 0.0]))
    np.testing.assert_array_equal(theta, [0.0, 1.0, 0.0])


def test_exact_ends():
    q = np.array([3.0, 1.0, 2.0])
    assert LpBall(1).support(q) == 3.0
    assert LpBall(np.inf).support(q) == 6.0
    np.testing.assert_array_equal(step(LpBall(np.inf), q), np.ones(3))
    np.testing.assert_allclose(step(LpBall(1), q), np.sqrt(q) / np.sqrt(q).sum())


def test_ends_are_limits():
    q = np.array([3.0, 1.0, 2.0])
    assert LpBall(1 + 1e-9).support(q) == pytest.approx(LpBall(1).support(q), rel=1e-6)
    assert LpBall(1e9).support(q) == pytest.approx(LpBall(np.inf).support(q), rel=1e-6)
    np.testing.assert_allclose(step(LpBall(1e9), q), np.ones(3), rtol=1e-6)


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


# --- every convex set -----------------------------------------------------------------


def definite(n_kernels=4, seed=0, negative=False):
    """Return a positive definite matrix, with entries of both signs if asked for."""
    R = np.random.default_rng(seed).uniform(-1 if negative else 0, 1, (n_kernels, 6))
    return R @ R.T / 3 + 0.2 * np.eye(n_kernels)


CONVEX = {
    "p=4/3": LpBall(4 / 3),
    "p=2": LpBall(2),
    "p=5": LpBall(5),
    "p=1": LpBall(1),
    "ellipsoid": Ellipsoid(definite()),
    "ellipsoid with a preference": Ellipsoid(definite(seed=1, negative=True)),
    "elastic net": ElasticNet(0.5),
    "nearly sparse": ElasticNet(0.02),
    "mix=1": ElasticNet(1.0),
}
convex = pytest.mark.parametrize("weights", CONVEX.values(), ids=CONVEX.keys())


MEMBERS = {}  # of the sets below, which live as long as the tests


def members(weights, count=300):
    """Return random weights on the boundary of a set."""
    if id(weights) in MEMBERS:
        return MEMBERS[id(weights)]
    rng = np.random.default_rng(0)
    theta = rng.exponential(size=(count, 4)) ** rng.uniform(0.1, 4, (count, 1))
    low, high = np.zeros(count), np.full(count, 1e3)
    for _ in range(60):  # 1e3 / 2**60 is less than a rounding error of one
        middle = (low + high) / 2
        inside = np.array(
            [weights.contains(s * t, 0.0) for s, t in zip(middle, theta, strict=True)]
        )
        low, high = np.where(inside, middle, low), np.where(inside, high, middle)
    return MEMBERS.setdefault(id(weights), low[:, None] * theta)


@convex
@pytest.mark.parametrize("seed", range(4))
def test_support_is_the_maximum(weights, seed):
    cp = pytest.importorskip("cvxpy")
    q = np.random.default_rng(seed).uniform(-0.5, 2, 4)
    t = cp.Variable(4, nonneg=True)
    if isinstance(weights, LpBall):
        limit = [cp.pnorm(t, weights.p) <= 1]
    elif isinstance(weights, Ellipsoid):
        limit = [cp.sum_squares(np.linalg.cholesky(weights.E).T @ t) <= 1]
    else:
        mix = weights.mix
        limit = [(1 - mix) * cp.sum(t) + mix * cp.sum_squares(t) <= 1]
    best = cp.Problem(cp.Maximize(q @ t), limit).solve(solver=cp.CLARABEL)
    assert weights.support(q) == pytest.approx(best, rel=1e-6, abs=1e-8)


@convex
def test_no_member_exceeds_the_support(weights):
    rng = np.random.default_rng(0)
    theta = members(weights)
    for _ in range(5):
        q = rng.exponential(size=4)
        assert (theta @ q <= weights.support(q) * (1 + 1e-9)).all()


@convex
@pytest.mark.parametrize("scale", [1e-8, 1e8])
def test_support_and_step_of_every_set_know_no_scale(weights, scale):
    q = np.array([0.5, 0.1, 2.0, 1.0])
    expected = scale * weights.support(q)
    assert weights.support(scale * q) == pytest.approx(expected, rel=1e-9)
    np.testing.assert_allclose(step(weights, scale * q), step(weights, q), rtol=1e-7)


@convex
def test_nothing_to_weigh_in_any_set(weights):
    zero = np.zeros(4)
    assert weights.support(zero) == 0.0
    assert weights.support(-np.ones(4)) == 0.0
    np.testing.assert_array_equal(step(weights, zero), weights.center(4))


@convex
@pytest.mark.parametrize("seed", range(4))
def test_step_of_every_set_is_the_best_member(weights, seed):
    rng = np.random.default_rng(seed)
    old, q = rng.uniform(0.1, 1, 4), rng.exponential(size=4) ** 2
    norms2 = old**2 * q
    theta = weights.step(old, q)
    assert weights.contains(theta)
    best = np.sum(norms2 / theta)
    assert (np.sum(norms2 / members(weights), axis=1) >= best * (1 - 1e-9)).all()
    # optimality: no member has a larger inner product with minus the gradient
    slope = norms2 / theta**2
    assert theta @ slope == pytest.approx(weights.support(slope), rel=1e-6)


@convex
def test_step_of_every_set_by_numerical_minimisation(weights):
    norms2 = np.array([0.2, 1.0, 3.0, 0.5])
    found = minimize(
        lambda theta: np.sum(norms2 / theta),
        0.9 * weights.center(4),
        jac=lambda theta: -norms2 / theta**2,
        bounds=[(1e-6, None)] * 4,
        constraints={
            "type": "ineq",
            "fun": lambda t: 1 - weights.constraint(t).value,
            "jac": lambda t: -weights.constraint(t).gradient,
        },
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    np.testing.assert_allclose(step(weights, norms2), found.x, rtol=2e-4)


@convex
def test_center_of_every_set_is_even_and_on_the_boundary(weights):
    center = weights.center(4)
    assert np.ptp(center) == 0.0
    assert weights.contains(center)
    assert not weights.contains(1.001 * center)
    assert weights.constraint(center).value == pytest.approx(1.0)


@convex
def test_members_of_every_set(weights):
    assert weights.contains(np.zeros(4))
    assert weights.contains(0.5 * weights.center(4))
    assert not weights.contains(np.array([-0.01, 0.1, 0.1, 0.1]))
    assert not weights.contains(np.array([np.nan, 0.1, 0.1, 0.1]))


@convex
def test_constraint_has_the_derivatives_it_says(weights):
    theta = np.array([0.3, 0.05, 0.4, 0.2])
    at, h = weights.constraint(theta), 1e-6
    gradient, hessian = np.zeros(4), np.zeros((4, 4))
    for m in range(4):
        e = h * np.eye(4)[m]
        up, down = weights.constraint(theta + e), weights.constraint(theta - e)
        gradient[m] = (up.value - down.value) / (2 * h)
        hessian[m] = (up.gradient - down.gradient) / (2 * h)
    np.testing.assert_allclose(at.gradient, gradient, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(at.hessian, hessian, rtol=1e-5, atol=1e-6)


@convex
def test_constraint_describes_the_set(weights):
    for theta in members(weights)[:20]:
        assert weights.constraint(theta).value == pytest.approx(1.0, rel=1e-6)
    assert weights.constraint(np.zeros(4)).value == 0.0


@convex
def test_regulariser_is_half_of_the_norms_over_the_weights(weights):
    rng = np.random.default_rng(0)
    theta, q = rng.exponential(size=4), rng.exponential(size=4)
    norms2 = theta**2 * q
    assert weights.regulariser(theta, q) == pytest.approx(0.5 * np.sum(norms2 / theta))


def test_ellipsoid_of_the_identity_is_the_two_norm():
    q = np.random.default_rng(0).exponential(size=5)
    ball, ellipsoid = LpBall(2), Ellipsoid(np.eye(5))
    assert ellipsoid.support(q) == pytest.approx(ball.support(q))
    np.testing.assert_allclose(step(ellipsoid, q), step(ball, q), rtol=1e-9)


def test_support_of_the_ellipsoid_is_not_the_norm_of_the_inverse():
    # erratum 3: the inverse would use a negative weight for the third kernel
    weights, q = Ellipsoid(definite()), np.array([2.0, 1.0, 0.01, 1.0])
    free = np.linalg.solve(weights.E, q)
    assert (free < 0).any()
    assert weights.support(q) < np.sqrt(q @ free) * (1 - 1e-3)


def test_elastic_net_lies_between_its_ends():
    q = np.array([3.0, 1.0, 2.0])
    assert ElasticNet(1.0).support(q) == pytest.approx(LpBall(2).support(q))
    assert ElasticNet(1e-9).support(q) == pytest.approx(LpBall(1).support(q), rel=1e-6)
    np.testing.assert_allclose(step(ElasticNet(1.0), q), step(LpBall(2), q), rtol=1e-9)


@pytest.mark.parametrize("E", [np.eye(3)[:2], -np.eye(3), np.arange(9.0).reshape(3, 3)])
def test_ellipsoids_need_a_definite_matrix(E):
    with pytest.raises(ValueError, match="positive definite"):
        Ellipsoid(E)


def test_ellipsoids_need_a_row_for_each_kernel():
    with pytest.raises(ValueError, match=r"size 3.*4 kernels"):
        Ellipsoid(np.eye(3)).center(4)


@pytest.mark.parametrize("mix", [0.0, -0.1, 1.1, np.nan])
def test_elastic_nets_need_a_mix(mix):
    with pytest.raises(ValueError, match=r"\(0, 1\]"):
        ElasticNet(mix)


# --- block norms ----------------------------------------------------------------------

BLOCKS = [2.1, 3, 6, 20]


@pytest.mark.parametrize("q", BLOCKS)
def test_support_of_a_block_norm_is_the_squared_dual_norm(q):
    quads = np.random.default_rng(0).exponential(size=5)
    expected = np.linalg.norm(np.sqrt(quads), q / (q - 1)) ** 2
    assert BlockNorm(q).support(quads) == pytest.approx(expected, rel=1e-12)
    assert BlockNorm(q).support(-quads) == 0.0


@pytest.mark.parametrize("q", BLOCKS)
def test_regulariser_of_a_block_norm_at_the_step_closes_the_gap(q):
    # ½|w|^2 + ½|v|_*^2 = <w, v> for norms v = sqrt(quads) and w = theta v
    weights, quads = BlockNorm(q), np.random.default_rng(0).exponential(size=5)
    theta = weights.step(weights.center(5), quads)
    assert weights.contains(theta)
    both = weights.regulariser(theta, quads) + 0.5 * weights.support(quads)
    assert both == pytest.approx(theta @ quads, rel=1e-12)
    assert theta @ quads == pytest.approx(weights.support(quads), rel=1e-12)


@pytest.mark.parametrize("q", BLOCKS)
def test_weights_of_a_block_norm_satisfy_weak_duality(q):
    weights, rng = BlockNorm(q), np.random.default_rng(1)
    for _ in range(200):
        theta, quads = rng.exponential(size=5) + 0.01, rng.exponential(size=5)
        theta *= np.linalg.norm(1 / theta, weights._power)
        both = weights.regulariser(theta, quads) + 0.5 * weights.support(quads)
        assert both >= theta @ quads * (1 - 1e-12)


@pytest.mark.parametrize("q", BLOCKS)
def test_members_for_a_block_norm(q):
    weights = BlockNorm(q)
    center = weights.center(5)
    assert np.ptp(center) == 0.0 and (center >= 1).all()
    assert weights.contains(center)
    assert weights.contains(2 * center)
    assert not weights.contains(0.999 * center)
    assert not weights.contains(np.zeros(5))
    np.testing.assert_array_equal(weights.step(center, np.zeros(5)), center)


@pytest.mark.parametrize("q", [1, 4 / 3, 1.9, 2])
def test_small_block_norms_are_balls(q):
    # the best weights turn ½ sum |w_m|^2 / theta_m into ½ |w|_{2,q}^2
    norms = np.array([0.5, 1.5, 0.1, 2.0])
    theta = step(block_norm(q), norms**2)
    assert np.sum(norms**2 / theta) == pytest.approx(np.linalg.norm(norms, q) ** 2)
    quads = np.random.default_rng(0).exponential(size=4)
    dual = np.inf if q == 1 else q / (q - 1)
    expected = np.linalg.norm(np.sqrt(quads), dual) ** 2
    assert block_norm(q).support(quads) == pytest.approx(expected)


def test_block_norm_of_two_is_the_limit_from_both_sides():
    quads = np.array([3.0, 1.0, 2.0])
    for q in (2 - 1e-7, 2, 2 + 1e-7):
        assert block_norm(q).support(quads) == pytest.approx(quads.sum(), rel=1e-5)


@pytest.mark.parametrize("q", [0.9, np.nan, -1])
def test_block_norms_below_one_are_refused(q):
    with pytest.raises(ValueError, match="q >= 1"):
        block_norm(q)


@pytest.mark.parametrize("q", [2, 1, np.inf])
def test_block_norm_weights_need_more_than_two(q):
    with pytest.raises(ValueError, match="2 < q < inf"):
        BlockNorm(q)


# --- what sets say of themselves ------------------------------------------------------


@pytest.mark.parametrize("p", PS)
def test_a_ball_says_what_it_is(p):
    ball = LpBall(p)
    assert ball.sparse == (p == 1)
    assert ball.fixed == np.isinf(p)
    assert ball.smooth and ball.exponent == p
    if ball.fixed:  # one member is the best for every A
        q = np.random.default_rng(0).uniform(0, 3, 5)
        assert ball.center(5) @ q == pytest.approx(ball.support(q))


@pytest.mark.parametrize(
    "weights",
    [LpBall(2), Ellipsoid(np.eye(3)), ElasticNet(0.3), BlockNorm(4)],
    ids=lambda weights: type(weights).__name__,
)
def test_smooth_sets_have_a_constraint(weights):
    assert isinstance(weights, WeightSet)
    assert weights.smooth == isinstance(weights, ConvexSet)
    assert not weights.sparse and not weights.fixed


def test_a_set_of_one_s_own_is_neither_sparse_nor_smooth_nor_fixed():
    class Mine(WeightSet):
        pass

    mine = Mine()
    assert not (mine.sparse or mine.smooth or mine.fixed) and mine.exponent == 2
