"""What a run had under way at its end, as far as the scheduler and its files tell."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import pandas as pd

from dasfprof.analysis.run.worker_exits import (
    FIRE_AND_FORGET,
    clients_stayed,
    crashed,
    last_client_left,
    left_with_work,
)
from dasfprof.analysis.trace import Trace
from dasfprof.analysis.trace.trace import once_per_trace
from dasfprof.database.columns import Array
from dasfprof.database.ends import RecordingEnd

# --- Errors that came with the end of a program: they are not why it ended ------------------------
#
# Ctrl-C in a terminal sends SIGINT to all processes of a program, those that tasks started as well:
# a task that had waited for one for hours then ends in an error, just before or after its client
# leaves. The errors of such tasks tell of the signal, as nothing else in a trace does.

#: How the text of an exception begins where SIGINT ended a child process: `subprocess` returns the
#: number of the signal, shells 128 more.
_BY_SIGINT = re.compile(r"CalledProcessError\((-2|130)\b|KeyboardInterrupt\b")
#: Seconds between the signal and the end of the program, at most, in whichever order.
_ENDS = 3.0


def first_interrupted(trace: Trace, ended: float) -> float:
    """Return when SIGINT first ended what a task waited for, as the program ended.

    Parameters
    ----------
    trace
        The trace.
    ended
        When the last client, or all workers, left.

    Returns
    -------
    float
        Unix seconds; NaN where no error tells of it.
    """
    ends = interrupted_ends(trace)
    ends = ends[np.abs(ends - ended) <= _ENDS]
    return float(ends.min()) if len(ends) else float("nan")


@once_per_trace
def interrupted_ends(trace: Trace) -> Array:
    """Return when the task runs ended whose errors tell of SIGINT, in Unix seconds."""
    tasks, only = trace.tasks, trace.scheduler_only
    ends = []
    for messages, ended in (
        (tasks["exception"], tasks["start"] + tasks["duration"]),
        (only["scheduler_exception"], only["known"]),
    ):
        texts = messages.astype("category").cat.categories
        telling = [text for text in texts if _BY_SIGINT.match(str(text))]
        ends.append(ended[messages.isin(telling).to_numpy(dtype=bool)].to_numpy(dtype=float))
    return np.concatenate(ends)


# --- Task runs that clients gave up, by the stimuli that ended them -------------------------------

#: The causes, in Dask's stimulus ids, of a task that a client gave up: by leaving, by dropping its
#: futures or by restarting all workers, and by cancelling them.
RESTARTED = ("client-restart",)
DROPPED = ("remove-client", "client-releases-keys", *RESTARTED)
CANCELLED = "cancel-key"
#: Those of a task that nobody needs any more since another one ended.
NOT_NEEDED = ("task-erred", "task-finished")


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
    """Return which task runs, rows of a table, were given up before they ended: by a client."""
    if "end_cause" not in runs or not len(runs):
        return np.zeros(len(runs), dtype=bool)
    released: Array = runs["scheduler_state"].isin(["released", "forgotten"]).to_numpy().copy()
    rows = np.flatnonzero(released)
    released[rows] = begins_with(stimulus_texts(trace, runs["end_cause"].iloc[rows]), causes)
    return released


#: Seconds after work was given up in which what had ended before is still reported.
_AFTERMATH = 1.0
#: Seconds within which workers leave that leave together, and after which the recording ends.
_TOGETHER, _ENDING = 3.0, 15.0


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
    #: Clients gave up what they waited for, and as far as is known none left.
    clients_stayed: bool = False

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


@dataclass(frozen=True)
class Endings:
    """What task runs tell of the end of a run: all of them, or those of a part of it."""

    #: When a client last gave one up, and when the last ended; NaN: none did.
    given_up: float
    last: float
    #: Whether one is under way.
    open: bool
    #: How many ended soon after each of `_open_states`, of those that had come before it; and how
    #: many after it by the files of workers alone, as the scheduler's was cut or it was killed.
    soon: tuple[int, ...]
    on_workers: tuple[int, ...]
    #: How many had ended before `_interrupted`, of those that had come before its state.
    uninterrupted: int

    @classmethod
    def of(cls, trace: Trace) -> Endings:
        """Find what those of a trace tell."""
        gave_up, tasks = [float("nan")], trace.tasks
        for runs in (trace.scheduler_only, tasks):
            own = given_up(trace, runs)
            if own.any():
                gave_up.append(float(runs["known"].to_numpy()[own].max()))
        last = float("nan")
        if "known" in tasks:
            ended = tasks["scheduler_state"].isin(["memory", "erred"]).to_numpy()
            last = float(np.fmax.reduce(tasks["known"].to_numpy()[ended], initial=np.nan))
        interrupted = _interrupted(trace)
        processing = trace.scheduler_only["scheduler_state"] == "processing"
        return cls(
            float(np.fmax.reduce(gave_up)),
            last,
            bool(len(trace.under_way) or processing.any()),
            tuple(_ended(trace, end, _AFTERMATH) for end in _open_states(trace)),
            tuple(_ended_on_workers(trace, end) for end in _open_states(trace)),
            _ended(trace, interrupted) if interrupted is not None else 0,
        )

    @classmethod
    def of_all(cls, parts: Sequence[Endings]) -> Endings:
        """Put those of all parts of a run together, which know when it began and ended."""
        return cls(
            float(np.fmax.reduce([part.given_up for part in parts])),
            float(np.fmax.reduce([part.last for part in parts])),
            any(part.open for part in parts),
            tuple(map(sum, zip(*(part.soon for part in parts), strict=True))),
            tuple(map(sum, zip(*(part.on_workers for part in parts), strict=True))),
            sum(part.uninterrupted for part in parts),
        )


@once_per_trace
def find_run_end(trace: Trace) -> RunEnd | None:
    """Find what a run had under way at its end; None if nothing, as far as is known."""
    return run_end_of(trace, Endings.of(trace))


def run_end_of(trace: Trace, endings: Endings) -> RunEnd | None:
    """Find what a run had under way at its end, of a trace that need not have its task runs."""
    states, interrupted = trace.scheduler_states, _interrupted(trace)
    if interrupted is not None and not _went_on(trace, endings, _program_ended(trace)[0]):
        # Those that the signal ended were under way: no less than one was.
        left = max((interrupted.unfinished or 0) - endings.uninterrupted, 1)
        # A moment before, as these tasks had not ended then.
        time = float(np.nextafter(interrupted.time, 0))
        state = {**(interrupted.state or {}), "unfinished": left}
        return dataclasses.replace(interrupted, time=time, state=state)
    gave_up = float(np.fmax(left_with_work(states), endings.given_up))
    for open_, soon, on_workers in zip(
        _open_states(trace), endings.soon, endings.on_workers, strict=True
    ):
        end = open_
        if on_workers:  # of which states and functions the others are is unknown
            left = (end.unfinished or 0) - on_workers
            state = {**(end.state or {}), "tasks": None, "unfinished": left}
            end = dataclasses.replace(end, state=state)
        # Workers that leave after their last client are shut down by it.
        if end.how is How.BROKEN_UP and gave_up <= end.time:
            continue
        if (end.unfinished or 0) > soon and not _went_on(trace, endings, end.time):
            return end
    if np.isfinite(gave_up) and not _went_on(trace, endings, gave_up):
        stayed = clients_stayed(trace, gave_up)
        return RunEnd(gave_up, How.LEFT, _state_at(states, gave_up), clients_stayed=stayed)
    if not len(states) and endings.open:
        return RunEnd(trace.end, _how(trace), None)
    return None


def _program_ended(trace: Trace) -> tuple[float, How]:
    """Return when its last client, or all workers, left, and which; NaN: neither is known."""
    client_left, broken_up = last_client_left(trace), _broken_up(trace)
    if client_left <= broken_up or np.isnan(broken_up):
        return client_left, How.LEFT
    return broken_up, How.BROKEN_UP


def _interrupted(trace: Trace) -> RunEnd | None:
    """Return the end of a run whose errors tell of SIGINT: when that came."""
    ended, how = _program_ended(trace)
    time = min(first_interrupted(trace, ended), ended)
    state = _state_at(trace.scheduler_states, time) if np.isfinite(time) else None
    return None if state is None else RunEnd(time, how, state, True)


def _open_states(trace: Trace) -> list[RunEnd]:
    """Return the states in which work was under way that may have held at the run's end.

    That is the last before all workers left together, if they did, and the last of all.
    """
    states = trace.scheduler_states
    if not len(states):
        return []
    ends, broken_up = [], _broken_up(trace)
    before = states[states["time"] <= broken_up]
    if len(before):
        ends.append(RunEnd(broken_up, How.BROKEN_UP, _record(before.iloc[-1])))
    last = _record(states.iloc[-1])
    if last["occasion"] != "client-left":
        # It holds to the end of the trace, unless something closed then.
        until = float(last["time"]) if last["occasion"] == "closing" else float(trace.end)
        ends.append(RunEnd(until, _how(trace), last))
    return [end for end in ends if end.unfinished]


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
    first = float(left[together].min())
    if trace.end - last > limit or (joined >= first).any() or _gave_up_tasks(trace, first):
        return float("nan")
    return first


def _gave_up_tasks(trace: Trace, since: float) -> bool:
    """Return whether tasks were given up from a time on, as one worker after the other had died."""
    for runs in (trace.scheduler_only, trace.tasks):
        if "known" not in runs:
            continue
        late = (runs["scheduler_state"] == "erred") & (runs["known"] >= since)
        causes = stimulus_texts(trace, runs["end_cause"][late.to_numpy(dtype=bool)])
        if not begins_with(causes, NOT_NEEDED).all():
            return True
    return False


def _ended(trace: Trace, end: RunEnd, aftermath: float = 0.0) -> int:
    """Count the runs under way in the state of an end that ended by then, or soon after it."""
    count, since, until = 0, float((end.state or {})["time"]), end.time + aftermath
    for runs in (trace.tasks, trace.scheduler_only):
        if "known" in runs:
            came = np.fmin(runs["scheduler_waiting"].to_numpy(), runs["sent"].to_numpy())
            known = runs["known"].to_numpy()
            ended = runs["scheduler_state"].isin(["memory", "erred"]).to_numpy() & (came <= since)
            count += int(np.count_nonzero(ended & (known > since) & (known <= until)))
    return count


def _ended_on_workers(trace: Trace, end: RunEnd) -> int:
    """Count the tasks that ended after the state of an end, as workers alone recorded.

    The scheduler's file tells of none of them where it was cut, or the scheduler was killed. Nor
    does the state of those that had ended just before, and been reported since.
    """
    if end.how is not How.CUT:
        return 0
    tasks, since = trace.tasks, float((end.state or {})["time"])
    stop = (tasks["start"] + tasks["duration"]).to_numpy(dtype=float)
    ended = tasks["state"].isin(["memory", "erred"]).to_numpy() & (stop > since - _AFTERMATH)
    if "known" in tasks:
        ended = ended & np.isnan(tasks["known"].to_numpy(dtype=float))
    return len(np.unique(tasks["key_id"].to_numpy()[ended]))


def _went_on(trace: Trace, endings: Endings, since: float) -> bool:
    """Return whether graphs came, or tasks ended, after a time."""
    graphs = len(trace.graphs) > 0 and float(trace.graphs["time"].max()) > since
    return graphs or endings.last > since + _AFTERMATH


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


def _how(trace: Trace) -> How:
    ends = {RecordingEnd.GOES_ON: How.GOES_ON, RecordingEnd.CLOSED: How.CLOSED}
    return ends.get(trace.recording, How.CUT)
