"""Calibration: uniformity of p-values, power of tests, and coverage of intervals.

*Uniformity.* Targets are simulated many times from covariates (or none), the effect of
another kernel if tests are given the others (a sine of its column; for two classes also
one three times as strong, and one drawn anew for each target from the Gaussian process
of that kernel, with a variance of the log odds of 4, at least five samples having each
class), and noise, without any effect of the tested kernels. A test is calibrated if the
share of p-values below a level equals that level, up to binomial error, and if the
p-values are uniform (Kolmogorov-Smirnov; the likelihood ratio has p = 1 for about half
of the targets, and permutations have few distinct values, so only their levels are
checked). Tests given only covariates are done for twenty kernels of
each target. Their p-values are nearly independent, since the columns are; if the number
below 0.05 varies more between targets than it should, their effective number is reduced
accordingly in the test of deviations.

The method "model" is `permutation_test` of the contributions of the twenty kernels to
an `MKLRegressor` or an `MKLClassifier`, which does not see the covariates.

Times to an event are exponential, and so are the times of censoring, which depend on
the column of the first kernel, except for permutations, which this would invalidate.
About six in ten times are events.

*Power.* Targets with an effect of the kernel are tested by score, likelihood ratio and
permutations: how often is p at most 0.05?

*Coverage.* Targets are drawn from the model itself, with known shares of variance and
known effects of two covariates: how often do 90 % intervals contain them, by standard
errors and by profile likelihood?

Each part can be run separately, with its own number of draws; the page is made from all
rows in ``--rows``.

    python benchmarks/calibration.py [--quick] [--part PART] [--draws N]
        [--rows FILE] [--page FILE]
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from pages import commit, page, table
from scipy.stats import binomtest, kstest, kstwobign, norm

from mklearn import (
    EvidenceMKLRegressor,
    KernelBank,
    MKLClassifier,
    MKLRegressor,
    kernels,
)
from mklearn.inference import TestedKernels, kernel_tests, permutation_test
from mklearn.kernels.normalise import fit_normaliser

LEVELS = (0.05, 0.01, 0.001)
TIMES = "times to an event"
M = 20  # number of kernels of a target, if they share a null model
PERMUTATIONS = 199
# samples, target, given, method
CASES = {
    f"{part}-{n}": [(n, target, given, "score")]
    for part, target, given in (
        ("numbers", "numbers", "covariates"),
        ("classes", "two classes", "covariates"),
        ("numbers-others", "numbers", "others"),
        ("classes-others", "two classes", "others"),
    )
    for n in (50, 200, 1000)
}
CASES["strong-others"] = [
    (n, "two classes", "others, strong", "score") for n in (50, 200)
]
CASES["drawn-others"] = [
    (n, "two classes", "others, drawn", "score") for n in (50, 200)
]
CASES["permutations"] = [
    (50, "numbers", "covariates", "permutation"),
    (60, "three classes", "covariates", "permutation"),
    (60, "20 subjects, one label each", "covariates", "permutation"),
    (60, "20 subjects, numbers within", "covariates", "permutation"),
    (60, "three classes", "others", "permutation"),
    (50, "two classes", "others", "permutation"),
    (60, "20 subjects, numbers within", "others", "permutation"),
]
CASES["models"] = [
    (50, "numbers", "covariates", "model"),
    (50, "two classes", "covariates", "model"),
    (60, "three classes", "covariates", "model"),
    (60, "20 subjects, one label each", "covariates", "model"),
    (60, "20 subjects, numbers within", "covariates", "model"),
]
CASES["times"] = [
    (50, TIMES, "covariates", "score"),
    (200, TIMES, "covariates", "score"),
    (50, f"{TIMES}, ties and strata", "covariates", "score"),
    (50, TIMES, "covariates", "permutation"),
]
CASES["likelihood-ratios"] = [
    (50, "numbers", "covariates", "lr"),
    (50, "numbers", "others", "lr"),
    (50, "two classes", "covariates", "lr"),
    (200, "two classes", "covariates", "lr"),
]
POWER = [(50, 0.5), (200, 0.25)]  # samples, size of the effect
# samples, shares of two kernels
INTERVALS = [(100, (0.4, 0.2)), (100, (0.4, 0.0)), (300, (0.4, 0.2))]
EFFECTS = np.array([0.7, 0.0])  # of two covariates
PARTS = (*CASES, "power", *(f"intervals-{k}" for k in range(len(INTERVALS))))
QUICK = (
    "numbers-50", "classes-50", "numbers-others-50", "classes-others-50", "models",
    "intervals-0",
)  # fmt: skip
FAR = 1e-3  # probability below which a count is marked as off


class Case:
    """Samples, and targets without an effect of the tested kernels."""

    def __init__(self, case: tuple, covariates: bool) -> None:
        self.n, self.target, self.given, self.method = case
        n, rng = self.n, np.random.default_rng(self.n)
        X, Z = rng.standard_normal((n, M)), rng.standard_normal((n, 2))
        self.groups = None
        if "subjects" in self.target:  # samples of a subject are similar
            self.groups = np.repeat(np.arange(20), n // 20)
            X = 0.5 * X + rng.standard_normal((20, M))[self.groups]
        self.given, _, effect = self.given.partition(", ")
        columns = [0, M - 1] if self.given == "others" else range(M)
        self.tested = TestedKernels.of(
            X, [kernels.RBF(0.5, columns=[j]) for j in columns]
        )
        self.X = X
        self.which = [0] if self.given == "others" else None
        self.fixed = Z if covariates else None
        self.mean = 0.7 * Z[:, 0] if covariates else np.zeros(n)
        self.leaves = np.exp(-X[:, 0] * (self.method != "permutation"))
        self.strata = np.arange(n) % 2 if "strata" in self.target else None
        self.root = np.zeros((n, n))
        if effect == "drawn":
            K = self.tested.forms[1].dense()
            values, vectors = np.linalg.eigh(4.0 * K / np.trace(K) * n)
            self.root = vectors * np.sqrt(np.maximum(values, 0.0))
        elif self.given == "others":
            size = 3.0 if effect == "strong" else 1.0
            self.mean = self.mean + size * np.sin(2.0 * X[:, M - 1])

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """Return a target."""
        n, mean = self.n, self.mean
        while self.target == "two classes":
            odds = (
                mean + self.root @ rng.standard_normal(n) if self.root.any() else mean
            )
            y = (rng.random(n) < 1.0 / (1.0 + np.exp(-odds))).astype(int)
            if not self.root.any() or 5 <= y.sum() <= n - 5:
                return y
        if self.target.startswith(TIMES):
            lived, left = (
                rng.exponential(np.exp(-mean)),
                rng.exponential(2 * self.leaves),
            )
            time = np.minimum(lived, left)
            if self.strata is not None:
                time = np.ceil(5 * time)
            return np.column_stack([time, lived <= left])
        if self.target == "20 subjects, one label each":
            return rng.permutation(np.arange(20) % 2)[self.groups]
        if self.target == "20 subjects, numbers within":
            mean = mean + 2.0 * rng.standard_normal(20)[self.groups]
        y = mean + rng.standard_normal(n)
        if self.target == "three classes":
            return np.array(["low", "middle", "high"])[np.digitize(y, [-0.5, 0.5])]
        return y

    def p_values(self, draws: int) -> np.ndarray:
        """Return the p-values of kernels without effect, a row for each target."""
        rng = np.random.default_rng(self.n + 1)
        if self.method == "model":
            return np.array([self.of_model(rng) for _ in range(draws)])
        return np.array([
            kernel_tests(
                self.tested, self.draw(rng), fixed=self.fixed, given=self.given,
                method=self.method, n_permutations=PERMUTATIONS, which=self.which,
                random_state=int(rng.integers(2**31)), groups=self.groups,
                strata=self.strata, ties="breslow" if self.strata is None else "efron",
            ).p_values
            for _ in range(draws)
        ])  # fmt: skip

    def of_model(self, rng: np.random.Generator) -> np.ndarray:
        """Return the p-values of the contributions of all kernels to a model."""
        kind = MKLClassifier if "class" in self.target else MKLRegressor
        kind = MKLClassifier if "label" in self.target else kind
        model = kind([kernels.RBF(0.5, columns=[j]) for j in range(M)])
        return permutation_test(
            model, self.X, self.draw(rng), statistic="contributions", fixed=self.fixed,
            groups=self.groups, n_permutations=PERMUTATIONS,
            random_state=int(rng.integers(2**31)),
        ).p_values  # fmt: skip


def uniformity(case: tuple, draws: int, covariates: bool) -> dict:
    """Return shares of p-values below some levels, and whether they are too large."""
    n, target, given, method = case
    drawn = Case(case, covariates)
    shared = len(drawn.tested.names) if drawn.which is None else 1
    p = drawn.p_values(-(-draws // shared))
    # p-values of one target may be correlated: use a smaller effective number
    counts = np.sum(p <= LEVELS[0] + 1e-12, axis=1)
    alone = p.shape[1] * LEVELS[0] * (1 - LEVELS[0])
    together = max(1.0, float(counts.var()) / alone) if shared > 1 else 1.0
    p = p.ravel()
    number = round(len(p) / together)
    row = {
        "n": n, "target": target, "given": given, "method": method,
        "covariates": "two" if covariates else "none", "p-values": len(p),
    }  # fmt: skip
    off = []
    for level in LEVELS:
        count = int(np.sum(p <= level + 1e-12))
        row[f"p <= {level:g}"] = count / len(p)
        if method in ("permutation", "model") and level * (PERMUTATIONS + 1) < 1:
            continue  # so few permutations cannot reach this level
        if binomtest(round(count / together), number, level).pvalue < FAR:
            off.append(f"{level:g}")
    if method == "score":
        distance = float(kstest(p, "uniform").statistic)
        row["uniform"] = float(kstwobign.sf(distance * number**0.5))
        if row["uniform"] < FAR:
            off.append("uniform")
    return {**row, "off": ", ".join(off)}


def power(n: int, size: float, draws: int) -> dict:
    """Return how often an effect is detected."""
    rng = np.random.default_rng(n)
    X, Z = rng.standard_normal((n, 2)), rng.standard_normal((n, 2))
    tested = TestedKernels.of(X, [kernels.RBF(0.5, columns=[0])])
    found: dict[str, list[bool]] = {}
    for _ in range(draws):
        y = size * np.sin(2.0 * X[:, 0]) + 0.7 * Z[:, 0] + rng.standard_normal(n)
        for method in ("score", "lr", "permutation"):
            test = kernel_tests(
                tested, y, fixed=Z, method=method, n_permutations=PERMUTATIONS,
                random_state=int(rng.integers(2**31)),
            )  # fmt: skip
            found.setdefault(method, []).append(bool(test.p_values[0] <= 0.05 + 1e-12))
    row = {"n": n, "effect": size, "targets": draws}
    row.update({method: float(np.mean(hits)) for method, hits in found.items()})
    error = max(np.std(hits) for hits in found.values()) / draws**0.5
    return {**row, "standard error": float(error)}


def coverage(n: int, shares: tuple[float, float], draws: int, level=0.9) -> list[dict]:
    """Return how often intervals of weights, shares and effects cover the truth."""
    rng = np.random.default_rng(n)
    X, Z = rng.standard_normal((n, 2)), rng.standard_normal((n, 2))
    family = [kernels.RBF(0.5, columns=[j]) for j in (0, 1)]
    raw = KernelBank(X, family)
    bank = fit_normaliser("multiplicative", raw).train(raw)
    noise = 1.0 - sum(shares)
    root = np.linalg.cholesky(bank.combine(np.array(shares)) + noise * np.eye(n))
    z = norm.isf((1 - level) / 2)
    samples = np.column_stack([X, Z])
    truth = np.array(shares)
    hits: dict = {}
    for _ in range(draws):
        y = Z @ EFFECTS + root @ rng.standard_normal(n)
        model = EvidenceMKLRegressor(family, fixed=[2, 3]).fit(samples, y)
        for what, value, std, true in (
            ("share", model.variance_explained_, model.variance_explained_std_, truth),
            ("weight", model.kernel_weights_, model.kernel_weights_std_, truth / noise),
            ("effect", model.fixed_effects_, model.fixed_effects_std_, EFFECTS),
        ):
            inside = np.abs(value - true) <= z * std
            hits.setdefault((what, "standard error"), []).append(inside)
        ends = model.profile_intervals(samples, y, level=level)
        inside = (ends[:, 0] <= truth) & (truth <= ends[:, 1])
        hits.setdefault(("share", "profile likelihood"), []).append(inside)
    rows = []
    for (what, how), found in hits.items():
        for m, true in enumerate(EFFECTS if what == "effect" else shares):
            count = int(np.sum([inside[m] for inside in found]))
            far = binomtest(count, draws, level).pvalue < FAR
            rows.append({
                "n": n, "interval of": what, "true share or effect": float(true),
                "by": how, "targets": draws, "covered": count / draws,
                "off": "yes" if far else "",
            })  # fmt: skip
    return rows


def show(row: dict) -> None:
    cells = (f"{k} {v:.3g}" if isinstance(v, float) else f"{k} {v}"
             for k, v in row.items())  # fmt: skip
    print("  ".join(cells), flush=True)


def written(rows: dict[str, list[dict]]) -> str:
    """Return the page of all rows."""
    more = (
        " The columns of levels contain the share of p-values at or below the level; "
        "`uniform` is the p-value of the Kolmogorov-Smirnov test; `off` names values "
        "that deviate from the expected ones by more than would happen by chance once "
        f"in {1 / FAR:.0f} times; `commit` is the one at which a row was computed, "
        "because each part is run separately."
    )
    uniform = [row for part in CASES for row in rows.get(part, [])]
    title = "Are p-values uniform and intervals right?"
    command = "calibration.py"
    if set(rows) == {"times"}:
        title = "Are p-values for times to an event uniform?"
        command += " --part times"
    parts = [page(title, command, uniform, more)]
    if "power" in rows:
        parts.append(
            "\n## How often is an effect found?\n\nThe share of targets with an effect "
            "for which p is at most 0.05, with two covariates.\n\n"
            + table(rows["power"])
        )
    intervals = [row for part in PARTS[-len(INTERVALS) :] for row in rows.get(part, [])]
    if intervals:
        parts.append(
            "\n## Do 90 % intervals contain the truth?\n\nTargets are drawn from the "
            "model, with two covariates, two kernels that explain the given shares of "
            "the remaining variance, and noise. `off` marks values that deviate from "
            "90 % by more than would happen by chance once in "
            f"{1 / FAR:.0f} times.\n\n" + table(intervals)
        )
    return "".join(parts)


def few(part: str) -> int:
    """Return the number of draws in quick mode.

    What counts are exact binomial probabilities, and those of Kolmogorov-Smirnov, which
    are too large rather than too small for few draws: less is found, not more.
    """
    if part.startswith("intervals"):
        return 10
    return 60 if "others" in part or part == "models" else 10 * M


def rows_of(part: str, draws: int, quick: bool) -> Iterator[dict]:
    """Yield the rows of a part as they are computed."""
    if part == "power":
        for n, size in POWER:
            yield power(n, size, draws)
    elif part.startswith("intervals"):
        n, shares = INTERVALS[int(part.split("-")[1])]
        yield from coverage(n, shares, draws)
    else:
        for case in CASES[part][: 1 if quick else None]:
            for covariates in (False, True):
                if covariates and "one label" in case[1]:
                    continue  # these have no covariates that vary only between subjects
                yield uniformity(case, draws, covariates)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--part", choices=PARTS, action="append")
    parser.add_argument("--draws", type=int, default=10_000)
    parser.add_argument("--rows", type=Path, help="append rows to this file")
    parser.add_argument("--page", type=Path, help="write a Markdown page here")
    args = parser.parse_args()
    parts = args.part or (QUICK if args.quick else PARTS)
    rows: dict[str, list[dict]] = {}
    if args.rows and args.rows.exists():
        for line in args.rows.read_text().splitlines():
            found = json.loads(line)
            rows.setdefault(found["part"], []).append(found["row"])
    off = []
    for part in parts:
        if part in rows:
            continue  # already in the file
        for row in rows_of(part, few(part) if args.quick else args.draws, args.quick):
            row["commit"] = commit()
            show(row)
            rows.setdefault(part, []).append(row)
            off += [row] if row.get("off") else []
            if args.rows:
                with args.rows.open("a") as file:
                    print(json.dumps({"part": part, "row": row}), file=file)
    if args.page:
        args.page.write_text(written(rows))
    if off:
        print("further from what it should be than chance allows:", *off, sep="\n  ")
    return bool(off) and args.quick


if __name__ == "__main__":
    sys.exit(main())
