"""Time that a worker spends serializing results for other processes, which Dask does not record.

A result is serialized when another process requests it, on the event loop or, above 10 MB, in
another thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any

from dasfprof.recording.dask_internals import names
from dasfprof.recording.dask_internals.patch import Entries, Patch
from dasfprof.recording.guard import HookGuard
from dasfprof.schema.events import Schema
from dasfprof.schema.tasks import RESULT_SERIALISED
from dasfprof.system import thread_usage

#: Threshold (CPU seconds) from which serializing is recorded.
LEAST = 0.001
#: Threshold (seconds) from which it is recorded although it took little CPU. Below it, a loop may
#: just have waited for the GIL. Time without sleeping and without CPU, a wait for CPU, is left out.
_LONG = 0.02

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
    """Write a row for each result that was slow to serialize.

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
    if can_observe(worker):
        # Emptied at the end, because Dask keeps the handler that a connection called last.
        listener = [(worker.state.tasks, partial(write, RESULT_SERIALISED), guard)]
        wrap = partial(_timing_results, listener)
        undo.append(Patch(Entries(worker.handlers), "get_data", wrap).remove)
        undo.append(listener.clear)


def can_observe(worker: Any) -> bool:
    """Return whether serializing is recorded on this worker."""
    handlers = getattr(worker, "handlers", None)
    has_handler = isinstance(handlers, dict) and "get_data" in handlers
    has_names = names.SERIALISING.exist() and names.RECEIVING.find("context_meter") is not None
    return has_handler and has_names


@dataclass(frozen=True)
class _Spent:
    """Seconds, and the CPU seconds among them."""

    seconds: float
    cpu: float

    @classmethod
    def between(cls, seconds: float, before: _Usage, after: _Usage) -> _Spent:
        """Return the time between two readings, without waits for CPU if it never slept."""
        cpu = after[0] - before[0]
        return cls(seconds if after[1] != before[1] else min(seconds, cpu), cpu)

    def is_slow(self) -> bool:
        """Return whether it is worth recording."""
        return min(self.cpu, self.seconds) >= LEAST or self.seconds >= _LONG


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
