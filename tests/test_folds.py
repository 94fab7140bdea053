"""One fold engine: whatever chooses by cross-validation chooses from the same folds."""

import warnings

import numpy as np
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.model_selection import (
    GroupKFold,
    KFold,
    LeaveOneGroupOut,
    StratifiedKFold,
    cross_validate,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import (
    check_sample_weight_equivalence_on_dense_data,
    check_sample_weight_equivalence_on_sparse_data,
)

from cases import samples, stack
from mklearn import (
    AlignmentMKLClassifier,
    BestKernelClassifier,
    MKLClassifier,
    MKLClassifierCV,
    MKLCox,
    MKLDiscriminant,
    MKLOneClass,
    MKLRegressor,
    MKLRegressorCV,
    SingleKernelCV,
    SubspaceClassifier,
    SubspaceClassifierCV,
    UniformMKLClassifier,
)
from mklearn.data.checks import NothingToLearnError
from mklearn.data.subjects import group_folds
from mklearn.estimators import _folds
from mklearn.interpretation import weight_stability
from mklearn.kernels import RBF, Linear
from mklearn.model_selection import compare
from mklearn.solvers.alternating import Alternating
from mklearn.solvers.newton import Newton

# no width or scale that follows from the samples: folds know the kernels they get
KERNELS = [Linear(), RBF(0.1), RBF(1.0)]
COSTS, NORMS, REGS = [0.3, 3.0], [1, 2], [0.05, 0.5]


def path_cells(cls):
    return [[cls(KERNELS, C=C, norm=p, tol=1e-8) for C in COSTS] for p in NORMS]


# what searches, the models that it compares, and where their scores are
SEARCHES = {
    "classifier": (
        MKLClassifierCV(KERNELS, Cs=COSTS, norms=NORMS, tol=1e-8),
        path_cells(MKLClassifier),
        "scores_",
    ),
    "regressor": (
        MKLRegressorCV(KERNELS, Cs=COSTS, norms=NORMS, tol=1e-8),
        path_cells(MKLRegressor),
        "scores_",
    ),
    "best": (
        BestKernelClassifier(KERNELS, tol=1e-8),
        [MKLClassifier(kernel, norm=1, tol=1e-8) for kernel in KERNELS],
        "cv_scores_",
    ),
    "single svm": (
        SingleKernelCV(MKLClassifier(norm=1, tol=1e-8), KERNELS, values=COSTS),
        [[MKLClassifier(k, C=C, norm=1, tol=1e-8) for C in COSTS] for k in KERNELS],
        "cv_scores_",
    ),
    "single discriminant": (
        SingleKernelCV(MKLDiscriminant(), KERNELS, values=REGS),
        [[MKLDiscriminant(kernel, reg=reg) for reg in REGS] for kernel in KERNELS],
        "cv_scores_",
    ),
    "subspace": (
        SubspaceClassifierCV(KERNELS, regs=REGS, Cs=COSTS, relative=False, tol=1e-8),
        [
            [[SubspaceClassifier(k, reg=r, C=C, tol=1e-8) for C in COSTS] for r in REGS]
            for k in KERNELS
        ],
        "scores_",
    ),
    "subspace of all": (
        SubspaceClassifierCV(
            KERNELS, combine=True, regs=REGS, Cs=COSTS, relative=False, tol=1e-8
        ),
        [[[SubspaceClassifier(KERNELS, reg=r, C=C, tol=1e-8) for C in COSTS]
          for r in REGS]],
        "scores_",
    ),
}  # fmt: skip
every_search = pytest.mark.parametrize("name", SEARCHES)


def data(name, n=30):
    """Return rows that come three times, with other weights, in other folds."""
    X, y = samples(n)
    rng = np.random.default_rng(3)
    if name == "regressor":
        y = np.sin(2 * X[:, 0]) + 0.3 * rng.normal(size=n)
    else:
        y = np.where(rng.random(n) < 0.2, 1 - y, y)
    rows = np.concatenate([rng.permutation(n) for _ in range(3)])
    weight = rng.uniform(0.1, 4.0, 3 * n)
    weight[rng.choice(3 * n, 12, replace=False)] = 0.0
    return X[rows], y[rows], weight, np.arange(3 * n) % 3


def by_hand(models, X, y, weight, folds):
    """Return the score of each model on each fold, shape (*models, n_folds)."""
    if isinstance(models, list):
        return np.stack([by_hand(model, X, y, weight, folds) for model in models])
    scores = []
    for a, b in folds:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            model = clone(models).fit(X[a], y[a], sample_weight=weight[a])
        scores.append(model.score(X[b], y[b], sample_weight=weight[b]))
    return np.array(scores)


def rough(search):
    """Return a search that does the same faster, where answers are only compared."""
    loose = dict.fromkeys((p for p in search.get_params() if p.endswith("tol")), 1e-2)
    return clone(search).set_params(**loose)


def found(name, model):
    _, _, attribute = SEARCHES[name]
    return getattr(model, attribute)


# --- weights --------------------------------------------------------------------------


@every_search
def test_equal_rows_keep_their_own_weights_on_folds(name):
    X, y, weight, where = data(name)
    folds = list(LeaveOneGroupOut().split(X, y, where))
    search, models, _ = SEARCHES[name]
    model = clone(search).set_params(cv=folds).fit(X, y, sample_weight=weight)
    expected = by_hand(models, X, y, weight, folds)
    if found(name, model).ndim < expected.ndim:
        expected = expected.mean(axis=-1)
    np.testing.assert_allclose(found(name, model), expected, atol=1e-5)


@pytest.mark.parametrize(
    "model",
    [
        SubspaceClassifierCV(),
        BestKernelClassifier(),
        SingleKernelCV(MKLDiscriminant()),
        MKLClassifierCV(Cs=3, norms=[1, 2]),
    ],
    ids=lambda model: type(model).__name__,
)
def test_weights_are_repetitions_with_default_grids(model):
    name = type(model).__name__
    check_sample_weight_equivalence_on_dense_data(name, model)
    check_sample_weight_equivalence_on_sparse_data(name, model)


@pytest.mark.parametrize("name", ["best", "single svm", "subspace"])
def test_whole_numbers_of_folds_are_folds_of_rows_with_weight(name):
    X, y, weight, _ = data(name)
    search, _, _ = SEARCHES[name]
    rows = np.flatnonzero(weight)
    folds = [(rows[a], rows[b]) for a, b in StratifiedKFold(3).split(X[rows], y[rows])]
    by_number = clone(search).set_params(cv=3).fit(X, y, sample_weight=weight)
    given = clone(search).set_params(cv=folds).fit(X, y, sample_weight=weight)
    np.testing.assert_array_equal(found(name, by_number), found(name, given))


# --- groups ---------------------------------------------------------------------------


@every_search
def test_groups_reach_the_splitter(name):
    X, y, weight, _ = data(name, 16)
    groups = np.random.default_rng(5).integers(0, 6, len(y))
    search, _, _ = SEARCHES[name]
    folds = list(GroupKFold(3).split(X, y, groups))
    given = clone(search).set_params(cv=folds).fit(X, y, sample_weight=weight)
    model = clone(search).set_params(cv=GroupKFold(3))
    model.fit(X, y, sample_weight=weight, groups=groups)
    np.testing.assert_array_equal(found(name, model), found(name, given))
    with config_context(enable_metadata_routing=True):
        routed = clone(model).fit(X, y, sample_weight=weight, groups=groups)
    np.testing.assert_array_equal(found(name, routed), found(name, given))
    with pytest.raises(ValueError, match="groups"):
        clone(model).fit(X, y)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        clone(model).fit(X, y, groups=groups[1:])


@every_search
def test_groups_are_routed_to_a_splitter(name):
    X, y, weight, _ = data(name, 16)
    groups = np.random.default_rng(5).integers(0, 6, len(y))
    search = rough(SEARCHES[name][0]).set_params(cv=GroupKFold(2))
    with config_context(enable_metadata_routing=True):
        search.set_fit_request(sample_weight=True)
        pipe = make_pipeline(StandardScaler().set_fit_request(sample_weight=False))
        pipe.steps.append(("model", search))
        pipe.fit(X, y, sample_weight=weight, groups=groups)
        result = cross_validate(
            search.set_score_request(sample_weight=False), X, y, cv=GroupKFold(2),
            params={"sample_weight": weight, "groups": groups},
            return_estimator=True, return_indices=True, error_score="raise",
        )  # fmt: skip
        for a, model in zip(
            result["indices"]["train"], result["estimator"], strict=True
        ):
            folds = list(GroupKFold(2).split(X[a], y[a], groups[a]))
            own = clone(search).set_params(cv=folds)
            own.fit(X[a], y[a], sample_weight=weight[a])
            np.testing.assert_array_equal(found(name, model), found(name, own))
        # no splitter that has asked for them
        with pytest.raises(TypeError, match="groups"):
            clone(search).set_params(cv=KFold(2)).fit(X, y, groups=groups)
    Z = StandardScaler().fit_transform(X)
    own = clone(search).set_params(cv=list(GroupKFold(2).split(Z, y, groups)))
    own.fit(Z, y, sample_weight=weight)
    np.testing.assert_array_equal(found(name, pipe[-1]), found(name, own))


@every_search
@pytest.mark.parametrize("cv", [2, None])
def test_groups_are_routed_to_a_number_of_folds(name, cv):
    X, y, _, _ = data(name, 16)
    groups = np.random.default_rng(5).integers(0, 8, len(y))
    search = rough(SEARCHES[name][0]).set_params(cv=cv)
    expected = clone(search).fit(X, y, groups=groups)
    plain = clone(search).fit(X, y)
    assert not np.array_equal(found(name, expected), found(name, plain))
    with config_context(enable_metadata_routing=True):
        routed = clone(search).fit(X, y, groups=groups)
        np.testing.assert_array_equal(found(name, routed), found(name, expected))
        with pytest.raises(UnsetMetadataPassedError, match="groups"):
            make_pipeline(StandardScaler(), search).fit(X, y, groups=groups)
        asking = clone(search).set_fit_request(groups=True)
        pipe = make_pipeline(StandardScaler(), asking).fit(X, y, groups=groups)
        result = cross_validate(
            asking, X, y, cv=GroupKFold(2), params={"groups": groups},
            return_estimator=True, return_indices=True, error_score="raise",
        )  # fmt: skip
        ignoring = clone(search).set_fit_request(groups=False)
        ignored = cross_validate(
            ignoring, X, y, cv=GroupKFold(2), params={"groups": groups},
            return_estimator=True, error_score="raise",
        )["estimator"]  # fmt: skip
    Z = StandardScaler().fit_transform(X)
    again = clone(search).fit(Z, y, groups=groups)
    np.testing.assert_array_equal(found(name, pipe[-1]), found(name, again))
    rows = result["indices"]["train"]
    for a, model, without in zip(rows, result["estimator"], ignored, strict=True):
        inner = clone(search).fit(X[a], y[a], groups=groups[a])
        np.testing.assert_array_equal(found(name, model), found(name, inner))
        alone = clone(search).fit(X[a], y[a])
        np.testing.assert_array_equal(found(name, without), found(name, alone))


def test_comparisons_pass_groups_to_inner_folds_with_routing():
    X, y = samples(40)
    groups = np.arange(40) // 2 % 9
    search = clone(SEARCHES["classifier"][0]).set_params(cv=2)
    scores = []

    def watch(_, fitted, split):
        scores.append(fitted.scores_)

    compare({"search": search}, X, y, cv=2, groups=groups, watch=watch)
    with config_context(enable_metadata_routing=True):
        compare({"search": search}, X, y, cv=2, groups=groups, watch=watch)
        asking = {"search": clone(search).set_fit_request(groups=True)}
        compare(asking, X, y, cv=2, groups=groups, watch=watch)
        ignoring = {"search": clone(search).set_fit_request(groups=False)}
        compare(ignoring, X, y, cv=2, groups=groups, watch=watch)
    np.testing.assert_array_equal(scores[:2], scores[2:4])
    np.testing.assert_array_equal(scores[:2], scores[4:6])
    assert not np.array_equal(scores[:2], scores[6:])


@every_search
def test_a_number_of_folds_keeps_groups_together(name, monkeypatch):
    X, y, _, where = data(name)
    seen = []

    class Watched:
        """The splitter that is made of the groups, and what it does."""

        def __init__(self, count, groups, known, classifier):
            self.inner = group_folds(count, groups, known, classifier)
            self.groups = groups

        def split(self, *args, **groups):
            for train, test in self.inner.split(*args, **groups):
                seen.append((set(self.groups[train]), set(self.groups[test])))
                yield train, test

    monkeypatch.setattr(_folds, "group_folds", Watched)
    clone(SEARCHES[name][0]).set_params(cv=2).fit(X, y, groups=where)
    assert len(seen) == 2
    assert all(train.isdisjoint(test) and test for train, test in seen)
    assert seen[0][1] | seen[1][1] == set(where)


# --- mistakes and ends ----------------------------------------------------------------


@every_search
def test_folds_that_nothing_can_be_learned_from_are_named(name):
    X, y, _, _ = data(name)
    first = np.flatnonzero((X == X[0]).all(axis=1))
    search = clone(SEARCHES[name][0])
    with pytest.raises(ValueError, match="Fold 0 has 1 distinct training samples"):
        search.set_params(cv=[(first, np.arange(9))]).fit(X, y)
    with pytest.raises(ValueError, match="0 test samples"):
        search.set_params(cv=[(np.arange(60), [])]).fit(X, y)
    with pytest.raises(ValueError, match="at least one fold"):
        search.set_params(cv=[]).fit(X, y)
    if name != "regressor":
        one = np.flatnonzero(y == 0)
        with pytest.raises(ValueError, match="no samples of the classes"):
            search.set_params(cv=[(one, np.arange(9))]).fit(X, y)


@every_search
def test_ctrl_c_ends_the_search(name, monkeypatch):
    if name in ("single discriminant", "subspace"):
        pytest.skip("one kernel, in closed form")

    def interrupted(self, problem, start):
        raise KeyboardInterrupt
        yield

    for solver in (Newton, Alternating):
        monkeypatch.setattr(solver, "iterates", interrupted)
    X, y, _, _ = data(name)
    with pytest.raises(KeyboardInterrupt):
        clone(SEARCHES[name][0]).set_params(cv=2).fit(X, y)


@pytest.mark.parametrize("name", ["best", "single svm", "single discriminant"])
def test_a_kernel_that_says_nothing_on_a_fold_has_score_zero_there(name):
    X, y = samples(40)
    grams = np.dstack([np.zeros((40, 40)), stack(X)[:, :, 1]])
    grams[0, 0, 0] = 1.0  # not zero everywhere, but on all folds without this sample
    search = clone(SEARCHES[name][0]).set_params(kernels="precomputed", cv=2)
    model = search.set_params(cv=[(np.arange(1, 21), np.arange(21, 40))]).fit(grams, y)
    assert not found(name, model)[0].any()
    assert model.best_index_ == 1


def test_nothing_to_learn_from_is_an_error_of_its_own():
    y = np.arange(20) % 2
    with pytest.raises(NothingToLearnError, match="nothing to learn"):
        MKLClassifier("precomputed").fit(np.ones((20, 20, 2)), y)
    even = np.repeat([[-2.0], [-1.0], [1.0], [2.0]], 2, axis=0)  # in both classes
    with pytest.raises(NothingToLearnError, match="nothing to learn"):
        SubspaceClassifier(Linear()).fit(even, np.arange(8) % 2)


def test_too_few_groups_are_named():
    X, y = samples(40)
    numbers = X[:, 0]
    search = MKLRegressorCV(KERNELS, Cs=[1.0], norms=[1])
    one = np.zeros(40)
    with pytest.raises(ValueError, match="at least two groups, but there is only one"):
        search.fit(X, numbers, groups=one)
    message = "at least two groups of each class, but there is only one"
    model = MKLClassifierCV(KERNELS, Cs=[1.0], norms=[1])
    with pytest.raises(ValueError, match=message):
        model.fit(X, y, groups=one)
    with pytest.raises(ValueError, match="each class, but class 1 is in only one"):
        model.fit(X, y, groups=np.where(y == 1, 0, np.arange(40)))
    three = np.arange(40) % 3  # of five folds there are three
    assert search.fit(X, numbers, groups=three).scores_.shape[-1] == 3
    assert model.fit(X, y, groups=three).scores_.shape[-1] == 3


@pytest.mark.parametrize("estimator", [MKLRegressor(), MKLCox(), MKLOneClass()])
def test_a_single_kernel_is_chosen_for_classifiers(estimator):
    X, _ = samples(20)
    with pytest.raises(ValueError, match=r"needs a classifier .* select='one'"):
        SingleKernelCV(estimator, KERNELS).fit(X, X[:, 0])
    one = MKLRegressorCV(KERNELS, Cs=[1.0], norms=[1], select="one").fit(X, X[:, 0])
    assert np.count_nonzero(one.kernel_weights_) == 1


# --- what searches do not offer -------------------------------------------------------


@pytest.mark.parametrize(
    "model",
    [
        MKLClassifierCV(),
        MKLRegressorCV(),
        BestKernelClassifier(),
        UniformMKLClassifier(),
        AlignmentMKLClassifier(),
    ],
    ids=lambda model: type(model).__name__,
)
def test_what_has_no_approximation_has_no_sums(model):
    assert not hasattr(model, "accumulator")
    assert not hasattr(model, "fit_statistics")
    for plain in (MKLClassifier(), MKLRegressor(), MKLDiscriminant()):
        assert hasattr(plain, "accumulator") and hasattr(plain, "fit_statistics")


# --- other folds ----------------------------------------------------------------------


def test_comparisons_and_resamples_take_groups():
    X, y = samples(24)
    groups = np.arange(24) // 2 % 5
    folds = list(GroupKFold(3).split(X, y, groups))
    model = MKLClassifier(KERNELS)
    compared = compare({"one": model}, X, y, cv=GroupKFold(3), groups=groups)
    for (a, b), (train, test) in zip(compared.splits, folds, strict=True):
        np.testing.assert_array_equal(a, train)
        np.testing.assert_array_equal(b, test)
    given = weight_stability(model, X, y, method="folds", cv=folds)
    found = weight_stability(
        model, X, y, method="folds", cv=GroupKFold(3), groups=groups
    )
    np.testing.assert_array_equal(found.weights, given.weights)
    five = compare({"one": model}, X, y, cv=None, groups=groups)
    assert len(five.splits) == 5
    assert not any(set(groups[a]) & set(groups[b]) for a, b in five.splits)
