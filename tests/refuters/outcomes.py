"""Refuters of what is said about attempts that failed, were lost, or were made again."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from refuters.attempts import (
    attempts,
    by_client,
    category,
    clients_gone,
    computed_again,
    is_killed,
    is_most,
    left_alone,
    most,
)
from refuters.evidence import Evidence
from refuters.figures import Said, differs, exceeds, is_close, is_same_time, lies
from refuters.registry import refuter

#: A worker that used no more of its memory did not die for want of it, nor for a host's of which
#: more was left.
_NO_WANT, _FULL = 0.8, 0.05
#: Seconds before the end of the trace in which a worker may have been shut down.
_AT_THE_END = 3.5


@refuter("retried-tasks")
def retried_tasks(said: Said, evidence: Evidence) -> Iterator[str]:
    """Count attempts that erred and were followed by another of their key, and their seconds."""
    every = attempts(evidence)
    last = {repr(row["key"]): row for row in every}
    failed = [row for row in every if row["ended"] == "erred" and last[repr(row["key"])] is not row]
    yield from differs(said["attempts"], len(failed), "attempts that failed")
    yield from differs(said["lost"], sum(row["duration"] for row in failed), "their seconds")
    # Whether what was taken back before it began was an attempt, the sentence leaves open.
    low, high = (len(failed) / max(len(all_), 1) for all_ in (every, evidence.runs))
    yield from lies(said["share"], low, high, "their share")
    yield from _time_outs(said, evidence)
    if not is_most(str(said.function), most([row["function"] for row in failed])):
        yield f"most failed in another function than {said.function}"
    if not is_most(said["category"], most([category(row.get("exception")) for row in failed])):
        yield f"most did not fail with {said['category']}"


def _time_outs(said: Said, evidence: Evidence) -> Iterator[str]:
    """Compare the seconds of attempts that timed out with those of attempts that ended well."""
    own = attempts(evidence).where(lambda row: row["function"] == said.function)
    late = own.where(lambda row: "Timeout" in category(row.get("exception")))
    well = own.where(lambda row: row["ended"] == "memory").numbers("duration")
    told = said["limit"]
    if not told:
        return
    middle = float(np.median(late.numbers("duration"))) if len(late) else float("nan")
    yield from differs(told["ran"], middle, "seconds until the time-out")
    if np.isfinite(told["most"]) != bool(len(well)):
        yield f"{len(well)} ended well"
    elif len(well):
        yield from differs(told["took"], float(np.median(well)), "the median that ended well")
        yield from differs(told["most"], float(well.max()), "the longest that ended well")


@refuter("failed-tasks")
def failed_tasks(said: Said, evidence: Evidence) -> Iterator[str]:
    """Count keys whose last attempt erred, but for those under which workers died.

    What a worker's own file says was raised there, though the client may have left before the
    scheduler heard of it; of others the scheduler alone says how they ended.
    """
    last = {repr(row["key"]): row for row in attempts(evidence)}
    ended = [row for row in last.values() if row["ended"] == "erred"]
    erred = [row for row in ended if "noted" in row or not is_killed(row)]
    yield from differs(said["tasks"], len(erred), "tasks that ended in an error")
    yield from _time_outs(said, evidence)
    if said.function not in {row["function"] for row in erred}:
        yield f"no task of {said.function} ended in an error"
    scheduled = evidence.rows("Task Run").where(by_client)
    given_up = {repr(row["key"]) for row in scheduled if row["state"] != "erred"}
    if said["nobodys"] and not all(repr(row["key"]) in given_up for row in erred):
        yield "no client had given up all that erred"
    kinds = {f"{category(row.get('exception'))} in {row['function']}" for row in erred}
    if not kinds.issuperset(said["kinds"]):
        yield f"tasks ended in {kinds} only"
    blocked = sum(said["never_ran"].values())
    if blocked:
        ran = {repr(row["key"]) for row in evidence.runs}
        unfinished = {repr(row["key"]) for row in evidence.rows("Task Run")} - ran
        unsent = sum(row["tasks"] for row in evidence.rows("Unsent Tasks"))
        states = evidence.rows("Scheduler State").values("unfinished")
        waiting = max([len(unfinished) + unsent, *(one or 0 for one in states)])
        submitted = sum(row["tasks"] for row in evidence.rows("Graph")) - len(ran)
        yield from exceeds(blocked, max(waiting, submitted), "tasks that never ran")


@refuter("lost-workers")
def lost_workers(said: Said, evidence: Evidence) -> Iterator[str]:
    """Count tasks on workers as these left; what leaves after the last client is not lost."""
    on_them = {address: rows for address, rows in left_alone(evidence).items() if len(rows)}
    count = sum(map(len, on_them.values()))
    # Of those that left as the run ended nothing tells whether they were lost.
    removed = evidence.rows("Worker Removed")
    late = removed.where(lambda row: row["timestamp"] >= evidence.end - _AT_THE_END)
    certain = {one: rows for one, rows in on_them.items() if one not in late.values("worker")}
    yield from lies(said["workers"], len(certain), len(on_them), "workers that left with tasks")
    yield from lies(said["tasks"], sum(map(len, certain.values())), count, "tasks on them")
    gone = clients_gone(evidence)
    for row in removed:
        if row["worker"] in on_them and row["timestamp"] >= gone:
            yield f"{row['worker']} left after the last client had"
    yield from _of_the_worst(said, evidence)
    _, lost = computed_again(evidence)
    if said["ran_again"]:
        yield from differs(said["ran_again"], len(lost), "tasks whose results were lost")
        held = lost.sum("ran"), lost.sum("slot")
        yield from lies(said["again"], *held, "their thread time")
    most_missed = sum(
        max(evidence.span[1] - evidence.lives[one][1], 0.0) * evidence.lives[one][2]
        for one in on_them
    )
    yield from exceeds(said["missed"], most_missed, "the time without these workers")


def _of_the_worst(said: Said, evidence: Evidence) -> Iterator[str]:
    """Compare when the worker with most tasks left, and how much memory it had then."""
    left = {
        row["worker"]: row["timestamp"] - evidence.first_seen
        for row in evidence.rows("Worker Removed")
        if evidence.label(row["worker"]) in (said.worker, None)
    }
    known = np.isfinite(said["left"])
    if known and not any(is_same_time(said["left"], one) for one in left.values()):
        yield f"{said.worker} left at {left}, not {said['left']:.6g}"
    own = [one for one, at in left.items() if not known or is_same_time(said["left"], at)]
    if np.isfinite(said["memory"] + said["limit"]):
        last = {
            row["address"]: row["memory"] or np.nan
            for row in evidence.rows("Resource Usage")
            if row["address"] in own
            and row["timestamp"] <= left[row["address"]] + evidence.first_seen
        }
        if not any(is_close(said["memory"], one) for one in last.values()):
            yield f"its process had {last} bytes at last, not {said['memory']}"
    if said["ages"]:
        (least, most), workers = said["ages"], [header.get("worker") for header in evidence.headers]
        started = {one["address"]: one.get("started", np.nan) for one in workers if one}
        removed = evidence.rows("Worker Removed")
        ages = [row["timestamp"] - started.get(row["worker"], np.nan) for row in removed]
        same = [age for age in ages if least - 0.01 <= age <= most + 0.01]
        if len(same) < said["of_age"]:
            yield f"{len(same)} workers died at an age of {least} to {most}: {ages}"
    if said["blames_memory"] and not _of_memory(own, said, evidence):
        yield f"memory is blamed, of which {said['memory']} B were used, and nobody told so"
    if said["why"] == "silent" and not any(
        one["action"] == "worker-ttl" and set(own) & set(one["workers"])
        for one in evidence.rows("Cluster Change")
    ):
        yield f"the scheduler did not give {own} up for want of heartbeats"


def _of_memory(own: list[str], said: Said, evidence: Evidence) -> bool:
    """Return whether a nanny, the kernel's count, or the last sample tells of want of memory."""
    by_nanny = any(
        row["worker"] in own and "memory budget" in (row["reason"] or "")
        for row in evidence.rows("Worker Exit")
    )
    samples = evidence.rows("Resource Usage")
    counts = {row.get("oom_kills") for row in samples} - {None}
    read = samples.where(lambda row: row.get("host_memory_total"))
    left = read.numbers("host_memory_available") / read.numbers("host_memory_total")
    near = said["memory"] >= _NO_WANT * said["limit"]
    return by_nanny or len(counts) > 1 or near or bool((left <= _FULL).any())


def _restarted(said: Said, evidence: Evidence) -> Iterator[str]:
    """Count the tasks that a restart took from workers, and those that had not been sent."""
    unended = evidence.rows("Task Run").where(lambda row: row["state"] not in ("memory", "erred"))
    sent = [row for row in unended if str(row["end_cause"]).startswith("client-restart")]
    changes = evidence.rows("Cluster Change").where(lambda row: row["action"] == "restart")
    never = sum(row["number"] or 0 for row in changes)
    yield from differs(said["tasks"], len(sent) + never, "tasks that a restart took away")


@refuter("recomputation")
def recomputation(said: Said, evidence: Evidence) -> Iterator[str]:
    """Count task runs of keys that had been in memory before, and their seconds."""
    released, _ = computed_again(evidence)
    slots = evidence.runs.numbers("held") - evidence.runs.numbers("executing")
    seconds = released.sum("slot")
    yield from differs(said["tasks"], len(released), "tasks that ran again")
    ran = released.sum("ran")
    yield from lies(said["lost"], ran, seconds, "their thread time")
    by_function = most(released.values("function"), released.numbers("slot"))
    if not is_most(str(said.function), by_function):
        yield f"most ran again in another function than {said.function}"
    yield from lies(said["share"], ran / slots.sum(), seconds / slots.sum(), "their share")
    of_tasks = said.seconds - (said["handling"] or 0.0)
    if of_tasks > seconds + 0.001:
        yield f"{of_tasks:.3g} s are at stake of {seconds:.3g} s of threads"


@refuter("cancelled-tasks")
def cancelled_tasks(said: Said, evidence: Evidence) -> Iterator[str]:
    """Count tasks that clients gave up before they ended."""
    if "restarts" in said.figures:
        yield from _restarted(said, evidence)
        return
    given_up = evidence.rows("Task Run").where(
        lambda row: by_client(row) and row["state"] not in ("memory", "erred")
    )
    more = len(evidence.runs.where(lambda row: row["state"] in ("cancelled", "released")))
    yield from exceeds(said["tasks"], len(given_up) + more, "tasks that clients gave up")


@refuter("swallowed-errors")
def swallowed_errors(said: Said, evidence: Evidence) -> Iterator[str]:
    """Count task runs that logged an error and have None as their result."""
    logged = {
        (repr(row["key"]), row["run_id"]) for row in evidence.rows("Log Record") if row["error"]
    }
    done = evidence.of(said.function).where(lambda row: row["state"] == "memory")
    nothing = done.where(lambda row: row["type"] == "NoneType")
    silent = [row for row in nothing if (repr(row["key"]), row["run_id"]) in logged]
    yield from differs(said["silent"], len(silent), "task runs that logged and returned None")
    yield from differs(said["tasks"], len(done), "task runs of the function")
