"""
Survival analysis with clinical variables and genes
===================================================

The data are 198 women with breast cancer (GSE7390, included in scikit-survival). The
target is the time until distant metastases, which is censored for three quarters of
them. There are two views: clinical variables (age, oestrogen receptor, grade, size) and
the expression of 76 genes. A Cox model with kernels on both views learns their weights.
(If scikit-survival is not installed, the patients are simulated.)
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
    print(missing, "- the patients are simulated")
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
# Risks are predicted by cross-validation, so that no patient's risk comes from a model
# that has seen her. Risks of different models are not comparable; therefore the
# concordance, and the division into low and high risk, are computed within each fold.

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
# Left: Kaplan-Meier curves of the patients with low and high cross-validated risk;
# after 12 years only few patients are left. Right: the contribution of each kernel to
# the log hazard, in a model fitted on all patients.

model = MKLCox(kernels["both"], C=0.1, norm=2).fit(X, y)
print(model.solution_.message)
fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
for group, label, color in ((~high, "low risk", 0), (high, "high risk", 1)):
    curve = kaplan_meier(y[group])
    left.step(
        [0, *curve.x], [1, *curve.y], where="post", color=OKABE_ITO[color],
        label=f"{label}: {int(event[group].sum())} events in {int(group.sum())}",
    )  # fmt: skip
left.set(xlabel="years", ylabel="free of metastases", xlim=(0, 12), ylim=(0, 1.02))
left.legend(frameon=False)
places = np.arange(len(model.kernel_names_))
right.barh(places, model.kernel_contributions_, color=OKABE_ITO[2])
right.set_yticks(places, model.kernel_names_)
right.set(xlabel="contribution", xlim=(0, 1))
for ax in (left, right):
    ax.spines[["top", "right"]].set_visible(False)
plt.show()
