"""`RunView`: a recorded run, its findings and its timeline, as a notebook shows them."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from IPython.core.error import UsageError

from dasfprof.database.storage import is_url
from dasfprof.errors import DasfprofError
from dasfprof.handles.analyser import TraceAnalyser
from dasfprof.handles.run import ProfiledRun
from dasfprof.report.notebook import CarriedParts, frame_html, parts_of, run_html, run_text
from dasfprof.report.page.html import write_report
from dasfprof.report.run_summary import title_of
from dasfprof.text import clean, escape

if TYPE_CHECKING:
    from dasfprof.handles.comparison import RunComparison

#: Bytes of a report up to which it goes into the notebook's file: 50,000 task runs and more.
INLINE_BYTES = 2_000_000
_CARRIED = CarriedParts()


class RunView:
    """A run as a notebook shows it: a summary, the findings, and the report in a frame.

    The report is a file beside the trace. Of a large run the notebook has a link to it only.

    Parameters
    ----------
    analyser
        The run.
    report
        The report's file; an existing one is replaced.
    title
        Name of the run.

    Raises
    ------
    OSError
        If the report cannot be written.
    """

    def __init__(self, analyser: TraceAnalyser, report: Path, title: str) -> None:
        #: Answers any further question.
        self.analyser = analyser
        #: What is wrong with the run.
        self.findings = analyser.diagnose()
        #: The report's file.
        self.report = write_report(analyser, report, title=title)
        self._title = title

    def __repr__(self) -> str:
        text = run_text(self.analyser, self.findings, self._title)
        return f"{text}\nThe report: {clean(self.report)}"

    def _repr_html_(self) -> str:
        frame = ""
        try:
            large = self.report.stat().st_size > INLINE_BYTES
            if not large:
                page = self.report.read_text(encoding="utf-8")
                title = f"Report of {self._title}"
                frame = frame_html(
                    page,
                    title,
                    empty=not len(self.analyser.run.tasks),
                    parts_elsewhere=_CARRIED.elsewhere(parts_of(page)),
                )
            where = f"{'is too large to be shown here' if large else 'as a file'}: "
            where += _link(self.report)
        except OSError as error:
            where = f"is gone: {escape(error)}"
        words = run_html(self.analyser, self.findings, self._title, folded=bool(frame))
        return f"{words}<p>The report {where}</p>{frame}"


def show(run: ProfiledRun | Any) -> RunView:
    """Show a run in a notebook as ``%%dasfprof`` does.

    Parameters
    ----------
    run
        A `ProfiledRun`, or what `TraceAnalyser` takes: a database, a path, a run's name. The report
        is written beside the files of a `ProfiledRun`, else into the working directory.
    """
    if isinstance(run, ProfiledRun):
        place = Path() if is_url(run.source) else run.directory
        return RunView(run.analyser(), place / f"{run.name}.html", run.name)
    analyser = run if isinstance(run, TraceAnalyser) else TraceAnalyser(run)
    return RunView(analyser, Path("dasfprof-report.html"), title_of(analyser.run))


def _link(path: Path) -> str:
    """Link to a file by its place beside the notebook: Jupyter follows no other links to files."""
    where = os.path.relpath(path)
    return f'<a href="{escape(quote(where))}" target="_blank"><code>{escape(where)}</code></a>'


# --- ``%dasfprof_compare``: two sides of runs, compared in a notebook -----------------------------

_ROWS = 8


def dasfprof_compare(line: str) -> RunComparison:
    """Compare two sides of runs; print the verdict and what made the difference, and return it.

    ::

        %dasfprof_compare BEFORE AFTER
        %dasfprof_compare BEFORE... -- AFTER...

    Each is what `dasfprof.open_run` takes, or a directory with several runs.
    """
    sources = shlex.split(line)
    if "--" in sources:
        place = sources.index("--")
        before, after = sources[:place], sources[place + 1 :]
    else:
        before, after = sources[:1], sources[1:]
    if not before or not after or ("--" not in sources and len(after) > 1):
        raise UsageError(
            "%dasfprof_compare takes two sources, or several of each side with -- between them."
        )
    from dasfprof import compare
    from dasfprof.report.terminal.findings import print_comparison

    try:
        comparison = compare(before, after)
    except DasfprofError as error:
        raise UsageError(str(error)) from error
    print_comparison(comparison, _ROWS)
    return comparison
