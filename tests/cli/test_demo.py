"""``dasfprof demo`` with few points."""

import csv
import json
import re
import sys
from collections import Counter
from pathlib import Path

import pytest
from distributed import Client
from refuters import refute
from shell import invoke, shell

from dasfprof import TraceAnalyser
from dasfprof.cli import demo
from dasfprof.cli.demo_pipeline import DemoSize, write_points
from dasfprof.database.multi import find_runs

pytestmark = pytest.mark.whole_program


def test_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = shell("dasfprof", "demo", "--size", "small", cwd=tmp_path, COLUMNS=80)
    assert (done.returncode, done.stderr) == (0, "")
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert done.stdout.startswith("k-means on 200,000 points, 2 workers\n")
    (run,) = find_runs(tmp_path / "dasfprof-demo")
    assert f"Recorded dasfprof-demo/{run.name}: 6 trace files, " in done.stdout
    assert not refute(run.files, TraceAnalyser(run.files, progress=False).findings())
    assert "Steps of the pipeline" in done.stdout
    assert "% of task runs" not in done.stdout, "all have a step, so that nothing is missing"
    (iterations,) = map(int, re.findall(r"Lloyd's iterations: (\d+) until", done.stdout))
    (clusters,) = re.findall(r"one partition per cluster: (.*) points", done.stdout)
    # Three clusters with about a third of the points each, and no point is missing.
    counts = [int(count.replace(",", "")) for count in clusters.split(", ")]
    assert (len(counts), sum(counts)) == (3, 200_000)
    assert all(60_000 < count < 73_000 for count in counts)

    monkeypatch.chdir(tmp_path)
    source = f"dasfprof-demo/{run.name}"
    assert invoke("report", "-o", "run.html", source).exit_code == 0
    page = (tmp_path / "run.html").read_text(encoding="utf-8")
    assert len(page) < 400_000
    # It begins with the advice of the first finding, and the finding.
    facts = json.loads(re.search(r'id="facts">([^<]*)', page)[1])  # type: ignore[index]
    first = TraceAnalyser(run.files, progress=False).diagnose().iloc[0]
    headline = facts["summary"]["headline"]
    if first["Severity"] in {"high", "medium"}:
        *_, advice, finding = re.findall(r"[^.]+(?:\.\S[^.]*)*\.(?= |$)", headline)
        assert first["Finding"].startswith(finding.strip(" ."))
        advice = re.sub(r"^To save about [^,]+, ", "", advice.strip(" ."))
        assert first["Suggestion"][1:].startswith(advice[1:])
    else:
        assert headline.startswith("No severe problem was found")
    assert invoke("analyse", "-o", "tables", source).exit_code == 0
    with (tmp_path / "tables" / "function_bottleneck.csv").open(newline="") as file:
        functions = list(csv.DictReader(file))
    chunks, shares = Counter[str](), Counter[str]()
    for row in functions:
        chunks[row["Function"]] += int(row["Num Tasks (chunks)"])
        shares[row["Worker"]] += float(row["Percentage of total time (%)"])
    # There are eight files, each with a chunk and a task per iteration.
    assert chunks["sum_by_nearest"] == 8 * iterations
    assert chunks["shuffle-transfer"] == 8
    assert [*shares.values()] == pytest.approx([100.0, 100.0])

    # Lines of the demo, not of the command that called it.
    ledger = TraceAnalyser(run.files, progress=False).lines()
    own = ledger[~ledger["Line"].astype(str).str.startswith("(")]
    assert {Path(file).name for file in own["File"]} <= {"demo.py", "demo_pipeline.py"}
    (sums,) = own[own["Text"].astype(str).str.startswith("sums = ")].to_dict("records")
    assert sums["Tasks"] == 8 * iterations


def test_steps_without_dask_dataframe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "dask.dataframe", None)  # the import fails
    size = DemoSize(files=2, points_per_file=1000)
    paths = write_points(tmp_path / "data", size)
    with Client(processes=False, n_workers=1, dashboard_address=None) as client:
        demo._work(client, paths, size)
    output = capsys.readouterr().out
    assert [line.split()[0] for line in output.splitlines()] == ["normalise", "k-means", "shuffle"]
    assert "pip install 'dasfprof[demo]'" in output
