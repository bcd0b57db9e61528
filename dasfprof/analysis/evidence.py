"""Everything that the files of a trace say, as columns: the raw material of `Trace`."""

from __future__ import annotations

from typing import Any

import numpy as np

from dasfprof.analysis.fact_columns import FactColumns, Form
from dasfprof.analysis.key_table import KeyCollector
from dasfprof.analysis.progress import track
from dasfprof.analysis.workers import WorkerRegister
from dasfprof.database import DasfDatabase, EventDatabase, FileDatabase
from dasfprof.database.batch import Batch
from dasfprof.database.losses import told_losses
from dasfprof.database.reader import TraceFile
from dasfprof.events import EventPhases


def _forms(**names: str) -> dict[str, Form]:
    """Give a form for each of the names that follow it."""
    forms: dict[str, Form] = {}
    for form, listed in names.items():
        forms.update(dict.fromkeys(listed.split(), form))  # type: ignore[arg-type]
    return forms


#: For each kind of event, by phase and name, the args to keep.
_KINDS: dict[tuple[str, str], dict[str, Form]] = {
    (EventPhases.COMPLETE, "Compute"): _forms(
        key="key",
        keys="dependencies",
        int="run_id",
        category="state type dtype thread exception",
        object="shape",
        float="size input_size cpu run_queue received ready executing seceded done deserialize"
        " disk_read disk_read_size executor",
    ),
    (EventPhases.COMPLETE, "Task Run"): _forms(
        key="key",
        int="run_id",
        category="worker state exception",
        object="annotations",
        float="waiting queued stolen start stop size wanted priority_user priority_generation"
        " priority_order",
    ),
    (EventPhases.COMPLETE, "Transfer"): _forms(
        keys="keys", category="source state", float="size network deserialize"
    ),
    (EventPhases.INSTANT, "Managed Memory"): _forms(
        category="state",
        float="tasks size spilled_size executing ready spill_write spill_write_size spill_read"
        " spill_read_size loop_lag",
    ),
    (EventPhases.INSTANT, "Resource Usage"): _forms(
        float="time gpu_index gpu_utilization gpu_memory_used"
    ),
    (EventPhases.INSTANT, "Disk Usage"): _forms(
        category="device mountpoint file_system",
        float="local_directory total used free read_count write_count read_size write_size"
        " read_time write_time",
    ),
    (EventPhases.INSTANT, "GPU Devices"): _forms(
        category="availability detail match uuid name", float="index"
    ),
    (EventPhases.INSTANT, "GPU Usage"): _forms(
        category="uuid name",
        float="index utilization memory_utilization memory_used memory_total power sm_clock"
        " memory_clock temperature pcie_tx pcie_rx",
    ),
    (EventPhases.INSTANT, "GPU Failure"): _forms(category="uuid reading reason detail"),
    (EventPhases.INSTANT, "Clock"): _forms(float="scheduler_delay monotonic"),
    (EventPhases.INSTANT, "Graph"): _forms(category="client", object="step", float="tasks wanted"),
    (EventPhases.INSTANT, "Unsent Tasks"): _forms(
        key="key", category="name state", object="restrictions", float="tasks"
    ),
    (EventPhases.INSTANT, "Steal"): _forms(key="key", int="run_id", category="victim thief"),
    (EventPhases.INSTANT, "Worker Added"): _forms(
        category="worker host", object="name", float="nthreads memory_limit"
    ),
    (EventPhases.INSTANT, "Worker Removed"): _forms(category="worker reason"),
    (EventPhases.INSTANT, "Step"): _forms(int="id parent", category="step"),
    (EventPhases.INSTANT, "Step End"): _forms(int="id"),
}
#: What a client tells, which is no worker.
_OF_CLIENTS = ("Step", "Step End", "Step Layer")
_STEP_LAYER = _forms(int="id", key="layer", keys="dependencies")

#: The args that are stimulus ids: whatever has the id of what ended a task run came of that end.
_STIMULI = {
    "Task Run": _forms(key="cause end_cause graph"),
    "Graph": _forms(key="stimulus"),
}


class Evidence:
    """The facts of some databases, sorted by kind.

    Parameters
    ----------
    databases
        The databases.
    progress
        Whether to show a bar.
    """

    def __init__(self, databases: list[EventDatabase], *, progress: bool) -> None:
        self.collector = KeyCollector()
        self.register = WorkerRegister()
        #: Numbers the stimulus ids, apart from the keys of tasks.
        self.stimulus_collector = KeyCollector()
        #: The stimulus ids of kinds of events.
        self.stimuli = {
            name: FactColumns(self.stimulus_collector, forms) for name, forms in _STIMULI.items()
        }
        #: Numbers the layers that steps of the pipeline built, apart from the keys of tasks.
        self.layer_collector = KeyCollector()
        self.layers = FactColumns(self.layer_collector, _STEP_LAYER)
        #: What is missing or damaged, in words.
        self.notes: list[str] = []
        #: Plugins whose files are there, once a file.
        self.plugins: list[str] = []
        #: What the files' headers call the run.
        self.runs: set[str] = set()
        #: Hosts of files whose clock began with the host.
        self.dasf_hosts: set[str] = set()
        self._kinds = {
            kind: FactColumns(self.collector, forms, keep_rest=kind[1] == "Resource Usage")
            for kind, forms in _KINDS.items()
        }
        #: The facts of each kind of event.
        self.facts = {name: columns for (_, name), columns in self._kinds.items()}
        bar = track(databases, "Reading traces", shown=progress, total=len(databases), unit="file")
        for database in bar:
            if isinstance(database, FileDatabase):
                self._read_file(database.trace_file())
            elif isinstance(database, DasfDatabase):
                self._read_dasf(database)
            else:
                for batch in database.batches():
                    self._add(batch, None)

    def _add(self, batch: Batch, owner: int | None) -> None:
        if batch.phase == EventPhases.INSTANT and batch.name in _OF_CLIENTS:
            nobody = np.broadcast_to(np.int32(-1), batch.rows)
            (self.layers if batch.name == "Step Layer" else self.facts[batch.name]).add(
                batch, nobody
            )
            return
        columns = self._kinds.get((batch.phase, batch.name))
        if columns is None:
            return
        workers = self.register.ids_of(batch, owner)
        columns.add(batch, workers)
        if batch.name in self.stimuli:
            self.stimuli[batch.name].add(batch, workers)

    def _read_file(self, file: TraceFile) -> None:
        owner: int | None = None
        header: dict[str, Any] = {}
        for batch in file.batches():
            if file.header and not header:
                header, owner = file.header, self.register.add_header(file.header)
            self._add(batch, owner)
        if file.header and not header:  # a file without events
            header, owner = file.header, self.register.add_header(file.header)
        if "plugin" in header:
            self.plugins.append(str(header["plugin"]))
        if header.get("run"):
            self.runs.add(str(header["run"]))
        if owner is not None:
            self.register.workers[owner].closed.append(file.end is not None)
        self._note_losses(file, header)

    def _read_dasf(self, database: DasfDatabase) -> None:
        for batch in database.batches():
            ids = self.register.ids_of(batch, None)
            hosts = {self.register.workers[number].host for number in set(ids.tolist())}
            self.dasf_hosts |= hosts
            self._add(batch, None)
        if database.lost_bytes:
            self.notes.append(
                f"{database.path.name}: the last {database.lost_bytes} bytes hold no whole event."
            )

    def _note_losses(self, file: TraceFile, header: dict[str, Any]) -> None:
        name, damage = file.path.name, file.damage
        if not header:
            self.notes.append(f"{name}: its header is lost, so nothing tells whose file it is.")
        if damage.corrupt_bytes or damage.cut_bytes or damage.unreadable:
            self.notes.append(
                f"{name}: {damage.corrupt_bytes} corrupt bytes, {damage.cut_bytes} bytes cut off at"
                f" the end and {len(damage.unreadable)} unreadable blocks were left out."
            )
        if file.dropped:
            self.notes.append(
                f"{name}: dropped while recording: {told_losses(file.dropped, file.dropped_by)}."
            )
        if file.errors:
            self.notes.append(f"{name}: {file.errors} errors were caught while recording.")
        if "plugin" in header and file.end is None:
            self.notes.append(
                f"{name}: ends early, without the closing frame: its process was killed, or is"
                " still recording; what it had not yet written is missing."
            )
