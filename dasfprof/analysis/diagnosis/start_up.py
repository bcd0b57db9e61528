"""The rule about what comes before the first task."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from dasfprof.analysis.diagnosis.registry import Finding, rule
from dasfprof.analysis.diagnosis.run_figures import RunFigures
from dasfprof.analysis.model.client_time import Stage, find_first_task
from dasfprof.analysis.numeric.groups import ratio
from dasfprof.analysis.stack_samples.places import BUILDS, client_meanwhile
from dasfprof.analysis.wording import Bytes, Count, Figures, Seconds, Share, Words
from dasfprof.text import elide

#: The share of the time from the begin of recording to the last task's end.
_LATE = 0.1
#: Bytes of values in the first graph from which these are told.
_LARGE = 10_000_000

#: What to change where most of the time goes into a stage.
_CHANGES = {
    Stage.PROGRAM: "Send first what is ready (persist() or submit()), and read, import and build "
    "the rest meanwhile; read inputs in tasks rather than in the program. See client_activity() "
    "for the lines.",
    Stage.OPTIMISING: "Have fewer partitions and layers to optimise: larger chunks, fewer columns, "
    "and one persist() of what several computations share.",
    Stage.PICKLING: "Keep large objects out of the graph: load them in tasks, or client.scatter() "
    "them once.",
    Stage.SENDING: "Keep large objects out of the graph (client.scatter() them once), and look at "
    "what keeps the event loops of the client and of the scheduler.",
    Stage.SCHEDULER: "Give the scheduler a smaller graph: larger chunks make fewer tasks; large "
    "objects in it are unpickled there too.",
}
#: And where samples show that the program makes graphs meanwhile.
_BUILDING = (
    "Make less of a graph: fewer, larger calls (one delayed function for a batch of inputs or for "
    "several steps, map() in place of a loop), and persist() parts as they are made, as each call "
    "may go through all that it is given. See client_activity() for the lines."
)


@rule("late-start")
def late_start(run: RunFigures) -> Iterator[Finding]:
    """Find a long time before the scheduler has the first task."""
    found = find_first_task(run.trace)
    if found is None:
        return
    whole = run.wall + found.late
    if not found.late > _LATE * whole:
        return
    first = float(run.trace.graphs["time"].min())
    yield Finding.of(
        _say_late_start,
        late=Seconds(found.late),
        share=Share(found.late / whole),
        ended=run.end is None,
        stages={stage.value: Seconds(found.stages[stage]) for stage in _CHANGES},
        client=client_meanwhile(run.trace, np.array([first - found.late]), np.array([first])),
        **_by_value(run, first),
        costs=found.late,
        at_most="medium",
    )


def _by_value(run: RunFigures, first: float) -> dict[str, Any]:
    """Return what the first graph carried by value, if that is much."""
    sent = run.trace.sent_values
    sent = sent[sent["time"].to_numpy(dtype=float) <= first] if len(sent) else sent
    size = (sent["size"] * sent["tasks"]).to_numpy(dtype=float) if len(sent) else np.zeros(0)
    if not size.sum() >= _LARGE:
        return {"by_value": None, "holds": None}
    return {
        "by_value": Bytes(size.sum()),
        "holds": elide(str(sent["name"].iloc[size.argmax()]), 60),
    }


def _say_late_start(f: Figures) -> Words:
    parts = ", ".join(f"{stage} {seconds}" for stage, seconds in f.stages.items())
    known = {stage: seconds for stage, seconds in f.stages.items() if np.isfinite(seconds)}
    longest = max(known, key=lambda stage: known[stage], default=Stage.PROGRAM.value)
    change = _CHANGES[Stage(longest)]
    if longest == Stage.PROGRAM.value and BUILDS in f.client:
        change = _BUILDING
    value = ""
    if f.by_value is not None:
        value = f"The first graph carries {f.by_value} by value, most of it of {f.holds}: "
        value += "see sent_values(). "
        if longest != Stage.PICKLING.value:
            change = f"{_CHANGES[Stage.PICKLING]} {change}"
    return (
        f"The first tasks come late: {f.late} pass before the scheduler has any, {f.share} of the "
        f"time until the {'last is done' if f.ended else 'run is over'}.",
        f"By the client's own times: {parts}. {f.client}{value}See time_to_first_task().",
        change,
    )


# --- The rule about what workers do at the first use of a function --------------------------------

#: The share of the run's wall time that first uses cost at least.
_GAIN = 0.05


@rule("first-use")
def first_use(run: RunFigures) -> Iterator[Finding]:
    """Find functions whose first run on each worker takes far longer than those that follow."""
    first = run.first_uses
    if not len(first.rows):
        return
    lost = float(first.excess.sum())
    estimate = max(run.outliers.idle_behind(first.rows, first.excess), lost / run.threads)
    seconds = run.saved(estimate, running=run.with_durations(first.rows, first.usual))
    if seconds < _GAIN * run.wall:
        return
    codes = run.functions.codes[first.rows]
    most = int(np.bincount(codes, weights=first.excess).argmax())
    name, own = str(run.function_names[most]), codes == most
    worker = run.trace.tasks["worker_id"].to_numpy()
    yield Finding.of(
        _say_first_use,
        took=Seconds(np.median(first.excess[own] + first.usual[own])),
        usual=Seconds(first.usual[own][0]),
        runs=Count(own.sum()),
        workers=Count(len(np.unique(worker[first.rows[own]]))),
        workers_of_function=Count(len(np.unique(worker[run.functions.codes == most]))),
        more_functions=Count(len(np.unique(codes)) - 1),
        lost=Seconds(lost),
        on_cpu=Share(ratio(run.cpu[first.rows].sum(), run.working[first.rows].sum())),
        seconds=seconds,
        function=name,
    )


def _say_first_use(f: Figures) -> Words:
    more = f", and first runs of {f.more_functions:more function}" if f.more_functions else ""
    return (
        f"The first runs of {f.function} on a worker take far longer than those that follow: "
        f"{f.took} against {f.usual} (medians).",
        f"{f.runs:first run} on {f.workers} of {f.workers_of_function:worker}{more}: {f.lost} of "
        f"thread time beyond what is usual, waits for a core left out; {f.on_cpu} of it on the "
        "CPU. The trace does not tell what they did. See stragglers() and per_task_bottleneck().",
        f"What {f.function} needs at its first use, let workers do beforehand: import libraries "
        "(client.run, or a worker plugin), compile (Numba: cache=True), open files, fill caches; "
        "and keep workers in place of starting new ones.",
    )
