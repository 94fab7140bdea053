"""How commands end: one line for what the user can repair, nothing half-written."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import Any, NoReturn

from mklearn.model_selection import ctrl_c_ends_all
from mklearn.report import whole_files


def fail(message: str, code: int = 2) -> NoReturn:
    """End with a line on standard error."""
    print(f"mklearn: {message}", file=sys.stderr)
    raise SystemExit(code)


def ends_well(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with Ctrl-C ending it, wherever it is, by exit code 130."""

    @wraps(command)
    def wrapper(*args: Any, **kwargs: Any) -> None:
        own = threading.current_thread() is threading.main_thread()
        usual = signal.default_int_handler
        before = signal.signal(signal.SIGINT, usual) if own else None
        try:
            with ctrl_c_ends_all():
                command(*args, **kwargs)
        except KeyboardInterrupt:
            fail("stopped; nothing is left half-written", 130)
        finally:
            if own:
                signal.signal(signal.SIGINT, before)

    return wrapper


@contextmanager
def user_errors() -> Iterator[None]:
    """End with one line for what the user can repair: data, options, files."""
    try:
        yield
    except (ValueError, OSError, MemoryError) as error:
        fail(" ".join(str(error).split()) or type(error).__name__)


@contextmanager
def sound(model: Path) -> Iterator[None]:
    """End with one line where a model file holds what no model of ours would."""
    try:
        yield
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        why = " ".join(str(error).split())
        fail(f"{model} holds a model that cannot be used: {type(error).__name__} {why}")


@contextmanager
def writing(out: Path) -> Iterator[None]:
    """End with one line if the system refuses to write."""
    try:
        yield
    except OSError as error:
        fail(f"cannot write to {out}: {error.strerror or error}")


@contextmanager
def results_folder(out: Path) -> Iterator[None]:
    """Make sure of a folder that can be written to, before the work and not after."""
    new = not out.exists()
    try:
        with writing(out):
            if out.exists() and not out.is_dir():
                fail(f"cannot write to {out}: it is a file; --out takes a folder")
            out.mkdir(parents=True, exist_ok=True)
            with whole_files(out):
                pass
        yield
    finally:
        if new:
            with suppress(OSError):  # it goes only if it is empty
                out.rmdir()


def require(option: str, value: str, known: tuple[str, ...]) -> None:
    """End with one line unless an option has one of the known values."""
    if value not in known:
        fail(f"{option} takes {', '.join(known)}; got {value!r}")
