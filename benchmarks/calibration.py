"""Are p-values uniform, tests powerful, and intervals as wide as they should be?

*Uniform.* Targets are drawn anew many times: covariates (or none), the effect of
another kernel where tests are given the others, noise, and nothing of the kernel that
is tested. A test keeps its promise if the share of p-values below a level is that
level, up to binomial error, and if they are uniform as a whole (Kolmogorov-Smirnov; the
likelihood ratio has p = 1 for about half of the targets, and permutations have few
values, so that only their levels are counted).

*Powerful.* Targets with an effect of the kernel are tested by score, likelihood ratio
and permutations: how often is p at most 0.05?

*Intervals.* Targets are drawn from the model itself, with known shares of variance: how
often do 90 % intervals hold them, by standard errors and by profile likelihood?

Each part can be run alone, with a number of draws of its own; the page is made of all
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
from pages import page, table
from scipy.stats import binomtest, kstest, norm

from mklearn import EvidenceMKLRegressor, KernelBank, kernels
from mklearn.inference import TestedKernels, kernel_tests
from mklearn.kernels.normalise import fit_normaliser

LEVELS = (0.05, 0.01, 0.001)
# samples, target, given, method
CASES = {
    part: [(n, target, given, "score") for n in (50, 200, 1000)]
    for part, target, given in (
        ("numbers", "numbers", "covariates"),
        ("classes", "classes", "covariates"),
        ("numbers-others", "numbers", "others"),
        ("classes-others", "classes", "others"),
    )
}
CASES["other-tests"] = [
    (50, "numbers", "covariates", "permutation"),
    (50, "numbers", "covariates", "lr"),
]
POWER = [(50, 0.5), (200, 0.25)]  # samples, size of the effect
INTERVALS = [(100, (0.4, 0.2)), (100, (0.4, 0.0)), (300, (0.4, 0.2))]  # and shares
PARTS = (*CASES, "power", "intervals")
FAR = 1e-3  # chance below which a count is called off


def sample(n: int) -> tuple[np.ndarray, np.ndarray, TestedKernels]:
    rng = np.random.default_rng(n)
    X, Z = rng.standard_normal((n, 2)), rng.standard_normal((n, 2))
    return X, Z, TestedKernels.of(X, [kernels.RBF(0.5, columns=[j]) for j in (0, 1)])


def p_values(case, draws: int, covariates: bool) -> np.ndarray:
    """Return the p-values of a kernel without effect, one for each target drawn."""
    n, target, given, method = case
    X, Z, tested = sample(n)
    rng = np.random.default_rng(n + 1)
    mean = 0.7 * Z[:, 0] if covariates else np.zeros(n)
    if given == "others":
        mean = mean + np.sin(2.0 * X[:, 1])
    found = []
    for _ in range(draws):
        if target == "numbers":
            y = mean + rng.standard_normal(n)
        else:
            y = (rng.random(n) < 1.0 / (1.0 + np.exp(-mean))).astype(int)
        test = kernel_tests(
            tested, y, fixed=Z if covariates else None, given=given, method=method,
            n_permutations=199, random_state=rng.integers(2**31), which=[0],
        )  # fmt: skip
        found.append(test.p_values[0])
    return np.array(found)


def uniformity(case, draws: int, covariates: bool) -> dict:
    n, target, given, method = case
    p = p_values(case, draws, covariates)
    row = {
        "n": n, "target": target, "given": given, "method": method,
        "covariates": "two" if covariates else "none", "p-values": len(p),
    }  # fmt: skip
    off = []
    for level in LEVELS:
        count = int(np.sum(p <= level + 1e-12))
        row[f"p <= {level:g}"] = count / len(p)
        if method == "permutation" and level < 1 / 200:
            continue  # which 199 permutations cannot reach
        if binomtest(count, len(p), level).pvalue < FAR:
            off.append(f"{level:g}")
    if method == "score":
        row["uniform"] = float(kstest(p, "uniform").pvalue)
        if row["uniform"] < FAR:
            off.append("uniform")
    return {**row, "off": ", ".join(off)}


def power(n: int, size: float, draws: int) -> dict:
    X, Z, tested = sample(n)
    rng, found = np.random.default_rng(n + 2), {}
    for _ in range(draws):
        y = size * np.sin(2.0 * X[:, 0]) + 0.7 * Z[:, 0] + rng.standard_normal(n)
        for method in ("score", "lr", "permutation"):
            test = kernel_tests(
                tested, y, fixed=Z, method=method, n_permutations=199, which=[0],
                random_state=rng.integers(2**31),
            )  # fmt: skip
            found.setdefault(method, []).append(test.p_values[0] <= 0.05)
    row = {"n": n, "effect": size, "targets": draws}
    row.update({method: float(np.mean(hits)) for method, hits in found.items()})
    error = max(np.std(hits) for hits in found.values()) / draws**0.5
    return {**row, "standard error": float(error)}


def coverage(n: int, shares: tuple[float, float], draws: int, level=0.9) -> list[dict]:
    X, _, _ = sample(n)
    raw = KernelBank(X, [kernels.RBF(0.5, columns=[j]) for j in (0, 1)])
    bank = fit_normaliser("multiplicative", raw).train(raw)
    K = np.stack([bank.gram(m) for m in range(2)], axis=2)
    noise = 1.0 - sum(shares)
    root = np.linalg.cholesky(K @ np.array(shares) + noise * np.eye(n))
    rng, z = np.random.default_rng(n + 3), norm.isf((1 - level) / 2)
    truth = {"share": np.array(shares), "weight": np.array(shares) / noise}
    hits: dict = {}
    for _ in range(draws):
        y = root @ rng.standard_normal(n)
        model = EvidenceMKLRegressor("precomputed").fit(K, y)
        for what, value, std in (
            ("share", model.variance_explained_, model.variance_explained_std_),
            ("weight", model.kernel_weights_, model.kernel_weights_std_),
        ):
            inside = np.abs(value - truth[what]) <= z * std
            hits.setdefault((what, "standard error"), []).append(inside)
        ends = model.profile_intervals(K, y, level=level)
        inside = (ends[:, 0] <= truth["share"]) & (truth["share"] <= ends[:, 1])
        hits.setdefault(("share", "profile likelihood"), []).append(inside)
    rows = []
    for (what, how), found in hits.items():
        for m, share in enumerate(shares):
            count = int(np.sum([inside[m] for inside in found]))
            far = binomtest(count, draws, level).pvalue < FAR
            rows.append({
                "n": n, "share": share, "interval of": what, "by": how,
                "targets": draws, "covered": count / draws, "off": "yes" if far else "",
            })  # fmt: skip
    return rows


def show(row: dict) -> None:
    cells = (f"{k} {v:.3g}" if isinstance(v, float) else f"{k} {v}"
             for k, v in row.items())  # fmt: skip
    print("  ".join(cells), flush=True)


def written(rows: dict[str, list[dict]]) -> str:
    """Return the page of all rows."""
    more = (
        " Beside each level stands the share of p-values at or below it; `uniform` is "
        "the p-value of the Kolmogorov-Smirnov test; `off` names what is further from "
        f"what it should be than chance makes it once in {1 / FAR:.0f} times."
    )
    uniform = [row for part in CASES for row in rows.get(part, [])]
    title = "Are p-values uniform and intervals right?"
    parts = [page(title, "calibration.py", uniform, more)]
    if "power" in rows:
        parts.append(
            "\n## How often is an effect found?\n\nThe share of targets with an effect "
            "for which p is at most 0.05, with two covariates.\n\n"
            + table(rows["power"])
        )
    if "intervals" in rows:
        parts.append(
            "\n## Do 90 % intervals hold the truth?\n\nTargets are drawn from the "
            "model, with kernels that explain the shares given and noise that explains "
            "the rest.\n\n" + table(rows["intervals"])
        )
    return "".join(parts)


def rows_of(part: str, draws: int, quick: bool) -> Iterator[dict]:
    """Yield the rows of a part as they are found."""
    if part == "power":
        for n, size in POWER:
            yield power(n, size, draws)
    elif part == "intervals":
        for n, shares in INTERVALS:
            yield from coverage(n, shares, draws)
    else:
        for case in CASES[part][: 1 if quick else None]:
            for covariates in (False, True):
                yield uniformity(case, draws, covariates)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--part", choices=PARTS, action="append")
    parser.add_argument("--draws", type=int, default=10_000)
    parser.add_argument("--rows", type=Path, help="append rows to this file")
    parser.add_argument("--page", type=Path, help="write a Markdown page here")
    args = parser.parse_args()
    parts = args.part or (list(CASES)[:3] if args.quick else PARTS)
    rows: dict[str, list[dict]] = {}
    if args.rows and args.rows.exists():
        for line in args.rows.read_text().splitlines():
            found = json.loads(line)
            rows.setdefault(found["part"], []).append(found["row"])
    off = []
    for part in parts:
        if part in rows:
            continue  # is known
        for row in rows_of(part, 200 if args.quick else args.draws, args.quick):
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
