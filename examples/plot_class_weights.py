"""
Which description tells which digit?
====================================

:class:`mklearn.BilinearMKLClassifier` learns all classes in one problem and gives every
class kernel weights of its own. The samples are handwritten digits in six descriptions
(Fourier coefficients, profile correlations, Karhunen-Loève coefficients, pixel
averages, Zernike moments and morphological features); without the file, scikit-learn's
digits in three.
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
# A row is a class. The contributions of a row sum to one, so that classes can be
# compared. A six that is turned round is a nine, and the sizes of Zernike moments do
# not see the turn: look at how little those two classes rely on ``zer``.

fig, ax = plt.subplots(figsize=(6.5, 5), layout="constrained")
ClassKernelHeatmapDisplay.from_estimator(model, values="contributions", ax=ax)
plt.show()
