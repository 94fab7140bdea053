"""The commands on one's own data: fit, predict, inspect, compare; and bad input."""

import json
import os
import re
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("typer")
pytest.importorskip("pandas")
import pandas as pd
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.metrics import r2_score
from typer.testing import CliRunner

from mklearn import __version__
from mklearn.cli import application, inputs, models
from mklearn.cli.commands import make_app
from mklearn.persistence import load
from mklearn.table import TableError, find_layout, read_table


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


VIEWS = ("--views", "clinic=age,sex,site", "--views", "genes=gene1,gene2,gene3")
QUICK = ("--kernels", "linear,rbf", "--cv", 2)


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
        "a classification", "Missing values, 3 in all, are filled in",
        "left out: id, empty",
        "genes:linear", "no clear difference", "proof", "mklearn predict",
    ):  # fmt: skip
        assert words in " ".join(result.stdout.split()), words


def test_fit_writes_whole_files_and_nothing_else(fitted):
    _, out = fitted
    files = {"model.mkl", "results.json", "weights.csv", "report.html"}
    assert set(os.listdir(out)) == files
    assert "<h1" in (out / "report.html").read_text(encoding="utf-8")
    results = json.loads((out / "results.json").read_text(encoding="utf-8"))
    assert results["versions"]["mklearn"] == __version__
    assert results["data"]["columns"]["sex"] == "category"
    assert len(results["methods"]) == 4 and results["n_folds"] == 2
    weights = pd.read_csv(out / "weights.csv")
    assert weights["name"].tolist() == [k["name"] for k in results["model"]["kernels"]]
    assert weights["contribution"].sum() == pytest.approx(1.0)


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
          words="pip install mklearn[parquet]")  # fmt: skip
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
        ("--norm", "auto", "--reg", "1"),
        ("--norm", "1"),
        ("--method", "discriminant", "--norm", "auto"),
        ("--method", "bilinear", "--norm", "auto"),
    ],
)
def test_every_method_fits_and_loads(options, table, tmp_path, monkeypatch):
    monkeypatch.setattr(models, "NORMS", (1.0, 2.0))  # what --norm auto tries
    result = run(
        "fit", table, "--target", "state", "--kernels", "rbf,linear", "--cv", 2,
        "--out", tmp_path, "--json", *options,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    content = json.loads(result.stdout)
    assert content["methods"][0]["score"] > 0.6
    assert content["methods"][0]["n_kernels"] == 2
    if "auto" in options:
        assert content["model"]["chosen"]["norm"] in (1, 2)
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
        ("subspace", 4.0, "--norm says nothing"),
        ("subspace", 2.0, "times the trace"),
        ("discriminant", 2.0, "leave-one-out"),
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
    for words in ("--norm says nothing", "log evidence", "no proof that others"):
        assert words in " ".join(result.stdout.split())
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "Evidence</h2>" in page and "noise of output 1" in page
    assert "Certificate</h2>" not in page
    shown = run("inspect", tmp_path / "out" / "model.mkl", "--json")
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
        ((table, "--target", "state"), "is for numbers"),
    ):
        refused = run("fit", *options, "--method", "evidence")
        assert refused.exit_code != 0 and message in refused.output


def test_numbers_are_a_regression(tmp_path):
    patients().drop(columns="state").to_csv(tmp_path / "r.csv", index=False)
    result = run(
        "fit", tmp_path / "r.csv", "--target", "risk", *QUICK, "--out", tmp_path / "o"
    )
    assert result.exit_code == 0, result.output
    assert "a regression" in result.stdout and "R²" in result.stdout
    assert "SVR" in result.stdout and "best single kernel" in result.stdout
    refused = run(
        "fit", tmp_path / "r.csv", "--target", "risk", "--method", "bilinear",
        "--out", tmp_path / "p",
    )  # fmt: skip
    assert refused.exit_code == 2 and "is for classes" in refused.stderr
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
    assert "Absent views, all columns empty: genes (7 rows), dna (2 rows)" in shown
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
    fails("predict", out / "model.mkl", tmp_path / "less.csv", words="lacks columns")
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
        out = tmp_path / f"{file}.out"
        result = run(
            "fit", tmp_path / file, "--target", target, "--cv", 2, "--out", out
        )
        assert result.exit_code == 0, result.output
        assert name in result.stdout
        assert "SVC (sum of the Grams)" in result.stdout
    np.savez(tmp_path / "r.npz", K=grams, value=X[:, 0] + 0.1 * X[:, 1])
    options = ("--target", "value", "--cv", 2)
    result = run("fit", tmp_path / "r.npz", *options, "--out", tmp_path / "r")
    assert result.exit_code == 0, result.output
    assert "SVR (sum of the Grams)" in result.stdout
    assert "best single kernel" in result.stdout
    data = inputs.load_data(tmp_path / "r.npz", "value")
    search = models.make_baselines(data, models.Settings(reg="auto"))[
        "best single kernel"
    ]
    assert {"which", "estimator__C"} == set(search.param_grid)
    assert set(search.param_grid) <= set(search.estimator.get_params())
    np.save(tmp_path / "new.npy", grams[:7])
    model = tmp_path / "k.npy.out" / "model.mkl"
    shown = run("predict", model, tmp_path / "new.npy", "--json")
    assert (
        json.loads(shown.stdout)["prediction"]
        == load(model).predict(grams[:7]).tolist()
    )
    assert run("predict", model, tmp_path / "each.npz").exit_code == 2


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
    "class.csv": (b"a,state\n1,x\n2,x\n3,x\n", "one value only"),
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
    (("--reg", "loo"), "is for --method discriminant"),
    (("--kernels", "magic"), "--kernels takes"),
    (("--kernels", "spectrum"), "fits the columns"),
    (("--kernels", "chi2"), "non-negative"),
    (("--task", "magic"), "--task takes"),
    (("--task", "regression"), "holds no numbers"),
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
    fails("predict", model, tmp_path / "changed.csv", words="held numbers")
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
    "empty": (np.ones((0, 0, 2)), "not empty"),
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
        ("few", "need as many labels"),
        ("one", "one value only"),
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
    assert set(before) == {"model.mkl", "results.json", "weights.csv", "report.html"}
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
    assert result.stdout == "" and "stopped" in result.stderr


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
        assert "--kernels" in str(error) or "fits the columns" in str(error)
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


def test_the_commands_of_the_documentation_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    frame = patients(45).drop(columns="risk")
    frame.to_csv("patients.csv", index=False)
    X = frame[["gene1", "gene2", "gene3"]].to_numpy()
    grams = np.stack([X @ X.T, (1 + X @ X.T) ** 2], axis=2)
    np.savez("grams.npz", K=grams, labels=frame["state"].to_numpy(dtype=str))
    np.save("new-grams.npy", grams[:5])
    text = DOCS.read_text(encoding="utf-8")
    commands = re.findall(r"^\$ mklearn (.*)$", text, flags=re.MULTILINE)
    assert {c.split()[0] for c in commands} == {"fit", "predict", "inspect", "compare"}
    for command in commands:
        if "wine" not in command:  # the transcript, below
            result = run(*shlex.split(command))
            assert result.exit_code == 0, (command, result.output)
    code = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)[-1]
    names = {"table": frame}
    exec(code, names)
    assert type(names["model"]).__name__ == "TableModel"
    for name in ("fit", "predict", "inspect", "compare", "kernels", "demo"):
        assert f"`{name}`" in text and name in run("--help").stdout


def test_the_transcript_is_what_happens(tmp_path, monkeypatch):
    """Words are the same; numbers nearly, but for the seconds that a fit took."""
    monkeypatch.chdir(tmp_path)
    text = DOCS.read_text(encoding="utf-8")
    exec(re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)[0], {})
    (shown,) = re.findall(r"```console\n(\$ mklearn fit wine.*?)```", text, re.DOTALL)
    command, printed = shown.replace("\\\n", "").split("\n", 1)
    result = run(*shlex.split(command)[2:])
    assert result.exit_code == 0, result.output
    for line, ours in zip(
        _steady(printed.splitlines()), _steady(result.stdout.splitlines()), strict=True
    ):
        assert len(line) == len(ours), (line, ours)
        for a, b in zip(line, ours, strict=True):
            if re.fullmatch(r"[+-]?[0-9.]+", a):
                near = pytest.approx(float(a), rel=0.03, abs=0.02)
                assert "iterations:" in line or float(b) == near, (line, ours)
            else:
                assert a == b


def _steady(lines):
    """Return the words of lines, without the column of seconds."""
    out, column = [], None
    for line in lines:
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
