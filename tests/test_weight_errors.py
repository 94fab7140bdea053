"""Standard errors and intervals of kernel weights: against their definitions."""

import numpy as np
import pytest
from scipy.linalg import null_space
from scipy.stats import chi2

from mklearn import EvidenceMKLRegressor, KernelBank, kernels
from mklearn.persistence import load, save
from mklearn.problems.evidence import AffineEvidence, EvidenceProblem


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 3))
    y = np.sin(X[:, 0]) + 0.4 * X[:, 1] + 0.6 * rng.standard_normal(80)
    return X, y


def fitted(X, y, family=None, **options):
    family = kernels.per_feature("rbf") if family is None else family
    return EvidenceMKLRegressor(family, tol=1e-8, **options).fit(X, y)


def problem_of(X, y, family=None, weight=None):
    family = kernels.per_feature("rbf") if family is None else family
    model = EvidenceMKLRegressor(family)
    training = model._grams(X, y, weight)
    return EvidenceProblem(
        training.bank, training.target - training.middle(), training.weight
    )


def test_average_information_is_its_formula(data):
    """In contrasts: ½ y'PK_aPK_bPy / s, with the noise as one more parameter."""
    X, y = data
    model = fitted(X, y)
    problem = problem_of(X, y)
    theta, s, U = model.kernel_weights_, model.noise_[0], null_space(np.ones((1, 80)))
    used = np.flatnonzero(theta)
    grams = [U.T @ problem.bank.gram(m) @ U for m in used]
    V = s * (sum(t * K for t, K in zip(theta[used], grams, strict=True)) + np.eye(79))
    b = np.linalg.solve(V, U.T @ problem.Y[:, 0])
    # derivatives of V by the weights and by s
    along = [s * K @ b for K in grams] + [V @ b / s]
    W = np.column_stack(along)
    information = 0.5 * W.T @ np.linalg.solve(V, W)
    expected = np.sqrt(np.diagonal(np.linalg.inv(information))[: len(used)])
    assert model.kernel_weights_std_[used] == pytest.approx(expected, rel=1e-6)


def test_shares_are_parts_of_the_variance_and_their_errors_the_delta_method(data):
    X, y = data
    model, problem = fitted(X, y), problem_of(X, y)
    theta, v = model.kernel_weights_, problem.variances()

    def shares(t):
        return v * t / (1.0 + v @ t)

    assert model.variance_explained_ == pytest.approx(shares(theta), rel=1e-9)
    used = np.flatnonzero(theta)
    information = problem.at(theta).model()[1][np.ix_(used, used)]
    covariance = np.linalg.inv(information)
    slopes = np.empty((3, len(used)))
    for j, m in enumerate(used):
        h = 1e-6 * theta[m]
        step = h * np.eye(3)[m]
        slopes[:, j] = (shares(theta + step) - shares(theta - step)) / (2 * h)
    every = slopes @ covariance @ slopes.T
    found = model.variance_explained_std_[used]
    assert found == pytest.approx(np.sqrt(np.diagonal(every))[used], rel=1e-5)
    total = model.weight_errors_
    assert total.explained == pytest.approx(shares(theta).sum(), rel=1e-9)
    assert total.explained_std == pytest.approx(np.sqrt(every.sum()), rel=1e-5)


def test_equal_kernels_leave_single_weights_open_and_their_sum_known(data):
    X, y = data
    same = [kernels.RBF(0.5, columns=[0]), kernels.RBF(0.5, columns=[0])]
    both, one = fitted(X, y, same), fitted(X, y, same[:1])
    assert (both.kernel_weights_ > 0).all()
    assert np.isinf(both.kernel_weights_std_).all()
    assert np.isinf(both.variance_explained_std_).all()
    found, alone = both.weight_errors_, one.weight_errors_
    assert found.explained == pytest.approx(alone.explained, rel=1e-4)
    assert found.explained_std == pytest.approx(alone.explained_std, rel=1e-3)


def test_units_of_kernels_and_values_change_no_share(data):
    X, y = data
    bank = KernelBank(X, kernels.per_feature("rbf"))
    grams = np.stack([bank.gram(m) for m in range(3)], axis=2)
    options = {"normalize": None}
    one = fitted(grams, y, "precomputed", **options)
    two = fitted(grams * np.array([10.0, 0.1, 3.0]), 5.0 * y - 2.0, "precomputed",
                 **options)  # fmt: skip
    assert two.variance_explained_ == pytest.approx(one.variance_explained_, abs=1e-3)
    used = one.kernel_weights_ > 0
    assert two.variance_explained_std_[used] == pytest.approx(
        one.variance_explained_std_[used], rel=1e-2
    )
    relative = one.kernel_weights_std_ / np.array([10.0, 0.1, 3.0])
    assert two.kernel_weights_std_[used] == pytest.approx(relative[used], rel=1e-2)


def test_weights_of_zero_have_the_error_they_would_have(data):
    X, y = data
    noise = np.random.default_rng(1).permutation(y)
    model = fitted(X, noise)
    assert (model.kernel_weights_ == 0).any()
    idle = np.flatnonzero(model.kernel_weights_ == 0)
    assert np.isfinite(model.kernel_weights_std_[idle]).all()
    assert (model.kernel_weights_std_[idle] > 0).all()


# --- profiles -------------------------------------------------------------------------


def best_with_share(problem, m, share):
    """Return the best likelihood with a given share, on a fine grid of two kernels."""
    v, other = problem.variances(), 1 - m
    ratio, values = share / (1 - share), []
    for t in np.concatenate([[0.0], np.logspace(-4, 3, 1500)]):
        theta = np.zeros(2)
        theta[other] = t
        theta[m] = ratio * (1.0 + v[other] * t) / v[m]
        values.append(problem.at(theta).value)
    return max(values)


def test_ends_of_profile_intervals_are_less_likely_by_what_they_should():
    rng = np.random.default_rng(2)
    X = rng.standard_normal((40, 2))
    y = np.sin(X[:, 0]) + 0.5 * X[:, 1] + 0.5 * rng.standard_normal(40)
    model, problem = fitted(X, y), problem_of(X, y)
    found = model.profile_intervals(X, y, level=0.9)
    drop = 0.5 * chi2.isf(0.1, 1)
    for m in range(2):
        low, high = found[m]
        assert 0 <= low < model.variance_explained_[m] < high < 1
        for end in (low, high):
            if end > 0:
                lost = model.evidence_.evidence - best_with_share(problem, m, end)
                assert lost == pytest.approx(drop, abs=2e-2)


def test_of_one_kernel_shares_and_weights_have_the_same_profile(data):
    X, y = data
    one = [kernels.RBF(0.5, columns=[0])]
    model, problem = fitted(X, y, one), problem_of(X, y, one)
    share = model.profile_intervals(X, y)
    weight = model.profile_intervals(X, y, of="weight")
    v = float(problem.variances()[0])
    assert share == pytest.approx(v * weight / (1 + v * weight), abs=1e-3)
    for end in weight[0]:
        lost = model.evidence_.evidence - problem.at(np.array([end])).value
        assert lost == pytest.approx(0.5 * chi2.isf(0.05, 1), rel=1e-2)


def test_a_restriction_is_the_evidence_of_what_it_stands_for(data):
    X, y = data
    problem = problem_of(X, y)
    offset, basis = np.array([0.3, 0.0, 0.1]), np.eye(3)[:, :2] + 0.2
    along = AffineEvidence(problem, offset, basis)
    phi = np.array([0.5, 0.7])
    found, full = along.at(phi), problem.at(offset + basis @ phi)
    assert found.value == full.value
    slopes = found.model()[0]
    for j in range(2):
        h = 1e-5 * np.eye(2)[j]
        change = along.at(phi + h).value - along.at(phi - h).value
        assert -change / 2e-5 == pytest.approx(slopes[j], rel=1e-5)


@pytest.mark.parametrize(
    "change, words",
    [
        ({"of": "variance"}, "of must be"),
        ({"level": 1.0}, "level must be"),
        ({"kernels": [3]}, "indices from 0 to 2"),
        ({"y": np.arange(80.0)}, "not the samples"),
    ],
)
def test_bad_input_of_profiles(data, change, words):
    X, y = data
    model = EvidenceMKLRegressor(kernels.per_feature("rbf")).fit(X, y)
    with pytest.raises(ValueError, match=words):
        model.profile_intervals(**{"X": X, "y": y, **change})


def test_errors_are_saved(data, tmp_path):
    X, y = data
    model = EvidenceMKLRegressor(kernels.per_feature("rbf")).fit(X, y)
    save(model, tmp_path / "model.mkl")
    again = load(tmp_path / "model.mkl")
    assert np.array_equal(again.kernel_weights_std_, model.kernel_weights_std_)
    assert np.array_equal(again.variance_explained_std_, model.variance_explained_std_)
    assert again.weight_errors_.explained_std == model.weight_errors_.explained_std


def test_profile_intervals_take_the_place_of_standard_errors():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 2))
    y = np.sin(X[:, 0]) + 0.5 * rng.normal(size=50)
    model = EvidenceMKLRegressor(kernels.per_feature("rbf")).fit(X, y)
    shares = model.profile_intervals(X, y)
    weights = model.profile_intervals(X, y, of="weight")
    frame = model.inference_frame(profile=shares)
    assert np.array_equal(frame[["share_low", "share_high"]].to_numpy(), shares)
    plain = model.inference_frame()
    assert frame["weight_high"].equals(plain["weight_high"])
    frame = model.inference_frame(profile={"share": shares, "weight": weights})
    assert np.array_equal(frame[["weight_low", "weight_high"]].to_numpy(), weights)
    for wrong in (shares[:1], {"shares": shares}):
        with pytest.raises(ValueError, match="as returned by profile_intervals"):
            model.inference_frame(profile=wrong)
