"""Time that a worker's process spends unpickling tasks, and serializing results for others.

Dask records neither. A task's function and arguments are unpickled while the scheduler's message is
read, on the event loop or, above 10 MB, in another thread. A result is serialized when another
process requests it. Each message is timed. Tasks within a message are timed one by one only after a
message of several tasks was slow, so brief tasks cost nothing more. If a process has several
workers, tasks are left out, because a message does not say to which worker it belongs.
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

#: Threshold (CPU seconds) from which unpickling or serializing is recorded.
LEAST = 0.001
#: Threshold (seconds) from which it is recorded although it took little CPU. Below it, a loop may
#: just have waited for the GIL. Time without sleeping and without CPU, a wait for CPU, is left out.
_LONG = 0.02
#: Threshold (seconds): a task within a message of several that takes less is unremarkable.
_USUAL = 0.0001
#: Maximum number of slow objects per thread that are remembered.
_MOST = 1000

#: Takes an event's columns by name.
Report = Callable[[dict[str, Any]], object]
#: CPU seconds of a thread, and how often it went to sleep.
_Usage = tuple[float, float]


def observe(
    worker: Any,
    write: Callable[[Schema, dict[str, Any]], object],
    guard: HookGuard,
    undo: list[Callable[[], object]],
) -> None:
    """Write a row for each task that was slow to unpickle, and each result slow to serialize.

    Parameters
    ----------
    worker
        The worker.
    write
        Takes a kind of event and its columns, from any thread.
    guard
        Handles errors.
    undo
        Receives what stops the observation.
    """
    if names.UNPICKLING.exist():
        reader = _Reader(worker.address, partial(write, TASK_UNPICKLED), guard)
        undo.append(_unpickling.add(reader))
    if can_observe(worker):
        # Emptied at the end, because Dask keeps the handler that a connection called last.
        listener = [(worker.state.tasks, partial(write, RESULT_SERIALISED), guard)]
        wrap = partial(_timing_results, listener)
        undo.append(Patch(Entries(worker.handlers), "get_data", wrap).remove)
        undo.append(listener.clear)


def can_observe(worker: Any) -> bool:
    """Return whether both unpickling and serializing are recorded on this worker."""
    handlers = getattr(worker, "handlers", None)
    has_handler = isinstance(handlers, dict) and "get_data" in handlers
    has_names = names.UNPICKLING.exist() and names.SERIALISING.exist()
    return has_handler and has_names and names.RECEIVING.find("context_meter") is not None


@dataclass(frozen=True)
class _Spent:
    """Seconds, the CPU seconds among them, and the bytes that were read."""

    seconds: float
    cpu: float
    size: float = 0.0

    @classmethod
    def between(cls, seconds: float, before: _Usage, after: _Usage) -> _Spent:
        """Return the time between two readings, without waits for CPU if it never slept."""
        cpu = after[0] - before[0]
        return cls(seconds if after[1] != before[1] else min(seconds, cpu), cpu)

    def is_slow(self, usual: float = 0.0) -> bool:
        """Return whether it is worth recording, given the usual seconds."""
        return min(self.cpu, self.seconds) - usual >= LEAST or self.seconds - usual >= _LONG


# --- Tasks: reading the scheduler's messages ------------------------------------------------------


@dataclass(frozen=True)
class _Reader:
    """A worker of this process, in one run."""

    address: str
    report: Report
    guard: HookGuard


class _Unpickling:
    """Times the messages of this process for its readers, and each object once one was slow."""

    def __init__(self) -> None:
        #: Whether each object is timed by itself.
        self._by_object = False
        self._readers: SharedListeners[_Reader] = SharedListeners(self._hooks, self._removed)
        #: Adds a reader, and returns what removes it.
        self.add = self._readers.add
        #: Per thread: start and identity of each slow object, and what it took.
        self._local = threading.local()

    def _hooks(self) -> Iterator[Hook]:
        yield protocol, "loads", partial(self._timing, self._record_message)
        if self._by_object:
            yield protocol.pickle, "loads", partial(self._timing, self._record_object)

    def _removed(self) -> None:
        self._by_object = False

    def _timing(self, record: Callable[..., None], original: Any, patch: Patch) -> Any:
        def loads(*args: Any, **kwargs: Any) -> Any:
            began, before = perf_counter(), thread_usage()
            loaded = original(*args, **kwargs)
            seconds = perf_counter() - began
            if seconds >= LEAST and patch.active:
                try:
                    spent = _Spent.between(seconds, before, thread_usage())
                    record(loaded, (*args, *kwargs.values()), began, spent)
                except Exception:
                    for reader in self._readers.all:
                        reader.guard.caught("the unpickling of tasks")
            return loaded

        return loads

    def _record_object(
        self, loaded: Any, args: tuple[Any, ...], began: float, spent: _Spent
    ) -> None:
        """Remember a slow object of a message, given its pickle and buffers."""
        if not hasattr(self._local, "objects"):
            self._local.objects = deque(maxlen=_MOST)
        size = sum(map(_size, (args[:1], *args[1:])))
        self._local.objects.append((began, id(loaded), replace(spent, size=size)))

    def _record_message(
        self, message: Any, args: tuple[Any, ...], began: float, spent: _Spent
    ) -> None:
        """Report the tasks of a slow message."""
        if type(message) is not tuple:  # The scheduler's messages are lists, read as tuples.
            return
        tasks = [
            part for part in message if type(part) is dict and part.get("op") == "compute-task"
        ]
        spent = replace(spent, size=_size(args[0]))
        if len(tasks) == 1:
            self._report(tasks, spent)
        elif tasks and self._by_object:
            objects = getattr(self._local, "objects", ())
            by_identity = {identity: its for start, identity, its in objects if start >= began}
            for task in tasks:
                if id(task["run_spec"]) in by_identity:
                    self._report([task], by_identity[id(task["run_spec"])])
        elif tasks and spent.is_slow(_USUAL * len(tasks)):
            self._by_object = True
            self._readers.place_more()
            if len({key_split(task["key"]) for task in tasks}) == 1:
                each = (value / len(tasks) for value in (spent.seconds, spent.cpu, spent.size))
                self._report(tasks, _Spent(*each))

    def _report(self, tasks: Sequence[dict[str, Any]], each: _Spent) -> None:
        readers = self._readers.all
        if not each.is_slow() or len({reader.address for reader in readers}) != 1:
            return
        for task in tasks:
            facts = {"key": task["key"], "run_id": task.get("run_id", -1)}
            facts |= {"size": round(each.size), "seconds": each.seconds, "cpu": each.cpu}
            for reader in readers:
                reader.report(facts)


_unpickling = _Unpickling()


def _size(frames: Any) -> int:
    return sum(memoryview(frame).nbytes for frame in frames)


# --- Results: answering requests ------------------------------------------------------------------


def _timing_results(
    listener: Sequence[tuple[Any, Report, HookGuard]], original: Any, patch: Patch
) -> Any:
    """Return a wrapper of a worker's handler that serializes results.

    The listener has the worker's tasks and what takes the rows, or is empty after the end.
    """
    meter = names.RECEIVING.find("context_meter")

    async def get_data(*args: Any, **kwargs: Any) -> Any:
        if not patch.active:
            return await original(*args, **kwargs)
        results: list[_Spent] = []
        # Usage of each thread when it was last known to do something else.
        known = {threading.get_ident(): thread_usage()}

        def count(label: Any, seconds: float, unit: str) -> None:
            if unit == "seconds" and label in ("serialize", "compress"):
                thread, usage = threading.get_ident(), thread_usage()
                # Dask serializes large results in another thread, whose usage before is unknown.
                spent = _Spent.between(seconds, known.get(thread, (-inf, -inf)), usage)
                known[thread] = usage
                if label == "serialize":
                    results.append(spent)
                elif results:
                    last = results[-1]
                    results[-1] = _Spent(last.seconds + spent.seconds, last.cpu + spent.cpu)

        with meter.add_callback(count):
            answer = await original(*args, **kwargs)
        for tasks, report, guard in listener if any(map(_Spent.is_slow, results)) else ():
            with guard.catching("the serializing of results"):
                keys = kwargs["keys"] if "keys" in kwargs else args[1]
                for facts in _slow_results(tasks, keys, results):
                    report({**facts, "target": kwargs.get("who")})
        return answer

    return get_data


def _slow_results(
    tasks: Any, keys: Iterable[Any], results: list[_Spent]
) -> Iterator[dict[str, Any]]:
    """Yield facts about slow results, which were serialized in the order of the keys."""
    known = [task for key in dict.fromkeys(keys) if (task := tasks.get(key)) is not None]
    # The numbers differ if a task is gone, or all results were serialized a second time.
    for task, spent in zip(known, results, strict=True) if len(known) == len(results) else ():
        if spent.is_slow():
            facts = {"key": task.key, "run_id": task.run_id}
            yield {**facts, "size": task.nbytes or 0, "seconds": spent.seconds}
