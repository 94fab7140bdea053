"""Suggestions for misspelt names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(wanted: object, known: Iterable[object]) -> str:
    """Return a question with names of similar spelling, or an empty string.

    Parameters
    ----------
    wanted : object
        The unknown name.
    known : iterable
        The known names.

    Examples
    --------
    >>> did_you_mean("gnes", ["genes", "clinic"])
    "Did you mean 'genes'? "
    >>> did_you_mean("xyz", ["genes", "clinic"])
    ''
    """
    names = {str(name): None for name in known}
    near = difflib.get_close_matches(str(wanted), names, n=3, cutoff=0.6)
    folded = [n for n in names if n.lower() == str(wanted).lower() and n not in near]
    near = [*folded, *near][:3]
    return f"Did you mean {' or '.join(map(repr, near))}? " if near else ""
