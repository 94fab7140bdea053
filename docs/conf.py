"""How the documentation is built; see ``make docs``."""

import os
import sys
from importlib.metadata import version as installed
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "mklearn"
author = "The mklearn developers"
project_copyright = "The mklearn developers, BSD 3-Clause"
version = release = installed("mklearn")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
    "numpydoc",
    "sphinx_gallery.gen_gallery",
    "mathml",
    "results_summary",
]
exclude_patterns = ["_build", "_templates"]
templates_path = ["_templates"]
default_role = "code"
highlight_language = "none"
nitpicky = False  # types in docstrings are words, not references

# --- Markdown ---------------------------------------------------------------------

myst_enable_extensions = ["amsmath", "attrs_block", "colon_fence", "dollarmath"]
myst_heading_anchors = 3
myst_links_external_new_tab = False

# --- mathematics: MathML, which browsers draw without scripts -----------------------

html_math_renderer = "mathml"

# --- the reference --------------------------------------------------------------------

autosummary_generate = True
autodoc_typehints = "none"
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
numpydoc_xref_param_type = False
# What a docstring must have; style is ruff's concern.
numpydoc_validation_checks = {
    "GL03",  # no double blank lines
    "GL06",  # no section that numpydoc does not know
    "GL07",  # sections in their order
    "GL08",  # there is a docstring
    "SS01",  # with a summary
    "PR01",  # every parameter documented
    "PR02",  # and no parameter that does not exist
    "PR03",  # in the order of the signature
    "PR10",  # "name : type"
}
_FUNCTIONAL = (
    "Kernel|KernelBank|MultiView|MKLProblem|BilinearProblem|Hinge|SquaredHinge|Squared"
    "|EpsilonInsensitive|Logistic|OneClass|CrammerSinger|LpBall|Ellipsoid|ElasticNet"
    "|BlockNorm|TableModel|FeatureMap|FeatureProblem|Statistics|EvidenceProblem"
    r"|\w*Blocks|BlockSource|Pointwise|Piecewise|WeightSet|ConvexSet|Need"
    "|Exact|Damped|Rounds|Multinomial|OrderedProblem|TwoLevel|Cox|OwnEvidence|OwnSquared"
    "|TestedKernels"
)
_RESULTS = (
    "ApproximationError|Blocks|Certificate|Comparison|DecisionParts|FeatureMap|History"
    "|Iterate|Judgement|KernelImportance|Likelihood|Path|Solution|Statistics|Status"
    "|WeightStability|KernelTests|WeightErrors|Likelihoods|Bounds|CertifiedSelection"
    "|CertifiedPath|HierarchicalTests|PermutationTest|TestedKernels|ScoreByView"
    "|StabilitySelection|GroupReport"
)
numpydoc_validation_exclude = {
    r"\.(get_metadata_routing|set_\w+_request)$",  # scikit-learn's own
    rf"\.({_FUNCTIONAL})\.\w+$",  # one line that names the arguments is enough
    r"\.(check|iterates|passes|suits)$",  # of solvers, as the protocol has them
    rf"\.({_RESULTS})$",  # what is returned has attributes, not parameters
    r"\.(Block|Piece|WeightSet|ConvexSet)$",  # so have tuples; protocols have none
    r"^mklearn\.(report|table)\.",
}

# --- examples -------------------------------------------------------------------------

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"plot_",
    "ignore_pattern": r"demo_\w+\.py$",  # programs, which are no pages
    "within_subsection_order": "gallery_order.GalleryOrder",
    "backreferences_dir": "api/backreferences",
    "doc_module": ("mklearn",),
    "download_all_examples": False,
    "image_srcset": ["2x"],
    "show_memory": False,
    "min_reported_time": 3600,  # times say more about the machine
    "show_signature": False,
    "write_computation_times": False,
    "remove_config_comments": True,
    "plot_gallery": os.environ.get("MKLEARN_GALLERY", "1") != "0",
    "parallel": int(os.environ.get("MKLEARN_GALLERY_JOBS", "2")),
}

# --- pages ----------------------------------------------------------------------------

html_theme = "furo"
html_title = f"mklearn {release}"
html_static_path = ["_static"]
html_css_files = ["mklearn.css"]
html_copy_source = False
html_show_sourcelink = False
pygments_style = "tango"
pygments_dark_style = "monokai"
html_theme_options = {
    "light_css_variables": {
        "color-brand-primary": "#0b5c8c",
        "color-brand-content": "#0b5c8c",
        "color-brand-visited": "#4a4a8a",
    },
    "dark_css_variables": {
        "color-brand-primary": "#56b4e9",
        "color-brand-content": "#56b4e9",
        "color-brand-visited": "#9fb4e9",
    },
}
