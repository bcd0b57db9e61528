"""Notebook kernels that communicate through files, since another process could take their ports."""

import os
import tempfile
from pathlib import Path
from typing import Any

from nbclient import NotebookClient
from traitlets.config import Config


def run_notebook(
    notebook: Any, place: Path, environment: dict[str, str] | None = None, **options: Any
) -> None:
    options |= {"timeout": 240, "startup_timeout": 240, "kernel_name": "python3"}
    resources = {"metadata": {"path": str(place)}}
    with tempfile.TemporaryDirectory() as files:
        config = Config({"KernelManager": {"transport": "ipc", "ip": f"{files}/kernel"}})
        client = NotebookClient(notebook, config=config, resources=resources, **options)
        client.execute(env={**os.environ, **(environment or {})})
