"""`SideProcess`: runs commands that analyse a run, one at a time.

Each command runs in a process with a low priority. The module that contains these commands is
`dasfprof.handles.live`.
"""

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
    """Executes a module that prints JSON, in a separate process. No method waits for its result.

    Parameters
    ----------
    module
        The module. See `dasfprof.handles.live`.
    niceness
        Niceness of the process.
    limit
        Time limit in seconds, after which the process is killed.
    """

    def __init__(self, module: str, niceness: int, limit: float) -> None:
        self._module, self._niceness, self._limit = module, niceness, limit
        self._process: subprocess.Popen[bytes] | None = None
        self._output: IO[bytes] | None = None
        self._cpu = 0.0
        #: Output of the last successful process, or None if no process has succeeded yet.
        self.result: Any = None
        #: Time when a process last started or ended (`since`, monotonic clock), and duration and
        #: CPU time of the last process that ended (`seconds`, `cpu_seconds`).
        self.since, self.seconds, self.cpu_seconds = monotonic(), 0.0, 0.0

    def begin(self, *arguments: str) -> None:
        """Start a process that executes the module with these arguments."""
        self._cpu, self.since = system.children_cpu(), monotonic()
        self._output = tempfile.TemporaryFile()  # noqa: SIM115  (closed when it is read)
        with contextlib.suppress(OSError):
            self._process = subprocess.Popen(
                [sys.executable, "-m", self._module, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C must not reach the process.
            )
            system.lower_priority(self._process.pid, self._niceness)

    def is_running(self) -> bool:
        """Return whether the process is running, and store its output if it has just ended."""
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
        """Kill the process if it is running."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
