"""Coverage-guided fuzzing of the reader, if atheris is installed."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
import trace_by_format

from dasfprof.database import FileDatabase
from dasfprof.schema.events import CompleteEvent, InstantEvent

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("atheris") is None,
    reason="atheris is not installed: pip install atheris (Linux on x86-64)",
)

FUZZER = Path(__file__).with_name("guided_fuzz.py")


def payloads(directory: Path) -> list[bytes]:
    """Return blocks of the writer with all forms of columns, deflated and plain."""
    database = FileDatabase(directory / "seeds.msgpack")
    for row in range(20):
        args = {"key": ("x", row, 1), "dependencies": [f"y-{row:032x}"], "value": [row], "n": row}
        database.record(CompleteEvent("a", 1.7e9 + row, 0.5, args=args))
        database.record(InstantEvent("b", 1.7e9 + row**3, args={"text": f"t{row % 3}", "f": None}))
    database.close()
    plain = [frame[20:] for frame in trace_by_format.frames_of(database.path.read_bytes())]
    return [*{*plain, *map(trace_by_format.inflate, plain)}]


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("runs", [3000, pytest.param(200_000, marks=pytest.mark.slow)])
def test_payloads_found_by_coverage_raise_only_own_errors(tmp_path: Path, runs: int) -> None:
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for number, payload in enumerate(payloads(tmp_path)):
        (corpus / f"{number}").write_bytes(payload)
    options = [f"-runs={runs}", "-seed=7", "-max_len=4096", "-timeout=20", "-rss_limit_mb=1024"]
    command = [sys.executable, str(FUZZER), *options, f"-artifact_prefix={tmp_path}/", str(corpus)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert f"Done {runs} runs" in done.stderr
