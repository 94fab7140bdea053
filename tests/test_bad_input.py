"""Bad input: each case is an error that says what to do, or the right answer."""

import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from cases import samples, stack
from mklearn import (
    BestKernelClassifier,
    KernelBank,
    MKLClassifier,
    MultiView,
    UniformMKLClassifier,
    kernels,
)

X, Y = samples(40)
Z, _ = samples(10, seed=1)
B, T = stack(X), stack(Z, Z=X)
VIEWS = MultiView({"a": X[:, :2], "b": X[:, 2:]})


def precomputed(**settings):
    return MKLClassifier("precomputed", **settings)


def spoiled(value):
    table = X.copy()
    table[3, 1] = value
    return table


def fails(match, error=ValueError):
    return pytest.raises(error, match=match)


# --- values ---------------------------------------------------------------------------


@pytest.mark.parametrize(("value", "word"), [(np.nan, "NaN"), (np.inf, "infinity")])
def test_not_finite(value, word):
    with fails(word):
        MKLClassifier().fit(spoiled(value), Y)
    with fails(word):
        MKLClassifier().fit(X, Y).predict(spoiled(value))
    with fails("NaN or infinity"):
        MultiView({"a": spoiled(value)})
    grams = B.copy()
    grams[0, 1, 2] = value
    with fails("NaN or infinity"):
        precomputed().fit(grams, Y)
    with fails("NaN or infinity"):
        precomputed().fit(B, Y).predict(grams)


def test_complex():
    with fails("Complex data not supported"):
        MKLClassifier().fit(X + 1j, Y)
    with fails("complex"):
        precomputed().fit(B + 1j, Y)


def test_text_in_a_table():
    with fails("could not convert string"):
        MKLClassifier().fit(np.full((40, 2), "a"), Y)
    with fails("real numbers"):
        precomputed().fit(B.astype(object), Y)


# --- labels ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "data"),
    [(MKLClassifier(), X), (precomputed(), B), (MKLClassifier(), VIEWS)],
    ids=["table", "grams", "views"],
)
@pytest.mark.parametrize(
    ("y", "match"),
    [
        (np.ones(40), "at least 2 classes.*one class"),
        (X[:, 0], "continuous"),
        (np.column_stack([Y, 1 - Y]), "1d array"),
        (None, "requires y to be passed"),
        (Y[:-1], "inconsistent numbers of samples.*40, 39"),
        (np.where(Y == 1, np.nan, 0.0), "NaN"),
        (np.array([None, "a"] * 20, dtype=object), "NaN|label type"),
    ],
    ids=["one class", "regression", "two columns", "none", "short", "nan", "mixed"],
)
def test_labels(model, data, y, match):
    with fails(match):
        model.fit(data, y)


@pytest.mark.parametrize("norm", [1, 2, np.inf])
def test_two_samples_are_enough(norm):
    two = np.array([[0.0, 1.0], [1.0, 0.0]])
    model = MKLClassifier(norm=norm).fit(two, ["b", "a"])
    assert model.predict(two).tolist() == ["b", "a"]
    np.testing.assert_allclose(model.decision_function(two).sum(), 0.0, atol=1e-6)


def test_contradictory_samples_get_no_decision():
    # the same rows in both classes: no function does better than zero
    twice, y = np.r_[X[:10], X[:10]], np.r_[np.zeros(10), np.ones(10)]
    model = MKLClassifier().fit(twice, y)
    np.testing.assert_allclose(model.decision_function(X), 0.0, atol=1e-9)
    assert model.solution_.upper == pytest.approx(20.0)
    assert model.kernel_contributions_.sum() == pytest.approx(1.0)


def test_some_contradictions_are_no_obstacle():
    rows = np.r_[X, X[:5]]
    model = MKLClassifier(C=1e3).fit(rows, np.r_[Y, 1 - Y[:5]])
    assert model.duality_gap_ <= 1e-3


# --- weights of samples and classes ---------------------------------------------------


@pytest.mark.parametrize(
    ("weight", "match"),
    [
        (np.ones(39), r"shape \(40,\)"),
        (np.ones((40, 1)), r"shape \(40,\)"),
        (2.0, r"shape \(40,\)"),
        (-np.ones(40), "nonnegative"),
        (np.full(40, np.nan), "finite"),
        (np.full(40, np.inf), "finite"),
        (np.zeros(40), "sample_weight are zero"),
        (1.0 * (Y == 0), r"weight zero: \[1\]"),
    ],
)
@pytest.mark.parametrize("kind", ["table", "grams"])
def test_sample_weight(weight, match, kind):
    model, data = (MKLClassifier(), X) if kind == "table" else (precomputed(), B)
    with fails(match):
        model.fit(data, Y, sample_weight=weight)


@pytest.mark.parametrize(
    ("weight", "match"),
    [
        ("heavy", "'balanced' or a dict.*heavy"),
        (3, "'balanced' or a dict"),
        ([1, 2], "'balanced' or a dict"),
        ({0: -1}, "positive numbers.*-1 for class 0"),
        ({0: 0}, "positive numbers"),
        ({0: np.nan}, "positive numbers"),
        ({0: "a"}, "positive numbers"),
        ({7: 2.0}, r"names \[7\].*classes are \[0, 1\]"),
    ],
)
@pytest.mark.parametrize("cls", [MKLClassifier, BestKernelClassifier])
def test_class_weight(weight, match, cls):
    with fails(match):
        cls(class_weight=weight).fit(X, Y)


# --- parameters -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"norm": 0.5}, "p >= 1.*not convex"),
        ({"norm": 0}, "p >= 1"),
        ({"norm": -np.inf}, "p >= 1"),
        ({"norm": np.nan}, "p >= 1"),
        ({"norm": "2"}, "norm must be a number"),
        ({"norm": None}, "norm must be a number"),
        ({"C": 0}, "C must be a positive number, got 0"),
        ({"C": -1.0}, "C must be a positive number"),
        ({"C": np.nan}, "C must be a positive number"),
        ({"C": np.inf}, "C must be a positive number"),
        ({"C": "1"}, "C must be a positive number"),
        ({"C": [1.0]}, "C must be a positive number"),
        ({"loss": "huber"}, "loss must be 'hinge'"),
        ({"weights": "own"}, "'shared' or 'per-class'"),
        ({"psd": "no"}, "'check', 'clip' or 'ignore'"),
        ({"normalize": "unit"}, "normalize must be one of"),
        ({"solver": "simplex"}, "Unknown solver 'simplex'"),
        ({"solver": 3}, "solver must be 'auto'.*got 3"),
        ({"solver": "reduced_gradient"}, "norm=1"),
        ({"tol": 0}, "tol must be a positive number"),
        ({"tol": np.nan}, "tol must be a positive number"),
        ({"max_iter": 0}, "max_iter must be at least 1"),
        ({"time_limit": 0}, "time_limit must be positive"),
        ({"time_limit": -1}, "time_limit must be positive"),
        ({"memory_limit": -1}, "memory_limit"),
        ({"kernels": []}, "list of kernels is empty"),
        ({"kernels": "wavelet"}, "Unknown kernel 'wavelet'"),
    ],
    ids=str,
)
def test_parameters(settings, match):
    with fails(match):
        MKLClassifier(**settings).fit(X, Y)


@pytest.mark.parametrize("kernel", [None, 3, kernels.RBF])
def test_not_a_kernel(kernel):
    with fails("kernel|class RBF", TypeError):
        MKLClassifier([kernel]).fit(X, Y)


def test_not_fitted():
    for cls in (MKLClassifier, UniformMKLClassifier, BestKernelClassifier):
        for method in ("predict", "decision_function"):
            with pytest.raises(NotFittedError):
                getattr(cls(), method)(X)
        with pytest.raises(NotFittedError):
            cls().weights_frame()


# --- tables and views -----------------------------------------------------------------


def test_other_columns_than_in_training():
    with fails("3 features.*expecting 5"):
        MKLClassifier().fit(X, Y).predict(X[:, :3])
    by_view = kernels.per_view(kernels.Linear())
    narrow = MultiView({"a": X[:, :1], "b": X[:, 2:]})
    with fails("'a' had 2 columns in training"):
        MKLClassifier(by_view).fit(VIEWS, Y).predict(narrow)


def test_columns_that_are_not_there():
    with fails("out of range.*5 columns"):
        MKLClassifier(kernels.Linear(columns=7)).fit(X, Y)
    with fails("no column names"):
        MKLClassifier(kernels.Linear(columns="age")).fit(X, Y)


def test_views_that_are_not_there():
    with fails(r"Unknown view 'c'.*\['a', 'b'\]"):
        MKLClassifier(kernels.Linear(view="c")).fit(VIEWS, Y)
    with fails("several views.*per_view"):
        MKLClassifier(kernels.Linear()).fit(VIEWS, Y)
    model = MKLClassifier(kernels.per_view(kernels.Linear())).fit(VIEWS, Y)
    with fails(r"lack view 'b' and have 'B' instead.*Did you mean 'b'"):
        model.predict(MultiView({"a": X[:, :2], "B": X[:, 2:]}))
    with fails("lack view 'a'"):
        model.predict(X)
    with fails("lack view 'X'"):
        MKLClassifier().fit(X, Y).predict(VIEWS)


def test_a_view_that_no_kernel_looks_at_may_be_missing():
    model = MKLClassifier(kernels.Linear(view="a")).fit(VIEWS, Y)
    part = MultiView({"a": X[:, :2]})
    np.testing.assert_array_equal(model.predict(part), model.predict(VIEWS))


def test_constant_features_say_nothing():
    constant = X.copy()
    constant[:, 2] = 5.0
    a = MKLClassifier(tol=1e-6).fit(constant, Y)
    b = MKLClassifier(tol=1e-6).fit(np.delete(constant, 2, axis=1), Y)
    assert a.solution_.upper == pytest.approx(b.solution_.upper, rel=1e-5)
    with fails("zero or constant.*nothing to learn from"):
        MKLClassifier().fit(np.ones((10, 3)), np.arange(10) % 2)
    with pytest.warns(UserWarning, match=r"1 of 5 kernels.*is ignored.*\[2\]"):
        model = MKLClassifier(kernels.per_feature(kernels.Linear())).fit(constant, Y)
    assert model.kernel_contributions_[2] == 0.0


# --- Gram matrices --------------------------------------------------------------------


def test_kernels_come_last():
    first = np.moveaxis(B, 2, 0)
    with fails(r"kernels last, got \(5, 40, 40\).*moveaxis\(B, 0, -1\)"):
        precomputed().fit(first, Y)
    model = precomputed().fit(B, Y)
    for test in (np.moveaxis(T, 2, 0), first, np.moveaxis(T[:3], 2, 0)):
        with fails(r"\(n_test, 40, 5\).*moveaxis\(B, 0, -1\)"):
            model.predict(test)
    model.predict(np.moveaxis(np.moveaxis(T, 2, 0), 0, -1))


def test_shapes_of_test_grams():
    model = precomputed().fit(B, Y)
    for test in (T[:, :5], T[:, :, :2], T[:, :, 0], B[:10, :10]):
        with fails(r"shape \(n_test, 40, 5\)") as error:
            model.predict(test)
        assert "moveaxis" not in str(error.value)


def test_shapes_of_training_grams():
    with fails(r"shape \(n, n, M\).*got \(10, 40, 5\)") as error:
        precomputed().fit(T, Y[:10])
    assert "moveaxis" not in str(error.value)
    for bad in (B[None], B[:, :, :0], B[:, 0, 0]):
        with fails("kernels last"):
            precomputed().fit(bad, Y)
    with fails("the same shape"):
        precomputed().fit([B[:, :, 0], B[:5, :5, 1]], Y)


def test_one_gram_may_be_a_matrix():
    one = precomputed().fit(B[:, :, 1], Y)
    np.testing.assert_array_equal(
        one.predict(T[:, :, 1]),
        precomputed().fit(B[:, :, [1]], Y).predict(T[:, :, [1]]),
    )


def test_grams_need_to_be_announced():
    with fails("kernels='precomputed'"):
        MKLClassifier().fit(B, Y)
    with fails("kernels='precomputed'"):
        MKLClassifier().fit(KernelBank(X, "linear"), Y)
    with fails(r"\(n, n, M\) array or a KernelBank, got csr_array"):
        precomputed().fit(sparse.csr_array(B[:, :, 0]), Y)
    with fails("got MultiView"):
        precomputed().fit(VIEWS, Y)


def test_spherical_test_grams_need_diagonals():
    model = precomputed(normalize="spherical").fit(B, Y)
    with fails("row_diag="):
        model.predict(T)
    ones = np.einsum("iim->im", stack(Z))
    assert model.predict(KernelBank.from_grams(T, row_diag=ones)).shape == (10,)
    with fails(r"row_diag must have shape \(10, 5\)"):
        KernelBank.from_grams(T, row_diag=ones[:5])


@pytest.mark.parametrize("normalize", [None, "trace", "multiplicative", "center"])
@pytest.mark.parametrize("norm", [1, 2, np.inf])
def test_a_zero_kernel_takes_no_part(normalize, norm):
    with_zero = np.dstack([B, np.zeros((40, 40))])
    model = precomputed(normalize=normalize, norm=norm, tol=1e-6)
    with pytest.warns(UserWarning, match="1 of 6 kernels.*is ignored.*K5"):
        model.fit(with_zero, Y)
    without = precomputed(normalize=normalize, norm=norm, tol=1e-6).fit(B, Y)
    assert model.solution_.upper == pytest.approx(without.solution_.upper, rel=3e-6)
    assert model.kernel_contributions_[5] == 0.0


@pytest.mark.parametrize("normalize", [None, "trace", "multiplicative", "spherical"])
def test_kernels_that_are_all_zero(normalize):
    with fails("nothing to learn from"):
        precomputed(normalize=normalize).fit(0 * B, Y)


# --- definiteness ---------------------------------------------------------------------


def indefinite():
    grams = B.copy()
    grams[:, :, 1] -= 0.05 * np.eye(40)
    return grams


def test_indefinite_kernels_are_refused():
    with fails("'K1' is not positive semidefinite.*psd='clip'.*psd='ignore'"):
        precomputed().fit(indefinite(), Y)

    def negative(a, b):
        return -(a @ b.T)

    with fails("'negative' is not positive semidefinite"):
        MKLClassifier(["linear", negative]).fit(X, Y)


def test_asymmetric_kernels_are_refused():
    with fails(r"'K0' is not symmetric.*\(K \+ K.T\) / 2"):
        precomputed().fit(B + np.triu(np.ones((40, 40)))[:, :, None], Y)


@pytest.mark.parametrize("normalize", [None, "multiplicative", "center"])
def test_clipping_is_the_projection_onto_the_positive_part(normalize):
    grams = indefinite()
    values, vectors = np.linalg.eigh(grams[:, :, 1])
    kept = vectors[:, values > 0]
    clipped, cross = grams.copy(), T.copy()
    clipped[:, :, 1] = kept * values[values > 0] @ kept.T
    cross[:, :, 1] = T[:, :, 1] @ kept @ kept.T
    settings = {"normalize": normalize, "tol": 1e-7}
    model = precomputed(psd="clip", **settings).fit(grams, Y)
    by_hand = precomputed(**settings).fit(clipped, Y)
    assert model.solution_.upper == pytest.approx(by_hand.solution_.upper, rel=1e-6)
    np.testing.assert_allclose(
        model.decision_function(T), by_hand.decision_function(cross), atol=2e-3
    )


def test_clipping_leaves_definite_kernels_alone():
    a, b = precomputed(psd="clip").fit(B, Y), precomputed().fit(B, Y)
    np.testing.assert_array_equal(a.decision_function(T), b.decision_function(T))


def test_ignoring_goes_on_with_what_there_is():
    slightly = B.copy()
    slightly[:, :, 1] -= 1e-3 * np.eye(40)
    model = precomputed(psd="ignore").fit(slightly, Y)
    assert model.predict(T).shape == (10,)


@pytest.mark.parametrize("norm", [1, 2, np.inf])
def test_ignoring_very_indefinite_kernels_still_ends(norm):
    rng = np.random.default_rng(0)
    S = rng.normal(size=(40, 40))
    model = precomputed(psd="ignore", normalize=None, norm=norm, max_iter=20)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(np.dstack([B[:, :, :1], S + S.T]), Y)
    assert np.isfinite(model.decision_function(T[:, :, :2])).all()


def test_bounds_of_indefinite_kernels_are_no_certificate():
    rng = np.random.default_rng(0)
    S = rng.normal(size=(40, 40))
    model = precomputed(psd="ignore", normalize=None, norm=np.inf, max_iter=5)
    with pytest.warns(ConvergenceWarning, match="above tol"):
        model.fit(S + S.T, Y)
    assert model.duality_gap_ > 1e-3
