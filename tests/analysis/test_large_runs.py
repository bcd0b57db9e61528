"""Tables of a run that is analysed in windows, locally or on a cluster, equal those in memory."""

import os
import random
import shutil
import signal
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
from clusters import client_of, new_client, wait_until
from distributed import Client, wait
from large_requests import assert_same_answers, in_parts, requests
from traces import Plan, Plugin, T, Task, row
from traces.hung import FIRST, SIGINT, ended_in

import dasfprof
from dasfprof import CompleteEvent, FileDatabase, InstantEvent, Trace, TraceAnalyser, open_run
from dasfprof.analysis.large import extent
from dasfprof.analysis.large import run as large_run
from dasfprof.analysis.run.run_end import find_run_end
from dasfprof.analysis.tables import questions
from dasfprof.cli.main import cli
from dasfprof.database.frames import MARKER
from dasfprof.errors import BeyondMemoryError, InvalidArgumentError, SourceNotFoundError
from dasfprof.schema.tasks import CLOCK, COMPUTE

#: A task every 3 s on two workers in turn.
TASKS = [Task(f"f-{row}", row % 2, 3 * row + 0.1, 3 * row + 0.6) for row in range(100)]


@pytest.fixture(scope="module")
def recorded_once(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, float]:
    """Record a run of three processes with transfers, failures, retries, steps, and various keys.

    Returns its directory, and an upper bound of its duration in seconds.
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

    with (
        new_client(n_workers=3, threads_per_worker=2) as client,
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
    """Open a run in three windows, whatever its duration and size."""
    size = sum(path.stat().st_size for path in directory.glob("*.msgpack"))
    analyser = in_parts(directory, f"{large_run.GROWTH * size - 1}B")
    assert analyser._large is not None
    analyser._large._least = 3
    return analyser


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Plan a small run of two workers."""
    directory = tmp_path_factory.mktemp("planned")
    Plan(TASKS).write_files(directory)
    return directory


@pytest.fixture
def recorded(recorded_once: tuple[Path, float], monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the recorded run, unless messages took longer than the margin around windows."""
    directory, seconds = recorded_once
    monkeypatch.setattr(extent, "AROUND", max(extent.AROUND, seconds))
    return directory


def test_all_tables_of_a_recorded_run(recorded: Path) -> None:
    whole, parts = TraceAnalyser(recorded), in_few_parts(recorded)
    assert len(parts._large.windows) == 3  # type: ignore[union-attr]
    assert len(whole.trace.tasks) > 150
    assert len(whole.trace.transfers) > 10
    assert_same_answers(whole, parts)


def test_the_schedulers_file_and_the_others_alone(recorded: Path, tmp_path: Path) -> None:
    alone, others = tmp_path / "alone", tmp_path / "others"
    for directory in (alone, others):
        directory.mkdir()
    for path in recorded.glob("*.msgpack"):
        shutil.copy(path, alone if "SchedulerPlugin" in path.name else others)
    for directory in (alone, others):
        assert_same_answers(TraceAnalyser(directory), in_few_parts(directory))


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
    assert_same_answers(whole, parts, grouped=False)


def test_keys_that_ran_again_in_another_window(tmp_path: Path) -> None:
    """One key was recomputed and one was retried. Attempts are numbered over the whole run."""
    failed = {"state": "erred", "exception": "ValueError('no')", "became": "released"}
    again = [Task("g-1", 0, at, at + 0.2) for at in (20.2, 120.2)]
    again += [Task("g-2", 1, 60.2, 60.4, **failed), Task("g-2", 1, 250.2, 250.4)]
    Plan([*TASKS, *again]).write_files(tmp_path)
    whole, parts = TraceAnalyser(tmp_path), in_parts(tmp_path, "60KB")
    assert 3 < len(parts._large.windows) < 7  # type: ignore[union-attr]
    assert_same_answers(whole, parts, grouped=False)
    told = parts.processed_tasks("function").set_index("Function").loc["g"]
    assert (told["Total"], told["Retried"], told["Recomputed"]) == (4, 1, 1)


class Ahead(Plan):
    """Plan in which the second worker's clock is 40 s ahead."""

    def _compute(self, task: Task) -> tuple[Any, ...]:
        names = [name for name, _ in COMPUTE.fields + COMPUTE.args]
        values = dict(zip(names, super()._compute(task), strict=True))
        for name in ("timestamp", "received", "ready", "executing", "done"):
            values[name] += 40.0 * task.worker
        return tuple(values.values())


@pytest.mark.parametrize("is_estimated", [True, False])
def test_clocks_that_differ_more_than_windows_overlap(is_estimated: bool, tmp_path: Path) -> None:
    Ahead(TASKS, 2, 2, hosts=["a", "b"]).write_files(tmp_path)
    if is_estimated:
        clock = row(CLOCK, timestamp=T + 41.0, scheduler_delay=-40.0)
        own = Plugin(tmp_path, "ClockRecorder", "b", 1, "tcp://10.0.0.1:4001")
        own.write((CLOCK, [clock]))
    whole, parts = TraceAnalyser(tmp_path), in_parts(tmp_path, "60KB")
    if is_estimated:
        assert_same_answers(whole, parts, grouped=False)
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
    quarter = (whole.end - whole.begin) / 4
    window = whole.begin + quarter, whole.end - quarter
    expected = TraceAnalyser(open_run(recorded, between=window))
    parts = in_parts(open_run(recorded, between=window))
    assert 0 < len(expected.trace.tasks) < len(whole.tasks)
    if all(map(parts.answers, requests())):
        assert_same_answers(expected, parts, grouped=False)


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
        pytest.raises(InvalidArgumentError, match="a size of at least 1 kB"),
    ):
        TraceAnalyser(planned)


def test_arguments_that_make_no_sense_are_refused_as_in_memory(planned: Path) -> None:
    analysers = TraceAnalyser(planned), in_parts(planned, "60KB")
    for text in ("processed_tasks('host')", "imbalance(by='node')", "transfers(interval=1.0)"):
        messages = set()
        for analyser in analysers:
            with pytest.raises(InvalidArgumentError) as caught:
                questions.parse(text).table(analyser)
            messages.add(str(caught.value))
        assert len(messages) == 1


def test_the_command_says_that_it_looks_at_parts(planned: Path) -> None:
    with dask.config.set({"dasfprof.analysis-memory": "60KB"}):
        done = CliRunner().invoke(cli, ["analyse", "--head", "3", str(planned)])
    assert done.exit_code == 0
    assert "analysed in time windows" in done.output
    assert "Functions that took the most time" in done.output


PROGRAM = """
import sys, time
from distributed import Client, LocalCluster
import dasfprof

def fails(number):
    if number % 9 == 0:
        raise ValueError(number)
    time.sleep(0.003)
    return bytes(1000 * number)

if __name__ == "__main__":
    cluster = LocalCluster(2, threads_per_worker=1, dashboard_address=None)
    client = Client(cluster)
    with dasfprof.profile(client, name="open", directory=sys.argv[1]):
        done = client.map(fails, range(150))
        client.gather(done, errors="skip")
        client.submit(len, done[1:9]).result()
        sleeping = client.map(time.sleep, [90.0 + number for number in range(7)])
        last = client.submit(str, sleeping[-1])
        time.sleep(2.5)
        print("in progress", flush=True)
        time.sleep(600)
"""


def of_workers(directory: Path) -> Trace:
    """Read the files of a run's workers without the scheduler's file."""
    return Trace.from_database(
        [path for path in directory.iterdir() if "Scheduler" not in path.name]
    )


def run_until(how: str, directory: Path) -> None:
    """Run the program, and end it while it has work in progress."""
    path = directory / "program.py"
    path.write_text(PROGRAM)
    program = subprocess.Popen(
        [sys.executable, str(path), str(directory / "traces")],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        text=True,
    )
    with program:
        assert program.stdout is not None
        assert program.stdout.readline() == "in progress\n"
        wait_until(lambda: len(of_workers(directory / "traces").under_way) == 2)
        os.killpg(program.pid, getattr(signal, how))


@pytest.mark.whole_program
@pytest.mark.parametrize("how", ["SIGKILL", "SIGINT"])
def test_all_tables_of_a_run_that_did_not_end(how: str, tmp_path: Path) -> None:
    """For a killed program, this also holds if only the scheduler knew the waiting tasks."""
    run_until(how, tmp_path)
    traces = tmp_path / "traces"
    whole = TraceAnalyser(traces)
    assert find_run_end(whole.trace) is not None
    assert len(whole.trace.under_way) >= 2
    assert_same_answers(whole, in_parts(traces, "50KB"))
    if how == "SIGKILL":
        next(traces.glob("*SchedulerPlugin*")).unlink()
        assert len(TraceAnalyser(traces).trace.under_way) == 2
        assert_same_answers(TraceAnalyser(traces), in_parts(traces, "50KB"))


@pytest.mark.parametrize("client_left", [19.002, 18.9])
def test_whose_errors_tell_of_sigint(client_left: float, tmp_path: Path) -> None:
    run = ended_in(SIGINT, 19.0, 19.001, client_left)
    others = [(f"g-{number}", number + 0.25, number + 0.75) for number in range(18)]
    run.ended += others
    done = {"state": "memory", "why": "task-finished-1", **FIRST}
    run.runs += [{"key": key, "sent": start, "known": stop, **done} for key, start, stop in others]
    run.write(tmp_path)
    whole, parts = TraceAnalyser(tmp_path), in_parts(tmp_path, "1KB")
    end = find_run_end(whole.trace)
    assert end is not None
    assert end.interrupted
    # Compare texts, in which NaN equals NaN.
    assert repr(find_run_end(parts.in_memory)) == repr(end)


client = client_of(2, 1, memory_limit="1GB")


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a run of two hosts."""
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


def test_all_tables_on_a_cluster(client: Client, traces: Path) -> None:
    assert_same_answers(TraceAnalyser(traces), TraceAnalyser(traces, client=client))


def test_few_windows_are_in_memory_at_a_time(client: Client, traces: Path) -> None:
    run: Any = TraceAnalyser(traces, client=client)._large
    run._least, told = 40, 0
    for _ in run._of_windows(None, run._unread, "test"):
        told += 1
        tasks = client.run_on_scheduler(lambda dask_scheduler: [*map(str, dask_scheduler.tasks)])
        assert sum(key.startswith("process_window-") for key in tasks) <= 2 * 2 + 1
    assert told == len(run.windows) > 10


def told_by_workers(client: Client, monkeypatch: Any, seen: Any) -> None:
    """Let workers report other files than they can read."""
    monkeypatch.setattr(client, "run", lambda *_: {who: seen(who) for who in client.nthreads()})


def test_workers_that_see_all_files_are_asked(
    client: Client, traces: Path, monkeypatch: Any
) -> None:
    wanted, addresses = large_run.files_of(str(traces)), list(client.nthreads())
    first = addresses[0]
    seen = client.run(large_run._files_there, str(traces))
    assert seen == dict.fromkeys(addresses, wanted)
    told_by_workers(client, monkeypatch, lambda who: wanted if who == first else wanted[1:])
    assert large_run.seen_by_workers(client, str(traces)) == (wanted, [first])
    # Files may be readable only by workers.
    told_by_workers(client, monkeypatch, lambda _: wanted)
    assert large_run.seen_by_workers(client, "/nothing") == (wanted, addresses)
    # Files on workers' separate disks are refused with an explanation.
    told_by_workers(client, monkeypatch, lambda who: wanted[:2] if who == first else wanted[2:])
    with pytest.raises(SourceNotFoundError, match=r"can see all 5 files of .*; the maximum is 3"):
        TraceAnalyser(traces, client=client)


def test_sources_that_are_refused(client: Client, tmp_path: Path) -> None:
    with pytest.raises(SourceNotFoundError):
        TraceAnalyser(tmp_path / "nothing", client=client)
    with pytest.raises(InvalidArgumentError, match="client="):
        TraceAnalyser([], client=client)


def test_the_command(client: Client, traces: Path) -> None:
    command = ["analyse", "-a", "function", str(traces), "--scheduler"]
    done = CliRunner().invoke(cli, [*command, client.scheduler.address])
    assert done.exit_code == 0
    assert "Functions that took the most time" in done.output
