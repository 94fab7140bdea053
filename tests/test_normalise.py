"""Normalisation: definitions, consistency of training and cross kernels, repairs."""

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from mklearn import MKLClassifier
from mklearn.kernels import RBF, KernelBank, Linear, Polynomial, Spectrum
from mklearn.kernels.measures import negative_values, symmetry_error
from mklearn.kernels.normalise import check_definite, fit_normaliser, look_at

rng = np.random.default_rng(0)
n = 31
X, X_NEW = (rng.normal([1.0, 0.0, -2.0], size=(size, 3)) for size in (n, 8))
KERNELS = [Linear(), RBF(0.3), Polynomial(2), lambda A, B: 2.0 * A @ B.T]
M = len(KERNELS)
KINDS = [None, "center", "trace", "multiplicative", "spherical"]


def grams(bank):
    return np.stack([bank.gram(m) for m in range(bank.shape[2])], axis=2)


# --- definitions ----------------------------------------------------------------------


def test_definitions():
    bank = KernelBank(X, KERNELS)
    K = grams(bank)

    def normalised(kind):
        return grams(fit_normaliser(kind, bank).train(bank))

    np.testing.assert_array_equal(normalised(None), K)
    centred = normalised("center")
    np.testing.assert_allclose(centred.sum(axis=0), 0.0, atol=1e-9)
    np.testing.assert_allclose(np.trace(normalised("trace")), 1.0)
    # (LPMKL 26): the variance in feature space is one
    scaled = normalised("multiplicative")
    diag = np.einsum("iim->im", scaled)
    np.testing.assert_allclose(diag.mean(axis=0) - scaled.mean(axis=(0, 1)), 1.0)
    np.testing.assert_allclose(scaled / scaled[0, 0], K / K[0, 0])
    # (LPMKL 27): all samples have length one, angles are kept
    np.testing.assert_allclose(np.einsum("iim->im", normalised("spherical")), 1.0)
    # scaling a kernel changes nothing after scaling
    for kind in ("trace", "multiplicative", "spherical"):
        np.testing.assert_allclose(normalised(kind)[:, :, 3], normalised(kind)[:, :, 0])


@pytest.mark.parametrize("kind", KINDS)
def test_cross_kernels_of_the_training_samples_are_the_training_kernels(kind):
    bank = KernelBank(X, KERNELS).stored()
    weight = rng.random(n)
    normaliser = fit_normaliser(kind, bank, weight)
    train = normaliser.train(bank)
    cross = normaliser.cross(bank.cross(X))
    np.testing.assert_allclose(grams(cross), grams(train), atol=1e-10)
    np.testing.assert_allclose(cross.diag(), train.diag(), atol=1e-10)
    chosen = normaliser.select([2, 0]).cross(bank.select([2, 0]).cross(X))
    np.testing.assert_allclose(grams(chosen), grams(train)[:, :, [2, 0]], atol=1e-10)


def features(kind, weight, Z):
    """Return the features of ``Z`` whose dot products are the normalised kernel."""
    mean = weight @ X / weight.sum()
    if kind == "center":
        return Z - mean
    if kind == "trace":
        return Z / np.sqrt(weight @ (X**2).sum(axis=1))
    if kind == "multiplicative":
        variance = weight @ ((X - mean) ** 2).sum(axis=1) / weight.sum()
        return Z / np.sqrt(variance)
    if kind == "spherical":
        return Z / np.linalg.norm(Z, axis=1, keepdims=True)
    return Z


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("weighted", [False, True])
def test_new_samples_are_those_of_the_feature_map(kind, weighted):
    bank = KernelBank(X, Linear())
    weight = rng.random(n) if weighted else np.ones(n)
    normaliser = fit_normaliser(kind, bank, weight if weighted else None)
    F, F_new = features(kind, weight, X), features(kind, weight, X_NEW)
    np.testing.assert_allclose(normaliser.train(bank).gram(0), F @ F.T, atol=1e-12)
    cross = normaliser.cross(bank.cross(X_NEW))
    np.testing.assert_allclose(cross.gram(0), F_new @ F.T, atol=1e-12)
    np.testing.assert_allclose(cross.diag()[:, 0], (F_new**2).sum(axis=1))
    # on some training samples only
    cols = np.array([4, 1, 9])
    a = np.array([[1.0], [2.0], [-3.0]])
    part = bank.reference(cols).cross(X_NEW)
    cross = normaliser.cross(part, cols, balanced=True)
    # rows are short of a constant that vanishes with coefficients that sum to zero
    np.testing.assert_allclose(cross.apply([1.0], a), F_new @ F[cols].T @ a, atol=1e-12)
    if kind == "center":
        with pytest.raises(ValueError, match="all 31 training samples, got 3"):
            normaliser.cross(part, cols)


@pytest.mark.parametrize("kind", KINDS)
def test_whole_weights_are_repeats(kind):
    weight = rng.integers(0, 4, n)
    bank = KernelBank(X, KERNELS)
    repeated = KernelBank(np.repeat(X, weight, axis=0), KERNELS)
    mine = fit_normaliser(kind, bank, weight)
    theirs = fit_normaliser(kind, repeated)
    np.testing.assert_allclose(
        grams(mine.cross(bank.cross(X_NEW))).repeat(weight, axis=1),
        grams(theirs.cross(repeated.cross(X_NEW))),
        atol=1e-10,
    )


# --- kernels without content ----------------------------------------------------------


@pytest.mark.parametrize("storage", ["float64", "float32", "recompute"])
@pytest.mark.parametrize("kind", ["center", "multiplicative"])
def test_constant_kernels_take_no_part(kind, storage):
    data = np.column_stack([X, np.full(n, 0.1)])
    kernels = [Linear(columns=[0, 1]), Linear(columns=3), RBF(1.0, columns=3)]
    bank = KernelBank(data, kernels).stored(storage=storage)
    with pytest.warns(UserWarning, match="2 of 3 kernels are zero or constant"):
        normaliser = fit_normaliser(kind, bank)
    train = normaliser.train(bank)
    np.testing.assert_array_equal(train.gram(1), 0.0)
    np.testing.assert_array_equal(train.gram(2), 0.0)
    new = np.column_stack([X_NEW, np.full(8, 5.0)])
    np.testing.assert_array_equal(normaliser.cross(bank.cross(new)).gram(1), 0.0)
    with pytest.raises(ValueError, match="Every kernel is zero or constant"):
        fit_normaliser(kind, bank.select([1, 2]))


@pytest.mark.parametrize("kind", [None, "trace", "spherical"])
def test_zero_kernels_take_no_part(kind):
    bank = KernelBank(np.column_stack([X, np.zeros(n)]), [Linear(), Linear(columns=3)])
    with pytest.warns(UserWarning, match=r"1 of 2 kernels .* is ignored"):
        normaliser = fit_normaliser(kind, bank)
    np.testing.assert_array_equal(normaliser.train(bank).gram(1), 0.0)
    with pytest.raises(ValueError, match="Every kernel is zero or constant"):
        fit_normaliser(kind, bank.select([1]))


def test_a_sample_without_length_stays_at_zero():
    data = X.copy()
    data[3] = 0.0
    bank = KernelBank(data, Linear())
    K = fit_normaliser("spherical", bank).train(bank).gram(0)
    np.testing.assert_array_equal(K[3], 0.0)
    np.testing.assert_allclose(np.delete(np.diag(K), 3), 1.0)


def test_tiny_kernels_are_not_zero():
    bank = KernelBank(1e-100 * X, Linear())
    for kind in KINDS:
        K = fit_normaliser(kind, bank).train(bank).gram(0)
        assert np.abs(K).max() > 0


def test_bad_input():
    bank = KernelBank(X, KERNELS)
    with pytest.raises(ValueError, match="normalize must be one of"):
        fit_normaliser("max", bank)
    with pytest.raises(ValueError, match="square training kernels"):
        fit_normaliser("trace", bank[:3])
    for weight in (np.ones(3), -np.ones(n), np.zeros(n)):
        with pytest.raises(ValueError, match="sample_weight"):
            fit_normaliser("center", bank, weight)
    normaliser = fit_normaliser("center", bank)
    with pytest.raises(ValueError, match="other kernels or samples"):
        normaliser.train(bank[np.ix_(range(3), range(3))])
    with pytest.raises(ValueError, match="other kernels or samples"):
        normaliser.train(bank.select([0, 1]))


# --- definiteness ---------------------------------------------------------------------


def indefinite(A, B):
    return np.tanh(A @ B.T + 1.0)


def test_definite_kernels_pass():
    bank = KernelBank(X, [*KERNELS, lambda A, B: A @ B.T])
    for psd in ("check", "clip", "ignore"):
        assert check_definite(bank, psd) is None
    assert check_definite(KernelBank.from_grams(grams(bank)), "check") is None
    assert check_definite(KernelBank(["AC", "CA"], Spectrum(1)), "check") is None


@pytest.mark.parametrize("size", [31, 510])
def test_indefinite_kernels_are_found(size):
    data = rng.normal(size=(size, 3))
    bank = KernelBank(data, [RBF(0.1), indefinite])
    for b in (bank, KernelBank.from_grams(grams(bank), bank.names)):
        with pytest.raises(ValueError, match="'indefinite' is not positive semidef"):
            check_definite(b, "check")
        assert check_definite(b, "ignore") is None
    with pytest.raises(ValueError, match="psd must be"):
        check_definite(bank, "repair")
    with pytest.raises(ValueError, match="square"):
        check_definite(bank[:3], "check")


def test_asymmetric_kernels_are_errors():
    bank = KernelBank(X, lambda A, B: A @ B.T + A[:, :1])
    for psd in ("check", "clip"):
        with pytest.raises(ValueError, match="is not symmetric"):
            check_definite(bank, psd)
    K = bank.gram(0)
    error = np.abs(K - K.T).max() / np.abs(K).max()
    assert symmetry_error(bank) == pytest.approx(error)
    assert symmetry_error(KernelBank.from_grams(np.zeros((3, 3)))) == 0.0


def spread(size, rank=8):
    """Return a kernel of low rank less a direction that all samples have a share in."""
    Z = rng.normal(size=(size, rank))
    v = rng.choice([-1.0, 1.0], size) / np.sqrt(size)
    largest = np.linalg.eigvalsh(Z.T @ Z)[-1]
    # at right angles to the features, so that v is an eigenvector
    v -= Z @ np.linalg.lstsq(Z, v, rcond=None)[0]
    v /= np.linalg.norm(v)
    return Z @ Z.T - 1.1e-3 * largest * np.outer(v, v), 1.1e-3 * largest


def on_two(size):
    """Return a kernel with a negative direction on two samples, of unequal scale."""
    Z = rng.normal(size=(size, 20)) / np.sqrt(size)
    K = Z @ Z.T + np.eye(size)
    largest = np.linalg.norm(Z, 2) ** 2 + 1.0
    i, j = size // 3, size - 2
    K[i], K[:, i], K[j], K[:, j] = 0.0, 0.0, 0.0, 0.0
    # eigenvalues -c and 1.5 + c, by determinant and trace
    c = 1.1e-3 * largest
    K[i, i], K[j, j] = 1.2, 0.3
    K[i, j] = K[j, i] = np.sqrt(1.2 * 0.3 + c * (1.5 + c))
    return K, c


def stacked(K, others=3):
    """Return the kernel between others, kernels last and kernels first."""
    data = rng.normal(size=(len(K), 2))
    D = np.sum((data[:, None] - data) ** 2, axis=2)
    first = np.stack([*(np.exp(-g * D) for g in np.logspace(-1, 1, others)), K])
    return np.ascontiguousarray(np.moveaxis(first, 0, -1)), np.moveaxis(first, 0, -1)


@pytest.mark.parametrize("size", [100, 1000, 4000])
@pytest.mark.parametrize("make", [spread, on_two])
def test_one_negative_eigenvalue_is_found(make, size):
    K, c = make(size)
    others = 3 if size <= 1000 else 1
    for stack in stacked(K, others):
        bank = KernelBank.from_grams(stack)
        seen = look_at(bank, np.ones(size))
        low = negative_values(bank, seen, 1e-6)
        assert not low[:-1].any()
        # a direction that was found is above the eigenvalue, and negative
        assert -1.000001 * c <= low[-1] < 0
        with pytest.raises(ValueError, match=f"'K{others}' is not positive semidef"):
            check_definite(bank, "check", seen)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("size", [20, 300])
def test_one_pass_sees_what_many_do(size, dtype):
    last, first = (K.astype(dtype) for K in stacked(np.eye(size)))
    w = rng.random(size)
    part = np.sort(rng.permutation(size)[: size // 2])
    for stack in (last, first, [first[:, :, m] for m in range(4)]):
        whole = KernelBank.from_grams(stack)
        for bank in (whole, whole[np.ix_(part, part)], whole.select([3, 1])):
            mine = w[: len(bank)]
            seen = bank.survey(mine, 1e-6)
            K = np.moveaxis(grams(bank), -1, 0)
            np.testing.assert_allclose(seen.means, K @ mine, rtol=1e-12)
            np.testing.assert_allclose(seen.squares, np.sum(K**2, axis=(1, 2)))
            np.testing.assert_array_equal(bank.grams(), K)
            assert not seen.unlike.any() and not seen.beyond.any()
    # what is not symmetric, or beyond the diagonal, in one place
    i, j = size - 1, size // 2
    for stack in (last, first):
        stack[i, j, 1] += 3e-6
        stack[i, j, 3] = stack[j, i, 3] = 1.001
        seen = KernelBank.from_grams(stack).survey(w, 1e-6)
        assert (seen.unlike > 0).tolist() == [False, True, False, False]
        assert (seen.beyond > 0).tolist() == [False, False, False, True]
        stack[j, i, 0] = np.nan
        with pytest.raises(ValueError, match="NaN or infinity"):
            look_at(KernelBank.from_grams(stack, finite=True), w)


def test_all_samples_are_looked_at_before_clipping():
    # one eigenvalue among many: a part of the samples does not show it
    size = 800
    Q = np.linalg.qr(rng.normal(size=(size, size)))[0]
    K = (Q * np.r_[-1e-3, np.linspace(0.1, 1.0, size - 1)]) @ Q.T
    K = (K + K.T) / 2
    bank = KernelBank.from_grams(K)
    assert check_definite(bank, "check") is None
    clip = check_definite(bank, "clip")
    np.testing.assert_allclose(clip.negative[0].values, [-1e-3], rtol=1e-9)
    assert np.linalg.eigvalsh(clip.train(bank).gram(0))[0] > -1e-12


def test_negative_diagonals_are_found():
    K = np.eye(600)
    K[5, 5] = -0.5
    bank = KernelBank.from_grams(K)
    low = negative_values(bank, bank.survey(np.ones(600), 1e-6), 1e-6)
    assert low == -0.5


@pytest.mark.parametrize("storage", ["float64", "recompute"])
def test_clipping(storage):
    bank = KernelBank(X, [Linear(), indefinite]).stored(storage=storage)
    raw = bank.gram(1)
    clip = check_definite(bank, "clip")
    assert set(clip.negative) == {1}
    train = clip.train(bank)
    values, vectors = np.linalg.eigh(raw)
    want = (vectors * np.maximum(values, 0.0)) @ vectors.T
    np.testing.assert_allclose(train.gram(1), want, atol=1e-5 * values[-1])
    assert np.linalg.eigvalsh(train.gram(1))[0] > -1e-6 * values[-1]
    np.testing.assert_array_equal(train.gram(0), bank.gram(0))
    np.testing.assert_array_equal(bank.gram(1), raw)  # the raw bank is as it was
    assert check_definite(train, "check") is None
    # cross kernels of training samples are the training kernels
    for b in (bank, train):
        cross = clip.cross(b.cross(X))
        np.testing.assert_allclose(grams(cross), grams(train), atol=1e-10)
        np.testing.assert_allclose(cross.diag(), train.diag(), atol=1e-10)
    with pytest.raises(ValueError, match="all 31 training samples"):
        clip.cross(bank.reference([1, 2]).cross(X))


@pytest.mark.parametrize("kind", KINDS)
def test_clipping_and_normalising(kind):
    bank = KernelBank(X, [Linear(), indefinite])
    clip = check_definite(bank, "clip")
    normaliser = fit_normaliser(kind, clip.train(bank))
    train = normaliser.train(clip.train(bank))
    cross = normaliser.cross(clip.cross(bank.cross(X)))
    np.testing.assert_allclose(grams(cross), grams(train), atol=1e-9)


def test_clipping_given_cross_grams():
    both = np.vstack([X, X_NEW])
    K = indefinite(both, both)
    bank = KernelBank.from_grams(K[:n, :n])
    clip = check_definite(bank, "clip")
    by_function = clip.cross(KernelBank(X, indefinite).cross(X_NEW))
    given = clip.cross(KernelBank.from_grams(K[n:, :n], cross=True))
    np.testing.assert_allclose(given.gram(0), by_function.gram(0), atol=1e-12)
    with pytest.raises(ValueError, match="row_diag"):
        given.diag()
    diag = np.diag(K)[n:, None]
    given = clip.cross(KernelBank.from_grams(K[n:, :n], row_diag=diag))
    np.testing.assert_allclose(given.diag(), by_function.diag())


def test_a_missed_kernel_is_named_where_the_sum_is_not_definite():
    # with few costs the bounds meet, and yet would not hold
    size = 400
    Q = np.linalg.qr(rng.normal(size=(size, size)))[0]
    labels = np.sign(Q[:, 0] + 0.01 * rng.normal(size=size))
    spectrum = np.r_[-0.1, np.linspace(0.2, 1.0, size - 1)]
    stack = np.repeat(((Q * spectrum) @ Q.T)[:, :, None], 8, axis=2)
    assert check_definite(KernelBank.from_grams(stack), "check") is None
    model = MKLClassifier("precomputed", C=0.1, normalize=None)
    with pytest.raises(ValueError, match=r"'K[0-7]' is not positive semidef.*clip"):
        model.fit(stack, labels)
    # beside a kernel that outweighs its negative part it does no harm
    stack[:, :, 1:] += np.eye(size)[:, :, None]
    model.fit(stack, labels)
    total = np.tensordot(stack, model.kernel_weights_, 1)
    assert np.linalg.eigvalsh(total)[0] > 0 > np.linalg.eigvalsh(stack[:, :, 0])[0]


def test_a_missed_kernel_is_named_where_bounds_stay_apart():
    # too many samples, and a spectrum too flat, for a part of the rows to tell
    size = 400
    Q = np.linalg.qr(rng.normal(size=(size, size)))[0]
    labels = np.sign(Q[:, 0])
    spectra = [
        np.r_[-1.0, np.linspace(a, 1.0, size - 1)] for a in np.linspace(0.2, 0.4, 8)
    ]
    stack = np.stack([(Q * values) @ Q.T for values in spectra], axis=2)
    assert check_definite(KernelBank.from_grams(stack), "check") is None
    model = MKLClassifier("precomputed", norm=1, C=100.0, normalize=None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        with pytest.raises(ValueError, match=r"'K[0-7]' is not positive semidef.*clip"):
            model.fit(stack, labels)
        clone(model).set_params(psd="ignore").fit(stack, labels)
