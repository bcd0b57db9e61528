"""Search for filters and column selections that a Parquet read could apply itself."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import Any

from dasfprof.recording.dask_internals.built_lines import is_expression
from dasfprof.recording.dask_internals.layer_sizes import row_groups

#: By the name of an expression, or of a class of `ast`, that compares a column with a constant: the
#: operator in the argument ``filters`` of `read_parquet`.
_COMPARISONS = {"GT": ">", "GE": ">=", "LT": "<", "LE": "<=", "EQ": "=="}
_COMPARISONS |= {"Gt": ">", "GtE": ">=", "Lt": "<", "LtE": "<=", "Eq": "=="}
#: Threshold (fraction): a filter is reported if the read could skip at least this fraction of the
#: row groups.
_SKIPPED = 0.5
#: Expressions that select rows. Dask does not push selections of columns through them to the read.
_SELECT_ROWS = ("Sample", "Query", "Loc", "LocUnknown", "LocList", "LocSlice")
#: Threshold (fraction): a selection is reported if at most this fraction of the read's columns is
#: used.
_USED = 0.5

#: Expressions that read several files in one task.
_FUSED = ("FusedIO", "FusedParquetIO")

_Filters = list[tuple[str, str, Any]]


def skippable_reads(expressions: Iterable[Any]) -> Iterator[tuple[str, _Filters, int, int]]:
    """Yield filters with which a Parquet read could skip row groups.

    Each item has the name of the filter's layer, the value for the read's argument ``filters``, the
    number of row groups that the read would skip, and the number of all its row groups.
    """
    for part in expressions:
        if type(part).__name__ == "Filter":
            filters = _comparisons(part.operands[1])
        elif type(part).__name__ == "Query":
            filters = _comparisons_in_text(part.operand("_expr"))
        else:
            continue
        read = part.operands[0]
        while type(read).__name__ in ("Projection", *_FUSED):
            read = read.operands[0]
        if not filters or not _is_read(read) or read.operand("filters"):
            continue
        groups = [group for partition in row_groups(read) or () for group in partition]
        skipped = sum(any(_excludes(group, *item) for item in filters) for group in groups)
        if skipped >= _SKIPPED * len(groups) > 0:
            yield part._name, filters, skipped, len(groups)


def late_selections(expressions: Iterable[Any]) -> Iterator[tuple[str, list[str], int]]:
    """Yield an item for each Parquet read that could read fewer columns.

    Such a read is followed by a selection of rows, and then by a selection of columns. The item has
    the name of the layer that selects columns, the names of the columns that are used, and the
    number of columns that are read.
    """
    takers: dict[str, list[Any]] = {}
    expressions = list(expressions)
    for part in expressions:
        for operand in getattr(part, "operands", ()):
            takers.setdefault(getattr(operand, "_name", ""), []).append(part)
    for read in filter(_is_read, expressions):
        columns, used, late, waiting = list(read.columns), set(), [], [read]
        for part in waiting:
            if part._name not in takers:  # The part is the result.
                used.update(columns)
            for taker in takers.get(part._name, ()):
                kind = type(taker).__name__
                if kind == "Projection":
                    used.update(taker.columns)
                    late += [taker] if type(part).__name__ in _SELECT_ROWS else []
                elif kind in (*_SELECT_ROWS, *_FUSED):
                    waiting.append(taker)
                    if kind == "Query":  # A column that the query may use counts as used.
                        used.update(n for n in columns if str(n) in taker.operand("_expr"))
                elif kind != "Fused":  # The parts of a fusion are among the expressions.
                    used.update(columns)
        if late and 0 < len(used) <= _USED * len(columns):
            yield late[0]._name, [name for name in columns if name in used], len(columns)


def _is_read(part: Any) -> bool:
    return {"filters", "columns"} <= set(getattr(part, "_parameters", ()))


def _comparisons(predicate: Any) -> _Filters:
    """Return the comparisons in a predicate, or an empty list if it contains other operations."""
    kind = type(predicate).__name__
    if kind == "And":
        sides = [_comparisons(side) for side in predicate.operands[:2]]
        return [*sides[0], *sides[1]] if all(sides) else []
    if kind not in _COMPARISONS:
        return []
    column, value = predicate.operands[:2]
    name = column.operand("columns") if type(column).__name__ == "Projection" else None
    is_constant = not is_expression(value) and not hasattr(value, "__len__")
    return [(name, _COMPARISONS[kind], value)] if isinstance(name, str) and is_constant else []


def _comparisons_in_text(text: str) -> _Filters:
    """Return the comparisons in the text of a query, or an empty list for other operations."""
    try:
        terms = [ast.parse(text.strip(), mode="eval").body]
    except SyntaxError:  # Such as a name with an @ sign, which is a variable of the program.
        return []
    filters = []
    for term in terms:
        match term:
            case ast.BoolOp(ast.And(), sides):
                terms += sides
            case ast.BinOp(left, ast.BitAnd(), right):
                terms += [left, right]
            case ast.Compare(ast.Name(name), [comparison], [ast.Constant(value)]):
                filters.append((name, _COMPARISONS.get(type(comparison).__name__, ""), value))
            case _:
                return []
    return filters if all(operator for _, operator, _ in filters) else []


def _excludes(group: Any, name: str, operator: str, value: Any) -> bool:
    """Return whether the statistics of a row group show that no row satisfies a comparison."""
    columns = map(group.column, range(group.num_columns))
    range_ = next((column.statistics for column in columns if column.path_in_schema == name), None)
    if range_ is None or not range_.has_min_max:
        return False
    try:
        if operator == "==":
            return not range_.min <= value <= range_.max
        if operator.startswith(">"):
            return bool(range_.max < value or (operator == ">" and range_.max == value))
        return bool(range_.min > value or (operator == "<" and range_.min == value))
    except TypeError:
        return False
