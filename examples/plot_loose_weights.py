"""
When weights mean little
========================

The duality gap is that of the *objective*. Where the objective hardly depends on the
weights, because C is small, a gap of 0.1 % leaves them nearly arbitrary. So before
weights are read: ask for a smaller ``tol``, and see whether they move.

Each panel shows the weights of ten Gaussian widths on the tumours, by the tolerance
that was asked for. All of these models are certified, and at their C they predict
alike.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer

from mklearn import MKLClassifier
from mklearn.kernels import rbf_ladder
from mklearn.plotting import OKABE_ITO

X, y = load_breast_cancer(return_X_y=True)
kernels = rbf_ladder(10, standardize=True)
costs, tolerances = (1e-4, 1e-2, 1.0), (1e-1, 1e-2, 1e-3, 1e-6)

fig, axes = plt.subplots(1, 3, figsize=(11, 3.4), sharey=True, layout="constrained")
for ax, C in zip(axes, costs, strict=True):
    for tol, color, marker in zip(tolerances, OKABE_ITO, "os^D", strict=False):
        model = MKLClassifier(kernels, norm=1, C=C, tol=tol, solver="cutting_plane")
        weights = model.fit(X, y).kernel_weights_
        ax.plot(weights, color=color, marker=marker, label=f"tol = {tol:g}")
    ax.set_title(f"C = {C:g}")
    ax.set_xticks([0, 9], ["wide", "narrow"])
    ax.spines[["top", "right"]].set_visible(False)
axes[0].set_ylabel("weight θ")
axes[-1].legend(frameon=False)
plt.show()

# %%
# For p = 1 the solution itself says what its gap leaves open: ``weight_bounds`` are
# numbers that no optimal weights exceed. Here are those of the last model.

bounds = np.minimum(model.solution_.weight_bounds, 1.0)
for name, weight, bound in zip(model.kernel_names_, weights, bounds, strict=True):
    print(f"{name:20s} weight {weight:.3f}, at most {bound:.3f} in any solution")
