"""Errors and signals: one line for errors that users can fix, no partial files."""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import Any, NoReturn

from mklearn.data.spelling import did_you_mean
from mklearn.data.writing import whole_files
from mklearn.model_selection import ctrl_c_ends_all


def fail(message: str, code: int = 2) -> NoReturn:
    """End with a line on standard error."""
    print(f"mklearn: {visible(message)}", file=sys.stderr)
    raise SystemExit(code)


def visible(text: str) -> str:
    """Return a text with control characters escaped, as terminals interpret them."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else _spelt(c) for c in text)


def _spelt(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def ends_well(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with handling of all errors and signals.

    Ctrl-C ends it with exit code 130 and SIGTERM with 143; partial output is removed.
    Failure to write to standard output is an error as well, and an internal error is
    reported in one line, without a traceback.
    """

    @wraps(command)
    def wrapper(*args: Any, **kwargs: Any) -> None:
        try:
            with _signals(), ctrl_c_ends_all():
                command(*args, **kwargs)
                sys.stdout.flush()
        except KeyboardInterrupt:
            fail("interrupted; no partial files were left", 130)
        except BrokenPipeError:
            _abandon_output()  # the reader has closed the pipe
            raise SystemExit(1) from None
        except OSError as error:
            _abandon_output()
            fail(f"cannot write the results: {error.strerror or error}")
        except Exception as error:
            if type(error).__module__.split(".")[0] in ("click", "typer"):
                raise  # these end the program as usual
            fail(_fault(error), 1)

    return wrapper


@contextmanager
def _signals() -> Iterator[None]:
    """Make Ctrl-C and SIGTERM raise exceptions in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {
        signal.SIGINT: signal.signal(signal.SIGINT, signal.default_int_handler),
        signal.SIGTERM: signal.signal(signal.SIGTERM, _terminated),
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _terminated(*_: Any) -> NoReturn:
    fail("terminated by SIGTERM; no partial files were left", 143)


def _abandon_output() -> None:
    """Discard what could not be written to standard output, so it is not retried."""
    with suppress(OSError, ValueError, io.UnsupportedOperation):
        sink = os.open(os.devnull, os.O_WRONLY)
        os.dup2(sink, sys.stdout.fileno())
        os.close(sink)


def _fault(error: Exception) -> str:
    """Return a line about an internal error."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    what = " ".join(str(error).split())
    return (
        f"this is a bug in mklearn, please report it: {type(error).__name__} {what} "
        f"({Path(last.filename).name}, line {last.lineno})"
    )


@contextmanager
def user_errors() -> Iterator[None]:
    """End with one line for errors that the user can fix: data, options, files."""
    try:
        yield
    except BrokenExecutor:
        fail(
            "a process of --jobs was killed, perhaps because memory ran out; use fewer "
            "--jobs, or none"
        )
    except MemoryError as error:
        fail(f"memory ran out: {' '.join(str(error).split()) or 'use fewer samples'}")
    except (ValueError, OSError) as error:
        fail(" ".join(str(error).split()) or type(error).__name__)


@contextmanager
def sound(model: Path) -> Iterator[None]:
    """End with one line if the content of a model file is invalid."""
    try:
        yield
    except (ValueError, OSError, MemoryError):
        raise
    except Exception as error:
        why = " ".join(str(error).split())
        fail(
            f"{model} contains a model that cannot be used: {type(error).__name__} "
            f"{why}"
        )


@contextmanager
def writing(out: Path) -> Iterator[None]:
    """End with one line if the system refuses to write."""
    try:
        yield
    except OSError as error:
        why = error.strerror or str(error)
        if isinstance(error, PermissionError) and error.filename2 is not None:
            why += f"; is {Path(error.filename2).name} open in another program?"
        fail(f"cannot write to {out}: {why}")


@contextmanager
def results_folder(out: Path) -> Iterator[None]:
    """Check that a folder is writable before the work starts."""
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
            with suppress(OSError):  # removes it only if it is empty
                out.rmdir()


def not_an_input(out: Path, *inputs: Path) -> None:
    """End with one line if results would overwrite their own input."""
    for path in inputs:
        if out.exists() and path.exists() and out.samefile(path):
            fail(f"--out {out} is an input file; give the output another name")


def require(option: str, value: str, known: tuple[str, ...]) -> None:
    """End with one line unless an option has one of the known values."""
    if value not in known:
        hint = did_you_mean(value, known).strip()
        fail(f"{option} takes {', '.join(known)}; got {value!r}. {hint}".rstrip(". "))
