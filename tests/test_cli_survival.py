"""``mklearn fit --survival``: what is read, compared, shown and refused."""

import json

import numpy as np
import pytest

pytest.importorskip("typer")
pytest.importorskip("pandas")
import pandas as pd
from typer.testing import CliRunner

from mklearn.cli.commands import make_app
from mklearn.persistence import load
from mklearn.report.facts import Predictions, errors_of_times
from mklearn.survival import concordance_index, dynamic_auc, kaplan_meier

pytestmark = pytest.mark.usefixtures("few_to_choose_from")


def run(*args):
    return CliRunner().invoke(make_app(), [str(arg) for arg in args])


def patients(n=90):
    rng = np.random.default_rng(0)
    genes = rng.normal(size=(n, 3))
    frame = pd.DataFrame(genes, columns=["gene1", "gene2", "gene3"])
    frame["age"] = rng.normal(50, 10, n)
    frame["sex"] = rng.choice(["f", "m"], n)
    days = 100 * rng.exponential(np.exp(-1.5 * genes[:, 0]))
    frame["days"] = np.minimum(days, 150).round(1)
    frame["died"] = (days < 150).astype(int)
    frame.loc[3, "days"] = np.nan
    return frame


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "patients.csv"
    patients().to_csv(path, index=False)
    return path


VIEWS = ("--views", "clinic=age,sex", "--views", "genes=gene1,gene2,gene3")
QUICK = ("--kernels", "linear,rbf", "--cv", 3, "--reg", 0.3)


@pytest.fixture(scope="module")
def fitted(table, tmp_path_factory):
    out = tmp_path_factory.mktemp("fit") / "new"
    asked = ("--survival", "days,died", "--norm", 1)
    return run("fit", table, *asked, *VIEWS, *QUICK, "--out", out), out


def test_fit_compares_by_concordance(fitted):
    result, out = fitted
    assert result.exit_code == 0, result.output
    assert "concordance" in result.output and "area under the curve" in result.output
    content = json.loads((out / "results.json").read_text())
    assert content["data"]["task"] == "survival" and content["scoring"] == "concordance"
    assert content["data"]["n_samples"] == 89  # one has no time
    assert content["data"]["events"] == int(patients().dropna()["died"].sum())
    names = [row["model"] for row in content["methods"]]
    assert names[0] == "learned weights (mkl)" and len(names) == 4
    times = content["times"]
    assert times["concordance"] > 0.6
    folds = content["methods"][0]["fold_scores"]
    assert times["concordance"] == pytest.approx(np.mean(folds))
    assert all(0.5 < area <= 1 for area in times["areas"])
    assert sum(g["n_samples"] for g in times["groups"].values()) == 89


def test_the_report_shows_curves(fitted):
    page = (fitted[1] / "report.html").read_text()
    assert "Times to the event" in page and "Concordance" in page
    assert "Tests and intervals for the kernels" in page
    content = json.loads((fitted[1] / "results.json").read_text())
    names = [row["name"] for row in content["model"]["kernels"]]
    p = dict(zip(names, content["inference"]["p"], strict=True))
    assert p["genes:linear"] < 1e-3 < p["clinic:linear"]
    assert "Confusion" not in page
    pytest.importorskip("matplotlib")
    assert "Kaplan-Meier" in page


def test_covariates_stand_beside_the_kernels(table, tmp_path):
    out = tmp_path / "out"
    asked = ("--survival", "days,died", "--norm", 2, "--covariates", "age,sex")
    result = run("fit", table, *asked, *QUICK, "--out", out)
    assert result.exit_code == 0, result.output
    content = json.loads((out / "results.json").read_text())
    found = content["model"]["covariates"]
    assert found["names"] == ["age", "sex=m"]
    assert sum(found["explained"].values()) == pytest.approx(1.0)
    assert load(out / "model.mkl").fixed_names_ == ("age", "sex=m")
    answer = run("predict", out / "model.mkl", table)
    assert answer.exit_code == 0, answer.output


def test_saved_models_predict_risks(fitted, table):
    _, out = fitted
    result = run("predict", out / "model.mkl", table)
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert lines[0] == "prediction" and len(lines) == 91
    frame = patients()
    risk = load(out / "model.mkl").predict(frame)
    known = frame["days"].notna().to_numpy()
    y = frame[["days", "died"]].to_numpy()[known]
    assert concordance_index(y, risk[known]) > 0.7
    assert run("inspect", out / "model.mkl").exit_code == 0


def test_tables_are_joined(tmp_path):
    frame = patients()
    frame.insert(0, "patient", [f"p{i}" for i in range(len(frame))])
    genes = ["gene1", "gene2", "gene3"]
    frame.drop(columns=genes).to_csv(tmp_path / "clinic.csv", index=False)
    frame[["patient", *genes]][::-1][5:].to_csv(tmp_path / "genes.csv", index=False)
    result = run(
        "fit", tmp_path / "clinic.csv", "--survival", "days,died", "--id", "patient",
        "--table", f"genes={tmp_path / 'genes.csv'}", *QUICK, "--norm", 2,
        "--out", tmp_path / "out",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    content = json.loads((tmp_path / "out" / "results.json").read_text())
    assert set(content["data"]["views"]) == {"clinic", "genes"}
    assert content["times"]["concordance"] > 0.6


def test_cost_and_norm_can_be_chosen(table, tmp_path):
    result = run(
        "fit", table, "--survival", "days,died", "--reg", "auto", "--norm", "auto",
        "--kernels", "linear", "--cv", 2, *VIEWS, "--out", tmp_path / "out",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert load(tmp_path / "out" / "model.mkl").estimator_.C_ > 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "either --target"),
        (("--survival", "days,died", "--target", "sex"), "either --target"),
        (("--survival", "days"), "two columns"),
        (("--survival", "days,days"), "two columns"),
        (("--survival", "weeks,died"), "no column 'weeks'"),
        (("--survival", "died,days"), "the time column comes first"),
        (("--survival", "days,sex"), "column of numbers"),
        (("--survival", "days,died", "--method", "evidence"), "--method mkl"),
        (("--survival", "days,died", "--scoring", "r2"), "omit --scoring"),
        (("--survival", "days,died", "--task", "regression"), "omit it"),
        (("--survival", "days,died", "--groups", "ward"), "ward"),
        (
            ("--survival", "days,died", "--groups", "sex", "--repeats", 2),
            "--repeats cannot be combined",
        ),
    ],
)
def test_bad_input_is_said_in_one_line(options, said, table, tmp_path):
    result = run("fit", table, *options, "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert said in " ".join(result.output.split())
    assert not (tmp_path / "out").exists()


def test_dates_are_no_times(tmp_path):
    pytest.importorskip("pyarrow")
    frame = patients()
    days = pd.to_timedelta(frame["days"], unit="D")
    for time in (pd.Timestamp("2020-01-01") + days, days):
        frame.assign(days=time).to_parquet(tmp_path / "dates.parquet")
        options = ("--survival", "days,died", "--out", tmp_path / "out")
        result = run("fit", tmp_path / "dates.parquet", *options)
        assert result.exit_code == 2
        said = " ".join(result.output.split())
        assert "'days' contains dates or durations" in said
        assert not (tmp_path / "out").exists()


def test_groups_stay_together(tmp_path):
    frame = patients()
    frame["ward"] = [f"w{i // 3}" for i in range(len(frame))]
    frame.to_csv(tmp_path / "wards.csv", index=False)
    out = tmp_path / "out"
    asked = ("--survival", "days,died", "--norm", 1, "--groups", "ward")
    again = ("--scoring", "concordance")
    result = run("fit", tmp_path / "wards.csv", *asked, *again, *QUICK, "--out", out)
    assert result.exit_code == 0, result.output
    content = json.loads((out / "results.json").read_text())
    assert content["data"]["n_groups"] == 30 and content["n_folds"] == 3
    assert not any("ward" in view for view in content["data"]["views"].values())
    rows = pd.read_csv(out / "predictions.csv")
    ward = frame["ward"][frame["days"].notna()].to_numpy()
    assert (rows.groupby(ward)["fold"].nunique() == 1).all()
    assert (rows.groupby("fold")["event"].sum() > 5).all()
    assert "subjects have samples in both" not in (out / "report.html").read_text()


def test_few_groups_are_said_in_one_line(table, tmp_path):
    frame = patients().assign(ward="w")
    frame.to_csv(tmp_path / "one.csv", index=False)
    result = run(
        "fit", tmp_path / "one.csv", "--survival", "days,died", "--groups", "ward"
    )
    assert result.exit_code == 2 and "at least two groups" in result.output


def test_low_rank_features_and_a_test_table(table, tmp_path):
    new = patients(60)
    new.to_csv(tmp_path / "new.csv", index=False)
    out = tmp_path / "out"
    low = ("--approximation", "nystroem", "--rank", 20, "--subsample", 60)
    result = run(
        "fit", table, "--survival", "days,died", "--norm", 2, *QUICK, *low,
        "--test", tmp_path / "new.csv", "--out", out,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    content = json.loads((out / "results.json").read_text())
    assert content["large"]["n_samples"] == 89 and content["large"]["rank"] == 20
    assert 0.5 < content["large"]["score"] <= 1.0
    tested = content["test"]
    assert tested["n_samples"] == 59 and len(tested["scores"]) == 4
    model = load(out / "model.mkl")
    assert model.estimator_.approximation == "nystroem"
    y = new[["days", "died"]].dropna().to_numpy()
    risk = model.predict(new)[new["days"].notna()]
    found = tested["scores"]["learned weights (mkl)"]
    assert found == pytest.approx(concordance_index(y, risk)) and found > 0.7


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        (patients(20).drop(columns="died"), "no column 'died'"),
        (patients(20).assign(died=0), "no concordance"),
    ],
)
def test_test_tables_need_events(frame, said, table, tmp_path):
    frame.to_csv(tmp_path / "new.csv", index=False)
    result = run(
        "fit", table, "--survival", "days,died", "--test", tmp_path / "new.csv",
        "--out", tmp_path / "out",
    )  # fmt: skip
    assert result.exit_code == 2 and said in " ".join(result.output.split())


def test_folds_need_events(tmp_path):
    frame = patients()
    frame["died"] = (np.arange(len(frame)) < 2).astype(int)
    frame.to_csv(tmp_path / "few.csv", index=False)
    result = run("fit", tmp_path / "few.csv", "--survival", "days,died", "--cv", 3)
    assert result.exit_code == 2 and "2 events, too few" in result.output


def test_grams_have_no_columns(tmp_path):
    np.savez(tmp_path / "grams.npz", K=np.eye(4)[:, :, None])
    result = run("fit", tmp_path / "grams.npz", "--survival", "a,b")
    assert result.exit_code == 2 and "Gram matrices" in result.output


def test_facts_are_those_of_each_fold():
    frame = patients().dropna()
    y = np.empty(len(frame), dtype=[("event", bool), ("time", float)])
    y["event"], y["time"] = frame["died"] == 1, frame["days"]
    risk = frame["gene1"].to_numpy() + 10 * (np.arange(len(y)) % 2)
    fold = np.arange(len(y)) % 2  # risks of the folds lie apart
    found = errors_of_times(Predictions(y, risk, folds=fold))
    each = [concordance_index(y[fold == k], risk[fold == k]) for k in range(2)]
    assert found["concordance"] == pytest.approx(np.mean(each))
    areas = [dynamic_auc(y, y[fold == k], risk[fold == k], found["at"]) for k in (0, 1)]
    assert found["areas"] == pytest.approx(np.mean(areas, axis=0).tolist())
    low, high = found["groups"]["low"], found["groups"]["high"]
    assert low["share_without_event"][-1] > high["share_without_event"][-1]
    whole = errors_of_times(Predictions(y, risk))
    third = np.argsort(risk, kind="stable")[: -(-len(y) // 3)]
    curve = kaplan_meier(y[third])
    assert whole["groups"]["low"]["times"][1:] == curve.x.tolist()


def test_equal_risks_are_in_the_same_group():
    y = np.empty(60, dtype=[("event", bool), ("time", float)])
    y["event"], y["time"] = True, np.arange(1, 61)  # tables are often sorted by time
    constant = errors_of_times(Predictions(y, np.zeros(60)))["groups"]
    assert {name: g["n_samples"] for name, g in constant.items()} == {"middle": 60}
    stage = np.arange(60) % 2
    found = errors_of_times(Predictions(y, stage.astype(float)))["groups"]
    assert {name: g["n_samples"] for name, g in found.items()} == {
        "low": 30,
        "high": 30,
    }
    assert found["low"]["times"][1:] == y["time"][stage == 0].tolist()
