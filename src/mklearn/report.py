"""A fitted model in words and numbers, and files that are written whole or not."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from mklearn.estimators._base import as_bank
from mklearn.kernels import KernelBank, alignment
from mklearn.kernels.normalise import fit_normaliser
from mklearn.solvers import Solution, Status

NEGLIGIBLE = 1e-4  # part of the largest weight below which a kernel does not count


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
    """Return the kernels of a fitted model in their order, with what they count."""
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
    """Tell which kernels have more than a ten-thousandth of the largest weight.

    Below that a weight says how exactly the problem was solved, not that a kernel
    matters.

    Parameters
    ----------
    weights : array of shape (n_kernels,) or (n_classes, n_kernels)
    """
    size = np.abs(np.atleast_2d(weights)).max(axis=0)
    return np.asarray(size > NEGLIGIBLE * size.max())


def widest(solutions: Any) -> Any:
    """Return the solution with the largest gap of one or several."""
    if not isinstance(solutions, list):
        return solutions
    return max(solutions, key=lambda solution: solution.gap)


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
    given = model._precomputed()
    bank = as_bank(X) if given else KernelBank(X, list(model.kernels_))
    return alignment(fit_normaliser(model.normalize, bank).train(bank))


def rows_by_view(rows: list[KernelRow]) -> dict[str | None, list[KernelRow]]:
    """Return the rows grouped by view, views in the order they appear."""
    groups: dict[str | None, list[KernelRow]] = {}
    for row in rows:
        groups.setdefault(row.view, []).append(row)
    return groups


def plain_words(solution: Solution) -> str:
    """Return what a certificate means, for readers who do not optimise."""
    if solution.status is Status.OPTIMAL:
        start = "The computation is finished, and there is a proof: with"
    else:
        start = "The computation stopped early, but it is known how far it got: with"
    return (
        f"{start} these kernels, these samples and this C, no other weights and no "
        f"other classifier could lower the training objective by more than "
        f"{100 * solution.gap:.2g} %. How well the model does on new samples is "
        "another question; that is what the cross-validated score is for."
    )


def certificate(solution: Solution) -> dict[str, Any]:
    """Return the bounds and what they say, ready for JSON."""
    return {
        "objective": solution.upper,
        "lower_bound": solution.lower,
        "relative_gap": solution.gap,
        "status": solution.status.name,
        "n_iter": solution.n_iter,
        "solver": solution.solver,
        "message": solution.message,
        "plain_words": plain_words(solution),
    }


@contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a temporary path beside ``path``; it takes its place if all goes well.

    Readers see the old file or the new one, never a part of it, and nothing is left
    behind after an error or Ctrl-C.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: str | os.PathLike[str], content: Any) -> None:
    """Write ``content`` as JSON, whole or not at all."""
    text = json.dumps(content, indent=2, allow_nan=False) + "\n"
    with whole_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
