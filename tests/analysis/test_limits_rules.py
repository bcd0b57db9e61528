"""Rules about limits on parallel tasks, on planned runs: locks, resources, and threads."""

from dataclasses import replace
from typing import Any

from diagnosed_plans import Cases
from traces import Plan, Task, filled

CASES = Cases()
finds, spares = CASES.finds, CASES.spares
CLIENT = "/x/distributed/client.py"


def in_lock(waits: bool, seceded: float | None = None) -> Plan:
    """Plan 16 tasks on four threads that hold a common lock or separate ones for 0.25 s."""
    tasks, locks = [], []
    since = [0.0] * 4
    for number in range(16):
        lane, stop = number % 4, 0.25 * (number + 1) if waits else 0.25 * (number // 4 + 1)
        begin = since[lane]
        task = Task(f"write-{number}", lane // 2, begin, stop, cpu=0.01, thread=lane % 2)
        task.seceded = None if seceded is None else begin + seceded
        tasks.append(task)
        name = "output.nc" if waits else f"part {lane}"
        locks.append((lane // 2, name, begin, stop - 0.25, stop))
        since[lane] = stop
    return Plan(tasks, locks=locks)


def in_others(queue: bool, seceded: bool = False) -> Plan:
    """Plan 3 tasks that take as long as 16 others on one thread, which are runnable from 0."""
    others = filled(["train"], 0.25, count=16, workers=1, threads=1)
    for task in others:
        task.worker, task.thread = 1, 1
        task.sent = task.runnable = 0.0 if queue else task.start
    outer = [Task(f"direct-{n}", n // 2, 0.0, 4.0, cpu=0.01, thread=n % 2) for n in range(3)]
    for task in outer:
        task.seceded = 0.01 if seceded else None
    stands = [("direct", "/home/me/direct.py", 3), ("wait", CLIENT, 5900)]
    stands += [("sync", "/x/distributed/utils.py", 400), ("Event.wait", "/x/threading.py", 660)]
    return Plan([*outer, *others], stands={"direct": stands})


def asking_for_gpu(at_once: int, name: str = "resources") -> Plan:
    """Plan 24 tasks that are ready at 0, `at_once` parallel ones per worker of three threads."""
    tasks = filled(["call"], 0.25, count=24, threads=at_once)
    for task in tasks:
        task.sent = task.received = task.ready = 0.0
        task.cpu, task.annotations = 0.001, {name: {"GPU": 1}}
    return Plan(tasks, threads=3)


def throttled(seconds: float, quota: float = 1.0, **more: Any) -> Plan:
    """Plan 16 tasks of 1 s that wait for CPU, in a control group with this throttled time."""
    tasks = [replace(task, run_queue=0.6) for task in filled(["sum"], 1.0, count=16)]
    used = [
        (worker, at, {"throttled_seconds": 100.0 + seconds * at / 4, "num_fds": 90})
        for worker in (0, 1)
        for at in (0.0, 4.0)
    ]
    return Plan(tasks, used=used, limits={"cpu_group": "/pod", "cpu_quota": quota, **more})


# fmt: off
# The first four wait for 0, 0.25, 0.5 and 0.75 s, and all others for 0.75 s: 10.5 s of 16 s.
finds("distributed-lock", "tasks that wait for a lock of the cluster", in_lock(waits=True),
    severity="high", cause=None, kind="Lock", name="output.nc", waited=10.5, share=0.656, times=16,
    each=0.25, held=4.0, absent={"blocked-tasks"})
finds("shared-bottleneck", "tasks that wait in turn for a lock", in_lock(waits=True),
    cause="distributed-lock")
spares("locks that no task waits for", in_lock(waits=False), "distributed-lock")
spares("locks without a thread", in_lock(waits=True, seceded=0.01), "distributed-lock")
# They occupy three of four threads for 4 s. Each other task waits for all previous ones.
finds("missing-secede", "tasks that keep their threads while they wait for others",
    in_others(queue=True), severity="high", cause=None, function="direct", kept=12.0, share=0.75,
    queued=30.0)
spares("others that have threads", in_others(queue=False), "missing-secede")
spares("tasks that secede", in_others(queue=True, seceded=True), "missing-secede")
# Two threads of each worker are idle for 3 s until 0.5 s before the end, then one, and none.
finds("resource-limit", "tasks that wait for units of a resource", asking_for_gpu(at_once=1),
    severity="high", cause=None, resource="GPU", most=1, idle=10.5, share=0.583)
finds("blocked-tasks", "tasks that wait for a resource are blocked", asking_for_gpu(at_once=1),
    cause="resource-limit")
spares("a unit for each thread", asking_for_gpu(at_once=3), "resource-limit")
spares("other annotations", asking_for_gpu(at_once=1, name="priority"), "resource-limit")
finds("cpu-quota", "a group whose CPU quota is used up", throttled(2.0), severity="high",
    stopped=2.0, share=0.5, quota=1.0, workers=2, threads=4, waited=2.4,
    settings=[{"threads_per_worker": 1}])
finds("cpu-oversubscribed", "a group that has too few cores by its quota", throttled(2.0),
    cause="cpu-quota")
# The throttled time of a group is a sum over its cores.
finds("cpu-quota", "a quota of four cores", throttled(4.0, 4.0), stopped=1.0, settings=[])
spares("a quota that is rarely used up", throttled(0.1), "cpu-quota")
finds("descriptor-limit", "open files near their limit", throttled(0.0, descriptor_limit=100),
    files=90, limit=100, workers=2)
for limit in (1024, None):
    spares(f"open files with a limit of {limit}", throttled(0.0, descriptor_limit=limit),
        "descriptor-limit")
# fmt: on

test_a_fault_is_found, test_what_looks_alike_is_not_found = CASES.tests()
