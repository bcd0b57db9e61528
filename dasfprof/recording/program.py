"""`program_facts`: which program this process runs, for the headers of its files."""

from __future__ import annotations

import os
import sys
from typing import Any

#: Scripts that start others, by what these are called.
_STARTERS = {"ipykernel_launcher.py": "Jupyter kernel", "-c": "python -c", "": "python"}


def program_facts() -> dict[str, Any]:
    """Return ``command``, the program that runs, and ``command_arguments``, their number.

    The arguments themselves are not recorded, nor the path of the program: passwords and names of
    people stand in them.
    """
    arguments = getattr(sys, "argv", None) or [""]
    # A name of bytes that are no text has surrogates, which no header holds.
    name = os.path.basename(arguments[0]).encode(errors="replace").decode()
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    if spec is not None:
        command = f"python -m {spec.name.removesuffix('.__main__')}"
    elif name in _STARTERS:
        command = _STARTERS[name]
    else:
        command = f"python {name}" if name.endswith(".py") else name
    return {"command": command, "command_arguments": len(arguments) - 1}
