"""What docs/guide/coming-from.md says of himalaya's models, at equal weights."""

import numpy as np
import pytest
from sklearn.kernel_ridge import KernelRidge

from mklearn import EvidenceMKLRegressor, KernelBank, MKLRegressor, MultiView
from mklearn.kernels import RBF, Linear, per_view

SAME = 1e-8  # systems of condition 1e4 at most, and solvers that end at 1e-13


def centred(n=50, seed=0):
    """Return two centred kernels between samples, and centred targets."""
    rng = np.random.default_rng(seed)
    a, b = rng.standard_normal((2, n, 4))
    Y = np.column_stack([a[:, 0], np.sin(b[:, 0])]) + 0.3 * rng.standard_normal((n, 2))
    X = MultiView({"a": a, "b": b})
    bank = KernelBank(X, per_view([Linear(), RBF(0.2)]))
    grams = np.stack([bank.gram(m) for m in range(4)], axis=2)
    H = np.eye(n) - 1.0 / n
    return np.einsum("ij,jkm,kl->ilm", H, grams, H), Y - Y.mean(axis=0)


def test_weighted_kernel_ridge():
    ridge = pytest.importorskip("himalaya.kernel_ridge")
    grams, Y = centred()
    model = EvidenceMKLRegressor("precomputed", normalize=None).fit(grams, Y)
    theta = model.kernel_weights_
    used = theta > 0
    deltas = np.repeat(np.log(theta[used])[:, None], 2, axis=1)
    theirs = ridge.WeightedKernelRidge(
        alpha=1.0,
        deltas=deltas,
        kernels="precomputed",
        solver_params={"tol": 1e-13, "max_iter": 5000},
    )
    Ks = np.moveaxis(grams[:, :, used], -1, 0)
    predicted = theirs.fit(Ks, Y).predict(Ks)
    np.testing.assert_allclose(model.predict(grams), predicted, rtol=0, atol=SAME)
    parts = model.predictor_.parts(grams)[..., used]
    split = np.moveaxis(theirs.predict(Ks, split=True), 0, -1)
    np.testing.assert_allclose(parts, split, rtol=0, atol=SAME)


@pytest.mark.parametrize("alpha", [0.1, 3.0])
def test_kernel_ridge(alpha):
    ridge = pytest.importorskip("himalaya.kernel_ridge")
    grams, Y = centred()
    K = grams[:, :, :1]
    ours = MKLRegressor("precomputed", norm=1, C=1 / alpha, normalize=None)
    found = ours.fit(K, Y).predict(K)
    for other in (ridge.KernelRidge, KernelRidge):
        theirs = other(alpha=alpha, kernel="precomputed").fit(K[:, :, 0], Y)
        predicted = theirs.predict(K[:, :, 0])
        np.testing.assert_allclose(found, predicted, rtol=0, atol=SAME)
