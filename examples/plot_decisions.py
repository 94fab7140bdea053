"""
Explaining a single decision
============================

The decision value of a kernel machine is a sum over kernels.
:func:`mklearn.interpretation.decision_parts` returns its terms. They show, for a single
sample, which view supports which class, and whether the views agree.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

from mklearn import MKLClassifier, MultiView
from mklearn.interpretation import decision_parts
from mklearn.kernels import RBF
from mklearn.plotting import OKABE_ITO

data = load_breast_cancer()
views = {"mean": slice(0, 10), "error": slice(10, 20), "worst": slice(20, 30)}
X = MultiView.from_columns(data.data, views)
y = data.target_names[data.target]
X_train, X_test, y_train, y_test = train_test_split(X, y, stratify=y, random_state=3)

kernels = [RBF(view=view, standardize=True, name=view) for view in views]
model = MKLClassifier(kernels, normalize="center").fit(X_train, y_train)
found = decision_parts(model, X_test)

# %%
# The figure shows the six tumours closest to the decision boundary and three clear
# cases of each class. The bars are the contributions of the views, and the diamond is
# the decision value: the sum of the bars and the intercept. Misclassified tumours are
# in bold.

decision = found.decision
order = np.argsort(decision)
near = np.argsort(np.abs(decision))[:6]
shown = np.r_[
    order[[0, 20, 40]], near[np.argsort(decision[near])], order[[-40, -20, -1]]
]
fig, ax = plt.subplots(figsize=(8, 4.8), layout="constrained")
places = np.arange(len(shown))
positive, negative = np.zeros(len(shown)), np.zeros(len(shown))
for m, name in enumerate(found.kernel_names):
    part = found.parts[shown, m]
    start = np.where(part > 0, positive, negative)
    ax.barh(places, part, left=start, color=OKABE_ITO[m], edgecolor="white", label=name)
    positive, negative = positive + np.maximum(part, 0), negative + np.minimum(part, 0)
ax.plot(decision[shown], places, "D", color="black", ms=5, label="decision")
ax.axvline(0, color="0.3", lw=1)
ax.set_yticks(places, [f"tumour {i}: {y_test[i]}" for i in shown])
wrong = model.predict(X_test)[shown] != y_test[shown]
for tick, bad in zip(ax.get_yticklabels(), wrong, strict=True):
    tick.set_fontweight("bold" if bad else "normal")
first, second = model.classes_
ax.set_xlabel(f"decision value (negative: {first}, positive: {second})")
ax.legend(frameon=False, loc="lower right")
ax.spines[["top", "right"]].set_visible(False)
plt.show()
