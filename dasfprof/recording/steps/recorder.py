"""`StepRecorder`: records, on the client's machine, the steps of a run and what they built."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable
from time import time
from typing import Any

from distributed import Client

from dasfprof.database import FileDatabase
from dasfprof.database.writer import Folded, Source
from dasfprof.recording.cluster.scheduler_watch import SchedulerWatch
from dasfprof.recording.dask_internals.graphs import place_hooks, remove_hooks, watch_dataframes
from dasfprof.recording.settings import RunSettings
from dasfprof.recording.steps import step as steps
from dasfprof.recording.steps.pipeline import watch_pipeline
from dasfprof.recording.steps.step import OpenStep
from dasfprof.schema.declaration import Schema
from dasfprof.schema.steps import STEP, STEP_END, STEP_LAYER

logger = logging.getLogger(__name__)

_SCHEMAS = (STEP, STEP_END, STEP_LAYER)

#: The recorders of this process, to stop that of a run that another run replaces.
_recorders: list[StepRecorder] = []


class StepRecorder:
    """Records the steps of this process for one run. The first step creates the file.

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
        self._source = Source(_fold, {"process_id": socket.gethostname(), "thread_id": "client"})
        self._stopped = False
        self.database: FileDatabase | None = None

    def start(self) -> None:
        """Start recording."""
        for other in _recorders.copy():
            if other.is_over:
                other.stop()
        self._cluster = self._client.cluster
        self._watch = SchedulerWatch(self._client, self.stop)
        self._watch.start()
        place_hooks()
        _recorders.append(self)
        steps.add_observer(self)
        self._forget_pipeline = watch_pipeline(self._pipeline)

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
        if self._watch is not None:
            self._watch.stop()
        steps.remove_observer(self)
        if self._forget_pipeline is not None:
            self._forget_pipeline()
        if self in _recorders:
            _recorders.remove(self)
            remove_hooks()
        if self.database is not None:
            self.database.close()

    def commit(self) -> None:
        """Write everything that has been recorded so far."""
        if self.database is not None and not self._stopped:
            self.database.commit()

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

    def _note_step(self, opened: OpenStep) -> None:
        """Note a step and those around it, unless noted, also if entered before recording began."""
        if opened.id in self._noted:
            return
        self._noted.add(opened.id)
        if opened.parent is not None:
            self._note_step(opened.parent)
        parent = -1 if opened.parent is None else opened.parent.id
        self._append((STEP, (opened.began, opened.id, parent, opened.names[-1])))

    def _append(self, note: tuple[Schema, tuple[Any, ...]]) -> None:
        if self._stopped:
            return
        if self.database is None:
            self._open()
        assert self.database is not None
        self._source.rows.append(note)
        if len(self._source.rows) >= self.database.writer.commit_threshold:
            self.database.writer.threshold_reached(self._source)

    def _open(self) -> None:
        with self._lock:
            if self.database is None:
                database = self.settings.open_database("StepRecorder", "client", {})
                database.writer.start(self._source)
                self.database = database


def stop_recorders(plugins: list[str]) -> None:
    """Stop the recorders of this process for the runs of these plugins."""
    for recorder in _recorders.copy():
        if recorder.settings.plugin_name("SchedulerPlugin") in plugins:
            recorder.stop()


def _fold(notes: list[tuple[Schema, tuple[Any, ...]]]) -> Folded:
    """Return the rows of notes by schema, each with its position among the notes."""
    rows: dict[Schema, list[tuple[Any, ...]]] = {schema: [] for schema in _SCHEMAS}
    positions: dict[Schema, list[int]] = {schema: [] for schema in _SCHEMAS}
    for position, (schema, row) in enumerate(notes):
        rows[schema].append(row)
        positions[schema].append(position)
    return [(schema, rows[schema], positions[schema]) for schema in _SCHEMAS]
