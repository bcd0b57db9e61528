"""Tasks are attributed to the steps of the program that built or computed them, on real workers."""

import asyncio
import contextlib
import contextvars
import gc
import threading
import time
import warnings
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from clusters import client_of, wait_until
from dask.highlevelgraph import HighLevelGraph
from distributed import Client, LocalCluster, get_worker, span
from recorded_facts import assert_whole, facts

import dasfprof
from dasfprof.recording.steps import recorder as step_recorder
from dasfprof.recording.steps.step import current_step

NONE = "(no step)"


@pytest.fixture(scope="module", autouse=True)
def no_run_goes_on() -> None:
    """Stop runs of other tests that could not be stopped because their scheduler was killed."""
    for recorder in step_recorder.steps.observers:
        recorder.stop()


client = client_of(2, 1)


def load(x: Any) -> Any:
    return x + 1.0


def normal(x: Any) -> Any:
    return x * 2.0


def steps_of(run: Any) -> dict[str, Counter[str]]:
    """Return the number of task runs by function and step."""
    tasks = run.analyser(progress=False).trace.tasks
    counts: dict[str, Counter[str]] = {}
    steps = tasks["step"].astype(object).fillna(NONE)
    for function, step in zip(tasks["function"], steps, strict=True):
        counts.setdefault(str(function), Counter())[step] += 1
    return counts


def numbers(chunks: int = 4) -> Any:
    """Return an array of one layer, whose name no other test uses."""
    return da.random.random((chunks, 10), chunks=(1, 10))


def wait_until_forgotten(client: Client) -> None:
    """Wait until results are released. Tasks would not run again before."""

    def is_forgotten() -> bool:
        gc.collect()  # futures may be in circles
        return not client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks))

    wait_until(is_forgotten)


class Unnamed:
    def __str__(self) -> str:
        raise ValueError


def test_futures_belong_to_steps_spans_and_annotations(client: Client, tmp_path: Path) -> None:
    @dasfprof.step("decorated")
    def compute(x: int, *, y: int) -> Any:
        """Compute."""
        return client.submit(load, x + y, pure=False).result()

    with dasfprof.profile(client, directory=tmp_path) as run:
        with dasfprof.step("one"):
            client.gather(client.map(load, range(100, 105), pure=False))
        with span("outer"), span("inner"):
            client.submit(abs, -1, pure=False).result()
        with dask.annotate(step="mine"):
            client.submit(round, 1, pure=False).result()
        with span("a"), dasfprof.step("given"):
            client.submit(sum, [1], pure=False).result()
        client.submit(load, 2, pure=False).result()
        assert compute(1, y=2) == 4
        for name in (17, "\ud800", "x" * 1_000_000, Unnamed(), ""):
            with dasfprof.step(name):  # type: ignore[arg-type]
                client.submit(normal, 1, pure=False).result()
    assert_whole(run)
    assert (compute.__name__, compute.__doc__) == ("compute", "Compute.")
    assert steps_of(run) == {
        "abs": {"outer/inner": 1},
        "round": {"mine": 1},
        "sum": {"given": 1},
        "load": {"one": 5, "decorated": 1, NONE: 1},
        "normal": {"17": 1, "?": 1, "x" * 200: 1, "Unnamed": 1, "": 1},
    }


def test_collections_belong_to_the_step_that_built_them(client: Client, tmp_path: Path) -> None:
    with dasfprof.profile(client, directory=tmp_path) as run:
        with dasfprof.step("load"):
            x = numbers()
            loaded = [dask.delayed(load)(number) for number in range(5)]
        with dasfprof.step("normalise"):
            y = (x - x.mean()).map_blocks(normal)
            named = dask.delayed(normal)(loaded[0], dask_key_name="normal-17")
        with dasfprof.step("keep"):
            z = y.rechunk((2, 10))
        z.compute()
        assert dask.compute(named, *loaded) == (2.0, 1.0, 2.0, 3.0, 4.0, 5.0)
        with dasfprof.step("persist"):
            x = numbers().persist()
        with dasfprof.step("use"):
            x.map_blocks(normal).compute()
    counts = steps_of(run)
    # `x` has two dependents, so that Dask does not fuse its tasks.
    assert counts["random_sample"] == {"load": 4, "persist": 4}
    assert counts["mean_chunk"] == {"normalise": 4}
    assert counts["normal"] == {"normalise": 4 + 1, "use": 4}
    assert counts["rechunk-merge"] == {"keep": 2}
    assert counts["load"] == {"load": 5}


def test_layers_fused_into_one_of_no_step_keep_theirs(client: Client, tmp_path: Path) -> None:
    with dasfprof.profile(client, directory=tmp_path) as run:
        with dasfprof.step("load"):
            x = da.ones((4, 10), chunks=(1, 10)).map_blocks(load)
        with dasfprof.step("normalise"):
            y = x.map_blocks(normal)
        assert y.sum().compute() == 160
    counts = steps_of(run)
    # Dask fuses `ones` and both functions into the tasks of the sum, which has no step.
    assert counts.pop("sum") == {"normalise": 4}
    assert set(sum(counts.values(), Counter())) == {NONE}


@pytest.mark.parametrize("kind", ["array", "dataframe"])
def test_built_anew_belongs_to_the_computing_step(
    kind: str, client: Client, tmp_path: Path
) -> None:
    x = np.arange(4.0)
    with dasfprof.profile(client, directory=tmp_path) as run:
        data = frame("anew")
        for number in range(3):
            with dasfprof.step(f"epoch {number}"):
                # The names are the same each time, because Dask derives them from the computation.
                if kind == "array":
                    assert da.from_array(x, chunks=1).map_blocks(normal).sum().compute() == 12
                else:
                    assert data.anew.sum().compute() == 15
            wait_until_forgotten(client)
    tasks = run.analyser(progress=False).trace.tasks
    assert len(set(tasks["step"].value_counts())) == 1
    assert set(tasks["step"]) == {"epoch 0", "epoch 1", "epoch 2"}


def frame(name: str) -> Any:
    """Return a dataframe with a column whose name no other test uses."""
    columns = {name: range(6), "b": [0, 1] * 3, "not needed": 0}
    return dd.from_pandas(pd.DataFrame(columns), npartitions=3)


def test_dataframe_of_several_steps(client: Client, tmp_path: Path) -> None:
    with dasfprof.profile(client, directory=tmp_path) as run, warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*[Aa]nnotations.*")
        outside = frame("outside too")
        with dasfprof.step("load"):
            data = frame("several")
        with dasfprof.step("clean"):
            clean = data[data.several > 0].assign(c=data.several + 1)
        with dasfprof.step("join"):
            joined = clean.merge(outside, on="b", how="inner", shuffle_method="tasks")
        with dasfprof.step("group"):
            grouped = joined.groupby("c").several.count()
        assert grouped.sum().compute() == 15
    counts = steps_of(run)
    # Another expression reads the data now, with only the needed columns.
    assert counts["frompandas"] == {"load": 3, NONE: 3}
    assert counts["taskshuffle"] == {"join": 6}
    assert counts["count-tree"] == {"group": 1}
    assert counts["sum-tree"] == {NONE: 1}
    assert list(run.analyser(progress=False).trace.steps["step"]) == [
        "load", "clean", "join", "group"
    ]  # fmt: skip


def test_nested_steps_and_when_they_were_entered(client: Client, tmp_path: Path) -> None:
    before = time.time()
    with dasfprof.profile(client, directory=tmp_path) as run, dasfprof.step("outer"):
        with dasfprof.step("inner"):
            client.submit(load, 1, pure=False).result()
        client.submit(normal, 1, pure=False).result()
        with dasfprof.step("inner"):
            client.submit(load, 2, pure=False).result()
    after = time.time()
    assert steps_of(run) == {"load": {"outer/inner": 2}, "normal": {"outer": 1}}
    steps = run.analyser(progress=False).trace.steps
    assert list(steps["step"]) == ["outer", "outer/inner", "outer/inner"]
    assert list(steps["name"]) == ["outer", "inner", "inner"]
    assert list(steps["parent"]) == [-1, 0, 0]
    start, end = steps["start"], steps["start"] + steps["duration"]
    assert before <= start[0] <= start[1] <= end[1] <= start[2] <= end[2] <= end[0] <= after + 1e-6


def test_two_threads_are_in_different_steps_at_once(client: Client, tmp_path: Path) -> None:
    meet = threading.Barrier(2, timeout=120)

    def work(name: str) -> None:
        with dasfprof.step(name):
            meet.wait()
            x = numbers(3).map_blocks(load if name == "one" else normal)
            meet.wait()
            x.compute()
            client.submit(abs if name == "one" else round, 1, pure=False).result()
            meet.wait()

    profile, step = dasfprof.profile(client, directory=tmp_path), dasfprof.step("main")
    with profile as run, step, ThreadPoolExecutor(2) as pool:
        list(pool.map(work, ("one", "two")))
    counts = steps_of(run)
    assert (counts["abs"], counts["round"]) == ({"one": 1}, {"two": 1})
    assert sum(counts.values(), Counter()).keys() == {"one", "two"}


def test_coroutines_are_in_different_steps_at_once(tmp_path: Path) -> None:
    async def work(client: Client, name: str, function: Any) -> None:
        with dasfprof.step(name):
            for number in range(3):
                await client.submit(function, number, pure=False)

    @dasfprof.step("decorated")
    async def decorated(client: Client) -> int:
        await client.submit(normal, 5, pure=False)
        return 5

    async def main() -> Any:
        async with (
            LocalCluster(
                n_workers=1, processes=False, asynchronous=True, dashboard_address=None
            ) as cluster,
            Client(cluster, asynchronous=True) as client,
        ):
            async with dasfprof.profile(client, directory=tmp_path) as run:
                await asyncio.gather(work(client, "one", load), work(client, "two", normal))
                assert await decorated(client) == 5
            return run

    counts = steps_of(asyncio.run(main()))
    assert counts == {"load": {"one": 3}, "normal": {"two": 3, "decorated": 1}}


def test_steps_left_by_an_exception_and_in_another_order_or_context() -> None:
    with pytest.raises(KeyError, match="mine"), dasfprof.step("s"):
        raise KeyError("mine")
    assert current_step() is None
    outer, inner = dasfprof.step("outer"), dasfprof.step("inner")
    outer.__enter__()
    inner.__enter__()
    outer.__exit__(None, None, None)
    assert current_step() is None
    inner.__exit__(None, None, None)
    other = contextvars.copy_context()
    other.run(outer.__enter__)
    outer.__exit__(None, None, None)
    assert current_step() is None


def test_a_step_that_was_entered_before_the_run_began(client: Client, tmp_path: Path) -> None:
    with dasfprof.step("early"):
        with dasfprof.profile(client, directory=tmp_path) as run:
            numbers().map_blocks(load).compute()
        client.submit(load, 3, pure=False).result()
    counts = sum(steps_of(run).values(), Counter())
    assert set(counts) == {"early"}
    assert list(run.analyser(progress=False).trace.steps["step"]) == ["early"]


def test_hooks_are_placed_only_while_a_run_records(client: Client, tmp_path: Path) -> None:
    def placed() -> tuple[Any, ...]:
        return (
            *(vars(HighLevelGraph)[name] for name in ("from_collections", "__init__")),
            vars(Client)["_graph_to_futures"],
            vars(dd.DataFrame.__mro__[1])["__init__"],
        )

    def annotations() -> Any:
        worker = get_worker()
        return dict(worker.state.tasks[worker.get_current_task()].annotations or {})

    before = placed()
    run = dasfprof.register_default_profiler(client, directory=tmp_path)
    assert placed() != before
    again = dasfprof.register_default_profiler(client, directory=tmp_path)
    with dasfprof.step("s"):
        numbers().compute()
    again.stop()
    run.stop()
    assert not facts(run, "StepRecorder", "Step")
    assert facts(again, "StepRecorder", "Step")
    with dasfprof.step("s"):
        assert placed() == before
        current = current_step()
        assert current is not None
        assert current.names == ("s",)
        assert client.submit(annotations, pure=False).result() == {}


def test_steps_change_neither_graphs_nor_results(client: Client, tmp_path: Path) -> None:
    seen: list[int] = []

    def count_tasks(dask_scheduler: Any) -> int:
        prefixes = dask_scheduler.task_prefixes.values()
        return sum(prefix.state_counts["memory"] for prefix in prefixes)

    def pipeline(step: Any) -> float:
        with step("load"):
            x = da.arange(40, chunks=10).map_blocks(load)
        with step("normalise"):
            y = (x - x.mean()).map_blocks(normal)
        with step("sum"):
            begin = client.run_on_scheduler(count_tasks)
            total = (y * y).sum().compute()
            seen.append(client.run_on_scheduler(count_tasks) - begin)
        return float(total)

    plain = pipeline(lambda name: contextlib.nullcontext())
    with dasfprof.profile(client, directory=tmp_path):
        assert pipeline(dasfprof.step) == plain
    assert seen[0] == seen[1] > 4
