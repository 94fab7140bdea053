"""
Many solvers, one certificate
=============================

A problem gives an upper and a lower bound on the optimum for every iterate, whichever
solver found it, and all solvers stop on the relative gap between the two. This allows a
fair comparison: how long does each solver take to *prove* how good its solution is?

The task is to distinguish the digits 3 and 8 with 20 RBF kernels of different widths
and sparse weights (p = 1).
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning

from mklearn import Hinge, KernelBank, LpBall, MKLProblem, solve
from mklearn.kernels import rbf_ladder
from mklearn.kernels.normalise import fit_normaliser
from mklearn.plotting import OKABE_ITO

X, y = load_digits(return_X_y=True)
rows = np.isin(y, (3, 8))
Y = np.where(y[rows] == 3, 1.0, -1.0)[:, None]
raw = KernelBank(X[rows], rbf_ladder(20)).stored()
bank = fit_normaliser("multiplicative", raw).train(raw)
problem = MKLProblem(bank, Hinge(Y, np.ones_like(Y)), LpBall(1))

solvers = ["newton", "cutting_plane", "reduced_gradient", "alternating", "interleaved"]

# %%
# Forty iterations are not enough for some of the solvers. Their certificates are valid
# nevertheless; they report the gap that was reached. The corresponding convergence
# warning is suppressed here.

fig, ax = plt.subplots(figsize=(7, 4), layout="constrained")
found = {}
for name, color, marker in zip(solvers, OKABE_ITO, "os^Dv", strict=False):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        solve(problem, name, max_iter=1)  # compiles, so that this is not timed
        solution = solve(problem, name, tol=1e-6, max_iter=40)
    history = solution.history
    ax.plot(history.time, history.gap, color=color, marker=marker, ms=4, label=name)
    found[name] = solution
    print(f"{name:17s} gap {solution.gap:.1e} after {solution.n_iter} iterations")
ax.set_xscale("log")
ax.set_yscale("log")
ax.axhline(1e-3, color="0.6", ls="--", lw=1)
ax.text(ax.get_xlim()[0], 1.15e-3, " default tol", color="0.4", fontsize="small")
ax.set_xlabel("seconds")
ax.set_ylabel("relative duality gap")
ax.legend(frameon=False)
ax.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# The bounds of all solvers agree: no lower bound of one exceeds an upper bound of
# another.

lowest = max(solution.lower for solution in found.values())
highest = min(solution.upper for solution in found.values())
print(f"the optimum lies between {lowest:.6f} and {highest:.6f}")
