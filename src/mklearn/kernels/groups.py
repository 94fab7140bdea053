"""One kernel for each group of columns: gene sets, pathways, brain regions.

Groups may overlap, and may name columns that a table does not have;
:meth:`GroupFamily.report` tells how many were found.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from mklearn.data.frames import pandas_for
from mklearn.data.labels import repeated, told
from mklearn.data.views import MultiView
from mklearn.kernels.families import Family, KernelLike, flat_kernels
from mklearn.kernels.specs import Kernel


@dataclass(frozen=True)
class GroupReport:
    """Which groups and columns of a table are used.

    Attributes
    ----------
    sizes : dict of str to int
        Number of columns in the table, for each group that is used.
    left_out : dict of str to int
        Number of columns in the table, for groups that are too small or too large.
    missing : dict of str to tuple of str
        Columns that are not in the table, for each group that is used.
    n_columns : int
        Number of columns of the table.
    n_covered : int
        Number of columns that are in at least one of the groups used.
    n_shared : int
        Number of columns that are in more than one of them.
    largest_overlap : tuple of (str, str, float), or None
        The two groups with the largest overlap, as a share of the smaller one.
    """

    sizes: dict[str, int]
    left_out: dict[str, int]
    missing: dict[str, tuple[str, ...]] = field(repr=False)
    n_columns: int
    n_covered: int
    n_shared: int
    largest_overlap: tuple[str, str, float] | None

    @property
    def n_missing(self) -> int:
        """Number of distinct columns named in groups that are not in the table."""
        return len({name for names in self.missing.values() for name in names})

    def __str__(self) -> str:
        lines = [
            f"{len(self.sizes)} groups are used, of "
            f"{min(self.sizes.values())} to {max(self.sizes.values())} columns.",
            f"They cover {self.n_covered} of {self.n_columns} columns, {self.n_shared} "
            "of them more than once.",
        ]
        if self.largest_overlap is not None:
            a, b, share = self.largest_overlap
            lines.append(
                f"The largest overlap is between {a} and {b}: {share:.0%} of "
                "the smaller."
            )
        if self.n_missing:
            lines.append(
                f"{self.n_missing} columns named in groups are not in the table."
            )
        if self.left_out:
            lines.append(
                f"{len(self.left_out)} groups are left out because of their size: "
                f"{told(self.left_out)}."
            )
        return "\n".join(lines)

    def to_frame(self) -> Any:
        """Return a pandas DataFrame with one row for each group, used or not."""
        pd = pandas_for("to_frame()", "read sizes, left_out and missing")
        sizes = {**self.sizes, **self.left_out}
        index = pd.Index(list(sizes), name="group")
        absent = [len(self.missing.get(name, ())) for name in sizes]
        used = [name in self.sizes for name in sizes]
        table = {"size": list(sizes.values()), "missing": absent, "used": used}
        return pd.DataFrame(table, index=index)


@dataclass(frozen=True)
class GroupFamily(Family):
    """Kernels that are repeated for groups of columns once the data are known."""

    groups: tuple[tuple[str, tuple[str | int, ...]], ...] = field(
        default=(), repr=False
    )
    view: str | None = None
    min_size: int = 1
    max_size: int | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> GroupFamily:
        return self  # immutable, and copying thousands of sets takes long

    def expand(self, data: MultiView) -> list[Kernel]:
        """Return the kernels, one set for each group with columns in ``data``."""
        view = data.view_name(self.view)
        found, _ = self._found(data, view)
        used = self._used(found, view, data)
        several = len(data.names) > 1
        out = []
        for kernel in self.kernels:
            for name, index in used.items():
                label = (
                    name if len(self.kernels) == 1 else f"{name}:{kernel.describe()}"
                )
                out.append(
                    replace(
                        kernel,
                        columns=tuple(index),
                        view=view if several else None,
                        name=f"{view}:{label}" if several else label,
                    )
                )
        return out

    def report(self, X: Any) -> GroupReport:
        """Return which groups and columns of a table are used.

        Parameters
        ----------
        X : DataFrame, MultiView, or any other input of an estimator
        """
        data = MultiView.wrap(X)
        view = data.view_name(self.view)
        found, missing = self._found(data, view)
        used = self._used(found, view, data)
        width = data[view].shape[1]
        count = np.zeros(width, dtype=int)
        for index in used.values():
            count[list(index)] += 1
        sizes = {name: len(index) for name, index in used.items()}
        others = {n: len(index) for n, index in found.items() if n not in used}
        return GroupReport(
            sizes,
            others,
            {name: missing[name] for name in used if missing[name]},
            width,
            int(np.count_nonzero(count)),
            int(np.count_nonzero(count > 1)),
            _most_alike(used),
        )

    def _found(
        self, data: MultiView, view: str
    ) -> tuple[dict[str, tuple[int, ...]], dict[str, tuple[str, ...]]]:
        """Return the column indices of each group, and the names not found."""
        if data.is_text(view):
            raise ValueError(
                f"View {view!r} contains strings and has no columns to group."
            )
        width = data[view].shape[1]
        names = data.column_names(view)
        known: dict[Any, int] = {i: i for i in range(width)}
        if names is not None:
            twice = set(repeated(np.array(names, dtype=object)))
            known |= {name: i for i, name in enumerate(names) if name not in twice}
            asked = {member for _, members in self.groups for member in members}
            both = sorted(str(name) for name in twice & asked)
            if both:
                raise ValueError(
                    f"View {view!r} has several columns called {told(both)}, which "
                    "groups refer to; give columns unique names."
                )
        found, missing = {}, {}
        for name, members in self.groups:
            found[name] = tuple(sorted({known[m] for m in members if m in known}))
            missing[name] = tuple(str(m) for m in members if m not in known)
        return found, missing

    def _used(
        self, found: dict[str, tuple[int, ...]], view: str, data: MultiView
    ) -> dict[str, tuple[int, ...]]:
        top = np.inf if self.max_size is None else self.max_size
        used = {
            name: index
            for name, index in found.items()
            if max(1, self.min_size) <= len(index) <= top
        }
        if not used:
            names = data.column_names(view)
            has = (
                "no column names" if names is None else f"columns {told(names[:3])} ..."
            )
            first = self.groups[0]
            raise ValueError(
                f"No group has at least {max(1, self.min_size)} columns of view "
                f"{view!r}, which has {has}; {first[0]!r} names {told(first[1][:3])} "
                "... Are both the same kind of name (symbols, Ensembl or Entrez ids)?"
            )
        return used


def per_group(
    groups: Any,
    *,
    view: str | None = None,
    kernel: KernelLike = "linear",
    min_size: int = 2,
    max_size: int | None = None,
) -> GroupFamily:
    """Return a family with one copy of each kernel for each group of columns.

    Groups may overlap: a column may be in several of them. With linear kernels and
    ``norm=1`` this is the latent group lasso. Columns that are not in the table are
    ignored, and groups with too few columns are left out; ``report(X)`` lists both.

    Parameters
    ----------
    groups : mapping, path or DataFrame
        A mapping from group names to columns; a GMT file, possibly compressed
        (``.gz``), in which each line has the name, a description and the columns of a
        group, separated by tabs; or a table whose first two columns contain the names
        of groups and of columns.
    view : str, optional
        The view of the columns; may be None if there is only one.
    kernel : kernel, name, callable or list of these
        The kernel, or kernels, for each group.
    min_size, max_size : int
        Minimum and maximum number of columns of the table in a group.

    Examples
    --------
    >>> import pandas as pd
    >>> from mklearn import KernelBank
    >>> from mklearn.kernels import per_group
    >>> X = pd.DataFrame(
    ...     [[1.0, 2.0, 0.0], [3.0, 1.0, 1.0]], columns=["TP53", "MYC", "A"]
    ... )
    >>> sets = {"cycle": ["TP53", "MYC", "CDK1"], "growth": ["MYC", "A"], "none": ["B"]}
    >>> family = per_group(sets)
    >>> KernelBank(X, family).names
    ('cycle', 'growth')
    >>> print(family.report(X))
    2 groups are used, of 2 to 2 columns.
    They cover 3 of 3 columns, 1 of them more than once.
    The largest overlap is between cycle and growth: 50% of the smaller.
    1 columns named in groups are not in the table.
    1 groups are left out because of their size: 'none'.
    """
    for name, value in (("min_size", min_size), ("max_size", max_size)):
        whole = isinstance(value, int) and not isinstance(value, bool) and value >= 1
        if not (whole or (name == "max_size" and value is None)):
            raise ValueError(f"{name} must be a positive integer, got {value!r}.")
    kernels = flat_kernels([kernel])
    placed = [k.label() for k in kernels if k.columns is not None or k.view is not None]
    if placed:
        raise ValueError(
            f"Kernel {placed[0]!r} has its own columns or view, but the groups give "
            "the columns, and view= the view."
        )
    read = read_groups(groups)
    pairs = tuple((name, tuple(members)) for name, members in read.items())
    return GroupFamily(tuple(kernels), "groups", None, pairs, view, min_size, max_size)


def read_groups(groups: Any) -> dict[str, list[Any]]:
    """Return the distinct columns of each group, by the name of the group.

    Parameters
    ----------
    groups : mapping, path of a GMT file, or DataFrame
        As in :func:`per_group`.
    """
    if isinstance(groups, (str, os.PathLike)):
        read: Iterable[tuple[Any, Iterable[Any]]] = _read_gmt(Path(groups))
    elif isinstance(groups, Mapping):
        read = groups.items()
    elif hasattr(groups, "columns") and hasattr(groups, "to_numpy"):
        read = _of_table(groups)
    else:
        raise ValueError(
            "groups must be a mapping from names to columns, the path of a GMT file "
            f"or a DataFrame of two columns, got {type(groups).__name__}."
        )
    found: dict[str, list[Any]] = {}
    for name, members in read:
        if isinstance(members, (str, bytes)):
            raise ValueError(
                f"Group {name!r} is a single string, {members!r}; give a list of "
                "columns."
            )
        found[str(name)] = [
            int(m) if isinstance(m, (int, np.integer)) else str(m)
            for m in dict.fromkeys(members)
        ]
    if not found:
        raise ValueError("There are no groups; give at least one.")
    return found


def _read_gmt(path: Path) -> list[tuple[str, list[str]]]:
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rt", encoding="utf-8") as file:
            lines = [line.rstrip("\r\n").split("\t") for line in file if line.strip()]
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} cannot be read as a GMT file: {error}.") from error
    for number, line in enumerate(lines, 1):
        if len(line) < 3:
            raise ValueError(
                f"Line {number} of {path} has {len(line)} fields; a line of a GMT file "
                "has a name, a description and at least one column, separated by tabs."
            )
    twice = repeated(np.array([line[0] for line in lines], dtype=object))
    if twice:
        raise ValueError(f"{path} has several groups called {told(twice)}.")
    return [(line[0], [name for name in line[2:] if name]) for line in lines]


def _of_table(table: Any) -> list[tuple[Any, list[Any]]]:
    values = table.to_numpy()
    if values.ndim != 2 or values.shape[1] < 2:
        raise ValueError(
            "A table of groups needs the name of a group and of a column in each row, "
            f"got shape {values.shape}."
        )
    found: dict[Any, list[Any]] = {}
    for name, column in values[:, :2].tolist():
        found.setdefault(name, []).append(column)
    return list(found.items())


def _most_alike(used: dict[str, tuple[int, ...]]) -> tuple[str, str, float] | None:
    """Return the two groups with the largest overlap, None if there is none."""
    names = list(used)
    owners: dict[int, list[int]] = {}
    for g, name in enumerate(names):
        for column in used[name]:
            owners.setdefault(column, []).append(g)
    common = np.zeros((len(names), len(names)), dtype=np.int32)
    for group in owners.values():
        if len(group) > 1:
            common[np.ix_(group, group)] += 1
    np.fill_diagonal(common, 0)
    if not common.any():
        return None
    size = np.array([len(used[name]) for name in names])
    share = common / np.minimum(size[:, None], size[None, :])
    a, b = np.unravel_index(int(share.argmax()), share.shape)
    return names[a], names[b], float(share[a, b])
