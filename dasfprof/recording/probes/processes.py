"""`ProcessesProbe`: samples the processes of a host that use the most memory or CPU time."""

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

#: Indices of fields in ``/proc/PID/stat``, counted after the name: parent, user time, system time,
#: resident pages.
_PARENT, _USER, _SYSTEM, _RESIDENT = 1, 11, 12, 21
#: Maximum number of ancestors that are recorded for a process.
_MOST_ANCESTORS = 16


@dataclass(frozen=True)
class _Process:
    name: str
    parent: int
    #: CPU seconds since the start of the process.
    seconds: float
    memory: int


class ProcessesProbe:
    """Reads all visible processes of a host, on the worker with the `HostDuty`. Requires Linux.

    The name and the owner of a process are recorded, but not its command line, which may contain
    secrets.
    """

    #: Seconds between two samples of a busy host, and between two samples of an idle host.
    INTERVAL, QUIET_INTERVAL = 5.0, 30.0
    #: Threshold (fraction of the time of all cores) from which a host counts as busy.
    BUSY = 0.5
    #: Maximum number of processes that are recorded because of their CPU time, and minimum CPU use
    #: of these (percent of a core).
    MOST_BY_CPU, LEAST_CPU = 12, 5.0
    #: Maximum number of processes that are recorded because of their memory, and minimum memory of
    #: these (fraction of the host's memory).
    MOST_BY_MEMORY, LEAST_MEMORY = 4, 0.05

    def __init__(self) -> None:
        # A sample opens one file per process, which takes about 20 µs each. So samples are rare,
        # and an idle host's samples have only memory.
        self._due = self._quiet_due = 0.0
        self._cores: tuple[float, float] | None = None
        self._before: tuple[float, dict[int, _Process]] | None = None
        self._owners: dict[int, str] = {}
        self._page, self._tick = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_CLK_TCK")

    def sample(self, host_duty: bool) -> Iterator[tuple[Schema, tuple[Any, ...]]]:
        """Yield a row of "Host Process" for each process with high usage, if a sample is due."""
        now = monotonic()
        if not host_duty or now < self._due:
            return
        self._due = now + self.INTERVAL
        before, cores = self._cores, _core_seconds()
        self._cores = cores
        idle = before is not None and cores[0] - before[0] < self.BUSY * (cores[1] - before[1])
        if idle and now < self._quiet_due:
            self._before = None  # The next sample reports no CPU time of the idle period.
            return
        self._quiet_due = now + self.QUIET_INTERVAL
        processes = self._processes()
        last, self._before = self._before, (now, processes)
        if idle or last is None:  # CPU time cannot or need not be computed.
            yield from self._rows(0.0, {}, processes)
        else:
            yield from self._rows(now - last[0], last[1], processes)

    def close(self) -> None:
        """Do nothing, because the probe holds no resources."""

    def _rows(
        self, interval: float, before: dict[int, _Process], processes: dict[int, _Process]
    ) -> Iterator[tuple[Schema, tuple[Any, ...]]]:
        used = {
            pid: 100 * (process.seconds - before[pid].seconds) / interval
            for pid, process in processes.items()
            # If the process has used less CPU time than before, it is another process, to which
            # the system has assigned the same process id.
            if pid in before and process.seconds >= before[pid].seconds
        }
        least = self.LEAST_MEMORY * psutil.virtual_memory().total
        memory = {pid: each.memory for pid, each in processes.items() if each.memory >= least}
        by_cpu = sorted((pid for pid in used if used[pid] >= self.LEAST_CPU), key=used.__getitem__)
        by_memory = sorted(memory, key=memory.__getitem__)
        selected = {*by_cpu[-self.MOST_BY_CPU :], *by_memory[-self.MOST_BY_MEMORY :], os.getpid()}
        timestamp = time()
        for pid in sorted(selected & processes.keys()):
            process, ancestors = processes[pid], _ancestors(pid, processes)
            facts = process.name, self._owner(pid), used.get(pid), process.memory
            yield HOST_PROCESS, (timestamp, pid, *facts, interval, ancestors)

    def _processes(self) -> dict[int, _Process]:
        processes = {}
        for entry in os.listdir(PROC):
            if entry.isdecimal():
                # The process may have just ended.
                with contextlib.suppress(OSError, ValueError, IndexError):
                    processes[int(entry)] = self._read(entry)
        return processes

    def _read(self, pid: str) -> _Process:
        with open(f"{PROC}/{pid}/stat", "rb") as file:
            start, _, fields = file.read().rpartition(b")")
        name = start.partition(b"(")[2].decode("utf-8", "replace")
        facts = fields.split()
        seconds = (int(facts[_USER]) + int(facts[_SYSTEM])) / self._tick
        return _Process(name, int(facts[_PARENT]), seconds, int(facts[_RESIDENT]) * self._page)

    def _owner(self, pid: int) -> str | None:
        try:
            number = os.stat(f"{PROC}/{pid}").st_uid
        except OSError:
            return None
        if number not in self._owners:
            import pwd  # Not at the top, because Windows lacks `pwd` but imports this module.

            try:
                self._owners[number] = pwd.getpwuid(number).pw_name
            except KeyError:
                self._owners[number] = str(number)
        return self._owners[number]


def _core_seconds() -> tuple[float, float]:
    """Return the busy seconds and the total seconds since the host's boot, summed over cores."""
    times = psutil.cpu_times()
    idle = times.idle + getattr(times, "iowait", 0.0)
    # The time of guest systems is included in the user time.
    total = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
    return total - idle, total


def _ancestors(pid: int, processes: dict[int, _Process]) -> list[int]:
    """Return the process ids of a process's ancestors, parent first, without the init process."""
    ancestors: list[int] = []
    while pid in processes and len(ancestors) < _MOST_ANCESTORS:
        pid = processes[pid].parent
        if pid <= 1 or pid in ancestors:
            break
        ancestors.append(pid)
    return ancestors
