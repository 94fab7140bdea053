"""Subspace kernels: definitions, reference eigenproblems, bounds, degenerate cases."""

import warnings

import numpy as np
import pytest
from scipy.linalg import eigh
from scipy.optimize import check_grad
from sklearn.base import clone
from sklearn.datasets import load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.utils.estimator_checks import parametrize_with_checks

from cases import samples, stack
from mklearn import (
    Hinge,
    KernelBank,
    MKLDiscriminant,
    SubspaceClassifier,
    SubspaceClassifierCV,
    SubspaceKernel,
    kernels,
)
from mklearn.kernels.measures import hsic
from mklearn.kernels.normalise import CENTRED_TRACE, fit_normaliser
from mklearn.problems.discriminant import label_targets
from mklearn.problems.subspace import (
    Alignment,
    Criterion,
    JointProblem,
    Kernels,
    label_factor,
    principal,
)
from mklearn.solvers import Status, solve_joint
from mklearn.solvers.joint import svms_on
from mklearn.solvers.subspace import integrate, maximise_alignment, svm_on


@parametrize_with_checks(
    [
        SubspaceKernel(kernels.RBF(), criterion="svm"),
        SubspaceClassifier([kernels.RBF(), kernels.Linear()]),
        SubspaceClassifier(kernels.RBF(), criterion="alignment", max_iter=5),
        SubspaceClassifierCV(kernels.RBF(), regs=[1e-2], Cs=[1.0], cv=2),
    ]
)
def test_scikit_learn_conventions(estimator, check):
    check(estimator)


def centred(K, weight=None):
    w = np.ones(len(K)) if weight is None else weight
    P = np.eye(len(K)) - np.outer(np.ones(len(K)), w) / w.sum()
    return P @ K @ P.T


def case(n=40, k=3, width=2):
    """Return samples, labels and a centred Gram."""
    X, y = samples(n, n_classes=k)
    return X, y, centred(stack(X)[:, :, width])


def hinge(y, C, k):
    Y = np.where(y[:, None] == np.arange(k), 1.0, -1.0)
    return Hinge(Y, np.full(Y.shape, float(C)))


# --- label kernels --------------------------------------------------------------------


def test_label_kernels_are_their_definitions():
    _, y, _ = case(20)
    Y = np.eye(3)[y]
    P = np.eye(20) - 1 / 20
    for kind, H in (("H1", Y @ Y.T), ("H2", Y @ np.diag(1 / Y.sum(0)) @ Y.T)):
        L = label_factor(y, 3, kind)
        np.testing.assert_allclose(L @ L.T, P @ H @ P, atol=1e-14)
    np.testing.assert_allclose(
        np.sqrt(20) * label_factor(y, 3), label_targets(Y.astype(bool)), atol=1e-14
    )


def test_a_weight_of_two_is_a_repeated_sample():
    X, y, _ = case(15)
    w = np.array([1.0, 2.0] * 8)[:15]
    rows = np.repeat(np.arange(15), w.astype(int))
    for uncorrelated in (True, False):
        K = stack(X)[:, :, 1]
        one = Criterion(centred(K, w), 0.3, uncorrelated, w)
        many = Criterion(centred(K[np.ix_(rows, rows)]), 0.3, uncorrelated)
        N = w[:, None] * label_factor(y, 3, weight=w)
        a, b = one.best(N), many.best(label_factor(y[rows], 3))
        np.testing.assert_allclose(a.values, b.values, rtol=1e-10)
        np.testing.assert_allclose(
            (a.features @ a.features.T)[np.ix_(rows, rows)],
            b.features @ b.features.T, rtol=1e-8, atol=1e-12,
        )  # fmt: skip
        np.testing.assert_allclose(
            one.whole()[np.ix_(rows, rows)], many.whole(), rtol=1e-8, atol=1e-10
        )
        np.testing.assert_allclose(one.total(N), b.values.sum(), rtol=1e-10)


# --- criteria -------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["H1", "H2"])
@pytest.mark.parametrize("reg", [1e-3, 1.0, 1e3])
def test_hsic_satisfies_its_eigenequation(kind, reg):
    _, y, G = case()
    L = label_factor(y, 3, kind)
    criterion = Criterion(G, reg, uncorrelated=False)
    W, Z, values, rank = criterion.best(L)
    assert rank == 2
    left = np.linalg.solve(G + reg * np.eye(40), G @ L @ L.T @ G @ W)
    np.testing.assert_allclose(left, W * values, rtol=1e-7, atol=1e-9 * values[0])
    np.testing.assert_allclose(W.T @ (G + reg * np.eye(40)) @ W, np.eye(2), atol=1e-9)
    np.testing.assert_allclose(Z, G @ W, atol=1e-9)
    np.testing.assert_allclose(criterion.constraint(W), np.eye(2), atol=1e-9)
    np.testing.assert_allclose(criterion.value(W, L), values.sum(), rtol=1e-9)


@pytest.mark.parametrize("kind", ["H1", "H2"])
@pytest.mark.parametrize("reg", [1e-3, 1.0, 1e3])
def test_uncorrelated_hsic_satisfies_its_eigenequation(kind, reg):
    _, y, G = case()
    L = label_factor(y, 3, kind)
    criterion = Criterion(G, reg)
    Q, Z, values, _ = criterion.best(L)
    right = (G @ G + reg * G) @ Q * values
    np.testing.assert_allclose(G @ L @ L.T @ G @ Q, right, rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(Q.T @ (G @ G + reg * G) @ Q, np.eye(2), atol=1e-9)
    np.testing.assert_allclose(Z.T @ Z + reg * Q.T @ Z, np.eye(2), atol=1e-9)
    np.testing.assert_allclose(criterion.value(Q, L), values.sum(), rtol=1e-9)


@pytest.mark.parametrize("reg", [1e-2, 1.0])
@pytest.mark.parametrize("uncorrelated", [True, False])
@pytest.mark.parametrize("n_components", [1, 2, 3])
def test_the_objective_is_that_of_the_large_eigenproblem(
    reg, uncorrelated, n_components
):
    _, y, G = case(50, k=4)
    L = label_factor(y, 4)
    right = G @ G + reg * G if uncorrelated else G + reg * np.eye(50)
    # the ones are in the null space of all matrices but the regularised one
    right = right + np.ones((50, 50))
    reference = eigh(G @ L @ L.T @ G, right, eigvals_only=True)[::-1][:n_components]
    found = Criterion(G, reg, uncorrelated).best(L, n_components)
    np.testing.assert_allclose(found.values, reference, rtol=1e-8)
    np.testing.assert_allclose(found.values.sum(), reference.sum(), rtol=1e-8)


def test_no_other_subspace_does_better():
    _, y, G = case()
    L, rng = label_factor(y, 3), np.random.default_rng(0)
    for uncorrelated in (True, False):
        criterion = Criterion(G, 0.1, uncorrelated)
        best = criterion.best(L)
        for scale in (1e-3, 0.1, 10.0):
            W = best.coef + scale * rng.normal(size=best.coef.shape)
            assert criterion.value(W, L) < best.values.sum()


def test_principal_features_are_uncorrelated_and_make_the_same_kernel():
    _, y, G = case(60, k=4)
    criterion = Criterion(G, 0.5)
    found = criterion.best(label_factor(y, 4))
    turned = principal(criterion, found)
    Z = turned.features
    np.testing.assert_allclose(Z @ Z.T, found.features @ found.features.T, atol=1e-12)
    np.testing.assert_allclose(Z, G @ turned.coef, atol=1e-10)
    np.testing.assert_allclose(criterion.constraint(turned.coef), np.eye(3), atol=1e-9)
    np.testing.assert_allclose(turned.values.sum(), found.values.sum(), rtol=1e-12)
    C = Z.T @ Z
    np.testing.assert_allclose(C - np.diag(np.diag(C)), 0.0, atol=1e-12)
    assert (np.diff(np.diag(C)) <= 1e-12).all()
    assert np.abs(np.corrcoef(found.features.T) - np.eye(3)).max() > 1e-6


def test_the_kernel_of_all_directions_bounds_every_subspace():
    _, _, G = case()
    A = np.random.default_rng(0).normal(size=(40, 3))
    A -= A.mean(axis=0)
    inverse = np.linalg.inv(G + 0.3 * np.eye(40))
    for uncorrelated in (True, False):
        criterion = Criterion(G, 0.3, uncorrelated)
        M = criterion.whole()
        formula = G @ inverse if uncorrelated else G @ inverse @ G
        P = np.eye(40) - 1 / 40
        np.testing.assert_allclose(P @ M @ P, formula, atol=1e-9)
        Z = criterion.best(A).features
        np.testing.assert_allclose(Z @ (Z.T @ A), P @ M @ A, atol=1e-9)
        np.testing.assert_allclose(criterion.total(A), np.sum(A * (M @ A)), rtol=1e-9)
        assert np.linalg.eigvalsh(P @ M @ P - Z @ Z.T)[0] > -1e-9


# --- the transformer ------------------------------------------------------------------


@pytest.mark.parametrize("uncorrelated", [True, False])
@pytest.mark.parametrize("criterion", ["hsic", "svm", "alignment"])
def test_new_features_of_training_samples_are_the_training_features(
    criterion, uncorrelated
):
    X, y, G = case(50)
    model = SubspaceKernel(
        "precomputed", criterion=criterion, uncorrelated=uncorrelated, reg=0.1, C=20.0
    )
    K = stack(X)[:, :, [2]]
    Z = model.fit(K, y).transform(K)
    W = np.zeros((50, model.n_components_))
    W[model.support_] = model.dual_coef_.T
    np.testing.assert_allclose(Z, G @ W, atol=1e-9)
    np.testing.assert_allclose(Z, clone(model).fit_transform(K, y), atol=1e-9)
    np.testing.assert_allclose(model.transform(K[7:9]), Z[7:9], atol=1e-12)
    np.testing.assert_allclose(Z.mean(axis=0), 0.0, atol=1e-10)
    if criterion != "alignment":
        metric = G @ G + 0.1 * G if uncorrelated else G + 0.1 * np.eye(50)
        np.testing.assert_allclose(W.T @ metric @ W, np.eye(len(W.T)), atol=1e-8)
        if uncorrelated:
            C = np.corrcoef(Z.T)
            np.testing.assert_allclose(C, np.eye(len(C)), atol=1e-8)


def test_one_kernel_has_the_scale_of_the_formulas_unless_asked():
    X, y, G = case()
    K, trace = stack(X)[:, :, [2]], np.trace(G)
    plain = SubspaceKernel("precomputed", reg=0.2).fit(K, y)
    unit = SubspaceKernel("precomputed", reg=0.2 / trace, unit_trace=True).fit(K, y)
    np.testing.assert_allclose(plain.transform(K), unit.transform(K), atol=1e-9)
    assert plain.objective_ == pytest.approx(unit.objective_, rel=1e-9)
    best = Criterion(G, 0.2).best(label_factor(y, 3))
    assert plain.objective_ == pytest.approx(best.values.sum(), rel=1e-9)
    auto = SubspaceKernel("precomputed").fit(K, y)
    assert auto.reg_ == pytest.approx(5e-4 * trace)


def test_the_plain_criterion_is_the_dependence_of_the_subspace_kernel():
    X, y, _ = case()
    K = stack(X)[:, :, [2]]
    model = SubspaceKernel("precomputed", uncorrelated=False, reg=0.2).fit(K, y)
    Z, L = model.transform(K), label_factor(y, 3)
    assert model.objective_ == pytest.approx(39**2 * hsic(Z @ Z.T, L @ L.T))
    assert model.objective_ == pytest.approx(model.criterion_values_.sum())


@pytest.mark.parametrize("criterion", ["hsic", "svm"])
def test_features_above_the_rank_are_cut_and_it_is_said(criterion):
    X, y = samples(40, n_classes=3)
    model = SubspaceKernel(kernels.RBF(0.3), criterion=criterion, n_components=20)
    with pytest.warns(UserWarning, match="n_components=20 exceeds the rank"):
        model.fit(X, y)
    assert model.n_components_ == model.rank_ <= 3
    assert model.transform(X).shape == (40, model.n_components_)
    assert len(model.get_feature_names_out()) == model.n_components_
    one = SubspaceKernel(kernels.RBF(0.3), criterion=criterion, n_components=1)
    assert one.fit(X, y).transform(X).shape == (40, 1)
    assert one.get_feature_names_out().tolist() == ["subspacekernel0"]


@pytest.mark.parametrize("criterion", ["hsic", "svm", "alignment"])
def test_two_classes(criterion):
    X, y = samples(40)
    Z, truth = samples(60, seed=3)
    model = SubspaceClassifier(kernels.RBF(0.1), criterion=criterion, reg=1.0)
    assert model.fit(X, y).n_components_ == 1
    assert model.decision_function(Z).shape == (60,)
    assert model.score(Z, truth) > 0.75


@pytest.mark.parametrize("criterion", ["hsic", "svm", "alignment"])
def test_a_class_with_one_sample(criterion):
    X, y = samples(30)
    X, y = np.r_[X, [[6.0] * 5]], np.r_[y, 2]
    model = SubspaceClassifier(kernels.RBF(0.1), criterion=criterion).fit(X, y)
    assert model.predict([[6.0] * 5]) == [2]
    assert np.isfinite(model.transform(X)).all()


def test_pipelines_searches_and_parallel_folds():
    X, y = load_wine(return_X_y=True)
    pipe = make_pipeline(
        StandardScaler(), SubspaceKernel(kernels.RBF(0.02)), KNeighborsClassifier()
    )
    assert cross_val_score(pipe, X, y, cv=2, n_jobs=2).mean() > 0.95
    grid = {"subspacekernel__reg": [0.1], "subspacekernel__n_components": [1, 2]}
    search = GridSearchCV(pipe, grid, cv=2).fit(X, y)
    assert search.best_params_["subspacekernel__n_components"] == 2


# --- several kernels ------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["newton", "silp", "qcqp", "sdp"])
@pytest.mark.parametrize("k", [2, 3])
def test_weights_of_hsic_are_those_of_discriminant_analysis(solver, k):
    if solver in ("qcqp", "sdp"):
        pytest.importorskip("cvxpy")
        pytest.importorskip("clarabel")
    X, y = samples(24, n_classes=k)
    B = stack(X, 4)
    theirs = MKLDiscriminant("precomputed", reg=0.01, tol=1e-9).fit(B, y)
    model = SubspaceKernel("precomputed", reg=0.01, solver=solver, tol=1e-7)
    model.fit(B, y)
    np.testing.assert_allclose(model.kernel_weights_, theirs.kernel_weights_, atol=2e-4)
    assert model.kernel_weights_.sum() == pytest.approx(1.0)
    assert model.kernel_contributions_.sum() == pytest.approx(1.0)
    assert model.duality_gap_ <= 1e-7
    # (27) and the criterion (23) add up to tr H
    total = np.sum(label_factor(y, k) ** 2)
    assert model.objective_ == pytest.approx(
        total - 2 * 0.01 * model.solution_.upper, rel=1e-6
    )


def test_several_kernels_do_better_than_each_alone():
    X, y = samples(50, n_classes=3)
    B = stack(X, 4)
    together = SubspaceKernel("precomputed", reg=0.01, tol=1e-8).fit(B, y).objective_
    for m in range(4):
        alone = SubspaceKernel("precomputed", reg=0.01, unit_trace=True)
        assert alone.fit(B[:, :, [m]], y).objective_ <= together * (1 + 1e-7)


def integrated(n=50, reg=0.05, theta=None):
    X, y = samples(n, n_classes=3)
    bank = KernelBank.from_grams(stack(X, 4))
    bank = fit_normaliser(CENTRED_TRACE, bank).train(bank)
    return Kernels(bank, reg, True, np.ones(n), theta), y


def test_slopes_in_the_weights_by_finite_differences():
    group, y = integrated()
    A = label_factor(y, 3)
    theta = np.array([0.4, 0.3, 0.2, 0.1])
    slopes = group.slopes(theta, A)
    for m in range(4):
        step = 1e-5 * np.eye(4)[m]
        ends = [-0.5 * group.criterion(theta + s * step).total(A) for s in (1, -1)]
        assert slopes[m] == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-5)


def test_weights_and_svms_together_reach_the_saddle_point():
    group, y = integrated()
    problem = JointProblem(hinge(y, 20.0, 3), 3, group, label_factor(y, 3))
    found = solve_joint(problem, tol=1e-5, weights_tol=1e-8)
    assert found.status is Status.OPTIMAL and found.gap <= 1e-5
    # no other weights do better
    rng = np.random.default_rng(0)
    for theta in [*np.eye(4), *rng.dirichlet(np.ones(4), 5)]:
        M = KernelBank.from_grams(group.criterion(theta).whole())
        assert svm_on(M, problem.loss, tol=1e-7).upper >= found.lower * (1 - 1e-6)
    # and the weights are the best ones for the SVMs, (40)
    again = integrate(group, found.A, tol=1e-8)
    ours = group.criterion(found.theta).total(found.A)
    total = np.sum(found.A**2) - 2 * group.reg * again.upper
    assert ours == pytest.approx(total, rel=1e-2)


def test_alternating_over_several_kernels_has_valid_bounds():
    group, y = integrated(reg=5.0)
    problem = JointProblem(hinge(y, 5.0, 3), 3, group, label_factor(y, 3))
    best = solve_joint(problem, tol=1e-6, weights_tol=1e-8)
    with pytest.warns(ConvergenceWarning) as caught:
        other = solve_joint(problem, "alternating", tol=1e-12, max_iter=4)
    assert len(caught) == 1
    assert other.lower <= best.upper * (1 + 1e-6)
    assert other.upper >= best.lower * (1 - 1e-6)


# --- the joint problem ----------------------------------------------------------------


def joint(n=45, k=3, reg=0.05, C=20.0, uncorrelated=True, n_components=3):
    X, y = samples(n, n_classes=k)
    bank = KernelBank.from_grams(stack(X)[:, :, [2]])
    bank = fit_normaliser("center", bank).train(bank)
    group = Kernels(bank, reg, uncorrelated, np.ones(n), np.ones(1))
    return JointProblem(hinge(y, C, k), n_components, group, label_factor(y, k))


def best_is_kept(found):
    """Assert that the answer is the best value on the way, rounded outward."""
    rounding = found.rounding * max(abs(found.upper), abs(found.lower))
    least = min(found.history.values)
    assert 0 <= found.upper - least * (1 - 1e-12) <= 2 * rounding
    assert found.rounding < 1e-7


@pytest.mark.parametrize("uncorrelated", [True, False])
def test_as_many_features_as_svms_are_solved_exactly(uncorrelated):
    problem = joint(uncorrelated=uncorrelated)
    found = solve_joint(problem, tol=1e-7)
    assert found.status is Status.OPTIMAL and found.gap <= 1e-7
    assert "no other subspace" in found.message
    # the SVMs on the features are those of the solution
    Z = found.about.subspace.features
    again = svm_on(Z, problem.loss, tol=1e-8)
    assert again.upper == pytest.approx(found.upper, rel=1e-6)
    # and the subspace is the best one for the SVMs, (12) and (22)
    group = problem.kernels
    best = group.criterion(np.ones(1)).best(found.A)
    assert np.sum(found.A * (Z @ (Z.T @ found.A))) == pytest.approx(
        best.values.sum(), rel=1e-9
    )
    # so that other subspaces have larger objectives
    rng = np.random.default_rng(0)
    for scale in (0.01, 1.0):
        W = found.about.subspace.coef * (
            1 + scale * rng.normal(size=found.about.subspace.coef.shape)
        )
        metric = group.criterion(np.ones(1)).constraint(W)
        other = group.bank.gram(0) @ W @ np.linalg.inv(np.linalg.cholesky(metric)).T
        assert svm_on(other, problem.loss, tol=1e-7).upper > found.upper * (1 - 1e-6)


@pytest.mark.parametrize("reg", [1e-12, 1e-6, 1.0])
@pytest.mark.parametrize("C", [1e-6, 1.0, 1e9])
@pytest.mark.parametrize("n_components", [1, 2])
@pytest.mark.parametrize("uncorrelated", [True, False])
def test_joint_certificates_include_rounding(uncorrelated, n_components, C, reg):
    mpmath = pytest.importorskip("mpmath")
    problem = joint(10, 2, reg, C, uncorrelated, n_components)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = solve_joint(problem, "alternating", tol=1e-3, max_iter=4)
    with mpmath.workdps(60):

        def exact(array):
            return mpmath.matrix(np.asarray(array, dtype=float).tolist())

        def total(matrix):
            return mpmath.fsum(matrix[i, i] for i in range(matrix.rows))

        def loss(f, bias, A):  # hinge: C (1 - y f) at most, and y A in the dual
            y, cost = problem.loss.Y, problem.loss.C
            primal = mpmath.fsum(
                mpmath.mpf(cost[i, t])
                * max(0, 1 - mpmath.mpf(y[i, t]) * (f[i, t] + mpmath.mpf(bias[t])))
                for i, t in np.ndindex(*y.shape)
            )
            dual = mpmath.fsum(
                mpmath.mpf(y[i, t]) * A[i, t] for i, t in np.ndindex(*y.shape)
            )
            return primal, dual

        G = exact(problem.kernels.bank.gram(0))
        H = G + mpmath.mpf(reg) * mpmath.eye(10)
        W, A = exact(found.about.subspace.coef), exact(found.A)
        Z = G * W
        metric = W.T * H * (Z if uncorrelated else W)
        P = Z.T * A
        primal, _ = loss(Z * P, found.bias, A)
        objective = primal + total(P.T * metric * P) / 2
        assert found.upper >= objective
        N = exact(found.dual)
        V = G * N
        S = N.T * G * H**-1 * N if uncorrelated else V.T * H**-1 * V
        values = sorted(mpmath.eigsy((S + S.T) / 2, eigvals_only=True), reverse=True)
        _, dual = loss(V, found.bias, N)
        value = dual - mpmath.fsum(values[:n_components]) / 2
        # a point whose columns sum to zero without rounding may be a little worse
        slack = mpmath.fsum(abs(x) for x in problem.loss.strain(found.dual).ravel())
        assert found.lower <= value + slack


@pytest.mark.parametrize("method", ["alternating", "damped"])
@pytest.mark.parametrize("n_components", [1, 2, 3])
@pytest.mark.parametrize("uncorrelated", [True, False])
def test_bounds_are_ordered_and_best_ones_monotone(method, n_components, uncorrelated):
    problem = joint(uncorrelated=uncorrelated, n_components=n_components)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = solve_joint(problem, method, tol=1e-9, max_iter=6)
    history = found.history
    assert max(history.bounds) <= min(history.values) * (1 + 1e-9)
    assert (np.diff(history.upper) <= 0).all() and (np.diff(history.lower) >= 0).all()
    assert min(history.values) == history.upper[-1]
    best_is_kept(found)
    assert len(history) == found.n_iter == len(history.values) == len(history.time)
    if method == "damped":
        assert (np.diff(history.values) <= 0).all()
    # the exact solution with all features is below what fewer can reach
    all_of_them = solve_joint(problem.widened(), tol=1e-6)
    assert found.upper >= all_of_them.lower * (1 - 1e-9)
    if found.status is not Status.OPTIMAL:
        assert "no certificate of global optimality" in found.message


def test_weak_costs_let_the_alternation_meet():
    problem = joint(C=0.05, reg=50.0)
    found = solve_joint(problem, "alternating", tol=1e-3)
    assert found.status is Status.OPTIMAL
    exact = solve_joint(problem, tol=1e-6)
    assert found.upper == pytest.approx(exact.upper, rel=1e-3)


def test_alternation_stops_on_small_change_and_says_so():
    problem = joint(n_components=1, C=0.5)
    found = solve_joint(problem, "damped", tol=0.5)
    assert found.status in (Status.STATIONARY, Status.OPTIMAL)
    with pytest.raises(ValueError, match="as many features as SVMs"):
        solve_joint(problem, "exact")


@pytest.mark.parametrize("method", ["alternating", "damped"])
def test_callback_and_interruption_keep_the_best_iterate(method):
    problem = joint(n_components=2)

    last = 2 if method == "alternating" else 1

    def interrupt(history):
        if len(history) == last:
            raise KeyboardInterrupt

    with pytest.warns(ConvergenceWarning, match="interrupted"):
        found = solve_joint(problem, method, tol=1e-12, callback=interrupt)
    assert found.status is Status.INTERRUPTED and found.n_iter == last
    best_is_kept(found)
    with pytest.warns(ConvergenceWarning, match="callback"):
        found = solve_joint(problem, method, tol=1e-12, callback=lambda history: True)
    assert found.status is Status.CALLBACK and found.n_iter == 1


def test_interrupted_before_anything_was_found(monkeypatch):
    from mklearn.solvers import joint as subspace

    problem = joint()

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(subspace, "svms_on", interrupt)
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        found = solve_joint(problem)
    assert found.status is Status.INTERRUPTED
    assert found.upper == pytest.approx(problem.judge(problem.first()).upper)


def test_interrupted_while_looking_for_a_start(monkeypatch):
    from mklearn.solvers import joint as subspace

    group, y = integrated()
    problem, calls = JointProblem(hinge(y, 20.0, 3), 2, group, label_factor(y, 3)), []

    def interrupt(*given, **settings):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return svms_on(*given, **settings)

    monkeypatch.setattr(subspace, "svms_on", interrupt)
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        found = solve_joint(problem, tol=1e-8)
    assert found.status is Status.INTERRUPTED and found.n_iter == 1
    assert found.A.any() and found.lower <= found.upper


def test_weights_are_learned_with_uncorrelated_features_only():
    group, y = integrated()
    group.uncorrelated = False
    with pytest.raises(ValueError, match="uncorrelated features only"):
        JointProblem(hinge(y, 1.0, 3), 3, group, label_factor(y, 3))


def test_time_limit():
    problem = joint()
    with pytest.warns(ConvergenceWarning, match="time_limit"):
        found = solve_joint(problem, "alternating", tol=1e-12, time_limit=1e-9)
    assert found.status is Status.TIME_LIMIT and found.n_iter >= 1


def test_a_warm_start_gives_the_same_solution():
    problem = joint()
    cold = solve_joint(problem, tol=1e-7)
    warm = solve_joint(problem, tol=1e-7, start=0.9 * cold.A)
    assert warm.upper == pytest.approx(cold.upper, rel=1e-6)


# --- the classifier -------------------------------------------------------------------


def test_the_classifier_is_svms_on_the_features():
    X, y = samples(60, n_classes=3)
    Z = samples(40, n_classes=3, seed=1)[0]
    model = SubspaceClassifier(kernels.RBF(0.2), C=50.0, tol=1e-8).fit(X, y)
    scores = model.decision_function(Z)
    for c in range(3):
        svc = SVC(kernel="linear", C=50.0, tol=1e-8).fit(model.transform(X), y == c)
        theirs = svc.decision_function(model.transform(Z))
        np.testing.assert_allclose(scores[:, c], theirs, atol=1e-3)


@pytest.mark.parametrize("uncorrelated", [True, False])
def test_the_joint_classifier_is_svms_on_the_kernel_of_all_directions(uncorrelated):
    X, y, G = case(60)
    K = stack(X)[:, :, [2]]
    model = SubspaceClassifier(
        "precomputed", criterion="svm", uncorrelated=uncorrelated,
        reg=0.1, C=30.0, tol=1e-7,
    ).fit(K, y)  # fmt: skip
    M = Criterion(G, 0.1, uncorrelated).whole()
    for c in range(3):
        svc = SVC(kernel="precomputed", C=30.0, tol=1e-9).fit(M, y == c)
        np.testing.assert_allclose(
            model.decision_function(K)[:, c], svc.decision_function(M), atol=5e-3
        )
    assert model.duality_gap_ <= 1e-7 and model.objective_ == model.solution_.upper


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"criterion": "svm"},
        {"criterion": "svm", "uncorrelated": False},
        {"criterion": "alignment"},
        {"criterion": "svm", "n_components": 2},
    ],
)
def test_wine_is_classified(settings):
    X, y = load_wine(return_X_y=True)
    model = make_pipeline(StandardScaler(), SubspaceClassifier(**settings))
    assert cross_val_score(model, X, y, cv=3).mean() > 0.93


def test_class_weights_move_the_decision():
    X, y = samples(60)
    even = SubspaceClassifier(kernels.RBF(0.1), reg=1.0).fit(X, y)
    tilted = clone(even).set_params(class_weight={1: 20.0}).fit(X, y)
    assert (tilted.predict(X) == 1).sum() > (even.predict(X) == 1).sum()


def test_bad_parameters_are_explained():
    X, y = samples(20)
    for settings, text in (
        ({"criterion": "mmd"}, "criterion must be one of"),
        ({"reg": -1.0}, "reg must be a positive number or 'auto'"),
        ({"C": 0.0}, "C must be a positive number or 'auto'"),
        ({"n_components": 0}, "n_components must be a positive integer"),
        ({"label_kernel": "H3"}, "label_kernel must be one of"),
        ({"joint": "newton"}, "joint must be one of"),
        ({"unit_trace": "yes"}, "unit_trace must be"),
        ({"tol": 0.0}, "tol must be a positive number"),
        ({"max_iter": 0}, "max_iter must be at least 1"),
        ({"time_limit": -1}, "time_limit must be positive"),
    ):
        with pytest.raises(ValueError, match=text):
            SubspaceKernel(**settings).fit(X, y)


# --- alignment ------------------------------------------------------------------------


@pytest.mark.parametrize("q", [1, 2, 4])
def test_the_alignment_and_its_gradient(q):
    X, y, _ = case(25)
    w = 1.0 + np.arange(25) % 3
    G, L = centred(stack(X)[:, :, 2], w), label_factor(y, 3, weight=w)
    problem = Alignment(G, L, w)
    W = problem.start(q) + 0.1 * np.random.default_rng(0).normal(size=(25, q))
    value, gradient = problem.value_and_gradient(W)
    root = np.sqrt(w)[:, None]
    Z = problem.features(W).features
    K, H = root * (Z @ Z.T) * root.T, root * (L @ L.T) * root.T
    aligned = np.sum(K * H) / np.linalg.norm(K) / np.linalg.norm(H)
    assert value == pytest.approx(aligned, rel=1e-9)
    error = check_grad(
        lambda flat: problem.value_and_gradient(flat.reshape(25, q))[0],
        lambda flat: problem.value_and_gradient(flat.reshape(25, q))[1].ravel(),
        W.ravel(),
        epsilon=1e-6,
    )
    assert error <= 1e-5 * np.linalg.norm(gradient)


def test_alignment_climbs_and_flattens():
    X, y = samples(40, n_classes=3)
    wide, narrow = (centred(stack(X)[:, :, m]) for m in (2, 4))
    problem = Alignment(wide, label_factor(y, 3))
    values = [maximise_alignment(problem, 2, max_iter=k)[1] for k in (1, 5, 20, 80)]
    first = problem.value_and_gradient(problem.start(2))[0]
    assert (np.diff([first, *values, 1.0]) > 0).all()
    # among samples that hardly resemble each other the steps end at a maximum
    problem = Alignment(narrow, label_factor(y, 3))
    slope = problem.value_and_gradient(problem.start(2))[1]
    found, value, n_iter = maximise_alignment(problem, 2, tol=1e-6, max_iter=2000)
    assert n_iter < 2000
    again, gradient = problem.value_and_gradient(found.coef)
    assert again == pytest.approx(value, rel=1e-8)
    # ten times what was asked for: the coefficients have another length in between
    assert np.abs(gradient).max() <= 1e-5 * np.abs(slope).max()


# --- choosing the parameters ----------------------------------------------------------


@pytest.mark.parametrize("criterion", ["hsic", "svm", "alignment"])
@pytest.mark.parametrize("combine", [False, True])
def test_scores_of_the_search_are_those_of_separate_fits(criterion, combine):
    X, y = samples(40, n_classes=3)
    # narrow enough for the steps of "alignment" to end at a maximum
    given = [kernels.RBF(1.0), kernels.RBF(2.0)]
    halves = [(np.arange(0, 28), np.arange(28, 40))]
    regs, Cs = [0.05, 0.5], [5.0, 50.0]
    search = SubspaceClassifierCV(
        given, combine=combine, regs=regs, Cs=Cs, relative=False, cv=halves,
        criterion=criterion, tol=1e-6,
    ).fit(X, y)  # fmt: skip
    (train, test) = halves[0]
    choices = [given] if combine else given
    assert search.scores_.shape == (len(choices), 2, 2, 1)
    for m, choice in enumerate(choices):
        for i, reg in enumerate(regs):
            for j, C in enumerate(Cs):
                alone = SubspaceClassifier(
                    choice, criterion=criterion, reg=reg, C=C, tol=1e-6
                ).fit(X[train], y[train])
                score = alone.score(X[test], y[test])
                assert search.scores_[m, i, j, 0] == pytest.approx(score, abs=1 / 11)
    m, i, j = search.best_index_
    assert search.mean_scores_[m, i, j] == search.mean_scores_.max()
    assert (search.reg_, search.C_) == (regs[i], Cs[j])
    final = SubspaceClassifier(
        choices[m], criterion=criterion, reg=regs[i], C=Cs[j], tol=1e-6
    ).fit(X, y)
    np.testing.assert_allclose(
        search.decision_function(X), final.decision_function(X), atol=1e-2
    )
    assert len(search.kernel_weights_) == 2
    assert search.kernel_weights_.sum() == pytest.approx(1.0)


def test_the_search_is_nested_and_parallel():
    X, y = load_wine(return_X_y=True)
    model = make_pipeline(
        StandardScaler(),
        SubspaceClassifierCV([kernels.RBF(0.02)], regs=[1e-3], Cs=[1, 10], cv=2),
    )
    assert cross_val_score(model, X, y, cv=2).mean() > 0.93
    Z = StandardScaler().fit_transform(X)[::2]
    search = SubspaceClassifierCV(
        [kernels.RBF(0.02), kernels.RBF(1e3)], regs=[1e-2], Cs=[1.0, 10.0], cv=2
    )
    one = search.fit(Z, y[::2]).scores_
    assert search.best_params_["kernels"] == ["rbf(gamma=0.02)"]
    two = search.set_params(n_jobs=2).fit(Z, y[::2]).scores_
    np.testing.assert_array_equal(one, two)
    # relative values are multiples of the trace and of one over the squared length
    features = search.transform(Z)
    C = search.best_params_["C"] * len(Z) / np.sum(features**2)
    assert search.C_ == pytest.approx(C, rel=1e-6)
    with pytest.raises(ValueError, match="regs must be a list of positive numbers"):
        search.set_params(regs=[]).fit(Z, y[::2])


# --- pictures -------------------------------------------------------------------------


def test_the_display_shows_the_features_by_class():
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    from mklearn.plotting import SubspaceDisplay

    X, y = samples(30, n_classes=3)
    model = SubspaceKernel(kernels.RBF(0.2)).fit(X, y)
    display = SubspaceDisplay.from_estimator(model, X, y, ax=Figure().subplots())
    Z = model.transform(X)
    for c, drawn in enumerate(display.scatters_):
        np.testing.assert_allclose(drawn.get_offsets(), Z[y == c])
    assert display.ax_.get_xlabel() == "subspacekernel0"
    assert display.ax_.get_ylabel() == "subspacekernel1"
    assert [t.get_text() for t in display.ax_.get_legend().get_texts()] == list("012")
    again = SubspaceDisplay(features=Z[:, :1], y=y).plot(Figure().subplots())
    np.testing.assert_allclose(again.scatters_[1].get_offsets()[:, 0], Z[y == 1, 0])
    with pytest.raises(ValueError, match="as many labels"):
        SubspaceDisplay(features=Z, y=y[:5]).plot(Figure().subplots())


def test_convergence_is_drawn_and_models_are_compared():
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    from mklearn.model_selection import compare
    from mklearn.plotting import plot_convergence

    X, y = samples(40, n_classes=3)
    joint_model = SubspaceClassifier(criterion="svm").fit(X, y)
    ax = plot_convergence(joint_model.solution_, Figure().subplots())
    assert len(ax.lines) == 2
    models = {
        "hsic": SubspaceClassifier(kernels.RBF(0.1)),
        "svm": SubspaceClassifier(kernels.RBF(0.1), criterion="svm"),
    }
    assert compare(models, X, y, cv=2).scores.shape == (2, 2)
