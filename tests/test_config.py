"""Settings: an argument beats the config, which beats the defaults."""

import ast
import inspect
import subprocess
import sys
from dataclasses import fields
from typing import Any

import dask
import pytest
import yaml

import dasfprof
from dasfprof.config.options import RECORDING, SETTINGS, YAML, RunOptions
from dasfprof.errors import InvalidArgumentError
from dasfprof.recording.settings import make_settings


def test_settings_are_as_the_yaml_says() -> None:
    shown = yaml.safe_load(YAML.read_text())["dasfprof"]
    assert {name: shown[name] for name in ("flush-interval", "profiler", "log-values")} == {
        "flush-interval": "1s",
        "profiler": "off",
        "log-values": False,
    }
    assert dask.config.get("dasfprof") == shown
    assert {option.config_name: option.default for option in SETTINGS.values()} == shown
    meaning = "Maximum time before pending events are written, in seconds or as text such as 500ms."
    assert RECORDING["flush_interval"].meaning == meaning
    assert all(option.meaning.endswith(".") for option in SETTINGS.values())


def test_argument_beats_config_beats_default() -> None:
    assert make_settings().flush_interval == 1.0
    with dask.config.set({"dasfprof.flush-interval": "250ms", "dasfprof.name": "other"}):
        settings = make_settings(add_time_suffix=False)
        assert (settings.flush_interval, settings.name) == (0.25, "other")
        assert make_settings(flush_interval=3).flush_interval == 3.0


def test_defaults_of_all_that_can_be_given() -> None:
    made = make_settings()
    defaults = {
        **{"enable_nvtx": False, "commit_threshold": 5000, "flush_interval": 1.0},
        **{"max_pending": 100_000, "segment_size": 256_000_000, "response_timeout": 5.0},
        **{"orphan_timeout": 300.0, "ship": "auto", "sample_interval": 0.1},
        **{"stack_frequency": 20.0, "profiler": None, "log_level": 30, "log_values": False},
        **{"arguments": "types", "record_code": True, "prometheus": False},
    }
    assert {field.name: getattr(made, field.name) for field in fields(RunOptions)} == defaults
    assert defaults.keys() == RECORDING.keys() - {"name", "add_time_suffix", "directory"}


#: Values of a run's attributes for options that are off.
OFF = {"stack_frequency": 0.0, "profiler": None, "log_level": 1 << 30}
OFF |= {"arguments": "off", "ship": "off"}


@pytest.mark.parametrize("name", OFF)
def test_off_is_written_in_one_way(name: str) -> None:
    assert getattr(make_settings(**{name: "off"}), name) == OFF[name]
    for value in (False, "off"):  # YAML's off, without and with quotes
        with dask.config.set({f"dasfprof.{name.replace('_', '-')}": value}):
            assert getattr(make_settings(), name) == OFF[name]


def test_off_as_it_was_written_before() -> None:
    with dask.config.set({"dasfprof.profiler": None}):
        assert make_settings().profiler is None


@pytest.mark.parametrize("call", [dasfprof.register_default_profiler, dasfprof.profile])
def test_calls_tell_their_options(call: Any) -> None:
    shown = inspect.signature(call).parameters
    assert list(shown) == ["pipeline", *RECORDING]
    help_text = inspect.getdoc(call) or ""
    for option in RECORDING.values():
        assert f"\n{option.name}\n    {option.meaning[:40]}" in help_text
    assert "{options}" not in help_text


def test_flags_are_made_without_dask() -> None:
    """Scripts of ``dasfprof run`` may change what Dask reads when it is imported."""
    code = (
        "import sys\n"
        "from dasfprof.cli.run import run\n"
        "context = run.make_context('run', ['--stack-frequency', '20', '--profiler', 'cProfile',"
        " '--sample-interval', '0.2', '--no-record-code', '--name', 'n', sys.argv[0]])\n"
        "print('dask' in sys.modules)\n"
        "print({name: value for name, value in context.params.items() if value is not None})"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    has_dask, given = run.stdout.splitlines()
    assert has_dask == "False"
    assert ast.literal_eval(given) == {
        "command": ("-c",),
        "module": False,
        "head": 10,
        "name": "n",
        "record_code": False,
        "sample_interval": 0.2,
        "stack_frequency": 20.0,
        "profiler": "cprofile",
    }


@pytest.mark.parametrize(
    ("options", "words"),
    [
        *(({"name": name}, "a path separator") for name in ("a/b", "", "..")),
        *(({"flush_interval": seconds}, "flush_interval") for seconds in (-1, 0)),
        ({"sample_interval": "-5ms"}, "sample_interval"),
        *(({"commit_threshold": events}, "commit_threshold") for events in (0, -5)),
        ({"commit_threshold": 10, "max_pending": 5}, "max_pending"),
    ],
)
def test_senseless_values_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words.replace("_", ".")):
        make_settings(**options)


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
    """The command declares its default separately, so that `--help` need not import Dask."""
    from dasfprof.cli.stuck import stuck
    from dasfprof.recording.cluster.inspection import LIMIT

    (limit,) = (param for param in stuck.params if param.name == "limit")
    assert limit.default == LIMIT
