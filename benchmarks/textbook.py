"""Textbook multiple kernel learning: a loop around ``SVC`` on full Gram matrices.

These are straightforward implementations of the papers, with a correct stopping rule:
the relative duality gap at p = 1. Benchmarks use them as the alternative, so they do
nothing beyond the published descriptions.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import linprog
from sklearn.svm import SVC


class _Wrapper:
    """The inner step: sum the Grams, fit ``SVC``, and compute value and gradient."""

    def __init__(self, grams: list[np.ndarray], y: np.ndarray, C: float) -> None:
        self.grams, self.y, self.C = grams, y, C
        self.best, self.lower, self.fits = np.inf, -np.inf, 0

    def __call__(self, theta: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        K = np.zeros_like(self.grams[0])
        for t, G in zip(theta, self.grams, strict=True):
            if t > 0:
                K += t * G
        model = SVC(kernel="precomputed", C=self.C, tol=1e-4, cache_size=1000)
        model.fit(K, self.y)
        self.fits += 1
        c = np.zeros(len(self.y))
        c[model.support_] = model.dual_coef_[0]
        q = np.array([c @ G @ c for G in self.grams])
        value = np.abs(c).sum() - 0.5 * theta @ q
        self.best = min(self.best, value)
        self.lower = max(self.lower, np.abs(c).sum() - 0.5 * q.max())
        return value, q, c

    @property
    def gap(self) -> float:
        return (self.best - self.lower) / abs(self.best)


def silp(grams, y, C=1.0, tol=1e-3, max_fits=200) -> dict:
    """Sonnenburg et al. 2006: cutting planes with a linear program over the simplex."""
    M = len(grams)
    svm = _Wrapper(grams, y, C)
    theta = np.full(M, 1.0 / M)
    cuts, levels = [], []
    while svm.fits < max_fits:
        _, q, c = svm(theta)
        cuts.append(-0.5 * q)
        levels.append(np.abs(c).sum())
        result = linprog(
            np.r_[np.zeros(M), 1.0],
            A_ub=np.c_[np.array(cuts), -np.ones(len(cuts))],
            b_ub=-np.array(levels),
            A_eq=[np.r_[np.ones(M), 0.0]],
            b_eq=[1.0],
            bounds=[(0, None)] * M + [(None, None)],
            method="highs",
        )
        svm.lower = max(svm.lower, result.fun)
        if svm.gap <= tol:
            break
        theta = np.maximum(result.x[:M], 0.0)
        theta /= theta.sum()
    return {"fits": svm.fits, "gap": svm.gap}


def simple_mkl(grams, y, C=1.0, tol=1e-3, max_fits=400) -> dict:
    """Rakotomamonjy et al. 2008: reduced gradient with a line search of SVM fits."""
    M = len(grams)
    svm = _Wrapper(grams, y, C)
    theta = np.full(M, 1.0 / M)
    value, q, _ = svm(theta)
    while svm.fits < max_fits and svm.gap > tol:
        gradient = -0.5 * q
        top = int(np.argmax(theta))
        reduced = gradient - gradient[top]
        D = np.where((theta <= 1e-12) & (reduced > 0), 0.0, -reduced)
        D[top] = -(D.sum() - D[top])
        # set the components that vanish first to zero while the value decreases
        while svm.fits < max_fits:
            falling = np.flatnonzero(D < 0)
            if len(falling) == 0:
                break
            steps = -theta[falling] / D[falling]
            limit = steps.min()
            trial = np.maximum(theta + limit * D, 0.0)
            new_value, new_q, _ = svm(trial / trial.sum())
            if new_value >= value:
                break
            theta, value, q = trial / trial.sum(), new_value, new_q
            stopped = falling[np.argmin(steps)]
            D[top] += D[stopped] if stopped != top else 0.0
            D[stopped] = 0.0
            if stopped == top:
                break
        falling = np.flatnonzero(D < 0)
        if len(falling) == 0:
            continue
        # golden section search on the rest of the line
        low, high = 0.0, float(np.min(-theta[falling] / D[falling]))
        ratio = (np.sqrt(5) - 1) / 2
        a, b = high - ratio * (high - low), low + ratio * (high - low)
        fa, fb = svm(theta + a * D), svm(theta + b * D)
        for _ in range(8):
            if fa[0] < fb[0]:
                high, b, fb = b, a, fa
                a = high - ratio * (high - low)
                fa = svm(theta + a * D)
            else:
                low, a, fa = a, b, fb
                b = low + ratio * (high - low)
                fb = svm(theta + b * D)
            if svm.gap <= tol:
                break
        step, best = (a, fa) if fa[0] < fb[0] else (b, fb)
        if best[0] < value:
            theta = np.maximum(theta + step * D, 0.0)
            theta /= theta.sum()
            value, q = best[0], best[1]
    return {"fits": svm.fits, "gap": svm.gap}
