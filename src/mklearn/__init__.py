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
    MKLCox,
    MKLCoxCV,
    MKLDiscriminant,
    MKLOneClass,
    MKLRegressor,
    MKLRegressorCV,
    MKLSurvivalSVM,
    SingleKernelCV,
    SubspaceClassifier,
    SubspaceClassifierCV,
    SubspaceKernel,
    UniformMKLClassifier,
)
from mklearn.estimators.view_transformer import ViewTransformer
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
    Multinomial,
    OneClass,
    Squared,
    SquaredHinge,
    TwoLevel,
    block_norm,
)
from mklearn.solvers import Path, Solution, mkl_path, solve

__version__ = "0.2.0"

__all__ = [
    # estimators
    "MKLClassifier",
    "MKLRegressor",
    "MKLClassifierCV",
    "MKLRegressorCV",
    "MKLCox",
    "MKLCoxCV",
    "MKLSurvivalSVM",
    "EvidenceMKLRegressor",
    "MKLOneClass",
    "MKLDiscriminant",
    "BilinearMKLClassifier",
    "SubspaceKernel",
    "SubspaceClassifier",
    "SubspaceClassifierCV",
    # baselines
    "UniformMKLClassifier",
    "AlignmentMKLClassifier",
    "BestKernelClassifier",
    "SingleKernelCV",
    "CrammerSingerClassifier",
    # data and kernels
    "kernels",
    "KernelBank",
    "MultiView",
    "ViewTransformer",
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
    "Multinomial",
    # sets of kernel weights
    "LpBall",
    "Ellipsoid",
    "ElasticNet",
    "BlockNorm",
    "TwoLevel",
    "block_norm",
    # solvers
    "solve",
    "mkl_path",
    "Solution",
    "Path",
]
