"""Certified selection: proofs that kernel weights are zero or nonzero."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from mklearn.data.frames import pandas_for
from mklearn.data.threads import one_blas_thread
from mklearn.kernels.bank import KernelBank
from mklearn.problems.base import FEW, UNIT, Certificate
from mklearn.problems.mkl import MKLProblem
from mklearn.problems.protocols import Loss
from mklearn.problems.weights import weight_set
from mklearn.solvers import Iterate, Solution, solve
from mklearn.solvers.path import Path

FloatArray = NDArray[np.float64]

ZERO, NOT_ZERO, UNDECIDED = "zero", "not zero", "undecided"


@dataclass(frozen=True)
class CertifiedSelection:
    """What is proven about the weights at all optima, for p = 1.

    Attributes
    ----------
    names : tuple of str
    weights : array of shape (n_kernels,)
        Weights of the solution.
    states : tuple of str
        For each kernel, "zero" if its weight is zero at every optimum, "not zero" if it
        is positive at every optimum, or "undecided" at the gap that was reached.
    most : array of shape (n_kernels,)
        Upper bounds on the optimal weights.
    upper, lower : float
        Bounds on the optimum, rounded outward.
    without : array of shape (n_kernels,)
        Lower bounds on the optimum without each kernel; if this is above ``upper``, the
        weight is nonzero. NaN if it was not computed.
    """

    names: tuple[str, ...]
    weights: FloatArray
    states: tuple[str, ...]
    most: FloatArray = field(repr=False)
    upper: float
    lower: float
    without: FloatArray = field(repr=False)

    def frame(self) -> Any:
        """Return a pandas DataFrame: kernel, weight, state and upper bound."""
        pd = pandas_for("frame()", "read names, weights and states")
        return pd.DataFrame(
            {
                "kernel": list(self.names),
                "weight": self.weights,
                "state": list(self.states),
                "at most": self.most,
            }
        )


def certified_selection(
    model: Any,
    X: Any,
    y: Any,
    sample_weight: Any = None,
    *,
    tol: float = 1e-6,
    max_iter: int = 1000,
) -> Any:
    """Prove which weights are zero or nonzero at the optimum, for ``norm=1``.

    Zero weights in a solution are not a proof, because a solver stops before the exact
    optimum. Here the duality gap decides. *Zero*: if the dual of the loss is strongly
    concave (squared, squared hinge, logistic), the optimal dual variables lie in a ball
    whose radius follows from the gap; a kernel that cannot attain the largest quadratic
    form in this ball has weight zero at every optimum. For other losses (hinge,
    ε-insensitive) the gap only bounds a weight, see ``most``, and never proves it to be
    zero. *Not zero*: the problem without the kernel has a lower bound above the
    objective that was reached with it. All bounds include rounding.

    Parameters
    ----------
    model : fitted MKLClassifier or MKLRegressor with ``norm=1``
        Fitted without ``approximation``. With a smaller ``tol`` of the model, more
        kernels can be decided.
    X, y, sample_weight
        The data that the model was fitted on.
    tol : float
        Smallest relative gap to which problems without a kernel are solved.
    max_iter : int
        Limit on the iterations for each of these problems.

    Returns
    -------
    CertifiedSelection, or a list of these if classes have their own weights

    Examples
    --------
    >>> import numpy as np
    >>> from mklearn import MKLRegressor, kernels
    >>> from mklearn.inference import certified_selection
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(60, 3))
    >>> y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=60)
    >>> model = MKLRegressor(kernels.per_feature("rbf"), norm=1, tol=1e-8).fit(X, y)
    >>> certified_selection(model, X, y).states[0]
    'not zero'
    """
    _check_model(model)
    check_is_fitted(model)
    solutions = model.solution_
    several = isinstance(solutions, list)
    found = []
    for problem, solution in zip(
        model.posed(X, y, sample_weight),
        solutions if several else [solutions],
        strict=True,
    ):
        same = problem.loss.shape == solution.A.shape
        if same:
            dual = Iterate(solution.theta, solution.dual)
            upper = problem.certify(Iterate(solution.theta, solution.A), dual).upper
            same = abs(upper - solution.upper) <= 1e-6 * max(1.0, abs(solution.upper))
        if not same:
            raise ValueError(
                "These are not the samples that the model was fitted on: its "
                "objective there is different. Give the same X, y and sample_weight "
                "as to fit."
            )
        found.append(selection_of(problem, solution, tol=tol, max_iter=max_iter))
    return found if several else found[0]


@dataclass(frozen=True)
class CertifiedPath:
    """What is proven about the weights at each of several costs, for p = 1.

    Attributes
    ----------
    Cs : tuple of float
    selections : tuple of CertifiedSelection
        One for each cost.
    """

    Cs: tuple[float, ...]
    selections: tuple[CertifiedSelection, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the kernels."""
        return self.selections[0].names

    @property
    def states(self) -> tuple[tuple[str, ...], ...]:
        """States of the kernels at each cost, as in :class:`CertifiedSelection`."""
        return tuple(one.states for one in self.selections)

    def frame(self) -> Any:
        """Return a pandas DataFrame: C, kernel, weight, state and upper bound."""
        pd = pandas_for("frame()", "read names, Cs and states")
        parts = []
        for C, one in zip(self.Cs, self.selections, strict=True):
            part = one.frame()
            part.insert(0, "C", C)
            parts.append(part)
        return pd.concat(parts, ignore_index=True)


def certified_path(
    model: Any,
    X: Any,
    y: Any,
    Cs: Any,
    sample_weight: Any = None,
    *,
    tol: float = 1e-6,
    max_iter: int = 1000,
) -> CertifiedPath:
    """Prove which weights are zero or nonzero for each of several costs.

    Parameters
    ----------
    model : MKLClassifier or MKLRegressor with ``norm=1``
        Copies of it are fitted with each cost; it may be fitted or not, and is not
        changed. With a smaller ``tol`` of the model, more kernels can be decided.
    X, y
        As in ``fit``.
    Cs : sequence of float
        Costs, in any order, which is kept.
    sample_weight
        As in ``fit``.
    tol, max_iter
        As in :func:`certified_selection`.

    Returns
    -------
    CertifiedPath

    Examples
    --------
    >>> import numpy as np
    >>> from mklearn import MKLRegressor, kernels
    >>> from mklearn.inference import certified_path
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(60, 3))
    >>> y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=60)
    >>> model = MKLRegressor(kernels.per_feature("rbf"), norm=1, tol=1e-8)
    >>> path = certified_path(model, X, y, [0.01, 1.0])
    >>> [states[0] for states in path.states]
    ['not zero', 'not zero']
    """
    _check_model(model)
    costs = np.asarray(Cs, dtype=np.float64)
    if costs.ndim != 1 or not len(costs) or not (costs > 0).all():
        raise ValueError(f"Cs must be a list of positive costs, got {Cs!r}.")
    if not weight_set(model.get_params(deep=False)["norm"]).sparse:
        raise ValueError(
            "Only norm=1 gives weights of exactly zero, got "
            f"norm={model.get_params(deep=False)['norm']!r}."
        )
    found = []
    for C in costs:
        fitted = clone(model).set_params(C=float(C))
        fitted.fit(X, y, sample_weight=sample_weight)
        one = certified_selection(
            fitted, X, y, sample_weight, tol=tol, max_iter=max_iter
        )
        if isinstance(one, list):
            raise ValueError(
                "Each class or target has its own kernel weights; call "
                "certified_selection for each cost, which returns one result for each."
            )
        found.append(one)
    return CertifiedPath(tuple(costs.tolist()), tuple(found))


def _check_model(model: Any) -> None:
    if not hasattr(model, "posed") or "C" not in model.get_params(deep=False):
        raise ValueError(
            "Certified selection needs an MKLClassifier or MKLRegressor, got "
            f"{type(model).__name__}; after a search, fit one of these with what was "
            "chosen."
        )
    if model.get_params(deep=False).get("approximation") is not None:
        raise ValueError(
            "Certified selection needs exact kernels; fit without approximation."
        )


@one_blas_thread
def selection_of(
    problem: MKLProblem,
    solution: Solution,
    *,
    tol: float = 1e-6,
    max_iter: int = 1000,
) -> CertifiedSelection:
    """Prove which weights are zero or nonzero, from a problem and its solution.

    Parameters
    ----------
    problem : MKLProblem
        A problem with weights on the simplex (p = 1).
    solution : Solution
    tol, max_iter
        As in :func:`certified_selection`.

    Returns
    -------
    CertifiedSelection
    """
    if not problem.weights.sparse:
        raise ValueError(
            "Only norm=1 gives weights of exactly zero; other norms give weight to "
            f"every kernel, got {problem.weights!r}."
        )
    dual = Iterate(solution.theta, solution.dual)
    certificate = problem.certify(Iterate(solution.theta, solution.A), dual)
    most = _most(problem, certificate)
    M, theta = problem.bank.shape[2], solution.theta
    states, without = [UNDECIDED] * M, np.full(M, np.nan)
    for m in range(M):
        if most[m] == 0:
            states[m] = ZERO
        elif theta[m] > 0:
            without[m] = _without(problem, solution, m, certificate, tol, max_iter)
            if without[m] > certificate.upper:
                states[m] = NOT_ZERO
    return CertifiedSelection(
        problem.bank.names,
        theta,
        tuple(states),
        most,
        certificate.upper,
        certificate.lower,
        without,
    )


def selection_path(
    path: Path,
    bank: KernelBank,
    loss_at: Callable[[float], Loss],
    *,
    tol: float = 1e-6,
    max_iter: int = 1000,
) -> list[CertifiedSelection | None]:
    """Prove which weights are zero or nonzero, for each cost of a path with p = 1.

    Parameters
    ----------
    path : Path
        As returned by :func:`mklearn.mkl_path`, with 1 among its norms.
    bank, loss_at
        The arguments of :func:`mklearn.mkl_path`.
    tol, max_iter
        As in :func:`certified_selection`.

    Returns
    -------
    list of CertifiedSelection, one for each cost; None for cells not reached

    Examples
    --------
    >>> import numpy as np
    >>> from mklearn import KernelBank, kernels, mkl_path
    >>> from mklearn.inference import selection_path
    >>> from mklearn.problems import Squared
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(40, 3))
    >>> Y = np.sin(X[:, :1])
    >>> bank = KernelBank(X, kernels.per_feature("rbf")).stored()
    >>> def loss_at(C):
    ...     return Squared(Y, np.full((40, 1), C))
    >>> path = mkl_path(bank, loss_at, [0.1, 1.0], [1], tol=1e-8)
    >>> [found.states[0] for found in selection_path(path, bank, loss_at)]
    ['not zero', 'not zero']
    """
    sets = [weight_set(norm) for norm in path.norms]
    rows = [i for i, one in enumerate(sets) if one.sparse]
    if not rows:
        raise ValueError(f"The path has no norm=1 among its norms {path.norms}.")
    found: list[CertifiedSelection | None] = []
    for C, solution in zip(path.Cs, path.solutions[rows[0]], strict=True):
        if solution is None:
            found.append(None)
            continue
        problem = MKLProblem(bank, loss_at(float(C)), sets[rows[0]])
        found.append(selection_of(problem, solution, tol=tol, max_iter=max_iter))
    return found


def _most(problem: MKLProblem, certificate: Certificate) -> FloatArray:
    """Return upper bounds on all optimal weights, using norms of the kernels."""
    bank = problem.bank
    n, _, M = bank.shape
    largest = np.empty(M)
    for m in range(M):
        K = bank.gram(m)
        # both norms are upper bounds on the largest eigenvalue
        sizes = np.linalg.norm(K), np.abs(K).sum(axis=0).max()
        largest[m] = min(sizes) * (1.0 + 2 * n * UNIT)
    A = certificate.dual
    rounding = bank.rounding(int(np.count_nonzero(A.any(axis=1))))
    q = bank.quad(A)
    off = rounding * ((np.abs(A).T @ problem.sizes) ** 2).sum(axis=0)
    tight = problem.weight_bounds(A, certificate.upper, q, q + off, largest)
    return np.minimum(tight, certificate.weight_bounds)


def _without(
    problem: MKLProblem,
    solution: Solution,
    m: int,
    certificate: Certificate,
    tol: float,
    max_iter: int,
) -> float:
    """Return a lower bound on the optimum without a kernel, as high as necessary."""
    kept = [k for k in range(problem.bank.shape[2]) if k != m]
    upper = certificate.upper
    if not kept:  # without kernels, only the dual term remains
        value = problem.loss.below(problem.loss.repair(certificate.dual))
        return value * (1.0 - FEW * np.sign(value))
    part = replace(problem, bank=problem.bank.select(kept))
    theta = solution.theta[kept]
    total = float(theta.sum())
    start = Iterate(
        theta / total if total > 0 else part.center(), solution.A
    )  # likely close to the optimal weights

    def decided(history: Any) -> bool:
        """Return whether the bound is high enough, or cannot become so."""
        return bool(
            history.lower[-1] > upper * (1 + 1e-12) or history.upper[-1] < upper
        )

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = solve(part, tol=tol, max_iter=max_iter, callback=decided, start=start)
    return found.lower
