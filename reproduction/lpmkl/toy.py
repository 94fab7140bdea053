"""The toy experiment of ℓp-norm MKL (Kloft et al. 2011, section 5.1, figure 1).

    python reproduction/lpmkl/toy.py [--quick] [--jobs N] [--out DIR]

Two Gaussians in 50 dimensions, of which a share of the features carries no information;
each feature is one linear kernel, multiplicatively normalised. For p = 1, 4/3, 2, 4 and
inf the cost C is chosen on 10,000 validation points, and the test error on 10,000 more
and the distance of learned and true weights are recorded. Every data set is written to
DIR/cells as soon as it is done, so that an interrupted run goes on where it stopped.
The table, the figure and the comparison with the claims are made from these files.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from pathlib import Path

import joblib
import numpy as np
import scipy
import sklearn
from scipy.stats import spearmanr

import mklearn
from mklearn import Hinge, KernelBank, mkl_path
from mklearn.datasets import bayes_error, make_toy
from mklearn.kernels import Linear, per_feature
from mklearn.kernels.normalise import fit_normaliser
from mklearn.plotting import OKABE_ITO
from mklearn.report import whole_file, write_json

NORMS = (1.0, 4 / 3, 2.0, 4.0, np.inf)
NAMES = ("1", "4/3", "2", "4", "∞")
SPARSITIES = (0.0, 0.44, 0.64, 0.82, 0.92, 0.98)
COSTS = tuple(10.0 ** (k / 2) for k in range(-8, 1))


# --- one data set ---------------------------------------------------------------------


def settings(args: argparse.Namespace) -> dict:
    """Return what a result depends on, besides size, sparsity and repetition."""
    return {
        "seed": args.seed,
        "points": args.points,
        "tol": args.tol,
        "costs": list(args.costs),
        "norms": list(NAMES),
        "version": mklearn.__version__,
    }


def run_cell(n: int, sparsity: float, repetition: int, setting: dict) -> dict:
    """Return errors and choices of all norms on one data set."""
    began = time.perf_counter()
    seed = [setting["seed"], n, round(100 * sparsity), repetition]
    random = np.random.RandomState(np.random.SeedSequence(seed).generate_state(4))

    def draw(size: int):
        return make_toy(size, sparsity, random_state=random)

    X, y, truth = draw(n)
    X_valid, y_valid, _ = draw(setting["points"])
    X_test, y_test, _ = draw(setting["points"])
    raw = KernelBank(X, per_feature(Linear())).stored()
    normaliser = fit_normaliser("multiplicative", raw)
    bank, Y = normaliser.train(raw), y[:, None]
    # with few samples the closed-form steps for p > 1 cost less than Newton models
    paths = [
        mkl_path(
            bank,
            lambda C: Hinge(Y, np.full_like(Y, C)),
            setting["costs"],
            [p],
            solver="auto" if p == 1 else "alternating",
            tol=setting["tol"],
        )
        for p in NORMS
    ]
    W, bias = linear_models(paths, X, normaliser.scale)
    valid = errors(X_valid, y_valid, W, bias)
    test = errors(X_test, y_test, W, bias)
    theta = np.concatenate([path.theta for path in paths])
    # the smallest cost among the best
    best = valid.argmin(axis=1)
    rows = np.arange(len(NORMS))
    return {
        "n": n,
        "sparsity": sparsity,
        "repetition": repetition,
        "settings": setting,
        "C": paths[0].Cs[best].tolist(),
        "test_error": test[rows, best].tolist(),
        "model_error": model_error(theta[rows, best], truth).tolist(),
        "largest_gap": max(float(path.gap.max()) for path in paths),
        "iterations": int(sum(path.n_iter.sum() for path in paths)),
        "seconds": time.perf_counter() - began,
    }


def linear_models(paths, X: np.ndarray, scale: np.ndarray):
    """Return the normals (P, K, d) and biases (P, K) of all cells.

    Kernels of single features are linear, so that ``f(x) = w'x + b`` with ``w_m =
    theta_m scale_m sum_i A_i x_im``: no kernel of test points is needed.
    """
    grid = [path.solutions[0] for path in paths]
    W = [[s.theta * scale * (s.A[:, 0] @ X) for s in row] for row in grid]
    return np.array(W), np.array([[s.bias[0] for s in row] for row in grid])


def errors(X: np.ndarray, y: np.ndarray, W: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """Return the error of each model, shape (P, K)."""
    F = np.tensordot(W, X, axes=(2, 1)) + bias[:, :, None]
    return np.mean((F > 0) != (y > 0), axis=2)


def model_error(theta: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Return the distance of the directions of learned (P, M) and true weights."""
    theta = theta / np.linalg.norm(theta, axis=1, keepdims=True)
    return np.linalg.norm(theta - truth / np.linalg.norm(truth), axis=1)


def cell_file(out: Path, n: int, sparsity: float, repetition: int) -> Path:
    return out / "cells" / f"n{n}-s{round(100 * sparsity):02d}-{repetition:03d}.json"


def finished(file: Path, setting: dict) -> dict | None:
    """Return the result in a file, if there is one with these settings."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if found["settings"] == setting else None


def cell(out: Path, n: int, sparsity: float, repetition: int, setting: dict) -> dict:
    """Return a result from its file, or find it and write the file."""
    file = cell_file(out, n, sparsity, repetition)
    result = finished(file, setting)
    if result is None:
        result = run_cell(n, sparsity, repetition, setting)
        write_json(file, result)
    return result


# --- what the results say -------------------------------------------------------------


class Results:
    """Errors of one size: arrays of shape (sparsities, repetitions, norms)."""

    def __init__(self, cells: list[dict], n: int) -> None:
        self.n = n
        mine = [c for c in cells if c["n"] == n]
        self.sparsities = sorted({c["sparsity"] for c in mine})
        self.test, self.model = (
            np.array(
                [[c[key] for c in mine if c["sparsity"] == s] for s in self.sparsities]
            )
            for key in ("test_error", "model_error")
        )
        self.repetitions = self.test.shape[1]
        self.largest_gap = max(c["largest_gap"] for c in mine)
        self.seconds = sum(c["seconds"] for c in mine)

    def mean(self, which: str = "test") -> np.ndarray:
        return getattr(self, which).mean(axis=1)

    def standard_error(self, which: str = "test") -> np.ndarray:
        values = getattr(self, which)
        return spread(values, axis=1)

    def at(self, sparsity: float) -> int | None:
        near = [i for i, s in enumerate(self.sparsities) if abs(s - sparsity) < 1e-9]
        return near[0] if near else None


def spread(values: np.ndarray, axis: int) -> np.ndarray:
    """Return the standard error of the mean, NaN for a single value."""
    k = values.shape[axis]
    if k < 2:
        return np.full(np.delete(values.shape, axis), np.nan)
    return values.std(axis=axis, ddof=1) / np.sqrt(k)


def extreme(results: Results, i: int, claimed: tuple[int, ...], worst: bool) -> str:
    """Say whether one of the claimed norms is best (or worst) at one sparsity."""
    sign = -1.0 if worst else 1.0
    mean = sign * results.mean()[i]
    others = [j for j in range(len(NORMS)) if j not in claimed]
    mine, rival = min(claimed, key=mean.__getitem__), min(others, key=mean.__getitem__)
    pairs = 100 * (results.test[i, :, mine] - results.test[i, :, rival])
    word = "worst" if worst else "best"
    return (
        f"{verdict(sign * pairs)}: p = {NAMES[mine]} has "
        f"{100 * abs(mean[mine]):.2f} %, "
        f"the {word} of the others, p = {NAMES[rival]}, {100 * abs(mean[rival]):.2f} % "
        f"(difference {pairs.mean():+.2f} ± {float(spread(pairs, 0)):.2f})"
    )


def verdict(excess: np.ndarray) -> str:
    """Judge paired differences that a claim says are negative."""
    mean, error = excess.mean(), float(spread(excess, 0))
    if mean <= 0:
        return "**holds**" if mean < -2 * error else "**holds, within chance**"
    return "**does not hold**" if mean > 2 * error else "**not told apart**"


def small_claims(r: Results) -> list[str]:
    """Compare with what the paper says about n = 50."""
    bayes, lines = 100 * bayes_error(), []
    one, none = r.at(0.98), r.at(0.0)
    mean = 100 * r.mean()
    if one is not None:
        lines.append(
            "ℓ1 is best when one kernel is informative: "
            f"{extreme(r, one, (0,), False)}."
        )
        lines.append(
            "ℓ1 is at the Bayes error there: "
            f"{mean[one, 0]:.2f} % against {bayes:.2f} %."
        )
    if none is not None:
        lines.append(
            f"The sum kernel is best when all are: {extreme(r, none, (4,), False)}."
        )
        lines.append(
            "It does not reach the Bayes error there: "
            f"{mean[none, 4]:.2f} % against {bayes:.2f} %."
        )
    for s in (0.64, 0.82, 0.92):
        i = r.at(s)
        if i is not None:
            lines.append(
                f"ℓ2 or ℓ4 is best at {s:.0%} noise: {extreme(r, i, (2, 3), False)}."
            )
    for s in (0.0, 0.44, 0.64):
        i = r.at(s)
        if i is not None:
            lines.append(f"ℓ1 is worst at {s:.0%} noise: {extreme(r, i, (0,), True)}.")
    top = mean.max(axis=0)
    least = int(top.argmin())
    lines.append(
        "ℓ4 is the most robust, if that is the smallest of the largest errors over all "
        f"settings: the smallest is that of p = {NAMES[least]}; largest errors "
        + ", ".join(
            f"p = {name}: {t:.2f} %" for name, t in zip(NAMES, top, strict=True)
        )
        + "."
    )
    ranks = [spearmanr(r.mean()[i], r.mean("model")[i])[0] for i in range(len(mean))]
    lines.append(
        "The model error follows the test error: rank correlation over the norms "
        + ", ".join(
            f"{rho:+.2f} ({s:.0%})" for rho, s in zip(ranks, r.sparsities, strict=True)
        )
        + "."
    )
    return lines


def large_claims(r: Results, small: Results | None) -> list[str]:
    """Compare with what the paper says about n = 800."""
    lines, mean = [], 100 * r.mean()
    if small is not None and small.sparsities == r.sparsities:
        lower = bool((r.mean() < small.mean()).all())
        lines.append(
            "Errors are much lower than with few samples: "
            f"they are {'' if lower else 'not '}in all settings; the mean over these "
            f"goes from {100 * small.mean().mean():.2f} to {mean.mean():.2f} %."
        )
    for s in (0.0, 0.44):
        i = r.at(s)
        if i is not None:
            lines.append(f"ℓ∞ is best at {s:.0%} noise: {extreme(r, i, (4,), False)}.")
            lines.append(f"ℓ1 is worst at {s:.0%} noise: {extreme(r, i, (0,), True)}.")
            lines.append(
                "Best and worst differ by up to one point there: "
                f"by {np.ptp(mean[i]):.2f}."
            )
    far = {s: np.ptp(mean[r.at(s)]) for s in (0.92, 0.98) if r.at(s) is not None}
    if far:
        lines.append(
            "All p are fine in the sparse settings: best and worst differ by "
            + ", ".join(f"{d:.2f} points ({s:.0%})" for s, d in far.items())
            + "."
        )
    low, high = r.mean("model").min(), r.mean("model").max()
    lines.append(
        f"Model errors stay fairly high: from {low:.2f} to {high:.2f} "
        "(0 for the true direction, 1.41 for one that is orthogonal to it)."
    )
    return lines


def table(r: Results, which: str, factor: float) -> list[str]:
    """Return a Markdown table, the best norm of each column in bold."""
    mean, error = factor * r.mean(which), factor * r.standard_error(which)
    lines = ["| p | " + " | ".join(f"{s:.0%}" for s in r.sparsities) + " |"]
    lines.append("|---|" + "---:|" * len(r.sparsities))
    for j, name in enumerate(NAMES):
        parts = []
        for i in range(len(mean)):
            text = f"{mean[i, j]:.2f}"
            text = f"**{text}**" if mean[i, j] == mean[i].min() else text
            parts.append(
                text + ("" if np.isnan(error[i, j]) else f" ± {error[i, j]:.2f}")
            )
        lines.append(f"| {name} | " + " | ".join(parts) + " |")
    return lines


def command(args: argparse.Namespace) -> str:
    """Return the command that makes the same page."""
    parts = ["python reproduction/lpmkl/toy.py"]
    parts += ["--quick"] if args.quick else ["--sizes", *map(str, args.sizes)]
    parts += ["--repetitions", *map(str, args.repetitions), "--seed", str(args.seed)]
    return " ".join(parts)


def page(results: list[Results], args: argparse.Namespace, figure: str) -> str:
    """Return the report in Markdown."""
    by_size = {r.n: r for r in results}
    sizes = ", ".join(f"{r.repetitions} data sets with n = {r.n}" for r in results)
    seconds = sum(r.seconds for r in results)
    gap = max(r.largest_gap for r in results)
    lines = [
        "# The toy experiment of ℓp-norm MKL",
        "",
        "Kloft, Brefeld, Sonnenburg and Zien (JMLR 2011), section 5.1 and figure 1.",
        "Two Gaussians in 50 dimensions with means ± 1.75 θ/|θ|, θ binary; each",
        "feature is one linear kernel with multiplicative normalisation; hinge loss;",
        f"{len(args.costs)} values of C, evenly on a logarithmic scale from 0.0001 to",
        f"1, of which the best on {args.points:,} validation points is taken;",
        f"errors on {args.points:,} test points. Columns are the share of features",
        "without information.",
        "",
        f"Here: {sizes} for each share (250 in the paper), seed {args.seed},",
        f"{seconds:.0f} seconds of computation in all, other work on the machine",
        f"included. Every one of the {len(NORMS) * len(args.costs)} problems of a data",
        "set is solved to a certified",
        f"relative duality gap of at most {gap:.1e}; where C is small the weights move",
        "the objective by less than a thousandth, so that it must be small.",
        f"mklearn {mklearn.__version__}, Python {platform.python_version()}, numpy",
        f"{np.__version__}, scipy {scipy.__version__}, scikit-learn",
        f"{sklearn.__version__}.",
        "",
        f"Made by `{command(args)}`."
        + ("" if 800 in by_size else " The paper's n = 800 was not run here."),
        "",
        f"The Bayes error is {100 * bayes_error():.2f} %. Means over data sets ±",
        "standard error.",
        "",
        f"![Test error and model error against the share of noise]({figure})",
    ]
    for r in results:
        lines += ["", f"## n = {r.n}", "", "Test error in percent:", ""]
        lines += table(r, "test", 100.0)
        lines += [
            "",
            "Model error, the distance of the learned and true directions:",
            "",
        ]
        lines += table(r, "model", 1.0)
    lines += [
        "",
        "## The paper's claims",
        "",
        "Computed from the results. Norms are compared on the same data sets; *holds*",
        "and *does not hold* mean that the difference is more than twice its standard",
        "error.",
    ]
    small = by_size.get(50)
    if small is not None:
        lines += ["", "For n = 50:", ""] + [f"- {text}" for text in small_claims(small)]
    if 800 in by_size:
        claims = large_claims(by_size[800], small)
        lines += ["", "For n = 800:", ""] + [f"- {text}" for text in claims]
    return "\n".join(lines) + "\n"


def draw(results: list[Results], file: Path) -> None:
    """Draw test and model errors against the share of noise."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.6 * len(results), 6.4), layout="constrained")
    axes = figure.subplots(2, len(results), sharex=True, squeeze=False)
    for column, r in enumerate(results):
        for row, (which, factor) in enumerate([("test", 100.0), ("model", 1.0)]):
            ax = axes[row, column]
            for j, name in enumerate(NAMES):
                ax.errorbar(
                    100 * np.array(r.sparsities),
                    factor * r.mean(which)[:, j],
                    factor * np.nan_to_num(r.standard_error(which)[:, j]),
                    color=OKABE_ITO[j],
                    marker="osD^v"[j],
                    ms=5,
                    lw=1.5,
                    label=f"p = {name}",
                )
            ax.spines[["top", "right"]].set_visible(False)
        axes[0, column].axhline(
            100 * bayes_error(), color="0.4", ls="--", label="Bayes"
        )
        axes[0, column].set_title(f"n = {r.n}, {r.repetitions} data sets")
        axes[1, column].set_xlabel("features without information (%)")
    axes[0, 0].set_ylabel("test error (%)")
    axes[1, 0].set_ylabel("model error")
    axes[0, 0].legend(frameon=False, ncols=2, fontsize="small")
    with whole_file(file) as temporary:
        figure.savefig(temporary, format="png", dpi=120)


# --- the command ----------------------------------------------------------------------


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="seconds: n = 50, few data sets and points"
    )
    parser.add_argument("--jobs", type=int, default=1, help="data sets at a time")
    parser.add_argument("--out", type=Path, default=Path("toy-output"))
    parser.add_argument("--sizes", type=int, nargs="+", default=[50, 800])
    parser.add_argument(
        "--repetitions", type=int, nargs="+", help="for each size (250 in the paper)"
    )
    parser.add_argument(
        "--points", type=int, default=10_000, help="to validate and test"
    )
    parser.add_argument("--tol", type=float, default=1e-6)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(arguments)
    args.sparsities, args.costs = SPARSITIES, COSTS
    if args.quick:
        args.costs = COSTS[::2]
        args.sizes, args.points, args.sparsities = [50], 1000, SPARSITIES[::5]
        args.repetitions = args.repetitions or [2]
    args.repetitions = args.repetitions or [250]
    if len(args.repetitions) == 1:
        args.repetitions *= len(args.sizes)
    if len(args.repetitions) != len(args.sizes):
        parser.error("--repetitions takes one number, or one for each of --sizes")
    return args


def main(arguments: list[str] | None = None) -> None:
    """Run what is missing, then write page and figure."""
    args = parse(arguments)
    (args.out / "cells").mkdir(parents=True, exist_ok=True)
    setting = settings(args)
    wanted = [
        (n, sparsity, repetition)
        for n, repetitions in zip(args.sizes, args.repetitions, strict=True)
        for repetition in range(repetitions)
        for sparsity in args.sparsities
    ]
    missing = sum(finished(cell_file(args.out, *w), setting) is None for w in wanted)
    print(f"{len(wanted)} data sets, {len(wanted) - missing} of them done before")
    cells = joblib.Parallel(n_jobs=args.jobs)(
        joblib.delayed(cell)(args.out, *w, setting) for w in wanted
    )
    results = [Results(cells, n) for n in args.sizes]
    draw(results, args.out / "lpmkl_toy.png")
    with whole_file(args.out / "lpmkl_toy.md") as temporary:
        temporary.write_text(page(results, args, "lpmkl_toy.png"), encoding="utf-8")
    print(f"written: {args.out / 'lpmkl_toy.md'} and {args.out / 'lpmkl_toy.png'}")


if __name__ == "__main__":
    main()
