"""`Line`: a line of the user's program that a thread executes.

If the program calls Dask through a library, a `Line` also contains the library's line that calls
Dask. A frame belongs to the user if its file belongs neither to Python nor to an installed package
nor to dasfprof. The innermost user frame determines the line. If the program is a command of an
installed package, its frames belong to that package, and not to the user.
"""

from __future__ import annotations

import itertools
import linecache
import os
import sys
import sysconfig
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from time import time
from types import CodeType, FrameType
from typing import Any

from dasfprof.database.blocks import Columns
from dasfprof.database.writer import Folded, Source, TraceWriter
from dasfprof.recording.task_runs.function_code import DIFFERS, LARGEST, codes_in
from dasfprof.recording.task_runs.logs import of_library
from dasfprof.schema.steps import LINE, LINE_LAYER

#: A line of the program or of a library: file, line number, function.
Place = tuple[str, int, str]

_PACKAGE = str(Path(__file__).parents[2])
#: Files of the demo, which are user code although they are in this package.
_DEMO = tuple(os.path.join(_PACKAGE, "cli", name) for name in ("demo.py", "demo_pipeline.py"))
#: Directory of the commands of installed packages. The scripts in it only call the package.
_COMMANDS = os.path.join(sysconfig.get_path("scripts"), "")
#: Packages that never count as the library that built a graph, because libraries build on them.
_DASK_PACKAGES = ("dask", "distributed", "dask_array", "toolz", "cytoolz", "tlz")
_INSTALLED = ("site-packages", "dist-packages")
#: Maximum number of cached lines. The limit matters for programs that generate code.
_MOST_LINES = 100_000

#: Names of files whose frames are ignored, of the user's files, and of libraries' files. Files in
#: none of these sets have not been classified yet.
ignored_files: set[str] = set()
user_files: set[str] = set()
_library_files: set[str] = set()
#: Lines by place in the program and place in the library.
_lines: dict[tuple[Place, Place | None], Line] = {}
#: A code object, and the offset of an instruction in the code.
_Instruction = tuple[CodeType, int]
#: Cache of lines. A key has the identity of the code object and the offset of the instruction in
#: the program, followed by those in the library if there is one. The code objects are stored to
#: keep them alive. Computing a line number from an offset, or the hash of code, would take long.
_cache: dict[tuple[int, ...], tuple[Line, CodeType, CodeType | None]] = {}
_ids = itertools.count(int.from_bytes(os.urandom(6), "big") << 14)


@dataclass(frozen=True, eq=False)
class Line:
    """A line of the user's program."""

    #: Unique among the lines of all processes.
    id: int
    #: File, line number and function.
    place: Place
    #: The code object that contains the line.
    code: CodeType
    #: The library's innermost line, if this line called Dask through a library. None if this line
    #: called Dask directly.
    library: Place | None


def current_line() -> Line | None:
    """Return the innermost line of user code that this thread executes.

    If a library started the thread, the result may be the line at which the main thread calls that
    library, or a line of the library. Return None if the thread executes neither user code nor a
    library.
    """
    line, library = _innermost(sys._getframe(1))
    if line is not None or library is None:
        return line
    # A thread that a library started, such as a thread of joblib, may execute no user code. If the
    # main thread is in the same library, its call is the line.
    main = sys._current_frames().get(threading.main_thread().ident or 0)
    if main is not None and _package(library.f_code.co_filename) in _packages_called(main):
        line, _ = _innermost(main, library)
    return line or line_at(library.f_code, library.f_lasti)


def _innermost(
    frame: FrameType | None, library: FrameType | None = None
) -> tuple[Line | None, FrameType | None]:
    """Return the innermost line of user code, and the innermost frame of the library that it calls.

    The line or the frame is None if a thread has none. If `library` is given, it is the returned
    frame.
    """
    while frame is not None:
        file = frame.f_code.co_filename
        if file in user_files:
            if library is None:
                return line_at(frame.f_code, frame.f_lasti), None
            key = id(frame.f_code), frame.f_lasti, id(library.f_code), library.f_lasti
            if key in _cache:
                return _cache[key][0], library
            called = library.f_code, library.f_lasti
            return _add(key, (frame.f_code, frame.f_lasti), called), library
        if file in _library_files:
            library = library or frame
        elif file not in ignored_files:
            _files_like(file).add(file)
            continue
        frame = frame.f_back
    return None, library


def _packages_called(frame: FrameType | None) -> set[str | None]:
    """Return the installed packages that the innermost user code has called.

    `frame` is the innermost frame of a thread.
    """
    packages: set[str | None] = set()
    while frame is not None and frame.f_code.co_filename not in user_files:
        packages.add(_package(frame.f_code.co_filename))
        frame = frame.f_back
    return packages - {None}


def line_at(code: CodeType, instruction: int) -> Line:
    """Return the `Line` of an instruction that calls Dask directly, and not through a library."""
    cached = _cache.get((id(code), instruction))
    return cached[0] if cached else _add((id(code), instruction), (code, instruction), None)


def place_of(line: Line | None) -> tuple[str | None, int, str | None]:
    """Return the values of the columns for the file, the number and the function of a line.

    If `line` is None, the values stand for an unknown line.
    """
    return _NO_PLACE if line is None else line.place


def _add(key: tuple[int, ...], user: _Instruction, library: _Instruction | None) -> Line:
    """Return the `Line` of an instruction in the program, and cache it under a key.

    `library` is the instruction of the library that calls Dask, or None.
    """
    if len(_cache) >= _MOST_LINES:
        _cache.clear()
        _lines.clear()
    places = _place(*user), None if library is None else _place(*library)
    line = _lines.setdefault(places, Line(next(_ids), places[0], user[0], places[1]))
    _cache[key] = line, user[0], None if library is None else library[0]
    return line


def _place(code: CodeType, instruction: int) -> Place:
    lines = (line for begin, end, line in code.co_lines() if begin <= instruction < end)
    return code.co_filename, next(lines, None) or -1, getattr(code, "co_qualname", code.co_name)


def _files_like(file: str) -> set[str]:
    """Return the set to which the caller must add the name of a new file.

    This is `ignored_files`, `user_files` or `_library_files`.
    """
    if file in _DEMO:
        return user_files
    if file.startswith((_PACKAGE, _COMMANDS, "<frozen ", "<__array_function__")):
        return ignored_files
    if not of_library(file):
        return user_files
    package = _package(file)
    return ignored_files if package is None or package in _DASK_PACKAGES else _library_files


@lru_cache(maxsize=1024)
def _package(file: str) -> str | None:
    """Return the installed package that a file belongs to, or None."""
    parts = Path(file).parts
    packages = [after for part, after in itertools.pairwise(parts) if part in _INSTALLED]
    return packages[-1] if packages else None


#
# The text is read from the source file and contains no values. A file may have been changed since
# it was imported. Therefore the file is compiled, but not executed, and its text is only used if
# the compiled code contains the code of the line. For source without a file, such as a notebook's
# cell, the text is the one that Python shows in tracebacks.

#: Maximum number of characters that are recorded of a line's text.
LONGEST = 200
_NO_PLACE = (None, -1, None)


class RecordedLines:
    """Records which layers each line built, and the text of each line once.

    Parameters
    ----------
    constants
        Fields with the same value in every event.
    with_text
        Whether to record the text of lines.
    """

    def __init__(self, writer: TraceWriter, constants: dict[str, Any], with_text: bool) -> None:
        self._with_text = with_text
        self._recorded: set[int] = set()
        #: For each file: its lines, its code objects, and the reason why the text is missing, or
        #: None if the text is available.
        self._files: dict[str, tuple[list[str], set[CodeType] | None, str | None]] = {}
        self._append = writer.appender(Source(self._fold_lines, constants))
        #: Function that records which lines built layers, from a flat list. See
        #: `StepRecorder.built_at`.
        self.built_at = writer.extender(Source(self._fold_built, constants, width=4))

    def record(self, line: Line) -> None:
        """Record a line, unless it was recorded before."""
        if line.id not in self._recorded:
            self._append((time(), line))

    def _fold_lines(self, facts: Sequence[tuple[float, Line]]) -> Folded:
        rows = self._rows(facts)
        return [(LINE, rows, range(len(rows)))]

    def _fold_built(self, facts: list[Any]) -> Folded:
        """Return rows of the layers, and rows of the lines that were not recorded yet.

        See `StepRecorder.built_at` for `facts`.
        """
        when, lines = facts[::4], facts[1::4]
        dependencies = [tuple(names) for names in facts[3::4]]
        layers = Columns([when, [line.id for line in lines], facts[2::4], dependencies])
        rows = self._rows(zip(when, lines, strict=True))
        count = len(lines)
        return [(LINE_LAYER, layers, range(count)), (LINE, rows, range(count, count + len(rows)))]

    def _rows(self, facts: Iterable[tuple[float, Line]]) -> list[tuple[Any, ...]]:
        """Return rows of the lines that were not recorded yet."""
        rows = []
        for when, line in facts:
            if line.id not in self._recorded:
                self._recorded.add(line.id)
                text, cell = self._text(line), _cell(line.place[0])
                rows.append((when, line.id, *line.place, *text, cell, *(line.library or _NO_PLACE)))
        return rows

    def _text(self, line: Line) -> tuple[str | None, str | None]:
        """Return the text of a line, or None and the reason why there is no text."""
        if not self._with_text:
            return None, "not recorded"
        file, number, _ = line.place
        try:
            if file not in self._files:
                self._files[file] = _read(file)
            lines, codes, missing = self._files[file]
            if missing is None and codes is not None and line.code not in codes:
                missing = DIFFERS
            if missing is None and not 0 < number <= len(lines):
                missing = "the file has no such line"
            return (None, missing) if missing else (lines[number - 1].strip()[:LONGEST], None)
        except Exception as error:  # This version of Python cannot compile the file.
            return None, type(error).__name__


def _read(file: str) -> tuple[list[str], set[CodeType] | None, str | None]:
    path = Path(file)
    if not path.exists():
        lines = linecache.getlines(file)
        return lines, None, None if lines else "there is no such file"
    if path.stat().st_size > LARGEST:
        return [], None, "the file is too large to be compared"
    text = path.read_text("utf-8")
    module = compile(text, file, "exec", dont_inherit=True)
    return text.splitlines(), set(codes_in(module)), None


def _cell(file: str) -> str | None:
    """Return Jupyter's name of a notebook cell, such as ``In[3]``, or None for any other file."""
    shell = getattr(sys.modules.get("IPython.core.interactiveshell"), "InteractiveShell", None)
    compiler = getattr(getattr(shell, "_instance", None), "compile", None)
    names = getattr(compiler, "_filename_map", None)
    number = names.get(file) if isinstance(names, dict) else None
    return f"In[{number}]" if isinstance(number, int) else None
