"""When clients left, how processes of workers ended, and what that proves of the cause."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from enum import Enum

import numpy as np
import pandas as pd

from dasfprof.analysis.run.memory_thresholds import memory_thresholds
from dasfprof.analysis.trace import Trace
from dasfprof.database.columns import Array
from dasfprof.database.ends import RecordingEnd
from dasfprof.text import clean, elide, format_duration, format_size, job_words

# --- How the process of a worker ended, and what its evidence proves of the cause -----------------

#: Signals of which one cause is the usual one.
_USUAL = {
    "SIGSEGV": "most often a crash in a C library",
    "SIGBUS": "often a crash in a C library, or a full /dev/shm",
    "SIGILL": "often code for another CPU",
    "SIGFPE": "most often a crash in a C library",
    "SIGABRT": "most often a C library that gave up",
}
#: Numbers of signals by which people and programs end a process: SIGHUP, SIGINT and SIGTERM.
_REQUESTS = (1, 2, 15)
#: Names of signals that the system of the analysis may lack, as Windows does.
_NAMES = {1: "SIGHUP", 3: "SIGQUIT", 6: "SIGABRT", 7: "SIGBUS", 9: "SIGKILL"}
#: The reason for which the scheduler gives up a worker without heartbeats, as Dask calls it.
_TTL = "check-worker-ttl"
#: A process may have died of memory that had such a share of its limit when it was last sampled, or
#: less where Dask kills it sooner. So may one whose host had no more than such a share left.
NEAR_LIMIT, _LITTLE_LEFT = 0.8, 0.05
#: Seconds before a worker left in which a killed process may have lost what it recorded; after
#: which another worker has sampled again; and within which an error is one that it may have ended
#: by.
_LOST, _LATER, _JUST = 3.0, 60.0, 10.0
#: Characters of an error that are told.
_LONGEST = 160


class Why(str, Enum):
    """What ended a worker, as far as evidence proves it."""

    SILENT = "silent"
    """The scheduler gave it up, as it had sent no heartbeat for longer than worker-ttl."""
    MEMORY = "memory"
    """Its nanny or the kernel said so; or its last sample was near its limit, or its host full."""
    CRASH = "crash"
    """A signal that the kernel sends to a process that does what it must not."""
    ERROR = "error"
    """It had just logged an error, and no signal ended it."""
    STATUS = "status"
    """It ended by itself."""
    AGE = "age"
    """Like other workers, at the same age as these, and far from its memory limit."""
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Departure:
    """How a life of a worker ended."""

    why: Why
    #: How its process ended, and what else is known of its end; empty: nothing.
    words: str
    evidence: str
    #: Bytes in its last sample, and its limit; NaN: unknown.
    memory: float
    limit: float
    #: Whether its host had next to no memory left.
    host_was_full: bool
    #: The last error that Dask had logged there just before; empty: none.
    error: str
    #: The share of its limit from which its process may have died of memory.
    near: float = NEAR_LIMIT
    #: Seconds that the processes of such workers had run at least and at most, if that explains it.
    ages: tuple[float, float] | None = None


def departure(trace: Trace, life: int) -> Departure:
    """Return how a life of a worker ended, by all that tells of it."""
    row = trace.workers.iloc[life]
    left, limit = float(row["left"]), float(row["memory_limit"])
    samples = trace.samples.reindex(columns=["worker_id", "time", "memory"])
    samples = samples[(samples["worker_id"] == life) & (samples["time"] <= left)].dropna()
    sampled, memory = samples[["time", "memory"]].to_numpy()[-1] if len(samples) else (np.nan,) * 2
    killed = _killed_in_group(trace, str(row["host"]), left)
    available, total = (
        _near(trace, str(row["host"]), f"host_memory_{name}", left)
        for name in ("available", "total")
    )
    quiet = left - sampled
    cut = pd.notna(row["closed"]) and not row["closed"] and quiet > _LOST + 2 * _interval(trace)
    recent = isinstance(row["last_error"], str) and left - row["last_error_time"] <= _JUST
    error = elide(clean(row["last_error"]), _LONGEST) if recent else ""
    host_was_full = available <= _LITTLE_LEFT * total
    facts = [
        f"its process had {format_size(memory)} of a limit of {format_size(limit)} when it was "
        f"last sampled, {format_duration(quiet)} before"
        if np.isfinite(memory + limit)
        else "",
        "nothing of it was recorded after that, so that none of its threads ran: C code held the "
        "interpreter's lock, or the process was stopped"
        if cut
        else "",
        f"the kernel had killed {killed:.0f} more of its host's processes for want of memory by "
        "then"
        if killed > 0
        else "",
        f"its host had {format_size(available)} of {format_size(total)} left"
        if host_was_full
        else "",
        f"its job was {elide(clean(job), _LONGEST)}: how that ended, its system's own log says"
        if (job := job_words(row["job"]))
        else "",
        f"the last error that Dask logged there, {format_duration(left - row['last_error_time'])} "
        f"before, was {error}"
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
    """Return the longest time in seconds for which a healthy worker's files may not grow."""
    settings = trace.surroundings.settings
    names = ("dasfprof.sample-interval", "dasfprof.flush-interval")
    seconds = pd.to_numeric(pd.Series([settings.get(name) for name in names]), errors="coerce")
    return float(seconds.fillna(1.0).max())


def _near(trace: Trace, host: str, name: str, time: float) -> float:
    """Return what was last read of a host before a time, if that was just before; else NaN."""
    samples = trace.samples.reindex(columns=["worker_id", "time", name]).dropna()
    own = samples[_on_host(trace, samples, host) & (samples["time"] <= time).to_numpy()]
    own = own[(own["time"] > time - _LOST).to_numpy()].sort_values("time", kind="stable")
    return float(own[name].iloc[-1]) if len(own) else np.nan


def _on_host(trace: Trace, samples: pd.DataFrame, host: str) -> Array:
    hosts = trace.workers["host"].to_numpy(dtype=object)[samples["worker_id"].to_numpy(np.int64)]
    return hosts == host


def _killed_in_group(trace: Trace, host: str, left: float) -> float:
    """Return how many processes the kernel killed for want of memory as a worker left.

    A control group is that of its workers of one label, which the next life of each shares.
    """
    samples = trace.samples.reindex(columns=["worker_id", "time", "oom_kills"]).dropna()
    samples = samples[_on_host(trace, samples, host)].sort_values("time", kind="stable")
    labels = trace.workers["worker"].to_numpy(dtype=object)[samples["worker_id"].to_numpy(np.int64)]
    most = 0.0
    for _, own in samples.groupby(labels):
        times, counts = own["time"].to_numpy(), own["oom_kills"].to_numpy(dtype=float)
        before, after = counts[times <= left - _LOST], counts[times <= left + _LATER]
        if len(after):
            most = max(most, float(after[-1] - (before[-1] if len(before) else after[0])))
    return most


def exit_words(trace: Trace, life: int) -> str:
    """Say how the process of a life of a worker ended; empty where nothing tells."""
    row = trace.workers.iloc[life]
    if str(row["left_reason"]).startswith(_TTL):
        seconds = f" for {format_duration(row['silent'])}" if np.isfinite(row["silent"]) else ""
        ended = ", and ended by its nanny" if np.isfinite(row["exit_code"]) else ""
        return (
            f"given up by the scheduler, which had no heartbeat of it{seconds} "
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
    except ValueError:  # not of this system
        return _NAMES.get(int(-code), f"signal {int(-code)}")


def crashed(trace: Trace, life: int) -> bool:
    """Return whether the process of a worker is known to have been killed, by no one's request."""
    code = float(trace.workers["exit_code"].iloc[life])
    return code < 0 and -code not in _REQUESTS


# --- When clients left, as the scheduler's states tell --------------------------------------------

#: The client that Dask lets hold the tasks of `fire_and_forget`.
FIRE_AND_FORGET = "fire-and-forget"
#: The ids of clients that tasks use begin so.
_OF_TASKS = "Client-worker-"
#: Seconds within which a client leaves that has given up what it waited for.
_AT_ONCE = 3.0


def is_persons(client: object) -> bool:
    """Return whether a client is that of a program, not one that Dask or a task made."""
    return client != FIRE_AND_FORGET and not str(client).startswith(_OF_TASKS)


def last_client_left(trace: Trace) -> float:
    """Return when the last client of a program left; NaN if one stayed, or nothing tells."""
    states = trace.scheduler_states
    for place in range(len(states) - 1, -1, -1):
        row = states.iloc[place]
        left = row.get("client") if row["occasion"] == "client-left" else None
        there = {client["client"] for client in row["clients"] or ()} - {left}
        if any(map(is_persons, there)):
            break
        if left and is_persons(left):
            return float(row["time"])
    return float("nan")


def left_with_work(states: pd.DataFrame) -> float:
    """Return when a client last left whose tasks had not ended; NaN if none did."""
    rows = states.to_dict("records")
    for place in range(len(rows) - 1, -1, -1):
        row = rows[place]
        if row["occasion"] != "client-left" or not row["unfinished"] > 0:
            continue
        waiting = {client["client"] for client in row["clients"] or () if client.get("unfinished")}
        staying = {
            client["client"] for later in rows[place + 1 :] for client in later["clients"] or ()
        }
        if not waiting or waiting - staying - {FIRE_AND_FORGET}:
            return float(row["time"])
    return float("nan")


def clients_stayed(trace: Trace, gave_up: float) -> bool:
    """Return whether no client left as work was given up, or later, while that was recorded."""
    states = trace.scheduler_states
    if not len(states):
        return False
    left = (states["occasion"] == "client-left").to_numpy(dtype=bool)
    left = left & (states["time"] >= gave_up - _AT_ONCE).to_numpy(dtype=bool)
    # One that left with nothing, while another stayed, gave nothing up.
    stayed = np.isnan(last_client_left(trace))
    for row in states[left].to_dict("records"):
        own = [client for client in row["clients"] or () if client["client"] == row["client"]]
        if not stayed or not own or any(client.get("unfinished") for client in own):
            return False
    later = states["clients"][(states["time"] > gave_up).to_numpy(dtype=bool)]
    seen = any(is_persons(client["client"]) for clients in later for client in clients or ())
    return trace.recording is RecordingEnd.CLOSED or (stayed and seen)
