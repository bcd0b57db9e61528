"""The critical path of a run as the columns of a page: `path_columns`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dasfprof.analysis.model.critical_path import path_segments
from dasfprof.analysis.tables.critical_path import KINDS
from dasfprof.report.page.packing import PackedColumn, seconds, whole_numbers

if TYPE_CHECKING:
    from dasfprof.analysis import Trace
    from dasfprof.database.columns import Array


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
        page does not have that task run); and the kinds with their meanings.
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
    return columns, {
        "kinds": [{"name": label, "meaning": meaning} for label, meaning in KINDS.values()]
    }
