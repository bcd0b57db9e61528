"""The rule about what comes before the first task."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dasfprof.analysis.diagnosis.findings import Finding
from dasfprof.analysis.diagnosis.registry import rule
from dasfprof.analysis.diagnosis.run_figures import RunFigures
from dasfprof.analysis.model.first_task import Stage, find_first_task
from dasfprof.analysis.stack_samples.sentences import client_meanwhile
from dasfprof.text import format_duration, format_share

#: The share of the time from the begin of recording to the last task's end.
_LATE = 0.1

#: What to change where most of the time goes into a stage.
_CHANGES = {
    Stage.PROGRAM: "Send first what is ready (persist() or submit()), and read, import and build "
    "the rest meanwhile; read inputs in tasks rather than in the program. With stack_frequency=20 "
    "client_activity() has the lines.",
    Stage.OPTIMISING: "Have fewer partitions and layers to optimise: larger chunks, fewer columns, "
    "and one persist() of what several computations share.",
    Stage.PICKLING: "Keep large objects out of the graph: load them in tasks, or client.scatter() "
    "them once.",
    Stage.SENDING: "Keep large objects out of the graph (client.scatter() them once), and look at "
    "what keeps the event loops of the client and of the scheduler.",
    Stage.SCHEDULER: "Give the scheduler a smaller graph: larger chunks make fewer tasks; large "
    "objects in it are unpickled there too.",
}


@rule("late-start")
def late_start(run: RunFigures) -> Iterator[Finding]:
    """Find a long time before the scheduler has the first task."""
    found = find_first_task(run.trace)
    if found is None:
        return
    whole = run.wall + found.late
    if not found.late > _LATE * whole:
        return
    stages = {stage: found.stages[stage] for stage in _CHANGES}
    known = {stage: seconds for stage, seconds in stages.items() if np.isfinite(seconds)}
    longest = max(known, key=lambda stage: known[stage], default=None)
    parts = ", ".join(
        f"{stage.value} {format_duration(seconds)}" for stage, seconds in stages.items()
    )
    first = float(run.trace.graphs["time"].min())
    doing = client_meanwhile(run.trace, np.array([first - found.late]), np.array([first]))
    yield Finding(
        f"The first tasks come late: {format_duration(found.late)} pass before the scheduler has "
        f"any, {format_share(found.late / whole)} of the time until the "
        f"{'last is done' if run.end is None else 'run is over'}.",
        f"By the client's own times: {parts}. {doing}See time_to_first_task().",
        _CHANGES[Stage.PROGRAM if longest is None else longest],
        seconds=found.late,
        at_most="medium",
    )
