"""NVTX ranges around the tasks of a process's workers.

Nsight ties a kernel to the range that is open on the thread which launches it. So a range is
pushed and popped by the thread that runs the task: `TaskRanges` is an observer of tasks, see
`dasfprof.recording.dask_internals.task_functions`. Coroutines take turns on the thread of the
event loop, where their ranges would overlap and not nest: they have start/end ranges, which belong
to the process.
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

#: Prefixes with ranges of their own name, in a process. NVTX keeps each name for ever, and keys
#: that users choose may all have different prefixes.
MAX_PREFIXES = 1000
#: The name of the ranges of all further prefixes.
OTHERS = "(other tasks)"

_MAX_LENGTH = 200

#: The prefixes that this process has given to NVTX, in all its runs.
_named: set[str] = set()


class TaskRanges:
    """Opens and closes ranges around the tasks of those workers that were added.

    Parameters
    ----------
    domain
        An enabled `nvtx.Domain`.
    """

    def __init__(self, domain: Any) -> None:
        #: The guards of the plugins that annotate a worker, more than one if two runs do. Replaced
        #: as a whole: the threads that run tasks read it without a lock.
        self.workers: dict[Any, tuple[HookGuard, ...]] = {}
        self._domain = domain
        # Attributes are reused, with another payload each time; so each thread has its own.
        self._attributes = threading.local()

    def wrap(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """Put a push/pop range around a function whose first argument is the task."""
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
        """Put a start/end range around a coroutine function whose first argument is the task."""
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
        """Give the attributes of the range of a task that is about to run; no guard: no range."""
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
    """Give a prefix's colour as 0xAARRGGBB: the same in every process and run."""
    hue = zlib.crc32(prefix.encode(errors="replace")) / 2**32
    red, green, blue = (round(255 * part) for part in colorsys.hsv_to_rgb(hue, 0.6, 0.9))
    return 0xFF << 24 | red << 16 | green << 8 | blue


def _name_of(prefix: str) -> str:
    """Name the ranges of a prefix: as it is called, as long as there are not too many."""
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
#: What ends the observation of each worker.
_leave: dict[Any, Callable[[], None]] = {}


def start(worker: Any, domain: Any, guard: HookGuard) -> bool:
    """Annotate the tasks of a worker from now on; False if this Dask has no place to do it."""
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
    """Undo a `start`, if there was one. Ranges that are open are still closed."""
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
