"""Files that are there whole or not at all, whoever else writes beside them."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

STALE = 24 * 3600.0  # seconds after which a temporary file belongs to no living writer
_OURS = re.compile(r"\.mklearn-[0-9a-f]{16}\.tmp")


@contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a temporary path beside ``path``; it takes its place if all goes well.

    Readers see the old file or the new one, never a part of it, and nothing is left
    behind after an error or Ctrl-C. Of several writers of one path, the last one wins.
    """
    path = Path(path)
    temporary = _temporary(path.parent)
    try:
        yield temporary
        _to_disk(temporary)
        os.replace(temporary, path)
        _names_to_disk(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def whole_files(folder: str | os.PathLike[str]) -> Iterator[Path]:
    """Give an empty folder; its files move to ``folder`` together if all goes well.

    The results of one run are either all there or none of them is, and what an earlier
    run has left stays as it was.
    """
    folder = Path(folder)
    temporary = _temporary(folder)
    temporary.mkdir()
    try:
        yield temporary
        paths = sorted(temporary.iterdir())
        for path in paths:
            _to_disk(path)
        for path in paths:
            os.replace(path, folder / path.name)
        _names_to_disk(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def write_json(path: str | os.PathLike[str], content: Any) -> None:
    """Write ``content`` as JSON, whole or not at all."""
    text = json.dumps(content, indent=2, allow_nan=False) + "\n"
    with whole_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _temporary(folder: Path) -> Path:
    """Return a name that nobody else has, after removing what dead writers left."""
    with suppress(OSError):
        for path in folder.iterdir():
            if _OURS.fullmatch(path.name):
                with suppress(OSError):
                    _remove_if_stale(path)
    return folder / f".mklearn-{secrets.token_hex(8)}.tmp"


def _remove_if_stale(path: Path) -> None:
    if time.time() - path.lstat().st_mtime < STALE:
        return
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _to_disk(path: Path) -> None:
    """Wait until the contents of a file would survive a power failure."""
    with open(path, "rb+") as file:
        os.fsync(file.fileno())


def _names_to_disk(folder: Path) -> None:
    """Wait for the names in a folder, too, where the system can say when."""
    with suppress(OSError):
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)
