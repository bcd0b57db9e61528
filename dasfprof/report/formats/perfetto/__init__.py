"""Perfetto's own format: protocol buffers, which it opens and searches sooner than JSON."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dasfprof.report.formats.format import ExportFormat

if TYPE_CHECKING:
    from dasfprof.analysis import TraceAnalyser


def _write(analyser: TraceAnalyser, path: Path, title: str) -> None:
    from dasfprof.report.formats.perfetto.trace_file import write_perfetto

    write_perfetto(analyser.trace, path, title=title)


FORMAT = ExportFormat(
    name="perfetto",
    about="one file in Perfetto's own format, compressed if its name ends in .gz",
    ending=".pftrace",
    hint="Open it at https://ui.perfetto.dev (it stays on this machine).",
    write=_write,
)
