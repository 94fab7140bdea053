"""Weights over resamples, permuted kernels, and decisions taken apart."""

import numpy as np
import pytest
from scipy.optimize import linprog
from sklearn import config_context
from sklearn.calibration import CalibratedClassifierCV
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.model_selection import GroupKFold

from cases import samples, stack
from mklearn import (
    BestKernelClassifier,
    BilinearMKLClassifier,
    EvidenceMKLRegressor,
    KernelBank,
    MKLClassifier,
    MKLDiscriminant,
    MKLOneClass,
    MKLRegressor,
    MKLRegressorCV,
    MultiView,
    SingleKernelCV,
    SubspaceClassifier,
    SubspaceKernel,
)
from mklearn.interpretation import (
    StabilitySelection,
    decision_parts,
    kernel_importance,
    score_by_view,
    weight_stability,
)
from mklearn.interpretation.stability import _Units
from mklearn.kernels import RBF, Function, Linear, per_feature, per_view
from mklearn.model_selection import compare
from written import run_page

KERNELS = [Linear(), RBF(0.3), RBF(0.05, columns=[0, 1])]


def two_views(n=120, seed=0):
    """Return a view that tells the classes apart, one that does not, and labels."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    signal = rng.normal(size=(n, 2)) + 1.5 * y[:, None]
    return MultiView({"signal": signal, "noise": rng.normal(size=(n, 3))}), y


VIEW_KERNELS = [
    RBF(0.3, view="signal", name="signal:rbf"),
    Linear(view="signal", name="signal:linear"),
    Linear(view="noise", name="noise:linear"),
]

# --- parts of decisions ---------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize(
    "model",
    [
        *(MKLClassifier(KERNELS, normalize=how) for how in ("center", "spherical")),
        MKLClassifier(KERNELS, norm=1),
        MKLClassifier(KERNELS, weights="per-class"),
        MKLClassifier(KERNELS, loss="squared"),
        BilinearMKLClassifier(KERNELS),
        MKLDiscriminant(KERNELS),
        SubspaceClassifier(KERNELS),
        SubspaceClassifier(KERNELS, criterion="svm"),
        SingleKernelCV(MKLClassifier(), KERNELS, values=[1.0], cv=2),
    ],
    ids=lambda model: f"{type(model).__name__}",
)
def test_parts_sum_to_the_decision(model, n_classes):
    X, y = samples(60, n_classes=n_classes)
    model.fit(X[:40], y[:40])
    found = decision_parts(model, X[40:])
    decision = model.decision_function(X[40:])
    scale = max(1.0, np.abs(found.parts).max())
    np.testing.assert_allclose(found.decision, decision, rtol=0, atol=1e-12 * scale)
    assert found.parts.shape == (*decision.shape, 3)
    assert found.kernel_names == model.kernel_names_
    expected = None if n_classes == 2 else tuple(range(3))
    assert found.classes == expected
    np.testing.assert_allclose(np.abs(found.shares).sum(axis=-1), 1.0)


def test_parts_of_one_kernel_are_those_of_its_formula():
    X, y = samples(60)
    model = MKLClassifier(KERNELS, normalize=None).fit(X, y)
    K = np.stack([KernelBank(X, KERNELS).gram(m) for m in range(3)], axis=2)
    alpha = np.zeros(60)
    alpha[model.support_] = model.dual_coef_[0]
    expected = model.kernel_weights_ * np.einsum("ijm,j->im", K, alpha)
    np.testing.assert_allclose(decision_parts(model, X).parts, expected, atol=1e-10)


def test_parts_of_precomputed_kernels_regression_and_outliers():
    X, y = samples(50)
    grams = stack(X, 3)
    model = MKLClassifier("precomputed").fit(grams[:30, :30], y[:30])
    found = decision_parts(model, grams[30:, :30])
    np.testing.assert_allclose(found.decision, model.decision_function(grams[30:, :30]))
    targets = np.column_stack([X[:, 0], X[:, 1] + 3])
    several = MKLRegressor(KERNELS).fit(X, targets)
    found = decision_parts(several, X)
    np.testing.assert_allclose(found.decision, several.predict(X))
    assert found.classes == (0, 1)
    outliers = MKLOneClass(KERNELS).fit(X)
    found = decision_parts(outliers, X)
    np.testing.assert_allclose(found.decision, outliers.decision_function(X))


def test_kernels_without_weight_have_no_part():
    X, y = two_views()
    model = BestKernelClassifier(VIEW_KERNELS, cv=2).fit(X, y)
    parts = decision_parts(model, X).parts
    assert parts.any(axis=0).tolist() == [m == model.best_index_ for m in range(3)]


def test_parts_as_a_table():
    pytest.importorskip("pandas")
    X, y = samples(30, n_classes=3)
    model = MKLClassifier(KERNELS).fit(X, y)
    frame = decision_parts(model, X).to_frame()
    assert list(frame.columns) == [*model.kernel_names_, "intercept", "decision"]
    assert frame.index.names == ["sample", "class"]
    np.testing.assert_allclose(frame.iloc[:, :4].sum(axis=1), frame["decision"])
    one = MKLClassifier(KERNELS).fit(X, y > 0)
    frame = decision_parts(one, X).to_frame()
    np.testing.assert_allclose(frame["decision"], one.decision_function(X))


def test_what_decides_nothing_is_refused():
    X, y = samples(30)
    with pytest.raises(ValueError, match="SubspaceClassifier"):
        decision_parts(SubspaceKernel(KERNELS).fit(X, y), X)
    with pytest.raises(ValueError, match="sums over kernels"):
        decision_parts(object(), X)


# --- permutation ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def fitted():
    X, y = two_views()
    return MKLClassifier(VIEW_KERNELS, norm=2).fit(X[:60], y[:60]), X[60:], y[60:]


def test_a_view_that_matters_is_told_from_one_that_does_not(fitted):
    model, X, y = fitted
    found = kernel_importance(model, X, y, by="view", n_repeats=99, random_state=0)
    assert found.names == ("signal", "noise")
    assert found.members == (("signal:rbf", "signal:linear"), ("noise:linear",))
    assert found.score == pytest.approx(model.score(X, y))
    assert found.p_values[0] == pytest.approx(0.01) and found.mean[0] > 0.2
    assert found.p_values[1] > 0.05 and abs(found.mean[1]) < 0.05


def test_permuting_parts_is_permuting_the_view(fitted):
    model, X, y = fitted
    found = kernel_importance(model, X, y, by="view", n_repeats=3, random_state=7)
    rng = np.random.RandomState(7)
    for r in range(3):
        order = rng.permutation(len(y))
        mixed = MultiView({"signal": X["signal"][order], "noise": X["noise"]})
        assert found.permuted[0, r] == pytest.approx(model.score(mixed, y))


def test_permuting_columns_of_a_table_and_rows_of_a_gram():
    X, y = samples(90)
    train, test = slice(0, 50), slice(50, 90)
    settings = {"normalize": "spherical", "tol": 1e-9}
    model = MKLClassifier(per_feature("rbf"), **settings).fit(X[train], y[train])
    found = kernel_importance(
        model, X[test], y[test], scoring="roc_auc", n_repeats=2, random_state=1
    )
    assert len(found.names) == X.shape[1]
    bank = KernelBank(X, model.kernels_)
    given = MKLClassifier("precomputed", **settings)
    given.fit(bank[np.ix_(np.arange(50), np.arange(50))], y[train])
    block = bank[np.ix_(np.arange(50, 90), np.arange(50))]
    same = kernel_importance(
        given, block, y[test], scoring="roc_auc", n_repeats=2, random_state=1
    )
    np.testing.assert_allclose(same.permuted, found.permuted)
    order = np.random.RandomState(1).permutation(40)
    mixed = X[test].copy()
    mixed[:, 0] = mixed[order, 0]
    score = roc_auc_score(y[test], model.decision_function(mixed))
    assert found.permuted[0, 0] == pytest.approx(score)
    groups = kernel_importance(model, X[test], y[test], by="view", n_repeats=2)
    assert len(groups.names) == X.shape[1]


@pytest.mark.parametrize(
    "model",
    [
        MKLClassifier(KERNELS, weights="per-class"),
        BilinearMKLClassifier(KERNELS),
        MKLDiscriminant(KERNELS),
        SubspaceClassifier(KERNELS),
    ],
    ids=lambda model: type(model).__name__,
)
def test_several_classes_and_other_decisions(model):
    X, y = samples(80, n_classes=3)
    model.fit(X[:50], y[:50])
    found = kernel_importance(model, X[50:], y[50:], n_repeats=5, random_state=0)
    assert found.score == pytest.approx(model.score(X[50:], y[50:]))
    assert found.permuted.shape == (3, 5)
    assert ((found.p_values > 0) & (found.p_values <= 1)).all()


@pytest.mark.parametrize(
    ("model", "scoring"),
    [
        (MKLClassifier(KERNELS), "accuracy"),
        (SubspaceClassifier(KERNELS), "accuracy"),
        (MKLRegressor(KERNELS), "r2"),
        (EvidenceMKLRegressor(KERNELS), "r2"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_the_own_score_is_that_of_scikit_learn(model, scoring):
    X, y = samples(80, n_classes=3)
    if scoring == "r2":
        y = np.c_[X[:, 0] + X[:, 1] ** 2, X[:, 2]]
    model.fit(X[:50], y[:50])
    given = {"n_repeats": 9, "random_state": 0}
    found = kernel_importance(model, X[50:], y[50:], **given)
    same = kernel_importance(model, X[50:], y[50:], scoring=scoring, **given)
    np.testing.assert_allclose(found.permuted, same.permuted, rtol=0, atol=1e-12)
    assert found.score == pytest.approx(same.score, abs=1e-12)
    with pytest.raises(ValueError, match=r"inconsistent|samples"):
        kernel_importance(model, X[50:], y[50:-1])


def test_probabilities_are_scored_too_and_silent_kernels_lose_nothing():
    X, y = two_views()
    model = MKLClassifier(VIEW_KERNELS, loss="logistic", norm=1).fit(X[:60], y[:60])
    silent = model.kernel_weights_ == 0
    assert silent.any()
    found = kernel_importance(
        model, X[60:], y[60:], scoring="neg_log_loss", n_repeats=9, random_state=0
    )
    assert (found.mean[silent] == 0).all() and (found.p_values[silent] == 1).all()
    assert found.mean.max() > 0.1


@pytest.mark.filterwarnings("ignore:(R.2|Only one class)")
def test_scores_that_are_not_defined_have_no_p_values():
    X, y = samples(40)
    model = MKLClassifier(KERNELS).fit(X, y)
    with pytest.raises(ValueError, match="not defined on these samples"):
        some = y == y[0]
        kernel_importance(model, X[some], y[some], scoring="roc_auc", n_repeats=5)
    model = MKLRegressor(KERNELS).fit(X, X[:, 0])
    with pytest.raises(ValueError, match="not defined on these samples"):
        kernel_importance(model, X[:1], X[:1, 0], n_repeats=5)


def test_importance_as_a_table_and_bad_questions(fitted):
    pytest.importorskip("pandas")
    model, X, y = fitted
    frame = kernel_importance(model, X, y, n_repeats=5, random_state=0).to_frame()
    assert list(frame.index) == list(model.kernel_names_)
    assert list(frame.columns) == ["importance", "std", "p_value"]
    with pytest.raises(ValueError, match="by must be"):
        kernel_importance(model, X, y, by="column")
    with pytest.raises(ValueError, match="n_repeats"):
        kernel_importance(model, X, y, n_repeats=1)
    table, labels = samples(30)
    single = SingleKernelCV(MKLClassifier(), KERNELS, values=[1.0], cv=2)
    with pytest.raises(ValueError, match="one kernel"):
        kernel_importance(single.fit(table, labels), table, labels)


# --- weights over resamples -----------------------------------------------------------


def test_stable_weights_are_told_from_those_of_chance():
    X, y = two_views()
    model = MKLClassifier(VIEW_KERNELS, norm=1, tol=1e-4)
    found = weight_stability(model, X, y, n_resamples=20, random_state=0)
    assert found.kernel_names == tuple(k.name for k in VIEW_KERNELS)
    assert found.weights.shape == found.contributions.shape == (20, 3)
    np.testing.assert_allclose(found.weights.sum(axis=1), 1.0)
    low, high = found.interval
    assert ((low <= found.mean) & (found.mean <= high)).all()
    assert found.selection_frequency[:2].max() == 1.0
    assert found.mean[:2].sum() > 2 * found.mean[2] and (found.std > 0).all()
    again = weight_stability(model, X, y, n_resamples=20, random_state=0)
    np.testing.assert_array_equal(again.weights, found.weights)
    assert not hasattr(model, "kernel_weights_")


def test_folds_are_fits_without_the_fold():
    X, y = samples(60)
    model = MKLClassifier([RBF("median"), Linear(standardize=True)], tol=1e-6)
    splits = [(np.arange(20, 60), np.arange(20)), (np.arange(40), np.arange(40, 60))]
    found = weight_stability(model, X, y, method="folds", cv=splits)
    for (train, _), weights in zip(splits, found.weights, strict=True):
        alone = MKLClassifier(model.kernels, tol=1e-6).fit(X[train], y[train])
        np.testing.assert_allclose(weights, alone.kernel_weights_, atol=1e-4)
    assert found.method == "folds"
    assert weight_stability(model, X, y, method="folds", cv=3).weights.shape == (3, 2)


def test_grams_are_resampled_as_tables_are():
    X, y = samples(50)
    kernels = [Linear(), RBF(0.2)]
    bank = KernelBank(X, kernels)
    settings = {"n_resamples": 3, "random_state": 4}
    table = weight_stability(MKLClassifier(kernels, tol=1e-7), X, y, **settings)
    model = MKLClassifier("precomputed", tol=1e-7)
    for given in (bank, np.stack([bank.gram(m) for m in range(2)], axis=2)):
        grams = weight_stability(model, given, y, **settings)
        np.testing.assert_allclose(grams.weights, table.weights, atol=1e-4)


def test_weights_per_class_and_regression():
    pd = pytest.importorskip("pandas")
    X, y = samples(60, n_classes=3)
    names = np.array(["a", "b", "c"])[y]
    model = MKLClassifier(KERNELS, weights="per-class", norm=1)
    found = weight_stability(model, X, names, n_resamples=3, random_state=0)
    assert found.weights.shape == (3, 3, 3) and found.interval.shape == (2, 3, 3)
    assert found.classes == ("a", "b", "c")
    frame = found.to_frame()
    assert isinstance(frame.index, pd.MultiIndex) and len(frame) == 9
    assert frame.loc[("b", found.kernel_names[1]), "mean"] == found.mean[1, 1]
    values = weight_stability(
        MKLRegressor(KERNELS), X, X[:, 0], n_resamples=3, random_state=0, n_jobs=2
    )
    assert values.weights.shape == (3, 3) and values.classes is None
    assert list(values.to_frame().columns[:4]) == ["mean", "std", "low", "high"]


def test_every_class_is_drawn():
    labels = np.r_[np.zeros(50), 1, 1]
    rng = np.random.RandomState(0)
    for _ in range(20):
        count = _Units.made(52, labels, None).bootstrap(rng)
        assert count.sum() == 52 and count[50:].sum() == 2


def test_bad_resampling_is_refused():
    X, y = samples(30)
    model = MKLClassifier(KERNELS)
    with pytest.raises(ValueError, match="'bootstrap', 'folds' or 'pairs'"):
        weight_stability(model, X, y, method="jackknife")
    with pytest.raises(ValueError, match="n_resamples"):
        weight_stability(model, X, y, n_resamples=1)
    with pytest.raises(ValueError, match="level"):
        weight_stability(model, X, y, level=95)
    with pytest.raises(ValueError, match="2 folds"):
        split = [(np.arange(20), np.arange(20, 30))]
        weight_stability(model, X, y, method="folds", cv=split)


def test_subjects_are_paired_by_name_and_must_be_known():
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    ids = [f"p{i}" for i in range(48)]
    tables = {
        view: pd.DataFrame(rng.normal(size=(48, 2)), ids, ["x", "y"]) for view in "ab"
    }
    y = pd.Series(rng.normal(size=48), ids)
    who = pd.Series([f"s{i // 4}" for i in range(48)], ids)
    order = rng.permutation(48)
    model = MKLRegressor(per_view("linear")).fit(tables, y)

    def found(y, who):
        return (
            weight_stability(
                model, tables, y, groups=who, n_resamples=4, random_state=0
            ).weights,
            kernel_importance(
                model, tables, y, groups=who, n_repeats=4, random_state=0
            ).permuted,
            score_by_view(model, tables, y, cv=3, groups=who).folds,
            compare({"mkl": model}, MultiView(tables), y, cv=3, groups=who).scores,
        )

    for one, other in zip(
        found(y, who), found(y.iloc[order], who.iloc[order]), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-9)
    for gone in (None, np.nan):
        missing = who.to_numpy(object, copy=True)
        missing[:7] = gone
        with pytest.raises(ValueError, match="groups is missing for 7 samples"):
            weight_stability(model, tables, y, groups=missing, n_resamples=2)


@pytest.mark.parametrize("routing", [False, True])
def test_models_that_search_get_the_subjects(routing):
    rng = np.random.default_rng(0)
    X, who = rng.normal(size=(48, 2)), np.repeat(np.arange(12), 4)
    y = X[:, 0] + rng.normal(size=12)[who]
    seen = []

    class Folds(GroupKFold):
        def split(self, X, y=None, groups=None):
            seen.append(len(np.unique(groups)))
            return super().split(X, y, groups)

    with config_context(enable_metadata_routing=routing):
        cv = Folds(2)
        model = MKLRegressorCV(per_feature("linear"), cv=cv)
        for kind in ("product", "unique", "shapley"):
            score_by_view(model, X, y, kind, cv=3, groups=who)
        assert set(seen) == {8}
        seen.clear()
        weight_stability(model, X, y, groups=who, n_resamples=2, random_state=0)
        assert len(seen) == 2


# --- probabilities and the page about all this ----------------------------------------


@pytest.mark.parametrize("n_classes", [2, 3])
def test_calibration_on_a_bank_computes_each_kernel_once(n_classes):
    calls = []

    def kernel(a, b):
        calls.append(len(a))
        return a @ b.T

    X, y = samples(120, n_classes=n_classes)
    bank = KernelBank(X[:80], [Function(kernel), RBF(0.2)]).stored()
    assert calls
    calls.clear()
    model = CalibratedClassifierCV(
        MKLClassifier("precomputed", tol=1e-7), ensemble=False, cv=3
    )
    model.fit(bank, y[:80])
    assert not calls
    p = model.predict_proba(bank.cross(X[80:]))
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    frequency = np.bincount(y[:80]) / 80
    chance = log_loss(y[80:], np.tile(frequency, (40, 1)))
    assert log_loss(y[80:], p) < 0.8 * chance
    table = CalibratedClassifierCV(
        MKLClassifier([Linear(), RBF(0.2)], tol=1e-7), ensemble=False, cv=3
    )
    same = table.fit(X[:80], y[:80]).predict_proba(X[80:])
    np.testing.assert_allclose(p, same, atol=1e-3)


def test_the_page_runs_as_it_is_shown(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib.pyplot")
    pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    space = run_page("interpretation.md")
    assert (tmp_path / "report.html").stat().st_size > 10_000
    np.testing.assert_allclose(
        space["parts"].decision, space["model"].decision_function(space["X_test"])
    )
    worst = space["found"].names.index("worst")
    assert space["found"].p_values[worst] < 0.05
    truth = space["y_test"]
    assert log_loss(truth, space["probabilities"]) < 0.2


# --- stability selection --------------------------------------------------------------


def largest_tail(mean, level, B):
    """Return how large ``P(X >= level)`` can be for one mode and a mean, by LPs."""
    values, best = np.arange(B + 1) / B, 0.0
    for mode in range(B + 1):
        rows = []
        for i in range(B):
            row = np.zeros(B + 1)
            row[i], row[i + 1] = (1.0, -1.0) if i < mode else (-1.0, 1.0)
            rows.append(row)
        found = linprog(
            -(values >= level - 1e-9).astype(float), [*rows, values],
            [0.0] * B + [mean], [np.ones(B + 1)], [1.0],
        )  # fmt: skip
        best = max(best, -found.fun if found.status == 0 else 0.0)
    return best


@pytest.mark.parametrize("threshold", [0.6, 0.7, 0.75, 0.8, 0.9, 1.0])
def test_the_bound_for_one_mode_is_the_worst_case(threshold):
    """Both halves select a kernel of chance q/p with (q/p)^2, Shah and Samworth."""
    p, B = 40, 10
    for q in (4.0, 12.0):
        found = StabilitySelection(("k",) * p, np.zeros(p), threshold, q, B)
        worst = p * largest_tail((q / p) ** 2, 2 * threshold - 1, B)
        assert found.unimodal_bound == pytest.approx(worst, rel=1e-6)
        assert found.unimodal_bound <= found.bound
    assert found.bound == pytest.approx(q**2 / p / (2 * threshold - 1))
    many = StabilitySelection(("k",) * p, np.zeros(p), threshold, 30.0, B)
    assert many.unimodal_bound == many.bound  # where the theorem says nothing


def test_pairs_are_complementary_halves_within_classes():
    y = np.repeat([0, 1], [30, 10])
    units = _Units.made(40, y, None)
    rng = np.random.RandomState(0)
    one, two = units.halves(rng)
    assert np.array_equal(one + two, np.ones(40))
    assert one[y == 0].sum() == 15 and one[y == 1].sum() == 5


def test_subjects_are_drawn_as_a_whole():
    subject = np.repeat(np.arange(10), 4)
    y = np.repeat(np.arange(10) % 2, 4)
    units = _Units.made(40, y, subject)
    rng = np.random.RandomState(0)
    for count in (*units.halves(rng), units.bootstrap(rng)):
        assert (count.reshape(10, 4) == count[::4, None]).all()
    mixed = _Units.made(40, np.arange(40) % 2, subject)
    assert len(mixed.strata) == 1
    with pytest.raises(ValueError, match="only one value"):
        _Units.made(40, None, np.zeros(40))


@pytest.mark.parametrize("method", ["bootstrap", "pairs"])
def test_resamples_of_subjects_have_all_classes(method):
    # a class that occurs in only three of eight subjects, beside another one
    X, subject = samples(48)[0], np.repeat(np.arange(8), 6)
    y = np.where(np.arange(48) % 6 < 3, "a", "b").astype(object)
    y[np.isin(subject, [0, 3, 5]) & (np.arange(48) % 2 == 0)] = "c"
    ask = {"method": method, "n_resamples": 20, "random_state": 0}
    found = weight_stability(MKLClassifier(KERNELS), X, y, groups=subject, **ask)
    assert len(found.weights) == 20
    y[subject > 0] = "a"
    if method == "pairs":  # only one subject has the others
        with pytest.raises(ValueError, match="too few subjects"):
            weight_stability(MKLClassifier(KERNELS), X, y, groups=subject, **ask)


def test_stability_selection_finds_signal_and_little_noise():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((100, 8))
    y = np.sin(X[:, 0]) + X[:, 1] + 0.3 * rng.standard_normal(100)
    model = MKLRegressor(per_feature("rbf"), norm=1, C=0.1)
    halves = weight_stability(
        model, X, y, method="pairs", n_resamples=20, random_state=0
    )
    found = halves.select(0.9)
    assert {halves.kernel_names[0], halves.kernel_names[1]} <= set(found.selected)
    assert found.per_half == pytest.approx(halves.used.sum(axis=1).mean())
    assert len(found.selected) - 2 <= max(found.bound, 1)
    frame = found.to_frame()
    assert frame["selected"].sum() == len(found.selected)
    with pytest.raises(ValueError, match="threshold"):
        halves.select(0.5)
    with pytest.raises(ValueError, match="even"):
        weight_stability(model, X, y, method="pairs", n_resamples=3)
    plain = weight_stability(model, X, y, n_resamples=2, random_state=0)
    with pytest.raises(ValueError, match="method='pairs'"):
        plain.select()
