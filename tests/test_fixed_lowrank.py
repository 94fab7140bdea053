"""Covariates beside features of low rank: arrays, blocks and Dask."""

import contextlib
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from cases import patient_columns
from mklearn import (
    EvidenceMKLRegressor,
    MKLClassifier,
    MKLCox,
    MKLDiscriminant,
    MKLRegressor,
    MKLSurvivalSVM,
    MultiView,
    kernels,
)
from mklearn.blocks import ArrayBlocks, CSVBlocks
from mklearn.persistence import load, save
from mklearn.problems import separation
from mklearn.problems.losses import PointwiseHinge

FIXED = ["age", "site"]
FULL = {"approximation": "nystroem", "rank": 200}


def patients(n=70, seed=0):
    """Return a table of numbers and categories, and values that follow from both."""
    rng = np.random.default_rng(seed)
    X = patient_columns(rng, n)
    y = np.sin(X["a"]) + 0.05 * X["age"] + 2.0 * (X["site"] == "y")
    return X, (y + 0.3 * rng.standard_normal(n)).to_numpy()


def labelled(n=70, seed=0):
    X, y = patients(n, seed)
    noisy = y + 1.5 * np.random.default_rng(seed + 1).standard_normal(n)
    return X, np.where(noisy > np.median(noisy), "yes", "no")


def agree(low, exact, X, tol):
    """Check that bounds of one problem hold for the other, and that models agree."""
    size = 1e-9 * abs(exact.solution_.upper)  # features are exact up to rounding
    assert low.duality_gap_ <= tol and exact.duality_gap_ <= tol
    assert low.solution_.lower <= exact.solution_.upper + size
    assert exact.solution_.lower <= low.solution_.upper + size


@pytest.mark.parametrize("loss", ["squared", "epsilon_insensitive"])
def test_full_rank_is_exact_for_numbers(loss):
    X, y = patients()
    bank, tol = kernels.per_feature("rbf"), 1e-6
    options = {"fixed": FIXED, "loss": loss, "tol": tol}
    exact = MKLRegressor(bank, **options).fit(X, y)
    low = MKLRegressor(bank, **options, **FULL).fit(X, y)
    agree(low, exact, X, tol)
    near = 10 * np.sqrt(2 * tol * exact.solution_.upper)
    np.testing.assert_allclose(low.predict(X), exact.predict(X), atol=near)
    assert low.fixed_names_ == exact.fixed_names_
    if loss == "squared":
        np.testing.assert_allclose(low.fixed_effects_, exact.fixed_effects_, atol=near)
        np.testing.assert_allclose(low.intercept_, exact.intercept_, atol=near)


@pytest.mark.parametrize("loss", ["squared", "logistic", "hinge", "squared_hinge"])
def test_full_rank_is_exact_for_labels(loss):
    X, y = labelled()
    bank, tol = kernels.per_feature("rbf"), 1e-5
    options = {"fixed": FIXED, "loss": loss, "tol": tol}
    exact = MKLClassifier(bank, **options).fit(X, y)
    low = MKLClassifier(bank, **options, **FULL).fit(X, y)
    agree(low, exact, X, tol)
    if loss != "hinge":  # of which several may be the best
        F, G = low.decision_function(X), exact.decision_function(X)
        np.testing.assert_allclose(F, G, atol=0.05)


def test_several_classes_and_weights_of_samples():
    X, y = patients()
    y = y + 2.0 * np.random.default_rng(5).standard_normal(len(y))
    classes = np.digitize(y, np.quantile(y, [0.33, 0.67]))
    weight = np.random.default_rng(1).integers(0, 3, len(y)).astype(float)
    options = {"fixed": FIXED, "loss": "logistic", "tol": 1e-5, "C": 0.3}
    exact = MKLClassifier("rbf", **options).fit(X, classes, weight)
    low = MKLClassifier("rbf", **options, **FULL).fit(X, classes, weight)
    agree(low, exact, X, 1e-5)
    assert low.fixed_effects_.shape == (3, 3)


def test_evidence_is_exact():
    X, y = patients()
    bank = kernels.per_feature("rbf")
    exact = EvidenceMKLRegressor(bank, fixed=FIXED, tol=1e-8).fit(X, y)
    low = EvidenceMKLRegressor(bank, fixed=FIXED, tol=1e-8, **FULL).fit(X, y)
    np.testing.assert_allclose(low.kernel_weights_, exact.kernel_weights_, rtol=1e-2)
    np.testing.assert_allclose(low.noise_, exact.noise_, rtol=1e-3)
    np.testing.assert_allclose(low.fixed_effects_, exact.fixed_effects_, rtol=1e-3)
    np.testing.assert_allclose(
        low.fixed_effects_std_, exact.fixed_effects_std_, rtol=1e-3
    )
    np.testing.assert_allclose(low.intercept_std_, exact.intercept_std_, rtol=1e-3)
    np.testing.assert_allclose(low.predict(X), exact.predict(X), atol=1e-3)


@pytest.mark.parametrize("ties", ["breslow", "efron"])
def test_times_to_an_event(ties):
    X, y = patients()
    time = np.ceil(np.exp(-0.5 * (y - y.mean())) * 20) / 20
    event = np.random.default_rng(2).random(len(y)) < 0.7
    target = np.column_stack([time, event])
    options = {"fixed": FIXED, "tol": 1e-6, "ties": ties}
    exact = MKLCox("rbf", **options).fit(X, target)
    low = MKLCox("rbf", **options, **FULL).fit(X, target)
    agree(low, exact, X, 1e-6)
    np.testing.assert_allclose(low.predict(X), exact.predict(X), atol=0.02)
    np.testing.assert_allclose(low.fixed_effects_, exact.fixed_effects_, atol=0.02)
    np.testing.assert_allclose(
        low.baseline_cumulative_hazard_, exact.baseline_cumulative_hazard_, rtol=0.05
    )
    options = {"fixed": FIXED, "tol": 1e-6}
    exact = MKLSurvivalSVM("rbf", **options).fit(X, target)
    low = MKLSurvivalSVM("rbf", **options, **FULL).fit(X, target)
    agree(low, exact, X, 1e-6)
    np.testing.assert_allclose(low.predict(X), exact.predict(X), atol=0.02)


def test_what_covariates_explain_does_not_matter():
    X, y = patients()
    shift = 3.0 - 0.2 * X["age"] + 5.0 * (X["site"] == "z")
    options = {"fixed": FIXED, "tol": 1e-8, "approximation": "nystroem", "rank": 10}
    model = MKLRegressor("rbf", **options).fit(X, y)
    moved = MKLRegressor("rbf", **options).fit(X, y + shift)
    np.testing.assert_allclose(moved.predict(X) - shift, model.predict(X), atol=1e-2)
    assert moved.solution_.lower <= model.solution_.upper * (1 + 1e-9)
    assert model.solution_.lower <= moved.solution_.upper * (1 + 1e-9)
    constant = MKLRegressor(
        "rbf", fixed="one", approximation="nystroem", rank=100, tol=1e-8
    )
    plain = MKLRegressor("rbf", approximation="nystroem", rank=100, tol=1e-8)
    table = X[["a", "b"]]
    constant.fit(table.assign(one=2.0), y)
    assert constant.fixed_dropped_ == ("one",)
    np.testing.assert_allclose(
        constant.predict(table.assign(one=2.0)), plain.fit(table, y).predict(table),
        atol=1e-3,
    )  # fmt: skip


def test_nothing_left_for_kernels():
    X, _ = patients()
    for model in (MKLRegressor, EvidenceMKLRegressor):
        with pytest.raises(ValueError, match="explain the target exactly"):
            model("rbf", fixed=FIXED, **FULL).fit(X, 3.0 * X["age"])


# --- blocks ---------------------------------------------------------------------------


def numbers(n=300):
    X, y = patients(n)
    table = np.column_stack(
        [X["a"], X["age"], X["b"], X["site"] == "y", 12 * X["age"] + 3]
    )
    return table.astype(float), y


@pytest.mark.parametrize("loss", ["squared", "epsilon_insensitive"])
def test_blocks_give_the_model_of_arrays(loss):
    X, y = numbers()
    options = {
        "fixed": [1, 3, 4], "loss": loss, "tol": 1e-6, "approximation": "nystroem",
        "rank": 20,
    }  # fmt: skip
    whole = MKLRegressor("rbf", **options).fit(X, y)
    parts = MKLRegressor("rbf", **options).fit(ArrayBlocks(X, y, rows=70))
    assert parts.fixed_names_ == ("column 1", "column 3")
    assert parts.fixed_dropped_ == whole.fixed_dropped_ == ("column 4",)
    size = 1e-6 * abs(whole.solution_.upper)
    assert parts.solution_.lower <= whole.solution_.upper + size
    assert whole.solution_.lower <= parts.solution_.upper + size
    np.testing.assert_allclose(parts.predict(X), whole.predict(X), atol=0.02)
    again = parts.predict(ArrayBlocks(X, rows=70))
    np.testing.assert_allclose(again, parts.predict(X), atol=1e-12)


def test_categories_in_views_of_blocks(tmp_path):
    X, y = patients(200)
    views = MultiView(
        {"main": X[["a", "b"]], "age": X[["age"]], "site": X["site"].to_numpy()}
    )
    options = {"fixed": FIXED, "approximation": "nystroem", "rank": 20, "tol": 1e-8}
    whole = EvidenceMKLRegressor("rbf", **options).fit(views, y)
    parts = EvidenceMKLRegressor("rbf", **options).fit(ArrayBlocks(views, y, rows=64))
    assert parts.fixed_names_ == ("age", "site=y", "site=z")
    np.testing.assert_allclose(parts.predict(views), whole.predict(views), atol=1e-3)
    save(parts, tmp_path / "model.mkl")
    assert np.array_equal(
        load(tmp_path / "model.mkl").predict(views), parts.predict(views)
    )


def test_blocks_that_can_be_read_once():
    X, y = numbers()
    options = {"fixed": [1, 3, 4], "loss": "squared", "tol": 1e-8, **FULL}
    whole = MKLRegressor("rbf", **options).fit(X, y)
    parts = [(X[at : at + 50], y[at : at + 50]) for at in range(0, len(y), 50)]
    once = MKLRegressor("rbf", **options).fit(part for part in parts)
    assert once.fixed_names_ == ("column 1", "column 3")
    assert once.fixed_dropped_ == whole.fixed_dropped_ == ("column 4",)
    size = 1e-6 * abs(whole.solution_.upper)
    assert once.solution_.lower <= whole.solution_.upper + size
    assert whole.solution_.lower <= once.solution_.upper + size
    np.testing.assert_allclose(once.predict(X), whole.predict(X), atol=1e-3)
    with pytest.raises(ValueError, match="several passes"):
        MKLRegressor("rbf", fixed=[1], loss="epsilon_insensitive", **FULL).fit(
            part for part in parts
        )
    with pytest.raises(ValueError, match="no such column"):
        MKLRegressor("rbf", fixed="agee", **FULL).fit(
            ArrayBlocks(pd.DataFrame(X, columns=list("abcde")), y)
        )


@pytest.mark.parametrize("kind", ["values", "labels", "evidence", "discriminant"])
def test_sums_over_samples(kind):
    X, y = numbers()
    low = {"fixed": [1, 3], "approximation": "nystroem", "rank": 20}
    y = (y > np.median(y)).astype(int) if kind in ("labels", "discriminant") else y
    model = {
        "values": MKLRegressor("rbf", loss="squared", tol=1e-8, **low),
        "labels": MKLClassifier("rbf", loss="squared", tol=1e-8, **low),
        "evidence": EvidenceMKLRegressor("rbf", tol=1e-8, **low),
        "discriminant": MKLDiscriminant("rbf", reg=0.01, **low),
    }[kind]
    sums = model.accumulator(X)
    other = sums.copy()
    sums.update(X[:80], y[:80])
    other.update(X[80:], y[80:])
    summed = clone(model).fit_statistics(sums + other)
    whole = model.fit(X, y)
    size = np.abs(whole.fixed_effects_).max()
    np.testing.assert_allclose(
        summed.fixed_effects_, whole.fixed_effects_, atol=1e-4 * size
    )
    assert np.mean(np.abs(summed.predict(X) - whole.predict(X))) < 1e-2 * np.std(y)
    with pytest.raises(ValueError, match=r"fixed=\[1, 3\], and the model has"):
        clone(model).set_params(fixed=[1]).fit_statistics(sums)
    hole = X[:5].copy()
    hole[2, 1] = np.nan
    with pytest.raises(ValueError, match=r"NaN|missing"):
        sums.update(hole, y[:5])


def test_dask():
    da = pytest.importorskip("dask.array")
    X, y = numbers()
    options = {"fixed": [1, 3], "approximation": "nystroem", "rank": 20, "tol": 1e-6}
    whole = MKLRegressor("rbf", loss="epsilon_insensitive", **options).fit(X, y)
    lazy = da.from_array(X, chunks=(100, -1))
    model = MKLRegressor("rbf", loss="epsilon_insensitive", **options)
    model.fit(lazy, da.from_array(y, chunks=100))
    size = 1e-6 * abs(whole.solution_.upper)
    assert model.solution_.lower <= whole.solution_.upper + size
    assert whole.solution_.lower <= model.solution_.upper + size
    values = model.predict(lazy).compute()
    np.testing.assert_allclose(values, model.predict(X), atol=1e-12)


def test_classes_and_times_in_blocks_and_files(tmp_path):
    X, y = numbers(150)
    frame = pd.DataFrame(X[:, :3], columns=["a", "age", "b"])
    low = {"fixed": "age", "approximation": "nystroem", "rank": 20}
    classes = (y > np.median(y)).astype(int)
    times = np.column_stack([np.exp(y / 3), np.arange(150) % 3 > 0])
    for model, target in (
        (MKLDiscriminant("rbf", reg=0.01, **low), classes),
        (MKLSurvivalSVM("rbf", **low), times),
    ):
        whole = clone(model).fit(frame, target)
        parts = clone(model).fit(ArrayBlocks(frame, target, rows=40))
        size = np.abs(whole.fixed_effects_).max()
        np.testing.assert_allclose(
            parts.fixed_effects_, whole.fixed_effects_, atol=1e-6 * size
        )
    frame.assign(y=y).to_csv(tmp_path / "t.csv", index=False)
    model = MKLRegressor("rbf", loss="squared", **low)
    read = clone(model).fit(CSVBlocks(tmp_path / "t.csv", target="y"))
    whole = model.fit(frame, y)
    np.testing.assert_allclose(read.predict(frame), whole.predict(frame), atol=1e-6)


# --- covariates that separate some of the samples -------------------------------------


def batches(kind, n=80, seed=0):
    """Return a table with categories that occur in one class only, and labels.

    The first category is the reference, whose direction is one minus all others.
    """
    rng = np.random.default_rng(seed)
    X = patient_columns(rng, n)[["a", "b", "age"]]
    y = (X["a"] + rng.standard_normal(n) > 0).to_numpy()
    site, where = rng.choice(["k", "l", "m"], n), rng.random(n)
    if kind in ("column", "several", "nested"):
        site = np.where(y & (where < 0.25), "z", site)
    if kind in ("reference", "several"):
        site = np.where(~y & (where > 0.8), "a", site)
    X = X.assign(site=site)
    if kind == "nested":
        # apart from the samples at z, which are all positive, all of p are negative
        there = (site == "z") | (~y & (where > 0.8))
        X["ward"] = np.where(there, "p", rng.choice(["q", "r"], n))
    if kind == "number":
        # ties at zero only: both classes are separated by the same number
        X["site"] = np.where(y, 1.0, -1.0) * rng.integers(0, 4, n)
    if kind == "dose":  # given to some samples of one class only
        X["site"] = np.where(y & (where < 0.5), rng.lognormal(size=n), 0.0)
    return X, np.where(y, "yes", "no")


def covariates(X):
    return [name for name in X.columns if name not in ("a", "b")]


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
@pytest.mark.parametrize(
    "kind", ["column", "reference", "several", "nested", "number", "dose"]
)
def test_samples_that_covariates_separate(kind, loss):
    X, y = batches(kind)
    for norm, C in ((1, 1.0), (4 / 3, 100.0), (2, 0.01), (np.inf, 1.0)):
        options = {"fixed": covariates(X), "loss": loss, "norm": norm, "C": C}
        options["tol"] = 1e-4
        exact = MKLClassifier(["rbf", "linear"], **options).fit(X, y)
        low = MKLClassifier(["rbf", "linear"], **options, **FULL).fit(X, y)
        agree(low, exact, X, 1e-4)
        # the bounds hold for the model itself
        (problem,) = low._posed(low._encoded(low._training(X, y, None))[0])
        assert problem.apart is not None and problem.apart.any()
        assert low.solution_.check(problem) <= 1e-4
        # separated samples are left out of the problem, but lose nothing
        (problem,) = exact._posed(exact._encoded(exact._training(X, y, None))[0])
        found, lost = exact.solution_, problem.loss
        assert not lost.C.all()
        F = problem.bank.apply(found.theta, found.A)
        every = replace(lost, C=lost.C + lost.spared, apart=None, spared=None)
        assert (every.C == C).all()
        assert every.primal(F, found.bias) == pytest.approx(lost.primal(F, found.bias))
        # and the upper bound counts them
        off = np.zeros_like(F)
        above = every.above(F, found.bias + 1.0, off)
        assert lost.above(F, found.bias + 1.0, off) == above


def test_separated_samples_and_a_conic_solution():
    cp = pytest.importorskip("cvxpy")
    X, y = batches("dose", 60)
    model = MKLClassifier(["rbf"], C=2.0, fixed=covariates(X), tol=1e-6).fit(X, y)
    (problem,) = model._posed(model._encoded(model._training(X, y, None))[0])
    values, vectors = np.linalg.eigh(problem.bank.combine(np.ones(1)))
    w = cp.Variable(len(y))
    columns = problem.loss.design.columns
    g = cp.Variable(columns.shape[1])
    f = (vectors * np.maximum(values, 0.0) ** 0.5) @ w + columns @ g
    lost = cp.sum(cp.pos(1 - cp.multiply(problem.loss.Y[:, 0], f)))
    goal = cp.Problem(cp.Minimize(2.0 * lost + 0.5 * cp.sum_squares(w)))
    goal.solve(solver="CLARABEL")
    assert model.solution_.upper == pytest.approx(goal.value, rel=1e-5)


def test_one_class_of_several_and_classes_that_are_separated_perfectly():
    X, y = batches("column", 120)
    y = np.where((y == "no") & (X["b"] > 0), "maybe", y)
    options = {"fixed": covariates(X), "tol": 1e-4}
    exact = MKLClassifier("rbf", **options).fit(X, y)
    low = MKLClassifier("rbf", **options, **FULL).fit(X, y)
    agree(low, exact, X, 1e-4)
    # a class that is separated perfectly has no loss
    whole = X.assign(site=np.where(y == "yes", "z", X["site"].replace("z", "k")))
    exact = MKLClassifier("rbf", **options).fit(whole, y)
    low = MKLClassifier("rbf", **options, **FULL).fit(whole, y)
    agree(low, exact, whole, 1e-4)
    two = np.where(y == "yes", "yes", "no")
    old = X.assign(age=X["age"] + 100 * (two == "yes"))
    for loss in ("hinge", "squared_hinge", "logistic"):
        with pytest.raises(ValueError, match="separate all classes perfectly"):
            MKLClassifier("rbf", loss=loss, fixed=covariates(X), **FULL).fit(old, two)


@pytest.mark.parametrize("loss", ["epsilon_insensitive", "squared"])
def test_a_site_with_censored_times_only(loss):
    X, y = patients()
    event = np.random.default_rng(2).random(len(y)) < 0.6
    X["site"] = np.where(~event & (X["a"] > 0), "u", X["site"])
    target = np.column_stack([np.exp(-0.5 * (y - y.mean())), event])
    options = {"fixed": FIXED, "tol": 1e-5, "loss": loss}
    exact = MKLSurvivalSVM("rbf", **options).fit(X, target)
    low = MKLSurvivalSVM("rbf", **options, **FULL).fit(X, target)
    agree(low, exact, X, 1e-5)


@pytest.mark.parametrize("order", ["mixed", "by class"])
def test_separated_samples_in_blocks(order):
    X, y = batches("several", 150, seed=3)
    sites = sorted(set(X["site"]))[1:]
    table = np.column_stack([X[["a", "b", "age"]], *(X["site"] == s for s in sites)])
    y = (y == "yes").astype(int)
    if order == "by class":  # blocks with one class are separated by the intercept
        rows = np.argsort(y, kind="stable")
        table, y = table[rows], y[rows]
    fixed = list(range(2, table.shape[1]))
    options = {"fixed": fixed, "tol": 1e-4, "approximation": "nystroem", "rank": 20}
    sources = [(table, y)]
    sources += [(ArrayBlocks(table, y, rows=rows),) for rows in (7, 64)]
    with contextlib.suppress(ImportError):
        import dask.array as da

        lazy = da.from_array(table.astype(float), chunks=(40, -1))
        sources.append((lazy, da.from_array(y, chunks=40)))
    bounds = [MKLClassifier("rbf", **options).fit(*s).solution_ for s in sources]
    for one in bounds:
        assert one.gap <= 1e-4
        assert one.lower <= min(other.upper for other in bounds) * (1 + 1e-9)


@pytest.mark.parametrize("rays", [separation._RAYS, 12])
@pytest.mark.parametrize(
    "kind", ["none", "column", "reference", "several", "nested", "number", "all"]
)
def test_cones_of_blocks_give_the_separated_samples(kind, rays, monkeypatch):
    monkeypatch.setattr(separation, "_RAYS", rays)  # few: more passes are needed
    X, y = batches(kind, 200)
    sign = np.where(y == "yes", 1.0, -1.0)[:, None]
    if kind == "all":
        X["age"] += 100 * sign[:, 0]
    C = pd.get_dummies(X[covariates(X)], drop_first=True).to_numpy(float)
    C = (C - C.mean(axis=0)) / C.std(axis=0)
    E = np.column_stack([np.ones(len(C)), C])
    # a linear program over all samples
    _, positive = separation.most_positive(sign * E)
    for rows in (200, 30, 3):
        for order in (np.arange(200), np.argsort(y, kind="stable")):
            blocks = ArrayBlocks(C[order], sign[order], rows=rows)
            found = separation.find_separation(blocks, PointwiseHinge(), C.shape[1])
            told, along = separation.separated(C, sign, found.effects)
            assert np.array_equal(told[:, 0], positive > 0.5)
            assert along.min() >= -1e-9 * np.abs(along).max(initial=1.0)
            assert found.some[0] == (kind != "none")
            assert found.perfect[0] == (kind == "all")
