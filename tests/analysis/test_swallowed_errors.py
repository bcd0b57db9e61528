"""Functions that log an error and return None are found, and similar ones are not."""

from pathlib import Path
from typing import Any

from refuters import refute
from traces import Plugin, T, row

from dasfprof import TraceAnalyser
from dasfprof.schema.tasks import COMPUTE, LOG_RECORD


def found(directory: Path, types: list[str | None], logged: list[int]) -> list[dict[str, Any]]:
    """Diagnose a run of one function from the types of its results and its logged errors."""

    def of(place: int) -> dict[str, Any]:
        return {"timestamp": T + place, "key": f"f-{place}", "run_id": place}

    error = {"level": "ERROR", "logger": "x", "message": "no chunk %s", "exception": "KeyError"}
    error |= {"line": "/home/me/work.py:7 f", "error": 1}
    runs = [
        row(COMPUTE, **of(place), duration=1.0, state="memory" if kind else "erred", type=kind)
        for place, kind in enumerate(types)
    ]
    logs = [row(LOG_RECORD, **of(place), **error) for place in logged]
    Plugin(directory).write((COMPUTE, runs), (LOG_RECORD, logs))
    findings = TraceAnalyser(directory, progress=False).findings()
    assert "rule-failed" not in [one.rule for one in findings], findings
    swallowed = [one for one in findings if one.rule == "swallowed-errors"]
    assert not refute(directory, swallowed)
    return [one.row() for one in swallowed]


def test_all_or_some_results_are_none(tmp_path: Path) -> None:
    (finding,) = found(tmp_path / "all", ["NoneType"] * 4, [0, 1, 2])
    assert finding["Finding"].startswith("3 of 4 task runs of f logged an error and returned None")
    assert "All 4 results of f are None" in finding["Evidence"]
    assert "KeyError at /home/me/work.py:7 f: no chunk %s" in finding["Evidence"]
    assert (finding["Severity"], finding["Function"]) == ("medium", "f")
    (finding,) = found(tmp_path / "some", ["NoneType", *["numpy.ndarray"] * 9], [0, 5])
    assert finding["Finding"].startswith("1 of 10 task runs of f logged")
    assert "1 of 10 results of f are None" in finding["Evidence"]
    assert finding["Severity"] == "low"


def test_those_that_look_alike(tmp_path: Path) -> None:
    # None without an error; an error with a result; an error that Dask knows.
    assert found(tmp_path / "a", ["NoneType"] * 4, []) == []
    assert found(tmp_path / "b", ["int", "NoneType"], [0]) == []
    assert found(tmp_path / "c", [None, "NoneType"], [0]) == []
