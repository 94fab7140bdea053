"""Subspace kernels together with SVMs, and by alignment: the iterative methods."""

from __future__ import annotations

import math
import sys
import time
import warnings
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning

from mklearn.kernels.bank import KernelBank
from mklearn.kernels.specs import Linear
from mklearn.problems.discriminant import rkda
from mklearn.problems.losses import Loss
from mklearn.problems.mkl import MKLProblem, relative_gap
from mklearn.problems.subspace import Alignment, Criterion, JointProblem, Subspace
from mklearn.problems.weights import LpBall
from mklearn.solvers.base import History, Iterate, Solution, Solver, Status
from mklearn.solvers.cutting_plane import lowest_of_cuts
from mklearn.solvers.driver import solve
from mklearn.solvers.interior import outward, project

FloatArray = NDArray[np.float64]

_LEVEL = 0.2  # where between the bounds the next kernel weights are looked for

METHODS = ("auto", "exact", "damped", "alternating")


# --- what is alternated between -------------------------------------------------------


@dataclass
class Kernels:
    """The kernels of a joint problem: criteria for given weights, weights for given A.

    Parameters
    ----------
    bank : KernelBank
        Centred kernels, of unit trace if there are several.
    reg : float
        lam, or xi.
    uncorrelated : bool
    weight : array of shape (n,)
        Of the samples.
    theta : array of shape (M,), optional
        Weights to keep; by default they are learned.
    solver : str or Solver
        For the weights, the problem (27) and (40).
    tol : float
        Relative duality gap of the weights.
    """

    bank: KernelBank
    reg: float
    uncorrelated: bool
    weight: FloatArray
    theta: FloatArray | None = None
    solver: str | Solver = "newton"
    tol: float = 1e-6
    _at: tuple[FloatArray, Criterion] | None = field(default=None, repr=False)

    def criterion(self, theta: FloatArray) -> Criterion:
        """Return the criterion on the combined kernel; the last one is remembered."""
        if self._at is None or not np.array_equal(self._at[0], theta):
            self._at = None  # its memory is needed for the next one
            G = self.bank.combine(theta)
            made = Criterion(G, self.reg, self.uncorrelated, self.weight)
            self._at = (theta, made)
        return self._at[1]

    def integrate(
        self,
        L: FloatArray,
        start: FloatArray | None = None,
        **settings: Any,
    ) -> Solution:
        """Return the weights that minimise (27), ``tr L'(I + G/xi)^-1 L``.

        This is the problem of discriminant kernel learning with targets L.

        Parameters
        ----------
        L : array of shape (n, k)
            Centred targets.
        start : array of shape (M,), optional
            Weights to start from.
        **settings
            Of :func:`mklearn.solve`: limits, callback, verbosity.
        """
        problem = rkda(self.bank, L, self.reg, LpBall(1.0), self.weight)
        return solve(
            problem,
            self.solver,
            tol=self.tol,
            start=None if start is None else Iterate(start, np.zeros_like(L)),
            **settings,
        )

    def slopes(self, theta: FloatArray, A: FloatArray) -> FloatArray:
        """Return the derivatives of ``-½ tr A'MA`` in the weights, shape (M,).

        M is the kernel of all directions, ``G(G + xi I)^-1``.
        """
        B = self.criterion(theta).inverse_apply(A / self.weight[:, None])
        return -0.5 * self.reg * self.bank.quad(B)


def svm_on(
    features: FloatArray | KernelBank,
    loss: Loss,
    *,
    tol: float = 1e-5,
    start: FloatArray | None = None,
    time_limit: float | None = None,
) -> Solution:
    """Return the SVMs, one for each task, on the linear kernel of features.

    Parameters
    ----------
    features : array of shape (n, q), or KernelBank of one kernel
    loss : Loss
    tol : float
        Relative duality gap.
    start : array of shape (n, T), optional
        Signed dual variables to start from.
    time_limit : float, optional
    """
    bank = features
    if not isinstance(bank, KernelBank):
        bank = KernelBank(np.ascontiguousarray(features), Linear())
    begin = None if start is None else Iterate(np.ones(1), start)
    problem = MKLProblem(bank, loss, LpBall(1.0))
    with warnings.catch_warnings():
        # the run around it judges its answer, however exact it is
        warnings.simplefilter("ignore", ConvergenceWarning)
        return solve(problem, tol=tol, time_limit=time_limit, start=begin)


# --- result ---------------------------------------------------------------------------


@dataclass
class JointHistory(History):
    """One entry for each iteration.

    ``upper`` and ``lower`` are the best bounds so far, ``values`` and ``bounds`` those
    of each iteration alone, which need not be monotone.
    """

    values: list[float] = field(default_factory=list)
    bounds: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class JointSolution:
    """The best subspace of a run with its SVMs, and what is known about them.

    Attributes
    ----------
    theta : array of shape (M,)
    subspace : Subspace
    A : array of shape (n, T)
        Signed dual variables of the SVMs on the subspace.
    bias : array of shape (T,)
    upper, lower : float
        Bounds on the optimum of the joint problem.
    status : Status
    n_iter : int
    time : float
        Seconds.
    solver : str
    history : JointHistory
    """

    theta: FloatArray
    subspace: Subspace = field(repr=False)
    A: FloatArray = field(repr=False)
    bias: FloatArray = field(repr=False)
    upper: float
    lower: float
    status: Status
    n_iter: int
    time: float
    solver: str
    history: JointHistory = field(repr=False)

    @property
    def gap(self) -> float:
        """Relative distance of the bounds."""
        return relative_gap(self.upper, self.lower)

    @property
    def message(self) -> str:
        """What is proven, in words."""
        how = f"({self.solver}, {self.n_iter} iterations: {self.status.value})"
        if self.status is Status.OPTIMAL:
            return (
                f"Subspace and SVMs have an objective of {self.upper:.6g}, and no "
                f"other subspace can have one below {self.lower:.6g} {how}."
            )
        return (
            f"The best objective found is {self.upper:.6g}, and the bounds do not "
            f"meet: that of {self.lower:.6g} is all that is known about better "
            f"subspaces. There is no certificate of global optimality {how}."
        )


# --- the methods ----------------------------------------------------------------------


@dataclass(frozen=True)
class _Point:
    """A subspace with its SVMs; ``largest`` bounds ``tr A'KA`` over all subspaces."""

    theta: FloatArray
    subspace: Subspace
    A: FloatArray
    largest: float


_Points = Generator[_Point, None, None]


def solve_joint(
    problem: JointProblem,
    kernels: Kernels,
    L: FloatArray,
    method: str = "auto",
    *,
    tol: float = 1e-4,
    max_iter: int = 100,
    time_limit: float | None = None,
    callback: Callable[[Any], Any] | None = None,
    verbose: int = 0,
    start: FloatArray | None = None,
) -> JointSolution:
    """Solve (9), (20) or, over several kernels, (39).

    Parameters
    ----------
    problem : JointProblem
    kernels : Kernels
    L : array of shape (n, k)
        Centred targets of the first subspace, from the labels.
    method : {"auto", "exact", "damped", "alternating"}
        "alternating" is the method of the paper: SVMs on the best subspace, the best
        subspace (and kernel weights) for the SVMs, and so on. Each answers the other
        with all its might, so that it may swing between two points for ever.

        "exact" is for as many features as SVMs. The SVMs on the kernel of all
        directions, :meth:`Criterion.whole`, are then optimal, and so is their subspace.
        With several kernels their value is a convex function of the weights, which is
        minimised by the level method.

        "damped" is for fewer features. It starts from what "exact" finds and mixes the
        targets with the SVMs' answer, by as much as lowers the objective.

        "auto" is "exact" or "damped".
    tol : float
        Relative distance of the bounds or, unless the method is "exact", relative
        change of the objective, at which to stop.
    max_iter : int
    time_limit : float, optional
        Seconds.
    callback : callable, optional
        Called after each iteration with the :class:`JointHistory`; a true answer stops.
    verbose : int
        2 prints a line for each iteration, on standard error.
    start : array of shape (n, T), optional
        Signed dual variables of a similar problem.
    """
    T = problem.loss.shape[1]
    full = problem.n_components >= T
    if method == "auto":
        method = "exact" if full else "damped"
    if method == "exact" and not full:
        raise ValueError(
            f"joint='exact' needs as many features as SVMs, {T}, got n_components="
            f"{problem.n_components}; use 'damped'."
        )
    if method not in METHODS:
        raise ValueError(f"joint must be one of {METHODS}, got {method!r}.")
    if kernels.theta is None and not kernels.uncorrelated:
        raise ValueError(
            "Kernel weights are learned together with uncorrelated features only; give "
            "Kernels the weights as theta, for instance those of Kernels.integrate."
        )
    run = _Run(problem, kernels, L, tol, time_limit, start)
    points = {"exact": run.exact, "damped": run.damped, "alternating": run.alternating}
    status = run.loop(
        points[method](), max_iter, callback, verbose, change=method != "exact"
    )
    solution = run.solution(status, method)
    if status not in (Status.OPTIMAL, Status.STATIONARY):
        warnings.warn(
            f"Stopped with bounds that differ by {solution.gap:.2g}, above tol="
            f"{tol:.2g}: {status.value}.",
            ConvergenceWarning,
            stacklevel=2,
        )
    return solution


class _OutOfTimeError(Exception):
    pass


class _Run:
    """State of one run: the best point, the bounds, history, clock."""

    def __init__(
        self,
        problem: JointProblem,
        kernels: Kernels,
        L: FloatArray,
        tol: float,
        time_limit: float | None,
        start: FloatArray | None,
    ) -> None:
        self.problem, self.kernels, self.L = problem, kernels, L
        self.tol, self.time_limit, self.start = tol, time_limit, start
        self.upper, self.lower = math.inf, -math.inf
        self.best: _Point | None = None
        self.bias = np.zeros(problem.loss.shape[1])
        self.history = JointHistory()
        self.began = time.perf_counter()

    # --- judging ----------------------------------------------------------------------

    def loop(
        self,
        points: _Points,
        max_iter: int,
        callback: Callable[[Any], Any] | None = None,
        verbose: int = 0,
        change: bool = False,
    ) -> Status:
        """Consider points until the bounds meet or, if ``change``, values stay."""
        status = Status.STATIONARY
        try:
            for point in points:
                self.consider(point)
                values = self.history.values
                if verbose > 1:
                    print(
                        f"iteration {len(values):4d}  objective {values[-1]:.6g}  "
                        f"bound {self.history.bounds[-1]:.6g}  gap {self.gap():.2e}",
                        file=sys.stderr,
                    )
                if self.gap() <= self.tol:
                    return Status.OPTIMAL
                if callback is not None and callback(self.history):
                    return Status.CALLBACK
                if change and len(values) > 1 and _change(values) <= self.tol:
                    return Status.STATIONARY
                if len(values) >= max_iter:
                    return Status.MAX_ITER
        except KeyboardInterrupt:
            status = Status.INTERRUPTED
        except _OutOfTimeError:
            status = Status.TIME_LIMIT
        finally:
            points.close()
        return status

    def consider(self, point: _Point) -> None:
        judged = self.problem.judge(point.subspace.features, point.A, point.largest)
        if judged.upper < self.upper:
            self.upper, self.best, self.bias = judged.upper, point, judged.bias
        self.lower = max(self.lower, judged.lower)
        history = self.history
        history.values.append(judged.upper)
        history.bounds.append(judged.lower)
        history.upper.append(self.upper)
        history.lower.append(self.lower)
        history.gap.append(self.gap())
        history.theta.append(point.theta)
        history.time.append(time.perf_counter() - self.began)

    def gap(self) -> float:
        return relative_gap(self.upper, self.lower)

    def solution(self, status: Status, method: str) -> JointSolution:
        if self.best is None:  # stopped before anything was found: the zero function
            theta = self.middle()
            N = self.kernels.weight[:, None] * self.L
            found = self.kernels.criterion(theta).best(N, self.problem.n_components)
            zero = np.zeros(self.problem.loss.shape)
            self.consider(_Point(theta, found, zero, 0.0))
        assert self.best is not None
        return JointSolution(
            theta=self.best.theta,
            subspace=self.best.subspace,
            A=self.best.A,
            bias=self.bias,
            upper=self.upper,
            lower=self.lower,
            status=status,
            n_iter=len(self.history),
            time=time.perf_counter() - self.began,
            solver=method,
            history=self.history,
        )

    # --- steps ------------------------------------------------------------------------

    def left(self) -> float | None:
        """Return the seconds that are left, None without a limit."""
        if self.time_limit is None:
            return None
        left = self.time_limit - (time.perf_counter() - self.began)
        if left <= 0:
            raise _OutOfTimeError
        return left

    def svms(
        self, features: FloatArray | KernelBank, start: FloatArray | None
    ) -> FloatArray:
        """Return the signed dual variables of the SVMs."""
        found = svm_on(
            features,
            self.problem.loss,
            tol=0.1 * self.tol,
            start=start,
            time_limit=self.left(),
        )
        if found.status is Status.INTERRUPTED:
            raise KeyboardInterrupt
        return found.A

    def middle(self) -> FloatArray:
        if self.kernels.theta is not None:
            return self.kernels.theta
        M = self.kernels.bank.shape[2]
        return np.full(M, 1.0 / M)

    def weights(self, L: FloatArray, start: FloatArray | None) -> tuple[Any, float]:
        """Return the best kernel weights for targets, and a bound on the criterion."""
        if self.kernels.theta is not None:
            return self.kernels.theta, math.inf
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # its bound counts
            found = self.kernels.integrate(L, start, time_limit=self.left())
        if found.status is Status.INTERRUPTED:
            raise KeyboardInterrupt
        total = float(np.sum(self.kernels.weight[:, None] * L**2))
        return found.theta, total - 2 * self.kernels.reg * found.lower

    def answer(self, A: FloatArray, theta: FloatArray) -> tuple[Any, Subspace, float]:
        """Return the best weights and subspace for A, and the bound they give."""
        theta, largest = self.weights(A / self.kernels.weight[:, None], theta)
        found = self.kernels.criterion(theta).best(A, self.problem.n_components)
        if self.kernels.theta is not None:
            largest = float(found.values.sum())
        return theta, found, largest

    # --- methods ----------------------------------------------------------------------

    def alternating(self) -> _Points:
        theta, _ = self.weights(self.L, None)
        N = self.kernels.weight[:, None] * self.L
        found = self.kernels.criterion(theta).best(N, self.problem.n_components)
        A = self.start
        while True:
            A = self.svms(found.features, A)
            next_theta, then, largest = self.answer(A, theta)
            yield _Point(theta, found, A, largest)
            theta, found = next_theta, then

    def exact(self) -> _Points:
        theta, _ = self.weights(self.L, None)
        if self.start is not None:
            theta, _ = self.weights(self.start / self.kernels.weight[:, None], theta)
        point, goal = self.whole(theta, self.start, bound=True)
        yield point
        if self.kernels.theta is not None:
            return
        # The SVMs' value is convex in the weights and has known slopes: the level
        # method on its tangents, which starts at the weights that suit the first SVMs.
        cuts, slopes = [], []
        ball = LpBall(1.0)
        while True:
            slope = self.kernels.slopes(point.theta, point.A)
            made = self.kernels.criterion(point.theta)
            value = self.problem.dual(point.A, made.total(point.A))
            cuts.append(value - slope @ point.theta)
            slopes.append(-slope)
            values, quads = np.array(cuts), 2.0 * np.array(slopes)
            lowest, share = lowest_of_cuts(values, quads)
            self.lower = max(
                self.lower, float(share @ values) - 0.5 * float((share @ quads).max())
            )
            gap = max(self.upper - self.lower, 0.0)
            if len(cuts) > 1:
                level = values - (self.lower + _LEVEL * gap)
                near = project(point.theta, level, 0.5 * quads, ball.constraint, lowest)
                near = outward(near, ball.constraint)
                goal = near if ball.contains(near) else lowest
            point, _ = self.whole(goal, point.A)
            yield point

    def whole(
        self, theta: FloatArray, start: FloatArray | None, bound: bool = False
    ) -> tuple[_Point, FloatArray]:
        """Return the SVMs on all directions and, for a bound, the weights it is at."""
        made = self.kernels.criterion(theta)
        A = self.svms(KernelBank.from_grams(made.whole()), start)
        found = made.best(A, self.problem.n_components)
        if self.kernels.theta is not None:
            return _Point(theta, found, A, float(found.values.sum())), theta
        goal, largest = theta, math.inf
        if bound:
            goal, largest = self.weights(A / self.kernels.weight[:, None], theta)
        return _Point(theta, found, A, largest), goal

    def damped(self) -> _Points:
        wide = JointProblem(self.problem.loss, self.problem.loss.shape[1])
        inner = _Run(wide, self.kernels, self.L, self.tol, self.left(), self.start)
        status = inner.loop(inner.exact(), 100)
        if inner.best is not None:
            self.lower = inner.lower  # fewer features cannot do better
        if status in (Status.INTERRUPTED, Status.TIME_LIMIT):
            self.stop_early(inner, status)
        assert inner.best is not None
        theta, A = inner.best.theta, inner.best.A
        made = self.kernels.criterion(theta)
        # what is best for all features, or the labels: the better one to start from
        starts = []
        for N in (A, self.kernels.weight[:, None] * self.L):
            N = N * (np.linalg.norm(A) / np.linalg.norm(N))
            found = made.best(N, self.problem.n_components)
            tried = self.fewer(theta, made, found, self.svms(found.features, A))
            starts.append((self.value(tried), N, tried))
        _, N, point = min(starts, key=lambda start: start[0])
        yield point
        step = 1.0
        while True:
            step, value = min(1.0, 4 * step), self.history.values[-1]
            while True:
                mixed = np.c_[math.sqrt(1 - step) * N, math.sqrt(step) * point.A]
                found = made.best(_compressed(mixed), self.problem.n_components)
                A = self.svms(found.features, point.A)
                trial = self.fewer(theta, made, found, A)
                if self.value(trial) < value:
                    break
                step /= 4
                if step < 1e-2:
                    return
            N, point = _compressed(mixed), trial
            yield point

    def stop_early(self, inner: _Run, status: Status) -> None:
        """Take what another run has found so far, and end this one."""
        if inner.best is not None:
            theta, A = inner.best.theta, inner.best.A
            made = self.kernels.criterion(theta)
            found = made.best(A, self.problem.n_components)
            self.consider(self.fewer(theta, made, found, A))
        interrupted = status is Status.INTERRUPTED
        raise KeyboardInterrupt if interrupted else _OutOfTimeError

    def value(self, point: _Point) -> float:
        """Return the SVMs' objective."""
        return self.problem.judge(point.subspace.features, point.A, 0.0).upper

    def fewer(
        self, theta: FloatArray, made: Criterion, found: Subspace, A: FloatArray
    ) -> _Point:
        """Return a point whose bound holds for these weights, or for all."""
        largest = math.inf
        if self.kernels.theta is not None:
            best = made.best(A, self.problem.n_components)
            largest = float(best.values.sum())
        return _Point(theta, found, A, largest)


def _change(values: list[float]) -> float:
    return abs(values[-1] - values[-2]) / max(abs(values[-1]), 1e-300)


def _compressed(N: FloatArray) -> FloatArray:
    """Return fewer columns with the same ``N N'``, where there are more than rows."""
    U, s, _ = np.linalg.svd(N, full_matrices=False)
    keep = s > 1e-12 * s[0]
    return np.asarray(U[:, keep] * s[keep])


# --- alignment ------------------------------------------------------------------------


def maximise_alignment(
    problem: Alignment,
    n_components: int,
    *,
    tol: float = 1e-4,
    max_iter: int = 100,
    random_state: int = 0,
) -> tuple[Subspace, float, int]:
    """Return a subspace of large alignment (SKFE), by conjugate gradients.

    The coefficients W are the variables, as in the paper. Nothing but the number of
    steps keeps the features from fitting the labels of the training samples exactly.
    Where the steps end at ``max_iter``, as they do unless the kernel is narrow, the
    alignment is not at a maximum, and rounding decides where on the way to one: another
    processor may give other features, which are as good. Steps that end before are at
    a local maximum.

    Parameters
    ----------
    problem : Alignment
    n_components : int
    tol : float
        Largest entry of the gradient, relative to that at the start, to stop at.
    max_iter : int
    random_state : int
        Of the first directions beyond the class means.

    Returns
    -------
    subspace : Subspace
    alignment : float
    n_iter : int
    """
    W = problem.start(n_components, random_state)
    shape = W.shape
    # alignment is the same for W of any length: one in which the slopes are moderate
    scale = max(float(np.abs(problem.value_and_gradient(W)[1]).max()), 1e-300)

    def cost(flat: FloatArray) -> tuple[float, FloatArray]:
        value, slope = problem.value_and_gradient(flat.reshape(shape) / scale)
        return -value, -slope.ravel() / scale

    found = minimize(
        cost,
        W.ravel() * scale,
        jac=True,
        method="CG",
        options={"gtol": tol, "maxiter": max_iter},
    )
    subspace = problem.features(found.x.reshape(shape) / scale)
    return subspace, -float(found.fun), max(1, int(found.nit))
