"""The files around the library say the same things, and the wheel holds the library."""

import email
import re
import shlex
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import mklearn

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
VERSION = PROJECT["project"]["version"]
KINDS = [one["directory"] for one in PROJECT["tool"]["towncrier"]["type"]]


def load_yaml(path):
    return pytest.importorskip("yaml").safe_load(path.read_text(encoding="utf-8"))


# --- versions and dates ---------------------------------------------------------------


def test_one_version_everywhere():
    assert mklearn.__version__ == VERSION
    assert load_yaml(ROOT / "CITATION.cff")["version"] == VERSION
    assert load_yaml(ROOT / "conda" / "recipe.yaml")["context"]["version"] == VERSION


def test_the_changelog_begins_with_this_version_and_its_date():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    heading = re.search(r"^## \[(.+?)\] - (\d{4}-\d\d-\d\d)$", text, re.MULTILINE)
    assert heading[1] == VERSION
    assert str(load_yaml(ROOT / "CITATION.cff")["date-released"]) == heading[2]
    marker = PROJECT["tool"]["towncrier"]["start_string"]
    assert text.index(marker) < heading.start()
    assert "Unreleased" not in text


def test_every_paper_is_cited():
    titles = {one["title"] for one in load_yaml(ROOT / "CITATION.cff")["references"]}
    index = (ROOT / "docs" / "theory" / "index.md").read_text(encoding="utf-8")
    named = re.findall(r"^\| \[[A-Z]+\].*?\*(.+?)\*", index, re.MULTILINE)
    assert len(named) == 5
    assert {one.replace("ℓ", "l").lower() for one in named} == {
        one.lower() for one in titles
    }


# --- news fragments -------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [p.name for p in sorted((ROOT / "changes").iterdir()) if p.name != "README.md"]
    or [".gitkeep"],
)
def test_news_fragments_are_named_as_towncrier_reads_them(name):
    fragment = rf"(\d+|\+[\w-]+)\.({'|'.join(KINDS)})(\.\d+)?\.md|\.gitkeep"
    assert re.fullmatch(fragment, name), "see changes/README.md"


def test_kinds_of_fragments_are_explained():
    text = (ROOT / "changes" / "README.md").read_text(encoding="utf-8")
    for kind in KINDS:
        assert f"`{kind}`" in text


# --- workflows ------------------------------------------------------------------------


def test_workflows_cover_the_systems_and_the_versions_of_python():
    jobs = load_yaml(ROOT / ".github" / "workflows" / "ci.yml")["jobs"]
    matrix = jobs["tests"]["strategy"]["matrix"]
    classified = re.findall(
        r"Python :: (3\.\d+)", "\n".join(PROJECT["project"]["classifiers"])
    )
    assert matrix["python"] == classified
    systems = {"ubuntu-latest", "macos-latest", "windows-latest"}
    assert set(matrix["os"]) == systems
    assert set(jobs["package"]["strategy"]["matrix"]["os"]) == systems
    assert {"lint", "versions", "docs", "package"} <= set(jobs)


def test_workflows_and_pages_call_targets_that_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):.*## ", makefile, re.MULTILINE))
    jobs = load_yaml(ROOT / ".github" / "workflows" / "ci.yml")["jobs"]
    called = {
        target
        for job in jobs.values()
        for step in job["steps"]
        for target in re.findall(r"^make ([a-z-]+)", step.get("run", ""))
    }
    called |= set(jobs["versions"]["strategy"]["matrix"]["target"])
    for page in ("README.md", "CONTRIBUTING.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        called |= set(re.findall(r"(?:^|`)make ([a-z-]+)", text, re.MULTILINE))
    assert {"lint", "docs", "test-floor"} <= called
    assert called <= targets


def test_the_recipe_asks_for_what_the_project_asks_for():
    recipe = load_yaml(ROOT / "conda" / "recipe.yaml")["requirements"]
    extras = PROJECT["project"]["optional-dependencies"]
    asked = [*PROJECT["project"]["dependencies"], *extras["cli"], *extras["plot"]]
    # conda-forge's matplotlib without a graphical toolkit
    asked = [line.replace("matplotlib", "matplotlib-base") for line in asked]
    wanted = {line.replace(">=", " >=") for line in asked}
    assert {line for line in recipe["run"] if not line.startswith("python ")} == wanted
    for line in PROJECT["build-system"]["requires"]:
        assert line.replace(">=", " >=") in recipe["host"]


# --- the wheel ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A wheel, built as pip builds it but without asking a network for hatchling."""
    pytest.importorskip("hatchling", reason="the wheel is built by hatchling")
    out = tmp_path_factory.mktemp("dist")
    code = f"from hatchling.build import build_wheel; print(build_wheel({str(out)!r}))"
    built = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True
    )
    assert built.returncode == 0, built.stderr
    return out / built.stdout.split()[-1]


def test_the_wheel_holds_the_library_and_nothing_else(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    info = f"mklearn-{VERSION}.dist-info"
    assert {name.split("/")[0] for name in names} == {"mklearn", info}
    source = ROOT / "src"
    files = {
        path.relative_to(source).as_posix()
        for path in (source / "mklearn").rglob("*.py")
    }
    inside = {name for name in names if name.startswith("mklearn/")}
    assert inside == files | {"mklearn/py.typed"}
    assert f"{info}/licenses/LICENSE" in names


def test_the_wheel_needs_no_compiler_and_is_small(wheel):
    assert wheel.name == f"mklearn-{VERSION}-py3-none-any.whl"
    # text compresses to a third or less: data or builds that slipped in would show
    sources = sum(p.stat().st_size for p in (ROOT / "src").rglob("*.py"))
    assert wheel.stat().st_size < 0.4 * sources


def test_the_wheel_says_what_it_needs(wheel):
    archive = zipfile.ZipFile(wheel)
    info = f"mklearn-{VERSION}.dist-info"
    meta = email.message_from_bytes(archive.read(f"{info}/METADATA"))
    needed = [one for one in meta.get_all("Requires-Dist") if "extra ==" not in one]
    assert {re.split(r"[><=]", one)[0] for one in needed} == {
        re.split(r"[><=]", one)[0] for one in PROJECT["project"]["dependencies"]
    }
    assert meta["License-Expression"] == "BSD-3-Clause"
    points = archive.read(f"{info}/entry_points.txt").decode()
    assert "mklearn = mklearn.cli:main" in points


def test_it_installs_as_the_pages_say_and_runs(tmp_path):
    """The command of docs/first-report.md, without a network and into a folder."""
    pytest.importorskip("pip", reason="this environment has no pip to install with")
    pytest.importorskip("hatchling", reason="the wheel is built by hatchling")
    text = (ROOT / "docs" / "first-report.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"^env/bin/pip (.*)$", text, re.MULTILINE)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    place = tmp_path / "site"
    options = ["--no-deps", "--no-index", "--no-build-isolation", "--no-compile"]
    options += ["--target", str(place)]
    said = subprocess.run(
        [*pip, *shlex.split(command, comments=True), *options],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert said.returncode == 0, said.stderr
    assert "does not provide the extra" not in said.stderr
    code = (
        f"import sys; sys.path.insert(0, {str(place)!r}); import mklearn; "
        "print(mklearn.__version__, mklearn.__file__)"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert found.returncode == 0, found.stderr
    version, file = found.stdout.split(maxsplit=1)
    assert version == VERSION
    assert Path(file.strip()).is_relative_to(place)


def test_what_is_told_to_install_can_be_installed():
    # no package index has mklearn: it is installed from a checkout, and messages
    # name the packages that are missing, which is right however it was installed
    extras = PROJECT["project"]["optional-dependencies"]
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    found = set()
    for path in [*pages, *(ROOT / "src").rglob("*.py")]:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"install[\s\"'f]+mklearn\b", text), path
        for named in re.findall(r"[\"']\.\[([a-z,]+)\][\"']", text):
            found |= set(named.split(","))
    assert {"cli", "plot"} <= found <= set(extras)


def test_nothing_that_is_installed_contradicts_the_project():
    pytest.importorskip("pip", reason="this environment has no pip to check with")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    found = subprocess.run([*pip, "check"], capture_output=True, text=True)
    # other packages of an environment may disagree with each other
    assert not [one for one in found.stdout.splitlines() if one.startswith("mklearn ")]


# --- .ci ------------------------------------------------------------------------------


def test_the_two_parts_run_every_test_once():
    files = (ROOT / ".ci" / "quick-tests").read_text(encoding="utf-8").split()
    assert files and len(set(files)) == len(files)
    assert all((ROOT / file).is_file() for file in files)
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8").replace("\\\n", " ")
    steps = re.findall(r"^ *step make (lint|test)(?![\w-])(.*)", script, re.MULTILINE)
    assert [name for name, _ in steps] == ["lint", "test", "test"]
    # one part runs the files of the list, the other all but these
    assert "tr " in steps[1][1] and "--ignore" not in steps[1][1]
    assert "--ignore" in steps[2][1]
    assert all(".ci/quick-tests" in rest for _, rest in steps[1:])
