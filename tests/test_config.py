"""Settings: an argument beats the config, which beats the defaults."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import dask
import pytest
import yaml

import dasfprof
from dasfprof.errors import InvalidArgumentError
from dasfprof.recording.settings import RunSettings, make_settings

DEFAULTS = yaml.safe_load((Path(dasfprof.__file__).parent / "dasfprof.yaml").read_text())


def test_defaults_are_under_dask_config() -> None:
    import dasfprof.config  # noqa: F401

    assert dask.config.get("dasfprof.commit-threshold") == 5000
    assert dask.config.get("dasfprof") == DEFAULTS["dasfprof"]


def test_argument_beats_config_beats_default() -> None:
    assert make_settings().flush_interval == 1.0
    with dask.config.set({"dasfprof.flush-interval": "250ms", "dasfprof.name": "other"}):
        settings = make_settings(add_time_suffix=False)
        assert (settings.flush_interval, settings.name) == (0.25, "other")
        assert make_settings(flush_interval=3).flush_interval == 3.0


def test_defaults_of_yaml_and_code_agree() -> None:
    made = make_settings("x", add_time_suffix=False)
    coded = RunSettings("x", made.directory)
    fields = ("commit_threshold", "flush_interval", "max_pending", "segment_size")
    for field in (
        *fields,
        "sample_interval",
        "stack_frequency",
        "profiler",
        "memory",
        "log_level",
        "log_values",
        "record_code",
        "arguments",
        "record_prints",
        "response_timeout",
        "orphan_timeout",
        "ship",
    ):
        assert getattr(made, field) == getattr(coded, field)


@pytest.mark.parametrize("name", ["a/b", "", "..", "../x", "/tmp/x"])
def test_name_with_a_path_separator_is_refused(name: str) -> None:
    with pytest.raises(InvalidArgumentError, match="a path separator"):
        make_settings(name)


@pytest.mark.parametrize(
    "options",
    [
        {"flush_interval": -1},
        {"flush_interval": 0},
        {"sample_interval": "-5ms"},
        {"commit_threshold": 0},
        {"commit_threshold": -5},
        {"commit_threshold": 10, "max_pending": 5},
    ],
)
def test_senseless_numbers_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(InvalidArgumentError):
        make_settings("x", **options)  # type: ignore[arg-type]


def test_defaults_outlive_a_block_that_they_were_loaded_in() -> None:
    code = (
        "import dask, dasfprof\n"
        "with dask.config.set({'dasfprof.name': 'x'}):\n"
        "    from dasfprof.recording.settings import make_settings\n"
        "    inside = make_settings(add_time_suffix=False).name\n"
        "print(inside, make_settings(add_time_suffix=False).name)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["x", "default"]


def test_the_command_stuck_waits_as_long_as_the_function() -> None:
    """Each has its default: the command must not import Dask to print its help."""
    from dasfprof.cli.stuck import stuck
    from dasfprof.recording.cluster.inspection import LIMIT

    (limit,) = (param for param in stuck.params if param.name == "limit")
    assert limit.default == LIMIT
