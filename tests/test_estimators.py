"""The scikit-learn face: conventions, reductions, and what fitted attributes mean."""

import io
import pickle

import joblib
import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC
from sklearn.utils.estimator_checks import parametrize_with_checks

from cases import samples, squared_distances, stack
from mklearn import (
    AlignmentMKLClassifier,
    BestKernelClassifier,
    BilinearMKLClassifier,
    CrammerSingerClassifier,
    KernelBank,
    MKLClassifier,
    MKLDiscriminant,
    MKLOneClass,
    MultiView,
    SingleKernelCV,
    UniformMKLClassifier,
    kernels,
)

NORMALIZATIONS = [None, "center", "trace", "multiplicative", "spherical"]
SPECS = [kernels.Linear(), kernels.RBF(0.1), kernels.RBF(1.0)]


@parametrize_with_checks(
    [
        MKLClassifier(),
        MKLClassifier(norm=1),
        MKLClassifier(weights="per-class"),
        UniformMKLClassifier(),
        AlignmentMKLClassifier(),
        BestKernelClassifier(["linear", "rbf"], cv=2),
        BilinearMKLClassifier(),
        BilinearMKLClassifier(weights="shared"),
        CrammerSingerClassifier(),
    ]
)
def test_scikit_learn_conventions(estimator, check):
    check(estimator)


def precomputed(**settings):
    return MKLClassifier("precomputed", **{"tol": 1e-7, **settings})


def objective(model):
    return model.solution_.upper


def spec_stack(X, Z=None):
    """Return the Grams of SPECS by their formulas."""
    Z = X if Z is None else Z
    D = squared_distances(X, Z)
    return np.stack([X @ Z.T, np.exp(-0.1 * D), np.exp(-D)], axis=2)


# --- reductions -----------------------------------------------------------------------


@pytest.mark.parametrize("norm", [1, 2, np.inf])
@pytest.mark.parametrize("C", [0.1, 10.0])
def test_one_kernel_is_svc(norm, C):
    X, y = samples(60)
    Z, _ = samples(50, seed=1)
    model = MKLClassifier(kernels.RBF(0.2), C=C, norm=norm, normalize=None, tol=1e-9)
    svc = SVC(C=C, gamma=0.2, tol=1e-9).fit(X, y)
    theirs = svc.decision_function(Z)
    np.testing.assert_allclose(model.fit(X, y).decision_function(Z), theirs, atol=1e-3)
    clear = np.abs(theirs) > 1e-3
    np.testing.assert_array_equal(model.predict(Z)[clear], svc.predict(Z)[clear])
    dual = np.abs(svc.dual_coef_).sum() - 0.5 * np.sum(
        svc.dual_coef_
        @ np.exp(-0.2 * squared_distances(svc.support_vectors_))
        * svc.dual_coef_
    )
    assert model.solution_.lower == pytest.approx(dual, rel=1e-6)


def test_infinite_norm_is_svc_on_the_sum():
    X, y = samples(60)
    B, T = stack(X), stack(samples(50, seed=1)[0], Z=X)
    model = precomputed(norm=np.inf, normalize=None, C=0.5, tol=1e-9).fit(B, y)
    svc = SVC(C=0.5, kernel="precomputed", tol=1e-9).fit(B.sum(axis=2), y)
    theirs = svc.decision_function(T.sum(axis=2))
    np.testing.assert_allclose(model.decision_function(T), theirs, atol=1e-3)


@pytest.mark.parametrize("norm", [1, 2])
def test_weights_per_class_are_separate_fits(norm):
    X, y = samples(60, n_classes=3)
    B = stack(X)
    model = precomputed(norm=norm, weights="per-class").fit(B, y)
    assert model.kernel_weights_.shape == (3, 5)
    for c in range(3):
        alone = precomputed(norm=norm).fit(B, y == c)
        np.testing.assert_array_equal(model.kernel_weights_[c], alone.kernel_weights_)
        np.testing.assert_allclose(
            model.decision_function(B)[:, c], alone.decision_function(B), atol=1e-9
        )
        np.testing.assert_allclose(
            model.kernel_contributions_[c], alone.kernel_contributions_
        )


def test_two_classes_have_one_set_of_weights_either_way():
    X, y = samples(40)
    shared = MKLClassifier().fit(X, y)
    each = MKLClassifier(weights="per-class").fit(X, y)
    np.testing.assert_array_equal(shared.kernel_weights_, each.kernel_weights_)
    np.testing.assert_array_equal(
        shared.decision_function(X), each.decision_function(X)
    )


# --- weights of samples and classes ---------------------------------------------------


@pytest.mark.parametrize("normalize", NORMALIZATIONS)
@pytest.mark.parametrize("kind", ["table", "views", "grams"])
def test_weights_are_repetitions_and_zero_is_absence(normalize, kind):
    X, y = samples(40)
    times = np.random.default_rng(0).integers(0, 4, 40)
    rows = np.repeat(np.arange(40), times)
    settings = {"normalize": normalize, "tol": 1e-8, "C": 0.5}
    if kind == "grams":
        B = stack(X)
        model = precomputed(**settings).fit(B, y, sample_weight=times)
        copies = precomputed(**settings).fit(B[np.ix_(rows, rows)], y[rows])
        scores = model.decision_function(square(B))
        again = copies.decision_function(square(B)[:, rows])
    else:
        wrap = (lambda X: X) if kind == "table" else (lambda X: MultiView({"a": X}))
        given = [kernels.Linear(), kernels.RBF("median"), kernels.RBF("scale", 3.0)]
        model = MKLClassifier(given, **settings)
        model.fit(wrap(X), y, sample_weight=times)
        copies = MKLClassifier(given, **settings).fit(wrap(X[rows]), y[rows])
        scores, again = (m.decision_function(wrap(X)) for m in (model, copies))
    assert objective(model) == pytest.approx(objective(copies), rel=1e-7)
    np.testing.assert_allclose(scores, again, atol=2e-3)


def square(B):
    """Return training Grams as test Grams, with the diagonals."""
    return KernelBank.from_grams(B, row_diag=np.einsum("iim->im", B))


def test_class_weight_is_a_cost_per_class():
    X, y = samples(60, n_classes=3)
    B = stack(X)
    weight = {0: 0.3, 1: 2.0, 2: 1.0}
    a = precomputed(class_weight=weight).fit(B, y)
    cost = np.array([weight[c] for c in y])
    # sample weights also count in the statistics of a normalisation, costs do not
    b = precomputed(class_weight=weight, normalize=None).fit(B, y)
    c = precomputed(normalize=None).fit(B, y, sample_weight=cost)
    assert objective(b) == pytest.approx(objective(c), rel=1e-6)
    assert objective(a) != pytest.approx(objective(precomputed().fit(B, y)), rel=1e-3)


def test_class_weight_agrees_with_svc():
    X, y = samples(60)
    weight = {0: 0.2, 1: 3.0}
    ours = MKLClassifier(
        kernels.RBF(0.2), normalize=None, class_weight=weight, tol=1e-9
    ).fit(X, y)
    theirs = SVC(gamma=0.2, class_weight=weight, tol=1e-9).fit(X, y)
    np.testing.assert_allclose(
        ours.decision_function(X), theirs.decision_function(X), atol=1e-3
    )


def test_balanced_class_weight_is_inverse_frequency():
    X, y = samples(60, n_classes=3)
    keep = np.r_[np.flatnonzero(y == 0)[:5], np.flatnonzero(y > 0)]
    X, y = X[keep], y[keep]
    weight = {c: len(y) / (3 * (y == c).sum()) for c in range(3)}
    a = MKLClassifier(class_weight="balanced").fit(X, y)
    b = MKLClassifier(class_weight=weight).fit(X, y)
    np.testing.assert_allclose(
        a.decision_function(X), b.decision_function(X), rtol=1e-9
    )


def test_class_weight_by_string_labels():
    X, y = samples(40)
    names = np.array(["no", "yes"])[y]
    a = MKLClassifier(class_weight={"no": 2.0}).fit(X, names)
    b = MKLClassifier(class_weight={0: 2.0}).fit(X, y)
    np.testing.assert_array_equal(a.decision_function(X), b.decision_function(X))


def test_equal_samples_of_many_classes_stay_apart():
    X = np.repeat(np.eye(2), 600, axis=0)
    y = np.tile(np.arange(300), 4)
    model = MKLClassifier(kernels.Linear(), C=1e-3, tol=0.5).fit(X, y)
    assert len(model.classes_) == 300
    # nothing tells the classes apart, so each is as likely here as there
    scores = model.decision_function(np.eye(2))
    np.testing.assert_allclose(scores, scores[0, 0], atol=1e-9)


# --- invariances ----------------------------------------------------------------------


@pytest.mark.parametrize("normalize", ["trace", "multiplicative", "spherical"])
def test_normalised_kernels_know_no_scale(normalize):
    X, y = samples(40)
    B = stack(X)
    scales = np.array([1e-4, 3.0, 1.0, 1e5, 0.1])
    a = precomputed(normalize=normalize).fit(square(B), y)
    b = precomputed(normalize=normalize).fit(square(B * scales), y)
    assert objective(a) == pytest.approx(objective(b), rel=1e-6)
    np.testing.assert_allclose(a.kernel_weights_, b.kernel_weights_, atol=1e-3)
    np.testing.assert_allclose(
        a.decision_function(square(B)),
        b.decision_function(square(B * scales)),
        atol=1e-3,
    )


@pytest.mark.parametrize("norm", [1, 2])
def test_order_of_rows_does_not_matter_at_all(norm):
    X, y = samples(60, n_classes=3)
    order = np.random.default_rng(0).permutation(60)
    a = MKLClassifier(norm=norm).fit(X, y)
    b = MKLClassifier(norm=norm).fit(X[order], y[order])
    np.testing.assert_array_equal(a.decision_function(X), b.decision_function(X))
    np.testing.assert_array_equal(a.kernel_weights_, b.kernel_weights_)
    assert set(order[b.support_]) == set(a.support_)


@pytest.mark.parametrize(
    "model",
    [
        MKLClassifier(SPECS),
        MKLOneClass(SPECS, nu=0.3),
        MKLDiscriminant(SPECS),
        BilinearMKLClassifier(SPECS),
        SingleKernelCV(MKLClassifier(), SPECS[:1], values=[1.0], cv=2),
        AlignmentMKLClassifier(SPECS),
    ],
    ids=lambda model: type(model).__name__,
)
def test_support_vectors_are_in_the_order_of_the_rows(model):
    X, y = samples(60, n_classes=3)
    model = clone(model).fit(X, y)
    assert len(model.support_) > 2 and (np.diff(model.support_) > 0).all()
    # each has its own coefficients: those of the predictor, found by the row itself
    A = np.zeros((60, len(model.dual_coef_)))
    A[model.support_] = model.dual_coef_.T
    order = np.random.default_rng(0).permutation(60)
    again = clone(model).fit(X[order], y[order])
    B = np.zeros_like(A)
    B[order[again.support_]] = again.dual_coef_.T
    np.testing.assert_array_equal(A, B)


def test_order_of_grams_and_their_rows_does_not_matter():
    X, y = samples(40)
    B = stack(X)
    rng = np.random.default_rng(0)
    rows, which = rng.permutation(40), rng.permutation(5)
    a = precomputed().fit(B, y)
    b = precomputed().fit(B[np.ix_(rows, rows, which)], y[rows])
    assert objective(a) == pytest.approx(objective(b), rel=1e-6)
    np.testing.assert_allclose(a.kernel_weights_[which], b.kernel_weights_, atol=1e-3)


@pytest.mark.parametrize("normalize", NORMALIZATIONS)
@pytest.mark.parametrize("norm", [1, 2])
def test_data_bank_and_grams_are_the_same_input(normalize, norm):
    X, y = samples(40)
    Z, _ = samples(20, seed=1)
    settings = {"normalize": normalize, "norm": norm, "tol": 1e-7}
    by_data = MKLClassifier(SPECS, **settings).fit(X, y)
    bank = KernelBank(X, SPECS)
    by_bank = precomputed(**settings).fit(bank, y)
    by_array = precomputed(**settings).fit(spec_stack(X), y)
    for model in (by_bank, by_array):
        assert objective(model) == pytest.approx(objective(by_data), rel=1e-6)
        np.testing.assert_allclose(
            model.kernel_weights_, by_data.kernel_weights_, atol=2e-3
        )
    expected = by_data.decision_function(Z)
    np.testing.assert_allclose(
        by_bank.decision_function(bank.cross(Z)), expected, atol=2e-3
    )
    diagonals = np.einsum("iim->im", spec_stack(Z))
    cross = KernelBank.from_grams(spec_stack(Z, X), row_diag=diagonals)
    np.testing.assert_allclose(by_array.decision_function(cross), expected, atol=2e-3)


@pytest.mark.parametrize("limit", [200_000, 2_000_000])
def test_memory_limit_does_not_change_the_model(limit):
    X, y = samples(200)
    free = MKLClassifier(tol=1e-6).fit(X, y)
    bounded = MKLClassifier(tol=1e-6, memory_limit=limit).fit(X, y)
    assert objective(bounded) == pytest.approx(objective(free), rel=1e-5)
    np.testing.assert_allclose(
        bounded.decision_function(X), free.decision_function(X), atol=1e-2
    )


def test_single_precision_and_memory_mapped_grams(tmp_path):
    X, y = samples(60)
    B = stack(X)
    a = precomputed(tol=1e-6).fit(B, y)
    b = precomputed(tol=1e-6).fit(B.astype(np.float32), y)
    np.save(tmp_path / "grams.npy", B)
    c = precomputed(tol=1e-6).fit(np.load(tmp_path / "grams.npy", mmap_mode="r"), y)
    assert objective(b) == pytest.approx(objective(a), rel=1e-5)
    assert objective(c) == objective(a)


@pytest.mark.parametrize(
    "kind", [sparse.csr_array, sparse.csc_matrix, sparse.coo_array]
)
@pytest.mark.parametrize("given", ["auto", SPECS])
def test_sparse_is_dense(kind, given):
    X, y = samples(50)
    X[np.abs(X) < 0.7] = 0.0
    dense = MKLClassifier(given, tol=1e-6).fit(X, y)
    thin = MKLClassifier(given, tol=1e-6).fit(kind(X), y)
    assert objective(thin) == pytest.approx(objective(dense), rel=1e-5)
    np.testing.assert_allclose(
        thin.decision_function(kind(X)), dense.decision_function(X), atol=1e-2
    )


def test_input_is_not_changed():
    X, y = samples(40)
    B = stack(X)
    copies = X.copy(), B.copy(), y.copy()
    MKLClassifier().fit(X, y).predict(X)
    precomputed(normalize="center").fit(B, y).predict(B)
    for now, before in zip((X, B, y), copies, strict=True):
        np.testing.assert_array_equal(now, before)


def test_a_second_fit_forgets_the_first():
    X, y = samples(60, n_classes=3)
    model = MKLClassifier(weights="per-class").fit(X, y)
    model.set_params(weights="shared", kernels=SPECS).fit(X[:40, :2], y[:40] > 0)
    fresh = MKLClassifier(SPECS).fit(X[:40, :2], y[:40] > 0)
    np.testing.assert_array_equal(
        model.decision_function(X[:, :2]), fresh.decision_function(X[:, :2])
    )
    assert model.kernel_weights_.shape == (3,)


# --- what the fitted attributes mean --------------------------------------------------


def normalised(B, T, diagonals, kind):
    """Return training and test Grams normalised by the definitions."""
    n = len(B)
    if kind is None:
        return B, T
    if kind == "trace":
        scale = np.trace(B)
        return B / scale, T / scale
    if kind == "multiplicative":
        scale = np.trace(B) / n - B.mean(axis=(0, 1))
        return B / scale, T / scale
    if kind == "spherical":
        d = np.einsum("iim->im", B)
        return (
            B / np.sqrt(d[:, None, :] * d[None, :, :]),
            T / np.sqrt(diagonals[:, None, :] * d[None, :, :]),
        )
    column, mean = B.mean(axis=0), B.mean(axis=(0, 1))
    return (
        B - column[:, None, :] - column[None, :, :] + mean,
        T - T.mean(axis=1)[:, None, :] - column[None, :, :] + mean,
    )


@pytest.mark.parametrize("normalize", NORMALIZATIONS)
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("weights", ["shared", "per-class"])
def test_decisions_by_hand(normalize, n_classes, weights):
    X, y = samples(60, n_classes=n_classes)
    Z, _ = samples(20, seed=1)
    model = MKLClassifier(SPECS, normalize=normalize, weights=weights).fit(X, y)
    diagonals = np.einsum("iim->im", spec_stack(Z))
    _, T = normalised(spec_stack(X), spec_stack(Z, X), diagonals, normalize)
    by_task = np.atleast_2d(model.kernel_weights_)
    expected = np.column_stack(
        [
            T[:, model.support_] @ by_task[t if len(by_task) > 1 else 0] @ coefficients
            for t, coefficients in enumerate(model.dual_coef_)
        ]
    )
    expected += model.intercept_
    scores = model.decision_function(Z)
    np.testing.assert_allclose(scores, expected if n_classes > 2 else expected[:, 0])
    labels = expected.argmax(axis=1) if n_classes > 2 else expected[:, 0] > 0
    np.testing.assert_array_equal(model.predict(Z), model.classes_[labels.astype(int)])


@pytest.mark.parametrize("normalize", NORMALIZATIONS)
def test_objective_by_hand(normalize):
    X, y = samples(40)
    model = MKLClassifier(SPECS, normalize=normalize, C=0.7, norm=2, tol=1e-5)
    model.fit(X, y)
    B, _ = normalised(spec_stack(X), spec_stack(X), np.ones((40, 3)), normalize)
    sign = np.where(y == 1, 1.0, -1.0)
    K = B @ model.kernel_weights_
    c = np.zeros(40)
    c[model.support_] = model.dual_coef_[0]
    f = K @ c + model.intercept_
    value = 0.7 * np.maximum(0, 1 - sign * f).sum() + 0.5 * c @ K @ c
    assert objective(model) == pytest.approx(value)
    assert model.duality_gap_ == model.solution_.gap <= 1e-5
    assert model.n_iter_ == model.solution_.n_iter
    # the norm of w in each kernel: theta_m c'K_m c, as shares
    share = model.kernel_weights_ * np.einsum("i,ijm,j->m", c, B, c)
    np.testing.assert_allclose(model.kernel_contributions_, share / share.sum())


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("weights", ["shared", "per-class"])
def test_shapes(n_classes, weights):
    X, y = samples(60, n_classes=n_classes)
    model = MKLClassifier(SPECS, weights=weights).fit(X, y)
    tasks = 1 if n_classes == 2 else n_classes
    per_class = weights == "per-class" and n_classes > 2
    assert model.kernel_weights_.shape == ((tasks, 3) if per_class else (3,))
    assert model.kernel_contributions_.shape == model.kernel_weights_.shape
    assert model.dual_coef_.shape == (tasks, len(model.support_))
    assert model.intercept_.shape == (tasks,)
    scores = model.decision_function(X[:7])
    assert scores.shape == ((7,) if n_classes == 2 else (7, n_classes))
    assert model.predict(X[:7]).shape == (7,)
    assert model.n_features_in_ == 5
    assert model.kernel_names_ == ("linear", "rbf(gamma=0.1)", "rbf(gamma=1)")


@pytest.mark.parametrize("norm", [1, 2, np.inf])
@pytest.mark.parametrize("weights", ["shared", "per-class"])
def test_contributions_are_shares(norm, weights):
    X, y = samples(60, n_classes=3)
    model = MKLClassifier(norm=norm, weights=weights).fit(X, y)
    share = np.atleast_2d(model.kernel_contributions_)
    assert (share >= 0).all()
    np.testing.assert_allclose(share.sum(axis=1), 1.0)


def test_contributions_know_no_scale():
    X, y = samples(40)
    B = stack(X)
    scales = np.array([1e-3, 7.0, 1.0, 40.0, 0.1])
    a = precomputed(normalize="trace").fit(B, y)
    b = precomputed(normalize="trace").fit(B * scales, y)
    np.testing.assert_allclose(
        a.kernel_contributions_, b.kernel_contributions_, atol=1e-3
    )


def test_string_labels():
    X, y = samples(60, n_classes=3)
    names = np.array(["ash", "birch", "oak"])[y]
    model, numbered = MKLClassifier().fit(X, names), MKLClassifier().fit(X, y)
    assert model.classes_.tolist() == ["ash", "birch", "oak"]
    np.testing.assert_array_equal(
        model.predict(X), np.array(["ash", "birch", "oak"])[numbered.predict(X)]
    )
    np.testing.assert_array_equal(
        MKLClassifier().fit(X, names.astype(object)).predict(X), model.predict(X)
    )


class Counting:
    """A linear kernel on some columns that counts what it is asked for."""

    def __init__(self, columns):
        self.columns = columns
        self.asked = []

    __name__ = "counting"

    def __call__(self, a, b):
        self.asked.append((len(a), len(b)))
        return a[:, self.columns] @ b[:, self.columns].T


def test_prediction_evaluates_kernels_with_weight_on_support_vectors():
    X, y = samples(80)
    X[:, 4] = np.random.default_rng(3).normal(size=80)
    good, bad = Counting([0, 1]), Counting([4])
    model = MKLClassifier([good, bad], norm=1, C=0.1, tol=1e-6).fit(X, y)
    assert model.kernel_weights_[1] == 0.0
    assert 0 < len(model.support_) < 80
    good.asked.clear()
    bad.asked.clear()
    model.predict(X[:30])
    assert bad.asked == []
    assert sum(a * b for a, b in good.asked) == 30 * len(model.support_)


def test_limits_and_callbacks_reach_the_solver(capsys):
    X, y = samples(60)
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        model = MKLClassifier(tol=1e-12, max_iter=2).fit(X, y)
    assert model.n_iter_ == 2 and model.duality_gap_ > 1e-12
    with pytest.warns(ConvergenceWarning, match="time_limit"):
        MKLClassifier(tol=1e-12, time_limit=1e-9).fit(X, y).predict(X)
    with pytest.warns(ConvergenceWarning, match="callback"):
        model = MKLClassifier(tol=1e-12, callback=lambda h: len(h) >= 3).fit(X, y)
    assert model.n_iter_ == 3
    assert capsys.readouterr().err == ""
    MKLClassifier(verbose=2).fit(X, y)
    assert "gap" in capsys.readouterr().err


def test_interrupted_fit_leaves_a_model():
    X, y = samples(60)

    def interrupt(history):
        raise KeyboardInterrupt

    with pytest.warns(ConvergenceWarning, match="interrupted"):
        model = MKLClassifier(tol=1e-9, callback=interrupt).fit(X, y)
    assert model.predict(X).shape == (60,)


# --- travelling -----------------------------------------------------------------------


MODELS = [
    MKLClassifier(),
    MKLClassifier(SPECS, normalize="center", norm=1),
    MKLClassifier(SPECS, normalize="spherical", weights="per-class"),
    UniformMKLClassifier(kernels.per_feature(kernels.RBF())),
    BestKernelClassifier(SPECS, cv=2),
]


@pytest.mark.parametrize("model", MODELS, ids=lambda m: str(m).split("\n")[0])
def test_pickle_and_joblib(model, tmp_path):
    X, y = samples(60, n_classes=3)
    model = clone(model).fit(X, y)
    expected = model.decision_function(X)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.decision_function(X), expected)
    joblib.dump(model, tmp_path / "model.joblib")
    loaded = joblib.load(tmp_path / "model.joblib")
    np.testing.assert_array_equal(loaded.decision_function(X), expected)


def test_a_pickled_model_does_not_carry_its_grams():
    X, y = samples(400)
    model = MKLClassifier(SPECS, C=100.0).fit(X, y)
    buffer = io.BytesIO()
    pickle.dump(model, buffer)
    assert buffer.tell() < 8 * 400 * 400


@pytest.mark.parametrize("model", MODELS, ids=lambda m: str(m).split("\n")[0])
def test_clone_keeps_parameters_and_forgets_the_fit(model):
    X, y = samples(40)
    fitted = clone(model).fit(X, y)
    copy = clone(fitted)
    assert not hasattr(copy, "classes_")
    np.testing.assert_array_equal(
        copy.fit(X, y).decision_function(X), fitted.decision_function(X)
    )


# --- frames and views -----------------------------------------------------------------


def frame(X):
    pd = pytest.importorskip("pandas")
    return pd.DataFrame(X, columns=[f"f{j}" for j in range(X.shape[1])])


def test_frames_and_named_columns():
    X, y = samples(40)
    by_name = [kernels.Linear(columns="f0"), kernels.RBF(0.5, columns=["f1", "f4"])]
    by_number = [kernels.Linear(columns=0), kernels.RBF(0.5, columns=[1, 4])]
    a = MKLClassifier(by_name).fit(frame(X), y)
    b = MKLClassifier(by_number).fit(X, y)
    assert a.feature_names_in_.tolist() == ["f0", "f1", "f2", "f3", "f4"]
    np.testing.assert_array_equal(a.decision_function(frame(X)), b.decision_function(X))
    with pytest.raises(ValueError, match="feature names should match"):
        a.predict(frame(X).rename(columns={"f0": "zero"}))
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        a.predict(X)


def test_weights_frame():
    pytest.importorskip("pandas")
    X, y = samples(60, n_classes=3)
    table = MKLClassifier(SPECS).fit(X, y).weights_frame()
    assert table["kernel"].tolist() == ["linear", "rbf(gamma=0.1)", "rbf(gamma=1)"]
    assert table["parameters"][1]["gamma"] == 0.1
    assert table["contribution"].sum() == pytest.approx(1.0)
    model = MKLClassifier(SPECS, weights="per-class").fit(
        X, np.array(["a", "b", "c"])[y]
    )
    table = model.weights_frame()
    for c, name in enumerate("abc"):
        np.testing.assert_array_equal(table[f"weight_{name}"], model.kernel_weights_[c])
        assert table[f"contribution_{name}"].sum() == pytest.approx(1.0)
    given = MKLClassifier("precomputed").fit(stack(X), y).weights_frame()
    assert given["kernel"].tolist() == ["K0", "K1", "K2", "K3", "K4"]


def test_views_are_blocks_of_columns():
    X, y = samples(50)
    views = MultiView({"a": X[:, :2], "b": X[:, 2:]})
    by_view = [kernels.RBF(0.3, view="a"), kernels.Linear(view="b")]
    by_columns = [kernels.RBF(0.3, columns=[0, 1]), kernels.Linear(columns=[2, 3, 4])]
    a = MKLClassifier(by_view, tol=1e-7).fit(views, y)
    b = MKLClassifier(by_columns, tol=1e-7).fit(X, y)
    assert objective(a) == pytest.approx(objective(b), rel=1e-6)
    np.testing.assert_allclose(
        a.decision_function(views), b.decision_function(X), atol=2e-3
    )


def test_views_of_strings():
    rng = np.random.default_rng(0)
    y = np.arange(60) % 2
    letters = np.array([list("AACG"), list("CGTT")])
    words = ["".join(rng.choice(letters[c], 12)) for c in y]
    data = MultiView({"seq": words, "noise": rng.normal(size=(60, 3))})
    train, test = np.arange(40), np.arange(40, 60)
    for given in ("auto", [kernels.Spectrum(2, view="seq"), kernels.RBF(view="noise")]):
        model = MKLClassifier(given, norm=1).fit(data[train], y[train])
        assert model.score(data[test], y[test]) > 0.9
        share = dict(zip(model.kernel_names_, model.kernel_contributions_, strict=True))
        assert sum(v for k, v in share.items() if k.startswith("seq:")) > 0.8


def test_a_list_of_grams_and_one_gram():
    X, y = samples(40)
    B = stack(X)
    a = precomputed().fit([B[:, :, m] for m in range(5)], y)
    b = precomputed().fit(B, y)
    assert objective(a) == pytest.approx(objective(b), rel=1e-6)
    one = precomputed(normalize=None).fit(B[:, :, 1], y)
    np.testing.assert_array_equal(one.kernel_weights_, [1.0])
    np.testing.assert_array_equal(
        one.predict(B[:7, :, 1]),
        precomputed(normalize=None).fit(B[:, :, [1]], y).predict(B[:7, :, [1]]),
    )
