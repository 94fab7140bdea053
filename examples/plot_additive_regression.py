"""
An additive model, one curve for each column
============================================

With one kernel for each column, the prediction of :class:`mklearn.MKLRegressor` is a
sum of functions of one column each. Such an additive model can be drawn term by term;
:func:`mklearn.interpretation.decision_parts` returns the terms.

The data are ten measurements of 442 diabetes patients; the target is the progression of
the disease a year later. Among the columns, ``bp`` is the mean blood pressure, ``s5``
the logarithm of serum triglycerides, and ``s6`` the blood sugar level.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.model_selection import cross_val_score

from mklearn import MKLRegressor
from mklearn.interpretation import decision_parts
from mklearn.kernels import RBF
from mklearn.plotting import OKABE_ITO

data = load_diabetes(scaled=False)
X, y, names = data.data, data.target, data.feature_names
kernels = [
    RBF(factor=0.2, columns=j, standardize=True, name=name)
    for j, name in enumerate(names)
]
model = MKLRegressor(kernels, norm=4 / 3, C=1.0, normalize="center", tol=1e-4)
print(f"R² by cross-validation: {cross_val_score(model, X, y, cv=5).mean():.2f}")
model.fit(X, y)

# %%
# With centred kernels (``normalize="center"``), each term has mean zero over the
# training samples, so that terms can be compared. These are the six with the largest
# contribution to the norm of the function (in brackets). Ticks along the bottom mark
# the samples.

parts = decision_parts(model, X).parts
parts = parts.reshape(len(X), -1)
order = np.argsort(-model.kernel_contributions_)[:6]
fig, axes = plt.subplots(2, 3, figsize=(9, 5), sharey=True, layout="constrained")
for ax, m in zip(axes.flat, order, strict=True):
    along = np.argsort(X[:, m])
    share = 100 * model.kernel_contributions_[m]
    ax.plot(X[along, m], parts[along, m], color=OKABE_ITO[0], lw=2)
    ax.plot(X[:, m], np.full(len(X), parts.min()), "|", color="0.6", ms=5, alpha=0.4)
    ax.set_title(f"{names[m]} ({share:.0f} %)")
    ax.axhline(0, color="0.8", lw=0.8, zorder=0)
    ax.spines[["top", "right"]].set_visible(False)
fig.supylabel("effect on disease progression")
plt.show()
