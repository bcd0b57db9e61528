"""Work in progress is in the files, whichever of the processes that wrote them dies."""

import signal
import textwrap
import time
from pathlib import Path
from typing import Any

import independent_record as record
import pytest
from clusters import new_client
from dask_processes import Processes
from recorded_facts import computed, facts, frames_of

import dasfprof
from dasfprof import TraceAnalyser
from dasfprof.database.reader import TraceFile

pytestmark = pytest.mark.whole_program

SCRIPT = """
    import sys
    import dasfprof
    from distributed import Client, Event

    def never():
        Event("never").wait()

    if __name__ == "__main__":
        scheduler_file, directory = sys.argv[1:]
        with Client(scheduler_file=scheduler_file, timeout=120) as client:
            client.wait_for_workers(2)
            dasfprof.register_default_profiler(client, directory=directory)
            future = client.submit(never, key="never-1")
            rest = client.map(lambda i, _: i, range(50), _=future, key="rest")
            future.result()
"""


def last(source: Any, plugin: str, name: str, **wanted: Any) -> dict[str, Any] | None:
    rows = facts(source, plugin, name)
    found = [row for row in rows if all(row[key] == value for key, value in wanted.items())]
    return found[-1] if found else None


def task(source: Any) -> dict[str, Any] | None:
    return last(source, "TracePlugin", "Task Under Way", key="never-1")


def is_all_told(source: Path) -> bool:
    """Return whether each process has written its part of the work in progress."""
    state = last(source, "SchedulerPlugin", "Scheduler State")
    client = last(source, "StepRecorder", "Client Under Way", waits_in="result")
    return bool(task(source) and client and state and state["unfinished"] == 51)


def assert_told(traces: Path, script: Path) -> None:
    """Assert that the files contain the state of the task, the scheduler and the client."""
    row = task(traces)
    assert row is not None
    assert row["state"] in ("executing", "cancelled")  # the leaving client releases it
    assert (row["waits_in"], row["waits_for"]) == ("Event", "never")
    line = script.read_text().splitlines().index('    Event("never").wait()') + 1
    # The worker may not know the source file of the function, but the client's trace file has it.
    name, _, number = frames_of(traces, "TracePlugin", row)[0]
    assert [name, number] == ["never", line]
    told = TraceAnalyser(traces, progress=False).trace.stacks["frames"]
    assert {frames[0][1] for frames in told if frames[0][0] == "never"} == {str(script)}
    client = last(traces, "StepRecorder", "Client Under Way", waits_in="result")
    assert client is not None
    assert client["waits_keys"] == ["never-1"]
    names = [frame[0] for frame in frames_of(traces, "StepRecorder", client)]
    assert names[0] == "<module>"
    (state, *_) = (
        row
        for row in facts(traces, "SchedulerPlugin", "Scheduler State")
        if row["tasks"] == {"never": {"processing": 1}, "rest": {"waiting": 50}}
    )
    assert state["unfinished"] == 51
    for path in traces.glob("*.msgpack"):
        file = TraceFile(path)
        list(file.batches())
        assert (file.damage.corrupt_bytes, file.errors, file.dropped) == (0, 0, 0), path


def start(processes: Processes) -> tuple[Any, Path, Path]:
    """Run the script until all processes have written about the hanging task."""
    script, traces = processes.directory / "hangs.py", processes.directory / "traces"
    script.write_text(textwrap.dedent(SCRIPT))
    process = processes.start(str(script), str(processes.scheduler_file), str(traces))
    record.wait_until(lambda: traces.exists() and is_all_told(traces), every=0.3)
    return process, script, traces


def last_state(traces: Path) -> dict[str, Any] | None:
    """Return the scheduler's state when the script's client left."""
    client = last(traces, "StepRecorder", "Client Under Way", waits_in="result")
    assert client is not None
    wanted = {"occasion": "client-left", "client": client["client"]}
    return last(traces, "SchedulerPlugin", "Scheduler State", **wanted)


@pytest.mark.parametrize("cause", [pytest.param("SIGINT", marks=pytest.mark.slow), "SIGKILL"])
def test_the_client_dies_and_its_cluster_does_not(processes: Processes, cause: str) -> None:
    processes.cluster(False, False)
    process, script, traces = start(processes)
    process.send_signal(getattr(signal, cause))
    process.wait()
    left = record.wait_until(lambda: last_state(traces))
    assert_told(traces, script)
    assert left["tasks"] == {"never": {"processing": 1}, "rest": {"waiting": 50}}
    (mine,) = (one for one in left["clients"] if one["client"] == left["client"])
    assert (mine["wanted"], mine["unfinished"]) == (51, 51)
    # The cancelled tasks are recorded as such; the assigned task has a task run.
    states = "SchedulerPlugin", "Scheduler State"
    after = record.wait_until(lambda: last(traces, *states, occasion="interval", unfinished=0))
    assert after["tasks"] == {}
    ended = last(traces, "SchedulerPlugin", "Task Run", key="never-1")
    assert ended is not None
    assert ended["end_cause"].startswith("remove-client")
    assert record.wait_until(
        lambda: last(traces, "TracePlugin", "Task Under Way", key="never-1", state="cancelled")
    )


class SlowToSend:
    """Result whose transfer to another worker waits for a file."""

    def __init__(self, file: str | None) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        end = time.monotonic() + 120
        while self.file and not Path(self.file).exists():
            assert time.monotonic() < end
            time.sleep(0.05)
        return SlowToSend, (None,)


def test_a_task_that_waits_for_its_inputs(tmp_path: Path) -> None:
    def under_way(**wanted: Any) -> Any:
        return record.wait_until(lambda: last(run, "TracePlugin", "Task Under Way", **wanted))

    with (
        new_client(n_workers=2, threads_per_worker=1) as client,
        dasfprof.profile(client, directory=tmp_path / "traces") as run,
    ):
        first, second = client.nthreads()
        there = client.submit(SlowToSend, str(tmp_path / "one"), key="slow-1", workers=[first])
        begin = time.time()
        here = client.submit(type, there, key="type-1", workers=[second])
        row = under_way(key="type-1")
        assert (row["state"], row["waits_keys"], row["thread"]) == ("fetching", ["slow-1"], None)
        assert begin - 0.1 <= row["since"] <= row["timestamp"] - 1
        assert row["address"] == second
        (tmp_path / "one").touch()
        here.result()
        again = client.submit(SlowToSend, str(tmp_path / "two"), key="slow-2", workers=[first])
        thrown_away = client.submit(type, again, key="type-2", workers=[second])
        under_way(key="type-2")
        thrown_away.cancel()
        under_way(key="type-2", state="released")
        (tmp_path / "two").touch()
    assert "type-2" not in {one["key"] for one in computed(run)}
    rows = facts(run, "TracePlugin", "Task Under Way")
    assert [one["state"] for one in rows if one["key"] == "type-1"].count("released") == 0
