"""Facts about the program that this process runs, and messages that announce its clients.

A process that dasfprof records announces each of its clients to the client's scheduler.
"""

from __future__ import annotations

import getpass
import os
import socket
import sys
import uuid
import weakref
from typing import Any

#: Topic of the Dask events with which processes announce their clients to schedulers.
TOPIC = "dasfprof-clients"
#: Prefix of the ids of clients that Dask creates inside tasks.
TASK_CLIENT_PREFIX = "Client-worker-"
#: Distinguishes this process from others with the same process id.
_PROCESS = uuid.uuid4().hex
#: The clients that this process has announced.
_announced: weakref.WeakSet[Any] = weakref.WeakSet()

#: Names of programs by ``argv[0]``, for values of ``argv[0]`` that do not name the user's script.
_STARTERS = {"ipykernel_launcher.py": "Jupyter kernel", "-c": "python -c", "": "python"}


def program_facts() -> dict[str, Any]:
    """Return the name of the program and the number of its command-line arguments.

    The entries are ``command`` and ``command_arguments``.
    """
    arguments = getattr(sys, "argv", None) or [""]
    # A file name that is not valid text contains surrogates, which headers cannot contain.
    name = os.path.basename(arguments[0]).encode(errors="replace").decode()
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    if spec is not None:
        command = f"python -m {spec.name.removesuffix('.__main__')}"
    elif name in _STARTERS:
        command = _STARTERS[name]
    else:
        command = f"python {name}" if name.endswith(".py") else name
    # The arguments and the path of the program are not recorded, because they may contain passwords
    # and names of people.
    return {"command": command, "command_arguments": len(arguments) - 1}


def this_process() -> str:
    """Return an identifier of this process that is unique among all hosts."""
    return f"{os.getpid()}-{_PROCESS}"


async def announce(client: Any) -> None:
    """Announce a client to its scheduler: report its id, a readable name, and this process."""
    _announced.add(client)
    try:
        user = getpass.getuser()
    except (KeyError, OSError, ImportError):  # The system has no name for the user.
        user = "?"
    script = program_facts()["command"].removeprefix("python ")
    name = f"{user}@{socket.gethostname()} {script}"
    message = {"client": client.id, "name": name, "process": this_process()}
    await client.scheduler.log_event(topic=TOPIC, msg=message)


def announce_once(client: Any) -> None:
    """Announce a client that has not been announced, unless Dask created it inside a task."""
    if client in _announced or client.id.startswith(TASK_CLIENT_PREFIX):
        return
    if client.asynchronous:
        client.loop.add_callback(announce, client)
    else:
        client.sync(announce, client)
