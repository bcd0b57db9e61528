"""The observer's law: what a hook raises is caught, logged once, counted, and goes no further."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from dasfprof.database.writer import TraceWriter

logger = logging.getLogger(__name__)


async def in_thread(function: Callable[[], object]) -> None:
    """Call a function off the event loop; on it where the interpreter ends and starts no thread.

    A script that leaves its cluster open has Dask close it as the interpreter exits. Executors take
    nothing any more by then.
    """
    try:
        done = asyncio.get_running_loop().run_in_executor(None, function)
    except RuntimeError:
        function()
    else:
        await done


class HookGuard:
    """Takes the errors of one plugin's hooks.

    A hook's body stands in ``try: ... except Exception: guard.caught(...)``, which costs nothing
    while nothing goes wrong. The count ends up in the trace.

    Parameters
    ----------
    writer
        Its `errors` count is raised; None while there is no file yet.
    """

    def __init__(self, writer: TraceWriter | None = None) -> None:
        self._writer = writer
        self._logged = False

    def caught(self, where: str) -> None:
        """Count the exception that is being handled, and log it if it is the first."""
        if self._writer is not None:
            self._writer.errors += 1
        if not self._logged:
            self._logged = True
            logger.warning(
                "dasfprof could not record a fact in %s; the computation is not affected. "
                "Further errors are counted in the trace and not logged.",
                where,
                exc_info=True,
            )

    def take_all(self, where: str, steps: list[Callable[[], object]]) -> None:
        """Take every step, the last first, whatever becomes of the others; empties the list."""
        while steps:
            try:
                steps.pop()()
            except Exception:
                self.caught(where)

    async def end(self, worker: Any, steps: list[Callable[[], object]]) -> None:
        """Take every step of a plugin's end, off the event loop while the worker goes on.

        A worker that is closing is not made to wait: SIGTERM ends the event loop of `dask worker
        --no-nanny`, which cancels a close that is under way where it awaits, and Dask then waits
        for ever for the rest of it.
        """
        if worker.status.name == "closing":
            self.take_all("teardown", steps)
        else:
            await in_thread(partial(self.take_all, "teardown", steps))
