"""What a script is given that it does not say itself: options of clusters, a config, arguments.

Nothing of Dask is imported here, since the script may change what Dask reads as it is imported.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dasfprof.errors import InvalidArgumentError
from dasfprof.recording.dask_internals.patch import WhenImported

if TYPE_CHECKING:
    from dasfprof.recording.cluster.changed_options import ChangedOptions

logger = logging.getLogger(__name__)


def take_config(config: Path | None, args: list[str]) -> tuple[str, ...]:
    """Have the script take a file of Dask's config; return its arguments as that says.

    Dask reads the file when it is imported. A resource profile says besides what Dask takes from
    no file: options of local clusters, which those of any other file of Dask's config may say as
    well; and variables of this process, and arguments.
    """
    change_clusters({})
    if config is None:
        return tuple(args)
    import yaml

    try:
        found = yaml.safe_load(config.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidArgumentError(f"--config {config}: this is no YAML: {error}") from error
    os.environ["DASK_CONFIG"] = str(config.absolute())
    if "dask" in sys.modules:
        import dask

        dask.config.refresh(paths=[*dask.config.paths, str(config.absolute())])

    def told(*places: str) -> dict[str, str]:
        data = found
        for place in places:
            data = data.get(place) if isinstance(data, dict) else None
        return {str(n): str(v) for n, v in data.items()} if isinstance(data, dict) else {}

    for variable, value in told("distributed", "nanny", "pre-spawn-environ").items():
        os.environ.setdefault(variable, value)
    return with_arguments(args, told("dasfprof", "tuned", "arguments"))


def change_clusters(settings: dict[str, Any]) -> list[ChangedOptions]:
    """Have local clusters of this process other options.

    Parameters
    ----------
    settings
        Keywords of `ChangedOptions`; empty: of no trial, so that only Dask's config may say some.

    Returns
    -------
    list
        Of `ChangedOptions` with these settings, as soon as Dask's cluster has been imported.
    """
    found: list[ChangedOptions] = []

    def place() -> None:
        import dask

        if found or not (settings or dask.config.get("dasfprof.tuned", default=None)):
            return
        try:
            from dasfprof.recording.cluster.changed_options import ChangedOptions

            found.append(ChangedOptions(**settings))
            found[0].place()
        except Exception:  # the script imports Dask, whatever becomes of this
            logger.warning("options of local clusters are not changed", exc_info=True)

    # Dask's parts have been imported when the whole of `distributed` has.
    if "distributed" in sys.modules:
        place()
    else:
        WhenImported(("distributed",), place).start()
    return found


def with_arguments(given: Sequence[str], changed: Mapping[str, str]) -> tuple[str, ...]:
    """Return a program's arguments with others for some, by name, such as ``--chunk``.

    What it was not given comes last.
    """
    found = list(given)
    for name, value in changed.items():
        places = [at for at, one in enumerate(found) if one == name or one.startswith(f"{name}=")]
        for at in places:
            if "=" in found[at]:
                found[at] = f"{name}={value}"
            else:
                found[at + 1 : at + 2] = [value]
        if not places:
            found += [name, value]
    return tuple(found)
