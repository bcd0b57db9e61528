"""When event loops of workers and of the scheduler did not turn, and what kept them."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dasfprof.analysis.model.run import Run
from dasfprof.analysis.stack_samples.loop_blocks import loop_blocks as find_blocks
from dasfprof.analysis.tables.questions import question
from dasfprof.analysis.tables.shared_columns import text, whole
from dasfprof.analysis.trace import Trace


def has_loop_samples(trace: Trace) -> bool:
    """Return whether a blocked event loop was sampled."""
    return len(trace.loop_samples) > 0


@question(
    "Event loops that did not turn",
    "lines",
    short="loops",
    expendable=("Code", "Inside", "Samples"),
    needs=has_loop_samples,
)
def loop_blocks(run: Run) -> pd.DataFrame:
    """List the times in which an event loop had not turned for over 50 ms.

    While that of a worker does not turn, it neither takes new tasks nor sends results.

    Returns
    -------
    DataFrame
        A row each, the longest first:

        - ``Worker``: its label, or the scheduler's
        - ``Start (s)``: its last turn, from the trace's begin; ``Duration (s)``: until it was seen
          to turn again, which is up to 0.07 s after it did
        - ``Cause``: working; no core (it could have run: the host had none free); lock (other
          threads of its process had the interpreter's lock); waiting (in a call that waits);
          unknown (it was about to turn whenever it was looked at)
        - ``File``, ``Line``, ``Code``: the line of the user's code at which it was seen longest,
          or of whatever ran; ``Inside``: the library's call in it
        - ``Importing``: the library that was imported there; empty if none was
        - ``Samples``: how many times it was looked at. C code that keeps the interpreter's lock
          keeps the sampler away, too
    """
    blocks = find_blocks(run)
    labels = run.labels
    lines = [block.line for block in blocks]
    return pd.DataFrame(
        {
            "Worker": _texts([labels[block.worker_id] for block in blocks]),
            "Start (s)": run.since(np.array([block.start for block in blocks], dtype=float)),
            "Duration (s)": np.array([block.stop - block.start for block in blocks], dtype=float),
            "Cause": _texts([block.cause for block in blocks]),
            "File": _texts(["" if line is None else line.file for line in lines]),
            "Line": whole(np.array([np.nan if line is None else line.line for line in lines])),
            "Code": _texts(["" if line is None else line.function for line in lines]),
            "Inside": _texts([block.inside for block in blocks]),
            "Importing": _texts([block.imported or "" for block in blocks]),
            "Samples": np.array([block.samples for block in blocks], dtype=np.int64),
        }
    )


def _texts(items: list[str]) -> pd.Series:
    return text(np.array(items, dtype=object))
