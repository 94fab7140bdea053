"""
Where in the cell? Kernels on protein sequences
===============================================

Kernels do not need numbers as input. A spectrum kernel compares two sequences by the
substrings of length k that they share. The signals that direct a protein to its place
in the cell are often at one of its ends, so the first and the last residues are
separate views in addition to the whole sequence, with three kernels each.

The sequences are those of MultiLoc. If the data file is not available, rows of
handwritten digits, encoded as letters, are used instead.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.metrics import ConfusionMatrixDisplay

from mklearn import MKLClassifier, MultiView
from mklearn.datasets import load
from mklearn.kernels import Spectrum
from mklearn.plotting import KernelWeightsDisplay

try:
    data = load("multiloc_sequences", download=False)
    sequences, labels = data.data["sequence"], data.target
    chosen = ["extracellular", "mitochondrial", "nuclear", "plasma_membrane"]
    ends = 30
except FileNotFoundError as missing:
    print(missing)
    digits = load_digits()
    alphabet = np.array(list("ACDEFGHIKLMNPQRST"))
    sequences = ["".join(alphabet[row]) for row in digits.data.astype(int)]
    labels = np.array([f"digit {d}" for d in digits.target])
    chosen = ["digit 0", "digit 1", "digit 4", "digit 7"]
    ends = 16

rng = np.random.default_rng(0)
rows = np.concatenate(
    [rng.permutation(np.flatnonzero(labels == one))[:100] for one in chosen]
)
rows = rng.permutation(rows)
strings = [str(sequences[i]) for i in rows]
X = MultiView(
    {
        "start": [s[:ends] for s in strings],
        "whole": strings,
        "end": [s[-ends:] for s in strings],
    }
)
y = labels[rows]
train, test = slice(0, 280), slice(280, None)

# %%
# ``normalize="spherical"`` scales all feature vectors to unit length, so that long
# proteins are not similar to everything.

kernels = [Spectrum(k, view=view) for view in X for k in (1, 2, 3)]
model = MKLClassifier(kernels, norm=1, C=10.0, normalize="spherical")
model.fit(X[train], y[train])
print(f"accuracy on {len(y[test])} new sequences: {model.score(X[test], y[test]):.2f}")

fig, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4.6), layout="constrained")
KernelWeightsDisplay.from_estimator(model, ax=left)
left.set_xlabel("weight θ (number: contribution)")
ConfusionMatrixDisplay.from_predictions(
    y[test],
    model.predict(X[test]),
    ax=right,
    cmap="Blues",
    colorbar=False,
    xticks_rotation=30,
)
right.set_title("new sequences")
plt.show()
