"""Solvers of subspace kernels, as used by their estimators."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning

from mklearn.kernels.bank import KernelBank
from mklearn.kernels.dense import DenseGrams
from mklearn.problems.base import Iterate
from mklearn.problems.protocols import Loss
from mklearn.problems.subspace import (
    Alignment,
    JointPoint,
    JointProblem,
    Kernels,
    Subspace,
)
from mklearn.solvers.base import History, Solution, Solver, Status
from mklearn.solvers.driver import solve
from mklearn.solvers.joint import Damped, integration, svms_on
from mklearn.solvers.registry import JOINT, choose_solver

FloatArray = NDArray[np.float64]

METHODS = ("auto", *JOINT)


def integrate(
    kernels: Kernels,
    L: FloatArray,
    solver: str | Solver = "newton",
    *,
    start: FloatArray | None = None,
    **settings: Any,
) -> Solution:
    """Return the weights that minimise (27).

    Parameters
    ----------
    kernels : Kernels
    L : array of shape (n, k)
        Centred targets.
    solver : str or Solver
    start : array of shape (M,), optional
        Starting weights.
    **settings
        Arguments of :func:`mklearn.solve`: tolerance, limits, callback, verbosity.
    """
    begin = None if start is None else Iterate(start, np.zeros_like(L))
    return solve(integration(kernels, L), solver, start=begin, **settings)


def svm_on(
    features: FloatArray | KernelBank | DenseGrams,
    loss: Loss,
    *,
    tol: float = 1e-5,
    start: FloatArray | None = None,
    time_limit: float | None = None,
) -> Solution:
    """Return the SVMs, one for each task, on the linear kernel of features.

    Parameters
    ----------
    features : array of shape (n, q), or KernelBank or DenseGrams of one kernel
        For Grams the solution is approximate: its bounds are not recomputed.
    loss : Loss
    tol : float
        Relative duality gap.
    start : array of shape (n, T), optional
        Starting point, signed dual variables.
    time_limit : float, optional
    """
    problem, begin = svms_on(features, loss, start)
    with warnings.catch_warnings():
        # callers judge the accuracy of the solution themselves
        warnings.simplefilter("ignore", ConvergenceWarning)
        return solve(problem, tol=tol, time_limit=time_limit, start=begin)


def solve_joint(
    problem: JointProblem,
    method: str = "auto",
    *,
    tol: float = 1e-4,
    max_iter: int = 100,
    time_limit: float | None = None,
    callback: Callable[[Any], Any] | None = None,
    verbose: int = 0,
    start: FloatArray | None = None,
    solver: str | Solver = "newton",
    weights_tol: float = 1e-6,
) -> Solution:
    """Solve (9), (20) or, over several kernels, (39).

    Parameters
    ----------
    problem : JointProblem
    method : {"auto", "exact", "damped", "alternating"}
        :class:`Exact`, :class:`Damped` or :class:`Rounds`; "auto" is "exact" if there
        are as many features as SVMs, and "damped" otherwise.
    tol : float
        Relative gap or, unless the method is "exact", relative change of the objective
        at which to stop.
    max_iter, time_limit, callback, verbose
        As in :func:`mklearn.solve`.
    start : array of shape (n, T), optional
        Signed dual variables of a similar problem.
    solver, weights_tol
        For the kernel weights.

    Returns
    -------
    Solution
        With the :class:`~mklearn.problems.subspace.JointPoint` in ``about``.
    """
    if method not in METHODS:
        raise ValueError(f"joint must be one of {METHODS}, got {method!r}.")
    made = choose_solver(method, problem)
    weights = choose_solver(solver, integration(problem.kernels, problem.targets))
    made = replace(made, accuracy=0.1 * tol, solver=weights, tol=weights_tol)
    if isinstance(made, Damped):
        made = replace(made, enough=tol)
    return solve(
        problem,
        made,
        tol=tol,
        max_iter=max_iter,
        time_limit=time_limit,
        callback=callback,
        verbose=verbose,
        start=None if start is None else Iterate(problem.kernels.start(), start),
    )


def without_bounds(
    theta: FloatArray,
    found: Subspace,
    value: float,
    n_iter: int = 1,
    *,
    local: bool = False,
) -> Solution:
    """Return a subspace that did not come from the loop as a solution.

    Parameters
    ----------
    theta : array of shape (M,)
    found : Subspace
    value : float
        Value of the criterion, which is maximised.
    n_iter : int
    local : bool
        Whether this is a local maximum; otherwise it is the global one in closed form.
    """
    if local:
        claim = f"The criterion is {value:.6g}, a local maximum"
    else:
        claim = f"The criterion is {value:.6g}, the global maximum in closed form"
    return Solution(
        theta=theta,
        A=found.coef,
        bias=np.zeros(found.coef.shape[1]),
        dual=found.coef,
        upper=-float(value),
        lower=-np.inf if local else -float(value),
        status=Status.STATIONARY if local else Status.OPTIMAL,
        n_iter=n_iter,
        time=0.0,
        solver="alignment" if local else "closed form",
        history=History(),
        weight_bounds=np.ones(len(theta)),
        about=JointPoint(found),
        claim=claim,
    )


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

    The coefficients W are the variables, as in the paper. Only the limited number of
    steps keeps the features from fitting the labels of the training samples exactly. If
    the steps end at ``max_iter``, as they do unless the kernel is narrow, the alignment
    is not at a maximum, and the result depends on rounding: another processor may give
    other features, which are equally good. If they end earlier, they are at a local
    maximum.

    Parameters
    ----------
    problem : Alignment
    n_components : int
    tol : float
        Largest entry of the gradient, relative to that at the start, at which to stop.
    max_iter : int
    random_state : int
        Seed of the initial directions beyond the class means.

    Returns
    -------
    subspace : Subspace
    alignment : float
    n_iter : int
    """
    W = problem.start(n_components, random_state)
    shape = W.shape
    # alignment does not depend on the scale of W: choose one with moderate gradients
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
