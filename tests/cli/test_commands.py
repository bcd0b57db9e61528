"""All commands: help, versions, entry points, and imports."""

import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner
from shell import BIN, environment, invoke, shell
from traces import write_trace

import dasfprof
from dasfprof.cli.main import cli

COMMANDS = ("demo", "run", "analyse", "report", "export", "info", "stuck", "compare", "history")


def test_help_and_version(tmp_path: Path) -> None:
    done = shell("dasfprof", "--help", cwd=tmp_path)
    assert done.returncode == 0
    assert all(f"\n  {name} " in done.stdout for name in COMMANDS)
    assert "Exit codes: 0 success, 1 " in done.stdout
    assert "Usage: " in invoke().output
    assert dasfprof.__version__ in invoke("--version").stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_help(command: str) -> None:
    done = CliRunner().invoke(cli, [command, "-h"], prog_name="dasfprof")
    assert (done.exit_code, done.stderr) == (0, "")
    assert "Usage: dasfprof " + command in done.stdout
    assert f"Examples:\n    dasfprof {command}" in done.stdout


@pytest.mark.whole_program
def test_as_a_module_and_as_a_command_of_dask(tmp_path: Path) -> None:
    write_trace(tmp_path / "mine.msgpack")
    done = shell("dask", "dasfprof", "info", "mine.msgpack", cwd=tmp_path)
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "Run mine.msgpack")
    for prefix in (["python", "-m", "dasfprof"], ["dask", "dasfprof"]):
        failed = shell(*prefix, "info", "nothing", cwd=tmp_path)
        assert failed.returncode == 1
        assert failed.stderr.startswith("Error: no trace file")
        assert "Traceback" not in failed.stderr


@pytest.mark.whole_program
def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    write_trace(tmp_path / "mine.msgpack")
    options = {"shell": True, "cwd": tmp_path, "env": environment(), "text": True}
    command = f"{BIN / 'dasfprof'} info mine.msgpack | true"
    piped = subprocess.run(command, stderr=subprocess.PIPE, check=True, **options)
    assert "Traceback" not in piped.stderr
    assert "Error" not in piped.stderr


@pytest.mark.whole_program
def test_a_stream_without_the_signs_of_tables(tmp_path: Path) -> None:
    write_trace(tmp_path / "größe.msgpack")
    done = shell("dasfprof", "info", "größe.msgpack", cwd=tmp_path, PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "Run gr\\xf6\\xdfe.msgpack")
