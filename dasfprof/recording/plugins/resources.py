"""`ResourceMonitor`: samples a worker's process, its host and its GPUs in a thread."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from functools import partial
from time import monotonic, process_time
from typing import Any

from dasfprof.database.writer import Source, TraceWriter
from dasfprof.recording.dask_internals.undocumented import activity, memory_sizes
from dasfprof.recording.plugins.worker_plugin import RecordingPart
from dasfprof.recording.probes.gpu import DeviceMemoryProbe, GpuProbe
from dasfprof.recording.probes.host import (
    DiskProbe,
    Probe,
    ResourceProbe,
    WorkerProbe,
)
from dasfprof.recording.probes.process import resident_memory
from dasfprof.recording.probes.processes import ProcessesProbe
from dasfprof.recording.rows import fold_rows
from dasfprof.recording.settings import RunSettings
from dasfprof.schema.resources import IDLE_INTERVAL
from dasfprof.system import LINUX

#: Seconds after which a worker without the host duty tries again to get it: the process that has
#: the duty may have died.
_DUTY_INTERVAL = 1.0

#: Maximum seconds for which a closing worker waits until the current sample is complete.
_LAST_TICK = 2.0

#: Threshold (seconds): a worker is idle after this time without any change.
IDLE_AFTER = 10.0
#: Thresholds: a worker is not idle if its process uses more than this fraction of a core, or if its
#: memory changes by at least this number of bytes.
_BUSY, _MEMORY_CHANGE = 0.3, 1 << 24
#: Threshold (fraction of the worker's memory limit): if a worker uses at least this much memory,
#: pending events are written after each sample. The nanny or the kernel may kill the worker before
#: the flush interval has passed.
_NEAR_LIMIT = 0.8


class Idleness:
    """Decides which samples of a worker are written, so that an idle worker writes few of them."""

    def __init__(self, worker: Any) -> None:
        self._worker = worker
        self._activity: Any = None
        #: Resident bytes of the process: at the current sample, and at the last change.
        self.memory = self._memory = 0
        self._cpu = 0.0
        self._looked = self._changed = self._written = float("-inf")

    def is_due(self, now: float) -> bool:
        """Return whether to write a sample.

        A sample is due if the worker is not idle, or if `IDLE_INTERVAL` has passed since the last
        sample that was due.
        """
        cpu, current = process_time(), activity(self._worker)
        self.memory = memory = resident_memory() or 0
        is_busy = cpu - self._cpu > _BUSY * (now - self._looked)
        is_changed = abs(memory - self._memory) >= _MEMORY_CHANGE or current != self._activity
        self._cpu, self._looked = cpu, now
        if is_busy or is_changed or current is None:
            self._changed, self._activity, self._memory = now, current, memory
        if now - self._changed >= IDLE_AFTER and now - self._written < IDLE_INTERVAL:
            return False
        self._written = now
        return True


class ResourceMonitor(RecordingPart):
    """Samples the resources of a worker into a separate file."""

    plugin = "ResourceMonitor"

    def __init__(self, settings: RunSettings) -> None:
        super().__init__(settings)
        #: The writers of all files of the worker.
        self.writers: list[TraceWriter] = []

    def _start(self, worker: Any) -> None:
        """Open the file and start the sampler."""
        database, constants = self._open_database(worker)
        self._write = database.writer.extender(Source(fold_rows, constants))
        self._duty = HostDuty(self.settings.uuid)
        self._undo.append(self._duty.release)
        self._gpu = GpuProbe(lambda device: HostDuty(f"{self.settings.uuid}-{device}"))
        self._probes: list[Probe] = [
            self._gpu,
            *self._of_worker(worker, partial(ResourceProbe, self._gpu)),
            DiskProbe(worker.local_directory),
        ]
        if LINUX:  # Only Linux has files about all processes in /proc.
            self._probes.append(ProcessesProbe())
        self._idleness = Idleness(worker)
        self._memory_limit = memory_sizes(worker)["memory_limit"]
        #: The rows of the last sample if they were not written, or else no rows.
        self._held_back: list[Any] = []
        self._undo += [probe.close for probe in self._probes]
        self._stopping = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name=f"dasfprof-sampler {worker.name}", daemon=True
        )
        self._thread.start()
        self._undo += [self._sample, self._end_sampler]

    def _of_worker(self, worker: Any, usage: Callable[..., Probe]) -> list[Probe]:
        """Return the probes of the worker. `usage` creates the probe of the worker's process."""
        return [usage(), WorkerProbe(worker), DeviceMemoryProbe(worker)]

    def _end_sampler(self) -> None:
        self._stopping.set()
        self._thread.join(_LAST_TICK)
        if self._thread.is_alive():
            # A call of the GPU driver hangs, as it may if a device is lost. Further calls would
            # hang, too.
            self._undo.remove(self._sample)
            self._undo.remove(self._gpu.close)

    def _run(self) -> None:
        due = monotonic()
        while not self._stopping.wait(max(0.0, due - monotonic())):
            with self._guard.catching("the sampler"):
                self._sample()
            due += self.settings.sample_interval
            if due < monotonic():  # Skip missed samples.
                due = monotonic() + self.settings.sample_interval

    def _sample(self) -> None:
        """Read all probes. Write the sample, or hold it back while the worker is idle."""
        is_due = self._idleness.is_due(monotonic()) or self._stopping.is_set()
        if not is_due:
            # A busy worker can now take the duty.
            self._duty.release()
        duty = is_due and self._duty.held()
        rows: list[Any] = []
        for probe in self._probes:
            with self._guard.catching(type(probe).__name__):
                rows.extend(probe.sample(duty))
        if not is_due:
            self._held_back = rows
            return
        # The last sample that was held back is written together with the next sample that is due.
        self._write([*self._held_back, *rows])
        self._held_back = []
        if 0 < _NEAR_LIMIT * self._memory_limit <= self._idleness.memory:
            for writer in self.writers:
                writer.wake()


class HostDuty:
    """Elects one process of a host for a duty, such as reading the host's counters.

    On systems other than Linux, every process has the duty.

    Parameters
    ----------
    election
        Name of the election. All processes with the same name compete.
    """

    def __init__(self, election: str) -> None:
        self._address = f"\0dasfprof-{election}"
        # The process whose socket is bound to this abstract address has the duty. Such an address
        # leaves no file behind, and becomes free when the process dies.
        self._socket: socket.socket | None = None
        self._ask_again = 0.0

    def held(self) -> bool:
        """Return whether this process has the duty. If the duty is free, this process takes it."""
        if not LINUX or self._socket is not None:
            return True
        now = monotonic()
        if now < self._ask_again:
            return False
        self._ask_again = now + _DUTY_INTERVAL
        bound = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            bound.bind(self._address)
        except OSError:
            bound.close()
            return False
        self._socket = bound
        return True

    def release(self) -> None:
        """Release the duty, so that another process can take it."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
