"""`LocalRun`: the handle of a run without a cluster, on Dask's own schedulers."""

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
    "run %r recorded nothing: no compute ran on Dask's own schedulers (threads, processes, sync) "
    "in this process while it lasted. What ran on a cluster is recorded if its distributed.Client "
    "is there before the recording begins."
)


class LocalRun(ProfiledRun):
    """A run on Dask's own schedulers, recorded in the process that computes.

    Has the methods of `ProfiledRun`; there is no cluster that would have to answer.
    """

    def __init__(self, settings: RunSettings) -> None:
        if availability() != "available":
            raise RegistrationError(f"nothing can be recorded without a cluster: {availability()}")
        reason = check_process(settings.directory, settings.storage)
        if reason is not None:
            raise RegistrationError(f"nothing can be recorded: {reason}. Nothing was registered.")
        # What would be measured on workers has no place in a program's own process.
        self._settings = replace(settings, enable_nvtx=False, profiler=None)
        self._unanswered: dict[str, str] = {}
        self._live = None
        self._stopped = False
        self._home = Home(self._settings)
        self._recorder = LocalRecorder(self._settings)
        sampled = partial(_program, self._recorder)
        self._steps = StepRecorder(self._settings, None, watch=sampled)
        self._steps.start()
        self._recorder.start()

    @property
    def listener(self) -> LocalRecorder:
        """What hears of computes."""
        return self._recorder

    @property
    def recorded_anything(self) -> bool:
        """Whether any compute was seen."""
        return self._recorder.computes_seen > 0

    def flush(self) -> None:
        """Write every event recorded so far."""
        self._recorder.commit()
        if self._steps is not None:
            self._steps.commit()

    def stop(self) -> None:
        """End the recording. When it returns, every event of finished work is on disk."""
        if self._stopped:
            return
        self._stopped = True
        self._recorder.stop()
        self.end_steps()
        if not self.recorded_anything:
            logger.warning(_NOTHING, self.name)

    def collect(self, destination: str | Path) -> list[Path]:
        """Copy the run's files into a directory; they are all on this machine."""
        target = Path(destination)
        target.mkdir(parents=True, exist_ok=True)
        self.flush()
        if target.resolve() == self.directory.resolve():
            return self.files()
        return self._home.copy_to(target)

    @property
    def page(self) -> str:
        """Why there is no page on a dashboard."""
        return "no page: there is no cluster, and so no dashboard"

    def _state(self) -> str:
        return "stopped" if self._stopped else "recording"


def _program(recorder: LocalRecorder, *args: Any) -> ProgramThread:
    thread = ProgramThread(None, *args)
    thread.in_task = recorder.runs_task
    return thread
