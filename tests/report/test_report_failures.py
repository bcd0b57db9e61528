"""The pane of details tells tracebacks, how a lost process ended, and what was not sampled."""

from __future__ import annotations

from pathlib import Path

from opened_pages import Opener
from traces import Plugin, T, row
from traces.hung import Hung

from dasfprof import TraceAnalyser
from dasfprof.schema.profiles import TASK_SAMPLE
from dasfprof.schema.tasks import COMPUTE, TRACEBACK
from dasfprof.schema.under_way import STACK

HOSTILE = "</script><img src=x onerror=alert(1)>"
CALLS = f'  File "/home/me/work.py", line 7, in load\n    return "{HOSTILE}"\n'


def test_details_tell_the_traceback_of_a_failed_run(tmp_path: Path, open_page: Opener) -> None:
    runs = [("load-1", 1, 0.0, "erred"), ("load-1", 2, 2.0, "memory"), ("save-1", 3, 4.0, "memory")]
    Plugin(tmp_path).write(
        (
            COMPUTE,
            [
                row(
                    COMPUTE,
                    timestamp=T + at,
                    duration=1.0,
                    key=key,
                    run_id=run,
                    state=state,
                    exception="OSError('no')" if state == "erred" else None,
                )
                for key, run, at, state in runs
            ],
        ),
        (TRACEBACK, [row(TRACEBACK, timestamp=T + 1.0, key="load-1", run_id=1, text=CALLS)]),
    )
    analyser = TraceAnalyser(tmp_path, progress=False)
    report = analyser.report(tmp_path / "report.html")
    page = open_page(report, "#view=flatten")
    page.search("load-1", "2 found")
    told = set()
    for _ in range(2):
        told.add((page.follow("load-1")["Ended in"], *page.texts("#details details.traceback pre")))
    assert told == {("erred", CALLS.rstrip()), ("memory",)}


def test_details_tell_how_the_process_of_a_lost_worker_ended(
    tmp_path: Path, open_page: Opener
) -> None:
    lost = Hung(open={"sum-1": {}}, left=(9.0, "worker-lost"), exit_code=-9)
    report = lost.write(tmp_path).report(tmp_path / "report.html")
    page = open_page(report, "#view=flatten")
    page.search("sum-1", "1 found")
    assert page.follow("sum-1")["Worker's process"].startswith("killed by SIGKILL")


def test_details_say_that_coroutines_are_not_sampled(tmp_path: Path, open_page: Opener) -> None:
    facts = {"duration": 1.0, "state": "memory", "run_id": 1}
    runs = [
        row(COMPUTE, timestamp=T, key="seen-1", thread="7", **facts),
        row(COMPUTE, timestamp=T + 2, key="unseen-1", thread="7", **facts),
        row(COMPUTE, timestamp=T, key="coroutine-1", thread=None, **facts),
    ]
    about = {"timestamp": T + 0.5, "thread": "7", "stack": 0, "interval": 0.5}
    Plugin(tmp_path).write(
        (STACK, [(T, 0, [["seen", "/home/me/work.py", 7]], -1)]),
        (TASK_SAMPLE, [row(TASK_SAMPLE, **about)]),
        (COMPUTE, runs),
    )
    report = TraceAnalyser(tmp_path, progress=False).report(tmp_path / "report.html")
    page = open_page(report, "#view=flatten")
    told = {}
    for key in ("unseen-1", "coroutine-1"):
        page.search(key, "1 found")
        page.follow(key)
        (told[key],) = page.texts("#details p.absent")
    assert told["unseen-1"].startswith("No sample: it was never running")
    assert told["coroutine-1"].startswith("No sample: coroutines are not sampled")
