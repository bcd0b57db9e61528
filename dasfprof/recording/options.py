"""A check of the names of options, so that a misspelt one is an error of our own tree."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from dasfprof.errors import UnknownOptionError

P = ParamSpec("P")
R = TypeVar("R")


def checked_options(call: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function: a keyword that it does not have is an `UnknownOptionError`."""

    @wraps(call)
    def checked(*args: P.args, **options: P.kwargs) -> R:
        check_options(call, options)
        return call(*args, **options)

    return checked


def check_options(call: Callable[..., Any], options: Iterable[str]) -> None:
    """Check that a function has options of these names.

    Raises
    ------
    UnknownOptionError
        If it lacks one; the message names those that it has.
    """
    known = list(inspect.signature(call).parameters)
    for option in options:
        if option not in known:
            near = difflib.get_close_matches(option, known, n=1)
            there = f" Did you mean {near[0]}?" if near else ""
            raise UnknownOptionError(
                f"there is no option {option}.{there} The options are {', '.join(known[1:])}."
            )
