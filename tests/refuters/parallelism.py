"""Refuters of findings about parallelism, and about slowing functions."""

from collections.abc import Iterator

import numpy as np

from refuters.evidence import Evidence
from refuters.figures import Claim, differs, exceeds, lies
from refuters.registry import refuter

#: Thresholds (fraction of tasks' time) of CPU wait that is reported, and that must be reported.
_WAITED = 0.1
_MORE = 0.105


def needs_cores(claim: Claim, evidence: Evidence) -> Iterator[str]:
    """Compare the claim about cores, which more parallel tasks need, with CPU wait."""
    claimed = claim["core_wait"]
    runs = evidence.runs
    share = float(runs.sum("waited") / max(runs.sum("duration"), 1e-9))
    if any(row["seceded"] is not None for row in runs):
        return  # these tasks do not hold their threads all the time
    if claimed:
        yield from differs(claimed, share, "the share of waits for a core")
    if share >= _MORE and not claimed:
        yield f"tasks waited for a core for {share:.3g} of their time, which is not said"
    if share < _WAITED and claimed:
        yield "tasks hardly waited for cores"


@refuter("serial-chain")
def serial_chain(claim: Claim, evidence: Evidence) -> Iterator[str]:
    """Compare with the time in which one task ran alone, and with the tasks of the chain."""
    running = evidence.between("executing", "held")
    alone = running.where(lambda number: number == 1).integral()
    yield from exceeds(claim["alone"], alone, "time with one task")
    yield from lies(claim["share"], *evidence.shares(claim["alone"]), "its share")
    yield from exceeds(claim["tasks"], len(evidence.runs), "tasks")
    yield from exceeds(claim["alone_in_function"], claim["alone"], f"of that in {claim.function}")
    idle = evidence.idle.integral() / evidence.thread_seconds
    yield from exceeds(claim["idle"], idle, "idle threads")
    runs = evidence.of(claim.function)
    if len(runs) and not any(row["dependencies"] for row in runs):
        yield f"no task of {claim.function} has an input, so they are not a chain"
    yield from needs_cores(claim, evidence)


@refuter("too-few-tasks")
def too_few_tasks(claim: Claim, evidence: Evidence) -> Iterator[str]:
    threads = evidence.threads, evidence.threads_seen
    if not any(abs(claim["threads"] - one) <= 0.51 for one in threads):
        yield f"there are {evidence.threads:.3g} threads"
    yield from lies(claim["wall"], evidence.least_wall, evidence.wall, "seconds of the run")
    begin, end = evidence.span
    idle = evidence.idle.integral(begin, end) / evidence.threads
    yield from exceeds(claim["lost"], idle, "idle threads, in seconds of the run")
    runs = evidence.of(claim.function)
    yield from differs(claim["tasks"], len(runs), f"tasks of {claim.function}")
    share = evidence.idle.integral() / evidence.thread_seconds
    yield from exceeds(claim["idle"], share, "idle threads")
    if claim["chunk"]:
        sizes = np.fmax(runs.numbers("size"), runs.numbers("input_size"))
        yield from exceeds(claim["chunk"], float(np.nanmax(sizes)), "the largest chunk")
    yield from needs_cores(claim, evidence)
