"""The tables of the papers: protocols, runs that resume, pages that compare.

A package beside the library: ``python -m reproduction PAPER`` from the root of the
project. A protocol says which data, methods and repetitions make a table; a *cell* is
one method on one repetition of one data set. :func:`reproduction.cells.run` works on
cells, :func:`reproduction.page.write` compares them with the printed numbers, and there
is one file for each paper.
"""

from importlib import import_module

from reproduction.cells import Cell, Protocol, Settings, Table, results, run

__all__ = [
    "Cell",
    "PAPERS",
    "Protocol",
    "Settings",
    "Table",
    "protocol",
    "results",
    "run",
]

PAPERS = ("dkl", "kfda", "subspace", "bilinear", "lpmkl")


def protocol(paper: str) -> Protocol:
    """Return the protocol of a paper by its short name.

    Parameters
    ----------
    paper : {"dkl", "kfda", "subspace", "bilinear", "lpmkl"}

    Returns
    -------
    Protocol

    Examples
    --------
    >>> from reproduction import protocol
    >>> [table.name for table in protocol("kfda").tables]
    ['1', '1b', '1c']
    """
    if paper not in PAPERS:
        raise ValueError(f"There is no paper {paper!r}; there are {', '.join(PAPERS)}.")
    found: Protocol = import_module(f"reproduction.{paper}").PROTOCOL
    return found
