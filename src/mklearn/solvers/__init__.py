"""How: one file for each algorithm, and the driver that runs them all."""

from mklearn.solvers.alternating import Alternating
from mklearn.solvers.base import History, Iterate, Solution, Status
from mklearn.solvers.cutting_plane import CuttingPlane
from mklearn.solvers.driver import solve

__all__ = [
    "Alternating",
    "CuttingPlane",
    "History",
    "Iterate",
    "Solution",
    "Status",
    "solve",
]
