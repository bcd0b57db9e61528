"""Refuters of what is said about how tasks use cores: too many, locks, waiting."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
from dask.utils import key_split

from refuters.evidence import Evidence, Rows
from refuters.figures import Said, differs, exceeds, is_at_least, is_close
from refuters.parallelism import needs_cores
from refuters.registry import refuter

#: Percent of a host's cores below which no task has to wait for one.
_FREE = 50.0
#: CPU seconds of processes by those of tasks, if threads beside these use them.
_BESIDE_TASKS = 1.4
#: Functions that ask for a lock.
_ASKS = ("acquire", "__enter__")
#: Bytes of files that a worker reads and writes at least, for its tasks to wait for these.
_SOME_BYTES = 1e6


@refuter("cpu-oversubscribed")
def cpu_oversubscribed(said: Said, evidence: Evidence) -> Iterator[str]:
    """Compare with all waits in the run queue that were recorded, and with the hosts' cores."""
    runs = evidence.runs
    waited = runs.sum("waited")
    yield from differs(said["share"], said["waited"] / said["lasted"], "the share of their time")
    yield from exceeds(said["waited"], waited, "waits for a core")
    yield from exceeds(said["lasted"], runs.sum("duration"), "seconds of tasks")
    of_all = said["share_of_all"]
    yield from exceeds(of_all, waited / evidence.thread_seconds, "waits of all tasks")
    if np.isfinite(said["processes"]):
        used = grown(evidence.rows("Resource Usage"), "process_cpu_seconds")
        yield from differs(said["processes"], sum(used.values()), "CPU of workers' processes")
        yield from exceeds(said["tasks"], runs.sum("used"), "CPU of tasks")
    yield from _own_threads(said, evidence)
    yield from _other_programs(said, evidence)
    if said.seconds > waited + 0.001:
        yield f"{said.seconds:.3g} s are at stake of {waited:.3g} s of waits"
    begin, end = evidence.span
    samples = evidence.rows("Resource Usage").where(lambda row: begin <= row["timestamp"] <= end)
    last_wait = runs.where(lambda row: row["waited"] > 0).numbers("stop").max(initial=0.0)
    busiest, read = float(np.nanmax(samples.numbers("host_cpu"), initial=0.0)), False
    for own in samples.by("file").values():
        hosts, times = own.numbers("host_cpu"), own.numbers("timestamp")
        # A reading is of the seconds before it, and stands until the next.
        changed = (times[1:][np.diff(hosts) != 0] >= last_wait).any()
        read |= bool(changed and np.isfinite(hosts).any())
    if read and busiest < _FREE:
        yield f"no host was busier than {busiest:.0f} %"


def _own_threads(said: Said, evidence: Evidence) -> Iterator[str]:
    """Compare with the processes' CPU, and with what limits their libraries' threads."""
    if not said["own_threads"]:
        return
    if not said["processes"] > _BESIDE_TASKS * said["tasks"]:
        yield f"processes used {said['processes']:.3g} s of CPU, of which tasks {said['tasks']:.3g}"
    yield from _while_tasks_ran(evidence, said["tasks"])
    workers = [header["worker"] for header in evidence.headers if header.get("worker")]
    limits = [each["thread_limits"] for each in workers if each.get("thread_limits") is not None]
    for name in said["unlimited"] or () if limits else ():
        if all(own.get(name) == "1" for own in limits):
            yield f"{name} is said to be another than 1"


def _while_tasks_ran(evidence: Evidence, tasks: float) -> Iterator[str]:
    """Yield it if what processes used between samples with tasks in between is theirs and Dask's.

    Where it is known what Dask's own threads used.
    """
    left = 0.0
    for own in evidence.rows("Resource Usage").by("file").values():
        ran = evidence.runs.where(lambda row, label=own.maps[0]["label"]: row["label"] == label)
        times, service = own.numbers("timestamp"), own.numbers("service_cpu_seconds")
        if not len(ran) or not np.isfinite(service).all():
            return
        begins, ends = ran.numbers("timestamp"), ran.numbers("stop")
        others = np.diff(own.numbers("process_cpu_seconds") - service)
        for begin, end, cpu in zip(times[:-1], times[1:], others, strict=True):
            if ((begins < end) & (ends > begin)).any():
                left += cpu
    # Of tasks that were in part outside of samples nobody knows when they computed.
    if left < 1.2 * tasks:
        yield f"processes used {left:.3g} s of CPU while tasks ran, of which tasks {tasks:.3g}"


def _other_programs(said: Said, evidence: Evidence) -> Iterator[str]:
    """Compare with the processes seen that neither wrote a file of the run nor are its kin."""
    run = {(header["host"], header["pid"]) for header in evidence.headers}
    # Of looks for memory alone nothing tells what was used.
    seen = evidence.rows("Host Process").where(lambda row: row["interval"] > 0)
    by_host = seen.by("host")
    told = said["other_programs"]
    if bool(told) != bool(by_host):
        yield f"processes were seen on {len(by_host)} hosts"
    if not told:
        return
    used = {}
    for host, rows in by_host.items():
        kin = {pid for row in rows if (host, row["pid"]) in run for pid in row["ancestors"]}
        looks = {row["timestamp"]: row["interval"] for row in rows}
        others = [
            row["cpu"] / 100 * row["interval"]
            for row in rows
            if row["pid"] not in kin
            and not any((host, pid) in run for pid in (row["pid"], *row["ancestors"]))
        ]
        used[host] = (sum(others) / max(sum(looks.values()), 1e-9), len(looks))
    host = max(used, key=lambda each: used[each])
    cores, looks = used[host]
    if told["host"] != host:
        yield f"other programs used {host} most"
    yield from differs(told["cores"], cores, "cores of other programs")
    yield from differs(told["looks"], looks, "looks at the host")
    names = set(evidence.rows("Host Process").values("name"))
    for program in told["programs"]:
        if program.rpartition(" of ")[0] not in names:
            yield f"no process is called {program!r}"


def _failures(said: Said, evidence: Evidence) -> Iterator[str]:
    """Compare with the attempts of a function that failed: then more at a time are no remedy."""
    name = str(said.function)
    states = [run["state"] for run in evidence.of(name)]
    states += [row["state"] for row in evidence.unseen if key_split(row["key"]) == name]
    erred = states.count("erred") / max(states.count("erred") + states.count("memory"), 1)
    if said["failed"] is not None:
        yield from exceeds(said["failed"], erred, "the share of its attempts that failed")
    elif erred >= 0.1 and (said.rule == "io-bound" or said["more_threads"] is not None):
        yield f"more threads are advised, and {erred:.0%} of its attempts failed"


@refuter("io-bound")
def io_bound(said: Said, evidence: Evidence) -> Iterator[str]:
    """Compare with calls of storage, or bytes of files, over all and where the function ran."""
    used, _ = _of_function(evidence, str(said.function))
    yield from differs(said["on_cpu"], used, "its CPU share")
    samples = evidence.rows("Resource Usage")
    read, written = (grown(samples, f"process_io.{way}_size") for way in ("read", "write"))
    spilled = sum(
        sum(grown(evidence.rows("Managed Memory"), f"spill_{way}_size").values())
        for way in ("read", "write")
    )
    nbytes = max(sum(read.values()) + sum(written.values()) - spilled, 0.0)
    yield from differs(said["moved"], nbytes, "bytes of files")
    yield from differs(said["rate"], nbytes / evidence.wall, "bytes a second")
    yield from exceeds(said["waiting"], _waiting(evidence), "time that is spent waiting")
    yield from _failures(said, evidence)
    if said["in_storage"] is not None:
        yield from _in_storage(said, evidence)
        yield from _unused(said, evidence)
        return
    if said["sampled"] is not None:
        stacks = stacks_of(evidence.of(said.function), evidence)
        inside = [stack for stack in stacks if any(_reads(file) for _, file, *_ in stack[-4:])]
        if len(inside) < 0.3 * len(stacks) or not inside:
            yield f"{len(inside)} of {len(stacks)} samples are in a library that reads files"
        return
    for label, own in evidence.of(said.function).by("label").items():
        if read.get(label, 0.0) + written.get(label, 0.0) < _SOME_BYTES:
            yield f"{label} ran {len(own)} of its tasks and read and wrote hardly any file"


def _reads(file: str) -> bool:
    """Tell whether a file belongs to a library that reads files."""
    libraries = {"pyarrow", "h5py", "netCDF4", "rasterio", "obstore", "io"}
    return not libraries.isdisjoint(file.split("/"))


def _in_storage(said: Said, evidence: Evidence) -> Iterator[str]:
    """Compare with what the calls of each protocol took, in runs of the function."""
    own, waited = evidence.of(said.function), defaultdict[str, float](float)
    for row, run in _storage_rows(said, evidence):
        waited[_id(run)] += row["waiting"]
    seconds = sum(min(row["working"], waited[_id(row)]) for row in own)
    yield from exceeds(said["in_storage"], seconds / own.sum("working"), "time in calls of storage")


def _unused(said: Said, evidence: Evidence) -> Iterator[str]:
    """Compare the bytes that were read and used with those that files and arrays returned."""
    if said["used"] is None:
        return
    rows = [row for row, _ in _storage_rows(said, evidence) if row["used"] >= 0]
    yield from differs(said["read"], sum(row["read_size"] for row in rows), "bytes that it read")
    yield from differs(said["requests"], sum(row["reads"] for row in rows), "its requests")
    returned = sum(row["used"] for row in rows)
    if not returned <= said["used"] <= sum(max(row["used"], 0) for row in evidence.rows("Storage")):
        yield f"{said['used']:.3g} bytes were used, and {returned:.3g} were returned"


def _storage_rows(said: Said, evidence: Evidence) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return what runs of the function read, each with the run."""
    runs = {_id(row): row for row in evidence.of(said.function)}
    return [(row, runs[_id(row)]) for row in evidence.rows("Storage") if _id(row) in runs]


def _id(row: dict[str, Any]) -> str:
    return f"{row['key']!r} {row['run_id']}"


@refuter("small-requests")
def small_requests(said: Said, evidence: Evidence) -> Iterator[str]:
    """Compare with the requests of each run, and the larger ones with the smaller ones."""
    rows = [row for row, _ in _storage_rows(said, evidence) if row["reads"] and not row["unsized"]]
    count = sum(row["reads"] for row in rows)
    yield from differs(said["requests"], count, "requests")
    yield from differs(said["size"], sum(row["read_size"] for row in rows) / count, "their size")
    yield from differs(said["each"], sum(row["reading"] for row in rows) / count, "their seconds")
    waited = sum(min(row["waiting"], run["working"]) for row, run in _storage_rows(said, evidence))
    yield from exceeds(said["waiting"], waited / evidence.thread_seconds, "time waited for them")
    rates = sorted((row["read_size"] / row["reads"], row["reading"] / row["reads"]) for row in rows)
    (small, fast), (large, slow) = rates[0], rates[-1]
    if large > 4 * small > 0 and slow > 3 * fast and slow / large > 0.5 * fast / small:
        yield f"a request of {large:.3g} bytes takes {slow / fast:.3g} times one of {small:.3g}"


@refuter("chunk-mismatch")
def chunk_mismatch(said: Said, evidence: Evidence) -> Iterator[str]:
    """Compare with which keys of a collection read which objects, and which read nothing else."""
    if said["used"] is not None:
        yield from _unused(said, evidence)
        return
    readers: dict[Any, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for row, run in _storage_rows(said, evidence):
        if isinstance(run["key"], tuple):
            for item in re.sub(r"\bw\w+", "", row["items"] or "").split():
                readers[run["key"][0]][item].add(repr(run["key"]))
    for layer in readers.values():
        items = Counter(key for keys in layer.values() for key in keys)
        counts = [
            len(keys)
            for item, keys in layer.items()
            if item.startswith("h")  # a chunk of HDF5
            or len(keys) <= len(items) / 2
            or sum(items[key] == 1 for key in keys) > len(keys) / 2
        ]
        if len(counts) == said["chunks"] and is_close(said["times"], sum(counts) / len(counts)):
            return
    yield f"no layer reads {said['chunks']} objects {said['times']:.3g} times each"


@refuter("repeated-reads")
def repeated_reads(said: Said, evidence: Evidence) -> Iterator[str]:
    """Compare with which keys of the function read which files and datasets completely."""
    readers: dict[str, set[str]] = defaultdict(set)
    for row, run in _storage_rows(said, evidence):
        for item in (row["items"] or "").split():
            if item.startswith("w"):
                readers[item].add(repr(run["key"]))
    times = sum(map(len, readers.values())) / max(len(readers), 1)
    if len(readers) != said["sources"] or not is_close(said["times"], times):
        yield f"{len(readers)} files or datasets are read {times:.3g} times each"


@refuter("blocked-tasks")
def blocked_tasks(said: Said, evidence: Evidence) -> Iterator[str]:
    """Compare with the CPU seconds of the function, and with what threads were held for.

    More threads want evidence that tasks could wait side by side.
    """
    used, _ = _of_function(evidence, str(said.function))
    yield from differs(said["on_cpu"], used, "its CPU share")
    yield from exceeds(said["waiting"], _waiting(evidence), "time that is spent waiting")
    own = evidence.of(said.function)
    if not is_at_least(said["tasks"], len(own)) or said["tasks"] > len(evidence.runs):
        yield f"{said['tasks']} tasks, of which {said.function} alone has {len(own)}"
    yield from exceeds(said["lasted"], evidence.runs.sum("working"), "their seconds")
    if said["threads"] not in {life[2] for life in evidence.lives.values()}:
        yield f"no worker has {said['threads']} threads"
    if said["other_threads"] is not None:
        used = grown(evidence.rows("Resource Usage"), "process_cpu_seconds")
        others = sum(used.values()) - evidence.runs.sum("used")
        yield from exceeds(said["other_threads"], others, "CPU of threads beside those of tasks")
    yield from _failures(said, evidence)
    if said["more_threads"] is None:
        if np.isfinite(said.seconds):
            yield f"{said.seconds:.3g} s are at stake, of which nothing says how to gain them"
        return
    stacks = stacks_of(own, evidence)
    if not stacks:
        yield "more threads are advised, and no sample shows what is waited for"
    if sum(map(_asks, stacks)) > len(stacks) / 2:
        yield "more threads are advised, and tasks stand where a lock is asked for"
    ready = np.fmin(own.numbers("ready"), own.numbers("sent"))
    if (np.nan_to_num(own.numbers("executing") - ready) > 0).mean() < 0.2:
        yield "more threads are advised, and hardly any task was ready before it had one"


@refuter("shared-bottleneck")
def waits_in_turn(said: Said, evidence: Evidence) -> Iterator[str]:
    """Compare with the distances of ends, and with how long runs last."""
    own = evidence.of(said.function)
    yield from differs(said["tasks"], len(own), "its tasks")
    yield from differs(said["lasted"], own.sum("working"), "their seconds")
    yield from differs(said["workers"], len(own.by("address")), "their workers")
    yield from exceeds(said["waiting"], _waiting(evidence), "time that is spent waiting")
    yield from _no_turns(own, said["turn"])


@refuter("garbage-collection")
def garbage_collection(said: Said, evidence: Evidence) -> Iterator[str]:
    """Sum what the collector took in the function's tasks, and what these used of the CPU."""
    own = evidence.of(said.function)
    taken = own.sum("collecting")
    yield from exceeds(said["taken"], taken, "seconds of its collections")
    yield from differs(said["tasks"], len(own), "its tasks")
    yield from exceeds(said["cpu"], own.sum("cpu"), "its CPU seconds")
    yield from differs(said["share"], said["taken"] / said["cpu"], "the collector's share")


@refuter("per-process-lock")
def per_process_lock(said: Said, evidence: Evidence) -> Iterator[str]:
    """Look for samples in a lock; without any, for turns of each process."""
    own = evidence.of(said.function)
    if max(life[2] for life in evidence.lives.values()) < 2:
        yield "each worker has one thread"
    yield from differs(said["tasks"], len(own), "its tasks")
    yield from differs(said["lasted"], own.sum("working"), "their seconds")
    if said["sampled"]:
        stacks = stacks_of(own, evidence)
        asking = sum(map(_asks, stacks))
        if asking < 0.1 * len(stacks) or not asking:
            yield f"{asking} of {len(stacks)} samples stand where a lock is asked for"
        return
    if len(own.by("address")) < 2:
        yield "one process alone tells nothing of the others"
    for runs in own.by("address").values():
        yield from _no_turns(runs, float(np.median(np.diff(np.sort(runs.numbers("stop"))))))


def _no_turns(runs: Rows, turn: float) -> Iterator[str]:
    """Yield what contradicts that runs end one after the other, each so long after the last."""
    apart = np.diff(np.sort(runs.numbers("stop")))
    if np.mean((apart > 0.5 * turn) & (apart < 1.5 * turn)) < 0.6:
        yield f"their ends are not {turn:.3g} s apart"
    if runs.numbers("working").max(initial=0.0) < 1.4 * turn:
        yield f"none lasts longer than {turn:.3g} s, so that none waits"


def _asks(stack: list[list[Any]]) -> bool:
    """Tell whether a stack has a function that asks for a lock."""
    return any(name.rpartition(".")[2] in _ASKS for name, *_ in stack)


def stacks_of(runs: Rows, evidence: Evidence) -> list[list[list[Any]]]:
    """Return the frames of all samples of some task runs."""
    stacks: dict[tuple[str, int], list[list[Any]]] = {}
    for row in evidence.rows("Stack"):  # a parent comes before its children
        outer = stacks.get((row["file"], row.get("parent", -1)), [])
        stacks[row["file"], row["number"]] = [*outer, *row["frames"]]
    samples = evidence.rows("Task Sample").by("thread")
    return [
        stacks.get((sample["file"], sample["stack"]), [])
        for run in runs
        for sample in samples.get(run["thread"], Rows([]))
        if sample["file"] == run["file"] and run["timestamp"] <= sample["timestamp"] <= run["stop"]
    ]


@refuter("gil-contention")
def gil_contention(said: Said, evidence: Evidence) -> Iterator[str]:
    """Compare with how many tasks ran at a time, and what they did not use of their time.

    That the interpreter's lock kept them is told by samples of stacks alone.
    """
    samples = evidence.rows("Task Sample")
    seconds = {name: own.sum("interval") for name, own in samples.by("activity").items()}
    if not seconds.get("lock"):
        yield "no sample waited for the interpreter's lock"
    most_beside = max(
        float(evidence.between("timestamp", "stop", own).values.max(initial=0.0))
        for own in evidence.runs.by("address").values()
    )
    yield from exceeds(said["at_a_time"], most_beside, "tasks at a time")
    if max(life[2] for life in evidence.lives.values()) < 2:
        yield "each worker has one thread"
    # What is said is of some runs of a worker: of as many, no others lost more of their time.
    count, shares = max(said["tasks"] // said["workers"], 1), []
    for own in evidence.runs.by("address").values():
        lost = own.numbers("working") - own.numbers("used")
        lasted = np.maximum(own.numbers("duration"), 1e-9)
        most = np.argsort(-lost / lasted)[:count]
        shares.append(lost[most].sum() / lasted[most].sum())
    yield from exceeds(said["blocked"], max(shares), "time without a core")
    yield from exceeds(said["tasks"], len(evidence.runs), "tasks")
    yield from exceeds(said["workers"], len(evidence.lives), "workers")
    yield from needs_cores(said, evidence)


def grown(samples: Rows, column: str) -> dict[str, float]:
    """Return by worker's label how much a count grew; each life counts by itself."""
    growth: dict[str, float] = {}
    for label, of_label in samples.by("label").items():
        for of_life in of_label.by("file").values():
            values = of_life.numbers(column)
            if np.isfinite(values).any():
                growth[label] = growth.get(label, 0.0) + float(
                    np.nanmax(values) - np.nanmin(values)
                )
    return growth


def _of_function(evidence: Evidence, name: str) -> tuple[float, float]:
    """Return the CPU share of a function, and its seconds without CPU."""
    own = evidence.of(name)
    working, used = own.sum("working"), own.sum("used")
    return (float(used / working) if working > 0 else 0.0), float(working - used)


def _waiting(evidence: Evidence) -> float:
    """Return the share of the threads' time for which tasks held one and did not use it."""
    runs = evidence.runs
    held = np.minimum(runs.numbers("held"), runs.numbers("stop")) - runs.numbers("timestamp")
    return float(np.maximum(held - runs.numbers("used"), 0.0).sum() / evidence.thread_seconds)
