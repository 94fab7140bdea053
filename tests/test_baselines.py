"""The baselines: what they reduce to, and that choosing a kernel does not peek."""

import numpy as np
import pytest
from sklearn.model_selection import KFold, StratifiedKFold, cross_val_score
from sklearn.svm import SVC

from cases import samples, stack
from mklearn import (
    AlignmentMKLClassifier,
    BestKernelClassifier,
    KernelBank,
    MKLClassifier,
    MultiView,
    UniformMKLClassifier,
    kernels,
)
from mklearn.kernels.measures import centred_products
from mklearn.kernels.normalise import fit_normaliser
from mklearn.solvers import Alternating, Newton
from mklearn.solvers.rules import alignment_weights

# the narrowest leaves scores that are well above rounding
SPECS = [kernels.RBF(1e-4), kernels.RBF(0.2), kernels.RBF(3.0)]


@pytest.mark.parametrize("normalize", [None, "trace", "multiplicative"])
def test_uniform_is_the_infinite_norm(normalize):
    X, y = samples(50, n_classes=3)
    a = UniformMKLClassifier(SPECS, normalize=normalize, C=0.5).fit(X, y)
    b = MKLClassifier(SPECS, normalize=normalize, C=0.5, norm=np.inf).fit(X, y)
    np.testing.assert_array_equal(a.kernel_weights_, np.ones(3))
    np.testing.assert_array_equal(a.decision_function(X), b.decision_function(X))


def test_uniform_is_svc_on_the_sum():
    X, y = samples(50)
    B = stack(X)
    model = UniformMKLClassifier("precomputed", normalize=None, tol=1e-9).fit(B, y)
    svc = SVC(kernel="precomputed", tol=1e-9).fit(B.sum(axis=2), y)
    np.testing.assert_allclose(
        model.decision_function(B), svc.decision_function(B.sum(axis=2)), atol=1e-3
    )


def aligned(theta, grams, L):
    """Return the centred alignment of a sum of Grams with L, by the definition."""
    P = np.eye(len(L)) - 1.0 / len(L)
    K = P @ np.tensordot(grams, theta, axes=1) @ P
    L = P @ L @ P
    return np.sum(K * L) / np.linalg.norm(K) / np.linalg.norm(L)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_no_weights_are_better_aligned(n_classes):
    X, y = samples(40, n_classes=n_classes)
    B = stack(X)
    model = AlignmentMKLClassifier("precomputed", normalize=None).fit(B, y)
    theta = model.kernel_weights_
    L = (y[:, None] == y).astype(float)
    best = aligned(theta, B, L)
    assert model.alignment_ == pytest.approx(best)
    assert np.linalg.norm(theta) == pytest.approx(1.0) and (theta >= 0).all()
    rng = np.random.default_rng(0)
    for other in rng.random((200, len(theta))) ** 3:
        assert aligned(other, B, L) <= best + 1e-12
    # nor any near by
    for step in 1e-3 * rng.normal(size=(50, len(theta))):
        assert aligned(np.maximum(theta + step, 0.0), B, L) <= best + 1e-12


def test_two_classes_may_be_signs_as_well():
    X, y = samples(40)
    bank = KernelBank(X, SPECS)
    signs = np.where(y == y[0], 1.0, -1.0)[:, None]
    ones = np.eye(2)[(signs[:, 0] > 0).astype(int)]
    (M, a), (N, b) = (centred_products(bank, Z - Z.mean(axis=0)) for Z in (signs, ones))
    np.testing.assert_allclose(M, N)
    np.testing.assert_allclose(alignment_weights(M, a), alignment_weights(N, b))


def test_the_aligned_sum_is_what_svc_gets():
    X, y = samples(50)
    model = AlignmentMKLClassifier(SPECS, normalize=None, C=2.0, tol=1e-9).fit(X, y)
    K = KernelBank(X, SPECS).combine(model.kernel_weights_)
    svc = SVC(kernel="precomputed", C=2.0, tol=1e-9).fit(K, y)
    np.testing.assert_allclose(
        model.decision_function(X), svc.decision_function(K), atol=1e-3
    )
    assert model.kernel_contributions_.sum() == pytest.approx(1.0)


def test_alignment_with_weights_is_that_of_repeated_samples():
    X, y = samples(30)
    weight = 1 + np.arange(30) % 3
    many = np.repeat(np.arange(30), weight)
    bank = KernelBank(X, SPECS)
    Z = np.eye(2)[y.astype(int) % 2] if y.dtype.kind in "iu" else np.eye(30)[:, :2]
    ours = centred_products(bank, Z, weight)
    theirs = centred_products(bank[np.ix_(many, many)], Z[many])
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b)


def test_equal_kernels_and_kernels_without_anything():
    X, y = samples(30)
    twice = AlignmentMKLClassifier([SPECS[1], SPECS[1], SPECS[2]]).fit(X, y)
    once = AlignmentMKLClassifier([SPECS[1], SPECS[2]]).fit(X, y)
    assert twice.alignment_ == pytest.approx(once.alignment_)
    np.testing.assert_allclose(alignment_weights(np.eye(4), np.zeros(4)), 0.5)


@pytest.mark.parametrize("kind", [None, "center", "spherical", "multiplicative"])
def test_a_weighted_bank_is_the_bank_times_its_weights(kind):
    X, _ = samples(20)
    bank = KernelBank(X, SPECS)
    bank = fit_normaliser(kind, bank).train(bank)
    theta = np.array([0.5, 0.0, 3.0])
    for m in range(3):
        np.testing.assert_allclose(
            bank.weighted(theta).gram(m), theta[m] * bank.gram(m), atol=1e-12
        )


@pytest.mark.parametrize("n_classes", [2, 3])
def test_best_is_the_chosen_kernel_alone(n_classes):
    X, y = samples(60, n_classes=n_classes)
    model = BestKernelClassifier(SPECS, cv=3, tol=1e-8).fit(X, y)
    assert model.best_index_ == np.argmax(model.cv_scores_)
    np.testing.assert_array_equal(model.kernel_weights_, np.eye(3)[model.best_index_])
    np.testing.assert_array_equal(model.kernel_contributions_, model.kernel_weights_)
    alone = MKLClassifier(SPECS[model.best_index_], tol=1e-8).fit(X, y)
    np.testing.assert_allclose(
        model.decision_function(X), alone.decision_function(X), atol=1e-3
    )
    assert model.duality_gap_ <= 1e-8


@pytest.mark.parametrize("normalize", [None, "multiplicative", "center"])
def test_scores_are_those_of_each_kernel_in_cross_validation(normalize):
    X, y = samples(60)
    cv = KFold(3, shuffle=True, random_state=0)
    model = BestKernelClassifier(SPECS, cv=cv, normalize=normalize, tol=1e-6).fit(X, y)
    expected = [
        cross_val_score(
            MKLClassifier(spec, normalize=normalize, tol=1e-6), X, y, cv=cv
        ).mean()
        for spec in SPECS
    ]
    np.testing.assert_allclose(model.cv_scores_, expected, atol=1e-9)


def test_folds_as_a_list_are_the_rows_of_x():
    X, y = samples(60)
    splitter = StratifiedKFold(3)
    a = BestKernelClassifier(SPECS, cv=splitter).fit(X, y)
    b = BestKernelClassifier(SPECS, cv=list(splitter.split(X, y))).fit(X, y)
    np.testing.assert_array_equal(a.cv_scores_, b.cv_scores_)


def test_data_bank_and_grams_choose_alike():
    X, y = samples(60)
    cv = list(StratifiedKFold(3).split(X, y))
    by_data = BestKernelClassifier(SPECS, cv=cv).fit(X, y)
    bank = KernelBank(X, SPECS)
    grams = np.stack([bank.gram(m) for m in range(3)], axis=2)
    for given in (bank, grams):
        model = BestKernelClassifier("precomputed", cv=cv).fit(given, y)
        np.testing.assert_allclose(model.cv_scores_, by_data.cv_scores_)
    views = MultiView({"a": X})
    by_view = BestKernelClassifier(SPECS, cv=cv).fit(views, y)
    np.testing.assert_allclose(by_view.cv_scores_, by_data.cv_scores_)


def test_jobs_do_not_change_the_choice():
    X, y = samples(60)
    one = BestKernelClassifier(SPECS, cv=2).fit(X, y)
    two = BestKernelClassifier(SPECS, cv=2, n_jobs=2).fit(X, y)
    np.testing.assert_array_equal(one.cv_scores_, two.cv_scores_)


def test_weights_are_repetitions_in_the_scores_too():
    X, y = samples(40)
    times = np.random.default_rng(0).integers(0, 3, 40)
    rows = np.repeat(np.arange(40), times)
    folds = [(np.arange(20), np.arange(20, 40))]
    repeated = [tuple(np.flatnonzero(np.isin(rows, part)) for part in folds[0])]
    a = BestKernelClassifier(SPECS, cv=folds, tol=1e-6)
    b = BestKernelClassifier(SPECS, cv=repeated, tol=1e-6)
    a.fit(X, y, sample_weight=times)
    b.fit(X[rows], y[rows])
    np.testing.assert_allclose(a.cv_scores_, b.cv_scores_, atol=1e-12)


def test_class_weights_count_in_the_scores():
    X, y = samples(60)
    names = np.array(["no", "yes"])[y]
    folds = list(StratifiedKFold(3).split(X, y))
    weight = {"no": 5.0}
    model = BestKernelClassifier(SPECS, cv=folds, class_weight=weight).fit(X, names)
    expected = [
        cross_val_score(
            MKLClassifier(spec, class_weight=weight), X, names, cv=folds
        ).mean()
        for spec in SPECS
    ]
    np.testing.assert_allclose(model.cv_scores_, expected, atol=1e-9)


def test_a_constant_kernel_is_never_the_best():
    X, y = samples(40)
    grams = np.dstack([np.ones((40, 40)), stack(X)[:, :, 1]])
    with pytest.warns(UserWarning, match="is ignored"):
        model = BestKernelClassifier("precomputed", cv=2).fit(grams, y)
    assert model.best_index_ == 1
    assert model.cv_scores_[0] == 0.0


def test_ties_go_to_the_first():
    X, y = samples(40)
    grams = np.repeat(stack(X)[:, :, [1]], 3, axis=2)
    assert BestKernelClassifier("precomputed", cv=2).fit(grams, y).best_index_ == 0


def test_small_classes_limit_the_folds():
    X, y = samples(20)
    keep = np.r_[np.flatnonzero(y == 0), np.flatnonzero(y == 1)[:2]]
    assert BestKernelClassifier(SPECS, cv=5).fit(X[keep], y[keep]).cv_scores_.any()
    with pytest.raises(ValueError, match=r"at least 2 samples.*cv="):
        BestKernelClassifier(SPECS).fit(X[keep[:-1]], y[keep[:-1]])


def test_limits_reach_the_solver():
    X, y = samples(40)
    for cls in (UniformMKLClassifier, BestKernelClassifier):
        model = cls(SPECS, tol=1e-6, max_iter=500).fit(X, y)
        assert model.duality_gap_ <= 1e-6


def test_ctrl_c_ends_the_search_for_the_best_kernel(monkeypatch):
    def interrupted(self, problem, start):
        raise KeyboardInterrupt
        yield

    for solver in (Newton, Alternating):
        monkeypatch.setattr(solver, "iterates", interrupted)
    X, y = samples(40)
    with pytest.raises(KeyboardInterrupt):
        BestKernelClassifier(cv=2).fit(X, y)
