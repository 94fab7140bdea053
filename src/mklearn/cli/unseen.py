"""Predictions of one model for the test samples of each fold."""

from __future__ import annotations

from typing import Any

import numpy as np

from mklearn.cli.inputs import CLASSES, TIMES, Data
from mklearn.cli.models import fitted_on_views
from mklearn.estimators._targets import decided
from mklearn.fitted import kernels_by_view
from mklearn.interpretation import decision_parts
from mklearn.kernels import KernelBank
from mklearn.model_selection import Split
from mklearn.report import Predictions
from mklearn.table import TableModel


class Unseen:
    """Collects decisions about the test samples of each fold, and contributions.

    Called as ``watch`` of :func:`mklearn.model_selection.compare`.
    """

    def __init__(self, data: Data, name: str) -> None:
        self._data, self._name = data, name
        self._classes = np.unique(data.y) if data.task == CLASSES else None
        count = 2 if self._classes is None else len(self._classes)
        shape = (len(data.y), 1 if count == 2 else count)
        self._scores = np.full(shape, np.nan)
        self._folds = np.full(len(data.y), -1)
        self._count = 0
        self._views: tuple[str, ...] = ()
        self._parts: Any = None
        self._chances: Any = None

    def __call__(self, name: str, model: Any, split: Split) -> None:
        """Add the decisions of a model of a fold, if it is the one to watch."""
        if name != self._name:
            return
        (train, test), X = split, self._data.X
        given = isinstance(X, KernelBank)
        part = X[np.ix_(test, train)] if given else X.iloc[test]
        ask = model.predict if self._classes is None else model.decision_function
        scores = np.asarray(ask(part))
        self._scores[test] = scores[:, None] if scores.ndim == 1 else scores
        self._folds[test] = self._count
        self._count += 1
        if self._classes is not None and hasattr(model, "predict_proba"):
            if self._chances is None:
                self._chances = np.full((len(self._folds), len(self._classes)), np.nan)
            self._chances[test] = model.predict_proba(part)
        self._add_parts(model, part, test)

    def _add_parts(self, model: Any, part: Any, test: Any) -> None:
        """Add the contributions of views for the test samples of a fold."""
        if isinstance(model, TableModel):
            part = model.transform_table(part)
        inner = fitted_on_views(model)
        inner = getattr(inner, "best_estimator_", inner)
        if not hasattr(inner, "intercept_") or not hasattr(inner, "predictor_"):
            return
        found = decision_parts(inner, part).parts
        found = found[:, None] if found.ndim == 2 else found
        groups = kernels_by_view(inner.kernel_names_, inner.kernels_)
        if self._parts is None:
            shape = (len(self._folds), found.shape[1], len(groups))
            self._views, self._parts = tuple(groups), np.full(shape, np.nan)
        if tuple(groups) == self._views:  # folds may differ in their columns
            for v, members in enumerate(groups.values()):
                self._parts[test, :, v] = found[:, :, members].sum(axis=2)

    def predictions(self) -> Predictions:
        """Return the last prediction of each sample."""
        scores, y = self._scores, self._data.y
        more: dict[str, Any] = {
            "folds": self._folds,
            "views": self._views,
            "parts": self._parts,
            "ids": getattr(self._data, "ids", None),
        }
        if self._data.task == TIMES:
            return Predictions(y, scores[:, 0], **more)
        if self._classes is None:
            return Predictions(np.asarray(y, dtype=float), scores[:, 0], **more)
        more |= {"decisions": scores, "classes": self._classes}
        more["probabilities"] = self._chances
        found = self._classes[decided(scores)]
        if scores.shape[1] == 1:
            return Predictions(y, found, scores[:, 0], **more)
        return Predictions(y, found, **more)
