"""
A subspace that separates the classes
=====================================

:class:`mklearn.SubspaceKernel` learns a few features from kernels that separate the
classes, at most one fewer than there are classes. It is a transformer and can be
followed by any classifier. The data are pixels of satellite images together with their
neighbours, in six classes of land use (or, if the data file is not available,
handwritten digits). The figure compares kernel principal components with the features
of the subspace kernel, on samples that were not used for training.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import KernelPCA
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler

from mklearn import SubspaceKernel
from mklearn.datasets import load
from mklearn.kernels import rbf_ladder
from mklearn.plotting import SubspaceDisplay

try:
    X, y = load("satimage", return_X_y=True, download=False)
except FileNotFoundError as missing:
    print(missing)
    X, y = load_digits(return_X_y=True)
    X, y = X[y < 6], y[y < 6]
rows = np.random.default_rng(0).permutation(len(y))[:1000]
X, y = StandardScaler().fit_transform(X[rows].astype(float)), y[rows]
X_train, y_train, X_test, y_test = X[:400], y[:400], X[400:], y[400:]

methods = {
    "Kernel PCA, 2 components": KernelPCA(2, kernel="rbf"),
    "Subspace kernel, first 2 features": SubspaceKernel(rbf_ladder(5)),
}
fig, axes = plt.subplots(1, 3, figsize=(12, 4), layout="constrained")
for ax, (title, method) in zip(axes, methods.items(), strict=False):
    method.fit(X_train, y_train)
    SubspaceDisplay.from_estimator(method, X_test, y_test, ax=ax)
    ax.set_title(title)
    known = method.transform(X_train)
    score = KNeighborsClassifier().fit(known, y_train)
    score = score.score(method.transform(X_test), y_test)
    print(f"{title}: {known.shape[1]} features, 5 neighbours {score:.3f}")
names = method.get_feature_names_out()[2:4]
others = method.transform(X_test)[:, 2:4]
display = SubspaceDisplay(features=others, y=y_test, names=names)
display.plot(axes[2]).ax_.set_title("Subspace kernel, the next 2")
for ax in axes[:2]:
    ax.get_legend().remove()
for ax, (first, second) in zip(axes, [(1, 2), (1, 2), (3, 4)], strict=True):
    ax.set(xlabel=f"feature {first}", ylabel=f"feature {second}")
plt.show()

# %%
# With several kernels, the weights are learned with the same criterion, by the solver
# for discriminant kernel learning, and come with a certificate.

for name, weight in zip(method.kernel_names_, method.kernel_weights_, strict=True):
    print(f"{name:20s} {weight:.3f}")
print(f"certified gap: {method.duality_gap_:.1e}")
