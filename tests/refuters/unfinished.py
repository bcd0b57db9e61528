"""Refuters of findings about unfinished runs and tasks, and killed workers."""

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import psutil
from dask.utils import key_split

from refuters.attempts import a_client_left, attempts, by_client, clients_gone, is_killed
from refuters.evidence import Evidence
from refuters.figures import Claim, is_same_time
from refuters.registry import refuter

#: Claimed ends of recording that depend on the scheduler's process.
_GONE = ("SCHEDULER_GONE", "PROGRAM_GONE")


@refuter("unfinished-run")
def unfinished_run(claim: Claim, evidence: Evidence) -> Iterator[str]:
    """Compare the number of tasks with the scheduler's, and the reason for the end of the run."""
    states = evidence.rows("Scheduler State")
    tasks, when = claim["tasks"], claim["when"]
    if claim["severe"] or claim["goes_on"]:
        counts = {int(number) for number in states.numbers("unfinished") if np.isfinite(number)}
        # Without a state of the scheduler, tasks without a recorded end are unfinished.
        open_ = evidence.rows("Task Run").where(lambda row: row["state"] == "processing")
        seen = {repr(row["key"]) for row in evidence.rows("Task Under Way")}
        counts |= {len(open_), len(seen), len(open_) + _unsent(evidence)}
        if evidence.unclosed:
            known = states.where(lambda row: row["unfinished"] is not None)
            counts |= {int(row["unfinished"]) - _ended_unseen(evidence, row) for row in known}
        if tasks not in counts:
            yield f"{tasks} are said, the events have one of {sorted(counts)[-4:]}"
        if tasks == 0:
            yield "nothing was unfinished"
    if when == "left" and not np.isfinite(a_client_left(evidence)):
        yield "no client left"
    gave_up = any(by_client(row) for row in evidence.rows("Task Run"))
    if when == "given up" and not gave_up:
        yield "no client gave a task up"
    if when == "interrupted":
        erred = [row for row in attempts(evidence) if row["ended"] == "erred"]
        if not any(_of_sigint(str(row.get("exception"))) for row in erred):
            yield "no error tells of SIGINT"
    if (when == "cut" or claim["goes_on"]) and not evidence.unclosed:
        yield "each file was closed"
    if claim["cause"] and claim["cause"]["kind"] == "error":
        erred = [row for row in attempts(evidence) if row["ended"] == "erred"]
        if not erred:
            yield "no task erred"
    seen = claim["cause"] is not None and claim["cause"]["kind"] != "scheduler-gone"
    if claim["recording"] in _GONE and not seen:
        yield from _of_the_gone(claim, evidence)
    yield from _no_strangers(claim, evidence)


def _ended_unseen(evidence: Evidence, state: dict[str, Any]) -> int:
    """Count tasks that ended after the scheduler's last state, and are missing in its file.

    Tasks that ended up to a second before that state may have been reported after it.
    """
    ended = evidence.runs.where(lambda row: row["state"] in ("memory", "erred"))
    late = ended.where(lambda row: row["stop"] > state["timestamp"] - 1.0)
    return len({repr(row["key"]) for row in late if not row["noted"]})


def _of_the_gone(claim: Claim, evidence: Evidence) -> Iterator[str]:
    """Look for the scheduler's process, and for processes that are claimed to outlive it."""
    headers = dict(zip(evidence.names, evidence.headers, strict=True))
    own = [one for one in headers.values() if one.get("plugin") == "SchedulerPlugin"]
    if evidence.scheduler_closed or not own:
        yield "the scheduler closed its file, or has none"
    running = [psutil.Process(one["pid"]) for one in own if psutil.pid_exists(one["pid"])]
    created = max((one["created"] for one in own), default=0.0)
    # A PID may have been reused by another process.
    if any(p.create_time() <= created and p.status() != psutil.STATUS_ZOMBIE for p in running):
        yield "the scheduler's process runs"
    clients = [one["pid"] for one in headers.values() if one.get("plugin") == "StepRecorder"]
    if (claim["recording"] == "PROGRAM_GONE") != any(one["pid"] in clients for one in own):
        yield "the scheduler's process is the client's, or is not"
    if claim["cause"]:
        left = {row["worker"] for row in evidence.rows("Worker Removed")}
        closed = [one for name, one in headers.items() if name not in evidence.unclosed]
        if not {one["worker"]["address"] for one in closed if "worker" in one} - left:
            yield "no worker closed its file after the scheduler had ended"


def _of_sigint(exception: str) -> bool:
    """Return whether an error reports that SIGINT ended a process, also under a shell."""
    return exception.startswith(("CalledProcessError(-2,", "CalledProcessError(130,", "Keyboard"))


def _no_strangers(claim: Claim, evidence: Evidence) -> Iterator[str]:
    """Yield a contradiction for each worker that no event names."""
    known = {header.get("worker", {}).get("label") for header in evidence.headers}
    known |= {row["label"] for row in evidence.rows("Task Under Way")}
    for label in re.findall(r"(?<![\w.])worker-[\w.-]*\w", claim.sentences):
        if label not in known and not any(str(one).startswith(label) for one in known):
            yield f"there is no {label}"


@refuter("killed-worker-errors")
def killed_worker_errors(claim: Claim, evidence: Evidence) -> Iterator[str]:
    """Look for the workers that died, and for results after the task was abandoned."""
    killed = evidence.rows("Task Run").where(is_killed)
    killed = killed.where(lambda row: key_split(row["key"]) == claim.function)
    if not len(killed):
        yield "no task of this function was given up"
    removed = evidence.rows("Worker Removed")
    gone = clients_gone(evidence)
    if not len(removed) or removed.numbers("timestamp").min() > gone:
        yield "no worker left while there was a client"
    left = [
        (evidence.label(one["worker"]), one["timestamp"] - evidence.first_seen) for one in removed
    ]
    for death in claim["deaths"]:
        if not any(is_same_time(death["left"], at) for one, at in left if one == death["worker"]):
            yield f"{death['worker']} died at {death['left']:.6g}, of {left}"
    # Earlier results may have been lost with their workers.
    given_up = {repr(row["key"]): row["timestamp"] + row["duration"] for row in killed}
    for row in evidence.rows("Task Run"):
        end = row["timestamp"] + row["duration"]
        if row["state"] == "memory" and end > given_up.get(repr(row["key"]), np.inf):
            yield f"{row['key']} had a result after it was given up"


def _unsent(evidence: Evidence) -> int:
    return int(sum(row["tasks"] for row in evidence.rows("Unsent Tasks")))
