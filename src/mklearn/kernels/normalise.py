"""Normalisation fitted on training kernels and applied to cross kernels.

The fitted normalisation belongs to the estimator; banks hold raw kernels. Normalised
kernels are never stored: a :class:`Normaliser` yields terms
(:class:`~mklearn.kernels.affine.Affine`) that a bank applies to its values, and for
kernels that are products of features a :class:`Scaling` does the same to the features.
The factor of a kernel is defined in one place, :func:`kernel_scales`.

A sample without the view of a kernel is placed at the mean ``mu`` of the training
samples that have it, in the kernel's feature space. All its inner products follow from
the means of the Gram matrix, and the kernel stays positive semidefinite, since it is
still an inner product of feature vectors. For a centred kernel the mean is zero. For
others, with ``p_i = 1`` where sample i has the view and 0 elsewhere,

    ``k~_ij = p_i p_j (k_ij - r_i - r_j + c) + r~_i + r~_j - c``

where ``r_i = <phi_i, mu>``, ``c = |mu|^2`` and ``r~_i = p_i r_i + (1 - p_i) c``. Scales
are computed from the samples that have the view.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mklearn.data.checks import NothingToLearnError
from mklearn.data.spelling import plural
from mklearn.kernels.affine import Affine, Terms
from mklearn.kernels.bank import NOT_FINITE, KernelBank
from mklearn.kernels.columns import weight_if_given
from mklearn.kernels.factors import cholesky
from mklearn.kernels.measures import negative_values, sample_size, symmetry_error
from mklearn.kernels.sources import Seen

FloatArray = NDArray[np.float64]

NORMALIZATIONS = (None, "center", "trace", "multiplicative", "spherical")
CENTRED_TRACE = "center, trace"  # always used by discriminant and subspace learning


class Named(Protocol):
    """Kernels with names: a bank, or a map to features."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the kernels."""


@dataclass(frozen=True)
class Normaliser:
    """Statistics of the training kernels, which normalise any bank.

    Attributes
    ----------
    scale : (M,) factor of each kernel; 0 for kernels that vanish
    means : (M, n) weighted row means of the training Grams, or None
    mean : (M,) weighted means of all their entries, or None
    root : (M, n) one over the root of the training diagonals, or None
    weight : (n,) sample weights that sum to one
    present : (M, n) 1 for training samples that have the view, else 0; None for all
    centre : (M, n) inner products of training samples with the mean, where the kernels
        are not centred and samples may lack a view; else None
    level : (M,) squared length of that mean, or None
    """

    kind: str | None
    scale: FloatArray
    weight: FloatArray
    means: FloatArray | None = None
    mean: FloatArray | None = None
    root: FloatArray | None = None
    present: FloatArray | None = None
    centre: FloatArray | None = None
    level: FloatArray | None = None

    def check(self, n_kernels: int) -> None:
        """Raise ValueError unless all values are finite and have the right shape."""
        n = np.size(self.weight)
        shapes: list[tuple[tuple[int, ...], tuple[str, ...]]] = [
            ((n,), ("weight",)),
            ((n_kernels,), ("scale", "mean", "level")),
            ((n_kernels, n), ("means", "root", "present", "centre")),
        ]
        for shape, fields in shapes:
            for field in fields:
                array = getattr(self, field)
                if array is None and field not in ("scale", "weight"):
                    continue
                if np.shape(array) != shape or not (np.abs(array) < 1e150).all():
                    raise ValueError(
                        f"The normalisation needs finite {field} of shape {shape}, got "
                        f"{np.shape(array)}."
                    )
        if not (np.min(self.weight) >= 0 and abs(np.sum(self.weight) - 1) < 1e-6):
            raise ValueError("The weights of samples must sum to one.")
        if self.kind not in (*NORMALIZATIONS, CENTRED_TRACE):
            raise ValueError(f"There is no normalisation {self.kind!r}.")

    def train(self, bank: KernelBank) -> KernelBank:
        """Return the normalised training bank."""
        every = slice(None)
        affine = self._affine(self.means, self.root, every)
        if self.present is not None and self.means is None:
            holed = _incomplete(self.present)
            affine = self._filled(affine, holed, self.centre, self.present, every)
        return bank.with_affine(affine)

    def cross(
        self, bank: KernelBank, cols: Any = slice(None), balanced: bool = False
    ) -> KernelBank:
        """Return a normalised cross bank (new samples x training samples).

        Parameters
        ----------
        bank : KernelBank
            Raw kernels between new samples and the training samples ``cols``.
        cols : index of training samples
        balanced : bool
            Whether the vectors that the bank is applied to sum to zero, so that the row
            means of new samples, which need all training samples, cancel.
        """
        bank = bank.with_affine(None)
        if self.present is not None:
            bank = bank.hide(self.present[:, cols])
        row, u = None, None
        if self.means is not None:
            row = np.zeros((bank.shape[2], bank.shape[0]))
            if not balanced:
                row = self._row_means(bank)
        if self.root is not None:
            u = _inverse_root(bank.diag().T)
        affine = self._affine(row, u, cols)
        present = bank.present
        if present is None or self.means is not None:
            return bank.with_affine(affine)
        # kernels that all training samples have need no row means of new samples
        row = np.zeros(present.shape)
        active = _incomplete(present)
        if self.present is not None:
            holed = _incomplete(self.present)
            found = self._row_means(bank.with_affine(affine))
            row, active = holed[:, None] * found, active | holed
        return bank.with_affine(
            self._filled(affine, active, row, present.astype(np.float64), cols)
        )

    def _row_means(self, bank: KernelBank) -> FloatArray:
        """Return the mean of each row over the training samples that are present."""
        if bank.shape[1] != len(self.weight):
            raise ValueError(
                f"Centring needs the kernels with all {len(self.weight)} training "
                f"samples, got {bank.shape[1]}; pass all of them, or balanced=True if "
                "they are applied to vectors that sum to zero."
            )
        means = bank.totals(self.weight)[0]
        return means if self.present is None else means / _share(self)[:, None]

    def _filled(
        self,
        affine: Affine | None,
        active: NDArray[np.bool_],
        row: FloatArray | None,
        present: FloatArray,
        cols: Any,
    ) -> Affine:
        """Return the terms that place absent samples at the mean, for some kernels."""
        if self.centre is None or self.level is None or row is None:
            raise ValueError(
                "Some new samples lack a view that all training samples had, and the "
                f"mean of the view is not kept with normalize={self.kind!r}; use "
                "normalize='center', or train with some samples that lack the view, "
                "too."
            )
        if affine is None:
            affine = Affine(np.ones(len(active)))
        on = active.astype(np.float64)[:, None]
        row, level = on * row, on[:, 0] * self.level
        col, far = on * self.centre[:, cols], level[:, None]
        known = np.ones(col.shape) if self.present is None else self.present[:, cols]
        outer = Terms(
            present * row + (1.0 - present) * far,
            known * col + (1.0 - known) * far,
            -level,
        )
        return replace(affine, row=row, col=col, const=level, outer=outer)

    def select(self, kernels: Any) -> Normaliser:
        """Return the statistics of some kernels."""

        def part(array: FloatArray | None) -> FloatArray | None:
            return None if array is None else array[kernels]

        present = part(self.present)
        return Normaliser(
            self.kind,
            self.scale[kernels],
            self.weight,
            part(self.means),
            part(self.mean),
            part(self.root),
            None if present is None or present.all() else present,
            part(self.centre),
            part(self.level),
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
    kind: str | None,
    bank: KernelBank,
    sample_weight: ArrayLike | None = None,
    seen: Seen | None = None,
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
    seen : Seen, optional
        The result of :func:`look_at` for the bank with these weights.
    """
    n, n_cols, M = bank.shape
    check_kind(kind)
    if n != n_cols:
        raise ValueError(
            f"A normalisation is fitted on square training kernels, got {bank.shape}."
        )
    weight = weight_if_given(sample_weight, n)
    each = np.ones(n) if weight is None else weight
    total = float(each.sum())
    present = None if bank.present is None else bank.present.astype(np.float64)
    start = Normaliser(kind, np.ones(M), each / total, present=present)
    diag, root = bank.diag(), None
    if kind in (None, "spherical"):
        size = np.abs(diag).max(axis=0) if kind is None else diag.max(axis=0)
        scale = kernel_scales(kind, bank, total, size)
        root = None if kind is None else _inverse_root(diag.T)
    elif kind == "trace":
        scale = kernel_scales(kind, bank, total, each @ diag / (total * _share(start)))
    else:
        mean_diag = start.weight @ diag / _share(start)
        return _fit_spread(start, bank, total, mean_diag, seen)
    start = replace(start, scale=scale, root=root)
    if present is None and not bank.several_views:
        return start
    centre, level = _means(start, bank.with_affine(Affine(scale, root, root)))
    return replace(start, centre=centre, level=level)


def _fit_spread(
    start: Normaliser,
    bank: KernelBank,
    total: float,
    diag: FloatArray,
    seen: Seen | None,
) -> Normaliser:
    """Return the normalisations that need the mean of each kernel."""
    alike = start.present is None and not bank.several_views
    alone = start.kind == "multiplicative" and alike
    if seen is not None:
        means, mean = seen.means, seen.means @ start.weight
    elif alone:
        # only the overall mean is needed: use symmetry, and compute no row means
        means, mean = np.zeros((len(start.scale), 0)), bank.quad(start.weight)
    else:
        means, mean = _means(start, bank)
    # a difference counts as zero if it is within the rounding of its terms
    rounding = max(1e-12, 16 * bank.eps)
    scale = kernel_scales(start.kind, bank, total, diag, diag - mean, rounding)
    if start.kind != "multiplicative":
        return replace(start, scale=scale, means=means, mean=mean)
    if alone:
        return replace(start, scale=scale)
    centre, level = scale[:, None] * means, scale * mean
    return replace(start, scale=scale, centre=centre, level=level)


def check_kind(kind: str | None) -> None:
    """Raise ValueError unless ``kind`` is a known normalisation."""
    if kind not in (*NORMALIZATIONS, CENTRED_TRACE):
        raise ValueError(f"normalize must be one of {NORMALIZATIONS}, got {kind!r}.")


def kernel_scales(
    kind: str | None,
    bank: Named,
    total: float,
    diag: FloatArray,
    spread: FloatArray | None = None,
    rounding: float = 1e-12,
) -> FloatArray:
    """Return the factor of each kernel, and 0 with a warning for those that vanish.

    Parameters
    ----------
    kind : {None, "center", "trace", "multiplicative", "spherical"}, CENTRED_TRACE
    bank : KernelBank or FeatureMap
        Provides the names of the kernels.
    total : float
        Sum of the sample weights.
    diag : array of shape (M,)
        Mean of ``k(x, x)`` over the samples that have the view; for None and
        "spherical" it only matters whether it is zero.
    spread : array of shape (M,), optional
        Mean squared distance of these samples to their mean, which "center",
        "multiplicative" and CENTRED_TRACE need.
    rounding : float
        A spread below this fraction of ``diag`` counts as zero.
    """
    if kind is None or kind == "spherical":
        _warn_zero(bank, diag <= 0)
        return np.ones(len(diag)) if kind is None else np.where(diag > 0, 1.0, 0.0)
    if kind == "trace":
        return _reciprocal(bank, total * diag, 0.0 * diag)
    assert spread is not None
    scale = _reciprocal(bank, spread, rounding * np.abs(diag))
    if kind == "multiplicative":
        return scale
    return scale / total if kind == CENTRED_TRACE else np.where(scale > 0, 1.0, 0.0)


def _incomplete(present: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which kernels have samples that lack their view."""
    return np.asarray((present == 0).any(axis=1))


def _share(normaliser: Normaliser) -> FloatArray:
    """Return the weight of the samples present for each kernel; 1 if there are none."""
    if normaliser.present is None:
        return np.ones(len(normaliser.scale))
    share = normaliser.present @ normaliser.weight
    return np.where(share > 0, share, 1.0)


def _means(normaliser: Normaliser, bank: KernelBank) -> tuple[FloatArray, FloatArray]:
    """Return row means and mean of each Gram over the samples that are present."""
    means, mean = bank.totals(normaliser.weight)
    if normaliser.present is None:
        return means, mean
    share = _share(normaliser)
    return means / share[:, None], mean / share**2


def _inverse_root(diag: FloatArray) -> FloatArray:
    """Return ``diag ** -0.5``, exactly 1 where the diagonal is 1, 0 where it is 0."""
    root = np.where(diag > 0, diag, np.inf) ** -0.5
    return np.where(diag == 1.0, 1.0, root)


def _reciprocal(bank: Named, size: FloatArray, rounding: FloatArray) -> FloatArray:
    """Return one over ``size``, and 0 with a warning for kernels of size zero."""
    zero = size <= np.maximum(rounding, np.finfo(float).tiny)
    _warn_zero(bank, zero)
    return np.where(zero, 0.0, 1.0 / np.where(zero, 1.0, size))


def _warn_zero(bank: Named, zero: NDArray[np.bool_]) -> None:
    if zero.all():
        raise NothingToLearnError(
            "Every kernel is zero or constant on the training samples, so there is "
            "nothing to learn from; check the columns and the parameters of the "
            "kernels."
        )
    if zero.any():
        names = [name for name, z in zip(bank.names, zero, strict=True) if z]
        verb = "is" if len(names) == 1 else "are"
        warnings.warn(
            f"{len(names)} of {plural(len(zero), 'kernel')} {verb} zero or constant on "
            f"the training samples and {verb} ignored: {names[:5]}.",
            UserWarning,
            stacklevel=4,
        )


# --- features -----------------------------------------------------------------------


class Features(Named, Protocol):
    """A feature map, possibly with the share of samples that have each view."""

    @property
    def slices(self) -> tuple[slice, ...]:
        """Columns of each kernel."""

    @property
    def share(self) -> FloatArray | None:
        """Weight of the samples that have the view, (M,); None for all."""


@dataclass(frozen=True)
class Scaling:
    """Normalised features: ``root * (z - shift)``, column by column.

    Centring a kernel subtracts the mean feature, and scaling it multiplies the features
    by a root, so that both follow from statistics of the raw features, without another
    pass over the samples. Spherical normalisation is done by the feature map, sample by
    sample.

    Attributes
    ----------
    root : array of shape (D,)
    shift : array of shape (D,)
    mean : array of shape (D,)
        The mean, where samples that lack a view are placed, whatever ``shift`` is.
    """

    root: FloatArray
    shift: FloatArray
    mean: FloatArray

    @classmethod
    def fit(
        cls,
        kind: str | None,
        features: Features,
        total: float,
        mean: FloatArray,
        scatter: FloatArray,
    ) -> Scaling:
        """Fit a normalisation like :func:`fit_normaliser`, from statistics.

        Parameters
        ----------
        kind : {None, "center", "trace", "multiplicative", "spherical"}, CENTRED_TRACE
        features : FeatureMap
            Samples that lack a view are at the mean, and count only in ``total``.
        total : float
            Sum of the sample weights.
        mean : array of shape (D,)
            Weighted mean of the features.
        scatter : array of shape (D,)
            Weighted sums of the squared deviations from it.
        """
        check_kind(kind)
        starts = np.array([s.start for s in features.slices])
        known = total if features.share is None else total * features.share
        spread = np.add.reduceat(scatter, starts) / known
        diag = spread + np.add.reduceat(mean**2, starts)
        scale = kernel_scales(kind, features, total, diag, spread)
        centred = kind in ("center", CENTRED_TRACE)
        widths = [s.stop - s.start for s in features.slices]
        return cls(
            np.repeat(np.sqrt(scale), widths),
            mean if centred else np.zeros_like(mean),
            mean,
        )

    def raw(self, w: FloatArray, bias: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the equivalent weights (D, T) and bias (T,) for raw features."""
        raw = self.root[:, None] * w
        return raw, bias - self.shift @ raw


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

    def check(self, n_kernels: int, n: int) -> None:
        """Raise ValueError unless all values are finite and have the right shape."""
        for m, (values, V) in self.negative.items():
            if m not in range(n_kernels) or np.shape(V) != (n, np.size(values)):
                raise ValueError("Clipping was found for other kernels or samples.")
            if not (np.isfinite(values).all() and np.isfinite(V).all()):
                raise ValueError("Clipping needs finite numbers.")

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
                K = (K + K.T) / 2  # symmetric up to rounding, as checked before
            f = K @ V
            K -= f @ V.T
            if symmetric:
                bank = bank.replace_gram(m, (K + K.T) / 2)
                continue
            try:
                diag = bank.select([m]).diag()[:, 0] - f**2 @ (1.0 / values)
            except ValueError:  # a given cross Gram has none; only needed for spherical
                diag = None
            bank = bank.replace_gram(m, K, diag, cross=True)
        return bank


def check_definite(
    bank: KernelBank,
    psd: str,
    seen: Seen | None = None,
    tol: float = 1e-6,
    exact: bool = False,
) -> Clip | None:
    """Check kernels that are not known to be positive semidefinite.

    Parameters
    ----------
    bank : KernelBank
        Square training bank.
    psd : {"check", "clip", "ignore"}
        "check" raises an error for an indefinite kernel, as far as an examination of a
        part of it shows (:func:`~mklearn.kernels.measures.negative_values`); "clip"
        examines all of it and returns a correction that removes the negative eigenspace
        from training and cross kernels alike.
    seen : Seen, optional
        The result of :func:`look_at` for the bank.
    tol : float
        Eigenvalues above ``-tol`` times the largest one count as rounding.
    exact : bool
        Whether to examine each kernel completely in any case.
    """
    check_psd(psd)
    if bank.shape[0] != bank.shape[1]:
        raise ValueError(f"Definiteness is for square kernels, got {bank.shape}.")
    unknown = _unknown(bank)
    if psd == "ignore" or len(unknown) == 0:
        return None
    part = bank.select(unknown)
    if seen is None:
        seen = _surveyed(part, np.ones(len(bank)), tol)
    for k in np.flatnonzero(seen.unlike).tolist():
        error = symmetry_error(part.select([k]))
        if error > tol:
            raise ValueError(
                f"Kernel {part.names[k]!r} is not symmetric: K and K.T differ by up to "
                f"{error:.2g} of the largest entry; pass (K + K.T) / "
                "2."
            )
    low = negative_values(part, seen, tol, exact or psd == "clip")
    negative: dict[int, NegativePart] = {}
    for k in np.flatnonzero(low).tolist():
        if psd == "check":
            raise indefinite(part.names[k], low[k], part.select([k]).diag().max())
        values, vectors = np.linalg.eigh(part.gram(k))
        below = values < -tol * values[-1]
        if below.any():
            found = NegativePart(values[below], vectors[:, below])
            negative[int(unknown[k])] = found
    return Clip(negative) if negative else None


def sum_is_definite(
    bank: KernelBank,
    theta: FloatArray,
    known: FloatArray | None = None,
    tol: float = 1e-6,
) -> bool:
    """Return whether the weighted sum of partially examined kernels is semidefinite.

    The bounds of a solution are valid if the weighted sum of its kernels is positive
    semidefinite, even if single kernels are not. This takes one Cholesky factorisation
    of the sum, which is cheap compared with one for each kernel. If it exists in single
    precision, no eigenvalue is further below zero than a few times ``tol``; if not, it
    is computed in double precision.

    Parameters
    ----------
    bank : KernelBank
        Square.
    theta : array of shape (M,) or (T, M)
    known : array of shape (n, n), optional
        The sum for theta (M,), if it has been computed.
    tol : float
        Eigenvalues above ``-tol`` times the norm of the sum count as rounding.
    """
    unknown, n = _unknown(bank), bank.shape[0]
    if len(unknown) == 0 or sample_size(n, len(unknown)) == n:
        return True  # each kernel was examined completely
    for weights in np.atleast_2d(theta):
        if weights[unknown].any():
            K = bank.combine_symmetric(weights) if known is None else known
            above = float((tol + bank.eps) * np.linalg.norm(K))

            def definite(kind: str, K: FloatArray = K, above: float = above) -> bool:
                shifted = K.T.astype(kind, order="F")
                shifted.T.ravel()[:: n + 1] += above
                return cholesky(shifted)[1]

            if not any(map(definite, ("f4", "f8"))):
                return False
    return True


def look_at(bank: KernelBank, weight: FloatArray) -> Seen | None:
    """Return statistics from one pass over given kernels, for all later steps.

    None if some kernels are formulas, which need fewer checks. Raises ValueError if
    there is a NaN or an infinity.
    """
    if len(_unknown(bank)) < bank.shape[2]:
        return None
    return _surveyed(bank, weight / weight.sum(), 1e-6)


def _surveyed(bank: KernelBank, weight: FloatArray, tol: float) -> Seen:
    seen = bank.survey(weight, tol)
    if not np.isfinite(seen.squares).all():
        # squares of finite numbers may overflow; then check the entries themselves
        for m in np.flatnonzero(~np.isfinite(seen.squares)).tolist():
            if not np.isfinite(bank.gram(m)).all():
                raise ValueError(NOT_FINITE)
    return seen


def _unknown(bank: KernelBank) -> NDArray[np.intp]:
    """Return which kernels are not positive semidefinite by their formula."""
    known = [kernel is not None and kernel.definite for kernel in bank.kernels]
    return np.flatnonzero(~np.array(known))


def check_psd(psd: str) -> None:
    """Raise ValueError unless ``psd`` is a known treatment of indefinite kernels."""
    if psd not in ("check", "clip", "ignore"):
        raise ValueError(f"psd must be 'check', 'clip' or 'ignore', got {psd!r}.")


def indefinite(name: str, low: float, high: float) -> ValueError:
    """Return the error about a kernel with a negative eigenvalue."""
    return ValueError(
        f"Kernel {name!r} is not positive semidefinite: it has an eigenvalue of "
        f"{low:.3g} or less, while its largest is at least {high:.3g}. {REMEDY}"
    )


REMEDY = (
    "Try psd='clip' to remove the negative part, or psd='ignore' to continue without "
    "guarantee."
)
