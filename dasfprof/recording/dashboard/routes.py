"""The routes of the run's page, and their place on the scheduler's HTTP server.

While nobody looks there is no process, no port and no work of its own.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tornado.web import RequestHandler

from dasfprof.recording.dashboard.companion import Companion
from dasfprof.recording.dask_internals.http_server import add_routes, individual_plots
from dasfprof.recording.settings import RunSettings

#: Seconds between two looks whether anybody still looks.
_LOOK = 65.0

_PAGE = Path(__file__).with_name("page.html")
#: Any prefix: that of the server's routes is in Dask's configuration.
_AT = r"(?:/.*)?/"


def add_page(scheduler: Any, settings: RunSettings) -> Callable[[], object]:
    """Add the page of a run to a scheduler's HTTP server, if it has one.

    Returns
    -------
    callable
        Takes the page off again.
    """
    companion = Companion(settings)
    routes: list[tuple[str, type, dict[str, Any]]] = [
        (f"{_AT}dasfprof", _PageHandler, {}),
        (f"{_AT}dasfprof/state.json", _StateHandler, {"companion": companion}),
        (f"{_AT}dasfprof/report.html", _ReportHandler, {"companion": companion}),
    ]
    plots = individual_plots()
    if plots is not None:
        listed = type("Plots", (_WithPage, plots), {})
        routes.append((f"{_AT}individual-plots.json", listed, {"dask_server": scheduler}))
    remove = add_routes(scheduler, routes)

    def end() -> None:
        remove()
        companion.end()

    return end


class _PageHandler(RequestHandler):
    """The page: it asks for the state each second while it is looked at."""

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


class _OfCompanion(RequestHandler):
    def initialize(self, companion: Companion) -> None:
        self._companion = companion

    async def _in_thread(self, function: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(None, function)


class _StateHandler(_OfCompanion):
    """The state as JSON."""

    async def get(self) -> None:
        answer = await self._in_thread(self._companion.state)
        loop = asyncio.get_running_loop()
        loop.call_later(_LOOK, loop.run_in_executor, None, self._companion.end_if_idle)
        self.set_header("Content-Type", "application/json")
        self.set_header("X-Content-Type-Options", "nosniff")
        self.set_header("Cache-Control", "no-store")
        self.write(answer)


class _ReportHandler(_OfCompanion):
    """The report of the run so far."""

    async def get(self) -> None:
        page = await self._in_thread(self._companion.report)
        self.set_header("X-Content-Type-Options", "nosniff")
        if page is None:
            self.set_status(503)
            self.set_header("Content-Type", "text/plain")
            self.write("The report could not be made: nothing of the run is on this disk yet.")
        else:
            self.write(page)


class _WithPage:
    """Adds the page to the list of plots that JupyterLab's Dask extension reads."""

    def write(self, chunk: Any) -> Any:
        if isinstance(chunk, dict):
            chunk = {**chunk, "Dasfprof": "/dasfprof"}
        return super().write(chunk)  # type: ignore[misc]
