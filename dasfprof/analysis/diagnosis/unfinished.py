"""Rules about runs that did not complete, and tasks that were abandoned. They are ranked first."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from dasfprof.analysis.diagnosis.lost_results import find_rhythm, rhythm_in_words
from dasfprof.analysis.diagnosis.registry import Finding, Severity, rule
from dasfprof.analysis.diagnosis.run_figures import RunFigures
from dasfprof.analysis.model.client_time import LARGE, find_calls
from dasfprof.analysis.model.departures import departure_of, departures_of
from dasfprof.analysis.run.run_end import RunEnd
from dasfprof.analysis.under_way.causes import causes_of_run
from dasfprof.analysis.under_way.failed_tasks import ended_with_the_run
from dasfprof.analysis.under_way.from_trace import state_from_trace
from dasfprof.analysis.under_way.primitives import HOLDER_DIED
from dasfprof.analysis.under_way.processes import in_words
from dasfprof.analysis.under_way.state import Cause, ClusterState, name_some
from dasfprof.analysis.wording import Count, Figures, Seconds
from dasfprof.database.ends import End
from dasfprof.text import clean, elide, excerpt

#: Threshold (seconds): a longer wait without progress is a severe problem.
_LONG = 10.0
#: Maximum seconds between a result and the exit of a client that exits because of the result.
_ACTS = 3.0
#: States of tasks that are reported. Maximum numbers of named tasks and of named dead workers.
_STATES = ("processing", "queued", "waiting", "no-worker")
_MOST_KEYS, _MOST_DEATHS = 3, 5
#: Kinds of causes that healthy tasks can show as well, and kinds of causes that a run has after all
#: its tasks finished.
_HEALTHY = ("running", "sleeping", "fetching", "futures-wait")
_ALL_ENDED = ("client-elsewhere", "lost-keys")
#: Kinds of causes that do not prove that a run in progress will never finish: errors, and states
#: that may last only for a moment.
_ERRORS = ("error", "killed-worker-errors")
_MOMENTS = ("loop-blocked", "scheduler-blocked", "worker-silent")

#: Clauses about the end of a run with unfinished tasks, by the figure ``when``.
_WHEN = {
    "left": "when the client left",
    "cut": "when the recording broke off (a process did not close its files)",
    "closed": "when recording ended",
    "broken up": "when all workers left together",
    "only worker left": "when the only worker left, just before recording ended (whether it died "
    "or was shut down is not recorded)",
    "interrupted": "when the process received SIGINT, as from Ctrl-C",
    "given up": "when the client released {them}",
}
#: Processes that ended, if no other cause is known.
_GONE = {
    End.SCHEDULER_GONE: "The scheduler's process",
    End.PROGRAM_GONE: "The client's process, which also ran the scheduler,",
}


@rule(
    "unfinished-run",
    causes="blocked-tasks client-bound dominant-function load-imbalance io-bound gil-contention "
    "lost-workers poor-placement scheduler-bound serial-chain stragglers too-few-tasks",
)
def unfinished_run(run: RunFigures) -> Iterator[Finding]:
    """Find runs that did not complete, and the cause."""
    state, end, causes = state_from_trace(run.trace), run.end, causes_of_run(run.trace)
    if state is None:
        return
    if end is None:
        # The rule "large-gathers" reports a client that receives large results.
        calls = find_calls(run.trace)
        calls = calls[(calls["received"] >= LARGE * calls["calls"]).to_numpy()]
        receiving = float(calls["receiving"].max()) if len(calls) else 0.0
        for cause in causes:
            if cause.kind in _ALL_ENDED and not receiving > 0.5 * (cause.seconds or 0.0):
                yield _client_elsewhere(run, cause)
        return
    if not end.unfinished and not state.tasks:
        return  # Recording failed, so what happened later is unknown.
    if end.only_forgotten:
        yield _cut_off(state, end)
        return
    causes = [cause for cause in causes if cause.kind not in _ALL_ENDED]
    if not causes and end.clients_stayed and len(run.restarted_keys):
        return  # The rule "cancelled-tasks" reports why the tasks were released.
    first = causes[0] if causes else None
    severity = _severity(state, end, first)
    if end.how is End.GOES_ON and any(map(_keeps_from_its_end, causes)):
        severity = "high"
    yield _summary(run, state, end, first, severity)
    errors = {cause.function: cause for cause in reversed(causes) if cause.kind == "error"}
    for cause in causes[1:]:
        # The rule killed-worker-errors reports its causes itself. The rule failed-tasks counts the
        # further errors of a function.
        if cause.kind == "killed-worker-errors" or (
            cause.kind == "error" and cause is not errors[cause.function]
        ):
            continue
        less: Severity = "medium" if severity == "high" else severity
        yield _of_cause(cause, severity if cause.certainty != "possible" else less)


def _summary(
    run: RunFigures, state: ClusterState, end: RunEnd, cause: Cause | None, severity: Severity
) -> Finding:
    longest, left = _longest(state), _what_was_left(state, end)
    # A silent worker may have been silent since before the first task, so limit its seconds.
    known = run.wall - (end.time - float(end.state["time"])) if end.state else run.wall
    seconds = max(longest, min(cause.seconds or 0.0, known) if cause is not None else 0.0)
    seconds = min(seconds if seconds > 0 else state.quiet or run.wall, run.wall)
    failed, tasks = ended_with_the_run(run.trace), left["tasks"]
    late, late_in_words = None, ""
    if len(failed):
        key = run.text_of_key(int(failed["key_id"].iloc[0]))
        message, count = excerpt(str(failed["message"].iloc[0])), Count(len(failed))
        late = Figures(key=key, message=message, tasks=count)
        more = f" (and {Count(count - 1):other task} with an error)" if count > 1 else ""
        late_in_words = (
            f"{key} failed with {message}{more} while the run ended, so it is unknown whether it "
            "would have succeeded otherwise"
        )
    if end.how is End.GOES_ON:
        begin = f"The run continues with {tasks:unfinished task}"
    else:
        begin = f"{tasks:task} {'was' if tasks == 1 else 'were'} unfinished {_when_in_words(left)}"
        begin = f"The run did not complete: {begin}" if severity == "high" else begin
    names = name_some(left["keys"], number=left["seen"])
    in_progress = f" ({names}, running for up to {Seconds(longest)})" if names and longest else ""
    gone = _GONE.get(run.trace.recording)
    unknown = f"{gone} ended. No other cause is known." if gone else "The cause is not known."
    facts = ("" if cause is None else cause.evidence, late_in_words, _states_in_words(left))
    return Finding(
        "",
        f"{begin}{in_progress}. {unknown if cause is None else cause.text}",
        "".join(f"{fact.rstrip('. ')}. " for fact in facts if fact) + "See processed_tasks().",
        [
            cause.suggestion
            if cause is not None
            else "Find out what these tasks do: client.call_stack() shows it while they run."
            if end.how is End.GOES_ON
            else "Use hot_lines() to find out what these tasks did. In the next run, `dasfprof "
            "stuck` shows their stacks while they run."
        ],
        {
            "function": cause and cause.function,
            "worker": cause and cause.worker,
            **left,
            "goes_on": end.how is End.GOES_ON,
            "severe": severity == "high",
            "longest": Seconds(longest),
            "cause": cause,
            "recording": run.trace.recording.name,
            "failed_late": late,
        },
        costs=seconds,
        at_most=severity,
        at_least=severity,
        start=run.trace.seconds_at(end.time - seconds),
        stop=run.trace.seconds_at(end.time),
    )


def _what_was_left(state: ClusterState, end: RunEnd) -> dict[str, Any]:
    """Return figures of the unfinished tasks, their states, and the end of the run."""
    totals = state.totals
    return {
        "tasks": Count(end.unfinished if end.unfinished is not None else len(state.tasks)),
        "when": _when(state, end),
        "keys": [task.key for task in state.tasks[:_MOST_KEYS]],
        "seen": Count(len(state.tasks)),
        "states": {name: Count(totals[name]) for name in _STATES if totals[name]},
        "quiet": Seconds(state.quiet) if state.quiet else None,
    }


def _when(state: ClusterState, end: RunEnd) -> str:
    """Return how a run ended: a value of `End`, or another key of `_WHEN` for a special case."""
    if end.interrupted:
        return "interrupted"
    if end.clients_stayed:
        return "given up"
    if end.how is End.BROKEN_UP and sum(worker.status != "lost" for worker in state.workers) == 1:
        return "only worker left"
    return (end.how or End.CUT).value


def _when_in_words(left: dict[str, Any]) -> str:
    return _WHEN[left["when"]].format(them="it" if left["tasks"] == 1 else "them")


def _of_cause(cause: Cause, severity: Severity) -> Finding:
    """Return a finding about a cause."""
    return Finding(
        "",
        cause.text,
        cause.evidence,
        [cause.suggestion],
        {"function": cause.function, "worker": cause.worker, "cause": cause},
        costs=cause.seconds if cause.seconds is not None else float("nan"),
        at_most=severity,
        at_least=severity,
    )


def _severity(state: ClusterState, end: RunEnd, cause: Cause | None) -> Severity:
    """Return the severity of an unfinished run."""
    seconds = max(_longest(state), (cause.seconds or 0.0) if cause is not None else 0.0)
    proven = cause is not None and cause.certainty != "possible"
    waits = cause is not None and cause.kind not in (*_HEALTHY, *_ERRORS) and seconds >= _LONG
    if end.how is End.GOES_ON:
        return "medium" if waits else "low" if seconds >= _LONG else "info"
    if proven or waits:
        return "high"
    clients = [client.activity for client in state.clients if client.activity is not None]
    # A client that exits because it got its result does so soon after the result.
    acted = state.quiet is not None and state.quiet < _ACTS
    waited = not clients or (any(activity.waits_in for activity in clients) and not acted)
    ended = end.how is End.CLOSED or not waited or (cause is None and seconds < _LONG)
    return "medium" if ended else "high"


def _keeps_from_its_end(cause: Cause) -> bool:
    """Return whether a cause proves that a run in progress will not complete."""
    lasts = cause.kind not in _MOMENTS or (cause.seconds or 0.0) >= _LONG
    return cause.certainty != "possible" and cause.kind not in _ERRORS and lasts


def _longest(state: ClusterState) -> float:
    return max((task.seconds or 0.0 for task in state.tasks), default=0.0)


def _states_in_words(left: dict[str, Any]) -> str:
    """Return a sentence with the number of tasks per state."""
    states = ", ".join(f"{number} {name}" for name, number in left["states"].items())
    quiet = left["quiet"]
    ended = "" if quiet is None else f"no task had started or ended for {quiet}"
    words = "; ".join(filter(None, [f"Tasks: {states}" if states else "", ended]))
    return f"{words}." if words else ""


def _cut_off(state: ClusterState, end: RunEnd) -> Finding:
    left = _what_was_left(state, end)
    return Finding(
        "",
        f"{left['tasks']:task} passed to fire_and_forget() had not finished "
        f"{_when_in_words(left)}, because the program ended.",
        f"{name_some(left['keys'], number=left['seen'])} {_states_in_words(left)}".strip(),
        [
            "Keep their futures and wait() for them before the program ends, or run the tasks on a "
            "cluster that outlives the program."
        ],
        {"function": state.tasks[0].function if state.tasks else None, **left},
        at_most="low",
        at_least="low",
    )


def _client_elsewhere(run: RunFigures, cause: Cause) -> Finding:
    seconds = cause.seconds or 0.0
    share = seconds / (run.wall + seconds or 1.0)
    # A program may be busy with something else for a short time.
    brief = cause.kind == "client-elsewhere" and seconds < _LONG
    severity: Severity = "low" if share < 0.5 or brief else "medium"
    # What happened after the last task did not slow down any task.
    return dataclasses.replace(_of_cause(cause, severity), isolated=True)


@rule(
    "killed-worker-errors",
    causes="load-imbalance lost-workers recomputation scheduler-bound serial-chain too-few-tasks",
    refutes="more-threads",
    because="workers died with the tasks that they ran",
)
def killed_worker_errors(run: RunFigures) -> Iterator[Finding]:
    """Find tasks that failed because the workers that ran them died one after another."""
    # If a task waits for a lock of such a worker, that finding comes first, because the wait keeps
    # the run from ending.
    causes = causes_of_run(run.trace)
    held = {cause.worker for cause in causes if cause.kind == HOLDER_DIED}
    for cause in causes:
        if cause.kind == "killed-worker-errors":
            severity: Severity = "medium" if cause.worker in held else "high"
            rhythm = find_rhythm(run, departures_of(run.trace))
            deaths = _deaths(run, cause)
            died = [
                f"{death.worker} at {death.left}, {death.exit or 'for an unknown reason'}"
                for death in deaths[:_MOST_DEATHS]
            ]
            more = f"Workers that died: {'; '.join(died)}. " if died else ""
            finding = _of_cause(cause, severity).adding(
                f"{more}{rhythm_in_words(rhythm)}", deaths=deaths, rhythm=rhythm
            )
            evidence = finding.evidence.strip()
            yield dataclasses.replace(finding, evidence=evidence, costs=run.wall)


def _deaths(run: RunFigures, cause: Cause) -> list[Figures]:
    """Return the workers on which the task ``cause.keys[0]`` did not succeed, and their exits."""
    attempts, workers = run.attempts, run.trace.workers
    keys = run.trace.keys.texts(attempts["key_id"].to_numpy())
    of_task = attempts[(keys == cause.keys[0]) & attempts["category"].notna().to_numpy()]
    return [
        Figures(
            worker=elide(clean(workers["worker"].iloc[life]), 60),
            left=Seconds(float(run.trace.left[life])),
            exit=in_words(departure_of(run.trace, life)),
        )
        for life in dict.fromkeys(of_task["life"].tolist())
    ]
