"""
Which measurements are selected first?
======================================

With one kernel for each column and ``norm=1``, multiple kernel learning selects
columns. The larger the cost of errors, the more columns are used.
:func:`mklearn.mkl_path` computes the weights on a grid of costs: all problems use the
same kernels, and each starts from the solution of the previous one.

The columns are thirteen measurements of patients with suspected heart disease. If the
data file is not available, the ten worst values of the breast cancer data are used
instead.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer

from mklearn import Hinge, KernelBank, mkl_path
from mklearn.datasets import load
from mklearn.kernels import RBF
from mklearn.kernels.normalise import fit_normaliser
from mklearn.plotting import PathDisplay

try:
    heart = load("heart_cleveland", download=False)
    X, y, names = heart.data, heart.target, heart.feature_names
except FileNotFoundError as missing:
    print(missing)
    cancer = load_breast_cancer()
    X, y, names = cancer.data[:, 20:], cancer.target, cancer.feature_names[20:]

kernels = [
    RBF(columns=j, standardize=True, name=str(name)) for j, name in enumerate(names)
]
raw = KernelBank(X, kernels).stored()
bank = fit_normaliser("multiplicative", raw).train(raw)
Y = np.where(y == y.max(), 1.0, -1.0)[:, None]
path = mkl_path(
    bank,
    lambda C: Hinge(Y, C * np.ones_like(Y)),
    np.logspace(-2, 1, 10),
    [1],
    tol=1e-5,
)
print(f"largest gap along the path: {path.gap.max():.1e}")

# %%
# The seven kernels with the largest weights are named; the others are grey. A small
# ``tol`` matters at the left end: if C is small, the objective hardly depends on the
# weights, and a loose tolerance would leave them arbitrary.

fig, (left, right) = plt.subplots(
    1, 2, figsize=(10, 3.8), width_ratios=[2, 1], layout="constrained"
)
PathDisplay(
    x=path.Cs, weights=path.theta[:1], names=bank.names, against="C", fixed=1.0
).plot(left)
used = (path.theta[0] > 1e-3).sum(axis=1)
right.step(path.Cs, used, where="mid", color="0.3")
right.set_xscale("log")
right.set_xlabel("cost C")
right.set_title("kernels in use")
right.set_ylim(0, len(names) + 0.5)
right.spines[["top", "right"]].set_visible(False)
plt.show()
