"""
Would other samples give the same weights?
==========================================

Weights depend on the sample from which they were learned.
:func:`mklearn.interpretation.weight_stability` refits the model on resamples and shows
how much the weights vary, and how often each kernel is used. The data are the breast
tumours that come with scikit-learn.
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
plt.show()

# %%
# Bars are mean weights, lines contain 95 % of the resamples, and the numbers are the
# percentage of resamples in which a kernel has a nonzero weight. Sparse weights (left)
# are unstable: of two similar kernels, one resample uses one and the next uses the
# other. With ``norm=2`` (right), similar kernels share their weight, and the intervals
# are narrower. If you want to know *which* kernels matter, look at the intervals before
# you believe a zero.
