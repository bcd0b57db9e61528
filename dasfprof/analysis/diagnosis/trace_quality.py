"""Rules about the trace itself: what is missing, damaged, or of doubtful time."""

from __future__ import annotations

from collections.abc import Iterator, Set

import numpy as np

from dasfprof.analysis.diagnosis.registry import Finding, Words, rule, said
from dasfprof.analysis.diagnosis.run_figures import RunFigures
from dasfprof.analysis.trace.gaps import NoteKind
from dasfprof.analysis.wording import Count, Figures, Seconds
from dasfprof.database.ends import RecordingEnd
from dasfprof.text import excerpt

#: Notes that are no fault of a trace: the run goes on, it has no GPU, its data came from the
#: client, only some of the pipeline has steps, or there was no cluster. That there are no samples,
#: and that the client was gone, is said in other words.
_NO_FAULT: frozenset[NoteKind] = frozenset(
    ("goes-on", "gpu", "input-sizes", "steps", "no-samples", "client-gone", "no-cluster")
)
#: Notes that workers cause that die.
_OF_THE_DEAD: frozenset[NoteKind] = frozenset(("not-closed", "lost-task-runs"))
#: Seconds that a clock may be off before it is told of.
_CLOCK = 0.5
#: So many notes are repeated at most.
_MOST_NOTES = 5


@rule("missing-evidence")
def missing_evidence(run: RunFigures) -> Iterator[Finding]:
    """Find files, facts and readings that the trace lacks."""
    told = [note for note in run.trace.notes if note.kind not in _NO_FAULT]
    told.sort(key=lambda note: note.kind != "lost-events")
    notes = [note.text for note in told]
    workers = run.trace.workers
    cut = ~workers["closed"].fillna(True).to_numpy(dtype=bool)
    died = bool(
        run.trace.recording is RecordingEnd.CLOSED
        and cut.any()
        and np.isfinite(workers["left"].to_numpy(dtype=float)[cut]).all()
    )
    kinds = {note.kind for note in told} - (_OF_THE_DEAD if died else set())
    if not len(run.trace.samples):
        notes.append("no resource samples: memory, spilling and files cannot be judged.")
    if not notes:
        return
    yield said(
        _say_missing_evidence,
        notes=[excerpt(note) for note in notes],
        kinds=sorted(kinds),
        workers_died=died,
        severity="low",
    )


def _say_missing_evidence(f: Figures) -> Words:
    more = Count(len(f.notes) - 1)
    return (
        "The trace is not whole, so that other findings may be missing or wrong: "
        f"{f.notes[0]}{f' And {more:more note}.' if more else ''}",
        " ".join(f.notes[:_MOST_NOTES])
        + (" Trace.notes has more." if len(f.notes) > _MOST_NOTES else ""),
        _advice(set(f.kinds), f.workers_died),
    )


def _advice(kinds: Set[NoteKind], died: bool) -> str:
    """Say what to do about notes of some kinds, without those that workers cause that died."""
    if died and not kinds:
        return (
            "Nothing needs to be changed: what processes had not yet written is lost where they "
            "die."
        )
    words, told = [], set()
    if "caught-errors" in kinds:
        told.add("caught-errors")
        words.append(
            "The logs of these processes tell what could not be recorded: please report it."
        )
    if "lost-events" in kinds:
        told |= {"lost-events", "segment-missing"}
        words.append(
            "Let the directory of the traces and its files be as they are until recording has "
            "ended; what was moved may be put back beside the other files."
        )
    if kinds - told or not kinds:
        stop = "" if died else "let run.stop() return before the cluster closes, "
        words.append(
            f"Record the scheduler and all workers (register_default_profiler does), {stop}and "
            "collect the files of other hosts: run.collect()."
        )
    return " ".join(words)


@rule("ended-by-itself")
def ended_by_itself(run: RunFigures) -> Iterator[Finding]:
    """Find that a run ended as its client was gone."""
    for note in run.trace.notes:
        if note.kind == "client-gone":
            yield said(_say_ended_by_itself, note=note.text, severity="low")


def _say_ended_by_itself(f: Figures) -> Words:
    return (
        f.note[:1].upper() + f.note[1:],
        "The scheduler's file, and those of its workers, were closed then.",
        "Let the program that begins a run stay until run.stop() has returned; "
        "dasfprof.orphan-timeout says how long a run goes on without it. A scheduler that is "
        "started with --preload dasfprof.preload records without a client.",
    )


@rule("clocks-apart")
def clocks_apart(run: RunFigures) -> Iterator[Finding]:
    """Find hosts whose clocks are far from the scheduler's."""
    offsets = run.trace.offsets
    if not len(offsets) or "sent" not in run.trace.tasks:
        return
    worst = int(np.abs(offsets).argmax())
    if abs(offsets[worst]) < _CLOCK:
        return
    yield said(
        _say_clocks_apart,
        host=str(run.trace.workers["host"].iloc[worst]),
        ahead=Seconds(offsets[worst]),
        within=Seconds(run.trace.offset_errors[worst]),
        workers=Count(np.count_nonzero(np.abs(offsets) >= _CLOCK)),
        at_most="info",
    )


def _say_clocks_apart(f: Figures) -> Words:
    limit = f", to within {f.within}" if np.isfinite(f.within) else ""
    return (
        f"The clock of {f.host} is {Seconds(abs(f.ahead))} "
        f"{'ahead of' if f.ahead > 0 else 'behind'} the scheduler's.",
        f"{f.workers} workers' clocks are off by {Seconds(_CLOCK)} or more. Times are put on the "
        f"scheduler's clock, as far as messages tell{limit}.",
        "Synchronise the clocks of the hosts (chrony, ntpd).",
    )
