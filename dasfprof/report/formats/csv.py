"""Every table that the analyser gives as a CSV file, which a spreadsheet opens without risk.

Text that a spreadsheet would take for a formula is defused.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from dasfprof.analysis import Analyser

#: What makes a spreadsheet take a cell for a formula, the wide forms of these signs included.
_FORMULA_LEADS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")  # noqa: RUF001


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


def write_tables(analyser: Analyser, directory: Path, title: str) -> None:
    """Write the answer to each question that needs no arguments.

    They are called by the analyser's methods, without ``per_``: ``function_bottleneck.csv``,
    ``processed_tasks.csv``, ``node_summary.csv``; and by what else the method can group by:
    ``time_accounting_by_worker.csv``.
    """
    directory.mkdir(parents=True, exist_ok=True)
    from dasfprof.analysis.tables import questions
    from dasfprof.analysis.tables.questions import Request

    for question in questions.all():
        if question.needs_arguments:
            continue
        requests = [Request(question)]
        requests += [Request(question, {"by": by}) for by in question.further_groupings]
        for request in requests:
            write_csv(request.of(analyser), directory / f"{request.file_stem}.csv")
