"""The disks of the host as the probe reads them, against psutil and the file system itself."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import psutil
import pytest

from dasfprof.recording.probes.host import DISK_USAGE, DiskProbe

NAMES = [name for name, _ in DISK_USAGE.fields + DISK_USAGE.args]


def readings(probe: DiskProbe) -> list[dict[str, Any]]:
    rows = list(probe.sample(True))
    assert all(schema is DISK_USAGE for schema, _ in rows)
    return [dict(zip(NAMES, row, strict=True)) for _, row in rows]


def test_where_workers_spill_is_there_once(tmp_path: Path) -> None:
    found = readings(DiskProbe(str(tmp_path)))

    (spilled_to,) = [reading for reading in found if reading["local_directory"]]
    total, _, free = shutil.disk_usage(tmp_path)
    assert spilled_to["total"] == total
    assert abs(spilled_to["free"] - free) < 1e9  # others write at the same time
    assert tmp_path.resolve().is_relative_to(spilled_to["mountpoint"])
    devices = [reading["device"] for reading in found]
    assert len(devices) == len(set(devices))


def test_every_mounted_disk_and_its_counters(tmp_path: Path) -> None:
    # Without psutil's watch for counters that wrap, which remembers what other tests read.
    before = psutil.disk_io_counters(perdisk=True, nowrap=False) or {}
    found = {reading["device"]: reading for reading in readings(DiskProbe(str(tmp_path)))}
    after = psutil.disk_io_counters(perdisk=True, nowrap=False) or {}

    for part in psutil.disk_partitions():
        if not part.device.startswith("/dev/loop"):
            assert Path(part.device).resolve().name in found
    for device, counters in before.items():
        if device in found:
            for name, recorded in (("write_count", "write_count"), ("write_bytes", "write_size")):
                low, high = getattr(counters, name), getattr(after[device], name)
                assert low <= found[device][recorded] <= high
            assert found[device]["read_time"] >= counters.read_time / 1000


def test_only_on_duty_and_when_due(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    probe = DiskProbe(str(tmp_path))

    assert not list(probe.sample(False))
    assert readings(probe)
    assert not readings(probe)
    monkeypatch.setattr(DiskProbe, "INTERVAL", 0.0)
    assert not readings(probe)  # the last reading set when the next one is due
    assert readings(DiskProbe(str(tmp_path)))
    probe.close()


def test_a_disk_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise PermissionError

    monkeypatch.setattr(psutil, "disk_usage", refuse)
    monkeypatch.setattr(psutil, "disk_io_counters", refuse)
    found = readings(DiskProbe(str(tmp_path)))

    assert found
    assert all(reading["total"] is reading["read_count"] is None for reading in found)
