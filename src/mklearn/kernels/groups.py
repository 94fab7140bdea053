"""One kernel for each group of columns: gene sets, pathways, brain regions.

Groups may overlap, and may name columns that a table does not have;
:meth:`GroupFamily.report` tells how many were found.
"""

from __future__ import annotations

import gzip
import os
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from mklearn.data.frames import pandas_for
from mklearn.data.labels import is_missing, repeated, told
from mklearn.data.spelling import plural
from mklearn.data.views import MultiView
from mklearn.kernels.families import Family, KernelLike, flat_kernels
from mklearn.kernels.specs import Kernel, Product

SMALL, LARGE, FEW = "too small", "too large", "too few columns in the table"


@dataclass(frozen=True)
class GroupReport:
    """Which groups and columns of a table are used.

    Attributes
    ----------
    sizes : dict of str to int
        Number of columns in the table, for each group that is used.
    left_out : dict of str to int
        Number of columns in the table, for each group that is left out.
    reasons : dict of str to str
        Why a group is left out: it is "too small" or "too large", or it has "too few
        columns in the table", though it names enough.
    missing : dict of str to tuple of str
        Columns that are not in the table, for each group, used or not, that names any.
    members : dict of str to tuple of int
        Positions of the columns in the table, for each group that is used.
    n_columns : int
        Number of columns of the table.
    n_covered : int
        Number of columns that are in at least one of the groups used.
    n_shared : int
        Number of columns that are in more than one of them.
    """

    sizes: dict[str, int]
    left_out: dict[str, int]
    reasons: dict[str, str]
    missing: dict[str, tuple[str, ...]] = field(repr=False)
    members: dict[str, tuple[int, ...]] = field(repr=False)
    n_columns: int
    n_covered: int
    n_shared: int

    @property
    def n_missing(self) -> int:
        """Number of distinct columns named in groups that are not in the table."""
        return len({name for names in self.missing.values() for name in names})

    @property
    def largest_overlap(self) -> tuple[str, str, float] | None:
        """The two groups with the largest overlap, as a share of the smaller one."""
        found = self._overlaps(1)
        return None if not found else (found[0][0], found[0][1], found[0][3])

    def __str__(self) -> str:
        least, most = min(self.sizes.values()), max(self.sizes.values())
        used = _count(len(self.sizes), "group")
        many = f"{least} to " if least < most else ""
        cover = "It covers" if len(self.sizes) == 1 else "They cover"
        lines = [
            f"{used} used, of {many}{plural(most, 'column')}.",
            f"{cover} {self.n_covered} of {plural(self.n_columns, 'column')}, "
            f"{self.n_shared} of them more than once.",
        ]
        largest = self.largest_overlap
        if largest is not None:
            a, b, share = largest
            lines.append(
                f"The largest overlap is between {a} and {b}: {share:.0%} of "
                "the smaller."
            )
        if self.n_missing:
            named = _count(self.n_missing, "column", "named in groups ")
            lines.append(f"{named} not in the table.")
        return "\n".join([*lines, *_why_left_out(self.reasons)])

    def to_frame(self) -> Any:
        """Return a pandas DataFrame with one row for each group, used or not.

        Its columns are the number of columns in the table (``size``), the number of
        columns that are not there (``missing``), whether the group is ``used``, and the
        ``reason`` if it is not.
        """
        pd = pandas_for("to_frame()", "read sizes, left_out, reasons and missing")
        sizes = {**self.sizes, **self.left_out}
        index = pd.Index(list(sizes), name="group")
        table = {
            "size": list(sizes.values()),
            "missing": [len(self.missing.get(name, ())) for name in sizes],
            "used": [name in self.sizes for name in sizes],
            "reason": [self.reasons.get(name, "") for name in sizes],
        }
        return pd.DataFrame(table, index=index)

    def overlap_frame(self, most: int = 20) -> Any:
        """Return a pandas DataFrame of the pairs of groups with the largest overlaps.

        Parameters
        ----------
        most : int
            Maximum number of pairs.

        Returns
        -------
        DataFrame
            Two groups, ``group`` and ``other``, the number of columns that both have
            (``shared``), and its ``share`` of the smaller group, largest first.
        """
        pd = pandas_for("overlap_frame()", "read members")
        columns = ["group", "other", "shared", "share"]
        return pd.DataFrame(self._overlaps(most), columns=columns)

    def _overlaps(self, most: int) -> list[tuple[str, str, int, float]]:
        """Return pairs of groups, the columns they share, and the share."""
        names, places = list(self.members), list(self.members.values())
        ends = np.cumsum([0, *map(len, places)])
        columns = np.array([j for index in places for j in index], dtype=np.intp)
        shape = (len(names), self.n_columns)
        held = sparse.csr_array((np.ones(len(columns)), columns, ends), shape=shape)
        common = sparse.coo_array(sparse.triu(held @ held.T, k=1))
        size = np.diff(ends)
        share = common.data / np.minimum(size[common.row], size[common.col])
        order = np.lexsort((common.col, common.row, -common.data, -share))[:most]
        return [
            (
                names[common.row[i]],
                names[common.col[i]],
                int(common.data[i]),
                float(share[i]),
            )
            for i in order
        ]


def _count(n: int, noun: str, more: str = "") -> str:
    """Return a number of things as the subject of a sentence, with its verb."""
    return f"{plural(n, noun)} {more}{'is' if n == 1 else 'are'}"


def _why_left_out(reasons: Mapping[str, str]) -> list[str]:
    """Return a sentence for each reason, with the groups left out for it."""
    lines = []
    for reason in (FEW, SMALL, LARGE):
        names = [name for name, why in reasons.items() if why == reason]
        it = "it is" if len(names) == 1 else "they are"
        why = (
            "too many of the named columns are not in the table"
            if reason == FEW
            else f"{it} {reason}"
        )
        if names:
            left = _count(len(names), "group")
            lines.append(f"{left} left out because {why}: {told(names)}.")
    return lines


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
        """Return the kernels, one set for each group with columns in ``data``.

        A warning names the groups that are left out.
        """
        view = data.view_name(self.view)
        found, missing = self._found(data, view)
        used = self._used(found, view, data)
        if len(used) < len(found):
            said = _why_left_out(self._reasons(found, missing))
            warnings.warn(
                " ".join([*said, "family.report(X) gives details, and family.within(X) "
                "leaves them out without this warning."]),
                stacklevel=2,
            )  # fmt: skip
        several = len(data.names) > 1
        out = []
        for kernel in self.kernels:
            for name, index in used.items():
                placed = kernel.put(
                    columns=tuple(index), view=view if several else None
                )
                label = self._label(kernel, name)
                out.append(
                    replace(placed, name=f"{view}:{label}" if several else label)
                )
        return out

    def _label(self, kernel: Kernel, group: str) -> str:
        """Return the name of a kernel on a group."""
        if len(self.kernels) > 1:
            return f"{group}:{kernel.describe()}"
        factors = kernel.factors if isinstance(kernel, Product) else ()
        return " * ".join([group, *(f.label() for f in factors if f.placed)])

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
            self._reasons(found, missing),
            {name: names for name, names in missing.items() if names},
            used,
            width,
            int(np.count_nonzero(count)),
            int(np.count_nonzero(count > 1)),
        )

    def within(self, X: Any) -> GroupFamily:
        """Return the family without the groups that are left out for a table.

        Parameters
        ----------
        X : DataFrame, MultiView, or any other input of an estimator
        """
        left_out = self.report(X).left_out
        kept = tuple(group for group in self.groups if group[0] not in left_out)
        return replace(self, groups=kept)

    def _limits(self) -> tuple[int, float]:
        """Return the smallest and the largest number of columns of a group."""
        return max(1, self.min_size), np.inf if self.max_size is None else self.max_size

    def _reasons(
        self, found: dict[str, tuple[int, ...]], missing: dict[str, tuple[str, ...]]
    ) -> dict[str, str]:
        """Return why groups are left out, for those that are."""
        least, most = self._limits()
        reasons = {}
        for name, index in found.items():
            if len(index) > most:
                reasons[name] = LARGE
            elif len(index) < least:
                enough = len(index) + len(missing[name]) >= least
                reasons[name] = FEW if enough else SMALL
        return reasons

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
            single = {name: i for i, name in enumerate(names) if name not in twice}
            asked = {member for _, members in self.groups for member in members}
            numbers = {str(m): m for m in asked if isinstance(m, int)}
            if not numbers.keys().isdisjoint(names):  # names such as Entrez ids
                known = {m: single[s] for s, m in numbers.items() if s in single}
                asked |= numbers.keys()
            known |= single
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
        least, most = self._limits()
        used = {k: index for k, index in found.items() if least <= len(index) <= most}
        if not used:
            names = data.column_names(view)
            has = (
                "no column names" if names is None else f"columns {told(names[:3])} ..."
            )
            first = self.groups[0]
            wanted = f"at least {plural(least, 'column')}"
            if most != np.inf:
                wanted = f"{least} to {plural(int(most), 'column')}"
            raise ValueError(
                f"No group has {wanted} of view {view!r}, which has {has}; "
                f"{first[0]!r} names {told(first[1][:3])} ... Are both the same kind "
                "of name (symbols, Ensembl or Entrez ids)?"
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
    ignored, and groups with too few columns are left out, with a warning; the method
    ``report(X)`` of the family lists both, and ``within(X)`` returns the family of the
    other groups.

    Parameters
    ----------
    groups : mapping, path or DataFrame
        A mapping from group names to columns; a GMT file, possibly compressed
        (``.gz``), in which each line has the name, a description and the columns of a
        group, separated by tabs (lines that start with ``#`` are comments); or a table
        whose first two columns contain the names of groups and of columns. Integers
        are indices of columns, unless columns of the table are named by some of them,
        as by Entrez ids; then they are names.
    view : str, optional
        The view of the columns; may be None if there is only one.
    kernel : kernel, name, callable or list of these
        The kernel, or kernels, for each group. The factors of a product that have their
        own columns or view keep them, and the others are on the group:
        ``per_group(sets, view="rna") * Linear(view="clinic")`` are interactions of
        each set with the other view.
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
    >>> print(family.report(X))
    2 groups are used, of 2 columns.
    They cover 3 of 3 columns, 1 of them more than once.
    The largest overlap is between cycle and growth: 50% of the smaller.
    2 columns named in groups are not in the table.
    1 group is left out because it is too small: 'none'.
    >>> KernelBank(X, family.within(X)).names
    ('cycle', 'growth')
    """
    for name, value in (("min_size", min_size), ("max_size", max_size)):
        if value is None and name == "max_size":
            continue
        whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
        if value is None or not whole or value < 1:
            raise ValueError(f"{name} must be a positive integer, got {value!r}.")
    if max_size is not None and max_size < min_size:
        raise ValueError(
            f"max_size must be at least min_size={min_size}, got {max_size}."
        )
    kernels = flat_kernels([kernel])
    placed = [kernel.label() for kernel in kernels if kernel.placed]
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
    elif hasattr(groups, "collect_schema") and not hasattr(groups, "to_numpy"):
        return read_groups(groups.collect())  # a lazy frame of polars
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
        if is_missing(name):
            raise ValueError(
                "A group has no name (its name is missing); name it, or leave it out."
            )
        if str(name) in found:
            raise ValueError(
                f"Several groups are called {str(name)!r}; rename all but one of them."
            )
        named = (_member(m) for m in members if not is_missing(m))
        found[str(name)] = list(dict.fromkeys(named))
    if not found:
        raise ValueError("There are no groups; give at least one.")
    return found


def _member(column: Any) -> int | str:
    """Return a column's name or index; whole floats are integers.

    pandas turns a column of integers in which a value is missing into floats.
    """
    whole = isinstance(column, (int, np.integer)) or (
        isinstance(column, (float, np.floating)) and float(column).is_integer()
    )
    return int(column) if whole else str(column)


def _read_gmt(path: Path) -> list[tuple[str, list[str]]]:
    """Return the groups of a file, without blank lines and comments (``#``)."""
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rt", encoding="utf-8-sig") as file:
            lines = [line.strip("\r\n").split("\t") for line in file]
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} cannot be read as a GMT file: {error}.") from error
    found = []
    for number, line in enumerate(lines, 1):
        fields = [text.strip() for text in line]
        if not any(fields) or fields[0].startswith("#"):
            continue
        members = [text for text in fields[2:] if text]
        if not members:
            count = sum(bool(text) for text in fields)
            raise ValueError(
                f"Line {number} of {path} has {plural(count, 'field')}; a line of a "
                "GMT file has a name, a description and at least one column, separated "
                "by tabs."
            )
        if not fields[0]:
            raise ValueError(f"Line {number} of {path} has no name of a group.")
        found.append((fields[0], members))
    twice = repeated(np.array([name for name, _ in found], dtype=object))
    if twice:
        raise ValueError(f"{path} has several groups called {told(twice)}.")
    return found


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
