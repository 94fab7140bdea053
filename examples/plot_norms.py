"""
How sparse? Choosing p and C
============================

The norm p on the kernel weights goes from 1, where few kernels are used, to infinity,
where all count the same. No theory says which is best for given data, so
:class:`mklearn.MKLClassifierCV` tries a grid of norms and costs by cross-validation.
Kernels are computed once, and each problem starts from the solution of its neighbour.

The data are radar returns from the ionosphere (without their file: tumours), with one
Gaussian kernel for each single column and one for all of them.
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
# Left: the mean accuracy of every pair, the choice marked. Right: what happens to the
# weights along the norms, at the chosen cost. For p = 1 most of them are zero; as p
# grows they come together.

fig, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
shown = left.imshow(model.mean_scores_, cmap="cividis", aspect="auto")
left.set_yticks(range(len(norms)), ["1", "4/3", "2", "4"])
left.set_xticks(range(len(model.Cs_)), [f"{C:g}" for C in model.Cs_])
left.set_xlabel("cost C")
left.set_ylabel("norm p")
row, column = model.best_index_
left.plot(column, row, "o", ms=16, mfc="none", mec="white", mew=2.5)
left.set_title("cross-validated accuracy")
fig.colorbar(shown, ax=left)
PathDisplay.from_estimator(model, against="norm", ax=right, top=5)
plt.show()
