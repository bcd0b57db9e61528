"""Degradation over time: found in planned traces that slow down, and not in steady ones."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from traces import Plugin, T, record, row, usage

from dasfprof import TraceAnalyser
from dasfprof.schema.tasks import COMPUTE


def worked_off(path: Path, count: int, run: Callable[[float], float], **more: Any) -> Any:
    """Run consecutive tasks on one thread, whose seconds depend on their position (0 to 1)."""
    usual = {"around": 0.125, "cpu": 0.5, "pause": 0.0, "size": 1000}
    rows, now = [], T
    for number in range(count):
        share = number / count
        told = {name: more[name](share) if name in more else usual[name] for name in usual}
        start, seconds = now + told["around"], run(share)
        times = {"executing": now, "timestamp": start, "duration": seconds, "done": start + seconds}
        facts = {"cpu": told["cpu"], "input_size": told["size"], "state": "memory"}
        rows.append(row(COMPUTE, key=f"f-{number}", run_id=number, **times, **facts))
        now = start + seconds + told["pause"]
    Plugin(path).write((COMPUTE, rows))
    table = TraceAnalyser(path).degradation()
    assert table["Function"].tolist() == ["f"]
    return table.iloc[0]


FLAGS = ["Count Falling", "Run Method Seconds Rising", "Elapsed Seconds Rising"]
FLAGS += ["Process Seconds Rising", "Input Size Rising"]


def growing(share: float) -> float:
    return 1.0 + share


#: By name: the planned run, measures that fall or rise, and the start of the verdict.
PLANTED: dict[str, tuple[dict[str, Any], list[bool], str]] = {
    "a function that waits ever longer": (
        {"run": growing},
        [True, True, True, False, False],
        "Degradation in something that the function waits for",
    ),
    "a function that computes ever longer": (
        {"run": growing, "cpu": growing},
        [True, True, True, True, False],
        "Degradation in the function: it takes longer, and more CPU",
    ),
    "a function whose CPU seconds are unknown": (
        {"run": growing, "cpu": lambda share: None},
        [True, True, True, None, False],
        "Degradation in the function: it takes longer, and its CPU",
    ),
    "degradation around the function": (
        {"run": lambda share: 0.5, "around": lambda share: 0.5 + 2 * share},
        [True, False, True, False, False],
        "Degradation around the function",
    ),
    "a function that is fed ever less": (
        {"run": lambda share: 0.5, "pause": lambda share: 2 * share},
        [True, False, False, False, False],
        "Fewer of its tasks start over time",
    ),
    "inputs that grow": (
        {"run": growing, "size": lambda share: int(1000 + 1000 * share)},
        [True, True, True, False, True],
        "Inputs grow over time",
    ),
    "slower tasks of which as many start": (
        {"run": growing, "pause": lambda share: 1.0 - share},
        [False, True, True, False, False],
        "No degradation of the run",
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_what_changes_over_time_is_told(name: str, tmp_path: Path) -> None:
    planted, changes, verdict = PLANTED[name]
    found = worked_off(tmp_path, 90, **planted)
    told = [flag for flag, known in zip(found[FLAGS], changes, strict=True) if known is not None]
    assert told == [known for known in changes if known is not None]
    assert found["Verdict"].startswith(verdict)
    if planted["run"] is growing:
        # There are 30 steps with three attempts each: the first ten have medians of 1, 4, ... 28.
        first = sum(1 + number / 90 for number in range(1, 30, 3)) / 10
        last = sum(1 + number / 90 for number in range(61, 90, 3)) / 10
        assert found["Run Method Seconds Last/First Third"] == pytest.approx(last / first)


def test_one_slow_spell_at_the_end_is_no_trend(tmp_path: Path) -> None:
    found = worked_off(tmp_path, 300, lambda share: 3.0 if 0.85 < share < 0.95 else 1.0)
    assert not any(found[FLAGS])
    assert found["Run Method Seconds Last/First Third"] > 1.3
    assert found["Verdict"].startswith("Not clear: the last attempts take longer")


@pytest.mark.parametrize("seed", range(6))
def test_noise(tmp_path: Path, seed: int) -> None:
    noise = random.Random(seed)
    found = worked_off(tmp_path / "even", 300, lambda share: noise.lognormvariate(0, 0.5))
    assert found["Verdict"] == "No degradation."
    noise = random.Random(seed)
    found = worked_off(
        tmp_path / "slower", 300, lambda share: (1 + 1.5 * share) * noise.lognormvariate(0, 0.5)
    )
    assert found["Verdict"].startswith("Degradation in something that the function waits for")


def test_too_few_attempts(tmp_path: Path) -> None:
    found = worked_off(tmp_path, 11, lambda share: 1.0 + 5 * share)
    assert found["Attempts"] == 11
    assert found["Verdict"].startswith("Fewer than 12 attempts")
    assert all(flag is not True for flag in found[FLAGS])


def test_a_run_without_tasks(tmp_path: Path) -> None:
    assert len(TraceAnalyser(record(tmp_path / "run", [usage(1.0)])).degradation()) == 0


def test_many_functions_of_which_one_degrades(tmp_path: Path) -> None:
    rows = []
    for name in "abcdefghijklmnopqrstuvwxyz":
        for number in range(50):
            longer = (name == "z") * number / 50
            at = T + number * (1 + longer)
            facts = {"executing": at, "timestamp": at, "done": at + 2, "duration": 0.5 + longer}
            key = f"{name}-{number}"
            rows.append(row(COMPUTE, key=key, run_id=number, state="memory", **facts))
    Plugin(tmp_path / "run").write((COMPUTE, rows))
    table = TraceAnalyser(tmp_path / "run").degradation()
    assert table["Function"].tolist() == ["z", *"abcdefghijklmnopqrstuvwxy"]
    assert table["Run Method Seconds Rising"].tolist() == [True] + [False] * 25
