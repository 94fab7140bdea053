"""Columns that name subjects: which they are, and who warns of them."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.datasets import (
    load_breast_cancer,
    load_diabetes,
    load_digits,
    load_iris,
    load_linnerud,
    load_wine,
)
from sklearn.model_selection import GroupKFold, KFold, StratifiedKFold

from mklearn import (
    BestKernelClassifier,
    KernelBank,
    MKLClassifier,
    MKLClassifierCV,
    MKLCoxCV,
    MKLDiscriminant,
    MKLRegressorCV,
    MultiView,
    SingleKernelCV,
    SubspaceClassifierCV,
)
from mklearn.data.subjects import subject_columns
from mklearn.interpretation import weight_stability
from mklearn.kernels import RBF
from mklearn.model_selection import compare

KERNEL = RBF(1.0, columns=["a", "b"])
SEARCHES = [
    MKLClassifierCV(KERNEL, Cs=[1.0], norms=[1]),
    MKLRegressorCV(KERNEL, Cs=[1.0], norms=[1]),
    MKLCoxCV(KERNEL, Cs=[1.0], norms=[1]),
    BestKernelClassifier(KERNEL),
    SingleKernelCV(MKLDiscriminant(), KERNEL, values=[0.1]),
    SubspaceClassifierCV(KERNEL, regs=[0.1], Cs=[1.0]),
]
every_search = pytest.mark.parametrize(
    "model", SEARCHES, ids=[type(model).__name__ for model in SEARCHES]
)


def visits(n=60, each=3):
    """Return a table with rows of the same subjects, and labels of the subjects."""
    rng = np.random.default_rng(0)
    who = np.arange(n) % (n // each)
    table = pd.DataFrame(rng.standard_normal((n, 2)), columns=["a", "b"])
    return table.assign(subject=who), (who % 2).astype(int)


def target(model, y):
    rng = np.random.default_rng(1)
    if isinstance(model, MKLCoxCV):
        return rng.exponential(1.0 + y)
    return y + 0.1 * rng.standard_normal(len(y)) if is_regressor(model) else y


def said(call):
    """Return the warnings about subjects."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        call()
    return [w for w in found if "seems to contain subjects" in str(w.message)]


@every_search
def test_whoever_cross_validates_warns_of_subjects_once(model):
    X, y = visits()
    y, groups = target(model, y), X["subject"].to_numpy()
    (warning,) = said(lambda: clone(model).fit(X, y))
    text = str(warning.message)
    assert "'subject'" in text and "20 of them in 60 rows" in text
    assert "groups=" in text and "GroupKFold" in text and "--groups subject" in text
    assert warning.category is UserWarning
    assert not said(lambda: clone(model).fit(X, y, groups=groups))
    for cv in (GroupKFold(3), list(KFold(3).split(X))):
        chosen = clone(model).set_params(cv=cv)
        assert not said(lambda m=chosen: m.fit(X, y, groups=groups))
    assert not said(lambda: chosen.fit(X, y))  # given folds
    assert not said(lambda: clone(model).fit(X[["a", "b"]], y))
    folds = StratifiedKFold(3) if is_classifier(model) else KFold(3)
    assert len(said(lambda: clone(model).set_params(cv=folds).fit(X, y))) == 1


def test_the_warning_is_about_the_line_that_fits():
    X, y = visits()
    (warning,) = said(lambda: clone(SEARCHES[0]).fit(X, y))
    assert warning.filename == __file__
    (warning,) = said(lambda: compare({"m": MKLClassifier(KERNEL)}, X, y, cv=2))
    assert warning.filename == __file__


def test_comparisons_and_resamples_warn_once():
    X, y = visits()
    models = {"search": clone(SEARCHES[0]), "one": MKLClassifier(KERNEL)}
    assert len(said(lambda: compare(models, X, y, cv=2))) == 1
    assert not said(lambda: compare(models, X, y, cv=2, groups=X["subject"]))
    model, plain = models["search"], models["one"]
    for method in ("bootstrap", "pairs", "folds"):
        options = {"method": method, "n_resamples": 4, "cv": 3, "random_state": 0}
        assert len(said(lambda o=options: weight_stability(model, X, y, **o))) == 1
        options["groups"] = X["subject"].to_numpy()
        assert not said(lambda o=options: weight_stability(plain, X, y, **o))


def test_views_are_searched():
    X, y = visits()
    views = {"plain": X[["a", "b"]], "more": X[["subject", "a"]]}
    model = MKLClassifierCV(RBF(1.0, view="plain"), Cs=[1.0], norms=[1])
    assert len(said(lambda: clone(model).fit(MultiView(views), y))) == 1
    assert len(said(lambda: clone(model).fit(views, y))) == 1
    assert not said(lambda: clone(model).fit(MultiView(views), y, groups=X["subject"]))


def test_covariates_are_no_subjects():
    X, y = visits()
    y = target(SEARCHES[1], y)
    X["subject"] = np.array([f"s{i % 3}" for i in X["subject"]])
    search = clone(SEARCHES[1])
    assert len(said(lambda: search.set_params(fixed=None).fit(X[["a", "b"]], y))) == 0
    for fixed in ("subject", ["subject"], [2]):
        assert not said(lambda f=fixed: search.set_params(fixed=f).fit(X, y))


@pytest.mark.parametrize(
    "name",
    [
        "subject", "Subject", "subject_id", "SubjectID", "patient", "patient.no",
        "participants", "mouse_id", "donor code", "study_pid", "animal", "mouse",
    ],
)  # fmt: skip
def test_telling_names(name):
    X, y = visits()
    rng = np.random.default_rng(3)
    X[name] = X.pop("subject")
    assert subject_columns(X, rng.integers(0, 2, len(y))) == [name]
    assert subject_columns(X.assign(**{name: X[name].astype(str)})) == [name]
    assert subject_columns(X.assign(**{name: np.arange(len(X))})) == []
    assert subject_columns(X.assign(**{name: 0})) == []
    wide = pd.DataFrame(np.zeros((60, 1100), dtype=int)).assign(**{name: X[name]})
    assert subject_columns(wide, y) == [name]


def passengers(n=300):
    rng = np.random.default_rng(4)
    return pd.DataFrame(
        {
            "PassengerId": np.arange(n),
            "Pclass": rng.integers(1, 4, n),
            "Name": [f"Person {i}" for i in range(n)],
            "Sex": rng.choice(["male", "female"], n),
            "Age": rng.integers(1, 80, n),
            "SibSp": rng.poisson(0.5, n),
            "Parch": rng.poisson(0.4, n),
            "Ticket": rng.integers(1000, 1200, n).astype(str),
            "Fare": rng.gamma(2.0, 15.0, n).round(2),
            "Embarked": pd.Categorical(rng.choice(list("CQS"), n)),
            "n_persons": rng.integers(1, 9, n),
            "number of animals": rng.integers(0, 9, n),
        }
    )


ORDINARY = {
    "iris": lambda: load_iris(return_X_y=True, as_frame=True),
    "wine": lambda: load_wine(return_X_y=True, as_frame=True),
    "cancer": lambda: load_breast_cancer(return_X_y=True, as_frame=True),
    "digits": lambda: load_digits(return_X_y=True, as_frame=True),
    "diabetes": lambda: load_diabetes(return_X_y=True, as_frame=True),
    "diabetes in units": lambda: load_diabetes(
        return_X_y=True, as_frame=True, scaled=False
    ),
    "linnerud": lambda: load_linnerud(return_X_y=True, as_frame=True),
}


@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_tables_have_no_subjects(name):
    X, y = ORDINARY[name]()
    assert subject_columns(X, y) == []
    counts = (10 * X / X.abs().max()).fillna(0).round().astype(int)
    assert subject_columns(counts, y) == []
    assert subject_columns(MultiView({"all": counts}), y) == []


def test_categories_and_counts_are_no_subjects():
    X = passengers()
    rng = np.random.default_rng(5)
    y = rng.integers(0, 2, len(X))
    assert subject_columns(X, y) == []
    assert subject_columns(X, rng.standard_normal(len(X))) == []
    batch = np.arange(300) % 24
    X = X.assign(
        batch=[f"b{i}" for i in batch],
        plate=batch,
        city=[f"city {i}" for i in rng.integers(0, 40, 300)],
        stage=y * 5 + rng.integers(0, 5, 300),  # which tells the class in its order
        animal=rng.choice(["cat", "dog"], 300),
    )
    assert subject_columns(X, y) == []
    assert subject_columns(X, rng.standard_normal(300)) == []


def test_unnamed_subjects_determine_the_target():
    X, y = visits(120)
    who = X.pop("subject").to_numpy()
    X["code"] = [f"c{i}" for i in who]
    X["number"] = np.random.default_rng(1).permutation(500)[who]
    assert subject_columns(X, y) == ["code", "number"]
    values = np.random.default_rng(2).standard_normal(40)[who]
    assert subject_columns(X, values) == ["code", "number"]
    assert subject_columns(X, np.column_stack([values, y])) == ["code", "number"]
    assert subject_columns(X, np.random.default_rng(2).integers(0, 2, 120)) == []
    assert subject_columns(X) == []
    assert subject_columns(X.to_numpy(), y) == []


@every_search
def test_gram_matrices_have_no_columns(model):
    X, y = visits()
    grams = KernelBank(X[["a", "b"]], ["linear", "rbf"])
    search = clone(model).set_params(kernels="precomputed")
    assert not said(lambda: search.fit(grams, target(model, y)))
