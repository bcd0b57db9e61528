"""Degradation over time: planted in traces of known times, and absent from steady ones."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from traces import Plugin, record, row, usage

from dasfprof import TraceAnalyser
from dasfprof.schema.tasks import COMPUTE

T = 1.7e9


def worked_off(
    path: Path,
    count: int,
    run: Callable[[float], float],
    *,
    around: Callable[[float], float] = lambda time: 0.125,
    cpu: Callable[[float], float | None] = lambda time: 0.5,
    pause: Callable[[float], float] = lambda time: 0.0,
    size: Callable[[float], int] = lambda time: 1000,
) -> dict[str, Any]:
    """Let one thread work off tasks one by one; what they take depends on their share of all."""
    rows, now = [], T
    for number in range(count):
        share = number / count
        seconds, rest = run(share), around(share)
        rows.append(
            row(
                COMPUTE,
                key=f"f-{number}",
                run_id=number,
                state="memory",
                executing=now,
                timestamp=now + rest,
                duration=seconds,
                done=now + rest + seconds,
                cpu=cpu(share),
                input_size=size(share),
            )
        )
        now += rest + seconds + pause(share)
    Plugin(path / "run").write((COMPUTE, rows))
    table = TraceAnalyser(path / "run").degradation()
    assert table["Function"].tolist() == ["f"]
    return dict(table.iloc[0])


FLAGS = [
    "Count Falling",
    "Run Method Seconds Rising",
    "Elapsed Seconds Rising",
    "Process Seconds Rising",
    "Input Size Rising",
]


def flags(found: dict[str, Any]) -> list[bool]:
    return [found[name] for name in FLAGS]


#: By name: what is planted, which measures fall or rise, and what begins the verdict.
PLANTED: dict[str, tuple[dict[str, Any], list[bool], str]] = {
    "a function that waits ever longer": (
        {"run": lambda share: 1.0 + share},
        [True, True, True, False, False],
        "Degradation in something that the function waits for",
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
        {"run": lambda share: 1.0 + share, "size": lambda share: int(1000 + 1000 * share)},
        [True, True, True, False, True],
        "Inputs grow over time",
    ),
    "slower tasks of which as many start": (
        {"run": lambda share: 1.0 + share, "pause": lambda share: 1.0 - share},
        [False, True, True, False, False],
        "No degradation of the run",
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_what_changes_over_time_is_told(name: str, tmp_path: Path) -> None:
    planted, changes, verdict = PLANTED[name]
    found = worked_off(tmp_path, 90, **planted)

    assert flags(found) == changes
    assert found["Verdict"].startswith(verdict)


def test_a_function_that_computes_ever_longer(tmp_path: Path) -> None:
    found = worked_off(tmp_path, 90, lambda share: 1.0 + share, cpu=lambda share: 1.0 + share)

    assert flags(found) == [True, True, True, True, False]
    # Of 30 steps of three attempts each, the medians of the first ten are those of 1, 4, ... 28.
    first = sum(1 + number / 90 for number in range(1, 30, 3)) / 10
    last = sum(1 + number / 90 for number in range(61, 90, 3)) / 10
    assert found["Run Method Seconds Last/First Third"] == pytest.approx(last / first)
    assert found["Verdict"].startswith("Degradation in the function: it takes longer, and more CPU")


def test_a_function_whose_cpu_seconds_are_unknown(tmp_path: Path) -> None:
    found = worked_off(tmp_path, 90, lambda share: 1.0 + share, cpu=lambda share: None)

    assert found["Verdict"].startswith("Degradation in the function: it takes longer, and its CPU")


def test_one_slow_spell_at_the_end_is_no_trend(tmp_path: Path) -> None:
    found = worked_off(tmp_path, 300, lambda share: 3.0 if 0.85 < share < 0.95 else 1.0)
    assert not any(flags(found))
    assert found["Run Method Seconds Last/First Third"] > 1.3
    assert found["Verdict"].startswith("Not clear: the last attempts take longer")


@pytest.mark.parametrize("seed", range(6))
def test_noise_is_no_degradation(tmp_path: Path, seed: int) -> None:
    noise = random.Random(seed)
    found = worked_off(tmp_path, 300, lambda share: noise.lognormvariate(0, 0.5))

    assert found["Verdict"] == "No degradation."


@pytest.mark.parametrize("seed", range(3))
def test_degradation_shows_through_noise(tmp_path: Path, seed: int) -> None:
    noise = random.Random(seed)
    found = worked_off(
        tmp_path, 300, lambda share: (1 + 1.5 * share) * noise.lognormvariate(0, 0.5)
    )

    assert found["Verdict"].startswith("Degradation in something that the function waits for")


def test_too_few_attempts(tmp_path: Path) -> None:
    found = worked_off(tmp_path, 11, lambda share: 1.0 + 5 * share)

    assert found["Attempts"] == 11
    assert found["Verdict"].startswith("Fewer than 12 attempts")
    assert all(flag is not True for flag in flags(found))


def test_a_run_without_tasks(tmp_path: Path) -> None:
    assert len(TraceAnalyser(record(tmp_path / "run", [usage(1.0)])).degradation()) == 0


def test_many_functions_of_which_one_degrades(tmp_path: Path) -> None:
    rows = [
        row(
            COMPUTE,
            key=f"{name}-{number}",
            run_id=number,
            state="memory",
            executing=T + number * (1 + (name == "z") * number / 50),
            timestamp=T + number * (1 + (name == "z") * number / 50),
            duration=0.5 + (name == "z") * number / 50,
            done=T + number * (1 + (name == "z") * number / 50) + 2,
        )
        for name in "abcdefghijklmnopqrstuvwxyz"
        for number in range(50)
    ]
    Plugin(tmp_path / "run").write((COMPUTE, rows))
    table = TraceAnalyser(tmp_path / "run").degradation()

    assert table["Function"].tolist() == ["z", *"abcdefghijklmnopqrstuvwxy"]
    assert table["Run Method Seconds Rising"].tolist() == [True] + [False] * 25
