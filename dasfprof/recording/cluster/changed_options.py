"""`ChangedOptions`: local clusters of this process get other options than the program gives them.

``LocalCluster(...)`` and ``Client(n_workers=...)`` both end in `LocalCluster.__init__`, which is
replaced; the program's files stay as they are. What came of it is noted: whether there was such a
cluster, and whether the environment and Dask's config were as wanted when it began.
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


@dataclass
class ChangedOptions:
    """What to change in this process, and what became of it.

    Nothing of Dask is imported for it: `place` is called once `distributed.deploy.local` is.
    """

    #: Keywords of clusters.
    options: Mapping[str, Any] = field(default_factory=dict)
    #: Keywords that clusters get to which the program gives none of that name.
    defaults: Mapping[str, Any] = field(default_factory=dict)
    #: Variables of the environment, and settings of Dask's config, as they ought to be.
    environment: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    #: For each cluster what the program gave of `options`, as text, and what did not reach it.
    clusters: list[dict[str, Any]] = field(default_factory=list)
    _patch: Patch | None = None

    def place(self) -> None:
        """Replace the constructor, once."""
        module = sys.modules.get(_MODULE)
        if self._patch is None and module is not None and hasattr(module, "LocalCluster"):
            self._patch = Patch(module.LocalCluster, "__init__", self._wrap)

    def _wrap(self, original: Any, patch: Patch) -> Any:
        names = tuple(inspect.signature(original).parameters)[1:]

        def begin(cluster: Any, *args: Any, **kwargs: Any) -> None:
            # Workers that run this program's file anew make no clusters of it.
            if patch.active and multiprocessing.parent_process() is None:
                try:
                    given = {**dict(zip(names, args, strict=False)), **kwargs}
                    kwargs, args = self._changed(given), ()
                except Exception:
                    logger.debug("options of a cluster were not changed", exc_info=True)
            original(cluster, *args, **kwargs)

        return begin

    def _changed(self, given: dict[str, Any]) -> dict[str, Any]:
        missed = [*self.otherwise_in_config()]
        own = given.get("env") or {}
        for name, value in self.environment.items():
            if own.get(name, os.environ.get(name)) != value:
                missed.append(name)
        told = {name: repr(given[name]) for name in self.options if given.get(name) is not None}
        self.clusters.append({"given": told, "missed": missed})
        absent = {name: value for name, value in self.defaults.items() if given.get(name) is None}
        return {**given, **absent, **self.options}

    def otherwise_in_config(self) -> list[str]:
        """Return the settings of Dask's config that are other than wanted."""
        if not self.config:
            return []
        import dask

        return [
            name
            for name, value in self.config.items()
            if str(dask.config.get(name, default=None)) != str(value)
        ]
