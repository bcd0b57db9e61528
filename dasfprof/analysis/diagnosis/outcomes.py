"""Rules about the outcomes of tasks: errors, retries, and errors that are logged, not raised."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
import pandas as pd

from dasfprof.analysis.diagnosis.registry import Finding, FindingLocations, rule
from dasfprof.analysis.diagnosis.run_figures import RunFigures
from dasfprof.analysis.model.attempts import WORKER_CLOSED, WORKER_LOST
from dasfprof.analysis.run.run_end import CANCELLED, DROPPED, cancelled_runs
from dasfprof.analysis.trace.under_way import RUN
from dasfprof.analysis.under_way.failed_tasks import blocked_by_errors, ended_with_the_run
from dasfprof.analysis.wording import Count, Seconds, Share
from dasfprof.database.columns import Array
from dasfprof.text import elide, excerpt

#: Thresholds of failures: fraction of the seconds of all tasks, and fraction of all attempts.
_FAILED_SECONDS = 0.02
_FAILED_ATTEMPTS = 0.05
#: Maximum number of kinds of errors that are named.
_NAMED_KINDS = 3


@rule("retried-tasks", causes="recomputation stragglers load-imbalance too-few-tasks")
def retried_tasks(run: RunFigures) -> Iterator[Finding]:
    """Find attempts that failed and were retried, and the seconds that the failed attempts cost."""
    attempts = run.attempts
    erred = (attempts["status"] == "erred") & (attempts["category"] != WORKER_LOST)
    failed = (erred & ~attempts["succeeded"]).to_numpy(dtype=bool)
    seconds = attempts["run"].fillna(0.0).to_numpy()
    lost = float(seconds[failed].sum())
    if not failed.any() or (
        lost < _FAILED_SECONDS * seconds.sum() and failed.mean() < _FAILED_ATTEMPTS
    ):
        return
    is_retried = failed & attempts["key_id"].duplicated(keep="last").to_numpy()
    if not is_retried.any():
        return
    retried = attempts[is_retried]
    name, category = _most(retried["function"]), _most(retried["category"])
    message = retried["message"].to_numpy()[(retried["category"] == category).to_numpy()][0]
    is_known = isinstance(message, str)
    yield Finding.of(
        "{attempts:attempt} failed and were retried, most with {category} in {function}: "
        "{lost} of thread time.",
        f"That is {{share}} of all attempts. {'First message: {message} ' if is_known else ''}See "
        "processed_tasks().",
        "Prevent the failures of {function}: fix their cause, or catch {category} inside "
        "{function} and retry only the step that fails. retries= runs the complete task "
        "again.",
        function=name,
        attempts=Count(is_retried.sum()),
        category=category,
        lost=Seconds(seconds[is_retried].sum()),
        share=Share(is_retried.mean()),
        message=excerpt(message) if is_known else None,
        seconds=run.saved(
            float(seconds[is_retried].sum()) / run.threads,
            running=run.with_durations((run.trace.tasks["state"] == "erred").to_numpy(bool), 0.0),
        ),
        at_least="medium",
        places=_failures(run, retried),
    )


@rule("failed-tasks")
def failed_tasks(run: RunFigures) -> Iterator[Finding]:
    """Find tasks that failed and either were not retried or failed again."""
    attempts = run.attempts
    last = attempts.drop_duplicates("key_id", keep="last")
    erred = last[(last["status"] == "erred") & ~last["succeeded"]]
    if not len(erred):
        return
    never_ran = blocked_by_errors(run.trace, len(erred))
    # The rule killed-worker-errors reports tasks of lost workers. A worker that closes does not
    # raise an error. The rule unfinished-run reports errors that were raised because the program
    # ended.
    elsewhere = erred["category"].isin([WORKER_LOST, WORKER_CLOSED])
    elsewhere |= erred["key_id"].isin(ended_with_the_run(run.trace)["key_id"])
    erred = erred[~elsewhere.to_numpy(dtype=bool)]
    if not len(erred):
        return
    raised = erred["start"] + erred["elapsed"].fillna(0.0)
    erred = erred.iloc[np.argsort(raised.to_numpy(), kind="stable")]
    first = erred.head(1).to_dict("records")[0]
    name = str(first["function"])
    pairs = zip(erred["category"], erred["function"], strict=True)
    kinds = list(dict.fromkeys(f"{category} in {function}" for category, function in pairs))
    line = first["raised_at"]
    # A client had cancelled these tasks, so their errors may result from the cancellation.
    runs = run.trace.tasks
    gone = (
        cancelled_runs(run.trace, runs, (*DROPPED, CANCELLED))
        & (runs["state"] == "erred").to_numpy()
    )
    nobodys = bool(erred["key_id"].isin(runs["key_id"].to_numpy()[gone]).all())
    blocked = Count(sum(never_ran.values()))
    others = f" and {Count(len(kinds) - _NAMED_KINDS):more kind}" * (len(kinds) > _NAMED_KINDS)
    blocks = "Tasks that could not run because of this: {_by_function}. " if blocked else ""
    raised_in = "Raised at {raised_at}. " if isinstance(line, str) else ""
    because = f"; {blocked:task} that depend on them never ran" if blocked else ""
    yield Finding.of(
        f"{{tasks:task}} failed: {{_named}}{others}{because}.",
        f"The first error was in {{key}}: {{message}} {raised_in}{blocks}See processed_tasks().",
        "Fix the error, unless it results from the cancellation. A client had cancelled these "
        "tasks before the scheduler learned of their errors, so no result depends on them."
        if nobodys
        else "Fix {function}, or pass retries= if the error is temporary. Tasks that depend on "
        "these have no result.",
        function=name,
        tasks=Count(len(erred)),
        nobodys=nobodys,
        kinds=kinds,
        _named=", ".join(kinds[:_NAMED_KINDS]),
        key=run.text_of_key(first["key_id"]),
        message=excerpt(str(first["message"])),
        raised_at=excerpt(str(line)) if isinstance(line, str) else None,
        never_ran={other: Count(number) for other, number in never_ran.items()},
        _by_function=", ".join(f"{number} of {other}" for other, number in never_ran.items()),
        severity="low" if nobodys else "high",
        worker=str(run.workers.labels[first["worker"]]),
        start=run.trace.seconds_at(first["start"]),
        places=_failures(run, erred),
    )


def _failures(run: RunFigures, attempts: pd.DataFrame) -> FindingLocations:
    """Return the function and the worker of failed attempts. Each is None if there are several."""
    functions, workers = attempts["function"].unique(), attempts["worker"].unique()
    return FindingLocations(
        state="erred",
        function=str(functions[0]) if len(functions) == 1 else None,
        worker=str(run.workers.labels[workers[0]]) if len(workers) == 1 else None,
    )


def _most(column: pd.Series) -> str:
    """Return the most frequent text of a column."""
    return str(Counter(column.tolist()).most_common(1)[0][0])


_NONE = "NoneType"
#: Threshold (fraction of a function's results): severity is medium if as many results are missing.
_MANY = 0.5


@rule("swallowed-errors")
def swallowed_errors(run: RunFigures) -> Iterator[Finding]:
    """Find functions whose task runs log an error and return None."""
    tasks, logged = run.trace.tasks, run.trace.logs
    logged = logged[logged["error"] == 1]
    if not len(logged):
        return
    ended = (tasks["state"] == "memory").to_numpy(dtype=bool)
    nothing = ended & (tasks["type"] == _NONE).to_numpy(dtype=bool)
    runs = pd.MultiIndex.from_frame(tasks[RUN])
    loggers = pd.MultiIndex.from_frame(logged[RUN])
    silent: Array = nothing & runs.isin(loggers)
    codes = tasks["function"].cat.codes.to_numpy()
    numbers, counts = np.unique(codes[silent], return_counts=True)
    for code, count in zip(numbers.tolist(), counts.tolist(), strict=True):
        of_function = codes == code
        total, empty = int((of_function & ended).sum()), int((of_function & nothing).sum())
        first = logged[loggers.isin(runs[of_function & silent])].iloc[0]
        name = str(run.function_names[code])
        yield Finding.of(
            "{silent} of {tasks:task run} of {function} logged an error and returned None. If "
            "they caught an error, Dask does not know about it and counts them as succeeded.",
            f"{'All {tasks}' if empty == total else '{empty} of {tasks}'} results of "
            "{function} are None. First logged error: {error} at {line}: {message}",
            "Check what {function} logs. Let it raise the errors that it cannot handle: Dask "
            "then reports the task and does not run tasks that depend on it. If it is meant to "
            "return None, ignore this finding.",
            silent=Count(count),
            empty=Count(empty),
            tasks=Count(total),
            error=first["exception"] if isinstance(first["exception"], str) else first["level"],
            line=elide(first["line"], 120),
            message=excerpt(str(first["message"])),
            at_least="medium" if count >= _MANY * total else "low",
            at_most="medium",
            function=name,
        )
