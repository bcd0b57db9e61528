"""The options of a recording as keywords of calls: their help, their signature, their names."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, get_type_hints

from dasfprof.config.describe import as_parameters
from dasfprof.config.options import RECORDING, AllOptions
from dasfprof.errors import UnknownOptionError

Call = TypeVar("Call", bound=Callable[..., Any])


def documented(call: Call) -> Call:
    """Decorate a function or class: its help and signature list the options of a recording.

    They replace ``{options}`` in the docstring, and the ``**options``.
    """
    doc = inspect.getdoc(call) or ""
    call.__doc__ = doc.replace("{options}", as_parameters(RECORDING.values()))
    function: Any = vars(call).get("__init__", call)
    parameters = dict(inspect.signature(function).parameters)
    types = get_type_hints(AllOptions)
    del parameters["options"], function.__annotations__["options"]
    for name in types.keys() - parameters.keys():
        function.__annotations__[name] = types[name]
    for name in RECORDING:
        parameters.setdefault(
            name,
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=types[name]
            ),
        )
    function.__signature__ = inspect.Signature(list(parameters.values()))
    return call


def check_names(options: Iterable[str]) -> None:
    """Check that there are options of these names.

    Raises
    ------
    UnknownOptionError
        If there is none; the message names those that there are.
    """
    for option in options:
        if option not in RECORDING:
            near = difflib.get_close_matches(option, RECORDING, n=1)
            there = f" Did you mean {near[0]}?" if near else ""
            raise UnknownOptionError(
                f"there is no option {option}.{there} The options are {', '.join(RECORDING)}."
            )
