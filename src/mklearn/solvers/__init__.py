"""How: one file for each algorithm, and the driver that runs them all."""

from mklearn.solvers.alternating import Alternating
from mklearn.solvers.base import History, Iterate, Solution, Status
from mklearn.solvers.cutting_plane import CuttingPlane
from mklearn.solvers.driver import solve
from mklearn.solvers.multilevel import Multilevel
from mklearn.solvers.newton import Newton

__all__ = [
    "Alternating",
    "CuttingPlane",
    "History",
    "Iterate",
    "Multilevel",
    "Newton",
    "Solution",
    "Status",
    "solve",
]
