"""Columns that neither kernels nor covariates use may contain anything."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from mklearn import (
    BestKernelClassifier,
    EvidenceMKLRegressor,
    MKLClassifier,
    MKLClassifierCV,
    MKLDiscriminant,
    MKLRegressor,
    MKLRegressorCV,
)
from mklearn.kernels import RBF, Linear, per_feature, per_group
from mklearn.persistence import load, save

USED = ["a", "b"]


def table(n=60):
    """Return a table with columns that are no numbers, and one that has gaps."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.standard_normal((n, 2)), columns=USED)
    X.insert(1, "sex", rng.choice(["f", "m"], n))
    X["age"] = rng.uniform(20, 80, n)
    X["site"] = pd.Categorical(rng.choice(["north", "south"], n))
    X["when"] = pd.date_range("2020-01-01", periods=n)
    X["gaps"] = np.where(np.arange(n) % 7, 1.0, np.nan)
    y = np.sin(X["a"]) + 0.05 * X["age"] + (X["sex"] == "f")
    return X, y.to_numpy()


KERNELS = {
    "columns": RBF(0.5, columns=USED),
    "index": RBF(0.5, columns=[0, 2]),
    "several": [RBF(0.5, columns="a"), Linear(columns="b")],
    "product": RBF(0.5, columns="a") * Linear(columns="b"),
    "each": per_feature(RBF(0.5, columns=USED)),
    "groups": per_group({"both": USED, "one": ["b"]}, min_size=1),
}


@pytest.mark.parametrize("fixed", [None, ["age"], ["age", "sex"]], ids=str)
@pytest.mark.parametrize("name", KERNELS)
def test_unused_columns_are_not_read(name, fixed):
    X, y = table()
    few = X[["a", "sex", "b", "age"]]
    few = few if fixed == ["age", "sex"] else few.assign(sex=0.0)
    model = MKLRegressor(KERNELS[name], fixed=fixed)
    found, expected = clone(model).fit(X, y), clone(model).fit(few, y)
    np.testing.assert_allclose(found.predict(X[:9]), expected.predict(few[:9]))
    assert found.n_features_in_ == X.shape[1]
    assert list(found.feature_names_in_) == list(X.columns)
    again = X.assign(sex=X["sex"] if fixed == ["age", "sex"] else "other", site=None)
    np.testing.assert_allclose(found.predict(again), found.predict(X))


@pytest.mark.parametrize(
    "model",
    [
        MKLClassifier(KERNELS["columns"]),
        MKLClassifierCV(KERNELS["columns"], Cs=[1.0], norms=[1]),
        MKLDiscriminant(KERNELS["columns"]),
        BestKernelClassifier(KERNELS["several"], cv=2),
        MKLClassifier(KERNELS["columns"], approximation="nystroem", rank=20),
        EvidenceMKLRegressor(KERNELS["columns"]),
        MKLRegressorCV(KERNELS["columns"], Cs=[1.0], norms=[1]),
    ],
    ids=lambda model: type(model).__name__,
)
def test_in_every_estimator_and_file(model, tmp_path):
    X, y = table()
    gaps = X["gaps"].fillna(0.0)
    few = X.assign(sex=0.0, site=0.0, when=0.0, gaps=gaps)  # landmarks depend on rows
    y = y if "Regressor" in type(model).__name__ else (y > np.median(y)).astype(int)
    found, expected = clone(model).fit(X, y), clone(model).fit(few, y)
    np.testing.assert_allclose(found.predict(X), expected.predict(few))
    save(found, tmp_path / "model.mkl")
    np.testing.assert_array_equal(load(tmp_path / "model.mkl").predict(X),
                                  found.predict(X))  # fmt: skip


def test_a_search_over_covariates():
    X, y = table()
    choices = [None, ["age"], ["age", "sex"], ["site"]]
    model = MKLRegressor(KERNELS["columns"])
    search = GridSearchCV(model, {"fixed": choices}, cv=3, error_score="raise")
    assert search.fit(X, y).best_params_ == {"fixed": ["age", "sex"]}
    # numbers other than the covariates are still those of the kernels
    by_feature = MKLRegressor(per_feature(RBF(0.5, columns=[*USED, "age"])))
    assert by_feature.fit(X, y).kernel_names_[-1].endswith("[age]")


@pytest.mark.parametrize(
    "kernels", ["rbf", "auto", per_feature("rbf"), RBF(1.0)], ids=str
)
def test_text_that_is_used_is_named(kernels):
    X, y = table()
    X = X[["a", "sex", "b", "age"]]
    for fixed in (None, ["age"]):
        with pytest.raises(ValueError, match=r"Column 'sex' contains text \('[fm]'\)"):
            MKLRegressor(kernels, fixed=fixed).fit(X, y)
    model = MKLRegressor(kernels, fixed=["sex"]).fit(X, y)
    with pytest.raises(ValueError, match="Column 'b' contains text"):
        model.predict(X.assign(b="high"))
    with pytest.raises(ValueError, match="NaN"):
        model.predict(X.assign(b=np.nan))


def test_numbers_given_as_text_are_numbers():
    X, y = table()
    few = X[USED]
    texts = few.assign(a=few["a"].astype(str))
    model = MKLRegressor(RBF(0.5))
    np.testing.assert_allclose(model.fit(texts, y).predict(texts),
                               clone(model).fit(few, y).predict(few))  # fmt: skip


def test_polars():
    pl = pytest.importorskip("polars")
    X, y = table()
    few = X[["a", "sex", "b", "age"]]
    frame = pl.DataFrame({c: few[c].to_list() for c in few.columns})
    model = MKLRegressor(KERNELS["columns"], fixed=["age"])
    expected = clone(model).fit(few, y).predict(few)
    np.testing.assert_allclose(clone(model).fit(frame, y).predict(frame), expected)
    with pytest.raises(ValueError, match="Column 'sex' contains text"):
        MKLRegressor("rbf").fit(frame, y)
