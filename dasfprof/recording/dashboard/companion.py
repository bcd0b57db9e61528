"""`Companion`: a process that reads the run's files for those who look at its page."""

from __future__ import annotations

import json
import select
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from dasfprof.database.multi import files_of_run
from dasfprof.recording.settings import RunSettings

#: Seconds that the process may take for an answer, and that it lives after the last question.
_PATIENCE, _IDLE = 20.0, 60.0
#: Seconds for which a report is shown again, and that its making may take.
_FRESH, _LONGEST = 15.0, 600.0

_NOTHING_YET = {"error": "Nothing of the run is on the scheduler's disk yet."}
_SILENT = {"error": "The run's files could not be read; the next try is in a second."}


class Companion:
    """Answers questions about a run out of a process of its own, which runs while anybody asks.

    Its methods block: call them in a thread.

    Parameters
    ----------
    settings
        The run.
    """

    def __init__(self, settings: RunSettings) -> None:
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self._asking, self._reporting = threading.Lock(), threading.Lock()
        self._asked = 0.0
        self._report: tuple[float, bytes] | None = None
        self._ended = False

    def state(self) -> bytes:
        """Return the run's state as JSON; ``error`` says why there is none."""
        with self._asking:
            self._asked = time.monotonic()
            if self._ended:
                return json.dumps({"error": "The recording has ended."}).encode()
            if self._process is None and not self._start():
                return json.dumps(_NOTHING_YET).encode()
            answer = self._ask()
            if not answer:
                self._kill()
            return answer or json.dumps(_SILENT).encode()

    def report(self) -> bytes | None:
        """Return the report of the run so far as HTML; None if it cannot be made."""
        with self._reporting, tempfile.TemporaryDirectory() as directory:
            if self._report is not None and time.monotonic() - self._report[0] < _FRESH:
                return self._report[1]
            path = Path(directory, "report.html")
            source = Path(self._settings.directory, self._settings.name)
            command = [sys.executable, "-m", "dasfprof", "report", str(source), "-o", str(path)]
            try:
                subprocess.run(command, capture_output=True, timeout=_LONGEST, check=True)
                page = path.read_bytes()
            except (OSError, subprocess.SubprocessError):
                return None
            self._report = time.monotonic(), page
            return page

    def end_if_idle(self) -> None:
        """End the process if nobody has asked for a minute."""
        with self._asking:
            if time.monotonic() - self._asked >= _IDLE:
                self._kill()

    def end(self) -> None:
        """End the process for good."""
        self._ended = True
        with self._asking:
            self._kill()

    def _start(self) -> bool:
        files = files_of_run(Path(self._settings.directory), self._settings.uuid)
        if files:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "dasfprof.report.live_page", *map(str, files[:100])],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the scheduler
            )
        return self._process is not None

    def _ask(self) -> bytes:
        assert self._process is not None
        question, answer = self._process.stdin, self._process.stdout
        assert question is not None and answer is not None
        try:
            question.write(b"\n")
            question.flush()
            ready, _, _ = select.select([answer], [], [], _PATIENCE)
            return answer.readline() if ready else b""
        except OSError:
            return b""

    def _kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()
