"""Support vector machines that learn their kernel."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mklearn.estimators._base import BaseKernelClassifier, Training
from mklearn.problems import Hinge, LpBall, MKLProblem
from mklearn.solvers import Solution, solve


class MKLClassifier(BaseKernelClassifier):
    """Support vector classifier on a learned combination of kernels (ℓp-norm MKL).

    Solves, to a certified duality gap,

        min  C sum_i max(0, 1 - y_i f(x_i)) + ½ sum_m |w_m|^2 / theta_m
        s.t. theta >= 0, |theta|_p <= 1,    f(x) = sum_m <w_m, phi_m(x)> + b

    over ``w``, ``b`` and the kernel weights ``theta`` together (Kloft et al. 2011).

    Parameters
    ----------
    kernels : kernel, name, callable, list of these, "auto" or "precomputed"
        What to combine. "auto" builds a bank from X: a linear kernel and five RBF
        widths on standardised columns for each view. "precomputed" takes Gram matrices
        of shape (n, n, n_kernels), kernels last, or a :class:`KernelBank`, as X.
    C : float
        Cost of errors.
    norm : float
        The p of the norm on the weights, from 1 (sparse) to ``inf`` (plain sum).
    loss : {"hinge"}
    normalize : {None, "center", "trace", "multiplicative", "spherical"}
        How kernels are made comparable, with the statistics of the training samples.
        None takes them exactly as given.
    weights : {"shared", "per-class"}
        With more than two classes (one against the rest): one set of kernel weights
        for all classes, or one for each.
    solver : str or Solver
        "auto", "alternating", "cutting_plane" (norm=1), or an instance.
    class_weight : dict, "balanced" or None
        Factors of C by class.
    psd : {"check", "clip", "ignore"}
        What to do about precomputed or callable kernels that are not positive
        semidefinite: raise an error, remove the negative part, or nothing.
    tol : float
        Relative duality gap to reach.
    max_iter : int
        Limit on the solver's iterations.
    time_limit : float, optional
        Limit in seconds for each problem solved.
    memory_limit : int, optional
        Bytes that kernels may take; half of what is free by default.
    callback : callable, optional
        Called with the history after each iteration; a true answer stops.
    verbose : int
        1 for a progress bar, 2 for a line for each iteration.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
    kernel_names_ : tuple of str
    kernels_ : tuple
        The kernels with all parameters as numbers (None for precomputed ones).
    kernel_weights_ : array of shape (n_kernels,) or (n_classes, n_kernels)
        The ``theta`` above, on the normalised kernels.
    kernel_contributions_ : array of the same shape
        Scale-free shares ``theta_m |w_m / theta_m|^2``, each row sums to one.
    support_ : array
        Rows of X that are support vectors.
    dual_coef_ : array of shape (1 or n_classes, n_support)
    intercept_ : array of shape (1 or n_classes,)
    duality_gap_ : float
        The relative gap that certifies the solution (the largest over problems).
    n_iter_ : int
    solution_ : Solution, or list of them with weights per class

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from mklearn import MKLClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = MKLClassifier(norm=1).fit(X, y)
    >>> bool(model.score(X, y) > 0.95), bool(model.duality_gap_ <= 1e-3)
    (True, True)
    """

    def __init__(
        self,
        kernels: Any = "auto",
        *,
        C: float = 1.0,
        norm: float = 2,
        loss: str = "hinge",
        normalize: str | None = "multiplicative",
        weights: str = "shared",
        solver: Any = "auto",
        class_weight: Any = None,
        psd: str = "check",
        tol: float = 1e-3,
        max_iter: int = 1000,
        time_limit: float | None = None,
        memory_limit: int | None = None,
        callback: Any = None,
        verbose: int = 0,
    ) -> None:
        self.kernels = kernels
        self.C = C
        self.norm = norm
        self.loss = loss
        self.normalize = normalize
        self.weights = weights
        self.solver = solver
        self.class_weight = class_weight
        self.psd = psd
        self.tol = tol
        self.max_iter = max_iter
        self.time_limit = time_limit
        self.memory_limit = memory_limit
        self.callback = callback
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> MKLClassifier:
        """Learn kernel weights and classifier.

        Parameters
        ----------
        X : array, sparse matrix, DataFrame, MultiView; Grams if precomputed
        y : array of shape (n_samples,)
            Class labels, numbers or strings.
        sample_weight : array of shape (n_samples,), optional
            Factors of C; weight 2 equals the sample given twice, weight 0 its absence.
        """
        self._check_parameters()
        training = self._training(X, y, sample_weight)
        cost = self._costs(training, self.C)
        Y = one_vs_rest(training.labels, len(self.classes_))
        if self.weights == "shared" or Y.shape[1] == 1:
            problem, solution = self._solve(training, Y, cost)
            self.solution_: Solution | list[Solution] = solution
            self._keep(training, solution.theta, solution.A, solution.bias)
            self.kernel_contributions_ = problem.contributions(
                solution.theta, solution.A
            )
            self.duality_gap_, self.n_iter_ = solution.gap, solution.n_iter
            return self
        solved = [self._solve(training, y[:, None], cost) for y in Y.T]
        self.solution_ = [solution for _, solution in solved]
        self._keep(
            training,
            np.stack([s.theta for s in self.solution_]),
            np.column_stack([s.A for s in self.solution_]),
            np.concatenate([s.bias for s in self.solution_]),
        )
        self.kernel_contributions_ = np.stack(
            [problem.contributions(s.theta, s.A) for problem, s in solved]
        )
        self.duality_gap_ = max(s.gap for s in self.solution_)
        self.n_iter_ = max(s.n_iter for s in self.solution_)
        return self

    def _solve(
        self, training: Training, Y: NDArray[Any], cost: NDArray[Any]
    ) -> tuple[MKLProblem, Solution]:
        loss = Hinge(Y, np.repeat(cost[:, None], Y.shape[1], axis=1))
        problem = MKLProblem(training.bank, loss, LpBall(float(self.norm)))
        solution = solve(
            problem,
            self.solver,
            tol=self.tol,
            max_iter=self.max_iter,
            time_limit=self.time_limit,
            callback=self.callback,
            verbose=self.verbose,
        )
        return problem, solution

    def _check_parameters(self) -> None:
        if self.loss != "hinge":
            raise ValueError(f"loss must be 'hinge', got {self.loss!r}.")
        if self.weights not in ("shared", "per-class"):
            raise ValueError(
                f"weights must be 'shared' or 'per-class', got {self.weights!r}."
            )
        if not isinstance(self.norm, Real):
            raise ValueError(f"norm must be a number p >= 1 or inf, got {self.norm!r}.")
        if not self.tol > 0:
            raise ValueError(f"tol must be positive, got {self.tol!r}.")
        if not self.max_iter >= 1:
            raise ValueError(f"max_iter must be at least 1, got {self.max_iter!r}.")
        if self.time_limit is not None and not self.time_limit > 0:
            raise ValueError(f"time_limit must be positive, got {self.time_limit!r}.")


def one_vs_rest(labels: NDArray[np.intp], k: int) -> NDArray[np.float64]:
    """Return targets of -1 and 1: one column for two classes, else one for each."""
    columns = np.arange(1, 2) if k == 2 else np.arange(k)
    return np.where(labels[:, None] == columns[None, :], 1.0, -1.0)
