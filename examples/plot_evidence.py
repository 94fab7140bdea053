"""
Regression without tuning parameters
====================================

There are eight views of the same samples, and only two of them are related to the
target, one linearly and one nonlinearly. Each view has a linear kernel and three RBF
kernels, which makes 32 kernels. :class:`mklearn.EvidenceMKLRegressor` finds the weights
and the regularisation by maximising the likelihood of the data, without any parameter
to tune. It is compared with :class:`mklearn.MKLRegressorCV`, which chooses its cost and
norm by cross-validation.
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
# Both models are evaluated on the same folds. The best possible R² is 0.77, because the
# remaining variance is noise.

models = {
    "evidence": EvidenceMKLRegressor(kernels),
    "cross-validation": MKLRegressorCV(kernels, Cs=[0.1, 1, 10], norms=[1, 2], cv=3),
}
for name, model in models.items():
    print(f"{name:17s} R² {cross_val_score(model, X, y, cv=3).mean():.2f}")

# %%
# The weights of each view are summed and shown as fractions of the total.

fig, ax = plt.subplots(figsize=(7, 3.5), layout="constrained")
for i, (name, model) in enumerate(models.items()):
    model.fit(X, y)
    weights = model.kernel_weights_.reshape(len(views), -1).sum(axis=1)
    places = np.arange(len(views)) + 0.4 * i - 0.2
    ax.bar(places, weights / weights.sum(), 0.4, label=name, color=OKABE_ITO[i])
ax.set_xticks(np.arange(len(views)), X.names, rotation=30, ha="right")
ax.set_ylabel("share of the weight")
ax.legend(frameon=False)
ax.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# The true variance of the noise is 1. The estimate is smaller, because narrow kernels
# can take over part of the noise: on the training samples they cannot be distinguished
# from it. This does no harm to predictions.

evidence = models["evidence"]
print(f"variance of the noise: {evidence.noise_[0]:.2f}")
print(evidence.evidence_.message)
