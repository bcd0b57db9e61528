"""The critical path of a run as the columns of a page: `path_columns`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dasfprof.analysis.model.critical_path import SegmentKind, path_segments
from dasfprof.analysis.model.thread_time import ThreadTime
from dasfprof.analysis.tables.critical_path import KINDS
from dasfprof.report.page.packing import PackedColumn, seconds, whole_numbers

if TYPE_CHECKING:
    from dasfprof.analysis import Trace
    from dasfprof.database.columns import Array

#: A kind of waits has the colour of the class of thread time; work has that of its task.
_COLOURS = {
    SegmentKind.CLIENT: ThreadTime.NOTHING_SUBMITTED.colour,
    SegmentKind.SCHEDULER: ThreadTime.SCHEDULER_LATENCY.colour,
    SegmentKind.ON_ITS_WAY: ThreadTime.ON_ITS_WAY.colour,
    SegmentKind.TRANSFER: ThreadTime.TRANSFER_WAIT.colour,
    SegmentKind.WORKER: ThreadTime.WORKER_LATENCY.colour,
    SegmentKind.UNSPILL: ThreadTime.UNSPILL_AND_SPILL.colour,
    SegmentKind.TASK_OVERHEAD: ThreadTime.TASK_OVERHEAD.colour,
}
_NO_COLOUR = ThreadTime.IDLE_CAUSE_UNKNOWN.colour


def path_columns(trace: Trace, rows: Array) -> tuple[dict[str, PackedColumn], dict[str, Any]]:
    """Pack the segments of the critical path.

    Parameters
    ----------
    trace
        The trace.
    rows
        The row of `Trace.tasks` that each row of the page is about; those of task runs that had
        not ended are behind its last.

    Returns
    -------
    columns, facts
        The columns start, length, kind and page row of each segment (one behind the last row: the
        page does not have that task run); and the kinds with their meanings and colours.
    """
    path = path_segments(trace)
    places = np.full(max(len(trace.tasks), path.rows.max(initial=-1) + 1), len(rows))
    ended = np.flatnonzero(rows < len(trace.tasks))
    places[rows[ended]] = ended
    columns = {
        "starts": seconds(path.begin),
        "durations": seconds(path.length),
        "kinds": whole_numbers(path.kind),
        "rows": whole_numbers(places[path.rows]),
    }
    kinds = [
        {"name": label, "meaning": meaning, "colour": _COLOURS.get(kind, _NO_COLOUR)}
        for kind, (label, meaning) in KINDS.items()
    ]
    return columns, {"kinds": kinds}
