"""Multiple kernel learning with certificates, in the style of scikit-learn."""

from mklearn import kernels
from mklearn.estimators import (
    BestKernelClassifier,
    MKLClassifier,
    UniformMKLClassifier,
)
from mklearn.kernels import KernelBank, MultiView
from mklearn.problems import Hinge, LpBall, MKLProblem
from mklearn.solvers import Solution, solve

__version__ = "0.1.0"

__all__ = [
    # estimators
    "MKLClassifier",
    # what multiple kernel learning has to beat
    "UniformMKLClassifier",
    "BestKernelClassifier",
    # data and kernels
    "kernels",
    "KernelBank",
    "MultiView",
    # the functional layer
    "MKLProblem",
    "Hinge",
    "LpBall",
    "solve",
    "Solution",
]
