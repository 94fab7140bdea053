"""Estimators that solve an MKL problem: loss x norm, solved and kept."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import Any

import numpy as np

from mklearn.estimators._base import BaseKernelMachine, Training
from mklearn.kernels import KernelBank
from mklearn.problems import Ellipsoid, LpBall, MKLProblem
from mklearn.problems.losses import Loss
from mklearn.problems.weights import WeightSet
from mklearn.solvers import Iterate, Solution, solve


class BaseMKL(BaseKernelMachine):
    """A kernel machine whose weights and coefficients solve an MKL problem.

    Subclasses have the parameters of :class:`BaseKernelMachine` and ``norm``,
    ``solver``, ``tol``, ``max_iter``, ``time_limit``, ``callback`` and ``verbose``.
    """

    def _learn(
        self,
        training: Training,
        losses: Sequence[Loss],
        bank: KernelBank | None = None,
        start: Iterate | None = None,
    ) -> list[Solution]:
        """Solve for each loss, with weights of its own, and store the model.

        Parameters
        ----------
        training : Training
        losses : one for all tasks, or one for each
        bank : KernelBank, optional
            The training bank and, behind its kernels, others that only training knows.
        start : Iterate, optional
            Where to start from.
        """
        M = training.raw.shape[2]
        bank = training.bank if bank is None else bank
        solutions = [self._solve(bank, loss, start) for loss in losses]
        theta = np.stack([s.theta[:M] for s in solutions])
        shares = np.stack(
            [
                MKLProblem(training.bank, loss, self._weights()).contributions(
                    s.theta[:M], s.A
                )
                for loss, s in zip(losses, solutions, strict=True)
            ]
        )
        A = np.column_stack([s.A for s in solutions])
        one = len(solutions) == 1
        self.solution_ = solutions[0] if one else solutions
        self._keep(
            training,
            theta[0] if one else theta,
            A,
            np.concatenate([s.bias for s in solutions]),
        )
        self.kernel_contributions_ = shares[0] if one else shares
        self.duality_gap_ = max(s.gap for s in solutions)
        self.n_iter_ = max(s.n_iter for s in solutions)
        return solutions

    def _solve(
        self, bank: KernelBank, loss: Loss, start: Iterate | None = None
    ) -> Solution:
        return solve(
            MKLProblem(bank, loss, self._weights()),
            self.solver,
            tol=self.tol,
            max_iter=self.max_iter,
            time_limit=self.time_limit,
            callback=self.callback,
            verbose=self.verbose,
            start=start,
        )

    def _weights(self) -> WeightSet:
        """Return the set of the kernel weights."""
        return weight_set(self.norm)

    def _check_parameters(self) -> None:
        weight_set(self.norm)
        if not self.tol > 0:
            raise ValueError(f"tol must be positive, got {self.tol!r}.")
        if not self.max_iter >= 1:
            raise ValueError(f"max_iter must be at least 1, got {self.max_iter!r}.")
        if self.time_limit is not None and not self.time_limit > 0:
            raise ValueError(f"time_limit must be positive, got {self.time_limit!r}.")


def weight_set(norm: Any) -> WeightSet:
    """Return the set that a number, a matrix or a weight set stands for."""
    if isinstance(norm, Real):
        return LpBall(float(norm))
    if hasattr(norm, "support") and not isinstance(norm, type):
        return norm
    if isinstance(norm, (np.ndarray, list)) and np.ndim(norm) == 2:
        return Ellipsoid(np.asarray(norm))
    raise ValueError(
        "norm must be a number p >= 1 or inf, a positive definite matrix or a weight "
        f"set, got {norm!r}."
    )


def check_positive(name: str, value: Any, otherwise: str = "") -> float:
    """Return a parameter that must be a positive number."""
    if not (isinstance(value, Real) and np.isfinite(value) and value > 0):
        raise ValueError(f"{name} must be a positive number{otherwise}, got {value!r}.")
    return float(value)
