"""README.md begins as it should, and what it states is so.

Its example is that of the landing page, which test_docs.py runs.
"""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


def test_it_starts_with_the_two_commands():
    lines = TEXT.splitlines()
    assert lines[0] == "# mklearn"
    assert [line.split("#")[0].strip() for line in lines[5:7]] == [
        "make demo",
        "make test",
    ]


def test_extras_exist():
    extras = set(re.search(r'"\.\[(.*?)\]"', TEXT)[1].split(","))
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for extra in extras:
        assert re.search(rf"^{extra} = \[", project, flags=re.MULTILINE)


def test_the_size_that_is_stated_is_that_of_the_sources():
    # text is compressed in a wheel, to about a third of the sources
    limit = float(re.search(r"takes less than (\d+) MB", TEXT)[1])
    sources = sum(p.stat().st_size for p in (ROOT / "src").rglob("*.py"))
    assert 0.35 * sources < limit * 1e6
