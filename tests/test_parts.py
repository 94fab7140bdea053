"""Parts of benchmarks: several in one process in quick mode, others in their own."""

import argparse
from pathlib import Path

import pytest


@pytest.fixture
def parts(benchmarks):
    import parts

    return parts


@pytest.fixture
def named(parts, monkeypatch):
    """Return the parts that a command line runs, with their sizes."""

    def run(*arguments):
        parser = argparse.ArgumentParser()
        parser.add_argument("--quick", action="store_true")
        parser.add_argument("--page", type=Path)
        parser.add_argument("--sizes", type=int, nargs="+")
        monkeypatch.setattr("sys.argv", ["benchmark.py", *arguments])
        found = parts.each_part(parser, ["one", "two", "three"])
        return [(args.part, args.sizes) for args in found]

    return run


def test_each_part_gets_the_options(named):
    assert named("one", "--page", "x.md") == [("one", None)]
    assert named("two", "one", "--quick", "--sizes", "3", "4") == [
        ("two", [3, 4]),
        ("one", [3, 4]),
    ]


@pytest.mark.parametrize(
    "arguments, said",
    [
        (("one", "two"), "need --quick"),
        (("one", "two", "--quick", "--page", "x.md"), "--page"),
        (("four",), "invalid choice"),
        ((), "required"),
    ],
)
def test_parts_that_are_measured_are_run_one_by_one(named, arguments, said, capsys):
    with pytest.raises(SystemExit):
        named(*arguments)
    assert said in capsys.readouterr().err


def test_a_function_runs_in_a_separate_process(parts, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "of_a_part.py").write_text(
        "import os, sys\n"
        "def told(*numbers):\n"
        "    print('noise')\n"
        "    return [os.getpid(), sum(numbers), os.environ.get('GIVEN'), sys.path]\n"
    )
    from of_a_part import told

    own = told(1, 2)
    assert parts.alone(told, 1, 2, here=True) == own
    process, total, given, _ = parts.alone(told, 1, 2)
    assert process != own[0] and (total, given) == (3, None)
    source = tmp_path / "src"
    process, _, given, path = parts.alone(told, here=True, source=source, GIVEN="yes")
    assert process != own[0] and given == "yes" and str(source) in path
