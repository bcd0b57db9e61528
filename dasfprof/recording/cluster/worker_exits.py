"""Reasons why workers leave the cluster.

`WorkerExits` finds out how the processes of workers ended. `ClusterChanges` records requests such
as restarts and retirements. `Absence` ends a run after its client has died.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import Callable
from time import time
from typing import Any

from dasfprof.database.reader import CLIENT_GONE
from dasfprof.database.writer import TraceWriter
from dasfprof.recording.cluster.clients import end_run, run_in_background
from dasfprof.recording.cluster.program import TASK_CLIENT_PREFIX
from dasfprof.recording.dask_internals.inspection.looks import request, within
from dasfprof.recording.dask_internals.undocumented import observe_handler
from dasfprof.recording.guard import HookGuard
from dasfprof.recording.settings import RunSettings
from dasfprof.text import format_duration

# `WorkerExits`: reads from the logs of nannies how the processes of workers ended. Only a nanny
# sees the exit code of its worker's process. The code stays unknown if a worker has no nanny, or if
# the nanny's log omits messages of level INFO.

#: Seconds between two requests to a nanny, maximum number of requests, and time limit for each
#: answer (seconds).
_PAUSE, _TRIES, _LIMIT = 0.5, 10, 5.0
#: Maximum seconds for which the end of a recording waits for answers.
_END = 2.0
#: Maximum number of log messages that are read, and maximum number of characters that are stored of
#: a message.
_MESSAGES, _LONGEST = 200, 300

#: Called with a worker's address, its exit code (negative for a signal, None if unknown), and the
#: reason why its nanny ended it.
Listener = Callable[[str, "int | None", "str | None"], object]


class WorkerExits:
    """Asks the nannies of workers that left how the workers' processes ended.

    Used on the scheduler's event loop.

    Parameters
    ----------
    connection_args
        The scheduler's connection arguments, for connections to nannies.
    listener
        Called for each exit with the worker's address, the exit code, and the reason why the nanny
        ended the worker. The code or the reason is None if it is unknown.
    """

    def __init__(self, connection_args: Any, listener: Listener, guard: HookGuard) -> None:
        self._connection_args = connection_args
        self._listener, self._guard = listener, guard
        self._loop = asyncio.get_running_loop()
        #: For each worker address: the address of its nanny, and the worker's process id.
        self._nannies: dict[str, tuple[str, int]] = {}
        self._asking: set[asyncio.Task[None]] = set()

    def joined(self, address: str, state: Any) -> None:
        """Store the address of a new worker's nanny."""
        if state.nanny and state.pid:
            self._nannies[address] = str(state.nanny), int(state.pid)

    def left(self, address: str) -> None:
        """Start asking the nanny of a worker that left how the worker's process ended."""
        known = self._nannies.pop(address, None)
        if known is not None:
            task = self._loop.create_task(self._ask(address, *known))
            self._asking.add(task)
            task.add_done_callback(self._asking.discard)

    async def _ask(self, address: str, nanny: str, pid: int) -> None:
        reason = None
        try:
            # A nanny logs the reason before it ends its worker. If the program ends, the nanny
            # itself ends soon after that.
            for _ in range(_TRIES):
                call = request(nanny, self._connection_args, "get_logs", n=_MESSAGES)
                logs = [str(text) for _, text in await within(_LIMIT, call)]
                code, latest_reason = exit_in(logs, pid)
                reason = reason or latest_reason
                if code is not None:
                    self._listener(address, code, reason)
                    return
                await asyncio.sleep(_PAUSE)
        except (OSError, asyncio.TimeoutError):
            if reason is not None:  # The nanny has ended as well.
                self._listener(address, None, reason)
        except Exception:
            self._guard.caught("how a worker's process ended")

    async def finish(self) -> None:
        """Wait for at most `_END` seconds until the nannies that were asked have answered."""
        # A run often ends soon after a worker's death.
        if self._asking:
            await asyncio.wait(self._asking, timeout=_END)

    def stop(self) -> None:
        """Stop asking. This can be called in any thread."""
        for task in list(self._asking):
            with contextlib.suppress(RuntimeError):  # The event loop has ended, and the task too.
                self._loop.call_soon_threadsafe(task.cancel)


def exit_in(logs: list[str], pid: int) -> tuple[int | None, str | None]:
    """Read a process's exit code, and why its nanny ended it, from the messages in the nanny's log.

    Each of the two is None if the log does not contain it. The code is negative if a signal ended
    the process.
    """
    text = "\n".join(logs)
    ended = re.search(rf"Worker process {pid} (was killed by|exited with) \w+ (\d+)", text)
    # The only reason that nannies log is that the worker used too much memory.
    reason = re.search(rf"Worker \S+ \(pid={pid}\) (exceeded .*)", text)
    code = int(ended[2]) * (-1 if ended[1].startswith("was killed") else 1) if ended else None
    return code, reason[1][:_LONGEST] if reason else None


# `ClusterChanges`: reports restarts, retirements, pauses and removals of workers, cancelled tasks,
# and adaptive scaling. It reads the events that Dask's scheduler logs, and observes the requests of
# adaptive clusters to the scheduler.

#: Called with an action, the process that requested it, the workers' addresses, and a number. See
#: ``CLUSTER_CHANGE`` in the schema.
ChangeListener = Callable[[str, "str | None", list[str], "float | None"], object]

#: Prefixes of the ids of clients that do not belong to a program: clients inside tasks, and Dask's
#: client for `fire_and_forget`.
_NOBODY = (TASK_CLIENT_PREFIX, "fire-and-forget")
#: Prefix of the stimulus ids of a restart of all workers.
_RESTART = "client-restart"


class ClusterChanges:
    """Calls a listener for each change of the cluster. Used on the scheduler's event loop.

    Parameters
    ----------
    listener
        Called for each change with the action, the process that requested it, the addresses of the
        workers, and a number. See `CLUSTER_CHANGE` in the schema.
    """

    def __init__(self, scheduler: Any, listener: ChangeListener, guard: HookGuard) -> None:
        self._scheduler, self._report = scheduler, listener
        self._target: int | None = None
        #: Addresses of the workers that adaptive scaling wants to close.
        self._surplus: set[str] = set()
        #: Number of tasks that a restart cancelled before they were assigned to a worker.
        self._never_sent = 0
        self._restarting = False
        self._undo = (
            observe_handler(scheduler, "adaptive_target", self._wanted, guard),
            observe_handler(scheduler, "workers_to_close", self._wants_to_close, guard),
        )

    def stop(self) -> None:
        """Stop observing the requests of adaptive clusters."""
        for undo in self._undo:
            undo()

    def _wanted(self, target: Any, *_: object, **__: object) -> None:
        if target != self._target:
            self._target = target
            self._report("adapt", "adaptive", [], target)

    def _wants_to_close(self, names: Any, *_: object, **__: object) -> None:
        states = self._scheduler.workers.values()
        self._surplus.update(ws.address for ws in states if {ws.name, ws.address} & set(names))

    def never_sent(self, stimulus_id: str) -> None:
        """Count a task that a restart cancelled before it was assigned to a worker.

        Do nothing if `stimulus_id` is not that of a restart.
        """
        self._never_sent += stimulus_id.startswith(_RESTART)

    def restart(self) -> None:
        """Report a restart of all workers, whose tasks Dask has already cancelled."""
        clients = [name for name in self._scheduler.clients if not name.startswith(_NOBODY)]
        who = clients[0] if len(clients) == 1 else None
        self._report("restart", who, list(self._scheduler.workers), self._never_sent)
        self._never_sent, self._restarting = 0, True

    def logged(self, topic: str, event: dict[str, Any]) -> None:
        """Report an event that the scheduler logs under `topic`, if it changes the cluster."""
        action, workers = event.get("action"), list(event.get("workers") or ())
        if action == "worker-ttl-timed-out":
            for address in workers:
                silent = time() - self._scheduler.workers[address].last_seen
                self._report("worker-ttl", "scheduler", [address], silent)
        elif action == "cancel":
            self._report("cancel", topic, [], event.get("count"))
        elif action == "worker-status-change":
            if event.get("status") == "paused":
                self._report("pause", "worker", [topic], None)
            elif event.get("prev-status") == "paused":
                self._report("resume", "worker", [topic], None)
        elif action == "retire-workers":
            retired = list(event.get("retired") or ())
            adaptive = bool(retired) and self._surplus.issuperset(retired)
            self._report("retire", "adaptive" if adaptive else None, retired, None)
        elif action == "restart-workers" and topic == "all" and event.get("client"):
            # This is a restart of some workers. `restart` has already reported a restart of all.
            if not self._restarting:
                self._report("restart", event["client"], workers, 0)
            self._restarting = False


logger = logging.getLogger(__name__)

#: Number of equal steps into which `orphan_timeout` is divided.
_STEPS = 20


class Absence:
    """Ends a run if its client has been gone for `orphan_timeout` seconds.

    Used on the scheduler's event loop. The client may close while its process continues with other
    clients. The process then reports at intervals that it is alive, which restarts the timeout
    (`reset`).

    Parameters
    ----------
    settings
        The settings of the run. A run that no client registered ends with its cluster.
    """

    def __init__(self, settings: RunSettings) -> None:
        self._settings = settings
        # While the event loop is blocked, no client can connect again. Therefore the timeout is
        # divided into steps, and a block counts as at most one step.
        self._steps_left = _STEPS
        #: While the client is gone: the time when it left (Unix seconds), and the timer of the next
        #: step.
        self._since = 0.0
        self._next: asyncio.TimerHandle | None = None
        self._stopped = False

    def begin(self, scheduler: Any, writer: TraceWriter, guard: HookGuard) -> None:
        """Start watching. The client may already have left."""
        self._scheduler, self._writer, self._guard = scheduler, writer, guard
        if self._settings.client not in scheduler.clients:
            self.left(self._settings.client)

    def left(self, client: str) -> None:
        """Start the timeout, if the client that left the scheduler is the run's client."""
        if client and client == self._settings.client and self._next is None:
            self._since = time()
            self.reset()
            self._wait()

    def came(self, client: str) -> None:
        """Stop the timeout, if the client that connected is the run's client."""
        if client == self._settings.client and self._next is not None:
            self._next.cancel()
            self._next = None

    def reset(self) -> None:
        """Restart the timeout, because the client's process has reported that it is alive."""
        self._steps_left = _STEPS

    def stop(self) -> None:
        """Stop watching. This can be called in any thread."""
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
            run_in_background(self._end())

    async def _end(self) -> None:
        try:
            logger.warning(
                "the client of run %r has been gone for %s, so its recording ends",
                self._settings.name,
                format_duration(time() - self._since),
            )
            self._writer.ending = {"cause": CLIENT_GONE, "since": self._since}
            await end_run(self._settings, self._writer.ending, self._scheduler)
        except Exception:
            self._guard.caught("the end of a run without a client")
