"""Functions compiled by numba, which are cached on disk where possible."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from functools import update_wrapper
from threading import RLock
from typing import Any

_LOG = logging.getLogger("mklearn")


def njit(**options: Any) -> Callable[[Any], Any]:
    """Return a decorator like numba's, which also works on read-only file systems.

    Numba is imported when the first function is called, as it takes longer to import
    than this whole library. Compiled functions are cached next to the package, in the
    user's cache folder if the package is read-only, or in ``NUMBA_CACHE_DIR``. If none
    of these is writable, numba refuses to define a cached function; it is then compiled
    anew in each process.

    Parameters
    ----------
    **options
        Options of :func:`numba.njit`.
    """

    def decorate(function: Any) -> Compiled:
        return Compiled(function, options)

    return decorate


class Compiled:
    """A function that is passed to numba when any such function is first called.

    All functions defined so far are then passed to numba together and are replaced in
    the modules that define them: compiled functions call each other, so numba must find
    compiled ones there.
    """

    _waiting: list[Compiled] = []  # noqa: RUF012
    _lock = RLock()

    def __init__(self, function: Any, options: dict[str, Any]) -> None:
        update_wrapper(self, function)
        self._function, self._options = function, options
        self._compiled: Any = None
        self._waiting.append(self)

    def __call__(self, *args: Any) -> Any:
        """Call the compiled function."""
        return (self._compiled or self._ready())(*args)

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the compiled function."""
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._ready(), name)

    def _ready(self) -> Any:
        with self._lock:
            while self._waiting:
                self._hand_over()
        return self._compiled

    def _hand_over(self) -> None:
        import numba
        from numba.core import event

        if not Notice.registered:
            event.Listener.register(Notice)
            event.register("numba:compile", Notice())
            Notice.registered = True
        new = list(self._waiting)
        for one in new:
            try:
                one._compiled = numba.njit(**one._options)(one._function)
            except RuntimeError:
                options = {**one._options, "cache": False}
                one._compiled = numba.njit(**options)(one._function)
        modules = {one.__module__: one._function.__globals__ for one in new}
        for names in modules.values():
            for name, value in list(names.items()):
                if isinstance(value, Compiled):
                    names[name] = value._compiled
        del self._waiting[: len(new)]


class Notice:
    """Announces, once per process, that a function of this library is being compiled.

    The message goes to the logger ``mklearn``, and to the terminal if there is one.
    """

    text = (
        "mklearn is compiling its inner loops (once per machine); this takes a few "
        "seconds."
    )
    registered = False

    def __init__(self) -> None:
        self.said = False

    def notify(self, event: Any) -> None:
        """Print the message when a compilation starts, if the function is ours."""
        if not event.is_start:
            return
        # functions that others create at run time may have no module
        module = event.data["dispatcher"].py_func.__module__ or ""
        if self.said or module.split(".")[0] != "mklearn":
            return
        self.said = True
        _LOG.info(self.text)
        if sys.stderr is not None and sys.stderr.isatty():
            print(self.text, file=sys.stderr)
