"""
Three views of tumours
======================

This is a good example to start with. The cell nuclei of 569 tumours are described by
ten measurements in three ways: the mean, its standard error and the worst value. Each
of the three is a *view*. Every view gets a linear kernel and five Gaussian kernels, and
the classifier learns the weights of these 18 kernels.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

from mklearn import MKLClassifier, MultiView
from mklearn.plotting import ConvergenceDisplay, KernelWeightsDisplay

data = load_breast_cancer()
views = {"mean": slice(0, 10), "error": slice(10, 20), "worst": slice(20, 30)}
X = MultiView.from_columns(data.data, views)
y = data.target_names[data.target]
X_train, X_test, y_train, y_test = train_test_split(X, y, stratify=y, random_state=0)

model = MKLClassifier(norm=1).fit(X_train, y_train)
print(f"accuracy on {len(y_test)} new tumours: {model.score(X_test, y_test):.3f}")
print(model.solution_.message)

# %%
# With ``norm=1``, the weights sum to one, and most of them are zero. The number beside
# each bar is the contribution of the kernel: its share of the squared norm of the
# decision function, which does not depend on how kernels are scaled.

fig, ax = plt.subplots(figsize=(7, 6.5), layout="constrained")
KernelWeightsDisplay.from_estimator(model, ax=ax)
plt.show()

# %%
# Training stopped when two bounds met. No weights and no decision function have an
# objective below the lower bound, and the model attains the upper bound.

fig, ax = plt.subplots(figsize=(6, 3.6), layout="constrained")
ConvergenceDisplay.from_estimator(model, ax=ax)
plt.show()
