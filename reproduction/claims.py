"""What papers say about their tables, beside what comes out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reproduction.cells import Results, Values


@dataclass(frozen=True)
class Claim:
    """A sentence of a paper, what was found, and whether the one fits the other.

    Parameters
    ----------
    says, found : str
    holds : list of bool
        One for each data set or method that the sentence is about.
    """

    says: str
    found: str
    holds: Sequence[bool]

    @property
    def verdict(self) -> str:
        """The last column of the table."""
        if all(self.holds):
            return "yes"
        return f"{sum(self.holds)} of {len(self.holds)}" if any(self.holds) else "no"


def listed(claims: Iterable[Claim], *, title: str, rule: str) -> list[str]:
    """Return the section of a page that has the claims, if there are any.

    Parameters
    ----------
    claims : iterable of Claim
        Those about nothing that was run are left out.
    title : str
        Of the section.
    rule : str
        What counts as "similar" and the like.
    """
    kept = [claim for claim in claims if len(claim.holds)]
    if not kept:
        return []
    return [
        "",
        f"## {title}",
        "",
        rule,
        "",
        "| the paper says | here | holds |",
        "|---|---|---|",
        *(f"| {claim.says} | {claim.found} | {claim.verdict} |" for claim in kept),
    ]


class Means:
    """Means over the finished repetitions of the tables, figures left out."""

    def __init__(self, results: Results) -> None:
        self._rows: dict[tuple[str, str], list[Values]] = defaultdict(list)
        for cell, values in sorted(
            results.cells.items(), key=lambda item: item[0].repetition
        ):
            if cell.table.isdigit() and "stopped" not in values:
                self._rows[cell.data, cell.method].append(
                    values | {"repetition": cell.repetition}
                )

    def rows(self, data: str, method: str) -> list[Values]:
        """Return the values of the finished repetitions."""
        return self._rows.get((data, method), [])

    def has(self, data: str, *methods: str) -> bool:
        """Return whether there is a repetition of each method."""
        return all(self.rows(data, method) for method in methods)

    def all(self, data: str, method: str, key: str) -> NDArray[Any]:
        """Return one value of all repetitions that have it."""
        found = [v[key] for v in self.rows(data, method) if v.get(key) is not None]
        return np.array(found, dtype=float)

    def mean(self, data: str, method: str, key: str) -> float:
        """Return the mean of one value, or NaN."""
        found = self.all(data, method, key)
        return float(found.mean()) if len(found) else np.nan

    def paired(self, data: str, one: str, other: str, key: str) -> NDArray[Any]:
        """Return the differences on the repetitions that both methods have."""
        left = {v["repetition"]: v[key] for v in self.rows(data, one)}
        right = {v["repetition"]: v[key] for v in self.rows(data, other)}
        return np.array([left[r] - right[r] for r in sorted(left.keys() & right)])


def joined(parts: Iterable[Any]) -> str:
    """Return words with commas and an "and" between them."""
    words = [str(part) for part in parts]
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} and {words[-1]}"


def by_data(pairs: Iterable[tuple[str, float]], form: str = "{:.2f}") -> str:
    """Return numbers with the data sets that they are of."""
    return ", ".join(f"{data} {form.format(value)}" for data, value in pairs)


def with_error(values: NDArray[Any]) -> str:
    """Return the mean of differences, with its standard error if there are some."""
    if len(values) < 2:
        return f"{values.mean():+.2f}"
    error = values.std(ddof=1) / np.sqrt(len(values))
    return f"{values.mean():+.2f} ± {error:.2f}"


def numbered(indices: Iterable[Any]) -> Iterator[int]:
    """Yield kernels in order, counted from one."""
    yield from sorted(int(i) + 1 for i in indices)
