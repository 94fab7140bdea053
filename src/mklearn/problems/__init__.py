"""What is optimised: losses, weight sets, and problems that bound any iterate."""

from mklearn.data.blocks import Blocks
from mklearn.problems.base import Certificate, Judgement
from mklearn.problems.bilinear import BilinearProblem
from mklearn.problems.coupled import CrammerSinger, Multinomial, OneClass
from mklearn.problems.evidence import EvidenceProblem, Likelihood, WeightErrors
from mklearn.problems.losses import (
    EpsilonInsensitive,
    Hinge,
    Logistic,
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
from mklearn.problems.ordered import OrderedProblem
from mklearn.problems.scatter import Statistics
from mklearn.problems.survival import Cox
from mklearn.problems.targets import Bounds, Likelihoods, OwnEvidence, OwnSquared
from mklearn.problems.weights import (
    BlockNorm,
    ConvexSet,
    ElasticNet,
    Ellipsoid,
    LpBall,
    TwoLevel,
    WeightSet,
    block_norm,
)

__all__ = [
    "BilinearProblem",
    "BlockNorm",
    "TwoLevel",
    "Certificate",
    "Blocks",
    "ConvexSet",
    "Cox",
    "CrammerSinger",
    "ElasticNet",
    "Ellipsoid",
    "EpsilonInsensitive",
    "Bounds",
    "EvidenceProblem",
    "Likelihoods",
    "OwnEvidence",
    "OwnSquared",
    "FeatureProblem",
    "Hinge",
    "Judgement",
    "Likelihood",
    "Logistic",
    "Multinomial",
    "LpBall",
    "MKLProblem",
    "OneClass",
    "OrderedProblem",
    "Piece",
    "Piecewise",
    "Pointwise",
    "Squared",
    "SquaredHinge",
    "Statistics",
    "WeightErrors",
    "WeightSet",
    "block_norm",
    "ivanov",
    "learned_cost",
    "tikhonov",
]
