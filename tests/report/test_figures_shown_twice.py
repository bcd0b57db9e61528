"""Figures that page, terminal and tables show agree to the last digit."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from distributed import Client, wait
from opened_pages import OpenedPage
from shown_numbers import shown
from traces import Plan, Task, filled

import dasfprof
from dasfprof import TraceAnalyser
from dasfprof.report.terminal.answers import print_answers
from dasfprof.report.terminal.findings import print_summary


def recorded(directory: Path) -> TraceAnalyser:
    with (
        Client(n_workers=2, threads_per_worker=1, dashboard_address=None) as client,
        dasfprof.profile(client, directory=directory) as run,
    ):
        parts = client.map(lambda number: bytes(100_000 * number), range(20), pure=False)
        wait(client.map(len, parts, pure=False))
        wait(client.submit(lambda *sizes: sum(map(len, sizes)), *parts))
    return TraceAnalyser(run.files(), progress=False)


def gaps(directory: Path) -> TraceAnalyser:
    tasks = filled(["load", "clean"], 0.371, count=16)
    tasks += [Task(f"late-{n}", n % 2, 5.0, 5.313, arrival=4.9, cpu=0.1) for n in range(2)]
    return Plan(tasks, graphs=(0.0, 4.9)).write(directory)


def moving(directory: Path) -> TraceAnalyser:
    tasks = filled(["load"], 1.0, count=4, workers=1)
    for number in range(4):
        begin = 2.0 + 2 * number
        use = Task(f"use-{number}", 1, begin + 1, begin + 1.7, sent=begin, received=begin)
        use.dependencies, use.run_queue = [f"load-{number}"], 0.3
        tasks.append(use)
    moves = [(1, 2.0 + 2 * n, 3.0 + 2 * n, 51_234_567, [f"load-{n}"]) for n in range(4)]
    return Plan(tasks, transfers=moves, left=[(0, 9.0, "retire-worker-1")]).write(directory)


def empty(directory: Path) -> TraceAnalyser:
    return Plan([]).write(directory)


@pytest.mark.parametrize("made", [recorded, gaps, moving, empty])
def test_page_terminal_and_tables_agree(
    made: Callable[[Path], TraceAnalyser],
    browser: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "150")
    analyser = made(tmp_path / "traces")
    page = OpenedPage(browser, analyser.report(tmp_path / "report.html"))
    print_summary(analyser.run, "run")
    print_answers(analyser, 100)
    terminal = re.sub(r"\s+", " ", capsys.readouterr().out)
    names = page.texts("#tiles dt")
    tiles = dict(zip(names, page.texts("#tiles dd:not(.about)"), strict=True))

    assert f"{tiles['Task runs']} task run" in terminal
    assert tiles["Run time"].replace("—", "unknown") in terminal
    busy = re.search(r"Threads were busy for (.*?) of their time", terminal)
    assert (busy is None) == (tiles["Threads busy"] in ("—", "unknown"))

    if "First task" in tiles:
        assert f"first task started {tiles['First task']} after the recording started" in terminal
        whole = analyser.time_to_first_task()["Time (s)"].sum()
        assert shown(tiles["First task"]).shows(whole)
    assert ("First task" in tiles) == (made is recorded)

    table = analyser.time_accounting()
    classes = page.texts("#accounting tr th")
    seconds = page.texts("#accounting tr td:nth-child(2)")
    shares = page.texts("#accounting tr td:nth-child(3)")
    rows = list(zip(classes, seconds, shares, strict=True))
    assert classes == table["Class"].tolist()
    for (_, took, share), row in zip(rows, table.to_dict("records"), strict=True):
        assert shown(took).shows(row["Thread Time (s)"])
        assert shown(share).shows(row["Share (%)"] / 100)
        assert f"{row['Class']} {row['Thread Time (s)']:.3f} s {row['Share (%)']:.1f} %" in terminal
    running = table["Class"].isin(["Computing", "Waiting for CPU", "Blocked"])
    if rows:
        held = table["Share (%)"][running].sum() / 100
        assert busy is not None
        assert shown(tiles["Threads busy"]).shows(held) and shown(busy[1]).shows(held)

    findings = analyser.diagnose()
    told = page.text("#findings") + terminal
    for finding in findings.to_dict("records"):
        words = re.sub(r"\s+", " ", finding["Finding"])
        assert told.count(words) >= 2, words
    moved = analyser.transfers("function")["Size (MB)"].sum() * 1e6
    if "Transferred" in tiles and moved:
        assert shown(tiles["Transferred"]).shows(moved)
