"""``dasfprof watch``: a run in progress, and its findings so far."""

from __future__ import annotations

import signal
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dasfprof.cli.sources import warnings_as_notes
from dasfprof.report.terminal.answers import DEFAULT_ROWS, print_answers
from dasfprof.report.terminal.console import heading, say, terminal_width
from dasfprof.report.terminal.findings import print_summary
from dasfprof.text import clean

if TYPE_CHECKING:
    from dasfprof.analysis.live import LiveRun, RunState
    from dasfprof.handles.analyser import TraceAnalyser


#: Seconds between two states that are shown.
_INTERVAL = 1.0


@click.command()
@click.argument("source", default=".")
@click.option("--once", is_flag=True, help="Print the current state once and exit.")
@click.option("--json", "as_json", is_flag=True, help="Print each state as one line of JSON.")
def watch(source: str, *, once: bool, as_json: bool) -> None:
    """Show a run in progress, from its files.

    The cluster is not contacted.

    The view is updated every second until the run ends. It lists tasks by function, the estimated
    time left, the workers, unusually long tasks with their current line, and the findings so
    far. A summary follows at the end. Ctrl-C ends the view, not the run.

    SOURCE takes the same forms as in `dasfprof analyse`. The default is the working directory. If a
    directory has several runs, the newest is shown. Without a terminal, only the end is printed, so
    use --json to get each state.

    \b
    Examples:
      dasfprof watch traces/
      dasfprof watch --once traces/Tutorial_5
      dasfprof watch --json traces/ | jq .seconds_left
    """
    from dasfprof.analysis.live import LiveRun

    with warnings_as_notes():
        run = LiveRun(source)
    try:
        if as_json:
            _print_documents(run, once=once)
        elif once:
            _print_state(run, source)
        else:
            state = run.read()
            if state.goes_on is not False:
                _show(run, state)
            _summarise(run, source)
    except KeyboardInterrupt:
        return


def _print_documents(run: LiveRun, *, once: bool) -> None:
    from dasfprof.report.documents import json_of, schema_of

    while True:
        began = time.monotonic()
        state = run.read()
        click.echo(json_of({"schema": schema_of("watch"), **state.document()}))
        sys.stdout.flush()
        if once or state.goes_on is False:
            return
        _wait_until(began + _INTERVAL)


def _print_state(run: LiveRun, source: str) -> None:
    from dasfprof.report.documents import records
    from dasfprof.report.terminal.console import console
    from dasfprof.report.terminal.live_view import live_view

    state, target = run.read(), console()
    findings = records(_analyser(run).diagnose()) if state.stands_still else None
    words = f"Findings so far: dasfprof analyse {clean(source)}"
    target.print(live_view(state, width=target.width, findings=findings, when_findings=words))


def _analyser(run: LiveRun) -> TraceAnalyser:
    from dasfprof.database import MultiEventDatabase
    from dasfprof.handles.analyser import TraceAnalyser

    return TraceAnalyser(MultiEventDatabase(run.paths))


def _show(run: LiveRun, state: RunState) -> None:
    """Show the states of a run until it ends. Without a terminal, only the last one is printed."""
    from rich.live import Live

    from dasfprof.handles.live import WHEN, FindingsSoFar
    from dasfprof.report.terminal.console import console
    from dasfprof.report.terminal.live_view import live_view

    target = console()
    # By default, this signal ends the process immediately, and the cursor remains hidden.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    with (
        closing(FindingsSoFar(run)) as findings,
        Live(console=target, auto_refresh=False, redirect_stdout=False) as shown,
    ):
        while True:
            began = time.monotonic()
            target.width = terminal_width()
            view: Any = live_view(
                state,
                width=target.width,
                height=target.size.height,
                findings=findings.latest(state),
                when_findings=WHEN,
            )
            shown.update(view, refresh=True)
            if state.goes_on is False:
                return
            _wait_until(began + _INTERVAL)
            state = run.read()


def _summarise(run: LiveRun, source: str) -> None:
    from dasfprof.report.run_summary import title_of

    analyser = _analyser(run)
    ended = analyser.run.ending is None
    print_summary(analyser.run, title_of(analyser.run, default=Path(source).name))
    print_answers(analyser, DEFAULT_ROWS, unlimited=False)
    # Print this at the end, because the text above may fill the screen.
    heading(f"Run {clean(run.name)} {'has ended' if ended else 'did not end'}.", apart=True)
    findings = None if ended else analyser.diagnose()
    if findings is not None and len(findings) and findings["Rule"].iloc[0] == "unfinished-run":
        say(clean(findings["Finding"].iloc[0]))
        say(f"→ {clean(findings['Suggestion'].iloc[0])}")


def _wait_until(moment: float) -> None:
    time.sleep(max(moment - time.monotonic(), 0.0))
