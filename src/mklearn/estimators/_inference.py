"""Table of weights with intervals, p-values and selection frequencies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm
from sklearn.base import is_classifier

from mklearn.data.spelling import plural
from mklearn.estimators._targets import target_indices


def inference_columns(
    model: Any,
    tests: Any = None,
    stability: Any = None,
    *,
    level: float = 0.95,
    control: str = "holm",
    profile: Any = None,
    selection: Any = None,
    targets: Any = None,
) -> dict[str, Any]:
    """Return the columns of ``inference_frame`` of a fitted model.

    Parameters
    ----------
    model : fitted estimator
    tests : KernelTests or sequence of KernelTests, optional
    stability : WeightStability, optional
    level : float
    control : str
    profile : array of shape (M, 2) or (n_targets, M, 2), or mapping, optional
        Intervals that replace those of standard errors; a mapping of "share" and
        "weight" to such arrays.
    targets : sequence of int, optional
        Targets with separate weights; all by default.
    selection : CertifiedSelection, optional
    """
    if not 0 < level < 1:
        raise ValueError(f"level must be between 0 and 1, got {level!r}.")
    rows = _Rows.of(model, targets)
    each = () if tests is None else tests if _several(tests) else (tests,)
    rows.check(each, stability, selection)
    columns: dict[str, Any] = {}
    if rows.targets is not None:
        columns["target"] = np.repeat(rows.targets, len(rows.names))
    columns["kernel"] = list(rows.names) * rows.count
    weights = rows.picked(model.kernel_weights_)
    columns["weight"] = weights
    errors = _errors(model, rows.targets)
    if errors is not None:
        z = float(norm.isf((1.0 - level) / 2.0))
        ends = _ends(weights, z * np.ravel(errors.weights), np.inf)
        columns["weight_low"], columns["weight_high"] = ends
        columns["share"] = shares = np.ravel(errors.shares)
        ends = _ends(shares, z * np.ravel(errors.shares_std), 1.0)
        columns["share_low"], columns["share_high"] = ends
    else:
        tails = [(1.0 - level) / 2.0, (1.0 + level) / 2.0]
        if stability is not None:
            ends = np.quantile(stability.weights, tails, axis=0)
            columns["weight_low"], columns["weight_high"] = map(rows.picked, ends)
        columns["share"] = rows.picked(model.kernel_contributions_)
        if stability is not None:
            ends = np.quantile(stability.contributions, tails, axis=0)
            columns["share_low"], columns["share_high"] = map(rows.picked, ends)
    for of, ends in _intervals(profile, len(rows.names), rows.count).items():
        columns[f"{of}_low"], columns[f"{of}_high"] = ends
    if each:
        columns["p"] = np.concatenate([one.p_values for one in each])
        adjusted = np.concatenate([one.adjusted(control) for one in each])
        columns[f"p_{control}"] = adjusted
    if stability is not None:
        columns["selected"] = rows.picked(stability.selection_frequency)
    if selection is not None:
        if not np.array_equal(selection.weights, model.kernel_weights_):
            raise ValueError(
                "selection is that of other weights than those of the model; compute "
                "it with certified_selection(model, X, y)."
            )
        columns["proved"] = list(selection.states)
    return columns


@dataclass(frozen=True)
class _Rows:
    """The rows of a table: kernels, for each of some targets.

    Attributes
    ----------
    names : tuple of str
    targets : array or None
        None if all targets share their weights.
    """

    names: tuple[str, ...]
    targets: NDArray[np.intp] | None

    @classmethod
    def of(cls, model: Any, targets: Any) -> _Rows:
        """Return the rows of a model; raise ValueError if it has none."""
        names = tuple(model.kernel_names_)
        if np.ndim(model.kernel_weights_) == 1:
            if targets is not None:
                raise ValueError(
                    "targets= is for targets with separate weights, but this model has "
                    "one set of weights; leave it out."
                )
            return cls(names, None)
        if is_classifier(model):
            raise ValueError(
                "Each class has its own kernel weights; use weights_frame() and "
                "weight_stability(...).to_frame() for each class."
            )
        T = len(model.kernel_weights_)
        return cls(names, target_indices(range(T) if targets is None else targets, T))

    @property
    def count(self) -> int:
        """Number of sets of weights."""
        return 1 if self.targets is None else len(self.targets)

    def picked(self, values: Any) -> Any:
        """Return values (M,) or (T, M) in the order of the rows."""
        return values if self.targets is None else np.ravel(values[self.targets])

    def check(self, tests: Any, stability: Any, selection: Any) -> None:
        """Raise ValueError if what is given has other kernels or targets."""
        known = [("tests", one.names) for one in tests]
        if stability is not None:
            known.append(("stability", stability.kernel_names))
        if selection is not None:
            known.append(("selection", selection.names))
        for what, names in known:
            if tuple(names) != self.names:
                raise ValueError(
                    f"{what} refer to other kernels than those of the model "
                    f"({', '.join(names[:3])}, ...); compute them with the same "
                    "kernels."
                )
        if tests and len(tests) != self.count:
            raise ValueError(
                f"tests has the tests of {plural(len(tests), 'target')}, but the table "
                f"has {plural(self.count, 'target')}; give a list with the KernelTests "
                "of each, or choose targets=."
            )


def _several(tests: Any) -> bool:
    return isinstance(tests, (list, tuple))


def _errors(model: Any, targets: Any) -> Any:
    """Return the standard errors of a model, None if it never has any."""
    if not hasattr(type(model), "weight_errors_"):
        return None
    if targets is None:
        return model.weight_errors_
    try:
        return model.errors_of_targets(targets)
    except AttributeError as error:  # they were not kept
        raise ValueError(str(error)) from None


def _intervals(profile: Any, M: int, count: int) -> dict[str, Any]:
    """Return the ends of given intervals, by what they are of."""
    if profile is None:
        return {}
    given = profile if isinstance(profile, Mapping) else {"share": profile}
    found = {}
    shapes = [(M, 2), (1, M, 2)] if count == 1 else [(count, M, 2)]
    for of, ends in given.items():
        shape = np.shape(ends)
        if of not in ("share", "weight") or shape not in shapes:
            needed = shapes[0]
            raise ValueError(
                f"profile needs intervals of shape {needed} for 'share' or 'weight', "
                f"as returned by profile_intervals, got shape {shape} for {of!r}."
            )
        found[of] = np.asarray(ends, dtype=np.float64).reshape(-1, 2).T
    return found


def _ends(value: Any, half: Any, most: float) -> tuple[Any, Any]:
    """Return the ends of intervals, clipped to the possible range."""
    return np.maximum(value - half, 0.0), np.minimum(value + half, most)
