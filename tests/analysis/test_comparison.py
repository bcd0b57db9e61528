"""Comparisons: they name planted changes, report no difference where nothing changed, and have
differences that add up."""

import random
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from clusters import new_client
from distributed import Client
from traces import Plan, Task, compute, record, write_as_dasf
from traces.hung import hung
from traces.noisy import Noisy

import dasfprof
from dasfprof.analysis import Trace
from dasfprof.errors import InvalidArgumentError, SourceNotFoundError
from dasfprof.handles.comparison import RunComparison, compare

#: Number of pairs of sides with five runs, drawn from a pool. All comparisons must be right.
PAIRS, POOL = 2, 6
BY = ("function", "step")

PLANTED = {
    "load 10 % slower": Noisy(times={"load": 1.1}),
    "clean 2x slower": Noisy(times={"clean": 2.0}),
    "a worker fewer": Noisy(workers=1),
    "20 ms of overhead a task": Noisy(overhead=0.022),
}
#: Change that the first sentence after the verdict must name. ``comparison_rates.py`` measures how
#: often this is right for other changes.
NAMED_FIRST = {"load 10 % slower": "load takes", "clean 2x slower": "clean takes"}
NAMED_FIRST["a worker fewer"] = "Workers 2 → 1"


class Pools:
    """Runs of each variant, written and opened once."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._made: dict[str, list[Trace]] = {}
        self._pairs: dict[str, list[RunComparison]] = {}

    def of(self, name: str, noisy: Noisy, seed: int = 2, count: int = POOL) -> list[Trace]:
        if name not in self._made:
            seeds = {self._directory / f"{name}-{n}": seed * 100 + n for n in range(count)}
            self._made[name] = [
                Trace.from_database(noisy.write(place, number)) for place, number in seeds.items()
            ]
        return self._made[name]

    def base(self) -> list[Trace]:
        return self.of("base", Noisy(), 1, 10)

    def pairs(self, name: str) -> list[RunComparison]:
        if name not in self._pairs:
            sides = self.base(), self.of(name, PLANTED[name])
            drawn = [random.Random(seed) for seed in range(PAIRS)]
            self._pairs[name] = [
                compare(*(draw.sample(side, 5) for side in sides)) for draw in drawn
            ]
        return self._pairs[name]


@pytest.fixture(scope="module")
def pools(tmp_path_factory: pytest.TempPathFactory) -> Pools:
    return Pools(tmp_path_factory.mktemp("pools"))


@pytest.mark.parametrize("name", NAMED_FIRST)
def test_what_was_changed_is_named_first(pools: Pools, name: str) -> None:
    for comparison in pools.pairs(name):
        # The first sentence is about wall time, whose small differences may be chance.
        named, verdict = " ".join(comparison.sentences[1:]), comparison.verdict
        assert NAMED_FIRST[name] in named.split(",")[0]
        if name == "load 10 % slower":
            assert verdict.kind != "faster"
        else:  # no split of the ten runs differs more
            assert (verdict.kind, verdict.certain, verdict.p) == ("slower", True, 2 / 252)


def test_where_nothing_changed_nothing_is_seen(pools: Pools) -> None:
    for seed in range(PAIRS):
        runs = random.Random(seed).sample(pools.base(), 10)
        comparison = compare(runs[:5], runs[5:])
        assert comparison.verdict.kind == "no difference"
        assert (comparison.functions["Changed"] == "uncertain").all()
        assert comparison.surroundings.empty


def test_one_run_each_is_never_certain(pools: Pools) -> None:
    base = pools.base()
    for n in range(0, len(base), 2):
        comparison = compare(base[n], base[n + 1])
        assert comparison.verdict.kind == "no difference"
        assert "one run each: differences below" in str(comparison)
        # Without other runs it is unknown whether a difference is likely to be more than chance.
        assert "likely" not in comparison.verdict.text
    slower = compare(base[0], pools.of("clean 2x slower", PLANTED["clean 2x slower"])[0])
    assert (slower.verdict.kind, slower.verdict.certain) == ("slower", False)
    assert np.isnan(slower.slower_than(0.1))
    assert slower.functions[["Changed", "Function"]].iloc[0].tolist() == ["slower", "clean"]


def a_run(directory: Path, number: int, seconds: float) -> Path:
    """Write a run of forty consecutive equal tasks with this duration."""
    each, run = seconds / 40, f"naps-{1_790_000_000 + number}"
    tasks = [Task(f"f-{n}", 0, n * each, (n + 1) * each) for n in range(40)]
    Plan(tasks, 1, 1, run=run, run_uuid=run).write_files(directory)
    return directory / run


def test_one_run_each_without_a_spread(tmp_path: Path) -> None:
    verdict = compare(a_run(tmp_path, 50, 10.0), a_run(tmp_path, 51, 11.5)).verdict
    assert "below 5 % cannot be distinguished from chance, and single" in verdict.text
    assert (verdict.kind, verdict.certain) == ("slower", False)
    same = compare(a_run(tmp_path, 52, 10.0), a_run(tmp_path, 53, 10.4))
    assert same.verdict.kind == "no difference"


def test_slower_by_more_than_a_limit(pools: Pools) -> None:
    for name, limit, certain in [
        ("clean 2x slower", 0.10, True),  # 34 % by construction
        ("clean 2x slower", 0.50, False),
        ("load 10 % slower", 0.10, False),  # less in terms of the whole run
    ]:
        p_values = [comparison.slower_than(limit) for comparison in pools.pairs(name)]
        assert all((p < 0.01) is certain for p in p_values), (name, limit)
    faster = pools.of("clean 25 % faster", Noisy(times={"clean": 0.75}))
    assert compare(pools.base()[:5], faster[:5]).slower_than(0.0) >= 0.01


@pytest.mark.parametrize("name", ["a worker fewer", "20 ms of overhead a task"])
def test_differences_sum_to_the_whole(pools: Pools, name: str, tmp_path: Path) -> None:
    plans = [Noisy().plan(7), PLANTED[name].plan(8)]
    for place, plan in zip("ab", plans, strict=True):
        plan.write(tmp_path / place)
    comparison = compare(tmp_path / "a", tmp_path / "b")
    # The first graph arrives at 0. The scheduler knows the last end when it happens.
    walls = [max(task.stop for task in plan.tasks) for plan in plans]
    lives = [wall * plan.workers * plan.threads for wall, plan in zip(walls, plans, strict=True)]
    for by in BY:
        for asked, whole in ((comparison.waterfall, walls), (comparison.thread_time, lives)):
            sums = asked(by)[["Before (s)", "After (s)", "Difference (s)"]].sum()
            np.testing.assert_allclose(sums, [*whole, whole[1] - whole[0]], atol=1e-3)
    np.testing.assert_allclose(comparison.verdict.means, walls, atol=1e-6)


def test_they_sum_where_clocks_contradict_each_other(tmp_path: Path) -> None:
    """A task uses the result of a task that, by its clock, ended later."""
    tasks = [
        Task("a-1", 0, 0.0, 2.0),
        Task("b-1", 1, 1.0, 1.5, dependencies=["a-1"]),
        Task("c-1", 0, 2.0, 3.0, executing=1.6, ready=1.6, dependencies=["b-1"], thread=2),
    ]
    events = [
        compute(one.key, 1.79e9 + one.start, one.stop - one.start, f"w{one.worker}", **needs)
        for one in tasks
        for needs in [{"dependencies": [*one.dependencies]}]
    ]
    record(tmp_path / "b", events)
    Plan(tasks, run_uuid="a").write_files(tmp_path / "a")
    comparison = compare(tmp_path / "a", tmp_path / "b")
    sums = comparison.waterfall()[["Before (s)", "After (s)"]].sum()
    np.testing.assert_allclose(sums, comparison.verdict.means, atol=1e-6)


def one_after_another(directory: Path, *seconds: tuple[str, float]) -> Path:
    """Write a run with a chain of tasks, half a second apart, which are half computing."""
    tasks: list[Task] = []
    at = 0.5
    for place, (name, length) in enumerate(seconds):
        facts = {"cpu": length / 2, "dependencies": [tasks[-1].key] if tasks else []}
        tasks.append(Task(f"{name}-{place}", 0, at, at + length, **facts))
        at += length + 0.5
    Plan(tasks, workers=1).write_files(directory)
    return directory


def test_a_waterfall_by_hand(tmp_path: Path) -> None:
    first = one_after_another(tmp_path / "a", ("load", 1.0), ("sum", 2.0))
    second = one_after_another(tmp_path / "b", ("load", 1.0), ("sum", 4.0), ("store", 1.0))
    comparison = compare(first, second)
    table = comparison.waterfall().set_index(["Class", "Function"])["Difference (s)"]
    assert {part: round(seconds, 6) for part, seconds in table.items() if round(seconds, 6)} == {
        ("Computing", "sum"): 1.0,
        ("Blocked", "sum"): 1.0,
        ("Computing", "store"): 0.5,
        ("Blocked", "store"): 0.5,
        ("Scheduler", "store"): 0.5,
    }
    functions = comparison.functions.set_index("Function")
    assert functions["Tasks"].to_dict() == {"sum": "same", "store": "new", "load": "same"}
    assert functions["Change (%)"]["sum"] == pytest.approx(100)
    assert functions["Total After (s)"]["sum"] == pytest.approx(4.0)


def two_threads(directory: Path, fit: float) -> Path:
    """Write a run in which one thread loads, for 0.1 s per task, and the other one fits."""
    tasks, waits = [], {"sent": 0.0, "received": 0.0, "ready": 0.0}
    for thread, (name, seconds) in enumerate((("load", 0.1), ("fit", fit))):
        at = 0.0
        for n in range(10):
            stop = at + seconds + n / 1000
            tasks.append(Task(f"{name}-{n}", 0, at, stop, thread=thread, **waits))
            at = stop
    Plan(tasks, workers=1, threads=2, run_uuid=str(directory)).write_files(directory)
    return directory


def test_what_lies_on_the_path_by_chance_is_not_what_changed(tmp_path: Path) -> None:
    """The critical path contains load before and fit after the change, but load is unchanged."""
    before = two_threads(tmp_path / "before", 0.09)
    after = compare(before, two_threads(tmp_path / "after", 0.126))
    assert after.sentences[1].startswith("Median durations of tasks: fit takes 38 % longer")
    path = next(text for text in after.sentences if text.startswith("On the critical path"))
    assert path.startswith("On the critical path: fit +1.3")
    assert "load" not in path


def test_the_share_on_the_cpu_and_memory(tmp_path: Path) -> None:
    for place, cpu, memory in (("a", 0.25, 2e6), ("b", 0.75, 6e6)):
        tasks = [Task(f"f-{n}", 0, n, n + 1.0, cpu=cpu) for n in range(4)]
        used = [(0, float(n), {"memory": int(memory) * (n + 1)}) for n in range(3)]
        held = [(0, 1.0, {"state": "running", "size": int(memory / 2)})]
        Plan(tasks, 1, 1, used=used, held=held, run_uuid=place).write_files(tmp_path / place)
    comparison = compare(tmp_path / "a", tmp_path / "b")
    row = comparison.functions.iloc[0]
    assert row[["CPU Before (%)", "CPU After (%)"]].tolist() == pytest.approx([25.0, 75.0])
    highest = row[["Highest Memory Before (MB)", "Highest Memory After (MB)"]]
    assert highest.tolist() == pytest.approx([6.0, 18.0])
    assert comparison.memory.to_numpy(dtype=object).tolist() == [
        ["Process of a worker, at most", 6.0, 18.0, pytest.approx(200.0)],
        ["Process of a worker, mean", 4.0, 12.0, pytest.approx(200.0)],
        ["Results held by a worker, at most", 1.0, 3.0, pytest.approx(200.0)],
    ]
    Plan(tasks, 1, 1, resources=False, run_uuid="c").write_files(tmp_path / "c")
    assert compare(tmp_path / "a", tmp_path / "c").memory.empty


def test_functions_whose_names_no_encoding_can_write(tmp_path: Path) -> None:
    for side, lasts in (("before", 1.0), ("after", 2.0)):
        tasks = [Task(("bad\udcff", n), 0, 2.0 * n, 2.0 * n + lasts) for n in range(3)]
        Plan(tasks, 1, 1, run=side, run_uuid=side).write_files(tmp_path / side)
    found = compare(tmp_path / "before", tmp_path / "after").functions
    columns = ["Function", "Total Before (s)", "Total After (s)"]
    assert found[columns].to_numpy().tolist() == [["bad\udcff", 3.0, 6.0]]


def test_what_a_run_that_did_not_end_lacks_is_not_gone(tmp_path: Path) -> None:
    """Only its first tasks ran, so it is unknown whether the last one would have failed."""
    broken = [Task(f"f-{n}", n % 2, 0.5 * n, 0.5 * n + 0.4) for n in range(8)]
    broken += [Task("f-9", 0, 4.0, 5.0, state="erred", exception="ValueError('no')")]
    whole = Plan(broken).write(tmp_path / "a").trace
    ended = Plan(broken[:8], run_uuid="2").write(tmp_path / "b").trace
    unfinished = hung().write(tmp_path / "hung").trace
    comparison = compare(whole, unfinished)
    found = comparison.findings.set_index("Rule")["Status"]
    assert (found["failed-tasks"], found["unfinished-run"]) == ("not clear", "new")
    for each in (comparison, compare(unfinished, whole)):
        assert each.functions["Tasks"].tolist() == ["not clear"]
    # A finished run without the task shows that it is gone, and all runs count.
    found = compare([whole, unfinished], [ended, unfinished]).findings.set_index("Rule")
    told = found.loc["failed-tasks", ["Status", "Runs Before", "Runs After"]].tolist()
    assert told == ["gone", "1 of 2", "0 of 2"]


def test_what_differs_around_and_what_it_could_explain(tmp_path: Path) -> None:
    sample = (0, 1, 0.1, {"activity": "running", "interval": 0.1, "cpu": 0.1, "run_queue": 0.0})
    sides = {"a": (2, "2026.8.0", []), "b": (1, "2025.1.0", [sample])}
    for name, (workers, dask, samples) in sides.items():
        plan = Noisy(workers=workers, of_runs=0.0).plan(3)
        plan.versions, plan.sampled = {"dask": dask, "dasfprof": "0.1.0"}, samples
        plan.write_files(tmp_path / name)
    found = compare(tmp_path / "a", tmp_path / "b").surroundings
    assert sorted(found.to_numpy().tolist()) == [
        ["Stacks sampled", "no", "yes", "possibly"],
        ["Threads", "4", "2", "yes"],
        ["Version of dask", "2026.8.0", "2025.1.0", "possibly"],
        ["Workers", "2", "1", "yes"],
    ]


def test_settings_that_differ(tmp_path: Path) -> None:
    for name, target in (("a", "0.6"), ("b", "0.3")):
        plan = Noisy(of_runs=0.0).plan(3)
        plan.settings = {"distributed.worker.memory.target": target, "array.chunk-size": "128MiB"}
        plan.write_files(tmp_path / name)
    found = compare(tmp_path / "a", tmp_path / "b").surroundings.to_numpy().tolist()
    assert found == [["Setting distributed.worker.memory.target", "0.6", "0.3", ""]]


def words(before: object, after: object) -> str:
    """Compare, assert that all tables exist, and return the text."""
    comparison = compare(before, after)  # type: ignore[arg-type]
    tables = [asked(by) for asked in (comparison.waterfall, comparison.thread_time) for by in BY]
    tables += [comparison.hot_lines(by) for by in ("line", "function", "library")]
    tables += [comparison.functions, comparison.steps, comparison.memory]
    tables += [comparison.findings, comparison.surroundings, comparison.runs]
    assert all(isinstance(table, pd.DataFrame) for table in tables)
    return " ".join([str(comparison), *comparison.notes])


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    return Trace.from_database(Noisy().write(tmp_path_factory.mktemp("good") / "good", 1))


def other_run(kind: str, directory: Path) -> Path:
    """Write a run that cannot be compared with the good one without a note."""
    plan = Noisy().plan(2)
    if kind == "failed":
        plan.tasks[-1].state, plan.tasks[-1].exception = "erred", "ValueError('no')"
    elif kind in ("empty", "different"):
        count = 9 * (kind == "different")
        plan = Plan([Task(f"other-{n}", 0, n, n + 1.0) for n in range(count)], run_uuid="2")
    elif kind in ("events", "dasf"):
        events = [compute(f"load-{n}", 1.79e9 + n, 1.0, "w") for n in range(5)]
        return (record if kind == "events" else write_as_dasf)(directory, events)
    if kind == "unfinished":
        hung().write(directory)
        return directory
    plan.write_files(directory)
    if kind == "damaged":
        file = next(directory.glob("*TracePlugin*"))
        file.write_bytes(file.read_bytes()[:-200])
    elif kind == "bereft":
        for path in directory.glob("*SchedulerPlugin*"):
            path.unlink()
    return directory


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("empty", "has no task runs"),
        ("unfinished", "did not end"),
        ("failed", "has 1 failed task"),
        ("different", "different pipelines"),
        ("damaged", "has damaged files"),
        ("bereft", "no file of the scheduler"),
        ("events", ""),
        ("dasf", ""),
    ],
)
def test_what_cannot_be_compared_is_said(good: Trace, tmp_path: Path, kind: str, told: str) -> None:
    assert told in words(good, other_run(kind, tmp_path / kind))


def test_a_run_that_did_not_end_is_left_out_beside_others(good: Trace, tmp_path: Path) -> None:
    assert "The same run is on both sides" in words(good, good)
    hung().write(tmp_path / "hung")
    several = [tmp_path / "hung", Noisy().write(tmp_path / "other", 2)]
    text = words(several, good)
    assert "left out" in text
    assert "one run each" in text


def test_sources_that_are_none(good: Trace, tmp_path: Path) -> None:
    (tmp_path / "void").mkdir()
    for source, error, words in (
        (tmp_path / "void", SourceNotFoundError, "no run in the directory"),
        (tmp_path / "typo", SourceNotFoundError, "no trace file"),
        ([], InvalidArgumentError, "one side has no run"),
        ([3], InvalidArgumentError, "cannot compare 3"),
    ):
        with pytest.raises(error, match=words):
            compare(source, good)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="pass one of function, step"):
        compare(good, good).waterfall("worker")  # type: ignore[arg-type]


def test_a_directory_stands_for_all_its_runs(tmp_path: Path) -> None:
    for n in range(3):
        Noisy().write(tmp_path / "together", n)
        Noisy().write(tmp_path / "apart" / str(n), n)
    files = sorted((tmp_path / "together").iterdir())
    after = Noisy().write(tmp_path / "one", 9)
    for side in (tmp_path / "together", tmp_path / "apart", files, (tmp_path / "apart").iterdir()):
        comparison = compare(side, after)
        assert comparison.runs["Side"].tolist() == ["before"] * 3 + ["after"]
        assert comparison.runs["Wall Time (s)"].notna().all()


def load(number: int) -> int:
    time.sleep(0.1)
    return number


def clean(number: int, seconds: float) -> int:
    time.sleep(seconds)
    return number


def compute_naps(client: Client, seconds: float) -> None:
    """Compute two tasks of each function on each worker, even if one worker is slow."""
    cleaned = []
    for number, where in enumerate([*client.nthreads()] * 2):
        options = {"workers": [where], "pure": False}
        loaded = client.submit(load, number, **options)
        cleaned.append(client.submit(clean, loaded, seconds, **options))
    client.gather(cleaned)


@pytest.mark.whole_program
def test_recorded_runs(tmp_path: Path) -> None:
    """Tasks sleep, and those of one function sleep a second longer after the change."""
    with new_client(n_workers=2, threads_per_worker=1) as client:
        compute_naps(client, 0.0)  # imports and other one-time work before the runs
        taken: dict[str, list[float]] = {"before": [], "after": []}
        for turn in range(3):
            for side, seconds in (("before", 0.1), ("after", 1.1)):
                with dasfprof.profile(client, f"naps-{turn}", directory=tmp_path / side):
                    begin = time.perf_counter()
                    compute_naps(client, seconds)
                    taken[side].append(time.perf_counter() - begin)
    comparison = dasfprof.compare(tmp_path / "before", tmp_path / "after")
    assert len(comparison.runs) == 6
    # Each wall time is between the sleeps and the time measured by the program.
    walls = comparison.runs.groupby("Side", sort=False)["Wall Time (s)"].apply(list)
    for side, least in (("before", 0.4), ("after", 2.4)):
        both = zip(walls[side], taken[side], strict=True)
        assert all(least <= wall <= most for wall, most in both)
    # Two tasks on each of two threads take a second longer. The remainder varies on a slow machine.
    path = comparison.waterfall()
    assert path["Difference (s)"].sum() == pytest.approx(comparison.verdict.difference, abs=1e-3)
    blocked = path[(path["Function"] == "clean") & (path["Class"] == "Blocked")]
    assert blocked["Difference (s)"].sum() == pytest.approx(2.0, abs=0.5)
    functions = comparison.functions.set_index("Function")
    assert functions.index.tolist() == ["clean", "load"]
    assert functions["Changed"]["clean"] == "slower"
    # A machine may make equal naps of one side slightly longer.
    assert functions["Changed"]["load"] == "uncertain" or abs(functions["Change (%)"]["load"]) < 30
