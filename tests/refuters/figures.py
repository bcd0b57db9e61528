"""Figures that a finding claims, and comparisons with the actual figures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

#: Tolerances: recorded durations have 16 significant bits, and sums of floats are inexact.
_ROUNDING = 1e-4
_LEAST = 1e-9


@dataclass(frozen=True)
class Claim:
    """Claims of a finding."""

    rule: str
    severity: str
    #: Potential savings or, without these, the seconds by which the finding is ranked.
    seconds: float
    function: str | None
    worker: str | None
    #: Figures by name, without units. `claim[name]` is None for other names.
    figures: dict[str, Any]
    #: All fractions among the figures.
    shares: list[float]
    #: Texts for messages about contradictions.
    sentences: str
    suggestion: str = ""
    #: Whether `seconds` are potential savings.
    promises: bool = False

    @classmethod
    def of(cls, row: dict[Any, Any], figures: dict[str, Any], costs: float) -> Claim:
        """Return the claims in a row of the table of findings, with its figures and costs."""
        promised = row["Seconds at stake (s)"]
        rank = row["Rule"], row["Severity"], costs if promised != promised else promised
        where = row["Function"], row["Worker"]
        sentences = f"{row['Finding']} {row['Evidence']}"
        shares = [*_shares(figures)]
        texts = shares, sentences, row["Suggestion"], promised == promised
        return cls(*rank, *where, without_units(figures), *texts)

    def __getitem__(self, name: str) -> Any:
        return self.figures.get(name)


def without_units(figure: Any) -> Any:
    """Return the number of a figure, or a collection with the numbers of its figures."""
    if isinstance(figure, dict):
        if figure.keys() == {"value", "unit"}:
            return figure["value"]
        return {name: without_units(value) for name, value in figure.items()}
    return [without_units(value) for value in figure] if isinstance(figure, list) else figure


def _shares(figure: Any) -> Iterator[float]:
    if isinstance(figure, dict):
        if figure.get("unit") == "share":
            yield figure["value"]
        for value in figure.values():
            yield from _shares(value)


#: Tolerance (s) for times that processes of a busy host measured.
CLOCKS = 0.1


def is_at_most(figure: float, bound: float) -> bool:
    return figure <= bound + _ROUNDING * abs(bound) + _LEAST


def is_at_least(figure: float, bound: float) -> bool:
    return figure >= bound - _ROUNDING * abs(bound) - _LEAST


def is_close(figure: float, actual: float) -> bool:
    return is_at_most(figure, actual) and is_at_least(figure, actual)


def is_same_time(figure: float, actual: float) -> bool:
    """Return whether two times are equal as far as clocks of several processes agree."""
    return abs(figure - actual) < CLOCKS


def differs(figure: float, actual: float, what: str) -> Iterator[str]:
    """Yield a contradiction unless a figure is the actual number."""
    if not is_close(figure, actual):
        yield f"{what}: {figure:.6g} is claimed, the events have {actual:.6g}"


def exceeds(figure: float, bound: float, what: str) -> Iterator[str]:
    """Yield a contradiction if a figure exceeds an upper bound."""
    if not is_at_most(figure, bound):
        yield f"{what}: {figure:.6g} is claimed, the events have {bound:.6g} at most"


def lies(figure: float, low: float, high: float, what: str) -> Iterator[str]:
    """Yield a contradiction unless a figure is between two numbers."""
    if not (is_at_least(figure, low) and is_at_most(figure, high)):
        yield f"{what}: {figure:.6g} is claimed, the events have {low:.6g} to {high:.6g}"
