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
            "Add the Unix time to the run's name, so that the files of each run have unique "
            "names. Without it, a second run with the same name adds numbers to its file names.",
        ),
    ]


class Recorded(TypedDict, total=False):
    """Options that say what is recorded and where it goes: keywords and flags."""

    directory: Annotated[
        str | Path | None,
        Option(
            None,
            "Directory of the trace files, on every host, or a URL such as s3://bucket/traces. "
            "The default is the working directory of the process that registers the profiler. "
            "With a URL, each process writes to a temporary directory and uploads new data every "
            "30 s, every 8 MB, and at flush() and stop(). fsspec looks up the credentials.",
        ),
    ]
    sample_interval: Annotated[
        str | float | None,
        Seconds("100ms", "Interval between two samples of processes, hosts and GPUs."),
    ]
    stack_frequency: Annotated[
        float | Literal["off"] | None,
        Frequency(
            20,
            "Maximum rate, in samples per second, at which stacks and their lines are sampled. It "
            "applies to functions whose task runs take at least 30 ms, to event loops that have "
            "been blocked for 50 ms, and to the client's main thread while it waits or has "
            "nothing on the cluster. Shorter functions, and the client at other times, are "
            "sampled about once per second. Task runs shorter than 3 ms are not sampled. 0 turns "
            "sampling off.",
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
            "Minimum level of the log records to keep, up to 20 per task run. off keeps only the "
            "first error of each task run.",
            off=1 << 30,
        ),
    ]
    log_values: Annotated[
        bool | None,
        Switch(
            False,
            "Record the values in log messages, if they are texts or numbers. They may be "
            "secrets. Without this option, only the message templates are recorded.",
        ),
    ]
    record_prints: Annotated[
        bool | None,
        Switch(
            False,
            "Record what tasks print, up to 20 lines per task run, as log records of level PRINT.",
        ),
    ]
    arguments: Annotated[
        ArgumentsKept | None,
        Choice(
            "types",
            "What to record about arguments, for task runs of at least 10 ms and failed ones. "
            "types records names, types, dtypes and shapes. values also records numbers, texts "
            "and built-in containers, shortened. They may be secrets. off records nothing.",
        ),
    ]
    record_code: Annotated[
        bool | None,
        Switch(
            True,
            "Record the source of task functions, up to 100 lines each. For library functions, "
            "record only the name and line.",
        ),
    ]


class Shown(TypedDict, total=False):
    """Options that say where else a run is shown while it goes on: keywords and flags."""

    prometheus: Annotated[
        bool | None,
        Switch(
            False,
            "Publish metrics of the run on the scheduler's /metrics page, for Prometheus: open "
            "tasks, findings so far, and thread time by category. The scheduler needs "
            "prometheus_client: pip install 'dasfprof[prometheus]'.",
        ),
    ]


class Tuning(TypedDict, total=False):
    """Options that change how a run is written and not what: keywords and flags."""

    commit_threshold: Annotated[
        int | None, Whole(5000, "Number of pending events at which they are written.")
    ]
    flush_interval: Annotated[
        str | float | None,
        Seconds(
            "1s",
            "Maximum time before pending events are written, in seconds or as text such as 500ms.",
        ),
    ]
    max_pending: Annotated[
        int | None,
        Whole(
            100_000,
            "Maximum number of pending events. Beyond it, new events from hooks on Dask's event "
            "loops are dropped and counted.",
        ),
    ]
    segment_size: Annotated[
        str | int | None,
        Size(
            "256MB",
            "File size at which a process starts a new file, in bytes or as text such as 1GB. "
            "Long runs are read file by file.",
        ),
    ]
    response_timeout: Annotated[
        str | float | None,
        Seconds(
            "5s",
            "Time to wait for the answer of each process, in seconds, when registering and in "
            "flush(), stop() and collect(). A process that does not answer, for example because C "
            "code holds the GIL, is reported and skipped.",
        ),
    ]
    orphan_timeout: Annotated[
        str | float | None,
        Seconds(
            "5 minutes",
            "Time after which a run stops by itself if its client is gone or cannot reach the "
            "scheduler, in seconds or as text such as 10 minutes. If the client reconnects "
            "earlier, the run continues. Runs of a preload do not stop this way.",
        ),
    ]
    ship: Annotated[
        ShipName | None,
        Ship(
            "auto",
            "Where processes send their files. auto sends the files of workers to the scheduler "
            "if they do not share a directory with the client or the scheduler, and flush(), "
            "stop() and collect() copy them to the client. With a URL as directory, auto means "
            "storage. scheduler sends the files of all workers to the scheduler. storage uploads "
            "the files of all processes to the URL. off leaves all files where they are written, "
            "and collect() copies those of running workers.",
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
            "Maximum memory for an analysis, such as 4GB. A larger run is analysed in time "
            "windows. The default, null, is a quarter of the free memory.",
        ),
    ]
    price: Annotated[
        str | float | None,
        PriceOption(
            None,
            "Price of a worker per hour, such as 0.12 or 0.12 EUR, or of a thread, such as 0.03 "
            "EUR/thread. With a price, tables report the cost of the run by line, step, client "
            "and finding.",
        ),
    ]
    progress: Annotated[
        bool | None,
        Option(
            None,
            "Whether an analysis shows progress bars: true or false. The default, null, shows "
            "them in a terminal or notebook.",
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
