"""``dasfprof analyse`` and ``export`` on small traces, with values calculated by hand."""

import csv
import gzip
import json
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from shell import compute, held, invoke
from traces import write_trace

from dasfprof.analysis.under_way.causes import find_causes
from dasfprof.analysis.under_way.state import Activity, ClusterState, Frame, TaskUnderWay
from dasfprof.report.terminal.findings import print_causes, print_findings, short_keys
from dasfprof.report.terminal.tables import print_time

#: Two functions on one worker: load took 2 + 1 of 4 seconds.
EVENTS = (
    compute("load-1", "load", 1000.0, 2.0),
    compute("load-2", "load", 1002.0, 1.0),
    compute(("sum-3", 0), "sum", 1003.0, 1.0),
    held(1002.0, 1),
    held(1003.5, 5),
)


analyse = partial(invoke, "analyse")


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return write_trace(tmp_path / "traces" / "mine-TracePlugin-c096-0.msgpack", *EVENTS, run="mine")


def test_analyze_is_the_same_command(trace: Path) -> None:
    result = invoke("analyze", trace)
    assert result.exit_code == 0
    assert result.stdout == analyse(trace).stdout


def test_three_tables(trace: Path) -> None:
    result = analyse(trace)
    assert result.exit_code == 0
    lines = [line.split() for line in result.stdout.splitlines()]
    # Host, function, seconds, percentage, MB of input, MB/s, tasks, seconds per task
    assert ["c096", "load", "3", "75", "0", "0", "2", "1.500"] in [line[:8] for line in lines]
    assert ["c096", "sum", "1", "25", "0", "0", "1", "1.000"] in [line[:8] for line in lines]
    assert [line for line in lines if line[:1] in (["0"], ["1"])] == [["0", "1"], ["1", "5"]]


def test_csv_files_hold_whole_tables(trace: Path, tmp_path: Path) -> None:
    tables = tmp_path / "new" / "tables"
    result = analyse(trace.parent, "-o", tables, "--head", 1)
    assert result.exit_code == 0
    functions = rows(tables / "function_bottleneck.csv")
    durations = [(row["Function"], float(row["Duration (s)"])) for row in functions]
    assert durations == [("load", 3.0), ("sum", 1.0)]
    assert [row["GPU"] for row in functions] == ["", ""]
    tasks = {row["Task Key"]: row["Duration (s)"] for row in rows(tables / "task_bottleneck.csv")}
    assert tasks == {"load-1": "2.0", "load-2": "1.0", "('sum-3', 0)": "1.0"}
    assert "(first 1 of 3 rows)" in result.stdout
    assert "function_bottleneck.csv" in result.stdout


def test_chosen_analyses_only(trace: Path, tmp_path: Path) -> None:
    by_function = "processed_tasks(by='function')"
    result = analyse("-a", "task", "-a", by_function, "-a", "task", trace, "-o", tmp_path / "t")
    names = {"task_bottleneck.csv", "processed_tasks_by_function.csv"}
    assert {path.name for path in (tmp_path / "t").iterdir()} == names
    assert "Functions that" not in result.stdout
    assert result.stdout.count("Tasks that took the most time") == 1
    assert "Attempts at tasks" in result.stdout
    counted = rows(tmp_path / "t" / "processed_tasks_by_function.csv")
    assert sum(int(row["Total"]) for row in counted) == 3


def test_the_questions_are_listed() -> None:
    result = analyse("--questions")
    assert result.exit_code == 0
    assert "  per_function_bottleneck(), short function\n      Sum up the task" in result.stdout
    transfers = "transfers(by='worker'|'function')"
    assert transfers in result.stdout


FINDINGS = pd.DataFrame(
    {
        "Severity": ["high", "low"],
        "Finding": ["Half of the run \x1b[2J waits for one task of load.", "Chunks are small."],
        "Seconds at stake (s)": [12.34, np.nan],
        "Evidence": ["k" * 1_000_000, "1 ms a task."],
        "Suggestion": ["Split load into more tasks.", "Use larger chunks."],
    }
)


@pytest.mark.parametrize("columns", [60, 140])
def test_a_finding_is_a_paragraph(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    print_findings(FINDINGS, 1)
    text = capsys.readouterr().out
    lines = text.splitlines()
    assert lines[1] == "Findings (first 1 of 2), from the first to the last task"
    assert lines[2].startswith("  high        12.3 s  Half of the run \\x1b[2J waits")
    assert "                      → Split load into more tasks." in lines
    assert "Chunks" not in text
    assert max(map(len, lines)) <= columns
    assert len(lines) < 40, "a text of a megabyte does not fill the terminal"


def test_keys_in_findings_are_short_and_stay_apart() -> None:
    one, other = "0312f3d5d5fb1a26883d3236bb297d6b", "1312f3d5d5fb1a26883d3236bb297d6b"
    uuid = "0f0c8a52-6c35-4b9e-9a3f-5a6b7c8d9e0f"
    assert short_keys(f"('take-{one}', 3) waits") == "('take-…d6b', 3) waits"
    assert short_keys(f"f-{uuid} and f-{uuid}") == "f-…e0f and f-…e0f"
    # Two hashes with the same end, texts that are not hashes, and a longer one stay unchanged.
    for text in (f"take-{one}, take-{other}", "load-12, sum-3", f"take-{one}{one}"):
        assert short_keys(text) == text


def test_a_lock_is_a_line_of_what_is_under_way(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stack = (Frame("load", "/home/me/load.py", 12), Frame("wait", "/usr/lib/python3.12/t.py", 3))
    waiting, asleep = Activity("sleeping", stack, "Lock", ("a",)), Activity("sleeping", stack[:1])
    keys = [f"take-{number:032x}" for number in range(9)]
    tasks = [
        TaskUnderWay(key, "take", f"w{number % 2}", "executing", 20.0 - number, activity=waiting)
        for number, key in enumerate(keys)
    ]
    tasks.append(TaskUnderWay("load-1", "load", "w1", "executing", None, activity=asleep))
    state = ClusterState(0.0, 10, tasks=tuple(tasks))
    monkeypatch.setenv("COLUMNS", "100")
    print_causes(state, find_causes(state), "tcp://here")
    causes, under_way = capsys.readouterr().out.split("the oldest first\n")
    assert causes.count("wait for the Lock 'a'") == 1
    assert " ".join(under_way.split()) == (
        "20 s waits in Lock a at /home/me/load.py:12 load. 9 tasks: take-…000, take-…001, "
        "take-…002 and 6 more on w0, w1 unknown sleeping at /home/me/load.py:12 load. load-1 on w1"
    )


def test_bars_are_as_long_as_their_shares(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    accounting = pd.DataFrame(
        {
            "Class": ["Computing", "Waiting for client"],
            "Thread Time (s)": [7.5, 2.5],
            "Share (%)": [75.0, 25.0],
            "Busy": [True, False],
            "Meaning": ["A task's function used the CPU.", "The client had no unfinished task."],
        }
    )
    monkeypatch.setenv("COLUMNS", "140")
    print_time(accounting)
    _, head, *lines = capsys.readouterr().out.splitlines()
    assert head == "Where the thread time went, 10 s in total"
    assert [line.count("█") for line in lines] == [18, 6]  # of 24
    assert [" ".join(line.replace("█", "").split()) for line in lines] == [
        "Computing 7.500 s 75.0 %",
        "Waiting for client 2.500 s 25.0 %",
    ]


def test_json_is_one_document(trace: Path) -> None:
    result = analyse(trace, "--json")
    assert result.exit_code == 0
    assert result.stderr == ""
    document = json.loads(result.stdout)
    assert document["run"] == "mine"
    assert document["summary"]["tasks"] == 3
    tables = document["tables"]
    names = ["time_accounting", "function_bottleneck", "task_bottleneck", "task_balance"]
    assert list(tables) == names
    functions = [(row["Function"], row["Duration (s)"]) for row in tables["function_bottleneck"]]
    assert functions == [("load", 3.0), ("sum", 1.0)]
    assert [row["GPU"] for row in tables["function_bottleneck"]] == [None, None]
    assert [row["worker-c096-0"] for row in tables["task_balance"]] == [1, 5]
    figures = {row["Rule"]: row["Figures"] for row in document["findings"]}
    assert figures["incomplete-trace"]["workers_died"] is False
    # Only the requested analyses.
    document = json.loads(analyse(trace, "--json", "-a", "task", "--head", 1).stdout)
    assert "findings" not in document
    assert [row["Task Key"] for row in document["tables"].pop("task_bottleneck")] == ["load-1"]
    assert document["tables"] == {}


def test_tables_fit_the_terminal(trace: Path) -> None:
    tables, heading, commands = analyse(trace, columns=60).stdout.partition("\nNext\n")
    assert max(map(len, tables.splitlines())) <= 60
    # Commands for copying are not split.
    assert heading
    assert commands == f"  dasfprof analyse --finding incomplete-trace {trace}\n"


def test_a_run_without_tasks_and_a_cut_one(trace: Path, tmp_path: Path) -> None:
    result = analyse(write_trace(tmp_path / "empty-TracePlugin-c096-0.msgpack", run="empty"))
    assert result.exit_code == 0
    assert result.stdout.count("No rows") == 3
    trace.write_bytes(trace.read_bytes()[:-30])
    result = analyse(trace)
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
    document = json.loads(analyse(path, "--json").stdout)
    keys = {row["Task Key"] for row in document["tables"]["task_bottleneck"]}
    assert keys == {*HOSTILE_KEYS[:4], "surrogate\\udcff-5", HOSTILE_KEYS[5]}


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["analyse", "nothing"], 1, "'nothing'"),
        (["analyse", "empty"], 1, "'empty' contains no trace files"),
        (["analyse", "notes.txt"], 1, "notes.txt is neither a dasfprof nor a DASF trace"),
        (["analyse", "several/on"], 1, "'several/on' contains 2 runs: once, one"),
        (["analyse", "mine.msgpack", "--head", "0"], 2, "--head"),
        (["analyse", "mine.msgpack", "-a", "gpu"], 2, "no question 'gpu'"),
        (["analyse", "mine.msgpack", "-a", "transfers(by=open('x'))"], 2, "is not a question"),
        (["analyse", "mine.msgpack", "--json", "-o", "t"], 2, "cannot be used together"),
        (["analyse", "mine.msgpack", "-o", "notes.txt"], 2, "'notes.txt' is a file"),
        (["analyse", "mine.msgpack", "-o", "notes.txt/below"], 1, "notes.txt/below"),
        (["analyse"], 2, "SOURCE"),
        (["export", "mine.msgpack"], 2, "--to"),
        (["export", "mine.msgpack", "--to", "excel"], 2, "'perfetto', 'csv', 'parquet'"),
        (["export", "mine.msgpack", "--to", "csv", "-o", "notes.txt"], 1, "notes.txt"),
        (["export", "mine.msgpack", "--to", "perfetto", "-o", "empty"], 1, "empty"),
    ],
)
def test_bad_input(
    args: list[str], code: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("these are notes, and no trace")
    write_trace(tmp_path / "mine.msgpack", *EVENTS)
    for name in ("one", "once"):
        write_trace(tmp_path / "several" / f"{name}-TracePlugin-h-0.msgpack", run=name)
    monkeypatch.chdir(tmp_path)
    done = invoke(*args)
    assert done.exit_code == code
    assert message in done.stderr.replace("│", "")
    if code == 1 and "-o" not in args:
        assert done.stdout == ""
        assert done.stderr.count("\n") == 1


def test_exports(trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = invoke("export", trace, "--to", "perfetto")
    assert result.exit_code == 0
    document = json.loads(gzip.decompress((tmp_path / "mine.json.gz").read_bytes()))
    assert document["otherData"]["run"] == "mine"
    assert "Wrote mine.json.gz" in result.stdout
    assert "ui.perfetto.dev" in result.stdout
    # Directories are created.
    result = invoke("export", trace.parent, "--to", "csv", "-o", tmp_path / "new" / "tables")
    assert result.exit_code == 0
    tables = list((tmp_path / "new" / "tables").iterdir())
    assert f"{len(tables)} files" in " ".join(result.stdout.split())
    assert "load-1" in (tmp_path / "new" / "tables" / "processed_tasks.csv").read_text()


def test_a_run_s_name_is_no_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = write_trace(tmp_path / "a-TracePlugin-h-0.msgpack", *EVENTS, run="../up/\x1b[2J")
    monkeypatch.chdir(tmp_path)
    result = invoke("export", trace, "--to", "perfetto")
    assert result.exit_code == 0
    (written,) = tmp_path.glob("*.json.gz")
    assert written.parent == tmp_path
    assert "\x1b" not in result.stdout


def test_only_a_span_of_time_is_read(trace: Path) -> None:
    span = "1970-01-01 00:16:40", "1970-01-01T00:16:41Z"
    result = analyse(trace, "-a", "task", "--between", *span)
    assert "load-1" in result.output
    assert "load-2" not in result.output
    words = " ".join(result.output.split())
    assert "0 task runs began before it, 1 ended after it" in words
    assert "the critical path and replays cover only the window" in words
    result = invoke("analyse", trace, "--between", "noon", "night")
    assert result.exit_code
    assert "expected two times" in result.output
