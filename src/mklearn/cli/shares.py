"""Importance of views in a run: shares, their intervals, and gains in score."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from mklearn.cli.inputs import TIMES, Data
from mklearn.cli.models import fitted_on_views
from mklearn.cli.refits import Refitted
from mklearn.fitted import kernels_by_view
from mklearn.interpretation import (
    KernelImportance,
    WeightStability,
    kernel_importance,
    weight_stability,
)
from mklearn.kernels import KernelBank
from mklearn.model_selection import Split
from mklearn.report import ViewShare, view_shares
from mklearn.table import TableModel

RESAMPLES = 20  # number of resamples for the intervals of shares
MOST = 2000  # number of samples up to which resamples are fitted


def mean_importance(tested: list[KernelImportance]) -> KernelImportance:
    """Return a test of the mean score over folds, with permutations within folds."""
    score = float(np.mean([found.score for found in tested]))
    permuted = np.mean([found.permuted for found in tested], axis=0)
    return replace(tested[0], score=score, permuted=permuted)


class Shares:
    """Tests the importance of views on the folds, and intervals of their shares.

    Called as ``watch`` of :func:`mklearn.model_selection.compare`.
    """

    def __init__(self, data: Data, name: str, scorer: Any, seed: int) -> None:
        self._data, self._name, self._scorer, self._seed = data, name, scorer, seed
        one = data.layout is not None and len(data.layout.views) < 2
        self._wanted = not one and data.task != TIMES
        self._tested: list[KernelImportance] = []
        self.stability: WeightStability | None = None  # of the kernels, by result()

    def __call__(self, name: str, model: Any, split: Split) -> None:
        """Permute views of the test samples of a fold."""
        (train, test), X = split, self._data.X
        inner = fitted_on_views(model)
        inner = getattr(inner, "best_estimator_", inner)
        if name != self._name or not self._wanted or not hasattr(inner, "intercept_"):
            return
        given = isinstance(X, KernelBank)
        part = X[np.ix_(test, train)] if given else model.transform_table(X.iloc[test])
        groups = self._data.groups
        if groups is not None:
            groups = groups[test]
            if len(np.unique(groups)) < 2:  # of one subject there is none to exchange
                return
        found = kernel_importance(
            inner, part, self._data.y[test], by="view", scoring=self._scorer,
            groups=groups, random_state=self._seed,
        )  # fmt: skip
        if not self._tested or found.names == self._tested[0].names:
            self._tested.append(found)  # folds may differ in their columns

    def result(
        self, model: Any, plain: Any, refitted: Refitted
    ) -> tuple[ViewShare, ...]:
        """Return the importance of each view in a model of all samples.

        Parameters
        ----------
        model : fitted model
        plain : model
            The same unfitted model, without a search.
        refitted : Refitted
            Scores of models of some of the views.
        """
        inner, data = fitted_on_views(model), self._data
        if not self._tested or not hasattr(inner, "kernel_contributions_"):
            return view_shares(inner, None, None, refitted.unique, refitted.shapley)
        importance, stability = mean_importance(self._tested), None
        views = kernels_by_view(inner.kernel_names_, inner.kernels_)
        if set(views) != set(importance.names):
            importance = None  # type: ignore[assignment]
        if len(data.y) <= MOST:
            X, alone = data.X, plain
            if isinstance(plain, TableModel):
                X, alone = model.transform_table(data.X), plain.estimator
            stability = weight_stability(
                alone, X, data.y, n_resamples=RESAMPLES, groups=data.groups,
                random_state=self._seed,
            )  # fmt: skip
            self.stability = stability
        return view_shares(
            inner, stability, importance, refitted.unique, refitted.shapley
        )
