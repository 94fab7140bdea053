"""
Would other samples give the same weights?
==========================================

Weights come from one sample. :func:`mklearn.interpretation.weight_stability` fits the
model again on resamples and tells how far the weights wander, and how often a kernel is
used at all. The data are the tumours of the first example.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_breast_cancer

from mklearn import MKLClassifier, MultiView
from mklearn.interpretation import weight_stability
from mklearn.kernels import RBF, Linear, per_view
from mklearn.plotting import KernelWeightsDisplay

X, y = load_breast_cancer(return_X_y=True)
views = {"mean": slice(0, 10), "error": slice(10, 20), "worst": slice(20, 30)}
X = MultiView.from_columns(X, views)
kernels = per_view(
    Linear(standardize=True),
    RBF(factor=0.25, standardize=True),
    RBF(factor=4, standardize=True),
)

fig, axes = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
for ax, norm in zip(axes, (1, 2), strict=True):
    model = MKLClassifier(kernels, norm=norm)
    found = weight_stability(model, X, y, n_resamples=15, random_state=0)
    KernelWeightsDisplay.from_stability(found, ax=ax, title=f"norm = {norm}")
    ax.set_xlabel("mean weight, 95 % of resamples (how often used)")
plt.show()

# %%
# Sparse weights (left) jump: of two kernels that say nearly the same, one resample
# takes this and the next takes that. With ``norm=2`` (right) they share, and the
# intervals are narrower. If the question is *which* kernels matter, look at the
# intervals before you believe a zero.
