"""Checks of what is asked of a replay."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

import numpy as np

from dasfprof.errors import InvalidArgumentError


def check_count(name: str, value: Any) -> None:
    """Refuse what is no number of workers or threads."""
    if not is_count(value):
        raise InvalidArgumentError(
            f"{name}={value!r}: give a whole number, 1 or more, or None for as many as were "
            "recorded."
        )


def is_count(value: Any) -> bool:
    """Return whether a value is a whole number, 1 or more."""
    return not isinstance(value, bool) and isinstance(value, Integral) and int(value) >= 1


def is_positive(value: Any) -> bool:
    """Return whether a value is a number above 0, and not infinite."""
    return isinstance(value, Real) and bool(np.isfinite(float(value))) and float(value) > 0


def check_mapping(name: str, value: Any, example: str) -> None:
    """Refuse what does not give functions figures."""
    if not isinstance(value, Mapping):
        raise InvalidArgumentError(
            f"{name}={value!r}: give a dict of functions' names, such as {example}."
        )
