"""`TraceBuilder`: creates the tables of a `Trace` from the columns that the reader collected."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from dasfprof.analysis.trace import gaps
from dasfprof.analysis.trace import tasks as task_runs
from dasfprof.analysis.trace.clients import ClientLookup, Selected, client_names, without_others
from dasfprof.analysis.trace.columns import make_categorical
from dasfprof.analysis.trace.gaps import Note, Surroundings, call_profiles
from dasfprof.analysis.trace.lines import TaskLines
from dasfprof.analysis.trace.reader import FAR_AWAY, TraceReader, widened
from dasfprof.analysis.trace.sent_functions import SentFunctions
from dasfprof.analysis.trace.steps import BuiltLayers, KeyLayers, RunGraphs, TaskSteps, step_table
from dasfprof.analysis.trace.under_way import UnderWayTables, places_not_ended
from dasfprof.analysis.trace.workers import (
    Worker,
    boot_times,
    to_unix,
    with_host_readings,
    with_owners,
)
from dasfprof.database.columns import Array
from dasfprof.database.ends import SCHEDULER, TASKS, End, recording_end
from dasfprof.database.reader import LASTING
from dasfprof.text import count_of

#: Columns of events that contain stimulus ids.
_STIMULI = ("cause", "end_cause", "graph", "stimulus")

#: Tables whose events do not belong to a worker.
_OF_NOBODY = ("releases", "graphs_sent", "client_calls", "sent_values", "functions_sent")
#: Events in whose tables the column of the key is called ``key``. In all other tables, it is called
#: ``key_id``.
_KEYED = ("Unsent Tasks", "Steal")
#: Cluster changes after which workers leave, and the reason that Dask records for workers that left
#: for this change.
_ENDS = {"restart": "client-restart", "worker-ttl": "check-worker-ttl"}


class TraceBuilder:
    """Builder of the tables of a trace. `make` may only be called once."""

    def __init__(self, reader: TraceReader, client: str | None = None) -> None:
        self._reader, self._register, self._client = reader, reader.register, client
        self._notes = list(reader.notes)
        self._surroundings = Surroundings.from_headers(reader.headers)
        self._keys, self._ids = reader.collector.finish()
        self._columns = {name: facts.columns(self._ids) for name, facts in reader.facts.items()}
        self._stimuli, stimulus_ids = reader.stimulus_collector.finish()
        for name, facts in reader.stimuli.items():
            ids = facts.columns(stimulus_ids)
            self._columns[name] |= {arg: ids[arg] for arg in _STIMULI if arg in ids}
        self._layer_names, layer_ids = reader.layer_collector.finish()
        self._known_layers = KeyLayers(self._layer_names, self._keys)
        self._layers = {
            name: BuiltLayers(facts.columns(layer_ids), facts.list_items("dependencies", layer_ids))
            for name, facts in reader.layers.items()
        }
        self._events = reader.user_events.table()
        self._steps = step_table(self._columns.pop("Step"), self._columns.pop("Step End"))
        self._under_way = UnderWayTables(reader.facts, self._columns, self._ids)
        self._recording = recording_end(reader.file_ends())

    def make(self, events: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """Return the values of all fields of the `Trace`.

        `events` contains the metadata of each field that is a table of events.
        """
        reader, register = self._reader, self._register
        self._align_clocks()
        self._add_scheduler_facts()
        self._check_scheduler_file()
        tables = {name: self._table(**metadata) for name, metadata in events.items()}
        for name in _OF_NOBODY:
            del tables[name]["worker_id"]
        # The event was recorded by the scheduler. The table contains the worker that drops the
        # copy.
        dropped = tables["copies_dropped"]
        addresses = dropped.pop("worker").cat
        ids = [register.id_of_address(str(text)) for text in addresses.categories]
        dropped["worker_id"] = np.array(ids, dtype=np.int64)[addresses.codes.to_numpy()]
        processes = tables["host_processes"]
        hosts = register.names_of(processes["worker_id"].to_numpy(), "host")
        tables["host_processes"] = with_owners(processes, hosts, reader.processes)
        hosts = register.names_of(tables["samples"]["worker_id"].to_numpy(), "host")
        tables["samples"] = with_host_readings(tables["samples"], hosts.codes)
        tables["call_profiles"] = call_profiles(tables["call_profiles"], reader.profile_directories)
        moved = reader.facts["Transfer"].list_items("keys", self._ids)
        tables["tasks"], tables["scheduler_only"], dependencies = self._task_tables(
            tables["graphs"], set(tables["graphs_sent"]["client"].tolist())
        )
        task_runs.add_helpers(tables["tasks"], tables["storage"])
        begin, end, left_out = widened(*self._time_ranges(tables, events), self._events)
        if left_out:
            text = f"{count_of(left_out, 'event')} of user code {FAR_AWAY}"
            self._notes.append(Note("clock", "", text))
        if reader.window is not None:
            self._notes.append(gaps.of_window(reader.window, tables["tasks"]))
        failures = self._table("GPU Failure")
        self._notes += gaps.of_gpus(tables["samples"], tables["gpu_devices"], failures)
        if self._recording is End.GOES_ON:
            self._notes.append(Note("goes-on", "", "the run is still being recorded."))
        self._notes += gaps.of_shuffles(tables["tasks"], tables["shuffle_messages"])
        items = {"lengths": dependencies[0], "dependencies": dependencies[1], "transfers": moved}
        selected = None if self._client is None else Selected(self._client, self._clients)
        tables["others"] = without_others(tables, items, self._keys, selected)
        history = tables["under_way_history"]
        unfinished = places_not_ended(history, tables["tasks"], tables["scheduler_only"])
        tables["stacks"] = self._under_way.stacks
        SentFunctions(tables["functions_sent"].astype(object).to_dict("records")).mend(tables)
        headers = reader.headers
        runs = {str(header["run"]) for header in headers if header.get("run")}
        return {
            **tables,
            "under_way": history.iloc[unfinished].reset_index(drop=True),
            "recording": self._recording,
            "steps": self._steps.drop(columns="id"),
            "lines": self._lines.table,
            "fused_layers": self._lines.fused_layers(
                self._known_layers.of_layers, self._layer_names
            ),
            "events": self._events,
            "workers": register.table(),
            "keys": self._keys,
            "stimuli": self._stimuli,
            "begin": begin,
            "end": end,
            "notes": tuple(self._notes),
            "task_dependencies": (items["lengths"], items["dependencies"]),
            "transfer_keys": (tables["transfers"]["keys"].to_numpy(), items["transfers"]),
            "run": runs.pop() if len(runs) == 1 else None,
            "surroundings": self._surroundings,
            # Whether all workers could record slow serializing, even if none occurred.
            "knows_serialising": all(
                worker.serialising for worker in register.workers if worker.kind == "worker"
            ),
            "knows_releases": any(header.get("releases") is True for header in headers),
        }

    def _align_clocks(self) -> None:
        """Convert timestamps that count from boot, as DASF recorded them, to Unix time."""
        samples = self._columns["Resource Usage"]
        of_workers = self._register.names_of(np.arange(len(self._register.workers)), "host")
        hosts, codes = list(of_workers.categories), of_workers.codes
        of_samples, unix = codes[samples["worker_id"]], samples.pop("time")
        timed = {hosts[code] for code in np.unique(of_samples[np.isfinite(unix)]).tolist()}
        boots = boot_times(of_samples, samples["timestamp"], unix, len(hosts))
        if boots is not None:
            for columns in self._columns.values():
                boot = boots[codes[columns["worker_id"]]]
                columns["timestamp"] = to_unix(columns["timestamp"], boot)
            known = dict(zip(hosts, boots.tolist(), strict=True))
            # If no clock is known for the process of an event, its time is used unchanged.
            boot = self._events["process"].map(known).fillna(0.0).to_numpy(dtype=float)
            self._events["time"] = to_unix(self._events["time"].to_numpy(), boot)
        for host in sorted(self._reader.dasf_hosts - timed):
            text = (
                f"{host}: its clock began when the host started, and no Resource Usage event "
                "relates it to Unix time. Its times cannot be compared with those of other hosts."
            )
            self._notes.append(Note("clock", host, text))

    def _add_scheduler_facts(self) -> None:
        """Add what the scheduler recorded about workers, including workers that have no file."""
        register = self._register

        def rows_of(event: str) -> Iterator[tuple[Worker, dict[str, Any]]]:
            columns = self._columns.pop(event)
            for row, address in enumerate(columns["worker"]):
                worker = register.workers[register.id_of_address(str(address))]
                yield worker, {name: column[row] for name, column in columns.items()}

        for worker, joined in rows_of("Worker Added"):
            worker.joined = float(joined["timestamp"])
            if not worker.plugins:
                worker.host = worker.host or str(joined["host"])
                worker.name, threads = joined["name"], joined["nthreads"]
                worker.nthreads = int(threads) if np.isfinite(threads) else None
            worker.memory_limit = worker.memory_limit or float(joined["memory_limit"]) or None
            resources = joined["resources"]
            worker.resources = resources if isinstance(resources, dict) else None
        for worker, left in rows_of("Worker Removed"):
            worker.left, worker.left_reason = float(left["timestamp"]), str(left["reason"])
        for worker, ended in rows_of("Worker Exit"):
            worker.exit_code, reason = float(ended["exit_code"]), ended["reason"]
            worker.exit_reason = reason if isinstance(reason, str) else None
        errors = self._columns.pop("Worker Error")
        for row, number in enumerate(errors["worker_id"].tolist()):
            register.workers[number].last_error = str(errors["exception"][row])
            register.workers[number].last_error_time = float(errors["timestamp"][row])
        # If nannies were asked to end their workers, Dask reports a lost connection. The cluster
        # change is recorded before the workers leave. If only some workers were restarted, it may
        # be recorded up to a timeout later.
        changes = self._columns["Cluster Change"]
        for row, action in enumerate(changes["action"]):
            for address in changes["workers"][row] or () if action in _ENDS else ():
                worker = register.workers[register.id_of_address(str(address))]
                if worker.left is not None:
                    worker.left_reason = _ENDS[action]
                    if action == "worker-ttl":
                        worker.silent = float(changes["number"][row])
        register.name_hosts()

    def _check_scheduler_file(self) -> None:
        """Add a note if the scheduler's file lacks exits of workers whose files are closed."""
        left = {str(worker.address) for worker in self._register.workers if worker.left is not None}
        # If the scheduler's process is running, its file alone would suggest that the run
        # continues.
        recording = recording_end(self._reader.file_ends(), left)
        if recording is not self._recording:
            self._recording = recording
            self._notes += map(gaps.of_cut_scheduler, self._reader.scheduler_goes_on)

    def _time_ranges(
        self, tables: dict[str, pd.DataFrame], events: Mapping[str, Mapping[str, Any]]
    ) -> tuple[float, float]:
        """Set the time range of each worker's events, and return that of all events."""
        count = len(self._register.workers)
        first, last = np.full(count, np.inf), np.full(count, -np.inf)
        for name, table in tables.items():
            metadata = events.get(name, {"time": "start"})  # Other tables contain task runs.
            if "worker_id" not in table or not len(table):
                continue
            if self._reader.window is not None and metadata.get("event") in LASTING:
                continue  # These events may lie outside the window.
            if name == "scheduler_only":
                starts, stops = table["sent"].to_numpy(), table["known"].to_numpy()
            elif metadata["time"] == "start":
                starts = table["start"].to_numpy()
                stops = starts + table["duration"].to_numpy()
            else:
                starts = stops = table["time"].to_numpy()
            is_known = np.isfinite(starts) & np.isfinite(stops)
            known = slice(None) if is_known.all() else is_known
            ids = table["worker_id"].to_numpy()[known]
            np.minimum.at(first, ids, starts[known])
            np.maximum.at(last, ids, stops[known])
        for worker, begin, end in zip(
            self._register.workers, first.tolist(), last.tolist(), strict=True
        ):
            if begin <= end:
                worker.first_seen, worker.last_seen = begin, end
        if not np.isfinite(first).any():
            return np.nan, np.nan
        return float(first.min()), float(last.max())

    def _table(self, event: str, time: str = "time", *, by_time: bool = False) -> pd.DataFrame:
        """Return the table of events with this name.

        For `time` and `by_time`, see `_of_events` in `trace`.
        """
        columns = self._columns.pop(event)
        columns[time] = columns.pop("timestamp")
        if time == "start":
            columns.setdefault("duration", np.empty(0))
        self._under_way.complete(event, columns)
        if event not in _KEYED:
            columns = {"key_id" if key == "key" else key: columns[key] for key in columns}
        table = pd.DataFrame(columns, copy=False)
        return table.sort_values("time", kind="stable", ignore_index=True) if by_time else table

    def _task_tables(
        self, graphs: pd.DataFrame, senders: set[str]
    ) -> tuple[pd.DataFrame, pd.DataFrame, tuple[Array, Array]]:
        """Return `Trace.tasks`, `Trace.scheduler_only` and `Trace.task_dependencies`.

        `senders` are the clients that recorded the graphs that they sent.
        """
        worker = task_runs.worker_runs(self._columns.pop("Compute"))
        scheduler = task_runs.scheduler_runs(self._columns.pop("Task Run"), self._register)
        came_with = RunGraphs(graphs, scheduler, len(self._keys))
        layers, facts = self._known_layers, self._reader.facts
        steps = TaskSteps(self._steps, self._layers["Step Layer"], layers, graphs, came_with)
        self._lines = TaskLines(
            self._columns.pop("Line"),
            self._layers["Line Layer"],
            self._columns.pop("Line Graph"),
            layers,
            self._keys,
            graphs,
            came_with,
            senders,
        )
        self._clients = clients = ClientLookup(
            graphs,
            came_with,
            client_names(self._columns.pop("Client")),
            (
                self._columns.pop("Client Tasks"),
                facts["Client Tasks"].list_items("keys", self._ids),
            ),
            scheduler,
        )
        lengths = worker.pop("dependencies").astype(np.int32)
        items = facts["Compute"].list_items("dependencies", self._ids)
        headers = self._reader.headers
        plugins = {str(header["plugin"]) for header in headers if "plugin" in header}
        recorders = [header for header in headers if header.get("plugin") == TASKS]
        recorded = any(header.get("unmetered") is not True for header in recorders)
        alone = not len(lengths) and not recorded and len(scheduler["sent"]) > 0
        if alone:
            ran = np.isfinite(scheduler["scheduler_start"])
            seen = task_runs.take(scheduler, np.flatnonzero(ran))
            lengths = np.full(len(seen["sent"]), -1, dtype=np.int32)
            runs = {**task_runs.take(worker, lengths), **task_runs.as_worker_runs(seen)}
            remaining = task_runs.take(scheduler, np.flatnonzero(~ran))
        else:
            task_runs.number_repeats(worker)
            task_runs.add_input_sizes(worker, lengths, items, len(self._keys))
            task_runs.forget_shuffled_inputs(worker, lengths, items, self._keys)
            runs, remaining = worker, scheduler
            if len(scheduler["sent"]):
                places, unmatched = task_runs.join_runs(worker, scheduler, self._register)
                runs = {**task_runs.take(scheduler, places), **worker}
                remaining = task_runs.take(scheduler, unmatched)
        runs["source"] = make_categorical(
            np.full(len(lengths), int(alone), dtype=np.int8), ["worker", "scheduler"]
        )
        remaining["lost"] = np.isfinite(remaining["scheduler_start"])
        # Reasons why these task runs are in no worker's file.
        reasons = [
            0 if TASKS not in instance.plugins else 1 if False in instance.closed else 2
            for instance in self._register.workers
        ]
        remaining["reason"] = make_categorical(
            np.array([*reasons, 0], np.int8)[remaining["worker_id"]],
            ["no file", "file ends early", "not in its file"],
        )
        if alone and len(lengths):
            self._notes.append(gaps.NO_WORKER_FILES)
        if self._surroundings.local:
            self._notes.append(gaps.of_local(self._surroundings.local))
        elif plugins and SCHEDULER not in plugins:
            self._notes.append(gaps.NO_SCHEDULER_FILE)
        self._notes += gaps.of_input_sizes(runs["input_size"])
        self._notes += gaps.of_lost_runs(remaining, self._register.workers)
        runs["step"], remaining["step"] = steps.find(runs), steps.find(remaining)
        runs["client"], remaining["client"] = clients.find(runs), clients.find(remaining)
        runs["line"], runs["no_line"] = self._lines.find(runs, (lengths, items))
        remaining["line"], remaining["no_line"] = self._lines.find(remaining)
        self._notes += gaps.of_steps(runs["step"], has_steps=len(self._steps) > 0)
        tasks, only = (
            task_runs.make_table(each, self._keys, self._register) for each in (runs, remaining)
        )
        return tasks, only, (lengths, items)
