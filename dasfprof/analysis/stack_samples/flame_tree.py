"""`flame_tree`: the calls in groups of samples as one tree, with the lines of each call.

The calls in all stacks of a run are arranged as a tree, once. Then the samples of each group are
summed up along this tree, level by level. A level has one row for each distinct stack of a group,
and not one row for each sample.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dasfprof.analysis.stack_samples.spent import Parts, Split, split
from dasfprof.analysis.under_way.state import Frame, Stack
from dasfprof.database.columns import Array

#: Maximum depth of calls. Deeper frames count for the call at this depth.
DEEPEST = 200
#: Maximum number of calls, and minimum fraction of all seconds that a call needs. The shortest
#: calls are left out first.
MOST, LEAST = 10_000, 1 / 5000


class Name(NamedTuple):
    """A function and its file, or the name of a group, which has no file."""

    function: str
    file: str


@dataclass(frozen=True)
class FlameTree:
    """Calls with their seconds, each followed by the calls that it makes, longest first.

    The outermost level contains the groups of samples (see `flame_tree`), and not calls.
    """

    #: Depth of each call (0 for groups), and the index of its function in `names`.
    depths: Array
    functions: Array
    names: list[Name]
    #: Seconds of each call including the calls that it makes, and seconds in its own code.
    spent: Split
    self_seconds: Array
    #: Number of lines of each call. For each line, its number (0 if unknown) and its seconds,
    #: including calls that the line makes.
    line_counts: Array
    lines: Array
    line_spent: Split
    #: Seconds of all samples, and number of calls that are left out.
    seconds: float
    omitted: int


class StackTree:
    """The calls in stacks as a tree.

    Each call has a code, which is larger than the code of its caller. The stacks are distinct.
    Methods refer to a stack by its index, or by -1 if it is unknown.
    """

    def __init__(self, stacks: Sequence[Stack]) -> None:
        unknown = (Frame("(unknown)", "", 0),)
        numbers: dict[tuple[int, Name], int] = {}
        places: dict[tuple[int, int], int] = {}
        ways = []
        #: Code of the innermost call of each stack.
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
        #: Code of each call's caller (-1 if there is none), and index of the call's function in
        #: `names`.
        self.callers = np.array([caller for caller, _ in numbers], dtype=np.int64)
        self.functions = np.array(
            [functions.setdefault(name, len(functions)) for _, name in numbers], dtype=np.int64
        )
        self.names = list(functions)
        #: Call and line of each place, which is a line of a call.
        self.calls, self.lines = np.array(list(places), dtype=np.int64).reshape(-1, 2).T
        self._lengths = np.array(list(map(len, ways)), dtype=np.int64)
        self._begins = np.cumsum(self._lengths) - self._lengths
        self._ways = np.array([place for way in ways for place in way], dtype=np.int64)

    def self_sums(self, values: Array) -> Array:
        """Return, for each call, the sum of a value over stacks in which the call is innermost."""
        # Without stacks, numpy would return integers.
        return np.bincount(self.last[:-1], values, len(self.callers)).astype(float)

    def sums(self, values: Array) -> Array:
        """Return, for each call, the sum of a value over the stacks that contain the call."""
        sums = self.self_sums(values)
        for call in range(len(sums) - 1, -1, -1):
            if self.callers[call] >= 0:
                sums[self.callers[call]] += sums[call]
        return sums

    def at(self, stacks: Array, depth: int) -> tuple[Array, Array]:
        """Return which of `stacks` reach a depth, and which lines they have at this depth.

        The first array contains indices of `stacks`. The second array contains indices of the
        arrays `lines` and `calls`.
        """
        deep = np.flatnonzero(self._lengths[stacks] > depth)
        return deep, self._ways[self._begins[stacks[deep]] + depth]


def flame_tree(
    tree: StackTree, groups: Array, names: list[str], stacks: Array, parts: Parts
) -> FlameTree:
    """Return the calls in groups of samples as one tree, with their seconds.

    For each sample, `groups` is an index of `names`, and `stacks` is the index of a stack in the
    tree. Both are -1 if unknown. `parts` are the seconds of each sample, by what its thread did.
    """
    count = len(tree.callers)
    stacks = np.where(stacks >= 0, stacks, len(tree.last) - 1)
    groups = np.where(groups >= 0, groups, len(names))
    pairs, pair_of = np.unique(groups * len(tree.last) + stacks, return_inverse=True)
    groups, stacks = np.divmod(pairs, len(tree.last))
    parts = parts.summed(pair_of, len(pairs))
    codes, spent, owner = _lines(tree, groups, stacks, parts)
    # The code of a call in a group combines the group and the call. Groups come after all calls.
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
    longest = np.argsort(-sums.seconds, kind="stable")
    longest = longest[sums.seconds[longest] >= LEAST * total][:MOST]
    order, depths = depth_first(callers, sums.seconds, longest)
    place = np.full(len(numbers), -1)
    place[order] = np.arange(len(order))
    shown = np.flatnonzero(place[call_of] >= 0)
    shown = shown[np.lexsort((tree.lines[codes[shown]], place[call_of[shown]]))]
    ends = np.searchsorted(numbers, groups * count + tree.last[stacks])
    self_seconds = np.bincount(ends, parts.seconds, len(numbers))
    functions = np.r_[tree.functions[call], len(tree.names) + known][order]
    used, functions = np.unique(functions, return_inverse=True)
    texts = [*tree.names, *(Name(name, "") for name in [*names, "(unknown)"])]
    return FlameTree(
        depths=depths,
        functions=functions,
        names=[texts[row] for row in used.tolist()],
        spent=split(sums.take(order)),
        self_seconds=self_seconds[order],
        line_counts=np.bincount(place[call_of[shown]], minlength=len(order)),
        lines=tree.lines[codes[shown]],
        line_spent=split(spent.take(shown)),
        seconds=total,
        omitted=len(numbers) - len(order),
    )


def _lines(
    tree: StackTree, groups: Array, stacks: Array, parts: Parts
) -> tuple[Array, Parts, Array]:
    """Return the place, the seconds and the call of each line, for each group of samples.

    A place is an index of ``tree.lines``. A call is a code that combines the group and the call in
    the tree.
    """
    parts_of, sums = [np.empty(0, dtype=np.int64)], [parts.take(np.empty(0, dtype=np.int64))]
    for depth in itertools.count():
        rows, places = tree.at(stacks, depth)
        if not len(rows):
            break
        codes = groups[rows] * len(tree.lines) + places
        codes, code_of = np.unique(codes, return_inverse=True)
        parts_of.append(codes)
        sums.append(parts.take(rows).summed(code_of, len(codes)))
    groups, places = np.divmod(np.concatenate(parts_of), max(len(tree.lines), 1))
    return places, _joined(*sums), groups * len(tree.callers) + tree.calls[places]


def depth_first(callers: Array, seconds: Array, shown: Array) -> tuple[Array, Array]:
    """Return calls and their depths. Each call is followed by the calls that it makes.

    Calls with the same caller are sorted by seconds, longest first. `shown` are the calls to
    return. They include the caller of each call.
    """
    inner: dict[int, list[int]] = {}
    # Append the longest call of each caller last, because calls are popped from the end.
    for call in shown[np.argsort(-seconds[shown], kind="stable")][::-1].tolist():
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
