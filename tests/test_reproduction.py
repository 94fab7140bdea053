"""Runs resume, files are whole, pages compare, and protocols run a cell each."""

import json
import os
import time
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from mklearn.datasets import available
from mklearn.reproduction import PAPERS, Cell, Settings, Table, protocol, results, run
from mklearn.reproduction import cells as cells_module
from mklearn.reproduction.cells import Band, Protocol, affordable, capped, stratified
from mklearn.reproduction.page import (
    Row,
    outside,
    published_folder,
    read_rows,
    write,
)

AT_HAND = {line.name for line in available() if line.at_hand}


def fake_work(cell, seed):
    value = 90.0 + cell.repetition + 0.1 * seed
    return {"accuracy": value, "seconds": 0.5, "gap": 1e-7}


def endless(cell, seed):
    time.sleep(60)
    return {}


def broken(cell, seed):
    raise RuntimeError("the solver failed")


def fake_printed(folder):
    return {
        ("1", row["dataset"], row["method"], "accuracy"): (float(row["mean"]), 0.5)
        for row in read_rows(folder, "fake.csv")
    }


TABLE = Table("1", "fake", ("wine",), ("a", "b"), 3)
FAKE = Protocol(
    name="fake",
    title="A fake paper",
    tables=(TABLE, Table("2", "t", ("wine",), ("a",), 3, ("seconds",), ("1",))),
    work=fake_work,
    choices={"scale": "none"},
    files={"wine": "wine"},
    printed=fake_printed,
    quick=(replace(TABLE, repetitions=1),),
    bands=(Band("wine", "a", "accuracy", 89.0, 91.0, "it is 90"),),
)


@pytest.fixture
def no_published(monkeypatch):
    monkeypatch.delenv("MKLEARN_PUBLISHED", raising=False)
    monkeypatch.setenv("MKLEARN_DATA", "")


# --- cells ----------------------------------------------------------------------------


def test_interrupted_run_resumes_and_does_nothing_twice(tmp_path):
    seen = []

    def work(cell, seed):
        if len(seen) == 4:
            raise KeyboardInterrupt
        seen.append(cell)
        return fake_work(cell, seed)

    plan = replace(FAKE, work=work)
    with pytest.raises(KeyboardInterrupt):
        run(plan, tmp_path, Settings())
    folder = tmp_path / "cells" / "fake"
    assert (
        len(os.listdir(folder)) == 4 == len(results(plan, tmp_path, Settings()).cells)
    )
    before = set(seen)
    seen.clear()
    found = run(plan, tmp_path, Settings())
    assert len(found.cells) == 6 and not before & set(seen) and len(seen) == 2


def test_files_are_whole_and_broken_ones_are_made_again(tmp_path):
    run(FAKE, tmp_path, Settings())
    folder = tmp_path / "cells" / "fake"
    names = sorted(os.listdir(folder))
    assert len(names) == 6 and all(name.endswith(".json") for name in names)
    text = (folder / names[0]).read_text()
    (folder / names[0]).write_text(text[: len(text) // 2])
    ticks = []
    run(FAKE, tmp_path, Settings(), tick=lambda *args: ticks.append(args))
    assert [tick[:2] for tick in ticks] == [(6, 6)]
    content = json.loads((folder / names[0]).read_text())
    assert content["cell"]["method"] == "a" and content["values"]["accuracy"] == 90.0


def test_a_machine_without_the_folder_returns_its_result(tmp_path):
    cell = TABLE.cells("fake")[0]
    content = cells_module._finish(FAKE, tmp_path / "elsewhere", Settings(), cell)
    assert content["values"]["accuracy"] == 90.0
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("other", [Settings(seed=1), Settings()])
def test_other_settings_and_choices_do_not_mix(tmp_path, other):
    run(FAKE, tmp_path, Settings())
    plan = FAKE if other.seed else replace(FAKE, choices={"scale": "all"})
    assert results(plan, tmp_path, other).cells == {}
    values = run(plan, tmp_path, other).cells.values()
    assert {v["accuracy"] for v in values} == {
        90 + r + 0.1 * other.seed for r in range(3)
    }


def test_cells_run_in_other_processes(tmp_path):
    plan = replace(protocol("dkl"), quick=(_wine("SILP_theta"),))
    found = run(plan, tmp_path, Settings(quick=True), jobs=2)
    assert len(found.cells) == 2


def _wine(*methods):
    return Table("9", "wine", ("wine(3)",), methods, 2)


def test_slow_methods_get_what_the_budget_allows():
    plan = replace(FAKE, slow=frozenset("a"))
    cells = TABLE.cells("fake", 5)
    first = Cell("fake", "1", "wine", "a", 0)
    for one, count in [
        ({"spent": 10.0}, 3),
        ({"spent": 1000.0}, 1),
        ({"spent": 1.0}, 5),
        ({"spent": 1.0, "stopped": "not done"}, 1),
    ]:
        kept = affordable(plan, cells, {first: one}, budget=30.0)
        assert sum(cell.method == "a" for cell in kept) == count
        assert sum(cell.method == "b" for cell in kept) == 5


def test_time_cap_ends_a_cell_and_failures_are_results():
    cell = Cell("fake", "1", "wine", "a", 0)
    assert "not done after 0.5 s" in capped(endless, cell, 0, 0.5)["stopped"]
    assert capped(broken, cell, 0, 60.0) == {"stopped": "the solver failed"}


def test_stopped_cells_are_tried_again_with_more_time_only(tmp_path):
    plan = replace(FAKE, work=endless, slow=frozenset("ab"), choices={})
    settings = Settings(budget=0.1, repetitions=1)
    found = run(plan, tmp_path, settings)
    assert all(v["stopped"] for v in found.cells.values()) and len(found.cells) == 2
    assert len(results(plan, tmp_path, settings).cells) == 2
    assert results(plan, tmp_path, replace(settings, budget=5.0)).cells == {}
    text = write(found, tmp_path, 1.0).read_text(encoding="utf-8")
    assert "a on wine: 0 of 1 repetitions (not done after 0.1 s)" in text


def test_data_that_no_source_has_are_left_out_and_named(tmp_path, monkeypatch):
    def absent(name):
        raise FileNotFoundError("put wine.npz there")

    monkeypatch.setattr(cells_module, "load_set", absent)
    found = run(FAKE, tmp_path, Settings())
    assert found.cells == {} and found.missing == {"wine": "put wine.npz there"}
    text = write(found, tmp_path, 1.0).read_text(encoding="utf-8")
    assert "wine: put wine.npz there" in text and "No cell is finished." in text


def test_shares_of_classes_are_rounded():
    y = np.repeat([0, 1], [111, 97])
    train, test = stratified(y, 0.8, np.random.default_rng(0))
    assert np.bincount(y[train]).tolist() == [89, 78]  # 167, as DKL's Table 17 says
    assert sorted([*train, *test]) == list(range(208))


# --- pages ----------------------------------------------------------------------------


def test_page_compares_with_printed_numbers(tmp_path, monkeypatch):
    folder = tmp_path / "published"
    folder.mkdir()
    rows = "dataset,method,mean\nwine,a,91.2\nwine,b,80\n"
    (folder / "fake.csv").write_text(rows)
    monkeypatch.setenv("MKLEARN_PUBLISHED", str(folder))
    found = run(FAKE, tmp_path, Settings())
    text = write(found, tmp_path, 1.0).read_text(encoding="utf-8")
    line = "| wine | {} | accuracy | 3 | 91.00 ± 0.58 | {} ± 0.50 | {} | 0.764 | {} |"
    assert line.format("a", "91.20", "-0.2", "yes") in text
    assert line.format("b", "80.00", "+11", "**no**") in text
    assert "- scale: none." in text and "Seed 0; 6 cells" in text
    assert "scikit-learn" in text and "commit" in text and "not at hand" not in text
    assert "Table 2" in text and "| wine | a | seconds | 3 | 0.5000 ± 0.0000 |" in text


def test_page_without_printed_numbers_says_so(tmp_path, no_published):
    found = run(FAKE, tmp_path, Settings())
    text = write(found, tmp_path, 1.0).read_text(encoding="utf-8")
    assert "printed numbers are not at hand" in text
    assert "| 91.00 ± 0.58 |  |  |  |  |" in text


def test_published_folder_is_beside_the_data(tmp_path, monkeypatch, no_published):
    assert published_folder() is None
    monkeypatch.setenv("MKLEARN_DATA", str(tmp_path / "data"))
    assert published_folder() is None
    (tmp_path / "published").mkdir()
    assert published_folder() == tmp_path / "published"
    assert read_rows(tmp_path / "published", "absent.csv") == []


def test_verdicts():
    def verdict(mean, error, printed, printed_error=np.nan):
        return Row("d", "m", "k", 3, mean, error, printed, printed_error).verdict

    assert verdict(90, 3, 94, 4) == "yes"
    assert verdict(90, 3, 96, 4) == "within two"
    assert verdict(90, 3, 104, 4) == "**no**"
    assert verdict(90, 3, 94) == "yes" and verdict(90, 3, 95) == "within two"
    assert verdict(90, np.nan, 94, 4) == "" and verdict(90, 3, np.nan) == ""


def test_bands_are_left_and_kept(tmp_path):
    found = run(FAKE, tmp_path, Settings(quick=True))
    assert outside(found) == []
    moved = replace(FAKE, bands=(Band("wine", "a", "accuracy", 91, 92, "it is 91"),))
    (line,) = outside(replace(found, protocol=moved))
    assert "a on wine: accuracy is 90" in line and "it is 91" in line
    # a number that is not there is no number within the band
    absent = replace(FAKE, bands=(Band("wine", "a", "area", 0, 1, "known"),))
    assert len(outside(replace(found, protocol=absent))) == 1


# --- protocols ------------------------------------------------------------------------


@pytest.mark.parametrize("paper", PAPERS)
def test_protocols_are_consistent(paper):
    plan = protocol(paper)
    assert plan.choices and plan.name == paper
    for table in (*plan.tables, *plan.quick):
        assert set(table.data) <= set(plan.files)
        assert {line.name for line in available()} >= set(plan.files.values())
    files = [c.file for t in plan.tables for c in t.cells(paper)]
    assert len(files) == len(set(files))
    quick = {(d, m) for t in plan.quick for d in t.data for m in t.methods}
    assert {(band.data, band.method) for band in plan.bands} <= quick
    with pytest.raises(ValueError, match="There is no table 99"):
        plan.select("99", False)


def test_tables_that_show_others_bring_them():
    names = [table.name for table in protocol("dkl").select("17", False)]
    assert names == ["2", "3", "4", "5", "17"]


@pytest.mark.parametrize("method", ["SILP_theta", "SILP_theta_lambda", "RKDA_K_lambda"])
def test_dkl_cell_on_wine(method):
    values = protocol("dkl").work(Cell("dkl", "9", "wine(3)", method, 0), 0)
    assert values["accuracy"] > 90 and values["training"] == 107
    if method != "RKDA_K_lambda":
        total = sum(values["weights"]) + 107 * values["reg"] * ("lambda" in method)
        assert total == pytest.approx(1.0, abs=1e-6) and values["gap"] <= 5e-4


def test_kfda_cell(monkeypatch):
    from sklearn.datasets import load_breast_cancer

    from mklearn.reproduction import kfda

    X, y = load_breast_cancer(return_X_y=True)
    monkeypatch.setattr(kfda, "load_set", lambda name: (X[:150], y[:150]))
    for method in kfda.METHODS:
        values = kfda.work(Cell("kfda", "1", "sonar", method, 0), 0)
        assert values["accuracy"] > 85 and values["area"] > 0.9
        assert values["curve"][-1] == 1.0 and min(np.diff(values["curve"])) >= 0


@pytest.mark.parametrize("method", ["bilinear", "SimpleMKL", "Zien_Ong"])
def test_bilinear_cell(method, monkeypatch):
    from mklearn.reproduction import bilinear

    monkeypatch.setattr(bilinear, "COSTS", (1.0,))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # of 40 iterations
        values = bilinear.work(Cell("bilinear", "1", "wine", method, 0), 0)
    assert values["error"] < 7 and values["iterations"] <= 40


@pytest.mark.parametrize(
    "method", ["SVM_org", "SKFE", "HSIC", "uSVM_joint", "uHSIC mkl"]
)
def test_subspace_cell(method, monkeypatch):
    from mklearn.reproduction import subspace

    monkeypatch.setattr(subspace, "COSTS", (50.0,))
    monkeypatch.setattr(subspace, "REGS", (1e-3, 1e-1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        values = subspace.work(Cell("subspace", "2", "wine", method, 0), 0)
    assert values["error"] < 10 and values["training"] == 90


@pytest.mark.skipif("sonar" not in AT_HAND, reason="needs sonar, see MKLEARN_DATA")
def test_dkl_weights_on_sonar_sit_where_the_paper_has_them():
    plan = protocol("dkl")
    silp = plan.work(Cell("dkl", "2", "sonar", "SILP_theta", 0), 0)
    assert sum(silp["weights"][4:6]) > 0.8
    sm1 = plan.work(Cell("dkl", "2", "sonar", "SM1", 0), 0)
    assert sum(sm1["weights"]) == pytest.approx(10.0)
    assert sm1["training"] == 167 and sm1["support percent"] > 75


# --- the command ----------------------------------------------------------------------


def command(*args):
    pytest.importorskip("typer")
    from typer.testing import CliRunner

    from mklearn.cli import make_app

    return CliRunner().invoke(make_app(), ["reproduce", *map(str, args)])


def test_mistakes_are_one_line_and_two(tmp_path):
    file = tmp_path / "file"
    file.write_text("mine")
    for args, words in [
        (("nothing",), "There is no paper 'nothing'"),
        (("dkl", "--table", "1"), "There is no table 1"),
        (("dkl", "--jobs", "0"), "--jobs must not be 0"),
        (("dkl", "--out", file), "cannot write to"),
    ]:
        result = command(*args)
        assert result.exit_code == 2 and "Traceback" not in result.output
        assert words in result.stderr and result.stderr.count("\n") == 1


def test_command_writes_the_page_and_fails_outside_the_bands(tmp_path, monkeypatch):
    monkeypatch.setattr("mklearn.reproduction.protocol", lambda paper: FAKE)
    result = command("dkl", "--quick", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    assert Path(result.stdout.strip()) == tmp_path / "fake_quick.md"
    assert "1/2 wine, a, repetition 1" in result.stderr
    result = command("dkl", "--quick", "--seed", 50, "--out", tmp_path)
    assert result.exit_code == 1 and "left its band" in result.stderr
