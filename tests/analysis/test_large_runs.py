"""A run that is analysed part by part has the tables that it has in memory, to the last digit."""

from __future__ import annotations

import math
import random
import shutil
import subprocess
import sys
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
from hypothesis import given
from hypothesis import strategies as st
from large_requests import assert_same_answers, in_parts, requests
from traces import Plan, Task

import dasfprof
from dasfprof import TraceAnalyser, open_run
from dasfprof.analysis.large import run as large_run
from dasfprof.analysis.numeric.groups import Groups, rounded
from dasfprof.analysis.tables import questions
from dasfprof.cli.main import cli
from dasfprof.database.frames import MARKER
from dasfprof.errors import (
    BeyondMemoryError,
    CannotWriteError,
    InvalidArgumentError,
    MissingExtraError,
)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three processes with transfers, failures, retries, steps, and keys of all kinds."""
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
        array = da.random.random((1000, 1000), chunks=(200, 200))
        (array @ array.T).sum().compute()
        client.gather(client.map(fails_once, range(40), retries=2, pure=False))
        wait(client.map(fails, range(5)))
        with dasfprof.step("second"):
            (array + 1).mean().compute()
        client.submit(sum, (1, 2), key=("odd", 2.5, "key")).result()
    return directory / "traces"


def test_all_tables_of_a_recorded_run(recorded: Path) -> None:
    whole, parts = TraceAnalyser(recorded), in_parts(recorded)
    assert len(whole.trace.tasks) > 300
    assert len(whole.trace.transfers) > 10
    assert_same_answers(whole, parts)


def test_files_without_the_schedulers(recorded: Path, tmp_path: Path) -> None:
    for path in recorded.glob("*.msgpack"):
        if "SchedulerPlugin" not in path.name:
            shutil.copy(path, tmp_path)
    assert_same_answers(TraceAnalyser(tmp_path), in_parts(tmp_path))


def test_the_schedulers_file_alone(recorded: Path, tmp_path: Path) -> None:
    for path in recorded.glob("*Scheduler*.msgpack"):
        shutil.copy(path, tmp_path)
    assert_same_answers(TraceAnalyser(tmp_path), in_parts(tmp_path, "100KB"))


def test_a_file_that_is_damaged_in_its_middle(recorded: Path, tmp_path: Path) -> None:
    for path in recorded.glob("*.msgpack"):
        shutil.copy(path, tmp_path)
    path = max(tmp_path.glob("*TracePlugin*.msgpack"), key=lambda each: each.stat().st_size)
    content = bytearray(path.read_bytes())
    middle = content.index(MARKER, len(content) // 3) + 40
    content[middle : middle + 20] = bytes(20)
    path.write_bytes(content)
    whole, parts = TraceAnalyser(tmp_path), in_parts(tmp_path)
    told = [note.text for note in whole.trace.notes if note.kind == "damaged-file"]
    assert told
    assert told == [note.text for note in parts.in_memory.notes if note.kind == "damaged-file"]
    assert_same_answers(whole, parts)


def test_planned_runs_of_several_hosts(tmp_path: Path) -> None:
    generator = random.Random(17)
    tasks = []
    for number in range(800):
        start, worker = generator.uniform(1, 20), number % 2
        stop = start + generator.expovariate(50)
        key = f"f{number % 7}-{number:032x}"
        tasks.append(Task(key, worker, start, stop, cpu=(stop - start) / 3, thread=number % 8))
    moves = [
        (number % 2, 2 + number / 7, 2.01 + number / 6, 1000 * number, [tasks[number].key])
        for number in range(60)
    ]
    plan = Plan(tasks, 2, 8, hosts=["a", "b"], transfers=moves)
    plan.write_files(tmp_path)
    assert_same_answers(TraceAnalyser(tmp_path), in_parts(tmp_path))


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


def test_the_first_rows_alone_are_listed_and_that_is_said(recorded: Path, monkeypatch: Any) -> None:
    from dasfprof.analysis.tables import listed_rows

    monkeypatch.setattr(listed_rows, "LISTED", 10)
    parts = in_parts(recorded)
    with pytest.warns(UserWarning, match=r"first 10 rows of"):
        table = parts.per_task_bottleneck()
    pd.testing.assert_frame_equal(table, TraceAnalyser(recorded).per_task_bottleneck().head(10))


def test_what_needs_the_whole_run_is_answered_where_it_fits(recorded: Path) -> None:
    parts = in_parts(recorded)
    expected = TraceAnalyser(recorded).critical_path()
    pd.testing.assert_frame_equal(parts.critical_path(), expected)


def test_what_needs_the_whole_run_is_refused_where_it_does_not_fit() -> None:
    with pytest.raises(BeyondMemoryError, match="per_function_bottleneck"):
        large_run.refuse_whole(1 << 60)


def test_without_the_extra_the_message_names_it(recorded: Path, monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(MissingExtraError, match=r'pip install "dasfprof\[big\]": duckdb not'):
        in_parts(recorded)


def test_without_the_extra_a_run_that_fits_is_read(recorded: Path, monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    assert not TraceAnalyser(recorded).is_in_parts


@pytest.mark.parametrize("wrong", ["much", "-1GB", 0, [1]])
def test_a_setting_that_is_no_size(recorded: Path, wrong: Any) -> None:
    with (
        dask.config.set({"dasfprof.analysis-memory": wrong}),
        pytest.raises(InvalidArgumentError, match="such as 4GB"),
    ):
        TraceAnalyser(recorded)


@pytest.mark.parametrize(
    "wrong",
    ["processed_tasks('host')", "imbalance(by='worker')", "transfers('host', interval=1.0)"],
)
def test_arguments_that_make_no_sense_are_refused_as_in_memory(recorded: Path, wrong: str) -> None:
    request, messages = questions.parse(wrong), list[str]()
    for analyser in (TraceAnalyser(recorded), in_parts(recorded)):
        with pytest.raises(InvalidArgumentError) as caught:
            request.of(analyser)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


def test_a_full_disk(recorded: Path, tmp_path: Path) -> None:
    mount = ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(tmp_path)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no tmpfs can be mounted here: that takes root")
    try:
        with pytest.raises(CannotWriteError, match="spill-directory"):
            in_parts(recorded, spill_directory=str(tmp_path)).per_function_bottleneck()
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def test_a_spill_directory_that_is_not_there(recorded: Path, tmp_path: Path) -> None:
    with pytest.raises(CannotWriteError, match="spill-directory"):
        in_parts(recorded, spill_directory=str(tmp_path / "nowhere"))


def test_the_command_says_that_it_looks_at_parts(recorded: Path) -> None:
    with dask.config.set({"dasfprof.analysis-memory": "400KB"}):
        done = CliRunner().invoke(cli, ["analyse", "--head", "3", str(recorded)])
    assert done.exit_code == 0
    assert "analysed part by part" in done.output
    assert "Functions that took the most time" in done.output


@given(
    st.lists(
        st.tuples(st.integers(0, 4), st.floats(1e-6, 1e6) | st.integers(0, 1 << 24).map(float)),
        min_size=1,
    ),
    st.randoms(use_true_random=False),
)
def test_sums_are_exact_in_any_order_and_in_parts(
    rows: list[tuple[int, float]], generator: random.Random
) -> None:
    expected = [math.fsum(value for code, value in rows if code == group) for group in range(5)]
    generator.shuffle(rows)
    codes, values = np.array([row[0] for row in rows]), np.array([row[1] for row in rows])
    np.testing.assert_allclose(Groups(codes, 5).sum(values), expected, rtol=2**-52, atol=0)
    cut = generator.randrange(len(rows) + 1)
    parts = [Groups(codes[part], 5).exact(values[part]) for part in (slice(cut), slice(cut, None))]
    assert (rounded(parts[0] + parts[1]) == Groups(codes, 5).sum(values)).all()
