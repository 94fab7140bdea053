"""Tables by kernel, which the results of this package return."""

from __future__ import annotations

from typing import Any

import numpy as np

from mklearn.data.frames import pandas_for


def by_kernel(
    names: tuple[str, ...], classes: tuple[Any, ...] | None, columns: dict[str, Any]
) -> Any:
    """Return a table by kernel, or by class and kernel."""
    pd = pandas_for("to_frame()", "read the arrays")
    index = pd.Index(list(names), name="kernel")
    if classes is not None:
        index = pd.MultiIndex.from_product([classes, names], names=["class", "kernel"])
    return pd.DataFrame({key: np.ravel(v) for key, v in columns.items()}, index=index)
