"""What task runs logged, and their code, are in the report's pane of details, as text."""

from __future__ import annotations

from pathlib import Path

from opened_pages import Opener
from traces import Plugin, T, row

from dasfprof import TraceAnalyser
from dasfprof.schema.tasks import COMPUTE, FUNCTION_CODE, LOG_RECORD

HOSTILE = "<img src=x onerror=alert(1)> no chunk %s"


def written(directory: Path) -> TraceAnalyser:
    """Write two runs of a key, and one of another: the second and the third logged."""
    runs = [("load-1", 1, 0.0), ("load-1", 2, 2.0), ("save-1", 3, 4.0), ("constructor-1", 4, 6.0)]
    records = [
        ("load-1", 2, "WARNING", "slow disk", None),
        ("load-1", 2, "ERROR", HOSTILE, "OSError"),
    ]
    records += [("save-1", 3, "INFO", "m" * 1000, None), ("gone-1", 9, "INFO", "of no run", None)]
    Plugin(directory).write(
        (
            COMPUTE,
            [
                row(COMPUTE, timestamp=T + at, duration=1.0, key=key, run_id=run, state="memory")
                for key, run, at in runs
            ],
        ),
        (
            FUNCTION_CODE,
            [
                row(
                    FUNCTION_CODE,
                    timestamp=T,
                    name="load",
                    function="work.f",
                    file="/home/me/work.py",
                    line=6,
                    source=SOURCE,
                )
            ],
        ),
        (
            LOG_RECORD,
            [
                row(
                    LOG_RECORD,
                    timestamp=T + place / 10,
                    key=key,
                    run_id=run,
                    logger="x",
                    level=level,
                    message=message,
                    exception=exception,
                    line="/home/me/work.py:7 f",
                    error=int(level == "ERROR"),
                )
                for place, (key, run, level, message, exception) in enumerate(records)
            ],
        ),
    )
    return TraceAnalyser(directory, progress=False)


SOURCE = "def f(x):\n    return '</script><b>' + x\n"


def test_details_tell_what_a_task_run_logged(tmp_path: Path, open_page: Opener) -> None:
    report = written(tmp_path / "trace").report(tmp_path / "report.html")
    page = open_page(report, "#view=flatten")
    page.search("NO CHUNK", "1 found")  # the run that logged it, not the other
    page.search("save-1", "1 found")
    page.follow("save-1")
    (long,) = page.texts("#details ul.logs li")
    assert len(long) < 400
    page.search("constructor-1", "1 found")
    page.follow("constructor-1")
    assert page.texts("#details details") == []
    page.search("load-1", "2 found")
    told = set()
    for _ in range(2):
        page.follow("load-1")
        told.add(tuple(page.texts("#details ul.logs li")))
    assert told == {
        (),
        (
            "WARNING slow disk /home/me/work.py:7 f",
            f"ERROR {HOSTILE} (OSError) /home/me/work.py:7 f",
        ),
    }
    assert page.text("#details details summary") == "Code: work.f, /home/me/work.py:6"
    assert page.text("#details details pre") == SOURCE
