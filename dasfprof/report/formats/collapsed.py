"""Collapsed stacks: what tools that draw flame graphs read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dasfprof.report.json_text import without_surrogates
from dasfprof.report.sampled_stacks import sampled_stacks
from dasfprof.text import clean

if TYPE_CHECKING:
    from dasfprof.analysis import Analyser


def write_collapsed(analyser: Analyser, path: Path, title: str) -> None:
    """Write a line a stack: its group, its frames from the outermost on, milliseconds."""
    lines: dict[str, float] = {}
    for group in sampled_stacks(analyser.run):
        for stack, seconds in group.stacks:
            frames = (f"{frame.function} ({frame.file}:{frame.line})" for frame in stack)
            line = ";".join(map(_plain, (group.of, group.name, *frames)))
            lines[line] = lines.get(line, 0.0) + seconds
    text = "".join(f"{line} {round(seconds * 1000)}\n" for line, seconds in lines.items())
    path.write_text(without_surrogates(text), encoding="utf-8")


def _plain(text: str) -> str:
    """Leave out what has a meaning in the format."""
    return " ".join(clean(text).replace(";", ":").split())
