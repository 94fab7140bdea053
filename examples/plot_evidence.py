"""
Regression without anything to tune
===================================

Eight views of the same samples, of which two tell something of a number: one linearly,
one not. Each view gets a linear kernel and three widths, 32 kernels in all. Which of
them count, and how strongly to regularise, :class:`mklearn.EvidenceMKLRegressor` finds
by itself: its weights are those under which the values are most likely.
:class:`mklearn.MKLRegressorCV` chooses its cost and norm by cross-validation.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.model_selection import cross_val_score

from mklearn import EvidenceMKLRegressor, MKLRegressorCV, MultiView
from mklearn.kernels import RBF, Linear, per_view
from mklearn.plotting import OKABE_ITO

random = np.random.default_rng(0)
n = 200
views = {f"noise {i + 1}": random.standard_normal((n, 5)) for i in range(6)}
views["linear"], views["curved"] = random.standard_normal((2, n, 5))
y = views["linear"] @ np.array([1.0, -1.0, 0.5, 0.0, 0.0])
y += 1.5 * np.sin(2 * views["curved"][:, 0]) + random.standard_normal(n)
X = MultiView(views)
widths = [RBF("scale", factor) for factor in (1 / 4, 1.0, 4.0)]
kernels = per_view(Linear(), *widths)

# %%
# Both on the same folds. The best R² that is possible here is 0.77: the rest of the
# variance is noise.

models = {
    "evidence": EvidenceMKLRegressor(kernels),
    "cross-validation": MKLRegressorCV(kernels, Cs=[0.1, 1, 10], norms=[1, 2], cv=3),
}
for name, model in models.items():
    print(f"{name:17s} R² {cross_val_score(model, X, y, cv=3).mean():.2f}")

# %%
# The weights of a view are added up, as shares of the sum of all.

fig, ax = plt.subplots(figsize=(7, 3.5), layout="constrained")
for i, (name, model) in enumerate(models.items()):
    model.fit(X, y)
    weights = model.kernel_weights_.reshape(len(views), -1).sum(axis=1)
    places = np.arange(len(views)) + 0.4 * i - 0.2
    ax.bar(places, weights / weights.sum(), 0.4, label=name, color=OKABE_ITO[i])
ax.set_xticks(np.arange(len(views)), X.names, rotation=30, ha="right")
ax.set_ylabel("share of the weight")
ax.legend()
plt.show()

# %%
# The noise has the variance 1. A part of it is found in narrow kernels of views that
# say nothing: on training samples these look like noise, and do no harm elsewhere.

evidence = models["evidence"]
print(f"variance of the noise: {evidence.noise_[0]:.2f}")
print(evidence.evidence_.message)
