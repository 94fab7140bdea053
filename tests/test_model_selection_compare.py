"""compare: one set of folds for all models, and errors that mean something."""

import signal

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.datasets import load_iris
from sklearn.dummy import DummyClassifier
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    StratifiedKFold,
    cross_val_score,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from mklearn import (
    EvidenceMKLRegressor,
    KernelBank,
    MKLClassifier,
    MKLRegressor,
    MultiView,
)
from mklearn.interpretation import weight_stability
from mklearn.kernels import RBF, Linear
from mklearn.model_selection import compare
from mklearn.solvers import Status

X, Y = load_iris(return_X_y=True)


class Recorder(ClassifierMixin, BaseEstimator):
    """Remembers the rows it was fitted on (the last column holds their numbers)."""

    def __init__(self, seen=None):
        self.seen = seen

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        self.seen.append(X[:, -1].astype(int).tolist())
        return self

    def predict(self, X):
        return np.full(len(X), self.classes_[0])

    def __sklearn_clone__(self):
        return self


def numbered():
    return np.column_stack([X, np.arange(len(X))])


def test_all_models_are_fitted_on_the_same_rows():
    a, b = [], []
    cv = StratifiedKFold(4, shuffle=True)  # without a seed: each split is another one
    result = compare({"a": Recorder(a), "b": Recorder(b)}, numbered(), Y, cv)
    assert a == b
    assert [train.tolist() for train, _ in result.splits] == a
    assert len({tuple(rows) for rows in a}) == 4


def test_scores_are_those_of_cross_val_score():
    cv = StratifiedKFold(3, shuffle=True, random_state=1)
    result = compare({"svc": SVC(), "dummy": DummyClassifier()}, X, Y, cv)
    np.testing.assert_array_equal(result.scores[0], cross_val_score(SVC(), X, Y, cv=cv))
    row = result.table()[0]
    assert row["score"] == pytest.approx(result.scores[0].mean())
    k = len(result.scores[0])
    assert row["standard_error"] == pytest.approx(
        np.sqrt(np.sum((result.scores[0] - row["score"]) ** 2) / (k - 1) / k)
    )


def test_a_model_does_not_differ_from_itself():
    result = compare({"a": SVC(), "b": SVC()}, X, Y, 3)
    assert result.difference("a", "b") == (0.0, 0.0)
    ab = compare({"a": SVC(), "b": DummyClassifier()}, X, Y, 3)
    assert ab.difference("a", "b")[0] == -ab.difference("b", "a")[0] > 0.5


def test_kernels_used_are_counted_where_there_are_weights():
    models = {"mkl": MKLClassifier([Linear(), RBF()], norm=2), "svc": SVC()}
    table = compare(models, X, Y, 2).table("svc")
    assert (table[0]["kernels_used"], table[0]["n_kernels"]) == (2.0, 2)
    assert (table[1]["kernels_used"], table[1]["n_kernels"]) == (None, None)
    assert table[1]["relative_time"] == 1.0


def test_views_and_banks_are_sliced_like_arrays():
    views = MultiView({"sepal": X[:, :2], "petal": X[:, 2:]})
    kernels = [RBF(1.0, view="sepal"), RBF(1.0, view="petal")]
    cv = StratifiedKFold(3)
    on_views = compare({"mkl": MKLClassifier(kernels)}, views, Y, cv)
    bank = KernelBank(views, kernels)
    on_bank = compare({"mkl": MKLClassifier("precomputed")}, bank, Y, cv)
    np.testing.assert_array_equal(on_views.scores, on_bank.scores)


def test_callback_hears_of_every_fit():
    heard = []
    compare(
        {"a": SVC(), "b": SVC()},
        X,
        Y,
        2,
        callback=lambda name, k: heard.append((name, k)),
    )
    assert heard == [("a", 0), ("b", 0), ("a", 1), ("b", 1)]


def test_models_are_not_changed():
    model = SVC()
    compare({"svc": model}, X, Y, 2)
    assert not hasattr(model, "classes_")


def test_interrupted_fit_is_not_compared(monkeypatch):
    fit = MKLClassifier.fit

    def interrupted(self, X, y):
        fit(self, X, y)
        object.__setattr__(self.solution_, "status", Status.INTERRUPTED)
        return self

    monkeypatch.setattr(MKLClassifier, "fit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        compare({"mkl": MKLClassifier("rbf")}, X, Y, 2)


def by_ctrl_c(*_):
    signal.raise_signal(signal.SIGINT)


def by_an_error(*_):
    raise KeyboardInterrupt


@pytest.fixture
def usual_ctrl_c():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, before)


SEVERAL = ["linear", "rbf"]


@pytest.mark.parametrize(
    "make",
    [
        lambda stop: EvidenceMKLRegressor(SEVERAL, callback=stop),
        lambda stop: MKLRegressor(SEVERAL, callback=stop),
        lambda stop: make_pipeline(
            StandardScaler(), EvidenceMKLRegressor(SEVERAL, callback=stop)
        ),
        lambda stop: GridSearchCV(
            MKLRegressor(SEVERAL, callback=stop), {"C": [1.0, 2.0]}, cv=2
        ),
    ],
    ids=["evidence", "mkl", "pipeline", "search"],
)
def test_ctrl_c_within_a_fit_ends_the_comparison(make, usual_ctrl_c):
    seen = []
    model = make(by_ctrl_c)
    with pytest.raises(KeyboardInterrupt):
        compare({"m": model}, X[::5], X[::5, 0], 2, callback=lambda *a: seen.append(a))
    assert seen == []


@pytest.mark.parametrize("estimator", [EvidenceMKLRegressor, MKLRegressor])
@pytest.mark.filterwarnings("ignore:Stopped")
def test_an_interrupted_fit_ends_all_that_fits_several(estimator, usual_ctrl_c):
    for stop in (by_an_error, by_ctrl_c):
        model = estimator(SEVERAL, callback=stop, tol=1e-10)
        with pytest.raises(KeyboardInterrupt):
            compare({"m": model}, X[::5], X[::5, 0], 2)
        with pytest.raises(KeyboardInterrupt):
            weight_stability(model, X[::5], X[::5, 0], n_resamples=2)


def test_nothing_to_compare_is_an_error():
    with pytest.raises(ValueError, match="at least one model"):
        compare({}, X, Y)
    with pytest.raises(ValueError, match="at least 2 folds"):
        compare({"a": SVC()}, X, Y, [(np.arange(100), np.arange(100, 150))])


def test_searches_of_scikit_learn_get_the_groups():
    search = GridSearchCV(SVC(), {"C": [1.0, 10.0]}, cv=GroupKFold(2))
    groups = np.arange(len(X)) % 30
    result = compare({"search": search}, X, Y, cv=3, groups=groups)
    assert np.isfinite(result.scores).all()


def test_differences_of_models_that_are_not_there():
    X, y = load_iris(return_X_y=True)
    found = compare({"one": DummyClassifier(), "two": DummyClassifier()}, X, y, cv=3)
    with pytest.raises(ValueError, match="no model 'three'; there are one, two"):
        found.difference("one", "three")
