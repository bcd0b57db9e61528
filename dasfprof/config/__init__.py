"""Settings of dasfprof.

A value that is passed as an argument overrides the value in Dask's config (``dasfprof.*``), which
overrides the default.
"""

from __future__ import annotations

from typing import Any

from dasfprof.config.options import SETTINGS


def ensure_defaults() -> None:
    """Add the default of each setting to Dask's config, unless the config has another value."""
    import dask.config

    defaults = {option.config_name: option.default for option in SETTINGS.values()}
    dask.config.update_defaults({"dasfprof": defaults})


def setting(name: str, given: Any = None) -> Any:
    """Return the checked value of a setting.

    This is `given`, or the value in Dask's config if `given` is None.

    Parameters
    ----------
    name
        Name of the setting, spelled as a keyword argument or as in the config.
    given
        The value that the user passed as an argument, or None.

    Raises
    ------
    InvalidArgumentError
        If the value is not valid.
    """
    option = SETTINGS[name.replace("-", "_")]
    return option.check(_configured(option.config_name) if given is None else given)


def _configured(name: str) -> Any:
    import dask.config

    try:
        return dask.config.get(f"dasfprof.{name}")
    except KeyError:
        # The config lacks our defaults in two cases: no setting was read before, or a block of
        # `dask.config.set` that set one of our keys has ended and removed all of them.
        ensure_defaults()
        return dask.config.get(f"dasfprof.{name}")
