"""Refuters of what is said about runs, tasks and workers that did not end well."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import psutil
from dask.utils import key_split

from refuters.attempts import a_client_left, attempts, by_client, clients_gone, is_killed
from refuters.evidence import Evidence
from refuters.registry import Said, differs, refuter


@refuter("unfinished-run")
def unfinished_run(said: Said, evidence: Evidence) -> Iterator[str]:
    """Compare the number of tasks with the scheduler's own, and how the run ended."""
    states = evidence.rows("Scheduler State")
    told = said.figures_if_any("The run did not end: {count} task") or said.figures_if_any(
        "The run goes on with {count} unfinished task"
    )
    if told:
        counts = {int(number) for number in states.numbers("unfinished") if np.isfinite(number)}
        # Tasks whose end no file holds, where no state tells.
        open_ = evidence.rows("Task Run").where(lambda row: row["state"] == "processing")
        seen = {repr(row["key"]) for row in evidence.rows("Task Under Way")}
        counts |= {len(open_), len(seen), len(open_) + _unsent(evidence)}
        if evidence.unclosed:
            known = states.where(lambda row: row["unfinished"] is not None)
            counts |= {int(row["unfinished"]) - _ended_unseen(evidence, row) for row in known}
        if told["count"].value not in counts:
            yield f"{told['count'].text} are said, the events have one of {sorted(counts)[-4:]}"
        if told["count"].value == 0:
            yield "nothing was unfinished"
    if "when its client left" in said.finding and not np.isfinite(a_client_left(evidence)):
        yield "no client left"
    gave_up = any(by_client(row) for row in evidence.rows("Task Run"))
    if re.search("when its client gave (it|them) up", said.finding) and not gave_up:
        yield "no client gave a task up"
    if "when SIGINT came" in said.finding:
        erred = [row for row in attempts(evidence) if row["ended"] == "erred"]
        if not any(_of_sigint(str(row.get("exception"))) for row in erred):
            yield "no error tells of SIGINT"
    if "which were not closed" in said.finding and not evidence.unclosed:
        yield "each file was closed"
    if "goes on" in said.finding and not evidence.unclosed:
        yield "each file was closed"
    if "ended in an error" in said.finding:
        erred = [row for row in attempts(evidence) if row["ended"] == "erred"]
        if not erred:
            yield "no task erred"
    if "process is gone" in said.finding or "scheduler in it, is gone" in said.finding:
        yield from _of_the_gone(said, evidence)
    yield from _no_strangers(said, evidence)


def _ended_unseen(evidence: Evidence, state: dict[str, Any]) -> int:
    """Count tasks that ended after a state of the scheduler, whose file does not tell of them.

    What had ended less than a second before may have been reported since.
    """
    ended = [
        repr(row["key"])
        for row in evidence.runs
        if not row["noted"]
        and row["state"] in ("memory", "erred")
        and row["stop"] > state["timestamp"] - 1.0
    ]
    return len(set(ended))


def _of_the_gone(said: Said, evidence: Evidence) -> Iterator[str]:
    """Look for the scheduler's process, and for those that are said to have outlived it."""
    headers = dict(zip(evidence.names, evidence.headers, strict=True))
    own = [one for one in headers.values() if one.get("plugin") == "SchedulerPlugin"]
    if evidence.scheduler_closed or not own:
        yield "the scheduler closed its file, or has none"
    # A number that is used again is no process of before.
    if any(
        psutil.pid_exists(one["pid"])
        and psutil.Process(one["pid"]).create_time() <= one["created"]
        and psutil.Process(one["pid"]).status() != psutil.STATUS_ZOMBIE
        for one in own
    ):
        yield "the scheduler's process runs"
    clients = [one["pid"] for one in headers.values() if one.get("plugin") == "StepRecorder"]
    if ("scheduler in it" in said.finding) != any(one["pid"] in clients for one in own):
        yield "the scheduler's process is the client's, or is not"
    if "closed their files after it" in said.evidence:
        left = {row["worker"] for row in evidence.rows("Worker Removed")}
        closed = [one for name, one in headers.items() if name not in evidence.unclosed]
        if not {one["worker"]["address"] for one in closed if "worker" in one} - left:
            yield "no worker closed its file after the scheduler had ended"


def _of_sigint(exception: str) -> bool:
    """Tell whether an error says that signal 2 ended a process: by itself, or under a shell."""
    return exception.startswith(("CalledProcessError(-2,", "CalledProcessError(130,", "Keyboard"))


def _no_strangers(said: Said, evidence: Evidence) -> Iterator[str]:
    """Yield names of workers that are in no event."""
    known = {header.get("worker", {}).get("label") for header in evidence.headers}
    known |= {row["label"] for row in evidence.rows("Task Under Way")}
    for label in re.findall(r"\bworker-[\w.-]*\w", f"{said.finding} {said.evidence}"):
        if label not in known and not any(str(one).startswith(label) for one in known):
            yield f"there is no {label}"


@refuter("unfinished-tasks")
def unfinished_tasks(said: Said, evidence: Evidence) -> Iterator[str]:
    """Count tasks that were on a worker as recording ended."""
    told = said.figures("{count} task") | said.figures(
        "most of {name}: the longest has been on its worker for {duration}."
    )
    open_ = evidence.unseen.where(lambda row: row["state"] == "processing")
    yield from differs(told["count"], len(open_), "tasks on workers")
    waited = evidence.end - open_.numbers("timestamp")
    yield from differs(told["duration"], float(waited.max(initial=0.0)), "the longest")
    more = said.figures_if_any("{count} more task")
    if more:
        yield from differs(more["count"], _unsent(evidence), "tasks that were not sent")


@refuter("no-worker-fits")
def no_worker_fits(said: Said, evidence: Evidence) -> Iterator[str]:
    """Compare with the tasks that the scheduler held back for want of a worker."""
    told = said.figures("No worker fits {count} task") | said.figures(
        "had not been sent to any for {duration} when"
    )
    rows = evidence.rows("Unsent Tasks").where(
        lambda row: row["state"] == "no-worker" and row["name"] == said.function
    )
    if not any(
        told["count"].shows(row["tasks"])
        and told["duration"].shows(evidence.end - row["timestamp"])
        for row in rows
    ):
        yield f"the events have {[(row['tasks'], evidence.end - row['timestamp']) for row in rows]}"


@refuter("killed-workers")
def killed_workers(said: Said, evidence: Evidence) -> Iterator[str]:
    """Look for the workers that died, and for a worker that had run the task to its end."""
    killed = [
        row
        for row in evidence.rows("Task Run")
        if is_killed(row) and key_split(row["key"]) == said.function
    ]
    if not killed:
        yield "no task of this function was given up"
    removed = evidence.rows("Worker Removed")
    gone = clients_gone(evidence)
    if not len(removed) or removed.numbers("timestamp").min() > gone:
        yield "no worker left while there was a client"
    for label, when in _deaths(said.evidence):
        left = [
            row["timestamp"] - evidence.first_seen
            for row in removed
            if evidence.label(row["worker"]) == label
        ]
        shown = said.figures(f"{label} at {{duration}}")["duration"]
        if not any(shown.shows(one) for one in left):
            yield f"{label} died at {left}, not {when}"
    yield from _finished(evidence, killed)


def _deaths(text: str) -> list[tuple[str, str]]:
    told = text.partition("Died: ")[2]
    return re.findall(r"(\S+) at (\d[\d,.]* (?:µs|ms|s|min \d+ s))", told)


def _finished(evidence: Evidence, killed: list[dict[str, Any]]) -> Iterator[str]:
    keys = {repr(row["key"]) for row in killed}
    for row in evidence.rows("Task Run"):
        if repr(row["key"]) in keys and row["state"] == "memory":
            yield f"{row['key']} had a result"


def _unsent(evidence: Evidence) -> int:
    return int(sum(row["tasks"] for row in evidence.rows("Unsent Tasks")))
