"""Workers as people know them: one for each label on each host, whatever lives it had."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dasfprof.analysis.trace import Trace
from dasfprof.analysis.workers import HOST_WIDE
from dasfprof.database.columns import Array

_GPU_COLUMNS = ["gpu_index", "gpu_utilization", "gpu_memory_used"]


class NamedWorkers:
    """The workers of a trace by host and label.

    Parameters
    ----------
    trace
        The trace.
    """

    def __init__(self, trace: Trace) -> None:
        names = list(zip(trace.workers["host"], trace.workers["worker"], strict=True))
        distinct = list(dict.fromkeys(names))
        places = {name: place for place, name in enumerate(distinct)}
        self._codes = np.array([places[name] for name in names], dtype=np.int64)
        #: The host and the label of each.
        self.hosts = np.array([host for host, _ in distinct], dtype=object)
        self.labels = np.array([label for _, label in distinct], dtype=object)
        self._gpu_samples = self._collect_gpu_samples(trace.samples)

    def __len__(self) -> int:
        return len(self.hosts)

    def numbers(self, table: pd.DataFrame) -> Array:
        """Number the worker of each row of a table that has ``worker_id``."""
        numbers: Array = self._codes[table["worker_id"].to_numpy()]
        return numbers

    def titles(self) -> list[str]:
        """Give each worker's label, with its host before it where labels collide."""
        labels = pd.Series(self.labels, dtype=object)
        shared = labels.duplicated(keep=False)
        return [
            f"{host} {label}" if collides else label
            for host, label, collides in zip(self.hosts, labels, shared, strict=True)
        ]

    def gpu_samples(self, number: int) -> pd.DataFrame:
        """Give the samples of a worker's GPU: ``time`` (in order), and what is known of it.

        Its own samples if some tell of a GPU, else those of its host that belong to no worker;
        of several GPUs, those of the one with the lowest index.
        """
        samples = self._gpu_samples.get(number)
        if samples is None:
            whole_host = [
                place
                for place in np.flatnonzero(self.hosts == self.hosts[number]).tolist()
                if self.labels[place] in HOST_WIDE and place in self._gpu_samples
            ]
            samples = self._gpu_samples[whole_host[0]] if whole_host else self._gpu_samples[-1]
        index = samples["gpu_index"]
        return samples if index.isna().all() else samples[index == index.min()]

    def gpus(self) -> pd.arrays.IntegerArray:
        """Give the NVML index of each worker's GPU, NA where no sample tells."""
        lowest = [self.gpu_samples(number)["gpu_index"].min() for number in range(len(self))]
        missing = np.isnan(np.array(lowest, dtype=float))
        return pd.arrays.IntegerArray(np.nan_to_num(lowest).astype(np.int64), missing)

    def ranks(self) -> Array:
        """Give each worker's place when they are sorted by host and label."""
        order = np.lexsort((self.labels.astype(str), self.hosts.astype(str)))
        return np.argsort(order)

    def _collect_gpu_samples(self, samples: pd.DataFrame) -> dict[int, pd.DataFrame]:
        """Group the samples that tell of a GPU by worker; -1 has none."""
        known = samples.reindex(columns=["worker_id", "time", *_GPU_COLUMNS])
        known = known[known[_GPU_COLUMNS].notna().any(axis=1)]
        known = known.astype(dict.fromkeys(_GPU_COLUMNS, float)).sort_values("time", kind="stable")
        groups = known.groupby(self.numbers(known))
        return {-1: known.iloc[:0], **{int(str(number)): group for number, group in groups}}
