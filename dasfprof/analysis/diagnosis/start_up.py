"""The rule about what comes before the first task."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dasfprof.analysis.diagnosis.findings import Finding
from dasfprof.analysis.diagnosis.registry import rule
from dasfprof.analysis.diagnosis.run_figures import RunFigures
from dasfprof.analysis.model.first_task import Stage, find_first_task
from dasfprof.analysis.stack_samples.sentences import BUILDS, client_meanwhile
from dasfprof.analysis.wording import Figures, Seconds, Share, Words

#: The share of the time from the begin of recording to the last task's end.
_LATE = 0.1

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
        costs=found.late,
        at_most="medium",
    )


def _say_late_start(f: Figures) -> Words:
    parts = ", ".join(f"{stage} {seconds}" for stage, seconds in f.stages.items())
    known = {stage: seconds for stage, seconds in f.stages.items() if np.isfinite(seconds)}
    longest = max(known, key=lambda stage: known[stage], default=Stage.PROGRAM.value)
    return (
        f"The first tasks come late: {f.late} pass before the scheduler has any, {f.share} of the "
        f"time until the {'last is done' if f.ended else 'run is over'}.",
        f"By the client's own times: {parts}. {f.client}See time_to_first_task().",
        _BUILDING
        if longest == Stage.PROGRAM.value and BUILDS in f.client
        else _CHANGES[Stage(longest)],
    )
