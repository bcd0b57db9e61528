"""``dasfprof watch``: a run while it is being recorded, and its findings so far."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from dasfprof.cli.sources import source_argument
from dasfprof.report.terminal.answers import DEFAULT_ROWS, print_answers
from dasfprof.report.terminal.console import echo, say, terminal_width
from dasfprof.report.terminal.findings import print_summary
from dasfprof.text import clean

if TYPE_CHECKING:
    from dasfprof.analysis.live import LiveRun, RunState


#: Seconds between two states.
_INTERVAL = 1.0


@click.command()
@source_argument(required=False)
@click.option("--once", is_flag=True, help="Print one state and end.")
@click.option("--json", "as_json", is_flag=True, help="Print states as JSON documents, one a line.")
def watch(source: str, *, once: bool, as_json: bool) -> None:
    """Show a run while it goes on, from its files: nothing is asked of the cluster.

    What is done, running and waiting by step and function, the time left, the workers, tasks that
    run unusually long with the line that they are in, and findings so far, each second until the
    run ends; then its summary. Ctrl-C ends the view, not the run.

    SOURCE is as for `dasfprof analyse`; of a directory with several runs the newest is shown.
    Default: the working directory. Without a terminal a line is printed whenever something changes.

    \b
    Examples:
      dasfprof watch traces/
      dasfprof watch --once traces/Tutorial_5
      dasfprof watch --json traces/ | jq .seconds_left
    """
    from dasfprof.analysis.live import LiveRun

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run = LiveRun(source)
    for warning in caught:
        echo(f"Note: {clean(warning.message)}", err=True)
    try:
        if as_json:
            _print_documents(run, once=once)
        elif once:
            _print_state(run.read(), source)
        else:
            _watch(run, source)
    except KeyboardInterrupt:
        return


def _print_documents(run: LiveRun, *, once: bool) -> None:
    from dasfprof.report.json_text import json_of

    while True:
        began = time.monotonic()
        state = run.read()
        click.echo(json_of(state.document()))
        sys.stdout.flush()
        if once or state.goes_on is False:
            return
        _wait_until(began + _INTERVAL)


def _print_state(state: RunState, source: str) -> None:
    from dasfprof.report.terminal.console import console
    from dasfprof.report.terminal.live_view import live_view

    target = console()
    words = f"Findings so far: dasfprof analyse {clean(source)}"
    target.print(live_view(state, width=target.width, when_findings=words))


def _watch(run: LiveRun, source: str) -> None:
    """Show states until the run ends, then its summary."""
    state = run.read()
    if state.goes_on is not False:
        if sys.stdout.isatty():
            _watch_in_terminal(run, state, source)
        else:
            _watch_in_lines(run, state)
    _summarise(run, source)


def _watch_in_lines(run: LiveRun, state: RunState) -> None:
    from dasfprof.report.terminal.live_view import state_line

    last = ""
    while True:
        began = time.monotonic()
        line = state_line(state)
        _, _, news = line.partition("  ")
        if news != last:
            echo(line)
            sys.stdout.flush()
            last = news
        if state.goes_on is False:
            return
        _wait_until(began + _INTERVAL)
        state = run.read()


def _watch_in_terminal(run: LiveRun, state: RunState, source: str) -> None:
    from rich.live import Live

    pass
    from dasfprof.report.terminal.console import console
    from dasfprof.report.terminal.live_view import live_view

    target = console()
    # By default the signal ends the process at once, without the cursor.
    signal.signal(signal.SIGTERM, _exit)
    with (
        FindingsSoFar(source, run.size) as findings,
        Live(console=target, auto_refresh=False, redirect_stdout=False) as shown,
    ):
        while True:
            began = time.monotonic()
            target.width = terminal_width()
            view: Any = live_view(
                state,
                width=target.width,
                height=target.size.height,
                findings=findings.latest(),
                when_findings=WHEN,
            )
            shown.update(view, refresh=True)
            if state.goes_on is False:
                return
            _wait_until(began + _INTERVAL)
            state = run.read()


def _summarise(run: LiveRun, source: str) -> None:
    from dasfprof.analysis.model.run_end import find_run_end
    from dasfprof.database import MultiEventDatabase
    from dasfprof.handles.analyser import TraceAnalyser
    from dasfprof.report.run_summary import title_of

    analyser = TraceAnalyser(MultiEventDatabase(run.paths))
    ended = find_run_end(analyser.trace) is None
    say(f"Run {clean(run.name)} {'has ended' if ended else 'did not end'}.")
    print_summary(analyser.trace, title_of(analyser.trace, default=Path(source).name))
    print_answers(analyser, DEFAULT_ROWS, whole=False)


def _wait_until(moment: float) -> None:
    time.sleep(max(moment - time.monotonic(), 0.0))


def _exit(number: int, _: object) -> None:
    sys.exit(128 + number)


#: When there will be findings, in words.
WHEN = "Findings so far: after a minute; of a large run later."
#: CPU seconds of a diagnosis times which it waits: 2 % of a core.
_TIMES = 50.0
#: What the first one takes of CPU seconds, and more for each byte of the run's files.
_LEAST, _A_BYTE = 1.0, 1e-6
#: Seconds after which a diagnosis is given up.
_LONGEST = 600.0


class FindingsSoFar:
    """Diagnoses a run in processes of low priority, one at a time, less often the longer it takes.

    Parameters
    ----------
    source
        The run.
    size
        Returns the bytes of its files.
    """

    def __init__(self, source: str, size: Callable[[], int]) -> None:
        self._source, self._size = source, size
        self._findings: Sequence[dict[str, Any]] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._output: IO[bytes] | None = None
        self._cpu = 0.0
        self._began = 0.0
        self._since = time.monotonic()
        self._taken = 0.0

    def __enter__(self) -> FindingsSoFar:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def latest(self) -> Sequence[dict[str, Any]] | None:
        """Return the rows of the last diagnosis, None before the first; begin one if it is time."""
        now = time.monotonic()
        if self._process is not None:
            if self._process.poll() is not None:
                self._take()
                self._since, self._taken = now, _children_cpu() - self._cpu
            elif now - self._began > _LONGEST:
                self._process.kill()
        elif now - self._since >= _TIMES * max(self._taken, _LEAST + _A_BYTE * self._size()):
            self._begin(now)
        return self._findings

    def _begin(self, now: float) -> None:
        self._cpu, self._began, self._since = _children_cpu(), now, now
        self._output = tempfile.TemporaryFile()  # noqa: SIM115  (closed where it is read)
        command = [sys.executable, "-m", "dasfprof", "analyse", "--json", "-a", "diagnose"]
        with contextlib.suppress(OSError):
            self._process = subprocess.Popen(
                [*command, self._source],
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the view
            )
            os.setpriority(os.PRIO_PROCESS, self._process.pid, 10)

    def _take(self) -> None:
        assert self._output is not None
        self._process = None
        with self._output as output, contextlib.suppress(ValueError, KeyError):
            output.seek(0)
            self._findings = json.load(output)["findings"]


def _children_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
