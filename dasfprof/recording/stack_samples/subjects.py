"""What the sampler looks at: the threads of a worker's tasks, event loops, a client's thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import time
from typing import Any, Protocol

from dasfprof.recording.dask_internals.client_phases import phase
from dasfprof.recording.dask_internals.event_loop import last_turn, turn_interval
from dasfprof.recording.dask_internals.task_threads import first_functions, task_threads
from dasfprof.recording.notes.stacks import UNKNOWN_STACK, StackRows
from dasfprof.recording.stack_samples.kernel import Look
from dasfprof.recording.stack_samples.stacks import Seen, StackReader

#: Seconds without a turn, beyond what Dask's own clock of it takes, from which a loop is blocked.
BLOCKED = 0.05

#: Takes a row.
Write = Callable[[tuple[Any, ...]], None]


class Subject(Protocol):
    """Something whose stacks are sampled."""

    #: Reads its stacks.
    stacks: StackReader

    def threads(self) -> dict[int, Any]:
        """Return the threads to look at now, by identity, and what each does: objects.

        A thread is left out if this is another object after the look than it was before.
        """
        ...

    def write(self, now: float, interval: float, doing: Any, seen: Seen, look: Look) -> None:
        """Write a sample."""
        ...


class TaskThreads:
    """The threads of a worker's tasks.

    Parameters
    ----------
    worker
        The worker; only read.
    stacks
        Of the file.
    write
        Takes rows of `TASK_SAMPLE`.
    """

    def __init__(self, worker: Any, stacks: StackRows, write: Write) -> None:
        self._worker = worker
        self._write = write
        self.stacks = StackReader(stacks, first_functions())

    def threads(self) -> dict[int, Any]:
        """Return those that run a task, each with its key."""
        return task_threads(self._worker)

    def write(self, now: float, interval: float, doing: Any, seen: Seen, look: Look) -> None:
        """Write a sample of a task."""
        self._write((now, look.thread, seen[0], look.activity, interval, look.cpu, look.run_queue))


class EventLoop:
    """The thread of an event loop, while that does not turn. Made on that loop.

    Parameters
    ----------
    server
        The worker or scheduler of the loop; only read.
    stacks
        Of the file.
    write
        Takes rows of `LOOP_SAMPLE`.
    """

    def __init__(self, server: Any, stacks: StackRows, write: Write) -> None:
        self._server = server
        self._write = write
        self._thread = threading.get_ident()
        self._limit = BLOCKED + turn_interval()
        #: When the loop last turned, while it is blocked.
        self._since: float | None = None
        self.stacks = StackReader(stacks)

    def threads(self) -> dict[int, Any]:
        """Return the loop's if it is blocked, with the time of its last turn."""
        turned = last_turn(self._server)
        if turned is None:
            return {}
        if self._since is not None and turned != self._since:
            ended = (time(), self._since, turned, UNKNOWN_STACK, None, 0.0, None, None)
            self._since = None
            self._write(ended)
        return {self._thread: turned} if time() - turned > self._limit else {}

    def write(self, now: float, interval: float, doing: Any, seen: Seen, look: Look) -> None:
        """Write a sample of the blocked loop."""
        self._since = doing
        facts = look.activity, interval, look.cpu, look.run_queue
        self._write((now, doing, None, seen[0], *facts))


class ClientThread:
    """The main thread of a client's process.

    Parameters
    ----------
    stacks
        Of the file.
    write
        Takes rows of `CLIENT_SAMPLE`.
    """

    def __init__(self, stacks: StackRows, write: Write) -> None:
        self._write = write
        self.stacks = StackReader(stacks, describe=phase)

    def threads(self) -> dict[int, Any]:
        """Return the main thread."""
        main = threading.main_thread()
        return {main.ident: main} if main.ident is not None and main.is_alive() else {}

    def write(self, now: float, interval: float, doing: Any, seen: Seen, look: Look) -> None:
        """Write a sample of the program."""
        facts = look.activity, interval, look.cpu, look.run_queue
        self._write((now, seen[1], seen[0], *facts))
