"""`StepRecorder`: records in the client's process: steps, what they built, what is under way."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable
from time import time
from typing import Any

from distributed import Client

from dasfprof.database import FileDatabase
from dasfprof.database.writer import Source
from dasfprof.recording.cluster.calls import check_process
from dasfprof.recording.cluster.scheduler_watch import SchedulerWatch
from dasfprof.recording.dask_internals.graphs import place_hooks, remove_hooks, watch_dataframes
from dasfprof.recording.guard import HookGuard
from dasfprof.recording.notes.rows import SchemaRow, fold_rows
from dasfprof.recording.program import program_facts
from dasfprof.recording.settings import RunSettings
from dasfprof.recording.shipping.uploader import Uploader, upload_files
from dasfprof.recording.stack_samples.files import SampleFile
from dasfprof.recording.stack_samples.subjects import ClientThread
from dasfprof.recording.steps import step as steps
from dasfprof.recording.steps.pipeline import watch_pipeline
from dasfprof.recording.steps.step import OpenStep
from dasfprof.recording.under_way.client import ClientUnderWay
from dasfprof.recording.under_way.pulse import Pulse
from dasfprof.recording.under_way.rows import UnderWayRows
from dasfprof.schema.stack_samples import CLIENT_SAMPLE
from dasfprof.schema.steps import GRAPH_SENT, STEP, STEP_END, STEP_LAYER

logger = logging.getLogger(__name__)

#: The recorders of this process, to stop that of a run that another run replaces.
_recorders: list[StepRecorder] = []


class StepRecorder:
    """Records the steps of this process for one run, and what its main thread does.

    Where the run's directory cannot be written here, only steps are recorded, as far as possible.

    Parameters
    ----------
    settings
        The run.
    client
        A client of the cluster. When the cluster has closed or its scheduler has ended, the run is
        over, even without `stop`.
    pipeline
        The object that was registered. The nodes of a DASF ``Pipeline`` become steps.
    """

    def __init__(self, settings: RunSettings, client: Client, pipeline: Any = None) -> None:
        self.settings = settings
        self._client = client
        self._pipeline = pipeline
        self._cluster: Any = None
        self._watch: SchedulerWatch | None = None
        self._forget_pipeline: Callable[[], None] | None = None
        self._lock = threading.Lock()
        self._noted: set[int] = set()
        self._constants = {"process_id": socket.gethostname(), "thread_id": "client"}
        self._source = Source(fold_rows, self._constants)
        self._stopped = False
        #: When recording began here, or the last graph had been sent.
        self._since = time()
        self._guard = HookGuard()
        self._pulse: Pulse | None = None
        self._stop_samples: Callable[[], object] = lambda: None
        self.database: FileDatabase | None = None
        self._uploader: Uploader | None = None

    def start(self) -> None:
        """Start recording."""
        for other in _recorders.copy():
            if other.is_over:
                other.stop()
        self._cluster = self._client.cluster
        plugin = self.settings.plugin_name("SchedulerPlugin")
        self._watch = SchedulerWatch(self._client, plugin, self.settings.orphan_timeout, self.stop)
        self._watch.start()
        place_hooks()
        self._since = time()
        _recorders.append(self)
        steps.add_observer(self)
        self._forget_pipeline = watch_pipeline(self._pipeline)
        try:
            if check_process(self.settings.directory, self.settings.storage) is None:
                self._watch_main_thread()
        except Exception:
            self._guard.caught("start")

    def _watch_main_thread(self) -> None:
        """Record what is under way, from now on in a file that also says which process it is."""
        writer = self._open().writer
        rows = UnderWayRows(self._append, writer.losses)
        under_way = ClientUnderWay(self._client.id, rows)
        self._guard = HookGuard(writer)
        self._pulse = Pulse("under-way client", [under_way.look], self._guard)
        self._pulse.start()
        frequency = self.settings.stack_frequency
        samples = SampleFile(writer, self._constants, rows.stacks, self._guard, frequency)
        self._stop_samples = samples.sample(CLIENT_SAMPLE, ClientThread)

    @property
    def is_over(self) -> bool:
        """Whether the cluster is known to have closed although the run was not stopped.

        The end of a client does not count: the cluster may have others.
        """
        return bool(self._cluster is not None and self._cluster.status.name == "closed")

    def stop(self) -> None:
        """End the recording and write everything that was recorded. Idempotent."""
        with self._lock:
            if self._stopped:
                return
            self._stopped = True
        self._stop_samples()
        if self._pulse is not None:
            self._pulse.stop()
        if self._watch is not None:
            self._watch.stop()
        steps.remove_observer(self)
        if self._forget_pipeline is not None:
            self._forget_pipeline()
        if self in _recorders:
            _recorders.remove(self)
            remove_hooks()
        try:
            if self.database is not None:
                self.database.close()
            if self._uploader is not None:
                self._uploader.finish()
        except Exception:
            self._guard.caught("stop")

    def commit(self) -> None:
        """Write everything that has been recorded so far."""
        if self.database is not None and not self._stopped:
            self.database.commit()
            if self._uploader is not None:
                self._uploader.commit()

    def began(self, opened: OpenStep) -> None:
        """Note that a step was entered."""
        if self.is_over:
            self.stop()
            return
        watch_dataframes()
        self._note_step(opened)

    def ended(self, opened: OpenStep) -> None:
        """Note that a step was left."""
        self._note_step(opened)
        self._append((STEP_END, (time(), opened.id)))

    def built(self, opened: OpenStep, layer: str) -> None:
        """Note that a layer of a graph was built in a step."""
        self._note_step(opened)
        self._append((STEP_LAYER, (time(), opened.id, layer, ())))

    def derived(self, layer: str, dependencies: list[str]) -> None:
        """Note that a layer was built in no step and depends on layers that were."""
        self._append((STEP_LAYER, (time(), -1, layer, dependencies)))

    def submitted(self, client: str, start: float, optimising: float | None) -> None:
        """Note that a client has sent a graph, which it began to pickle at a time."""
        if self.is_over:
            return
        now, since = time(), self._since
        self._since = now
        watch_dataframes()
        if optimising is not None:  # some of it may have been before recording began
            optimising = min(optimising, max(start - since, 0.0))
        host = self._constants["process_id"]
        self._append((GRAPH_SENT, (now, client, host, since, start, optimising)))

    def _note_step(self, opened: OpenStep) -> None:
        """Note a step and those around it, unless noted, also if entered before recording began."""
        if opened.id in self._noted:
            return
        self._noted.add(opened.id)
        if opened.parent is not None:
            self._note_step(opened.parent)
        parent = -1 if opened.parent is None else opened.parent.id
        self._append((STEP, (opened.began, opened.id, parent, opened.names[-1])))

    def _append(self, note: SchemaRow) -> None:
        if self._stopped:
            return
        self._open().writer.append(self._source, note)

    def _open(self) -> FileDatabase:
        if self.database is None:
            with self._lock:
                if self.database is None:
                    about = program_facts()
                    database = self.settings.open_database("StepRecorder", "client", about)
                    database.writer.start(self._source)
                    self._uploader = upload_files(self.settings, "the client", [database])
                    self.database = database
        return self.database


def stop_recorders(plugins: list[str]) -> None:
    """Stop the recorders of this process for the runs of these plugins."""
    for recorder in _recorders.copy():
        if recorder.settings.plugin_name("SchedulerPlugin") in plugins:
            recorder.stop()
