"""Resource usage of a process, compared with psutil."""

import os
import time

import psutil

from dasfprof.recording.probes.process import ProcessUsage


def test_usage_is_what_psutil_tells() -> None:
    usage, process = ProcessUsage(), psutil.Process()
    usage.read()
    end = time.thread_time() + 0.05
    while time.thread_time() < end:
        pass
    before, read, after = process.cpu_times(), usage.read(), process.cpu_times()
    usage.close()
    # psutil's values are in kernel ticks.
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
