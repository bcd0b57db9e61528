"""The argument of the program that sets its chunk size, and a better value for this argument."""

from __future__ import annotations

import ast
import contextlib
import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from dask.utils import parse_bytes

from dasfprof.analysis.model.sizing import larger_shape
from dasfprof.text import excerpt

#: Arguments of Dask and xarray that set how large chunks, blocks or partitions are.
_ARGUMENTS = ("chunks", "blocksize", "npartitions", "partition_size")
#: Methods whose first argument sets chunks.
_METHODS = ("chunk", "rechunk")
#: Functions that open a store of Zarr. Without `chunks`, each of its chunks becomes a task.
_OPENING = ("from_zarr", "open_zarr")
#: Names of functions that create random arrays. Other chunks would contain other numbers.
_RANDOM = {*dir(np.random), *dir(np.random.Generator)}

#: Shape of the most frequent chunk of an array, and the number of chunks along each axis.
Blocks = tuple[tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True)
class ChunkArgument:
    """An argument in a line of the program that sets the size of chunks."""

    line: str
    name: str
    node: ast.expr
    #: Text of the line, with one character per byte of its UTF-8 encoding.
    source: str
    #: Whether the array keeps its values, and needs no other edit, if only this value changes.
    is_editable: bool = True

    def with_value(self, old: str, new: str) -> str:
        """Return the source line with `new` instead of `old`.

        The result is empty if `old` does not occur exactly once, or if the argument is not
        editable.
        """
        nodes = [
            n
            for n in ast.walk(self.node)
            if isinstance(n, ast.expr) and [repr(v) for v in _values(n)] == [old]
        ]
        if len(nodes) != 1 or not self.is_editable:
            return ""
        start, end = nodes[0].col_offset, nodes[0].end_col_offset
        return f"{self.source[:start]}{new}{self.source[end:]}".encode("latin-1").decode()


class LargerChunks(NamedTuple):
    """An instruction to set larger chunks in the program, and the edit of a line that does this."""

    #: Instruction, or empty if it is unclear where the program sets chunks.
    words: str = ""
    #: Name of the line to edit, and its new text. Both are empty if editing one value is not
    #: enough.
    line: str = ""
    text: str = ""


def larger_chunks_in(
    lines: Iterable[tuple[str, Any]],
    built_by: Collection[str],
    arrays: Mapping[str, Sequence[Blocks]],
    width: int,
    factor: float,
) -> LargerChunks:
    """Find the argument of the program that sets the chunk size, and suggest a larger value.

    Parameters
    ----------
    lines
        Name and source text of each line of the program. A text that is not a string is unknown.
    built_by
        The lines that built the tasks that are too small, or a shared input of all these tasks.
    arrays
        The arrays that each line built.
    width
        The maximum number of these small tasks in one layer of the graph.
    factor
        Factor by which chunks should become larger.
    """
    texts = [(line, text) for line, text in lines if isinstance(text, str)]
    given = [argument for line, text in texts for argument in _arguments(line, text)]
    changes = {
        (argument.line, argument.name, *values): argument
        for argument in given
        if (values := _new_value(argument, arrays.get(argument.line, ()), width, factor))
    }
    if len(changes) == 1:
        (((line, name, old, new), argument),) = changes.items()
        words = f"Set {name}={new} instead of {old} at {excerpt(line)}."
        return LargerChunks(words, line, argument.with_value(old, new))
    given = [argument for argument in given if argument.line in built_by]
    # A second positional argument may be `chunks`, and ``**options`` may contain it.
    opened = [
        (line, name)
        for line, text in texts
        for call, name, named in _calls(text if line in built_by else "")
        if name in _OPENING and len(call.args) <= 1 and not {"chunks", None} & named.keys()
    ]
    if factor > 1 and len(opened) == 1 and not (changes or given):
        ((line, name),) = opened
        return LargerChunks(
            f"Pass chunks= to {name}() at {excerpt(line)}: multiples of the store's chunks, with "
            f"about {_rounded(factor)} times as many elements."
        )
    if changes or len(given) != 1 or (given[0].name == "npartitions" and factor < 2):
        return LargerChunks()
    (argument,) = given
    at = f"{argument.name}={ast.unparse(argument.node)} at {excerpt(argument.line)}"
    if argument.name == "npartitions":
        return LargerChunks(f"Divide {at} by about {_rounded(factor)}.")
    # Only axes whose size is not a constant count, because a constant may be the size of a complete
    # axis.
    node = argument.node
    sizes = node.values if isinstance(node, ast.Dict) else getattr(node, "elts", [])
    axes = sum(None in _values(size) for size in sizes)
    each = f", {_rounded(factor ** (1 / axes))} times in each direction" if axes > 1 else ""
    return LargerChunks(f"Make {at} about {_rounded(factor)} times as large{each}.")


def _rounded(factor: float) -> str:
    return f"{factor:.0f}" if factor >= 10 else f"{factor:.2g}"


def _calls(text: str) -> Iterator[tuple[ast.Call, str, dict[str | None, ast.expr]]]:
    """Yield the calls in the text of a line, with the called name and the named arguments."""
    tree = None
    # The line may be the head of a block, such as ``with``.
    for ending in ("", "\n    pass"):
        with contextlib.suppress(SyntaxError, ValueError):
            tree = tree or ast.parse(text.strip() + ending)
    for call in ast.walk(tree) if tree else ():
        if isinstance(call, ast.Call):
            name = getattr(call.func, "attr", getattr(call.func, "id", ""))
            # None is the default of these arguments.
            given = [word for word in call.keywords if ast.unparse(word.value) != "None"]
            yield call, name, {word.arg: word.value for word in given}


def _arguments(line: str, text: str) -> Iterator[ChunkArgument]:
    """Find the arguments that set chunk sizes in the text of a line."""
    # Syntax trees count columns in bytes.
    source = text.strip().encode().decode("latin-1")
    for call, function, named in _calls(text):
        if function == "map_blocks":
            continue  # Its `chunks` are those of its result.
        if function in _METHODS and call.args and isinstance(call.func, ast.Attribute):
            named["chunks"] = call.args[0]
        for name in _ARGUMENTS:
            if name in named:
                is_editable = function != "rechunk" and function not in _RANDOM
                yield ChunkArgument(line, name, named[name], source, is_editable)


def _values(node: ast.expr) -> Iterator[Any]:
    """Yield all values that an expression may have. An unknown value is None."""
    if isinstance(node, ast.IfExp):
        yield from _values(node.body)
        yield from _values(node.orelse)
    elif isinstance(node, ast.Tuple):
        yield from itertools.product(*map(_values, node.elts))
    elif isinstance(node, ast.Dict):
        names = [ast.literal_eval(key) for key in node.keys if isinstance(key, ast.Constant)]
        if len(names) == len(node.keys):
            for sizes in itertools.product(*map(_values, node.values)):
                yield dict(zip(names, sizes, strict=True))
    else:
        value = None
        with contextlib.suppress(ValueError, TypeError, SyntaxError):
            value = ast.literal_eval(node)
        yield value


def _new_value(
    argument: ChunkArgument, arrays: Sequence[Blocks], width: int, factor: float
) -> tuple[str, str] | None:
    """Return an argument's value and a larger value to use, or None if either is unclear."""
    values = list(_values(argument.node))
    match argument.name:
        case "chunks":
            pairs = [(old, _larger(old, *array, factor)) for old in values for array in arrays]
        case "npartitions":
            pairs = [(n, max(1, round(n / factor))) for n in values if n == width]
        case "partition_size" if len(values) == 1 and _is_size(values[0]):
            pairs = [(values[0], round(values[0] * factor))]
        case _:
            pairs = [(old, _larger_bytes(old, factor)) for old in values] * (len(values) == 1)
    news = {repr(new): repr(old) for old, new in pairs if new is not None and new != old}
    if len(news) != 1:
        return None
    ((new, old),) = news.items()
    return old, new


def _larger_bytes(value: Any, factor: float) -> int | str | None:
    """Return `factor` times a size in bytes, or None if `value` is not a size.

    The result is an integer if `value` is, and otherwise a text.
    """
    size = math.nan
    with contextlib.suppress(ValueError, TypeError, AttributeError):
        size = parse_bytes(value) * factor
    if not 0 < size < 1e15:
        return None
    return round(size) if isinstance(value, int) else _bytes_text(size)


def _bytes_text(size: float) -> str:
    """Return a number of bytes as a text that Dask can read, with two digits, such as ``7.8MB``."""
    unit, scale = next((u, s) for u, s in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)) if size >= s)
    return f"{float(f'{size / scale:.2g}'):g}{unit}"


def _larger(value: Any, shape: tuple[int, ...], blocks: tuple[int, ...], factor: float) -> Any:
    """Return a larger value for ``chunks=``, or None if `value` does not fit the array's chunks.

    `shape` is the shape of a chunk, and `blocks` is the number of chunks in each dimension.
    """
    grown = larger_shape(shape, blocks, factor)
    axes = list(zip(shape, blocks, strict=True))
    if _is_size(value) and all(size == value or count == 1 for size, count in axes):
        return grown[0] if len(set(grown)) == 1 else grown
    if isinstance(value, tuple) and len(value) == len(shape):
        # -1 and "auto" leave an axis in one block.
        pairs = zip(value, axes, strict=True)
        cuts = [v == size or (n == 1 and v in (-1, "auto")) for v, (size, n) in pairs]
        return grown if all(cuts) else None
    larger = {size: new for (size, count), new in zip(axes, grown, strict=True) if count > 1}
    cut = [size for size, count in axes if count > 1]
    if not isinstance(value, Mapping) or not cut or len(larger) < len(cut):
        return None
    given = [size for size in value.values() if size in larger]
    return {k: larger.get(v, v) for k, v in value.items()} if len(given) == len(cut) else None


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
