"""Workers that were killed because memory ran out, and the function that used the memory."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np
import pandas as pd

from dasfprof.analysis.model.held_results import held_at
from dasfprof.analysis.model.run_memory import memory_of_runs
from dasfprof.analysis.run import Run
from dasfprof.analysis.run.worker_exits import NEAR_LIMIT, Why, departure
from dasfprof.analysis.trace.columns import row_of
from dasfprof.analysis.trace.trace import once_per_trace
from dasfprof.analysis.wording import Certainty
from dasfprof.database.columns import Array

#: Threshold (fraction of the memory that needs an explanation): a function explains the memory.
_MOST = 0.7
#: Threshold (fraction of the limit): results, or memory that was used earlier, explain the kill on
#: their own.
_HALF = 0.5
#: Seconds after which a task run is recorded as in progress. Then maximum delay of a sample.
_SEEN, _LATE = 2.0, 2.0
#: Minimum number of finished runs of a function from which its usual rise is computed. Then number
#: of finished runs above which a function whose rise is unknown counts as harmless.
_FEW, _MANY = 3, 10


class Reason(str, Enum):
    """Why a function is suspected of having used the memory, or why none is suspected."""

    ALONE = "nothing else ran there"
    USUAL = "its runs usually take that much"
    NEVER_ENDED = (
        "none of its runs ever finished, and the usual memory of other functions does not "
        "explain it"
    )
    IN_ALL = "no other function was running at each of these deaths"
    RESULTS = "results filled the memory, and not the running tasks"
    LEFT_BEHIND = "the memory was in use before these tasks started, and nothing else had run there"
    BEFORE = "the memory was in use before any of these tasks started"
    HOST = "its host was full, but the worker itself was not"
    GROUP = (
        "the control group that it shares with other workers was full, but the worker itself was "
        "not"
    )
    SEVERAL = "any of them may have taken it"
    UNSEEN = "what was running there is not recorded"


@dataclass(frozen=True)
class UnderWay:
    """Tasks of one function that were running, or may have started, when a worker died."""

    function: str
    #: Number of tasks that were recorded as running. Then number of tasks that may have started
    #: just before the worker died.
    seen: int
    perhaps: int
    #: Seconds for which the first of the recorded tasks had been running. NaN if none was recorded.
    seconds: float
    #: Usual rise of the process's memory during a task, in bytes. NaN if too few tasks have
    #: finished.
    rise: float
    #: Number of finished runs of this function.
    ended: int


@dataclass(frozen=True)
class MemoryGroup:
    """Memory and limit of a control group when one of its workers was killed."""

    limit: float = float("nan")
    workers: int = 0
    memory: float = float("nan")

    @property
    def was_full(self) -> bool:
        """Whether the control group had several workers that together came near its limit."""
        return self.workers > 1 and self.memory >= NEAR_LIMIT * self.limit


@dataclass(frozen=True)
class MemoryKill:
    """A worker instance that was killed because memory ran out."""

    #: Row of the worker in `Trace.workers`.
    life: int
    #: Time at which the worker left, in seconds since the start of the run.
    left: float
    #: Memory of the worker in its last sample, its limit, and its results in memory at that time,
    #: in bytes. NaN if unknown.
    memory: float
    limit: float
    results: float
    #: Memory in the last sample before the first of `tasks` started, in bytes.
    before: float
    #: Control group of the worker's process: its limit, the number of workers in it (including this
    #: one), and the sum of their last memory samples. NaN if unknown, or if there is no limit.
    group: MemoryGroup
    tasks: tuple[UnderWay, ...]
    reason: Reason
    #: Function that used the memory, or whose results used it, and how certain this is. Both are
    #: None if there is no suspect.
    suspect: str | None = None
    certainty: Certainty | None = None


@once_per_trace
def memory_kills(run: Run) -> list[MemoryKill]:
    """Return the workers that were killed because memory ran out, in the order of time."""
    # It is unknown how much memory a killed process would have needed, so a kill does not contain a
    # sufficient memory limit.
    left = run.workers["left"].to_numpy(dtype=float)
    lives = [life for life in np.argsort(left, kind="stable").tolist() if np.isfinite(left[life])]
    kills = [_kill(run, life) for life in lives if departure(run, life).why is Why.MEMORY]
    functions = [{task.function for task in kill.tasks} for kill in kills]
    common = set.intersection(*functions) if len(functions) > 1 else set()
    if len(common) != 1:
        return kills
    (suspect,) = common
    return [
        _with_suspect(kill, Reason.IN_ALL, suspect) if kill.reason is Reason.SEVERAL else kill
        for kill in kills
    ]


def _kill(run: Run, life: int) -> MemoryKill:
    end, left = departure(run, life), float(run.workers["left"].iloc[life])
    since, tasks = _under_way(run, life, left)
    times, memory = _samples(run, life, "samples", "memory")
    earlier = memory[times <= since]
    before = float(earlier[-1]) if len(earlier) else float(memory.min(initial=np.inf))
    before = before if np.isfinite(before) else float("nan")
    sizes = end.memory, end.limit, results_in_memory(run, life), before
    group = _group_of(run, life, left)
    kill = MemoryKill(life, run.seconds_at(left), *sizes, group, tasks, Reason.SEVERAL)
    if end.host_was_full and end.memory < end.near * end.limit:
        return replace(kill, reason=Reason.HOST)
    if kill.group.was_full and end.memory < end.near * np.fmin(end.limit, kill.group.limit):
        return replace(kill, reason=Reason.GROUP)
    return _judged(run, kill)


def _judged(run: Run, kill: MemoryKill) -> MemoryKill:
    """Add the reason and the suspect to a kill, using what is known about this kill alone."""
    filled = _HALF * kill.limit
    if kill.results >= filled:
        return _with_suspect(kill, Reason.RESULTS, _held_most(run, kill))
    if not kill.tasks:
        return replace(kill, reason=Reason.UNSEEN)
    if kill.before >= filled:
        names = {
            str(name)
            for runs in (run.tasks, run.scheduler_only)
            for name in runs["function"][(runs["worker_id"] == kill.life).to_numpy(dtype=bool)]
        }
        if len(names) != 1:
            return replace(kill, reason=Reason.BEFORE)
        return _with_suspect(kill, Reason.LEFT_BEHIND, names.pop())
    return suspected(kill)


def suspected(kill: MemoryKill) -> MemoryKill:
    """Add the suspect to a kill, if the tasks in progress show one."""
    # The suspect is the only function in progress, or the one whose usual memory explains the kill,
    # or the one that never finished.
    if len(kill.tasks) == 1:
        sure: Certainty = "certain" if kill.tasks[0].seen else "likely"
        return _with_suspect(kill, Reason.ALONE, kill.tasks[0].function, sure)
    taken = max(kill.memory, NEAR_LIMIT * kill.limit) - kill.before
    usual = {task.function: task.rise * (task.seen + task.perhaps) for task in kill.tasks}
    known = sum(rise for rise in usual.values() if np.isfinite(rise))
    never = [task for task in kill.tasks if not task.ended]
    unknown = [task.function for task in kill.tasks if np.isnan(task.rise) and task.ended < _MANY]
    if not unknown and known >= _MOST * taken:
        most = max(usual, key=lambda name: usual[name])
        if usual[most] >= _MOST * known:
            return _with_suspect(kill, Reason.USUAL, most)
        return kill
    explained = known >= (1 - _MOST) * taken
    # It is unknown whether a task that was not recorded as running had started.
    if explained or len(never) != 1 or [never[0].function] != unknown or not never[0].seen:
        return kill
    return _with_suspect(kill, Reason.NEVER_ENDED, never[0].function)


def _with_suspect(
    kill: MemoryKill, reason: Reason, suspect: str | None, certainty: Certainty = "likely"
) -> MemoryKill:
    certain = certainty if suspect is not None else None
    return replace(kill, reason=reason, suspect=suspect, certainty=certain)


def _group_of(run: Run, life: int, left: float) -> MemoryGroup:
    """Return the control group of a worker at the time at which the worker left."""
    workers = run.workers
    worker = row_of(workers, life)
    if not isinstance(worker["memory_group"], str):
        return MemoryGroup()
    same = pd.Series(data=True, index=workers.index)
    for name in ("host", "boot_id", "memory_group"):
        same &= workers[name] == worker[name]
    there = (workers["first_seen"] <= left) & ~(workers["left"] < left - _LATE)
    lives = np.flatnonzero((same & there).to_numpy(dtype=bool))
    used = [_samples(run, member, "samples", "memory") for member in lives.tolist()]
    last = [memory[times <= left][-1:].sum() for times, memory in used]
    return MemoryGroup(float(worker["group_limit"]), len(lives), float(sum(last)))


def _under_way(run: Run, life: int, left: float) -> tuple[float, tuple[UnderWay, ...]]:
    """Return when the first task in progress on a lost worker started, and all such tasks."""
    codes, names = run.keys.functions()
    table, only = run.under_way, run.scheduler_only
    is_running = (table["worker_id"] == life) & table["state"].isin(["executing", "long-running"])
    is_running &= table["time"] >= left - _SEEN - _LATE
    running = table[is_running].drop_duplicates("key_id")
    there = (only["worker_id"] == life) & (only["known"] >= left - _LATE)
    sent = only[(there & ~only["key_id"].isin(running["key_id"])).to_numpy(dtype=bool)]
    threads = run.workers["nthreads"].iloc[life]
    # If the recorded tasks did not occupy all threads of the worker, tasks that were assigned to it
    # may have started before it was lost.
    room = len(sent) if np.isnan(threads) else max(int(threads) - len(running), 0)
    perhaps = Counter(codes[sent["key_id"].to_numpy()].tolist()) if room else Counter[int]()
    seen = Counter(codes[running["key_id"].to_numpy()].tolist())
    rises, ended = _usual_rises(run)
    tasks = []
    for code in dict.fromkeys([*seen, *perhaps]):
        since = running["since"][codes[running["key_id"].to_numpy()] == code].min()
        numbers = seen[code], min(perhaps[code], room), left - float(since)
        rise = rises.get(code, float("nan"))
        tasks.append(UnderWay(str(names[code]), *numbers, rise, int(ended[code])))
    begins = np.append(running["since"].to_numpy(dtype=float), sent["sent"].to_numpy(dtype=float))
    begin = float(np.nanmin(begins)) if np.isfinite(begins).any() else left
    return begin, tuple(sorted(tasks, key=lambda task: -np.nan_to_num(task.seconds)))


@once_per_trace
def _usual_rises(run: Run) -> tuple[dict[int, float], Array]:
    """Return the usual rise of memory during a task run, and the number of finished task runs.

    Both are by the code of the function. Functions without enough samples have no rise.
    """
    codes, names = run.keys.functions()
    memory, of_run = memory_of_runs(run), codes[run.tasks["key_id"].to_numpy()]
    only = run.scheduler_only
    in_memory = only["key_id"][(only["scheduler_state"] == "memory").to_numpy(dtype=bool)]
    rises = {}
    for code in np.unique(of_run).tolist():
        rows = of_run == code
        # Task runs that were alone in their process are preferred. The rise of others includes
        # memory that their neighbours allocated.
        for rise in (memory.rise[rows], memory.rise_beside_others[rows]):
            known = rise[np.isfinite(rise)]
            if len(known) >= _FEW:
                rises[code] = float(np.median(known))
                break
    return rises, np.bincount(np.append(of_run, codes[in_memory]), minlength=len(names))


def _samples(run: Run, life: int, table: str, name: str) -> tuple[Array, Array]:
    """Return the times and values of a column of a worker's samples, sorted and without NaN."""
    rows = getattr(run, table).reindex(columns=["worker_id", "time", name]).dropna()
    rows = rows[(rows["worker_id"] == life).to_numpy(dtype=bool)].sort_values("time", kind="stable")
    return rows["time"].to_numpy(dtype=float), rows[name].to_numpy(dtype=float)


def results_in_memory(run: Run, life: int, until: float = np.inf) -> float:
    """Return the bytes of results in a worker's memory, or NaN if unknown.

    They are from the last sample at or before `until`.
    """
    held = run.managed_memory
    samples = held[((held["worker_id"] == life) & (held["time"] <= until)).to_numpy(dtype=bool)]
    samples = samples.sort_values("time", kind="stable")[["size", "spilled_size"]]
    size, spilled = samples.to_numpy(dtype=float)[-1] if len(samples) else (np.nan, np.nan)
    # Spilling increases the recorded size of results by a few bytes.
    return float(np.maximum(size - np.nan_to_num(spilled), 0.0))


def _held_most(run: Run, kill: MemoryKill) -> str | None:
    """Return the function whose results used most memory in a worker's last sample, or None."""
    times, _ = _samples(run, kill.life, "managed_memory", "size")
    held = held_at(run, min(kill.left, run.seconds_at(times[-1])))
    held = held.select((held.life == kill.life) & np.isfinite(held.size))
    if not len(held.run):
        return None
    functions = run.tasks["function"].cat.codes.to_numpy()[held.run]
    most = int(np.bincount(functions, weights=held.size).argmax())
    return str(run.tasks["function"].cat.categories[most])
