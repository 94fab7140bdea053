"""Quality of probabilities: the softmax loss, one against the rest, and others.

    python benchmarks/probabilities.py [--quick] [--names NAME ...] [--rows FILE]
        [--page FILE]

The following are compared on the same stratified folds: ``MKLClassifier`` with the
joint softmax loss of all classes and with the logistic loss of each class against the
rest, both with default kernels, ``LogisticRegression`` on standardised columns, and
``SVC`` with sigmoid calibration on its own folds (``CalibratedClassifierCV``). ``C`` is
one of 0.1, 1, 10, 100 for all of them, by log loss on three inner folds:
``MKLClassifierCV`` at norm 2 for ours, ``GridSearchCV`` for the others. ``log_loss`` is
the mean over folds and ``se`` its standard error; ``ece`` is the expected calibration
error of the most likely class, in ten bins of equal counts, from the predictions of all
folds; ``ratio`` is the time of all cores for the fits, including searches, relative to
``LogisticRegression``.

``--rows`` stores rows in a file as they are computed, and continues after an
interruption: data sets in the file are not run again.

Data sets in files are used if MKLEARN_DATA names their folder; those of scikit-learn
are always available. If there are more than 300 samples, 300 are drawn, stratified by
class.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path

import numpy as np
from pages import page
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, log_loss
from sklearn.model_selection import (
    GridSearchCV,
    StratifiedKFold,
    train_test_split,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from mklearn import MKLClassifierCV
from mklearn.datasets import available, load

NAMES = ("iris", "wine", "digits", "segment", "satimage", "waveform21", "tcga_breast",
         "msrcv1")  # fmt: skip
MOST = 300
COSTS = [0.1, 1.0, 10.0, 100.0]
SCORING = "neg_log_loss"
UNIT = "LogisticRegression"


def models(costs: list[float]) -> dict:
    """Return the models to compare."""
    ours = {
        name: MKLClassifierCV(loss=loss, Cs=costs, norms=[2], cv=3, scoring=SCORING)
        for name, loss in (("MKL, softmax", "multinomial"),
                           ("MKL, one against rest", "logistic"))
    }  # fmt: skip
    linear = make_pipeline(StandardScaler(), LogisticRegression(max_iter=5000))
    svm = make_pipeline(
        StandardScaler(), CalibratedClassifierCV(SVC(), ensemble=False, cv=3)
    )
    search = {"scoring": SCORING, "cv": 3}
    return ours | {
        UNIT: GridSearchCV(linear, {"logisticregression__C": costs}, **search),
        "SVC, calibrated": GridSearchCV(
            svm, {"calibratedclassifiercv__estimator__C": costs}, **search
        ),
    }


def calibration_error(p: np.ndarray, right: np.ndarray, bins: int = 10) -> float:
    """Return the mean distance of confidence and accuracy, in bins of equal counts."""
    order = np.argsort(p, kind="stable")
    parts = np.array_split(order, bins)
    return float(sum(abs(p[i].sum() - right[i].sum()) for i in parts) / len(p))


def columns(X: object) -> np.ndarray:
    """Return all views side by side."""
    if isinstance(X, np.ndarray):
        return X
    return np.hstack([np.asarray(X[name]) for name in X])


def measured(name: str, quick: bool) -> list[dict]:
    """Return a row for each model on one data set."""
    data = load(name)
    X, y = columns(data.data), np.asarray(data.target)
    most = 90 if quick else MOST
    if len(y) > most:
        X, _, y, _ = train_test_split(X, y, train_size=most, stratify=y, random_state=0)
    folds = StratifiedKFold(2 if quick else 5, shuffle=True, random_state=0)
    rows, unit = [], 1.0
    for label, model in models(COSTS[:2] if quick else COSTS).items():
        losses, p, right, cpu = [], [], [], 0.0
        for train, test in folds.split(X, y):
            start = time.process_time()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                fitted = clone(model).fit(X[train], y[train])
            cpu += time.process_time() - start
            found = fitted.predict_proba(X[test])
            losses.append(log_loss(y[test], found, labels=fitted.classes_))
            p.append(found.max(axis=1))
            right.append(fitted.classes_[found.argmax(axis=1)] == y[test])
        certain, hits = np.concatenate(p), np.concatenate(right)
        rows.append(
            {
                "data": name,
                "n": len(y),
                "classes": len(np.unique(y)),
                "model": label,
                "log_loss": float(np.mean(losses)),
                "se": float(np.std(losses, ddof=1) / np.sqrt(len(losses))),
                "ece": calibration_error(certain, hits.astype(float)),
                "accuracy": 100 * float(accuracy_score(np.ones_like(hits), hits)),
                "cpu_s": cpu,
            }
        )
    unit = next(row["cpu_s"] for row in rows if row["model"] == UNIT)
    for row in rows:
        row["ratio"] = row["cpu_s"] / unit
        shown = (f"{k} {v:.3g}" if isinstance(v, float) else f"{k} {v}"
                 for k, v in row.items())  # fmt: skip
        print(", ".join(shown), flush=True)
    return rows


def said(rows: list[dict]) -> str:
    """Return how often each model has the lowest log loss, in words."""
    best: dict[str, int] = {row["model"]: 0 for row in rows}
    for name in dict.fromkeys(row["data"] for row in rows):
        own = [row for row in rows if row["data"] == name]
        best[min(own, key=lambda row: row["log_loss"])["model"]] += 1
    counts = ", ".join(f"{model} {count}" for model, count in best.items())
    return (
        f" Number of data sets on which each model has the lowest log loss: {counts}."
    )


def main() -> None:
    """Run the comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--names", nargs="+", help="data sets, all by default")
    parser.add_argument("--rows", type=Path, help="file in which rows are stored")
    parser.add_argument("--page", type=Path, help="write a Markdown page here")
    args = parser.parse_args()
    rows: list[dict] = []
    if args.rows and args.rows.exists():
        rows = [json.loads(line) for line in args.rows.read_text().splitlines()]
    here = {one.name for one in available() if one.at_hand}
    names = [name for name in args.names or NAMES if name in here]
    for name in names[: 1 if args.quick else None]:
        if any(row["data"] == name for row in rows):
            continue
        found = measured(name, args.quick)
        rows += found
        if args.rows:
            with args.rows.open("a") as stream:
                stream.writelines(json.dumps(row) + "\n" for row in found)
    if args.page:
        text = page(
            "Probabilities", "probabilities.py", rows, said(rows),
            "that of `LogisticRegression`, in CPU time",
        )  # fmt: skip
        args.page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
