"""Refuters of findings about data: transfers, spilling, and memory."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
from dask.utils import key_split

from refuters.cores import grown
from refuters.evidence import Evidence, Rows
from refuters.figures import Claim, differs, exceeds, is_at_least, is_close
from refuters.registry import refuter
from refuters.steps import Steps


@refuter("transfer-bound")
def transfer_bound(claim: Claim, evidence: Evidence) -> Iterator[str]:
    """Add up the bytes of transfers, and the time in which threads were idle while inputs came."""
    if claim.figures.get("smaller"):
        yield from _merge(claim, evidence)
        return
    waited = evidence.idle_by_worker("received", "ready")
    yield from exceeds(claim["waiting"], waited / evidence.thread_seconds, "waits for transfers")
    moves = evidence.rows("Transfer").where(lambda row: row["state"] == "success")
    under_way = Steps.of(moves.numbers("timestamp"), moves.ends)
    fetching = evidence.between("received", "ready").where(lambda number: number > 0)
    anything = (under_way + fetching).where(lambda number: number > 0)
    yield from exceeds(claim["on_path"], anything.integral(), "the critical path's transfers")
    total = moves.sum("size")
    yield from differs(claim["moved"], total, "bytes that were moved")
    messages = evidence.rows("Shuffle Message").where(lambda row: row["state"] == "success")
    shuffled = messages.sum("size")
    if np.isfinite(claim["shuffled"]) or shuffled > 0:
        yield from differs(claim["shuffled"], shuffled, "bytes of P2P shuffles")
    yield from exceeds(claim["again"] or 0.0, claim["moved"], "bytes that were moved again")
    yield from _of_function(claim, moves)
    if claim["serialising"] is not None:
        slow_results = evidence.rows("Result Serialised").where(
            lambda row: row["target"] and key_split(row["key"]) == claim.function
        )
        yield from differs(claim["serialising"], slow_results.sum("seconds"), "serialising them")


def _merge(claim: Claim, evidence: Evidence) -> Iterator[str]:
    """Look for two layers with as many bytes of inputs as the tables, and with as much work."""
    tables = defaultdict[str, dict[str, float]](dict)
    for row in evidence.runs.where(lambda row: row["function"].endswith("transfer")):
        tables[row["key"][0]][repr(row["key"])] = row["input_size"]
    sizes = sorted(sum(keys.values()) for keys in tables.values())
    for side in ("smaller", "larger"):
        if not any(is_close(claim[side], size) for size in sizes):
            yield f"no table has {claim[side]:.0f} bytes, but {sizes}"
    transfers = evidence.runs.where(lambda row: row["key"][0] in tables)
    yield from exceeds(claim["tasks"], len(transfers), "tasks that move tables")
    yield from exceeds(claim["moving"], transfers.sum("working"), "their seconds")


def _of_function(claim: Claim, moves: Rows) -> Iterator[str]:
    """Compare the figures about one function's results with the transfers that contained them."""
    with_any = moves.where(lambda row: claim.function in map(key_split, row["keys"]))
    only = with_any.where(lambda row: {claim.function} == set(map(key_split, row["keys"])))
    yield from exceeds(claim["of_function"], with_any.sum("size"), "its bytes")
    if not is_at_least(claim["of_function"], only.sum("size")):
        yield f"messages with {claim.function} alone had more than {claim['of_function']} bytes"
    if len(only) == len(with_any) and len(only):
        rate = np.nansum(only.numbers("size")) / only.sum("duration")
        yield from differs(claim["rate"], rate, "bytes per second")


@refuter("spilling")
def spilling(claim: Claim, evidence: Evidence) -> Iterator[str]:
    """Add up spilled and unspilled bytes, and compare the advice with managed memory."""
    held = evidence.rows("Managed Memory")
    for way, name in (("write", "written"), ("read", "read")):
        grew = grown(held, f"spill_{way}_size")
        yield from differs(claim[name], sum(grew.values()), f"bytes {name}")
    seconds = sum(sum(grown(held, f"spill_{way}").values()) for way in ("write", "read"))
    reads = evidence.runs.sum("disk_read")
    runs = evidence.runs
    around = np.nansum(runs.numbers("timestamp") - runs.numbers("executing"))
    around += np.nansum(np.maximum(runs.numbers("done") - runs.numbers("stop"), 0.0))
    thread_seconds = evidence.thread_seconds
    yield from exceeds(
        claim["spilling"], (seconds + reads + around) / thread_seconds, "time on disks"
    )
    yield from exceeds(claim["around"], around / thread_seconds, "time around functions")
    most = held.most("size")
    yield from differs(claim["held"], most, "the most that a worker held")
    if claim["wanted"] is not None and not claim["wanted"] > claim["limit"]:
        yield f"{claim['wanted']} bytes are advised instead of {claim['limit']}"


@refuter("paused-workers")
def paused_workers(claim: Claim, evidence: Evidence) -> Iterator[str]:
    """Add up the time for which samples show paused workers."""
    seconds, workers = 0.0, set()
    threads = max((life[2] for life in evidence.lives.values()), default=1)
    for rows in evidence.rows("Managed Memory").by("file").values():
        times = rows.numbers("timestamp")
        usual = float(np.median(np.diff(times))) if len(times) > 1 else 0.0
        # The worker may have kept its last state until it left.
        left = evidence.lives.get(rows.maps[0]["address"], (0.0, evidence.end, 1))[1]
        steps = np.append(np.diff(times), max(usual, left - times[-1]))
        paused = np.array([state == "paused" for state in rows.values("state")])
        if paused.any():
            workers.add(rows.maps[0]["label"])
            # It may have paused directly after the previous sample.
            seconds += threads * float((steps + np.append(0.0, steps[:-1]))[paused].sum())
    yield from differs(claim["workers"], len(workers), "workers that paused")
    yield from exceeds(
        claim["paused"], seconds / evidence.thread_seconds, "time in which they were"
    )
    if claim.figures.get("unmanaged"):
        quiet = evidence.rows("Managed Memory").where(
            lambda row: row["state"] == "paused" and row["executing"] == 0
        )
        results = quiet.numbers("size") - np.nan_to_num(quiet.numbers("spilled_size"))
        limit = evidence.rows("Worker Added").most("memory_limit")
        yield from exceeds(claim["unmanaged"], limit - results.min(initial=limit), "unmanaged")


@refuter("host-memory-full")
def host_memory_full(claim: Claim, evidence: Evidence) -> Iterator[str]:
    samples = evidence.rows("Resource Usage").where(lambda row: row["host_memory_total"])
    left = samples.numbers("host_memory_available") / samples.numbers("host_memory_total")
    worst = samples.maps[int(np.nanargmin(left))]
    yield from differs(claim["left"], worst["host_memory_available"], "memory left")
    yield from differs(claim["total"], worst["host_memory_total"], "memory")
    yield from differs(claim["share"], float(np.nanmin(left)), "the share left")
    yield from differs(claim["at"], worst["timestamp"] - evidence.first_seen, "when")


def _tables(evidence: Evidence) -> dict[str, dict[str, Any]]:
    runs = sorted(evidence.rows("Compute"), key=lambda row: row["timestamp"])
    return {repr(row["key"]): row for row in runs if row["state"] == "memory"}


def _length(row: dict[str, Any]) -> float:
    """Return the number of rows of a task's result, or NaN if it is not a dataframe."""
    is_table = str(row["type"]).endswith(("DataFrame", "Series"))
    return float(row["shape"][0]) if is_table and row["shape"] else float("nan")


@refuter("exploding-join")
def exploding_join(claim: Claim, evidence: Evidence) -> Iterator[str]:
    """Compare the rows of the function's results with those of its input dataframes, by layer."""
    runs, layers = _tables(evidence), defaultdict[Any, list[dict[str, Any]]](list)
    for row in runs.values():
        if key_split(row["key"]) == claim.function and np.isfinite(_length(row)):
            layers[row["key"][0]].append(row)
    for layer in layers.values():
        waiting, before = [repr(key) for row in layer for key in row["dependencies"]], set[str]()
        for key in waiting:
            if np.isfinite(_length(runs[key])):
                before.add(key)
            else:
                waiting += [repr(other) for other in runs[key]["dependencies"]]
        taken, made = sum(_length(runs[key]) for key in before), sum(map(_length, layer))
        if (taken, made, len(layer)) == (claim["taken"], claim["rows"], claim["tasks"]):
            yield from differs(claim["size"], sum(row["size"] for row in layer), "its bytes")
            yield from exceeds(claim["largest"], max(map(_length, layer)), "its largest result")
            return
    yield f"no layer makes {claim['rows']} rows of {claim['taken']}"


@refuter("unused-columns")
def unused_columns(claim: Claim, evidence: Evidence) -> Iterator[str]:
    """Look for a dependent of the function that does not select columns."""
    runs = _tables(evidence)
    made = {
        key: row
        for key, row in runs.items()
        if key_split(row["key"]) == claim.function and row["shape"][1:] == (claim["columns"],)
    }
    selected: dict[Any, int] = {}
    for row in runs.values():
        is_use = made.keys() & {repr(key) for key in row["dependencies"]}
        if is_use and key_split(row["key"]) == "getitem":
            selected[row["key"][0]] = (*row["shape"], 1)[1]
    if len(made) < claim["tasks"] or sum(selected.values()) < claim["used"]:
        yield f"{len(made)} results with {claim['columns']} columns, of which {selected} are kept"


@refuter("filter-without-effect")
def filter_without_effect(claim: Claim, evidence: Evidence) -> Iterator[str]:
    """Look for a layer of the function with as many input rows as output rows."""
    runs, layers = _tables(evidence), defaultdict[Any, list[tuple[float, set[float]]]](list)
    for row in runs.values():
        if key_split(row["key"]) == claim.function and isinstance(row["key"], tuple):
            taken = {_length(runs[repr(key)]) for key in row["dependencies"] if repr(key) in runs}
            layers[row["key"][0]].append((_length(row), taken))
    for layer in layers.values():
        alike = all(taken == {rows} for rows, taken in layer)
        if alike and sum(rows for rows, _ in layer) == claim["rows"]:
            return
    yield f"no layer of {claim.function} takes and returns {claim['rows']} rows"
