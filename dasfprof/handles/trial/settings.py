"""What a change sets: keywords of local clusters, the environment, Dask's config, arguments.

``n_workers=4``, ``OMP_NUM_THREADS=1``, ``array.chunk-size=64MiB`` and ``--chunk=5000`` tell by
their names what they are of. They are read and checked here.
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
    """The cluster of a run, by its trace."""

    workers: int
    threads: int
    #: Bytes; NaN: none, or unknown.
    memory_limit: float


@dataclass(frozen=True)
class Settings:
    """A change, by what it is of."""

    options: Mapping[str, Any] = field(default_factory=dict)
    #: Keywords of clusters to which the program gives none of that name.
    defaults: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    #: The program's own arguments.
    arguments: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls, change: Mapping[str, Value], *, defaults: Mapping[str, Any] | None = None
    ) -> Settings:
        """Divide a change, which was checked, by what it is of."""
        options = {name: value for name, value in change.items() if name in OF_CLUSTERS}
        environment = {n: str(value) for n, value in change.items() if _VARIABLE.fullmatch(n)}
        arguments = {n: str(value) for n, value in change.items() if _ARGUMENT.fullmatch(n)}
        others = {*options, *environment, *arguments}
        config = {n: value for n, value in change.items() if n not in others}
        kept = {n: value for n, value in (defaults or {}).items() if n not in options}
        return cls(options, kept, environment, config, arguments)

    @property
    def variables(self) -> dict[str, str]:
        """The environment of a process that has it, Dask's config among it."""
        config = {
            "DASK_" + name.upper().replace(".", "__").replace("-", "_"): str(value)
            for name, value in self.config.items()
        }
        return {**self.environment, **config}


def read_change(text: str) -> tuple[str, Value]:
    """Read ``NAME=VALUE``.

    Raises
    ------
    InvalidArgumentError
        If it has no value, or a name that says nothing.
    """
    name, equals, value = text.partition("=")
    if not equals or not value:
        raise InvalidArgumentError(f"{text!r} sets nothing: give NAME=VALUE, such as n_workers=4.")
    return name, checked(name, value)


def read_values(text: str) -> tuple[str, list[Value]]:
    """Read ``NAME=VALUE,VALUE``.

    Raises
    ------
    InvalidArgumentError
        If it has no value, or a name or a value that says nothing.
    """
    name, _, values = text.partition("=")
    found = [read_change(f"{name}={value.strip()}")[1] for value in values.split(",")]
    if relative := [value for value in found if name in OF_CLUSTERS and value in _RELATIVE]:
        raise InvalidArgumentError(f"{name}={relative[0]}: give numbers.")
    return name, found


def checked_parameter(name: str) -> None:
    """Refuse what is no argument and no variable of the environment.

    Raises
    ------
    InvalidArgumentError
        If it is neither.
    """
    if not (_VARIABLE.fullmatch(name) or _ARGUMENT.fullmatch(name)):
        raise InvalidArgumentError(
            f"{name!r} is no parameter of a program: give an argument, such as --chunk, or a "
            "variable of the environment."
        )


def checked(name: str, value: Value) -> Value:
    """Return the value of a setting as its keyword takes it.

    Raises
    ------
    InvalidArgumentError
        If there is no such setting, or it does not take the value.
    """
    if name in ("n_workers", "threads_per_worker"):
        return value if value in _RELATIVE else _whole(name, value)
    if name == "processes":
        return _switch(name, value)
    if name == "memory_limit":
        return value if value in _RELATIVE else _size(name, value)
    if name in OF_PROGRAMS:
        raise InvalidArgumentError(
            f"{name!r} is in the program's own code: change it there, and compare the runs with "
            "dasfprof compare. What the program reads can be tried: array.chunk-size of Dask's "
            "config, a variable of the environment, an argument such as --chunk."
        )
    if _VARIABLE.fullmatch(name) or _CONFIG.fullmatch(name) or _ARGUMENT.fullmatch(name):
        return value
    raise InvalidArgumentError(
        f"there is no setting {name!r}: give one of {', '.join(OF_CLUSTERS)}; a variable of the "
        "environment, such as OMP_NUM_THREADS; a setting of Dask's config with its dots, such as "
        "array.chunk-size; or an argument of the script, such as --chunk."
    )


def _whole(name: str, value: Value) -> int:
    try:
        number = int(value)
    except ValueError:
        number = 0
    if number < 1 or isinstance(value, bool):
        raise InvalidArgumentError(
            f"{name}={value!r}: give a whole number from 1 on, {MORE} or {FEWER}."
        )
    return number


def _switch(name: str, value: Value) -> bool:
    found = value if isinstance(value, bool) else _SWITCHES.get(str(value).lower())
    if found is None:
        raise InvalidArgumentError(f"{name}={value!r}: give true or false.")
    return found


def _size(name: str, value: Value) -> Value:
    try:
        size = parse_bytes(value)
    except ValueError:
        size = 0
    if not size > 0 or isinstance(value, bool):
        raise InvalidArgumentError(f"{name}={value!r}: give a size such as 4GB, {MORE} or {FEWER}.")
    return value if isinstance(value, str) and not value.isdigit() else int(size)


def in_numbers(change: Mapping[str, Value], shape: Shape) -> dict[str, Value]:
    """Return a change with numbers for ``more`` and ``fewer``: twice as many, and half of them.

    Raises
    ------
    InvalidArgumentError
        If there is nothing to take half of, or no limit to be more than.
    """
    had = {
        "n_workers": shape.workers,
        "threads_per_worker": shape.threads,
        "memory_limit": shape.memory_limit,
    }
    found = dict(change)
    for name, value in change.items():
        if name not in had or value not in _RELATIVE:
            continue
        number = had[name] * (2 if value == MORE else 0.5)
        if not number >= 1:
            raise InvalidArgumentError(f"{name}={value}: the program's cluster had {had[name]:g}.")
        found[name] = int(number)
    return found
