"""`Places`: the lines, functions and libraries that stacks name."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable
from typing import Literal

import numpy as np

from dasfprof.analysis.model.run import AnyRun, Run, once_per_run
from dasfprof.analysis.under_way.lines import is_of_user
from dasfprof.analysis.under_way.state import Frame, Stack
from dasfprof.analysis.under_way.tasks_from_trace import Stacks
from dasfprof.database.columns import Array

By = Literal["line", "function", "library"]

#: Names of libraries: a package, a module beside packages, or what belongs to Python.
_PACKAGE = re.compile(r"/(?:site|dist)-packages/([^/]+?)(?:\.py)?(?:/|$)")
_PYTHON = re.compile(r"/lib/python\d+\.\d+/|^<frozen ")
#: What stands for the user's own code among libraries, and for Python's own.
PROGRAM, PYTHON = "(program)", "(Python)"
#: The function in which Python imports a module that was not imported before.
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
    """Return the library that is being imported, as far as its files tell; None: none is.

    That is the one that was asked for, not what it imports in turn; empty where no file of it runs.
    """
    begins = [place for place, frame in enumerate(stack) if frame.function == _IMPORT]
    if not begins:
        return None
    inside = (frame for frame in stack[begins[0] :] if not frame.file.startswith("<frozen "))
    frame = next(inside, None)
    return "" if frame is None else library_of(frame.file)


def user_place(stack: Stack) -> int:
    """Return the place of the innermost frame of the user's code; without one, the innermost."""
    for place in range(len(stack) - 1, -1, -1):
        if is_of_user(stack[place]):
            return place
    return len(stack) - 1


def line_of(stack: Stack) -> tuple[Frame, str]:
    """Return the line of the user's code, and the library's call in which it is, in words.

    The words are empty where it is in none, or in C code alone.
    """
    place = user_place(stack)
    inner = stack[-1]
    words = f"{inner.function} ({library_of(inner.file)})" if place < len(stack) - 1 else ""
    return stack[place], words


class Places:
    """Numbers what stacks name, one name for each row of `Trace.stacks`.

    Parameters
    ----------
    name
        Returns what a stack names.
    stacks
        The stacks.
    """

    def __init__(self, name: Callable[[Stack], Hashable], stacks: Iterable[Stack]) -> None:
        numbers: dict[Hashable, int] = {}
        codes = [numbers.setdefault(name(stack), len(numbers)) if stack else -1 for stack in stacks]
        #: The distinct names; the last is None, of unknown stacks.
        self.names: list[Hashable] = [*numbers, None]
        self._codes = np.array([*codes, -1], dtype=np.int64)
        self._codes[self._codes < 0] = len(numbers)

    def of(self, stacks: Array) -> Array:
        """Return the number of the name of each of some rows; of -1, that of unknown stacks."""
        found: Array = self._codes[stacks]
        return found


@once_per_run
def all_stacks(run: Run) -> list[Stack]:
    """Return the rows of `Trace.stacks`."""
    stacks = Stacks(run.trace)
    return [stacks[row] for row in range(len(run.trace.stacks))]


def _by_function(stack: Stack) -> tuple[str, str]:
    return stack[-1].file, stack[-1].function


def _by_library(stack: Stack) -> str:
    return library_of(stack[-1].file)


def _by_line(stack: Stack) -> Frame:
    return line_of(stack)[0]


_NAMES: dict[By, Callable[[Stack], Hashable]] = {
    "line": _by_line,
    "function": _by_function,
    "library": _by_library,
}


def places(run: AnyRun, by: By) -> Places:
    """Return what the stacks of a run name.

    - line: the innermost line of the user's code, a `Frame`; without one, the innermost line
    - function: the innermost function, ``(file, function)``
    - library: of the innermost function
    """
    return Places(_NAMES[by], all_stacks(run))
