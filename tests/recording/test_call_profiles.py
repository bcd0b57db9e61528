"""The call profiler counts calls in the tasks of each function, in files next to the trace."""

import cProfile
import os
import pstats
import shutil
import signal
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from clusters import client_of, new_client, wait_until
from distributed import Client, Event
from recorded_facts import assert_whole, facts

import dasfprof
from dasfprof import TraceAnalyser
from dasfprof.recording import call_profiles as observer
from dasfprof.recording.call_profiles import ThreadProfile

client = client_of(2, 2, processes=False)
profile = partial(dasfprof.profile, profiler="cprofile")
register = partial(dasfprof.register_default_profiler, profiler="cprofile")


def leaf(number: int) -> int:
    return number + 1


def descend(depth: int) -> int:
    return descend(depth - 1) + 1 if depth else 0


def outer(calls: int) -> int:
    for number in range(calls):
        leaf(number)
    return descend(3)


def other(calls: int) -> int:
    return [leaf(number) for number in range(calls)][-1]


def calls_of(source: Any, function: str | None = None) -> dict[str, tuple[int, int]]:
    """Return calls and primitive calls of this file's functions."""
    table = TraceAnalyser(source, progress=False).cprofile(function)
    table = table[table["File"] == __file__]
    figures = zip(table["Calls"], table["Primitive Calls"], strict=True)
    return dict(zip(table["Code"], figures, strict=True))


def spin(seconds: float) -> int:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass
    return 1


def spin_long(_: int) -> int:
    return spin(0.3)


def spin_twice(_: int) -> int:
    return spin(0.15) + spin_long(0)


#: Source of functions that are pickled with tasks: each task has a code object for the same line.
BROUGHT = "def leaf():\n    return 1\n\ndef brought(n):\n    return sum(leaf() for _ in range(n))\n"


def test_calls_and_times_of_functions(client: Client, tmp_path: Path) -> None:
    """Only one task run at a time is profiled in a process, and its calls are counted exactly."""
    scope: dict[str, Any] = {"__name__": "__main__"}
    with profile(client, directory=tmp_path) as run:
        results = client.map(outer, [100] * 10, pure=False)
        results += client.map(other, [50] * 4, pure=False)
        assert client.gather(results) == [3] * 10 + [50] * 4
        assert client.submit(spin_twice, 0, pure=False).result() == 2
        for number in range(5):
            exec(compile(BROUGHT, "/home/me/brought.py", "exec"), scope)
            assert client.submit(scope["brought"], 10, key=f"brought-{number}").result() == 10
    assert_whole(run)
    analyser = TraceAnalyser(tmp_path, progress=False)
    files = analyser.call_profiles()
    runs, left_out = (files.groupby("Function")[each].sum() for each in ("Task Runs", "Left Out"))
    submitted = {"outer": 10, "other": 4, "spin_twice": 1, "brought": 5}
    assert (runs + left_out).to_dict() == submitted
    assert (set(files["Profiler"]), set(files["Refused"])) == ({"cprofile"}, {""})
    # Each run of outer calls leaf 100 times, and descend 4 times, 3 of these recursively.
    outers, others = int(runs["outer"]), int(runs["other"])
    assert outers >= 1
    assert calls_of(tmp_path, "outer") == {
        "outer": (outers, outers),
        "leaf": (100 * outers, 100 * outers),
        "descend": (4 * outers, outers),
    }
    assert calls_of(tmp_path)["leaf"][0] == 100 * outers + 50 * others
    assert calls_of(tmp_path, "no such function") == {}
    # pstats of the standard library reads the same counts, with callers.
    assert set(files["File"]) - {""} == set(map(str, tmp_path.glob("*.pstats")))
    named = analyser.cprofile("outer").attrs["files"]
    read: Any = pstats.Stats(*named)
    (place,) = [place for place in read.stats if place[2] == "leaf"]
    assert {caller[2] for caller in read.stats[place][4]} == {"outer"}
    assert not [place for place in read.stats if place[0] == observer.__file__]
    assert sys.getprofile() is None
    if hasattr(sys, "monitoring"):
        assert sys.monitoring.get_tool(4) is None
    table = analyser.cprofile("brought")
    counted = dict(zip(table["Code"], table["Calls"], strict=True))
    assert (counted["brought"], counted["leaf"]) == (5, 50)
    table = analyser.cprofile("spin_twice").set_index("Code")
    whole, within = table.loc["spin_twice"], table.loc["spin_long"]
    assert whole["Cumulative Time (s)"] >= 0.45
    assert 0.3 <= within["Cumulative Time (s)"] <= whole["Cumulative Time (s)"] - 0.15
    assert whole["Time (s)"] < 0.1 * whole["Cumulative Time (s)"]
    assert table["Share (%)"].sum() == pytest.approx(100)


def test_a_task_run_beside_a_profiled_one_is_not_profiled(client: Client, tmp_path: Path) -> None:
    workers = list(client.nthreads())[:1]
    with profile(client, directory=tmp_path) as run:
        first = client.submit(wait_for, "first", key="first-1", workers=workers)
        assert client.submit(wait_for, "never", 0.01, key="second-1", workers=workers).result() == 0
        Event("first").set()
        assert first.result() == 3
        run.flush()
    files = TraceAnalyser(tmp_path, progress=False).call_profiles().set_index("Function")
    counted = files.loc[["first", "second"], ["Task Runs", "Left Out"]].to_numpy().tolist()
    assert counted in ([[1, 0], [0, 1]], [[0, 1], [1, 0]])


def fail() -> None:
    raise KeyError("planted")


def profiles_itself() -> int:
    profiler = cProfile.Profile()
    value = profiler.runcall(outer, 7)
    counted = {entry.code.co_name: entry.callcount for entry in profiler.getstats()
               if not isinstance(entry.code, str)}  # fmt: skip
    assert counted["leaf"] == 7
    return value


def test_results_errors_and_profilers_are_as_without(client: Client, tmp_path: Path) -> None:
    with profile(client, directory=tmp_path):
        with pytest.raises(KeyError, match="planted"):
            client.submit(fail, pure=False).result()
        assert client.submit(profiles_itself, pure=False).result() == 3
        assert client.submit(outer, 5, pure=False).result() == 3
    files = TraceAnalyser(tmp_path, progress=False).call_profiles().set_index("Function")
    assert files.loc["fail", "Task Runs"] == 1
    assert calls_of(tmp_path, "outer")["leaf"] == (5, 5)
    own = files.loc["profiles_itself"]
    assert own["Task Runs"] + own["Left Out"] == 1


def test_a_thread_with_another_profiler_is_left_alone() -> None:
    if hasattr(sys, "monitoring"):
        sys.monitoring.use_tool_id(4, "another")
        assert not ThreadProfile().start()
        assert sys.monitoring.get_tool(4) == "another"
        sys.monitoring.free_tool_id(4)
    else:
        sys.setprofile(lambda *_: None)
        assert not ThreadProfile().start()
        sys.setprofile(None)


def test_other_threads_are_not_in_a_profile() -> None:
    done = threading.Event()

    def beside() -> None:
        while not done.is_set():
            descend(2)

    thread = threading.Thread(target=beside)
    thread.start()
    profile = ThreadProfile()
    try:
        assert profile.start()
        assert outer(20_000) == 3
        profile.stop()
    finally:
        done.set()
        thread.join()
    read: Any = pstats.Stats(profile)
    counted = {place[2]: figures[1] for place, figures in read.stats.items()}
    assert (counted["leaf"], counted["descend"]) == (20_000, 4)
    assert "beside" not in counted


def test_failing_profiler(client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError("injected")

    monkeypatch.setattr(observer.ThreadProfile, "start", broken)
    with profile(client, directory=tmp_path) as run:
        assert client.submit(outer, 6, pure=False).result() == 3
    assert calls_of(tmp_path) == {}
    assert len(facts(run, "TracePlugin", "Compute")) == 1


def test_files_are_bounded(client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observer, "MOST_FUNCTIONS", 1)
    monkeypatch.setattr(observer, "MOST_CALLED", 3)
    with profile(client, directory=tmp_path) as run:
        workers = list(client.nthreads())
        for name in ("first-1", "second-1"):
            client.submit(outer, 2, key=name, workers=workers[:1]).result()
        run.flush()
        client.submit(outer, 3, key="first-2", workers=workers[:1]).result()
    files = TraceAnalyser(tmp_path, progress=False).call_profiles()
    assert files["Function"].tolist() == ["first"]
    # Before the second run, the limit of functions was reached.
    assert (files["Task Runs"].tolist(), files["Left Out"].tolist()) == ([1], [1])
    assert calls_of(tmp_path, "first")["leaf"] == (2, 2)
    lost = [note.text for note in TraceAnalyser(tmp_path, progress=False).trace.notes]
    assert any("are not in a profile of calls" in text for text in lost)
    # Damaged files are not read.
    (path,) = tmp_path.glob("*.pstats")
    whole = path.read_bytes()
    for damaged in (b"", whole[: len(whole) // 2], b"N", b"\xff" * 100):
        path.write_bytes(damaged)
        assert calls_of(tmp_path) == {}


def wait_for(event: str, seconds: float = 240) -> int:
    return outer(1) if Event(event).wait(seconds) else 0


def test_flush_and_collect_bring_files_along(client: Client, tmp_path: Path) -> None:
    run = register(client, directory=tmp_path / "here")
    for _ in range(4):
        assert client.submit(outer, 3, pure=False).result() == 3
    going_on = client.submit(wait_for, "go-on")
    copies = run.collect(tmp_path / "there")
    assert {path.suffix for path in copies} == {".msgpack"}
    assert calls_of(tmp_path / "there", "outer")["leaf"] == (12, 12)
    assert calls_of(tmp_path / "there", "wait_for") == {}
    for path in (tmp_path / "here").glob("*.pstats"):
        path.unlink()
    assert calls_of(tmp_path / "here", "outer") == {}  # the files were removed
    Event("go-on").set()
    assert going_on.result() == 3
    run.stop()
    assert calls_of(tmp_path / "here", "wait_for")["leaf"] == (1, 1)
    assert not list((tmp_path / "here").glob("*.part"))


@pytest.mark.skipif(not hasattr(sys, "monitoring"), reason="cProfile sees one thread")
def test_a_refused_python(client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(observer._METHODS, "CALL", "_missing")
    with profile(client, directory=tmp_path):
        assert client.submit(outer, 3, pure=False).result() == 3
    files = TraceAnalyser(tmp_path, progress=False).call_profiles()
    assert all("cannot profile a single thread" in reason for reason in files["Refused"])
    assert set(files["File"]) == {""}


def test_a_directory_that_is_gone_costs_no_task(client: Client, tmp_path: Path) -> None:
    run = register(client, directory=tmp_path / "traces")
    assert client.submit(outer, 2, pure=False).result() == 3
    shutil.rmtree(tmp_path / "traces")
    (tmp_path / "traces").touch()
    run.flush()
    assert client.submit(outer, 2, pure=False).result() == 3
    run.stop()
    assert sys.getprofile() is None


def test_a_killed_worker_leaves_what_was_written(tmp_path: Path) -> None:
    with (
        new_client(n_workers=1, threads_per_worker=1) as client,
        profile(client, directory=tmp_path) as run,
    ):
        assert client.submit(outer, 4, pure=False).result() == 3
        run.flush()
        killed = client.submit(kill_this_process)
        wait_until(lambda: len(list(tmp_path.glob("*-TracePlugin-*.msgpack"))) > 1)
        killed.release()
    assert calls_of(tmp_path, "outer")["leaf"] == (4, 4)


def kill_this_process() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
