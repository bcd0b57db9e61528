"""All settings, declared once: name, types, default, meaning, and where they may be given.

From what stands here come the defaults of Dask's config and `dasfprof.yaml`, the keywords of
`register_default_profiler` and `profile` with their checks and their help, the flags of ``dasfprof
run`` and ``%%dasfprof``, and the fields of a run's settings.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal, TypedDict, get_args, get_type_hints

from dasfprof.config.kinds import (
    Choice,
    Frequency,
    LogLevel,
    Option,
    PriceOption,
    RunName,
    Seconds,
    Ship,
    Size,
    Switch,
    Whole,
)

ProfilerName = Literal["cprofile"]
ArgumentsKept = Literal["types", "values", "off"]
ShipName = Literal["auto", "scheduler", "storage", "off"]


class FirstOptions(TypedDict, total=False):
    """Options that may be given by position, as to DASF's `register_default_profiler`."""

    name: Annotated[str | None, RunName("default", "Prefix of the trace file names.")]
    enable_nvtx: Annotated[
        bool | None, Switch(False, "Show each task as a range in NVIDIA Nsight Systems.")
    ]
    add_time_suffix: Annotated[
        bool | None,
        Switch(
            True,
            "Add the Unix time to the name, so that each run has files of its own. Without it, "
            "numbers are added to the names of the files of a second run with the same name.",
        ),
    ]


class Recorded(TypedDict, total=False):
    """Options that say what is recorded and where it goes: keywords and flags."""

    directory: Annotated[
        str | Path | None,
        Option(
            None,
            "Directory of the trace files, on every host, or a URL such as s3://bucket/traces. "
            "Default: the working directory of the process that registers. With a URL that fsspec "
            "knows, each process writes to a temporary directory of its host, and puts what it has "
            "written there every 30 s, at 8 MB, and at flush() and the end. It finds its "
            "credentials itself.",
        ),
    ]
    sample_interval: Annotated[
        str | float | None,
        Seconds("100ms", "Seconds between two samples of processes, hosts and GPUs."),
    ]
    stack_frequency: Annotated[
        float | Literal["off"] | None,
        Frequency(
            20,
            "Maximum rate, in samples per second, at which stacks and their lines are sampled. It "
            "applies to functions whose task runs take at least 30 ms, to event loops that have "
            "been blocked for 50 ms, and to the client's main thread while it waits or has nothing "
            "on the cluster. Shorter functions, and the client at other times, are sampled about "
            "once per second, task runs under 3 ms never. 0: nothing is sampled.",
        ),
    ]
    profiler: Annotated[
        Literal["cprofile", "cProfile", "off"] | None,
        Choice(
            "off",
            "Profiler that counts and times function calls inside tasks. cprofile writes one "
            ".pstats file per worker and function next to the trace. It profiles one task run per "
            "process at a time, and counts the others as not profiled. It makes tasks with many "
            "small calls several times slower.",
            off=None,
        ),
    ]
    log_level: Annotated[
        Literal["debug", "info", "warning", "error", "critical", "off"] | None,
        LogLevel(
            "warning",
            "The least level of what tasks log that is kept, 20 records of each task run. off: the "
            "first error of each task run alone.",
            off=1 << 30,
        ),
    ]
    log_values: Annotated[
        bool | None,
        Switch(
            False,
            "Fill the values into what tasks log, where they are texts and numbers. They may be "
            "secrets.",
        ),
    ]
    record_prints: Annotated[
        bool | None,
        Switch(
            False,
            "Keep what tasks print, the first 20 lines of each task run. They are logs of the "
            "level PRINT.",
        ),
    ]
    arguments: Annotated[
        ArgumentsKept | None,
        Choice(
            "types",
            "What is kept of the arguments of task runs of 10 ms and more, and of failed ones. "
            "types: with dtype, shape and length. values: also the values of those that are "
            "numbers, texts or built-in containers, cut; they may be secrets.",
        ),
    ]
    record_code: Annotated[
        bool | None,
        Switch(
            True,
            "Keep the source of tasks' functions, 100 lines of each. Of a library's only name and "
            "line.",
        ),
    ]


class Shown(TypedDict, total=False):
    """Options that say where else a run is shown while it goes on: keywords and flags."""

    prometheus: Annotated[
        bool | None,
        Switch(
            False,
            "Show metrics of the run on the scheduler's /metrics, for Prometheus: open tasks, "
            "findings so far, and where the time went. It needs prometheus_client there: pip "
            "install 'dasfprof[prometheus]'.",
        ),
    ]


class Tuning(TypedDict, total=False):
    """Options that change how a run is written and not what: keywords and flags."""

    commit_threshold: Annotated[
        int | None, Whole(5000, "The number of pending events at which they are written.")
    ]
    flush_interval: Annotated[
        str | float | None,
        Seconds("1s", "Seconds (or text such as 500ms) after which pending events are written."),
    ]
    max_pending: Annotated[
        int | None,
        Whole(
            100_000,
            "The most pending events. New ones of hooks on Dask's event loops beyond it are "
            "dropped and counted.",
        ),
    ]
    segment_size: Annotated[
        str | int | None,
        Size(
            "256MB",
            "Bytes (or text such as 1GB) of a file after which a process goes on in another. Long "
            "runs are read in parts.",
        ),
    ]
    response_timeout: Annotated[
        str | float | None,
        Seconds(
            "5s",
            "Seconds to wait for the answer of each process, in registering, flush(), stop() and "
            "collect(). One that does not answer, as C code keeps its interpreter's lock, is named "
            "and left alone.",
        ),
    ]
    orphan_timeout: Annotated[
        str | float | None,
        Seconds(
            "5 minutes",
            "Seconds (or text such as 10 minutes) after which a run ends by itself if the process "
            "that registered it is gone, as after SIGKILL, or does not reach the scheduler over "
            "tcp or tls. If it is back in time, the run goes on. Preloads' runs have no such end.",
        ),
    ]
    ship: Annotated[
        ShipName | None,
        Ship(
            "auto",
            "Where processes send what they write. auto: workers whose directory is neither the "
            "client's nor the scheduler's send it to the scheduler, from where flush(), stop() and "
            "collect() copy it to the client's directory; with a URL as directory it is storage. "
            "scheduler: all workers do. storage: all processes put their files to the directory's "
            "URL. off: files stay where they are written, and collect() copies those of workers "
            "that are still there.",
        ),
    ]


class Options(Recorded, Shown, Tuning, total=False):
    """The keywords of `register_default_profiler`, besides those that have a position."""


class AllOptions(FirstOptions, Options, total=False):
    """All options of a recording."""


class ConfigOptions(TypedDict, total=False):
    """Settings of the analysis, of Dask's config alone."""

    analysis_memory: Annotated[
        str | int | None,
        Option(
            None,
            "Memory that an analysis may take, such as 4GB. A larger run is analysed part by part, "
            "each a window of time. null: a quarter of what is free.",
        ),
    ]
    price: Annotated[
        str | float | None,
        PriceOption(
            None,
            "What a worker costs for an hour: a number, with a currency or without, such as 0.12 "
            "or 0.12 EUR; 0.03 EUR/thread: what each of its threads costs. With it a run's cost "
            "is told, by lines, steps, clients and findings.",
        ),
    ]
    progress: Annotated[
        bool | None,
        Option(
            None,
            'Progress bars of the analysis: true, false, or null for "when a person is watching".',
        ),
    ]


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What a run uses of its options, see `Options`; off is None, 0 or ``"off"``."""

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
    record_prints: bool
    arguments: ArgumentsKept
    record_code: bool
    prometheus: bool


def _declared(kind: type) -> dict[str, Option]:
    found: dict[str, Option] = {}
    for name, hint in get_type_hints(kind, include_extras=True).items():
        (option,) = hint.__metadata__
        if isinstance(option, Choice):
            texts = [text for part in get_args(hint.__origin__) for text in get_args(part)]
            option = replace(option, choices=tuple(filter(str.islower, texts)))
        found[name] = replace(option, name=name)
    return found


#: All options of a recording, in the order of their keywords; flags of ``dasfprof run`` and
#: ``%%dasfprof``, by their names.
RECORDING = _declared(AllOptions)
#: All settings.
SETTINGS = {**RECORDING, **_declared(ConfigOptions)}


# --- Settings as text: ``python -m dasfprof.config.options`` writes `dasfprof.yaml` anew ---------

#: Where the defaults stand for readers; they are never read from there.
YAML = Path(__file__).parents[1] / "dasfprof.yaml"


def as_yaml() -> str:
    """Return all settings with their meanings and defaults, as Dask's config is written."""
    import yaml

    lines = [
        "# Settings of dasfprof in Dask's config, with their defaults.",
        "# Written by `python -m dasfprof.config.options`.",
        "dasfprof:",
    ]
    for option in SETTINGS.values():
        lines += textwrap.wrap(option.meaning, 98, initial_indent="  # ", subsequent_indent="  # ")
        lines.append("  " + yaml.safe_dump({option.config_name: option.default}).rstrip())
    return "\n".join(lines) + "\n"


def as_parameters(options: Iterable[Option]) -> str:
    """Return options as a docstring lists parameters."""
    return "\n".join(
        f"{option.name}\n{textwrap.indent(textwrap.fill(option.meaning, 92), '    ')}"
        for option in options
    )


if __name__ == "__main__":
    YAML.write_text(as_yaml(), encoding="utf-8")
