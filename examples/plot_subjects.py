"""
Subjects in both the training and the test part
===============================================

Thirty subjects contribute six samples each. The measurements differ between subjects,
but have nothing to do with their class. If samples of the same subject are in both the
training and the test part of a fold, the model recognises the subjects and seems to
predict well. On new subjects it is no better than chance.
"""

import matplotlib.pyplot as plt
import numpy as np

from mklearn import MKLClassifier, MKLClassifierCV
from mklearn.kernels import rbf_ladder
from mklearn.model_selection import compare
from mklearn.plotting import OKABE_ITO

rng = np.random.default_rng(0)
subject = np.tile(np.arange(30), 6)
X = rng.standard_normal((30, 5))[subject] + 0.05 * rng.standard_normal((180, 5))
y = (subject % 2).astype(int)

kernels = rbf_ladder(3, standardize=True)
models = {
    "MKL, C=100": MKLClassifier(kernels, C=100.0),
    "MKL, C chosen": MKLClassifierCV(kernels, Cs=[1.0, 100.0], norms=[2], cv=3),
}
known = compare(models, X, y, cv=5)
new = compare(models, X, y, cv=5, groups=subject)
for name, a, b in zip(models, known.mean, new.mean, strict=True):
    print(f"{name:14s} known subjects {a:.2f}, new subjects {b:.2f}")

# %%
# With ``groups``, all samples of a subject are in the same fold. The groups are also
# passed on to the search for C, which would otherwise be misled in the same way.

place = np.arange(len(models))
figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
bars = {"known subjects": known, "new subjects": new}
for side, color, (name, found) in zip(
    (-0.2, 0.2), OKABE_ITO, bars.items(), strict=False
):
    axes.bar(
        place + side, found.mean, 0.4, yerr=found.standard_error, label=name,
        color=color, edgecolor="black", lw=0.5, capsize=4,
    )  # fmt: skip
axes.axhline(0.5, color="black", ls="--", lw=1, label="chance")
axes.set_xticks(place, list(models))
axes.set_ylim(0, 1.3)
axes.set_ylabel("accuracy")
axes.legend(frameon=False, ncols=3, loc="upper center")
axes.spines[["top", "right"]].set_visible(False)
plt.show()
