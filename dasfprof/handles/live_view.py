"""`LiveView`: a run in a notebook while it goes on."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from dasfprof.analysis.live import LiveRun, RunState
from dasfprof.errors import TraceError
from dasfprof.handles.companion import FindingsSoFar
from dasfprof.report.terminal.live_view import (
    counts_in_words,
    pace_in_words,
    state_html,
    state_in_words,
)
from dasfprof.text import clean

logger = logging.getLogger(__name__)

#: Seconds between two states.
_INTERVAL = 1.0
_NOTHING_YET = "Nothing of the run is on this machine's disk yet."


class LiveView:
    """A run that a notebook shows, each second anew until it ends or `stop` is called.

    It is read from its files, in a thread of this process; nothing is asked of the cluster.

    Parameters
    ----------
    find_files
        Returns the run's files, as soon as there are some.
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
        """Show the last state, and change it no more."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()
        if self._findings is not None:
            self._findings.close()

    def state(self) -> RunState | None:
        """Return the run's state; None while nothing of it is on this machine's disk."""
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
        words = ", ".join([counts_in_words(state), *pace_in_words(state)])
        return f"{clean(state.run)} {state_in_words(state)}\n{words}"

    def _html(self) -> str:
        state = self.state()
        if state is None or self._live is None:
            return f"<p>{_NOTHING_YET}</p>"
        self._findings = self._findings or FindingsSoFar(self._live)
        return state_html(state, self._findings.latest(state))

    def _ipython_display_(self) -> None:
        from IPython.display import display

        handle = display(self._bundle(), raw=True, display_id=True)
        if self._thread is None and not self._stopped.is_set() and handle is not None:
            self._thread = threading.Thread(target=self._update, args=(handle,), daemon=True)
            self._thread.start()

    def _bundle(self) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": self._html()}

    def _update(self, handle: Any) -> None:
        try:
            over = False
            while not over:
                over = self._stopped.wait(_INTERVAL)
                handle.update(self._bundle(), raw=True)
                over = over or (self._state is not None and self._state.goes_on is False)
        except Exception:
            logger.debug("a run is no longer shown", exc_info=True)
