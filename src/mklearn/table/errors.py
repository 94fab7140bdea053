"""Errors about tables, which say what to change, and the words in them."""

from __future__ import annotations

from typing import Any


class TableError(ValueError):
    """Data that cannot be used; the message says what to change."""


def need_pandas() -> Any:
    """Return pandas, or raise TableError."""
    try:
        import pandas as pd
    except ImportError as error:
        raise TableError(
            "tables need an additional package: pip install pandas."
        ) from error
    return pd


def enumerated(names: Any, most: int = 8) -> str:
    """Return names in a row, the first ones if there are many."""
    names = list(names)
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(str, names[:most])) + rest
