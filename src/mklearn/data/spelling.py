"""Counts in the singular and plural, and suggestions for misspelt names."""

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


def plural(count: int, noun: str) -> str:
    """Return a count with its noun, in the singular if the count is one.

    Parameters
    ----------
    count : int
    noun : str
        In the singular; words before the noun are allowed.

    Examples
    --------
    >>> plural(1, "iteration"), plural(0, "sample"), plural(3, "other class")
    ('1 iteration', '0 samples', '3 other classes')
    """
    if count == 1:
        return f"{count} {noun}"
    if noun.endswith("s"):
        return f"{count} {noun}es"
    if noun.endswith("y"):
        return f"{count} {noun[:-1]}ies"
    return f"{count} {noun}s"
