"""What a script is given that it does not say itself: options of clusters, a config, arguments.

Nothing of Dask is imported here, since the script may change what Dask reads as it is imported.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dasfprof.recording.dask_internals.patch import WhenImported

if TYPE_CHECKING:
    from dasfprof.recording.cluster.changed_options import ChangedOptions


def take_config(config: Path | None, args: list[str]) -> tuple[str, ...]:
    """Have the script take a file of Dask's config; return its arguments as that says.

    Dask reads the file when it is imported. A resource profile says besides what Dask takes from
    no file: options of local clusters, variables of this process, arguments.
    """
    change_clusters({})
    if config is None:
        return tuple(args)
    os.environ["DASK_CONFIG"] = str(config.absolute())
    if "dask" in sys.modules:
        import dask

        dask.config.refresh(paths=[*dask.config.paths, str(config.absolute())])
    if config.is_dir():
        return tuple(args)
    import yaml

    found = yaml.safe_load(config.read_text(encoding="utf-8"))

    def told(*places: str) -> dict[str, str]:
        data = found
        for place in places:
            data = data.get(place) if isinstance(data, dict) else None
        return {str(n): str(v) for n, v in data.items()} if isinstance(data, dict) else {}

    for variable, value in told("distributed", "nanny", "pre-spawn-environ").items():
        os.environ.setdefault(variable, value)
    return with_arguments(args, told("dasfprof", "tuned", "arguments"))


def change_clusters(settings: dict[str, Any]) -> list[ChangedOptions]:
    """Have local clusters of this process other options, those of Dask's config if of no trial.

    Returns
    -------
    list
        Of `ChangedOptions` with these settings, as soon as Dask's cluster has been imported.
    """
    found: list[ChangedOptions] = []

    def place() -> None:
        from dasfprof.recording.cluster.changed_options import ChangedOptions

        if not found:
            found.append(ChangedOptions(**settings))
            found[0].place()

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
