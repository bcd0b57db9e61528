"""Rules about what became of tasks: failed, or never ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from dasfprof.analysis.diagnosis.findings import Finding, Places
from dasfprof.analysis.diagnosis.registry import rule
from dasfprof.analysis.diagnosis.run_figures import RunFigures
from dasfprof.analysis.diagnosis.time_outs import is_time_out, limit_or_cause
from dasfprof.analysis.model.attempts import WORKER_CLOSED, WORKER_LOST
from dasfprof.analysis.under_way.failed_tasks import blocked_by_errors, ended_with_the_run
from dasfprof.database.columns import Array
from dasfprof.text import count_of, excerpt, format_duration, format_share

#: Shares of the seconds of all tasks, and of all attempts, that failed.
_FAILED_SECONDS = 0.02
_FAILED_ATTEMPTS = 0.05
#: The most kinds of errors that are named.
_NAMED_KINDS = 3


@rule(
    "failed-attempts",
    symptoms=(
        "recomputation",
        "straggling-tasks",
        "imbalance",
        "too-few-tasks",
    ),
)
def failed_attempts(run: RunFigures) -> Iterator[Finding]:
    """Find attempts that failed and were made again, and their seconds."""
    attempts = run.attempts
    erred = (attempts["status"] == "erred") & (attempts["category"] != WORKER_LOST)
    failed = (erred & ~attempts["succeeded"]).to_numpy(dtype=bool)
    seconds = attempts["run"].fillna(0.0).to_numpy()
    lost = float(seconds[failed].sum())
    if not failed.any() or (
        lost < _FAILED_SECONDS * seconds.sum() and failed.mean() < _FAILED_ATTEMPTS
    ):
        return
    kept = failed & ~_final(attempts["key_id"].to_numpy())
    if not kept.any():
        return
    own = attempts[kept]
    name, category = _most(own["function"]), _most(own["category"])
    message = own["message"].to_numpy()[(own["category"] == category).to_numpy()][0]
    yield Finding(
        f"{count_of(int(kept.sum()), 'attempt')} failed and had to be made again, most with "
        f"{category} in {name}: {format_duration(float(seconds[kept].sum()))} of thread time.",
        f"{format_share(float(kept.mean()))} of all attempts. The first message: "
        f"{excerpt(message)} See processed_tasks().",
        limit_or_cause(run, name)
        if is_time_out(category)
        else f"Make {name} not fail: catch and retry {category} inside of it where it is cheap, or "
        "mend what causes it; retries= starts the whole task again.",
        seconds=run.saved(
            float(seconds[kept].sum()) / run.threads,
            running=run.with_durations((run.trace.tasks["state"] == "erred").to_numpy(bool), 0.0),
        ),
        at_least="medium",
        function=name,
        places=_failures(run, own),
    )


@rule("errors")
def errors(run: RunFigures) -> Iterator[Finding]:
    """Find tasks that ended in an error for good."""
    attempts = run.attempts
    last = attempts[_final(attempts["key_id"].to_numpy())]
    erred = last[(last["status"] == "erred") & ~last["succeeded"]]
    if not len(erred):
        return
    never_ran = blocked_by_errors(run.trace, len(erred))
    # Those of lost workers are told by killed-workers; a worker that closes raises nothing. Those
    # that came as the program ended are told by unfinished-run: they are not why it ended.
    elsewhere = erred["category"].isin([WORKER_LOST, WORKER_CLOSED])
    elsewhere |= erred["key_id"].isin(ended_with_the_run(run.trace)["key_id"])
    erred = erred[~elsewhere.to_numpy(dtype=bool)]
    if not len(erred):
        return
    raised = erred["start"] + erred["elapsed"].fillna(0.0)
    erred = erred.iloc[np.argsort(raised.to_numpy(), kind="stable")]
    first = erred.head(1).to_dict("records")[0]
    name = str(first["function"])
    blocked = sum(never_ran.values())
    because = f"; {count_of(blocked, 'task')} that need their results never ran" if blocked else ""
    by_function = ", ".join(f"{number:,} of {other}" for other, number in never_ran.items())
    yield Finding(
        f"{count_of(len(erred), 'task')} ended in an error: {_kinds(erred)}{because}.",
        f"The first: {run.text_of_key(first['key_id'])}: {excerpt(str(first['message']))} "
        f"{_raised_at(first)}"
        f"{f'Never ran: {by_function}. ' if blocked else ''}See processed_tasks().",
        limit_or_cause(run, name)
        if is_time_out(first["category"])
        else f"Mend {name}, or give retries= where the error passes by itself; what depends on "
        "these tasks has no result.",
        at_least="high",
        function=name,
        worker=str(run.workers.labels[first["worker"]]),
        start=float(first["start"]) - run.trace.begin,
        places=_failures(run, erred),
    )


def _kinds(erred: pd.DataFrame) -> str:
    """Name the errors and where they were raised, the first one first."""
    pairs = zip(erred["category"], erred["function"], strict=True)
    kinds = list(dict.fromkeys(f"{category} in {function}" for category, function in pairs))
    more = len(kinds) - _NAMED_KINDS
    others = f" and {count_of(more, 'more kind')}" if more > 0 else ""
    return ", ".join(kinds[:_NAMED_KINDS]) + others


def _failures(run: RunFigures, attempts: pd.DataFrame) -> Places:
    """Return where attempts failed: a function or worker is named if it is that of all."""
    functions, workers = attempts["function"].unique(), attempts["worker"].unique()
    return Places(
        state="erred",
        function=str(functions[0]) if len(functions) == 1 else None,
        worker=str(run.workers.labels[workers[0]]) if len(workers) == 1 else None,
    )


@rule("unfinished-tasks")
def unfinished_tasks(run: RunFigures) -> Iterator[Finding]:
    """Find tasks that were on a worker and not done, in traces without states of the scheduler."""
    only = run.trace.scheduler_only
    if len(run.trace.scheduler_states) or "scheduler_state" not in only:
        return
    left = only[(only["scheduler_state"] == "processing").to_numpy(dtype=bool) & ~only["lost"]]
    if not len(left):
        return
    waited = (run.trace.end - left["sent"]).to_numpy(dtype=float)
    longest = int(np.nanargmax(waited))
    name = _most(left["function"])
    label = str(left["worker"].iloc[longest])
    key = run.text_of_key(int(left["key_id"].iloc[longest]))
    unsent = run.trace.unsent
    behind = int(unsent["tasks"].sum()) if "tasks" in unsent else 0
    waiting = f" {count_of(behind, 'more task')} had not been sent to a worker." if behind else ""
    yield Finding(
        f"{count_of(len(left), 'task')} had not ended when recording did, most of {name}: the "
        f"longest has been on its worker for {format_duration(float(waited[longest]))}.",
        f"Key {key} on {label}. {_usually(run, name)}{waiting} See processed_tasks().",
        f"If it is stuck, look at what {name} does there, by client.call_stack() or the worker's "
        "log: a lock, a lost connection, an endless loop. If not, stop recording after wait() or "
        "compute() have returned.",
        at_least="medium",
        at_most="medium",
        function=name,
        worker=label,
        start=float(left["sent"].iloc[longest]) - run.trace.begin,
        stop=run.trace.end - run.trace.begin,
    )


@rule("no-worker-fits")
def no_worker_fits(run: RunFigures) -> Iterator[Finding]:
    """Find tasks that no worker may run, in traces without states of the scheduler."""
    if len(run.trace.scheduler_states):
        return
    for row in run.trace.unsent.to_dict("records"):
        if row["state"] != "no-worker":
            continue
        asked = row["restrictions"] or {}
        words = "; ".join(f"{name}={value}" for name, value in asked.items())
        name, key = str(row["name"]), run.text_of_key(int(row["key"]))
        since = float(row["time"]) - run.trace.begin
        yield Finding(
            f"No worker fits {count_of(int(row['tasks']), 'task')} of {name}: they had not been "
            f"sent to any for {format_duration(run.trace.end - run.trace.begin - since)} when "
            "recording ended.",
            f"Key {key} asks for {words or 'nothing, so that there was no worker at all'}.",
            "Start a worker that offers this (dask worker --resources, or its address or name), or "
            f"take workers= and resources= from {name}; until then this run does not end.",
            at_least="high",
            function=name,
            start=since,
            stop=run.trace.end - run.trace.begin,
        )


def _raised_at(attempt: dict[Any, Any]) -> str:
    line = attempt["raised_at"]
    return f"Raised at {excerpt(str(line))}. " if isinstance(line, str) else ""


def _most(column: pd.Series) -> str:
    """Return the text that a column has most often."""
    return str(Counter(column.tolist()).most_common(1)[0][0])


def _usually(run: RunFigures, name: str) -> str:
    own = run.working[(run.trace.tasks["function"] == name).to_numpy(dtype=bool)]
    if not len(own):
        return f"No task of {name} ended."
    return f"Other tasks of {name} take {format_duration(float(np.median(own)))}."


def _final(key_ids: Array) -> Array:
    """Return which rows are the last of their key."""
    final = np.zeros(len(key_ids), dtype=bool)
    _, first_from_the_end = np.unique(key_ids[::-1], return_index=True)
    final[len(key_ids) - 1 - first_from_the_end] = True
    return final
