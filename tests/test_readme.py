"""What README.md shows is what happens."""

import re
from pathlib import Path

import pytest

import mklearn

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)


@pytest.fixture(scope="module")
def example():
    space = {}
    for block in BLOCKS:
        exec(compile(block, "README.md", "exec"), space)
    return space


def test_it_starts_with_the_two_commands():
    lines = TEXT.splitlines()
    assert lines[0] == "# mklearn"
    assert [line.split("#")[0].strip() for line in lines[5:7]] == [
        "make demo",
        "make test",
    ]


def test_the_example_is_ten_lines_and_learns(example):
    assert len([line for line in BLOCKS[0].splitlines() if line]) == 10
    model = example["model"]
    assert model.score(example["X"], example["y"]) > 0.97
    assert model.duality_gap_ <= model.tol


def test_the_weights_shown_are_those_learned(example):
    shown = re.search(r"```text\n(.*?)```", TEXT, flags=re.DOTALL)[1].splitlines()[1:]
    learned = dict(
        zip(
            example["model"].kernel_names_,
            example["model"].kernel_weights_,
            strict=True,
        )
    )
    total = 0.0
    for line in shown:
        name, weight, contribution = line.split()
        # a gap of 0.1 % leaves the weights some freedom
        assert float(weight) == pytest.approx(learned[name], abs=0.03)
        assert 0 <= float(contribution) <= 1
        total += float(weight)
    assert total == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(\w+Classifier)`", TEXT))))
def test_names_exist(name):
    assert name in mklearn.__all__


def test_extras_exist():
    extras = set(re.search(r"'\.\[(.*?)\]'", TEXT)[1].split(","))
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for extra in extras:
        assert re.search(rf"^{extra} = \[", project, flags=re.MULTILINE)


def test_the_size_that_is_stated_is_that_of_the_sources():
    # text is compressed in a wheel, which so is smaller than its sources
    limit = float(re.search(r"takes less than (\d+) MB", TEXT)[1])
    sources = sum(p.stat().st_size for p in (ROOT / "src").rglob("*.py"))
    assert 0.4 * sources < limit * 1e6
