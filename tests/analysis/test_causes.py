"""Protects what is said of work that does not end: the cause, and how certain it is called."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

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


def test_crossed_locks_are_a_cycle_and_certain() -> None:
    first = task("f-1", "Lock", "b", holds=(("Lock", "a"),))
    second = task("g-2", "Lock", "a", holds=(("Lock", "b"),))
    third = task("h-3", "Lock", "a")

    cause = find_causes(state([third, first, second]))[0]

    assert (cause.kind, cause.certainty, set(cause.keys)) == (
        "lock-cycle",
        "certain",
        {"f-1", "g-2"},
    )
    assert cause.waiting == 3
    assert [cause.kind for cause in find_causes(state([third, first, second]))] == ["lock-cycle"]
    assert "f-1 on w0 holds a and waits for Lock b" in cause.evidence
    assert cause.line == "/home/me/pipeline.py:12 load"


def test_a_cycle_is_not_certain_where_the_holder_is_not() -> None:
    holds = (("Lock", "a"), ("Lock", "b"))
    first = task("f-1", "Lock", "b", holds=holds, holds_certain=False)
    second = task("g-2", "Lock", "a", holds=holds, holds_certain=False)

    assert find_causes(state([first, second]))[0].certainty == "likely"


def test_a_semaphore_of_two_leases_makes_no_cycle() -> None:
    first = task("f-1", "Semaphore", "b", holds=(("Semaphore", "a"),))
    second = task("g-2", "Semaphore", "a", holds=(("Semaphore", "b"),))
    two = Primitive("Semaphore", "a", limit=2, holders=("x", "y"))

    causes = find_causes(state([first, second], primitives=(two,)))

    assert {cause.kind for cause in causes} == {"lock-wait"}
    assert {cause.certainty for cause in causes} == {"open"}


def test_who_holds_a_lock_is_told_with_its_line() -> None:
    cause = find_causes(state([task("f-1", "Lock", "a"), task("g-2", holds=(("Lock", "a"),))]))[0]

    assert cause.kind == "lock-wait"
    assert "held by g-2 on w0, which is at /home/me/pipeline.py:12 load" in cause.text


def test_a_lock_that_no_task_holds() -> None:
    held = Primitive("Semaphore", "a", waiting=1, holders=("lease",), limit=1)

    cause = find_causes(state([task("f-1", "Lock", "a")], primitives=(held,)))[0]

    assert "by no task that is seen to run" in cause.text


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("Event", "waits for the Event 'go' since 20 s: nobody has set it"),
        ("Variable", "waits for the Variable 'go' since 20 s: nobody has set it"),
        ("Queue.get", "waits for the Queue (get) 'go' since 20 s: 0 items in it"),
    ],
)
def test_what_nobody_set_is_named_and_never_certain(call: str, said: str) -> None:
    queue = Primitive("Queue.get", "go", waiting=1, items=0)

    cause = find_causes(state([task("f-1", call, "go")], primitives=(queue,)))[0]

    assert said in cause.text
    assert cause.certainty == "open"
    assert "whether it comes yet is unknown" in cause.evidence


def test_parents_that_hold_all_threads() -> None:
    futures = Activity("sleeping", (USER,), "gather", (), ("child-1", "child-2"))
    parents = [task(f"parent-{i}", activity=futures) for i in range(2)]

    cause = find_causes(state(parents))[0]

    assert (cause.kind, cause.certainty) == ("threads-held-by-parents", "likely")
    assert "2 tasks of parent hold all 2 threads" in cause.text
    assert "secede()" in cause.suggestion and "worker_client()" in cause.suggestion


def test_parents_hold_the_threads_of_workers_that_are_told_to_close() -> None:
    futures = Activity("sleeping", (USER,), "gather", (), ("child-1", "child-2"))
    parents = [task(f"parent-{i}", activity=futures) for i in range(2)]
    closing = replace(worker(), status="closing_gracefully")

    cause = find_causes(state(parents, workers=(closing,)))[0]

    assert cause.kind == "threads-held-by-parents"


@pytest.mark.parametrize(
    "parents",
    [
        [task("parent-1", activity=Activity("sleeping", (USER,), "gather", (), ("c",)))],
        [
            task(
                "parent-1", activity=Activity("sleeping", (USER,), "gather"), state="long-running"
            ),
            task(
                "parent-2", activity=Activity("sleeping", (USER,), "gather"), state="long-running"
            ),
        ],
    ],
    ids=["a thread is free", "they seceded"],
)
def test_parents_that_leave_threads_are_not_called_stuck(parents: list[TaskUnderWay]) -> None:
    causes = find_causes(state(parents))

    assert {(cause.kind, cause.certainty) for cause in causes} == {("futures-wait", "open")}


def test_loops_pause_on_a_busy_host() -> None:
    paused, blocked = (replace(worker(), loop_blocked=seconds) for seconds in (2.0, 20.0))

    assert find_causes(state(workers=(paused,))) == []
    assert find_causes(state(workers=(blocked,)))[0].kind == "loop-blocked"


def test_an_unmet_restriction_is_certain() -> None:
    held = tuple(
        HeldBackTask(f"f-{i}", "f", 30.0, {"resources": {"GPU": 2}}, "no worker has GPU=2")
        for i in range(3)
    )

    cause = find_causes(state(held_back=held, counts={"f": {"no-worker": 7}}))[0]

    assert (cause.kind, cause.certainty, cause.waiting) == ("no-worker", "certain", 7)
    assert "7 tasks of f cannot run since 30 s: no worker has GPU=2" in cause.text


def test_a_cluster_that_starts_is_not_called_stuck() -> None:
    held = (HeldBackTask("f-1", "f", 5.0, {}, "there is no worker"),)

    assert find_causes(state(held_back=held, workers=()))[0].certainty == "open"


def test_all_workers_paused() -> None:
    paused = worker(status="paused", memory=9e8, memory_limit=1e9)

    assert find_causes(state([task("f-1")], workers=(paused,)))[0].kind == "all-paused"
    one_runs = (paused, worker("w1"))
    assert "all-paused" not in {c.kind for c in find_causes(state([task("f-1")], workers=one_runs))}


@pytest.mark.parametrize(("results", "advised"), [(8e8, "Free results"), (1e3, "leave behind")])
def test_what_paused_workers_hold_says_what_to_free(results: float, advised: str) -> None:
    paused = worker(status="paused", memory=9e8, memory_limit=1e9, results=results)
    (cause,) = find_causes(state([task("f-1")], workers=(paused,)))[:1]

    assert "Dask's results are" in cause.evidence
    assert advised in cause.suggestion


@pytest.mark.parametrize(
    ("process_state", "certainty", "said"),
    [
        ("stopped", "certain", "its process is stopped"),
        ("gone", "certain", "its process has ended"),
        ("busy", "likely", "a C extension holds the GIL"),
        (None, "likely", "it may be frozen, cut off"),
    ],
)
def test_a_silent_worker_and_its_tasks(
    process_state: str | None, certainty: str, said: str
) -> None:
    silent = worker(
        silent=40.0,
        answered=False,
        process_state=process_state,
        processing=2,
        processing_keys=("f-1", "f-2"),
    )

    cause = find_causes(state(workers=(silent,)))[0]

    assert (cause.kind, cause.certainty, cause.waiting) == ("worker-silent", certainty, 2)
    assert said in cause.text
    assert "f-1, f-2" in cause.evidence


def test_two_views_that_differ() -> None:
    told = worker(processing=1, processing_keys=("f-1",), known={"g-1": "memory"}, answered=True)

    cause = find_causes(state(workers=(told,)))[0]

    assert (cause.kind, cause.keys) == ("views-differ", ("f-1",))


def test_an_error_and_what_never_ran() -> None:
    failed = (FailedTask("f-1", "f", "ValueError('no 3')", dependents=5),)

    cause = find_causes(state(failed=failed))[0]

    assert cause.text == "f-1 ended in an error, and 5 tasks that depend on it never ran."
    assert "ValueError('no 3')" in cause.evidence


def test_a_task_that_kills_its_workers() -> None:
    failed = (FailedTask("f-1", "f", "KilledWorker('f-1', ...)"),)

    assert [cause.kind for cause in find_causes(state(failed=failed))] == ["killed-workers"]


@pytest.mark.parametrize(
    ("workers", "told"),
    [
        (1, "the worker that had it was killed by a crash."),
        (3, "the workers that had it were killed by a crash, one after the other."),
    ],
)
def test_how_many_workers_a_task_was_lost_with(workers: int, told: str) -> None:
    message = f"KilledWorker: Attempted to run task 'f-1' on {workers} different workers, but all"
    failed = (FailedTask("f-1", "f", message, died_of="killed by a crash"),)

    (cause,) = find_causes(state(failed=failed))
    assert cause.text == f"f-1 was given up: {told}"


def test_tasks_that_were_lost_together_are_one_cause() -> None:
    message = "KilledWorker: Attempted to run task '{}' on 1 different workers, but all"
    died = {"worker": "w0", "died_of": "killed by a crash", "suspect": "hog"}
    failed = (
        FailedTask("small-1", "small", message.format("small-1"), **died),
        FailedTask("hog-1", "hog", message.format("hog-1"), **died, suspicion="No run of hog. "),
        FailedTask("f-1", "f", message.format("f-1"), worker="w1"),
    )

    first, second = find_causes(state(failed=failed))
    assert first.text == "2 tasks were given up: the worker that had them was killed by a crash."
    assert first.evidence.startswith("hog-1, small-1. No run of hog. The client got: KilledWorker")
    assert (first.function, first.keys, first.waiting) == ("hog", ("hog-1", "small-1"), 2)
    assert (second.function, second.keys) == ("f", ("f-1",))


def test_computing_and_sleeping_are_told_as_they_are_seen() -> None:
    runs = task("f-1", activity=Activity("running", (USER,)), cpu=19.5)
    sleeps = task("g-1", activity=Activity("sleeping", (USER, WAIT)))

    causes = {cause.kind: cause for cause in find_causes(state([runs, sleeps]))}

    assert set(causes) == {"running", "sleeping"}
    assert {cause.certainty for cause in causes.values()} == {"open"}
    assert "An endless loop and a long computation look alike" in causes["running"].evidence
    assert causes["sleeping"].line == "/home/me/pipeline.py:12 load"


def test_a_client_whose_process_cannot_be_asked() -> None:
    """A live look: what is known is that it keeps results; what its program does is not."""
    keeps = ClientNow("Client-1", wanted=2)
    clients = (keeps, ClientNow("fire-and-forget"))
    alive = state(quiet=36.0, clients=clients, scheduler_answered=True)
    (cause,) = find_causes(alive)
    assert (cause.kind, cause.certainty) == ("client-elsewhere", "open")
    assert cause.text == (
        "The cluster has had nothing to do for the last 36 s, as all tasks have ended: "
        "Client-1 has not given up 2 results."
    )
    waits = replace(alive, clients=(ClientNow("Client-2"),))
    (cause,) = find_causes(waits)
    assert cause.text.endswith("Client-2 is connected and asks for no result.")
    assert "py-spy dump" in cause.suggestion
    assert not find_causes(replace(alive, quiet=2.0))
    assert not find_causes(replace(alive, scheduler_answered=None))  # a trace tells what it does


def test_the_client_is_elsewhere() -> None:
    client = ClientNow("Client-1", wanted=3, activity=Activity("sleeping", (USER,)))

    cause = find_causes(state(clients=(client,), quiet=36.0))[0]

    assert cause.text == (
        "The cluster has had nothing to do for the last 36 s, as all tasks have ended: "
        "the client does something else."
    )
    assert "3 results" in cause.evidence
    assert "for the last" not in cause.evidence
    (cause,) = find_causes(state(clients=(replace(client, unchanged=33.0),), quiet=36.0))
    assert ", for the last 33 s; the cluster keeps 3 results for it." in cause.evidence
    assert "meanwhile the cluster has nothing to do" in cause.suggestion


def test_a_client_that_waits_for_results_may_be_sent_them() -> None:
    waits = Activity("sleeping", (USER,), waits_in="gather", waits_keys=("work-1",))
    client = ClientNow("Client-1", wanted=3, activity=waits)

    cause = find_causes(state(clients=(client,), quiet=36.0))[0]

    assert cause.text == (
        "The cluster has had nothing to do for the last 36 s, as all tasks have ended: "
        "the client waits in gather."
    )
    assert cause.suggestion.startswith("These results may be on their way: client_calls() tells")


def test_a_client_that_waits_for_what_the_scheduler_does_not_know() -> None:
    waits = Activity("sleeping", (USER,), waits_in="result", waits_keys=("work-1",))
    lost = ClientNow("Client-1", activity=waits, wants_nothing=True)

    cause = find_causes(state(clients=(lost,), quiet=36.0))[0]
    assert (cause.kind, cause.certainty) == ("lost-keys", "likely")
    assert "waits in result for 1 result that the scheduler does not know of: work-1" in cause.text
    # That it wants none in the end is what a client does that got its results.
    kept = replace(lost, wants_nothing=False)
    assert find_causes(state(clients=(kept,), quiet=36.0))[0].kind == "client-elsewhere"


def test_nothing_under_way_has_no_cause() -> None:
    assert find_causes(state()) == []
    assert find_causes(state([task("f-1", seconds=1.0)])) == []


def test_the_users_line_is_the_innermost_outside_of_libraries() -> None:
    assert user_line((USER, LOCK, WAIT)) == "/home/me/pipeline.py:12 load"
    assert user_line((LOCK, WAIT)) == f"{LOCK.file}:84 Lock.acquire"
    assert user_line(()) is None
    # Of libraries the innermost line is told, from the library on.
    assert describe_stack((USER, LOCK, WAIT)).endswith(", in it threading.py:363 Condition.wait")
    assert describe_stack((USER, LOCK)).endswith(", in it distributed/lock.py:84 Lock.acquire")


def test_hostile_names_stay_in_one_line() -> None:
    cause = find_causes(state([task("f-\n\x1b[31m1", "Event", "a\nb")]))[0]

    assert "\n" not in cause.text + cause.evidence and "\x1b" not in cause.text + cause.evidence
