"""Declarations of all settings with their types. `dasfprof.yaml` contains the defaults.

These declarations determine the defaults in Dask's config, the keyword arguments of
`register_default_profiler` and `profile` with their checks and help texts, the flags of ``dasfprof
run`` and ``%%dasfprof``, and the fields of a run's settings.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict, get_args, get_type_hints

from dasfprof.config.kinds import (
    Choice,
    Days,
    Duration,
    Frequency,
    Integer,
    LogLevel,
    Option,
    Pages,
    PriceOption,
    RunName,
    Size,
    Switch,
)

ProfilerName = Literal["cprofile"]
ArgumentsKept = Literal["types", "off"]
ShipName = Literal["auto", "scheduler", "storage", "off"]


class FirstOptions(TypedDict, total=False):
    """Options that may also be passed by position, as in DASF's `register_default_profiler`."""

    name: Annotated[str | None, RunName()]
    enable_nvtx: Annotated[bool | None, Switch()]
    add_time_suffix: Annotated[bool | None, Switch()]


class Options(TypedDict, total=False):
    """Keyword-only arguments of `register_default_profiler`."""

    # Options for the contents and the location of the files.
    directory: Annotated[str | Path | None, Option()]
    sample_interval: Annotated[str | float | None, Duration()]
    stack_frequency: Annotated[float | Literal["off"] | None, Frequency()]
    profiler: Annotated[Literal["cprofile", "cProfile", "off"] | None, Choice(off=None)]
    log_level: Annotated[
        Literal["debug", "info", "warning", "error", "critical", "off"] | None,
        LogLevel(off=1 << 30),
    ]
    log_values: Annotated[bool | None, Switch()]
    arguments: Annotated[ArgumentsKept | None, Choice()]
    record_code: Annotated[bool | None, Switch()]
    # Options for showing a run while it is in progress.
    prometheus: Annotated[bool | None, Switch()]
    # Options for writing, sending and ending a run.
    commit_threshold: Annotated[int | None, Integer()]
    flush_interval: Annotated[str | float | None, Duration()]
    max_pending: Annotated[int | None, Integer()]
    segment_size: Annotated[str | int | None, Size()]
    response_timeout: Annotated[str | float | None, Duration()]
    orphan_timeout: Annotated[str | float | None, Duration()]
    ship: Annotated[ShipName | None, Choice()]


class AllOptions(FirstOptions, Options, total=False):
    """All options of a recording."""


class ConfigOptions(TypedDict, total=False):
    """Settings of preloads and of the analysis, which can only be set in Dask's config."""

    dashboard: Annotated[bool | Literal["counts"] | None, Pages()]
    run_length: Annotated[str | float | None, Duration()]
    keep_size: Annotated[str | int | None, Size()]
    keep_days: Annotated[float | None, Days()]
    analysis_memory: Annotated[str | int | None, Option()]
    price: Annotated[str | float | None, PriceOption()]
    progress: Annotated[bool | None, Option()]


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Values of the options after their checks, as a run uses them.

    The value of an option that is off is None, 0 or ``"off"``. See `Options`.
    """

    enable_nvtx: bool
    commit_threshold: int
    flush_interval: float
    max_pending: int
    segment_size: int
    response_timeout: float
    orphan_timeout: float
    ship: ShipName
    sample_interval: float
    stack_frequency: float
    profiler: ProfilerName | None
    log_level: int
    log_values: bool
    arguments: ArgumentsKept
    record_code: bool
    prometheus: bool


#: File that contains the default of each setting, after a comment with the setting's meaning.
YAML = Path(__file__).parents[1] / "dasfprof.yaml"


def _read_yaml() -> dict[str, tuple[Any, str]]:
    """Read the default and the meaning of each setting from `YAML`."""
    # Importing a YAML library would take long.
    settings: dict[str, tuple[Any, str]] = {}
    meaning: list[str] = []
    for line in YAML.read_text(encoding="utf-8").splitlines():
        if line.startswith("  # "):
            meaning.append(line[4:])
        elif line.startswith("  "):
            name, _, text = line.strip().partition(": ")
            try:
                default = json.loads(text)
            except ValueError:
                default = text.strip("'")
            settings[name.replace("-", "_")] = default, " ".join(meaning)
            meaning = []
    return settings


_DEFAULTS = _read_yaml()


def _declared(kind: type) -> dict[str, Option]:
    options: dict[str, Option] = {}
    for name, hint in get_type_hints(kind, include_extras=True).items():
        (option,) = hint.__metadata__
        if isinstance(option, Choice):
            texts = [text for part in get_args(hint.__origin__) for text in get_args(part)]
            option = replace(option, choices=tuple(filter(str.islower, texts)))
        default, meaning = _DEFAULTS[name]
        options[name] = replace(option, name=name, default=default, meaning=meaning)
    return options


#: All options of a recording by name, in the order of the keyword arguments. Each is also a flag of
#: ``dasfprof run`` and ``%%dasfprof``.
RECORDING = _declared(AllOptions)
#: All settings by name.
SETTINGS = {**RECORDING, **_declared(ConfigOptions)}


def ensure_defaults() -> None:
    """Add the default of each setting to Dask's config, unless the config has another value."""
    import dask.config

    defaults = {option.config_name: option.default for option in SETTINGS.values()}
    dask.config.update_defaults({"dasfprof": defaults})


def setting(name: str, given: Any = None) -> Any:
    """Return the checked value of a setting.

    This is `given`, or the value in Dask's config if `given` is None.

    Parameters
    ----------
    name
        Name of the setting, spelled as a keyword argument or as in the config.
    given
        The value that the user passed as an argument, or None.

    Raises
    ------
    InvalidArgumentError
        If the value is not valid.
    """
    import dask.config

    option = SETTINGS[name.replace("-", "_")]
    # The config lacks our defaults if a block of `dask.config.set` that set one of our keys has
    # ended, because this removed all of them.
    key = f"dasfprof.{option.config_name}"
    return option.check(dask.config.get(key, option.default, override_with=given))
