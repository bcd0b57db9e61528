"""What a process uses, against psutil."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import socket
import time

import psutil

from dasfprof.recording.probes.process import ProcessUsage, count_connections


def counts_with_sockets() -> list[tuple[int, int]]:
    """Count before, with and after sockets of several kinds, and have psutil count too."""

    def both() -> tuple[int, int]:
        return count_connections(), len(psutil.Process().net_connections("inet"))

    counts = [both()]
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        stack.enter_context(socket.create_connection(listening.getsockname()))
        stack.enter_context(listening.accept()[0])
        datagrams = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        datagrams.bind(("127.0.0.1", 0))
        for local in socket.socketpair():
            stack.enter_context(local)
        counts.append(both())
    return [*counts, both()]


def test_connections_are_the_internet_sockets_of_this_process() -> None:
    # In a process of its own: clusters of other tests may be closing theirs in this one.
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(counts_with_sockets) == [(0, 0), (4, 4), (0, 0)]


def test_usage_is_what_psutil_tells() -> None:
    usage, process = ProcessUsage(), psutil.Process()
    usage.read()
    end = time.thread_time() + 0.05
    while time.thread_time() < end:
        pass
    before, read, after = process.cpu_times(), usage.read(), process.cpu_times()
    usage.close()
    # psutil's are of the kernel's ticks.
    slack = 2 / os.sysconf("SC_CLK_TCK")
    low, high = (times.user + times.system for times in (before, after))
    assert low - slack <= read.cpu_seconds <= high + slack
    assert abs(read.memory - process.memory_info().rss) <= 16 << 20
    assert abs(read.descriptors - process.num_fds()) <= 4
    assert abs(read.threads - process.num_threads()) <= 4
    if read.read_bytes is not None:
        counters = process.io_counters()
        assert 0 <= read.read_bytes <= counters.read_bytes
        assert 0 <= (read.write_bytes or 0) <= counters.write_bytes
