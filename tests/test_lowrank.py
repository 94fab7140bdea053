"""Low-rank kernels: features that stand for kernels, and estimators on them."""

import pickle
import tracemalloc
import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import parametrize_with_checks

from mklearn import (
    KernelBank,
    MKLClassifier,
    MKLDiscriminant,
    MKLRegressor,
    MultiView,
    kernels,
)
from mklearn.datasets import make_groups
from mklearn.kernels import Linear, rbf_ladder
from mklearn.kernels.feature_map import FeatureMap, check_rank
from mklearn.kernels.landmarks import LANDMARKS
from mklearn.persistence import load, save
from written import run_page

CLASSES = [
    MKLClassifier(approximation="nystroem", rank=6, loss="logistic"),
    MKLClassifier(approximation="rff", rank=6, loss="squared", weights="per-class"),
    MKLRegressor(approximation="nystroem", rank=20),
    MKLDiscriminant(approximation="nystroem", rank=6),
]


@parametrize_with_checks(CLASSES)
def test_scikit_learn_conventions(estimator, check):
    check(estimator)


def views(n=40, seed=0):
    rng = np.random.default_rng(seed)
    X = np.abs(rng.normal(size=(n, 4)))
    X[X < 0.5] = 0.0
    words = ["".join(rng.choice(list("ACGT"), 8)) for _ in range(n)]
    return MultiView({"sparse": sparse.csr_matrix(X), "word": words, "table": X})


EVERY = [
    kernels.RBF(view="sparse"),
    kernels.Linear(view="sparse"),
    kernels.Polynomial(3, view="sparse"),
    kernels.Cosine(view="table"),
    kernels.Laplacian(view="table"),
    kernels.Matern32(view="table"),
    kernels.Matern52(view="table", columns=[0, 2], standardize=True),
    kernels.Chi2(view="table"),
    kernels.HistogramIntersection(view="table"),
    kernels.Tanimoto(view="table"),
    kernels.Spectrum(2, view="word"),
    kernels.Spectrum(3, min_k=1, view="word"),
    kernels.WeightedDegree(3, view="word"),
]


# --- feature maps ---------------------------------------------------------------------


def test_all_samples_as_landmarks_give_the_kernels():
    data = views()
    bank = KernelBank(data, EVERY)
    features = FeatureMap.fit(data, EVERY, rank=len(data) + 10)
    Z = features.transform(data)
    assert features.names == bank.names
    for m, part in enumerate(features.slices):
        assert np.allclose(Z[:, part] @ Z[:, part].T, bank.gram(m), atol=1e-8)
    assert features.error.worst < 1e-8
    new = views(15, seed=1)
    cross = FeatureMap.fit(data, EVERY[1:4], rank=200).transform(new)
    assert len(cross) == 15


def test_explicit_features_are_exact_for_new_samples():
    data, new = views(), views(15, seed=1)
    exact = [EVERY[k] for k in (1, 2, 3, 10, 11)]
    features = FeatureMap.fit(data[:5], exact, rank=100)
    bank = KernelBank(data[:5], exact)
    A, B = features.transform(new), features.transform(data[:5])
    cross = bank.cross(new)
    for m, part in enumerate(features.slices):
        assert np.allclose(A[:, part] @ B[:, part].T, cross.gram(m))
    assert features.error.worst == 0.0


@pytest.mark.parametrize("landmarks", LANDMARKS)
def test_the_error_falls_with_the_rank_and_is_what_it_says(landmarks):
    X = np.random.default_rng(0).normal(size=(400, 3))
    specs = kernels.rbf_ladder(3)
    bank = KernelBank(X, specs)
    found = []
    for rank in (5, 20, 80):
        features = FeatureMap.fit(X, specs, rank=rank, landmarks=landmarks)
        Z = features.transform(X)
        lost = 1.0 - np.array([np.sum(Z[:, s] ** 2) for s in features.slices]) / 400
        assert np.allclose(features.error.trace, lost, rtol=0.3, atol=1e-3)
        found.append(lost)
        # what is left out of a kernel is positive semidefinite
        K = bank.gram(1)
        rest = K - Z[:, features.slices[1]] @ Z[:, features.slices[1]].T
        assert np.linalg.eigvalsh(rest)[0] > -1e-8
    assert (found[0] > found[1]).all() and (found[1] > found[2]).all()


def test_random_features_approach_their_kernels():
    X = np.random.default_rng(0).normal(size=(60, 3))
    specs = [
        kernels.RBF(0.1), kernels.RBF(0.5), kernels.Laplacian(0.2),
        kernels.Matern32(0.7), kernels.Matern52(0.7),
    ]  # fmt: skip
    bank = KernelBank(X, specs)
    errors = []
    for rank in (20, 4000):
        features = FeatureMap.fit(X, specs, approximation="rff", rank=rank)
        Z = features.transform(X)
        errors.append(
            [
                np.abs(Z[:, s] @ Z[:, s].T - bank.gram(m)).mean()
                for m, s in enumerate(features.slices)
            ]
        )
        assert np.allclose(features.error.trace, 0.0, atol=1e-12)
    assert np.max(errors[1]) < 0.03
    assert (np.array(errors[1]) < 0.4 * np.array(errors[0])).all()
    # the widths of a ladder share their frequencies
    piece = features.pieces[0][1]
    assert piece.omega.shape == (3, 2000) and len(piece.scales) == 2


def test_a_ladder_shares_its_landmarks():
    X = np.random.default_rng(0).normal(size=(200, 3))
    features = FeatureMap.fit(X, kernels.rbf_ladder(6), rank=20)
    assert len(features.pieces) == 1
    assert features.pieces[0][1].points.shape == (20, 3)
    assert len(pickle.dumps(features)) < 8 * (6 * 20 * 20 + 20 * 3) + 20_000


@pytest.mark.parametrize("approximation", ["nystroem", "rff"])
def test_an_accuracy_is_a_rank_for_each_kernel(approximation):
    X = np.random.default_rng(0).normal(size=(500, 3))
    specs = kernels.rbf_ladder(gammas=[0.01, 0.1, 0.3])
    coarse, fine = (
        FeatureMap.fit(X, specs, rank=rank, approximation=approximation)
        for rank in (0.3, 0.1)
    )
    for features, rank in ((coarse, 0.3), (fine, 0.1)):
        worst = (
            features.error.trace
            if approximation == "nystroem"
            else (features.error.frobenius)
        )
        assert worst.max() <= 1.1 * rank
    widths = [s.stop - s.start for s in fine.slices]
    assert widths[0] < widths[2] and coarse.n_features < fine.n_features


def test_an_accuracy_out_of_reach_is_told(monkeypatch):
    monkeypatch.setattr("mklearn.kernels.feature_map._MOST", 40)
    X = np.random.default_rng(0).normal(size=(300, 5))
    with pytest.warns(UserWarning, match="Nyström features, the relative error"):
        FeatureMap.fit(X, [kernels.RBF(5.0)], rank=0.01)
    with pytest.warns(UserWarning, match="Fourier features, the relative error"):
        FeatureMap.fit(X, [kernels.RBF(5.0)], rank=0.01, approximation="rff")


def test_some_kernels_of_a_map():
    data = views()
    features = FeatureMap.fit(data, EVERY, rank=10)
    Z = features.transform(data)
    some = features.select([12, 0, 6])
    part = some.transform(data)
    for k, m in enumerate((12, 0, 6)):
        assert np.allclose(part[:, some.slices[k]], Z[:, features.slices[m]])
    assert some.names == tuple(features.names[m] for m in (12, 0, 6))


def test_features_behind_a_bank():
    data = views()
    features = FeatureMap.fit(data, EVERY, rank=100)
    bank, ours = (
        KernelBank(data, EVERY),
        KernelBank.from_features(
            features.transform(data), features.slices, features.names
        ),
    )
    rng = np.random.default_rng(0)
    theta, A = rng.random(len(EVERY)), rng.normal(size=(len(data), 2))
    few = np.ix_(range(5), range(3, 10))
    assert ours.shape == bank.shape and ours.names == bank.names
    assert np.allclose(ours.combine(theta), bank.combine(theta))
    assert np.allclose(ours.multiply(A), bank.multiply(A))
    assert np.allclose(ours.quad(A), bank.quad(A))
    assert np.allclose(ours.quads(A), bank.quads(A))
    assert np.allclose(ours.diag(), bank.diag())
    assert np.allclose(ours[few].combine(theta), bank[few].combine(theta))
    with pytest.raises(ValueError, match="feature map"):
        ours.reference([0])


def test_an_indefinite_kernel_is_refused_or_clipped():
    X = np.random.default_rng(0).normal(size=(30, 2))
    strange = kernels.Function(lambda a, b: np.abs(a @ b.T) - 1.0)
    with pytest.raises(ValueError, match="positive semidefinite"):
        FeatureMap.fit(X, [strange], rank=10)
    clipped = FeatureMap.fit(X, [strange], rank=10, psd="clip")
    assert 1 <= clipped.n_features < 10


@pytest.mark.parametrize("rank", [0, -1, 1.5, "many", None, True])
def test_a_rank_that_makes_no_sense(rank):
    with pytest.raises(ValueError, match="rank must be"):
        check_rank(rank)


# --- estimators -----------------------------------------------------------------------


def bounds_agree(ours, exact, tol):
    """Each solution's objective is above the other's bound, up to ``tol``."""
    assert ours.lower <= exact.upper * (1 + tol)
    assert exact.lower <= ours.upper * (1 + tol)


@pytest.mark.parametrize("p", [1, 4 / 3, 2])
def test_full_rank_is_the_exact_method(p):
    X, y = load_breast_cancer(return_X_y=True)
    X, y = X[:60], y[:60]
    exact = MKLClassifier(loss="squared", norm=p, tol=1e-9).fit(X, y)
    ours = clone(exact).set_params(approximation="nystroem").fit(X, y)
    assert np.isclose(ours.solution_.upper, exact.solution_.upper, rtol=1e-6)
    assert np.allclose(ours.kernel_weights_, exact.kernel_weights_, atol=1e-6)
    scores = exact.decision_function(X)
    assert np.allclose(ours.decision_function(X), scores, atol=1e-6)
    assert np.allclose(
        ours.kernel_contributions_, exact.kernel_contributions_, atol=1e-6
    )
    assert ours.approximation_error_.worst < 1e-6
    parts = ours.predictor_.parts(X).sum(axis=2) + ours.intercept_
    assert np.allclose(parts, ours._scores(X))


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge", "logistic"])
@pytest.mark.parametrize("weights", ["shared", "per-class"])
def test_full_rank_of_other_losses(loss, weights):
    X, y = load_iris(return_X_y=True)
    X, y = X[::3], y[::3]
    settings = {
        "kernels": kernels.rbf_ladder(3), "loss": loss, "weights": weights,
        "class_weight": {0: 2.0}, "tol": 1e-5,
    }  # fmt: skip
    exact = MKLClassifier(**settings).fit(X, y)
    ours = MKLClassifier(**settings, approximation="nystroem").fit(X, y)
    for a, b in zip(
        np.atleast_1d(ours.solution_), np.atleast_1d(exact.solution_), strict=True
    ):
        bounds_agree(a, b, 1e-9)
    assert ours.duality_gap_ <= 1e-5
    assert np.allclose(ours.kernel_weights_, exact.kernel_weights_, atol=5e-3)
    assert (ours.predict(X) == exact.predict(X)).mean() > 0.97


def test_full_rank_regression():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 3))
    Y = np.column_stack([np.sin(X[:, 0]), X[:, 1] ** 2]) + 5.0
    w = rng.random(50) + 0.1
    exact = MKLRegressor(tol=1e-9).fit(X, Y, sample_weight=w)
    ours = MKLRegressor(tol=1e-9, approximation="nystroem").fit(X, Y, sample_weight=w)
    assert np.allclose(ours.predict(X), exact.predict(X), atol=1e-6)
    tube = {"loss": "epsilon_insensitive", "tol": 1e-5, "C": 3.0}
    exact = MKLRegressor(**tube).fit(X, Y[:, 0])
    ours = MKLRegressor(**tube, approximation="nystroem").fit(X, Y[:, 0])
    bounds_agree(ours.solution_, exact.solution_, 1e-9)
    assert np.allclose(ours.predict(X), exact.predict(X), atol=2e-2)


def some_wine(kind):
    """Return samples, targets of a kind, and weights."""
    X, y = load_wine(return_X_y=True)
    X, y = X[::3], y[::3]
    if kind == "two":
        X, y = X[y < 2], y[y < 2]
    if kind == "labels":
        y = np.column_stack([y == 0, X[:, 0] > 13]).astype(int)
    return X, y, np.random.default_rng(0).random(len(X)) + 0.5


@pytest.mark.parametrize(
    "settings",
    [
        {}, {"reg": "learn"}, {"norm": 2, "priors": "empirical"},
        {"reg": "gcv", "regs": [1e-4, 1e-2]}, {"reg": "loo", "regs": [1e-4, 1e-2]},
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("kind", ["two", "three", "labels"])
def test_full_rank_discriminant(settings, kind):
    X, y, w = some_wine(kind)
    exact = MKLDiscriminant(tol=1e-10, **settings).fit(X, y, sample_weight=w)
    ours = clone(exact).set_params(approximation="nystroem")
    ours.fit(X, y, sample_weight=w)
    assert np.isclose(ours.objective_, exact.objective_, rtol=1e-6)
    assert np.isclose(ours.reg_, exact.reg_, rtol=1e-6)
    for name in ("kernel_weights_", "explained_ratio_"):
        assert np.allclose(getattr(ours, name), getattr(exact, name), atol=1e-6)
    if exact.reg_ > 1e-8:  # without any, scores have no scale of their own
        # Left-out scores are divided by one minus the leverage, and the likelihood is
        # flat around its best factor: a thousandth is rounding here, while the
        # probabilities below agree to many more digits.
        assert np.allclose(ours.temperature_, exact.temperature_, rtol=1e-2)
    assert np.allclose(ours.predict_proba(X), exact.predict_proba(X), atol=1e-6)
    assert np.allclose(np.abs(ours.transform(X)), np.abs(exact.transform(X)), atol=1e-6)
    if "regs" in settings:
        assert np.allclose(ours.loo_, exact.loo_) and np.allclose(ours.gcv_, exact.gcv_)


def learned_regulariser(X, y, w=None):
    """Return the solution for a regulariser of about 1e-7, which is learned."""
    model = MKLDiscriminant(reg="learn", approximation="nystroem", tol=1e-10)
    with warnings.catch_warnings():
        # rounding, different on each processor, stops a few of these fits above tol
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(X, y, sample_weight=w).solution_


@pytest.mark.parametrize("kind", ["two", "three", "labels"])
def test_a_small_learned_regulariser_is_found(kind):
    X, y, _ = some_wine(kind)
    found = [
        learned_regulariser(X, y, np.random.default_rng(seed).random(len(X)) + 0.5)
        for seed in (0, 4, 10, 14, 15)
    ]
    assert max(one.gap for one in found) <= 1e-6
    assert sum(one.gap <= 1e-10 and one.n_iter < 60 for one in found) >= 4


def test_a_small_learned_regulariser_is_not_set_to_zero():
    X, y = load_wine(return_X_y=True)
    for seed in (3, 16):
        at = np.random.default_rng(seed).permutation(len(X))[:90]
        assert learned_regulariser(X[at], y[at]).gap <= 1e-6


def test_a_path_in_feature_space():
    X, y = load_wine(return_X_y=True)
    X, y = X[::3], y[::3]
    regs = [1e-3, 1e-1]
    exact = MKLDiscriminant().reg_path(X, y, regs)
    ours = MKLDiscriminant(approximation="nystroem").reg_path(X, y, regs)
    for a, b in zip(ours, exact, strict=True):
        assert np.allclose(a.predict_proba(X), b.predict_proba(X), atol=1e-5)
        assert a.reg_ == b.reg_


def test_features_may_not_fit_into_memory():
    X, y = load_iris(return_X_y=True)
    settings = {"approximation": "nystroem", "rank": 10, "loss": "logistic"}
    kept = MKLClassifier(**settings).fit(X, y)
    again = MKLClassifier(**settings, memory_limit=1).fit(X, y)
    assert np.allclose(kept.decision_function(X), again.decision_function(X))


def test_sparse_and_views():
    data = views()
    y = np.arange(len(data)) % 2
    model = MKLClassifier(EVERY, approximation="nystroem", rank=15, loss="squared")
    model.fit(data, y)
    assert model.decision_function(data[:7]).shape == (7,)
    assert len(model.kernel_weights_) == len(EVERY)
    X = data["table"]
    dense = MKLClassifier(kernels.RBF(0.3), approximation="nystroem", rank=15)
    a = clone(dense).fit(X, y).decision_function(X)
    b = (
        clone(dense)
        .fit(sparse.csr_matrix(X), y)
        .decision_function(sparse.csr_matrix(X))
    )
    assert np.allclose(a, b, atol=1e-2)


@pytest.mark.parametrize("estimator", CLASSES, ids=lambda e: type(e).__name__)
def test_models_can_be_saved(estimator, tmp_path):
    X, y = load_iris(return_X_y=True)
    model = clone(estimator).fit(X, y)
    save(model, tmp_path / "model.mkl")
    same = load(tmp_path / "model.mkl")
    assert np.array_equal(same.predict(X), model.predict(X))
    assert same.duality_gap_ == model.duality_gap_
    assert str(same.approximation_error_) == str(model.approximation_error_)
    assert np.array_equal(
        pickle.loads(pickle.dumps(model)).predict(X), model.predict(X)
    )


def test_what_cannot_be_done_is_said():
    X, y = load_iris(return_X_y=True)
    with pytest.raises(ValueError, match="approximation must be"):
        MKLClassifier(approximation="pca").fit(X, y)
    with pytest.raises(ValueError, match="landmarks must be"):
        MKLClassifier(approximation="nystroem", landmarks="best").fit(X, y)
    with pytest.raises(ValueError, match="rank must be"):
        MKLClassifier(approximation="nystroem", rank=0).fit(X, y)
    with pytest.raises(ValueError, match="approximation="):
        MKLClassifier("precomputed", approximation="rff").fit(np.eye(4)[:, :, None], y)
    with pytest.raises(ValueError, match="give C as a number"):
        MKLClassifier(approximation="rff", loss="squared_hinge", C="learn").fit(X, y)
    with pytest.raises(ValueError, match="criterion='rkda'"):
        MKLDiscriminant(approximation="rff", criterion="kfda").fit(X, y)
    with pytest.raises(ValueError, match="PassNewton"):
        MKLClassifier(approximation="rff", solver="newton").fit(X, y)
    with pytest.raises(ValueError, match="only one class"):
        MKLClassifier(approximation="rff").fit(X[:10], y[:10])
    with pytest.raises(ValueError, match="NaN"):
        MKLClassifier(approximation="rff").fit(X * np.nan, y)


def test_too_many_features_are_told(monkeypatch):
    free = "mklearn.estimators._training.available_memory"
    monkeypatch.setattr(free, lambda: 10_000)
    X, y = load_iris(return_X_y=True)
    with pytest.raises(ValueError, match="lower rank or fewer kernels"):
        MKLClassifier(approximation="nystroem", rank=20).fit(X, y)


@pytest.mark.parametrize("normalize", ["trace", "multiplicative"])
@pytest.mark.parametrize("C", [0.1, 1.0, 10.0])
def test_kinks_are_certified_whatever_the_scale(normalize, C):
    # kernels of trace one are small: nearly all dual variables are at their bounds,
    # and the margin is far from the samples at first
    X, y = load_breast_cancer(return_X_y=True)
    low = {"approximation": "nystroem", "rank": 30, "normalize": normalize, "C": C}
    model = MKLClassifier([Linear(), *rbf_ladder(3)], loss="hinge", **low).fit(X, y)
    assert model.duality_gap_ <= model.tol
    assert model.solution_.lower <= model.solution_.upper


@pytest.mark.parametrize("loss, rank", [("squared", 200), ("hinge", 150)])
def test_a_fit_stays_within_its_memory(loss, rank):
    X, y = make_groups(10_000, random_state=0)
    limit = 2**27
    low = {"approximation": "nystroem", "rank": rank, "memory_limit": limit}
    tracemalloc.start()
    try:
        MKLClassifier(loss=loss, tol=0.1, **low).fit(X, y)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak <= limit


def test_two_samples_are_enough():
    X, y = np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([0, 1])
    for loss in ("squared", "logistic", "squared_hinge"):
        model = MKLClassifier(kernels.RBF(1.0), approximation="nystroem", loss=loss)
        assert (model.fit(X, y).predict(X) == y).all()
    with pytest.raises(ValueError, match="n_samples=1"):
        MKLClassifier(approximation="nystroem").fit(X[:1], y[:1])


def test_the_gap_is_told_where_it_is_not_reached():
    X, y = load_iris(return_X_y=True)
    model = MKLClassifier(approximation="nystroem", rank=5, max_iter=1, tol=1e-9)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        model.fit(X, y)
    assert any(issubclass(w.category, ConvergenceWarning) for w in told)
    assert model.duality_gap_ > 1e-9 and model.n_iter_ == 1


def test_the_guide_runs():
    names = run_page("large.md")
    assert names["model"].score(names["X"], names["y"]) > 0.9
    assert len(names["models"]) == 3
