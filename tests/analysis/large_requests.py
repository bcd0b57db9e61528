"""Analyses of runs larger than memory, and comparison of their tables with those of whole runs."""

from collections.abc import Iterator
from typing import Any

import dask
import pandas as pd

from dasfprof import TraceAnalyser
from dasfprof.analysis.tables import questions
from dasfprof.analysis.tables.questions import InParts

#: Analyses that must be possible in parts.
ANSWERED = {
    "per_function_bottleneck",
    "per_task_bottleneck",
    "per_worker_task_balance",
    "processed_tasks",
    "per_task_status",
    "per_function_status",
    "per_step_status",
    "transfers",
    "imbalance",
    "time_accounting",
    "process_summary",
    "node_summary",
    "task_counts",
    "degradation",
    "node_resource_usage",
    "processes_resource_usage",
    "node_disk_usage",
}


def requests(*, grouped: bool = True) -> Iterator[questions.Request]:
    """Return requests for all analyses that are possible in parts.

    If `grouped` is true, these include all groupings of each analysis.
    """
    for question in questions.all():
        how = question.in_parts
        if how is None:
            continue
        yield questions.Request(question)
        for by in question.further_groupings if grouped else ():
            if not isinstance(how, InParts) or how.supports({"by": by}):
                yield questions.Request(question, {"by": by})


def in_parts(source: Any, memory: str = "400KB", **settings: Any) -> TraceAnalyser:
    """Open a run with a memory limit that it exceeds, so that it is analysed in parts."""
    named = {f"dasfprof.{name.replace('_', '-')}": value for name, value in settings.items()}
    with dask.config.set({"dasfprof.analysis-memory": memory, **named}):
        analyser = TraceAnalyser(source)
    assert analyser.is_in_parts
    return analyser


def assert_same_answers(
    whole: TraceAnalyser, parts: TraceAnalyser, *, grouped: bool = True
) -> None:
    """Assert that all tables are equal; sums may differ in their last digits."""
    asked = list(requests(grouped=grouped))
    assert {request.question.name for request in asked} >= ANSWERED
    parts.prepare(asked)
    for request in asked:
        assert parts.answers(request), request
        expected, found = request.table(whole), request.table(parts)
        assert_same(expected, found, request.file_stem)


def assert_same(expected: pd.DataFrame, found: pd.DataFrame, name: str) -> None:
    """Assert that tables are equal up to the rounding of sums."""
    pd.testing.assert_frame_equal(expected, found, rtol=1e-9, atol=1e-9, obj=name)
