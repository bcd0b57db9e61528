"""Overhead of task runs and sizes of chunks, by hand, and advice about chunks of arrays."""

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from traces import Plugin, T, row
from traces.hung import ADDRESS

from dasfprof import TraceAnalyser
from dasfprof.analysis.diagnosis.chunk_arguments import larger_chunks_in
from dasfprof.analysis.model.sizing import larger_shape, task_overhead
from dasfprof.schema.tasks import COMPUTE, TASK_RUN

ARRAY = {"type": "numpy.ndarray", "dtype": "float64"}


def ran(key: Any, place: int, seconds: float = 0.001, **values: Any) -> tuple[Any, ...]:
    """Return a task run that holds one of two threads for 8 ms longer than its function runs."""
    turn, lane = divmod(place, 2)
    begin = T + turn * 0.02
    facts = {"received": begin, "ready": begin, "executing": begin, "done": begin + seconds + 0.008}
    facts |= {"timestamp": begin + 0.004, "duration": seconds, "thread": str(lane), "cpu": seconds}
    facts |= {"state": "memory", "disk_read": 0.0, "deserialize": 0.0}
    return row(COMPUTE, key=key, run_id=place, **{**facts, **values})


def written(path: Path, *rows: tuple[Any, ...], sent: Any = ()) -> TraceAnalyser:
    Plugin(path).write((COMPUTE, rows))
    if sent:
        Plugin(path, "SchedulerPlugin").write((TASK_RUN, sent))
    return TraceAnalyser(path, progress=False)


def advised(analyser: TraceAnalyser) -> str:
    table = analyser.diagnose().set_index("Rule")
    return str(table.loc["tasks-too-small", "Suggestion"])


def test_no_chunk_is_larger_than_the_array(tmp_path: Path) -> None:
    """An array of 1.28 MB has 16 chunks, so one chunk can be at most 16 times as large."""
    shape = {"size": 80_000, "shape": (100, 100), **ARRAY}
    rows = [ran(("inc", *divmod(n, 4)), n, **shape) for n in range(16)]
    (found,) = written(tmp_path, *rows).chunk_sizing().to_dict("records")
    assert (found["Times Larger"], found["Task Runs Then"]) == (16.0, 1)
    assert found["Wanted Chunk Size (MB)"] == pytest.approx(1.28)


def test_what_splits_an_array_has_chunks_of_its_pieces(tmp_path: Path) -> None:
    """There are 64 pieces of 25 kB, all from the same 1.6 MB."""
    piece = {"size": 25_000, "input_size": 1_600_000, "dependencies": ["whole"], "shape": (3125,)}
    analyser = written(tmp_path, *(ran(("getitem", n), n, **piece, **ARRAY) for n in range(64)))
    (found,) = analyser.chunk_sizing().to_dict("records")
    assert found["Chunk Size (MB)"] == pytest.approx(0.025)
    assert found["Wanted Chunk Size (MB)"] <= 1.6
    # There should be three tasks per thread, so each has 64 / 6 of the layer's tasks.
    words = "chunks of 267 kB instead of 25 kB, chunks=(33333,) instead of (3125,)"
    assert words in advised(analyser)


def test_no_chunks_are_named_of_axes_that_no_array_of_the_user_has(tmp_path: Path) -> None:
    """Matrices have two axes; the pieces between them and their product have three."""
    matrix = {"size": 2_000_000, "shape": (500, 500), **ARRAY}
    rows = [ran(("load", place, 0), place, **matrix) for place in range(4)]
    piece = {"size": 25_000, "shape": (50, 1, 62), "dependencies": ["('load', 0)"], **ARRAY}
    piece["input_size"] = 50_000
    rows += [ran(("piece", n // 8, 0, n % 8), n + 4, **piece) for n in range(64)]
    words = advised(written(tmp_path, *rows))
    assert "tasks of piece" in words
    assert "chunks=" not in words


def test_what_handles_chunks_one_by_one_has_no_inputs_of_the_user_s(tmp_path: Path) -> None:
    """The index of each chunk is a tuple from an array in 64 pieces, which are the user's."""
    piece = {"size": 8000, "shape": (1, 1000), **ARRAY}
    rows = [ran(("xarray", n, 0), n, 0.0001, **piece) for n in range(64)]
    taken = {"size": 8000, "type": "tuple", "input_size": 8000}
    rows += [
        ran(f"getitem-{n}", 64 + n, dependencies=[f"('xarray', {n}, 0)"], **taken)
        for n in range(64)
    ]
    words = advised(written(tmp_path, *rows))
    assert words.startswith("Make the tasks of xarray about 11 times as large")
    assert "chunks=(11, 1000) instead of (1, 1000)" in words


def test_what_has_no_chunks(tmp_path: Path) -> None:
    rows = [ran(f"fit-{n}", n, size=50_000, type="Model") for n in range(64)]
    words = advised(written(tmp_path / "objects", *rows))
    assert words.startswith("Put 11 inputs into each task of fit, as a list.")
    assert "chunks of" not in words
    # A program does not pass inputs to the tasks of a collection.
    rows = [ran(("fit", n), n, size=50_000, type="Model") for n in range(64)]
    words = advised(written(tmp_path / "collection", *rows))
    assert words.startswith("Make the chunks or partitions of fit 11 times as large.")
    # There are 64 steps in eight chains: two steps of a chain are never inputs of the same task.
    facts = {"size": 28, "input_size": 28, "type": "int"}
    before = [[], *([f"step-{n}"] for n in range(56))]
    rows = [ran(f"step-{n}", n, dependencies=before[max(n - 7, 0)], **facts) for n in range(64)]
    words = advised(written(tmp_path / "chains", *rows))
    assert words.startswith("Put more work into each task of step")


def test_larger_shapes() -> None:
    for shape, blocks, factor, expected in (
        ((100, 100), (10, 10), 4.0, (200, 200)),
        ((100, 100), (1, 10), 4.0, (100, 400)),  # this axis already has one chunk
        ((100, 100), (2, 10), 9.0, (200, 450)),
        ((100,), (4,), 9.0, (400,)),
        ((50, 1, 50), (16, 16, 16), 8.0, (100, 2, 100)),
    ):
        assert larger_shape(shape, blocks, factor) == expected


def test_what_is_between_has_no_chunks_of_its_own(tmp_path: Path) -> None:
    """A product of matrices in 20 x 20 blocks has 8,000 intermediate blocks, 20 times the data."""
    small = {"size": 8_000, "shape": (10, 100), **ARRAY}
    rows = [ran(("make", *divmod(n, 20)), n, **small) for n in range(400)]
    between = {"size": 80_000, "shape": (100, 1, 100), "input_size": 16_000, **ARRAY}
    for n, (i, j, k) in enumerate(product(range(20), repeat=3), 400):
        needs = [("make", i, j), ("make", j, k)]
        rows.append(ran(("product", i, j, k), n, dependencies=needs, **between))
    suggestion = advised(written(tmp_path, *rows))
    assert suggestion.startswith("Make the tasks of make about 67 times as large: chunks of 533 kB")
    assert "instead of (10, 100)" in suggestion


STORE = ((1, 90, 180), (730, 2, 1))
# fmt: off
#: Texts of lines, and the start of the advice.
LARGER = [
    # The array of the first line has 730 by 2 blocks, so one axis suffices for the factor.
    (['ds = xr.open_zarr(path, chunks={"time": 1, "lat": 90})', "ds.mean()"],
     "Set chunks={'time': 50, 'lat': 180} instead of {'time': 1, 'lat': 90} at a.py:0."),
    # If there are two branches, that with the recorded chunks counts.
    (['ds = open(path, chunks={"t": 10, "y": 90} if fast else {"t": 1, "y": 90})'],
     "Set chunks={'t': 50, 'y': 180} instead of {'t': 1, 'y': 90} at a.py:0."),
    (["da.ones(n, chunks=(1, 90, -1))"], "Set chunks=(50, 180, 180) instead of (1, 90, -1)"),
    (["with x.rechunk((1, 90, 180)):"], "Set chunks=(50, 180, 180) instead of (1, 90, 180)"),
    (["b = db.from_sequence(x, npartitions=1460)"], "Set npartitions=15 instead of 1460 at"),
    (['f = dd.read_csv(x, blocksize="60kB")'], "Set blocksize='6MB' instead of '60kB' at"),
    (["f = dd.read_csv(x, blocksize=60_000)"], "Set blocksize=6000000 instead of 60000 at"),
    (["b = db.from_sequence(x, partition_size=2)"], "Set partition_size=200 instead of 2 at"),
    # Without literals, only lines of these tasks count.
    (["da.ones(m, chunks=(n, 90))"], "Make chunks=(n, 90) at a.py:0 about 100 times as large."),
    (["da.ones(m, chunks=(n, n))"], "Make chunks=(n, n) at a.py:0 about 100 times as large, 10"),
    (["x = f()", "x = da.ones(m, chunks=n)"], ""),
    (["db.from_sequence(x, npartitions=n)"], "Divide npartitions=n at a.py:0 by about 100."),
    # Two lines that set chunks, blocks that a function returns, and no program.
    (['ds.chunk({"time": 1, "lat": 90})', "b = s(x, npartitions=1460)"], ""),
    (["y = x.map_blocks(f, chunks=(1, 90, 180))"], ""),
    (["ds.chunk({'t': -1, 'y': n, 'x': n})"],
     "Make chunks={'t': -1, 'y': n, 'x': n} at a.py:0 about 100 times as large, 10"),
    (['ds.chunk({["a"]: 1})'], "Make chunks={['a']: 1} at a.py:0 about 100 times as large."),
    ([float("nan"), "x = ("], ""),
    # Without chunks=, each chunk of the store is one of the array.
    (["with da.from_zarr(path) as x:"], "Pass chunks= to from_zarr() at a.py:0: multiples of the "
    "store's chunks, with about 100 times as many elements."),
    (["ds = xr.open_zarr(path).chunk({'x': n})"], "Make chunks={'x': n} at a.py:0 about 100"),
    (["ds = xr.open_zarr(path, **options)"], ""),
    (["x = da.from_zarr(path, chunks=None)"], "Pass chunks= to from_zarr() at a.py:0"),
    (["x = da.from_zarr(a) + da.from_zarr(b)"], ""),
    (["x.mean()", "x = da.from_zarr(path)"], ""),
]
#: Text of a line, and its replacement, or "" if it stays.
EDITED = {
    'ds = xr.open_zarr("ä.zarr", chunks={"time": 1, "lat": 90})  # é':
        "ds = xr.open_zarr(\"ä.zarr\", chunks={'time': 50, 'lat': 180})  # é",
    'ds = open(p, chunks={"t": 10, "y": 90} if fast else {"t": 1, "y": 90})':
        "ds = open(p, chunks={\"t\": 10, \"y\": 90} if fast else {'t': 50, 'y': 180})",
    "with x.chunk((1, 90, 180)):": "with x.chunk((50, 180, 180)):",
    "b = db.from_sequence(x, npartitions=1460)": "b = db.from_sequence(x, npartitions=15)",
    # Variables may be used elsewhere, and it is unknown which of two equal values to replace.
    "da.ones(m, chunks=(n, 90))": "",
    "b = f(npartitions=1460 if fast else 1460)": "",
    # The source would keep its chunks.
    "y = x.rechunk((1, 90, 180))": "",
    # Other chunks contain other random numbers.
    "x = da.random.random(shape, chunks=(1, 90, 180))": "",
    "x = rng.normal(0, 1, shape, chunks=(1, 90, 180))": "",
}
# fmt: on


@pytest.mark.parametrize(("texts", "words"), LARGER)
def test_larger_chunks_are_set_at_the_line_that_sets_them(texts: list[Any], words: str) -> None:
    lines = [(f"a.py:{number}", text) for number, text in enumerate(texts)]
    advice = larger_chunks_in(lines, {"a.py:0"}, {"a.py:0": [STORE]}, 1460, 100.0).words
    assert advice.startswith(words)
    assert bool(advice) == bool(words)


def test_smaller_chunks_are_set_by_a_factor_below_one() -> None:
    for text, advice in {
        "db.from_sequence(x, npartitions=1)": "Set npartitions=6 instead of 1 at a.py:0.",
        "dd.read_csv(p, blocksize='64MB')": "Set blocksize='11MB' instead of '64MB' at a.py:0.",
        "db.from_sequence(x, npartitions=n)": "",
        "da.from_zarr(path)": "",
    }.items():
        assert larger_chunks_in([("a.py:0", text)], {"a.py:0"}, {}, 1, 1 / 6).words == advice


@pytest.mark.parametrize("text", EDITED)
def test_the_edit_of_a_line_changes_one_value(text: str) -> None:
    arrays = {"a.py:0": [STORE]}
    larger = larger_chunks_in([("a.py:0", text)], {"a.py:0"}, arrays, 1460, 100.0)
    assert larger.text == EDITED[text]
    assert larger.line == "a.py:0" or not EDITED[text]


def held(key: str, begin: float, end: float, **values: Any) -> tuple[Any, ...]:
    """Return a task run that holds its thread for 0.125 s before and after its function."""
    usual = {"state": "memory", "thread": 7, "disk_read": 0.0, "deserialize": 0.0}
    usual |= dict.fromkeys(("received", "ready"), T + begin - 0.25)
    usual |= {"executing": T + begin, "timestamp": T + begin + 0.125, "done": T + end}
    usual |= {"duration": end - begin - 0.25, "run_id": int(begin * 8)}
    return row(COMPUTE, key=key, **{**usual, **values})


def test_chunks_for_an_overhead(tmp_path: Path) -> None:
    """Consecutive tasks of 1 s hold their thread 0.25 s longer."""
    rows = [held(f"f-{i}", 1.25 * i, 1.25 * i + 1.25, size=2_000_000) for i in range(8)]
    analyser = written(tmp_path, *rows)
    (found,) = analyser.chunk_sizing(0.05).to_dict("records")
    assert (found["Function"], found["Task Runs Then"]) == ("f", 2)
    expected = {"Mean Task time (s)": 1.0, "Overhead per Task (s)": 0.25, "Overhead (%)": 20.0}
    expected |= {"Wanted Task time (s)": 4.75, "Times Larger": 4.75}  # 0.25 of 5
    expected |= {"Chunk Size (MB)": 2.0, "Wanted Chunk Size (MB)": 9.5}
    assert {name: found[name] for name in expected} == pytest.approx(expected)
    # Two threads: four tasks for each of them.
    assert found["Advice"].startswith("Make chunks 4 times larger, but not more")
    (found,) = analyser.chunk_sizing(0.1).to_dict("records")
    assert found["Advice"] == "Make chunks 2.25 times larger, to reduce overhead."
    (found,) = analyser.chunk_sizing(0.5).to_dict("records")
    assert (found["Times Larger"], found["Advice"]) == (1.0, "Large enough.")


def test_overhead_of_each_run(tmp_path: Path) -> None:
    sent = [
        row(
            TASK_RUN,
            key="f-1",
            run_id=24,
            worker=ADDRESS,
            timestamp=T + 2.0,
            duration=3.0,
            queued=T + 1,
        )
    ]
    rows = [
        held("f-0", 0.0, 1.5),
        # Runnable from 1 s, thread free from 1.5 s, and inputs available after 0.5 s of transfer.
        held("f-1", 3.0, 4.0, received=T + 2.25, ready=T + 2.75),
        # Runnable (received) 0.25 s before its start, long after its thread was free.
        held("f-2", 8.0, 9.0, disk_read=0.0625, deserialize=0.0625),
        held("f-3", 8.5, 9.0, thread=8),  # the first task run on its thread
        held("f-4", 9.0, 10.0, thread=None),  # a coroutine
        held("f-5", 10.0, 11.0, executing=None, received=None, ready=None, done=None),
    ]
    analyser = written(tmp_path, *rows, sent=sent)
    found = task_overhead(analyser.run)
    assert found.tolist() == pytest.approx(
        [0.25, 0.25 + 1.0, 0.125 + 0.25, 0.25, 0.25, np.nan], nan_ok=True
    )
