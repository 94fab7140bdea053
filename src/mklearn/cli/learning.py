"""Learning curves: the score of a method by the number of training samples."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.base import clone

from mklearn.cli.inputs import Data
from mklearn.kernels import KernelBank
from mklearn.model_selection import Comparison
from mklearn.report.facts import LearningCurve

PARTS = (0.25, 0.5, 0.75, 1.0)


def learning_curve(
    model: Any, data: Data, comparison: Comparison, scorer: Any, seed: int
) -> LearningCurve | None:
    """Return scores on the folds of a comparison for subsets of the training samples.

    Subsets of a fold are nested and stratified by class. None if they are too small to
    learn from.

    Parameters
    ----------
    model : estimator
        A model without a search, so that its settings are the same for all subsets.
    data : Data
    comparison : Comparison
    scorer : callable or None
        As in scikit-learn; the model's own score by default.
    seed : int
    """
    score = scorer or (lambda fitted, X, y: fitted.score(X, y))
    sizes = np.zeros((len(PARTS), len(comparison.splits)))
    scores = np.full(sizes.shape, np.nan)
    for j, (train, test) in enumerate(comparison.splits):
        known = data.part(np.asarray(train))
        for i, part in enumerate(PARTS):
            size = round(part * len(train))
            rows = known.drawn(size, seed)[0] if part < 1.0 else np.arange(len(train))
            at = np.asarray(train)[rows]
            X, new = data.X, data.X
            if isinstance(X, KernelBank):
                X, new = X[np.ix_(at, at)], X[np.ix_(test, at)]
            else:
                X, new = X.iloc[at], X.iloc[test]
            sizes[i, j] = len(at)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about few samples, reported elsewhere
                try:
                    fitted = clone(model).fit(X, data.y[at])
                    scores[i, j] = score(fitted, new, data.y[test])
                except ValueError:
                    continue  # too few samples, of a class or in total
    known_sizes = np.isfinite(scores).all(axis=1)
    if known_sizes.sum() < 2:
        return None
    folds = [(len(train), len(test)) for train, test in comparison.splits]
    mean = sizes[known_sizes].mean(axis=1).round().astype(int)
    return LearningCurve(tuple(mean.tolist()), scores[known_sizes], tuple(folds))
