"""The pages of the documentation, the code that is on them, and a way to run it."""

import re
from importlib.util import find_spec
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"
# written by programs, which are tested themselves
LEFT_OUT = {"results", "_build", "generated", "gallery"}


def all_pages():
    """Return the pages that people have written."""
    found = sorted(DOCS.rglob("*.md"))
    return [p for p in found if not LEFT_OUT & {*p.relative_to(DOCS).parts}]


def named(page):
    """Return the name of a page, as links have it."""
    return page.relative_to(DOCS).as_posix()


def blocks(page, language):
    """Return the blocks of a language on a page, in their order."""
    text = page.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def run_page(name):
    """Execute all Python blocks of a page in one namespace, and return it.

    ``test_docs.py`` finds the tests that call this by the name that they give, and
    runs all other pages itself.
    """
    if find_spec("matplotlib"):
        from matplotlib import pyplot

        pyplot.switch_backend("Agg")
    space = {"__name__": "builtins"}
    for block in blocks(DOCS / name, "python"):
        exec(compile(block, name, "exec"), space)
    if find_spec("matplotlib"):
        pyplot.close("all")
    return space
