"""Solvers by name, and the choice of "auto"."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from mklearn.problems.base import Kind
from mklearn.problems.mkl import Problem
from mklearn.problems.protocols import BoxLoss
from mklearn.problems.weights import ElasticNet
from mklearn.solvers.alternating import Alternating
from mklearn.solvers.base import Solver
from mklearn.solvers.conic import Conic
from mklearn.solvers.cutting_plane import CuttingPlane
from mklearn.solvers.evidence import AverageInformation
from mklearn.solvers.interleaved import Interleaved
from mklearn.solvers.joint import Damped, Exact, Rounds
from mklearn.solvers.lbfgs import LBFGS
from mklearn.solvers.multiclass_newton import MulticlassNewton, ProjectedGradient
from mklearn.solvers.newton import Newton
from mklearn.solvers.pass_newton import PassNewton
from mklearn.solvers.reduced_gradient import ReducedGradient
from mklearn.solvers.semidefinite import Semidefinite
from mklearn.solvers.targets import OwnWeights
from mklearn.solvers.wrappers import ActiveSet, Multilevel, Screened

SOLVERS: dict[str, Callable[[], Solver]] = {
    "active_set": ActiveSet,
    "alternating": Alternating,
    "conic": Conic,
    "cutting_plane": CuttingPlane,
    "interleaved": Interleaved,
    "lbfgs": LBFGS,
    "multilevel": Multilevel,
    "newton": Newton,
    "reduced_gradient": ReducedGradient,
    "screened": Screened,
    "sdp": Semidefinite,
    # the names of the formulations in DKL
    "qcqp": Conic,
    "sdp-approx": partial(Semidefinite, approximate=True),
    "silp": partial(CuttingPlane, level=0.0),
}

# the meaning of the names if a loss couples the classes
MULTICLASS: dict[str, Callable[[], Solver]] = {
    "active_set": partial(ActiveSet, MulticlassNewton()),
    "alternating": Alternating,
    "conic": Conic,
    "cutting_plane": CuttingPlane,
    "multilevel": partial(Multilevel, MulticlassNewton()),
    "newton": MulticlassNewton,
    "projected_gradient": ProjectedGradient,
    "reduced_gradient": ReducedGradient,
}

EVIDENCE: dict[str, Callable[[], Solver]] = {
    "average_information": AverageInformation,
}

# subspaces jointly with SVMs
JOINT: dict[str, Callable[[], Solver]] = {
    "exact": Exact,
    "damped": Damped,
    "alternating": Rounds,
}

# separate weights for each target
TARGETS: dict[str, Callable[[], Solver]] = {
    "own_weights": OwnWeights,
}

NAMES: dict[Kind, dict[str, Callable[[], Solver]]] = {
    "kernels": SOLVERS,
    "classes": MULTICLASS,
    "joint": JOINT,
    "evidence": EVIDENCE,
    "targets": TARGETS,
}


def choose_solver(solver: Any, problem: Any, *, samples: bool = True) -> Any:
    """Return the solver for a name and a problem, if its requirements are met.

    Parameters
    ----------
    solver : str or Solver
        "auto", a name, or a solver object.
    problem : any problem of the library
    samples : bool
        Whether the rows of the problem are samples, so that a subset of them is
        representative. This is not the case for pseudo-samples.
    """
    if problem.kind == "features":
        return _passes(solver)
    known = NAMES.get(problem.kind, {})
    if isinstance(solver, str):
        if solver == "auto" and problem.kind in _AUTO:
            solver = _AUTO[problem.kind](problem) if samples else _of_few(problem)
        elif solver in known:
            solver = known[solver]()
        else:
            raise ValueError(
                f"Unknown solver {solver!r}; choose 'auto' or one of {sorted(known)}."
            )
    if not isinstance(solver, Solver) or isinstance(solver, type):
        raise ValueError(
            f"solver must be 'auto', one of {sorted(known)} or a solver object (with "
            f"needs and iterates), got {solver!r}."
        )
    check(solver, problem)
    return solver


def _passes(solver: Any) -> PassNewton:
    if isinstance(solver, PassNewton):
        return solver
    if isinstance(solver, str) and solver == "auto":
        return PassNewton()
    raise ValueError(
        "With approximation= and this loss, solver must be 'auto' or a PassNewton "
        f"object, got {solver!r}; other solvers need loss='squared'."
    )


def check(solver: Solver, problem: Any) -> None:
    """Raise ValueError, naming alternatives, if a requirement is not met."""
    for need in solver.needs:
        if not need.met(problem):
            raise ValueError(need.message(problem))


_FEW = 600  # number of samples up to which all rows fit into any memory


# --- "auto", as described in docs/solvers.md ------------------------------------------


def _for_kernels(problem: Problem) -> Solver:
    """Return the solver for tasks that share their weights."""
    n, _, M = problem.bank.shape
    weights = problem.weights
    if _at_once(problem):
        return Alternating()
    box = isinstance(problem.loss, BoxLoss)
    box = box and problem.loss.design is None
    # the rows of few samples fit into any budget that was not set by the user
    few = n <= _FEW and problem.bank.memory_limit is None
    if box and not few and problem.bank.row_budget() < min(n, 500):
        return Interleaved()  # too little memory for the rows of a working set
    newton: Solver = Newton()
    if n >= 1500 or (n >= 900 and M >= 20):  # steps cost more with more kernels
        newton = Multilevel(newton, coarsest=500 if n >= 1500 else 300)
    if _few_of_many(problem):
        return ActiveSet(newton)
    if M > 500 or weights.exponent > 8:
        return Alternating()
    return Screened(newton) if Screened.suits(problem) else newton


def _for_classes(problem: Problem) -> Solver:
    """Return the solver for a loss that couples the classes."""
    n, _, M = problem.bank.shape
    per_class = problem.per_class
    size = M * problem.loss.shape[1] if per_class else M
    rough = per_class and not problem.weights.sparse
    newton: Solver = MulticlassNewton()
    # with weights per class, a subset of the samples is less representative
    newton = (
        Multilevel(newton, coarsest=200)
        if n >= (2000 if per_class else 600)
        else newton
    )
    if not _at_once(problem) and _few_of_many(problem):
        return ActiveSet(newton)
    if _at_once(problem) or size > 2000 or rough:
        return Alternating()
    return newton


def _at_once(problem: Problem) -> bool:
    """Return whether a single step suffices, or the set has no smooth description."""
    weights = problem.weights
    return problem.bank.shape[2] == 1 or weights.fixed or not weights.smooth


def _few_of_many(problem: Problem) -> bool:
    """Return whether only few of many kernels are expected to matter."""
    M, weights = problem.bank.shape[2], problem.weights
    if not ActiveSet.suits(problem):
        return False
    nearly = isinstance(weights, ElasticNet) or weights.exponent <= 1.1
    return M > 200 if weights.sparse else M > 500 and nearly


_AUTO: dict[Kind, Callable[[Any], Solver]] = {
    "kernels": _for_kernels,
    "classes": _for_classes,
    "joint": lambda problem: Exact() if problem.complete else Damped(),
    "evidence": lambda problem: AverageInformation(),
    "targets": lambda problem: OwnWeights(),
}


def _of_few(problem: Problem) -> Solver:
    """Return the solver for pseudo-samples, which are few enough to factorise."""
    return Newton() if problem.weights.smooth else Alternating()
