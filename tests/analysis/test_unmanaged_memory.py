"""Memory that stays in processes is told of where nothing runs and no result explains it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from diagnosed_plans import assert_found, found
from traces import Plan, filled

MB = 1_000_000


def kept(memory: int, results: int = 0, **more: Any) -> Plan:
    """Plan 2 s of tasks, and 4 s in which a worker has so much memory, and so much of results."""
    tasks = filled(["parse"], 0.5, count=4, workers=1, threads=1)
    state = {"spilled_size": 0, "tasks": 1, "ready": 0, "state": "running"}
    held = [(0, 0.5, {**state, "executing": 1, "size": 0})]
    held += [(0, at, {**state, "executing": 0, "size": results, **more}) for at in (2.5, 4.0, 6.0)]
    used = [(0, 0.0, {"memory": 100 * MB})]
    used += [(0, at, {"memory": memory}) for at in (1.0, 2.6, 4.0, 5.9)]
    facts = {"workers": 1, "threads": 1, "memory_limit": 2000 * MB}
    return Plan(tasks, held=held, used=used, **facts)


def test_memory_that_stays(tmp_path: Path) -> None:
    expected = {"severity": "medium", "of": "stays", "left": 800.0 * MB, "share": 0.4}
    assert_found(kept(900 * MB), tmp_path, "memory-growth", **expected, limit=2000.0 * MB)


def test_results_that_are_larger_on_disk_than_in_memory(tmp_path: Path) -> None:
    """Dask takes an integer to have 28 bytes, and writes more."""
    plan = kept(900 * MB, results=280, spilled_size=1190)
    assert_found(plan, tmp_path, "memory-growth", left=800.0 * MB, results=0.0)


@pytest.mark.parametrize(
    "plan",
    [
        kept(900 * MB, results=700 * MB),  # the results explain it
        kept(900 * MB, executing=1),  # tasks that run may need it
        kept(250 * MB),  # little
    ],
)
def test_memory_that_looks_alike(tmp_path: Path, plan: Plan) -> None:
    assert not found(plan, tmp_path, "memory-growth")


def test_memory_that_is_freed_late_does_not_stay(tmp_path: Path) -> None:
    plan = kept(900 * MB)
    plan.used[-1] = (0, 5.9, {"memory": 150 * MB})

    assert not found(plan, tmp_path, "memory-growth")


def test_what_results_give_back_at_the_end_was_no_less_kept_before(tmp_path: Path) -> None:
    """Freed objects between results that live: their release at the program's end frees all."""
    plan = kept(900 * MB, results=MB)
    _, _, facts = plan.held[-1]
    plan.held.append((0, 6.1, {**facts, "size": 0}))
    plan.used.append((0, 6.1, {"memory": 120 * MB}))

    assert_found(plan, tmp_path, "memory-growth", left=799.0 * MB)
