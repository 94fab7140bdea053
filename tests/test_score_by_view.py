"""Scores divided between views: parts that sum, views left out, Shapley values."""

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.dummy import DummyRegressor
from sklearn.linear_model import LinearRegression
from sklearn.metrics import r2_score
from sklearn.model_selection import GroupKFold, KFold, cross_val_score

from cases import samples, stack
from mklearn import (
    BilinearMKLClassifier,
    EvidenceMKLRegressor,
    KernelBank,
    MKLClassifier,
    MKLClassifierCV,
    MKLCox,
    MKLDiscriminant,
    MKLOneClass,
    MKLRegressor,
    MKLRegressorCV,
    MultiView,
    SubspaceClassifier,
)
from mklearn.data.subjects import group_folds
from mklearn.interpretation import score_by_view
from mklearn.kernels import RBF, Linear, per_view
from mklearn.model_selection import compare
from mklearn.persistence import load, save
from mklearn.plotting import ViewScoresDisplay
from mklearn.report import Report, describe_data
from mklearn.report.html import report_html

KERNELS = [Linear(), RBF(0.3), RBF(0.05, columns=[0, 1])]
BY_VIEW = per_view([Linear(), RBF(0.3)])
REGRESSORS = [
    EvidenceMKLRegressor(KERNELS),
    MKLRegressor(KERNELS, norm=1),
    MKLRegressor(KERNELS, loss="epsilon_insensitive"),
    MKLRegressor(KERNELS, approximation="nystroem", rank=20),
    MKLRegressorCV(KERNELS, Cs=[0.1, 1.0], norms=[1, 2], cv=3),
]
CLASSIFIERS = [
    MKLClassifier(KERNELS),
    MKLClassifier(KERNELS, weights="per-class"),
    MKLClassifier(KERNELS, loss="squared", approximation="nystroem", rank=20),
    BilinearMKLClassifier(KERNELS),
    MKLDiscriminant(KERNELS),
    SubspaceClassifier(KERNELS),
]


def name(model):
    return type(model).__name__


def regression(n=80, outputs=1, seed=0):
    """Return three views, of which the last says nothing, and values."""
    rng = np.random.default_rng(seed)
    a, b, c = rng.standard_normal((3, n, 3))
    y = a[:, :outputs] + 0.5 * b[:, :outputs] + 0.3 * rng.standard_normal((n, outputs))
    X = MultiView({"a": a, "b": b + 0.5 * a, "c": c})
    return X, y[:, 0] if outputs == 1 else y + 7.0


# --- the product measure --------------------------------------------------------------


@pytest.mark.parametrize("scoring", ["r2", "correlation"])
@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("model", REGRESSORS, ids=name)
def test_parts_sum_to_the_score(model, outputs, scoring):
    X, _ = samples(60)
    rng = np.random.default_rng(1)
    Y = X[:, :outputs] + 0.3 * rng.standard_normal((60, outputs)) + 5.0
    y = Y[:, 0] if outputs == 1 else Y
    fitted = clone(model).fit(X[:40], y[:40])
    found = score_by_view(fitted, X[40:], y[40:], by="kernel", scoring=scoring)
    constant = ("intercept",) if scoring == "r2" else ()
    assert found.names == (*fitted.kernel_names_, *constant)
    predicted = fitted.predict(X[40:]).reshape(20, -1)
    truth = Y[40:]
    if scoring == "r2":
        expected = r2_score(truth, predicted)
        size = np.sum((truth - truth.mean(axis=0)) ** 2, axis=0)
        off = predicted.mean(axis=0) - truth.mean(axis=0)
        level = float(np.mean(-20 * off**2 / size))
        assert abs(found.scores[-1] - level) <= 1e-12
    else:
        pairs = zip(truth.T, predicted.T, strict=True)
        expected = np.mean([np.corrcoef(t, p)[0, 1] for t, p in pairs])
    assert abs(found.total - expected) <= 1e-12
    assert abs(found.scores.sum() - expected) <= 1e-12
    assert abs(found.rest) <= 1e-12
    assert found.outputs.shape == (outputs, 3 + len(constant))
    assert len(found.members) == len(found.names)
    assert np.isnan(found.standard_errors).all()


@pytest.mark.parametrize("outputs", [1, 3])
def test_the_splits_of_himalaya(outputs):
    scoring = pytest.importorskip("himalaya.scoring")
    X, y = regression(outputs=outputs)
    model = MKLRegressor(BY_VIEW).fit(X[:50], y[:50])
    Y = y[50:].reshape(30, -1)
    parts = model.predictor_.parts(model.checked(X[50:]))
    views = np.stack([parts[..., i : i + 2].sum(axis=2) for i in (0, 2, 4)])
    centred = views - views.mean(axis=1, keepdims=True)
    deviations = Y - Y.mean(axis=0)
    # what a wrong mean costs is one more part, of constants
    level = model.predict(X[50:]).reshape(30, -1).mean(axis=0) - Y.mean(axis=0)
    level = np.broadcast_to(level, (1, *Y.shape))
    theirs = scoring.r2_score_split(deviations, np.concatenate([centred, level]))
    found = score_by_view(model, X[50:], y[50:])
    np.testing.assert_allclose(found.outputs, theirs.T, rtol=0, atol=1e-13)
    assert found.names == ("a", "b", "c", "intercept")
    theirs = scoring.correlation_score_split(Y, views)
    found = score_by_view(model, X[50:], y[50:], scoring="correlation")
    np.testing.assert_allclose(found.outputs, theirs.T, rtol=0, atol=1e-13)


@pytest.mark.parametrize("kind", ["product", "unique", "shapley"])
def test_weights_of_each_target(kind):
    X, y = regression(outputs=3)
    model = EvidenceMKLRegressor(per_view("linear"), weights="per-target")
    rows = [(np.arange(50), np.arange(50, 80))]
    found = score_by_view(model, X, y, kind, cv=rows)
    whole = clone(model).fit(X[:50], y[:50]).score(X[50:], y[50:])
    assert abs(found.total - whole) <= 1e-9
    assert found.scores[0] > found.scores[2]


@pytest.mark.parametrize("scoring", ["r2", "correlation"])
@pytest.mark.parametrize(
    "model",
    [
        EvidenceMKLRegressor(per_view("linear"), weights="per-target"),
        EvidenceMKLRegressor(per_view("linear"), weights=["a", "b", "a"]),
        MKLRegressor(per_view("linear"), weights="per-target"),
        MKLRegressor(per_view("linear"), weights=["a", "b", "a"]),
    ],
    ids=name,
)
def test_parts_of_targets_with_their_own_weights(model, scoring, tmp_path):
    array = pytest.importorskip("dask.array")
    X, y = regression(outputs=3)
    fitted = clone(model).fit(X[:50], y[:50])
    save(fitted, tmp_path / "model.mkl")
    lazy = array.from_array(y[:50], chunks=(50, 2))
    models = [fitted, load(tmp_path / "model.mkl"), clone(model).fit(X[:50], lazy)]
    for one in models:
        found = score_by_view(one, X[50:], y[50:], scoring=scoring)
        predicted = one.predict(X[50:])
        pairs = zip(y[50:].T, predicted.T, strict=True)
        total = np.mean([np.corrcoef(t, p)[0, 1] for t, p in pairs])
        if scoring == "r2":
            total = r2_score(y[50:], predicted)
        assert abs(found.total - total) <= 1e-12
        assert abs(found.scores.sum() - total) <= 1e-12
        assert found.scores[0] > found.scores[2]


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("model", CLASSIFIERS, ids=name)
def test_scores_of_classifiers(model, n_classes):
    X, y = samples(60, n_classes=n_classes)
    fitted = clone(model).fit(X[:40], y[:40])
    found = score_by_view(fitted, X[40:], y[40:], by="kernel")
    decision = fitted.decision_function(X[40:]).reshape(20, -1)
    columns = [1] if n_classes == 2 else range(3)
    truth = np.stack([y[40:] == c for c in columns], axis=1).astype(float)
    pairs = zip(truth.T, decision.T, strict=True)
    expected = np.mean([np.corrcoef(t, d)[0, 1] for t, d in pairs])
    assert found.scoring == "correlation"
    assert abs(found.scores.sum() - expected) <= 1e-12
    assert abs(found.total - expected) <= 1e-12


def test_parts_do_not_depend_on_the_level_of_kernels():
    # a constant added to a kernel changes parts and intercept, and no prediction
    X, y = regression()
    grams = np.stack([X[v] @ X[v].T for v in X], axis=2)
    found = []
    for shift in (0.0, 40.0):
        moved = grams + np.array([shift, 0.0, 0.0])
        model = MKLRegressor("precomputed", normalize=None, norm=np.inf, tol=1e-9)
        model.fit(moved[:50, :50], y[:50])
        found.append(score_by_view(model, moved[50:, :50], y[50:]).scores)
    # both are within tol of the same optimum, and scores move by its root
    np.testing.assert_allclose(found[0], found[1], rtol=0, atol=1e-4)


def test_folds_have_errors_and_their_mean():
    X, y = regression()
    model = MKLRegressor(BY_VIEW)
    cv = KFold(4)
    found = score_by_view(model, X, y, cv=cv)
    scores = cross_val_score(model, X, y, cv=cv)
    np.testing.assert_allclose(found.totals, scores, rtol=0, atol=1e-12)
    d = found.folds[:, 0]
    # Nadeau and Bengio: 1 / k and the ratio of test to training samples
    expected = np.sqrt((1 / 4 + 20 / 60) * d.var(ddof=1))
    assert np.isclose(found.standard_errors[0], expected, rtol=1e-12)
    assert found.sizes == ((60, 20),) * 4
    assert not hasattr(model, "predictor_")
    assert found.scores[0] > found.scores[1] > found.scores[2]


def test_covariates_have_a_part():
    X, y = regression()
    table = np.column_stack([X["a"], X["b"]])
    kernels = [Linear(columns=[1, 2]), RBF(0.3, columns=[3, 4])]
    model = EvidenceMKLRegressor(kernels, fixed=[0]).fit(table[:50], y[:50])
    found = score_by_view(model, table[50:], y[50:], by="kernel")
    assert found.names == (*model.kernel_names_, "covariates", "intercept")
    assert abs(found.total - model.score(table[50:], y[50:])) <= 1e-12
    assert found.names[found.scores.argmax()] == "covariates"
    rows = [(np.arange(50), np.arange(50, 80))]
    unique = score_by_view(model, table, y, "unique", by="kernel", cv=rows)
    assert abs(unique.total - found.total) <= 1e-9
    less = EvidenceMKLRegressor(kernels[:1], fixed=[0]).fit(table[:50], y[:50])
    lost = found.total - less.score(table[50:], y[50:])
    assert abs(unique.scores[1] - lost) <= 1e-9
    labels = (y > 0).astype(int)
    with pytest.raises(ValueError, match="a model without kernels"):
        score_by_view(MKLClassifier(kernels, fixed=[0]), table, labels, "shapley")


@pytest.mark.parametrize("scoring", ["r2", "correlation", "neg_mean_absolute_error"])
@pytest.mark.parametrize("given", [False, True])
def test_shapley_values_start_from_the_covariates(given, scoring):
    X, y = regression()
    table = np.column_stack([X["a"], X["b"]])
    kernels = [Linear(columns=[1, 2]), RBF(0.3, columns=[3, 4])]
    model = MKLRegressor(kernels, fixed=[0], tol=1e-6)
    train, test = np.arange(50), np.arange(50, 80)
    input_ = table
    if given:
        bank = KernelBank(table, kernels)
        grams = np.stack([bank.gram(m) for m in range(2)], axis=2)
        input_ = KernelBank.from_grams(grams, covariates={"x": table[:, 0]})
        model = MKLRegressor("precomputed", fixed=["x"], tol=1e-6)
    options = {"by": "kernel", "cv": [(train, test)], "scoring": scoring}
    found = score_by_view(model, input_, y, "shapley", **options)
    linear = LinearRegression().fit(table[train, :1], y[train])
    values = linear.predict(table[test, :1])
    expected = {
        "r2": r2_score(y[test], values),
        "correlation": np.corrcoef(y[test], values)[0, 1],
        "neg_mean_absolute_error": -np.abs(y[test] - values).mean(),
    }[scoring]
    assert abs(found.rest - expected) <= 1e-9
    assert abs(found.scores.sum() + expected - found.total) <= 1e-9
    unique = score_by_view(model, input_, y, "unique", **options)
    # of two kernels, the value is the mean of the gains in both orders
    first = found.total - unique.scores[1] - expected
    assert abs(found.scores[0] - (first + unique.scores[0]) / 2) <= 1e-9


# --- views left out -------------------------------------------------------------------


@pytest.mark.parametrize(
    "model",
    [
        MKLRegressor(BY_VIEW, tol=1e-6),
        MKLRegressor(BY_VIEW, tol=1e-6, approximation="nystroem", rank=40),
        EvidenceMKLRegressor(BY_VIEW),
    ],
    ids=name,
)
def test_unique_is_the_score_without_a_view(model):
    X, y = regression(n=60)
    train, test = np.arange(40), np.arange(40, 60)
    found = score_by_view(model, X, y, "unique", cv=[(train, test)])
    whole = clone(model).fit(X[train], y[train]).score(X[test], y[test])
    assert abs(found.total - whole) <= 1e-6
    for i, view in enumerate(X):
        kept = MultiView({v: X[v] for v in X if v != view})
        rest = clone(model).fit(kept[train], y[train]).score(kept[test], y[test])
        # the same optimum, found from the same kernels in Grams and in a table
        assert abs(found.scores[i] - (whole - rest)) <= 1e-6
    assert np.isnan(found.total_error)


def shapley(value, n):
    """Return the mean gain over all orders, by its definition."""
    found = np.zeros(n)
    orders = list(permutations(range(n)))
    for order in orders:
        for i, v in enumerate(order):
            found[v] += value(order[: i + 1]) - value(order[:i])
    return found / len(orders)


def values_of(model, X, y, train, test):
    """Return the score of a model of some views, which are numbers."""
    names, known = list(X), {}

    def value(views):
        key = tuple(sorted(views))
        if key not in known:
            if not key:
                fitted = DummyRegressor().fit(X[train]["a"], y[train])
                known[key] = fitted.score(X[test]["a"], y[test])
            else:
                kept = MultiView({names[v]: X[names[v]] for v in key})
                fitted = clone(model).fit(kept[train], y[train])
                known[key] = fitted.score(kept[test], y[test])
        return known[key]

    return value


def test_shapley_is_the_mean_over_orders():
    X, y = regression(n=60)
    train, test = np.arange(40), np.arange(40, 60)
    model = MKLRegressor(BY_VIEW, tol=1e-6)
    found = score_by_view(model, X, y, "shapley", cv=[(train, test)])
    value = values_of(model, X, y, train, test)
    np.testing.assert_allclose(found.scores, shapley(value, 3), rtol=0, atol=1e-6)
    baseline = value(())
    assert abs(found.scores.sum() + baseline - found.total) <= 1e-12
    assert abs(found.rest - baseline) <= 1e-12
    assert found.sampling_errors is None


def test_shapley_values_of_shapiq():
    shapiq = pytest.importorskip("shapiq", reason="shapiq is not installed")
    X, y = regression(n=60)
    train, test = np.arange(40), np.arange(40, 60)
    model = MKLRegressor(BY_VIEW, tol=1e-6)
    value = values_of(model, X, y, train, test)

    def game(coalitions):
        return np.array([value(np.flatnonzero(c).tolist()) for c in coalitions])

    theirs = shapiq.ExactComputer(game, n_players=3)("SV").get_n_order_values(1)
    found = score_by_view(model, X, y, "shapley", cv=[(train, test)])
    np.testing.assert_allclose(found.scores, theirs, rtol=0, atol=1e-6)


def test_sampled_shapley_values():
    X, y = regression(n=60)
    model = EvidenceMKLRegressor(per_view("linear"))
    exact = score_by_view(model, X, y, "shapley", cv=3)
    options = {"cv": 3, "n_permutations": 40, "random_state": 0}
    drawn = score_by_view(model, X, y, "shapley", **options)
    # each order goes from no view to all of them
    assert abs(drawn.scores.sum() - exact.scores.sum()) <= 1e-12
    assert (drawn.sampling_errors > 0).any()
    # Cantelli: within 7 standard errors with probability 98 % or more, whatever the law
    least = 1e-12 + 7 * drawn.sampling_errors
    assert (np.abs(drawn.scores - exact.scores) <= least).all()
    again = score_by_view(model, X, y, "shapley", **options)
    np.testing.assert_array_equal(drawn.folds, again.folds)


def test_constant_views_add_nothing():
    rng = np.random.default_rng(0)
    a = rng.standard_normal((40, 2))
    y = a[:, 0] + rng.standard_normal(40)
    X = MultiView({"a": a, "same": np.ones((40, 1)), "too": np.zeros((40, 2))})
    model = MKLRegressor(per_view("linear"))
    with pytest.warns(UserWarning, match="zero or constant"):
        found = score_by_view(model, X, y, "shapley", cv=3)
    np.testing.assert_allclose(found.scores[1:], 0.0, atol=1e-4)
    with pytest.warns(UserWarning, match="zero or constant"):
        gone = score_by_view(model, X, y, "unique", cv=3)
    np.testing.assert_allclose(gone.scores, found.scores, atol=1e-4)
    times = np.column_stack([np.exp(-a[:, 0]), np.ones(40)])
    with pytest.warns(UserWarning, match="zero or constant"):
        risk = score_by_view(MKLCox(per_view("linear")), X, times, "shapley", cv=3)
    np.testing.assert_allclose(risk.scores[1:], 0.0, atol=1e-4)
    with pytest.raises(ValueError, match="nothing to learn"):
        score_by_view(model, X[["same", "too"]], y, "shapley", cv=3)


@pytest.mark.filterwarnings("ignore:R.2 score is not well-defined")
def test_scores_that_are_not_defined_are_refused():
    X = samples(20)[0]
    with pytest.raises(ValueError, match="not defined on the test samples"):
        score_by_view(
            MKLRegressor(["linear", "rbf"]), X, X[:, 0], "unique", "kernel", cv=20
        )


def test_many_views_are_sampled():
    rng = np.random.default_rng(0)
    X = MultiView({f"v{i}": rng.standard_normal((30, 1)) for i in range(13)})
    y = X["v3"][:, 0] + 0.1 * rng.standard_normal(30)
    model = MKLRegressor(per_view("linear"), norm=np.inf, C=0.1)
    rows = [(np.arange(20), np.arange(20, 30))]
    found = score_by_view(model, X, y, "shapley", cv=rows, random_state=0)
    assert found.sampling_errors.shape == (13,)
    assert found.names[found.scores.argmax()] == "v3"


@pytest.mark.parametrize("kind", ["unique", "shapley"])
@pytest.mark.parametrize("scoring", [None, "roc_auc", "neg_log_loss", "correlation"])
def test_any_score_of_a_classifier(kind, scoring):
    rng = np.random.default_rng(0)
    y = np.arange(60) % 2
    X = MultiView(
        {"s": rng.normal(size=(60, 2)) + y[:, None], "n": rng.normal(size=(60, 2))}
    )
    model = MKLClassifier(per_view("linear"), loss="logistic")
    found = score_by_view(model, X, y, kind, scoring=scoring, cv=3)
    if scoring != "correlation":
        expected = cross_val_score(model, X, y, cv=3, scoring=scoring)
        np.testing.assert_allclose(found.totals, expected, rtol=0, atol=1e-3)
    assert found.scores[0] > found.scores[1]
    baselines = {"roc_auc": 0.5, "neg_log_loss": -np.log(2), "correlation": 0.0}
    if kind == "shapley":
        assert abs(found.rest - baselines.get(scoring, 0.5)) <= 1e-9


def test_searches_grams_tables_and_groups():
    X, _ = samples(60)
    labels = (X[:, 0] > 0).astype(int)
    search = MKLClassifierCV(KERNELS, Cs=[0.1, 1.0], norms=[1, 2], cv=3)
    found = score_by_view(search, X, labels, "unique", by="kernel", cv=2)
    assert found.scores.shape == (3,)
    assert found.names == tuple(KernelBank(X, KERNELS).names)
    # columns decide which kernels are a view
    assert len(score_by_view(search, X, labels, "unique", cv=2).names) == 2
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=[f"x{i}" for i in range(X.shape[1])])
    plain = MKLClassifier(KERNELS)
    by_hand = score_by_view(plain, X, labels, "unique", cv=3)
    for form in (frame, sparse.csr_matrix(X)):
        other = score_by_view(plain, form, labels, "unique", cv=3)
        np.testing.assert_allclose(other.folds, by_hand.folds, rtol=0, atol=1e-12)
    grams = stack(X, 3)
    given = MKLClassifier("precomputed")
    one = score_by_view(given, grams, labels, "shapley", cv=3)
    two = score_by_view(given, KernelBank.from_grams(grams), labels, "shapley", cv=3)
    np.testing.assert_allclose(one.folds, two.folds, rtol=0, atol=1e-12)
    assert len(one.names) == 3
    groups = np.arange(60) % 4
    found = score_by_view(plain, X, labels, cv=GroupKFold(4), groups=groups)
    assert found.sizes == ((45, 15),) * 4


def test_equal_rows_and_two_jobs():
    X, y = samples(30)
    values = X[:, 0] + 0.1 * y
    twice = np.concatenate([X, X[:10]])
    values = np.concatenate([values, values[:10]])
    model = EvidenceMKLRegressor(["linear", "rbf"])
    rows = [(np.r_[0:25, 30:35], np.r_[25:30, 35:40])]
    found = score_by_view(model, twice, values, "unique", by="kernel", cv=rows)
    train, test = rows[0]
    whole = clone(model).fit(twice[train], values[train])
    assert abs(found.total - whole.score(twice[test], values[test])) <= 1e-9
    both = score_by_view(model, twice, values, "unique", by="kernel", cv=rows, n_jobs=2)
    np.testing.assert_allclose(both.folds, found.folds, rtol=0, atol=1e-9)


# --- errors, tables, figures ----------------------------------------------------------


def test_clear_errors():
    X, y = samples(40)
    fitted = MKLClassifier(KERNELS).fit(X, y)
    with pytest.raises(ValueError, match="kind must be one of"):
        score_by_view(fitted, X, y, "variance")
    with pytest.raises(ValueError, match="by must be"):
        score_by_view(fitted, X, y, by="column")
    with pytest.raises(ValueError, match="supports 'r2' and 'correlation'"):
        score_by_view(fitted, X, y, scoring="accuracy")
    with pytest.raises(ValueError, match="at least 4"):
        score_by_view(fitted, X, y, "shapley", n_permutations=2)
    with pytest.raises(ValueError, match="a classifier or a regressor"):
        score_by_view(MKLOneClass(KERNELS).fit(X), X, y)
    with pytest.raises(ValueError, match="y is constant"):
        score_by_view(MKLRegressor(KERNELS).fit(X, X[:, 0]), X, np.ones(40))
    with pytest.raises(ValueError, match="which do not occur in the model"):
        score_by_view(fitted, X, y + 5)
    with pytest.raises(ValueError, match="40 samples and y has 39"):
        score_by_view(fitted, X, y[:39], "unique")
    with pytest.raises(ValueError, match="Only estimators of mklearn"):
        score_by_view(DummyRegressor(), X, y)


def test_table_figure_and_report():
    pytest.importorskip("pandas")
    figure = pytest.importorskip("matplotlib.figure")
    X, y = regression()
    model = MKLRegressor(BY_VIEW)
    found = score_by_view(model, X, y, "shapley", cv=3)
    frame = found.frame()
    assert frame.index.tolist() == ["a", "b", "c", "rest"]
    assert abs(frame["score"].sum() - found.total) <= 1e-12
    display = ViewScoresDisplay.from_scores(found, ax=figure.Figure().subplots())
    widths = [bar.get_width() for bar in display.bars_]
    np.testing.assert_allclose(widths, found.scores)
    assert [t.get_text() for t in display.ax_.get_yticklabels()] == ["a", "b", "c"]
    report = Report(
        title="Views",
        data=describe_data(X),
        model=clone(model).fit(X, y),
        comparison=compare({"MKL": model}, X, y, cv=3),
        scoring="r2",
        views=found,
    )
    divided = score_by_view(report.model, X, y)
    frame = divided.frame()
    assert frame.index.tolist() == ["a", "b", "c", "intercept"]
    assert abs(frame["score"].sum() - divided.total) <= 1e-12
    display = ViewScoresDisplay.from_scores(divided, ax=figure.Figure().subplots())
    assert len(display.bars_) == 4
    page = report_html(replace(report, views=divided))
    assert "intercept" in page and "each of 3 views" in page
    page = report_html(report)
    assert "Shapley values: R²" in page
    assert f"{found.scores[0]:+.3f} ± {found.standard_errors[0]:.3f}" in page


@pytest.mark.parametrize("kind", ["product", "unique"])
def test_subjects_stay_together_in_a_number_of_folds(kind):
    rng = np.random.default_rng(0)
    subject = np.tile(np.arange(12), 4)
    a, b = rng.standard_normal((12, 3))[subject], rng.standard_normal((48, 2))
    X = MultiView({"a": a, "b": b})
    y = np.tile(np.arange(12) % 2, 4)
    model = MKLClassifier(["linear"])
    folds = list(group_folds(3, subject, y, True).split(a, y, subject))
    assert not any(set(subject[i]) & set(subject[j]) for i, j in folds)
    found = score_by_view(model, X, y, kind=kind, cv=3, groups=subject)
    asked = score_by_view(model, X, y, kind=kind, cv=folds)
    np.testing.assert_array_equal(found.folds, asked.folds)
