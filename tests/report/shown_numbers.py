"""Numbers with units as a page shows them, up to the last digit."""

import re
from dataclasses import dataclass

_UNITS = {"µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "%": 0.01}
_UNITS |= {"B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "PB": 1e15}


@dataclass(frozen=True)
class Shown:
    value: float
    #: Half a unit of the last digit: the maximum distance between the actual number and `value`.
    half: float

    @property
    def bounds(self) -> tuple[float, float]:
        """Return the minimum and maximum of the actual number."""
        return self.value - self.half, self.value + self.half

    def shows(self, actual: float) -> bool:
        """Return whether an actual number is shown so, with a tolerance for sums of floats."""
        return abs(actual - self.value) <= self.half + 2e-5 * abs(actual) + 1e-9


def shown(text: str) -> Shown:
    """Parse a number such as ``1,230 B``, ``58.8 %``, ``under 0.1 %`` or ``2 min 5 s``."""
    parts = re.findall(r"(\d[\d,.]*) (\S+)", text)
    numbers = [(numeral.replace(",", ""), _UNITS[unit]) for numeral, unit in parts]
    value = sum(float(numeral) * unit for numeral, unit in numbers)
    if text.startswith("under "):
        return Shown(value / 2, value / 2)
    numeral, unit = numbers[-1]
    last_digit = 10.0 ** -len(numeral.partition(".")[2])
    return Shown(value, 0.5 * last_digit * unit if value else 0.0)
