"""Collapsed stacks: what tools that draw flame graphs read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dasfprof.report.formats.format import ExportFormat

if TYPE_CHECKING:
    from dasfprof.analysis import TraceAnalyser


def _write(analyser: TraceAnalyser, path: Path, title: str) -> None:
    from dasfprof.report.json_text import without_surrogates
    from dasfprof.report.sampled_stacks import sampled_stacks

    lines: dict[str, float] = {}
    for group in sampled_stacks(analyser.trace):
        for stack, seconds in group.stacks:
            frames = (f"{frame.function} ({frame.file}:{frame.line})" for frame in stack)
            line = ";".join(map(_plain, (group.of, group.name, *frames)))
            lines[line] = lines.get(line, 0.0) + seconds
    text = "".join(f"{line} {round(seconds * 1000)}\n" for line, seconds in lines.items())
    path.write_text(without_surrogates(text), encoding="utf-8")


def _plain(text: str) -> str:
    """Leave out what has a meaning in the format."""
    from dasfprof.text import clean

    return " ".join(clean(text).replace(";", ":").split())


FORMAT = ExportFormat(
    name="collapsed",
    about="sampled stacks as text for tools that draw flame graphs: a line a stack, milliseconds",
    ending=".collapsed.txt",
    hint="Read it with flamegraph.pl, inferno-flamegraph or https://www.speedscope.app.",
    write=_write,
)
