"""The inner problem: the optimal A for given weights, by a method for each loss."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_solve
from scipy.linalg.blas import dsymm
from scipy.linalg.lapack import dgetrf, dgetrs

from mklearn.data.threads import one_blas_thread
from mklearn.kernels.bank import KernelBank
from mklearn.kernels.factors import (
    cholesky,
    inverse,
    invert_triangle,
    solve_triangle,
)
from mklearn.problems.coupled import Multinomial
from mklearn.problems.design import decisions
from mklearn.problems.mkl import Problem, RoughProblem
from mklearn.problems.protocols import (
    BoxLoss,
    CoupledLoss,
    QuadraticLoss,
    SmoothLoss,
    System,
)
from mklearn.problems.pseudo_samples import Expansion, by_kernel
from mklearn.solvers.base import Iterate
from mklearn.solvers.beside import BesideSolver, sweeps
from mklearn.solvers.dense import DenseSolver
from mklearn.solvers.smo import BoxSolver, Found, inner_gap
from mklearn.solvers.working_set import WorkingSetSolver

FloatArray = NDArray[np.float64]

_INNER_STEPS = 10  # conjugate gradients that cost less than a factorisation
_FORCING = 0.1  # accuracy of a Newton step, relative to its length, at most


class InnerSolver(Protocol):
    """Solver for A with fixed weights, called repeatedly with warm starts."""

    theta: FloatArray

    @property
    def bank(self) -> KernelBank:
        """The problem's bank, in the precision that the inner accuracy requires."""

    def solve(self, theta: FloatArray, allowed: float) -> Found:
        """Solve until the inner duality gap is at most ``allowed``."""

    def quads(self, A: FloatArray) -> FloatArray:
        """Return ``<A, K[m] A>`` in that precision."""

    def block(self, samples: NDArray[Any]) -> FloatArray:
        """Return the combined kernel between some samples."""


def inner_solver(problem: Problem, start: Iterate | None) -> InnerSolver:
    """Return SMO for box losses, sweeps for joint classes, and Newton for others."""
    if isinstance(problem, Expansion):
        return ExpansionSolver(problem, start)
    system = linear_system(problem)
    if system is not None:  # one Newton step is exact
        center = problem.weights.center(problem.bank.shape[2])
        theta = center if start is None else start.theta
        return LinearSolver(problem.bank, system, theta)
    if isinstance(problem.loss, BoxLoss):
        if problem.loss.design is not None:
            return BesideSolver(problem, start)
        if isinstance(problem, RoughProblem):
            return DenseSolver(problem, start)
        narrow = WorkingSetSolver.suits(problem)
        return (WorkingSetSolver if narrow else BoxSolver)(problem, start)
    if problem.kind == "classes":
        return sweeps(problem, start)
    if isinstance(problem.loss, SmoothLoss):
        return SmoothSolver(problem, start)
    if isinstance(problem.loss, Multinomial):
        return MultinomialSolver(problem, start)
    if isinstance(problem.loss, CoupledLoss):
        return CoupledSolver(problem, start)
    raise ValueError(
        f"{type(problem.loss).__name__} is not a loss that can be solved for fixed "
        "weights; in addition to the common methods, it must define box, system, slope "
        "and bend, or slope and bent."
    )


def linear_system(problem: Problem) -> System | None:
    """Return the linear system of a quadratic loss, None for other losses."""
    loss = problem.loss
    return loss.system() if isinstance(loss, QuadraticLoss) else None


def _factor(K: FloatArray) -> tuple[FloatArray, bool]:
    """Return the Cholesky factor of ``K`` for ``cho_solve``; ``K`` is overwritten."""
    L, found = cholesky(K.T)
    if not found:
        raise LinAlgError("The combined kernel is not positive semidefinite.")
    return L, True


class LinearSolver:
    """The exact A of a quadratic loss, for all tasks from one Cholesky factorisation.

    The factor overwrites one triangle of the combined kernel. The other triangle is
    kept, so products with the kernel do not need a second matrix of its size.
    """

    def __init__(self, bank: KernelBank, system: System, theta: FloatArray) -> None:
        self.bank, self.system, self.theta = bank, system, theta
        self.matrix: FloatArray | None = None  # both triangles, Fortran order
        self.diagonal = np.zeros(0)
        self.Q = np.zeros(0)
        self.factors = 0

    def block(self, samples: NDArray[Any]) -> FloatArray:
        """Return the combined kernel between some samples."""
        assert self.matrix is not None
        upper = np.triu(self.matrix[np.ix_(samples, samples)], 1)
        return upper + upper.T + np.diag(self.diagonal[samples])

    def quads(self, A: FloatArray) -> FloatArray:
        """Return ``<A, K[m] A>`` for every kernel."""
        return self.bank.quad(A)

    def solve(self, theta: FloatArray, allowed: float) -> Found:
        """Solve, as exactly as double precision allows."""
        yield from ()
        return self.best(theta)

    def best(self, theta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the optimal A for the weights, and its scores."""
        self._factorise(theta)
        ridge, right, E, sums = self.system
        U = self._half(E)
        self.Q = np.linalg.qr(U)[0]
        A, b = self._step(U, right, sums)
        # one step of iterative refinement
        rest = right - ridge[:, None] * A - self._product(A) - E @ b
        A = A + self._step(U, rest, sums - E.T @ A)[0]
        return A, self._product(A)

    def hessian(self, S: FloatArray) -> FloatArray:
        """Return the Hessian of the value in the weights, from ``S = K_m A``.

        It is the Gram matrix of the ``L^-1 K_m A``, with L the factor, after projection
        onto the orthogonal complement of ``L^-1 E``.
        """
        n, T, M = S.shape
        W = self._half(S.reshape(n, T * M))
        W -= self.Q @ (self.Q.T @ W)
        W = W.reshape(n * T, M)
        return np.asarray(W.T @ W)

    def inverse_diagonal(self) -> FloatArray:
        """Return the diagonal of ``Q - QE (E'QE)^-1 E'Q``, with Q the inverse.

        This is the block of A in the inverse of the whole system. It takes the time of
        another factorisation but no further memory, since it overwrites the factor.
        """
        E = self.system.E
        R = self._back(self._half(E)) if E.shape[1] else E
        R = R @ np.linalg.inv(np.linalg.cholesky(E.T @ R)).T if E.shape[1] else R
        assert self.matrix is not None
        inverse = invert_triangle(self.matrix)
        self.matrix = None
        n = len(inverse)
        out = -np.sum(R**2, axis=1)
        for start in range(0, n, 256):
            columns = np.tril(inverse[start:, start : start + 256])
            out[start : start + 256] += np.einsum("ij,ij->j", columns, columns)
        return out

    def _step(
        self, U: FloatArray, right: FloatArray, sums: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        half = self._half(right)
        b = np.asarray(np.linalg.solve(U.T @ U, U.T @ half - sums), float)
        return self._back(half - U @ b), b

    def _back(self, half: FloatArray) -> FloatArray:
        """Return ``L^-T half``."""
        assert self.matrix is not None
        return solve_triangle(self.matrix, half, trans=True)

    def _half(self, right: FloatArray) -> FloatArray:
        """Return ``L^-1 right``."""
        assert self.matrix is not None
        return solve_triangle(self.matrix, right)

    def _product(self, A: FloatArray) -> FloatArray:
        """Return ``K A`` from the triangle that the factor did not overwrite."""
        assert self.matrix is not None
        with one_blas_thread:
            out = dsymm(1.0, self.matrix, A, lower=0)
        changed = self.diagonal - np.diagonal(self.matrix)
        return np.asarray(out + changed[:, None] * A)

    def _factorise(self, theta: FloatArray) -> None:
        self.matrix = None  # free its memory first
        extra = 0.0
        while True:
            K = self.bank.combine_symmetric(theta)
            self.diagonal = np.diagonal(K).copy()
            size = max(float(np.abs(self.diagonal).max()), 1e-300)
            K[np.diag_indices_from(K)] += self.system.ridge + extra * size
            self.matrix, found = cholesky(K.T)
            self.factors += 1
            if found:
                return
            # indefinite by rounding; the added diagonal is not part of the problem,
            # and iterative refinement removes most of its effect
            extra = max(100 * extra, 1e-15 * len(K))


class ExpansionSolver(LinearSolver):
    """The solution of an expansion in feature space, one factorisation for each task.

    With ``r`` the square roots of the weights of each feature, the matrix to be
    factorised is ``I + r S r``, whose condition is determined by the regulariser;
    features with zero weight are left out.
    """

    def __init__(self, problem: Expansion, start: Iterate | None) -> None:
        D, T = problem.g.shape
        nothing = np.zeros((D, 0))
        # nonzero sums: its value is not the inverse of a linear function of the weights
        system = System(np.ones(D), problem.g, nothing, np.ones((1, T)))
        theta = problem.center() if start is None else start.theta
        super().__init__(problem.bank, system, theta)
        self.problem = problem
        self.root, self.used = np.zeros(D), np.zeros(0, dtype=np.intp)
        self.each: list[Any] = []

    def best(self, theta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return ``v = g - Sw`` for the weights, and w."""
        problem = self.problem
        self.root = np.sqrt(by_kernel(np.maximum(theta, 0.0), problem.slices))
        self.used = used = np.flatnonzero(self.root)
        root = self.root[used]
        self.each, w = [], np.zeros_like(problem.g)
        v = np.empty_like(problem.g)
        for t, S in enumerate(problem.S):
            part = S if len(used) == len(S) else S[np.ix_(used, used)]
            B = root[:, None] * part * root
            B[np.diag_indices_from(B)] += 1.0
            self.each.append(_factor(B))
            u = cho_solve(self.each[-1], root * problem.g[used, t])
            w[used, t] = root * u
            v[:, t] = problem.g[:, t] - S @ w[:, t]
        return v, w

    def hessian(self, S: FloatArray) -> FloatArray:
        """Return the Hessian of the value in the weights, from ``S``, v by kernel."""
        M = S.shape[2]
        out = np.zeros((M, M))
        root = self.root[self.used, None]
        for t, (matrix, factor) in enumerate(
            zip(self.problem.S, self.each, strict=True)
        ):
            Y = matrix @ S[:, t]
            half = root * Y[self.used]
            out += S[:, t].T @ Y - half.T @ cho_solve(factor, half)
        return (out + out.T) / 2


class SmoothSolver:
    """Newton on the primal of a smooth loss, one Cholesky factorisation per step.

    With curvatures ``h`` of the loss at the scores, the next dual point solves
    ``(K + diag(1/h)) a + b = scores + b_now + slope / h`` and ``sum(a) = 0``; for the
    squared loss one step is exact.
    """

    def __init__(self, problem: Problem, start: Iterate | None) -> None:
        self.problem, loss, M = problem, problem.loss, problem.bank.shape[2]
        assert isinstance(loss, (SmoothLoss, CoupledLoss))
        self.loss: SmoothLoss | CoupledLoss = loss
        self.coarse = 0.02 if start is None else 1e-3
        self.theta = problem.weights.center(M)
        A = np.zeros(loss.shape)
        if start is not None:
            A, self.theta = start.A, start.theta
        self.A = loss.repair(A)
        self.bank = problem.bank
        self.K: FloatArray | None = None
        self.at: FloatArray | None = None
        self.forcing = _FORCING

    def quads(self, A: FloatArray) -> FloatArray:
        """Return ``<A, K[m] A>``."""
        return self.bank.quad(A)

    def block(self, samples: NDArray[Any]) -> FloatArray:
        """Return the combined kernel between some samples."""
        assert self.K is not None
        return self.K[np.ix_(samples, samples)]

    def solve(self, theta: FloatArray, allowed: float) -> Found:
        """Solve until the inner duality gap is at most ``allowed``."""
        loss = self.loss
        if self.K is None or self.at is None or not np.array_equal(theta, self.at):
            self.K, self.at = self.problem.bank.combine_symmetric(theta), theta
        A = self.A
        F = self.K @ A
        bias = loss.bias(F)
        value = loss.primal(F, bias) + 0.5 * float(np.sum(A * F))
        for _ in range(100):
            # the dual point implied by the scores is feasible up to the hyperplane
            implied = loss.repair(loss.slope(decisions(loss.design, F, bias)))
            scores = self.K @ implied
            gap, size = inner_gap(self.problem, implied, scores)
            if gap <= max(min(allowed, self.coarse * size), 1e-13 * size):
                self.A = implied
                return implied, scores
            yield Iterate(theta, A, complete=False)
            # superlinear: steps are solved the better the closer they are to the end
            self.forcing = min(
                _FORCING, (max(gap, 0.0) / max(abs(size), 1e-300)) ** 0.5
            )
            target = self._step(F, bias, A)
            # halve the step until the primal value decreases
            step = 1.0
            while True:
                trial = A + step * (target - A)
                F_trial = self.K @ trial
                b_trial = loss.bias(F_trial)
                now = loss.primal(F_trial, b_trial) + 0.5 * np.sum(trial * F_trial)
                if now <= value or step < 1e-6:
                    break
                step /= 2
            A, F, bias, value = trial, F_trial, b_trial, float(now)
        self.A = loss.repair(A)
        return self.A, self.K @ self.A

    def _step(self, F: FloatArray, bias: FloatArray, near: FloatArray) -> FloatArray:
        """Return the dual point of a Newton step; ``near`` is the one at hand."""
        assert self.K is not None and isinstance(self.loss, SmoothLoss)
        loss = self.loss
        f = decisions(loss.design, F, bias)
        slope = loss.slope(f)
        bend = np.maximum(loss.bend(f), 1e-12)
        design = loss.design
        E = np.ones((len(F), 1)) if design is None else design.basis
        out = np.zeros_like(F)
        factor, used = None, np.zeros(0)
        for t in range(F.shape[1]):
            h = bend[:, t]
            if factor is None or not np.array_equal(h, used):
                system = self.K + np.diag(1.0 / h)
                factor = _factor(system)
                used = h
            right = f[:, t] + slope[:, t] / h
            both = cho_solve(factor, np.c_[right, E])
            out[:, t] = both[:, 0]
            if design is not None:
                beside = np.linalg.solve(E.T @ both[:, 1:], E.T @ both[:, 0])
                out[:, t] -= both[:, 1:] @ beside
            elif loss.hyperplane:
                shift = both[:, 0].sum() / both[:, 1].sum()
                out[:, t] -= shift * both[:, 1]
            else:
                out[:, t] = cho_solve(factor, right)
        return out


class CoupledSolver(SmoothSolver):
    """The same for a loss whose Hessian W is not diagonal.

    The next dual point is ``a = slope - W (K a - scores)``, the solution of a linear
    system with the matrix ``I + W K``. W may be singular, in which case its null space
    determines the sum of a.

    As long as K stays, conjugate gradients solve the systems of further steps, with the
    factors of an earlier one as preconditioner: both matrices are self-adjoint in the
    inner product of K.
    """

    _factors: tuple[FloatArray, Any] | None = None  # and the K they belong to

    def _step(self, F: FloatArray, bias: FloatArray, near: FloatArray) -> FloatArray:
        assert self.K is not None and isinstance(self.loss, CoupledLoss)
        f = decisions(self.loss.design, F, bias)
        right = self.loss.slope(f) + self.loss.bent(f, f)
        design = self.loss.design
        if design is None:
            found = self._improved(f, right, near)
            if found is not None:
                return found
            return _solved(self._factor(f), right)
        # effects are unpenalised, so the point is orthogonal to the covariates
        E = design.basis[:, 1:]
        both = np.c_[right, self.loss.bent(f, E)]
        both = _solved(self._factor(f), both)
        beside = np.linalg.pinv(E.T @ both[:, 1:], 1e-10) @ (E.T @ both[:, :1])
        return np.asarray(both[:, :1] - both[:, 1:] @ beside)

    def _improved(
        self, f: FloatArray, right: FloatArray, near: FloatArray
    ) -> FloatArray | None:
        """Return the solution of the system from an approximate one, None if far."""
        if self._factors is None or self._factors[0] is not self.K:
            return None
        assert isinstance(self.loss, CoupledLoss)
        K, factor = self._factors
        a = near
        rest = right - a - self.loss.bent(f, K @ a)
        p = _solved(factor, rest)
        Kp = K @ p
        size = first = float(np.sum(rest * Kp))
        for _ in range(_INNER_STEPS):
            if not size > 0.0:
                return None  # far from these factors, or beyond rounding: no progress
            if size <= self.forcing**2 * first:
                return a
            q = p + self.loss.bent(f, Kp)
            step = size / float(np.sum(q * Kp))
            a, rest = a + step * p, rest - step * q
            z = _solved(factor, rest)
            Kz = K @ z
            size, before = float(np.sum(rest * Kz)), size
            p, Kp = z + (size / before) * p, Kz + (size / before) * Kp
        return None

    def hessian(self, F: FloatArray, V: FloatArray) -> FloatArray:
        """Return ``V'W (I + K W)^-1 V`` for V (n, 1, M), with W at the scores.

        With covariates, their Schur complement.
        """
        assert isinstance(self.loss, CoupledLoss)
        V, M = V[:, 0], V.shape[2]
        design = self.loss.design
        if design is not None:
            F = decisions(self.loss.design, F, self.loss.bias(F))
            V = np.c_[V, design.basis[:, 1:]]
        solved = _solved(self._factor(F), V, trans=0)
        out = np.asarray(self.loss.bent(F, V).T @ solved)
        if design is None:
            return out
        rest = np.linalg.pinv(out[M:, M:], 1e-10)
        return np.asarray(out[:M, :M] - out[:M, M:] @ rest @ out[M:, :M])

    def _factor(self, F: FloatArray) -> tuple[Any, Any]:
        """Return the LU factors of ``I + K W``, the transpose of ``I + W K``."""
        assert self.K is not None and isinstance(self.loss, CoupledLoss)
        system = self.loss.bent(F, self.K)
        system[np.diag_indices_from(system)] += 1.0
        # in Fortran order, as LAPACK needs it: in place
        factor = dgetrf(system.T, overwrite_a=1)[:2]
        self._factors = self.K, factor
        return factor


def _solved(factor: tuple[Any, Any], right: FloatArray, trans: int = 1) -> FloatArray:
    """Return the solution with the transpose of what was factorised, or without."""
    return np.asarray(dgetrs(*factor, right, trans=trans)[0])


class MultinomialSolver(CoupledSolver):
    """Newton on the softmax loss, with an (n, n) factorisation per class and step.

    The Hessian is ``W = D - P P'`` with ``D = diag(C p)``, a matrix over the classes
    for each sample. With ``E_c = (K + D_c^-1)^-1``, the blocks of E, and their sum S,
    ``(K + W^-1)^-1 = E - E R S^-1 R'E``, where R repeats a vector for every class
    (Rasmussen and Williams 2006, section 3.5). Biases are unpenalised: the columns of
    the dual point sum to zero, and with covariates they are orthogonal to these. All
    E_c are in memory at the same time.
    """

    def _step(self, F: FloatArray, bias: FloatArray, near: FloatArray) -> FloatArray:
        assert self.K is not None and isinstance(self.loss, Multinomial)
        f = decisions(self.loss.design, F, bias)
        right = self.loss.slope(f) + self.loss.bent(f, f)
        curved = _Curved.of(self.K, self.loss, f)
        return curved.balanced(right - curved.apply(self.K @ right))

    def hessian(self, F: FloatArray, V: FloatArray) -> FloatArray:
        """Return ``V'Q V`` for V (n, k, M), with Q as above and unpenalised biases."""
        assert self.K is not None and isinstance(self.loss, Multinomial)
        f = decisions(self.loss.design, F, self.loss.bias(F))
        curved = _Curved.of(self.K, self.loss, f)
        M = V.shape[2]
        out = np.empty((M, M))
        for m in range(M):
            out[m] = np.einsum("ic,icm->m", curved.balanced(curved.apply(V[..., m])), V)
        return out


class _Curved:
    """``(K + W^-1)^-1`` at some scores, and its products with ones and covariates."""

    def __init__(self, E: list[FloatArray], S: Any, basis: FloatArray) -> None:
        self.E, self.S, self.basis = E, S, basis
        k, q = len(E), basis.shape[1]
        self.free = np.hstack([block @ basis for block in E])  # (n, k q)
        self.back = cho_solve(S, self.free)
        G = -self.free.T @ self.back
        for c in range(k):
            at = slice(c * q, (c + 1) * q)
            G[at, at] += basis.T @ self.free[:, at]
        # effects common to all classes are in the null space
        together = np.kron(np.ones((k, k)), np.eye(q))
        self.G = G + np.trace(G) / (q * k**2) * together

    @classmethod
    def of(cls, K: FloatArray, loss: Multinomial, F: FloatArray) -> _Curved:
        """Return the matrix at scores that include the bias."""
        n = len(K)
        S, E = np.zeros_like(K), []
        roots = np.sqrt(np.maximum(loss.C[:, None] * loss.probabilities(F), 1e-30))
        for root in roots.T:
            B = root[:, None] * K * root
            B[np.diag_indices(n)] += 1.0
            block = inverse(_factor(B)[0])
            block += np.tril(block, -1).T
            block *= np.outer(root, root)
            E.append(block)
            S += block
        S[np.diag_indices(n)] += 1e-14 * np.trace(S) / n
        free = np.ones((n, 1)) if loss.design is None else loss.design.basis
        return cls(E, _factor(S), free)

    def apply(self, V: FloatArray) -> FloatArray:
        """Return the product with V (n, k)."""
        ahead = self._blocks(V)
        common = cho_solve(self.S, ahead.sum(axis=1))
        return ahead - self._blocks(np.repeat(common[:, None], len(self.E), axis=1))

    def balanced(self, A: FloatArray) -> FloatArray:
        """Return A minus the contribution of effects, which makes columns feasible."""
        n, k = A.shape
        b = np.linalg.lstsq(self.G, (self.basis.T @ A).T.ravel(), rcond=None)[0]
        common = self.back @ b
        back = self._blocks(np.repeat(common[:, None], k, axis=1))
        added = np.sum((self.free * b).reshape(n, k, -1), axis=2)
        return np.asarray(A - (added - back))

    def _blocks(self, V: FloatArray) -> FloatArray:
        return np.column_stack([E @ v for E, v in zip(self.E, V.T, strict=True)])
