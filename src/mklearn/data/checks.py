"""Validation of samples, targets and weights.

Errors about arrays refer to them by name (``y``, ``sample_weight``); errors about
blocks say in ``where`` which rows are meant.
"""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils import assert_all_finite, check_array, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length

from mklearn.data.containers import require_no_times
from mklearn.data.labels import is_missing, told
from mklearn.data.spelling import plural
from mklearn.data.views import MultiView

FloatArray = NDArray[np.float64]

STRATUM = "stratum"  # the field of the stratum in structured times


class NothingToLearnError(ValueError):
    """The samples contain no information about the target, so nothing can be fitted."""


# --- samples --------------------------------------------------------------------------


def check_rows(X: Any, where: str) -> tuple[Any, tuple[str, ...] | None]:
    """Return rows as float64 array, CSR matrix or views, and the column names."""
    if isinstance(X, MultiView):  # already validated
        return X.imputed(), None
    names = None
    if hasattr(X, "columns") and hasattr(X, "to_numpy"):
        names = tuple(str(c) for c in X.columns)
        strange = [
            c for c in X.columns if getattr(X[c].dtype, "kind", "O") not in "biuf"
        ]
        if strange:
            raise ValueError(
                f"{where} has values in column {strange[0]!r} that are not numeric; "
                "encode them, or exclude the column with columns=[...]."
            )
        X = X.to_numpy(dtype=np.float64, na_value=np.nan)
    if sparse.issparse(X):
        X = X.tocsr().astype(np.float64, copy=False)
        values = X.data
    else:
        try:
            X = np.asarray(X, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{where} is not a table of numbers ({error}).") from error
        values = X
    if X.ndim != 2:
        raise ValueError(
            f"{where} has samples of shape {X.shape}; they must be a table of shape "
            "(n_samples, n_columns)."
        )
    # a finite sum means finite values, and needs no copy
    if not np.isfinite(values.sum()) and not np.isfinite(values).all():
        rows, cols = (X.tocoo() if sparse.issparse(X) else X).nonzero()
        bad = ~np.isfinite(np.asarray(X[rows, cols]).ravel())
        row, col = int(rows[bad][0]), int(cols[bad][0])
        raise ValueError(
            f"{where} contains NaN or infinity, first in row {row} of the block, "
            f"column {col if names is None else names[col]!r}: a value is missing, or "
            "the file is truncated. Impute the values or drop the samples first."
        )
    return X, names


def check_enough(n: int) -> None:
    """Raise ValueError if there are fewer than two samples."""
    if n < 2:
        raise ValueError(f"Found n_samples={n}; learning needs at least 2 samples.")


def check_count(name: str, value: Any) -> int:
    """Return a parameter that must be a positive integer."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise ValueError(f"{name} must be a positive integer, got {value!r}.")
    return int(value)


# --- weights --------------------------------------------------------------------------


def check_weight(weight: Any, n: int, where: str | None = None) -> FloatArray:
    """Return the weights of ``n`` samples, ones if there are none.

    They must be finite and nonnegative. They must not all be zero, although those of a
    block may be.
    """
    if weight is None:
        return np.ones(n)
    if where is not None:
        _check_length(weight, n, "weights", where)
    weight = np.asarray(weight, dtype=np.float64)
    sound = weight.ndim == 1 and bool(np.isfinite(weight).all() and (weight >= 0).all())
    if where is not None:
        if not sound:
            raise ValueError(
                f"{where} has weights that are missing, infinite, negative or not "
                "one-dimensional; they must be finite, nonnegative numbers."
            )
        return weight
    if weight.shape != (n,):
        raise ValueError(
            f"sample_weight must have shape ({n},), one weight for each sample, got "
            f"{weight.shape}."
        )
    if not sound:
        raise ValueError("sample_weight must be finite and nonnegative.")
    if not weight.any():
        raise ValueError(
            "All values of sample_weight are zero, so there is nothing to learn; at "
            "least one must be positive."
        )
    return weight


# --- targets --------------------------------------------------------------------------


def check_given(y: Any) -> Any:
    """Return ``y``, or raise ValueError if it is None."""
    if y is None:
        raise ValueError(
            "This estimator requires y to be passed, but the target y is None."
        )
    return y


def _require_known(y: Any) -> None:
    """Raise ValueError if targets are missing, and say which and what to do."""
    if sparse.issparse(y):
        return
    if hasattr(y, "isna"):
        missing = np.asarray(y.isna())
    else:
        values = y if isinstance(y, np.ndarray) else np.asarray(y, dtype=object)
        if values.dtype.kind in "fc":
            missing = np.isnan(values)
        elif values.dtype.kind == "O":
            found = [is_missing(value) for value in values.ravel().tolist()]
            missing = np.array(found, dtype=bool).reshape(values.shape)
        else:
            return
    rows = np.flatnonzero(missing.reshape(len(missing), -1).any(axis=1))
    if len(rows):
        raise ValueError(
            f"Input y contains NaN: the target of {plural(len(rows), 'sample')} is "
            f"missing, first in row {rows[0]}. Leave out samples without one; for a "
            "MultiView and a Series, X, y = X.align(y) does so."
        )


def check_targets(y: Any, n: int, where: str) -> NDArray[Any]:
    """Return the targets of a block, labels or values, without missing ones."""
    _check_length(y, n, "targets", where)
    y = np.asarray(y)
    if y.dtype.kind in "fc":
        absent = ~np.isfinite(y)
    elif y.dtype.kind == "O":
        absent = np.array([v is None or v != v for v in y.ravel()], dtype=bool)
        if not absent.any() and {isinstance(v, str) for v in y.ravel()} == {True}:
            y = y.astype(str)
    else:
        return y
    if absent.any():
        raise ValueError(
            f"{where} lacks the target of {plural(int(absent.sum()), 'sample')} "
            "(missing, NaN or infinity); drop these samples, or check whether the file "
            "is truncated."
        )
    return y


def check_labels(
    y: Any, weight: FloatArray, who: str
) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """Return the sorted classes, and the class index of each sample.

    Parameters
    ----------
    y : array of shape (n,)
    weight : array of shape (n,)
        Validated weights; each class needs a sample with positive weight.
    who : str
        Name of the estimator that needs at least two classes.
    """
    _require_known(check_given(y))
    y = column_or_1d(y, warn=True)
    assert_all_finite(y, input_name="y")
    check_classification_targets(y)
    check_consistent_length(weight, y)
    classes, labels = np.unique(y, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(
            f"{who} needs samples of at least 2 classes, but y has only one class: "
            f"{classes.tolist()}."
        )
    missing = np.setdiff1d(np.arange(len(classes)), labels[weight > 0])
    if len(missing):
        raise ValueError(
            "All samples of these classes have weight zero: "
            f"{classes[missing].tolist()}; every class needs at least one sample with "
            "positive weight."
        )
    return classes, np.asarray(labels)


def check_indicators(Y: Any, weight: FloatArray) -> FloatArray:
    """Return indicators of labels, (n, k), none of which is constant."""
    Y = check_array(Y, accept_sparse="csr", dtype=np.float64, input_name="y")
    Y = Y.toarray() if sparse.issparse(Y) else Y
    if len(Y) != len(weight):
        raise ValueError(
            f"X has {plural(len(weight), 'sample')} but y has {len(Y)}; they must have "
            "the same number."
        )
    count = weight @ Y
    empty = np.flatnonzero((count == 0) | (count == weight.sum()))
    if len(empty):
        raise ValueError(
            "Every label needs samples with and without it, but these columns of y "
            f"are constant: {empty.tolist()}. Drop them."
        )
    return np.asarray(Y)


def check_values(y: Any, n: int, large: bool = False) -> Any:
    """Return the values of ``n`` samples, (n,) or (n, T), without negative zeros.

    With ``large``, the values are not copied and may be in single precision or in a
    memory-mapped file.
    """
    require_no_times(check_given(y), "y")
    if not large:
        _require_known(y)
    dtype = [np.float64, np.float32] if large else np.float64
    y = check_array(y, ensure_2d=False, dtype=dtype, input_name="y")
    check_consistent_length(np.empty(n), y)
    check_size(y)
    return y if large else np.asarray(y + 0.0)


def check_size(y: FloatArray) -> None:
    """Raise ValueError if values are so large that sums of their squares overflow."""
    top = max(float(y.max(initial=0.0)), -float(y.min(initial=0.0)))
    if top > 1e140:
        raise ValueError(
            f"y has values as large as {top:.2g}, whose squares overflow; divide y by "
            "a constant so that all values are below 1e140."
        )


def check_times(y: Any, n: int, needs_event: bool = True) -> FloatArray:
    """Return times, events (0 or 1) and strata of ``n`` samples, shape (n, 3).

    Parameters
    ----------
    y : structured array, or array or DataFrame of two columns
        A structured array has one boolean field, the events, and one field of times; a
        third one named "stratum", as :func:`with_strata` adds it, has the index of the
        stratum. Columns are time and event; in a DataFrame a boolean column holds the
        events, whatever its position. A single column holds times of events, none of
        them censored.
    n : int
    needs_event : bool
        Whether at least one event is required.
    """
    time, event, stratum = _times_of(check_given(y))
    check_consistent_length(np.empty(n), time)
    _require_known(time)
    _require_no_dates(np.asarray(time))
    marks = _marks(np.asarray(event))
    try:
        time = check_array(
            time, ensure_2d=False, dtype=np.float64, input_name="y",
            ensure_min_samples=0,
        )  # fmt: skip
    except ValueError as error:
        if not str(error).startswith("could not convert"):
            raise
        raise ValueError(
            f"Times must be numbers ({error}). The columns of y are time and event, in "
            "this order."
        ) from error
    if (time < 0).any():
        raise ValueError(
            f"Times must not be negative, got {float(time.min()):.3g}; measure them "
            "from the entry of each sample."
        )
    if needs_event and not marks.any():
        raise NothingToLearnError(
            "All times are censored, but at least one event is needed. Check that "
            "True, or 1, marks the samples with an event."
        )
    return np.column_stack([time + 0.0, marks, np.asarray(stratum, dtype=np.float64)])


def _require_no_dates(time: NDArray[Any]) -> None:
    """Raise ValueError for dates and durations.

    Dates would become the time since 1970, and durations a number in whatever their
    unit is.
    """
    found = next(
        (v for v in time.tolist() if isinstance(v, (date, timedelta))), None
    ) if time.dtype.kind == "O" else None  # fmt: skip
    if time.dtype.kind not in "mM" and found is None:
        return
    got = type(found).__name__ if time.dtype.kind == "O" else str(time.dtype)
    raise ValueError(
        f"Times must be numbers, got dates or durations (of type {got}). Give the time "
        "from the entry of each sample in a unit of your choice, for instance days: "
        "(last_seen - entered).dt.days."
    )


def _marks(event: NDArray[Any]) -> FloatArray:
    """Return 1 for events and 0 for censored times; raise ValueError for others."""
    listed = event.tolist()
    missing = [i for i, value in enumerate(listed) if is_missing(value)]
    if missing:
        raise ValueError(
            f"The event of {plural(len(missing), 'sample')} is missing, first in row "
            f"{missing[0]}: it must be True or False, or 1 and 0 (censored). Fill it "
            "in, or leave out these samples."
        )
    try:
        marks = event.astype(np.float64)
        strange = np.setdiff1d(marks, [0.0, 1.0]).tolist()
    except (TypeError, ValueError):
        texts = [value for value in listed if isinstance(value, str)]
        strange = sorted(set(texts or map(str, listed)))
    if strange:
        raise ValueError(
            "Events must be True or False, or 1 and 0 (censored); got "
            f"{told(strange[:3])}. The columns of y are time and event, in this order; "
            "turn names of states into True and False, as in y['state'] == 'dead'."
        )
    return marks


def check_strata(strata: Any) -> NDArray[Any]:
    """Return the stratum of each sample, numbers or texts, shape (n,)."""
    values = np.asarray(strata)
    if values.ndim != 1:
        raise ValueError(
            f"strata must be one value for each sample, got shape {values.shape}."
        )
    listed = values.tolist()
    missing = [i for i, value in enumerate(listed) if is_missing(value)]
    if missing:
        raise ValueError(
            f"strata is missing for {plural(len(missing), 'sample')}, first in row "
            f"{missing[0]}; give the stratum of each sample, or leave these samples "
            "out."
        )
    if values.dtype.kind == "O":
        if len({isinstance(value, str) for value in listed}) > 1:
            raise ValueError("strata must be all numbers or all texts, got both.")
        values = np.array(listed)
    return values


def with_strata(y: Any, number: NDArray[np.intp]) -> NDArray[Any]:
    """Return times and events with the index of the stratum, as a structured array.

    Parameters
    ----------
    y : times and events, as in :func:`check_times`
    number : array of shape (n,)
    """
    target = check_times(y, len(number))
    target[:, 2] = number
    return structured_times(target, strata=True)


def structured_times(target: FloatArray, strata: bool = False) -> NDArray[Any]:
    """Return times and events as scikit-survival has them, with strata if asked.

    Parameters
    ----------
    target : array of shape (n, 3)
        Times, events and strata, as :func:`check_times` returns them.
    strata : bool
    """
    kinds: list[Any] = [("event", bool), ("time", np.float64)]
    kinds += [(STRATUM, np.float64)] if strata else []
    out = np.empty(len(target), dtype=kinds)
    out["time"], out["event"] = target[:, 0], target[:, 1] > 0
    if strata:
        out[STRATUM] = target[:, 2]
    return out


def _times_of(y: Any) -> tuple[Any, Any, Any]:
    """Return times, events and strata, each of shape (n,)."""
    named = getattr(getattr(y, "dtype", None), "names", None)
    if named is not None and not hasattr(y, "columns"):
        fields = {name: np.asarray(y[name]) for name in named}
        stratum = fields.pop(STRATUM, np.zeros(len(y))) if len(named) == 3 else None
        bools = [name for name in fields if fields[name].dtype.kind == "b"]
        if len(fields) != 2 or len(bools) != 1 or y.ndim != 1:
            raise ValueError(
                "A structured y must have two fields, a boolean one for events and "
                f"one for times, got {y.dtype}."
            )
        event = fields.pop(bools[0])
        (time,) = fields.values()
        return time, event, np.zeros(len(time)) if stratum is None else stratum
    if hasattr(y, "columns"):
        columns = [np.asarray(y[name]) for name in y.columns]
        columns.sort(key=lambda column: column.dtype.kind == "b")
    else:
        y = np.asarray(y)
        if y.ndim != 2 or y.shape[1] == 1:
            time = column_or_1d(y, warn=True)
            return time, np.ones(len(time)), np.zeros(len(time))
        columns = list(y.T)
    if len(columns) != 2:
        raise ValueError(
            f"y must have two columns, time and event, got "
            f"{plural(len(columns), 'column')}. Strata are given to fit as strata=."
        )
    time, event = columns
    return time, event, np.zeros(len(time))


def _check_length(part: Any, n: int, name: str, where: str) -> None:
    if np.shape(part)[:1] != (n,):
        raise ValueError(
            f"{where} has {plural(n, 'sample')} but {name} has shape {np.shape(part)}; "
            "give one value for each sample."
        )
