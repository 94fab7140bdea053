"""
Four tables, and a third of the patients missing from each
==========================================================

Many studies have one table for each assay, and the tables do not contain the same
patients. Here the 30 columns of the diagnostic breast cancer data are used to make four
tables. A third of the patients is removed from each, and the rows are shuffled.
:class:`mklearn.MultiView` joins the tables by patient, treats a missing table as a
missing view, and keeps the names of the patients in all results.
"""

from pathlib import Path
from tempfile import mkdtemp

import matplotlib.pyplot as plt
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

from mklearn import MKLClassifier, MultiView
from mklearn.interpretation import decision_parts
from mklearn.plotting import KernelWeightsDisplay
from mklearn.report import Report, describe_data, write_html

table, ill = load_breast_cancer(return_X_y=True, as_frame=True)
table.index = ill.index = [f"patient {i}" for i in range(len(table))]
parts = {
    "size": [0, 2, 3],
    "shape": [4, 5, 6, 7],
    "texture": [1, 11],
    "worst": [20, 27],
}
frames = {
    name: table.iloc[:, columns].sample(frac=2 / 3, random_state=seed)
    for seed, (name, columns) in enumerate(parts.items())
}

# %%
# From four tables to predictions and a report:

X = MultiView.from_frames(frames, join="outer")
X, y = X.align(ill.loc[X.ids])
X_train, X_test, y_train, y_test = train_test_split(X, y, stratify=y, random_state=0)
model = MKLClassifier(["linear", "rbf"], norm=1).fit(X_train, y_train)
print(X)
print(f"accuracy on {len(X_test)} new patients: {model.score(X_test, y_test):.3f}")
print(decision_parts(model, X_test[:3]).to_frame().round(2).T)
report = Report("Four assays", describe_data(X_train, y_train), model)
write_html(Path(mkdtemp()) / "report.html", report)

KernelWeightsDisplay.from_estimator(model)
plt.show()
