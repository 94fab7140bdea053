"""Multiple kernel learning with certificates, in the style of scikit-learn."""

from mklearn import kernels
from mklearn.estimators import (
    AlignmentMKLClassifier,
    BestKernelClassifier,
    BilinearMKLClassifier,
    CrammerSingerClassifier,
    EvidenceMKLRegressor,
    MKLClassifier,
    MKLClassifierCV,
    MKLDiscriminant,
    MKLOneClass,
    MKLRegressor,
    MKLRegressorCV,
    SingleKernelCV,
    SubspaceClassifier,
    SubspaceClassifierCV,
    SubspaceKernel,
    UniformMKLClassifier,
)
from mklearn.kernels import KernelBank, MultiView
from mklearn.problems import (
    BilinearProblem,
    BlockNorm,
    CrammerSinger,
    ElasticNet,
    Ellipsoid,
    EpsilonInsensitive,
    Hinge,
    Logistic,
    LpBall,
    MKLProblem,
    OneClass,
    Squared,
    SquaredHinge,
    block_norm,
)
from mklearn.solvers import Path, Solution, mkl_path, solve

__version__ = "0.1.0"

__all__ = [
    # estimators
    "MKLClassifier",
    "MKLRegressor",
    "MKLClassifierCV",
    "MKLRegressorCV",
    "EvidenceMKLRegressor",
    "MKLOneClass",
    "MKLDiscriminant",
    "BilinearMKLClassifier",
    "SubspaceKernel",
    "SubspaceClassifier",
    "SubspaceClassifierCV",
    # what multiple kernel learning has to beat
    "UniformMKLClassifier",
    "AlignmentMKLClassifier",
    "BestKernelClassifier",
    "SingleKernelCV",
    "CrammerSingerClassifier",
    # data and kernels
    "kernels",
    "KernelBank",
    "MultiView",
    # the functional layer: problems
    "MKLProblem",
    "BilinearProblem",
    # losses
    "Hinge",
    "SquaredHinge",
    "Squared",
    "EpsilonInsensitive",
    "Logistic",
    "OneClass",
    "CrammerSinger",
    # sets of kernel weights
    "LpBall",
    "Ellipsoid",
    "ElasticNet",
    "BlockNorm",
    "block_norm",
    # solvers
    "solve",
    "mkl_path",
    "Solution",
    "Path",
]
