"""Sets of kernel weights, and their closed-form solutions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from mklearn.data.spelling import plural
from mklearn.problems.base import FEW, UNIT, Asked

FloatArray = NDArray[np.float64]


class Constraint(NamedTuple):
    """Value and derivatives of a smooth convex g; the set is g <= 1, theta >= 0."""

    value: float
    gradient: FloatArray
    hessian: FloatArray


@runtime_checkable
class WeightSet(Protocol, metaclass=Asked):
    """Interface of a set of kernel weights.

    The four properties describe the kind of set, and have defaults for subclasses.
    """

    @property
    def sparse(self) -> bool:
        """Whether it is the simplex, where most optimal weights are zero."""
        return False

    @property
    def smooth(self) -> bool:
        """Whether it has a smooth description, as a :class:`ConvexSet`."""
        return False

    @property
    def fixed(self) -> bool:
        """Whether the same member is optimal for every A, so nothing is learned."""
        return False

    @property
    def exponent(self) -> float:
        """The p of the most similar lp ball."""
        return 2.0

    def support(self, q: FloatArray) -> float:
        """Return ``max theta'q`` over the set."""

    def regulariser(self, theta: FloatArray, q: FloatArray) -> float:
        """Return the regulariser at ``w_m = theta_m Phi_m'A``; q belongs to A."""

    def center(self, n_kernels: int) -> FloatArray:
        """Return a member with equal weights."""

    def step(self, theta: FloatArray, q: FloatArray) -> FloatArray:
        """Return the optimal member for the ``w`` defined by ``theta`` and A."""

    def contains(self, theta: FloatArray, atol: float = 1e-9) -> bool:
        """Return whether ``theta`` is a member, up to rounding."""


@runtime_checkable
class ConvexSet(WeightSet, Protocol):
    """A set with a smooth description, for second-order solvers."""

    @property
    def smooth(self) -> bool:
        """Whether it has a smooth description."""
        return True

    def constraint(self, theta: FloatArray) -> Constraint:
        """Return the constraint function and its derivatives at ``theta > 0``."""


class _Quadratic(ConvexSet):
    """Sets for which the regulariser is ``½ sum_m |w_m|^2 / theta_m``."""

    def regulariser(self, theta: FloatArray, q: FloatArray) -> float:
        """Return ``½ theta'q``, since ``|w_m|^2 = theta_m^2 q_m``."""
        return 0.5 * float(theta @ q)


@dataclass(frozen=True)
class LpBall(_Quadratic):
    """``theta >= 0, |theta|_p <= 1`` for p in [1, inf].

    p = 1 gives sparse weights, p = inf the unweighted sum of the kernels.

    Parameters
    ----------
    p : float
        At least 1; ``inf`` is allowed.
    """

    p: float

    def __post_init__(self) -> None:
        if not self.p >= 1:
            raise ValueError(
                f"norm must be a number p >= 1 or inf, got {self.p}; for p < 1 the "
                "problem is not convex. Try norm=1 for the sparsest weights."
            )

    @property
    def sparse(self) -> bool:
        """Whether p = 1."""
        return self.p == 1

    @property
    def fixed(self) -> bool:
        """Whether p = inf: all weights are one."""
        return bool(np.isinf(self.p))

    @property
    def exponent(self) -> float:
        """The p of the ball."""
        return self.p

    def support(self, q: FloatArray) -> float:
        """Return the dual norm of the positive part of ``q``."""
        if self.p == 1:
            return float(np.max(q, initial=0.0))
        return _norm(np.maximum(q, 0.0), _conjugate(self.p))

    def supports(self, q: FloatArray) -> FloatArray:
        """Return the value of ``support`` for each row of ``q`` (T, n_kernels)."""
        q = np.maximum(q, 0.0)
        top = q.max(axis=1, initial=0.0)
        if self.p == 1:
            return top
        unit = q / np.where(top > 0, top, 1.0)[:, None]
        exponent = _conjugate(self.p)
        return np.asarray(top * np.sum(unit**exponent, axis=1) ** (1.0 / exponent))

    def center(self, n_kernels: int) -> FloatArray:
        """Return equal weights on the boundary."""
        size = 1.0 if np.isinf(self.p) else n_kernels ** (-1.0 / self.p)
        return np.full(n_kernels, size)

    def step(self, theta: FloatArray, q: FloatArray) -> FloatArray:
        """Return the analytic update, LPMKL (17)."""
        norms2 = theta**2 * np.maximum(q, 0.0)
        top = norms2.max(initial=0.0)
        if np.isinf(self.p):
            return np.ones(len(norms2))
        if top == 0:
            return self.center(len(norms2))
        w = (norms2 / top) ** (1.0 / (self.p + 1.0))
        return np.asarray(w / _norm(w, self.p))

    def contains(self, theta: FloatArray, atol: float = 1e-9) -> bool:
        """Return whether ``theta`` is in the ball and nonnegative."""
        return bool(np.all(theta >= -atol) and _norm(np.abs(theta), self.p) <= 1 + atol)

    def constraint(self, theta: FloatArray) -> Constraint:
        """Return ``sum theta^p`` (p < inf)."""
        p, M = self.p, len(theta)
        slope = theta ** (p - 1.0)
        bend = np.zeros((M, M))
        if p > 1:
            floor = np.maximum(theta, 1e-100)
            bend.ravel()[:: M + 1] = p * (p - 1.0) * floor ** (p - 2.0)
        return Constraint(float(theta @ slope), p * slope, bend)


@dataclass(frozen=True, eq=False)
class Ellipsoid(_Quadratic):
    """``theta >= 0, theta'E theta <= 1`` with E positive definite.

    Off-diagonal entries say which kernels should not (positive) or should (negative)
    be used together. ``LpBall(2)`` is the case ``E = I``.

    Parameters
    ----------
    E : array of shape (n_kernels, n_kernels)
        Symmetric and positive definite.
    """

    E: FloatArray

    def __post_init__(self) -> None:
        E = np.asarray(self.E, dtype=float)
        symmetric = E.ndim == 2 and E.shape[0] == E.shape[1] and np.allclose(E, E.T)
        if not symmetric or np.linalg.eigvalsh(E)[0] <= 0:
            raise ValueError(
                "norm as a matrix must be symmetric and positive definite, one row for "
                f"each kernel; got shape {E.shape}."
            )
        object.__setattr__(self, "E", E)

    def support(self, q: FloatArray) -> float:
        """Return the exact maximum with ``theta >= 0`` (erratum 3).

        Its dual is ``min |q + z|`` in the norm of the inverse of E over ``z >= 0``. The
        result is an upper bound despite rounding: for every y,
        ``theta'q = theta'Ey + theta'(q - Ey)`` is at most ``(y'Ey)^½`` plus the
        contribution of the positive part of ``q - Ey``.
        """
        top = float(np.max(q, initial=0.0))
        if top <= 0:
            return 0.0
        # with E = L L': |q + z|^2 in the inverse is |L^-1 (q + z)|^2
        half = np.linalg.inv(np.linalg.cholesky(self.E))
        z, _ = nnls(half, -half @ (q / top))
        y = half.T @ (half @ (q / top + z))
        along, slack = self.E @ y, 2 * len(q) * UNIT * (np.abs(self.E) @ np.abs(y))
        beyond = np.maximum(q / top - along, 0.0) + slack + UNIT
        # theta_m is at most the square root of the m-th diagonal entry of the inverse
        reach = 1.01 * np.sqrt(np.sum(half**2, axis=0))
        size = float(np.maximum(y @ along, 0.0) + np.abs(y) @ slack)
        return top * (size**0.5 + float(beyond @ reach))

    def center(self, n_kernels: int) -> FloatArray:
        """Return equal weights on the boundary."""
        if n_kernels != len(self.E):
            raise ValueError(
                f"The norm is a matrix of size {len(self.E)}, but there are "
                f"{plural(n_kernels, 'kernel')}; it needs one row for each."
            )
        return np.full(n_kernels, self.E.sum() ** -0.5)

    def step(self, theta: FloatArray, q: FloatArray) -> FloatArray:
        """Return the minimiser, where ``norms2 / theta^2 = E theta`` up to scale."""
        norms2 = theta**2 * np.maximum(q, 0.0)
        if not norms2.any():
            return self.center(len(q))
        floor = 1e-14 * norms2.max()
        w = np.maximum(norms2 / norms2.max(), floor / norms2.max())
        # Newton on the convex sum w / d + ½ d'E d, from the solution for diagonal E
        d = (w / np.diag(self.E)) ** (1.0 / 3.0)
        for _ in range(100):
            gradient = self.E @ d - w / d**2
            move = -np.linalg.solve(self.E + np.diag(2 * w / d**3), gradient)
            if -gradient @ move <= 1e-22 * (w / d).sum():
                break
            room = -d[move < 0] / move[move < 0]
            d = d + min(1.0, 0.9 * room.min(initial=np.inf)) * move
        d = np.where(norms2 > 0, d, 0.0)
        return np.asarray(d / np.sqrt(d @ self.E @ d))

    def contains(self, theta: FloatArray, atol: float = 1e-9) -> bool:
        """Return whether ``theta`` is in the ellipsoid and nonnegative."""
        return bool(np.all(theta >= -atol) and theta @ self.E @ theta <= 1 + 2 * atol)

    def constraint(self, theta: FloatArray) -> Constraint:
        """Return ``theta'E theta``."""
        along = self.E @ theta
        return Constraint(float(theta @ along), 2 * along, 2 * self.E)


@dataclass(frozen=True)
class ElasticNet(_Quadratic):
    """``theta >= 0, (1 - mix) sum theta + mix sum theta^2 <= 1``, 0 < mix <= 1.

    It interpolates between the sparse weights of p = 1 (mix near 0) and those of p = 2.

    Parameters
    ----------
    mix : float
        Share of the squares, above 0 and at most 1.
    """

    mix: float

    def __post_init__(self) -> None:
        if not 0 < self.mix <= 1:
            raise ValueError(
                f"mix must be in (0, 1], got {self.mix}; for 0 use norm=1."
            )

    def _multiplier(self, member: Callable[[float], FloatArray]) -> float:
        """Return the lam for which ``member(lam)``, decreasing, is on the boundary."""
        low = high = 1.0
        while self._value(member(low)) < 1:
            low /= 4
        while self._value(member(high)) > 1:
            high *= 4
        for _ in range(200):
            middle = np.sqrt(low * high)
            if not low < middle < high:
                break
            if self._value(member(middle)) > 1:
                low = middle
            else:
                high = middle
        return high

    def _value(self, theta: FloatArray) -> float:
        return float((1 - self.mix) * theta.sum() + self.mix * (theta @ theta))

    def support(self, q: FloatArray) -> float:
        """Return ``max theta'q`` by Lagrangian duality.

        Every multiplier gives an upper bound, ``lam + max theta'q - lam value(theta)``.
        """
        top = float(np.max(q, initial=0.0))
        if top == 0:
            return 0.0
        straight, bend = 1 - self.mix, 2 * self.mix

        def member(lam: float) -> FloatArray:
            return np.maximum(0.0, q / top / lam - straight) / bend

        lam = self._multiplier(member)
        return top * lam * (1.0 + self.mix * float(np.sum(member(lam) ** 2)))

    def center(self, n_kernels: int) -> FloatArray:
        """Return equal weights on the boundary."""
        a, b = self.mix * n_kernels, (1 - self.mix) * n_kernels
        return np.full(n_kernels, (np.sqrt(b * b + 4 * a) - b) / (2 * a))

    def step(self, theta: FloatArray, q: FloatArray) -> FloatArray:
        """Return the minimiser: ``norms2 / theta^2 = lam (1 - mix + 2 mix theta)``."""
        norms2 = theta**2 * np.maximum(q, 0.0)
        top = norms2.max(initial=0.0)
        if top == 0:
            return self.center(len(q))
        w = norms2 / top
        straight, bend = 1 - self.mix, 2 * self.mix

        def member(lam: float) -> FloatArray:
            # bend t^3 + straight t^2 = w / lam: Newton from above, where it is convex
            right = w / lam
            t = np.cbrt(right / bend)
            if straight > 0:
                t = np.minimum(t, np.sqrt(right / straight))
            for _ in range(60):
                error = t * t * (straight + bend * t) - right
                if (np.abs(error) <= 1e-15 * right).all():
                    break
                slope = t * (2 * straight + 3 * bend * t)
                t = t - np.divide(error, slope, out=np.zeros_like(t), where=slope > 0)
            return np.maximum(t, 0.0)

        return member(self._multiplier(member))

    def contains(self, theta: FloatArray, atol: float = 1e-9) -> bool:
        """Return whether ``theta`` is a member."""
        return bool(np.all(theta >= -atol) and self._value(theta) <= 1 + 3 * atol)

    def constraint(self, theta: FloatArray) -> Constraint:
        """Return ``(1 - mix) sum theta + mix sum theta^2``."""
        gradient = (1 - self.mix) + 2 * self.mix * theta
        hessian = 2 * self.mix * np.eye(len(theta))
        return Constraint(self._value(theta), gradient, hessian)


@dataclass(frozen=True)
class TwoLevel(_Quadratic):
    """``theta >= 0, |(|theta_g|_inner)_g|_outer <= 1`` for groups g of kernels.

    The norm ``inner`` is taken within each group, and the norm ``outer`` over the
    groups. If the groups are views, a view with a thousand kernels does not drown out
    one with three: ``inner=1`` selects kernels within views, while ``outer`` above 1
    keeps all views.

    Parameters
    ----------
    outer, inner : float
        Norms from 1 to ``inf``; if both are equal, this is ``LpBall``.
    groups : sequence, optional
        The group of each kernel. By default the groups are the views of the kernels;
        kernels without a view form one group.

    Examples
    --------
    >>> from mklearn import TwoLevel
    >>> weights = TwoLevel(outer=2, inner=1, groups=["rna", "rna", "clinic"])
    >>> weights.center(3).round(3).tolist()
    [0.354, 0.354, 0.707]
    """

    outer: float = 2.0
    inner: float = 1.0
    groups: tuple[Any, ...] | None = None

    def __post_init__(self) -> None:
        for name in ("outer", "inner"):
            if (
                not isinstance(getattr(self, name), Real)
                or not getattr(self, name) >= 1
            ):
                raise ValueError(
                    f"TwoLevel needs {name} to be a number from 1 to inf, got "
                    f"{getattr(self, name)!r}."
                )
        if self.groups is not None:
            if isinstance(self.groups, str) or len(tuple(self.groups)) == 0:
                raise ValueError(
                    f"groups must have one entry for each kernel, got {self.groups!r}; "
                    "omit it to use the views of the kernels."
                )
            object.__setattr__(self, "groups", tuple(self.groups))

    def of_kernels(self, labels: Sequence[Any]) -> WeightSet:
        """Return the set with its groups; if it has none, these are ``labels``."""
        if self.groups is None:
            return TwoLevel(self.outer, self.inner, tuple(labels))
        if len(self.groups) != len(labels):
            raise ValueError(
                f"TwoLevel has groups for {plural(len(self.groups), 'kernel')}, but "
                f"there are {len(labels)}; give one group for each kernel."
            )
        return self

    @property
    def smooth(self) -> bool:
        """Whether both norms are finite."""
        return bool(np.isfinite(self.outer) and np.isfinite(self.inner))

    @property
    def fixed(self) -> bool:
        """Whether both norms are infinite: all weights are one."""
        return bool(np.isinf(self.outer) and np.isinf(self.inner))

    @property
    def exponent(self) -> float:
        """The norm within groups, which determines the sparsity over kernels."""
        return self.inner

    @property
    def _members(self) -> list[NDArray[np.intp]]:
        """The kernels of each group."""
        if self.groups is None:
            raise ValueError(
                "TwoLevel has no groups yet: give groups=[...], one for each kernel. "
                "(Estimators use the views of their kernels.)"
            )
        known: dict[Any, list[int]] = {}
        for m, label in enumerate(self.groups):
            known.setdefault(label, []).append(m)
        return [np.array(members) for members in known.values()]

    def _norm(self, theta: FloatArray) -> float:
        parts = [_norm(theta[members], self.inner) for members in self._members]
        return _norm(np.array(parts), self.outer)

    def support(self, q: FloatArray) -> float:
        """Return the dual norm: the outer dual norm of the inner dual norms."""
        q, inner = np.maximum(q, 0.0), _conjugate(self.inner)
        parts = np.array([_norm(q[members], inner) for members in self._members])
        # rounding of the inner norms adds to that of the outer one
        return _norm(parts, _conjugate(self.outer)) * (1.0 + 2 * len(q) * UNIT)

    def center(self, n_kernels: int) -> FloatArray:
        """Return equal weights within groups, and equal norms of all groups."""
        members = self._members
        if n_kernels != sum(map(len, members)):
            raise ValueError(
                f"TwoLevel has groups for {plural(sum(map(len, members)), 'kernel')}, "
                f"but there are {n_kernels}; give one group for each kernel."
            )
        theta = np.empty(n_kernels)
        shares = LpBall(self.outer).center(len(members))
        for share, group in zip(shares, members, strict=True):
            theta[group] = share * LpBall(self.inner).center(len(group))
        return theta

    def step(self, theta: FloatArray, q: FloatArray) -> FloatArray:
        """Return the analytic update, first within groups and then between them.

        A group whose weights have the norm b contributes ``N / b`` to the sum of
        ``|w_m|^2 / theta_m``, with N = ``(sum |w_m|^(2p/(p+1)))^((p+1)/p)`` and p the
        inner norm.
        """
        norms2 = theta**2 * np.maximum(q, 0.0)
        if not norms2.any():
            return self.center(len(q))
        p, members = self.inner, self._members
        within = LpBall(p)
        power = 1.0 if np.isinf(p) else p / (p + 1.0)
        sums = np.array([_norm(norms2[group], power) for group in members])
        shares = LpBall(self.outer).step(np.ones(len(sums)), sums)
        out = np.zeros(len(q))
        for share, group in zip(shares, members, strict=True):
            # for weights of one, q are the squared norms
            out[group] = share * within.step(np.ones(len(group)), norms2[group])
        return out

    def contains(self, theta: FloatArray, atol: float = 1e-9) -> bool:
        """Return whether ``theta`` is in the ball and nonnegative."""
        return bool(np.all(theta >= -atol) and self._norm(np.abs(theta)) <= 1 + atol)

    def constraint(self, theta: FloatArray) -> Constraint:
        """Return ``sum_g |theta_g|_inner^outer`` (both finite)."""
        p, r = self.inner, self.outer
        value, gradient = 0.0, np.zeros(len(theta))
        hessian = np.zeros((len(theta), len(theta)))
        for group in self._members:
            t = np.maximum(theta[group], 1e-100)
            size = _norm(t, p)
            along = (t / size) ** (p - 1.0)  # the gradient of the norm
            value += size**r
            gradient[group] = r * size ** (r - 1.0) * along
            block = (r - p) * np.outer(along, along)
            if p > 1:
                block[np.diag_indices(len(t))] += (p - 1.0) * (t / size) ** (p - 2.0)
            hessian[np.ix_(group, group)] = r * size ** (r - 2.0) * block
        return Constraint(value, gradient, hessian)


def for_kernels(
    weights: WeightSet, kernels: Sequence[Any], names: Sequence[str]
) -> WeightSet:
    """Return the set for given kernels, whose views are the default groups."""
    if not isinstance(weights, TwoLevel):
        return weights
    if weights.groups is None and all(kernel is None for kernel in kernels):
        raise ValueError(
            "TwoLevel takes its groups from the views of the kernels, but Gram "
            "matrices have none; give groups=[...], one for each of "
            f"{plural(len(names), 'kernel')}."
        )
    views = [None if kernel is None else kernel.view for kernel in kernels]
    return weights.of_kernels(["" if view is None else view for view in views])


@dataclass(frozen=True)
class BlockNorm(WeightSet):
    """The regulariser ``½ |w|_{2,q}^2``, the q-norm of the block norms, q > 2.

    It distributes the weight over kernels more evenly than the plain sum (q = 2).
    Kernel weights are ``1 / theta`` of LPMKL (32), (33), at least one, and the problem
    is a joint maximisation over A and theta. For q in [1, 2) the block norm is
    ``LpBall(q / (2 - q))``: use :func:`block_norm`.

    Parameters
    ----------
    q : float
        Above 2 and finite.
    """

    q: float

    def __post_init__(self) -> None:
        if not 2 < self.q < np.inf:
            raise ValueError(f"BlockNorm needs 2 < q < inf, got {self.q}.")

    @property
    def _power(self) -> float:
        # |q|_r with r < 1 is min sum q / theta over |theta|_s <= 1, s = r / (1 - r)
        r = _conjugate(self.q) / 2
        return r / (1 - r)

    def support(self, q: FloatArray) -> float:
        """Return ``|w(A)|_{2,q*}^2``, twice the conjugate of the regulariser."""
        return _norm(np.maximum(q, 0.0), _conjugate(self.q) / 2)

    def regulariser(self, theta: FloatArray, q: FloatArray) -> float:
        """Return ``½ |w|_{2,q}^2`` at ``|w_m| = theta_m sqrt(q_m)``."""
        return 0.5 * _norm(theta * np.sqrt(np.maximum(q, 0.0)), self.q) ** 2

    def center(self, n_kernels: int) -> FloatArray:
        """Return equal weights."""
        return np.full(n_kernels, n_kernels ** (1.0 / self._power))

    def step(self, theta: FloatArray, q: FloatArray) -> FloatArray:
        """Return the weights that maximise the dual for A."""
        q = np.maximum(q, 0.0)
        if not q.any():
            return self.center(len(q))
        inverse = np.maximum(q / q.max(), 1e-12) ** (1.0 / (self._power + 1.0))
        return np.asarray(_norm(inverse, self._power) / inverse)

    def contains(self, theta: FloatArray, atol: float = 1e-9) -> bool:
        """Return whether ``|1 / theta|_s <= 1``."""
        if not (theta > 0).all():
            return False
        return bool(_norm(1.0 / theta, self._power) <= 1 + atol)


def excess(weights: WeightSet, theta: FloatArray) -> float:
    """Return the divisor that turns ``theta``, a member up to rounding, into a member.

    It is at least one and includes rounding in the test itself. For a block norm, the
    weights only define w, and the regulariser is valid for any w.
    """
    over = 0.0
    if not isinstance(weights, BlockNorm):
        while over < 1e-8 and not weights.contains(theta / (1.0 + over), 0.0):
            over = max(2.0 * over, 2.0 * UNIT)
    return 1.0 + over + FEW


def block_norm(q: float) -> WeightSet:
    """Return the weight set of the regulariser ``½ |w|_{2,q}^2``, q in [1, inf).

    q = 1 is the group lasso (p = 1), q = 2 the plain sum (p = inf).

    Parameters
    ----------
    q : float
        At least 1.

    Returns
    -------
    LpBall or BlockNorm

    Examples
    --------
    >>> from mklearn import block_norm
    >>> block_norm(1), block_norm(1.5), block_norm(4)
    (LpBall(p=1.0), LpBall(p=3.0), BlockNorm(q=4))
    """
    if not q >= 1:
        raise ValueError(f"The block norm needs q >= 1, got {q}.")
    if q > 2:
        return BlockNorm(q)
    return LpBall(np.inf if q == 2 else q / (2.0 - q))


def weight_set(norm: Any) -> WeightSet:
    """Return the weight set for a number p, a matrix or a weight set."""
    if isinstance(norm, Real):
        return LpBall(float(norm))
    if isinstance(norm, WeightSet) and not isinstance(norm, type):
        return norm
    if isinstance(norm, (np.ndarray, list)) and np.ndim(norm) == 2:
        return Ellipsoid(np.asarray(norm))
    raise ValueError(
        "norm must be a number p >= 1 or inf, a positive definite matrix or a weight "
        f"set, got {norm!r}."
    )


def _conjugate(p: float) -> float:
    return 1.0 if np.isinf(p) else (np.inf if p == 1 else p / (p - 1.0))


def _norm(x: FloatArray, p: float) -> float:
    """Return ``(sum x^p)^(1/p)`` for x >= 0 and any p > 0, without overflow."""
    top = float(np.max(x, initial=0.0))
    if top == 0 or np.isinf(p):
        return top
    return top * float(np.sum((x / top) ** p)) ** (1.0 / p)
