"""Fixture of tests that start processes with Dask's commands."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from dask_processes import Processes


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    started = Processes(tmp_path)
    yield started
    started.end()
