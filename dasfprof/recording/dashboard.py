"""The page of a run on Dask's dashboard.

A separate process reads the run's files for the page. The process exists only while somebody views
the page.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import re
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tornado.web import RequestHandler

from dasfprof.config.options import setting
from dasfprof.database.multi import files_of_run
from dasfprof.recording.dask_internals.undocumented import add_routes
from dasfprof.recording.settings import RunSettings

#: Time limit for an answer of the process (seconds), and seconds without a request after which the
#: process is ended.
_PATIENCE, _IDLE = 20.0, 60.0

_NOTHING_YET = {"error": "Nothing of the run is on the scheduler's disk yet."}
_SILENT = {"error": "The run's files could not be read; the next try is in a second."}


class Companion:
    """Answers requests about a run with the output of a separate process.

    A request starts the process if it is not running. `end_if_idle` ends the process when no more
    requests arrive. The methods block, so they must not be called on an event loop.

    Parameters
    ----------
    module
        The module that the process executes. See `dasfprof.handles.live`.
    command
        The command of the module whose output `state` returns: ``state`` or ``counts``.
    """

    def __init__(self, settings: RunSettings, module: str, command: str) -> None:
        self._settings = settings
        self._command = [sys.executable, "-m", module, command]
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._last_request = 0.0
        self._ended = False

    def state(self) -> bytes:
        """Return the state of the run as JSON, or an object with ``error`` if it is unavailable."""
        with self._lock:
            self._last_request = time.monotonic()
            if self._ended:
                return json.dumps({"error": "The recording has ended."}).encode()
            if self._process is None and not self._start():
                return json.dumps(_NOTHING_YET).encode()
            answer = self._request_state()
            if not answer:
                self._kill()
            return answer or json.dumps(_SILENT).encode()

    def end_if_idle(self) -> None:
        """End the process if no request has arrived for a minute."""
        with self._lock:
            if time.monotonic() - self._last_request >= _IDLE:
                self._kill()

    def end(self) -> None:
        """End the process. Later requests do not start another process."""
        self._ended = True
        with self._lock:
            self._kill()

    def _start(self) -> bool:
        files = files_of_run(Path(self._settings.directory), self._settings.uuid)
        if files:
            self._process = subprocess.Popen(
                [*self._command, *map(str, files[:100])],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C must not reach the process.
            )
        return self._process is not None

    def _request_state(self) -> bytes:
        """Return the state that the process reports, or no bytes if it does not answer in time."""
        process: Any = self._process
        try:
            process.stdin.write(b"\n")
            process.stdin.flush()
            ready, _, _ = select.select([process.stdout], [], [], _PATIENCE)
            return bytes(process.stdout.readline()) if ready else b""
        except OSError:
            return b""

    def _kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()


#: Seconds after a request until `Companion.end_if_idle` is called.
_IDLE_CHECK = 65.0

_PAGE = Path(__file__).with_suffix(".html")
#: Pattern that matches any prefix of a route, because Dask's configuration may set a prefix.
_ROOT = r"(?:/.*)?/"


def add_page(scheduler: Any, settings: RunSettings, companion: str) -> Callable[[], object]:
    """Add the page of a run to a scheduler's HTTP server, and return a function that removes it.

    Nothing is added if the setting ``dashboard`` is off, or if the scheduler has no HTTP server.
    `companion` is the module that the process of the run's `Companion` executes.
    """
    shown = setting("dashboard")
    if not shown:
        return lambda: None
    process = Companion(settings, companion, "counts" if shown == "counts" else "state")
    routes: list[tuple[str, type, dict[str, Any]]] = [
        (f"{_ROOT}dasfprof", _PageHandler, {}),
        (f"{_ROOT}dasfprof/state.json", _StateHandler, {"companion": process}),
    ]
    remove = add_routes(scheduler, routes)

    def end() -> None:
        remove()
        process.end()

    return end


class _PageHandler(RequestHandler):
    """Serves the page, which requests the run's state once per second while it is visible."""

    def get(self) -> None:
        page = _PAGE.read_text(encoding="utf-8")
        (script,) = re.findall("<script>(.*?)</script>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        self.set_header(
            "Content-Security-Policy",
            f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
            "connect-src 'self'; base-uri 'none'; form-action 'none'",
        )
        self.set_header("X-Content-Type-Options", "nosniff")
        self.write(page)


class _StateHandler(RequestHandler):
    """Serves the state of the run as JSON."""

    def initialize(self, companion: Companion) -> None:
        self._companion = companion

    async def get(self) -> None:
        answer = await asyncio.to_thread(self._companion.state)
        loop = asyncio.get_running_loop()
        loop.call_later(_IDLE_CHECK, loop.run_in_executor, None, self._companion.end_if_idle)
        self.set_header("Content-Type", "application/json")
        self.set_header("X-Content-Type-Options", "nosniff")
        self.set_header("Cache-Control", "no-store")
        self.write(answer)
