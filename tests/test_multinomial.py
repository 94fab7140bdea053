"""The softmax loss: all classes at once, exact, with a certificate."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris, load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from mklearn import KernelBank, MKLClassifier, MKLClassifierCV, MultiView, mkl_path
from mklearn.blocks import ArrayBlocks
from mklearn.kernels import RBF, Linear, per_view
from mklearn.persistence import load, save
from mklearn.problems import LpBall, MKLProblem
from mklearn.problems.coupled import Multinomial
from mklearn.problems.losses import Logistic, Softmax
from mklearn.solvers.inner import MultinomialSolver

KERNELS = [Linear(), RBF(0.1), RBF(0.02)]


@parametrize_with_checks([MKLClassifier(loss="multinomial", tol=1e-2)])
def test_scikit_learn_conventions(estimator, check):
    check(estimator)


def wine(step=1):
    X, y = load_wine(return_X_y=True)
    return StandardScaler().fit_transform(X)[::step], y[::step]


def random_loss(n=12, k=4, seed=0):
    rng = np.random.default_rng(seed)
    labels = np.r_[np.arange(k), rng.integers(0, k, n - k)]
    return Multinomial(labels, rng.uniform(0.2, 3.0, n), k), rng


# --- reductions -----------------------------------------------------------------------


@pytest.mark.parametrize("C", [0.01, 1.0, 30.0])
def test_one_linear_kernel_is_logistic_regression(C):
    X, y = wine()
    ours = MKLClassifier([Linear()], loss="multinomial", normalize=None, C=C, tol=1e-8)
    ours.fit(X, y)
    theirs = LogisticRegression(C=C, tol=1e-10, max_iter=10_000).fit(X, y)
    value = C * log_loss(y, theirs.predict_proba(X), normalize=False)
    value += 0.5 * np.sum(theirs.coef_**2)
    lower = ours.solution_.lower
    assert value >= lower  # no model is below the bound
    # what a point lacks to the optimum is at least C KL(p* | p) of each sample, which
    # is at least C / 2 times the square of |p - p*|_1 (Pinsker)
    gaps = ours.solution_.upper - lower, value - lower
    allowed = sum(np.sqrt(2 * gap / C) for gap in gaps)
    assert allowed < 5e-2
    p, q = ours.predict_proba(X), theirs.predict_proba(X)
    assert np.abs(p - q).sum(axis=1).max() <= allowed
    np.testing.assert_allclose(p.sum(axis=1), 1.0)


def test_weighted_samples_and_classes_as_in_logistic_regression():
    X, y = wine(2)
    w = np.random.default_rng(0).uniform(0.5, 2.0, len(y))
    options = {"class_weight": {0: 2.0, 1: 1.0, 2: 0.5}}
    ours = MKLClassifier(
        [Linear()], loss="multinomial", normalize=None, tol=1e-8, **options
    ).fit(X, y, sample_weight=w)
    theirs = LogisticRegression(tol=1e-10, max_iter=10_000, **options)
    theirs.fit(X, y, sample_weight=w)
    np.testing.assert_allclose(
        ours.predict_proba(X), theirs.predict_proba(X), rtol=0, atol=1e-3
    )


def test_two_classes_are_the_logistic_loss():
    X, y = wine()
    X, y = X[y < 2], y[y < 2]
    one = MKLClassifier(KERNELS, loss="multinomial").fit(X, y)
    two = MKLClassifier(KERNELS, loss="logistic").fit(X, y)
    np.testing.assert_array_equal(one.decision_function(X), two.decision_function(X))
    np.testing.assert_array_equal(one.predict_proba(X), two.predict_proba(X))
    low = clone(one).set_params(approximation="nystroem", rank=20).fit(X, y)
    assert low.predict_proba(X).shape == (len(X), 2)
    assert isinstance(Softmax().of(np.ones((3, 1)), np.ones(3), 1.0), Logistic)


# --- the formula ----------------------------------------------------------------------


def test_derivatives():
    loss, rng = random_loss()
    F, V = rng.normal(size=(2, 12, 4))
    h = 1e-5
    ahead, behind = (loss.primal(F + s * V, np.zeros(4)) for s in (h, -h))
    # central differences err by h^2, and by rounding over h
    slope = (ahead - behind) / (2 * h)
    assert np.isclose(-np.sum(loss.slope(F) * V), slope, atol=1e-8, rtol=1e-8)
    bent = -(loss.slope(F + h * V) - loss.slope(F - h * V)) / (2 * h)
    np.testing.assert_allclose(loss.bent(F, V), bent, atol=1e-8)


def test_the_dual_term_is_the_conjugate():
    loss, rng = random_loss()
    F, b = rng.normal(size=(12, 4)), rng.normal(size=4)
    for scale in (0.1, 1.0, 5.0):
        A = loss.repair(loss.slope(scale * F))
        np.testing.assert_allclose(A.sum(axis=0), 0.0, atol=1e-12)
        np.testing.assert_allclose(A.sum(axis=1), 0.0, atol=1e-12)
        # Fenchel and Young, for any scores; equality where A is their slope
        assert loss.primal(F, b) + np.sum(A * (F + b)) >= loss.dual(A) - 1e-12
        best = loss.bias(scale * F)
        A = loss.slope(scale * F + best)
        gap = loss.primal(scale * F, best) + np.sum(A * scale * F)
        assert abs(gap - loss.dual(loss.repair(A))) <= 1e-9 * loss.C.sum()
        again = loss.repair(loss.repair(A))
        np.testing.assert_allclose(again, loss.repair(A), atol=1e-12)


def test_the_bias_is_the_best():
    loss, rng = random_loss()
    F = 3 * rng.normal(size=(12, 4))
    best = loss.bias(F)
    assert abs(best.sum()) <= 1e-12
    p = loss.probabilities(F + best)
    total = loss.C.sum()
    np.testing.assert_allclose(loss.C @ p, loss.counts, atol=1e-9 * total)
    for _ in range(20):
        other = best + 0.1 * rng.normal(size=4)
        assert loss.primal(F, other) >= loss.primal(F, best)


def test_any_point_is_made_feasible_and_bounds_hold():
    loss, rng = random_loss(30, 5)
    for scale in (1e-8, 1.0, 100.0):
        A = loss.repair(scale * rng.normal(size=(30, 5)))
        p = loss.own - A / loss.C[:, None]
        assert (p >= -1e-12).all()
        np.testing.assert_allclose(loss.C @ p, loss.counts, rtol=1e-9)
        assert loss.below(A) <= loss.dual(A)
        assert (loss.strain(A) >= 0).all()
        F = scale * rng.normal(size=(30, 5))
        off = np.full((30, 5), 1e-3)
        most = loss.above(F, np.zeros(5), off)
        for sign in (-1, 1):
            moved = F + sign * off * np.sign(rng.normal(size=F.shape))
            assert loss.primal(moved, np.zeros(5)) <= most


def test_classes_that_a_part_of_the_samples_lacks():
    loss, rng = random_loss(20, 4)
    part = loss.take(np.flatnonzero(loss.labels != 2), 2.0)
    F = rng.normal(size=(len(part.labels), 4))
    bias = part.bias(F)
    assert part.probabilities(F + bias)[:, 2].max() < 1e-20
    A = part.repair(part.slope(F + bias))
    assert not A[:, 2].any()
    assert part.primal(F, bias) + np.sum(A * F) >= part.dual(A) - 1e-9


def test_newton_sees_the_second_derivative():
    X, y = wine(4)
    bank = KernelBank(X, KERNELS).stored()
    loss = Multinomial(y, np.full(len(y), 0.5), 3)
    problem = MKLProblem(bank, loss, LpBall(2.0))

    def solved(theta):
        inner = MultinomialSolver(problem, None)
        steps = inner.solve(theta, 0.0)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return inner, *end.value

    theta = np.array([0.4, 0.6, 0.3])
    inner, A, F = solved(theta)
    hessian = inner.hessian(F, bank.multiply(A))
    # A is known to the root of what rounding leaves of the gap, 1e-13, and differences
    # of its squares are divided by h; their own error is of the order of h^2
    h = 1e-3
    for m in range(3):
        step = h * np.eye(3)[m]
        slopes = [-0.5 * bank.quad(solved(theta + s * step)[1]) for s in (1, -1)]
        column = (slopes[0] - slopes[1]) / (2 * h)
        size = np.abs(hessian).max()
        np.testing.assert_allclose(hessian[m], column, rtol=0, atol=1e-3 * size)
    np.testing.assert_allclose(hessian, hessian.T, atol=1e-9 * np.abs(hessian).max())


# --- models ---------------------------------------------------------------------------


@pytest.mark.parametrize("norm", [1, 4 / 3, 2, np.inf])
def test_certificates_and_agreement_of_solvers(norm):
    X, y = wine(2)
    model = MKLClassifier(KERNELS, loss="multinomial", norm=norm, tol=1e-5).fit(X, y)
    assert model.duality_gap_ <= 1e-5
    for solver in ("newton", "cutting_plane", "alternating"):
        other = clone(model).set_params(solver=solver, tol=1e-3).fit(X, y)
        assert other.duality_gap_ <= 1e-3
        assert other.solution_.lower <= model.solution_.upper
        assert model.solution_.lower <= other.solution_.upper
    parts = model.predictor_.parts(X).sum(axis=2) + model.intercept_
    np.testing.assert_allclose(parts, model.decision_function(X), atol=1e-9)
    scores = model.decision_function(X)
    np.testing.assert_array_equal(model.predict(X), model.classes_[scores.argmax(1)])


def test_a_path_a_search_and_a_file(tmp_path):
    X, y = wine(2)
    bank = KernelBank(X, KERNELS).stored()
    ones = np.where(y[:, None] == np.arange(3), 1.0, -1.0)
    path = mkl_path(
        bank, lambda C: Softmax().of(ones, np.ones(len(y)), C), [0.1, 1.0], [1, 2]
    )
    assert (path.gap <= 1e-3).all()
    search = MKLClassifierCV(
        KERNELS, loss="multinomial", Cs=[0.1, 1.0], norms=[1, 2], cv=3,
        scoring="neg_log_loss",
    ).fit(X, y)  # fmt: skip
    assert search.duality_gap_ <= 1e-3
    save(search, tmp_path / "model.mkl")
    same = load(tmp_path / "model.mkl")
    np.testing.assert_array_equal(same.predict_proba(X), search.predict_proba(X))
    grid = GridSearchCV(MKLClassifier(KERNELS, loss="multinomial"), {"C": [0.1, 1]})
    assert grid.fit(X, y).best_score_ > 0.9


def test_probabilities_are_better_than_none():
    X, y = load_iris(return_X_y=True)
    scores = cross_val_score(
        MKLClassifier(loss="multinomial"), X, y, scoring="neg_log_loss", cv=3
    )
    assert scores.mean() > -np.log(3) / 2


def test_views_and_precomputed_kernels():
    X, y = wine(3)
    views = MultiView({"a": X[:, :6], "b": X[:, 6:]})
    model = MKLClassifier(per_view("linear"), loss="multinomial", tol=1e-6)
    model.fit(views, y)
    bank = KernelBank(views, per_view("linear"))
    given = MKLClassifier("precomputed", loss="multinomial", tol=1e-6).fit(bank, y)
    np.testing.assert_allclose(
        given.predict_proba(bank.cross(views)), model.predict_proba(views), atol=1e-2
    )
    assert model.kernel_weights_.shape == (2,)


# --- in feature space -----------------------------------------------------------------

LOW = {"loss": "multinomial", "approximation": "nystroem"}


def near(ours, theirs, X, y, C, penalty, probabilities):
    """Tell whether probabilities agree as two gaps allow, by Pinsker's inequality."""
    value = C * log_loss(y, theirs, normalize=False) + penalty
    lower = ours.solution_.lower
    assert value >= lower * (1 - 1e-12)
    gaps = ours.solution_.upper - lower, value - lower
    allowed = sum(np.sqrt(2 * max(gap, 0.0) / C) for gap in gaps)
    assert allowed < 5e-2
    return np.abs(probabilities - theirs).sum(axis=1).max() <= allowed


@pytest.mark.parametrize("kernel", [Linear(), RBF(0.05)])
@pytest.mark.parametrize("C", [0.1, 10.0])
def test_one_kernel_is_logistic_regression_on_its_features(kernel, C):
    X, y = wine()
    ours = MKLClassifier([kernel], **LOW, rank=13, normalize=None, C=C, tol=1e-7)
    ours.fit(X, y)
    Z = ours.predictor_.features.transform(X)
    theirs = LogisticRegression(C=C, tol=1e-10, max_iter=10_000).fit(Z, y)
    penalty = 0.5 * np.sum(theirs.coef_**2)
    q, p = theirs.predict_proba(Z), ours.predict_proba(X)
    assert near(ours, q, X, y, C, penalty, p)


@pytest.mark.parametrize("norm", [1, 2, np.inf])
def test_all_features_are_the_kernels(norm):
    X, y = wine(2)
    exact = MKLClassifier(KERNELS, loss="multinomial", norm=norm, tol=1e-6).fit(X, y)
    low = MKLClassifier(KERNELS, **LOW, rank=len(X), norm=norm, tol=1e-6).fit(X, y)
    # features have the kernels' values up to what is cut off of small eigenvalues
    assert low.duality_gap_ <= 1e-6
    assert low.solution_.upper == pytest.approx(exact.solution_.upper, rel=1e-4)
    np.testing.assert_allclose(
        low.predict_proba(X), exact.predict_proba(X), rtol=0, atol=2e-2
    )


def test_blocks_are_the_rows():
    X, y = wine(2)
    options = {**LOW, "rank": 10, "tol": 1e-7, "random_state": 0}
    whole = MKLClassifier(KERNELS, **options).fit(X, y)
    blocks = MKLClassifier(KERNELS, **options).fit(ArrayBlocks(X, y, rows=17))
    assert blocks.solution_.upper == pytest.approx(whole.solution_.upper, rel=2e-7)
    np.testing.assert_allclose(
        blocks.predict_proba(X), whole.predict_proba(X), rtol=0, atol=5e-3
    )
    twice = MKLClassifier(KERNELS, **options)
    twice.fit(np.vstack([X, X]), np.r_[y, y], sample_weight=np.full(2 * len(y), 0.5))
    assert twice.solution_.upper == pytest.approx(whole.solution_.upper, rel=2e-7)


def test_bounds_of_a_pass_are_those_of_samples():
    X, y = wine(2)
    model = MKLClassifier(KERNELS, **LOW, rank=8, C=2.0)
    model.fit(X, y)  # the classes
    training, _ = model._encoded(model._training(X, y, None))
    problem = training.problem(Softmax(), 2.0, LpBall(2))
    rng = np.random.default_rng(0)
    D, T = len(problem.scaling.root), 3
    for size in (0.1, 1.0, 10.0):
        w, bias = size * rng.normal(size=(D, T)) / D, size * rng.normal(size=T)
        at = problem.raw(w, bias)
        found = problem.look(at, at, (0.0, 1.0), 1.0)
        Y, cost = training.targets()
        loss = Softmax().of(Y, cost, 2.0)
        F = np.concatenate([b.X @ at.w + at.bias for b in problem.blocks])
        Z = np.concatenate([b.X for b in problem.blocks])
        none = np.zeros(T)
        np.testing.assert_allclose(found.value, loss.primal(F, none), rtol=1e-12)
        a = loss.slope(F)
        slope, count = problem.gradient(found)
        root, shift = problem.scaling.root[:, None], problem.scaling.shift
        scale = np.abs(a).sum() * np.abs(root * (Z - shift).T).max()
        np.testing.assert_allclose(
            slope, root * ((Z - shift).T @ a), rtol=0, atol=1e-13 * scale
        )
        np.testing.assert_allclose(
            count, a.sum(axis=0)[None, :], atol=1e-13 * cost.sum() * 2
        )
        # the mixture, sample by sample: as feasible, and no worse than the bound says
        bound, A = problem.feasible(found)
        mixed = loss.repair(a)
        np.testing.assert_allclose(mixed.sum(axis=0), 0.0, atol=1e-12 * cost.sum())
        own = root * ((Z - shift).T @ mixed)
        np.testing.assert_allclose(A, own, rtol=0, atol=1e-12 * scale)
        q = [np.sum(A[part] ** 2) for part in problem.slices]
        exact = loss.dual(mixed) - 0.5 * problem.weights.support(np.array(q))
        assert bound <= exact + 1e-10 * abs(exact)
        # and curvature by class is not below that of all classes together
        V = rng.normal(size=F.shape)
        p = loss.probabilities(F)
        above = np.sum(2 * loss.C[:, None] * p * (1 - p) * V**2)
        assert np.sum(V * loss.bent(F, V)) <= above * (1 + 1e-12)


def test_clear_errors():
    X, y = wine(3)
    with pytest.raises(ValueError, match="share their kernel weights"):
        MKLClassifier(loss="multinomial", weights="per-class").fit(X, y)
    with pytest.raises(ValueError, match="one label and one cost"):
        Multinomial(np.arange(3), np.ones(2), 3)
    with pytest.raises(ValueError, match="finite numbers"):
        Multinomial(np.arange(3), np.full(3, np.inf), 3)
    with pytest.raises(AttributeError, match="predict_proba"):
        MKLClassifier().fit(X, y).predict_proba(X)
