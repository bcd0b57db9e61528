"""The host's counters, read where nobody else in the process reads them.

Beside a cluster in this process, Dask's own monitor would read what is put in their place here.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from clusters import wait_until

from dasfprof.recording.plugins.resources import HostDuty
from dasfprof.recording.probes import process
from dasfprof.recording.probes.gpu import GpuProbe
from dasfprof.recording.probes.host import ResourceProbe
from dasfprof.schema.resources import RESOURCE_USAGE
from dasfprof.system import descriptor_limit


def test_counters_that_go_back_leave_psutil_s_memory_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """psutil adds what it had before where a counter went back; Dask's monitor relies on it."""
    received = [0]
    monkeypatch.setattr(
        psutil._psplatform, "net_io_counters", lambda: {"eth": (0, received[0], *[0] * 6)}
    )
    psutil.net_io_counters.cache_clear()
    probe = ResourceProbe(GpuProbe(lambda device: HostDuty(device)))
    monkeypatch.setattr(probe, "HOST_INTERVAL", 0.0)
    names = [name for name, _ in RESOURCE_USAGE.fields + RESOURCE_USAGE.args]
    samples = []
    for count in (1000, 1600, 400, 500):
        received[0] = count
        ((_, row),) = probe.sample(True)
        samples.append(dict(zip(names, row, strict=True)))
    assert [one["host_net_io.read_size"] for one in samples] == [1000, 1600, 400, 500]
    rates = [one["host_net_io.read_bps"] for one in samples]
    assert rates[0] is rates[2] is None
    assert rates[1] > 0
    assert rates[3] > 0
    assert psutil.net_io_counters().bytes_recv == 500
    psutil.net_io_counters.cache_clear()


@pytest.mark.parametrize(
    ("text", "kills"),
    [
        ("low 0\nhigh 7\nmax 21\noom 3\noom_kill 2\noom_group_kill 0\n", 2),  # memory.events
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


@pytest.mark.parametrize(
    ("groups", "limits", "found"),
    [
        # Of several around a process, the least limit.
        (
            "0::/job_7/step_0\n",
            {"job_7/memory.max": "8000\n", "job_7/step_0/memory.max": "max\n"},
            ("/job_7", 8000),
        ),
        (
            "0::/job_7/step_0\n",
            {"job_7/memory.max": "8000\n", "job_7/step_0/memory.max": "4096\n"},
            ("/job_7/step_0", 4096),
        ),
        # A container sees its own group as the root.
        ("0::/\n", {"memory.max": "5000\n"}, ("/", 5000)),
        # The first version, whose greatest number is no limit.
        (
            "9:cpu:/\n4:memory:/slurm/job\n0::/\n",
            {
                "memory/slurm/job/memory.limit_in_bytes": "7000\n",
                "memory/memory.limit_in_bytes": "9223372036854771712\n",
            },
            ("/slurm/job", 7000),
        ),
        ("0::/user.slice\n", {"user.slice/memory.max": "max\n"}, None),
        ("0::/user.slice\n", {}, None),
        # A line that has not three fields tells of no group.
        ("what?\n0:/\n0::/job_7\n", {"job_7/memory.max": "8000\n"}, ("/job_7", 8000)),
    ],
)
def test_the_control_group_that_limits_memory(
    groups: str, limits: dict[str, str], found: tuple[str, int] | None, tmp_path: Path
) -> None:
    (tmp_path / "cgroup").write_text(groups)
    for name, text in limits.items():
        file = tmp_path / "sys" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    assert process.memory_group(tmp_path / "cgroup", tmp_path / "sys") == found
    assert process.memory_group(tmp_path / "none", tmp_path / "sys") is None


@pytest.mark.parametrize(
    ("groups", "files", "quota", "seconds"),
    [
        # Of several around a process, the lowest quota.
        (
            "0::/pod/box\n",
            {
                "pod/cpu.max": "150000 100000\n",
                "pod/cpu.stat": "nr_throttled 7\nthrottled_usec 2500000\n",
                "pod/box/cpu.max": "max 100000\n",
            },
            (1.5, "/pod"),
            2.5,
        ),
        # A container sees its own group as the root, whatever its file about groups says.
        (
            "3:cpu,cpuacct:/docker/f00\n",
            {
                "cpu/cpu.cfs_quota_us": "50000\n",
                "cpu/cpu.cfs_period_us": "100000\n",
                "cpu/cpu.stat": "nr_throttled 7\nthrottled_time 3000000000\n",
            },
            (0.5, "/"),
            3.0,
        ),
        ("0::/\n", {"cpu.max": "max 100000\n"}, None, None),
        ("3:cpu:/\n", {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "9\n"}, None, None),
        ("0::/\n", {"cpu.max": "50000 100000\n"}, (0.5, "/"), None),
    ],
)
def test_the_control_group_whose_quota_limits_cpu(
    groups: str,
    files: dict[str, str],
    quota: tuple[float, str] | None,
    seconds: float | None,
    tmp_path: Path,
) -> None:
    (tmp_path / "cgroup").write_text(groups)
    for name, text in files.items():
        file = tmp_path / "sys" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    group = process.cpu_group(tmp_path / "cgroup", tmp_path / "sys")
    assert (None if group is None else group[:2]) == quota
    assert group is None or group.throttled() == seconds


#: Enters a control group, and computes until that is throttled.
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
    """A control group of this machine that may use 3 % of a core, if groups can be made here."""
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


def test_swap_in_use_is_what_the_kernel_tells() -> None:
    names = [name for name, _ in RESOURCE_USAGE.fields + RESOURCE_USAGE.args]
    probe = ResourceProbe(GpuProbe(lambda device: HostDuty(device)))
    before, ((_, row),), after = swap_used(), probe.sample(True), swap_used()
    probe.close()
    assert min(before, after) <= dict(zip(names, row, strict=True))["host_swap_used"]
    assert dict(zip(names, row, strict=True))["host_swap_used"] <= max(before, after)


def swap_used() -> int:
    """Bytes, from the kernel's own table."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    sizes = {line.partition(":")[0]: int(line.split()[1]) * 1024 for line in lines}
    return sizes["SwapTotal"] - sizes["SwapFree"]
