"""Real commands, run like in a shell, and small traces for them."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import traces
from click.testing import CliRunner, Result
from jsonschema import Draft202012Validator

from dasfprof import CompleteEvent, InstantEvent
from dasfprof.cli.main import cli
from dasfprof.report.documents import read_schema

BIN = Path(sys.executable).parent
#: Time limit (s), long enough for a busy machine.
DEADLINE = 240.0
WORKER = "worker-c096-0"
NOTHING_KNOWN = {"shape": [], "dtype": "", "type": "int"}


def environment(**variables: Any) -> dict[str, str]:
    """Return this environment with a known width and more variables."""
    return {**os.environ, "COLUMNS": "100", **{name: str(v) for name, v in variables.items()}}


def shell(*command: Any, cwd: Path, **variables: Any) -> subprocess.CompletedProcess[str]:
    name, *args = map(str, command)
    streams: dict[str, Any] = {"capture_output": True, "text": True, "timeout": DEADLINE}
    place = {"cwd": cwd, "env": environment(**variables)}
    return subprocess.run([str(BIN / name), *args], check=False, **place, **streams)


def invoke(*args: Any, columns: int = 100) -> Result:
    """Run a command of dasfprof in this process, with a terminal width."""
    env = {"COLUMNS": str(columns)}
    return CliRunner().invoke(cli, [*map(str, args)], env=env, catch_exceptions=False)


def document_of(
    command: str, *args: Any, cwd: Path, code: int = 0
) -> tuple[dict[str, Any], subprocess.CompletedProcess[str]]:
    """Run a command with ``--json``, and return its document, which fits the schema, and result."""
    done = shell("dasfprof", command, "--json", *args, cwd=cwd)
    assert done.returncode == code, done.stderr
    document: dict[str, Any] = json.loads(done.stdout.partition("\n")[0])
    Draft202012Validator(read_schema(command)).validate(document)
    return document, done


def compute(key: Any, name: str, start: float, seconds: float, **args: Any) -> CompleteEvent:
    event = traces.compute(key, start, seconds, WORKER, size=2_000_000)
    return dataclasses.replace(event, args={**event.args, **NOTHING_KNOWN, "name": name, **args})


def held(start: float, tasks: int) -> InstantEvent:
    return traces.managed(start, WORKER, tasks)
