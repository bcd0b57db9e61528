"""Causes: what failed, and clients that do something else."""

from __future__ import annotations

from collections.abc import Iterator

from dasfprof.analysis.under_way.cause import Cause
from dasfprof.analysis.under_way.children import FUTURE_CALLS
from dasfprof.analysis.under_way.lines import describe_stack, user_line
from dasfprof.analysis.under_way.state import Activity, ClientNow, ClusterState, FailedTask
from dasfprof.text import clean, count_of, elide, format_duration

#: Seconds after the last task's end from which a client counts as being elsewhere.
_IDLE = 5.0


def killed_workers(state: ClusterState) -> Iterator[Cause]:
    """Find tasks under which one worker after the other died."""
    for task in state.failed:
        if _is_killed_worker(task):
            yield Cause(
                "killed-workers",
                "certain",
                f"{elide(task.key, 60)} was given up: the workers that ran it died, one after the "
                "other.",
                f"The client got: {elide(clean(task.message), 300)}",
                f"Run {task.function} alone on that input and watch its memory; a crash in a C "
                "library ends the process as well. Their nannies log the exit code or signal.",
                keys=(task.key,),
                waiting=1 + (task.dependents or 0),
                function=task.function,
                worker=task.worker,
            )


def errors(state: ClusterState) -> Iterator[Cause]:
    """Find errors because of which other tasks never run."""
    failed = [task for task in state.failed if not _is_killed_worker(task)]
    for task in failed[:5]:
        rest = (
            f", and {count_of(task.dependents, 'task')} that depend on it never ran"
            if task.dependents
            else ""
        )
        yield Cause(
            "error",
            "certain",
            f"{elide(task.key, 60)} ended in an error{rest}.",
            f"{elide(clean(task.message), 300)}",
            f"Mend {task.function}, or give retries= where the error passes by itself.",
            keys=(task.key,),
            waiting=1 + (task.dependents or 0),
            function=task.function,
            worker=task.worker,
        )


def _is_killed_worker(task: FailedTask) -> bool:
    return task.message.startswith("KilledWorker")


def clients_elsewhere(state: ClusterState) -> Iterator[Cause]:
    """Find clients that do something else although all tasks have ended."""
    if state.unfinished != 0 or (state.quiet or 0.0) < _IDLE:
        return
    ago = format_duration(state.quiet or 0.0)
    for client in state.clients:
        if client.left:
            continue
        if client.activity is None:
            if state.scheduler_answered and client.wanted:
                yield _holds_results(client, ago, state.quiet)
        elif client.activity.stack:
            yield _is_at(client, client.activity, ago, state.quiet)


def _is_at(client: ClientNow, activity: Activity, ago: str, quiet: float | None) -> Cause:
    """Name the line of a client that is recorded."""
    waits = activity.waits_in in FUTURE_CALLS
    return Cause(
        "client-elsewhere",
        "open",
        f"All tasks ended {ago} before; the client "
        f"{'waits in ' + str(activity.waits_in) if waits else 'does something else'}.",
        f"Its main thread is at {describe_stack(activity.stack)}; the cluster keeps "
        f"{count_of(client.wanted, 'result')} for it.",
        "Look at that line of the program: the cluster has nothing left to do.",
        line=user_line(activity.stack),
        seconds=quiet,
    )


def _holds_results(client: ClientNow, ago: str, quiet: float | None) -> Cause:
    """Name a client that keeps results: only its own process knows what it does meanwhile."""
    return Cause(
        "client-elsewhere",
        "open",
        f"All tasks ended {ago} before; {elide(client.client, 60)} has not given up "
        f"{count_of(client.wanted, 'result')}.",
        "The cluster does not know what that program does.",
        "If the program should go on: look at what its main thread does (py-spy dump --pid PID on "
        "its host). Of a run that is recorded, dasfprof watch and diagnose() tell.",
        seconds=quiet,
    )
