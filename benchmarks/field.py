"""Does learning kernels pay? Every method on every available data set.

    python benchmarks/field.py --page docs/results/field.md    # about four hours
    python benchmarks/field.py --training 100 --page FILE      # or 800 --limit 150
    python benchmarks/field.py --quick                         # under 30 seconds
    python benchmarks/field.py --sets mfeat wine --methods "MKL p by CV" boosting
    python benchmarks/field.py --no-run --page FILE            # from what is finished

Learned kernels of each family are compared with the unweighted sum, the best single
kernel, models of single views whose scores are combined (stacking), and the usual
alternatives without kernels to combine: ``SVC`` with ``GridSearchCV``, gradient
boosting and logistic regression, all on the concatenated features; and, if installed,
EasyMKL of MKLpy and, for regression, himalaya.

The splits, the Gram matrices and the inner folds of a split are the same for all
methods, and methods with settings choose them by cross-validation on these folds;
boosting uses its defaults, the discriminant its own leave-one-out, and evidence has no
settings. Methods that give probabilities are compared by these, too: by log loss, and
by the expected calibration error of the most likely class. Times are CPU seconds of one
thread. They include everything from the training samples to the fitted model: the
search, the final fit and the kernels. The Gram matrices are computed once per split,
and their time is added to that of each method that uses them.

Each finished cell is written immediately to ``--out`` (``field-output`` by default);
running the same command again continues where it was stopped. A cell that fails, or
takes longer than ``--limit`` CPU seconds, records the reason and counts as the worst
rank; a method that exceeds the limit on the first split of a data set is not tried on
the others.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import resource
import signal
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from probabilities import calibration_error
from sklearn.base import BaseEstimator, clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.datasets import (
    load_diabetes,
    make_friedman1,
    make_friedman2,
    make_friedman3,
)
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.metrics import accuracy_score, log_loss, r2_score
from sklearn.model_selection import GridSearchCV, KFold, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR
from sklearn.utils.metaestimators import available_if
from threadpoolctl import threadpool_limits

from mklearn import (
    BilinearMKLClassifier,
    EvidenceMKLRegressor,
    KernelBank,
    MKLClassifier,
    MKLClassifierCV,
    MKLDiscriminant,
    MKLRegressorCV,
    MultiView,
    SingleKernelCV,
    SubspaceClassifierCV,
)
from mklearn.datasets import available, load
from mklearn.kernels import RBF, Linear, per_view
from mklearn.kernels.normalise import fit_normaliser
from mklearn.report import used_kernels

sys.path.insert(0, str(Path(__file__).parents[1]))
from reproduction.cells import (
    Band,
    Cell,
    Protocol,
    Results,
    Settings,
    Table,
    Values,
    cells_folder,
    results,
    rng,
    run,
    stratified,
)
from reproduction.page import outside

COSTS = (0.01, 0.1, 1.0, 10.0, 100.0)
FACTORS = (1 / 16, 1 / 4, 1.0, 4.0, 16.0)  # widths of the kernels "auto"
REGS = (1e-5, 1e-3, 1e-1)
SHARE = 0.7  # share of every class for training
TRAINING = 200  # approximate maximum number of training samples; set by --training
PER_CLASS = 3  # minimum number of training samples of each class
TESTING = 1000  # maximum number of test samples


def chosen(training: int) -> dict[str, str]:
    """Return the settings of a run with this number of training samples."""
    samples = (
        f"{SHARE:.0%} of every class, or as many as make about {training} in all, "
        f"{PER_CLASS} for each class if that is more; at most {TESTING} of the others "
        "are test samples"
    )
    return {"training samples": samples, **CHOICES}


CHOICES = {
    "kernels": "of a table: linear and RBF with 1/16, 1/4, 1, 4, 16 over the mean "
    'squared distance (kernels="auto"); of each of several views: linear and RBF with '
    "1/4, 1, 4; of strings: spectra of length 1, 2, 3 with unit diagonal; columns are "
    "standardised on the training samples",
    "features": "standardised but for boosting, views side by side; of strings the "
    "frequencies of letters and of pairs",
    "folds": "3 stratified inner ones, 2 where a class has 2 training samples",
    "costs": "C from 0.01, 0.1, 1, 10, 100, for SVM, logistic regression and every "
    "MKL; gamma of SVC as in the kernels of a table, and the linear kernel",
    "logistic": "LogisticRegression on the features side by side, C as above, each "
    "fold with its own standardisation",
    "MKL logistic": "MKL p by CV with the logistic loss, of one class against the rest",
    "scoring": "settings are chosen by accuracy or R2; those of logistic and MKL "
    "logistic by log loss, as the least of equally accurate costs has probabilities "
    "that say nothing",
    "discriminant": "reg by leave-one-out in closed form, 13 values",
    "subspace": "HSIC with weights for all kernels; reg from 1e-5, 1e-3, 0.1, C from "
    "1, 10, 100, both relative",
    "boosting": "scikit-learn's defaults (100 rounds, learning rate 0.1); no search, "
    "for time",
    "stacking": "a model of each view, or of each kernel if there is one view: the sum "
    "of its kernels, C as above; their scores on the inner folds are combined by "
    "logistic or ridge regression",
    "EasyMKL": "lam from 0.1, 0.5, 0.9 with its own learner, kernels with "
    "multiplicative normalisation",
    "himalaya": "random search with 100 candidates, 9 penalties from 1e-4 to 1e4, "
    "kernels with multiplicative normalisation, its own intercept",
}


# --- data -----------------------------------------------------------------------------

# two receptors of clinical interest, and every 20th protein of the table
PROTEINS = (
    "ER-alpha",
    "HER2",
    "14-3-3_epsilon",
    "B-Raf",
    "Collagen_VI",
    "HER2_pY1248",
    "NF2",
    "S6",
    "YAP_pS127",
    "p70S6K_pT389",
)
FRIEDMAN = {
    "friedman1": partial(make_friedman1, n_features=10, noise=1.0),
    "friedman2": partial(make_friedman2, noise=125.0),
    "friedman3": partial(make_friedman3, noise=0.1),
}
REGRESSION = ("diabetes", *FRIEDMAN, "views", *PROTEINS)


@dataclass(frozen=True)
class Split:
    """The input of all methods for one repetition of a data set."""

    bank: KernelBank  # Grams of the training samples
    cross: KernelBank  # test x training
    kernel_seconds: float
    table: np.ndarray  # features of the training samples
    test_table: np.ndarray
    y: np.ndarray
    y_test: np.ndarray
    folds: tuple[tuple[np.ndarray, np.ndarray], ...]


def classification_sets() -> tuple[list[str], dict[str, str]]:
    """Return the available classification data sets, and why others are missing."""
    names, missing = [], {}
    for line in available():
        if not line.at_hand:
            missing[line.name] = f"not at hand ({line.source})"
        elif not line.n_classes:
            missing[line.name] = "has no classes and one kernel: nothing to combine"
        else:
            names.append(line.name)
    return names, missing


def regression_sets() -> list[str]:
    """Return the available regression data sets."""
    proteins = any(s.name == "tcga_breast_train" and s.at_hand for s in available())
    return [n for n in REGRESSION if proteins or n not in PROTEINS]


@lru_cache(maxsize=1)
def samples(name: str) -> tuple[Any, np.ndarray]:
    """Return X, a table or a MultiView, and the target."""
    if name not in REGRESSION:
        return load(name, download=False, return_X_y=True)
    if name == "diabetes":
        return load_diabetes(return_X_y=True, scaled=False)
    if name in FRIEDMAN:
        return FRIEDMAN[name](1000, random_state=0)
    if name == "views":
        return make_views(1000)
    tumours = load("tcga_breast_train", download=False)
    column = tumours.feature_names["protein"].index(name)
    X = {view: tumours.data[view] for view in ("mrna", "mirna")}
    return MultiView(X), tumours.data["protein"][:, column]


def make_views(n: int, seed: int = 0) -> tuple[MultiView, np.ndarray]:
    """Return eight views of five columns, of which three are informative.

    The target is linear in the first and nonlinear in the second; the third is a noisy
    copy of the first, and the others are noise.
    """
    random = np.random.default_rng(seed)
    views = {f"noise{i}": random.standard_normal((n, 5)) for i in range(5)}
    linear, curved = random.standard_normal((2, n, 5))
    views |= {"linear": linear, "curved": curved}
    views["copy"] = linear + random.standard_normal((n, 5))
    y = linear @ np.array([1.0, -1.0, 0.5, 0.0, 0.0])
    y += 1.5 * np.sin(2 * curved[:, 0]) + curved[:, 1] ** 2
    return MultiView(views), y + random.standard_normal(n)


def rows(
    name: str, y: np.ndarray, random: Any, training: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the training and test samples."""
    if name in REGRESSION:
        order = random.permutation(len(y))
        at = min(round(SHARE * len(y)), training)
        train, test = order[:at], order[at:]
    else:
        most = max(training, PER_CLASS * len(np.unique(y)))
        train, test = stratified(y, min(SHARE, most / len(y)), random)
    return random.permutation(train), random.permutation(test)[:TESTING]


@lru_cache(maxsize=1)
def split(name: str, repetition: int, seed: int, training: int = TRAINING) -> Split:
    """Return one repetition of a data set, with its Gram matrices."""
    X, y = samples(name)
    train, test = rows(name, y, rng(seed, repetition), training)
    table, test_table = features(X, train, test)
    began = time.process_time()
    bank = KernelBank(X[train], kernels_for(X)).stored()
    grams = [bank.gram(m) for m in range(bank.shape[2])]
    unit = None
    if _is_text(X):
        unit = fit_normaliser("spherical", bank)
        grams = [unit.train(bank).gram(m) for m in range(bank.shape[2])]
    spent = time.process_time() - began
    cross = bank.cross(X[test])
    cross = cross if unit is None else unit.cross(cross)
    others = [cross.gram(m) for m in range(bank.shape[2])]
    return Split(
        KernelBank.from_grams(grams, bank.names),
        KernelBank.from_grams(others, bank.names, cross=True),
        spent,
        table,
        test_table,
        y[train],
        y[test],
        inner_folds(name, y[train], seed),
    )


def inner_folds(name: str, y: np.ndarray, seed: int) -> tuple:
    """Return the folds on which all methods choose their settings."""
    if name in REGRESSION:
        splitter: Any = KFold(3, shuffle=True, random_state=seed)
    else:
        fewest = int(np.unique(y, return_counts=True)[1].min())
        n_folds = max(2, min(3, fewest))
        splitter = StratifiedKFold(n_folds, shuffle=True, random_state=seed)
    return tuple(splitter.split(y, y))


def kernels_for(X: Any) -> Any:
    """Return the kernels to combine."""
    if not isinstance(X, MultiView) or _is_text(X):
        return "auto"
    widths = [RBF("scale", factor, standardize=True) for factor in (1 / 4, 1.0, 4.0)]
    return per_view(Linear(standardize=True), *widths)


def features(X: Any, train: Any, test: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return one table of the training samples, and one of the test samples."""
    if _is_text(X):
        (view,) = X.names
        counts = CountVectorizer(analyzer="char", ngram_range=(1, 2), lowercase=False)
        sparse = counts.fit_transform(X[view][train]), counts.transform(X[view][test])
        tables = (np.asarray(c.toarray(), dtype=np.float64) for c in sparse)
        return tuple(t / t.sum(axis=1, keepdims=True) for t in tables)  # type: ignore
    views = [X[view] for view in X.names] if isinstance(X, MultiView) else [X]
    return tuple(
        np.hstack([np.asarray(view[part], dtype=np.float64) for view in views])
        for part in (train, test)
    )  # type: ignore


def _is_text(X: Any) -> bool:
    return isinstance(X, MultiView) and any(X.is_text(view) for view in X.names)


# --- methods --------------------------------------------------------------------------


@dataclass(frozen=True)
class Method:
    """A method that is compared.

    Parameters
    ----------
    make : callable
        Function of a split that returns an estimator whose ``fit`` chooses all
        settings.
    family : {"learned", "fixed", "features", "peer"}
        Learned kernel weights, kernels without learning, no given kernels, or another
        package.
    package : str
        Package that must be installed.
    """

    make: Callable[[Split], Any]
    family: str
    package: str = ""

    @property
    def installed(self) -> bool:
        """Whether the required package is installed."""
        return not self.package or find_spec(self.package) is not None


GIVEN: dict[str, Any] = {"kernels": "precomputed", "psd": "ignore"}


def path(*norms: float, **options: Any) -> Callable[[Split], Any]:
    """Return a factory of MKL models that choose C, and the norm if several."""
    return lambda s: MKLClassifierCV(
        Cs=COSTS, norms=norms, cv=s.folds, **GIVEN, **options
    )


def regression_path(*norms: float) -> Callable[[Split], Any]:
    """Return a factory of kernel regressions that choose C and the norm."""
    return lambda s: MKLRegressorCV(Cs=COSTS, norms=norms, cv=s.folds, **GIVEN)


def search(model: Any, grid: Any, s: Split, **options: Any) -> GridSearchCV:
    """Return a search on the folds of a split that raises on failures."""
    return GridSearchCV(model, grid, cv=s.folds, error_score="raise", **options)


def gammas(s: Split) -> list[float]:
    """Return the widths of the kernels "auto" on standardised columns."""
    n_columns = np.count_nonzero(s.table.std(axis=0))
    return [factor / (2.0 * max(n_columns, 1)) for factor in FACTORS]


def svm_grid(s: Split, step: str) -> list[dict[str, Any]]:
    """Return the kernels "auto" and the costs, for a step of a pipeline."""
    return [
        {f"{step}__kernel": ["linear"], f"{step}__C": COSTS},
        {f"{step}__kernel": ["rbf"], f"{step}__gamma": gammas(s), f"{step}__C": COSTS},
    ]


def svr(s: Split) -> Any:
    """Return support vector regression of a standardised target."""
    model = make_pipeline(
        StandardScaler(),
        TransformedTargetRegressor(SVR(), transformer=StandardScaler()),
    )
    return search(model, svm_grid(s, "transformedtargetregressor__regressor"), s)


class BestKernel(BaseEstimator):
    """Regression on the single kernel and cost that perform best on the folds."""

    def __init__(self, folds: Any) -> None:
        self.folds = folds

    def fit(self, bank: KernelBank, y: Any) -> BestKernel:
        """Try each kernel alone."""
        models = [
            MKLRegressorCV(Cs=COSTS, norms=(1.0,), cv=self.folds, **GIVEN).fit(
                bank.select([m]), y
            )
            for m in range(bank.shape[2])
        ]
        scores = [model.mean_scores_.max() for model in models]
        self.which_ = int(np.argmax(scores))
        self.model_ = models[self.which_]
        self.C_ = self.model_.C_
        return self

    def predict(self, cross: KernelBank) -> Any:
        """Return the values."""
        return self.model_.predict(cross.select([self.which_]))


class Stacking(BaseEstimator):
    """A model of each view, and a linear one of their scores on left-out samples.

    A view has the sum of its kernels and a cost chosen on the folds, on which its
    scores are then computed. If there is one view, each kernel has a model.

    Parameters
    ----------
    folds : sequence of (train, test) pairs
    make : callable
        Function of keyword parameters that returns a search for the cost of a view.
    link : estimator
        The model of all scores.
    """

    def __init__(self, folds: Any, make: Callable[..., Any], link: Any) -> None:
        self.folds = folds
        self.make = make
        self.link = link

    def fit(self, bank: KernelBank, y: Any) -> Stacking:
        """Fit a model of each view, and that of their scores."""
        names = [name.split(":")[0] for name in bank.names]
        groups = [
            [m for m, a in enumerate(names) if a == b] for b in dict.fromkeys(names)
        ]
        if len(groups) == 1:
            groups = [[m] for m in groups[0]]
        self.views_, left_out = [], []
        for kernels in groups:
            part = bank.select(kernels)
            model = self.make(Cs=COSTS, cv=self.folds).fit(part, y)
            self.views_.append((kernels, model))
            scores = []
            for train, test in self.folds:
                again = self.make(Cs=[model.C_], cv=2)
                again.fit(part[np.ix_(train, train)], y[train])
                scores.append(_scores(again, part[np.ix_(test, train)]))
            left_out.append(np.concatenate(scores))
        rows = np.concatenate([test for _, test in self.folds])
        self.link_ = clone(self.link).fit(np.hstack(left_out), y[rows])
        return self

    def predict(self, cross: KernelBank) -> Any:
        """Return the labels or values."""
        return self.link_.predict(self._stacked(cross))

    @available_if(lambda self: hasattr(self.link, "predict_proba"))
    def predict_proba(self, cross: KernelBank) -> Any:
        """Return the probability of each class."""
        return self.link_.predict_proba(self._stacked(cross))

    @property
    def classes_(self) -> Any:
        """The labels, in the order of the probabilities."""
        return self.link_.classes_

    def _stacked(self, cross: KernelBank) -> np.ndarray:
        scores = [_scores(model, cross.select(k)) for k, model in self.views_]
        return np.hstack(scores)


def _scores(model: Any, cross: KernelBank) -> np.ndarray:
    """Return decisions, or predicted values, in columns."""
    of = getattr(model, "decision_function", model.predict)
    return of(cross).reshape(cross.shape[0], -1)


class EasyMKL(BaseEstimator):
    """EasyMKL of the package MKLpy, with lam chosen on given folds."""

    def __init__(self, folds: Any, lams: Sequence[float] = (0.1, 0.5, 0.9)) -> None:
        self.folds = folds
        self.lams = lams

    def fit(self, bank: KernelBank, y: Any) -> EasyMKL:
        """Try every lam on every fold, then fit the best."""
        self.classes_, y = np.unique(y, return_inverse=True)  # it accepts only numbers
        scores = [
            np.mean([self._score(bank, y, a, b, lam) for a, b in self.folds])
            for lam in self.lams
        ]
        self.best_params_ = {"lam": self.lams[int(np.argmax(scores))]}
        self._fit(bank, y, self.best_params_["lam"])
        return self

    def _fit(self, bank: KernelBank, y: Any, lam: float) -> None:
        from MKLpy.algorithms import EasyMKL as Peer

        self._normaliser = fit_normaliser("multiplicative", bank)
        self._model = Peer(lam=lam).fit(_grams(self._normaliser.train(bank)), y)

    def _score(self, bank: KernelBank, y: Any, a: Any, b: Any, lam: float) -> float:
        self._fit(bank[np.ix_(a, a)], y[a], lam)
        return float(np.mean(self._codes(bank[np.ix_(b, a)]) == y[b]))

    def _codes(self, cross: KernelBank) -> Any:
        return np.asarray(self._model.predict(_grams(self._normaliser.cross(cross))))

    def predict(self, cross: KernelBank) -> Any:
        """Return the labels."""
        return self.classes_[self._codes(cross)]


class Himalaya(BaseEstimator):
    """MultipleKernelRidgeCV of the package himalaya."""

    def __init__(self, folds: Any) -> None:
        self.folds = folds

    def fit(self, bank: KernelBank, y: Any) -> Himalaya:
        """Run a random search for weights and penalty."""
        from himalaya.kernel_ridge import MultipleKernelRidgeCV

        self._normaliser = fit_normaliser("multiplicative", bank)
        options = {
            "n_iter": 100, "alphas": np.logspace(-4, 4, 9), "progress_bar": False
        }  # fmt: skip
        self._model = MultipleKernelRidgeCV(
            kernels="precomputed",
            solver="random_search",
            solver_params=options,
            fit_intercept=True,
            cv=list(self.folds),
            random_state=0,
        )
        self._model.fit(np.stack(_grams(self._normaliser.train(bank))), y)
        return self

    def predict(self, cross: KernelBank) -> Any:
        """Return the values."""
        return self._model.predict(np.stack(_grams(self._normaliser.cross(cross))))


def _grams(bank: KernelBank) -> list[np.ndarray]:
    return [bank.gram(m) for m in range(bank.shape[2])]


CLASSIFIERS: dict[str, Method] = {
    "MKL p=1": Method(path(1.0), "learned"),
    "MKL p=4/3": Method(path(4 / 3), "learned"),
    "MKL p=2": Method(path(2.0), "learned"),
    "MKL p by CV": Method(path(1.0, 4 / 3, 2.0, np.inf), "learned"),
    "MKL logistic": Method(
        path(1.0, 4 / 3, 2.0, np.inf, loss="logistic", scoring="neg_log_loss"),
        "learned",
    ),
    "discriminant": Method(lambda s: MKLDiscriminant(reg="loo", **GIVEN), "learned"),
    "subspace": Method(
        lambda s: SubspaceClassifierCV(
            combine=True, regs=REGS, Cs=(1.0, 10.0, 100.0), cv=s.folds, **GIVEN
        ),
        "learned",
    ),
    "bilinear": Method(
        lambda s: search(BilinearMKLClassifier(**GIVEN), {"C": COSTS}, s), "learned"
    ),
    "unweighted sum": Method(path(np.inf), "fixed"),
    "best kernel": Method(
        lambda s: SingleKernelCV(
            MKLClassifier(norm=1), values=COSTS, cv=s.folds, **GIVEN
        ),
        "fixed",
    ),
    "SVC + grid": Method(
        lambda s: search(make_pipeline(StandardScaler(), SVC()), svm_grid(s, "svc"), s),
        "features",
    ),
    "boosting": Method(
        lambda s: HistGradientBoostingClassifier(random_state=0),
        "features",
    ),
    "logistic": Method(
        lambda s: search(
            make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
            {"logisticregression__C": COSTS},
            s,
            scoring="neg_log_loss",
        ),
        "features",
    ),
    "stacking": Method(
        lambda s: Stacking(
            s.folds,
            partial(MKLClassifierCV, norms=(np.inf,), **GIVEN),
            make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
        ),
        "fixed",
    ),
    "EasyMKL": Method(lambda s: EasyMKL(s.folds), "peer", "MKLpy"),
}

REGRESSORS: dict[str, Method] = {
    "MKL p=1": Method(regression_path(1.0), "learned"),
    "MKL p=4/3": Method(regression_path(4 / 3), "learned"),
    "MKL p=2": Method(regression_path(2.0), "learned"),
    "MKL p by CV": Method(regression_path(1.0, 4 / 3, 2.0, np.inf), "learned"),
    "evidence": Method(lambda s: EvidenceMKLRegressor(**GIVEN), "learned"),
    "unweighted sum": Method(regression_path(np.inf), "fixed"),
    "best kernel": Method(lambda s: BestKernel(s.folds), "fixed"),
    "SVR + grid": Method(svr, "features"),
    "boosting": Method(
        lambda s: HistGradientBoostingRegressor(random_state=0),
        "features",
    ),
    "ridge": Method(
        lambda s: make_pipeline(
            StandardScaler(), RidgeCV(np.logspace(-4, 4, 9), cv=list(s.folds))
        ),
        "features",
    ),
    "stacking": Method(
        lambda s: Stacking(
            s.folds,
            partial(MKLRegressorCV, norms=(np.inf,), **GIVEN),
            make_pipeline(StandardScaler(), RidgeCV(np.logspace(-4, 4, 9))),
        ),
        "fixed",
    ),
    "himalaya": Method(lambda s: Himalaya(s.folds), "peer", "himalaya"),
}

METHODS = {"accuracy": CLASSIFIERS, "R2": REGRESSORS}
SCORES = {"accuracy": accuracy_score, "R2": r2_score}


# --- one cell -------------------------------------------------------------------------


def work(
    cell: Cell, seed: int, limit: float, folder: Path, training: int = TRAINING
) -> Values:
    """Return score and time of a method on a split, or why there are none."""
    if reason := slow_before(cell, folder, limit):
        return {"stopped": reason, "cap": limit}
    s = split(cell.data, cell.repetition, seed, training)
    values = limited(partial(measure, s, cell), limit)
    return values | {"cap": limit} if "stopped" in values else values


def limited(job: Callable[[], Values], seconds: float) -> Values:
    """Return the result of a job, or that it was stopped after some CPU seconds.

    Long functions in C cannot be interrupted, so the job runs in a process that can be
    killed. It is forked, so that it has all compiled functions and computed values.
    """
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(job, seconds, sender))
    process.start()
    sender.close()
    try:
        return receiver.recv()
    except EOFError:
        process.join()
        if process.exitcode == -signal.SIGXCPU:
            return {"stopped": f"not done after {seconds:g} s"}
        return {"stopped": f"ended by itself with exit code {process.exitcode}"}
    finally:
        process.terminate()
        process.join()
        receiver.close()


def _send(job: Callable[[], Values], seconds: float, sender: Any) -> None:
    whole = max(1, math.ceil(seconds))
    resource.setrlimit(resource.RLIMIT_CPU, (whole, whole + 5))
    try:
        values = job()
    except Exception as error:  # a failure is a result, too
        values = {"stopped": f"{type(error).__name__}: {error}"[:200]}
    sender.send(values)


def measure(s: Split, cell: Cell) -> Values:
    """Fit and test a method, and return score, time and chosen settings."""
    method = METHODS[cell.table][cell.method]
    X, X_test, made = s.bank, s.cross, s.kernel_seconds
    if method.family == "features":
        X, X_test, made = s.table, s.test_table, 0.0
    began = time.process_time()
    model = method.make(s).fit(X, s.y)
    spent = time.process_time() - began
    predicted = np.asarray(model.predict(X_test))
    return {
        cell.table: float(SCORES[cell.table](s.y_test, predicted)),
        "seconds": spent + made,
        "kernel_seconds": made,
        "training": len(s.y),
        "testing": len(s.y_test),
        "kernels": s.bank.shape[2],
        **probabilities(model, X_test, s.y_test),
        **facts(model),
    }


def probabilities(model: Any, X: Any, y: np.ndarray) -> Values:
    """Return log loss and calibration error, if the model gives probabilities."""
    if not hasattr(model, "predict_proba"):
        return {}
    p = model.predict_proba(X)
    right = model.classes_[p.argmax(axis=1)] == y
    return {
        "log loss": float(log_loss(y, p, labels=model.classes_)),
        "calibration": calibration_error(p.max(axis=1), right.astype(float)),
    }


def slow_before(cell: Cell, folder: Path, limit: float) -> str:
    """Return a reason to skip a cell if the first repetition exceeded the limit."""
    if not cell.repetition:
        return ""
    try:
        text = (folder / replace(cell, repetition=0).file).read_text(encoding="utf-8")
    except OSError:
        return ""
    first = json.loads(text)["values"]
    done = first.get("cap", 0.0) >= limit
    return first["stopped"] if done and "not done" in first.get("stopped", "") else ""


def facts(model: Any) -> Values:
    """Return the settings a model chose, its number of kernels and its accuracy."""
    found: Values = dict(getattr(model, "best_params_", {}))
    for name in ("C", "norm", "reg"):
        if hasattr(model, f"{name}_") and name not in found:
            found[name] = getattr(model, f"{name}_")
    if hasattr(model, "best_value_"):
        found["C"] = model.best_value_
    chosen = {
        name.split("__")[-1]: value if isinstance(value, str) else f"{value:.4g}"
        for name, value in found.items()
        if not isinstance(value, list)
    }
    best = getattr(model, "best_estimator_", model)
    values: Values = {"chosen": chosen}
    if hasattr(best, "kernel_weights_"):
        values["used"] = int(np.count_nonzero(used_kernels(best.kernel_weights_)))
    if np.isfinite(getattr(best, "duality_gap_", np.nan)):
        values["gap"] = float(best.duality_gap_)
    return values


# --- the run --------------------------------------------------------------------------

# these come with scikit-learn
QUICK_SETS = {"accuracy": ("wine", "breast_cancer_diagnostic"), "R2": ("diabetes",)}
QUICK_METHODS = (
    "MKL p=2", "evidence", "discriminant", "unweighted sum", "SVC + grid", "logistic"
)  # fmt: skip
BANDS = tuple(
    Band(
        "wine",
        method,
        "accuracy",
        0.93,
        1.0,
        "standardised wines are told apart to 2 %; the standard error of one test part "
        "of 54 samples is about 2 points",
    )
    for method in QUICK_METHODS
    if method in CLASSIFIERS
) + tuple(
    Band("diabetes", method, "R2", 0.35, 0.6, "0.48 on average, give or take 0.04")
    for method in QUICK_METHODS
    if method in REGRESSORS
)


def make_protocol(
    tables: tuple[Table, ...],
    limit: float,
    folder: Path,
    quick: bool = False,
    training: int = TRAINING,
) -> Protocol:
    """Return the cells of a run and how they are computed."""
    protocol = Protocol(
        name="field" if training == TRAINING else f"field-{training}",
        title="Does learning kernels pay?"
        + ("" if training == TRAINING else f" {training} training samples"),
        tables=tables,
        work=work,
        choices=chosen(training),
        files={},
        printed=lambda folder: {},
        quick=tables,
        bands=BANDS if quick else (),
    )
    cells = cells_folder(protocol, folder)
    job = partial(work, limit=limit, folder=cells, training=training)
    return replace(protocol, work=job)


def make_tables(args: argparse.Namespace) -> tuple[Table, ...]:
    """Return the data sets and methods of a run: accuracies, and R2 of regressions."""
    sets = {"accuracy": classification_sets()[0], "R2": regression_sets()}
    titles = {"accuracy": "classification", "R2": "regression"}
    known = {name for names in sets.values() for name in names}
    if unknown := set(args.sets or ()) - known:
        raise SystemExit(f"no such sets at hand: {sorted(unknown)}; {sorted(known)}")
    tables = []
    for key, methods in METHODS.items():
        data = tuple(n for n in sets[key] if not args.sets or n in args.sets)
        if args.quick and not args.sets:
            data = QUICK_SETS[key]
        if args.training != TRAINING:  # those that have so many
            data = tuple(n for n in data if SHARE * len(samples(n)[1]) >= args.training)
        wanted = args.methods or (QUICK_METHODS if args.quick else tuple(methods))
        chosen = tuple(m for m in methods if m in wanted and methods[m].installed)
        if data and chosen:
            tables.append(Table(key, titles[key], data, chosen, args.repeats, (key,)))
    return tuple(tables)


def warm_up(tables: Sequence[Table]) -> None:
    """Compile the functions of all methods before timing them."""
    for table in tables:
        s = split("iris" if table.name == "accuracy" else "diabetes", 0, 0)
        few = replace(s, folds=s.folds[:2])
        for name in table.methods:
            method = METHODS[table.name][name]
            on_table = method.family == "features"
            method.make(few).fit(s.table if on_table else s.bank, s.y)
    split.cache_clear()  # the times of these kernels include compilation


def show(found: Results) -> None:
    """Print the mean score of every method on every data set."""
    for table in found.tables:
        for data in table.data:
            line = [f"{data:24s}"]
            for method in table.methods:
                cells = found.of(table, data, method)
                scores = [c[table.name] for c in cells if table.name in c]
                line.append(f"{method} {np.mean(scores):.3f}" if scores else method)
            print("  ".join(line))


def main() -> int:
    """Run the unfinished cells, and write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="two sets, few methods")
    parser.add_argument("--sets", nargs="+", help="data sets, all available by default")
    parser.add_argument("--methods", nargs="+", help="by their names in the tables")
    parser.add_argument("--repeats", type=int, help="splits, 10 by default")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--training", type=int, default=TRAINING,
        help="samples to learn from; other than by default, sets with fewer are left "
        "out",
    )  # fmt: skip
    parser.add_argument("--limit", type=float, default=40.0, help="CPU s per cell")
    parser.add_argument("--out", type=Path, help="folder of the finished cells")
    parser.add_argument("--page", type=Path, help="write a Markdown page and a figure")
    parser.add_argument("--no-run", action="store_true", help="only write the page")
    args = parser.parse_args()
    args.repeats = args.repeats or (1 if args.quick else 10)
    if args.quick and args.out is None:
        with TemporaryDirectory() as folder:
            return compare(args, Path(folder))
    return compare(args, args.out or Path("field-output"))


def compare(args: argparse.Namespace, out: Path) -> int:
    """Run the requested cells, and return 1 if a quick run shows a fault."""
    tables = make_tables(args)
    protocol = make_protocol(tables, args.limit, out, args.quick, args.training)
    settings = Settings(args.seed, args.quick, args.repeats, args.limit)
    if args.no_run:
        found = results(protocol, out, settings)
    else:
        with warnings.catch_warnings(), threadpool_limits(1):
            warnings.simplefilter("ignore")
            warm_up(tables)
            for n in range(1, args.repeats + 1):  # one split of everything, then more
                found = run(protocol, out, replace(settings, repetitions=n), tick=tick)
        found = replace(found, settings=settings)
    show(found)
    if args.page:
        from field_page import write

        names, missing = classification_sets()
        if args.sets:
            names = [n for n in (*names, *regression_sets()) if n not in args.sets]
            missing = {", ".join(names): "available, but not chosen"} | missing
        write(found, args.page, missing, args.sets or ())
    failed = [v["stopped"] for v in found.cells.values() if "stopped" in v]
    wrong = outside(found) + (failed if args.quick else [])
    for line in wrong:
        print(line)
    return 1 if wrong else 0


def tick(done: int, total: int, name: str) -> None:
    """Print progress."""
    print(f"{time.strftime('%H:%M:%S')} {done}/{total} {name}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
