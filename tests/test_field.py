"""The comparison of the field: ranks by hand, cells that fail, pages that say so."""

import os
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from sklearn.base import BaseEstimator
from sklearn.metrics import accuracy_score, r2_score
from sklearn.model_selection import KFold

from mklearn import KernelBank, MKLClassifier, MKLRegressor, MultiView
from mklearn.kernels import RBF, Linear, per_view

pytestmark = pytest.mark.usefixtures("benchmarks")


# --- ranks ----------------------------------------------------------------------------

# three methods on four data sets; ranks 123, 123, 132, 213, with sums 5, 8 and 11
SCORES = [[0.9, 0.8, 0.7], [0.6, 0.5, 0.4], [0.9, 0.1, 0.5], [0.7, 0.8, 0.6]]


def test_friedman_by_hand():
    from ranks import friedman, ranks

    each = ranks(SCORES)
    assert each.tolist() == [[1, 2, 3], [1, 2, 3], [1, 3, 2], [2, 1, 3]]
    found = friedman(each)
    assert found.ranks.tolist() == [1.25, 2.0, 2.75]
    # 12 / (4 3 4) (25 + 64 + 121) - 3 4 4
    assert found.chi2 == pytest.approx(4.5)
    # 3 4.5 / (4 2 - 4.5)
    assert found.F == pytest.approx(13.5 / 3.5)
    # two degrees of freedom have a closed form
    assert found.p == pytest.approx((1 + 2 * found.F / 6) ** -3)


def test_friedman_of_demsar():
    """The example of Demšar (2006), section 3.2.2: four methods, 14 data sets."""
    N, k, mean = 14, 4, np.array([3.143, 2.000, 2.893, 1.964])
    chi2 = 12 * N / (k * (k + 1)) * ((mean**2).sum() - k * (k + 1) ** 2 / 4)
    assert chi2 == pytest.approx(9.28, abs=0.01)
    from ranks import critical_difference

    assert critical_difference(N, k) == pytest.approx(1.25, abs=0.005)
    assert critical_difference(N, k, 0.1) == pytest.approx(1.12, abs=0.005)


def test_nemenyi_values():
    from ranks import critical_difference

    # printed in Demšar (2006), Table 5
    for k, q in {2: 1.960, 3: 2.343, 5: 2.728, 10: 3.164}.items():
        unit = np.sqrt(k * (k + 1) / 6)
        assert critical_difference(1, k) / unit == pytest.approx(q, abs=1e-3)


def test_ties_and_failures():
    from ranks import friedman, ranks

    assert ranks([[0.5, 0.5, 0.2, np.nan]]).tolist() == [[1.5, 1.5, 3, 4]]
    assert ranks([[np.nan, 0.1, np.nan]]).tolist() == [[2.5, 1, 2.5]]
    # with ties the statistic is scipy's corrected one
    scores = np.random.default_rng(0).integers(0, 4, (12, 5)).astype(float)
    expected = stats.friedmanchisquare(*scores.T).statistic
    assert friedman(ranks(scores)).chi2 == pytest.approx(expected)
    with pytest.raises(ValueError, match="at least 2 data sets and 3 methods"):
        friedman([[1.0, 2.0, 3.0]])


def test_the_same_order_everywhere():
    from ranks import friedman

    found = friedman([[1, 2, 3]] * 4)
    assert found.chi2 == pytest.approx(8.0)
    assert (found.F, found.p) == (np.inf, 0.0)


def test_cliques():
    from ranks import cliques

    assert cliques([1.0, 1.5, 3.0, 3.2, 4.1], 1.25) == [(0, 1), (2, 4)]
    assert cliques([1.0, 2.0, 3.0], 1.0) == [(0, 1), (1, 2)]
    assert cliques([1.0, 2.0, 3.0], 5.0) == [(0, 2)]
    assert cliques([1.0, 3.0, 5.0], 1.0) == []


def test_diagram_shows_every_method():
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure
    from ranks import draw

    ax = Figure().subplots()
    draw(ax, ["a", "b", "c"], [2.75, 1.25, 2.0], 1.6)
    shown = " ".join(text.get_text() for text in ax.texts)
    for label in ("a (2.75)", "b (1.25)", "c (2.00)", "critical difference 1.60"):
        assert label in shown


# --- cells ----------------------------------------------------------------------------


@pytest.fixture
def small(monkeypatch):
    """Return the module, with few test samples."""
    import field

    monkeypatch.setattr(field, "TESTING", 30)
    return field


def cell(method, data="iris", table="accuracy", repetition=0):
    from reproduction import Cell

    return Cell("field", table, data, method, repetition)


def test_all_methods_have_the_same_split(small):
    s = small.split("iris", 0, 0, 45)
    assert s.table.shape == (45, 4)
    assert s.test_table.shape == (30, 4)
    assert (s.bank.shape, s.cross.shape) == ((45, 45, 6), (30, 45, 6))
    assert np.bincount(s.y).tolist() == [15, 15, 15]
    assert len(s.folds) == 3
    assert small.split("iris", 0, 0, 45) is s
    other = small.split("iris", 1, 0, 45)
    assert not np.array_equal(other.table, s.table)
    tested = np.sort(np.concatenate([test for _, test in s.folds]))
    assert tested.tolist() == list(range(45))


def test_grams_are_those_of_the_kernels(small):
    from mklearn import MKLClassifier

    s = small.split("iris", 0, 0, 45)
    given = MKLClassifier("precomputed").fit(s.bank, s.y)
    made = MKLClassifier("auto").fit(s.table, s.y)
    assert np.allclose(given.kernel_weights_, made.kernel_weights_, atol=0.02)
    ours, theirs = given.predict(s.cross), made.predict(s.test_table)
    assert np.mean(ours == theirs) > 0.95


@pytest.mark.parametrize(
    "table, method",
    [
        ("accuracy", "MKL p=1"),
        ("accuracy", "discriminant"),
        ("accuracy", "unweighted sum"),
        ("accuracy", "SVC + grid"),
        ("R2", "MKL p=2"),
        ("R2", "ridge"),
    ],
)
def test_a_cell(small, tmp_path, table, method):
    data = "iris" if table == "accuracy" else "diabetes"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = small.work(cell(method, data, table), 0, 60.0, tmp_path, 45)
    assert "stopped" not in found, found
    assert 0.1 < found[table] <= 1.0
    assert 0 <= found["kernel_seconds"] <= found["seconds"]
    assert (found["kernel_seconds"] > 0) == ("MKL" in method or method in
        ("discriminant", "unweighted sum"))  # fmt: skip


class Certain(BaseEstimator):
    """A model that gives the first class 4/5, whatever the sample."""

    classes_ = np.array(["a", "b", "c"])

    def predict_proba(self, X):
        """Return the same probabilities for all samples."""
        return np.tile([0.8, 0.1, 0.1], (len(X), 1))


def test_probabilities_are_scored_by_log_loss_and_calibration(small):
    y = np.array(["a", "a", "a", "b"])
    found = small.probabilities(Certain(), np.zeros((4, 1)), y)
    by_hand = -(3 * np.log(0.8) + np.log(0.1)) / 4
    assert found["log loss"] == pytest.approx(by_hand)
    # four bins of one sample each: three are right at 0.8, one wrong
    assert found["calibration"] == pytest.approx((3 * 0.2 + 0.8) / 4)
    assert small.probabilities(BaseEstimator(), np.zeros((4, 1)), y) == {}


def test_which_methods_have_probabilities(small, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for method, has in (
            ("MKL logistic", True),
            ("discriminant", True),
            ("logistic", True),
            ("MKL p=2", False),
            ("SVC + grid", False),
        ):
            found = small.work(cell(method), 0, 60.0, tmp_path, 45)
            assert ("log loss" in found) == has, found
            if has:
                assert 0 < found["log loss"] < np.log(3)
                assert 0 <= found["calibration"] < 1 / 3


def test_a_failure_is_a_result(small, tmp_path, monkeypatch):
    def broken(s):
        raise RuntimeError("no answer")

    method = small.Method(broken, "learned")
    monkeypatch.setitem(small.CLASSIFIERS, "broken", method)
    found = small.work(cell("broken"), 0, 60.0, tmp_path, 45)
    assert found == {"stopped": "RuntimeError: no answer", "cap": 60.0}


def test_the_limit_is_in_cpu_seconds(small, tmp_path, monkeypatch):
    from mklearn.report import write_json

    def endless(s):
        while True:
            pass

    monkeypatch.setitem(small.CLASSIFIERS, "endless", small.Method(endless, "features"))
    found = small.work(cell("endless"), 0, 1.0, tmp_path, 45)
    assert found == {"stopped": "not done after 1 s", "cap": 1.0}
    # the other splits are not tried with the same limit, but with a larger one
    first = cell("endless")
    write_json(tmp_path / first.file, {"values": found})
    again = replace(first, repetition=1)
    assert small.slow_before(again, tmp_path, 1.0) == found["stopped"]
    assert small.slow_before(again, tmp_path, 2.0) == ""
    assert small.slow_before(first, tmp_path, 1.0) == ""


def test_the_other_splits_know_of_the_first(small, tmp_path, monkeypatch):
    from reproduction import Settings, Table
    from reproduction.cells import run

    started = []

    def limited(job, seconds):
        started.append(job)
        return {"stopped": f"not done after {seconds:g} s"}

    monkeypatch.setattr(small, "limited", limited)
    table = Table("accuracy", "", ("wine",), ("SVC + grid",), 3, ("accuracy",))
    protocol = small.make_protocol((table,), 1.0, tmp_path)
    found = run(protocol, tmp_path, Settings(repetitions=3, budget=1.0))
    assert [v["stopped"] for v in found.cells.values()] == 3 * ["not done after 1 s"]
    assert len(started) == 1


def test_a_process_that_dies_is_a_result(small):
    found = small.limited(lambda: os._exit(3), 5.0)
    assert found == {"stopped": "ended by itself with exit code 3"}


def test_strings_become_features(small):
    from mklearn import MultiView

    X = MultiView({"seq": ["AAB", "ABA", "BBB", "AAAA"]})
    train, test = small.features(X, [0, 1, 2], [3])
    assert train.shape[1] == test.shape[1] == 6  # A, AA, AB, B, BA, BB
    assert np.allclose(train.sum(axis=1), 1)
    assert np.allclose(test.sum(axis=1), 1)
    # a matrix is no array: scikit-learn refuses it
    assert type(train) is type(test) is np.ndarray


# --- the page -------------------------------------------------------------------------


def fake_results(n_sets=6):
    import field

    from mklearn.datasets import available
    from reproduction import Settings, Table
    from reproduction.cells import Results

    data = tuple(line.name for line in available())[:n_sets]
    methods = ("MKL p by CV", "unweighted sum", "SVC + grid", "boosting")
    table = Table("accuracy", "classification", data, methods, 2)
    cells = {}
    for one in table.cells("field"):
        i, j = data.index(one.data), methods.index(one.method)
        cells[one] = {
            "accuracy": 0.9 - 0.1 * j + 0.01 * i + 0.002 * one.repetition * (j + 1),
            "seconds": 1.0 + j,
            "kernel_seconds": 0.1,
            "training": 70,
            "testing": 30,
            "kernels": 6,
            "chosen": {"C": "100"},
            "spent": 1.0,
            "commit": "0123456789",
        }
        if one.method in ("MKL p by CV", "boosting"):
            cells[one] |= {"log loss": 0.4 if j == 0 else 0.5, "calibration": 0.1}
    stopped = {"stopped": "not done after 60 s", "cap": 60.0}
    for r in range(2):
        at = cell("boosting", data[0], repetition=r)
        cells[at] = stopped | {"spent": 60.0, "commit": "0123456789"}
    del cells[cell("boosting", data[1], repetition=1)]  # not finished
    protocol = field.make_protocol((table,), 60.0, Path("none"))
    return Results(protocol, (table,), Settings(repetitions=2, budget=60.0), cells)


def test_the_page_has_every_cell(tmp_path):
    from field_page import write

    found = fake_results()
    write(found, tmp_path / "field.md", {"far": "not at hand"})
    text = (tmp_path / "field.md").read_text()
    for name in (*found.tables[0].data, *found.tables[0].methods, "commit 0123456789"):
        assert name in text
    sonar, second = found.tables[0].data[:2]
    assert f"| {sonar} | 70 | 6 | 2 | **90.1** ± 0.1 | 80.2 ± 0.2" in text
    assert "| failed |" in text
    assert f"- boosting on {sonar}, 2 of 2 splits: not done after 60 s." in text
    assert f"- 1 of 2 splits were finished for all methods: {second}." in text
    assert "11 of 12 splits of data sets are finished for all methods" in text
    assert "- far: not at hand." in text
    assert "boosting has the worst (4.00)" in text
    assert f"however good it may be with more time: boosting on {sonar}." in text
    assert "unweighted sum 100%" in text  # the cost is the largest of the grid
    # only methods that give probabilities are in the tables of these
    assert "| data | splits | MKL p by CV | boosting |" in text
    assert f"| {second} | 1 | **0.400** | 0.500 |" in text
    assert f"| {sonar} | 2 | **0.400** ± 0.000 | failed |" in text
    assert "each method is best: MKL p by CV 6, boosting 0." in text
    for one in found.cells:
        found.cells[one].pop("log loss", None)
        found.cells[one].pop("calibration", None)
    write(found, tmp_path / "field.md", {})
    assert "Log loss" not in (tmp_path / "field.md").read_text()


def test_differences_over_sets():
    from field_page import Field, versus

    field = Field(fake_results(), fake_results().tables[0])
    found = versus(field, "MKL p by CV", "unweighted sum", field.data)
    assert (found.better, found.equal, found.worse) == (6, 0, 0)
    assert found.mean == pytest.approx(9.9, abs=0.1)
    assert found.p == pytest.approx(2 / 2**6)  # all six have the same sign
    # both splits: 10.0 and 9.8 points, with share 30/70
    d, error = field.difference(field.data[0], "MKL p by CV", "unweighted sum")
    assert d == pytest.approx(9.9)
    assert error == pytest.approx(np.sqrt((1 / 2 + 3 / 7) * 0.02))


def test_more_training_samples_have_cells_of_their_own(small, tmp_path):
    import argparse

    asked = argparse.Namespace(
        quick=True, sets=["iris", "digits"], methods=["logistic"], repeats=1,
        training=500,
    )  # fmt: skip
    (table,) = small.make_tables(asked)
    assert table.data == ("digits",)  # iris has too few
    usual = small.make_protocol((table,), 60.0, tmp_path)
    more = small.make_protocol((table,), 60.0, tmp_path, training=500)
    assert (usual.name, more.name) == ("field", "field-500")
    assert "about 200 in all" in usual.choices["training samples"]
    assert "about 500 in all" in more.choices["training samples"]
    found = more.work(cell("logistic", "digits"), 0)
    assert found["training"] == pytest.approx(500, abs=10)


# --- stacking -------------------------------------------------------------------------


@pytest.mark.parametrize("classes", [True, False])
def test_stacking_combines_scores_of_samples_that_were_left_out(classes):
    import field

    rng = np.random.default_rng(0)
    X = MultiView({v: rng.standard_normal((60, 2)) for v in "abc"})
    y = X["a"][:, 0] + X["b"][:, 0] + 0.3 * rng.standard_normal(60)
    y = np.digitize(y, [-0.7, 0.7]) if classes else y
    bank = KernelBank(X[:45], per_view(Linear(), RBF()))
    folds = tuple(KFold(3).split(y[:45]))
    methods = field.CLASSIFIERS if classes else field.REGRESSORS
    given = field.Split(bank, None, 0.0, None, None, y[:45], y[45:], folds)
    model = methods["stacking"].make(given).fit(bank, y[:45])
    assert [kernels for kernels, _ in model.views_] == [[0, 1], [2, 3], [4, 5]]
    if classes:
        p = model.predict_proba(bank.cross(X[45:]))
        np.testing.assert_allclose(p.sum(axis=1), 1)
        assert model.classes_.tolist() == [0, 1, 2]
    else:
        assert not hasattr(model, "predict_proba")
    score = accuracy_score if classes else r2_score
    assert score(y[45:], model.predict(bank.cross(X[45:]))) > 0.5
    # the linear model sees scores of models that have not seen the sample
    link = model.set_params(link=Kept()).fit(bank, y[:45]).link_
    train, test = folds[1]
    first, C = bank.select([0, 1]), model.views_[0][1].C_
    kind = MKLClassifier if classes else MKLRegressor
    alone = kind("precomputed", norm=np.inf, C=C)
    alone.fit(first[np.ix_(train, train)], y[train])
    scores = field._scores(alone, first[np.ix_(test, train)])
    found = link.seen_[15:30, : scores.shape[1]]
    np.testing.assert_allclose(found, scores, atol=0.1)  # both to a gap of 1e-3
    each = model.fit(first, y[:45]).views_  # of one view, every kernel has a model
    assert [kernels for kernels, _ in each] == [[0], [1]]


class Kept(BaseEstimator):
    """A model that keeps what it is fitted to."""

    def fit(self, X, y):
        self.seen_ = X
        return self
