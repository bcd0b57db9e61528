"""Export formats: functions, command line and documentation use the same list."""

import re
import sys
from pathlib import Path
from typing import get_args

import pytest
from click.testing import CliRunner
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
