"""Causes of hangs, and their certainty."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from dasfprof.analysis.under_way.causes import find_causes
from dasfprof.analysis.under_way.state import (
    Activity,
    ClientNow,
    ClusterState,
    FailedTask,
    Frame,
    HeldBackTask,
    Primitive,
    TaskUnderWay,
    WorkerNow,
    describe_stack,
    user_line,
)

USER = Frame("load", "/home/me/pipeline.py", 12)
LOCK = Frame("Lock.acquire", "/venv/lib/python3.11/site-packages/distributed/lock.py", 84)
WAIT = Frame("Condition.wait", "/usr/lib/python3.11/threading.py", 363)


#: By name: a state, and its expected first cause. ``kinds`` are the kinds of all causes, and
#: ``says`` has names and figures in its text.
CAUSES: dict[str, tuple[ClusterState, dict[str, Any]]] = {}


def task(key: str, waits_in: str | None = None, *names: str, **facts: object) -> TaskUnderWay:
    activity = Activity("sleeping", (USER, LOCK, WAIT), waits_in, names)
    under_way = TaskUnderWay(
        key, key.split("-", maxsplit=1)[0], "w0", "executing", 20.0, "1", 0.1, 20.0, activity
    )
    return replace(under_way, **facts)  # type: ignore[arg-type]


def worker(name: str = "w0", **facts: object) -> WorkerNow:
    return replace(WorkerNow(name, f"tcp://{name}", 2, "running"), **facts)  # type: ignore[arg-type]


def state(tasks: Sequence[TaskUnderWay] = (), **facts: object) -> ClusterState:
    known = {"workers": (worker(),), **facts}
    return ClusterState(1000.0, len(tasks), tasks=tuple(tasks), **known)  # type: ignore[arg-type]


def causes(name: str, of: ClusterState, kind: str, certainty: str = "", **more: Any) -> None:
    """Add a state and its first cause."""
    CAUSES[name] = of, {"kind": kind, **({"certainty": certainty} if certainty else {}), **more}


BOTH = {"holds": (("Lock", "a"), ("Lock", "b")), "holds_certain": False}
CROSSED, LEASES = (
    [task("f-1", kind, "b", holds=((kind, "a"),)), task("g-2", kind, "a", holds=((kind, "b"),))]
    for kind in ("Lock", "Semaphore")
)
CROSSED = [task("h-3", "Lock", "a"), *CROSSED]
TWO = Primitive("Semaphore", "a", limit=2, holders=("x", "y"))
HELD = Primitive("Semaphore", "a", waiting=1, holders=("lease",), limit=1)
QUEUE = Primitive("Queue.get", "go", waiting=1, items=0)
HOLDER = task("g-2", holds=(("Lock", "a"),))
# fmt: off
causes("crossed locks", state(CROSSED), "lock-cycle", "certain", kinds={"lock-cycle"}, waiting=3,
    keys={"f-1", "g-2"}, line="/home/me/pipeline.py:12 load", says=["f-1 on w0", "Lock b"])
causes("a cycle whose holders are not certain", state([task("f-1", "Lock", "b", **BOTH),
    task("g-2", "Lock", "a", **BOTH)]), "lock-cycle", "likely")
causes("a semaphore of two leases makes no cycle", state(LEASES, primitives=(TWO,)), "lock-wait",
    "possible", kinds={"lock-wait"})
causes("who holds a lock", state([task("f-1", "Lock", "a"), HOLDER]), "lock-wait",
    says=["g-2 on w0", "/home/me/pipeline.py:12 load"])
causes("a lock that no task holds", state([task("f-1", "Lock", "a")], primitives=(HELD,)),
    "lock-wait", says=["no running task"])
for call in ("Event", "Variable", "Queue.get"):
    causes(f"{call} that nobody set", state([task("f-1", call, "go")], primitives=(QUEUE,)),
        "signal-wait", "possible", says=["'go' (for 20 s)"])
# fmt: on

CHILDREN = Activity("sleeping", (USER,), "gather", (), ("child-1", "child-2"))
PARENTS = [task(f"parent-{i}", activity=CHILDREN) for i in range(2)]
SECEDED = [replace(one, state="long-running") for one in PARENTS]
GPU = "no worker has GPU=2"
UNMET = [HeldBackTask(f"f-{i}", "f", 30.0, {"resources": {"GPU": 2}}, GPU) for i in range(3)]
PAUSED = worker(status="paused", memory=9e8, memory_limit=1e9)
UNKNOWN_TASK = worker(
    processing=1, processing_keys=("f-1",), known={"g-1": "memory"}, answered=True
)
SILENT = {"silent": 40.0, "answered": False, "processing": 2, "processing_keys": ("f-1", "f-2")}
# fmt: off
causes("parents that hold all threads", state(PARENTS), "threads-held-by-parents", "likely",
    says=["2 tasks of parent", "all 2 threads"])
causes("parents on workers that are told to close",
    state(PARENTS, workers=(worker(status="closing_gracefully"),)), "threads-held-by-parents")
causes("parents that leave a thread", state(PARENTS[:1]), "futures-wait", "possible",
    kinds={"futures-wait"})
causes("parents that seceded", state(SECEDED), "futures-wait", "possible", kinds={"futures-wait"})
causes("a loop that is blocked", state(workers=(worker(loop_blocked=20.0),)), "loop-blocked")
causes("an unmet restriction", state(held_back=tuple(UNMET), counts={"f": {"no-worker": 7}}),
    "no-worker", "certain", waiting=7, says=["7 tasks of f", GPU])
causes("a cluster that starts", state(held_back=(HeldBackTask("f-1", "f", 5.0, {}, "none"),),
    workers=()), "no-worker", "possible")
causes("all workers paused", state([task("f-1")], workers=(PAUSED,)), "all-paused")
causes("two views that differ", state(workers=(UNKNOWN_TASK,)), "views-differ", keys={"f-1"})
for process in ("stopped", "gone", "busy", None):
    causes(f"a silent worker whose process is {process}",
        state(workers=(worker(process_state=process, **SILENT),)), "worker-silent",
        "certain" if process in ("stopped", "gone") else "likely", waiting=2, says=["f-1, f-2"])
# fmt: on

KEEPS = ClientNow("Client-1", wanted=2)
FIRE = ClientNow("fire-and-forget")
ALIVE = state(quiet=36.0, clients=(KEEPS, FIRE), scheduler_answered=True)


def waiting_client(call: str, **facts: Any) -> ClientNow:
    waits = Activity("sleeping", (USER,), waits_in=call, waits_keys=("work-1",))
    return ClientNow("Client-1", activity=waits, **facts)


ELSEWHERE = ClientNow("Client-1", wanted=3, activity=Activity("sleeping", (USER,)))
LOST = waiting_client("result", wants_nothing=True)
ERRED = FailedTask("f-1", "f", "ValueError('no 3')", dependents=5)
# fmt: off
causes("an error and what never ran", state(failed=(ERRED,)), "error",
    says=["f-1", "5 tasks", "ValueError('no 3')"])
causes("a task that kills its workers",
    state(failed=(FailedTask("f-1", "f", "KilledWorker('f-1', ...)"),)), "killed-worker-errors",
    kinds={"killed-worker-errors"})
causes("a client whose process cannot be asked", ALIVE, "client-elsewhere", "possible",
    says=["36 s", "Client-1", "2 results"])
causes("a client that asks for nothing", replace(ALIVE, clients=(ClientNow("Client-2"),)),
    "client-elsewhere", "possible", says=["Client-2", "no result"])
causes("a client whose stack has not changed",
    state(clients=(replace(ELSEWHERE, unchanged=33.0),), quiet=36.0), "client-elsewhere",
    says=["33 s", "3 results"])
causes("the client is elsewhere", state(clients=(ELSEWHERE,), quiet=36.0), "client-elsewhere",
    says=["36 s", "3 results"])
causes("a client that waits for results may be sent them",
    state(clients=(waiting_client("gather", wanted=3),), quiet=36.0), "client-elsewhere",
    says=["gather"])
causes("a client that waits for what the scheduler does not know",
    state(clients=(LOST,), quiet=36.0), "lost-keys", "likely", says=["1 result", "work-1"])
# A client that received all results wants no tasks at the end.
causes("a client that got its results",
    state(clients=(replace(LOST, wants_nothing=False),), quiet=36.0), "client-elsewhere")
# fmt: on


@pytest.mark.parametrize("name", CAUSES)
def test_the_first_cause(name: str) -> None:
    of, expected = CAUSES[name]
    causes, says = find_causes(of), expected.get("says", ())
    first = causes[0]
    assert [text for text in says if text not in first.text + first.evidence] == []
    facts = {**vars(first), "keys": {*first.keys}, "kinds": {cause.kind for cause in causes}}
    assert {"says": says, **facts}.items() >= expected.items()


def test_nothing_to_speak_of_has_no_cause() -> None:
    for of in (
        state(),
        state([task("f-1", seconds=1.0)]),
        state(workers=(worker(loop_blocked=2.0),)),  # event loops stall on a busy host
        replace(ALIVE, quiet=2.0),
        replace(ALIVE, scheduler_answered=None),  # a trace shows its activity
    ):
        assert find_causes(of) == []


def test_what_paused_workers_hold_says_what_to_free() -> None:
    for results, advised in ((8e8, "Release results"), (1e3, "leave behind")):
        paused = replace(PAUSED, results=results)
        assert advised in find_causes(state([task("f-1")], workers=(paused,)))[0].suggestion
    causes = find_causes(state([task("f-1")], workers=(PAUSED, worker("w1"))))
    assert "all-paused" not in {cause.kind for cause in causes}


def test_tasks_that_were_lost_together_are_one_cause() -> None:
    message = "KilledWorker: Attempted to run task '{}' on 1 different workers, but all"
    died = {"worker": "w0", "died_of": "killed by a crash", "suspect": "hog"}
    failed = (
        FailedTask("small-1", "small", message.format("small-1"), **died),
        FailedTask("hog-1", "hog", message.format("hog-1"), **died, suspicion="No run of hog. "),
        FailedTask("f-1", "f", message.format("f-1"), worker="w1"),
    )
    first, second = find_causes(state(failed=failed))
    assert "killed by a crash" in first.text
    assert "No run of hog." in first.evidence
    assert (first.function, first.keys, first.waiting) == ("hog", ("hog-1", "small-1"), 2)
    assert (second.function, second.keys) == ("f", ("f-1",))


def test_computing_and_sleeping_are_told_as_they_are_seen() -> None:
    runs = task("f-1", activity=Activity("running", (USER,)), cpu=19.5)
    sleeps = task("g-1", activity=Activity("sleeping", (USER, WAIT)))
    causes = {cause.kind: cause for cause in find_causes(state([runs, sleeps]))}
    assert set(causes) == {"running", "sleeping"}
    assert {cause.certainty for cause in causes.values()} == {"possible"}
    assert causes["sleeping"].line == "/home/me/pipeline.py:12 load"


def test_the_users_line_is_the_innermost_outside_of_libraries() -> None:
    assert user_line((USER, LOCK, WAIT)) == "/home/me/pipeline.py:12 load"
    assert user_line((LOCK, WAIT)) == f"{LOCK.file}:84 Lock.acquire"
    assert user_line(()) is None
    # In libraries, the innermost line is named, with its library.
    assert describe_stack((USER, LOCK, WAIT)).endswith(
        ", inside it threading.py:363 Condition.wait"
    )
    assert describe_stack((USER, LOCK)).endswith(", inside it distributed/lock.py:84 Lock.acquire")


def test_hostile_names_stay_in_one_line() -> None:
    cause = find_causes(state([task("f-\n\x1b[31m1", "Event", "a\nb")]))[0]
    assert "\n" not in cause.text + cause.evidence and "\x1b" not in cause.text + cause.evidence
