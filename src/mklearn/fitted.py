"""Facts about a fitted model: its kernels, their importance, and its solutions.

Comparisons, figures, reports and the command line all start from here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from mklearn.estimators._predictor import as_bank
from mklearn.kernels import KernelBank, alignment
from mklearn.kernels.normalise import fit_normaliser

NEGLIGIBLE = 1e-4  # fraction of the largest weight below which a kernel does not count


@dataclass(frozen=True)
class KernelRow:
    """One kernel of a fitted model; with weights per class the means over classes."""

    name: str
    view: str | None
    parameters: dict[str, Any]
    weight: float
    contribution: float
    used: bool

    @property
    def short_name(self) -> str:
        """The name without the view."""
        return self.name.removeprefix(f"{self.view}:")


def kernel_rows(model: Any) -> list[KernelRow]:
    """Return the kernels of a fitted model in order, with their weights and shares."""
    check_is_fitted(model)
    weights = np.atleast_2d(model.kernel_weights_).mean(axis=0)
    shares = np.atleast_2d(model.kernel_contributions_).mean(axis=0)
    return [
        KernelRow(
            name,
            None if kernel is None else kernel.view,
            {} if kernel is None else kernel.parameters(),
            float(weight),
            float(share),
            bool(counts),
        )
        for name, kernel, weight, share, counts in zip(
            model.kernel_names_,
            model.kernels_,
            weights,
            shares,
            used_kernels(model.kernel_weights_),
            strict=True,
        )
    ]


def used_kernels(weights: ArrayLike) -> NDArray[np.bool_]:
    """Return which kernels have more than a ten-thousandth of the largest weight.

    Smaller weights reflect the accuracy of the solution rather than the importance of a
    kernel.

    Parameters
    ----------
    weights : array of shape (n_kernels,) or (n_classes, n_kernels)
    """
    size = np.abs(np.atleast_2d(weights)).max(axis=0)
    return np.asarray(size > NEGLIGIBLE * size.max())


def rows_by_view(rows: Sequence[KernelRow]) -> dict[str | None, list[KernelRow]]:
    """Return the rows grouped by view, views in the order they appear."""
    groups: dict[str | None, list[KernelRow]] = {}
    for row in rows:
        groups.setdefault(row.view, []).append(row)
    return groups


def kernels_by_view(
    names: Sequence[str], kernels: Sequence[Any]
) -> dict[str, list[int]]:
    """Return the indices of the kernels that use the same view or columns.

    Parameters
    ----------
    names : sequence of str
        ``kernel_names_`` of a fitted model.
    kernels : sequence of Kernel or None
        ``kernels_`` of it.
    """
    groups: dict[str, list[int]] = {}
    for m, (name, kernel) in enumerate(zip(names, kernels, strict=True)):
        if kernel is None:  # a given Gram matrix, whose columns are unknown
            key = name
        elif kernel.view is not None:
            key = kernel.view
        else:
            key = kernel.at_place("columns") if kernel.columns is not None else "X"
        groups.setdefault(key, []).append(m)
    return groups


def kernel_groups(
    names: tuple[str, ...], kernels: tuple[Any, ...], by: str
) -> dict[str, list[int]]:
    """Return the kernels that go together, by name."""
    if by == "kernel":
        return {name: [m] for m, name in enumerate(names)}
    if by != "view":
        raise ValueError(f"by must be 'kernel' or 'view', got {by!r}.")
    return kernels_by_view(names, kernels)


def kernel_alignment(model: Any, X: Any) -> NDArray[np.float64]:
    """Return the centred alignment of the kernels of a fitted model on some samples.

    Parameters
    ----------
    model : fitted estimator
    X : as in ``fit``; with precomputed kernels square ones

    Returns
    -------
    array of shape (n_kernels, n_kernels)
    """
    check_is_fitted(model)
    given = isinstance(model.kernels, str) and model.kernels == "precomputed"
    bank = as_bank(X) if given else KernelBank(X, list(model.kernels_))
    return alignment(fit_normaliser(model.normalize, bank).train(bank))


def proofs(model: Any) -> list[Any]:
    """Return the solutions with bounds behind a fitted model, one for each problem.

    The list is empty if the weights do not come from a problem with bounds.
    """
    if hasattr(model, "evidence_"):
        return []
    found = getattr(model, "solution_", [])
    return found if isinstance(found, list) else [found]


def widest(solutions: Any) -> Any:
    """Return the solution with the largest gap of one or several."""
    if not isinstance(solutions, list):
        return solutions
    return max(solutions, key=lambda solution: solution.gap)
