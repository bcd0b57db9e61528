"""The source of functions: those that a worker's tasks call, and those that a client sends.

A file may not be what a function was made of: it was changed since it was imported, or is another
host's, where functions are sent by value. So the file is compiled, which runs nothing, and its
source counts only if the same code comes of it.
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
from dasfprof.recording.guard import HookGuard
from dasfprof.recording.task_runs.logs import of_library
from dasfprof.schema.steps import DYNAMIC, FUNCTION_SENT
from dasfprof.schema.tasks import FUNCTION_CODE

#: The most names of tasks of a worker, the functions of each, and the lines and characters of one.
MOST_NAMES, MOST_FUNCTIONS, MOST_LINES, LONGEST = 200, 5, 100, 10_000
#: Bytes of the largest file that is compiled: that takes some 40 ms, in which nothing else runs.
LARGEST = 100_000
#: Why a file's text is not shown: pytest rewrites the assertions of tests, for one.
DIFFERS = "the file's code is not what ran: it has changed since, is another, or was rewritten"
#: The most functions that a client sends by value.
MOST_SENT = 2000
#: The name that Dask gives to the tasks of all lambdas, and how many of them are looked at.
_LAMBDA, _MOST_LAMBDAS = "lambda", 1000


class _All:
    """Contains everything."""

    def __contains__(self, _: object) -> bool:
        return True


class FunctionCode:
    """Notes the functions of tasks, the first time that a task of a name has run.

    Those of lambdas have one name, and are looked at until enough distinct ones were seen.

    Parameters
    ----------
    writer
        Of the file.
    constants
        Fields with the same value in every event.
    guard
        Handles errors.
    """

    def __init__(self, writer: TraceWriter, constants: dict[str, Any], guard: HookGuard) -> None:
        self._names: set[str | None] = {None}
        #: The names of tasks that need not be seen again.
        self.known: Container[str | None] = self._names
        self._lambdas: set[CodeType] = set()
        self._seen_lambdas = 0
        self._guard = guard
        self._source = Source(_fold, constants)
        self._writer = writer
        writer.add_source(self._source)

    def see(self, name: str | None, task: Any) -> None:
        """Note the functions of a task; called on the event loop.

        Their code is kept, not they: a function holds what it closes over.
        """
        with self._guard.catching("the functions of a task"):
            self._seen_lambdas += name == _LAMBDA
            if name != _LAMBDA or self._seen_lambdas >= _MOST_LAMBDAS:
                self._names.add(name)
            if len(self._names) > MOST_NAMES:
                self.known = _All()
            functions = functions_of(task)
            own = [each for each in functions if not of_library(each.__code__.co_filename)]
            named = [
                (f"{each.__module__}.{each.__qualname__}", each.__code__)
                for each in (own or functions)[:MOST_FUNCTIONS]
            ]
            if name == _LAMBDA:
                named = self._new_lambdas(named)
            if named or name != _LAMBDA:
                self._writer.append(self._source, (time(), name, named))

    def _new_lambdas(self, named: list[tuple[str, CodeType]]) -> list[tuple[str, CodeType]]:
        """Return those that were not seen yet; look at no more once there are enough."""
        new = [each for each in named if each[1] not in self._lambdas]
        self._lambdas.update(code for _, code in new)
        if len(self._lambdas) >= MOST_FUNCTIONS:
            self._names.add(_LAMBDA)
        return new


class SentFunctions:
    """Notes the functions that a client pickles by value, the first time that each is sent.

    Parameters
    ----------
    writer
        Of the file.
    constants
        Fields with the same value in every event.
    with_source
        Whether the source is noted; else only where they are.
    """

    def __init__(self, writer: TraceWriter, constants: dict[str, Any], with_source: bool) -> None:
        self._with_source = with_source
        #: By their identities: to compare code would take longer.
        self._known: dict[int, CodeType] = {}
        self._source = Source(self._fold, constants)
        self._writer = writer
        writer.add_source(self._source)

    def see(self, functions: Iterable[FunctionType]) -> None:
        """Note functions; their code is kept, not they."""
        for function in functions:
            code = function.__code__
            if id(code) not in self._known and len(self._known) < MOST_SENT:
                self._known[id(code)] = code
                if code.co_filename != DYNAMIC:
                    self._writer.append(self._source, (time(), function.__module__, code))

    def _fold(self, notes: Sequence[tuple[float, str, CodeType]]) -> Folded:
        rows = [row for note in notes for row in self._rows(*note)]
        return [(FUNCTION_SENT, rows, range(len(rows)))] if rows else []

    def _rows(self, when: float, module: str, code: CodeType) -> Iterator[tuple[Any, ...]]:
        """Return a row for a function and for each that is defined in it."""
        for one in codes_in(code):
            reason = "not recorded" if one is code else "within another function"
            told = one.co_filename, one.co_firstlineno, None, reason
            file, line, *source = _described(code) if one is code and self._with_source else told
            name = f"{module}.{getattr(one, 'co_qualname', one.co_name)}"
            last = max((number for *_, number in one.co_lines() if number), default=line)
            yield when, name, file, line, last, *source


def _fold(notes: Sequence[tuple[float, str, list[tuple[str, CodeType]]]]) -> Folded:
    """Read the source of functions, in the writer's thread."""
    rows = [
        (when, name, function, *_described(code))
        for when, name, functions in notes
        for function, code in functions
    ]
    return [(FUNCTION_CODE, rows, range(len(rows)))] if rows else []


def _described(code: CodeType) -> tuple[str, int, str | None, str | None]:
    """Return file, first line and source of code, or why there is none."""
    file, line = code.co_filename, code.co_firstlineno
    if of_library(file):
        return file, line, None, "of a library"
    try:
        path = Path(file)
        if path.exists() and path.stat().st_size > LARGEST:
            return file, line, None, "the file is too large to be compared"
        # That of a cell of a notebook is nowhere else.
        text = path.read_text("utf-8") if path.exists() else "".join(linecache.getlines(file))
        if not text:
            return file, line, None, "there is no such file on the worker"
        whole = compile(text, file, "exec", dont_inherit=True)
        if not any(found == code for found in codes_in(whole)):
            return file, line, None, DIFFERS
        lines = inspect.getblock(text.splitlines(keepends=True)[line - 1 :])
    except Exception as error:  # of the text: it is no Python, or not of this version
        return file, line, None, type(error).__name__
    rest = len(lines) - MOST_LINES
    more = [f"... and {rest} lines\n"] if rest > 0 else []
    return file, line, "".join([*lines[:MOST_LINES], *more])[:LONGEST], None


def codes_in(code: CodeType) -> Iterator[CodeType]:
    """Yield code and all that is defined in it."""
    pending = [code]
    while pending:
        current = pending.pop()
        yield current
        pending += [each for each in current.co_consts if isinstance(each, CodeType)]
