"""Which program this process runs, and what it tells schedulers of its clients."""

from __future__ import annotations

import getpass
import os
import socket
import sys
import uuid
import weakref
from typing import Any

#: Dask's topic in which processes that dasfprof records announce their clients to schedulers.
TOPIC = "dasfprof-clients"
#: Tells this process from others of the same number, on other hosts and later.
_PROCESS = uuid.uuid4().hex
#: The clients that this process has announced.
_announced: weakref.WeakSet[Any] = weakref.WeakSet()

#: Scripts that start others, by what these are called.
_STARTERS = {"ipykernel_launcher.py": "Jupyter kernel", "-c": "python -c", "": "python"}


def program_facts() -> dict[str, Any]:
    """Return ``command``, the program that runs, and ``command_arguments``, their number.

    The arguments themselves and the path of the program are not recorded: they may contain
    passwords and names of people.
    """
    arguments = getattr(sys, "argv", None) or [""]
    # A name of bytes that are not text has surrogates, which headers cannot hold.
    name = os.path.basename(arguments[0]).encode(errors="replace").decode()
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    if spec is not None:
        command = f"python -m {spec.name.removesuffix('.__main__')}"
    elif name in _STARTERS:
        command = _STARTERS[name]
    else:
        command = f"python {name}" if name.endswith(".py") else name
    return {"command": command, "command_arguments": len(arguments) - 1}


def this_process() -> str:
    """Return what identifies this process, also on other hosts."""
    return f"{os.getpid()}-{_PROCESS}"


async def announce(client: Any) -> None:
    """Report to a client's scheduler its name, and that it is of this process."""
    _announced.add(client)
    try:
        user = getpass.getuser()
    except (KeyError, OSError, ImportError):  # the system has no name for it
        user = "?"
    script = program_facts()["command"].removeprefix("python ")
    name = f"{user}@{socket.gethostname()} {script}"
    message = {"client": client.id, "name": name, "process": this_process()}
    await client.scheduler.log_event(topic=TOPIC, msg=message)


def announce_once(client: Any) -> None:
    """Announce a client before its first graph is sent; tasks' own clients are of nobody."""
    if client in _announced or client.id.startswith("Client-worker-"):
        return
    if client.asynchronous:
        client.loop.add_callback(announce, client)
    else:
        client.sync(announce, client)
