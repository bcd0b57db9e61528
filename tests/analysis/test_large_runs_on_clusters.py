"""A cluster that analyses a run, where its files are, gives the tables of one process."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from click.testing import CliRunner
from distributed import Client, LocalCluster
from large_requests import requests
from traces import Plan, Task

from dasfprof import TraceAnalyser
from dasfprof.analysis.large import holders as large_holders
from dasfprof.analysis.large.cluster import ClusterRun
from dasfprof.analysis.trace import progress
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
        pd.testing.assert_frame_equal(
            request.of(whole), request.of(analyser), check_exact=True, obj=request.file_stem
        )


def test_both_workers_read_and_keep_nothing(client: Client, traces: Path) -> None:
    analyser = TraceAnalyser(traces, client=client)
    analyser.per_function_bottleneck()
    large: Any = analyser._large
    assert {address for address, _ in large._places} == set(client.nthreads())

    def kept(dask_worker: Any) -> int:
        return len(list(Path(dask_worker.local_directory).glob("dasfprof-*")))

    assert sum(client.run(kept).values()) == len(large.sources)
    del analyser, large
    deadline = time.monotonic() + 60
    while sum(client.run(kept).values()):
        assert time.monotonic() < deadline


def known_tasks(client: Client, name: str) -> set[str]:
    """Return the keys of a kind that the scheduler knows now."""
    tasks = client.run_on_scheduler(lambda dask_scheduler: list(map(str, dask_scheduler.tasks)))
    return {key for key in tasks if key.startswith(f"{name}-")}


def on_disks_of_their_own(client: Client, traces: Path, *, parts: int = 2) -> TraceAnalyser:
    """Have each worker see what it has spilled itself, and nothing else."""
    analyser = TraceAnalyser(traces, client=client)
    run: Any = analyser._large
    run.parts = parts
    own: dict[str, set[int]] = {address: set() for address in client.nthreads()}
    for place, (address, _) in enumerate(run._places):
        own[address].add(place)
    assert all(own.values())
    vars(run)["_homes"] = [(frozenset(seen), [address]) for address, seen in own.items()]
    return analyser


def test_what_a_worker_does_not_see_moves_there(client: Client, traces: Path) -> None:
    apart = on_disks_of_their_own(client, traces)
    shared = TraceAnalyser(traces, client=client)
    pd.testing.assert_frame_equal(
        apart.per_function_bottleneck(), shared.per_function_bottleneck(), check_exact=True
    )
    run: Any = shared._large
    everything = frozenset(range(len(run.sources)))
    assert [home for home, _ in run._homes] == [everything] * 2
    for analyser, moves in ((apart, True), (shared, False)):
        assert analyser._large is not None
        parts = analyser._large._of_parts(None, None, "test")
        next(parts)
        assert bool(known_tasks(client, "moved")) == moves
        del parts
        deadline = time.monotonic() + 60
        while known_tasks(client, "moved") or known_tasks(client, "tell"):
            assert time.monotonic() < deadline


def test_few_parts_are_in_memory_at_a_time(client: Client, traces: Path) -> None:
    run: Any = on_disks_of_their_own(client, traces, parts=40)._large
    told = 0
    for _ in run._of_parts(None, None, "test"):
        told += 1
        assert len(known_tasks(client, "tell")) <= 2 * 2 + 1
    assert told == 40


def test_progress_is_shown(
    client: Client,
    traces: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(progress, "_DELAY", 0)
    TraceAnalyser(traces, client=client, progress=True).per_function_bottleneck()
    shown = capsys.readouterr().err
    for words, total in (("Reading", 5), ("Analysing", 2)):
        assert f"{words} traces:   0%|          | 0/{total} [" in shown


def test_a_file_that_one_worker_alone_has_is_read_there(client: Client, traces: Path) -> None:
    """Of the same path and another content, a file is another file."""
    path = str(next(traces.glob("*TracePlugin*")))
    first, second = client.nthreads()
    wanted = large_holders.files_of(traces)
    (fact,) = [file for file in wanted if file[0] == path]
    shorter = path, fact[1], fact[2] - 1
    assert large_holders._among([fact, shorter]) == [fact]
    holders = [[second] if file == fact else [first] for file in wanted]
    run = ClusterRun(client, wanted, holders, progress=False)
    assert [address for address, _ in run._places] == [holder for (holder,) in holders]


def test_files_that_workers_alone_have(client: Client, traces: Path) -> None:
    here = large_holders.files_of(traces)
    there = client.run(large_holders._files_there, str(traces))
    assert there == dict.fromkeys(client.nthreads(), here)
    assert (
        large_holders._longest([*here, *((path, who, size - 1) for path, who, size in here)])
        == here
    )


def test_a_file_that_no_worker_has_is_named(client: Client, traces: Path) -> None:
    wanted = large_holders.files_of(traces)
    none: list[list[str]] = [[] for _ in wanted]
    with pytest.raises(SourceNotFoundError, match=wanted[0][0]):
        large_holders.check_holders(client, wanted, none)


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


def test_the_command_without_a_scheduler(traces: Path) -> None:
    command = ["analyse", "-a", "function", str(traces), "--scheduler", "tcp://127.0.0.1:9"]
    done = CliRunner().invoke(cli, command)
    assert done.exit_code == 1
    assert "no Dask scheduler answers at 'tcp://127.0.0.1:9'" in done.output
