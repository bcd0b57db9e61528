"""``dasfprof analyse`` on small traces, with values computed by hand."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from shell import compute, held, shell, write_trace

from dasfprof.cli.main import cli

#: Two functions on one worker: load took 2 + 1 of 4 seconds.
EVENTS = (
    compute("load-1", "load", 1000.0, 2.0),
    compute("load-2", "load", 1002.0, 1.0),
    compute(("sum-3", 0), "sum", 1003.0, 1.0),
    held(1002.0, 1),
    held(1003.5, 5),
)


def analyse(*args: object, columns: int = 100) -> Result:
    return CliRunner().invoke(
        cli, ["analyse", *map(str, args)], env={"COLUMNS": str(columns)}, catch_exceptions=False
    )


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return write_trace(tmp_path / "traces" / "mine-TracePlugin-c096-0.msgpack", *EVENTS, run="mine")


def test_three_tables(trace: Path) -> None:
    result = analyse(trace)
    assert result.exit_code == 0
    lines = [line.split() for line in result.stdout.splitlines()]
    # Function, seconds, percent, MB of input, MB/s, tasks, seconds a task
    assert ["load", "3", "75", "0", "0", "2", "1.500"] in [line[:7] for line in lines]
    assert ["sum", "1", "25", "0", "0", "1", "1.000"] in [line[:7] for line in lines]
    assert [line for line in lines if line[:1] in (["0"], ["1"])] == [["0", "1"], ["1", "5"]]
    assert "Functions that took the most time, by worker" in result.stdout
    assert "Tasks that took the most time" in result.stdout
    assert "Tasks in memory on each worker, second by second" in result.stdout


def test_csv_files_hold_whole_tables(trace: Path, tmp_path: Path) -> None:
    result = analyse(trace.parent, "-o", tmp_path / "new" / "tables", "--head", 1)
    assert result.exit_code == 0
    tables = tmp_path / "new" / "tables"
    functions = rows(tables / "function_bottleneck.csv")
    assert [(row["Function"], float(row["Duration (s)"])) for row in functions] == [
        ("load", 3.0),
        ("sum", 1.0),
    ]
    assert [float(row["Percentage of total time (%)"]) for row in functions] == [75.0, 25.0]
    assert [row["GPU"] for row in functions] == ["", ""]
    tasks = rows(tables / "task_bottleneck.csv")
    assert {(row["Task Key"], float(row["Duration (s)"])) for row in tasks} == {
        ("load-1", 2.0),
        ("load-2", 1.0),
        ("('sum-3', 0)", 1.0),
    }
    balance = rows(tables / "task_balance.csv")
    assert [float(row["worker-c096-0"]) for row in balance] == [1.0, 5.0]
    assert "(first 1 of 3 rows)" in result.stdout
    assert "function_bottleneck.csv" in result.stdout


def test_chosen_analyses_only(trace: Path, tmp_path: Path) -> None:
    result = analyse("-a", "task", "-a", "balance", "-a", "task", trace, "-o", tmp_path / "t")
    assert {path.name for path in (tmp_path / "t").iterdir()} == {
        "task_bottleneck.csv",
        "task_balance.csv",
    }
    assert "Functions that" not in result.stdout
    assert result.stdout.count("Tasks that took the most time") == 1


@pytest.mark.parametrize("columns", [60, 80, 120, 200])
def test_tables_fit_the_terminal(trace: Path, columns: int) -> None:
    assert max(map(len, analyse(trace, columns=columns).stdout.splitlines())) <= columns


@pytest.mark.parametrize("source", ["traces", "traces/mine", "traces/m*.msgpack", "traces/mi"])
def test_sources(trace: Path, source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(trace.parent.parent)
    assert analyse(source).exit_code == 0


def test_a_run_without_tasks(tmp_path: Path) -> None:
    empty = write_trace(tmp_path / "empty-TracePlugin-c096-0.msgpack", run="empty")
    result = analyse(empty, "-o", tmp_path / "t")
    assert result.exit_code == 0
    assert result.stdout.count("No rows") == 3
    text = (tmp_path / "t" / "function_bottleneck.csv").read_text()
    assert text.startswith("Host,GPU,Function,Duration (s),Percentage of total time (%),")
    assert text.count("\n") == 1


def test_missing_evidence_is_said(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "cut-TracePlugin-c096-0.msgpack", *EVENTS, run="cut")
    path.write_bytes(path.read_bytes()[:-30])
    result = analyse(path)
    assert result.exit_code == 0
    assert "Note: " in result.stdout


HOSTILE_KEYS = (
    "\x1b[2J\x1b]0;owned\x07-1",
    "two\nlines\r-2",
    "\u202egnp.exe-3",
    "=HYPERLINK(1)-4",
    "surrogate\udcff-5",
    "k" * 1_000_000,
)


def test_hostile_keys_are_harmless(tmp_path: Path) -> None:
    events = [compute(key, key, 1000.0 + n, 1.0) for n, key in enumerate(HOSTILE_KEYS)]
    path = write_trace(tmp_path / "hostile-TracePlugin-c096-0.msgpack", *events)
    result = analyse(path, "-o", tmp_path / "t")
    assert result.exit_code == 0
    assert all(line.isprintable() for line in result.stdout.split("\n"))
    assert max(map(len, result.stdout.splitlines())) <= 100
    text = (tmp_path / "t" / "task_bottleneck.csv").read_text(encoding="utf-8")
    assert ",'=HYPERLINK(1)-4," in text


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["nothing"], 1, "'nothing'"),
        (["elsewhere/run"], 1, "'elsewhere/run'"),
        (["none*.msgpack"], 1, "'none*.msgpack'"),
        (["empty"], 1, "'empty'"),
        (["notes.txt"], 1, "notes.txt is neither a dasfprof nor a DASF trace"),
        (["several"], 1, "'several' holds 2 runs: one, two"),
        (["mine.msgpack", "--head", "0"], 2, "--head"),
        (["mine.msgpack", "--head", "-3"], 2, "--head"),
        (["mine.msgpack", "-a", "gpu"], 2, "'function', 'task', 'balance'"),
        (["mine.msgpack", "-o", "notes.txt"], 2, "'notes.txt' is a file"),
        (["mine.msgpack", "-o", "notes.txt/below"], 1, "notes.txt/below"),
        ([], 2, "SOURCE"),
    ],
)
def test_bad_input(args: list[str], code: int, message: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("these are notes, and no trace")
    write_trace(tmp_path / "mine.msgpack", *EVENTS)
    for name in ("one", "two"):
        write_trace(tmp_path / "several" / f"{name}-TracePlugin-h-0.msgpack", run=name)
    done = shell("dasfprof", "analyse", *args, cwd=tmp_path)
    assert done.returncode == code
    assert message in done.stderr.replace("│", "")
    assert "Traceback" not in done.stderr
    if code == 1 and "below" not in message:
        assert done.stdout == ""
        assert done.stderr.count("\n") == 1
