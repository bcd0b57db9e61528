"""The real commands, run as a shell would run them, and small traces for them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from dasfprof import CompleteEvent, FileDatabase, InstantEvent

BIN = Path(sys.executable).parent
#: Seconds; a busy machine is no failure.
DEADLINE = 240.0


def environment(**variables: Any) -> dict[str, str]:
    """This environment, with a known width and more."""
    return {**os.environ, "COLUMNS": "100", **{name: str(v) for name, v in variables.items()}}


def shell(*command: Any, cwd: Path, **variables: Any) -> subprocess.CompletedProcess[str]:
    """Run a command of this Python's environment to its end."""
    name, *args = map(str, command)
    return subprocess.run(
        [str(BIN / name), *args],
        cwd=cwd,
        env=environment(**variables),
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )


def wait_until(condition: Callable[[], Any]) -> Any:
    """Give the condition's value as soon as it is true."""
    end = monotonic() + DEADLINE
    while not (value := condition()):
        assert monotonic() < end, "waited too long"
        sleep(0.02)
    return value


def compute(key: Any, name: str, start: float, seconds: float, **args: Any) -> CompleteEvent:
    """Make a "Compute" event as DASF has it."""
    about = {"state": "memory", "size": 2_000_000, "shape": [], "dtype": "", "type": "int"}
    return CompleteEvent(
        "Compute",
        start,
        seconds,
        process_id="c096",
        thread_id="worker-c096-0",
        args={"key": key, "name": name, **about, "dependencies": [], **args},
    )


def held(start: float, tasks: int) -> InstantEvent:
    """Make a "Managed Memory" event."""
    return InstantEvent(
        "Managed Memory",
        start,
        process_id="c096",
        thread_id="worker-c096-0",
        args={"tasks": tasks, "size": 0, "state": "memory", "key": "k"},
    )


def write_trace(path: Path, *events: Any, **header: Any) -> Path:
    """Write a whole trace file."""
    with FileDatabase(path, header=header) as database:
        for event in events:
            database.record(event)
        database.writer.create()
    return path
