"""`FunctionCode`: the source of the functions that a worker's tasks call.

A file may not be what a function was made of: it was changed since it was imported, or is another
host's, where functions are sent by value. So the file is compiled, which runs nothing, and its
source counts only if the same code comes of it.
"""

from __future__ import annotations

import inspect
import sysconfig
from collections.abc import Container, Iterator, Sequence
from pathlib import Path
from time import time
from types import CodeType
from typing import Any

from dasfprof.database.writer import Folded, Source, TraceWriter
from dasfprof.recording.dask_internals.task_code import functions_of
from dasfprof.recording.guard import HookGuard
from dasfprof.schema.tasks import FUNCTION_CODE

#: The most names of tasks of a worker, the functions of each, and the lines and characters of one.
MOST_NAMES, MOST_FUNCTIONS, MOST_LINES, LONGEST = 200, 5, 100, 10_000
#: Bytes of the largest file that is compiled: that takes some 40 ms, in which nothing else runs.
LARGEST = 100_000
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")})


class _All:
    """Contains everything."""

    def __contains__(self, _: object) -> bool:
        return True


class FunctionCode:
    """Notes the functions of tasks, the first time that a task of a name has run.

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
        self._guard = guard
        self._source = Source(_fold, constants)
        self._writer = writer
        writer.add_source(self._source)

    def see(self, name: str | None, task: Any) -> None:
        """Note the functions of a task; called on the event loop.

        Their code is kept, not they: a function holds what it closes over.
        """
        try:
            self._names.add(name)
            if len(self._names) > MOST_NAMES:
                self.known = _All()
            functions = functions_of(task)
            own = [each for each in functions if not _is_library(each.__code__.co_filename)]
            named = [
                (f"{each.__module__}.{each.__qualname__}", each.__code__)
                for each in (own or functions)[:MOST_FUNCTIONS]
            ]
            self._writer.append(self._source, (time(), name, named))
        except Exception:
            self._guard.caught("the functions of a task")


def _is_library(file: str) -> bool:
    return file.startswith((*_LIBRARIES, "<frozen")) or "site-packages" in Path(file).parts


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
    if _is_library(file):
        return file, line, None, "of a library"
    try:
        if Path(file).stat().st_size > LARGEST:
            return file, line, None, "the file is too large to be compared"
        text = Path(file).read_text(encoding="utf-8")
        whole = compile(text, file, "exec", dont_inherit=True)
        if not any(found == code for found in _codes(whole)):
            return file, line, None, "the file has changed since, or is another"
        lines = inspect.getblock(text.splitlines(keepends=True)[line - 1 :])
    except OSError:
        return file, line, None, "there is no such file on the worker"
    except Exception as error:  # of the text: it is no Python, or not of this version
        return file, line, None, type(error).__name__
    rest = len(lines) - MOST_LINES
    more = [f"... and {rest} lines\n"] if rest > 0 else []
    return file, line, "".join([*lines[:MOST_LINES], *more])[:LONGEST], None


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yield code and all that is defined in it."""
    pending = [code]
    while pending:
        current = pending.pop()
        yield current
        pending += [each for each in current.co_consts if isinstance(each, CodeType)]
