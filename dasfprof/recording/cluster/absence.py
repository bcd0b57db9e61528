"""`Absence`: ends a run whose client is gone for good, as after SIGKILL."""

from __future__ import annotations

import asyncio
import logging
from time import time
from typing import Any

from dasfprof.database.reader import CLIENT_GONE
from dasfprof.database.writer import TraceWriter
from dasfprof.recording.cluster.calls import running_plugins
from dasfprof.recording.cluster.clients import end_run, go_on_with
from dasfprof.recording.guard import HookGuard
from dasfprof.recording.settings import RunSettings
from dasfprof.text import format_duration

logger = logging.getLogger(__name__)

#: The time for which a client may be gone is counted in so many steps.
_STEPS = 20


class Absence:
    """Ends a run once the client that registered it has been gone for some time.

    Used on the scheduler's event loop. A client that has closed may have left its process behind,
    which goes on with other clients: it tells that it is there (`heard`). Time in which the event
    loop stands counts as one step, as nobody can come back then.

    Parameters
    ----------
    settings
        The run. One without a client ends with its cluster.
    """

    def __init__(self, settings: RunSettings) -> None:
        self._settings = settings
        self._steps_left = _STEPS
        #: While the client is gone: since when, and the next step.
        self._since = 0.0
        self._next: asyncio.TimerHandle | None = None
        self._stopped = False

    def begin(self, scheduler: Any, writer: TraceWriter, guard: HookGuard) -> None:
        """Begin to watch: the client may be gone already."""
        self._scheduler, self._writer, self._guard = scheduler, writer, guard
        if self._settings.client not in scheduler.clients:
            self.left(self._settings.client)

    def left(self, client: str) -> None:
        """Note that a client has left the scheduler."""
        if client and client == self._settings.client and self._next is None:
            self._since = time()
            self.heard()
            self._wait()

    def came(self, client: str) -> None:
        """Note that a client has connected, maybe again."""
        if client == self._settings.client and self._next is not None:
            self._next.cancel()
            self._next = None

    def heard(self) -> None:
        """Note that the client's process is there."""
        self._steps_left = _STEPS

    def stop(self) -> None:
        """Stop watching. Called in any thread."""
        self._stopped = True

    def _wait(self) -> None:
        step = self._settings.orphan_timeout / _STEPS
        self._next = asyncio.get_running_loop().call_later(step, self._take_step)

    def _take_step(self) -> None:
        self._steps_left -= 1
        if self._stopped:
            return
        if self._steps_left > 0:
            self._wait()
        else:
            go_on_with(self._end())

    async def _end(self) -> None:
        try:
            logger.warning(
                "the client of run %r has been gone for %s: its recording ends",
                self._settings.name,
                format_duration(time() - self._since),
            )
            self._writer.ending = ending = {"cause": CLIENT_GONE, "since": self._since}
            own = self._settings.plugin_name("")
            names = [name for name in running_plugins(self._scheduler) if name.startswith(own)]
            await end_run(names, self._settings.response_timeout, ending, self._scheduler)
        except Exception:
            self._guard.caught("the end of a run without a client")
