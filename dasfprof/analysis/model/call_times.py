"""`CallTimes`: calls and times of functions, summed up over the files of a profiler of calls."""

from __future__ import annotations

import marshal
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dasfprof.analysis.trace import Trace

#: File, line and name.
Place = tuple[str, int, str]
#: Bytes of the largest file that is read.
_LARGEST = 1 << 28


@dataclass
class CallTimes:
    """What tasks called, and how long it took."""

    #: Calls, those that were not recursive, seconds without and with what was called, by place.
    places: dict[Place, tuple[int, int, float, float]] = field(default_factory=dict)
    #: The files that were read, and why others were not.
    files: list[str] = field(default_factory=list)
    unreadable: dict[str, str] = field(default_factory=dict)

    def add(self, path: str) -> None:
        """Add what a file holds."""
        try:
            figures = read_call_times(Path(path))
        except (OSError, ValueError, TypeError, EOFError) as error:
            self.unreadable[path] = str(error)
            return
        self.files.append(path)
        for place, own in figures.items():
            before = self.places.get(place, (0, 0, 0.0, 0.0))
            calls, primitive, inner, whole = (a + b for a, b in zip(before, own, strict=True))
            self.places[place] = int(calls), int(primitive), inner, whole


def call_times(trace: Trace, function: str | None) -> CallTimes:
    """Sum up the profiles of one function, or of all."""
    found = CallTimes()
    table = trace.call_profiles
    for path, name in zip(table["path"], table["name"].astype(object), strict=True):
        if isinstance(path, str) and function in (None, name):
            found.add(path)
    return found


def read_call_times(path: Path) -> dict[Place, tuple[int, int, float, float]]:
    """Read a file of `pstats`: a marshalled dict, of which nothing is run.

    Raises
    ------
    OSError
        If it cannot be read.
    ValueError, TypeError, EOFError
        If it is none.
    """
    if path.stat().st_size > _LARGEST:
        raise ValueError(f"{path} is larger than any such file")
    loaded = marshal.loads(path.read_bytes())
    if not isinstance(loaded, dict):
        raise ValueError(f"{path} is no file of pstats")
    return {_place(place): _figures(figures) for place, figures in loaded.items()}


def _place(place: Any) -> Place:
    file, line, name = place
    return str(file), int(line), str(name)


def _figures(figures: Any) -> tuple[int, int, float, float]:
    primitive, calls, own, whole, _ = figures
    return int(calls), int(primitive), float(own), float(whole)
