"""A stranger's walk: each step of docs/first-report.md, taken in its order."""

import re
import shlex
from pathlib import Path

import pytest

pytest.importorskip("typer")
pytest.importorskip("pandas")
import pandas as pd
from typer.testing import CliRunner

from mklearn import __version__
from mklearn.cli.commands import make_app

PAGE = Path(__file__).parents[1] / "docs" / "first-report.md"
TEXT = PAGE.read_text(encoding="utf-8")
STEPS = dict(re.findall(r"^## (\d)\. (.*?)(?=^## |\Z)", TEXT, re.DOTALL | re.MULTILINE))


def commands(step):
    """Return the commands of a step, in their order."""
    found = re.findall(r"```console\n(.*?)```", STEPS[step], re.DOTALL)
    return [line[2:] for line in "".join(found).splitlines()]


def ask(command, folder):
    """Run a command in this process; that it is a program is tested in test_cli.py."""
    words = shlex.split(command)
    words = words[words.index("mklearn") + 1 :]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        run = CliRunner().invoke(make_app(), words)
    assert run.exit_code == 0, run.output
    return run.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folder in which the walk is taken, with the table of step 3."""
    here = tmp_path_factory.mktemp("walk")
    (block,) = re.findall(r"```python\n(.*?)```", STEPS["3"], re.DOTALL)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        exec(compile(block, PAGE.name, "exec"), {})
    return here


@pytest.fixture(scope="module")
def fitted(folder, few_to_choose_from):
    """What the command of step 4 says."""
    (command,) = commands("4")
    return ask(command, folder)


def test_the_minutes_add_up():
    words = {"one": 1, "two": 2, "five": 5}
    minutes = re.findall(r"^## \d\. .*\((\w+) minutes?\)$", TEXT, re.MULTILINE)
    assert len(minutes) == len(STEPS) == 6
    assert sum(words[one] for one in minutes) <= 15


def test_every_command_is_run():
    # step 2 by the tests of the demonstration, the installation by those of the wheel
    assert {step: len(commands(step)) for step in STEPS} == {
        "1": 2, "2": 1, "3": 0, "4": 1, "5": 0, "6": 2
    }  # fmt: skip
    (install,) = re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL)
    assert [line.split()[0] for line in install.splitlines()] == [
        "python3",
        "env/bin/pip",
    ]


def test_it_is_installed_and_answers(folder):
    version, kernels = (ask(command, folder) for command in commands("1"))
    assert version == f"mklearn {__version__}\n"
    assert "rbf" in kernels.lower()


def test_the_table_is_as_described(folder):
    table = pd.read_csv(folder / "patients.csv")
    assert "state" in table and table["marker2"].isna().any()
    assert "state" not in pd.read_csv(folder / "new.csv")


def test_fit_writes_what_the_page_says(fitted, folder):
    written = {path.name for path in (folder / "answer").iterdir()}
    assert len(written) == 6
    assert {"report.html", "views.csv", "predictions.csv", "model.mkl"} <= written
    assert "learned" in fitted.lower() or "sum" in fitted.lower()


def test_the_report_has_what_one_is_told_to_read(fitted, folder):
    report = (folder / "answer" / "report.html").read_text(encoding="utf-8")
    headings = " ".join(re.findall(r"<h[12][^>]*>(.*?)</h[12]>", report)).lower()
    for word in ("check", "compar", "view", "method"):
        assert word in headings, headings


def test_every_sample_has_a_prediction_of_a_model_that_has_not_seen_it(fitted, folder):
    found = pd.read_csv(folder / "answer" / "predictions.csv")
    assert len(found) == len(pd.read_csv(folder / "patients.csv"))


def test_new_samples_are_predicted(fitted, folder):
    predict, inspect = commands("6")
    ask(predict, folder)
    found = pd.read_csv(folder / "predictions.csv")
    assert len(found) == len(pd.read_csv(folder / "new.csv"))
    assert set(found["prediction"]) <= {"ill", "well"}
    assert "kernel" in ask(inspect, folder).lower()
