"""The questions that are answered of runs beyond memory, and their answers in parts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import dask
import pandas as pd

from dasfprof import TraceAnalyser
from dasfprof.analysis.tables import questions
from dasfprof.analysis.tables.questions import InParts

#: What must be answered part by part.
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


def requests() -> Iterator[questions.Request]:
    """All questions that are answered part by part, by all that they can be grouped by."""
    for question in questions.all():
        how = question.in_parts
        if how is None:
            continue
        yield questions.Request(question)
        for by in question.further_groupings:
            if not isinstance(how, InParts) or how.supports({"by": by}):
                yield questions.Request(question, {"by": by})


def in_parts(source: Any, memory: str = "400KB", **settings: Any) -> TraceAnalyser:
    """Open a run that would take more memory than it may."""
    named = {f"dasfprof.{name.replace('_', '-')}": value for name, value in settings.items()}
    with dask.config.set({"dasfprof.analysis-memory": memory, **named}):
        analyser = TraceAnalyser(source)
    assert analyser.is_in_parts
    return analyser


def assert_same_answers(whole: TraceAnalyser, parts: TraceAnalyser) -> None:
    """Compare all tables; sums may differ in their last digits."""
    asked = list(requests())
    assert {request.question.name for request in asked} >= ANSWERED
    parts.prepare(asked)
    for request in asked:
        assert parts.answers(request), request
        expected, found = request.table(whole), request.table(parts)
        assert_same(expected, found, request.file_stem)


def assert_same(expected: pd.DataFrame, found: pd.DataFrame, name: str) -> None:
    """Compare tables as close as sums in another order are."""
    pd.testing.assert_frame_equal(expected, found, rtol=1e-9, atol=1e-9, obj=name)
