"""Default output of commands fits on the terminal's screen, and is complete in a pipe."""

import contextlib
import fcntl
import os
import struct
import subprocess
import termios
from pathlib import Path

import pytest
from shell import BIN, environment, shell
from traces import Plan, filled

pytestmark = pytest.mark.whole_program

LINES, COLUMNS = 34, 100


def on_a_screen(*command: str, cwd: Path) -> list[str]:
    """Run a command in a terminal of a given size, and return its lines."""
    terminal, inner = os.openpty()
    fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    variables = environment(NO_COLOR=1, TERM="dumb")
    del variables["COLUMNS"]
    options = {"cwd": cwd, "env": variables, "stdin": inner, "stdout": inner}
    started = subprocess.Popen([str(BIN / command[0]), *command[1:]], **options)
    os.close(inner)
    text = b""
    with contextlib.suppress(OSError):  # Linux raises it at the end of a terminal
        while part := os.read(terminal, 65536):
            text += part
    os.close(terminal)
    assert started.wait() == 0
    return text.decode().splitlines()


def test_an_analysis_fills_one_screen(tmp_path: Path) -> None:
    names = [f"part{number}" for number in range(12)]
    Plan(filled(names, 0.5, count=6)).write(tmp_path / "run")
    lines = on_a_screen("dasfprof", "analyse", "run", cwd=tmp_path)
    assert len(lines) <= LINES, "\n".join(lines)
    text = " ".join("\n".join(lines).split())
    assert "Findings" in text and "Not shown: -a " in text
    assert "task, balance. Use --head 10 to print everything." in text
    whole = shell("dasfprof", "analyse", "run", cwd=tmp_path).stdout
    assert "print everything" not in whole
    assert len(whole.splitlines()) > LINES
    asked = on_a_screen("dasfprof", "analyse", "--head", "10", "run", cwd=tmp_path)
    assert [line.rstrip() for line in asked] == [line.rstrip() for line in whole.splitlines()]
