"""
Three views of tumours
======================

The first example: 569 tumours, whose cell nuclei are described by ten measurements in
three ways, the mean, its standard error and the worst value. Each way is a *view*.
Every view gets a linear kernel and five Gaussian ones, and the classifier learns what
each of the 18 is worth.
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
# With ``norm=1`` the weights sum to one and most are zero. The number beside a bar is
# the kernel's contribution: its share in the squared norm of the decision function,
# which does not depend on how kernels are scaled.

fig, ax = plt.subplots(figsize=(7, 6.5), layout="constrained")
KernelWeightsDisplay.from_estimator(model, ax=ax)
plt.show()

# %%
# Training stopped where two bounds met. No weights and no decision function can have an
# objective below the lower one; the model has the upper one.

fig, ax = plt.subplots(figsize=(6, 3.6), layout="constrained")
ConvergenceDisplay.from_estimator(model, ax=ax)
plt.show()
