"""Nodes of a DASF pipeline are steps. DASF is in no package index: `Pipeline` here calls alike."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array as da
import pytest
from clusters import client_of
from distributed import Client

import dasfprof


class PipelinePlugin:
    """DASF's interface of callbacks."""

    def on_pipeline_start(self, fn_keys: Any) -> None: ...
    def on_pipeline_end(self) -> None: ...
    def on_task_start(self, func: Any, params: Any, name: Any) -> None: ...
    def on_task_end(self, func: Any, params: Any, name: Any, ret: Any) -> None: ...
    def on_task_error(self, func: Any, params: Any, name: Any, exception: Any) -> None: ...


class Executor:
    def __init__(self, client: Client) -> None:
        self.client = client


class Pipeline:
    """Runs functions one after the other, each with the result of the one before, as DASF does."""

    def __init__(self, client: Client, *nodes: tuple[str, Callable[[Any], Any]]) -> None:
        self._executor = Executor(client)
        self._callbacks: list[PipelinePlugin] = []
        self._nodes = nodes

    def register_plugin(self, plugin: Any) -> None:
        assert isinstance(plugin, PipelinePlugin)
        self._callbacks.append(plugin)

    def _tell(self, what: str, *args: Any, **kwargs: Any) -> None:
        for callback in self._callbacks:
            getattr(callback, what)(*args, **kwargs)

    def run(self) -> Any:
        self._tell("on_pipeline_start", [hash(function) for _, function in self._nodes])
        result, failed = None, False
        for name, function in self._nodes:
            if failed:
                continue
            try:
                self._tell("on_task_start", func=function, params=None, name=name)
                result = function(result)
                self._tell("on_task_end", func=function, params=None, name=name, ret=result)
            except Exception as error:
                self._tell("on_task_error", func=function, params=None, name=name, exception=error)
                failed = True
        self._tell("on_pipeline_end")
        return result


class Subclass(Pipeline):
    pass


Subclass.__module__ = "somewhere.else"


class Scale:
    def __init__(self, factor: float) -> None:
        self.factor = factor

    def transform(self, x: Any) -> Any:
        return (x - x.mean()) * self.factor


def load(_: Any) -> Any:
    return da.random.random((4, 4), chunks=(1, 4))


def total(x: Any) -> Any:
    return x.sum().compute()


def fail(x: Any) -> Any:
    raise ValueError("no")


client = client_of(1, processes=False)


@pytest.mark.parametrize("kind", [Pipeline, Subclass])
def test_each_node_is_a_step(kind: type[Pipeline], client: Client, tmp_path: Path) -> None:
    nodes = [("Data.load", load), ("Scale.transform", Scale(2).transform)]
    nodes += [("Scale.transform", Scale(3).transform), ("total", total)]
    pipeline = kind(client, *nodes)
    run = dasfprof.register_default_profiler(pipeline, directory=tmp_path)
    pipeline.run()
    pipeline.run()
    run.stop()
    assert pipeline._callbacks == []
    trace = run.analyser(progress=False).trace
    names = ["Data.load", "Scale.transform", "Scale.transform (2)", "total"]
    assert list(trace.steps["step"]) == names * 2
    counts = trace.tasks.groupby(["function", "step"], observed=True).size().to_dict()
    assert counts["random_sample", "Data.load"] == 8
    # Each of the two means and both are known by the hash of what they are made of.
    assert counts["mean_chunk", "Scale.transform"] == 8
    assert counts["mean_chunk", "Scale.transform (2)"] == 8
    assert counts["sum", "total"] == 8
    assert not trace.tasks["step"].isna().any()


def test_a_node_that_fails_is_left(client: Client, tmp_path: Path) -> None:
    pipeline = Pipeline(client, ("load", load), ("fail", fail), ("total", total))
    with dasfprof.profile(pipeline, directory=tmp_path) as run:
        pipeline.run()
        client.submit(abs, -7).result()
    trace = run.analyser(progress=False).trace
    assert list(trace.steps["step"]) == ["load", "fail"]
    assert trace.steps["duration"].notna().all()
    assert trace.tasks["step"].isna().all()


def test_what_only_looks_like_a_pipeline_is_recorded_all_the_same(
    client: Client, tmp_path: Path
) -> None:
    class Refusing(Pipeline):
        def register_plugin(self, plugin: Any) -> None:
            raise TypeError("none of these")

    pipeline = Refusing(client, ("load", load), ("total", total))
    with dasfprof.profile(pipeline, directory=tmp_path) as run:
        pipeline.run()
    assert run.analyser(progress=False).trace.tasks["step"].isna().all()
