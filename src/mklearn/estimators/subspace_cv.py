"""Subspace kernels with kernel, reg and C chosen by cross-validation."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from mklearn.data.checks import NothingToLearnError
from mklearn.data.threads import one_blas_thread
from mklearn.estimators._folds import Part, SearchMixin, best_cell, stop_on_ctrl_c
from mklearn.estimators._parameters import check_positive
from mklearn.estimators._targets import decided
from mklearn.estimators._training import GramTraining
from mklearn.estimators.subspace import (
    SubspaceClassifier,
    own_scale,
    unit_cost,
)
from mklearn.kernels import KernelBank
from mklearn.kernels.dense import DenseGrams
from mklearn.kernels.normalise import CENTRED_TRACE
from mklearn.problems.subspace import label_factor
from mklearn.solvers.subspace import svm_on

FloatArray = NDArray[np.float64]

_FEW = 2000  # number of samples of a fold up to which its Gram is in memory
_LOOSER = 10  # tolerance of SVMs during the search, in units of tol

# indices of reg and C, features of test samples, coefficients and biases of the SVMs
_Cell = tuple[int, int, FloatArray, FloatArray, FloatArray]


class SubspaceClassifierCV(SearchMixin, SubspaceClassifier):
    """:class:`SubspaceClassifier` that chooses kernel, reg and C by cross-validation.

    Kernels are evaluated once for all folds. On each fold the Gram matrix of each
    kernel is formed once, each reg takes one Cholesky factorisation, and the SVMs for
    each C are warm-started from those for the previous one. For nested
    cross-validation, pass the estimator to ``cross_val_score``: it then makes its
    choice again on each training part.

    Parameters
    ----------
    kernels : kernel, name, callable, list of these, "auto" or "precomputed"
        The kernels to choose from; each is tried alone.
    combine : bool
        Whether to combine all kernels with learned weights and choose only reg and C.
    regs, Cs : arrays of float
        Values to try.
    relative : bool
        Whether regs are multiples of the kernel's trace, and Cs multiples of the
        inverse mean squared length of the features, the unit that "auto" uses in
        :class:`SubspaceClassifier`. Such grids suit any kernel and any sample size.
    cv : int, splitter or iterable
        Cross-validation folds; an integer gives that many stratified folds.
    n_jobs : int, optional
        Number of pairs of kernel and fold processed in parallel.
    criterion, uncorrelated, n_components, label_kernel, joint, unit_trace, solver
        As in :class:`SubspaceKernel`.
    class_weight, random_state, psd, tol, max_iter, time_limit, memory_limit
        As in :class:`SubspaceKernel`; the time limit applies to each problem
        separately.

    Attributes
    ----------
    scores_ : array of shape (n_choices, n_regs, n_Cs, n_folds)
        Accuracies. There is one choice for each kernel or, with ``combine``, a single
        one.
    mean_scores_ : array of shape (n_choices, n_regs, n_Cs)
    best_index_ : tuple of int
        Index of the chosen model in ``mean_scores_``. Among ties the largest reg wins,
        then the smallest C, then the first kernel.
    best_params_ : dict
        Names of the chosen kernels, and the chosen values of reg and C in the grids.
    regs_, Cs_ : arrays
        The grids, ascending.
    coef_, intercept_, classes_, kernel_names_, kernels_, kernel_weights_
        As in :class:`SubspaceClassifier`, for the final fit.
    kernel_contributions_, support_, dual_coef_, n_components_, rank_
        As in :class:`SubspaceClassifier`, for the final fit.
    criterion_values_, objective_, reg_, C_, duality_gap_, n_iter_, solution_
        As in :class:`SubspaceClassifier`, for the final fit.
    predictor_
        As in :class:`SubspaceClassifier`, for the final fit.

    References
    ----------
    Chen, J., Ji, S., Ceran, B., Li, Q., Wu, M. and Ye, J. (2008). Learning subspace
    kernels for classification. *Knowledge Discovery and Data Mining*.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from mklearn import SubspaceClassifierCV
    >>> X, y = load_iris(return_X_y=True)
    >>> model = SubspaceClassifierCV(regs=[1e-3, 0.1], Cs=[1.0, 10.0], cv=2).fit(X, y)
    >>> model.scores_.shape, bool(model.mean_scores_.max() > 0.9)
    ((6, 2, 2, 2), True)
    """

    def __init__(
        self,
        kernels: Any = "auto",
        *,
        combine: bool = False,
        regs: Any = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0),
        Cs: Any = (0.1, 1.0, 10.0, 100.0),
        relative: bool = True,
        cv: Any = 5,
        n_jobs: int | None = None,
        criterion: str = "hsic",
        uncorrelated: bool = True,
        n_components: int | None = None,
        label_kernel: str = "H2",
        joint: str = "auto",
        unit_trace: bool | str = "auto",
        solver: Any = "newton",
        class_weight: Any = None,
        random_state: int = 0,
        psd: str = "check",
        tol: float = 1e-4,
        max_iter: int = 100,
        time_limit: float | None = None,
        memory_limit: int | None = None,
    ) -> None:
        self.kernels = kernels
        self.combine = combine
        self.regs = regs
        self.Cs = Cs
        self.relative = relative
        self.cv = cv
        self.n_jobs = n_jobs
        self.criterion = criterion
        self.uncorrelated = uncorrelated
        self.n_components = n_components
        self.label_kernel = label_kernel
        self.joint = joint
        self.unit_trace = unit_trace
        self.solver = solver
        self.class_weight = class_weight
        self.random_state = random_state
        self.psd = psd
        self.tol = tol
        self.max_iter = max_iter
        self.time_limit = time_limit
        self.memory_limit = memory_limit

    reg = C = "auto"  # what is checked; the numbers come from the grids
    callback, verbose = None, 0

    @one_blas_thread
    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None
    ) -> SubspaceClassifierCV:
        """Choose by cross-validation, then fit on all samples.

        Parameters
        ----------
        X, y, sample_weight
            As in :class:`SubspaceKernel`; the weights are used in the scores as well.
        groups : array of shape (n_samples,), optional
            Group labels, such as subjects, passed on to ``cv.split``. With an integer
            ``cv`` all samples of a group fall into the same fold. If there are fewer
            groups than folds, or fewer that contain some class, there are only as many
            folds as these groups.
        """
        self._check_parameters()
        self.regs_ = _grid("regs", self.regs)
        self.Cs_ = _grid("Cs", self.Cs)
        self._warn_of_subjects(X, y, groups)
        training = self._grams(X, y, sample_weight)
        folds = self._folds(training, y, sample_weight, groups)
        every = np.arange(training.raw.shape[2])
        choices = every[None] if self.combine else every[:, None]
        found = folds.run(self._scored, self.n_jobs, choices)
        self.scores_ = np.moveaxis(np.array(found), 1, 3)
        self.mean_scores_ = self.scores_.mean(axis=3)
        self.best_index_ = best_cell(self.scores_, lambda m, i, j: (-i, j, m))
        self._fit_best(training, choices[self.best_index_[0]])
        return self

    def _fit_best(self, training: GramTraining, choice: NDArray[np.intp]) -> None:
        """Fit the choice on all samples."""
        _, i, j = self.best_index_
        names = [training.raw.names[m] for m in choice]
        self.best_params_ = {
            "kernels": names,
            "reg": float(self.regs_[i]),
            "C": float(self.Cs_[j]),
        }
        part = replace(
            training,
            raw=training.raw.select(choice),
            bank=training.bank.select(choice),
            normaliser=training.normaliser.select(choice),
        )
        if not self._unit(len(choice)):
            # only these kernels, so that a fit without a search gives the same digits
            part, training = own_scale(part), own_scale(training)
        learned = self._learn(part)
        theta = np.zeros(training.raw.shape[2])
        theta[choice] = learned.theta
        self._store(training, replace(learned, theta=theta))

    def _unit(self, n_kernels: int) -> bool:
        return n_kernels > 1 or self.unit_trace is True

    def _regularisation(self, trace: float) -> float:
        reg = float(self.regs_[self.best_index_[1]])
        return reg * trace if self.relative else reg

    def _cost(self, features: FloatArray, w: FloatArray) -> float:
        C = float(self.Cs_[self.best_index_[2]])
        return C * unit_cost(features, w) if self.relative else C

    # --- folds ------------------------------------------------------------------------

    def _scored(self, part: Part) -> FloatArray:
        """Return the accuracies of one choice on one fold, shape (n_regs, n_Cs)."""
        fold = part.fold
        scores = np.zeros((len(self.regs_), len(self.Cs_)))
        with warnings.catch_warnings():
            # kernels that are constant or of lower rank on a fold just score badly
            warnings.simplefilter("ignore", UserWarning)
            warnings.simplefilter("ignore", ConvergenceWarning)
            kind = CENTRED_TRACE if self._unit(part.raw.shape[2]) else "center"
            try:
                training, cross = part.normalised(kind)
            except NothingToLearnError:
                return scores
            truth = part.whole.target[fold.tested]
            for i, j, features, coef, bias in self._path(training, cross):
                found = decided(features @ coef + bias)
                scores[i, j] = fold.accuracy(found == truth)
        return scores

    def _path(self, training: GramTraining, cross: KernelBank) -> Iterator[_Cell]:
        """Yield all cells of the grid, from large to small reg and small to large C."""
        w = training.weight
        L = label_factor(training.target, len(self.classes_), self.label_kernel, w)
        trace = float(np.mean(w @ training.bank.diag())) if self.relative else 1.0
        theta, first = None, None
        for i in reversed(range(len(self.regs_))):
            kernels = self._kernels(training, float(self.regs_[i]) * trace)
            if first is None or self.criterion != "alignment":  # which has no reg
                first = self._first(kernels, L, theta)
                stop_on_ctrl_c([first.solution])
            theta, found = first.theta, first.subspace
            if found.rank == 0:
                continue
            unit = unit_cost(found.features, w) if self.relative else 1.0
            features = cross.apply(theta, found.coef)
            known: Any = found.features  # for few samples, their Gram suffices
            if len(known) <= _FEW:
                known = DenseGrams((known @ known.T)[None])
            A: FloatArray | None = None
            for j, C in enumerate((unit * self.Cs_).tolist()):
                loss = self._loss(training, C)
                start = None if A is None else A * (self.Cs_[j] / self.Cs_[j - 1])
                if self.criterion == "svm":
                    solution = self._joint(
                        kernels, loss, L, time_limit=self.time_limit, start=start
                    )
                    found = solution.about.subspace
                    features = cross.apply(solution.theta, found.coef)
                else:
                    solution = svm_on(
                        known, loss, tol=_LOOSER * self.tol, start=start,
                        time_limit=self.time_limit,
                    )  # fmt: skip
                stop_on_ctrl_c([solution])
                A = solution.A
                yield i, j, features, found.features.T @ A, solution.bias


def _grid(name: str, values: Any) -> FloatArray:
    found = np.asarray(values, dtype=np.float64)
    if found.ndim != 1 or not len(found):
        raise ValueError(f"{name} must be a list of positive numbers, got {values!r}.")
    for value in found.tolist():
        check_positive(name, value)
    return np.unique(found)
