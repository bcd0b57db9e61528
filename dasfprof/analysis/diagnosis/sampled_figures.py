"""`SampledFigures`: what samples of processes, stores and GPUs come to."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import pandas as pd

from dasfprof.analysis.model.gpus import GpuUtilisation, gpu_utilisation
from dasfprof.analysis.numeric.groups import Groups
from dasfprof.analysis.run import Run
from dasfprof.analysis.run.open_runs import left_unasked
from dasfprof.analysis.run.worker_exits import Why, departure
from dasfprof.database.columns import Array

#: Mean utilisation in percent from which tasks may be waiting for their GPU.
_GPU_BUSY = 20.0


class SampledFigures:
    """The figures of a run that rest on samples, a part of `RunFigures`."""

    trace: Run

    @cached_property
    def process_cpu_seconds(self) -> float:
        """CPU seconds that all sampled processes of workers used; NaN where none was sampled."""
        used = self._grown(self.trace.samples, "process_cpu_seconds")
        return float(used.sum()) if used is not None else float("nan")

    @cached_property
    def file_bytes(self) -> Array:
        """Bytes that the process of each life of a worker read from and wrote to disks.

        What it spilled is left out.
        """
        nbytes = -self.counted("spill_write_size") - self.counted("spill_read_size")
        for name in ("process_io.read_size", "process_io.write_size"):
            grown = self._grown(self.trace.samples, name)
            nbytes += 0.0 if grown is None else grown
        found: Array = np.maximum(nbytes, 0.0)
        return found

    def counted(self, name: str) -> Array:
        """Return how much a count of `Trace.managed_memory` grew on each worker; 0 if unknown."""
        grown = self._grown(self.trace.managed_memory, name)
        return np.zeros(len(self.trace.workers)) if grown is None else grown

    def _grown(self, samples: pd.DataFrame, name: str) -> Array | None:
        if name not in samples or not len(samples):
            return None
        values = pd.to_numeric(samples[name], errors="coerce").to_numpy(dtype=float)
        groups = Groups(samples["worker_id"].to_numpy(), len(self.trace.workers))
        grown: Array = np.nan_to_num(groups.max(values) - groups.min(values))
        return grown

    @cached_property
    def memory_peaks(self) -> Array:
        """The most bytes that the process of each life of a worker had; NaN if not sampled."""
        samples = self.trace.samples
        if "memory" not in samples:
            return np.full(len(self.trace.workers), np.nan)
        memory = pd.to_numeric(samples["memory"], errors="coerce").to_numpy(dtype=float)
        return Groups(samples["worker_id"].to_numpy(), len(self.trace.workers)).max(memory)

    @cached_property
    def memory_limits(self) -> Array:
        """The memory limit of each life of a worker in bytes; NaN where it has none."""
        limits: Array = self.trace.workers["memory_limit"].to_numpy(dtype=float)
        return limits

    @cached_property
    def died_of_memory(self) -> bool:
        """Whether memory is proven to have run out on a worker, whose need is thus unknown."""
        lost = np.flatnonzero(left_unasked(self.trace)).tolist()
        return any(departure(self.trace, life).why is Why.MEMORY for life in lost)

    @cached_property
    def gpus(self) -> list[GpuUtilisation]:
        """How busy each GPU was, over the whole run."""
        return gpu_utilisation(self.trace, self.trace.named)[1]

    @cached_property
    def uses_gpus(self) -> bool:
        """Whether GPUs are busy: then tasks may be waiting for theirs."""
        return any(gpu.mean_utilization[0] >= _GPU_BUSY for gpu in self.gpus)
