"""Recorders of the source code of functions that tasks call and of functions that a client sends.

The file of a function may not contain the code that runs: the file may have changed since it was
imported. If the function was pickled by value, its file may be on another host. So the file is
compiled, which runs nothing, and its source is used only if the compiled code is the same.
"""

from __future__ import annotations

import inspect
import linecache
from collections.abc import Container, Iterable, Iterator, Sequence
from pathlib import Path
from time import time
from types import CodeType, FunctionType
from typing import Any

from dasfprof.database.writer import Folded, Source, TraceWriter
from dasfprof.recording.dask_internals.task_functions import functions_of
from dasfprof.recording.rows import FileRows
from dasfprof.recording.task_runs.logs import of_library
from dasfprof.schema.steps import DYNAMIC, FUNCTION_SENT
from dasfprof.schema.tasks import FUNCTION_CODE

#: Maximum numbers: task names per worker, functions per task name, lines of source per function,
#: and characters of source per function.
MOST_NAMES, MOST_FUNCTIONS, MOST_LINES, LONGEST = 200, 5, 100, 10_000
#: Maximum size in bytes of a file that is compiled. Compiling a file of this size takes about 40
#: ms, in which no other thread runs.
LARGEST = 100_000
#: Reason for a missing source. For example, pytest rewrites the assertions of tests.
DIFFERS = "the file's code is not what ran: it has changed since, is another, or was rewritten"
#: Maximum number of recorded functions that a client sends by value.
MOST_SENT = 2000
#: Dask's name for the tasks of all lambdas, and the maximum number of such tasks that are examined.
_LAMBDA, _MOST_LAMBDAS = "lambda", 1000


class _All:
    """A container that contains every object."""

    def __contains__(self, _: object) -> bool:
        return True


class FunctionCode:
    """Records the code of functions that tasks call.

    The functions are taken from the first task of each name. Different lambdas have the same name,
    so several of their tasks are used.

    Parameters
    ----------
    rows
        Writes rows into the plugin's file.
    """

    def __init__(self, rows: FileRows) -> None:
        self._names: set[str | None] = {None}
        #: Names of tasks that need no further recording.
        self.known: Container[str | None] = self._names
        self._lambdas: set[CodeType] = set()
        self._seen_lambdas = 0
        self._guard = rows.guard
        self._append = rows.writer.appender(Source(_fold, rows.constants))

    def record(self, name: str | None, task: Any) -> None:
        """Record the functions that a task calls. Called on the event loop."""
        with self._guard.catching("the functions of a task"):
            # Tasks of all lambdas have the same name. So these tasks are examined until enough
            # different lambdas were recorded.
            self._seen_lambdas += name == _LAMBDA
            if name != _LAMBDA or self._seen_lambdas >= _MOST_LAMBDAS:
                self._names.add(name)
            if len(self._names) > MOST_NAMES:
                self.known = _All()
            functions = functions_of(task)
            users = [each for each in functions if not of_library(each.__code__.co_filename)]
            # Only code is stored, because a function would keep its closure alive.
            named = [
                (f"{each.__module__}.{each.__qualname__}", each.__code__)
                for each in (users or functions)[:MOST_FUNCTIONS]
            ]
            if name == _LAMBDA:
                named = [each for each in named if each[1] not in self._lambdas]
                self._lambdas.update(code for _, code in named)
                if len(self._lambdas) >= MOST_FUNCTIONS:
                    self._names.add(_LAMBDA)
            if named or name != _LAMBDA:
                self._append((time(), name, named))


class SentFunctionRecorder:
    """Records each function that a client pickles by value, when it is sent for the first time.

    Parameters
    ----------
    constants
        Fields with the same value in every event.
    with_source
        Whether to record the source. If not, only the file and the line are recorded.
    """

    def __init__(self, writer: TraceWriter, constants: dict[str, Any], with_source: bool) -> None:
        self._with_source = with_source
        #: Recorded code by its identity, because comparing code takes longer.
        self._known: dict[int, CodeType] = {}
        self._append = writer.appender(Source(self._fold, constants))

    def record(self, functions: Iterable[FunctionType]) -> None:
        """Record the code of functions that were not recorded before."""
        for function in functions:
            code = function.__code__
            if id(code) not in self._known and len(self._known) < MOST_SENT:
                self._known[id(code)] = code
                if code.co_filename != DYNAMIC:
                    self._append((time(), function.__module__, code))

    def _fold(self, notes: Sequence[tuple[float, str, CodeType]]) -> Folded:
        rows = [row for note in notes for row in self._rows(*note)]
        return [(FUNCTION_SENT, rows, range(len(rows)))] if rows else []

    def _rows(self, when: float, module: str, code: CodeType) -> Iterator[tuple[Any, ...]]:
        """Yield a row for a function and a row for each function that is defined within it."""
        for inner in codes_in(code):
            reason = "not recorded" if inner is code else "within another function"
            unread = inner.co_filename, inner.co_firstlineno, None, reason
            is_read = inner is code and self._with_source
            file, line, *source = _described(code) if is_read else unread
            name = f"{module}.{getattr(inner, 'co_qualname', inner.co_name)}"
            last = max((number for *_, number in inner.co_lines() if number), default=line)
            yield when, name, file, line, last, *source


def _fold(notes: Sequence[tuple[float, str, list[tuple[str, CodeType]]]]) -> Folded:
    """Return rows with the source of functions. Called in the writer's thread."""
    rows = [
        (when, name, function, *_described(code))
        for when, name, functions in notes
        for function, code in functions
    ]
    return [(FUNCTION_CODE, rows, range(len(rows)))] if rows else []


def _described(code: CodeType) -> tuple[str, int, str | None, str | None]:
    """Return the file, the first line's number, the source, and the reason if there is no source.

    Either the source or the reason is None.
    """
    file, line = code.co_filename, code.co_firstlineno
    if of_library(file):
        return file, line, None, "of a library"
    try:
        path = Path(file)
        if path.exists() and path.stat().st_size > LARGEST:
            return file, line, None, "the file is too large to be compared"
        # Only `linecache` has the source of a notebook's cell.
        text = path.read_text("utf-8") if path.exists() else "".join(linecache.getlines(file))
        if not text:
            return file, line, None, "there is no such file on the worker"
        if code not in codes_in(compile(text, file, "exec", dont_inherit=True)):
            return file, line, None, DIFFERS
        lines = inspect.getblock(text.splitlines(keepends=True)[line - 1 :])
    except Exception as error:  # The text is not code for this Python.
        return file, line, None, type(error).__name__
    left_out = len(lines) - MOST_LINES
    more = [f"... and {left_out} lines\n"] if left_out > 0 else []
    return file, line, "".join([*lines[:MOST_LINES], *more])[:LONGEST], None


def codes_in(code: CodeType) -> Iterator[CodeType]:
    """Yield the given code, and the code of all functions that are defined within it."""
    pending = [code]
    while pending:
        current = pending.pop()
        yield current
        pending += [each for each in current.co_consts if isinstance(each, CodeType)]
