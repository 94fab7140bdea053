"""Low-rank kernels: features whose dot products equal or approximate the kernel.

A :class:`FeatureMap` turns samples into features Z, those of all kernels side by side,
so that ``Z[:, slices[m]] @ Z[:, slices[m]].T`` stands for the Gram matrix of kernel m.
It is fitted on a sample of the data, is small enough to be sent to other machines, and
is applied to blocks of rows. There are three kinds of features:

- *Nyström*: ``K(x, L) K(L, L)^(-1/2)`` with landmarks L, exact for samples in the span
  of the landmarks. All kernels on the same columns share their landmarks, and those
  with the same base, such as the widths of a ladder, one distance matrix.
- *Fourier*: cosines and sines of random projections, for the kernels of a difference
  (RBF, Laplacian, Matérn). The widths of a ladder share one draw, scaled.
- *explicit*: the features that a kernel is made of, where they are few (linear, cosine,
  polynomial, spectrum). These are exact. Many linear kernels on groups of the same
  columns, such as gene sets, share them: each column is computed once, and counted once
  in sums over samples, whatever the number of groups that it is in.

:meth:`KernelBank.from_features` makes a bank of features.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from itertools import islice, pairwise
from numbers import Integral, Real
from operator import add
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from mklearn.data.spelling import plural
from mklearn.data.views import MultiView
from mklearn.kernels.columns import (
    Features,
    FeatureSet,
    columns_in,
    example,
    feature_key,
    fit_features,
    grouped,
    sharing,
    union_of,
    weight_if_given,
)
from mklearn.kernels.families import KernelLike, expand_kernels
from mklearn.kernels.joint import Joint
from mklearn.kernels.landmarks import (
    CUTOFF,
    LANDMARKS,
    ApproximationError,
    Sample,
    compare,
    indefinite,
)
from mklearn.kernels.specs import Kernel, Product, unique_names

FloatArray = NDArray[np.float64]

APPROXIMATIONS = ("nystroem", "rff")

_MOST = 2000  # maximum number of features of a kernel if an accuracy is requested
_FEW = 500  # maximum number of explicit features in that case


class Piece(ABC):
    """Features of some kernels on the same columns.

    The *columns* of a piece are its distinct features. Only :class:`Columns` has
    features that several kernels share.
    """

    exact: ClassVar[bool]
    shared: ClassVar[bool] = False

    @property
    @abstractmethod
    def widths(self) -> tuple[int, ...]:
        """Number of features of each kernel."""

    @property
    def n_columns(self) -> int:
        """Number of columns."""
        return sum(self.widths)

    def own_columns(self) -> list[NDArray[np.intp]]:
        """Return which of the columns are the features of each kernel."""
        ends = np.cumsum([0, *self.widths])
        return [np.arange(a, b) for a, b in pairwise(ends)]

    @abstractmethod
    def features(self, samples: Any) -> Iterator[FloatArray]:
        """Yield the features of each kernel, shape (n, width)."""

    def columns(self, samples: Any) -> Iterator[FloatArray]:
        """Yield the columns, in parts."""
        return self.features(samples)

    @abstractmethod
    def check(self) -> None:
        """Raise ValueError if the values are inconsistent."""

    @abstractmethod
    def select(self, which: Sequence[int]) -> Piece:
        """Return the piece with some of the kernels."""

    def on_own(self, features: Features) -> tuple[Features, Piece]:
        """Return the features and the piece without columns that no kernel uses."""
        return features, self


@dataclass(frozen=True)
class FeatureMap:
    """Features of several kernels, fitted on a sample.

    Attributes
    ----------
    names : tuple of str
    kernels : tuple of Kernel
        The kernels with all parameters resolved to numbers.
    slices : tuple of slice
        The columns of each kernel.
    error : ApproximationError
    fill : array of shape (n_features,), or None
        Features assigned to samples that lack the view: the mean over samples that have
        it.
    share : array of shape (M,), or None
        Share of the samples that have the view, by weight; None for ones.
    """

    names: tuple[str, ...]
    kernels: tuple[Kernel, ...]
    slices: tuple[slice, ...]
    error: ApproximationError
    pieces: tuple[tuple[Features, Any, tuple[int, ...]], ...] = field(repr=False)
    spherical: bool = False
    fill: FloatArray | None = field(default=None, repr=False)
    share: FloatArray | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        for array, size in (
            (self.fill, self.n_features),
            (self.share, len(self.slices)),
        ):
            if array is not None and not (
                np.shape(array) == (size,) and np.isfinite(array).all()
            ):
                raise ValueError(
                    f"Means of features need {size} finite numbers, got shape "
                    f"{np.shape(array)}."
                )

    @classmethod
    def fit(
        cls,
        X: Any,
        kernels: KernelLike = "auto",
        *,
        approximation: str = "nystroem",
        rank: float = 200,
        landmarks: str = "kmeans",
        sample_weight: ArrayLike | None = None,
        random_state: int | None = 0,
        spherical: bool = False,
        psd: str = "check",
    ) -> FeatureMap:
        """Choose the features.

        Parameters
        ----------
        X : array, DataFrame, sparse matrix or MultiView
            A sample of the data, from which widths ("median"), standardisation and
            landmarks are taken.
        kernels : kernel, name, callable, list of these, or "auto"
        approximation : {"nystroem", "rff"}
            "rff" uses random Fourier features for kernels that have them. In either
            case explicit features are used if there are no more than ``rank`` of them.
        rank : int or float
            Number of features per kernel, or, if between 0 and 1, the largest error
            allowed for any kernel: each kernel gets as few features as the estimated
            error allows, up to 2000.
        landmarks : {"kmeans", "uniform", "leverage"}
            How Nyström landmarks are chosen: far from each other (k-means++ in feature
            space), uniformly at random, or by approximate ridge leverage scores.
        sample_weight : array of shape (n,), optional
        random_state : int or None
        spherical : bool
            Whether to scale the features of each sample and kernel to length one.
        psd : {"check", "clip", "ignore"}
            What to do if a kernel is not positive semidefinite on the landmarks: raise
            an error ("check"), or drop its negative part.
        """
        rank = check_rank(rank)
        _check_choices(approximation, landmarks)
        data = MultiView.wrap(X)
        if len(data) < 1:
            raise ValueError("Found array with 0 sample(s); features need some.")
        weight = weight_if_given(sample_weight, len(data))
        specs = expand_kernels(kernels, data)
        names = unique_names([spec.label() for spec in specs])
        rng = np.random.default_rng(random_state)
        found: dict[int, Kernel] = {}
        pieces: list[tuple[Features, Any, tuple[int, ...]]] = []
        widths = np.zeros(len(specs), dtype=int)
        trace, frobenius = np.zeros(len(specs)), np.zeros(len(specs))
        few = int(rank) if rank >= 1 else _FEW
        shared = [] if spherical else _sharing(specs, data, few)
        for members in shared:
            same = [specs[m] for m in members]
            union = FeatureSet.fit(union_of(same, data), data, weight)
            columns = Columns(tuple(columns_in(same, union)))
            pieces.append((union, columns, tuple(members.tolist())))
            widths[members] = columns.widths
            found.update(zip(members.tolist(), same, strict=True))
        others = np.setdiff1d(np.arange(len(specs)), np.concatenate([[], *shared]))
        for chosen in grouped(feature_key(specs[m], data) for m in others):
            members = others[chosen]
            features = fit_features(specs[members[0]], data, weight)
            samples = features.take(data)
            holes, w = features.absent(data), weight
            if holes is not None:
                samples, w = samples[~holes], None if w is None else w[~holes]
            known: dict[Any, Any] = {}
            for m in members:
                specs[m].check_domain(samples)
                found[m] = specs[m].resolve(samples, w, known)
            sample = Sample(samples, w, rng)
            choice = _Choice(sample, rank, landmarks, psd)
            same = [found[m] for m in members]
            for piece, which in choice.pieces(same, approximation):
                own = [members[k] for k in which]
                pieces.append((features, piece, tuple(int(m) for m in own)))
                widths[own] = piece.widths
                if not piece.exact:
                    trace[own], frobenius[own] = sample.errors(
                        [same[k] for k in which], piece.features
                    )
        ends = np.cumsum(widths)
        made = cls(
            names,
            tuple(found[m] for m in range(len(specs))),
            tuple(slice(int(e - w), int(e)) for e, w in zip(ends, widths, strict=True)),
            ApproximationError(trace, frobenius),
            tuple(pieces),
            spherical,
        )
        if not any(features.absent(data) is not None for features, _, _ in pieces):
            return made
        size = 4096
        starts = range(0, len(data), size)
        w = np.ones(len(data)) if weight is None else weight
        blocks = (slice(start, start + size) for start in starts)
        present = (made.presence(data[rows], w[rows]) for rows in blocks)
        return made.with_means(reduce(add, present))

    @property
    def n_features(self) -> int:
        """Number of features of all kernels."""
        return self.slices[-1].stop

    @cached_property
    def places(self) -> NDArray[np.intp] | None:
        """Column of each feature, shape (n_features,).

        None if kernels share no columns, so that features and columns are the same.
        """
        if not any(piece.shared for _, piece, _ in self.pieces):
            return None
        places, start = np.empty(self.n_features, dtype=np.intp), 0
        for _, piece, positions in self.pieces:
            for m, own in zip(positions, piece.own_columns(), strict=True):
                places[self.slices[m]] = start + own
            start += piece.n_columns
        return places

    @property
    def n_columns(self) -> int:
        """Number of distinct columns of all kernels."""
        return sum(piece.n_columns for _, piece, _ in self.pieces)

    def folded(self, w: FloatArray) -> FloatArray:
        """Return weights of the columns, (n_columns, T), from those of the features."""
        if self.places is None:
            return w
        out = np.zeros((self.n_columns, w.shape[1]))
        np.add.at(out, self.places, w)
        return out

    def transform(self, X: Any) -> FloatArray:
        """Return the features of some samples, shape (n, n_features).

        The array takes ``8 n n_features`` bytes, so large data should be given in
        blocks. Samples that lack the view of a kernel get the mean of those that have
        it.
        """
        columns = self.columns(X)
        return columns if self.places is None else columns[:, self.places]

    def columns(self, X: Any) -> FloatArray:
        """Return the columns of some samples, shape (n, n_columns).

        These are the features, where shared ones occur only once.
        """
        out, gone = self._computed(X)
        for m, holes in gone.items():
            if self.fill is None:
                raise ValueError(
                    f"Some samples lack the view of kernel {self.names[m]!r}, but all "
                    "samples that the features were chosen on have it; choose the "
                    "features on a sample in which some lack it, too."
                )
            out[np.ix_(holes, self._at(m))] = self.fill[self.slices[m]]
        return out

    def _at(self, m: int) -> NDArray[np.intp]:
        """Return the columns of a kernel."""
        part = np.arange(self.slices[m].start, self.slices[m].stop)
        return part if self.places is None else self.places[part]

    def presence(self, X: Any, weight: FloatArray) -> Presence:
        """Return the weight of samples that have each view, and sums of their features.

        Parameters
        ----------
        X : as in :meth:`transform`
        weight : array of shape (n,)
        """
        Z, gone = self._computed(X)
        total = float(weight.sum())
        known = np.full(len(self.names), total)
        for m, holes in gone.items():
            known[m] = weight @ ~holes
            Z[np.ix_(holes, self._at(m))] = 0.0
        sums = weight @ Z
        return Presence(
            total, known, sums if self.places is None else sums[self.places]
        )

    def with_means(self, presence: Presence) -> FeatureMap:
        """Return the map with the means of the samples that have each view."""
        known = np.where(presence.known > 0, presence.known, 1.0)
        widths = [s.stop - s.start for s in self.slices]
        fill = presence.sums / np.repeat(known, widths)
        return replace(self, fill=fill, share=known / presence.total)

    def _computed(self, X: Any) -> tuple[FloatArray, dict[int, NDArray[np.bool_]]]:
        """Return columns, and by kernel the rows that lack its view."""
        data = MultiView.wrap(X)
        gone: dict[int, NDArray[np.bool_]] = {}
        out = np.empty((len(data), self.n_columns))
        start = 0
        taken: dict[int, Any] = {}
        for features, piece, positions in self.pieces:
            if id(features) not in taken:
                taken[id(features)] = features.take(data)
            samples = taken[id(features)]
            holes = features.absent(data)
            for m in positions:
                self.kernels[m].check_domain(samples)
                if holes is not None:
                    gone[m] = holes
            if self.places is None:
                for m, Z in zip(positions, piece.features(samples), strict=True):
                    out[:, self.slices[m]] = Z
                continue
            for Z in piece.columns(samples):
                out[:, start : start + Z.shape[1]] = Z
                start += Z.shape[1]
        if self.spherical:
            for part in self.slices:
                size = np.sqrt(np.einsum("ij,ij->i", out[:, part], out[:, part]))
                out[:, part] /= np.where(size > 0, size, np.inf)[:, None]
        return out, gone

    def check(self) -> None:
        """Raise ValueError if features and kernels are inconsistent."""
        M, end = len(self.slices), 0
        places: list[int] = []
        if not len(self.names) == len(self.kernels) == M > 0:
            raise ValueError("Each kernel needs a name and features.")
        for features, piece, positions in self.pieces:
            if not isinstance(features, Features):
                raise ValueError("A kernel has no features.")
            features.check()
            if not isinstance(piece, Piece):
                raise ValueError("The kind of some features is unknown.")
            piece.check()
            if piece.shared and (
                self.spherical or features.text or piece.n_columns != features.n_columns
            ):
                raise ValueError("The columns do not match those of the samples.")
            widths = dict(zip(positions, piece.widths, strict=True))
            for m, width in widths.items():
                part = self.slices[m]
                if part.step is not None or part.stop - part.start != width:
                    raise ValueError("Features have other columns.")
            places += positions
        if sorted(places) != list(range(M)):
            raise ValueError("Each kernel needs features of exactly one kind.")
        for part in self.slices:
            if part.start != end or part.stop <= end:
                raise ValueError("Features have other columns.")
            end = part.stop

    def example(self, n: int) -> Any:
        """Return ``n`` samples that are valid input of :meth:`transform`."""
        return example((features for features, _, _ in self.pieces), n)

    def select(self, kernels: Sequence[int]) -> FeatureMap:
        """Return the map of some kernels, in that order."""
        chosen = [int(m) for m in kernels]
        pieces = []
        for features, piece, positions in self.pieces:
            which = [k for k, m in enumerate(positions) if m in chosen]
            if which:
                places = tuple(chosen.index(positions[k]) for k in which)
                pieces.append((*piece.select(which).on_own(features), places))
        widths = [self.slices[m].stop - self.slices[m].start for m in chosen]
        ends = np.cumsum(widths).tolist()
        columns = np.concatenate([np.r_[self.slices[m]] for m in chosen])
        return replace(
            self,
            names=tuple(self.names[m] for m in chosen),
            kernels=tuple(self.kernels[m] for m in chosen),
            slices=tuple(slice(e - w, e) for e, w in zip(ends, widths, strict=True)),
            error=ApproximationError(
                self.error.trace[chosen], self.error.frobenius[chosen]
            ),
            pieces=tuple(pieces),
            fill=None if self.fill is None else self.fill[columns],
            share=None if self.share is None else self.share[chosen],
        )


@dataclass(frozen=True)
class Presence:
    """Weights and sums over the samples that have the view of each kernel.

    Those of two sets of samples can be added.

    Attributes
    ----------
    total : float
        Weight of all samples.
    known : array of shape (M,)
        Weight of those that have the view.
    sums : array of shape (D,)
        Weighted sums of their features.
    """

    total: float
    known: FloatArray
    sums: FloatArray

    def __add__(self, other: Presence) -> Presence:
        return Presence(
            self.total + other.total, self.known + other.known, self.sums + other.sums
        )


def check_rank(rank: Any) -> float:
    """Return a number of features, or an accuracy between 0 and 1."""
    if isinstance(rank, Real) and not isinstance(rank, bool):
        if isinstance(rank, Integral) and int(rank) >= 1:
            return int(rank)
        if 0 < float(rank) < 1:
            return float(rank)
    raise ValueError(
        "rank must be a positive number of features per kernel, or a relative error "
        f"between 0 and 1, got {rank!r}; try rank=200 or rank=0.01."
    )


def _check_choices(approximation: str, landmarks: str) -> None:
    if approximation not in APPROXIMATIONS:
        raise ValueError(
            f"approximation must be one of {APPROXIMATIONS}, got {approximation!r}."
        )
    if landmarks not in LANDMARKS:
        raise ValueError(f"landmarks must be one of {LANDMARKS}, got {landmarks!r}.")


# --- the kinds of features ------------------------------------------------------------


@dataclass(frozen=True)
class Nystroem(Piece):
    """``K(x, L) roots[k]`` with landmarks L; a kernel may use only the first of them.

    Attributes
    ----------
    kernels : tuple of Kernel
    points : the landmarks, in the form of the samples
    roots : tuple of arrays of shape (r_k, c_k)
        ``roots @ roots.T`` inverts the kernel on the first ``r_k`` landmarks.
    """

    exact: ClassVar[bool] = False

    kernels: tuple[Kernel, ...]
    points: Any
    roots: tuple[FloatArray, ...]

    @property
    def widths(self) -> tuple[int, ...]:
        """Number of features of each kernel."""
        return tuple(root.shape[1] for root in self.roots)

    def check(self) -> None:
        """Raise ValueError if the values are inconsistent."""
        joint = isinstance(self.points, Joint)
        for points in self.points.parts if joint else (self.points,):
            values = points.data if sparse.issparse(points) else points
            if values.dtype.kind == "f":
                _require_finite(values)
        for kernel, root in zip(self.kernels, self.roots, strict=True):
            _require_finite(root)
            if not isinstance(kernel, Kernel) or len(root) > self.points.shape[0]:
                raise ValueError("Landmarks and kernels do not fit together.")

    def features(self, samples: Any) -> Iterator[FloatArray]:
        """Yield the features of each kernel."""
        for K, root in zip(
            compare(self.kernels, samples, self.points), self.roots, strict=True
        ):
            yield K[:, : len(root)] @ root

    def select(self, which: Sequence[int]) -> Nystroem:
        """Return the piece with some of the kernels."""
        return replace(
            self,
            kernels=tuple(self.kernels[k] for k in which),
            roots=tuple(self.roots[k] for k in which),
        )


@dataclass(frozen=True)
class Fourier(Piece):
    """``cos(s_k x'omega), sin(s_k x'omega)``, divided by the root of their number.

    Attributes
    ----------
    omega : array of shape (d, r)
        Frequencies for unit width.
    scales : tuple of float
        Factor of the frequencies for each kernel.
    counts : tuple of int
        Number of frequencies of each kernel.
    """

    exact: ClassVar[bool] = False

    omega: FloatArray
    scales: tuple[float, ...]
    counts: tuple[int, ...]

    @property
    def widths(self) -> tuple[int, ...]:
        """Number of features of each kernel."""
        return tuple(2 * count for count in self.counts)

    def check(self) -> None:
        """Raise ValueError if the values are inconsistent."""
        _require_finite(self.omega)
        _require_finite(self.scales)
        known = range(1, self.omega.shape[1] + 1)
        if len(self.scales) != len(self.counts) or not set(self.counts) <= set(known):
            raise ValueError("Frequencies and kernels do not fit together.")

    def features(self, samples: Any) -> Iterator[FloatArray]:
        """Yield the features of each kernel."""
        angle = np.asarray(samples @ self.omega)
        for scale, count in zip(self.scales, self.counts, strict=True):
            scaled = scale * angle[:, :count]
            yield np.hstack([np.cos(scaled), np.sin(scaled)]) * count**-0.5

    def select(self, which: Sequence[int]) -> Fourier:
        """Return the piece with some of the kernels."""
        return replace(
            self,
            scales=tuple(self.scales[k] for k in which),
            counts=tuple(self.counts[k] for k in which),
        )


@dataclass(frozen=True)
class Explicit(Piece):
    """The features that one kernel is made of.

    Attributes
    ----------
    kernel : Kernel
    count : int
    """

    exact: ClassVar[bool] = True

    kernel: Kernel
    count: int

    @property
    def widths(self) -> tuple[int, ...]:
        """Number of features of the kernel."""
        return (self.count,)

    def check(self) -> None:
        """Raise ValueError if the number of features is impossible."""
        if not isinstance(self.kernel, Kernel):
            raise ValueError("Some features belong to no kernel.")
        kernel = self.kernel
        for factor in kernel.factors if isinstance(kernel, Product) else (kernel,):
            degree = factor.parameters().get("degree", 1)
            if not degree <= max(_MOST, self.count):  # the true number is larger
                raise ValueError(
                    f"A kernel of degree {degree} cannot have "
                    f"{plural(self.count, 'feature')}."
                )

    def features(self, samples: Any) -> Iterator[FloatArray]:
        """Yield the features."""
        yield self.kernel.explicit(samples)

    def select(self, which: Sequence[int]) -> Explicit:
        """Return the piece itself: it has one kernel."""
        return self


@dataclass(frozen=True)
class Columns(Piece):
    """Columns of the samples as they are, of which each linear kernel has a group.

    Attributes
    ----------
    groups : tuple of arrays of int
        Columns of the samples; groups may overlap.
    """

    exact: ClassVar[bool] = True
    shared: ClassVar[bool] = True

    groups: tuple[NDArray[np.intp], ...]

    @property
    def widths(self) -> tuple[int, ...]:
        """Number of columns of each kernel."""
        return tuple(len(group) for group in self.groups)

    @property
    def used(self) -> NDArray[np.intp]:
        """The columns that are in any group, in ascending order."""
        return np.unique(np.concatenate(self.groups))

    @property
    def n_columns(self) -> int:
        """Number of columns that are in any group."""
        return len(self.used)

    def own_columns(self) -> list[NDArray[np.intp]]:
        """Return the groups."""
        return list(self.groups)

    def check(self) -> None:
        """Raise ValueError unless groups cover the columns 0, 1, ... without a gap."""
        for group in self.groups:
            group = np.asarray(group)
            if group.dtype.kind != "i" or group.ndim != 1 or not len(group):
                raise ValueError("Groups of columns are arrays of whole numbers.")
        used = self.used
        if not np.array_equal(used, np.arange(len(used))):
            raise ValueError("Groups of columns leave a column out.")

    def features(self, samples: Any) -> Iterator[FloatArray]:
        """Yield the columns of each kernel."""
        (dense,) = self.columns(samples)
        for group in self.groups:
            yield dense[:, group]

    def columns(self, samples: Any) -> Iterator[FloatArray]:
        """Yield the columns of the samples."""
        yield samples.toarray() if sparse.issparse(samples) else samples

    def select(self, which: Sequence[int]) -> Columns:
        """Return the piece with some of the kernels, on the same columns."""
        return Columns(tuple(self.groups[k] for k in which))

    def on_own(self, features: Features) -> tuple[Features, Piece]:
        """Return the features and the piece without columns that no kernel uses."""
        used = self.used
        groups = tuple(np.searchsorted(used, group) for group in self.groups)
        return features.some(used), Columns(groups)


def _sharing(
    specs: Sequence[Kernel], data: MultiView, few: int
) -> list[NDArray[np.intp]]:
    """Return sets of linear kernels, each of few columns, that share columns."""
    found = []
    for members in sharing(specs, data):
        sizes = [
            len(data.column_index(specs[m].view, specs[m].columns)) for m in members
        ]
        small = members[np.array(sizes) <= few]
        if len(small) > 1:
            found.append(small)
    return found


def _require_finite(values: Any) -> None:
    if not np.isfinite(values).all():
        raise ValueError("Features need finite numbers.")


def _frequencies(kind: str, d: int, count: int, rng: np.random.Generator) -> FloatArray:
    """Return frequencies (d, count) of the spectral density at unit scale."""
    if kind == "laplacian":
        return rng.standard_cauchy((d, count))
    normal = rng.standard_normal((d, count))
    if kind == "rbf":
        return normal
    # the spectral density of a Matérn kernel is Student's t with 2 nu degrees
    freedom = 2.0 * float(kind.removeprefix("matern"))
    return np.asarray(normal * np.sqrt(freedom / rng.chisquare(freedom, count)))


# --- choice of features ---------------------------------------------------------------


class _Choice:
    """Choice of the features of kernels on the same columns, and of their number."""

    def __init__(self, sample: Sample, rank: float, landmarks: str, psd: str) -> None:
        self.sample, self.rank, self.landmarks, self.psd = sample, rank, landmarks, psd
        self.most = int(rank) if rank >= 1 else min(_MOST, sample.n)

    def pieces(
        self, kernels: list[Kernel], approximation: str
    ) -> Iterator[tuple[Piece, list[int]]]:
        """Yield features and the indices of their kernels."""
        left: list[int] = []
        waves: dict[str, list[tuple[int, float]]] = {}
        few = self.most if self.rank >= 1 else _FEW
        for k, kernel in enumerate(kernels):
            count = kernel.n_explicit(self.sample.samples)
            wave = kernel.spectral() if approximation == "rff" else None
            if count is not None and count <= few:
                yield Explicit(kernel, count), [k]
            elif wave is not None:
                waves.setdefault(wave[0], []).append((k, wave[1]))
            else:
                left.append(k)
        for kind, members in waves.items():
            which = [k for k, _ in members]
            scales = tuple(scale for _, scale in members)
            yield self._fourier(kind, scales, [kernels[k] for k in which]), which
        if left:
            yield self._nystroem([kernels[k] for k in left]), left

    def _fourier(
        self, kind: str, scales: tuple[float, ...], kernels: list[Kernel]
    ) -> Fourier:
        d, rng = int(self.sample.samples.shape[1]), self.sample.rng
        if self.rank >= 1:
            count = -(-int(self.rank) // 2)
            omega = _frequencies(kind, d, count, rng)
            return Fourier(omega, scales, (count,) * len(scales))
        omega = _frequencies(kind, d, 16, rng)
        counts = [0] * len(scales)
        while True:
            r = omega.shape[1]
            left = [k for k, count in enumerate(counts) if count == 0]
            piece = Fourier(omega, tuple(scales[k] for k in left), (r,) * len(left))
            which = [kernels[k] for k in left]
            errors = self.sample.errors(which, piece.features)[1]
            full = 2 * r >= _MOST
            for k, error in zip(left, errors, strict=True):
                if error <= self.rank or full:
                    counts[k] = r
            if full and errors.max() > self.rank:
                _warn_rank(2 * r, float(errors.max()), self.rank, "Fourier")
            if all(counts):
                return Fourier(omega, scales, tuple(counts))
            more = min(-(-5 * r // 4), _MOST // 2) - r
            omega = np.hstack([omega, _frequencies(kind, d, more, rng)])

    def _nystroem(self, kernels: list[Kernel]) -> Nystroem:
        sample = self.sample
        pool = 10 * self.most if self.rank >= 1 else 0
        order = sample.order(kernels, self.landmarks, self.most, pool)
        if self.rank >= 1:
            if self.most >= sample.size:
                order = iter(np.flatnonzero(sample.weight > 0).tolist())
            points = sample.choose(list(islice(order, self.most)))
            return self._rooted(kernels, points, [points.shape[0]] * len(kernels))
        ranks, count = [0] * len(kernels), 32
        while not all(ranks):
            new = list(islice(order, count - len(sample.chosen)))
            points, worst = sample.choose(new), 0.0
            last = len(sample.chosen) < count or count >= self.most
            for k in [k for k, r in enumerate(ranks) if r == 0]:
                curve = sample.curve(kernels[k], points)
                enough = np.flatnonzero(curve <= self.rank)
                if len(enough):
                    ranks[k] = int(enough[0]) + 1
                elif last:
                    ranks[k], worst = len(curve), max(worst, float(curve[-1]))
            if worst and len(sample.chosen) < sample.size:
                _warn_rank(len(sample.chosen), worst, self.rank, "Nyström")
            count = min(2 * count, self.most)
        return self._rooted(kernels, points[: max(ranks)], ranks)

    def _rooted(
        self, kernels: list[Kernel], points: Any, ranks: Sequence[int]
    ) -> Nystroem:
        roots = []
        for kernel, r, K in zip(
            kernels, ranks, compare(kernels, points, points), strict=True
        ):
            K = K[:r, :r]
            values, vectors = np.linalg.eigh((K + K.T) / 2)
            top = max(float(values[-1]), 0.0)
            if values[0] < -1e-6 * max(top, 1e-300) and self.psd == "check":
                raise indefinite(kernel)
            kept = values > CUTOFF * top
            if not kept.any():  # the kernel vanishes: a single zero feature
                roots.append(np.zeros((r, 1)))
                continue
            roots.append(vectors[:, kept] / np.sqrt(values[kept]))
        return Nystroem(tuple(kernels), points, tuple(roots))


def _warn_rank(count: int, error: float, wanted: float, kind: str) -> None:
    warnings.warn(
        f"With {plural(count, f'{kind} feature')}, the relative error is {error:.2g}, "
        f"more than rank={wanted:.2g}; accept it, or use wider kernels.",
        UserWarning,
        stacklevel=2,
    )
