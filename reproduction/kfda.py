"""Kim, Magnani, Boyd: Optimal Kernel Selection in Kernel Fisher Discriminant."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score, roc_curve

from mklearn.estimators import MKLDiscriminant
from mklearn.kernels import RBF
from mklearn.plotting import OKABE_ITO
from mklearn.report import whole_file
from reproduction.cells import (
    Band,
    Cell,
    Explanation,
    Protocol,
    Results,
    Table,
    Values,
    load_set,
    on_splits,
    rng,
    standardised,
    stratified,
    unit_range,
)
from reproduction.claims import Claim, Mean, not_run, of_sets
from reproduction.page import Printed, read_rows
from reproduction.single import Single, best, fisher

SIGMAS = np.geomspace(0.1, 100.0, 10)
REG = 1e-8
RATES = np.linspace(0.0, 1.0, 51)
FILES = {
    "sonar": "sonar",
    "ionosphere": "ionosphere",
    "heart": "heart_cleveland",
    "pima": "pima",
}
METHODS = ("K_star", "K_cv")

# What is tried beside the reading of the table: data, and what is scaled.
CANDIDATES = (
    *(f"{data}, samples" for data in FILES),
    "pima, columns",
    "pima, none",
)
TRIED = 50

# The regularisation that the paper calls uncritical, by the names of the methods.
REGS = {f"K_star, {reg:.0e}": reg for reg in (1e-10, 1e-8, 1e-6, 1e-4, 1e-2)}
OVER_REG = 3  # splits
OVER_DATA = ("sonar", "ionosphere")

CHOICES = {
    "normalisation": "columns of heart and pima from 0 to 1 on the training part; "
    "sonar and ionosphere, which lie from -1 to 1, as they are. Of the scalings tried "
    "(none, mean 0 and variance 1, from 0 to 1, from -1 to 1, samples of unit length) "
    "it fits most printed numbers",
    "split": "70 % of every class, rounded",
    "heart": "Cleveland, 297 samples without missing values: the printed size",
    "kernels": "exp(-|x - z|^2 / sigma^2) as printed, sigma from 0.1 to 100 evenly on "
    "a logarithmic scale. All have the same trace, and are not scaled any more",
    "regularisation": "1e-8 as printed, on these kernels, for K_cv as well",
    "cross-validation": "5 folds",
    "threshold": "the midpoint of the projected class means",
    "solver": "the library's interior-point Newton method to a gap of 1e-6 in place of "
    "SeDuMi on the SDP (9); tests hold both to the same optimum",
}


def work(cell: Cell, seed: int) -> Values:
    """Fit one kernel choice on one split; accuracy, ROC area and curve."""
    random = rng(seed, cell.repetition)
    data, _, candidate = cell.data.partition(", ")
    X, y = load_set(FILES[data])
    train, test = stratified(y, 0.7, random)
    X_train, X_test = scaled(X, train, test, candidate)
    labels = np.unique(y, return_inverse=True)[1]
    learn = chosen
    if cell.method != "K_cv":
        learn = partial(learned, reg=REGS.get(cell.method, REG))
    began = time.process_time()
    scores, values = learn(X_train, labels[train], X_test)
    seconds = time.process_time() - began
    positive = labels[test] == 1
    false, true, _ = roc_curve(positive, scores)
    return values | {
        "seconds": seconds,
        "accuracy": 100 * float(np.mean((scores > 0) == positive)),
        "area": float(roc_auc_score(positive, scores)),
        "curve": np.interp(RATES, false, true).tolist(),
    }


def scaled(X: Any, train: Any, test: Any, candidate: str) -> tuple[Any, Any]:
    """Return both parts, scaled as the table has it or as a candidate does."""
    if candidate == "samples":
        X = (X - X.mean(axis=1)[:, None]) / X.std(axis=1)[:, None]
    elif candidate == "columns":
        return standardised(X, train, test)
    elif not candidate and np.abs(X).max() > 1:
        return unit_range(X, train, test)
    return X[train], X[test]


class Fisher(MKLDiscriminant):
    """The discriminant on kernels as they are; centring does not change (2)."""

    normalize = "center"


def learned(X: Any, labels: Any, new: Any, reg: float) -> tuple[Any, Values]:
    """Return the decision function of the learned combination, gap and weights."""
    kernels = [RBF(1.0 / sigma**2) for sigma in SIGMAS]
    model = Fisher(kernels, criterion="kfda", reg=reg).fit(X, labels)
    return np.ravel(model.decision_function(new)), {
        "gap": float(model.duality_gap_),
        "weights": model.kernel_weights_.tolist(),
    }


def chosen(X: Any, labels: Any, new: Any) -> tuple[Any, Values]:
    """Return the decision function of the kernel that cross-validation chose."""
    one = Single(1.0 / SIGMAS**2, np.array([REG]), fisher)
    kernel, _ = best(one.scores(X, labels))
    return np.ravel(one.decision(X, labels, new, kernel, REG)), {"chosen": kernel}


def printed(folder: Path) -> Printed:
    """Return the accuracies of Table 1 and the areas of section 4."""
    keys = {"mean_test_accuracy_percent": "accuracy", "roc_auc": "area"}
    return {
        ("1", row["dataset"], row["kernel"], keys[row["metric"]]): (
            float(row["value"]),
            np.nan,
        )
        for row in read_rows(folder, "kfda_accuracy.csv")
    }


def conclusions(mean: Mean) -> Iterator[Claim]:
    """Yield what the paper concludes, from the means of the table."""

    def apart(data: str, key: str) -> float:
        return mean(data, "K_star", key) - mean(data, "K_cv", key)

    yield of_sets(
        "The optimal combination, which needs no cross-validation, is as good as the "
        "kernel that cross-validation chooses, or better (Table 1).",
        {data: apart(data, "accuracy") for data in FILES},
        lambda value: value >= -1,
        what="K_star minus K_cv: ",
        unit=" points; up to one less counts as equal",
    )
    yield of_sets(
        "Its ROC curve is above that of cross-validation, clearly on sonar; the other "
        "sets behave alike (4).",
        {data: apart(data, "area") for data in FILES},
        lambda value: value > 0,
        form="{:+.3f}",
        what="Area, K_star minus K_cv: ",
    )
    yield of_sets(
        "Ionosphere is solved in a few seconds (4).",
        {"ionosphere": mean("ionosphere", f"K_star, {REG:.0e}", "seconds")},
        lambda value: value < 10,
        form="{:.2f}",
        unit=" seconds of processor time, on a newer computer and by another solver",
    )
    spreads = {}
    for data in OVER_DATA:
        found = [mean(data, method, "accuracy") for method in REGS]
        spreads[data] = max(found) - min(found)
    yield of_sets(
        "Results hardly depend on the regularisation unless it is very small or very "
        "large (4).",
        spreads,
        lambda value: value <= 2,
        form="{:.2f}",
        what="From the worst to the best accuracy from 1e-10 to 1e-2: ",
        unit=" points; up to two count as hardly",
    )
    yield not_run(
        "General SDP solvers manage a few thousand samples and a few hundred kernels "
        "(6), and a Newton step costs O(p^3 + m^2 n + p m^2 + m^3) (3.3).",
        "the SDP of the paper is not solved as one here.",
    )


def remarks(results: Results) -> list[str]:
    """Compare both choices on the same splits, and show what was chosen."""
    text = ["", "## K_star against K_cv on the same splits", ""]
    table = results.tables[0]
    for data in table.data:
        star, cv = (results.of(table, data, method) for method in METHODS)
        n = min(len(star), len(cv))
        if n < 2:
            continue
        for key, form in (("accuracy", "{:+.2f}"), ("area", "{:+.4f}")):
            d = np.array([star[i][key] - cv[i][key] for i in range(n)])
            mean, error = d.mean(), d.std(ddof=1) / np.sqrt(n)
            text.append(
                f"- {data}, {key}: {form.format(mean)} ± {form.format(error)[1:]} over "
                f"{n} splits."
            )
        weights = np.mean([v["weights"] for v in star], axis=0)
        counts = np.bincount([v["chosen"] for v in cv], minlength=len(SIGMAS))
        text.append(
            f"- {data}, mean weights {', '.join(f'{w:.3f}' for w in weights)}; "
            f"cross-validation chose {', '.join(map(str, counts))}."
        )
    return text


def figures(results: Results, out: Path) -> list[str]:
    """Draw the mean ROC curves of sonar, Figure 1 of the paper, or of what there is."""
    table = results.tables[0]
    done = [d for d in table.data if results.of(table, d, "K_star")]
    if not done:
        return []
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.4 * len(done), 3.4), layout="constrained")
    axes = np.ravel(figure.subplots(1, len(done), sharey=True, squeeze=False))
    for ax, data in zip(axes, done, strict=True):
        for color, method in zip(OKABE_ITO, METHODS, strict=False):
            cells = results.of(table, data, method)
            if cells:
                area = np.mean([v["area"] for v in cells])
                curve = np.mean([v["curve"] for v in cells], axis=0)
                label = f"{method}, area {area:.3f}"
                ax.plot(RATES, curve, color=color, label=label)
        ax.set_title(data)
        ax.set_xlabel("false positive rate")
        ax.legend(frameon=False, fontsize="small", loc="lower right")
        ax.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("true positive rate")
    name = f"kfda_roc{'_quick' * results.settings.quick}.png"
    with whole_file(out / name) as temporary:
        figure.savefig(temporary, format="png", dpi=120)
    return [name]


EXPLANATIONS = (
    Explanation(
        "In part, we think, because the paper's weights were not optimal: a general "
        "SDP solver stops early at a regularisation of 1e-8. The weights that Table 2 "
        "of Ye, Ji and Chen prints for this method on sonar spread over all ten "
        "kernels, where the certified optimum has two. On the same 100 splits those "
        "weights give an accuracy of 85.3 and an area of 0.935, equal weights 85.1 and "
        "0.937, the optimum 86.2 and 0.950. Every sample with mean 0 and variance 1, "
        "Table 1b, is a candidate: both accuracies and the area of K_cv are then "
        "within their errors of the printed ones, and the area of K_star comes nearer; "
        "but it fails on heart and pima. Tried without "
        "effect on the area (0.94 to 0.96): other scalings of the data, splits that "
        "are not stratified, one curve of the pooled scores of all splits.",
        data=("sonar",),
        methods=("K_star",),
    ),
    Explanation(
        "Less exact weights may be the reason, as on sonar: equal weights have 94.5 on "
        "ionosphere (100 splits) and 75.1 on pima (25 splits). Samples with mean 0 and "
        "variance 1, Table 1b, leave ionosphere as it is and are far off on pima; no "
        "other scaling of pima fits both of its rows.",
        data=("ionosphere", "pima"),
        methods=("K_star",),
    ),
    Explanation(
        "We do not know. Tried on 20 to 40 splits: other scalings of the data "
        "(standardised columns: 77.9 on heart and 85.4 on sonar; from 0 to 1: 86.6 on "
        "sonar; samples of unit length: 94.2 on ionosphere), kernels of unit trace "
        "after centring (77.5 on heart), splits that are not stratified. The pooled "
        "scores of all splits of sonar have an area of 0.91, but this is not what the "
        "paper says it did. Samples with mean 0 and variance 1, Table 1b, are a "
        "candidate for sonar and ionosphere, where they fit these rows, and fail on "
        "heart and pima. Folds are not printed, and "
        "which kernel is chosen depends on them.",
        methods=("K_cv",),
    ),
)


PROTOCOL = Protocol(
    name="kfda",
    title="Kernel selection in Fisher discriminants (Kim, Magnani and Boyd, ICML 2006)",
    tables=(
        Table(
            "1",
            "test accuracy in percent, and area under the ROC curve",
            tuple(FILES),
            METHODS,
            100,
            keys=("accuracy", "area"),
        ),
        Table(
            "1b",
            "other scalings, tried beside the one of Table 1: every sample with mean 0 "
            "and variance 1, or every column, or none; "
            f"{TRIED} of the splits",
            CANDIDATES,
            METHODS,
            TRIED,
            keys=("accuracy", "area"),
        ),
        Table(
            "1c",
            f"the optimum over the regularisation; {OVER_REG} of the splits; seconds "
            "are of processor time",
            OVER_DATA,
            tuple(REGS),
            OVER_REG,
            keys=("accuracy", "area", "seconds"),
        ),
    ),
    work=work,
    choices=CHOICES,
    files=FILES | {name: FILES[name.partition(", ")[0]] for name in CANDIDATES},
    printed=printed,
    explanations=EXPLANATIONS,
    quick=(
        Table(
            "1",
            "test accuracy in percent, and area under the ROC curve",
            ("sonar", "heart"),
            METHODS,
            3,
            keys=("accuracy", "area"),
        ),
    ),
    bands=(
        *on_splits("sonar", ("K_star",), "accuracy", 83.87, 186),
        *on_splits("heart", ("K_star",), "accuracy", 80.90, 267),
        # kernels that are equally good on the folds are not equally good here
        *on_splits("sonar", ("K_cv",), "accuracy", 83.87, 186, change=3),
        *on_splits("heart", ("K_cv",), "accuracy", 74.91, 267, change=3),
        Band(
            "sonar",
            "K_star",
            "area",
            0.932,
            0.942,
            "0.937 on these splits, where one pair of neighbours in the order counts "
            "0.001",
            seed=0,
        ),
        Band(
            "sonar",
            "K_star",
            "gap",
            0.0,
            1e-6,
            "the optimum is certified to this relative gap",
        ),
    ),
    conclusions=conclusions,
    remarks=remarks,
    figures=figures,
)
