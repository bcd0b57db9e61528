"""Options, markers and settings of all tests."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

#: Directories whose tests all rest on what Dask does inside.
DASK_INTERNALS = ("recording", "gpu")

QUIET = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
settings.register_profile("long", database=None, deadline=None, suppress_health_check=QUIET)
#: The same examples in every run.
settings.register_profile("short", settings.get_profile("long"), derandomize=True)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="run the long forms of tests as well")


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("long" if config.getoption("--long") else "short")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent.name in DASK_INTERNALS:
            item.add_marker(pytest.mark.dask_internals)
        if item.get_closest_marker("slow") and not config.getoption("--long"):
            item.add_marker(pytest.mark.skip(reason="a long form; run with --long"))
