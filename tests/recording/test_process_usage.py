"""What a process uses, against psutil."""

from __future__ import annotations

import contextlib
import socket

import psutil

from dasfprof.recording.process_usage import count_connections


def test_connections_are_the_internet_sockets_of_this_process() -> None:
    def by_psutil() -> int:
        return len(psutil.Process().net_connections("inet"))

    before = count_connections()
    assert before == by_psutil()
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        stack.enter_context(socket.create_connection(listening.getsockname()))
        stack.enter_context(listening.accept()[0])
        datagrams = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        datagrams.bind(("127.0.0.1", 0))
        for local in socket.socketpair():
            stack.enter_context(local)
        assert count_connections() == by_psutil() == before + 4
    assert count_connections() == before
