"""Refuters of findings about the use of cores: oversubscription, locks, and waiting."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
from dask.utils import key_split

from refuters.evidence import Evidence, Rows
from refuters.figures import Claim, differs, exceeds, is_at_least, is_close
from refuters.parallelism import needs_cores
from refuters.registry import refuter

#: Threshold (percentage of a host's CPU): below it, no task waits for a core.
_FREE = 50.0
#: Threshold (ratio of CPU time of processes to that of tasks): above it, other threads use CPU.
_BESIDE_TASKS = 1.4
#: Functions that acquire a lock.
_ASKS = ("acquire", "__enter__")
#: Minimum number of bytes that workers read and write if their tasks wait for files.
_SOME_BYTES = 1e6


@refuter("cpu-oversubscribed")
def cpu_oversubscribed(claim: Claim, evidence: Evidence) -> Iterator[str]:
    """Compare with all recorded CPU wait, and with the hosts' CPU usage."""
    runs = evidence.runs
    waited = runs.sum("waited")
    yield from differs(claim["share"], claim["waited"] / claim["lasted"], "the share of their time")
    yield from exceeds(claim["waited"], waited, "waits for a core")
    yield from exceeds(claim["lasted"], runs.sum("duration"), "seconds of tasks")
    of_all = claim["share_of_all"]
    yield from exceeds(of_all, waited / evidence.thread_seconds, "waits of all tasks")
    if np.isfinite(claim["processes"]):
        used = grown(evidence.rows("Resource Usage"), "process_cpu_seconds")
        yield from differs(claim["processes"], sum(used.values()), "CPU of workers' processes")
        yield from exceeds(claim["tasks"], runs.sum("used"), "CPU of tasks")
    yield from _own_threads(claim, evidence)
    yield from _other_programs(claim, evidence)
    if claim.seconds > waited + 0.001:
        yield f"{claim.seconds:.3g} s are at stake of {waited:.3g} s of waits"
    begin, end = evidence.span
    samples = evidence.rows("Resource Usage").where(lambda row: begin <= row["timestamp"] <= end)
    last_wait = runs.where(lambda row: row["waited"] > 0).numbers("stop").max(initial=0.0)
    busiest, read = float(np.nanmax(samples.numbers("host_cpu"), initial=0.0)), False
    for rows in samples.by("file").values():
        hosts, times = rows.numbers("host_cpu"), rows.numbers("timestamp")
        # A value is measured over the previous seconds, and repeated until the next measurement.
        changed = (times[1:][np.diff(hosts) != 0] >= last_wait).any()
        read |= bool(changed and np.isfinite(hosts).any())
    if read and busiest < _FREE:
        yield f"no host was busier than {busiest:.0f} %"


def _own_threads(claim: Claim, evidence: Evidence) -> Iterator[str]:
    if not claim["own_threads"]:
        return
    if not claim["processes"] > _BESIDE_TASKS * claim["tasks"]:
        cpu, of_tasks = claim["processes"], claim["tasks"]
        yield f"processes used {cpu:.3g} s of CPU, of which tasks {of_tasks:.3g}"
    yield from _while_tasks_ran(evidence, claim["tasks"])
    workers = [header["worker"] for header in evidence.headers if header.get("worker")]
    limits = [each["thread_limits"] for each in workers if each.get("thread_limits") is not None]
    for name in claim["unlimited"] or () if limits else ():
        if all(variables.get(name) == "1" for variables in limits):
            yield f"{name} is said to be another than 1"


def _while_tasks_ran(evidence: Evidence, tasks: float) -> Iterator[str]:
    """Yield a contradiction if processes used little more CPU time than tasks and Dask's threads.

    Only intervals between samples with tasks count. Without the CPU time of Dask's threads,
    nothing is checked.
    """
    left = 0.0
    for rows in evidence.rows("Resource Usage").by("file").values():
        ran = evidence.runs.where(lambda row, label=rows.maps[0]["label"]: row["label"] == label)
        times, service = rows.numbers("timestamp"), rows.numbers("service_cpu_seconds")
        if not len(ran) or not np.isfinite(service).all():
            return
        begins, ends = ran.numbers("timestamp"), ran.numbers("stop")
        others = np.diff(rows.numbers("process_cpu_seconds") - service)
        for begin, end, cpu in zip(times[:-1], times[1:], others, strict=True):
            if ((begins < end) & (ends > begin)).any():
                left += cpu
    # If a task ran in part outside of samples, it is unknown when it computed.
    if left < 1.2 * tasks:
        yield f"processes used {left:.3g} s of CPU while tasks ran, of which tasks {tasks:.3g}"


def _other_programs(claim: Claim, evidence: Evidence) -> Iterator[str]:
    """Compare with the sampled processes that do not belong to the run's process trees."""
    run = {(header["host"], header["pid"]) for header in evidence.headers}
    # Samples that were taken for memory alone have no CPU usage.
    seen = evidence.rows("Host Process").where(lambda row: row["interval"] > 0)
    by_host = seen.by("host")
    claimed = claim["other_programs"]
    if bool(claimed) != bool(by_host):
        yield f"processes were seen on {len(by_host)} hosts"
    if not claimed:
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
    if claimed["host"] != host:
        yield f"other programs used {host} most"
    yield from differs(claimed["cores"], cores, "cores of other programs")
    yield from differs(claimed["looks"], looks, "looks at the host")
    names = set(evidence.rows("Host Process").values("name"))
    for program in claimed["programs"]:
        if program.rpartition(" of ")[0] not in names:
            yield f"no process is called {program!r}"


def _failures(claim: Claim, evidence: Evidence) -> Iterator[str]:
    """Compare with failed task runs of the function, which more parallel ones would not help."""
    name = str(claim.function)
    states = [run["state"] for run in evidence.of(name)]
    states += [row["state"] for row in evidence.unseen if key_split(row["key"]) == name]
    erred = states.count("erred") / max(states.count("erred") + states.count("memory"), 1)
    if claim["failed"] is not None:
        yield from exceeds(claim["failed"], erred, "the share of its attempts that failed")
    elif erred >= 0.1 and (claim.rule == "io-bound" or claim["more_threads"] is not None):
        yield f"more threads are advised, and {erred:.0%} of its attempts failed"


@refuter("io-bound")
def io_bound(claim: Claim, evidence: Evidence) -> Iterator[str]:
    """Compare with storage calls or bytes of files, in total and on the function's workers."""
    used, _ = _of_function(evidence, str(claim.function))
    yield from differs(claim["on_cpu"], used, "its CPU share")
    samples = evidence.rows("Resource Usage")
    read, written = (grown(samples, f"process_io.{way}_size") for way in ("read", "write"))
    spilled = sum(
        sum(grown(evidence.rows("Managed Memory"), f"spill_{way}_size").values())
        for way in ("read", "write")
    )
    nbytes = max(sum(read.values()) + sum(written.values()) - spilled, 0.0)
    yield from differs(claim["moved"], nbytes, "bytes of files")
    yield from differs(claim["rate"], nbytes / evidence.wall, "bytes per second")
    yield from exceeds(claim["waiting"], _waiting(evidence), "time that is spent waiting")
    yield from _failures(claim, evidence)
    if claim["in_storage"] is not None:
        yield from _in_storage(claim, evidence)
        yield from _unused(claim, evidence)
        return
    if claim["sampled"] is not None:
        stacks = stacks_of(evidence.of(claim.function), evidence)
        inside = [stack for stack in stacks if any(_reads(file) for _, file, *_ in stack[-4:])]
        if len(inside) < 0.3 * len(stacks) or not inside:
            yield f"{len(inside)} of {len(stacks)} samples are in a library that reads files"
        return
    for label, own in evidence.of(claim.function).by("label").items():
        if read.get(label, 0.0) + written.get(label, 0.0) < _SOME_BYTES:
            yield f"{label} ran {len(own)} of its tasks and read and wrote hardly any file"


def _reads(file: str) -> bool:
    """Return whether a source file belongs to a library that reads files."""
    libraries = {"pyarrow", "h5py", "netCDF4", "rasterio", "obstore", "io"}
    return not libraries.isdisjoint(file.split("/"))


def _in_storage(claim: Claim, evidence: Evidence) -> Iterator[str]:
    runs, waited = evidence.of(claim.function), defaultdict[str, float](float)
    for row, run in _storage_rows(claim, evidence):
        waited[_id(run)] += row["waiting"]
    seconds = sum(min(row["working"], waited[_id(row)]) for row in runs)
    yield from exceeds(
        claim["in_storage"], seconds / runs.sum("working"), "time in calls of storage"
    )


def _unused(claim: Claim, evidence: Evidence) -> Iterator[str]:
    """Compare the read and used bytes with those that files and arrays returned."""
    if claim["used"] is None:
        return
    rows = [row for row, _ in _storage_rows(claim, evidence) if row["used"] >= 0]
    yield from differs(claim["read"], sum(row["read_size"] for row in rows), "bytes that it read")
    yield from differs(claim["requests"], sum(row["reads"] for row in rows), "its requests")
    returned = sum(row["used"] for row in rows)
    if (
        not returned
        <= claim["used"]
        <= sum(max(row["used"], 0) for row in evidence.rows("Storage"))
    ):
        yield f"{claim['used']:.3g} bytes were used, and {returned:.3g} were returned"


def _storage_rows(claim: Claim, evidence: Evidence) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    runs = {_id(row): row for row in evidence.of(claim.function)}
    return [(row, runs[_id(row)]) for row in evidence.rows("Storage") if _id(row) in runs]


def _id(row: dict[str, Any]) -> str:
    return f"{row['key']!r} {row['run_id']}"


@refuter("small-requests")
def small_requests(claim: Claim, evidence: Evidence) -> Iterator[str]:
    rows = [row for row, _ in _storage_rows(claim, evidence) if row["reads"] and not row["unsized"]]
    count = sum(row["reads"] for row in rows)
    yield from differs(claim["requests"], count, "requests")
    yield from differs(claim["size"], sum(row["read_size"] for row in rows) / count, "their size")
    yield from differs(claim["each"], sum(row["reading"] for row in rows) / count, "their seconds")
    waited = sum(min(row["waiting"], run["working"]) for row, run in _storage_rows(claim, evidence))
    yield from exceeds(claim["waiting"], waited / evidence.thread_seconds, "time waited for them")
    rates = sorted((row["read_size"] / row["reads"], row["reading"] / row["reads"]) for row in rows)
    (small, fast), (large, slow) = rates[0], rates[-1]
    if large > 4 * small > 0 and slow > 3 * fast and slow / large > 0.5 * fast / small:
        yield f"a request of {large:.3g} bytes takes {slow / fast:.3g} times one of {small:.3g}"


@refuter("chunk-mismatch")
def chunk_mismatch(claim: Claim, evidence: Evidence) -> Iterator[str]:
    """Compare with the objects that each key of a collection reads."""
    if claim["used"] is not None:
        yield from _unused(claim, evidence)
        return
    readers: dict[Any, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for row, run in _storage_rows(claim, evidence):
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
        if len(counts) == claim["chunks"] and is_close(claim["times"], sum(counts) / len(counts)):
            return
    yield f"no layer reads {claim['chunks']} objects {claim['times']:.3g} times each"


@refuter("repeated-reads")
def repeated_reads(claim: Claim, evidence: Evidence) -> Iterator[str]:
    """Compare with the files and datasets that each key of the function reads completely."""
    readers: dict[str, set[str]] = defaultdict(set)
    for row, run in _storage_rows(claim, evidence):
        for item in (row["items"] or "").split():
            if item.startswith("w"):
                readers[item].add(repr(run["key"]))
    times = sum(map(len, readers.values())) / max(len(readers), 1)
    if len(readers) != claim["sources"] or not is_close(claim["times"], times):
        yield f"{len(readers)} files or datasets are read {times:.3g} times each"


@refuter("blocked-tasks")
def blocked_tasks(claim: Claim, evidence: Evidence) -> Iterator[str]:
    """Compare with the CPU time of the function, and with the time for which it held threads.

    Advice for more threads needs evidence that tasks can wait in parallel.
    """
    used, _ = _of_function(evidence, str(claim.function))
    yield from differs(claim["on_cpu"], used, "its CPU share")
    yield from exceeds(claim["waiting"], _waiting(evidence), "time that is spent waiting")
    runs = evidence.of(claim.function)
    if not is_at_least(claim["tasks"], len(runs)) or claim["tasks"] > len(evidence.runs):
        yield f"{claim['tasks']} tasks, of which {claim.function} alone has {len(runs)}"
    yield from exceeds(claim["lasted"], evidence.runs.sum("working"), "their seconds")
    if claim["threads"] not in {life[2] for life in evidence.lives.values()}:
        yield f"no worker has {claim['threads']} threads"
    if claim["other_threads"] is not None:
        used = grown(evidence.rows("Resource Usage"), "process_cpu_seconds")
        others = sum(used.values()) - evidence.runs.sum("used")
        yield from exceeds(claim["other_threads"], others, "CPU of threads that run no tasks")
    yield from _failures(claim, evidence)
    if claim["more_threads"] is None:
        if np.isfinite(claim.seconds):
            yield f"{claim.seconds:.3g} s can be saved, but nothing is advised"
        return
    stacks = stacks_of(runs, evidence)
    if not stacks:
        yield "more threads are advised, and no sample shows what is waited for"
    if sum(map(_asks, stacks)) > len(stacks) / 2:
        yield "more threads are advised, and tasks stand where a lock is asked for"
    ready = np.fmin(runs.numbers("ready"), runs.numbers("sent"))
    if (np.nan_to_num(runs.numbers("executing") - ready) > 0).mean() < 0.2:
        yield "more threads are advised, and hardly any task was ready before it had one"


@refuter("shared-bottleneck")
def waits_in_turn(claim: Claim, evidence: Evidence) -> Iterator[str]:
    runs = evidence.of(claim.function)
    yield from differs(claim["tasks"], len(runs), "its tasks")
    yield from differs(claim["lasted"], runs.sum("working"), "their seconds")
    yield from differs(claim["workers"], len(runs.by("address")), "their workers")
    yield from exceeds(claim["waiting"], _waiting(evidence), "time that is spent waiting")
    yield from _no_turns(runs, claim["turn"])


@refuter("garbage-collection")
def garbage_collection(claim: Claim, evidence: Evidence) -> Iterator[str]:
    runs = evidence.of(claim.function)
    taken = runs.sum("collecting")
    yield from exceeds(claim["taken"], taken, "seconds of its collections")
    yield from differs(claim["tasks"], len(runs), "its tasks")
    yield from exceeds(claim["cpu"], runs.sum("cpu"), "its CPU seconds")
    yield from differs(claim["share"], claim["taken"] / claim["cpu"], "the collector's share")


@refuter("per-process-lock")
def per_process_lock(claim: Claim, evidence: Evidence) -> Iterator[str]:
    function_runs = evidence.of(claim.function)
    if max(life[2] for life in evidence.lives.values()) < 2:
        yield "each worker has one thread"
    yield from differs(claim["tasks"], len(function_runs), "its tasks")
    yield from differs(claim["lasted"], function_runs.sum("working"), "their seconds")
    stacks = stacks_of(function_runs, evidence)
    asking = sum(map(_asks, stacks))
    if asking < 0.1 * len(stacks) or not asking:
        yield f"{asking} of {len(stacks)} samples stand where a lock is asked for"


def _no_turns(runs: Rows, turn: float) -> Iterator[str]:
    """Yield a contradiction if task runs do not end one after the other at the claimed interval."""
    apart = np.diff(np.sort(runs.numbers("stop")))
    if np.mean((apart > 0.5 * turn) & (apart < 1.5 * turn)) < 0.6:
        yield f"their ends are not {turn:.3g} s apart"
    if runs.numbers("working").max(initial=0.0) < 1.4 * turn:
        yield f"none lasts longer than {turn:.3g} s, so that none waits"


def _asks(stack: list[list[Any]]) -> bool:
    return any(name.rpartition(".")[2] in _ASKS for name, *_ in stack)


def stacks_of(runs: Rows, evidence: Evidence) -> list[list[list[Any]]]:
    stacks: dict[tuple[str, int], list[list[Any]]] = {}
    for row in evidence.rows("Stack"):  # parents come before their children
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
def gil_contention(claim: Claim, evidence: Evidence) -> Iterator[str]:
    """Compare with the number of parallel tasks, and with their off-CPU time.

    Only stack samples can show that tasks waited for the GIL.
    """
    samples = evidence.rows("Task Sample")
    seconds = {name: rows.sum("interval") for name, rows in samples.by("activity").items()}
    if not seconds.get("lock"):
        yield "no sample waited for the interpreter's lock"
    most_beside = max(
        float(evidence.between("timestamp", "stop", rows).values.max(initial=0.0))
        for rows in evidence.runs.by("address").values()
    )
    yield from exceeds(claim["at_a_time"], most_beside, "tasks at a time")
    if max(life[2] for life in evidence.lives.values()) < 2:
        yield "each worker has one thread"
    # The claim is about some task runs of a worker. No other ones, of the same number, lost more
    # time.
    count, shares = max(claim["tasks"] // claim["workers"], 1), []
    for rows in evidence.runs.by("address").values():
        lost = rows.numbers("working") - rows.numbers("used")
        lasted = np.maximum(rows.numbers("duration"), 1e-9)
        most = np.argsort(-lost / lasted)[:count]
        shares.append(lost[most].sum() / lasted[most].sum())
    yield from exceeds(claim["blocked"], max(shares), "time without a core")
    yield from exceeds(claim["tasks"], len(evidence.runs), "tasks")
    yield from exceeds(claim["workers"], len(evidence.lives), "workers")
    yield from needs_cores(claim, evidence)


def grown(samples: Rows, column: str) -> dict[str, float]:
    """Return by worker label how much a counter grew, added up over worker instances."""
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
    """Return the fraction of a function's time on the CPU, and its off-CPU seconds."""
    runs = evidence.of(name)
    working, used = runs.sum("working"), runs.sum("used")
    return (float(used / working) if working > 0 else 0.0), float(working - used)


def _waiting(evidence: Evidence) -> float:
    """Return the fraction of thread time for which tasks held a thread without using it."""
    runs = evidence.runs
    held = np.minimum(runs.numbers("held"), runs.numbers("stop")) - runs.numbers("timestamp")
    return float(np.maximum(held - runs.numbers("used"), 0.0).sum() / evidence.thread_seconds)
