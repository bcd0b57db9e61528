"""`ExpressionBuilders` and `BuiltLines`: the steps and lines that built expressions and layers."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from time import time
from typing import Any
from weakref import ref

from dasfprof.recording.dask_internals import client_calls
from dasfprof.recording.dask_internals.captured_graphs import flat
from dasfprof.recording.steps import step as steps
from dasfprof.recording.steps.line import Line, current_line, line_at
from dasfprof.recording.steps.step import OpenStep

# `ExpressionBuilders` knows the steps and the line that built each expression, even after Dask has
# rewritten the expression. The name of an expression is a hash of its content. Dask rewrites the
# complete expression before it runs, so hardly any name that the program built remains. Therefore
# each rewriting of a part is observed: new parts in the result belong to the steps and the line of
# the part that was rewritten.

#: Maximum number of known expressions or layers. If there are more, all of them are removed, which
#: limits the memory.
_MOST_NAMES = 500_000
#: Maximum number of visited parts of an expression.
_MOST_PARTS = 10_000
#: Expressions that Dask wraps around a collection to compute it.
_WRAPPERS = ("Finalize", "Repartition", "_ExprSequence", "_HLGExpr", "HLGExpr", "HLGFinalize")


@dataclass(slots=True)
class Builders:
    """The steps and lines that built an expression.

    An expression shares this object with the expressions within it that were unknown when it was
    built. If one of them is built again, this counts for all of them.
    """

    #: Steps in the order in which they built the expression. Empty if no step built it.
    steps: list[OpenStep]
    line: Line | None
    #: The collection that was built from the expression.
    collection: ref[Any] | None = None
    #: Names and builders of the expressions that were fused into the expression.
    fused: Sequence[tuple[str, Builders]] = ()

    def again(self, opened: OpenStep) -> None:
        """Record that a step built the expression again."""
        if not self.steps or self.steps[-1].names != opened.names:
            self.steps[:] = [other for other in self.steps if other.names != opened.names]
            self.steps.append(opened)


class ExpressionBuilders:
    """The `Builders` of the expressions of a program's dataframes and arrays."""

    def __init__(self) -> None:
        self._known: dict[str, Builders] = {}

    def __bool__(self) -> bool:
        return bool(self._known)

    def clear(self) -> None:
        """Remove all expressions."""
        self._known.clear()

    def built(self, expr: Any, collection: Any) -> None:
        """Record the step and the line that build a collection from an expression."""
        opened, known, name = steps.current_step(), self._known, expr._name
        builders = known.get(name)
        if builders is not None:
            if opened is not None:
                builders.again(opened)
            # While an earlier collection of the expression exists, the line stays the same, because
            # the new collection may be only a copy.
            if builders.collection is None or builders.collection() is None:
                builders.line, builders.collection = current_line(), ref(collection)
            return
        if len(known) > _MOST_NAMES:
            known.clear()
        builders = Builders([] if opened is None else [opened], current_line(), ref(collection))
        known[name], waiting = builders, [expr]
        for part in waiting:
            for inner in _inner(part):
                if inner._name not in known:
                    known[inner._name] = builders
                    waiting.append(inner)

    def rewritten(self, expr: Any, result: Any, last: Any = None) -> None:
        """Record the result of rewriting an expression.

        If Dask rewrote the expression in several steps, `last` is the expression before the last
        step.
        """
        if getattr(result, "_name", None) in self._known:
            return
        builders = self.root(expr)
        if builders is not None and is_expression(result):
            self._adopt(result, builders, last if is_expression(last) else expr)

    def root(self, expr: Any) -> Builders | None:
        """Return the builders of an expression, or None if they are unknown.

        If the expression is unknown, return the builders of an expression that it wraps.
        """
        known = (self._known.get(part._name) for part in unwrapped(expr))
        return next((builders for builders in known if builders is not None), None)

    def layers(self, expr: Any) -> Iterator[tuple[str, Builders]]:
        """Yield the name and the builders of each known part of an expression."""
        for part in _parts(expr):
            builders = self._known.get(part._name)
            if builders is not None:
                yield part._name, builders

    def _adopt(self, expr: Any, builders: Builders, before: Any) -> None:
        """Store the builders of each unknown part of a rewritten expression.

        `before` is the expression before Dask rewrote it. If a part of the rewritten expression
        replaces a part of `before`, it gets the builders of the replaced part. Other parts get
        `builders`.
        """
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
        if not type(part).__name__.startswith("Fused"):
            return self._was(part, before, twin, builders)
        exprs = part.operands[0]
        fused = [
            (expr._name, self._was(expr, before, None, builders))
            for expr in (exprs if isinstance(exprs, list | tuple) else [exprs])
        ]
        (_, first), *_ = fused
        steps = next((item.steps for _, item in fused if item.steps), first.steps)
        return replace(first, steps=steps, fused=fused)

    def _was(self, part: Any, before: Any, twin: Any, builders: Builders) -> Builders:
        """Return the builders of a part of a rewritten expression.

        They are the builders of the part of `before` that `part` replaces. If there is no such
        part, they are `builders`. `before` is the expression before Dask rewrote it, and `twin` is
        its part at the position of `part`, or None.
        """
        known = self._known.get(part._name)
        if known is not None:
            return known
        # Dask renames a part if it changes an expression below it, for example if it pushes a
        # selection of columns through the part.
        for other in chain([] if twin is None else [twin], _parts(before)):
            if _kind(other) == _kind(part) and other._name in self._known:
                return self._known[other._name]
        return builders


def _kind(part: Any) -> tuple[Any, str]:
    """Return the type of an expression, and its name without the token.

    Neither changes if Dask rewrites the expressions within it.
    """
    return type(part), part._name.rpartition("-")[0]


def is_expression(value: Any) -> bool:
    """Return whether a value is an expression of Dask."""
    # A `Delayed` object, which `isin()` embeds for example, has attributes of any name.
    return hasattr(type(value), "_parameters")


def output_keys(graph: Any) -> Any:
    """Return the output keys of a graph, taken from the outermost expression that has any."""
    for part in unwrapped(graph):
        if "output_keys" in getattr(part, "_parameters", ()):
            return part.operand("output_keys")
    return ()


def finalized_keys(graph: Any) -> dict[str, Any]:
    """Return the inputs of the layers that combine the results of collections, by layer.

    The inputs are keys, or the names of the layers to which these keys belong.
    """
    inputs: dict[str, Any] = {}
    for part in unwrapped(graph):
        if "output_keys" in getattr(part, "_parameters", ()):
            inner = part.operand("dsk")
            if is_expression(inner):
                inputs[part._name] = inner.operand("output_keys")
            else:  # The task combines results of several collections.
                inputs |= {name: list(names) for name, names in inner.dependencies.items() if names}
    return inputs


def unwrapped(expr: Any) -> Iterator[Any]:
    """Yield an expression and, if it is one of `_WRAPPERS`, the expressions that it wraps."""
    waiting = [expr] if is_expression(expr) else []
    for part in waiting:
        yield part
        if type(part).__name__.startswith(_WRAPPERS) and len(waiting) < _MOST_PARTS:
            waiting += _inner(part)


def _inner(part: Any) -> list[Any]:
    """Return those operands of an expression that are expressions."""
    return [operand for operand in part.operands if is_expression(operand)]


def _parts(expr: Any) -> Iterator[Any]:
    """Yield an expression and all expressions within it, without duplicates."""
    waiting, seen = [expr], {expr._name}
    for part in waiting:
        if len(seen) > _MOST_PARTS:
            return
        yield part
        for inner in _inner(part):
            if inner._name not in seen:
                seen.add(inner._name)
                waiting.append(inner)


#: Threshold: if `BuiltLines.fresh` has this number of items, they are reported immediately.
MOST_FRESH = 40_000
#: Maximum number of examined keys of a graph.
_MOST_KEYS = 1000


class BuiltLines:
    """The line that last built each layer, by the layer's name."""

    def __init__(self) -> None:
        # Building a delayed function takes only about 30 µs. So `fresh` only stores which
        # instruction built each layer, and all processing waits until a graph is sent.
        self._known: dict[str, Line] = {}
        self._lock = threading.RLock()
        #: Layers with lines that were not yet reported, as a flat list with four items per layer:
        #: name, the user's code, its instruction, and the names of the layers on which the layer
        #: depends. At most about `MOST_FRESH` items.
        self.fresh: list[Any] = []
        #: Items for the first observer, because a program may build layers before its recording
        #: starts. At most about `MOST_FRESH` items.
        self._early: list[Any] = []

    def clear(self) -> None:
        """Remove all layers."""
        self.fresh.clear()
        self._early.clear()
        self._known.clear()

    def line_of(self, name: Any) -> Line | None:
        """Return the line that last built a layer, or None if the line is unknown."""
        self.report()
        return self._known.get(name)

    def report(self) -> None:
        """Report to the observers which lines built layers, if this was not reported before."""
        with self._lock:
            fresh = self.fresh[:]
            del self.fresh[: len(fresh)]
            now = time()
            facts: list[Any] = []
            for name, code, instruction, dependencies in zip(*[iter(fresh)] * 4, strict=True):
                line = line_at(code, instruction)
                if type(name) is str and self._is_new(name, line):
                    facts += now, line, name, dependencies
            self._send(facts)

    def built(self, name: Any, graph: Any) -> None:
        """Record a new layer with the layers on which it depends, and the line that built it."""
        self.report()
        # Within a call of the client, the program builds no layers. A known layer may then be the
        # result of an optimization, or contain results that stay on the cluster.
        if (name not in self._known or not client_calls.is_open()) and type(name) is str:
            self._note(name, current_line(), graph.dependencies.get(name, ()))

    def rewritten(self, name: str, builders: Builders) -> None:
        """Record the layer of a rewritten expression, and the layers that Dask fused into it."""
        for inner, others in builders.fused:
            self._note(inner, others.line)
        self._note(name, builders.line, [inner for inner, _ in builders.fused])

    def sent(self, graph: Any, keys: Any) -> None:
        """Record the line that sends a graph.

        The line is recorded for up to three keys of `Client.map` or `Client.submit`. For other
        calls, it is recorded for the layers that no line has built.
        """
        self.report()
        line = client_calls.line()
        if line is None:
            return
        if client_calls.is_open("map"):
            for key in _some(keys):
                for observer in steps.observers:
                    observer.mapped(line, key)
        elif client_calls.is_open("submit"):
            self._send([fact for key in _some(keys) for fact in (time(), line, key, ())])
        else:  # `compute` adds layers, such as the task that concatenates the chunks.
            new = [name for name in layer_names(keys) if name not in self._known]
            finalized = finalized_keys(graph) if new else {}
            for name in new:
                self._note(name, line, layer_names(finalized.get(name)))

    def _note(self, name: str, line: Line | None, dependencies: Iterable[str] = ()) -> None:
        if line is not None and self._is_new(name, line):
            self._send([time(), line, name, dependencies])

    def _send(self, facts: list[Any]) -> None:
        """Pass facts to the observers, or store the facts until there is an observer."""
        with self._lock:
            if not steps.observers:
                self._early += facts if len(self._early) < MOST_FRESH else ()
                return
            facts, self._early = [*self._early, *facts], []
        for observer in steps.observers if facts else ():
            observer.built_at(facts)

    def _is_new(self, name: str, line: Line) -> bool:
        """Store the line of a layer, and return whether it differs from the line stored before."""
        if self._known.get(name) is line:
            return False
        if len(self._known) > _MOST_NAMES:
            self._known.clear()
        self._known[name] = line
        return True


def layer_names(keys: Any) -> list[str]:
    """Return the names of the layers to which keys belong, without duplicates.

    `keys` may be nested. Only the first `_MOST_KEYS` keys are used.
    """
    firsts = (key[0] if isinstance(key, tuple) and key else key for key in flat(keys))
    names = (name for name in islice(firsts, _MOST_KEYS) if isinstance(name, str))
    return list(dict.fromkeys(names))


def _some(keys: Any) -> list[Any]:
    """Return up to three of the keys in nested lists and sets of keys."""
    firsts = list(islice(flat(keys), _MOST_KEYS))
    # One key would not be enough, because a key whose result exists is not computed again.
    return firsts if len(firsts) <= 3 else [firsts[0], firsts[len(firsts) // 2], firsts[-1]]
