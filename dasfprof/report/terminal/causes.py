"""A cluster's state and the causes for which its work does not end, as paragraphs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from dasfprof.analysis.under_way.state import UNFINISHED
from dasfprof.report.terminal.output import echo, terminal_width
from dasfprof.report.terminal.paragraphs import Part, heading, print_entry, say
from dasfprof.text import count_of, elide, format_duration

if TYPE_CHECKING:
    from dasfprof.analysis.under_way.cause import Cause
    from dasfprof.analysis.under_way.state import ClusterState, TaskUnderWay

_COLOURS = {"certain": "red", "likely": "yellow", "open": "cyan"}
#: States of tasks that have ended and are still known.
_ENDED = ("memory", "erred")
_MOST_CAUSES, _MOST_TASKS = 20, 20
_LONGEST = 900


def print_causes(
    state: ClusterState, causes: Sequence[Cause], title: str, note: str | None = None
) -> None:
    """Print what a cluster has under way and why it may not end."""
    heading(elide(title, terminal_width()))
    if state.scheduler_answered is not False or state.workers:
        say(". ".join(_facts(state)) + ".")
    if note is not None:
        say(note)
    if not causes:
        say(_nothing(state), apart=True)
    for cause in causes[:_MOST_CAUSES]:
        _print_cause(cause)
    if len(causes) > _MOST_CAUSES:
        echo(f"\n  and {len(causes) - _MOST_CAUSES} more; --json has all")
    _print_tasks(state)


def _facts(state: ClusterState) -> Iterator[str]:
    """Say how much is under way, where, and how long ago something happened."""
    numbers = Counter[str]()
    for counts in state.counts.values():
        numbers.update(counts)
    told = ", ".join(f"{numbers[name]:,} {name}" for name in UNFINISHED if numbers[name])
    ended = ", ".join(f"{numbers[name]:,} {name}" for name in _ENDED if numbers[name])
    unfinished = count_of(state.unfinished or 0, "task") if state.unfinished else "Nothing"
    yield f"{unfinished} under way" + f" ({told})" * bool(told) + f"; {ended}" * bool(ended)
    silent = sum(worker.answered is False for worker in state.workers)
    threads = sum(worker.threads for worker in state.workers)
    workers = f"{count_of(len(state.workers), 'worker')} with {count_of(threads, 'thread')}"
    yield workers + (f", {silent} of which {_verb(silent)} not answer" if silent else "")
    if state.quiet is not None and state.unfinished:
        yield f"A task began or ended {format_duration(state.quiet)} ago"
    if state.scheduler_answered is False:
        yield "The scheduler answered once, then no more"


def _verb(number: int) -> str:
    return "does" if number == 1 else "do"


def _nothing(state: ClusterState) -> str:
    if state.unfinished == 0:
        return "Nothing is under way: every task that the cluster was given has ended."
    return "Nothing shows that it is stuck."


def _print_cause(cause: Cause) -> None:
    waiting = count_of(cause.waiting, "task") if cause.waiting else ""
    margin = f"  {cause.certainty:<8}{elide(waiting, 10):>10}  "
    echo()
    print_entry(
        margin,
        _COLOURS[cause.certainty],
        [
            Part(elide(cause.text, _LONGEST), "bold"),
            Part(elide(cause.suggestion, _LONGEST), lead="→ "),
            Part(elide(cause.evidence, _LONGEST), "dim", lead="  "),
        ],
    )


def _print_tasks(state: ClusterState) -> None:
    """Print the tasks under way, the oldest first, each with the line that it is in."""
    from dasfprof.analysis.under_way.lines import user_line

    tasks = sorted(state.tasks, key=lambda task: -(task.seconds or 0.0))
    if not tasks:
        return
    heading("Tasks under way", ", the oldest first", apart=True)
    for task in tasks[:_MOST_TASKS]:
        seconds = "unknown" if task.seconds is None else format_duration(task.seconds)
        line = user_line(task.activity.stack)
        place = f" at {line}" if line else ""
        echo(
            elide(
                f"  {seconds:>12}  {task.key} on {task.worker}: {_doing(task)}{place}",
                2 * terminal_width(),
            )
        )
    if len(tasks) > _MOST_TASKS:
        echo(f"  and {len(tasks) - _MOST_TASKS} more")


def _doing(task: TaskUnderWay) -> str:
    activity = task.activity
    if activity.waits_in is not None:
        names = ", ".join(activity.waits_for)
        return f"waits in {activity.waits_in} {names}".rstrip()
    return activity.thread_state or task.state
