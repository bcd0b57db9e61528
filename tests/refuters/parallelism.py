"""Refuters of what is said about how much of a run goes on side by side, and over its course."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from refuters.evidence import Evidence
from refuters.figures import Said, differs, exceeds, lies
from refuters.registry import refuter

#: The share of their time from which waits for cores are told of, and what is more than that.
_WAITED = 0.1
_MORE = 0.105


def needs_cores(said: Said, evidence: Evidence) -> Iterator[str]:
    """Compare what is said of cores, which more tasks at a time need, with waits for them."""
    told = said["core_wait"]
    runs = evidence.runs
    share = float(runs.sum("waited") / max(runs.sum("duration"), 1e-9))
    if any(row["seceded"] is not None for row in runs):
        return  # those do not hold their threads for all of their time
    if told:
        yield from differs(told, share, "the share of waits for a core")
    if share >= _MORE and not told:
        yield f"tasks waited for a core for {share:.3g} of their time, which is not said"
    if share < _WAITED and told:
        yield "tasks hardly waited for cores"


@refuter("serial-chain")
def serial_chain(said: Said, evidence: Evidence) -> Iterator[str]:
    """Compare with the time in which one task ran alone, and with what the chain is made of."""
    running = evidence.between("executing", "held")
    alone = running.where(lambda number: number == 1).integral()
    yield from exceeds(said["alone"], alone, "time with one task")
    yield from lies(said["share"], *evidence.shares(said["alone"]), "its share")
    yield from exceeds(said["tasks"], len(evidence.runs), "tasks")
    yield from exceeds(said["alone_in_function"], said["alone"], f"of that in {said.function}")
    idle = evidence.idle.integral() / evidence.thread_seconds
    yield from exceeds(said["idle"], idle, "idle threads")
    own = evidence.of(said.function)
    if len(own) and not any(row["dependencies"] for row in own):
        yield f"no task of {said.function} has an input: they are no chain"
    yield from needs_cores(said, evidence)


@refuter("too-few-tasks")
def too_few_tasks(said: Said, evidence: Evidence) -> Iterator[str]:
    """Compare with the time in which threads idled."""
    threads = evidence.threads, evidence.threads_seen
    if not any(abs(said["threads"] - one) <= 0.51 for one in threads):
        yield f"there are {evidence.threads:.3g} threads"
    yield from lies(said["wall"], evidence.least_wall, evidence.wall, "seconds of the run")
    begin, end = evidence.span
    idle = evidence.idle.integral(begin, end) / evidence.threads
    yield from exceeds(said["lost"], idle, "idle threads, in seconds of the run")
    own = evidence.of(said.function)
    yield from differs(said["tasks"], len(own), f"tasks of {said.function}")
    share = evidence.idle.integral() / evidence.thread_seconds
    yield from exceeds(said["idle"], share, "idle threads")
    if said["chunk"]:
        sizes = np.fmax(own.numbers("size"), own.numbers("input_size"))
        yield from exceeds(said["chunk"], float(np.nanmax(sizes)), "the largest chunk")
    yield from needs_cores(said, evidence)
