"""Refuters of findings about uneven work: over tasks, partitions, and workers."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from refuters.attempts import left_alone
from refuters.evidence import Evidence, Rows
from refuters.figures import Claim, differs, exceeds, is_close, lies
from refuters.registry import refuter
from refuters.steps import Steps

#: Threshold (fraction of a task's time): a task that was off-CPU for at least this long is blocked.
_BLOCKED = 0.3


@refuter("data-skew")
def data_skew(claim: Claim, evidence: Evidence) -> Iterator[str]:
    """Compare sizes of inputs and results with the medians of the function in that layer."""
    row = _row_of(claim, evidence)
    if row is None:
        yield "no task has this key"
        return
    layer = _layer_of(row, evidence)
    times: list[tuple[float, float]] = []
    for column in ("size", "input_size"):
        sizes = layer.numbers(column)
        usual = float(np.nanmedian(sizes)) if len(sizes) else np.nan
        times += [(size, size / usual) for size in sizes[np.isfinite(sizes)] if usual > 0]
    if not any(is_close(claim["size"], a) and is_close(claim["times"], b) for a, b in times):
        yield f"no task has {claim['size']} bytes, {claim['times']:.3g} times the median"
    yield from exceeds(claim["longer"], row["held"] - row["executing"], "the task itself took")
    if claim.promises:
        # Splitting the data does not reduce the total work.
        least = evidence.runs.sum("working") / max(evidence.threads, 1.0)
        yield from exceeds(claim.seconds, evidence.walls[1] - least, "what an even split can save")
    if row["seceded"] is not None:
        yield "its tasks gave their threads back: what they waited for are tasks of their own"
    if not _is_divided(row):
        yield f"its partitions are {row['type']}, not parts of a collection"


def _is_divided(row: dict[str, Any]) -> bool:
    kinds = ("", "ndarray", "DataFrame", "Series", "Index", "Table", "list", "dict", "bytes", "str")
    return (row["type"] or "").rpartition(".")[2] in kinds or bool(row["dependencies"])


@refuter("stragglers")
def stragglers(claim: Claim, evidence: Evidence) -> Iterator[str]:
    """Compare the longest task run with the median of its layer, and its cause with its times."""
    by_function = claim["by_function"]
    if sum(by_function.values()) > claim["tasks"]:
        yield f"{by_function} are more than {claim['tasks']}"
    for name, count in by_function.items():
        if count > len(evidence.of(name)):
            yield f"{name} has fewer than {count} tasks"
    row = _row_of(claim, evidence)
    if row is None:
        yield "no task has this key"
        return
    # In other layers of the graph, the function does other work.
    layer = _layer_of(row, evidence).where(lambda other: other["seceded"] is None)
    if claim["longest"] < 2 * float(np.median(_held(layer, "held"))):
        yield "others of its layer take more than half as long"
    # Until the next task took the thread, or until the worker recorded the end.
    for name, rows in (("longest", Rows([row])), ("median", layer)):
        least, most = (float(np.median(_held(rows, end))) for end in ("held", "done"))
        yield from lies(claim[name], least, most, f"the {name}")
    # For many task runs, the cause is that of the majority.
    longest = sorted(zip(_held(layer, "held"), layer, strict=True), key=lambda pair: -pair[0])
    rows = [one for _, one in longest][: by_function.get(str(row["function"]), 1)]
    against = [
        [*_against_cause(claim["cause"], one, layer)] for one in (rows if len(rows) > 1 else [row])
    ]
    if 2 * sum(map(bool, against)) > len(against):
        yield from next(filter(None, against))


def _held(rows: Rows, end: str) -> Any:
    """Return the seconds for which task runs held threads until the given time, minus CPU wait."""
    held, done = rows.numbers("held"), rows.numbers(end)
    return np.fmax(held, done) - rows.numbers("executing") - rows.numbers("waited")


def _against_cause(cause: str, row: dict[str, Any], layer: Rows) -> Iterator[str]:
    first = min(
        (other["timestamp"] for other in layer if other["address"] == row["address"]),
        default=row["timestamp"],
    )
    off_cpu = row["working"] - row["used"]
    if cause == "first run on that worker" and row["timestamp"] > first + row["duration"]:
        yield "it was not the first on its worker"
    if cause == "blocked" and off_cpu < _BLOCKED * row["working"]:
        yield f"it used the CPU for {row['used']:.3g} of {row['working']:.3g} s"
    if cause == "computed longer" and row["used"] < _BLOCKED * row["working"]:
        yield f"it used the CPU for only {row['used']:.3g} of {row['working']:.3g} s"
    if cause == "spill" and not (row["disk_read"] or 0) > 0:
        yield "its inputs were not read back from disk"
    if cause == "deserialising" and not (row["deserialize"] or 0) > 0:
        yield "it was not deserialised"


@refuter("slow-worker")
def slow_worker(claim: Claim, evidence: Evidence) -> Iterator[str]:
    """Compare the medians of the function on that worker and on others."""
    here, elsewhere = claim["here"], claim["elsewhere"]
    yield from differs(claim["times"], here / elsewhere, "how many times as long")
    runs = evidence.of(claim.function)
    medians = {}
    for label, there in runs.by("label").items():
        others = runs.where(lambda row, label=label: row["label"] != label)
        if len(others) and claim.worker in (None, label):
            medians[label] = [np.median(rows.numbers("working")) for rows in (there, others)]
    if not any(is_close(here, a) and is_close(elsewhere, b) for a, b in medians.values()):
        yield f"no worker has these medians of {claim.function}: {medians}"
    ran = {row["label"] for row in evidence.runs}
    yield from exceeds(claim["slow_workers"], len(ran), "workers that are slow")
    yield from exceeds(claim["workers"], len(ran), "workers")


@refuter("load-imbalance")
def load_imbalance(claim: Claim, evidence: Evidence) -> Iterator[str]:
    least, most = _loads(evidence, open_=False), _loads(evidence, open_=True)
    out = _not_comparable(evidence)
    least, most = ({one: all_[one] for one in all_ if one not in out} for all_ in (least, most))
    for place in ("busiest", "idlest"):
        if claim[place] in out:
            yield f"{claim[place]} was not there for half of the run, or took work along"
    if not least:
        yield "no worker can be compared"
        return
    low, high = np.array(list(least.values())), np.array(list(most.values()))
    yield from lies(claim["most"], low.max(), high.max(), "the busiest")
    yield from lies(claim["least"], low.min(), high.min(), "the idlest")
    yield from lies(claim["mean"], low.mean(), high.mean(), "the mean")
    if least == most:
        yield from differs(claim["lost"], 1 - low.mean() / low.max(), "what is lost")
    for place, best in (("busiest", low.max()), ("idlest", high.min())):
        worker = claim[place]
        if not least.get(worker, np.inf) - 1e-3 <= best <= most.get(worker, -np.inf) + 1e-3:
            yield f"{worker} is not the {place}"


def _not_comparable(evidence: Evidence) -> set[str]:
    """Return the workers that joined late, left early, or left with unfinished tasks."""
    # Events after the last worker has left do not belong to the run.
    last = max((left for _, left, _ in evidence.lives.values()), default=evidence.end)
    middle = 0.5 * (evidence.span[0] + min(last, evidence.span[1]))
    addresses = {
        address
        for address, (joined, left, _) in evidence.lives.items()
        if middle < joined <= evidence.span[1] or evidence.span[0] < left < middle
    }
    never_seen = {(repr(row["key"]), row["run_id"]) for row in _never_seen(evidence)}
    addresses |= {
        address
        for address, rows in left_alone(evidence).items()
        if any((repr(row["key"]), row["run_id"]) in never_seen for row in rows)
    }
    return {evidence.label(address) or address for address in addresses}


def _never_seen(evidence: Evidence) -> Rows:
    """Return assigned task runs without a recorded end that are not in a snapshot.

    If a worker's file is closed, all task runs that it started are in the file.
    """
    under_way = {repr(row["key"]) for row in evidence.open}
    closed = {
        header.get("worker", {}).get("address")
        for header, name in zip(evidence.headers, evidence.names, strict=True)
        if header.get("plugin") == "TracePlugin" and name not in evidence.unclosed
    }
    return evidence.unseen.where(
        lambda row: (
            row["state"] not in ("memory", "erred")
            and repr(row["key"]) not in under_way
            and row["worker"] not in closed
        )
    )


def _loads(evidence: Evidence, open_: bool) -> dict[str, float]:
    """Return the seconds for which tasks held a thread of each worker, on average over its threads.

    With `open_`, unfinished tasks count, and tasks count until they left their thread. Without it,
    tasks count only until the scheduler released them.
    """
    busy = {header.get("worker", {}).get("label"): 0.0 for header in evidence.headers}
    threads: dict[str, int] = {}
    for address, (_, _, number) in evidence.lives.items():
        label = evidence.label(address) or address
        threads[label] = max(number, threads.get(label, 0))
    for runs in evidence.runs.by("address").values():
        label = runs.maps[0]["label"]
        ends = runs.numbers("held")
        ends = ends if open_ else np.fmin(ends, runs.numbers("known"))
        held = Steps.of(runs.numbers("executing"), ends)
        held = Steps(held.times, np.minimum(held.values, threads.get(label, 1)))
        busy[label] = busy.get(label, 0.0) + held.integral()
    if open_:
        more = [(row["label"], evidence.end - row["since"]) for row in evidence.open]
        more += [(evidence.label(row["worker"]), row["duration"]) for row in evidence.unseen]
        for label, seconds in more:
            busy[label] = busy.get(label, 0.0) + seconds
    return {label: busy[label] / threads.get(label, 1) for label in busy if label}


@refuter("poor-placement")
def poor_placement(claim: Claim, evidence: Evidence) -> Iterator[str]:
    """Compare with the time in which threads were idle while tasks were ready on other workers."""
    ready = evidence.between("ready", "executing")
    there = evidence.idle.least(ready).integral()
    share = there / evidence.thread_seconds
    yield from exceeds(claim["idle"], share, "threads that idle, tasks elsewhere")
    yield from differs(claim["stolen"], len(evidence.rows("Steal")), "stolen tasks")
    by_worker = {
        label: float(np.nansum(runs.numbers("executing") - runs.numbers("ready")))
        for label, runs in evidence.runs.by("label").items()
    }
    crowded = claim["crowded"]
    if by_worker.get(crowded, 0.0) < 0.999 * max(by_worker.values(), default=0.0):
        yield f"the longest queues are not on {crowded}: {dict(Counter(by_worker).most_common(2))}"
    asked = [row["noted"].get("annotations") for row in evidence.runs]
    if all(isinstance(one, dict) for one in asked):
        waits = evidence.runs.numbers("executing") - evidence.runs.numbers("ready")
        which = np.array([bool({"workers", "resources"} & set(one)) for one in asked])
        bound = bool(np.nansum(waits[which]) >= 0.5 * np.nansum(waits))
        if bound == (claim["asked"] is False):
            yield f"whether most of what waits had asked for a worker is {bound}"


def _row_of(claim: Claim, evidence: Evidence) -> dict[str, Any] | None:
    """Return the longest task run with the key in the evidence, or None if there is none."""
    shown = claim["key"].removesuffix("…")
    fitting = [row for row in evidence.runs if _text(row["key"]).startswith(shown)]
    return max(fitting, key=lambda row: float(_held(Rows([row]), "done")[0]), default=None)


def _layer_of(row: dict[str, Any], evidence: Evidence) -> Rows:
    """Return the task runs of the function in the same layer, according to their keys."""

    def name(key: Any) -> Any:
        if isinstance(key, str):
            return key.partition(",")[0] if key.startswith("('") else None  # the text of a tuple
        return key[0]

    runs = evidence.of(row["function"])
    return runs.where(lambda other: name(other["key"]) == name(row["key"]))


def _text(key: Any) -> str:
    return key if isinstance(key, str) else str(key)
