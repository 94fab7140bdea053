"""Data with known answers."""

from mklearn.datasets.toy import bayes_error, make_toy

__all__ = ["bayes_error", "make_toy"]
