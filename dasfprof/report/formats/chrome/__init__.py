"""The Chrome Trace Event Format, for Chrome's trace viewer and others that read it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dasfprof.report.formats.format import ExportFormat

if TYPE_CHECKING:
    from dasfprof.analysis import TraceAnalyser


def _write(analyser: TraceAnalyser, path: Path, title: str) -> None:
    from dasfprof.report.formats.chrome.trace_file import write_chrome_trace

    write_chrome_trace(analyser.trace, path, title=title)


FORMAT = ExportFormat(
    name="chrome",
    about="the same as JSON, a Chrome trace, for other viewers; compressed if it ends in .gz",
    ending=".json.gz",
    hint="Open it with chrome://tracing; Perfetto reads it too, but its own format sooner.",
    write=_write,
)
