"""`load_plugin`: what a run's plugins are on a worker that cannot record.

No dasfprof may be installed there, or another version, or the directory cannot be written.

A worker that joins a recorded cluster unpickles the run's plugins before it takes any task. If
dasfprof is not installed there, that must not fail, or the worker would end. So a plugin is pickled
as a call of `load_plugin`, together with the source text of that function.
"""

from __future__ import annotations

from typing import Any

from dasfprof.recording.cluster.by_value import by_value


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
