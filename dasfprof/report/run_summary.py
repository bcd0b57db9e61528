"""Key figures of a run: `summarise`, and the same in words."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from dasfprof.analysis.model.accounting import hours_of_run, make_accounts
from dasfprof.analysis.model.client_time import find_first_task
from dasfprof.analysis.model.thread_time import RUNNING
from dasfprof.analysis.model.transfers import shuffled_bytes
from dasfprof.analysis.run import Run
from dasfprof.config import setting
from dasfprof.config.kinds import Price
from dasfprof.text import clean, count_of, format_date, format_duration, format_share

# --- Key figures of a run: summarise, and the same in words ---------------------------------------

#: The least share of the time to the first task that is told.
_WORTH_TELLING = 0.01
#: Most names of events that are listed.
_MOST_NAMES = 8


def title_of(run: Run, default: str = "Dask run") -> str:
    """Return the run's name; `default` where the files name none, or several."""
    return run.run or default


def summarise(run: Run) -> dict[str, Any]:
    """Sum up a run: what ran, when, on what, for how long, and how well threads were used.

    Returns
    -------
    dict
        ``begin`` (Unix seconds), ``seconds``, ``tasks`` (runs that ended), ``unseen`` (those of
        them that no worker's file holds, of which only the scheduler tells), ``unfinished`` (tasks
        that had not), ``functions``, ``failed``, ``hosts``, ``workers``, ``threads``, ``compute``
        (seconds in tasks, of all threads), ``held`` (those for which they held one, by the
        accounts), ``capacity`` (seconds that threads were there), ``cpu`` (CPU seconds in tasks),
        ``moved`` (bytes between workers), ``shuffled`` (those of them by P2P shuffles; None: they
        are not among them), ``results`` (bytes of all results), ``cores`` (of all hosts of
        workers), ``versions`` (of packages, by name), ``command`` (the client's program; empty:
        unknown), ``events`` (of user code, the number by name), ``first_task`` (see
        `find_first_task`: ``seconds`` to it from the begin of recording, and those of each of its
        ``stages``; None where tasks ran before), ``cost`` (None without a price: see `run_cost`).
        None: unknown.
    """
    tasks, end = run.whole.tasks, run.ending
    unseen = len(run.unseen)
    functions = {*tasks["function"].unique(), *run.unseen["function"].unique()}
    workers = run.workers[run.workers["kind"] == "worker"]
    unfinished = None if end is None else end.unfinished
    # As time_accounting() has it, so that the same share is not shown as two.
    accounts = make_accounts(run).of_lives
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
        "cores": _cores(run, {str(host) for host in workers["host"]}),
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
    """Return what a run cost, where the setting ``dasfprof.price`` tells what a worker does.

    Returns
    -------
    dict or None
        ``amount``, ``currency`` (a label, or empty), ``words`` (both), ``worker_hours`` and, of
        these, ``idle_hours`` (no task held the thread).
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


def _cores(run: Run, hosts: set[str]) -> int | None:
    """Return how many cores hosts have; None if that is unknown of one."""
    cores = [run.surroundings.cores.get(host) for host in hosts]
    known = [number for number in cores if number is not None]
    return sum(known) if known and len(known) == len(cores) else None


def _first_task(run: Run) -> dict[str, Any] | None:
    found = find_first_task(run)
    if found is None:
        return None
    stages = {stage.value: _known(seconds) for stage, seconds in found.stages.items()}
    return {"seconds": _known(found.seconds), "stages": stages}


def when(facts: dict[str, Any]) -> str:
    """Write when a run was and how long it took; empty if that is unknown."""
    if facts["begin"] is None or facts["seconds"] is None:
        return ""
    return f"{format_date(facts['begin'])} UTC, {format_duration(facts['seconds'])}"


def in_words(facts: dict[str, Any]) -> str:
    """Write what a run computed, and on what, in a sentence or two."""
    used = ""
    if facts["capacity"] and facts["held"] is not None:
        share = format_share(facts["held"] / facts["capacity"])
        used = f" Tasks held {share} of the threads' time."
    if facts["cost"] is not None:
        used += f" {cost_in_words(facts['cost'])}"
    failed = f", {facts['unseen']:,} of them in no worker's file" if facts["unseen"] else ""
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
    """Write what a run cost, in a sentence."""
    hours, idle = cost["worker_hours"], cost["idle_hours"]
    share = f", {format_share(idle / hours)} of them idle" if hours > 0 else ""
    return f"It cost {cost['words']}: {hours:.3g} worker-hours{share}."


def start_in_words(facts: dict[str, Any]) -> str:
    """Write how long it took to the first task, and what took long; empty if nobody recorded it."""
    found = facts["first_task"]
    if found is None:
        return ""
    known = {stage: seconds for stage, seconds in found["stages"].items() if seconds is not None}
    unknown = [stage for stage in found["stages"] if stage not in known]
    parts = ", ".join(
        f"{stage} {format_duration(seconds)}"
        for stage, seconds in known.items()
        if seconds > 0 and seconds >= _WORTH_TELLING * sum(known.values())
    )
    if found["seconds"] is None:
        begin = "Of the time to the first task"
    else:
        begin = f"The first task began {format_duration(found['seconds'])} after recording did"
    return f"{begin}: {parts}" + (f"; unknown: {', '.join(unknown)}." if unknown else ".")


def no_findings(run: Run) -> str:
    """Write what it means that nothing was found in a run."""
    if not len(run.tasks) and not len(run.scheduler_only):
        return "No task runs: there is nothing to judge."
    return "None of the known faults was found."


def _events_in_words(counts: dict[str, int]) -> str:
    """Write how many events user code recorded, by name; empty if none."""
    if not counts:
        return ""
    named = [f"{clean(name)} {count:,}" for name, count in list(counts.items())[:_MOST_NAMES]]
    more = f" and {len(counts) - _MOST_NAMES} more names" if len(counts) > _MOST_NAMES else ""
    return f"{count_of(sum(counts.values()), 'event')} of user code: {', '.join(named)}{more}."


def _known(number: Any) -> float | None:
    return None if pd.isna(number) else float(number)


# --- verdict: in a few sentences, how a run went, what to do, and what its time was spent on ------

#: The class that is always told of, and the share from which the largest others are.
_COMPUTING = "Computing"
_LEAST_SHARE, _MOST = 0.05, 3


class Verdict(NamedTuple):
    """How a run went."""

    #: What failed, what is at stake, and what to do, in a few sentences.
    headline: str
    #: The run's length, its threads, and what took most of their time; empty if nothing ran.
    spent: str


def verdict(summary: dict[str, Any], accounting: pd.DataFrame, findings: pd.DataFrame) -> Verdict:
    """Write how a run went: whether all ended well, what to do, what its threads did.

    Parameters
    ----------
    summary
        See `summarise`.
    accounting
        What `TraceAnalyser.time_accounting` returns, of the whole cluster.
    findings
        What `TraceAnalyser.diagnose` returns.
    """
    tasks, failed, unfinished = (summary[name] for name in ("tasks", "failed", "unfinished"))
    if not tasks and not unfinished:
        return Verdict("No task ran.", "")
    first = str(findings["Rule"].iloc[0]) if len(findings) else ""
    sentences = []
    if unfinished and first != "unfinished-run":
        sentences.append(f"{count_of(unfinished, 'task')} had not ended.")
    if failed and first != "failed-tasks":
        sentences.append(f"{failed:,} of {count_of(tasks, 'task run')} failed.")
    sentences += _to_do(summary, findings)
    return Verdict(
        " ".join(sentences or ["Nothing to change was found."]),
        f"{_length(summary)}{_classes(accounting)}.",
    )


def _length(summary: dict[str, Any]) -> str:
    seconds, threads = summary["seconds"], summary["threads"]
    length = "A run of unknown length" if seconds is None else format_duration(seconds)
    return f"{length} on {count_of(int(threads), 'thread')}" if threads else length


def _classes(accounting: pd.DataFrame) -> str:
    if not len(accounting):
        return ""
    shares = dict(zip(accounting["Class"], accounting["Share (%)"] / 100, strict=True))
    others = sorted((name for name in shares if name != _COMPUTING), key=lambda name: -shares[name])
    told = [name for name in others[:_MOST] if shares[name] >= _LEAST_SHARE]
    first = [_COMPUTING] if _COMPUTING in shares else []
    parts = [
        f"{format_share(shares[name])} {name[0].lower()}{name[1:]}" for name in [*first, *told]
    ]
    return f": {', '.join(parts)}" if parts else ""


def _to_do(summary: dict[str, Any], findings: pd.DataFrame) -> list[str]:
    """Say the first finding in short: what it may cost, what it is, what to change.

    What of the time of a run that did not end could have been saved, nothing tells.
    """
    if not len(findings):
        return []
    first = findings.iloc[0]
    stake, whole = first["Seconds at stake (s)"], summary["seconds"]
    told = [_beginning(str(first[name])) for name in ("Finding", "Suggestion")]
    if pd.isna(stake) or whole is None or summary["unfinished"]:
        return told
    # What the client does before the first task, or after the last, may take longer than the run.
    of = format_duration(whole) if stake <= whole else "the client's time"
    return [f"About {format_duration(float(stake))} of {of} could be saved.", *told]


def _beginning(text: str) -> str:
    """Return a text as far as its first full stop or colon, whichever ends a clause."""
    return re.split(r"[.:;](?=\s|$)", text, maxsplit=1)[0] + "."
