"""The commands on one's own data: fit, predict, inspect, compare; and bad input."""

import csv
import io
import json
import os
import re
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path

import joblib
import numpy as np
import pytest

pytest.importorskip("typer")
pytest.importorskip("pandas")
import pandas as pd
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.metrics import (
    balanced_accuracy_score,
    f1_score,
    log_loss,
    r2_score,
    roc_auc_score,
)
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold
from sklearn.svm import SVC
from typer.testing import CliRunner

from mklearn import MKLRegressorCV, TwoLevel, __version__
from mklearn.cli import application, inputs, models
from mklearn.cli.commands import make_app
from mklearn.model_selection import Comparison
from mklearn.persistence import load
from mklearn.report.facts import verdict
from mklearn.table import TableError, find_layout, read_table
from written import all_pages, blocks, named


def run(*args):
    return CliRunner().invoke(make_app(), [str(arg) for arg in args])


def patients(n=60):
    rng = np.random.default_rng(0)
    genes = rng.normal(size=(n, 3))
    frame = pd.DataFrame(genes, columns=["gene1", "gene2", "gene3"])
    frame.insert(0, "id", [f"p{i}" for i in range(n)])
    frame["age"] = rng.normal(50, 10, n)
    frame["sex"] = rng.choice(["f", "m"], n)
    frame["site"] = rng.choice(["north", "south", "east"], n)
    frame["empty"] = np.nan
    risk = 2 * genes[:, 0] + genes[:, 1] + (frame["sex"] == "f")
    frame["risk"] = risk + 0.1 * rng.normal(size=n)
    frame["state"] = np.where(risk > 0.5, "sick", "well")
    frame.loc[[3, 5], "age"] = np.nan
    frame.loc[4, "site"] = None
    return frame


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "patients.csv"
    patients().drop(columns="risk").to_csv(path, index=False)
    return path


pytestmark = pytest.mark.usefixtures("few_to_choose_from")
VIEWS = ("--views", "clinic=age,sex,site", "--views", "genes=gene1,gene2,gene3")
QUICK = ("--kernels", "linear,rbf", "--cv", 2)
FIXED = ("--norm", 2, "--reg", 1)  # nothing to search for


@pytest.fixture(scope="module")
def fitted(table, tmp_path_factory):
    out = tmp_path_factory.mktemp("fit") / "new"
    return run("fit", table, "--target", "state", *VIEWS, *QUICK, "--out", out), out


# --- fit ------------------------------------------------------------------------------


def test_fit_compares_and_shows_weights_and_certificate(fitted):
    result, _ = fitted
    assert result.exit_code == 0, result.output
    for words in (
        "learned weights (mkl)", "unweighted sum", "best single kernel", "SVC",
        "classification", "Missing values, 3 in all, are filled in",
        "left out: id, empty",
        "genes:linear", "is not clear", "certified", "mklearn predict",
    ):  # fmt: skip
        assert words in " ".join(result.stdout.split()), words


def test_fit_writes_whole_files_and_nothing_else(fitted):
    _, out = fitted
    assert set(os.listdir(out)) == set(application.FILES)
    assert "<h1" in (out / "report.html").read_text(encoding="utf-8")
    results = json.loads((out / "results.json").read_text(encoding="utf-8"))
    assert results["versions"]["mklearn"] == __version__
    assert results["data"]["columns"]["sex"] == "category"
    assert len(results["methods"]) == 6 and results["n_folds"] == 2
    assert results["verdict"]["use"] in [row["model"] for row in results["methods"]]
    weights = pd.read_csv(out / "weights.csv")
    assert weights["name"].tolist() == [k["name"] for k in results["model"]["kernels"]]
    assert weights["contribution"].sum() == pytest.approx(1.0)
    # what was predicted of samples not learned from, each once
    unseen = pd.read_csv(out / "predictions.csv")
    assert unseen["sample"].tolist() == list(range(results["data"]["n_samples"]))
    assert sorted(unseen["fold"].unique()) == [1, 2]
    right = (unseen["truth"] == unseen["predicted"]).groupby(unseen["fold"]).mean()
    assert right.tolist() == pytest.approx(results["methods"][0]["fold_scores"])
    assert weights["p"].between(0, 1).all()
    assert (weights["p_holm"] >= weights["p"]).all()
    assert weights["selected"].between(0, 1).all()
    assert (weights["weight_low"] <= weights["weight_high"]).all()
    assert results["inference"]["p"] == pytest.approx(weights["p"].tolist())
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "Which kernels matter?" in page and "adjusted p" in page


def test_predictions_are_those_of_the_model(fitted, table, tmp_path):
    _, out = fitted
    shown = run("predict", out / "model.mkl", table)
    assert shown.exit_code == 0, shown.output
    expected = load(out / "model.mkl").predict(pd.read_csv(table)).tolist()
    lines = shown.stdout.splitlines()
    assert lines[0] == "prediction,score_well"
    assert [line.split(",")[0] for line in lines[1:]] == expected
    written = run("predict", out / "model.mkl", table, "--out", tmp_path / "p.csv")
    assert written.exit_code == 0
    assert (tmp_path / "p.csv").read_text() == shown.stdout
    as_json = run("predict", out / "model.mkl", table, "--json")
    assert json.loads(as_json.stdout)["prediction"] == expected


def test_values_between_semicolons_may_contain_commas(tmp_path):
    path = tmp_path / "export.csv"
    text = 'id;site;age\np1;Kiel;50\np2;Ulm, north;60\np3;"Bonn; west";70\n'
    path.write_text(text, encoding="utf-8-sig")
    read = read_table(path)
    assert read["site"].tolist() == ["Kiel", "Ulm, north", "Bonn; west"]
    assert (list(read.columns), read["age"].sum()) == (["id", "site", "age"], 180)
    path.write_text("id;id\n1,5;2\n")
    with pytest.raises(TableError, match="more than one column called 'id'"):
        read_table(path)


def test_parquet(fitted, table, tmp_path):
    pytest.importorskip("pyarrow")
    frame = pd.read_csv(table)
    frame["site"] = frame["site"].astype("category")
    frame["age"] = frame["age"].round().astype("Int64")
    frame.to_parquet(tmp_path / "p.parquet")
    read = read_table(tmp_path / "p.parquet")
    kinds = find_layout(read, "state").kinds
    assert (kinds["site"], kinds["age"]) == ("category", "number")
    assert read["age"].isna().sum() == 2
    model = fitted[1] / "model.mkl"
    shown = run("predict", model, tmp_path / "p.parquet", "--json")
    assert shown.exit_code == 0, shown.output
    expected = load(model).predict(frame).tolist()
    assert json.loads(shown.stdout)["prediction"] == expected
    # names of rows are a column if they have a name themselves, and nothing if not
    frame.set_index("id").to_parquet(tmp_path / "named.pq")
    assert "id" in read_table(tmp_path / "named.pq")
    frame.drop(columns="id").set_index(frame["id"].to_numpy()).to_parquet(
        tmp_path / "unnamed.pq"
    )
    assert "id" not in read_table(tmp_path / "unnamed.pq")


def test_parquet_without_its_package(tmp_path, monkeypatch):
    for missing in ("pyarrow", "fastparquet"):
        monkeypatch.setitem(sys.modules, missing, None)
    (tmp_path / "p.parquet").write_bytes(b"PAR1")
    fails("fit", tmp_path / "p.parquet", "--target", "y", "--out", tmp_path / "o",
          words="pip install pyarrow")  # fmt: skip
    assert os.listdir(tmp_path) == ["p.parquet"]


def test_new_categories_are_told_and_columns_may_come_in_any_order(fitted, tmp_path):
    _, out = fitted
    new = patients().drop(columns=["risk", "state"]).iloc[:5, ::-1].copy()
    new["site"] = "west"
    new.to_csv(tmp_path / "n.tsv", sep="\t", index=False)
    result = run("predict", out / "model.mkl", tmp_path / "n.tsv")
    assert result.exit_code == 0, result.output
    assert "west" in result.stderr and result.stdout.count("\n") == 6


def test_inspect_shows_kernels_certificate_versions(fitted):
    _, out = fitted
    result = run("inspect", out / "model.mkl")
    assert result.exit_code == 0, result.output
    for words in ("MKLClassifier", "genes:linear", "within", f"mklearn {__version__}"):
        assert words in result.stdout
    content = json.loads(run("inspect", out / "model.mkl", "--json").stdout)
    assert content["model"]["certificates"][0]["status"] == "OPTIMAL"
    assert content["notes"]["data"]["target"] == "state"


@pytest.mark.parametrize(
    "options",
    [
        ("--method", "discriminant"),
        ("--method", "discriminant", "--reg", "learn"),
        ("--method", "subspace"),
        ("--method", "bilinear"),
        ("--method", "sum"),
        ("--norm", "auto", "--reg", "1"),
        ("--norm", "1"),
        ("--method", "discriminant", "--norm", "auto"),
        ("--method", "bilinear", "--norm", "auto"),
    ],
)
def test_every_method_fits_and_loads(options, table, tmp_path):
    result = run(
        "fit", table, "--target", "state", "--kernels", "rbf,linear", "--cv", 2,
        "--out", tmp_path, "--json", *options,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    content = json.loads(result.stdout)
    assert content["methods"][0]["score"] > 0.6
    assert content["methods"][0]["n_kernels"] == 2
    if "auto" in options:
        assert content["model"]["chosen"]["norm"] in (1, 2, "inf")
    assert run("inspect", tmp_path / "model.mkl").exit_code == 0
    assert run("predict", tmp_path / "model.mkl", table).exit_code == 0


@pytest.mark.parametrize("target", ["state", "site"])
def test_predictions_of_the_report_are_those_that_were_scored(target, table):
    data = inputs.load_data(table, target)
    run = application.run_fit(data, models.Settings(kernels="linear", cv=3))
    found = run.predictions
    for (_, test), score in zip(
        run.comparison.splits, run.comparison.scores[0], strict=True
    ):
        assert np.mean(found.predicted[test] == found.truth[test]) == score
    assert (found.scores is not None) == (target == "state")


def test_predicted_numbers_of_the_report_are_those_that_were_scored(tmp_path):
    frame = pd.DataFrame({"a": np.arange(40.0), "b": np.arange(40) % 7})
    frame["size"] = frame.a * 0.5 + np.sin(frame.b)
    frame.to_csv(tmp_path / "sizes.csv", index=False)
    data = inputs.load_data(tmp_path / "sizes.csv", "size")
    run = application.run_fit(data, models.Settings(kernels="linear", cv=3))
    found = run.predictions
    for (_, test), score in zip(
        run.comparison.splits, run.comparison.scores[0], strict=True
    ):
        assert r2_score(found.truth[test], found.predicted[test]) == pytest.approx(
            score
        )
    assert found.scores is None


def test_a_report_shows_errors_on_samples_not_seen(fitted):
    page = (fitted[1] / "report.html").read_text(encoding="utf-8")
    assert "ROC curve for class well" in page and "Confusion matrix" in page


def test_options_that_a_method_takes_in_its_own_way_are_told():
    for method, norm, words in (
        ("subspace", 4.0, "--norm has no effect"),
        ("subspace", None, "times the trace"),
        ("discriminant", 2.0, "leave-one-out"),
        ("sum", 2.0, "--norm has no effect"),
    ):
        (said,) = models.method_notes(models.Settings(method=method, norm=norm))
        assert words in said
    assert models.method_notes(models.Settings()) == []


def test_evidence_needs_numbers_and_nothing_else(tmp_path, table):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.uniform(-2, 2, (60, 3)), columns=["a", "b", "c"])
    frame["size"] = frame.a + 0.1 * rng.standard_normal(60)
    frame.to_csv(tmp_path / "sizes.csv", index=False)
    common = ("--target", "size", "--cv", 2, "--kernels", "rbf,linear")
    out = ("--out", tmp_path / "out")
    result = run(
        "fit", tmp_path / "sizes.csv", *common, *out, "--method", "evidence",
        "--norm", 1,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    for words in ("--norm has no effect", "log evidence", "no proof that other"):
        assert words in " ".join(result.stdout.split())
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "Evidence</h2>" in page and "noise of output 1" in page
    assert "Certificate</h2>" not in page
    shown = run("inspect", tmp_path / "out" / "model.mkl", "--json")
    weights = pd.read_csv(tmp_path / "out" / "weights.csv")
    assert {
        "weight_low",
        "weight_high",
        "share",
        "share_low",
        "share_high",
        "p",
    } <= set(weights.columns)
    assert (weights["share_low"] <= weights["share"]).all()
    assert "based on the profile likelihood" in page
    found = json.loads(shown.stdout)["model"]["evidence"]
    assert found["log_evidence"] > found["log_evidence_of_nothing"] + 20
    assert found["status"] == "STATIONARY" and len(found["noise"]) == 1
    result = run("predict", tmp_path / "out" / "model.mkl", tmp_path / "sizes.csv")
    assert result.exit_code == 0
    result = run(
        "compare", tmp_path / "sizes.csv", *common, "--methods", "mkl,evidence",
        "--reg", 1,
    )  # fmt: skip
    assert result.exit_code == 0 and "evidence" in result.stdout, result.output
    for options, message in (
        ((tmp_path / "sizes.csv", *common, "--reg", 1), "omit --reg"),
        ((table, "--target", "state"), "needs a numeric target"),
    ):
        refused = run("fit", *options, "--method", "evidence")
        assert refused.exit_code != 0 and message in refused.output


def test_numbers_are_a_regression(tmp_path):
    patients().drop(columns="state").to_csv(tmp_path / "r.csv", index=False)
    result = run(
        "fit", tmp_path / "r.csv", "--target", "risk", *QUICK, "--out", tmp_path / "o"
    )
    assert result.exit_code == 0, result.output
    assert "regression" in result.stdout and "R²" in result.stdout
    assert "SVR" in result.stdout and "best single kernel" in result.stdout
    refused = run(
        "fit", tmp_path / "r.csv", "--target", "risk", "--method", "bilinear",
        "--out", tmp_path / "p",
    )  # fmt: skip
    assert refused.exit_code == 2 and "needs classes" in refused.stderr
    assert not (tmp_path / "p").exists()


def test_sequences_are_views_of_their_own(tmp_path):
    rng = np.random.default_rng(0)
    words = ["".join(rng.choice(list("ACGT"), 10)) for _ in range(40)]
    y = [w.count("A") > 2 for w in words]
    pd.DataFrame({"dna": words, "y": y}).to_csv(tmp_path / "s.csv", index=False)
    result = run(
        "fit", tmp_path / "s.csv", "--target", "y", "--sequences", "dna", "--cv", 2,
        "--out", tmp_path / "o",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "dna:spectrum(k=1)" in result.stdout and "SVC" not in result.stdout
    assert (
        run("predict", tmp_path / "o" / "model.mkl", tmp_path / "s.csv").exit_code == 0
    )


def test_a_row_that_is_empty_in_a_view_lacks_it(tmp_path):
    frame = patients().drop(columns=["risk", "id", "empty"])
    genes = ["gene1", "gene2", "gene3"]
    frame.loc[10:16, genes] = np.nan
    frame.loc[20, "gene1"] = np.nan  # a part of a view is filled in
    frame["dna"] = ["ACGT", "CCGT", "ACTT"] * 20
    frame.loc[[2, 30], "dna"] = None
    frame.to_csv(tmp_path / "h.csv", index=False)
    out = tmp_path / "o"
    result = run(
        "fit", tmp_path / "h.csv", "--target", "state", *VIEWS, "--sequences", "dna",
        "--kernels", "linear,rbf,spectrum", "--cv", 2, "--out", out,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    shown = " ".join(result.stdout.split())
    assert "Missing views (all columns empty): genes (7 rows), dna (2 rows)" in shown
    assert "Missing values, 4 in all" in shown and "gene1 (1)" in shown
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "samples without it" in page and "4 missing values were filled in" in page
    predicted = run("predict", out / "model.mkl", tmp_path / "h.csv")
    assert predicted.exit_code == 0 and "genes (7 rows)" in predicted.stderr
    model = load(out / "model.mkl")
    assert model.transform_table(frame).absent("genes").sum() == 7
    # their scale is that of the rows that have them
    assert model.columns_["gene2"].mean == pytest.approx(frame["gene2"].mean())
    frame.loc[:, "dna"] = None
    frame.head(4).to_csv(tmp_path / "none.csv", index=False)
    assert run("predict", out / "model.mkl", tmp_path / "none.csv").exit_code == 0
    frame.drop(columns="dna").to_csv(tmp_path / "less.csv", index=False)
    less = run("predict", out / "model.mkl", tmp_path / "less.csv")
    assert less.exit_code == 0 and "dna (60 rows)" in less.output
    words = pd.DataFrame({"dna": ["A", None, "C", "A"], "state": list("xyxy")})
    words.to_csv(tmp_path / "w.csv", index=False)
    fails("fit", tmp_path / "w.csv", "--target", "state", "--sequences", "dna",
          "--out", tmp_path / "p", words="no other view")  # fmt: skip


def test_grams(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3))
    y = np.where(X[:, 0] > 0, "a", "b")
    grams = np.stack([X[:, [i]] @ X[:, [i]].T for i in range(3)], axis=2)
    np.savez(tmp_path / "k.npz", K=grams, labels=y, names=["one", "two", "three"])
    np.savez(tmp_path / "each.npz", u=grams[:, :, 0], v=grams[:, :, 1])
    np.save(tmp_path / "k.npy", grams)
    (tmp_path / "y.txt").write_text("\n".join(y) + "\n")
    for file, target, name in (
        ("k.npz", "labels", "three"),
        ("each.npz", tmp_path / "y.txt", "v"),
        ("k.npy", tmp_path / "y.txt", "K2"),
    ):
        searched = () if file == "k.npz" else FIXED
        out = tmp_path / f"{file}.out"
        result = run(
            "fit", tmp_path / file, "--target", target, "--cv", 2, *searched,
            "--out", out,
        )  # fmt: skip
        assert result.exit_code == 0, result.output
        assert name in result.stdout
        assert "SVC (sum of the matrices)" in result.stdout
    np.savez(tmp_path / "r.npz", K=grams, value=X[:, 0] + 0.1 * X[:, 1])
    options = ("--target", "value", "--cv", 2)
    result = run("fit", tmp_path / "r.npz", *options, "--out", tmp_path / "r")
    assert result.exit_code == 0, result.output
    assert "SVR (sum of the matrices)" in result.stdout
    assert "best single kernel" in result.stdout
    data = inputs.load_data(tmp_path / "r.npz", "value")
    search = models.make_baselines(data, models.Settings(reg="auto"))[
        "best single kernel"
    ]
    assert isinstance(search, MKLRegressorCV) and search.select == "one"
    np.save(tmp_path / "new.npy", grams[:7])
    model = tmp_path / "k.npy.out" / "model.mkl"
    shown = run("predict", model, tmp_path / "new.npy", "--json")
    assert (
        json.loads(shown.stdout)["prediction"]
        == load(model).predict(grams[:7]).tolist()
    )
    assert run("predict", model, tmp_path / "each.npz").exit_code == 2


# --- the verdict and what it rests on -------------------------------------------------


def known_answer(kind):
    """Return two classes whose signal is in two of fourteen views, in all or none."""
    n = 240 if kind == "two" else 160
    rng = np.random.default_rng(3)
    y = np.arange(n) % 2
    views = {f"v{j}": rng.normal(size=(n, 2)) for j in range(14)}
    if kind == "two":  # products of columns: one view is not enough, noise hides both
        score = views["v0"].prod(axis=1) + views["v1"].prod(axis=1)
        y = (score > np.median(score)).astype(int)
    if kind == "all":
        for values in views.values():
            values += 0.35 * y[:, None]
    frame = pd.concat(
        [
            pd.DataFrame(v, columns=[f"{name}_{i}" for i in range(2)])
            for name, v in views.items()
        ],
        axis=1,
    )
    frame["state"] = np.where(y, "sick", "well")
    return frame, [("--views", f"{name}={name}_*") for name in views]


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("two", "learned better"),
        ("all", "sum as good"),
        ("none", "nothing found"),
    ],
)
def test_the_verdict_is_right_where_the_answer_is_known(
    kind, why, few_to_choose_from, tmp_path, monkeypatch
):
    known = few_to_choose_from["mklearn.cli.models._inner_folds"]
    monkeypatch.setattr(models, "_inner_folds", known)  # as many as users have
    frame, views = known_answer(kind)
    frame.to_csv(tmp_path / "t.csv", index=False)
    result = run(
        "fit", tmp_path / "t.csv", "--target", "state", "--kernels", "rbf",
        "--cv", 3, "--by-view", "none",
        *(word for pair in views for word in pair), "--out", tmp_path / "o", "--json",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    verdict = json.loads(result.stdout)["verdict"]
    assert verdict["why"] == why, verdict
    assert verdict["words"].startswith("Verdict: ")


def test_a_verdict_names_the_best_and_by_how_much():
    splits = tuple((np.arange(8), np.arange(2)) for _ in range(4))

    def judged(**means):
        noise = 1e-3 * np.array([1.0, -1.0, 1.0, -1.0])
        scores = np.array([m + s * noise for s, m in enumerate(means.values())])
        zero = np.zeros_like(scores)
        found = Comparison(
            tuple(means), scores, zero, zero, np.zeros(len(means), int), splits
        )
        return verdict(found, "accuracy", method="mkl", plain="sum", guess="guess")

    for means, use, why in (
        ({"mkl": 0.9, "sum": 0.8, "svc": 0.8, "guess": 0.5}, "mkl", "learned better"),
        ({"mkl": 0.8, "sum": 0.9, "svc": 0.8, "guess": 0.5}, "sum", "sum better"),
        ({"mkl": 0.8, "sum": 0.8, "svc": 0.9, "guess": 0.5}, "svc", "rival"),
        ({"mkl": 0.8, "sum": 0.8, "svc": 0.7, "guess": 0.5}, "sum", "sum as good"),
        ({"mkl": 0.5, "sum": 0.5, "svc": 0.4, "guess": 0.5}, "guess", "nothing found"),
    ):
        found = judged(**means)
        assert (found["use"], found["why"]) == (use, why)
        for name in {"mkl", "svc", "guess"} & {found["use"]} - {"mkl"}:
            assert name in found["words"]
    assert "+10.0" in judged(mkl=0.9, sum=0.8, svc=0.8, guess=0.5)["words"]


def test_baselines_are_as_well_looked_after_as_the_method(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(120, 2))
    frame = pd.DataFrame(X, columns=["a", "b"])
    frame["size"] = 1000 * np.sin(2 * X[:, 0]) + 5000 + 20 * rng.normal(size=120)
    frame.to_csv(tmp_path / "sizes.csv", index=False)
    data = inputs.load_data(tmp_path / "sizes.csv", "size")
    result = application.run_fit(data, models.Settings(kernels="linear,rbf", cv=3))
    scores = dict(zip(result.comparison.names, result.comparison.mean, strict=True))
    # raw targets of this size leave an SVR with C = 1 at the mean, where R2 is zero
    assert scores["SVR (one RBF kernel)"] > 0.7
    assert scores["gradient boosting"] > 0.8
    assert abs(scores["mean of the target"]) < 0.2


def test_views_by_patterns_and_ranges(table):
    frame = pd.read_csv(table)
    views = {"genes": ["gene?"], "clinic": ["age:site"]}
    layout = find_layout(frame, "state", views)
    assert layout.views == {
        "genes": ("gene1", "gene2", "gene3"),
        "clinic": ("age", "sex", "site"),
    }
    # what a pattern finds and cannot be used is left out, the target as well
    rest = find_layout(frame, "state", {"all": ["*"]})
    assert {"id", "empty", "state"}.isdisjoint(rest.kinds)
    for wanted, words in (
        ("genes*x", "no column matches"),
        ("site:age", "is empty"),
        ("agee", "Did you mean 'age'"),
        ("age:sexx", "Did you mean 'sex'"),
    ):
        with pytest.raises(TableError, match=re.escape(words)):
            find_layout(frame, "state", {"v": [wanted]})


# one of the learned models is searched for by its score; best kernels always are
@pytest.mark.parametrize(
    ("scoring", "options"),
    [
        ("balanced_accuracy", FIXED),
        ("roc_auc", ()),
        ("f1", FIXED),
    ],
)
def test_other_scores_of_two_classes(scoring, options, table, tmp_path):
    result = run(
        "fit", table, "--target", "state", *VIEWS, *QUICK, "--scoring", scoring,
        "--class-weight", "balanced", "--repeats", 2, "--test", table, *options,
        "--out", tmp_path, "--json",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    content = json.loads(result.stdout)
    assert content["scoring"] == scoring and content["n_folds"] == 4
    assert set(content["test"]["scores"]) == {r["model"] for r in content["methods"]}
    frame = pd.read_csv(table)
    model = load(tmp_path / "model.mkl")
    truth = frame["state"] == "well"
    expected = {
        "balanced_accuracy": lambda: balanced_accuracy_score(
            frame["state"], model.predict(frame)
        ),
        "roc_auc": lambda: roc_auc_score(truth, model.decision_function(frame)),
        "f1": lambda: f1_score(truth, model.predict(frame) == "well"),
    }[scoring]()
    found = content["test"]["scores"]["learned weights (mkl)"]
    assert found == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("count", "options"),
    [
        (2, ("--groups", "who", *FIXED)),
        (3, ()),  # the one that is searched for
        (3, ("--approximation", "nystroem", "--rank", 10, "--subsample", 60, *FIXED)),
    ],
)
def test_log_loss_is_that_of_the_probabilities(count, options, tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(80, 4)), columns=["a0", "a1", "b0", "b1"])
    value = frame.a0 + 0.5 * frame.b0 + 0.3 * rng.normal(size=80)
    known = np.array(["low", "middle", "top"])[:count]
    frame["kind"] = known[np.argsort(np.argsort(value)) * count // 80]
    if "--groups" in options:
        frame["who"] = np.arange(80) // 2
    path, out = tmp_path / "t.csv", tmp_path / "out"
    frame.to_csv(path, index=False)
    result = run(
        "fit", path, "--target", "kind", "--views", "a=a0,a1", "--views", "b=b0,b1",
        *QUICK, "--scoring", "log_loss", "--test", path, "--out", out, *options,
        "--json",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    content = json.loads(result.stdout)
    assert content["scoring"] == "neg_log_loss"
    # samples that were not learned from
    unseen = pd.read_csv(out / "predictions.csv")
    names = [f"probability_{label}" for label in known]
    folds = [
        -log_loss(part["truth"], part[names], labels=known)
        for _, part in unseen.groupby("fold")
    ]
    scores = {row["model"]: row["score"] for row in content["methods"]}
    learned = "learned weights (mkl)"
    assert scores[learned] == pytest.approx(np.mean(folds), rel=1e-9)
    assert scores[learned] > scores[models.FREQUENCIES]
    assert content["verdict"]["why"] != "nothing found"
    # the saved model is the one that was scored, and its probabilities are predicted
    shown = run("predict", out / "model.mkl", path, "--proba")
    chances = pd.read_csv(io.StringIO(shown.stdout))[names]
    tested = content["test"]["scores"]
    expected = -log_loss(frame["kind"], chances, labels=known)
    assert tested[learned] == pytest.approx(expected, rel=1e-9)
    share = frame["kind"].value_counts(normalize=True)
    assert tested[models.FREQUENCIES] == pytest.approx((share * np.log(share)).sum())
    # a model without views is such a guess, too
    assert all(view["unique"] is not None for view in content["views"])
    without = content["refits"]["score_without_views"]
    assert without == pytest.approx(scores[models.FREQUENCIES], rel=1e-9)
    assert np.isfinite([row["score"] for row in content["learning_curve"]]).all()
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "-log loss is the log loss with a minus sign" in page
    assert "scored by log loss" in page


@pytest.mark.parametrize("target", ["numbers", "classes"])
def test_folds_of_one_subject(target, tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(60, 4)), columns=["a0", "a1", "b0", "b1"])
    frame["y"] = frame.a0 + rng.normal(size=60)
    if target == "classes":
        frame["y"] = np.where(frame.y > 0, "yes", "no")
    frame["who"] = [f"s{i // 15}" for i in range(60)]
    path, out = tmp_path / "t.csv", tmp_path / "out"
    frame.to_csv(path, index=False)
    views = ("--views", "a=a0,a1", "--views", "b=b0,b1", "--kernels", "linear")
    result = run(
        "fit", path, "--target", "y", *views, "--groups", "who", "--out", out,
    )  # fmt: skip
    assert result.exit_code == 0, result.output


def test_compare_by_log_loss(table, tmp_path):
    result = run(
        "compare", table, "--target", "state", "--methods", "mkl,discriminant",
        "--norms", "2", *QUICK, "--scoring", "neg_log_loss",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    shown = " ".join(result.stdout.split())
    for words in ("discriminant", models.FREQUENCIES, "SVC", "greater is better"):
        assert words in shown, words
    numbers = tmp_path / "risk.csv"
    patients().drop(columns="state").to_csv(numbers, index=False)
    fails("compare", numbers, "--target", "risk", *QUICK, "--scoring", "log_loss",
          words="--scoring neg_log_loss does not suit a target of numbers")  # fmt: skip


def test_calibration_is_the_same_with_given_kernels():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    y = np.digitize(X[:, 0] + 0.5 * rng.normal(size=60), [-0.5, 0.5])
    grid = {"C": [0.01, 1.0, 100.0]}
    plain = models.CalibratedModel(SVC(gamma=0.5), grid, 3).fit(X, y)
    given = models.CalibratedModel(SVC(kernel="precomputed"), grid, 3)
    given.fit(rbf_kernel(X, gamma=0.5), y)
    assert plain.best_params_ == given.best_params_
    new = rng.normal(size=(20, 3))
    chances = plain.predict_proba(new)
    cross = rbf_kernel(new, X, gamma=0.5)
    # both are solved to the tolerance of libsvm
    np.testing.assert_allclose(chances, given.predict_proba(cross), atol=1e-3)
    np.testing.assert_allclose(chances.sum(axis=1), 1.0, rtol=1e-12)
    assert (plain.predict(new) == plain.classes_[chances.argmax(axis=1)]).all()


def test_calibration_keeps_subjects_together():
    # noise, where each sample is known from another one of the same subject
    rng = np.random.default_rng(0)
    X, y = np.repeat(rng.normal(size=(40, 3)), 3, axis=0), np.repeat([0, 1] * 20, 3)
    who = np.repeat(np.arange(40), 3)
    folds = StratifiedGroupKFold(3)
    model = models.CalibratedModel(SVC(gamma=1.0), {"C": [1.0]}, folds)
    honest = model.fit(X, y, groups=who).predict_proba(X)
    model.set_params(cv=StratifiedKFold(3, shuffle=True, random_state=0))
    mixed = model.fit(X, y).predict_proba(X)
    assert log_loss(y, mixed) < 0.5 * np.log(2) < log_loss(y, honest)


def test_scores_that_do_not_suit_are_one_line_and_two(table, tmp_path):
    log_loss = ("--scoring", "log_loss")
    for options, words in (
        ((*log_loss, "--loss", "hinge"), "which --loss hinge does not provide"),
        ((*log_loss, "--method", "bilinear"), "which --method bilinear does not"),
        (("--scoring", "r2"), "does not suit a target of 2 classes"),
        (("--scoring", "acuracy"), "Did you mean 'accuracy'?"),
        (("--class-weight", "x"), "--class-weight takes balanced"),
        (("--loss", "epsilon_insensitive"), "--loss for a target of classes takes"),
        (("--loss", "hinge", "--method", "bilinear"), "--loss applies to --method mkl"),
        (("--test", tmp_path / "no.csv"), "there is no file"),
    ):
        fails("fit", table, "--target", "state", *options, "--out", tmp_path / "o",
              words=words)  # fmt: skip
    assert not (tmp_path / "o").exists()


def test_evidence_predicts_with_error_bars_and_others_with_probabilities(
    tmp_path, table, fitted
):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.uniform(-2, 2, (50, 2)), columns=["a", "b"])
    frame["size"] = frame.a + 0.1 * rng.standard_normal(50)
    frame.to_csv(tmp_path / "sizes.csv", index=False)
    result = run(
        "fit", tmp_path / "sizes.csv", "--target", "size", *QUICK, "--method",
        "evidence", "--out", tmp_path / "e",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    shown = run("predict", tmp_path / "e" / "model.mkl", tmp_path / "sizes.csv")
    found = pd.read_csv(io.StringIO(shown.stdout))
    # 50 values lie within 4 standard deviations, and noise has one of 0.1
    assert (
        np.abs(found.prediction - frame["size"]) < 4 * found.standard_deviation
    ).all()
    assert 0.05 < found.standard_deviation.median() < 0.2
    result = run(
        "fit", table, "--target", "state", *QUICK, "--method", "discriminant",
        "--out", tmp_path / "d",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    shown = run("predict", tmp_path / "d" / "model.mkl", table, "--proba")
    found = pd.read_csv(io.StringIO(shown.stdout))
    total = found.probability_sick + found.probability_well
    assert np.allclose(total, 1.0, rtol=0, atol=1e-12)
    fails("predict", fitted[1] / "model.mkl", table, "--proba", words="--proba: MKL")


def test_a_table_without_a_whole_view_is_predicted(fitted, table, tmp_path):
    frame = pd.read_csv(table)
    frame.drop(columns=["gene1", "gene2", "gene3"]).to_csv(
        tmp_path / "clinic.csv", index=False
    )
    shown = run("predict", fitted[1] / "model.mkl", tmp_path / "clinic.csv")
    assert shown.exit_code == 0, shown.output
    absent = frame.assign(gene1=np.nan, gene2=np.nan, gene3=np.nan)
    expected = load(fitted[1] / "model.mkl").predict(absent).tolist()
    rows = [line.split(",")[0] for line in shown.stdout.splitlines()[1:]]
    assert rows[: len(expected)] == expected
    frame.drop(columns=["gene1"]).to_csv(tmp_path / "part.csv", index=False)
    fails("predict", fitted[1] / "model.mkl", tmp_path / "part.csv", words="gene1")


def test_a_table_of_sequences_alone_says_how_to_use_them(tmp_path):
    rng = np.random.default_rng(0)
    words = ["".join(rng.choice(list("ACGT"), 12)) for _ in range(40)]
    frame = pd.DataFrame({"dna": words, "state": np.arange(40) % 2})
    frame.to_csv(tmp_path / "s.csv", index=False)
    fails("fit", tmp_path / "s.csv", "--target", "state", "--out", tmp_path / "o",
          words="--sequences dna")  # fmt: skip


def test_many_rows_are_learned_by_low_rank(tmp_path, monkeypatch):
    monkeypatch.setattr(models, "MOST_ROWS", 300)
    monkeypatch.setattr(models, "SAMPLE_ROWS", 120)
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(500, 3)), columns=["a", "b", "c"])
    frame["state"] = np.where(frame.a + frame.b**2 > 1, "x", "y")
    frame.to_csv(tmp_path / "many.csv", index=False)
    common = ("fit", tmp_path / "many.csv", "--target", "state", *QUICK)
    result = run(*common, "--rank", 40, "--out", tmp_path / "o", "--json")
    assert result.exit_code == 0, result.output
    content = json.loads(result.stdout)
    assert content["large"]["rank"] == 40 and content["large"]["n_samples"] == 500
    assert content["large"]["n_tested"] == 100 and content["large"]["score"] > 0.85
    assert any("120 of the 500 rows" in note for note in content["data"]["notes"])
    model = load(tmp_path / "o" / "model.mkl")
    assert model.estimator_.approximation == "nystroem"
    assert np.mean(model.predict(frame) == frame["state"]) > 0.85
    result = run(
        *common, "--approximation", "none", "--subsample", 100,
        "--out", tmp_path / "e", "--json",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "large" not in json.loads(result.stdout)
    assert load(tmp_path / "e" / "model.mkl").estimator_.approximation is None
    fails(*common, "--method", "bilinear", "--approximation", "nystroem",
          "--out", tmp_path / "b", words="needs a table and one of")  # fmt: skip


# --- compare --------------------------------------------------------------------------


def test_compare_shows_norms_and_methods(table, tmp_path):
    result = run(
        "compare", table, "--target", "state", "--methods", "mkl,discriminant",
        "--norms", "1,inf", *QUICK, "--out", tmp_path / "c.json", "--json",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    content = json.loads(result.stdout)
    assert json.loads((tmp_path / "c.json").read_text()) == content
    names = [m["model"] for m in content["methods"]]
    assert names[:3] == ["mkl, norm=1", "mkl, norm=inf", "discriminant"]
    assert "best single kernel" in names


# --- bad input ------------------------------------------------------------------------


def fails(*args, words):
    result = run(*args)
    assert result.exit_code == 2, result.output
    assert words in result.stderr, result.stderr
    assert result.stdout == "" and result.stderr.count("\n") == 1
    assert "Traceback" not in result.output


FILES = {
    "empty.csv": (b"", "is empty"),
    "header.csv": (b"a,b,state\n", "no rows"),
    "one.csv": (b"state\nx\ny\n", "no column is left"),
    "class.csv": (b"a,state\n1,x\n2,x\n3,x\n", "only one value"),
    "few.csv": (b"a,state\n1,x\n2,x\n3,y\n", "too few"),
    "absent.csv": (b"a,b\n1,x\n2,y\n", "no column 'state'"),
    "binary.csv": (b"\xff\xfe\x00a,state\n\x80,1\n", "UTF-8"),
    "ragged.csv": (b"a,state\n1,2\n1,2,3,4\n", "cannot be read"),
    "none.csv": (b"a,state\n1,\n2,\n", "missing"),
    "file.xyz": (b"a", "use .csv"),
    "bad.parquet": (b"a", "bad.parquet"),
    "text.npy": (b"hello", "cannot be read as numpy arrays"),
}


@pytest.mark.parametrize("name", FILES)
def test_bad_data_is_one_line_and_two(name, tmp_path):
    content, words = FILES[name]
    path = tmp_path / name
    path.write_bytes(content)
    for command in ("fit", "compare"):
        out = ("--out", tmp_path / "out")
        fails(command, path, "--target", "state", *out, words=words)
    assert os.listdir(tmp_path) == [name]


OPTIONS = [
    (("--method", "magic"), "--method takes"),
    (("--norm", "x"), "--norm takes"),
    (("--norm", "0.5"), "0.5"),
    (("--reg", "-1"), "--reg takes"),
    (("--reg", "loo"), "needs --method discriminant"),
    (("--kernels", "magic"), "--kernels takes"),
    (("--kernels", "spectrum"), "suits the columns"),
    (("--kernels", "chi2"), "non-negative"),
    (("--task", "magic"), "--task takes"),
    (("--task", "regression"), "is not numeric"),
    (("--views", "a"), "--views takes"),
    (("--views", "a=nothing"), "no column 'nothing'"),
    (("--views", "a=state"), "is the target"),
    (("--views", "a=empty"), "all its values are missing"),
    (("--views", "a=age", "--views", "a=sex"), "twice"),
    (("--sequences", "age"), "strings"),
]


@pytest.mark.parametrize("options, words", OPTIONS)
def test_bad_options_are_one_line_and_two(options, words, table, tmp_path):
    out = tmp_path / "out"
    fails("fit", table, "--target", "state", "--cv", 2, "--out", out, *options,
          words=words)  # fmt: skip
    assert not out.exists()


def test_bad_models_and_columns(fitted, table, tmp_path):
    model = fitted[1] / "model.mkl"
    fails("inspect", tmp_path / "absent.mkl", words="no model file")
    fails("inspect", table, words="not a model file")
    fails("predict", table, table, words="not a model file")
    fails("predict", model, tmp_path / "absent.csv", words="no file")
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    fails("predict", model, tmp_path / "other.csv", words="lacks columns")
    changed = pd.read_csv(table).assign(age="old")
    changed.to_csv(tmp_path / "changed.csv", index=False)
    fails("predict", model, tmp_path / "changed.csv", words="was numeric in training")
    np.save(tmp_path / "k.npy", np.ones((2, 2, 2)))
    fails("predict", model, tmp_path / "k.npy", words="fitted on a table")


def test_a_file_that_is_not_there(fitted, tmp_path):
    model, absent = fitted[1] / "model.mkl", tmp_path / "absent.csv"
    for command in ("fit", "compare"):
        fails(command, absent, "--target", "y", "--out", tmp_path / "o",
              words="there is no file")  # fmt: skip
        fails(command, tmp_path / "absent.npz", "--target", "y", "--out",
              tmp_path / "o", words="there is no file")  # fmt: skip
    fails("predict", model, absent, words="there is no file")
    fails("predict", absent, absent, words="no model file")
    fails("inspect", absent, words="no model file")
    fails("fit", tmp_path, "--target", "y", "--out", tmp_path / "o", words="use .csv")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "name, words",
    [
        ("empty.csv", "is empty"),
        ("header.csv", "no rows"),
        ("one.csv", "lacks columns"),
        ("absent.csv", "lacks columns"),
        ("binary.csv", "UTF-8"),
        ("ragged.csv", "cannot be read"),
        ("file.xyz", "use .csv"),
        ("bad.parquet", "bad.parquet"),
        ("text.npy", "fitted on a table"),
    ],
)
def test_bad_data_to_predict_are_one_line_and_two(name, words, fitted, tmp_path):
    path = tmp_path / name
    path.write_bytes(FILES[name][0])
    fails("predict", fitted[1] / "model.mkl", path, "--out", tmp_path / "p.csv",
          words=words)  # fmt: skip
    assert os.listdir(tmp_path) == [name]


GRAMS = {
    "text": (np.full((4, 4, 2), "a"), "real numbers"),
    "complex": (np.eye(4)[:, :, None] * 1j, "real numbers"),
    "nan": (np.full((4, 4, 1), np.nan), "NaN or infinity"),
    "flat": (np.ones(4), "one array (n, n, n_kernels)"),
    "not square": (np.ones((4, 3, 2)), "(n, n, n_kernels)"),
    "empty": (np.ones((0, 0, 2)), "not be empty"),
    "not symmetric": (np.arange(16.0).reshape(4, 4, 1), "not symmetric"),
    "indefinite": (-np.eye(4)[:, :, None], "not positive semidefinite"),
    "objects": (np.array([[None]]), "cannot be read as numpy arrays"),
}


@pytest.mark.parametrize("name", GRAMS)
def test_bad_grams_are_one_line_and_two(name, tmp_path):
    array, words = GRAMS[name]
    np.save(tmp_path / "k.npy", array, allow_pickle=True)
    (tmp_path / "y.txt").write_text("a\nb\na\nb\n")
    for command in ("fit", "compare"):
        fails(command, tmp_path / "k.npy", "--target", tmp_path / "y.txt", "--cv", 2,
              "--out", tmp_path / "out", words=words)  # fmt: skip
    assert sorted(os.listdir(tmp_path)) == ["k.npy", "y.txt"]


def test_bad_labels_and_options_of_grams(tmp_path):
    np.savez(tmp_path / "k.npz", K=np.eye(4), few=[0, 1], one=[1, 1, 1, 1])
    for target, words in (
        ("few", "one label for each sample"),
        ("one", "only one value"),
        ("nothing", "neither an array"),
    ):
        for command in ("fit", "compare"):
            fails(command, tmp_path / "k.npz", "--target", target, "--out",
                  tmp_path / "out", words=words)  # fmt: skip
    fails("fit", tmp_path / "k.npz", "--target", "one", "--views", "a=b", "--out",
          tmp_path / "out", words="no columns")  # fmt: skip
    assert os.listdir(tmp_path) == ["k.npz"]


def test_models_of_other_versions_are_one_line_and_two(fitted, table, tmp_path):
    path = tmp_path / "new.mkl"
    with zipfile.ZipFile(fitted[1] / "model.mkl") as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    content = json.loads(members["model.json"])
    content["format_version"] = 99
    members["model.json"] = json.dumps(content).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    fails("inspect", path, words="format version 99")
    fails("predict", path, table, words="Update mklearn")


def test_values_that_no_model_has_are_one_line_and_two(fitted, table, monkeypatch):
    def strange(*_):
        raise KeyError("weights")

    model = fitted[1] / "model.mkl"
    monkeypatch.setattr(application, "run_predict", strange)
    monkeypatch.setattr(application, "describe", strange)
    fails("predict", model, table, words="cannot be used: KeyError")
    fails("inspect", model, words="cannot be used: KeyError")


def commands(fitted, table, out):
    """Return all that write files, with what computes stood in for."""
    return {
        "fit": ("fit", table, "--target", "state", "--out", out),
        "compare": ("compare", table, "--target", "state", "--out", out / "c.json"),
        "predict": ("predict", fitted[1] / "model.mkl", table, "--out", out / "p.csv"),
    }


@pytest.fixture(scope="module")
def done(table):
    """Runs that need not be computed each time."""
    data = inputs.load_data(table, "state")
    options = models.Settings(kernels="linear", cv=2)
    return application.run_fit(data, options), application.run_compare(
        data, options, ["mkl"], [2.0]
    )


@pytest.fixture
def at_once(done, monkeypatch):
    monkeypatch.setattr(application, "run_fit", lambda *_: done[0])
    monkeypatch.setattr(application, "run_compare", lambda *_: done[1])


def full_after(count, monkeypatch):
    """Let the disk be full after so many files, the last of them in half."""
    write, left = Path.write_text, [count]

    def limited(path, text, *args, **kwargs):
        left[0] -= 1
        if left[0] < 0:
            write(path, text[: len(text) // 2], *args, **kwargs)
            raise OSError(28, "No space left on device")
        return write(path, text, *args, **kwargs)

    monkeypatch.setattr(Path, "write_text", limited)


@pytest.mark.parametrize("command", ["fit", "compare", "predict"])
@pytest.mark.parametrize("count", [0, 1, 2, "replace"])
def test_full_disk_leaves_nothing(
    command, count, fitted, table, tmp_path, monkeypatch, at_once
):
    def refuse(*_):
        raise OSError(28, "No space left on device")

    if count == "replace":
        monkeypatch.setattr(os, "replace", refuse)
    elif command != "fit" and count:
        return  # they write one file
    else:
        full_after(count, monkeypatch)
    result = run(*commands(fitted, table, tmp_path)[command])
    assert result.exit_code == 2 and "No space left" in result.stderr, result.output
    assert result.stderr.count("\n") == 1 and result.stdout == ""
    assert os.listdir(tmp_path) == []


def test_a_failed_run_keeps_what_was_there(table, tmp_path, monkeypatch, at_once):
    assert run("fit", table, "--target", "state", "--out", tmp_path).exit_code == 0
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    assert set(before) == set(application.FILES)
    full_after(2, monkeypatch)
    result = run("fit", table, "--target", "state", "--out", tmp_path)
    assert result.exit_code == 2
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


@pytest.mark.skipif(os.name == "nt", reason="limits are set differently")
def test_a_disk_that_is_really_full(fitted, table, tmp_path):
    """The system itself refuses to write more than some bytes of a file."""
    code = (
        "import resource, sys; from mklearn.cli.commands import main;"
        "import mklearn.cli.application;"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)); main()"
    )
    command = commands(fitted, table, tmp_path)["predict"]
    result = subprocess.run(
        [sys.executable, "-c", code, *map(str, command)], capture_output=True, text=True
    )
    assert result.returncode == 2 and "cannot write to" in result.stderr, result.stderr
    assert result.stderr.count("\n") == 1 and os.listdir(tmp_path) == []


@pytest.mark.parametrize("command", ["fit", "compare", "predict", "inspect"])
def test_interrupt_leaves_nothing(command, fitted, table, tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    for name in ("run_fit", "run_compare", "run_predict", "describe"):
        monkeypatch.setattr(application, name, interrupted)
    args = {**commands(fitted, table, tmp_path / "o"),
            "inspect": ("inspect", fitted[1] / "model.mkl")}[command]  # fmt: skip
    result = run(*args)
    assert result.exit_code == 130 and os.listdir(tmp_path) == []
    assert result.stdout == "" and "interrupted" in result.stderr


def test_interrupt_while_writing_leaves_nothing(table, tmp_path, monkeypatch, at_once):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("mklearn.cli.application.write_html", interrupted)
    result = run("fit", table, "--target", "state", "--out", tmp_path / "o")
    assert result.exit_code == 130 and os.listdir(tmp_path) == []


LAYOUT = find_layout(patients(30), "state", {"a": ["age", "sex"]}, ["id"])
WORDS = st.sampled_from(["auto", "rbf", "linear", "spectrum", "magic", "", " ", "RBF"])


@settings(max_examples=80, deadline=None)
@given(st.lists(WORDS | st.text(max_size=6), max_size=4))
def test_kernels_parse_or_say_why(words):
    try:
        family, _ = models.make_kernels(",".join(words), LAYOUT)
    except TableError as error:
        assert "--kernels" in str(error) or "suits the columns" in str(error)
        return
    assert family.kernels


@settings(max_examples=80, deadline=None)
@given(st.text(max_size=8) | st.floats().map(str))
def test_numbers_parse_or_say_why(text):
    try:
        number = inputs.parse_number("--norm", text, ["auto"])
    except TableError as error:
        assert "--norm takes" in str(error)
        return
    assert number == "auto" or number > 0


@pytest.mark.parametrize(
    ("text", "norm"),
    [("2:1", TwoLevel(2, 1)), ("1:inf", TwoLevel(1, np.inf)), ("inf", np.inf)],
)
def test_two_level_norms_parse(text, norm):
    assert inputs.parse_norm("--norm", text, ["auto"]) == norm


@pytest.mark.parametrize("text", ["0.5", "2:0.5", "2:1:1", "2:", ":", "two", "nan:1"])
def test_what_is_not_a_norm_is_told(text):
    with pytest.raises(TableError, match="--norm takes a norm p from 1 to inf"):
        inputs.parse_norm("--norm", text, ["auto"])


@settings(max_examples=80, deadline=None)
@given(st.text(max_size=40))
def test_views_parse_or_say_why(text):
    try:
        views = inputs.parse_views([text])
    except TableError:
        return
    assert all(name and columns for name, columns in views.items())


@settings(
    max_examples=80,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.binary(max_size=120))
def test_any_csv_is_read_or_refused(tmp_path, content):
    path = tmp_path / "any.csv"
    path.write_bytes(content)
    try:
        frame = read_table(path)
        layout = find_layout(frame)
    except TableError:
        return
    assert set(layout.kinds) <= set(frame.columns)


# --- documentation --------------------------------------------------------------------

DOCS = Path(__file__).parents[1] / "docs" / "command-line.md"


def first_and_last(data, options):
    """Return two of the baselines, all of which other tests look at."""
    (name, first), *_, last = models.make_baselines(data, options).items()
    return {name: first, last[0]: last[1]}


def test_the_commands_of_the_documentation_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(application, "make_baselines", first_and_last)
    frame = patients(45).drop(columns="risk")
    frame.to_csv("patients.csv", index=False)
    rng = np.random.default_rng(1)
    times = {"days": rng.exponential(100, 45).round(1), "died": np.arange(45) % 3 > 0}
    frame.drop(columns=["state", "id"]).assign(**times).astype({"died": int}).to_csv(
        "followed.csv", index=False
    )
    X = frame[["gene1", "gene2", "gene3"]].to_numpy()
    grams = np.stack([X @ X.T, (1 + X @ X.T) ** 2], axis=2)
    np.savez("grams.npz", K=grams, labels=frame["state"].to_numpy(dtype=str))
    np.save("new-grams.npy", grams[:5])
    text = DOCS.read_text(encoding="utf-8")
    commands = re.findall(r"^\$ mklearn (.*)$", text, flags=re.MULTILINE)
    assert {c.split()[0] for c in commands} == {"fit", "predict", "inspect", "compare"}
    for command in commands:
        # what is in the transcripts is run below
        if not any(command.startswith(words) for words in TRANSCRIPTS.values()):
            result = run(*shlex.split(command))
            assert result.exit_code == 0, (command, result.output)
    *written, code = blocks(DOCS, "python")
    assert len(written) == len({block for block, _ in TRANSCRIPTS})  # run below
    names = {"table": frame}
    exec(code, names)
    assert type(names["model"]).__name__ == "TableModel"
    for name in ("fit", "predict", "inspect", "compare", "kernels", "demo"):
        assert f"`{name}`" in text and name in run("--help").stdout


def shell_commands(page):
    """Return the mklearn commands in the blocks of a page, of any kind."""
    shown = re.findall(
        r"^```(?:console|sh|bash|shell)\n(.*?)^```",
        page.read_text(encoding="utf-8").replace("\\\n", " "),
        re.DOTALL | re.MULTILINE,
    )
    return re.findall(r"^(?:\$ )?mklearn (.*)$", "".join(shown), re.MULTILINE)


RUN_ELSEWHERE = {
    "command-line.md",  # above and below
    "first-report.md",  # by test_walk.py and test_cli.py
}
SHELL = [
    page
    for page in all_pages()
    if shell_commands(page) and named(page) not in RUN_ELSEWHERE
]


def write_tables():
    """Write the files that pages name, with few rows; return one with all targets."""
    rng = np.random.default_rng(0)
    label = np.arange(48) % 2
    genes = rng.normal(size=(48, 3)) + label[:, None]
    table = pd.DataFrame(genes, columns=["ENSG1", "ENSG2", "ENSG3"])
    table.index = pd.Index([f"P{i:02d}" for i in range(48)], name="patient")
    for name in ("rna", "image"):
        table.sample(frac=0.9, random_state=0).to_csv(f"{name}.csv")
    table["age"] = rng.integers(30, 80, 48)
    table["sex"], table["batch"] = rng.choice(["f", "m"], (2, 48))
    table["subject"] = rng.integers(0, 16, 48)
    table[["age", "sex"]].assign(relapse=label).to_csv("clinic.csv")
    np.savez("grams.npz", K=np.dstack([genes @ genes.T, (1 + genes @ genes.T) ** 2]))
    Path("labels.txt").write_text("\n".join(map(str, label)), encoding="utf-8")
    table["state"] = np.where(label, "ill", "well")
    table["outcome"] = np.where(label, "relapse", "none")
    table["days"] = table["months"] = rng.exponential(20, 48)
    table["died"] = (np.arange(48) % 3 > 0).astype(int)
    return table


@pytest.mark.parametrize("page", SHELL, ids=named)
def test_the_commands_of_other_pages_run(page, tmp_path, monkeypatch):
    """As they are printed, on small tables, with few kernels, folds and baselines.

    Reports are not written: other tests look at them.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(application, "make_baselines", first_and_last)
    monkeypatch.setattr(application, "write_files", lambda *_: None)
    patients = write_tables()
    if named(page) == "tutorial.md":
        exec(blocks(page, "python")[0], {})
    for command in shell_commands(page):
        # other targets and subjects would give the answer away
        others = {"state", "outcome", "days", "months", "died", "subject"}
        unnamed = [name for name in others if name not in command]
        patients.drop(columns=unnamed).to_csv("patients.csv", index=False)
        few = ["--norm", 2, "--reg", 1, "--cv", 2, "--by-view", "product"]
        few += [] if "grams" in command else ["--kernels", "linear"]
        result = run(*shlex.split(command), *few)
        assert result.exit_code == 0, (command, result.output)
        assert "Verdict" in result.output


# which python block writes the files, and how the commands of a transcript begin
TRANSCRIPTS = {
    (0, 1): "fit wine.csv",
    (1, 1): "fit clinic.csv",
    (1, 2): "predict relapse-answer",
    (1, 3): "inspect relapse-answer",
}


@pytest.mark.parametrize("block", [0, 1])
def test_the_transcript_is_what_happens(
    block, few_to_choose_from, tmp_path, monkeypatch
):
    """Words are the same; numbers nearly, but for the seconds that a fit took."""
    monkeypatch.chdir(tmp_path)
    for name, value in few_to_choose_from.items():  # as users have it
        monkeypatch.setattr(name, value)
    text = DOCS.read_text(encoding="utf-8")
    exec(re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)[block], {})
    for (writes, _), start in TRANSCRIPTS.items():
        if writes == block:
            (shown,) = re.findall(
                rf"```console\n(\$ mklearn {start}.*?)```", text, re.DOTALL
            )
            command, printed = shown.replace("\\\n", "").split("\n", 1)
            result = run(*shlex.split(command)[2:])
            assert result.exit_code == 0, result.output
            _same(_steady(printed.splitlines()), _steady(result.output.splitlines()))


def _same(shown, found):
    """Compare words exactly, and numbers up to what machines may differ in.

    Scores are counts of samples, and a search may choose another of several settings
    that are equally good. So a score may differ by its standard error, which is printed
    beside it. Of the rest, numbers are compared if the final settings are the same.
    Versions of scikit-learn differ in how boosting breaks ties.
    """
    same = _chosen(shown) == _chosen(found)
    ours = [word for line in found for word in line]
    words = [(word, *off) for line in shown for word, off in _allowed(line)]
    assert len(words) == len(ours), (shown, found)
    for (word, off, always), other in zip(words, ours, strict=True):
        if word.startswith("iteration") or re.match(r"█|\([A-Z]", word):
            continue  # singular or plural; a bar; the name of a solver
        if off is None:
            assert word == other or "inf" in (word, other), (word, other)
        elif same or always:
            near = pytest.approx(float(word.rstrip(",;%")), rel=0.03, abs=off)
            assert float(other.rstrip(",;%")) == near, (word, other)


def _chosen(lines):
    """Return the settings that a search has chosen."""
    return [line for line in lines if line[0] == "with"]


def _allowed(line):
    """Return words with what they may differ by, and whether for other settings too."""
    number = re.compile(r"[+-]?[0-9.]+[,;%]?")
    of_view = any("█" in word for word in line)
    row = []
    for k, word in enumerate(line):
        if not number.fullmatch(word) or not re.search(r"\d", word):
            row.append((word, (None, False)))
        elif line[:2] == ["gradient", "boosting"] or "iteration" in str(line[k + 1 :]):
            row.append((word, (np.inf, False)))
        elif line[k + 1 : k + 2] == ["±"]:
            row.append((word, (max(float(line[k + 2]), 0.02), True)))
        elif line[k - 1] == "±":
            row.append((word, (max(float(word), 0.02), True)))
        elif of_view:  # points, and at the end the p-value of 200 permutations
            row.append((word, (0.1 if k == len(line) - 1 else 1.0, False)))
        else:
            row.append((word, (0.02, False)))
    return row


def _steady(lines):
    """Return the words of lines, without the column of seconds and versions."""
    # who wrote a file, in one line or two, and its size depend on the machine
    text = re.sub(r"saved by .*?\n\n", "", "\n".join(lines), flags=re.DOTALL)
    text = re.sub(r"\d+ bytes", "", text)
    text = re.sub(r"(?<=\w),(?=[\w-])", " ", text)  # values of a table
    out, column = [], None
    for line in text.splitlines():
        if "seconds" in line:
            column = slice(line.index("seconds"), line.index("seconds") + 7)
        elif "%" not in line:
            column = None
        if column is not None:
            line = line[: column.start] + line[column.stop :]
        words = line.replace("%", " %").split()
        if words:
            out.append(words)
    return out


# --- nothing lost, nothing obeyed -----------------------------------------------------


def test_a_file_that_cannot_take_its_place_keeps_the_others(table, tmp_path, at_once):
    for name in ("model.mkl", "report.html", "weights.csv"):
        (tmp_path / name).write_text("old")
    (tmp_path / "results.json").mkdir()
    fails("fit", table, "--target", "state", "--out", tmp_path, words="folder")
    assert {p.name: p.read_text() for p in tmp_path.iterdir() if p.is_file()} == {
        "model.mkl": "old", "report.html": "old", "weights.csv": "old",
    }  # fmt: skip
    assert len(os.listdir(tmp_path)) == 4


def test_results_do_not_take_the_place_of_their_input(fitted, table, tmp_path):
    model, data = fitted[1] / "model.mkl", tmp_path / "weights.csv"
    data.write_bytes(table.read_bytes())
    (tmp_path / "link.csv").symlink_to(data)
    before = data.read_bytes()
    for command in (
        ("predict", model, data, "--out", data),
        ("predict", model, data, "--out", tmp_path / "link.csv"),
        ("predict", model, data, "--out", model),
        ("fit", data, "--target", "state", "--out", tmp_path),
        ("compare", data, "--target", "state", "--out", data),
    ):
        fails(*command, words="is an input file")
    assert data.read_bytes() == before
    assert sorted(os.listdir(tmp_path)) == ["link.csv", "weights.csv"]


def test_cells_are_no_formulas_and_obey_nobody():
    texts = [
        "=1+1",
        "@x",
        "+a",
        "-a",
        "\tx",
        "a\x1b[31m",
        "-1.5",
        "+",
        "-",
        "a=b",
        "\r",
    ]
    found = list(csv.reader(io.StringIO(application.as_csv({"=name": texts}))))
    assert [row[0] for row in found] == [
        "'=name", "'=1+1", "'@x", "'+a", "'-a", "'\\tx", "a\\x1b[31m", "-1.5", "+", "-",
        "a=b", "\\r",
    ]  # fmt: skip
    numbers = application.as_csv({"n": [-1.5, 2, -0.0]})
    assert numbers == "n\n-1.5\n2\n-0.0\n"


def test_names_that_terminals_would_obey_are_spelt(tmp_path):
    frame = patients()[["age", "state"]].rename(columns={"age": "\x1b[2Jage"})
    frame["state"] = "=" + frame["state"]
    frame.to_csv(tmp_path / "t.csv", index=False)
    out = tmp_path / "o"
    result = run("fit", tmp_path / "t.csv", "--target", "state", "--kernels", "linear",
                 "--cv", 2, "--out", out)  # fmt: skip
    assert result.exit_code == 0, result.output
    shown = run("inspect", out / "model.mkl")
    asked = run("predict", out / "model.mkl", tmp_path / "t.csv")
    refused = run("fit", tmp_path / "t.csv", "--target", "\x1b[2J", "--out", out)
    for one in (result, shown, asked, refused):
        assert "\x1b" not in one.output
    assert "\\x1b[2J" in refused.stderr
    assert {line.split(",")[0][:2] for line in asked.stdout.splitlines()[1:]} == {"'="}


@pytest.mark.parametrize("header", ["a,a,y", "a, a,y", '"a",a,y', "y,a,y"])
def test_names_that_stand_twice_are_refused(header, tmp_path):
    (tmp_path / "t.csv").write_text(header + "\n1,2,3\n4,5,6\n")
    fails("fit", tmp_path / "t.csv", "--target", "y", "--out", tmp_path / "o",
          words="more than one column")  # fmt: skip


def test_a_single_name_of_kernels(tmp_path):
    np.savez(tmp_path / "k.npz", K=np.eye(8)[:, :, None], names="one", y=[0, 1] * 4)
    result = run("fit", tmp_path / "k.npz", "--target", "y", "--cv", 2, "--out",
                 tmp_path / "o")  # fmt: skip
    assert result.exit_code == 0 and "one" in result.stdout, result.output
    np.savez(tmp_path / "k.npz", K=np.ones((4, 4, 2)), names="one", y=[0, 1, 0, 1])
    fails("fit", tmp_path / "k.npz", "--target", "y", "--out", tmp_path / "p",
          words="k.npz")  # fmt: skip


def test_a_killed_process_is_one_line_and_two(table, tmp_path, monkeypatch):
    def killed(*_):
        tasks = [joblib.delayed(os.getpid)(), joblib.delayed(os._exit)(9)]
        joblib.Parallel(2)(tasks)

    monkeypatch.setattr(application, "run_fit", killed)
    fails("fit", table, "--target", "state", "--jobs", 2, "--out", tmp_path / "o",
          words="--jobs was killed")  # fmt: skip
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("reg", ["1e308", "inf", "1e-308"])
def test_a_cost_without_limit_is_one_line_and_two(reg, table, tmp_path):
    for command in ("fit", "compare"):
        fails(command, table, "--target", "state", "--reg", reg, "--out",
              tmp_path / "o", words="--reg takes numbers from")  # fmt: skip


def test_a_fault_of_ours_is_one_line_and_one(table, tmp_path, monkeypatch):
    def wrong(*_):
        raise AssertionError("never\nso")

    monkeypatch.setattr(application, "run_fit", wrong)
    result = run("fit", table, "--target", "state", "--out", tmp_path / "o")
    assert result.exit_code == 1 and "AssertionError never so" in result.stderr
    assert result.stderr.count("\n") == 1 and os.listdir(tmp_path) == []


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_results_that_nobody_takes_are_an_error(fitted, table):
    command = [sys.executable, "-m", "mklearn", "predict"]
    with open("/dev/full", "w") as full:
        result = subprocess.run(
            [*command, fitted[1] / "model.mkl", table],
            stdout=full, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
    assert result.returncode == 2
    assert result.stderr == "mklearn: cannot write the results: " + (
        "No space left on device\n"
    )


@pytest.mark.skipif(os.name == "nt", reason="signals are sent differently")
def test_sigterm_leaves_nothing(table, tmp_path):
    code = """
import os, signal, sys
from mklearn.cli import application, main
def write(*_):
    os.kill(os.getpid(), signal.SIGTERM)
application.write_files = write
main()
"""
    options = ["--target", "state", "--kernels", "linear", "--cv", "2", "--norm", "2"]
    options += ["--reg", "1", "--by-view", "none"]
    result = subprocess.run(
        [sys.executable, "-c", code, "fit", table, *options, "--out", tmp_path / "o"],
        capture_output=True, text=True,
    )  # fmt: skip
    assert result.returncode == 143 and "Traceback" not in result.stderr
    assert os.listdir(tmp_path) == []
