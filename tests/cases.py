"""Problems shared by the tests, and their optimum by a general conic solver."""

import numpy as np
import pytest

from mklearn import Hinge, KernelBank, LpBall, MKLProblem

NORMS = [1, 4 / 3, 2, 4, np.inf]


def samples(n=40, n_classes=2, n_features=5, seed=0):
    """Return overlapping classes that differ in the first two columns."""
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % n_classes
    X = rng.normal(size=(n, n_features))
    angle = 2 * np.pi * labels / n_classes
    X[:, 0] += 1.2 * np.cos(angle)
    X[:, 1] += 1.2 * np.sin(angle)
    return X, labels


def signs(n=40, seed=0):
    X, labels = samples(n, seed=seed)
    return X, np.where(labels == 1, 1.0, -1.0)


def squared_distances(X, Z=None):
    Z = X if Z is None else Z
    return ((X[:, None, :] - Z[None, :, :]) ** 2).sum(axis=2)


def stack(X, n_kernels=5, Z=None):
    """Return a linear and several RBF kernels, shape (n_X, n_Z, n_kernels)."""
    Z = X if Z is None else Z
    D = squared_distances(X, Z)
    widths = np.geomspace(0.02, 2.0, n_kernels - 1) if n_kernels > 1 else []
    return np.stack([X @ Z.T / X.shape[1], *(np.exp(-g * D) for g in widths)], axis=2)


def hinge(y, C=1.0):
    """Return the loss of one task (y of shape (n,)) or several (n, T)."""
    Y = np.asarray(y, dtype=float)
    Y = Y[:, None] if Y.ndim == 1 else Y
    cost = np.asarray(C, dtype=float)
    if cost.ndim == 1:
        cost = cost[:, None]
    return Hinge(Y, np.broadcast_to(cost, Y.shape).copy())


def problem(grams, y, C=1.0, p=2.0):
    return MKLProblem(KernelBank.from_grams(grams), hinge(y, C), LpBall(p))


def small(n=40, n_kernels=5, C=1.0, p=2.0, seed=0):
    X, y = signs(n, seed)
    return problem(stack(X, n_kernels), y, C, p)


def factor(K):
    """Return L with ``L L' = K`` for a positive semidefinite K."""
    values, vectors = np.linalg.eigh((K + K.T) / 2)
    return vectors * np.sqrt(np.maximum(values, 0.0))


def conic_optimum(grams, y, C, p):
    """Return ``max 1'a - ½ |(a'YK_mYa)_m|_{p*}``, ``0 <= a <= C``, ``y'a = 0``."""
    cp = pytest.importorskip("cvxpy")
    pytest.importorskip("clarabel")
    n, _, M = grams.shape
    a, q = cp.Variable(n), cp.Variable(M, nonneg=True)
    dual = 1.0 if np.isinf(p) else (np.inf if p == 1 else p / (p - 1))
    norm = (
        cp.max(q) if np.isinf(dual) else cp.sum(q) if dual == 1 else cp.pnorm(q, dual)
    )
    limits = [a >= 0, a <= C, y @ a == 0]
    limits += [
        cp.sum_squares((y[:, None] * factor(grams[:, :, m])).T @ a) <= q[m]
        for m in range(M)
    ]
    model = cp.Problem(cp.Maximize(cp.sum(a) - 0.5 * norm), limits)
    return float(model.solve(solver=cp.CLARABEL))


def rounding(task, solution):
    """Return the possible difference of bounds that are computed in another order.

    A sum of n terms is accurate up to ``n eps`` times the sum of their magnitudes.
    Scores are sums over samples and kernels; they enter the losses with the costs, and
    the regulariser with A.
    """
    n, _, M = task.bank.shape
    eps = (2 * n + M + 10) * np.finfo(float).eps
    sizes = [np.abs(task.bank.gram(m)) for m in range(M)]
    A, dual = np.abs(solution.A), np.abs(solution.dual)
    scores = sum(t * K for t, K in zip(solution.theta, sizes, strict=True)) @ A
    known = np.abs(task.loss.Y) + np.abs(solution.bias)
    upper = np.sum((task.loss.C + A) * (scores + known))
    quads = np.array([np.sum(dual * (K @ dual)) for K in sizes])
    lower = np.sum(dual * np.abs(task.loss.Y)) + task.weights.support(quads)
    return 2 * eps * upper, 2 * eps * lower


def patient_columns(rng, n):
    """Return a table of two numeric features and two covariates."""
    import pandas as pd

    return pd.DataFrame(
        {
            "a": rng.standard_normal(n),
            "age": rng.uniform(20, 80, n),
            "b": rng.standard_normal(n),
            "site": rng.choice(["x", "y", "z"], n),
        }
    )
