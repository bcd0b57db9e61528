"""A cluster that analyses a run, where its files are, gives the tables of one process."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from distributed import Client, LocalCluster
from large_requests import assert_same, requests
from traces import Plan, Task

from dasfprof import TraceAnalyser
from dasfprof.analysis.large import run as large_cluster
from dasfprof.analysis.large.run import FileFacts
from dasfprof.cli.main import cli
from dasfprof.errors import InvalidArgumentError, SourceNotFoundError


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """Two worker processes."""
    directory = tmp_path_factory.mktemp("workers")
    with (
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            memory_limit="1GB",
            dashboard_address=None,
            local_directory=str(directory),
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two hosts."""
    directory = tmp_path_factory.mktemp("traces")
    generator = random.Random(5)
    tasks = []
    for number in range(600):
        start = generator.uniform(1, 9)
        stop = start + generator.expovariate(60)
        key = f"g{number % 5}-{number:032x}"
        tasks.append(Task(key, number % 2, start, stop, thread=number % 4))
    moves = [
        (number % 2, 2.0, 2.5 + number / 9, 999 * number, [tasks[number].key]) for number in (3, 8)
    ]
    Plan(tasks, 2, 4, hosts=["a", "b"], transfers=moves).write_files(directory)
    return directory


def test_all_tables(client: Client, traces: Path) -> None:
    analyser, whole = TraceAnalyser(traces, client=client), TraceAnalyser(traces)
    asked = list(requests())
    analyser.prepare(asked)
    for request in asked:
        assert analyser.answers(request), request
        assert_same(request.table(whole), request.table(analyser), request.file_stem)


def known_tasks(client: Client, name: str) -> set[str]:
    """Return the keys of a kind that the scheduler knows now."""
    tasks = client.run_on_scheduler(lambda dask_scheduler: list(map(str, dask_scheduler.tasks)))
    return {key for key in tasks if key.startswith(f"{name}-")}


def test_few_windows_are_in_memory_at_a_time(client: Client, traces: Path) -> None:
    run: Any = TraceAnalyser(traces, client=client)._large
    run._least = 40
    told = 0
    for _ in run._of_windows(None, run._unread, "test"):
        told += 1
        assert len(known_tasks(client, "process_window")) <= 2 * 2 + 1
    assert told == len(run.windows) > 10


def told_by_workers(
    client: Client, monkeypatch: pytest.MonkeyPatch, seen: Callable[[str], list[FileFacts]]
) -> None:
    """Have workers say that they see other files than they do."""
    monkeypatch.setattr(client, "run", lambda *_: {who: seen(who) for who in client.nthreads()})


def test_only_workers_that_see_all_files_are_asked(
    client: Client, traces: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted, first = large_cluster.files_of(str(traces)), next(iter(client.nthreads()))
    assert client.run(large_cluster._files_there, str(traces)) == dict.fromkeys(
        client.nthreads(), wanted
    )
    told_by_workers(client, monkeypatch, lambda who: wanted if who == first else wanted[1:])
    assert large_cluster.seen_by_workers(client, str(traces)) == (wanted, [first])


def test_files_that_workers_alone_see(
    client: Client, traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = large_cluster.files_of(str(traces))
    told_by_workers(client, monkeypatch, lambda _: wanted)
    found, workers = large_cluster.seen_by_workers(client, str(tmp_path / "nothing"))
    assert (found, workers) == (wanted, list(client.nthreads()))


def test_files_on_workers_own_disks_are_refused_with_what_to_do(
    client: Client, traces: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted, first = large_cluster.files_of(str(traces)), next(iter(client.nthreads()))
    told_by_workers(client, monkeypatch, lambda who: wanted[:2] if who == first else wanted[2:])
    with pytest.raises(SourceNotFoundError, match=r"can see all 5 files of .*; the maximum is 3"):
        TraceAnalyser(traces, client=client)


def test_no_such_run(client: Client, tmp_path: Path) -> None:
    with pytest.raises(SourceNotFoundError):
        TraceAnalyser(tmp_path / "nothing", client=client)


def test_databases_in_memory_are_refused(client: Client) -> None:
    with pytest.raises(InvalidArgumentError, match="client="):
        TraceAnalyser([], client=client)


def test_the_command(client: Client, traces: Path) -> None:
    command = ["analyse", "-a", "function", str(traces), "--scheduler"]
    done = CliRunner().invoke(cli, [*command, client.scheduler.address])
    assert done.exit_code == 0
    assert "Functions that took the most time" in done.output
