"""Columns of the page about the time in which threads do not execute functions of tasks.

The lifetime of each worker instance is divided into cells (see `IdleCells`). For each cell, the
columns contain the fraction of each category in the time in which the worker's tracks show no task
run. For each task run, they contain the seconds for which it occupied its thread before its
function started and after its function ended.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dasfprof.analysis.model.accounting import IdleCells, by_class, thread_seconds
from dasfprof.analysis.model.thread_time import (
    FIRST_COLOUR,
    HELPS,
    USES,
    ThreadTime,
    busy_seconds,
    recorded_column,
)
from dasfprof.analysis.run import Run
from dasfprof.database.columns import Array
from dasfprof.report.formats.tracks import ThreadTracks, busy_until
from dasfprof.report.page.document import PackedColumn, offsets, pack_integers, scaled, seconds

#: Number of steps that represent all of a worker's free time in a cell.
_UNITS = 0xFFFF
#: Threshold (fraction of a cell): smaller remainders are rounding errors.
_LEAST = 0.01
#: Index of an additional category of the page, after all others. In the accounts of thread time,
#: tasks occupy the thread during this time.
_ELSEWHERE = len(ThreadTime)
_ELSEWHERE_FACTS = {
    "id": "HELD_FROM_ELSEWHERE",
    "name": "Slot occupied, thread idle",
    "meaning": "This time is part of other categories as well. A task held this thread but did not "
    "run in it: it was a coroutine in the worker's event loop, or it had ended and the worker had "
    "not noticed.",
    "helps": "Look for what blocks the worker's event loop.",
    "colour": FIRST_COLOUR + 3,
    "busy": False,
    "back": True,
}


def known_threads(run: Run) -> Array:
    """Return the number of threads of each named worker, or 0 if the worker never joined."""
    named = run.named
    lives = run.lives
    threads = np.zeros(len(named), dtype=np.int64)
    np.maximum.at(threads, named.of_lives[lives.ids], lives.threads)
    return threads


def seconds_around(
    run: Run, rows: Array, tracks: ThreadTracks, spans: tuple[Array, Array]
) -> dict[str, Array]:
    """Return the seconds in which task runs occupied threads around their functions.

    Parameters
    ----------
    rows
        For each row of the page, its row in `Run.task_runs`.
    spans
        The starts and durations of the functions.

    Returns
    -------
    dict
        ``before`` and ``after`` are the seconds before and after the function. In ``deserialize``
        and ``disk_read`` seconds of ``before``, inputs were deserialized and read from disk. In
        ``disk_write`` seconds of ``after``, results were written to disk. In the function, the
        thread waited for CPU for ``core_wait`` seconds (NaN if not recorded), and for storage for
        ``storage`` seconds.
    """
    slots = run.all_slots
    times = slots.times
    end = np.maximum(slots.end, times.stop)
    before, inside, after = np.diff([times.executing, times.start, times.stop, end], axis=0)
    uses = busy_seconds(run, slots, before, inside, after)
    disk_read = recorded_column(run.task_runs, "disk_read", len(before))
    read = np.minimum(disk_read, before)[rows]
    before, after = _fitted(before[rows], after[rows], spans, tracks)
    unknown = np.isnan(run.task_runs["run_queue"].to_numpy(dtype=float)[rows])
    unknown |= uses[ThreadTime.RUNNING_CPU_UNKNOWN][rows] > 0
    return {
        "before": before,
        "after": after,
        "deserialize": uses[ThreadTime.DESERIALIZE][rows],
        "disk_read": read,
        "disk_write": uses[ThreadTime.UNSPILL_AND_SPILL][rows] - read,
        "core_wait": np.where(unknown, np.nan, uses[ThreadTime.WAITING_FOR_A_CORE][rows]),
        "storage": uses[ThreadTime.WAITING_FOR_STORAGE][rows],
    }


def _fitted(
    before: Array, after: Array, spans: tuple[Array, Array], tracks: ThreadTracks
) -> tuple[Array, Array]:
    """Shorten the seconds before and after functions, so that adjacent task runs do not overlap."""
    starts, ends = spans[0], spans[0] + spans[1]
    room = np.full(len(starts), np.inf)
    room[1:] = starts[1:] - ends[:-1]
    firsts = tracks.offsets[:-1][np.diff(tracks.offsets) > 0]
    room[firsts] = starts[firsts]
    room = np.maximum(room, 0.0)
    following = np.append(room[1:], np.inf)[: len(room)]
    following[np.append(firsts[1:], len(starts))[: len(firsts)] - 1] = np.inf
    shorter = np.minimum(after, following)
    taken = np.append(0.0, shorter[:-1])[: len(room)]
    taken[firsts] = 0.0
    lengths = np.diff(tracks.offsets)
    # The times on tracks of coroutines are not changed, because coroutines of a worker may overlap.
    on_thread = np.repeat([fact["thread"] is not None for fact in tracks.facts], lengths)
    fitted = np.where(on_thread, np.minimum(before, room - taken), before)
    return fitted, np.where(on_thread, shorter, after)


def gap_columns(
    run: Run, tracks: ThreadTracks, around: dict[str, Array], spans: tuple[Array, Array]
) -> tuple[dict[str, PackedColumn], dict[str, Any]]:
    """Pack the categories of the time in which threads were idle, by cell (see `IdleCells`).

    Parameters
    ----------
    tracks
        The tracks of the page.
    around, spans
        See `seconds_around`.

    Returns
    -------
    columns, facts
        The columns ``begins`` and ``offsets`` have one item per cell: its start, and the offset of
        its first category. The columns ``classes`` and ``shares`` have one item per category of a
        cell: the index of the category, and its fraction of the time in which the worker's tracks
        show no task run. If the fractions of a cell add up to less than 1, the categories of the
        remaining time are unknown. After the cells of each worker instance, an empty cell marks the
        end of the instance.

        The fact ``classes`` lists the categories, with ids (the names of `ThreadTime`), names,
        meanings and styles. The fact ``first`` is a list. It has the index of the first cell of
        each worker of `tracks`, followed by the total number of cells.
    """
    before, after = around["before"], around["after"]
    free = _FreeTime(tracks, spans[0] - before, before + spans[1] + after)
    threads = dict(zip(run.lives.ids.tolist(), run.lives.threads.tolist(), strict=True))
    titles, named = run.named.titles(), run.named.of_lives
    places = {name: place for place, name in enumerate(tracks.workers)}
    lives: list[list[IdleCells]] = [[] for _ in tracks.workers]
    for cells in thread_seconds(run).cells:
        lives[places[titles[named[cells.worker]]]].append(cells)
    begins, shares, first = [np.empty(0)], [np.empty((0, _ELSEWHERE + 1), dtype=np.int64)], []
    total, elsewhere = 0, 0.0
    for worker, worker_cells in enumerate(lives):
        first.append(total)
        for cells in sorted(worker_cells, key=lambda cell: float(cell.edges[0])):
            idle = by_class(run, cells.seconds)
            parts, held = free.shares(worker, cells.edges, idle, threads[cells.worker])
            # Merge adjacent cells if all their fractions are equal.
            differs = np.append(True, (parts[1:] != parts[:-1]).any(axis=1))[: len(parts)]
            edges, share = np.append(cells.edges[:-1][differs], cells.edges[-1]), parts[differs]
            elsewhere += held
            begins.append(edges)
            shares.append(np.vstack([share, np.zeros((1, _ELSEWHERE + 1), dtype=np.int64)]))
            total += len(edges)
    share = np.concatenate(shares)
    used = share > 0
    columns = {
        "begins": seconds(np.maximum(np.concatenate(begins), 0.0), delta=True),
        "offsets": offsets(used.sum(axis=1)),
        "classes": pack_integers(np.nonzero(used)[1]),
        "shares": scaled(share[used] / _UNITS, step=1 / _UNITS),
    }
    classes = [
        {
            "id": spent.name,
            "name": spent.label,
            "meaning": spent.meaning,
            "helps": HELPS[spent],
            "colour": spent.colour,
            "busy": spent < USES,
            "back": spent.is_hatched_back,
        }
        for spent in ThreadTime
    ]
    if elsewhere:
        classes.append({**_ELSEWHERE_FACTS, "seconds": elsewhere})
    return columns, {"first": [*first, total], "classes": classes}


class _FreeTime:
    """The time in which the tracks of a worker's threads show no task run."""

    def __init__(self, tracks: ThreadTracks, begins: Array, lengths: Array) -> None:
        workers = np.array([fact["worker"] for fact in tracks.facts], dtype=np.int64)
        threads = np.array([fact["thread"] is not None for fact in tracks.facts], dtype=bool)
        self._tracks = np.bincount(workers[threads], minlength=len(tracks.workers))
        of_rows = np.repeat(np.where(threads, workers, -1), np.diff(tracks.offsets))
        order = np.lexsort((begins, of_rows))
        self._bounds = np.searchsorted(of_rows[order], np.arange(len(tracks.workers) + 1))
        self._begins, self._lengths = begins[order], lengths[order]

    def shares(
        self, worker: int, edges: Array, seconds: Array, threads: int
    ) -> tuple[Array, float]:
        """Return the fractions of all categories in the free time of a worker, by cell.

        Each cell is between two adjacent `edges`. `seconds` has the idle seconds by cell and
        category. `threads` is the worker's number of threads. The fractions are in units of
        ``1 / _UNITS``. The last category is an additional one: the time in which a thread was
        neither idle nor occupied by a task on its track. The second result is the total seconds of
        this category.
        """
        rows, spans = slice(self._bounds[worker], self._bounds[worker + 1]), np.diff(edges)
        held = np.diff(busy_until(edges, self._begins[rows], self._lengths[rows]))
        free = self._tracks[worker] * spans - held
        elsewhere = np.minimum(free, threads * spans - held) - seconds.sum(axis=1)
        elsewhere[elsewhere < _LEAST * spans] = 0.0
        seconds = np.column_stack([seconds, elsewhere])
        total = np.maximum(free, seconds.sum(axis=1))[:, None]
        share = np.divide(seconds, total, out=np.zeros_like(seconds), where=total > 0)
        rounded: Array = np.rint(share * _UNITS).astype(np.int64)
        return rounded, float(elsewhere.sum())
