"""The fold engine of all estimators that select by cross-validation.

Rows of X are split as they were given, with their own weights and groups. Identical
rows are one sample of the training set, so a fold consists of distinct samples and
their weights in that fold.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Integral
from typing import Any

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from numpy.typing import NDArray
from sklearn import get_config
from sklearn.base import clone, is_classifier
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import check_cv
from sklearn.utils.metadata_routing import (
    UNUSED,
    MetadataRouter,
    MethodMapping,
    process_routing,
)

from mklearn.data.checks import NothingToLearnError, check_weight
from mklearn.data.covariates import as_values, split
from mklearn.data.subjects import (
    N_FOLDS,
    check_groups,
    group_folds,
    warn_of_subjects,
)
from mklearn.data.threads import one_blas_thread
from mklearn.data.views import MultiView, holds_views, in_order_of
from mklearn.estimators._predictor import as_bank
from mklearn.estimators._training import GramTraining
from mklearn.kernels import KernelBank
from mklearn.kernels.dense import DenseGrams
from mklearn.kernels.normalise import fit_normaliser
from mklearn.solvers import Status

FloatArray = NDArray[np.float64]

_DENSE = 2**28  # maximum size in bytes of all Gram matrices in memory
Index = NDArray[np.intp]


def error_over_folds(
    values: NDArray[np.float64], sizes: Sequence[tuple[int, int]]
) -> NDArray[np.float64]:
    """Return the standard error of a mean over folds.

    It is corrected for the overlap of training sets (Nadeau and Bengio 2003, section
    3), and NaN for one fold.

    Parameters
    ----------
    values : array of shape (n_folds, ...)
    sizes : sequence of (int, int)
        Number of training and test samples of each fold.
    """
    if len(values) < 2:
        return np.full(np.shape(values)[1:], np.nan)
    ratio = np.mean([test / train for train, test in sizes])
    return np.asarray(np.sqrt((1.0 / len(values) + ratio) * values.var(0, ddof=1)))


@dataclass(frozen=True)
class Fold:
    """Distinct training samples, and test rows of X.

    Attributes
    ----------
    members, weight : arrays of shape (n_members,)
        Distinct training samples, and the total weight of their rows in the fold.
    truth : array of shape (n_rows, ...)
        Targets of the test rows, as given by the user.
    row_weight : array of shape (n_rows,)
    tested : array of shape (n_tested,)
        The distinct samples among the test rows.
    place : array of shape (n_rows,)
        Position in ``tested`` of the sample of each row.
    """

    members: Index
    weight: FloatArray
    truth: NDArray[Any]
    row_weight: FloatArray
    tested: Index
    place: Index

    @property
    def tested_weight(self) -> FloatArray:
        """Weights of the distinct test samples, shape (n_tested,)."""
        n = len(self.tested)
        return np.bincount(self.place, self.row_weight, n).astype(float)

    def accuracy(self, right: NDArray[np.bool_]) -> float:
        """Return the weighted share of correct samples; ``right`` is (n_tested,)."""
        weight = self.tested_weight
        return float(weight @ right / weight.sum())


@dataclass(frozen=True)
class Part:
    """A fold of a training set, the input of a job.

    Kernels are sliced on first use, in the process of the job.
    """

    whole: GramTraining
    fold: Fold
    budget: int | None
    dense: bool = False  # whether all Gram matrices of a fold fit into memory

    @cached_property
    def raw(self) -> KernelBank:
        """Kernels between the training samples."""
        a = self.fold.members
        return self.whole.raw[np.ix_(a, a)].stored(self.budget)

    @cached_property
    def raw_cross(self) -> KernelBank:
        """Kernels between the test samples and the training samples."""
        cross = self.whole.raw[np.ix_(self.fold.tested, self.fold.members)]
        return cross.stored(self.budget)

    def normalised(self, kind: str | None) -> tuple[GramTraining, KernelBank]:
        """Return training set and test kernels, normalised on the training set."""
        normaliser = fit_normaliser(kind, self.raw, self.fold.weight)
        training = replace(
            self.whole,
            raw=self.raw,
            bank=normaliser.train(self.raw),
            normaliser=normaliser,
            target=self.whole.target[self.fold.members],
            weight=self.fold.weight,
            design=self._design(self.fold.members),
        )
        return training, normaliser.cross(self.raw_cross)

    def design_tested(self) -> FloatArray | None:
        """Return ones and covariates of the test samples, None without covariates."""
        return self._design(self.fold.tested)

    def _design(self, rows: Index) -> FloatArray | None:
        whole = self.whole.design
        return None if whole is None else whole[rows]

    def score(self, model: Any, target: NDArray[Any]) -> float:
        """Fit a model for precomputed kernels on the fold, and return its score.

        Parameters
        ----------
        model : estimator
        target : array
            Targets of all distinct samples.
        """
        fold = self.fold
        with warnings.catch_warnings():
            # a kernel that is constant on a fold just scores badly
            warnings.simplefilter("ignore", UserWarning)
            try:
                model.fit(self.raw, target[fold.members], sample_weight=fold.weight)
            except NothingToLearnError:
                return 0.0
        stop_if_interrupted(model)
        weight = fold.tested_weight
        return float(
            model.score(self.raw_cross, target[fold.tested], sample_weight=weight)
        )

    def scores_alone(
        self, model: Any, target: NDArray[Any], regs: FloatArray
    ) -> list[float]:
        """Return the accuracies of a discriminant on a single kernel, by ``reg``."""
        fold = self.fold
        known, truth = target[fold.members], target[fold.tested]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            try:
                found = model._decided_alone(
                    self.raw, known, self.raw_cross, regs, fold.weight
                )
                return [fold.accuracy(labels == truth) for labels in found]
            except NothingToLearnError:
                return [0.0] * len(regs)


@dataclass(frozen=True)
class Folds:
    """A training set and its folds."""

    training: GramTraining
    folds: tuple[Fold, ...]

    def run(
        self,
        job: Callable[[Part], Any],
        n_jobs: int | None = None,
        choices: Iterable[Index] | None = None,
    ) -> list[list[Any]]:
        """Return the result of a job on each fold, for each choice of kernels.

        Ctrl-C ends the run, because an incomplete search cannot select anything.

        Parameters
        ----------
        job : callable
            Function of a :class:`Part`.
        n_jobs : int, optional
            Number of jobs that run at the same time.
        choices : iterable of arrays, optional
            Indices of the kernels to use; by default all of them together.
        """
        budget = self.training.raw.memory_limit
        if budget is not None:
            budget //= effective_n_jobs(n_jobs)
        # pass on stored values: if they were recomputed on a subset of the samples,
        # their last digits would differ
        raw = self.training.raw.travelling()
        dense = choices is None and _fits(raw)
        if dense and raw.storage != "given":
            raw = DenseGrams.of(raw).bank
        wholes = [replace(self.training, raw=raw)]
        if choices is not None:
            wholes = [replace(self.training, raw=raw.select(m)) for m in choices]
        found = Parallel(n_jobs=n_jobs, mmap_mode="c")(
            delayed(_work)(job, Part(whole, fold, budget, dense))
            for whole in wholes
            for fold in self.folds
        )
        n = len(self.folds)
        return [found[at : at + n] for at in range(0, len(found), n)]


def _fits(raw: KernelBank) -> bool:
    """Return whether all Gram matrices, also those of a fold, fit into memory."""
    n, _, M = raw.shape
    limit = _DENSE if raw.memory_limit is None else min(_DENSE, raw.memory_limit // 4)
    return 8 * M * n**2 <= limit and raw.present is None


@one_blas_thread
def _work(job: Callable[[Part], Any], part: Part) -> Any:
    return job(part)


def stop_if_interrupted(model: Any) -> None:
    """Raise KeyboardInterrupt if Ctrl-C interrupted the fit of a model.

    On Ctrl-C, solvers return their best iterate instead of raising.

    Parameters
    ----------
    model : fitted estimator
    """
    solutions = getattr(model, "solution_", [])
    stop_on_ctrl_c(solutions if isinstance(solutions, list) else [solutions])


def stop_on_ctrl_c(solutions: Iterable[Any]) -> None:
    """Raise KeyboardInterrupt if any of the solutions was interrupted by Ctrl-C."""
    if any(solution.status is Status.INTERRUPTED for solution in solutions):
        raise KeyboardInterrupt


def best_cell(
    scores: FloatArray, cost: Callable[..., Any], rule: str = "best"
) -> tuple[int, ...]:
    """Return the cell of a grid that a rule chooses.

    Parameters
    ----------
    scores : array of shape (..., n_folds)
        Cells with NaN in any fold are ignored.
    cost : callable
        Function of the indices of a cell. Among ties, the cell of lowest cost is
        chosen; scores that differ only by rounding are ties.
    rule : {"best", "1se"}
        Consider only the best mean score, or all mean scores within one standard error
        of the best.
    """
    mean = scores.mean(axis=-1).round(12)
    if np.isnan(mean).all():
        raise ValueError(
            "No combination of the grid was scored on every fold, so none can be "
            "chosen; raise time_limit, or check scoring."
        )
    mean = np.where(np.isnan(mean), -np.inf, mean)
    least = mean.max()
    n_folds = scores.shape[-1]
    if rule == "1se" and n_folds > 1:
        best = np.unravel_index(int(mean.argmax()), mean.shape)
        least -= scores[best].std(ddof=1) / np.sqrt(n_folds)
    cells = np.argwhere(mean >= least).tolist()
    return tuple(min(cells, key=lambda cell: cost(*cell)))


class SearchMixin:
    """Mixin of estimators with a parameter ``cv``.

    ``fit`` accepts ``groups`` in addition to ``sample_weight``. With metadata routing,
    an estimator that makes its own folds requests them like sample weights, by
    ``set_fit_request``; if ``cv`` is a splitter, the splitter requests them.
    """

    cv: Any
    classes_: NDArray[Any]
    _target: Callable[[Any, FloatArray], NDArray[Any]]

    def get_metadata_routing(self) -> MetadataRouter:
        """Return the metadata requests of this estimator and its splitter."""
        own = super().get_metadata_routing()  # type: ignore[misc]
        router = MetadataRouter(owner=self)
        if not hasattr(self.cv, "split"):
            return router.add_self_request(own)
        if own.fit.requests.get("groups", False) is None:
            own.fit.add_request(param="groups", alias=UNUSED)  # up to the splitter
        mapping = MethodMapping().add(caller="fit", callee="split")
        router.add_self_request(own)
        return router.add(splitter=self.cv, method_mapping=mapping)

    def _warn_of_subjects(self, X: Any, y: Any, groups: Any) -> None:
        """Warn if a column of X seems to name subjects that the folds would divide."""
        fixed = getattr(self, "fixed", None)
        apart = [fixed] if isinstance(fixed, (str, Integral)) else fixed
        apart = () if apart is None else tuple(apart)
        warn_of_subjects(X, y, groups, self.cv, apart=apart, stacklevel=5)

    def _truth(self, target: NDArray[Any]) -> NDArray[Any]:
        """Return targets in the form given by the user."""
        return self.classes_[target]

    def _folds(
        self,
        training: GramTraining,
        y: Any,
        sample_weight: Any,
        groups: Any,
        together: bool = False,
    ) -> Folds:
        """Return the folds of the rows of X according to ``cv``.

        Parameters
        ----------
        training : GramTraining
            The training set of the same rows.
        y, sample_weight, groups
            As passed to ``fit``.
        together : bool
            Whether an integer ``cv`` splits the distinct samples, so that no model is
            tested on samples it was trained on, or the rows with nonzero weight.
        """
        y = in_order_of(training.ids, y, "y")
        sample_weight = in_order_of(training.ids, sample_weight, "sample_weight")
        groups = in_order_of(training.ids, groups, "groups")
        row_weight = check_weight(sample_weight, len(training.group))
        truth = self._truth(self._target(y, row_weight))
        asked = self._asked_by_splitter(groups)
        if self.cv is None or isinstance(self.cv, Integral):
            splits = self._number_of_folds(training, asked, together)
        else:
            splitter = check_cv(self.cv, truth, classifier=is_classifier(self))
            splits = splitter.split(np.zeros((len(truth), 1)), truth, **asked)
        folds: list[Fold] = []
        for train, test in splits:
            fold = _fold(training, truth, row_weight, train, test)
            self._check_fold(training, fold, len(folds))
            folds.append(fold)
        if not folds:
            raise ValueError(f"cv must yield at least one fold, got {self.cv!r}.")
        return Folds(training, tuple(folds))

    def _n_folds(self) -> int:
        """Return the number of folds, if ``cv`` is a number or None."""
        return N_FOLDS if self.cv is None else int(self.cv)

    def _kinds(self, target: NDArray[Any]) -> NDArray[np.intp] | None:
        """Return the labels to stratify by: the classes, if there are any."""
        return target if is_classifier(self) else None

    def _asked_by_splitter(self, groups: Any) -> dict[str, Any]:
        if groups is None:
            return {}
        if get_config()["enable_metadata_routing"] and hasattr(self.cv, "split"):
            return dict(process_routing(self, "fit", groups=groups).splitter.split)
        return {"groups": groups}

    def _number_of_folds(
        self, training: GramTraining, asked: dict[str, Any], together: bool
    ) -> Iterator[tuple[Index, Index]]:
        """Yield train and test rows of X, in at most ``cv`` folds."""
        if together:
            first, unit = training.index, training.group
        else:
            first = np.flatnonzero(training.group >= 0)
            unit = np.full(len(training.group), -1)
            unit[first] = np.arange(len(first))
        known = training.target[training.group[first]]
        kinds = self._kinds(known)
        classifier = kinds is not None
        if kinds is not None:
            known = kinds
        fewest = int(np.bincount(known).min()) if classifier else len(known)
        if fewest < 2:
            kind = "distinct samples" if together else "samples"
            raise ValueError(
                f"Cross-validation needs at least 2 {kind}"
                + (
                    f" of each class; the smallest class has {fewest}. Merge or drop "
                    "it, or pass"
                    if classifier
                    else f", got {fewest}. Pass"
                )
                + " folds as cv=."
            )
        splitter = check_cv(min(self._n_folds(), fewest), known, classifier=classifier)
        n = len(training.group)
        asked = {name: check_groups(value, n)[first] for name, value in asked.items()}
        if "groups" in asked:
            splitter = group_folds(self._n_folds(), asked["groups"], known, classifier)
        for parts in splitter.split(np.zeros((len(known), 1)), known, **asked):
            train, test = (np.flatnonzero(np.isin(unit, part)) for part in parts)
            yield train, test

    def _check_fold(self, training: GramTraining, fold: Fold, number: int) -> None:
        members, rows = fold.members, fold.place
        if len(members) < 2 or not len(rows):
            raise ValueError(
                f"Fold {number} has {len(members)} distinct training samples and "
                f"{len(rows)} test samples with nonzero weight, but needs at least 2 "
                "and 1. Use other folds."
            )
        if is_classifier(self):
            missing = np.setdiff1d(training.target, training.target[members])
            if len(missing):
                raise ValueError(
                    f"The training part of fold {number} has no samples of the classes "
                    f"{self.classes_[missing].tolist()}; use stratified folds, or "
                    "fewer folds."
                )


def _fold(
    training: GramTraining,
    truth: NDArray[Any],
    row_weight: FloatArray,
    train: Any,
    test: Any,
) -> Fold:
    """Return the fold of train and test rows, given as indices or masks."""
    group, n = training.group, len(training.weight)
    kept = group[train] >= 0
    weight = np.bincount(group[train][kept], row_weight[train][kept], n).astype(float)
    members = np.flatnonzero(weight)
    rows = np.arange(len(group))[test]
    rows = rows[group[rows] >= 0]
    tested, place = np.unique(group[rows], return_inverse=True)
    return Fold(members, weight[members], truth[rows], row_weight[rows], tested, place)


# --- models of subsets of the kernels -------------------------------------------------


@dataclass(frozen=True)
class Subsets:
    """Training and test samples for models of subsets of the kernels.

    Kernels are computed once for all models. Low-rank features are computed for each
    model; with covariates, each model is fitted on the samples themselves.

    Attributes
    ----------
    names, kernels : tuple
        Names and specifications of all kernels; None for those given as Grams.
    """

    names: tuple[str, ...]
    kernels: tuple[Any, ...]
    _model: Any
    _train: Any
    _test: Any
    _y: NDArray[Any]
    _weight: FloatArray | None
    _given: dict[str, Any]

    @classmethod
    def of(
        cls, model: Any, X: Any, y: NDArray[Any], X_test: Any, groups: Any = None
    ) -> Subsets:
        """Return the kernels of an estimator for training and test samples.

        Parameters
        ----------
        model : estimator of mklearn
            It is neither fitted nor changed.
        X, y
            Training samples.
        X_test
            Test samples; for precomputed kernels, those between these and X.
        groups : array, optional
            Groups of the training samples, if ``fit`` of the model takes them.
        """
        given = {} if groups is None else {"groups": groups}
        apart = model.fixed is not None and not model._precomputed()
        if model.approximation is not None or apart:
            known = clone(model).fit(X, y, **given)
            stop_if_interrupted(known)
            return cls(
                known.kernel_names_, known.kernels_, clone(model), X, X_test, y, None,
                given,
            )  # fmt: skip
        # the models themselves check whether kernels are definite
        fresh = clone(model).set_params(psd="ignore")
        training = fresh._grams(X, y, None)
        if training.precomputed:
            cross = as_bank(X_test, cross=True)[:, training.index]
        else:
            cross = training.raw.cross(fresh._new_samples(X_test))
        taken = clone(model).set_params(kernels="precomputed")
        return cls(
            training.names,
            training.kernels,
            taken,
            training.raw.travelling(),
            cross.stored(training.raw.memory_limit),
            y[training.index],
            training.weight,
            {name: values[training.index] for name, values in given.items()},
        )

    def fitted(self, which: Index) -> tuple[Any, Any]:
        """Return a model of some kernels, and its input for the test samples."""
        model = clone(self._model)
        if self._weight is None:
            chosen = [self.kernels[m] for m in which]
            model.set_params(kernels=chosen).fit(self._train, self._y, **self._given)
            test = self._test
        else:
            bank, test = self._train.select(which), self._test.select(which)
            model.fit(bank, self._y, sample_weight=self._weight, **self._given)
        stop_if_interrupted(model)
        return model, test

    def on_covariates(self) -> tuple[Any, FloatArray]:
        """Return least squares on covariates alone, and those of the test samples."""
        model, test = self.fitted(np.array([0]))  # which codes the covariates
        train = self._train
        if self._weight is not None:
            train = train.select(np.array([0]))
        known = model.checked(train).covariates
        linear = LinearRegression().fit(known, self._y, sample_weight=self._weight)
        return linear, model.checked(test).covariates


def computed_once(model: Any, X: Any, y: Any) -> tuple[Any, KernelBank]:
    """Return a model for given Grams, and the Grams of all rows of X.

    Fits to many targets then compute kernels only once. As in searches, parameters of
    kernels that depend on the samples are determined on all of them, and normalisation
    on the samples of each fit.

    Parameters
    ----------
    model : estimator of mklearn
        It is neither fitted nor changed.
    X, y
        Samples and a valid target.
    """
    # the models themselves check whether kernels are definite
    fresh = clone(model).set_params(psd="ignore")
    training = fresh._grams(X, y, None)
    rows = training.group
    bank = training.raw[np.ix_(rows, rows)].travelling()
    taken = clone(model).set_params(kernels="precomputed")
    if training.design is not None:
        X = MultiView(X) if holds_views(X) else X
        X = X if hasattr(X, "shape") else np.array(X, dtype=object)
        table = as_values(split(X, fresh._places(X)).table, len(rows))
        bank.beside = table
        taken.set_params(fixed=list(table))
    return taken, bank
