"""The commands as such: help, versions, entry points, what they import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from shell import BIN, environment, shell
from traces import write_trace

import dasfprof

COMMANDS = ("demo", "run", "analyse", "report", "export", "info", "stuck", "compare", "history")


def test_help_names_commands_and_exit_codes(tmp_path: Path) -> None:
    done = shell("dasfprof", "--help", cwd=tmp_path)
    assert done.returncode == 0
    assert all(f"\n  {name} " in done.stdout for name in COMMANDS)
    assert "Exit codes: 0 success, 1 " in done.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_help(command: str, tmp_path: Path) -> None:
    done = shell("dasfprof", command, "-h", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Usage: dasfprof " + command in done.stdout
    assert f"Examples:\n    dasfprof {command}" in done.stdout


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; from dasfprof.cli.main import cli\n"
        "try: cli(['--help'])\n"
        "except SystemExit: print('LOADED', *sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(run.stdout.partition("LOADED")[2].split())
    assert not loaded & {"dask", "distributed", "pandas", "numpy", "networkx", "msgpack", "tqdm"}


def test_version(tmp_path: Path) -> None:
    done = shell("dasfprof", "--version", cwd=tmp_path)
    assert dasfprof.__version__ in done.stdout


def test_no_command_shows_the_help(tmp_path: Path) -> None:
    done = shell("dasfprof", cwd=tmp_path)
    assert "Usage: dasfprof" in done.stdout + done.stderr


def test_as_a_module(tmp_path: Path) -> None:
    write_trace(tmp_path / "mine.msgpack")
    arguments = (["info", "mine.msgpack"], ["info", "nothing"])
    for args in arguments:
        command = shell("dasfprof", *args, cwd=tmp_path)
        module = shell("python", "-m", "dasfprof", *args, cwd=tmp_path)
        assert (module.returncode, module.stdout, module.stderr) == (
            command.returncode,
            command.stdout,
            command.stderr,
        )


def test_as_a_command_of_dask(tmp_path: Path) -> None:
    write_trace(tmp_path / "mine.msgpack")
    done = shell("dask", "dasfprof", "info", "mine.msgpack", cwd=tmp_path)
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "Run mine.msgpack")
    failed = shell("dask", "dasfprof", "info", "nothing", cwd=tmp_path)
    assert failed.returncode == 1
    assert failed.stderr.startswith("Error: no trace file")
    assert "Traceback" not in failed.stderr


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    write_trace(tmp_path / "mine.msgpack")
    piped = subprocess.run(
        f"{BIN / 'dasfprof'} info mine.msgpack | true",
        shell=True,
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert "Traceback" not in piped.stderr
    assert "Error" not in piped.stderr


def test_a_stream_without_the_signs_of_tables(tmp_path: Path) -> None:
    write_trace(tmp_path / "größe.msgpack")
    done = shell("dasfprof", "info", "größe.msgpack", cwd=tmp_path, PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "Run gr\\xf6\\xdfe.msgpack")
