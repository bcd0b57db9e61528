"""A run that is analysed window by window has the tables that it has in memory."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from distributed import Client, LocalCluster, wait
from large_requests import assert_same_answers, in_parts, requests
from traces import Plan, Plugin, T, Task, row

import dasfprof
from dasfprof import CompleteEvent, FileDatabase, InstantEvent, TraceAnalyser, open_run
from dasfprof.analysis.large import extent
from dasfprof.analysis.large import run as large_run
from dasfprof.analysis.tables import questions
from dasfprof.cli.main import cli
from dasfprof.database.frames import MARKER
from dasfprof.errors import BeyondMemoryError, InvalidArgumentError
from dasfprof.schema.tasks import CLOCK, COMPUTE


@pytest.fixture(scope="module")
def recorded_once(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, float]:
    """A run of three processes with transfers, failures, retries, steps, and keys of all kinds.

    Gives its directory, and the seconds that it took at most.
    """
    begin = time.monotonic()
    directory = tmp_path_factory.mktemp("recorded")
    failed = directory / "failed"
    failed.mkdir()

    def fails_once(number: int) -> np.ndarray:
        time.sleep(0.002)
        if number % 3 == 0 and not (failed / str(number)).exists():
            (failed / str(number)).touch()
            raise ValueError(f"no {number}")
        return np.ones(1000 * (number % 7 + 1))

    def fails(number: int) -> None:
        raise KeyError(number)

    cluster = LocalCluster(
        n_workers=3, threads_per_worker=2, processes=True, dashboard_address=None
    )
    with (
        cluster,
        Client(cluster) as client,
        dasfprof.profile(client, name="recorded", directory=directory / "traces"),
    ):
        array = da.random.random((800, 800), chunks=(200, 200))
        (array @ array.T).sum().compute()
        client.gather(client.map(fails_once, range(40), retries=2, pure=False))
        wait(client.map(fails, range(5)))
        with dasfprof.step("second"):
            (array + 1).mean().compute()
        client.submit(sum, (1, 2), key=("odd", 2.5, "key")).result()
    return directory / "traces", time.monotonic() - begin


def in_few_parts(directory: Path) -> TraceAnalyser:
    """Open a run in five windows, however long it took and however large its files are."""
    size = sum(path.stat().st_size for path in directory.glob("*.msgpack"))
    analyser = in_parts(directory, f"{large_run.GROWTH * size - 1}B")
    assert analyser._large is not None
    analyser._large._least = 5
    return analyser


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small run of two workers, planned."""
    directory = tmp_path_factory.mktemp("planned")
    tasks = [Task(f"f-{row}", row % 2, 3 * row + 0.1, 3 * row + 0.6) for row in range(100)]
    Plan(tasks).write_files(directory)
    return directory


@pytest.fixture
def recorded(recorded_once: tuple[Path, float], monkeypatch: pytest.MonkeyPatch) -> Path:
    """The run; on a busy machine messages take longer than what is read around windows."""
    directory, seconds = recorded_once
    monkeypatch.setattr(extent, "AROUND", max(extent.AROUND, seconds))
    return directory


def test_all_tables_of_a_recorded_run(recorded: Path) -> None:
    whole, parts = TraceAnalyser(recorded), in_few_parts(recorded)
    assert len(parts._large.windows) == 5  # type: ignore[union-attr]
    assert len(whole.trace.tasks) > 150
    assert len(whole.trace.transfers) > 10
    assert_same_answers(whole, parts)


def test_files_without_the_schedulers(recorded: Path, tmp_path: Path) -> None:
    for path in recorded.glob("*.msgpack"):
        if "SchedulerPlugin" not in path.name:
            shutil.copy(path, tmp_path)
    assert_same_answers(TraceAnalyser(tmp_path), in_few_parts(tmp_path))


def test_the_schedulers_file_alone(recorded: Path, tmp_path: Path) -> None:
    (path,) = recorded.glob("*Scheduler*.msgpack")
    shutil.copy(path, tmp_path)
    # How large it is depends on how long the run took.
    memory = large_run.GROWTH * path.stat().st_size - 1
    assert_same_answers(TraceAnalyser(tmp_path), in_parts(tmp_path, f"{memory}B"))


def test_a_file_that_is_damaged_in_its_middle(recorded: Path, tmp_path: Path) -> None:
    for path in recorded.glob("*.msgpack"):
        shutil.copy(path, tmp_path)
    path = max(tmp_path.glob("*TracePlugin*.msgpack"), key=lambda each: each.stat().st_size)
    content = bytearray(path.read_bytes())
    middle = content.index(MARKER, len(content) // 3) + 40
    content[middle : middle + 20] = bytes(20)
    path.write_bytes(content)
    whole, parts = TraceAnalyser(tmp_path), in_few_parts(tmp_path)
    told = [note.text for note in whole.trace.notes if note.kind == "damaged-file"]
    assert told
    assert told == [note.text for note in parts.in_memory.notes if note.kind == "damaged-file"]
    assert_same_answers(whole, parts)


def test_keys_that_ran_again_in_another_window(tmp_path: Path) -> None:
    """One was computed anew, one retried: their attempts are numbered over the whole run."""
    others = [Task(f"f-{row}", row % 2, 3 * row + 0.1, 3 * row + 0.6) for row in range(100)]
    failed = {"state": "erred", "exception": "ValueError('no')", "became": "released"}
    again = [
        Task("g-1", 0, 20.2, 20.4),
        Task("g-1", 0, 120.2, 120.4),
        Task("g-2", 1, 60.2, 60.4, **failed),
        Task("g-2", 1, 250.2, 250.4),
    ]
    Plan([*others, *again]).write_files(tmp_path)
    whole, parts = TraceAnalyser(tmp_path), in_parts(tmp_path, "60KB")
    assert 3 < len(parts._large.windows) < 7  # type: ignore[union-attr]
    assert_same_answers(whole, parts)
    told = parts.processed_tasks("function").set_index("Function").loc["g"]
    assert (told["Total"], told["Retried"], told["Recomputed"]) == (4, 1, 1)


class Ahead(Plan):
    """A plan whose second worker has a clock that is 40 s ahead."""

    def _compute(self, task: Task) -> tuple[Any, ...]:
        told = super()._compute(task)
        names = [name for name, _ in COMPUTE.fields + COMPUTE.args]
        times = ("timestamp", "received", "ready", "executing", "done")
        return tuple(
            value + 40.0 if task.worker and name in times else value
            for name, value in zip(names, told, strict=True)
        )


@pytest.mark.parametrize("is_estimated", [True, False])
def test_clocks_that_differ_by_more_than_is_read_around_windows(
    is_estimated: bool, tmp_path: Path
) -> None:
    tasks = [Task(f"f-{row}", row % 2, 3 * row + 0.1, 3 * row + 0.6) for row in range(100)]
    Ahead(tasks, 2, 2, hosts=["a", "b"]).write_files(tmp_path)
    if is_estimated:
        clock = row(CLOCK, timestamp=T + 41.0, scheduler_delay=-40.0)
        own = Plugin(tmp_path, "ClockRecorder", "b", 1, "tcp://10.0.0.1:4001")
        own.write((CLOCK, [clock]))
    whole, parts = TraceAnalyser(tmp_path), in_parts(tmp_path, "60KB")
    if is_estimated:
        assert_same_answers(whole, parts)
    else:
        assert not any(map(parts.answers, requests()))


def test_times_since_boot_take_the_whole_run_in_memory(tmp_path: Path) -> None:
    who: dict[str, Any] = {"process_id": "host", "thread_id": "worker-1"}
    with FileDatabase(tmp_path / "own.msgpack") as database:
        for row in range(400):
            args = {"key": f"f-{row}", "state": "memory", "input_size": 0}
            database.record(CompleteEvent("Compute", 50.0 + row, 0.5, **who, args=args))
        usage = {"cpu": 1.0, "memory": 1, "time": 1.7e9}
        database.record(InstantEvent("Resource Usage", 50.0, **who, args=usage))
    parts = in_parts(tmp_path / "own.msgpack", "20KB")
    assert not any(map(parts.answers, requests()))
    table = parts.per_function_bottleneck()
    pd.testing.assert_frame_equal(table, TraceAnalyser(tmp_path).per_function_bottleneck())


def test_a_window_of_a_run(recorded: Path) -> None:
    whole = TraceAnalyser(recorded).trace
    middle = (whole.begin + whole.end) / 2
    quarter = (whole.end - whole.begin) / 4
    window = middle - quarter, middle + quarter
    expected, parts = (
        TraceAnalyser(open_run(recorded, between=window)),
        in_parts(open_run(recorded, between=window)),
    )
    assert 0 < len(expected.trace.tasks) < len(whole.tasks)
    if all(map(parts.answers, requests())):
        assert_same_answers(expected, parts)


def test_the_first_rows_alone_are_listed_and_that_is_said(planned: Path, monkeypatch: Any) -> None:
    from dasfprof.analysis.tables import columns

    monkeypatch.setattr(columns, "LISTED", 10)
    parts = in_parts(planned, "60KB")
    with pytest.warns(UserWarning, match=r"first 10 rows of"):
        table = parts.per_task_bottleneck()
    pd.testing.assert_frame_equal(table, TraceAnalyser(planned).per_task_bottleneck().head(10))


def test_what_needs_the_whole_run_is_answered_where_it_fits(planned: Path) -> None:
    expected = TraceAnalyser(planned).critical_path()
    pd.testing.assert_frame_equal(in_parts(planned, "60KB").critical_path(), expected)


def test_what_needs_the_whole_run_is_refused_where_it_does_not_fit() -> None:
    with pytest.raises(BeyondMemoryError, match="per_function_bottleneck"):
        large_run.refuse_too_large(1 << 60)


def test_compressed_files_count_with_their_length_before_compression(tmp_path: Path) -> None:
    Plan([Task(f"f-{row}", 0, row, row + 0.5) for row in range(1000)]).write_files(tmp_path)
    size = sum(path.stat().st_size for path in tmp_path.glob("*.msgpack"))
    in_parts(tmp_path, f"{large_run.GROWTH * size}B")


@pytest.mark.parametrize("wrong", ["much", "-1GB", 0, [1]])
def test_a_setting_that_is_no_size(planned: Path, wrong: Any) -> None:
    with (
        dask.config.set({"dasfprof.analysis-memory": wrong}),
        pytest.raises(InvalidArgumentError, match="such as 4GB"),
    ):
        TraceAnalyser(planned)


@pytest.mark.parametrize(
    "wrong",
    ["processed_tasks('host')", "imbalance(by='worker')", "transfers('host', interval=1.0)"],
)
def test_arguments_that_make_no_sense_are_refused_as_in_memory(planned: Path, wrong: str) -> None:
    messages = list[str]()
    for analyser in (TraceAnalyser(planned), in_parts(planned, "60KB")):
        with pytest.raises(InvalidArgumentError) as caught:
            questions.parse(wrong).table(analyser)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


def test_the_command_says_that_it_looks_at_parts(planned: Path) -> None:
    with dask.config.set({"dasfprof.analysis-memory": "60KB"}):
        done = CliRunner().invoke(cli, ["analyse", "--head", "3", str(planned)])
    assert done.exit_code == 0
    assert "analysed in time windows" in done.output
    assert "Functions that took the most time" in done.output
