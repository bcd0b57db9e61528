"""Makes the tables of a `Trace` out of the reader."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from dasfprof.analysis.trace import gaps
from dasfprof.analysis.trace import tasks as task_runs
from dasfprof.analysis.trace.clients import TaskClients, client_names
from dasfprof.analysis.trace.columns import make_categorical
from dasfprof.analysis.trace.gaps import Note, Surroundings, call_profiles
from dasfprof.analysis.trace.lines import TaskLines
from dasfprof.analysis.trace.reader import FAR_AWAY, TraceReader, widened
from dasfprof.analysis.trace.selected_client import Selected, without_others
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
from dasfprof.database.ends import RecordingEnd, recording_end
from dasfprof.database.reader import LASTING
from dasfprof.text import count_of

Columns = dict[str, Any]

#: Plugins as the headers of their files name them.
_TASKS, _SCHEDULER = "TracePlugin", "SchedulerPlugin"

#: Args that are stimulus ids.
_STIMULI = ("cause", "end_cause", "graph", "stimulus")

#: Tables with a row an event, and the name of the events.
_EVENTS = {
    "samples": "Resource Usage",
    "managed_memory": "Managed Memory",
    "graphs": "Graph",
    "steals": "Steal",
    "unsent": "Unsent Tasks",
    "clocks": "Clock",
    "disk_usage": "Disk Usage",
    "gpu_devices": "GPU Devices",
    "gpu_usage": "GPU Usage",
    "device_memory": "Device Memory",
    "function_code": "Function Code",
    "logs": "Log Record",
    "tracebacks": "Traceback",
    "arguments": "Task Arguments",
    "storage": "Storage",
    "unpickled": "Task Unpickled",
    "serialised": "Result Serialised",
    "locks_held": "Lock Held",
    "call_profiles": "Call Profile",
    "cluster_changes": "Cluster Change",
    "releases": "Result Released",
    "copies_dropped": "Copy Dropped",
    "graphs_sent": "Graph Sent",
    "client_calls": "Client Calls",
    "sent_values": "Sent Value",
    "functions_sent": "Function Sent",
}
#: Tables of work under way and of samples of stacks, and the name of their events.
_UNDER_WAY = {
    "under_way_history": "Task Under Way",
    "loops_blocked": "Loop Blocked",
    "scheduler_states": "Scheduler State",
    "task_samples": "Task Sample",
    "loop_samples": "Loop Sample",
    "clients_under_way": "Client Under Way",
    "client_samples": "Client Sample",
}
#: Those that tell of no worker.
_OF_NOBODY = ("releases", "graphs_sent", "client_calls", "sent_values", "functions_sent")
#: Events whose key is called so in their tables; that of others is ``key_id``.
_KEYED = ("Unsent Tasks", "Steal")
#: Changes of a cluster after which its workers leave, and how Dask calls that as a cause.
_ENDS = {"restart": "client-restart", "worker-ttl": "check-worker-ttl"}

#: Columns that tell when a row's fact begins and ends (or how long it takes).
_SPANS = {
    "tasks": ("start", "duration"),
    "transfers": ("start", "duration"),
    "shuffle_messages": ("start", "duration"),
    "actor_calls": ("start", "duration"),
    "worker_functions": ("start", "duration"),
    "scheduler_only": ("sent", "known"),
}


class TraceBuilder:
    """Makes tables, once: `make` gives the fields of `Trace`."""

    def __init__(self, reader: TraceReader, client: str | None = None) -> None:
        self._client = client
        self._facts = reader.facts
        self._register = reader.register
        self._plugins = reader.plugins
        self._processes = reader.processes
        self._dasf_hosts = reader.dasf_hosts
        self._profile_directories = reader.profile_directories
        self._notes = list(reader.notes)
        self._surroundings = Surroundings.of(reader.headers)
        self._knows_releases = any(header.get("releases") is True for header in reader.headers)
        self._run = next(iter(reader.runs)) if len(reader.runs) == 1 else None
        self._keys, self._ids = reader.collector.finish()
        self._columns = {name: facts.columns(self._ids) for name, facts in self._facts.items()}
        self._stimuli, stimulus_ids = reader.stimulus_collector.finish()
        for name, facts in reader.stimuli.items():
            ids = facts.columns(stimulus_ids)
            self._columns[name] |= {arg: ids[arg] for arg in _STIMULI if arg in ids}
        layers, layer_ids = reader.layer_collector.finish()
        self._layer_names, self._known_layers = layers, KeyLayers(layers, self._keys)
        self._layers = {
            name: BuiltLayers(facts.columns(layer_ids), facts.list_items("dependencies", layer_ids))
            for name, facts in reader.layers.items()
        }
        self._events = reader.own_events.table()
        self._steps = step_table(self._columns.pop("Step"), self._columns.pop("Step End"))
        self._under_way = UnderWayTables(self._facts, self._columns, self._ids)
        self._window = reader.window
        self._files = reader.file_ends()
        self._recording = recording_end(self._files)
        self._scheduler_goes_on = reader.scheduler_goes_on

    def make(self) -> dict[str, Any]:
        """Make the tables."""
        self._align_clocks()
        self._meet_workers()
        self._doubt_scheduler()
        tables = {name: self._event_table(event) for name, event in _EVENTS.items()}
        for name in _OF_NOBODY:
            tables[name] = tables[name].drop(columns="worker_id")
        tables["copies_dropped"] = self._of_workers(tables["copies_dropped"])
        table = self._event_table("Host Process")
        hosts = self._register.host_of(table["worker_id"].to_numpy())
        tables["host_processes"] = with_owners(table, hosts, self._processes)
        codes = self._register.hosts()[1][tables["samples"]["worker_id"].to_numpy()]
        tables["samples"] = with_host_readings(tables["samples"], codes)
        tables["call_profiles"] = call_profiles(tables["call_profiles"], self._profile_directories)
        tables |= {name: self._under_way.table(event) for name, event in _UNDER_WAY.items()}
        tables["transfers"] = self._span_table("Transfer")
        moved = self._facts["Transfer"].list_items("keys", self._ids)
        tables["shuffle_messages"] = self._span_table("Shuffle Message")
        tables["actor_calls"] = self._span_table("Actor Call").rename(columns={"key": "key_id"})
        tables["worker_functions"] = self._span_table("Worker Function")
        tables["tasks"], tables["scheduler_only"], dependencies = self._task_tables(
            tables["graphs"], set(tables["graphs_sent"]["client"].tolist())
        )
        task_runs.add_helpers(tables["tasks"], tables["storage"])
        begin, end = self._see_workers(tables)
        begin, end, left_out = widened(begin, end, self._events)
        if left_out:
            text = f"{count_of(left_out, 'event')} of user code {FAR_AWAY}"
            self._notes.append(Note("clock", "", text))
        if self._window is not None:
            self._notes.append(gaps.of_window(self._window, tables["tasks"]))
        failures = self._event_table("GPU Failure")
        self._notes += gaps.of_gpus(tables["samples"], tables["gpu_devices"], failures)
        if self._recording is RecordingEnd.GOES_ON:
            self._notes.append(Note("goes-on", "", "the run is still being recorded."))
        self._notes += gaps.of_shuffles(tables["tasks"], tables["shuffle_messages"])
        items = {"lengths": dependencies[0], "dependencies": dependencies[1], "transfers": moved}
        selected = None if self._client is None else Selected(self._client, self._clients)
        tables["others"] = without_others(tables, items, self._keys, selected)
        history = tables["under_way_history"]
        places = places_not_ended(history, tables["tasks"], tables["scheduler_only"])
        tables["stacks"] = self._under_way.stacks
        SentFunctions(tables["functions_sent"].astype(object).to_dict("records")).mend(tables)
        return {
            **tables,
            "under_way": history.iloc[places].reset_index(drop=True),
            "recording": self._recording,
            "steps": self._steps.drop(columns="id"),
            "lines": self._lines.table,
            "fused_layers": self._lines.fused_layers(
                self._known_layers.of_layers, self._layer_names
            ),
            "events": self._events,
            "workers": self._register.table(),
            "keys": self._keys,
            "stimuli": self._stimuli,
            "begin": begin,
            "end": end,
            "notes": tuple(self._notes),
            "task_dependencies": (items["lengths"], items["dependencies"]),
            "transfer_keys": (tables["transfers"]["keys"].to_numpy(), items["transfers"]),
            "run": self._run,
            "surroundings": self._surroundings,
            "knows_actor_calls": all(
                worker.actor_calls for worker in self._register.workers if worker.kind == "worker"
            ),
            "knows_serialising": self._register.know_serialising(),
            "knows_releases": self._knows_releases,
        }

    def _of_workers(self, table: pd.DataFrame) -> pd.DataFrame:
        """Put the number of the worker whose address is told in place of the scheduler's."""
        addresses = table["worker"].cat
        ids = [self._register.id_of_address(str(text)) for text in addresses.categories]
        numbers = np.array(ids, dtype=np.int64)[addresses.codes.to_numpy()]
        return table.drop(columns="worker").assign(worker_id=numbers)

    # --- clocks and workers ----------------------------------------------------------------------

    def _align_clocks(self) -> None:
        samples = self._columns["Resource Usage"]
        hosts, codes = self._register.hosts()
        of_samples, unix = codes[samples["worker_id"]], samples.pop("time")
        timed = {hosts[code] for code in np.unique(of_samples[np.isfinite(unix)]).tolist()}
        boots = boot_times(of_samples, samples["timestamp"], unix, len(hosts))
        if boots is not None:
            for columns in self._columns.values():
                boot = boots[codes[columns["worker_id"]]]
                columns["timestamp"] = to_unix(columns["timestamp"], boot)
            known = dict(zip(hosts, boots.tolist(), strict=True))
            # A process that told no clock has an event's own time.
            boot = self._events["process"].map(known).fillna(0.0).to_numpy(dtype=float)
            self._events["time"] = to_unix(self._events["time"].to_numpy(), boot)
        for host in sorted(self._dasf_hosts - timed):
            text = (
                f"{host}: no Resource Usage event tells the distance between its clock, which "
                "began with the host, and Unix time; its times compare with no other host's."
            )
            self._notes.append(Note("clock", host, text))

    def _meet_workers(self) -> None:
        """Add what the scheduler says about workers, those without files too."""
        register = self._register
        joined, left = self._columns.pop("Worker Added"), self._columns.pop("Worker Removed")

        def worker_at(address: object) -> Worker:
            return register.workers[register.id_of_address(str(address))]

        for row, address in enumerate(joined["worker"]):
            worker = worker_at(address)
            worker.joined = float(joined["timestamp"][row])
            if not worker.plugins:
                worker.host = worker.host or str(joined["host"][row])
                worker.name = joined["name"][row]
                threads = joined["nthreads"][row]
                worker.nthreads = int(threads) if np.isfinite(threads) else None
            worker.memory_limit = worker.memory_limit or float(joined["memory_limit"][row]) or None
            resources = joined["resources"][row]
            worker.resources = resources if isinstance(resources, dict) else None
        for row, address in enumerate(left["worker"]):
            worker = worker_at(address)
            worker.left = float(left["timestamp"][row])
            worker.left_reason = str(left["reason"][row])
        exits = self._columns.pop("Worker Exit")
        for row, address in enumerate(exits["worker"]):
            worker = worker_at(address)
            worker.exit_code = float(exits["exit_code"][row])
            reason = exits["reason"][row]
            worker.exit_reason = reason if isinstance(reason, str) else None
        errors = self._columns.pop("Worker Error")
        for row, number in enumerate(errors["worker_id"].tolist()):
            register.workers[number].last_error = str(errors["exception"][row])
            register.workers[number].last_error_time = float(errors["timestamp"][row])
        # Of workers whose nannies were asked to end them Dask tells a lost connection. The change
        # comes before, or, of a restart of some workers, up to a time-out later.
        changes = self._columns["Cluster Change"]
        for row, action in enumerate(changes["action"]):
            for address in changes["workers"][row] or () if action in _ENDS else ():
                worker = worker_at(address)
                if worker.left is not None:
                    worker.left_reason = _ENDS[action]
                    if action == "worker-ttl":
                        worker.silent = float(changes["number"][row])
        register.name_hosts()

    def _doubt_scheduler(self) -> None:
        """Note that the scheduler's file was cut, if it misses that workers have ended.

        Its process may live on, so that the file alone looks as if the run went on.
        """
        left = {str(one.address) for one in self._register.workers if one.left is not None}
        recording = recording_end(self._files, left)
        if recording is not self._recording:
            self._recording = recording
            self._notes += map(gaps.of_cut_scheduler, self._scheduler_goes_on)

    def _see_workers(self, tables: dict[str, pd.DataFrame]) -> tuple[float, float]:
        """Note when each worker's facts begin and end; gives the trace's begin and end."""
        count = len(self._register.workers)
        first, last = np.full(count, np.inf), np.full(count, -np.inf)
        for name, table in tables.items():
            if "worker_id" not in table or not len(table):
                continue
            if self._window is not None and _EVENTS.get(name) in LASTING:
                continue  # may be of other times
            first_of, last_of = _SPANS.get(name, ("time", "time"))
            starts, stops = table[first_of].to_numpy(), table[last_of].to_numpy()
            stops = starts + stops if last_of == "duration" else stops
            known = np.isfinite(starts) & np.isfinite(stops)
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

    # --- tables ----------------------------------------------------------------------------------

    def _event_table(self, name: str) -> pd.DataFrame:
        columns = self._columns.pop(name)
        columns["time"] = columns.pop("timestamp")
        table = pd.DataFrame(columns, copy=False)
        keyed = name in _KEYED or "key" not in columns
        return table if keyed else table.rename(columns={"key": "key_id"})

    def _span_table(self, name: str) -> pd.DataFrame:
        columns = self._columns.pop(name)
        columns["start"] = columns.pop("timestamp")
        columns.setdefault("duration", np.empty(0))
        return pd.DataFrame(columns, copy=False)

    def _task_tables(
        self, graphs: pd.DataFrame, senders: set[str]
    ) -> tuple[pd.DataFrame, pd.DataFrame, tuple[Array, Array]]:
        worker = task_runs.worker_runs(self._columns.pop("Compute"))
        scheduler = task_runs.scheduler_runs(self._columns.pop("Task Run"), self._register)
        came_with = RunGraphs(graphs, scheduler, len(self._keys))
        layers = self._known_layers
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
        self._clients = clients = TaskClients(
            graphs,
            came_with,
            client_names(self._columns.pop("Client")),
            (
                self._columns.pop("Client Tasks"),
                self._facts["Client Tasks"].list_items("keys", self._ids),
            ),
            scheduler,
        )
        lengths = worker.pop("dependencies").astype(np.int32)
        items = self._facts["Compute"].list_items("dependencies", self._ids)
        alone = not len(lengths) and _TASKS not in self._plugins and len(scheduler["sent"]) > 0
        if alone:
            ran = np.isfinite(scheduler["scheduler_start"])
            seen = task_runs.take(scheduler, np.flatnonzero(ran))
            nothing = task_runs.take(worker, np.full(int(ran.sum()), -1))
            runs = {**nothing, **task_runs.as_worker_runs(seen)}
            lengths = np.full(int(ran.sum()), -1, dtype=np.int32)
            rest = task_runs.take(scheduler, np.flatnonzero(~ran))
        else:
            task_runs.number_repeats(worker)
            task_runs.add_input_sizes(worker, lengths, items, len(self._keys))
            task_runs.forget_shuffled_inputs(worker, lengths, items, self._keys)
            runs, rest = worker, scheduler
            if len(scheduler["sent"]):
                places, unmatched = task_runs.join_runs(worker, scheduler, self._register)
                runs = {**task_runs.take(scheduler, places), **worker}
                rest = task_runs.take(scheduler, unmatched)
        runs["source"] = make_categorical(
            np.full(len(lengths), int(alone), dtype=np.int8), ["worker", "scheduler"]
        )
        rest["lost"] = np.isfinite(rest["scheduler_start"])
        # Why the workers' files lack them.
        reasons = [
            0 if _TASKS not in one.plugins else 1 if False in one.closed else 2
            for one in self._register.workers
        ]
        rest["reason"] = make_categorical(
            np.array([*reasons, 0], np.int8)[rest["worker_id"]],
            ["no file", "file ends early", "not in its file"],
        )
        if alone and len(lengths):
            self._notes.append(gaps.NO_WORKER_FILES)
        if self._surroundings.local:
            self._notes.append(gaps.of_local(self._surroundings.local))
        elif self._plugins and _SCHEDULER not in self._plugins:
            self._notes.append(gaps.NO_SCHEDULER_FILE)
        self._notes += gaps.of_input_sizes(runs["input_size"])
        self._notes += gaps.of_lost_runs(rest, self._register.workers)
        runs["step"], rest["step"] = steps.find(runs), steps.find(rest)
        runs["client"], rest["client"] = clients.find(runs), clients.find(rest)
        runs["line"], runs["no_line"] = self._lines.find(runs, (lengths, items))
        rest["line"], rest["no_line"] = self._lines.find(rest)
        self._notes += gaps.of_steps(runs["step"], has_steps=len(self._steps) > 0)
        tasks = task_runs.make_table(runs, self._keys, self._register)
        return tasks, task_runs.make_table(rest, self._keys, self._register), (lengths, items)
