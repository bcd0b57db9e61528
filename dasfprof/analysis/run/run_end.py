"""Work in progress at the end of a run, as far as the files show it."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dasfprof.analysis.run.worker_exits import (
    FIRE_AND_FORGET,
    clients_stayed,
    last_client_left,
    left_with_work,
)
from dasfprof.analysis.trace import Trace
from dasfprof.analysis.trace.trace import once_per_trace
from dasfprof.database.columns import Array
from dasfprof.database.ends import End

# Ctrl-C in a terminal sends SIGINT to all processes of a program, including processes that tasks
# started. A task may have waited for such a process for hours. It then fails shortly before or
# after its client leaves. Only the errors of such tasks show in a trace that there was a signal.

#: Matches an exception if SIGINT ended a child process. `subprocess` returns the negative number of
#: the signal, and shells add 128 to the number.
_BY_SIGINT = re.compile(r"CalledProcessError\((-2|130)\b|KeyboardInterrupt\b")
#: Maximum seconds between the signal and the end of the program. Either may come first.
_ENDS = 3.0


@once_per_trace
def interrupted_ends(trace: Trace) -> Array:
    """Return the ends, in Unix seconds, of task runs whose errors show a SIGINT."""
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


#: Stimulus ids of the end of a task that a client cancelled. In `DROPPED`: the client left, it
#: released its futures, or it restarted all workers. `CANCELLED`: it called cancel().
RESTARTED = ("client-restart",)
DROPPED = ("remove-client", "client-releases-keys", *RESTARTED)
CANCELLED = "cancel-key"
#: Stimulus ids of the end of a task that was no longer needed after another task ended.
NOT_NEEDED = ("task-erred", "task-finished")


def stimulus_texts(trace: Trace, ids: pd.Series) -> Array:
    """Return the text of each stimulus id, or an empty text for missing ids."""
    numbers = np.nan_to_num(ids.to_numpy(dtype=float), nan=-1.0).astype(np.int64)
    texts = np.full(len(numbers), "", dtype=object)
    known = numbers >= 0
    texts[known] = trace.stimuli.texts(numbers[known])
    return texts


def begins_with(texts: Array, prefixes: tuple[str, ...]) -> Array:
    """Return a mask of the texts that begin with one of `prefixes`."""
    return np.array([text.startswith(prefixes) for text in texts], dtype=bool)


def cancelled_runs(trace: Trace, runs: pd.DataFrame, causes: tuple[str, ...] = DROPPED) -> Array:
    """Return a mask of those task runs in `runs` that a client cancelled before they ended.

    `causes` are the beginnings of the stimulus ids that count as cancelling.
    """
    if "end_cause" not in runs or not len(runs):
        return np.zeros(len(runs), dtype=bool)
    released: Array = runs["scheduler_state"].isin(["released", "forgotten"]).to_numpy().copy()
    rows = np.flatnonzero(released)
    released[rows] = begins_with(stimulus_texts(trace, runs["end_cause"].iloc[rows]), causes)
    return released


#: Seconds after a cancellation within which ends that happened before it may still be reported.
_AFTERMATH = 1.0
#: Maximum seconds between exits of workers that leave together. Then maximum seconds from these
#: exits to the end of recording.
_TOGETHER, _ENDING = 3.0, 15.0


@dataclass(frozen=True)
class RunEnd:
    """The end of the period in which a run had work in progress, and how this period ended."""

    #: End of the period in Unix seconds.
    time: float
    #: How the period ended, or None if nothing was in progress at its end.
    how: End | None
    #: The last row of `Trace.scheduler_states` that is valid at this time, or None.
    state: dict[Any, Any] | None
    #: Whether errors of tasks show that SIGINT ended the processes for which the tasks waited.
    interrupted: bool = False
    #: Whether clients released the futures for which they waited, and no client is known to have
    #: left.
    clients_stayed: bool = False

    @property
    def only_forgotten(self) -> bool:
        """Whether all unfinished work was requested by `fire_and_forget` alone."""
        clients = (self.state or {}).get("clients") or ()
        unfinished = {str(row.get("client")): row.get("unfinished") or 0 for row in clients}
        forgotten = unfinished.pop(FIRE_AND_FORGET, 0)
        return self.how is not End.GOES_ON and forgotten > 0 and not any(unfinished.values())

    @property
    def unfinished(self) -> int | None:
        """The number of unfinished tasks on the scheduler, or None if unknown."""
        if self.state is None or not np.isfinite(self.state["unfinished"]):
            return None
        return int(self.state["unfinished"])


@dataclass(frozen=True)
class Endings:
    """Facts about the end of a run, from the task runs of the full run or of one time window."""

    #: Time of the last cancellation by a client, and time of the last end of a task run. NaN if
    #: there is none.
    cancelled: float
    last: float
    #: Whether any task run is in progress.
    open: bool
    #: For each of `_open_states`: number of task runs that the scheduler knew at that state and
    #: that ended soon after it. Then number of task runs whose end after the state is only in
    #: workers' files, because the scheduler was killed or its file was truncated.
    soon: tuple[int, ...]
    on_workers: tuple[int, ...]
    #: Number of task runs that the scheduler knew at the state of `_interrupted` and that had ended
    #: before the interruption.
    uninterrupted: int

    @classmethod
    def from_trace(cls, trace: Trace) -> Endings:
        """Return what the task runs of a trace show about the end of the run.

        The trace is the full run or one time window.
        """
        cancelled_at, tasks = [float("nan")], trace.tasks
        for runs in (trace.scheduler_only, tasks):
            cancelled = cancelled_runs(trace, runs)
            if cancelled.any():
                cancelled_at.append(float(runs["known"].to_numpy()[cancelled].max()))
        last = float("nan")
        if "known" in tasks:
            ended = tasks["scheduler_state"].isin(["memory", "erred"]).to_numpy()
            last = float(np.fmax.reduce(tasks["known"].to_numpy()[ended], initial=np.nan))
        interrupted = _interrupted(trace)
        processing = trace.scheduler_only["scheduler_state"] == "processing"
        return cls(
            float(np.fmax.reduce(cancelled_at)),
            last,
            bool(len(trace.under_way) or processing.any()),
            tuple(_ended(trace, end, _AFTERMATH) for end in _open_states(trace)),
            tuple(_ended_on_workers(trace, end) for end in _open_states(trace)),
            _ended(trace, interrupted) if interrupted is not None else 0,
        )

    @classmethod
    def merged(cls, parts: Sequence[Endings]) -> Endings:
        """Combine the facts of all windows of a run."""
        return cls(
            float(np.fmax.reduce([part.cancelled for part in parts])),
            float(np.fmax.reduce([part.last for part in parts])),
            any(part.open for part in parts),
            tuple(map(sum, zip(*(part.soon for part in parts), strict=True))),
            tuple(map(sum, zip(*(part.on_workers for part in parts), strict=True))),
            sum(part.uninterrupted for part in parts),
        )


@once_per_trace
def find_run_end(trace: Trace) -> RunEnd | None:
    """Return the work that was in progress at the end of a run, or None if none is known."""
    return run_end_of(trace, Endings.from_trace(trace))


def run_end_of(trace: Trace, endings: Endings) -> RunEnd | None:
    """Return the work in progress at the end of a run, or None if all work had ended.

    `trace` need not contain the task runs.
    """
    states, interrupted = trace.scheduler_states, _interrupted(trace)
    if interrupted is not None and not _went_on(trace, endings, _program_ended(trace)[0]):
        # Task runs that the signal ended were in progress, so the number is at least 1.
        left = max((interrupted.unfinished or 0) - endings.uninterrupted, 1)
        # Use a time just before the signal, because these tasks had not ended then.
        time = float(np.nextafter(interrupted.time, 0))
        state = {**(interrupted.state or {}), "unfinished": left}
        return dataclasses.replace(interrupted, time=time, state=state)
    cancelled_at = float(np.fmax(left_with_work(states), endings.cancelled))
    for open_, soon, on_workers in zip(
        _open_states(trace), endings.soon, endings.on_workers, strict=True
    ):
        end = open_
        if on_workers:  # States and functions of the remaining tasks are unknown.
            left = (end.unfinished or 0) - on_workers
            state = {**(end.state or {}), "tasks": None, "unfinished": left}
            end = dataclasses.replace(end, state=state)
        # Workers that leave after the last client were shut down by that client.
        if end.how is End.BROKEN_UP and cancelled_at <= end.time:
            continue
        if (end.unfinished or 0) > soon and not _went_on(trace, endings, end.time):
            return end
    if np.isfinite(cancelled_at) and not _went_on(trace, endings, cancelled_at):
        stayed = clients_stayed(trace, cancelled_at)
        return RunEnd(
            cancelled_at, End.LEFT, _state_at(states, cancelled_at), clients_stayed=stayed
        )
    if not len(states) and endings.open:
        return RunEnd(trace.end, _how(trace), None)
    return None


def _program_ended(trace: Trace) -> tuple[float, End]:
    """Return when the program ended (NaN if unknown), and which event showed its end."""
    client_left, broken_up = last_client_left(trace), _broken_up(trace)
    # It ended when its last client left, or when all workers left.
    if client_left <= broken_up or np.isnan(broken_up):
        return client_left, End.LEFT
    return broken_up, End.BROKEN_UP


def _interrupted(trace: Trace) -> RunEnd | None:
    """Return the end of a run that a SIGINT ended, or None if no error shows a SIGINT."""
    ended, how = _program_ended(trace)
    ends = interrupted_ends(trace)
    ends = ends[np.abs(ends - ended) <= _ENDS]
    if not len(ends):
        return None
    time = min(float(ends.min()), ended)
    state = _state_at(trace.scheduler_states, time)
    return None if state is None else RunEnd(time, how, state, True)


def _open_states(trace: Trace) -> list[RunEnd]:
    """Return the scheduler's last states with unfinished tasks, as possible ends of the run."""
    states = trace.scheduler_states
    if not len(states):
        return []
    ends, broken_up = [], _broken_up(trace)
    # If all workers left together, the last state before they left shows the work, too.
    before = states[states["time"] <= broken_up]
    if len(before):
        ends.append(RunEnd(broken_up, End.BROKEN_UP, before.iloc[-1].to_dict()))
    last = states.iloc[-1].to_dict()
    if last["occasion"] != "client-left":
        # The state is valid until the end of the trace, unless it was recorded while the scheduler
        # was closing.
        until = float(last["time"]) if last["occasion"] == "closing" else float(trace.end)
        ends.append(RunEnd(until, _how(trace), last))
    return [end for end in ends if end.unfinished]


#: Exit codes of processes that were asked to end: by SIGHUP, SIGINT or SIGTERM.
_REQUESTED = (-1, -2, -15)


def _broken_up(trace: Trace) -> float:
    """Return when all workers began to leave together shortly before the end, or NaN."""
    workers = trace.workers[trace.workers["kind"] == "worker"]
    left, joined = workers["left"].to_numpy(dtype=float), workers["joined"].to_numpy(dtype=float)
    if not len(left) or not np.isfinite(left).all() or trace.recording is End.GOES_ON:
        return float("nan")
    last = float(left.max())
    together = last - left <= _TOGETHER
    if ((workers["exit_code"] < 0) & ~workers["exit_code"].isin(_REQUESTED)).all():
        return float("nan")
    # If there is only one worker, it may have died. The program then notices that and continues.
    limit = _ENDING if len(left) > 1 else _TOGETHER
    first = float(left[together].min())
    if trace.end - last > limit or (joined >= first).any() or _abandoned_tasks(trace, first):
        return float("nan")
    return first


def _abandoned_tasks(trace: Trace, since: float) -> bool:
    """Return whether tasks were abandoned after `since` because several workers died in turn."""
    for runs in (trace.scheduler_only, trace.tasks):
        if "known" not in runs:
            continue
        late = (runs["scheduler_state"] == "erred") & (runs["known"] >= since)
        causes = stimulus_texts(trace, runs["end_cause"][late.to_numpy(dtype=bool)])
        if not begins_with(causes, NOT_NEEDED).all():
            return True
    return False


def _ended(trace: Trace, end: RunEnd, aftermath: float = 0.0) -> int:
    """Return how many task runs ended between the time of `end.state` and `end.time`.

    Task runs that the scheduler received after `end.state` are not counted. The period is extended
    by `aftermath` seconds.
    """
    count, since, until = 0, float((end.state or {})["time"]), end.time + aftermath
    for runs in (trace.tasks, trace.scheduler_only):
        if "known" in runs:
            came = np.fmin(runs["scheduler_waiting"].to_numpy(), runs["sent"].to_numpy())
            known = runs["known"].to_numpy()
            # Only task runs that the scheduler knew at this state count.
            ended = runs["scheduler_state"].isin(["memory", "erred"]).to_numpy() & (came <= since)
            count += int(np.count_nonzero(ended & (known > since) & (known <= until)))
    return count


def _ended_on_workers(trace: Trace, end: RunEnd) -> int:
    """Return how many tasks ended after the state of `end`, according to workers' files alone."""
    if end.how is not End.CUT:
        return 0
    # The scheduler's file lacks these ends if it was truncated, or if the scheduler was killed.
    tasks, since = trace.tasks, float((end.state or {})["time"])
    stop = (tasks["start"] + tasks["duration"]).to_numpy(dtype=float)
    # The scheduler did not know of ends just before the state either.
    ended = tasks["state"].isin(["memory", "erred"]).to_numpy() & (stop > since - _AFTERMATH)
    if "known" in tasks:
        ended = ended & np.isnan(tasks["known"].to_numpy(dtype=float))
    return len(np.unique(tasks["key_id"].to_numpy()[ended]))


def _went_on(trace: Trace, endings: Endings, since: float) -> bool:
    """Return whether graphs arrived, or tasks ended, after `since`."""
    graphs = len(trace.graphs) > 0 and float(trace.graphs["time"].max()) > since
    return graphs or endings.last > since + _AFTERMATH


def _state_at(states: pd.DataFrame, time: float) -> dict[Any, Any] | None:
    """Return the last state until `time` that has work in progress, or None."""
    known = states[(states["time"] <= time) & (states["unfinished"] > 0)] if len(states) else states
    if not len(known):
        return None
    last: dict[Any, Any] = known.iloc[-1].to_dict()
    # A state in which workers are closing no longer shows the work that was in progress. After
    # Ctrl-C in a terminal, workers may close before their client has left.
    for place in range(len(known) - 1, -1, -1):
        state = known.iloc[place].to_dict()
        if not any(worker["status"] == "closing" for worker in state["workers"] or ()):
            return state
        if state["time"] <= last["time"] - _TOGETHER:
            break
    return last


def _how(trace: Trace) -> End:
    return trace.recording if trace.recording in (End.GOES_ON, End.CLOSED) else End.CUT


#: Prefixes of Dask's reasons for removing workers that were asked to leave.
_ASKED = ("retire-workers", "nanny-close", "client-restart", "scheduler-close", "worker-close")
#: Maximum seconds between two events about a worker that leaves: the scheduler takes back its last
#: task, and the scheduler records that it left. All tasks are taken back first.
_TAKEN_BACK = 2.0


def left_unasked(trace: Trace) -> Array:
    """Return a mask of the worker instances that left unexpectedly during the run."""
    left, end = trace.workers["left"].to_numpy(dtype=float), find_run_end(trace)
    asked = left_for(trace, _ASKED)
    # Workers that leave after the last client of the program has left are shut down, which is
    # expected. If one value is NaN, `fmin` returns the other one.
    limit = float(np.fmin(last_client_left(trace), np.inf))
    if end is not None and end.how in (End.LEFT, End.BROKEN_UP):
        limit = min(limit, end.time)
    return np.isfinite(left) & ~asked & (left < limit)


def taken_back(trace: Trace, runs: pd.DataFrame) -> Array:
    """Return a mask of task runs that the scheduler took back because their worker left.

    `runs` are rows of `Trace.scheduler_only`. Task runs that a client cancelled or that were no
    longer needed are not included.
    """
    left = trace.workers["left"].to_numpy(dtype=float)[runs["worker_id"].to_numpy()]
    as_it_left = np.abs(runs["known"].to_numpy(dtype=float) - left) <= _TAKEN_BACK
    causes = (*DROPPED, CANCELLED, *NOT_NEEDED)
    return as_it_left & ~runs["lost"].to_numpy(dtype=bool) & ~cancelled_runs(trace, runs, causes)


def left_for(trace: Trace, reasons: tuple[str, ...]) -> Array:
    """Return a mask of worker instances whose reason for leaving begins with one of `reasons`."""
    texts = trace.workers["left_reason"].fillna("")
    return np.array([str(reason).startswith(reasons) for reason in texts], dtype=bool)
