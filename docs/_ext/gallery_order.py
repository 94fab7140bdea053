"""The order of the gallery: from the first example to the special ones."""

from pathlib import Path

ORDER = (
    "tumour_views",
    "honest_comparison",
    "mfeat_views",
    "norms",
    "cost_path",
    "omics",
    "joined_tables",
    "gene_sets",
    "subjects",
    "survival",
    "targets_fmri",
    "targets_digits",
    "stability",
    "decisions",
    "loose_weights",
    "probabilities",
    "class_weights",
    "subspace",
    "fisher_roc",
    "texture_kernels",
    "sequences",
    "graphs",
    "molecules",
    "evidence",
    "additive_regression",
    "novelty",
    "solvers",
)


class GalleryOrder:
    """Sort key for files: their place in ``ORDER``; others come last, by name."""

    def __init__(self, src_dir):
        self.src_dir = src_dir

    def __call__(self, filename):
        """Return what to sort by."""
        name = Path(filename).stem.removeprefix("plot_")
        return (ORDER.index(name) if name in ORDER else len(ORDER), name)
