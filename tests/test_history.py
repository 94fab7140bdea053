"""The history of what estimators cost: all are in it, and a slower one is found."""

import csv

import pytest

import mklearn
from benchmarks import history


def test_every_public_estimator_has_a_cell():
    public = {name: getattr(mklearn, name) for name in mklearn.__all__}
    estimators = [name for name, found in public.items() if hasattr(found, "fit")]
    assert len(estimators) > 10
    called = [cell.name.replace(",", " ").split()[0] for cell in history.CELLS]
    assert not set(estimators) - set(called), "no cell in benchmarks/history.py"
    commands = {cell.name.split(",")[0] for cell in history.CELLS}
    assert {"mklearn fit", "mklearn predict"} <= commands


OLD = 4.0  # CPU seconds of both with the library of the last entry


@pytest.fixture
def two_cells(tmp_path, monkeypatch):
    """Two cells without work, whose figures the test decides."""
    ratios = {"quick one": 1.0, "slow one": 4.0}
    cells = tuple(history.Cell(name, "a unit", lambda quick: None) for name in ratios)
    monkeypatch.setattr(history, "CELLS", cells)
    monkeypatch.setattr(history, "HISTORY", tmp_path / "history.csv")
    monkeypatch.setattr(history, "PAGE", tmp_path / "history.md")

    def measured(cells, quick, source):
        rest = dict.fromkeys(("wall", "unit_cpu", "unit_wall", "peak_mb"), 1.0)
        here = source == history.ROOT / "src"
        found = [ratios[cell.name] if here else OLD for cell in cells]
        return [{"ratio": ratio, "cpu": ratio, **rest} for ratio in found]

    monkeypatch.setattr(history, "in_process", measured)
    monkeypatch.setattr(history, "as_entered", lambda commit: tmp_path / "src")
    return ratios


def run(monkeypatch, *arguments):
    monkeypatch.setattr("sys.argv", ["history.py", *arguments])
    return history.main()


def test_quick_fails_above_twice_the_last_entry(two_cells, monkeypatch, capsys):
    assert run(monkeypatch, "--quick") == 0  # nothing to compare with
    assert not history.HISTORY.exists()
    assert run(monkeypatch, "--quick", "--record") == 0
    two_cells["slow one"] = 7.9
    assert run(monkeypatch, "--quick") == 0
    two_cells["slow one"] = 8.1
    assert run(monkeypatch, "--quick") == 1
    assert "slow one: 8.10, was 4.00" in capsys.readouterr().out
    # what differs is the machine: beside it the old version is no faster
    two_cells["slow one"], two_cells["quick one"] = 4.0, 2.1
    assert run(monkeypatch, "--quick") == 0
    assert "2.10, was 1.00" in capsys.readouterr().out
    # nothing to measure beside
    monkeypatch.setattr(history, "as_entered", lambda commit: None)
    assert run(monkeypatch, "--quick") == 1
    assert "quick one: 2.10, was 1.00" in capsys.readouterr().out


def test_sources_of_a_commit_are_found():
    if not (history.ROOT / ".git").exists():
        pytest.skip("not a clone")
    found = history.checkout(history.about("quick")["commit"])
    assert (found / "mklearn" / "__init__.py").exists()
    assert history.checkout("no such commit") is None
    shallow = history.git("rev-parse", "--is-shallow-repository") == b"true\n"
    if not shallow and history.git("log", "-1", "--", str(history.HISTORY)):
        found = history.as_entered("no such commit")
        assert (found / "mklearn" / "__init__.py").exists()


def test_a_full_run_is_an_entry_and_a_page(two_cells, monkeypatch):
    two_cells["slow one"] = 8.1
    assert run(monkeypatch) == 0  # full runs record; they do not judge
    with history.HISTORY.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    found = [(row["cell"], float(row["ratio"])) for row in rows]
    assert found == list(two_cells.items())
    assert all(row["mode"] == "full" and row["commit"] for row in rows)
    assert "| slow one | a unit | 8.1 |" in history.PAGE.read_text()


def test_an_entry_may_be_made_in_parts(two_cells, monkeypatch):
    assert run(monkeypatch, "--only", "quick") == 0  # a look, no entry
    assert not history.HISTORY.exists()
    for word in ("quick", "slow"):
        assert run(monkeypatch, "--only", word, "--record") == 0
    [entry] = history.entries("full")
    assert [row["cell"] for row in entry] == list(two_cells)
    assert "2 of 2 cells" in history.PAGE.read_text()
