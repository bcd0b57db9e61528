"""The lines that allocate what tasks hold are told, of task runs that have their process alone."""

from __future__ import annotations

import threading
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clusters import client_of, wait_until
from distributed import Client, Event

import dasfprof
from dasfprof import TraceAnalyser
from dasfprof.errors import InvalidArgumentError
from dasfprof.recording import allocations
from dasfprof.recording.allocations import tracing
from dasfprof.recording.settings import make_settings

client = client_of(1, 2, processes=False)


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    yield
    assert not tracemalloc.is_tracing()
    wait_until(lambda: not [each for each in threading.enumerate() if "dasfprof-live" in each.name])


def table_of(directory: Path, function: str | None = None) -> Any:
    return TraceAnalyser(directory, progress=False).allocations(function)


def line_of(function: Any, text: str) -> int:
    """Give the number of the line of this file that has a text, within a function."""
    lines = Path(__file__).read_text().splitlines()
    first = function.__code__.co_firstlineno
    return next(n for n in range(first, len(lines)) if text in lines[n - 1])


def hold_two_kept() -> list[Any]:
    large = np.ones(1_000_000)
    small = bytearray(2_000_000)
    Event("kept").wait(240)
    return [large, small]


def hold_one() -> Any:
    return np.ones(1_000_000)


def wait_until_seen(size: int) -> None:
    """Wait until the task run that goes on was seen to hold so many bytes."""

    def was_seen() -> bool:
        run = tracing.run_alone()
        return run is not None and run.fullest.size >= size

    wait_until(was_seen)


def test_lines_of_what_is_held(client: Client, tmp_path: Path) -> None:
    with dasfprof.profile(client, directory=tmp_path, memory="tracemalloc"):
        kept = client.submit(hold_two_kept, pure=False)
        wait_until_seen(10_000_000)
        Event("kept").set()
        assert len(kept.result()) == 2
    table = table_of(tmp_path)
    assert set(table["Function"]) == {"hold_two_kept"}
    assert (set(table["Traced Runs"]), set(table["Left Out"])) == ({1}, {0})
    own = table[table["File"] == __file__].set_index("Line")
    first = own.loc[line_of(hold_two_kept, "np.ones")]
    second = own.loc[line_of(hold_two_kept, "bytearray")]
    assert first["Live (MB)"] == pytest.approx(8.0, abs=0.01)
    assert second["Live (MB)"] == pytest.approx(2.0, abs=0.01)
    # A share of all that the process has allocated since: the loop's own among it.
    assert 50 < first["Share (%)"] <= 80.01
    assert own["Live (MB)"].sum() <= first["Peak (MB)"] < 16
    assert table.iloc[0]["Line"] == line_of(hold_two_kept, "np.ones")


def hold_until(event: str) -> int:
    block = np.ones(1_000_000)
    Event(event).wait(240)
    return len(block)


def test_what_is_freed_before_the_end_and_runs_at_a_time(client: Client, tmp_path: Path) -> None:
    with dasfprof.profile(client, directory=tmp_path, memory="tracemalloc"):
        alone = client.submit(hold_until, "go", pure=False)
        wait_until_seen(8_000_000)
        Event("go").set()
        assert alone.result() == 1_000_000
        together = [client.submit(hold_until, "both", key=f"pair-{n}") for n in (1, 2)]
        wait_until(lambda: len(tracing._runs) == 2)
        Event("both").set()
        assert client.gather(together) == [1_000_000] * 2
    table = table_of(tmp_path, "hold_until")
    first = table.iloc[0]
    assert (first["File"], first["Line"]) == (__file__, line_of(hold_until, "np.ones"))
    assert first["Live (MB)"] == pytest.approx(8.0, abs=0.01)
    assert first["Peak (MB)"] >= 8.0
    (pair,) = table_of(tmp_path, "pair").to_dict("records")
    assert (pair["Traced Runs"], pair["Left Out"], pair["File"]) == (0, 2, "")
    assert np.isnan(pair["Live (MB)"])
    assert set(table_of(tmp_path)["Function"]) == {"hold_until", "pair"}


def fail_with_a_block() -> None:
    kept = np.ones(1_000_000)
    raise KeyError(len(kept))


def trace_itself() -> bool:
    tracemalloc.start(1)  # goes on as it is
    return tracemalloc.is_tracing()


def test_errors_are_the_tasks_own_and_few_bytes_are_nothing(client: Client, tmp_path: Path) -> None:
    with dasfprof.profile(client, directory=tmp_path, memory="tracemalloc"):
        with pytest.raises(KeyError, match="1000000"):
            client.submit(fail_with_a_block, pure=False).result()
        assert client.submit(trace_itself, pure=False).result()
    table = table_of(tmp_path)
    failed = table[table["Function"] == "fail_with_a_block"].iloc[0]
    assert failed["Line"] == line_of(fail_with_a_block, "np.ones")
    (other,) = table[table["Function"] == "trace_itself"].to_dict("records")
    assert (other["Traced Runs"], other["File"], other["Task Key"]) == (1, "", ""), other


def test_a_program_that_traces_itself_is_left_alone(
    client: Client, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tracemalloc.start(3)
    try:
        with dasfprof.profile(client, directory=tmp_path, memory="tracemalloc"):
            assert len(client.submit(hold_one, pure=False).result()) == 1_000_000
        assert tracemalloc.get_traceback_limit() == 3
    finally:
        tracemalloc.stop()
    table = table_of(tmp_path)
    assert table.empty
    assert list(table.attrs["refused"].values()) == ["the program uses tracemalloc itself"]
    assert "give workers one thread" in caplog.text


def test_looks_are_bounded_and_failures_reach_no_task(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(allocations, "MOST_HELD", -1)  # too many blocks for a look
    monkeypatch.setattr(allocations, "MOST_FUNCTIONS", 1)
    with dasfprof.profile(client, directory=tmp_path / "many", memory="tracemalloc"):
        client.submit(hold_one, key="first-1").result()
        client.submit(hold_one, key="second-1").result()
    (told,) = table_of(tmp_path / "many").to_dict("records")
    assert (told["Function"], told["Traced Runs"], told["File"]) == ("first", 1, "")
    notes = [note.text for note in TraceAnalyser(tmp_path / "many", progress=False).trace.notes]
    assert any("had no allocations traced" in text for text in notes)

    def broken() -> Any:
        raise RuntimeError("injected")

    monkeypatch.setattr(allocations, "look", broken)
    with dasfprof.profile(client, directory=tmp_path / "broken", memory="tracemalloc"):
        monkeypatch.setattr(allocations, "MOST_HELD", 1 << 40)
        assert len(client.submit(hold_one, pure=False).result()) == 1_000_000


def test_it_is_chosen_by_argument_and_config() -> None:
    assert make_settings().memory is None
    assert make_settings(memory="tracemalloc").memory == "tracemalloc"
    with pytest.raises(InvalidArgumentError, match="memory='memray' must be 'tracemalloc'"):
        make_settings(memory="memray")


@pytest.mark.parametrize(
    ("frames", "calls", "lines"),
    [
        # The task's function is the outermost below what calls it.
        ([("/w.py", 3), ("/x/dask/_task_spec.py", 9), ("/x/distributed/worker.py", 1)], 3, [3]),
        # Another thread, known to its begin.
        ([("/w.py", 3), ("/p/threading.py", 9)], 2, []),
        # Deeper than is kept: with and without code of the user's; of the event loop.
        ([("/x/site-packages/np.py", 1), ("/w.py", 3)], 20, [3, 1]),
        ([("/x/site-packages/a.py", 1), ("/x/site-packages/b.py", 3)], 20, []),
        ([("/w.py", 1), ("/p/lib/python3.12/asyncio/events.py", 3)], 20, []),
        # So deep that of what calls it only the specification is kept; one that no worker runs.
        ([("/x/site-packages/np.py", 1), ("/x/dask/_task_spec.py", 9)], 20, [1]),
        ([("/p/lib/a.py", 1), ("/x/dask/_task_spec.py", 9)], 2, []),
        # What a worker calls itself: it logs, and measures results.
        ([("/p/logging/__init__.py", 1), ("/x/distributed/worker.py", 1)], 20, []),
        ([("/x/dask/sizeof.py", 1), ("/x/distributed/worker.py", 1)], 2, []),
        # The profiler's own, and what it wraps.
        ([("/x/dasfprof/recording/allocations.py", 1)], 5, []),
        (
            [
                ("/x/fsspec/local.py", 5),
                ("/x/dasfprof/recording/storage.py", 2),
                ("/w.py", 3),
                ("/x/dask/_task_spec.py", 9),
                ("/x/dask/_task_spec.py", 8),
                ("/x/distributed/worker.py", 1),
            ],
            12,
            [3, 5],
        ),
    ],
)
def test_whose_an_allocation_is(frames: Any, calls: int, lines: list[int]) -> None:
    found = allocations._stack_of_task(tuple(frames), calls)
    assert [line for _, _, line in found] == lines
