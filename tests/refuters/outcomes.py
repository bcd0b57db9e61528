"""Refuters of what is said about attempts that failed, were lost, or were made again."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from refuters.attempts import (
    attempts,
    by_client,
    category,
    clients_gone,
    computed_again,
    is_killed,
    is_most,
    left_alone,
    most,
)
from refuters.evidence import Evidence
from refuters.registry import Said, differs, exceeds, lies, refuter

#: A worker that used no more of its memory did not die for want of it.
_NO_WANT = 0.5
#: Seconds before the end of the trace in which a worker may have been shut down.
_AT_THE_END = 3.5


@refuter("failed-attempts")
def failed_attempts(said: Said, evidence: Evidence) -> Iterator[str]:
    """Count attempts that erred and were followed by another of their key, and their seconds."""
    told = said.figures(
        "{count:number} attempt",
    ) | said.figures(
        "failed and had to be made again, most with {name:category} in {name}: {duration} of thread"
    )
    share = said.figures("{share} of all attempts.")["share"]
    every = attempts(evidence)
    last = {repr(row["key"]): number for number, row in enumerate(every)}
    failed = [
        row
        for number, row in enumerate(every)
        if row["ended"] == "erred" and last[repr(row["key"])] > number
    ]
    yield from differs(told["number"], len(failed), "attempts that failed")
    yield from differs(told["duration"], sum(row["duration"] for row in failed), "their seconds")
    # Whether what was taken back before it began was an attempt, the sentence leaves open.
    low, high = (len(failed) / max(len(all_), 1) for all_ in (every, evidence.runs))
    yield from lies(share, low, high, "their share")
    yield from _time_outs(said, evidence)
    if not is_most(told["name"].text, most([row["function"] for row in failed])):
        yield f"most failed in another function than {told['name'].text}"
    if not is_most(told["category"].text, most([category(row.get("exception")) for row in failed])):
        yield f"most did not fail with {told['category'].text}"


def _time_outs(said: Said, evidence: Evidence) -> Iterator[str]:
    """Compare the seconds of attempts that timed out with those of attempts that ended well."""
    own = attempts(evidence).where(lambda row: row["function"] == said.function)
    late = own.where(lambda row: "Timeout" in category(row.get("exception")))
    well = own.where(lambda row: row["ended"] == "memory").numbers("duration")
    told = said.figures_if_any("those that timed out had run for {duration} (the median)")
    if not told:
        return
    middle = float(np.median(late.numbers("duration"))) if len(late) else float("nan")
    yield from differs(told["duration"], middle, "seconds until the time-out")
    took = said.figures_if_any(
        "those that ended well took {duration:median} (the median), {duration:most} at most"
    )
    if bool(took) != bool(len(well)):
        yield f"{len(well)} ended well"
    if took:
        yield from differs(took["median"], float(np.median(well)), "the median that ended well")
        yield from differs(took["most"], float(well.max()), "the longest that ended well")
        if "the limit is not too low" in said.suggestion and middle < well.max():
            yield "some that ended well took longer than those that timed out"


@refuter("errors")
def errors(said: Said, evidence: Evidence) -> Iterator[str]:
    """Count keys whose last attempt erred, but for those under which workers died.

    What a worker's own file says was raised there, though the client may have left before the
    scheduler heard of it; of others the scheduler alone says how they ended.
    """
    told = said.figures("{count:number} task") | said.figures(
        "ended in an error: {name:category} in {name:function}"
    )
    last = {repr(row["key"]): row for row in attempts(evidence)}
    erred = [
        row
        for row in last.values()
        if row["ended"] == "erred" and ("noted" in row or not is_killed(row))
    ]
    yield from differs(told["number"], len(erred), "tasks that ended in an error")
    yield from _time_outs(said, evidence)
    if told["category"].text not in {category(row.get("exception")) for row in erred}:
        yield f"no task ended in {told['category'].text}"
    if said.function not in {row["function"] for row in erred}:
        yield f"no task of {said.function} ended in an error"
    listed = said.finding.partition("error: ")[2].partition(";")[0].removesuffix(".")
    kinds = {f"{category(row.get('exception'))} in {row['function']}" for row in erred}
    for kind in listed.partition(" and ")[0].split(", "):
        if kind not in kinds:
            yield f"no task ended in {kind}"
    blocked = said.figures_if_any("{count} tasks that need their results never ran")
    if blocked:
        ran = {repr(row["key"]) for row in evidence.runs}
        unfinished = {repr(row["key"]) for row in evidence.rows("Task Run")} - ran
        unsent = sum(row["tasks"] for row in evidence.rows("Unsent Tasks"))
        states = evidence.rows("Scheduler State").values("unfinished")
        waiting = max([len(unfinished) + unsent, *(one or 0 for one in states)])
        submitted = sum(row["tasks"] for row in evidence.rows("Graph")) - len(ran)
        yield from exceeds(blocked["count"], max(waiting, submitted), "tasks that never ran")


@refuter("lost-workers")
def lost_workers(said: Said, evidence: Evidence) -> Iterator[str]:
    """Count tasks on workers as these left; what leaves after the last client is not lost."""
    on_them = {address: rows for address, rows in left_alone(evidence).items() if len(rows)}
    count = sum(map(len, on_them.values()))
    told = said.figures("{count:workers} worker") | said.figures("with {count:tasks} task")
    # Of those that left as the run ended nothing tells whether they were lost.
    late = {
        row["worker"]
        for row in evidence.rows("Worker Removed")
        if row["timestamp"] >= evidence.end - _AT_THE_END
    }
    certain = {address: rows for address, rows in on_them.items() if address not in late}
    yield from lies(told["workers"], len(certain), len(on_them), "workers that left with tasks")
    yield from lies(told["tasks"], sum(map(len, certain.values())), count, "tasks on them")
    gone = clients_gone(evidence)
    for row in evidence.rows("Worker Removed"):
        if row["worker"] in on_them and row["timestamp"] >= gone:
            yield f"{row['worker']} left after the last client had"
    yield from _of_the_worst(said, evidence)
    _, lost = computed_again(evidence)
    again = said.figures_if_any("lost with it: {count} task")
    if again:
        seconds = said.figures("ran again, for {duration} of thread time.")["duration"]
        yield from differs(again["count"], len(lost), "tasks whose results were lost")
        held = lost.numbers("ran").sum(), lost.numbers("slot").sum()
        yield from lies(seconds, *held, "their thread time")
    missed = said.figures_if_any("For {duration} of thread time it was missed")
    if missed:
        most_missed = sum(
            max(evidence.span[1] - evidence.lives[one][1], 0.0) * evidence.lives[one][2]
            for one in on_them
        )
        yield from exceeds(missed["duration"], most_missed, "the time without these workers")


def _of_the_worst(said: Said, evidence: Evidence) -> Iterator[str]:
    """Compare when the worker with most tasks left, and how much memory it had then."""
    when = said.figures_if_any("{name:label} left {duration} into the trace")
    left = {
        row["worker"]: row["timestamp"] - evidence.first_seen
        for row in evidence.rows("Worker Removed")
        if evidence.label(row["worker"]) in (said.worker, None)
    }
    if when and not any(when["duration"].shows(one) for one in left.values()):
        yield f"{said.worker} left at {left}, not {when['duration'].text}"
    memory = said.figures_if_any("had up to {size:used} of a limit of {size:limit}.")
    if not memory:
        return
    peaks = [
        float(samples.numbers("memory").max(initial=0.0))
        for address, samples in evidence.rows("Resource Usage").by("address").items()
        if address in left and (not when or when["duration"].shows(left[address]))
    ]
    if not any(memory["used"].shows(peak) for peak in peaks):
        yield f"its process had up to {peaks} bytes, not {memory['used'].text}"
    blamed = "often memory" in said.suggestion or "near its limit" in said.suggestion
    if blamed and memory["used"].value < _NO_WANT * memory["limit"].value:
        yield f"memory is suspected, of which {memory['used'].text} were used"


@refuter("recomputation")
def recomputation(said: Said, evidence: Evidence) -> Iterator[str]:
    """Count task runs of keys that had been in memory before, and their seconds."""
    released, _ = computed_again(evidence)
    slots = evidence.runs.numbers("held") - evidence.runs.numbers("executing")
    seconds = float(released.numbers("slot").sum())
    told = said.figures("{count:number} task") | said.figures(", {duration} of thread time, most")
    yield from differs(told["number"], len(released), "tasks that ran again")
    ran = float(released.numbers("ran").sum())
    yield from lies(told["duration"], ran, seconds, "their thread time")
    by_function = most(released.values("function"), released.numbers("slot"))
    if not is_most(str(said.function), by_function):
        yield f"most ran again in another function than {said.function}"
    share = said.figures("{share} of the thread time of all tasks")["share"]
    yield from lies(share, ran / slots.sum(), seconds / slots.sum(), "their share")
    if said.seconds > seconds + 0.001:
        yield f"{said.seconds:.3g} s are at stake of {seconds:.3g} s of threads"


@refuter("given-up-tasks")
def given_up_tasks(said: Said, evidence: Evidence) -> Iterator[str]:
    """Count tasks that clients gave up before they ended."""
    told = said.figures("The client gave up {count} task")
    given_up = evidence.rows("Task Run").where(
        lambda row: by_client(row) and row["state"] not in ("memory", "erred")
    )
    more = len(evidence.runs.where(lambda row: row["state"] in ("cancelled", "released")))
    yield from exceeds(told["count"], len(given_up) + more, "tasks that clients gave up")


@refuter("swallowed-errors")
def swallowed_errors(said: Said, evidence: Evidence) -> Iterator[str]:
    """Count task runs that logged an error and have None as their result."""
    told = said.figures("{count:silent} of {count:all} task run")
    logged = {
        (repr(row["key"]), row["run_id"]) for row in evidence.rows("Log Record") if row["error"]
    }
    done = [
        row
        for row in evidence.runs
        if row["state"] == "memory" and row["function"] == said.function
    ]
    silent = [
        row
        for row in done
        if row["type"] == "NoneType" and (repr(row["key"]), row["run_id"]) in logged
    ]
    yield from differs(told["silent"], len(silent), "task runs that logged and returned None")
    yield from differs(told["all"], len(done), "task runs of the function")
