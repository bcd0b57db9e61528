"""Kernels of notebooks, reached by files: another process may take a port before a kernel does."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from traitlets.config import Config


@contextmanager
def reached_by_files() -> Iterator[Config]:
    """Give the config of the manager of one kernel, which ends within the context."""
    with tempfile.TemporaryDirectory() as place:
        yield Config({"KernelManager": {"transport": "ipc", "ip": f"{place}/kernel"}})
