"""What a report checks by itself, with known answers, and what it tells a paper."""

from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.datasets import load_iris
from sklearn.model_selection import KFold

from mklearn import (
    MKLClassifier,
    MKLClassifierCV,
    MKLCox,
    MKLRegressor,
    MKLSurvivalSVM,
    MultiView,
)
from mklearn.cli.inputs import CLASSES, VALUES, Data
from mklearn.cli.unseen import Unseen
from mklearn.interpretation import decision_parts, kernel_importance, weight_stability
from mklearn.kernels import RBF, KernelBank, Linear, per_group, per_view
from mklearn.model_selection import compare
from mklearn.report import (
    Predictions,
    Report,
    describe_data,
    kernel_alignment,
    methods_text,
    report_html,
    run_checks,
    sample_checks,
    view_shares,
)
from test_report import make_report

RNG = np.random.default_rng(0)
N = 60
Y = np.arange(N) % 2
SIGNAL = RNG.normal(size=(N, 3)) + 3.0 * Y[:, None]
NOISE = RNG.normal(size=(N, 3))
DATA = MultiView({"signal": SIGNAL, "noise": NOISE})


def report(model, X, y, **more):
    return Report("t", describe_data(X, y), model, **more)


def sound():
    model = MKLClassifier(per_view(Linear())).fit(DATA, Y)
    return report(model, DATA, Y, predictions=Predictions(Y, model.predict(DATA)))


# --- checks ---------------------------------------------------------------------------


def test_where_all_is_well_nothing_is_said():
    X = MultiView({"a": SIGNAL, "b": SIGNAL + RNG.normal(size=(N, 3))})
    model = MKLClassifier(per_view(Linear())).fit(X, Y)
    page = report(model, X, Y, predictions=Predictions(Y, model.predict(X)))
    assert run_checks(page) == []
    assert "None of the automatic checks found a problem" in report_html(page)


def test_models_that_guess_are_told_of():
    page = sound()
    guess = replace(page, predictions=Predictions(Y, np.zeros_like(Y)))
    (said,) = [s for s in run_checks(guess) if "largest class" in s]
    assert "right for 50.0 % of new samples" in said
    model = MKLRegressor("linear").fit(SIGNAL, NOISE[:, 0])
    values = NOISE[:, 0]
    bad = report(model, SIGNAL, None, predictions=Predictions(values, -values))
    assert "no better than the mean" in run_checks(bad)[0]
    good = replace(bad, predictions=Predictions(values, 0.9 * values))
    assert not [s for s in run_checks(good) if "better than" in s]


def test_a_search_at_the_end_of_its_grid_is_told_of():
    X, y = load_iris(return_X_y=True)
    for Cs in ([1e-6, 1e-5], [1e3, 1e4], [1e-6, 1e-5, 1.0, 1e4]):
        model = MKLClassifierCV(["rbf"], Cs=Cs, norms=[2], cv=3).fit(X, y)
        said = [s for s in run_checks(report(model, X, y)) if "The search chose" in s]
        end = {min(Cs): "the smallest", max(Cs): "the largest"}.get(model.C_)
        assert len(said) == (end is not None) and all(end in s for s in said)
    alone = MKLClassifierCV(["rbf"], Cs=[1.0], norms=[2], cv=3).fit(X, y)
    assert not [s for s in run_checks(report(alone, X, y)) if "search" in s]


def test_a_view_that_carries_all_is_told_of():
    model = MKLClassifier(per_view(Linear()), norm=1).fit(DATA, Y)
    page = report(model, DATA, Y)
    top = max(view.share for view in view_shares(model))
    found = [s for s in run_checks(page) if "'signal' carries" in s]
    assert top > 0.9 and len(found) == 1


def test_rare_classes_stopped_solvers_and_equal_kernels_are_told_of():
    y = np.r_[np.zeros(57, int), np.ones(3, int)]
    model = MKLClassifier(per_view(Linear())).fit(DATA, y)
    assert any("Class 1 has 3 of 60" in s for s in run_checks(report(model, DATA, y)))
    with pytest.warns(Warning, match="max_iter"):
        hasty = MKLClassifier(per_view(Linear(), RBF()), max_iter=1, tol=1e-12).fit(
            DATA, Y
        )
    said = run_checks(report(hasty, DATA, Y))
    assert any("stopped early: max_iter was reached" in s for s in said)
    twins = MKLClassifier([Linear(view="signal"), Linear(view="signal", name="b")])
    twins.fit(DATA, Y)
    page = report(twins, DATA, Y, alignment=kernel_alignment(twins, DATA))
    assert any("equal up to scale" in s for s in run_checks(page))


def test_columns_that_tell_the_target_are_found():
    leak = np.where(Y == 1, 7.0, -2.0)
    X = MultiView({"a": np.column_stack([NOISE, leak]), "b": SIGNAL})
    (said,) = sample_checks(X, Y)
    assert "Column '3' of view 'a' determines the target exactly" in said
    assert sample_checks(DATA, Y) == ()
    # three classes, and numbers
    y = np.arange(N) % 3
    (said,) = sample_checks(np.column_stack([NOISE, 10 - y]), y)
    assert "Column '3' of view 'X'" in said
    values = NOISE[:, 0] * 2.0 - 5.0
    (said,) = sample_checks(np.column_stack([NOISE, SIGNAL]), values)
    assert "Column '0'" in said
    # a column of some samples only, and one that tells two classes of three
    holes = np.where((np.arange(N) < 30)[:, None], leak[:, None], np.nan)
    (said,) = sample_checks(MultiView({"a": holes, "b": SIGNAL}), Y)
    assert "view 'a'" in said
    assert sample_checks((y == 2)[:, None] + 0.0 * NOISE, y)[0].startswith("60 samples")


def structured(time, event):
    y = np.empty(len(time), dtype=[("event", bool), ("time", float)])
    y["event"], y["time"] = event, time
    return y


def test_columns_that_tell_times_are_found():
    rng = np.random.default_rng(1)
    time, event = rng.exponential(size=N).round(2), rng.random(N) < 0.6
    y = structured(time, event)
    # distinct numbers, few numbers and two numbers: none tells anything
    plain = np.column_stack([NOISE, SIGNAL.round(), Y])
    assert sample_checks(plain, y) == ()
    leaks = {
        "the time exactly": [time, -3.0 * time + 1, np.exp(time), np.float32(time)],
        "exactly which samples had an event": [event, 5.0 - event],
        "the times of the events exactly": [np.where(event, time, 0.0)],
    }
    for what, columns in leaks.items():
        for column in columns:
            (said,) = sample_checks(np.column_stack([plain, column]), y)
            assert f"Column '7' of view 'X' determines {what}" in said
    # samples without the view do not count, and two samples tell nothing
    for count, found in ((N // 2, 1), (2, 0)):
        there = (np.arange(N) < count)[:, None]
        some = np.where(there, np.column_stack([time, event]), np.nan)
        said = sample_checks(MultiView({"a": some[:, :1], "b": NOISE}), y)
        assert len(said) == found
    # times without ties
    assert sample_checks(NOISE, structured(rng.random(N), np.ones(N))) == ()


def test_equal_samples_and_split_subjects_are_found():
    X = NOISE.copy()
    X[30] = X[0]
    folds = list(KFold(2).split(X))
    (said,) = sample_checks(X, Y, folds)
    assert (
        said.startswith("2 samples are identical")
        and "3.3 % of the test samples have a duplicate" in said
    )
    (said,) = sample_checks(sparse.csr_array(X), Y, folds)
    assert said.startswith("2 samples are identical")
    together = [(np.r_[1:30, 31:60], np.r_[0, 30])]
    (said,) = sample_checks(X, Y, together)
    assert "twin" not in said
    groups = np.arange(N) // 2
    assert sample_checks(NOISE, Y, folds, groups) == ()
    (said,) = sample_checks(NOISE, Y, folds, np.arange(N) % 30)
    assert said.startswith("The samples of 30 subjects are in both the training")
    bank = KernelBank(NOISE, ["linear"])
    assert sample_checks(bank, Y, folds) == ()


# --- views ----------------------------------------------------------------------------


def test_shares_of_views_are_sums_over_their_kernels():
    model = MKLClassifier(per_view(Linear(), RBF())).fit(DATA, Y)
    stability = weight_stability(model, DATA, Y, n_resamples=5, random_state=0)
    importance = kernel_importance(model, DATA, Y, by="view", random_state=0)
    shares = view_shares(model, stability, importance)
    found = dict(zip(model.kernel_names_, model.kernel_contributions_, strict=True))
    for share in shares:
        own = [c for name, c in found.items() if name.startswith(f"{share.view}:")]
        assert share.n_kernels == 2 and share.share == pytest.approx(sum(own))
        assert share.low <= share.high
    assert sum(share.share for share in shares) == pytest.approx(1.0)
    assert [share.p_value for share in shares] == importance.p_values.tolist()
    # a Gram that was given is a view of its own
    grams = np.stack([NOISE @ NOISE.T, SIGNAL @ SIGNAL.T], axis=2)
    given = MKLClassifier("precomputed").fit(grams, Y)
    assert [share.view for share in view_shares(given)] == list(given.kernel_names_)


# --- samples --------------------------------------------------------------------------


def unseen(model, X, y, task):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X)
    data = Data(frame, np.asarray(y), task, "y", None, [], "data")
    watched = Unseen(data, "m")
    compare({"m": model}, frame, y, KFold(3), watch=watched)
    return watched.predictions()


@pytest.mark.parametrize("n_classes", [2, 3])
def test_parts_of_new_samples_sum_to_their_decisions(n_classes):
    X, y = load_iris(return_X_y=True)
    keep = y < n_classes
    kernels = [Linear(columns=[0, 1], name="sepal"), RBF(columns=[2, 3], name="petal")]
    order = RNG.permutation(int(keep.sum()))
    X, y = X[keep][order], y[keep][order]
    found = unseen(MKLClassifier(kernels), X, y, CLASSES)
    assert len(found.views) == 2
    bias = found.decisions - found.parts.sum(axis=2)
    for k, (train, test) in enumerate(KFold(3).split(X)):
        model = MKLClassifier(kernels).fit(X[train], y[train])
        assert (found.folds[test] == k).all()
        assert_array_equal(found.predicted[test], model.predict(X[test]))
        parts = decision_parts(model, X[test]).parts.reshape(len(test), -1, 2)
        assert_allclose(found.parts[test], parts)
        size = np.abs(found.decisions[test]).max() + np.abs(parts).max()
        assert_allclose(
            bias[test], np.broadcast_to(model.intercept_, bias[test].shape),
            atol=1e-12 * size,
        )  # fmt: skip


def test_values_have_parts_and_a_table_of_all():
    found = unseen(MKLRegressor("linear"), SIGNAL, NOISE[:, 0], VALUES)
    assert found.parts.shape == (N, 1, 1)
    columns = found.columns()
    assert list(columns) == ["sample", "truth", "predicted", "fold"]
    assert columns["truth"] == NOISE[:, 0].tolist()


@pytest.mark.parametrize("n_classes", [2, 3])
def test_samples_are_explained_by_view(n_classes):
    page = make_report(n_classes)
    found = page.predictions
    # the surest of all is made an error
    said = np.abs(found.decisions).max(axis=1)
    worst = int(np.argmax(said))
    truth = found.truth.copy()
    truth[worst] = next(c for c in found.classes if c != found.predicted[worst])
    html = report_html(replace(page, predictions=replace(found, truth=truth)))
    tables = {
        "".join(t.find("caption").itertext()): t
        for t in ElementTree.fromstring(html).iter("table")
    }
    (table,) = (t for name, t in tables.items() if "Contributions of the views" in name)
    rows = [["".join(c.itertext()) for c in row] for row in table.find("tbody")]
    (row,) = (row for row in rows if row[0] == str(worst))
    assert row[1] == "wrong, with confidence"
    assert row[2:4] == [truth[worst], found.predicted[worst]]
    # a quarter and three quarters of the margin between both, as they were made
    margin, classes = said[worst], found.classes.tolist()
    if n_classes == 3:
        decisions = found.decisions[worst]
        margin = decisions[classes.index(row[3])] - decisions[classes.index(row[2])]
    assert row[4:] == [f"{0.25 * margin:+.2f}", f"{0.75 * margin:+.2f}"]
    assert "right, but close" in html


# --- for the paper --------------------------------------------------------------------


def test_methods_say_what_was_done():
    model = MKLClassifierCV(
        per_view(Linear(), RBF()), Cs=[0.1, 1.0], norms=[1, 2], cv=3
    )
    model.fit(DATA, Y)
    page = report(model, DATA, Y, comparison=compare({"m": model}, DATA, Y, cv=3))
    said, sources = methods_text(page)
    for part in (
        "60 samples in 2 views (signal: 3 columns, noise: 3 columns)",
        "4 kernels, on each view: linear, rbf",
        f"l{model.norm_:.3g}-norm",
        "2 values from 0.1 to 1",
        f"C = {model.C_:.3g}",
        "same 3 folds",
    ):
        assert part in said, said
    for source in sources:  # each is cited, by name and year
        name, year = source.split(",")[0], source.split("(")[1][:4]
        assert name in said and year in said
    plain = MKLClassifier(per_view(Linear()), norm=np.inf).fit(DATA, Y)
    said, sources = methods_text(report(plain, DATA, Y))
    assert "the same weight" in said and len(sources) == 2


def test_methods_of_survival_analyses():
    rng = np.random.default_rng(2)
    time, event = np.ceil(9 * rng.random(N)), rng.random(N) < 0.6
    y, strata = structured(time, event), np.arange(N) % 3
    X = MultiView({"clinic": NOISE[:, :2], "genes": SIGNAL, "age": NOISE[:, 2:]})
    sets = per_group({"one": [0, 1], "two": [0, 1, 2]}, view="genes")
    model = MKLCox(
        [sets, Linear(view="clinic")], fixed="age", ties="efron", norm=1
    ).fit(X, y, strata=strata)
    said, sources = methods_text(report(model, X, y, scoring="concordance"))
    for part in (
        f"60 samples ({event.sum()} with an event, {N - event.sum()} censored)",
        "in 2 views (clinic: 2 columns, genes: 3 columns) were used for a survival "
        "analysis",
        "3 kernels, 2 of them on given sets of columns (such as gene sets) of 2 to 3 "
        "columns each, the others: linear",
        "Cox's partial likelihood (Cox, 1972)",
        "ties were handled by the method of Efron (1977)",
        "Each of 3 strata had its own baseline hazard",
        "1 covariate (age) entered linearly, with an unpenalised coefficient.",
    ):
        assert part in said, said
    assert "classification" not in said
    assert [s.split(",")[0] for s in sources[1:3]] == ["Cox", "Efron"]
    folds = compare({"m": model}, X, y, cv=KFold(2))
    for one, name in ((MKLCox("linear"), "Breslow"), (MKLSurvivalSVM("linear"), "log")):
        one.fit(SIGNAL[:, :1], y)
        page = report(one, SIGNAL[:, :1], y, scoring="concordance", comparison=folds)
        said, sources = methods_text(page)
        assert "in 1 view (X: 1 column) were" in said, said
        assert "with 1 kernel, on the samples: linear." in said
        assert name in said
        for source in sources:
            author, year = source.split(",")[0], source.split("(")[1][:4]
            assert author in said and year in said
