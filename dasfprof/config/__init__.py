"""Settings. Arguments override Dask's config ``dasfprof.*``, which overrides the defaults."""

from __future__ import annotations

from typing import Any

from dasfprof.config.options import SETTINGS


def ensure_defaults() -> None:
    """Add the defaults to Dask's config, without overriding values that are set."""
    import dask.config

    defaults = {option.config_name: option.default for option in SETTINGS.values()}
    dask.config.update_defaults({"dasfprof": defaults})


def setting(name: str, given: Any = None) -> Any:
    """Return the value of a setting: `given` if it is not None, or the value in Dask's config.

    Parameters
    ----------
    name
        Name of the setting, as a keyword or in the config.
    given
        The value of an argument.

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
        # No setting was read before, or a `dask.config.set` block that set one of our keys removed
        # all of our defaults when it ended.
        ensure_defaults()
        return dask.config.get(f"dasfprof.{name}")
