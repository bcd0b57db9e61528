"""Percentages of lines with known times are right, from samples of real workers."""

from pathlib import Path

import pytest
from clusters import client_of
from distributed import Client
from hot_lines_rates import IN_TURN, ONE_THREAD, THREADS, TOTALS, Compared, observe, observe_turns
from hot_programs import FEW

pytestmark = pytest.mark.whole_program

#: Additional tolerance (percentage points) on a busy host, where the sampler waits for CPU too.
STARVED = 15.0


client = client_of(1, THREADS)


def check(found: Compared) -> None:
    # This allows for chance in 99 of 100 cases, for each of several lines.
    allowed = ONE_THREAD + 1.4 * found.chance + (STARVED if found.starved > 10 else 0)
    assert found.off <= allowed, found
    # Both start and end within one sample of each other, which is this percentage of them.
    look = 100 / max(found.samples, 1)
    assert found.totals_off <= 2 * TOTALS + 2 * look + (STARVED if found.starved > 10 else 0), found


@pytest.mark.parametrize("name", FEW)
def test_lines_of_one_thread(client: Client, tmp_path: Path, name: str) -> None:
    check(observe(client, name, tmp_path, 1, 6.0))


one_thread = client_of(1, 1)


@pytest.mark.parametrize("name", ["zipped", "processes"])
def test_tasks_compute_and_sleep_in_turn(one_thread: Client, tmp_path: Path, name: str) -> None:
    assert observe_turns(one_thread, name, tmp_path, 12).off <= 3 * IN_TURN
