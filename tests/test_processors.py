"""The record of runs on imitated processors, and the page that is written from it."""

import json
import subprocess
from types import SimpleNamespace

import pytest

import processors

SENSITIVE = [*processors.WORKERS, "-k", "not damaged", "tests/test_grid.py"]


def a_run(imitation, commit="a" * 40, arguments=processors.WORKERS, **numbers):
    about = {
        "date": "2026-11-18T10:00:00Z",
        "processor": "A processor",
        "versions": "Python 3.11.7",
        "failures": [],
    }
    counts = {"passed": 100, "failed": 0, "skipped": 3, "seconds": 60.0} | numbers
    return {
        "imitation": imitation, "commit": commit, "arguments": arguments,
        **about, **counts,
    }  # fmt: skip


def row(text, name):
    (line,) = [x for x in text.splitlines() if x.startswith(f"| {name} |")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_runs_of_several_commits_are_one_table():
    fault = "FAILED tests/test_grid.py::test_cell - assert 2 < 1"
    runs = [
        a_run("prescott"),
        a_run("prescott", failed=1, passed=99, failures=[fault]),
        a_run("prescott", "b" * 40),
        a_run("prescott", "b" * 40),
        a_run("own", "b" * 40),
    ]
    text = processors.page(runs)
    assert row(text, "prescott") == [
        "prescott", "4", "2", "399", "1", "12", "aaaaaaaaa, bbbbbbbbb"
    ]  # fmt: skip
    assert row(text, "own")[1:3] == ["1", "1"]
    assert row(text, "zen") == ["zen", "0", *[""] * 5]
    assert f"- prescott, aaaaaaaaa: `{fault}`" in text
    assert "No test failed" not in text and "No run" not in text


def test_each_selection_of_tests_has_its_own_table():
    text = processors.page([a_run("own"), a_run("own", arguments=SENSITIVE)])
    every, some = text.split("## ")[1:]
    assert every.startswith("All tests") and some.startswith("Selected tests")
    assert "'not damaged' tests/test_grid.py" in some and "-k" not in every
    assert row(every, "own")[1] == row(some, "own")[1] == "1"


def test_the_page_is_that_of_the_record():
    written = processors.PAGE.read_text(encoding="utf-8")
    assert written == processors.page(processors.recorded(processors.RECORD))


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Another record and page, and runs of pytest with given ends."""
    record, page = tmp_path / "runs.jsonl", tmp_path / "page.md"
    monkeypatch.setattr(processors, "RECORD", record)
    monkeypatch.setattr(processors, "PAGE", page)
    monkeypatch.setattr(processors, "ROOT", tmp_path)
    state = SimpleNamespace(record=record, page=page, ends=[], commit="c" * 40)
    monkeypatch.setattr(processors, "commit", lambda: state.commit)

    def ended(command, **_):
        code, text = state.ends.pop(0)
        return subprocess.CompletedProcess(command, code, stdout=text)

    monkeypatch.setattr(processors.subprocess, "run", ended)
    return state


ONE = ["--only", "own", "--record"]
PASSED = (0, "..\n7 passed, 1 skipped in 3.00s\n")


def test_runs_are_added_for_each_commit(here):
    for commit in ("c" * 40, "d" * 40):
        here.commit, here.ends = commit, [PASSED, PASSED]
        for _ in range(2):  # what has been recorded is not run again
            assert not processors.main([*ONE, "--repeats", "2"])
    runs = [json.loads(line) for line in here.record.read_text().splitlines()]
    assert [(r["commit"][0], r["run"], r["passed"]) for r in runs] == [
        ("c", 1, 7), ("c", 2, 7), ("d", 1, 7), ("d", 2, 7)
    ]  # fmt: skip
    assert row(here.page.read_text(), "own")[1:6] == ["4", "4", "28", "0", "4"]


@pytest.mark.parametrize("code", [2, 3, 4, 5, -9])
def test_a_run_that_was_cut_off_is_not_recorded(here, code):
    here.ends = [(code, "..\n!! 2 passed in 1.00s !!\n")]
    assert processors.main(ONE)
    assert not here.record.exists()
    assert "No run has been recorded" in here.page.read_text()


def test_failures_are_recorded_with_their_names(here):
    here.ends = [(1, "F.\nFAILED tests/a.py::b - no\n1 failed, 6 passed in 3.00s\n")]
    assert processors.main(ONE)
    (run,) = processors.recorded(here.record)
    assert (run["failed"], run["passed"]) == (1, 6)
    assert "FAILED tests/a.py::b" in here.page.read_text()


def test_changed_files_are_not_recorded_as_a_commit(here, capsys):
    here.commit = "c" * 40 + "-dirty"
    with pytest.raises(SystemExit):
        processors.main(ONE)
    assert "commit them" in capsys.readouterr().err
    here.ends = [PASSED]
    other = here.record.with_name("other.jsonl")
    assert not processors.main([*ONE, str(other)])
    assert processors.recorded(other)[0]["commit"].endswith("-dirty")
    assert not here.page.exists()
