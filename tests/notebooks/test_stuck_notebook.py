"""The notebook about runs that do not end, executed from begin to end in a kernel of its own."""

from __future__ import annotations

from typing import Any

import pytest
from executed_notebook import assert_without_outputs, execute, output

pytestmark = pytest.mark.whole_program

NOTEBOOK = "stuck.ipynb"


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """Give the notebook's cells of code after a run."""
    return execute(NOTEBOOK, tmp_path_factory.mktemp("notebook"))


def test_it_is_committed_without_outputs() -> None:
    assert_without_outputs(NOTEBOOK)


def test_crossed_locks_are_found(executed: list[Any]) -> None:
    evidence = output(executed, 'print(crossed["Evidence"]')
    for words in ("hold north and waits for Lock south", "hold south and waits for Lock north"):
        assert words in evidence
    assert "wait for each other" in output(executed, "crossed[[", "text/html")


def test_parents_are_found(executed: list[Any]) -> None:
    told = output(executed, 'print(parents["Cause"]')
    assert told.startswith("2 tasks of sum_of_squares hold all 2 threads of the cluster")
    assert "worker_client()" in told


def test_the_changes_help(executed: list[Any]) -> None:
    copied = output(executed, "client.gather([client.submit(copy_in_order")
    assert copied.startswith("['b', 'a']")
    summed = output(executed, "client.gather(client.map(sum_of_squares_beside")
    assert summed.startswith(f"[{0 + 1 + 4}, {100 + 121 + 144}]")


def test_what_no_worker_has_is_found(executed: list[Any]) -> None:
    assert "no worker has GPU=1" in output(executed, "held_back[[", "text/html")


def test_a_healthy_wait_is_not_accused(executed: list[Any]) -> None:
    table = output(executed, "healthy[[", "text/html")
    assert "<td>open</td>" in table
    assert "<td>certain</td>" not in table
    assert "<td>likely</td>" not in table
