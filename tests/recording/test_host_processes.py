"""Processes of a busy host in the probe, compared with psutil and with a known process."""

import getpass
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest
from clusters import wait_until

from dasfprof.recording.probes.processes import HOST_PROCESS, ProcessesProbe

NAMES = [name for name, _ in HOST_PROCESS.fields + HOST_PROCESS.args]
#: Argument that must not be recorded.
SECRET = "password-of-the-test"


@pytest.fixture
def busy() -> Iterator[psutil.Process]:
    code = f"secret = {SECRET!r}\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", code, SECRET]) as process:
        yield psutil.Process(process.pid)
        process.kill()


@pytest.fixture
def probe(monkeypatch: pytest.MonkeyPatch) -> ProcessesProbe:
    monkeypatch.setattr(ProcessesProbe, "INTERVAL", 0.0)
    monkeypatch.setattr(ProcessesProbe, "BUSY", 0.0)
    return ProcessesProbe()


def looks(probe: ProcessesProbe, enough: Callable[[list[dict[str, Any]]], bool]) -> Any:
    def look() -> Any:
        rows = [dict(zip(NAMES, row, strict=True)) for _, row in probe.sample(True)]
        return rows if enough(rows) else None

    return wait_until(look, 240, every=0.2)


def test_a_busy_process_by_name_and_owner(busy: psutil.Process, probe: ProcessesProbe) -> None:
    before, began = sum(busy.cpu_times()[:2]), time.monotonic()
    rows = looks(probe, lambda rows: busy.pid in {row["pid"] for row in rows})
    used, lasted = sum(busy.cpu_times()[:2]) - before, time.monotonic() - began
    (row,) = [row for row in rows if row["pid"] == busy.pid]
    assert row["name"] == busy.name()[:15]
    assert row["owner"] == getpass.getuser()
    assert row["memory"] == pytest.approx(busy.memory_info().rss, rel=0.2)
    assert row["ancestors"][0] == os.getpid()
    assert 0 < row["interval"] <= lasted
    # It cannot have used more since the previous sample than since the start of the test.
    assert row["cpu"] * row["interval"] / 100 <= used + 0.02
    (own,) = [row for row in rows if row["pid"] == os.getpid()]
    assert own["ancestors"][:1] == row["ancestors"][1:2]
    assert SECRET not in repr(rows)


def test_few_are_told(busy: Any, probe: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {"LEAST_CPU": 0.0, "LEAST_MEMORY": 0.0, "MOST_BY_CPU": 2, "MOST_BY_MEMORY": 1}
    for name, value in limits.items():
        monkeypatch.setattr(ProcessesProbe, name, value)
    # The first sample has no CPU usage.
    rows = looks(probe, lambda rows: any(row["interval"] > 0 for row in rows))
    assert 2 <= len(rows) <= 4  # including this process


def test_an_idle_host(busy: Any, probe: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    looks(probe, bool)
    monkeypatch.setattr(ProcessesProbe, "BUSY", 1.1)
    time.sleep(0.1)
    assert not list(probe.sample(True))


def test_much_memory_on_idle_hosts(probe: ProcessesProbe, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {"BUSY": 1.1, "LEAST_MEMORY": 200e6 / psutil.virtual_memory().total}
    for name, value in {**limits, "QUIET_INTERVAL": 0.0, "MOST_BY_MEMORY": 1000}.items():
        monkeypatch.setattr(ProcessesProbe, name, value)
    code = "kept = b'1' * 300_000_000; print(len(kept), flush=True); input()"
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe) as process:
        process.stdout.readline()
        rows = looks(probe, lambda rows: process.pid in {row["pid"] for row in rows})
        process.kill()
    (row,) = [row for row in rows if row["pid"] == process.pid]
    assert row["memory"] >= 300_000_000
    assert (row["cpu"], row["interval"]) == (None, 0.0)


def test_only_on_duty_and_when_due(monkeypatch: pytest.MonkeyPatch) -> None:
    probe = ProcessesProbe()
    monkeypatch.setattr(ProcessesProbe, "BUSY", 0.0)
    assert not list(probe.sample(False))
    # The first sample has only memory, and is the reference of the next sample.
    rows = [dict(zip(NAMES, row, strict=True)) for _, row in probe.sample(True)]
    assert {(row["interval"], row["cpu"]) for row in rows} == {(0.0, None)}
    assert os.getpid() in {row["pid"] for row in rows}
    assert not list(probe.sample(True))  # the next sample is not due
