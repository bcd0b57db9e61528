"""Rules about the trace itself: missing or damaged data, and hosts with wrong clocks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dasfprof.analysis.diagnosis.registry import Finding, rule
from dasfprof.analysis.diagnosis.run_figures import RunFigures
from dasfprof.analysis.trace.gaps import NoteKind
from dasfprof.analysis.wording import Count
from dasfprof.database.ends import End
from dasfprof.text import excerpt

#: Kinds of data notes that do not indicate a problem of the trace: the run is still in progress,
#: GPUs could not be read, the sizes of some inputs are unknown, some tasks have no step, there was
#: no cluster, or the system does not report some values. Another sentence covers missing samples.
_NO_FAULT: frozenset[NoteKind] = frozenset(
    ("goes-on", "gpu", "input-sizes", "steps", "no-samples", "no-cluster", "system")
)
#: Kinds of data notes that are expected if a worker died.
_OF_THE_DEAD: frozenset[NoteKind] = frozenset(("not-closed", "lost-task-runs"))
#: Maximum number of notes that are quoted.
_MOST_NOTES = 5
#: Advice by kind of note, most important kind first.
_ADVICE: dict[NoteKind, str] = {
    "client-gone": "Do not let the program that starts a run end before run.stop() has returned. "
    "dasfprof.orphan-timeout sets how long recording continues without the program. A scheduler "
    "that is started with --preload dasfprof.preload records without a client.",
    "caught-errors": "Report this as a bug in dasfprof, with the errors in the logs of these "
    "processes.",
    "lost-events": "Leave the directory of the traces unchanged until recording has ended. Files "
    "that were moved can be put back next to the others.",
}


@rule("incomplete-trace")
def incomplete_trace(run: RunFigures) -> Iterator[Finding]:
    """Find files, events and samples that are missing from the trace."""
    gaps = [note for note in run.trace.notes if note.kind not in _NO_FAULT]
    gaps.sort(key=lambda note: (note.kind != "client-gone", note.kind != "lost-events"))
    notes = [note.text for note in gaps]
    workers = run.trace.workers
    cut = ~workers["closed"].fillna(True).to_numpy(dtype=bool)
    died = bool(
        run.trace.recording is End.CLOSED
        and cut.any()
        and np.isfinite(workers["left"].to_numpy(dtype=float)[cut]).all()
    )
    kinds = {note.kind for note in gaps} - (_OF_THE_DEAD if died else set())
    if not len(run.trace.samples):
        notes.append("no resource samples: memory, spilling and files were not analysed.")
    if not notes:
        return
    advice = [_ADVICE[kind] for kind in _ADVICE if kind in kinds]
    others = kinds - _ADVICE.keys() - ({"segment-missing"} if "lost-events" in kinds else set())
    if died and not kinds:
        advice = [
            "Ignore this finding if these workers were meant to end. A process that dies loses the "
            "events that it has not yet written."
        ]
    elif others or not kinds:
        stop = "" if died else "let run.stop() return before the cluster closes, "
        advice.append(
            f"Record the scheduler and all workers (register_default_profiler does so), {stop}and "
            "collect the files of other hosts: run.collect(), or `dasfprof collect ADDRESS` "
            "in a shell."
        )
    yield Finding.of(
        "The trace is incomplete, so other findings may be missing or wrong: {_first}"
        f"{' This is the first of {_notes:note}.' if len(notes) > 1 else ''}",
        "{_shown}" + (" See Trace.notes for more." if len(notes) > _MOST_NOTES else ""),
        advice,
        notes=[excerpt(note) for note in notes],
        _first=excerpt(notes[0]),
        _notes=Count(len(notes)),
        _shown=" ".join(excerpt(note) for note in notes[:_MOST_NOTES]),
        kinds=sorted(kinds),
        workers_died=died,
        severity="low",
    )
