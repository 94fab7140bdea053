"""Covariates beside losses that couple the classes of a sample."""

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize
from scipy.special import logsumexp

from cases import patient_columns
from mklearn import (
    BilinearMKLClassifier,
    CrammerSinger,
    CrammerSingerClassifier,
    LpBall,
    MKLClassifier,
    MKLClassifierCV,
    MKLProblem,
    Multinomial,
)
from mklearn.blocks import ArrayBlocks
from mklearn.kernels import RBF, KernelBank, Linear, per_feature
from mklearn.persistence import load, save
from mklearn.problems.design import Design, Exchange
from mklearn.solvers.inner import MultinomialSolver

EPS = np.finfo(float).eps
FIXED = ["age", "site"]


def patients(n=90, seed=0):
    """Return a table of numbers and categories, and three classes that overlap."""
    rng = np.random.default_rng(seed)
    X = patient_columns(rng, n)
    score = np.sin(X["a"]) + 0.05 * X["age"] + 2.0 * (X["site"] == "y")
    score = score + 1.5 * rng.standard_normal(n)
    return X, np.array(["u", "v", "w"])[
        np.digitize(score, np.quantile(score, [0.3, 0.6]))
    ]


def coded(X):
    """Return ones, age in hundreds and the indicators of two sites."""
    site = X["site"].to_numpy()
    return np.column_stack([np.ones(len(X)), X["age"] / 100, site == "y", site == "z"])


def random_loss(n=30, k=4, seed=0):
    rng = np.random.default_rng(seed)
    labels = np.r_[np.arange(k), rng.integers(0, k, n - k)]
    columns = np.column_stack([np.ones(n), rng.standard_normal((n, 2))])
    C = rng.uniform(0.5, 2.0, n)
    return Multinomial(labels, C, k, design=Design(columns)), rng


# --- the formula ----------------------------------------------------------------------


def test_effects_are_the_best():
    loss, rng = random_loss()
    F = 2 * rng.normal(size=loss.shape)
    best = loss.bias(F)
    assert best.shape == (3, 4)
    np.testing.assert_allclose(best.sum(axis=1), 0.0, atol=1e-12 * np.abs(best).max())
    E = loss.design.columns
    p = loss.probabilities(F + E @ best)
    # the slope in the effects is zero, up to what the steps end with
    slope = E.T @ (loss.C[:, None] * (loss.own - p))
    assert np.abs(slope).max() <= 1e-9 * loss.C.sum() * np.abs(E).max()
    for _ in range(20):
        other = best + 0.1 * rng.normal(size=best.shape)
        assert loss.primal(F, other) >= loss.primal(F, best)


def test_any_point_is_made_feasible_and_bounds_hold():
    loss, rng = random_loss()
    E, n = loss.design.basis, len(loss.C)
    for scale in (1e-8, 1.0, 100.0):
        A = loss.repair(scale * rng.normal(size=loss.shape))
        assert loss.own.shape == A.shape and A.any()
        assert (loss.own - A / loss.C[:, None] >= -1e-12).all()
        np.testing.assert_allclose(A.sum(axis=1), 0.0, atol=4 * n * EPS)
        size = np.abs(E).T @ np.abs(A)
        assert (np.abs(E.T @ A) <= 100 * n * EPS * size + 1e-300).all()
        assert loss.below(A) <= loss.dual(A)
        assert 0.0 <= (loss.strain(A)).max() <= 1e-9 * loss.C.max()
        # Fenchel and Young, for any scores and effects
        F, b = scale * rng.normal(size=loss.shape), rng.normal(size=(3, 4))
        assert loss.primal(F, b) + np.sum(A * F) >= loss.below(A) - 1e-9
        off = np.full(loss.shape, 1e-3)
        most = loss.above(F, b, off)
        for sign in (-1, 1):
            moved = F + sign * off * np.sign(rng.normal(size=F.shape))
            assert loss.primal(moved, b) <= most


def test_masses_shrink_no_more_than_is_said():
    loss, rng = random_loss()
    exchange = Exchange(loss.design, loss.labels, 4)
    A = loss.repair(loss.slope(rng.normal(size=loss.shape)))
    assert exchange.misses(A) <= 1e-10
    m = exchange.masses(A)
    # a point that is off by some part: what makes it feasible is within what is told
    moved = exchange.signed(m * (1.0 + 1e-3 * rng.uniform(-1, 1, m.shape)))
    part = exchange.misses(moved)
    assert 1e-6 < part < 0.1
    settled = exchange.masses(exchange.settled(moved))
    before = exchange.masses(moved)
    assert (settled <= before * (1 + 1e-9)).all()
    assert (settled >= (1.0 - part) * before * (1 - 1e-9)).all()


def test_newton_sees_the_second_derivative():
    X, y = patients(60)
    bank = KernelBank(X[["a", "b"]].to_numpy(), [Linear(), RBF(0.5)]).stored()
    labels = np.unique(y, return_inverse=True)[1]
    loss = Multinomial(labels, np.full(len(y), 0.5), 3, design=Design(coded(X)))
    problem = MKLProblem(bank, loss, LpBall(2.0))

    def solved(theta):
        inner = MultinomialSolver(problem, None)
        steps = inner.solve(theta, 0.0)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return inner, *end.value

    theta = np.array([0.4, 0.6])
    inner, A, F = solved(theta)
    hessian = inner.hessian(F, bank.multiply(A))
    h = 1e-3  # as in the test without covariates
    for m in range(2):
        step = h * np.eye(2)[m]
        slopes = [-0.5 * bank.quad(solved(theta + s * step)[1]) for s in (1, -1)]
        column = (slopes[0] - slopes[1]) / (2 * h)
        size = np.abs(hessian).max()
        np.testing.assert_allclose(hessian[m], column, rtol=0, atol=1e-3 * size)


# --- models of the softmax loss -------------------------------------------------------


def test_softmax_agrees_with_a_direct_minimisation():
    X, y = patients()
    C = 0.7
    model = MKLClassifier(
        "linear", fixed=FIXED, loss="multinomial", normalize=None, C=C, tol=1e-9
    ).fit(X, y)
    columns = np.column_stack([coded(X), X["a"], X["b"]])
    own = (y[:, None] == model.classes_).astype(float)
    penalty = np.array([0, 0, 0, 0, 1, 1])[:, None]

    def objective(beta):
        B = beta.reshape(6, 3)
        f = columns @ B
        total = logsumexp(f, axis=1)
        value = C * np.sum(total - np.sum(f * own, axis=1))
        slope = C * columns.T @ (np.exp(f - total[:, None]) - own) + penalty * B
        return value + 0.5 * np.sum(penalty * B**2), slope.ravel()

    found = minimize(
        objective, np.zeros(18), jac=True, method="BFGS",
        options={"gtol": 1e-8, "maxiter": 2000},
    )  # fmt: skip
    assert model.solution_.lower <= found.fun * (1 + 1e-12)
    np.testing.assert_allclose(model.solution_.upper, found.fun, rtol=1e-8)
    B = found.x.reshape(6, 3)
    B = B - B.mean(axis=1, keepdims=True)  # what all classes have makes no odds
    np.testing.assert_allclose(model.fixed_effects_ * [100, 1, 1], B[1:4].T, atol=1e-3)
    np.testing.assert_allclose(model.decision_function(X), columns @ B, atol=1e-3)


@pytest.mark.parametrize("norm", [1, 2, np.inf])
def test_solvers_of_the_softmax_loss_agree(norm):
    X, y = patients(60)
    found = []
    # the analytic update slows down at corners of the simplex
    last = "cutting_plane" if norm == 1 else "alternating"
    for solver in ("auto", "newton", last):
        model = MKLClassifier(
            per_feature("rbf", "linear"), fixed=FIXED, loss="multinomial", norm=norm,
            solver=solver, tol=1e-5, max_iter=5000,
        )  # fmt: skip
        found.append(model.fit(X, y).solution_)
    for one in found:
        assert one.gap <= 1e-5
        assert one.lower <= min(other.upper for other in found)
    # sums of probabilities and of indicators agree over the covariates of each class
    Z, p = coded(X), model.predict_proba(X)
    off = Z.T @ ((y[:, None] == model.classes_) - p)
    # a gap moves slopes by its root, times that of the largest curvature, ½
    reach = np.sqrt(1e-5 * model.solution_.upper * len(y)) * np.abs(Z).max()
    assert np.abs(off).max() <= reach


def test_without_covariates_nothing_changes():
    X, y = patients()
    kernels = ["linear", "rbf"]
    options = {"loss": "multinomial", "tol": 1e-8}
    plain = MKLClassifier(kernels, **options).fit(X[["a", "b"]], y)
    beside = X[["a", "b"]].assign(one=2.0)
    same = MKLClassifier(kernels, fixed=["one"], **options).fit(beside, y)
    assert same.fixed_dropped_ == ("one",) and same.fixed_effects_.shape == (3, 0)
    assert same.solution_.lower <= plain.solution_.upper
    assert plain.solution_.lower <= same.solution_.upper
    np.testing.assert_allclose(same.kernel_weights_, plain.kernel_weights_, atol=1e-3)


def test_two_classes_are_the_logistic_loss():
    X, y = patients()
    two = np.where(y == "u", "u", "other")
    models = [
        MKLClassifier("rbf", fixed=FIXED, loss=loss).fit(X, two)
        for loss in ("multinomial", "logistic")
    ]
    assert np.array_equal(*(model.decision_function(X) for model in models))


@pytest.mark.parametrize("norm", [1, 2])
def test_full_rank_is_exact(norm):
    X, y = patients()
    options = {"fixed": FIXED, "loss": "multinomial", "norm": norm}
    exact = MKLClassifier(["linear", "rbf"], tol=1e-7, **options).fit(X, y)
    low = MKLClassifier(
        ["linear", "rbf"], approximation="nystroem", rank=len(y), tol=1e-5, **options
    ).fit(X, y)
    slack = 1e-9 * exact.solution_.upper  # features are exact up to rounding
    assert low.duality_gap_ <= 1e-5
    assert low.solution_.lower <= exact.solution_.upper + slack
    assert exact.solution_.lower <= low.solution_.upper + slack
    np.testing.assert_allclose(low.predict_proba(X), exact.predict_proba(X), atol=0.02)


def test_blocks_are_arrays():
    X, y = patients(70)
    table = np.column_stack([X["a"], X["b"], X["age"]])
    model = MKLClassifier(
        ["linear", "rbf"], fixed=[2], loss="multinomial", approximation="nystroem",
        rank=20,
    )  # fmt: skip
    model.fit(table, y)
    whole = model.predict_proba(table), model.solution_
    model.fit(ArrayBlocks(table, y, rows=17))
    assert model.duality_gap_ <= 1e-3
    # bounds of one problem for both: landmarks depend on the rows, not on their blocks
    assert whole[1].lower <= model.solution_.upper * (1 + 1e-9)
    assert model.solution_.lower <= whole[1].upper * (1 + 1e-9)


def test_search_grams_and_files(tmp_path):
    X, y = patients()
    search = MKLClassifierCV(
        per_feature("rbf"), fixed=FIXED, loss="multinomial", Cs=[0.1, 1.0], norms=[2],
        cv=3,
    ).fit(X, y)  # fmt: skip
    plain = MKLClassifierCV(
        per_feature("rbf"), loss="multinomial", Cs=[0.1, 1.0], norms=[2], cv=3
    ).fit(X[["a", "b"]], y)
    assert search.mean_scores_.max() > plain.mean_scores_.max() + 0.1
    save(search, tmp_path / "model.mkl")
    again = load(tmp_path / "model.mkl")
    assert np.array_equal(again.predict_proba(X), search.predict_proba(X))
    made = KernelBank(X[["a", "b"]].to_numpy(), [Linear(), RBF(0.5)])
    grams = np.stack([made.gram(m) for m in range(2)], axis=2)
    bank = KernelBank.from_grams(grams, covariates=X[FIXED])
    options = {"fixed": FIXED, "loss": "multinomial", "tol": 1e-6}
    given = MKLClassifier("precomputed", **options).fit(bank, y)
    made = MKLClassifier([Linear(), RBF(0.5)], **options).fit(X, y)
    np.testing.assert_allclose(given.solution_.upper, made.solution_.upper, rtol=1e-6)


def test_covariates_that_tell_classes():
    X, y = patients()
    known = X.assign(known=y)
    with pytest.raises(ValueError, match="leaves nothing for the kernels"):
        MKLClassifier(fixed=["known", "site"], loss="multinomial").fit(known, y)
    # one class is told from each other one, these two overlap
    part = X.assign(first=(y == "u").astype(float))
    with pytest.warns(UserWarning, match=r"separate some of the samples \(class u\)"):
        model = MKLClassifier(
            "rbf", fixed=["first", "site", "age"], loss="multinomial"
        ).fit(part, y)
    assert model.duality_gap_ <= 1e-3
    assert ((model.predict(part) == "u") == (y == "u")).all()


@pytest.mark.parametrize("loss", ["logistic", "multinomial"])
def test_low_rank_features_refuse_infinite_effects(loss):
    X, y = patients()
    table = X[["a", "b"]].assign(first=(y == "u").astype(float))
    model = MKLClassifier(
        "rbf", fixed=["first"], loss=loss, approximation="nystroem", rank=20
    )
    with pytest.raises(ValueError, match=r"\(class u\) perfectly.* no solution can"):
        model.fit(table, y)
    # some samples of one class only, of two and of three
    few = table.assign(first=np.isin(np.arange(len(y)), np.flatnonzero(y == "u")[:4]))
    with pytest.raises(ValueError, match=r"\(class u\) perfectly"):
        model.fit(few, y)
    with pytest.raises(ValueError, match="some of the samples perfectly"):
        model.fit(few, y == "u")


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge", "logistic"])
def test_a_number_that_separates_one_class_from_the_others(loss):
    X, y = patients()
    shift = np.where(y == "u", 1.0, -1.0)
    rest = np.random.default_rng(0).random(len(y))
    table = X[["a", "b"]].assign(first=shift * (1e-3 + rest))
    model = MKLClassifier("rbf", fixed=["first"], loss=loss, weights="per-class")
    with pytest.raises(ValueError, match="separate class u from the others"):
        model.fit(table, y)
    # weights that classes share are learned from the other classes
    model.set_params(weights="shared")
    if loss == "logistic":
        with pytest.warns(UserWarning, match=r"\(class u\)"):
            model.fit(table, y)
    else:
        model.fit(table, y)
    assert model.duality_gap_ <= 1e-3
    assert ((model.predict(table) == "u") == (y == "u")).mean() > 0.9


# --- the Crammer-Singer loss ----------------------------------------------------------


def random_margins(n=40, k=4, seed=0):
    soft, rng = random_loss(n, k, seed)
    return CrammerSinger(soft.labels, soft.C, k, design=soft.design), rng


def test_margins_any_point_is_made_feasible_and_bounds_hold():
    loss, rng = random_margins()
    E, n = loss.design.basis, len(loss.C)
    for scale in (1e-8, 1.0, 100.0):
        A = loss.repair(scale * rng.normal(size=loss.shape))
        assert (A <= np.where(loss.own, loss.C[:, None] * (1 + n * EPS), 0.0)).all()
        np.testing.assert_allclose(A.sum(axis=1), 0.0, atol=n * EPS * loss.C.max())
        size = np.abs(E).T @ np.abs(A)
        assert (np.abs(E.T @ A) <= 100 * n * EPS * size + 1e-300).all()
        assert 0.0 < loss.below(A) <= loss.dual(A)
        # Fenchel and Young, for any scores and effects
        F, b = rng.normal(size=loss.shape), rng.normal(size=(3, 4))
        assert loss.primal(F, b) + np.sum(A * F) >= loss.below(A) * (1 - 1e-9)
        off = np.full(loss.shape, 1e-3)
        moved = F + off * np.sign(rng.normal(size=F.shape))
        assert loss.primal(moved, b) <= loss.above(F, b, off)


def test_margins_effects_are_the_best():
    cp = pytest.importorskip("cvxpy")
    loss, rng = random_margins()
    F = 2 * rng.normal(size=loss.shape)
    best = loss.bias(F)
    B = cp.Variable((3, 4))
    f = F + loss.design.columns @ B
    own = loss.own.astype(float)
    lost = cp.max(f + 1 - own, axis=1) - cp.sum(cp.multiply(own, f), axis=1)
    optimum = cp.Problem(cp.Minimize(loss.C @ lost)).solve(solver="CLARABEL")
    # both are linear programs, solved to the tolerances of their solvers
    np.testing.assert_allclose(loss.primal(F, best), optimum, rtol=1e-6)


def test_margins_agree_with_a_quadratic_program():
    cp = pytest.importorskip("cvxpy")
    X, y = patients(60)
    C, tol = 0.7, 1e-5
    model = CrammerSingerClassifier(
        "linear", fixed=FIXED, normalize=None, C=C, tol=tol
    ).fit(X, y)
    own = (y[:, None] == model.classes_).astype(float)
    B, W = cp.Variable((4, 3)), cp.Variable((2, 3))
    f = coded(X) @ B + X[["a", "b"]].to_numpy() @ W
    lost = cp.sum(cp.max(f + 1 - own, axis=1) - cp.sum(cp.multiply(own, f), axis=1))
    value = C * lost + 0.5 * cp.sum_squares(W)
    optimum = cp.Problem(cp.Minimize(value)).solve(solver="CLARABEL")
    found = model.solution_
    assert found.gap <= tol
    assert found.lower <= optimum * (1 + 1e-7) and optimum <= found.upper * (1 + 1e-7)
    # there may be several best effects: those found have the value that is claimed
    scores = model.decision_function(X)
    top = (scores + 1 - own).max(axis=1) - np.sum(own * scores, axis=1)
    half = found.upper - C * top.sum()
    np.testing.assert_allclose(half, 0.5 * np.sum(W.value**2), rtol=0.05)
    assert model.fixed_effects_.shape == (3, 3) and model.intercept_.any()


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("weights", ["shared", "per-class"])
def test_margins_solvers_agree(weights, norm):
    X, y = patients(45)
    names = ["auto", "alternating"]
    names += ["cutting_plane"] if weights == "shared" else []
    names += ["projected_gradient"] if weights == "per-class" and norm == 1 else []
    found = {}
    for solver in names:
        model = BilinearMKLClassifier(
            per_feature("rbf"), fixed=FIXED, weights=weights, norm=norm, solver=solver
        ).fit(X, y)
        found[solver] = model.solution_
        # computed afresh, the dual point proves what is claimed
        A = model.solution_.dual
        assert model.duality_gap_ <= 1e-3 and A.any()
    top = min(one.upper for one in found.values())
    for solver, one in found.items():
        assert one.lower <= top * (1 + 1e-12), solver
    Z, a = coded(X)[model.support_], model.dual_coef_.T
    assert (np.abs(Z.T @ a) <= 1e-9 * np.abs(Z).T @ np.abs(a)).all()


def test_margins_of_two_classes_and_one_covariate_too_many():
    X, y = patients(60)
    two = np.where(y == "u", "u", "other")
    model = CrammerSingerClassifier("rbf", fixed=FIXED).fit(X, two)
    assert model.decision_function(X).shape == (60,)
    assert model.fixed_effects_.shape == (2, 3)
    # the hinge loss of half the difference: the same problem
    C = 1.0
    plain = MKLClassifier("rbf", fixed=FIXED, C=C, norm=np.inf, tol=1e-6).fit(X, two)
    half = CrammerSingerClassifier("rbf", fixed=FIXED, C=0.5 * C, tol=1e-6)
    half.fit(X, two)
    # f = w_1 - w_2 with w_1 = -w_2 costs ¼ |f|^2: a loss of max(0, 1 - y f) at cost
    # 2 C' has ½ |f|^2 beside it
    np.testing.assert_allclose(
        2 * half.solution_.upper, plain.solution_.upper, rtol=3e-6
    )
    with pytest.raises(ValueError, match="leaves nothing for the kernels"):
        model.set_params(fixed=["known", "site"]).fit(X.assign(known=two), two)


def test_margins_files_and_grams(tmp_path):
    X, y = patients(45)
    model = BilinearMKLClassifier(["linear", "rbf"], fixed=FIXED).fit(X, y)
    save(model, tmp_path / "model.mkl")
    again = load(tmp_path / "model.mkl")
    assert np.array_equal(again.decision_function(X), model.decision_function(X))
    assert again.fixed_names_ == ("age", "site=y", "site=z")
    made = KernelBank(X[["a", "b"]].to_numpy(), [Linear(), RBF(0.5)])
    grams = np.stack([made.gram(m) for m in range(2)], axis=2)
    bank = KernelBank.from_grams(grams, covariates=X[FIXED])
    given = BilinearMKLClassifier("precomputed", fixed=FIXED).fit(bank, y).solution_
    same = BilinearMKLClassifier([Linear(), RBF(0.5)], fixed=FIXED).fit(X, y).solution_
    assert given.lower <= same.upper and same.lower <= given.upper


def test_margins_where_covariates_are_all_there_is():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.standard_normal(30), "z": rng.standard_normal(30)})
    y = np.digitize(X["z"] + rng.standard_normal(30), [-0.5, 0.5])
    model = BilinearMKLClassifier("rbf", fixed="z", norm=2).fit(X, y)
    # weights fall to nothing, and the covariates keep their effects
    assert model.duality_gap_ <= 1e-3
    assert model.fixed_effects_[2] > model.fixed_effects_[0]
