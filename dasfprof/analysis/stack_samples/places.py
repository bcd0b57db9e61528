"""Lines, functions and libraries in stacks, and the places where task runs spent their time."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from itertools import dropwhile
from typing import Literal, TypeVar

import numpy as np
import pandas as pd

from dasfprof.analysis.run import Run
from dasfprof.analysis.stack_samples.spent import WAITING, Samples, Spent, samples_of, spent
from dasfprof.analysis.trace.trace import once_per_trace
from dasfprof.analysis.under_way.state import (
    Frame,
    Stack,
    is_of_user,
    source_of,
    stack_of,
    write_frame,
)
from dasfprof.database.columns import Array
from dasfprof.text import clean, count_of, format_share

By = Literal["line", "function", "library"]
Name = TypeVar("Name", bound=Hashable)

#: Patterns of the files of a library (a package or a module outside of packages), and of Python.
_PACKAGE = re.compile(r"/(?:site|dist)-packages/([^/]+?)(?:\.py)?(?:/|$)")
_PYTHON = re.compile(r"/lib/python\d+\.\d+/|^<frozen ")
#: Files of Python in which threads wait for other threads.
_WAITS = re.compile(r"/threading\.py$|/concurrent/futures/")
#: Files of thread and process pools, and the functions with which a pool's thread begins.
_POOLS = re.compile(r"/concurrent/futures/thread\.py$|/multiprocessing/pool\.py$")
_FIRST_IN_POOL = {"_worker", "worker"}
#: Label of the library call of a line that a pool's thread executes for a task.
IN_POOL = "another thread"
#: Labels of the user's code and of Python's own code in tables by library.
PROGRAM, PYTHON = "(program)", "(Python)"
#: Function with which Python imports a module that was not imported before.
_IMPORT = "_find_and_load"

UNKNOWN = "(unknown)"


def library_of(file: str) -> str:
    """Return the library that a file belongs to."""
    file = file.replace("\\", "/")
    package = _PACKAGE.search(file)
    if package is not None:
        return package.group(1)
    return PYTHON if _PYTHON.search(file) else PROGRAM


def import_of(stack: Stack) -> str | None:
    """Return the outermost library that is being imported, or None if no import is in progress.

    If no file of the library is being executed yet, the name is empty.
    """
    inside = list(dropwhile(lambda frame: frame.function != _IMPORT, stack))
    files = [frame.file for frame in inside if not frame.file.startswith("<frozen ")]
    return library_of(files[0]) if files else "" if inside else None


def is_in_pool(stack: Stack) -> bool:
    """Return whether a stack continues in a pool's thread, for which the task's thread waits."""
    # The task's own thread waits for the thread of the pool.
    return any(
        frame.function in _FIRST_IN_POOL and _POOLS.search(frame.file.replace("\\", "/"))
        for frame in stack
    )


def line_of(stack: Stack) -> tuple[Frame, str]:
    """Return the innermost line of the user's code, and the library call that this line makes.

    If the stack has no user code, the line is the innermost one outside of Python's modules that
    wait. The call is `IN_POOL` if the stack continues in the thread of a pool. It is empty if the
    line calls no Python code.
    """
    inner = stack[-1]
    # Functions of Python's own modules that wait are skipped, because their caller shows what they
    # wait for.
    caller = next((each for each in reversed(stack) if not _WAITS.search(each.file)), inner)
    line = next(filter(is_of_user, reversed(stack)), caller)
    if is_in_pool(stack):
        return line, IN_POOL
    return line, "" if line is caller else f"{caller.function} ({library_of(caller.file)})"


@once_per_trace
def all_stacks(run: Run) -> list[Stack]:
    """Return the rows of `Trace.stacks`."""
    return list(map(stack_of, run.stacks["frames"]))


_NAMES: dict[By, Callable[[Stack], Hashable]] = {
    "line": lambda stack: line_of(stack)[0],
    "function": lambda stack: (stack[-1].file, stack[-1].function),
    "library": lambda stack: library_of(stack[-1].file),
}


@once_per_trace
def places(run: Run, by: By) -> tuple[list[Hashable], Array]:
    """Return distinct names of stacks, and the index of the name of each row of `Trace.stacks`.

    - line: the innermost line of the user's code, or else the innermost line, as a `Frame`
    - function: the innermost function, as ``(file, function)``
    - library: the library of the innermost function

    The last name is None. Empty stacks have it, and so does the last index, for unknown stacks.
    """
    names = [_NAMES[by](stack) if stack else None for stack in (*all_stacks(run), ())]
    distinct = [*dict.fromkeys(name for name in names if name is not None), None]
    numbers = {name: number for number, name in enumerate(distinct)}
    return distinct, np.array([numbers[name] for name in names], dtype=np.int64)


def seconds_by(
    run: Run, samples: Samples, name: Callable[[Stack], Name]
) -> defaultdict[Name, float]:
    """Return the seconds of samples with known stacks, by the names of these stacks."""
    stacks, known = all_stacks(run), samples.stack >= 0
    by_stack = np.bincount(samples.stack[known], samples.interval[known])
    seconds: defaultdict[Name, float] = defaultdict(float)
    for row in np.unique(samples.stack[known]).tolist():
        seconds[name(stacks[row])] += float(by_stack[row])
    return seconds


#: Minimum number of samples of a function (or of the client) for a result.
_FEWEST_SAMPLES = 20


def fractions_by(
    run: Run, function: str, name: Callable[[Stack], Name], *, waiting: bool = False
) -> defaultdict[Name, float]:
    """Return the fractions of a function's time in samples, by the names of their stacks.

    If `waiting`, only samples that show a wait count. The result is empty if the function has few
    samples.
    """
    samples, _ = samples_of(run, function)
    total = float(samples.interval.sum())
    if len(samples) < _FEWEST_SAMPLES or not total > 0:
        return defaultdict(float)
    if waiting:
        samples = samples.take(samples.activity == WAITING)
    seconds = seconds_by(run, samples, name)
    return defaultdict(float, {each: took / total for each, took in seconds.items()})


@dataclass(frozen=True)
class HotPlaces:
    """Lines, functions or libraries with the time that was spent in them, longest first."""

    #: Names as returned by `places`, or None if unknown.
    names: list[Hashable]
    spent: Spent
    #: The library's call in which most of a line's time was spent. Empty for other names.
    inside: list[str]
    #: Fraction of the line's time that was spent in this call.
    inside_share: list[float]


def hot_places(
    run: Run, function: str | None = None, step: str | None = None, by: By = "line"
) -> HotPlaces:
    """Return where task runs of a function and a step (or of all, if None) spent their time."""
    samples, functions = samples_of(run, function, step)
    names, codes = places(run, by)
    times = spent(samples, codes[samples.stack], len(names), functions)
    order = np.argsort(-times.seconds, kind="stable")
    order = order[times.samples[order] > 0]
    names = [names[row] for row in order.tolist()]
    inside = _inside(run, samples) if by == "line" else {}
    calls = [inside.get(name, ("", 1.0)) for name in names]
    return HotPlaces(
        names, times.take(order), [call for call, _ in calls], [share for _, share in calls]
    )


def _inside(run: Run, samples: Samples) -> dict[Hashable, tuple[str, float]]:
    """Return the library call that takes most of each line's time, and its fraction of the time."""
    calls: defaultdict[Hashable, dict[str, float]] = defaultdict(dict)
    seconds = seconds_by(run, samples, lambda stack: line_of(stack) if stack else None)
    for name, each in seconds.items():
        if name is not None:
            calls[name[0]][name[1]] = each
    inside = {}
    for line, by_call in calls.items():
        call, total = max(by_call, key=by_call.__getitem__), sum(by_call.values())
        inside[line] = call, by_call[call] / total if total > 0 else 1.0
    return inside


_ACQUIRES = {"acquire", "__enter__"}
#: Pattern of a line that acquires a lock. A lock in C code has no frame, so this line is innermost.
_LINE_OF_LOCK = re.compile(r"^with\b.*lock|\.acquire\(", re.IGNORECASE)
_LINE_OF_SLEEP = re.compile(r"\bsleep\(")
_NETWORK = re.compile(
    r"/(socket|ssl|selectors)\.py$|/(urllib3|requests|aiohttp|botocore|fsspec|httpx)/"
)
#: Files of libraries that read data in their own threads and code, and of Dask's modules that call
#: these libraries.
_READERS = re.compile(r"/(?:pyarrow|h5py|netCDF4|rasterio|obstore)/|/dask/dataframe/(?:\w+/)?io/")
#: Maximum number of innermost frames that are searched for waits.
_DEEP = 4

#: Functions and methods of Dask's client that wait for tasks, and `__next__` of `as_completed`.
_OF_CLIENT = {"wait", "gather", "result", "exception", "traceback", "get", "compute", "__next__"}

#: What threads wait for: a lock of their process, a distributed lock, or one of these two; other
#: tasks; the end of a sleep; the network; a thread or process that the task started; a library that
#: reads files; or something unknown.
PROCESS_LOCK, CLUSTER_LOCK, LOCK = "process lock", "cluster lock", "lock"
OTHER_TASKS, SLEEP, NETWORK, TASK_POOL = "other tasks", "sleep", "network", "own pool"
READER, UNKNOWN_WAIT = "library that reads files", "unknown"
#: Files that acquire each kind of lock. Locks of a process are those of Python, Dask and xarray.
_LOCKS = {
    PROCESS_LOCK: re.compile(r"/threading\.py$|/dask/utils\.py$|/xarray/backends/locks\.py$"),
    CLUSTER_LOCK: re.compile(r"/distributed/(lock|semaphore|multi_lock)\.py$"),
}


def waited_for(stack: Stack) -> str:
    """Return what a thread with this stack waits for, or `UNKNOWN_WAIT`."""
    if not stack:
        return UNKNOWN_WAIT
    # Since Python 3.11, function names include the name of the class.
    calls = [(each.function.rpartition(".")[2], each.file.replace("\\", "/")) for each in stack]
    for place, what in ((len(calls), CLUSTER_LOCK), (_DEEP, PROCESS_LOCK)):
        files = [file for function, file in calls[-place:] if function in _ACQUIRES]
        if any(_LOCKS[what].search(file) for file in files):
            return what
    if any(
        file.endswith("/distributed/client.py") and function in _OF_CLIENT
        for function, file in calls
    ):
        return OTHER_TASKS
    in_pool = is_in_pool(stack)
    if is_of_user(stack[-1]):
        line = source_of(stack[-1])
        if _LINE_OF_LOCK.search(line):
            return LOCK
        return SLEEP if _LINE_OF_SLEEP.search(line) else TASK_POOL if in_pool else UNKNOWN_WAIT
    if any(_NETWORK.search(file) for _, file in calls[-_DEEP:]):
        return NETWORK
    if any(_READERS.search(file) for _, file in calls[-_DEEP:]):
        return READER
    # Zarr waits for its event loop in the same way as for a pool. The outer frames of a task's
    # thread are always those of a pool, so only the inner frames count.
    inner = [file for _, file in calls[-_DEEP:] if not file.endswith("/zarr/core/sync.py")]
    pool = len(inner) == _DEEP and any("/concurrent/futures/" in file for file in inner)
    return TASK_POOL if in_pool or (pool and len(calls) > _DEEP) else UNKNOWN_WAIT


def waits_of(run: Run, function: str) -> dict[str, float]:
    """Return fractions of a function's time in which its tasks wait, by what they wait for.

    The result is empty if there are too few samples.
    """
    return fractions_by(run, function, waited_for, waiting=True)


def _imports_of(run: Run, samples: Samples) -> dict[str, float]:
    """Return the seconds in which samples show imports, by library."""
    seconds = seconds_by(run, samples, import_of)
    return {library: each for library, each in seconds.items() if library is not None}


def imported_by(run: Run, function: str, least: float) -> str:
    """Return the library whose import takes most time in a function's tasks, or an empty string.

    The result is also empty if all imports together take less than `least` seconds.
    """
    seconds = _imports_of(run, samples_of(run, function)[0])
    if not seconds or sum(seconds.values()) < least:
        return ""
    return clean(max(seconds, key=lambda library: seconds[library]))


# Sentences about the samples of a function and of the client, which findings quote as evidence.

#: Minimum fraction of the time for which a line is named.
_LEAST = 0.2
#: Description of a client that imports modules, and of one whose imports are mostly Dask's.
IMPORTS, IMPORTS_DASK = "imported modules", "most of dask."
#: Minimum number of samples of a client that imports. It is low, because their stacks are clear.
_FEWEST_IMPORTING = 5
#: Threshold (fraction of a function's time): with more CPU wait, its sampled lines are uncertain.
_STARVED = 0.3
#: Threshold (fraction of a line's time): from this on, all of it counts as spent in one call.
_ALL = 0.95
#: Minimum fraction of a line's time in a category that is mentioned.
_WORTH_TELLING = 0.05
#: Minimum fraction of the client's time that is mentioned.
_MOSTLY = 0.5

#: Description of a client that builds graphs.
BUILDS = "builds graphs"
#: Description of the client's activity by phase. See `CLIENT_SAMPLE` in the schema.
_DOING = {
    "program": "runs the program's own code",
    "waiting": "waits in a call of Dask",
    "pickling": "pickles what it sends",
    "optimising": "optimises graphs",
    "hashing": "hashes values to generate task keys",
    "sending": "sends graphs",
    "building": BUILDS,
}


def hottest_frame(run: Run, function: str) -> str:
    """Return the line at which a function's tasks spend most of their time, or an empty text."""
    hot = hot_places(run, function)
    if hot.spent.samples.sum() < _FEWEST_SAMPLES or not isinstance(hot.names[0], Frame):
        return ""
    # If threads often waited for CPU, the sampler waited as well and is then unreliable.
    starved = np.nansum(hot.spent.core_wait) > _STARVED * hot.spent.seconds.sum()
    # The line must certainly take at least a fifth of the time.
    if hot.spent.share[0] - hot.spent.margin[0] < _LEAST or starved:
        return ""
    return write_frame(hot.names[0])


def hottest_line(run: Run, function: str) -> str:
    """Return a sentence about the time that a function spends at its `hottest_frame`, or ""."""
    frame, hot = hottest_frame(run, function), hot_places(run, function)
    if not frame:
        return ""
    samples = int(hot.spent.samples.sum())
    share, margin = float(hot.spent.share[0]), float(hot.spent.margin[0])
    inside, part = clean(hot.inside[0]), hot.inside_share[0]
    if inside:
        inside = f", in {inside}" if part >= _ALL else f", {format_share(part)} of that in {inside}"
    more = f" ({count_of(samples, 'sample')}, ± {margin * 100:.0f} points)"
    # The thread of the task waits while the pool's thread, whose state is unknown, runs the line.
    spent = "" if hot.inside[0] == IN_POOL else _split(hot.spent.parts(0))
    return (
        f"{clean(function)} spends {format_share(share)} of its time{more} at {frame}{inside}"
        f"{f': {spent}' if spent else ''}. "
    )


def client_meanwhile(run: Run, begins: Array, ends: Array) -> str:
    """Return a sentence about what the client's main thread mostly did in time ranges, or "".

    `begins` and `ends` are sorted, disjoint time ranges in Unix seconds.
    """
    table = _client_samples(run, begins, ends)
    samples = Samples.from_table(table)
    total, imports = float(samples.interval.sum()), _imports_of(run, samples)
    if len(samples) >= _FEWEST_IMPORTING and sum(imports.values()) >= _MOSTLY * total > 0:
        longest = clean(max(imports, key=lambda library: imports[library])) or "libraries"
        share = format_share(sum(imports.values()) / total)
        return f"Meanwhile the client {IMPORTS} for {share} of the time, most of {longest}. "
    phases = table["phase"].astype(object).to_numpy()
    by_phase = {phase: float(samples.interval[phases == phase].sum()) for phase in _DOING}
    phase = max(by_phase, key=lambda each: by_phase[each])
    if len(samples) < _FEWEST_SAMPLES or not by_phase[phase] >= _MOSTLY * total > 0:
        return ""
    share = format_share(by_phase[phase] / total)
    line, seconds = _longest_line(run, samples.take(phases == phase))
    at = ""
    if line is not None and seconds >= _LEAST * total:
        at = f" ({format_share(seconds / total)} at {write_frame(line)})"
    return f"Meanwhile the client {_DOING[phase]} for {share} of the time{at}. "


def client_line(run: Run, begin: float, end: float) -> Frame | None:
    """Return the user's line that the client executed for most of a time range, or None."""
    samples = Samples.from_table(_client_samples(run, [begin], [end]))
    # Calls that a library makes in its own threads meanwhile are due to this line as well.
    line, seconds = _longest_line(run, samples)
    if line is None or not seconds > _MOSTLY * samples.interval.sum() or not is_of_user(line):
        return None
    return line


def client_fraction(
    run: Run, begins: Array, ends: Array, *, phase: str = "", files: re.Pattern[str] | None = None
) -> float:
    """Return the fraction of the client's samples that have a phase, or a file in `files`.

    Only samples in the time ranges count. The ranges are sorted and disjoint, in Unix seconds.
    """
    table, stacks = _client_samples(run, begins, ends), [*all_stacks(run), ()]
    if not len(table):
        return 0.0
    if files is None:
        return float((table["phase"].astype(object) == phase).mean())
    inside = [any(files.search(frame.file) for frame in stack) for stack in stacks]
    return float(np.array(inside)[table["stack"].to_numpy(dtype=np.int64)].mean())


def traversing(run: Run, begin: float, end: float) -> float:
    """Return the seconds between `begin` and `end` in which delayed() traversed values."""
    # The values are the lists, dicts and other collections that the client passes to delayed().
    samples = Samples.from_table(_client_samples(run, [begin], [end]))

    def traverses(stack: Stack) -> bool:
        return any(
            frame.function == "unpack_collections" and frame.file.endswith("delayed.py")
            for frame in stack
        )

    return seconds_by(run, samples, traverses)[True]


def _client_samples(
    run: Run, begins: Array | Sequence[float], ends: Array | Sequence[float]
) -> pd.DataFrame:
    """Return the client's samples in sorted, disjoint time ranges in Unix seconds."""
    time = run.client_samples["time"].to_numpy(dtype=float)
    begun, ended = np.searchsorted(begins, time, "right"), np.searchsorted(ends, time, "left")
    return run.client_samples[begun > ended]


def _longest_line(run: Run, samples: Samples) -> tuple[Frame | None, float]:
    """Return the line with most seconds of the samples (None if unknown), and these seconds."""
    names, codes = places(run, "line")
    seconds = np.bincount(codes[samples.stack], samples.interval, len(names))
    line = names[int(seconds.argmax())]
    return line if isinstance(line, Frame) else None, float(seconds.max())


def _split(parts: dict[str, float]) -> str:
    large = [(name, share) for name, share in parts.items() if share >= _WORTH_TELLING]
    large.sort(key=lambda item: -item[1])
    return ", ".join(f"{format_share(share)} {name}" for name, share in large)
