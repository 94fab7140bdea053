"""Comparison of models on the same folds, with standard errors of differences."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from sklearn import get_config
from sklearn.base import clone, is_classifier
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV, cross_validate
from sklearn.utils.metadata_routing import MetadataRouter, get_routing_for_object
from sklearn.utils.validation import has_fit_parameter

from mklearn.data.subjects import (
    check_groups,
    folds_from,
    warn_of_subjects,
    warned_of_subjects,
)
from mklearn.data.views import paired
from mklearn.estimators._folds import error_over_folds, stop_if_interrupted
from mklearn.fitted import used_kernels

Split = tuple[NDArray[np.intp], NDArray[np.intp]]


@dataclass(frozen=True)
class Comparison:
    """Scores of several models on the same folds.

    Attributes
    ----------
    names : tuple of str
        The models, in the order they were given.
    scores : array of shape (n_models, n_folds)
    fit_seconds : array of shape (n_models, n_folds)
    kernels_used : array of shape (n_models, n_folds)
        Kernels with more than a negligible weight (see ``report.used_kernels``); NaN
        for models that have no kernel weights.
    n_kernels : array of shape (n_models,)
        Number of kernels to choose from, 0 for models without kernel weights.
    splits : tuple of (train, test)
        The rows of each fold.
    """

    names: tuple[str, ...]
    scores: NDArray[np.float64]
    fit_seconds: NDArray[np.float64]
    kernels_used: NDArray[np.float64]
    n_kernels: NDArray[np.intp]
    splits: tuple[Split, ...] = field(repr=False)

    @property
    def mean(self) -> NDArray[np.float64]:
        """Mean score of each model."""
        return self.scores.mean(axis=1)

    @property
    def standard_error(self) -> NDArray[np.float64]:
        """Standard error of each mean, as if the folds were independent.

        Training sets of different folds overlap, so the true one is larger.
        """
        k = self.scores.shape[1]
        return self.scores.std(axis=1, ddof=1) / np.sqrt(k)

    @property
    def median_fit_seconds(self) -> NDArray[np.float64]:
        """Typical time of one fit: the median, so that a slow start does not count."""
        return np.median(self.fit_seconds, axis=1)

    def difference(self, a: str, b: str) -> tuple[float, float]:
        """Return the mean of ``score(a) - score(b)`` over folds and its standard error.

        The folds are the same, so their difficulty cancels. The error is corrected for
        the overlap of training sets (Nadeau and Bengio 2003, section 3).

        Parameters
        ----------
        a, b : str
            Names of models.
        """
        for name in (a, b):
            if name not in self.names:
                raise ValueError(
                    f"There is no model {name!r}; there are {', '.join(self.names)}."
                )
        d = self.scores[self.names.index(a)] - self.scores[self.names.index(b)]
        sizes = [(len(train), len(test)) for train, test in self.splits]
        return float(d.mean()), float(error_over_folds(d, sizes))

    def table(self, reference: str | None = None) -> list[dict[str, Any]]:
        """Return one dictionary for each model.

        Parameters
        ----------
        reference : str, optional
            The model whose fit counts as one unit of time; the first by default.
        """
        names = self.names
        unit = self.median_fit_seconds[names.index(reference) if reference else 0]
        return [
            {
                "model": name,
                "score": float(self.mean[i]),
                "standard_error": float(self.standard_error[i]),
                "fit_seconds": float(self.median_fit_seconds[i]),
                "relative_time": float(self.median_fit_seconds[i] / unit),
                "kernels_used": (
                    float(self.kernels_used[i].mean()) if self.n_kernels[i] else None
                ),
                "n_kernels": int(self.n_kernels[i]) or None,
            }
            for i, name in enumerate(names)
        ]


def compare(
    models: Mapping[str, Any],
    X: Any,
    y: Any,
    cv: Any = 5,
    *,
    groups: Any = None,
    scoring: Any = None,
    callback: Callable[[str, int], Any] | None = None,
    watch: Callable[[str, Any, Split], Any] | None = None,
) -> Comparison:
    """Fit and score several models on the same folds.

    Parameters
    ----------
    models : mapping of str to estimator
        The models, which are cloned and never modified.
    X, y
        Samples and targets, in the form that the models expect; a MultiView or a bank
        is sliced like an array.
    cv : int, splitter or iterable of (train, test)
        Cross-validation folds, the same for all models.
    groups : array of shape (n_samples,), optional
        Group labels, such as subjects, passed on to ``cv.split``. With an integer
        ``cv`` all samples of a group fall into the same fold. Models whose ``fit``
        takes groups, such as those with an inner cross-validation, get the groups of
        their samples.
    scoring : str or callable, optional
        As in ``cross_validate``; the estimators' own score by default.
    callback : callable, optional
        Called with the model's name and the fold's number after each fit.
    watch : callable, optional
        Called with the model's name, the fitted model and the (train, test) rows of the
        fold, to inspect more than the score of a model.

    Returns
    -------
    Comparison

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.svm import SVC
    >>> from mklearn import MKLClassifier
    >>> from mklearn.model_selection import compare
    >>> X, y = load_iris(return_X_y=True)
    >>> result = compare({"SVC": SVC(), "MKL": MKLClassifier()}, X, y, cv=3)
    >>> [row["model"] for row in result.table()], bool(result.mean.min() > 0.9)
    (['SVC', 'MKL'], True)
    """
    if not models:
        raise ValueError("compare needs at least one model, got none.")
    first = next(iter(models.values()))
    y, groups = paired(X, y), paired(X, groups, "groups")
    if groups is not None:
        groups = check_groups(groups, len(y))
        models = {name: requesting_groups(model) for name, model in models.items()}
    warn_of_subjects(X, y, groups, cv)
    splitter = folds_from(cv, y, groups, is_classifier(first))
    splits = tuple(splitter.split(X, y, groups))
    if len(splits) < 2:
        raise ValueError(
            f"compare needs at least 2 folds for standard errors, got {len(splits)}."
        )
    shape = (len(models), len(splits))
    scores, seconds = np.empty(shape), np.empty(shape)
    used, available = np.full(shape, np.nan), np.zeros(len(models), dtype=np.intp)
    with ctrl_c_ends_all(), warned_of_subjects():
        # loop over folds first, so that changes in load affect all models
        for k, split in enumerate(splits):
            for i, (name, model) in enumerate(models.items()):
                given: dict[str, Any] = {}
                if groups is not None and takes_groups(model):
                    given = {"params": {"groups": groups}}
                result = cross_validate(
                    model,
                    X,
                    y,
                    cv=[split],
                    scoring=scoring,
                    return_estimator=True,
                    error_score="raise",
                    **given,
                )
                fitted = result["estimator"][0]
                stop_if_interrupted(fitted)
                scores[i, k] = result["test_score"][0]
                seconds[i, k] = result["fit_time"][0]
                inner = getattr(fitted, "best_estimator_", fitted)
                weights = getattr(inner, "kernel_weights_", None)
                if weights is not None:
                    used[i, k] = np.count_nonzero(used_kernels(weights))
                    available[i] = np.shape(weights)[-1]
                if watch is not None:
                    watch(name, fitted, split)
                if callback is not None:
                    callback(name, k)
    return Comparison(tuple(models), scores, seconds, used, available, splits)


def takes_groups(model: Any) -> bool:
    """Return whether ``fit`` of a model has a parameter for groups.

    Parameters
    ----------
    model : estimator
    """
    if get_config()["enable_metadata_routing"]:
        routing = get_routing_for_object(model)
        return bool(routing.consumes("fit", ["groups"])) or _is_undecided(routing)
    if isinstance(model, (GridSearchCV, RandomizedSearchCV)):  # for their splitter
        return True
    return has_fit_parameter(model, "groups")


def _is_undecided(routing: Any) -> bool:
    """Return whether anything takes groups without saying whether it requests them."""
    if isinstance(routing, MetadataRouter):
        return any(_is_undecided(pair.router) for _, pair in routing)
    return routing.fit.requests.get("groups", False) is None


def requesting_groups(model: Any) -> Any:
    """Return the model, or a clone that requests groups if it has not said so.

    Parameters
    ----------
    model : estimator
    """
    if not get_config()["enable_metadata_routing"]:
        return model
    takes = has_fit_parameter(model, "groups") and hasattr(model, "set_fit_request")
    if takes and _is_undecided(get_routing_for_object(model)):
        return clone(model).set_fit_request(groups=True)
    return model


class _Stop(BaseException):
    """Ctrl-C; not a KeyboardInterrupt, which a solver answers with its best iterate."""


@contextmanager
def ctrl_c_ends_all() -> Iterator[None]:
    """Let Ctrl-C end several fits, wherever they are, by KeyboardInterrupt.

    On Ctrl-C, a single fit returns the best result so far, so that a series of fits
    would continue with a poor one among them. A custom handler of the signal is kept.
    """

    def stop(*_: Any) -> NoReturn:
        raise _Stop

    usual = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
    if usual:
        signal.signal(signal.SIGINT, stop)
    try:
        yield
    except _Stop:
        raise KeyboardInterrupt from None
    finally:
        if usual:
            signal.signal(signal.SIGINT, signal.default_int_handler)
