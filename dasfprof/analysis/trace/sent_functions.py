"""`SentFunctions`: source files of functions that the client pickled by value.

Workers do not know these files: cloudpickle sends line numbers, but replaces the file name of such
a function by `DYNAMIC`.
"""

from __future__ import annotations

import contextlib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from dasfprof.database.blocks import Batch
from dasfprof.database.following import FollowedFile
from dasfprof.database.multi import files_of_run
from dasfprof.schema.steps import DYNAMIC, FUNCTION_SENT

#: Matches a line of such a function in a traceback. `_IN_TEXT` matches it in other texts.
_IN_TRACEBACK = re.compile(rf'(?<=File "){DYNAMIC}(?=", line (\d+), in (\S+))')
_IN_TEXT = re.compile(rf"^{DYNAMIC}(?=:(\d+) (\S+))")


class SentFunctions:
    """Finds the source files of functions that the client pickled by value.

    Parameters
    ----------
    sent
        The functions that the client sent, each with the columns of the schema's ``FUNCTION_SENT``.
    """

    def __init__(self, sent: Iterable[Mapping[Any, Any]] = ()) -> None:
        #: The functions by their unqualified names, which are known in every version of Python.
        self._sent: defaultdict[str, list[Mapping[Any, Any]]] = defaultdict(list)
        self.add(sent)

    def add(self, sent: Iterable[Mapping[Any, Any]]) -> None:
        """Add functions that the client sent."""
        for row in sent:
            if isinstance(row["file"], str):
                self._sent[_unqualified(str(row["function"]))].append(row)

    def file(self, function: str, line: int) -> str:
        """Return the source file of a function pickled by value, or `DYNAMIC` if it is not certain.

        `line` is the number of any line of the function.
        """
        sent = self._sent.get(_unqualified(function), ())
        files = {row["file"] for row in sent if row["line"] <= line <= row["last"]}
        return files.pop() if len(files) == 1 else DYNAMIC

    def in_frames(self, frames: Iterable[Any]) -> tuple[Any, ...]:
        """Return the frames of a stack, in which known file names replace `DYNAMIC`."""
        return tuple(
            (frame[0], self.file(str(frame[0]), frame[2]), frame[2])
            if len(frame) == 3 and frame[1] == DYNAMIC and isinstance(frame[2], int)
            else frame
            for frame in frames
        )

    def in_text(self, text: Any) -> Any:
        """Replace `DYNAMIC` by known file names in a traceback, or in ``file:line function``."""
        if not isinstance(text, str) or DYNAMIC not in text:
            return text
        for pattern in (_IN_TEXT, _IN_TRACEBACK):
            text = pattern.sub(lambda match: self.file(match[2], int(match[1])), text)
        return text

    def mend(self, tables: dict[str, pd.DataFrame]) -> None:
        """Replace `DYNAMIC` by known file names in the tables of a `Trace`."""
        if not self._sent:
            return
        stacks = tables["stacks"]
        stacks["frames"] = pd.Series(list(map(self.in_frames, stacks["frames"])), dtype=object)
        for name, column in (
            ("tasks", "raised_at"),
            ("scheduler_only", "raised_at"),
            ("logs", "line"),
            ("tracebacks", "text"),
        ):
            table = tables[name]
            if column in table and len(table):
                table[column] = table[column].astype(object).map(self.in_text).astype("category")
        code = tables["function_code"]
        rows = code[["function", "line", "file", "source", "missing"]].astype(object)
        for place, (function, line, file, *_) in enumerate(rows.itertuples(index=False)):
            sent = self._sent.get(_unqualified(str(function)), ()) if file == DYNAMIC else ()
            # The first row of each file.
            named = {row["file"]: row for row in reversed(sent) if row["line"] == line}
            if len(named) == 1:
                (row,) = named.values()
                rows.iloc[place, 2:] = [row[name] for name in ("file", "source", "missing")]
        for name in ("file", "source", "missing"):
            code[name] = rows[name].astype("category")


def _unqualified(function: str) -> str:
    """Return the unqualified name of a function, as in tracebacks."""
    return function.rpartition(".")[2]


#: Columns that are read from a client's file.
SENT = {FUNCTION_SENT.name: ("function", "file", "line", "last")}


def functions_in(batches: Iterable[Batch]) -> Iterator[dict[str, Any]]:
    """Yield the functions that were pickled by value, from batches of a client's file."""
    for batch in batches:
        if batch.name == FUNCTION_SENT.name:
            columns = (batch.args[name].to_list() for name in SENT[FUNCTION_SENT.name])
            for row in zip(*columns, strict=True):
                yield dict(zip(SENT[FUNCTION_SENT.name], row, strict=True))


def functions_of_runs(runs: Iterable[tuple[str, str]]) -> SentFunctions:
    """Read, from files on this host, the functions that clients of the runs pickled by value.

    `runs` contains the directory and the id of each run.
    """
    sent = SentFunctions()
    for directory, run_uuid in runs:
        # An error means that the directory is on another host or belongs to another user.
        with contextlib.suppress(OSError):
            for path in files_of_run(Path(directory), run_uuid):
                file = FollowedFile(path)
                if file.read_header().get("plugin") == "StepRecorder":
                    sent.add(functions_in(file.read(SENT)))
    return sent
