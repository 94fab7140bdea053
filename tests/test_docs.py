"""What the documentation shows is what happens, and it leaves nothing public out."""

import ast
import doctest
import inspect
import os
import re
from contextlib import redirect_stdout
from importlib import import_module
from io import StringIO
from pathlib import Path

import pytest
from sklearn.base import clone
from sklearn.datasets import load_diabetes

import test_contributing
from mklearn import MKLRegressor
from mklearn.blocks import ArrayBlocks
from mklearn.problems import losses
from written import DOCS, all_pages, blocks, named, run_page

PAGES = all_pages()
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE

# packages that say what is public, and modules in which all is that has no underscore
PACKAGES = ["", ".blocks", ".data", ".datasets", ".estimators", ".kernels", ".problems",
            ".solvers", ".survival"]  # fmt: skip
MODULES = [".interpretation", ".model_selection", ".persistence", ".plotting",
           ".report", ".table"]  # fmt: skip


def run_elsewhere():
    """Return the pages whose blocks other tests run, by name."""
    found = {named(page) for page in test_contributing.PAGES}  # each block alone
    found |= {"command-line.md"}  # test_cli_fit.py, with what its commands write
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Call)
                and getattr(node.func, "id", "") == "run_page"
            ):
                found |= {a.value for a in node.args if isinstance(a, ast.Constant)}
    return found


ELSEWHERE = run_elsewhere()
HERE = [p for p in PAGES if blocks(p, "python") and named(p) not in ELSEWHERE]


@pytest.fixture
def own_losses(monkeypatch):
    """A table of losses that a page may enter its own in."""
    monkeypatch.setattr(losses, "LOSSES", dict(losses.LOSSES))


@pytest.mark.parametrize("page", HERE, ids=named)
def test_code_runs(page, tmp_path, monkeypatch, own_losses):
    if named(page) == "reproduction.md" and not os.environ.get("MKLEARN_DATA"):
        pytest.skip("MKLEARN_DATA names no folder, and tests do not use the network")
    monkeypatch.chdir(tmp_path)
    assert len(run_page(named(page))) > 1


def test_every_block_of_python_is_run():
    """Blocks have one of the two forms that are run, and all pages are in a test."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        opened = re.findall(r"^[ >]*(?:```|:::|~~~) *\{?.*?\bpy\w*", text, re.MULTILINE)
        known = len(blocks(page, "python")) + len(blocks(page, "pycon"))
        assert len(opened) == known, named(page)
    shown = {named(p) for p in PAGES if blocks(p, "python")}
    assert ELSEWHERE <= shown | {"extend/index.md", "extend/contributing.md"}
    assert {named(p) for p in HERE} | ELSEWHERE >= shown
    assert {named(p) for p in HERE}.isdisjoint(ELSEWHERE)
    extend = [p for p in PAGES if p.parent.name == "extend"]
    assert len(test_contributing.BLOCKS) == sum(
        len(blocks(page, "python")) for page in extend
    )


def test_the_newcomers_loss_works_on_dask(own_losses):
    dask = pytest.importorskip("dask")
    array = pytest.importorskip("dask.array")
    (block,) = blocks(DOCS / "architecture.md", "python")
    space = {"__name__": "builtins"}
    exec(compile(block.split("# Nothing else")[0], "architecture.md", "exec"), space)
    X, y = load_diabetes(return_X_y=True)
    X, y = X[:120], (y[:120] - 150) / 50
    model = MKLRegressor("rbf", loss="huber", approximation="nystroem", rank=40)
    here = clone(model).fit(ArrayBlocks(X, y, rows=60))
    with dask.config.set(scheduler="synchronous"):
        there = clone(model).fit(*(array.from_array(a, chunks=60) for a in (X, y)))
    assert there.duality_gap_ <= 1e-3
    assert there.solution_.lower <= here.solution_.upper * (1 + 1e-9)
    assert here.solution_.lower <= there.solution_.upper * (1 + 1e-9)


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
        assert re.search(
            rf"\| \[{paper}\]\((\.\./)?{page.removeprefix('theory/')}", index
        )
        text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
        assert f"# {paper}" in text or f"**{paper}**" in text
        assert "} Implemented in" in text
        assert "\n## Errata" in text


def resolves(name):
    """Tell whether a dotted name is a module, or in one."""
    parts = name.split(".")
    for i in range(len(parts), 0, -1):
        try:
            found = import_module(".".join(parts[:i]))
        except ImportError:
            continue
        try:
            for part in parts[i:]:
                found = getattr(found, part)
        except AttributeError:
            return False
        return True
    return False


ROOT = DOCS.parent
TEXTS = [
    *(
        p
        for p in sorted(DOCS.rglob("*.md"))
        if not {"_build", "generated"} & {*p.parts}
    ),
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
]


@pytest.mark.parametrize("page", TEXTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_what_is_named_exists(page):
    text = re.sub(r"generated/\S+?\.html", "", page.read_text(encoding="utf-8"))
    names = set(re.findall(r"\bmklearn(?:\.[A-Za-z_]\w*)+", text)) - {"mklearn.css"}
    assert not [name for name in sorted(names) if not resolves(name)]
    below = "data|kernels|problems|solvers|estimators|report|cli|table|datasets"
    below += "|inference|interpretation"
    for path in re.findall(rf"`((?:{below})/[\w/]*\.py)", text):
        assert (ROOT / "src" / "mklearn" / path).is_file(), path
    for path in re.findall(r"`((?:tests|reproduction|benchmarks)/[a-z_/]+\.py)`", text):
        assert (ROOT / path).is_file(), path


def test_what_docstrings_name_exists():
    names = set()
    for path in (ROOT / "src").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        names |= set(re.findall(r"`~?(mklearn(?:\.[A-Za-z_]\w*)+)`", text))
    assert len(names) > 20
    assert not [name for name in sorted(names) if not resolves(name)]


def test_what_the_plan_puts_in_a_file_is_defined_there():
    # "`name` in `path`" and "`name` (`path`)", with the path in full
    text = re.sub(r"```.*?```", "", read_plan(), flags=re.DOTALL)
    pattern = r"`([A-Za-z_][\w.]*)`(?: in)? \(?`([a-z_]+(?:/[a-z_]+)?\.py)`"
    claims = re.findall(pattern, " ".join(text.split()))
    claims = [(n, p) for n, p in claims if "/" in p or p == "persistence.py"]
    assert len(claims) > 40
    for name, path in claims:
        source = (ROOT / "src" / "mklearn" / path).read_text(encoding="utf-8")
        last = name.rpartition(".")[2]
        found = rf"^\s*(?:def|class) {last}\b|^\s*{last}\b[^=\n]*="
        assert re.search(found, source, re.MULTILINE), (name, path)


def read_plan():
    """Return the page on the architecture."""
    return (DOCS / "architecture.md").read_text(encoding="utf-8")


def test_the_plan_shows_what_there_is():
    # every file that the architecture page names, alone or in its folder, is there
    text = read_plan()
    known = {path.name for path in (ROOT / "src" / "mklearn").rglob("*.py")}
    for folder in ("tests", "benchmarks"):
        known |= {path.name for path in (ROOT / folder).glob("*.py")}
    named = {Path(name).name for name in re.findall(r"\b[a-z_/]+\.py\b", text)}
    assert len(named) > 40
    assert named <= known


# --- the entrance ---------------------------------------------------------------------

STARTS = sorted(p for p in (DOCS / "start").glob("*.md") if p.name != "index.md")


@pytest.mark.parametrize("page", STARTS, ids=named)
def test_a_first_page_is_two_screens_and_ends_in_a_script(page):
    text = page.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 100  # two screens of fifty lines
    assert len(blocks(page, "python")) == 1
    script, after = text.split("## A working script")[1].rsplit("```", 1)
    assert "```python" in script
    assert after.strip().startswith("Next:") and len(after.split()) < 40


def test_every_first_page_is_found_from_the_landing_page():
    landing = (DOCS / "index.md").read_text(encoding="utf-8")
    table = (DOCS / "start" / "index.md").read_text(encoding="utf-8")
    assert len(STARTS) == 7
    for page in STARTS:
        assert f"(start/{page.name})" in landing
        assert f"({page.name})" in table


def test_the_landing_page_shows_the_example_of_the_readme():
    for language in ("python", "text"):
        assert blocks(DOCS / "index.md", language) == blocks(
            ROOT / "README.md", language
        )
    (code,) = blocks(DOCS / "index.md", "python")
    assert len([line for line in code.splitlines() if line]) == 10


def test_the_landing_page_shows_the_answer():
    (code,), (shown,) = (blocks(DOCS / "index.md", kind) for kind in ("python", "text"))
    space = {}
    with redirect_stdout(StringIO()) as said:
        exec(compile(code, "index.md", "exec"), space)
    accuracy = float(re.search(r"accuracy (\S+)", shown)[1])
    # ten samples of 569 may fall to the other side where kernels round otherwise
    assert abs(float(said.getvalue().split()[1]) - accuracy) <= 10 / 569
    lower = float(re.search(r"at least (\S+);", shown)[1])
    upper = float(re.search(r"reaches (\S+),", shown)[1])
    found = space["model"].solution_
    # two pairs of bounds on one number
    assert lower <= found.upper * (1 + 1e-5) and found.lower <= upper * (1 + 1e-5)


def test_the_five_figures_are_read_from_the_results(monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS / "_ext"))
    summary = import_module("results_summary")
    assert summary.MARK in (DOCS / "results" / "index.md").read_text(encoding="utf-8")
    rows = summary.summary().splitlines()[2:]
    assert len(rows) == 5
    for row in rows:
        assert re.match(r"\| \*\*[-+]?\d", row)
        (page,) = re.findall(r"\]\((.+?\.md)\)", row)
        assert (DOCS / "results" / page).is_file()
