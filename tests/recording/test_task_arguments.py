"""Arguments of task runs are recorded by type and size; values only if requested, without side
effects."""

from pathlib import Path
from threading import Event
from time import sleep
from typing import Any

import dask
import numpy as np
import pytest
from clusters import client_of, wait_until
from distributed import Client
from recorded_facts import assert_whole

import dasfprof
from dasfprof import TraceAnalyser
from dasfprof.recording.task_runs import arguments

SECRET = "hunter2"
#: Seconds of `slow`, long enough for its arguments to be recorded.
NAP = 0.5


class Loud:
    """Object that prints a message whenever its code is called."""

    calls: list[str] = []  # noqa: RUF012

    def __repr__(self) -> str:
        self.calls.append("repr")
        raise RuntimeError("called")

    def __len__(self) -> int:
        self.calls.append("len")
        return 7

    @property
    def shape(self) -> Any:
        self.calls.append("shape")
        raise RuntimeError("called")


class Named(list):  # type: ignore[type-arg]
    __len__ = Loud.__len__
    calls = Loud.calls


Named.__name__ = Named.__qualname__ = "list"


def slow(data: Any, text: Any = None, *more: Any, **options: Any) -> Any:
    sleep(NAP)
    return data


def quick(data: Any) -> Any:
    if data == "bad":
        raise ValueError(data)
    return data


client = client_of(1, 2, processes=False)


def told(directory: Path, function: str | None = None) -> list[str]:
    table = TraceAnalyser(directory, progress=False).task_arguments(function)
    return list(table["Arguments"])


def test_types_without_values(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a busy machine, brief task runs may also take 10 ms.
    monkeypatch.setattr("dasfprof.recording.plugins.tasks.LEAST", NAP)
    array = np.zeros((3, 4))
    with dasfprof.profile(client, directory=tmp_path) as run:
        made = client.submit(slow, array, SECRET, 1, [1, 2], password=SECRET, pure=False)
        made.result()
        client.submit(slow, made, text={SECRET: made}, pure=False).result()
        client.submit(quick, 1, pure=False).result()
        client.submit(quick, "bad", pure=False, priority=3, retries=1).exception()
        with dask.annotate(secret=SECRET):
            dask.delayed(slow)(Loud(), Named([1])).compute()
    assert_whole(run)
    assert Loud.calls == []
    assert set(told(tmp_path, "slow")) == {
        "data: numpy.ndarray float64 (3, 4); text: str of 7; 2: int; 3: list of 2; "
        "password: str of 7",
        f"data: {__name__}.Loud; text: {__name__}.list",
        "data: result, numpy.ndarray float64 (3, 4); text: dict with results",
    }
    # Only failed ones of the brief task runs have arguments.
    (row,) = TraceAnalyser(tmp_path, progress=False).task_arguments("quick").to_dict("records")
    assert (row["Arguments"], row["Annotations"]) == ("data: str of 3", "priority 3, retries 1")
    assert (row["Task Runs"], row["Function"]) == (2, "quick")
    files = b"".join(path.read_bytes() for path in tmp_path.glob("*-TracePlugin-*"))
    assert SECRET.encode() not in files


def test_nothing_if_it_is_not_wanted_and_bounds(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(dasfprof.errors.InvalidArgumentError, match="arguments='all'"):
        dasfprof.profile(client, arguments="all").__enter__()  # type: ignore[arg-type]
    with dasfprof.profile(client, directory=tmp_path / "off", arguments="off"):
        client.submit(slow, 1, pure=False).result()
    assert told(tmp_path / "off") == []
    monkeypatch.setattr(arguments, "MOST_RUNS", 3)
    monkeypatch.setattr(arguments, "LONGEST", 20)
    with dasfprof.profile(client, directory=tmp_path / "few") as run:
        client.gather(client.map(slow, range(6), text="y", pure=False))
    table = TraceAnalyser(tmp_path / "few", progress=False).task_arguments()
    assert table["Arguments"].tolist() == ["data: int; text: st…"]
    assert table["Task Runs"].tolist() == [3]
    assert_whole(run)


def test_an_error_in_the_look_changes_nothing(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError("injected")

    monkeypatch.setattr(arguments, "arguments_of", broken)
    with dasfprof.profile(client, directory=tmp_path):
        assert client.submit(slow, 5, pure=False).result() == 5
    assert told(tmp_path) == []
    assert len(TraceAnalyser(tmp_path, progress=False).trace.tasks) == 1


BEGUN, CANCELLED = Event(), Event()


def fail_when_cancelled() -> None:
    BEGUN.set()
    CANCELLED.wait(60)
    raise ValueError


def test_a_run_that_fails_when_its_task_is_forgotten(client: Client, tmp_path: Path) -> None:
    with dasfprof.profile(client, directory=tmp_path):
        future = client.submit(fail_when_cancelled, key="cancelled-1")
        assert BEGUN.wait(60)
        future.cancel()
        state = next(iter(client.cluster.workers.values())).state
        wait_until(lambda: state.tasks["cancelled-1"].state == "cancelled")
        CANCELLED.set()
        wait_until(lambda: "cancelled-1" not in state.tasks)
    trace = TraceAnalyser(tmp_path, progress=False).trace
    assert trace.tasks["state"].tolist() == ["erred"]
    assert "caught-errors" not in {note.kind for note in trace.notes}
