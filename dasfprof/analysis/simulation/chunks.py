"""A run whose chunks are some times as large: one task run in place of several, or several of one.

Larger by k: k neighbours by priority in one group of tasks, as far from the roots of the graph,
become one, with the seconds and bytes of all, which takes what any of them takes. Smaller by n: n
runs in place of each, with an n-th of its seconds and bytes, the first of which takes the first of
each input. A task that is alone in its group has no chunks, such as a last sum: it stays; so does
one that is alone in its graph and takes all results that another group has there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dasfprof.analysis.numeric.groups import distinct
from dasfprof.analysis.simulation.inputs import ReplayInputs
from dasfprof.analysis.simulation.submission import GraphSubmissions
from dasfprof.database.columns import Array


@dataclass(frozen=True)
class Chunks:
    """Which runs stand for which recorded ones: a row a pair, those of a run one after the other.

    The first of a run comes first by priority.
    """

    made: Array
    recorded: Array
    #: Of the seconds and bytes of the recorded one.
    share: Array
    #: Of each run: which part it is of a recorded one.
    part: Array

    @property
    def starts(self) -> Array:
        """The first row of each run."""
        return np.flatnonzero(np.diff(self.made, prepend=-1))

    def first(self, values: Array) -> Array:
        """Return for each run the value of the first recorded one."""
        return values[self.recorded[self.starts]]

    def most(self, values: Array) -> Array:
        """Return for each run the highest value of the recorded ones; of truths, if any is."""
        highest: Array = np.maximum.reduceat(values[self.recorded], self.starts)
        return highest

    def least(self, values: Array) -> Array:
        """Return for each run the lowest value of the recorded ones; of truths, if all are."""
        lowest: Array = np.minimum.reduceat(values[self.recorded], self.starts)
        return lowest

    def sums(self, values: Array) -> Array:
        """Return for each run its shares of the recorded ones."""
        return np.bincount(self.made, values[self.recorded] * self.share)

    def counted(self, counts: Array, place: Array, which: Array | None = None) -> Array:
        """Return how many runs have ended where so many recorded ones had.

        Parameters
        ----------
        counts
            Numbers of recorded runs.
        place
            Of each recorded run in the order of their ends.
        which
            The recorded runs that count; None: all.
        """
        ends = self.most(place)
        ends = np.sort(ends if which is None else ends[self.most(which)])
        return np.searchsorted(ends, counts, side="left")


def in_chunks(inputs: ReplayInputs, times: int, parts: int) -> tuple[ReplayInputs, Chunks]:
    """Return the runs if chunks were of another size, and what they stand for.

    Parameters
    ----------
    inputs
        The recorded runs.
    times, parts
        How many times as large chunks are, or into how many parts each goes; one of them is 1.
    """
    if times == parts == 1:
        rows = np.arange(len(inputs))
        return inputs, Chunks(rows, rows, np.ones(len(rows)), np.zeros(len(rows)))
    if parts == 1:
        chunks, rank = _merged(inputs, times), inputs.priority
        offsets, taken = _inputs_of_merged(inputs, chunks)
    else:
        alone = _without_chunks(inputs)
        each = np.where(alone, 1, parts)
        recorded = np.repeat(np.arange(len(inputs)), each)
        rows = np.arange(len(recorded))
        part = rows - (np.cumsum(each) - each)[recorded]
        chunks = Chunks(rows, recorded, 1.0 / each[recorded], part)
        rank = _first_of_tree(inputs, alone)
        offsets, taken = _inputs_of_parts(inputs, each)
    return _runs(inputs, chunks, rank, offsets, taken), chunks


def _runs(
    inputs: ReplayInputs, chunks: Chunks, rank: Array, offsets: Array, taken: Array
) -> ReplayInputs:
    first, sums = chunks.first, chunks.sums
    group = first(inputs.group)
    more = np.bincount(group) / np.maximum(np.bincount(inputs.group), 1)
    old = inputs.submissions
    finishes = np.zeros(len(old.finishes), dtype=np.int64)
    if old.told.any():
        place = np.cumsum(old.told[np.argsort(inputs.begun)])[inputs.begun] - 1
        finishes = chunks.counted(old.finishes, place, old.told)
    return replace(
        inputs,
        before=first(inputs.before),
        unspill=sums(inputs.unspill),
        running=sums(inputs.running),
        after=first(inputs.after),
        seceded=chunks.most(inputs.seceded),
        size=sums(inputs.size),
        function=first(inputs.function),
        input_offsets=offsets,
        inputs=taken,
        worker=first(inputs.worker),
        begun=_places(first(inputs.begun)),
        priority=_places(first(rank), chunks.part, first(inputs.priority)),
        root_group_size=np.ceil(first(inputs.root_group_size) * more[group]).astype(np.int64),
        group=group,
        graph=chunks.most(inputs.graph),
        submissions=GraphSubmissions(finishes, old.delay, old.span, chunks.most(old.told)),
    )


def _of_graphs(inputs: ReplayInputs) -> tuple[Array, Array]:
    """Number the groups of each graph by themselves; gives how many runs each has, too."""
    count = int(inputs.graph.max(initial=0)) + 1
    pairs = inputs.group.astype(np.int64) * count + inputs.graph
    _, number, sizes = np.unique(pairs, return_inverse=True, return_counts=True)
    return number, sizes[number]


def _without_chunks(inputs: ReplayInputs) -> Array:
    """Return the runs that are alone in their group, or that take all of another's in a graph."""
    pair, of_pair = _of_graphs(inputs)
    takers = np.repeat(np.arange(len(inputs)), np.diff(inputs.input_offsets))
    taken = np.stack([takers, pair[inputs.inputs]], axis=1)
    edges, number = np.unique(taken[of_pair[inputs.inputs] > 1], axis=0, return_counts=True)
    of_edges = np.zeros(int(pair.max(initial=0)) + 1, dtype=np.int64)
    of_edges[pair] = of_pair
    alone: Array = np.bincount(inputs.group, minlength=1)[inputs.group] == 1
    all_of_it = edges[number == of_edges[edges[:, 1]], 0]
    alone[all_of_it[of_pair[all_of_it] == 1]] = True
    return alone


def _places(*keys: Array) -> Array:
    """Return the place of each run in the order of its keys, the first of which counts most."""
    places = np.empty(len(keys[0]), dtype=np.int64)
    places[np.lexsort(keys[::-1])] = np.arange(len(places))
    return places


# --- Larger chunks --------------------------------------------------------------------------------


def _merged(inputs: ReplayInputs, times: int) -> Chunks:
    """Put neighbours in one group and depth together."""
    depth, alone = _depths(inputs), _without_chunks(inputs)
    pair, of_pair = _of_graphs(inputs)
    together = np.where(of_pair > 1, len(inputs) + pair, inputs.group)
    together[alone] = 2 * len(inputs) + np.arange(int(alone.sum()))
    order = np.lexsort((inputs.priority, depth, together))
    level = together[order] * (int(depth.max(initial=0)) + 1) + depth[order]
    new = np.diff(level, prepend=-1) != 0
    place = np.arange(len(order)) - np.flatnonzero(new)[np.cumsum(new) - 1]
    made = np.cumsum(place % times == 0) - 1
    return Chunks(made, order, np.ones(len(order)), np.zeros(made.max(initial=-1) + 1))


def _depths(inputs: ReplayInputs) -> Array:
    """Return how many runs there are, at most, from each back to one that takes nothing."""
    offsets, taken = inputs.input_offsets.tolist(), inputs.inputs.tolist()
    depth = [0] * len(inputs)
    for run in np.argsort(inputs.begun).tolist():  # what is taken begins before
        begin, end = offsets[run], offsets[run + 1]
        if begin < end:
            depth[run] = 1 + max(depth[one] for one in taken[begin:end])
    return np.array(depth, dtype=np.int64)


def _inputs_of_merged(inputs: ReplayInputs, chunks: Chunks) -> tuple[Array, Array]:
    into = np.empty(len(inputs), dtype=np.int64)
    into[chunks.recorded] = chunks.made
    count = len(chunks.starts)
    takers = np.repeat(into, np.diff(inputs.input_offsets))
    takers, taken = np.divmod(distinct(takers * count + into[inputs.inputs]), count)
    return np.searchsorted(takers, np.arange(count + 1)), taken


# --- Smaller chunks -------------------------------------------------------------------------------


def _first_of_tree(inputs: ReplayInputs, alone: Array) -> Array:
    """Return the priority of the first run of the tree that each is in, as Dask orders trees.

    A tree is what ends in one result of a graph, and is needed for nothing else. Dask finishes one
    before the next; so it does with its parts.
    """
    count = len(inputs)
    takers = np.repeat(np.arange(count), np.diff(inputs.input_offsets))
    number = np.bincount(inputs.inputs, minlength=count)
    root = np.arange(count)
    one = number[inputs.inputs] == 1
    one &= ~alone[takers] & ~alone[inputs.inputs]
    one &= inputs.graph[takers] == inputs.graph[inputs.inputs]
    root[inputs.inputs[one]] = takers[one]
    while not np.array_equal(root, root[root]):
        root = root[root]
    first = np.full(count, count)
    np.minimum.at(first, root, inputs.priority)
    return first[root]


def _inputs_of_parts(inputs: ReplayInputs, parts: Array) -> tuple[Array, Array]:
    """Return the inputs of parts as compressed rows: the same part of each input, or all of it."""
    first = np.cumsum(parts) - parts
    takers = np.repeat(np.arange(len(inputs)), np.diff(inputs.input_offsets))
    used = inputs.inputs
    # A run in one part takes all parts of its inputs.
    whole = (parts[takers] == 1) & (parts[used] > 1)
    pairs = np.where(whole, parts[used], parts[takers])
    pair = np.repeat(np.arange(len(takers)), pairs)
    place = np.arange(len(pair)) - (np.cumsum(pairs) - pairs)[pair]
    taker = first[takers[pair]] + np.where(whole[pair], 0, place)
    taken = first[used[pair]] + np.where(parts[used[pair]] > 1, place, 0)
    order = np.argsort(taker, kind="stable")
    return np.searchsorted(taker[order], np.arange(int(parts.sum()) + 1)), taken[order]
