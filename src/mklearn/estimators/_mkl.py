"""Estimators that solve an MKL problem: loss x norm, solved and kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from numbers import Integral, Real
from typing import Any, Literal

import numpy as np
from sklearn.utils import check_random_state

from mklearn.data.blocks import ArrayBlocks, Block, Blocks
from mklearn.data.checks import check_enough, check_weight
from mklearn.data.reading import as_blocks
from mklearn.data.threads import factor_threads
from mklearn.estimators._base import (
    BaseKernelMachine,
    Training,
    _merge_equal,
)
from mklearn.estimators._features import (
    SAMPLE,
    FeatureModel,
    FeatureTraining,
    Gathered,
    block_rows,
    check_approximation,
    check_size,
    contributions,
    room,
    sample_rows,
    weights_of,
)
from mklearn.kernels import KernelBank, MultiView
from mklearn.kernels.feature_map import FeatureMap, Scaling
from mklearn.problems import Ellipsoid, LpBall, MKLProblem
from mklearn.problems.losses import Loss, loss_names
from mklearn.problems.passes import FeatureProblem
from mklearn.problems.reduction import Reduced
from mklearn.problems.statistics import Statistics
from mklearn.problems.weights import WeightSet
from mklearn.solvers import Iterate, Solution, solve
from mklearn.solvers.registry import choose_solver


class BaseMKL(BaseKernelMachine):
    """A kernel machine whose weights and coefficients solve an MKL problem.

    Subclasses have the parameters of :class:`BaseKernelMachine` and ``norm``,
    ``solver``, ``tol``, ``max_iter``, ``time_limit``, ``callback`` and ``verbose``.
    """

    def _learn(
        self,
        training: Training,
        losses: Sequence[Loss],
        bank: KernelBank | None = None,
        start: Iterate | None = None,
    ) -> list[Solution]:
        """Solve for each loss, with weights of its own, and store the model.

        Parameters
        ----------
        training : Training
        losses : one for all tasks, or one for each
        bank : KernelBank, optional
            The training bank and, behind its kernels, others that only training knows.
        start : Iterate, optional
            Where to start from.
        """
        M = training.raw.shape[2]
        bank = training.bank if bank is None else bank
        solutions = [self._solve(bank, loss, start) for loss in losses]
        theta = np.stack([s.theta[:M] for s in solutions])
        shares = np.stack(
            [
                MKLProblem(training.bank, loss, self._weights()).contributions(
                    s.theta[:M], s.A
                )
                for loss, s in zip(losses, solutions, strict=True)
            ]
        )
        A = np.column_stack([s.A for s in solutions])
        one = len(solutions) == 1
        self.solution_ = solutions[0] if one else solutions
        self._keep(
            training,
            theta[0] if one else theta,
            A,
            np.concatenate([s.bias for s in solutions]),
        )
        self.kernel_contributions_ = shares[0] if one else shares
        self.duality_gap_ = max(s.gap for s in solutions)
        self.n_iter_ = max(s.n_iter for s in solutions)
        return solutions

    def _solve(
        self, bank: KernelBank, loss: Loss, start: Iterate | None = None
    ) -> Solution:
        return solve(
            MKLProblem(bank, loss, self._weights()),
            self.solver,
            tol=self.tol,
            max_iter=self.max_iter,
            time_limit=self.time_limit,
            callback=self.callback,
            verbose=self.verbose,
            start=start,
        )

    # --- in feature space -------------------------------------------------------------

    def _feature_training(self, X: Any, y: Any, sample_weight: Any) -> FeatureTraining:
        """Return the rows in blocks, and the map to features that they are given."""
        self._require_samples()
        blocks = as_blocks(X, y, sample_weight)
        if blocks is not None:
            return self._stream(blocks)
        data, names = self._validate(X)
        check_enough(data.shape[0])
        weight = check_weight(sample_weight, data.shape[0])
        target = self._target(y, weight)
        index, _, weight = _merge_equal(data, target, weight)
        data = data[index]
        # the sample that blocks of the same rows would give: the same features
        sample = sample_rows(Block(data, None, weight), self._sample(), self._seed())
        features = self._feature_map(as_views(sample.X, names), sample.weight)
        rows = ArrayBlocks(
            as_views(data, names),
            target[index],
            weight,
            rows=block_rows(features.n_features),
        )
        return FeatureTraining(rows.keeping(self._room()), features)

    def _require_samples(self) -> None:
        if self._precomputed():
            raise ValueError(
                "approximation= makes features of samples, and kernels='precomputed' "
                "has none; give kernels, or approximation=None."
            )

    def _stream(self, blocks: Blocks) -> FeatureTraining:
        """Return blocks from elsewhere with checked targets, and their features."""
        self._require_samples()
        blocks = blocks.keeping(self._room())
        sample = blocks.reduce(
            partial(sample_rows, size=self._sample(), seed=self._seed())
        )
        check_enough(sample.n_rows)
        names = blocks.names
        data = as_views(sample.X, names)
        self.n_features_in_ = data.shape[1]
        self._keep_names(names)
        rows = self._block_targets(blocks)
        return FeatureTraining(rows, self._feature_map(data, sample.weight))

    def _keep_names(self, names: Any) -> None:
        """Store the names of the columns, or forget those of an earlier fit."""
        if names is not None:
            self.feature_names_in_ = np.asarray(names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    def _block_targets(self, blocks: Any) -> Any:
        """Return the blocks with targets as ``_target`` makes them."""
        return blocks

    def _room(self) -> int:
        """Return the bytes for features that later passes need again."""
        return room(self.memory_limit) if self._not_quadratic() else 0

    def _not_quadratic(self) -> str:
        """Return what it is that sums over one pass are not enough for, if any."""
        return "this loss"

    def _sample(self) -> int:
        """Return how many rows features are chosen on."""
        return SAMPLE if self.rank < 1 else max(SAMPLE, 10 * int(self.rank))

    def _seed(self) -> int:
        if isinstance(self.random_state, Integral):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _feature_map(self, data: Any, weight: Any) -> FeatureMap:
        with factor_threads(int(self.rank)):
            features = FeatureMap.fit(
                data,
                self.kernels,
                approximation=self.approximation,
                rank=self.rank,
                landmarks=self.landmarks,
                sample_weight=weight,
                random_state=self._seed(),
                spherical=self.normalize == "spherical",
                psd=self.psd,
            )
        check_size(features)
        return features

    def _learn_features(
        self,
        features: FeatureMap,
        rows: Any,
        found: Gathered,
        loss: Any,
        C: float,
        tasks: Sequence[slice] = (slice(None),),
    ) -> list[Solution]:
        """Solve for each set of tasks, with weights of its own, and store the model.

        Parameters
        ----------
        features : FeatureMap
        rows : Blocks
            Of features, targets and costs.
        found : Gathered
            Statistics of these.
        loss : Pointwise, or None for the squared loss
        C : float
        tasks : sequence of slice
        """
        moments = found.moments
        scaling = Scaling.fit(
            self.normalize, features, moments.total, moments.mean, moments.scatter
        )
        solve_one = self._by_statistics if loss is None else self._by_passes
        solutions = solve_one(features, rows, found.statistics, scaling, loss, C, tasks)
        slices = features.slices
        theta = np.stack([s.theta for s in solutions])
        shares = [contributions(s.theta, s.A, slices) for s in solutions]
        w = np.column_stack([weights_of(s.theta, s.A, slices) for s in solutions])
        one = len(solutions) == 1
        self.solution_ = solutions[0] if one else solutions
        self.intercept_ = np.concatenate([s.bias for s in solutions])
        self.kernel_weights_ = theta[0] if one else theta
        self.kernel_contributions_ = shares[0] if one else np.stack(shares)
        self.duality_gap_ = max(s.gap for s in solutions)
        self.n_iter_ = max(s.n_iter for s in solutions)
        self._keep_features(features, scaling, theta, w)
        return solutions

    def _keep_features(
        self, features: FeatureMap, scaling: Scaling, theta: Any, w: Any
    ) -> None:
        """Store what prediction needs."""
        self.kernel_names_, self.kernels_ = features.names, features.kernels
        self.approximation_error_ = features.error
        self._model = FeatureModel.of(features, scaling, theta, w)

    def _by_statistics(
        self, features: FeatureMap, rows: Any, statistics: Statistics,
        scaling: Scaling, loss: Any, C: float, tasks: Sequence[slice],
    ) -> list[Solution]:  # fmt: skip
        """Solve for the squared loss from statistics alone."""
        memory = room(self.memory_limit)
        reduced = Reduced.of(
            statistics, scaling, features.slices, features.names, memory
        )
        out = []
        for which in tasks:
            problem = reduced.squared(C, self._weights(), which)
            solution = self._run(problem)
            A = reduced.dual(solution.A)
            w = weights_of(solution.theta, A, features.slices)
            part = statistics.with_targets(np.eye(len(statistics.target))[:, which])
            bias = reduced.bias(part, scaling, w)
            dual = reduced.dual(solution.dual)
            out.append(replace(solution, A=A, dual=dual, bias=bias))
        return out

    def _by_passes(
        self, features: FeatureMap, rows: Any, statistics: Statistics,
        scaling: Scaling, loss: Any, C: float, tasks: Sequence[slice],
    ) -> list[Solution]:  # fmt: skip
        """Solve for a loss that needs passes over the rows."""
        out = []
        for which in tasks:
            part = statistics.with_targets(np.eye(len(statistics.target))[:, which])
            problem = FeatureProblem(
                rows, loss, C, self._weights(), features.slices, scaling, part, which
            )
            out.append(
                solve(
                    problem,
                    choose_solver(self.solver, problem),
                    tol=self.tol,
                    max_iter=self.max_iter,
                    time_limit=self.time_limit,
                    callback=self.callback,
                    verbose=self.verbose,
                )
            )
        return out

    def _run(self, problem: MKLProblem, start: Iterate | None = None) -> Solution:
        """Solve a problem of pseudo-samples; they are no samples to choose from."""
        solver = choose_solver(self.solver, problem, samples=False)
        return self._solved(problem, solver, start)

    def _solved(
        self, problem: MKLProblem, solver: Any, start: Iterate | None
    ) -> Solution:
        return solve(
            problem,
            solver,
            tol=self.tol,
            max_iter=self.max_iter,
            time_limit=self.time_limit,
            callback=self.callback,
            verbose=self.verbose,
            start=start,
        )

    def _weights(self) -> WeightSet:
        """Return the set of the kernel weights."""
        return weight_set(self.norm)

    def _check_parameters(self) -> None:
        weight_set(self.norm)
        if hasattr(self, "approximation"):
            check_approximation(self.approximation, self.rank, self.landmarks)
        check_limits(self)


def as_views(data: Any, names: Any) -> MultiView:
    """Return a table as the one view of a MultiView."""
    if isinstance(data, MultiView):
        return data
    return MultiView.from_table(data, names)


def weight_set(norm: Any) -> WeightSet:
    """Return the set that a number, a matrix or a weight set stands for."""
    if isinstance(norm, Real):
        return LpBall(float(norm))
    if hasattr(norm, "support") and not isinstance(norm, type):
        return norm
    if isinstance(norm, (np.ndarray, list)) and np.ndim(norm) == 2:
        return Ellipsoid(np.asarray(norm))
    raise ValueError(
        "norm must be a number p >= 1 or inf, a positive definite matrix or a weight "
        f"set, got {norm!r}."
    )


def check_loss(name: Any, targets: Literal["labels", "numbers"]) -> None:
    """Raise ValueError unless there is such a loss for labels, or for numbers."""
    known = loss_names(targets)
    if not isinstance(name, str) or name not in known:
        *others, last = map(repr, known)
        raise ValueError(f"loss must be {', '.join(others)} or {last}, got {name!r}.")


def check_limits(model: Any) -> None:
    """Raise ValueError unless ``tol``, ``max_iter`` and ``time_limit`` are positive."""
    check_positive("tol", model.tol)
    if not model.max_iter >= 1:
        raise ValueError(f"max_iter must be at least 1, got {model.max_iter!r}.")
    if model.time_limit is not None and not model.time_limit > 0:
        raise ValueError(f"time_limit must be positive, got {model.time_limit!r}.")


def check_positive(name: str, value: Any, otherwise: str = "") -> float:
    """Return a parameter that must be a positive number."""
    if not (isinstance(value, Real) and np.isfinite(value) and value > 0):
        raise ValueError(f"{name} must be a positive number{otherwise}, got {value!r}.")
    return float(value)
