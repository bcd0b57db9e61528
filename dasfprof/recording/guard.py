"""`HookGuard`: catches, counts and logs errors of hooks.

Without it, an error of dasfprof in a hook would reach Dask or the user's code.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from dasfprof.database.writer import TraceWriter

logger = logging.getLogger(__name__)


async def in_thread(function: Callable[[], object]) -> None:
    """Call a function in a thread, or on the event loop if the interpreter is exiting."""
    try:
        done = asyncio.get_running_loop().run_in_executor(None, function)
    # When the interpreter exits, Dask closes clusters that a script left open. At that time,
    # executors no longer accept work.
    except RuntimeError:
        function()
    else:
        await done


class Catching:
    """A context manager that catches an error and then calls a function.

    Parameters
    ----------
    handle
        The function to call. While it runs, `sys.exc_info` returns the error.
    what
        The text to pass to `handle`. It describes the code in the context.
    """

    __slots__ = ("_handle", "_what")

    def __init__(self, handle: Callable[[str], object], what: str) -> None:
        self._handle, self._what = handle, what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if isinstance(error, Exception):
            self._handle(self._what)
            return True
        return False


def logging_errors(what: str) -> Catching:
    """Return a context manager that catches errors and logs that `what` could not be recorded."""
    return Catching(
        lambda what: logger.debug("%s could not be recorded", what, exc_info=True), what
    )


class HookGuard:
    """Handles the errors of one plugin's hooks, and counts them in the trace.

    The body of each hook runs inside ``with guard.catching(...)``. Hooks that Dask calls for each
    task use ``try: ... except Exception: guard.caught(...)`` instead, which costs nothing unless an
    error occurs.

    Parameters
    ----------
    writer
        The writer whose `losses` count the errors. None if there is no file yet.
    """

    def __init__(self, writer: TraceWriter | None = None) -> None:
        self._writer = writer
        self._logged = False

    def caught(self, where: str) -> None:
        """Count the exception that is being handled, and log it if it is the first.

        `where` is the part of the log message that says what could not be recorded.
        """
        if self._writer is not None:
            self._writer.losses.errors += 1
        if not self._logged:
            self._logged = True
            logger.warning(
                "dasfprof could not record a fact in %s; the computation is not affected. "
                "Further errors are counted in the trace and not logged.",
                where,
                exc_info=True,
            )

    def catching(self, where: str) -> Catching:
        """Return a context manager that catches errors and passes them to `caught`."""
        return Catching(self.caught, where)

    def call_all(self, where: str, steps: list[Callable[[], object]]) -> None:
        """Remove all functions from a list and call them, from last to first, even if some fail."""
        while steps:
            with self.catching(where):
                steps.pop()()
