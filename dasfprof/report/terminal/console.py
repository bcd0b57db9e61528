"""The console on which everything is laid out: rich's, held to what the stream can show.

Text of a trace is never rich's markup, and is cleaned before it comes here.
"""

from __future__ import annotations

import io
import re
import sys
from typing import Any, TextIO

from rich.console import Console, RenderableType

from dasfprof.report.terminal.output import plain, terminal_width

_SPACES = re.compile(r" +\n")


class _PlainStream:
    """A stream on which characters that its encoding lacks are replaced."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        if not self._stream.isatty():  # rich fills lines with spaces
            text = _SPACES.sub("\n", text)
        self._stream.write(plain(text, self._stream))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def console(*, err: bool = False) -> Console:
    """Return the console of standard output or standard error, as wide as the terminal."""
    stream: Any = _PlainStream(sys.stderr if err else sys.stdout)
    return Console(
        file=stream,
        width=terminal_width(),
        markup=False,
        highlight=False,
        emoji=False,
        force_jupyter=False,
    )


def as_text(renderable: RenderableType, width: int) -> str:
    """Lay something out as plain lines."""
    lines = io.StringIO()
    Console(
        file=lines,
        width=width,
        markup=False,
        highlight=False,
        emoji=False,
        force_jupyter=False,
        force_terminal=False,
        color_system=None,
    ).print(renderable)
    return "\n".join(line.rstrip() for line in lines.getvalue().splitlines())
