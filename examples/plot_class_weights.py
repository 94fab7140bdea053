"""
Which description identifies which digit?
=========================================

:class:`mklearn.BilinearMKLClassifier` solves a single problem for all classes and gives
every class its own kernel weights. The data are handwritten digits in six descriptions:
Fourier coefficients, profile correlations, Karhunen-Loève coefficients, pixel averages,
Zernike moments and morphological features. If the data file is not available,
scikit-learn's digits in three descriptions are used instead.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from mklearn import BilinearMKLClassifier, MultiView
from mklearn.datasets import load
from mklearn.kernels import RBF
from mklearn.plotting import ClassKernelHeatmapDisplay

try:
    X, y = load("mfeat", return_X_y=True)
except FileNotFoundError as missing:
    print(missing)
    digits = load_digits()
    images = digits.images
    X = MultiView(
        {
            "pixels": digits.data,
            "fourier": np.abs(np.fft.rfft2(images)).reshape(len(images), -1),
            "profiles": np.hstack([images.sum(axis=1), images.sum(axis=2)]),
        }
    )
    y = digits.target
order = np.random.default_rng(0).permutation(len(y))
train, test = order[:400], order[400:1000]

kernels = [RBF(view=view, standardize=True, name=view) for view in X]
model = BilinearMKLClassifier(kernels, C=1.0).fit(X[train], y[train])
print(f"accuracy on new digits: {model.score(X[test], y[test]):.3f}")
print(f"certified gap: {model.duality_gap_:.1e}")

# %%
# Each row is a class, and the contributions in a row sum to one, so that classes can be
# compared. The digits 6 and 9 hardly use Zernike moments (``zer``): a rotated six is a
# nine, and the magnitudes of Zernike moments are invariant under rotation.

fig, ax = plt.subplots(figsize=(6.5, 5), layout="constrained")
ClassKernelHeatmapDisplay.from_estimator(model, values="contributions", ax=ax)
plt.show()
