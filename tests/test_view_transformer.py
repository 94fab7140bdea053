"""Transformers for each view: nothing but what they would do alone, in every fold."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn import config_context
from sklearn.base import clone
from sklearn.ensemble import BaggingClassifier
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.feature_selection import SelectKBest, VarianceThreshold
from sklearn.impute import SimpleImputer
from sklearn.inspection import permutation_importance
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    GridSearchCV,
    StratifiedKFold,
    cross_val_predict,
    cross_val_score,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, MinMaxScaler, StandardScaler
from sklearn.semi_supervised import SelfTrainingClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

from mklearn import MKLClassifier, MKLClassifierCV, MultiView, ViewTransformer
from mklearn.interpretation import kernel_importance
from mklearn.kernels import RBF, Linear, per_view

N = 60
RNG = np.random.default_rng(0)
Y = np.arange(N) % 2
MRNA = RNG.normal(size=(N, 5)) + Y[:, None]
AGE = RNG.normal(50, 10, size=(N, 1))
SEQ = np.array(["AC GT" if label else "AC CC" for label in Y], dtype=object)
HOLES = MRNA.copy()
HOLES[::7, 2] = np.nan  # values
HOLES[3::10] = np.nan  # samples
GONE = np.isnan(HOLES).all(axis=1)
DATA = MultiView({"mrna": HOLES, "age": AGE, "seq": SEQ}, allow_nan=True)


@parametrize_with_checks([ViewTransformer(), ViewTransformer({"X": StandardScaler()})])
def test_scikit_learn_accepts_it(estimator, check):
    check(estimator)


def test_its_docstring_names_all_that_it_keeps():
    model = ViewTransformer({"mrna": SimpleImputer()}).fit(DATA)
    kept = {name for name in vars(model) if name[0] != "_" and name[-1] == "_"}
    assert kept == {"transformers_", "views_in_", "views_out_", "n_features_in_"}
    assert all(f"{name} :" in ViewTransformer.__doc__ for name in kept)


# --- what comes out -------------------------------------------------------------------


def test_each_view_is_what_its_transformer_makes_of_it():
    model = ViewTransformer({"mrna": make_pipeline(SimpleImputer(), StandardScaler())})
    found = model.fit_transform(DATA)
    alone = make_pipeline(SimpleImputer(), StandardScaler())
    expected = alone.fit_transform(HOLES[~GONE])
    assert_array_equal(found["mrna"][~GONE], expected)
    assert_array_equal(found.absent("mrna"), GONE)  # who lacks a view lacks it still
    assert_array_equal(found["age"], AGE)  # and the others pass
    assert_array_equal(found["seq"], SEQ)
    assert found.names == DATA.names
    again = model.transform(DATA)
    assert_array_equal(again["mrna"], found["mrna"])
    assert np.isnan(HOLES[0, 2])  # the input is as it was
    # new samples, of which none has the view
    nothing = model.transform(DATA[GONE])
    assert nothing["mrna"].shape == (GONE.sum(), 5) and nothing.absent("mrna").all()


def test_strings_become_columns_and_sparse_views_stay_sparse():
    words = [None if i % 9 == 0 else s for i, s in enumerate(SEQ)]
    data = MultiView({"seq": words, "age": AGE})
    found = ViewTransformer({"seq": CountVectorizer()}).fit_transform(data)
    assert sparse.issparse(found["seq"]) and not found.is_text("seq")
    assert_array_equal(found.absent("seq"), np.arange(N) % 9 == 0)
    expected = CountVectorizer().fit_transform([w for w in words if w]).toarray()
    assert_array_equal(found["seq"].toarray()[np.arange(N) % 9 != 0], expected)
    assert found.column_names("seq") == ("ac", "cc", "gt")


def test_views_can_be_dropped_and_must_not_all_be():
    found = ViewTransformer({"mrna": "drop", "age": "passthrough"}).fit_transform(DATA)
    assert found.names == ("age", "seq")
    with pytest.raises(ValueError, match="No view is left"):
        ViewTransformer({"age": "drop"}).fit(MultiView({"age": AGE}))


def test_a_mapping_is_taken_as_views():
    found = ViewTransformer({"a": StandardScaler()}).fit_transform({"a": AGE, "b": Y})
    assert isinstance(found, MultiView) and abs(found["a"].mean()) < 1e-12


def test_supervised_transformers_get_the_targets_of_their_samples():
    found = ViewTransformer(
        {"mrna": make_pipeline(SimpleImputer(), SelectKBest(k=2))}
    ).fit(DATA, Y)
    alone = make_pipeline(SimpleImputer(), SelectKBest(k=2))
    alone.fit(HOLES[~GONE], Y[~GONE])
    assert_array_equal(found.transformers_["mrna"][-1].scores_, alone[-1].scores_)
    assert found.views_out_ == {"mrna": 2, "age": 1, "seq": 1}


def test_columns_have_names():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(MRNA, columns=list("abcde"))
    data = MultiView({"mrna": frame, "age": AGE})
    scaled = ViewTransformer({"mrna": VarianceThreshold(), "age": StandardScaler()})
    out = scaled.fit_transform(data)
    assert out.column_names("mrna") == tuple("abcde")
    expected = [*(f"mrna__{c}" for c in "abcde"), "age__x0"]
    assert scaled.get_feature_names_out().tolist() == expected
    # as frames, if scikit-learn is told so
    with config_context(transform_output="pandas"):
        again = clone(scaled).fit_transform(data)
    assert_array_equal(again["mrna"], out["mrna"])


def test_metadata_reach_the_samples_that_they_belong_to():
    weight = np.where(GONE, 1e6, 1.0 + Y)
    with config_context(enable_metadata_routing=True):
        inner = StandardScaler().set_fit_request(sample_weight=True)
        model = ViewTransformer({"mrna": inner}).fit(DATA, sample_weight=weight)
    alone = StandardScaler().fit(HOLES[~GONE], sample_weight=weight[~GONE])
    assert_array_equal(model.transformers_["mrna"].mean_, alone.mean_)
    with pytest.raises(ValueError, match="enable_metadata_routing"):
        ViewTransformer({"mrna": inner}).fit(DATA, sample_weight=weight)


# --- in scikit-learn's machines -------------------------------------------------------


def pipeline(**changes):
    steps = {"mrna": make_pipeline(SimpleImputer(), StandardScaler()), "seq": "drop"}
    return make_pipeline(
        ViewTransformer({**steps, **changes}), MKLClassifier(per_view(Linear(), RBF()))
    )


def test_transformers_learn_from_training_samples_alone():
    # as by hand, fold by fold
    cv = StratifiedKFold(3)
    found = cross_val_predict(pipeline(), DATA, Y, cv=cv, method="decision_function")
    for train, test in cv.split(np.zeros(N), Y):
        scale = make_pipeline(SimpleImputer(), StandardScaler())
        rows = ~GONE
        scale.fit(HOLES[train][rows[train]])
        made = np.full_like(HOLES, np.nan)
        made[rows] = scale.transform(HOLES[rows])
        views = MultiView({"mrna": made, "age": AGE})
        model = MKLClassifier(per_view(Linear(), RBF())).fit(views[train], Y[train])
        assert_array_equal(found[test], model.decision_function(views[test]))


def test_parameters_of_transformers_can_be_searched():
    model = pipeline(age="passthrough")
    grid = {
        "viewtransformer__mrna__simpleimputer__strategy": ["mean", "median"],
        "viewtransformer__age": ["drop", StandardScaler()],
    }
    search = GridSearchCV(model, grid, cv=3).fit(DATA, Y)
    assert set(search.best_params_) == set(grid)
    assert search.best_score_ > 0.7
    assert cross_val_score(model, DATA, Y, cv=3, n_jobs=2).shape == (3,)
    assert cross_val_score(search, DATA, Y, cv=2).shape == (2,)


def test_clones_share_nothing():
    model = ViewTransformer({"a__b": StandardScaler(), "a": MinMaxScaler()})
    other = clone(model).set_params(a__b__with_mean=False, a__clip=True)
    assert not other.transformers["a__b"].with_mean and other.transformers["a"].clip
    assert model.transformers["a__b"].with_mean and not model.transformers["a"].clip
    with pytest.raises(ValueError, match="Invalid parameter 'c__d'"):
        model.set_params(c__d=1)
    kept = model.transformers
    model.set_params(a="drop")
    assert model.transformers["a"] == "drop" and kept["a"] != "drop"


# --- errors ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "transformers, words",
    [
        ({"mrnA": StandardScaler()}, "Unknown view 'mrnA'.*Did you mean 'mrna'"),
        ({"mrna": "scale"}, "needs a transformer with fit and transform"),
        ({"mrna": LogisticRegression()}, "needs a transformer"),
        ([("mrna", StandardScaler())], "mapping from views"),
        ({"mrna": FunctionTransformer(lambda X: X[:, :0])}, "at least one column"),
        ({"mrna": FunctionTransformer(lambda X: X[:1])}, "got shape"),
    ],
)
def test_errors_say_what_to_try(transformers, words):
    with pytest.raises(ValueError, match=words):
        ViewTransformer(transformers).fit(DATA)


def test_columns_of_new_samples_are_found_by_name():
    pd = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pd.DataFrame(MRNA).add_prefix("g")
    model = ViewTransformer({"mrna": StandardScaler()})
    model.fit(MultiView({"mrna": frame, "age": AGE}, allow_nan=True))
    turned = MultiView({"age": AGE, "mrna": frame.iloc[:, ::-1]}, allow_nan=True)
    same = MultiView({"age": AGE, "mrna": frame}, allow_nan=True)
    np.testing.assert_array_equal(
        model.transform(turned)["mrna"], model.transform(same)["mrna"]
    )


def test_new_samples_need_the_views_of_training():
    model = ViewTransformer({"mrna": SimpleImputer()}).fit(DATA)
    without = model.transform(MultiView({"age": AGE, "seq": SEQ}))
    assert without.absent("mrna").all() and not without.has_absent("seq")
    with pytest.raises(ValueError, match="lack view 'mrna' and have 'rna' instead"):
        model.transform(MultiView({"rna": MRNA, "age": AGE, "seq": SEQ}))
    less = MultiView({"mrna": MRNA[:, :4], "age": AGE, "seq": SEQ})
    with pytest.raises(ValueError, match="has 4 columns but had 5"):
        model.transform(less)
    nobody = MultiView({"mrna": np.full((N, 2), np.nan), "age": AGE})
    with pytest.raises(ValueError, match="No training sample has view 'mrna'"):
        model.fit(nobody)
    with pytest.raises(ValueError, match="60 samples and y has 59"):
        model.fit(DATA, Y[:-1])


def test_values_that_are_left_missing_are_refused_by_estimators():
    numbers = DATA.with_views({"seq": None})
    model = MKLClassifier(per_view(Linear()))
    with pytest.raises(ValueError, match=r"'mrna' contains NaN.*ViewTransformer"):
        model.fit(numbers, Y)
    whole = ViewTransformer({"mrna": SimpleImputer()}).fit_transform(numbers)
    model.fit(whole, Y)
    with pytest.raises(ValueError, match="'mrna' contains NaN"):
        model.predict(numbers)
    low = MKLClassifier(per_view(Linear()), approximation="nystroem", rank=10)
    with pytest.raises(ValueError, match="'mrna' contains NaN"):
        low.fit(numbers, Y)
    with pytest.raises(ValueError, match="NaN or infinity"):
        MultiView({"a": [[1.0, np.inf]]}, allow_nan=True)
    with pytest.raises(ValueError, match="NaN or infinity"):
        MultiView({"a": HOLES})


# --- what takes tables only -----------------------------------------------------------

VIEWS = {"mrna": slice(0, 5), "age": [5]}


def split(table):
    return MultiView.from_columns(table, VIEWS)


def on_table():
    return make_pipeline(FunctionTransformer(split), MKLClassifierCV(Cs=[1.0], cv=3))


def test_bagging_self_training_and_permutation_split_a_table_into_views():
    table = np.hstack([MRNA, AGE])
    bag = BaggingClassifier(on_table(), 3, random_state=0).fit(table, Y)
    assert bag.score(table, Y) > 0.8
    labels = np.where(np.arange(N) % 3 == 0, -1, Y)
    logistic = MKLClassifier(loss="logistic", kernels=per_view(Linear()))
    model = make_pipeline(FunctionTransformer(split), logistic)
    taught = SelfTrainingClassifier(model, threshold=0.8).fit(table, labels)
    assert taught.score(table, Y) > 0.8 and (taught.labeled_iter_ > 0).any()
    fitted = on_table().fit(table, Y)
    found = permutation_importance(fitted, table, Y, n_repeats=3, random_state=0)
    assert found.importances_mean.shape == (6,)
    assert found.importances_mean[:5].max() > found.importances_mean[5]


def test_they_refuse_a_multiview_in_words():
    X = MultiView({"mrna": MRNA, "age": AGE})
    model = MKLClassifier(per_view(Linear()))
    for wrapped in (BaggingClassifier(model), SelfTrainingClassifier(model)):
        with pytest.raises(TypeError, match="A MultiView is not an array"):
            wrapped.fit(X, Y)
    model.fit(X, Y)
    with pytest.raises(TypeError, match="A MultiView is not an array"):
        permutation_importance(model, X, Y)
    # what asks the same of views
    found = kernel_importance(model, X, Y, by="view", n_repeats=20, random_state=0)
    assert found.names == ("mrna", "age")
    assert found.mean[0] > found.mean[1]
