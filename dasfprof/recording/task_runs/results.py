"""`ResultDescriber`: returns the type, dtype and shape of a result without reading its data.

``getattr(value, "dtype")`` is not safe for every value. A DataFrame may have a column of that name,
a Delayed has every attribute, and a property may compute or wait. So a reader is chosen once for
each type. A reader uses properties that are implemented in C (as in numpy, cupy, torch and
pyarrow), and properties of packages in which they are known to be fast. No code of other classes is
called.
"""

from __future__ import annotations

from collections.abc import Callable
from types import GetSetDescriptorType
from typing import Any

Shape = tuple[int, ...] | None
#: The name of a value's type, the value's dtype object, and its shape.
Description = tuple[str, Any, Shape]
Reader = Callable[[Any], Description]

_MAX_TYPES = 10_000

#: Packages in which the properties `shape` and `dtype` are written in Python, but neither compute
#: nor wait.
_FAST = frozenset(
    (
        *("anndata", "cudf", "cupy", "geopandas", "numpy"),
        *("pandas", "polars", "scipy", "sparse", "xarray"),
    )
)

#: Reads an attribute of a class without calling code of its metaclass.
_ask_type = type.__getattribute__


class ResultDescriber:
    """A callable that describes results, and caches one reader for each type."""

    def __init__(self) -> None:
        self._known: dict[type, Reader] = {}
        #: For each known type without a shape: the description of all its values.
        self.plain: dict[type, Description] = {}

    def __call__(self, value: Any) -> Description:
        """Return the type name, the dtype object and the shape of a value.

        The dtype or the shape is None if the value has none.
        """
        kind = type(value)
        reader = self._known.get(kind)
        if reader is None:
            if len(self._known) >= _MAX_TYPES:  # Types created at run time must not accumulate.
                self._known.clear()
                self.plain.clear()
            read_shape = _find(kind, "shape")
            if read_shape is None:
                self.plain[kind] = type_name(kind), None, None
            reader = self._known[kind] = _choose_reader(kind, read_shape)
        return reader(value)


def type_name(kind: type | None) -> str:
    """Return the name of a type as ``module.qualname``, without the module of builtins.

    `kind` may be None, because Dask passes None instead of `NoneType`.
    """
    if kind is None:
        return "NoneType"
    module, name = _ask_type(kind, "__module__"), _ask_type(kind, "__qualname__")
    return name if module == "builtins" else f"{module}.{name}"


def _choose_reader(kind: type, read_shape: Callable[[Any, type], Any] | None) -> Reader:
    name, read_dtype = type_name(kind), _find(kind, "dtype")
    if read_shape is None:
        nothing = name, None, None
        return lambda value: nothing
    if read_dtype is None:
        return lambda value: (name, None, _plain(read_shape(value, kind)))
    return lambda value: (name, read_dtype(value, kind), _plain(read_shape(value, kind)))


def _find(kind: type, name: str) -> Callable[[Any, type], Any] | None:
    """Return a function that reads an attribute of values, or None if reading it is not safe."""
    for base in _ask_type(kind, "__mro__"):
        declared = _ask_type(base, "__dict__")
        if name in declared:
            descriptor = declared[name]
            package = str(_ask_type(base, "__module__")).partition(".")[0]
            if isinstance(descriptor, GetSetDescriptorType) or package in _FAST:
                return getattr(descriptor, "__get__", None)
            return None
    return None


def _plain(shape: Any) -> Shape:
    if type(shape) is not tuple:
        return None
    for length in shape:
        if type(length) is not int:
            return None
    return shape
