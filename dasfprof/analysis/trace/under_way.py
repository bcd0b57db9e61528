"""Tables of task runs in progress, and stacks that are stored in parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import chain, islice
from typing import Any

import numpy as np
import pandas as pd

from dasfprof.analysis.trace.columns import Columns, FactColumns, to_numbers
from dasfprof.database.blocks import Batch
from dasfprof.database.columns import Array, Column, NumberColumn
from dasfprof.schema import KINDS
from dasfprof.schema.under_way import STACK

#: Maximum valid number of a stack. Larger numbers are damaged.
_MOST_STACKS = 1 << 31
#: Names of events that refer to a stack by its number.
STACKED = frozenset(kind.name for kind in KINDS.values() if "stack" in kind.forms())
#: Columns that contain numbers of stacks, by the name of their event.
_NUMBERS = {STACK.name: ("number", "parent"), **dict.fromkeys(STACKED, ("stack",))}
#: Columns that identify a task run.
RUN = ["key_id", "run_id", "worker_id"]


class StackNumbers:
    """Unique numbers for the stacks of all files, since each process numbers its stacks from 0."""

    def __init__(self) -> None:
        self._first = 0
        self._next = 0
        self._writer = ""

    def begin_file(self, writer: str) -> None:
        """Begin a file. Its stacks get new numbers, unless its process wrote the previous file.

        `writer` identifies the process. If it is empty, the process is unknown, and the stacks get
        new numbers.
        """
        if not writer or writer != self._writer:
            self._first = self._next
        self._writer = writer

    def renumbered(self, batch: Batch) -> Batch:
        """Return the batch with numbers of stacks that are unique over all files."""
        new: dict[str, Column] = {}
        for name in _NUMBERS.get(batch.name, ()):
            if name in batch.args:
                of_file = to_numbers(batch.args[name]).astype(np.float64)
                known = (of_file >= 0) & (of_file < _MOST_STACKS)
                numbers = np.where(known, np.nan_to_num(of_file) + self._first, -1).astype(np.int64)
                self._next = max(self._next, int(numbers.max(initial=-1)) + 1)
                new[name] = NumberColumn(numbers)
        return replace(batch, args={**batch.args, **new}) if new else batch


def joined_frames(
    parts: Mapping[int, tuple[Any, Any]], number: int
) -> tuple[tuple[Any, ...], bool]:
    """Return the frames of a stack, outermost first, and whether all parts of it are known.

    `parts` contains the number of the parent stack and the further frames of each numbered stack.
    """
    pieces = []
    while number in parts:
        parent, frames = parts[number]
        pieces.append(frames if isinstance(frames, list | tuple) else ())
        # In a damaged file, a stack may be its own parent.
        number = parent if parent is not None and parent < number else -1
    return tuple(chain.from_iterable(reversed(pieces))), number == -1


class UnderWayTables:
    """Fills in stacks and key ids in the tables of work in progress and of stack samples.

    Parameters
    ----------
    facts, columns
        The collectors and the columns of events, by the name of the event.
    key_ids
        The key ids that ``KeyCollector.finish`` returned.
    """

    def __init__(
        self, facts: dict[str, FactColumns], columns: dict[str, Columns], key_ids: Array
    ) -> None:
        self._facts, self._ids = facts, key_ids
        used = [columns[event]["stack"] for event in sorted(STACKED) if "stack" in columns[event]]
        recorded = columns.pop(STACK.name)
        pairs = zip(recorded["parent"].tolist(), recorded["frames"], strict=True)
        parts = dict(zip(recorded["number"].tolist(), pairs, strict=True))
        #: Numbers of stacks in events, and the row of each of them in `stacks`.
        self._numbers = np.unique(np.concatenate(used)) if used else np.empty(0, np.int64)
        self._rows = np.full(len(self._numbers), -1, dtype=np.int64)
        rows: dict[tuple[Any, ...], int] = {}
        for place, number in enumerate(self._numbers.tolist()):
            frames, is_complete = joined_frames(parts, number)
            if frames and is_complete:
                self._rows[place] = rows.setdefault(frames, len(rows))
        #: The distinct stacks. See `Trace.stacks`.
        self.stacks = pd.DataFrame({"frames": pd.Series(list(rows), dtype=object)})

    def complete(self, event: str, columns: Columns) -> None:
        """Replace stacks in `columns` by rows of `stacks`, and lists of keys by tuples of key ids.

        The row of an incomplete stack is -1.
        """
        if event in STACKED and "stack" in columns:
            # If no event has a stack, the rows of all events are -1.
            places = np.searchsorted(self._numbers, columns["stack"])
            columns["stack"] = np.append(self._rows, -1)[places]
        if "waits_keys" in columns:
            items = iter(self._facts[event].list_items("waits_keys", self._ids).tolist())
            lengths = np.maximum(columns["waits_keys"], 0).tolist()
            keys = [tuple(islice(items, length)) for length in lengths]
            columns["waits_keys"] = pd.Series(keys, dtype=object)


def places_not_ended(
    history: pd.DataFrame, tasks: pd.DataFrame, scheduler_only: pd.DataFrame
) -> Array:
    """Return, for each task run whose end is unknown, the index of its last row in `history`.

    `history` has the task runs that were in progress at the times of snapshots.
    """
    last = history.drop_duplicates(RUN, keep="last")
    # Such a task was released while it waited for its inputs, so it never ran.
    last = last[last["state"] != "released"]
    if not len(last):
        return np.empty(0, dtype=np.int64)
    # An end is also known if only the scheduler recorded it, for example because the worker was
    # killed.
    ran = pd.concat([tasks[RUN], scheduler_only.loc[scheduler_only["lost"], RUN]])
    near = ran[np.isin(ran["key_id"].to_numpy(), last["key_id"].to_numpy())]
    unnumbered = last.assign(run_id=-1)
    ended = _among(last, near) | (
        (last["run_id"] < 0).to_numpy() & _among(unnumbered, near.assign(run_id=-1))
    )
    return last.index.to_numpy()[~ended]


def _among(runs: pd.DataFrame, others: pd.DataFrame) -> Array:
    return pd.MultiIndex.from_frame(runs[RUN]).isin(pd.MultiIndex.from_frame(others[RUN]))
