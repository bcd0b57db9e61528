"""Refuters of findings about times in which the cluster had no tasks or no workers."""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from refuters.attempts import left_alone
from refuters.evidence import Evidence
from refuters.figures import Claim, exceeds, is_at_least, lies
from refuters.registry import refuter
from refuters.steps import Steps


@refuter("client-bound")
def client_bound(claim: Claim, evidence: Evidence) -> Iterator[str]:
    """Compare with the time in which the scheduler knew no unfinished task."""
    begin, end = evidence.span
    idle = evidence.idle.where(lambda number: number > 0)
    waited = idle.less(_called(evidence)).integral(begin, end)
    yield from exceeds(claim["waited"], waited, "seconds in which a thread idled")
    yield from lies(claim["share"], *evidence.shares(claim["waited"]), "their share")
    yield from exceeds(claim["longest"], claim["waited"], "the longest")
    if claim["waits"]:
        asked = evidence.rows("Client Calls").where(lambda row: row["main"])
        yield from exceeds(0.5 * claim["waited"], asked.sum("waiting"), "waits of clients")
    if claim["pickled"] is not None:
        sizes = evidence.rows("Graph Sent").numbers("size")
        yield from exceeds(claim["pickled"], float(np.mean(sizes)), "bytes of a graph")
    yield from _between_clients(evidence, claim["longest"])


@refuter("sequential-submission")
def sequential_submission(claim: Claim, evidence: Evidence) -> Iterator[str]:
    begin, end = evidence.span
    idle = evidence.idle.where(lambda number: number > 0).integral(begin, end)
    yield from exceeds(claim["few"], idle, "seconds in which a thread idled")
    yield from lies(claim["share"], *evidence.shares(claim["few"]), "their share")
    yield from exceeds(claim["graphs"], len(evidence.rows("Graph")), "graphs")
    noted = evidence.rows("Task Run")
    begins, ends = np.sort(noted.numbers("waiting")), np.sort(noted.ends)
    alone = sum(
        np.count_nonzero(ends <= at) >= np.count_nonzero(begins < at) for at in np.unique(begins)
    )
    runs = evidence.runs.where(lambda row: row["known"] is not None)
    at_once = evidence.between("timestamp", "stop", runs)
    full = at_once.where(lambda number: number >= max(claim["threads"], 2)).integral(begin, end)
    if full > evidence.wall - claim["few"] + 0.01 * evidence.wall:
        yield f"for {full:.3g} s as many tasks ran as there are threads"
    if alone < 0.5 * claim["graphs"]:
        yield f"{alone} times tasks came once those before had ended"


def _called(evidence: Evidence) -> Steps:
    """Return 1 during actor calls and 0 at other times."""
    calls = evidence.rows("Actor Call")
    return Steps.of(calls.numbers("timestamp"), calls.ends).where(lambda number: number > 0)


def _between_clients(evidence: Evidence, longest: float) -> Iterator[str]:
    """Yield a contradiction if the client after a gap was not connected before it."""
    graphs = sorted(evidence.rows("Graph"), key=lambda row: row["timestamp"])
    ends, seen = evidence.rows("Task Run").ends, set()
    for before, after in pairwise(graphs):
        seen.add(before["client"])
        last = ends[ends < after["timestamp"]].max(initial=-np.inf)
        gap = after["timestamp"] - last
        if after["client"] not in seen and abs(gap - longest) < 0.02 * longest:
            yield f"the longest gap lies between two clients, {before['client']} and its follower"


def _after_losses(evidence: Evidence) -> Steps:
    """Return 1 from the loss of a worker with tasks until another worker joins, and 0 otherwise."""
    lost = [one for one, rows in left_alone(evidence).items() if len(rows)]
    begins = [evidence.lives[one][1] for one in lost if one in evidence.lives]
    joined = sorted(begin for begin, _, _ in evidence.lives.values())
    ends = [next((one for one in joined if one > begin), evidence.end) for begin in begins]
    return Steps.of(begins, ends).where(lambda number: number > 0)


@refuter("no-workers")
def no_workers(claim: Claim, evidence: Evidence) -> Iterator[str]:
    """Compare with the time in which the scheduler had tasks but no workers.

    Times after the loss of a worker belong to that finding.
    """
    noted = evidence.rows("Task Run")
    begins = np.fmin(noted.numbers("waiting"), noted.numbers("timestamp"))
    tasks = Steps.of(begins, noted.ends)
    none = tasks.with_(
        evidence.threads_there, lambda number, threads: ((number > 0) & (threads <= 0)) * 1.0
    )
    # A task waits until its last task run starts.
    begin, end = evidence.span
    there = evidence.threads_there.where(lambda threads: threads > 0).integral(begin, end)
    yield from exceeds(claim["waited"], end - begin - there, "time without a worker")
    otherwise = none.less(_after_losses(evidence)).integral(begin, end)
    if not is_at_least(claim["waited"], otherwise):
        yield f"tasks waited for {otherwise:.6g} s, without a worker"
    yield from lies(claim["share"], *evidence.shares(claim["waited"]), "its share")
    yield from exceeds(claim["longest"], claim["waited"], "the longest")


@refuter("work-outside-tasks", "idle-threads")
def work_outside_tasks(claim: Claim, evidence: Evidence) -> Iterator[str]:
    begin, end = _recorded(evidence)
    there = evidence.threads_there.integral(begin, end)
    idle = evidence.idle.integral(begin, end)
    if claim.rule == "idle-threads":
        yield from exceeds(claim["idle"], idle / max(there, 1e-9), "the share of idle threads")
        return
    some = evidence.idle.where(lambda number: number > 0).integral(begin, end)
    yield from exceeds(claim["idle"], some, "seconds in which a thread idled")
    yield from exceeds(claim["calls"], _called(evidence).integral(begin, end), "calls of actors")
    functions = evidence.rows("Worker Function").sum("duration")
    yield from exceeds(claim["functions"], float(functions), "seconds of functions")


def _recorded(evidence: Evidence) -> tuple[float, float]:
    lives = [*evidence.lives.values()]
    return min(one[0] for one in lives), max(one[1] for one in lives)
