"""The search for C and the norm by warm-started paths on folds."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import check_scoring

from mklearn.data.threads import one_blas_thread
from mklearn.estimators._base import BaseMKL
from mklearn.estimators._folds import (
    Fold,
    Folds,
    Part,
    SearchMixin,
    best_cell,
    error_over_folds,
    stop_on_ctrl_c,
)
from mklearn.estimators._predictor import KnownScores
from mklearn.estimators._training import GramTraining
from mklearn.kernels.dense import DenseGrams
from mklearn.kernels.families import width_ranges
from mklearn.problems import LpBall, TwoLevel
from mklearn.problems.targets import FewerColumns
from mklearn.problems.weights import WeightSet, for_kernels, weight_set
from mklearn.solvers import Iterate, Path, Solution, mkl_path
from mklearn.solvers.path import check_costs, rough_path, scaled

FloatArray = NDArray[np.float64]

SLACK = 10.0  # gaps on folds, as multiples of the tolerance of the last fit
_SINGLE = 1e-4  # tolerances that single precision is good enough for on folds
_BATCH = 2**26  # bytes of products with test kernels that are held at a time
_HELD = 64  # sums, of all choices and costs, whose dual variables are held


@dataclass(frozen=True)
class _Scored:
    """Results of one fold."""

    path: Path  # without solutions
    scores: FloatArray  # (P, K), NaN for cells that were not reached
    A: tuple[FloatArray | None, ...]  # (K, n_members, T), or of fewer columns, or none
    fewer: FewerColumns | None = None

    def dual(self, i: int, k: int) -> FloatArray | float:
        """Return the dual variables of a cell, shape (n_members, T); 0 if not held."""
        A = self.A[i]
        if A is None:
            return 0.0
        return A[k] if self.fewer is None else self.fewer.spread(A[k])

    def with_sums(self, sums: _Scored, norms: tuple[Any, ...]) -> _Scored:
        """Return these results with those of the sum for all infinite norms."""
        if len(self.scores) == len(norms):
            return self
        plain = np.isinf(exponents(norms))
        order = np.where(plain, len(self.scores), np.cumsum(~plain) - 1)

        def rows(mine: FloatArray, other: FloatArray) -> FloatArray:
            return np.concatenate([mine, other])[order]

        mine, other = self.path, sums.path
        path = replace(
            mine,
            norms=norms,
            theta=rows(mine.theta, other.theta),
            objective=rows(mine.objective, other.objective),
            lower=rows(mine.lower, other.lower),
            gap=rows(mine.gap, other.gap),
            n_iter=rows(mine.n_iter, other.n_iter),
            seconds=rows(mine.seconds, other.seconds),
        )
        A = (*self.A, *sums.A)
        scores = rows(self.scores, sums.scores)
        return _Scored(path, scores, tuple(A[i] for i in order), self.fewer)


@dataclass(frozen=True)
class _Ready:
    """A fold whose kernels are normalised and whose targets are encoded."""

    training: GramTraining
    kernels: Any  # between the samples to learn from: a bank, or dense Grams
    known: Any  # between the samples tested and those
    shift: Any  # what was subtracted from the targets
    fewer: FewerColumns | None
    score: Callable[[FloatArray], float]
    new: FloatArray | None  # covariates of the samples tested
    place: NDArray[np.intp]  # of each row tested, its sample
    dense: bool  # whether the kernels are dense Grams


class PathSearch(SearchMixin, BaseMKL):
    """Cross-validation over costs and norms; a mixin before the plain estimator.

    Subclasses have the parameters ``Cs``, ``norms``, ``cv``, ``scoring``, ``rule``,
    ``select`` and ``n_jobs`` besides those of the plain estimator but ``C`` and
    ``norm``, and say in ``_plain`` what one cell is, and in ``_cell`` what it knows on
    folds.
    """

    C_: Any
    norm_: Any
    best_index_: Any

    @one_blas_thread
    def fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, groups: Any = None
    ) -> Any:
        """Choose C and the norm by cross-validation, then fit on all samples.

        Parameters
        ----------
        X : array, sparse matrix, DataFrame, MultiView, or Gram matrices
        y : array
        sample_weight : array of shape (n_samples,), optional
            Multiplied by C, and used in the scores as well. A weight of 2 is equivalent
            to giving the sample twice, a weight of 0 to leaving it out.
        groups : array of shape (n_samples,), optional
            Group labels, such as subjects, passed on to ``cv.split``. With an integer
            ``cv`` all samples of a group fall into the same fold. If there are fewer
            groups than folds, or fewer that contain some class, there are only as many
            folds as these groups.
        """
        self._check_parameters()
        self._warn_of_subjects(X, y, groups)
        training = self._grams(X, y, sample_weight)
        self._check_beside(self._encoded(training)[0])
        folds = self._folds(training, y, sample_weight, groups, together=True)
        return self._search(training, folds, sample_weight is not None)

    def _search(self, training: GramTraining, folds: Folds, weighted: bool) -> Any:
        """Choose one cell for all targets, and learn from all samples."""
        self._store(*self._chosen_by(training, folds, weighted))
        return self

    def _chosen_by(
        self, training: GramTraining, folds: Folds, weighted: bool
    ) -> tuple[Any, ...]:
        """Return training, problem, solution and shift of the cell that is best."""
        whole = training
        kept, sums = self._kept(folds, weighted)
        if len(kept) < len(whole.names):
            training = whole.among(kept)
            folds = replace(folds, training=training)
        norms = tuple(p if isinstance(p, TwoLevel) else float(p) for p in self.norms)
        orders = exponents(norms)
        rest = norms
        if sums is not None:
            rest = tuple(p for p, q in zip(norms, orders, strict=True) if q < np.inf)
        found: list[Any] = sums or []
        if rest:
            # the Grams of a fold do not know the views of their kernels
            sets = tuple(
                for_kernels(weight_set(p), training.kernels, training.names)
                for p in rest
            )
            job = partial(self._run_fold, norms=sets, weighted=weighted)
            (found,) = folds.run(job, self.n_jobs)
        if rest and sums is not None:
            pairs = zip(found, sums, strict=True)
            found = [one.with_sums(plain, norms) for one, plain in pairs]
        self.Cs_, self.norms_ = found[0].path.Cs, np.array(norms)
        self.path_ = tuple(
            replace(
                one.path,
                norms=norms,
                theta=_spread(one.path.theta, kept, len(whole.names)),
            )
            for one in found
        )
        self.scores_ = np.stack([one.scores for one in found], axis=2)
        self.mean_scores_ = self.scores_.mean(axis=2)
        self._warn_paths()
        i, k = choose_cell(self.scores_, self.Cs_, orders, self.rule)
        self.best_index_ = (i, k)
        self.C_, self.norm_ = float(self.Cs_[k]), norms[i]
        sizes = [(len(fold.members), len(fold.place)) for fold in folds.folds]
        self.gain_over_sum_ = gain_over_sum(self.scores_, orders, (i, k), sizes)
        # folds share most of their samples: their mean is close to the last solution
        theta = np.mean([one.path.theta[i, k] for one in found], axis=0)
        training, shift = self._encoded(training)
        weights = self._weights()
        problem = training.problem(self._formula(), self.C_, weights)
        A, count = np.zeros(training.Y.shape), np.zeros((len(training.Y), 1))
        for fold, one in zip(folds.folds, found, strict=True):
            A[fold.members] += one.dual(i, k)
            count[fold.members] += 1
        known = for_kernels(weights, training.kernels, training.names)
        start = Iterate(
            scaled(theta, known), problem.loss.repair(A / np.maximum(count, 1))
        )
        problem, solution = self._solve_shared(training, self.C_, start)
        if len(kept) < len(whole.names):
            # kernels that were left out are there, with weight zero
            training, _ = self._encoded(whole)
            problem = training.problem(self._formula(), self.C_, weights)
            theta = _spread(solution.theta, kept, len(whole.names))
            solution = replace(solution, theta=theta, quads=None)
        return training, [problem], [solution], shift

    def _kept(
        self, folds: Folds, weighted: bool
    ) -> tuple[NDArray[np.intp], list[_Scored] | None]:
        """Return the kernels to learn from, chosen by their plain sums on the folds.

        The sum is the cheapest model of a choice. Among equals the choice with the
        fewest narrow kernels wins, or the first of single ones. What each fold found
        for the sum of these kernels comes along; None if nothing was compared.
        """
        training = folds.training
        everything = np.arange(len(training.names))
        self.rejected_: tuple[str, ...] = ()
        self.select_scores_: FloatArray | None = None
        choices: list[NDArray[np.intp]] = []
        if any(getattr(p, "groups", None) is not None for p in self.norms):
            return everything, None  # they have an entry for each kernel
        if self.select == "widths":
            choices = width_ranges(training.kernels)[::-1]
        elif self.select == "one":
            choices = [np.array([m]) for m in everything]
        if len(choices) < 2:
            return everything, None
        job = partial(self._run_sums, choices=choices, weighted=weighted)
        (found,) = folds.run(job, self.n_jobs)
        scores = np.stack(
            [np.concatenate([one.scores for one in row]) for row in found], axis=2
        )
        if np.isnan(scores).any(axis=2).all():
            return everything, None  # out of time, which the paths will say
        number, _ = best_cell(scores, lambda i, k: (i, k))
        kept = choices[number]
        self.select_scores_ = scores[::-1] if self.select == "widths" else scores
        out = np.setdiff1d(everything, kept)
        self.rejected_ = tuple(training.names[m] for m in out)
        return kept, [row[number] for row in found]

    def _run_sums(
        self, part: Part, choices: Sequence[NDArray[np.intp]], weighted: bool
    ) -> list[_Scored]:
        """Return the results of the sum of each choice of kernels on a fold."""
        ready = self._ready(part, weighted)
        held = len(choices) * len(self._costs_tried()) <= _HELD
        found = []
        for kernels in choices:
            one = self._followed(ready, (np.inf,), kernels)
            found.append(one if held else replace(one, A=(None,)))
        return found

    def _solve_shared(
        self, training: Any, C: float, start: Iterate | None = None
    ) -> tuple[Any, Solution]:
        """Solve the last problem."""
        problem = training.problem(self._formula(), C, self._weights())
        return problem, self._solve(training, problem, start)

    def _fewer(self, training: Any) -> FewerColumns | None:
        """Return fewer columns that stand for all targets, None if there are none."""
        return None

    def _weights(self) -> WeightSet:
        return weight_set(self.norm_)

    def _run_fold(self, part: Part, norms: tuple[Any, ...], weighted: bool) -> _Scored:
        """Follow the path on the fold's samples and score every cell on the others."""
        return self._followed(self._ready(part, weighted), norms)

    def _ready(self, part: Part, weighted: bool) -> _Ready:
        """Return the kernels of a fold, normalised, its targets and its scorer."""
        with warnings.catch_warnings():
            # a kernel that is constant on a fold has no part there
            warnings.simplefilter("ignore", UserWarning)
            training, cross = part.normalised(self.normalize)
        training, shift = self._encoded(training)
        fewer = self._fewer(training)
        if fewer is not None:
            training = replace(training, Y=fewer.columns)
        kernels: Any = training.bank
        known: Any = cross
        if part.dense:
            rough = np.float32 if self.tol >= _SINGLE else np.float64
            kernels = DenseGrams.of(training.bank, rough)
            known = DenseGrams.of(cross, rough)
        score = self._scorer(part.fold, weighted)
        new = part.design_tested()
        return _Ready(
            training, kernels, known, shift, fewer, score, new, part.fold.place,
            part.dense,
        )  # fmt: skip

    def _followed(
        self,
        ready: _Ready,
        norms: tuple[Any, ...],
        among: NDArray[np.intp] | None = None,
    ) -> _Scored:
        """Follow a path of norms on a fold, with some of the kernels."""
        training, fewer = ready.training, ready.fewer
        kernels, known = ready.kernels, ready.known
        if among is not None:
            kernels, known = kernels.select(among), known.select(among)
        one, formula = LpBall(1.0), self._formula()
        follow: Any = rough_path if ready.dense else mkl_path
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # judged together
            path = follow(
                kernels,
                lambda C: training.problem(formula, C, one).loss,
                self._costs_tried(),
                norms,
                solver=self.solver,
                tol=SLACK * self.tol,
                max_iter=self.max_iter,
                time_limit=self.time_limit,
                callback=self.callback,
                verbose=self.verbose,
            )
        stop_on_ctrl_c(s for row in path.solutions for s in row if s is not None)
        P, K, _ = path.shape
        scores = np.full((P, K), np.nan)
        A = np.full((P, K, *training.Y.shape), np.nan)
        for i in range(P):
            row = [s for s in path.solutions[i] if s is not None]
            found = _decisions(known, row, ready.dense)
            for k, (s, F) in enumerate(zip(row, found, strict=True)):
                beside = s.bias if training.design is None else ready.new @ s.bias
                values = F + beside
                values = values if fewer is None else fewer.spread(values)
                scores[i, k] = ready.score((values + ready.shift)[ready.place])
                A[i, k] = s.A
        # the solutions would take as much memory as the samples for each cell
        return _Scored(replace(path, solutions=()), scores, tuple(A), fewer)

    def _scorer(self, fold: Fold, weighted: bool) -> Callable[[FloatArray], float]:
        """Return a function that scores decisions on the rows of a fold."""
        cell = self._cell()
        scorer = check_scoring(cell, scoring=self.scoring)
        weight = {"sample_weight": fold.row_weight} if weighted else {}
        numbers = np.arange(len(fold.place))[:, None]

        def score(values: FloatArray) -> float:
            cell.predictor_ = KnownScores.of(values)
            return float(scorer(cell, numbers, fold.truth, **weight))

        return score

    # --- checks -----------------------------------------------------------------------

    def _costs_tried(self) -> FloatArray:
        if isinstance(self.Cs, Integral) and not isinstance(self.Cs, bool):
            if int(self.Cs) < 1:
                raise ValueError(f"Cs must have at least one value, got {self.Cs!r}.")
            return np.logspace(-3, 3, int(self.Cs)) if int(self.Cs) > 1 else np.ones(1)
        return check_costs(self.Cs)

    def _check_parameters(self) -> None:
        self._costs_tried()
        norms = self.norms
        if not np.ndim(norms) == 1 or not len(norms):
            raise ValueError(f"norms must be a list of numbers, got {norms!r}.")
        for p in norms:
            if isinstance(p, TwoLevel):
                continue
            if not isinstance(p, Real):
                raise ValueError(
                    "norms must be numbers from 1 to inf, or TwoLevel norms, got "
                    f"{p!r}."
                )
            LpBall(float(p))
        if self.select not in ("widths", "one", None):
            raise ValueError(
                f"select must be 'widths', 'one' or None, got {self.select!r}."
            )
        if self.rule not in ("best", "1se", "sum"):
            raise ValueError(f"rule must be 'best', '1se' or 'sum', got {self.rule!r}.")
        self._plain()._check_parameters()

    def _warn_paths(self) -> None:
        gaps = np.stack([path.gap for path in self.path_])
        tol = SLACK * self.tol
        missing, loose = int(np.isnan(gaps).sum()), int((gaps > tol).sum())
        if missing or loose:
            warnings.warn(
                f"Of {gaps.size} problems on folds, {missing} were not started and "
                f"{loose} stopped at gaps above {tol:.2g}; raise time_limit or "
                "max_iter, or try a smaller grid.",
                ConvergenceWarning,
                stacklevel=3,
            )


def exponents(norms: Sequence[Any]) -> FloatArray:
    """Return how plain norms are: p, infinite for the plain sum only.

    Parameters
    ----------
    norms : sequence of float or TwoLevel
    """
    sets = [weight_set(p) for p in norms]
    most = np.finfo(np.float64).max
    return np.array([np.inf if s.fixed else min(s.exponent, most) for s in sets])


def choose_cell(
    scores: FloatArray, Cs: FloatArray, norms: FloatArray, rule: str = "best"
) -> tuple[int, int]:
    """Return the cell that a rule chooses, as indices of norm and cost.

    Parameters
    ----------
    scores : array of shape (P, K, n_folds)
        Cells with NaN in any fold do not take part.
    Cs : array of shape (K,)
    norms : array of shape (P,)
        As :func:`exponents` returns them.
    rule : {"best", "1se", "sum"}
        The best mean score; or any that is at most one standard error of the best one
        below it; or the best plain sum, ``p = inf``, unless another cell is better on
        the same folds by more than one standard error of the difference. Among these,
        and among ties, the smallest C wins, then the largest p.
    """

    def cost(i: int, k: int) -> Any:
        return Cs[k], -norms[i], i

    sums = np.isinf(norms)
    plain = np.where(sums[:, None, None], scores, np.nan)
    if rule == "sum" and np.isfinite(plain).all(axis=2).any():
        i, k = best_cell(scores, cost)
        j, at = best_cell(plain, cost)
        gains = scores[i, k] - scores[j, at]
        error = gains.std(ddof=1) / np.sqrt(len(gains)) if len(gains) > 1 else 0.0
        return (i, k) if gains.mean() > error else (j, at)
    i, k = best_cell(scores, cost, rule)
    return i, k


def gain_over_sum(
    scores: FloatArray,
    norms: FloatArray,
    chosen: tuple[int, int],
    sizes: Sequence[tuple[int, int]],
) -> tuple[float, float] | None:
    """Return by how much a cell scores better than the best plain sum, and its error.

    Parameters
    ----------
    scores : array of shape (P, K, n_folds)
    norms : array of shape (P,)
    chosen : tuple of int
        The indices of norm and cost.
    sizes : sequence of (int, int)
        How many samples each fold learns from, and is tested on.

    Returns
    -------
    (float, float) or None
        None if the sum, ``p = inf``, was not tried to the end, or with one fold.
    """
    sums = scores[np.isinf(norms)]
    sums = sums[np.isfinite(sums).all(axis=2)]
    if not len(sums) or sums.shape[1] < 2:
        return None
    best = sums[sums.mean(axis=1).argmax()]
    gains = scores[chosen] - best
    return float(gains.mean()), float(error_over_folds(gains, sizes))


def _spread(theta: FloatArray, kept: NDArray[np.intp], M: int) -> FloatArray:
    """Return weights of all M kernels, zero for those that were not kept."""
    out = np.zeros((*theta.shape[:-1], M))
    out[..., kept] = theta
    return out


def _decisions(
    cross: Any, solutions: list[Solution], dense: bool
) -> Iterator[FloatArray]:
    """Yield ``sum_m theta_m K_m A`` of each solution, shape (n_test, T).

    Unless they are dense, kernels are evaluated once for many solutions together.
    """
    if dense:
        yield from (cross.apply(s.theta, s.A) for s in solutions)
        return
    n, _, M = cross.shape
    if not solutions:
        return
    T = solutions[0].A.shape[1]
    many = max(1, _BATCH // (8 * n * M * T))
    for at in range(0, len(solutions), many):
        part = solutions[at : at + many]
        if len(part) == 1:
            yield cross.apply(part[0].theta, part[0].A)
            continue
        theta = np.stack([s.theta for s in part])
        used = np.flatnonzero(theta.any(axis=0))
        products = cross.select(used).multiply(np.hstack([s.A for s in part]))
        products = products.reshape(n, len(part), T, len(used))
        yield from np.einsum("ictm,cm->cit", products, theta[:, used])
