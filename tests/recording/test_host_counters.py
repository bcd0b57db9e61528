"""Counters of processes, and counters and disks of the host.

This module has no cluster in its process, since Dask's monitor would read the patched counters.
"""

import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from clusters import wait_until

from dasfprof.recording.plugins.resources import HostDuty
from dasfprof.recording.probes import process
from dasfprof.recording.probes.gpu import GpuProbe
from dasfprof.recording.probes.host import DISK_USAGE, DiskProbe, ResourceProbe
from dasfprof.schema.resources import RESOURCE_USAGE
from dasfprof.system import descriptor_limit

NAMES = [name for name, _ in RESOURCE_USAGE.fields + RESOURCE_USAGE.args]
DISK_NAMES = [name for name, _ in DISK_USAGE.fields + DISK_USAGE.args]
#: Control group of a job's process, in version 2 of control groups.
STEP = "0::/job_7/step_0\n"


def test_counters_that_go_back_leave_psutil_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a counter decreases, psutil adds its previous value, on which Dask's monitor relies."""
    received = [0]
    monkeypatch.setattr(
        psutil._psplatform, "net_io_counters", lambda: {"eth": (0, received[0], *[0] * 6)}
    )
    psutil.net_io_counters.cache_clear()
    probe = ResourceProbe(GpuProbe(lambda device: HostDuty(device)))
    monkeypatch.setattr(probe, "HOST_INTERVAL", 0.0)
    samples = []
    for count in (1000, 1600, 400, 500):
        received[0] = count
        ((_, row),) = probe.sample(True)
        samples.append(dict(zip(NAMES, row, strict=True)))
    assert [one["host_net_io.read_size"] for one in samples] == [1000, 1600, 400, 500]
    first, rising, back, again = (sample["host_net_io.read_bps"] for sample in samples)
    assert first is back is None
    assert rising > 0 < again
    assert psutil.net_io_counters().bytes_recv == 500
    psutil.net_io_counters.cache_clear()


@pytest.mark.parametrize(
    ("text", "kills"),
    [
        ("low 0\nhigh 7\noom 3\noom_kill 2\noom_group_kill 0\n", 2),  # memory.events
        ("oom_kill_disable 0\nunder_oom 0\noom_kill 5\n", 5),  # memory.oom_control
        ("low 0\n", None),
    ],
)
def test_what_the_kernel_killed_of_a_control_group(
    text: str, kills: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "memory.events"
    file.write_text(text)
    monkeypatch.setattr(process, "_memory_files", lambda: (tmp_path / "none", file))
    assert process.oom_kills() == kills


def places(place: Path, groups: str, files: dict[str, str]) -> tuple[Path, Path]:
    """Write the file with a process's control groups, and the files of these groups."""
    (place / "cgroup").write_text(groups)
    for name, text in files.items():
        file = place / "sys" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")
    return place / "cgroup", place / "sys"


V1 = "memory.limit_in_bytes"


@pytest.mark.parametrize(
    ("groups", "limits", "found"),
    [
        # The smallest limit of nested groups applies.
        (STEP, {"job_7/memory.max": "8000", "job_7/step_0/memory.max": "max"}, ("/job_7", 8000)),
        (STEP, {"job_7/memory.max": "8000", "job_7/step_0/memory.max": "4096"}, (STEP[3:-1], 4096)),
        # In a container, its group is the root.
        ("0::/\n", {"memory.max": "5000"}, ("/", 5000)),
        # In version 1, the largest number means that there is no limit.
        (
            "9:cpu:/\n4:memory:/slurm/job\n0::/\n",
            {f"memory/slurm/job/{V1}": "7000", f"memory/{V1}": "9223372036854771712"},
            ("/slurm/job", 7000),
        ),
        ("0::/user.slice\n", {"user.slice/memory.max": "max"}, None),
        ("0::/user.slice\n", {}, None),
        # A line without three fields is ignored.
        ("what?\n0:/\n0::/job_7\n", {"job_7/memory.max": "8000"}, ("/job_7", 8000)),
    ],
)
def test_the_control_group_that_limits_memory(
    groups: str, limits: dict[str, str], found: tuple[str, int] | None, tmp_path: Path
) -> None:
    listed, root = places(tmp_path, groups, limits)
    assert process.memory_group(listed, root) == found
    assert process.memory_group(tmp_path / "none", root) is None


@pytest.mark.parametrize(
    ("groups", "files", "quota", "seconds"),
    [
        # The smallest quota of nested groups applies.
        (
            "0::/pod/box\n",
            {
                **{"pod/cpu.max": "150000 100000", "pod/box/cpu.max": "max 100000"},
                "pod/cpu.stat": "nr_throttled 7\nthrottled_usec 2500000",
            },
            (1.5, "/pod"),
            2.5,
        ),
        # In a container, its group is the root, whatever the file about groups contains.
        (
            "3:cpu,cpuacct:/docker/f00\n",
            {
                **{"cpu/cpu.cfs_quota_us": "50000", "cpu/cpu.cfs_period_us": "100000"},
                "cpu/cpu.stat": "nr_throttled 7\nthrottled_time 3000000000",
            },
            (0.5, "/"),
            3.0,
        ),
        ("0::/\n", {"cpu.max": "max 100000"}, None, None),
        ("3:cpu:/\n", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "9"}, None, None),
        ("0::/\n", {"cpu.max": "50000 100000"}, (0.5, "/"), None),
    ],
)
def test_the_control_group_whose_quota_limits_cpu(
    groups: str, files: dict[str, str], quota: Any, seconds: float | None, tmp_path: Path
) -> None:
    group = process.cpu_group(*places(tmp_path, groups, files))
    assert (group and group[:2]) == quota
    assert group is None or group.throttled() == seconds


#: Program that joins a control group and computes until it is throttled.
_THROTTLED_PROGRAM = """
import os, sys
from dasfprof.recording.probes.process import cpu_group
with open(sys.argv[1], "w") as file:
    file.write(str(os.getpid()))
group = cpu_group()
while not group.throttled():
    pass
print(group.quota)
"""


@pytest.fixture
def quota_of_a_core() -> Iterator[Path]:
    """Return a control group with 3 % of a core, or skip if groups cannot be created."""
    for root, name, text in (
        ("/sys/fs/cgroup/cpu", "cpu.cfs_quota_us", "3000"),
        ("/sys/fs/cgroup", "cpu.max", "3000 100000"),
    ):
        group = Path(root, f"dasfprof-test-{os.getpid()}")
        try:
            group.mkdir()
            (group / name).write_text(text)
        except OSError:
            if group.exists():
                group.rmdir()
            continue
        yield group
        wait_until(lambda: not (group / "cgroup.procs").read_text())  # noqa: B023
        group.rmdir()
        return
    pytest.skip("no control group can be made here")


def test_a_quota_of_the_kernel_is_read(quota_of_a_core: Path) -> None:
    command = [sys.executable, "-c", _THROTTLED_PROGRAM, str(quota_of_a_core / "cgroup.procs")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout == "0.03\n", done.stderr


def test_the_limit_of_open_files_is_the_system_s() -> None:
    assert descriptor_limit() == resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def swap_used() -> int:
    """Return the used swap in bytes, from the kernel's table."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    sizes = {line.partition(":")[0]: int(line.split()[1]) * 1024 for line in lines}
    return sizes["SwapTotal"] - sizes["SwapFree"]


def test_swap_in_use_is_what_the_kernel_tells() -> None:
    probe = ResourceProbe(GpuProbe(lambda device: HostDuty(device)))
    before, ((_, row),), after = swap_used(), probe.sample(True), swap_used()
    probe.close()
    recorded = dict(zip(NAMES, row, strict=True))["host_swap_used"]
    assert min(before, after) <= recorded <= max(before, after)


def readings(probe: DiskProbe) -> list[dict[str, Any]]:
    rows = list(probe.sample(True))
    assert all(schema is DISK_USAGE for schema, _ in rows)
    return [dict(zip(DISK_NAMES, row, strict=True)) for _, row in rows]


def test_where_workers_spill_is_there_once(tmp_path: Path) -> None:
    found = readings(DiskProbe(str(tmp_path)))
    (spilled_to,) = [reading for reading in found if reading["local_directory"]]
    total, _, free = shutil.disk_usage(tmp_path)
    assert spilled_to["total"] == total
    assert abs(spilled_to["free"] - free) < 1e9  # other processes write too
    assert tmp_path.resolve().is_relative_to(spilled_to["mountpoint"])
    devices = [reading["device"] for reading in found]
    assert len(devices) == len(set(devices))


def test_every_mounted_disk_and_its_counters(tmp_path: Path) -> None:
    # psutil's detection of wrapped counters would use values of other tests.
    before = psutil.disk_io_counters(perdisk=True, nowrap=False) or {}
    found = {reading["device"]: reading for reading in readings(DiskProbe(str(tmp_path)))}
    after = psutil.disk_io_counters(perdisk=True, nowrap=False) or {}
    for part in psutil.disk_partitions():
        if not part.device.startswith("/dev/loop"):
            assert Path(part.device).resolve().name in found
    for device in before.keys() & found.keys():
        low, row, high = before[device], found[device], after[device]
        assert low.write_count <= row["write_count"] <= high.write_count
        assert low.write_bytes <= row["write_size"] <= high.write_bytes
        assert row["read_time"] >= low.read_time / 1000


def test_only_on_duty_and_when_due(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    probe = DiskProbe(str(tmp_path))
    assert not list(probe.sample(False))
    assert readings(probe)
    assert not readings(probe)
    monkeypatch.setattr(DiskProbe, "INTERVAL", 0.0)
    assert not readings(probe)  # the previous reading has set the time of the next one
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


def test_usage_is_what_psutil_tells() -> None:
    usage, same = process.ProcessUsage(), psutil.Process()
    usage.read()
    end = time.thread_time() + 0.05
    while time.thread_time() < end:
        pass
    before, read, after = same.cpu_times(), usage.read(), same.cpu_times()
    usage.close()
    # psutil's values are in kernel ticks.
    slack = 2 / os.sysconf("SC_CLK_TCK")
    low, high = (times.user + times.system for times in (before, after))
    assert low - slack <= read.cpu_seconds <= high + slack
    assert abs(read.memory - same.memory_info().rss) <= 16 << 20
    assert abs(read.descriptors - same.num_fds()) <= 4
    assert abs(read.threads - same.num_threads()) <= 4
    if read.read_bytes is not None:
        counters = same.io_counters()
        assert 0 <= read.read_bytes <= counters.read_bytes
        assert 0 <= (read.write_bytes or 0) <= counters.write_bytes
