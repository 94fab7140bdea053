"""The toy figure of ℓp-norm MKL (Kloft et al. 2011, section 5.1, figure 1).

Two Gaussians in 50 dimensions, of which a share of the features carries no information;
each feature is one linear kernel. A cell is one norm on one data set.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

from mklearn import Hinge, KernelBank, mkl_path
from mklearn.datasets import bayes_error, make_toy
from mklearn.kernels import Linear, per_feature
from mklearn.kernels.normalise import fit_normaliser
from mklearn.plotting import OKABE_ITO
from reproduction.cells import Cell, Results, Table, Values
from reproduction.claims import Claim, Mean, of_sets
from reproduction.page import save

FloatArray = NDArray[np.float64]

NORMS = {"p = 1": 1.0, "p = 4/3": 4 / 3, "p = 2": 2.0, "p = 4": 4.0, "p = inf": np.inf}
SPARSITIES = (0.0, 0.44, 0.64, 0.82, 0.92, 0.98)
POINTS = 10_000
# n: data sets of each sparsity, costs, relative duality gap
SIZES = {
    50: (20, tuple(10.0 ** (k / 2) for k in range(-8, 1)), 1e-6),
    800: (3, tuple(10.0**k for k in range(-4, 1)), 1e-4),
}


def name_of(n: int, sparsity: float) -> str:
    """Return what a setting is called."""
    return f"n = {n}, {sparsity:.0%} noise"


SETTINGS = {name_of(n, s): (n, s) for n in SIZES for s in SPARSITIES}


def table(n: int) -> Table:
    """Return one half of the figure."""
    repetitions = SIZES[n][0]
    return Table(
        f"figure1-{n}",
        f"toy data with n = {n}, test error in percent and distance of the learned "
        f"from the true weights; {repetitions} data sets each, 250 in the paper",
        tuple(name_of(n, s) for s in SPARSITIES),
        tuple(NORMS),
        repetitions,
        keys=("error", "model error"),
    )


# --- one cell -------------------------------------------------------------------------


def work(cell: Cell, seed: int) -> Values:
    """Return the errors of one norm on one data set, C chosen on validation points."""
    n, sparsity = SETTINGS[cell.data]
    entropy = [seed, n, round(100 * sparsity), cell.repetition]
    random = np.random.RandomState(np.random.SeedSequence(entropy).generate_state(4))
    X, y, truth = make_toy(n, sparsity, random_state=random)
    X_valid, y_valid, _ = make_toy(POINTS, sparsity, random_state=random)
    X_test, y_test, _ = make_toy(POINTS, sparsity, random_state=random)
    raw = KernelBank(X, per_feature(Linear())).stored()
    normaliser = fit_normaliser("multiplicative", raw)
    p, Y = NORMS[cell.method], y[:, None]
    _, costs, tol = SIZES[n]
    path = mkl_path(
        normaliser.train(raw),
        lambda C: Hinge(Y, np.full_like(Y, C)),
        costs,
        [p],
        # with few samples the closed-form steps for p > 1 cost less than Newton models
        solver="auto" if p == 1 else "alternating",
        tol=tol,
    )
    W, bias = linear_models(path.solutions[0], X, normaliser.scale)
    # the smallest cost among the best
    best = int(errors(X_valid, y_valid, W, bias).argmin())
    return {
        "error": 100 * float(errors(X_test, y_test, W, bias)[best]),
        "model error": float(model_error(path.theta[0, best], truth)),
        "C": float(path.Cs[best]),
        "gap": float(path.gap.max()),
        "iterations": int(path.n_iter.sum()),
    }


def linear_models(
    solutions: Any, X: FloatArray, scale: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the normals (K, d) and biases (K,) of all costs.

    Kernels of single features are linear, so that ``f(x) = w'x + b`` with ``w_m =
    theta_m scale_m sum_i A_i x_im``: no kernel of test points is needed.
    """
    W = [s.theta * scale * (s.A[:, 0] @ X) for s in solutions]
    return np.array(W), np.array([s.bias[0] for s in solutions])


def errors(X: FloatArray, y: FloatArray, W: FloatArray, bias: FloatArray) -> FloatArray:
    """Return the error of each model, shape (K,)."""
    wrong = ((X @ W.T + bias) > 0) != (y > 0)[:, None]
    return np.asarray(wrong.mean(axis=0))


def model_error(theta: FloatArray, truth: FloatArray) -> float:
    """Return the distance of the directions of learned and true weights."""
    apart = theta / np.linalg.norm(theta) - truth / np.linalg.norm(truth)
    return float(np.linalg.norm(apart))


# --- what the results say -------------------------------------------------------------


class Errors:
    """Errors of one size: arrays of shape (sparsities, repetitions, norms)."""

    def __init__(self, results: Results, n: int) -> None:
        self.n = n
        tables = [t for t in results.tables if t.name == f"figure1-{n}"]
        rows = {
            s: [results.of(t, name_of(n, s), norm) for norm in NORMS]
            for t in tables
            for s in SPARSITIES
        }
        every = [len(cells) for row in rows.values() for cells in row]
        self.repetitions = min(every, default=0)
        self.test, self.model = (
            np.array(
                [
                    [[cells[r][key] for cells in row] for r in range(self.repetitions)]
                    for row in rows.values()
                ]
            )
            for key in ("error", "model error")
        )

    def mean(self, which: str = "test") -> FloatArray:
        """Return the means over data sets, shape (sparsities, norms)."""
        return np.asarray(getattr(self, which).mean(axis=1))

    def spread(self, which: str = "test") -> FloatArray:
        """Return the standard errors of the means."""
        return standard_error(getattr(self, which), 1)


def standard_error(values: FloatArray, axis: int) -> FloatArray:
    """Return the standard error of the mean, NaN for a single value."""
    k = values.shape[axis]
    if k < 2:
        return np.full(np.delete(values.shape, axis), np.nan)
    return np.asarray(values.std(axis=axis, ddof=1) / np.sqrt(k))


def conclusions(mean: Mean) -> Iterator[Claim]:
    """Yield what the paper concludes from the figure, from its means."""

    def errors(n: int, sparsity: float) -> dict[str, float]:
        return {p: mean(name_of(n, sparsity), p, "error") for p in NORMS}

    def ahead(n: int, sparsity: float, *names: str) -> float:
        found = errors(n, sparsity)
        others = min(value for p, value in found.items() if p not in names)
        return min(found[p] for p in names) - others

    few, many = SIZES
    for says, sparsities, names in (
        ("l1 is best when one kernel is informative", (0.98,), ("p = 1",)),
        ("the sum kernel is best when all are", (0.0,), ("p = inf",)),
        ("l2 or l4 is best in between", (0.64, 0.82, 0.92), ("p = 2", "p = 4")),
    ):
        yield of_sets(
            f"With {few} samples {says} (5.1).",
            {f"{s:.0%} noise": ahead(few, s, *names) for s in sparsities},
            lambda value: value <= 0,
            what=f"{' or '.join(names)} minus the best of the others: ",
            unit=" points of test error",
        )
    yield of_sets(
        f"With {few} samples l1 is the worst below 82 % noise (5.1).",
        {
            f"{s:.0%} noise": errors(few, s)["p = 1"]
            - max(value for p, value in errors(few, s).items() if p != "p = 1")
            for s in (0.0, 0.44, 0.64)
        },
        lambda value: value >= 0,
        what="p = 1 minus the worst of the others: ",
        unit=" points",
    )
    yield of_sets(
        f"With {many} samples the choice of p matters little: a point at most between "
        "the best and the worst where many kernels are informative (5.1).",
        {
            f"{s:.0%} noise": max(errors(many, s).values())
            - min(errors(many, s).values())
            for s in (0.0, 0.44)
        },
        lambda value: value <= 1,
        form="{:.2f}",
        unit=" points",
    )


def claims(results: Results) -> list[str]:
    """Compare with what the paper says about the figure."""
    small, large = (Errors(results, n) for n in SIZES)
    text: list[str] = []
    if small.repetitions:
        text += ["", "For n = 50:", "", *(f"- {line}" for line in few_samples(small))]
    if large.repetitions:
        lines = many_samples(large, small if small.repetitions else None)
        text += ["", "For n = 800:", "", *(f"- {line}" for line in lines)]
    if not text:
        return []
    head = [
        "",
        "## The paper's claims about the toy data",
        "",
        "Computed from the results. Norms are compared on the same data sets; *holds* "
        "and *does not hold* mean that the difference is more than twice its standard "
        f"error. The Bayes error is {100 * bayes_error():.2f} %.",
    ]
    return head + text


def extreme(r: Errors, sparsity: float, claimed: tuple[int, ...], worst: bool) -> str:
    """Say whether one of the claimed norms is best (or worst) at one sparsity."""
    i, names = SPARSITIES.index(sparsity), list(NORMS)
    sign = -1.0 if worst else 1.0
    mean = sign * r.mean()[i]
    others = [j for j in range(len(names)) if j not in claimed]
    mine, rival = min(claimed, key=mean.__getitem__), min(others, key=mean.__getitem__)
    pairs = r.test[i, :, mine] - r.test[i, :, rival]
    return (
        f"{verdict(sign * pairs)}: {names[mine]} has {abs(mean[mine]):.2f} %, the "
        f"{'worst' if worst else 'best'} of the others, {names[rival]}, "
        f"{abs(mean[rival]):.2f} % (difference {pairs.mean():+.2f} ± "
        f"{float(standard_error(pairs, 0)):.2f})"
    )


def verdict(excess: FloatArray) -> str:
    """Judge paired differences that a claim says are negative."""
    mean, error = excess.mean(), float(standard_error(excess, 0))
    if mean <= 0:
        return "**holds**" if mean < -2 * error else "**holds, within chance**"
    return "**does not hold**" if mean > 2 * error else "**not told apart**"


def few_samples(r: Errors) -> list[str]:
    """Compare with what the paper says about n = 50."""
    mean, bayes = r.mean(), 100 * bayes_error()
    top = mean.max(axis=0)
    least = list(NORMS)[int(top.argmin())]
    each = ", ".join(f"{p}: {t:.2f} %" for p, t in zip(NORMS, top, strict=True))
    ranks = [spearmanr(a, b)[0] for a, b in zip(mean, r.mean("model"), strict=True)]
    follows = ", ".join(
        f"{rho:+.2f} ({s:.0%})" for rho, s in zip(ranks, SPARSITIES, strict=True)
    )
    return [
        f"ℓ1 is best when one kernel is informative: {extreme(r, 0.98, (0,), False)}.",
        f"ℓ1 is at the Bayes error there: {mean[-1, 0]:.2f} % against {bayes:.2f} %.",
        f"The sum kernel is best when all are: {extreme(r, 0.0, (4,), False)}.",
        "It does not reach the Bayes error there: "
        f"{mean[0, 4]:.2f} % against {bayes:.2f} %.",
        *(
            f"ℓ2 or ℓ4 is best at {s:.0%} noise: {extreme(r, s, (2, 3), False)}."
            for s in (0.64, 0.82, 0.92)
        ),
        *(
            f"ℓ1 is worst at {s:.0%} noise: {extreme(r, s, (0,), True)}."
            for s in (0.0, 0.44, 0.64)
        ),
        "ℓ4 is the most robust, if that is the smallest of the largest errors over all "
        f"settings: the smallest is that of {least}; largest errors {each}.",
        "The model error follows the test error: rank correlation over the norms "
        f"{follows}.",
    ]


def many_samples(r: Errors, small: Errors | None) -> list[str]:
    """Compare with what the paper says about n = 800."""
    lines, mean = [], r.mean()
    if small is not None:
        lower = bool((mean < small.mean()).all())
        lines.append(
            f"Errors are much lower than with few samples: they are "
            f"{'' if lower else 'not '}in all settings; the mean over these goes from "
            f"{small.mean().mean():.2f} to {mean.mean():.2f} %."
        )
    for i, s in enumerate((0.0, 0.44)):
        lines += [
            f"ℓ∞ is best at {s:.0%} noise: {extreme(r, s, (4,), False)}.",
            f"ℓ1 is worst at {s:.0%} noise: {extreme(r, s, (0,), True)}.",
            "Best and worst differ by up to one point there: by "
            f"{np.ptp(mean[i]):.2f}.",
        ]
    low, high = r.mean("model").min(), r.mean("model").max()
    lines += [
        "All p are fine in the sparse settings: best and worst differ by "
        f"{np.ptp(mean[4]):.2f} points (92%), {np.ptp(mean[5]):.2f} points (98%).",
        f"Model errors stay fairly high: from {low:.2f} to {high:.2f} (0 for the true "
        "direction, 1.41 for one that is orthogonal to it).",
    ]
    return lines


def draw(results: Results, folder: Path) -> list[str]:
    """Draw test and model errors against the share of noise."""
    found = [r for r in (Errors(results, n) for n in SIZES) if r.repetitions]
    if not found:
        return []
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.6 * len(found), 6.4), layout="constrained")
    axes = figure.subplots(2, len(found), sharex=True, squeeze=False)
    for column, r in enumerate(found):
        for row, which in enumerate(("test", "model")):
            ax = axes[row, column]
            for j, name in enumerate(NORMS):
                ax.errorbar(
                    100 * np.array(SPARSITIES),
                    r.mean(which)[:, j],
                    np.nan_to_num(r.spread(which)[:, j]),
                    color=OKABE_ITO[j],
                    marker="osD^v"[j],
                    ms=5,
                    lw=1.5,
                    label=name,
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
    return [save(figure, folder / "figure1.png")]
