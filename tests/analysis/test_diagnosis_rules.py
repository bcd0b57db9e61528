"""Rules about data, cores, devices, outcomes and the trace itself, on planned runs.

Runs have two workers with two threads by default. Rules find their faults, but nothing in similar
healthy runs.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from diagnosed_plans import Cases, facts_of, found
from traces import Plan, T, Task, filled

from dasfprof import Trace, TraceAnalyser
from dasfprof.analysis.diagnosis import diagnose
from dasfprof.analysis.diagnosis.registry import Advice, Finding
from dasfprof.analysis.run import Run
from dasfprof.analysis.trace.gaps import Note

CASES = Cases()
finds, spares = CASES.finds, CASES.spares
NAN = float("nan")


def four_lanes(name: str, seconds: float, turns: int, **more: Any) -> list[Task]:
    """Return equal tasks on four threads, round by round."""
    return [replace(task, **more) for task in filled([name], seconds, count=4 * turns)]


def failing_first(tasks: list[Task], count: int, exception: str) -> list[Task]:
    """Let the first tasks fail, and retry each of them four tasks later."""
    failed = {"state": "erred", "became": "released", "exception": exception}
    return [
        replace(task, key=tasks[place + 4].key, **failed) if place < count else task
        for place, task in enumerate(tasks)
    ]


def on_both(*readings: tuple[float, dict[str, Any]]) -> list[tuple[int, float, dict[str, Any]]]:
    """Return samples with these seconds and values for both workers."""
    return [(worker, at, facts) for worker in (0, 1) for at, facts in readings]


def moving(seconds: float, size: int = 50_000_000, serialising: float = 0, **names: str) -> Plan:
    """Plan two threads that load, and a third that waits for each of four results and uses it."""
    load, use = names.get("load", "load"), names.get("use", "use")
    loads = filled([load], 1.0, count=4, workers=1)
    plan = Plan([replace(task, size=50_000_000) for task in loads])
    begin, serialised = 2.0, []
    for number in range(4):
        key, ready = f"{load}-{number}", begin + seconds
        times = {"sent": begin, "received": begin, "ready": ready}
        plan.tasks.append(Task(f"{use}-{number}", 1, ready, ready + 1, dependencies=[key], **times))
        plan.transfers.append((1, begin, ready, size, [key]))
        serialised += [(0, ready, key, serialising)] if serialising else []
        begin = ready + 1
    return replace(plan, serialised=serialised)


# fmt: off
# Four of ten seconds are spent waiting for data.
finds("transfer-bound", "transfers", moving(1.0), severity="high", function="load", seconds=4.0,
    moved=2e8, rate=5e7, by_size=True, settings=[{"n_workers": "fewer", "threads_per_worker":
    "more"}])
finds("transfer-bound", "few bytes do not explain slow transfers", moving(1.0, 500), by_size=False,
    moves=4, each=1.0, serialising=None, settings=[])
finds("transfer-bound", "serialising explains slow transfers", moving(1.0, 500, serialising=0.9),
    by_size=False, serialising=3.6)
finds("transfer-bound", "serialising explains little of slow transfers",
    moving(1.0, 500, serialising=0.1), by_size=False, serialising=None)
spares("short transfers", moving(0.05), "transfer-bound")
# fmt: on


@pytest.mark.parametrize(("use", "folds"), [("groupby_tasks_group_hash", True), ("lambda", False)])
def test_only_groups_of_a_bag_are_advised_to_fold(tmp_path: Path, use: str, folds: bool) -> None:
    first = moving(1.0, load="shuffle-split", use=use).write(tmp_path).findings()[0]
    assert ("foldby()" in first.to_dict()["Suggestion"]) is folds


def merging(size: int) -> Plan:
    """Plan a P2P join of 8 partitions of 20 MB with 8 partitions of the given size."""
    tasks, ends = list[Task](), [0.0, 0.0]

    def add(name: str, n: int, seconds: float, needed: list[Any], size: int = 28) -> Any:
        start, ends[n % 2] = ends[n % 2], ends[n % 2] + seconds
        facts: Any = {"dependencies": needed, "size": size}
        tasks.append(Task((name, n), n % 2, start, ends[n % 2], **facts))
        return tasks[-1].key

    moved = [
        add(f"hash-join-transfer-{side}", n, seconds, [add(f"read-{side}", n, 0.1, [], nbytes)])
        for side, nbytes, seconds in (("1" * 32, 20_000_000, 0.5), ("2" * 32, size, 0.1))
        for n in range(8)
    ]
    tasks.append(Task("shuffle-barrier-1", 0, ends[0], ends[0] + 0.1, dependencies=moved))
    ends[:] = [tasks[-1].stop] * 2
    for n in range(8):
        add(f"hashjoinp2p-{'3' * 32}", n, 0.2, ["shuffle-barrier-1"])
    return Plan(tasks, threads=1)


# The transfers of both tables take 2.4 of 4.1 s on each worker.
JOINED = {"smaller": 8e6, "larger": 1.6e8, "tasks": 16, "moving": 4.8}
finds(
    "transfer-bound",
    "a merge with a small table",
    merging(1_000_000),
    seconds=2.4,
    function="hash-join-transfer",
    **JOINED,
)
spares("a merge of large tables", merging(5_000_000), "transfer-bound")


FRAME: Any = {"type": "pandas.DataFrame"}


def part(
    name: str, n: int, start: float, stop: float, shape: Any, *needed: Task, **more: Any
) -> Task:
    """Plan the task of a partition of a dataframe on a worker that depends on its number."""
    facts = {"shape": shape, "dependencies": [task.key for task in needed], **FRAME, **more}
    return Task((f"{name}-{16 * 'a1'}", n), n, start, stop, **facts)


def joining(rows: int, are_inputs_known: bool = True) -> Plan:
    """Plan a shuffle and join of two partitions with 100 rows, to partitions with `rows` rows."""
    reads = [part("read_parquet", n, 0.0, 1.0, (100, 2), size=10_000) for n in (0, 1)]
    moves = [
        part("hash-join-transfer", n, 1.0, 1.5, None, *needed, type=None)
        for n, read in enumerate(reads)
        for needed in [[read] if are_inputs_known else []]
    ]
    barrier = Task("barrier-a", 0, 1.5, 1.6, dependencies=[move.key for move in moves])
    joins = [part("hashjoinp2p", n, 2.0, 8.0, (rows, 3), barrier, size=40 * rows) for n in (0, 1)]
    return Plan([*reads, *moves, barrier, *joins])


def selecting(columns: int, function: str = "getitem") -> Plan:
    """Of two partitions with ten columns, tasks return so many."""
    tasks = []
    for n in (0, 1):
        read = part("read_parquet", n, 0.0, 4.0, (100, 10), size=8000)
        tasks += [read, part(function, n, 4.0, 5.0, (100, columns), read, size=800 * columns)]
    return Plan(tasks)


def filtering(rows: int, dtype: str = "bool") -> Plan:
    """Of two partitions of 100 rows, a filter leaves so many rows."""
    tasks = []
    for n in (0, 1):
        read = part("read_parquet", n, 0.0, 1.0, (100, 4))
        mask = part("ge", n, 1.0, 2.0, (100,), read, type="pandas.Series", dtype=dtype)
        tasks += [read, mask, part("getitem", n, 2.0, 6.0, (rows, 4), read, mask)]
    return Plan(tasks)


def dropping(rows: int) -> Plan:
    """Two partitions of 100 rows have no duplicates; so many rows are left of both."""
    reads = [part("read_parquet", n, 0.0, 1.0, (100, 4)) for n in (0, 1)]
    drops = [part("drop_duplicates", n, 1.0, 5.0, (100, 4), read) for n, read in enumerate(reads)]
    tree = part("dropduplicates-tree", 0, 5.0, 9.0, (rows, 4), *drops)
    return Plan([*reads, *drops, tree, part("sum", 0, 9.0, 9.5, None, tree, type=None)])


# fmt: off
# Eight thread-seconds, on four threads.
finds("filter-without-effect", "a filter that keeps all rows", filtering(100), rows=200, tasks=2,
    costs=2.0, function="getitem")
spares("a filter that removes some rows", filtering(99), "filter-without-effect")
spares("a selection by something else", filtering(100, "int64"), "filter-without-effect")
finds("filter-without-effect", "duplicates that do not exist", dropping(200), rows=200, tasks=3,
    costs=3.0, function="drop_duplicates")
spares("duplicates in other partitions", dropping(150), "filter-without-effect")
finds("exploding-join", "a join of keys that repeat", joining(5000), rows=10_000, taken=200,
    times=50.0, input_size=20_000, size=400_000, tasks=2, largest=5000)
spares("a join with as many rows as one side", joining(100), "exploding-join")
spares("a join of what is not known", joining(5000, are_inputs_known=False), "exploding-join")
finds("unused-columns", "columns that no task uses", selecting(2), columns=10, used=2, size=16_000,
    used_size=3200, tasks=2, severity="low", function="read_parquet")
spares("most columns are used", selecting(6), "unused-columns")
spares("a function that may use all columns", selecting(2, "apply"), "unused-columns")
# fmt: on


WAITING = [Task(f"fit-{n}", 0, 0.1 * n, 0.1 * n + 0.001, done=0.1 * n + 0.1) for n in range(40)]
SERIALISED = [(0, 0.1 * n + 0.09, f"fit-{n}", 0.09) for n in range(40)]
# 200 tasks of 1 ms take 6 ms each, and unpickling the first takes 3 s more.
SHORT = [
    Task(f"fit-{n}", 0, 3 + 0.006 * n, 3.001 + 0.006 * n, done=3.006 + 0.006 * n)
    for n in range(200)
]
FIRST = Task("fit-200", 0, 0.0, 0.001, done=2.999)
# fmt: off
finds("tasks-too-small", "tasks that are small", Plan(WAITING, workers=1, threads=1))
finds("tasks-too-small", "small tasks, the first of which imports modules",
    Plan([FIRST, *SHORT], workers=1, threads=1), seconds=1.0)
spares("tasks that wait while results are serialised are not small", Plan(WAITING, workers=1,
    threads=1, serialised=SERIALISED), "tasks-too-small")
# fmt: on


def shuffling(size: int) -> Plan:
    """Plan 200 tasks of 20 ms that shuffle 100 partitions of 1 ms with 4 ms of overhead."""
    tasks, moves = [], [f"shuffle-transfer-{n}" for n in range(100)]
    for n, move in enumerate(moves):
        made, moved, taken = 0.005 * n, 0.5 + 0.02 * n, 2.51 + 0.02 * n
        tasks += [
            Task(f"part-{n}", 0, made, made + 0.001, done=made + 0.005, size=size),
            Task(move, 0, moved, moved + 0.02, dependencies=[f"part-{n}"], size=28),
            Task(
                f"take-{n}", 0, taken, taken + 0.02, dependencies=["shuffle-barrier-1"], size=size
            ),
        ]
    barrier = Task("shuffle-barrier-1", 0, 2.5, 2.501, dependencies=moves, size=28)
    return Plan([*tasks, barrier], workers=1, threads=1)


finds(
    "tasks-too-small",
    "a shuffle of small partitions is overhead",
    shuffling(10_000),
    **{"median": 0.001, "tasks": 100, "shuffling": 4.0 / 4.51},
)
spares("a shuffle of large partitions", shuffling(10_000_000), "tasks-too-small")


def holding(written: float, seconds: float, **more: Any) -> Plan:
    """Plan tasks that unspill inputs; by default, results of 300 MB are spilled."""
    tasks = [
        replace(task, executing=task.start, start=task.start + seconds, disk_read=seconds)
        for task in four_lanes("load", 1.0, 4)
    ]
    size = more.pop("size", 300_000_000)
    held = []
    for worker, at in ((w, at) for w in (0, 1) for at in (0.0, 2.0, 4.0)):
        facts = {"state": "running", "size": size, "spill_read_size": 0.0}
        held.append((worker, at, {**facts, "spill_write_size": at / 4 * written}))
    return Plan(tasks, held=held, **more)


def with_process(memory: int) -> Plan:
    """Plan results of 16 MB, which need a limit of 26.7 MB, and the memory of the process."""
    used = on_both((0.0, {"memory": memory}), (3.9, {"memory": memory}))
    return holding(1e9, 0.25, size=16_000_000, used=used, memory_limit=400_000_000)


# fmt: off
# A quarter of 4 s; 300 MB are 60 % of 500 MB.
finds("spilling", "spilling", holding(1e9, 0.25, memory_limit=400_000_000), severity="high",
    seconds=1.0, written=2e9, settings=[{"memory_limit": 500_000_000}])
finds("spilling", "no limit is advised in place of an unknown one", holding(1e9, 0.25), limit=NAN,
    settings=[])
# 300 MB are 70 % of that.
finds("spilling", "memory that no result takes", with_process(300_000_000), process=3e8,
    settings=[{"memory_limit": 428_571_428}])
finds("spilling", "a limit that would do", with_process(200_000_000), settings=[])
spares("nothing is spilled", holding(0.0, 0.25), "spilling")
spares("spilling takes little time", holding(1e9, 0.01), "spilling")
# The second worker pauses at 2 s, and its two of four threads are idle until 6 s.
LOADS = [Task(f"load-{worker}{thread}{n}", worker, float(n), n + 1.0, thread=thread)
    for worker, turns in ((0, 6), (1, 2)) for thread in (0, 1) for n in range(turns)]
PAUSED = [(1, float(at), {"state": "running" if at < 2 else "paused", "size": 10**9})
    for at in range(6)] + [(0, float(at), {"state": "running"}) for at in range(7)]
finds("paused-workers", "paused workers", Plan(LOADS, held=PAUSED), worker="worker-node1-1",
    costs=2.0, start=2.0, stop=5.0, unmanaged=None)
# 80 % of 2 GB are 1.6 GB: 0.6 GB less than the results while a task runs, then 1.5 GB more.
LEFT = [(1, float(at), {"state": "paused", "executing": int(at < 4), "size": 10**8,
    "spilled_size": 0}) for at in range(2, 6)]
finds("paused-workers", "paused workers whose memory no result takes", Plan(LOADS, held=LEFT,
    memory_limit=2 * 10**9), costs=2.0, held=1e8, unmanaged=1.5e9, settings=[])
finds("paused-workers", "paused workers that run tasks", Plan(LOADS, held=LEFT[:2],
    memory_limit=2 * 10**9), unmanaged=None)
# The last task ends at 4 s; the workers pause at 5 s and live for 20 s.
spares("what workers do after the run", Plan(four_lanes("load", 1.0, 4), held=on_both(*((at,
    {"state": "running" if at < 5 else "paused"}) for at in (0.0, 4.0, 5.0, 20.0)))),
    "paused-workers", "client-bound", "work-outside-tasks")
finds("host-memory-full", "a host without memory", Plan(filled(["load"], 1.0), used=[(0, at,
    {"host_memory_total": 10e9, "host_memory_available": left})
    for at, left in ((0.0, 5e9), (2.0, 0.2e9))]), left=2e8, total=1e10, start=2.0)
spares("a host that tells no memory", Plan(filled(["load"], 1.0), used=[(0, at,
    {"host_memory_total": 0.0, "host_memory_available": 0.0}) for at in (0.0, 2.0)]))
# fmt: on


@pytest.mark.parametrize("of_shuffle", [True, False])
def test_outputs_of_a_p2p_shuffle_cannot_be_moved(tmp_path: Path, of_shuffle: bool) -> None:
    """Tasks queue on the first worker while the second is idle: outputs, or their dependents."""
    tasks = [Task(f"part-{n}", n, 0.0, 1.0) for n in (0, 1)]
    tasks.append(Task("shuffle-barrier-1", 0, 1.0, 1.1, dependencies=["part-0", "part-1"]))
    barrier = ["shuffle-barrier-1"]
    if not of_shuffle:
        tasks += [Task(f"take-{n}", n, 1.1, 1.2, dependencies=barrier) for n in (0, 1)]
    for n in range(12):
        start = 1.1 + n // 2 if of_shuffle else 1.2 + n
        name, needed, thread = ("take", barrier, 1 + n % 2) if of_shuffle else ("fit", [], 1)
        ready = 1.1 if of_shuffle else 1.2
        times = {"ready": ready, "runnable": ready, "thread": thread}
        tasks.append(Task(f"{name}-{n + 2}", 0, start, start + 1, dependencies=needed, **times))
    findings = found(Plan(tasks, threads=1 + of_shuffle), tmp_path, "poor-placement")
    advised = "client.replicate()" in findings["poor-placement"]["Suggestion"]
    assert advised is not of_shuffle


def uneven(name: str, begin: float, **more: Any) -> list[Task]:
    """Plan 12 tasks on two threads. The first one has 90 times the bytes of the others."""
    tasks, since = [], [begin, begin]
    for n in range(12):
        lasts, size = (6.0, 18_000_000) if n == 0 else (0.3, 200_000)
        start = since[n % 2]
        since[n % 2] += lasts
        tasks.append(Task(f"{name}-{n}", n % 2, start, since[n % 2], size=size, **more))
    return tasks


def test_the_skew_of_a_join_comes_before_where_its_outputs_are(tmp_path: Path) -> None:
    tasks = [Task(f"part-{n}", n, 0.0, 1.0) for n in (0, 1)]
    tasks.append(Task("shuffle-barrier-1", 0, 1.0, 1.1, dependencies=["part-0", "part-1"]))
    tasks += uneven("take", 1.1, dependencies=["shuffle-barrier-1"], ready=1.1, runnable=1.1)
    findings = found(Plan(tasks, threads=1), tmp_path)
    assert next(iter(findings)) == "data-skew"
    assert findings["poor-placement"]["Cause"] == "data-skew"
    advice = " ".join(one["Suggestion"] for one in findings.values())
    assert "client.replicate" not in advice and "remove workers=" not in advice


PARTS = uneven("part", 0.0)
BARRIER = Task("shuffle-barrier-1", 0, 7.6, 7.7, dependencies=[task.key for task in PARTS])
TAKES = [
    Task(f"take-{n}", n % 2, start, start + 0.3, size=600_000, ready=7.7, runnable=7.7)
    for n, start in enumerate((7.7, 7.7, 8.0, 8.0))
]
PARTS += [BARRIER, *(replace(task, dependencies=["shuffle-barrier-1"]) for task in TAKES)]
finds("data-skew", "a fat input of a shuffle", Plan(PARTS, threads=1), of_key=False)


def sampled_lanes(activities: Sequence[str]) -> list[tuple[int, int, float, dict[str, Any]]]:
    """Plan samples of the four threads at 10 Hz for 4 s, with half a core each."""
    counted = {"interval": 0.1, "cpu": 0.05, "run_queue": 0.0}
    return [
        (worker, thread, n / 10 + 0.05, {"activity": activities[n % len(activities)], **counted})
        for worker in (0, 1)
        for thread in (0, 1)
        for n in range(40)
    ]


def half_on_cores(**more: Any) -> Plan:
    """Plan tasks that are half computing and half CPU wait."""
    return Plan(four_lanes("solve", 1.0, 4, cpu=0.5, run_queue=0.5), **more)


def computing(*used: tuple[float, float]) -> list[tuple[int, float, dict[str, Any]]]:
    """Return samples of both processes' CPU seconds, none of which are Dask's, at these times."""
    counted = ((at, {"process_cpu_seconds": cpu, "service_cpu_seconds": 0.0}) for at, cpu in used)
    return on_both(*counted)


ONE_EACH = [{"n_workers": 4, "threads_per_worker": 1, "processes": True}]
LIBRARIES = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
# fmt: off
# Two threads of each process compute half of the time, and otherwise wait for the GIL.
finds("gil-contention", "a lock that samples show", Plan(four_lanes("loop", 1.0, 4, cpu=0.5),
    sampled=sampled_lanes(["lock", "running"])), severity="high", function="loop", seconds=2.0,
    sampled=0.5, at_a_time=2.0, settings=ONE_EACH)
spares("without samples a lock and a sleep are alike", Plan(four_lanes("loop", 1.0, 4, cpu=0.5)),
    "gil-contention")
finds("cpu-oversubscribed", "too few cores", half_on_cores(), alone=True, costs=2.0,
    settings=[{"threads_per_worker": "fewer"}])
finds("cpu-oversubscribed", "no more threads than cores", half_on_cores(cores=2),
    settings=[{"threads_per_worker": 1}])
finds("cpu-oversubscribed", "no more workers than cores", half_on_cores(cores=1),
    settings=[{"threads_per_worker": 1, "n_workers": 1}])
finds("cpu-oversubscribed", "no fewer threads where there are cores for all",
    half_on_cores(cores=8), severity="low", cores=8, settings=[])
# The only two threads join at 12 s. Each computes for 2 s and waits for CPU for 2 s.
finds("cpu-oversubscribed", "waits cost no more than there were", Plan([Task(f"loop-{n}{k}", 0,
    12.0 + n, 13.0 + n, cpu=0.5, run_queue=0.5, thread=k) for n in range(4) for k in (0, 1)],
    workers=1, joined=[12.0]), costs=2.0)
# Variables that are already set, as nannies do, are not suggested.
for limits in (None, {}, {**LIBRARIES, "MKL_NUM_THREADS": "4"}, LIBRARIES):
    unset = {name: "1" for name in LIBRARIES if (limits or {}).get(name) != "1"}
    finds("cpu-oversubscribed", f"libraries that start threads: {limits}",
        half_on_cores(used=computing((0.0, 0.0), (4.0, 16.0)), thread_limits=limits),
        own_threads=True, unlimited=None if limits is None else [*unset],
        settings=[unset] if unset else [])
# The process uses 8 CPU seconds in other threads, while its tasks run or afterwards.
for within in (8.0, 0.0):
    finds("cpu-oversubscribed", f"other threads compute for {within} s while tasks run",
        half_on_cores(used=computing((0.0, 0.0), (4.0, 8.0 + within), (8.0, 16.0))),
        own_threads=within > 0)
# Meanwhile, one thread of a library computes for each task, and does not compete with others.
finds("blocked-tasks", "threads that compute for their tasks", Plan([Task(f"solve-{n}", 0,
    2.0 * n, 2.0 * n + 2, cpu=0.2) for n in range(6)], used=computing(*((2.0 * n, 2.0 * n)
    for n in range(7)))), severity="low", more_threads=None)
# The times are those of a lock, but nine of ten samples without CPU are asleep.
spares("threads that sleep", Plan(four_lanes("digest", 1.0, 4, cpu=0.5),
    sampled=sampled_lanes(["waiting", "running"] * 9 + ["lock", "running"])), "gil-contention")
# Eight parents start 16 children and wait for them for 8 s each. They hold a thread for 10 ms of
# that. Their results are those of all children.
CHILDREN = [Task(f"sort-{8 + n}", n % 2, 0.1 + n // 4, 1.1 + n // 4, thread=n // 2 % 2)
    for n in range(16)]
spares("parents that seceded neither sleep nor dominate", Plan([Task(f"sort-{n}", n % 2, n / 100,
    8.0, cpu=0.005, seceded=0.01 + n / 100, size=20_000_000, thread=3 + n) for n in range(8)]
    + CHILDREN), "blocked-tasks", "dominant-function", "data-skew", "stragglers",
    "gil-contention", "io-bound")
# fmt: on


def asking(*stack: tuple[str, str, int], refused: int = 0, **more: Any) -> Plan:
    """Plan 16 tasks that wait for 1 s each, by default for the network. All are ready at once."""
    tasks = four_lanes("ask", 1.0, 4, cpu=0.01, ready=0.0, received=0.0, sent=0.0)
    network = ("ask", "/home/me/ask.py", 3), ("recv_into", "/lib/python3.13/socket.py", 700)
    tasks = failing_first(tasks, refused, "ConnectionError('429 Too Many Requests')")
    return Plan(tasks, stands={"ask": [*(stack or network)]}, **more)


def in_turn(lanes: list[tuple[int, int]], turn: float, times: int) -> list[Task]:
    """Plan parallel requests of threads (worker, thread) that are served one at a time."""
    tasks: list[Task] = []
    since = dict.fromkeys(lanes, 0.0)
    for number in range(times * len(lanes)):
        worker, thread = lane = lanes[number % len(lanes)]
        stop = turn * (number + 1)
        name = f"ask-{worker}{thread}{number}"
        tasks.append(Task(name, worker, since[lane], stop, cpu=0.001, thread=thread))
        since[lane] = stop
    return tasks


# If two functions wait, for 16 s with 1 % CPU and for 8 s with 25 %, the first one is named.
TWO_WAIT = four_lanes("ask", 1.0, 4, cpu=0.01)
TWO_WAIT += [replace(task, cpu=0.25) for task in filled(["fetch"], 1.0, count=8, since=4.0)]
UNENDED = [
    {"key": f"ask-9{n}", "timestamp": T + 3.9, "duration": 0.1, "run_id": 100 + n, "waiting": T}
    | {"worker": "tcp://10.0.0.1:4001", "state": "processing"}
    for n in range(60)
]
POOL = [
    *(("step", "/home/me/ask.py", n) for n in range(3)),
    ("Future.result", "/lib/python3.13/concurrent/futures/_base.py", 450),
    ("Condition.wait", "/lib/python3.13/threading.py", 360),
]
IN_POOL = ("_worker", "/lib/python3.13/concurrent/futures/thread.py", 90)
DASK_LOCK = ("acquire", "/x/distributed/lock.py", 90)
# fmt: off
finds("blocked-tasks", "the CPU share of one function is no other's", Plan(TWO_WAIT),
    function="ask", on_cpu=0.01, tasks=24, lasted=24.0)
finds("blocked-tasks", "sleeping tasks", Plan(four_lanes("ask", 1.0, 4, cpu=0.01)), alone=True,
    severity="medium", function="ask", seconds=NAN, settings=[])
# All 16 in parallel take 1 s instead of 4 s.
finds("blocked-tasks", "tasks that wait for the network may wait side by side", asking(),
    seconds=pytest.approx(3.0, abs=0.1), settings=[{"threads_per_worker": 20}])
# A service that refuses one of four calls may refuse more if there are more parallel calls.
finds("blocked-tasks", "no more threads for what is turned down", asking(refused=4), failed=0.25,
    seconds=NAN, settings=[])
finds("blocked-tasks", "attempts that have not ended do not speak for a service", asking(refused=4,
    unseen=UNENDED), failed=0.25, settings=[])
finds("blocked-tasks", "no more threads where memory is nearly full", asking(memory_limit=1000,
    used=[(0, at, {"memory": 900}) for at in (0.0, 4.0)]), seconds=NAN, settings=[],
    others={"paused-workers"})
finds("io-bound", "tasks that wait in a library that reads", asking(("load", "/home/me/load.py", 3),
    ("ParquetFile.read", "/x/site-packages/pyarrow/parquet/core.py", 9)), sampled=1.0,
    in_storage=None, absent={"blocked-tasks"})
finds("blocked-tasks", "tasks that wait for a pool of their own", asking(*POOL), in_pool=1.0,
    settings=[])
finds("blocked-tasks", "more threads where the threads of a pool wait for the network",
    asking(*POOL, IN_POOL, ("get", "/x/site-packages/requests/api.py", 9)), in_pool=None,
    settings=[{"threads_per_worker": 20}])
finds("shared-bottleneck", "tasks that wait in turn", Plan(in_turn([(0, 1), (0, 2), (1, 1), (1, 2)],
    0.25, 5)), turn=0.25, absent={"blocked-tasks"})
# One of two workers is served twice as often as the other.
finds("shared-bottleneck", "who waits in turn is not a slow worker",
    Plan(in_turn([(0, 1), (0, 1), (1, 1)], 0.25, 8), threads=1))
finds("per-process-lock", "a lock of the process in samples", asking(("ask", "/home/me/ask.py", 3),
    ("SerializableLock.__enter__", "/x/dask/utils.py", 1)), in_lock=1.0, settings=ONE_EACH)
finds("blocked-tasks", "a lock of the cluster is none of the process", asking(DASK_LOCK, ("sync",
    "/x/distributed/utils.py", 400), ("acquire", "/lib/python3.13/threading.py", 1)), settings=[],
    absent={"per-process-lock"})
# 0.4 s of each of 16 tasks of 1 s, 6.4 s in total, are 1.6 s of 4 s on four threads.
finds("garbage-collection", "the garbage collector", Plan(four_lanes("parse", 1.0, 4,
    collecting=0.4)), function="parse", share=0.4, taken=6.4, cpu=16.0, tasks=16, seconds=1.6)
spares("a garbage collector that takes little", Plan(four_lanes("parse", 1.0, 4, collecting=0.15)),
    "garbage-collection")
spares("the garbage collector of tasks that wait", Plan(four_lanes("fetch", 1.0, 4, cpu=0.1,
    collecting=0.04)), "garbage-collection")
spares("the garbage collector of a small part of the run", Plan([*four_lanes("sum", 5.0, 1),
    *four_lanes("parse", 0.1, 1, collecting=0.09)]), "garbage-collection")
finds("io-bound", "the CPU share of one function that reads", Plan(TWO_WAIT,
    used=on_both(*((at, {"process_io.read_size": at * 1e8}) for at in (0.0, 6.0)))),
    function="ask", on_cpu=0.01, moved=1.2e9)
# Each process uses 6 CPU seconds in 4 s, of which its two parallel tasks use almost none.
finds("blocked-tasks", "no more threads where the others of the process work",
    asking(used=computing((0.0, 0.0), (4.0, 6.0))), other_threads=5.84, settings=[])
# The tasks' threads compute for 0.01 s of each second, and wait for CPU for 0.05 s. If the other
# threads of the process wait as long, they need 6 * 1.44 s of the 15 s.
STARVED = asking(used=computing((0.0, 0.0), (4.0, 1.6)))
finds("blocked-tasks", "no more threads where the others of the process wait for a core",
    replace(STARVED, tasks=[replace(task, run_queue=0.05) for task in STARVED.tasks]),
    other_threads=1.44, settings=[])
# One thread runs 20 tasks of 0.25 s, and the other runs five tasks of 1 s.
spares("a long task among short ones keeps none of them waiting", Plan(
    [Task(f"ask-{n}", 0, n * 0.25, n * 0.25 + 0.25, cpu=0.001) for n in range(20)]
    + [Task(f"ask-{20 + n}", 1, n + 0.1, n + 1.1, cpu=0.001) for n in range(5)], threads=1),
    "shared-bottleneck")
# Four threads with tasks of 1 s, which start 0.25 s after each other.
spares("tasks that end evenly for they began so", Plan(
    [replace(task, start=task.start + late, stop=task.stop + late)
    for task in four_lanes("ask", 1.0, 5, cpu=0.01)
    for late in [0.25 * (2 * task.worker + task.thread)]]), "shared-bottleneck")
# fmt: on


def at_its_graph(task: Task, arrival: float) -> Task:
    """Let a graph submit a task that is assigned when it starts."""
    times = dict.fromkeys(("sent", "runnable", "received"), task.start)
    return replace(task, arrival=arrival, **times)


def one_by_one(graphs: int, gap: float = 0.0) -> Plan:
    """Plan 12 consecutive tasks of 1 s on two workers in turn, from this number of graphs."""
    size, tasks = 12 // graphs, []
    for n in range(12):
        start = n * (1.0 + gap)
        task = Task(f"ask-{n}", n % 2, start, start + 1.0, cpu=0.01)
        tasks.append(at_its_graph(task, n // size * size * (1.0 + gap)))
    return Plan(tasks, threads=1, graphs=[task.arrival for task in tasks[::size]])


def preparing(size: int) -> Plan:
    """Plan 12 graphs with one task and this size. The scheduler prepares each for 1.5 s."""
    plan = one_by_one(12, gap=3.0)
    graphs = [
        {"since": at - 2, "start": at - 2, "at": at - 1.6, "size": size} for at in plan.graphs
    ]
    taken_up = [arrival - 1.5 for arrival in plan.graphs]
    return replace(plan, graphs_sent=graphs, taken_up=taken_up)


def in_rounds(width: int) -> Plan:
    """Plan 12 consecutive graphs on four threads: parallel tasks, and then their sum.

    Each graph takes 2 s.
    """
    tasks = []
    for turn in range(12):
        begin, needs = 2.0 * turn, [f"ask-{turn}{lane}" for lane in range(width)]
        for lane, key in enumerate(needs):
            worker, thread = divmod(lane, 2)
            task = Task(key, worker, begin, begin + 1.0, thread=thread, cpu=0.01)
            tasks.append(at_its_graph(task, begin))
        total = Task(f"add-{turn}", 0, begin + 1.0, begin + 2.0, cpu=0.01, dependencies=needs)
        tasks.append(at_its_graph(total, begin))
    return Plan(tasks, graphs=[2.0 * turn for turn in range(12)])


def in_storage(seconds: float, refused: int = 0, **more: Any) -> Plan:
    """Plan tasks that wait for 0.9 s each, these seconds of it in storage calls."""
    tasks = four_lanes("load", 1.0, 4, cpu=0.1, storage=seconds)
    return Plan(failing_first(tasks, refused, "OSError('503 Slow Down')"), **more)


def requesting(reads: int, read_size: int, **more: Any) -> Plan:
    """Plan 16 tasks that wait for 0.9 s each for storage requests with these bytes in total."""
    return Plan(
        four_lanes("load", 1.0, 4, cpu=0.1, storage=0.9, reads=reads, read_size=read_size, **more)
    )


def reading_chunks(readers: int, beside: str = " lookup") -> Plan:
    """Plan 16 tasks of a layer, some of which read the same stored chunk, for 0.9 s each."""
    tasks = four_lanes("load", 1.0, 4, cpu=0.1, storage=0.9, read_size=10_000_000)
    return Plan(
        [
            replace(task, key=("load-" + 32 * "a", number), items=f"{number // readers:x}{beside}")
            for number, task in enumerate(tasks)
        ]
    )


def reading_tables(items: str, calls: str = "read_csv") -> Plan:
    """Plan 16 tasks that, according to stack samples, read a table for 1 s each."""
    readers = "/x/site-packages/pandas/io/parsers/readers.py"
    tasks = four_lanes("load", 1.0, 4, cpu=0.9, read_size=1, items=items)
    return Plan(tasks, stands={"load": [("load", "/home/me/load.py", 3), (calls, readers, 9)]})


READ = on_both(*((at, {"process_io.read_size": at * 1e8}) for at in (0.0, 4.0)))
ONE_READS = [(n, at, {"process_io.read_size": at * 1e8 * (n == 0)}) for n, at, _ in READ]
MORE_THREADS = [{"threads_per_worker": "more"}]
# fmt: off
# If all are submitted at once, each of two threads has 6 s of work.
finds("sequential-submission", "one task at a time", one_by_one(12), tasks=12, graphs=12, few=12.0,
    share=1.0, seconds=6.0, severity="high", absent={"serial-chain"})
# Client, scheduler and workers use three quarters of the cores, which leaves 3 s of 12 s.
finds("sequential-submission", "one task at a time on busy cores", replace(one_by_one(12),
    used=[(0, at, {"host_cpu": 75.0}) for at in (0.5, 6.0, 11.5)], seen=[(0, 6.0, {"pid": 9,
    "name": "other", "owner": "me", "cpu": 10.0, "memory": 0, "interval": 5.0})]), seconds=3.0)
# Chains in one graph occupy one of four threads: 12 chains of 2 s take 6 s on four.
finds("sequential-submission", "a point at a time", in_rounds(1), tasks=24, graphs=12, few=24.0,
    share=1.0, seconds=18.0)
finds("client-bound", "gaps that take longer than the tasks", one_by_one(12, gap=2.0),
    absent={"sequential-submission"})
# Of each graph of 304 kB, a task runs, after the scheduler has prepared it for 1.5 s.
finds("client-bound", "large graphs of which one task runs", preparing(304_000), prepared=1.5,
    pickled=304_000)
finds("client-bound", "small graphs that a busy scheduler prepares slowly", preparing(2_000),
    prepared=None, pickled=None)
finds("client-bound", "graphs that are large by what tasks need", replace(preparing(304_000),
    sent_values=[{"tasks": 1, "size": 300_000, "kind": "argument"}] * 12), pickled=None)
finds("io-bound", "tasks that wait for storage", Plan(four_lanes("read", 1.0, 4, cpu=0.1),
    used=READ), alone=True, moved=8e8, rate=2e8)
finds("blocked-tasks", "tasks of which only one process reads", Plan(four_lanes("ask", 1.0, 4,
    cpu=0.01), used=ONE_READS), alone=True)
# Measured calls count, not the files that their processes read and write.
finds("io-bound", "tasks that wait in calls of storage", in_storage(0.8), alone=True,
    in_storage=0.8, on_cpu=0.1, settings=MORE_THREADS)
finds("io-bound", "a storage that turns calls down is not asked by more threads", in_storage(0.8,
    refused=4), failed=0.25, settings=[])
# 16 tasks use 160 kB of 80 MB, in blocks: 160 kB / 16 is less than the smallest block size.
finds("io-bound", "files that are read in blocks of which little is used", requesting(1, 5_000_000,
    used=10_000), read=8e7, used=1.6e5, requests=16, each=5e6, block_size=2**16)
finds("io-bound", "files of which a third is used", requesting(1, 5_000_000, used=1_700_000),
    read=None, used=None)
finds("io-bound", "files of which it is unknown how much is used", requesting(1, 5_000_000),
    read=None, used=None)
# One task reads the data, and all others use the file's cache.
finds("io-bound", "a file whose blocks other tasks use", Plan([replace(task, reads=int(at == 0),
    read_size=80_000_000 * (at == 0)) for at, task in enumerate(requesting(1, 0, used=5_000_000)
    .tasks)]), read=None, used=None)
# 160 requests in 14.4 s; chunks 20 times as large leave two of them to each of four threads.
finds("small-requests", "many small requests", requesting(10, 100_000), requests=160, size=1e4,
    each=0.09, at_a_time=1.0, times=20.0, more=None, settings=MORE_THREADS)
spares("large requests", requesting(10, 80_000_000), "small-requests")
spares("few small requests", requesting(1, 10_000), "small-requests")
# One more object is read by all of them.
finds("chunk-mismatch", "chunks that match no stored ones", reading_chunks(4), tasks=16, chunks=4,
    times=4.0, moved=1.6e8, once=4e7)
finds("chunk-mismatch", "two stored chunks that most tasks read, and nothing else",
    reading_chunks(10, ""), tasks=16, chunks=2, times=8.0, moved=1.6e8, once=2e7)
# Chunks of 5 MB, of which each of 16 tasks selects 10 kB.
finds("chunk-mismatch", "stored chunks of which little is used", Plan(requesting(1, 5_000_000,
    used=10_000).tasks, stands={"load": [("load", "/home/me/load.py", 3), ("sync",
    "/x/site-packages/zarr/core/sync.py", 9)]}), read=8e7, used=1.6e5, requests=16, inside=1.0,
    chunks=None)
# Without 15 of 16 reads, each of four threads has 0.25 s of work instead of 4 s.
finds("repeated-reads", "a file that all tasks read", reading_tables("w1 3"), sources=1, times=16,
    inside=1.0, seconds=3.75, severity="high", absent={"chunk-mismatch"})
spares("an object that all tasks read a part of", reading_tables("1 3"), "repeated-reads")
spares("a file that all tasks read quickly", reading_tables("w1", "sum"), "repeated-reads")
spares("a table that all tasks read", reading_chunks(16, ""), "chunk-mismatch")
spares("a chunk for each task, beside an object that all read", reading_chunks(1), "chunk-mismatch")
finds("blocked-tasks", "tasks of whose wait less than half is in calls of storage", in_storage(0.4),
    alone=True)
# The finding then names the files that all processes read, and no calls.
finds("io-bound", "files that all processes read beside few calls of storage", in_storage(0.4,
    used=READ), moved=8e8, in_storage=None)
finds("blocked-tasks", "sleeping tasks on a busy host do not lack cores", Plan(four_lanes("ask",
    1.0, 4, cpu=0.001, run_queue=0.4)), alone=True)
# The single task at their end is not the client's fault.
spares("rounds that occupy all threads", in_rounds(4), "sequential-submission")
spares("tasks of one graph", one_by_one(1), "sequential-submission")
# fmt: on
for symptom, cause, name in (
    ("slow-worker", "shared-bottleneck", "who waits in turn is not a slow worker"),
    ("blocked-tasks", "per-process-lock", "a lock of the process in samples"),
    ("blocked-tasks", "sequential-submission", "one task at a time"),
):
    finds(symptom, f"{symptom} beneath {cause}", CASES.found[name][0], cause=cause, settings=[])


def test_threads_of_a_single_task_compete_with_no_others(tmp_path: Path) -> None:
    """Threads of a library may use the cores that a single task leaves free."""
    tasks = [Task(f"ask-{n}", 0, float(n), n + 1.0, cpu=0.01) for n in range(8)]
    plan = Plan(tasks, workers=1, threads=1, used=computing((0.0, 0.0), (8.0, 12.0)))
    findings = found(plan, tmp_path, "blocked-tasks")
    assert "there is nothing to change" in findings["blocked-tasks"]["Suggestion"]


def looping(*frames: tuple[str, str, int], **facts: Any) -> Plan:
    """Plan four threads that run a function with these frames for 4 s each."""
    tasks = [replace(task, **facts) for task in filled(["apply"], 1.0)]
    return Plan(tasks, stands={"apply": [*frames]})


APPLY = ("FrameApply.apply_series_generator", "/x/site-packages/pandas/core/apply.py", 1000)
RISK = ("risk", "/home/me/join.py", 5)
SERIES = "/x/site-packages/pandas/core/series.py"
ITEM = ("Series.__getitem__", SERIES, 900)
VALUE, MASKED = ("Series._get_value", SERIES, 990), ("Series._get_rows_with_mask", SERIES, 960)
LOOP = ("clean", "/home/me/join.py", 9)
ROWS = ("DataFrame.iterrows", "/x/site-packages/pandas/core/frame.py", 1500)
ATTRIBUTE = ("NDFrame.__getattr__", "/x/site-packages/pandas/core/generic.py", 6300)
BARE = [(name.rpartition(".")[2], file, line) for name, file, line in (APPLY, RISK, ITEM)]
# Their CPU wait is 5 % of 4 s, which would be saved with the loops.
BY_ROW = {
    "rows that are applied to": (APPLY, RISK, ITEM),
    "rows as Python 3.10 names them": BARE,
    "items of a row": (RISK, ITEM, VALUE),
    "rows in a loop": (LOOP, ROWS),
}
# A mask selects items of a column too.
BY_COLUMN = {
    "columns that are applied to": (APPLY, RISK),
    "columns in a loop": (LOOP, ATTRIBUTE),
    "masks of a column": (RISK, ITEM, MASKED),
}
for name, frames in BY_ROW.items():
    facts = {"severity": "high", "seconds": 4.0, "by_row": 1.0, "values": 1.0, "tasks": 16}
    finds("row-wise", name, looping(*frames, run_queue=0.05), **facts)
for name, frames in BY_COLUMN.items():
    spares(name, looping(*frames, run_queue=0.05), "row-wise")
MAPS = ("map_array", "/x/site-packages/pandas/core/algorithms.py", 1700)
#: Numpy's loops over values, and over slices.
VECTORIZES, OF_SLICES = (
    (f"vectorize.{name}", "/x/site-packages/numpy/lib/_function_base_impl.py", 2600)
    for name in ("_vectorize_call", "_vectorize_call_with_signature")
)
FILTERS = ("generic_filter", "/x/site-packages/scipy/ndimage/_filters.py", 1800)
PARSES = ("PythonParser._get_lines", "/x/site-packages/pandas/io/parsers/python_parser.py", 1200)
# fmt: off
# Tasks use the CPU for 1 s, for columns of 100,000 values and arrays of as many.
finds("row-wise", "a function by value", looping(MAPS, RISK, shape=(100_000,), cpu=1.0),
    severity="medium", seconds=4.0, by_value=1.0, each=1e-5, by_row=None)
for name, frame in (("vectorized", VECTORIZES), ("in a filter", FILTERS)):
    finds("row-wise", f"a function that is {name}", looping(frame, RISK, size=800_000, cpu=1.0),
        severity="high", seconds=4.0, by_value=1.0, each=1e-5, by_row=None)
spares("a function that takes 1 ms per value", looping(MAPS, RISK, shape=(1000,), cpu=1.0),
    "row-wise")
spares("a dictionary is not Python code", looping(MAPS, shape=(100_000,), cpu=1.0), "row-wise")
spares("a vectorized function that takes 1 ms", looping(VECTORIZES, RISK, size=8000, cpu=1.0),
    "row-wise")
spares("unknown time per slice", looping(OF_SLICES, RISK, size=800_000, cpu=1.0), "row-wise")
# All samples show the loop, so the work per element is brief.
finds("row-wise", "a loop in numpy", looping(OF_SLICES), severity="high", by_value=1.0,
    in_loop=1.0, seconds=4.0, caller="numpy.vectorize(signature=)")
# The C parser is ten times as fast.
finds("row-wise", "a loop in pandas", looping(PARSES), severity="high", by_value=1.0, in_loop=1.0,
    seconds=3.6, caller="pandas.read_csv() with its Python parser")
# fmt: on


SMOOTHS = """\
def smooth(block):
    for row in range(9):
        for column in range(9):
            block[row, column] /= 2
        block.sort()
    return sum([value for line in block for value in line])
"""


def running(source: str, line: int, **facts: Any) -> Plan:
    """Plan four threads at a line of a function of this source, whose first line is 10."""
    code = {"name": "smooth", "function": "image.smooth", "file": IMAGE, "line": 10}
    plan = looping(("smooth", IMAGE, line), **facts)
    return replace(plan, sources=[{**code, "source": source}])


IMAGE = "/home/me/image.py"
# The garbage collector takes a part of the time of some.
for line, collecting, nested in ((13, 0.0, 1.0), (15, 0.0, 1.0), (13, 0.25, 0.75)):
    facts = {"severity": "high", "seconds": 4.0 * nested, "nested": nested, "by_value": None}
    plan = running(SMOOTHS, line, collecting=collecting)
    name = f"nested loops in line {line}, {nested} of the time"
    finds("row-wise", name, plan, **facts, line=f"{IMAGE}:{line} smooth")
for line, collecting in ((10, 0.0), (14, 0.0), (16, 0.0), (13, 0.6)):
    plan = running(SMOOTHS, line, collecting=collecting)
    spares(f"no nested loops in line {line}, with {collecting} s of garbage", plan, "row-wise")
TEXTS = ("word for word in line.split()", "str(n) for n in line")
for value in (*TEXTS, "f'{n}' for n in line", "line['n'] for _ in line"):
    source = f"def smooth(lines):\n    return [[{value}] for line in lines]\n"
    spares(f"text is not work for arrays: {value}", running(source, 11), "row-wise")


def in_turns(seconds: float, begin: float, **times: float) -> list[Task]:
    """Plan four rounds on four threads with this duration and these times of stages."""
    return [
        replace(task, **{name: start + at for name, at in times.items()})
        for turn in range(4)
        for start in [seconds * turn]
        for lane, task in enumerate(
            four_lanes(f"part{turn}", 1.0, 1, start=start + begin, stop=start + begin + 1)
        )
        for task in [replace(task, thread=lane % 2)]
    ]


def readings(utilization: float, memory: float = 1e9, **more: Any) -> Plan:
    """Plan tasks with GPUs that have this utilization (%) and used memory."""
    facts = {"name": "Stand-in", "memory_total": 10e9, "memory_used": memory}
    gpu = [(float(at), {**facts, "utilization": utilization}) for at in range(5)]
    return Plan(four_lanes("fit", 1.0, 4, **more), gpu=gpu)


# fmt: off
# Each task is runnable when the previous one ends, and assigned a second later: half of 8 s.
finds("scheduler-bound", "the scheduler", Plan(in_turns(2.0, 1.0, runnable=0.0)), severity="high",
    costs=4.0)
# The scheduler learns of a round's end a second later, and then assigns the next round.
finds("scheduler-bound", "the scheduler hears of ends late", Plan(in_turns(2.0, 0.0, runnable=0.0,
    done=1.0, known=2.0, arrival=0.0)), costs=3.0)
# Three quarters of 4 s.
finds("gpu-idle", "idle GPUs", readings(25.0), severity="medium", costs=3.0,
    worker="worker-node1-0")
finds("gpu-idle", "unused GPUs", readings(0.0), alone=True, severity="low", unused=2)
finds("gpu-memory-full", "full GPUs", readings(90.0, memory=9.5e9), alone=True, used=9.5e9,
    total=1e10)
spares("busy GPUs are what tasks may wait for", readings(90.0, cpu=0.1))
# fmt: on


def with_last(**facts: Any) -> Plan:
    """Plan 16 tasks, the last of which has these facts."""
    *others, last = filled(["fit"], 1.0)
    return Plan([*others, replace(last, **facts)])


def raising(*errors: str, first: int = 2) -> Plan:
    """Plan 16 tasks, some of which raise these errors."""
    tasks = four_lanes("parse", 1.0, 4)
    for place, error in enumerate(errors, first):
        tasks[place] = replace(tasks[place], state="erred", exception=error)
    return Plan(tasks)


RECOMPUTED = four_lanes("load", 1.0, 4)
for task, before in zip(RECOMPUTED[12:], RECOMPUTED, strict=False):
    task.key = before.key  # the first round is repeated
#: Graphs of persisted dataframes contain tasks that return the persisted results.
PERSISTED = four_lanes("load", 1.0, 1)
for place, task in enumerate(four_lanes("read", 0.5, 8)[8:]):
    where = {"key": f"read-{place % 4}", "dependencies": [f"load-{place % 4}"]}
    PERSISTED.append(replace(task, executing=task.start, start=task.start + 0.499, **where))
RETRIED = four_lanes("fetch", 1.0, 8)
for place, task in enumerate(RETRIED):
    if place // 4 % 2 == 0:  # every second attempt fails; its key succeeds in the next round
        task.key, task.state, task.became = RETRIED[place + 4].key, "erred", "released"
        task.exception = "ConnectionError('no answer')"
RAISED = raising("ValueError('no 5')", first=5)
RAISED.tasks[5].raised_at = "/home/me/work.py:7 parse"
# fmt: off
finds("retried-tasks", "failed attempts", Plan(RETRIED), severity="high", function="fetch",
    seconds=4.0, attempts=16, category="ConnectionError", absent={"failed-tasks", "recomputation"})
# A client had cancelled it before the scheduler learned of its error.
finds("failed-tasks", "errors that are nobody's", with_last(state="erred", became="released",
    exception="KeyError('shard')", ended_by="client-releases-keys-7"), severity="low", nobodys=True)
finds("failed-tasks", "errors", RAISED, severity="high", function="parse", tasks=1,
    kinds=["ValueError in parse"], key="parse-5", raised_at="/home/me/work.py:7 parse", start=1.0)
# Four task runs of 1 s, on four threads.
finds("recomputation", "recomputation", Plan(RECOMPUTED), alone=True, function="load", seconds=1.0,
    tasks=4, lost=4.0, settings=[{"persist": "load"}])
spares("tasks that return persisted results", Plan(PERSISTED), "recomputation")
# fmt: on


# A task of 1 s runs again, 2 s later. Meanwhile the client is in this phase.
for phase, handling in (("optimising", 2.0), ("waiting", 2.0), ("program", None)):
    times = enumerate((0.0, 3.0))
    repeated = [
        Task("load-1", 0, at, at + 1.0, arrival=at, graph=f"update-graph-{n}") for n, at in times
    ]
    plan = Plan(repeated, workers=1, threads=1, graphs=(0.0, 3.0), clients=("c", "c"))
    plan.client_phases = [(1.0, 3.0, phase)]
    facts = {"seconds": 1.0 + (handling or 0.0), "handling": handling}
    finds("recomputation", f"a graph that only repeats work, after {phase}", plan, **facts)


# The second one started together with another one and failed before that.
SEVERAL = raising(*(f"{kind}Error('no')" for kind in ("OS", "Key", "OS", "Type", "Value")))
SEVERAL.tasks[3].stop -= 0.1
KINDS = [f"{kind}Error in parse" for kind in ("Key", "OS", "Type", "Value")]
finds("failed-tasks", "errors of several kinds", SEVERAL, tasks=5, kinds=KINDS)


def unseen(number: int, sent: float, known: float, worker: int = 1, **more: Any) -> dict[str, Any]:
    times = {"timestamp": T + sent, "duration": known - sent, "waiting": T}
    where = {"worker": f"tcp://10.0.0.1:400{worker}", "key": f"fit-9{number}"}
    return {"state": "released", "run_id": 100 + number, **times, **where, **more}


RESTART = "client-restart-7"
WAITED = unseen(0, 0.5, 0.9, end_cause=RESTART)
# fmt: off
# Nannies kill the workers, and the scheduler only learns that they left.
finds("cancelled-tasks", "a worker whose process ended by a restart is not lost",
    Plan(filled(["fit"], 1.0), unseen=[unseen(0, 2.0, 2.9, end_cause=RESTART)], left=[(1, 3.0,
    "handle-worker-cleanup")]), tasks=1, absent={"lost-workers"})
finds("cancelled-tasks", "a restart takes tasks off their threads",
    replace(with_last(state="cancelled", became="released", ended_by=RESTART), unseen=[WAITED]),
    tasks=2, ran=1.0)
finds("cancelled-tasks", "a task that fails before its worker hears of the restart was unfinished",
    replace(with_last(state="erred", became="released", exception="OSError('flaky')",
    ended_by=RESTART), unseen=[WAITED]), tasks=2, sent=2)
# fmt: on


def killed(graph: str = "handle-worker-cleanup-2", **more: Any) -> Plan:
    """Plan two workers with two threads. One dies at 2 s, and its results are recomputed."""
    tasks = [
        Task(f"fit-{worker}{n}{k}", worker, n, n + 1.0, thread=k, graph="update-graph-1")
        for worker in (0, 1)
        for n in (0, 1)
        for k in (0, 1)
    ]
    tasks += [
        replace(task, worker=0, start=task.start + 2, stop=task.stop + 2, arrival=2.0, graph=graph)
        for task in tasks
        if task.worker
    ]
    left = [(1, 2.0, "handle-worker-cleanup")]
    return Plan(tasks, unseen=[unseen(0, 1.5, 2.0)], left=left, killed=[1], **more)


def dying(*deaths: float, end: int, memory: int | None = None) -> Plan:
    """Plan workers with one thread, all but one of which are killed by SIGKILL, one by one."""
    tasks = [Task(f"fit-{n}", 0, float(n), n + 1.0) for n in range(end)]
    workers = range(1, len(deaths) + 1)
    tasks += [Task(f"fit-9{n}0", n, 0.0, 1.0) for n in workers]
    lost = [unseen(n, at - 2, at, n) for n, at in enumerate(deaths, 1)]
    left = [(n, at, "handle-worker-cleanup") for n, at in enumerate(deaths, 1)]
    ends = dict(enumerate((float(end), *deaths)))
    used = [(n, at, {"memory": memory}) for n in ends for at in (0.0, ends[n]) if memory]
    facts = {"workers": len(ends), "threads": 1, "unseen": lost, "left": left, "used": used}
    return Plan(tasks, killed=[*workers], **facts, memory_limit=2 * 10**9 if memory else 0)


def in_use(memory: int) -> list[tuple[int, float, dict[str, Any]]]:
    return on_both(*((at, {"memory": memory}) for at in (0.0, 1.9)))


def with_kills(counted: int | None) -> Plan:
    """Let the kernel count kills in the control group of both workers. The first one survives."""
    counts = {0: [(0.0, 4), (3.9, counted)], 1: [(0.0, 4), (1.9, 4)]}
    used = [
        (n, at, {"memory": 10**8, "oom_kills": None if counted is None else kills})
        for n, seen in counts.items()
        for at, kills in seen
    ]
    return killed(used=used, memory_limit=10**9)


# fmt: off
# Without the exit, these 4 s of thread time would be saved, and four threads would do the rest.
finds("lost-workers", "what was lost with a worker is no want of persist", killed(), ran_again=4,
    again=4.0, costs=(4.0 + 2 * 2.0) / 4, absent={"recomputation"})
finds("recomputation", "what a client asks for again beside a lost worker",
    killed("update-graph-2"), tasks=4, lost=4.0)
finds("lost-workers", "what a client asks for again was not lost", killed("update-graph-2"),
    ran_again=0)
finds("lost-workers", "memory is not blamed for a worker that had little",
    killed(used=in_use(100_000_000), memory_limit=10**9), memory=1e8, limit=1e9,
    blames_memory=False)
finds("lost-workers", "memory is blamed for a worker that had much",
    killed(used=in_use(900_000_000), memory_limit=10**9), memory=9e8, limit=1e9, blames_memory=True)
# Another worker of its host counts one more kill in their common control group.
finds("lost-workers", "the kernel counted a kill for want of memory", with_kills(5), why="memory",
    blames_memory=True)
finds("lost-workers", "the kernel was not asked", with_kills(None), why="unknown",
    blames_memory=False)
# Every 3 s, except for one that was delayed on a busy host.
finds("lost-workers", "a clock is told by most of the gaps", dying(3.0, 6.1, 9.0, 12.0, 15.1, 21.1,
    end=24), rhythm={"workers": 6, "shortest": pytest.approx(2.9), "longest": pytest.approx(3.1)} |
    {"others": 1, "memory": 0.0, "limit": pytest.approx(NAN, nan_ok=True)})
finds("lost-workers", "gaps of any length tell no clock", dying(3.0, 4.0, 9.0, 12.0, 13.0, 21.1,
    end=24), rhythm=None)
finds("lost-workers", "of two gaps one tells no clock", dying(3.0, 6.0, 12.0, end=24), rhythm=None)
finds("incomplete-trace", "a file that ends as its process dies", killed(), workers_died=True,
    kinds=[])
finds("incomplete-trace", "a file that ends early", Plan(filled(["fit"], 1.0), killed=[1]),
    severity="low", workers_died=False, kinds=["not-closed"])
finds("incomplete-trace", "no samples", Plan(filled(["fit"], 1.0), resources=False))
# Two of four threads are missing from 3 s to the end at 4 s.
finds("lost-workers", "a worker that was lost", Plan(filled(["fit"], 1.0), killed=[1],
    unseen=[unseen(n, 2.0, 3.0) for n in (0, 1)], left=[(1, 3.0, "handle-worker-cleanup")]),
    severity="high", worker="worker-node1-1", tasks=2, function="fit", start=3.0, costs=0.5,
    why="unknown")
finds("lost-workers", "what kills workers by the clock is not a lack of memory",
    dying(3.0, 6.1, 9.0, 12.1, end=14, memory=73_000_000), why="unknown", blames_memory=False,
    rhythm={"workers": 4, "shortest": pytest.approx(2.9), "longest": pytest.approx(3.1)} |
    {"others": 0, "memory": 73e6, "limit": 2e9})
# fmt: on


def test_what_died_is_told_apart_from_what_could_not_be_recorded(tmp_path: Path) -> None:
    left = [(1, 3.0, "handle-worker-cleanup")]
    Plan(filled(["fit"], 1.0), left=left, killed=[1]).write_files(tmp_path)
    run = Run.from_trace(Trace.from_database(tmp_path))
    failed = Note("caught-errors", "a file", "a file: 1 error caught while recording.")
    for notes, kinds in ((run.notes, []), ((*run.notes, failed), ["caught-errors"])):
        findings = TraceAnalyser(replace(run, notes=notes)).findings()
        (facts,) = (
            facts_of({**one.to_dict(), "Costs (s)": 0})
            for one in findings
            if one.rule == "incomplete-trace"
        )
        assert (facts["workers_died"], facts["kinds"]) == (True, kinds)


def test_memory_that_ran_out_excludes_more_threads(tmp_path: Path) -> None:
    """The kernel counts a kill in the control group of both workers; no finding is needed."""
    advice = [Advice("more-threads", "Take ten threads.")]
    waits = Finding("blocked-tasks", "It waits.", "See it.", advice, seconds=2.0)
    for kills in (4, 5):
        run = with_kills(kills).write(tmp_path / str(kills)).run
        table = diagnose(run, {"blocked-tasks": lambda run: iter([waits])})
        assert ("Take ten threads." in table["Suggestion"].iloc[0]) is (kills == 4)


test_a_fault_is_found, test_what_looks_alike_is_not_found = CASES.tests()
