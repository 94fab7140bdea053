"""What a run takes, how far it is, and what more samples would bring."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("typer")
pytest.importorskip("pandas")
import pandas as pd
import threadpoolctl
from numpy.testing import assert_array_equal
from typer.testing import CliRunner

from mklearn import MKLClassifier
from mklearn.cli import application, estimate, learning, models, shares
from mklearn.cli.commands import make_app
from mklearn.cli.inputs import load_data
from mklearn.cli.learning import learning_curve
from mklearn.estimators._path_search import choose_cell
from mklearn.model_selection import compare
from mklearn.report import LearningCurve, report_html
from mklearn.report import words as said
from test_report import make_report

QUICK = ("--cv", "3", "--kernels", "linear", "--norm", "2", "--reg", "1")


pytestmark = pytest.mark.usefixtures("few_to_choose_from")


def run(*args):
    return CliRunner().invoke(make_app(), [str(arg) for arg in args])


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(0)
    y = np.r_[np.zeros(80, int), np.ones(34, int), np.full(6, 2)]
    X = rng.normal(size=(120, 4)) + y[:, None]
    frame = pd.DataFrame(X, columns=list("abcd"))
    frame["name"] = [f"sample {i}" for i in range(120)]
    frame["kind"] = np.array(["x", "y", "z"])[y]
    path = tmp_path / "table.csv"
    frame.to_csv(path, index=False)
    return path


# --- drawing rows ---------------------------------------------------------------------


def test_rare_classes_keep_enough_for_the_folds(table):
    data = load_data(table, "kind")
    rows, others = data.drawn(40, seed=0, least=6)
    assert_array_equal(np.sort(np.r_[rows, others]), np.arange(120))
    kinds, counts = np.unique(data.y[rows], return_counts=True)
    assert dict(zip(kinds.tolist(), counts.tolist(), strict=True)) == {
        "x": 27, "y": 11, "z": 6,
    }  # fmt: skip
    # smaller parts are within larger ones
    assert set(data.drawn(20, 0)[0]) <= set(data.drawn(40, 0)[0])


def test_unequal_classes_of_a_large_table_are_compared_on_a_sample(
    table, tmp_path, monkeypatch
):
    monkeypatch.setattr(models, "MOST_ROWS", 100)
    monkeypatch.setattr(models, "SAMPLE_ROWS", 40)
    result = run("fit", table, "--target", "kind", "--id", "name", *QUICK, "--rank", 4,
                 "--out", tmp_path / "out", "--json")  # fmt: skip
    assert result.exit_code == 0, result.output
    content = json.loads(result.stdout)
    assert content["data"]["classes"] == {"x": 27, "y": 11, "z": 6}
    assert content["large"]["n_samples"] == 120
    assert any("more from rare classes" in note for note in content["data"]["notes"])


# --- before and while -----------------------------------------------------------------


def test_long_runs_are_estimated_before_they_begin(table, monkeypatch):
    data = load_data(table, "kind")
    options = models.Settings(kernels="linear,rbf", cv=3, norm=2.0, reg=1.0)
    heard = []
    application.run_fit(data, options, say=heard.append)
    assert not any("will take" in text for text in heard)  # it is short
    monkeypatch.setattr(application, "LONG", 100)
    monkeypatch.setattr(estimate, "LONG", 100)
    monkeypatch.setattr(estimate, "SAMPLE", 40)
    heard.clear()
    application.run_fit(data, options, say=heard.append)
    assert heard[0].startswith("Timing")
    assert re.match(
        r"This will take about .* and [0-9.]+ GB .* fits on up to 90 rows", heard[1]
    )
    assert heard[2].startswith("Comparing 6 methods on 3 folds")


def test_estimates_follow_sizes(table, monkeypatch):
    data = load_data(table, "kind")
    monkeypatch.setattr(estimate, "LONG", 100)
    options = models.Settings(kernels="linear,rbf", cv=3, norm=2.0, reg=1.0)
    assert models.kernel_count(data, options) == 2
    assert models.kernel_count(data, replace(options, kernels="auto")) == 6
    some = estimate.estimate({}, data, data, options)
    assert some.n_bytes == 8 * estimate.COPIES * 2 * 120**2
    low = replace(options, approximation="nystroem", rank=10)
    more = estimate.estimate({}, data, data, low)
    assert more.n_bytes - some.n_bytes == 8 * (120 * 20 + estimate.COPIES * 20**2)
    assert more.seconds > some.seconds == 0.0
    for seconds, text in ((0.1, "1 s"), (89, "89 s"), (600, "10 min"), (9000, "2.5 h")):
        assert estimate.duration(seconds) == text


def test_estimates_separate_what_grows_from_what_does_not():
    cost = {"constant": 3.0, "rate": 2e-5}

    def seconds(n, power=2.0):
        return cost["constant"] + cost["rate"] * n**power

    for power in (1.0, 2.0):
        timed = (seconds(200, power), seconds(400, power))
        found = estimate.extrapolated((200, 400), timed, 1600, power)
        assert found == pytest.approx(seconds(1600, power))
    # what takes no longer with more rows is constant
    assert estimate.extrapolated((200, 400), (2.0, 1.9), 1600, 2.0) == 2.0
    # and nothing is less than nothing: all of it grows
    grown = estimate.extrapolated((200, 400), (1.0, 5.0), 1600, 2.0)
    assert grown == pytest.approx(5.0 * 4.0**2)
    assert estimate.extrapolated((200, 200), (1.0, 1.0), 400, 2.0) == 1.0


def test_trees_on_few_rows_grow_in_one_thread(table, monkeypatch):
    data = load_data(table, "kind")
    info = threadpoolctl.threadpool_info

    def threads():
        return {p["num_threads"] for p in info() if p["user_api"] == "openmp"}

    with threadpoolctl.threadpool_limits(2, user_api="openmp"):
        with models.few_threads(data):
            assert threads() <= {1}
        # rows that are drawn from rare classes do not count as many
        assert models.SAMPLE_ROWS < models.MOST_ROWS
        monkeypatch.setattr(models, "MOST_ROWS", 100)
        with models.few_threads(data):
            assert threads() <= {2}


def test_each_step_is_a_line_of_the_log(table, tmp_path):
    log, out = tmp_path / "run.log", tmp_path / "out"
    result = run("fit", table, "--target", "kind", *QUICK, "--out", out, "--log", log)
    assert result.exit_code == 0, result.output
    lines = log.read_text(encoding="utf-8").splitlines()
    assert all(re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \S", line) for line in lines)
    fits = [line for line in lines if ", done;" in line]
    assert len(fits) == 3 * 6
    for number, line in enumerate(fits, 1):
        assert f"; {number} of 18, about " in line and line.endswith(" left")
    assert any("Fitting learned weights" in line for line in lines)
    # never in the place of what it is made from
    again = run("fit", table, "--target", "kind", *QUICK, "--out", out, "--log", table)
    assert again.exit_code == 2 and "is an input file" in again.output


# --- more samples ---------------------------------------------------------------------


def test_a_learning_curve_is_of_fits_on_parts(table, few_to_choose_from, monkeypatch):
    known = few_to_choose_from["mklearn.cli.learning.PARTS"]  # as users have it
    monkeypatch.setattr(learning, "PARTS", known)
    data = load_data(table, "kind")
    model = models.make_plain(
        data,
        models.Settings(kernels="linear"),
        models.make_model(
            data, models.Settings(kernels="linear", norm=2.0, reg=1.0)
        ).fit(data.X, data.y),
    )
    comparison = compare({"m": model}, data.X, data.y, cv=3)
    curve = learning_curve(model, data, comparison, None, seed=0)
    assert curve.scores.shape == (4, 3) and len(known) == 4
    assert_array_equal(np.sort(curve.sizes), curve.sizes)
    # all of a fold is the comparison
    assert_array_equal(curve.scores[-1], comparison.scores[0])
    train, test = comparison.splits[1]
    half = np.asarray(train)[data.part(train).drawn(round(0.5 * len(train)), 0)[0]]
    again = model.fit(data.X.iloc[half], data.y[half])
    assert curve.scores[1, 1] == again.score(data.X.iloc[test], data.y[test])
    rows = curve.rows()
    assert [row["size"] for row in rows] == list(curve.sizes)


def test_curves_say_whether_more_samples_would_help():
    folds = ((60, 30),) * 3
    rising = LearningCurve(
        (20, 60), np.array([[0.5, 0.52, 0.51], [0.8, 0.81, 0.8]]), folds
    )
    flat = replace(rising, scores=np.array([[0.5, 0.6, 0.4], [0.55, 0.5, 0.5]]))
    assert "more samples would help" in said.rise(rising.rise, "accuracy")
    assert "no longer clearly rising" in said.rise(flat.rise, "accuracy")
    html = report_html(make_report(curve=rising))
    assert "Learning curve" in html and "more samples would help" in html
    assert "Learning curve" not in report_html(make_report())


# --- the rule that prefers sums -------------------------------------------------------


def test_the_sum_is_chosen_unless_another_is_clearly_better():
    Cs, norms = np.array([0.1, 1.0]), np.array([1.0, np.inf])
    noise = np.array([0.0, 0.02, -0.02, 0.01, -0.01])
    scores = np.zeros((2, 2, 5))
    scores[1, 0], scores[1, 1] = 0.80, 0.79  # sums
    scores[0, 0], scores[0, 1] = 0.5, 0.805 + noise
    assert choose_cell(scores, Cs, norms, "best") == (0, 1)
    assert choose_cell(scores, Cs, norms, "sum") == (1, 0)  # 0.005 ± 0.007
    scores[0, 1] += 0.02
    assert choose_cell(scores, Cs, norms, "sum") == (0, 1)
    # without sums, or with none that was reached, it is the best
    assert choose_cell(scores[:1], Cs, norms[:1], "sum") == (0, 1)
    scores[1] = np.nan
    assert choose_cell(scores, Cs, norms, "sum") == (0, 1)


# --- views ----------------------------------------------------------------------------


def test_views_have_shares_intervals_and_tests(
    tmp_path, few_to_choose_from, monkeypatch
):
    known = few_to_choose_from["mklearn.cli.shares.kernel_importance"]
    monkeypatch.setattr(shares, "kernel_importance", known)  # as often as for users
    rng = np.random.default_rng(0)
    y = np.arange(60) % 2
    frame = pd.DataFrame(rng.normal(size=(60, 4)), columns=["s1", "s2", "n1", "n2"])
    frame[["s1", "s2"]] += 2.0 * y[:, None]
    frame["kind"] = np.array(["x", "y"])[y]
    frame.to_csv(tmp_path / "table.csv", index=False)
    options = (
        "--views",
        "signal=s*",
        "--views",
        "noise=n*",
        "--target",
        "kind",
        *QUICK,
    )
    result = run("fit", tmp_path / "table.csv", *options, "--out", tmp_path, "--json")
    assert result.exit_code == 0, result.output
    signal, noise = json.loads(result.stdout)["views"]
    assert (signal["view"], noise["view"]) == ("signal", "noise")
    assert signal["share"] + noise["share"] == pytest.approx(1.0)
    for view in (signal, noise):
        assert 0 <= view["low"] <= view["high"] <= 1
    assert signal["p_value"] < 0.02 < noise["p_value"]
    assert signal["importance"] > noise["importance"]
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "95 % interval" in page and "What each view adds" in page


def test_what_was_left_out_stays_out_of_later_fits(table):
    data = load_data(table, "kind")
    options = models.Settings(kernels="auto", cv=3, norm=2.0)
    found = models.make_model(data, options).fit(data.X, data.y)
    found.estimator_.rejected_ = ("rbf(16/scale)",)
    plain = models.make_plain(data, options, found)
    labels = [k.describe() for k in plain.estimator.kernels.kernels if not k.text]
    assert len(labels) == 5 and "rbf(16/scale)" not in labels
    assert isinstance(plain.estimator, MKLClassifier)
    assert plain.estimator.C == found.estimator_.C_
