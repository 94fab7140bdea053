"""
How sparse? Choosing the norm and the cost
==========================================

The norm p of the kernel weights controls their sparsity: with p = 1 few kernels are
used, and with p = ∞ all of them have the same weight. Which norm is best depends on the
data, so :class:`mklearn.MKLClassifierCV` evaluates a grid of norms and costs by
cross-validation. Kernels are computed once, and each problem starts from the solution
of its neighbour.

The data are radar returns from the ionosphere (or, if the data file is not available,
breast tumours), with one Gaussian kernel for each column and one for all columns
together.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer

from mklearn import MKLClassifierCV
from mklearn.datasets import load
from mklearn.kernels import RBF, per_feature
from mklearn.plotting import PathDisplay

try:
    X, y = load("ionosphere", return_X_y=True, download=False)
    X = np.delete(X, 1, axis=1)  # constant
except FileNotFoundError as missing:
    print(missing)
    X, y = load_breast_cancer(return_X_y=True)
    X = X[:, 20:]  # the worst values

kernels = [per_feature(RBF(standardize=True)), RBF(standardize=True, name="all")]
norms = [1, 4 / 3, 2, 4]
model = MKLClassifierCV(kernels, Cs=[0.1, 0.3, 1, 3, 10], norms=norms, cv=2, tol=5e-3)
model.fit(X, y)
print(f"chosen: p = {model.norm_:.3g}, C = {model.C_:.3g}")

# %%
# Left: the mean accuracy for each norm and cost, with the chosen pair marked by a
# circle. Right: the weights as a function of the norm, at the chosen cost; shaded areas
# are the range over the folds. With p = 1 most weights are zero, and with increasing p
# they become similar.

fig, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
shown = left.imshow(model.mean_scores_, cmap="cividis", aspect="auto")
left.set_yticks(range(len(norms)), ["1", "4/3", "2", "4"])
left.set_xticks(range(len(model.Cs_)), [f"{C:g}" for C in model.Cs_])
left.set_xlabel("cost C")
left.set_ylabel("norm p")
row, column = model.best_index_
left.plot(column, row, "o", ms=16, mfc="none", mec="black", mew=2.5)
left.set_title("cross-validated accuracy")
fig.colorbar(shown, ax=left)
PathDisplay.from_estimator(model, against="norm", ax=right, top=5)
plt.show()
