"""Solvers, one module for each algorithm, and the driver that runs them."""

from mklearn.solvers.alternating import Alternating
from mklearn.solvers.base import History, Iterate, Need, Solution, Status
from mklearn.solvers.conic import Conic
from mklearn.solvers.cutting_plane import CuttingPlane
from mklearn.solvers.driver import solve
from mklearn.solvers.evidence import AverageInformation
from mklearn.solvers.interleaved import Interleaved
from mklearn.solvers.joint import Damped, Exact, Rounds
from mklearn.solvers.lbfgs import LBFGS
from mklearn.solvers.multiclass_newton import MulticlassNewton, ProjectedGradient
from mklearn.solvers.newton import Newton
from mklearn.solvers.pass_newton import PassNewton
from mklearn.solvers.path import Path, mkl_path
from mklearn.solvers.reduced_gradient import ReducedGradient
from mklearn.solvers.semidefinite import Semidefinite
from mklearn.solvers.subspace import solve_joint
from mklearn.solvers.targets import OwnWeights
from mklearn.solvers.wrappers import ActiveSet, Multilevel, Screened

__all__ = [
    "ActiveSet",
    "Alternating",
    "AverageInformation",
    "OwnWeights",
    "Conic",
    "CuttingPlane",
    "Damped",
    "Exact",
    "History",
    "Interleaved",
    "Iterate",
    "LBFGS",
    "MulticlassNewton",
    "Multilevel",
    "Need",
    "Newton",
    "PassNewton",
    "Path",
    "ProjectedGradient",
    "ReducedGradient",
    "Rounds",
    "Screened",
    "Semidefinite",
    "Solution",
    "Status",
    "mkl_path",
    "solve",
    "solve_joint",
]
