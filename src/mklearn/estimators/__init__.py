"""Estimators with the interface of scikit-learn."""

from mklearn.estimators.baselines import (
    AlignmentMKLClassifier,
    BestKernelClassifier,
    SingleKernelCV,
    UniformMKLClassifier,
)
from mklearn.estimators.bilinear import (
    BilinearMKLClassifier,
    CrammerSingerClassifier,
)
from mklearn.estimators.classifier import MKLClassifier
from mklearn.estimators.discriminant import MKLDiscriminant
from mklearn.estimators.evidence import EvidenceMKLRegressor
from mklearn.estimators.one_class import MKLOneClass
from mklearn.estimators.regressor import MKLRegressor
from mklearn.estimators.search import MKLClassifierCV, MKLCoxCV, MKLRegressorCV
from mklearn.estimators.subspace import SubspaceClassifier, SubspaceKernel
from mklearn.estimators.subspace_cv import SubspaceClassifierCV
from mklearn.estimators.survival import MKLCox, MKLSurvivalSVM

__all__ = [
    "AlignmentMKLClassifier",
    "BestKernelClassifier",
    "BilinearMKLClassifier",
    "CrammerSingerClassifier",
    "EvidenceMKLRegressor",
    "MKLClassifier",
    "MKLClassifierCV",
    "MKLCox",
    "MKLCoxCV",
    "MKLDiscriminant",
    "MKLOneClass",
    "MKLRegressor",
    "MKLRegressorCV",
    "MKLSurvivalSVM",
    "SingleKernelCV",
    "SubspaceClassifier",
    "SubspaceClassifierCV",
    "SubspaceKernel",
    "UniformMKLClassifier",
]
