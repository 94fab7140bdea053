"""What is optimised: losses, weight sets, and problems that judge any iterate."""

from mklearn.problems.losses import Hinge
from mklearn.problems.mkl import Judgement, MKLProblem
from mklearn.problems.weights import LpBall

__all__ = ["Hinge", "Judgement", "LpBall", "MKLProblem"]
