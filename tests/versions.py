"""Write the constraint files: the versions on which the tests are run.

``pyproject.toml`` contains the minimum versions. ``constraints/floor`` pins each of
them to exactly that version, for ``make test-floor``; ``constraints/exact`` contains
the versions of everything in one environment, for a reproducible set-up. ``make
constraints`` writes both.
"""

import re
import subprocess
import sys
import tomllib
import venv
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]
FLOOR = ROOT / "constraints" / "floor.txt"
EXACT = ROOT / "constraints" / "exact.txt"
# extras that tests can do without
TOOLS = {"coverage", "docs", "fuzz", "lint", "peers", "release"}
EXTRAS = ("dashboard", "docs", "lint", "test")  # what the environment of EXACT holds


def floors():
    """Return the minimum version of each package that users or tests need, by name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    asked = list(project["dependencies"])
    for name in sorted(set(extras) - TOOLS):
        asked += extras[name]
    found = {}
    for line in asked:
        name, least = re.match(r"([\w-]+)(?:\[[^]]*\])?(?:>=([\d.]+))?", line).groups()
        if name == project["name"]:
            continue
        if found.setdefault(name, least) != least or least is None:
            raise SystemExit(f"{name}: pyproject.toml must say one least version")
    return dict(sorted(found.items()))


def floor_text():
    """Return the contents of the file of minimum versions."""
    head = "# The least versions of pyproject.toml; made by: make constraints"
    lines = [f"{name}=={least}" for name, least in floors().items()]
    return "\n".join([head, *lines, ""])


def exact_text():
    """Return all versions of a new environment, as currently chosen by pip."""
    with TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        pip = [str(Path(folder, "bin", "python")), "-m", "pip"]
        target = f"{ROOT}[{','.join(EXTRAS)}]"
        subprocess.run([*pip, "install", "--quiet", "--editable", target], check=True)
        freeze = [*pip, "freeze", "--exclude-editable"]
        lines = subprocess.run(freeze, check=True, stdout=subprocess.PIPE, text=True)
    python = ".".join(map(str, sys.version_info[:2]))
    return f"# Made on Python {python} by: make constraints\n" + lines.stdout


if __name__ == "__main__":
    FLOOR.write_text(floor_text())
    EXACT.write_text(exact_text())
