"""Clients of task runs, and the part of one client in a trace, calculated by hand."""

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from traces import Plan, T, Task

from dasfprof import TraceAnalyser
from dasfprof.cli.main import cli
from dasfprof.errors import InvalidArgumentError

ANN, BOB = (f"Client-{name}-{'0' * 8}-0000-0000-0000-{'0' * 12}" for name in ("ann", "bob"))


def shared() -> Plan:
    """Ann's task runs for 4 s on worker 0, another one fails later, and Bob's kills its worker.

    Worker 0 exists from 0 to 10 s and worker 1 from 0 to 6 s, with one thread each: 16 s.
    """
    failed = {"state": "erred", "exception": "ValueError: x"}
    tasks = [
        Task("load-0", 0, 0.0, 4.0, graph="update-graph-0"),
        Task("load-1", 1, 0.0, 0.5, graph="update-graph-0"),
        Task("fit-0", 0, 5.0, 10.0, arrival=1.0, graph="update-graph-1"),
        Task("parse-0", 0, 4.0, 5.0, graph="update-graph-0", **failed),
    ]
    # It is assigned to worker 1 again after it was lost there. Its graph is not recorded.
    lost = {"key": "fit-0", "run_id": 98, "worker": "tcp://10.0.0.1:4001", "state": "released"}
    lost |= {"timestamp": T + 1.0, "duration": 5.0, "waiting": T + 1.0, "graph": "other-1"}
    lost |= {"cause": "update-graph-1", "end_cause": "handle-worker-cleanup-1"}
    used = [(0, 0.0, {}), (0, 10.0, {}), (1, 0.0, {}), (1, 6.0, {})]
    facts = {"held": [(who, at, {"state": "running"}) for who, at, _ in used], "used": used}
    facts |= {"unseen": [lost], "left": [(1, 6.0, "handle-worker-cleanup")], "killed": (1,)}
    return Plan(tasks, threads=1, graphs=(0.0, 1.0), clients=(ANN, BOB), **facts)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("shared")
    shared().write_files(directory)
    return directory


def of(directory: Path, client: str | None = None) -> TraceAnalyser:
    return TraceAnalyser(directory, client=client, progress=False)


def seconds(table: Any, label: str) -> float:
    return float(table.set_index(table.columns[0])["Thread Time (s)"].get(label, 0.0))


def test_task_runs_have_the_client_whose_graph_brought_their_key(directory: Path) -> None:
    trace = of(directory).trace
    clients = dict(zip(trace.tasks["function"], trace.tasks["client"], strict=True))
    assert clients == {"load": "ann", "fit": "bob", "parse": "ann"}
    # An attempt that was lost with its worker belongs to the client of the key's other attempts.
    assert trace.scheduler_only["client"].tolist() == ["bob"]
    # The hours of clients add up to those of workers.
    for client in (None, "ann", "bob"):
        hours = of(directory, client).cost("client")["Worker Hours"]
        assert hours.sum() * 3600 == pytest.approx(16)


def test_one_client_has_its_errors_and_deaths_alone(directory: Path) -> None:
    rules = {name: set(of(directory, name).diagnose()["Rule"]) for name in ("ann", "bob")}
    assert "failed-tasks" in rules["ann"] and "lost-workers" not in rules["ann"]
    assert "lost-workers" in rules["bob"] and "failed-tasks" not in rules["bob"]
    tasks = {name: of(directory, name).processed_tasks()["Task"].tolist() for name in rules}
    assert tasks == {"ann": ["load-0", "load-1", "parse-0"], "bob": ["fit-0", "fit-0"]}


def test_tasks_of_others_are_thread_time_without_names(directory: Path, tmp_path: Path) -> None:
    # Bob's tasks held the thread of worker 0 for 5 s, and perhaps that of worker 1 for 5 s.
    # Ann's tasks held them for 4 s, 1 s and 0.5 s.
    assert seconds(of(directory, "ann").time_accounting(), "Other clients") == pytest.approx(10)
    assert seconds(of(directory, "bob").time_accounting(), "Other clients") == pytest.approx(5.5)
    assert seconds(of(directory).time_accounting(), "Other clients") == 0
    page = of(directory, "bob").report(tmp_path / "bob.html").read_text(encoding="utf-8")
    assert not any(text in page for text in ("load-0", "parse-0", "ValueError: x"))


def test_an_unknown_client_is_an_error_that_names_the_known(directory: Path) -> None:
    with pytest.raises(InvalidArgumentError, match=r"client='eve'.*ann, bob"):
        of(directory, "eve")


@pytest.mark.parametrize("command", ["analyse", "report", "info", "export --to perfetto"])
def test_commands(command: str, directory: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(cli, [*command.split(), str(directory), "--client", "bob"])
    assert done.exit_code == 0, done.output
    assert "ValueError" not in done.output
    wrong = CliRunner().invoke(cli, [*command.split(), str(directory), "--client", "eve"])
    assert wrong.exit_code != 0 and "Its clients: ann, bob" in wrong.output


@pytest.mark.parametrize(("second", "is_found"), [(ANN, True), (BOB, False)])
def test_clients_that_compute_the_same(second: str, is_found: bool, tmp_path: Path) -> None:
    tasks = [
        Task("load-0", 0, 0.0, 4.0, graph="update-graph-0"),
        Task("load-0", 0, 60.0, 64.0, arrival=60.0, graph="update-graph-1"),
    ]
    run = Plan(tasks, graphs=(0.0, 60.0), clients=(ANN, second)).write(tmp_path)
    assert ("recomputation" in set(run.diagnose()["Rule"])) == is_found


def test_tasks_of_tasks_are_of_the_client_that_alone_has_tasks_then(tmp_path: Path) -> None:
    worker = f"Client-worker-{'0' * 8}-0000-0000-0000-{'0' * 12}"
    tasks = [
        Task("outer-0", 0, 0.0, 4.0, graph="update-graph-0"),
        Task("inner-0", 1, 1.0, 2.0, arrival=1.0, graph="update-graph-1"),
        Task("fit-0", 0, 6.0, 9.0, arrival=6.0, graph="update-graph-2"),
        Task("inner-1", 1, 7.0, 8.0, arrival=7.0, graph="update-graph-3"),
    ]
    run = Plan(tasks, graphs=(0.0, 1.0, 6.0, 7.0), clients=(ANN, worker, BOB, worker))
    trace = run.write(tmp_path).trace
    clients = dict(zip(trace.keys.texts(trace.tasks["key_id"]), trace.tasks["client"], strict=True))
    assert clients == {"outer-0": "ann", "inner-0": "ann", "fit-0": "bob", "inner-1": "bob"}
