"""Task runs as both the workers and the scheduler recorded them, for several refuters."""

import re
from functools import partial
from typing import Any

import numpy as np
from dask.utils import key_split

from refuters.evidence import Evidence, Rows

#: Tolerance (s) between the end of a task run and the exit of its worker or client that caused it.
AT_ONCE = 2.0
_BY_CLIENTS = ("remove-client", "client-releases-keys", "client-restart", "cancel-key")

#: Prefix of stimuli that follow from the exit of a worker.
_LOSS = "handle-worker-cleanup"


def attempts(evidence: Evidence) -> Rows:
    """Return all task runs that had started, from workers' files or only from the scheduler's."""
    begun = [{**row, "begun": row["timestamp"], "ended": row["state"]} for row in evidence.runs]
    for row in evidence.unseen:
        start, stop = row["timestamp"], row["timestamp"]
        if row["start"] is not None:
            start, stop = row["start"], row["stop"]
        facts = {"function": key_split(row["key"]), "begun": start, "ended": row["state"]}
        begun.append({**row, **facts, "duration": stop - start, "address": row["worker"]})
    return Rows(sorted(begun, key=lambda row: row["begun"]))


def category(exception: str | None) -> str:
    """Return the exception type at the start of an exception's text."""
    found = re.match(r"\s*<?([^\W\d][\w.]*)", exception or "")
    return found[1] if found else "unknown"


def left_alone(evidence: Evidence) -> dict[str, Rows]:
    """Return the tasks that were on each worker when it left, by its address.

    Workers that a client restarted are left out.
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
    cause = str(row.get("end_cause") or "")
    return row["state"] == "erred" and not cause.startswith(("task-erred", "task-finished"))


def by_client(row: dict[str, Any]) -> bool:
    return str(row["end_cause"] or "").startswith(_BY_CLIENTS)


def _ended_with_another(row: dict[str, Any]) -> bool:
    """Return whether the task run ended because it was rescheduled, or another task run ended."""
    ended = ("task-erred", "task-finished", "reschedule")
    return str(row.get("end_cause") or "").startswith(ended)


def clients_gone(evidence: Evidence) -> float:
    """Return when the last client left, or infinity if other clients remained or none left."""
    left = evidence.rows("Scheduler State").where(lambda row: row["occasion"] == "client-left")
    for row in left.maps[-1:]:
        stayed = {str(one["client"]) for one in row["clients"] or ()} - {row["client"]}
        if any(not one.startswith(("Client-worker-", "fire-and-forget")) for one in stayed):
            return float("inf")
    return a_client_left(evidence)


def a_client_left(evidence: Evidence) -> float:
    """Return when a client last left, or infinity if none did."""
    states = evidence.rows("Scheduler State").where(lambda row: row["occasion"] == "client-left")
    given_up = evidence.rows("Task Run").where(
        lambda row: str(row["end_cause"] or "").startswith("remove-client")
    )
    return float(max([*states.numbers("timestamp"), *given_up.ends], default=np.inf))


def most(names: list[str], weights: Any = None) -> dict[str, float]:
    """Return the sums of weights by name. Without weights, each name counts once."""
    sums: dict[str, float] = {}
    for name, weight in zip(names, [1] * len(names) if weights is None else weights, strict=True):
        sums[name] = sums.get(name, 0) + float(weight)
    return sums


def is_most(name: str, sums: dict[str, float]) -> bool:
    return bool(sums) and sums.get(name, -1.0) >= max(sums.values()) * (1 - 1e-6)


def computed_again(evidence: Evidence) -> tuple[Rows, Rows]:
    """Return recomputations of results that were released, and of results that were lost.

    A result was lost if the worker that computed it last had left before the recomputation, unless
    a client's graph submitted the task again, or if the scheduler recomputed it when a worker left,
    together with the results that depended on it. ``slot`` is the time for which a recomputation
    held its thread, and ``ran`` the time until its function returned.
    """
    removed = {row["worker"]: row["timestamp"] for row in evidence.rows("Worker Removed")}
    made: dict[str, str] = {}
    again: tuple[list[dict[str, Any]], list[dict[str, Any]]] = ([], [])
    for row in evidence.runs.where(lambda row: row["state"] in ("memory", None)):
        before = made.get(repr(row["key"]))
        # A task run that was rescheduled has no result.
        if before is not None and not str(row["noted"].get("graph")).startswith("reschedule"):
            cause = str(row["noted"].get("graph") or "")
            gone = removed.get(before, np.inf) <= row["timestamp"]
            lost = cause.startswith(_LOSS) or (gone and not cause.startswith("update-graph"))
            slot, ran = row["held"] - row["executing"], row["stop"] - row["executing"]
            again[lost].append({**row, "slot": slot, "ran": min(slot, ran)})
        made[repr(row["key"])] = row["address"]
    return Rows(again[0]), Rows(again[1])
