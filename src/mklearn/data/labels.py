"""Sample labels: read from tables, compared and aligned.

The index of a pandas table or series labels its rows. The default index (0, 1, 2, ...)
is not taken as labels, unless another table has the same numbers in another order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

Order = NDArray[np.intp]

ONE_ROW = (
    "Keep one row for each sample (for instance with "
    "frame[~frame.index.duplicated()]), or average them."
)

_SHOWN = 10
_FEW = 5  # number of samples from which tables of the same study should share some


@dataclass(frozen=True)
class Labels:
    """The names of some rows; ``counted`` marks a default index 0, 1, 2, ...

    ``called`` tells whether the index has a name.
    """

    values: NDArray[Any]
    counted: bool = False
    called: bool = False

    @classmethod
    def of(cls, table: Any) -> Labels | None:
        """Return the labels of a pandas table or series, None for anything else."""
        if not (hasattr(table, "iloc") and hasattr(table, "index")):
            return None
        index = table.index
        counted = type(index).__name__ == "RangeIndex" and counts(index)
        return cls(as_labels(index), counted, index.name is not None)


def counts(index: Any) -> bool:
    """Return whether a range starts at 0 with step 1."""
    return bool(index.start == 0 and index.step == 1)


def as_labels(names: Iterable[Hashable]) -> NDArray[Any]:
    """Return names as a 1-D array, of integers if all of them are, else of objects."""
    listed = list(names)
    out = np.array(listed) if _all_whole(listed) else np.empty(len(listed), object)
    if out.dtype == object:
        out[:] = listed
    return out


def told(names: Iterable[Any]) -> str:
    """Return names in the form in which messages list them."""
    listed = list(names)
    text = ", ".join(repr(_plain(name)) for name in listed[:_SHOWN])
    more = len(listed) - _SHOWN
    return text + (f" and {more} more" if more > 0 else "")


def repeated(labels: NDArray[Any]) -> list[Any]:
    """Return the labels that occur more than once."""
    return [label for label, count in Counter(labels.tolist()).items() if count > 1]


def require_distinct(labels: NDArray[Any], what: str, advice: str = ONE_ROW) -> None:
    """Raise ValueError, listing duplicates, unless all labels are distinct.

    ``advice`` says what to do about duplicates.
    """
    missing = [i for i, label in enumerate(labels.tolist()) if is_missing(label)]
    if missing:
        raise ValueError(
            f"{what} has no label in {len(missing)} of its rows (first in row "
            f"{missing[0]}); drop these rows, or label them."
        )
    twice = repeated(labels)
    if twice:
        raise ValueError(
            f"{what} has several rows for {len(twice)} of its labels: {told(twice)}. "
            f"{advice}"
        )


def require_common(tables: Mapping[str, NDArray[Any]], advice: str) -> None:
    """Raise ValueError if a table has no label in common with any of the others.

    Few samples, such as new ones to predict, may well be in different tables: they are
    refused only if their labels differ in nothing but the spelling.

    Parameters
    ----------
    tables : mapping of str to array
        The labels of each table.
    advice : str
        What to do about it.
    """
    if len(tables) < 2:
        return
    owners = Counter(x for labels in tables.values() for x in set(labels.tolist()))
    for name, labels in tables.items():
        if any(owners[label] > 1 for label in labels.tolist()):
            continue
        rest = {other: part for other, part in tables.items() if other != name}
        first, alike = next(iter(rest)), spelt_otherwise({name: labels, **rest})
        if len(labels) < _FEW and not alike:
            continue
        raise ValueError(
            f"Table {name!r} has no sample in common with any other table: it has "
            f"{told(labels[:3])}, and {first!r} has {told(rest[first][:3])}. "
            f"{advice}{alike}"
        )


def spelt_otherwise(tables: Mapping[str, NDArray[Any]]) -> str:
    """Return a sentence on labels that differ only in their spelling, if any.

    These are labels of two tables that would be equal as strings, without spaces at
    both ends and without regard to capitals.
    """
    spellings: dict[str, dict[Any, list[str]]] = {}
    for name, labels in tables.items():
        for label in dict.fromkeys(labels.tolist()):
            key = str(label).strip().casefold()
            spellings.setdefault(key, {}).setdefault(label, []).append(name)
    found = []
    for known in spellings.values():
        for (a, in_a), (b, in_b) in combinations(known.items(), 2):
            # a table that has both spellings has two samples
            here = next((name for name in in_a if name not in in_b), None)
            there = next((name for name in in_b if name not in in_a), None)
            if here is not None and there is not None:
                found.append(f"{a!r} in {here!r} and {b!r} in {there!r}")
    if not found:
        return ""
    more = f" and {len(found) - 3} more" if len(found) > 3 else ""
    return (
        " Some labels differ only in their type (number or string), in spaces or in "
        f"capitals, and stand for different samples: {'; '.join(found[:3])}{more}."
    )


def places(labels: NDArray[Any], wanted: Iterable[Any]) -> Order:
    """Return the positions of the wanted labels among distinct ones, -1 if missing."""
    known = {label: i for i, label in enumerate(labels.tolist())}
    return np.array([known.get(label, -1) for label in _plain_list(wanted)], np.intp)


def order_of(
    labels: Labels, ids: NDArray[Any], what: str, other: str, advice: str
) -> Order | None:
    """Return the rows of a table in the order of ``ids``, None if already so.

    A default index that does not match ``ids`` is ignored. Raise ValueError if the two
    label different samples, or if duplicate labels prevent aligning them.
    """
    mine, theirs = labels.values.tolist(), ids.tolist()
    if mine == theirs:
        return None
    alike = Counter(mine) == Counter(theirs)
    if labels.counted and not alike and len(mine) == len(theirs):
        return None  # a default index
    here, there = dict.fromkeys(mine), dict.fromkeys(theirs)
    lacking = [label for label in there if label not in here]
    strange = [label for label in here if label not in there]
    if lacking or strange:
        parts = []
        if lacking:
            parts.append(
                f"{len(lacking)} of {other} missing from {what} ({told(lacking)})"
            )
        if strange:
            parts.append(
                f"{len(strange)} of {what} missing from {other} ({told(strange)})"
            )
        raise ValueError(
            f"The index of {what} does not match {other}: "
            f"{', and '.join(parts)}. {advice}"
        )
    twice = repeated(labels.values)
    if twice or not alike:
        raise ValueError(
            f"{what[0].upper()}{what[1:]} and {other} have their samples in different "
            "orders and cannot be aligned, because some labels occur more than once: "
            f"{told(twice or repeated(ids))}. Keep one row for each sample."
        )
    return places(labels.values, theirs)


def agreed(
    found: Mapping[str, Labels | None],
) -> tuple[NDArray[Any] | None, dict[str, Order]]:
    """Return the names of the samples of several tables, and reorderings of some.

    All tables have the same length; the first one with labels, even if these are just
    numbers, determines the order. Raise ValueError if tables label different samples,
    or if they have different orders and other views have no labels.
    """
    known = {name: labels for name, labels in found.items() if labels is not None}
    naming = [labels for labels in known.values() if not labels.counted]
    if not naming:
        return None, {}
    names = Counter(naming[0].values.tolist())
    for name, labels in list(known.items()):
        if labels.counted and Counter(labels.values.tolist()) != names:
            del known[name]  # a default index
    first = next(iter(known))
    ids = known[first].values
    orders = {}
    for name, labels in known.items():
        order = order_of(
            labels, ids, f"view {name!r}", f"view {first!r}",
            "MultiView.from_frames(frames, join='inner' or 'outer') joins tables of "
            "different samples.",
        )  # fmt: skip
        if order is not None:
            orders[name] = order
    nameless = [name for name in found if name not in known]
    if orders and nameless:
        raise ValueError(
            f"Views {told([first, *orders])} have the same labels in different orders, "
            f"but {told(nameless)} have no labels to align them by. Bring all rows "
            "into the same order first, or give DataFrames with an "
            "index."
        )
    return ids, orders


def joined(labels: Iterable[NDArray[Any]], join: str) -> NDArray[Any]:
    """Return the labels of all ("outer") or of the common samples ("inner").

    They are in the order of their first occurrence.
    """
    listed = [part.tolist() for part in labels]
    everyone = dict.fromkeys(label for part in listed for label in part)
    if join == "inner":
        common = set(everyone).intersection(*map(set, listed))
        return as_labels(label for label in everyone if label in common)
    return as_labels(everyone)


def is_missing(value: Any) -> bool:
    """Return whether a value is None, NaN, NaT, or the NA of pandas."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, (float, np.floating)) and bool(value != value)


def _all_whole(values: list[Any]) -> bool:
    return bool(values) and all(
        isinstance(v, (int, np.integer)) and not isinstance(v, bool) for v in values
    )


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _plain_list(values: Iterable[Any]) -> list[Any]:
    return values.tolist() if isinstance(values, np.ndarray) else list(values)
