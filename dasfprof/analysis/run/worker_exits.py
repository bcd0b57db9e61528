"""How worker processes ended, what the evidence proves about the cause, and when clients left."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from enum import Enum

import numpy as np
import pandas as pd

from dasfprof.analysis.run.memory_thresholds import memory_thresholds
from dasfprof.analysis.trace import Trace
from dasfprof.database.columns import Array
from dasfprof.database.ends import End
from dasfprof.text import clean, elide, format_duration, format_size, job_words

#: Usual cause of a signal, for signals that have one.
_USUAL = {
    "SIGSEGV": "most often a crash in a C library",
    "SIGBUS": "often a crash in a C library, or a full /dev/shm",
    "SIGILL": "often code for another CPU",
    "SIGFPE": "most often a crash in a C library",
    "SIGABRT": "most often an abort in a C library",
}
#: Names of signals that may not exist on the system on which the analysis runs, such as Windows.
_NAMES = {1: "SIGHUP", 3: "SIGQUIT", 6: "SIGABRT", 7: "SIGBUS", 9: "SIGKILL"}
#: Reason that Dask records if the scheduler removes a worker that sent no heartbeats.
_TTL = "check-worker-ttl"
#: Threshold (fraction of the limit in the last sample): the process may have been killed because of
#: memory. It is lower if Dask kills the process earlier. Then threshold (fraction of the host's
#: memory that was available) for the same conclusion.
NEAR_LIMIT, _LITTLE_LEFT = 0.8, 0.05
#: Seconds before the end of a killed process whose records may be lost. Then seconds after which
#: another worker has sampled again. Then maximum seconds between an error and the end of the
#: process that it may have caused.
_LOST, _LATER, _JUST = 3.0, 60.0, 10.0
#: Maximum number of characters of an error that are quoted.
_LONGEST = 160


class Why(str, Enum):
    """Cause of the end of a worker, as far as the evidence proves it."""

    SILENT = "silent"
    """The scheduler removed it because it had sent no heartbeat for longer than worker-ttl."""
    MEMORY = "memory"
    """Its nanny or the kernel reported it, its last sample was near its limit, or its host full."""
    CRASH = "crash"
    """A signal that the kernel sends after a fault in the process."""
    ERROR = "error"
    """It had just logged an error, and was not killed by a signal."""
    STATUS = "status"
    """It ended by itself."""
    AGE = "age"
    """It ended at the same age as other workers, far from its memory limit."""
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Departure:
    """How a worker instance ended, with evidence."""

    why: Why
    #: Description of how the process ended, and description of further evidence. Empty if unknown.
    words: str
    evidence: str
    #: Bytes in the worker's last memory sample, and its memory limit, or NaN if unknown.
    memory: float
    limit: float
    #: Whether the worker's host had almost no available memory.
    host_was_full: bool
    #: Last error that Dask logged in the worker's process shortly before the end, or empty.
    error: str
    #: Threshold (fraction of the limit): the process may have been killed because of memory.
    near: float = NEAR_LIMIT
    #: Minimum and maximum age in seconds of workers that ended at the same age, if age is the
    #: cause.
    ages: tuple[float, float] | None = None


def departure(trace: Trace, life: int) -> Departure:
    """Return how a worker instance ended, using all evidence in the trace."""
    row = trace.workers.iloc[life]
    host, left, limit = str(row["host"]), float(row["left"]), float(row["memory_limit"])
    samples = trace.samples.reindex(columns=["worker_id", "time", "memory"])
    samples = samples[(samples["worker_id"] == life) & (samples["time"] <= left)].dropna()
    sampled, memory = samples[["time", "memory"]].to_numpy()[-1] if len(samples) else (np.nan,) * 2
    killed = _killed_in_group(trace, host, left)
    available = _near(trace, host, "host_memory_available", left)
    total = _near(trace, host, "host_memory_total", left)
    quiet = left - sampled
    cut = pd.notna(row["closed"]) and not row["closed"] and quiet > _LOST + 2 * _interval(trace)
    recent = isinstance(row["last_error"], str) and left - row["last_error_time"] <= _JUST
    error = elide(clean(row["last_error"]), _LONGEST) if recent else ""
    host_was_full = available <= _LITTLE_LEFT * total
    facts = [
        f"its process had {format_size(memory)} of a limit of {format_size(limit)} in its last "
        f"sample, {format_duration(quiet)} earlier"
        if np.isfinite(memory + limit)
        else "",
        "nothing was recorded after that, so none of its threads ran: C code held the GIL, or "
        "the process was stopped"
        if cut
        else "",
        f"the kernel had killed {killed:.0f} more of its host's processes because memory ran out"
        if killed > 0
        else "",
        f"its host had {format_size(available)} of {format_size(total)} available"
        if host_was_full
        else "",
        (
            f"its job was {elide(clean(job), _LONGEST)}, and the log of the batch system shows how "
            "the job ended"
        )
        if (job := job_words(row["job"]))
        else "",
        "the last error that Dask logged there, "
        f"{format_duration(left - row['last_error_time'])} earlier, was {error}"
        if recent
        else "",
    ]
    code = float(row["exit_code"])
    near = memory_thresholds(trace, life).near(NEAR_LIMIT)
    full = memory >= near * limit or host_was_full
    if str(row["left_reason"]).startswith(_TTL):
        why = Why.SILENT
    elif isinstance(row["exit_reason"], str) or (not code >= 0 and (killed > 0 or full)):
        why = Why.MEMORY
    elif code < 0 and _signal_name(code) in _USUAL:
        why = Why.CRASH
    elif recent and not code < 0:
        why = Why.ERROR
    else:
        why = Why.STATUS if code >= 0 else Why.UNKNOWN
    words, evidence = exit_words(trace, life), "; ".join(filter(None, facts))
    return Departure(why, words, evidence, memory, limit, host_was_full, error, near)


def _interval(trace: Trace) -> float:
    """Return the maximum seconds between two writes to the files of a healthy worker."""
    settings = trace.surroundings.settings
    names = ("dasfprof.sample-interval", "dasfprof.flush-interval")
    seconds = pd.to_numeric(pd.Series([settings.get(name) for name in names]), errors="coerce")
    return float(seconds.fillna(1.0).max())


def _near(trace: Trace, host: str, name: str, time: float) -> float:
    """Return the last sampled value of column `name` on a host shortly before `time`, or NaN."""
    samples = trace.samples.reindex(columns=["worker_id", "time", name]).dropna()
    near = samples[_on_host(trace, samples, host) & (samples["time"] <= time).to_numpy()]
    near = near[(near["time"] > time - _LOST).to_numpy()].sort_values("time", kind="stable")
    return float(near[name].iloc[-1]) if len(near) else np.nan


def _on_host(trace: Trace, samples: pd.DataFrame, host: str) -> Array:
    hosts = trace.workers["host"].to_numpy(dtype=object)[samples["worker_id"].to_numpy(np.int64)]
    return hosts == host


def _killed_in_group(trace: Trace, host: str, left: float) -> float:
    """Return how many processes of a worker's control group the kernel killed when it left."""
    samples = trace.samples.reindex(columns=["worker_id", "time", "oom_kills"]).dropna()
    samples = samples[_on_host(trace, samples, host)].sort_values("time", kind="stable")
    labels = trace.workers["worker"].to_numpy(dtype=object)[samples["worker_id"].to_numpy(np.int64)]
    # All worker instances on a host with the same label are in the same control group. Only
    # processes that were killed for lack of memory count.
    most = 0.0
    for _, group in samples.groupby(labels):
        times, counts = group["time"].to_numpy(), group["oom_kills"].to_numpy(dtype=float)
        before, after = counts[times <= left - _LOST], counts[times <= left + _LATER]
        if len(after):
            most = max(most, float(after[-1] - (before[-1] if len(before) else after[0])))
    return most


def exit_words(trace: Trace, life: int) -> str:
    """Return a description of how the process of a worker instance ended, or "" if unknown."""
    row = trace.workers.iloc[life]
    if str(row["left_reason"]).startswith(_TTL):
        seconds = f" for {format_duration(row['silent'])}" if np.isfinite(row["silent"]) else ""
        ended = ", and ended by its nanny" if np.isfinite(row["exit_code"]) else ""
        return (
            f"removed by the scheduler, which had received no heartbeat from it{seconds} "
            f"(distributed.scheduler.worker-ttl){ended}"
        )
    if isinstance(row["exit_reason"], str):
        return f"ended by its nanny: {clean(row['exit_reason']).rstrip('. ')}"
    if not np.isfinite(row["exit_code"]):
        return ""
    code = int(row["exit_code"])
    if code >= 0:
        return f"ended with exit status {code}"
    name = _signal_name(code)
    usual = f" ({_USUAL[name]})" if name in _USUAL else ""
    return f"killed by {name}{usual}"


def _signal_name(code: float) -> str:
    try:
        return signal.Signals(int(-code)).name
    except ValueError:  # Not a signal of this system.
        return _NAMES.get(int(-code), f"signal {int(-code)}")


#: Name of the client to which Dask assigns the tasks of `fire_and_forget`.
FIRE_AND_FORGET = "fire-and-forget"
#: Prefix of the ids of clients that belong to tasks.
_OF_TASKS = "Client-worker-"
#: Maximum seconds from releasing its futures until a client that leaves has left.
_AT_ONCE = 3.0


def is_program_client(client: object) -> bool:
    """Return whether a client belongs to a program, and not to Dask or to a task."""
    return client != FIRE_AND_FORGET and not str(client).startswith(_OF_TASKS)


def last_client_left(trace: Trace) -> float:
    """Return when the last client of a program left, or NaN if unknown or if a client stayed."""
    states = trace.scheduler_states
    for place in range(len(states) - 1, -1, -1):
        row = states.iloc[place]
        left = row.get("client") if row["occasion"] == "client-left" else None
        connected = {client["client"] for client in row["clients"] or ()} - {left}
        if any(map(is_program_client, connected)):
            break
        if left and is_program_client(left):
            return float(row["time"])
    return float("nan")


def left_with_work(states: pd.DataFrame) -> float:
    """Return when a client with unfinished tasks last left, or NaN if none did."""
    staying = {FIRE_AND_FORGET}
    for row in reversed(states.to_dict("records")):
        clients = row["clients"] or ()
        if row["occasion"] == "client-left" and row["unfinished"] > 0:
            waiting = {client["client"] for client in clients if client.get("unfinished")}
            if not waiting or waiting - staying:
                return float(row["time"])
        staying.update(client["client"] for client in clients)
    return float("nan")


def clients_stayed(trace: Trace, cancelled_at: float) -> bool:
    """Return whether it is certain that no client with unfinished tasks left since a cancellation.

    `cancelled_at` is the time of the cancellation.
    """
    states = trace.scheduler_states
    if not len(states):
        return False
    left = (states["occasion"] == "client-left").to_numpy(dtype=bool)
    left = left & (states["time"] >= cancelled_at - _AT_ONCE).to_numpy(dtype=bool)
    # If a client without unfinished tasks left while another client stayed, it cancelled nothing.
    stayed = np.isnan(last_client_left(trace))
    for row in states[left].to_dict("records"):
        leaving = [client for client in row["clients"] or () if client["client"] == row["client"]]
        if not stayed or not leaving or any(client.get("unfinished") for client in leaving):
            return False
    later = states["clients"][(states["time"] > cancelled_at).to_numpy(dtype=bool)]
    seen = any(is_program_client(client["client"]) for clients in later for client in clients or ())
    return trace.recording is End.CLOSED or (stayed and seen)
