"""Resource usage of hosts, disks and processes: tables by hand, and incomplete traces."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from traces import Plugin, row

from dasfprof import TraceAnalyser
from dasfprof.recording.probes.host import DISK_USAGE
from dasfprof.schema.resources import RESOURCE_USAGE

T = 1.7e9
START = pd.Timestamp("2023-11-14 22:13:20")
#: Samples of a host, and their columns in the table.
HOST = [
    ("host_cpu", 50.0, "Cpu Percent", 50.0),
    ("host_memory_total", 8e9, "Memory Total (MB)", 8000.0),
    ("host_memory_available", 6e9, "Memory Available (MB)", 6000.0),
    ("host_memory_used", 1.5e9, "Memory Used (MB)", 1500.0),
    (None, None, "Memory Used Percent", 25.0),
    ("host_disk_io.read_count", 10, "Disk Io Read Count", 10),
    ("host_disk_io.write_count", 20, "Disk Io Write Count", 20),
    ("host_disk_io.read_size", 3e6, "Disk Io Read (MB)", 3.0),
    ("host_disk_io.write_size", 4e6, "Disk Io Write (MB)", 4.0),
    ("host_net_io.write_size", 6e6, "Network Sent (MB)", 6.0),
    ("host_net_io.read_size", 5e6, "Network Recv (MB)", 5.0),
    ("host_tcp_connections", 7, "# of TCP Connections", 7),
    ("host_udp_connections", 8, "# of UDP Connections", 8),
]
SCRATCH = {"device": "sda1", "mountpoint": "/scratch", "file_system": "ext4", "local_directory": 1}


def sampled(time: float, **values: Any) -> tuple[Any, ...]:
    process = {"cpu": 120.0, "memory": 400_000_000, "num_fds": 30, "num_threads": 9}
    return row(RESOURCE_USAGE, timestamp=T + time, process_cpu_seconds=time, **process, **values)


@pytest.fixture
def analyser(tmp_path: Path) -> TraceAnalyser:
    """Write a run of two hosts. On the first, one of two workers samples the host."""
    of_host = {name: value for name, value, *_ in HOST if name}
    duty = [sampled(0.0), sampled(1.0, **of_host), sampled(2.0, **of_host | {"host_cpu": 75.0})]
    used = {"total": 100e9, "used": 30e9, "free": 60e9, "read_count": 1, "write_count": 2}
    used |= {"read_size": 3e6, "write_size": 4e6, "read_time": 0.5, "write_time": 0.25}
    disks = [
        row(DISK_USAGE, timestamp=T + 1, **SCRATCH, **used),
        row(DISK_USAGE, timestamp=T + 1, device="nvme0n1", read_count=5),
    ]
    monitors = [("node1", 1, duty), ("node1", 0, [sampled(1.5)]), ("node0", 2, [sampled(3.0)])]
    for number, (host, name, rows) in enumerate(monitors):
        plugin = Plugin(tmp_path, "ResourceMonitor", host, name, f"tcp://n:100{number}")
        facts = [(RESOURCE_USAGE, rows)] + [(DISK_USAGE, disks)] * (name == 1)
        plugin.write(*facts)
    return TraceAnalyser(tmp_path)


def test_of_nodes(analyser: TraceAnalyser) -> None:
    table = analyser.node_resource_usage()
    shown = {label: value for *_, label, value in HOST}
    expected = [
        {"Node": "node1", "Utc Time": START + pd.Timedelta(seconds=second)}
        | {**shown, "Cpu Percent": percent}
        for second, percent in ((1, 50.0), (2, 75.0))
    ]
    # In this order. Other counters may be between them.
    assert table[list(expected[0])].to_dict("records") == expected
    assert [label for label in table if label in expected[0]] == list(expected[0])
    assert table.drop(columns=list(expected[0])).isna().all(axis=None)


def test_of_processes(analyser: TraceAnalyser) -> None:
    table = analyser.processes_resource_usage()
    processes = ["worker-node0-2", "worker-node1-0", *["worker-node1-1"] * 3]
    assert table["Process"].tolist() == processes
    seconds = [3, 1.5, 0, 1, 2]
    assert table["Utc Time"].tolist() == [START + pd.Timedelta(seconds=at) for at in seconds]
    assert table["Process Seconds"].tolist() == seconds
    constant = ["Cpu Percent", "Memory Used (MB)", "# of Threads", "# of File Descriptors"]
    assert table[constant].to_numpy().tolist() == [[120.0, 400.0, 9, 30]] * 5
    # One worker sampled that host's memory, and none the other host's.
    assert table["Memory Used Percent"].isna().tolist() == [True] + [False] * 4
    assert table["Memory Used Percent"].tolist()[1:] == [5.0] * 4


def test_of_disks(analyser: TraceAnalyser) -> None:
    unmounted, mounted = analyser.node_disk_usage().to_dict("records")
    assert mounted == {
        **{"Node": "node1", "Device": "sda1", "Mountpoint": "/scratch", "File System": "ext4"},
        **{"Local Directory": True, "Utc Time": START + pd.Timedelta(seconds=1)},
        **{"Disk Total (MB)": 100_000.0, "Disk Used (MB)": 30_000.0, "Disk Free (MB)": 60_000.0},
        **{"Disk Used Percent": pytest.approx(100 / 3), "Disk Io Read Count": 1},
        **{"Disk Io Write Count": 2, "Disk Io Read (MB)": 3.0, "Disk Io Write (MB)": 4.0},
        **{"Disk Io Read Seconds": 0.5, "Disk Io Write Seconds": 0.25},
    }
    assert (unmounted["Device"], unmounted["Disk Io Read Count"]) == ("nvme0n1", 5)
    assert pd.isna(unmounted["Mountpoint"]) and pd.isna(unmounted["Disk Used Percent"])
    assert not unmounted["Local Directory"]
