"""Figures with units, as text and as JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from dasfprof.text import count_of, format_duration, format_factor, format_share, format_size


class Figures(SimpleNamespace):
    """Figures by name, as attributes."""


class Seconds(float):
    """A duration: ``4.08 s``."""

    unit = "s"

    def __str__(self) -> str:
        return format_duration(self)


class Share(float):
    """A fraction: ``36 %``."""

    unit = "share"

    def __str__(self) -> str:
        return format_share(self)


class Factor(float):
    """A factor: ``1.3``."""

    unit = "times"

    def __str__(self) -> str:
        return format_factor(self)


class Bytes(float):
    """A size: ``29.1 kB``."""

    unit = "B"

    def __str__(self) -> str:
        return format_size(self)


class Rate(float):
    """A rate of transfer: ``29.1 kB/s``."""

    unit = "B/s"

    def __str__(self) -> str:
        return f"{format_size(self)}/s"


class Count(int):
    """A count. The format is the noun: ``f"{Count(2):task}"`` is ``2 tasks``."""

    unit = "count"

    def __format__(self, noun: str) -> str:
        return count_of(int(self), noun) if noun else f"{int(self):,}"


def plain(figure: Any) -> Any:
    """Return a figure as JSON-compatible data: a number with its unit.

    Missing values are left out.
    """
    if isinstance(figure, Figures) or dataclasses.is_dataclass(figure):
        figure = vars(figure)
    if isinstance(figure, Mapping):
        return {name: plain(value) for name, value in figure.items() if value is not None}
    if isinstance(figure, list | tuple):
        return [plain(value) for value in figure]
    return {"value": figure.real, "unit": figure.unit} if hasattr(figure, "unit") else figure
