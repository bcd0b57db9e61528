"""Options, markers and settings of all tests."""

import os
import signal
import sys
from collections.abc import Awaitable, Callable
from multiprocessing.context import ForkServerContext
from pathlib import Path

import dask
import pytest
from distributed.process import AsyncProcess
from hypothesis import HealthCheck, settings

#: Test files about hooks into Dask, which may break with other versions of Dask.
DASK_INTERNALS = {
    *("actor_calls", "client_calls", "cluster_changes", "dashboard_page", "dask_internals"),
    *("estimate", "held_memory", "hostile_keys", "inspection", "local_schedulers"),
    *("metrics", "nvtx_ranges", "p2p_shuffles", "preloads", "recorded_lines", "recorded_steps"),
    *("registration", "releases", "run_script", "serialising", "storage_calls"),
    *("task_arguments", "task_logs", "task_ranges", "three_clients", "try", "tune", "under_way"),
    *("untouched_data", "worker_exits", "workloads", "zarr_storage"),
}

#: The slowest test files, which run first: processes share the suite by files, and would be idle
#: while one of them runs a slow file at the end.
LONGEST = (
    *("try", "notebooks", "tune", "shipping", "stuck", "run_script", "watch_command"),
    *("try_code", "unfinished_runs", "under_way_after_death", "gpu_cluster", "planted_causes"),
    *("growing_memory", "ends_by_itself", "lost_processes", "regular_deaths", "storage"),
    *("diagnosis_rules", "durability", "comparison", "recorded_lines", "lost_files"),
    *("large_runs", "workloads", "under_way", "diagnosis", "recorded_steps", "critical_path"),
    *("client_calls", "hdf5_storage", "estimate", "client_rules", "registration"),
    *("resource_monitor", "stack_samples", "dask_internals", "metrics", "nvtx_ranges"),
    *("local_schedulers", "cluster_changes", "held_memory", "processed_tasks"),
)

QUIET = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
settings.register_profile("long", database=None, deadline=None, suppress_health_check=QUIET)
#: Profile with a third of the examples (`examples`), which are the same in every run.
settings.register_profile("short", settings.get_profile("long"), derandomize=True, max_examples=33)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="run the tests of whole programs as well")
    parser.addoption("--long", action="store_true", help="run the long forms of tests as well")
    parser.addoption(
        "--corpus-traces", metavar="DIR", help="directory in which traces of the corpus are kept"
    )


def pytest_configure(config: pytest.Config) -> None:
    # Tests start hundreds of processes that import dasfprof. Without stored bytecode, each of them
    # would compile the package for half a second.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    settings.load_profile("long" if config.getoption("--long") else "short")
    if config.getoption("--long") and config.option.timeout is None:
        config.option.timeout = 3600
    # Workers are forked from a process that has imported Dask, as in Dask's tests. This takes a
    # tenth of the CPU time. Clusters of scripts and commands are spawned, which is Dask's default.
    dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"})
    ForkServerContext.set_forkserver_preload = _preload_more  # type: ignore[method-assign]
    AsyncProcess.kill = _kill_and_wait
    # Background processes of a shell ignore SIGINT, and so would the programs that tests start.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if hasattr(config.option, "loadscopereorder"):  # of pytest-xdist, which counts tests
        config.option.loadscopereorder = False


def _preload_more(
    context: ForkServerContext,
    names: list[str],
    preload: Callable[..., None] = ForkServerContext.set_forkserver_preload,
) -> None:
    """Preload Dask's list of modules, and those that workers would import with test modules."""
    preload(context, [*names, "dask.array", "dask.dataframe", "pytest"])


async def _kill_and_wait(
    process: AsyncProcess, kill: Callable[..., Awaitable[None]] = AsyncProcess.kill
) -> None:
    """Kill a worker's process, and wait until it has ended.

    A nanny fails if a worker that it killed has not ended within a second, as happens on a busy
    machine. This time limit cannot be configured.
    """
    await kill(process)
    await process.join(60)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out files without selected tests: importing all files takes longer than some tests."""
    name = collection_path.stem.removeprefix("test_")
    selects_files = config.option.markexpr == "dask_internals" and collection_path.is_file()
    return True if selects_files and name not in DASK_INTERNALS else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    skipped = {
        "slow": "a long form; run with --long",
        "whole_program": "a whole program, or a browser's test; run with --full",
    }
    if config.getoption("--full"):
        del skipped["whole_program"]
    if config.getoption("--long"):
        skipped.clear()
    for item in items:
        if item.path.stem.removeprefix("test_") in DASK_INTERNALS:
            item.add_marker(pytest.mark.dask_internals)
        fixtures = getattr(item, "fixturenames", ())
        if "browser" in fixtures:
            item.add_marker(pytest.mark.whole_program)
        for marker, reason in skipped.items():
            if item.get_closest_marker(marker):
                item.add_marker(pytest.mark.skip(reason=reason))
    items.sort(key=_rank)  # stable: the order within a file does not change


def _rank(item: pytest.Item) -> int:
    name = item.path.stem.removeprefix("test_")
    return LONGEST.index(name) if name in LONGEST else len(LONGEST)
