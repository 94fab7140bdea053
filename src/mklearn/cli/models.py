"""The models that the commands compare: a method and its baselines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    ParameterGrid,
    check_cv,
    cross_val_predict,
)
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if
from threadpoolctl import threadpool_limits

from mklearn.cli.inputs import (
    CLASSES,
    LOG_LOSS,
    TIMES,
    VALUES,
    Data,
    make_scorer,
    parse_list,
)
from mklearn.data.containers import Table
from mklearn.data.spelling import plural
from mklearn.data.subjects import group_folds
from mklearn.estimators import (
    BilinearMKLClassifier,
    EvidenceMKLRegressor,
    MKLClassifier,
    MKLClassifierCV,
    MKLCox,
    MKLCoxCV,
    MKLDiscriminant,
    MKLRegressor,
    MKLRegressorCV,
    SubspaceClassifier,
)
from mklearn.kernels import (
    RBF,
    KernelBank,
    Linear,
    MultiView,
    Spectrum,
    per_group,
    per_view,
)
from mklearn.kernels.families import BY_NAME, Family
from mklearn.kernels.groups import GroupFamily
from mklearn.problems import TwoLevel
from mklearn.problems.losses import loss_names
from mklearn.solvers.path import NORMS
from mklearn.table import Layout, TableError, TableModel
from mklearn.table.columns import CATEGORY, NUMBER, SEQUENCE

METHODS = ("mkl", "sum", "discriminant", "subspace", "bilinear", "evidence")
NON_NEGATIVE = ("chi2", "histogramintersection", "tanimoto")
COSTS = np.logspace(-3, 3, 7)  # values of C for --reg auto
WIDTHS = (1 / 16, 1 / 4, 1.0, 4.0, 16.0)
# grids of the baselines from scikit-learn, searched on folds of the training part
SVM_COSTS, SVM_WIDTHS = (0.1, 1.0, 10.0, 100.0), (1 / 16, 1 / 4, 1.0, 4.0)
RATES, ROUNDS = (0.1, 0.3), 50
SLOW = 0.03  # an additional rate for probabilities, which fast rates make extreme
WITH_PROBABILITIES = ("mkl", "sum", "discriminant")  # methods
LIKELIHOODS = ("logistic", "multinomial")  # losses that give probabilities
LOW_RANK = ("mkl", "sum", "discriminant", "evidence")
MOST_ROWS = 5000  # rows up to which Grams are exact, and all samples are compared
SAMPLE_ROWS = 2000  # rows of the comparison if there are more
MANY_ROWS = 2000  # rows up to which boosting has few bins
LEAF = 20  # samples of a leaf, or a tenth of all samples if that is less
SUM, SINGLE, BOOSTED = "unweighted sum", "best single kernel", "gradient boosting"
RIDGE = "Cox regression (one linear kernel)"
MAJORITY, MEAN = "most frequent class", "mean of the target"
FREQUENCIES = "class frequencies"
GUESSES = (MAJORITY, FREQUENCIES, MEAN)  # models that do not use the samples


@dataclass(frozen=True)
class Settings:
    """The options of a fit; None is the default of the method.

    For ``mkl`` this means that norm, C and the range of widths are chosen by
    cross-validation.
    """

    method: str = "mkl"
    norm: float | str | TwoLevel | None = None
    reg: float | str | None = None
    kernels: str = "auto"
    cv: int = 5
    jobs: int | None = None
    seed: int = 0
    by_view: str = "auto"
    scoring: str | None = None  # accuracy, or R2 of numbers
    class_weight: str | None = None
    repeats: int = 1
    approximation: str = "auto"
    rank: int = 300
    subsample: int | None = None
    gene_sets: tuple[tuple[str | None, str], ...] = ()  # view and GMT file
    loss: str | None = None  # of mkl and sum

    def low_rank(self, data: Data) -> bool:
        """Return whether the final model is trained on low-rank features."""
        fits = data.layout is not None and self.method in LOW_RANK
        if self.approximation == "nystroem" and not fits:
            raise TableError(
                "--approximation nystroem needs a table and one of the methods "
                f"{', '.join(LOW_RANK)}."
            )
        many = self.approximation == "auto" and len(data.y) > MOST_ROWS and fits
        return many or self.approximation == "nystroem"

    def compared_rows(self, data: Data) -> int:
        """Return the number of rows of the comparison."""
        n = len(data.y)
        if self.subsample is not None:
            return min(n, self.subsample)
        return min(n, SAMPLE_ROWS) if self.low_rank(data) else n


def make_kernels(
    text: str,
    layout: Layout | None,
    gene_sets: Sequence[tuple[str | None, str]] = (),
) -> tuple[Any, bool]:
    """Return the kernels of the option ``--kernels``, and whether to standardise.

    Each view gets its own; "auto" is a linear kernel and five RBF widths, and spectrum
    kernels for sequences.
    """
    if layout is None:
        if gene_sets:
            raise TableError("Gram matrices have no columns, hence no gene sets.")
        return "precomputed", False
    names = [name.lower().replace("_", "") for name in parse_list(text)]
    unknown = [n for n in names if n != "auto" and n not in BY_NAME]
    if unknown or not names:
        raise TableError(
            "--kernels takes comma-separated names from auto, "
            f"{', '.join(sorted(BY_NAME))}; got {text!r}."
        )
    kernels: list[Any] = []
    for name in names:
        if name == "auto":
            kernels += [Linear(), *(RBF("scale", factor) for factor in WIDTHS)]
            kernels += [Spectrum(k) for k in (1, 2, 3)]
        else:
            kernels.append(BY_NAME[name]())
    text_views = any(kind == SEQUENCE for kind in layout.kinds.values())
    numbers = any(kind != SEQUENCE for kind in layout.kinds.values())
    kernels = [k for k in kernels if (text_views if k.text else numbers)]
    if not kernels:
        raise TableError(
            f"none of the kernels {text!r} suits the columns; sequence kernels need "
            "--sequences, the others numbers or categories."
        )
    standardize = not any(name in NON_NEGATIVE for name in names)
    if not gene_sets:
        return per_view(*kernels), standardize
    numeric = [k for k in kernels if not k.text]
    # the notes name the sets that are left out
    groups = [
        family.within(table)
        for family, table in gene_families(gene_sets, layout, numeric, names)
    ]
    taken = {family.view for family in groups}
    others = [
        per_view(*(k for k in kernels if bool(k.text) == text), views=views)
        for text in (False, True)
        if (views := [v for v in _of_kind(layout, text) if v not in taken])
    ]
    return [*groups, *(family for family in others if family.kernels)], standardize


def kernel_count(data: Data, options: Settings) -> int:
    """Return the number of kernels of a model, without those on gene sets."""
    kernels, _ = make_kernels(options.kernels, data.layout)
    if data.layout is None:
        return int(data.X.shape[2])
    text = {view: False for view in _of_kind(data.layout, False)}
    text |= {view: True for view in _of_kind(data.layout, True)}
    return sum(
        bool(kernel.text) == text[view] for view in text for kernel in kernels.kernels
    )


def _of_kind(layout: Layout, text: bool) -> list[str]:
    """Return the views of strings, or those of numbers."""
    return [
        view
        for view, columns in layout.views.items()
        if (layout.kinds[columns[0]] == SEQUENCE) == text
    ]


def gene_families(
    gene_sets: Sequence[tuple[str | None, str]],
    layout: Layout,
    kernels: Sequence[Any] = (),
    names: Sequence[str] = ("auto",),
) -> list[tuple[GroupFamily, MultiView]]:
    """Return the kernels on gene sets, and a table with the columns that they are of.

    "auto" is a linear kernel for each set.
    """
    numbers = _of_kind(layout, False)
    found = []
    for view, file in gene_sets:
        if view is None and len(numbers) == 1:
            view = numbers[0]
        if view not in numbers:
            told = "name their view by" if view is None else f"got {view!r} in"
            raise TableError(
                f"{told} --gene-sets VIEW=FILE; the views of numbers are "
                f"{', '.join(numbers)}."
            )
        chosen = [Linear()] if "auto" in names else list(kernels)
        columns = tuple(layout.views[view])
        table = MultiView({view: Table(np.zeros((1, len(columns))), columns)})
        try:
            family = per_group(file, view=view, kernel=chosen)
            family.report(table)
        except ValueError as error:
            raise TableError(str(error)) from error
        found.append((family, table))
    return found


def gene_notes(options: Settings, data: Data) -> list[str]:
    """Return messages about the gene sets found in the columns of a table."""
    if data.layout is None or not options.gene_sets:
        return []
    said = []
    for family, table in gene_families(options.gene_sets, data.layout):
        lines = str(family.report(table)).split("\n")
        said += [f"Gene sets on {family.view}: {line}" for line in lines]
    return said


def make_model(data: Data, options: Settings) -> Any:
    """Return the unfitted model of a method."""
    kernels, standardize = make_kernels(options.kernels, data.layout, options.gene_sets)
    if data.task == VALUES and options.method not in ("mkl", "sum", "evidence"):
        raise TableError(
            f"--method {options.method} needs classes, but the target is numeric; use "
            "--method mkl, sum or evidence, or --task classification."
        )
    if isinstance(options.norm, TwoLevel) and data.layout is None:
        raise TableError(
            "A norm between views and within them needs a table with views; Gram "
            "matrices have none. Give a single norm."
        )
    if data.task == TIMES and options.method not in ("mkl", "sum"):
        raise TableError("--survival needs --method mkl or sum.")
    if data.task == CLASSES and options.method == "evidence":
        raise TableError(
            "--method evidence needs a numeric target, but the target has classes; "
            "use another method, or --task regression."
        )
    if options.scoring == LOG_LOSS and options.method not in WITH_PROBABILITIES:
        raise TableError(
            f"--scoring {LOG_LOSS} needs probabilities, which --method "
            f"{options.method} does not provide; use --method "
            f"{', '.join(WITH_PROBABILITIES[:-1])} or {WITH_PROBABILITIES[-1]}."
        )
    model = _balanced(_estimator(data, options, kernels), options)
    model = _beside(model, data, options.method)
    return _on_table(_grouped(model, data), data, standardize)


def make_large(data: Data, options: Settings, found: Any) -> Any:
    """Return the unfitted model of a method on low-rank features.

    Parameters
    ----------
    data : Data
    options : Settings
    found : fitted model
        The same method on a sample of the rows, which has chosen norm and cost.
    """
    inner = _chosen(data, options, found)
    given = {"approximation": "nystroem", "rank": options.rank}
    inner.set_params(random_state=options.seed, **given)
    _, standardize = make_kernels(options.kernels, data.layout)
    inner = _beside(_balanced(inner, options), data, options.method)
    return _on_table(inner, data, standardize)


def make_plain(data: Data, options: Settings, found: Any) -> Any:
    """Return the unfitted model with the settings that a search has chosen.

    Parameters
    ----------
    data : Data
    options : Settings
    found : fitted model
        A fitted model of the same method.
    """
    _, standardize = make_kernels(options.kernels, data.layout)
    inner = _balanced(_chosen(data, options, found), options)
    return _on_table(_beside(inner, data, options.method), data, standardize)


def _chosen(data: Data, options: Settings, found: Any) -> Any:
    """Return the estimator with the settings that a fitted model has found."""
    inner = fitted_on_views(found)
    search, plain = _WEIGHTED[data.task]
    if not isinstance(inner, (search, plain)):
        return clone(getattr(inner, "best_estimator_", inner))
    kernels, _ = make_kernels(options.kernels, data.layout, options.gene_sets)
    kernels = _without(kernels, getattr(inner, "rejected_", ()))
    chosen = {name: getattr(inner, f"{name}_", None) for name in ("norm", "C")}
    chosen = {k: getattr(inner, k) if v is None else v for k, v in chosen.items()}
    return plain(kernels, **chosen, **_loss(data, options))


def _without(kernels: Any, rejected: Sequence[str]) -> Any:
    """Return the kernels without those that a search has left out on all views."""
    labels = {name.rpartition(":")[2] for name in rejected}
    if isinstance(kernels, list):
        return [_without(part, rejected) for part in kernels]
    if not isinstance(kernels, Family):
        return kernels
    return replace(
        kernels,
        kernels=tuple(k for k in kernels.kernels if k.describe() not in labels),
    )


def _balanced(model: Any, options: Settings) -> Any:
    """Return a model with the class weights of the options, if it supports them."""
    for name in model.get_params() if options.class_weight else ():
        if name.split("__")[-1] == "class_weight":
            model.set_params(**{name: options.class_weight})
    return model


def _inner_folds(data: Data, options: Settings, most: int = 5) -> int:
    """Return the number of folds for a search on the training part of a fold."""
    n = options.compared_rows(data)
    if data.task == CLASSES:
        least = int(np.unique(data.y, return_counts=True)[1].min())
        n = max(least * n // len(data.y), min(least, 2 * options.cv))
    if data.task == TIMES:
        n = int(data.y["event"].sum() * n // len(data.y))
    return int(np.clip(n - -(-n // options.cv), 2, most))


def _scorer(data: Data, options: Settings) -> Any:
    return None if options.scoring is None else make_scorer(data, options.scoring)


def method_name(method: str) -> str:
    """Return the display name of a method."""
    if method == "sum":
        return "unweighted sum of the kernels"
    return f"learned weights ({method})"


def _beside(model: Any, data: Data, method: str) -> Any:
    """Return a model with the covariates; raise TableError if not supported."""
    if not data.covariates:
        return model
    inner = model.estimator if isinstance(model, GridSearchCV) else model
    if "fixed" not in inner.get_params(deep=False):
        raise TableError(
            f"--method {method} does not support covariates; use --method mkl, "
            "discriminant, bilinear or evidence."
        )
    inner.set_params(fixed=data.covariates)
    return model


def _grouped(model: Any, data: Data) -> Any:
    """Return a search on folds that keep subjects together, if there are any."""
    search = isinstance(model, (GridSearchCV, CalibratedModel))
    if data.groups is not None and search:
        model.set_params(cv=_GroupFolds(data.task == CLASSES))
    return model


class _GroupFolds(GroupKFold):
    """Folds of the groups of some training samples, fewer if they have few groups."""

    def __init__(self, classifier: bool) -> None:
        super().__init__(5)
        self.classifier = classifier

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Return the number of folds of these samples."""
        return int(self._folds(y, groups).get_n_splits())

    def split(self, X: Any, y: Any = None, groups: Any = None) -> Any:
        """Yield train and test rows."""
        return self._folds(y, groups).split(X, y, groups)

    def _folds(self, y: Any, groups: Any) -> Any:
        return group_folds(5, groups, y, self.classifier)


def method_notes(options: Settings) -> list[str]:
    """Return messages about options whose meaning depends on the method."""
    ignored = {
        "sum": "all its weights are equal",
        "subspace": "its weights sum to one",
        "evidence": "its weights have no norm",
    }
    if options.norm is not None and options.method in ignored:
        return [
            f"--norm has no effect on --method {options.method}: "
            f"{ignored[options.method]}."
        ]
    if options.method == "discriminant" and options.reg in (None, "auto"):
        return ["reg is chosen from 13 values by leave-one-out error."]
    if options.method == "subspace" and options.reg in (None, "auto"):
        return ["reg is 0.0005 times the trace of the kernel."]
    return []


def size_notes(data: Data, options: Settings) -> list[str]:
    """Return messages about tables with too many rows for exact kernels."""
    n, size, said = len(data.y), options.compared_rows(data), []
    if size < n:
        rare = ", with more from rare classes" if data.task == CLASSES else ""
        said.append(
            f"Methods are compared on {size} of the {plural(n, 'row')}, drawn at "
            f"random (use --subsample to change this){rare}."
        )
    if options.low_rank(data):
        said.append(
            f"The final model is fitted on all rows, using {options.rank} low-rank "
            "features per kernel (use --rank to change this, or --approximation none "
            "for exact kernels)."
        )
    return said


def _estimator(data: Data, options: Settings, kernels: Any) -> Any:
    if options.loss is not None and options.method not in ("mkl", "sum"):
        raise TableError(
            f"--loss applies to --method mkl and sum; --method {options.method} has "
            "its own criterion."
        )
    reg = options.reg
    if options.method == "discriminant":
        reg = "loo" if reg in (None, "auto") else reg
        model: Any = MKLDiscriminant(kernels, reg=reg)
        return _with_norm(model, data, options)
    if isinstance(reg, str) and reg != "auto":
        raise TableError(f"--reg {reg} needs --method discriminant.")
    if options.method == "evidence":
        if reg is not None:
            raise TableError("--method evidence learns its regularisation; omit --reg.")
        return EvidenceMKLRegressor(kernels, uncertainty=True)
    if options.method == "subspace":
        return SubspaceClassifier(kernels, reg="auto" if reg is None else reg)
    if options.method == "bilinear":
        C = 1.0 if reg in (None, "auto") else reg
        model = BilinearMKLClassifier(kernels, C=C, random_state=options.seed)
        grid = {"C": COSTS} if reg == "auto" else {}
        return _with_norm(model, data, options, grid)
    norm = np.inf if options.method == "sum" else options.norm
    return _weighted(data, options, kernels, "auto" if norm is None else norm)


def _weighted(data: Data, options: Settings, kernels: Any, norm: Any) -> Any:
    """Return a model with a given norm, or a search for it, with the cost."""
    C = "auto" if options.reg is None else options.reg
    search: Any
    plain: Any
    search, plain = _WEIGHTED[data.task]
    loss = _loss(data, options)
    if "auto" in (norm, C):
        return search(
            kernels,
            norms=NORMS if norm == "auto" else [norm],
            Cs=COSTS if C == "auto" else [C],
            cv=_inner_folds(data, options),
            scoring=_scorer(data, options),
            rule="sum",  # learned weights only if they improve on the sum
            n_jobs=options.jobs,
            **loss,
        )
    return plain(kernels, norm=norm, C=C, **loss)


def _loss(data: Data, options: Settings) -> dict[str, str]:
    """Return the requested loss; for many rows, the squared loss by default.

    The squared loss needs only one pass over the rows. If the score needs
    probabilities, the default is a loss that provides them.
    """
    chances = options.scoring == LOG_LOSS and data.task == CLASSES
    if options.loss is None and chances:
        return {"loss": LIKELIHOODS[len(np.unique(data.y)) > 2]}
    if options.loss is None:
        squared = options.low_rank(data) and data.task != TIMES
        return {"loss": "squared"} if squared else {}
    if data.task == TIMES:
        raise TableError("--loss applies to --target; --survival uses the Cox loss.")
    known = loss_names("labels" if data.task == CLASSES else "numbers")
    if options.loss not in known:
        what = "classes" if data.task == CLASSES else "numbers"
        raise TableError(
            f"--loss for a target of {what} takes {', '.join(known)}, got "
            f"{options.loss!r}."
        )
    if chances and options.loss not in LIKELIHOODS:
        raise TableError(
            f"--scoring {LOG_LOSS} needs probabilities, which --loss {options.loss} "
            f"does not provide; use --loss {' or '.join(LIKELIHOODS)}, or omit --loss."
        )
    return {"loss": options.loss}


_WEIGHTED = {
    CLASSES: (MKLClassifierCV, MKLClassifier),
    VALUES: (MKLRegressorCV, MKLRegressor),
    TIMES: (MKLCoxCV, MKLCox),
}


def _with_norm(
    model: Any, data: Data, options: Settings, grid: Mapping[str, Any] | None = None
) -> Any:
    """Return the model with its norm, or a search over norms and the grid."""
    tried = dict(grid or {})
    if options.norm == "auto":
        tried["norm"] = list(NORMS)
    elif options.norm is not None:
        model.set_params(norm=options.norm)
    if not tried:
        return model
    scoring = _scorer(data, options)
    return GridSearchCV(model, tried, scoring=scoring, n_jobs=options.jobs)


def without_search(model: Any) -> Any:
    """Return the fitted model that a search has found, instead of the search."""
    inner = fitted_on_views(model)
    if not isinstance(inner, GridSearchCV):
        return model
    if inner is model:
        return inner.best_estimator_
    model.set_params(estimator=clone(inner.best_estimator_))
    model.estimator_ = inner.best_estimator_
    return model


def fitted_on_views(model: Any) -> Any:
    """Return the estimator within a table model; other models are returned as is."""
    return model.estimator_ if isinstance(model, TableModel) else model


class GramModel(BaseEstimator):
    """An estimator on the sum of Gram matrices, without normalisation.

    Parameters
    ----------
    estimator : SVC or SVR with kernel="precomputed"
    """

    def __init__(self, estimator: Any) -> None:
        self.estimator = estimator

    def fit(self, X: KernelBank, y: Any) -> GramModel:
        """Fit the estimator on a square bank."""
        self.estimator_ = clone(self.estimator).fit(self._gram(X), y)
        return self

    def predict(self, X: KernelBank) -> NDArray[Any]:
        """Return the predictions for the rows of a cross bank."""
        return self.estimator_.predict(self._gram(X))

    @available_if(lambda self: hasattr(self.estimator, "decision_function"))
    def decision_function(self, X: KernelBank) -> NDArray[np.float64]:
        """Return the scores of the estimator."""
        return np.asarray(self.estimator_.decision_function(self._gram(X)))

    @available_if(lambda self: hasattr(self.estimator, "predict_proba"))
    def predict_proba(self, X: KernelBank) -> NDArray[np.float64]:
        """Return the probabilities of the estimator."""
        return np.asarray(self.estimator_.predict_proba(self._gram(X)))

    @property
    def classes_(self) -> NDArray[Any]:
        """The classes of the estimator."""
        return self.estimator_.classes_

    def score(self, X: KernelBank, y: Any) -> float:
        """Return the estimator's own score."""
        return float(self.estimator_.score(self._gram(X), y))

    def _gram(self, X: KernelBank) -> NDArray[np.float64]:
        return X.combine(np.ones(X.shape[2]))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = get_tags(self.estimator)
        tags.estimator_type = inner.estimator_type
        tags.classifier_tags = inner.classifier_tags
        tags.regressor_tags = inner.regressor_tags
        tags.input_tags.pairwise = True
        return tags


class CalibratedModel(ClassifierMixin, BaseEstimator):
    """A classifier without probabilities, with parameters chosen by its log loss.

    Each cell of the grid is fitted on folds. A logistic regression on the scores of the
    samples that were left out maps scores to probabilities; for the log loss of a cell,
    it is fitted on the scores of the other folds.

    Parameters
    ----------
    estimator : classifier with a decision function
    grid : mapping of str to sequences
        Values to try for its parameters.
    cv : int or splitter
    n_jobs : int, optional
        Number of folds fitted in parallel.
    """

    def __init__(
        self,
        estimator: Any,
        grid: Mapping[str, Sequence[Any]],
        cv: Any = 5,
        n_jobs: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.grid = grid
        self.cv = cv
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: Any, groups: Any = None) -> CalibratedModel:
        """Choose the parameters on folds, then fit them on all samples."""
        folds = list(check_cv(self.cv, y, classifier=True).split(X, y, groups))
        least = np.inf
        for cell in ParameterGrid(self.grid):
            model = clone(self.estimator).set_params(**cell)
            scores = cross_val_predict(
                model, X, y, cv=folds, method="decision_function", n_jobs=self.n_jobs
            ).reshape(len(y), -1)
            chances = cross_val_predict(
                _link(), scores, y, cv=folds, method="predict_proba"
            )
            loss = log_loss(y, chances)
            if loss < least:
                least, self.best_params_, best = loss, cell, scores
        self.estimator_ = clone(self.estimator).set_params(**self.best_params_)
        self.estimator_.fit(X, y)
        self.link_ = _link().fit(best, y)
        self.classes_ = self.link_.classes_
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probability of each class."""
        scores = self.estimator_.decision_function(X)
        return np.asarray(self.link_.predict_proba(scores.reshape(len(scores), -1)))

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable class."""
        return self.classes_[self.predict_proba(X).argmax(axis=1)]


def _link() -> LogisticRegression:
    """Return a model of probabilities, given scores."""
    return LogisticRegression(max_iter=1000)


def make_baselines(data: Data, options: Settings) -> dict[str, Any]:
    """Return the baselines of a method, tuned as carefully as the method itself.

    The unweighted sum and the best single kernel use the C of the options, or choose it
    as the method does. The models of scikit-learn choose their parameters by
    cross-validation within the training part. The last baseline makes constant
    predictions.
    """
    kernels, standardize = make_kernels(options.kernels, data.layout, options.gene_sets)
    if options.method not in ("mkl", "sum", "bilinear"):
        options = replace(options, reg=None)  # another regularisation, not a cost
    found: dict[str, Any] = {}
    if options.method != "sum":
        found[SUM] = _weighted(data, options, kernels, np.inf)
    found[SINGLE] = _single(data, options, kernels)
    models = {
        k: _on_table(_grouped(_beside(m, data, "mkl"), data), data, standardize)
        for k, m in ((k, _balanced(m, options)) for k, m in found.items())
    }
    return {**models, **_others(data, options)}


def _single(data: Data, options: Settings, kernels: Any) -> Any:
    """Return the model of the single best kernel in cross-validation."""
    search: Any = _WEIGHTED[data.task][0]
    fixed = isinstance(options.reg, (int, float))
    return search(
        kernels,
        norms=[np.inf],
        Cs=[options.reg] if fixed else COSTS,
        select="one",
        cv=_inner_folds(data, options),
        scoring=_scorer(data, options),
        n_jobs=options.jobs,
        **_loss(data, options),
    )


def _others(data: Data, options: Settings) -> dict[str, Any]:
    """Return methods of scikit-learn with their own search, and a dummy model.

    For survival times the baseline is Cox regression on all numeric columns. If the
    score needs probabilities, those of a support vector machine are calibrated.
    """
    if data.task == TIMES:
        if not _count_numbers(data):
            return {}
        ridge = _weighted(data, options, "linear", 1.0)
        return {RIDGE: _on_table(ridge, data, True, False)}
    classes, grams = data.task == CLASSES, data.layout is None
    guess: Any = DummyClassifier() if classes else DummyRegressor()
    chances = classes and options.scoring == LOG_LOSS
    name = (FREQUENCIES if chances else MAJORITY) if classes else MEAN
    svm: Any = SVC() if classes else SVR()
    tried: dict[str, Any] = {"C": SVM_COSTS}
    if grams:
        svm.set_params(kernel="precomputed")
        found = {f"{type(svm).__name__} (sum of the matrices)": (svm, tried)}
        make = GramModel
    else:
        columns = _count_numbers(data)
        if not columns:
            return {name: guess}
        tried["gamma"] = [width / columns for width in SVM_WIDTHS]
        found = {
            f"{type(svm).__name__} (one RBF kernel)": (svm, tried),
            BOOSTED: (
                _boosting(options.compared_rows(data), classes, options),
                {"learning_rate": (SLOW, *RATES) if chances else RATES},
            ),
        }

        def make(model: Any) -> Any:
            return _on_table(model, data, True, False)

    models = {}
    for label, (model, grid) in found.items():
        folds = _inner_folds(data, options, 3 if label == BOOSTED else 5)
        model = _balanced(model, options)
        if chances and model is svm:
            search: Any = CalibratedModel(model, grid, folds, options.jobs)
        else:
            search = GridSearchCV(
                model,
                grid,
                scoring=_scorer(data, options),
                cv=folds,
                n_jobs=options.jobs,
            )
        search = _grouped(search, data)
        if not classes:  # C and epsilon are in units of the target
            search = TransformedTargetRegressor(search, transformer=StandardScaler())
        models[label] = make(search)
    return {**models, name: GramModel(guess) if grams else guess}


def few_threads(data: Data) -> AbstractContextManager[Any]:
    """Return a context in which trees grow in one thread, unless there are many rows.

    On few rows they take longer to wake threads than to grow, and on a busy machine
    many times as long.
    """
    few = 1 if len(data.y) <= MOST_ROWS else None
    return threadpool_limits(few, user_api="openmp")


def _boosting(n: int, classes: bool, options: Settings) -> Any:
    """Return boosted trees on binned values.

    For few samples, a leaf needs only a tenth of them, so that small tables are split,
    too.
    """
    make: Any = (
        HistGradientBoostingClassifier if classes else HistGradientBoostingRegressor
    )
    return make(
        max_iter=ROUNDS,
        max_bins=64 if n <= MANY_ROWS else 255,
        min_samples_leaf=min(LEAF, max(n // 10, 2)),
        random_state=options.seed,
    )


def _count_numbers(data: Data) -> int:
    """Return the number of numeric columns after encoding a table."""
    assert data.layout is not None
    kinds = data.layout.kinds
    count = sum(kind == NUMBER for kind in kinds.values())
    return count + sum(
        data.X[name].nunique() for name, kind in kinds.items() if kind == CATEGORY
    )


def _on_table(model: Any, data: Data, standardize: bool, as_views: bool = True) -> Any:
    if data.layout is None:
        return model
    return TableModel(
        model,
        kinds=data.layout.kinds,
        views=data.layout.views,
        standardize=standardize,
        as_views=as_views,
        covariates=data.covariates,
    )
