"""`timeline_data`: the task runs of a trace as the columns of a page.

Rows are sorted by track (a worker's thread), then by start. Keys are sorted by the prefix of their
text, then by their numbers. Adjacent rows are therefore similar, so that each of a million rows
takes only a few bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from dasfprof.analysis.model.steps import has_lines, has_steps, line_groups, step_groups
from dasfprof.analysis.run import Run
from dasfprof.analysis.run.task_runs import OPEN_STATES
from dasfprof.analysis.tables.task_status import MEANINGS, NEXT_STEPS
from dasfprof.analysis.trace.keys import KeyTable
from dasfprof.database import keys as key_parts
from dasfprof.database.columns import Array
from dasfprof.report.formats.tracks import ThreadTracks, items_of
from dasfprof.report.page.document import (
    PackedColumn,
    amounts,
    in_group,
    offsets,
    pack_integers,
    seconds,
    texts,
)
from dasfprof.report.page.gap_data import gap_columns, known_threads, seconds_around

#: Number of time windows in the small overview picture of busy threads.
_OVERVIEW_BINS = 400
#: Threshold: if more keys end in hashes, which cannot be compressed, the page has only half of each
#: hash and less precise times of statuses.
_MANY_HASHES = 300_000
#: Threshold: if there are more task runs, the times around functions are less precise.
_MANY_RUNS = 300_000
#: Number of 32-bit words in half of a hash.
_HALF = 2
#: Precision of less precise times: number of steps in their mean.
_PARTS = 256
#: Name of the status whose time is the duration of the task run.
_RUNNING = "Running"


def timeline_data(run: Run) -> tuple[dict[str, PackedColumn], dict[str, Any], Array]:
    """Return what the page needs to draw the timeline of a run.

    Returns
    -------
    columns
        Columns by group and name. The columns that bars need come first.
    facts
        Small facts: ``tracks`` (``worker, thread, first``), ``workers``, ``functions``, ``states``,
        ``open_states`` (of unfinished task runs), ``steps`` (the last one is for task runs without
        a step; empty if no step is known), ``lines`` (the last ones are reasons for unknown lines),
        ``gaps`` (see `gap_columns`), ``span`` (seconds), ``overview`` (busy threads in each part of
        the run).
    rows
        For each row of the page, its row of `Run.task_runs`. Task runs without a time are left out.
    """
    tasks = run.task_runs
    statuses = run.statuses
    starts, durations = run.recorded["start"], tasks["duration"].to_numpy()
    placed = np.flatnonzero(np.isfinite(starts) & np.isfinite(durations))
    tracks = ThreadTracks(run, placed, starts[placed], known_threads(run))
    rows = placed[tracks.order]
    starts, durations = np.maximum(starts[rows], 0.0), durations[rows]
    ranks, key_order = _rank_keys(run.keys, tasks["key_id"].to_numpy()[rows])
    crowded = int(_hashed(run.keys).sum()) > _MANY_HASHES
    picture = {
        "starts": seconds(starts, delta=True),
        "durations": seconds(durations),
        "keys": pack_integers(ranks[tasks["key_id"].to_numpy()[rows]], delta=True),
    }
    codes, functions = run.keys.functions()
    picture["functions"] = pack_integers(codes[key_order])
    picture["states"], states = _categories(tasks["state"], rows)
    steps: list[str] = []
    if has_steps(run):
        codes, steps = step_groups(tasks)
        picture["steps"] = pack_integers(codes[rows])
    lines: list[str] = []
    if has_lines(run):
        codes, names = line_groups(tasks)
        places, there = pd.factorize(codes[rows], sort=True)
        picture["lines"] = pack_integers(places)
        lines = [names[code] for code in there.tolist()]
    around = seconds_around(run, rows, tracks, (starts, durations))
    cells, gap_facts = gap_columns(run, tracks, around, (starts, durations))
    many = len(rows) > _MANY_RUNS
    held = {name: _spent(spent, many) for name, spent in around.items()}
    held["cpu"] = _spent(tasks["cpu"].to_numpy(dtype=float)[rows], crowded)
    spent = {
        name: _spent(values[rows], crowded) for name, values in statuses.items() if name != _RUNNING
    }
    columns = {
        **in_group("picture", picture),
        **in_group("cells", cells),
        **in_group("held", held),
        **in_group("keys", _key_columns(run.keys, key_order, halved=crowded)),
        **in_group("links", _dependency_columns(run, ranks, key_order)),
        **in_group("details", _detail_columns(tasks, rows)),
        **in_group("statuses", spent),
    }
    span = float(run.wall) if len(run.task_runs) or not np.isnan(run.begin) else 0.0
    facts = {
        "span": span,
        "tracks": tracks.facts,
        "workers": tracks.workers,
        "functions": list(map(str, functions)),
        "states": states,
        "open_states": [state for state in states if state in OPEN_STATES],
        "steps": steps,
        "lines": lines,
        "gaps": gap_facts,
        "statuses": list(statuses),
        "status_words": {name: [MEANINGS[name], NEXT_STEPS[name]] for name in statuses},
        "overview": tracks.busy_threads(starts, durations, span, _OVERVIEW_BINS),
        "tasks": len(rows),
        "keys": len(key_order),
        "crowded": crowded,
    }
    return columns, facts, rows


def _hashed(keys: KeyTable) -> Array:
    """Return a mask of the keys that end in a hash."""
    kinds = np.array([kind for kind, _ in keys.heads], dtype=np.int64)
    return np.isin(kinds, (key_parts.HEX, key_parts.UUID))[keys.head_ids]


def _spent(values: Array, crowded: bool) -> PackedColumn:
    """Pack a column with seconds of each task run, such as CPU seconds or the seconds in a status.

    If `crowded`, the seconds are rounded more coarsely.
    """
    known = values[np.isfinite(values)]
    # The page of a large run has to stay small.
    step = float(known.mean()) / _PARTS if crowded and len(known) else 0.0
    return seconds(values, step=step)


def _rank_keys(keys: KeyTable, key_ids: Array) -> tuple[Array, Array]:
    """Sort the keys by their head, which is a text that many keys share, then by their numbers.

    Keys that end in a hash are sorted by their first task run.

    Parameters
    ----------
    key_ids
        Key ids of the rows of the page.

    Returns
    -------
    ranks, order
        The position of each key id, and the key id at each position.
    """
    tails, hashed = keys.tails, _hashed(keys)
    sorted_by = [tails[:, word] for word in range(key_parts.TAIL_WORDS) if tails[:, word].any()]
    if hashed.any():
        first = np.full(len(keys), len(key_ids))
        first[key_ids[::-1]] = np.arange(len(key_ids))[::-1]
        sorted_by = [np.where(hashed, first, 0)] + [np.where(hashed, 0, by) for by in sorted_by]
    order = np.lexsort((*sorted_by[::-1], keys.head_ids))
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order] = np.arange(len(order))
    return ranks, order


def _key_columns(keys: KeyTable, order: Array, *, halved: bool) -> dict[str, PackedColumn]:
    """Pack the parts of keys from which the page builds the keys' texts.

    If `halved`, only half of each hash is packed.
    """
    head_ids = keys.head_ids[order]
    firsts = np.flatnonzero(np.r_[True, head_ids[1:] != head_ids[:-1]][: len(order)])
    heads = [keys.heads[head] for head in head_ids[firsts].tolist()]
    begins = [_text_begin(head) for head in heads]
    complete = [at for at, begin in enumerate(begins) if begin is None]
    for at, text in zip(complete, keys.texts(order[firsts[complete]]).tolist(), strict=True):
        begins[at] = text
    columns = {
        "texts": texts([str(begin) for begin in begins]),
        "kinds": pack_integers(np.array([kind for kind, _ in heads], dtype=np.int64)),
        "firsts": pack_integers(np.append(firsts, len(order)), delta=True),
    }
    tails, hashed = keys.tails[order], _hashed(keys)[order]
    if halved:
        tails[hashed, _HALF:] = 0
    # Hashes are random, so their differences are not smaller than the hashes.
    delta = int(hashed.sum()) * 2 < len(order)
    for word in range(key_parts.TAIL_WORDS):
        if tails[:, word].any():
            columns[f"tail{word}"] = pack_integers(tails[:, word], delta=delta)
    return columns


def _text_begin(head: key_parts.Head) -> str | None:
    """Return the common start of the texts of all keys that share a head.

    Return None for a head that belongs to a single key.
    """
    kind, text = head
    if kind in (key_parts.TEXT, key_parts.PACKED, key_parts.TUPLE):
        return None
    return f"({text!r}, " if kind > key_parts.TUPLE else f"{text}-"


def _dependency_columns(run: Run, ranks: Array, order: Array) -> dict[str, PackedColumn]:
    """Pack the dependencies of the sorted keys.

    The columns are the offset of each key's first input, and the distance between each input and
    its key in the sorted order. `ranks` and `order` come from `_rank_keys`.
    """
    bounds, ids = run.dependencies
    counts = np.diff(bounds)[order]
    inputs, of_key = items_of(ids, bounds[:-1][order], counts)
    # In most operations, the distance from a key to its input is the same for all chunks.
    distances = of_key - ranks[inputs]
    return {
        "offsets": offsets(counts),
        "distances": pack_integers(distances.astype(np.int32).view(np.uint32)),
    }


def _detail_columns(tasks: pd.DataFrame, rows: Array) -> dict[str, PackedColumn]:
    """Pack the sizes, results and exceptions of task runs, and the lines that raised exceptions.

    The sizes are the bytes of the result and of the inputs. The other columns are indices in lists
    of texts, which are packed too.
    """
    unknown = pd.Series(pd.Categorical([None] * len(tasks)))
    results, result_texts = _results(tasks, rows)
    exceptions, exception_texts = _categories(tasks["exception"], rows)
    raised, raised_texts = _categories(tasks.get("raised_at", unknown), rows)
    return {
        "sizes": amounts(tasks["size"].to_numpy(dtype=float)[rows]),
        "input_sizes": amounts(tasks["input_size"].to_numpy(dtype=float)[rows]),
        "results": results,
        "results_texts": texts(result_texts),
        "exceptions": exceptions,
        "exceptions_texts": texts(exception_texts),
        "raised": raised,
        "raised_texts": texts(raised_texts),
    }


def _categories(column: pd.Series[Any], rows: Array) -> tuple[PackedColumn, list[str]]:
    """Pack a column of texts as indices in a list of texts, and return this list too.

    The index of NA is one more than that of the last text.
    """
    codes = column.cat.codes.to_numpy()[rows].astype(np.int64)
    names = [str(name) for name in column.cat.categories]
    return pack_integers(np.where(codes < 0, len(names), codes)), names


def _results(tasks: pd.DataFrame, rows: Array) -> tuple[PackedColumn, list[list[str]]]:
    """Pack type, dtype and shape of results as indices in a list, and return this list too.

    The list has the distinct combinations. `rows` has the row in `tasks` of each row of the page.
    """
    results = tasks[["type", "dtype", "shape"]].iloc[rows]
    # Shapes are texts, which pandas cannot group if UTF-8 cannot encode them.
    shapes, _ = pd.factorize(results["shape"].to_numpy(dtype=object))
    groups = results.groupby(["type", "dtype", shapes], sort=False, dropna=False, observed=True)
    places = pd.factorize(groups.ngroup())[0]
    _, first = np.unique(places, return_index=True)
    listed = results.iloc[first].astype(object)
    listed = listed.where(listed.notna(), "")
    return pack_integers(places), [list(map(str, row)) for row in listed.itertuples(index=False)]
