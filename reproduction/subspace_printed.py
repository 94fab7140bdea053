"""What the printed tables of Chen et al. (2008) say of themselves, by arithmetic."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from reproduction.page import read_rows

HALVES = 20
DIGIT = 1e-3  # the last one printed, in percent
FOUR_SIGMAS = {"ker1": 1e-3, "ker2": 1e-2, "ker3": 0.5, "ker4": 0.1}
# Above this share numbers would be multiples by chance, and nothing can be said.
CHANCE = 0.5
SAMPLED = 300  # of every class, where a set was not used whole: halves are exact

Rows = list[dict[str, str]]


def evidence(folder: Path) -> list[str]:
    """Return sections about spread, granularity and contradictions, if they are there.

    Parameters
    ----------
    folder : Path
        Of the printed numbers.
    """
    names = ("subspace_datasets", "subspace_error", "subspace_mkl_error")
    sets, table2, table3 = (read_rows(folder, f"{name}.csv") for name in names)
    if not (sets and table2 and table3):
        return []
    return [
        "",
        "## What the printed numbers reveal",
        "",
        "This section is arithmetic on the printed tables alone; nothing was run for "
        "it.",
        *spread(sets, table2),
        *granularity(sets, table2, table3),
        *contradictions(table2, table3),
        *no_means(sets, table2),
    ]


def spread(sets: Rows, table2: Rows) -> list[str]:
    """Compare printed standard deviations with binomial ones, for both errors."""
    text = [
        "",
        "**Spread.** Errors on a test part of t samples scatter with a standard "
        "deviation of sqrt(e (1 - e) / t) if samples err independently; means over "
        "k classes against the rest with sqrt(e (1 - e) / (t k)). The mean ratio of "
        "printed to binomial deviation should be near one for the error that was "
        "printed, and is below one for errors that depend on the samples more than on "
        "the split.",
        "",
        "| data | test size | classes | all classes | one class against the rest | "
        "nearer to one |",
        "|---|---:|---:|---:|---:|---|",
    ]
    for data in sets:
        t, k = int(data["sample_size"]) // 2, int(data["n_classes"])
        ratios = []
        for row in table2:
            if row["dataset"] == data["dataset"]:
                e = float(row["error_mean"]) / 100
                binomial = 100 * np.sqrt(e * (1 - e) / t)
                ratios.append(float(row["error_std"]) / binomial)
        whole, rest = np.mean(ratios), np.mean(ratios) * np.sqrt(k)
        nearer = "all classes" if abs(np.log(whole)) < abs(np.log(rest)) else "the rest"
        text.append(
            f"| {data['dataset']} | {t} | {k} | {whole:.2f} | {rest:.2f} | {nearer} |"
        )
    return text


def multiples(values: list[float], parts: int) -> int:
    """Return how many percentages are multiples of 1 / parts, to the last digit."""
    steps = np.array(values) / 100 * parts
    return int(np.sum(np.abs(steps - np.round(steps)) <= DIGIT / 100 * parts * 0.5001))


def sizes(data: dict[str, str]) -> tuple[int, ...]:
    """Return the sizes that a half may have."""
    samples = int(data["sample_size"])
    exact = samples == SAMPLED * int(data["n_classes"])
    return (samples // 2,) if exact else (samples // 2, samples // 2 - 1)


def granularity(sets: Rows, table2: Rows, table3: Rows) -> list[str]:
    """Count the means that are multiples of what 20 test parts of one size allow."""
    text = [
        "",
        f"**Granularity.** A mean over {HALVES} test parts of t samples is a multiple "
        f"of 1/({HALVES} t), and of 1/({HALVES} t k) for k classes against the rest. "
        "*By chance* is how many of as many numbers would be; where more than half "
        "would be, nothing is shown. Where a set was used whole, halves of every "
        "class, rounded, may leave one sample less than half, so that both sizes are "
        "tried.",
        "",
        "| table | data | method | means | t | multiples of "
        f"1/({HALVES} t) | by chance | of 1/({HALVES} t k) | by chance |",
        "|---|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for data in sets:
        k = int(data["n_classes"])
        groups: dict[tuple[str, str], list[float]] = {}
        for row in table2:
            if row["dataset"] == data["dataset"]:
                groups.setdefault(("2", "all"), []).append(float(row["error_mean"]))
        for row in table3:
            if row["dataset"] == data["dataset"]:
                at = ("3", row["method"])
                groups.setdefault(at, []).append(float(row["error_mean"]))
        for (table, method), values in groups.items():
            for t in sizes(data):
                found = [
                    f"{multiples(values, n)} | {len(values) * DIGIT / 100 * n:.1f}"
                    if DIGIT / 100 * n <= CHANCE
                    else " | "
                    for n in (HALVES * t, HALVES * t * k)
                ]
                text.append(
                    f"| {table} | {data['dataset']} | {method} | {len(values)} | {t} | "
                    f"{' | '.join(found)} |"
                )
    return text


def no_means(sets: Rows, table2: Rows) -> list[str]:
    """Say which means of Table 2 cannot be those of equal test parts."""
    text, example = [], ""
    for data in sets:
        k = int(data["n_classes"])
        found = [row for row in table2 if row["dataset"] == data["dataset"]]
        values = [float(row["error_mean"]) for row in found]
        if not values or DIGIT / 100 * HALVES * sizes(data)[0] * k > CHANCE:
            continue
        # errors of all classes are multiples as well where those against the rest are
        most = max(multiples(values, HALVES * t * k) for t in sizes(data))
        text.append(f"{data['dataset']} {most} of {len(values)}")
        t, *others = sizes(data)
        for row, value in zip(found, values, strict=True):
            if not (example or others or multiples([value], HALVES * t * k)):
                example = (
                    f" For example, {row['method']} on {data['dataset']}: "
                    f"{row['error_mean']} % of {HALVES} x {t} x {k} decisions are "
                    f"{value / 100 * HALVES * t * k:.2f} errors, no whole number."
                )
    if not text:
        return []
    return [
        f"- Of the means of Table 2, at most these can be those of {HALVES} test parts "
        "of one size, whether an error is that of all classes or of one class against "
        f"the rest: {', '.join(text)}.{example}"
    ]


def contradictions(table2: Rows, table3: Rows) -> list[str]:
    """List what the tables say against the text, and against each other."""
    order = sorted(FOUR_SIGMAS, key=FOUR_SIGMAS.__getitem__)
    bent, better, combined = [], [], []
    chosen = {(row["dataset"], row["method"]): row for row in table2}
    found: dict[tuple[str, str], dict[str, float]] = {}
    for row in table3:
        at = (row["dataset"], row["method"])
        found.setdefault(at, {})[row["kernel"]] = float(row["error_mean"])
    for (data, method), errors in found.items():
        curve = [errors[kernel] for kernel in order]
        steps = np.sign(np.diff(curve))
        if np.any(np.diff(steps) < 0):  # it rises and falls again
            bent.append(f"{data} by {method} {', '.join(f'{e:.3f}' for e in curve)}")
        row = chosen[data, method]
        error = float(row["error_std"]) / np.sqrt(HALVES)
        least = min(curve)
        mean = float(row["error_mean"])
        if least < mean - 2 * error:
            better.append(
                f"{data} by {method} {least:.3f} against {mean:.3f} "
                f"({(mean - least) / error:.0f} standard errors)"
            )
    for data in dict.fromkeys(data for data, _ in found):
        svm, hsic = found[data, "uSVM_joint"]["mkl"], found[data, "uHSIC"]["mkl"]
        if svm > hsic:
            combined.append(f"{data} {svm:.3f} against {hsic:.3f}")
    sigmas = ", ".join(f"{FOUR_SIGMAS[kernel]:g}" for kernel in order)
    return [
        "",
        "**Contradictions.**",
        "",
        f"- Over the four sigmas of Table 3 in their order ({sigmas}) errors rise and "
        f"fall again, which one minimum between too narrow and too wide does not do: "
        f"{'; '.join(bent) or 'nowhere'}. If ker1 to ker4 stand for another order than "
        "the printed one, this may be it.",
        "- One fixed sigma of Table 3 beats the sigma that cross-validation chose from "
        f"a grid that has it, Table 2: {'; '.join(better) or 'nowhere'}.",
        "- The text says that the combination by the joint method has the lower error "
        f"(6.1.2); it has the higher one on {'; '.join(combined) or 'no set'}.",
    ]
