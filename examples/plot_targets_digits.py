"""
Which rows of an image predict a pixel?
=======================================

Each pixel in the lower half of a digit is predicted from the upper half, whose four
rows are the views. The 32 pixels are 32 targets on the same samples. With
``weights="per-target"``, :class:`mklearn.EvidenceMKLRegressor` learns separate kernel
weights for each of them, which show what it depends on.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from mklearn import EvidenceMKLRegressor, MultiView
from mklearn.kernels import RBF, per_view

images = load_digits().images[:500]
rows = MultiView({f"row {i + 1}": images[:, i] for i in range(4)})
Y = images[:, 4:].reshape(len(images), -1)
train, test = train_test_split(np.arange(len(images)), test_size=0.4, random_state=0)

# %%
# Some pixels at the border are always dark. There is nothing to predict: they get no
# weights, and R² is not defined for them.

model = EvidenceMKLRegressor(per_view(RBF()), weights="per-target", tol=0.1)
model.fit(rows[train], Y[train])
varied = (np.ptp(Y[train], axis=0) > 0) & (np.ptp(Y[test], axis=0) > 0)
off = np.sum((Y[test] - model.predict(rows[test]))[:, varied] ** 2, axis=0)
all_of = np.sum((Y[test] - Y[test].mean(axis=0))[:, varied] ** 2, axis=0)
print(f"{varied.sum()} pixels, median R² {np.median(1 - off / all_of):.2f}")

# %%
# The share of the variance of each pixel in the lower half (4 × 8 pixels) that is
# explained by each row of the upper half:

weights = model.kernel_weights_
shares = weights / (1 + weights.sum(axis=1, keepdims=True))
fig, axes = plt.subplots(1, 4, figsize=(9, 2.4), layout="constrained")
for m, ax in enumerate(axes):
    picture = ax.imshow(shares[:, m].reshape(4, 8), vmin=0, vmax=shares.max())
    ax.set_title(rows.names[m])
    ax.set_xticks([])
    ax.set_yticks([])
fig.colorbar(picture, ax=axes, label="share of variance", shrink=0.8)
plt.show()

# %%
# On average, the adjacent row, which is the fourth, explains most of the variance.

for name, share in zip(rows.names, shares[varied].mean(axis=0), strict=True):
    print(f"{name}: {share:.2f}")
