"""Groups of targets that share kernel weights: all, none, or given groups."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mklearn.problems.targets import FewerColumns
from mklearn.solvers import Solution

FloatArray = NDArray[np.float64]
Index = NDArray[np.intp]


def check_weights(weights: Any) -> None:
    """Raise ValueError unless ``weights`` is a known option or an array of groups."""
    if isinstance(weights, str):
        if weights not in ("shared", "per-target"):
            raise ValueError(
                "weights must be 'shared', 'per-target' or an array with the group of "
                f"each target, got {weights!r}."
            )
    elif np.ndim(weights) != 1:
        raise ValueError(
            "weights must be 'shared', 'per-target' or an array with the group of each "
            f"target, of shape (n_outputs,), got shape {np.shape(weights)}."
        )


def is_shared(weights: Any) -> bool:
    """Return whether all targets share their weights."""
    return isinstance(weights, str) and weights == "shared"


def is_own(weights: Any) -> bool:
    """Return whether each target has its own weights."""
    return isinstance(weights, str) and weights == "per-target"


def target_groups(weights: Any, n_targets: int) -> list[Index]:
    """Return the targets of each group; with weights per target, one in each."""
    if is_own(weights):
        return [np.arange(t, t + 1) for t in range(n_targets)]
    labels = np.asarray(weights)
    if len(labels) != n_targets:
        raise ValueError(
            f"weights gives the groups of {len(labels)} targets, but y has {n_targets} "
            "columns; give one group for each column."
        )
    _, number = np.unique(labels, return_inverse=True)
    return [np.flatnonzero(number == g) for g in range(number.max() + 1)]


@dataclass(frozen=True)
class Assembled:
    """The solutions of groups of targets, in the order of the targets.

    Attributes
    ----------
    theta, shares : arrays of shape (T, M)
    A : array of shape (n, T)
    bias : array of shape (T,), or (q, T) with covariates
    """

    theta: FloatArray
    shares: FloatArray
    A: FloatArray
    bias: FloatArray

    @classmethod
    def of(
        cls,
        groups: Sequence[Index],
        solutions: Sequence[Solution],
        shares: Callable[[int], FloatArray],
        n_kernels: int,
    ) -> Assembled:
        """Return the solutions of all groups; ``shares(g)`` are those of group g."""
        T = sum(map(len, groups))
        A = np.empty((len(solutions[0].A), T))
        theta, parts = np.empty((T, n_kernels)), np.empty((T, n_kernels))
        bias = np.empty((*solutions[0].bias.shape[:-1], T))
        for g, (group, solution) in enumerate(zip(groups, solutions, strict=True)):
            theta[group], parts[group] = solution.theta[..., :n_kernels], shares(g)
            A[:, group], bias[..., group] = solution.A, solution.bias
        return cls(theta, parts, A, bias)


def spread_solution(solution: Solution, fewer: FewerColumns) -> Solution:
    """Return the solution of all targets from that of the reduced columns."""
    return replace(
        solution,
        A=fewer.spread(solution.A),
        dual=fewer.spread(solution.dual),
        bias=fewer.spread(solution.bias),
    )
