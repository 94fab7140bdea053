"""Which targets share their kernel weights: all, none, or those of a group."""

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
    """Raise ValueError unless ``weights`` is a known word or an array of groups."""
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
    """Tell whether all targets share one set of weights."""
    return isinstance(weights, str) and weights == "shared"


def is_own(weights: Any) -> bool:
    """Tell whether each target has weights of its own."""
    return isinstance(weights, str) and weights == "per-target"


def target_groups(weights: Any, n_targets: int) -> list[Index]:
    """Return the targets of each group; each is one if weights are per target."""
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
    """What groups of targets have found, in the order of the targets.

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
        """Return the targets of all groups; ``shares`` are of the kernels in one."""
        T = sum(map(len, groups))
        A = np.empty((len(solutions[0].A), T))
        theta, parts = np.empty((T, n_kernels)), np.empty((T, n_kernels))
        bias = np.empty((*solutions[0].bias.shape[:-1], T))
        for g, (group, solution) in enumerate(zip(groups, solutions, strict=True)):
            theta[group], parts[group] = solution.theta[..., :n_kernels], shares(g)
            A[:, group], bias[..., group] = solution.A, solution.bias
        return cls(theta, parts, A, bias)


def spread_solution(solution: Solution, fewer: FewerColumns) -> Solution:
    """Return the solution of the targets that some columns stand for."""
    return replace(
        solution,
        A=fewer.spread(solution.A),
        dual=fewer.spread(solution.dual),
        bias=fewer.spread(solution.bias),
    )
