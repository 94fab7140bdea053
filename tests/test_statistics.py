"""Statistics that can be merged, and the problems that they stand for."""

import pickle
import warnings
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from mklearn import (
    BlockNorm,
    ElasticNet,
    Ellipsoid,
    KernelBank,
    LpBall,
    MKLProblem,
    Squared,
    kernels,
    solve,
)
from mklearn.data.blocks import ArrayBlocks, Block
from mklearn.kernels.feature_map import FeatureMap
from mklearn.kernels.feature_source import FeatureSource
from mklearn.kernels.normalise import NORMALIZATIONS, Scaling, fit_normaliser
from mklearn.problems.losses import LOSSES, Pointwise, by_name
from mklearn.problems.lowrank import FeatureProblem, Point, sums
from mklearn.problems.pseudo_samples import Expansion, Reduced, by_kernel, factorised
from mklearn.problems.scatter import Statistics
from mklearn.solvers import Iterate
from mklearn.solvers.pass_newton import PassNewton, minimised

# those that take a sample and a task at a time, as passes do
POINTWISE = [name for name in LOSSES if isinstance(by_name(name), Pointwise)]


def rows(n=60, D=5, T=2, seed=0, far=0.0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, D)) + far, rng.normal(size=(n, T)), rng.random(n)


def close(a, b, tol=1e-9):
    parts = ("mean", "target", "ZZ", "ZH", "HH")
    same = [
        np.allclose(getattr(a, p), getattr(b, p), rtol=tol, atol=tol) for p in parts
    ]
    return all(same) and a.n == b.n and np.isclose(a.total, b.total)


# --- statistics -----------------------------------------------------------------------


def test_statistics_are_their_formulas():
    Z, H, w = rows()
    found = Statistics.of(Z, H, w)
    Zc, Hc = Z - w @ Z / w.sum(), H - w @ H / w.sum()
    assert np.allclose(found.ZZ, Zc.T @ (w[:, None] * Zc))
    assert np.allclose(found.ZH, Zc.T @ (w[:, None] * Hc))
    assert np.allclose(found.HH, Hc.T @ (w[:, None] * Hc))
    assert np.allclose(found.mean, w @ Z / w.sum())
    assert found.n == 60 and np.isclose(found.total, w.sum())


@pytest.mark.parametrize("size", [1, 7, 59, 60, 4096])
def test_statistics_do_not_depend_on_the_size_of_blocks(size):
    Z, H, w = rows()
    found = ArrayBlocks(Z, H, w, rows=size).reduce(Statistics.of_block)
    assert close(found, Statistics.of(Z, H, w))


def test_statistics_do_not_depend_on_order_or_tree():
    Z, H, w = rows()
    parts = [Statistics.of(Z[i::6], H[i::6], w[i::6]) for i in range(6)]
    a, b, c, d, e, f = parts
    assert close((a + b) + c, a + (b + c))
    assert close(a + b, b + a)
    whole = Statistics.of(Z, H, w)
    assert close(sum(parts), whole)
    assert close(((f + (e + d)) + c) + (b + a), whole)


def test_statistics_keep_their_digits_far_from_zero():
    Z, H, w = rows(far=1e6)
    Zc = Z - 1e6
    exact = Statistics.of(Zc, H, w).ZZ
    found = ArrayBlocks(Z, H, w, rows=7).reduce(Statistics.of_block).ZZ
    assert np.allclose(found, exact, rtol=1e-7)
    naive = (Z * w[:, None]).T @ Z - np.outer(w @ Z, w @ Z) / w.sum()
    assert not np.allclose(naive, exact, rtol=1e-4)


def test_rows_without_weight_count_for_nothing():
    Z, H, w = rows()
    w[::2] = 0.0
    found, kept = Statistics.of(Z, H, w), Statistics.of(Z[1::2], H[1::2], w[1::2])
    assert np.allclose(found.ZZ, kept.ZZ) and found.n == 60
    nothing = Statistics.of(Z, H, 0 * w)
    assert close(
        nothing + kept,
        Statistics.of(np.r_[Z, Z[1::2]], np.r_[H, H[1::2]], np.r_[0 * w, w[1::2]]),
    )


def test_targets_are_mapped_afterwards():
    Z, H, w = rows()
    B = np.random.default_rng(1).normal(size=(2, 3))
    assert close(Statistics.of(Z, H, w).with_targets(B), Statistics.of(Z, H @ B, w))
    assert close(Statistics.of(Z, H, w).weighted(3.0), Statistics.of(Z, H, 3.0 * w))


def test_statistics_of_other_features_are_refused():
    Z, H, w = rows()
    with pytest.raises(ValueError, match="one feature map"):
        Statistics.of(Z, H, w) + Statistics.of(Z[:, :3], H, w)
    with pytest.raises(ValueError, match="contains no samples"):
        ArrayBlocks(Z[:0], H[:0]).reduce(Statistics.of_block)


def test_blocks_are_kept_only_where_there_is_room():
    Z, H, w = rows()
    calls = []

    def note(block):
        calls.append(block.n_rows)
        return block

    for keep, passes in ((0, 12), (10**6, 6)):
        calls.clear()
        blocks = ArrayBlocks(Z, H, w, rows=10).keeping(keep).then(note)
        first = blocks.reduce(Statistics.of_block)
        assert close(first, blocks.reduce(Statistics.of_block))
        assert len(calls) == passes
    assert [n for n in blocks.map(lambda block: block.n_rows)] == [10] * 6


# --- reduction ------------------------------------------------------------------------


def test_the_factor_finds_the_rank():
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(30, 4)) @ rng.normal(size=(4, 9))
    S = Z.T @ Z
    R, pivots = factorised(S)
    assert R.shape == (4, 9) and len(pivots) == 4
    assert np.allclose(R.T @ R, S)
    assert np.allclose(np.tril(R[:, pivots], -1), 0.0)
    assert factorised(np.zeros((3, 3)))[0].shape == (0, 3)


def problem_data(n=50, kind="multiplicative", seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    y = np.sin(X[:, 0]) + X[:, 1] ** 2 + 0.3 * rng.normal(size=n)
    w = rng.random(n) + 0.5
    specs = [*kernels.rbf_ladder(3), kernels.Linear()]
    features = FeatureMap.fit(
        X, specs, rank=n, sample_weight=w, spherical=kind == "spherical"
    )
    bank = KernelBank(X, specs, sample_weight=w)
    bank = fit_normaliser(kind, bank, w).train(bank)
    return features, features.transform(X), y, w, bank


@pytest.mark.parametrize("memory", [0, 10**9], ids=["features", "Grams"])
@pytest.mark.parametrize("kind", NORMALIZATIONS)
@pytest.mark.parametrize("p", [1, 4 / 3, 2])
def test_pseudo_samples_have_the_problem_of_all_samples(kind, p, memory):
    features, Z, y, w, bank = problem_data(kind=kind)
    Y = np.column_stack([y, y**2])
    costs = 3.0 * np.repeat(w[:, None], 2, axis=1)
    exact = solve(MKLProblem(bank, Squared(Y, costs), LpBall(p)), "newton", tol=1e-10)
    found = ArrayBlocks(Z, Y, w, rows=13).reduce(Statistics.of_block)
    scaling = Scaling.fit(
        kind, features, found.total, found.mean, np.diagonal(found.ZZ)
    )
    reduced = Reduced.of(found, scaling, features.slices, features.names, memory)
    assert isinstance(reduced.bank._parts[0].source, FeatureSource) == (not memory)
    ours = solve(reduced.squared(3.0, LpBall(p)), "newton", tol=1e-10)
    assert np.isclose(ours.upper, exact.upper, rtol=1e-8)
    assert np.isclose(ours.lower, exact.lower, rtol=1e-8)
    assert np.allclose(ours.theta, exact.theta, atol=1e-6)
    coef = by_kernel(ours.theta, features.slices)[:, None] * ours.A
    raw, bias = scaling.raw(coef, ours.bias)
    scores = bank.apply(exact.theta, exact.A) + exact.bias
    assert np.allclose(Z @ raw + bias, scores, atol=1e-6)


def test_a_path_needs_no_further_pass():
    features, Z, y, w, bank = problem_data()
    passes = []

    def count(block):
        passes.append(1)
        return Statistics.of_block(block)

    found = ArrayBlocks(Z, y[:, None], w).reduce(count)
    scaling = Scaling.fit(
        "multiplicative", features, found.total, found.mean, np.diagonal(found.ZZ)
    )
    reduced = Reduced.of(found, scaling, features.slices)
    for C in (0.1, 10.0):
        for p in (1, 2):
            ours = solve(reduced.squared(C, LpBall(p)), "newton", tol=1e-9)
            loss = Squared(y[:, None], C * w[:, None])
            exact = solve(MKLProblem(bank, loss, LpBall(p)), "newton", tol=1e-9)
            assert np.isclose(ours.upper, exact.upper, rtol=1e-8)
    assert len(passes) == 1


def test_an_expansion_is_solved_to_its_dual_bound():
    rng = np.random.default_rng(0)
    slices = (slice(0, 3), slice(3, 5), slice(5, 9))
    S = tuple((lambda Z: Z.T @ Z)(rng.normal(size=(6, 9))) for _ in range(2))
    problem = Expansion(S, rng.normal(size=(9, 2)), slices, LpBall(1))
    theta, w = minimised(problem, None)
    for t in range(2):  # the solution for these weights, by its formula
        root = np.sqrt(by_kernel(theta, slices))
        B = np.eye(9) + root[:, None] * S[t] * root
        assert np.allclose(
            w[:, t], root * np.linalg.solve(B, root * problem.g[:, t]), atol=1e-8
        )
    v = problem.g - np.column_stack([S[t] @ w[:, t] for t in range(2)])
    assert problem.judge(Iterate(theta, v, w)).gap < 1e-8
    with pytest.raises(ValueError, match="w behind v"):
        problem.judge(Iterate(theta, v))


# --- passes ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", POINTWISE)
def test_points_are_the_losses(name):
    rng = np.random.default_rng(0)
    f = rng.normal(size=(40, 1))
    Y = np.where(rng.random((40, 1)) < 0.5, -1.0, 1.0)
    C = np.ones((40, 1))
    points = by_name(name, epsilon=0.2)
    if points.targets != "labels":
        Y = rng.normal(size=(40, 1))
    loss = points.on(Y, C)
    assert np.isclose(points.value(f, Y).sum(), loss.primal(f, np.zeros(1)))
    zero = 0 * f
    a = points.slope(f, Y, 0.3, zero)
    assert np.allclose(points.dual(a, Y).sum(), loss.dual(a))

    # the dual variable is minus the derivative of the rounded loss
    def rounded(f):
        a = points.slope(f, Y, 0.3, zero)
        if not points.kinks:
            return points.value(f, Y)
        return points.dual(a, Y) - a * f - 0.15 * a**2

    h = 1e-6
    slope = (rounded(f - h) - rounded(f + h)) / (2 * h)
    assert np.allclose(slope, a, atol=1e-5)
    change = points.slope(f - h, Y, 0.3, zero) - points.slope(f + h, Y, 0.3, zero)
    assert np.allclose(change / (2 * h), points.bend(f, Y, 0.3, zero), atol=1e-4)


def in_passes(name, p, n=50, T=1, size=17, seed=0):
    features, Z, y, w, bank = problem_data(n, seed=seed)
    Y = (
        y[:, None]
        if LOSSES[name].targets != "labels"
        else np.column_stack(
            [np.where(y > q, 1.0, -1.0) for q in np.quantile(y, [0.5, 0.3, 0.8])[:T]]
        )
    )
    blocks = ArrayBlocks(Z, Y, w, rows=size)
    found = blocks.reduce(Statistics.of_block)
    scaling = Scaling.fit(
        "multiplicative", features, found.total, found.mean, np.diagonal(found.ZZ)
    )
    points = by_name(name, epsilon=0.1)
    problem = FeatureProblem(
        blocks, points, 2.0, LpBall(p), features.slices, scaling, found
    )
    exact = MKLProblem(
        bank, points.on(Y, 2.0 * np.repeat(w[:, None], Y.shape[1], 1)), LpBall(p)
    )
    return problem, exact, Z


@pytest.mark.parametrize("name", POINTWISE)
@pytest.mark.parametrize("p", [1, 4 / 3, 2])
def test_passes_find_the_optimum_of_all_samples(name, p):
    problem, exact, _ = in_passes(name, p)
    ours = solve(problem, tol=1e-6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        known = solve(exact, tol=1e-8)
    # each lies between the bounds of the other
    assert ours.gap <= 1e-6
    assert ours.lower <= known.upper * (1 + 1e-9)
    assert known.lower <= ours.upper * (1 + 1e-9)
    assert np.isclose(ours.upper, known.upper, rtol=2e-6)


@pytest.mark.parametrize("name", POINTWISE)
@pytest.mark.parametrize("p", [1, 4 / 3, 2])
def test_weights_and_scores_are_those_of_the_exact_method(name, p):
    smooth = name in ("squared_hinge", "squared", "logistic")
    problem, exact, Z = in_passes(name, p)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        # kinks end where rounding begins, at a gap of 1e-8 to 1e-7
        ours = solve(problem, tol=1e-12 if smooth else 1e-8, max_iter=300)
        known = solve(exact, "newton" if smooth else "auto", tol=1e-13, max_iter=300)
    assert ours.gap < (1e-10 if smooth else 2e-7)
    coef = by_kernel(ours.theta, problem.slices)[:, None] * ours.A
    point = problem.raw(coef, ours.bias)
    scores = exact.bank.apply(known.theta, known.A) + known.bias
    assert np.isclose(ours.upper, known.upper, rtol=1e-9 if smooth else 2e-7)
    assert np.allclose(ours.theta, known.theta, atol=1e-6)
    assert np.allclose(Z @ point.w + point.bias, scores, atol=1e-6)


@pytest.mark.parametrize(
    "weights",
    [Ellipsoid(np.eye(4) + 0.3), ElasticNet(0.5), BlockNorm(4.0), LpBall(np.inf)],
    ids=lambda weights: type(weights).__name__,
)
def test_any_weight_set_will_do(weights):
    problem, exact, _ = in_passes("squared_hinge", 2)
    problem, exact = replace(problem, weights=weights), replace(exact, weights=weights)
    ours, known = solve(problem, tol=1e-5), solve(exact, tol=1e-6)
    assert weights.contains(ours.theta)
    assert ours.lower <= known.upper * (1 + 1e-9)
    assert known.lower <= ours.upper * (1 + 1e-9)
    assert np.isclose(ours.upper, known.upper, rtol=2e-5)


def test_the_bounds_are_those_of_the_bank():
    # the certificate computed by KernelBank from the dual point of a pass
    problem, exact, Z = in_passes("hinge", 2)
    solution = solve(problem, tol=1e-4)
    coef = by_kernel(solution.theta, problem.slices)[:, None] * solution.A
    point = problem.raw(coef, solution.bias)
    scores = Z @ point.w + point.bias
    loss = exact.loss
    value = loss.primal(scores, np.zeros(1)) + problem.regulariser(coef, solution.theta)
    assert np.isclose(value, solution.upper, rtol=1e-9)
    found = problem.look(point, point, (1.0,), 0.1)
    bound, A = problem.feasible(found)
    alpha = loss.repair(
        loss.C * problem.loss.slope(scores, loss.Y, 0.1, np.zeros_like(scores))
    )
    assert np.isclose(bound, exact.dual(alpha), rtol=1e-9)
    assert np.allclose(
        exact.quads(alpha),
        np.add.reduceat((A**2).sum(axis=1), [s.start for s in problem.slices]),
    )


@pytest.mark.parametrize("name", ["hinge", "logistic"])
def test_tasks_share_their_weights(name):
    problem, exact, _ = in_passes(name, 2, T=3)
    ours = solve(problem, tol=1e-5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        known = solve(exact, tol=1e-7)
    assert ours.gap <= 1e-5 and np.isclose(ours.upper, known.upper, rtol=2e-5)


def test_passes_do_not_depend_on_the_size_of_blocks():
    values = [
        solve(in_passes("logistic", 2, size=size)[0], tol=1e-8).upper
        for size in (3, 50)
    ]
    assert np.isclose(*values, rtol=1e-10)


def test_a_limit_leaves_honest_bounds():
    problem, exact, _ = in_passes("hinge", 1)
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        early = solve(problem, max_iter=2, tol=1e-9)
    best = solve(exact, tol=1e-6)
    assert early.n_iter == 2
    assert early.lower <= best.upper and best.lower <= early.upper
    with pytest.warns(ConvergenceWarning, match="callback"):
        stopped = solve(problem, PassNewton(), tol=1e-9, callback=len)
    assert stopped.n_iter == 1


def test_functions_of_blocks_can_be_sent():
    Z, H, w = rows(T=1)
    block = Block(Z, np.sign(H), w)
    at = Point(np.ones((5, 1)), np.zeros(1))
    task = partial(
        sums,
        loss=by_name("hinge"),
        C=1.0,
        start=at,
        end=at,
        steps=(1.0,),
        mu=0.5,
        anchors=(),
        curved=True,
    )
    there = pickle.loads(pickle.dumps(task))(block)
    here = task(block)
    both = there + here
    assert np.isclose(both.value[0], 2 * here.value[0])
    assert np.isclose(both.curvature[0].total, 2 * here.curvature[0].total)
