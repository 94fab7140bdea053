"""
Is multiple kernel learning worth it?
=====================================

Learned weights are compared with three simpler methods on the same folds: a support
vector machine on all columns, the best single kernel, and the plain sum of the kernels.
:func:`mklearn.model_selection.compare` fits all methods on every fold and compares them
pairwise, so that the difficulty of a fold affects all of them equally.

There are two data sets. Breast cancer is *one* homogeneous table that was divided into
three views. The other one consists of handwritten digits in six different descriptions
(or, if the data file is not available, scikit-learn's digits in two), so its views
differ in kind.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.svm import SVC

from mklearn import (
    BestKernelClassifier,
    MKLClassifier,
    MultiView,
    UniformMKLClassifier,
)
from mklearn.datasets import load
from mklearn.kernels import RBF, Linear, per_view
from mklearn.model_selection import compare
from mklearn.plotting import OKABE_ITO


def tumours():
    """Return one table that is divided into views."""
    X, y = load_breast_cancer(return_X_y=True)
    views = {"mean": slice(0, 10), "error": slice(10, 20), "worst": slice(20, 30)}
    return "breast cancer, 3 views", MultiView.from_columns(X, views), y


def digits(n=200):
    """Return views that differ in kind."""
    try:
        X, y = load("mfeat", return_X_y=True)
        title = "digits, 6 descriptions"
    except FileNotFoundError:
        images = load_digits().images
        spectrum = np.abs(np.fft.rfft2(images)).reshape(len(images), -1)
        X = MultiView({"pixels": images.reshape(len(images), -1), "fourier": spectrum})
        y = load_digits().target
        title = "digits, 2 descriptions"
    rows = np.random.default_rng(0).permutation(len(y))[:n]
    return f"{title}, {n} samples", X[rows], y[rows]


def side_by_side(X):
    return np.hstack([X[name] for name in X])


kernels = per_view(Linear(standardize=True), RBF(standardize=True))
models = {
    "SVC, all columns": make_pipeline(
        FunctionTransformer(side_by_side), StandardScaler(), SVC()
    ),
    "best single kernel": BestKernelClassifier(kernels, cv=3),
    "plain sum": UniformMKLClassifier(kernels),
    "MKL, p = 2": MKLClassifier(kernels, norm=2),
    "MKL, p = 1": MKLClassifier(kernels, norm=1),
}
folds = StratifiedKFold(4, shuffle=True, random_state=0)

fig, axes = plt.subplots(1, 2, figsize=(9, 3.4), sharey=True, layout="constrained")
for ax, (title, X, y) in zip(axes, (tumours(), digits()), strict=True):
    result = compare(models, X, y, cv=folds)
    print(title)
    for row in result.table("SVC, all columns"):
        print(f"  {row['model']:20s} {row['score']:.3f}")
    for i in range(len(models)):
        color = OKABE_ITO[0 if i < 3 else 5]
        place = np.full(result.scores.shape[1], i) + np.linspace(-0.15, 0.15, 4)
        ax.plot(result.scores[i], place, "o", color=color, alpha=0.45, ms=5, mew=0)
        ax.plot(result.mean[i], i, "|", color=color, ms=22, mew=3)
    ax.set_title(title)
    ax.set_xlabel("accuracy (dots: folds, bar: mean)")
    ax.set_yticks(range(len(models)), list(models))
    ax.locator_params(axis="x", nbins=5)
    ax.set_ylim(len(models) - 0.5, -0.5)
    ax.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# If one homogeneous table is divided into views, weighting them gains nothing, and a
# support vector machine on all columns is hard to beat. If the descriptions differ in
# kind, combining them helps, although the plain sum is often nearly as good as learned
# weights. What learned weights provide in any case is an answer to the question *which*
# descriptions matter.
