"""NVTX ranges around the tasks of a process's workers.

Nsight assigns a kernel to the range that is open on the thread which launches it. So the thread
that runs the task pushes and pops the range: `TaskRanges` is an observer of tasks, see
`dasfprof.recording.dask_internals.task_functions`. Coroutines take turns on the event loop's
thread, where their ranges would overlap and not nest: they have start/end ranges, which belong to
the process.
"""

from __future__ import annotations

import colorsys
import functools
import threading
import zlib
from collections.abc import Callable
from typing import Any

from distributed import get_worker

from dasfprof.recording.dask_internals.task_functions import RUN_TASK, observe
from dasfprof.recording.guard import HookGuard

#: The most prefixes of a process with ranges of their own name. NVTX keeps each name forever, and
#: keys that users choose may all have different prefixes.
MAX_PREFIXES = 1000
#: The name of the ranges of all further prefixes.
OTHERS = "(other tasks)"

_MAX_LENGTH = 200

#: The prefixes that this process has passed to NVTX, in all its runs.
_named: set[str] = set()


class TaskRanges:
    """Opens and closes ranges around the tasks of the workers that were added.

    Parameters
    ----------
    domain
        An enabled `nvtx.Domain`.
    """

    def __init__(self, domain: Any) -> None:
        #: The guards of the plugins that annotate each worker, one for each run. Replaced as a
        #: whole, as the threads that run tasks read it without a lock.
        self.workers: dict[Any, tuple[HookGuard, ...]] = {}
        self._domain = domain
        # Attributes are reused with another payload each time, so each thread has its own.
        self._attributes = threading.local()

    def wrap(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that runs another, whose first argument is a task, in a range."""
        push, pop = self._domain.push_range, self._domain.pop_range

        @functools.wraps(run)
        def run_in_range(task: Any, /, *args: Any, **kwargs: Any) -> Any:
            guard, attributes = self._next(task)
            if guard is None or not _call(guard, push, attributes):
                return run(task, *args, **kwargs)
            try:
                return run(task, *args, **kwargs)
            finally:
                _call(guard, pop)

        return run_in_range

    def wrap_coroutine(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """Return a coroutine function that runs another, as `wrap` does, in a start/end range."""
        domain = self._domain

        @functools.wraps(run)
        async def run_in_range(task: Any, /, *args: Any, **kwargs: Any) -> Any:
            guard, attributes = self._next(task)
            identity: list[Any] = []
            if guard is not None:
                _call(guard, lambda: identity.append(domain.start_range(attributes)))
            try:
                return await run(task, *args, **kwargs)
            finally:
                if guard is not None and identity:
                    _call(guard, domain.end_range, identity[0])

        return run_in_range

    def _next(self, task: Any) -> tuple[HookGuard | None, Any]:
        """Return the guard and the range's attributes of a task; without a guard, no range."""
        try:
            worker = get_worker()
            guards = self.workers.get(worker)
        except ValueError:
            return None, None
        if not guards:
            return None, None
        try:
            state = worker.state.tasks[task.key]
            attributes = self._of_prefix(state.prefix)
            attributes.payload = state.run_id
            attributes.category = _category(state.annotations)
        except Exception:
            guards[0].caught(RUN_TASK)
            return None, None
        return guards[0], attributes

    def _of_prefix(self, prefix: str) -> Any:
        known: dict[str, Any] = self._attributes.__dict__
        attributes = known.get(prefix)
        if attributes is None:
            name = _name_of(prefix)
            attributes = known[name] = known.get(name) or self._domain.get_event_attributes(
                message=name[:_MAX_LENGTH].encode(errors="replace").decode(), color=color_of(name)
            )
        return attributes


def color_of(prefix: str) -> int:
    """Return a prefix's colour as 0xAARRGGBB, the same in every process and run."""
    hue = zlib.crc32(prefix.encode(errors="replace")) / 2**32
    red, green, blue = (round(255 * part) for part in colorsys.hsv_to_rgb(hue, 0.6, 0.9))
    return 0xFF << 24 | red << 16 | green << 8 | blue


def _name_of(prefix: str) -> str:
    """Return the name of a prefix's ranges: the prefix, or `OTHERS` if there are too many."""
    if prefix not in _named:
        if len(_named) >= MAX_PREFIXES:
            return OTHERS
        _named.add(prefix)
    return prefix


def _category(annotations: Any) -> int:
    category = annotations.get("nvtx_category", 0) if annotations else 0
    return category if isinstance(category, int) and 0 <= category < 2**32 else 0


def _call(guard: HookGuard, function: Callable[..., Any], *args: Any) -> bool:
    try:
        function(*args)
    except Exception:
        guard.caught(RUN_TASK)
        return False
    return True


# --- the ranges of this process ------------------------------------------------------------------

_lock = threading.Lock()
_ranges: TaskRanges | None = None
#: Functions that end the observation of each worker.
_leave: dict[Any, Callable[[], None]] = {}


def start(worker: Any, domain: Any, guard: HookGuard) -> bool:
    """Annotate the tasks of a worker; return whether this Dask has the functions to wrap."""
    global _ranges  # noqa: PLW0603  (NVTX's names are the process's)
    with _lock:
        ranges = _ranges or TaskRanges(domain)
        guards = ranges.workers.get(worker, ())
        if not guards:
            leave = observe(worker, ranges)
            if leave is None:
                return False
            _leave[worker] = leave
        _ranges = ranges
        ranges.workers[worker] = (*guards, guard)
    return True


def stop(worker: Any, guard: HookGuard) -> None:
    """Undo `start`, if it was called. Open ranges are still closed."""
    global _ranges  # noqa: PLW0603
    with _lock:
        if _ranges is None or guard not in _ranges.workers.get(worker, ()):
            return
        rest = tuple(other for other in _ranges.workers[worker] if other is not guard)
        if rest:
            _ranges.workers[worker] = rest
        else:
            del _ranges.workers[worker]
            _leave.pop(worker)()
        if not _ranges.workers:
            _ranges = None
