"""Variance components and fixed effects beside those of statsmodels."""

import warnings

import numpy as np
import pytest

from mklearn import EvidenceMKLRegressor, KernelBank, MultiView, kernels
from mklearn.problems.evidence import EvidenceProblem

pd = pytest.importorskip("pandas")


@pytest.fixture(scope="module")
def crossed():
    """Values with two crossed random effects and two covariates."""
    rng = np.random.default_rng(3)
    n, a, b = 180, rng.integers(12, size=180), rng.integers(15, size=180)
    age, sex = rng.uniform(20, 70, n), rng.integers(2, size=n)
    table = pd.DataFrame({"age": age, "sex": sex})
    y = 0.05 * table["age"] - 0.7 * table["sex"] + rng.standard_normal(n)
    y = y + rng.standard_normal(12)[a] + 0.7 * rng.standard_normal(15)[b]
    return a, b, table, np.asarray(y)


@pytest.fixture(scope="module")
def theirs(crossed):
    mixed_lm = pytest.importorskip("statsmodels.api").MixedLM
    a, b, table, y = crossed
    frame = table.assign(y=y, a=a, b=b)
    model = mixed_lm.from_formula(
        "y ~ age + sex", groups=np.ones(len(y)), re_formula="0",
        vc_formula={"a": "0 + C(a)", "b": "0 + C(b)"}, data=frame,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(reml=True, method=["lbfgs", "bfgs"], gtol=1e-9)


@pytest.fixture(scope="module")
def ours(crossed):
    a, b, table, y = crossed
    X = MultiView(
        {
            "a": (a[:, None] == np.arange(12)).astype(float),
            "b": (b[:, None] == np.arange(15)).astype(float),
            "who": table,
        }
    )
    family = [kernels.Linear(view="a"), kernels.Linear(view="b")]
    model = EvidenceMKLRegressor(family, fixed="who", normalize=None, tol=1e-10)
    return model.fit(X, y)


def test_weights_and_noise_are_those_of_mixed_models(ours, theirs):
    # both stop where the likelihood is flat: half the digits of their tolerances
    assert ours.noise_[0] == pytest.approx(theirs.scale, rel=1e-4)
    found = ours.kernel_weights_ * ours.noise_[0]
    assert found == pytest.approx(theirs.vcomp, rel=1e-3)


def test_fixed_effects_are_those_of_mixed_models(ours, theirs):
    assert ours.fixed_effects_ == pytest.approx(theirs.fe_params[1:], rel=1e-3)
    assert ours.intercept_ == pytest.approx(theirs.fe_params[:1], rel=1e-3)


def test_errors_of_fixed_effects_are_those_of_least_squares(crossed, ours, theirs):
    """With the weights taken for known, ``s (Z'G^-1 Z)^-1``.

    Theirs come from one matrix of second derivatives for weights and effects, which
    differs from that by a part of the order of one over n.
    """
    a, b, table, y = crossed
    Z = np.column_stack([np.ones(len(y)), table.to_numpy(dtype=float)])
    G = np.eye(len(y)) + sum(
        w * (label[:, None] == label)
        for w, label in zip(ours.kernel_weights_, (a, b), strict=True)
    )
    inverse = np.linalg.inv(Z.T @ np.linalg.solve(G, Z))
    expected = np.sqrt(ours.noise_[0] * np.diagonal(inverse))
    found = np.concatenate([ours.intercept_std_, ours.fixed_effects_std_])
    assert found == pytest.approx(expected, rel=1e-8)
    assert found == pytest.approx(np.asarray(theirs.bse_fe), rel=2 / len(y))


def test_errors_of_weights_beside_those_of_mixed_models(crossed, ours, theirs):
    """They take the observed information, ours is the average one.

    The observed one of our likelihood, by differences, gives theirs; the average one
    differs by the spread of the second derivatives of the likelihood, of the order of
    one over the root of the number of levels.
    """
    a, b, table, y = crossed
    Z = np.column_stack([np.ones(len(y)), table.to_numpy(dtype=float)])
    grams = np.stack(
        [(label[:, None] == label).astype(float) for label in (a, b)], axis=2
    )
    problem = EvidenceProblem(
        KernelBank.from_grams(grams), y[:, None], np.ones(len(y)), Z
    )
    theta = ours.kernel_weights_
    H, h = np.empty((2, 2)), 1e-4 * theta
    for i in range(2):
        for j in range(2):
            corners = [
                s * t * problem.at(theta + s * h * np.eye(2)[i] + t * h * np.eye(2)[j])
                .value
                for s in (1, -1)
                for t in (1, -1)
            ]  # fmt: skip
            H[i, j] = -sum(corners) / (4 * h[i] * h[j])
    observed = np.sqrt(np.diagonal(np.linalg.inv(H)))
    assert observed == pytest.approx(np.asarray(theirs.bse)[-2:], rel=2e-2)
    assert ours.kernel_weights_std_ == pytest.approx(observed, rel=12**-0.5)
