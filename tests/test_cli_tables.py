"""The command line on several tables, joined on the names of samples; gene sets."""

import json

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("typer", reason="typer is not installed")
from typer.testing import CliRunner

from mklearn import TwoLevel
from mklearn.cli.commands import make_app
from mklearn.persistence import load
from mklearn.table import TableError
from mklearn.table.files import read_tables

rng = np.random.default_rng(0)
N = 60
IDS = [f"p{i}" for i in range(N)]
ILL = pd.Series(np.where(np.arange(N) % 2, "ill", "well"), index=IDS)
GENES = [f"G{j}" for j in range(12)]

pytestmark = pytest.mark.usefixtures("few_to_choose_from")


def run(*words):
    return CliRunner().invoke(make_app(), [str(word) for word in words])


@pytest.fixture
def files(tmp_path):
    clinic = pd.DataFrame({"age": rng.normal(60, 9, N), "state": ILL}, index=IDS)
    effect = 1.5 * (ILL == "ill").to_numpy()[:, None] * (np.arange(12) < 3)
    rna = pd.DataFrame(rng.normal(size=(N, 12)) + effect, index=IDS, columns=GENES)
    protein = pd.DataFrame({"age": rng.normal(size=N), "P": rng.normal(size=N)}, IDS)
    names = {"clinic": clinic[:-1], "rna": rna[:-5], "protein": protein[6:][::-1]}
    for name, frame in names.items():
        frame.rename_axis("patient").reset_index().to_csv(
            tmp_path / f"{name}.csv", index=False
        )
    lines = ["EARLY\tx\tG0\tG1\tG2\tG99", "LATE\tx\tG2\tG8\tG9", "ONE\tx\tG4"]
    (tmp_path / "sets.gmt").write_text("\n".join(lines) + "\n")
    return tmp_path


def options(files):
    return ["--id", "patient", "--table", f"rna={files / 'rna.csv'}",
            "--table", f"protein={files / 'protein.csv'}"]  # fmt: skip


def test_whole_numbers_name_samples_however_they_are_stored(tmp_path):
    frame = pd.DataFrame({"patient": range(30), "x": rng.normal(size=30)})
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame.astype({"patient": float}).to_csv(tmp_path / "b.csv", index=False)
    joined, _, names = read_tables(
        tmp_path / "a.csv", "patient", {"b": tmp_path / "b.csv"}
    )
    assert names == [str(i) for i in range(30)]
    assert np.allclose(joined["x"], joined["b.x"])
    frame.astype({"patient": float}).replace({"patient": {3.0: np.nan, 4.0: np.nan}})\
        .to_csv(tmp_path / "b.csv", index=False)  # fmt: skip
    with pytest.raises(TableError, match="rows without a value of 'patient'"):
        read_tables(tmp_path / "a.csv", "patient", {"b": tmp_path / "b.csv"})


def test_tables_are_joined_on_the_names_of_samples(files):
    out = files / "out"
    told = run(
        "fit", files / "clinic.csv", "--target", "state", *options(files), "--out", out,
        "--gene-sets", f"rna={files / 'sets.gmt'}", "--kernels", "auto", "--cv", "2",
        "--norm", "2", "--reg", "1", "--json", "--by-view", "none",
    )  # fmt: skip
    assert told.exit_code == 0, told.output
    content = json.loads(told.stdout.strip().splitlines()[-1])
    views = content["data"]["views"]
    assert views == {
        "clinic": ["age"], "rna": GENES, "protein": ["protein.age", "P"]
    }  # fmt: skip
    notes = " ".join(content["data"]["notes"])
    assert "'p59'" in notes  # in the other tables, and without a state
    assert (
        "2 groups are used" in notes
        and "1 group is left out because it is too small: 'ONE'" in notes
    )
    names = [row["name"] for row in content["model"]["kernels"]]
    assert names[:2] == ["rna:EARLY", "rna:LATE"] and len(names) == 2 + 2 * 6
    assert (out / "report.html").exists()

    found = run("predict", out / "model.mkl", files / "clinic.csv", *options(files))
    assert found.exit_code == 0, found.output
    rows = found.stdout.strip().splitlines()
    assert rows[0].startswith("patient,prediction") and len(rows) == N + 1
    assert rows[1].startswith("p0,")


def test_a_regression_with_gene_sets(files):
    told = run(
        "fit", files / "clinic.csv", "--target", "age", *options(files),
        "--gene-sets", f"rna={files / 'sets.gmt'}", "--kernels", "linear", "--cv", "2",
        "--out", files / "out", "--by-view", "none", "--json",
    )  # fmt: skip
    assert told.exit_code == 0, told.output


@pytest.mark.parametrize("reg", [["--reg", "1"], []])
def test_two_norms_keep_every_view(files, reg):
    out = files / "out"
    told = run(
        "fit", files / "clinic.csv", "--target", "state", *options(files), "--out", out,
        "--gene-sets", f"rna={files / 'sets.gmt'}", "--cv", "2", "--norm", "2:1",
        "--by-view", "none", *reg,
    )  # fmt: skip
    assert told.exit_code == 0, told.output
    content = json.loads((out / "results.json").read_text())
    used = {row["view"] for row in content["model"]["kernels"] if row["weight"] > 0}
    assert used == {"clinic", "rna", "protein"}
    assert "two-level norm" in (out / "report.html").read_text()
    model = load(out / "model.mkl").estimator_
    assert getattr(model, "norm" if reg else "norm_") == TwoLevel(2, 1)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--table", "rna=rna.csv"], "--id COLUMN"),
        (["--id", "nobody"], "nobody"),
        (["--id", "patient", "--table", "rna"], "name=FILE"),
        (["--gene-sets", "sets.gmt"], "at least 2 columns"),
        (["--gene-sets", "dna=sets.gmt"], "got 'dna'"),
        (["--gene-sets", "nowhere.gmt"], "cannot be read"),
    ],
)
def test_mistakes_are_told(files, words, message, monkeypatch):
    monkeypatch.chdir(files)
    told = run("fit", "clinic.csv", "--target", "state", *words, "--cv", "2")
    assert told.exit_code == 2
    assert message in " ".join((told.output + told.stderr).split())


def test_ids_that_match_nobody_are_told(files, monkeypatch):
    monkeypatch.chdir(files)
    rna = pd.read_csv("rna.csv")
    words = ["fit", "clinic.csv", "--target", "state", *options(files)]
    rna.assign(patient=rna["patient"].str.upper()).to_csv("rna.csv", index=False)
    told = run(*words)
    text = " ".join((told.output + told.stderr).split())
    assert told.exit_code == 2 and "'rna' has no sample in common" in text
    assert "'P0' in 'rna' and 'p0' in 'clinic'" in text
    # the tables share samples, but none that has a target
    rna.assign(patient=[f"q{i}" for i in range(len(rna))]).to_csv(
        "rna.csv", index=False
    )
    protein = pd.read_csv("protein.csv")
    protein.loc[0, "patient"] = "q0"
    protein.to_csv("protein.csv", index=False)
    told = run(*words)
    text = " ".join((told.output + told.stderr).split())
    assert told.exit_code == 2 and "no id in table 'rna' matches" in text


def test_ids_that_differ_only_in_spelling_are_told(files, monkeypatch):
    monkeypatch.chdir(files)
    rna = pd.read_csv("rna.csv")
    rna.loc[3, "patient"] = "P3"
    rna.to_csv("rna.csv", index=False)
    words = ["--out", "out", "--kernels", "linear", "--cv", "2", "--by-view", "none"]
    told = run(
        "fit", "clinic.csv", "--target", "state", *options(files), *words, "--json"
    )
    assert told.exit_code == 0, told.output
    content = json.loads(told.stdout.strip().splitlines()[-1])
    notes = " ".join(content["data"]["notes"])
    assert "'p3' in 'clinic' and 'P3' in 'rna'" in notes


def test_names_that_stand_twice_are_told(files, monkeypatch):
    monkeypatch.chdir(files)
    table = pd.read_csv("rna.csv")
    table.loc[1, "patient"] = "p0"
    table.to_csv("rna.csv", index=False)
    told = run("fit", "clinic.csv", "--target", "state", *options(files))
    assert told.exit_code == 2 and "'p0'" in told.output + told.stderr
    assert "frame" not in told.output + told.stderr
