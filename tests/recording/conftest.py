"""A fixture of the tests that start processes by Dask's own commands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from dask_processes import Processes


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    started = Processes(tmp_path)
    yield started
    started.end()
