"""MKLRegressor: reductions, several outputs, weights, and model selection."""

import pickle

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.svm import SVR
from sklearn.utils.estimator_checks import parametrize_with_checks

from cases import squared_distances, stack
from mklearn import ElasticNet, KernelBank, MKLRegressor, MultiView, kernels

# tolerances ask for all the digits that there are, and a few more
pytestmark = pytest.mark.filterwarnings("ignore:.*rounding (allows|limits)")

LOSSES = ["squared", "epsilon_insensitive"]
SPECS = [kernels.Linear(), kernels.RBF(0.1), kernels.RBF(1.0)]


@parametrize_with_checks([MKLRegressor(), MKLRegressor(loss="epsilon_insensitive")])
def test_scikit_learn_conventions(estimator, check):
    check(estimator)


def curve(n=50, n_outputs=None, seed=0):
    """Return samples whose first two columns say what y is, up to some noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    y = np.sin(X[:, 0]) + 0.5 * X[:, 1] + 0.1 * rng.normal(size=n) + 3.0
    if n_outputs is None:
        return X, y
    return X, np.column_stack([np.cos(t * X[:, 0]) + y for t in range(n_outputs)])


def precomputed(**settings):
    return MKLRegressor("precomputed", **{"normalize": None, "tol": 1e-7, **settings})


# --- reductions -----------------------------------------------------------------------


@pytest.mark.parametrize("C", [0.1, 10.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.2])
def test_one_kernel_is_svr(C, epsilon):
    X, y = curve()
    Z, _ = curve(30, seed=1)
    settings = {"C": C, "epsilon": epsilon}
    ours = MKLRegressor(
        kernels.RBF(0.2),
        loss="epsilon_insensitive",
        normalize=None,
        tol=1e-11,
        **settings,
    ).fit(X, y)
    theirs = SVR(gamma=0.2, tol=1e-10, **settings).fit(X, y)
    np.testing.assert_allclose(ours.predict(Z), theirs.predict(Z), atol=1e-4)


@pytest.mark.parametrize("C", [0.1, 10.0])
def test_one_kernel_is_kernel_ridge_on_centred_kernels_and_targets(C):
    X, y = curve()
    Z, _ = curve(30, seed=1)
    K, T = np.exp(-0.2 * squared_distances(X)), np.exp(-0.2 * squared_distances(Z, X))
    P = np.eye(50) - 1 / 50
    ours = precomputed(C=C, tol=1e-11).fit(K, y)
    ridge = KernelRidge(alpha=1 / C, kernel="precomputed").fit(P @ K @ P, P @ y)
    intercept = np.mean(y - K @ ridge.dual_coef_)
    np.testing.assert_allclose(
        ours.predict(T), T @ ridge.dual_coef_ + intercept, atol=1e-4
    )


@pytest.mark.parametrize("n_outputs", [None, 2])
def test_a_linear_kernel_is_ridge(n_outputs):
    X, y = curve(n_outputs=n_outputs)
    ours = MKLRegressor(kernels.Linear(), C=0.5, normalize=None, tol=1e-11).fit(X, y)
    theirs = Ridge(alpha=2.0).fit(X, y)
    np.testing.assert_allclose(ours.predict(X), theirs.predict(X), atol=1e-4)


@pytest.mark.parametrize("loss", LOSSES)
def test_infinite_norm_is_the_sum_kernel_and_outputs_are_apart(loss):
    X, Y = curve(n_outputs=3)
    B = stack(X)
    both = precomputed(norm=np.inf, loss=loss, tol=1e-9).fit(B, Y)
    for t in range(3):
        alone = precomputed(loss=loss, tol=1e-9).fit(B.sum(axis=2), Y[:, t])
        np.testing.assert_allclose(
            both.predict(B)[:, t], alone.predict(B.sum(axis=2)), atol=1e-3
        )


# --- weights --------------------------------------------------------------------------


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("kind", ["table", "views", "grams"])
@pytest.mark.parametrize("n_outputs", [None, 2])
def test_weights_are_repetitions_and_zero_is_absence(loss, kind, n_outputs):
    X, y = curve(40, n_outputs)
    times = np.random.default_rng(0).integers(0, 4, 40)
    rows = np.repeat(np.arange(40), times)
    if kind == "grams":
        model = MKLRegressor("precomputed", loss=loss, tol=1e-8)
        B = stack(X)
        inputs = B, B[np.ix_(rows, rows)], B, B[:, rows]
    else:
        model = MKLRegressor(SPECS, loss=loss, tol=1e-8)
        wrap = MultiView.wrap if kind == "views" else np.asarray
        inputs = wrap(X), wrap(X[rows]), wrap(X), wrap(X)
    fit, fit_copies, new, new_copies = inputs
    weighted = clone(model).fit(fit, y, sample_weight=times)
    copies = clone(model).fit(fit_copies, y[rows])
    assert weighted.solution_.upper == pytest.approx(copies.solution_.upper, rel=1e-7)
    np.testing.assert_allclose(
        weighted.predict(new), copies.predict(new_copies), atol=2e-3
    )


def test_equal_rows_are_one_sample_only_if_their_targets_are_equal():
    X = np.repeat(np.random.default_rng(0).normal(size=(10, 2)), 3, axis=0)
    y = np.tile([0.0, 0.0, 1.0], 10)
    model = MKLRegressor(kernels.RBF(1.0), C=1e3).fit(X, y)
    assert model.solution_.A.shape == (20, 1)
    # two of three say 0, one says 1
    np.testing.assert_allclose(model.predict(X), 1 / 3, atol=0.01)
    zeros = MKLRegressor(kernels.RBF(1.0)).fit(X, np.where(y > 0, -0.0, 0.0))
    assert zeros.solution_.A.shape == (10, 1)


# --- what the fitted attributes mean --------------------------------------------------


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("n_outputs", [None, 1, 3])
def test_predictions_and_objective_by_hand(loss, n_outputs):
    X, y = curve(40, n_outputs)
    B = stack(X)
    model = precomputed(loss=loss, C=0.7, epsilon=0.2, tol=1e-5).fit(B, y)
    T = 1 if n_outputs is None else n_outputs
    assert model.kernel_weights_.shape == model.kernel_contributions_.shape == (5,)
    assert model.dual_coef_.shape == (T, len(model.support_))
    assert model.intercept_.shape == (T,)
    A = np.zeros((40, T))
    A[model.support_] = model.dual_coef_.T
    K = B @ model.kernel_weights_
    F = K @ A + model.intercept_
    assert model.predict(B).shape == y.shape
    np.testing.assert_allclose(model.predict(B), F.reshape(y.shape))
    error = np.abs(y.reshape(40, -1) - F)
    loss_values = 0.5 * error**2 if loss == "squared" else np.maximum(0, error - 0.2)
    total = 0.7 * loss_values.sum() + 0.5 * np.sum(A * (K @ A))
    assert model.solution_.upper == pytest.approx(total)
    assert model.duality_gap_ == model.solution_.gap <= 1e-5
    assert model.n_iter_ == model.solution_.n_iter
    share = model.kernel_weights_ * np.einsum("it,ijm,jt->m", A, B, A)
    np.testing.assert_allclose(model.kernel_contributions_, share / share.sum())


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("norm", [1, 2, ElasticNet(0.5), np.diag([1.0, 2.0, 3.0])])
def test_good_kernels_get_the_weight(loss, norm):
    X, y = curve(80)
    specs = [
        kernels.RBF(0.3, columns=[0, 1]),
        kernels.RBF(0.3, columns=2),
        kernels.RBF(0.3, columns=3),
    ]
    model = MKLRegressor(specs, loss=loss, norm=norm, C=10.0).fit(X[:60], y[:60])
    assert model.kernel_weights_.argmax() == model.kernel_contributions_.argmax() == 0
    assert model.score(X[60:], y[60:]) > 0.6


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("norm", [1, 2])
def test_order_of_rows_does_not_matter_at_all(loss, norm):
    X, y = curve(50)
    order = np.random.default_rng(0).permutation(50)
    a = MKLRegressor(loss=loss, norm=norm).fit(X, y)
    b = MKLRegressor(loss=loss, norm=norm).fit(X[order], y[order])
    np.testing.assert_array_equal(a.predict(X), b.predict(X))


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("normalize", [None, "center", "multiplicative", "spherical"])
def test_targets_may_be_shifted(loss, normalize):
    X, y = curve(40)
    settings = {"loss": loss, "normalize": normalize, "tol": 1e-8}
    a = MKLRegressor(SPECS, **settings).fit(X, y)
    b = MKLRegressor(SPECS, **settings).fit(X, y + 100.0)
    np.testing.assert_allclose(a.predict(X) + 100.0, b.predict(X), atol=5e-3)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("level", [0.0, 0.1, 1e6])
def test_constant_targets(loss, level):
    X, _ = curve(30)
    model = MKLRegressor(SPECS, loss=loss).fit(X, np.full(30, level))
    np.testing.assert_allclose(model.predict(X), level, atol=0.11)


def test_sparse_is_dense_and_pickles_predict():
    X, y = curve(40)
    X[np.abs(X) < 0.7] = 0.0
    dense = MKLRegressor(SPECS, tol=1e-7).fit(X, y)
    thin = MKLRegressor(SPECS, tol=1e-7).fit(sparse.csr_array(X), y)
    np.testing.assert_allclose(
        thin.predict(sparse.csr_array(X)), dense.predict(X), atol=1e-3
    )
    again = pickle.loads(pickle.dumps(dense))
    np.testing.assert_array_equal(again.predict(X), dense.predict(X))


def test_weights_frame():
    pytest.importorskip("pandas")
    X, Y = curve(40, 2)
    table = MKLRegressor(SPECS).fit(X, Y).weights_frame()
    assert table["kernel"].tolist() == ["linear", "rbf(gamma=0.1)", "rbf(gamma=1)"]
    assert table["contribution"].sum() == pytest.approx(1.0)


# --- model selection ------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["table", "views", "bank", "array"])
@pytest.mark.parametrize("n_outputs", [None, 2])
def test_grid_search(kind, n_outputs):
    X, y = curve(60, n_outputs)
    specs = [kernels.Linear(), kernels.RBF(0.1)]
    given, data = {
        "table": (specs, X),
        "views": (
            [kernels.per_view(*specs)],
            MultiView({"a": X[:, :2], "b": X[:, 2:]}),
        ),
        "bank": ("precomputed", KernelBank(X, specs)),
        "array": ("precomputed", stack(X, 2)),
    }[kind]
    grid = {"loss": LOSSES, "C": [0.1, 10.0]}
    search = GridSearchCV(MKLRegressor(given), grid, cv=KFold(3)).fit(data, y)
    assert search.best_score_ > 0.3
    assert search.predict(data).shape == y.shape


# --- bad input ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"loss": "hinge"}, "'squared' or 'epsilon_insensitive', got 'hinge'"),
        ({"C": "learn"}, "C must be a positive number, got 'learn'"),
        ({"C": 0}, "C must be a positive number"),
        (
            {"epsilon": -0.1},
            "epsilon must be a nonnegative number, got -0.1",
        ),
        ({"epsilon": None}, "epsilon must be a nonnegative number"),
        ({"epsilon": np.inf}, "epsilon must be a nonnegative number"),
        ({"norm": 0.5}, "p >= 1"),
        ({"norm": "l2"}, "norm must be a number"),
        ({"tol": 0}, "tol must be a positive number"),
    ],
    ids=str,
)
def test_parameters(settings, match):
    X, y = curve(20)
    with pytest.raises(ValueError, match=match):
        MKLRegressor(**settings).fit(X, y)


@pytest.mark.parametrize("kind", ["table", "views", "grams"])
def test_targets(kind):
    X, y = curve(20)
    data = {"table": X, "views": MultiView.wrap(X), "grams": stack(X)}[kind]
    model = MKLRegressor("precomputed" if kind == "grams" else SPECS)
    with pytest.raises(ValueError, match="y is None"):
        model.fit(data, None)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        model.fit(data, y[:10])
    with pytest.raises(ValueError, match="y contains NaN"):
        model.fit(data, np.where(y > 3, np.nan, y))
    with pytest.raises(ValueError, match="could not convert"):
        model.fit(data, ["a"] * 20)
    with pytest.raises(ValueError, match="n_samples=1"):
        model.fit(data[:1, :1] if kind == "grams" else data[:1], y[:1])
    with pytest.raises(NotFittedError):
        clone(model).predict(data)
