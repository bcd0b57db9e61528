"""Evidence for the reason of a worker's exit: nanny, scheduler, its errors, and its memory."""

import asyncio
import ctypes
import importlib
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import dask
import pandas as pd
import psutil
import pytest
from clusters import new_client, wait_until
from distributed import Client, Lock, wait
from distributed.scheduler import KilledWorker
from recorded_facts import facts
from unrefuted import unrefuted

import dasfprof
from dasfprof import TraceAnalyser
from dasfprof.analysis.run.worker_exits import Departure, Why
from dasfprof.analysis.under_way.processes import advice
from dasfprof.recording.cluster.worker_exits import exit_in

#: Log records as `Server.get_logs` returns them, newest first.
LOGS = [
    "10:11:50,799 - distributed.nanny - INFO - Worker process 30 was killed by signal 15",
    "2026-11-22 10:11:50,772 - distributed.nanny - INFO - Worker process 20 exited with status 3",
    "2026-11-22 10:11:39,205 - distributed.nanny.memory - WARNING - Worker tcp://127.0.0.1:4000 "
    "(pid=30) exceeded 95% memory budget. Restarting...",
    "2026-11-22 10:11:39,203 - distributed.nanny - INFO - Worker process 3 was killed by signal 11",
]


def test_signals_and_statuses() -> None:
    assert exit_in(LOGS, 3) == (-11, None)
    assert exit_in(LOGS, 20) == (3, None)
    assert exit_in(LOGS, 30) == (-15, "exceeded 95% memory budget. Restarting...")
    assert exit_in(LOGS, 4) == (None, None)
    assert exit_in([], 3) == (None, None)


@pytest.mark.parametrize(("memory", "far"), [(0.7e9, False), (0.2e9, True), (float("nan"), False)])
def test_only_what_was_far_from_its_limit_is_called_so(memory: float, far: bool) -> None:
    unknown = Departure(Why.UNKNOWN, "killed by SIGKILL", "", memory, 1e9, False, "")
    assert ("far from its limit" in advice(unknown, "load")) is far


@contextmanager
def recorded(directory: Path, memory_limit: str = "2GiB", **config: Any) -> Iterator[Client]:
    """Record a cluster of one worker, whose death fails all its tasks."""
    settings = {"distributed.scheduler.allowed-failures": 0, **config}
    with (
        dask.config.set(settings),
        new_client(n_workers=1, threads_per_worker=1, memory_limit=memory_limit) as client,
        dasfprof.profile(client, directory=directory, sample_interval=0.1),
    ):
        yield client


def killed_by(directory: Path, function: Any, *args: Any, **options: Any) -> pd.DataFrame:
    """Record a task that ends its worker, and return the findings."""
    with recorded(directory, **options) as client:
        with pytest.raises(KilledWorker):
            client.submit(function, *args).result(timeout=120)
        wait_until(lambda: facts(directory, "SchedulerPlugin", "Worker Exit"))
    return ended(directory)[1]


def ended(directory: Path) -> tuple[TraceAnalyser, pd.DataFrame]:
    """Return the run and its findings, which no event contradicts."""
    analyser = TraceAnalyser(directory, progress=False)
    return analyser, unrefuted(analyser, directory)


def words(findings: pd.DataFrame) -> str:
    rules = "killed-worker-errors", "lost-workers", "unfinished-run"
    rows = findings[findings["Rule"].isin(rules)]
    return " ".join(rows[["Finding", "Evidence", "Suggestion"]].to_numpy(str).ravel())


def hold(seconds: int) -> None:
    """Hold the GIL, so that no other thread of the process runs."""
    ctypes.PyDLL(None).sleep(seconds)


@pytest.mark.whole_program
def test_given_up_for_want_of_heartbeats_is_no_matter_of_memory(tmp_path: Path) -> None:
    findings = killed_by(tmp_path, hold, 600, **{"distributed.scheduler.worker-ttl": "2s"})
    (change,) = facts(tmp_path, "SchedulerPlugin", "Cluster Change")
    assert (change["action"], change["who"]) == ("worker-ttl", "scheduler")
    # Dask waits for at least ten heartbeats, with intervals of at least half a second.
    assert change["number"] >= 5.0
    told = words(findings)
    assert "it received no heartbeat for longer than" in told
    assert "raise distributed.scheduler.worker-ttl" in told
    assert "release the GIL if it holds it" in told
    assert "memory ran out" not in told
    assert "memory_limit" not in told
    assert findings.iloc[0]["Rule"] == "killed-worker-errors"


def kill(_: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_signal_alone_proves_no_want_of_memory(tmp_path: Path) -> None:
    told = words(killed_by(tmp_path, kill, 1))
    assert "killed by SIGKILL" in told
    assert "the trace does not show what ended the worker" in told
    assert "memory ran out" not in told.replace("Memory did not run out", "")


def test_the_error_by_which_a_worker_ended_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that cannot unpickle a message closes, and Dask does not report the reason."""
    (tmp_path / "only_here.py").write_text("def load(number):\n    return number\n")
    traces = tmp_path / "traces"
    with recorded(traces) as client:
        monkeypatch.syspath_prepend(tmp_path)  # in this process alone
        only_here = importlib.import_module("only_here")
        with pytest.raises(KilledWorker):
            client.submit(only_here.load, 1).result(timeout=120)
    (error,) = facts(traces, "TracePlugin", "Worker Error")
    assert error["exception"] == "ModuleNotFoundError: No module named 'only_here'"
    _, findings = ended(traces)
    assert findings.iloc[0]["Rule"] == "killed-worker-errors"
    assert "lost just after an error in Dask's log on that worker" in findings.iloc[0]["Finding"]
    assert "ModuleNotFoundError: No module named 'only_here'" in findings.iloc[0]["Suggestion"]
    assert "ran out" not in words(findings)


def die_holding(once_there: str) -> None:
    with Lock("shared"):
        while not Path(once_there).exists():
            time.sleep(0.05)
        os._exit(7)


def want(_: int) -> None:
    with Lock("shared"):
        pass


@pytest.mark.whole_program
def test_who_held_a_lock_died_and_who_waits_are_one_finding(tmp_path: Path) -> None:
    with (
        new_client(n_workers=2, threads_per_worker=1) as client,
        dasfprof.profile(client, directory=tmp_path),
    ):
        first, second = client.nthreads()
        seen = tmp_path / "seen"
        holder = client.submit(die_holding, str(seen), key="holder-1", workers=first)
        wait_until(lambda: under_way(tmp_path, "holder-1", "holds"))
        waiter = client.submit(want, 1, key="waiter-1", workers=second)
        wait_until(lambda: len(client.processing()[second]) == 1)
        seen.touch()
        wait_until(lambda: facts(tmp_path, "SchedulerPlugin", "Worker Exit"))
        wait_until(lambda: under_way(tmp_path, "waiter-1", "waits_in"))
        with suppress(TimeoutError, asyncio.TimeoutError):
            wait([waiter], timeout=4)  # a wait of 3 s is reported
        del holder
    _, findings = ended(tmp_path)
    about = findings[findings["Finding"].str.contains("shared|lost|left the cluster")]
    (told,) = about["Finding"]
    assert "the Lock 'shared'" in told
    assert "holder-1 held it on worker-" in told
    assert "which died" in told
    assert "ended with exit status 7" in about["Evidence"].iloc[0]


def under_way(directory: Path, key: str, name: str) -> bool:
    rows = facts(directory, "TracePlugin", "Task Under Way")
    return any(row["key"] == key and row[name] for row in rows)


def climb(limit: int, seen: str) -> None:
    """Take 85 % of a limit until a file shows that this was sampled, and then exceed the limit."""
    held = [b"1" * 10**6]
    while psutil.Process().memory_info().rss < 0.85 * limit:
        held.append(b"1" * 10**6)
    while not Path(seen).exists():
        time.sleep(0.05)
    while True:
        held.append(b"1" * 10**6)
        time.sleep(0.001)


@pytest.mark.whole_program
def test_the_last_memory_readings_survive_a_kill_by_the_nanny(tmp_path: Path) -> None:
    """Only memory near the limit makes the worker write before it is killed."""
    limit, traces, seen = 400_000_000, tmp_path / "traces", tmp_path / "seen"

    def memory_on_disk() -> float:
        samples = facts(traces, "ResourceMonitor", "Resource Usage")
        return max((row["memory"] for row in samples), default=0.0)

    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        new_client(n_workers=1, threads_per_worker=1, memory_limit=limit) as client,
        dasfprof.profile(client, directory=traces, flush_interval="1h") as run,
    ):
        future = client.submit(climb, limit, str(seen), key="climb-1")
        wait_until(lambda: memory_on_disk() >= 0.8 * limit)
        seen.touch()
        with pytest.raises(KilledWorker):
            future.result(timeout=120)
        wait_until(lambda: run.flush() or facts(traces, "SchedulerPlugin", "Worker Exit"))
    analyser, findings = ended(traces)
    text = words(findings)
    assert "exceeded 95% memory budget" in text
    assert "killed because memory ran out" in text
    assert "threads_per_worker=" not in " ".join(findings["Suggestion"])
    (death,) = analyser.died_of_memory().to_dict("records")
    assert death["Suspect"] == "climb"
    # Its nanny kills it at 95 %, and it allocates at most 100 MB per 100 ms.
    assert death["Memory (MB)"] >= 0.85 * limit / 1e6
