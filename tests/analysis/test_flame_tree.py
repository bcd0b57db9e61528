"""Trees of sampled calls equal a naive sum over all samples."""

import random
from collections import defaultdict
from typing import Any

import numpy as np
import pytest

from dasfprof.analysis.stack_samples.flame_tree import (
    DEEPEST,
    MOST,
    FlameTree,
    StackTree,
    flame_tree,
)
from dasfprof.analysis.stack_samples.spent import Parts
from dasfprof.analysis.under_way.state import Frame, Stack

GROUPS = ["load", "sum"]


def parts(seconds: list[float]) -> Parts:
    """Return samples that are half computing and half waiting."""
    spent, none = np.array(seconds), np.zeros(len(seconds))
    facts = {"seconds": spent, "computing": spent / 2, "waits": spent / 2}
    facts |= {"samples": none + 1, "counted": none + 1}
    unknown = ("core_wait", "lock", "active", "active_share", "mixed")
    return Parts(**facts, **dict.fromkeys(unknown, none))


def told(tree: FlameTree) -> dict[tuple[str, ...], tuple[float, float, dict[int, float]]]:
    """Return seconds, self seconds and seconds of lines, by the path of functions to a call."""
    found, way = {}, []
    ends = np.cumsum(tree.line_counts)
    for at, depth in enumerate(tree.depths.tolist()):
        way = [*way[:depth], tree.names[tree.functions[at]].function]
        places = range(ends[at] - tree.line_counts[at], ends[at])
        lines = {int(tree.lines[each]): float(tree.line_spent.seconds[each]) for each in places}
        found[tuple(way)] = float(tree.spent.seconds[at]), float(tree.self_seconds[at]), lines
    return found


@pytest.mark.parametrize("seed", range(2))
def test_random_stacks(seed: int) -> None:
    draw = random.Random(seed)

    def frame() -> Frame:
        return Frame(draw.choice("fgh"), "a.py", draw.randrange(4))

    stacks: list[Stack] = [tuple(frame() for _ in range(draw.randrange(5))) for _ in range(12)]
    samples = [
        (draw.randrange(-1, 2), draw.randrange(-1, 12), draw.randrange(1, 9) / 8) for _ in range(60)
    ]
    expected: dict[tuple[str, ...], list[Any]] = defaultdict(lambda: [0.0, 0.0, defaultdict(float)])
    for group, stack, seconds in samples:
        frames = (stacks[stack] if stack >= 0 else ()) or (Frame("(unknown)", "", 0),)
        way: tuple[str, ...] = (GROUPS[group] if group >= 0 else "(unknown)",)
        expected[way][0] += seconds
        for each in frames:
            way = (*way, each.function)
            expected[way][0] += seconds
            expected[way][2][each.line] += seconds
        expected[way][1] += seconds
    groups, rows, lasting = (list(column) for column in zip(*samples, strict=True))
    tree = flame_tree(StackTree(stacks), np.array(groups), GROUPS, np.array(rows), parts(lasting))
    assert told(tree) == {way: tuple(each) for way, each in expected.items()}
    for part in (tree.spent.computing, tree.spent.waiting):
        assert part == pytest.approx(tree.spent.seconds / 2)
    assert (tree.omitted, tree.seconds) == (0, sum(lasting))
    # The longest of sibling calls comes first.
    outer = tree.spent.seconds[tree.depths == 0].tolist()
    assert outer == sorted(outer, reverse=True)


def test_deep_recursion_and_ten_thousand_stacks() -> None:
    def tree_of(stacks: list[Stack], seconds: list[float]) -> FlameTree:
        groups, rows = np.zeros(len(stacks), dtype=np.int64), np.arange(len(stacks))
        return flame_tree(StackTree(stacks), groups, ["x"], rows, parts(seconds))

    deep = tuple(Frame("again", "a.py", 7) for _ in range(1000))
    wide: list[Stack] = [(Frame(f"f{n}", "a.py", 1),) for n in range(MOST + 500)]
    found = tree_of([deep, *wide], [1000.0] + [1.0] * len(wide))
    # Calls of one second are brief compared with the others: they are left out and counted.
    assert found.depths.tolist() == list(range(DEEPEST + 1))
    assert found.self_seconds[-1] == 1000.0
    assert found.omitted == len(wide)
    equal = tree_of(wide[:4000], [1.0] * 4000)
    assert (len(equal.depths), equal.omitted) == (4001, 0)
    nothing = tree_of([], [])
    assert (len(nothing.depths), nothing.seconds, nothing.omitted) == (0, 0.0, 0)
