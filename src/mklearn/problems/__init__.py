"""What is optimised: losses, weight sets, and problems that judge any iterate."""

from mklearn.data.blocks import Blocks
from mklearn.problems.bilinear import BilinearProblem
from mklearn.problems.evidence import EvidenceProblem
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
from mklearn.problems.mkl import (
    Judgement,
    MKLProblem,
    ivanov,
    learned_cost,
    tikhonov,
)
from mklearn.problems.passes import FeatureProblem
from mklearn.problems.statistics import Statistics
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
