"""What was tried beside the tables of Ye, Ji and Chen (2008): thresholds, lambdas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reproduction.cells import Table
from reproduction.single import Single, best, classes, discriminants

FloatArray = NDArray[np.float64]
# projections of training samples, which of these are in the second class, projections
# of others -> which of these are said to be
Rule = Callable[[FloatArray, NDArray[np.bool_], FloatArray], NDArray[np.bool_]]

SPLITS = 30
GRIDS = {"all lambdas": None, "lambda up to 1e-4": 3}  # how many, from the smallest on
ALONE = (7, 8, 9, 10)


def midpoint(known: FloatArray, second: Any, new: FloatArray) -> NDArray[np.bool_]:
    """Cut halfway between the means of the classes, as the tables do."""
    return new > 0.5 * (known[second].mean() + known[~second].mean())


def shares(known: FloatArray, second: Any, new: FloatArray) -> NDArray[np.bool_]:
    """Cut where normal densities of one variance, times the shares, are equal."""
    high, low = known[second], known[~second]
    scatter = np.sum((high - high.mean()) ** 2) + np.sum((low - low.mean()) ** 2)
    move = scatter / len(known) * np.log(len(low) / len(high))
    middle = 0.5 * (high.mean() + low.mean())
    return np.asarray(new > middle + move / (high.mean() - low.mean()))


def fewest(known: FloatArray, second: Any, new: FloatArray) -> NDArray[np.bool_]:
    """Cut where the fewest training samples are on the wrong side."""
    order = np.argsort(known)
    wrong = np.r_[0, np.cumsum(np.where(second[order], 1, -1))]
    values = np.r_[-np.inf, known[order], np.inf]
    at = int(np.argmin(wrong))
    return np.asarray(new > 0.5 * (values[at] + values[at + 1]))


def nearest(known: FloatArray, second: Any, new: FloatArray) -> NDArray[np.bool_]:
    """Take the class of the nearest projection."""
    return np.asarray(second[np.abs(new[:, None] - known).argmin(axis=1)])


RULES: dict[str, Rule] = {
    "midpoint of the means": midpoint,
    "shares of the classes": shares,
    "fewest training errors": fewest,
    "nearest neighbour": nearest,
}

THRESHOLD = Table(
    "2b",
    "other thresholds on the same projections, by Newton steps with lambda fixed; "
    "Tables 2 to 5 cut at the midpoint",
    ("sonar", "heart", "ionosphere", "cancer"),
    tuple(RULES),
    SPLITS,
)
SMALL = Table(
    "3b",
    "small lambdas: double cross-validation of RKDA on heart, over all ten kernels and "
    "for one kernel alone",
    ("heart", *(f"heart, kernel {m}" for m in ALONE)),
    tuple(GRIDS),
    SPLITS,
)


def cut(method: str, model: Any, train: Any, test: Any) -> float:
    """Return the accuracy in percent of one rule on the projections of a model."""
    (X, y), (X_test, y_test) = train, test
    last = model.classes_[1]
    known, new = (np.ravel(model.decision_function(part)) for part in (X, X_test))
    found = RULES[method](known, y == last, new)
    return 100 * float(np.mean(found == (y_test == last)))


def few(
    method: str, gammas: FloatArray, regs: FloatArray, train: Any, test: Any
) -> float:
    """Return the accuracy in percent of what is chosen from one grid of lambda."""
    (X, y), (X_test, y_test) = train, test
    names, labels = np.unique(y, return_inverse=True)
    one = Single(gammas, regs[: GRIDS[method]], discriminants)
    kernel, value = best(one.scores(X, labels))
    decision = one.decision(X, labels, X_test, kernel, one.values[value])
    return 100 * float(np.mean(names[classes(decision)] == y_test))
