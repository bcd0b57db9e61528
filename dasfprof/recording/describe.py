"""What a task's result is: type, dtype and shape, taken without touching the data.

``getattr(value, "dtype")`` is not safe on any value: a DataFrame may have a column of that name,
a Delayed answers to every name, and a property may compute. So the way to read a value is chosen
once for each type, by what its class declares.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Shape = tuple[int, ...] | None
#: (dtype object, shape) of a value.
Reader = Callable[[Any], tuple[Any, Shape]]

_MAX_TYPES = 10_000


class ResultDescriber:
    """Describes results; keeps one reader a type."""

    def __init__(self) -> None:
        self._readers: dict[type, Reader] = {}

    def __call__(self, value: Any) -> tuple[Any, Shape]:
        """Give the value's dtype object (None without one) and its shape (likewise)."""
        kind = type(value)
        reader = self._readers.get(kind)
        if reader is None:
            if len(self._readers) >= _MAX_TYPES:  # types made at run time must not pile up
                self._readers.clear()
            reader = self._readers[kind] = _choose_reader(kind)
        return reader(value)


def type_name(kind: type | None) -> str:
    """Name a type as ``module.qualname``; Dask gives None for the type of None."""
    if kind is None:
        return "NoneType"
    module = getattr(kind, "__module__", None)
    name = getattr(kind, "__qualname__", None) or str(kind)
    return name if module in (None, "builtins") else f"{module}.{name}"


def _choose_reader(kind: type) -> Reader:
    package = kind.__module__.partition(".")[0] if isinstance(kind.__module__, str) else ""
    # Dask's own collections describe data that is elsewhere, and compute what they answer.
    if package in ("dask", "distributed") or not _declares(kind, "shape"):
        return _nothing
    return _shape_and_dtype if _declares(kind, "dtype") else _shape_alone


def _declares(kind: type, name: str) -> bool:
    """Tell whether a class itself declares a data descriptor or slot of this name."""
    for base in kind.__mro__:
        if name in vars(base):
            return hasattr(vars(base)[name], "__get__") and not callable(vars(base)[name])
    return False


def _nothing(value: Any) -> tuple[Any, Shape]:
    return None, None


def _shape_alone(value: Any) -> tuple[Any, Shape]:
    return None, _plain(value.shape)


def _shape_and_dtype(value: Any) -> tuple[Any, Shape]:
    return value.dtype, _plain(value.shape)


def _plain(shape: Any) -> Shape:
    if type(shape) is not tuple:
        return None
    for length in shape:
        if type(length) is not int:
            return None
    return shape
