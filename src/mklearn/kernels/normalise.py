"""Normalisation fitted on training kernels and applied to cross kernels.

Raw banks travel; what is fitted here stays with the estimator. Normalised kernels are
never stored: a :class:`Normaliser` turns into the :class:`~mklearn.kernels.bank.Affine`
terms with which a bank answers.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mklearn.kernels.bank import Affine, KernelBank
from mklearn.kernels.features import check_weight
from mklearn.kernels.measures import extreme_eigenvalues, symmetry_error

FloatArray = NDArray[np.float64]

NORMALIZATIONS = (None, "center", "trace", "multiplicative", "spherical")
CENTRED_TRACE = "center, trace"  # what discriminant and subspace learning always do


class Named(Protocol):
    """Kernels with names: a bank, or a map to features."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the kernels."""


@dataclass(frozen=True)
class Normaliser:
    """Statistics of the training kernels, and how to use them on any bank.

    Attributes
    ----------
    scale : (M,) factor of each kernel; 0 for kernels that vanish
    means : (M, n) weighted row means of the training Grams, or None
    mean : (M,) weighted means of all their entries, or None
    root : (M, n) one over the root of the training diagonals, or None
    weight : (n,) sample weights that sum to one
    """

    kind: str | None
    scale: FloatArray
    weight: FloatArray
    means: FloatArray | None = None
    mean: FloatArray | None = None
    root: FloatArray | None = None

    def train(self, bank: KernelBank) -> KernelBank:
        """Return the training bank with normalised answers."""
        return bank.with_affine(self._affine(self.means, self.root, slice(None)))

    def cross(
        self, bank: KernelBank, cols: Any = slice(None), balanced: bool = False
    ) -> KernelBank:
        """Return a cross bank (new samples x training samples) normalised.

        Parameters
        ----------
        bank : KernelBank
            Raw kernels between new samples and the training samples ``cols``.
        cols : index of training samples
        balanced : bool
            Promise that what the bank is applied to sums to zero, so that the row
            means of new samples, which need all training samples, drop out.
        """
        row, u = None, None
        if self.means is not None:
            row = np.zeros((bank.shape[2], bank.shape[0]))
            if not balanced:
                if bank.shape[1] != len(self.weight):
                    raise ValueError(
                        f"Centring needs the kernels with all {len(self.weight)} "
                        f"training samples, got {bank.shape[1]}; pass them all, or "
                        "balanced=True if what they are applied to sums to zero."
                    )
                row = bank.totals(self.weight)[0]
        if self.root is not None:
            u = _inverse_root(bank.diag().T)
        return bank.with_affine(self._affine(row, u, cols))

    def select(self, kernels: Any) -> Normaliser:
        """Return the statistics of some kernels."""

        def part(array: FloatArray | None) -> FloatArray | None:
            return None if array is None else array[kernels]

        return Normaliser(
            self.kind,
            self.scale[kernels],
            self.weight,
            part(self.means),
            part(self.mean),
            part(self.root),
        )

    def _affine(
        self, row: FloatArray | None, u: FloatArray | None, cols: Any
    ) -> Affine | None:
        if self.kind is None:
            return None
        scale = self.scale
        v = None if self.root is None else self.root[:, cols]
        if self.means is None or self.mean is None or row is None:
            return Affine(scale, u, v)
        by = scale[:, None]
        return Affine(
            scale, u, v, by * row, by * self.means[:, cols], scale * self.mean
        )


def fit_normaliser(
    kind: str | None, bank: KernelBank, sample_weight: ArrayLike | None = None
) -> Normaliser:
    """Fit a normalisation on a square training bank.

    Parameters
    ----------
    kind : {None, "center", "trace", "multiplicative", "spherical"}
        "center": ``P K P`` with ``P = I - 1 w'``; "trace": ``K / tr K``;
        "multiplicative": ``K / (mean K_ii - mean K_ij)``, unit variance in feature
        space (LPMKL 26); "spherical": ``K_ij / sqrt(K_ii K_jj)`` (LPMKL 27). Besides
        these, CENTRED_TRACE: centred, then scaled to unit trace.
    bank : KernelBank
    sample_weight : array of shape (n,), optional
        A sample of weight 2 counts as two equal samples.
    """
    n, n_cols, M = bank.shape
    if kind not in (*NORMALIZATIONS, CENTRED_TRACE):
        raise ValueError(f"normalize must be one of {NORMALIZATIONS}, got {kind!r}.")
    if n != n_cols:
        raise ValueError(
            f"A normalisation is fitted on square training kernels, got {bank.shape}."
        )
    weight = check_weight(sample_weight, n)
    total = np.ones(n) if weight is None else weight
    w = total / total.sum()
    diag = bank.diag()
    ones = np.ones(M)
    if kind is None:
        size = np.abs(diag).max(axis=0, initial=0.0)
        _warn_zero(bank, size <= 0)
        return Normaliser(kind, ones, w)
    if kind == "spherical":
        size = diag.max(axis=0)
        _warn_zero(bank, size <= 0)
        scale = np.where(size > 0, 1.0, 0.0)
        return Normaliser(kind, scale, w, root=_inverse_root(diag.T))
    if kind == "trace":
        size = np.asarray(total @ diag)
        return Normaliser(kind, _reciprocal(bank, size, 0.0 * size), w)
    means, mean = bank.totals(w)
    # a difference is zero where it is no more than the rounding of its terms
    rounding = max(1e-12, 16 * bank.eps) * np.abs(w @ diag)
    spread = _reciprocal(bank, w @ diag - mean, rounding)
    if kind == "multiplicative":
        return Normaliser(kind, spread, w)
    if kind == CENTRED_TRACE:
        return Normaliser(kind, spread / total.sum(), w, means=means, mean=mean)
    scale = np.where(spread > 0, 1.0, 0.0)
    return Normaliser(kind, scale, w, means=means, mean=mean)


def _inverse_root(diag: FloatArray) -> FloatArray:
    """Return ``diag ** -0.5``, exactly 1 where the diagonal is 1, 0 where it is 0."""
    root = np.where(diag > 0, diag, np.inf) ** -0.5
    return np.where(diag == 1.0, 1.0, root)


def _reciprocal(bank: Named, size: FloatArray, rounding: FloatArray) -> FloatArray:
    """Return one over ``size``, and 0 with a warning for kernels without any."""
    zero = size <= np.maximum(rounding, np.finfo(float).tiny)
    _warn_zero(bank, zero)
    return np.where(zero, 0.0, 1.0 / np.where(zero, 1.0, size))


def _warn_zero(bank: Named, zero: NDArray[np.bool_]) -> None:
    if zero.all():
        raise ValueError(
            "Every kernel is zero or constant on the training samples, so there is "
            "nothing to learn from; check the columns and the kernels' parameters."
        )
    if zero.any():
        names = [name for name, z in zip(bank.names, zero, strict=True) if z]
        warnings.warn(
            f"{len(names)} of {len(zero)} kernels are zero or constant on the training "
            f"samples and take no part: {names[:5]}.",
            UserWarning,
            stacklevel=4,
        )


# --- definiteness -------------------------------------------------------------------


class NegativePart(NamedTuple):
    """Negative eigenvalues (k,) of a training Gram and their eigenvectors (n, k)."""

    values: FloatArray
    vectors: FloatArray


@dataclass(frozen=True)
class Clip:
    """Negative eigenspaces of the training Grams that were clipped, by kernel.

    With eigenvalues l and vectors V of the negative part, and ``f(x) = V' k(x) / l``
    for the column ``k(x)`` of kernels with the training samples, the clipped kernel is
    ``k(x, z) + f(x)' |l| f(z)``: on the training samples it is the Gram without its
    negative part, and it is defined for any other sample.
    """

    negative: dict[int, NegativePart]

    def train(self, bank: KernelBank) -> KernelBank:
        """Return the training bank with clipped Grams."""
        return self._repair(bank, symmetric=True)

    def cross(self, bank: KernelBank) -> KernelBank:
        """Return a cross bank (to all training samples) clipped consistently."""
        return self._repair(bank, symmetric=False)

    def _repair(self, bank: KernelBank, symmetric: bool) -> KernelBank:
        for m, (values, V) in self.negative.items():
            if bank.shape[1] != len(V):
                raise ValueError(
                    f"Clipping needs the kernels with all {len(V)} training samples, "
                    f"got {bank.shape[1]}."
                )
            K = bank.gram(m)
            if symmetric:
                K = (K + K.T) / 2  # rounding of the kernel, checked before
            f = K @ V
            K -= f @ V.T
            if symmetric:
                bank = bank.replace_gram(m, (K + K.T) / 2)
                continue
            try:
                diag = bank.select([m]).diag()[:, 0] - f**2 @ (1.0 / values)
            except ValueError:  # a given cross Gram has none; only spherical asks
                diag = None
            bank = bank.replace_gram(m, K, diag, cross=True)
        return bank


def check_definite(bank: KernelBank, psd: str, tol: float = 1e-6) -> Clip | None:
    """Check kernels that are not known to be positive semidefinite.

    Parameters
    ----------
    bank : KernelBank
        Square training bank.
    psd : {"check", "clip", "ignore"}
        "check" raises on an indefinite kernel, "clip" returns a repair that removes
        the negative eigenspace from training and cross kernels alike.
    tol : float
        Eigenvalues above ``-tol`` times the largest one count as rounding.
    """
    if psd not in ("check", "clip", "ignore"):
        raise ValueError(f"psd must be 'check', 'clip' or 'ignore', got {psd!r}.")
    if bank.shape[0] != bank.shape[1]:
        raise ValueError(f"Definiteness is for square kernels, got {bank.shape}.")
    if psd == "ignore":
        return None
    negative: dict[int, NegativePart] = {}
    for m, kernel in enumerate(bank.kernels):
        if kernel is not None and kernel.definite:
            continue
        one, name = bank.select([m]), bank.names[m]
        error = symmetry_error(one)
        if error > 1e-6:
            raise ValueError(
                f"Kernel {name!r} is not symmetric: entries differ from their mirror "
                f"images by up to {error:.2g} of the largest; pass (K + K.T) / 2."
            )
        low, high = extreme_eigenvalues(one)
        if low >= -tol * max(high, np.finfo(float).tiny):
            continue
        if psd == "check":
            raise ValueError(
                f"Kernel {name!r} is not positive semidefinite: it has an eigenvalue "
                f"of {low:.3g} or less, and its largest is about {high:.3g}. Try "
                "psd='clip' to remove the negative part, or psd='ignore' to go on "
                "without guarantee."
            )
        values, vectors = np.linalg.eigh(one.gram(0))
        below = values < -tol * values[-1]
        negative[m] = NegativePart(values[below], vectors[:, below])
    return Clip(negative) if negative else None
