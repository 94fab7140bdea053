"""
Subjects in both parts of a fold
================================

Thirty subjects give six samples each. What is measured differs between subjects and has
nothing to do with their class. A model that is tested on other samples of the subjects
that it knows seems to do well; on new subjects it does not.
"""

import matplotlib.pyplot as plt
import numpy as np

from mklearn import MKLClassifier, MKLClassifierCV
from mklearn.kernels import rbf_ladder
from mklearn.model_selection import compare

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
# ``groups`` makes folds of subjects, and hands the subjects on to the search for C,
# which would otherwise be misled in the same way.

place = np.arange(len(models))
figure, axes = plt.subplots(layout="constrained")
axes.bar(
    place - 0.2, known.mean, 0.4, yerr=known.standard_error, label="known subjects"
)
axes.axhline(0.5, color="black", linewidth=0.8)
axes.set_xticks(place, list(models))
axes.set_ylabel("accuracy")
axes.legend()
plt.show()
