"""What task runs were called with and what Dask was asked of them, for the pane of details."""

from __future__ import annotations

import numpy as np

from dasfprof.analysis.model.annotations import annotation_texts
from dasfprof.analysis.tables.task_arguments import run_of_rows
from dasfprof.analysis.trace import Trace
from dasfprof.database.columns import Array
from dasfprof.report.page.packing import PackedColumn, texts, whole_numbers

#: The most different texts of a page; those of most task runs are kept.
MOST = 5000


def argument_columns(trace: Trace, rows: Array) -> dict[str, PackedColumn]:
    """Pack ``arguments`` and ``annotations``: places in ``arguments_texts``, ``annotations_texts``.

    Parameters
    ----------
    trace
        The trace.
    rows
        The row of `Trace.tasks` that each row of the page is about.
    """
    told = trace.arguments["arguments"].astype("category").cat
    known = np.full(len(trace.tasks) + 1, -1, dtype=np.int64)
    known[run_of_rows(trace, trace.arguments)] = told.codes.to_numpy()
    known[-1] = -1
    annotations, names = annotation_texts(trace)
    return {
        **_packed("arguments", known[rows], list(map(str, told.categories))),
        **_packed("annotations", annotations[rows], names),
    }


def _packed(name: str, codes: Array, names: list[str]) -> dict[str, PackedColumn]:
    """Pack codes of texts, -1: none; the first text of the page is empty."""
    counts = np.bincount(codes[codes >= 0], minlength=len(names))
    kept = np.argsort(-counts, kind="stable")[:MOST]
    places = np.zeros(len(names) + 1, dtype=np.int64)
    places[kept] = np.arange(1, len(kept) + 1)
    return {
        name: whole_numbers(places[codes]),
        f"{name}_texts": texts(["", *(names[code] for code in kept.tolist())]),
    }
