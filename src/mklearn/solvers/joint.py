"""Iterative methods for subspace kernels and SVMs jointly."""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mklearn.kernels.bank import KernelBank
from mklearn.kernels.dense import DenseGrams
from mklearn.kernels.specs import Linear
from mklearn.problems.base import Iterate, Judgement
from mklearn.problems.discriminant import rkda
from mklearn.problems.mkl import MKLProblem, RoughProblem
from mklearn.problems.protocols import Loss
from mklearn.problems.subspace import (
    Cut,
    JointPoint,
    JointProblem,
    Kernels,
    Subspace,
)
from mklearn.problems.weights import LpBall
from mklearn.solvers.alternating import Alternating
from mklearn.solvers.base import Need, Solver, Status, Steps
from mklearn.solvers.cutting_plane import lowest_of_cuts
from mklearn.solvers.interior import outward, project
from mklearn.solvers.loop import solved_within
from mklearn.solvers.newton import Newton

FloatArray = NDArray[np.float64]
Step = Generator[Iterate | None, Judgement | None, Any]

_LEVEL = 0.2  # position of the level between the bounds, for the next kernel weights


# --- the subproblems ------------------------------------------------------------------


def integration(kernels: Kernels, L: FloatArray) -> MKLProblem:
    """Return the problem (27), ``min tr L'(I + G/xi)^-1 L`` over the weights.

    This is the problem of discriminant kernel learning with centred targets L, (n, k).
    """
    return rkda(kernels.bank, L, kernels.reg, LpBall(1.0), kernels.weight)


def svms_on(
    features: FloatArray | KernelBank | DenseGrams,
    loss: Loss,
    start: FloatArray | None,
) -> tuple[MKLProblem, Iterate | None]:
    """Return the problem of SVMs on features (rough for Grams), and its start."""
    begin = None if start is None else Iterate(np.ones(1), start)
    if isinstance(features, DenseGrams):
        return RoughProblem(features.bank, loss, LpBall(1.0), features), begin
    bank = features
    if not isinstance(bank, KernelBank):
        bank = KernelBank(np.ascontiguousarray(features), Linear())
    return MKLProblem(bank, loss, LpBall(1.0)), begin


# --- the methods ----------------------------------------------------------------------


@dataclass(frozen=True)
class JointSolver:
    """Base class of the methods for subspace and SVMs.

    Parameters
    ----------
    accuracy : float
        Relative duality gap of the SVMs.
    solver : Solver
        For the kernel weights, the problem (27) and (40).
    tol : float
        Relative duality gap of the kernel weights.
    """

    accuracy: float = 1e-5
    solver: Solver = field(default_factory=Newton)
    tol: float = 1e-6

    needs: ClassVar[tuple[Need, ...]] = ()

    def svms(
        self,
        problem: JointProblem,
        features: FloatArray | KernelBank,
        start: FloatArray | None,
        point: Iterate | None,
    ) -> Step:
        """Compute the signed dual variables of the SVMs."""
        task, begin = svms_on(features, problem.loss, start)
        found = yield from solved_within(
            task, Alternating(), point, tol=self.accuracy, start=begin
        )
        return found.A

    def weights(
        self,
        problem: JointProblem,
        L: FloatArray,
        start: FloatArray | None,
        point: Iterate | None,
    ) -> Step:
        """Compute the optimal kernel weights for targets, and bound the criterion."""
        kernels = problem.kernels
        if kernels.theta is not None:
            return kernels.theta, math.inf
        begin = None if start is None else Iterate(start, np.zeros_like(L))
        found = yield from solved_within(
            integration(kernels, L), self.solver, point, tol=self.tol, start=begin
        )
        total = float(np.sum(kernels.weight[:, None] * L**2))
        return found.theta, total - 2 * kernels.reg * found.lower


@dataclass(frozen=True)
class Rounds(JointSolver):
    """Alternation between the SVMs on a subspace and the best subspace for the SVMs.

    This is the method of the paper. Each step is a full optimisation, so the method may
    oscillate between two points without converging.

    Parameters
    ----------
    accuracy : float
        Relative duality gap of the SVMs.
    solver : Solver
        For the kernel weights, the problem (27) and (40).
    tol : float
        Relative duality gap of the kernel weights.
    """

    def iterates(self, problem: JointProblem, start: Iterate | None) -> Steps:
        """Yield a point for each round."""
        kernels = problem.kernels
        A = None if start is None else start.A
        theta, _ = yield from self.weights(problem, problem.targets, None, None)
        found = problem.subspace(theta, kernels.weight[:, None] * problem.targets)
        point, value = None, math.inf
        while True:
            A = yield from self.svms(problem, found.features, A, point)
            L = A / kernels.weight[:, None]
            next_theta, largest = yield from self.weights(problem, L, theta, point)
            then = problem.subspace(next_theta, A)
            if kernels.theta is not None:
                largest = float(then.values.sum())
            point = Iterate(theta, A, about=JointPoint(found, largest))
            before, value = value, problem.judge(point).upper
            yield replace(point, slack=_change(before, value))
            theta, found = next_theta, then


@dataclass(frozen=True)
class Exact(JointSolver):
    """SVMs on the kernel of all directions, for as many features as SVMs.

    The SVMs on the kernel of all directions
    (:meth:`~mklearn.problems.subspace.Criterion.whole`) and their subspace are optimal.
    With several kernels, the value of the SVMs is a convex function of the weights,
    which is minimised by the level method with cutting planes, starting from the
    optimal weights for the first SVMs.

    Parameters
    ----------
    accuracy : float
        Relative duality gap of the SVMs.
    solver : Solver
        For the kernel weights, the problem (27) and (40).
    tol : float
        Relative duality gap of the kernel weights.
    """

    needs: ClassVar[tuple[Need, ...]] = (
        Need(
            "joint='exact' needs as many features as SVMs; use 'damped'.",
            holds=lambda problem: problem.complete,
        ),
    )

    def iterates(self, problem: JointProblem, start: Iterate | None) -> Steps:
        """Yield a point for each cutting plane."""
        kernels = problem.kernels
        A = None if start is None else start.A
        theta, _ = yield from self.weights(problem, problem.targets, None, None)
        if A is not None:
            L = A / kernels.weight[:, None]
            theta, _ = yield from self.weights(problem, L, theta, None)
        point = yield from self.whole(problem, theta, A, None)
        if kernels.theta is not None:
            yield point
            return Status.STATIONARY
        L = point.A / kernels.weight[:, None]
        goal, largest = yield from self.weights(problem, L, theta, point)
        point = replace(point, about=replace(point.about, largest=largest))
        judged = yield point
        assert judged is not None
        upper, lower = judged.upper, judged.lower
        cuts: list[Cut] = []
        heights: list[float] = []
        slopes: list[FloatArray] = []
        ball = LpBall(1.0)
        while True:
            cuts.append(Cut(point.theta, point.A, 0.0))
            height, slope = problem.tangent(cuts[-1])
            heights.append(height)
            slopes.append(-slope)
            values, quads = np.array(heights), 2.0 * np.array(slopes)
            lowest, share = lowest_of_cuts(values, quads)
            floor = float(share @ values) - 0.5 * float((share @ quads).max())
            behind = tuple(
                cut._replace(share=float(s))
                for cut, s in zip(cuts, share, strict=True)
                if s > 0
            )
            lower = max(lower, floor)
            gap = max(upper - lower, 0.0)
            if len(cuts) > 1:
                level = values - (lower + _LEVEL * gap)
                near = project(point.theta, level, 0.5 * quads, ball.constraint, lowest)
                near = outward(near, ball.constraint)
                goal = near if ball.contains(near) else lowest
            known = replace(point.about, floor=floor, cuts=behind)
            point = yield from self.whole(
                problem, goal, point.A, replace(point, about=known)
            )
            about = replace(point.about, floor=floor, cuts=behind)
            judged = yield replace(point, about=about)
            assert judged is not None
            upper, lower = min(upper, judged.upper), max(lower, judged.lower)

    def whole(
        self,
        problem: JointProblem,
        theta: FloatArray,
        start: FloatArray | None,
        point: Iterate | None,
    ) -> Step:
        """Compute the SVMs on all directions, and their subspace."""
        made = problem.kernels.criterion(theta)
        bank = KernelBank.from_grams(made.whole())
        A = yield from self.svms(problem, bank, start, point)
        found = made.best(A, problem.n_components)
        largest = math.inf
        if problem.kernels.theta is not None:
            largest = float(found.values.sum())
        return Iterate(theta, A, about=JointPoint(found, largest))


@dataclass(frozen=True)
class Damped(JointSolver):
    """Damped alternation for few features, from the exact solution with all features.

    In each step, the targets are mixed with the dual variables of the SVMs, in a
    proportion that decreases the objective.

    Parameters
    ----------
    accuracy : float
        Relative duality gap of the SVMs.
    solver : Solver
        For the kernel weights, the problem (27) and (40).
    tol : float
        Relative duality gap of the kernel weights.
    enough : float
        Relative gap to which the problem with all features is solved.
    """

    enough: float = 1e-4

    def iterates(self, problem: JointProblem, start: Iterate | None) -> Steps:
        """Yield a point for each step that decreases the objective."""
        wide = problem.widened()
        exact = Exact(self.accuracy, self.solver, self.tol)
        solution = yield from solved_within(
            wide,
            exact,
            None,
            tol=self.enough,
            max_iter=100,
            start=start,
            shown=lambda best: Iterate(best.theta, best.A),
        )
        theta, A = solution.theta, solution.A
        kernels = problem.kernels
        made = kernels.criterion(theta)
        # the value with all features is a lower bound for fewer features
        cuts = solution.about.cuts or (Cut(theta, solution.dual, 1.0),)
        floor = problem.floor(cuts)

        def fewer(found: Subspace, A: FloatArray) -> Iterate:
            """Return a point whose bound holds for fixed weights, or for all."""
            largest = math.inf
            if kernels.theta is not None:
                largest = float(made.best(A, problem.n_components).values.sum())
            return Iterate(theta, A, about=JointPoint(found, largest, floor, cuts))

        # start from the solution with all features or from the labels, if better
        starts = []
        for N in (A, kernels.weight[:, None] * problem.targets):
            N = N * (np.linalg.norm(A) / np.linalg.norm(N))
            found = problem.subspace(theta, N)
            early = fewer(found, A)
            B = yield from self.svms(problem, found.features, A, early)
            tried = fewer(found, B)
            starts.append((problem.judge(tried).upper, N, tried))
        value, N, point = min(starts, key=lambda begin: begin[0])
        yield replace(point, slack=math.inf)
        step = 1.0
        while True:
            step = min(1.0, 4 * step)
            while True:
                mixed = np.c_[math.sqrt(1 - step) * N, math.sqrt(step) * point.A]
                found = made.best(_compressed(mixed), problem.n_components)
                A = yield from self.svms(problem, found.features, point.A, point)
                trial = fewer(found, A)
                now = problem.judge(trial).upper
                if now < value:
                    break
                step /= 4
                if step < 1e-2:
                    return Status.STATIONARY
            N, point = _compressed(mixed), trial
            before, value = value, now
            yield replace(point, slack=_change(before, value))


def _change(before: float, value: float) -> float:
    return abs(value - before) / max(abs(value), 1e-300)


def _compressed(N: FloatArray) -> FloatArray:
    """Return fewer columns with the same ``N N'``, at most as many as its rank."""
    U, s, _ = np.linalg.svd(N, full_matrices=False)
    keep = s > 1e-12 * s[0]
    return np.asarray(U[:, keep] * s[keep])
