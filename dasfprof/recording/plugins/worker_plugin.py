"""`RecordingPart`: the base class of objects that record on a worker, each into a separate file.

`load_plugin` unpickles a run's plugin on a worker, or replaces it if the worker cannot record.
"""

from __future__ import annotations

import os
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import psutil

from dasfprof.database import FileDatabase
from dasfprof.recording.cluster.by_value import by_value
from dasfprof.recording.dask_internals.undocumented import memory_sizes
from dasfprof.recording.guard import HookGuard, in_thread
from dasfprof.recording.probes.process import cpu_group, memory_group
from dasfprof.recording.settings import RunSettings
from dasfprof.system import descriptor_limit

#
# A worker cannot record if dasfprof is not installed in its environment, if the client has another
# version of dasfprof, or if the worker cannot write to the run's directory.
#
# A worker that joins a recorded cluster unpickles the run's plugin before it receives any task.
# This must not fail if dasfprof is not installed on the worker, because the worker would end. So
# the plugin is pickled as a call of `load_plugin`, together with the source text of that function.


@by_value
def load_plugin(name: str, state: bytes | None, reason: str = "") -> Any:
    """Unpickle a worker plugin, or return a plugin that only logs a warning if this fails.

    The function is pickled by value, so it also runs on workers where dasfprof is not installed.

    Parameters
    ----------
    name
        The plugin's name on the cluster.
    state
        The pickled class and attributes of the plugin, or None to log only the warning.
    reason
        The reason that the warning gives if `state` is None.
    """
    import logging
    import pickle

    from distributed.diagnostics.plugin import WorkerPlugin

    if state is not None:
        try:
            kind, attributes = pickle.loads(state)
            plugin = kind.__new__(kind)
            plugin.__dict__.update(attributes)
            return plugin
        except ImportError as error:
            reason = f'dasfprof is not installed here ({error}); run `pip install "dasfprof"`'
        except Exception as error:
            reason = f"the installed dasfprof is another version than the client's ({error!r})"

    class UnrecordedWorker(WorkerPlugin):
        def __init__(self) -> None:
            self.name = name

        def setup(self, worker: Any) -> None:
            logging.getLogger("distributed.worker.dasfprof").warning(
                "This worker is not recorded by the profiler, and works as usual: %s.", reason
            )

        def teardown(self, worker: Any) -> None:
            pass

    return UnrecordedWorker()


#: Names of environment variables that limit the threads or the concurrent requests of libraries.
THREAD_LIMITS = (
    *("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "BLIS_NUM_THREADS"),
    *("NUMBA_NUM_THREADS", "NUMEXPR_NUM_THREADS", "NUMEXPR_MAX_THREADS", "POLARS_MAX_THREADS"),
    *("RAYON_NUM_THREADS", "GDAL_NUM_THREADS", "ZARR_ASYNC__CONCURRENCY"),
    "ZARR_THREADING__MAX_WORKERS",
)


def worker_facts(worker: Any) -> dict[str, Any]:
    """Return facts about a worker for the headers of its files.

    The fact ``label`` is also the ``thread_id`` of all events of the worker.
    """
    host, group, cpu = socket.gethostname(), memory_group(), cpu_group()
    return {
        "id": worker.id,
        "name": worker.name,
        "address": worker.address,
        "label": f"worker-{host}-{worker.name}",
        "nthreads": worker.state.nthreads,
        **memory_sizes(worker),
        "started": psutil.Process().create_time(),
        "thread_limits": {name: os.environ[name] for name in THREAD_LIMITS if name in os.environ},
        **({} if group is None else {"memory_group": group[0], "group_limit": group[1]}),
        "descriptor_limit": descriptor_limit(),
        **({} if cpu is None else {"cpu_group": cpu.name, "cpu_quota": cpu.quota}),
    }


class RecordingPart(ABC):
    """An object that records facts about a worker into a separate file."""

    #: Name of the part in its file's name and header.
    plugin: ClassVar[str]

    def __init__(self, settings: RunSettings) -> None:
        self.settings = settings
        #: Names of all parts on the same worker, for the headers of their files.
        self.plugins: list[str] = []
        self.database: FileDatabase | None = None
        self._guard = HookGuard()
        #: Functions that the teardown calls, from the last to the first.
        self._undo: list[Callable[[], object]] = []

    def setup(self, worker: Any) -> None:
        """Start recording, or only log why that failed."""
        try:
            self._start(worker)
        except Exception:
            self._guard.caught("setup")
            self._guard.call_all("setup", self._undo)

    @abstractmethod
    def _start(self, worker: Any) -> None:
        """Place hooks or start a sampler, and append to `_undo` the functions that end them."""

    async def teardown(self, worker: Any) -> None:
        """Stop recording, and return when everything that was recorded is on disk."""
        with self._guard.catching("teardown"):
            end = partial(self._guard.call_all, "teardown", self._undo)
            # The close of a worker must not await. After SIGTERM, `dask worker --no-nanny` ends its
            # event loop, which would cancel the close at its next await. Dask would then wait
            # forever for the close.
            if worker.status.name == "closing":
                end()
            else:
                await in_thread(end)

    def end(self) -> None:
        """Stop recording as `teardown` does, but without using an event loop."""
        self._guard.call_all("stop", self._undo)

    def _open_database(self, worker: Any, **header: Any) -> tuple[FileDatabase, dict[str, Any]]:
        """Open the part's file, which counts the part's errors from now on.

        Parameters
        ----------
        **header
            Further entries of the file's header.

        Returns
        -------
        database, constants
            The file, and the fields that have the same value in all of its events.
        """
        facts = worker_facts(worker)
        database = self.settings.open_database(
            self.plugin, str(worker.name), {"worker": facts, "plugins": self.plugins, **header}
        )
        self.database = database
        self._undo.append(database.close)
        self._guard = HookGuard(database.writer)
        return database, {"process_id": socket.gethostname(), "thread_id": facts["label"]}
