"""Numbers with units, their forms as text and as JSON, and the degrees of certainty."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, Literal

from dasfprof.text import count_of, format_duration, format_factor, format_share, format_size

#: certain: the evidence proves the cause. likely: the evidence fits, and few other causes fit as
#: well. possible: the evidence fits, but a healthy run may look the same.
Certainty = Literal["certain", "likely", "possible"]

CERTAINTIES: tuple[Certainty, ...] = ("certain", "likely", "possible")


class Figures(SimpleNamespace):
    """Several figures in one object, each of them as an attribute."""


class Seconds(float):
    """Seconds, which are formatted as ``4.08 s``."""

    unit = "s"

    __str__ = format_duration


class Share(float):
    """A fraction, which is formatted as ``36 %``."""

    unit = "share"

    __str__ = format_share


class Factor(float):
    """A factor, which is formatted as ``1.3``."""

    unit = "times"

    __str__ = format_factor


class Bytes(float):
    """Bytes, which are formatted as ``29.1 kB``."""

    unit = "B"

    __str__ = format_size


class Rate(float):
    """Bytes per second, which are formatted as ``29.1 kB/s``."""

    unit = "B/s"

    def __str__(self) -> str:
        return f"{format_size(self)}/s"


class Count(int):
    """A count, which is formatted with a noun: ``f"{Count(2):task}"`` is ``2 tasks``."""

    unit = "count"

    def __format__(self, noun: str) -> str:
        return count_of(int(self), noun) if noun else f"{int(self):,}"


def plain(figure: Any) -> Any:
    """Return a figure as JSON-compatible data, with its unit and without missing values."""
    if isinstance(figure, Figures) or dataclasses.is_dataclass(figure):
        figure = vars(figure)
    if isinstance(figure, Mapping):
        return {name: plain(value) for name, value in figure.items() if value is not None}
    if isinstance(figure, list | tuple):
        return [plain(value) for value in figure]
    return {"value": figure.real, "unit": figure.unit} if hasattr(figure, "unit") else figure
