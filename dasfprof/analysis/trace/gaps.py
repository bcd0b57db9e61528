"""Data notes about missing data of a trace, and the environment of its recording."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from dasfprof.analysis.trace.tasks import P2P_BARRIER
from dasfprof.analysis.trace.workers import Worker
from dasfprof.database.columns import Array
from dasfprof.database.reader import TimeRange
from dasfprof.text import count_of, format_date, format_duration

NoteKind = Literal[
    "header-lost",  # It is unknown which process wrote the file.
    "damaged-file",  # Some bytes could not be read.
    "unknown-events",  # This version of dasfprof does not know these kinds of events.
    "dropped-facts",  # The recorder could not write them.
    "caught-errors",  # Hooks of the recorder failed.
    "goes-on",  # The run is still being recorded.
    "client-gone",  # Recording ended because the client was gone.
    "not-closed",  # The process ended without closing the file, or runs on another host.
    "lost-events",  # Total number of events that were written and are missing.
    "segment-missing",  # A file of a long run, or events in it, are missing.
    "file-missing",  # Another file of the same worker names this file.
    "window",  # Only a time window of the run was read.
    "missing-hook",  # The recorded Dask lacks a private name.
    "system",  # The recorded system does not report some values.
    "clock",  # Times cannot be compared with those of other hosts.
    "no-samples",
    "gpu",  # GPUs, or some of their values, could not be read.
    "steps",  # Some task runs belong to no step of the pipeline.
    "no-worker-files",
    "no-scheduler-file",
    "no-cluster",  # One of Dask's own schedulers ran the tasks.
    "input-sizes",  # The sizes of some inputs were not recorded.
    "no-shuffle-messages",  # The bytes that P2P shuffles moved were not recorded.
    "lost-task-runs",  # The scheduler saw them, and they are in no worker's file.
]


@dataclass(frozen=True)
class Note:
    """A data note: something that is missing, damaged or left out."""

    kind: NoteKind
    #: The file, host, worker or device that the note is about. Empty if it is about the trace.
    subject: str
    #: One sentence for people. It names the subject.
    text: str

    def __str__(self) -> str:
        return self.text


NO_WORKER_FILES = Note(
    "no-worker-files",
    "",
    "no task runs in files of workers: those that the scheduler recorded are used, without failed "
    "attempts, inputs and CPU seconds.",
)

NO_SCHEDULER_FILE = Note(
    "no-scheduler-file",
    "",
    "no scheduler's file: queueing, and the last tasks of workers that died, are unknown.",
)


def of_local(schedulers: Sequence[str]) -> Note:
    """Return a note that a run had no cluster, with a list of values that are therefore NA."""
    text = (
        f"no cluster: Dask's own scheduler ran the tasks ({', '.join(schedulers)}). Transfers, "
        "spilling, stealing, results in memory and lags of event loops are NA."
    )
    if "processes" in schedulers:
        text += (
            " Stacks, CPU waits, storage and code of tasks in processes of a pool are NA as well."
        )
    return Note("no-cluster", "", text)


def of_cut_scheduler(name: str) -> Note:
    """Return a note that the scheduler's file `name` was truncated."""
    text = (
        f"{name}: it was not closed and does not record that workers ended, although all their "
        "files are closed. It was truncated, or its process has not written that yet. Later "
        "events are missing."
    )
    return Note("not-closed", name, text)


def of_client_gone(end: Mapping[str, Any]) -> Note:
    """Return a note, from a file's last frame, that recording ended because the client was gone."""
    since, clock, when, gone = end.get("since"), end.get("clock"), "", ""
    at = clock[0] if isinstance(clock, tuple | list) and clock else None
    if isinstance(at, int | float) and isinstance(since, int | float) and since <= at:
        when, gone = f" on {format_date(at)} UTC", f" for {format_duration(at - since)}"
    text = (
        f"recording ended by itself{when}, because the client that started it had been gone{gone}. "
        "Later work of the cluster is not recorded."
    )
    return Note("client-gone", "", text)


def of_window(window: TimeRange, tasks: pd.DataFrame) -> Note:
    """Return a note that only a time window was read, and how many task runs cross its edges."""
    starts = tasks["start"].to_numpy()
    begun = int(np.count_nonzero(starts < window.begin))
    open_ends = int(np.count_nonzero(starts + tasks["duration"].to_numpy() > window.end))
    text = (
        f"only the window from {format_date(window.begin)} to {format_date(window.end)} UTC was "
        f"read. {count_of(begun, 'task run')} began before it, {open_ends:,} ended after it. "
        "Dependencies outside of it are unknown, so the critical path and replays cover only the "
        "window."
    )
    return Note("window", "", text)


def of_shuffles(tasks: pd.DataFrame, messages: pd.DataFrame) -> Iterator[Note]:
    """Yield a note if the bytes that P2P shuffles moved between workers are unknown."""
    shuffled = (tasks["function"] == P2P_BARRIER).any()
    if shuffled and not len(messages) and tasks["worker_id"].nunique() > 1:
        text = "no messages of P2P shuffles: the bytes that they moved are not counted."
        yield Note("no-shuffle-messages", "", text)


def of_gpus(samples: pd.DataFrame, devices: pd.DataFrame, failures: pd.DataFrame) -> Iterator[Note]:
    """Yield notes about GPUs that could not be read at all, or not completely."""
    if not len(samples):
        yield Note("no-samples", "", "no resource samples: the columns about GPUs are NA.")
        return
    last = devices.drop_duplicates("worker_id", keep="last")["availability"].astype(object)
    # A host that lacks the library of the driver probably has no GPU.
    lacking = last[~last.isin(["available", "no library"])]
    for reason, count in lacking.value_counts().sort_index().items():
        where = count_of(count, "worker")
        yield Note("gpu", where, f"no full readings of a GPU on {where}: {reason}.")
    readings = samples[["gpu_utilization", "gpu_memory_used"]]
    if not len(devices) and readings.isna().to_numpy().all():
        yield Note("gpu", "", "no resource sample contains a GPU: the columns about GPUs are NA.")
    failures = failures[["uuid", "reason", "reading"]].astype(object)
    for (uuid, reason), group in failures.drop_duplicates().groupby(["uuid", "reason"], sort=True):
        yield Note("gpu", str(uuid), f"{uuid}: {', '.join(group['reading'])} not read: {reason}.")


def of_steps(steps: pd.Categorical, *, has_steps: bool) -> Iterator[Note]:
    """Yield a note if the pipeline has steps, but some task runs belong to no step."""
    count = int(np.count_nonzero(steps.codes >= 0))
    if count < len(steps) and (count or has_steps):
        share = count / len(steps) * 100
        yield Note("steps", "", f"{share:.0f} % of task runs belong to a step of the pipeline.")


def of_input_sizes(sizes: Array) -> Iterator[Note]:
    """Yield a note if some task runs have inputs of unknown size (NaN)."""
    unknown = int(np.count_nonzero(np.isnan(sizes)))
    if unknown:
        text = f"{count_of(unknown, 'task run')} have inputs of unknown size, which is NA."
        yield Note("input-sizes", "", text)


def of_lost_runs(runs: dict[str, Any], workers: Sequence[Worker]) -> Iterator[Note]:
    """Yield a note for each worker whose file lacks task runs that certainly finished.

    `runs` contains the task runs that only the scheduler recorded.
    """
    lost = np.flatnonzero(runs["lost"])
    durations = runs["scheduler_stop"] - runs["scheduler_start"]
    for number in np.unique(runs["worker_id"][lost]).tolist():
        rows = lost[runs["worker_id"][lost] == number]
        label = workers[number].label
        count = count_of(len(rows), "task run")
        yield Note(
            "lost-task-runs",
            label,
            f"{label}: {count} ({durations[rows].sum():.3f} s) that the scheduler recorded are in "
            f"no worker's file ({runs['reason'][rows[0]]}). They are in trace.scheduler_only and "
            "in no table.",
        )


@dataclass(frozen=True)
class Surroundings:
    """The environment of a recording, with empty fields for values that no file contains."""

    #: Versions of Python and of packages, by name. If versions differ, all of them are listed,
    #: separated by slashes.
    versions: dict[str, str] = field(default_factory=dict)
    #: Settings of Dask and of the recording, by name.
    settings: dict[str, str] = field(default_factory=dict)
    #: Number of cores that the processes of each host may use, as Dask counts them.
    cores: dict[str, int] = field(default_factory=dict)
    #: The client's program, and the number of its arguments. The arguments are not recorded.
    command: str = ""
    #: Dask's local schedulers that ran tasks without a cluster: threads, processes, sync.
    local: tuple[str, ...] = ()

    @classmethod
    def from_headers(cls, headers: Iterable[Mapping[str, Any]]) -> Surroundings:
        """Return the environment that the headers of a run's files describe."""
        headers = list(headers)
        cores: dict[str, int] = {}
        for header in headers:
            host, number = str(header.get("host", "")), header.get("cores")
            if isinstance(number, int):
                cores[host] = max(number, cores.get(host, 0))
        commands = dict.fromkeys(filter(None, map(_command, headers)))
        versions, settings = (_by_name(headers, entry) for entry in ("versions", "settings"))
        local = {str(header.get("local_scheduler") or "") for header in headers} - {""}
        return cls(versions, settings, cores, ", ".join(commands), tuple(sorted(local)))


def _by_name(headers: list[Mapping[str, Any]], entry: str) -> dict[str, str]:
    """Merge one entry of all headers, such as ``versions``, which maps names to values.

    If headers differ in a value, the different values are joined by slashes.
    """
    values: dict[str, set[str]] = {}
    for header in headers:
        named = header.get(entry)
        for name, value in named.items() if isinstance(named, dict) else ():
            values.setdefault(str(name), set()).add(str(value))
    return {name: " / ".join(sorted(distinct)) for name, distinct in values.items()}


def _command(header: Mapping[str, Any]) -> str:
    command, number = header.get("command"), header.get("command_arguments")
    if not isinstance(command, str):
        return ""
    if not isinstance(number, int) or number < 1:
        return command
    return f"{command} ({count_of(number, 'argument')}, not recorded)"


def call_profiles(events: pd.DataFrame, directories: Mapping[int, Path]) -> pd.DataFrame:
    """Return the last call profile of each worker and function, with the path of its file.

    `directories` contains the directory of each worker's files, by worker id.
    """
    last = events.drop_duplicates(["worker_id", "name"], keep="last").reset_index(drop=True)
    files = zip(last.pop("file").astype(object), last["worker_id"].tolist(), strict=True)
    paths = [
        # A name that contains a directory could refer to a file outside of the directory of the
        # trace.
        str(directories[worker] / name)
        if isinstance(name, str) and worker in directories and Path(name).name == name
        else None
        for name, worker in files
    ]
    return last.assign(path=pd.Series(paths, dtype=object))
