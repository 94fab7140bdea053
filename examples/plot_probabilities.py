"""
Calibrated probabilities
========================

There are three ways to predict probabilities: the logistic loss, discriminant analysis,
and scikit-learn's calibration of a classifier that has no probabilities of its own.
With a bank of kernels, calibration computes each kernel only once. A model is well
calibrated if, among the samples for which it predicts 70 %, about 70 % belong to the
class.

The data are measurements of women, some of whom developed diabetes. If the data file is
not available, breast tumours are used instead.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.calibration import CalibratedClassifierCV, calibration_curve
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

from mklearn import KernelBank, MKLClassifier, MKLDiscriminant
from mklearn.datasets import load
from mklearn.kernels import RBF, Linear
from mklearn.plotting import OKABE_ITO

try:
    X, y = load("pima", return_X_y=True, download=False)
except FileNotFoundError as missing:
    print(missing)
    X, y = load_breast_cancer(return_X_y=True)
y = (y == np.unique(y)[1]).astype(int)
X_train, X_test, y_train, y_test = train_test_split(
    X, y, test_size=0.5, stratify=y, random_state=0
)
kernels = [
    Linear(standardize=True),
    RBF(factor=0.25, standardize=True),
    RBF(standardize=True),
]
bank = KernelBank(X_train, kernels).stored()
hinge = MKLClassifier("precomputed", C=1.0)
models = {
    "logistic loss": MKLClassifier("precomputed", C=1.0, loss="logistic"),
    "discriminant": MKLDiscriminant("precomputed", reg="loo", priors="empirical"),
    "hinge loss, calibrated": CalibratedClassifierCV(hinge, ensemble=False, cv=5),
}

fig, ax = plt.subplots(figsize=(5.4, 5), layout="constrained")
ax.plot([0, 1], [0, 1], color="0.6", lw=1, ls="--")
for (name, model), color, marker in zip(models.items(), OKABE_ITO, "os^", strict=False):
    model.fit(bank, y_train)
    p = model.predict_proba(bank.cross(X_test))[:, 1]
    observed, predicted = calibration_curve(y_test, p, n_bins=8, strategy="quantile")
    label = f"{name}, log-loss {log_loss(y_test, p):.3f}"
    ax.plot(predicted, observed, color=color, marker=marker, label=label)
ax.set_xlabel("predicted probability")
ax.set_ylabel("observed frequency, new samples")
ax.set_aspect("equal")
ax.legend(frameon=False, loc="upper left", fontsize="small")
ax.spines[["top", "right"]].set_visible(False)
plt.show()
