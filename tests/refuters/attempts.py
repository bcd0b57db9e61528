"""Attempts at tasks, as both the workers and the scheduler noted them; what refuters share."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import numpy as np
from dask.utils import key_split

from refuters.evidence import Evidence, Rows

#: The scheduler takes tasks back before it notes that their worker left, and clients' ends may be
#: noted within this time.
AT_ONCE = 2.0
_BY_CLIENTS = ("remove-client", "client-releases-keys", "client-restart", "cancel-key")

#: And the ids of what follows from a worker that left.
_LOSS = "handle-worker-cleanup"


def attempts(evidence: Evidence) -> Rows:
    """Return all attempts that had begun: of workers' files, and those the scheduler saw begin."""
    begun = [{**row, "begun": row["timestamp"], "ended": row["state"]} for row in evidence.runs]
    for row in evidence.unseen:
        start, stop = row["timestamp"], row["timestamp"]
        if row["start"] is not None:
            start, stop = row["start"], row["stop"]
        facts = {"function": key_split(row["key"]), "begun": start, "ended": row["state"]}
        begun.append({**row, **facts, "duration": stop - start, "address": row["worker"]})
    return Rows(sorted(begun, key=lambda row: row["begun"]))


def category(exception: str | None) -> str:
    """Return the type that the text of an exception begins with."""
    found = re.match(r"\s*<?([^\W\d][\w.]*)", exception or "")
    return found[1] if found else "unknown"


def left_alone(evidence: Evidence) -> dict[str, Rows]:
    """Return the tasks that were on each worker as it left, by its address.

    A worker that a client restarted leaves as it asked, whatever was sent to it meanwhile.
    """
    restarts = evidence.rows("Cluster Change").where(lambda row: row["action"] == "restart")
    restarted = {address for row in restarts for address in row["workers"] or ()}

    def was_there(row: dict[str, Any], gone: dict[str, Any]) -> bool:
        end = row["timestamp"] + row["duration"]
        ended = row["state"] in ("memory", "erred") or _ended_with_another(row)
        return (
            row["worker"] == gone["worker"]
            and (is_killed(row) or not ended)
            and not by_client(row)
            and abs(end - gone["timestamp"]) <= AT_ONCE
        )

    return {
        gone["worker"]: evidence.rows("Task Run").where(partial(was_there, gone=gone))
        for gone in evidence.rows("Worker Removed")
        if gone["worker"] not in restarted
    }


def is_killed(row: dict[str, Any]) -> bool:
    """Tell whether a task erred as its worker left, which Dask calls KilledWorker."""
    cause = str(row.get("end_cause") or "")
    return row["state"] == "erred" and not cause.startswith(("task-erred", "task-finished"))


def by_client(row: dict[str, Any]) -> bool:
    """Tell whether a client gave up a task of the scheduler's notes."""
    return str(row["end_cause"] or "").startswith(_BY_CLIENTS)


def _ended_with_another(row: dict[str, Any]) -> bool:
    """Tell whether the scheduler took a task back as it asked, or nobody needed it any more."""
    ended = ("task-erred", "task-finished", "reschedule")
    return str(row.get("end_cause") or "").startswith(ended)


def clients_gone(evidence: Evidence) -> float:
    """Return when a client last left; infinite if others of a program stayed, or none left."""
    left = evidence.rows("Scheduler State").where(lambda row: row["occasion"] == "client-left")
    for row in left.maps[-1:]:
        stayed = {str(one["client"]) for one in row["clients"] or ()} - {row["client"]}
        if any(not one.startswith(("Client-worker-", "fire-and-forget")) for one in stayed):
            return float("inf")
    return a_client_left(evidence)


def a_client_left(evidence: Evidence) -> float:
    """Return when a client last left; infinite if none did."""
    states = evidence.rows("Scheduler State").where(lambda row: row["occasion"] == "client-left")
    given_up = evidence.rows("Task Run").where(
        lambda row: str(row["end_cause"] or "").startswith("remove-client")
    )
    return float(max([*states.numbers("timestamp"), *given_up.ends], default=np.inf))


def most(names: list[str], weights: Any = None) -> dict[str, float]:
    """Sum weights by name; each counts 1 if not given."""
    sums: dict[str, float] = {}
    for name, weight in zip(names, [1] * len(names) if weights is None else weights, strict=True):
        sums[name] = sums.get(name, 0) + float(weight)
    return sums


def is_most(name: str, sums: dict[str, float]) -> bool:
    """Tell whether a name has most; texts of functions may be elided."""
    return bool(sums) and sums.get(name, -1.0) >= max(sums.values()) * (1 - 1e-6)


def computed_again(evidence: Evidence) -> tuple[Rows, Rows]:
    """Return the runs of keys that had been in memory: those released meanwhile, and those lost.

    A result is lost where the worker that made it last had left before it was made again, unless a
    client's graph asked for it again; and where the scheduler had it made again as a worker left,
    with what was made of it. ``slot`` is for how long each held its thread, ``ran`` that
    until its function returned: what comes after may overlap with the thread's next task.
    """
    removed = {row["worker"]: row["timestamp"] for row in evidence.rows("Worker Removed")}
    made: dict[str, str] = {}
    again: tuple[list[dict[str, Any]], list[dict[str, Any]]] = ([], [])
    for row in evidence.runs.where(lambda row: row["state"] in ("memory", None)):
        before = made.get(repr(row["key"]))
        # A run that asked to be run again made no result.
        if before is not None and not str(row["noted"].get("graph")).startswith("reschedule"):
            cause = str(row["noted"].get("graph") or "")
            gone = removed.get(before, np.inf) <= row["timestamp"]
            lost = cause.startswith(_LOSS) or (gone and not cause.startswith("update-graph"))
            slot, ran = row["held"] - row["executing"], row["stop"] - row["executing"]
            again[lost].append({**row, "slot": slot, "ran": min(slot, ran)})
        made[repr(row["key"])] = row["address"]
    return Rows(again[0]), Rows(again[1])
