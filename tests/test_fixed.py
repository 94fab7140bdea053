"""Covariates: columns that enter linearly, without a penalty, beside the intercept."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from scipy.optimize import linprog, minimize
from scipy.special import expit
from sklearn import config_context
from sklearn.base import clone
from sklearn.model_selection import StratifiedGroupKFold, cross_validate
from sklearn.svm import SVC

from cases import patient_columns
from mklearn import (
    AlignmentMKLClassifier,
    BestKernelClassifier,
    EvidenceMKLRegressor,
    KernelBank,
    MKLClassifier,
    MKLClassifierCV,
    MKLRegressor,
    MKLRegressorCV,
    MultiView,
    SingleKernelCV,
    UniformMKLClassifier,
    kernels,
)
from mklearn.interpretation import kernel_importance, weight_stability
from mklearn.kernels import RBF, Linear, per_view
from mklearn.model_selection import compare
from mklearn.persistence import load, save
from mklearn.problems import Hinge, LpBall, MKLProblem
from mklearn.problems.design import Design
from mklearn.problems.losses import PointwiseHinge
from mklearn.solvers.beside import BesideSolver

EPS = np.finfo(float).eps


def patients(n=80, seed=0):
    """Return a table of numbers and categories, and values that follow from both."""
    rng = np.random.default_rng(seed)
    X = patient_columns(rng, n)
    y = np.sin(X["a"]) + 0.05 * X["age"] + 2.0 * (X["site"] == "y")
    return X, (y + 0.3 * rng.standard_normal(n)).to_numpy()


def coded(X):
    """Return ones, age and the indicators of two sites."""
    site = X["site"].to_numpy()
    return np.column_stack([np.ones(len(X)), X["age"], site == "y", site == "z"])


FIXED = ["age", "site"]


@pytest.mark.parametrize("as_views", [False, True])
def test_permuting_kernels_keeps_covariates_with_their_samples(as_views):
    X, y = patients()
    y = (y > np.median(y)).astype(int)
    family = kernels.per_feature("rbf")
    if as_views:
        X = MultiView({name: X[[name]] for name in "ab"} | {c: X[c] for c in FIXED})
        family = kernels.per_view("rbf")
    model = MKLClassifier(family, fixed=FIXED).fit(X, y)
    for scoring in (None, "roc_auc"):
        found = kernel_importance(model, X, y, n_repeats=3, scoring=scoring)
        assert len(found.names) == 2
    assert kernel_importance(model, X, y, n_repeats=3).score == model.score(X, y)


# --- which columns, and how they are coded --------------------------------------------


def test_names_numbers_and_views_mean_the_same():
    X, y = patients()
    named = EvidenceMKLRegressor(kernels.per_feature("rbf"), fixed=FIXED).fit(X, y)
    assert named.kernel_names_ == ("rbf(1/median)[a]", "rbf(1/median)[b]")
    assert named.fixed_names_ == ("age", "site=y", "site=z")
    table = X.to_numpy(object)
    numbered = EvidenceMKLRegressor(kernels.per_feature("rbf"), fixed=[1, -1])
    numbered.fit(table, y)
    assert np.array_equal(numbered.predict(table), named.predict(X))
    assert np.array_equal(numbered.fixed_effects_, named.fixed_effects_)
    views = MultiView(
        {"main": X[["a", "b"]], "age": X[["age"]], "site": X["site"].to_numpy()}
    )
    viewed = EvidenceMKLRegressor(kernels.per_feature("rbf"), fixed=FIXED)
    viewed.fit(views, y)
    assert viewed.kernel_names_ == named.kernel_names_
    np.testing.assert_allclose(viewed.predict(views), named.predict(X), rtol=1e-9)
    inside = MultiView({"main": X[["a", "age", "b"]], "site": X["site"].to_numpy()})
    viewed.fit(inside, y)
    np.testing.assert_allclose(viewed.predict(inside), named.predict(X), rtol=1e-9)


def test_a_kernel_may_name_a_covariate_and_others_do_not_see_it():
    X, y = patients()
    both = [kernels.RBF(columns="age", name="age"), kernels.RBF(name="rest")]
    model = EvidenceMKLRegressor(both, fixed=FIXED).fit(X, y)
    assert model.kernel_names_ == ("age", "rest")
    alone = EvidenceMKLRegressor(
        [kernels.RBF(columns="age", name="age"), kernels.RBF(columns=["a", "b"])],
        fixed=FIXED,
    ).fit(X, y)
    assert np.array_equal(model.predict(X), alone.predict(X))


def test_numbers_of_columns_in_kernels_are_those_of_x():
    X, y = patients()
    table = X.to_numpy(object)
    model = EvidenceMKLRegressor(kernels.RBF(columns=2), fixed=[1, 3]).fit(table, y)
    alone = EvidenceMKLRegressor(kernels.RBF(columns="b"), fixed=FIXED).fit(X, y)
    assert np.array_equal(model.predict(table), alone.predict(X))


def test_sparse_tables():
    X, y = patients()
    dense = np.column_stack([X["a"], X["age"], X["b"]])
    one = EvidenceMKLRegressor("linear", fixed=[1], normalize="trace").fit(dense, y)
    rows = sparse.csr_array(dense)
    two = EvidenceMKLRegressor("linear", fixed=[1], normalize="trace").fit(rows, y)
    np.testing.assert_allclose(two.predict(rows), one.predict(dense), rtol=1e-8)


def test_collinear_and_constant_covariates_are_dropped_and_named():
    X, y = patients()
    X = X.assign(months=12 * X["age"] + 3, one=1.0)
    model = EvidenceMKLRegressor(fixed=["age", "months", "one", "site"]).fit(X, y)
    assert model.fixed_names_ == ("age", "site=y", "site=z")
    assert model.fixed_dropped_ == ("months", "one")
    plain = EvidenceMKLRegressor(fixed=["age", "site"])
    plain.fit(X.drop(columns=["months", "one"]), y)
    fewer = X[plain.feature_names_in_]
    np.testing.assert_allclose(model.predict(X), plain.predict(fewer))


def test_the_order_of_rows_and_repeated_rows_do_not_matter():
    X, y = patients()
    model = EvidenceMKLRegressor(fixed=FIXED).fit(X, y)
    order = np.random.default_rng(1).permutation(len(y))
    again = EvidenceMKLRegressor(fixed=FIXED).fit(X.iloc[order], y[order])
    assert np.array_equal(model.predict(X), again.predict(X))
    # equal in all but a covariate is not equal
    twice = pd.concat([X, X.assign(site="x")], ignore_index=True)
    model.fit(twice, np.r_[y, y])
    changed = int((X["site"] != "x").sum())
    assert len(model.support_) == len(y) + changed
    weight = np.r_[np.ones(len(y)), np.zeros(len(y))]
    absent = EvidenceMKLRegressor(fixed=FIXED).fit(twice, np.r_[y, y], weight)
    np.testing.assert_allclose(absent.predict(X), again.predict(X), rtol=1e-10)


def test_saved_models_know_their_covariates(tmp_path):
    X, y = patients()
    model = EvidenceMKLRegressor(fixed=FIXED, uncertainty=True).fit(X, y)
    save(model, tmp_path / "model.mkl")
    again = load(tmp_path / "model.mkl")
    before, after = (m.predict(X, return_std=True) for m in (model, again))
    assert np.array_equal(before, after)
    assert again.fixed_names_ == model.fixed_names_
    with pytest.raises(ValueError, match="category 'new'"):
        again.predict(X.assign(site="new"))


# --- bad input ------------------------------------------------------------------------


def refused(X, y, fixed, words, **options):
    with pytest.raises(ValueError, match=words):
        EvidenceMKLRegressor(fixed=fixed, **options).fit(X, y)


def test_what_is_no_covariate_is_told():
    X, y = patients()
    refused(X, y, "agee", r"no such column. Did you mean 'age'\?")
    refused(X, y, ["age", 9], "column 9, but X has 4 columns")
    refused(X, y, ["age", "age"], "'age' twice")
    refused(X, y, ["age", True], "got True")
    refused(X, y, 2.5, "got 2.5")
    refused(X, y, list(X), "names every column")
    numbers = X[["a", "age"]].to_numpy()
    refused(numbers, y, "age", "X has no column names")
    views = MultiView({"main": X[["a", "b"]], "age": X[["age"]]})
    refused(views, y, "agee", r"Did you mean 'age'\?")
    refused(views, y, 1, "got 1")
    refused(views, y, ["main", "age"], "all views")
    grams = np.eye(len(y))[:, :, None]
    refused(grams, y, [0], "covariates=table", kernels="precomputed")


def test_missing_values_are_told_with_their_row():
    X, y = patients()
    holes = X.copy()
    holes.loc[7, "age"] = np.nan
    refused(holes, y, FIXED, "'age' is missing or infinite for 1 of 80 .* row 7")
    holes = X.copy()
    holes.loc[5, "site"] = None
    refused(holes, y, FIXED, "'site' is missing or infinite for 1 of 80 .* row 5")
    model = EvidenceMKLRegressor(fixed=FIXED).fit(X, y)
    with pytest.raises(ValueError, match="'site' is missing"):
        model.predict(holes)
    with pytest.raises(ValueError, match="category 'q'"):
        model.predict(X.assign(site="q"))
    with pytest.raises(ValueError, match="feature names"):
        model.predict(X[["age", "a", "b", "site"]])


def test_more_covariates_than_samples():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((12, 30))
    refused(X, X[:, 0], list(range(1, 20)), "explain any target")


# --- the restricted likelihood --------------------------------------------------------


def test_evidence_agrees_with_dense_algebra():
    X, y = patients()
    model = EvidenceMKLRegressor(
        kernels.per_feature("rbf"), fixed=FIXED, uncertainty=True, tol=1e-8
    ).fit(X, y)
    F = coded(X)
    grams = [
        np.exp(-kernel.gamma * (X[[c]].to_numpy() - X[[c]].to_numpy().T) ** 2)
        for kernel, c in zip(model.kernels_, "ab", strict=True)
    ]
    n = len(y)
    # normalised by their variance; the mean does not matter beside a free constant
    scaled = [K / (np.trace(K) / n - K.mean()) for K in grams]
    K = sum(t * K for t, K in zip(model.kernel_weights_, scaled, strict=True))
    inverse = np.linalg.inv(K + np.eye(n))
    known = np.linalg.inv(F.T @ inverse @ F)
    effects = known @ F.T @ inverse @ y
    np.testing.assert_allclose(model.fixed_effects_, effects[1:], rtol=1e-7)
    P = inverse - inverse @ F @ known @ F.T @ inverse
    noise = y @ P @ y / (n - F.shape[1])
    np.testing.assert_allclose(model.noise_, noise, rtol=1e-8)
    fitted = F @ effects + K @ (inverse @ (y - F @ effects))
    values, spread = model.predict(X, return_std=True)
    np.testing.assert_allclose(values, fitted, rtol=1e-8)
    rest = F - K @ inverse @ F
    variance = np.diag(K - K @ inverse @ K + rest @ known @ rest.T) + 1.0
    np.testing.assert_allclose(spread, np.sqrt(noise * variance), rtol=1e-6)


def test_evidence_does_not_depend_on_what_covariates_explain():
    X, y = patients()
    model = EvidenceMKLRegressor(fixed=FIXED, tol=1e-8).fit(X, y)
    shift = coded(X) @ [3.0, -0.2, 5.0, 1.0]
    moved = EvidenceMKLRegressor(fixed=FIXED, tol=1e-8).fit(X, y + shift)
    np.testing.assert_allclose(
        moved.kernel_weights_, model.kernel_weights_, rtol=1e-4, atol=1e-6
    )
    np.testing.assert_allclose(moved.predict(X) - shift, model.predict(X), atol=1e-5)


# --- other losses ---------------------------------------------------------------------

LABELS = ("hinge", "squared_hinge", "squared", "logistic")
NUMBERS = ("squared", "epsilon_insensitive")


def labelled(n=60, seed=0):
    """Return the table with two classes that overlap in each site."""
    X, y = patients(n, seed)
    rng = np.random.default_rng(seed + 1)
    noisy = y + 1.5 * rng.standard_normal(n)
    return X, np.where(noisy > np.median(noisy), "yes", "no")


def fitted(loss, X, y, solver="auto", **options):
    """Return a model with one linear kernel, as it is, to a small gap."""
    numbers = y.dtype.kind == "f"
    model = (MKLRegressor if numbers else MKLClassifier)(
        "linear", fixed=FIXED, loss=loss, normalize=None, solver=solver,
        **{"tol": 1e-8, **options},
    )  # fmt: skip
    return model.fit(X, y)


def test_squared_loss_is_ridge_regression_with_free_columns():
    X, y = patients()
    C = 0.7
    model = fitted("squared", X, y, C=C)
    # by dense algebra: the penalty is one over C, and only on the kernel's columns
    columns = np.column_stack([coded(X), X["a"], X["b"]])
    penalty = np.diag([0, 0, 0, 0, 1 / C, 1 / C])
    beta = np.linalg.solve(columns.T @ columns + penalty, columns.T @ y)
    np.testing.assert_allclose(model.fixed_effects_, beta[1:4], rtol=1e-7)
    np.testing.assert_allclose(model.intercept_, beta[:1], rtol=1e-7)
    np.testing.assert_allclose(model.predict(X), columns @ beta, rtol=1e-8)


def test_logistic_loss_agrees_with_a_direct_minimisation():
    X, y = labelled()
    C = 0.7
    model = fitted("logistic", X, y, C=C, tol=1e-9)
    sign = np.where(y == "yes", 1.0, -1.0)
    scale = np.array([1.0, 100.0, 1.0, 1.0])
    columns = np.column_stack([coded(X) / scale, X["a"], X["b"]])
    free = np.array([0, 0, 0, 0, 1, 1])

    def objective(beta):
        f = columns @ beta
        slope = -C * sign * expit(-sign * f)
        value = C * np.logaddexp(0, -sign * f).sum() + 0.5 * free @ beta**2
        return value, columns.T @ slope + free * beta

    found = minimize(objective, np.zeros(6), jac=True, method="BFGS", tol=1e-9)
    assert model.solution_.lower <= found.fun * (1 + 1e-9)
    np.testing.assert_allclose(model.solution_.upper, found.fun, rtol=1e-7)
    effects = found.x[1:4] / scale[1:]
    np.testing.assert_allclose(model.fixed_effects_, effects, rtol=1e-3)
    np.testing.assert_allclose(model.decision_function(X), columns @ found.x, atol=1e-3)


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge", "epsilon_insensitive"])
def test_box_losses_agree_with_a_quadratic_program(loss):
    cp = pytest.importorskip("cvxpy")
    X, y = patients(60) if loss == "epsilon_insensitive" else labelled()
    C = 0.7
    model = fitted(loss, X, y, C=C)
    target = y if y.dtype.kind == "f" else np.where(y == "yes", 1.0, -1.0)
    Z = coded(X)
    Z[:, 1] /= 100
    beta, w = cp.Variable(4), cp.Variable(2)
    f = Z @ beta + X[["a", "b"]].to_numpy() @ w
    slack = {
        "hinge": lambda: cp.sum(cp.pos(1 - cp.multiply(target, f))),
        "squared_hinge": lambda: (
            0.5 * cp.sum_squares(cp.pos(1 - cp.multiply(target, f)))
        ),
        "epsilon_insensitive": lambda: cp.sum(cp.pos(cp.abs(target - f) - 0.1)),
    }[loss]()
    problem = cp.Problem(cp.Minimize(C * slack + 0.5 * cp.sum_squares(w)))
    optimum = problem.solve(solver="CLARABEL")
    np.testing.assert_allclose(model.solution_.upper, optimum, rtol=1e-6)
    assert model.solution_.lower <= optimum * (1 + 1e-7)
    if loss == "squared_hinge":  # with kinks there may be several best effects
        np.testing.assert_allclose(
            model.fixed_effects_ * [100, 1, 1], beta.value[1:], atol=1e-3
        )


@pytest.mark.parametrize("loss", NUMBERS)
def test_values_may_be_moved_along_the_covariates(loss):
    X, y = patients()
    tol = 1e-7
    shift = coded(X) @ [3.0, -0.2, 5.0, 1.0]
    model, moved = (
        MKLRegressor(kernels.per_feature("rbf"), fixed=FIXED, loss=loss, tol=tol).fit(
            X, value
        )
        for value in (y, y + shift)
    )
    # one optimum for both, so that the bounds of each hold for the other
    assert model.solution_.lower <= moved.solution_.upper
    assert moved.solution_.lower <= model.solution_.upper
    gap = np.sqrt(2 * tol * model.solution_.upper)
    np.testing.assert_allclose(
        moved.predict(X) - shift, model.predict(X), atol=10 * gap
    )


SOLVERS = ("alternating", "newton", "cutting_plane", "reduced_gradient", "conic",
           "multilevel", "active_set", "screened")  # fmt: skip


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("loss", LABELS)
def test_solvers_agree_with_covariates(loss, norm):
    X, y = labelled()
    bank = kernels.per_feature("rbf", "linear")
    found = {}
    for solver in SOLVERS:
        model = MKLClassifier(
            bank, fixed=FIXED, loss=loss, norm=norm, solver=solver, tol=1e-4
        )
        try:
            model.fit(X, y)
        except ValueError as error:  # said by the registry
            assert f"solver='{solver}'" in str(error) or "needs" in str(error)
            continue
        found[solver] = model.solution_
    assert {"alternating", "newton"} <= set(found)
    top = min(solution.upper for solution in found.values())
    for solver, solution in found.items():
        assert solution.gap <= 1e-4, solver
        assert solution.lower <= top * (1 + 1e-12), solver


def test_certified_points_are_feasible():
    X, y = labelled()
    for loss in LABELS:
        model = MKLClassifier(fixed=FIXED, loss=loss).fit(X, y)
        A = model.solution_.A
        rows = model.support_  # coefficients of the rows, in the order of X
        Z = coded(X)[rows]
        a = model.dual_coef_.T
        assert a.shape == (len(rows), A.shape[1])
        bound = 100 * len(y) * EPS * np.abs(Z).T @ np.abs(a)
        assert (np.abs(Z.T @ a) <= bound + 1e-12 * np.abs(Z).max(axis=0)[:, None]).all()


def test_interleaved_steps_decline_and_auto_does_not_take_them():
    X, y = labelled()
    model = MKLClassifier(fixed=FIXED, solver="interleaved")
    with pytest.raises(ValueError, match=r"covariates .* use solver='newton'"):
        model.fit(X, y)
    small = MKLClassifier(fixed=FIXED, memory_limit=20_000).fit(X, y)
    assert small.duality_gap_ <= 1e-3


def test_more_than_two_classes_and_several_outputs():
    X, y = patients()
    classes = np.digitize(y, np.quantile(y, [0.33, 0.67]))
    for weights in ("shared", "per-class"):
        model = MKLClassifier(fixed=FIXED, weights=weights).fit(X, classes)
        assert model.fixed_effects_.shape == (3, 3)
        assert model.duality_gap_ <= 1e-3
        assert model.decision_function(X).shape == (len(y), 3)
    both = np.column_stack([y, -y])
    model = MKLRegressor(fixed=FIXED, tol=1e-8).fit(X, both)
    assert model.fixed_effects_.shape == (2, 3)
    np.testing.assert_allclose(model.fixed_effects_[0], -model.fixed_effects_[1])


def test_the_cost_can_be_learned_beside_covariates():
    X, y = labelled()
    model = MKLClassifier(fixed=FIXED, loss="squared_hinge", C="learn").fit(X, y)
    assert model.duality_gap_ <= 1e-3 and model.C_ > 0


def test_searches_take_covariates():
    X, y = patients()
    grid = {"Cs": 3, "norms": [1, 2], "cv": 3, "select": None}
    model = MKLRegressorCV(fixed=FIXED, **grid).fit(X, y)
    plain = MKLRegressorCV(**grid).fit(X[["a", "b"]], y)
    assert model.mean_scores_.max() > plain.mean_scores_.max() + 0.2
    again = MKLRegressor(fixed=FIXED, C=model.C_, norm=model.norm_).fit(X, y)
    np.testing.assert_allclose(again.predict(X), model.predict(X), atol=0.05)
    labels = np.where(y > np.median(y), "yes", "no")
    model = MKLClassifierCV(fixed=FIXED, Cs=[0.1, 1], norms=[2], cv=3).fit(X, labels)
    assert model.mean_scores_.max() > 0.8
    # a site of one sample is in no training part of its fold
    rare = X.assign(site=np.r_[["rare"], X["site"][1:]])
    model = MKLRegressorCV(fixed=FIXED, Cs=[1], norms=[2], cv=3).fit(rare, y)
    assert np.isfinite(model.scores_).all()


# --- covariates that say too much or nothing ------------------------------------------


@pytest.mark.parametrize("loss", LABELS)
def test_a_covariate_that_equals_the_classes(loss):
    X, y = labelled()
    X = X.assign(known=(y == "yes").astype(float))
    with pytest.raises(ValueError, match="leaves nothing for the kernels"):
        MKLClassifier(fixed=[*FIXED, "known"], loss=loss).fit(X, y)
    with pytest.raises(ValueError, match="leaves nothing for the kernels"):
        MKLClassifierCV(fixed=[*FIXED, "known"], loss=loss).fit(X, y)


@pytest.mark.parametrize("loss", [name for name in LABELS if name != "squared"])
def test_a_number_that_separates_the_classes(loss):
    # not a function of the classes, but above a threshold for one of them only
    X, y = labelled()
    shift = np.where(y == "yes", 1.0, -1.0)
    X = X.assign(known=shift * (0.1 + np.random.default_rng(0).random(len(y))))
    with pytest.raises(ValueError, match="leaves nothing for the kernels"):
        MKLClassifier(fixed=[*FIXED, "known"], loss=loss).fit(X, y)


def test_a_category_of_one_class_only():
    X, y = labelled()
    X = X.assign(site=np.where(y == "yes", X["site"], "never"))
    X.loc[np.flatnonzero(y == "no")[10:], "site"] = "x"
    with pytest.warns(UserWarning, match="separate some of the samples"):
        model = MKLClassifier(fixed=FIXED, loss="logistic").fit(X, y)
    assert model.duality_gap_ <= 1e-3
    assert (model.predict(X[X["site"] == "never"]) == "no").all()
    model = MKLClassifier(fixed=FIXED).fit(X, y)
    assert model.duality_gap_ <= 1e-3


def test_a_covariate_that_equals_the_values():
    X, y = patients()
    X = X.assign(known=2 * y - 1)
    for model in (MKLRegressor(), MKLRegressorCV(), EvidenceMKLRegressor()):
        model.set_params(fixed=[*FIXED, "known"])
        with pytest.raises(ValueError, match="leaves nothing for the kernels"):
            model.fit(X, y)


def test_a_constant_covariate_changes_nothing():
    X, y = patients()
    model = MKLRegressor(fixed=["one"], tol=1e-8).fit(X[["a", "b"]].assign(one=5.0), y)
    plain = MKLRegressor(tol=1e-8).fit(X[["a", "b"]], y)
    assert model.fixed_dropped_ == ("one",) and model.fixed_effects_.shape == (0,)
    np.testing.assert_allclose(
        model.predict(X[["a", "b"]].assign(one=5.0)), plain.predict(X[["a", "b"]]),
        rtol=1e-6,
    )  # fmt: skip


@pytest.mark.parametrize(
    "model",
    [UniformMKLClassifier(), AlignmentMKLClassifier(), BestKernelClassifier(cv=3)],
    ids=lambda model: type(model).__name__,
)
def test_baselines_take_covariates(model):
    X, y = labelled(80)
    beside = clone(model).set_params(fixed=FIXED).fit(X, y)
    alone = clone(model).fit(X[["a", "b"]], y)
    assert beside.fixed_effects_.shape == (3,)
    assert beside.score(X, y) > alone.score(X[["a", "b"]], y)


# --- groups ---------------------------------------------------------------------------


def subjects(n_subjects=20, each=6, seed=0):
    """Return samples of subjects that differ, and classes that are those of subjects.

    There is nothing to be learned about a subject that was not seen.
    """
    rng = np.random.default_rng(seed)
    who = np.tile(np.arange(n_subjects), each)
    X = rng.standard_normal((n_subjects, 5))[who]
    X = X + 0.05 * rng.standard_normal(X.shape)
    y = np.tile([0, 1], n_subjects // 2)[who]
    return X, y, who


def searches():
    grid = {"Cs": [10.0, 100.0], "norms": [2]}
    return [
        MKLClassifierCV("rbf", cv=5, **grid),
        BestKernelClassifier(["rbf", "linear"], C=100.0, cv=5),
        SingleKernelCV(MKLClassifier(), ["rbf"], values=[10.0, 100.0], cv=5),
    ]


@pytest.mark.parametrize("model", searches(), ids=lambda m: type(m).__name__)
def test_known_subjects_are_no_new_samples(model):
    X, y, who = subjects()

    def best(fitted):
        scores = getattr(fitted, "mean_scores_", getattr(fitted, "cv_scores_", None))
        return float(np.max(scores))

    known = best(clone(model).fit(X, y))
    new = best(clone(model).fit(X, y, groups=who))
    # 20 subjects are 20 coins: 0.8 and more of them has a chance of 0.006
    assert known > 0.95 and new < 0.8
    # with metadata routing, a splitter asks for groups itself
    asking = clone(model).set_params(cv=StratifiedGroupKFold(5))
    with config_context(enable_metadata_routing=True):
        assert best(clone(asking).fit(X, y, groups=who)) < 0.8
        nested = cross_validate(
            asking, X, y, params={"groups": who}, cv=StratifiedGroupKFold(2),
            return_estimator=True,
        )["estimator"]  # fmt: skip
        assert all(best(one) < 0.95 for one in nested)


def test_compare_keeps_subjects_together():
    X, y, who = subjects()
    models = {"svc": SVC(C=100.0), "search": searches()[0]}
    known = compare(models, X, y, cv=5)
    new = compare(models, X, y, cv=5, groups=who)
    assert known.mean.min() > 0.95 and new.mean.max() < 0.8
    for train, test in new.splits:
        assert not set(who[train]) & set(who[test])


def test_the_bootstrap_draws_subjects():
    X, y, who = subjects(10)
    model = MKLClassifier(["rbf", "linear"], norm=2)
    names = np.array([f"s{i}" for i in who])
    found = weight_stability(model, X, y, n_resamples=5, groups=names, random_state=0)
    again = weight_stability(model, X, y, n_resamples=5, groups=who, random_state=0)
    assert np.array_equal(found.weights, again.weights)
    folds = weight_stability(model, X, y, method="folds", cv=3, groups=who)
    assert folds.weights.shape == (3, 2)
    with pytest.raises(ValueError, match="only one value"):
        weight_stability(model, X, y, n_resamples=2, groups=np.zeros(len(y)))


def test_groups_that_cannot_be_kept_together():
    X, y, who = subjects()
    model = MKLClassifierCV("rbf", Cs=[100.0], norms=[2])
    with pytest.raises(ValueError, match="1 entry for 120"):
        model.fit(X, y, groups=[1])
    with pytest.raises(ValueError, match="at least two groups of each class"):
        model.fit(X, y, groups=np.zeros(len(y)))
    one_class = np.where(y == 0, 0, who + 1)
    with pytest.raises(ValueError, match="class 0 is in only one"):
        model.fit(X, y, groups=one_class)
    missing = who.astype(float)
    missing[3] = np.nan
    with pytest.raises(ValueError, match="row 3"):
        model.fit(X, y, groups=missing)
    # groups of one sample each are no groups: as good as samples
    alone = model.fit(X, y, groups=np.arange(len(y)))
    assert alone.mean_scores_.max() > 0.9


@pytest.mark.parametrize("family", [False, True])
def test_factors_of_products_use_their_own_columns_beside_covariates(family):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.standard_normal((40, 4)), columns=["age", "a", "b", "c"])
    y = X["a"] * X["b"] + 0.1 * X["age"]
    last = X[["a", "b", "c", "age"]]
    for product in (
        RBF(0.5, columns="a") * Linear(columns="b"),
        RBF(0.5) * Linear(columns="b", standardize=True),
        RBF(0.5, columns="a") * Linear(columns="age"),  # named, hence used
    ):
        kernels = per_view(product) if family else product
        model = MKLRegressor(kernels, fixed=["age"], C=10.0, tol=1e-8)
        found, expected = clone(model).fit(X, y), clone(model).fit(last, y)
        # the gap allows for deviations of its root
        np.testing.assert_allclose(found.predict(X), expected.predict(last), atol=1e-3)


def test_rows_of_all_samples_contain_the_penalty_on_covariates():
    rng = np.random.default_rng(0)
    X, Z = rng.standard_normal((30, 3)), rng.standard_normal((30, 2))
    y = np.where(X[:, :1] > 0, 1.0, -1.0)
    loss = Hinge(y, np.ones((30, 1)), design=Design(np.column_stack([np.ones(30), Z])))
    problem = MKLProblem(KernelBank(X, ["linear", RBF(0.5)]), loss, LpBall(1.0))
    theta = np.array([0.4, 0.6])
    few, all_rows = (BesideSolver(problem, None).rows for _ in range(2))
    for rows in (few, all_rows):
        rows.set_theta(theta)
    few.load(np.arange(10))
    few.load(np.arange(10, 30))
    all_rows.load(np.arange(30))
    a = rng.standard_normal(30)
    expected = problem.bank.combine(theta) @ a
    expected += few.rho * (few.Q @ (few.Q.T @ a))
    np.testing.assert_allclose(few.apply(a), expected, rtol=1e-9)
    np.testing.assert_allclose(all_rows.apply(a), expected, rtol=1e-9)


@pytest.mark.parametrize("n, k, few", [(40, 2, True), (40, 2, False), (400, 12, True)])
def test_effects_of_the_hinge_are_a_linear_program(n, k, few):
    rng = np.random.default_rng(n)
    Z = rng.standard_normal((n, k))
    design = Design(np.column_stack([np.ones(n), Z]))
    y = np.where(Z[:, 0] + rng.standard_normal(n) > 0, 1.0, -1.0)
    f = 0.3 * y + rng.standard_normal(n)
    f, C = f.round(1) if few else f, rng.uniform(0.5, 2.0, n)  # knots that coincide
    g = PointwiseHinge().effects(f, y, C, design)
    lost = C @ np.maximum(0.0, 1.0 - y * (f + design.basis @ g))
    # variables: the coefficients, then the slacks
    E = y[:, None] * design.basis
    best = linprog(
        np.concatenate([np.zeros(E.shape[1]), C]),
        A_ub=np.hstack([-E, -np.eye(n)]), b_ub=y * f - 1.0,
        bounds=[(None, None)] * E.shape[1] + [(0, None)] * n,
    )  # fmt: skip
    assert lost == pytest.approx(best.fun, rel=1e-9)
