"""Tracks of workers collapse and show transfers, in a real browser."""

import pytest
from opened_pages import OpenedPage
from shown_numbers import shown
from timeline_runs import LANE, hovered
from traces import Plan, Task

from dasfprof import TraceAnalyser

#: Seconds of the run.
SECONDS = 10.0
NAMES = [f"worker-node1-{number}" for number in range(3)]


@pytest.fixture(scope="module")
def analyser(tmp_path_factory: pytest.TempPathFactory) -> TraceAnalyser:
    """Plan three workers with two threads; two of three transfers to the first are parallel."""
    tasks = [
        Task("load-1", 0, 1.0, 5.0, thread=1),
        Task("load-2", 0, 2.0, 4.0, thread=2),
        Task("clean-1", 0, 6.0, 7.0, thread=2),
        Task("load-3", 1, 1.0, 9.0, thread=1),
        Task("clean-2", 2, 3.0, 10.0, thread=1),
        Task("clean-3", 2, 4.0, 5.0, thread=2),
    ]
    transfers = [
        (0, 1.0, 3.0, 4_000_000, ["load-3"]),
        (0, 2.0, 2.5, 1_000_000, ["load-3"]),
        (0, 5.0, 6.0, 0, []),
        (1, 4.0, 8.0, 12_000_000, ["load-1"]),
    ]
    held = [(worker, at, {"state": "running"}) for worker in range(3) for at in (0.0, SECONDS)]
    plan = Plan(tasks, workers=3, transfers=transfers, held=held)
    return plan.write(tmp_path_factory.mktemp("traces"))


def told(page: OpenedPage, time: float, lane: float) -> list[str]:
    """Return the lines of the tooltip at a time (of ten seconds) on a track."""
    return hovered(page, time / SECONDS, (lane + 0.5) * LANE)


def test_a_folded_lane_tells_what_its_threads_run(
    page: OpenedPage, analyser: TraceAnalyser
) -> None:
    page.tab.click("#fold-all")
    tasks, begin = analyser.trace.tasks, analyser.trace.begin
    for time in (3.0, 4.5, 6.5, 8.0):
        start = tasks["start"] - begin
        there = (start <= time) & (time <= start + tasks["duration"])
        own = tasks[there & (tasks["worker"].astype(str) == NAMES[0])]
        counts = own["function"].astype(str).value_counts()
        expected = [f"{name}: {count}" for name, count in counts.items()]
        assert told(page, time, 0) == [f"{len(own)} of 2 threads run tasks", *expected]
    page.tab.click("#fold-all")
    assert told(page, 3.0, 1)[0] == "load"


def test_transfers_are_those_of_the_table(page: OpenedPage, analyser: TraceAnalyser) -> None:
    page.tab.check("#transfers")
    transfers, workers = analyser.trace.transfers, analyser.trace.workers
    labels = workers.set_index("address")["worker"]
    # Two tracks for two parallel transfers; then the two threads of the next worker and its track.
    lanes = iter([2, 3, 2, 6])
    for row in transfers.sort_values(["worker_id", "start"]).itertuples():
        middle = row.start + row.duration / 2 - analyser.trace.begin
        source, about = told(page, middle + 0.01, next(lanes))[:2]
        assert source == f"from {labels[row.source]}"
        size, seconds = about.split(",")[0].split(" in ")
        assert shown(size).shows(row.size) or (size, row.size) == ("0 B", 0)
        assert shown(seconds).shows(row.duration)
    page.tab.uncheck("#transfers")
    assert told(page, 6.0, 2)[0] == "load"
