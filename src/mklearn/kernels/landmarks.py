"""The choice of landmarks, and the approximation error of features."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cholesky, solve_triangular

from mklearn.kernels.memory import Index
from mklearn.kernels.specs import Kernel

FloatArray = NDArray[np.float64]

LANDMARKS = ("kmeans", "uniform", "leverage")

CUTOFF = 1e-12  # relative eigenvalues below this are rounding errors
_JUDGES = 1000  # number of samples for estimating the error of the trace
_PAIRS = 300  # number of samples on each side of the pairs
_PILOT = 2000  # number of samples for estimating leverage scores


@dataclass(frozen=True)
class ApproximationError:
    """Approximation error of features, estimated on held-out samples.

    Attributes
    ----------
    trace : array of shape (M,)
        ``sum_i (k(x_i, x_i) - |z_i|^2) / sum_i k(x_i, x_i)``: the part of each kernel
        that the features miss. For Nyström features it bounds the error of the whole
        matrix; for random Fourier features it is zero, whatever their error.
    frobenius : array of shape (M,)
        ``|K - Z Z'| / |K|`` over random pairs of samples.
    """

    trace: FloatArray
    frobenius: FloatArray

    @property
    def worst(self) -> float:
        """The largest of all these numbers."""
        return float(max(self.trace.max(), self.frobenius.max()))

    def __str__(self) -> str:
        return (
            f"left out of the trace: at most {100 * self.trace.max():.2g} % of a "
            f"kernel; error of its values: at most {100 * self.frobenius.max():.2g} %"
        )


class Sample:
    """Samples for the choice of landmarks and the estimation of errors.

    Parameters
    ----------
    samples : array, CSR matrix or strings
    weight : array of shape (n,), or None for ones
    rng : Generator

    Attributes
    ----------
    chosen : array of int
        The landmarks; errors are estimated on other samples, if there are any.
    """

    def __init__(
        self, samples: Any, weight: FloatArray | None, rng: np.random.Generator
    ) -> None:
        self.samples, self.rng = samples, rng
        self.n = int(samples.shape[0])
        self.weight = np.ones(self.n) if weight is None else weight
        self.judges = self.draw(_JUDGES)
        self.chosen = np.zeros(0, dtype=np.intp)

    @property
    def size(self) -> int:
        """Number of samples with nonzero weight."""
        return int(np.count_nonzero(self.weight > 0))

    def choose(self, index: Any) -> Any:
        """Add landmarks, and return all of them."""
        self.chosen = np.append(self.chosen, np.asarray(index, dtype=np.intp))
        return self.samples[self.chosen]

    def errors(
        self,
        kernels: Sequence[Kernel],
        features: Callable[[Any], Iterable[FloatArray]],
    ) -> tuple[FloatArray, FloatArray]:
        """Return the errors of trace and values for each kernel.

        ``features`` is a function of samples that yields the features of each kernel.
        """
        samples = self.held_out()
        half = max(1, min(_PAIRS, samples.shape[0] // 2))
        a, b = slice(0, half), slice(samples.shape[0] - half, None)
        trace, frobenius = [], []
        values = compare(kernels, samples[a], samples[b])
        for kernel, Z, K in zip(kernels, features(samples), values, strict=True):
            size = kernel.diagonal(samples).sum()
            lost = size - np.einsum("ij,ij->", Z, Z)
            trace.append(abs(lost) / max(size, 1e-300))
            error = np.linalg.norm(K - Z[a] @ Z[b].T)
            frobenius.append(error / max(float(np.linalg.norm(K)), 1e-300))
        return np.array(trace), np.array(frobenius)

    def held_out(self) -> Any:
        """Return samples for estimating errors, landmarks only if there are no others.

        If all samples are landmarks, the error on them is that of the whole problem.
        """
        others = np.setdiff1d(self.judges, self.chosen)
        return self.samples[others if len(others) >= 10 else self.judges]

    def draw(self, count: int) -> Index:
        """Draw samples without replacement, in proportion to their weights."""
        present = np.flatnonzero(self.weight > 0)
        if len(present) <= count:
            return present
        # the smallest exponential waiting times: drawing without replacement
        wait = self.rng.exponential(size=len(present)) / self.weight[present]
        return np.sort(present[np.argpartition(wait, count)[:count]])

    def curve(self, kernel: Kernel, points: Any) -> FloatArray:
        """Return the share of the trace that the first r landmarks miss, for each r."""
        judges = self.held_out()
        (K,) = compare([kernel], points, points)
        (cross,) = compare([kernel], points, judges)
        size = float(np.trace(K)) / len(K)
        K[np.diag_indices_from(K)] += 1e-10 * size
        try:
            L = cholesky(K, lower=True, check_finite=False)
        except LinAlgError as error:
            raise indefinite(kernel) from error
        caught = solve_triangular(L, cross, lower=True, check_finite=False) ** 2
        total = max(float(kernel.diagonal(judges).sum()), 1e-300)
        return np.maximum(0.0, 1.0 - np.cumsum(caught.sum(axis=1)) / total)

    def order(
        self, kernels: Sequence[Kernel], landmarks: str, most: int, pool_size: int = 0
    ) -> Iterator[int]:
        """Yield samples in the order in which they are used as landmarks.

        Parameters
        ----------
        kernels : sequence of Kernel
        landmarks : {"kmeans", "uniform", "leverage"}
        most : int
            Maximum number of landmarks.
        pool_size : int
            Number of samples from which they are drawn; at least 5000.
        """
        if landmarks == "uniform":
            index = self.draw(most)
            yield from self.rng.permutation(index).tolist()
            return
        pool = self.draw(max(pool_size, 5 * _JUDGES))
        samples, weight = self.samples[pool], self.weight[pool]
        # use the sum of all kernels, each scaled to a mean diagonal of one
        diag = [kernel.diagonal(samples) for kernel in kernels]
        share = np.array([1.0 / max(float(d.mean()), 1e-300) for d in diag])
        total = share @ np.array(diag)
        if landmarks == "leverage":
            found = self._leverage(kernels, share, samples, weight, total, most)
        else:
            found = self._spread(kernels, share, samples, weight, total)
        for i in found:
            yield int(pool[i])

    def _spread(
        self, kernels: Sequence[Kernel], share: FloatArray, samples: Any,
        weight: FloatArray, total: FloatArray,
    ) -> Iterator[int]:  # fmt: skip
        """Yield samples with probabilities proportional to squared distances."""
        nearest = np.full(len(weight), np.inf)
        odds = weight.copy()
        floor = 1e-12 * float(total.mean())
        while odds.any():
            i = int(self.rng.choice(len(odds), p=odds / odds.sum()))
            yield i
            column = _summed(kernels, share, samples, samples[[i]])[:, 0]
            nearest = np.minimum(nearest, total + total[i] - 2.0 * column)
            nearest[i] = 0.0
            odds = weight * np.where(nearest > floor, nearest, 0.0)

    def _leverage(
        self, kernels: Sequence[Kernel], share: FloatArray, samples: Any,
        weight: FloatArray, total: FloatArray, most: int,
    ) -> Iterator[int]:  # fmt: skip
        """Yield samples by ridge leverage scores, estimated on a uniform sample."""
        n = len(weight)
        pilot = self.rng.choice(n, min(n, max(2 * most, 64), _PILOT), replace=False)
        K = _summed(kernels, share, samples[pilot], samples[pilot])
        values, vectors = np.linalg.eigh(K)
        kept = values > CUTOFF * values[-1]
        root = vectors[:, kept] / np.sqrt(values[kept])
        B = _summed(kernels, share, samples, samples[pilot]) @ root
        scatter = B.T @ (weight[:, None] * B)
        spectrum, turn = np.linalg.eigh(scatter)
        # the ridge is the part that the best features of that number would miss
        tail = float(spectrum[:-most].sum()) if most < len(spectrum) else 0.0
        ridge = max(tail / most, 1e-6 * float(spectrum[-1]))
        scores = (B @ turn) ** 2 @ (1.0 / (spectrum + ridge))
        scores += np.maximum(total - np.einsum("ij,ij->i", B, B), 0.0) / ridge
        odds = weight * np.maximum(scores, 1e-300)
        yield from np.argsort(self.rng.exponential(size=n) / odds).tolist()


def _summed(kernels: Sequence[Kernel], share: FloatArray, a: Any, b: Any) -> FloatArray:
    total = np.zeros((a.shape[0], b.shape[0]))
    for factor, K in zip(share, compare(kernels, a, b), strict=True):
        total += factor * K
    return total


def indefinite(kernel: Kernel) -> ValueError:
    """Return the error about a kernel with negative eigenvalues."""
    return ValueError(
        f"Kernel {kernel.label()!r} is not positive semidefinite on the landmarks. Try "
        "psd='clip' to leave the negative part out."
    )


def compare(kernels: Sequence[Kernel], a: Any, b: Any) -> Iterator[FloatArray]:
    """Yield the values of each kernel, shape (len(a), len(b)), from shared bases."""
    known: dict[Any, Any] = {}
    for kernel in kernels:
        yield kernel.values(a, b, known)
