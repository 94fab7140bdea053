"""What is optimised: losses, weight sets, and problems that judge any iterate."""

from mklearn.data.blocks import Blocks
from mklearn.problems.base import Certificate, Judgement
from mklearn.problems.bilinear import BilinearProblem
from mklearn.problems.evidence import EvidenceProblem, Likelihood
from mklearn.problems.losses import (
    CrammerSinger,
    EpsilonInsensitive,
    Hinge,
    Logistic,
    OneClass,
    Piece,
    Piecewise,
    Pointwise,
    Squared,
    SquaredHinge,
)
from mklearn.problems.lowrank import FeatureProblem
from mklearn.problems.mkl import (
    MKLProblem,
    ivanov,
    learned_cost,
    tikhonov,
)
from mklearn.problems.scatter import Statistics
from mklearn.problems.weights import (
    BlockNorm,
    ConvexSet,
    ElasticNet,
    Ellipsoid,
    LpBall,
    WeightSet,
    block_norm,
)

__all__ = [
    "BilinearProblem",
    "BlockNorm",
    "Certificate",
    "Blocks",
    "ConvexSet",
    "CrammerSinger",
    "ElasticNet",
    "Ellipsoid",
    "EpsilonInsensitive",
    "EvidenceProblem",
    "FeatureProblem",
    "Hinge",
    "Judgement",
    "Likelihood",
    "Logistic",
    "LpBall",
    "MKLProblem",
    "OneClass",
    "Piece",
    "Piecewise",
    "Pointwise",
    "Squared",
    "SquaredHinge",
    "Statistics",
    "WeightSet",
    "block_norm",
    "ivanov",
    "learned_cost",
    "tikhonov",
]
