"""Statistical tests of kernels, and certified selection."""

from mklearn.inference.kernel_tests import (
    HierarchicalTests,
    KernelTests,
    TestedKernels,
    hierarchical_tests,
    kernel_tests,
)
from mklearn.inference.permutation_test import PermutationTest, permutation_test
from mklearn.inference.selection import (
    CertifiedPath,
    CertifiedSelection,
    certified_path,
    certified_selection,
    selection_of,
    selection_path,
)
from mklearn.inference.tails import ratio_tail, tail_probability

__all__ = [
    "CertifiedPath",
    "CertifiedSelection",
    "HierarchicalTests",
    "KernelTests",
    "PermutationTest",
    "TestedKernels",
    "certified_path",
    "certified_selection",
    "hierarchical_tests",
    "kernel_tests",
    "permutation_test",
    "ratio_tail",
    "selection_of",
    "selection_path",
    "tail_probability",
]
