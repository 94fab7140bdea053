"""The commands on one's own data: fit, predict, inspect, compare; and bad input."""

import json
import os
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("typer")
pytest.importorskip("pandas")
import pandas as pd
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from mklearn import __version__, jobs
from mklearn.cli import make_app
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
    ],
)
def test_every_method_fits_and_loads(options, table, tmp_path):
    result = run(
        "fit", table, "--target", "state", "--kernels", "rbf,linear", "--cv", 2,
        "--out", tmp_path, "--json", *options,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["methods"][0]["score"] > 0.6
    assert run("inspect", tmp_path / "model.mkl").exit_code == 0
    assert run("predict", tmp_path / "model.mkl", table).exit_code == 0


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
    "bad.parquet": (b"a", ""),
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


def test_full_disk_leaves_nothing(table, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("mklearn.report.write_json", full)
    monkeypatch.setattr("mklearn.persistence.save", full)
    result = run("fit", table, "--target", "state", *QUICK, "--out", tmp_path / "o")
    assert result.exit_code == 2 and "No space left" in result.stderr
    assert os.listdir(tmp_path) == []


def test_interrupt_leaves_nothing(table, tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(jobs, "run_fit", interrupted)
    result = run("fit", table, "--target", "state", "--out", tmp_path / "o")
    assert result.exit_code == 130 and os.listdir(tmp_path) == []


@settings(max_examples=80, deadline=None)
@given(st.text(max_size=40))
def test_views_parse_or_say_why(text):
    try:
        views = jobs.parse_views([text])
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
        result = run(*shlex.split(command))
        assert result.exit_code == 0, (command, result.output)
    (code,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    names = {"table": frame}
    exec(code, names)
    assert type(names["model"]).__name__ == "TableModel"
    for name in ("fit", "predict", "inspect", "compare", "kernels", "demo"):
        assert f"`{name}`" in text and name in run("--help").stdout
