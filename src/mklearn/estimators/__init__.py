"""The scikit-learn face of the library."""

from mklearn.estimators.baselines import BestKernelClassifier, UniformMKLClassifier
from mklearn.estimators.cv import MKLClassifierCV, MKLRegressorCV
from mklearn.estimators.one_class import MKLOneClass
from mklearn.estimators.regression import MKLRegressor
from mklearn.estimators.svm import MKLClassifier

__all__ = [
    "BestKernelClassifier",
    "MKLClassifier",
    "MKLClassifierCV",
    "MKLOneClass",
    "MKLRegressor",
    "MKLRegressorCV",
    "UniformMKLClassifier",
]
