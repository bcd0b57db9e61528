"""What a run had under way at its end, as far as the scheduler and its files tell."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import pandas as pd

from dasfprof.analysis.model.interrupts import first_interrupted
from dasfprof.analysis.model.once_per_trace import once_per_trace
from dasfprof.analysis.model.worker_exits import crashed
from dasfprof.analysis.trace import Trace
from dasfprof.analysis.trace.under_way import RecordingEnd
from dasfprof.database.columns import Array

#: The causes, in Dask's stimulus ids, of a task that a client gave up: by leaving or by dropping
#: its futures, and by cancelling them.
DROPPED = ("remove-client", "client-releases-keys")
CANCELLED = "cancel-key"
#: Seconds after work was given up in which what had ended before is still reported.
_AFTERMATH = 1.0
#: Seconds within which workers leave that leave together, and after which the recording ends.
_TOGETHER, _ENDING = 3.0, 15.0
#: The client that Dask lets hold the tasks of `fire_and_forget`.
FIRE_AND_FORGET = "fire-and-forget"
#: The ids of clients that tasks use begin so.
_OF_TASKS = "Client-worker-"


class How(str, Enum):
    """What ended the time in which work was under way."""

    GOES_ON = "goes on"
    """The run is still being recorded."""
    CUT = "cut"
    """The evidence ends: processes were killed, or write elsewhere."""
    LEFT = "left"
    """Clients left, or released what they waited for."""
    CLOSED = "closed"
    """The recording, or the cluster, was closed meanwhile."""
    BROKEN_UP = "broken up"
    """All workers left together, as on Ctrl-C in a terminal, which all processes get."""


@dataclass(frozen=True)
class RunEnd:
    """The time until which a run had work under way, and how that time ended."""

    #: Unix seconds.
    time: float
    #: None: nothing was under way then.
    how: How | None
    #: The last of `Trace.scheduler_states` that holds then, or None.
    state: dict[str, Any] | None
    #: Errors of tasks tell that SIGINT ended what they waited for: it came at that time.
    interrupted: bool = False

    @property
    def only_forgotten(self) -> bool:
        """Whether nobody but `fire_and_forget` wanted what was under way."""
        clients = (self.state or {}).get("clients") or ()
        unfinished = {str(row.get("client")): row.get("unfinished") or 0 for row in clients}
        forgotten = unfinished.pop(FIRE_AND_FORGET, 0)
        return self.how is not How.GOES_ON and forgotten > 0 and not any(unfinished.values())

    @property
    def unfinished(self) -> int | None:
        """The number of unfinished tasks by the scheduler; None: unknown."""
        if self.state is None or not np.isfinite(self.state["unfinished"]):
            return None
        return int(self.state["unfinished"])


@once_per_trace
def find_run_end(trace: Trace) -> RunEnd | None:
    """Find what a run had under way at its end; None if nothing, as far as is known."""
    states = trace.scheduler_states
    last = _record(states.iloc[-1]) if len(states) else None
    broken_up = _broken_up(trace)
    interrupted = _interrupted(trace, last_client_left(trace), broken_up)
    if interrupted is not None:
        return interrupted
    before = states[states["time"] <= broken_up] if len(states) else states
    state = _record(before.iloc[-1]) if len(before) else None
    given_up = _given_up(trace)
    # Workers that leave after their last client are shut down by it.
    if state is not None and not given_up <= broken_up and _still_open(trace, state, broken_up):
        return RunEnd(broken_up, How.BROKEN_UP, state)
    if last is not None and last["occasion"] != "client-left":
        until = _until(trace, last)
        if _still_open(trace, last, until):
            return RunEnd(until, _how(trace), last)
    if np.isfinite(given_up) and not _went_on(trace, given_up):
        return RunEnd(given_up, How.LEFT, _state_at(states, given_up))
    if last is None and (len(trace.under_way) or _open_at_scheduler(trace).any()):
        return RunEnd(trace.end, _how(trace), None)
    return None


def _interrupted(trace: Trace, client_left: float, broken_up: float) -> RunEnd | None:
    """Return the end of a run whose errors tell of SIGINT: what was under way until it came."""
    ended = float(np.fmin(client_left, broken_up))
    time = min(first_interrupted(trace, ended), ended)
    state = _state_at(trace.scheduler_states, time) if np.isfinite(time) else None
    if state is None or _went_on(trace, ended):
        return None
    # Those that the signal ended were under way: no less than one was.
    left = max(state["unfinished"] - _ended(trace, float(state["time"]), time), 1)
    how = How.LEFT if client_left <= broken_up or np.isnan(broken_up) else How.BROKEN_UP
    # A moment before, as these tasks had not ended then.
    return RunEnd(float(np.nextafter(time, 0)), how, {**state, "unfinished": left}, True)


def is_persons(client: object) -> bool:
    """Return whether a client is that of a program, not one that Dask or a task made."""
    return client != FIRE_AND_FORGET and not str(client).startswith(_OF_TASKS)


def last_client_left(trace: Trace) -> float:
    """Return when the last client of a program left; NaN if one stayed, or nothing tells."""
    states = trace.scheduler_states
    for place in range(len(states) - 1, -1, -1):
        row = _record(states.iloc[place])
        left = row.get("client") if row["occasion"] == "client-left" else None
        there = {client["client"] for client in row["clients"] or ()} - {left}
        if any(map(is_persons, there)):
            break
        if left and is_persons(left):
            return float(row["time"])
    return float("nan")


def stimulus_texts(trace: Trace, ids: pd.Series) -> Array:
    """Return the texts of stimulus ids; empty where there is none."""
    numbers = np.nan_to_num(ids.to_numpy(dtype=float), nan=-1.0).astype(np.int64)
    texts = np.full(len(numbers), "", dtype=object)
    known = numbers >= 0
    texts[known] = trace.stimuli.texts(numbers[known])
    return texts


def begins_with(texts: Array, prefixes: tuple[str, ...]) -> Array:
    """Return which texts begin with one of some prefixes."""
    return np.array([text.startswith(prefixes) for text in texts], dtype=bool)


def given_up(trace: Trace, runs: pd.DataFrame, causes: tuple[str, ...] = DROPPED) -> Array:
    """Return which task runs, rows of a table, a client gave up before they ended."""
    if "end_cause" not in runs or not len(runs):
        return np.zeros(len(runs), dtype=bool)
    released: Array = runs["scheduler_state"].isin(["released", "forgotten"]).to_numpy().copy()
    rows = np.flatnonzero(released)
    released[rows] = begins_with(stimulus_texts(trace, runs["end_cause"].iloc[rows]), causes)
    return released


def _given_up(trace: Trace) -> float:
    """Return when a client last gave up work that was under way; NaN if none did."""
    found = [_left_with_work(trace.scheduler_states)]
    for runs in (trace.scheduler_only, trace.tasks):
        own = given_up(trace, runs)
        if own.any():
            found.append(float(runs["known"].to_numpy()[own].max()))
    return float(np.fmax.reduce(found))


def _left_with_work(states: pd.DataFrame) -> float:
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


def _broken_up(trace: Trace) -> float:
    """Return when all workers began to leave together, shortly before the end; else NaN."""
    workers = trace.workers[trace.workers["kind"] == "worker"]
    left, joined = workers["left"].to_numpy(dtype=float), workers["joined"].to_numpy(dtype=float)
    if not len(left) or not np.isfinite(left).all() or trace.recording is RecordingEnd.GOES_ON:
        return float("nan")
    last = float(left.max())
    together = last - left <= _TOGETHER
    if all(crashed(trace, life) for life in workers.index):
        return float("nan")
    # One worker alone may as well have died: then the program is told so, and goes on.
    limit = _ENDING if len(left) > 1 else _TOGETHER
    if trace.end - last > limit or (joined >= left[together].min()).any():
        return float("nan")
    return float(left[together].min())


def _still_open(trace: Trace, state: dict[str, Any], time: float) -> bool:
    """Return whether what was unfinished in a state had not all ended by a time, nor later."""
    if not state["unfinished"] > 0 or _went_on(trace, time):
        return False
    return bool(state["unfinished"] > _ended(trace, float(state["time"]), time + _AFTERMATH))


def _ended(trace: Trace, since: float, until: float) -> int:
    """Count the tasks that were there at a time and ended until another one."""
    count = 0
    for runs in (trace.tasks, trace.scheduler_only):
        if "known" in runs:
            came = np.fmin(runs["scheduler_waiting"].to_numpy(), runs["sent"].to_numpy())
            known = runs["known"].to_numpy()
            ended = runs["scheduler_state"].isin(["memory", "erred"]).to_numpy() & (came <= since)
            count += int(np.count_nonzero(ended & (known > since) & (known <= until)))
    return count


def _went_on(trace: Trace, since: float) -> bool:
    """Return whether graphs came, or tasks ended, after a time."""
    if len(trace.graphs) and float(trace.graphs["time"].max()) > since:
        return True
    tasks = trace.tasks
    if "known" not in tasks or not len(tasks):
        return False
    ended = tasks["scheduler_state"].isin(["memory", "erred"]).to_numpy()
    return bool((tasks["known"].to_numpy()[ended] > since + _AFTERMATH).any())


def _state_at(states: pd.DataFrame, time: float) -> dict[str, Any] | None:
    """Return the last state until a time in which work was under way.

    One in which workers close tells no more what it waited for: that is the one before, which held
    until then. On Ctrl-C in a terminal workers may close before their client has left.
    """
    known = states[(states["time"] <= time) & (states["unfinished"] > 0)] if len(states) else states
    if not len(known):
        return None
    last = state = _record(known.iloc[-1])
    for place in range(len(known) - 1, -1, -1):
        state = _record(known.iloc[place])
        if not _closes(state) or state["time"] <= last["time"] - _TOGETHER:
            break
    return last if _closes(state) else state


def _closes(state: dict[str, Any]) -> bool:
    return any(worker["status"] == "closing" for worker in state["workers"] or ())


def _record(row: pd.Series) -> dict[str, Any]:
    return {str(name): value for name, value in row.items()}


def _until(trace: Trace, last: dict[str, Any]) -> float:
    """Return until when a state holds: to the end of the trace, unless something closed then."""
    return float(last["time"]) if last["occasion"] == "closing" else float(trace.end)


def _how(trace: Trace) -> How:
    return {
        RecordingEnd.GOES_ON: How.GOES_ON,
        RecordingEnd.CLOSED: How.CLOSED,
    }.get(trace.recording, How.CUT)


def _open_at_scheduler(trace: Trace) -> Array:
    only = trace.scheduler_only
    if "scheduler_state" not in only:
        return np.zeros(0, dtype=bool)
    return (only["scheduler_state"] == "processing").to_numpy(dtype=bool)
