"""How: one file for each algorithm, and the driver that runs them all."""

from mklearn.solvers.alternating import Alternating
from mklearn.solvers.base import History, Iterate, Need, Solution, Status
from mklearn.solvers.conic import Conic
from mklearn.solvers.cutting_plane import CuttingPlane
from mklearn.solvers.driver import solve
from mklearn.solvers.evidence import EvidenceSolution, maximise_evidence
from mklearn.solvers.interleaved import Interleaved
from mklearn.solvers.joint import JointSolution, solve_joint
from mklearn.solvers.lbfgs import LBFGS
from mklearn.solvers.multiclass_newton import MulticlassNewton, ProjectedGradient
from mklearn.solvers.newton import Newton
from mklearn.solvers.pass_newton import PassNewton, solve_passes
from mklearn.solvers.path import Path, mkl_path
from mklearn.solvers.reduced_gradient import ReducedGradient
from mklearn.solvers.semidefinite import Semidefinite
from mklearn.solvers.wrappers import Multilevel, Screened

__all__ = [
    "Alternating",
    "Conic",
    "CuttingPlane",
    "EvidenceSolution",
    "History",
    "Interleaved",
    "Iterate",
    "JointSolution",
    "LBFGS",
    "MulticlassNewton",
    "Multilevel",
    "Need",
    "Newton",
    "PassNewton",
    "Path",
    "ProjectedGradient",
    "ReducedGradient",
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
