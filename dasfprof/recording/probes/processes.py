"""`ProcessesProbe`: which processes of a host hold its memory, and use its cores while busy."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from time import monotonic, time
from typing import Any

import psutil

from dasfprof.schema.events import Schema
from dasfprof.schema.resources import HOST_PROCESS
from dasfprof.system import PROC

#: Places in ``/proc/PID/stat`` behind the name in brackets: parent, user and system time, resident.
_PARENT, _USER, _SYSTEM, _RESIDENT = 1, 11, 12, 21
#: The most ancestors that are listed.
_MOST_ANCESTORS = 16


@dataclass(frozen=True)
class _Process:
    name: str
    parent: int
    #: CPU time since it began.
    seconds: float
    memory: int


class ProcessesProbe:
    """Looks at all processes that are seen from here, on duty.

    A look opens a file of each process (some 20 us): it is made every 5 s where the host's cores
    were busy for half of the time since, else every 30 s, for memory alone. Of each process its
    name and its owner are recorded, never its command line, which may hold secrets. On Linux alone.
    """

    #: Seconds between two looks, and between those for memory alone.
    INTERVAL, QUIET_INTERVAL = 5.0, 30.0
    #: The share of the time of all cores for which these were busy.
    BUSY = 0.5
    #: The most processes of a look, by CPU and by memory, and from which percent of a core and
    #: share of the host's memory on.
    MOST_BY_CPU, LEAST_CPU = 12, 5.0
    MOST_BY_MEMORY, LEAST_MEMORY = 4, 0.05

    def __init__(self) -> None:
        self._due = self._quiet_due = 0.0
        self._cores: tuple[float, float] | None = None
        self._before: tuple[float, dict[int, _Process]] | None = None
        self._owners: dict[int, str] = {}
        self._page, self._tick = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_CLK_TCK")

    def sample(self, host_duty: bool) -> Iterator[tuple[Schema, tuple[Any, ...]]]:
        """Yield a row of "Host Process" for each process that uses much, when they are due."""
        now = monotonic()
        if not host_duty or now < self._due:
            return
        self._due = now + self.INTERVAL
        before, cores = self._cores, _core_seconds()
        self._cores = cores
        idle = before is not None and cores[0] - before[0] < self.BUSY * (cores[1] - before[1])
        if idle and now < self._quiet_due:
            self._before = None  # what was used meanwhile is of no interest
            return
        self._quiet_due = now + self.QUIET_INTERVAL
        found = self._processes()
        last, self._before = self._before, (now, found)
        if idle or last is None:
            yield from self._rows(0.0, {}, found)
        else:
            yield from self._rows(now - last[0], last[1], found)

    def close(self) -> None:
        """Do nothing: the probe holds no resources."""

    def _rows(
        self, interval: float, before: dict[int, _Process], found: dict[int, _Process]
    ) -> Iterator[tuple[Schema, tuple[Any, ...]]]:
        # Of a look for memory alone there is no look before.
        used = {
            pid: 100 * (process.seconds - before[pid].seconds) / interval
            for pid, process in found.items()
            if pid in before and process.seconds >= before[pid].seconds  # else it is another
        }
        least = self.LEAST_MEMORY * psutil.virtual_memory().total
        by_cpu = sorted((pid for pid in used if used[pid] >= self.LEAST_CPU), key=used.__getitem__)
        by_memory = sorted(
            (pid for pid in found if found[pid].memory >= least), key=lambda pid: found[pid].memory
        )
        told = {*by_cpu[-self.MOST_BY_CPU :], *by_memory[-self.MOST_BY_MEMORY :], os.getpid()}
        timestamp = time()
        for pid in sorted(told & found.keys()):
            process = found[pid]
            yield (
                HOST_PROCESS,
                (
                    timestamp,
                    pid,
                    process.name,
                    self._owner(pid),
                    used.get(pid),
                    process.memory,
                    interval,
                    _ancestors(pid, found),
                ),
            )

    def _processes(self) -> dict[int, _Process]:
        found = {}
        for entry in os.listdir(PROC):
            if entry.isdecimal():
                with contextlib.suppress(OSError, ValueError, IndexError):  # it has just ended
                    found[int(entry)] = self._read(entry)
        return found

    def _read(self, pid: str) -> _Process:
        with open(f"{PROC}/{pid}/stat", "rb") as file:
            begin, _, rest = file.read().rpartition(b")")
        name = begin.partition(b"(")[2].decode("utf-8", "replace")
        facts = rest.split()
        seconds = (int(facts[_USER]) + int(facts[_SYSTEM])) / self._tick
        return _Process(name, int(facts[_PARENT]), seconds, int(facts[_RESIDENT]) * self._page)

    def _owner(self, pid: int) -> str | None:
        try:
            number = os.stat(f"{PROC}/{pid}").st_uid
        except OSError:
            return None
        if number not in self._owners:
            import pwd  # not where this module is imported and never used

            try:
                self._owners[number] = pwd.getpwuid(number).pw_name
            except KeyError:
                self._owners[number] = str(number)
        return self._owners[number]


def _core_seconds() -> tuple[float, float]:
    """Return the seconds that all cores were busy, and were there, since the host's boot."""
    times = psutil.cpu_times()
    idle = times.idle + getattr(times, "iowait", 0.0)
    # A guest's time is part of the user's.
    whole = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
    return whole - idle, whole


def _ancestors(pid: int, processes: dict[int, _Process]) -> list[int]:
    """Return the processes that a process descends from, the nearest first, without the first."""
    found: list[int] = []
    while pid in processes and len(found) < _MOST_ANCESTORS:
        pid = processes[pid].parent
        if pid <= 1 or pid in found:
            break
        found.append(pid)
    return found
