"""Runs resume, files are whole, pages compare, and protocols run a cell each."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import scipy
import sklearn
from sklearn.exceptions import ConvergenceWarning

import mklearn
from mklearn.datasets import available
from mklearn.kernels import RBF
from reproduction import (
    PAPERS,
    Cell,
    Settings,
    Table,
    lpmkl,
    proteins,
    protocol,
    results,
    run,
)
from reproduction import cells as cells_module
from reproduction import lpmkl_scaling as scaling
from reproduction import lpmkl_toy as toy
from reproduction.__main__ import main
from reproduction.cells import (
    Band,
    Explanation,
    Protocol,
    Results,
    affordable,
    capped,
    on_splits,
    stratified,
)
from reproduction.page import (
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
    folder = tmp_path / "fake" / "cells"
    assert (
        len(os.listdir(folder)) == 4 == len(results(plan, tmp_path, Settings()).cells)
    )
    before = set(seen)
    seen.clear()
    found = run(plan, tmp_path, Settings())
    assert len(found.cells) == 6 and not before & set(seen) and len(seen) == 2


def test_files_are_whole_and_broken_ones_are_made_again(tmp_path):
    run(FAKE, tmp_path, Settings())
    folder = tmp_path / "fake" / "cells"
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
    cells = replace(TABLE, repetitions=5).cells("fake")
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
    long = replace(FAKE, long=frozenset("a"))
    for spent, count in [(10.0, 3), (1000.0, 3), (7.0, 5)]:
        kept = affordable(long, cells, {first: {"spent": spent}}, budget=30.0)
        assert sum(cell.method == "a" for cell in kept) == count


def test_time_cap_ends_a_cell_and_failures_are_results():
    cell = Cell("fake", "1", "wine", "a", 0)
    assert "not done after 0.5 s" in capped(endless, cell, 0, 0.5)["stopped"]
    assert capped(broken, cell, 0, 600.0) == {"stopped": "the solver failed"}


def tell_and_wait(cell, seed):
    Path(cell.data).write_text(str(os.getpid()), encoding="utf-8")
    time.sleep(600)
    return {}


def run_capped(path):
    capped(tell_and_wait, Cell("fake", "1", path, "a", 0), 0, 600.0)


def gone(pid):
    """Return whether a process has ended, be it only in name."""
    try:
        return "(zombie)" in Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return True


@pytest.mark.skipif(
    sys.platform != "linux", reason="other systems do not tell of a killed parent"
)
def test_a_killed_run_leaves_nothing_running(tmp_path):
    path = tmp_path / "pid"
    waiting = multiprocessing.get_context("spawn").Process(
        target=run_capped, args=(str(path),)
    )
    waiting.start()
    assert until(lambda: path.exists() and path.read_text(encoding="utf-8"))
    pid = int(path.read_text(encoding="utf-8"))
    assert not gone(pid)
    waiting.kill()
    waiting.join()
    assert until(lambda: gone(pid))


def until(true, seconds=300.0):
    """Wait for something to become true, and return whether it did."""
    end = time.monotonic() + seconds
    while not true() and time.monotonic() < end:
        time.sleep(0.05)
    return true()


def test_cells_with_a_cap_run_beside_others(tmp_path):
    plan = replace(FAKE, slow=frozenset("a"))
    found = run(plan, tmp_path, Settings(budget=600.0, repetitions=2), jobs=2)
    assert len(found.cells) == 4
    assert not any("stopped" in values for values in found.cells.values())


def test_stopped_cells_are_tried_again_with_more_time_only(tmp_path):
    plan = replace(FAKE, work=endless, slow=frozenset("ab"), choices={})
    settings = Settings(budget=0.1, repetitions=1)
    found = run(plan, tmp_path, settings)
    assert all(v["stopped"] for v in found.cells.values()) and len(found.cells) == 2
    assert len(results(plan, tmp_path, settings).cells) == 2
    assert results(plan, tmp_path, replace(settings, budget=5.0)).cells == {}
    assert (
        len(results(plan, tmp_path, replace(settings, budget=5.0, cap=0.1)).cells) == 2
    )
    assert results(plan, tmp_path, replace(settings, cap=0.2)).cells == {}
    text = write(found, tmp_path, 1.0).read_text(encoding="utf-8")
    assert "a on wine: 0 of 1 repetitions (not done after 0.1 s)" in text


def test_data_that_no_source_has_are_left_out_and_named(tmp_path, monkeypatch):
    def absent(name):
        raise FileNotFoundError("put wine.npz there")

    monkeypatch.setattr(cells_module, "_find", absent)
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
    assert "scikit-learn" in text and "commit" in text and "not available" not in text
    assert "Table 2" in text and "| wine | a | seconds | 3 | 0.5000 ± 0.0000 |" in text


def test_page_says_why_rows_differ(tmp_path, monkeypatch):
    folder = tmp_path / "published"
    folder.mkdir()
    rows = "dataset,method,mean\nwine,a,92.2\nwine,b,80\nwine,c,91\nwine,d,95\n"
    (folder / "fake.csv").write_text(rows)
    monkeypatch.setenv("MKLEARN_PUBLISHED", str(folder))
    plan = replace(
        FAKE,
        tables=(replace(TABLE, methods=("a", "b", "c", "d")), FAKE.tables[1]),
        explanations=(
            Explanation("For another table.", tables=("2",)),
            Explanation("The data are others.", data=("wine",), methods=("b", "c")),
        ),
    )
    text = write(run(plan, tmp_path, Settings()), tmp_path, 1.0).read_text("utf-8")
    assert "| within two | (a) |" in text and "- (a) Within two combined" in text
    assert "| **no** | (b) |" in text and "- (b) The data are others." in text
    assert "| **no** | (c) |" in text and "- (c) There are only two or three" in text
    assert "| yes |  |" in text and "(d)" not in text
    assert "For another table" not in text  # it shows times, which are not compared
    more = replace(plan, tables=(replace(plan.tables[0], repetitions=4),))
    text = write(run(more, tmp_path, Settings()), tmp_path, 1.0).read_text("utf-8")
    assert "We do not know why" in text and "two or three" not in text


def test_explanations_are_for_rows_that_there_are():
    for paper in PAPERS:
        plan = protocol(paper)
        for said in plan.explanations:
            assert set(said.tables) <= {table.name for table in plan.tables}
            assert set(said.data) <= {d for t in plan.tables for d in t.data}
            assert set(said.methods) <= {m for t in plan.tables for m in t.methods}


def test_page_without_printed_numbers_says_so(tmp_path, no_published):
    found = run(FAKE, tmp_path, Settings())
    text = write(found, tmp_path, 1.0).read_text(encoding="utf-8")
    assert "printed numbers are not available" in text
    assert "| 91.00 ± 0.58 |  |  |  |  |" in text


def test_published_folder_is_beside_the_data(tmp_path, monkeypatch, no_published):
    assert published_folder() is None
    monkeypatch.setenv("MKLEARN_DATA", str(tmp_path / "data"))
    assert published_folder() is None
    (tmp_path / "published").mkdir()
    assert published_folder() == tmp_path / "published"
    assert read_rows(tmp_path / "published", "absent.csv") == []


def test_figures_are_grids_and_what_cannot_be_run_says_why(tmp_path, monkeypatch):
    monkeypatch.setenv("MKLEARN_PUBLISHED", str(tmp_path))
    (tmp_path / "fake.csv").write_text("dataset,method,mean\nyeast,a,91.5\n")
    figure = replace(TABLE, name="figure7", data=("wine", "made up"))
    absent = replace(TABLE, data=("yeast",), absent="the yeast is gone.")
    plan = replace(FAKE, tables=(figure, absent), bands=())
    found = run(plan, tmp_path, Settings())
    assert {cell.table for cell in found.cells} == {"figure7"} and not found.missing
    text = write(found, tmp_path, 1.0).read_text(encoding="utf-8")
    assert "## Figure 7: fake" in text and "| accuracy | wine | made up |" in text
    assert "| a | 91.00 ± 0.58 | 91.00 ± 0.58 |" in text
    assert "3 repetitions; the largest relative duality gap is 1e-07." in text
    assert "Not run: the yeast is gone." in text
    assert "| yeast | a | accuracy | 0 |  | 91.50 ± 0.50 |" in text
    assert "Fewer repetitions" not in text


def test_page_says_how_it_was_made(tmp_path, no_published):
    run(FAKE, tmp_path, Settings(seed=3, repetitions=2))
    again = results(FAKE, tmp_path, Settings(seed=3, repetitions=3, cap=500.0))
    page = write(again, tmp_path, 61.0)
    assert page == tmp_path / "fake" / "README.md"
    text = page.read_text(encoding="utf-8")
    made = "python -m reproduction fake --seed 3 --budget 300 --cap 500 --repetitions 3"
    assert f"Made by `{made}`. Seed 3; 4 cells" in text
    assert "the last run took 61 seconds" in text
    assert f"mklearn {mklearn.__version__} (commit {cells_module.commit()}" in text
    for package in (np, scipy, sklearn):
        assert package.__version__ in text
    assert "- a on wine: 2 of 3 repetitions." in text


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


def test_bands_of_known_splits_are_for_their_seed():
    (band,) = on_splits("wine", ("a",), "accuracy", 90.0, 40, change=2)
    # two of 40 samples are five points
    assert 84.7 < band.low < 85 and 95 < band.high < 95.3
    known = replace(FAKE, bands=(replace(band, low=91.0),))
    cells = {Cell("fake", "1", "wine", "a", 0): {"accuracy": 90.0}}
    for seed, left in ((0, 1), (1, 0)):
        settings = Settings(seed=seed, quick=True)
        assert len(outside(Results(known, (TABLE,), settings, cells))) == left


@pytest.mark.skipif("sonar" not in AT_HAND, reason="sonar is not at hand")
@pytest.mark.parametrize("power, left", [(1, []), (2, ["objective"])])
def test_another_reading_of_the_kernels_leaves_a_band(monkeypatch, power, left):
    plan = protocol("dkl")
    kernels = [RBF(1.0 / sigma**power) for sigma in np.geomspace(0.1, 100, 10)]
    monkeypatch.setattr("reproduction.dkl.make_kernels", lambda: kernels)
    cell = Cell("dkl", "2", "sonar", "SILP_theta", 0)
    bands = tuple(b for b in plan.bands if (b.data, b.method) == ("sonar", cell.method))
    found = Results(
        replace(plan, bands=bands),
        plan.quick,
        Settings(quick=True),
        {cell: plan.work(cell, 0)},
    )
    keys = [line.split(": ")[1].split(" is ")[0] for line in outside(found)]
    assert keys == left


# --- protocols ------------------------------------------------------------------------


@pytest.mark.parametrize("paper", PAPERS)
def test_protocols_are_consistent(paper):
    plan = protocol(paper)
    assert plan.choices and plan.name == paper
    assert {line.name for line in available()} >= set(plan.files.values())
    for table in (*plan.tables, *plan.quick):
        generated = set(toy.SETTINGS) if paper == "lpmkl" else set()
        assert table.absent or set(table.data) <= set(plan.files) | generated
    files = [c.file for t in plan.tables for c in t.cells(paper)]
    assert len(files) == len(set(files))
    quick = {(d, m) for t in plan.quick for d in t.data for m in t.methods}
    assert {(band.data, band.method) for band in plan.bands} <= quick
    with pytest.raises(ValueError, match="There is no table 99"):
        plan.select("99", False)


def test_tables_have_at_most_the_repetitions_asked_for():
    assert [TABLE.wanted(asked) for asked in (None, 2, 30)] == [3, 2, 3]
    assert len(TABLE.cells("fake", 30)) == 6 == 3 * len(TABLE.cells("fake", 1))


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


def test_double_cross_validation_is_that_of_the_library():
    from sklearn.datasets import load_wine

    from mklearn import MKLClassifier, MKLDiscriminant, SingleKernelCV
    from mklearn.kernels import RBF
    from reproduction.single import Single, best, discriminants, svms

    X, y = load_wine(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    gammas, values = np.array([1.0, 0.1, 0.01]), np.array([1e-3, 1e-1])
    kernels = [RBF(gamma) for gamma in gammas]
    model = SingleKernelCV(MKLDiscriminant(), kernels, values=values).fit(X, y)
    one = Single(gammas, values, discriminants)
    scores = one.scores(X, y)
    np.testing.assert_allclose(scores, model.cv_scores_, atol=1e-12)
    kernel, value = best(scores)
    assert (kernel, values[value]) == (model.best_index_, model.best_value_)
    decision = one.decision(X, y, X[::7], kernel, values[value])
    np.testing.assert_allclose(decision, model.decision_function(X[::7]), atol=1e-6)
    # two classes: LIBSVM and the library's solver have the same optimum
    X, y = X[y < 2], y[y < 2]
    svm = SingleKernelCV(MKLClassifier(norm=1, tol=1e-8), kernels, values=[10.0])
    found = Single(gammas, np.array([10.0]), svms)
    np.testing.assert_allclose(found.scores(X, y), svm.fit(X, y).cv_scores_, atol=0.02)


def test_fisher_rule_is_that_of_the_library():
    from sklearn.datasets import load_breast_cancer

    from mklearn.kernels import RBF
    from reproduction.kfda import Fisher
    from reproduction.single import Single, fisher

    X, y = load_breast_cancer(return_X_y=True)
    X, y = ((X - X.mean(axis=0)) / X.std(axis=0))[:120], y[:120]
    one = Single(np.array([0.05]), np.array([1e-4]), fisher)
    decision = one.decision(X[:90], y[:90], X[90:], 0, 1e-4)[:, 0]
    model = Fisher(RBF(0.05), criterion="kfda", reg=1e-4).fit(X[:90], y[:90])
    theirs = model.decision_function(X[90:])
    np.testing.assert_allclose(decision / decision.std(), theirs / theirs.std(), 1e-3)


def test_kfda_cell(monkeypatch):
    from sklearn.datasets import load_breast_cancer

    from reproduction import kfda

    X, y = load_breast_cancer(return_X_y=True)
    monkeypatch.setattr(kfda, "load_set", lambda name: (X[:150], y[:150]))
    for method in kfda.METHODS:
        values = kfda.work(Cell("kfda", "1", "sonar", method, 0), 0)
        assert values["accuracy"] > 85 and values["area"] > 0.9
        assert values["curve"][-1] == 1.0 and min(np.diff(values["curve"])) >= 0


@pytest.mark.parametrize("method", ["bilinear", "SimpleMKL", "Zien_Ong"])
def test_bilinear_cell(method, monkeypatch):
    from reproduction import bilinear

    monkeypatch.setattr(bilinear, "COSTS", (1.0,))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # of 40 iterations
        values = bilinear.work(Cell("bilinear", "1", "wine", method, 0), 0)
    assert values["error"] < 7 and values["iterations"] <= 40


@pytest.mark.parametrize(
    "method", ["SVM_org", "SKFE", "HSIC", "uSVM_joint", "uHSIC mkl"]
)
def test_subspace_cell(method, monkeypatch):
    from reproduction import subspace

    monkeypatch.setattr(subspace, "SIGMAS", (1e-2, 1e-1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        values = subspace.work(Cell("subspace", "2", "wine", method, 0), 0)
    assert values["error"] < 10 and values["training"] == 90


def test_subspace_grids_are_those_of_the_paper():
    from mklearn import KernelBank
    from reproduction.subspace import COSTS, GENE_SIGMAS, REGS, SIGMAS, gaussians

    assert len(SIGMAS) == 14 and len(GENE_SIGMAS) == 20
    assert COSTS[:2] == (3.0, 5.0) and COSTS[-1] == 1000.0
    assert len(COSTS) == 43 and list(COSTS) == sorted(set(COSTS))
    np.testing.assert_allclose(np.log10(REGS), np.arange(5, -6, -1))
    X = np.random.default_rng(0).normal(size=(6, 3))
    gram = KernelBank(X, gaussians([SIGMAS[7]])).gram(0)
    D = ((X[:, None] - X[None]) ** 2).sum(axis=2)
    np.testing.assert_allclose(gram, np.exp(-D / SIGMAS[7]), rtol=1e-9, atol=1e-12)


def test_subspace_page_says_which_error_is_nearer(tmp_path, monkeypatch):
    rows = "dataset,method,error_mean,error_std\nwine,uHSIC,3.0,1\nwine,SVM_org,9,1\n"
    (tmp_path / "subspace_error.csv").write_text(rows)
    monkeypatch.setenv("MKLEARN_PUBLISHED", str(tmp_path))
    plan = protocol("subspace")
    table = replace(plan.tables[0], data=("wine",), methods=("SVM_org", "uHSIC"))
    cells = {
        Cell("subspace", "2", "wine", method, r): {
            "error": 3.5 + 2 * r,
            "one against rest": 1.0,
        }
        for method in table.methods
        for r in range(2)
    }
    text = plan.remarks(Results(plan, (table,), Settings(), cells))
    assert "| 2 | wine | 1.50 | 2.00 |" in text


@pytest.mark.parametrize("method", ["HSIC", "uHSIC"])
def test_subspace_folds_have_the_features_of_the_library(method):
    from sklearn.datasets import load_wine
    from sklearn.metrics.pairwise import rbf_kernel

    from mklearn import SubspaceKernel
    from mklearn.kernels import RBF
    from reproduction.subspace import SINGLE, one_path, unit_columns

    X, y = load_wine(return_X_y=True)
    X, rows, options = unit_columns(X), np.arange(0, 178, 2), SINGLE[method]
    assert np.linalg.norm(X, axis=0) == pytest.approx(np.ones(13))
    K = rbf_kernel(X, X[rows], gamma=20.0)
    ((known, new),) = one_path(K[rows], K, y[rows], [1e-3], options)
    model = SubspaceKernel(RBF(20.0), reg=1e-3, **options).fit(X[rows], y[rows])
    Z = model.transform(X)  # the same but for a rotation
    np.testing.assert_allclose(new @ known.T, Z @ Z[rows].T, atol=1e-8)


@pytest.mark.skipif("sonar" not in AT_HAND, reason="needs sonar, see MKLEARN_DATA")
def test_dkl_weights_on_sonar_sit_where_the_paper_has_them():
    plan = protocol("dkl")
    silp = plan.work(Cell("dkl", "2", "sonar", "SILP_theta", 0), 0)
    assert sum(silp["weights"][4:6]) > 0.8
    sm1 = plan.work(Cell("dkl", "2", "sonar", "SM1", 0), 0)
    assert sum(sm1["weights"]) == pytest.approx(10.0)
    assert sm1["training"] == 167 and sm1["support percent"] > 75


def test_dkl_curve_over_lambda():
    from reproduction import dkl, dkl_figures

    lambdas = np.array([1e-6, 1e-3, 1e-2, 1e-1, 1, 1e2])
    parts = dkl.parts("wine(3)", 0, 0)
    model = dkl.make_model("SILP_theta", 3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dkl_figures, "LAMBDAS", lambdas)
        train, test = (parts[0], parts[2]), (parts[1], parts[3])
        values = dkl_figures.curve(model, "SILP_theta", train, test)
        every_fifth = dkl_figures.curve(model, "SDP", train, test)
    alone = model.set_params(reg=1e-3).fit(*train).score(*test)
    assert values["curve"][1] == pytest.approx(100 * alone) and alone > 0.9
    assert values["lowest accuracy"] == min(values["curve"])
    assert values["at"] == [0, 1, 2, 3, 4, 5] and every_fifth["at"] == [0, 5]


def test_dkl_figures_compare_on_the_same_lambdas_and_splits(tmp_path):
    from reproduction import dkl_figures

    table = dkl_figures.TABLES[0]

    def made_up(method, repetition, at, level):
        cell = Cell("dkl", table.name, "sonar", method, repetition)
        return cell, {"curve": [level + i for i in at], "at": at, "gaps": [1e-7]}

    every = list(range(30))
    cells = dict(
        [
            made_up("Newton_theta", 0, every, 50.0),
            made_up("Newton_theta", 1, every, 10.0),
            made_up("SDP_theta", 0, every[::5], 48.0),
        ]
    )
    cells[Cell("dkl", table.name, "sonar", "SDP_theta", 1)] = {"stopped": "late"}
    found = Results(protocol("dkl"), (table,), Settings(), cells)
    (line,) = (t for t in dkl_figures.claims(found) if "SDP_theta goes" in t)
    assert "from 48.00 to 73.00 %" in line and "from 50.00 to 75.00 %" in line
    assert "at most 2.00 points apart" in line
    assert dkl_figures.draw(found, tmp_path) == ["figures3and4.png"]


def test_subspace_curves_on_wine(monkeypatch, tmp_path):
    from reproduction import subspace, subspace_figures

    monkeypatch.setattr(subspace, "COSTS", (50.0,))
    monkeypatch.setattr(subspace, "REGS", (1e-1,))
    cells = [
        Cell("subspace", "figure1", "wine", "uHSIC", 0),
        Cell("subspace", "figure2", "wine", "uSVM_joint", 0),
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        curve, rounds = (subspace.work(cell, 0) for cell in cells)
    # the rank is two, so that from there on nothing changes
    assert len(curve["curve"]) == 15 and len(set(curve["curve"][1:])) == 1
    assert curve["smallest error"] < 10 and curve["best dimension"] <= 2
    # each round bounds the optimum from both sides
    exact = rounds["exact"]
    assert max(rounds["lower"]) <= 1.001 * exact <= 1.002 * min(rounds["upper"])
    assert rounds["exact error"] < 10
    found = Results(
        protocol("subspace"),
        subspace_figures.QUICK,
        Settings(quick=True),
        dict(zip(cells, (curve, rounds), strict=True)),
    )
    names = subspace_figures.draw(found, tmp_path)
    assert names == ["figure1_quick.png", "figure2_quick.png"]
    assert any("smallest at" in line for line in subspace_figures.claims(found))


def test_run_times_come_with_certificates_of_one_optimum():
    X = np.random.default_rng(0).standard_normal((60, 5))
    y = np.where(X[:, 0] + 0.5 * X[:, 1] > 0, 1.0, -1.0)
    bank = mklearn.KernelBank(X, mklearn.kernels.rbf_ladder(gammas=scaling.widths(8)))
    grams = tuple(bank.gram(m) for m in range(8))
    found = {m: scaling.measure(m, X, y, 8, grams) for m in scaling.METHODS}
    assert all(v["seconds"] > 0 for v in found.values())
    assert all(v["gap"] <= 1e-3 for m, v in found.items() if m != scaling.SUM)
    for same in (("p = 1", "SILP wrapper", "SimpleMKL"), ("p = 2", scaling.FLY)):
        values = [found[m]["objective"] for m in same]
        np.testing.assert_allclose(values, values[0], rtol=2e-3)


def test_exponents_are_powers():
    at = np.array([1.0, 2.0, 4.0])
    assert scaling.exponent(at, 3 * at**1.7) == pytest.approx(1.7)


def test_motifs_are_counted_with_their_gaps():
    X = proteins.motif_counts(["ACACA", "AAAAA", "C"], (0, 2))
    # A.A twice and C.C once; A.A three times; too short for any
    assert sorted(X.toarray()[0][X.toarray()[0] > 0]) == [1, 2]
    assert X.toarray()[1].max() == 3 and X.toarray()[2].sum() == 0
    assert len(proteins.PATTERNS) == 16 and len(set(proteins.PATTERNS)) == 16


def test_string_grams_are_cosines():
    rng = np.random.default_rng(0)
    letters = np.array(list(proteins.LETTERS))
    strings = ["".join(rng.choice(letters, 70)) for _ in range(6)]
    grams = proteins.string_grams(strings)
    assert len(grams) == 69
    for K in grams:
        np.testing.assert_allclose(np.diagonal(K), 1.0, atol=1e-6)
        assert K.min() >= 0 and np.linalg.eigvalsh(K.astype(float)).min() > -1e-6


@pytest.fixture
def made_up_proteins(monkeypatch):
    """Put random sequences, which show their place, and 9 kernels in their stead."""
    rng = np.random.default_rng(0)
    places = [place for place in proteins.PLACES for _ in range(12)]
    signs = dict(zip(proteins.PLACES, ("AAC", "DDE", "FFG", "HHI", "HHI"), strict=True))
    letters = np.array(list(proteins.LETTERS))
    strings = [4 * signs[p] + "".join(rng.choice(letters, 40)) for p in places]
    monkeypatch.setattr(proteins, "sequences", lambda: (strings, np.array(places)))
    few = partial(proteins.string_grams, patterns=proteins.PATTERNS[-2:], spectra=(2,))
    monkeypatch.setattr(proteins, "string_grams", few)
    proteins.task.cache_clear()
    yield
    proteins.task.cache_clear()


def test_localisation_over_p(made_up_proteins, monkeypatch):
    monkeypatch.setattr(lpmkl, "COSTS", (0.1, 10.0))
    monkeypatch.setitem(lpmkl.LOCALISATION, "MultiLoc", 12)
    for method in ("p = 1", "p = 4", lpmkl.SINGLE):
        values = lpmkl.work(Cell("lpmkl", "1", "MultiLoc", method, 0), 0)
        # the first letters tell the places apart
        assert values["error"] < 10 and values["C"] in (0.1, 10.0)
    assert values["kernels"] == 1


def test_localisation_judges_by_matthews():
    y = np.array(["a", "a", "b", "b"])
    right = np.array([[2.0, 2.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]])
    scores = np.stack([right[::-1], right], axis=1)  # two costs, the second is right
    values = lpmkl.judge(scores, y, y)
    assert values == {
        "error": pytest.approx(0.0),
        "misclassified": 0.0,
        "C": lpmkl.COSTS[1],
    }


@pytest.mark.parametrize("method", ["bilinear", "SimpleMKL_shared", "sum_SVC"])
def test_bilinear_localisation(method, made_up_proteins, monkeypatch):
    from reproduction import bilinear

    monkeypatch.setattr(bilinear, "COSTS", (1.0,))
    monkeypatch.setitem(bilinear.PROTEINS, "MultiLoc", 12)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # of 40 iterations
        values = bilinear.work(Cell("bilinear", "2", "MultiLoc", method, 0), 0)
    assert values["error"] < 20 and values["C"] == 1.0


# --- the program ----------------------------------------------------------------------

ROOT = Path(__file__).parents[1]


def program(*args):
    """Run the program here, and return its exit code."""
    try:
        main([str(arg) for arg in args])
    except SystemExit as end:
        return end.code
    return 0


def test_mistakes_are_one_line_and_two(tmp_path, capsys):
    file = tmp_path / "file"
    file.write_text("mine")
    for args, words in [
        (("nothing",), "There is no paper 'nothing'"),
        (("dkl", "--table", "1"), "There is no table 1"),
        (("dkl", "--jobs", "0"), "--jobs must not be 0"),
        (("dkl", "--out", file), "cannot write to"),
    ]:
        assert program(*args) == 2
        said = capsys.readouterr().err
        assert words in said and said.count("\n") == 1


def test_numbers_have_limits(capsys):
    for option, text in [
        ("--seed", "-1"),
        ("--seed", "x"),
        ("--repetitions", "0"),
        ("--budget", "nan"),
        ("--cap", "0.5"),
    ]:
        assert program("dkl", f"{option}={text}") == 2
        assert f"argument {option}: " in capsys.readouterr().err


def test_program_writes_the_page_and_fails_outside_the_bands(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr("reproduction.__main__.protocol", lambda paper: FAKE)
    assert program("dkl", "--quick", "--out", tmp_path) == 0
    said = capsys.readouterr()
    assert Path(said.out.strip()) == tmp_path / "fake" / "quick.md"
    assert "1/2 wine, a, repetition 1" in said.err
    assert program("dkl", "--quick", "--out", tmp_path, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["page"] == str(tmp_path / "fake" / "quick.md")
    assert found["paper"] == "fake" and found["seed"] == 0
    first, second = found["tables"][0]["rows"]
    assert (first["method"], second["method"]) == ("a", "b")
    assert first["mean"] == 90.0 and first["error"] is None  # one repetition
    assert first["verdict"] is None
    assert program("dkl", "--quick", "--seed", 50, "--out", tmp_path) == 1
    assert "outside of its expected range" in capsys.readouterr().err


@pytest.mark.skipif(sys.platform == "win32", reason="signals are others there")
def test_ctrl_c_ends_the_program_from_the_root_of_the_project(tmp_path):
    args = ["dkl", "--table", "9", "--repetitions", "1", "--out", str(tmp_path)]
    with subprocess.Popen(
        [sys.executable, "-m", "reproduction", *args],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stderr.readline().startswith("1/")  # a cell is finished
        running.send_signal(signal.SIGINT)
        out, said = running.communicate(timeout=300)
    assert running.returncode == 130 and not out
    assert "stopped; the same command continues" in said and "Traceback" not in said
    settings = Settings(table="9", repetitions=1)
    assert results(protocol("dkl"), tmp_path, settings).cells


# --- claims ---------------------------------------------------------------------------


def _results_of(name, rows):
    """Return results of a paper with the given values, one list for each row."""
    cells = {
        Cell(name, table, data, method, repetition): values
        for (table, data, method), many in rows.items()
        for repetition, values in enumerate(many)
    }
    return Results(protocol(name), protocol(name).tables, Settings(), cells)


def test_claims_say_on_how_many_they_hold():
    from reproduction.claims import Claim, listed

    cases = {"yes": [True, True], "no": [False], "1 of 2": [True, False]}
    for verdict, holds in cases.items():
        assert Claim("a", "b", holds).verdict == verdict
    about = [Claim("Better.", "It is.", [True]), Claim("Left out.", "", [])]
    text = listed(about, title="Claims", rule="A rule.")
    assert text[-1] == "| Better. | It is. | yes |" and "## Claims" in text
    assert not any("Left out" in line for line in text)
    assert listed([], title="Claims", rule="A rule.") == []


def test_means_leave_out_figures_and_what_was_stopped():
    from reproduction.claims import Means, with_error

    rows = {
        ("9", "wine(3)", "a"): [{"accuracy": 1.0}, {"accuracy": 3.0}],
        ("9", "wine(3)", "b"): [{"stopped": "late"}, {"accuracy": 1.0}],
        ("figure4", "wine(3)", "a"): [{"accuracy": 50.0}],
    }
    means = Means(_results_of("dkl", rows))
    assert means.mean("wine(3)", "a", "accuracy") == 2.0
    assert np.isnan(means.mean("wine(3)", "c", "accuracy"))
    assert means.has("wine(3)", "a", "b") and not means.has("wine(3)", "a", "c")
    assert means.paired("wine(3)", "a", "b", "accuracy").tolist() == [2.0]
    assert with_error(np.array([2.0])) == "+2.00"
    assert with_error(np.array([-1.0, -3.0])) == "-2.00 ± 1.00"


def test_claims_of_dkl():
    from reproduction import dkl_claims

    early, late = np.eye(10)[4] + np.eye(10)[5], np.eye(10)[8]
    alone = {f"accuracy {m + 1}": 90.0 if m in (5, 6) else 80.0 for m in range(10)}

    def learned(weights, seconds):
        return {"weights": list(weights), "seconds": seconds, "accuracy": 90.0}

    rows = {
        ("2", "sonar", "SILP_theta"): [learned(early, 1.0)] * 3,
        ("2", "sonar", "SILP_theta_lambda"): [learned(late, 1.0)] * 3,
        ("2", "sonar", "RKDA_K_lambda"): [
            {"chosen": 5, "seconds": 2.0, "accuracy": 85.0, **alone}
        ]
        * 3,
        ("2", "sonar", "SVM_K_C"): [{"chosen": 6, "seconds": 0.5, "accuracy": 90.0}]
        * 3,
        ("2", "sonar", "SM2_C"): [learned(early, 1.0) | {"reg": None}],
    }
    text = "\n".join(dkl_claims.claims(_results_of("dkl", rows)))
    assert "| By SILP at most 0.00 points apart. | yes |" in text
    assert "sonar 5.00 points, of those with three repetitions. | no |" in text
    assert "(RKDA_K_lambda, 5.1). | The best are 6 and 7, from 90.0 up. | yes |" in text
    assert (
        "SILP_theta 5 and 6, SILP_theta_lambda 1 and 9, SM2_C 5 and 6. | 2 of 3 |"
        in text
    )
    assert "faster cross-validation: sonar 2.00. | no |" in text
    assert "Median of SM2_C: sonar inf; more than 1000 counts. | yes |" in text
    assert "heart" not in text  # nothing of it was run


def test_claims_of_the_subspace_tables():
    from reproduction import subspace_claims

    def cells(error, seconds):
        return [
            {"error": error + r, "one against rest": 5.0, "seconds": seconds}
            for r in range(2)
        ]

    rows = {
        ("2", "wine", "SVM_org"): cells(5.0, 1.0),
        ("2", "wine", "SKFE"): cells(4.0, 3.0),
        ("2", "wine", "HSIC"): cells(6.0, 1.0),
        ("2", "wine", "uHSIC"): cells(3.0, 1.5),
        ("2", "wine", "SVM_joint"): cells(3.5, 4.0),
        ("2", "wine", "uSVM_joint"): cells(2.0, 5.0),
    }
    for part, error in zip(
        ("ker1", "ker2", "ker3", "ker4", "mkl"), range(5), strict=True
    ):
        rows["3", "USPS", f"uHSIC {part}"] = cells(error, 1.0)
    text = "\n".join(subspace_claims.claims(_results_of("subspace", rows)))
    says = "errs less often than SVM_org (error, 6.1.1)."
    assert f"| HSIC {says} | wine +1.00 ± 0.00 points. | no |" in text
    assert f"| uHSIC {says} | wine -2.00 ± 0.00 points. | yes |" in text
    assert "segment (error, 6.1.1). | wine uSVM_joint. | yes |" in text
    assert (
        "(error, 6.1.2). | Against the best of them USPS +4.00 points. | no |" in text
    )
    assert "Time of uHSIC relative to that of HSIC: wine 1.50. | yes |" in text
    assert "Time of the faster one relative to that of SKFE: wine 1.33. | yes |" in text
