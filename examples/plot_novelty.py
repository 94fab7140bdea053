"""
Novelty detection with several kernels
======================================

:class:`mklearn.MKLOneClass` learns the region in which samples of one kind lie,
together with the kernel weights, and detects new samples that lie outside. Here it is
trained on handwritten fours, described by their pixels and by the magnitudes of their
Fourier coefficients, and then applied to other digits.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score

from mklearn import MKLOneClass, MultiView
from mklearn.kernels import RBF

digits = load_digits()
spectrum = np.abs(np.fft.rfft2(digits.images)).reshape(len(digits.images), -1)
X = MultiView({"pixels": digits.data, "fourier": spectrum})
known = np.flatnonzero(digits.target == 4)
train, new_fours = known[:100], known[100:]
others = np.flatnonzero(digits.target != 4)[:400]

kernels = [
    RBF(factor=factor, view=view, name=f"{view}:rbf({factor:g})")
    for view in X
    for factor in (0.5, 2.0)
]
model = MKLOneClass(kernels, nu=0.1, norm=2, normalize="spherical").fit(X[train])
for name, share in zip(model.kernel_names_, model.kernel_contributions_, strict=True):
    print(f"{name:20s} {share:.2f}")

# %%
# A negative score means that the sample lies outside of the region.

score = {
    "new fours": model.decision_function(X[new_fours]),
    "other digits": model.decision_function(X[others]),
}
truth = np.r_[np.ones(len(new_fours)), np.zeros(len(others))]
area = roc_auc_score(truth, np.concatenate(list(score.values())))
print(f"area under the ROC curve: {area:.3f}")

fig, axes = plt.subplots(3, 7, figsize=(8, 4.2), layout="constrained")
rows = {
    "most typical\nfours": new_fours[np.argsort(-score["new fours"])],
    "least typical\nfours": new_fours[np.argsort(score["new fours"])],
    "most similar\nothers": others[np.argsort(-score["other digits"])],
}
for line, (title, index) in zip(axes, rows.items(), strict=True):
    for ax, i in zip(line, index, strict=False):
        value = float(model.decision_function(X[[i]])[0])
        ax.imshow(digits.images[i], cmap="gray_r", interpolation="nearest")
        ax.set_xticks([])
        ax.set_yticks([])
        ax.set_xlabel(f"{value:+.3f}", fontsize="small")
    line[0].set_ylabel(title, rotation=0, ha="right", va="center")
plt.show()
