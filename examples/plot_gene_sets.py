"""
Which gene sets distinguish B cells?
====================================

Each gene set gets a linear kernel, and sparse weights (``norm=1``) select the sets that
are needed to recognise B cells among 700 blood cells. If scanpy is installed, the cells
are its reduced PBMC data; otherwise they are simulated, with higher expression of the B
cell genes in some of them.
"""

import warnings
from importlib.util import find_spec
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.model_selection import train_test_split

from mklearn import MKLClassifier
from mklearn.kernels import Linear, per_group

SETS = {
    "B cells": ["MS4A1", "CD79A", "CD79B", "CD37", "TCL1A", "HLA-DQA1", "CD74"],
    "T cells": ["CD3D", "CD3E", "CD2", "IL7R", "LTB", "CD27", "TRAC"],
    "cytotoxic cells": ["NKG7", "GZMA", "GZMB", "PRF1", "GNLY", "CST7", "CD8A"],
    "monocytes": ["LYZ", "S100A8", "S100A9", "CST3", "FCN1", "CD14", "TYROBP"],
    "antigen presentation": ["HLA-DRA", "HLA-DRB1", "HLA-DPA1", "HLA-DPB1", "CD74"],
    "platelets": ["PPBP", "PF4", "SDPR", "GNG11"],
}


def cells():
    """Return the expression of genes, and whether each cell is a B cell."""
    scanpy = find_spec("scanpy")
    if scanpy is not None and find_spec("anndata") is not None:
        import anndata

        path = Path(scanpy.origin).parent / "datasets" / "10x_pbmc68k_reduced.h5ad"
        with warnings.catch_warnings():
            # an early version of anndata wrote the file, which causes a warning
            warnings.simplefilter("ignore", anndata.OldFormatWarning)
            found = anndata.read_h5ad(path).raw.to_adata()
        kind = found.obs["bulk_labels"].astype(str)
        values = np.asarray(found.X.toarray())
        return pd.DataFrame(values, columns=list(found.var_names)), kind == "CD19+ B"
    print("scanpy is not installed: these cells are simulated")
    rng = np.random.default_rng(0)
    genes = sorted({gene for genes in SETS.values() for gene in genes})
    kind = rng.uniform(size=700) < 0.15
    counts = rng.poisson(1.0, (700, len(genes))).astype(float)
    raised = [gene in SETS["B cells"] for gene in genes]
    counts[:, raised] += rng.poisson(2.0 * kind[:, None], (700, sum(raised)))
    return pd.DataFrame(np.log1p(counts), columns=genes), kind


X, is_b = cells()
family = per_group(SETS, kernel=Linear(standardize=True))
print(family.report(X))

# %%
# Fit a model and evaluate it on new cells:

X_train, X_test, y_train, y_test = train_test_split(
    X, np.asarray(is_b), stratify=is_b, random_state=0
)
model = MKLClassifier(family, norm=1, C=0.1).fit(X_train, y_train)
print(f"accuracy on {len(X_test)} new cells: {model.score(X_test, y_test):.3f}")
shares = pd.Series(model.kernel_contributions_, index=model.kernel_names_)
print(shares.round(3))

# %%
# With ``norm=2``, sets that add little are used as well:

shared = MKLClassifier(family, norm=2, C=0.1).fit(X_train, y_train)
both = pd.DataFrame({"norm=1": shares, "norm=2": shared.kernel_contributions_})
fig, ax = plt.subplots(figsize=(7, 3.6), layout="constrained")
both.sort_values("norm=2").plot.barh(color=["#0072B2", "#E69F00"], ax=ax)
ax.set_xlabel("contribution to the decision")
ax.spines[["top", "right"]].set_visible(False)
plt.show()
