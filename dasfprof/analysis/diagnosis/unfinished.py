"""The rules that come first: the run did not end, and why; tasks that were given up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from dasfprof.analysis.diagnosis.findings import Finding, Severity
from dasfprof.analysis.diagnosis.registry import rule
from dasfprof.analysis.diagnosis.run_figures import RunFigures
from dasfprof.analysis.model.open_runs import RELEASED
from dasfprof.analysis.model.run_end import How, RunEnd
from dasfprof.analysis.model.worker_exits import exit_words
from dasfprof.analysis.trace.under_way import RecordingEnd
from dasfprof.analysis.under_way.cause import Cause
from dasfprof.analysis.under_way.causes import find_causes
from dasfprof.analysis.under_way.failed_tasks import ended_with_the_run
from dasfprof.analysis.under_way.lines import name_some
from dasfprof.analysis.under_way.state import ClusterState
from dasfprof.text import clean, count_of, elide, excerpt, format_duration, format_size

#: Seconds from which a wait without progress is grave.
_LONG = 10.0
#: Seconds within which a client may leave because of a result that it got.
_ACTS = 3.0
#: Kinds of causes that healthy tasks show as well, and those of a run in which all tasks ended.
_HEALTHY = ("running", "sleeping", "fetching", "futures-wait")
_ALL_ENDED = ("client-elsewhere",)

_WHEN = {
    How.LEFT: "when its client left",
    How.CUT: "where its files end, which were not closed",
    How.CLOSED: "when recording ended",
    How.BROKEN_UP: "when all its workers left together",
}
#: Of a run with one worker.
_WHEN_ALONE = (
    "when its only worker left, just before the recording ended: nothing tells whether it died or "
    "was shut down"
)
#: Where no cause is seen but what ended the evidence.
_NO_CAUSE = {
    RecordingEnd.SCHEDULER_GONE: "The scheduler's process is gone; no other cause is seen.",
    RecordingEnd.PROGRAM_GONE: (
        "The client's process, which had the scheduler in it, is gone; no other cause is seen."
    ),
}
#: What findings say of a run in which little ran, as nothing ended.
_BY_HANGING = (
    "blocked-tasks",
    "client-gaps",
    "dominating-function",
    "imbalance",
    "io-bound",
    "lock-bound",
    "lost-workers",
    "poor-placement",
    "scheduler-bound",
    "serial-chain",
    "straggling-tasks",
    "too-few-tasks",
)


@rule("unfinished-run", symptoms=_BY_HANGING)
def unfinished_run(run: RunFigures) -> Iterator[Finding]:
    """Find that a run did not end, and why."""
    state, end = run.state, run.end
    if state is None:
        return
    causes = find_causes(state)
    if end is None:
        yield from (_client_elsewhere(run, cause) for cause in causes if cause.kind in _ALL_ENDED)
        return
    if not end.unfinished and not state.tasks:
        return  # what a failure cut off, of which nobody tells
    if end.only_forgotten:
        yield _cut_off(state, end)
        return
    causes = [cause for cause in causes if cause.kind not in _ALL_ENDED]
    first = causes[0] if causes else None
    grave = _severity(state, end, first)
    yield _summary(run, state, end, first, grave)
    for cause in _without_repeats(causes)[1:]:
        yield _of_cause(cause, grave if cause.certainty != "open" else _less(grave))


def _without_repeats(causes: list[Cause]) -> list[Cause]:
    """Leave out errors of further tasks of a function: the finding ``errors`` counts them."""
    first = {cause.function: cause for cause in reversed(causes) if cause.kind == "error"}
    return [cause for cause in causes if cause.kind != "error" or cause is first[cause.function]]


def _summary(
    run: RunFigures, state: ClusterState, end: RunEnd, cause: Cause | None, severity: Severity
) -> Finding:
    number = end.unfinished if end.unfinished is not None else len(state.tasks)
    names = name_some([task.key for task in state.tasks])
    if end.how is How.GOES_ON:
        begin = f"The run goes on with {count_of(number, 'unfinished task')}"
    else:
        be = "was" if number == 1 else "were"
        begin = f"{count_of(number, 'task')} {be} unfinished {_when(state, end, number)}"
        if severity == "high":
            begin = f"The run did not end: {begin}"
    longest = _longest(state)
    under_way = f" ({names}, for up to {format_duration(longest)})" if names and longest else ""
    unknown = _NO_CAUSE.get(run.trace.recording, "No cause is seen.")
    why = cause.text if cause is not None else unknown
    seconds = max(longest, (cause.seconds or 0.0) if cause is not None else 0.0)
    seconds = seconds or state.quiet or run.wall
    return Finding(
        f"{begin}{under_way}. {why}",
        _sentences(cause.evidence if cause is not None else "", _with_the_end(run), _counts(state))
        + "See processed_tasks().",
        cause.suggestion
        if cause is not None
        else "Look at what these tasks do: client.call_stack() tells while they run.",
        seconds=seconds,
        at_least=severity,
        at_most=severity,
        function=cause.function if cause is not None else None,
        worker=cause.worker if cause is not None else None,
        start=end.time - seconds - run.trace.begin,
        stop=end.time - run.trace.begin,
    )


def _sentences(*texts: str) -> str:
    return "".join(f"{text.rstrip('. ')}. " for text in texts if text)


def _with_the_end(run: RunFigures) -> str:
    """Say which errors came as the program ended; empty if none did."""
    late = ended_with_the_run(run.trace)
    if not len(late):
        return ""
    first = late.iloc[0]
    more = f", {count_of(len(late) - 1, 'other task')} in theirs" if len(late) > 1 else ""
    return (
        f"Only then {run.text_of_key(int(first['key_id']))} ended in an error, "
        f"{excerpt(str(first['message']))}{more}: how it would have ended is unknown"
    )


def _when(state: ClusterState, end: RunEnd, number: int) -> str:
    if end.interrupted:
        return "when SIGINT came, as of Ctrl-C"
    if end.clients_stayed:
        return f"when its client gave {'it' if number == 1 else 'them'} up"
    if end.how is How.BROKEN_UP and sum(worker.status != "lost" for worker in state.workers) == 1:
        return _WHEN_ALONE
    return _WHEN[end.how or How.CUT]


def _of_cause(cause: Cause, severity: Severity) -> Finding:
    return Finding(
        cause.text,
        cause.evidence,
        cause.suggestion,
        seconds=cause.seconds if cause.seconds is not None else float("nan"),
        at_least=severity,
        at_most=severity,
        function=cause.function,
        worker=cause.worker,
    )


def _severity(state: ClusterState, end: RunEnd, cause: Cause | None) -> Severity:
    """Return how grave it is that a run did not end."""
    seconds = max(_longest(state), (cause.seconds or 0.0) if cause is not None else 0.0)
    proven = cause is not None and cause.certainty != "open"
    waits = cause is not None and cause.kind not in _HEALTHY and seconds >= _LONG
    if end.how is How.GOES_ON:
        return "high" if proven else "medium" if waits else "low" if seconds >= _LONG else "info"
    if proven or waits:
        return "high"
    clients = [client.activity for client in state.clients if client.activity is not None]
    # One that goes on with a result leaves soon after it came.
    acted = state.quiet is not None and state.quiet < _ACTS
    waited = not clients or (any(activity.waits_in for activity in clients) and not acted)
    ended = end.how is How.CLOSED or not waited or (cause is None and seconds < _LONG)
    return "medium" if ended else "high"


def _less(severity: Severity) -> Severity:
    return "medium" if severity == "high" else severity


def _longest(state: ClusterState) -> float:
    return max((task.seconds or 0.0 for task in state.tasks), default=0.0)


def _counts(state: ClusterState) -> str:
    """Say how many tasks were in which state."""
    totals: Counter[str] = Counter()
    for states in state.counts.values():
        totals.update(states)
    told = [
        f"{totals[name]:,} {name}"
        for name in ("processing", "queued", "waiting", "no-worker")
        if totals[name]
    ]
    ended = (
        f"the last task ended or began {format_duration(state.quiet)} before" if state.quiet else ""
    )
    words = "; ".join(filter(None, [f"Tasks: {', '.join(told)}" if told else "", ended]))
    return f"{words}." if words else ""


def _cut_off(state: ClusterState, end: RunEnd) -> Finding:
    number = end.unfinished or len(state.tasks)
    return Finding(
        f"{count_of(number, 'task')} of fire_and_forget had not ended "
        f"{_when(state, end, number)}: "
        "the end of the program cut them off.",
        f"{name_some([task.key for task in state.tasks])} {_counts(state)}".strip(),
        "Keep their futures and wait() for them before the program ends, or run it on a cluster "
        "that outlives it.",
        at_least="low",
        at_most="low",
        function=state.tasks[0].function if state.tasks else None,
    )


def _client_elsewhere(run: RunFigures, cause: Cause) -> Finding:
    share = (cause.seconds or 0.0) / (run.wall + (cause.seconds or 0.0) or 1.0)
    severity: Severity = "low" if share < 0.5 else "medium"
    return _of_cause(cause, severity)


@rule("given-up-tasks")
def given_up_tasks(run: RunFigures) -> Iterator[Finding]:
    """Find tasks that a client cancelled, or whose futures it dropped, while the run went on."""
    if run.end is not None and run.end.how is How.LEFT:
        return
    attempts = run.attempts
    released = attempts[(attempts["status"] == RELEASED).to_numpy(dtype=bool)]
    if not len(released):
        return
    name, number = Counter(released["function"].tolist()).most_common(1)[0]
    seconds = float(released["run"].fillna(0.0).sum())
    yield Finding(
        f"The client gave up {count_of(len(released), 'task')} that had not ended, "
        f"{number:,} of {name}: it cancelled them, or dropped their futures.",
        f"They had run for {format_duration(seconds)}. See processed_tasks().",
        "If that was not meant, keep the futures in a variable until their results are used.",
        at_least="low",
        at_most="low",
        function=str(name),
    )


@rule(
    "killed-workers",
    symptoms=(
        "imbalance",
        "lost-workers",
        "recomputation",
        "scheduler-bound",
        "serial-chain",
        "too-few-tasks",
    ),
)
def killed_workers(run: RunFigures) -> Iterator[Finding]:
    """Find tasks that were given up, as the workers that ran them died one after the other."""
    if run.state is None:
        return
    for cause in find_causes(run.state):
        if cause.kind == "killed-workers":
            yield Finding(
                cause.text,
                f"{cause.evidence} {_deaths(run, cause)}".strip(),
                cause.suggestion,
                seconds=run.wall,
                at_least="high",
                function=cause.function,
                worker=cause.worker,
            )


def _deaths(run: RunFigures, cause: Cause) -> str:
    """Say which workers died, of what, and how much memory they had."""
    attempts, workers = run.attempts, run.trace.workers
    keys = run.trace.keys.texts(attempts["key_id"].to_numpy())
    own = attempts[(keys == cause.keys[0]) & attempts["category"].notna().to_numpy()]
    lives = list(dict.fromkeys(own["life"].tolist()))
    told = []
    for life in lives:
        left = float(workers["left"].iloc[life]) - run.trace.begin
        memory = run.memory_peaks[life]
        used = f" with {format_size(memory)} of memory" if np.isfinite(memory) else ""
        told.append(
            f"{elide(clean(workers['worker'].iloc[life]), 60)} at {format_duration(left)}{used}, "
            f"{exit_words(run.trace, life) or 'of an unknown cause'}"
        )
    return f"Died: {'; '.join(told[:5])}." if told else ""
