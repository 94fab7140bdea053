"""The options --covariates and --groups of the command line."""

import json

import numpy as np
import pytest

pytest.importorskip("typer")
pytest.importorskip("pandas")
import pandas as pd
from sklearn.svm import SVC
from typer.testing import CliRunner

from mklearn.cli.commands import make_app
from mklearn.cli.inputs import load_data, make_folds
from mklearn.model_selection import compare
from mklearn.persistence import load
from mklearn.table import subject_columns

QUICK = ("--cv", "3", "--kernels", "rbf", "--norm", "2", "--reg", "1")

pytestmark = pytest.mark.usefixtures("few_to_choose_from")


def run(*args):
    return CliRunner().invoke(make_app(), [str(arg) for arg in args])


@pytest.fixture
def patients(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "a": rng.standard_normal(60),
            "age": rng.uniform(20, 80, 60),
            "site": rng.choice(["x", "y"], 60),
        }
    )
    frame["y"] = np.sin(frame["a"]) + 0.1 * frame["age"] + (frame["site"] == "y")
    path = tmp_path / "patients.csv"
    frame.to_csv(path, index=False)
    return path


@pytest.fixture
def visits(tmp_path):
    rng = np.random.default_rng(0)
    who = np.tile(np.arange(20), 6)
    X = rng.standard_normal((20, 4))[who] + 0.05 * rng.standard_normal((120, 4))
    frame = pd.DataFrame(X, columns=list("abcd"))
    frame["subject"] = [f"s{i}" for i in who]
    frame["y"] = np.where(who % 2, "yes", "no")
    path = tmp_path / "visits.csv"
    frame.to_csv(path, index=False)
    return path


def test_covariates_are_in_no_kernel_and_their_effects_are_told(patients, tmp_path):
    out = tmp_path / "out"
    options = ("--target", "y", "--covariates", "age,site", "--out", out, *QUICK)
    result = run("fit", patients, *options, "--json")
    assert result.exit_code == 0, result.output
    model = json.loads(result.stdout)["model"]
    assert model["covariates"]["names"] == ["age", "site=y"]
    ((age, site),) = model["covariates"]["effects"]
    assert abs(age - 0.1) < 0.01 and abs(site - 1.0) < 0.2
    parts = model["covariates"]["explained"]
    assert abs(sum(parts.values()) - 1.0) < 1e-9
    assert parts["covariates"] > parts["kernels"]
    shown = run("fit", patients, *options)
    assert "due to covariates" in " ".join(shown.stdout.split())
    saved = load(out / "model.mkl")
    assert saved.fixed_names_ == ("age", "site=y")
    answer = run("predict", out / "model.mkl", patients)
    assert answer.exit_code == 0 and answer.stdout.startswith("prediction")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--covariates", "agee"), "no column 'agee'"),
        (("--covariates", "age,age"), "used twice"),
        (("--covariates", "y"), "is the target"),
        (("--covariates", "age", "--groups", "age"), "used twice"),
        (("--groups", "who"), "no column 'who'"),
    ],
)
def test_columns_that_cannot_be_covariates(patients, tmp_path, options, words):
    result = run("fit", patients, "--target", "y", "--out", tmp_path / "o", *options)
    assert result.exit_code == 2
    assert words in result.output


def test_covariates_with_features_of_low_rank(patients, tmp_path):
    out = tmp_path / "out"
    options = ("--target", "y", "--covariates", "age,site", "--out", out, *QUICK)
    result = run("fit", patients, *options, "--approximation", "nystroem", "--json")
    assert result.exit_code == 0, result.output
    model = json.loads(result.stdout)["model"]
    ((age, site),) = model["covariates"]["effects"]
    assert abs(age - 0.1) < 0.01 and abs(site - 1.0) < 0.2
    assert run("predict", out / "model.mkl", patients).exit_code == 0


def test_methods_without_covariates_say_so(visits, tmp_path):
    options = ("--method", "subspace", "--covariates", "a")
    result = run("fit", visits, "--target", "y", "--out", tmp_path / "o", *options)
    assert result.exit_code == 2 and "does not support covariates" in result.output


def test_discriminants_take_covariates(visits, tmp_path):
    out = tmp_path / "o"
    options = ("--method", "discriminant", "--covariates", "a", "--groups", "subject")
    quick = ("--cv", 3, "--kernels", "rbf", "--out", out)
    result = run("fit", visits, "--target", "y", *options, *quick)
    assert result.exit_code == 0, result.output
    assert load(out / "model.mkl").fixed_names_ == ("a",)


def test_missing_covariates(patients, tmp_path):
    frame = pd.read_csv(patients)
    frame.loc[2, "age"] = np.nan
    frame.to_csv(patients, index=False)
    options = ("--target", "y", "--covariates", "age", "--out", tmp_path / "o")
    result = run("fit", patients, *options)
    assert result.exit_code == 2 and "missing in 1 of 60 rows" in result.output


def test_subjects_stay_together_and_are_asked_for(visits):
    known, new = (load_data(visits, "y", groups=g) for g in (None, "subject"))
    (note,) = [n for n in known.said if "--groups" in n]
    assert "'subject'" in note and "20 of them in 120 rows" in note
    assert new.as_dict()["n_groups"] == 20 and "subject" not in new.X
    scores = []
    for data in (known, new):
        X, folds = data.X[list("abcd")], make_folds(data, 3, 0)
        found = compare({"svm": SVC(C=100.0)}, X, data.y, folds, groups=data.groups)
        scores.append(found.mean[0])
    assert scores[0] > 0.9 and scores[1] < 0.8


def test_which_columns_seem_to_name_subjects():
    rng = np.random.default_rng(0)
    who = np.repeat(np.arange(30), 4)
    y = (who % 2).astype(int)
    frame = pd.DataFrame(
        {
            "patient_id": who,
            "number": rng.permutation(60)[who],  # which tells the class
            "code": [f"c{i}" for i in who],
            "age": rng.integers(20, 80, 120),
            "sex": rng.choice(["f", "m"], 120),
            "x": rng.standard_normal(120),
            "row": np.arange(120),
        }
    )
    assert subject_columns(frame, y) == ["patient_id", "number", "code"]


@pytest.mark.parametrize("method", ["bilinear", "mkl"])
def test_several_classes_take_covariates(patients, tmp_path, method):
    frame = pd.read_csv(patients)
    frame["y"] = np.array(["u", "v", "w"])[pd.qcut(frame["y"], 3, labels=False)]
    path, out = tmp_path / "classes.csv", tmp_path / "out"
    frame.assign(age=frame["age"] % 7).to_csv(path, index=False)
    options = ("--target", "y", "--covariates", "age,site", "--out", out, *QUICK)
    result = run("fit", path, *options, "--method", method, "--json")
    assert result.exit_code == 0, result.output
    beside = json.loads(result.output)["model"]["covariates"]
    assert beside["names"] == ["age", "site=y"]
    assert np.shape(beside["effects"]) == (3, 2)
