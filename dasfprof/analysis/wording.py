"""Figures that know their unit, and the sentences that are made of them.

What is found are figures; a function says them in words:

    def _say_waits(f: Figures) -> Words:
        return f"{f.function} waits for {f.waited}.", "See stragglers().", "Do not wait."

    state(_say_waits, function="load", waited=Seconds(0.25)).text
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, NamedTuple

from dasfprof.text import count_of, format_duration, format_factor, format_share, format_size


class Advice(NamedTuple):
    """A part of what to change that other findings may refute."""

    #: A row of the table in `dasfprof.analysis.diagnosis.advice`.
    kind: str
    #: A sentence.
    text: str
    #: Whether the seconds at stake are what following it gains.
    promises: bool = False


#: A plain sentence with the figure; the evidence for it; what to change, of several parts a list.
Words = tuple[str, str, str | Sequence[str | Advice]]


class Figures(SimpleNamespace):
    """Figures by name, as attributes."""


class Seconds(float):
    """A duration: ``4.08 s``."""

    unit = "s"

    def __str__(self) -> str:
        return format_duration(self)


class Share(float):
    """A part of a whole, 1 being all of it: ``36 %``."""

    unit = "share"

    def __str__(self) -> str:
        return format_share(self)


class Factor(float):
    """How many times as much: ``1.3``."""

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
    """A number of things, whose name is its format: ``f"{Count(2):task}"`` is ``2 tasks``."""

    unit = "count"

    def __format__(self, noun: str) -> str:
        return count_of(int(self), noun) if noun else f"{int(self):,}"


@dataclass(frozen=True)
class Statement:
    """What is said, and the figures that it is said of."""

    #: One plain sentence with the figure.
    text: str
    #: Figures, and which method shows more.
    evidence: str
    #: A concrete change.
    suggestion: str
    #: By name: numbers with units, texts, and lists, mappings and namespaces of these.
    figures: Mapping[str, Any] = field(default_factory=dict)
    #: The parts of the suggestion that may be refuted.
    advice: tuple[Advice, ...] = ()

    def adding(self, evidence: str, **figures: Any) -> Statement:
        """Return it with more evidence."""
        more = {**self.figures, **figures}
        return dataclasses.replace(self, evidence=f"{self.evidence} {evidence}", figures=more)

    def without(self, advice: Advice, instead: str) -> Statement:
        """Return it without a part of its suggestion, with the reason in its place."""
        suggestion = self.suggestion.replace(advice.text, instead)
        left = tuple(one for one in self.advice if one != advice)
        return dataclasses.replace(self, suggestion=suggestion, advice=left)


def state(say: Callable[[Figures], Words], **figures: Any) -> Statement:
    """Return figures with what a function says of them."""
    text, evidence, suggestion = say(Figures(**figures))
    parts = [suggestion] if isinstance(suggestion, str) else list(suggestion)
    advice = tuple(part for part in parts if isinstance(part, Advice))
    told = " ".join(part.text if isinstance(part, Advice) else part for part in parts if part)
    return Statement(text, evidence, told, figures, advice)


def plain(figure: Any) -> Any:
    """Return a figure as JSON has it: a number with its unit, of what is not there none."""
    if isinstance(figure, Figures) or dataclasses.is_dataclass(figure):
        figure = vars(figure)
    if isinstance(figure, Mapping):
        return {name: plain(value) for name, value in figure.items() if value is not None}
    if isinstance(figure, list | tuple):
        return [plain(value) for value in figure]
    return {"value": figure.real, "unit": figure.unit} if hasattr(figure, "unit") else figure
