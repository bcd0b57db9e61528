"""Processes beside what shows a run while it goes on: ``python -m dasfprof.handles.companion``.

====================== ===========================================================================
``state FILES``        the run's state as a line of JSON for each line of input, for the dashboard
``findings SOURCE``    the findings as JSON
``metrics SOURCE``     the findings and the classes of threads' time as JSON, for Prometheus
``report SOURCE PATH`` the report
====================== ===========================================================================
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from dasfprof.analysis.live import LiveRun, RunState
from dasfprof.report.documents import json_of, records
from dasfprof.report.terminal.live_view import state_html

#: What such a process runs.
MODULE = "dasfprof.handles.companion"
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

    When the run seems to stand still, or goes on again, it is diagnosed at once.

    Parameters
    ----------
    run
        The run.
    """

    def __init__(self, run: LiveRun) -> None:
        self._run = run
        self._findings: Sequence[dict[str, Any]] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._output: IO[bytes] | None = None
        self._cpu = 0.0
        self._began = 0.0
        self._since = time.monotonic()
        self._taken = 0.0
        self._stood_still = False

    def __enter__(self) -> FindingsSoFar:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process that looks for findings, if one does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def latest(self, state: RunState) -> Sequence[dict[str, Any]] | None:
        """Return the rows of the last diagnosis, None before the first; begin one if it is time.

        After the run's end none begins.
        """
        now = time.monotonic()
        changed = state.stands_still != self._stood_still
        if self._process is not None:
            if self._process.poll() is not None:
                self._take()
                self._since, self._taken = now, _children_cpu() - self._cpu
            elif now - self._began > _LONGEST:
                self._process.kill()
        elif state.goes_on is not False and (changed or now - self._since >= self._pause()):
            self._stood_still = state.stands_still
            self._begin(now)
        return self._findings

    def _pause(self) -> float:
        return _TIMES * max(self._taken, _LEAST + _A_BYTE * self._run.size())

    def _begin(self, now: float) -> None:
        self._cpu, self._began, self._since = _children_cpu(), now, now
        self._output = tempfile.TemporaryFile()  # noqa: SIM115  (closed where it is read)
        with contextlib.suppress(OSError):
            self._process = subprocess.Popen(
                [sys.executable, "-m", MODULE, "findings", self._run.source],
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the view
            )
            os.setpriority(os.PRIO_PROCESS, self._process.pid, 10)

    def _take(self) -> None:
        assert self._output is not None
        self._process = None
        with self._output as output, contextlib.suppress(ValueError):
            output.seek(0)
            self._findings = json.load(output)


def _children_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main(what: str, source: str, *others: str) -> None:
    """Answer on standard output; see the module."""
    if what == "state":
        _tell_states([source, *others])
        return
    from dasfprof.database import open_run
    from dasfprof.handles.analyser import TraceAnalyser
    from dasfprof.report.run_summary import title_of

    analyser = TraceAnalyser(open_run(source))
    if what == "findings":
        sys.stdout.write(json_of(records(analyser.diagnose())))
    elif what == "metrics":
        tables = {"findings": analyser.diagnose(), "time_accounting": analyser.time_accounting()}
        sys.stdout.write(json_of({name: records(table) for name, table in tables.items()}))
    else:
        title = title_of(analyser.in_memory, default=Path(source).resolve().name)
        analyser.report(others[0], title=title)


def _tell_states(files: Sequence[str]) -> None:
    run = LiveRun([Path(name) for name in files])
    with FindingsSoFar(run) as findings:
        for _ in sys.stdin:
            state = run.read()
            html = state_html(state, findings.latest(state))
            sys.stdout.write(json_of({"state": state.document(), "html": html}) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
