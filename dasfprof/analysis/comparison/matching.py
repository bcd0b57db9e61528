"""Which function, and which step, of one side is which of the other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from dasfprof.analysis.model.steps import NO_STEP, step_groups
from dasfprof.analysis.run import Run
from dasfprof.database.columns import Array

#: The functions whose results a function takes, and those that take its results.
Neighbours = tuple[frozenset[str], frozenset[str]]

#: Those of them that both sides have, and how many others there are of each.
_Place = tuple[frozenset[str], frozenset[str], int, int]


@dataclass(frozen=True)
class Matching:
    """The names of one side that are others on the other side."""

    #: The name before of each name after that has another one there.
    renamed: Mapping[str, str]

    def label_before(self, name: str) -> str:
        """Return what a name of the side before is called in tables of both sides."""
        after = next((new for new, old in self.renamed.items() if old == name), None)
        return name if after is None else f"{name} → {after}"

    def label_after(self, name: str) -> str:
        """Return what a name of the side after is called in tables of both sides."""
        return self.label_before(self.renamed[name]) if name in self.renamed else name


def match_functions(before: Iterable[Run], after: Iterable[Run]) -> Matching:
    """Match functions by name, and those that are left by their place in the graph.

    A function that only one side has is one that only the other has, if their results go to the
    same functions and come from the same, and no other is in the same place.
    """
    first, second = _graph(before), _graph(after)
    renamed: dict[str, str] = {}
    while found := _same_places(first, second, renamed):
        renamed |= found
    return Matching(renamed)


def match_steps(before: Iterable[Run], after: Iterable[Run], functions: Matching) -> Matching:
    """Match steps by name, and those that are left by the functions that ran in them."""
    first, second = _functions_of_steps(before), _functions_of_steps(after)
    olds = {name: ran for name, ran in first.items() if name not in second}
    renamed = {}
    for name, ran in second.items():
        if name not in first:
            wanted = {functions.renamed.get(function, function) for function in ran}
            alike = [old for old, has in olds.items() if has == wanted]
            if len(alike) == 1:
                renamed[name] = alike[0]
    several = {old for old in renamed.values() if list(renamed.values()).count(old) > 1}
    return Matching({new: old for new, old in renamed.items() if old not in several})


def _same_places(
    first: dict[str, Neighbours], second: dict[str, Neighbours], renamed: dict[str, str]
) -> dict[str, str]:
    """Match functions that are alone in a place of both graphs, which have a known neighbour."""
    olds = first.keys() - second.keys() - set(renamed.values())
    news = second.keys() - first.keys() - renamed.keys()
    known = (first.keys() & second.keys()) | set(renamed.values())
    places: dict[_Place, tuple[list[str], list[str]]] = {}
    for name in olds:
        places.setdefault(_place(first[name], known, {}), ([], []))[0].append(name)
    for name in news:
        places.setdefault(_place(second[name], known, renamed), ([], []))[1].append(name)
    return {
        new[0]: old[0]
        for (inputs, outputs, _, _), (old, new) in places.items()
        if len(old) == len(new) == 1 and inputs | outputs
    }


def _place(of: Neighbours, known: set[str], renamed: dict[str, str]) -> _Place:
    """Return a function's known neighbours by their names before, and how many others it has."""
    inputs, outputs = (
        frozenset(old for name in names if (old := renamed.get(name, name)) in known)
        for names in of
    )
    return inputs, outputs, len(of[0]) - len(inputs), len(of[1]) - len(outputs)


def _graph(traces: Iterable[Run]) -> dict[str, Neighbours]:
    """Return the graph of functions of a side's runs; edges of a function to itself left out."""
    inputs: dict[str, set[str]] = {}
    outputs: dict[str, set[str]] = {}
    for trace in traces:
        codes, names = trace.keys.functions()
        for code in np.unique(codes[trace.tasks["key_id"].to_numpy()]).tolist():
            inputs.setdefault(names[code], set())
        for taker, giver in _edges(trace, codes, len(names)):
            if taker != giver and names[taker] in inputs:
                inputs[names[taker]].add(names[giver])
                outputs.setdefault(names[giver], set()).add(names[taker])
    return {
        name: (frozenset(given), frozenset(outputs.get(name, ()))) for name, given in inputs.items()
    }


def _edges(trace: Run, codes: Array, count: int) -> list[tuple[int, int]]:
    offsets, ids = trace.dependencies
    takers = np.repeat(codes, np.diff(offsets)).astype(np.int64)
    pairs = np.unique(takers * max(count, 1) + codes[ids])
    found = np.divmod(pairs, max(count, 1))
    return list(zip(found[0].tolist(), found[1].tolist(), strict=True))


def _functions_of_steps(traces: Iterable[Run]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for trace in traces:
        codes, names = step_groups(trace.tasks)
        functions = trace.tasks["function"].astype(object).to_numpy()
        for code, name in enumerate(names):
            ran = set(functions[codes == code])
            if name != NO_STEP and ran:
                found.setdefault(name, set()).update(ran)
    return found
