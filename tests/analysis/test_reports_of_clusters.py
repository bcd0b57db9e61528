"""The reports of real runs: outcomes, moves and plants against what the cluster itself says."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import dask
import pytest
from distributed import Client, LocalCluster, wait
from refuters import refute

import dasfprof
from dasfprof import TraceAnalyser

pytestmark = [pytest.mark.dask_internals, pytest.mark.whole_program]


def fail_at_three(number: int) -> int:
    if number % 4 == 3:
        raise ValueError(f"no {number}")
    return number


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def nap(seconds: float, *others: object) -> bytes:
    time.sleep(seconds)
    return b"x" * 1_000_000


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        yield client


@pytest.fixture
def addresses(client: Client) -> list[str]:
    client.wait_for_workers(2)
    return list(client.nthreads())


def test_outcomes_of_failures_and_retries(client: Client, tmp_path: Path) -> None:
    client.wait_for_workers(2)
    with dasfprof.profile(client, directory=tmp_path) as run:
        wait(client.map(fail_at_three, range(12), retries=1, key="fail"))
    table = TraceAnalyser(run.files()).processed_tasks()

    assert Counter(table["Error Category"].fillna("-")) == {"-": 9, "ValueError": 6}
    assert table["Attempt"].tolist().count(2) == 3
    messages = set(table["Error Message"].dropna())
    assert messages == {f"ValueError('no {number}')" for number in (3, 7, 11)}
    assert TraceAnalyser(run.files()).node_summary()["Failed"].tolist() == [6]


def test_outcome_of_a_task_that_kills_its_worker(client: Client, tmp_path: Path) -> None:
    client.wait_for_workers(2)
    with dasfprof.profile(client, directory=tmp_path) as run:
        killed = client.submit(die, key="die-1")
        wait(killed)
        assert killed.status == "error"
    analyser = TraceAnalyser(run.files())
    (death,) = analyser.processed_tasks().to_dict("records")

    assert death["Task"] == "die-1"
    assert death["Error Category"] == "worker lost"
    assert death["Status"] == "erred"
    workers = analyser.trace.workers
    assert workers["exit_code"].dropna().tolist() == [-signal.SIGKILL]
    table = analyser.diagnose()
    (finding,) = table[table["Rule"] == "killed-workers"].to_dict("records")
    assert "killed by SIGKILL" in finding["Evidence"]


def hog() -> None:
    held = bytearray(700_000_000)
    for place in range(0, len(held), 4096):
        held[place] = 1
    time.sleep(300)


def test_what_ran_beside_a_hog_is_not_blamed(tmp_path: Path) -> None:
    """The nanny kills the worker at 95 % of its limit, with whatever it has by then."""
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        LocalCluster(
            n_workers=1, threads_per_worker=2, memory_limit="500MB", dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
        dasfprof.profile(client, directory=tmp_path) as run,
    ):
        wait(client.map(nap, [0.01] * 20, pure=False))
        killed = client.submit(hog)
        beside = client.submit(nap, 300)
        wait([killed, beside])
        assert {killed.status, beside.status} == {"error"}
    findings = run.analyser(progress=False).diagnose()
    assert not refute(run.files(), run.analyser(progress=False).findings())

    (finding,) = findings[findings["Rule"] == "killed-workers"].to_dict("records")
    assert finding["Finding"].startswith("2 tasks were given up")
    assert "killed as memory ran out" in finding["Finding"]
    assert (finding["Function"], finding["Severity"]) == ("hog", "high")
    assert "fewer tasks such as hog" in finding["Suggestion"]
    for suggestion in findings["Suggestion"]:
        assert "such as nap" not in suggestion
        assert "threads_per_worker=" not in suggestion


def test_what_was_moved(client: Client, addresses: list[str], tmp_path: Path) -> None:
    first, second = addresses
    with dasfprof.profile(client, directory=tmp_path) as run:
        sources = [
            client.submit(nap, 0.01, key=f"load-{number}", workers=[first]) for number in range(3)
        ]
        wait(sources)
        used = client.submit(nap, 0.01, *sources, key="use-1", workers=[second])
        wait(used)
        sizes = client.nbytes(summary=False)
        size = sum(sizes[source.key] for source in sources)
    analyser = TraceAnalyser(run.files())

    (pair,) = analyser.transfers().to_dict("records")
    names = client.sync(client.scheduler.identity)["workers"]
    assert pair["From Worker"].endswith(f"-{names[first]['name']}")
    assert pair["To Worker"].endswith(f"-{names[second]['name']}")
    assert (pair["Keys"], pair["Size (MB)"]) == (3, size / 1e6)
    (moved,) = analyser.transfers("function").to_dict("records")
    assert (moved["Function"], moved["Keys Moved"], moved["Moved Again (MB)"]) == ("load", 3, 0.0)


def test_planted_straggler_and_degradation(
    client: Client, addresses: list[str], tmp_path: Path
) -> None:
    first, _ = addresses
    with dasfprof.profile(client, directory=tmp_path) as run:
        # One thread works them off in this order; only sleeping takes long on a busy machine too.
        even = [
            client.submit(
                nap,
                2.5 if number == 12 else 0.1,
                key=f"even-{number}",
                workers=[first],
                priority=-number,
            )
            for number in range(24)
        ]
        slower = [
            client.submit(
                nap,
                0.02 + number * 0.02,
                key=f"slower-{number}",
                workers=[first],
                priority=-100 - number,
            )
            for number in range(24)
        ]
        wait(even + slower)
    analyser = TraceAnalyser(run.files())

    worst = analyser.stragglers().to_dict("records")[0]
    assert worst["Task Key"] == "even-12"
    assert worst["Cause"] == "blocked"
    assert worst["Elapsed (s)"] >= 2.5
    degradation = analyser.degradation().set_index("Function")
    assert degradation.loc["slower", "Run Method Seconds Rising"]
    # Sleeping takes no CPU time. Whether fewer start is up to the other work of the machine.
    assert not degradation.loc["slower", "Process Seconds Rising"]
    assert not degradation.loc["even", "Run Method Seconds Rising"]
    imbalance = analyser.imbalance().set_index("Function")
    assert imbalance.loc["even", "Workers with Tasks"] == 1
    assert imbalance.loc["even", "Imbalance (%)"] == pytest.approx(50.0)


def test_resources_of_the_host(client: Client, tmp_path: Path) -> None:
    client.wait_for_workers(2)
    with dasfprof.profile(client, directory=tmp_path) as run:
        client.submit(nap, 0.7, key="nap-1").result()
    analyser = TraceAnalyser(run.files())

    nodes = analyser.node_resource_usage()
    assert nodes["Node"].nunique() == 1
    assert nodes["Memory Used Percent"].between(0, 100).all()
    assert analyser.processes_resource_usage()["Process"].nunique() == 2
    disks = analyser.node_disk_usage()
    assert disks["Local Directory"].any()
    assert disks.loc[disks["Local Directory"], "Disk Used Percent"].between(0, 100).all()
