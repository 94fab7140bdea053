"""Permutation tests of models: what is permuted, and that p-values are valid."""

import itertools

import numpy as np
import pytest
from scipy.stats import binom, chisquare
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.compose import TransformedTargetRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    RandomizedSearchCV,
    cross_val_score,
    permutation_test_score,
)
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from mklearn import (
    BilinearMKLClassifier,
    EvidenceMKLRegressor,
    KernelBank,
    MKLClassifier,
    MKLClassifierCV,
    MKLCox,
    MKLDiscriminant,
    MKLRegressor,
    MKLSurvivalSVM,
    MultiView,
    kernels,
)
from mklearn.inference import TestedKernels, kernel_tests, permutation_test
from mklearn.inference.nulls import logistic
from mklearn.inference.permutations import Exchange, permutation_p_values
from mklearn.model_selection import takes_groups

FAMILY = [kernels.RBF(0.5, columns=[0, 1]), kernels.Linear(columns=[2])]


class Spy(BaseEstimator):
    """A model that remembers the target."""

    def fit(self, X, y):
        self.X_, self.y_ = X, y
        return self


class SpyRegressor(RegressorMixin, Spy):
    pass


class SpyClassifier(ClassifierMixin, Spy):
    pass


def covariance(model):
    """Return the squared covariance of the first column and the target."""
    y = np.asarray(model.y_, dtype=float)
    return float(((y - y.mean()) @ model.X_[:, 0]) ** 2)


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 4))
    return X, np.sin(2.0 * X[:, 0]) + X[:, 2] + 0.5 * rng.standard_normal(60)


def labels(y, k=2):
    """Return k classes of numbers."""
    cuts = np.quantile(y, np.arange(1, k) / k)
    return np.array(["a", "b", "c"])[np.digitize(y, cuts)]


# --- reductions -----------------------------------------------------------------------


@pytest.mark.parametrize("k", [2, 3])
def test_without_covariates_it_is_the_test_of_scikit_learn(data, k):
    X, y = data
    given = {"cv": 3, "n_permutations": 9, "random_state": 1}
    for model in (
        make_pipeline(StandardScaler(), MKLClassifier(FAMILY)),
        MKLClassifier(FAMILY, tol=1e-6),
    ):
        found = permutation_test(model, X, labels(y, k), **given)
        score, permuted, p = permutation_test_score(model, X, labels(y, k), **given)
        assert found.statistic == pytest.approx([score])
        assert found.permuted[0] == pytest.approx(permuted)
        assert found.p_values == pytest.approx([p])


@pytest.mark.parametrize("model", [MKLRegressor(FAMILY), EvidenceMKLRegressor(FAMILY)])
def test_numbers_and_another_scoring(data, model):
    X, y = data
    given = {
        "cv": KFold(3),
        "n_permutations": 4,
        "random_state": 2,
        "scoring": "neg_mean_absolute_error",
    }
    found = permutation_test(model, X, y, **given)
    score, permuted, _ = permutation_test_score(model, X, y, **given)
    assert found.statistic == pytest.approx([score], rel=1e-2)
    assert found.permuted[0] == pytest.approx(permuted, rel=1e-2)


@pytest.mark.parametrize("classes", [False, True])
def test_the_statistic_of_kernel_tests_has_its_p_value(data, classes):
    X, y = data
    tested = TestedKernels.of(X, [kernels.RBF(0.5, columns=[j]) for j in range(4)])
    grams = [form.dense() for form in tested.forms]
    given = {"n_permutations": 99, "random_state": 3}
    target = labels(y, 3) if classes else y

    def statistic(model):
        E = model.y_[:, None]
        E = (E == np.unique(E)).astype(float) if classes else E
        E = E - E.mean(axis=0)
        return [np.sum(E * (K @ E)) / np.sum(E**2) for K in grams]

    spy = SpyClassifier() if classes else SpyRegressor()
    found = permutation_test(spy, X, target, statistic=statistic, **given)
    known = kernel_tests(tested, target, method="permutation", **given)
    assert found.statistic == pytest.approx(known.statistic)
    assert found.p_values == pytest.approx(known.p_values)
    assert found.error == pytest.approx(known.error)
    for control in ("joint", "holm", "bh"):
        assert found.adjusted(control) == pytest.approx(known.adjusted(control))


def survival(X, rng):
    time = rng.exponential(np.exp(-2.0 * X[:, 0]))
    return np.column_stack([time, rng.random(len(X)) < 0.7])


@pytest.mark.parametrize(
    "model",
    [
        MKLClassifier(FAMILY),
        MKLClassifierCV(FAMILY, Cs=[0.1, 1.0], norms=[1], cv=2),
        MKLDiscriminant(FAMILY),
        BilinearMKLClassifier(FAMILY),
        MKLRegressor(FAMILY),
        MKLRegressor(FAMILY, approximation="nystroem", rank=20),
        MKLRegressor(FAMILY, fixed=[3]),
        MKLCox(FAMILY),
        MKLSurvivalSVM(FAMILY),
    ],
    ids=lambda model: type(model).__name__,
)
def test_the_score_is_the_cross_validated_one(data, model):
    X, y = data
    X, y = np.vstack([X, X[:4]]), np.append(y, y[:4])  # equal rows are merged in fits
    if isinstance(model, (MKLCox, MKLSurvivalSVM)):
        y = survival(X, np.random.default_rng(1))
    elif not isinstance(model, MKLRegressor):
        y = labels(y, 3)
    found = permutation_test(model, X, y, cv=KFold(3), n_permutations=2)
    expected = cross_val_score(model, X, y, cv=KFold(3)).mean()
    assert found.statistic == pytest.approx([expected], abs=1e-2)
    assert np.isfinite(found.permuted).all()


def test_weights_and_contributions_by_kernel_and_view(data):
    X, y = data
    family = kernels.per_view("linear", "rbf")
    for views, fixed in (
        ({"one": X[:, :2], "two": X[:, 2:]}, None),
        ({"one": X[:, :2], "two": X[:, [2]], "age": X[:, [3]]}, ["age"]),
    ):
        model = MKLRegressor(family, fixed=fixed, tol=1e-8)
        views, target = MultiView(views), y
        fitted = model.fit(views, target)
        for name in ("weights", "contributions"):
            values = getattr(fitted, f"kernel_{name}_")
            found = permutation_test(
                model, views, target, statistic=name, n_permutations=2
            )
            assert found.names == fitted.kernel_names_
            assert found.statistic == pytest.approx(values, rel=1e-2, abs=1e-3)
            found = permutation_test(
                model, views, target, statistic=name, by="view", n_permutations=2
            )
            sums = values.reshape(2, -1).sum(axis=1)
            assert found.names == ("one", "two")
            assert found.statistic == pytest.approx(sums, rel=1e-2, abs=1e-3)


def test_weights_of_each_class(data):
    X, y = data
    model = BilinearMKLClassifier(FAMILY, tol=1e-7)
    found = permutation_test(
        model, X, labels(y, 3), statistic="weights", n_permutations=1
    )
    weights = model.fit(X, labels(y, 3)).kernel_weights_
    assert found.statistic == pytest.approx(weights.ravel(), rel=1e-2, abs=1e-2)
    assert found.names[0].startswith("a: ") and len(found.names) == weights.size


# --- invariances ----------------------------------------------------------------------


def test_units_and_the_order_of_kernels_do_not_matter(data):
    X, y = data
    model = MKLRegressor(FAMILY, tol=1e-8)
    given = {"statistic": "contributions", "n_permutations": 9}
    found = permutation_test(model, X, y, **given)
    for other, target in (
        (MKLRegressor(FAMILY[::-1], tol=1e-8), y),
        (MKLRegressor(FAMILY, tol=1e-8, C=0.01), 10.0 * y - 3.0),
    ):
        if target is not y:
            model = MKLRegressor(FAMILY, tol=1e-8, C=0.01)
            found = permutation_test(model, X, y, **given)
        again = permutation_test(other, X, target, **given)
        order = [again.names.index(name) for name in found.names]
        assert again.p_values[order] == pytest.approx(found.p_values)
        assert again.permuted[order] == pytest.approx(found.permuted, abs=1e-3)


def test_jobs_do_not_change_anything(data):
    X, y = data
    model = MKLRegressor(FAMILY)
    for given in ({}, {"statistic": "weights", "fixed": X[:, [3]]}):
        one, two = (
            permutation_test(model, X, y, n_permutations=7, n_jobs=n_jobs, **given)
            for n_jobs in (None, 2)
        )
        assert np.array_equal(one.permuted, two.permuted)
        assert np.array_equal(one.p_values, two.p_values)


def test_kernels_are_computed_once(data):
    X, y = data
    calls = []

    def linear(A, B):
        calls.append(len(A))
        return A @ B.T

    for statistic in ("score", "weights"):
        counts = []
        for count in (1, 5):
            calls.clear()
            permutation_test(
                MKLRegressor([linear, "rbf"]), X, y,
                statistic=statistic, n_permutations=count,
            )  # fmt: skip
            counts.append(sum(calls))
        assert counts[0] == counts[1] > 0


# --- what is permuted -----------------------------------------------------------------


def targets(model, X, y, **given):
    """Return the targets of permutations, one in each column."""
    given.setdefault("n_permutations", 20)
    if isinstance(model, SpyClassifier):
        found = permutation_test(
            model, X, y, statistic=lambda m: np.searchsorted(m.classes, m.y_)
            if hasattr(m, "classes") else np.unique(m.y_, return_inverse=True)[1],
            **given,
        )  # fmt: skip
    else:
        found = permutation_test(model, X, y, statistic=lambda m: m.y_, **given)
    return found.permuted


def test_numbers_keep_what_covariates_explain(data):
    X, y = data
    Z = X[:, 2:]
    for fixed in (Z, [2, 3]):
        found = targets(SpyRegressor(), X, y, fixed=fixed)
        Q = np.linalg.qr(np.column_stack([np.ones(60), Z]))[0]
        assert Q.T @ found == pytest.approx(np.repeat((Q.T @ y)[:, None], 20, axis=1))
        assert np.sum(found**2, axis=0) == pytest.approx(np.full(20, y @ y))
    plain = targets(SpyRegressor(), X, y)
    assert np.array_equal(np.sort(plain, axis=0)[:, 0], np.sort(y))


def test_strata_and_subjects_keep_their_values(data):
    X, y = data
    groups = np.repeat(np.arange(15), 4)
    for given in ({"groups": groups}, {"strata": groups}):
        found = targets(SpyRegressor(), X, y, **given)
        for g in range(15):
            here = np.sort(found[groups == g], axis=0)
            assert (here == np.sort(y[groups == g])[:, None]).all()
    # labels that are constant within subjects are exchanged between them
    of_subject = np.arange(15) % 3
    for fixed in (None, np.arange(15)[groups] % 4.0):
        given = {"groups": groups, "fixed": fixed}
        found = targets(SpyClassifier(), X, of_subject[groups], **given)
        blocks = found.reshape(15, 4, -1)
        assert (blocks == blocks[:, :1]).all()
        assert (np.sort(blocks[:, 0], axis=0) == np.sort(of_subject)[:, None]).all()
        assert (found != of_subject[groups][:, None]).any(axis=0).any()
        strata = (np.arange(15) // 5)[groups]
        found = targets(SpyClassifier(), X, of_subject[groups], strata=strata, **given)
        for s in range(3):
            here = np.sort(found[strata == s], axis=0)
            assert (here == np.sort(of_subject[groups][strata == s])[:, None]).all()


def test_arrangements_of_labels_follow_the_model():
    # all arrangements are enumerated, and their frequencies compared
    kinds = np.array([0, 0, 1, 1, 2])
    chances = np.log(np.random.default_rng(0).dirichlet(np.ones(3), size=5))
    exchange = Exchange.of(5, kinds[:, None].astype(float))
    every = sorted(set(itertools.permutations(kinds.tolist())))
    assert exchange.possible(kinds) == pytest.approx(len(every))
    weight = np.exp([sum(chances[i, k] for i, k in enumerate(one)) for one in every])
    rng, count = np.random.RandomState(0), 4000
    orders = exchange.drawn_given(chances, kinds, count, rng)
    assert (np.sort(orders, axis=1) == np.arange(5)).all()
    seen = [tuple(kinds[order].tolist()) for order in orders]
    observed = [seen.count(one) for one in every]
    assert chisquare(observed, count * weight / weight.sum()).pvalue > 1e-4


def test_without_information_arrangements_are_uniform():
    kinds = np.repeat([0, 1], [2, 4])
    exchange = Exchange.of(6, kinds[:, None].astype(float))
    orders = exchange.drawn_given(
        np.zeros((6, 2)), kinds, 3000, np.random.RandomState(1)
    )
    first = [tuple(np.flatnonzero(kinds[order] == 0)) for order in orders]
    observed = [first.count(pair) for pair in itertools.combinations(range(6), 2)]
    assert chisquare(observed).pvalue > 1e-4


@pytest.mark.parametrize("k", [2, 3])
def test_the_model_of_labels_is_logistic_regression(data, k):
    X, y = data
    noisy = y + 2.0 * np.random.default_rng(0).standard_normal(60)
    target = labels(noisy, k)
    Z = np.column_stack([np.ones(60), X[:, :2]])
    Y = (target[:, None] == np.unique(target)[1:]).astype(float)
    known = LogisticRegression(C=1e8, tol=1e-10, max_iter=10_000).fit(X[:, :2], target)
    expected = known.predict_proba(X[:, :2])[:, 1:]
    assert logistic(Y, Z) == pytest.approx(expected, abs=1e-4)


# --- validity and power ---------------------------------------------------------------


def simulated(kind, rng, n=48):
    """Return samples, a target that depends on covariates only, and covariates."""
    groups = np.arange(n) // 3 if "subjects" in kind else None
    Z = rng.standard_normal((n, 2))
    noise = rng.logistic(size=n)
    if kind == "subjects, classes":
        Z, noise = Z[groups], noise[groups]
    X = Z[:, :1] + rng.standard_normal((n, 1))
    y = Z[:, 0] + noise
    if groups is not None:
        X = X + rng.standard_normal((n, 1))[groups]
    if kind == "subjects, numbers":
        y = y + 2.0 * rng.standard_normal(n)[groups]
    if kind in ("two classes", "subjects, classes"):
        y = (y > 0).astype(int)
    if kind == "three classes":
        odds = np.column_stack([0.0 * y, Z[:, 0], -Z[:, 0]])
        y = np.argmax(odds + rng.gumbel(size=(n, 3)), axis=1)
    return X, y, Z, groups


KINDS = [
    "numbers", "two classes", "three classes", "subjects, numbers", "subjects, classes"
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_p_values_are_valid_given_covariates_that_samples_depend_on(kind):
    rng, p, careless, draws = np.random.default_rng(len(kind)), [], [], 150
    for _ in range(draws):
        X, y, Z, groups = simulated(kind, rng)
        spy = SpyRegressor() if "numbers" in kind else SpyClassifier()
        given = {
            "statistic": covariance, "groups": groups, "n_permutations": 19,
            "random_state": int(rng.integers(2**31)),
        }  # fmt: skip
        try:
            found = permutation_test(spy, X, y, fixed=Z, **given)
        except ValueError as error:
            assert "separate" in str(error)
            continue
        p.append(found.p_values[0])
        careless.append(permutation_test(spy, X, y, **given).p_values[0])
    assert len(p) > 0.9 * draws
    for level in (0.05, 0.2, 0.5):
        small = int(np.sum(np.array(p) <= level + 1e-12))
        assert binom.sf(small - 1, len(p), level) > 1e-4
    # without covariates far too many p-values are small
    small = int(np.sum(np.array(careless) <= 0.2 + 1e-12))
    assert binom.sf(small - 1, len(p), 0.2) < 1e-4


def test_a_label_that_follows_a_covariate_and_one_that_does_not():
    rng = np.random.default_rng(0)
    age = rng.standard_normal(150)
    X = np.column_stack(
        [age + 0.5 * rng.standard_normal(150), rng.standard_normal(150)]
    )
    model = MKLClassifier(kernels.per_feature("linear"))
    ill = (1.5 * age + rng.logistic(size=150) > 0).astype(int)
    given = {"n_permutations": 39}
    assert permutation_test(model, X, ill, **given).p_values[0] == 1 / 40
    assert permutation_test(model, X, ill, fixed=age, **given).p_values[0] > 0.05
    ill = (1.5 * age + 2.5 * X[:, 1] + rng.logistic(size=150) > 0).astype(int)
    assert permutation_test(model, X, ill, fixed=age, **given).p_values[0] == 1 / 40


def test_covariates_of_the_model_are_kept(data):
    X, y = data
    y = y + 3.0 * X[:, 3]
    model = MKLRegressor(FAMILY, fixed=[3])
    given = {"n_permutations": 9}
    found = permutation_test(model, X, y, **given)
    assert len(found.covariates) == 1
    again = permutation_test(model, X, y, fixed=X[:, 3], **given)
    assert np.array_equal(found.permuted, again.permuted)
    # permuted targets still depend on the covariate, so that they are predicted, too
    none = permutation_test(model, X, y, fixed=(), **given)
    assert none.covariates == () and found.permuted.min() > none.permuted.max()
    bank = KernelBank.from_grams(
        np.stack([X[:, :2] @ X[:, :2].T, np.outer(X[:, 2], X[:, 2])], axis=-1),
        covariates={"age": X[:, 3]},
    )
    given["fixed"] = "age"
    known = permutation_test(
        MKLRegressor("precomputed", fixed="age"), bank, y, n_permutations=9
    )
    assert known.covariates == ("age",)


def test_folds_keep_subjects_together():
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(40), 3)
    X = rng.standard_normal((40, 2))[groups] + 1e-3 * rng.standard_normal((120, 2))
    y = (np.arange(40) % 2)[groups]
    model = KNeighborsClassifier(1)
    apart = permutation_test(model, X, y, groups=groups, n_permutations=39)
    assert apart.statistic[0] < 0.8 and apart.p_values[0] > 0.05
    careless = permutation_test(
        model, X, y, cv=KFold(5, shuffle=True, random_state=0), n_permutations=39
    )
    assert careless.statistic[0] > 0.8 and careless.p_values[0] == 1 / 40


def test_searches_get_the_subjects(data):
    X, y = data
    groups = np.repeat(np.arange(20), 3)
    seen = []

    class Splitter(GroupKFold):
        def split(self, X, y=None, groups=None):
            seen.append(groups)
            return super().split(X, y, groups)

    model = MKLClassifierCV(FAMILY, Cs=[1.0], norms=[1], cv=Splitter(2))
    permutation_test(model, X, labels(y), groups=groups, cv=3, n_permutations=1)
    assert seen and all(one is not None for one in seen)


def test_times_are_permuted_with_their_events_within_strata(data):
    X, _ = data
    y = survival(X, np.random.default_rng(1))
    found = permutation_test(MKLCox(FAMILY), X, y, cv=3, n_permutations=19)
    assert found.p_values[0] <= 0.1
    strata = np.arange(60) % 2
    pairs = permutation_test(
        Spy(), X, y, strata=strata, n_permutations=3,
        statistic=lambda m: m.y_["time"] + 1000.0 * m.y_["event"],
    ).permuted  # fmt: skip
    for s in (0, 1):
        known = np.sort((y[:, 0] + 1000.0 * y[:, 1])[strata == s])
        assert np.sort(pairs[strata == s], axis=0) == pytest.approx(
            np.repeat(known[:, None], 3, axis=1)
        )


# --- early ends -----------------------------------------------------------------------


def test_the_permutations_so_far_are_kept(data):
    X, y = data
    given = {"statistic": covariance, "n_permutations": 50}
    whole = permutation_test(SpyRegressor(), X, y, **given)
    seen = []

    def callback(done, asked):
        seen.append((done, asked))
        return done == 7

    with pytest.warns(ConvergenceWarning, match="after 7 of 50 permutations"):
        found = permutation_test(SpyRegressor(), X, y, callback=callback, **given)
    assert seen[-1] == (7, 50) and found.n_permutations == 7
    assert np.array_equal(found.permuted, whole.permuted[:, :7])
    larger = np.sum(found.permuted >= found.statistic[0])
    assert found.p_values == pytest.approx([(1 + larger) / 8])
    assert found.resolution == 1 / 8


def test_ctrl_c_and_time_limits_keep_what_there_is(data):
    X, y = data
    calls = []

    def statistic(model):
        calls.append(1)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return covariance(model)

    with pytest.warns(ConvergenceWarning, match="Ctrl-C stopped it"):
        found = permutation_test(SpyRegressor(), X, y, statistic=statistic)
    assert found.n_permutations == 3
    with pytest.warns(ConvergenceWarning, match="time_limit was reached"):
        found = permutation_test(
            SpyRegressor(), X, y, statistic=covariance, time_limit=0.0
        )
    assert found.n_permutations == 0
    assert found.p_values == found.joint == found.resolution == 1.0
    assert np.isfinite(found.error).all()
    assert found.frame()["p"].tolist() == [1.0]


def test_ctrl_c_before_there_is_a_statistic(data):
    def statistic(model):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        permutation_test(SpyRegressor(), *data, statistic=statistic)


# --- results and errors ---------------------------------------------------------------


def test_the_table(data):
    X, y = data
    found = permutation_test(
        MKLRegressor(FAMILY), X, y, statistic="weights", n_permutations=9
    )
    frame = found.frame("holm")
    assert list(frame["name"]) == list(found.names)
    assert np.array_equal(frame["p (holm)"], found.adjusted("holm"))
    assert (found.adjusted("joint") >= found.p_values).all()
    assert found.error == pytest.approx(
        np.sqrt(found.p_values * (1 - found.p_values) / 9)
    )


def test_few_arrangements_limit_the_p_value(data):
    X = data[0][:6]
    y = np.array([0, 0, 1, 0, 0, 0])
    found = permutation_test(
        SpyClassifier(), X, y, statistic=lambda m: float(m.y_[2]), n_permutations=200
    )
    assert found.resolution == pytest.approx(1 / 6)
    assert found.p_values[0] >= 1 / 6


def test_errors(data):
    X, y = data
    two = labels(y)
    groups = np.repeat(np.arange(20), 3)
    spy = SpyRegressor()

    def refuses(match, model=spy, y=y, error=ValueError, X=X, **given):
        with pytest.raises(error, match=match):
            permutation_test(model, X, y, **{"statistic": covariance, **given})

    refuses("must be an estimator with fit", model=3)
    refuses("got the class SpyRegressor", model=SpyRegressor)
    refuses("a whole number, got 2.5", n_permutations=2.5)
    refuses("at least 1, got 0", n_permutations=0)
    refuses("or one of .*'score'.*got 'sizes'", statistic="sizes")
    refuses("a name or a function", statistic=3)
    refuses("by must be 'kernel' or 'view'", by="views")
    refuses("at least one fold", model=MKLRegressor(FAMILY), statistic="score", cv=[])
    refuses("scoring= is for statistic='score'", scoring="r2")
    refuses("shape \\(2, 2\\)", statistic=lambda m: np.ones((2, 2)))
    refuses("shape \\(0,\\)", statistic=lambda m: [])
    refuses("The statistic is nan for y", statistic=lambda m: np.nan)
    refuses(
        "The statistic is inf for permutation",
        statistic=lambda m: 0.0 if np.array_equal(m.y_, y) else np.inf,
    )
    refuses(
        "1 value for y, but 2 for permutation 0",
        statistic=lambda m: np.zeros(1 + (not np.array_equal(m.y_, y))),
    )
    refuses("with kernel weights, got SpyRegressor", statistic="weights")
    refuses("only one value, so there is nothing", y=np.ones(60))
    refuses("missing or infinite", y=np.append(y[1:], np.nan))
    refuses("a value for each of 60 samples", y=y[:-1])
    refuses("groups has only one value", groups=np.zeros(60))
    refuses("no two subjects have the same", y=np.array([0.0, 1, 1]), X=X[:3],
            groups=[0, 1, 1])  # fmt: skip
    refuses("only one value in each of them", y=groups % 2 * 1.0, strata=groups % 2)
    refuses("strata has 3 values", strata=[1, 2, 3])
    refuses("leaves nothing for the kernels", fixed=y)
    refuses(
        "separate the two classes",
        model=SpyClassifier(),
        y=two,
        fixed=(two == "a") * 1.0,
    )
    refuses("Times to an event cannot be permuted given covariates",
            model=MKLCox(FAMILY), y=survival(X, np.random.default_rng(0)),
            fixed=X[:, 0], statistic="weights")  # fmt: skip
    refuses(
        "has a model with covariates .*__fixed",
        model=make_pipeline(StandardScaler(), MKLRegressor(FAMILY, fixed=[3])),
        statistic="score",
    )
    refuses(
        "one label for each sample", model=SpyClassifier(), fixed=X[:, 0],
        y=np.column_stack([two, two[::-1]]),
    )  # fmt: skip


@pytest.mark.parametrize("count", [9, 19, 99])
def test_joint_p_values_of_few_permutations_are_valid(count):
    rng, draws = np.random.default_rng(count), 400
    least = [
        permutation_p_values(
            rng.standard_normal(50), rng.standard_normal((50, count)), 1 / (count + 1)
        )[2].min()
        for _ in range(draws)
    ]
    for level in (0.05, 0.1, 0.2):
        small = int(np.sum(np.array(least) <= level + 1e-12))
        assert binom.sf(small - 1, draws, level) > 1e-4


# --- differences between subjects or strata -------------------------------------------


def differing(kind, corr, rng, n=60, size=3):
    """Return a target with effects of subjects, which covariates may be related to.

    Given covariates and subjects, the target does not depend on the samples.
    """
    groups = np.arange(n) // size
    effect = 2.0 * rng.standard_normal(n)[groups]
    Z = rng.standard_normal(n) - corr * effect
    means = Z.reshape(-1, size).mean(axis=1)[groups]
    X = (Z - means + 0.5 * rng.standard_normal(n))[:, None]
    y = Z + effect + rng.logistic(size=n)
    if kind == "two classes":
        y = (y > 0).astype(int)
    if kind == "three classes":
        y = labels(y, 3)
    if kind == "times":
        y = np.column_stack([rng.exponential(np.exp(-y)), rng.random(n) < 0.7])
    return X, y, Z, groups


def codes(model):
    """Return the covariance for any labels."""
    y = np.unique(model.y_, return_inverse=True)[1].astype(float)
    return float(((y - y.mean()) @ model.X_[:, 0]) ** 2)


def not_too_small(p):
    """Return whether p-values are valid as far as their number shows."""
    return all(
        binom.sf(int(np.sum(np.array(p) <= level + 1e-12)) - 1, len(p), level) > 1e-4
        for level in (0.05, 0.2, 0.5)
    )


@pytest.mark.parametrize("way", ["groups", "strata"])
@pytest.mark.parametrize("kind", ["numbers", "two classes", "three classes"])
def test_covariates_that_differ_between_subjects_or_strata(kind, way):
    rng, p = np.random.default_rng(0), []
    spy = SpyRegressor() if kind == "numbers" else SpyClassifier()
    statistic = covariance if kind == "numbers" else codes
    for size in (3, 20):
        for k in range(60):
            X, y, Z, groups = differing(kind, 0.7, rng, size=size)
            try:
                found = permutation_test(
                    spy, X, y, statistic=statistic, fixed=Z, n_permutations=19,
                    random_state=k, **{way: groups},
                )  # fmt: skip
            except ValueError as error:
                assert "separate" in str(error)
                continue
            p.append(found.p_values[0])
    assert len(p) > 100 and not_too_small(p)


@pytest.mark.parametrize("kind", ["numbers", "two classes", "three classes", "times"])
def test_kernel_tests_with_covariates_that_differ_between_subjects(kind):
    rng, p = np.random.default_rng(1), []
    for k in range(100):
        X, y, Z, groups = differing(kind, 0.7, rng)
        X = TestedKernels.of(X, kernels.Linear())
        found = kernel_tests(
            X, y, fixed=Z, groups=groups, method="permutation", n_permutations=19,
            random_state=k,
        )  # fmt: skip
        p.append(found.p_values[0])
    assert not_too_small(p)


@pytest.mark.parametrize("classes", [False, True])
def test_sizes_of_subjects_that_are_related_to_covariates(classes):
    rng, p, known = np.random.default_rng(3), [], []
    sizes = np.repeat([1, 2, 3], 20)
    groups = np.repeat(np.arange(60), sizes)
    effect = 2.0 * (sizes - 2)
    for k in range(60):
        base = rng.standard_normal(60)
        y = base + effect + rng.logistic(size=60)
        y = (y > 0).astype(int)[groups] if classes else y[groups]
        X = (base + 0.4 * rng.standard_normal(60))[groups][:, None]
        given = {
            "fixed": (base - effect)[groups], "groups": groups, "n_permutations": 19,
            "random_state": k,
        }  # fmt: skip
        spy = SpyClassifier() if classes else SpyRegressor()
        p.append(permutation_test(spy, X, y, statistic=covariance, **given).p_values[0])
        tested = TestedKernels.of(X, kernels.Linear())
        found = kernel_tests(tested, y, method="permutation", **given)
        known.append(found.p_values[0])
    assert not_too_small(p) and not_too_small(known)


def test_means_of_strata_are_kept_whatever_the_covariates(data):
    X, y = data
    strata = np.arange(60) % 3
    shifted = y + 100.0 * strata
    given = {"fixed": X[:, 2:], "strata": strata}
    found = targets(SpyRegressor(), X, y, **given)
    again = targets(SpyRegressor(), X, shifted, **given)
    assert again - 100.0 * strata[:, None] == pytest.approx(found)
    for s in range(3):
        means = found[strata == s].mean(axis=0)
        assert means == pytest.approx(np.full(20, y[strata == s].mean()))
    # a covariate that is constant within strata has no effect there
    of_stratum = targets(SpyRegressor(), X, y, fixed=strata * 1.0, strata=strata)
    without = targets(SpyRegressor(), X, y, strata=strata)
    assert of_stratum == pytest.approx(without)


def test_slopes_of_labels_are_those_of_pairs():
    # with two samples in each stratum this is conditional logistic regression, which is
    # logistic regression on differences, without intercept
    rng = np.random.default_rng(0)
    Z = rng.standard_normal((80, 2))
    pairs = np.arange(80) // 2
    kinds = (Z[:, 0] + 3.0 * rng.standard_normal(80)[pairs] + rng.logistic(size=80)) > 0
    kinds = kinds.astype(np.intp)
    exchange = Exchange.of(80, kinds[:, None], None, pairs)
    odds = exchange.odds_within(Z, kinds)
    D, differ = Z[1::2] - Z[::2], kinds[1::2] != kinds[::2]
    known = LogisticRegression(C=1e8, fit_intercept=False, tol=1e-10, max_iter=10_000)
    known.fit(D[differ], kinds[1::2][differ])
    assert odds[:, 1] - odds[:, 0] == pytest.approx(Z @ known.coef_[0], abs=1e-4)


def test_whole_subjects_within_strata_that_differ():
    rng, p = np.random.default_rng(2), []
    strata, groups = np.repeat(np.arange(3), 40), np.arange(120) // 2
    for k in range(100):
        effect = 3.0 * rng.standard_normal(3)[strata]
        base = rng.standard_normal(120)[groups]
        X = (base + 0.3 * rng.standard_normal(120))[:, None]
        y = base + effect + rng.standard_normal(120)[groups]
        found = permutation_test(
            SpyRegressor(), X, y, statistic=covariance, fixed=base - effect,
            groups=groups, strata=strata, n_permutations=19, random_state=k,
        )  # fmt: skip
        p.append(found.p_values[0])
    assert not_too_small(p)


# --- models within others, and unusual input ------------------------------------------


def test_weights_of_models_within_others(data):
    X, y = data
    given = {"statistic": "weights", "n_permutations": 1}
    model = MKLRegressor(FAMILY)
    search = GridSearchCV(model, {"C": [1.0]}, cv=2)
    expected = permutation_test(
        make_pipeline(StandardScaler(), model), X, y, **given
    ).statistic
    found = permutation_test(make_pipeline(StandardScaler(), search), X, y, **given)
    assert found.statistic == pytest.approx(expected)
    plain = permutation_test(search, X, y, **given).statistic
    found = permutation_test(TransformedTargetRegressor(search), X, y, **given)
    assert found.statistic == pytest.approx(plain)


@pytest.mark.parametrize("statistic", ["score", "weights"])
def test_searches_of_scikit_learn_get_the_subjects(data, statistic):
    X, y = data
    groups = np.repeat(np.arange(20), 3)
    for search in (
        GridSearchCV(MKLClassifier(FAMILY), {"C": [1.0]}, cv=GroupKFold(2)),
        RandomizedSearchCV(
            MKLClassifier(FAMILY), {"C": [1.0]}, n_iter=1, cv=GroupKFold(2)
        ),
    ):
        assert takes_groups(search)
        found = permutation_test(
            search, X, labels(y), statistic=statistic, groups=groups, n_permutations=1
        )
        assert np.isfinite(found.statistic).all()


def test_covariates_of_the_model_as_an_array(data):
    X, y = data
    found, again = (
        permutation_test(MKLRegressor(FAMILY, fixed=fixed), X, y, n_permutations=2)
        for fixed in ([3], np.array([3]))
    )
    assert np.array_equal(found.permuted, again.permuted)


def test_numbers_stored_as_objects_are_numbers(data):
    X, y = data
    given = {"fixed": X[:, 3], "n_permutations": 2}
    found = permutation_test(MKLRegressor(FAMILY), X, y, **given)
    again = permutation_test(MKLRegressor(FAMILY), X, y.astype(object), **given)
    assert np.array_equal(found.permuted, again.permuted)


def test_more_errors(data):
    X, y = data

    spy, two = SpyClassifier(), labels(y)

    def refuses(match, model=spy, X=X, y=two, **given):
        with pytest.raises(ValueError, match=match):
            permutation_test(model, X, y, **{"statistic": codes, **given})

    missing = two.astype(object)
    for value in (None, np.nan):
        missing[3] = value
        refuses("label of 1 sample is missing, first in row 3", y=missing)
    refuses("y contains something other than numbers", model=SpyRegressor(), y=missing)
    for limit in (-1, np.nan, "1"):
        refuses("time_limit must be a number of seconds", time_limit=limit)
    refuses(
        "name of one score", MKLClassifier(FAMILY), statistic="score",
        scoring=["accuracy", "f1_macro"],
    )  # fmt: skip
    refuses(
        "must return one number, got a mapping", MKLClassifier(FAMILY),
        statistic="score", scoring=lambda model, X, y: {"a": 1.0},
    )  # fmt: skip
    refuses("array of numbers, got str", statistic=lambda model: "a")
    refuses("X must contain samples, got NoneType", X=None)
    refuses(
        "only one value in each of them", model=SpyRegressor(), y=y, fixed=X[:, 3],
        strata=np.arange(60),
    )  # fmt: skip
