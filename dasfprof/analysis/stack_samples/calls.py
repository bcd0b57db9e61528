"""Fractions of a function's samples inside certain calls, such as calls for each row or value."""

from __future__ import annotations

import ast
import contextlib
import textwrap
from collections import defaultdict
from collections.abc import Collection

import pandas as pd

from dasfprof.analysis.run import Run
from dasfprof.analysis.stack_samples.places import fractions_by
from dasfprof.analysis.trace.trace import once_per_trace
from dasfprof.analysis.under_way.state import Stack, write_frame

#: Functions of pandas as the end of the file and the name: functions that pass single rows to
#: Python code, the function that gets an item of a column or row, and the one that it calls for a
#: value.
_BY_ROW = {
    ("pandas/core/apply.py", "apply_series_generator"),
    ("pandas/core/apply.py", "series_generator"),
    ("pandas/core/frame.py", "iterrows"),
}
_ITEM, _VALUE = ("pandas/core/series.py", "__getitem__"), ("pandas/core/series.py", "_get_value")
#: Functions of pandas that pass rows to a loop of the user, and that get an attribute of a row.
_LOOP, _ATTRIBUTE = ("pandas/core/frame.py", "iterrows"), ("pandas/core/generic.py", "__getattr__")
#: Function of pandas that passes the values of a column to Python code one by one.
_BY_VALUE_OF_COLUMN = ("pandas/core/algorithms.py", "map_array")
#: Functions of libraries, as users know them. `BY_SLICE` and `BY_VALUE` call Python code for each
#: value, window or slice of an array. The others process each value or line in their own Python
#: code. `_ONE_BY_ONE` contains these names by directory and function.
BY_SLICE = ("numpy.vectorize(signature=)", "numpy.apply_along_axis()")
BY_VALUE = ("numpy.vectorize()", "scipy.ndimage.generic_filter()")
PYTHON_PARSER, GENFROMTXT, DATEUTIL = (
    "pandas.read_csv() with its Python parser",
    "numpy.genfromtxt()",
    "dateutil.parser.parse()",
)
_ONE_BY_ONE = {
    ("numpy/lib", "_vectorize_call_with_signature"): BY_SLICE[0],
    ("numpy/lib", "apply_along_axis"): BY_SLICE[1],
    ("numpy/lib", "_vectorize_call"): BY_VALUE[0],
    ("scipy/ndimage", "generic_filter"): BY_VALUE[1],
    ("pandas/io/parsers", "_get_lines"): PYTHON_PARSER,
    ("pandas/io/parsers", "_rows_to_cols"): PYTHON_PARSER,
    ("pandas/io/parsers", "_convert_data"): PYTHON_PARSER,
    ("numpy/lib", "genfromtxt"): GENFROMTXT,
    ("dateutil/parser", "parse"): DATEUTIL,
}
#: Threshold (fraction of time): if pandas creates rows or gets their values for at least this
#: fraction, processing by row is the cause.
_BY_VALUE = 0.2


def time_by_row(run: Run, function: str) -> tuple[float, float]:
    """Return how much of a function's time is spent on the rows of a table one by one.

    The first value is the fraction of the time in code that handles single rows. The second value
    only counts the time in which pandas creates or reads a row. Both are 0 if there is little
    evidence.
    """
    rows, values = 0.0, 0.0
    shares = fractions_by(run, function, _library_calls)
    loops = any(_LOOP in calls for calls in shares)
    for calls, share in shares.items():
        by_row, of_row = _row_calls(calls, loops)
        rows += share * (by_row or of_row)
        values += share * of_row
    return (rows, values) if values >= _BY_VALUE else (0.0, 0.0)


def time_by_value(run: Run, function: str) -> float:
    """Return the fraction of a function's time in Python code that runs for each value of a column.

    The result is 0 if there are few samples.
    """
    # Pandas runs this code for each value of a column.
    return sum(
        share
        for calls, share in fractions_by(run, function, _library_calls).items()
        if _BY_VALUE_OF_COLUMN in calls and not calls[-1][0].startswith("pandas/")
    )


def time_one_by_one(run: Run, function: str) -> tuple[str, float, float]:
    """Return the name of the library function that processes single elements, and two fractions.

    The first is the fraction of `function`'s time that was spent in the library function. The
    second is the fraction of that library time that was spent in the library's own code, and not in
    the code that it calls. The name is empty if there is no such library function.
    """
    within: defaultdict[str, float] = defaultdict(float)
    loops = within.copy()
    for calls, share in fractions_by(run, function, _library_calls).items():
        places = [(file.rpartition("/")[0], call) for file, call in calls]
        caller = next((each for each in reversed(places) if each in _ONE_BY_ONE), None)
        if caller is not None:
            within[_ONE_BY_ONE[caller]] += share
            loops[_ONE_BY_ONE[caller]] += share * (places[-1][0] == caller[0])
    if not within:
        return "", 0.0, 0.0
    name = max(within, key=within.__getitem__)
    return name, within[name], loops[name] / within[name]


def time_in_nested_loops(run: Run, function: str) -> tuple[str, float]:
    """Return the hottest line inside nested loops, and the fraction of time at all such lines.

    Only lines of the user's code count. If there are none, the line is empty.
    """
    lines = _nested_lines(run)
    # Time in Python functions that these lines call does not count.
    shares = fractions_by(run, function, lambda stack: stack[-1])
    nested = {frame: each for frame, each in shares.items() if (frame.file, frame.line) in lines}
    if not nested:
        return "", 0.0
    return write_frame(max(nested, key=nested.__getitem__)), sum(nested.values())


@once_per_trace
def _nested_lines(run: Run) -> set[tuple[str, int]]:
    """Return the files and numbers of lines that are inside at least two loops.

    Only functions with recorded source are searched.
    """
    codes = pd.concat([run.function_code, run.functions_sent])[["file", "line", "source"]]
    lines: set[tuple[str, int]] = set()

    def add(node: ast.AST, depth: int, file: str, before: int) -> None:
        loops = isinstance(node, ast.For | ast.While) + len(getattr(node, "generators", ()))
        # Loops that handle text are left out, because operations on arrays cannot replace them.
        if loops and not depth and any(map(_is_of_text, ast.walk(node))):
            return
        depth += loops
        if depth > 1 and isinstance(node, ast.expr):
            numbers = range(node.lineno, (node.end_lineno or node.lineno) + 1)
            lines.update((file, before + number) for number in numbers)
        for child in ast.iter_child_nodes(node):
            add(child, depth, file, before)

    for file, first, source in codes.dropna().drop_duplicates().itertuples(index=False):
        with contextlib.suppress(SyntaxError):
            add(ast.parse(textwrap.dedent(source)), 0, file, first - 1)
    return lines


def _is_of_text(node: ast.AST) -> bool:
    """Return whether a part of code makes or handles text, such as a literal or a method of str."""
    return (
        isinstance(node, ast.JoinedStr)
        or isinstance(getattr(node, "value", None), str)
        or hasattr(str, getattr(node, "attr", ""))
        or getattr(node, "id", "") == "str"
    )


def _library_calls(stack: Stack) -> tuple[tuple[str, str], ...]:
    """Return the file and the function of each frame. A library's path begins at its package."""
    return tuple(
        (
            frame.file.replace("\\", "/").rpartition("-packages/")[2],
            frame.function.rpartition(".")[2],
        )
        for frame in stack
    )


def _row_calls(calls: tuple[tuple[str, str], ...], loops: bool) -> tuple[bool, bool]:
    """Return whether pandas calls code for single rows, and whether it creates or reads a row.

    `calls` are the calls in a stack. `loops` is whether the function loops over rows.
    """
    by_row = not _BY_ROW.isdisjoint(calls)
    inner = [*calls[1:], _VALUE]
    # Getting an item counts as reading a row if code for single rows does it, or if the item is a
    # single value. Getting items by masks and slices in other code is not slow.
    taken = any(
        call == _ITEM and (by_row or called == _VALUE)
        for call, called in zip(calls, inner, strict=False)
    )
    # In loops over rows, getting an attribute also counts as reading a row.
    looped = loops and (_LOOP in calls or _ATTRIBUTE in calls)
    return by_row, taken or looped


#: Functions of Dask that read or make the chunks of arrays.
MAKES_CHUNKS = {"getter", "getter_inline", "_apply_random_func", "_apply_random"}
#: The file of Dask in which tasks call their functions, and the directory of Dask's files.
_TASKS, _DASK = "/dask/_task_spec.py", "/dask/"


def time_inside(
    run: Run, function: str, calls: Collection[str], others: Collection[str] = ()
) -> float:
    """Return the fraction of a function's time inside the functions `calls`, or 0 if unknown.

    Functions in `calls` that are also in `others` do not count.
    """
    # The names of Dask's layers drop or change underscores.
    names = {_plain(call) for call in calls} - {_plain(other) for other in others}

    def is_inside(stack: Stack) -> bool:
        return any(
            not names.isdisjoint(map(_plain, frame.function.split("."))) for frame in _called(stack)
        )

    return fractions_by(run, function, is_inside)[True]


def _plain(name: str) -> str:
    return name.strip("<>").replace("_", "").lower()


def _called(stack: Stack) -> Stack:
    """Return the frames of a task's function, up to the first frame that is not Dask's."""
    files = [frame.file.replace("\\", "/") for frame in stack]
    first = max((at + 1 for at, file in enumerate(files) if file.endswith(_TASKS)), default=0)
    if first == 0:
        # Dask's call of the function is not in the stack.
        return stack
    last = next((at for at in range(first, len(stack)) if _DASK not in files[at]), len(stack))
    return stack[first : last + 1]
