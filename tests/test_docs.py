"""What the documentation shows is what happens, and it leaves nothing public out."""

import doctest
import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
PAGES = [
    DOCS / "index.md",
    DOCS / "quick-start.md",
    DOCS / "reproducibility.md",
    *sorted((DOCS / "guide").glob("*.md")),
    *sorted((DOCS / "extend").glob("*.md")),
]
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE

# packages that say what is public, and modules in which all is that has no underscore
PACKAGES = ["", ".blocks", ".data", ".datasets", ".estimators", ".kernels", ".problems",
            ".solvers"]  # fmt: skip
MODULES = [".interpretation", ".model_selection", ".persistence", ".plotting",
           ".report", ".table"]  # fmt: skip


def blocks(page, language):
    text = page.read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


def named(page):
    return str(page.relative_to(DOCS))


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "python")], ids=named)
def test_code_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    space = {"__name__": "builtins"}
    for block in blocks(page, "python"):
        exec(compile(block, named(page), "exec"), space)
    assert len(space) > 1


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "pycon")], ids=named)
def test_examples_show_what_happens(page):
    session = "\n".join(blocks(page, "pycon"))
    # a module of its own: dataclasses look their module up by name
    space = {"__name__": "builtins"}
    test = doctest.DocTestParser().get_doctest(session, space, named(page), None, 0)
    result = doctest.DocTestRunner(optionflags=FLAGS).run(test)
    assert result.attempted > 3
    assert result.failed == 0


def listed():
    """Return the full names in the autosummary lists of the reference."""
    names = []
    for page in sorted((DOCS / "api").glob("*.md")):
        module = "mklearn"
        for line in page.read_text(encoding="utf-8").splitlines():
            if found := re.match(r"\.\. currentmodule:: (\S+)", line):
                module = found[1]
            elif found := re.match(r"   ([A-Za-z_]\w*)$", line):
                names.append(f"{module}.{found[1]}")
    return names


def public(module):
    """Return the names of a module that users may rely on."""
    if hasattr(module, "__all__"):
        return list(module.__all__)
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (inspect.isclass(value) or inspect.isfunction(value))
        and value.__module__ == module.__name__
    ]


@pytest.mark.parametrize("module", PACKAGES + MODULES)
def test_reference_is_complete(module):
    shown = []
    for full in listed():
        owner, _, name = full.rpartition(".")
        shown.append(getattr(import_module(owner), name))
    module = import_module(f"mklearn{module}")
    missing = [
        name
        for name in public(module)
        if callable(getattr(module, name))
        and not any(getattr(module, name) is one for one in shown)
    ]
    assert not missing, f"docs/api lacks {missing} of {module.__name__}"


def test_reference_names_everything_once():
    names = listed()
    assert len(names) > 80
    assert len(set(names)) == len(names)


def test_every_paper_has_its_page():
    pages = {
        "DKL": "discriminant",
        "KFDA": "discriminant",
        "LPMKL": "theory/lpmkl",
        "SUB": "subspace",
        "BIL": "multiclass",
    }
    index = (DOCS / "theory" / "index.md").read_text(encoding="utf-8")
    for paper, page in pages.items():
        assert re.search(rf"\| \[{paper}\]\((\.\./)?{page.removeprefix('theory/')}", index)
        text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
        assert f"# {paper}" in text or f"**{paper}**" in text
        assert "} Implemented in" in text
        assert "\n## Errata" in text
