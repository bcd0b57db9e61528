"""What a worker's process spends on unpickling tasks, and on serialising results that others want.

Dask keeps neither: a task's function and arguments are unpickled while the scheduler's message is
read, on the event loop or, of more than 10 MB, in a thread beside it; a result is serialised for
whoever asks for it. Each message is timed, and a task by itself only once a message of several was
slow, so that brief tasks pay nothing. Where a process has several workers tasks are left out: a
message does not say whose it is.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from time import perf_counter
from typing import Any

from dask.utils import key_split
from distributed import protocol

from dasfprof.recording.dask_internals import names
from dasfprof.recording.dask_internals.patch import Entries, Hook, Patch, SharedListeners
from dasfprof.recording.guard import HookGuard
from dasfprof.schema.events import Schema
from dasfprof.schema.tasks import RESULT_SERIALISED, TASK_UNPICKLED
from dasfprof.system import thread_usage

#: Seconds of CPU from which it is told what was spent.
LEAST = 0.001
#: Seconds from which it is told though it took little CPU: for less than that, a loop may just have
#: waited for the interpreter's lock. Waits for a core are left out, where it did not wait besides.
_LONG = 0.02
#: What a task among several of a message may take without being remarkable, seconds.
_USUAL = 0.0001
#: The most objects of a thread that are known to have taken long.
_MOST = 1000

#: Takes an event's columns by name.
Tell = Callable[[dict[str, Any]], object]


def observe(
    worker: Any,
    write: Callable[[Schema, dict[str, Any]], object],
    guard: HookGuard,
    undo: list[Callable[[], object]],
) -> None:
    """Write a row for each task that took long to unpickle, and each result to serialise.

    Parameters
    ----------
    worker
        The worker.
    write
        Takes a kind of event and its columns; from any thread.
    guard
        Handles errors.
    undo
        Gets what ends it.
    """
    if names.UNPICKLING.exist():
        reader = _Reader(worker.address, partial(write, TASK_UNPICKLED), guard)
        undo.append(_unpickling.add(reader))
    if can_observe(worker):
        sending = _Sending(worker, partial(write, RESULT_SERIALISED), guard)
        undo.append(Patch(Entries(worker.handlers), "get_data", sending.wrap).remove)
        undo.append(sending.end)


def can_observe(worker: Any) -> bool:
    """Return whether unpickling and serialising are told of this worker."""
    handlers = getattr(worker, "handlers", None)
    has_handler = isinstance(handlers, dict) and "get_data" in handlers
    return has_handler and names.UNPICKLING.exist() and _meter() is not None


def _meter() -> Any:
    return names.RECEIVING.find("context_meter") if names.SERIALISING.exist() else None


# --- Tasks: reading the scheduler's messages ------------------------------------------------------


@dataclass(frozen=True)
class _Reader:
    """A worker of this process, of a run."""

    address: str
    tell: Tell
    guard: HookGuard


#: A thread's seconds of CPU, and how often it went to sleep.
_Usage = tuple[float, float]


@dataclass(frozen=True)
class _Spent:
    """Seconds, those of CPU among them (no more than these), and bytes that were read."""

    seconds: float
    cpu: float
    size: float = 0.0

    @classmethod
    def of(cls, seconds: float, before: _Usage, after: _Usage, size: float = 0.0) -> _Spent:
        """Return what was spent between two readings: who never slept had no core for the rest."""
        cpu = after[0] - before[0]
        return cls(seconds if after[1] != before[1] else min(seconds, cpu), cpu, size)

    def exceeds(self, usual: float = 0.0) -> bool:
        """Return whether it is worth being told."""
        return min(self.cpu, self.seconds) - usual >= LEAST or self.seconds - usual >= _LONG

    def plus(self, other: _Spent) -> _Spent:
        return _Spent(self.seconds + other.seconds, self.cpu + other.cpu)

    def part(self, parts: int) -> _Spent:
        return _Spent(self.seconds / parts, self.cpu / parts, self.size / parts)


class _Unpickling:
    """Times the messages of this process for its readers, and each object once one was slow."""

    def __init__(self) -> None:
        #: Whether each object is timed by itself.
        self._by_object = False
        self._readers: SharedListeners[_Reader] = SharedListeners(self._hooks, self._removed)
        #: Lets a reader know from now on; returns what ends that.
        self.add = self._readers.add
        #: Of a thread: begin and identity of each object that took long, and what it took.
        self._own = threading.local()

    def _hooks(self) -> Iterator[Hook]:
        yield protocol, "loads", partial(self._timing, self._see)
        if self._by_object:
            yield protocol.pickle, "loads", partial(self._timing, self._keep)

    def _removed(self) -> None:
        self._by_object = False

    def _timing(self, tell: Callable[..., None], original: Any, patch: Patch) -> Any:
        def loads(*args: Any, **kwargs: Any) -> Any:
            began, before = perf_counter(), thread_usage()
            found = original(*args, **kwargs)
            seconds = perf_counter() - began
            if seconds >= LEAST and patch.active:
                try:
                    spent = _Spent.of(seconds, before, thread_usage())
                    tell(found, (*args, *kwargs.values()), began, spent)
                except Exception:
                    for reader in self._readers.all:
                        reader.guard.caught("the unpickling of tasks")
            return found

        return loads

    def _keep(self, found: Any, given: tuple[Any, ...], began: float, spent: _Spent) -> None:
        """Keep what a slow object of a message took: its pickle, and buffers."""
        if not hasattr(self._own, "objects"):
            self._own.objects = deque(maxlen=_MOST)
        size = sum(map(_size, (given[:1], *given[1:])))
        self._own.objects.append((began, id(found), replace(spent, size=size)))

    def _see(self, message: Any, given: tuple[Any, ...], began: float, spent: _Spent) -> None:
        """Hand on what the tasks of a slow message took."""
        if type(message) is not tuple:  # the scheduler's are lists, which are read as tuples
            return
        tasks = [one for one in message if type(one) is dict and one.get("op") == "compute-task"]
        whole = replace(spent, size=_size(given[0]))
        if len(tasks) == 1:
            self._tell(tasks, whole)
        elif tasks and self._by_object:
            kept = getattr(self._own, "objects", ())
            took = {identity: its for at, identity, its in kept if at >= began}
            for task in tasks:
                if id(task["run_spec"]) in took:
                    self._tell([task], took[id(task["run_spec"])])
        elif tasks and whole.exceeds(_USUAL * len(tasks)):
            self._by_object = True
            self._readers.place_more()
            if len({key_split(task["key"]) for task in tasks}) == 1:
                self._tell(tasks, whole.part(len(tasks)))

    def _tell(self, tasks: Sequence[dict[str, Any]], each: _Spent) -> None:
        readers = self._readers.all
        if not each.exceeds() or len({reader.address for reader in readers}) != 1:
            return
        for task in tasks:
            facts = {"key": task["key"], "run_id": task.get("run_id", -1)}
            facts |= {"size": round(each.size), "seconds": each.seconds, "cpu": each.cpu}
            for reader in readers:
                reader.tell(facts)


_unpickling = _Unpickling()


def _size(frames: Any) -> int:
    return sum(memoryview(frame).nbytes for frame in frames)


# --- Results: answering those who ask for them ----------------------------------------------------


class _Sending:
    """Times what a worker serialises for those who ask."""

    def __init__(self, worker: Any, tell: Tell, guard: HookGuard) -> None:
        #: The worker's tasks, and who is told; None after the end.
        self._hears: tuple[Any, Tell, HookGuard] | None = (worker.state.tasks, tell, guard)

    def end(self) -> None:
        """Let go of the recording: Dask keeps the handler that a connection asked for last."""
        self._hears = None

    def wrap(self, original: Any, patch: Patch) -> Any:
        meter = _meter()

        async def get_data(*args: Any, **kwargs: Any) -> Any:
            if not patch.active:
                return await original(*args, **kwargs)
            took: list[_Spent] = []
            #: What each thread had used when it was last known to do something else.
            known = {threading.get_ident(): thread_usage()}

            def count(label: Any, seconds: float, unit: str) -> None:
                if unit == "seconds" and label in ("serialize", "compress"):
                    thread, usage = threading.get_ident(), thread_usage()
                    # Dask takes large ones to another thread, of which it is not known.
                    spent = _Spent.of(seconds, known.get(thread, (-inf, -inf)), usage)
                    known[thread] = usage
                    if label == "serialize":
                        took.append(spent)
                    elif took:
                        took[-1] = took[-1].plus(spent)

            with meter.add_callback(count):
                answer = await original(*args, **kwargs)
            if (hears := self._hears) is not None and any(map(_Spent.exceeds, took)):
                tasks, tell, guard = hears
                try:
                    keys = kwargs["keys"] if "keys" in kwargs else args[1]
                    for facts in self._slow(tasks, keys, took):
                        tell({**facts, "target": kwargs.get("who")})
                except Exception:
                    guard.caught("the serialising of results")
            return answer

        return get_data

    @staticmethod
    def _slow(tasks: Any, keys: Iterable[Any], took: list[_Spent]) -> Iterator[dict[str, Any]]:
        """Yield what is to be told of slow results, which came in the order of the keys."""
        known = [task for key in dict.fromkeys(keys) if (task := tasks.get(key)) is not None]
        if len(known) != len(took):  # one is gone, or all were serialised a second time
            return
        for task, spent in zip(known, took, strict=True):
            if spent.exceeds():
                facts = {"key": task.key, "run_id": task.run_id}
                yield {**facts, "size": task.nbytes or 0, "seconds": spent.seconds}
