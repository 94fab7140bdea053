"""Ridge regressions of many targets at every cost and norm of a grid, roughly.

A search needs the weights of each target for every combination of a cost C and a norm
p, on every fold. At given proportions of the weights, one eigendecomposition solves the
problems of all targets at all costs: only the scale differs. Here, few *directions*
(proportions) are factorised, and each target takes, for each cost and norm, the
direction with the best objective. Directions are proposed by a Newton step for a sample
of targets, so that they are near the weights that targets need.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from mklearn.kernels.bank import KernelBank
from mklearn.problems.targets import OwnSquared
from mklearn.problems.weights import LpBall
from mklearn.solvers.targets import in_ball, nearby_groups

FloatArray = NDArray[np.float64]
Index = NDArray[np.intp]

_DIRECTIONS = 40  # maximum number of directions
_STEPS = 8  # number of directions that are proposed together
_SAMPLE = 2048  # problems for which steps are computed, of all costs and norms
_BYTES = 2**28  # memory for the eigenvectors of all directions
_BLOCK = 2**25  # memory for the predictions of a block of targets
_NEGLIGIBLE = 0.05  # share of problems that may stay above the tolerance


@dataclass(frozen=True)
class _Direction:
    """Proportions of the weights, and the combined kernel factorised."""

    weights: FloatArray  # (M,) with sum one
    values: FloatArray  # (r,) eigenvalues
    vectors: NDArray[np.float32]  # (r, r) in coordinates of the span
    scales: FloatArray  # (P, K) factors to reach the boundary of each ball

    def shrinkage(self, scale: FloatArray | float) -> FloatArray:
        """Return the eigenvalues of ``(I + scale C)^-1``."""
        return np.asarray(1.0 / (1.0 + np.multiply.outer(self.values, scale)))


class RidgeGrid:
    """Rough solutions of all targets at every cost and norm.

    Parameters
    ----------
    problem : OwnSquared
        The targets; their costs are multiplied by each C, and its weight set is
        replaced by each ball.
    norms : array of shape (P,)
    Cs : array of shape (K,)
    rest : float
        Relative duality gap below which weights are good enough.

    Attributes
    ----------
    best : array of shape (P, K, T)
        The number of the direction that is best for each target.
    gaps : array of shape (n_sampled,)
        Relative duality gaps of the sampled problems in the last round.
    """

    def __init__(
        self, problem: OwnSquared, norms: FloatArray, Cs: FloatArray, rest: float
    ) -> None:
        self.problem, self.norms, self.Cs, self.rest = problem, norms, Cs, rest
        M, T = problem.bank.shape[2], problem.n_targets
        self.directions: list[_Direction] = []
        self.gaps = np.empty(0)
        self._value = np.full((len(norms), len(Cs), T), np.inf, dtype=np.float32)
        self.best = np.zeros(self._value.shape, dtype=np.int16)
        combined = self._gram(np.full(M, 1.0 / M))
        values, vectors = eigh(combined, driver="evd", overwrite_a=True)
        kept = values > len(values) * np.finfo(float).eps * max(values[-1], 0.0)
        kept[-1] = True
        self._span = np.ascontiguousarray(vectors[:, kept])
        self._inside = np.empty((self._span.shape[1], T), dtype=np.float32)
        self._rest = np.empty(T)
        for at in problem.blocks():
            z = problem.values(at)
            inside = self._span.T @ z
            self._inside[:, at] = inside
            off = np.sum(z**2, axis=0) - np.sum(inside**2, axis=0)
            self._rest[at] = np.maximum(off, 0.0)
        r = len(self._inside)
        self._kernels = [
            (self._span.T @ self._gram(one) @ self._span).astype(np.float32)
            for one in np.eye(M)
        ]
        self._most = int(np.clip(_BYTES // (4 * r**2), 2, _DIRECTIONS))
        unit = np.eye(r, dtype=np.float32)
        self._add(np.full(M, 1.0 / M), np.maximum(values[kept], 0.0), unit)

    def rounds(self) -> Iterator[None]:
        """Add directions until the sampled problems are solved; pause after each."""
        if len(self.directions[0].weights) == 1 or np.isinf(self.norms).all():
            return
        while len(self.directions) < self._most:
            count = min(_STEPS, self._most - len(self.directions))
            proposed = self._proposed(count)
            yield
            if np.mean(self.gaps > self.rest) <= _NEGLIGIBLE:
                return
            for weights in proposed:
                gram = self._span.T @ self._gram(weights) @ self._span
                values, vectors = eigh(gram, driver="evd", overwrite_a=True)
                vectors = vectors.astype(np.float32)
                self._add(weights, np.maximum(values, 0.0), vectors)
                yield

    def weights(self, i: int, k: int) -> FloatArray:
        """Return the weights of each target in a cell, in the unit ball, (T, M)."""
        known = np.stack(
            [one.scales[i, k] / self.Cs[k] * one.weights for one in self.directions]
        )
        return np.asarray(known[self.best[i, k]])

    def predictions(
        self, cross: KernelBank, design: FloatArray | None
    ) -> Iterator[tuple[slice, FloatArray]]:
        """Yield blocks of targets and the predictions of all cells for new samples.

        Parameters
        ----------
        cross : KernelBank
            Kernels between the new samples and those of the problem.
        design : array of shape (n_new, q), optional
            Ones and covariates of the new samples, if the problem has covariates.

        Yields
        ------
        slice, array of shape (P, K, n_new, count)
        """
        problem = self.problem
        effects = self._effects(cross.shape[0], design)
        used = np.unique(self.best)
        maps = {int(g): self._map(cross, effects, int(g)) for g in used}
        cells = self._value[..., 0].size
        size = max(1, _BLOCK // (8 * cells * len(effects)))
        for at in range(0, problem.n_targets, size):
            here = slice(at, min(at + size, problem.n_targets))
            Y = np.asarray(problem.Y[:, here], dtype=float)
            found = np.empty((*self._value.shape[:2], len(effects), Y.shape[1]))
            found[:] = effects @ Y
            for g, outward in maps.items():
                self._predict(g, outward, here, found)
            yield here, found

    def _effects(self, n_new: int, design: FloatArray | None) -> FloatArray:
        """Return the map from values to the effects on new samples, (n_new, n)."""
        found, own = self.problem.regression, self.problem.design
        if own is None or design is None:
            return np.repeat(found, n_new, axis=0)
        return np.asarray(design @ own.effects(found))

    def _map(
        self, cross: KernelBank, effects: FloatArray, number: int
    ) -> NDArray[np.float32]:
        """Return the map from eigencoordinates to predictions of new samples."""
        one, problem = self.directions[number], self.problem
        kernel = cross.combine(one.weights)
        kernel = kernel - problem.bank.apply(one.weights, effects.T).T
        a = problem.centred.coefficients(self._span @ one.vectors)
        return np.asarray(kernel @ a, dtype=np.float32)

    def _predict(
        self, number: int, outward: NDArray[np.float32], here: slice, found: FloatArray
    ) -> None:
        """Add what the kernels predict to the cells whose best direction this is."""
        one, mine = self.directions[number], self.best[..., here] == number
        some = np.flatnonzero(mine.any(axis=(0, 1)))
        turned = one.vectors.T @ self._inside[:, here][:, some]
        for i, k in np.argwhere(mine.any(axis=2)):
            now = np.flatnonzero(mine[i, k][some])
            scale = one.scales[i, k]
            shrunk = turned[:, now] * one.shrinkage(scale)[:, None].astype(np.float32)
            found[i, k][:, some[now]] += scale * (outward @ shrunk)

    def _images(self, a: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return products of each kernel with ``a`` (r, count), (M, r, count)."""
        return np.stack([kernel @ a for kernel in self._kernels])

    def _gram(self, weights: FloatArray) -> FloatArray:
        problem = self.problem
        return problem.centred.gram(problem.bank.combine(weights))

    def _add(
        self, weights: FloatArray, values: FloatArray, vectors: NDArray[np.float32]
    ) -> None:
        """Add a direction, and give it to the targets for which it is the best."""
        sizes = [np.linalg.norm(weights, p) for p in self.norms]
        scales = self.Cs / np.array(sizes)[:, None]
        one = _Direction(weights, values, vectors, scales)
        # equal weights are the only ones for p = inf
        uneven = np.isinf(self.norms) & bool(self.directions)
        shrink = one.shrinkage(scales[~uneven].ravel()).T.astype(np.float32)
        number, T = len(self.directions), self.problem.n_targets
        for at in range(0, T, 4096):
            here = slice(at, min(at + 4096, T))
            turned = vectors.T @ self._inside[:, here]
            quads = shrink @ turned**2
            value = self._value[~uneven][..., here]
            quads = quads.reshape(value.shape) + self._rest[here].astype(np.float32)
            best = self.best[~uneven][..., here]
            best[quads < value] = number
            self.best[np.flatnonzero(~uneven), :, here] = best
            self._value[np.flatnonzero(~uneven), :, here] = np.minimum(quads, value)
        self.directions.append(one)

    def _proposed(self, count: int) -> list[FloatArray]:
        """Return new directions, near the weights that sampled targets step to."""
        finite = np.flatnonzero(np.isfinite(self.norms))
        T, K = self.problem.n_targets, len(self.Cs)
        step = max(1, -(-T * K * len(finite) // _SAMPLE))
        # the sample changes from round to round
        first = (len(self.directions) // _STEPS) % step
        targets = np.arange(first, T, step)
        cells = np.array([(i, k, t) for i in finite for k in range(K) for t in targets])
        P, k, t = cells.T
        number = self.best[P, k, t]
        M = len(self.directions[0].weights)
        scale = np.array([one.scales for one in self.directions])[number, P, k]
        a = np.empty((len(self._inside), len(cells)), dtype=np.float32)
        for g in np.unique(number):
            one, at = self.directions[g], number == g
            turned = one.vectors.T @ self._inside[:, t[at]]
            shrink = one.shrinkage(scale[at]).astype(np.float32)
            a[:, at] = one.vectors @ (turned * shrink)
        images = self._images(a)  # (M, r, count)
        quads = np.einsum("rc,mrc->cm", a, images, dtype=float)
        bends = np.empty((len(cells), M, M))
        for g in np.unique(number):
            one, at = self.directions[g], np.flatnonzero(number == g)
            root = np.sqrt(one.shrinkage(scale[at])).astype(np.float32)
            here = root * (one.vectors.T @ images[:, :, at])
            here = here.transpose(2, 0, 1)
            bends[at] = here @ here.transpose(0, 2, 1)
        C = self.Cs[k][:, None]
        known = np.array([one.weights for one in self.directions])
        theta = (scale / C[:, 0])[:, None] * known[number]
        wanted, gaps = np.empty((len(cells), M)), np.empty(len(cells))
        for i in finite:
            at = np.flatnonzero(P == i)
            ball, q = LpBall(float(self.norms[i])), C[at] * quads[at]
            value = np.maximum(self._value[i, k[at], t[at]], 1e-30)
            gap = np.maximum(ball.supports(q) - np.sum(theta[at] * q, axis=1), 0.0)
            gaps[at] = gap / value

            bent = C[at, :, None] ** 2 * bends[at]
            wanted[at] = in_ball(theta[at], q, bent, ball.p)
        self.gaps = gaps
        wanted /= wanted.sum(axis=1, keepdims=True)
        far = np.flatnonzero(gaps > self.rest)
        far = far[np.argsort(-gaps[far], kind="stable")]
        if not len(far):
            return []
        # the worst ones, and the middle of groups; square roots, because small weights
        # matter more
        worst, others = far[: count // 2], far[count // 2 :]
        found = list(wanted[worst])
        if len(others):
            groups = nearby_groups(np.sqrt(wanted[others]), count - len(worst))
            found += [wanted[others[group]].mean(axis=0) for group in groups]
        return found
