"""Real programs that hang: the planted cause is named first, while they run and afterwards."""

import contextlib
import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hung_programs
import pytest
from clusters import wait_until
from unrefuted import unrefuted

from dasfprof import TraceAnalyser
from dasfprof.analysis.under_way.causes import find_causes
from dasfprof.analysis.under_way.from_trace import state_from_trace

pytestmark = pytest.mark.whole_program

TESTS = Path(hung_programs.__file__).parent
#: Programs, and how they end. With "ctrl-c", all processes get the signal, as in a terminal.
#: ``hung_rates.py`` measures how often the cause is right for all programs.
CASES = {
    "event": "ctrl-c",
    "crossed": signal.SIGKILL,
    "parents": signal.SIGTERM,
    "frozen": signal.SIGTERM,
    "killed": signal.SIGKILL,
}
#: Programs that abandon work, and the highest severity of findings about it.
GIVEN_UP = {"forgotten": "low", "cancelled": "low", "abandoned": "medium"}
#: Rules of findings that a healthy run must not have.
GRAVE = ("unfinished-run", "killed-worker-errors", "lost-workers")


@contextmanager
def program(name: str, traces: Path) -> Iterator[subprocess.Popen[str]]:
    """Run a program until it has planted its cause, and end all of its processes afterwards."""
    path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    process = subprocess.Popen(
        [sys.executable, hung_programs.__file__, name, str(traces)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        assert select.select([process.stdout], [], [], 300)[0], "nothing was planted"
        assert process.stdout.readline().startswith("planted"), name
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):  # all of its processes may have ended
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def first_finding(analyser: TraceAnalyser) -> dict[str, Any]:
    table = analyser.diagnose()
    assert "rule-failed" not in set(table["Rule"]), table["Evidence"].tolist()
    return table.iloc[0].to_dict() if len(table) else dict.fromkeys(table, "")


def says(finding: dict[str, Any], name: str) -> bool:
    text = f"{finding['Finding']} {finding['Evidence']}"
    return re.search(hung_programs.PLANTS[name].says, text, re.DOTALL) is not None


@pytest.mark.parametrize(
    ("name", "end"),
    [
        pytest.param(name, end, marks=[] if name in ("event", "killed") else [pytest.mark.slow])
        for name, end in CASES.items()
    ],
)
def test_the_planted_cause_is_named_first(name: str, end: Any, tmp_path: Path) -> None:
    plant = hung_programs.PLANTS[name]
    with program(name, tmp_path / "traces") as process:

        def is_named() -> bool:
            return says(first_finding(TraceAnalyser(tmp_path / "traces", progress=False)), name)

        wait_until(is_named, 240, every=0.5)
        if isinstance(end, signal.Signals):
            process.send_signal(end)
        else:
            os.killpg(process.pid, signal.SIGINT)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:  # Dask waits for processes that hang
            process.kill()
    analyser = TraceAnalyser(tmp_path / "traces", progress=False)
    finding = first_finding(analyser)
    assert says(finding, name), finding
    assert finding["Severity"] == "high"
    state = state_from_trace(analyser.run)
    assert state is not None
    assert find_causes(state)[0].kind in plant.kinds
    findings = unrefuted(analyser, tmp_path / "traces")
    rules = set(findings.query("Severity == 'high'")["Rule"])
    assert {"lost-workers", "scheduler-bound", "client-bound"}.isdisjoint(rules)
    assert analyser.time_accounting()["Share (%)"].max() <= 100.0


@pytest.mark.parametrize(
    "name",
    [
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("forgotten", "cancelled")),
        "abandoned",
    ],
)
def test_what_was_given_up_is_said_as_such(name: str, tmp_path: Path) -> None:
    with program(name, tmp_path / "traces") as process:
        process.wait(240)
    table = TraceAnalyser(tmp_path / "traces", progress=False).diagnose()
    own = table[table["Rule"].isin(["unfinished-run", "cancelled-tasks"])]
    assert len(own) == 1, table["Finding"].tolist()
    assert re.search(hung_programs.PLANTS[name].says, own["Finding"].iloc[0])
    assert own["Severity"].iloc[0] == GIVEN_UP[name]
    assert "high" not in set(table["Severity"]), table["Finding"].tolist()
    assert "lost-workers" not in set(table["Rule"])


def test_a_healthy_run_is_not_said_to_hang(tmp_path: Path) -> None:
    """One task sleeps, one waits for an event, and a third finally sets it."""
    with program("sleeping-and-waiting", tmp_path / "traces") as process:

        def ended() -> bool:
            table = TraceAnalyser(tmp_path / "traces", progress=False).diagnose()
            own = table[table["Rule"].isin(GRAVE)]
            assert "high" not in set(own["Severity"]), own["Finding"].tolist()
            return process.poll() is not None

        wait_until(ended, 240, every=0.5)
        assert process.returncode == 0
    table = TraceAnalyser(tmp_path / "traces", progress=False).diagnose()
    assert set(GRAVE).isdisjoint(table["Rule"]), table["Finding"].tolist()
