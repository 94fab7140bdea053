"""
When weights are nearly arbitrary
=================================

The duality gap measures the accuracy of the *objective*. If C is small, the objective
hardly depends on the weights, and a gap of 0.1 % leaves them nearly arbitrary. Before
you interpret weights, fit again with a smaller ``tol`` and check whether they change.

Each panel shows the weights of ten RBF kernels of different widths on the breast cancer
data, for several tolerances. All of these models are certified to their tolerance, and
models with the same C make similar predictions. With C = 0.0001, the weights for the
tolerances 0.1 and 0.01 coincide: both are the equal weights that the solver starts
from.
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
    for tick, side in zip(ax.get_xticklabels(), ("left", "right"), strict=True):
        tick.set_horizontalalignment(side)
    ax.spines[["top", "right"]].set_visible(False)
axes[0].set_ylabel("weight θ")
axes[-1].legend(frameon=False)
plt.show()

# %%
# For p = 1, the solution also contains upper bounds on the weights of all optimal
# solutions, ``weight_bounds``. These are the bounds of the last model:

bounds = np.minimum(model.solution_.weight_bounds, 1.0)
for name, weight, bound in zip(model.kernel_names_, weights, bounds, strict=True):
    print(f"{name:20s} weight {weight:.3f}, at most {bound:.3f} in any solution")
