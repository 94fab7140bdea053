"""Discriminant kernel learning: identities, agreement of forms, degenerate cases."""

import numpy as np
import pytest
import sklearn
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from sklearn.base import clone
from sklearn.datasets import load_wine
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from cases import factor, samples, small, stack
from mklearn import (
    KernelBank,
    LpBall,
    MKLClassifier,
    MKLDiscriminant,
    SingleKernelCV,
    kernels,
    solve,
)
from mklearn.kernels.normalise import CENTRED_TRACE, fit_normaliser
from mklearn.problems.discriminant import (
    Fisher,
    class_targets,
    criterion,
    gcv,
    joint_reg,
    kfda,
    label_targets,
    least_squares,
    left_out,
    press,
    projection,
    rkda,
    rkda_joint,
    temperature,
)
from mklearn.solvers import (
    Conic,
    CuttingPlane,
    Iterate,
    Newton,
    Semidefinite,
    semidefinite,
)
from mklearn.solvers.base import Status
from mklearn.solvers.inner import LinearSolver

REG = 5e-3


def known_failures(estimator):
    """Return the checks of scikit-learn that are at fault themselves, by name."""
    old = tuple(map(int, sklearn.__version__.split(".")[:2])) < (1, 7)
    if old and estimator.get_params().get("criterion") == "kfda":
        why = "makes two classes by the first label, which it has shuffled"
        checks = ("dense_data", "sparse_data")
        return {f"check_sample_weight_equivalence_on_{c}": why for c in checks}
    return {}


@parametrize_with_checks(
    [
        MKLDiscriminant(),
        MKLDiscriminant(reg="learn", norm=2),
        MKLDiscriminant(criterion="kfda"),
        SingleKernelCV(MKLDiscriminant(), ["linear", "rbf"], values=[1e-3, 1e-1], cv=2),
    ],
    expected_failed_checks=known_failures,
)
def test_scikit_learn_conventions(estimator, check):
    check(estimator)


def unit_bank(grams, weight=None):
    """Return Grams as a bank, centred and of unit trace."""
    bank = KernelBank.from_grams(grams)
    return fit_normaliser(CENTRED_TRACE, bank, weight).train(bank)


def case(n=24, k=3, M=4, seed=0):
    """Return a bank, its Grams, the labels and the targets."""
    X, y = samples(n, k, seed=seed)
    bank = unit_bank(stack(X, M))
    grams = np.stack([bank.gram(m) for m in range(M)], axis=2)
    return bank, grams, y, class_targets(y, k)


def two(n=24, M=4, seed=0):
    X, y = samples(n, 2, seed=seed)
    return unit_bank(stack(X, M)), y


# --- targets --------------------------------------------------------------------------


def test_targets_are_those_of_the_paper():
    labels = np.array([0, 0, 0, 1, 2, 2])
    H = class_targets(labels, 3)
    counts = np.array([3, 1, 2])
    for i, c in enumerate(labels):
        for j in range(3):
            expected = -np.sqrt(counts[j] / 6) + (c == j) * np.sqrt(6 / counts[j])
            assert H[i, j] == pytest.approx(expected)
    np.testing.assert_allclose(H.sum(axis=0), 0, atol=1e-12)
    a = class_targets(np.array([0, 0, 1]), 2)
    np.testing.assert_allclose(a[:, 0], [-0.5, -0.5, 1.0])


def test_targets_of_the_subspace_paper():
    # H = sqrt(n) P L, with L the indicator of unit columns
    _, _, y, H = case()
    n = len(y)
    Y = (y[:, None] == np.arange(3)).astype(float)
    L = Y / np.sqrt(Y.sum(axis=0))
    np.testing.assert_allclose(H, np.sqrt(n) * (L - L.mean(axis=0)), atol=1e-12)


def test_kernels_are_centred_and_have_unit_trace():
    _, grams, _, _ = case()
    np.testing.assert_allclose(np.trace(grams), 1.0)
    np.testing.assert_allclose(grams.sum(axis=0), 0.0, atol=1e-12)
    raw = KernelBank.from_grams(stack(samples(12, 2)[0]))
    weight = np.arange(12) % 3 + 1.0
    normaliser = fit_normaliser(CENTRED_TRACE, raw, weight)
    rows = np.repeat(np.arange(12), weight.astype(int))
    copies = raw[np.ix_(rows, rows)]
    other = fit_normaliser(CENTRED_TRACE, copies).train(copies)
    np.testing.assert_allclose(
        normaliser.train(raw)[np.ix_(rows, rows)].gram(2), other.gram(2), atol=1e-12
    )


# --- the criterion --------------------------------------------------------------------


def value(grams, H, theta, reg):
    """Return tr H'(I + G/reg)^-1 H by its definition."""
    n = len(H)
    return float(np.sum(H * np.linalg.solve(np.eye(n) + grams @ theta / reg, H)))


@pytest.mark.parametrize("k", [2, 3, 6])
def test_the_problem_is_the_criterion(k):
    bank, grams, _, H = case(30, k)
    task = rkda(bank, H, REG)
    theta = np.array([0.1, 0.2, 0.3, 0.4])
    A, scores = LinearSolver(bank, task.loss.system(), theta).best(theta)
    n = len(H)
    np.testing.assert_allclose(
        A, np.linalg.solve(grams @ theta + REG * np.eye(n), H), rtol=1e-9
    )
    np.testing.assert_allclose(scores, grams @ theta @ A, atol=1e-10)
    at = task.judge(Iterate(theta, A))
    assert criterion(task, at.upper, REG) == pytest.approx(value(grams, H, theta, REG))
    assert at.lower <= at.upper


@pytest.mark.parametrize("k", [2, 3])
def test_gradient_and_hessian_by_finite_differences(k):
    bank, _, y, H = case(20, k)
    tasks = {"rkda": rkda(bank, H, REG)}
    if k == 2:
        tasks["kfda"] = kfda(bank, y, REG)
    theta = np.array([0.2, 0.1, 0.4, 0.3])
    for task in tasks.values():
        system = task.loss.system()

        def at(theta, task=task, system=system):
            A, _ = LinearSolver(bank, system, theta).best(theta)
            q = bank.quad(A)
            return task.loss.dual(A) - 0.5 * theta @ q, -0.5 * q

        linear = LinearSolver(bank, system, theta)
        A, _ = linear.best(theta)
        hessian = linear.hessian(bank.multiply(A))
        h = 1e-5
        for m, e in enumerate(np.eye(4)):
            (up, g_up), (down, g_down) = at(theta + h * e), at(theta - h * e)
            slope = at(theta)[1]
            assert slope[m] == pytest.approx((up - down) / (2 * h), rel=1e-5)
            np.testing.assert_allclose(
                hessian[m], (g_up - g_down) / (2 * h), rtol=1e-4, atol=1e-6
            )


def test_binary_criterion_is_regularised_least_squares_on_a():
    # DKL Lemma 2.1: min |f - a|^2 + lam |w|^2 over explicit features
    bank, grams, _, a = case(20, 2)
    theta = np.full(4, 0.25)
    Phi = factor(grams @ theta)
    w = np.linalg.solve(Phi.T @ Phi + REG * np.eye(20), Phi.T @ a)
    least = np.sum((Phi @ w - a) ** 2) + REG * np.sum(w**2)
    assert value(grams, a, theta, REG) == pytest.approx(least, rel=1e-9)
    task = rkda(bank, a, REG)
    _, scores = LinearSolver(bank, task.loss.system(), theta).best(theta)
    np.testing.assert_allclose(scores, Phi @ w, atol=1e-10)


def test_multi_class_criterion_is_a_sum_of_binary_ones():
    # DKL Lemma 3.1, with h_j a multiple of the binary target of class j
    _, grams, y, H = case(24, 3)
    theta = np.full(4, 0.25)
    total = 0.0
    for j in range(3):
        a = class_targets((y == j).astype(int), 2)
        ratio = H[:, j] @ a[:, 0] / (a[:, 0] @ a[:, 0])
        np.testing.assert_allclose(H[:, j], ratio * a[:, 0], atol=1e-12)
        total += ratio**2 * value(grams, a, theta, REG)
    assert value(grams, H, theta, REG) == pytest.approx(total)


def test_directions_are_the_eigenvectors_of_the_definition():
    # DKL (25): S_t = GPG + lam G, S_b = GHH'G
    bank, grams, _, H = case(24, 3)
    theta = np.full(4, 0.25)
    G = grams @ theta
    task = rkda(bank, H, REG)
    A, F = LinearSolver(bank, task.loss.system(), theta).best(theta)
    turn, ratio = projection(H, F, np.ones(24), 2)
    W = A @ turn
    total, between = G @ G + REG * G, G @ H @ H.T @ G
    np.testing.assert_allclose(W.T @ total @ W, np.eye(2), atol=1e-9)
    np.testing.assert_allclose(W.T @ between @ W, np.diag(24 * ratio), atol=1e-7)
    eigenvalues = np.linalg.eigvals(np.linalg.pinv(total, rcond=1e-11) @ between).real
    assert np.trace(W.T @ between @ W) == pytest.approx(eigenvalues.sum(), rel=1e-6)
    # and the optimum of (23) is what the criterion leaves of tr H'H
    assert np.sum(H * H) - value(grams, H, theta, REG) == pytest.approx(
        24 * ratio.sum()
    )


def test_linear_kernel_is_lda_with_shrinkage():
    X, y = samples(60, 3)
    X, y = X[10:], y[10:]
    X, y = np.delete(X, np.arange(0, 30, 3), axis=0), np.delete(y, np.arange(0, 30, 3))
    Z, _ = samples(40, 3, seed=5)
    n, p = X.shape
    # our covariance (S_w + reg trace I) / n is (1 - s) S_w / n + s tr(S_w / n) / p I,
    # divided by 1 - s; theirs weights classes by their priors
    means = np.stack([X[y == c].mean(axis=0) for c in range(3)])
    ridge = 0.05 * np.sum((X - X.mean(axis=0)) ** 2) / n
    s = ridge / (ridge + np.sum((X - means[y]) ** 2) / n / p)
    frequency = np.bincount(y) / n
    assert len(set(frequency)) > 1
    lda = LinearDiscriminantAnalysis(solver="eigen", shrinkage=s).fit(X, y)
    theirs = lda.decision_function(Z)
    model = MKLDiscriminant(kernels.Linear(), reg=0.05, priors=frequency ** (1 - s))
    ours = model.fit(X, y).decision_function(Z)
    # equal up to the scale and to a constant that all classes share
    ours = ours - ours.mean(axis=1, keepdims=True)
    theirs = theirs - theirs.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(ours, theirs * (1 - s), atol=1e-8)
    np.testing.assert_array_equal(model.predict(Z), lda.predict(Z))


# --- all forms ------------------------------------------------------------------------


@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.parametrize("k", [2, 3, 6])
@pytest.mark.parametrize("seed", [0, 1])
def test_newton_silp_and_qcqp_agree(k, learned, seed):
    bank, _, _, H = case(24, k, seed=seed)
    task = rkda_joint(bank, H) if learned else rkda(bank, H, REG)
    newton = solve(task, "newton", tol=1e-9)
    assert newton.check(task) <= 1e-9
    assert newton.n_iter <= 15
    for solver in (CuttingPlane(level=0.0), Conic()):
        other = solve(task, solver, tol=1e-6)
        assert other.upper == pytest.approx(newton.upper, rel=1e-6)
        assert other.check(task) <= 1e-6


@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.parametrize("k", [2, 3])
def test_semidefinite_programs_agree(k, learned):
    bank, _, _, H = case(15, k)
    task = rkda_joint(bank, H) if learned else rkda(bank, H, REG)
    best = solve(task, "newton", tol=1e-9)
    exact = solve(task, "sdp", tol=1e-6)
    assert exact.upper == pytest.approx(best.upper, rel=1e-6)
    assert exact.check(task) <= 1e-6
    approximate = solve(task, Semidefinite(approximate=True), tol=1.0)
    assert approximate.upper >= best.upper * (1 - 1e-9)
    if k == 2:
        assert approximate.upper == pytest.approx(best.upper, rel=1e-6)


def test_six_classes_by_one_inequality_each():
    bank, _, _, H = case(12, 6, M=3)
    task = rkda(bank, H, REG)
    best = solve(task, "newton", tol=1e-9)
    assert solve(task, "sdp", tol=1e-6).upper == pytest.approx(best.upper, rel=1e-6)


def test_a_program_without_an_answer_is_handed_over(monkeypatch):
    bank, _, _, H = case(15, 2)
    task = rkda(bank, H, REG)
    monkeypatch.setattr(semidefinite, "run", lambda *_: None)  # nothing is found
    found = solve(task, "sdp", tol=1e-6)
    assert found.status is Status.OPTIMAL
    assert found.upper == pytest.approx(solve(task, tol=1e-6).upper, rel=2e-6)


def test_the_first_order_backend():
    bank, _, _, H = case(15, 2)
    task = rkda(bank, H, 0.05)
    best = solve(task, "newton", tol=1e-9)
    for solver in (Semidefinite(backend="scs"), Conic(1e-9, backend="scs")):
        assert solve(task, solver, tol=1e-3).upper == pytest.approx(
            best.upper, rel=1e-3
        )
    with pytest.raises(ValueError, match="clarabel"):
        solve(task, Semidefinite(backend="sedumi"))


@pytest.mark.parametrize("p", [1, 4 / 3, 2, np.inf])
@pytest.mark.parametrize("name", ["rkda", "joint", "kfda"])
def test_other_norms(p, name):
    bank, y = two(20)
    a = class_targets(y, 2)
    make = {
        "rkda": lambda: rkda(bank, a, REG, LpBall(p)),
        "joint": lambda: rkda_joint(bank, a, LpBall(p)),
        "kfda": lambda: kfda(bank, y, REG, LpBall(p)),
    }
    task = make[name]()
    best = solve(task, "newton", tol=1e-8)
    assert best.check(task) <= 1e-8
    solvers = ["cutting_plane", "conic", "sdp"]
    for solver in solvers if p > 1 else [*solvers, "reduced_gradient"]:
        other = solve(task, solver, tol=1e-5)
        assert other.upper == pytest.approx(best.upper, rel=1e-5)
    if np.isfinite(p):
        assert np.linalg.norm(best.theta, p) == pytest.approx(1.0)


def test_the_papers_stopping_rule_is_the_relative_gap():
    # (22): |1 - sum theta_m S_m(beta) / gamma| <= eps, gamma the value of the master,
    # which in a minimisation is (value - bound) / bound
    bank, _, _, H = case(30, 3, M=5)
    task = rkda(bank, H, 5e-4)
    solution = solve(task, CuttingPlane(level=0.0), tol=5e-4)
    assert abs(1 - solution.upper / solution.lower) <= 5e-4 * 1.001
    best = solve(task, "newton", tol=1e-8)
    assert solution.upper == pytest.approx(best.upper, rel=5e-4)


def test_semidefinite_programs_decline_what_they_are_not_for():
    bank, y = two()
    task = kfda(bank, y, REG)
    with pytest.raises(ValueError, match=r"solver='sdp-approx'.*use solver='sdp'"):
        solve(task, Semidefinite(approximate=True))
    with pytest.raises(ValueError, match=r"Hinge.*solver='newton'"):
        solve(small(), "sdp")


# --- reg learned ----------------------------------------------------------------------


@pytest.mark.parametrize("k", [2, 3])
def test_learned_reg_is_the_best_reg(k):
    # tr H'(sum theta G + lam I)^-1 H over sum theta + n lam = 1, by a search over lam
    bank, _, _, H = case(30, k, M=2)
    n = len(H)
    joint = solve(rkda_joint(bank, H), "newton", tol=1e-9)
    learned = joint_reg(joint.theta, n)

    def at(log_lam):
        lam = np.exp(log_lam)
        # weights of sum 1 - n lam: scale them to one, and reg with them
        fixed = solve(rkda(bank, H, lam / (1 - n * lam)), "newton", tol=1e-9)
        return 2 * fixed.upper / (1 - n * lam)

    bounds = (np.log(1e-6), np.log(0.99 / n))
    found = minimize_scalar(at, bounds=bounds, method="bounded")
    assert 2 * joint.upper == pytest.approx(found.fun, rel=1e-6)
    assert learned == pytest.approx(np.exp(found.x), rel=1e-2)
    assert learned > 1e-4
    assert joint.theta.sum() == pytest.approx(1.0)


def test_reg_learned_to_zero():
    # the kernels of which one is the targets themselves need no regularisation
    X, y = samples(20, 2)
    a = class_targets(y, 2)
    grams = np.concatenate([(a @ a.T)[:, :, None], stack(X, 2)], axis=2)
    task = rkda_joint(unit_bank(grams), a)
    for solver in ("newton", "cutting_plane"):
        solution = solve(task, solver, tol=1e-6)
        assert solution.check(task) <= 1e-6
        assert joint_reg(solution.theta, 20) <= 1e-7
    model = MKLDiscriminant("precomputed", reg="learn").fit(grams, y)
    assert model.reg_ <= 1e-7
    assert model.score(grams, y) == 1.0
    assert np.isfinite(model.predict_proba(grams)).all()


def test_learned_weights_sum_to_one_with_that_of_the_identity():
    X, y = samples(60, 3)
    model = MKLDiscriminant(reg="learn").fit(X, y)
    total = model.kernel_weights_.sum() + 60 * model.reg_
    assert total == pytest.approx(1.0, abs=1e-6)
    assert MKLDiscriminant().fit(X, y).kernel_weights_.sum() == pytest.approx(1.0)


# --- reg chosen -----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["rkda", "kfda"])
def test_leaving_out_in_closed_form_is_refitting(name):
    X, y = samples(25, 2)
    bank = unit_bank(stack(X, 3))
    theta = np.array([0.2, 0.5, 0.3])
    a = class_targets(y, 2)
    task = rkda(bank, a, REG) if name == "rkda" else kfda(bank, y, REG)
    system = least_squares(task, REG, np.ones(25))
    linear = LinearSolver(bank, system, theta)
    A, _ = linear.best(theta)
    out = left_out(system.right, A, linear.inverse_diagonal())
    K = bank.combine(theta)
    for i in range(25):
        rest = np.delete(np.arange(25), i)
        n = len(rest)
        bordered = np.ones((n + 1, n + 1))
        bordered[:n, :n] = K[np.ix_(rest, rest)] + np.diag(system.ridge[rest])
        bordered[n, n] = 0
        found = np.linalg.solve(bordered, np.append(system.right[rest, 0], 0.0))
        assert out[i, 0] == pytest.approx(K[i, rest] @ found[:n] + found[n], rel=1e-6)


def test_generalised_cross_validation_by_its_definition():
    bank, _, _, H = case(25, 3)
    theta = np.full(4, 0.25)
    system = least_squares(rkda(bank, H, REG), REG, np.ones(25))
    linear = LinearSolver(bank, system, theta)
    A, _ = linear.best(theta)
    inverse = linear.inverse_diagonal()
    n = 25
    G = bank.combine(theta)
    smoother = G @ np.linalg.inv(G + REG * np.eye(n)) + np.full((n, n), 1 / n)
    rest = H - smoother @ H
    expected = n * np.sum(rest**2) / (n - np.trace(smoother)) ** 2
    assert gcv(A, inverse, system.ridge, np.ones(n)) == pytest.approx(expected)
    # with equal leverages both scores would be the same
    loo = press(H, left_out(H, A, inverse), np.ones(n))
    np.testing.assert_allclose(
        loo, np.mean(np.sum((rest.T / (1 - np.diag(smoother))) ** 2, axis=0))
    )


@pytest.mark.parametrize("how", ["loo", "gcv"])
def test_reg_is_the_one_with_the_best_score(how):
    X, y = samples(60, 3)
    regs = [1e-1, 1e-4, 1e-3, 1e-2]
    model = MKLDiscriminant(reg=how, regs=regs, tol=1e-8).fit(X, y)
    scores = model.loo_ if how == "loo" else model.gcv_
    assert model.reg_ == regs[int(np.argmin(scores))]
    np.testing.assert_array_equal(model.regs_, regs)
    fixed = MKLDiscriminant(reg=model.reg_, tol=1e-8).fit(X, y)
    np.testing.assert_allclose(fixed.kernel_weights_, model.kernel_weights_, atol=1e-4)
    np.testing.assert_allclose(
        fixed.decision_function(X), model.decision_function(X), rtol=1e-3, atol=1e-3
    )


# --- KFDA -----------------------------------------------------------------------------


def printed(K, y, lam):
    """Return F* of KFDA (8) and the coefficients (5) as they are printed."""
    n = len(y)
    a = class_targets(y, 2)[:, 0]
    J = np.zeros((n, n))
    for c in (0, 1):
        at = np.flatnonzero(y == c)
        m = len(at)
        J[np.ix_(at, at)] = (np.eye(m) - 1 / m) / np.sqrt(m)
    inner = np.linalg.solve(lam * np.eye(n) + J @ K @ J, J @ K @ a)
    return (a @ K @ a - (J @ K @ a) @ inner) / lam, (a - J @ inner) / lam


@pytest.mark.parametrize("lam", [1e-1, 1e-3, 1e-4])
def test_the_stable_form_is_the_printed_one(lam):
    bank, y = two(30)
    task = kfda(bank, y, lam)
    theta = np.full(4, 0.25)
    A, _ = LinearSolver(bank, task.loss.system(), theta).best(theta)
    at = task.judge(Iterate(theta, A))
    ratio, alpha = printed(bank.combine(theta), y, lam)
    assert criterion(task, at.upper, None) == pytest.approx(ratio, rel=1e-6)
    np.testing.assert_allclose(A[:, 0] / lam, alpha, rtol=1e-6)
    J = task.loss.scatter_root
    np.testing.assert_allclose(J @ J.T, np.diag(task.loss.share) - sum(
        np.outer(s, s) for s in (task.loss.members * task.loss.share[:, None]).T
    ), atol=1e-12)  # fmt: skip


def test_the_loss_is_minus_the_discriminant_ratio_of_explicit_features():
    # (3): the best ratio of distance of means to scatter, by its definition
    bank, y = two(30)
    theta = np.full(4, 0.25)
    Phi = factor(bank.combine(theta))
    means = [Phi[y == c].mean(axis=0) for c in (0, 1)]
    scatter = sum(np.cov(Phi[y == c].T, bias=True) for c in (0, 1))
    apart = means[1] - means[0]
    ratio = apart @ np.linalg.solve(scatter + REG * np.eye(30), apart)
    task = kfda(bank, y, REG)
    A, _ = LinearSolver(bank, task.loss.system(), theta).best(theta)
    assert criterion(task, task.judge(Iterate(theta, A)).upper, None) == pytest.approx(
        ratio
    )
    # the primal value of any scores is what it says
    f = Phi @ np.random.default_rng(0).normal(size=30)
    spread = np.var(f[y == 0]) + np.var(f[y == 1])
    expected = f[y == 0].mean() - f[y == 1].mean() + spread / (2 * REG)
    assert task.loss.primal(f[:, None], np.zeros(1)) == pytest.approx(expected)


@pytest.mark.parametrize("lam", [1e-8, 1e-4, 1.0])
def test_kfda_is_certified_however_small_reg_is(lam):
    X, y = samples(60, 2)
    D = ((X[:, None] - X[None]) ** 2).sum(axis=2)
    grams = np.stack([np.exp(-D / s**2) for s in np.geomspace(0.1, 100, 10)], axis=2)
    task = kfda(unit_bank(grams), y, lam)
    solution = solve(task, "newton", tol=1e-8)
    assert solution.check(task) <= 1e-8
    assert solution.n_iter <= 15
    # the same by long numbers: F* = -2 value / lam of exact rational-like arithmetic
    K = task.bank.combine(solution.theta).astype(np.longdouble)
    ridge, _, E, sums = task.loss.system()
    bordered = np.zeros((62, 62), dtype=np.longdouble)
    bordered[:60, :60] = K + np.diag(ridge)
    bordered[:60, 60:], bordered[60:, :60] = E, E.T
    right = np.zeros(62, dtype=np.longdouble)
    right[60:] = sums[:, 0]
    A = eliminate(bordered, right)[:60]
    rest = A - task.loss.a[:, 0]
    ratio = rest @ (rest / task.loss.share) + A @ K @ A / lam
    assert criterion(task, solution.upper, None) == pytest.approx(
        float(ratio), rel=1e-6
    )


def eliminate(M, right):
    """Solve by Gauss elimination with pivots, in the precision of the arguments."""
    M, x = M.copy(), right.copy()
    n = len(x)
    for i in range(n):
        p = i + int(np.argmax(np.abs(M[i:, i])))
        M[[i, p]], x[[i, p]] = M[[p, i]], x[[p, i]]
        for j in range(i + 1, n):
            f = M[j, i] / M[i, i]
            M[j] -= f * M[i]
            x[j] -= f * x[i]
    for i in range(n - 1, -1, -1):
        x[i] = (x[i] - M[i, i + 1 :] @ x[i + 1 :]) / M[i, i]
    return x


@pytest.mark.parametrize("solver", ["sdp", "conic", "cutting_plane", "alternating"])
def test_forms_of_kfda_agree(solver):
    bank, y = two(16)
    task = kfda(bank, y, REG)
    best = solve(task, "newton", tol=1e-9)
    tol = 1e-2 if solver == "alternating" else 1e-6
    other = solve(task, solver, tol=tol)
    assert other.upper == pytest.approx(best.upper, rel=tol)
    assert other.check(task) <= tol


def test_losses_of_some_samples():
    bank, y = two()
    loss = kfda(bank, y, REG).loss
    rows = np.arange(3, 20)
    part = loss.take(rows, 2.0)
    assert part.lam == REG / 2 and part.shape == (17, 1)
    A = part.repair(np.random.default_rng(0).normal(size=(17, 1)))
    np.testing.assert_allclose(part.members.T @ A, [[-1.0], [1.0]])
    assert part.dual(part.a) == 0.0
    assert isinstance(part, Fisher)


def test_reg_path_is_separate_fits():
    X, y = samples(60, 2)
    regs = [1e-6, 1e-2, 1e-4, 1e-4]
    model = MKLDiscriminant(criterion="kfda", tol=1e-8)
    path = model.reg_path(X, y, regs)
    assert [m.reg_ for m in path] == regs
    count = 0
    for one in path:
        alone = clone(model).set_params(reg=one.reg_).fit(X, y)
        count += alone.n_iter_
        assert one.objective_ == pytest.approx(alone.objective_, rel=1e-6)
        np.testing.assert_allclose(
            one.kernel_weights_, alone.kernel_weights_, atol=1e-3
        )
        np.testing.assert_array_equal(one.predict(X), alone.predict(X))
    assert sum(one.n_iter_ for one in path) <= count  # warm starts
    # the ratio falls as reg grows
    by_reg = sorted(path, key=lambda m: m.reg_)
    assert by_reg[0].objective_ > by_reg[-1].objective_


def test_roc_curve_and_intercept():
    X, y = samples(80, 2)
    Z, truth = samples(80, 2, seed=3)
    model = MKLDiscriminant(criterion="kfda", reg=1e-3).fit(X, y)
    scores = model.decision_function(Z)
    assert roc_auc_score(truth, scores) > 0.8
    # costs: priors move the intercept and nothing else
    eager = clone(model).set_params(priors=[0.01, 0.99]).fit(X, y)
    np.testing.assert_allclose(
        eager.decision_function(Z) - scores, np.log(99), atol=1e-6
    )
    before = model.predict(Z).mean()
    model.intercept_ = model.intercept_ + np.abs(scores).max()
    assert model.predict(Z).mean() > before
    np.testing.assert_allclose(roc_auc_score(truth, model.decision_function(Z)),
                               roc_auc_score(truth, scores))  # fmt: skip


def test_midpoint_is_the_threshold_of_two_classes():
    X, y = samples(61, 2)
    X, y = X[:50], y[:50]
    for how in ("rkda", "kfda"):
        model = MKLDiscriminant(criterion=how).fit(X, y)
        Z = model.transform(X)[:, 0]
        middle = (Z[y == 0].mean() + Z[y == 1].mean()) / 2
        at = model.coef_[0, 0] * middle + model.intercept_[0]
        assert at == pytest.approx(0.0, abs=1e-6 * abs(model.intercept_[0]) + 1e-6)


# --- the estimator --------------------------------------------------------------------


@pytest.mark.parametrize("k", [2, 3, 5])
def test_shapes_and_names(k):
    X, y = samples(60, k)
    model = MKLDiscriminant().fit(X, y)
    Z = model.transform(X)
    assert Z.shape == (60, k - 1)
    assert model.get_feature_names_out().tolist() == [
        f"mkldiscriminant{j}" for j in range(k - 1)
    ]
    np.testing.assert_allclose(Z.mean(axis=0), 0.0, atol=1e-9)
    assert model.predict_proba(X).shape == (60, k)
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)
    assert model.decision_function(X).shape == ((60,) if k == 2 else (60, k))
    np.testing.assert_array_equal(
        model.classes_[model.predict_proba(X).argmax(axis=1)], model.predict(X)
    )
    assert model.duality_gap_ <= 1e-6
    assert ((model.explained_ratio_ > 0) & (model.explained_ratio_ <= 1)).all()
    if k > 2:
        one = MKLDiscriminant(n_components=1).fit(X, y)
        np.testing.assert_allclose(one.transform(X), Z[:, :1])
        np.testing.assert_array_equal(one.predict(X), model.predict(X))


def test_probabilities_are_calibrated_by_left_out_samples():
    X, y = samples(200, 3, seed=0)
    Z, truth = samples(300, 3, seed=1)
    model = MKLDiscriminant(reg=1e-4).fit(X, y)
    p = model.predict_proba(Z)
    likely = -np.mean(np.log(p[np.arange(300), truth]))
    model.temperature_ = 1.0
    certain = np.clip(model.predict_proba(Z), 1e-300, 1)
    assert likely < -np.mean(np.log(certain[np.arange(300), truth]))


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("size", [0.1, 1.0, 30.0])
def test_temperature_is_the_most_likely_factor(k, size):
    rng = np.random.default_rng(3)
    scores, w = size * rng.standard_normal((80, k)), rng.random(80) + 0.1
    labels = rng.integers(max(k, 2), size=80)
    scores[np.arange(80), labels if k > 1 else 0] += size * (
        1.0 if k > 1 else 2.0 * labels - 1.0
    )

    def cost(t):
        s = np.hstack([np.zeros((80, 1)), scores]) if k == 1 else scores
        return -w @ log_softmax(t * s, axis=1)[np.arange(80), labels]

    found = temperature(scores, labels, w)
    assert 0 < found <= 1
    for t in found * np.linspace(0.5, 1.5, 11):
        assert cost(found) <= cost(min(t, 1.0)) + 1e-13 * cost(found)


def test_temperature_is_one_where_left_out_samples_are_right():
    # the cost itself is zero in rounding from a factor of 0.1 on
    labels = np.arange(30) % 3
    scores = 1000.0 * np.eye(3)[labels]
    assert temperature(scores, labels, np.ones(30)) == 1.0
    assert temperature(-scores, labels, np.ones(30)) == pytest.approx(1e-6)


def test_precomputed_kernels_are_the_same_model():
    X, y = samples(60, 3)
    Z, _ = samples(20, 3, seed=1)
    given = [kernels.Linear(), kernels.RBF(0.1), kernels.RBF(1.0)]
    a = MKLDiscriminant(given, tol=1e-9).fit(X, y)
    bank = KernelBank(X, given)
    B = np.stack([bank.gram(m) for m in range(3)], axis=2)
    cross = bank.cross(Z)
    T = np.stack([cross.gram(m) for m in range(3)], axis=2)
    b = MKLDiscriminant("precomputed", tol=1e-9).fit(B, y)
    np.testing.assert_allclose(a.kernel_weights_, b.kernel_weights_, atol=1e-5)
    np.testing.assert_allclose(
        a.decision_function(Z), b.decision_function(T), rtol=1e-4, atol=1e-3
    )


def test_the_scale_of_kernels_does_not_matter():
    X, y = samples(40, 3)
    B = stack(X)
    a = MKLDiscriminant("precomputed", tol=1e-9).fit(B, y)
    b = MKLDiscriminant("precomputed", tol=1e-9).fit(
        7.0 + B * np.array([1e-3, 7.0, 1.0, 40.0, 0.1]), y
    )
    np.testing.assert_allclose(a.kernel_weights_, b.kernel_weights_, atol=1e-5)
    assert a.objective_ == pytest.approx(b.objective_)


@pytest.mark.parametrize(
    "settings", [{}, {"criterion": "kfda"}, {"reg": "learn"}], ids=str
)
def test_weights_are_repetitions(settings):
    X, y = samples(30, 2)
    times = np.random.default_rng(0).integers(0, 4, 30)
    rows = np.repeat(np.arange(30), times)
    B = stack(X)
    model = MKLDiscriminant("precomputed", tol=1e-9, **settings)
    a = clone(model).fit(B, y, sample_weight=times)
    b = clone(model).fit(B[np.ix_(rows, rows)], y[rows])
    assert a.objective_ == pytest.approx(b.objective_, rel=1e-6)
    assert a.reg_ == pytest.approx(b.reg_, rel=1e-3)
    np.testing.assert_allclose(
        a.decision_function(B), b.decision_function(B[:, rows]), rtol=1e-4, atol=1e-4
    )


def test_pipelines_grids_and_processes():
    X, y = load_wine(return_X_y=True)
    pipe = make_pipeline(StandardScaler(), MKLDiscriminant())
    assert cross_val_score(pipe, X, y, cv=2, n_jobs=2).mean() > 0.95
    grid = GridSearchCV(
        pipe, {"mkldiscriminant__reg": [1e-3, "learn"]}, cv=2
    ).fit(X, y)  # fmt: skip
    assert grid.best_score_ > 0.95
    before = make_pipeline(StandardScaler(), MKLDiscriminant(), StandardScaler())
    assert before.fit_transform(X, y).shape == (178, 2)


@pytest.mark.parametrize("name", ["newton", "silp", "qcqp", "sdp", "auto"])
@pytest.mark.parametrize("reg", [REG, "learn"])
def test_solvers_by_name(name, reg):
    X, y = samples(18, 2)
    model = MKLDiscriminant(
        [kernels.Linear(), kernels.RBF(0.1), kernels.RBF(1.0)], reg=reg, solver=name
    ).fit(X, y)
    best = clone(model).set_params(solver=Newton()).fit(X, y)
    assert model.objective_ == pytest.approx(best.objective_, rel=2e-6)


def test_the_approximate_program_says_what_it_misses():
    X, y = samples(15, 3)
    given = [kernels.Linear(), kernels.RBF(0.1), kernels.RBF(1.0)]
    with pytest.warns(ConvergenceWarning, match="gap"):
        model = MKLDiscriminant(given, solver="sdp-approx").fit(X, y)
    assert model.objective_ >= MKLDiscriminant(given).fit(X, y).objective_


def test_large_semidefinite_programs_are_warned_of():
    X, y = samples(201, 2)
    task = rkda(unit_bank(stack(X, 2)), class_targets(y, 2), REG)
    stop = Semidefinite(backend="scs", accuracy=1e-1)
    with pytest.warns(UserWarning, match=r"201 samples.*newton"):
        next(stop.iterates(task, None))


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"criterion": "lda"}, "criterion must be 'rkda' or 'kfda'"),
        ({"reg": 0.0}, "reg must be a positive number"),
        ({"reg": "best"}, "'learn', 'loo' or 'gcv'"),
        ({"reg": "learn", "criterion": "kfda"}, "reg_path"),
        ({"priors": [0.5, 0.5]}, "3 positive numbers"),
        ({"priors": "equal"}, "priors must be None"),
        ({"reg": "loo", "regs": []}, "regs must be"),
        ({"reg": "gcv", "regs": [1.0, -1.0]}, "regs must be a positive"),
        ({"n_components": 0}, "n_components"),
        ({"criterion": "kfda"}, r"Only binary.*criterion='rkda'"),
    ],
)
def test_bad_parameters(settings, match):
    X, y = samples(30, 3)
    with pytest.raises(ValueError, match=match):
        MKLDiscriminant(**settings).fit(X, y)


# --- several labels -------------------------------------------------------------------


def labelled(n=80, seed=0):
    X, _ = samples(n, 2, seed=seed)
    Y = np.column_stack([X[:, 0] > 0, X[:, 1] > 0.3, X[:, 0] + X[:, 1] > 0.5])
    return X, Y.astype(int)


def test_several_labels():
    X, Y = labelled()
    Z, truth = labelled(seed=1)
    model = MKLDiscriminant(reg=1e-3).fit(X, Y)
    assert model.transform(Z).shape == (80, 3)
    assert model.decision_function(Z).shape == (80, 3)
    found = model.predict(Z)
    assert found.shape == (80, 3) and set(np.unique(found)) == {0, 1}
    assert (found == truth).mean() > 0.85
    p = model.predict_proba(Z)
    np.testing.assert_array_equal(p > 0.5, found == 1)
    assert model.score(Z, truth) > 0.6
    np.testing.assert_allclose(
        class_targets(np.arange(9) % 3, 3),
        label_targets(np.arange(9)[:, None] % 3 == np.arange(3)),
    )


def test_labels_that_exclude_each_other_are_classes():
    X, y = samples(60, 3)
    Y = (y[:, None] == np.arange(3)).astype(int)
    classes = MKLDiscriminant(tol=1e-9).fit(X, y)
    labels = MKLDiscriminant(tol=1e-9).fit(X, Y)
    np.testing.assert_allclose(
        classes.kernel_weights_, labels.kernel_weights_, atol=1e-6
    )
    assert classes.objective_ == pytest.approx(labels.objective_)


def test_one_label_is_two_classes():
    X, Y = labelled()
    y = Y[:, 0]
    both = MKLDiscriminant(tol=1e-9).fit(X, np.column_stack([y, 1 - y]))
    one = MKLDiscriminant(tol=1e-9).fit(X, y)
    np.testing.assert_array_equal(both.predict(X)[:, 0], one.predict(X))
    np.testing.assert_allclose(
        both.decision_function(X)[:, 0], one.decision_function(X), rtol=1e-4, atol=1e-4
    )


def test_labels_that_tell_nothing_are_refused():
    X, Y = labelled()
    Y[:, 1] = 1
    with pytest.raises(ValueError, match=r"columns of y are constant: \[1\]"):
        MKLDiscriminant().fit(X, Y)


# --- degenerate cases -----------------------------------------------------------------


def test_kernels_without_trace_are_dropped_with_a_warning():
    X, y = samples(40, 3)
    B = stack(X, 3)
    B[:, :, 1] = 2.0  # constant: zero when centred
    with pytest.warns(UserWarning, match="zero or constant"):
        model = MKLDiscriminant("precomputed").fit(B, y)
    assert model.kernel_weights_[1] == 0.0
    alone = MKLDiscriminant("precomputed").fit(B[:, :, [0, 2]], y)
    assert model.objective_ == pytest.approx(alone.objective_, rel=1e-6)
    with pytest.raises(ValueError, match="nothing to learn"):
        MKLDiscriminant("precomputed").fit(np.ones((40, 40, 2)), y)


@pytest.mark.parametrize("reg", [1e-6, "learn"])
def test_duplicated_samples(reg):
    X, y = samples(20, 2)
    B = stack(np.vstack([X, X]))
    model = MKLDiscriminant("precomputed", reg=reg).fit(B, np.r_[y, y])
    assert model.duality_gap_ <= 1e-6
    assert (model.predict(B)[:20] == model.predict(B)[20:]).all()
    # contradictory copies: nothing can tell them apart
    other = MKLDiscriminant("precomputed", reg=reg).fit(B, np.r_[y, 1 - y])
    assert np.isfinite(other.decision_function(B)).all()
    np.testing.assert_allclose(
        other.decision_function(B)[:20], other.decision_function(B)[20:], atol=1e-4
    )


def test_a_class_with_one_sample():
    X, y = samples(30, 3)
    keep = np.r_[np.flatnonzero(y == 0)[:1], np.flatnonzero(y > 0)]
    X, y = X[keep], y[keep]
    for reg in (1e-3, "learn", "loo"):
        model = MKLDiscriminant(reg=reg).fit(X, y)
        assert model.duality_gap_ <= 1e-6
        assert np.isfinite(model.predict_proba(X)).all()
        assert model.predict(X[:1])[0] == 0


def test_as_many_classes_as_samples():
    X, _ = samples(12, 2)
    y = np.arange(12)
    for reg in (1e-3, "learn"):
        model = MKLDiscriminant(kernels.rbf_ladder(), reg=reg).fit(X, y)
        assert model.transform(X).shape == (12, 11)
        np.testing.assert_array_equal(model.predict(X), y)
        assert np.isfinite(model.predict_proba(X)).all()


def test_a_singular_kernel_and_hardly_any_reg():
    X, y = samples(40, 2)
    model = MKLDiscriminant(kernels.Linear(), reg=1e-10).fit(X, y)
    lda = LinearDiscriminantAnalysis(priors=[0.5, 0.5]).fit(X, y)
    np.testing.assert_array_equal(model.predict(X), lda.predict(X))


# --- competitors ----------------------------------------------------------------------


@pytest.mark.parametrize("criterion", ["rkda", "kfda"])
def test_a_search_of_one_kernel_scores_what_separate_fits_score(criterion):
    X, y = samples(60, 2 if criterion == "kfda" else 3)
    weight = np.random.default_rng(0).integers(1, 3, len(y)).astype(float)
    given, values = [kernels.RBF(0.1), kernels.RBF(10.0)], [1e-4, 1e-2, 1.0]
    cv = list(StratifiedKFold(3).split(X, y))
    one = MKLDiscriminant(criterion=criterion)
    found = SingleKernelCV(one, given, values=values, cv=cv).fit(X, y, weight)
    for m, kernel in enumerate(given):
        for i, reg in enumerate(values):
            scores = []
            for train, test in cv:
                fit = clone(one).set_params(kernels=kernel, reg=reg)
                fit.fit(X[train], y[train], weight[train])
                scores.append(fit.score(X[test], y[test], weight[test]))
            assert np.isclose(found.cv_scores_[m, i], np.mean(scores))


@pytest.mark.parametrize(
    ("estimator", "name"),
    [(MKLDiscriminant(), "reg"), (MKLClassifier(norm=1, tol=1e-6), "C")],
)
def test_double_cross_validation_is_a_grid_for_each_kernel(estimator, name):
    X, y = samples(60, 3)
    given = [kernels.Linear(), kernels.RBF(0.1), kernels.RBF(10.0)]
    values = [1e-4, 1e-2, 1.0]
    bank = KernelBank(X, given)
    B = np.stack([bank.gram(m) for m in range(3)], axis=2)
    model = SingleKernelCV(estimator, "precomputed", values=values, cv=3).fit(B, y)
    for m in range(3):
        one = clone(estimator).set_params(kernels="precomputed")
        grid = GridSearchCV(one, {name: values}, cv=3).fit(B[:, :, [m]], y)
        np.testing.assert_allclose(
            grid.cv_results_["mean_test_score"], model.cv_scores_[m]
        )
        assert model.best_values_[m] == grid.best_params_[name]
    best = model.best_index_
    assert model.cv_scores_[best].max() == model.cv_scores_.max()
    alone = clone(estimator).set_params(
        kernels="precomputed", **{name: model.best_value_}
    )
    alone.fit(B[:, :, [best]], y)
    np.testing.assert_array_equal(model.predict(B), alone.predict(B[:, :, [best]]))
    assert model.kernel_weights_.tolist() == [float(m == best) for m in range(3)]
    table = SingleKernelCV(estimator, given, values=values, cv=3).fit(X, y)
    assert table.kernel_names_[table.best_index_] in bank.names
    assert table.score(X, y) > 0.5
    assert hasattr(table, "predict_proba") == (name == "reg")


def test_double_cross_validation_needs_values():
    X, y = samples(30, 2)
    with pytest.raises(ValueError, match="values must be a list"):
        SingleKernelCV(MKLDiscriminant(), values=[]).fit(X, y)


@pytest.mark.parametrize("reg", [1e-3, "learn"])
@pytest.mark.parametrize("norm", [1, 2])
def test_a_part_of_the_samples_first_changes_nothing_but_the_way(reg, norm):
    X, y = samples(640, n_classes=3)
    weight = np.random.default_rng(0).uniform(0.5, 2.0, len(y))
    parts = MKLDiscriminant(reg=reg, norm=norm).fit(X, y, weight)
    whole = clone(parts).set_params(solver=Newton()).fit(X, y, weight)
    assert parts.solution_.solver == "Multilevel" != whole.solution_.solver
    assert max(parts.duality_gap_, whole.duality_gap_) <= 1e-6
    assert parts.objective_ == pytest.approx(whole.objective_, rel=2e-6)
    assert parts.n_iter_ <= whole.n_iter_
