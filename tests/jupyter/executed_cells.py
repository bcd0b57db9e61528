"""Execution of cells in a real kernel, and reading of their outputs."""

from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import nbformat
from kernels import run_notebook


def execute(sources: Sequence[str], place: Path) -> list[Any]:
    """Run cells of code in a directory, also after a failed cell."""
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    notebook = nbformat.v4.new_notebook(cells=cells)
    run_notebook(notebook, place, allow_errors=True)
    return list(notebook.cells)


def cell(cells: list[Any], begin: str) -> Any:
    """Return the only cell with this start."""
    (found,) = (item for item in cells if item.source.startswith(begin))
    return found


def shown(item: Any, kind: str = "display_data") -> dict[str, str]:
    """Return the data of the only display of this type in a cell, by MIME type."""
    (found,) = (output for output in item.outputs if output.output_type == kind)
    data: dict[str, str] = dict(found["data"])
    return data


def printed(item: Any, name: str = "stdout") -> str:
    streams = [output for output in item.outputs if output.output_type == "stream"]
    return "".join(output["text"] for output in streams if output["name"] == name)


def failure(item: Any) -> Any:
    (found,) = (output for output in item.outputs if output.output_type == "error")
    return found


class Elements(HTMLParser):
    """Elements and text of HTML, parsed like in a browser."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.text += data

    def value(self, tag: str, name: str) -> str:
        """Return an attribute of the only element that has it."""
        (found,) = (value for of, key, value in self.attributes if (of, key) == (tag, name))
        return found
