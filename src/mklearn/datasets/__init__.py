"""Data sets by name, and data with known answers."""

from mklearn.datasets.catalogue import available
from mklearn.datasets.groups import make_groups
from mklearn.datasets.loading import load
from mklearn.datasets.toy import bayes_error, make_toy
from mklearn.datasets.views import make_multiview
from mklearn.datasets.waveform import make_waveform

__all__ = [
    "load",
    "available",
    "make_toy",
    "bayes_error",
    "make_waveform",
    "make_multiview",
    "make_groups",
]
