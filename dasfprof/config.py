"""Settings: arguments override Dask's config ``dasfprof.*``, which overrides `dasfprof.yaml`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask.config
import yaml

_DEFAULTS = Path(__file__).with_name("dasfprof.yaml")


def ensure_defaults() -> None:
    """Put the package's defaults under Dask's config, where nothing is set yet."""
    with _DEFAULTS.open() as file:
        defaults = yaml.safe_load(file)
    dask.config.update_defaults(defaults)


def setting(name: str, given: Any = None) -> Any:
    """Return `given` if it is not None, else the config's value of ``dasfprof.{name}``."""
    if given is not None:
        return given
    try:
        return dask.config.get(f"dasfprof.{name}")
    except KeyError:
        # A `dask.config.set` block that set one of our keys before this module was imported took
        # the defaults of all of them with it when it was left.
        ensure_defaults()
        return dask.config.get(f"dasfprof.{name}")


ensure_defaults()
