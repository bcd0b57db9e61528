"""Rules about the trace itself: what is missing, damaged, or of doubtful time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dasfprof.analysis.diagnosis.findings import Finding
from dasfprof.analysis.diagnosis.registry import rule
from dasfprof.analysis.diagnosis.run_figures import RunFigures
from dasfprof.analysis.diagnosis.units import count, duration, excerpt
from dasfprof.analysis.model.clock_offsets import clock_offsets
from dasfprof.analysis.trace.notes import NoteKind

#: Notes that are no fault of a trace: it has no GPU, its data came from the client, or only some of
#: the pipeline has steps. That there are no samples is said here in other words.
_NO_FAULT: frozenset[NoteKind] = frozenset(("gpu", "input-sizes", "steps", "no-samples"))
#: Seconds that a clock may be off before it is told of.
_CLOCK = 0.5
#: So many notes are repeated at most.
_MOST_NOTES = 5


@rule("missing-evidence")
def missing_evidence(run: RunFigures) -> Iterator[Finding]:
    """Find files, facts and readings that the trace lacks."""
    notes = [note.text for note in run.trace.notes if note.kind not in _NO_FAULT]
    if not len(run.trace.samples):
        notes.append("no resource samples: memory, spilling and files cannot be judged.")
    if not notes:
        return
    yield Finding(
        "The trace is not whole, so that other findings may be missing or wrong: "
        + excerpt(notes[0])
        + (f" And {count(len(notes) - 1, 'more note')}." if len(notes) > 1 else ""),
        " ".join(excerpt(note) for note in notes[:_MOST_NOTES])
        + (" Trace.notes has more." if len(notes) > _MOST_NOTES else ""),
        "Record the scheduler and all workers (register_default_profiler does), let run.stop() "
        "return before the cluster closes, and collect the files of other hosts: run.collect().",
        at_least="low",
        at_most="low",
    )


@rule("clocks-apart")
def clocks_apart(run: RunFigures) -> Iterator[Finding]:
    """Find hosts whose clocks are far from the scheduler's."""
    offsets = clock_offsets(run.trace)
    if not len(offsets) or "sent" not in run.trace.tasks:
        return
    worst = int(np.abs(offsets).argmax())
    if abs(offsets[worst]) < _CLOCK:
        return
    host = run.trace.workers["host"].iloc[worst]
    yield Finding(
        f"The clock of {host} is {duration(abs(float(offsets[worst])))} "
        f"{'ahead of' if offsets[worst] > 0 else 'behind'} the scheduler's.",
        f"{int(np.count_nonzero(np.abs(offsets) >= _CLOCK))} workers' clocks are off by "
        f"{duration(_CLOCK)} or more. Times are put on the scheduler's clock, as far as messages "
        "tell.",
        "Synchronise the clocks of the hosts (chrony, ntpd).",
        at_most="info",
    )
