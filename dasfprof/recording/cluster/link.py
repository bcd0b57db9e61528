"""`ClusterLink`: calls functions in the processes of a cluster, with a time limit for each call.

A worker may fail to answer because C code holds the GIL, SIGSTOP has stopped the process, or the
network is down. All workers are called at the same time, with the same time limit, and workers that
do not answer are reported. The scheduler passes the calls on to the workers, so this process needs
only one connection. This connection also works after the client has closed.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

from distributed import Client
from distributed.comm import get_address_host_port
from distributed.protocol.pickle import dumps

from dasfprof.database.following import Writer, writer_of
from dasfprof.database.reader import TraceFile
from dasfprof.errors import TraceError
from dasfprof.recording.cluster.calls import report_client
from dasfprof.recording.dask_internals.inspection.looks import request, within
from dasfprof.recording.dask_internals.undocumented import error_in
from dasfprof.text import name_first

#: Errors of calls to a process that has ended, is closing or does not answer.
GONE = (OSError, asyncio.TimeoutError, RuntimeError, ValueError)

#: Name under which results list the scheduler. The other processes are listed by address.
SCHEDULER = "the scheduler"


@dataclass
class Answers:
    """The answers of the processes of a cluster to one call."""

    #: Return values of the function, by the process's address.
    results: dict[str, Any] = field(default_factory=dict)
    #: Reasons for missing answers, by the process's address.
    silent: dict[str, str] = field(default_factory=dict)


def status_of(cluster: Any) -> str:
    """Return the status of a cluster as a text, or an empty text if the cluster has no status."""
    status = getattr(cluster, "status", "")
    # The status is a text in dask-gateway, and an enum in Dask.
    return str(getattr(status, "name", status))


class ClusterLink:
    """A connection from a client's process to a cluster. It still works after the client closes.

    Parameters
    ----------
    limit
        Seconds to wait for the answer of each process.
    """

    def __init__(self, client: Client, limit: float) -> None:
        self.limit = limit
        self._client = client
        self._cluster = client.cluster
        #: Address of the scheduler.
        self.address = str(client.scheduler.address)
        self._connection_args = client.connection_args

    @property
    def is_closed(self) -> bool:
        """Whether this process knows that the cluster has closed.

        The processes of a closed cluster have written their files.
        """
        return status_of(self._cluster) in ("closed", "failed")

    async def on_scheduler(
        self, function: Callable[..., Any], *args: Any, limit: float | None = None
    ) -> Any:
        """Run a function on the scheduler. Dask passes the scheduler to it as ``dask_scheduler``.

        Raises
        ------
        asyncio.TimeoutError, OSError
            If the scheduler did not answer in time, or cannot be reached.
        """
        call = self._run(function=dumps(function), args=dumps(args))
        return _result(await within(self.limit if limit is None else limit, call))

    async def _run(self, **message: Any) -> Any:
        if self._client.status == "running":
            return await self._client.scheduler.run_function(**message)
        # Check first that a process listens, because Dask would repeat the attempt to connect. With
        # TLS there is no such check: the scheduler would log a warning about a connection without a
        # handshake.
        if self.address.startswith("tcp://"):
            _, writer = await asyncio.open_connection(*get_address_host_port(self.address))
            writer.close()
        return await request(self.address, self._connection_args, "run_function", **message)

    async def on_workers(
        self, function: Callable[..., Any], *args: Any, workers: list[str] | None = None
    ) -> Answers:
        """Run a function on all workers at the same time, or only on the given workers.

        Raises
        ------
        asyncio.TimeoutError, OSError
            If the scheduler did not answer in time, or cannot be reached.
        """
        # The scheduler waits for the workers, so it gets more time than they do.
        answers: Answers = await self.on_scheduler(
            ask_workers, dumps(function), dumps(args), self.limit, workers, limit=2 * self.limit
        )
        return answers

    async def on_process(self, process: str, function: Callable[..., Any], *args: Any) -> Any:
        """Run a function in one process. `process` is the address of a worker, or `SCHEDULER`.

        Raises
        ------
        asyncio.TimeoutError, OSError
            If the process did not answer in time, or cannot be reached.
        """
        if process == SCHEDULER:
            return await self.on_scheduler(function, *args)
        answers = await self.on_workers(function, *args, workers=[process])
        if process not in answers.results:
            raise OSError(answers.silent.get(process, f"{process} has left the cluster"))
        return answers.results[process]


async def ask_workers(
    function: bytes, args: bytes, limit: float, workers: list[str] | None, dask_scheduler: Any
) -> Answers:
    """Run a pickled function on workers at the same time. Called on the scheduler."""
    answers, message = Answers(), {"function": function, "args": args}

    async def ask(address: str) -> None:
        call = request(address, dask_scheduler.connection_args, "run", **message)
        try:
            answers.results[address] = _result(await within(limit, call))
        except asyncio.TimeoutError as error:
            answers.silent[address] = str(error)
        except Exception as error:
            answers.silent[address] = f"{type(error).__name__}: {error}"

    addresses = list(dask_scheduler.workers) if workers is None else workers
    await asyncio.gather(*map(ask, addresses))
    # Leave out workers that have left the cluster.
    for address in answers.silent.keys() - dask_scheduler.workers.keys():
        del answers.silent[address]
    return answers


def _result(response: dict[str, Any]) -> Any:
    if response["status"] == "error":
        raise error_in(response)
    return response["result"]


def error_text(error: BaseException) -> str:
    """Return the message of an error, or its type if the message is empty."""
    return str(error) or type(error).__name__


def silent_processes(silent: dict[str, str]) -> str:
    """Return a text that lists the processes that did not answer, each with the reason."""
    return name_first([f"{process} ({reason})" for process, reason in silent.items()])


#: Seconds between two checks of files that are about to be closed.
_POLL_INTERVAL = 0.1


async def wait_for_end(
    link: ClusterLink, list_files: Callable[[], list[Path]], deadline: float
) -> bool:
    """Wait until the cluster closes or the run's files are complete.

    Return False if the deadline passes before that, otherwise True.

    Parameters
    ----------
    list_files
        A function that lists the run's files on this host.
    deadline
        Time on the monotonic clock, in seconds.
    """
    while not link.is_closed and not await asyncio.to_thread(_are_final, list_files):
        if monotonic() > deadline:
            return False
        await asyncio.sleep(_POLL_INTERVAL)
    return True


def _are_final(list_files: Callable[[], list[Path]]) -> bool:
    """Return whether files exist, and no process is still writing to any of them."""
    try:
        files = [TraceFile(path) for path in list_files()]
        ended = (f.is_closed() or writer_of(f.read_header()) is Writer.ENDED for f in files)
        return bool(files) and all(ended)
    except (OSError, TraceError):
        return False


logger = logging.getLogger(__name__)

#: Seconds between two checks of the client, and maximum seconds between two checks of its
#: scheduler.
_INTERVAL, _LONGEST_INTERVAL = 0.5, 60.0
#: Seconds to wait for a connection to the scheduler.
_PATIENCE = 3.0
#: Minimum number of times that the process of a closed client reports to the scheduler within
#: `orphan_timeout` that it is alive.
_TIMES = 5


def is_on_network(client: Client) -> bool:
    """Return whether this process can open further connections to the scheduler of a client."""
    return str(client.scheduler.address).startswith(("tcp://", "tls://"))


class SchedulerWatch:
    """Calls a function once, in a separate thread, after a scheduler or the run on it has ended.

    While the client is connected, the watch does nothing. After that, it asks the scheduler at
    intervals whether the run is still being recorded. Each of these requests also shows the
    scheduler that this process is alive (see `Absence`). A scheduler without a network address is
    not watched.

    Parameters
    ----------
    client
        A client that is connected.
    plugin
        The name of the run's plugin on the scheduler.
    orphan_timeout
        Seconds without contact after which the scheduler ends the run.
    gone
        The function to call.
    """

    def __init__(
        self, client: Client, plugin: str, orphan_timeout: float, gone: Callable[[], None]
    ) -> None:
        self._client = client
        self._link = ClusterLink(client, _PATIENCE)
        self._plugin = plugin
        self._longest = min(_LONGEST_INTERVAL, orphan_timeout / _TIMES)
        self._gone = gone
        self._stopping = threading.Event()
        if is_on_network(client):
            threading.Thread(target=self._run, name="dasfprof-scheduler-watch", daemon=True).start()

    def stop(self) -> None:
        """Stop watching."""
        self._stopping.set()

    def _run(self) -> None:
        interval = _INTERVAL
        while not self._stopping.wait(interval):
            if self._client.status == "running":
                interval = _INTERVAL
            elif self._has_ended():
                self._gone()
                return
            else:
                interval = min(2 * interval, self._longest)

    def _is_gone(self) -> bool:
        try:
            host, port = get_address_host_port(self._link.address)
            socket.create_connection((host, port), _PATIENCE).close()
        except ConnectionRefusedError:
            return True
        except OSError as error:
            logger.debug("the scheduler at %s: %r", self._link.address, error)
            # The network may be down for a while, and an open client may reconnect. A closed client
            # does not reconnect.
            return bool(self._client.status == "closed")
        return False

    def _has_ended(self) -> bool:
        """Contact the scheduler, and return whether the scheduler or the run on it has ended."""
        try:
            has_run = asyncio.run(self._link.on_scheduler(report_client, self._plugin))
        except Exception as error:  # It may be busy, or closing. The next call tries again.
            logger.debug("the scheduler at %s: %r", self._link.address, error)
            return self._is_gone()
        return has_run is False
