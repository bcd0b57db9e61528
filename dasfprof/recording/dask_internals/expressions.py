"""`FrameSteps`: the step that built each expression of a dataframe, also after Dask rewrites it.

The name of an expression is a hash of its content, and Dask rewrites the whole expression before it
runs, so hardly any name that a step built remains. So each rewriting of a part is followed: what is
new in the result belongs to the step of that part.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

from dasfprof.recording.steps.step import OpenStep

#: The most known expressions; beyond it all are forgotten, which bounds the memory.
_MOST_NAMES = 500_000
#: The most parts of an expression that are visited.
_MOST_PARTS = 10_000
#: Expressions that Dask wraps around a dataframe to compute it.
_WRAPPERS = ("Finalize", "Repartition", "_ExprSequence", "_HLGExpr", "HLGExpr", "HLGFinalize")

#: The steps that built an expression, the last one last; empty if no step did. Expressions that
#: were built together share the list, so that building one again in another step applies to all.
Builders = list[OpenStep]


class FrameSteps:
    """The steps of the expressions of a program's dataframes."""

    def __init__(self) -> None:
        self._known: dict[str, Builders] = {}

    def __bool__(self) -> bool:
        return bool(self._known)

    def clear(self) -> None:
        """Forget all expressions."""
        self._known.clear()

    def built(self, expr: Any, opened: OpenStep | None) -> None:
        """Note that the program built a collection of an expression, in a step or in none."""
        builders = self._known.get(expr._name)
        if builders is None:
            builders = [] if opened is None else [opened]
            self._adopt(expr, builders, None)
        elif opened is not None and (not builders or builders[-1].names != opened.names):
            builders[:] = [other for other in builders if other.names != opened.names]
            builders.append(opened)

    def rewritten(self, expr: Any, result: Any, last: Any = None) -> None:
        """Note what an expression was rewritten to; `last` is its form just before."""
        if getattr(result, "_name", None) in self._known:
            return
        builders = self.root(expr)
        if builders is not None and is_expression(result):
            self._adopt(result, builders, last if is_expression(last) else expr)

    def root(self, expr: Any) -> Builders | None:
        """Return the steps of an expression, or of the expression that it wraps."""
        for part in unwrapped(expr):
            builders = self._known.get(part._name)
            if builders is not None:
                return builders
        return None

    def layers(self, expr: Any) -> Iterator[tuple[str, OpenStep]]:
        """Yield the names of an expression's layers that steps built, with the step."""
        for part in _parts(expr):
            builders = self._known.get(part._name)
            if builders:
                yield part._name, builders[-1]

    def _adopt(self, expr: Any, builders: Builders, before: Any) -> None:
        """Assign unknown parts to steps: to those of the parts that they were before."""
        if len(self._known) > _MOST_NAMES:
            self._known.clear()
        waiting = [(expr, before)]
        while waiting:
            part, twin = waiting.pop()
            if part._name not in self._known:
                self._known[part._name] = self._builders_of(part, builders, before, twin)
                inner = _inner(part)
                twins = _inner(twin) if type(twin) is type(part) else []
                if len(twins) != len(inner):
                    twins = [None] * len(inner)
                waiting += zip(inner, twins, strict=True)

    def _builders_of(self, part: Any, builders: Builders, before: Any, twin: Any) -> Builders:
        if type(part).__name__.startswith("Fused"):
            exprs = part.operands[0]
            fused = exprs if isinstance(exprs, list) else [exprs]
            named = [self._was(expr, before, None, builders) for expr in fused]
            return next((found for found in named if found), named[0])
        return self._was(part, before, twin, builders)

    def _was(self, part: Any, before: Any, twin: Any, builders: Builders) -> Builders:
        """Return the steps of the part that a part was before it was rewritten.

        A change below a part changes its name, as when a selection of columns is pushed through
        it; it still does the same work.
        """
        known = self._known.get(part._name)
        if known is not None:
            return known
        twins = [] if twin is None else [twin]
        for other in chain(twins, _parts(before) if before is not None else ()):
            if _kind(other) == _kind(part) and other._name in self._known:
                return self._known[other._name]
        return builders


def _kind(part: Any) -> tuple[Any, str]:
    """Return what remains of a part when the expressions below it change."""
    return type(part), part._name.rpartition("-")[0]


def is_expression(value: Any) -> bool:
    """Return whether a value is an expression of Dask."""
    return hasattr(value, "operands")


def output_keys(graph: Any) -> Any:
    """Return the output keys of a graph, without the wrappers that compute it."""
    for part in unwrapped(graph):
        if "output_keys" in getattr(part, "_parameters", ()):
            return part.operand("output_keys")
    return ()


def unwrapped(expr: Any) -> Iterator[Any]:
    """Yield an expression and, if it is a wrapper, the expressions that it wraps."""
    waiting = [expr] if is_expression(expr) else []
    for part in waiting:
        yield part
        if type(part).__name__.startswith(_WRAPPERS) and len(waiting) < _MOST_PARTS:
            waiting += _inner(part)


def _inner(part: Any) -> list[Any]:
    """Return the expressions among the operands of an expression."""
    return [operand for operand in part.operands if is_expression(operand)]


def _parts(expr: Any) -> Iterator[Any]:
    """Yield an expression and all its parts, each once."""
    waiting, seen = [expr], {expr._name}
    for part in waiting:
        if len(seen) > _MOST_PARTS:
            return
        yield part
        for inner in _inner(part):
            if inner._name not in seen:
                seen.add(inner._name)
                waiting.append(inner)
