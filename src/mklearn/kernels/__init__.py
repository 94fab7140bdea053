"""Kernels, views, and banks of Gram matrices."""

from mklearn.data.views import MultiView
from mklearn.kernels.bank import KernelBank
from mklearn.kernels.families import per_feature, per_view, rbf_ladder
from mklearn.kernels.feature_map import FeatureMap
from mklearn.kernels.groups import GroupReport, per_group
from mklearn.kernels.landmarks import ApproximationError
from mklearn.kernels.measures import alignment, hsic
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
    Product,
    Spectrum,
    Tanimoto,
    WeightedDegree,
)

__all__ = [
    "RBF",
    "ApproximationError",
    "Chi2",
    "Cosine",
    "FeatureMap",
    "Function",
    "GroupReport",
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
    "Product",
    "Spectrum",
    "Tanimoto",
    "WeightedDegree",
    "alignment",
    "hsic",
    "per_feature",
    "per_group",
    "per_view",
    "rbf_ladder",
]
