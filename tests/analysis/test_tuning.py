"""Tuning: predictions for workers that share cores, profiles, and no advice by chance."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from test_replay import run
from traces import made_trace

from dasfprof.analysis.comparison.trial import (
    Agreement,
    Point,
    Trial,
    TriedRun,
    Tuning,
    in_gib,
    judge_gain,
)
from dasfprof.analysis.run import Run
from dasfprof.analysis.simulation.changes import HostReplay
from dasfprof.handles.trial.grid import Host, cluster_sizes
from dasfprof.handles.trial.process import Done, Program
from dasfprof.handles.trial.runs import PLAIN, ProgramRuns, Variant
from dasfprof.handles.trial.settings import Settings
from dasfprof.handles.trial.tuning import Tuner, _Candidate


def replay(cpu: float, cores: float = 2, **more: Any) -> HostReplay:
    """Replay eight tasks of 1 s, which two workers with one thread ran in turn."""
    tasks = [run(f"f-{n}", 0, n // 2, n // 2 + 1, n % 2, sent=n // 2, cpu=cpu) for n in range(8)]
    trace = made_trace(tasks, workers=[{"boot_id": "scheduler's"}] * 2)
    return HostReplay(Run.from_trace(trace), cores, **more)


def test_tasks_that_wait_gain_by_threads_and_those_that_compute_by_cores() -> None:
    waits, computes = replay(0.0), replay(1.0)
    assert waits.obstacle == computes.obstacle == ""
    assert waits.wall(2, 1) == computes.wall(2, 1) == pytest.approx(4)
    assert waits.wall(2, 4) == pytest.approx(1, abs=0.1)
    # 8 s of work on two cores, for any number of threads.
    assert computes.wall(2, 4) == pytest.approx(4, abs=0.1)
    assert computes.wall(1, 2) == pytest.approx(4, abs=0.1)
    assert computes.wall(1, 1) == pytest.approx(8, abs=0.1)
    assert replay(1.0, cores=8).wall(2, 4) == pytest.approx(1, abs=0.1)
    # Half of each task is waiting, and the other half shares the cores.
    assert replay(0.5).wall(2, 4) == pytest.approx(2.25, abs=0.4)


def test_tasks_that_take_turns_gain_by_workers_alone() -> None:
    found = replay(0.0, one_at_a_time=True)
    assert found.wall(2, 4) == found.wall(2, 1) == pytest.approx(4)
    assert found.wall(4, 1) == pytest.approx(2, abs=0.2)
    # What was not recorded is not predicted.
    found = replay(math.nan)
    assert "CPU seconds" in found.obstacle
    assert math.isnan(found.wall(2, 4))


def test_the_clusters_that_a_host_has_room_for() -> None:
    sizes = cluster_sizes(Host(2, 8e9), {})
    assert sizes == [(1, 1), (1, 2), (1, 4), (1, 8), (2, 1), (2, 2), (2, 4)]
    many = cluster_sizes(Host(12, 8e9), {})
    assert {workers for workers, _ in many} == {1, 2, 4, 8, 12}
    assert all(6 <= workers * threads <= 48 for workers, threads in many)
    given = {"n_workers": [3], "threads_per_worker": [1, 32]}
    assert cluster_sizes(Host(2, 8e9), given) == [(3, 1), (3, 32)]
    assert in_gib(4 * 2**30) == "4 GiB"
    assert in_gib(11.79 * 2**30) == "11.7 GiB"  # rounded down


CHANGE = {"n_workers": 2, "threads_per_worker": 1, "memory_limit": "4 GiB"}


def point(before: list[float], after: list[float], results: Any = "equal", **more: Any) -> Point:
    gain = judge_gain(np.array(before), np.array(after))
    runs = [TriedRun(False, x, x) for x in before] + [TriedRun(True, x, x) for x in after]
    change = {**CHANGE, **more}
    about = {"gain": gain, "results": Agreement(results, "They differ."), "runs": runs}
    return Point(change, trial=Trial(change, **about))  # type: ignore[arg-type]


def tuning(best: Point | None, **more: Any) -> Tuning:
    return Tuning({"n_workers": 1, "threads_per_worker": 8}, [best] if best else [], best, **more)


def test_a_gain_is_a_line_and_a_profile() -> None:
    more = {"OMP_NUM_THREADS": "1", "array.chunk-size": "64MiB", "--chunk": "5000"}
    found = tuning(point([4.0, 4.1, 3.9], [2.0, 2.1, 1.9], **more))
    assert found.kind == "tuned"
    assert found.line == 'LocalCluster(n_workers=2, threads_per_worker=1, memory_limit="4 GiB")'
    assert found.sentences[0].startswith("Saved 2 s of 4 s")
    assert yaml.safe_load(found.profile) == {
        "distributed": {"nanny": {"pre-spawn-environ": {"OMP_NUM_THREADS": "1"}}},
        "array": {"chunk-size": "64MiB"},
        "dasfprof": {"tuned": {**CHANGE, "arguments": {"--chunk": "5000"}}},
    }


def test_what_gains_nothing_or_varies_is_not_advised() -> None:
    nothing = tuning(point([4.0, 4.02, 3.98], [3.99, 4.0, 3.98]))
    assert (nothing.kind, nothing.line, nothing.profile) == ("as it is", "", "")
    assert nothing.sentences[0].startswith("Keep the baseline")
    varies = tuning(point([4.0, 6.0, 2.0], [3.0, 5.0, 2.0]))
    assert (varies.kind, varies.profile) == ("cannot tell", "")
    assert varies.sentences[0].startswith("Cannot tell which settings are best")
    differ = Tuning({}, [point([4.0, 4.1, 3.9], [2.0, 2.1, 1.9], "differ")])
    assert (differ.kind, differ.sentences[0]) == ("results differ", "Nothing is advised.")
    assert tuning(None).kind == "no result"


class PlannedRuns(ProgramRuns):
    """Program runs with planned durations."""

    def __init__(self, plan: Mapping[str, list[float]], place: Path) -> None:
        super().__init__(Program("program"), place, place, 3600.0, 1e-6)
        self._plan = {name: list(seconds) for name, seconds in plan.items()}
        self.plain = [self.done(1.0)]

    def done(self, seconds: float) -> Done:
        no: list[Any] = []
        return Done(0, False, seconds, "", "", no, no, no, seconds, 1, 1, no, Path())

    def run(self, side: Variant, **_: Any) -> Done:
        return self.done(self._plan[side.how].pop(0))


def test_what_is_as_good_as_the_best_leaves_the_time_to_it(tmp_path: Path) -> None:
    plan = {"best": [1.0, 1.1, 1.05] * 2, "as good": [1.0, 1.1, 1.06], "longer": [1.3, 1.3]}
    candidates = [_Candidate(Point({}), Variant(Settings(), how, how)) for how in plan]
    plan[PLAIN.how] = [2.0, 3.0, 2.5, 2.1, 2.8, 2.4]
    tuner = Tuner(PlannedRuns(plan, tmp_path))
    tuner._run_by_turns(candidates)
    # With this variation of the program, at least six pairs are needed. Welch's t is 5.0, 6.0 and
    # 8.9, and p is 0.036, 0.0089 and 0.00026. For four looks and three settings: 0.44, 0.11 and
    # 0.0032.
    assert [len(one.done) for one in candidates] == [6, 3, 2]
