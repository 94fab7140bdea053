"""What is wrong with data, as exceptions that a caller can tell apart."""

from __future__ import annotations


class NothingToLearnError(ValueError):
    """The samples say nothing about the target, so that no model can be fitted."""
