"""Programs from public questions: the cause is named, and no advice is harmful."""

from pathlib import Path

import pytest

pytest.importorskip("tomllib", reason="Python is < 3.11")

from cases import VERDICTS, verdict
from expectations import declaration
from refuters import refute
from run import BUSY, CASES, programs, record


@pytest.mark.slow
@pytest.mark.parametrize("name", programs(CASES))
def test_the_cause_is_named(name: str, tmp_path: Path) -> None:
    declared, done = declaration(name), record(name, tmp_path)
    assert done.exit_code == declared.exit_code, done.printed
    assert not refute(done.directory, done.analyser.findings())
    found = verdict(declared, done.findings, done.busy_elsewhere > BUSY)
    if VERDICTS.index(found) > VERDICTS.index(declared.today) and done.busy_elsewhere > BUSY:
        pytest.skip(f"other programs used {done.busy_elsewhere:.0%} of the cores: {found}")
    columns = ["Severity", "Rule", "Finding", "Evidence", "Suggestion"]
    told = done.findings[columns].to_string(max_colwidth=None)
    assert VERDICTS.index(found) <= VERDICTS.index(declared.today), f"{declared.cause}\n{told}"
