"""Refuters of findings about Dask's locks and resources, and tasks that wait for tasks."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from refuters.cores import stacks_of
from refuters.evidence import Evidence
from refuters.figures import Claim, differs, exceeds, lies
from refuters.registry import refuter
from refuters.steps import Steps


@refuter("distributed-lock")
def distributed_lock(claim: Claim, evidence: Evidence) -> Iterator[str]:
    named = (claim["kind"], claim["name"])
    own = evidence.rows("Lock Held").where(lambda row: (row["kind"], row["name"]) == named)
    yield from differs(claim["times"], len(own), "how often it was given back")
    yield from differs(claim["waited"], own.sum("waited"), "waits for it")
    held = float((own.numbers("timestamp") - own.numbers("since")).sum())
    if abs(claim["held"] - held) > 1e-3 * len(own):
        yield f"it was held for {held:.6g} s"
    yield from exceeds(claim["waited"], evidence.thread_seconds, "thread-seconds")
    yield from exceeds(claim["share"], claim["waited"] / evidence.thread_seconds, "its share")
    if any(np.isfinite(evidence.runs.numbers("seceded"))):
        yield "tasks seceded, and may have waited without a thread"


@refuter("resources-not-needed")
def resources_not_needed(claim: Claim, evidence: Evidence) -> Iterator[str]:
    """Compare with the workers, the time in which tasks held threads, and memory samples."""
    begins, ends, _ = zip(*evidence.lives.values(), strict=True)
    yield from differs(claim["workers"], Steps.of(begins, ends).values.max(), "workers at a time")
    yield from lies(claim["wall"], *evidence.walls, "the wall time")
    held = evidence.between("executing", "held").integral()
    there = evidence.threads_there.integral(*evidence.span)
    yield from lies(claim["busy"], 0.9 * held / there, 1.1 * held / there, "time of tasks")
    memory = evidence.rows("Resource Usage").numbers("memory")
    if "threads" not in claim.suggestion:
        yield from exceeds(float(np.nanmax(memory)), claim["process"], "its memory")


@refuter("missing-secede")
def missing_secede(claim: Claim, evidence: Evidence) -> Iterator[str]:
    """Look for stack samples in Dask's client, and for tasks for which it could have waited."""
    own = evidence.of(claim.function)
    yield from differs(claim["tasks"], len(own), "its tasks")
    yield from exceeds(claim["kept"], own.sum("working"), "their seconds")
    stacks = stacks_of(own, evidence)
    in_client = sum(any(file.endswith("client.py") for _, file, *_ in stack) for stack in stacks)
    if in_client < 0.1 * len(stacks) or not in_client:
        yield f"{in_client} of {len(stacks)} samples are in Dask's client"
    if len(own) == len(evidence.runs):
        yield "there are no other tasks"


@refuter("resource-limit")
def resource_limit(claim: Claim, evidence: Evidence) -> Iterator[str]:
    """Count tasks that request the resource, and threads that were idle while these were ready."""

    def asks_for_it(row: dict[str, Any]) -> bool:
        annotations = row["noted"].get("annotations") or {}
        return claim["resource"] in (annotations.get("resources") or {})

    asks = evidence.runs.where(asks_for_it)
    yield from differs(claim["tasks"], len(asks), "tasks that ask for it")
    for own in asks.by("address").values():
        at_once = evidence.between("timestamp", "stop", own)
        more = at_once.where(lambda number: number > claim["most"]).integral()
        if more > 0.1 * at_once.where(lambda number: number > 0).integral():
            yield "a worker runs more of them at a time"
    yield from exceeds(claim["idle"], evidence.idle.integral(), "time of idle threads")
    waited = np.clip(asks.numbers("executing") - asks.numbers("ready"), 0, None)
    yield from exceeds(claim["idle"], float(np.nansum(waited)), "time for which they were ready")
    yield from exceeds(claim["share"], claim["idle"] / evidence.thread_seconds, "its share")


@refuter("cpu-quota", "descriptor-limit")
def limits_of_processes(claim: Claim, evidence: Evidence) -> Iterator[str]:
    facts = [header.get("worker", {}) for header in evidence.headers]
    samples = evidence.rows("Resource Usage")
    if claim.rule == "descriptor-limit":
        yield from exceeds(claim["files"], samples.numbers("num_fds").max(), "open files")
        if claim["limit"] not in [each.get("descriptor_limit") for each in facts]:
            yield "no worker has that limit"
        return
    if claim["quota"] not in [each.get("cpu_quota") for each in facts]:
        yield "no worker has that quota"
    counted = samples.numbers("throttled_seconds")
    yield from exceeds(claim["stopped"], float(np.nanmax(counted)), "seconds without CPU")
