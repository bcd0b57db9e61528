"""Types of settings, with their defaults, meanings and checks.

Dask is not imported before a value is checked, because ``dasfprof run`` makes its flags from
settings before the script imports Dask.
"""

from __future__ import annotations

import logging
import math
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from dasfprof.errors import InvalidArgumentError

#: Maximum bytes of a run's name. File names add the plugin, the host and the worker, and most file
#: systems allow 255 bytes.
_LONGEST_NAME = 100
#: Minimum size of a file in bytes, which is more than a header.
_SMALLEST_SEGMENT = 1000
#: Maximum sampling rate in Hz. Each sample takes up to 6 ms of waiting.
_HIGHEST_FREQUENCY = 100


@dataclass(frozen=True)
class Option:
    """A setting and a check of its values. Subclasses check values of their type."""

    #: Default and meaning come from `dasfprof.yaml`. The first sentence of the meaning is the help
    #: of the flag.
    default: Any = None
    meaning: str = ""
    #: Name of the keyword argument. The config uses ``-`` instead of ``_``.
    name: str = ""

    @property
    def config_name(self) -> str:
        """Name of the setting in Dask's config, without ``dasfprof.``."""
        return self.name.replace("_", "-")

    @property
    def summary(self) -> str:
        """First sentence of the meaning."""
        return f"{self.meaning.partition('. ')[0].removesuffix('.')}."

    def check(self, value: Any) -> Any:
        """Return the checked value as a run uses it, or raise an `InvalidArgumentError`."""
        return value

    def refuse(self, value: Any, expected: str) -> InvalidArgumentError:
        """Return the error for a wrong value, with a description of valid values."""
        return InvalidArgumentError(f"{self.name}={value!r} must be {expected}.")


class RunName(Option):
    """Setting: the prefix of the names of a run's files."""

    def check(self, value: Any) -> str:
        """Return the name if file names can begin with it."""
        name = str(value)
        if not name or name != Path(name).name or name in (".", "..") or "\0" in name:
            raise InvalidArgumentError(
                f"name={name!r}: a run's name is the prefix of its file names, so it must not be "
                "empty or contain a path separator or a null character. Use directory to set "
                "where the files are written."
            )
        if len(os.fsencode(name)) > _LONGEST_NAME:
            raise InvalidArgumentError(
                f"name={name!r}: a run's name is the prefix of its file names, so it must not be "
                f"longer than {_LONGEST_NAME} bytes."
            )
        return name


class Switch(Option):
    """Setting: True or False."""

    def check(self, value: Any) -> bool:
        """Return the value if it is a boolean."""
        if not isinstance(value, bool):
            raise self.refuse(value, "True or False")
        return value


class Pages(Option):
    """The contents of a run's pages: everything, nothing, or only counts."""

    def check(self, value: Any) -> bool | str:
        """Return the value."""
        if value == "counts" or isinstance(value, bool):
            return value
        raise self.refuse(value, "True, False or 'counts'")


@dataclass(frozen=True)
class Choice(Option):
    """Setting: one of several texts, in upper or lower case."""

    #: Value that a run uses for ``"off"``.
    off: Any = "off"
    #: Allowed texts, from the type of the option.
    choices: tuple[str, ...] = ()

    def check(self, value: Any) -> Any:
        """Return the text.

        YAML reads a bare ``off`` as False, and earlier versions wrote None for it.
        """
        chosen = "off" if value is False or value is None else value
        chosen = chosen.lower() if isinstance(chosen, str) else chosen
        if chosen not in self.choices:
            *others, last = map(repr, self.choices)
            raise self.refuse(value, f"{', '.join(others)} or {last}")
        return self.off if chosen == "off" else chosen


class LogLevel(Choice):
    """Setting: the minimum level of the log records to keep."""

    def check(self, value: Any) -> int:
        """Return the level as a number of `logging`."""
        level = super().check(value)
        return level if level == self.off else int(getattr(logging, level.upper()))


class Ship(Choice):
    """Setting: where files are sent. ``"none"`` is a former name of ``"off"``."""

    def check(self, value: Any) -> Any:
        """Return the text."""
        return super().check("off" if value == "none" else value)


class Whole(Option):
    """Setting: an integer number of events."""

    def check(self, value: Any) -> int:
        """Return the number."""
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.refuse(value, "an integer number of events, such as 5000")
        return value


class Size(Option):
    """Setting: a number of bytes, or text such as ``"256MB"``."""

    def check(self, value: Any) -> int:
        """Return the size in bytes."""
        from dask.utils import parse_bytes

        try:
            size = int(parse_bytes(value))
        except (ValueError, TypeError, OverflowError):
            size = 0
        if isinstance(value, bool) or size < _SMALLEST_SEGMENT:
            raise self.refuse(value, "a size of at least 1 kB, such as '256MB'")
        return size


class Seconds(Option):
    """Setting: a number of seconds, or text such as ``"100ms"``."""

    def check(self, value: Any) -> float:
        """Return the duration in seconds."""
        seconds = value
        if not isinstance(value, int | float):
            from dask.utils import parse_timedelta

            try:
                seconds = parse_timedelta(value, default="s")
            except (ValueError, KeyError, TypeError):
                seconds = -1.0
        if not seconds > 0:
            raise self.refuse(value, "a positive duration, such as 0.1 or '100ms'")
        return float(seconds)


class Days(Option):
    """A number of days, or None for no limit."""

    def check(self, value: Any) -> float:
        """Return the number."""
        try:
            days = math.inf if value is None else float(value)
        except (ValueError, TypeError):
            days = 0.0
        if isinstance(value, bool) or not days > 0:
            raise self.refuse(value, "a number of days, such as 30")
        return days


class Frequency(Option):
    """Setting: a rate in Hz. ``"off"`` is 0."""

    def check(self, value: Any) -> float:
        """Return the rate in Hz."""
        rate = 0 if value is False or value == "off" else value
        is_number = isinstance(rate, int | float) and rate is not True
        if not (is_number and 0 <= rate <= _HIGHEST_FREQUENCY):
            expected = f"a rate in Hz from 0 (off) to {_HIGHEST_FREQUENCY}, such as 20"
            raise self.refuse(value, expected)
        return float(rate)


class Price(NamedTuple):
    """The price of a worker, or of each of its threads, per hour."""

    amount: float
    #: Currency of the price as the user wrote it, or an empty string if there is none.
    label: str = ""
    per_thread: bool = False

    def of_hours(self, workers: float, threads: float) -> float:
        """Return the price of these worker-hours, or of these thread-hours."""
        return self.amount * (threads if self.per_thread else workers)

    def in_words(self, amount: float) -> str:
        """Return an amount of money as text with the currency."""
        digits = 2 if amount >= 1 or amount == 0 else 2 - math.floor(math.log10(amount))
        return f"{amount:.{min(digits, 9)}f} {self.label}".rstrip()


#: A price as text: a number, a currency, and its unit.
_PRICE = re.compile(r"\s*([\d.]+(?:e-?\d+)?)\s*([^\s/\d]{0,12})\s*(?:/\s*(worker|thread|core))?\s*")


class PriceOption(Option):
    """Setting: price of a worker per hour, a number or text such as ``"0.04 EUR/thread"``."""

    def check(self, value: Any) -> Price | None:
        """Return the price, or None if there is none."""
        if value is None:
            return None
        match = None if isinstance(value, bool) else _PRICE.fullmatch(str(value))
        try:
            amount = float(match[1]) if match else math.nan
        except ValueError:
            amount = math.nan
        if match is None or not 0 <= amount < math.inf:
            expected = (
                "the price of a worker per hour, such as 0.12 or '0.12 EUR', or of a thread, such "
                "as '0.03 EUR/thread'"
            )
            raise self.refuse(value, expected)
        return Price(amount, match[2], match[3] in {"thread", "core"})
