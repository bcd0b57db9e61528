"""The critical path of a run as the columns of a page: `path_columns`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dasfprof.analysis.model.critical_path import KINDS
from dasfprof.report.page.packing import PackedColumn, seconds, whole_numbers

if TYPE_CHECKING:
    import pandas as pd

    from dasfprof.analysis import Trace
    from dasfprof.database.columns import Array


def path_columns(
    path: pd.DataFrame, trace: Trace, rows: Array
) -> tuple[dict[str, PackedColumn], dict[str, Any]]:
    """Pack the segments of the critical path.

    Parameters
    ----------
    path
        What `TraceAnalyser.critical_path` gives.
    trace
        The trace.
    rows
        The row of `Trace.tasks` that each row of the page is about.

    Returns
    -------
    columns, facts
        The columns start, length, kind and page row of each segment (one behind the last row: the
        page does not have that task run); and the kinds with their meanings.
    """
    kinds = list(KINDS)
    codes = path["Kind"].map({kind: code for code, kind in enumerate(kinds)}).to_numpy()
    columns = {
        "path_starts": seconds(path["Start (s)"].to_numpy()),
        "path_durations": seconds(path["Duration (s)"].to_numpy()),
        "path_kinds": whole_numbers(codes.astype(np.int64)),
        "path_rows": whole_numbers(_page_rows(path, trace, rows)),
    }
    return columns, {"kinds": [{"name": name, "meaning": KINDS[name]} for name in kinds]}


def _page_rows(path: pd.DataFrame, trace: Trace, rows: Array) -> Array:
    """Find each segment's task run, by key and run_id, among the rows of the page."""
    run_ids = trace.tasks["run_id"].to_numpy()[rows]
    candidates = np.flatnonzero(np.isin(run_ids, path["Run ID"].to_numpy()))
    texts = trace.keys.texts(trace.tasks["key_id"].to_numpy()[rows[candidates]])
    known = zip(texts.tolist(), run_ids[candidates].tolist(), strict=True)
    places = dict(zip(known, candidates.tolist(), strict=True))
    wanted = zip(path["Task Key"].tolist(), path["Run ID"].tolist(), strict=True)
    return np.array([places.get(run, len(rows)) for run in wanted], dtype=np.int64)
