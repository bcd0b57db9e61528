"""Settings: arguments override Dask's config ``dasfprof.*``, which overrides the defaults."""

from __future__ import annotations

from typing import Any

from dasfprof.config.options import SETTINGS


def ensure_defaults() -> None:
    """Put the defaults under Dask's config, where nothing is set yet."""
    import dask.config

    defaults = {option.config_name: option.default for option in SETTINGS.values()}
    dask.config.update_defaults({"dasfprof": defaults})


def setting(name: str, given: Any = None) -> Any:
    """Return what is to be used of a setting: `given` if it is not None, else Dask's config.

    Parameters
    ----------
    name
        As a keyword, or as in the config.
    given
        An argument.

    Raises
    ------
    InvalidArgumentError
        If this is no value of the setting.
    """
    option = SETTINGS[name.replace("-", "_")]
    return option.check(_configured(option.config_name) if given is None else given)


def _configured(name: str) -> Any:
    import dask.config

    try:
        return dask.config.get(f"dasfprof.{name}")
    except KeyError:
        # Nothing was asked before, or a `dask.config.set` block that set one of our keys then took
        # the defaults of all of them with it when it was left.
        ensure_defaults()
        return dask.config.get(f"dasfprof.{name}")
