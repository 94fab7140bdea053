"""
Which measurements enter first?
===============================

With one kernel for each column and ``norm=1``, multiple kernel learning selects
columns. As the cost of errors rises, more columns are worth their place:
:func:`mklearn.mkl_path` follows the weights over a grid of costs, each problem started
from the one before it, all on one bank of kernels.

Here the columns are thirteen measurements of patients with suspected heart disease
(without the file: the ten worst values of the breast cancer data).
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
# A small ``tol`` matters at the left end: where C is small the objective hardly depends
# on the weights, and a loose tolerance would leave them arbitrary.

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
