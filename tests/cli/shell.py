"""The real commands, run as a shell would run them, and small traces for them."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import traces

from dasfprof import CompleteEvent, InstantEvent

BIN = Path(sys.executable).parent
#: Seconds; a busy machine is no failure.
DEADLINE = 240.0
WORKER = "worker-c096-0"
NOTHING_KNOWN = {"shape": [], "dtype": "", "type": "int"}


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


def compute(key: Any, name: str, start: float, seconds: float, **args: Any) -> CompleteEvent:
    """Make a "Compute" event of the worker `WORKER`."""
    event = traces.compute(key, start, seconds, WORKER, size=2_000_000)
    return dataclasses.replace(event, args={**event.args, **NOTHING_KNOWN, "name": name, **args})


def held(start: float, tasks: int) -> InstantEvent:
    """Make a "Managed Memory" event of the worker `WORKER`."""
    return traces.managed(start, WORKER, tasks)
