"""What the files of a run tell of its recording: with what it was done, and a note for each gap."""

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
from dasfprof.database.reader import Window
from dasfprof.text import count_of, format_date, format_duration

# --- `Note`: something that a trace lacks or that was lost of it, for people and for rules --------

NoteKind = Literal[
    "header-lost",  # nothing tells whose file it is
    "damaged-file",  # bytes of it could not be read
    "unknown-events",  # events of kinds that this version of dasfprof does not know
    "dropped-facts",  # the recorder could not write them
    "caught-errors",  # hooks of the recorder failed
    "goes-on",  # the run is still being recorded
    "client-gone",  # the run ended by itself, as its client was gone
    "not-closed",  # its process ended without closing it, or runs elsewhere
    "lost-events",  # had been written and are gone: how many in all
    "segment-missing",  # of a file of a long run, or events of one
    "file-missing",  # that another file of the same worker names
    "window",  # only a window of the run was read
    "missing-hook",  # a private name that the recorded Dask lacks
    "system",  # facts that the recorded system does not tell
    "clock",  # times that compare with no other host's
    "no-samples",  # nothing was sampled
    "gpu",  # GPUs, or readings of them, that there are not
    "steps",  # task runs without a step of the pipeline
    "no-worker-files",
    "no-scheduler-file",
    "no-cluster",  # Dask's own scheduler ran the tasks
    "input-sizes",  # inputs whose size no file tells
    "no-shuffle-messages",  # P2P shuffles moved bytes that no file tells
    "lost-task-runs",  # seen by the scheduler and in no worker's file
]


@dataclass(frozen=True)
class Note:
    """What is missing, damaged or left out, and of what."""

    kind: NoteKind
    #: The file, host, worker or device that it is about; empty: the whole trace.
    subject: str
    #: One sentence for people, which names the subject.
    text: str

    def __str__(self) -> str:
        return self.text


NO_WORKER_FILES = Note(
    "no-worker-files",
    "",
    "no worker's file: task runs are as the scheduler saw them, without failed attempts, inputs "
    "and CPU seconds.",
)

NO_SCHEDULER_FILE = Note(
    "no-scheduler-file",
    "",
    "no scheduler's file: queueing, and what workers that died did last, are unknown.",
)


def of_local(schedulers: Sequence[str]) -> Note:
    """Return a note that a run had no cluster, and what is NA for that."""
    text = (
        f"no cluster: Dask's own scheduler ran the tasks ({', '.join(schedulers)}). What a cluster "
        "alone has is NA: transfers, spilling, stealing, results in memory, lags of event loops."
    )
    if "processes" in schedulers:
        text += (
            " Of tasks in processes of a pool stacks, waits for a core, storage and code are NA, "
            "too."
        )
    return Note("no-cluster", "", text)


def of_cut_scheduler(name: str) -> Note:
    """Return a note that the scheduler's file ends before those of workers, which are closed."""
    text = (
        f"{name}: it was not closed, and does not tell that workers ended, whose files are all "
        "closed: it was cut, or its process has not written that yet. What follows is missing."
    )
    return Note("not-closed", name, text)


def of_client_gone(end: Mapping[str, Any]) -> Note:
    """Return a note that a run ended by itself, by the closing frame of the scheduler's file."""
    since, clock, when, gone = end.get("since"), end.get("clock"), "", ""
    at = clock[0] if isinstance(clock, tuple | list) and clock else None
    if isinstance(at, int | float) and isinstance(since, int | float) and since <= at:
        when, gone = f" on {format_date(at)} UTC", f" for {format_duration(at - since)}"
    text = (
        f"recording ended by itself{when}: the client that had begun it had been gone{gone}. What "
        "the cluster did since is not recorded."
    )
    return Note("client-gone", "", text)


def of_window(window: Window, tasks: pd.DataFrame) -> Note:
    """Return a note that only a window of the run was read, and what it cuts."""
    starts = tasks["start"].to_numpy()
    begun = int(np.count_nonzero(starts < window.begin))
    open_ends = int(np.count_nonzero(starts + tasks["duration"].to_numpy() > window.end))
    text = (
        f"only what overlaps {format_date(window.begin)} to {format_date(window.end)} UTC was "
        f"read. {count_of(begun, 'task run')} began before it, {open_ends:,} ended after it; what "
        "task runs waited for, and what waited for them, is unknown where it lies outside: "
        "critical path and replay are of the window alone."
    )
    return Note("window", "", text)


def of_shuffles(tasks: pd.DataFrame, messages: pd.DataFrame) -> Iterator[Note]:
    """Yield a note if the bytes that P2P shuffles moved between workers are unknown."""
    shuffled = (tasks["function"] == P2P_BARRIER).any()
    if shuffled and not len(messages) and tasks["worker_id"].nunique() > 1:
        text = "no messages of P2P shuffles: bytes that were moved are without these shuffles."
        yield Note("no-shuffle-messages", "", text)


def of_gpus(samples: pd.DataFrame, devices: pd.DataFrame, failures: pd.DataFrame) -> Iterator[Note]:
    """Yield notes of GPUs that could not be read, in full or in part."""
    if not len(samples):
        yield Note("no-samples", "", "no resource samples: the columns about GPUs are NA.")
        return
    last = devices.drop_duplicates("worker_id", keep="last")["availability"].astype(object)
    # Without the driver's library there is hardly a GPU.
    lacking = last[~last.isin(["available", "no library"])]
    for reason, count in lacking.value_counts().sort_index().items():
        where = count_of(count, "worker")
        yield Note("gpu", where, f"no full readings of a GPU on {where}: {reason}.")
    readings = samples.reindex(columns=["gpu_utilization", "gpu_memory_used"])
    if not len(devices) and readings.isna().to_numpy().all():
        yield Note("gpu", "", "no resource sample tells of a GPU: the columns about GPUs are NA.")
    failures = failures.reindex(columns=["uuid", "reason", "reading"]).astype(object)
    for (uuid, reason), group in failures.drop_duplicates().groupby(["uuid", "reason"], sort=True):
        yield Note("gpu", str(uuid), f"{uuid}: {', '.join(group['reading'])} not read: {reason}.")


def of_steps(steps: pd.Categorical, *, has_steps: bool) -> Iterator[Note]:
    """Yield a note if the pipeline has steps, and some task runs belong to none of them."""
    count = int(np.count_nonzero(steps.codes >= 0))
    if count < len(steps) and (count or has_steps):
        share = count / len(steps) * 100
        yield Note("steps", "", f"{share:.0f} % of task runs belong to a step of the pipeline.")


def of_input_sizes(sizes: Array) -> Iterator[Note]:
    """Yield a note of task runs whose inputs have unknown sizes (NaN)."""
    unknown = int(np.count_nonzero(np.isnan(sizes)))
    if unknown:
        text = f"{unknown} task runs have inputs whose size no file tells; it is NA."
        yield Note("input-sizes", "", text)


def of_lost_runs(runs: dict[str, Any], workers: Sequence[Worker]) -> Iterator[Note]:
    """Yield a note for each worker with runs that ended, as the scheduler saw, and are in no file.

    Parameters
    ----------
    runs
        Columns of the runs that are in no worker's file.
    workers
        By their ids.
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
            f"{label}: the scheduler saw {count} ({durations[rows].sum():.3f} s) there that no "
            f"worker's file holds ({runs['reason'][rows[0]]}); they are in trace.scheduler_only "
            "and in no table.",
        )


# --- `Surroundings`: with what a run was recorded, as the headers of its files tell it ------------


@dataclass(frozen=True)
class Surroundings:
    """With what a run was recorded. What no file tells is empty."""

    #: Of packages and Python, by name; several of one with a slash.
    versions: dict[str, str] = field(default_factory=dict)
    #: Of Dask and of the recording, by name.
    settings: dict[str, str] = field(default_factory=dict)
    #: Of each host the cores that its processes may run on, as Dask counts them.
    cores: dict[str, int] = field(default_factory=dict)
    #: The client's program. Its arguments are not recorded, only their number.
    command: str = ""
    #: Dask's own schedulers that ran its tasks without a cluster: threads, processes, sync.
    local: tuple[str, ...] = ()

    @classmethod
    def of(cls, headers: Iterable[Mapping[str, Any]]) -> Surroundings:
        """Gather what the headers of the files of a run tell."""
        headers = list(headers)
        cores: dict[str, int] = {}
        for header in headers:
            host, number = str(header.get("host", "")), header.get("cores")
            if isinstance(number, int):
                cores[host] = max(number, cores.get(host, 0))
        commands = dict.fromkeys(filter(None, map(_command, headers)))
        versions, settings = (_told(headers, entry) for entry in ("versions", "settings"))
        local = {str(header.get("local_scheduler") or "") for header in headers} - {""}
        return cls(versions, settings, cores, ", ".join(commands), tuple(sorted(local)))


def _told(headers: list[Mapping[str, Any]], entry: str) -> dict[str, str]:
    """Return the versions or settings that headers name, several of one with a slash."""
    values: dict[str, set[str]] = {}
    for header in headers:
        named = header.get(entry)
        for name, version in named.items() if isinstance(named, dict) else ():
            values.setdefault(str(name), set()).add(str(version))
    return {name: " / ".join(sorted(versions)) for name, versions in values.items()}


def _command(header: Mapping[str, Any]) -> str:
    command, number = header.get("command"), header.get("command_arguments")
    if not isinstance(command, str):
        return ""
    if not isinstance(number, int) or number < 1:
        return command
    return f"{command} ({count_of(number, 'argument')}, not recorded)"


# The profiles of calls that workers wrote beside their trace files: which there are, and where.


def call_profiles(events: pd.DataFrame, directories: Mapping[int, Path]) -> pd.DataFrame:
    """Return the last event of each worker and function, with the path of the file.

    Parameters
    ----------
    events
        All events.
    directories
        Of the files of each worker.
    """
    last = events.drop_duplicates(["worker_id", "name"], keep="last").reset_index(drop=True)
    files = zip(last.pop("file").astype(object), last["worker_id"].tolist(), strict=True)
    paths = [
        # Else it leads to another place than that of the trace.
        str(directories[worker] / name)
        if isinstance(name, str) and worker in directories and Path(name).name == name
        else None
        for name, worker in files
    ]
    return last.assign(path=pd.Series(paths, dtype=object))
