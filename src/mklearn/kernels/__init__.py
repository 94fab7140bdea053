"""What is compared: kernels, views, and banks of Gram matrices."""

from mklearn.kernels.bank import KernelBank
from mklearn.kernels.lowrank import ApproximationError, FeatureMap
from mklearn.kernels.measures import alignment, hsic
from mklearn.kernels.multiview import MultiView
from mklearn.kernels.specs import (
    RBF,
    Chi2,
    Cosine,
    Function,
    HistogramIntersection,
    Kernel,
    Laplacian,
    Linear,
    Matern32,
    Matern52,
    Polynomial,
    Precomputed,
    Spectrum,
    Tanimoto,
    WeightedDegree,
    per_feature,
    per_view,
    rbf_ladder,
)

__all__ = [
    "RBF",
    "ApproximationError",
    "Chi2",
    "Cosine",
    "FeatureMap",
    "Function",
    "HistogramIntersection",
    "Kernel",
    "KernelBank",
    "Laplacian",
    "Linear",
    "Matern32",
    "Matern52",
    "MultiView",
    "Polynomial",
    "Precomputed",
    "Spectrum",
    "Tanimoto",
    "WeightedDegree",
    "alignment",
    "hsic",
    "per_feature",
    "per_view",
    "rbf_ladder",
]
