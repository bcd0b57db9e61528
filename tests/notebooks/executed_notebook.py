"""Runs a notebook from begin to end in a kernel of its own, and looks at what its cells show."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import nbformat
from kernels import reached_by_files
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"

#: On a busy host workers restart more slowly than Dask waits for them.
PATIENCE = {
    "DASK_DISTRIBUTED__DEPLOY__LOST_WORKER_TIMEOUT": "10m",
    "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "2m",
}


def execute(name: str, place: Path, question: str | None = None) -> list[Any]:
    """Run a notebook in an empty directory and give its cells of code.

    Parameters
    ----------
    question
        Code of one more cell, put before the last.
    """
    notebook = nbformat.read(NOTEBOOKS / name, as_version=4)
    if question is not None:
        notebook.cells.insert(-1, nbformat.v4.new_code_cell(question))
    resources = {"metadata": {"path": str(place)}}
    options = {"timeout": 240, "startup_timeout": 240, "kernel_name": "python3"}
    with reached_by_files() as config:
        client = NotebookClient(notebook, config=config, **options, resources=resources)
        client.execute(env={**os.environ, **PATIENCE})
    assert list(place.iterdir()) == [], "it leaves nothing behind"
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def output(cells: list[Any], begin: str, form: str = "text/plain") -> str:
    """Give what the one cell shows whose last line begins so."""
    (cell,) = (cell for cell in cells if cell.source.splitlines()[-1].startswith(begin))
    texts = [item["data"][form] for item in cell.outputs if item.output_type == "execute_result"]
    texts += [item["text"] for item in cell.outputs if item.output_type == "stream"]
    return "".join(texts)


def assert_without_outputs(name: str) -> None:
    """Fail if a notebook is not valid, or was committed as it had run."""
    notebook = nbformat.read(NOTEBOOKS / name, as_version=4)
    nbformat.validate(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert (cell.outputs, cell.execution_count) == ([], None)
