"""Status durations: they add up, match their definitions, and allow for missing times."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from traces import ANY_RUNS, TASK_TIMES, made_trace

from dasfprof import TraceAnalyser
from dasfprof.analysis.run.task_runs import clock_offsets

STATUSES = ["Not started (s)", "Inqueue (s)", "Preparing (s)", "Running (s)", "Finalizing (s)"]

#: Task run whose stages take binary fractions of a second, so that sums are exact.
WHOLE: dict[str, Any] = {
    **{"key": "f-1", "scheduler_waiting": 0.0, "queued": 1.0, "sent": 3.0, "received": 3.5},
    **{"ready": 4.5, "executing": 8.5, "start": 8.75, "duration": 16.0, "done": 25.0},
    "known": 25.5,
}
#: Times that only workers record.
UNSEEN = dict.fromkeys(("received", "ready", "executing", "done"), np.nan)


def by_hand(*runs: dict[str, Any], **options: Any) -> pd.DataFrame:
    return TraceAnalyser(made_trace(runs, **options)).per_task_status()


@pytest.mark.parametrize(
    ("changes", "scheduler", "seconds"),
    [
        ({}, True, [1.0, 2.0 + 0.5 + 4.0, 1.0 + 0.25, 16.0, 0.75]),
        # It is assigned at once, and so runnable then.
        ({"queued": np.nan}, True, [3.0, 0.5 + 4.0, 1.25, 16.0, 0.75]),
        ({}, False, [np.nan, 4.0, 1.25, 16.0, 0.25]),
        # Without the worker's file, preparing counts as queueing.
        ({**UNSEEN, "source": "scheduler"}, True, [1.0, 2.0 + 5.75, np.nan, 16.0, 0.75]),
        ({**dict.fromkeys(TASK_TIMES, np.nan), "start": 1.0}, False, [*[np.nan] * 3, 16.0, np.nan]),
        # The scheduler released it; it ended on its worker.
        ({"known": 10.0, "scheduler_state": "released"}, True, [1.0, 6.5, 1.25, 16.0, 0.25]),
    ],
)
def test_each_stage_counts_for_its_status(changes: Any, scheduler: bool, seconds: Any) -> None:
    table = by_hand({**WHOLE, **changes}, scheduler=scheduler)
    assert table[STATUSES].to_numpy()[0].tolist() == pytest.approx(seconds, nan_ok=True)
    assert table["Total (s)"].tolist() == [np.nansum(seconds)]
    assert table["Dominant Status"].tolist() == ["Running"]
    if scheduler:
        assert table["Arrival (s)"].tolist() == [0.0]


def test_what_the_scheduler_was_told_of_a_run_fits_between_its_own_times() -> None:
    # Dask's estimate of the worker's clock is wrong by ten seconds, or by more in the other
    # direction.
    runs = [{**WHOLE, **UNSEEN, "source": "scheduler", "start": at} for at in (18.75, -20.0)]
    runs[1]["key"] = "f-2"
    table = by_hand(*runs).set_index("Task Key")
    assert table["Running (s)"].tolist() == [16.0, 16.0]
    assert table.loc["f-1", "Finalizing (s)"] == table.loc["f-2", "Inqueue (s)"] - 2.0 == 0.0


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


def shifted(seconds: float, run: dict[str, Any] = WHOLE, **more: Any) -> dict[str, Any]:
    worker = ("received", "ready", "executing", "start", "done")
    return {**run, **{name: run[name] + seconds for name in worker}, **more}


def test_a_clock_is_put_right_by_what_must_come_after_what() -> None:
    # 0.5 s from assignment to receipt, and 0.5 s from done to known: the midpoint is right.
    trace = made_trace([shifted(100.0)])
    assert clock_offsets(trace).tolist() == [100.0, 0.0]
    assert TraceAnalyser(trace).per_task_status()[STATUSES].equals(by_hand(WHOLE)[STATUSES])


def test_workers_of_one_boot_share_a_clock() -> None:
    # The first pair alone would be wrong by -0.25 s; the second has tighter bounds.
    runs = [shifted(8.0, worker_id=0, sent=2.0), shifted(8.0, key="f-2", worker_id=1)]
    alone = made_trace(runs, workers=[{}, {}])
    together = made_trace(runs, workers=[{"boot_id": "b"}, {"boot_id": "b"}])
    assert clock_offsets(alone).tolist() == [8.5, 8.0, 0.0]
    assert clock_offsets(together).tolist() == [8.0, 8.0, 0.0]


def test_bounds_of_clocks() -> None:
    # Workers with the scheduler's boot id have its clock.
    same = made_trace([shifted(0.25)], workers=[{"boot_id": "scheduler's"}])
    assert clock_offsets(same).tolist() == [0.0, 0.0]
    # A single bound only moves a clock as far as needed.
    for shift, offset in ((-4.0, -3.5), (4.0, 0.0)):
        assert clock_offsets(made_trace([{**shifted(shift), "known": np.nan}]))[0] == offset


@examples(10, long=5000)
@given(ANY_RUNS, st.booleans(), st.sampled_from(["scheduler's", None]))
def test_statuses_sum_to_the_total(runs: list[Any], scheduler: bool, boot: Any) -> None:
    workers = [{"boot_id": boot}, {"boot_id": "other"}]
    analyser = TraceAnalyser(made_trace(runs, workers=workers, scheduler=scheduler))
    tasks, functions = analyser.per_task_status(), analyser.per_function_status()
    assert (tasks[STATUSES].sum(axis=1) - tasks["Total (s)"]).abs().max() == 0
    assert not (tasks[STATUSES] < 0).any(axis=None)
    assert tasks[["Total (s)", "Dominant Status"]].notna().all(axis=None)
    assert (functions[STATUSES].sum(axis=1) - functions["Total (s)"]).abs().max() <= 1e-9
    assert functions["Task Runs"].sum() == len(runs)
