"""`flame_tree`: the calls of groups of samples as one tree, with the lines that each was at.

The stacks of a run are laid out once as a tree of their calls. The samples of each group are then
added up along it, level by level: as many rows at a time as there are distinct stacks in a group,
not as there are samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dasfprof.analysis.stack_samples.spent import Parts, Split, split
from dasfprof.analysis.under_way.state import Frame, Stack
from dasfprof.database.columns import Array

#: Frames further inside than this belong to the call at this depth.
DEEPEST = 200
#: Calls beyond so many, or of a smaller share of all seconds, are left out, the briefest first.
MOST, LEAST = 10_000, 1 / 5000


class Name(NamedTuple):
    """A function, or a group: that has no file."""

    function: str
    file: str


@dataclass(frozen=True)
class FlameTree:
    """Calls, each followed by those that it makes, the longest first; groups are the outermost."""

    #: How far inside each is, 0 for groups; its place in `names`.
    depths: Array
    functions: Array
    names: list[Name]
    #: Of it and of what it calls, and of it alone.
    spent: Split
    own_seconds: Array
    #: The lines at which it was, the first lines first: how many each call has, their numbers (0:
    #: unknown), and what was spent there, with what was called from there.
    line_counts: Array
    lines: Array
    line_spent: Split
    #: The seconds of all samples, and how many calls were left out.
    seconds: float
    omitted: int


class StackTree:
    """The calls of stacks, from the outermost inwards, numbered.

    Parameters
    ----------
    stacks
        Distinct ones. A row of -1 of them stands for a stack that is not known.
    """

    def __init__(self, stacks: Sequence[Stack]) -> None:
        unknown = (Frame("(unknown)", "", 0),)
        numbers: dict[tuple[int, Name], int] = {}
        places: dict[tuple[int, int], int] = {}
        ways = []
        #: The call that each stack ends in.
        self.last = np.empty(len(stacks) + 1, dtype=np.int64)
        for row, stack in enumerate([*stacks, unknown]):
            call, way = -1, []
            for frame in (stack or unknown)[:DEEPEST]:
                name = call, Name(frame.function, frame.file)
                call = numbers.setdefault(name, len(numbers))
                way.append(places.setdefault((call, max(frame.line, 0)), len(places)))
            ways.append(way)
            self.last[row] = call
        functions: dict[Name, int] = {}
        #: The caller of each call (-1: none), and its function's place in `names`.
        self.callers = np.array([caller for caller, _ in numbers], dtype=np.int64)
        self.functions = np.array(
            [functions.setdefault(name, len(functions)) for _, name in numbers], dtype=np.int64
        )
        self.names = list(functions)
        #: The call and the line of each place.
        self.calls, self.lines = np.array(list(places), dtype=np.int64).reshape(-1, 2).T
        self._lengths = np.array(list(map(len, ways)), dtype=np.int64)
        self._begins = np.cumsum(self._lengths) - self._lengths
        self._ways = np.array([place for way in ways for place in way], dtype=np.int64)

    @property
    def depth(self) -> int:
        """How many calls the deepest stack has."""
        return int(self._lengths.max())

    def at(self, stacks: Array, depth: int) -> tuple[Array, Array]:
        """Return which of some stacks are so deep, and the place of each of those."""
        deep = np.flatnonzero(self._lengths[stacks] > depth)
        return deep, self._ways[self._begins[stacks[deep]] + depth]


def flame_tree(
    tree: StackTree, groups: Array, names: list[str], stacks: Array, parts: Parts
) -> FlameTree:
    """Add samples up along a tree.

    Parameters
    ----------
    tree
        Of the stacks.
    groups
        The place in `names` of each sample's group; -1: unknown.
    names
        Of the groups.
    stacks
        The row of each sample's stack; -1: unknown.
    parts
        Of the samples.
    """
    count = len(tree.callers)
    stacks = np.where(stacks >= 0, stacks, len(tree.last) - 1)
    groups = np.where(groups >= 0, groups, len(names))
    pairs, pair_of = np.unique(groups * len(tree.last) + stacks, return_inverse=True)
    groups, stacks = np.divmod(pairs, len(tree.last))
    parts = parts.summed(pair_of, len(pairs))
    codes, spent, owner = _lines(tree, groups, stacks, parts)
    # A call of a group is numbered by both; behind the calls of all come the groups themselves.
    first_group = (len(names) + 1) * count
    calls, call_of = np.unique(owner, return_inverse=True)
    known, group_of = np.unique(groups, return_inverse=True)
    numbers = np.r_[calls, first_group + known]
    sums = _joined(spent.summed(call_of, len(calls)), parts.summed(group_of, len(known)))
    group, call = np.divmod(calls, count)
    outer = tree.callers[call]
    caller = np.where(outer >= 0, group * count + outer, first_group + group)
    callers = np.r_[np.searchsorted(numbers, caller), np.full(len(known), -1)]
    total = float(parts.seconds.sum())
    order, depths = _in_order(callers, sums.seconds, total)
    place = np.full(len(numbers), -1)
    place[order] = np.arange(len(order))
    shown = np.flatnonzero(place[call_of] >= 0)
    shown = shown[np.lexsort((tree.lines[codes[shown]], place[call_of[shown]]))]
    ends = np.searchsorted(numbers, groups * count + tree.last[stacks])
    own = np.bincount(ends, parts.seconds, len(numbers))
    functions = np.r_[tree.functions[call], len(tree.names) + known][order]
    used, functions = np.unique(functions, return_inverse=True)
    texts = [*tree.names, *(Name(name, "") for name in [*names, "(unknown)"])]
    return FlameTree(
        depths=depths,
        functions=functions,
        names=[texts[row] for row in used.tolist()],
        spent=split(sums.take(order)),
        own_seconds=own[order],
        line_counts=np.bincount(place[call_of[shown]], minlength=len(order)),
        lines=tree.lines[codes[shown]],
        line_spent=split(spent.take(shown)),
        seconds=total,
        omitted=len(numbers) - len(order),
    )


def _lines(
    tree: StackTree, groups: Array, stacks: Array, parts: Parts
) -> tuple[Array, Parts, Array]:
    """Return the places at which the groups were, what they spent there, and in which call."""
    parts_of, sums = [np.empty(0, dtype=np.int64)], [parts.take(np.empty(0, dtype=np.int64))]
    for depth in range(tree.depth):
        rows, places = tree.at(stacks, depth)
        if not len(rows):
            break
        codes = groups[rows] * len(tree.lines) + places
        codes, code_of = np.unique(codes, return_inverse=True)
        parts_of.append(codes)
        sums.append(parts.take(rows).summed(code_of, len(codes)))
    groups, places = np.divmod(np.concatenate(parts_of), max(len(tree.lines), 1))
    return places, _joined(*sums), groups * len(tree.callers) + tree.calls[places]


def _in_order(callers: Array, seconds: Array, total: float) -> tuple[Array, Array]:
    """Return the calls that are kept, each followed by those that it makes, and their depths."""
    inner: dict[int, list[int]] = {}
    longest = np.argsort(-seconds, kind="stable")
    longest = longest[seconds[longest] >= LEAST * total][:MOST]
    for call in longest[::-1].tolist():  # the longest is taken first from the end of its list
        inner.setdefault(int(callers[call]), []).append(call)
    order, depths = [], []
    pending = [(call, 0) for call in inner.get(-1, [])]
    while pending:
        call, depth = pending.pop()
        order.append(call)
        depths.append(depth)
        pending += [(each, depth + 1) for each in inner.get(call, [])]
    return np.array(order, dtype=np.int64), np.array(depths, dtype=np.int64)


def _joined(*parts: Parts) -> Parts:
    columns = zip(*(vars(each).values() for each in parts), strict=True)
    return Parts(*map(np.concatenate, columns))
