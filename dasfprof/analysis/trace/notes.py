"""`Note`: something that a trace lacks or that was lost of it, for people and for rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

NoteKind = Literal[
    "header-lost",  # nothing tells whose file it is
    "damaged-file",  # bytes of it could not be read
    "unknown-events",  # events of kinds that this version of dasfprof does not know
    "dropped-facts",  # the recorder could not write them
    "caught-errors",  # hooks of the recorder failed
    "goes-on",  # the run is still being recorded
    "client-gone",  # the run ended by itself, as its client was gone
    "not-closed",  # its process ended without closing it, or runs elsewhere
    "lost-events",  # had been written and are gone: how many in all
    "segment-missing",  # of a file of a long run, or events of one
    "file-missing",  # that another file of the same worker names
    "window",  # only a window of the run was read
    "missing-hook",  # a private name that the recorded Dask lacks
    "clock",  # times that compare with no other host's
    "no-samples",  # nothing was sampled
    "gpu",  # GPUs, or readings of them, that there are not
    "steps",  # task runs without a step of the pipeline
    "no-worker-files",
    "no-scheduler-file",
    "input-sizes",  # inputs whose size no file tells
    "no-shuffle-messages",  # P2P shuffles moved bytes that no file tells
    "lost-task-runs",  # seen by the scheduler and in no worker's file
]


@dataclass(frozen=True)
class Note:
    """What is missing, damaged or left out, and of what."""

    kind: NoteKind
    #: The file, host, worker or device that it is about; empty: the whole trace.
    subject: str
    #: One sentence for people, which names the subject.
    text: str

    def __str__(self) -> str:
        return self.text
