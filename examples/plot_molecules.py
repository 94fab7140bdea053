"""
Boiling points from fingerprints of molecules
=============================================

Chemists compare molecules by fingerprints, counts of the substructures that they
contain, and by the Tanimoto kernel on these. There are several kinds of fingerprints,
and it is not known in advance which one suits a property: here each is a view, and the
weights say which of them a model of boiling points uses.

The fingerprints are computed by RDKit if it is installed (``pip install rdkit``), and
otherwise from the formula as text (SMILES): single symbols, and two or three in a row.
The first line that is printed says which were used.
"""

from collections import Counter
from importlib.metadata import version
from importlib.util import find_spec

import matplotlib.pyplot as plt
import numpy as np
from sklearn.model_selection import KFold, cross_val_predict

from mklearn import MKLRegressor, MultiView
from mklearn.kernels import Tanimoto

# Boiling points at normal pressure, in degrees Celsius
MOLECULES = {
    "C": -161.5, "CC": -88.6, "CCC": -42.1, "CCCC": -0.5, "CCCCC": 36.1,
    "CCCCCC": 68.7, "CCCCCCC": 98.4, "CCCCCCCC": 125.7, "CCCCCCCCC": 150.8,
    "CC(C)C": -11.7, "CC(C)CC": 27.8, "CC(C)(C)C": 9.5, "CC(C)CCC": 60.3,
    "CCC(C)CC": 63.3, "CC(C)(C)CC": 49.7, "CC(C)C(C)C": 58.0, "C1CCCC1": 49.3,
    "C1CCCCC1": 80.7, "CO": 64.7, "CCO": 78.3, "CCCO": 97.2, "CC(C)O": 82.3,
    "CCCCO": 117.7, "CCC(C)O": 99.5, "CC(C)CO": 107.9, "CC(C)(C)O": 82.4,
    "CCCCCO": 137.9, "CCCCCCO": 157.6, "CCCCCCCO": 176.5, "CC(=O)O": 117.9,
    "CCC(=O)O": 141.1, "CCCC(=O)O": 163.7, "CCCCC(=O)O": 186.1, "CN": -6.3,
    "CCN": 16.5, "CCCN": 47.2, "CCCCN": 77.0, "CC(=O)C": 56.1, "CCC(=O)C": 79.6,
    "CCCC(=O)C": 102.3, "CC=O": 20.2, "CCC=O": 48.0, "CCCC=O": 74.8, "COC": -24.8,
    "CCOCC": 34.5, "c1ccccc1": 80.1, "Cc1ccccc1": 110.6, "CCc1ccccc1": 136.2,
}  # fmt: skip
smiles, boiling = list(MOLECULES), np.array(list(MOLECULES.values()))

# %%
# One table of counts for each kind of fingerprint:


def by_rdkit():
    """Return three kinds of fingerprints of RDKit."""
    from rdkit import Chem
    from rdkit.Chem import rdFingerprintGenerator

    molecules = [Chem.MolFromSmiles(one) for one in smiles]
    kinds = {
        "circles": rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=512),
        "pairs": rdFingerprintGenerator.GetAtomPairGenerator(fpSize=512),
        "paths": rdFingerprintGenerator.GetRDKitFPGenerator(maxPath=4, fpSize=512),
    }
    return {
        name: np.array([kind.GetCountFingerprintAsNumPy(m) for m in molecules], float)
        for name, kind in kinds.items()
    }


def by_hand():
    """Return counts of one, two and three symbols in a row."""
    found = {}
    for length, name in enumerate(("symbols", "pairs", "triples"), start=1):
        pieces = [
            Counter(f" {one} "[i : i + length] for i in range(len(one) + 3 - length))
            for one in smiles
        ]
        known = sorted(set().union(*pieces))
        found[name] = np.array([[p[k] for k in known] for p in pieces], dtype=float)
    return found


if find_spec("rdkit") is None:
    print("RDKit is not installed: fingerprints are those of this example")
    views = by_hand()
else:
    print(f"fingerprints are those of RDKit {version('rdkit')}")
    views = by_rdkit()

# %%
# A Tanimoto kernel on each view, and predictions for molecules that were left out:

X = MultiView(views)
kernels = [Tanimoto(view=name) for name in views]
model = MKLRegressor(kernels, norm=1, loss="squared", C=100)
folds = KFold(8, shuffle=True, random_state=0)
predicted = cross_val_predict(model, X, boiling, cv=folds)
error = np.abs(predicted - boiling).mean()
spread = np.abs(boiling - boiling.mean()).mean()
print(f"mean error {error:.1f} degrees; predicting the mean gives {spread:.1f}")
model.fit(X, boiling)
for name, share in zip(views, model.kernel_contributions_, strict=True):
    print(f"  {name}: {share:.2f}")

plt.plot(boiling, predicted, "o", color="#0072B2")
plt.axline((0, 0), slope=1, color="0.7", zorder=0)
plt.xlabel("boiling point")
plt.ylabel("predicted, left out")
plt.tight_layout()
plt.show()
