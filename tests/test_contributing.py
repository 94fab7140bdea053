"""The examples of CONTRIBUTING.md are complete files, and they work."""

import re
from pathlib import Path

import pytest

TEXT = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)


def title(block):
    return block.split('"""')[1]


@pytest.mark.parametrize("block", BLOCKS, ids=title)
def test_example_runs(block):
    # a module of its own: dataclasses look their module up by name
    exec(compile(block, "CONTRIBUTING.md", "exec"), {"__name__": "builtins"})


def test_each_kind_of_extension_has_an_example():
    sections = re.split(r"^## ", TEXT, flags=re.MULTILINE)
    for kind in ("kernel", "loss", "weight set", "solver"):
        section = next(s for s in sections if s.startswith(f"Add a {kind}\n"))
        assert "```python" in section
