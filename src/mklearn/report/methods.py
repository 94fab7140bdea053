"""The methods section for a paper about a run, with references."""

from __future__ import annotations

from collections import Counter

import numpy as np
from sklearn.base import is_regressor

from mklearn import __version__
from mklearn.fitted import kernel_rows, proofs, widest
from mklearn.report import words
from mklearn.report.facts import Report

SOURCES = {
    "mkl": "Lanckriet, G. R. G., Cristianini, N., Bartlett, P., El Ghaoui, L. and "
    "Jordan, M. I. (2004). Learning the kernel matrix with semidefinite programming. "
    "Journal of Machine Learning Research 5, 27-72.",
    "lp": "Kloft, M., Brefeld, U., Sonnenburg, S. and Zien, A. (2011). lp-norm "
    "multiple kernel learning. Journal of Machine Learning Research 12, 953-997.",
    "differences": "Nadeau, C. and Bengio, Y. (2003). Inference for the "
    "generalization error. Machine Learning 52, 239-281.",
    "scikit-learn": "Pedregosa, F. et al. (2011). Scikit-learn: machine learning in "
    "Python. Journal of Machine Learning Research 12, 2825-2830.",
}


def methods_text(report: Report) -> tuple[str, list[str]]:
    """Return sentences for a methods section, and the sources that they cite.

    Parameters
    ----------
    report : Report
    """
    model, data = report.model, report.data
    rows, cited = kernel_rows(model), ["mkl"]
    kinds = Counter(row.name.rpartition(":")[2] for row in rows)
    views = len(data.views)
    per = "each view" if views > 1 else "the samples"
    listed = ", ".join(kinds) if len(kinds) <= 8 else f"{len(kinds)} kernels"
    task = "regression" if is_regressor(model) else "classification"
    said = [
        f"{data.n_samples} samples in {views} view{'s' if views > 1 else ''} "
        f"({', '.join(f'{k}: {n} columns' for k, n in data.views.items())}) were used "
        f"for {task} by multiple kernel learning (Lanckriet et al., 2004) with "
        f"{len(rows)} kernels, on {per}: {listed}."
    ]
    norm = getattr(model, "norm_", getattr(model, "norm", None))
    if isinstance(norm, (int, float)):
        if np.isinf(norm):
            kept = " that were kept" if getattr(model, "rejected_", ()) else ""
            said.append(f"All normalised kernels{kept} had the same weight.")
        else:
            said.append(
                f"Kernel weights were learned under an l{norm:.3g}-norm (Kloft et al., "
                "2011)."
            )
            cited.append("lp")
    cost = getattr(model, "C_", getattr(model, "C", None))
    if hasattr(model, "Cs_"):
        said.append(
            f"C, out of {len(model.Cs_)} values from {min(model.Cs_):.3g} to "
            f"{max(model.Cs_):.3g}, and the norm, out of {len(model.norms_)}, were "
            "chosen by cross-validation within the training samples (C = "
            f"{model.C_:.3g} on all samples)."
        )
    elif isinstance(cost, (int, float)):
        said.append(f"C was {cost:.3g}.")
    if getattr(model, "rejected_", ()):
        said.append(
            f"{len(model.rejected_)} kernels with the narrowest widths were left out "
            "because the sum of the others scored better on the same folds."
        )
    solutions = proofs(model)
    if solutions:
        said.append(
            "The training objective is certified by its dual to be within "
            f"{100 * widest(solutions).gap:.2g} % of the optimum."
        )
    if data.missing:
        said.append(f"{data.missing} missing values were filled in.")
    if data.absent:
        lacking = ", ".join(f"{n} lacked {view}" for view, n in data.absent.items())
        said.append(
            f"Of the samples, {lacking}; samples without a view were assigned the "
            "average of those that have it."
        )
    if report.comparison is not None:
        folds = report.comparison.scores.shape[1]
        score = words.scoring_name(report.scoring).removeprefix("-")
        said.append(
            f"All models were scored by {score} on the same {folds} folds; standard "
            "errors of differences are corrected for the overlap of training sets "
            "(Nadeau and Bengio, 2003)."
        )
        cited.append("differences")
    said.append(
        f"Computations were done with mklearn {__version__} and scikit-learn "
        "(Pedregosa et al., 2011)."
    )
    cited.append("scikit-learn")
    return " ".join(said), [SOURCES[key] for key in cited]
