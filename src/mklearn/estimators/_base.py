"""What all classifiers share: from X and y to a bank, and from a bank to decisions."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import assert_all_finite, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    check_consistent_length,
    check_is_fitted,
    validate_data,
)

from mklearn.kernels.bank import KernelBank
from mklearn.kernels.multiview import MultiView
from mklearn.kernels.normalise import Clip, Normaliser, check_definite, fit_normaliser


@dataclass(frozen=True)
class Training:
    """What ``fit`` learns from: distinct samples, their weights, their kernels."""

    raw: KernelBank
    bank: KernelBank  # normalised
    normaliser: Normaliser
    clip: Clip | None
    labels: NDArray[np.intp]
    weight: NDArray[np.float64]
    index: NDArray[np.intp]  # of each distinct sample, its first row in X
    group: NDArray[np.intp]  # of each row in X, its distinct sample; -1 if weightless


class BaseKernelClassifier(ClassifierMixin, BaseEstimator):
    """Classifier ``f(x) = sum_m theta_m sum_i A_i k_m(x_i, x) + b``.

    Subclasses have parameters ``kernels``, ``normalize``, ``psd``, ``memory_limit`` and
    ``class_weight``; they call ``_training`` and ``_keep`` in ``fit``.
    """

    # --- fit --------------------------------------------------------------------------

    def _training(self, X: Any, y: Any, sample_weight: Any) -> Training:
        """Validate, merge equal samples, compute and normalise the kernels."""
        data, y, names = self._validate(X, y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"{type(self).__name__} needs samples of at least 2 classes; y holds "
                f"only one class: {self.classes_.tolist()}."
            )
        weight = _check_weight(sample_weight, len(labels))
        index, group, weight = _merge_equal(data, labels, weight)
        labels = labels[index]
        missing = np.setdiff1d(np.arange(len(self.classes_)), labels)
        if len(missing):
            raise ValueError(
                "All samples of these classes have weight zero: "
                f"{self.classes_[missing].tolist()}; a class needs a sample to learn "
                "from."
            )
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
        return Training(raw, bank, normaliser, clip, labels, weight, index, group)

    def _validate(self, X: Any, y: Any) -> tuple[Any, NDArray[Any], Any]:
        """Return X as bank, MultiView or table, y as an array, and column names."""
        if isinstance(self.kernels, str) and self.kernels == "precomputed":
            bank = _as_bank(X)
            rows, cols, _ = bank.shape
            if rows != cols:
                raise ValueError(
                    f"Precomputed training kernels must have shape (n, n, M), kernels "
                    f"last, got {bank.shape}.{_kernels_first(cols == bank.shape[2])}"
                )
            self.n_features_in_ = rows
            data, names = bank, None
        elif isinstance(X, KernelBank):
            raise ValueError("Pass a KernelBank together with kernels='precomputed'.")
        elif isinstance(X, MultiView):
            self.n_features_in_ = X.shape[1]
            data, names = X, None
        else:
            if getattr(X, "ndim", 2) == 3:
                raise ValueError(
                    "Found array with dim 3; a table has 2. For Gram matrices pass "
                    "kernels='precomputed'."
                )
            data, y = validate_data(
                self, X, y, accept_sparse="csr", dtype=np.float64, multi_output=False
            )
            names = getattr(self, "feature_names_in_", None)
        if y is None:
            raise ValueError(
                "This estimator requires y to be passed, but the target y is None."
            )
        y = column_or_1d(y, warn=True)
        assert_all_finite(y, input_name="y")
        check_classification_targets(y)
        check_consistent_length(data, y)
        return data, y, names

    def _costs(self, training: Training, C: float) -> NDArray[np.float64]:
        """Return each distinct sample's cost: C times its and its class's weight."""
        if not (isinstance(C, Real) and np.isfinite(C) and C > 0):
            raise ValueError(f"C must be a positive number, got {C!r}.")
        labels, weight = training.labels, training.weight
        factors = np.ones(len(self.classes_))
        if isinstance(self.class_weight, Mapping):
            known = self.classes_.tolist()
            strange = [label for label in self.class_weight if label not in known]
            if strange and not set(known) <= set(self.class_weight):
                raise ValueError(
                    f"class_weight names {strange}, but the classes are {known}."
                )
            for label, factor in self.class_weight.items():
                if not (
                    isinstance(factor, Real) and np.isfinite(factor) and factor > 0
                ):
                    raise ValueError(
                        "class_weight must hold positive numbers, got "
                        f"{factor!r} for class {label!r}."
                    )
                if label in known:
                    factors[known.index(label)] = factor
        elif isinstance(self.class_weight, str) and self.class_weight == "balanced":
            counts = np.bincount(labels, weight, len(factors))
            factors = weight.sum() / (len(factors) * counts)
        elif self.class_weight is not None:
            raise ValueError(
                "class_weight must be None, 'balanced' or a dict, got "
                f"{self.class_weight!r}."
            )
        return C * weight * factors[labels]

    def _keep(
        self,
        training: Training,
        theta: NDArray[np.float64],
        A: NDArray[np.float64],
        bias: NDArray[np.float64],
    ) -> None:
        """Store what prediction needs: support vectors and kernels with weight.

        Parameters
        ----------
        theta : array of shape (M,), or (T, M) if each task has its own
        A : array of shape (n, T)
        bias : array of shape (T,)
        """
        support = np.flatnonzero(A.any(axis=1))
        used = np.flatnonzero(np.atleast_2d(theta).any(axis=0))
        # centring needs all samples unless the coefficients sum to zero, and so does
        # the projection that clips a kernel
        balanced = bool(
            (np.abs(A.sum(axis=0)) <= 1e-9 * np.abs(A).sum(axis=0) + 1e-300).all()
        )
        every = training.clip is not None or (
            training.normaliser.means is not None and not balanced
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
        self._normaliser = training.normaliser.select(used)
        self._used = used
        self._clip = None
        if training.clip is not None:
            place = {int(m): i for i, m in enumerate(used)}
            negative = training.clip.negative
            self._clip = Clip({place[m]: negative[m] for m in negative if m in place})
        precomputed = isinstance(self.kernels, str) and self.kernels == "precomputed"
        self._reference = None
        self._columns = training.index[cols]
        if not precomputed:
            self._reference = training.raw.select(used).reference(cols)

    # --- predict ----------------------------------------------------------------------

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return the scores: (n_samples,) for two classes, else (n_samples, n_classes).

        Parameters
        ----------
        X : as in ``fit``; with precomputed kernels (n_samples, n_training, n_kernels)
        """
        check_is_fitted(self)
        bank = self._cross(X)
        if len(self._theta) == 1:
            scores = bank.apply(self._theta[0], self._A)
        else:
            scores = np.column_stack(
                [bank.apply(t, self._A[:, [j]]) for j, t in enumerate(self._theta)]
            )
        scores = scores + self.intercept_
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the class of each sample."""
        scores = self.decision_function(X)
        if scores.ndim == 1:
            return self.classes_[(scores > 0).astype(int)]
        return self.classes_[scores.argmax(axis=1)]

    def _cross(self, X: Any) -> KernelBank:
        """Return the normalised kernels between new samples and those kept."""
        if self._reference is None:
            bank = _as_bank(X, cross=True)
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
            if not isinstance(X, MultiView):
                X = validate_data(
                    self, X, accept_sparse="csr", dtype=np.float64, reset=False
                )
            bank = self._reference.cross(X)
        if self._clip is not None:
            bank = self._clip.cross(bank)
        return self._normaliser.cross(bank, self._cols, self._balanced)

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
        pairwise = isinstance(self.kernels, str) and self.kernels == "precomputed"
        tags.input_tags.pairwise = pairwise
        tags.input_tags.three_d_array = pairwise
        return tags


def _as_bank(X: Any, cross: bool = False) -> KernelBank:
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


def _check_weight(sample_weight: Any, n: int) -> NDArray[np.float64]:
    if sample_weight is None:
        return np.ones(n)
    weight = np.asarray(sample_weight, dtype=np.float64)
    if weight.shape != (n,):
        raise ValueError(
            f"sample_weight must have shape ({n},), one weight for each sample, got "
            f"{weight.shape}."
        )
    if not np.isfinite(weight).all() or (weight < 0).any():
        raise ValueError("sample_weight must be finite and not negative.")
    if not weight.any():
        raise ValueError("All sample weights are zero, so there is nothing to learn.")
    return weight


def _is_all(index: NDArray[np.intp], n: int) -> bool:
    return len(index) == n and bool((index == np.arange(n)).all())


def _merge_equal(
    data: Any, labels: NDArray[np.intp], weight: NDArray[np.float64]
) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.float64]]:
    """Drop samples without weight and merge equal rows of one class.

    Equal samples of equal class are one sample with the sum of their weights: the
    optimum is the same and the problem smaller. Rows of a table are put in an order
    that depends on their content only, so the answer does not depend on how they came.

    Returns the first row, the group of each row (-1: dropped), and the weights.
    """
    n = len(labels)
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
            hashlib.blake2b(content(i) + labels[i].tobytes(), digest_size=16).digest()
            for i in present
        ],
        dtype="V16",
    )
    _, first, inverse = np.unique(digests, return_index=True, return_inverse=True)
    group[present] = inverse
    return present[first], group, np.bincount(inverse, weight[present], len(first))
