"""Export formats: functions, command line and documentation use the same list."""

import json
import re
import sys
from pathlib import Path
from typing import get_args

import pytest
from click.testing import CliRunner
from sampled_runs import HOSTILE, WORK, write_sampled_run
from traces import made_trace

import dasfprof
from dasfprof.cli.main import cli
from dasfprof.errors import MissingExtraError
from dasfprof.report.formats import FORMATS, FormatName, _format_of

README = Path(__file__).parents[2] / "README.md"


@pytest.mark.parametrize("name", get_args(FormatName))
def test_each_format_is_described_wherever_formats_are_listed(name: str) -> None:
    described = FORMATS[name]
    assert described.name == name
    shown = CliRunner().invoke(cli, ["export", "--help"], terminal_width=10_000).output
    shown = " ".join(shown.split())
    assert f"{name}: {described.about}" in shown
    assert described.ending in shown
    assert f'- ``"{name}"``: {described.about}' in (dasfprof.export.__doc__ or "")


def test_the_readme_names_formats_that_exist() -> None:
    named = re.findall(r"--to (\w+)|to=\"(\w+)\"", README.read_text(encoding="utf-8"))
    known = {*get_args(FormatName), "FORMAT"}
    assert {name for pair in named for name in pair if name} <= known
    assert named


def test_a_missing_library_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    run = made_trace([], workers=[])
    message = r"'parquet' needs pyarrow: pip install 'dasfprof\[parquet\]'"
    with pytest.raises(MissingExtraError, match=message):
        dasfprof.export(dasfprof.TraceAnalyser(run), "anywhere", to="parquet", title="run")


def test_the_format_is_that_of_the_ending(tmp_path: Path) -> None:
    formats = {
        **dict.fromkeys(("trace.json", "trace.json.gz", "trace"), "perfetto"),
        **{"stacks.speedscope.json": "speedscope", "spans.otlp.jsonl.gz": "otlp"},
        "tables-csv": "csv",
    }
    assert {name: _format_of(tmp_path / name) for name in formats} == formats


def test_speedscope_gets_all_stacks_over_time_and_inert(tmp_path: Path) -> None:
    analyser = dasfprof.TraceAnalyser(write_sampled_run(tmp_path / "traces"), progress=False)
    path = analyser.export(tmp_path / "stacks.json", to="speedscope", title="mine")
    content = json.loads(path.read_text(encoding="utf-8"))
    assert content["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    assert content["name"] == "mine"
    frames = content["shared"]["frames"]
    assert {"name": "nearest", "file": WORK, "line": 41} in frames
    profiles = {profile["name"]: profile for profile in content["profiles"]}
    names = ["tasks", "tasks: nearest", "tasks: /script><img", "client: waiting"]
    assert list(profiles) == [*names, "event loops: worker-node1-0"]
    tasks = profiles["tasks"]
    assert tasks["endValue"] == pytest.approx(4.25) == sum(tasks["weights"])
    lines = [(frame["name"], frame.get("line")) for frame in frames]
    stacks = (tuple(lines[number] for number in sample) for sample in tasks["samples"])
    first, last = ("nearest", 41), ("nearest", 43)
    assert dict(zip(stacks, tasks["weights"], strict=True)) == {
        **{(first, ("norm", 2800)): 1.5, (first,): 0.25, (last,): 1.75},
        **{((HOSTILE, 7),): 0.5, (("(unknown)", None),): 0.25},
    }
    assert "\udcff" not in json.dumps(frames, ensure_ascii=False)
    bare = dasfprof.TraceAnalyser(made_trace([], workers=[]))
    path = bare.export(tmp_path / "none", to="speedscope", title="none")
    assert json.loads(path.read_text())["shared"]["frames"] == []
