"""Every table that the analyser gives as a CSV file, which a spreadsheet opens without risk.

Text that a spreadsheet would take for a formula is defused.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from dasfprof.report.formats.format import ExportFormat

if TYPE_CHECKING:
    import pandas as pd

    from dasfprof.analysis import TraceAnalyser

#: What makes a spreadsheet take a cell for a formula, the wide forms of these signs included.
_FORMULA_LEADS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")  # noqa: RUF001
#: Files that are not called by their method.
_NAMES = {"per_worker_task_balance": "task_balance", "diagnose": "findings"}


def write_csv(frame: pd.DataFrame, path: str | os.PathLike[str]) -> Path:
    """Write a table in full, UTF-8, a row of labels first; an existing file is replaced.

    Text that a spreadsheet would take for a formula gets an apostrophe in front, in cells and
    labels alike; numbers stay numbers. NA is an empty cell. Lone surrogates, which UTF-8 cannot
    hold, are written as ``\\udcxx``, and NUL, which ends the file for some readers, as ``\\x00``.

    Raises
    ------
    OSError
        If the file cannot be written.
    """
    import pandas as pd

    path = Path(path)
    safe = frame.apply(lambda column: column if _is_of_numbers(column) else _defused(column))
    safe.columns = pd.Index([defuse(label) for label in frame.columns], dtype=object)
    safe.to_csv(path, index=False, encoding="utf-8", errors="backslashreplace")
    return path


def defuse(cell: Any) -> Any:
    """Make text harmless to a spreadsheet; anything else is given back as it is."""
    if not isinstance(cell, str):
        return cell
    cell = cell.replace("\0", "\\x00")
    # Spreadsheets skip blanks before they look for a formula.
    return "'" + cell if cell.lstrip(" \xa0").startswith(_FORMULA_LEADS) else cell


def _defused(column: pd.Series[Any]) -> pd.Series[Any]:
    import pandas as pd

    # Left to infer a type, pandas 3 takes one that cannot hold lone surrogates.
    return pd.Series([defuse(cell) for cell in column.tolist()], column.index, dtype=object)


def _is_of_numbers(column: pd.Series[Any]) -> bool:
    from pandas.api.types import is_numeric_dtype

    return bool(is_numeric_dtype(column.dtype))


def _write(analyser: TraceAnalyser, directory: Path, title: str) -> None:
    """Write the answer to each question that needs no arguments.

    They are called by the analyser's methods, without ``per_``: ``function_bottleneck.csv``,
    ``processed_tasks.csv``, ``node_summary.csv``; and by what else the method can group by:
    ``time_accounting_by_worker.csv``.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for name, method, arguments in _questions(type(analyser)):
        write_csv(getattr(analyser, method)(**arguments), directory / f"{name}.csv")


def _questions(kind: type[TraceAnalyser]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield each table's name, its method and the arguments."""
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
    """Return what a method takes as ``by``, less its default."""
    if "by" not in inspect.signature(function).parameters:
        return []
    by = inspect.signature(function, eval_str=True).parameters["by"]
    return [grouping for grouping in get_args(by.annotation) if grouping != by.default]


FORMAT = ExportFormat(
    name="csv",
    about="a directory with each of the analyser's tables, for spreadsheets",
    ending="-csv",
    hint="Times are seconds from the run's begin, or UTC; NA is an empty cell.",
    write=_write,
)
