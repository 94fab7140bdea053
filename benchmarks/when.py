"""When does learning weights pay? Simulations with noise views and sample sizes.

    python benchmarks/when.py --page docs/results/when.md   # ten minutes of CPU
    python benchmarks/when.py --quick                               # seconds
    python benchmarks/when.py --no-run --page FILE                  # what is finished

Three views of five columns are informative about two classes, with signals of 1, 1/2
and 1/4; to these, views of five columns of noise are added. A second simulation has
twelve views, some of noise, and the others share the same signal equally. Every view
has one RBF kernel. Learned weights (p = 1, p = 2) and the unweighted sum choose C on
the same folds of the same samples, and are compared on the same 2000 test samples.
Nothing else is tuned. Each finished cell is written immediately to ``--out``; running
the same command again continues where it was stopped.
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
FEW_SAMPLES = (25, 100, 400)
ALIKE = 12  # views of the second simulation
ALIKE_NOISE = (0, 6, 11)
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


def alike_name(n: int, noise: int) -> str:
    """Return the name of a setting of the second simulation."""
    return f"n = {n}, {noise} of {ALIKE} views noise"


SETTINGS = {
    name_of(n, noise): (n, noise, (*SIGNALS, *(0.0,) * noise))
    for n in SAMPLES
    for noise in NOISE
}
for _n in FEW_SAMPLES:
    for _noise in ALIKE_NOISE:
        _left = ALIKE - _noise
        _signal = float(np.linalg.norm(SIGNALS) / np.sqrt(_left))
        _signals = (*(_signal,) * _left, *(0.0,) * _noise)
        SETTINGS[alike_name(_n, _noise)] = (_n, _noise, _signals)


def make(
    n: int, signals: tuple[float, ...], random: np.random.Generator
) -> tuple[MultiView, object]:
    """Return views and classes, the sign of the signals of all views plus noise."""
    views = {}
    total = random.standard_normal(n)
    for i, signal in enumerate(signals):
        X = random.standard_normal((n, COLUMNS))
        views[f"view{i}"] = X
        total += 3 * signal * X[:, 0]
    return MultiView(views), (total > 0).astype(int)


def work(cell: Cell, seed: int) -> Values:
    """Return the accuracy of one norm on one data set, in percent."""
    n, noise, signals = SETTINGS[cell.data]
    entropy = int(rng(seed, cell.repetition).integers(2**31))
    random = np.random.default_rng([entropy, n, noise])
    X, y = make(n, signals, random)
    X_test, y_test = make(TESTING, signals, random)
    model = MKLClassifierCV(
        per_view(RBF("scale")), Cs=COSTS, norms=(NORMS[cell.method],), cv=3
    )
    model.fit(X, y)
    return {"accuracy": 100 * float(model.score(X_test, y_test))}


PLAN = Table(
    "figure1", "accuracy in percent", tuple(SETTINGS), tuple(NORMS), REPETITIONS
)
_QUICK = (name_of(100, 0), name_of(100, 27))
PROTOCOL = Protocol(
    name="when",
    title="When does learning weights pay?",
    tables=(PLAN,),
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
    rows = []
    for noise in NOISE:
        names = {n: name_of(n, noise) for n in SAMPLES}
        rows.append({"views of noise": f"{noise} of {noise + len(SIGNALS)}"})
        rows[-1] |= marked(found, method, names)
    return rows


def alike_grid(found: Results) -> list[dict]:
    """Return the same of the second simulation, one row for each norm as well."""
    rows = []
    for noise in ALIKE_NOISE:
        for method in LEARNED:
            names = {n: alike_name(n, noise) for n in FEW_SAMPLES}
            rows.append({"views of noise": f"{noise} of {ALIKE}", "weights": method})
            rows[-1] |= marked(found, method, names)
    return rows


def marked(found: Results, method: str, names: dict[int, str]) -> dict[str, str]:
    """Return the mean differences of some settings, by n, with their marks."""
    apart = differences(found, method)
    return {
        f"n = {n}": f"{apart[name].mean():+.1f}"
        + ("", " **+**", " **-**")[verdict(apart[name])]
        for n, name in names.items()
        if name in apart
    }


def said(found: Results) -> list[str]:
    """Return the conclusions from the grids, in words."""
    text = []
    kinds = {
        "Views that differ in strength": {
            name_of(n, q) for n in SAMPLES for q in NOISE
        },
        "Views of equal strength": {
            alike_name(n, q) for n in FEW_SAMPLES for q in ALIKE_NOISE
        },
    }
    for kind, names in kinds.items():
        for method in LEARNED:
            apart = {
                data: each
                for data, each in differences(found, method).items()
                if data in names
            }
            marks = [verdict(each) for each in apart.values()]
            gain = {data: each.mean() for data, each in apart.items()}
            best, worst = (
                max(gain, key=gain.__getitem__),
                min(gain, key=gain.__getitem__),
            )
            text.append(
                f"- {kind}, {method}: better than the sum in {marks.count(1)} of "
                f"{len(marks)} settings, worse in {marks.count(-1)}; no clear "
                f"difference in the others. The largest difference is "
                f"{gain[best]:+.1f} points ({best}), the smallest "
                f"{gain[worst]:+.1f} ({worst})."
            )
    return text


def draw(found: Results, path: Path) -> None:
    """Draw the difference over noise views and samples, one panel for each norm."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 3.6), layout="constrained")
    axes = figure.subplots(1, 3, sharey=True)
    panels = [(method, name_of, NOISE) for method in LEARNED]
    panels.append((LEARNED[0], alike_name, ALIKE_NOISE))
    for ax, (method, named, counts) in zip(axes, panels, strict=True):
        apart = differences(found, method)
        for j, noise in enumerate(counts):
            at = [n for n in SAMPLES if named(n, noise) in apart]
            each = [apart[named(n, noise)] for n in at]
            mean = [a.mean() for a in each]
            error = [a.std(ddof=1) / np.sqrt(len(a)) if len(a) > 1 else 0 for a in each]
            views = noise + len(SIGNALS) if named is name_of else ALIKE
            label = f"{noise} of {views} views noise"
            style = {"color": OKABE_ITO[j], "marker": "osD^v"[j], "ms": 4}
            ax.errorbar(at, mean, error, label=label, lw=1.2, **style)
        ax.axhline(0.0, color="0.4", ls="--", lw=1)
        ax.set_xscale("log")
        ax.set_xticks(SAMPLES, [str(n) for n in SAMPLES])
        ax.set_xticks([], minor=True)
        kind = "unlike" if named is name_of else "alike"
        ax.set_title(f"{method}, views {kind}")
        ax.legend(frameon=False, fontsize="small")
        ax.set_xlabel("training samples")
        ax.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("accuracy minus that of the sum (points)")
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
        f"when.py --repetitions {max(sizes)} --page docs/results/{path.name}",
        grid(found, "p = 1"),
        " The tables show the accuracy of learned weights minus that of the unweighted "
        f"sum in points, on the same samples, averaged over {min(sizes)} data sets. "
        "**+** and **-** mark differences of more than two standard errors, which are "
        "only rough estimates for so few data sets. The first table is for p = 1, that "
        "is, sparse weights.",
    )
    text += "\n".join(
        [
            "",
            *said(found),
            "",
            "[The comparison on many data sets](field.md) shows what to expect of real "
            "data.",
            "",
            f"![Gain over the sum, by samples and views of noise]({path.stem}.png)",
            "",
            "In the second simulation, all views that are not noise share the signal "
            "equally:",
            "",
            table(alike_grid(found)),
            "The first simulation with p = 2, for which weights are not sparse:",
            "",
            table(grid(found, "p = 2")),
            "Accuracy of the sum in percent in the first simulation:",
            "",
            table(level),
            "What was simulated: "
            + "; ".join(f"{k}: {v}" for k, v in CHOICES.items())
            + ". The class is the sign of a sum: three times the signal of each view "
            "times its first column, plus noise of variance 1. The second simulation "
            f"has {ALIKE} views; the signals of the informative ones are equal and "
            "have the same sum of squares as in the first. "
            f"{len(found.cells)} cells at commit {', '.join(commits)}, computed in "
            f"{spent / 60:.0f} minutes.",
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
