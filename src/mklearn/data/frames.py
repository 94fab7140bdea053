"""Data frames as results: pandas is imported where somebody asks for one."""

from __future__ import annotations

from typing import Any


def pandas_for(what: str, instead: str) -> Any:
    """Return pandas, or raise an ImportError that says what to do without it.

    Parameters
    ----------
    what : str
        The method that returns a DataFrame, such as ``"to_frame()"``.
    instead : str
        Where the same numbers are found, such as ``"read the arrays"``.
    """
    try:
        import pandas
    except ImportError as error:
        raise ImportError(
            f"{what} returns a pandas DataFrame; install pandas, or {instead}."
        ) from error
    return pandas
