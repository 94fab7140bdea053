"""How: one file for each algorithm, and the driver that runs them all."""

from mklearn.solvers.alternating import Alternating
from mklearn.solvers.base import History, Iterate, Solution, Status
from mklearn.solvers.conic import Conic
from mklearn.solvers.cutting_plane import CuttingPlane
from mklearn.solvers.driver import solve
from mklearn.solvers.evidence import AverageInformation, maximise_evidence
from mklearn.solvers.interleaved import Interleaved
from mklearn.solvers.joint import Damped, Exact, Rounds, solve_joint
from mklearn.solvers.lbfgs import LBFGS
from mklearn.solvers.multiclass_newton import MulticlassNewton, ProjectedGradient
from mklearn.solvers.multilevel import Multilevel
from mklearn.solvers.newton import Newton
from mklearn.solvers.pass_newton import PassNewton, solve_passes
from mklearn.solvers.path import Path, mkl_path
from mklearn.solvers.reduced_gradient import ReducedGradient
from mklearn.solvers.screened import Screened
from mklearn.solvers.semidefinite import Semidefinite

__all__ = [
    "Alternating",
    "AverageInformation",
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
    "maximise_evidence",
    "mkl_path",
    "solve",
    "solve_joint",
    "solve_passes",
]
