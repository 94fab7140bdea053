"""EvidenceMKLRegressor: the likelihood, its maximum, reductions, and bad days."""

import numpy as np
import pytest
from scipy.linalg import helmert
from scipy.optimize import minimize
from scipy.stats import multivariate_normal
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from mklearn import EvidenceMKLRegressor, KernelBank, MKLRegressor, kernels, solve
from mklearn.kernels import factors
from mklearn.kernels.normalise import fit_normaliser
from mklearn.persistence import load, save
from mklearn.problems.evidence import EvidenceProblem
from mklearn.solvers.base import Status
from mklearn.solvers.evidence import LARGEST, AverageInformation

SPECS = [
    kernels.RBF(0.5, columns=[0]),
    kernels.RBF(0.5, columns=[1]),
    kernels.Linear(columns=[2]),
    kernels.RBF(2.0, columns=[2, 3]),
]


@parametrize_with_checks([EvidenceMKLRegressor()])
def test_scikit_learn_conventions(estimator, check):
    check(estimator)


def samples(n=60, seed=0, noise=0.3):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, size=(n, 4))
    y = 3 + np.sin(2 * X[:, 0]) + X[:, 2] + noise * rng.standard_normal(n)
    return X, y


def problem(n=25, outputs=1, seed=0):
    X, y = samples(n, seed)
    Y = np.column_stack([y, 10 * X[:, 1] ** 2 + y])[:, :outputs]
    return EvidenceProblem(KernelBank(X, SPECS), Y, np.ones(n))


def density(grams, y, theta):
    """Return the log density of contrasts, whose mean is zero, with the best noise."""
    n = len(y)
    H = helmert(n)  # rows are orthonormal and sum to zero
    V = H @ (np.tensordot(theta, grams, 1) + np.eye(n)) @ H.T
    z = H @ y
    noise = z @ np.linalg.solve(V, z) / (n - 1)
    return multivariate_normal(np.zeros(n - 1), noise * V).logpdf(z)


def grams_of(bank):
    return np.stack([bank.gram(m) for m in range(bank.shape[2])])


# --- the likelihood -------------------------------------------------------------------


@pytest.mark.parametrize("outputs", [1, 2])
def test_the_value_is_the_density_of_contrasts(outputs):
    p = problem(outputs=outputs)
    grams = grams_of(p.bank)
    for theta in (np.zeros(4), np.array([1.0, 0.0, 0.3, 2.0]), np.full(4, 50.0)):
        expected = sum(density(grams, y, theta) for y in p.Y.T)
        assert p.at(theta).value == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("outputs", [1, 2])
def test_slopes_are_those_of_the_value(outputs):
    p = problem(outputs=outputs)
    theta = np.array([0.5, 0.2, 1.0, 3.0])
    slopes, curvature = p.at(theta).model()
    for m, slope in enumerate(slopes):
        h = 1e-5 * np.eye(4)[m]
        found = (p.at(theta + h).value - p.at(theta - h).value) / 2e-5
        assert slope == pytest.approx(-found, rel=1e-6)
    assert np.linalg.eigvalsh(curvature).min() > -1e-9 * np.abs(curvature).max()


def test_the_curvature_is_right_on_average():
    n, theta = 20, np.array([1.0, 0.0, 0.5, 0.5])
    bank = problem(n).bank
    half = np.linalg.cholesky(bank.combine(theta) + np.eye(n))
    draws = half @ np.random.default_rng(1).standard_normal((n, 4000))
    p = EvidenceProblem(bank, draws, np.ones(n))
    _, curvature = p.at(theta).model()
    exact = np.empty((4, 4))
    for m in range(4):
        h = 1e-3 * np.eye(4)[m]
        exact[m] = (p.at(theta + h).model()[0] - p.at(theta - h).model()[0]) / 2e-3
    scale = np.sqrt(np.outer(np.diag(exact), np.diag(exact)))
    np.testing.assert_allclose(curvature / scale, exact / scale, atol=0.05)


# --- its maximum ----------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_no_other_method_finds_more(seed):
    p = problem(40, seed=seed)
    grams, y = grams_of(p.bank), p.Y[:, 0]
    found = solve(p, AverageInformation(1e-8), tol=1e-8)
    assert found.status is Status.STATIONARY
    other = minimize(
        lambda theta: -density(grams, y, theta),
        np.full(4, 0.3),
        bounds=[(0, None)] * 4,
        method="L-BFGS-B",
        options={"ftol": 1e-13, "maxfun": 10_000},
    )
    assert found.about.evidence == pytest.approx(-other.fun, abs=1e-4)
    assert found.about.evidence >= -other.fun - 1e-6
    np.testing.assert_allclose(found.theta, other.x, rtol=0.05, atol=0.02)
    assert np.all(np.diff(found.history.upper) < 0)


def test_first_order_conditions():
    p = problem(50)
    found = solve(p, AverageInformation(1e-10), tol=1e-10)
    slopes, _ = p.at(found.theta).model()
    used = found.theta > 0
    assert used.any() and not used.all()
    assert np.abs(slopes[used] * found.theta[used]).max() < 1e-3
    assert (slopes[~used] > -1e-3).all()
    assert found.slack == found.about.promise <= 1e-10


def test_kernels_that_matter_are_found():
    X, y = samples(200)
    model = EvidenceMKLRegressor(SPECS).fit(X, y)
    assert set(np.argsort(model.kernel_weights_)[-2:]) == {0, 2}
    assert model.kernel_contributions_[[0, 2]].sum() > 0.9
    assert 0.06 < model.noise_[0] < 0.13  # the truth is 0.09
    assert model.evidence_.evidence - model.evidence_.nothing > 50
    assert "above that of a model without kernels" in model.solution_.message
    assert model.score(*samples(500, seed=1)) > 0.8


def test_it_does_not_take_the_first_hill():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (60, 3))
    y = np.sin(2 * X[:, 0]) + 0.1 * rng.standard_normal(60)
    bank = KernelBank(X, kernels.RBF(0.15))
    p = EvidenceProblem(bank, y[:, None], np.ones(60))
    values = [p.at(np.array([t])).value for t in (0.0, 1.0, 300.0)]
    assert values[1] < values[0] < values[2]  # a hill at zero, and one far from it
    found = solve(p)
    assert found.about.evidence > values[2] and found.theta[0] > 30


def test_factors_in_pieces_are_those_of_lapack():
    rng = np.random.default_rng(0)
    n = 1100
    B = rng.standard_normal((n, n))
    G = np.asfortranarray(B @ B.T / n + np.eye(n))
    above = np.triu(np.full((n, n), 3.0), 1)
    L, found = factors.cholesky(np.asfortranarray(np.tril(G) + above))
    assert found
    size = n * np.finfo(float).eps * np.abs(G).max()
    np.testing.assert_allclose(np.tril(L) @ np.tril(L).T, G, atol=size)
    assert np.array_equal(np.triu(L, 1), above)
    P = factors.inverse(L)
    assert not np.triu(P, 1).any()
    P += np.tril(P, -1).T
    np.testing.assert_allclose(P @ G, np.eye(n), atol=100 * size)
    assert np.array_equal(np.triu(L, 1), above)
    assert not factors.cholesky(np.asfortranarray(G - 2 * np.eye(n)))[1]


def test_many_kernels_enter_a_few_at_a_time():
    rng = np.random.default_rng(1)
    X = rng.uniform(-2, 2, (60, 320))
    y = 2 * X[:, 5] + np.sin(3 * X[:, 7]) + 0.1 * rng.standard_normal(60)
    model = EvidenceMKLRegressor(kernels.per_feature("linear")).fit(X, y)
    assert model.solution_.history.theta[0].tolist() == [0.0] * 320
    assert model.solution_.status is Status.STATIONARY
    assert model.kernel_weights_.argmax() == 5
    assert 1 <= np.count_nonzero(model.kernel_weights_) < 100
    assert model.evidence_.evidence - model.evidence_.nothing > 20


def test_noise_alone_is_told():
    X, _ = samples(100)
    y = np.random.default_rng(5).standard_normal(100)
    model = EvidenceMKLRegressor(SPECS).fit(X, y)
    assert model.evidence_.evidence - model.evidence_.nothing < 3
    assert np.std(model.predict(X)) < 0.35 * np.std(y)
    orthogonal = KernelBank.from_grams([np.diag([1.0, 1, 0, 0, 0, 0])])
    flat = EvidenceMKLRegressor("precomputed", normalize=None).fit(
        orthogonal, np.array([0.01, -0.01, 1.0, -1.0, 1.0, -1.0])
    )
    assert flat.kernel_weights_.tolist() == [0.0]
    assert flat.predict(np.ones((3, 6, 1))).tolist() == pytest.approx([0.0] * 3)


# --- reductions -----------------------------------------------------------------------


def test_predictions_are_those_of_ridge_regression():
    X, y = samples()
    model = EvidenceMKLRegressor(SPECS, normalize=None).fit(X, y)
    bank = KernelBank(X, SPECS)
    G = bank.combine(model.kernel_weights_)
    new, _ = samples(20, seed=3)
    cross = bank.cross(new).combine(model.kernel_weights_)
    ridge = KernelRidge(alpha=1.0, kernel="precomputed")
    ridge.fit(G, y - model.intercept_)
    np.testing.assert_allclose(
        model.predict(new), ridge.predict(cross) + model.intercept_, rtol=1e-8
    )
    ours = MKLRegressor("precomputed", normalize=None, norm=1, C=1.0, tol=1e-10)
    ours.fit(G[:, :, None], y)
    np.testing.assert_allclose(
        model.predict(new), ours.predict(cross[:, :, None]), rtol=1e-7
    )


def test_weights_are_repetitions():
    X, y = samples(30)
    weight = np.arange(30) % 3
    model = EvidenceMKLRegressor(SPECS, tol=1e-9)
    twice = clone(model).fit(np.repeat(X, weight, axis=0), np.repeat(y, weight))
    once = clone(model).fit(X, y, sample_weight=weight)
    np.testing.assert_allclose(once.kernel_weights_, twice.kernel_weights_, rtol=1e-6)
    np.testing.assert_allclose(once.predict(X), twice.predict(X), rtol=1e-6)
    grams = np.moveaxis(grams_of(KernelBank(X, SPECS)), 0, -1)
    given = EvidenceMKLRegressor("precomputed", tol=1e-9)
    given.fit(grams, y, sample_weight=weight)
    np.testing.assert_allclose(given.kernel_weights_, once.kernel_weights_, rtol=1e-5)
    more = clone(model).fit(X, y, sample_weight=10.0 * weight)
    np.testing.assert_allclose(
        10 * more.kernel_weights_, once.kernel_weights_, rtol=1e-5, atol=1e-9
    )
    assert more.noise_[0] == pytest.approx(10 * once.noise_[0], rel=1e-6)
    np.testing.assert_allclose(more.predict(X), once.predict(X), rtol=1e-6)


def test_weights_say_how_exact_values_are():
    rng = np.random.default_rng(0)
    X, truth = samples(150, noise=0.0)
    spread = np.where(np.arange(150) % 2, 0.1, 2.0)
    y = truth + spread * rng.standard_normal(150)
    told = EvidenceMKLRegressor(SPECS).fit(X, y, sample_weight=spread**-2)
    untold = EvidenceMKLRegressor(SPECS).fit(X, y)
    assert told.noise_[0] == pytest.approx(1.0, rel=0.3)
    assert told.score(X, truth) > untold.score(X, truth)
    assert told.score(X, truth) > 0.98


def test_units_do_not_matter():
    X, y = samples()
    model = EvidenceMKLRegressor(SPECS, tol=1e-9).fit(X, y)
    other = EvidenceMKLRegressor(SPECS, tol=1e-9).fit(X, 1e3 * y - 7.0)
    np.testing.assert_allclose(other.kernel_weights_, model.kernel_weights_, rtol=1e-5)
    assert other.noise_[0] == pytest.approx(1e6 * model.noise_[0], rel=1e-5)
    np.testing.assert_allclose(other.predict(X), 1e3 * model.predict(X) - 7, rtol=1e-6)
    grams = np.moveaxis(grams_of(KernelBank(X, SPECS)), 0, -1)
    raw = EvidenceMKLRegressor("precomputed", normalize=None, tol=1e-9)
    a, b = clone(raw).fit(grams, y), clone(raw).fit(grams * [1e-3, 1, 1e3, 5], y)
    np.testing.assert_allclose(
        b.kernel_weights_ * [1e-3, 1, 1e3, 5], a.kernel_weights_, rtol=1e-4, atol=1e-9
    )
    np.testing.assert_allclose(a.predict(grams), b.predict(grams * [1e-3, 1, 1e3, 5]))
    np.testing.assert_allclose(a.predict(grams), model.predict(X), rtol=1e-5)


def test_outputs_share_weights_and_have_their_own_noise():
    X, y = samples()
    Y = np.column_stack([y, 100 * y, np.full(60, 4.0)])
    both = EvidenceMKLRegressor(SPECS, tol=1e-9).fit(X, Y)
    one = EvidenceMKLRegressor(SPECS, tol=1e-9).fit(X, y)
    np.testing.assert_allclose(both.kernel_weights_, one.kernel_weights_, rtol=1e-5)
    np.testing.assert_allclose(both.noise_[1], 1e4 * both.noise_[0], rtol=1e-6)
    assert both.noise_[2] == 0
    np.testing.assert_allclose(both.predict(X)[:, 0], one.predict(X), rtol=1e-6)
    assert both.predict(X)[:, 2].tolist() == [4.0] * 60


# --- uncertainty ----------------------------------------------------------------------


def kriging(K, cross, diag, noise):
    """Return the deviations from the textbook's system, with the constant in it."""
    n = len(K)
    system = np.block([[K + np.eye(n), np.ones((n, 1))], [np.ones((1, n)), 0.0]])
    right = np.vstack([cross.T, np.ones((1, len(cross)))])
    shares = np.linalg.solve(system, right)
    return np.sqrt(noise * (diag - np.sum(shares * right, axis=0) + 1.0))


@pytest.mark.parametrize("normalize", [None, "center", "multiplicative", "spherical"])
def test_deviations_are_those_of_kriging(normalize):
    X, y = samples()
    new, _ = samples(20, seed=3)
    specs = [*SPECS[:2], kernels.Polynomial(2, columns=[2, 3])]
    model = EvidenceMKLRegressor(specs, normalize=normalize, uncertainty=True)
    values, found = model.fit(X, y).predict(new, return_std=True)
    assert np.array_equal(values, model.predict(new))
    every = KernelBank(np.vstack([X, new]), specs)
    if normalize == "spherical":
        every = fit_normaliser("spherical", every).train(every)
    # what normalisation subtracts has no part in differences of values
    theta = model.kernel_weights_
    if normalize == "multiplicative":
        theta = (
            theta / EvidenceProblem(KernelBank(X, specs), y, np.ones(60)).variances()
        )
    K = every.combine(theta)
    expected = kriging(K[:60, :60], K[60:, :60], np.diagonal(K)[60:], model.noise_[0])
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_deviations_tell_the_truth():
    X, y = samples(150)
    model = EvidenceMKLRegressor(SPECS, uncertainty=True).fit(X, y)
    new, truth = samples(1000, seed=7)
    values, found = model.predict(new, return_std=True)
    inside = np.abs(values - truth) <= 1.96 * found
    assert 0.92 < inside.mean() < 0.98
    _, far = model.predict(10 * np.ones((1, 4)), return_std=True)
    assert far[0] > 2 * found.mean()


def test_deviations_of_outputs_and_of_grams(tmp_path):
    X, y = samples()
    both = EvidenceMKLRegressor(SPECS, uncertainty=True).fit(
        X, np.column_stack([y, 10 * y])
    )
    values, found = both.predict(X[:5], return_std=True)
    assert values.shape == found.shape == (5, 2)
    np.testing.assert_allclose(found[:, 1], 10 * found[:, 0], rtol=1e-6)
    save(both, tmp_path / "m.mkl")
    again = load(tmp_path / "m.mkl").predict(X[:5], return_std=True)
    np.testing.assert_array_equal(again[1], found)
    bank = KernelBank(X, SPECS)
    given = EvidenceMKLRegressor("precomputed", uncertainty=True).fit(
        KernelBank.from_grams(list(grams_of(bank))), y
    )
    cross = bank.cross(X[:5])
    with_diag = KernelBank.from_grams(
        [cross.gram(m) for m in range(4)], row_diag=cross.diag(), cross=True
    )
    one = EvidenceMKLRegressor(SPECS, uncertainty=True).fit(X, y)
    np.testing.assert_allclose(
        given.predict(with_diag, return_std=True)[1],
        one.predict(X[:5], return_std=True)[1],
        rtol=1e-6,
    )
    bare = np.stack([cross.gram(m) for m in range(4)], axis=-1)
    with pytest.raises(ValueError, match="diag"):
        given.predict(bare, return_std=True)
    with pytest.raises(ValueError, match="uncertainty=True"):
        EvidenceMKLRegressor(SPECS).fit(X, y).predict(X, return_std=True)


# --- model selection ------------------------------------------------------------------


def test_it_works_in_pipelines_and_searches():
    X, y = samples()
    pipe = make_pipeline(StandardScaler(), EvidenceMKLRegressor())
    assert cross_val_score(pipe, X, y, cv=3, n_jobs=2).mean() > 0.5
    search = GridSearchCV(
        EvidenceMKLRegressor(), {"kernels": ["linear", SPECS]}, cv=3
    ).fit(X, y)
    assert search.best_params_["kernels"] == SPECS


# --- bad days -------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_values_without_noise_are_bounded(seed):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (60, 3))
    y = np.sin(X @ rng.standard_normal(3)) + (X[:, 0] if seed % 2 else 0)
    model = EvidenceMKLRegressor().fit(X, y)  # a warning would be an error
    assert model.solution_.status is Status.STATIONARY
    assert 1e4 < model.kernel_weights_.sum() <= 1.001 * LARGEST
    assert model.score(X, y) > 1 - 1e-6


@pytest.mark.parametrize(
    ("X", "y"),
    [
        (np.array([[0.0], [1.0]]), np.array([1.0, 3.0])),
        (np.array([[0.0], [0], [0], [1], [1]]), np.array([1.0, 2, 1, 5, 5])),
        (np.arange(6.0)[:, None], np.full(6, 2.5)),
    ],
    ids=["two samples", "equal samples", "one value"],
)
def test_little_data(X, y):
    model = EvidenceMKLRegressor([kernels.Linear(), kernels.RBF(1.0)]).fit(X, y)
    assert np.isfinite(model.predict(X)).all()
    assert np.abs(model.predict(X) - y.mean()).max() <= 1.1 * np.abs(y - y.mean()).max()
    assert np.isfinite(model.kernel_weights_).all()


def test_a_kernel_that_is_zero_or_constant_gets_nothing():
    X, y = samples(30)
    grams = np.stack([np.zeros((30, 30)), np.ones((30, 30)), X @ X.T], axis=-1)
    with pytest.warns(UserWarning, match="1 of 3 kernels is zero or constant"):
        model = EvidenceMKLRegressor("precomputed", normalize=None).fit(grams, y)
    assert model.kernel_weights_[:2].tolist() == [0.0, 0.0]
    assert model.kernel_weights_[2] > 0


def test_indefinite_kernels_never_break_it():
    rng = np.random.default_rng(0)
    X, y = samples(30)
    bad = rng.standard_normal((30, 30))
    grams = np.stack([X @ X.T, bad + bad.T], axis=-1)
    with pytest.raises(ValueError, match="psd"):
        EvidenceMKLRegressor("precomputed").fit(grams, y)
    for psd in ("clip", "ignore"):
        model = EvidenceMKLRegressor("precomputed", psd=psd).fit(grams, y)
        assert np.isfinite(model.predict(grams)).all()
        assert (model.kernel_weights_ >= 0).all()


def test_limits_keep_the_best_so_far(capsys):
    X, y = samples(80)
    full = EvidenceMKLRegressor(SPECS, tol=1e-8, verbose=1).fit(X, y)
    shown = capsys.readouterr().err
    assert shown.count("objective") == full.n_iter_ > 3
    for settings, status in (
        ({"max_iter": 2}, Status.MAX_ITER),
        ({"callback": lambda history: len(history) == 2}, Status.CALLBACK),
    ):
        with pytest.warns(ConvergenceWarning, match="may yet improve"):
            model = EvidenceMKLRegressor(SPECS, **settings).fit(X, y)
        assert model.solution_.status is status
        assert model.n_iter_ < full.n_iter_
        assert (
            model.evidence_.evidence == -full.solution_.history.upper[model.n_iter_ - 1]
        )
        assert np.isfinite(model.predict(X)).all()
    problem = EvidenceProblem(KernelBank(X, SPECS), y[:, None], np.ones(80))
    with pytest.warns(ConvergenceWarning, match="time_limit was reached"):
        found = solve(problem, time_limit=1e-9)
    assert found.status is Status.TIME_LIMIT and np.isfinite(found.upper)


def test_an_interruption_keeps_the_best_so_far():
    X, y = samples(80)

    def stop(history):
        if len(history) == 3:
            raise KeyboardInterrupt

    with pytest.warns(ConvergenceWarning, match="interrupted"):
        model = EvidenceMKLRegressor(SPECS, callback=stop, tol=1e-8).fit(X, y)
    assert model.solution_.status is Status.INTERRUPTED
    assert model.evidence_.evidence == -min(model.solution_.history.upper)
    assert model.score(X, y) > 0.5


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tol": 0}, "tol must be"),
        ({"max_iter": 0}, "max_iter must be at least 1"),
        ({"time_limit": -1.0}, "time_limit must be positive"),
        ({"psd": "hope"}, "psd"),
        ({"normalize": "no"}, "normalize"),
    ],
)
def test_bad_settings_are_told(settings, message):
    X, y = samples(20)
    with pytest.raises(ValueError, match=message):
        EvidenceMKLRegressor(**settings).fit(X, y)
