"""
Clinic and genes: who stays free of metastases?
===============================================

198 women with breast cancer (GSE7390, which comes with scikit-survival): the time until
distant metastases, censored for three of four. There are two views, what the clinic
knows (age, oestrogen receptor, grade, size) and 76 genes. Cox's model with a kernel for
each view weighs them against each other. (Without scikit-survival, simulated patients
stand in.)
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.model_selection import StratifiedKFold

from mklearn import MKLCox, MultiView
from mklearn.kernels import RBF, Linear
from mklearn.plotting import OKABE_ITO
from mklearn.survival import concordance_index, dynamic_auc, kaplan_meier

try:
    from sksurv.datasets import load_breast_cancer

    table, raw = load_breast_cancer()
    codes = {"well differentiated": 1, "intermediate": 2, "poorly differentiated": 3}
    clinic = np.column_stack([
        table["age"], table["size"], table["er"] == "positive",
        [codes.get(grade, 2) for grade in table["grade"]],
    ]).astype(float)  # fmt: skip
    genes = table.filter(like="X").to_numpy(float)
    years, event = raw["t.tdm"] / 365.25, raw["e.tdm"]
except ImportError as missing:
    print(missing, "- simulated patients stand in")
    rng = np.random.default_rng(0)
    clinic, genes = rng.normal(size=(198, 4)), rng.normal(size=(198, 76))
    life = 12 * rng.exponential(np.exp(-0.7 * clinic[:, 1] - 0.4 * genes[:, 0]))
    years, event = np.minimum(life, 8.0), life < 8.0

X = MultiView({"clinic": clinic, "genes": genes})
y = np.column_stack([years, event])
kernels = {
    "clinic": [Linear(view="clinic", standardize=True)],
    "genes": [Linear(view="genes", standardize=True),
              RBF(view="genes", standardize=True)],
}  # fmt: skip
kernels["both"] = kernels["clinic"] + kernels["genes"]

# %%
# Each patient gets a risk from a model that has not seen her. Risks of different models
# are not comparable, so concordance, and the halves of low and high risk, are those of
# each fold.

folds = list(StratifiedKFold(5, shuffle=True, random_state=0).split(clinic, event))
for name, chosen in kernels.items():
    scores, areas, high = [], [], np.zeros(len(y), dtype=bool)
    for train, test in folds:
        model = MKLCox(chosen, C=0.1, norm=2).fit(X[train], y[train])
        risk = model.predict(X[test])
        scores.append(concordance_index(y[test], risk))
        areas.append(dynamic_auc(y[train], y[test], risk, [3.0, 5.0, 8.0]))
        high[test] = risk > np.median(risk)
    error = np.std(scores, ddof=1) / len(scores) ** 0.5
    print(f"{name}: concordance {np.mean(scores):.3f} ± {error:.3f}, area under the "
          f"curve at 3, 5 and 8 years {np.mean(areas, axis=0).round(2)}")  # fmt: skip

# %%
# Kaplan-Meier curves of the two halves (left), from the folds, and what each kernel
# contributes to the log hazard of a model of all patients (right).

model = MKLCox(kernels["both"], C=0.1, norm=2).fit(X, y)
print(model.solution_.message)
fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
for group, label, color in ((~high, "low risk", 0), (high, "high risk", 1)):
    curve = kaplan_meier(y[group])
    left.step(
        [0, *curve.x], [1, *curve.y], where="post", color=OKABE_ITO[color],
        label=f"{label}: {int(event[group].sum())} of {int(group.sum())}",
    )  # fmt: skip
left.set(xlabel="years", ylabel="share without metastases", ylim=(0, 1.02))
left.legend(frameon=False)
places = np.arange(len(model.kernel_names_))
right.barh(places, model.kernel_contributions_, color=OKABE_ITO[2])
right.set_yticks(places, model.kernel_names_)
right.set(xlabel="contribution", xlim=(0, 1))
plt.show()
