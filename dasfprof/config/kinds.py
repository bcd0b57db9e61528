"""Classes for the types of settings. An instance has a default, a meaning, and a check of values.

Importing this module does not import Dask, and only some checks import it: ``dasfprof run`` creates
its flags from the settings before the script imports Dask.
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

#: Maximum bytes of a run's name. The name of a file also contains the plugin, the host and the
#: worker, and most file systems allow 255 bytes.
_LONGEST_NAME = 100
#: Minimum size of a file in bytes. A header is smaller than this.
_SMALLEST_SEGMENT = 1000
#: Maximum sampling rate in Hz. The sampler waits up to 6 ms for each sample.
_HIGHEST_FREQUENCY = 100


@dataclass(frozen=True)
class Option:
    """A setting, and the check of its values. Subclasses check values of a certain type."""

    #: Default and meaning, both from `dasfprof.yaml`. The first sentence of the meaning is the help
    #: text of the flag.
    default: Any = None
    meaning: str = ""
    #: Name of the keyword argument. The name in the config has ``-`` instead of ``_``.
    name: str = ""

    @property
    def config_name(self) -> str:
        """The name of the setting in Dask's config, without the prefix ``dasfprof.``."""
        return self.name.replace("_", "-")

    @property
    def summary(self) -> str:
        """The first sentence of the meaning."""
        return f"{self.meaning.partition('. ')[0].removesuffix('.')}."

    def check(self, value: Any) -> Any:
        """Convert a value to the form that a run uses, or raise an `InvalidArgumentError`."""
        return value

    def refuse(self, value: Any, expected: str) -> InvalidArgumentError:
        """Return the error for an invalid value. `expected` describes valid values."""
        return InvalidArgumentError(f"{self.name}={value!r} must be {expected}.")


class RunName(Option):
    """A setting whose value is a run's name. The names of the run's files begin with it."""

    def check(self, value: Any) -> str:
        """Return the name, or raise an error if file names cannot begin with it."""
        name = str(value)
        is_part = name == Path(name).name and name not in ("", ".", "..") and "\0" not in name
        if not (is_part and len(os.fsencode(name)) <= _LONGEST_NAME):
            raise InvalidArgumentError(
                f"name={name!r}: a run's name is the prefix of its file names, so it must not be "
                f"empty, longer than {_LONGEST_NAME} bytes, or contain a path separator or a null "
                "character. Use directory to set where the files are written."
            )
        return name


class Switch(Option):
    """A setting whose value is True or False."""

    def check(self, value: Any) -> bool:
        """Return the value, or raise an error if it is not a boolean."""
        if not isinstance(value, bool):
            raise self.refuse(value, "True or False")
        return value


class Pages(Option):
    """A setting for a run's pages on the dashboard: True, False (no pages), or ``"counts"``."""

    def check(self, value: Any) -> bool | str:
        """Return the value, or raise an error if it is not True, False or ``"counts"``."""
        if value == "counts" or isinstance(value, bool):
            return value
        raise self.refuse(value, "True, False or 'counts'")


@dataclass(frozen=True)
class Choice(Option):
    """A setting whose value is one of several texts. The case of letters does not matter."""

    #: Value that a run uses instead of ``"off"``.
    off: Any = "off"
    #: Allowed texts in lower case, from the type annotation of the option.
    choices: tuple[str, ...] = ()

    def check(self, value: Any) -> Any:
        """Return the text in lower case, or raise an error if it is not allowed.

        For ``"off"``, False and None, return the attribute `off`.
        """
        # YAML reads a bare ``off`` as False, and earlier versions of dasfprof used None.
        chosen = "off" if value is False or value is None else value
        chosen = chosen.lower() if isinstance(chosen, str) else chosen
        if chosen not in self.choices:
            *others, last = map(repr, self.choices)
            raise self.refuse(value, f"{', '.join(others)} or {last}")
        return self.off if chosen == "off" else chosen


class LogLevel(Choice):
    """A setting whose value is the minimum level of the log records that are recorded."""

    def check(self, value: Any) -> int:
        """Return the level as a number of `logging`."""
        level = super().check(value)
        return level if level == self.off else int(getattr(logging, level.upper()))


class Integer(Option):
    """A setting whose value is an integer number of events."""

    def check(self, value: Any) -> int:
        """Return the number, or raise an error if it is not an integer."""
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.refuse(value, "an integer number of events, such as 5000")
        return value


class Size(Option):
    """A setting whose value is a number of bytes, or a text such as ``"256MB"``."""

    def check(self, value: Any) -> int:
        """Return the size in bytes."""
        from dask.utils import parse_bytes

        try:
            size = int(parse_bytes(value))
        except (AttributeError, ValueError, TypeError, OverflowError):
            size = 0
        if isinstance(value, bool) or size < _SMALLEST_SEGMENT:
            raise self.refuse(value, "a size of at least 1 kB, such as '256MB'")
        return size


class Duration(Option):
    """A setting whose value is a number of seconds, or a text such as ``"100ms"``."""

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
    """A setting whose value is a number of days, or None for no limit."""

    def check(self, value: Any) -> float:
        """Return the number of days. Return infinity if the value is None."""
        try:
            days = math.inf if value is None else float(value)
        except (ValueError, TypeError):
            days = 0.0
        if isinstance(value, bool) or not days > 0:
            raise self.refuse(value, "a number of days, such as 30")
        return days


class Frequency(Option):
    """A setting whose value is a rate in Hz, or ``"off"``, which means 0."""

    def check(self, value: Any) -> float:
        """Return the rate in Hz."""
        rate = 0 if value is False or value == "off" else value
        is_number = isinstance(rate, int | float) and rate is not True
        if not (is_number and 0 <= rate <= _HIGHEST_FREQUENCY):
            expected = f"a rate in Hz from 0 (off) to {_HIGHEST_FREQUENCY}, such as 20"
            raise self.refuse(value, expected)
        return float(rate)


class Price(NamedTuple):
    """The price per hour of a worker, or of a worker's thread."""

    amount: float
    #: Currency as the user wrote it, or an empty text if the user gave no currency.
    label: str = ""
    per_thread: bool = False

    def of_hours(self, workers: float, threads: float) -> float:
        """Return the cost of a run that used this many worker-hours and thread-hours."""
        return self.amount * (threads if self.per_thread else workers)

    def in_words(self, amount: float) -> str:
        """Return an amount of money as a text with the currency."""
        digits = 2 if amount >= 1 or amount == 0 else 2 - math.floor(math.log10(amount))
        return f"{amount:.{min(digits, 9)}f} {self.label}".rstrip()


#: Pattern of a price as a text: a number, a currency, and whether it is per worker or thread.
_PRICE = re.compile(r"\s*([\d.]+(?:e-?\d+)?)\s*([^\s/\d]{0,12})\s*(?:/\s*(worker|thread|core))?\s*")


class PriceOption(Option):
    """A setting whose value is a price per hour: a number, or a text such as ``"0.04 EUR/thread"``.

    A number is the price of a worker.
    """

    def check(self, value: Any) -> Price | None:
        """Return the price. Return None if the value is None."""
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
