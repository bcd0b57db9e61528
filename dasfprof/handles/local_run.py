"""`LocalRun`: the handle of a run without a cluster, on Dask's local schedulers."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from dasfprof.errors import RegistrationError
from dasfprof.handles.run import ProfiledRun
from dasfprof.recording.cluster.calls import check_process
from dasfprof.recording.cluster.home import Home
from dasfprof.recording.dask_internals.local_schedulers import availability
from dasfprof.recording.plugins.local import LocalRecorder, ProgramThread
from dasfprof.recording.settings import RunSettings
from dasfprof.recording.steps.recorder import StepRecorder

logger = logging.getLogger(__name__)

_NOTHING = (
    "run %r recorded nothing: this process computed nothing on Dask's local schedulers (threads, "
    "processes, sync) during the run. To record a cluster, create its distributed.Client before "
    "the recording starts."
)


class LocalRun(ProfiledRun):
    """A run on Dask's local schedulers. The process that computes also records.

    It has the methods of `ProfiledRun`, which need not wait for a cluster here.
    """

    def __init__(self, settings: RunSettings) -> None:
        if availability() != "available":
            raise RegistrationError(f"nothing can be recorded without a cluster: {availability()}")
        reason = check_process(settings.directory, settings.storage)
        if reason is not None:
            raise RegistrationError(f"nothing can be recorded: {reason}. Nothing was registered.")
        # Do not record values in the program's own process that otherwise workers measure.
        self._settings = replace(settings, enable_nvtx=False, profiler=None)
        self._unanswered: dict[str, str] = {}
        self._stopped = False
        self._home = Home(self._settings)
        self._recorder = LocalRecorder(self._settings)
        subject = partial(_program, self._recorder)
        self._steps = StepRecorder(self._settings, None, subject=subject)
        self._steps.start()
        self._recorder.start()

    @property
    def listener(self) -> LocalRecorder:
        """The recorder that observes the computations."""
        return self._recorder

    def flush(self) -> None:
        """Write all events that were recorded so far."""
        self._recorder.commit()
        if self._steps is not None:
            self._steps.commit()

    def stop(self) -> None:
        """End the recording. When this returns, all events of finished work are on disk."""
        if self._stopped:
            return
        self._stopped = True
        self._recorder.stop()
        self.end_steps()
        if not self._recorder.computes_seen:
            logger.warning(_NOTHING, self.name)

    def collect(self, destination: str | Path) -> list[Path]:
        """Copy the run's files into a directory. All of them are on this host."""
        target = Path(destination)
        target.mkdir(parents=True, exist_ok=True)
        self.flush()
        if target.resolve() == self.directory.resolve():
            return self.files()
        return self._home.copy_to(target)

    @property
    def page(self) -> str:
        """The reason why a local run has no page on a dashboard."""
        return "no page: there is no cluster and therefore no dashboard"

    def _state(self) -> str:
        return "stopped" if self._stopped else "recording"


def _program(recorder: LocalRecorder, *args: Any) -> ProgramThread:
    thread = ProgramThread(*args)
    thread.in_task = recorder.runs_task
    return thread
