"""``dasfprof run``, ``%%dasfprof`` and the preload record the same, and accept all options."""

import json
from pathlib import Path
from typing import Any

import pytest
from shell import shell

from dasfprof import TraceAnalyser
from dasfprof.config.options import RECORDING, RunOptions

pytestmark = pytest.mark.whole_program

#: A non-default value of each option, as text.
OTHERS = {
    **{"enable-nvtx": "true", "add-time-suffix": "false", "sample-interval": "0.25"},
    **{"stack-frequency": "7", "profiler": "cprofile", "log-level": "error", "log-values": "true"},
    **{"arguments": "off", "record-code": "false", "commit-threshold": "100"},
    **{"flush-interval": "500ms", "max-pending": "50000", "segment-size": "2MB"},
    **{"response-timeout": "20", "orphan-timeout": "200", "ship": "off", "prometheus": "true"},
}
#: Options that are not among the recorded settings.
_NOT_TOLD = {"enable-nvtx", "response-timeout", "orphan-timeout", "ship"}

WORK = """
from distributed import Client, LocalCluster
import json, sys

def work(client):
    assert client.submit(abs, -1).result() == 1

if __name__ == "__main__":
    with LocalCluster(1, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster:
        with Client(cluster) as client:
            work(client)
"""
CELL = """
from IPython.testing.globalipapp import start_ipython
shell = start_ipython()
shell.user_ns.update(work=work, client=client)
shell.run_line_magic("load_ext", "dasfprof")
shell.run_cell_magic("dasfprof", sys.argv[1], "work(client)")
"""


def flags(options: dict[str, str]) -> list[str]:
    found = [f"--directory={options['directory']}", f"--name={options['name']}"]
    for name, value in options.items():
        if value in ("true", "false"):
            found.append(f"--{'' if value == 'true' else 'no-'}{name}")
        elif name not in ("directory", "name"):
            found.append(f"--{name}={value}")
    return found


def run_command(directory: Path, options: dict[str, str]) -> Any:
    return shell("dasfprof", "run", *flags(options), "work.py", cwd=directory)


def run_cell(directory: Path, options: dict[str, str]) -> Any:
    lines = [f"            {line}" for line in CELL.splitlines()]
    (directory / "cell.py").write_text(WORK.replace("            work(client)", "\n".join(lines)))
    given = [flag for flag in flags(options) if not flag.startswith("--name=")]
    return shell("python", "cell.py", f"{options['name']} {' '.join(given)}", cwd=directory)


def run_preload(directory: Path, options: dict[str, str]) -> Any:
    named = {f"DASK_DASFPROF__{name.upper().replace('-', '_')}": v for name, v in options.items()}
    named["DASK_DISTRIBUTED__CLIENT__PRELOAD"] = json.dumps(["dasfprof.preload"])
    return shell("python", "work.py", cwd=directory, **named)  # type: ignore[arg-type]


def recorded(run: Any, tmp_path: Path, options: dict[str, str]) -> dict[str, str]:
    """Return the settings of a run, and its number of task runs."""
    directory = tmp_path / f"{run.__name__}-{len(options)}"
    directory.mkdir()
    (directory / "work.py").write_text(WORK)
    done = run(directory, {"directory": "traces", "name": "mine", **options})
    assert done.returncode == 0, done.stdout + done.stderr
    trace = TraceAnalyser(directory / "traces", progress=False).trace
    assert len(trace.tasks) == 1
    assert not [note for note in trace.notes if note.kind == "unknown-events"]
    settings = trace.surroundings.settings
    prefix = "dasfprof."
    return {name.removeprefix(prefix): settings[name] for name in settings if prefix in name}


def test_each_way_records_the_same_by_default(tmp_path: Path) -> None:
    ways = (run_command, run_cell, run_preload)
    by_command, by_cell, by_preload = (recorded(way, tmp_path, {}) for way in ways)
    assert by_command == by_cell == by_preload
    assert by_command["stack-frequency"] == "20.0"


def test_each_way_takes_every_option(tmp_path: Path) -> None:
    names = {option.config_name for option in RECORDING.values()}
    assert set(OTHERS) | {"directory", "name"} == names
    assert len(names) > len(RunOptions.__dataclass_fields__)
    ways = (run_command, run_cell, run_preload)
    by_command, by_cell, by_preload = (recorded(way, tmp_path, OTHERS) for way in ways)
    assert by_command == by_cell == by_preload
    default = {option.config_name: str(option.default) for option in RECORDING.values()}
    assert set(by_command) | _NOT_TOLD | {"add-time-suffix"} == set(OTHERS)
    assert not [name for name, value in by_command.items() if value == default[name]]
    assert by_command["segment-size"] == "2000000"
