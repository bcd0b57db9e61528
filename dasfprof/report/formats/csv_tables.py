"""`write_csv_tables`: every table that the analyser gives, a CSV file each."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from dasfprof.report.formats.csv import write_csv

if TYPE_CHECKING:
    from dasfprof.analysis import TraceAnalyser

#: Files that are not called by their method.
_NAMES = {"per_worker_task_balance": "task_balance", "diagnose": "findings"}


def write_csv_tables(analyser: TraceAnalyser, directory: Path) -> list[Path]:
    """Write the answer to each question that needs no arguments; gives the files.

    They are called by the analyser's methods, without ``per_``: ``function_bottleneck.csv``,
    ``processed_tasks.csv``, ``node_summary.csv``; and by what else the method can group by:
    ``time_accounting_by_worker.csv``.

    Raises
    ------
    OSError
        If a file cannot be written.
    """
    directory.mkdir(parents=True, exist_ok=True)
    return [
        write_csv(getattr(analyser, method)(**arguments), directory / f"{name}.csv")
        for name, method, arguments in _questions(type(analyser))
    ]


def _questions(kind: type[TraceAnalyser]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Give each table's name, its method and the arguments."""
    for method, function in inspect.getmembers(kind, inspect.isfunction):
        _, *parameters = inspect.signature(function).parameters.values()
        optional = all(item.default is not item.empty for item in parameters)
        returned = function.__annotations__.get("return")
        if method.startswith("_") or returned != "pd.DataFrame" or not optional:
            continue
        name = _NAMES.get(method, method.removeprefix("per_"))
        yield name, method, {}
        for by in _further_groupings(function):
            yield f"{name}_by_{by}", method, {"by": by}


def _further_groupings(function: Callable[..., Any]) -> list[str]:
    """Give what a method takes as ``by``, less its default."""
    if "by" not in inspect.signature(function).parameters:
        return []
    by = inspect.signature(function, eval_str=True).parameters["by"]
    return [grouping for grouping in get_args(by.annotation) if grouping != by.default]
