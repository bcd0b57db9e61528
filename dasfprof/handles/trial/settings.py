"""The settings of a change: cluster keywords, environment variables, Dask's config, arguments.

The form of a name determines the kind of setting: ``n_workers=4``, ``OMP_NUM_THREADS=1``,
``array.chunk-size=64MiB`` or ``--chunk=5000``. This module parses and checks settings.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dask.utils import parse_bytes

from dasfprof.analysis.diagnosis.registry import FEWER, MORE, OF_CLUSTERS, OF_PROGRAMS, Value
from dasfprof.errors import InvalidArgumentError

_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")
_ARGUMENT = re.compile(r"--?[A-Za-z][\w.-]*")
_CONFIG = re.compile(r"[a-z][a-z0-9_-]*(\.[a-z0-9_-]+)+")
_SWITCHES = {"true": True, "false": False, "yes": True, "no": False, "1": True, "0": False}
_RELATIVE = (MORE, FEWER)


@dataclass(frozen=True)
class Shape:
    """The number of workers of a run's cluster, and the threads and memory limit of each worker.

    They are read from the trace of the run.
    """

    workers: int
    threads: int
    #: Memory limit of a worker in bytes, or NaN if there is no limit or it is unknown.
    memory_limit: float


@dataclass(frozen=True)
class Settings:
    """The settings of a change, divided into cluster keywords, variables, config and arguments."""

    options: Mapping[str, Any] = field(default_factory=dict)
    #: Keywords for clusters that the program creates without giving these keywords itself.
    defaults: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    #: Arguments of the program by name.
    arguments: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls, change: Mapping[str, Value], *, defaults: Mapping[str, Any] | None = None
    ) -> Settings:
        """Return the settings of a checked change, divided by kind.

        `defaults` are values of cluster keywords that are used if the change does not set them.
        """
        options = {name: value for name, value in change.items() if name in OF_CLUSTERS}
        environment = {n: str(value) for n, value in change.items() if _VARIABLE.fullmatch(n)}
        arguments = {n: str(value) for n, value in change.items() if _ARGUMENT.fullmatch(n)}
        others = {*options, *environment, *arguments}
        config = {n: value for n, value in change.items() if n not in others}
        unset = {n: value for n, value in (defaults or {}).items() if n not in options}
        return cls(options, unset, environment, config, arguments)

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables for the change, including its settings of Dask's config."""
        config = {
            "DASK_" + name.upper().replace(".", "__").replace("-", "_"): str(value)
            for name, value in self.config.items()
        }
        return {**self.environment, **config}


def read_change(text: str) -> tuple[str, Value]:
    """Parse ``NAME=VALUE``.

    Raises
    ------
    InvalidArgumentError
        If the text has no value, or an unknown name.
    """
    name, equals, value = text.partition("=")
    if not equals or not value:
        raise InvalidArgumentError(f"{text!r} sets nothing. Pass NAME=VALUE, such as n_workers=4.")
    return name, checked(name, value)


def read_values(text: str) -> tuple[str, list[Value]]:
    """Parse ``NAME=VALUE,VALUE``.

    Raises
    ------
    InvalidArgumentError
        If the text has no value, or an unknown name or value.
    """
    name, _, values = text.partition("=")
    parsed = [read_change(f"{name}={value.strip()}")[1] for value in values.split(",")]
    if relative := [value for value in parsed if name in OF_CLUSTERS and value in _RELATIVE]:
        raise InvalidArgumentError(f"{name}={relative[0]}: expected numbers.")
    return name, parsed


def checked_parameter(name: str) -> None:
    """Raise `InvalidArgumentError` unless a name is an argument or an environment variable."""
    if not (_VARIABLE.fullmatch(name) or _ARGUMENT.fullmatch(name)):
        raise InvalidArgumentError(
            f"{name!r} is not a parameter of a program. Pass an argument, such as --chunk, or an "
            "environment variable."
        )


def checked(name: str, value: Value) -> Value:
    """Convert a value to the type of its setting, and return it.

    Raises
    ------
    InvalidArgumentError
        If there is no such setting, or the setting does not allow this value.
    """
    if name in ("n_workers", "threads_per_worker"):
        return value if value in _RELATIVE else _integer(name, value)
    if name == "processes":
        return _switch(name, value)
    if name == "memory_limit":
        return value if value in _RELATIVE else _size(name, value)
    if name in OF_PROGRAMS:
        raise InvalidArgumentError(
            f"{name!r} is set in the program's own code. Change it there, and compare the runs "
            "with dasfprof compare. Settings that the program reads can be tested: "
            "array.chunk-size of Dask's config, an environment variable, or an argument such as "
            "--chunk."
        )
    if _VARIABLE.fullmatch(name) or _CONFIG.fullmatch(name) or _ARGUMENT.fullmatch(name):
        return value
    raise InvalidArgumentError(
        f"there is no setting {name!r}. Pass one of {', '.join(OF_CLUSTERS)}; an environment "
        "variable, such as OMP_NUM_THREADS; a setting of Dask's config with its dots, such as "
        "array.chunk-size; or an argument of the script, such as --chunk."
    )


def _integer(name: str, value: Value) -> int:
    try:
        number = int(value)
    except ValueError:
        number = 0
    if number < 1 or isinstance(value, bool):
        raise InvalidArgumentError(
            f"{name}={value!r}: expected a positive integer, {MORE} or {FEWER}."
        )
    return number


def _switch(name: str, value: Value) -> bool:
    switch = value if isinstance(value, bool) else _SWITCHES.get(str(value).lower())
    if switch is None:
        raise InvalidArgumentError(f"{name}={value!r}: expected true or false.")
    return switch


def _size(name: str, value: Value) -> Value:
    try:
        size = parse_bytes(value)
    except ValueError:
        size = 0
    if not size > 0 or isinstance(value, bool):
        raise InvalidArgumentError(
            f"{name}={value!r}: expected a size such as 4GB, {MORE} or {FEWER}."
        )
    return value if isinstance(value, str) and not value.isdigit() else int(size)


def in_numbers(change: Mapping[str, Value], shape: Shape) -> dict[str, Value]:
    """Return a change with numbers instead of ``more`` (twice the value) and ``fewer`` (half).

    Raises
    ------
    InvalidArgumentError
        If the recorded value cannot be halved, or is unknown.
    """
    had = {
        "n_workers": shape.workers,
        "threads_per_worker": shape.threads,
        "memory_limit": shape.memory_limit,
    }
    numbers = dict(change)
    for name, value in change.items():
        if name not in had or value not in _RELATIVE:
            continue
        number = had[name] * (2 if value == MORE else 0.5)
        if not number >= 1:
            raise InvalidArgumentError(f"{name}={value}: the program's cluster had {had[name]:g}.")
        numbers[name] = int(number)
    return numbers
