"""The layout: imports go one way, and optional packages stay optional."""

import ast
import subprocess
import sys
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import mklearn

ROOT = Path(mklearn.__file__).parent
LAYERS = ["data", "kernels", "problems", "solvers", "estimators"]
OPTIONAL = [
    "cvxpy", "clarabel", "matplotlib", "pandas", "pyarrow", "dask", "distributed",
    "typer", "rich",
]  # fmt: skip
MODULES = sorted(ROOT.rglob("*.py"))


def level(parts):
    """Return how high a module of the package stands; what is no layer is on top."""
    return LAYERS.index(parts[0]) if parts and parts[0] in LAYERS else len(LAYERS)


@cache
def nodes(path):
    """Return all nodes of the syntax tree of a file."""
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


@cache
def imports(path):
    """Return the modules that a file imports, at any depth of its code."""
    package = ["mklearn", *path.relative_to(ROOT).parent.parts]
    found = set()
    for node in nodes(path):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            up = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*up, *([node.module] if node.module else [])])
            names = {f"{base}.{alias.name}" for alias in node.names}
            found |= names if base == "mklearn" else {base}
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_go_one_way(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    if parts == ("__init__",):
        return
    for name in imports(path):
        if name.split(".")[0] == "mklearn":
            assert level(tuple(name.split(".")[1:])) <= level(parts), name


@pytest.mark.parametrize("path", sorted((ROOT / "problems").glob("*.py")), ids=str)
def test_problems_are_formulas(path):
    roots = {name.split(".")[0] for name in imports(path)}
    assert not roots & {"sklearn", "numba"}


def test_no_two_packages_need_each_other():
    # a package that exports the names of its modules is one with them
    needs = {path.relative_to(ROOT).with_suffix("").parts[0]: set() for path in MODULES}
    for path in MODULES:
        name = path.relative_to(ROOT).with_suffix("").parts[0]
        if name not in ("__init__", "__main__"):
            used = {tuple(n.split("."))[1] for n in imports(path) if "mklearn." in n}
            needs[name] |= (used & set(needs)) - {name}
    assert set(TopologicalSorter(needs).static_order()) == set(needs)


def test_no_module_imports_what_another_keeps_to_itself():
    for path in MODULES:
        for node in nodes(path):
            if isinstance(node, ast.ImportFrom) and own(node):
                private = [a.name for a in node.names if a.name.startswith("_")]
                assert set(private) <= {"__version__"}, (path, private)


def test_there_is_no_module_for_everything():
    stems = {path.stem.strip("_") for path in MODULES}
    assert not stems & {"utils", "util", "helpers", "common", "misc"}


def test_folders_are_two_deep():
    assert all(len(path.relative_to(ROOT).parts) <= 2 for path in MODULES)


def at_import(tree):
    """Yield the nodes that run when a module is imported."""
    for node in ast.iter_child_nodes(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield node
            yield from at_import(node)


def typing_only(node):
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


@pytest.mark.parametrize(
    "path",
    [path for path in MODULES if level(path.relative_to(ROOT).parts) == len(LAYERS)],
    ids=lambda p: str(p.relative_to(ROOT)),
)
def test_own_modules_are_imported_at_once(path):
    # later, or for types alone, an import may hide that two modules need each other
    tree = ast.parse(path.read_text(encoding="utf-8"))
    everywhere = {ast.unparse(node) for node in ast.walk(tree) if own(node)}
    tree.body = [node for node in tree.body if not typing_only(node)]
    assert everywhere == {ast.unparse(node) for node in at_import(tree) if own(node)}


def own(node):
    """Tell whether a node imports a module of the package."""
    if isinstance(node, ast.ImportFrom):
        return bool(node.level) or str(node.module).split(".")[0] == "mklearn"
    return isinstance(node, ast.Import) and any(
        alias.name.split(".")[0] == "mklearn" for alias in node.names
    )


@pytest.mark.parametrize("layer", LAYERS)
def test_no_late_import_hides_a_cycle(layer):
    for path in sorted((ROOT / layer).glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        late = set(ast.walk(tree)) - set(at_import(tree))
        for node in late:
            if isinstance(node, ast.Import):
                assert not any(a.name.startswith("mklearn") for a in node.names), path
            elif isinstance(node, ast.ImportFrom):
                assert not node.level and not node.module.startswith("mklearn"), path


@pytest.mark.parametrize("layer", LAYERS)
def test_layers_import_optional_packages_only_where_used(layer):
    for path in sorted((ROOT / layer).glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        tree.body = [node for node in tree.body if not typing_only(node)]
        for node in at_import(tree):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module]
            assert not {name.split(".")[0] for name in names} & set(OPTIONAL), path


def test_importing_the_package_imports_nothing_optional():
    # scikit-learn looks for some of them itself, and so comes first
    code = (
        "import sys, sklearn.model_selection\n"
        "before = set(sys.modules)\n"
        "import mklearn\n"
        f"print([m for m in {OPTIONAL} if m in set(sys.modules) - before])"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "[]"


def test_every_public_name_exists_and_is_documented():
    for name in mklearn.__all__:
        assert getattr(mklearn, name).__doc__
