"""Numbers in a finding's sentences, and whether they are what the events say to the digits shown.

A sentence is taken apart by a pattern of plain words with ``{duration}``, ``{share}``, ``{size}``,
``{count}``, ``{factor}`` and ``{name}`` for what stands there: ``took {duration} in {name},``.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

_SECONDS = {"µs": 1e-6, "ms": 1e-3, "s": 1.0}
_BYTES = {"B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "PB": 1e15}
_NUMBER = r"\d+(?:,\d{3})*(?:\.\d+)?(?:e[+-]?\d+)?"
KINDS = {
    "duration": rf"\d+ h \d+ min|\d+ min \d+ s|{_NUMBER} (?:µs|ms|s)",
    "size": rf"{_NUMBER} [kMGTP]?B",
    "share": rf"(?:under )?{_NUMBER} %",
    "count": r"\d+(?:,\d{3})*",
    "factor": _NUMBER,
    "name": r"\S.*?",
}
#: What is recorded of durations is rounded to 16 bits; sums of floats differ in their last bits.
_ROUNDING = 2e-5


class NotUnderstoodError(Exception):
    """A finding's sentences are not those that its refuter was written from."""


@dataclass(frozen=True)
class Figure:
    """A number as a sentence shows it."""

    text: str
    value: float
    #: Half a unit of the last digit shown: how far the number meant may be from `value`.
    half: float

    @property
    def bounds(self) -> tuple[float, float]:
        """The least and the most that the number meant may be."""
        return self.value - self.half, self.value + self.half

    def shows(self, actual: float) -> bool:
        """Tell whether an actual number would be written so."""
        return self.is_at_most(actual) and self.is_at_least(actual)

    def is_at_most(self, bound: float) -> bool:
        """Tell whether the number meant may be as low as `bound`."""
        return self.value - self.half <= bound + _ROUNDING * abs(bound) + 1e-9

    def is_at_least(self, bound: float) -> bool:
        """Tell whether the number meant may be as high as `bound`."""
        return self.value + self.half >= bound - _ROUNDING * abs(bound) - 1e-9


def taken_apart(pattern: str, text: str) -> dict[str, Figure] | None:
    """Find a pattern in a text; return what stands at its places, by the names of these."""
    kinds: dict[str, str] = {}

    def place(found: re.Match[str]) -> str:
        kind, _, name = found[1].partition(":")
        kinds[name or kind] = kind
        return f"(?P<{name or kind}>{KINDS[kind]})"

    parts = re.split(r"(\{\w+(?::\w+)?\})", pattern)
    expression = "".join(
        place(found) if (found := re.fullmatch(r"\{(\w+(?::\w+)?)\}", part)) else re.escape(part)
        for part in parts
    )
    found = re.search(expression, text)
    return found and {name: parsed(kinds[name], shown) for name, shown in found.groupdict().items()}


def parsed(kind: str, text: str) -> Figure:
    """Read what stands at a place of a kind."""
    if kind == "name":
        return Figure(text, math.nan, math.nan)
    if kind == "duration":
        return _duration(text)
    numeral, _, unit = text.removeprefix("under ").partition(" ")
    number = float(numeral.replace(",", ""))
    if kind == "size":
        # Bytes are whole, and so are counts.
        half = 0.5 if unit == "B" else _half(number, 3)
        return Figure(text, number * _BYTES[unit], half * _BYTES[unit])
    if kind == "share":
        if text.startswith("under"):
            return Figure(text, number / 200, number / 200)
        return Figure(text, number / 100, (0.5 if number >= 10 else _half(number, 2)) / 100)
    if kind == "factor":
        return Figure(text, number, _half(number, 2) if number < 10 else 0.5)
    return Figure(text, number, 0.0)


def _duration(text: str) -> Figure:
    parts = re.findall(rf"({_NUMBER}) (\w+)", text)
    if len(parts) == 2:
        units = {"h": 3600, "min": 60, "s": 1}
        value = sum(float(number) * units[unit] for number, unit in parts)
        return Figure(text, value, units[parts[-1][1]] / 2)
    number, unit = float(parts[0][0].replace(",", "")), parts[0][1]
    return Figure(text, number * _SECONDS[unit], _half(number, 3) * _SECONDS[unit])


def _half(number: float, digits: int) -> float:
    """Return half a unit of the last of so many digits; whole numbers have no less than 1."""
    if number == 0:
        return 0.0
    return 0.5 * min(10.0 ** (math.floor(math.log10(abs(number))) - digits + 1), 1.0)
