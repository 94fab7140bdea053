"""What Chen et al. (2008) say about their tables, sections 6.1 and 6.3."""

from __future__ import annotations

from collections.abc import Iterator

from reproduction.cells import Results
from reproduction.claims import (
    Claim,
    Mean,
    Means,
    by_data,
    listed,
    of_sets,
    with_error,
)

SETS = ("satimage", "waveform", "segment", "wine", "USPS", "B_Tumor1", "B_Tumor2")
PROPOSED = ("HSIC", "uHSIC", "SVM_joint", "uSVM_joint")
METHODS = ("SVM_org", "SKFE", *PROPOSED)
SEGMENT = "segment"
FOUR = ("ker1", "ker2", "ker3", "ker4")
COMBINED = ("uHSIC", "uSVM_joint")
ERRORS = ("error", "one against rest")

RULE = (
    "Mean differences on the same halves and their standard errors, for both errors: "
    "of all classes, and of one class against the rest. It says on how many of the "
    "data sets the mean is as the paper says. Times are *about the same* within a "
    "factor of two."
)


def conclusions(mean: Mean) -> Iterator[Claim]:
    """Yield what the paper concludes, from the means of the tables."""
    for key in ERRORS:
        yield from about(mean, key, "all classes" if key == "error" else key)
    ratios = {
        data: mean(data, "uHSIC", "seconds") / mean(data, "HSIC", "seconds")
        for data in SETS
    }
    yield of_sets(
        "HSIC and uHSIC cost about the same (6.3).",
        ratios,
        lambda value: 0.5 <= value <= 2,
        form="{:.2f}",
        what="Time of uHSIC relative to that of HSIC: ",
    )
    ratios = {
        data: mean(data, "uSVM_joint", "seconds")
        / max(mean(data, method, "seconds") for method in ("SKFE", "HSIC"))
        for data in SETS
    }
    yield of_sets(
        "The joint methods take the longest (6.3).",
        ratios,
        lambda value: value > 1,
        form="{:.2f}",
        what="Time of uSVM_joint relative to that of the slower of SKFE and HSIC: ",
        unit="; here they are solved in another way",
    )


def about(mean: Mean, key: str, name: str) -> Iterator[Claim]:
    """Yield what it concludes about errors, by one reading of what an error is."""

    def best(data: str, methods: tuple[str, ...]) -> float:
        return min(mean(data, method, key) for method in methods)

    for other, says, holds in (
        ("SVM_org", "beat", lambda value: value < 0),
        ("SKFE", "beat or match", lambda value: value <= 0),
    ):
        yield of_sets(
            f"The proposed methods {says} {other} (6.1.1; {name}).",
            {d: best(d, PROPOSED) - mean(d, other, key) for d in SETS},
            holds,
            what=f"The best of the four minus {other}: ",
            unit=" points",
        )
    for method in ("HSIC", "SVM_joint"):
        yield of_sets(
            f"Uncorrelated features are better: u{method} beats {method} (6.1.1; "
            f"{name}).",
            {d: mean(d, f"u{method}", key) - mean(d, method, key) for d in SETS},
            lambda value: value < 0,
            unit=" points",
        )
    others = tuple(method for method in METHODS if method != "uSVM_joint")
    yield of_sets(
        f"uSVM_joint is the best of all on all sets but segment (6.1.1; {name}).",
        {d: mean(d, "uSVM_joint", key) - best(d, others) for d in SETS if d != SEGMENT},
        lambda value: value < 0,
        what="uSVM_joint minus the best of the others: ",
        unit=" points",
    )
    for method in COMBINED:
        parts = tuple(f"{method} {part}" for part in FOUR)
        yield of_sets(
            f"The combination by {method} beats each of its kernels (6.1.2; {name}).",
            {
                d: mean(d, f"{method} mkl", key) - best(d, parts)
                for d in ("satimage", "waveform", SEGMENT, "USPS")
            },
            lambda value: value < 0,
            what="The combination minus the best of them: ",
            unit=" points",
        )


def claims(results: Results) -> list[str]:
    """Return the section of the page, if the run was not a quick one."""
    if results.settings.quick:
        return []
    means = Means(results)
    found = [claim for key in ERRORS for claim in errors(means, key)]
    found += [claim for key in ERRORS for claim in combinations(means, key)]
    return listed(
        [*found, *times(means)],
        title="The paper's claims about the tables, one by one",
        rule=RULE,
    )


def errors(means: Means, key: str) -> Iterator[Claim]:
    """Compare methods on single kernels."""
    for method in PROPOSED:
        yield smaller(means, key, method, "SVM_org")
    for method in PROPOSED:
        yield smaller(means, key, method, "SKFE")
    for method in ("HSIC", "SVM_joint"):
        yield smaller(means, key, f"u{method}", method)
    best = {}
    for data in SETS:
        if means.has(data, *METHODS):
            each = {method: means.mean(data, method, key) for method in METHODS}
            best[data] = min(each, key=lambda method: each[method])
    yield Claim(
        f"uSVM_joint is the best method on all sets but segment ({key}, 6.1.1).",
        ", ".join(f"{data} {method}" for data, method in best.items()) + ".",
        [name == "uSVM_joint" for data, name in best.items() if data != "segment"],
    )


def smaller(
    means: Means, key: str, one: str, other: str, section: str = "6.1.1"
) -> Claim:
    """Compare two methods on all data sets."""
    apart = {
        data: difference
        for data in SETS
        if len(difference := means.paired(data, one, other, key))
    }
    found = ", ".join(f"{data} {with_error(each)}" for data, each in apart.items())
    return Claim(
        f"{one} errs less often than {other} ({key}, {section}).",
        f"{found} points.",
        [bool(each.mean() <= 0) for each in apart.values()],
    )


def combinations(means: Means, key: str) -> Iterator[Claim]:
    """Compare combinations with their kernels."""
    for method in COMBINED:
        gains = {}
        for data in ("satimage", "waveform", "segment", "USPS"):
            names = [f"{method} {part}" for part in (*FOUR, "mkl")]
            if means.has(data, *names):
                *alone, together = (means.mean(data, name, key) for name in names)
                gains[data] = together - min(alone)
        yield Claim(
            f"The combination by {method} beats each of its kernels ({key}, 6.1.2).",
            f"Against the best of them {by_data(gains.items(), '{:+.2f}')} points.",
            [value < 0 for value in gains.values()],
        )
    yield smaller(means, key, "uSVM_joint mkl", "uHSIC mkl", "6.1.2")


def times(means: Means) -> Iterator[Claim]:
    """Compare times."""
    done = [data for data in SETS if means.has(data, "SKFE", *PROPOSED)]
    each = {
        data: {method: means.mean(data, method, "seconds") for method in METHODS}
        for data in done
    }
    ratios = {data: one["uHSIC"] / one["HSIC"] for data, one in each.items()}
    yield Claim(
        "HSIC and uHSIC take about the same time (6.3).",
        f"Time of uHSIC relative to that of HSIC: {by_data(ratios.items())}.",
        [0.5 <= value <= 2 for value in ratios.values()],
    )
    ratios = {data: one["SKFE"] / one["HSIC"] for data, one in each.items()}
    yield Claim(
        "SKFE takes longer (6.3).",
        f"Its time relative to that of HSIC: {by_data(ratios.items(), '{:.1f}')}.",
        [value > 1 for value in ratios.values()],
    )
    ratios = {
        data: min(one["SVM_joint"], one["uSVM_joint"]) / one["SKFE"]
        for data, one in each.items()
    }
    yield Claim(
        "The joint methods take the longest (6.3).",
        f"Time of the faster one relative to that of SKFE: {by_data(ratios.items())}.",
        [value > 1 for value in ratios.values()],
    )
