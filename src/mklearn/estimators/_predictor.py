"""Predictors: the frozen result of a fit, which computes scores of new samples."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from mklearn.data.spelling import plural
from mklearn.data.threads import run_blocks
from mklearn.data.views import MultiView
from mklearn.kernels.bank import KernelBank
from mklearn.kernels.feature_map import FeatureMap
from mklearn.kernels.normalise import Clip, Normaliser, Scaling

FloatArray = NDArray[np.float64]

LARGEST = 1e200  # largest coefficients, so that products with kernels do not overflow
MOST = 10**7  # maximum number of entries of an example
_BLOCK_BYTES = 2**26
_TARGET_BYTES = 2**28  # size of the coefficients of targets predicted together


@dataclass(frozen=True)
class Predictor(ABC):
    """Coordinates that are sums over kernels, and the map from them to scores.

    Attributes
    ----------
    n_kernels : int
        Number of kernels that the model was given.
    used : array of int
        Indices of those with nonzero weight; only these are evaluated.
    bias : array of shape (T,)
    rule : array of shape (T, q), or None
        Scores are ``coordinates @ rule' + bias``; without a rule, the coordinates are
        the scores up to the bias.
    effects : array of shape (k, q), or None
        Coefficients of covariates in the coordinates; samples carry their covariates in
        ``X.covariates``.
    origin : array of shape (q,), or None
        Constant that is added to the coordinates if there are covariates.
    """

    n_kernels: int
    used: NDArray[np.intp]
    bias: FloatArray
    rule: FloatArray | None = field(default=None, kw_only=True)
    effects: FloatArray | None = field(default=None, kw_only=True)
    origin: FloatArray | None = field(default=None, kw_only=True)

    @abstractmethod
    def project(self, X: Any) -> FloatArray:
        """Return the kernel part of the coordinates of new samples, shape (n, q)."""

    @abstractmethod
    def terms(self, X: Any) -> FloatArray:
        """Return the contribution of each kernel in use, shape (n, q, n_used)."""

    @property
    def takes_samples(self) -> bool:
        """Whether new samples are a table or views, which are validated first."""
        return True

    @property
    @abstractmethod
    def n_coordinates(self) -> int:
        """Number of coordinates q."""

    @abstractmethod
    def example(self, n: int) -> Any:
        """Return ``n`` valid input samples for :meth:`scores`.

        None if these would need a lot of memory.
        """

    def scores(self, X: Any) -> FloatArray:
        """Return the scores of new samples, shape (n, T)."""
        Z = self.coordinates(X)
        if self.rule is not None:
            Z = Z @ self.rule.T
        return np.asarray(Z + self.bias)

    def coordinates(self, X: Any) -> FloatArray:
        """Return the coordinates of new samples, with covariates, shape (n, q)."""
        Z = self.project(X)
        if self.effects is not None:
            Z = Z + self._values(X) @ self.effects
        return Z if self.origin is None else Z + self.origin

    def of_covariates(self, X: Any) -> FloatArray:
        """Return the contribution of covariates to the scores, shape (n, T)."""
        if self.effects is None:
            return np.zeros((X.shape[0], len(self.bias)))
        found = self._values(X) @ self.effects
        found = found if self.origin is None else found + self.origin
        return np.asarray(found if self.rule is None else found @ self.rule.T)

    def _values(self, X: Any) -> FloatArray:
        """Return the covariates of samples."""
        assert self.effects is not None
        values = getattr(X, "covariates", None)
        if values is None or values.shape[1] != len(self.effects):
            raise ValueError(
                "This model has covariates; pass new samples to the estimator, or "
                "through its checked(X) first, which codes them."
            )
        return np.asarray(values)

    def parts(self, X: Any) -> FloatArray:
        """Return the contribution of each kernel to the scores, (n, T, n_kernels).

        Together with the bias and the contribution of covariates, they sum to
        :meth:`scores`.
        """
        terms = self.terms(X)
        if self.rule is not None:
            terms = np.einsum("iqm,tq->itm", terms, self.rule)
        parts = np.zeros((*terms.shape[:2], self.n_kernels))
        parts[..., self.used] = terms
        return parts

    def with_bias(self, bias: Any) -> Predictor:
        """Return the predictor with another bias of the same shape."""
        bias = np.asarray(bias, dtype=np.float64)
        if bias.shape != self.bias.shape:
            raise ValueError(
                f"The intercept must have shape {self.bias.shape}, got {bias.shape}."
            )
        return replace(self, bias=bias)

    def with_effects(
        self, effects: FloatArray | None, origin: FloatArray | None = None
    ) -> Self:
        """Return the predictor with coefficients of covariates, shape (k, q)."""
        return replace(self, effects=effects, origin=origin)

    def with_rule(self, rule: FloatArray, bias: FloatArray) -> Predictor:
        """Return the predictor with a linear map from its coordinates to scores."""
        return replace(self, rule=rule, bias=bias)

    def check(self) -> None:
        """Raise ValueError if the values are inconsistent.

        This is for models loaded from files: arrays of other shapes, or with NaN, could
        also give predictions, but wrong ones.
        """
        used = as_places(self.used)
        require(
            used.size > 0 and used.max() < self.n_kernels, "refers to a missing kernel"
        )
        require(np.ndim(self.bias) == 1, "intercepts")
        check_finite("bias", self.bias)
        if self.rule is None:
            require(len(self.bias) == self.n_coordinates, "a score for each target")
        else:
            shape = (len(self.bias), self.n_coordinates)
            require(np.shape(self.rule) == shape, "coefficients")
            check_finite("rule", self.rule)
        if self.effects is not None:
            sound = np.ndim(self.effects) == 2
            sound = sound and self.effects.shape[1] == self.n_coordinates
            require(sound, "covariates")
            check_finite("effects", self.effects)
        if self.origin is not None:
            require(np.shape(self.origin) == (self.n_coordinates,), "an origin")
            check_finite("origin", self.origin)


@dataclass(frozen=True)
class GramPredictor(Predictor):
    """``sum_m theta_m sum_i A_i k_m(x_i, x)`` over the support vectors.

    Attributes
    ----------
    theta : array of shape (1 or T, n_used)
    A : array of shape (n_cols, q)
    cols : array of int
        Indices of the distinct training samples that are stored.
    columns : array of int
        Their columns in precomputed kernels.
    normaliser : Normaliser
        Normalisation of the kernels in use.
    clip : Clip or None
    reference : KernelBank or None
        The stored samples; None for precomputed kernels.
    balanced : bool
        Whether the columns of A sum to zero, so that centring needs no other samples.
    n_training : int
        Number of columns that precomputed kernels must have.
    """

    theta: FloatArray
    A: FloatArray
    cols: NDArray[np.intp]
    columns: NDArray[np.intp]
    normaliser: Normaliser
    clip: Clip | None
    reference: KernelBank | None
    balanced: bool
    n_training: int

    @classmethod
    def of(
        cls,
        training: Any,
        theta: FloatArray,
        A: FloatArray,
        bias: FloatArray,
        whole: bool = False,
    ) -> GramPredictor:
        """Return a predictor of the support vectors and kernels with nonzero weight.

        Parameters
        ----------
        training : GramTraining
        theta : array of shape (M,), or (T, M) if each task has its own
        A : array of shape (n, q)
        bias : array of shape (q,)
        whole : bool
            Whether to keep all samples, and so the full kernels between these and new
            ones.
        """
        support = np.flatnonzero(A.any(axis=1))
        used = weighted_kernels(theta)
        normaliser = training.normaliser.select(used)
        # centring needs all samples unless the coefficients sum to zero, and clipping
        # a kernel needs all samples; if some samples lack a view, the coefficients of
        # the others need not sum to zero
        holed = normaliser.present is not None
        balanced = not (holed or whole) and bool(
            (np.abs(A.sum(axis=0)) <= 1e-9 * _absolute_sums(A) + 1e-300).all()
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
        clip = None
        if training.clip is not None:
            place = {int(m): i for i, m in enumerate(used)}
            negative = training.clip.negative
            clip = Clip({place[m]: negative[m] for m in negative if m in place})
        reference = None
        if not training.precomputed:
            reference = training.raw.select(used).reference(cols)
        return cls(
            n_kernels=training.raw.shape[2],
            used=used,
            bias=bias,
            theta=np.atleast_2d(theta)[:, used],
            A=A if len(cols) == len(A) else A[cols],
            cols=cols,
            columns=training.index[cols],
            normaliser=normaliser,
            clip=clip,
            reference=reference,
            balanced=balanced,
            n_training=len(training.group),
        )

    @property
    def takes_samples(self) -> bool:
        """Whether new samples are validated; False for precomputed kernels."""
        return self.reference is not None

    @property
    def n_coordinates(self) -> int:
        """Number of columns of A."""
        return int(self.A.shape[1])

    def example(self, n: int) -> Any:
        """Return training samples, or Gram matrices of ones."""
        if self.reference is not None:
            return self.reference.example(n)
        if n * self.n_training * self.n_kernels > MOST:
            return None
        grams = np.ones((n, self.n_training, self.n_kernels))
        diag = np.ones((n, self.n_kernels))
        return KernelBank.from_grams(grams, row_diag=diag, cross=True)

    def project(self, X: Any) -> FloatArray:
        """Return the weighted sums over kernels and samples."""
        bank = self.cross(X)
        if len(self.theta) == 1:
            return np.asarray(bank.apply(self.theta[0], self.A))
        out = np.empty((bank.shape[0], self.n_coordinates))
        size = max(1, _TARGET_BYTES // (8 * len(self.A)))
        for at in range(0, self.n_coordinates, size):
            here = slice(at, at + size)
            out[:, here] = bank.apply_each(self.theta[here], self.A[:, here])
        return out

    def terms(self, X: Any) -> FloatArray:
        """Return the contribution of each kernel in use."""
        return np.asarray(self.cross(X).multiply(self.A) * self.theta)

    def cross(self, X: Any) -> KernelBank:
        """Return the normalised kernels between new and stored samples."""
        if self.reference is None:
            bank = as_bank(X, cross=True)
            expected = (self.n_training, self.n_kernels)
            if bank.shape[1:] != expected:
                swapped = bank.shape[::2] == expected[::-1]
                raise ValueError(
                    f"Precomputed test kernels must have shape (n_test, {expected[0]}, "
                    f"{expected[1]}), with the training samples second and the kernels "
                    "last; got "
                    f"{bank.shape}.{kernels_first(swapped)}"
                )
            bank = bank.select(self.used)[:, self.columns]
        else:
            bank = self.reference.cross(X)
        if self.clip is not None:
            bank = self.clip.cross(bank)
        return self.normaliser.cross(bank, self.cols, self.balanced)

    def check(self) -> None:
        """Raise ValueError if the values are inconsistent."""
        super().check()
        n_cols, n_used = len(self.cols), len(self.used)
        require(self.theta.ndim == 2 and self.theta.shape[1] == n_used, "weights")
        require(self.A.ndim == 2 and len(self.A) == n_cols > 0, "coefficients")
        require(len(self.theta) in (1, self.A.shape[1]), "weights for each class")
        check_finite("theta", self.theta)
        check_finite("A", self.A)
        require(isinstance(self.normaliser, Normaliser), "no normalisation")
        self.normaliser.check(n_used)
        n = len(self.normaliser.weight)
        require(bool((as_places(self.cols) < n).all()), "refers to a missing sample")
        most = np.abs(self.theta).max() * np.abs(self.normaliser.scale).max()
        require(most * np.abs(self.A).sum() < LARGEST, "numbers are too large")
        if self.clip is not None:
            require(isinstance(self.clip, Clip), "clipping")
            self.clip.check(n_used, n)
        if self.reference is None:
            places = as_places(self.columns)
            require(len(places) == n_cols, "samples")
            require(bool((places < self.n_training).all()), "samples")
        else:
            require(isinstance(self.reference, KernelBank), "samples")
            require(self.reference.shape == (0, n_cols, n_used), "samples")


@dataclass(frozen=True)
class FeaturePredictor(Predictor):
    """``(z - shift)' coef`` on explicit features z, block by block.

    Attributes
    ----------
    features : FeatureMap
        Features of the kernels with nonzero weight.
    coef : array of shape (D, q)
        Coefficients of raw features.
    shift : array of shape (D,)
        Means that are subtracted from the features.
    """

    features: FeatureMap
    coef: FloatArray
    shift: FloatArray

    @classmethod
    def of(
        cls,
        features: FeatureMap,
        scaling: Scaling,
        theta: FloatArray,
        w: FloatArray,
        bias: FloatArray,
    ) -> FeaturePredictor:
        """Return the model of normalised weights ``w`` (D, q) of the kernels in use."""
        used = weighted_kernels(theta)
        columns = np.concatenate(
            [np.arange(features.slices[m].start, features.slices[m].stop) for m in used]
        )
        return cls(
            n_kernels=len(features.slices),
            used=used,
            bias=bias,
            # new samples may lack a view that all training samples had
            features=replace(features, fill=scaling.mean).select(used.tolist()),
            coef=(scaling.root[:, None] * w)[columns],
            shift=scaling.shift[columns],
        )

    @property
    def n_coordinates(self) -> int:
        """Number of columns of the coefficients."""
        return int(self.coef.shape[1])

    def example(self, n: int) -> Any:
        """Return training samples."""
        return self.features.example(n)

    def project(self, X: Any) -> FloatArray:
        """Return the weighted sums over features."""
        out = np.empty((X.shape[0], self.coef.shape[1]))
        offset = self.shift @ self.coef
        coef = self.features.folded(self.coef)

        def work(rows: slice) -> None:
            out[rows] = self.features.columns(X[rows]) @ coef - offset

        self._by_rows(work, X.shape[0], self.features.n_columns)
        return out

    def terms(self, X: Any) -> FloatArray:
        """Return the contribution of the features of each kernel."""
        out = np.zeros((X.shape[0], self.coef.shape[1], len(self.used)))

        def work(rows: slice) -> None:
            Z = self.features.transform(X[rows]) - self.shift
            for m, part in enumerate(self.features.slices):
                out[rows, :, m] = Z[:, part] @ self.coef[part]

        self._by_rows(work, X.shape[0], self.features.n_features)
        return out

    def _by_rows(self, work: Callable[[slice], None], n: int, width: int) -> None:
        """Call ``work`` on blocks of rows; results do not depend on threads."""
        size = block_rows(width)
        run_blocks(work, [slice(i, min(i + size, n)) for i in range(0, n, size)])

    def check(self) -> None:
        """Raise ValueError if the values are inconsistent."""
        super().check()
        require(isinstance(self.features, FeatureMap), "no features")
        self.features.check()
        require(len(self.features.slices) == len(self.used), "kernels")
        D = self.features.n_features
        require(self.coef.ndim == 2 and len(self.coef) == D, "coefficients")
        require(self.shift.shape == (D,), "means of features")
        check_finite("coef", self.coef)
        check_finite("shift", self.shift)
        require(np.abs(self.coef).sum() < LARGEST, "numbers are too large")


@dataclass(frozen=True)
class KnownScores(Predictor):
    """Known scores of given samples.

    Folds and permutations compute scores in advance, so that scorers do not evaluate
    any sample again.
    """

    values: FloatArray

    @classmethod
    def of(cls, values: FloatArray) -> KnownScores:
        """Return the predictor whose scores are ``values``, shape (n, T)."""
        zero = np.zeros(values.shape[1])
        return cls(1, np.arange(1), zero, values)

    @property
    def takes_samples(self) -> bool:
        """False: samples are ignored."""
        return False

    @property
    def n_coordinates(self) -> int:
        """Number of columns of the scores."""
        return int(self.values.shape[1])

    def scores(self, X: Any) -> FloatArray:
        """Return the known scores, if the number of samples agrees."""
        n = X.shape[0] if hasattr(X, "shape") else len(X)
        if n != len(self.values):
            raise ValueError(
                f"A scorer may ask for the {plural(len(self.values), 'sample')} whose "
                f"scores are known, got {n}."
            )
        return self.values

    project = scores

    def example(self, n: int) -> Any:
        """Return an array with the right number of rows."""
        return self.values

    def terms(self, X: Any) -> FloatArray:
        """Return the scores as those of one kernel."""
        return self.scores(X)[:, :, None]


def _absolute_sums(A: FloatArray) -> FloatArray:
    """Return the sum of the absolute values in each column, without a copy of A."""
    size = max(1, _BLOCK_BYTES // max(1, A[:1].nbytes))
    parts = [np.abs(A[i : i + size]).sum(axis=0) for i in range(0, len(A), size)]
    return np.asarray(np.sum(parts, axis=0))


def weighted_kernels(theta: FloatArray) -> NDArray[np.intp]:
    """Return the kernels with nonzero weight; the first one if there are none."""
    used = np.flatnonzero(np.atleast_2d(theta).any(axis=0))
    return used if len(used) else np.arange(1)


def block_rows(n_features: int) -> int:
    """Return the number of rows of a block of features, of about 64 megabytes.

    It does not depend on the number of threads, so neither do sums over blocks; blocks
    are small enough for each thread to have several.
    """
    return int(np.clip(_BLOCK_BYTES // (8 * n_features), 256, 2048))


def as_bank(X: Any, cross: bool = False, finite: bool = False) -> KernelBank:
    """Return Gram matrices as a bank; with ``cross`` they have no diagonal.

    ``finite`` skips the check for NaN, which is then done elsewhere.
    """
    if isinstance(X, KernelBank):
        return X
    if isinstance(X, MultiView) or sparse.issparse(X):
        raise ValueError(
            "kernels='precomputed' takes an (n, n, M) array or a KernelBank, got "
            f"{type(X).__name__}."
        )
    return KernelBank.from_grams(X, cross=cross, finite=finite)


def kernels_first(suspected: bool) -> str:
    """Return advice for Gram matrices that seem to have the kernels first."""
    advice = " This looks like kernels first; try np.moveaxis(B, 0, -1)."
    return advice if suspected else ""


def require(sound: bool, why: str) -> None:
    """Raise ValueError unless fitted values are consistent."""
    if not sound:
        raise ValueError(f"the fitted values are inconsistent: {why}")


def check_finite(name: str, values: Any) -> None:
    """Raise ValueError unless values are finite numbers."""
    values = np.asarray(values)
    numbers = values.dtype.kind in "biuf"
    require(numbers and bool(np.isfinite(values).all()), f"{name} is not finite")


def as_places(values: Any) -> NDArray[np.intp]:
    """Return an array of indices; raise ValueError if it is not one."""
    array = np.asarray(values)
    sound = array.ndim == 1 and array.dtype.kind in "iu" and not (array < 0).any()
    require(bool(sound), "not whole numbers")
    return array
