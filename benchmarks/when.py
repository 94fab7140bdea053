"""When does learning weights pay? Simulations with noise views and sample sizes.

    python benchmarks/when.py --page docs/results/when.md   # ten minutes of CPU
    python benchmarks/when.py --quick                               # seconds
    python benchmarks/when.py --no-run --page FILE                  # what is finished

Three views of five columns are informative about two classes, with signals of 1, 1/2
and 1/4; to these, views of five columns of noise are added. Every view has one RBF
kernel. Learned weights (p = 1, p = 2) and the unweighted sum choose C on the same folds
of the same samples, and are compared on the same 2000 test samples. Nothing else is
tuned. Each finished cell is written immediately to ``--out``; running the same command
again continues where it was stopped.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

from mklearn import MKLClassifierCV, MultiView
from mklearn.kernels import RBF, per_view
from mklearn.plotting import OKABE_ITO
from mklearn.report import whole_file

sys.path.insert(0, str(Path(__file__).parents[1]))
from pages import page, table

from reproduction.cells import (
    Band,
    Cell,
    Protocol,
    Results,
    Settings,
    Table,
    Values,
    results,
    rng,
    run,
)
from reproduction.page import outside

SAMPLES = (25, 50, 100, 200, 400)
NOISE = (0, 1, 3, 9, 27)
SIGNALS = (1.0, 0.5, 0.25)
COLUMNS = 5
TESTING = 2000
COSTS = (0.1, 1.0, 10.0)
NORMS = {"p = 1": 1.0, "p = 2": 2.0, "sum": np.inf}
LEARNED = ("p = 1", "p = 2")
REPETITIONS = 5

CHOICES = {
    "views": f"{len(SIGNALS)} with signals of {', '.join(map(str, SIGNALS))}, "
    f"{COLUMNS} columns each, besides those of noise",
    "kernels": "one RBF kernel for each view, with the mean squared distance as width",
    "costs": f"C from {', '.join(map(str, COSTS))} on 3 folds",
}


def name_of(n: int, noise: int) -> str:
    """Return the name of a setting."""
    return f"n = {n}, {noise} views of noise"


SETTINGS = {name_of(n, noise): (n, noise) for n in SAMPLES for noise in NOISE}


def make(n: int, noise: int, random: np.random.Generator) -> tuple[MultiView, object]:
    """Return views and classes, the sign of the signals of all views plus noise."""
    views = {}
    total = random.standard_normal(n)
    for i, signal in enumerate((*SIGNALS, *(0.0,) * noise)):
        X = random.standard_normal((n, COLUMNS))
        views[f"view{i}"] = X
        total += 3 * signal * X[:, 0]
    return MultiView(views), (total > 0).astype(int)


def work(cell: Cell, seed: int) -> Values:
    """Return the accuracy of one norm on one data set, in percent."""
    n, noise = SETTINGS[cell.data]
    entropy = int(rng(seed, cell.repetition).integers(2**31))
    random = np.random.default_rng([entropy, n, noise])
    X, y = make(n, noise, random)
    X_test, y_test = make(TESTING, noise, random)
    model = MKLClassifierCV(
        per_view(RBF("scale")), Cs=COSTS, norms=(NORMS[cell.method],), cv=3
    )
    model.fit(X, y)
    return {"accuracy": 100 * float(model.score(X_test, y_test))}


def plan(samples: tuple[int, ...] = SAMPLES, noise: tuple[int, ...] = NOISE) -> Table:
    """Return the settings of a run as a table."""
    data = tuple(name_of(n, q) for n in samples for q in noise)
    return Table("figure1", "accuracy in percent", data, tuple(NORMS), REPETITIONS)


_QUICK = (name_of(100, 0), name_of(100, 27))
PROTOCOL = Protocol(
    name="when",
    title="When does learning weights pay?",
    tables=(plan(),),
    work=work,
    choices=CHOICES,
    files={},
    printed=lambda folder: {},
    quick=(Table("figure1", "few", _QUICK, ("p = 1", "sum"), 1),),
    bands=(
        Band(
            _QUICK[1],
            "p = 1",
            "accuracy",
            70.0,
            95.0,
            "of 30 views 27 are noise, and sparse weights leave most of these out; the "
            "standard error of 2000 test samples is a point",
        ),
        Band(
            _QUICK[1],
            "sum",
            "accuracy",
            50.0,
            74.0,
            "the sum is drowned by 27 views of noise",
        ),
        Band(
            _QUICK[0],
            "sum",
            "accuracy",
            74.0,
            95.0,
            "without noise the sum does well",
        ),
    ),
)


# --- the page -------------------------------------------------------------------------


def differences(found: Results, method: str) -> dict[str, np.ndarray]:
    """Return accuracy minus that of the sum on the same data, for every setting."""
    (table_,) = found.tables
    return {
        data: np.array([a - b for a, b in pairs])
        for data in table_.data
        if (
            pairs := [
                (one["accuracy"], other["accuracy"])
                for one, other in zip(
                    found.of(table_, data, method),
                    found.of(table_, data, "sum"),
                    strict=False,
                )
            ]
        )
    }


def verdict(apart: np.ndarray) -> int:
    """Return 1 if learned weights are better by two standard errors, -1 if worse."""
    if len(apart) < 2:
        return 0
    error = apart.std(ddof=1) / np.sqrt(len(apart))
    return int(np.sign(apart.mean())) * bool(abs(apart.mean()) > 2 * error)


def grid(found: Results, method: str) -> list[dict]:
    """Return one row for each number of noise views, one column for each n."""
    apart = differences(found, method)
    rows = []
    for noise in NOISE:
        row: dict = {"views of noise": f"{noise} of {noise + len(SIGNALS)}"}
        for n in SAMPLES:
            each = apart.get(name_of(n, noise))
            if each is not None:
                mark = ("", " **+**", " **-**")[verdict(each)]
                row[f"n = {n}"] = f"{each.mean():+.1f}{mark}"
        rows.append(row)
    return rows


def said(found: Results) -> list[str]:
    """Return the conclusions from the grid, in words."""
    text = []
    for method in LEARNED:
        apart = differences(found, method)
        better = [SETTINGS[data] for data, each in apart.items() if verdict(each) > 0]
        worse = [SETTINGS[data] for data, each in apart.items() if verdict(each) < 0]
        gain = {data: each.mean() for data, each in apart.items()}
        best, worst = max(gain, key=gain.__getitem__), min(gain, key=gain.__getitem__)
        text.append(
            f"- {method}: better than the sum in {len(better)} of {len(apart)} "
            f"settings, worse in {len(worse)}, not told apart in the others. The most "
            f"it gains is {gain[best]:+.1f} points ({best}), the most it loses "
            f"{gain[worst]:+.1f} ({worst})."
        )
    return text


def draw(found: Results, path: Path) -> None:
    """Draw the difference over noise views and samples, one panel for each norm."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.4, 3.6), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    for ax, method in zip(axes, LEARNED, strict=True):
        apart = differences(found, method)
        for j, noise in enumerate(NOISE):
            at = [n for n in SAMPLES if name_of(n, noise) in apart]
            each = [apart[name_of(n, noise)] for n in at]
            mean = [a.mean() for a in each]
            error = [a.std(ddof=1) / np.sqrt(len(a)) if len(a) > 1 else 0 for a in each]
            label = f"{noise} views of noise"
            style = {"color": OKABE_ITO[j], "marker": "osD^v"[j], "ms": 4}
            ax.errorbar(at, mean, error, label=label, lw=1.2, **style)
        ax.axhline(0.0, color="0.4", ls="--", lw=1)
        ax.set_xscale("log")
        ax.set_xticks(SAMPLES, [str(n) for n in SAMPLES])
        ax.set_xticks([], minor=True)
        ax.set_title(method)
        ax.set_xlabel("training samples")
        ax.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("accuracy minus that of the sum (points)")
    axes[0].legend(frameon=False, fontsize="small")
    with whole_file(path) as temporary:
        figure.savefig(temporary, format="png", dpi=120)


def write(found: Results, path: Path) -> None:
    """Write the page and its figure."""
    draw(found, path.with_suffix(".png"))
    (table_,) = found.tables
    sizes = [len(each) for each in differences(found, LEARNED[0]).values()]
    spent = sum(values["spent"] for values in found.cells.values())
    commits = sorted({values["commit"] for values in found.cells.values()})
    level = [
        {"views of noise": noise}
        | {
            f"n = {n}": f"{np.mean([c['accuracy'] for c in cells]):.1f}"
            for n in SAMPLES
            if (cells := found.of(table_, name_of(n, noise), "sum"))
        }
        for noise in NOISE
    ]
    text = page(
        "When does learning weights pay?",
        f"when.py --page docs/results/{path.name}",
        grid(found, "p = 1"),
        " Accuracy of learned weights minus that of the unweighted sum in points, on "
        f"the same samples, means over {min(sizes)} data sets; **+** and **-** mark "
        "differences of more than two standard errors, which so few data sets give "
        "only roughly. First p = 1, sparse weights.",
    )
    text += "\n".join(
        [
            "",
            *said(found),
            "",
            "Learning weights pays where many views are noise and there are enough "
            "samples to tell which; the sum is the better choice where all views carry "
            "information, or where samples are too few to learn what to leave out. "
            "[Data sets at hand](field.md) say the same with fewer extremes.",
            "",
            "p = 2, weights that are not sparse:",
            "",
            table(grid(found, "p = 2")),
            "Accuracy of the sum in percent:",
            "",
            table(level),
            f"![{path.stem}]({path.stem}.png)",
            "",
            "What was simulated: "
            + "; ".join(f"{k}: {v}" for k, v in CHOICES.items())
            + ". The class is the sign of three times the first column of each view "
            "with its signal, and of noise of variance 1. "
            f"{len(found.cells)} cells at commit {', '.join(commits)}, "
            f"{spent / 60:.0f} minutes beside other work; nothing here is a time.",
            "",
        ]
    )
    with whole_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def main(argv: list[str] | None = None) -> None:
    """Run the missing settings, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="two settings, with bands")
    parser.add_argument("--no-run", action="store_true", help="from what is finished")
    parser.add_argument("--out", type=Path, default=Path("when-output"))
    parser.add_argument("--page", type=Path, help="Markdown file to write")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--repetitions", type=int, help="data sets for each setting")
    args = parser.parse_args(argv)
    settings = Settings(quick=args.quick, repetitions=args.repetitions)

    def tick(done: int, total: int, name: str) -> None:
        print(f"{done}/{total} {name}", file=sys.stderr, flush=True)

    if args.no_run:
        found = results(PROTOCOL, args.out, settings)
    else:
        found = run(PROTOCOL, args.out, settings, jobs=args.jobs, tick=tick)
    if args.page and not args.quick:
        write(found, args.page)
    broken = outside(found) if args.quick else []
    for data in found.tables[0].data if args.quick else ():
        for method in found.tables[0].methods:
            (cell,) = found.of(found.tables[0], data, method)
            print(f"{data}, {method}: {cell['accuracy']:.1f} %")
    if broken:
        raise SystemExit("a number left its band: " + "; ".join(broken))


if __name__ == "__main__":
    main()
