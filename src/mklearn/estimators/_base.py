"""What all estimators share: from X and y to a bank, and from a bank to scores."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from mklearn.data.checks import check_enough, check_weight
from mklearn.data.reading import comes_in_blocks
from mklearn.data.views import MultiView
from mklearn.estimators._features import FeatureModel
from mklearn.kernels.bank import KernelBank
from mklearn.kernels.normalise import Clip, Normaliser, check_definite, fit_normaliser


@dataclass(frozen=True)
class Training:
    """What ``fit`` learns from: distinct samples, their weights, their kernels."""

    raw: KernelBank
    bank: KernelBank  # normalised
    normaliser: Normaliser
    clip: Clip | None
    target: NDArray[Any]  # (n,) class numbers, (n, T) values; zeros without targets
    weight: NDArray[np.float64]
    index: NDArray[np.intp]  # of each distinct sample, its first row in X
    group: NDArray[np.intp]  # of each row in X, its distinct sample; -1 if weightless


class BaseKernelMachine(BaseEstimator):
    """Scores ``f(x) = sum_m theta_m sum_i A_i k_m(x_i, x) + b``, whoever finds them.

    Subclasses have parameters ``kernels``, ``normalize``, ``psd`` and ``memory_limit``,
    say in ``_target`` what they learn, and call ``_training`` and ``_keep`` in ``fit``.
    """

    # --- fit --------------------------------------------------------------------------

    def _target(self, y: Any, weight: NDArray[np.float64]) -> NDArray[Any]:
        """Return the checked target, one row for each sample; zeros without any."""
        return np.zeros(len(weight))

    def _training(self, X: Any, y: Any, sample_weight: Any) -> Training:
        """Validate, merge equal samples, compute and normalise the kernels."""
        data, names = self._validate(X)
        check_enough(data.shape[0])
        weight = check_weight(sample_weight, data.shape[0])
        target = self._target(y, weight)
        index, group, weight = _merge_equal(data, target, weight)
        if isinstance(data, KernelBank):
            raw = data if _is_all(index, len(data)) else data[np.ix_(index, index)]
        else:
            if not isinstance(data, MultiView):
                data = MultiView.from_table(data, names)
            raw = KernelBank(data[index], self.kernels, sample_weight=weight)
        raw = raw.stored(self.memory_limit)
        clip = check_definite(raw, self.psd)
        if clip is not None:
            raw = clip.train(raw)
        normaliser = fit_normaliser(self.normalize, raw, weight)
        bank = normaliser.train(raw)
        return Training(
            raw, bank, normaliser, clip, target[index], weight, index, group
        )

    def _validate(self, X: Any) -> tuple[Any, Any]:
        """Return X as bank, MultiView or table, and the names of its columns."""
        if comes_in_blocks(X):
            raise ValueError(
                f"X comes in blocks ({type(X).__name__}), but kernels between all "
                "samples need them all at once: give approximation='nystroem' or "
                "'rff' to an estimator that has it, or X as an array."
            )
        if self._precomputed():
            bank = as_bank(X)
            rows, cols, _ = bank.shape
            if rows != cols:
                raise ValueError(
                    f"Precomputed training kernels must have shape (n, n, M), kernels "
                    f"last, got {bank.shape}.{_kernels_first(cols == bank.shape[2])}"
                )
            self.n_features_in_ = rows
            return bank, None
        if isinstance(X, KernelBank):
            raise ValueError("Pass a KernelBank together with kernels='precomputed'.")
        if isinstance(X, MultiView):
            self.n_features_in_ = X.shape[1]
            return X, None
        if getattr(X, "ndim", 2) == 3:
            raise ValueError(
                "Found array with dim 3; a table has 2. For Gram matrices pass "
                "kernels='precomputed'."
            )
        data = validate_data(self, X, accept_sparse="csr", dtype=np.float64)
        return data, getattr(self, "feature_names_in_", None)

    def _precomputed(self) -> bool:
        return isinstance(self.kernels, str) and self.kernels == "precomputed"

    def _keep(
        self,
        training: Training,
        theta: NDArray[np.float64],
        A: NDArray[np.float64],
        bias: NDArray[np.float64],
        whole: bool = False,
    ) -> None:
        """Store what prediction needs: support vectors and kernels with weight.

        Parameters
        ----------
        theta : array of shape (M,), or (T, M) if each task has its own
        A : array of shape (n, T)
        bias : array of shape (T,)
        whole : bool
            Keep all samples, and the kernels between them and new ones as they are.
        """
        support = np.flatnonzero(A.any(axis=1))
        used = np.flatnonzero(np.atleast_2d(theta).any(axis=0))
        if len(used) == 0:
            used = np.arange(1)
        normaliser = training.normaliser.select(used)
        # centring needs all samples unless the coefficients sum to zero, and so does
        # the projection that clips a kernel; where samples lack a view, those that
        # have it need not sum to zero
        holed = normaliser.present is not None
        balanced = not (holed or whole) and bool(
            (np.abs(A.sum(axis=0)) <= 1e-9 * np.abs(A).sum(axis=0) + 1e-300).all()
        )
        every = (
            training.clip is not None
            or holed
            or whole
            or (normaliser.means is not None and not balanced)
        )
        cols = np.arange(len(A)) if every else support
        if len(cols) == 0:
            cols = np.arange(1)
        self.kernel_names_ = training.raw.names
        self.kernels_ = training.raw.kernels
        self.kernel_weights_ = theta
        self.support_ = training.index[support]
        self.dual_coef_ = A[support].T.copy()
        self.intercept_ = bias
        self._theta = np.atleast_2d(theta)[:, used]
        self._A = A[cols]
        self._cols = cols
        self._balanced = balanced
        self._normaliser = normaliser
        self._used = used
        self._clip = None
        if training.clip is not None:
            place = {int(m): i for i, m in enumerate(used)}
            negative = training.clip.negative
            self._clip = Clip({place[m]: negative[m] for m in negative if m in place})
        self._reference, self._model = None, None
        self._columns = training.index[cols]
        if not self._precomputed():
            self._reference = training.raw.select(used).reference(cols)

    # --- predict ----------------------------------------------------------------------

    def _scores(self, X: Any) -> NDArray[np.float64]:
        """Return ``f`` at new samples, shape (n_samples, T)."""
        check_is_fitted(self)
        if self._on_features:
            return np.asarray(self._model.scores(self._new(X)) + self.intercept_)
        bank = self._cross(X)
        if len(self._theta) == 1:
            scores = bank.apply(self._theta[0], self._A)
        else:
            scores = bank.apply_each(self._theta, self._A)
        return np.asarray(scores + self.intercept_)

    def _parts(self, X: Any) -> NDArray[np.float64]:
        """Return what each kernel adds to ``f``, shape (n_samples, T, n_kernels).

        With the intercept they sum to ``_scores``.
        """
        check_is_fitted(self)
        if self._on_features:
            return self._model.parts(self._new(X), len(self.kernel_names_))
        products = self._cross(X).multiply(self._A) * self._theta
        parts = np.zeros((*products.shape[:2], len(self.kernel_names_)))
        parts[..., self._used] = products
        return parts

    def _cross(self, X: Any) -> KernelBank:
        """Return the normalised kernels between new samples and those kept."""
        if self._reference is None:
            bank = as_bank(X, cross=True)
            expected = (self.n_features_in_, len(self.kernel_names_))
            if bank.shape[1:] != expected:
                swapped = bank.shape[::2] == expected[::-1]
                raise ValueError(
                    f"Precomputed test kernels must have shape (n_test, {expected[0]}, "
                    f"{expected[1]}): training samples second, kernels last; got "
                    f"{bank.shape}.{_kernels_first(swapped)}"
                )
            bank = bank.select(self._used)[:, self._columns]
        else:
            bank = self._reference.cross(self._new(X))
        if self._clip is not None:
            bank = self._clip.cross(bank)
        return self._normaliser.cross(bank, self._cols, self._balanced)

    @property
    def _on_features(self) -> bool:
        """Whether the fitted model works on explicit features."""
        return getattr(self, "_model", None) is not None

    def _new(self, X: Any) -> Any:
        """Return new samples, checked."""
        if isinstance(X, MultiView):
            return X
        return validate_data(
            self, X, accept_sparse="csr", dtype=np.float64, reset=False
        )

    # --- reading ----------------------------------------------------------------------

    def weights_frame(self) -> Any:
        """Return a pandas DataFrame: name, parameters, weight, share of each kernel.

        With weights per class there is one weight and one contribution column for each.
        """
        check_is_fitted(self)
        try:
            import pandas as pd
        except ImportError as error:
            raise ImportError(
                "weights_frame() returns a pandas DataFrame; install pandas, or read "
                "kernel_names_, kernel_weights_ and kernel_contributions_."
            ) from error
        table: dict[str, Any] = {
            "kernel": list(self.kernel_names_),
            "parameters": [
                {} if kernel is None else kernel.parameters()
                for kernel in self.kernels_
            ],
        }
        weights = np.atleast_2d(self.kernel_weights_)
        shares = np.atleast_2d(self.kernel_contributions_)
        for j, (w, s) in enumerate(zip(weights, shares, strict=True)):
            suffix = "" if len(weights) == 1 else f"_{self.classes_[j]}"
            table[f"weight{suffix}"], table[f"contribution{suffix}"] = w, s
        return pd.DataFrame(table)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        pairwise = self._precomputed()
        tags.input_tags.pairwise = pairwise
        tags.input_tags.three_d_array = pairwise
        return tags


def check_state(model: BaseKernelMachine) -> None:
    """Raise ValueError if what a fitted model predicts with does not fit together.

    For models from files: a sum over arrays of other shapes, or with NaN, would be an
    answer as well, but not the model's.
    """
    names = model.kernel_names_
    M = len(names)
    _require(M > 0 and len(model.kernels_) == M, "kernels and their names")
    _require(np.shape(model.kernel_weights_)[-1:] == (M,), "kernel weights")
    if model._on_features:
        n_targets = _check_features(model._model, M)
    else:
        n_targets = _check_samples(model, M)
    for name in ("kernel_weights_", "kernel_contributions_", "dual_coef_", "intercept_",
                 "coef_", "means_", "temperature_", "_theta", "_A"):  # fmt: skip
        _check_finite(name, getattr(model, name, 0.0))
    scores = np.shape(getattr(model, "intercept_", np.zeros(1)))
    _require(len(scores) == 1, "intercepts")
    coef = getattr(model, "coef_", None)
    if coef is not None:
        _require(np.shape(coef) == (*scores, n_targets), "coefficients")
    classes = getattr(model, "classes_", None)
    if classes is not None:
        _require(np.ndim(classes) == 1 and len(classes) > 0, "classes")
        _require(scores[0] in (1, len(classes)), "a score for each class")


def _check_samples(model: BaseKernelMachine, n_kernels: int) -> int:
    """Check what a model on kernels keeps; return its number of targets."""
    normaliser, n_cols = model._normaliser, len(model._cols)
    used = _as_places(model._used)
    _require(used.size > 0 and used.max() < n_kernels, "a kernel that there is not")
    _require(model._theta.ndim == 2 and model._theta.shape[1] == len(used), "weights")
    _require(model._A.ndim == 2 and len(model._A) == n_cols > 0, "coefficients")
    n_targets = int(model._A.shape[1])
    _require(len(model._theta) in (1, n_targets), "weights for each class")
    _require(isinstance(normaliser, Normaliser), "no normalisation")
    normaliser.check(len(used))
    n = len(normaliser.weight)
    _require(bool((_as_places(model._cols) < n).all()), "a sample that there is not")
    if model._clip is not None:
        _require(isinstance(model._clip, Clip), "clipping")
        model._clip.check(len(used), n)
    if model._reference is None:
        places = _as_places(model._columns)
        _require(len(places) == n_cols, "samples")
        _require(bool((places < model.n_features_in_).all()), "samples")
    else:
        _require(isinstance(model._reference, KernelBank), "samples")
        _require(model._reference.shape == (0, n_cols, len(used)), "samples")
    return n_targets


def _check_features(model: Any, n_kernels: int) -> int:
    """Check what a model on features keeps; return its number of targets."""
    _require(isinstance(model, FeatureModel), "no model on features")
    used = _as_places(model.used)
    _require(used.size > 0 and used.max() < n_kernels, "a kernel that there is not")
    D = model.features.n_features
    _require(model.coef.ndim == 2 and len(model.coef) == D, "coefficients")
    _require(model.shift.shape == (D,), "means of features")
    _check_finite("coef", model.coef)
    _check_finite("shift", model.shift)
    return int(model.coef.shape[1])


def _require(sound: bool, why: str) -> None:
    if not sound:
        raise ValueError(f"the fitted values do not fit together: {why}")


def _check_finite(name: str, values: Any) -> None:
    values = np.asarray(values)
    numbers = values.dtype.kind in "biuf"
    _require(numbers and bool(np.isfinite(values).all()), f"{name} is not finite")


def _as_places(values: Any) -> NDArray[np.intp]:
    array = np.asarray(values)
    if array.ndim != 1 or array.dtype.kind not in "iu" or (array < 0).any():
        raise ValueError("the fitted values do not fit together: no whole numbers")
    return array


def as_bank(X: Any, cross: bool = False) -> KernelBank:
    """Return Grams as a bank; ``cross`` ones have no diagonal."""
    if isinstance(X, KernelBank):
        return X
    if isinstance(X, MultiView) or sparse.issparse(X):
        raise ValueError(
            "kernels='precomputed' takes an (n, n, M) array or a KernelBank, got "
            f"{type(X).__name__}."
        )
    return KernelBank.from_grams(X, cross=cross)


def _kernels_first(suspected: bool) -> str:
    advice = " This looks like kernels first; pass np.moveaxis(B, 0, -1)."
    return advice if suspected else ""


def _is_all(index: NDArray[np.intp], n: int) -> bool:
    return len(index) == n and bool((index == np.arange(n)).all())


def _merge_equal(
    data: Any, target: NDArray[Any], weight: NDArray[np.float64]
) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.float64]]:
    """Drop samples without weight and merge equal rows of equal target.

    Equal samples of equal target are one sample with the sum of their weights: the
    optimum is the same and the problem smaller. Rows of a table are put in an order
    that depends on their content only, so the answer does not depend on how they came.

    Returns the first row, the group of each row (-1: dropped), and the weights.
    """
    n = len(target)
    present = np.flatnonzero(weight > 0)
    group = np.full(n, -1, dtype=np.intp)
    if isinstance(data, (KernelBank, MultiView)):
        group[present] = np.arange(len(present))
        return present, group, weight[present]
    if sparse.issparse(data):
        data = data.sorted_indices()
        data.eliminate_zeros()
        ends = data.indptr

        def content(i: int) -> bytes:
            part = slice(ends[i], ends[i + 1])
            indices = data.indices[part].astype(np.int64)
            return bytes(indices.tobytes() + data.data[part].tobytes())
    else:
        data = np.ascontiguousarray(data) + 0.0  # no negative zeros

        def content(i: int) -> bytes:
            return bytes(data[i].tobytes())

    digests = np.array(
        [
            hashlib.blake2b(content(i) + target[i].tobytes(), digest_size=16).digest()
            for i in present
        ],
        dtype="V16",
    )
    _, first, inverse = np.unique(digests, return_index=True, return_inverse=True)
    group[present] = inverse
    return present[first], group, np.bincount(inverse, weight[present], len(first))
