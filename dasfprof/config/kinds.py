"""What a setting is: its default, its meaning, and which values it takes.

Nothing of Dask is imported before a value is checked: ``dasfprof run`` makes its flags of settings
before the script imports Dask.
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

#: Bytes of a run's name. A file's has the plugin, the host and the worker behind it, and the limit
#: of most file systems is 255.
_LONGEST_NAME = 100
#: Bytes; more than a header.
_LEAST_SEGMENT = 1000
#: Looks a second. Each takes up to 6 ms of waiting.
_HIGHEST_FREQUENCY = 100


@dataclass(frozen=True)
class Option:
    """A setting, and what values it takes; further kinds check theirs."""

    #: Both stand in `dasfprof.yaml`; the first sentence of its meaning is the help of its flag.
    default: Any = None
    meaning: str = ""
    #: The keyword; in the config with ``-`` in place of ``_``.
    name: str = ""

    @property
    def config_name(self) -> str:
        """The name behind ``dasfprof.`` in Dask's config."""
        return self.name.replace("_", "-")

    @property
    def summary(self) -> str:
        """The first sentence of its meaning."""
        return f"{self.meaning.partition('. ')[0].removesuffix('.')}."

    def check(self, value: Any) -> Any:
        """Return what a run uses for a value; raise an `InvalidArgumentError` if it has none."""
        return value

    def refuse(self, value: Any, words: str) -> InvalidArgumentError:
        """Return the error that says what a value must be."""
        return InvalidArgumentError(f"{self.name}={value!r} must be {words}.")


class RunName(Option):
    """The prefix of the names of a run's files."""

    def check(self, value: Any) -> str:
        """Return the name, if names of files can begin with it."""
        name = str(value)
        if not name or name != Path(name).name or name in (".", "..") or "\0" in name:
            raise InvalidArgumentError(
                f"name={name!r}: a run's name is the prefix of file names, so it must not be empty "
                "or contain a path separator or a null; the place of the files is set by the "
                "directory."
            )
        if len(os.fsencode(name)) > _LONGEST_NAME:
            raise InvalidArgumentError(
                f"name={name!r}: a run's name is the prefix of file names, so it must not be "
                f"longer than {_LONGEST_NAME} bytes."
            )
        return name


class Switch(Option):
    """True or False."""

    def check(self, value: Any) -> bool:
        """Return the value, if it is one of the two."""
        if not isinstance(value, bool):
            raise self.refuse(value, "True or False")
        return value


class Pages(Option):
    """What the pages of a run show: all, nothing, or counts."""

    def check(self, value: Any) -> bool | str:
        """Return the value."""
        if value == "counts" or isinstance(value, bool):
            return bool(value) if isinstance(value, bool) else "counts"
        raise self.refuse(value, "True, False or 'counts'")


@dataclass(frozen=True)
class Choice(Option):
    """One of some texts, in capitals or not."""

    #: What a run uses for ``"off"``.
    off: Any = "off"
    #: The texts, from the type of the option.
    choices: tuple[str, ...] = ()

    def check(self, value: Any) -> Any:
        """Return the text; YAML reads a bare ``off`` as False, and None was once written for it."""
        chosen = "off" if value is False or value is None else value
        chosen = chosen.lower() if isinstance(chosen, str) else chosen
        if chosen not in self.choices:
            *others, last = map(repr, self.choices)
            raise self.refuse(value, f"{', '.join(others)} or {last}")
        return self.off if chosen == "off" else chosen


class LogLevel(Choice):
    """The least level of records that are kept."""

    def check(self, value: Any) -> int:
        """Return the level as `logging` numbers it."""
        level = super().check(value)
        return level if level == self.off else int(getattr(logging, level.upper()))


class Ship(Choice):
    """Where files are sent; ``"none"`` is the earlier word for ``"off"``."""

    def check(self, value: Any) -> Any:
        """Return the text."""
        return super().check("off" if value == "none" else value)


class Whole(Option):
    """A whole number of events."""

    def check(self, value: Any) -> int:
        """Return the number."""
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.refuse(value, "a whole number of events, such as 5000")
        return value


class Size(Option):
    """A number of bytes, or text such as ``"256MB"``."""

    def check(self, value: Any) -> int:
        """Return the bytes."""
        from dask.utils import parse_bytes

        try:
            size = int(parse_bytes(value))
        except (ValueError, TypeError, OverflowError):
            size = 0
        if isinstance(value, bool) or size < _LEAST_SEGMENT:
            raise self.refuse(value, "a size of at least 1 kB, such as '256MB'")
        return size


class Seconds(Option):
    """A number of seconds, or text such as ``"100ms"``."""

    def check(self, value: Any) -> float:
        """Return the seconds."""
        seconds = value
        if not isinstance(value, int | float):
            from dask.utils import parse_timedelta

            try:
                seconds = parse_timedelta(value, default="s")
            except (ValueError, KeyError, TypeError):
                seconds = -1.0
        if not seconds > 0:
            raise self.refuse(value, "a positive time, such as 0.1 or '100ms'")
        return float(seconds)


class Days(Option):
    """A number of days; None: no limit."""

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
    """A number of times a second; ``"off"`` is 0."""

    def check(self, value: Any) -> float:
        """Return the number."""
        number = 0 if value is False or value == "off" else value
        if (
            not isinstance(number, int | float)
            or number is True
            or not 0 <= number <= _HIGHEST_FREQUENCY
        ):
            words = f"a number of times a second from 0 (off) to {_HIGHEST_FREQUENCY}, such as 20"
            raise self.refuse(value, words)
        return float(number)


class Price(NamedTuple):
    """What a worker costs for an hour, or each of its threads."""

    amount: float
    #: The user's currency, as given; empty: none.
    label: str = ""
    per_thread: bool = False

    def of_hours(self, workers: float, threads: float) -> float:
        """Return the price of so many hours of workers, which are so many of threads."""
        return self.amount * (threads if self.per_thread else workers)

    def in_words(self, amount: float) -> str:
        """Write an amount with the label."""
        digits = 2 if amount >= 1 or amount == 0 else 2 - math.floor(math.log10(amount))
        return f"{amount:.{min(digits, 9)}f} {self.label}".rstrip()


#: A price as text: a number, a label, and what it is for.
_PRICE = re.compile(r"\s*([\d.]+(?:e-?\d+)?)\s*([^\s/\d]{0,12})\s*(?:/\s*(worker|thread|core))?\s*")


class PriceOption(Option):
    """What a worker costs for an hour: a number, or text such as ``"0.04 EUR/thread"``."""

    def check(self, value: Any) -> Price | None:
        """Return the price; None: there is none."""
        if value is None:
            return None
        words = (
            "what a worker costs for an hour: 0.12, '0.12 EUR' or, for a thread, '0.03 EUR/thread'"
        )
        found = None if isinstance(value, bool) else _PRICE.fullmatch(str(value))
        try:
            amount = float(found[1]) if found else math.nan
        except ValueError:
            amount = math.nan
        if found is None or not 0 <= amount < math.inf:
            raise self.refuse(value, words)
        return Price(amount, found[2], found[3] in {"thread", "core"})
