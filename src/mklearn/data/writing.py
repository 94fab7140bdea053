"""Atomic writing of files, also with several writers at a time."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

STALE = 24 * 3600.0  # age in seconds of stale files, if folders cannot be locked
_OURS = re.compile(r"\.mklearn-[0-9a-f]{16}\.tmp")
_PATIENCE = 100  # hundredths of a second to wait for a lock, or for a reader


@contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path next to ``path``, which replaces it on success.

    Readers see the old file or the new one, never a part of it, and nothing is left
    behind after an error or Ctrl-C. If several writers use the same path, the last one
    wins. A link stays a link; devices and folders are refused.
    """
    path = Path(os.path.realpath(path))
    _check_replaceable(path)
    with _temporary(path.parent) as temporary:
        yield temporary
        _to_disk(temporary)
        _replace(temporary, path)
        _names_to_disk(path.parent)


@contextmanager
def whole_files(folder: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield an empty folder, whose files move to ``folder`` together on success.

    Either all results of a run are written or none of them, and in the latter case the
    results of an earlier run stay as they were: if one file cannot be moved, those
    already moved are replaced by the previous ones.
    """
    folder = Path(folder)
    with _temporary(folder) as temporary:
        new, old = temporary / "new", temporary / "old"
        for part in (temporary, new, old):
            part.mkdir()
        yield new
        names = sorted(os.listdir(new))
        for name in names:
            _check_replaceable(folder / name)
            _to_disk(new / name)
        _move_together(names, new, old, folder)
        _names_to_disk(folder)


def _move_together(names: list[str], new: Path, old: Path, folder: Path) -> None:
    """Move all files to their names, or none of them."""
    before = [name for name in names if os.path.lexists(folder / name)]
    for name in before:
        _keep(folder / name, old / name)
    begun = []
    try:
        for name in names:
            begun.append(name)
            _replace(new / name, folder / name)
    except BaseException:
        for name in begun:
            if (new / name).exists():  # it has not moved
                continue
            if name in before:
                _replace(old / name, folder / name)
            else:
                (folder / name).unlink(missing_ok=True)
        raise


def _replace(source: Path, target: Path) -> None:
    """Move a file to a name that may be taken.

    Windows refuses this while another process has the target open, if only to read
    or to scan it, so that it is tried for a while.
    """
    for _ in range(_PATIENCE):
        try:
            os.replace(source, target)
        except PermissionError:
            time.sleep(0.01)
        else:
            return
    os.replace(source, target)


def _keep(path: Path, copy: Path) -> None:
    """Make a hard link to a file or, if that is not possible, a copy."""
    try:
        os.link(path, copy, follow_symlinks=False)
    except (OSError, NotImplementedError):
        shutil.copy2(path, copy, follow_symlinks=False)


def write_json(path: str | os.PathLike[str], content: Any) -> None:
    """Write ``content`` as JSON, atomically."""
    text = json.dumps(content, indent=2, allow_nan=False) + "\n"
    with whole_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def _check_replaceable(path: Path) -> None:
    """Raise OSError if a path must not be replaced by a new file."""
    if path.is_dir():
        raise IsADirectoryError(21, "It is a folder, not a file", str(path))
    if path.exists() and not path.is_file():
        raise OSError(22, "It is a device, not a file", str(path))


# --- temporary names ------------------------------------------------------------------


@contextmanager
def _temporary(folder: Path) -> Iterator[Path]:
    """Yield a unique temporary name, and remove the file or folder afterwards.

    Writers share a lock on the folder, which the system releases when they die. A
    process that gets the lock exclusively knows that no temporary name belongs to a
    living writer.
    """
    lock = _Lock(folder)
    try:
        if lock.alone():
            _clean(folder, 0.0)
            lock.share()
        elif not lock.share():
            _clean(folder, STALE)
        temporary = folder / f".mklearn-{secrets.token_hex(8)}.tmp"
        try:
            yield temporary
        finally:
            _remove(temporary)
    finally:
        lock.release()


class _Lock:
    """A lock on a folder, on systems that support it."""

    def __init__(self, folder: Path) -> None:
        self._number: int | None = None
        with suppress(ImportError):
            self._fcntl = import_module("fcntl")  # not on every system
            with suppress(OSError):
                self._number = os.open(folder, os.O_RDONLY)

    def alone(self) -> bool:
        """Try to lock the folder exclusively; return whether this succeeded."""
        return self._take("LOCK_EX")

    def share(self) -> bool:
        """Lock the folder together with others; return whether this succeeded."""
        for _ in range(_PATIENCE):  # another process may be cleaning
            if self._take("LOCK_SH"):
                return True
            if self._number is None:
                return False
            time.sleep(0.01)
        return False

    def _take(self, kind: str) -> bool:
        if self._number is None:
            return False
        how = getattr(self._fcntl, kind) | self._fcntl.LOCK_NB
        try:
            self._fcntl.flock(self._number, how)
        except BlockingIOError:
            return False
        except OSError:  # a file system without locks
            self.release()
            return False
        return True

    def release(self) -> None:
        """Release the lock."""
        if self._number is not None:
            os.close(self._number)
            self._number = None


def _clean(folder: Path, age: float) -> None:
    """Remove files of dead writers of at least this age."""
    with suppress(OSError):
        for path in folder.iterdir():
            if _OURS.fullmatch(path.name):
                with suppress(OSError):
                    if time.time() - path.lstat().st_mtime >= age:
                        _remove(path)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _to_disk(path: Path) -> None:
    """Wait until the contents of a file would survive a power failure."""
    with open(path, "rb+") as file:
        os.fsync(file.fileno())


def _names_to_disk(folder: Path) -> None:
    """Wait until the names in a folder are on disk, if the system supports it."""
    with suppress(OSError):
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)
