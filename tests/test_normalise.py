"""Normalisation: definitions, consistency of training and cross kernels, repairs."""

import numpy as np
import pytest

from mklearn.kernels import RBF, KernelBank, Linear, Polynomial, Spectrum
from mklearn.kernels.measures import extreme_eigenvalues, symmetry_error
from mklearn.kernels.normalise import check_definite, fit_normaliser

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
    with pytest.warns(UserWarning, match=r"1 of 2 kernels .* take no part"):
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


def test_negative_diagonals_are_found_at_once():
    K = np.eye(600)
    K[5, 5] = -0.5
    assert extreme_eigenvalues(KernelBank.from_grams(K))[0] == -0.5


@pytest.mark.parametrize("size", [20, 600])
def test_extreme_eigenvalues(size):
    Q = np.linalg.qr(rng.normal(size=(size, size)))[0]
    spectrum = np.concatenate([[-1.0, 50.0], rng.random(size - 2)])
    bank = KernelBank.from_grams((Q * spectrum) @ Q.T)
    np.testing.assert_allclose(extreme_eigenvalues(bank), (-1.0, 50.0), rtol=1e-6)
    # a space that is used up ends the iteration
    low_rank = KernelBank.from_grams((Q[:, :3] * [1.0, 2.0, 3.0]) @ Q[:, :3].T)
    np.testing.assert_allclose(extreme_eigenvalues(low_rank), (0, 3), atol=1e-9)


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
