"""The scikit-learn face of the library."""

from mklearn.estimators.baselines import BestKernelClassifier, UniformMKLClassifier
from mklearn.estimators.svm import MKLClassifier

__all__ = ["BestKernelClassifier", "MKLClassifier", "UniformMKLClassifier"]
