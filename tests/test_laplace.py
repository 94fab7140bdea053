"""The evidence of labels: modes, slopes, and what it reduces to."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import expit, log_expit, logit
from sklearn.linear_model import LogisticRegression

from mklearn import KernelBank, kernels, solve
from mklearn.inference import kernel_tests
from mklearn.inference.forms import Form
from mklearn.inference.nulls import Null
from mklearn.problems.laplace import LaplaceProblem, Reduced, Whole
from mklearn.solvers import Status
from mklearn.solvers.evidence import AverageInformation


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X, Z = rng.standard_normal((60, 2)), rng.standard_normal((60, 1))
    chance = expit(np.sin(2 * X[:, 0]) * 2 + Z[:, 0])
    return X, np.column_stack([np.ones(60), Z]), (rng.random(60) < chance).astype(float)


def linear(Z, y):
    model = LogisticRegression(C=np.inf, tol=1e-10, fit_intercept=False).fit(Z, y)
    return Z @ model.coef_[0]


def spaces(X, Z):
    bank = KernelBank(X, kernels.per_feature(kernels.RBF(0.5)))
    grams = [bank.gram(m) for m in range(2)]
    few = [Form.of_gram(K) for K in grams]
    yield Whole(KernelBank.from_grams(grams), Z)
    yield Reduced([form.columns for form in few], Z)


@pytest.fixture(scope="module", params=[0, 1], ids=["matrices", "columns"])
def problem(data, request):
    X, Z, y = data
    return LaplaceProblem(list(spaces(X, Z))[request.param], y, linear(Z, y))


def test_the_mode_is_one(problem):
    """The slopes of the penalised likelihood by covariates and by values are zero."""
    found = problem.at(np.array([0.7, 0.3]))
    left = problem.y - expit(found.eta)
    assert found.A[:, 0] == pytest.approx(left, abs=1e-6)
    Z = problem.space.Z
    assert np.abs(Z.T @ left).max() < 1e-6 * np.abs(Z).sum()
    # eta is Z b + S (y - p) for some b
    if isinstance(problem.space, Whole):
        S = problem.space.bank.combine(found.theta)
        beside = found.eta - S @ left
        b = np.linalg.lstsq(Z, beside, rcond=None)[0]
        assert Z @ b == pytest.approx(beside, abs=1e-6)


def test_slopes_by_differences(problem):
    theta, h = np.array([0.7, 0.3]), 1e-4
    slopes = problem.at(theta).model()[0]
    for m in range(2):
        step = h * np.eye(2)[m]
        change = problem.at(theta + step).value - problem.at(theta - step).value
        # central differences err by h^2, and by rounding of the values over h
        assert -change / (2 * h) == pytest.approx(slopes[m], rel=1e-5, abs=1e-6)


def test_matrices_and_columns_are_the_same_problem(data):
    X, Z, y = data
    one, two = (LaplaceProblem(s, y, linear(Z, y)) for s in spaces(X, Z))
    for theta in ([0.0, 0.0], [0.7, 0.3], [20.0, 0.0]):
        a, b = one.at(np.array(theta)), two.at(np.array(theta))
        # columns leave out 1e-11 of a kernel
        assert b.value == pytest.approx(a.value, rel=1e-7)
        assert b.eta == pytest.approx(a.eta, abs=1e-5)


def test_no_kernel_is_logistic_regression(problem, data):
    _, Z, y = data
    found = problem.at(np.zeros(2))
    assert found.eta == pytest.approx(linear(Z, y), abs=1e-4)
    assert found.value == pytest.approx(problem.nothing(), abs=1e-9)


def test_of_subjects_it_approximates_an_integral():
    """Of a kernel that tells subjects apart the density is a product of integrals.

    The approximation has an error of one over the number of samples of a subject,
    once there are enough to outweigh the prior: eight times as many, an eighth of it.
    """
    errors = []
    for many in (80, 640):
        subject = np.repeat(np.arange(4), many)
        parts = np.array([0.2, 0.5, 0.6, 0.7])  # of ones, whatever the number
        y = (np.tile(np.arange(many), 4) < many * parts[subject]).astype(float)
        Z = np.ones((len(y), 1))
        blocks = (subject[:, None] == np.arange(4)).astype(float)
        problem = LaplaceProblem(
            Reduced([blocks], Z), y, np.full(len(y), logit(y.mean()))
        )
        found = problem.at(np.array([0.5]))
        constant = float((found.eta - blocks @ blocks.T @ found.A[:, 0] * 0.5).mean())
        exact = 0.0
        for k in range(4):
            ones, size = y[subject == k].sum(), many

            def density(u, ones=ones, size=size, constant=constant):
                eta = constant + np.sqrt(0.5) * u
                inside = ones * log_expit(eta) + (size - ones) * log_expit(-eta)
                return np.exp(inside - 0.5 * u * u) / np.sqrt(2 * np.pi)

            exact += np.log(quad(density, -10, 10, epsabs=0, epsrel=1e-10)[0])
        w = expit(found.eta) * (1 - expit(found.eta))
        V = 0.5 * blocks @ blocks.T + np.diag(1 / w)
        free = found.value + 0.5 * np.log(np.sum(np.linalg.solve(V, Z)))
        errors.append(abs(free - exact))
    assert errors[1] < errors[0] / 4 and errors[0] < 0.1


def test_the_best_weights_come_to_rest(data):
    """Where the steps of quasi-likelihood go round in circles, too."""
    rng = np.random.default_rng(0)
    X, Z = rng.standard_normal((50, 2)), rng.standard_normal((50, 2))
    Z = np.column_stack([np.ones(50), Z])
    space = list(spaces(X, Z))[1]
    for _ in range(10):
        y = (rng.random(50) < expit(0.7 * Z[:, 1] + np.sin(2 * X[:, 1]))).astype(float)
        problem = LaplaceProblem(space, y, linear(Z, y))
        found = solve(problem, AverageInformation(1e-6), tol=1e-6, max_iter=500)
        assert found.status is Status.STATIONARY
        assert -found.upper >= problem.nothing() - 1e-9


def test_labels_that_kernels_separate_have_a_mode():
    x = np.linspace(-1, 1, 40)
    Z, y = np.ones((40, 1)), (x > 0).astype(float)
    problem = LaplaceProblem(Reduced([x[:, None]], Z), y, np.zeros(40))
    found = problem.at(np.array([1e6]))
    assert np.isfinite(found.value) and np.isfinite(found.eta).all()
    X = np.column_stack([x, np.random.default_rng(0).standard_normal(40)])
    tested = kernel_tests(X, y, kernels.per_feature("linear"), given="others")
    assert tested.p_values[0] < 1e-3 and 0 < tested.p_values[1] <= 1


@pytest.mark.parametrize("size", [3.0, 30.0])
def test_noise_is_not_found_beside_a_kernel_that_nearly_separates(size):
    """Labels that are fitted too closely leave residuals that say anything."""
    rng, p = np.random.default_rng(0), []
    for _ in range(40):
        X = rng.standard_normal((60, 2))
        y = (rng.random(60) < expit(size * np.sin(2 * X[:, 1]))).astype(int)
        family = kernels.per_feature("rbf")
        found = kernel_tests(X, y, family, given="others", which=[0])
        p += [found.p_values[0]]
    # 13 or more of 40 would be chance once in 10 000 times if one in ten were expected,
    # and five or more p-values of at most 0.001 once in a million times if one in 200
    assert np.sum(np.array(p) <= 0.05) < 13
    assert np.sum(np.array(p) <= 1e-3) < 5


def test_forms_of_labels_have_the_variance_of_all_outcomes():
    """Eight labels have 256 outcomes, so mean and variance of a form are sums."""
    rng = np.random.default_rng(0)
    n = 8
    mean = rng.uniform(0.05, 0.95, n)
    w = mean * (1.0 - mean)
    outcomes = (np.arange(2**n)[:, None] >> np.arange(n)) % 2
    chance = np.prod(np.where(outcomes == 1, mean, 1.0 - mean), axis=1)
    Z = np.ones((n, 1))
    null = Null.of(np.zeros((n, 1)), Z, lambda V: np.sqrt(w)[:, None] * V, weight=w)
    L = rng.standard_normal((n, 2))
    form = null.seen(Form.of_features(L))
    residuals = ((outcomes - mean) / np.sqrt(w)).T
    values = form.quads(residuals - null.basis @ (null.basis.T @ residuals))
    average = chance @ values
    assert form.trace() == pytest.approx(average, rel=1e-12)
    spread = np.sqrt(chance @ (values - average) ** 2)
    normal = np.sqrt(2.0 * form.inner(form))  # of normal residuals
    found = null.standardised(form, average + spread)
    assert found == pytest.approx(average + normal, rel=1e-12)
