"""Independent verification of certificates, in extended precision, on random fits.

Fits of random losses, norms, solvers and estimators, with kernels, targets and costs
scaled by 1e-12 to 1e12, are run through the public interface. Each certificate is
recomputed here, in extended precision (``longdouble``, 64 bits of mantissa), only from
the Gram matrices (or the features of each row), the weights, the dual variables and the
bias, by separate formulas in this file. A certificate fails if the objective of its
point is above ``upper``, if no point that is feasible in extended precision gives
``lower``, or if the gap is larger than stated. A fit also fails if it raises anything
but a ValueError, or returns values that are not finite.

    python benchmarks/certify.py [--quick] [--fits N] [--seed S] [--only K]
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import traceback
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
from pages import page

from mklearn import (
    BilinearMKLClassifier,
    KernelBank,
    MKLClassifier,
    MKLCox,
    MKLDiscriminant,
    MKLOneClass,
    MKLRegressor,
    MKLSurvivalSVM,
    SubspaceClassifier,
    block_norm,
    mkl_path,
    solve,
)
from mklearn.problems import bilinear, lowrank, mkl
from mklearn.problems.coupled import CrammerSinger, OneClass
from mklearn.problems.losses import (
    EpsilonInsensitive,
    Hinge,
    Logistic,
    Squared,
    SquaredHinge,
)
from mklearn.problems.survival import Cox
from mklearn.problems.weights import BlockNorm, ElasticNet, Ellipsoid, LpBall

PAGE = Path(__file__).parents[1] / "docs" / "results" / "certificates.md"
LD = np.longdouble
EPS = np.finfo(LD).eps
CHECKED = 4  # number of certificates checked per fit: the last ones, of the solutions


# --- formulas in extended precision ---------------------------------------------------


def solve_ld(E, q):
    """Return ``E^-1 q`` by elimination; E is small and positive definite."""
    n = len(q)
    E, q = E.copy(), q.copy()
    for i in range(n):
        for j in range(i + 1, n):
            factor = E[j, i] / E[i, i]
            E[j] -= factor * E[i]
            q[j] -= factor * q[i]
    x = np.zeros(n, dtype=LD)
    for i in reversed(range(n)):
        x[i] = (q[i] - E[i, i + 1 :] @ x[i + 1 :]) / E[i, i]
    return x


def norm_ld(x, p):
    """Return the p-norm of ``x >= 0``."""
    top = x.max()
    if top == 0 or np.isinf(p):
        return top
    return top * ((x / top) ** LD(p)).sum() ** (LD(1) / LD(p))


def net_value(weights, theta):
    """Return the constraint function of an elastic net."""
    mix = LD(weights.mix)
    return (1 - mix) * theta.sum() + mix * (theta @ theta)


def support_ld(weights, q):
    """Return ``max theta'q`` over a weight set."""
    q = np.maximum(q, 0)
    if not q.any():
        return LD(0)
    if isinstance(weights, LpBall):
        p = LD(weights.p)
        if p == 1:
            return q.max()
        return norm_ld(q, LD(1) if np.isinf(weights.p) else p / (p - 1))
    if isinstance(weights, BlockNorm):
        r = LD(weights.q)
        return norm_ld(q, r / (r - 1) / 2)
    if isinstance(weights, Ellipsoid):
        E, best = weights.E.astype(LD), LD(0)
        for size in range(1, len(q) + 1):
            for chosen in itertools.combinations(range(len(q)), size):
                S = list(chosen)
                theta = solve_ld(E[np.ix_(S, S)], q[S])
                if (theta >= 0).all():
                    best = max(best, np.sqrt(theta @ q[S]))
        return best
    assert isinstance(weights, ElasticNet)
    mix, top = LD(weights.mix), q.max()
    q = q / top

    def member(lam):
        return np.maximum(0, q / lam - (1 - mix)) / (2 * mix)

    low = high = LD(1)
    while net_value(weights, member(low)) < 1:
        low /= 2
    while net_value(weights, member(high)) > 1:
        high *= 2
    for _ in range(150):
        middle = (low + high) / 2
        inside = net_value(weights, member(middle)) <= 1
        low, high = (low, middle) if inside else (middle, high)
    return top * (member(high) @ q)


def gauge_ld(weights, theta):
    """Return the gauge of weights: the divisor that makes them members."""
    if isinstance(weights, LpBall):
        return norm_ld(theta, weights.p)
    if isinstance(weights, Ellipsoid):
        return np.sqrt(theta @ weights.E.astype(LD) @ theta)
    if isinstance(weights, ElasticNet):
        return max(LD(1), net_value(weights, theta))
    return LD(1)


def regulariser_ld(weights, theta, q):
    """Return the regulariser of ``w_m = theta_m Phi_m'A`` with the best scaling."""
    theta = np.abs(theta)
    if isinstance(weights, BlockNorm):
        size = norm_ld(theta * np.sqrt(np.maximum(q, 0)), weights.q)
        return size**2 / 2
    return max(LD(1), gauge_ld(weights, theta)) * (theta @ q) / 2


def formula(loss):
    """Return the name of the formula of a loss."""
    return type(getattr(loss, "formula", loss)).__name__


def epsilon_ld(loss):
    """Return the width of the insensitive zone."""
    return LD(getattr(loss, "formula", loss).epsilon)


def as_ld(y):
    """Return targets in extended precision; censored ones are complex."""
    return y.astype(np.clongdouble if np.iscomplexobj(y) else LD)


def losses_ld(loss, f, y):
    """Return V of each sample, by the name of the formula."""
    name = formula(loss)
    if name.startswith("Censored"):
        r = np.where(y.imag > 0, np.maximum(y.real - f, 0), y.real - f)
        if name == "CensoredSquared":
            return r**2 / 2
        return np.maximum(0, np.abs(r) - epsilon_ld(loss))
    if name.endswith("SquaredHinge"):
        return np.maximum(0, 1 - y * f) ** 2 / 2
    if name.endswith("Hinge"):
        return np.maximum(0, 1 - y * f)
    if name.endswith("Squared"):
        return (y - f) ** 2 / 2
    if name.endswith("Logistic"):
        return np.log1p(np.exp(-np.abs(f))) + np.maximum(0, -y * f)
    assert "Epsilon" in name, name
    return np.maximum(0, np.abs(y - f) - epsilon_ld(loss))


def interval_ld(loss, y, C):
    """Return the bounds on the dual variables."""
    name = formula(loss)
    far = np.full(y.shape, LD(np.inf))
    if name.startswith("Censored"):
        most = far if name == "CensoredSquared" else C + np.zeros(y.shape, dtype=LD)
        return np.where(y.imag > 0, LD(0), -most), most
    if name.endswith("SquaredHinge"):
        return np.where(y > 0, LD(0), -far), np.where(y > 0, far, LD(0))
    if name.endswith(("Hinge", "Logistic")):
        return np.where(y > 0, LD(0), -C), np.where(y > 0, C, LD(0))
    if name.endswith("Squared"):
        return -far, far
    return -C, C


def duals_ld(loss, A, y, C):
    """Return the dual term of each sample."""
    name, y = formula(loss), np.real(y)
    some = C > 0
    rest = np.where(some, A**2 / np.where(some, 2 * C, 1), 0)
    if name.endswith("SquaredHinge") or name.endswith("Squared"):
        return np.where(some, y * A - rest, 0)
    if name.endswith("Hinge"):
        return y * A
    if name.endswith("Logistic"):
        s = np.clip(np.where(some, y * A / np.where(some, C, 1), 0), 0, 1)
        safe = np.where(s > 0, s, 1)
        left = np.where(s < 1, 1 - s, 1)
        other = np.where(s < 1, (1 - s) * np.log1p(-np.where(s < 1, s, 0)), 0)
        assert (left > 0).all()
        return -C * (s * np.log(safe) + other)
    return y * A - epsilon_ld(loss) * np.abs(A)


def balanced_ld(A):
    """Return columns whose heavier sign is scaled down so that they sum to zero."""
    out = A.copy()
    for column in out.T:
        up, down = column[column > 0].sum(), -column[column < 0].sum()
        least = min(up, down)
        for sign, size in ((1, up), (-1, down)):
            side = column * sign > 0
            column[side] *= least / size if size > 0 else 0
    return out


def primal_ld(loss, F, bias):
    """Return the loss of all samples, and the size of its terms."""
    if isinstance(loss, OneClass):
        C = loss.C.astype(LD)
        rho = -bias[0]
        short = C[:, 0] * np.maximum(0, rho - F[:, 0])
        return short.sum() - min(LD(1), C.sum()) * rho
    if isinstance(loss, CrammerSinger):
        rows = np.arange(len(F))
        rivals = F + 1
        rivals[rows, loss.labels] -= 1
        top = rivals.max(axis=1) - F[rows, loss.labels]
        return (loss.C.astype(LD) * top).sum()
    if type(loss).__name__ == "Fisher":
        share, a = fisher_ld(loss)
        value = -(a @ F[:, 0])
        for c in (0, 1):
            inside = loss.labels == c
            f, s = F[inside, 0], share[inside]
            value += (s @ (f - s @ f) ** 2) / (2 * LD(loss.lam))
        return value
    if isinstance(loss, Cox):
        return cox_primal(loss, F[:, 0])
    Y, C = as_ld(loss.Y), loss.C.astype(LD)
    return (C * losses_ld(loss, F + bias, Y)).sum()


def fisher_ld(loss):
    """Return each sample's share of its class, and the difference of means."""
    w = loss.weight.astype(LD)
    totals = np.array([w[loss.labels == c].sum() for c in (0, 1)])
    share = w / totals[loss.labels]
    return share, np.where(loss.labels == 1, share, -share)


def feasible_ld(loss, A):
    """Return a point near A that is feasible in extended precision."""
    A = A.astype(LD)
    if isinstance(loss, OneClass):
        C = loss.C.astype(LD)
        A = np.clip(A, 0, C)
        mass, total = min(LD(1), C.sum()), A.sum()
        if total >= mass:
            return A * (mass / total)
        return A + (C - A) * ((mass - total) / (C - A).sum())
    if isinstance(loss, CrammerSinger):
        rows = np.arange(len(A))
        A = np.minimum(A, 0)
        A[rows, loss.labels] = 0
        lost = -A.sum(axis=1)
        over = lost > loss.C
        A[over] *= (loss.C[over].astype(LD) / lost[over])[:, None]
        A[rows, loss.labels] = -A.sum(axis=1)
        return A
    if type(loss).__name__ == "Fisher":
        share, _ = fisher_ld(loss)
        for c, total in ((0, LD(-1)), (1, LD(1))):
            inside = loss.labels == c
            A[inside, 0] -= share[inside] * (A[inside, 0].sum() - total)
        return A
    if isinstance(loss, Cox):
        return cox_given(loss)[:, None] - cox_feasible(loss, A)[:, None]
    C = loss.C.astype(LD)
    A = np.clip(A, *interval_ld(loss, as_ld(loss.Y), C))
    A = np.where(C > 0, A, 0)
    return balanced_ld(A) if loss.with_bias else A


def dual_ld(loss, A):
    """Return the dual term of all samples."""
    if isinstance(loss, OneClass):
        return LD(0)
    if isinstance(loss, CrammerSinger):
        return A[np.arange(len(A)), loss.labels].sum()
    if type(loss).__name__ == "Fisher":
        share, a = fisher_ld(loss)
        return -LD(loss.lam) / 2 * ((A[:, 0] - a) ** 2 / share).sum()
    if isinstance(loss, Cox):
        return cox_dual(loss, cox_given(loss) - A[:, 0])
    return duals_ld(loss, A, as_ld(loss.Y), loss.C.astype(LD)).sum()


# --- Cox's partial likelihood, event time by event time -------------------------------


def cox_times(loss):
    """Yield the event times of each stratum, from the last: events, samples at risk.

    They come with the weights of tied events in each term, and the cost of a term.
    """
    for stratum in np.unique(loss.stratum):
        here, found = loss.stratum == stratum, []
        for t in np.unique(loss.time[here & loss.event])[::-1]:
            dies = here & loss.event & (loss.time == t)
            cost = LD(loss.C) * loss.weight[dies].astype(LD).sum()
            d = int(loss.weight[dies].sum()) if loss.ties == "efron" else 1
            left = 1 - np.arange(d, dtype=LD) / d
            found.append((dies, here & (loss.time >= t), left, cost / d))
        yield here, found


def cox_given(loss):
    """Return the cost of the event of each sample."""
    return np.where(loss.event, LD(loss.C) * loss.weight.astype(LD), LD(0))


def cox_primal(loss, f):
    """Return the negative log likelihood times its cost."""
    w, value = loss.weight.astype(LD), -(cox_given(loss) @ f)
    for _, found in cox_times(loss):
        for dies, risk, left, k in found:
            top = f[risk].max()
            u = w * np.exp(np.minimum(f - top, 0))
            for part in left:
                value += k * (
                    top + np.log(u[risk & ~dies].sum() + part * u[dies].sum())
                )
    return value


def cox_even(loss):
    """Return the masses at equal scores."""
    w, m = loss.weight.astype(LD), np.zeros(len(loss.time), dtype=LD)
    for _, found in cox_times(loss):
        for dies, risk, left, k in found:
            for part in left:
                size = w[risk & ~dies].sum() + part * w[dies].sum()
                m[risk & ~dies] += k * w[risk & ~dies] / size
                m[dies] += k * part * w[dies] / size
    return m


def cox_flow(found, m):
    """Return the mass from earlier events at each event time."""
    paid = np.cumsum([len(left) * k for _, _, left, k in found])
    rho = np.array([m[risk].sum() for _, risk, _, _ in found]) - paid
    rho[-1] = 0  # the first event has no earlier ones
    return rho


def cox_feasible(loss, A):
    """Return feasible masses near those of A."""
    m, even = np.maximum(cox_given(loss) - A[:, 0], 0), cox_even(loss)
    m[even == 0] = 0  # never at risk
    for here, found in cox_times(loss):
        if not found:
            m[here] = 0
            continue
        total = cox_given(loss)[here].sum()
        size = m[here].sum()
        m[here] = m[here] * (total / size) if size > 0 else even[here]
        rho, flow = cox_flow(found, m), cox_flow(found, even)
        short = rho < 0
        if short.any():
            share = np.max(-rho[short] / (flow[short] - rho[short]))
            m[here] = (1 - share) * m[here] + share * even[here]
    return m


def entropy(x):
    """Return ``x log x``."""
    return np.where(x > 0, x * np.log(np.where(x > 0, x, 1)), LD(0))


def cox_dual(loss, m):
    """Return the entropy of a distribution of masses, the largest one without ties."""
    w = loss.weight.astype(LD)
    value = -(entropy(m) - m * np.log(w)).sum()
    for _, found in cox_times(loss):
        if not found:
            continue
        rho = np.maximum(cox_flow(found, m), 0)
        for (dies, _, left, k), flow in zip(found, rho, strict=True):
            cost, own = len(left) * k, m[dies].sum()
            others = max(flow + cost - own, LD(0))
            if len(left) == 1:
                value += entropy(flow + cost) - entropy(flow)
                continue
            low, high = LD(-60), LD(60)
            for _ in range(120):
                z = (low + high) / 2
                x = np.exp(z)
                need = x * (others - (k * (1 - left) / (1 + left * x)).sum())
                low, high = (low, z) if need > own else (z, high)
            q = left * np.exp(low) / (1 + left * np.exp(low))
            share = (k * q).sum()
            inside = q * np.log(left) - entropy(q) - entropy(1 - q)
            value += (k * inside).sum() + entropy(own) + entropy(others)
            value -= entropy(max(own - share, LD(0)))
            value -= entropy(max(others - cost + share, LD(0)))
    return value


# --- certificates ---------------------------------------------------------------------


def bounds_ld(problem, found):
    """Return both bounds of a certificate of kernels, and their errors in this file."""
    M = problem.bank.shape[2]
    grams = [problem.bank.gram(m).astype(LD) for m in range(M)]
    theta, bias = found.theta.astype(LD), found.bias.astype(LD)
    A, dual = found.A.astype(LD), feasible_ld(problem.loss, found.dual)

    def products(B):
        return np.array([K @ B for K in grams])  # (M, n, T)

    def quads(B):
        return np.einsum("it,mit->tm", B, products(B))

    at, q, under = products(A), quads(A), quads(dual)
    if problem.per_class:
        F = np.einsum("tm,mit->it", theta, at)
        norms = [
            class_norm(problem.weights, d, r) for d, r in zip(theta, q, strict=True)
        ]
        upper = primal_ld(problem.loss, F, bias) + sum(norms)
        size = max(support_ld(problem.weights, r) for r in under)
        lower = dual_ld(problem.loss, dual) / np.sqrt(max(LD(1), size))
    else:
        F = np.einsum("m,mit->it", theta, at)
        reg = regulariser_ld(problem.weights, theta, q.sum(axis=0))
        upper = primal_ld(problem.loss, F, bias) + reg
        size = support_ld(problem.weights, under.sum(axis=0))
        lower = dual_ld(problem.loss, dual) - size / 2
    # rounding errors of this file itself, from the magnitudes of all terms
    sizes = [np.abs(K) for K in grams]
    most = np.abs(np.atleast_2d(theta)).max(axis=0)
    big = sum(t * K for t, K in zip(most, sizes, strict=True))
    far = big @ np.abs(A)
    cost = (
        np.max(problem.loss.C) if hasattr(problem.loss, "C") else 1 / problem.loss.lam
    )
    terms = (LD(cost) * (far + 1) * (1 + far)).sum() + np.sum(np.abs(A) * far)
    terms += sum((np.abs(dual) * (K @ np.abs(dual))).sum() for K in sizes)
    return upper, lower, 8 * len(A) * EPS * terms


def class_norm(weights, d, q):
    """Return ``min sum_r |w_r|^2 / d_r`` over members d, to the power ½."""
    norms2 = d**2 * np.maximum(q, 0)
    if isinstance(weights, LpBall):
        p = LD(weights.p)
        if np.isinf(weights.p):
            return np.sqrt(norms2.sum())
        return norm_ld(np.sqrt(norms2), 2 * p / (p + 1))
    return LD(0)


def features_ld(problem, found, rows):
    """Return both bounds of a certificate of features that are read in passes.

    ``rows`` are the features, targets, costs and dual variables of the pass.
    """
    Z = np.vstack([one[0] for one in rows]).astype(LD)
    y = as_ld(np.vstack([one[1] for one in rows]))
    cost = np.vstack([np.broadcast_to(one[2], one[1].shape) for one in rows])
    cost = cost.astype(LD)
    A = cost * np.vstack([one[3] for one in rows]).astype(LD)
    root, shift = (v.astype(LD) for v in (problem.scaling.root, problem.scaling.shift))
    N = root * (Z - shift)
    w, theta = found.about.w.astype(LD), found.theta.astype(LD)
    F = N @ w + found.bias.astype(LD)
    norms2 = np.array([(w[s] ** 2).sum() for s in problem.slices])
    reg = (norms2[theta > 0] / theta[theta > 0]).sum() / 2
    if isinstance(problem.weights, BlockNorm):
        reg = norm_ld(np.sqrt(norms2), problem.weights.q) ** 2 / 2
    else:
        reg *= max(LD(1), gauge_ld(problem.weights, theta))
    upper = (cost * losses_ld(problem.loss, F, y)).sum() + reg
    A = balanced_ld(np.clip(A, *interval_ld(problem.loss, y, cost)))
    V = N.T @ A
    q = np.array([(V[s] ** 2).sum() for s in problem.slices])
    terms = duals_ld(problem.loss, A, y, cost)
    lower = terms.sum() - support_ld(problem.weights, q) / 2
    far = np.abs(N) @ np.abs(w) + np.abs(found.bias.astype(LD))
    size = (cost * (1 + far + np.abs(y)) * (far + np.abs(y))).sum() + np.abs(
        terms
    ).sum()
    size += ((np.abs(N).T @ np.abs(A)) ** 2).sum()
    return upper, lower, 8 * len(Z) * EPS * size


def understated(problem, found, rows):
    """Return the relative amount by which a certificate is understated, or zero."""
    if isinstance(problem, lowrank.FeatureProblem):
        upper, lower, slack = features_ld(problem, found, rows)
    else:
        upper, lower, slack = bounds_ld(problem, found)
    size = max(abs(upper), abs(lower), LD(np.finfo(float).tiny))
    worst = max(
        (upper - slack - LD(found.upper)) / size,
        (LD(found.lower) - lower - slack) / size,
        # bounds of different signs are a gap above one, whatever they are
        min((upper - lower - 2 * slack) / size, LD(1)) - LD(found.gap),
    )
    if not np.isfinite(found.upper) or not np.isfinite(found.lower):
        return 0.0 if not np.isfinite(found.gap) else np.inf
    return float(max(worst, LD(0)))


class Recorder:
    """Record all certificates, with their problem and the rows of the pass."""

    def __enter__(self):
        self.found, self.rows = [], []
        self.kept = [
            (owner, name, getattr(owner, name))
            for owner, name in (
                (mkl, "certified"),
                (bilinear, "certified"),
                (lowrank.FeatureProblem, "certify"),
                (lowrank.Rounded, "of"),
            )
        ]
        for owner, name, function in self.kept[:3]:
            setattr(owner, name, self.noting(function))
        lowrank.Rounded.of = self.passing(self.kept[3][2])
        return self

    def noting(self, function):
        def certified(problem, point, dual, *tol):
            self.rows = []
            found = function(problem, point, dual, *tol)
            self.found.append((problem, found, self.rows))
            return found

        return certified

    def passing(self, function):
        def of(block, loss, Y, cost, at, slip, a, *beside):
            self.rows.append((block.X, Y, cost, a))
            return function(block, loss, Y, cost, at, slip, a, *beside)

        return of

    def __exit__(self, *_):
        for owner, name, function in self.kept:
            setattr(owner, name, function)


# --- fits -----------------------------------------------------------------------------

SOLVERS = (
    "auto", "auto", "alternating", "conic", "cutting_plane", "interleaved", "lbfgs",
    "multilevel", "newton", "reduced_gradient", "screened", "sdp", "silp",
)  # fmt: skip
MULTICLASS = (
    "auto", "auto", "alternating", "conic", "cutting_plane", "newton",
    "projected_gradient", "reduced_gradient",
)  # fmt: skip


class Case:
    """Random choices of one fit."""

    def __init__(self, seed, number, solver=None):
        self.rng = np.random.default_rng([seed, number])
        self.forced = solver

    def pick(self, *options):
        return options[self.rng.integers(len(options))]

    def solver(self, names):
        name = self.pick(*names)
        return name if self.forced is None else self.forced

    def scale(self, most=12):
        """Return one, or a power of ten."""
        if self.rng.random() < 0.3:
            return 1.0
        return float(10.0 ** self.rng.uniform(-most, most))

    def samples(self, low=2, high=30):
        n = int(self.rng.integers(low, high))
        return self.rng.normal(size=(n, int(self.rng.integers(1, 6))))

    def stack(self, X, scaled=True):
        """Return Gram matrices (n, n, M), positive semidefinite up to rounding."""
        grams = []
        for _ in range(int(self.rng.integers(1, 6))):
            kind = self.pick("linear", "rbf", "rbf", "one", "ridge")
            Z = X * self.rng.uniform(0.2, 2.0, X.shape[1])
            if kind == "linear":
                K = Z @ Z.T
            elif kind == "rbf":
                d = ((Z[:, None] - Z[None]) ** 2).sum(axis=2)
                K = np.exp(-self.rng.uniform(0.01, 3) * d)
            elif kind == "one":
                K = np.outer(Z[:, 0], Z[:, 0])
            else:
                K = np.diag(self.rng.uniform(0.1, 1.0, len(Z)))
            grams.append(K * (self.scale(3) if scaled else 1.0))
        return np.stack(grams, axis=2) * (self.scale() if scaled else 1.0)

    def norm(self, M):
        kind = self.pick(1, 1, 4 / 3, 1.1, 2, 5, np.inf, "E", "net", "block")
        if kind == "E":
            R = self.rng.normal(size=(M, M))
            return R @ R.T + 0.1 * np.eye(M)
        if kind == "net":
            return ElasticNet(float(self.rng.uniform(0.05, 1.0)))
        if kind == "block":
            return block_norm(float(self.rng.uniform(1.0, 6.0)))
        return kind

    def labels(self, n, k=2):
        y = self.rng.integers(0, k, n)
        y[:k] = np.arange(k)
        return y

    def weights(self, n):
        kind = self.pick(None, None, "some", "wide")
        if kind is None:
            return None
        w = self.rng.uniform(0.1, 2.0, n)
        return w if kind == "some" else w * 10.0 ** self.rng.uniform(-4, 4, n)

    def limits(self):
        return dict(
            tol=float(10.0 ** self.rng.uniform(-12, -2)),
            max_iter=int(self.pick(3, 30, 100)),
            time_limit=1.0,
        )


def as_set(norm):
    if isinstance(norm, np.ndarray):
        return Ellipsoid(norm)
    return LpBall(float(norm)) if isinstance(norm, (int, float)) else norm


def problems(case):
    """Problems without estimators, of any scale."""
    X = case.samples()
    n, T = len(X), int(case.pick(1, 1, 2, 3))
    B = case.stack(X)
    C = np.full((n, T), case.scale())
    weights = case.weights(n)
    if weights is not None:
        C = C * weights[:, None]
    signs = np.column_stack([2.0 * case.labels(n) - 1 for _ in range(T)])
    y = case.rng.normal(size=(n, T)) * case.scale()
    with_bias = bool(case.rng.random() < 0.8)
    loss = case.pick(
        Hinge(signs, C, with_bias),
        SquaredHinge(signs, C, with_bias),
        Squared(y, C, with_bias),
        Logistic(signs, C, with_bias),
        EpsilonInsensitive(y, C, with_bias, float(np.abs(y).max() * 0.1)),
        OneClass(np.full((n, 1), 1.0 / (case.rng.uniform(0.05, 1.0) * n))),
    )
    norm = as_set(case.norm(B.shape[2]))
    problem = mkl.MKLProblem(KernelBank.from_grams(B), loss, norm)
    solve(problem, case.solver(SOLVERS), **case.limits())


def classifiers(case):
    """Classifiers, from samples or Gram matrices."""
    X = case.samples(8)
    y = case.labels(len(X), int(case.pick(2, 2, 3)))
    options = dict(
        C=case.scale(), loss=case.pick("hinge", "squared_hinge", "squared", "logistic"),
        norm=case.norm(3), solver=case.solver(SOLVERS), **case.limits(),
        normalize=case.pick("multiplicative", "spherical", None),
        weights=case.pick("shared", "per-class"),
    )  # fmt: skip
    if case.rng.random() < 0.5:
        data, which = X * case.scale(3), ["linear", "rbf", "polynomial"]
    else:
        data, which = KernelBank.from_grams(case.stack(X)), "precomputed"
        options["norm"] = case.norm(data.shape[2])
    model = MKLClassifier(which, **options).fit(data, y, case.weights(len(X)))
    return model.decision_function(data)


def regressors(case):
    """Regressors, from samples or Gram matrices."""
    X = case.samples(4)
    y = case.rng.normal(size=len(X)) * case.scale() + case.pick(0.0, case.scale())
    B = KernelBank.from_grams(case.stack(X))
    model = MKLRegressor(
        "precomputed", C=case.scale(), loss=case.pick("squared", "epsilon_insensitive"),
        epsilon=float(np.abs(y).max() * case.pick(0.0, 0.01, 0.1)),
        norm=case.norm(B.shape[2]), solver=case.solver(SOLVERS), **case.limits(),
        normalize=case.pick("multiplicative", "spherical", None),
    )  # fmt: skip
    return model.fit(B, y, case.weights(len(X))).predict(B)


def one_class(case):
    """One-class problems, including those with nu = 1."""
    X = case.samples(3)
    B = KernelBank.from_grams(case.stack(X))
    options = case.pick(
        dict(nu=1.0), dict(nu=1.0), dict(nu=float(case.rng.uniform(0.01, 1))),
        dict(C=case.scale()),
    )  # fmt: skip
    model = MKLOneClass(
        "precomputed", norm=case.norm(B.shape[2]), solver=case.solver(SOLVERS),
        normalize=case.pick("multiplicative", "spherical", None), **options,
        **case.limits(),
    )  # fmt: skip
    return model.fit(B, sample_weight=case.weights(len(X))).decision_function(B)


def multiclass(case):
    """Joint multiclass problems, with weights shared or per class."""
    X = case.samples(8)
    y, B = case.labels(len(X), int(case.pick(2, 3, 4))), case.stack(X)
    per_class = bool(case.rng.random() < 0.6)
    model = BilinearMKLClassifier(
        "precomputed", C=case.scale(8),
        weights="per-class" if per_class else "shared",
        norm=case.pick(1, 1.5, 2) if per_class else case.norm(B.shape[2]),
        solver=case.solver(MULTICLASS), **case.limits(),
    )  # fmt: skip
    return model.fit(B, y, case.weights(len(X))).decision_function(B)


def discriminants(case):
    """Discriminant analysis by both criteria."""
    X = case.samples(8)
    criterion = case.pick("rkda", "kfda")
    k = 2 if criterion == "kfda" else int(case.pick(2, 3))
    y, B = case.labels(len(X), k), case.stack(X)
    reg = case.scale(10)
    if criterion == "rkda" and case.rng.random() < 0.2:
        reg = "learn"
    model = MKLDiscriminant(
        "precomputed", criterion=criterion, reg=reg,
        norm=case.norm(B.shape[2]), solver=case.solver(("newton", *SOLVERS)),
        **case.limits(),
    )  # fmt: skip
    return model.fit(B, y, case.weights(len(X))).transform(B)


def approximations(case):
    """Low-rank features: statistics for the squared loss, passes for others."""
    X = case.samples(12, 60)
    options = dict(
        C=case.scale(6), norm=case.pick(1, 4 / 3, 2, np.inf),
        approximation=case.pick("nystroem", "rff"), rank=int(case.pick(3, 8)),
        **case.limits(),
    )  # fmt: skip
    given = ["linear", "rbf"] if options["approximation"] == "nystroem" else ["rbf"]
    if case.rng.random() < 0.5:
        y = case.rng.normal(size=len(X)) * case.scale(6)
        loss = case.pick("squared", "epsilon_insensitive")
        epsilon = float(0.1 * np.abs(y).max())
        model = MKLRegressor(given, loss=loss, epsilon=epsilon, **options)
        return model.fit(X, y).predict(X)
    loss = case.pick("hinge", "squared_hinge", "squared", "logistic")
    model = MKLClassifier(given, loss=loss, **options)
    return model.fit(X, case.labels(len(X))).decision_function(X)


def paths(case):
    """Paths of costs and norms, with warm starts."""
    X = case.samples(6, 20)
    bank = KernelBank.from_grams(case.stack(X))
    Y = 2.0 * case.labels(len(X))[:, None] - 1
    loss = case.pick(Hinge, SquaredHinge, Squared, Logistic)
    costs = case.scale(8) * np.array([1.0, 10.0, 1000.0])
    found = mkl_path(
        bank,
        lambda C: loss(Y, np.full(Y.shape, C)),
        costs,
        [1.0, 2.0, np.inf],
        **case.limits(),
    )
    return np.array([s.upper for row in found.solutions for s in row if s])


def survival(case):
    """Times to an event, with ties and strata, on Grams or in passes."""
    X = case.samples(4)
    n = len(X)
    time = case.rng.integers(1, 8, n) if case.rng.random() < 0.5 else case.rng.random(n)
    y = np.c_[time + 0.5, case.rng.random(n) < 0.6]
    y[0, 1] = 1
    ties = case.pick("breslow", "efron")
    weights = case.weights(n)
    if weights is not None and ties == "efron":
        weights = np.ceil(weights % 3 + 1e-3)
    if case.rng.random() < 0.3:
        low = dict(approximation="nystroem", rank=int(case.pick(3, 8)))
        model = MKLSurvivalSVM(
            ["linear", "rbf"], C=case.scale(6), norm=case.pick(1, 4 / 3, 2, np.inf),
            loss=case.pick("squared", "epsilon_insensitive"), **low, **case.limits(),
        )  # fmt: skip
        return model.fit(X, y, weights).predict(X)
    B = KernelBank.from_grams(case.stack(X))
    options = dict(
        C=case.scale(8), norm=case.norm(B.shape[2]), solver=case.solver(SOLVERS),
        normalize=case.pick("multiplicative", "spherical", None), **case.limits(),
    )  # fmt: skip
    if case.rng.random() < 0.3:
        loss = case.pick("squared", "epsilon_insensitive")
        model = MKLSurvivalSVM("precomputed", loss=loss, **options)
        return model.fit(B, y, weights).predict(B)
    strata = case.rng.integers(0, 2, n) if case.rng.random() < 0.3 else None
    model = MKLCox("precomputed", ties=ties, **options)
    return model.fit(B, y, weights, strata=strata).predict(B)


def subspaces(case):
    """SVMs on weights that discriminant analysis has learned."""
    X = case.samples(10)
    y, B = case.labels(len(X), int(case.pick(2, 3))), case.stack(X)
    model = SubspaceClassifier("precomputed", reg=case.scale(4)).fit(B, y)
    return model.decision_function(B)


FAMILIES = {
    problems: 40, classifiers: 16, regressors: 10, one_class: 8, multiclass: 8,
    discriminants: 8, approximations: 6, paths: 3, subspaces: 1, survival: 10,
}  # fmt: skip


def drawn(case):
    """Return the family of a fit, the first of its random choices."""
    shares = np.array(list(FAMILIES.values()))
    return list(FAMILIES)[case.rng.choice(len(shares), p=shares / shares.sum())]


def few(seed, first):
    """Return the first numbers from ``first`` on in which every family has its share.

    That is its share of 90 fits, but at least three.
    """
    wanted = {family: max(3, 9 * share // 11) for family, share in FAMILIES.items()}
    chosen = []
    for number in itertools.count(first):
        family = drawn(Case(seed, number))
        if wanted[family]:
            wanted[family] -= 1
            chosen.append(number)
        if not any(wanted.values()):
            return chosen


def fit(seed, number, solver, shown):
    """Make one fit; return its family, its outcome, and its last certificates."""
    case = Case(seed, number, solver)
    family = drawn(case)
    with Recorder() as recorder, warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            answer = family(case)
            ended = "fitted"
            if answer is not None and not np.isfinite(answer).all():
                ended = "not finite"
        except ValueError as error:
            ended = "error" if "fault" in str(error) else "declined"
            if shown or ended == "error":
                traceback.print_exc()
        except Exception:  # what the run is for
            ended = "error"
            traceback.print_exc()
    return family.__name__, ended, recorder.found[-CHECKED:]


def run(seed, number, shown=False):
    """Make one fit; return its family, its outcome, and understated amounts."""
    family, ended, found = fit(seed, number, None, shown)
    if ended == "declined":  # the requirements of the solver are not met
        family, ended, found = fit(seed, number, "auto", shown)
    worst = 0.0
    with np.errstate(all="ignore"):
        for problem, certificate, rows in found:
            one = understated(problem, certificate, rows)
            if shown or one > 0:
                rounding = getattr(certificate, "rounding", 0.0)
                print(
                    f"fit {number} ({family}): {type(problem.loss).__name__}, "
                    f"{problem.weights}, gap {certificate.gap:.3g}, rounding "
                    f"{rounding:.3g}, understated by {one:.3g}",
                    file=sys.stderr,
                )
            worst = max(worst, one)
    if ended in ("error", "not finite"):
        print(f"fit {number} ({family}): {ended}", file=sys.stderr)
    return family, ended, len(found), worst


def main():
    """Run the fits, print a table, and fail if a certificate does."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="90 fits")
    parser.add_argument("--fits", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="one fit, with all details")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--write", action="store_true", help=f"{PAGE.name} of the docs")
    given = parser.parse_args()
    if np.finfo(LD).nmant < 63:
        sys.exit("This machine has no extended precision: nothing can be checked.")
    if given.only is not None:
        print(run(given.seed, given.only, shown=True))
        return
    numbers = range(given.first, given.first + given.fits)
    if given.quick:
        numbers = few(given.seed, given.first)
    counts, worst = {f.__name__: Counter() for f in FAMILIES}, Counter()
    for number in numbers:
        family, ended, certificates, one = run(given.seed, number)
        count = counts[family]
        count["fits"] += 1
        count[ended] += 1
        count["certificates"] += certificates
        count["understated"] += one > 0
        worst[family] = max(worst[family], one)
    columns = ("fits", "declined", "certificates", "error", "not finite", "understated")
    print(f"{'family':<16}" + "".join(f"{c:>13}" for c in columns) + f"{'largest':>10}")
    for family, count in counts.items():
        line = "".join(f"{count[c]:>13}" for c in columns)
        print(f"{family:<16}{line}{worst[family]:>10.1e}")
    total = sum(counts.values(), Counter())
    print(f"{'all':<16}" + "".join(f"{total[c]:>13}" for c in columns))
    if given.json:
        table = {family: dict(count) for family, count in counts.items()}
        given.json.write_text(json.dumps({"seed": given.seed, "families": table}))
    if given.write:
        rows = [{"family": f, **{c: n[c] for c in columns}} for f, n in counts.items()]
        rows.append({"family": "all", **{c: total[c] for c in columns}})
        command = f"certify.py --fits {len(numbers)} --seed {given.seed} --write"
        PAGE.write_text(page("Recomputed certificates", command, rows))
    if total["error"] + total["not finite"] + total["understated"]:
        sys.exit(1)


if __name__ == "__main__":
    main()
