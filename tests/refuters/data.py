"""Refuters of what is said about data: transfers, spilling, and memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from dask.utils import key_split

from refuters.cores import grown
from refuters.evidence import Evidence, Rows
from refuters.registry import Said, differs, exceeds, refuter
from refuters.steps import Steps

#: Shares of its limit at which Dask pauses a worker, and that are near.
_PAUSES, _NEAR = 0.8, 0.85


@refuter("transfer-bound")
def transfer_bound(said: Said, evidence: Evidence) -> Iterator[str]:
    """Sum transfers by bytes, and the time in which threads idled and inputs were fetched."""
    told = said.figures(
        "from each other: {share} of the threads' time and {duration} of the critical path, most"
    )
    waited = evidence.idle_by_worker("received", "ready")
    yield from exceeds(told["share"], waited / evidence.thread_seconds, "waits for transfers")
    moves = evidence.rows("Transfer").where(lambda row: row["state"] == "success")
    under_way = Steps.of(
        moves.numbers("timestamp"), moves.numbers("timestamp") + moves.numbers("duration")
    )
    fetching = evidence.between("received", "ready").where(lambda number: number > 0)
    anything = (under_way + fetching).where(lambda number: number > 0)
    yield from exceeds(told["duration"], anything.integral(), "the critical path's transfers")
    total = said.figures("{size} were moved")["size"]
    yield from differs(total, float(np.nansum(moves.numbers("size"))), "bytes that were moved")
    by_p2p = said.figures_if_any(", and {size} by P2P shuffles")
    messages = evidence.rows("Shuffle Message").where(lambda row: row["state"] == "success")
    shuffled = float(np.nansum(messages.numbers("size")))
    if by_p2p:
        yield from differs(by_p2p["size"], shuffled, "bytes of P2P shuffles")
    elif shuffled > 0:
        yield f"P2P shuffles moved {shuffled:.3g} bytes besides"
    again = said.figures_if_any("{size:again} of it more than once")
    if again and not again["again"].is_at_most(total.value):
        yield f"{again['again'].text} are more than {total.text}"
    yield from _of_function(said, moves)


def _of_function(said: Said, moves: Rows) -> Iterator[str]:
    """Compare what is said of one function's results with the messages that had any of them."""
    told = said.figures("{size} of them are of {name}, at {size:rate}/s.")
    with_any = moves.where(lambda row: said.function in map(key_split, row["keys"]))
    only = with_any.where(lambda row: {said.function} == set(map(key_split, row["keys"])))
    yield from exceeds(told["size"], float(np.nansum(with_any.numbers("size"))), "its bytes")
    if not told["size"].is_at_least(float(np.nansum(only.numbers("size")))):
        yield f"messages with {said.function} alone had more than {told['size'].text}"
    if len(only) == len(with_any) and len(only):
        rate = np.nansum(only.numbers("size")) / only.numbers("duration").sum()
        yield from differs(told["rate"], rate, "bytes a second")


@refuter("spilling")
def spilling(said: Said, evidence: Evidence) -> Iterator[str]:
    """Sum what workers wrote and read, and compare the advice with what they held."""
    told = said.figures("{size:written} were written and {size:read} read back.")
    held = evidence.rows("Managed Memory")
    for way, name in (("write", "written"), ("read", "read")):
        grew = grown(held, f"spill_{way}_size")
        yield from differs(told[name], sum(grew.values()), f"bytes {name}")
    shares = said.figures(
        "{share} of the threads' time is spent on that, and {share:around} around"
    )
    seconds = sum(sum(grown(held, f"spill_{way}").values()) for way in ("write", "read"))
    reads = float(np.nansum(evidence.runs.numbers("disk_read")))
    runs = evidence.runs
    around = np.nansum(runs.numbers("timestamp") - runs.numbers("executing"))
    around += np.nansum(np.maximum(runs.numbers("done") - runs.numbers("stop"), 0.0))
    whole = evidence.thread_seconds
    yield from exceeds(shares["share"], (seconds + reads + around) / whole, "time on disks")
    yield from exceeds(shares["around"], around / whole, "time around functions")
    peak = said.figures("one worker held up to {size} of results")["size"]
    most = float(np.nanmax(held.numbers("size")))
    yield from differs(peak, most, "the most that a worker held")
    on_disk = said.figures_if_any("had up to {size} of them on disk")
    if on_disk:
        spilled = float(np.nanmax(held.numbers("spilled_size")))
        yield from differs(on_disk["size"], spilled, "the most on disk")
    yield from _disk_needed(said, evidence)
    advised = said.figures_if_any("memory_limit of {size:new} or more in place of {size:old}")
    if advised and not advised["new"].value > advised["old"].value:
        yield f"{advised['new'].text} are advised in place of {advised['old'].text}"


def _disk_needed(said: Said, evidence: Evidence) -> Iterator[str]:
    """Sum what the workers of a host had on disk at any time, reading by reading."""
    told = said.figures_if_any("All workers of {name:host} had up to {size} on disk at once")
    if not told:
        return
    held: dict[Any, float] = {}
    peak = 0.0
    last = {row["address"]: row["timestamp"] for row in evidence.rows("Managed Memory")}
    own = [row for row in evidence.rows("Managed Memory") if row["host"] == told["host"].text]
    for row in sorted(own, key=lambda row: row["timestamp"]):
        held = {each: size for each, size in held.items() if last[each] >= row["timestamp"]}
        held[row["address"]] = row["spilled_size"]
        peak = max(peak, sum(held.values()))
    yield from differs(told["size"], peak, "the most on the host's disk at once")
    free = said.figures_if_any("the disk to which they spill had {size} free at least")
    if free:
        disks = evidence.rows("Disk Usage").where(
            lambda row: row["local_directory"] == 1 and row["host"] == told["host"].text
        )
        yield from differs(free["size"], float(np.nanmin(disks.numbers("free"))), "free at least")
    if "more room" in said.suggestion and not (free and free["size"].is_at_most(peak)):
        yield "there was as much room again"


@refuter("memory-pressure")
def memory_pressure(said: Said, evidence: Evidence) -> Iterator[str]:
    """Sum the time for which workers' samples say that they were paused."""
    told = said.figures("nearly full: {count} worker") | said.figures(
        "for {share} of the threads' time."
    )
    seconds, workers = 0.0, set()
    for own in evidence.rows("Managed Memory").by("file").values():
        label = own.maps[0]["label"]
        times, states = own.numbers("timestamp"), own.values("state")
        steps = np.append(np.diff(times), np.median(np.diff(times)) if len(times) > 1 else 0.0)
        paused = np.array([state == "paused" for state in states])
        if paused.any():
            workers.add(label)
            threads = max(life[2] for life in evidence.lives.values())
            # It may have paused right after the sample before.
            first = np.append(0.0, steps[:-1])
            seconds += threads * float((steps + first)[paused].sum())
    yield from differs(told["count"], len(workers), "workers that paused")
    yield from exceeds(told["share"], seconds / evidence.thread_seconds, "time in which they were")


@refuter("memory-near-limit")
def memory_near_limit(said: Said, evidence: Evidence) -> Iterator[str]:
    """Compare the processes' memory with their limits."""
    told = said.figures("its process had {size:used} of {size:limit}.")
    limits = {row["worker"]: row["memory_limit"] for row in evidence.rows("Worker Added")}
    shares = {}
    for address, own in evidence.rows("Resource Usage").by("address").items():
        if limits.get(address):
            peak = float(np.nanmax(own.numbers("memory")))
            shares[address] = (peak / limits[address], peak, limits[address])
    worst = max(shares.values(), default=(0.0, 0.0, 0.0))
    yield from differs(told["used"], worst[1], "the memory of the fullest")
    yield from differs(told["limit"], worst[2], "its limit")
    near = said.figures("{count} worker")["count"]
    yield from differs(near, sum(one[0] >= _NEAR for one in shares.values()), "workers so near")
    advised = said.figures("memory_limit of {size} or more")["size"]
    yield from differs(advised, worst[1] / _PAUSES, "the advised limit")


@refuter("host-memory-full")
def host_memory_full(said: Said, evidence: Evidence) -> Iterator[str]:
    """Find the sample with the least memory left."""
    told = said.figures("only {size:left} of {size:total} were left.")
    share = said.figures("That is {share}, {duration} into the trace")
    samples = evidence.rows("Resource Usage").where(
        lambda row: _known(row["host_memory_available"]) and _known(row["host_memory_total"])
    )
    left = samples.numbers("host_memory_available") / samples.numbers("host_memory_total")
    worst = samples.maps[int(left.argmin())]
    yield from differs(told["left"], worst["host_memory_available"], "memory left")
    yield from differs(told["total"], worst["host_memory_total"], "memory")
    yield from differs(share["share"], float(left.min()), "the share left")
    at = worst["timestamp"] - evidence.first_seen
    yield from differs(share["duration"], at, "when")


def _known(value: float | None) -> bool:
    return value is not None and not np.isnan(value)
