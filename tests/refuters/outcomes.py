"""Refuters of findings about task runs that failed, were lost, or were repeated."""

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
from refuters.figures import Claim, differs, exceeds, is_close, is_same_time, lies
from refuters.registry import refuter

#: Thresholds (fractions) for out-of-memory kills: the worker used more than the first of its limit,
#: or the host had less than the second of its memory left.
_NO_WANT, _FULL = 0.8, 0.05
#: Seconds before the end of the trace in which a worker may have been closed normally.
_AT_THE_END = 3.5


@refuter("retried-tasks")
def retried_tasks(claim: Claim, evidence: Evidence) -> Iterator[str]:
    """Count failed attempts that were followed by another attempt, and their seconds."""
    every = attempts(evidence)
    last = {repr(row["key"]): row for row in every}
    failed = [row for row in every if row["ended"] == "erred" and last[repr(row["key"])] is not row]
    yield from differs(claim["attempts"], len(failed), "attempts that failed")
    yield from differs(claim["lost"], sum(row["duration"] for row in failed), "their seconds")
    # The sentence leaves open whether a task run that never started was an attempt.
    low, high = (len(failed) / max(len(all_), 1) for all_ in (every, evidence.runs))
    yield from lies(claim["share"], low, high, "their share")
    if not is_most(str(claim.function), most([row["function"] for row in failed])):
        yield f"most failed in another function than {claim.function}"
    if not is_most(claim["category"], most([category(row.get("exception")) for row in failed])):
        yield f"most did not fail with {claim['category']}"


@refuter("failed-tasks")
def failed_tasks(claim: Claim, evidence: Evidence) -> Iterator[str]:
    """Count keys whose last attempt failed, except those whose worker died.

    Exceptions in a worker's file count even if the client left before the scheduler learned of
    them. The scheduler's file has the outcome of all other task runs.
    """
    last = {repr(row["key"]): row for row in attempts(evidence)}
    ended = [row for row in last.values() if row["ended"] == "erred"]
    erred = [row for row in ended if "noted" in row or not is_killed(row)]
    yield from differs(claim["tasks"], len(erred), "tasks that ended in an error")
    if claim.function not in {row["function"] for row in erred}:
        yield f"no task of {claim.function} ended in an error"
    scheduled = evidence.rows("Task Run").where(by_client)
    given_up = {repr(row["key"]) for row in scheduled if row["state"] != "erred"}
    if claim["nobodys"] and not all(repr(row["key"]) in given_up for row in erred):
        yield "no client had given up all that erred"
    kinds = {f"{category(row.get('exception'))} in {row['function']}" for row in erred}
    if not kinds.issuperset(claim["kinds"]):
        yield f"tasks ended in {kinds} only"
    blocked = sum(claim["never_ran"].values())
    if blocked:
        ran = {repr(row["key"]) for row in evidence.runs}
        unfinished = {repr(row["key"]) for row in evidence.rows("Task Run")} - ran
        unsent = sum(row["tasks"] for row in evidence.rows("Unsent Tasks"))
        states = evidence.rows("Scheduler State").values("unfinished")
        waiting = max([len(unfinished) + unsent, *(one or 0 for one in states)])
        submitted = sum(row["tasks"] for row in evidence.rows("Graph")) - len(ran)
        yield from exceeds(blocked, max(waiting, submitted), "tasks that never ran")


@refuter("lost-workers")
def lost_workers(claim: Claim, evidence: Evidence) -> Iterator[str]:
    """Count tasks on workers that left. Workers that leave after the last client are not lost."""
    on_them = {address: rows for address, rows in left_alone(evidence).items() if len(rows)}
    count = sum(map(len, on_them.values()))
    # It is unknown whether workers that left at the end of the run were lost.
    removed = evidence.rows("Worker Removed")
    late = removed.where(lambda row: row["timestamp"] >= evidence.end - _AT_THE_END)
    certain = {one: rows for one, rows in on_them.items() if one not in late.values("worker")}
    yield from lies(claim["workers"], len(certain), len(on_them), "workers that left with tasks")
    yield from lies(claim["tasks"], sum(map(len, certain.values())), count, "tasks on them")
    gone = clients_gone(evidence)
    for row in removed:
        if row["worker"] in on_them and row["timestamp"] >= gone:
            yield f"{row['worker']} left after the last client had"
    yield from _of_the_worst(claim, evidence)
    _, lost = computed_again(evidence)
    if claim["ran_again"]:
        yield from differs(claim["ran_again"], len(lost), "tasks whose results were lost")
        held = lost.sum("ran"), lost.sum("slot")
        yield from lies(claim["again"], *held, "their thread time")
    most_missed = sum(
        max(evidence.span[1] - evidence.lives[one][1], 0.0) * evidence.lives[one][2]
        for one in on_them
    )
    yield from exceeds(claim["missed"], most_missed, "the time without these workers")


def _of_the_worst(claim: Claim, evidence: Evidence) -> Iterator[str]:
    """Compare when the worker with the most tasks left, and its memory at that time."""
    left = {
        row["worker"]: row["timestamp"] - evidence.first_seen
        for row in evidence.rows("Worker Removed")
        if evidence.label(row["worker"]) in (claim.worker, None)
    }
    known = np.isfinite(claim["left"])
    if known and not any(is_same_time(claim["left"], one) for one in left.values()):
        yield f"{claim.worker} left at {left}, not {claim['left']:.6g}"
    own = [one for one, at in left.items() if not known or is_same_time(claim["left"], at)]
    if np.isfinite(claim["memory"] + claim["limit"]):
        last = {
            row["address"]: row["memory"] or np.nan
            for row in evidence.rows("Resource Usage")
            if row["address"] in own
            and row["timestamp"] <= left[row["address"]] + evidence.first_seen
        }
        if not any(is_close(claim["memory"], one) for one in last.values()):
            yield f"its process had {last} bytes at last, not {claim['memory']}"
    if claim["ages"]:
        (least, most), workers = (
            claim["ages"],
            [header.get("worker") for header in evidence.headers],
        )
        started = {one["address"]: one.get("started", np.nan) for one in workers if one}
        removed = evidence.rows("Worker Removed")
        ages = [row["timestamp"] - started.get(row["worker"], np.nan) for row in removed]
        same = [age for age in ages if least - 0.01 <= age <= most + 0.01]
        if len(same) < claim["of_age"]:
            yield f"{len(same)} workers died at an age of {least} to {most}: {ages}"
    if claim["blames_memory"] and not _of_memory(own, claim, evidence):
        yield f"memory is blamed, of which {claim['memory']} B were used, and nobody told so"
    if claim["why"] == "silent" and not any(
        one["action"] == "worker-ttl" and set(own) & set(one["workers"])
        for one in evidence.rows("Cluster Change")
    ):
        yield f"the scheduler did not give {own} up for want of heartbeats"


def _of_memory(workers: list[str], claim: Claim, evidence: Evidence) -> bool:
    """Return whether a nanny, the kernel, or the last sample shows an out-of-memory kill."""
    by_nanny = any(
        row["worker"] in workers and "memory budget" in (row["reason"] or "")
        for row in evidence.rows("Worker Exit")
    )
    samples = evidence.rows("Resource Usage")
    counts = {row.get("oom_kills") for row in samples} - {None}
    read = samples.where(lambda row: row.get("host_memory_total"))
    left = read.numbers("host_memory_available") / read.numbers("host_memory_total")
    near = claim["memory"] >= _NO_WANT * claim["limit"]
    return by_nanny or len(counts) > 1 or near or bool((left <= _FULL).any())


def _restarted(claim: Claim, evidence: Evidence) -> Iterator[str]:
    """Count the tasks that a restart removed from workers, and those that were not assigned."""
    unended = evidence.rows("Task Run").where(lambda row: row["state"] not in ("memory", "erred"))
    sent = [row for row in unended if str(row["end_cause"]).startswith("client-restart")]
    changes = evidence.rows("Cluster Change").where(lambda row: row["action"] == "restart")
    never = sum(row["number"] or 0 for row in changes)
    yield from differs(claim["tasks"], len(sent) + never, "tasks that a restart took away")


@refuter("recomputation")
def recomputation(claim: Claim, evidence: Evidence) -> Iterator[str]:
    released, _ = computed_again(evidence)
    slots = evidence.runs.numbers("held") - evidence.runs.numbers("executing")
    seconds = released.sum("slot")
    yield from differs(claim["tasks"], len(released), "tasks that ran again")
    ran = released.sum("ran")
    yield from lies(claim["lost"], ran, seconds, "their thread time")
    by_function = most(released.values("function"), released.numbers("slot"))
    if not is_most(str(claim.function), by_function):
        yield f"most ran again in another function than {claim.function}"
    yield from lies(claim["share"], ran / slots.sum(), seconds / slots.sum(), "their share")
    of_tasks = claim.seconds - (claim["handling"] or 0.0)
    if of_tasks > seconds + 0.001:
        yield f"{of_tasks:.3g} s are at stake of {seconds:.3g} s of threads"


@refuter("cancelled-tasks")
def cancelled_tasks(claim: Claim, evidence: Evidence) -> Iterator[str]:
    if "restarts" in claim.figures:
        yield from _restarted(claim, evidence)
        return
    given_up = evidence.rows("Task Run").where(
        lambda row: by_client(row) and row["state"] not in ("memory", "erred")
    )
    more = len(evidence.runs.where(lambda row: row["state"] in ("cancelled", "released")))
    yield from exceeds(claim["tasks"], len(given_up) + more, "tasks that clients released")


@refuter("swallowed-errors")
def swallowed_errors(claim: Claim, evidence: Evidence) -> Iterator[str]:
    logged = {
        (repr(row["key"]), row["run_id"]) for row in evidence.rows("Log Record") if row["error"]
    }
    done = evidence.of(claim.function).where(lambda row: row["state"] == "memory")
    nothing = done.where(lambda row: row["type"] == "NoneType")
    silent = [row for row in nothing if (repr(row["key"]), row["run_id"]) in logged]
    yield from differs(claim["silent"], len(silent), "task runs that logged and returned None")
    yield from differs(claim["tasks"], len(done), "task runs of the function")
