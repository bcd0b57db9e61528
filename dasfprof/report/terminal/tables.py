"""Tables and bars of thread time as text for a terminal.

Task keys, exception texts and file names come from a trace, so escape sequences, line breaks and
marks that reorder text are removed from them.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dasfprof.report.terminal.console import as_text, console, echo, heading
from dasfprof.text import display_width, elide

if TYPE_CHECKING:
    import pandas as pd


NOT_AVAILABLE = "NA"

_GAP = 2
#: Minimum width of a column of text. If this is not enough, other columns are left out.
_LEAST_TEXT_WIDTH = 20
#: Maximum number of left-out columns that are named.
_MAX_NAMED = 3
_MAX_LABEL = 60
#: Labels of columns that are never left out if they have a value other than 0.
_FAILURES = ("Failed Tasks", "Failed")
#: Maximum number of characters in a cell.
_MAX_CELL = 1000
_MAX_DECIMALS = 6
_SIGNIFICANT = 4


def format_table(
    frame: pd.DataFrame, width: int, *, rows: int | None = None, expendable: Sequence[str] = ()
) -> str:
    """Return the first rows of a table as text of at most this width, without the index.

    Columns that contain only NA are left out. If the table is still too wide, more columns are left
    out, `expendable` ones first. Lines below the table name all of them. The first column and
    columns that count failures always remain.
    """
    count = len(frame) if rows is None else rows
    columns = [
        _Column.of(str(label), frame.iloc[:, position], count)
        for position, label in enumerate(frame.columns)
    ]
    notes = []
    if len(frame):
        unknown = [column for column in columns if column.is_unknown]
        columns = [column for column in columns if not column.is_unknown]
        if unknown:
            notes.append(f"NA in every row: {', '.join(column.label for column in unknown)}.")
    unseen = [column.label for column in columns if column.is_required and {*column.cells} == {"0"}]
    notes += [f"{label} is above 0 in rows that are not shown." for label in unseen]
    columns, left_out = _leave_out(columns, width, expendable)
    if left_out:
        named = ", ".join(column.label for column in left_out[:_MAX_NAMED])
        more = len(left_out) - _MAX_NAMED
        notes.append(f"Not shown: {named}{f' and {more} more' if more > 0 else ''}.")
    _shorten(columns, width)
    return "\n".join([_lay_out(columns), *(x for note in notes for x in _wrapped(note, width))])


@dataclass(eq=False)
class _Column:
    """A column with formatted cells."""

    label: str
    cells: list[str]
    is_text: bool
    #: Whether all rows of the table are NA, including rows that are not shown.
    is_unknown: bool
    #: Whether it counts failures and has any, so that it is never left out.
    is_required: bool
    width: int

    @classmethod
    def of(cls, label: str, values: pd.Series[Any], count: int) -> _Column:
        from pandas.api.types import is_float_dtype, is_numeric_dtype

        series = values.head(count)
        known = series.notna().tolist()
        if is_float_dtype(series.dtype):
            cells = _format_floats(series.to_numpy(dtype=float, na_value=math.nan).tolist())
        else:
            cells = [
                elide(value, _MAX_CELL) if there else NOT_AVAILABLE
                for value, there in zip(series.tolist(), known, strict=True)
            ]
        label = elide(label, _MAX_LABEL)
        # The words of a label may be below each other.
        widest = max(map(display_width, [*label.split(), *cells]), default=0)
        return cls(
            label,
            cells,
            not is_numeric_dtype(series.dtype),
            not any(known) and bool(values.isna().all()),
            label in _FAILURES and bool(values.fillna(0).gt(0).any()),
            widest,
        )

    def header(self) -> list[str]:
        return _wrapped(self.label, self.width)

    def least_width(self) -> int:
        return min(self.width, _LEAST_TEXT_WIDTH) if self.is_text else self.width


def _leave_out(
    columns: list[_Column], width: int, expendable: Sequence[str]
) -> tuple[list[_Column], list[_Column]]:
    """Leave out columns until the remaining columns fit with shortened text.

    Return the remaining columns, and those that were left out.
    """
    # Leave out `expendable` columns in that order, then columns of numbers, then other columns.
    order = [column for label in expendable for column in columns[1:] if column.label == label]
    order += [column for column in reversed(columns[1:]) if not column.is_text]
    order += reversed(columns[1:])
    left_out: list[_Column] = []
    for column in [column for column in order if not column.is_required]:
        least = sum(c.least_width() + _GAP for c in columns if c not in left_out) - _GAP
        if least <= width:
            break
        if column not in left_out:
            left_out.append(column)
    return (
        [column for column in columns if column not in left_out],
        [column for column in columns if column in left_out],
    )


def _shorten(columns: list[_Column], width: int) -> None:
    """Make columns of text narrower until the table fits, each time the widest column."""
    texts = [column for column in columns if column.is_text]
    for _ in range(sum(column.width + _GAP for column in columns) - _GAP - width):
        widest = max(texts, key=lambda column: column.width, default=None)
        if widest is None or widest.width == 1:
            return
        widest.width -= 1


def _lay_out(columns: list[_Column]) -> str:
    """Return the text of columns that fit into the width."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0))
    for column in columns:
        table.add_column(
            "\n".join([*column.header(), "─" * column.width]),
            width=column.width,
            justify="left" if column.is_text else "right",
            no_wrap=True,
        )
    for cells in zip(*(column.cells for column in columns), strict=True):
        shown = (elide(cell, c.width) for c, cell in zip(columns, cells, strict=True))
        table.add_row(*shown)
    return as_text(table, sum(column.width + _GAP for column in columns))


def _format_floats(values: list[float]) -> list[str]:
    """Format numbers with the same number of decimals, so that the largest number has four digits.

    Zero is ``0``. Other numbers that are too small for the decimals are, for example, ``0.000``.
    """
    largest = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    decimals = 0
    if not all(value.is_integer() for value in values if math.isfinite(value)):
        digits = math.floor(math.log10(largest)) + 1
        decimals = min(max(_SIGNIFICANT - digits, 0), _MAX_DECIMALS)
    return [
        NOT_AVAILABLE if math.isnan(value) else f"{value:.{decimals if value else 0}f}"
        for value in values
    ]


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, max(width, 1)) or [""]


#: Width of the figures, and of the longest bar, in characters.
_FIGURES, _BAR = 24, 24


def print_time(accounting: pd.DataFrame, *, err: bool = False) -> None:
    """Print each category of thread time with a bar.

    Parameters
    ----------
    accounting
        The table `TraceAnalyser.time_accounting` of the cluster.
    err
        Whether to print on standard error.
    """
    total = accounting["Thread Time (s)"].sum()
    about = f", {total:.4g} s in total"
    heading("Where the thread time went", about, err=err, apart=True)
    if not len(accounting):
        echo("  No worker threads were recorded.", err=err)
    target = console(err=err)
    from rich.bar import Bar
    from rich.table import Table

    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 1, 0, 0))
    name = max(map(len, accounting["Class"]), default=0) + 3
    table.add_column(width=name - 1, no_wrap=True)
    for _ in ("seconds", "share"):
        table.add_column(justify="right", no_wrap=True)
    table.add_column(width=max(min(target.width - name - _FIGURES, _BAR), 1))
    for row in accounting.to_dict("records"):
        table.add_row(
            f"  {row['Class']}",
            f"{row['Thread Time (s)']:.3f} s",
            f"{row['Share (%)']:.1f} %",
            Bar(100, 0, row["Share (%)"], color="green" if row["Busy"] else "yellow"),
        )
    target.print(table)
