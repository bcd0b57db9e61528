"""Lines that take known times are named with the right shares, by samples of real workers."""

from __future__ import annotations

from pathlib import Path

import pytest
from clusters import client_of
from distributed import Client
from hot_lines_rates import IN_TURN, ONE_THREAD, THREADS, TOTALS, Compared, observe, observe_turns
from hot_programs import FEW

pytestmark = pytest.mark.whole_program

#: Points that may be added where the host is busy: then the sampler has no core either.
STARVED = 15.0


client = client_of(1, THREADS)


def check(found: Compared) -> None:
    # In 99 of 100 cases, of each of several lines.
    allowed = ONE_THREAD + 1.4 * found.chance + (STARVED if found.starved > 10 else 0)
    assert found.off <= allowed, found
    # The two begin and end within a look of each other, which stands for this share of them.
    look = 100 / max(found.samples, 1)
    assert found.totals_off <= 2 * TOTALS + 2 * look + (STARVED if found.starved > 10 else 0), found


@pytest.mark.parametrize("name", FEW)
def test_lines_of_one_thread(client: Client, tmp_path: Path, name: str) -> None:
    check(observe(client, name, tmp_path, 1, 6.0))


one_thread = client_of(1, 1)


@pytest.mark.parametrize("name", ["zipped", "processes"])
def test_tasks_compute_and_sleep_in_turn(one_thread: Client, tmp_path: Path, name: str) -> None:
    assert observe_turns(one_thread, name, tmp_path, 12).off <= 3 * IN_TURN
