"""`StepRecorder`: records steps, lines, and calls to Dask in the client's process."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import astuple
from functools import partial
from time import time
from typing import Any

from distributed import Client

from dasfprof.database import FileDatabase
from dasfprof.database.writer import Folded, Source
from dasfprof.recording.cluster.calls import check_process
from dasfprof.recording.cluster.link import SchedulerWatch, status_of
from dasfprof.recording.cluster.program import program_facts
from dasfprof.recording.dask_internals.graphs import (
    place_hooks,
    remove_hooks,
    report_lines,
    watch_collections,
)
from dasfprof.recording.guard import HookGuard
from dasfprof.recording.rows import FileRows, SchemaRow, fold_rows
from dasfprof.recording.settings import RunSettings
from dasfprof.recording.shipping.sender import Sender
from dasfprof.recording.shipping.targets import upload_files
from dasfprof.recording.stack_samples.sampled_threads import ClientThread, Subject
from dasfprof.recording.stack_samples.sampler import sample_into
from dasfprof.recording.steps import step as steps
from dasfprof.recording.steps.line import Line, RecordedLines, place_of
from dasfprof.recording.steps.step import ClientCall, OpenStep, Submission
from dasfprof.recording.task_runs.function_code import SentFunctionRecorder
from dasfprof.recording.under_way.loop import ClientUnderWay, Pulse
from dasfprof.schema.profiles import CLIENT_SAMPLE
from dasfprof.schema.steps import (
    CLIENT_CALLS,
    GRAPH_SENT,
    LINE_GRAPH,
    SENT_VALUE,
    STEP,
    STEP_END,
    STEP_LAYER,
)

#: Threshold (seconds) from which a call gets a separate row.
LONG = 0.1
#: Attributes of `ClientCall` that are summed over the calls in a row.
_SUMS = (
    *("waiting", "receiving", "deserialising", "tokenising", "optimising", "pickling"),
    *("keys", "received", "sent"),
)


def recording(start: float, stop: float) -> ClientCall:
    """Return a `ClientCall` that stands for the time range of the recording, instead of a call."""
    return ClientCall("recording", None, start, seconds=stop - start)


def fold_calls(calls: Sequence[ClientCall]) -> Folded:
    """Merge short calls from the same line, and return rows. Called in the writer's thread."""
    groups: dict[Any, list[ClientCall]] = {}
    for number, call in enumerate(calls):
        long_call = number if call.seconds >= LONG else -1
        groups.setdefault((call.name, call.line, call.is_main, long_call), []).append(call)
    rows = [_row(group) for group in groups.values()]
    return [(CLIENT_CALLS, rows, range(len(rows)))] if rows else []


def _row(calls: list[ClientCall]) -> tuple[Any, ...]:
    first = calls[0]
    seconds = [call.seconds for call in calls]
    return (
        min(call.start for call in calls),
        first.name,
        *place_of(first.line),
        int(first.is_main),
        0 if first.name == "recording" else len(calls),
        max(call.start + call.seconds for call in calls),
        sum(seconds),
        max(seconds),
        *(sum(getattr(call, name) for call in calls) for name in _SUMS),
    )


logger = logging.getLogger(__name__)


class StepRecorder:
    """Records the steps of this process for one run, and the activity of its main thread.

    If this process cannot write to the run's directory, the main thread is not recorded.

    Parameters
    ----------
    client
        A client of the cluster, or None if the run has no cluster. The run is over after the
        cluster has closed or the scheduler has ended, even if `stop` was not called.
    subject
        A function that returns the `Subject` for the main thread. The default is `ClientThread`.
    """

    def __init__(
        self,
        settings: RunSettings,
        client: Client | None,
        *,
        subject: Callable[..., Subject] = ClientThread,
    ) -> None:
        self.settings = settings
        #: Name of the run's plugin on the scheduler.
        self.scheduler_plugin = settings.plugin_name("SchedulerPlugin")
        self._client = client
        self._subject = subject
        self._cluster: Any = None
        #: Functions that `stop` calls, from the last to the first.
        self._undo: list[Callable[[], object]] = []
        self._lock = threading.Lock()
        self._recorded_steps: set[int] = set()
        self._constants = {"process_id": socket.gethostname(), "thread_id": "client"}
        self._source = Source(fold_rows, self._constants)
        self._calls = Source(fold_calls, self._constants)
        self._stopped = False
        #: Time when the last graph was sent (`_since`, at first the start of the recording), and
        #: time when the recording of the main thread started (`_began`). Unix seconds.
        self._since = self._began = time()
        self._guard = HookGuard()
        self._functions: SentFunctionRecorder | None = None
        self._lines: RecordedLines | None = None
        self.database: FileDatabase | None = None
        self._sender: Sender | None = None

    def start(self) -> None:
        """Start recording."""
        for other in steps.observers:
            if other.is_over:
                other.stop()
        if self._client is not None:
            self._cluster = self._client.cluster
            plugin, limit = self.scheduler_plugin, self.settings.orphan_timeout
            self._undo.append(SchedulerWatch(self._client, plugin, limit, self.stop).stop)
        place_hooks()
        self._since = time()
        steps.add_observer(self)
        self._undo += [remove_hooks, partial(steps.remove_observer, self)]
        try:
            if check_process(self.settings.directory, self.settings.storage) is None:
                self._watch_main_thread()
        except Exception:
            self._guard.caught("start")

    def _watch_main_thread(self) -> None:
        """Start recording the main thread and the client's work in progress."""
        writer = self._open().writer
        self._began = time()
        self.called(recording(self._began, self._began))
        self._guard = HookGuard(writer)
        rows = FileRows(writer, self._constants, self._guard, self._append)
        client = "no cluster" if self._client is None else self._client.id
        sample = ClientUnderWay(client, rows).sample
        self._undo.append(Pulse("under-way client", sample, self._guard).stop)
        frequency = self.settings.stack_frequency
        self._undo.append(sample_into(rows, frequency, CLIENT_SAMPLE, self._subject))

    @property
    def is_over(self) -> bool:
        """Whether the cluster has closed, as far as this process knows."""
        # A closed client does not end the run, because the cluster may have other clients.
        return status_of(self._cluster) == "closed"

    def stop(self) -> None:
        """End the recording and write everything that was recorded. Further calls do nothing."""
        report_lines()
        with self._lock:
            if self._stopped:
                return
            self._stopped = True
        self._guard.call_all("stop", self._undo)
        with self._guard.catching("stop"):
            if self.database is not None:
                ended = recording(self._began, time())
                self.database.writer.append(self._calls, ended)
                self.database.close()
            if self._sender is not None:
                self._sender.finish()

    def commit(self) -> None:
        """Write everything that has been recorded so far."""
        report_lines()
        if self.database is not None and not self._stopped:
            self.database.commit()
            if self._sender is not None:
                self._sender.commit()

    def began(self, opened: OpenStep) -> None:
        """Record that a step was entered."""
        if self.is_over:
            self.stop()
            return
        watch_collections()
        self._record_step(opened)

    def ended(self, opened: OpenStep) -> None:
        """Record that a step was left."""
        self._record_step(opened)
        self._append((STEP_END, (time(), opened.id)))

    def built(self, opened: OpenStep, layer: str) -> None:
        """Record that a layer of a graph was built in a step."""
        self._record_step(opened)
        self._append((STEP_LAYER, (time(), opened.id, layer, ())))

    def derived(self, layer: str, dependencies: list[str]) -> None:
        """Record a layer that was built outside of steps, but from layers that steps built."""
        self._append((STEP_LAYER, (time(), -1, layer, dependencies)))

    def built_at(self, facts: list[Any]) -> None:
        """Record which lines built layers of graphs or submitted futures.

        `facts` is a flat list with four entries per layer or future: the time, the line, the name
        of the layer or the key of the future, and the dependencies.
        """
        if not self._stopped:
            self._open()
            if self._lines is not None:
                self._lines.built_at(facts)

    def mapped(self, line: Line, key: Any) -> None:
        """Record that a line sent a graph. `key` is a key of this graph."""
        self._append((LINE_GRAPH, (time(), line.id, key)))
        self._record_line(line)

    def _record_line(self, line: Line | None) -> None:
        if line is not None and self._lines is not None and not self._stopped:
            self._lines.record(line)

    def submitted(self, sent: Submission) -> None:
        """Record that a client has sent a graph, and record the graph's functions."""
        if self.is_over:
            return
        start, optimising = sent.start, sent.optimising
        now, since = time(), self._since
        self._since = now
        watch_collections()
        # A part of this time may have been before the start of the recording.
        if optimising is not None:
            optimising = min(optimising, max(start - since, 0.0))
        host = self._constants["process_id"]
        self._append((GRAPH_SENT, (now, sent.client, host, since, start, optimising, sent.size)))
        place = place_of(sent.line)
        for value in sent.values:
            self._append((SENT_VALUE, (now, *astuple(value), *place)))
        if self._functions is not None:
            self._functions.record(sent.functions)

    def called(self, call: ClientCall) -> None:
        """Record a call to Dask."""
        if self.database is not None and not self._stopped and not self.is_over:
            self.database.writer.append(self._calls, call)
            self._record_line(call.line)

    def _record_step(self, opened: OpenStep) -> None:
        """Record a step and the steps around it, each once."""
        if opened.id in self._recorded_steps:
            return
        self._recorded_steps.add(opened.id)
        # The steps may have been entered before the recording started.
        if opened.parent is not None:
            self._record_step(opened.parent)
        parent = -1 if opened.parent is None else opened.parent.id
        self._append((STEP, (opened.began, opened.id, parent, opened.names[-1])))

    def _append(self, row: SchemaRow) -> None:
        if not self._stopped:
            self._open().writer.append(self._source, row)

    def _open(self) -> FileDatabase:
        if self.database is None:
            with self._lock:
                if self.database is None:
                    about = program_facts()
                    database = self.settings.open_database("StepRecorder", "client", about)
                    database.writer.start(self._source)
                    database.writer.add_source(self._calls)
                    code = self.settings.record_code
                    self._functions = SentFunctionRecorder(database.writer, self._constants, code)
                    self._lines = RecordedLines(database.writer, self._constants, code)
                    self._sender = upload_files(self.settings, "the client", [database])
                    self.database = database
        return self.database


def stop_recorders(plugins: list[str]) -> None:
    """Stop this process's recorders of those runs that have one of these scheduler plugins."""
    for recorder in steps.observers:
        if recorder.scheduler_plugin in plugins:
            recorder.stop()
