"""`state_from_trace`: the work that was in progress at the end of a trace."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from dasfprof.analysis.model.attempts import WORKER_LOST, find_attempts
from dasfprof.analysis.model.departures import departure_of
from dasfprof.analysis.model.memory_kills import results_in_memory
from dasfprof.analysis.run import Run
from dasfprof.analysis.run.run_end import RunEnd, left_unasked
from dasfprof.analysis.run.worker_exits import is_program_client
from dasfprof.analysis.trace.trace import once_per_trace
from dasfprof.analysis.under_way.failed_tasks import (
    failed_tasks,
    idle_seconds,
    knows_nothing,
    tasks_at,
    with_texts,
)
from dasfprof.analysis.under_way.processes import advice, clause, in_words
from dasfprof.analysis.under_way.state import (
    Activity,
    ClientNow,
    ClusterState,
    Stack,
    WorkerNow,
    seconds_since,
    stack_of,
)
from dasfprof.database.ends import End

#: Seconds before the end in which a client's waits count as its last activity.
_LEAVING = 3.0
#: Threshold (seconds): the client has long been waiting for results that the scheduler lacks.
_LONG_WAIT = 5.0
#: Threshold (seconds without a task): the connected client counts as busy with something else.
_IDLE = 5.0
#: Maximum seconds by which a worker's last event may be older than the last events of others.
_LATE = 5.0


@once_per_trace
def state_from_trace(run: Run) -> ClusterState | None:
    """Return the state of the cluster at the end of a trace, or None if the run ended normally.

    If clients left while work was in progress, the state is from just before they left.
    """
    end = run.ending or _idle_end(run)
    failed = failed_tasks(run)
    if end is None and not failed:
        # No task was in progress, no task failed, and no client stayed long after the last task.
        return None
    end = end or RunEnd(run.end, None, _last_state(run, run.end))
    stacks = [*map(stack_of, run.stacks["frames"]), ()]
    blocked, stack = _blocked(run, None, end.time)
    tasks = tasks_at(run, end.time, stacks)
    return ClusterState.from_row(
        end.state or {},
        end.time,
        unfinished=end.unfinished,
        tasks=tasks,
        workers=(*_workers(run, end, stacks), *_lost_workers(run, end)),
        clients=_clients(run, end, stacks),
        failed=failed,
        quiet=_quiet(run, end.time, [task.seconds for task in tasks]),
        scheduler_process="gone" if _scheduler_died_alone(run) else None,
        scheduler_blocked=blocked,
        scheduler_stack=stacks[stack],
    )


def _idle_end(run: Run) -> RunEnd | None:
    """Return the end of a run whose client stayed long after the last task, or None otherwise."""
    states = run.scheduler_states
    if not len(states) or not len(run.clients_under_way):
        return None
    persons = np.array([is_program_client(client) for client in states["client"]], dtype=bool)
    left = states[(states["occasion"] == "client-left").to_numpy(dtype=bool) & persons]
    time = float(left["time"].iloc[-1]) if len(left) else float(run.end)
    quiet = _quiet(run, time, [])
    end = RunEnd(time, None, _last_state(run, time))
    return end if quiet is not None and quiet >= _IDLE and end.unfinished == 0 else None


def _last_state(run: Run, time: float) -> dict[Any, Any] | None:
    states = run.scheduler_states
    known = states[states["time"] <= time]
    return known.iloc[-1].to_dict() if len(known) else None


def _quiet(run: Run, time: float, open_seconds: list[float | None]) -> float | None:
    """Return the seconds since a task last started or ended, or None if no task did.

    `open_seconds` are the seconds since each unfinished task started, or None if unknown.
    """
    tasks = run.tasks
    ends = (tasks["start"] + tasks["duration"]).to_numpy(dtype=float)
    only = run.scheduler_only
    # Tasks that were abandoned because their workers died ended at that time.
    erred = (only["scheduler_state"] == "erred").to_numpy(dtype=bool)
    ends = np.append(ends, only["known"].to_numpy(dtype=float)[erred])
    ends = ends[ends <= time]
    since = [time - float(ends.max())] if len(ends) else []
    since += [seconds for seconds in open_seconds if seconds is not None]
    return max(min(since), 0.0) if since else None


def _workers(run: Run, end: RunEnd, stacks: list[Stack]) -> list[WorkerNow]:
    lives = {
        str(life["address"]): (number, life)
        for number, (_, life) in enumerate(run.workers.iterrows())
        if life["kind"] == "worker"
    }
    state = end.state
    if state is None:
        return [
            WorkerNow(
                worker=str(life["worker"]),
                address=address,
                threads=0 if pd.isna(life["nthreads"]) else int(life["nthreads"]),
                status="running",
            )
            for address, (_, life) in lives.items()
            if not life["left"] <= end.time
        ]
    sampled = set(run.samples["worker_id"].tolist())
    workers = []
    for row in state["workers"] or ():
        number, life = lives.get(str(row.get("worker")), (-1, None))
        blocked, stack = _blocked(run, number, end.time)
        empty = knows_nothing(run, end, row, life)
        results = results_in_memory(run, number, end.time)
        worker = WorkerNow.from_row(
            row,
            float(state["time"]),
            known={} if empty else None,
            answered=True if empty else None,
            results=None if np.isnan(results) else results,
            loop_blocked=blocked,
            loop_stack=stacks[stack],
        )
        if life is not None:
            late, is_recorded = end.time - float(life["last_seen"]), number in sampled
            is_recorded &= not life["left"] <= end.time
            if is_recorded and late > _LATE + idle_seconds(run, worker.address):
                worker = replace(worker, silent=max(worker.silent, late))
            worker = replace(worker, worker=str(life["worker"]))
        workers.append(worker)
    return workers


def _lost_workers(run: Run, end: RunEnd) -> list[WorkerNow]:
    """Return workers that left unexpectedly, and whose tasks have not finished since then."""
    lost, left = np.flatnonzero(left_unasked(run)), run.workers["left"].to_numpy(dtype=float)
    lost = lost[np.argsort(left[lost], kind="stable")]
    if not len(lost) or end.how is None:
        return []
    attempts = find_attempts(run)
    ended = attempts.loc[attempts["succeeded"] | (attempts["status"] == "erred"), "key_id"]
    open_ = attempts[(attempts["category"] == WORKER_LOST) & ~attempts["key_id"].isin(set(ended))]
    labels = run.workers["worker"].to_numpy(dtype=object)
    functions = open_["function"].astype(object)
    workers = []
    for number in lost.tolist():
        lost_attempts = open_[open_["life"] == number]
        if len(lost_attempts):
            how = departure_of(run, number)
            keys = run.keys.texts(lost_attempts["key_id"].to_numpy()[:20]).tolist()
            address = str(run.workers["address"].iloc[number])
            # The last recorded state of the unfinished tasks of this worker.
            seen = run.under_way[(run.under_way["worker_id"] == number).to_numpy(dtype=bool)]
            texts = run.keys.texts(seen["key_id"].to_numpy(dtype=np.int64)).tolist()
            held = zip(texts, seen["holds"], strict=True)
            workers.append(
                WorkerNow(
                    worker=str(labels[number]),
                    address=address,
                    threads=0,
                    status="lost",
                    processing=len(lost_attempts),
                    processing_keys=tuple(keys),
                    exit=in_words(how),
                    exit_clause=clause([how]),
                    exit_advice=advice(how, functions[lost_attempts.index].mode().iloc[0]),
                    gone=max(end.time - float(left[number]), 0.0),
                    held=tuple((key, str(name)) for key, locks in held for _, name in locks or ()),
                )
            )
    return workers


def _blocked(run: Run, who: int | None, time: float) -> tuple[float, int]:
    """Return the seconds for which an event loop has been blocked, and the row of its stack.

    `who` is a worker's row, or None for the scheduler. The result is 0 and -1 if the loop was not
    blocked.
    """
    loops = run.loop_samples
    ids = [who] if who is not None else np.flatnonzero(run.workers["kind"] == "scheduler")
    blocks = loops[np.isin(loops["worker_id"], ids) & (loops["time"] <= time).to_numpy()]
    if not len(blocks) or np.isfinite(blocks["until"].iloc[-1]):
        return 0.0, -1
    return max(time - float(blocks["since"].iloc[-1]), 0.0), int(blocks["stack"].iloc[-1])


def _scheduler_died_alone(run: Run) -> bool:
    """Return whether workers closed their files although the scheduler had died."""
    workers = run.workers
    closed_files = (workers["kind"] == "worker") & workers["closed"].fillna(False).astype(bool)
    # If they did not, the same event may have killed the scheduler and the workers, such as the end
    # of a batch job.
    return run.recording is End.SCHEDULER_GONE and bool(
        (closed_files & workers["left"].isna()).any()
    )


def _clients(run: Run, end: RunEnd, stacks: list[Stack]) -> tuple[ClientNow, ...]:
    history = run.clients_under_way
    history = history[history["time"] <= end.time]
    rows = {str(row["client"]): row for row in (end.state or {}).get("clients") or ()}
    names = dict.fromkeys([*rows, *history["client"].astype(str)])
    clients = []
    for name in filter(is_program_client, names):
        client = ClientNow.from_row(rows.get(name, {"client": name}))
        samples = history[history["client"] == name]
        if len(samples):
            # Use the last sample, unless the client waited just before it left.
            near = samples[samples["waits_in"].notna() & (samples["time"] > end.time - _LEAVING)]
            sample = (near if len(near) else samples).iloc[-1]
            client = replace(
                client,
                activity=Activity.from_row(
                    with_texts(sample.to_dict(), run), stacks[int(sample["stack"])]
                ),
                unchanged=seconds_since(sample["since"], end.time),
                wants_nothing=_wants_nothing(run, name, samples, sample),
            )
        clients.append(client)
    return tuple(clients)


def _wants_nothing(run: Run, client: str, samples: pd.DataFrame, sample: pd.Series) -> bool:
    """Return whether a client waited long although the scheduler did not know any keys it wants.

    `samples` are samples of the client, and `sample` is the one that shows the waiting call.
    """
    since, states = float(sample["since"]), run.scheduler_states
    later = samples["time"][(samples["time"] > sample["time"]).to_numpy()]
    until = float(later.min()) if len(later) else np.inf
    if pd.isna(sample["waits_in"]) or not len(states):
        return False
    # The scheduler learns which keys are requested shortly after a call begins.
    recorded = states[states["time"].between(since + _LATE, until).to_numpy(dtype=bool)]
    recorded = recorded[recorded["occasion"].isin(["interval", "client-left"]).to_numpy(dtype=bool)]
    rows = [ClientNow.from_row(row) for clients in recorded["clients"] for row in clients or ()]
    wanted = [row.wanted for row in rows if row.client == client]
    long = float(recorded["time"].max()) >= since + _LONG_WAIT
    return long and bool(wanted) and max(wanted) == 0
