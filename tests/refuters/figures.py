"""What a finding says, as figures, and whether these are what the events say."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

#: Recorded durations are rounded to 16 bits, and sums of floats differ in their last ones.
_ROUNDING = 1e-4
_LEAST = 1e-9


@dataclass(frozen=True)
class Said:
    """What a finding says."""

    rule: str
    severity: str
    #: At stake; where the finding promises none, those by which it is ranked.
    seconds: float
    function: str | None
    worker: str | None
    #: By name, without their units; those that are not there are None.
    figures: dict[str, Any]
    #: All shares among them.
    shares: list[float]
    #: For who reads of a contradiction.
    sentences: str
    suggestion: str = ""
    #: Whether it promises the seconds at stake to who does as it says.
    promises: bool = False

    @classmethod
    def of(cls, row: dict[Any, Any], figures: dict[str, Any], costs: float) -> Said:
        """Read a row of the table of findings, its figures, and what it costs."""
        promised = row["Seconds at stake (s)"]
        said = row["Rule"], row["Severity"], costs if promised != promised else promised
        where = row["Function"], row["Worker"]
        sentences = f"{row['Finding']} {row['Evidence']}"
        shares = [*_shares(figures)]
        told = shares, sentences, row["Suggestion"], promised == promised
        return cls(*said, *where, without_units(figures), *told)

    def __getitem__(self, name: str) -> Any:
        return self.figures.get(name)


def without_units(figure: Any) -> Any:
    """Return a figure as the number that it is, and what holds figures with such numbers."""
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


#: Seconds by which clocks of processes of a busy host are set apart in a trace.
CLOCKS = 0.1


def is_at_most(figure: float, bound: float) -> bool:
    """Tell whether a figure is no more than a bound."""
    return figure <= bound + _ROUNDING * abs(bound) + _LEAST


def is_at_least(figure: float, bound: float) -> bool:
    """Tell whether a figure is no less than a bound."""
    return figure >= bound - _ROUNDING * abs(bound) - _LEAST


def is_close(figure: float, actual: float) -> bool:
    """Tell whether a figure is the actual number."""
    return is_at_most(figure, actual) and is_at_least(figure, actual)


def is_same_time(figure: float, actual: float) -> bool:
    """Tell whether two times are equal as far as clocks of several processes agree."""
    return abs(figure - actual) < CLOCKS


def differs(figure: float, actual: float, what: str) -> Iterator[str]:
    """Yield a contradiction unless a figure is the actual number."""
    if not is_close(figure, actual):
        yield f"{what}: {figure:.6g} is said, the events have {actual:.6g}"


def exceeds(figure: float, bound: float, what: str) -> Iterator[str]:
    """Yield a contradiction if a figure is more than there can be."""
    if not is_at_most(figure, bound):
        yield f"{what}: {figure:.6g} is said, the events have {bound:.6g} at most"


def lies(figure: float, low: float, high: float, what: str) -> Iterator[str]:
    """Yield a contradiction unless a figure is between two numbers."""
    if not (is_at_least(figure, low) and is_at_most(figure, high)):
        yield f"{what}: {figure:.6g} is said, the events have {low:.6g} to {high:.6g}"
