"""Importing of DASF's profiling modules from a checkout, without DASF's many dependencies.

The modules need the packages ormsgpack, portalocker, nvtx and nvidia-ml-py (the extra ``bench``).
"""

from __future__ import annotations

import importlib
import sys
import types
from pathlib import Path
from typing import Any


def load(checkout: str | Path, module: str) -> Any:
    """Import ``dasf.profile.{module}`` from a checkout."""
    packages = {"dasf": {}, "dasf.profile": {}, "dasf.pipeline": {"Pipeline": object}}
    for name, contents in packages.items():
        if name not in sys.modules:
            package = sys.modules[name] = types.ModuleType(name)
            package.__path__ = [str(Path(checkout, *name.split(".")))]
            vars(package).update(contents)
    return importlib.import_module(f"dasf.profile.{module}")


def prepare(checkout: str) -> None:
    """Import the plugins, so that this process can unpickle them."""
    load(checkout, "plugins")
