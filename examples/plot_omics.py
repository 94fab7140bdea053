"""
Which measurements distinguish tumour subtypes?
===============================================

150 breast tumours of three subtypes were measured in three ways: messenger RNA,
micro-RNA and proteins. Each view has a linear and an RBF kernel. How much does the
model use each view, and how much accuracy is lost on new samples if the rows of a view
are permuted? (If the data file is not available, the three views of the diagnostic
breast cancer data are used instead.)
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

from mklearn import MKLClassifier, MultiView
from mklearn.datasets import load
from mklearn.interpretation import kernel_importance
from mklearn.kernels import RBF, Linear
from mklearn.plotting import OKABE_ITO, KernelAlignmentDisplay

try:
    X, y = load("tcga_breast_train", return_X_y=True, download=False)
except FileNotFoundError as missing:
    print(missing)
    data, y = load_breast_cancer(return_X_y=True)
    parts = {"mean": slice(0, 10), "error": slice(10, 20), "worst": slice(20, 30)}
    X = MultiView.from_columns(data, parts)
X_train, X_test, y_train, y_test = train_test_split(
    X, y, test_size=0.4, stratify=y, random_state=0
)
kernels = []
for view in X:
    kernels.append(Linear(view=view, standardize=True, name=f"{view}: linear"))
    kernels.append(RBF(view=view, standardize=True, name=f"{view}: RBF"))
model = MKLClassifier(kernels, norm=2).fit(X_train, y_train)
found = kernel_importance(model, X_test, y_test, by="view", random_state=0)
print(f"accuracy on new samples: {found.score:.3f}")

# %%
# The contribution of a view (left) measures how much the model uses it. The loss of
# accuracy (middle, with the standard deviation over permutations) measures how much the
# model *needs* it. The two differ if views can replace each other. The alignment
# (right) shows which ones can: a value close to one means that two kernels contain the
# same information.

fig, (left, middle, right) = plt.subplots(
    1, 3, figsize=(11, 3.8), width_ratios=[1, 1, 1.5], layout="constrained"
)
colors = OKABE_ITO[: len(found.names)]
share = model.kernel_contributions_.reshape(len(found.names), 2).sum(axis=1)
places = np.arange(len(found.names))
left.bar(places, share, color=colors, edgecolor="black", lw=0.5)
left.set_title("contribution to the decision")
middle.bar(
    places,
    found.mean,
    yerr=found.std,
    color=colors,
    edgecolor="black",
    lw=0.5,
    capsize=4,
)
middle.set_title("accuracy lost if permuted")
middle.axhline(0, color="0.4", lw=0.8)
for ax in (left, middle):
    ax.set_xticks(places, found.names)
    ax.spines[["top", "right"]].set_visible(False)
KernelAlignmentDisplay.from_estimator(model, X_train, ax=right)
plt.show()
