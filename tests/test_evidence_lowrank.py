"""Evidence of features of low rank: from sums, for any number of rows."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from mklearn import EvidenceMKLRegressor, MKLRegressor, MultiView
from mklearn.blocks import ArrayBlocks, GeneratorBlocks
from mklearn.estimators._targets import Shifted
from mklearn.kernels import RBF, Linear, per_feature
from mklearn.kernels.normalise import Scaling
from mklearn.persistence import load, save
from mklearn.problems.evidence import EvidenceProblem
from mklearn.problems.pseudo_samples import Reduced
from mklearn.problems.scatter import Statistics

LOW = {"approximation": "nystroem", "rank": 20}
SPECS = [Linear(), RBF(0.5, columns=[0]), RBF(0.5, columns=[1]), RBF(0.2)]


@parametrize_with_checks([EvidenceMKLRegressor(approximation="nystroem", rank=20)])
def test_scikit_learn_conventions(estimator, check):
    check(estimator)


def samples(n=120, outputs=1, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, size=(n, 4))
    Y = np.column_stack([np.sin(X[:, 0]) + 0.3 * X[:, 1], X[:, 2] ** 2])[:, :outputs]
    Y = Y + 0.1 * rng.standard_normal(Y.shape) + 5.0
    return X, Y[:, 0] if outputs == 1 else Y


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("outputs", [1, 2])
def test_the_likelihood_of_pseudo_samples_is_that_of_all(outputs, weighted):
    # features that are exact: the same function of the weights, up to rounding
    X, y = samples(60, outputs)
    rng = np.random.default_rng(1)
    w = rng.uniform(0.2, 3.0, 60) if weighted else np.ones(60)
    model = MKLRegressor(per_feature("linear"), approximation="nystroem", rank=60)
    low = model._training(X, y, w)
    low = low.encoded(Shifted(np.zeros(1))).evidence()
    exact = MKLRegressor(per_feature("linear"))._training(X, y, w)
    exact = EvidenceProblem(exact.bank, exact.target, exact.weight)
    tol = 60 * 1e3 * np.finfo(float).eps  # n terms, whose condition is at most 1e3
    assert abs(low.nothing() - exact.nothing()) <= tol * abs(exact.nothing())
    np.testing.assert_allclose(low.variances(), exact.variances() * w.mean(), rtol=tol)
    for theta in (np.zeros(4), np.ones(4), np.array([3.0, 0.0, 0.2, 1.0])):
        one, two = low.at(theta), exact.at(theta)
        assert abs(one.value - two.value) <= tol * abs(two.value)
        np.testing.assert_allclose(one.noise, two.noise, rtol=tol)
        for mine, theirs in zip(one.model(), two.model(), strict=True):
            size = np.abs(theirs).max()
            np.testing.assert_allclose(mine, theirs, rtol=0, atol=tol * size)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("outputs", [1, 2])
def test_full_rank_is_exact(outputs, weighted):
    X, y = samples(outputs=outputs)
    n, tol = len(X), 1e-8
    w = np.random.default_rng(1).uniform(0.5, 2.0, n) if weighted else None
    exact = EvidenceMKLRegressor(SPECS, tol=tol).fit(X, y, sample_weight=w)
    low = clone(exact).set_params(approximation="nystroem", rank=n)
    low.fit(X, y, sample_weight=w)
    # what features leave out of a kernel, of trace n, moves the log evidence by at most
    # half its trace times theta, the largest weight and n: tr P dK and y'P dK P y / s
    most = 1.0 if w is None else w.max()
    left = low.approximation_error_.worst * n * exact.kernel_weights_.sum()
    bound = 2 * tol + outputs * 0.5 * n * most * left
    assert bound < 1e-4
    found = low.evidence_.evidence, exact.evidence_.evidence
    assert abs(found[0] - found[1]) <= bound
    assert abs(low.evidence_.nothing - exact.evidence_.nothing) <= 1e-9
    # the evidence is quadratic around its maximum
    near = np.sqrt(bound)
    weights = exact.kernel_weights_
    atol = near * weights.max()
    np.testing.assert_allclose(low.kernel_weights_, weights, rtol=0, atol=atol)
    np.testing.assert_allclose(low.noise_, exact.noise_, rtol=near)
    for name in ("intercept_std_", "kernel_weights_std_", "variance_explained_"):
        mine, theirs = getattr(low, name), getattr(exact, name)
        size = np.abs(theirs).max()
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=near * size)
    scale = np.abs(y - np.mean(y, axis=0)).max()
    expected = exact.predict(X)
    np.testing.assert_allclose(low.predict(X), expected, rtol=0, atol=near * scale)
    parts = low.predictor_.parts(X).sum(axis=2) + low.intercept_
    np.testing.assert_allclose(parts.reshape(y.shape), low.predict(X))
    np.testing.assert_allclose(low.kernel_contributions_.sum(), 1.0)


def test_intervals_from_sums_are_those_of_all_samples():
    X, y = samples(60)
    specs = [RBF(0.5, columns=[0]), Linear(columns=[1])]
    exact = EvidenceMKLRegressor(specs, tol=1e-6).fit(X, y)
    low = clone(exact).set_params(approximation="nystroem", rank=60).fit(X, y)
    expected = exact.profile_intervals(X, y, kernels=[1])[1]
    found = low.profile_intervals(X, y, kernels=[1])[1]
    # ends are found to 1e-4 of their size, by likelihoods that are known to 1e-4
    np.testing.assert_allclose(found, expected, rtol=1e-2)


@pytest.mark.parametrize("weights", ["shared", "per-target"])
def test_shares_are_those_of_all_samples_beside_covariates_like_a_kernel(weights):
    rng = np.random.default_rng(0)
    z = rng.standard_normal(100)
    X = np.column_stack([z + 0.3 * rng.standard_normal(100), rng.standard_normal(100)])
    X = np.column_stack([X, z])
    Y = X.sum(axis=1)[:, None] + rng.standard_normal((100, 2))
    model = EvidenceMKLRegressor(
        [Linear(columns=[0]), Linear(columns=[1])], fixed=[2], weights=weights, tol=1e-8
    ).fit(X, Y)
    low = clone(model).set_params(approximation="nystroem", rank=100).fit(X, Y)
    for name in ("variance_explained_", "variance_explained_std_"):
        mine, theirs = getattr(low, name), getattr(model, name)
        np.testing.assert_allclose(mine, theirs, rtol=1e-3)
    ask = {"target": 0} if weights == "per-target" else {}
    ends = low.profile_intervals(X, Y, **ask), model.profile_intervals(X, Y, **ask)
    np.testing.assert_allclose(*ends, rtol=0.01, atol=1e-3)


def test_rows_without_weight_are_no_rows():
    X, y = samples(outputs=2)
    w = np.arange(len(X)) % 3.0
    blocks = GeneratorBlocks(lambda: iter([(X[:50], y[:50], w[:50]),
                                           (X[50:], y[50:], w[50:])]))  # fmt: skip
    model = EvidenceMKLRegressor(SPECS, **LOW).fit(blocks)
    there = clone(model).fit(X[w > 0], y[w > 0], sample_weight=w[w > 0])
    gap = model.evidence_.nothing - there.evidence_.nothing
    assert abs(gap) <= 1e-9 * abs(there.evidence_.nothing)
    sums = Statistics.of(X, y, w) + Statistics.of(X, y, 0 * w)
    assert (sums.n, sums.n_weighted) == (2 * len(X), int((w > 0).sum()))
    assert model.evidence_.nothing < 0


def test_blocks_sums_and_arrays_agree():
    X, y = samples(300)
    model = EvidenceMKLRegressor(SPECS, tol=1e-8, **LOW)
    whole = clone(model).fit(X, y)
    sums = model.accumulator(X)
    for part in np.array_split(np.arange(300), 7):
        sums.update(X[part], y[part])
    other = sums.copy()
    found = {
        "sums": clone(model).fit_statistics(sums),
        "blocks": clone(model).fit(ArrayBlocks(X, y, rows=70)),
        "once": clone(model).fit(GeneratorBlocks(iter([(X[:99], y[:99]),
                                                       (X[99:], y[99:])]))),
    }  # fmt: skip
    for one in found.values():
        gap = one.evidence_.evidence - whole.evidence_.evidence
        # at most what tol leaves, and rounding of some hundred terms
        assert abs(gap) <= 1e-6
        np.testing.assert_allclose(one.predict(X), whole.predict(X), atol=1e-4)
    assert other.n_rows == 300


def test_dask():
    da = pytest.importorskip("dask.array")
    import dask

    X, y = samples(300)
    model = EvidenceMKLRegressor(SPECS, tol=1e-8, **LOW)
    expected = clone(model).fit(X, y).predict(X)
    rows = da.from_array(X, chunks=(100, 4))
    with dask.config.set(scheduler="synchronous"):
        model.fit(rows, da.from_array(y, chunks=100))
        np.testing.assert_allclose(model.predict(rows).compute(), expected, atol=1e-4)


def test_low_rank_models_are_saved(tmp_path):
    X, y = samples(100, 2)
    model = EvidenceMKLRegressor(SPECS, **LOW).fit(X, y)
    save(model, tmp_path / "model.mkl")
    same = load(tmp_path / "model.mkl")
    np.testing.assert_array_equal(same.predict(X), model.predict(X))
    assert same.evidence_.evidence == model.evidence_.evidence
    assert str(same.approximation_error_) == str(model.approximation_error_)


def test_views_constants_and_noise():
    X, y = samples(100)
    views = MultiView({"a": X[:, :2], "b": X[:, 2:]})
    kernels = [RBF(0.5, view="a"), RBF(0.5, view="b")]
    model = EvidenceMKLRegressor(kernels, **LOW).fit(views, y)
    assert model.kernel_weights_[0] > model.kernel_weights_[1]
    flat = EvidenceMKLRegressor(SPECS, **LOW).fit(X, np.full(100, 0.1))
    exact = EvidenceMKLRegressor(SPECS).fit(X, np.full(100, 0.1))
    np.testing.assert_allclose(flat.kernel_weights_, exact.kernel_weights_)
    np.testing.assert_allclose(flat.predict(X), 0.1)
    blocks = EvidenceMKLRegressor(SPECS, **LOW).fit(ArrayBlocks(X, np.full(100, 0.1)))
    np.testing.assert_allclose(blocks.predict(X), 0.1)
    noise = np.random.default_rng(3).standard_normal(100)
    nothing = EvidenceMKLRegressor(SPECS, **LOW).fit(X, noise)
    assert np.isfinite(nothing.predict(X)).all()


def test_a_known_case():
    # one feature z, unit weights: G = theta z z' + 1 on what is left without the mean
    z = np.array([1.0, 0.0, -1.0])
    y = np.array([2.0, 0.5, -1.0])
    statistics = Statistics.of(z[:, None], y[:, None])
    scaling = Scaling(np.ones(1), np.zeros(1), np.zeros(1))
    problem = Reduced.of(statistics, scaling, [slice(0, 1)]).evidence()
    theta = 0.7
    d = y - y.mean()
    quad = d @ d - theta * (z @ d) ** 2 / (1 + theta * z @ z)
    s = quad / 2
    value = -0.5 * (2 * (np.log(2 * np.pi * s) + 1) + np.log(1 + theta * z @ z))
    assert np.isclose(problem.at(np.array([theta])).value, value, rtol=1e-13)


def test_what_cannot_be_done_is_said():
    X, y = samples(30)
    with pytest.raises(ValueError, match="uncertainty= needs all samples"):
        EvidenceMKLRegressor(uncertainty=True, **LOW).fit(X, y)
    with pytest.raises(ValueError, match="approximation must be"):
        EvidenceMKLRegressor(approximation="pca").fit(X, y)
    with pytest.raises(ValueError, match="needs explicit features"):
        EvidenceMKLRegressor().accumulator(X)
    with pytest.raises(ValueError, match="return_std=True needs"):
        EvidenceMKLRegressor(SPECS, **LOW).fit(X, y).predict(X, return_std=True)
