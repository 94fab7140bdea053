"""What each view adds in a run: scores without it, and Shapley values."""

import csv
import json

import numpy as np
import pytest

pytest.importorskip("typer")
pytest.importorskip("pandas")
import pandas as pd
from typer.testing import CliRunner

from mklearn import MKLClassifier, MultiView
from mklearn.cli import models, refits
from mklearn.cli.commands import make_app
from mklearn.interpretation import ViewScorer
from mklearn.kernels import RBF, Linear, per_view

QUICK = ("--target", "kind", "--cv", 2, "--kernels", "linear", "--norm", 2, "--reg", 1)
KEYS = ("unique", "unique_error", "shapley", "shapley_error", "sampling_error")


@pytest.fixture(scope="module", autouse=True)
def all_refits(few_to_choose_from):
    """Let searches try little, but fit as many models of some views as for users."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("mklearn.cli.refits.EXACT", "mklearn.cli.refits.ORDERS"):
            patch.setattr(name, few_to_choose_from[name])
        yield


def columns_of(n_views):
    return [f"{'abcdefgh'[v]}{j}" for v in range(n_views) for j in range(2)]


def write(path, n_views=2, n=60):
    """Write a table of views a, b, ...; the first says more than the second."""
    rng = np.random.default_rng(0)
    y = np.arange(n) % 2
    names = columns_of(n_views)
    frame = pd.DataFrame(rng.normal(size=(n, len(names))), columns=names)
    frame[["a0", "a1"]] += 1.2 * y[:, None]
    frame[["b0", "b1"]] += 0.6 * y[:, None]
    frame["years"] = rng.normal(size=n)
    frame["kind"] = np.array(["x", "y"])[y]
    frame.to_csv(path, index=False)
    return [w for v in "abcdefgh"[:n_views] for w in ("--views", f"{v}={v}*")]


def fit(*args):
    result = CliRunner().invoke(make_app(), ["fit", *map(str, args), "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.fixture(scope="module")
def of_two_views(tmp_path_factory):
    """A run on two views: its table, its folder, and what it has printed."""
    folder = tmp_path_factory.mktemp("two")
    path, out = folder / "t.csv", folder / "out"
    command = ["fit", path, *write(path), *QUICK, "--out", out]
    result = CliRunner().invoke(make_app(), list(map(str, command)))
    assert result.exit_code == 0, result.output
    return path, out, result.stdout


def test_a_run_shows_what_views_add(of_two_views, tmp_path):
    path, out, _ = of_two_views
    found = json.loads((out / "results.json").read_text("utf-8"))
    a, b = found["views"]
    told = found["refits"]
    assert told["kinds"] == ["unique", "shapley"] and told["left_out"] == {}
    assert told["n_fits"] == 2 * 3  # folds, and sets of views that are not empty
    # all that is there is divided
    whole = found["methods"][0]["score"]
    assert told["score"] == pytest.approx(whole, abs=1e-12)
    shapley = a["shapley"] + b["shapley"]
    assert shapley == pytest.approx(whole - told["score_without_views"], abs=1e-12)
    guess = next(m for m in found["methods"] if m["model"] == models.MAJORITY)
    assert told["score_without_views"] == pytest.approx(guess["score"], abs=1e-12)
    # without a view, the score is that of a run without its columns
    alone = {}
    for view in ("a", "b"):
        one = fit(path, "--views", f"{view}={view}*", *QUICK, "--out", tmp_path / view)
        alone[view] = one["methods"][0]["score"]
        assert "refits" not in one and all(one["views"][0][k] is None for k in KEYS)
    assert a["unique"] == pytest.approx(whole - alone["b"], abs=1e-12)
    assert b["unique"] == pytest.approx(whole - alone["a"], abs=1e-12)
    gains = (alone["a"] - guess["score"], a["unique"])
    assert a["shapley"] == pytest.approx(np.mean(gains), abs=1e-12)
    assert a["shapley"] > b["shapley"]
    assert a["unique_error"] > 0 and a["shapley_error"] > 0
    assert a["sampling_error"] is None


def test_files_and_terminal_show_the_same(of_two_views):
    _, out, shown = of_two_views
    found = json.loads((out / "results.json").read_text("utf-8"))
    text = (out / "views.csv").read_text("utf-8").splitlines()
    for row, view in zip(csv.DictReader(text), found["views"], strict=True):
        known = {k: "" if v is None else str(v) for k, v in view.items()}
        assert row == known
    page = (out / "report.html").read_text("utf-8")
    assert "<th" in page and "left out" in page and "Shapley value" in page
    assert found["refits"]["words"].split(". ")[0] in page
    for view in found["views"]:
        for kind in ("unique", "shapley"):
            cell = f"{round(100 * view[kind], 1) + 0.0:+.1f} ± "
            assert cell in page and cell in shown


@pytest.mark.parametrize(
    ("seconds", "kinds"), [(1.0, []), (0.02, ["unique"]), (0.0, ["unique", "shapley"])]
)
def test_only_what_there_is_time_for(seconds, kinds, tmp_path, monkeypatch):
    monkeypatch.setattr(refits, "LEAST", 0.0)
    monkeypatch.setattr(refits.Refits, "_seconds", lambda self: 100 * seconds)
    path = tmp_path / "t.csv"
    views = write(path, 4)
    command = (path, *views, *QUICK)
    # drop-one takes 2 * 5 fits, Shapley values 2 * 15: the limit is in between
    spent = 100 * 0.02 * 20
    asked = refits.Refits.result
    monkeypatch.setattr(
        refits.Refits, "result", lambda self, _, say: asked(self, spent, say)
    )
    found = fit(*command, "--out", tmp_path / "out")
    told = found["refits"]
    assert told["kinds"] == kinds
    assert set(told["left_out"]) == {"unique", "shapley"} - set(kinds)
    for kind in ("unique", "shapley"):
        assert all(
            (view[kind] is not None) == (kind in kinds) for view in found["views"]
        )
    page = (tmp_path / "out" / "report.html").read_text("utf-8")
    for kind in told["left_out"]:
        assert f"--by-view {kind}" in told["words"]
        assert f"to wait for them, use --by-view {kind}" in page
    if "shapley" not in kinds:  # unless it is asked for
        found = fit(*command, "--by-view", "shapley", "--out", tmp_path / "out")
        assert found["by_view"]["kind"] == "shapley"
        scores = [view["score"] for view in found["by_view"]["views"]]
        assert scores == [view["shapley"] for view in found["views"]]
        assert found["views"][0]["unique"] is None


@pytest.mark.parametrize("asked", ["product", "none"])
def test_nothing_is_fitted_that_nobody_asked_for(asked, tmp_path):
    path = tmp_path / "t.csv"
    views = write(path)
    options = (*QUICK, "--by-view", asked, "--out", tmp_path / "out")
    found = fit(path, *views, *options)
    assert "refits" not in found and ("by_view" in found) == (asked == "product")
    assert all(view[key] is None for view in found["views"] for key in KEYS)


def test_many_views_are_sampled_with_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(refits, "EXACT", 3)
    path = tmp_path / "t.csv"
    views = write(path, 5)
    found = fit(path, *views, *QUICK, "--out", tmp_path / "out")
    told = found["refits"]
    assert all(view["sampling_error"] >= 0 for view in found["views"])
    assert any(view["sampling_error"] > 0 for view in found["views"])
    total = sum(view["shapley"] for view in found["views"])
    assert total == pytest.approx(told["score"] - told["score_without_views"])
    assert f"sampled from {refits.ORDERS} orders" in told["words"]


def test_models_have_what_the_search_of_their_fold_has_chosen(tmp_path):
    path = tmp_path / "t.csv"
    views = write(path)
    options = ("--target", "kind", "--cv", 2, "--scoring", "roc_auc")
    found = fit(path, *views, *options, "--out", tmp_path / "out")
    told, method = found["refits"], found["methods"][0]
    # the model of all views is the one that was compared, up to its tolerance
    assert told["score"] == pytest.approx(method["score"], abs=0.02)
    assert found["views"][0]["unique"] is not None


def test_beside_covariates_there_is_no_model_without_views(tmp_path):
    path = tmp_path / "t.csv"
    views = write(path)
    options = (*QUICK, "--covariates", "years", "--out", tmp_path / "out")
    told = fit(path, *views, *options)["refits"]
    assert told["kinds"] == ["unique"] and set(told["left_out"]) == {"shapley"}
    assert "covariates" in told["words"] and "--by-view" not in told["words"]


def test_kernels_of_a_file_of_grams(tmp_path):
    rng = np.random.default_rng(0)
    y = np.arange(40) % 2
    X = rng.normal(size=(2, 40, 3)) + np.array([2.0, 0.0])[:, None, None] * y[:, None]
    grams = np.stack([A @ A.T for A in X], axis=2)
    np.savez(tmp_path / "k.npz", K=grams, y=y, names=["signal", "noise"])
    options = ("--target", "y", "--cv", 2, "--norm", 2, "--reg", 1)
    found = fit(tmp_path / "k.npz", *options, "--out", tmp_path / "out")
    signal, noise = found["views"]
    assert (signal["view"], noise["view"]) == ("signal", "noise")
    assert signal["unique"] > noise["unique"]
    assert signal["shapley"] > noise["shapley"]


# --- both kinds from the same models --------------------------------------------------


def folds_of(n=60):
    rng = np.random.default_rng(1)
    y = np.arange(n) % 2
    X = MultiView({v: rng.normal(size=(n, 2)) + s * y[:, None] for v, s in
                   (("a", 1.0), ("b", 0.5), ("c", 0.0))})  # fmt: skip
    half = np.arange(n) < n // 2
    return X, y, [(half, ~half), (~half, half)]


@pytest.mark.parametrize("n_permutations", [None, 4])
def test_kinds_that_share_models_are_those_of_their_own(n_permutations):
    X, y, folds = folds_of()
    model = MKLClassifier(per_view(Linear()))
    given = {"n_permutations": n_permutations, "random_state": 0}
    both = ViewScorer(model, "shapley", also=["unique"], **given)
    alone = {kind: ViewScorer(model, kind, **given) for kind in ("shapley", "unique")}
    for train, test in folds:
        for scorer in (both, *alone.values()):
            scorer.add(model, (X[train], y[train]), (X[test], y[test]))
    assert both.result().kind == "shapley"
    for kind, scorer in alone.items():
        found, known = both.result(kind), scorer.result()
        assert (found.kind, found.total) == (known.kind, known.total)
        np.testing.assert_array_equal(found.folds, known.folds)
    assert both.result("unique").sampling_errors is None
    assert (both.result().sampling_errors is None) == (n_permutations is None)


def test_the_product_measure_comes_alone():
    with pytest.raises(ValueError, match="same models"):
        ViewScorer(MKLClassifier(), "product", also=["unique"])


def test_a_fold_may_lack_kernels_of_a_view_but_no_view():
    X, y, ((train, test), _) = folds_of()
    samples = (X[train], y[train]), (X[test], y[test])
    more, fewer = (
        MKLClassifier(per_view(Linear(), RBF())),
        MKLClassifier(per_view(RBF())),
    )
    scorer = ViewScorer(more, "unique")
    scorer.add(more, *samples)
    scorer.add(fewer, *samples)
    assert scorer.result().names == ("a", "b", "c")
    other = MKLClassifier(per_view(Linear(), views=["a", "b"]))
    with pytest.raises(ValueError, match="different"):
        scorer.add(other, *samples)
