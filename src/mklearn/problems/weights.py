"""Weight sets: where the kernel weights live, and what has a closed form there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]


class WeightSet(Protocol):
    """What problems and solvers ask of a set of kernel weights."""

    def support(self, q: FloatArray) -> float:
        """Return ``max theta'q`` over the set."""

    def center(self, n_kernels: int) -> FloatArray:
        """Return a member that treats all kernels alike."""

    def step(self, norms2: FloatArray) -> FloatArray:
        """Return the member that minimises ``sum_m norms2[m] / theta[m]``."""

    def contains(self, theta: FloatArray, atol: float = 1e-9) -> bool:
        """Tell whether ``theta`` is a member, up to rounding."""


@dataclass(frozen=True)
class LpBall:
    """``theta >= 0, |theta|_p <= 1`` for p in [1, inf].

    p = 1 gives sparse weights, p = inf the unweighted sum of the kernels.
    """

    p: float

    def __post_init__(self) -> None:
        if not self.p >= 1:
            raise ValueError(
                f"norm must be a number p >= 1 or inf, got {self.p}; for p < 1 the "
                "problem is not convex. Try norm=1 for the sparsest weights."
            )

    def support(self, q: FloatArray) -> float:
        """Return the dual norm of the positive part of ``q``."""
        q = np.maximum(q, 0.0)
        if self.p == 1:
            return float(q.max(initial=0.0))
        if np.isinf(self.p):
            return float(q.sum())
        top = q.max(initial=0.0)
        dual = self.p / (self.p - 1.0)
        return float(top * np.sum((q / top) ** dual) ** (1 / dual)) if top > 0 else 0.0

    def center(self, n_kernels: int) -> FloatArray:
        """Return equal weights on the boundary."""
        size = 1.0 if np.isinf(self.p) else n_kernels ** (-1.0 / self.p)
        return np.full(n_kernels, size)

    def step(self, norms2: FloatArray) -> FloatArray:
        """Return the analytic update, LPMKL (17)."""
        norms2 = np.maximum(norms2, 0.0)
        top = norms2.max(initial=0.0)
        if np.isinf(self.p):
            return np.ones(len(norms2))
        if top == 0:
            return self.center(len(norms2))
        w = (norms2 / top) ** (1.0 / (self.p + 1.0))
        return np.asarray(w / np.sum(w**self.p) ** (1.0 / self.p))

    def contains(self, theta: FloatArray, atol: float = 1e-9) -> bool:
        """Tell whether ``theta`` is in the ball and not negative."""
        return bool(
            np.all(theta >= -atol) and np.linalg.norm(theta, self.p) <= 1 + atol
        )
