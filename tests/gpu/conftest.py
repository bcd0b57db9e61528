"""Fixtures for the stand-ins."""

from collections.abc import Iterator
from pathlib import Path

import dask
import pytest
from stand_ins import Driver, NvtxLog, build_library


@pytest.fixture(scope="module", autouse=True)
def spawned_workers() -> Iterator[None]:
    """Spawn workers, because forked ones have the environment of the fork server's start."""
    with dask.config.set({"distributed.worker.multiprocessing-method": "spawn"}):
        yield


@pytest.fixture(scope="session")
def driver_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("driver")
    build_library("nvml.c", directory / "libnvidia-ml.so.1")
    return directory


@pytest.fixture
def driver(driver_directory: Path, tmp_path: Path) -> Driver:
    return Driver(driver_directory, tmp_path / "nvml.txt")


@pytest.fixture(scope="session")
def nvtx_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_library("nvtx.c", tmp_path_factory.mktemp("nvtx") / "libnvtx-tool.so")


@pytest.fixture(scope="module")
def nvtx_log(nvtx_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NvtxLog]:
    """Return the log of processes that start during the test, which use the stand-in."""
    pytest.importorskip("nvtx", reason="the package nvtx is not installed")
    log = NvtxLog(nvtx_library, tmp_path_factory.mktemp("ranges"))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in log.environment.items():
            patch.setenv(name, value)
        yield log
