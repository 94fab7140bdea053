"""The files of constraints say what pyproject.toml says."""

import re

from versions import EXACT, FLOOR, floor_text, floors


def numbers(version):
    return [int(part) for part in re.findall(r"\d+", version)]


def test_the_floor_is_that_of_the_project():
    assert FLOOR.read_text() == floor_text(), "run: make constraints"


def test_exact_versions_are_not_below_the_floor():
    exact = dict(re.findall(r"^([\w.-]+)==(\S+)$", EXACT.read_text(), re.MULTILINE))
    for name, least in floors().items():
        assert numbers(exact[name]) >= numbers(least), f"{name}; run: make constraints"


def test_parts_that_are_released_together_have_one_floor():
    assert floors()["dask"] == floors()["distributed"]
