"""Fractions of a function's samples inside some calls: those of single rows, values and others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

from dasfprof.analysis.run import Run
from dasfprof.analysis.stack_samples.places import seconds_by
from dasfprof.analysis.stack_samples.spent import samples_of
from dasfprof.analysis.under_way.state import Stack

#: Minimum number of samples for a result.
_FEWEST_SAMPLES = 20
#: Functions of pandas, with the end of their file: those that pass single rows to Python code,
#: those that get items of a column or row, and those that the latter call for a single value.
_BY_ROW = {
    ("pandas/core/apply.py", "apply_series_generator"),
    ("pandas/core/apply.py", "series_generator"),
    ("pandas/core/frame.py", "iterrows"),
}
_ITEM, _VALUE = ("pandas/core/series.py", "__getitem__"), ("pandas/core/series.py", "_get_value")
#: The function that passes rows to a loop of the user, and the one that gets their attributes.
_LOOP, _ATTRIBUTE = ("pandas/core/frame.py", "iterrows"), ("pandas/core/generic.py", "__getattr__")
#: The function that passes the values of a column to Python code one by one.
_BY_VALUE_OF_COLUMN = ("pandas/core/algorithms.py", "map_array")
#: Functions that call Python code for each value, window or slice of an array, and functions of
#: libraries that handle each value or line in Python code of their own. By the directory of their
#: file: their names for users.
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
    ("numpy/lib", "genfromtxt"): GENFROMTXT,
    ("dateutil/parser", "parse"): DATEUTIL,
}
#: Threshold (fraction of time): if pandas creates rows or gets their values for at least this long,
#: processing by row is the cause.
_BY_VALUE = 0.2


def time_by_row(run: Run, function: str) -> tuple[float, float]:
    """Return the fractions of a function's time in code that processes rows, and in pandas for it.

    The second is the time in which pandas creates rows and gets their values. Both are 0 if there
    are few samples, or if they do not show such code.
    """
    samples, _ = samples_of(run, function)
    if len(samples) < _FEWEST_SAMPLES:
        return 0.0, 0.0
    rows, values, total = 0.0, 0.0, float(samples.interval.sum())
    seconds = seconds_by(run, samples, _library_calls)
    loops = any(_LOOP in calls for calls in seconds)
    for calls, each in seconds.items():
        by_row, of_row = _row_calls(calls, loops)
        rows += each * (by_row or of_row)
        values += each * of_row
    return (rows / total, values / total) if values >= _BY_VALUE * total else (0.0, 0.0)


def time_by_value(run: Run, function: str) -> float:
    """Return the fraction of a function's time in Python code called for each value of a column.

    0 if there are few samples.
    """
    samples, _ = samples_of(run, function)
    if len(samples) < _FEWEST_SAMPLES:
        return 0.0
    by_value = 0.0
    for calls, seconds in seconds_by(run, samples, _library_calls).items():
        if _BY_VALUE_OF_COLUMN in calls:
            (file, _) = calls[-1]
            by_value += 0.0 if file.startswith("pandas/") else seconds
    return by_value / float(samples.interval.sum())


def time_one_by_one(run: Run, function: str) -> tuple[str, float, float]:
    """Return what handles single elements in a function's tasks, and two fractions of the time.

    They are the fraction of the time of `function` within these calls, and the fraction of that
    in the calls' own files. The name is empty if there are few samples, or none of such calls.
    """
    samples, _ = samples_of(run, function)
    within: defaultdict[str, float] = defaultdict(float)
    loops = within.copy()
    for calls, seconds in seconds_by(run, samples, _library_calls).items():
        places = [(file.rpartition("/")[0], call) for file, call in calls]
        caller = next((each for each in reversed(places) if each in _ONE_BY_ONE), None)
        if caller is not None:
            within[_ONE_BY_ONE[caller]] += seconds
            loops[_ONE_BY_ONE[caller]] += seconds * (places[-1][0] == caller[0])
    if len(samples) < _FEWEST_SAMPLES or not within:
        return "", 0.0, 0.0
    name = max(within, key=within.__getitem__)
    return name, within[name] / float(samples.interval.sum()), loops[name] / within[name]


def _library_calls(stack: Stack) -> tuple[tuple[str, str], ...]:
    """Return the file and function of each frame, with paths of libraries from their package on."""
    return tuple(
        (
            frame.file.replace("\\", "/").rpartition("-packages/")[2],
            frame.function.rpartition(".")[2],
        )
        for frame in stack
    )


def _row_calls(calls: tuple[tuple[str, str], ...], loops: bool) -> tuple[bool, bool]:
    """Return whether pandas passes single rows in a stack, and whether it is busy with a row.

    Masks and slices of a column are items as well, but they are not slow. In a function that loops
    over rows, attributes are values of rows.
    """
    by_row = not _BY_ROW.isdisjoint(calls)
    inner = [*calls[1:], _VALUE]
    taken = any(
        call == _ITEM and (by_row or called == _VALUE)
        for call, called in zip(calls, inner, strict=False)
    )
    looped = loops and (_LOOP in calls or _ATTRIBUTE in calls)
    return by_row, taken or looped


#: Functions of Dask that read or make the chunks of arrays.
MAKES_CHUNKS = {"getter", "getter_inline", "_apply_random_func", "_apply_random"}
#: The file of Dask in which tasks call their functions, and Dask's own files.
_TASKS, _DASK = "/dask/_task_spec.py", "/dask/"


def time_inside(
    run: Run, function: str, calls: Collection[str], others: Collection[str] = ()
) -> float:
    """Return the fraction of a function's time inside calls of some functions, 0 if unknown.

    Names are compared without underscores, because those of Dask's layers have none or others.
    Functions with the name of one of the others are left out.
    """
    samples, _ = samples_of(run, function)
    if len(samples) < _FEWEST_SAMPLES:
        return 0.0
    names = {_plain(call) for call in calls} - {_plain(other) for other in others}

    def is_inside(stack: Stack) -> bool:
        return any(
            not names.isdisjoint(map(_plain, frame.function.split("."))) for frame in _called(stack)
        )

    return float(seconds_by(run, samples, is_inside)[True] / samples.interval.sum())


def _plain(name: str) -> str:
    return name.strip("<>").replace("_", "").lower()


def _called(stack: Stack) -> Stack:
    """Return the frames of the innermost function that a task called, and of Dask above it.

    These are all frames if Dask's call is not among them.
    """
    files = [frame.file.replace("\\", "/") for frame in stack]
    first = max((at + 1 for at, file in enumerate(files) if file.endswith(_TASKS)), default=0)
    if first == 0:
        return stack
    last = next((at for at in range(first, len(stack)) if _DASK not in files[at]), len(stack))
    return stack[first : last + 1]
