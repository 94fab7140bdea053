"""The page of benchmarks/field.py: tables, ranks, a figure and conclusions."""

from __future__ import annotations

import importlib.metadata
import math
import platform
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from field import COSTS, METHODS, SHARE, TESTING
from numpy.typing import NDArray
from ranks import Friedman, cliques, critical_difference, draw, friedman, ranks
from scipy import stats

from mklearn.datasets import available
from mklearn.report import whole_file
from reproduction.cells import Results, Table, Values

FloatArray = NDArray[np.float64]

CHAMPION = "MKL p by CV"  # the default choice for unknown data; named before the run
SUM = "unweighted sum"
EVIDENCE = "evidence"
UNIT = {"accuracy": "SVC + grid", "R2": "SVR + grid"}  # of time
# data sets that have samples in common with another one
RELATED = (
    ("waveform21", "waveform40"),
    ("tcga_breast", "tcga_breast_train"),
    ("heart_statlog", "heart_cleveland"),
)


@dataclass(frozen=True)
class Field:
    """The finished cells of one table, as arrays.

    A repetition of a data set counts if every method has a result, even if it is a
    failure.
    """

    found: Results
    table: Table

    @cached_property
    def repetitions(self) -> dict[str, list[int]]:
        """Complete repetitions of each data set that has any."""
        complete = {
            data: [
                r
                for r in range(self.table.repetitions)
                if all(self.cell(data, m, r) is not None for m in self.methods)
            ]
            for data in self.table.data
        }
        return {data: reps for data, reps in complete.items() if reps}

    def n_splits(self, data: str) -> int:
        return len(self.repetitions.get(data, ()))

    @property
    def methods(self) -> tuple[str, ...]:
        return self.table.methods

    @property
    def data(self) -> list[str]:
        return list(self.repetitions)

    def cell(self, data: str, method: str, repetition: int) -> Values | None:
        """Return the values of a cell, None if it is not finished."""
        return self._cells.get((data, method, repetition))

    @cached_property
    def _cells(self) -> dict[tuple[str, str, int], Values]:
        return {
            (cell.data, cell.method, cell.repetition): values
            for cell, values in self.found.cells.items()
            if cell.table == self.table.name
        }

    def cells(self, data: str, method: str) -> list[Values]:
        """Return the values of all complete repetitions."""
        return [self._cells[data, method, r] for r in self.repetitions[data]]

    def values(self, data: str, method: str, key: str) -> FloatArray:
        """Return one value of all complete repetitions, NaN for failures."""
        return np.array([v.get(key, np.nan) for v in self.cells(data, method)])

    def scores(self, data: str, method: str) -> FloatArray:
        """Return accuracies in percent, or R2."""
        factor = 100.0 if self.table.name == "accuracy" else 1.0
        return factor * self.values(data, method, self.table.name)

    @cached_property
    def mean(self) -> FloatArray:
        """Mean scores of shape (n_sets, n_methods); NaN if any repetition failed."""
        return np.array(
            [[self.scores(d, m).mean() for m in self.methods] for d in self.data]
        )

    @cached_property
    def seconds(self) -> FloatArray:
        """Median seconds of shape (n_sets, n_methods); NaN if any failed."""
        return np.array(
            [
                [np.median(self.values(d, m, "seconds")) for m in self.methods]
                for d in self.data
            ]
        )

    @cached_property
    def ratios(self) -> FloatArray:
        """Seconds relative to the reference."""
        unit = UNIT[self.table.name]
        if unit not in self.methods:
            return np.full(self.seconds.shape, np.nan)
        return self.seconds / self.seconds[:, [self.methods.index(unit)]]

    def column(self, method: str) -> int:
        return self.methods.index(method)

    def of_family(self, *families: str) -> list[str]:
        known = METHODS[self.table.name]
        return [m for m in self.methods if known[m].family in families]

    def best(self, i: int, methods: Sequence[str]) -> tuple[float, str]:
        """Return the best mean score of some methods on a data set, and the method."""
        means = {m: self.mean[i, self.column(m)] for m in methods}
        return max((-np.inf if np.isnan(v) else v, m) for m, v in means.items())

    def difference(self, data: str, a: str, b: str) -> tuple[float, float]:
        """Return the mean of score(a) - score(b), and its standard error.

        The error is corrected for the overlap of training sets (Nadeau and Bengio
        2003).
        """
        d = self.scores(data, a) - self.scores(data, b)
        if len(d) < 2 or np.isnan(d).any():
            return float(d.mean()), np.nan
        one = self.cells(data, a)[0]
        # if the number of samples is capped, splits overlap less
        share = min(one["testing"] / one["training"], (1 - SHARE) / SHARE)
        return float(d.mean()), float(np.sqrt((1 / len(d) + share) * d.var(ddof=1)))


@dataclass(frozen=True)
class Versus:
    """One method against another, over data sets."""

    better: int
    equal: int
    worse: int
    clear: tuple[int, int]  # better and worse by more than two standard errors
    mean: float
    p: float  # of the signed-rank test


def versus(field: Field, a: str, b: str, sets: Sequence[str]) -> Versus:
    """Compare two methods on the data sets on which both have a score."""
    pairs = [field.difference(data, a, b) for data in sets]
    d, error = np.array([p for p in pairs if np.isfinite(p[0])]).reshape(-1, 2).T
    d = d.round(9)
    clear = np.abs(d) > 2 * error
    moved = np.count_nonzero(d)
    p = float(stats.wilcoxon(d).pvalue) if moved > 5 else np.nan
    return Versus(
        int((d > 0).sum()),
        int((d == 0).sum()),
        int((d < 0).sum()),
        (int((clear & (d > 0)).sum()), int((clear & (d < 0)).sum())),
        float(d.mean()) if len(d) else np.nan,
        p,
    )


# --- the page -------------------------------------------------------------------------


def write(
    found: Results, path: Path, missing: dict[str, str], sets: Sequence[str] = ()
) -> None:
    """Write the page and its figure; ``sets`` are those chosen, if not all."""
    fields = {t.name: Field(found, t) for t in found.tables}
    title = found.protocol.title + (f" {len(sets)} chosen data sets" if sets else "")
    text = [f"# {title}", "", *head(found, fields, sets)]
    main = fields.get("accuracy")
    if main is not None and main.data and len(main.methods) > 2:
        text += ["", "## What the numbers say", "", *verdict(main)]
        if draw_figure(main, path.with_suffix(".png")):
            name = path.with_suffix(".png").name
            text += ["", f"![Ranks, and what learning adds]({name})", "", CAPTION]
        text += ["", "## Ranks", "", *rank_table(main)]
    titles = {"accuracy": "Accuracy in percent", "R2": "Regression: R²"}
    for name, field in fields.items():
        if not field.data:
            continue
        text += ["", f"## {titles[name]}", "", *score_table(field)]
        if name == "R2":
            text += ["", *regression_verdict(field)]
        else:
            text += probability_tables(field)
        text += ["", f"### Seconds, and their ratio to {UNIT[name]}", ""]
        text += time_table(field)
    text += ["", "## What did not run, and why", "", *failures(fields, missing)]
    text += ["", "## How it was done", "", *protocol_lines(found)]
    with whole_file(path) as temporary:
        temporary.write_text("\n".join(text) + "\n", encoding="utf-8")


CAPTION = (
    "Above: mean ranks over all data sets, 1 is best; red bars join methods whose "
    "ranks differ by less than the critical difference (Nemenyi, 5 %). Below: accuracy "
    f"of {CHAMPION} minus that of the unweighted sum and of SVC with a grid search, in "
    "points, with corrected standard errors; sets with several views are bold."
)


def head(found: Results, fields: dict[str, Field], sets: Sequence[str]) -> list[str]:
    """Return the origin of the page: command, data and versions."""
    settings = found.settings
    commits = sorted({v["commit"] for v in found.cells.values()})
    spent = sum(v["spent"] for v in found.cells.values())
    packages = ["numpy", "scipy", "scikit-learn", "numba", "MKLpy", "himalaya"]
    complete = sum(len(r) for f in fields.values() for r in f.repetitions.values())
    asked = sum(len(f.table.data) * f.table.repetitions for f in fields.values())
    counts = [len(r) for f in fields.values() for r in f.repetitions.values()]
    splits = float(np.median(counts)) if counts else 0.0
    command = "python benchmarks/field.py"
    command += f" --repeats {settings.repetitions} --limit {settings.budget:g}"
    command += f" --seed {settings.seed}"
    if sets:
        command += f" --sets {' '.join(sets)}"
    left_out = ""
    if "-" in found.protocol.name:
        training = int(found.protocol.name.split("-")[1])
        command += f" --training {training}"
        left_out = (
            f" Data sets with fewer than {math.ceil(training / SHARE)} samples are "
            "left out; [the page with 200 training samples](field.md) has them all."
        )
    sizes = [v["training"] for v in found.cells.values() if "training" in v] or [0]
    return [
        f"Written by `{command}` at commit {', '.join(commits) or '?'}: "
        f"{len(found.cells)} cells, {spent / 60:.0f} minutes on a machine that was "
        f"also used for other work. {complete} of {asked} splits of data sets are "
        "finished for all methods, and only these are included"
        + (
            "; **the run was stopped before the others were finished**, and the same "
            "command continues with them."
            if complete < asked
            else "."
        )
        + (
            " **Most data sets have one split only: differences of a point or two are "
            "within the noise of a test part, and no standard error can be given.**"
            if splits < 2
            else " **Most data sets have only two splits: their standard errors are "
            "very uncertain, and differences that are called clear may be due to "
            "chance.**"
            if splits < 3
            else ""
        ),
        f"Python {platform.python_version()}, {', '.join(map(_version, packages))}; "
        f"{platform.machine()}.",
        "",
        "The tables contain all available methods and all "
        f"{'chosen' if sets else 'available'} data sets with a "
        "finished split; the others are listed below. Kernels and grids are the same "
        "for all data sets and were fixed before the run. The numbers of samples, the "
        "time limit, and boosting without a search (to save time) were chosen after "
        "trials on five of the data sets. All methods use the same splits and the same "
        f"inner folds. Training parts have {min(sizes)} to {max(sizes)} samples; the "
        "results may be different for larger ones. Simulations show [when learning "
        f"weights pays](when.md) and when it does not.{left_out}",
    ]


def _version(package: str) -> str:
    try:
        return f"{package} {importlib.metadata.version(package)}"
    except importlib.metadata.PackageNotFoundError:
        return f"{package} not installed"


def verdict(field: Field) -> list[str]:
    """Return the conclusions that follow from the numbers."""
    N, k = field.mean.shape
    each = ranks(field.mean)
    test = _test(each)
    order = np.argsort(each.mean(axis=0), kind="stable")
    mean = each.mean(axis=0)[order]
    names = [field.methods[j] for j in order]
    difference = critical_difference(N, k)
    last = max((b for a, b in cliques(mean, difference) if a == 0), default=0)
    lines = [
        f"- **Ranks.** Over {N} data sets and {k} methods {names[0]} has the best mean "
        f"rank ({mean[0]:.2f}), followed by {names[1]} ({mean[1]:.2f}) and {names[2]} "
        f"({mean[2]:.2f}); {names[-1]} has the worst ({mean[-1]:.2f}). ",
    ]
    if test is not None:
        lines[-1] += (
            f"The hypothesis of equal ranks has p = {test.p:.2g} (Friedman "
            f"χ² = {test.chi2:.1f}, Iman–Davenport F = {test.F:.2f}). "
        )
    told = _list(names[last + 1 :])
    lines[-1] += f"The critical difference is {difference:.2f}: " + (
        f"the first differs significantly only from {told}."
        if told
        else "no method differs significantly from the first."
    )
    stopped = [
        f"{name} on {_list([field.data[i] for i in np.flatnonzero(missing)])}"
        for name, missing in zip(field.methods, np.isnan(field.mean).T, strict=True)
        if missing.any()
    ]
    if stopped:
        lines[-1] += (
            " A method without a result on some split has the worst rank on that data "
            f"set, however good it may be with more time: {'; '.join(stopped)}."
        )
    if CHAMPION in field.methods:
        lines += champion(field)
    lines += [*where_it_pays(field), *cost(field), *doubts(field)]
    return lines


def _test(each: FloatArray) -> Friedman | None:
    return friedman(each) if min(each.shape[0] - 1, each.shape[1] - 2) > 0 else None


def champion(field: Field) -> Iterator[str]:
    """Compare the learned method named in advance with all others, in a table."""
    views, tables = _kinds(field)
    yield (
        f"- **Learned against not learned.** {CHAMPION} is the method of this library "
        "for data about which nothing is known; this was decided before the run. It "
        "compares with the others as follows:"
    )
    yield ""
    yield (
        "  | against | better | equal | worse | clearly better, worse | mean, points | "
        "several views | one table | p |"
    )
    yield "  |---|" + "---:|" * 8
    for other in field.methods:
        if other == CHAMPION:
            continue
        all_, v, t = (
            versus(field, CHAMPION, other, sets) for sets in (field.data, views, tables)
        )
        yield (
            f"  | {other} | {all_.better} | {all_.equal} | {all_.worse} | "
            f"{all_.clear[0]}, {all_.clear[1]} | {_signed(all_.mean)} | "
            f"{_signed(v.mean)} | {_signed(t.mean)} | {_p(all_.p)} |"
        )
    yield ""
    yield (
        f"  Data sets on which {CHAMPION} has the higher, the same and the lower mean "
        "accuracy; those where the difference is more than two corrected standard "
        "errors; mean differences over all sets, over those with several views and "
        "over single tables; p of Wilcoxon's signed-rank test, not corrected for the "
        "number of comparisons."
    )


def where_it_pays(field: Field) -> Iterator[str]:
    """Name the data sets on which learned weights win and lose."""
    learned = field.of_family("learned")
    others = [m for m in field.methods if m not in learned]
    if not learned or not others:
        return
    if SUM in field.methods and CHAMPION in field.methods:
        pays, hurts, unknown = [], [], 0
        for data in field.data:
            d, error = field.difference(data, CHAMPION, SUM)
            unknown += bool(np.isnan(error))
            if abs(d) > 2 * error:
                (pays if d > 0 else hurts).append(f"{data} ({d:+.1f})")
        left = len(field.data) - len(pays) - len(hurts) - unknown
        yield (
            "- **Where learning weights pays:** by more than two standard errors over "
            f"the unweighted sum on {_list(pays) or 'no data set'}. **Less accurate "
            f"than the sum** by that much: on {_list(hurts) or 'no data set'}. On "
            f"{left} sets the two cannot be distinguished"
            + (f"; {unknown} have one split only, and no error." if unknown else ".")
        )
    lost = []
    for i, data in enumerate(field.data):
        ours, best = field.best(i, learned), field.best(i, others)
        if best[0] > ours[0]:
            gap = best[0] - ours[0]
            lost.append(f"{data} ({best[1]}, {gap:.1f} over {ours[1]})")
    yield (
        f"- **Where no learned method is first:** {len(lost)} of {len(field.data)} "
        f"sets: {_list(lost) or 'none'}. With {len(learned)} learned methods against "
        f"{len(others)} others chance alone would favour the learned ones."
    )


def cost(field: Field) -> Iterator[str]:
    """Return the costs of the methods."""
    if np.isnan(field.ratios).all():
        return
    middle = np.nanmedian(field.ratios, axis=0)
    order = np.argsort(middle)
    parts = [f"{field.methods[j]} {middle[j]:.2g}" for j in order]
    yield (
        f"- **Time.** In units of {UNIT['accuracy']}, the median over data sets: "
        f"{', '.join(parts)}."
    )


def ends(field: Field) -> str:
    """Return how often a cost at the end of its grid was chosen, if any."""
    shares = []
    for method in field.methods:
        chosen = [
            float(v["chosen"]["C"])
            for data in field.data
            for v in field.cells(data, method)
            if "C" in v.get("chosen", {}) and method != "subspace"
        ]
        if chosen:
            share = np.mean([c <= min(COSTS) or c >= max(COSTS) for c in chosen])
            shares.append(f"{method} {share:.0%}")
    if not shares:
        return ""
    return (
        "The cost chosen is the smallest or largest of the grid in these shares of the "
        f"cells: {', '.join(shares)}. Among equal scores, the smallest cost is chosen."
    )


def doubts(field: Field) -> Iterator[str]:
    """Return caveats."""
    edges = ends(field)
    if edges:
        yield f"- **Grids.** {edges}"
    gaps = [
        v["gap"] for d in field.data for m in field.methods for v in field.cells(d, m)
        if "gap" in v
    ]  # fmt: skip
    shared = [pair for pair in RELATED if set(pair) <= set(field.data)]
    text = "- **Caveats.** "
    if shared:
        text += (
            f"{'; '.join(' and '.join(pair) for pair in shared)} have samples in "
            "common, so the tests assume more independent data sets than there are. "
        )
    text += "Splits of a data set overlap, so the standard errors in the table of "
    text += "accuracies are too small; those of differences are corrected."
    if gaps:
        text += (
            f" The largest relative duality gap of a learned model is {max(gaps):.1e}."
        )
    yield text


def rank_table(field: Field) -> list[str]:
    """Return mean ranks, numbers of wins, accuracies and times of all methods."""
    each = ranks(field.mean)
    mean = each.mean(axis=0)
    views, tables = _kinds(field)
    at_views = [field.data.index(d) for d in views]
    at_tables = [field.data.index(d) for d in tables]
    middle = _nanmedian(field.ratios), _nanmedian(field.seconds)
    known = METHODS[field.table.name]
    lines = [
        "| method | kind | mean rank | with several views | single tables | first or "
        "tied | mean accuracy | failed | time / SVC + grid | seconds |",
        "|---|---|" + "---:|" * 8,
    ]
    for j in np.argsort(mean, kind="stable"):
        name = field.methods[j]
        failed = int(np.isnan(field.mean[:, j]).sum())
        cells = [
            name, known[name].family, f"{mean[j]:.2f}",
            _plain(each[at_views, j].mean() if at_views else np.nan, "{:.2f}"),
            _plain(each[at_tables, j].mean() if at_tables else np.nan, "{:.2f}"),
            str(int((field.mean[:, j] >= np.nanmax(field.mean, axis=1)).sum())),
            _plain(_nanmean(field.mean[:, j]), "{:.1f}"), str(failed or ""),
            _plain(middle[0][j], "{:.2g}"), _plain(middle[1][j], "{:.2g}"),
        ]  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    lines += [
        "",
        "A failure is the worst rank of its data set, and is left out of the mean "
        "accuracy. Times are medians over data sets.",
    ]
    return lines


def score_table(field: Field) -> list[str]:
    """Return one row for each data set, with the best mean in bold."""
    form = "{:.1f}" if field.table.name == "accuracy" else "{:.3f}"
    lines = [
        "| data | train | kernels | splits | " + " | ".join(field.methods) + " |",
        "|---|" + "---:|" * (3 + len(field.methods)),
    ]
    for i, data in enumerate(field.data):
        every = [v for m in field.methods for v in field.cells(data, m)]
        one: Values = next((v for v in every if "training" in v), {})
        best = np.nanmax(field.mean[i]) if not np.isnan(field.mean[i]).all() else np.nan
        cells = [data, str(one.get("training", "")), str(one.get("kernels", ""))]
        cells.append(str(len(field.repetitions[data])))
        for j, method in enumerate(field.methods):
            cells.append(_score(field, data, method, form, field.mean[i, j] >= best))
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", "Mean ± standard error over splits; the best mean is bold."]
    return lines


PROBABILITIES = {
    "log loss": (
        "### Log loss",
        "Mean log loss on the test samples ± standard error over splits; the lowest is "
        "bold. Methods without a column do not provide probabilities.",
    ),
    "calibration": (
        "### Calibration error",
        "Mean distance between the probability of the most likely class and how often "
        "it is correct, in ten bins of equal counts. Bins with few test samples have a "
        "positive distance by chance: methods can be compared only within a row.",
    ),
}


def probability_tables(field: Field) -> list[str]:
    """Return the quality of probabilities, of the methods that give them."""
    text: list[str] = []
    for key, (title, note) in PROBABILITIES.items():
        means = np.array(
            [
                [field.values(d, m, key).mean() for m in field.methods]
                for d in field.data
            ]
        )
        some = np.flatnonzero(~np.isnan(means).all(axis=0))
        if not len(some):
            continue
        methods = [field.methods[j] for j in some]
        text += ["", title, "", f"| data | splits | {' | '.join(methods)} |"]
        text.append("|---|---:|" + "---:|" * len(methods))
        for data, row in zip(field.data, means[:, some], strict=True):
            least = np.nan if np.isnan(row).all() else np.nanmin(row)
            cells = [data, str(field.n_splits(data))]
            cells += [
                _mean(field.values(data, m, key), "{:.3f}", mean <= least)
                for m, mean in zip(methods, row, strict=True)
            ]
            text.append("| " + " | ".join(cells) + " |")
        count = (means[:, some] <= np.nanmin(means, axis=1)[:, None]).sum(0)
        wins = ", ".join(f"{m} {n}" for m, n in zip(methods, count, strict=True))
        text += [
            "",
            f"{note} Number of data sets on which each method is best: {wins}.",
        ]
    return text


def _score(field: Field, data: str, method: str, form: str, bold: bool) -> str:
    return _mean(field.scores(data, method), form, bold)


def _mean(values: FloatArray, form: str, bold: bool) -> str:
    if np.isnan(values).all():
        return "failed"
    if np.isnan(values).any():
        return f"failed on {np.isnan(values).sum()} of {len(values)}"
    mean = f"**{form.format(values.mean())}**" if bold else form.format(values.mean())
    if len(values) < 2:
        return mean
    return f"{mean} ± {form.format(values.std(ddof=1) / np.sqrt(len(values)))}"


def time_table(field: Field) -> list[str]:
    """Return the seconds of the unit, and ratios of the others to it."""
    unit = UNIT[field.table.name]
    if unit not in field.methods:
        return [f"{unit} did not run, so there is no unit."]
    others = [m for m in field.methods if m != unit]
    lines = [
        f"| data | {unit}, s | kernels, s | " + " | ".join(others) + " |",
        "|---|" + "---:|" * (2 + len(others)),
    ]
    for i, data in enumerate(field.data):
        made = [
            v["kernel_seconds"]
            for m in field.of_family("learned", "fixed")
            for v in field.cells(data, m)
            if "kernel_seconds" in v
        ]
        cells = [data, _plain(field.seconds[i, field.column(unit)], "{:.2g}")]
        cells.append(_plain(float(np.median(made)) if made else np.nan, "{:.2g}"))
        for method in others:
            cells.append(_plain(field.ratios[i, field.column(method)], "{:.2g}"))
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def regression_verdict(field: Field) -> list[str]:
    """Return the results of regressions; there are too few data sets for a test."""
    mean = ranks(field.mean).mean(axis=0)
    order = np.argsort(mean, kind="stable")
    listed = ", ".join(f"{field.methods[j]} {mean[j]:.2f}" for j in order)
    lines = [
        f"Mean ranks over {len(field.data)} data sets: {listed}. Most of these data "
        "sets have their samples in common, so the ranks are not tested.",
        "",
        "| | against | better | worse | clearly better, worse | mean difference |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for method in (EVIDENCE, CHAMPION):
        for other in ("himalaya", SUM, "best kernel", "boosting", CHAMPION):
            if {method, other} <= set(field.methods) and method != other:
                v = versus(field, method, other, field.data)
                lines.append(
                    f"| {method} | {other} | {v.better} | {v.worse} | {v.clear[0]}, "
                    f"{v.clear[1]} | {v.mean:+.3f} |"
                )
    if {EVIDENCE, "himalaya"} <= set(field.methods):
        ours, theirs = (field.column(m) for m in (EVIDENCE, "himalaya"))
        times = float(np.nanmedian(field.seconds[:, theirs] / field.seconds[:, ours]))
        lines[0] += (
            f" himalaya takes {times:.2g} times as long as {EVIDENCE} (median over "
            "data sets)."
        )
    lines += [
        "",
        "A difference is clear if it exceeds two corrected standard errors. `evidence` "
        "(EvidenceMKLRegressor) has no settings and no search. It was added after the "
        "other methods had been run on diabetes, friedman1, views, ER-alpha and HER2, "
        "where himalaya was ahead of the other learned weights; all other sets were "
        "added afterwards, before anything had been run on them.",
        "",
        "`diabetes` is scikit-learn's, and `friedman1` (with 5 columns of noise among "
        "10), `friedman2` and `friedman3` are its generators; `views` are eight "
        "generated views, one linear in the target, one not, one a noisy copy of the "
        "first, five of noise. In all others, the amount of a protein in breast "
        "tumours is predicted from messenger RNA and micro-RNA (tcga_breast): two "
        "receptors, and every twentieth protein of the table.",
    ]
    edges = ends(field)
    return [*lines, "", edges] if edges else lines


def failures(fields: dict[str, Field], missing: dict[str, str]) -> list[str]:
    """Return one line for everything that is not in the tables or failed there."""
    lines = []
    for name, field in fields.items():
        for method, how in METHODS[name].items():
            if method not in field.methods:
                why = "was not asked for" if how.installed else "is not installed"
                lines.append(f"- {method} ({field.table.title}): {why}.")
        for n in range(field.table.repetitions):
            sets = [d for d in field.table.data if field.n_splits(d) == n]
            if sets:
                count = f"{n or 'none'} of {field.table.repetitions} splits"
                lines.append(f"- {count} were finished for all methods: {_list(sets)}.")
        for data in field.data:
            for method in field.methods:
                cells = field.cells(data, method)
                stopped = [v["stopped"] for v in cells if "stopped" in v]
                if stopped:
                    reason = " ".join(stopped[0].split()).replace("|", "/")
                    count = f"{len(stopped)} of {len(cells)}"
                    lines.append(f"- {method} on {data}, {count} splits: {reason}.")
    lines += [f"- {name}: {reason}." for name, reason in missing.items()]
    return lines or ["Everything ran."]


def protocol_lines(found: Results) -> list[str]:
    """Return the choices, and how time was taken."""
    lines = [f"- {name}: {text}." for name, text in found.protocol.choices.items()]
    return [
        *lines,
        "- time: CPU seconds of one thread from the training samples to the fitted "
        "model, including the search. Grams are computed once for each split; their "
        "time is added to that of every method that uses them, learned or not. Their "
        'definiteness is not checked (`psd="ignore"`), so these are not the times of '
        "calls with defaults.",
        f"- limit: {found.settings.budget:g} CPU seconds for a cell; a method that is "
        "stopped on the first split of a data set is not tried on the others.",
        "- what it does not show: results with kernels chosen by an expert, with more "
        f"training samples, or with other grids. At most {TESTING} test samples are "
        "used.",
    ]


# --- the figure -----------------------------------------------------------------------


def draw_figure(field: Field, path: Path) -> bool:
    """Draw ranks and differences; return False without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return False
    names = field.methods
    mean = ranks(field.mean).mean(axis=0)
    others = [o for o in (SUM, UNIT["accuracy"]) if o in names and CHAMPION in names]
    height = 3.2 + 0.24 * len(field.data)
    figure = Figure(figsize=(10, height), layout="constrained")
    top, below = figure.subplots(2, 1, height_ratios=(3.2, max(height - 3.2, 1)))
    draw(top, list(names), mean, critical_difference(len(field.data), len(names)))
    below.axvline(0, color="black", linewidth=0.8)
    at = np.arange(len(field.data))[::-1]
    for shift, marker, other in zip((0.16, -0.16), "os", others, strict=False):
        pairs = np.array([field.difference(d, CHAMPION, other) for d in field.data])
        below.errorbar(
            pairs[:, 0], at + shift, xerr=np.nan_to_num(pairs[:, 1]), fmt=marker,
            markersize=4, capsize=2, linewidth=1, label=f"minus {other}",
        )  # fmt: skip
    below.set_yticks(at, field.data, fontsize=8)
    views, _ = _kinds(field)
    for label in below.get_yticklabels():
        if label.get_text() in views:
            label.set_fontweight("bold")
    below.set_xlabel(f"accuracy of {CHAMPION} minus that of the other, points")
    below.grid(axis="x", alpha=0.3)
    if others:
        below.legend(fontsize=8, loc="best")
    figure.savefig(path, dpi=110)
    return True


# --- small things ---------------------------------------------------------------------


def _kinds(field: Field) -> tuple[list[str], list[str]]:
    """Return the data sets with several views, and the others."""
    several = {line.name for line in available() if len(line.views) > 1}
    views = [d for d in field.data if d in several]
    return views, [d for d in field.data if d not in several]


def _nanmedian(values: FloatArray) -> Any:
    some = ~np.isnan(values).all(axis=0)
    found = np.full(values.shape[1], np.nan)
    found[some] = np.nanmedian(values[:, some], axis=0)
    return found


def _nanmean(values: FloatArray) -> float:
    return np.nan if np.isnan(values).all() else float(np.nanmean(values))


def _list(parts: Sequence[str]) -> str:
    if len(parts) < 2:
        return "".join(parts)
    return f"{', '.join(parts[:-1])} and {parts[-1]}"


def _plain(value: float, form: str) -> str:
    return "" if np.isnan(value) else form.format(value)


def _signed(value: float) -> str:
    return _plain(value, "{:+.2f}")


def _p(value: float) -> str:
    return _plain(value, "{:.2g}")
