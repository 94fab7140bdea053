"""Discriminant analysis on Gram matrices and on features, with a common result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky

from mklearn.estimators._training import FeatureTraining, GramTraining
from mklearn.problems import MKLProblem
from mklearn.problems.base import shares
from mklearn.problems.discriminant import (
    ALONE,
    FLOOR,
    class_targets,
    gcv,
    joint_reg,
    kfda,
    label_targets,
    least_squares,
    left_out,
    left_out_rows,
    press,
    rkda,
    rkda_joint,
    targets_of_indicators,
    within_scatter,
)
from mklearn.problems.losses import Squared
from mklearn.problems.protocols import System
from mklearn.problems.pseudo_samples import (
    Reduced,
    by_kernel,
    feature_shares,
    weights_of,
)
from mklearn.problems.weights import WeightSet
from mklearn.solvers import Iterate, Solution
from mklearn.solvers.inner import LinearSolver

FloatArray = NDArray[np.float64]
Solve = Callable[[Any, Iterate | None], Solution]

_LEFT_OUT = 20_000  # at least this many rows, if available, are left out one by one


@dataclass(frozen=True)
class Model:
    """The least-squares model on a weighted sum of kernels, and its statistics.

    Attributes
    ----------
    theta : array of shape (M,)
    reg : float
    A, F : arrays of shape (n, T)
        Coefficients and scores on the samples, or on pseudo-samples.
    targets : array of shape (n, T)
    balance : array of shape (n,)
        Effective weights of the samples: their weights, or class shares.
    coef : array
        Coefficients of the predictor: A, or ``A_m`` in the coordinates of the features.
    means : array of shape (k, T)
        Mean scores of each class, or of the samples with each label.
    within, total : arrays of shape (T, T)
        Within-class scatter and total scatter of the scores.
    size : float
        Total effective weight of the samples.
    effects : array of shape (1 + k, T) or None
        Effects of ones and covariates on the scores, if there are covariates.
    """

    theta: FloatArray
    reg: float
    A: FloatArray
    F: FloatArray
    targets: FloatArray
    balance: FloatArray
    coef: FloatArray
    means: FloatArray
    within: FloatArray
    total: FloatArray
    size: float
    effects: FloatArray | None

    @property
    def stiff(self) -> FloatArray:
        """``reg A'G A``, the regularisation term of the scatter, shape (T, T)."""
        return np.asarray(self.reg * self.A.T @ self.F)


@dataclass(frozen=True)
class Fit(Model):
    """A model, the solved problem of its kernel weights, and left-out samples.

    Attributes
    ----------
    problem, solution
        The problem of the kernel weights, and its solution.
    out, labels, weight
        Scores of left-out samples, their classes or labels, and their weights.
    press, gcv : float
    """

    problem: MKLProblem
    solution: Solution
    out: FloatArray
    labels: NDArray[Any]
    weight: FloatArray
    press: float
    gcv: float


class GramSpace:
    """Discriminant analysis on the kernels between all samples.

    Parameters
    ----------
    training : GramTraining
    n_classes : int
    exclusive : bool
        Whether each sample has exactly one class.
    criterion : {"rkda", "kfda"}
    """

    def __init__(
        self, training: GramTraining, n_classes: int, exclusive: bool, criterion: str
    ) -> None:
        self.training, self.n_classes = training, n_classes
        self.exclusive, self.criterion = exclusive, criterion
        w, target = training.weight, training.target
        self.size = float(w.sum())
        self.counts = training.counts(n_classes) if exclusive else w @ target

    def problem(self, reg: Any, weights: WeightSet) -> MKLProblem:
        """Return the problem of the kernel weights."""
        training = self.training
        bank, target, w = training.bank, training.target, training.weight
        if self.criterion == "kfda":
            if not self.exclusive or self.n_classes > 2:
                kind = "multiclass" if self.exclusive else "multilabel-indicator"
                raise ValueError(
                    "Only binary classification is supported. The type of the target "
                    f"is {kind}; use criterion='rkda'."
                )
            if training.beside is not None:
                raise ValueError(
                    "criterion='kfda' does not support covariates; use "
                    "criterion='rkda', which is least squares with class targets."
                )
            return kfda(bank, target, float(reg), weights, w)
        if self.exclusive:
            H = class_targets(target, self.n_classes, w)
        else:
            H = label_targets(target, w)
        if isinstance(reg, str):
            made = rkda_joint(bank, H, weights, w)
        else:
            made = rkda(bank, H, float(reg), weights, w)
        assert isinstance(made.loss, Squared)
        return replace(made, loss=replace(made.loss, design=training.beside))

    def fit(
        self, reg: Any, weights: WeightSet, solve: Solve, start: Iterate | None = None
    ) -> Fit:
        """Solve for one reg, then the least-squares model on the combined kernel."""
        training, w = self.training, self.training.weight
        problem = self.problem(reg, weights)
        solution = solve(problem, start)
        theta = solution.theta[: training.bank.shape[2]]
        if isinstance(reg, str):
            reg = joint_reg(solution.theta, self.size)
        model, linear = self._model(problem, theta, float(reg))
        system, A, beside = linear.system, model.A, training.beside
        inverse = linear.inverse_diagonal()
        out = left_out(system.right, A, inverse)
        mean = np.mean(system.right - system.ridge[:, None] * A - model.F, axis=0)
        if beside is not None:
            mean = np.zeros_like(mean)  # the constant is part of the scores
            # no prediction for samples with a covariate that no other sample has
            out[np.sum(beside.basis**2, axis=1) > ALONE] = 0.0
        return Fit(
            **vars(model),
            problem=problem,
            solution=solution,
            out=out - mean,
            labels=training.target,
            weight=w,
            press=press(system.right, out, w),
            gcv=gcv(A, inverse, system.ridge, w),
        )

    def alone(self, reg: float, weights: WeightSet) -> Model:
        """Return the model on a single kernel, whose weight needs no solution."""
        problem = self.problem(reg, weights)
        return self._model(problem, problem.center(), reg)[0]

    def _model(
        self, problem: MKLProblem, theta: FloatArray, reg: float
    ) -> tuple[Model, LinearSolver]:
        """Return the model for given weights, and the solver of its linear system."""
        training = self.training
        bank, target, w = training.bank, training.target, training.weight
        system = least_squares(problem, reg, w)
        linear = LinearSolver(bank, system, theta)
        A, F = linear.best(theta)
        beside, effects = training.beside, None
        if beside is not None:  # covariates and the constant are part of the scores
            rest = system.right - system.ridge[:, None] * A - F
            effects, F = beside.effects(beside.basis.T @ rest), F + rest
        balance = reg / system.ridge
        total = F.T @ (balance[:, None] * F)
        if self.exclusive:
            means, within = within_scatter(F, target, balance)
        else:
            means = (target * w[:, None]).T @ F / self.counts[:, None]
            within = total
        model = Model(
            theta=theta,
            reg=reg,
            A=A,
            F=F,
            targets=system.right,
            balance=balance,
            coef=A,
            means=means,
            within=within,
            total=total,
            size=float(balance.sum()),
            effects=effects,
        )
        return model, linear

    def shares(self, fit: Fit) -> FloatArray:
        """Return each kernel's share in the scores."""
        return shares(fit.theta * self.training.bank.quad(fit.A))

    def shown(self, fit: Fit) -> Solution:
        """Return the solution, in the coordinates of the samples."""
        return fit.solution


class FeatureSpace:
    """Discriminant analysis from statistics of features and of class indicators.

    Parameters
    ----------
    training : FeatureTraining
        Its targets are indicators of the k classes or labels. Without rows there are no
        leave-one-out scores, and ``out`` is empty.
    exclusive : bool
        Whether each sample has exactly one class.
    """

    def __init__(self, training: FeatureTraining, exclusive: bool) -> None:
        self.training, self.exclusive = training, exclusive
        self.features, self.rows = training.features, training.passes
        self.statistics, self.scaling = training.statistics, training.scaling
        self.size = self.statistics.total
        share = self.statistics.target
        self.counts = self.size * share
        self.B = targets_of_indicators(share, self.size, exclusive)
        root = self.scaling.root
        rest, self.beside = self.statistics.apart(training.free)
        self.scatter = root[:, None] * rest.ZZ * root
        # class means of the centred features, with covariates regressed out
        self.means = root[:, None] * rest.ZH / self.counts
        D = len(root)
        self.spread = self.statistics.ZZ[D:, D:]
        # regression of the targets on covariates, and class means of these
        self.told = self.beside.effects @ self.B
        self.middles = self.statistics.ZH[D:] / self.counts

    @cached_property
    def reduced(self) -> Reduced:
        """Pseudo-samples with the targets of the criterion."""
        return Reduced.of(
            self.statistics.with_targets(self.B),
            self.scaling,
            self.features.slices,
            self.features.names,
            self.training.memory,
            self.training.free,
        )

    def fit(
        self, reg: Any, weights: WeightSet, solve: Solve, start: Iterate | None = None
    ) -> Fit:
        """Solve for one reg, then the least-squares model on the combined kernel."""
        reduced = self.reduced
        bank, T = reduced.bank, reduced.targets
        if isinstance(reg, str):
            each = np.full(len(T), 1.0 / self.size)
            problem = rkda(bank.with_diagonal(each), T, FLOOR / self.size, weights)
        else:
            problem = rkda(bank, T, float(reg), weights)
        solution = solve(problem, start)
        theta = solution.theta[: bank.shape[2]]
        if isinstance(reg, str):
            reg = joint_reg(solution.theta, self.size)
        ridge = np.full(len(T), float(reg))
        system = System(ridge, T, np.zeros((len(T), 0)), np.zeros((0, T.shape[1])))
        linear = LinearSolver(bank, system, theta)
        A, F = linear.best(theta)
        free = self.training.free
        freedom = 1.0 + free + float(np.sum(1.0 - reg * linear.inverse_diagonal()))
        error = reg**2 * float(np.sum(A**2)) / self.size
        coef = reduced.dual(A)
        w = weights_of(theta, coef, self.features.slices)
        H, out, labels, weight = self._left_out(theta, w, float(reg))
        means, total = self.means.T @ w, w.T @ self.scatter @ w
        effects = None
        if free:
            # scores are the regression on covariates plus that of the rest on kernels
            means = means + self.middles.T @ self.told
            total = total + self.told.T @ self.spread @ self.told
            along = cholesky(self.spread, lower=True).T @ self.told
            F, T = np.vstack([F, along]), np.vstack([T, along])
            A = np.vstack([A, np.zeros_like(along)])
            assert reduced.beside is not None
            own = self.told - reduced.beside.along @ w
            effects = np.vstack([-reduced.beside.mean @ own, own])
        return Fit(
            problem=problem,
            solution=solution,
            theta=theta,
            reg=float(reg),
            A=A,
            F=F,
            targets=T,
            balance=np.ones(len(F)),
            coef=coef,
            means=means,
            within=total - means.T @ (self.counts[:, None] * means),
            total=total,
            size=self.size,
            out=out,
            labels=labels.argmax(axis=1) if self.exclusive else labels,
            weight=weight,
            press=press(H, out, weight) if len(H) else np.nan,
            gcv=error / max(1.0 - freedom / self.size, 1e-150) ** 2,
            effects=effects,
        )

    def _left_out(
        self, theta: FloatArray, w: FloatArray, reg: float
    ) -> tuple[FloatArray, FloatArray, NDArray[Any], FloatArray]:
        """Return targets, left-out scores, indicators and weights of some rows."""
        if self.rows is None:
            none = np.zeros((0, w.shape[1]))
            return none, none, np.zeros((0, len(self.counts))), np.zeros(0)
        root = np.sqrt(by_kernel(theta, self.features.slices))
        used = np.flatnonzero(root)
        matrix = root[used, None] * self.scatter[np.ix_(used, used)] * root[used]
        matrix[np.diag_indices_from(matrix)] += reg
        parts = self.rows.map(
            partial(
                left_out_rows,
                scaling=self.scaling,
                w=w,
                root=root,
                factor=cholesky(matrix, lower=True, check_finite=False),
                B=self.B,
                target=self.statistics.target,
                total=self.size,
                beside=replace(self.beside, effects=self.told),
                stride=max(1, self.statistics.n // _LEFT_OUT),
            )
        )
        H, out, labels, weight = (
            np.concatenate(part) for part in zip(*parts, strict=True)
        )
        return H, out, labels, weight

    def shares(self, fit: Fit) -> FloatArray:
        """Return each kernel's share in the scores."""
        return feature_shares(fit.theta, fit.coef, self.features.slices)

    def shown(self, fit: Fit) -> Solution:
        """Return the solution, in the coordinates of the features."""
        found = fit.solution
        A, dual = self.reduced.dual(found.A), self.reduced.dual(found.dual)
        return replace(found, A=A, dual=dual)


def space_of(
    training: GramTraining | FeatureTraining, exclusive: bool, criterion: str
) -> GramSpace | FeatureSpace:
    """Return the analysis for the representation of a training set."""
    if isinstance(training, GramTraining):
        return GramSpace(training, training.Y.shape[1], exclusive, criterion)
    return FeatureSpace(training, exclusive)
