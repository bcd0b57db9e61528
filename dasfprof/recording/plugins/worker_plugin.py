"""The base classes of a run's worker plugins: `RecordingPlugin`, and `RecordingPart` with a file.

They open and close the files, and keep every failure from Dask. A worker that cannot record gets
what `dasfprof.recording.plugins.worker_plugin` makes of them.
"""

from __future__ import annotations

import os
import pickle
import socket
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import psutil
from distributed.diagnostics.plugin import WorkerPlugin

from dasfprof.database import FileDatabase
from dasfprof.recording.cluster.by_value import by_value
from dasfprof.recording.cluster.calls import check_process
from dasfprof.recording.dask_internals.undocumented import memory_sizes
from dasfprof.recording.guard import HookGuard
from dasfprof.recording.probes.process import cpu_group, memory_group
from dasfprof.recording.settings import RunSettings
from dasfprof.system import descriptor_limit

# --- `load_plugin`: what a run's plugins are on a worker that cannot record -----------------------
#
# No dasfprof may be installed there, or another version, or the directory cannot be written.
#
# A worker that joins a recorded cluster unpickles the run's plugins before it takes any task. If
# dasfprof is not installed there, that must not fail, or the worker would end. So a plugin is
# pickled as a call of `load_plugin`, together with the source text of that function.


@by_value
def load_plugin(name: str, state: bytes | None, reason: str = "") -> Any:
    """Unpickle a worker plugin; without dasfprof, return one that only warns. Runs by value.

    Parameters
    ----------
    name
        The plugin's name on the cluster.
    state
        The pickled class and attributes of the plugin; None: return a plugin that only warns.
    reason
        The reason for the warning.
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
        database = None

        def __init__(self) -> None:
            self.name = name

        def setup(self, worker: Any) -> None:
            run = name.rpartition("-")[0]
            others = list(worker.plugins.values())
            self.unrecorded = run
            if not any(
                getattr(other, "unrecorded", None) == run for other in others if other is not self
            ):
                logging.getLogger("distributed.worker.dasfprof").warning(
                    "This worker is not recorded by the profiler, and works as usual: %s.", reason
                )

        def teardown(self, worker: Any) -> None:
            pass

    return UnrecordedWorker()


# --- The facts about a worker in the headers of its files -----------------------------------------

#: Variables that say how many threads of their own libraries start.
THREAD_LIMITS = (
    *("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "BLIS_NUM_THREADS"),
    *("NUMBA_NUM_THREADS", "NUMEXPR_NUM_THREADS", "NUMEXPR_MAX_THREADS", "POLARS_MAX_THREADS"),
    *("RAYON_NUM_THREADS", "GDAL_NUM_THREADS", "ZARR_ASYNC__CONCURRENCY"),
    "ZARR_THREADING__MAX_WORKERS",
)


def worker_facts(worker: Any) -> dict[str, Any]:
    """Return a worker's facts for the headers of its files, with the label used in events."""
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


class RecordingPlugin(WorkerPlugin):
    """A worker plugin of a run. On a worker that cannot record, it only logs the reason."""

    #: The plugin's name on the cluster.
    name: str
    #: The run; None: no trace.
    settings: RunSettings | None

    def __reduce__(self) -> tuple[Any, ...]:
        state = pickle.dumps((type(self), self.__dict__))
        return load_plugin.reduce_call(self.name, state)

    def can_record(self, worker: Any) -> bool:
        """Return whether the worker can write its files; if not, warn once for each run."""
        reason = None
        if self.settings is not None:
            reason = check_process(self.settings.directory, self.settings.storage)
        if reason is not None:
            self.__dict__["transition"] = _ignore  # or it would fill a list that is never read
            stand_in = load_plugin(self.name, None, reason)
            stand_in.setup(worker)
            #: The run that was warned of, so that its other plugins do not warn again.
            self.unrecorded = stand_in.unrecorded
        return reason is None


class RecordingPart(RecordingPlugin):
    """A part of what records on a worker, with a file of its own.

    Parameters
    ----------
    settings
        The run; None: no trace.
    name
        The plugin's name on the cluster.
    """

    #: Stands in the name and in the header of its file.
    plugin: ClassVar[str]

    def __init__(self, settings: RunSettings | None, name: str) -> None:
        self.settings = settings
        self.name = name
        #: The parts of the same worker that have files: each header names them all.
        self.plugins: list[str] = []
        self.database: FileDatabase | None = None
        self._guard = HookGuard()
        #: Steps of the teardown, called from last to first.
        self._undo: list[Callable[[], object]] = []

    def setup(self, worker: Any) -> None:
        """Begin to record; a failure is logged and does not affect the worker."""
        try:
            if self.can_record(worker):
                self._start(worker)
        except Exception:
            self._guard.caught("setup")
            self._guard.take_all("setup", self._undo)

    @abstractmethod
    def _start(self, worker: Any) -> None:
        """Place hooks or start a sampler, and add to `_undo` how each of them ends."""

    async def teardown(self, worker: Any) -> None:
        """End the recording and return when everything recorded is on disk."""
        try:
            await self._guard.end(worker, self._undo)
        except Exception:
            self._guard.caught("teardown")

    def end(self) -> None:
        """End the recording as `teardown` does, for what stands for a worker and has no loop."""
        self._guard.take_all("stop", self._undo)

    def _open_database(
        self, settings: RunSettings, worker: Any, /, **header: Any
    ) -> tuple[FileDatabase, dict[str, Any]]:
        """Open the part's file, and count its errors from now on in it.

        Parameters
        ----------
        settings
            The run.
        worker
            The worker.
        **header
            Further entries of the file's header.

        Returns
        -------
        database, constants
            The file, and the fields that its events have in common.
        """
        facts = worker_facts(worker)
        database = settings.open_database(
            self.plugin, str(worker.name), {"worker": facts, "plugins": self.plugins, **header}
        )
        self.database = database
        self._undo.append(database.close)
        self._guard = HookGuard(database.writer)
        return database, {"process_id": socket.gethostname(), "thread_id": facts["label"]}


def _ignore(*_: Any, **__: Any) -> None:
    """Stand in for a hook of a plugin that does not record."""
