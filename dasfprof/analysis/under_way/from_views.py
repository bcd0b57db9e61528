"""Construction of a `ClusterState` from answers that the processes of a live cluster sent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dasfprof.analysis.trace.sent_functions import SentFunctions
from dasfprof.analysis.under_way.state import (
    ClusterState,
    FailedTask,
    TaskUnderWay,
    WorkerNow,
    stack_of,
)

#: Threshold: a thread counts as running if it used at least this fraction of a core between two
#: snapshots. During a snapshot, all Python threads sleep, because they wait for the GIL.
_RUNS = 0.02
#: Threshold: a thread also counts as running if it used a core or waited for one for at least this
#: fraction of the time. If other programs use all cores, a thread that computes may hardly run.
_WANTS_CORE = 0.5

View = Mapping[str, Any]


def state_from_views(views: View, sent: SentFunctions | None = None) -> ClusterState:
    """Return the state of a cluster.

    Parameters
    ----------
    views
        The answers of the processes. ``scheduler`` contains two snapshots. A snapshot that the
        scheduler did not send is None. If the scheduler did not answer, ``scheduler_process`` is
        the state of its process. ``workers`` has a mapping for the address of each worker. This
        mapping contains ``view`` if the worker answered, and otherwise ``silence`` and, if known,
        ``process`` and ``host``. ``workers`` is None if no worker was asked. ``time`` is the Unix
        time of the answers.
    sent
        The files of functions that a client sent by value.
    """
    snapshots = [snapshot for snapshot in views["scheduler"] if snapshot is not None]
    if not snapshots:
        return ClusterState(
            time=views["time"],
            unfinished=None,
            scheduler_answered=False,
            scheduler_process=views["scheduler_process"],
        )
    first, last = snapshots[0], snapshots[-1]
    answers = views["workers"] or {}
    labels = _labels(last, answers)
    return ClusterState.from_row(
        last,
        last["time"],
        tasks=tuple(_tasks(labels, answers, sent or SentFunctions())),
        workers=tuple(_workers(first, last, labels, answers)),
        failed=tuple(
            FailedTask.from_row(task, worker=labels.get(task["worker"], task["worker"]))
            for task in last["failed"]
        ),
        quiet=last["quiet"],
        scheduler_answered=len(snapshots) == len(views["scheduler"]),
        scheduler_process=views["scheduler_process"],
    )


def _labels(scheduler: View, answers: Mapping[str, View]) -> dict[str, str]:
    """Return the label of each worker, as in a trace if the worker's host name is known."""
    # Names of hosts, by the scheme and host of an address without its port.
    names = {
        address.rpartition(":")[0]: name
        for address, answer in answers.items()
        if (name := answer.get("host") or answer.get("view", {}).get("host"))
    }
    labels = {}
    for worker in scheduler["workers"]:
        address = worker["worker"]
        name = names.get(address.rpartition(":")[0])
        labels[address] = f"worker-{name}-{worker['name']}" if name else address
    return labels


def _workers(
    first: View, last: View, labels: Mapping[str, str], answers: Mapping[str, View]
) -> Iterable[WorkerNow]:
    # A task may start and end between the snapshots of the scheduler and of the worker. Compare
    # only tasks that the scheduler had assigned both before and after the worker's snapshot.
    before = {worker["worker"]: set(worker["keys"]) for worker in first["workers"]}
    for worker in last["workers"]:
        address = worker["worker"]
        answer = answers.get(address)
        view = None if answer is None else answer.get("view")
        reported: dict[str, Any] = {}
        if view is not None:
            known = {str(key): state for key, state in view["known"].items()}
            reported = {"status": view["status"], "silent": 0.0, "known": known}
        yield WorkerNow.from_row(
            worker,
            last["time"],
            worker=labels[address],
            processing_keys=tuple(key for key in worker["keys"] if key in before.get(address, ())),
            answered=None if answer is None else view is not None,
            process_state=None if answer is None else answer.get("process"),
            **reported,
        )


def _tasks(
    labels: Mapping[str, str], answers: Mapping[str, View], sent: SentFunctions
) -> Iterable[TaskUnderWay]:
    for address, answer in answers.items():
        view = answer.get("view") or {}
        for row in view.get("tasks", ()):
            yield _task(row, view, labels.get(address, address), sent)


def _task(row: View, view: View, worker: str, sent: SentFunctions) -> TaskUnderWay:
    holds = [held for held in view["held"] if row["key"] in held["keys"]]
    return TaskUnderWay.from_row(
        {**row, "thread_state": _thread_state(row, view["pause"])},
        view["time"],
        worker,
        stack_of(sent.in_frames(row["stack"])),
        unchanged=view["pause"] if row["unchanged"] else 0.0,
        holds=tuple((held["kind"], held["name"]) for held in holds),
        holds_certain=all(held["certain"] for held in holds),
    )


def _thread_state(row: View, pause: float) -> str | None:
    """Return whether a task's thread ran or slept between two snapshots, or None if unknown.

    `pause` is the number of seconds between the snapshots.
    """
    if row["thread"] is None:
        return "sleeping" if row["unchanged"] and row["stack"] else None  # The task is a coroutine.
    if row["cpu"] is None or row["thread_state"] not in ("running", "sleeping"):
        return None if row["thread_state"] == "sleeping" else row["thread_state"]
    wanted = row["cpu"] + (row.get("waited") or 0.0)
    if row["cpu"] >= _RUNS * pause or wanted >= _WANTS_CORE * pause:
        return "running"
    return "sleeping" if row["unchanged"] else None
