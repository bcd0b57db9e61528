"""Status durations: they sum to the whole, mean what they say, and survive what is missing."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from clusters import wait_until
from distributed import Client, LocalCluster
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from traces import ANY_RUNS, TASK_TIMES, made_trace

import dasfprof
from dasfprof import Trace, TraceAnalyser
from dasfprof.analysis.run.times import clock_offsets, ended_there

STATUSES = ["Not started (s)", "Inqueue (s)", "Preparing (s)", "Running (s)", "Finalizing (s)"]

#: A run whose stages take 1, 2, 3, ... binary fractions of a second, so that sums are exact.
WHOLE = {
    "key": "f-1",
    "scheduler_waiting": 0.0,
    "queued": 1.0,
    "sent": 3.0,
    "received": 3.5,
    "ready": 4.5,
    "executing": 8.5,
    "start": 8.75,
    "duration": 16.0,
    "done": 25.0,
    "known": 25.5,
}


def by_hand(*runs: dict[str, Any], **options: Any) -> pd.DataFrame:
    return TraceAnalyser(made_trace(runs, **options)).per_task_status()


def test_each_stage_counts_for_its_status() -> None:
    table = by_hand(WHOLE)

    assert table["Arrival (s)"].tolist() == [0.0]
    assert table[STATUSES].to_numpy().tolist() == [[1.0, 2.0 + 0.5 + 4.0, 1.0 + 0.25, 16.0, 0.75]]
    assert table["Total (s)"].tolist() == [25.5]
    assert table["Dominant Status"].tolist() == ["Running"]


def test_a_task_that_is_sent_at_once_was_runnable_then() -> None:
    table = by_hand({**WHOLE, "queued": np.nan})

    assert table["Not started (s)"].tolist() == [3.0]
    assert table["Inqueue (s)"].tolist() == [4.5]


def test_without_the_scheduler_its_statuses_are_unknown() -> None:
    table = by_hand(WHOLE, scheduler=False)

    assert table["Not started (s)"].isna().all()
    assert table[STATUSES[1:]].to_numpy().tolist() == [[4.0, 1.25, 16.0, 0.25]]
    assert table["Total (s)"].tolist() == [21.5]


def test_without_the_worker_preparing_counts_as_queueing() -> None:
    unseen = dict.fromkeys(("received", "ready", "executing", "done"), np.nan)
    table = by_hand({**WHOLE, **unseen, "source": "scheduler"})

    assert table["Preparing (s)"].isna().all()
    assert table["Inqueue (s)"].tolist() == [2.0 + 5.75]
    assert table["Finalizing (s)"].tolist() == [0.75]
    assert table["Total (s)"].tolist() == [25.5]


def test_what_the_scheduler_was_told_of_a_run_fits_between_its_own_times() -> None:
    # Dask's estimate of the worker's clock is off by ten seconds, and by more the other way.
    unseen = dict.fromkeys(("received", "ready", "executing", "done"), np.nan)
    runs = [{**WHOLE, **unseen, "source": "scheduler", "start": at} for at in (18.75, -20.0)]
    runs[1]["key"] = "f-2"
    table = by_hand(*runs).set_index("Task Key")

    assert table["Running (s)"].tolist() == [16.0, 16.0]
    assert table.loc["f-1", "Finalizing (s)"] == table.loc["f-2", "Inqueue (s)"] - 2.0 == 0.0


def test_only_the_function_is_known() -> None:
    unseen = dict.fromkeys(TASK_TIMES, np.nan)
    table = by_hand({**WHOLE, **unseen, "start": 1.0}, scheduler=False)

    assert table["Running (s)"].tolist() == table["Total (s)"].tolist() == [16.0]
    assert table[[name for name in STATUSES if name != "Running (s)"]].isna().all(axis=None)


def test_a_run_that_the_scheduler_gave_up_ends_on_its_worker() -> None:
    table = by_hand({**WHOLE, "known": 10.0, "scheduler_state": "released"})

    assert table["Running (s)"].tolist() == [16.0]
    assert table["Total (s)"].tolist() == [25.0]


def test_functions_sum_up_their_runs_and_say_what_to_do() -> None:
    waiting = {**WHOLE, "key": "g-1", "scheduler_waiting": -50.0}
    runs = [WHOLE, {**WHOLE, "key": "f-2"}, waiting]
    table = TraceAnalyser(made_trace(runs)).per_function_status().set_index("Function")

    assert table.index.tolist() == ["g", "f"]
    assert table["Task Runs"].tolist() == [1, 2]
    assert table["Running (s)"].tolist() == [16.0, 32.0]
    assert table["Total (s)"].tolist() == [75.5, 51.0]
    assert table["Running (%)"].tolist() == pytest.approx([100 * 16 / 75.5, 100 * 32 / 51])
    assert table["Dominant Status"].tolist() == ["Not started", "Running"]
    assert "tasks that its tasks depend on" in table.loc["g", "Next steps"]
    assert "Profile its function" in table.loc["f", "Next steps"]


# --- clocks --------------------------------------------------------------------------------------


def shifted(seconds: float, run: dict[str, Any] = WHOLE, **more: Any) -> dict[str, Any]:
    worker = ("received", "ready", "executing", "start", "done")
    return {**run, **{name: run[name] + seconds for name in worker}, **more}


def test_a_clock_is_put_right_by_what_must_come_after_what() -> None:
    # 0.5 s from sending to receiving, 0.5 s from done to known: the midpoint is the truth.
    trace = made_trace([shifted(100.0)])

    assert clock_offsets(trace).tolist() == [100.0, 0.0]
    assert TraceAnalyser(trace).per_task_status()[STATUSES].equals(by_hand(WHOLE)[STATUSES])


def test_workers_of_one_boot_share_a_clock() -> None:
    # The first alone would be off by -0.25 s; the second's bounds are tighter.
    runs = [shifted(8.0, worker_id=0, sent=2.0), shifted(8.0, key="f-2", worker_id=1)]
    alone = made_trace(runs, workers=[{}, {}])
    together = made_trace(runs, workers=[{"boot_id": "b"}, {"boot_id": "b"}])

    assert clock_offsets(alone).tolist() == [8.5, 8.0, 0.0]
    assert clock_offsets(together).tolist() == [8.0, 8.0, 0.0]


def test_workers_of_the_schedulers_boot_have_its_clock() -> None:
    trace = made_trace([shifted(0.25)], workers=[{"boot_id": "scheduler's"}])

    assert clock_offsets(trace).tolist() == [0.0, 0.0]


def test_one_bound_moves_a_clock_no_further_than_it_says() -> None:
    early = made_trace([{**shifted(-4.0), "known": np.nan}])
    late = made_trace([{**shifted(4.0), "known": np.nan}])

    assert clock_offsets(early)[0] == -3.5
    assert clock_offsets(late)[0] == 0.0


@pytest.mark.parametrize("plugin", ["SchedulerPlugin", "TracePlugin"])
def test_an_empty_run_has_empty_tables(plugin: str) -> None:
    analyser = TraceAnalyser(made_trace([], scheduler=plugin == "SchedulerPlugin"))

    assert len(analyser.per_task_status()) == len(analyser.per_function_status()) == 0
    assert list(TraceAnalyser([]).per_task_status()) == list(by_hand(WHOLE))


# --- properties ----------------------------------------------------------------------------------


def assert_whole(runs: list[dict[str, Any]], scheduler: bool, same_boot: bool) -> None:
    boot = "scheduler's" if same_boot else None
    workers = [{"boot_id": boot}, {"boot_id": "other"}]
    analyser = TraceAnalyser(made_trace(runs, workers=workers, scheduler=scheduler))
    tasks, functions = analyser.per_task_status(), analyser.per_function_status()

    assert (tasks[STATUSES].sum(axis=1) - tasks["Total (s)"]).abs().max() == 0
    assert not (tasks[STATUSES] < 0).any(axis=None)
    assert tasks["Total (s)"].notna().all()
    assert tasks["Dominant Status"].notna().all()
    assert (functions[STATUSES].sum(axis=1) - functions["Total (s)"]).abs().max() <= 1e-9
    assert functions["Task Runs"].sum() == len(runs)


@examples(10, long=5000)
@given(ANY_RUNS, st.booleans(), st.booleans())
def test_statuses_sum_to_the_total_whatever_the_times(
    runs: list[dict[str, Any]], scheduler: bool, same_boot: bool
) -> None:
    assert_whole(runs, scheduler, same_boot)


# --- real runs -----------------------------------------------------------------------------------


def nap(seconds: float, *inputs: Any) -> float:
    time.sleep(seconds)
    return seconds


@pytest.fixture(scope="module")
def real_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six tasks of half a second for two threads, then one that needs them all."""
    directory = tmp_path_factory.mktemp("run")
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
        dasfprof.profile(client, directory=directory),
    ):
        # In one message: a slow client would bring the last ones later.
        naps = client.map(nap, [0.5] * 6, key=[f"nap-{n}" for n in range(6)])
        client.submit(nap, 0.0, *naps, key="last-0").result()
    return directory


def test_real_task_runs_wait_as_planted(real_run: Path) -> None:
    trace = Trace.from_database(real_run)
    table = TraceAnalyser(trace).per_task_status().set_index("Task Key")

    assert len(table) == 7
    assert (table[STATUSES].sum(axis=1) - table["Total (s)"]).abs().max() == 0
    assert table[STATUSES].notna().all(axis=None)
    naps = table[table["Function"] == "nap"]
    assert (naps["Running (s)"] >= 0.49).all()
    # Of each thread's three tasks the second waits for one nap and the third for two.
    assert naps["Inqueue (s)"].sum() >= 5 * 0.5
    # All six naps take 1.5 s, and the last task arrives a little later than they.
    assert table.loc["last-0", "Not started (s)"] >= 0.5
    assert table.loc["last-0", "Dominant Status"] == "Not started"
    # The total agrees with the scheduler's own two times.
    tasks = trace.tasks.set_index(pd.Index(trace.keys.texts(trace.tasks["key_id"].to_numpy())))
    whole = (tasks["known"] - tasks["scheduler_waiting"])[table.index]
    assert (table["Total (s)"] - whole).abs().max() < 1e-6


GIVEN_UP = threading.Event()


def fail(seconds: float) -> float:
    """Fail at once, or so many seconds after the scheduler gave the task up."""
    if seconds:
        assert GIVEN_UP.wait(120)
        time.sleep(seconds)
    raise ValueError(seconds)


def test_a_failed_run_that_nobody_wanted_any_more_ends_on_its_worker(tmp_path: Path) -> None:
    """The first error ends the sum, and the scheduler gives up what has not failed yet."""
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
        dasfprof.profile(client, directory=tmp_path),
    ):
        failing = [
            client.submit(fail, at, key=f"fail-{at}", retries=2 * (at == 0)) for at in (0, 1)
        ]
        total = client.submit(sum, failing)
        del failing
        with pytest.raises(ValueError, match="0"):
            total.result()
        known = cluster.scheduler.tasks
        wait_until(lambda: "fail-1" not in known or known["fail-1"].state == "released")
        GIVEN_UP.set()
        state = next(iter(cluster.workers.values())).state
        while state.executing_count:
            time.sleep(0.01)
    trace = Trace.from_database(tmp_path)
    runs = trace.tasks.assign(key=trace.keys.texts(trace.tasks["key_id"].to_numpy()))
    table = TraceAnalyser(trace).per_task_status()

    # Its first two errors were told, and it was tried again.
    tried = runs[runs["key"] == "fail-0"]
    assert ended_there(trace)[tried.index].tolist() == [True] * 3
    # The other's error came to nobody; it ran for a second all the same.
    (given_up,) = runs.index[runs["key"] == "fail-1"]
    assert trace.tasks.loc[given_up, "scheduler_state"] == "released"
    assert not ended_there(trace)[given_up]
    assert table.loc[table["Task Key"] == "fail-1", "Running (s)"].item() >= 1.0
