"""Recording of the time that a worker spends serializing results for other processes.

Dask does not record this time. A result is serialized when another process requests it: on the
event loop or, if it has more than 10 MB, in another thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any

from dasfprof.recording.dask_internals import names, worker_calls
from dasfprof.recording.dask_internals.patch import Entries, Patch
from dasfprof.recording.guard import HookGuard
from dasfprof.schema.events import Schema
from dasfprof.schema.tasks import RESULT_SERIALISED
from dasfprof.system import thread_usage

#: Threshold (CPU seconds): serializing is recorded if it took at least this CPU time.
LEAST = 0.001
#: Threshold (seconds): serializing is also recorded if it took at least this time, even with little
#: CPU time. If it took less, the event loop may only have waited for the GIL. If the thread did not
#: sleep, the time without CPU was a wait for CPU, which is left out.
_LONG = 0.02

#: Called with the columns of an event, by name.
Report = Callable[[dict[str, Any]], object]
#: The CPU seconds of a thread, and the number of times at which the thread went to sleep.
_Usage = tuple[float, float]


def observe(
    worker: Any,
    write: Callable[[Schema, dict[str, Any]], object],
    guard: HookGuard,
    undo: list[Callable[[], object]],
) -> None:
    """Start to write a row for each result that is slow to serialize.

    Parameters
    ----------
    write
        Called with the schema of an event and the event's columns, in any thread.
    undo
        Receives the functions that stop the observation.
    """
    if can_observe(worker):
        # The list is emptied at the end, because Dask's connections keep a reference to the handler
        # that they called last.
        listener = [(worker.state.tasks, partial(write, RESULT_SERIALISED), guard)]
        wrap = partial(_timing_results, listener)
        undo.append(Patch(Entries(worker.handlers), "get_data", wrap).remove)
        undo.append(listener.clear)


def can_observe(worker: Any) -> bool:
    """Return whether serializing can be recorded on this worker."""
    has_names = names.SERIALISING.exist() and names.RECEIVING.find("context_meter") is not None
    return has_names and worker_calls.can_observe(worker, "get_data")


@dataclass(frozen=True)
class _Spent:
    """The seconds, and the CPU seconds, that serializing a result took."""

    seconds: float
    cpu: float

    @classmethod
    def between(cls, seconds: float, before: _Usage, after: _Usage) -> _Spent:
        """Return the seconds and the CPU seconds between two readings of a thread's usage.

        `seconds` is the elapsed time as Dask measures it.
        """
        cpu = after[0] - before[0]
        # If the thread did not sleep, it only waited for a core in the time beyond its CPU seconds.
        return cls(seconds if after[1] != before[1] else min(seconds, cpu), cpu)

    def is_slow(self) -> bool:
        """Return whether serializing took so long that it is recorded."""
        return min(self.cpu, self.seconds) >= LEAST or self.seconds >= _LONG


def _timing_results(
    listener: Sequence[tuple[Any, Report, HookGuard]], original: Any, patch: Patch
) -> Any:
    """Return a wrapper of the worker's handler that serializes results.

    `listener` has the worker's tasks, the function that writes rows, and the guard. It is empty
    after the observation has stopped.
    """
    meter = names.RECEIVING.find("context_meter")

    async def get_data(*args: Any, **kwargs: Any) -> Any:
        if not patch.active:
            return await original(*args, **kwargs)
        results: list[_Spent] = []
        # The usage of each thread at the last time when it was known not to serialize.
        known = {threading.get_ident(): thread_usage()}

        def count(label: Any, seconds: float, unit: str) -> None:
            if unit == "seconds" and label in ("serialize", "compress"):
                thread, usage = threading.get_ident(), thread_usage()
                # Dask serializes large results in another thread. The usage of that thread before
                # serializing is unknown.
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
    """Yield facts about each result that was slow to serialize.

    `results` has the times of the results in the order of the keys.
    """
    known = [task for key in dict.fromkeys(keys) if (task := tasks.get(key)) is not None]
    # The lengths differ if a task is gone, or if all results were serialized a second time.
    for task, spent in zip(known, results, strict=True) if len(known) == len(results) else ():
        if spent.is_slow():
            facts = {"key": task.key, "run_id": task.run_id}
            yield {**facts, "size": task.nbytes or 0, "seconds": spent.seconds}
