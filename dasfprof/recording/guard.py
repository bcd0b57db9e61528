"""`HookGuard`: catches, counts and logs errors of hooks, so that none reaches Dask or the user."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from dasfprof.database.writer import TraceWriter

logger = logging.getLogger(__name__)


async def in_thread(function: Callable[[], object]) -> None:
    """Call a function in a thread, or on the event loop if the interpreter is exiting.

    When the interpreter exits, Dask closes clusters that a script left open. Executors accept no
    work then.
    """
    try:
        done = asyncio.get_running_loop().run_in_executor(None, function)
    except RuntimeError:
        function()
    else:
        await done


class Catching:
    """A context that passes errors to a function instead of raising them.

    Parameters
    ----------
    handle
        The function, which is called while the error is handled.
    what
        Its argument: what the context does.
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
    """Return a context that logs, at the level DEBUG, that something could not be recorded."""
    return Catching(
        lambda what: logger.debug("%s could not be recorded", what, exc_info=True), what
    )


class HookGuard:
    """Handles the errors of one plugin's hooks.

    The body of each hook is in a context of `catching`. Hooks that Dask calls for each task use
    ``try: ... except Exception: guard.caught(...)``, which costs nothing without an error. The
    number of errors is written to the trace.

    Parameters
    ----------
    writer
        Its `losses` count the errors. None while there is no file yet.
    """

    def __init__(self, writer: TraceWriter | None = None) -> None:
        self._writer = writer
        self._logged = False

    def caught(self, where: str) -> None:
        """Count the current exception, and log it if it is the first."""
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
        """Return a context that counts errors as `caught` does."""
        return Catching(self.caught, where)

    def call_all(self, where: str, steps: list[Callable[[], object]]) -> None:
        """Remove and call all steps, from last to first, even if some fail."""
        while steps:
            with self.catching(where):
                steps.pop()()

    async def end(self, worker: Any, steps: list[Callable[[], object]]) -> None:
        """Call all steps of a plugin's end, in a thread unless the worker is closing.

        A closing worker must not await. On SIGTERM, `dask worker --no-nanny` ends its event loop,
        which cancels the close at its next await, and Dask waits forever for the close to finish.
        """
        if worker.status.name == "closing":
            self.call_all("teardown", steps)
        else:
            await in_thread(partial(self.call_all, "teardown", steps))
