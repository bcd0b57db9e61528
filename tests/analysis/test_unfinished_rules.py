"""Unfinished runs are reported with their cause, and finished or healthy ones are not."""

import signal
from pathlib import Path
from typing import Any

import pytest
from refuters import refute
from refuters.figures import without_units
from traces import Plan, Plugin, T, Task
from traces.hung import ADDRESS, ENDED, FIRST, PERSON, SIGINT, Hung, client, ended_in, hung

from dasfprof import TraceAnalyser
from dasfprof.analysis.diagnosis.run_figures import RunFigures
from dasfprof.analysis.diagnosis.unfinished import _keeps_from_its_end
from dasfprof.analysis.under_way.state import Cause
from dasfprof.schema.steps import CLIENT_CALLS


def told(run: Hung, directory: Path) -> dict[str, dict[str, Any]]:
    """Return the findings of a run by rule, the first one of each."""
    found = run.write(directory).findings()
    against = refute(directory, found)
    assert not against, "\n".join(against)
    by_rule: dict[str, dict[str, Any]] = {}
    for one in found:
        facts = {"severity": one.severity, **without_units(one.to_dict()["Figures"])}
        by_rule.setdefault(one.rule, facts)
    return by_rule


def unfinished(run: Hung, directory: Path, *unwanted: str) -> dict[str, Any]:
    """Return the figures of the finding about the unfinished run, which must be the first one."""
    findings = told(run, directory)
    assert next(iter(findings)) == "unfinished-run"
    assert findings.keys().isdisjoint(unwanted)
    return findings["unfinished-run"]


def seconds_of(analyser: TraceAnalyser) -> dict[str, float]:
    table = analyser.time_accounting()
    assert table["Share (%)"].max() <= 100
    return dict(zip(table["Class"], table["Thread Time (s)"], strict=True))


#: States of the scheduler when the client leaves with unfinished work, and after its release.
TAKEN = {"unfinished": 1, "occasion": "client-left", "client": PERSON}
GONE: dict[str, Any] = {"unfinished": 0, "clients": []}
#: Stimuli of a release of tasks whose futures a client dropped, and of a known result.
DROPPED = {"known": 19.0, "state": "released", "why": "client-releases-keys-1"}
DONE = {"state": "memory", "why": ENDED, **FIRST}


def leaves(run: Hung, at: float, gone: float) -> list[tuple[float, dict[str, Any]]]:
    """Return the scheduler's states of a run whose client leaves, and whose tasks are released."""
    return [(at, {**run.states[0][1], **TAKEN}), (gone, GONE)]


def test_a_task_that_hangs_is_the_first_finding_and_in_all_tables(tmp_path: Path) -> None:
    findings = told(hung(closed=False), tmp_path)
    own = findings.pop("unfinished-run")
    assert (own["severity"], own["tasks"], own["keys"]) == ("high", 1, ["f-1"])
    assert own["longest"] == pytest.approx(20.0)
    assert own["cause"]["line"] == "/home/me/work.py:7 f"
    assert "high" not in {one["severity"] for one in findings.values()}
    analyser = TraceAnalyser(tmp_path, progress=False)
    for table, label in (
        (analyser.per_task_status(), "Running (s)"),
        (analyser.per_task_bottleneck(), "Duration (s)"),
    ):
        (task,) = table.to_dict("records")
        assert (task["Task Key"], task["State"]) == ("f-1", "running")
        assert abs(task[label] - 20.0) < 0.01
    assert analyser.per_function_status()["Task Runs"].tolist() == [1]
    # Two threads for 20 s: one is blocked, the other has no task that could run.
    seconds = seconds_of(analyser)
    assert abs(seconds["Blocked"] - 20.0) < 0.01
    assert abs(seconds["No runnable tasks"] - 20.0) < 0.01
    assert seconds.get("Waiting for client", 0.0) < 0.01


def test_tasks_of_a_killed_scheduler_that_had_not_been_sent_were_submitted(tmp_path: Path) -> None:
    state = {"unfinished": 3, "tasks": {"f": {"no-worker": 3}}}
    run = Hung(states=[(2.0, state), (19.0, state)], closed=False)
    seconds = seconds_of(run.write(tmp_path))
    assert abs(seconds["No runnable tasks"] - 40.0) < 0.01  # the graph arrived at 0
    assert "Waiting for client" not in seconds


def test_what_a_client_took_away_as_it_left_was_under_way(tmp_path: Path) -> None:
    run = hung(left=(20.0, "handle-worker-cleanup"))
    run.states = [run.states[0], *leaves(run, 19.0, 19.5)]
    run.runs = [{"key": "f-1", "known": 19.0, "state": "released", "why": "remove-client-1"}]
    assert unfinished(run, tmp_path, "lost-workers")["when"] == "left"
    table = TraceAnalyser(tmp_path, progress=False).processed_tasks()
    labels = ["Status", "Error Category"]
    assert table[labels].to_numpy().tolist() == [["released by the client", "cancelled"]]
    # A client that drops its futures at the end does not leave.
    run = hung()
    run.states = [run.states[0], (19.5, GONE)]
    run.runs = [{"key": "f-1", **DROPPED}]
    assert unfinished(run, tmp_path / "dropped")["when"] == "given up"


@pytest.mark.parametrize(
    ("state", "how"), [("cancelled", "released by the client"), ("executing", "lost")]
)
def test_what_a_client_gave_up_is_not_lost(tmp_path: Path, state: str, how: str) -> None:
    run = Hung(open={"f-1": {"state": state, "at": 9.0}}, ended=[("g-1", 11.0, 19.0)])
    run.left, run.exit_code = (10.0, "handle-worker-cleanup"), -signal.SIGKILL
    table = run.write(tmp_path).processed_tasks()
    assert dict(zip(table["Task"], table["Status"], strict=True))["f-1"] == how


@pytest.mark.parametrize("closed", [True, False])
def test_errors_after_another_client_left(tmp_path: Path, closed: bool) -> None:
    """The client that dropped them stays, so it may see an error a moment later."""
    run = hung(closed=closed)
    here, other = client(keys=("f-1",)), client("Client-2", 0)
    gone = {"occasion": "client-left", "client": "Client-2", "clients": [here, other]}
    run.states = [*run.states[:1], (18.8, {"unfinished": 1, **gone})]
    run.states += [(19.6, {"unfinished": 0, "clients": [client(unfinished=0)]})]
    run.open, run.ended, run.raised = {}, [("g-1", 1.0, 19.3)], {"g-1": "OSError('flaky')"}
    erred = {"known": 19.31, "state": "erred", "why": "task-erred-1", **FIRST}
    run.runs = [{"key": "f-1", **DROPPED}, {"key": "g-1", **erred}]
    errors = told(run, tmp_path)["failed-tasks"]
    assert (errors["tasks"], errors["kinds"]) == (1, ["OSError in g"])


@pytest.mark.parametrize(
    ("exception", "at", "client_left", "when"),
    [
        # Tasks that SIGINT ended at the end of the program were in progress.
        (SIGINT, 19.0, 19.002, "interrupted"),
        ("ValueError('no 3')", 19.0, 19.002, None),  # the reason why the client left
        (SIGINT, 15.5, 19.0, None),  # a child, while the run continued
        ("OSError('closed')", 19.002, 19.0, "left"),  # when the client had left
    ],
)
def test_what_ended_a_run_and_what_ended_with_it(
    exception: str, at: float, client_left: float, when: str | None, tmp_path: Path
) -> None:
    run = ended_in(exception, at, at + 0.001, client_left)
    if when is None:
        findings = told(run, tmp_path)
        assert next(iter(findings)) == "failed-tasks" and "unfinished-run" not in findings
    else:
        own = unfinished(run, tmp_path, "failed-tasks")
        assert (own["severity"], own["tasks"], own["when"]) == ("high", 1, when)
        assert own["failed_late"] == {"key": "f-1", "message": exception, "tasks": 1}


def test_workers_that_close_before_their_client_has_left(tmp_path: Path) -> None:
    """After Ctrl-C in a terminal, the tasks for which it waited are those until then."""
    worker = {"worker": ADDRESS, "name": 0, "threads": 2, "processing": 0, "keys": []}
    worker |= {"memory": 900, "memory_limit": 1000, "last_seen": T + 19}
    counts = {"unfinished": 1, "tasks": {"f": {"no-worker": 1}}}
    paused, closing = (
        counts | {"workers": [worker | {"status": status}]} for status in ("paused", "closing")
    )
    states = [(1.0, paused), (18.9, closing), (19.0, closing | TAKEN)]
    findings = told(Hung(states=states, left=(19.1, "handle-worker-cleanup")), tmp_path)
    assert findings["unfinished-run"]["cause"]["kind"] == "all-paused"


def test_work_that_is_left_on_purpose_is_not_severe(tmp_path: Path) -> None:
    run = hung(waits_in=None)
    run.open["f-1"] = {"since": 18.0}
    run.states = leaves(run, 19.9, 20.0)
    assert unfinished(run, tmp_path / "left")["severity"] == "medium"
    # Tasks that were to be forgotten, and tasks that the end of the program interrupted.
    run = hung(left=(20.0, "nanny-close"))
    run.open["f-1"] = {"since": 18.0}
    clients = [client(unfinished=0), client("fire-and-forget", 1)]
    state = {"unfinished": 1, "tasks": {"f": {"processing": 1}}, "clients": clients}
    run.states = [(19.0, state), (19.9, {**state, "occasion": "closing"})]
    run.runs = [{"key": "f-1", "known": 20.0, "state": "released", "why": "nanny-close-1"}]
    own = unfinished(run, tmp_path / "forgotten", "lost-workers", "killed-worker-errors")
    assert (own["severity"], own.get("cause")) == ("low", None)


def test_futures_that_were_cancelled_while_the_run_went_on(tmp_path: Path) -> None:
    run = Hung(ended=[("g-1", 3.0, 20.0)])
    run.states = [(1.0, {"unfinished": 1}), (20.0, {"unfinished": 0})]
    run.runs = [
        {"key": "f-1", "known": 2.0, "state": "released", "why": "cancel-key-1"},
        {"key": "g-1", "sent": 3.0, "known": 20.0, **DONE},
    ]
    findings = told(run, tmp_path)
    own = findings["cancelled-tasks"]
    assert (own["severity"], own["tasks"]) == ("low", 1)
    assert findings.keys().isdisjoint({"unfinished-run", "lost-workers"})


@pytest.mark.parametrize(
    ("end", "states", "more"),
    [
        (20.0, [(1.0, {"unfinished": 1}), (20.0, GONE)], {"open": {"g-1": {"at": 10.0, **FIRST}}}),
        # Workers leave together. The last state is before the last end, or has no unfinished tasks.
        (19.5, [(1.0, {"unfinished": 1})], {"left": (20.0, "handle-worker-cleanup")}),
        (
            19.5,
            [(1.0, {"unfinished": 1}), (19.9, {"unfinished": 0})],
            {"left": (20.0, "handle-worker-cleanup")},
        ),
    ],
)
def test_a_run_that_ended_has_none(end: float, states: Any, more: Any, tmp_path: Path) -> None:
    runs = [{"key": "g-1", "known": end, **DONE}]
    rules = told(Hung(ended=[("g-1", 0.0, end)], states=states, runs=runs, **more), tmp_path)
    unwanted = {"unfinished-run", "cancelled-tasks", "killed-worker-errors", "lost-workers"}
    assert unwanted.isdisjoint(rules)


@pytest.mark.parametrize(
    ("code", "state", "when"),
    [
        (None, "released", "only worker left"),
        (-signal.SIGTERM, "released", "only worker left"),
        (-signal.SIGKILL, "released", "closed"),
        # The scheduler abandons a task when it has lost the allowed number of workers.
        (None, "erred", None),
    ],
)
def test_one_worker_that_leaves_at_the_end_died_or_was_shut_down(
    code: int | None, state: str, when: str | None, tmp_path: Path
) -> None:
    run = hung(left=(18.5, "handle-worker-cleanup"), exit_code=code)
    run.runs = [{"key": "f-1", "known": 18.5, "state": state, "why": f"{run.left[1]}-1"}]
    findings = told(run, tmp_path)
    told_when = findings.get("unfinished-run", {}).get("when")
    assert told_when == when or (when is None and told_when != "only worker left")
    assert ("lost-workers" in findings) == (code == -signal.SIGKILL or state == "erred")


@pytest.mark.parametrize(("ended", "severity"), [(19.0, "medium"), (5.0, "high")])
def test_a_client_that_leaves_with_a_result(ended: float, severity: str, tmp_path: Path) -> None:
    """Like `next(as_completed(...))`, it waited for one result and abandoned the others."""
    run = hung(waits_in="as_completed")
    run.open, run.ended = {"f-1": {"at": 18.0}}, [("g-1", 0.0, ended)]
    run.states = leaves(run, 19.9, 20.0)
    assert unfinished(run, tmp_path)["severity"] == severity


def test_tasks_that_no_worker_had_are_listed(tmp_path: Path) -> None:
    held = {"key": "g-1", "function": "g", "since": T + 1, "unmet": "no worker has GPU=1"}
    held["restrictions"] = {"resources": {"GPU": 1}}
    run = hung(closed=False)
    state = {**run.states[0][1], "unfinished": 3, "held_back": [held]}
    state["clients"] = [client(unfinished=3, keys=("f-1", "g-1", "h-1"))]
    run.states = [(1.0, state), (19.0, state)]
    analyser = run.write(tmp_path)
    table = analyser.processed_tasks().set_index("Task")
    assert table["Status"].to_dict() == {"f-1": "running", "g-1": "no-worker", "h-1": "waiting"}
    assert abs(table["Run Method Seconds"]["f-1"] - 20.0) < 0.01
    counts = analyser.processed_tasks("function").set_index("Function")
    assert counts.loc["f", ["Total", "Succeeded", "Failed", "Unfinished"]].tolist() == [1, 0, 0, 1]
    cause = analyser.findings()[0].figures["cause"]
    assert (cause.kind, cause.certainty) == ("no-worker", "certain")


def test_status_tables_refer_to_the_findings(tmp_path: Path) -> None:
    """A function that waits forever need not be faster, and one without a task run is listed."""
    run = hung(closed=False)
    waits = {"waits_in": "Event", "waits_for": "never", "thread_state": "sleeping"}
    run.open["f-1"].update(waits)
    left = {"f": {"processing": 1}, "g": {"queued": 3, "memory": 2}}
    run.states = [(at, {**state, "unfinished": 4, "tasks": left}) for at, state in run.states]
    run.ended = [(f"h-{n}", 0.0, 1.0) for n in range(3)]
    analyser = run.write(tmp_path)
    status = analyser.per_function_status().set_index("Function")
    assert status[["Task Runs", "Unfinished Tasks"]].to_numpy().tolist() == [[1, 1], [3, 0], [0, 3]]
    assert status.index.tolist() == ["f", "h", "g"]
    steps = status["Next steps"]
    assert "waits for the Event 'never'" in analyser.diagnose().iloc[0]["Finding"]
    assert steps["f"] == steps["g"] == analyser.per_step_status()["Next steps"][0]
    assert steps["f"].startswith("Some of its tasks did not end. diagnose() reports why")
    assert "Profile its function and speed it up" in steps["h"]


@pytest.mark.parametrize(("end", "severity"), [(11.0, "low"), (38.0, "medium")])
def test_a_program_may_do_something_else(tmp_path: Path, end: float, severity: str) -> None:
    """All tasks ended at 2 s, and it holds the result."""
    keeps = {"unfinished": 0, "clients": [client(unfinished=0)]}
    states = [(1.0, {"unfinished": 1}), (3.0, keeps), (end - 0.5, keeps)]
    runs = [{"key": "g-1", "known": 2.0, **DONE}]
    run = Hung(ended=[("g-1", 0.0, 2.0)], states=states, runs=runs, end=end, waits_in=None)
    own = told(run, tmp_path)["unfinished-run"]
    assert (own["cause"]["kind"], own["severity"]) == ("client-elsewhere", severity)
    assert own["cause"]["suggestion"].startswith("Check /home/me/script.py:3 main: ")


@pytest.mark.parametrize(("receiving", "reported"), [(30.0, False), (5.0, True)])
def test_a_client_may_receive_large_results(
    tmp_path: Path, receiving: float, reported: bool
) -> None:
    """All tasks ended at 2 s. The client waits in gather() until 38 s."""
    keeps = {"unfinished": 0, "clients": [client(unfinished=0)]}
    run = Hung(ended=[("g-1", 0.0, 2.0)], states=[(3.0, keeps), (37.5, keeps)], end=38.0)
    run.runs = [{"key": "g-1", "known": 2.0, **DONE}]
    run.write(tmp_path)
    facts = {"receiving": receiving, "received": 900_000_000}
    calls = Plan([])._client_calls(2.0, 38.0, "gather", facts)
    Plugin(tmp_path, "StepRecorder", host="node2").write((CLIENT_CALLS, [calls]))
    findings = TraceAnalyser(tmp_path, progress=False).findings()
    idle = [one.to_dict() for one in findings if one.rule == "unfinished-run"]
    assert len(idle) == reported
    assert all("client_calls()" in one["Suggestion"] for one in idle)


def test_a_worker_that_was_asked_to_leave_is_not_lost(tmp_path: Path) -> None:
    for reason, lost in (("retire-workers", False), ("handle-worker-cleanup", True)):
        run = Hung(states=[(1.0, {"unfinished": 1}), (20.0, {"unfinished": 0})])
        run.left = (10.0, reason)
        run.runs = [{"key": "f-1", "known": 10.0, "state": "released", "why": f"{reason}-1"}]
        directory = tmp_path / reason
        assert ("lost-workers" in told(run, directory)) == lost
        (category,) = TraceAnalyser(directory, progress=False).processed_tasks()["Error Category"]
        assert category == ("worker lost" if lost else "worker closed")


def given_up(result: float | None = None) -> Plan:
    """Plan g-1, abandoned at 12 when the second worker dies, perhaps with a late result."""
    where = {"key": "g-1", "timestamp": T + 1.0, "duration": 11.0, "worker": "tcp://10.0.0.1:4001"}
    dead = {"state": "erred", "end_cause": "handle-worker-cleanup-1", "run_id": 7}
    tasks = [Task("f-1", 0, 0.5, 2.0, arrival=0.5), Task("f-2", 1, 0.5, 1.0, arrival=0.5)]
    plan = Plan(tasks, threads=1, killed=[1])
    plan.left, plan.unseen = [(1, 12.0, "handle-worker-cleanup")], [where | dead]
    if result is not None:
        first = where | {"duration": result, "state": "memory", "run_id": 3}
        plan.unseen.insert(
            0, first | {"end_cause": "task-finished-1", "start": T + 1, "stop": T + 2}
        )
    return plan


def test_a_run_lasts_until_its_last_task_was_given_up(tmp_path: Path) -> None:
    analyser = given_up().write(tmp_path)
    run = RunFigures(analyser.run)
    assert abs(run.wall - 11.5) < 1e-6  # from 0.5 to 12, not to the last end on a worker
    # Both workers have a thread: one is known until 2, and the other existed until 12.
    assert abs(run.thread_seconds - 13.0) < 0.01
    assert not refute(tmp_path, analyser.findings())
    found = analyser.diagnose()
    assert found["Rule"].iloc[0] == "killed-worker-errors"
    assert not found["Finding"].str.contains("All tasks finished").any()


def test_a_result_of_before_is_no_proof_that_a_task_was_not_given_up(tmp_path: Path) -> None:
    lost = given_up(result=2.0).write(tmp_path / "before").findings()
    assert "killed-worker-errors" in {one.rule for one in lost}
    assert not refute(tmp_path / "before", lost)
    # A worker that joined later is counted.
    plan = given_up(result=13.0)
    plan.write_files(tmp_path / "after")
    assert any("had a result" in each for each in refute(tmp_path / "after", lost))


def test_ends_that_workers_alone_tell_of_are_ends(tmp_path: Path) -> None:
    """The scheduler's file ends with three tasks on a worker, whose file has their ends."""
    state = {"unfinished": 3, "tasks": {"f": {"processing": 3}}}
    ended = [(f"f-{n}", 1.0, 4.0 + n) for n in range(3)]
    whole = Hung(states=[(2.0, state)], ended=ended, closed=False)
    assert "unfinished-run" not in told(whole, tmp_path / "whole")
    one_less = Hung(states=[(2.0, state)], ended=ended[1:], closed=False)
    assert told(one_less, tmp_path / "less")["unfinished-run"]["tasks"] == 1


@pytest.mark.parametrize(
    ("kind", "certainty", "seconds", "keeps"),
    [
        ("lock-cycle", "certain", 1.0, True),
        ("no-worker", "certain", None, True),
        ("lock-wait", "possible", 60.0, False),
        # Tasks of another client that still has futures.
        ("error", "certain", 60.0, False),
        ("killed-worker-errors", "certain", None, False),
        # A busy host.
        ("loop-blocked", "certain", 2.0, False),
        ("loop-blocked", "certain", 60.0, True),
        ("worker-silent", "likely", 4.0, False),
    ],
)
def test_what_keeps_runs_from_their_end(
    kind: Any, certainty: Any, seconds: Any, keeps: bool
) -> None:
    cause = Cause(kind, certainty, "text", "evidence", "suggestion", seconds=seconds)
    assert _keeps_from_its_end(cause) == keeps
