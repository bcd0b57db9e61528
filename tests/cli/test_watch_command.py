"""``dasfprof watch`` next to real clusters, in pipes and in a terminal."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from clusters import client_of, wait_for, wait_until
from distributed import Client, Event, LocalCluster
from shell import BIN, DEADLINE, environment, invoke, shell

import dasfprof
from dasfprof.analysis.live import LiveRun, RunState

pytestmark = pytest.mark.whole_program

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


client = client_of(2, 1)


def nap(number: int, seconds: float) -> int:
    time.sleep(seconds)
    return number


def fail(number: int) -> None:
    raise ValueError(number)


@contextmanager
def in_terminal(*command: Any, **variables: Any) -> Iterator[tuple[subprocess.Popen[bytes], Any]]:
    """Run a command in a terminal, and yield the process and a function that returns its output."""
    ours, its = pty.openpty()
    shown = bytearray()
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), its)
    env = environment(LINES=40, TERM="xterm-256color", **variables)
    process = subprocess.Popen([*map(str, command)], env=env, start_new_session=True, **streams)
    os.close(its)

    def read() -> None:
        with suppress(OSError):
            while piece := os.read(ours, 1 << 16):
                shown.extend(piece)

    reader = Thread(target=read)
    reader.start()
    try:
        yield process, lambda: shown.decode()
    finally:
        process.kill()
        process.wait()
        reader.join()
        os.close(ours)


def words(text: str) -> str:
    return " ".join(text.split())


def following(directory: Path) -> LiveRun | None:
    """Follow the run in a directory as soon as it exists."""
    with suppress(dasfprof.DasfprofError):
        return LiveRun(directory)
    return None


def all_is_read(state: RunState) -> bool:
    return (state.done, state.failed, state.busy) == (6, 1, 1) and state.on_workers == 1


def test_a_state_as_json_while_the_run_goes_on(client: Client, tmp_path: Path) -> None:
    """Unfinished and finished tasks equal those in the client's record."""
    gate = "gate of json"
    with dasfprof.profile(client, name="run", directory=tmp_path):
        done = client.map(nap, range(6), seconds=0.01, pure=False)
        failed = client.submit(fail, 1)
        client.gather(done)
        waiting = client.submit(wait_for, gate, pure=False)

        try:
            live = wait_until(lambda: following(tmp_path))
            wait_until(lambda: all_is_read(live.read()))
            done = shell("dasfprof", "watch", "--once", "--json", ".", cwd=tmp_path)
        finally:
            Event(gate, client=client).set()
        told = json.loads(done.stdout)
        assert told["goes_on"] is True
        counts = {f["function"]: (f["done"], f["failed"]) for f in told["functions"]}
        assert {name: counts[name] for name in ("nap", "fail")} == {"nap": (6, 0), "fail": (0, 1)}
        assert told["threads"] == 2
        assert sorted(worker["name"] for worker in told["workers"]) == ["0", "1"]
        assert all(worker["memory"] > 1e6 for worker in told["workers"])
        assert waiting.result()
        assert failed.status == "error"
        told = invoke("analyse", tmp_path).stdout
        assert told.splitlines()[0].endswith(", in progress")
        assert "ended without closing" not in told
        about = invoke("info", tmp_path).stdout
        assert re.search(r"in progress +\d files of \d still being written", about)
        assert re.search(r"lost +nothing", about)


def test_the_end_of_a_run_in_a_pipe(client: Client, tmp_path: Path) -> None:
    with dasfprof.profile(client, name="run", directory=tmp_path):
        wait_until(lambda: following(tmp_path))
        options: dict[str, Any] = {"stdout": subprocess.PIPE, "text": True, "env": environment()}
        watch = subprocess.Popen([BIN / "dasfprof", "watch", tmp_path], **options)
        client.gather(client.map(nap, range(10), seconds=0.05, pure=False))
    printed, _ = watch.communicate(timeout=DEADLINE)
    assert watch.returncode == 0
    assert "\x1b" not in printed
    assert "10 task runs of 1 function" in printed
    assert "Findings" in printed


def test_in_a_terminal_until_ctrl_c(client: Client, tmp_path: Path) -> None:
    with dasfprof.profile(client, name="run", directory=tmp_path) as run:
        client.gather(client.map(nap, range(5), seconds=0.05, pure=False))
        run.flush()
        with in_terminal(BIN / "dasfprof", "watch", tmp_path, COLUMNS=100) as (watch, shown):
            wait_until(lambda: "nap" in shown())
            assert "\x1b[?25l" in shown()  # the cursor is hidden meanwhile
            watch.send_signal(signal.SIGINT)
            assert watch.wait(DEADLINE) == 0
            wait_until(lambda: shown().endswith("\x1b[?25h") or "\x1b[?25h" in shown())
            assert "Traceback" not in shown()
            assert "Aborted" not in shown()
        assert client.submit(nap, 1, seconds=0).result() == 1


#: Two tasks that acquire two locks in reverse order, recorded into the second argument's directory.
CROSSED = """
import sys, time, dasfprof
from distributed import Client, Event, Lock
def take(first, second):
    with Lock(first):
        Event(first).set()
        Event(second).wait()
        with Lock(second):
            return first
if __name__ == "__main__":
    client = Client(sys.argv[1])
    dasfprof.register_default_profiler(client, "run", directory=sys.argv[2])
    client.submit(sum, [1, 2]).result()
    names = [("crossed a", "crossed b"), ("crossed b", "crossed a")]
    tasks = [client.submit(take, *pair, workers=[worker]) for pair, worker in zip(names, (0, 1))]
    time.sleep(600)
"""


def test_crossed_locks_whose_client_is_killed(tmp_path: Path) -> None:
    """The hang is shown first, with advice, and a killed client does not end the run."""
    (tmp_path / "crossed.py").write_text(CROSSED)
    traces = tmp_path / "traces"
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        command = [sys.executable, "crossed.py", cluster.scheduler_address, "traces"]
        with subprocess.Popen(command, cwd=tmp_path) as script:
            try:
                live = wait_until(lambda: following(traces))
                wait_until(lambda: len(live.read().long_tasks) == 2)
                hung = shell("dasfprof", "watch", "--once", "traces", cwd=tmp_path).stdout
                with in_terminal(BIN / "dasfprof", "watch", traces, COLUMNS=100) as (_, shown):
                    wait_until(lambda: "other's locks" in words(ESCAPES.sub("", shown())))
            finally:
                script.kill()
        wait_until(lambda: live.read().client_is_gone)
        killed = shell("dasfprof", "watch", "--once", "traces", cwd=tmp_path).stdout
        document = shell("dasfprof", "watch", "--once", "--json", "traces", cwd=tmp_path).stdout
    first, verdict = hung.splitlines()[0], words(hung)
    assert re.search(r"  in progress, .* since the first task$", first)
    cause = "2 tasks wait for each other's locks, so none of them can continue. → Acquire"
    assert verdict.index(cause) < verdict.index("1 of 3 done, 2 on workers")
    assert "in progress without its client, which has died" in killed
    told = json.loads(document)
    assert (told["goes_on"], told["client_is_gone"], told["done"]) == (True, True, 1)
    done = shell("dasfprof", "watch", "traces", cwd=tmp_path).stdout
    assert "did not end." in done


def test_no_run_yet_and_an_ended_run(client: Client, tmp_path: Path) -> None:
    done = shell("dasfprof", "watch", ".", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert "no run in '.' yet" in done.stderr
    with dasfprof.profile(client, name="run", directory=tmp_path) as run:
        client.submit(nap, 1, seconds=0, pure=False).result()
    done = shell("dasfprof", "watch", run.name, cwd=tmp_path)
    assert done.returncode == 0
    assert f"Run {run.name} has ended." in done.stdout
    assert "1 task run of 1 function" in done.stdout
    source = str(tmp_path / run.name)
    documents = invoke("watch", "--json", source).stdout.splitlines()
    assert [json.loads(line)["goes_on"] for line in documents] == [False]


@pytest.mark.parametrize(("variables", "columns"), [({"PYTHONIOENCODING": "ascii"}, 40), ({}, 200)])
def test_any_terminal(
    client: Client, tmp_path: Path, variables: dict[str, Any], columns: int
) -> None:
    with dasfprof.profile(client, name="run", directory=tmp_path) as run:
        ascii_only = "PYTHONIOENCODING" in variables
        keys = ["\x1b[2Jowned-1", ("w" if ascii_only else "漢") * 90, "k" * 5000]
        futures = [client.submit(nap, n, seconds=0, key=key) for n, key in enumerate(keys)]
        client.gather(futures)
        run.flush()
        done = shell("dasfprof", "watch", "--once", ".", cwd=tmp_path, COLUMNS=columns, **variables)
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= columns
    if ascii_only:
        assert done.stdout.isascii()


def test_time_left_at_half_time(
    client: Client, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """For equal tasks, the estimate at half time differs by at most a fifth from the actual time.

    On a machine that is then delayed, the actual time is longer.
    """
    factor = 1.25 if request.config.getoption("--long") else 1.7
    with dasfprof.profile(client, name="run", directory=tmp_path):
        futures = client.map(nap, range(200), seconds=0.15, pure=False)
        live, told = wait_until(lambda: following(tmp_path)), []
        while not all(future.done() for future in futures):
            told.append((time.time(), live.read()))
            time.sleep(0.5)
        end = time.time()
    at, state = min(told, key=lambda pair: abs((pair[1].done or 0) - 100))
    assert state.total == 200
    assert state.seconds_left is not None
    assert (end - at) / factor <= state.seconds_left <= (end - at) * factor
