"""The models that the commands compare: a method, and what it has to beat."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.model_selection import GridSearchCV
from sklearn.svm import SVC, SVR
from sklearn.utils import get_tags

from mklearn.cli.inputs import CLASSES, VALUES, Data, parse_list
from mklearn.estimators import (
    BestKernelClassifier,
    BilinearMKLClassifier,
    EvidenceMKLRegressor,
    MKLClassifier,
    MKLClassifierCV,
    MKLDiscriminant,
    MKLRegressor,
    MKLRegressorCV,
    SingleKernelCV,
    SubspaceClassifier,
    UniformMKLClassifier,
)
from mklearn.kernels import RBF, KernelBank, Linear, Spectrum, per_view
from mklearn.kernels.families import BY_NAME
from mklearn.solvers.path import NORMS
from mklearn.table import SEQUENCE, Layout, TableError, TableModel

METHODS = ("mkl", "discriminant", "subspace", "bilinear", "evidence")
NON_NEGATIVE = ("chi2", "histogramintersection", "tanimoto")
COSTS = np.logspace(-3, 3, 7)  # that --reg auto chooses from
WIDTHS = (1 / 16, 1 / 4, 1.0, 4.0, 16.0)


@dataclass(frozen=True)
class Settings:
    """The options of a fit."""

    method: str = "mkl"
    norm: float | str = 2.0
    reg: float | str | None = None
    kernels: str = "auto"
    cv: int = 5
    jobs: int | None = None
    seed: int = 0


def make_kernels(text: str, layout: Layout | None) -> tuple[Any, bool]:
    """Return the kernels that ``--kernels`` means, and whether to standardise.

    Each view gets its own; "auto" is a linear kernel and five RBF widths, and spectrum
    kernels for sequences.
    """
    if layout is None:
        return "precomputed", False
    names = [name.lower().replace("_", "") for name in parse_list(text)]
    unknown = [n for n in names if n != "auto" and n not in BY_NAME]
    if unknown or not names:
        raise TableError(
            f"--kernels takes names with commas between them, got {text!r}; known are "
            f"auto, {', '.join(sorted(BY_NAME))}."
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
            f"none of the kernels {text!r} fits the columns; sequence kernels are for "
            "--sequences, the others for numbers and categories."
        )
    return per_view(*kernels), not any(name in NON_NEGATIVE for name in names)


def make_model(data: Data, options: Settings) -> Any:
    """Return the model of a method, not fitted."""
    kernels, standardize = make_kernels(options.kernels, data.layout)
    if data.task == VALUES and options.method not in ("mkl", "evidence"):
        raise TableError(
            f"--method {options.method} is for classes, and the target holds numbers; "
            "use --method mkl or evidence, or --task classification."
        )
    if data.task == CLASSES and options.method == "evidence":
        raise TableError(
            "--method evidence is for numbers, and the target holds classes; use "
            "another method, or --task regression."
        )
    return _on_table(_estimator(data, options, kernels), data, standardize)


def method_notes(options: Settings) -> list[str]:
    """Return what is to be said about options that a method takes in its own way."""
    if options.method == "subspace" and options.norm != Settings.norm:
        return ["--norm says nothing to --method subspace: its weights sum to one."]
    if options.method == "evidence" and options.norm != Settings.norm:
        return ["--norm says nothing to --method evidence: its weights have no norm."]
    if options.method == "discriminant" and options.reg in (None, "auto"):
        return ["reg is the one of 13 values with the least leave-one-out error."]
    if options.method == "subspace" and options.reg in (None, "auto"):
        return ["reg is 0.0005 times the trace of the kernel."]
    return []


def _estimator(data: Data, options: Settings, kernels: Any) -> Any:
    norm, reg = options.norm, options.reg
    if options.method == "discriminant":
        reg = "loo" if reg in (None, "auto") else reg
        model: Any = MKLDiscriminant(kernels, reg=reg)
        return _with_norm(model, options)
    if isinstance(reg, str) and reg != "auto":
        raise TableError(f"--reg {reg} is for --method discriminant.")
    if options.method == "evidence":
        if reg is not None:
            raise TableError("--method evidence finds its regularisation; omit --reg.")
        return EvidenceMKLRegressor(kernels)
    if options.method == "subspace":
        return SubspaceClassifier(kernels, reg="auto" if reg is None else reg)
    if options.method == "bilinear":
        C = 1.0 if reg in (None, "auto") else reg
        model = BilinearMKLClassifier(kernels, C=C, random_state=options.seed)
        return _with_norm(model, options, {"C": COSTS} if reg == "auto" else {})
    values = data.task == VALUES
    if "auto" in (norm, reg):
        search = MKLRegressorCV if values else MKLClassifierCV
        return search(
            kernels,
            norms=NORMS if norm == "auto" else [norm],
            Cs=7 if reg == "auto" else [1.0 if reg is None else reg],
            n_jobs=options.jobs,
        )
    plain = MKLRegressor if values else MKLClassifier
    return plain(kernels, norm=norm, C=1.0 if reg is None else reg)


def _with_norm(
    model: Any, options: Settings, grid: Mapping[str, Any] | None = None
) -> Any:
    """Return the model with its norm, or a search for it and for what the grid has."""
    tried = dict(grid or {})
    if options.norm == "auto":
        tried["norm"] = list(NORMS)
    else:
        model.set_params(norm=options.norm)
    return GridSearchCV(model, tried, n_jobs=options.jobs) if tried else model


def without_search(model: Any) -> Any:
    """Return a fitted model with what a search has found in place of the search."""
    inner = fitted_on_views(model)
    if not isinstance(inner, GridSearchCV):
        return model
    if inner is model:
        return inner.best_estimator_
    model.set_params(estimator=clone(inner.best_estimator_))
    model.estimator_ = inner.best_estimator_
    return model


def fitted_on_views(model: Any) -> Any:
    """Return the estimator within a model of a table, any other as it is."""
    return model.estimator_ if isinstance(model, TableModel) else model


class GramModel(BaseEstimator):
    """An estimator on one of several Gram matrices as it is, or on their sum.

    Parameters
    ----------
    estimator : SVC or SVR with kernel="precomputed", or an estimator of mklearn
    which : int or None
        The number of the kernel; None is the sum.
    """

    def __init__(self, estimator: Any, which: int | None = None) -> None:
        self.estimator = estimator
        self.which = which

    def fit(self, X: KernelBank, y: Any) -> GramModel:
        """Fit the estimator on a square bank."""
        self.estimator_ = clone(self.estimator).fit(self._gram(X), y)
        return self

    def predict(self, X: KernelBank) -> NDArray[Any]:
        """Return the predictions for the rows of a cross bank."""
        return self.estimator_.predict(self._gram(X))

    def score(self, X: KernelBank, y: Any) -> float:
        """Return the estimator's own score."""
        return float(self.estimator_.score(self._gram(X), y))

    def _gram(self, X: KernelBank) -> NDArray[np.float64]:
        if self.which is not None:
            return X.gram(self.which)
        return X.combine(np.ones(X.shape[2]))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = get_tags(self.estimator)
        tags.estimator_type = inner.estimator_type
        tags.classifier_tags = inner.classifier_tags
        tags.regressor_tags = inner.regressor_tags
        tags.input_tags.pairwise = True
        return tags


def make_baselines(data: Data, options: Settings) -> dict[str, Any]:
    """Return what learned weights have to beat, with the same cost or choice of it."""
    kernels, standardize = make_kernels(options.kernels, data.layout)
    mine = options.method in ("mkl", "bilinear")
    chosen = options.reg == "auto"
    C = float(options.reg) if mine and isinstance(options.reg, (int, float)) else 1.0
    Cs = COSTS
    found: dict[str, Any] = {}
    if data.task == CLASSES:
        if chosen:
            found["unweighted sum"] = MKLClassifierCV(
                kernels, norms=[np.inf], Cs=Cs, n_jobs=options.jobs
            )
            found["best single kernel"] = SingleKernelCV(
                MKLClassifier(norm=1), kernels, values=Cs, n_jobs=options.jobs
            )
        else:
            found["unweighted sum"] = UniformMKLClassifier(kernels, C=C)
            found["best single kernel"] = BestKernelClassifier(
                kernels, C=C, n_jobs=options.jobs
            )
        plain: Any = SVC(C=C)
    else:
        found["unweighted sum"] = (
            MKLRegressorCV(kernels, norms=[np.inf], Cs=Cs, n_jobs=options.jobs)
            if chosen
            else MKLRegressor(kernels, norm=np.inf, C=C)
        )
        alone: Any = MKLRegressor(norm=1, C=C)
        prefix = ""
        if data.layout is None:
            alone = GramModel(MKLRegressor("precomputed", norm=1, C=C, psd="ignore"))
            single: dict[str, Any] = {"which": list(range(data.X.shape[2]))}
            prefix = "estimator__"
        else:
            single = {"kernels": [[k] for k in _listed_kernels(kernels, data.layout)]}
        found["best single kernel"] = GridSearchCV(
            alone,
            {**single, **({f"{prefix}C": Cs} if chosen else {})},
            n_jobs=options.jobs,
        )
        plain = SVR(C=C)
    models = {k: _on_table(m, data, standardize) for k, m in found.items()}
    search = GridSearchCV(plain, {"C": Cs}, n_jobs=options.jobs) if chosen else plain
    name = type(plain).__name__
    if data.layout is None:
        plain.set_params(kernel="precomputed")
        models[f"{name} (sum of the Grams)"] = GramModel(search)
    elif any(kind != SEQUENCE for kind in data.layout.kinds.values()):
        models[f"{name} (one RBF kernel)"] = _on_table(search, data, True, False)
    return models


def _listed_kernels(family: Any, layout: Layout) -> list[Any]:
    return [
        replace(kernel, view=view)
        for view, columns in layout.views.items()
        for kernel in family.kernels
        if bool(kernel.text) == (layout.kinds[columns[0]] == SEQUENCE)
    ]


def _on_table(model: Any, data: Data, standardize: bool, as_views: bool = True) -> Any:
    if data.layout is None:
        return model
    return TableModel(
        model,
        kinds=data.layout.kinds,
        views=data.layout.views,
        standardize=standardize,
        as_views=as_views,
    )
