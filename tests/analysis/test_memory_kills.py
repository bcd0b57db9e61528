"""Suspected functions of out-of-memory kills: calculated by hand, and on killed workers."""

import math
from pathlib import Path

import memory_culprits
import pytest
from traces import Plan, Task

from dasfprof.analysis.model.memory_kills import (
    MemoryGroup,
    MemoryKill,
    Reason,
    UnderWay,
    suspected,
)

UNKNOWN = math.nan


def ran(
    function: str, seen: int = 1, perhaps: int = 0, *, rise: float = UNKNOWN, ended: int = 0
) -> UnderWay:
    return UnderWay(function, seen, perhaps, 3.0 if seen else UNKNOWN, rise, ended)


def kill(*tasks: UnderWay) -> MemoryKill:
    """Return a kill at 900 MB of 1 GB, 800 MB of which came while the tasks ran."""
    return MemoryKill(0, 10.0, 900e6, 1e9, 0.0, 100e6, MemoryGroup(), tasks, Reason.SEVERAL)


@pytest.mark.parametrize(
    ("tasks", "reason", "suspect"),
    [
        # 1 task of 10 MB does not explain 800 MB.
        ([ran("hog"), ran("small", rise=10e6, ended=50)], Reason.NEVER_ENDED, "hog"),
        # A function that ended ten times without a sample of its memory does not explain it either.
        ([ran("hog"), ran("small", 0, 1, ended=10)], Reason.NEVER_ENDED, "hog"),
        # Three times 250 MB explain most of 800 MB.
        (
            [ran("large", 3, rise=250e6, ended=5), ran("a", rise=1e7, ended=5)],
            Reason.USUAL,
            "large",
        ),
        # They still explain it next to one that never ended, which may have taken nothing.
        ([ran("large", 3, rise=250e6, ended=5), ran("hog")], Reason.SEVERAL, None),
        # Two are equally large.
        ([ran("a", rise=400e6, ended=5), ran("b", rise=400e6, ended=5)], Reason.SEVERAL, None),
        # Neither of two ended.
        ([ran("hog"), ran("other")], Reason.SEVERAL, None),
        # One may not have started.
        ([ran("hog", 0, 1), ran("small", rise=10e6, ended=50)], Reason.SEVERAL, None),
        # Too few task runs of another function ended, too fast.
        ([ran("hog"), ran("new", ended=2)], Reason.SEVERAL, None),
        # Some task runs of both ended, and took little.
        ([ran("hog", rise=10e6, ended=4), ran("small", rise=10e6, ended=50)], Reason.SEVERAL, None),
        # A third of it is explained.
        ([ran("hog"), ran("small", rise=300e6, ended=50)], Reason.SEVERAL, None),
    ],
)
def test_suspicion_by_hand(tasks: list[UnderWay], reason: Reason, suspect: str | None) -> None:
    found = suspected(kill(*tasks))
    assert (found.reason, found.suspect) == (reason, suspect)
    assert found.certainty == ("likely" if suspect else None)


@pytest.mark.parametrize(
    ("task", "certainty"),
    [(ran("hog"), "certain"), (ran("hog", 0, 1), "likely")],
)
def test_the_only_function_is_certain_if_it_was_seen_to_run(task: UnderWay, certainty: str) -> None:
    alone = suspected(kill(task))
    assert (alone.reason, alone.suspect, alone.certainty) == (Reason.ALONE, "hog", certainty)


def in_groups(groups: list[str]) -> Plan:
    """Plan three workers in control groups of 1 GB. The first is killed with 300 MB.

    The others have 600 and 100 MB, and the kernel counts a kill.
    """
    used = [
        (n, at, {"memory": size * 10**6, "oom_kills": int(at > 3.9)})
        for n, size in enumerate((300, 600, 100))
        for at in (0.0, 3.8, 4.5)
        if n or at < 4
    ]
    return Plan(
        [Task(f"fit-{n}", n, 0.0, 5.0 if n else 3.0) for n in range(3)],
        workers=3,
        threads=1,
        used=used,
        left=[(0, 4.0, "handle-worker-cleanup")],
        killed=[0],
        memory_sizes=[
            {"memory_limit": 2 * 10**9, "memory_group": group, "group_limit": 10**9}
            for group in groups
        ],
    )


def test_workers_of_one_control_group_fill_it_together(tmp_path: Path) -> None:
    rows = {}
    for name, groups in (("all", "jjj"), ("two", "jjo"), ("alone", "jot"), ("none", None)):
        plan = in_groups([f"/{group}" for group in groups or "jjj"])
        if groups is None:
            plan.memory_sizes = [{"memory_limit": 2 * 10**9}] * 3
        (rows[name],) = plan.write(tmp_path / name).died_of_memory().to_dict("records")
    figures = {name: (row["Group (MB)"], row["Group Workers"]) for name, row in rows.items()}
    # 300, 600 and 100 MB of 1 GB.
    assert figures["all"] == (1000, 3)
    assert figures["two"] == (900, 2)
    assert figures["alone"] == (300, 1)
    together = rows["all"]
    limits = [together[name] for name in ("Group Limit (MB)", "Memory (MB)", "Limit (MB)")]
    assert limits == [1000, 300, 2000]
    assert together["Because"].startswith("the control group that it shares")
    assert together["Suspect"] == ""
    assert "control group" not in rows["alone"]["Because"]
    assert math.isnan(rows["none"]["Group Limit (MB)"]) and rows["none"]["Group Workers"] == 0


BY_DEFAULT = ("swell among small", "two swell", "results kept")


@pytest.mark.whole_program
@pytest.mark.parametrize(
    "name",
    [
        name if name in BY_DEFAULT else pytest.param(name, marks=pytest.mark.slow)
        for name in memory_culprits.CULPRITS
    ],
)
def test_workers_that_died_of_it(name: str, tmp_path: Path) -> None:
    """The suspect is the culprit, or there is none."""
    true = memory_culprits.CULPRITS[name]
    analyser = memory_culprits.run(name, tmp_path)
    table = analyser.died_of_memory()
    assert len(table)
    named = set(table["Suspect"]) - {""}
    assert named <= {true.function}
    if not true.may_be_open and true.function is not None:
        assert named
    assert not named or set(table["Certainty"]) & {"certain", "likely"}
    # The limit is that of the program, and the memory is from a sample of its process.
    assert set(table["Limit (MB)"]) == {memory_culprits.LIMIT / 1e6}
    assert (table["Memory (MB)"].dropna() < 3 * memory_culprits.LIMIT / 1e6).all()
