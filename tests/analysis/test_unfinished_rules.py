"""A run that did not end is called so, with its cause; one that ended, or was healthy, is not."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from refuters import refute
from traces import Plan, T, Task
from traces.hung import ADDRESS, ENDED, FIRST, PERSON, SIGINT, Hung, client, ended_in, hung

from dasfprof import TraceAnalyser
from dasfprof.analysis.diagnosis.run_figures import RunFigures


def findings(run: Hung, directory: Path) -> list[dict[str, Any]]:
    found = run.write(directory).findings()
    against = refute(directory, found)
    assert not against, "\n".join(against)
    return [one.row() for one in found]


def test_a_task_that_hangs_is_the_first_finding(tmp_path: Path) -> None:
    first, *rest = findings(hung(closed=False), tmp_path)
    assert (first["Severity"], first["Rule"]) == ("high", "unfinished-run")
    assert "did not end: 1 task was unfinished" in first["Finding"]
    assert "f-1" in first["Finding"]
    assert "20 s" in first["Finding"]
    assert "/home/me/work.py:7 f" in first["Finding"]
    assert not [one for one in rest if one["Severity"] == "high"]


def test_its_thread_is_blocked_and_something_was_submitted(tmp_path: Path) -> None:
    table = hung(closed=False).write(tmp_path).time_accounting()
    seconds = dict(zip(table["Class"], table["Thread Time (s)"], strict=True))
    # Two threads for 20 s: one is blocked, the other has no task that could run.
    assert abs(seconds["Blocked"] - 20.0) < 0.01
    assert abs(seconds["No runnable task"] - 20.0) < 0.01
    assert seconds.get("Nothing submitted", 0.0) < 0.01
    assert table["Share (%)"].max() <= 100


def test_tasks_of_a_killed_scheduler_that_had_not_been_sent_were_submitted(tmp_path: Path) -> None:
    state = {"unfinished": 3, "tasks": {"f": {"no-worker": 3}}}
    run = Hung(states=[(2.0, state), (19.0, state)], closed=False)
    table = run.write(tmp_path).time_accounting()
    seconds = dict(zip(table["Class"], table["Thread Time (s)"], strict=True))
    assert abs(seconds["No runnable task"] - 40.0) < 0.01  # the graph came at 0
    assert "Nothing submitted" not in seconds


def test_what_a_client_took_away_as_it_left_was_under_way(tmp_path: Path) -> None:
    run = hung(left=(20.0, "handle-worker-cleanup"))
    taken = {"unfinished": 1, "occasion": "client-left", "client": PERSON}
    run.states = [*run.states[:1], (19.0, {**run.states[0][1], **taken})]
    run.states += [(19.5, {"unfinished": 0, "clients": []})]
    run.runs = [{"key": "f-1", "known": 19.0, "state": "released", "why": "remove-client-1"}]
    found = findings(run, tmp_path)
    assert found[0]["Rule"] == "unfinished-run"
    assert "when its client left" in found[0]["Finding"]
    assert "lost-workers" not in {one["Rule"] for one in found}
    table = TraceAnalyser(tmp_path, progress=False).processed_tasks()
    assert table["Status"].tolist() == ["released by the client"]
    assert table["Error Category"].tolist() == ["cancelled"]


@pytest.mark.parametrize(
    ("state", "how"), [("cancelled", "released by the client"), ("executing", "lost")]
)
def test_what_a_client_had_given_up_is_not_lost_with_its_worker(
    tmp_path: Path, state: str, how: str
) -> None:
    run = Hung(open={"f-1": {"state": state, "at": 9.0}}, ended=[("g-1", 11.0, 19.0)])
    run.left, run.exit_code = (10.0, "handle-worker-cleanup"), -signal.SIGKILL
    table = run.write(tmp_path).processed_tasks()
    assert dict(zip(table["Task"], table["Status"], strict=True))["f-1"] == how


def test_a_client_that_dropped_its_futures_at_the_end_did_not_leave(tmp_path: Path) -> None:
    run = hung()
    run.states = [*run.states[:1], (19.5, {"unfinished": 0, "clients": []})]
    dropped = {"known": 19.0, "state": "released", "why": "client-releases-keys-1"}
    run.runs = [{"key": "f-1", **dropped}]
    found = findings(run, tmp_path)
    assert found[0]["Rule"] == "unfinished-run"
    assert "1 task was unfinished when its client gave it up" in found[0]["Finding"]


@pytest.mark.parametrize("closed", [True, False])
def test_errors_after_another_client_left_and_futures_were_dropped(
    tmp_path: Path, closed: bool
) -> None:
    """The client that dropped them stays: an error a moment later is one that it may see."""
    run = hung(closed=closed)
    here, other = client(keys=("f-1",)), client("Client-2", 0)
    gone = {"occasion": "client-left", "client": "Client-2", "clients": [here, other]}
    run.states = [*run.states[:1], (18.8, {"unfinished": 1, **gone})]
    run.states += [(19.6, {"unfinished": 0, "clients": [client(unfinished=0)]})]
    run.open, run.ended, run.raised = {}, [("g-1", 1.0, 19.3)], {"g-1": "OSError('flaky')"}
    dropped = {"known": 19.0, "state": "released", "why": "client-releases-keys-1"}
    erred = {"known": 19.31, "state": "erred", "why": "task-erred-1", **FIRST}
    run.runs = [{"key": "f-1", **dropped}, {"key": "g-1", **erred}]
    errors = [one for one in findings(run, tmp_path) if one["Rule"] == "errors"]

    assert ["1 task ended in an error: OSError in g." in one["Finding"] for one in errors] == [True]


def test_what_sigint_ended_as_the_program_ended_was_under_way(tmp_path: Path) -> None:
    found = findings(ended_in(SIGINT, 19.0, 19.001, client_left=19.002), tmp_path)
    first = found[0]
    assert (first["Severity"], first["Rule"]) == ("high", "unfinished-run")
    assert "1 task was unfinished when SIGINT came" in first["Finding"]
    assert "f-1 sleeps in /home/me/work.py:7 f" in first["Finding"]
    assert f"Only then f-1 ended in an error, {SIGINT}" in first["Evidence"]
    assert "errors" not in {one["Rule"] for one in found}


def test_an_error_because_of_which_the_client_left_is_one(tmp_path: Path) -> None:
    found = findings(ended_in("ValueError('no 3')", 19.0, 19.001, client_left=19.002), tmp_path)
    assert found[0]["Rule"] == "errors"
    assert "unfinished-run" not in {one["Rule"] for one in found}


def test_a_child_that_sigint_ended_while_the_run_went_on_is_an_error(tmp_path: Path) -> None:
    found = findings(ended_in(SIGINT, 15.5, 15.501, client_left=19.0), tmp_path)
    assert found[0]["Rule"] == "errors"
    assert "unfinished-run" not in {one["Rule"] for one in found}


def test_an_error_that_came_when_the_client_had_left_is_not_why(tmp_path: Path) -> None:
    found = findings(ended_in("OSError('closed')", 19.002, 19.003, client_left=19.0), tmp_path)
    assert found[0]["Rule"] == "unfinished-run"
    assert "1 task was unfinished when its client left" in found[0]["Finding"]
    assert "Only then f-1 ended in an error, OSError('closed')" in found[0]["Evidence"]
    assert "errors" not in {one["Rule"] for one in found}


def test_workers_that_close_before_their_client_has_left(tmp_path: Path) -> None:
    """As on Ctrl-C in a terminal: what it waited for is what it waited for until then."""
    worker = {"worker": ADDRESS, "name": 0, "threads": 2, "processing": 0, "keys": []}
    worker |= {"memory": 900, "memory_limit": 1000, "last_seen": T + 19}
    counts = {"unfinished": 1, "tasks": {"f": {"no-worker": 1}}}
    paused, closing = (
        counts | {"workers": [worker | {"status": status}]} for status in ("paused", "closing")
    )
    taken = closing | {"occasion": "client-left", "client": PERSON}
    states = [(1.0, paused), (18.9, closing), (19.0, taken)]
    findings = Hung(states=states, left=(19.1, "handle-worker-cleanup")).write(tmp_path).diagnose()

    assert "paused for memory" in findings.iloc[0]["Finding"], findings.to_string()


def test_a_program_that_left_unfinished_tasks_on_purpose_is_no_grave_matter(tmp_path: Path) -> None:
    run = hung(waits_in=None)
    run.open["f-1"] = {"since": 18.0}
    taken = {"unfinished": 1, "occasion": "client-left", "client": PERSON}
    run.states = [(19.9, {**run.states[0][1], **taken}), (20.0, {"unfinished": 0, "clients": []})]
    first, *_ = findings(run, tmp_path)
    assert (first["Rule"], first["Severity"]) == ("unfinished-run", "medium")


def test_fire_and_forget_that_the_end_cut_off(tmp_path: Path) -> None:
    run = hung(left=(20.0, "nanny-close"))
    run.open["f-1"] = {"since": 18.0}
    clients = [client(unfinished=0), client("fire-and-forget", 1)]
    state = {"unfinished": 1, "tasks": {"f": {"processing": 1}}, "clients": clients}
    run.states = [(19.0, state), (19.9, {**state, "occasion": "closing"})]
    run.runs = [{"key": "f-1", "known": 20.0, "state": "released", "why": "nanny-close-1"}]
    found = findings(run, tmp_path)
    (own,) = [one for one in found if one["Rule"] == "unfinished-run"]
    assert own["Severity"] == "low"
    assert "fire_and_forget" in own["Finding"]
    assert "lost-workers" not in {one["Rule"] for one in found}
    assert not any("kill" in one["Finding"] + one["Suggestion"] for one in found)


def test_futures_that_were_cancelled_while_the_run_went_on(tmp_path: Path) -> None:
    run = Hung(ended=[("g-1", 3.0, 20.0)], states=[(1.0, {"unfinished": 1})])
    run.states += [(20.0, {"unfinished": 0})]
    run.runs = [
        {"key": "f-1", "known": 2.0, "state": "released", "why": "cancel-key-1"},
        {"key": "g-1", "sent": 3.0, "known": 20.0, "state": "memory", "why": ENDED, "run_id": 0},
    ]
    found = findings(run, tmp_path)
    (own,) = [one for one in found if one["Rule"] == "given-up-tasks"]
    assert own["Severity"] == "low"
    assert "1 task" in own["Finding"]
    assert {"unfinished-run", "lost-workers"}.isdisjoint(one["Rule"] for one in found)


def test_a_run_that_ended_has_no_such_finding(tmp_path: Path) -> None:
    run = Hung(
        open={"g-1": {"at": 10.0, "run_id": 0}},
        ended=[("g-1", 0.0, 20.0)],
        states=[(1.0, {"unfinished": 1}), (20.0, {"unfinished": 0, "clients": []})],
        runs=[
            {"key": "g-1", "sent": 0.0, "known": 20.0, "state": "memory", "why": ENDED, "run_id": 0}
        ],
    )
    rules = {one["Rule"] for one in findings(run, tmp_path)}
    assert {"unfinished-run", "given-up-tasks", "killed-workers"}.isdisjoint(rules)


def test_workers_that_leave_together_after_all_has_ended(tmp_path: Path) -> None:
    """The last state is older than the last task's end; and one that says that all ended."""
    for number, states in enumerate(
        ([(1.0, {"unfinished": 1})], [(1.0, {"unfinished": 1}), (19.9, {"unfinished": 0})])
    ):
        ended = {"key": "g-1", "known": 19.5, "state": "memory", "why": ENDED, **FIRST}
        run = Hung(ended=[("g-1", 0.0, 19.5)], states=states, runs=[ended])
        run.left = (20.0, "handle-worker-cleanup")
        rules = {one["Rule"] for one in findings(run, tmp_path / str(number))}
        assert {"unfinished-run", "lost-workers"}.isdisjoint(rules)


def test_one_worker_that_leaves_at_the_end_died_or_was_shut_down(tmp_path: Path) -> None:
    """Only the exit code of its process tells which."""
    for code, words in (
        (None, "nothing tells whether it died or was shut down"),
        (-signal.SIGTERM, "nothing tells whether it died or was shut down"),
        (-signal.SIGKILL, "when recording ended"),
    ):
        run = hung(left=(18.5, "handle-worker-cleanup"), exit_code=code)
        run.runs = [{"key": "f-1", "known": 18.5, "state": "released", "why": f"{run.left[1]}-1"}]
        found = findings(run, tmp_path / str(code))
        assert words in found[0]["Finding"]
        assert not any("left together" in one["Finding"] for one in found)
        lost = [one for one in found if "was lost with 1 task" in one["Finding"]]
        assert bool(lost) == (code == -signal.SIGKILL)
        if lost:
            assert "killed by SIGKILL" in lost[0]["Evidence"] + lost[0]["Finding"]


@pytest.mark.parametrize("given_up", [True, False])
def test_a_worker_with_which_a_task_is_given_up_at_the_end_died(
    tmp_path: Path, given_up: bool
) -> None:
    """The scheduler gives a task up when it has lost as many workers as are allowed."""
    run = hung(left=(18.5, "handle-worker-cleanup"))
    state = "erred" if given_up else "released"
    run.runs = [{"key": "f-1", "known": 18.5, "state": state, "why": f"{run.left[1]}-1"}]
    found = findings(run, tmp_path)

    assert ("lost-workers" in {one["Rule"] for one in found}) is given_up
    shut_down = "nothing tells whether it died or was shut down"
    assert any(shut_down in one["Finding"] for one in found) is not given_up


def test_a_client_that_leaves_with_a_result_did_not_wait_in_vain(tmp_path: Path) -> None:
    """As `next(as_completed(...))` does: it waited for what came, and left what did not."""
    for ended, severity in ((19.0, "medium"), (5.0, "high")):
        run = hung(waits_in="as_completed")
        run.open = {"f-1": {"at": 18.0}}
        run.ended = [("g-1", 0.0, ended)]
        taken = {"unfinished": 1, "occasion": "client-left", "client": PERSON}
        run.states = [(19.9, {**run.states[0][1], **taken})]
        run.states += [(20.0, {"unfinished": 0, "clients": []})]
        first, *_ = findings(run, tmp_path / severity)
        assert (first["Rule"], first["Severity"]) == ("unfinished-run", severity)


def test_tasks_that_no_worker_had_are_listed(tmp_path: Path) -> None:
    held = [
        {
            "key": "g-1",
            "function": "g",
            "since": T + 1,
            "restrictions": {"resources": {"GPU": 1}},
            "unmet": "no worker has GPU=1",
        }
    ]
    run = hung(closed=False)
    state = {**run.states[0][1], "unfinished": 3, "held_back": held}
    state["clients"] = [client(unfinished=3, keys=("f-1", "g-1", "h-1"))]
    run.states = [(1.0, state), (19.0, state)]
    analyser = run.write(tmp_path)
    table = analyser.processed_tasks().set_index("Task")
    assert table["Status"].to_dict() == {"f-1": "running", "g-1": "no-worker", "h-1": "waiting"}
    assert abs(table["Run Method Seconds"]["f-1"] - 20.0) < 0.01
    counts = analyser.processed_tasks("function").set_index("Function")
    assert counts.loc["f", ["Total", "Succeeded", "Failed", "Unfinished"]].tolist() == [1, 0, 0, 1]
    first = analyser.diagnose().iloc[0]
    assert "cannot run" in first["Finding"]
    assert "no worker has GPU=1" in first["Finding"]


def test_status_tables_and_task_table_have_the_rows(tmp_path: Path) -> None:
    analyser = hung(closed=False).write(tmp_path)
    (task,) = analyser.per_task_status().to_dict("records")
    assert (task["Task Key"], task["State"]) == ("f-1", "running")
    assert abs(task["Running (s)"] - 20.0) < 0.01
    (task,) = analyser.per_task_bottleneck().to_dict("records")
    assert (task["Task Key"], task["State"]) == ("f-1", "running")
    assert abs(task["Duration (s)"] - 20.0) < 0.01
    (function,) = analyser.per_function_status().to_dict("records")
    assert function["Task Runs"] == 1


def test_status_tables_tell_what_the_findings_tell(tmp_path: Path) -> None:
    """A function that waits for ever need not be sped up, and one without any run is listed."""
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
    cause = "waits for the Event 'never'"
    assert cause in analyser.diagnose().iloc[0]["Finding"]
    assert cause in steps["f"] and "profile" not in steps["f"]
    assert steps["g"].startswith("None of its tasks is known to have been given a thread.")
    assert cause in steps["g"]
    assert "profile and speed it up" in steps["h"]
    assert cause in analyser.per_step_status()["Next steps"][0]


@pytest.mark.parametrize(("end", "severity"), [(11.0, "low"), (38.0, "medium")])
def test_a_program_may_do_something_else_for_a_moment(
    tmp_path: Path, end: float, severity: str
) -> None:
    """All tasks ended at 2 s, for which it keeps the result."""
    keeps = {"unfinished": 0, "clients": [client(unfinished=0)]}
    states = [(1.0, {"unfinished": 1}), (3.0, keeps), (end - 0.5, keeps)]
    ended = {"key": "g-1", "known": 2.0, "state": "memory", "why": ENDED, **FIRST}
    run = Hung(ended=[("g-1", 0.0, 2.0)], states=states, runs=[ended], end=end, waits_in=None)
    (told,) = [one for one in findings(run, tmp_path) if one["Rule"] == "unfinished-run"]

    assert "as all tasks have ended: the client does something else" in told["Finding"]
    assert told["Severity"] == severity


def test_a_worker_that_was_asked_to_leave_is_not_lost(tmp_path: Path) -> None:
    for reason, lost in (("retire-workers", False), ("handle-worker-cleanup", True)):
        run = Hung(states=[(1.0, {"unfinished": 1}), (20.0, {"unfinished": 0})])
        run.left = (10.0, reason)
        run.runs = [{"key": "f-1", "known": 10.0, "state": "released", "why": f"{reason}-1"}]
        directory = tmp_path / reason
        rules = {one["Rule"] for one in findings(run, directory)}
        assert ("lost-workers" in rules) == lost
        (category,) = TraceAnalyser(directory, progress=False).processed_tasks()["Error Category"]
        assert category == ("worker lost" if lost else "worker closed")


def given_up(result: float | None = None) -> Plan:
    """Plan that g-1 is given up at 12, as the second worker dies; a result of it may come then."""
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
    # Both workers have a thread: one is seen until 2, the other was there until 12.
    assert abs(run.thread_seconds - 13.0) < 0.01
    assert not refute(tmp_path, analyser.findings())
    found = analyser.diagnose()
    assert found["Rule"].iloc[0] == "killed-workers"
    assert not found["Finding"].str.contains("all tasks have ended").any()


def test_a_result_of_before_is_no_proof_that_a_task_was_not_given_up(tmp_path: Path) -> None:
    lost = given_up(result=2.0).write(tmp_path / "before").findings()
    assert "killed-workers" in {one.rule for one in lost}
    assert not refute(tmp_path / "before", lost)
    # One that came later is.
    plan = given_up(result=13.0)
    plan.write_files(tmp_path / "after")
    assert any("had a result" in each for each in refute(tmp_path / "after", lost))


def test_ends_that_workers_alone_tell_of_are_ends(tmp_path: Path) -> None:
    """The scheduler's file was cut when three tasks were on a worker; its own tells their ends."""
    state = {"unfinished": 3, "tasks": {"f": {"processing": 3}}}
    ended = [(f"f-{n}", 1.0, 4.0 + n) for n in range(3)]
    whole = Hung(states=[(2.0, state)], ended=ended, closed=False)
    assert "unfinished-run" not in {one["Rule"] for one in findings(whole, tmp_path / "whole")}

    one_less = Hung(states=[(2.0, state)], ended=ended[1:], closed=False)
    (told,) = (
        one for one in findings(one_less, tmp_path / "less") if one["Rule"] == "unfinished-run"
    )
    assert "1 task was unfinished" in told["Finding"]
