"""`Line`: the line of the user's program that a thread is in, and the library's line beneath it.

A frame is the user's if its file is none of Python, of an installed package or of dasfprof. The
innermost counts. Of a command that an installed package brings, that package is the program.
"""

from __future__ import annotations

import itertools
import linecache
import os
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import time
from types import CodeType, FrameType
from typing import Any

from dasfprof.database.block_codec import Columns
from dasfprof.database.writer import Folded, Source, TraceWriter
from dasfprof.recording.task_runs.function_code import DIFFERS, LARGEST, codes_in
from dasfprof.recording.task_runs.logs import of_library
from dasfprof.schema.steps import LINE, LINE_LAYER

#: A line of the program: file, line, function.
Place = tuple[str, int, str]

_PACKAGE = str(Path(__file__).parents[2])
#: The demo is a program, though it comes with the profiler.
_DEMO = tuple(os.path.join(_PACKAGE, "cli", name) for name in ("demo.py", "demo_pipeline.py"))
#: Where packages put their commands: a line each, which calls the package.
_COMMANDS = os.path.join(sysconfig.get_path("scripts"), "")
#: Packages that are not the library that built a graph, but what it was built with; and Python's.
_BENEATH = ("dask", "distributed", "dask_array", "toolz", "cytoolz", "tlz")
_INSTALLED = ("site-packages", "dist-packages")
#: The most distinct lines that are known at a time: code may be generated.
_MOST_LINES = 100_000

#: The names of files that are nobody's, to whom a line would say nothing, and of the user's. Others
#: are a library's, or were not seen yet.
nobodys: set[str] = set()
users: set[str] = set()
_librarys: set[str] = set()
#: By the place in the program and in the library beneath.
_lines: dict[tuple[Place, Place | None], Line] = {}
#: Code and an instruction in it.
_Spot = tuple[CodeType, int]
#: By the identities of the code and the instructions in it, of the program and of a library beneath
#: it if there is one; with the code, which keeps it. The number of a line takes a search in its
#: code, and the hash of code as long.
_at: dict[tuple[int, ...], tuple[Line, CodeType, CodeType | None]] = {}
_ids = itertools.count(int.from_bytes(os.urandom(6), "big") << 14)


@dataclass(frozen=True, eq=False)
class Line:
    """A line of the user's program."""

    #: Unique among the lines of all processes.
    id: int
    #: File, line, function.
    place: Place
    #: What the line is in.
    code: CodeType
    #: The innermost line of a library that called Dask for it; None: it called Dask itself.
    library: Place | None


def current_line(above: int = 1) -> Line | None:
    """Return the innermost line of the user's code that this thread is in; without, a library's.

    Parameters
    ----------
    above
        Where to begin, in calls above this one: what is beneath is not looked at.
    """
    frame: FrameType | None = sys._getframe(above)
    library: FrameType | None = None
    while frame is not None:
        file = frame.f_code.co_filename
        if file in users:
            if library is None:
                return line_at(frame.f_code, frame.f_lasti)
            return _line(frame, library)
        if file in _librarys:
            library = library or frame
        elif file not in nobodys:
            _files_like(file).add(file)
            continue
        frame = frame.f_back
    return None if library is None else line_at(library.f_code, library.f_lasti)


def line_at(code: CodeType, instruction: int) -> Line:
    """Return the line of the user's code with an instruction, with no library beneath."""
    found = _at.get((id(code), instruction))
    return _known((id(code), instruction), (code, instruction), None) if not found else found[0]


def place_of(line: Line | None) -> tuple[str | None, int, str | None]:
    """Return file, line and function, as rows have them; of an unknown line too."""
    return (None, -1, None) if line is None else line.place


def _line(frame: FrameType, library: FrameType) -> Line:
    own, below = (frame.f_code, frame.f_lasti), (library.f_code, library.f_lasti)
    at = id(own[0]), own[1], id(below[0]), below[1]
    found = _at.get(at)
    return _known(at, own, below) if found is None else found[0]


def _known(at: tuple[int, ...], own: _Spot, below: _Spot | None) -> Line:
    """Return a line, from now on known by identities of code."""
    if len(_at) >= _MOST_LINES:
        _at.clear()
        _lines.clear()
    places = _place(*own), None if below is None else _place(*below)
    line = _lines.setdefault(places, Line(next(_ids), places[0], own[0], places[1]))
    _at[at] = line, own[0], None if below is None else below[0]
    return line


def _place(code: CodeType, instruction: int) -> Place:
    lines = (line for begin, end, line in code.co_lines() if begin <= instruction < end)
    return code.co_filename, next(lines, None) or -1, _name(code)


def _name(code: CodeType) -> str:
    return getattr(code, "co_qualname", code.co_name)


def _files_like(file: str) -> set[str]:
    """Return the set that a file belongs to: `nobodys`, a library's or the user's."""
    if file in _DEMO:
        return users
    if file.startswith((_PACKAGE, _COMMANDS, "<frozen ", "<__array_function__")):
        return nobodys
    if not of_library(file):
        return users
    parts = Path(file).parts
    packages = [after for part, after in itertools.pairwise(parts) if part in _INSTALLED]
    return _librarys if packages and packages[-1] not in _BENEATH else nobodys


# --- `NotedLines`: the lines of the program that built something, as rows, with their text --------
#
# The text is taken from the file, never from values. A file may have been changed since it was
# imported: so it is compiled, which runs nothing, and the text counts only if the line's code comes
# of it. Source that is in no file, as that of a notebook's cell, is that which Python shows in
# tracebacks.

#: Characters of a line's text that are kept, and the most lines of a statement.
LONGEST = 200
_NO_PLACE = (None, -1, None)


class NotedLines:
    """Notes what lines built; and the lines, each the first time.

    Parameters
    ----------
    writer
        Of the file.
    constants
        Fields with the same value in every event.
    with_text
        Whether the text is noted.
    """

    def __init__(self, writer: TraceWriter, constants: dict[str, Any], with_text: bool) -> None:
        self._with_text = with_text
        self._known: set[int] = set()
        #: Of files: their lines, the code in them, and why there are none.
        self._files: dict[str, tuple[list[str], set[CodeType] | None, str | None]] = {}
        self._seen = Source(self._fold_seen, constants)
        self._built = Source(self._fold_built, constants, width=4)
        self._writer = writer
        writer.add_source(self._seen)
        writer.add_source(self._built)
        self._note = writer.extender(self._built)

    def built_at(self, facts: list[Any]) -> None:
        """Note which lines built layers, out of which others: see `StepRecorder.built_at`."""
        self._note(facts)

    def see(self, line: Line) -> None:
        """Note a line, unless it was."""
        if line.id not in self._known:
            self._writer.append(self._seen, (time(), line))

    def _fold_seen(self, notes: Sequence[tuple[float, Line]]) -> Folded:
        """Return rows; called in the writer's thread."""
        rows = self._rows(notes)
        return [(LINE, rows, range(len(rows)))]

    def _fold_built(self, notes: list[Any]) -> Folded:
        """Return rows of layers, and of lines that are new; called in the writer's thread."""
        when, lines = notes[::4], notes[1::4]
        dependencies = [tuple(names) for names in notes[3::4]]
        layers = Columns([when, [line.id for line in lines], notes[2::4], dependencies])
        rows = self._rows(zip(when, lines, strict=True))
        count = len(lines)
        return [(LINE_LAYER, layers, range(count)), (LINE, rows, range(count, count + len(rows)))]

    def _rows(self, notes: Iterable[tuple[float, Line]]) -> list[tuple[Any, ...]]:
        """Return rows of the lines that were not noted yet."""
        rows = []
        for when, line in notes:
            if line.id not in self._known:
                self._known.add(line.id)
                text, cell = self._text(line), _cell(line.place[0])
                rows.append((when, line.id, *line.place, *text, cell, *(line.library or _NO_PLACE)))
        return rows

    def _text(self, line: Line) -> tuple[str | None, str | None]:
        """Return the text of a line, or why there is none."""
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
        except Exception as error:  # of the text: it is no Python, or not of this version
            return None, type(error).__name__


def _read(file: str) -> tuple[list[str], set[CodeType] | None, str | None]:
    path = Path(file)
    if not path.exists():
        lines = linecache.getlines(file)
        return lines, None, None if lines else "there is no such file"
    if path.stat().st_size > LARGEST:
        return [], None, "the file is too large to be compared"
    text = path.read_text("utf-8")
    whole = compile(text, file, "exec", dont_inherit=True)
    return text.splitlines(), set(codes_in(whole)), None


def _cell(file: str) -> str | None:
    """Return what Jupyter calls the cell that a file stands for, such as ``In[3]``."""
    shell = getattr(sys.modules.get("IPython.core.interactiveshell"), "InteractiveShell", None)
    compiler = getattr(getattr(shell, "_instance", None), "compile", None)
    names = getattr(compiler, "_filename_map", None)
    number = names.get(file) if isinstance(names, dict) else None
    return f"In[{number}]" if isinstance(number, int) else None
