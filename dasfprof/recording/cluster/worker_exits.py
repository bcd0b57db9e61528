"""`WorkerExits`: how the processes of workers ended that left the cluster, as nannies log it.

Only a nanny sees the exit code of its worker's process. Without one, or where its log leaves out
messages of level INFO, the code stays unknown.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable
from typing import Any

from distributed import rpc

from dasfprof.recording.cluster.time_limit import within
from dasfprof.recording.guard import HookGuard

#: Seconds until a nanny is asked, how often that is, and how long it may take to answer.
_PAUSE, _TRIES, _LIMIT = 0.5, 10, 5.0
#: Seconds for which the end of a recording waits.
_END = 2.0
#: Messages of the log that are read, and characters of what is kept of one.
_LAST, _LONGEST = 200, 300

#: Called with a worker's address, its exit code (negative: the signal), and why its nanny ended it.
Listener = Callable[[str, int, "str | None"], object]


class WorkerExits:
    """Asks the nannies of workers that left. Used on the scheduler's event loop.

    Parameters
    ----------
    connection_args
        The scheduler's, for connections to nannies.
    listener
        Called with each exit.
    guard
        Handles errors.
    """

    def __init__(self, connection_args: Any, listener: Listener, guard: HookGuard) -> None:
        self._connection_args = connection_args
        self._listener, self._guard = listener, guard
        self._loop = asyncio.get_running_loop()
        #: By worker: address of its nanny, and its process.
        self._nannies: dict[str, tuple[str, int]] = {}
        self._asking: set[asyncio.Task[None]] = set()

    def joined(self, address: str, state: Any) -> None:
        """Note who a worker's nanny is."""
        if state.nanny and state.pid:
            self._nannies[address] = str(state.nanny), int(state.pid)

    def left(self, address: str) -> None:
        """Ask the nanny of a worker that left; soon, for it does not know at once."""
        known = self._nannies.pop(address, None)
        if known is not None:
            task = self._loop.create_task(self._ask(address, *known))
            self._asking.add(task)
            task.add_done_callback(self._asking.discard)

    async def _ask(self, address: str, nanny: str, pid: int) -> None:
        try:
            for _ in range(_TRIES):
                await asyncio.sleep(_PAUSE)
                found = exit_in(await within(_LIMIT, self._logs(nanny)), pid)
                if found is not None:
                    self._listener(address, *found)
                    return
        except (OSError, asyncio.TimeoutError):
            return  # the nanny has gone as well
        except Exception:
            self._guard.caught("how a worker's process ended")

    async def _logs(self, nanny: str) -> list[str]:
        async with rpc(nanny, connection_args=self._connection_args) as server:
            return [str(text) for _, text in await server.get_logs(n=_LAST)]

    async def finish(self) -> None:
        """Wait for answers, for some seconds: a run often ends as a worker's death ends it."""
        if self._asking:
            await asyncio.wait(self._asking, timeout=_END)

    def stop(self) -> None:
        """Ask no more. Called in any thread."""
        for task in list(self._asking):
            with contextlib.suppress(RuntimeError):  # the event loop has ended, and the task too
                self._loop.call_soon_threadsafe(task.cancel)


def exit_in(logs: list[str], pid: int) -> tuple[int, str | None] | None:
    """Find in a nanny's log, the newest first, how a process ended and why the nanny ended it."""
    for text in logs:
        killed = re.search(rf"Worker process {pid} was killed by signal (\d+)", text)
        ended = re.search(rf"Worker process {pid} exited with status (\d+)", text)
        if killed or ended:
            code = -int(killed[1]) if killed else int(ended[1]) if ended else 0
            return code, _reason(logs, pid)
    return None


def _reason(logs: list[str], pid: int) -> str | None:
    """Return what a nanny says as it ends a process: that it takes too much memory."""
    for text in logs:
        found = re.search(rf"Worker \S+ \(pid={pid}\) (exceeded .*)", text)
        if found:
            return found[1][:_LONGEST]
    return None
