"""`SideProcess`: runs commands that analyse a run in processes of low priority, one at a time."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
from time import monotonic
from typing import IO, Any

from dasfprof import system


class SideProcess:
    """Runs a module that prints JSON. No method waits for the process.

    Parameters
    ----------
    module
        The module, see `dasfprof.handles.live`.
    niceness
        Niceness of the processes.
    limit
        Time limit of a process in seconds.
    """

    def __init__(self, module: str, niceness: int, limit: float) -> None:
        self._module, self._niceness, self._limit = module, niceness, limit
        self._process: subprocess.Popen[bytes] | None = None
        self._output: IO[bytes] | None = None
        self._cpu = 0.0
        #: Output of the last successful process, or None before the first has ended.
        self.result: Any = None
        #: When a process last started or ended, on the monotonic clock, and seconds and CPU seconds
        #: of the last process that ended.
        self.since, self.seconds, self.cpu_seconds = monotonic(), 0.0, 0.0

    def begin(self, *arguments: str) -> None:
        """Start a process with these arguments."""
        self._cpu, self.since = system.children_cpu(), monotonic()
        self._output = tempfile.TemporaryFile()  # noqa: SIM115  (closed when it is read)
        with contextlib.suppress(OSError):
            self._process = subprocess.Popen(
                [sys.executable, "-m", self._module, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C must not reach it.
            )
            system.lower_priority(self._process.pid, self._niceness)

    def is_running(self) -> bool:
        """Return whether a process is running, and store the result of one that has ended."""
        if self._process is None:
            return False
        if self._process.poll() is None:
            if monotonic() - self.since > self._limit:
                self._process.kill()
            return True
        self._process = None
        self.seconds, self.since = monotonic() - self.since, monotonic()
        self.cpu_seconds = system.children_cpu() - self._cpu
        assert self._output is not None
        with self._output as output, contextlib.suppress(ValueError):
            output.seek(0)
            self.result = json.load(output)
        return False

    def close(self) -> None:
        """Kill the running process."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
