"""Times to an event: the partial likelihood, censored regression, and what they give.

Losses are compared with likelihoods that are written down pair by pair, models with
those of scikit-survival and statsmodels where these are installed.
"""

import itertools
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import roc_auc_score
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    StratifiedKFold,
    cross_val_score,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from mklearn import (
    KernelBank,
    LpBall,
    MKLCox,
    MKLCoxCV,
    MKLProblem,
    MKLRegressor,
    MKLSurvivalSVM,
    MultiView,
    kernels,
    mkl_path,
    solve,
)
from mklearn.blocks import ArrayBlocks
from mklearn.estimators.event_times import baseline_hazard
from mklearn.interpretation import decision_parts, kernel_importance, score_by_view
from mklearn.persistence import ModelFileError, load, save
from mklearn.problems.survival import CensoredEpsilon, CensoredSquared, Cox
from mklearn.solvers.inner import inner_solver
from mklearn.survival import (
    StepFunction,
    concordance_index,
    dynamic_auc,
    kaplan_meier,
)

ZERO = np.zeros(1)
RNG = np.random.default_rng(7)
N = 90
X = RNG.normal(size=(N, 5))
TIME = np.ceil(4 * RNG.exponential(np.exp(-X[:, 0] + 0.5 * X[:, 1])) * 10) / 10
EVENT = RNG.random(N) < 0.65
Y = np.column_stack([TIME, EVENT])
STRATA = np.array(["a", "b", "c"])[RNG.integers(0, 3, N)]


@parametrize_with_checks(
    [
        MKLCox(),
        MKLCox(ties="efron", norm=1),
        MKLCox(approximation="nystroem", rank=20),
        MKLCoxCV(["linear", "rbf"], Cs=2, norms=[1, 2], cv=2),
        MKLSurvivalSVM(),
        MKLSurvivalSVM(loss="epsilon_insensitive"),
        MKLSurvivalSVM(approximation="nystroem", rank=20),
    ]
)
def test_scikit_learn_conventions(estimator, check):
    check(estimator)


# --- the partial likelihood -----------------------------------------------------------


def pair_by_pair(loss, f):
    """Return the loss by its definition, with a sum over each risk set."""
    time, event, w = loss.time, loss.event, loss.weight
    value = 0.0
    for stratum in np.unique(loss.stratum):
        here = loss.stratum == stratum
        for t in np.unique(time[here & event]):
            dying = here & event & (time == t)
            total = (w * np.exp(f))[here & (time >= t)].sum()
            own = (w * np.exp(f))[dying].sum()
            if loss.ties == "breslow":
                value += w[dying].sum() * np.log(total)
            else:
                d = int(w[dying].sum())
                value += sum(np.log(total - i / d * own) for i in range(d))
            value -= (w * f)[dying].sum()
    return loss.C * value


def some_losses():
    """Return losses with and without ties, weights and strata."""
    return list(_some_losses())


def _some_losses():
    rng = np.random.default_rng(3)
    for ties, tied, strata in itertools.product(
        ("breslow", "efron"), (False, True), (1, 3)
    ):
        n = 16
        time = rng.integers(1, 6, n) if tied else rng.random(n)
        yield Cox(
            time.astype(float),
            rng.random(n) < 0.6,
            rng.integers(0, strata, n).astype(float),
            rng.integers(1, 4, n).astype(float),
            1.7,
            ties,
        )


@pytest.mark.parametrize("loss", some_losses(), ids=repr)
def test_value_and_derivatives_are_those_of_the_definition(loss):
    n = len(loss.time)
    f = np.random.default_rng(1).normal(size=(n, 1))
    assert_allclose(loss.primal(f, ZERO), pair_by_pair(loss, f[:, 0]), rtol=1e-12)
    h, unit = 1e-5, np.eye(n)
    ahead, behind = (
        [pair_by_pair(loss, f[:, 0] + s * h * e) for e in unit] for s in (1, -1)
    )
    slope = (np.array(behind) - np.array(ahead)) / (2 * h)
    # central differences err by h^2 times a third derivative, and by rounding over h
    assert_allclose(loss.slope(f)[:, 0], slope, atol=1e-7)
    W = loss.bent(f, unit)
    ahead, behind = (
        np.column_stack([loss.slope(f + s * h * e[:, None])[:, 0] for e in unit])
        for s in (1, -1)
    )
    assert_allclose(W, (behind - ahead) / (2 * h), atol=1e-7)
    assert np.linalg.eigvalsh(W).max() <= 1.0 / loss.concavity * (1 + 1e-12)


@pytest.mark.parametrize("loss", some_losses(), ids=repr)
def test_newton_steps_from_factors_of_other_scores(loss):
    n, rng = len(loss.time), np.random.default_rng(3)
    Z = rng.normal(size=(n, 4))
    K = Z @ Z.T + np.eye(n)
    problem = MKLProblem(KernelBank.from_grams(K[:, :, None]), loss, LpBall(1))
    solver = inner_solver(problem, None)
    solver.K, f = K, rng.normal(size=(n, 1))
    first = solver._step(f, ZERO, np.zeros((n, 1)))  # which keeps its factors
    near = f + 0.1 * rng.normal(size=(n, 1))
    found = solver._step(near, ZERO, first)
    right = loss.slope(near) + loss.bent(near, near)
    exact = np.linalg.solve(np.eye(n) + loss.bent(near, K), right)
    # in the norm of K, as far as a step is solved
    size = (first - exact).T @ K @ (first - exact)
    assert (found - exact).T @ K @ (found - exact) <= 0.1 * size


@pytest.mark.parametrize("loss", some_losses(), ids=repr)
def test_the_dual_term_is_the_conjugate(loss):
    n, rng = len(loss.time), np.random.default_rng(2)
    for scale in (0.1, 2.0, 20.0):
        f = scale * rng.normal(size=(n, 1))
        A = loss.slope(f)
        # Fenchel's equality, at the dual point that scores imply
        equal = loss.primal(f, ZERO) + float(np.sum(A * f))
        size = np.abs(loss.primal(f, ZERO)) + np.abs(A * f).sum()
        assert abs(loss.dual(A) - equal) <= 1e-11 * size
        assert_allclose(loss.repair(A), A, atol=1e-10)
        for _ in range(5):
            B = loss.repair(A + rng.normal(size=(n, 1)))
            g = rng.normal(size=(n, 1))
            least = loss.primal(g, ZERO) + float(np.sum(B * g))
            assert loss.dual(B) <= least + 1e-9
    found = minimize(
        lambda g: loss.primal(g[:, None], ZERO) + B[:, 0] @ g,
        np.zeros(n),
        jac=lambda g: (B - loss.slope(g[:, None]))[:, 0],
        options={"gtol": 1e-8, "maxiter": 10_000},
    )
    # the point may be at the border, where no scores attain it: the minimum is an
    # infimum then, and what is reached is above it
    assert loss.dual(B) <= found.fun + 1e-9 <= loss.dual(B) + 0.05


@pytest.mark.parametrize("loss", some_losses(), ids=repr)
def test_bounds_hold_in_extended_precision(loss):
    n, rng = len(loss.time), np.random.default_rng(4)
    LD = np.longdouble
    for scale in (0.1, 5.0, 50.0):
        f = scale * rng.normal(size=(n, 1))
        error = 1e-9 * np.abs(f)
        exact = pair_by_pair(loss, (f[:, 0] + error[:, 0] * rng.choice([-1, 1], n)))
        assert loss.above(f, ZERO, error) >= exact - 1e-12 * abs(exact)
        A = loss.repair(loss.slope(f))
        below = loss.below(A)
        assert below <= loss.dual(A)
        # the dual is at most what any scores give, however many digits are taken
        for g in (f[:, 0], f[:, 0] + 0.1 * rng.normal(size=n)):
            g = g.astype(LD)
            most = pair_by_pair(loss, g) + A[:, 0].astype(LD) @ g
            room = loss.strain(A)[:, 0] @ np.abs(g)
            assert below <= most + room


def test_samples_may_come_in_any_order_and_strata_add_up():
    rng = np.random.default_rng(5)
    f = rng.normal(size=(N, 1))
    _, number = np.unique(STRATA, return_inverse=True)
    whole = Cox(TIME, EVENT, number.astype(float), np.ones(N), 2.0, "efron")
    order = rng.permutation(N)
    mixed = whole.take(order, 1.0)
    assert_allclose(mixed.primal(f[order], ZERO), whole.primal(f, ZERO), rtol=1e-13)
    assert_allclose(mixed.slope(f[order]), whole.slope(f)[order], atol=1e-12)
    A = whole.slope(f)
    assert_allclose(mixed.dual(A[order]), whole.dual(A), rtol=1e-12)
    parts = [np.flatnonzero(number == k) for k in range(3)]
    apart = sum(whole.take(rows, 1.0).primal(f[rows], ZERO) for rows in parts)
    assert_allclose(apart, whole.primal(f, ZERO), rtol=1e-12)


@pytest.mark.parametrize("ties", ["breslow", "efron"])
def test_a_weight_of_two_is_a_sample_that_is_there_twice(ties):
    rng = np.random.default_rng(6)
    w = rng.integers(1, 4, N).astype(float)
    rows = np.repeat(np.arange(N), w.astype(int))
    f = rng.normal(size=(N, 1))
    once = Cox(TIME, EVENT, np.zeros(N), w, 1.3, ties)
    often = Cox(
        TIME[rows], EVENT[rows], np.zeros(len(rows)), np.ones(len(rows)), 1.3, ties
    )
    assert_allclose(once.primal(f, ZERO), often.primal(f[rows], ZERO), rtol=1e-12)
    sums = np.bincount(rows, often.slope(f[rows])[:, 0])
    assert_allclose(once.slope(f)[:, 0], sums, atol=1e-11)


def test_extreme_scores_keep_their_digits():
    # sums of exponentials would overflow, and differences of masses cancel
    f = np.linspace(-900, 900, N)[:, None]
    for ties in ("breslow", "efron"):
        loss = Cox(TIME, EVENT, np.zeros(N), np.ones(N), 1.0, ties)
        assert np.isfinite(loss.primal(f, ZERO))
        A = loss.repair(loss.slope(f))
        assert np.isfinite(A).all() and np.isfinite(loss.dual(A))
        assert loss.below(A) <= loss.above(f, ZERO, np.zeros_like(f)) + np.sum(A * f)


def test_without_comparable_samples_there_is_no_loss():
    loss = Cox(np.arange(3.0), np.zeros(3, bool), np.zeros(3), np.ones(3), 1.0)
    A = np.zeros((3, 1))
    assert loss.primal(A, ZERO) == loss.dual(A) == 0
    assert_array_equal(loss.repair(A + 1.0), A)


# --- censored regression --------------------------------------------------------------


@pytest.mark.parametrize("formula", [CensoredSquared(), CensoredEpsilon(0.3)])
def test_censored_samples_are_charged_for_being_predicted_too_early(formula):
    f = np.linspace(-40, 40, 160_001)
    for y in (0.4 + 0j, 0.4 + 1j):
        point = np.array([y])
        late, early = formula.value(np.array([5.0, -5.0]), np.array([y, y]))
        assert early > 0 and (late == 0) == (y.imag > 0)
        low, high = (float(np.ravel(end)[0]) for end in formula.domain(point))
        for a in np.linspace(max(low, -3.0), min(high, 3.0), 7):
            conjugate = np.min(formula.value(f, np.full(f.shape, y)) + a * f)
            dual = float(formula.dual(np.array([a]), point)[0])
            # the grid misses the minimum by at most half a step
            assert dual <= conjugate + 1e-12 <= dual + 1e-3
        h = 1e-6
        at = np.array([-1.3, 0.2, 2.0])
        ys = np.full(3, y)
        slope = -(formula.value(at + h, ys) - formula.value(at - h, ys)) / (2 * h)
        if not formula.kinks:
            assert_allclose(formula.slope(at, ys), slope, atol=1e-8)


@pytest.mark.parametrize("loss", ["squared", "epsilon_insensitive"])
def test_without_censoring_it_is_regression_of_the_log_time(loss):
    options = {"loss": loss, "norm": 1, "tol": 1e-8, "C": 2.0}
    model = MKLSurvivalSVM(["linear", "rbf"], **options).fit(X, TIME)
    other = MKLRegressor(["linear", "rbf"], **options).fit(X, np.log(TIME))
    # both are within the gap of the optimum, whose curvature is at least that of w
    apart = (2e-8 * 2 * other.solution_.upper) ** 0.5
    assert_allclose(-model.predict(X), other.predict(X), atol=20 * apart)


# --- beside other packages ------------------------------------------------------------


def structured(time, event):
    out = np.empty(len(time), dtype=[("event", bool), ("time", float)])
    out["event"], out["time"] = event, time
    return out


@pytest.mark.parametrize("ties", ["breslow", "efron"])
@pytest.mark.parametrize("alpha", [0.1, 5.0])
def test_one_linear_kernel_is_ridge_cox_regression(ties, alpha):
    peers = pytest.importorskip("sksurv.linear_model", reason="needs scikit-survival")
    y = structured(TIME, EVENT)
    peer = peers.CoxPHSurvivalAnalysis(alpha, ties=ties, tol=1e-15).fit(X, y)
    model = MKLCox("linear", C=1 / alpha, ties=ties, normalize=None, tol=1e-9)
    model.fit(X, y)
    coef = X[model.support_].T @ model.dual_coef_[0]
    assert_allclose(coef, peer.coef_, atol=1e-6)
    assert_allclose(model.predict(X), peer.predict(X), atol=1e-5)
    assert_array_equal(model.unique_times_, peer.unique_times_)
    for name in ("predict_survival_function", "predict_cumulative_hazard_function"):
        ours = getattr(model, name)(X[:9], return_array=True)
        theirs = getattr(peer, name)(X[:9], return_array=True)
        assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)
    assert_allclose(model.score(X, y), peer.score(X, y), atol=1e-12)


@pytest.mark.parametrize("ties", ["breslow", "efron"])
def test_partial_likelihood_is_that_of_statsmodels(ties):
    smf = pytest.importorskip(
        "statsmodels.duration.hazard_regression", reason="needs statsmodels"
    )
    _, number = np.unique(STRATA, return_inverse=True)
    peer = smf.PHReg(TIME, X, EVENT.astype(int), ties=ties, strata=number)
    loss = Cox(TIME, EVENT, number.astype(float), np.ones(N), 1.0, ties)
    for scale in (0.0, 0.3, 1.0):
        beta = scale * np.arange(1.0, 6.0) / 5
        f = (X @ beta)[:, None]
        assert_allclose(loss.primal(f, ZERO), -peer.loglike(beta), rtol=1e-10)
        assert_allclose(X.T @ loss.slope(f)[:, 0], peer.score(beta), atol=1e-8)


def test_one_kernel_and_squared_loss_is_the_kernel_survival_svm():
    peers = pytest.importorskip("sksurv.svm", reason="needs scikit-survival")
    y = structured(TIME, EVENT)
    K = rbf_kernel(X, gamma=0.1)
    peer = peers.FastKernelSurvivalSVM(
        2.0, rank_ratio=0, fit_intercept=True, kernel="precomputed", tol=1e-10,
        max_iter=500,
    )  # fmt: skip
    with warnings.catch_warnings():  # its own, of rounding at the end
        warnings.simplefilter("ignore", ConvergenceWarning)
        peer.fit(K, y)
    model = MKLSurvivalSVM(kernels.RBF(0.1), C=2.0, normalize=None, tol=1e-9)
    model.fit(X, y)
    # it stops where a quasi-Newton method makes no more progress
    assert_allclose(model.predict_time(X), peer.predict(K), rtol=1e-3)
    f = np.log(peer.predict(K))
    a = np.linalg.solve(K, f - peer.intercept_)
    r = np.log(TIME) - f
    r = np.where(EVENT, r, np.maximum(r, 0.0))
    value = r @ r + 0.5 * a @ K @ a
    assert model.solution_.lower <= value <= model.solution_.upper * (1 + 1e-5)


def test_group_lasso_of_explicit_features_is_a_conic_program():
    cp = pytest.importorskip("cvxpy", reason="needs cvxpy")
    C, groups = 0.4, [[0], [1, 2], [3, 4]]
    model = MKLCox(
        [kernels.Linear(columns=g) for g in groups], C=C, norm=1, normalize=None,
        tol=1e-9,
    ).fit(X, Y)  # fmt: skip
    w = cp.Variable(5)
    terms = []
    for t in np.unique(TIME[EVENT]):
        at_risk = X[t <= TIME] @ w
        terms.append(np.sum(EVENT & (t == TIME)) * cp.log_sum_exp(at_risk))
    # with p = 1 the regulariser is half the square of the sum of the norms
    size = sum(cp.norm(w[g]) for g in groups)
    value = C * (sum(terms) - np.sum(X[EVENT], axis=0) @ w) + 0.5 * cp.square(size)
    problem = cp.Problem(cp.Minimize(value))
    problem.solve(solver="CLARABEL")
    assert model.solution_.lower <= problem.value * (1 + 1e-7)
    assert_allclose(model.solution_.upper, problem.value, rtol=1e-7)
    # the objective is strongly convex in the sum of norms: w is known to the root of
    # what both are off
    assert_allclose(model.predict(X), X @ w.value, atol=1e-3)


# --- one problem ----------------------------------------------------------------------

BANK = KernelBank(X, "auto").stored()


def cox(C=1.0, ties="breslow"):
    return Cox(TIME, EVENT, np.zeros(N), np.ones(N), C, ties)


@pytest.mark.parametrize("p", [1.0, 4 / 3, 2.0, np.inf])
@pytest.mark.parametrize("ties", ["breslow", "efron"])
def test_solvers_agree(p, ties):
    problem = MKLProblem(BANK, cox(2.0, ties), LpBall(p))
    names = ["alternating", "newton", "auto"]
    names += ["cutting_plane", "reduced_gradient", "screened"] if p == 1 else []
    found = [solve(problem, name, tol=1e-5) for name in names]
    assert all(one.gap <= 1e-5 for one in found)
    best = min(one.upper for one in found)
    assert max(one.lower for one in found) <= best


def test_solvers_that_cannot_say_so():
    problem = MKLProblem(BANK, cox(), LpBall(2.0))
    for name in ("interleaved", "lbfgs", "conic", "sdp"):
        with pytest.raises(ValueError, match="solver"):
            solve(problem, name)


def test_multilevel_takes_parts_of_the_samples():
    rng = np.random.default_rng(0)
    n = 1600
    Z = rng.normal(size=(n, 3))
    time = rng.exponential(np.exp(-Z[:, 0]))
    model = MKLCox(["linear", "rbf"], norm=1).fit(Z, np.c_[time, rng.random(n) < 0.5])
    assert model.duality_gap_ <= 1e-3


def test_paths():
    path = mkl_path(BANK, lambda C: cox(C, "efron"), [0.1, 1, 10], [1, 2, np.inf])
    assert (path.gap <= 1e-3).all()
    assert (np.diff(path.objective, axis=1) > 0).all()  # the loss costs more


@pytest.mark.parametrize("ties", ["breslow", "efron"])
@pytest.mark.parametrize("strata", [None, STRATA])
def test_features_of_full_rank_give_the_same_model(ties, strata):
    options = {"ties": ties, "norm": 1, "tol": 1e-7}
    specs = [kernels.Linear(columns=[0, 1]), kernels.Linear(columns=[2, 3, 4])]
    exact = MKLCox(specs, **options).fit(X, Y, strata=strata)
    low = MKLCox(specs, approximation="nystroem", rank=5, **options)
    # blocks of 16 rows: strata, and events at one time, lie across their borders
    low.set_params(memory_limit=1).fit(X, Y, strata=strata)
    assert low.duality_gap_ <= 1e-7
    assert_allclose(low.solution_.upper, exact.solution_.upper, rtol=1e-6)
    assert_allclose(low.predict(X), exact.predict(X), atol=1e-2)
    assert_allclose(
        low.baseline_cumulative_hazard_, exact.baseline_cumulative_hazard_, rtol=1e-2
    )


def test_curvature_in_passes_is_that_of_the_loss():
    # by way of the model: with it one step from the solution is enough
    low = MKLCox("rbf", approximation="nystroem", rank=30, tol=1e-9, C=5.0)
    low.fit(X, Y, strata=STRATA)
    assert low.duality_gap_ <= 1e-9 and low.n_iter_ <= 12


@pytest.mark.parametrize("loss", ["squared", "epsilon_insensitive"])
def test_censored_regression_in_passes(loss):
    options = {"loss": loss, "norm": 1, "tol": 1e-5}
    specs = [kernels.Linear(columns=[0, 1]), kernels.Linear(columns=[2, 3, 4])]
    exact = MKLSurvivalSVM(specs, **options).fit(X, Y)
    low = MKLSurvivalSVM(specs, approximation="nystroem", rank=5, **options).fit(X, Y)
    assert low.duality_gap_ <= 1e-5
    assert_allclose(low.solution_.upper, exact.solution_.upper, rtol=1e-4)
    blocks = MKLSurvivalSVM(specs, approximation="nystroem", rank=5, **options)
    blocks.fit(ArrayBlocks(X, Y, rows=20))
    assert_allclose(blocks.predict(X), low.predict(X), atol=2e-2)


def test_blocks_have_no_risk_sets():
    model = MKLCox(approximation="nystroem", rank=5)
    with pytest.raises(ValueError, match="order of their times"):
        model.fit(ArrayBlocks(X, Y))


def test_missing_views():
    absent = np.arange(N) % 3 == 0
    views = MultiView({"a": X[:, :2], "b": np.where(absent[:, None], np.nan, X[:, 2:])})
    for model in (MKLCox(), MKLSurvivalSVM()):
        model.set_params(kernels=[kernels.RBF(view="a"), kernels.RBF(view="b")])
        assert model.fit(views, Y).duality_gap_ <= 1e-3
        assert np.isfinite(model.predict(views)).all()


def test_weights_are_repetitions():
    w = np.random.default_rng(0).integers(0, 4, N)
    for model in (
        MKLCox(tol=1e-7), MKLCox(ties="efron", tol=1e-7), MKLSurvivalSVM(tol=1e-7)
    ):  # fmt: skip
        one = clone(model).fit(X, Y, sample_weight=w)
        rows = np.repeat(np.arange(N), w)
        many = clone(model).fit(X[rows], Y[rows])
        assert_allclose(one.predict(X), many.predict(X), atol=1e-3)
        assert_allclose(one.solution_.upper, many.solution_.upper, rtol=1e-6)


# --- targets --------------------------------------------------------------------------


def test_targets_in_all_their_forms():
    pd = pytest.importorskip("pandas", reason="needs pandas")
    expected = MKLCox().fit(X, Y).predict(X)
    swapped = np.empty(N, dtype=[("days", float), ("died", bool)])
    swapped["days"], swapped["died"] = TIME, EVENT
    forms = [
        structured(TIME, EVENT),
        swapped,
        Y.tolist(),
        pd.DataFrame({"days": TIME, "died": EVENT.astype(int)}),
        pd.DataFrame({"died": EVENT, "days": TIME}),
    ]
    for y in forms:
        assert_array_equal(MKLCox().fit(X, y).predict(X), expected)
    all_events = MKLCox().fit(X, TIME)
    assert_array_equal(
        all_events.predict(X), MKLCox().fit(X, np.c_[TIME, np.ones(N)]).predict(X)
    )


@pytest.mark.parametrize(
    ("y", "match"),
    [
        (np.c_[EVENT, TIME], "time and event, in this order"),
        (np.c_[-TIME, EVENT], "negative"),
        (np.c_[TIME, np.zeros(N)], "censored"),
        (np.c_[TIME, EVENT, EVENT], "two columns, time and event, got 3"),
        (np.c_[TIME, EVENT, EVENT, EVENT], "4 columns"),
        (np.c_[np.where(TIME > 2, np.nan, TIME), EVENT], "NaN"),
        (structured(TIME, EVENT)[:-1], "inconsistent"),
        (np.array([(1.0, 2.0)] * N, dtype=[("a", float), ("b", float)]), "boolean"),
        (None, "requires y"),
    ],
)
def test_bad_targets(y, match):
    for model in (MKLCox(), MKLSurvivalSVM()):
        with pytest.raises(ValueError, match=match):
            model.fit(X, y)


@pytest.mark.parametrize(
    ("model", "fit", "match"),
    [
        (MKLCox(ties="exact"), {}, "ties must be"),
        (MKLCox(C=0), {}, "C must be"),
        (
            MKLCox(ties="efron"),
            {"sample_weight": np.full(N, 0.5)},
            "integer sample weights",
        ),
        (MKLCox(), {"strata": STRATA[:-1]}, "inconsistent"),
        (MKLCox(), {"strata": np.c_[STRATA, STRATA]}, "strata must be"),
        (MKLCox(), {"strata": [None, *STRATA[1:]]}, "missing for 1 sample, .* row 0"),
        (MKLCox(), {"strata": np.full(N, np.nan)}, "missing for 90 samples"),
        (MKLCox(), {"strata": np.array([1, *STRATA[1:]], object)}, "or all texts"),
        (MKLCox(), {"sample_weight": np.where(EVENT, 0.0, 1.0)}, "weight zero"),
        (MKLSurvivalSVM(loss="hinge"), {}, "loss must be"),
        (MKLSurvivalSVM(epsilon=-1, loss="epsilon_insensitive"), {}, "epsilon"),
    ],
)
def test_bad_parameters(model, fit, match):
    with pytest.raises(ValueError, match=match):
        model.fit(X, Y, **fit)


def test_events_that_are_not_marks():
    pd = pytest.importorskip("pandas", reason="needs pandas")
    states = np.where(EVENT, "dead", "alive")
    unknown = pd.array(EVENT.tolist(), dtype="boolean")
    unknown[[2, 5]] = pd.NA
    for event, match in (
        (states, r"True or False, or 1 and 0 \(censored\); got 'alive', 'dead'"),
        (pd.Categorical(states), "got 'alive', 'dead'"),
        (unknown, "2 samples is missing, first in row 2"),
        ([None, *EVENT[1:]], "1 sample is missing, first in row 0"),
        (np.where(EVENT, 1.0, np.nan), "is missing"),
    ):
        y = pd.DataFrame({"time": TIME, "event": event})
        for model in (MKLCox(), MKLSurvivalSVM()):
            with pytest.raises(ValueError, match=match):
                model.fit(X, y)
        with pytest.raises(ValueError, match=match):
            concordance_index(y, TIME)
    y = pd.DataFrame({"time": ["soon", *TIME[1:]], "event": EVENT})
    with pytest.raises(ValueError, match=r"Times must be numbers .*'soon'"):
        MKLCox().fit(X, y)
    known = pd.array(EVENT.tolist(), dtype="boolean")
    y = pd.DataFrame({"time": TIME, "event": known})
    assert_array_equal(MKLCox().fit(X, y).predict(X), MKLCox().fit(X, Y).predict(X))


@pytest.mark.parametrize("approximation", [None, "nystroem"])
@pytest.mark.parametrize("ties", ["breslow", "efron"])
def test_times_whose_order_says_nothing(ties, approximation):
    model = MKLCox(ties=ties, approximation=approximation, rank=5)
    distinct = np.arange(1.0, N + 1)
    last = np.c_[distinct, distinct == N]
    tied = np.c_[np.minimum(distinct, N - 2), distinct > N - 3]
    for y in (last, tied):
        with pytest.raises(ValueError, match="No event has other samples at risk"):
            model.fit(X, y)
    with pytest.raises(ValueError, match="other samples of its stratum"):
        model.fit(X, Y, strata=np.arange(N))
    # a sample of another stratum, or of weight zero, does not count
    first = np.c_[distinct, distinct == N - 1]
    assert np.abs(model.fit(X, first).predict(X)).max() > 0
    with pytest.raises(ValueError, match="no order to learn"):
        model.fit(X, first, strata=distinct == N)
    with pytest.raises(ValueError, match="no order to learn"):
        model.fit(X, first, (distinct < N) * 1.0)
    with pytest.raises(ValueError, match="nothing to learn"):
        MKLSurvivalSVM(approximation=approximation, rank=5).fit(X, last)


def test_folds_without_events():
    y = np.c_[TIME, np.arange(N) < 2]
    with pytest.raises(ValueError, match=r"The test part of fold \d has no event"):
        MKLCoxCV(Cs=[1.0], norms=[2], cv=3).fit(X, y)


def test_large_risks_give_finite_functions():
    y = np.c_[np.arange(1.0, N + 1), np.ones(N)]
    for scale in (1.0, 100.0):  # a covariate that separates, or nearly does
        order = np.column_stack([X, -np.arange(N) * scale])
        model = MKLCox("linear", fixed=[5])
        with pytest.warns(UserWarning) as said:
            model.fit(order, y)
        assert not [w for w in said if w.category is RuntimeWarning]
    model = MKLCox("linear", normalize=None).fit(X, Y)
    far = 1e5 * X
    hazard = model.predict_cumulative_hazard_function(far, return_array=True)
    chance = model.predict_survival_function(far, return_array=True)
    assert np.isfinite(hazard).all() and np.isfinite(chance).all()
    assert (hazard[:, -1] > 1e300).any() and (chance[:, -1] == 0).any()
    assert (np.diff(hazard, axis=1) >= 0).all()
    svm = MKLSurvivalSVM("linear", normalize=None).fit(X, Y)
    assert np.isfinite(svm.predict_time(far)).all()


@pytest.mark.parametrize("shift", [0.0, 30.0, 2000.0, -2000.0])
def test_baselines_of_large_scores(shift):
    f = X[:, 0] + shift
    times, hazard = baseline_hazard(TIME, EVENT, np.ones(N), f)
    assert np.isfinite(hazard).all() and (np.diff(hazard) >= 0).all()
    at_risk = [np.exp(X[TIME >= t, 0]).sum() for t in times]
    dead = [EVENT[TIME == t].sum() for t in times]
    if abs(shift) < 100:
        expected = np.cumsum(np.divide(dead, at_risk)) * np.exp(-shift)
        assert_allclose(hazard, expected, rtol=1e-10)


def test_a_time_of_zero_has_no_logarithm():
    y = np.c_[np.where(TIME < 1, 0.0, TIME), EVENT]
    assert np.isfinite(MKLCox().fit(X, y).predict(X)).all()
    with pytest.raises(ValueError, match="logarithm"):
        MKLSurvivalSVM().fit(X, y)


# --- predictions ----------------------------------------------------------------------


def test_functions_of_time():
    model = MKLCox(["linear", "rbf"]).fit(X, Y)
    survival = model.predict_survival_function(X[:4])
    hazard = model.predict_cumulative_hazard_function(X[:4])
    for s, h in zip(survival, hazard, strict=True):
        assert s.domain == h.domain == (0.0, TIME.max())
        assert s(0.0) == 1.0 and h(0.0) == 0.0
        assert_allclose(s(s.x), np.exp(-h(h.x)))
        assert (np.diff(s(s.x)) <= 0).all()
    # the higher the risk, the lower the chance at any time
    order = np.argsort(model.predict(X[:4]))
    chances = model.predict_survival_function(X[:4], return_array=True)[order]
    assert (np.diff(chances, axis=0) <= 1e-12).all()
    with pytest.raises(ValueError, match="between 0 and"):
        survival[0](TIME.max() + 1)


def test_strata_have_baselines_of_their_own():
    model = MKLCox().fit(X, Y, strata=STRATA)
    assert model.strata_.tolist() == ["a", "b", "c"]
    with pytest.raises(ValueError, match="strata="):
        model.predict_survival_function(X)
    with pytest.raises(ValueError, match="each one of"):
        model.predict_survival_function(X[:1], strata=["z"])
    for name in "abc":
        here = STRATA == name
        # Breslow's baseline: expected events are as many as there were
        expected = model.predict_cumulative_hazard_function(
            X[here], strata=STRATA[here]
        )
        total = sum(h(t) for h, t in zip(expected, TIME[here], strict=True))
        assert_allclose(total, EVENT[here].sum(), rtol=1e-10)


def test_metrics_of_scikit_survival_take_the_models():
    metrics = pytest.importorskip("sksurv.metrics", reason="needs scikit-survival")
    y = structured(TIME, EVENT)
    model = MKLCox(["linear", "rbf"]).fit(X, y)
    risk = model.predict(X)
    c = metrics.concordance_index_censored(EVENT, TIME, risk)[0]
    assert_allclose(model.score(X, y), c, atol=1e-12)
    times = np.quantile(TIME, [0.2, 0.5, 0.8])
    area, _ = metrics.cumulative_dynamic_auc(y, y, risk, times)
    assert_allclose(dynamic_auc(y, y, risk, times), area, atol=1e-12)
    functions = model.predict_survival_function(X)
    chances = np.vstack([fn(times) for fn in functions])
    _, brier = metrics.brier_score(y, y, chances, times)
    assert (brier < 0.25).all()
    scorer = metrics.as_integrated_brier_score_scorer(model, times=times)
    assert -0.25 < scorer.fit(X, y).score(X, y) < 0
    ranked = metrics.as_concordance_index_ipcw_scorer(model).fit(X, y)
    assert ranked.score(X, y) > 0.7


def test_pipelines_and_searches():
    y = structured(TIME, EVENT)
    for model in (MKLCox(["linear", "rbf"]), MKLSurvivalSVM(["linear", "rbf"])):
        pipe = make_pipeline(StandardScaler(), model)
        assert cross_val_score(pipe, X, y, cv=3).mean() > 0.6
        grid = GridSearchCV(model, {"C": [0.1, 1.0], "norm": [1, 2]}, cv=3).fit(X, y)
        assert grid.best_score_ > 0.6
    strata = GridSearchCV(MKLCox(), {"C": [0.1, 1.0]}, cv=3).fit(X, y, strata=STRATA)
    assert len(strata.best_estimator_.strata_) == 3


@pytest.mark.parametrize(("seed", "strata"), [(4, 2), (7, 2), (10, 1)])
def test_paths_do_not_stop_far_from_the_optimum(seed, strata):
    # from factors at other scores, conjugate gradients made no step at all
    rng = np.random.default_rng(seed)
    data = rng.normal(size=(150, 5))
    death = np.round(5 * rng.exponential(np.exp(-data[:, 0])), 1) + 0.1
    end = np.round(rng.exponential(6, size=150), 1) + 0.1
    y = np.column_stack([np.minimum(death, end), death <= end])
    model = MKLCoxCV("linear", cv=3, norms=[np.inf])
    model.fit(data, y, strata=np.arange(150) % strata)
    assert max(path.n_iter.max() for path in model.path_) < 20


def test_dates_are_no_times():
    pd = pytest.importorskip("pandas")
    began = pd.Timestamp("2020-01-01")
    days = pd.to_timedelta(TIME, unit="D")
    for time in (began + days, days, (began + days).astype(object)):
        y = pd.DataFrame({"time": time, "event": EVENT})
        for model in (MKLCox("linear"), MKLSurvivalSVM("linear"), MKLCoxCV("linear")):
            with pytest.raises(ValueError, match="got dates or durations"):
                model.fit(X, y)
        with pytest.raises(ValueError, match="got dates or durations"):
            concordance_index(y, X[:, 0])
    with pytest.raises(ValueError, match="y has times instead of numbers"):
        MKLRegressor("linear").fit(X, pd.Series(began + days))


def test_search_along_paths_is_a_search():
    model = MKLCoxCV(["linear", "rbf"], Cs=[0.1, 1.0], norms=[1, 2], cv=4).fit(X, Y)
    cell = MKLCox(["linear", "rbf"], C=model.C_, norm=model.norm_).fit(X, Y)
    assert_allclose(model.solution_.upper, cell.solution_.upper, rtol=2e-3)
    assert model.baseline_cumulative_hazard_.shape == (1, len(model.unique_times_))
    stratified = MKLCoxCV(Cs=[1.0], norms=[2], cv=3).fit(X, Y, strata=STRATA)
    assert stratified.strata_.tolist() == ["a", "b", "c"]


def test_limits():
    stopped = MKLCox(callback=lambda history: True, tol=1e-9)
    with pytest.warns(Warning, match="callback"):
        stopped.fit(X, Y)
    assert np.isfinite(stopped.predict(X)).all()


@pytest.mark.parametrize(
    "model",
    [
        MKLCox(["linear", "rbf"]),
        MKLCox(approximation="nystroem", rank=10),
        MKLCoxCV(Cs=[1.0], norms=[1, 2], cv=3),
        MKLSurvivalSVM(["linear", "rbf"]),
        MKLSurvivalSVM(approximation="rff", rank=10),
    ],
    ids=repr,
)
def test_saved_models_predict_the_same(model, tmp_path):
    model = clone(model).fit(X, Y)
    save(model, tmp_path / "model.mkl")
    loaded = load(tmp_path / "model.mkl")
    assert_allclose(loaded.predict(X), model.predict(X), rtol=1e-12, atol=1e-13)
    if isinstance(model, MKLCox):
        ours, theirs = (
            m.predict_survival_function(X, return_array=True) for m in (model, loaded)
        )
        assert_allclose(ours, theirs, rtol=1e-12)


def test_a_baseline_that_makes_no_sense_is_not_saved(tmp_path):
    model = MKLCox().fit(X, Y)
    for wrong in (
        -model.baseline_cumulative_hazard_,
        model.baseline_cumulative_hazard_[:, 1:],
        np.full_like(model.baseline_cumulative_hazard_, np.nan),
    ):
        broken = clone(model).fit(X, Y)
        broken.baseline_cumulative_hazard_ = wrong
        with pytest.raises((ValueError, ModelFileError), match="not saved"):
            save(broken, tmp_path / "model.mkl")


# --- curves and indices ---------------------------------------------------------------


def pairs_by_definition(time, event, risk, weight):
    right = pairs = 0.0
    for i, j in itertools.permutations(range(len(time)), 2):
        later = time[i] < time[j] or (time[i] == time[j] and not event[j])
        if event[i] and later:
            pairs += weight[i] * weight[j]
            half = 0.5 * (risk[i] == risk[j])
            right += weight[i] * weight[j] * ((risk[i] > risk[j]) + half)
    return right / pairs


def test_concordance_counts_pairs():
    rng = np.random.default_rng(0)
    for _ in range(5):
        risk = rng.integers(0, 8, N).astype(float)
        weight = rng.integers(0, 3, N).astype(float)
        found = concordance_index(Y, risk, weight)
        assert_allclose(found, pairs_by_definition(TIME, EVENT, risk, weight))
    assert concordance_index(np.c_[np.arange(N), EVENT], -np.arange(N)) == 1.0
    assert concordance_index(Y, np.zeros(N)) == 0.5
    assert np.isnan(concordance_index([[1.0, 0], [2.0, 0]], [1.0, 2.0]))
    with pytest.raises(ValueError, match="risk must be"):
        concordance_index(Y, np.zeros(N - 1))


def test_kaplan_meier_is_a_product_of_shares():
    curve = kaplan_meier(Y)
    left = 1.0
    for t in np.unique(TIME):
        left *= 1 - np.sum(EVENT & (t == TIME)) / np.sum(t <= TIME)
        assert_allclose(curve(t), left)
    whole = kaplan_meier(TIME)
    assert_allclose(whole(whole.x), [np.mean(t < TIME) for t in whole.x], atol=1e-12)


def test_areas_without_censoring_are_those_of_two_classes():
    y = np.c_[TIME, np.ones(N)]
    risk = np.round(X[:, 0], 1)
    times = np.quantile(TIME, [0.3, 0.6])
    expected = [roc_auc_score(t >= TIME, risk) for t in times]
    assert_allclose(dynamic_auc(y, y, risk, times), expected, rtol=1e-12)
    assert np.isnan(dynamic_auc(y, y, risk, [TIME.max()])).all()


def test_step_functions_say_what_they_are_not():
    with pytest.raises(ValueError, match="ascending"):
        StepFunction([2.0, 1.0], [0.0, 1.0])
    with pytest.raises(ValueError, match="one value for each"):
        StepFunction([1.0, 2.0], [0.0])
    assert StepFunction([1.0], [2.0], a=3.0, b=1.0)(1.0) == 7.0


# --- what matters ---------------------------------------------------------------------

VIEWS = MultiView({"signal": X[:, :2], "noise": X[:, 2:]})
BY_VIEW = kernels.per_view("linear")


@pytest.mark.parametrize(
    "model",
    [
        MKLCox(BY_VIEW),
        MKLCox(BY_VIEW, approximation="nystroem", rank=10),
        MKLCoxCV(BY_VIEW, Cs=[0.1], norms=[1, 2], cv=2),
        MKLSurvivalSVM(BY_VIEW),
    ],
    ids=["cox", "low rank", "search", "svm"],
)
def test_permuted_views_lose_concordance(model):
    model.fit(VIEWS[:60], Y[:60])
    new, y = VIEWS[60:], Y[60:]
    found = kernel_importance(model, new, y, by="view", n_repeats=50, random_state=0)
    assert found.score == pytest.approx(model.score(new, y), abs=1e-12)
    assert found.names == ("signal", "noise")
    assert found.mean[0] > 0.1 > found.mean[1] and found.p_values[0] < 0.05
    # permuting the part of a view is permuting the view
    order = np.random.RandomState(0).permutation(len(y))
    mixed = MultiView({"signal": new["signal"][order], "noise": new["noise"]})
    assert found.permuted[0, 0] == pytest.approx(model.score(mixed, y), abs=1e-9)
    parts = decision_parts(model, new)
    sign = -1 if isinstance(model, MKLSurvivalSVM) else 1
    assert_allclose(sign * parts.decision, model.predict(new), atol=1e-9)


def test_importance_beside_covariates():
    model = MKLCox(kernels.Linear(view="noise"), fixed="signal").fit(VIEWS, Y)
    parts = decision_parts(model, VIEWS)
    assert_allclose(parts.decision, model.predict(VIEWS), atol=1e-9)
    found = kernel_importance(model, VIEWS, Y, n_repeats=5, random_state=0)
    assert found.score == pytest.approx(model.score(VIEWS, Y), abs=1e-12)


@pytest.mark.parametrize("model", [MKLCox(BY_VIEW), MKLSurvivalSVM(BY_VIEW)], ids=type)
def test_concordance_by_view(model):
    y = structured(TIME, EVENT)
    found = score_by_view(model, VIEWS, y, "shapley", cv=3)
    assert found.scoring == "concordance" and found.rest == pytest.approx(0.5)
    assert found.scores[0] > 0.1 > found.scores[1]
    folds = list(StratifiedKFold(3).split(X, EVENT))
    unique = score_by_view(model, VIEWS, y, "unique", cv=folds)
    for k, (train, test) in enumerate(folds):
        whole = clone(model).fit(VIEWS[train], y[train]).score(VIEWS[test], y[test])
        alone = clone(model).set_params(kernels=kernels.Linear(view="noise"))
        alone.fit(VIEWS[train], y[train])
        lost = whole - alone.score(VIEWS[test], y[test])
        # an error of the objective within tol moves few pairs
        assert unique.totals[k] == pytest.approx(whole, abs=0.02)
        assert unique.folds[k, 0] == pytest.approx(lost, abs=0.02)
    assert_allclose(score_by_view(model, VIEWS, y, "unique", cv=3).folds, unique.folds)
    pairs = score_by_view(model, VIEWS, y, "unique", groups=np.arange(N) // 2, cv=3)
    assert pairs.folds.shape == (3, 2)
    with pytest.raises(ValueError, match="use kind='unique' or 'shapley'"):
        score_by_view(model, VIEWS, y)
    with pytest.raises(ValueError, match="omit scoring"):
        score_by_view(model, VIEWS, y, "unique", scoring="r2")
    few = structured(TIME, np.isin(np.arange(N), [0, 1, 40, 41]))
    with pytest.raises(ValueError, match="use fewer folds"):
        score_by_view(model, VIEWS, few, "unique", cv=KFold(3))


def test_tables_of_times_are_scored_by_view():
    pd = pytest.importorskip("pandas", reason="needs pandas")
    frame = pd.DataFrame({"died": EVENT, "days": TIME})
    found = score_by_view(MKLCox(BY_VIEW), VIEWS, frame, "unique", cv=3)
    same = score_by_view(MKLCox(BY_VIEW), VIEWS, Y, "unique", cv=3)
    assert_array_equal(found.folds, same.folds)
