"""Reports of trials about seconds and results: no time saved by chance, and no wrong equality."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from traces import Plan, filled

from dasfprof.analysis.comparison.comparison import ChangedFinding
from dasfprof.analysis.comparison.runs import open_side
from dasfprof.analysis.comparison.trial import LOOKS, Agreement, Trial, judge_gain
from dasfprof.analysis.diagnosis.registry import Change
from dasfprof.errors import InvalidArgumentError
from dasfprof.handles.script import with_arguments
from dasfprof.handles.trial.process import seconds_of
from dasfprof.handles.trial.results import compare_outputs
from dasfprof.handles.trial.settings import Settings, Shape, checked, in_numbers, read_change
from dasfprof.handles.trial.trial import as_parameter, given_value

#: Seconds of a program with one change that makes it faster.
SLOW, FAST = np.array([11.4, 11.5, 11.6]), np.array([2.5, 2.6, 2.7])


def test_kinds_of_gains_and_their_intervals() -> None:
    gain = judge_gain(SLOW, FAST)
    assert (gain.kind, gain.pairs) == ("gained", 3)
    # Both have a standard deviation of 0.1. With 4 degrees of freedom, t is 2.776.
    off = 2.776 * 0.1 * np.sqrt(2 / 3)
    assert (gain.low, gain.high) == pytest.approx((8.9 - off, 8.9 + off), rel=1e-3)
    assert gain.text.startswith("Saved 8.9 s of 11.5 s (95 %: 8.67 s to 9.13 s; 3 pairs of runs")
    before = np.array([10.0, 10.1, 9.9])
    assert judge_gain(before, before + 3).kind == "lost"
    assert judge_gain(before, before - 0.05).kind == "nothing"
    varies = judge_gain(np.array([8.0, 10.0, 12.0]), np.array([7.0, 9.0, 12.0]))
    assert varies.kind == "cannot tell"
    assert varies.text.startswith("Cannot tell whether anything was saved: −")  # noqa: RUF001
    assert judge_gain(before[:1], before[:1]).kind == "cannot tell"


@pytest.mark.parametrize(
    ("calls", "seconds"),
    [
        ([], 4.0),
        # The client prepares tasks for 0.5 s, and fetches results for 2 s after the last task.
        ([(-0.5, 0.1, "map", {}), (3.0, 6.0, "gather", {})], 6.5),
        # Other calls are not part of the computation.
        ([(-3.0, -2.0, "run", {"keys": 0}), (-4.0, 9.0, "recording", {"calls": 0})], 4.0),
    ],
)
def test_the_seconds_of_a_run(calls: Any, seconds: float, tmp_path: Path) -> None:
    Plan(filled(["load"], 1.0), client_calls=calls).write_files(tmp_path)
    (run,) = open_side(tmp_path)
    assert seconds_of(run) == pytest.approx(seconds, abs=0.001)


@pytest.mark.parametrize(("changes", "far_off"), [(1, 1.0), (4, 1.3)])
def test_chance_makes_no_gain_in_99_of_100(changes: int, far_off: float, request: Any) -> None:
    """Sides are equal and compared repeatedly; a tenth of the runs may be longer than others."""
    count = 600 if request.config.getoption("--long") else 100
    random, wrong = np.random.default_rng(1), 0
    for _ in range(count):
        runs = random.normal(10, 0.5, (1 + changes, LOOKS[-1]))
        before, *others = runs * np.where(random.random(runs.shape) < 0.1, far_off, 1.0)
        for pairs in LOOKS:
            best = min(others, key=lambda after, pairs=pairs: float(after[:pairs].mean()))
            kind = judge_gain(before[:pairs], best[:pairs], tests=changes).kind
            if kind != "cannot tell":
                wrong += kind in ("gained", "lost")
                break
    # Limits are 2 of 100 and 12 of 600. At 1 %, chance exceeds them once in 12, and in 100 times.
    assert wrong <= 0.02 * count


def test_six_pairs_tell_of_one_change_among_four() -> None:
    """With 924 splits of 12 runs, a permutation test gives at least 0.2 %, times 16: 3.5 %."""
    before = np.array([3.42, 2.64, 2.88, 2.69, 3.06, 2.79])
    after = np.array([1.36, 1.28, 1.3, 1.37, 1.88, 1.67])
    gain = judge_gain(before, after, tests=4)
    assert (gain.kind, gain.test) == ("gained", "Welch's t-test")
    assert judge_gain(before, after).test == "permutation test"


@pytest.mark.parametrize(
    ("plain", "changed", "kind"),
    [
        (["", ""], "", "equal"),
        (["mean 0.1234567891", "mean 0.1234567899"], "mean 0.1234567880", "equal"),
        (["mean 0.12", "mean 0.12"], "mean 0.13", "differ"),
        # Counts differ however small the difference is.
        (["rows 10000000", "rows 10000000"], "rows 10000001", "differ"),
        (["a\n", "a\n"], "a\nb\n", "differ"),
        (["took 1.5 s", "took 1.6 s"], "took 0.7 s", "not comparable"),
        (["a\n", "a\nb\n"], "a\n", "not comparable"),
        (["sum 10\ntook 1.5 s", "sum 10\ntook 1.6 s"], "sum 10\ntook 0.2 s", "in part"),
        (["sum 10\ntook 1.5 s", "sum 10\ntook 1.6 s"], "sum 11\ntook 0.2 s", "differ"),
        (["id 1e999", "id 1e999"], "id 2e999", "differ"),
        (["nan", "nan"], "0.5", "differ"),
    ],
)
def test_what_a_program_prints(plain: list[str], changed: str, kind: str) -> None:
    sides = ([{"": text.splitlines()} for text in side] for side in (plain, [changed]))
    assert compare_outputs(*sides, 1e-6).kind == kind


FRAME = pd.DataFrame({"x": [1.0, 2.0], "name": ["a", "b"]})


@pytest.mark.parametrize(
    ("one", "other", "kind"),
    [
        (0.1 + 0.2, 0.3, "equal"),
        (3, 4, "differ"),
        (np.arange(3.0), np.arange(3.0) * (1 + 1e-9), "equal"),
        (np.arange(3.0), np.arange(4.0), "differ"),
        (np.array([1.0, np.nan]), np.array([1.0, np.nan]), "equal"),
        (FRAME, FRAME.assign(x=FRAME["x"] * (1 + 1e-9)), "equal"),
        (FRAME, FRAME.assign(x=[1.0, 3.0]), "differ"),
        (FRAME, FRAME.rename(columns={"x": "y"}), "differ"),
        ({"a": [FRAME, 1.0]}, {"a": [FRAME, 1.0 + 1e-9]}, "equal"),
        ({"a": [FRAME, 1.0]}, {"a": [FRAME, 1.1]}, "differ"),
        (FRAME, None, "differ"),
        ("a", "b", "differ"),
    ],
)
def test_what_a_function_returns(one: object, other: object, kind: str) -> None:
    first, second = {"": [one]}, {"": [other]}
    assert compare_outputs([first, first], [second], 1e-6).kind == kind
    assert compare_outputs([first, second], [first], 1e-6).kind == (
        "equal" if kind == "equal" else "not comparable"
    )


def test_no_gain_counts_where_results_differ() -> None:
    gain, results = judge_gain(SLOW, FAST), Agreement("differ", "Results differ.")
    trial = Trial({"n_workers": 1}, gain=gain, results=results)
    assert trial.kind == "results differ"
    assert trial.sentences[0] == "Results differ."
    assert "does not count" in trial.sentences[1]


@pytest.mark.parametrize(
    ("after", "kind", "promised"),
    [([2.5, 2.6, 2.7], "gained", 7.0), ([14.4, 14.5, 14.6], "lost", np.nan)],
)
def test_promises_are_shown_unless_time_was_lost(after: Any, kind: str, promised: float) -> None:
    fixed = ChangedFinding("gone", "client-bound", None, "It waits.", 7.0, np.nan, None)
    gain = judge_gain(SLOW, np.array(after))
    trial = Trial({"patch": "fix.diff"}, gain=gain).answering([fixed])
    assert (trial.kind, trial.promised) == (kind, pytest.approx(promised, nan_ok=True))
    assert ("The finding promised 7 s." in trial.sentences[0]) == np.isfinite(promised)


def test_a_promise_is_what_the_change_removed() -> None:
    """A finding that appears for another function was not fixed."""
    changes = [
        ChangedFinding("gone", "tasks-too-small", "load", "Tasks are small.", 9.0, np.nan, None),
        ChangedFinding("new", "tasks-too-small", "parse", "Tasks are small.", np.nan, 11.0, None),
        ChangedFinding("smaller", "large-gathers", None, "It fetches a lot.", 6.0, 1.5, None),
        ChangedFinding("gone", "client-bound", None, "It waits.", 5.0, np.nan, "large-gathers"),
    ]
    gain = judge_gain(SLOW, np.array([7.1, 7.2, 7.3]))
    trial = Trial({"patch": "fix.diff"}, gain=gain).answering(changes)
    assert (trial.rule, trial.promised) == ("large-gathers", 4.5)


def test_what_a_setting_is_of() -> None:
    texts = ("n_workers=4", "processes=no", "OMP_NUM_THREADS=1", "array.chunk-size=64MiB")
    texts += ("--chunk=5000",)
    settings = Settings.of(dict(map(read_change, texts)))
    assert settings.options == {"n_workers": 4, "processes": False}
    assert settings.environment == {"OMP_NUM_THREADS": "1"}
    assert settings.arguments == {"--chunk": "5000"}
    assert settings.variables == {"OMP_NUM_THREADS": "1", "DASK_ARRAY__CHUNK_SIZE": "64MiB"}


@pytest.mark.parametrize(
    "text",
    [
        *("n_workers", "n_workers=", "n_workers=0", "n_workers=x", "processes=2"),
        *("memory_limit=much", "threads=2", "chunks=10"),
    ],
)
def test_what_is_no_setting(text: str) -> None:
    with pytest.raises(InvalidArgumentError):
        read_change(text)


def test_more_and_fewer_by_the_cluster_that_there_was() -> None:
    shape = Shape(workers=4, threads=2, memory_limit=1e9)
    change = {"n_workers": "fewer", "threads_per_worker": "more", "memory_limit": "more"}
    numbers = in_numbers({name: checked(name, value) for name, value in change.items()}, shape)
    assert numbers == {"n_workers": 2, "threads_per_worker": 4, "memory_limit": 2_000_000_000}
    with pytest.raises(InvalidArgumentError, match="had 1"):
        in_numbers({"threads_per_worker": "fewer"}, Shape(4, 1, 1e9))


def test_what_findings_say_of_chunks_is_a_parameter(monkeypatch: Any) -> None:
    data = Change({"batch": 40}, times=40.0).as_data()
    assert as_parameter("--rows", ("--rows", "5"), data) == {"--rows": "200"}
    monkeypatch.setenv("ROWS", "3")
    assert as_parameter("ROWS", (), {**data, "times": 2.5}) == {"ROWS": "8"}
    assert as_parameter("--rows", ("--rows", "5"), Change({"n_workers": 2}).as_data()) is None
    with pytest.raises(InvalidArgumentError, match="expected the program to get an integer"):
        as_parameter("--rows", ("--rows", "auto"), data)


def test_arguments_of_a_script() -> None:
    given = ("--in", "data", "--chunk", "1000", "-n=3")
    assert given_value("--chunk", given) == "1000"
    assert given_value("-n", given) == "3"
    assert given_value("--none", given) == ""
    changed = with_arguments(given, {"--chunk": "5000", "-n": "4", "--more": "1"})
    assert changed == ("--in", "data", "--chunk", "5000", "-n=4", "--more", "1")
