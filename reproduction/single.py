"""One kernel and its regularisation by double cross-validation, as the papers do it.

:class:`mklearn.SingleKernelCV` does the same for any estimator, one fit after another.
Here Grams come from one matrix of distances, discriminants of all regularisations from
one eigendecomposition, and SVMs from LIBSVM, which is what the papers used.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import config_context
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.model_selection import StratifiedKFold
from sklearn.svm import SVC

from mklearn.problems.discriminant import (
    class_targets,
    gaussian_rule,
    projection,
    within_scatter,
)

FloatArray = NDArray[np.float64]
Labels = NDArray[np.intp]
# Gram, kernels of new samples with its samples, labels, regularisations -> the decision
# function of every regularisation, one column for two classes
Rule = Callable[[FloatArray, FloatArray, Labels, Any], list[FloatArray]]


@dataclass(frozen=True)
class Single:
    """Radial kernels of which one is chosen, with its regularisation.

    Parameters
    ----------
    gammas : array of shape (M,)
        Of the kernels ``exp(-gamma |x - z|^2)``.
    values : array of shape (V,)
        Regularisations to choose from.
    rule : callable
        :func:`discriminants`, :func:`svms` or :func:`fisher`.
    folds : int
    """

    gammas: FloatArray
    values: FloatArray
    rule: Rule
    folds: int = 5

    def scores(self, X: FloatArray, labels: Labels) -> FloatArray:
        """Return the mean accuracies in cross-validation, shape (M, V)."""
        D = euclidean_distances(X, squared=True)
        folds = list(StratifiedKFold(self.folds).split(X, labels))
        found = np.zeros((len(self.gammas), len(self.values)))
        for m, gamma in enumerate(self.gammas):
            K = np.exp(-gamma * D)
            for a, b in folds:
                part, cross = K[np.ix_(a, a)], K[np.ix_(b, a)]
                each = self.rule(part, cross, labels[a], self.values)
                found[m] += [np.mean(classes(F) == labels[b]) for F in each]
        return found / len(folds)

    def decision(
        self, X: FloatArray, labels: Labels, new: FloatArray, kernel: int, value: float
    ) -> FloatArray:
        """Return the decision function on new samples of one kernel and value."""
        gamma = self.gammas[kernel]
        K = np.exp(-gamma * euclidean_distances(X, squared=True))
        cross = np.exp(-gamma * euclidean_distances(new, X, squared=True))
        return self.rule(K, cross, labels, [value])[0]


def best(scores: FloatArray) -> tuple[int, int]:
    """Return kernel and value of the best score; of ties the first."""
    # scores that differ by rounding are ties
    m, v = np.unravel_index(int(np.argmax(scores.round(12))), scores.shape)
    return int(m), int(v)


def classes(decision: FloatArray) -> Labels:
    """Return the numbers of the classes that a decision function says."""
    if decision.shape[1] == 1:
        return (decision[:, 0] > 0).astype(np.intp)
    return decision.argmax(axis=1)


# --- rules ----------------------------------------------------------------------------


def discriminants(
    K: FloatArray, cross: FloatArray, labels: Labels, regs: Any
) -> list[FloatArray]:
    """Return the rules of regularised discriminants, on the kernel of unit trace."""
    n, k = len(labels), int(labels.max()) + 1
    mean = K.mean(axis=0)
    G = K - mean - mean[:, None] + mean.mean()
    trace = np.trace(G)
    cross = (cross - cross.mean(axis=1)[:, None] - mean + mean.mean()) / trace
    values, V = np.linalg.eigh(G / trace)
    values, H = np.maximum(values, 0.0), class_targets(labels, k)
    turned, cross = V.T @ H, cross @ V
    found, one = [], np.ones(n)
    for reg in regs:
        A = turned / (values + reg)[:, None]
        F = V @ (values[:, None] * A)
        turn = projection(H, F, one, k - 1)[0]
        Z = F @ turn
        means, scatter = within_scatter(Z, labels, one)
        covariance = (scatter + reg * (V @ A @ turn).T @ Z) / n
        coef, shift = gaussian_rule(means, covariance, np.full(k, 1.0 / k))
        if k == 2:
            coef, shift = coef[[1]] - coef[[0]], shift[[1]] - shift[[0]]
        found.append(cross @ (A @ turn) @ coef.T + shift)
    return found


def svms(
    K: FloatArray, cross: FloatArray, labels: Labels, costs: Any
) -> list[FloatArray]:
    """Return support vector machines by LIBSVM, on the kernel of unit variance."""
    variance = np.trace(K) / len(K) - K.mean()
    K, cross = K / variance, cross / variance
    found = []
    with config_context(assume_finite=True, skip_parameter_validation=True):
        for C in costs:
            model = SVC(C=C, kernel="precomputed").fit(K, labels)
            F = model.decision_function(cross)
            found.append(F[:, None] if F.ndim == 1 else F)
    return found


def fisher(
    K: FloatArray, cross: FloatArray, labels: Labels, regs: Any
) -> list[FloatArray]:
    """Return Fisher discriminants of two classes, KFDA (3) to (5).

    With ``w = U alpha``, (3) is ``(J J G + lam I) alpha = a``. The threshold is the
    midpoint of the projected class means.
    """
    a = class_targets(labels, 2)
    JJG = np.empty_like(K)
    for label in (0, 1):
        rows = np.flatnonzero(labels == label)
        JJG[rows] = (K[rows] - K[rows].mean(axis=0)) / len(rows)
    found = []
    for reg in regs:
        alpha = np.linalg.solve(JJG + reg * np.eye(len(K)), a)
        Z = K @ alpha
        middle = 0.5 * (Z[labels == 0].mean() + Z[labels == 1].mean())
        found.append(cross @ alpha - middle)
    return found
