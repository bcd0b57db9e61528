"""``dasfprof export`` on a small trace."""

import gzip
import json
from functools import partial
from pathlib import Path

import pytest
from shell import compute, held, invoke
from traces import write_trace

EVENTS = (compute("load-1", "load", 1000.0, 2.0), held(1002.0, 1))


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return write_trace(tmp_path / "traces" / "mine-TracePlugin-c096-0.msgpack", *EVENTS, run="mine")


run = partial(invoke, "export")


def test_perfetto(trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(trace, "--to", "perfetto")
    assert result.exit_code == 0
    document = json.loads(gzip.decompress((tmp_path / "mine.json.gz").read_bytes()))
    assert document["otherData"]["run"] == "mine"
    assert "Wrote mine.json.gz" in result.stdout
    assert "ui.perfetto.dev" in result.stdout
    # Directories are created.
    result = run(trace.parent, "--to", "csv", "-o", tmp_path / "new" / "tables")
    assert result.exit_code == 0
    tables = list((tmp_path / "new" / "tables").iterdir())
    assert f"{len(tables)} files" in " ".join(result.stdout.split())
    assert "load-1" in (tmp_path / "new" / "tables" / "processed_tasks.csv").read_text()


def test_a_run_s_name_is_no_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = write_trace(tmp_path / "a-TracePlugin-h-0.msgpack", *EVENTS, run="../up/\x1b[2J")
    monkeypatch.chdir(tmp_path)
    result = run(trace, "--to", "perfetto")
    assert result.exit_code == 0
    (written,) = tmp_path.glob("*.json.gz")
    assert written.parent == tmp_path
    assert "\x1b" not in result.stdout


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["mine.msgpack"], 2, "--to"),
        (["mine.msgpack", "--to", "excel"], 2, "'perfetto', 'csv', 'parquet'"),
        (["mine.msgpack", "--to", "csv", "-o", "notes.txt"], 1, "notes.txt"),
        (["mine.msgpack", "--to", "perfetto", "-o", "traces"], 1, "traces"),
    ],
)
def test_bad_input(
    args: list[str], code: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "traces").mkdir()
    (tmp_path / "notes.txt").write_text("these are notes, and no trace")
    write_trace(tmp_path / "mine.msgpack", *EVENTS)
    monkeypatch.chdir(tmp_path)
    done = run(*args)
    assert done.exit_code == code
    assert message in done.stderr.replace("│", "")
