"""`ChangedOptions`: overrides the options of local clusters that this process creates.

``LocalCluster(...)`` and ``Client(n_workers=...)`` both call `LocalCluster.__init__`. This module
replaces that method, and leaves the program's files unchanged. It records whether the program
created a local cluster, and whether the environment and Dask's config were as requested when the
cluster started. The options come from a trial, or from a resource profile that ``dasfprof tune``
wrote to the key ``dasfprof.tuned`` of Dask's config. Dask itself ignores that key.
"""

from __future__ import annotations

import inspect
import logging
import multiprocessing
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dasfprof.recording.dask_internals.patch import Patch

logger = logging.getLogger(__name__)

_MODULE = "distributed.deploy.local"
#: Key of a resource profile in Dask's config.
TUNED = "dasfprof.tuned"
#: Keys of a resource profile that are parameters of `LocalCluster`.
_CLUSTER_OPTIONS = ("n_workers", "threads_per_worker", "processes", "memory_limit")


@dataclass
class ChangedOptions:
    """The options to change in local clusters of this process, and facts about these clusters.

    `place` has an effect only after the program has imported `distributed.deploy.local`.
    """

    #: Keyword arguments of `LocalCluster` that override those of the program.
    options: Mapping[str, Any] = field(default_factory=dict)
    #: Keyword arguments of `LocalCluster` for clusters where the program does not pass them.
    defaults: Mapping[str, Any] = field(default_factory=dict)
    #: Requested values of environment variables (``environment``) and of settings of Dask's config
    #: (``config``).
    environment: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    #: One entry per local cluster: the names of requested settings that had no effect (``missed``),
    #: and whether the workers are processes (``processes``).
    clusters: list[dict[str, Any]] = field(default_factory=list)
    _patch: Patch | None = None

    def place(self) -> None:
        """Replace `LocalCluster.__init__`, unless it is already replaced or not yet imported."""
        module = sys.modules.get(_MODULE)
        if self._patch is None and module is not None and hasattr(module, "LocalCluster"):
            self._patch = Patch(module.LocalCluster, "__init__", self._wrap)

    def _wrap(self, original: Any, patch: Patch) -> Any:
        names = tuple(inspect.signature(original).parameters)[1:]

        def begin(cluster: Any, *args: Any, **kwargs: Any) -> None:
            facts: dict[str, Any] = {}
            # Processes of workers may run the program's file again. Their clusters stay unchanged.
            if patch.active and multiprocessing.parent_process() is None:
                try:
                    given = {**dict(zip(names, args, strict=False)), **kwargs}
                    kwargs, args = self._changed(given), ()
                    facts = self.clusters[-1]
                except Exception:
                    logger.debug("options of a cluster were not changed", exc_info=True)
            original(cluster, *args, **kwargs)
            facts["processes"] = bool(getattr(cluster, "processes", True))

        return begin

    def _changed(self, given: dict[str, Any]) -> dict[str, Any]:
        missed = [*self.otherwise_in_config()]
        environment = {**os.environ, **(given.get("env") or {})}
        missed += [n for n, value in self.environment.items() if environment.get(n) != value]
        self.clusters.append({"missed": missed})
        defaults = {name: value for name, value in self.defaults.items() if given.get(name) is None}
        return {**given, **defaults, **tuned_options(), **self.options}

    def otherwise_in_config(self) -> list[str]:
        """Return the settings of Dask's config that differ from the requested values."""
        if not self.config:
            return []
        import dask

        return [
            name
            for name, value in self.config.items()
            if dask.config.get(name, default=None) != dask.config.interpret_value(str(value))
        ]


def tuned_options() -> dict[str, Any]:
    """Return the options of local clusters that a resource profile of `dasfprof tune` sets."""
    import dask

    profile = dask.config.get(TUNED, default=None)
    profile = profile if isinstance(profile, Mapping) else {}
    return {name: profile[name] for name in _CLUSTER_OPTIONS if name in profile}
