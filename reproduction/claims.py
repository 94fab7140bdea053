"""What papers say about their tables, beside what comes out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reproduction.cells import Results, Values

CONCLUSIONS = "What the paper concludes, and whether it holds here"

# The mean of a value by data, method and its name; NaN if there is none.
Mean = Callable[[str, str, str], float]


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
    left_out: bool = False  # it says why in place of what was found

    @property
    def verdict(self) -> str:
        """The last column of the table."""
        if self.left_out:
            return ""
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


def conclusions(claims: Iterable[Claim]) -> list[str]:
    """Return the first section of a page: what the paper concludes, and if it holds."""
    kept = [claim for claim in claims if len(claim.holds) or claim.left_out]
    if all(claim.left_out for claim in kept):
        return []
    return [
        "",
        f"## {CONCLUSIONS}",
        "",
        "This is computed from the means in the tables below. Some of them are "
        "rounded, so that differences on the same splits, further below, may have "
        "another last digit. If a conclusion is about several data sets or methods, "
        "the last column says for how many it holds.",
        "",
        "| the paper concludes | here | holds |",
        "|---|---|---|",
        *(f"| {claim.says} | {claim.found} | {claim.verdict} |" for claim in kept),
    ]


def not_run(says: str, why: str) -> Claim:
    """Return a claim about what cannot be run, which a page shows with the reason."""
    return Claim(says, f"Not run: {why}", (), left_out=True)


def of_sets(
    says: str,
    found: dict[str, float],
    holds: Callable[[float], bool],
    form: str = "{:+.2f}",
    what: str = "",
    unit: str = "",
) -> Claim:
    """Return a claim about one number of each data set; those without are left out."""
    known = {data: value for data, value in found.items() if not np.isnan(value)}
    text = f"{what}{by_data(known.items(), form)}{unit}."
    return Claim(says, text, [bool(holds(value)) for value in known.values()])


class Means:
    """Means over the finished repetitions of the tables, and of figures if asked."""

    def __init__(self, results: Results, figures: bool = False) -> None:
        self._rows: dict[tuple[str, str], list[Values]] = defaultdict(list)
        for cell, values in sorted(
            results.cells.items(), key=lambda item: item[0].repetition
        ):
            if (figures or cell.table.isdigit()) and "stopped" not in values:
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
