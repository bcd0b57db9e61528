"""Files of a run that are not there, though another file of the same worker names them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple


class AbsentFile(NamedTuple):
    """A file that is not among those that were read."""

    #: The worker's label and address.
    worker: str
    address: str
    #: The plugin that writes it, as headers name it.
    plugin: str


def absent_files(headers: Iterable[dict[str, Any]]) -> list[AbsentFile]:
    """Return the files of workers that headers of others of their files name and that are absent.

    Headers of earlier versions name none.
    """
    found: dict[str, set[str]] = {}
    named: dict[str, dict[AbsentFile, None]] = {}
    for header in headers:
        worker, plugins = header.get("worker"), header.get("plugins")
        if not isinstance(worker, dict):
            continue
        facts = ("run_uuid", "host", "boot_id", "pid", "process_started")
        process = str([*(header.get(fact) for fact in facts), worker])
        found.setdefault(process, set()).add(str(header.get("plugin")))
        label, address = str(worker.get("label", "")), str(worker.get("address", ""))
        for plugin in plugins if isinstance(plugins, list | tuple) else ():
            named.setdefault(process, {})[AbsentFile(label, address, str(plugin))] = None
    return [
        file
        for process, files in named.items()
        for file in files
        if file.plugin not in found[process]
    ]
