"""What CONTRIBUTING.md says how to add has a page with complete files, which work."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
KINDS = ["kernel", "loss", "weight set", "solver"]


PAGES = sorted((ROOT / "docs" / "extend").glob("*.md"))
BLOCKS = [
    block
    for page in PAGES
    for block in re.findall(
        r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL
    )
]


def title(block):
    return block.split('"""')[1]


@pytest.mark.parametrize("block", BLOCKS, ids=title)
def test_example_runs(block):
    # a module of its own: dataclasses look their module up by name
    exec(compile(block, "docs/extend", "exec"), {"__name__": "builtins"})


def page(kind):
    """Return the page that the table links for a kind of extension."""
    link = re.search(rf"^\| an? {kind} \| \[.*?\]\((.*?)\)", TEXT, flags=re.MULTILINE)
    return ROOT / link[1]


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_extension_has_an_example(kind):
    text = page(kind).read_text(encoding="utf-8")
    section = re.split(r"^## A?\s?[Cc]omplete examples?$", text, flags=re.MULTILINE)[1]
    block = re.findall(r"```python\n(.*?)```", section, flags=re.DOTALL)[0]
    assert block.startswith('"""')
    assert "assert " in block
    assert f"**The test of a {kind}" in text
