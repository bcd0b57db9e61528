"""`DeviceMemoryProbe`: what dask-cuda's `DeviceHostFile` holds, and what it moves.

A worker with it keeps results in the memory of its device, and when that is full moves them to the
host's memory and from there to disk. Dask's own spill metrics do not include this. The held bytes
are read at each tick; the moves are counted and timed by wrapping the functions that move results,
so that nothing between two ticks is lost.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from time import perf_counter, time
from typing import Any

from dasfprof.recording.dask_internals.patch import Patch
from dasfprof.schema.declaration import Schema
from dasfprof.schema.gpus import DEVICE_MEMORY

Values = tuple[float, int, int]


class DeviceMemoryProbe:
    """Reads a worker whose data is a `DeviceHostFile`; has no rows for any other worker.

    Parameters
    ----------
    worker
        The Dask worker.
    """

    def __init__(self, worker: Any) -> None:
        data = worker.data
        # By its attributes, as dask-cuda cannot be imported without a GPU's libraries.
        moves = getattr(data, "device_host_func", None)
        self._data: Any = None
        self._meters: list[FuncMeter] = []
        if moves is not None and hasattr(data, "device"):
            self._data = data
            self._meters = [FuncMeter(moves), FuncMeter(getattr(data, "disk_func", None))]

    def sample(self, host_duty: bool) -> Iterator[tuple[Schema, tuple[Any, ...]]]:
        """Yield one row of "Device Memory"."""
        data = self._data
        if data is None:
            return
        held = (
            len(data.device),
            _weight(data.device_buffer),
            len(data.host),
            _weight(data.host_buffer),
            len(data.disk) if data.disk is not None else 0,
        )
        device, disk = self._meters
        moved = device.dumped, device.loaded, disk.dumped, disk.loaded
        yield DEVICE_MEMORY, (time(), *held, *(value for values in moved for value in values))

    def close(self) -> None:
        """Restore the wrapped functions."""
        while self._meters:
            self._meters.pop().close()


class FuncMeter:
    """Counts and times the conversions of a `zict.Func`, whose `dump` and `load` it wraps.

    Parameters
    ----------
    func
        The mapping; None for no conversions.
    """

    def __init__(self, func: Any) -> None:
        #: Seconds, bytes and number of the dumps, and of the loads.
        self.dumped: Values = (0.0, 0, 0)
        self.loaded: Values = (0.0, 0, 0)
        self._patches: list[Patch] = []
        if func is not None:
            self._wrap(func, "dump", self._note_dump)
            self._wrap(func, "load", self._note_load)

    def close(self) -> None:
        """Restore the functions, unless other code has wrapped ours since."""
        while self._patches:
            self._patches.pop().remove()

    def _note_dump(self, seconds: float, stored: Any) -> None:
        self.dumped = _add(self.dumped, seconds, stored)

    def _note_load(self, seconds: float, stored: Any) -> None:
        self.loaded = _add(self.loaded, seconds, stored)

    def _wrap(self, func: Any, name: str, note: Callable[[float, Any], None]) -> None:
        def wrap(original: Any, patch: Patch) -> Any:
            def metered(*args: Any, **kwargs: Any) -> Any:
                start = perf_counter()
                result = original(*args, **kwargs)
                if patch.active:
                    with contextlib.suppress(Exception):
                        stored = result if name == "dump" else (*args, *kwargs.values())[0]
                        note(perf_counter() - start, stored)
                return result

            return metered

        self._patches.append(Patch(func, name, wrap))


def _add(values: Values, seconds: float, stored: Any) -> Values:
    return values[0] + seconds, values[1] + _size(stored), values[2] + 1


def _size(stored: Any) -> int:
    """Return the bytes of a result on the host or on disk: frames, or an object made of frames."""
    frames = getattr(stored, "frames", stored)
    if isinstance(frames, list | tuple):
        return sum(memoryview(frame).nbytes for frame in frames)
    return memoryview(frames).nbytes


def _weight(buffer: Any) -> float | None:
    """Return the bytes in a buffer's fast part, as Dask measures them; None without a limit."""
    weight = getattr(getattr(buffer, "fast", None), "total_weight", None)
    return None if weight is None else float(weight)
