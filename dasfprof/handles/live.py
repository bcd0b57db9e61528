"""A view of a run in progress in a notebook (`LiveView`), and side processes.

Side processes compute views for the dashboard, findings, and metrics. The command of such a process
is ``python -m dasfprof.handles.live`` with these arguments:

====================== ===========================================================================
``state FILES``        prints the run's state as a line of JSON per line of input (dashboard)
``counts FILES``       prints the same without keys, functions, workers' addresses and findings
``findings SOURCE``    prints the findings as JSON
``metrics SOURCE``     prints the findings and the thread time by category as JSON (Prometheus)
====================== ===========================================================================
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil

from dasfprof.analysis.live import LiveRun, RunState
from dasfprof.errors import TraceError
from dasfprof.recording.side_process import SideProcess
from dasfprof.report.documents import json_of, records
from dasfprof.report.terminal.live_view import (
    counts_in_words,
    pace_in_words,
    state_html,
    state_in_words,
)
from dasfprof.text import clean

logger = logging.getLogger(__name__)

#: Seconds between two updates of a view.
_INTERVAL = 1.0
_NOTHING_YET = "There are no files of the run on this host yet."


class LiveView:
    """A view of a run in a notebook, updated each second until the run ends or `stop` is called.

    A thread of this process reads the run's files. The cluster is not contacted.

    Parameters
    ----------
    find_files
        Function that returns the run's files, or an empty list before the first file is created.
    """

    def __init__(self, find_files: Callable[[], Sequence[Path]]) -> None:
        self._find_files = find_files
        self._live: LiveRun | None = None
        self._findings: FindingsSoFar | None = None
        self._state: RunState | None = None
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def stop(self) -> None:
        """Show the last state, and end the updates of the view."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()
        if self._findings is not None:
            self._findings.close()

    def state(self) -> RunState | None:
        """Return the run's state, or None if this host has none of its files yet."""
        with self._lock:
            try:
                self._live = self._live or LiveRun(self._find_files())
                self._state = self._live.read()
            except (OSError, TraceError):
                logger.debug("a run cannot be read", exc_info=True)
            return self._state

    def __repr__(self) -> str:
        state = self.state()
        if state is None:
            return _NOTHING_YET
        progress = ", ".join([counts_in_words(state), *pace_in_words(state)])
        return f"{clean(state.run)} {state_in_words(state)}\n{progress}"

    def _ipython_display_(self) -> None:
        from IPython.display import display

        handle = display(self._bundle(), raw=True, display_id=True)
        if self._thread is None and not self._stopped.is_set() and handle is not None:
            self._thread = threading.Thread(target=self._update, args=(handle,), daemon=True)
            self._thread.start()

    def _bundle(self) -> dict[str, str]:
        state, html = self.state(), f"<p>{_NOTHING_YET}</p>"
        if state is not None and self._live is not None:
            self._findings = self._findings or FindingsSoFar(self._live)
            html = state_html(state, self._findings.latest(state))
        return {"text/plain": repr(self), "text/html": html}

    def _update(self, handle: Any) -> None:
        try:
            has_ended = False
            while not has_ended:
                has_ended = self._stopped.wait(_INTERVAL)
                handle.update(self._bundle(), raw=True)
                has_ended |= self._state is not None and self._state.goes_on is False
        except Exception:
            logger.debug("a run is no longer shown", exc_info=True)


#: Module that a side process executes.
MODULE = "dasfprof.handles.live"
#: Text that views show until the first findings are known.
WHEN = "Findings so far: after a minute, or later for a large run."
#: Seconds between two diagnoses, as a multiple of the CPU seconds of a diagnosis. This limits
#: diagnoses to 2 % of a core.
_TIMES = 50.0
#: Expected CPU seconds of a diagnosis: a fixed part, and seconds per byte of the run's files.
_FIXED_SECONDS, _SECONDS_PER_BYTE = 1.0, 1e-6
#: Time limit (seconds) of a diagnosis.
_LONGEST = 600.0


class FindingsSoFar:
    """Diagnoses a run repeatedly, in one process of low priority at a time."""

    def __init__(self, run: LiveRun) -> None:
        self._run = run
        self._process = SideProcess(MODULE, 10, _LONGEST)
        self._stood_still = False

    def close(self) -> None:
        """End the process that is diagnosing the run, if there is one."""
        self._process.close()

    def latest(self, state: RunState) -> Sequence[dict[str, Any]] | None:
        """Return the rows of the last diagnosis, or None before the first.

        If another diagnosis is due and the run has not ended, start it.
        """
        process = self._process
        if not process.is_running() and state.goes_on is not False:
            expected = _FIXED_SECONDS + _SECONDS_PER_BYTE * self._run.size()
            # The longer a diagnosis takes, the longer is the time until the next one.
            pause = _TIMES * max(process.cpu_seconds, expected)
            is_due = time.monotonic() - process.since >= pause
            # When a run begins to hang, or continues after it has hung, the next diagnosis starts
            # immediately.
            if is_due or state.stands_still != self._stood_still:
                self._stood_still = state.stands_still
                process.begin("findings", self._run.source)
        return process.result


def main(command: str, source: str, *others: str) -> None:
    """Print the answer to a command on standard output.

    The module's docstring lists the commands.
    """
    if command in ("state", "counts"):
        run, counts = LiveRun([Path(name) for name in (source, *others)]), command == "counts"
        with closing(FindingsSoFar(run)) as so_far:
            for _ in sys.stdin:
                state = run.read()
                state = state.counts() if counts else state
                html = state_html(state, None if counts else so_far.latest(state))
                sys.stdout.write(json_of({"state": state.document(), "html": html}) + "\n")
                sys.stdout.flush()
        return
    from dasfprof.database import open_run
    from dasfprof.handles.analyser import TraceAnalyser

    analyser = TraceAnalyser(open_run(source))
    if command == "findings":
        sys.stdout.write(json_of(records(analyser.diagnose())))
    else:
        findings, thread_time = analyser.diagnose(), analyser.time_accounting()
        now = time.time()
        document = {
            "findings": records(findings),
            "time_accounting": records(thread_time),
            "analysed": now,
            "seconds": now - psutil.Process().create_time(),
        }
        sys.stdout.write(json_of(document))


if __name__ == "__main__":
    main(*sys.argv[1:])
