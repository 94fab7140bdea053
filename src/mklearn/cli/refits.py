"""What each view adds: models of some of the views, fitted on the folds of a run."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from sklearn.base import clone

from mklearn.cli.estimate import duration
from mklearn.cli.inputs import TIMES, Data
from mklearn.cli.models import Settings, fitted_on_views, make_plain
from mklearn.data.spelling import plural
from mklearn.fitted import kernels_by_view
from mklearn.interpretation import ScoreByView, ViewScorer
from mklearn.kernels import KernelBank
from mklearn.model_selection import Split
from mklearn.report import words

AUTO, KINDS = "auto", ("unique", "shapley")  # of --by-view
EXACT = 6  # views up to which Shapley values are over all sets of views
ORDERS = 20  # of the views, that they are sampled from where there are more
LEAST = 60.0  # seconds that models of some of the views may take in any case


@dataclass(frozen=True)
class Refitted:
    """Scores without each view and Shapley values, as far as there was time for them.

    Attributes
    ----------
    unique, shapley : ScoreByView or None
    n_fits : int
        Models that were fitted.
    left_out : mapping of str to str
        Why a kind was not computed.
    """

    unique: ScoreByView | None = None
    shapley: ScoreByView | None = None
    n_fits: int = 0
    left_out: Mapping[str, str] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return what was computed and how, ready for JSON; empty if nobody asked."""
        kinds = {k: v for k in KINDS if (v := getattr(self, k)) is not None}
        if not kinds and not self.left_out:
            return {}
        sampled = self.shapley is not None and self.shapley.sampling_errors is not None
        return {
            "kinds": list(kinds),
            "n_fits": self.n_fits,
            "left_out": dict(self.left_out),
            "score": next((one.total for one in kinds.values()), None),
            "score_without_views": None if self.shapley is None else self.shapley.rest,
            "words": words.refits(kinds, self.left_out, ORDERS if sampled else 0),
        }


class Refits:
    """Remembers what was chosen on each fold, for models of some of the views.

    Called as ``watch`` of :func:`mklearn.model_selection.compare`. The models have the
    settings that the search of a fold has chosen from its training samples, so that
    each of them is a single fit.
    """

    def __init__(self, data: Data, name: str, options: Settings, scorer: Any) -> None:
        self._data, self._name = data, name
        self._options, self._scorer = options, scorer
        one = data.layout is not None and len(data.layout.views) < 2
        wanted = options.by_view in (AUTO, *KINDS)
        self._wanted = wanted and not one and data.task != TIMES
        self._folds: list[tuple[Any, Any, Split]] = []
        self._views: list[tuple[str, ...]] = []

    def __call__(self, name: str, model: Any, split: Split) -> None:
        """Keep what was chosen on a fold, if the model is the one that is watched."""
        if name != self._name or not self._wanted:
            return
        plain = make_plain(self._data, self._options, model)
        inner = fitted_on_views(model)
        inner = getattr(inner, "best_estimator_", inner)
        views = tuple(kernels_by_view(inner.kernel_names_, inner.kernels_))
        table = None
        if not isinstance(self._data.X, KernelBank):
            plain, table = plain.estimator, model.transform_table
        self._folds.append((plain, table, split))
        self._views.append(views)

    def result(self, spent: float, say: Callable[[str], Any]) -> Refitted:
        """Fit the models, unless they would take too long.

        Parameters
        ----------
        spent : float
            Seconds that the comparison took; models of some of the views may take as
            long, or ``LEAST``. Kinds that were asked for by name have no limit.
        say : callable
            Is told how many fits there are, and how long they may take.
        """
        if not self._folds or len(self._views[0]) < 2:
            return Refitted()
        if len(set(self._views)) > 1:
            why = "the folds do not have the same views"
            return Refitted(left_out=dict.fromkeys(KINDS, why))
        asked = self._options.by_view
        kinds = [kind for kind in KINDS if asked in (AUTO, kind)]
        left_out = {}
        start = ViewScorer.has_start(self._folds[0][0])
        if not start and "shapley" in kinds and asked == AUTO:
            kinds.remove("shapley")
            left_out["shapley"] = "there is no model without views beside covariates"
        counts = {kind: self._count(kind) for kind in kinds}
        seconds = self._seconds()
        if asked == AUTO:
            limit = max(LEAST, spent)
            for kind in reversed(KINDS):
                if kind in kinds and seconds * counts[kind] > limit:
                    kinds.remove(kind)
                    left_out[kind] = (
                        f"{plural(counts[kind], 'fit')} would take about "
                        f"{duration(seconds * counts[kind])}; to wait for them, use "
                        f"--by-view {kind}"
                    )
        if not kinds:
            return Refitted(left_out=left_out)
        n_fits = max(counts[kind] for kind in kinds)
        say(
            f"{plural(n_fits, 'fit')} on some of the views, about "
            f"{duration(seconds * n_fits)}."
        )
        first, *others = reversed(kinds)
        many = len(self._views[0]) > EXACT
        scorer = ViewScorer(
            self._folds[0][0],
            first,
            scoring=self._scorer,
            n_permutations=ORDERS if many and "shapley" in kinds else None,
            n_jobs=self._options.jobs,
            random_state=self._options.seed,
            also=others,
        )
        for plain, table, split in self._folds:
            known, new = self._samples(table, split)
            y = self._data.y
            scorer.add(plain, (known, y[split[0]]), (new, y[split[1]]))
        found = {kind: scorer.result(kind) for kind in kinds}
        if self._options.scoring is not None:  # scorers do not know their name
            found = {
                kind: replace(one, scoring=self._options.scoring)
                for kind, one in found.items()
            }
        return Refitted(**found, n_fits=n_fits, left_out=left_out)

    def _count(self, kind: str) -> int:
        """Return how many models of at least one view a kind needs, at most."""
        V, folds = len(self._views[0]), len(self._folds)
        if kind == "unique":
            return folds * (1 + V)
        return folds * (2**V - 1 if V <= EXACT else 1 + V + ORDERS * (V - 1))

    def _samples(self, table: Any, split: Split) -> tuple[Any, Any]:
        """Return the samples of a fold as an estimator takes them."""
        (train, test), X = split, self._data.X
        if isinstance(X, KernelBank):
            return X[np.ix_(train, train)], X[np.ix_(test, train)]
        return table(X.iloc[train]), table(X.iloc[test])

    def _seconds(self) -> float:
        """Return the time of one fit, on the first fold with all views."""
        plain, table, split = self._folds[0]
        known, _ = self._samples(table, split)
        began = time.perf_counter()
        clone(plain).fit(known, self._data.y[split[0]])
        return time.perf_counter() - began
