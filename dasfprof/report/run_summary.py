"""`summarise`: key figures of a run, and sentences about them."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd

from dasfprof.analysis.model.accounting import hours_of_run, make_accounts
from dasfprof.analysis.model.client_time import Stage, find_first_task
from dasfprof.analysis.model.thread_time import RUNNING
from dasfprof.analysis.model.transfers import shuffled_bytes
from dasfprof.analysis.run import Run
from dasfprof.config.kinds import Price
from dasfprof.config.options import setting
from dasfprof.text import clean, count_of, format_date, format_duration, format_share

#: Threshold (fraction): shorter stages before the first task are not mentioned.
_SHORTEST_STAGE = 0.01
#: Maximum number of user events that are named.
_MOST_NAMES = 8
#: Clauses about the stages before the first task, which follow the duration of the stage.
_STAGES = {
    Stage.PROMPT: "at a prompt",
    Stage.PROGRAM: "until the program sent a graph",
    Stage.OPTIMISING: "optimizing it",
    Stage.PICKLING: "pickling it",
    Stage.SENDING: "sending it",
    Stage.SCHEDULER: "preparing it on the scheduler",
    Stage.WORKERS: "waiting for a worker",
    Stage.STARTING: "until a worker started the task",
}


def title_of(run: Run, default: str = "Dask run") -> str:
    """Return the run's name, or the default if the files have no name or several names."""
    return run.run or default


def summarise(run: Run) -> dict[str, Any]:
    """Return the key figures of a run. None stands for an unknown figure.

    Returns
    -------
    dict
        - ``begin`` (Unix seconds), ``seconds`` (from the first to the last recorded event)
        - ``tasks``: number of finished task runs; ``unseen``: how many of them only the scheduler
          recorded; ``unfinished``: number of unfinished tasks; ``failed``: number of failed task
          runs
        - ``functions``, ``workers``, ``threads``: how many there are; ``hosts``: names of the hosts
          of workers; ``cores``: number of cores of all these hosts
        - ``compute``: seconds that task runs spent in their functions; ``held``: seconds for which
          functions of tasks occupied threads; ``capacity``: seconds for which threads existed;
          ``cpu``: CPU seconds in functions of tasks
        - ``moved``: bytes sent between workers; ``shuffled``: bytes sent by P2P shuffles, None if
          ``moved`` does not include them; ``results``: bytes of all results
        - ``versions`` of packages by name; ``command`` of the client's program, or an empty text;
          ``events``: number of events that user code recorded, by name
        - ``first_task``: ``seconds`` from the start of the recording to the first task, and the
          seconds of each stage of this time (``stages``); None if tasks ran before the recording
        - ``cost``: see `run_cost`, None without a price.
    """
    tasks, end = run.task_runs, run.ending
    unseen = len(run.unseen)
    functions = {*tasks["function"].unique(), *run.unseen["function"].unique()}
    workers = run.workers[run.workers["kind"] == "worker"]
    unfinished = None if end is None else end.unfinished
    # Use the accounts of time_accounting(), so that both show the same fraction.
    accounts = make_accounts(run).of_lives
    cores = [run.surroundings.cores.get(str(host)) for host in workers["host"].unique()]
    arrived = run.transfers[run.transfers["state"] == "success"]
    shuffled = shuffled_bytes(run)
    sizes = [arrived["size"].sum(), shuffled] if len(run.transfers) or shuffled > 0 else []
    return {
        "begin": _known(run.begin),
        "seconds": _known(run.wall),
        "tasks": len(run.tasks) + unseen,
        "unseen": unseen,
        "unfinished": len(tasks) - len(run.tasks) if unfinished is None else unfinished,
        "functions": len(functions),
        "failed": int((tasks["state"] == "erred").sum()),
        "hosts": sorted({str(host) for host in workers["host"] if host}),
        "cores": sum(cores) if cores and None not in cores else None,
        "versions": run.surroundings.versions,
        "command": run.surroundings.command,
        "workers": int(workers[["host", "worker"]].drop_duplicates().shape[0]),
        "threads": _known(workers.drop_duplicates(["host", "worker"])["nthreads"].sum(min_count=1)),
        "compute": float(tasks["duration"].sum()),
        "held": _known(accounts[:, list(RUNNING)].sum()),
        "capacity": _known(accounts.sum()) or None,
        "cpu": _known(tasks["cpu"].sum(min_count=1)),
        "moved": _known(np.nansum(sizes)) if sizes else None,
        "shuffled": _known(shuffled),
        "results": _known(tasks["size"].sum(min_count=1)),
        "events": {str(name): int(n) for name, n in run.events["name"].value_counts().items()},
        "first_task": _first_task(run),
        "cost": run_cost(run),
    }


def run_cost(run: Run) -> dict[str, Any] | None:
    """Return the cost of a run, or None if the setting ``dasfprof.price`` has no price.

    Returns
    -------
    dict or None
        ``amount``, ``currency`` (a label, or empty), ``words`` (amount and currency as a text),
        ``worker_hours``, and ``idle_hours``: the part of the worker-hours in which no task occupied
        the threads.
    """
    price: Price | None = setting("price")
    if price is None:
        return None
    hours = hours_of_run(run)
    amount = hours["total"].price(price)
    return {
        "amount": amount,
        "currency": price.label,
        "words": price.in_words(amount),
        "worker_hours": hours["total"].workers,
        "idle_hours": hours["idle"].workers + hours["waiting"].workers,
    }


def _first_task(run: Run) -> dict[str, Any] | None:
    first = find_first_task(run)
    if first is None:
        return None
    stages = {stage.value: _known(seconds) for stage, seconds in first.stages.items()}
    return {"seconds": _known(first.seconds), "stages": stages}


def when(facts: dict[str, Any]) -> str:
    """Return the date and duration of a run as text, given the result of `summarise`.

    The text is empty if the start or the duration is unknown.
    """
    if facts["begin"] is None or facts["seconds"] is None:
        return ""
    return f"{format_date(facts['begin'])} UTC, {format_duration(facts['seconds'])}"


def in_words(facts: dict[str, Any]) -> str:
    """Return sentences about a run's work and its workers, given the result of `summarise`."""
    used = ""
    if facts["capacity"] and facts["held"] is not None:
        share = format_share(facts["held"] / facts["capacity"])
        used = f" Threads were busy for {share} of their time."
    if facts["cost"] is not None:
        used += f" {cost_in_words(facts['cost'])}"
    failed = ""
    if facts["unseen"]:
        failed = f", {facts['unseen']:,} of them missing from the workers' files"
    failed += f", {facts['failed']:,} failed" if facts["failed"] else ""
    failed += f", {count_of(facts['unfinished'], 'task')} unfinished" if facts["unfinished"] else ""
    threads = f", {count_of(facts['threads'], 'thread')}," if facts["threads"] else ""
    runs = f"{count_of(facts['tasks'], 'task run')} of {count_of(facts['functions'], 'function')}"
    events = _events_in_words(facts["events"])
    if events and not facts["tasks"] and not facts["unfinished"]:
        return f"No task runs. {events}"
    return (
        f"{runs}{failed}, on {count_of(facts['workers'], 'worker')}{threads} of "
        f"{count_of(len(facts['hosts']), 'host')}.{used}"
        f"{' ' if events else ''}{events}"
    )


def cost_in_words(cost: dict[str, Any]) -> str:
    """Return a sentence about the cost of a run."""
    hours, idle = cost["worker_hours"], cost["idle_hours"]
    share = f", {format_share(idle / hours)} of them idle" if hours > 0 else ""
    return f"It cost {cost['words']}: {hours:.3g} worker-hours{share}."


def start_in_words(facts: dict[str, Any]) -> str:
    """Return a sentence about the time to the first task, or an empty text if not recorded."""
    first = facts["first_task"]
    if first is None:
        return ""
    known = {stage: seconds for stage, seconds in first["stages"].items() if seconds is not None}
    unknown = [stage for stage in first["stages"] if stage not in known]
    shortest = _SHORTEST_STAGE * sum(known.values())
    stages = ", ".join(
        f"{format_duration(seconds)} {_STAGES[Stage(stage)]}"
        for stage, seconds in known.items()
        if seconds > 0 and seconds >= shortest
    )
    begin = "Time to the first task"
    if first["seconds"] is not None:
        seconds = format_duration(first["seconds"])
        begin = f"The first task started {seconds} after the recording started"
    return f"{begin}: {stages}." + (f" Not recorded: {', '.join(unknown)}." if unknown else "")


def no_findings(run: Run) -> str:
    """Return the sentence that is shown if a run has no findings."""
    if not len(run.tasks) and not len(run.scheduler_only):
        return "No task ran, so there is nothing to diagnose."
    return "No known problem was found."


def _events_in_words(counts: dict[str, int]) -> str:
    """Return a sentence about the events that user code recorded, or an empty text."""
    if not counts:
        return ""
    named = [f"{clean(name)} {count:,}" for name, count in list(counts.items())[:_MOST_NAMES]]
    more = f" and {len(counts) - _MOST_NAMES} more names" if len(counts) > _MOST_NAMES else ""
    events = count_of(sum(counts.values()), "event")
    return f"{events} recorded by user code: {', '.join(named)}{more}."


def _known(number: Any) -> float | None:
    return None if pd.isna(number) else float(number)


#: Name of the category that is always mentioned.
_COMPUTING = "Computing"
#: Threshold (fraction) of other categories that are mentioned, and their maximum number.
_SMALLEST_SHARE, _MOST_CATEGORIES = 0.05, 3
#: Severities of findings that justify a change.
_WORTH_A_CHANGE = ("high", "medium")


def verdict(
    summary: dict[str, Any], accounting: pd.DataFrame, findings: pd.DataFrame
) -> dict[str, str]:
    """Return the first sentences of a report.

    Parameters
    ----------
    summary
        See `summarise`.
    accounting
        The table `TraceAnalyser.time_accounting` of the cluster.
    findings
        The table `TraceAnalyser.diagnose`.

    Returns
    -------
    dict
        - ``headline``: sentences about failed tasks, what to change, how much time that saves, and
          the problem
        - ``spent``: sentence about the run's duration, its threads, and the largest categories of
          their time, or empty if no task ran
        - ``start``: sentence about the longest stage before the first task, or empty if unknown
    """
    tasks, failed, unfinished = (summary[name] for name in ("tasks", "failed", "unfinished"))
    if not tasks and not unfinished:
        return {"headline": "No task ran.", "spent": "", "start": ""}
    first = str(findings["Rule"].iloc[0]) if len(findings) else ""
    sentences = []
    if unfinished and first != "unfinished-run":
        sentences.append(f"{count_of(unfinished, 'task')} did not finish.")
    if failed and first != "failed-tasks":
        sentences.append(f"{failed:,} of {count_of(tasks, 'task run')} failed.")
    severe = len(findings) > 0 and findings["Severity"].iloc[0] in _WORTH_A_CHANGE
    if severe:
        sentences += _to_do(summary, findings.iloc[0])
    elif not sentences and len(findings):
        sentences.append("No severe problem was found, so no change is expected to save much time.")
    elif not sentences:
        sentences.append("No known problem was found, so nothing needs to be changed.")
    spent = f"{_length(summary)}{_categories(accounting)}."
    return {"headline": " ".join(sentences), "spent": spent, "start": _longest_stage(summary)}


def _length(summary: dict[str, Any]) -> str:
    seconds, threads = summary["seconds"], summary["threads"]
    length = "A run of unknown duration" if seconds is None else format_duration(seconds)
    return f"{length} on {count_of(int(threads), 'thread')}" if threads else length


def _categories(accounting: pd.DataFrame) -> str:
    if not len(accounting):
        return ""
    shares = dict(zip(accounting["Class"], accounting["Share (%)"] / 100, strict=True))
    others = sorted((name for name in shares if name != _COMPUTING), key=lambda name: -shares[name])
    largest = [name for name in others[:_MOST_CATEGORIES] if shares[name] >= _SMALLEST_SHARE]
    first = [_COMPUTING] if _COMPUTING in shares else []
    parts = [
        f"{format_share(shares[name])} {name[0].lower()}{name[1:]}" for name in [*first, *largest]
    ]
    return f". Thread time: {', '.join(parts)}" if parts else ""


def _longest_stage(summary: dict[str, Any]) -> str:
    """Return a sentence with the longest stage before the first task, or an empty text."""
    stages = (summary["first_task"] or {}).get("stages", {})
    known = {stage: seconds for stage, seconds in stages.items() if seconds is not None}
    if not known:
        return ""
    longest = max(known, key=lambda stage: known[stage])
    return f"{format_duration(known[longest])} {_STAGES[Stage(longest)]}"


def _to_do(summary: dict[str, Any], finding: pd.Series[Any]) -> list[str]:
    """Return two texts: the advice of a finding with the time it saves, and the finding's problem.

    The time is left out if it is unknown, or if the run did not finish.
    """
    saved, total = finding["Seconds at stake (s)"], summary["seconds"]
    problem, advice = (_beginning(str(finding[name])) for name in ("Finding", "Suggestion"))
    if pd.isna(saved) or total is None or summary["unfinished"]:
        return [advice, problem]
    # The client's work before the first task or after the last may take longer than the run itself.
    of = format_duration(total) if saved <= total else "the client's time"
    advice = f"{advice[:1].lower()}{advice[1:]}"
    return [f"To save about {format_duration(float(saved))} of {of}, {advice}", problem]


def _beginning(text: str) -> str:
    """Return the first clause of a text, which ends at a full stop, colon or semicolon."""
    return re.split(r"[.:;](?=\s|$)", text, maxsplit=1)[0] + "."
