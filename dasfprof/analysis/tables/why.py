"""Why a task ran where it ran, and what it waited for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from dasfprof.analysis.run import Run
from dasfprof.analysis.simulation.decisions import Candidate, Decision, decisions_of
from dasfprof.analysis.simulation.one_run import ROBBED, OneRun
from dasfprof.analysis.tables.columns import text, whole
from dasfprof.analysis.tables.questions import question
from dasfprof.database.columns import Array
from dasfprof.errors import InvalidArgumentError
from dasfprof.text import count_of, elide, format_duration

#: Of a worker that the rule looked at, and did not choose.
COULD = "could choose"
#: Workers that are listed of those that the scheduler had to choose from.
_MOST = 10
#: Seconds by which a run has to begin sooner elsewhere for that to be said.
_WORTH = 0.01
_NONE = float("nan")


@question(
    "Why a task ran there, and what it waited for",
    "time",
    expendable=("Run ID", "Tasks There", "From (s)"),
)
def why(run: Run, key: str, run_id: int | None = None) -> pd.DataFrame:
    """Say what one task waited for, and why the scheduler chose its worker.

    Parameters
    ----------
    key
        The task's key, as other tables have it, or how it begins, where only one does.
    run_id
        Which of its runs, as other tables have it; None: all.

    Returns
    -------
    DataFrame
        A row a part of the run's time, or a worker that the scheduler had to choose from; in the
        order of time:

        - ``Run ID``; ``What``: ``waits for inputs``, ``is held at the scheduler``, ``chosen``,
          ``could choose``, ``not considered`` (of those, the one on which it would have begun
          soonest), ``is sent``, ``stolen``, ``fetches inputs``, ``waits for a thread``,
          ``prepares``, ``runs``, ``is put away``, ``is told``, ``cluster adapts``
        - ``Worker``: where; ``From (s)`` (from the trace's begin), ``Seconds`` (NA of choices)
        - Of workers to choose from, as the scheduler knew them then: ``Tasks There`` (sent to it),
          ``Work There (s)`` (what it expected these to take), ``To Move (MB)`` (inputs that were
          not there), ``Expected Wait (s)`` (by both of these)
        - ``Sooner (s)``: by how much the run would have begun sooner there, by the record: a thread
          was free, no task waited for it, and its inputs could have come. NA: not, or unknown
        - ``Why``, in words

    Raises
    ------
    InvalidArgumentError
        If no task run has such a key, or several keys begin so.

    Notes
    -----
    Choices are recomputed by Dask's own rules of what the record tells that the scheduler knew:
    tasks sent and ended, means of functions' seconds, results and copies, bandwidth. Where the rule
    takes any of several equal workers, or the record does not tell what it knew, that is said. What
    ran before recording began is not among it.
    """
    ran = run.whole
    rows = _rows_of(ran, key, run_id)
    return _table([each for told in told_of(ran, rows).values() for each in told])


def _rows_of(run: Run, key: str, run_id: int | None) -> list[int]:
    """Find the runs of a key."""
    columns = [run.of_slots(name) for name in ("key_id", "run_id")]
    ids, places = np.unique(columns[0], return_inverse=True)
    texts = run.keys.texts(ids.astype(np.int64)).tolist()
    wanted = str(key)
    found = [place for place, each in enumerate(texts) if each == wanted]
    exact = bool(found)  # keys of several types may have one text
    found = found or [place for place, each in enumerate(texts) if each.startswith(wanted)]
    if len(found) > 1 and not exact:
        some = ", ".join(elide(texts[place], 60) for place in found[:5])
        raise InvalidArgumentError(f"key={key!r}: {len(found)} keys begin so, such as {some}.")
    own = np.isin(places, found)
    if run_id is not None:
        own &= columns[1] == run_id
    rows: list[int] = np.flatnonzero(own).tolist()
    if not rows:
        which = "" if run_id is None else f" with run_id={run_id}"
        raise InvalidArgumentError(
            f"key={key!r}: no task run{which} has it; per_task_status() lists those that ran, and "
            "diagnose() says of tasks that no worker was sent what they wait for."
        )
    known = run.slots.times.arrival
    return sorted(rows, key=lambda row: float(known[row]))


#: A row of the table: run id, what, worker, from, seconds, the candidate, sooner, why.
Told = tuple[int, str, str, float, float, Candidate | None, float, str]


def told_of(run: Run, rows: list[int], *, choices: bool = True) -> dict[int, list[Told]]:
    """Return what is told of some runs: parts of their time and, if wanted, where they might run.

    Parameters
    ----------
    run
        A run with its open runs: `Run.whole`.
    rows
        Of its `TaskSlots`.
    choices
        Whether the scheduler's choices are recomputed, which goes through all of the run till then.
    """
    decisions = decisions_of(run, rows) if choices else {row: [] for row in rows}
    return {row: list(_told(run, row, decisions[row])) for row in rows}


def _told(run: Run, row: int, decisions: list[Decision]) -> Iterator[Told]:
    """Yield the rows of a run: its choices before the part that they begin."""
    one = OneRun(run, row, max([-1, *(each.victim for each in decisions[-1:])]))
    number = int(run.of_slots("run_id")[row])
    events: list[tuple[float, int, list[Told]]] = []
    for decision in decisions:
        rows = list(_choice(run, row, number, one, decision))
        events.append((decision.time, 0, rows))
    for part in one.parts():
        # Nothing tells from whom it was stolen where choices are not recomputed.
        where = "" if part.what == ROBBED and part.worker < 0 else one.title_of(part.worker)
        line = (number, part.what, where, part.begin, part.seconds, None, _NONE, part.why)
        events.append((part.begin, 1, [line]))
    events += [(at, 2, [(number, *line)]) for at, line in _adapted(run, row)]
    for _, _, rows in sorted(events, key=lambda event: event[:2]):
        yield from rows


def _choice(run: Run, row: int, number: int, one: OneRun, decision: Decision) -> Iterator[Told]:
    """Yield what was chosen, and from which workers."""
    at = decision.time
    what = "chosen" if decision.victim < 0 else "stolen"
    begun = float(run.slots.times.executing[row])
    candidates = {each.worker: each for each in decision.candidates}
    own = candidates.pop(decision.worker, None)
    yield number, what, one.title_of(decision.worker), at, _NONE, own, _NONE, _why(one, decision)
    others = sorted(candidates.values(), key=lambda each: each.begin)
    for each in others[:_MOST]:
        sooner, words = _sooner(one, each, at, begun)
        yield number, COULD, one.title_of(each.worker), at, _NONE, each, sooner, words
    if len(others) > _MOST:
        words = f"And {count_of(len(others) - _MOST, 'worker')} with a longer expected wait."
        yield number, COULD, "", at, _NONE, None, _NONE, words
    found = [(*_sooner(one, each, at, begun), each) for each in decision.others]
    best = [each for each in found if each[0] > 0]
    if best:
        sooner, words, each = max(best, key=lambda found: found[0])
        no = (
            "It did not ask for that worker." if decision.asked else "The rule does not look at it."
        )
        words = f"{no} {words}"
        yield number, "not considered", one.title_of(each.worker), at, _NONE, each, sooner, words


def _sooner(one: OneRun, candidate: Candidate, at: float, begun: float) -> tuple[float, str]:
    """Return by how much the run would have begun sooner on a worker, and say so; or why not."""
    begin, words = one.begin_on(candidate, at)
    if words:
        return _NONE, words
    if begun - begin <= _WORTH:
        return _NONE, "Not sooner there."
    return begun - begin, f"There it would have begun {format_duration(begun - begin)} sooner."


def _why(one: OneRun, decision: Decision) -> str:
    asked = f" It asked for {decision.asked}." if decision.asked else ""
    if decision.rule is None:
        return f"The choice cannot be recomputed: {decision.untold}.{asked}"
    rule = f"Dask's rule: {decision.rule.value}.{asked}"

    def named(workers: frozenset[int]) -> str:
        names = sorted(one.title_of(who) for who in workers)
        return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")

    equals, may = decision.equals, decision.equals | decision.unsure
    said = {
        "same": f"By it {named(equals)} is the choice, as was done.",
        "tied": f"By it {named(equals)} are equal: any of them is taken.",
        "unsure": f"By it that is one of {named(may)}: what the scheduler knew then of copies, "
        "durations and bandwidth is recorded too roughly to tell.",
        "other": f"By it {named(may)} would be the choice, by what is recorded: the scheduler knew "
        "something else.",
    }
    return f"{rule} {said[decision.agreement]}"


def _adapted(run: Run, row: int) -> Iterator[tuple[float, tuple[Any, ...]]]:
    """Yield what adaptive asked for from the run's arrival until it began."""
    changes = run.cluster_changes
    if not len(changes):
        return
    times = run.slots.times
    first, last = float(times.arrival[row]), float(times.executing[row])
    adapts = changes[(changes["action"] == "adapt").to_numpy(dtype=bool)]
    for at, number in zip(adapts["time"], adapts["number"], strict=True):
        time = run.seconds_at(at)
        if first <= time <= last:
            words = f"Adaptive asked for {count_of(float(number), 'worker')}."
            yield time, ("cluster adapts", "scheduler", time, _NONE, None, _NONE, words)


def _table(rows: list[Told]) -> pd.DataFrame:
    def numbers(values: list[float]) -> Array:
        return np.array(values, dtype=float)

    def of_candidates(name: str) -> Array:
        known = [_NONE if row[5] is None else float(getattr(row[5], name)) for row in rows]
        return numbers(known)

    return pd.DataFrame(
        {
            "Run ID": np.array([row[0] for row in rows], dtype=np.int64),
            "What": text([row[1] for row in rows]),
            "Worker": text([row[2] for row in rows]),
            "From (s)": numbers([row[3] for row in rows]),
            "Seconds": numbers([row[4] for row in rows]),
            "Tasks There": whole(of_candidates("tasks")),
            "Work There (s)": of_candidates("occupancy"),
            "To Move (MB)": of_candidates("missing") / 1e6,
            "Expected Wait (s)": of_candidates("begin"),
            "Sooner (s)": numbers([row[6] for row in rows]),
            "Why": text([row[7] for row in rows]),
        }
    )
