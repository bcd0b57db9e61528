"""``%dasfprof_compare`` in IPython: what it prints and returns, and what it says to wrong use."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from traces.noisy import Noisy

pytestmark = pytest.mark.whole_program


def test_two_sides_are_compared(tmp_path: Path) -> None:
    for number in range(2):
        Noisy().write(tmp_path / "before" / str(number), number)
    Noisy(times={"clean": 2.0}).write(tmp_path / "after", 9)
    lines = [
        "%load_ext dasfprof",
        "%dasfprof_compare before/0 after",
        "found = %dasfprof_compare before/0 before/1 -- after",
        "print(len(found.runs), found.functions['Function'].iloc[0])",
        "%dasfprof_compare before",
        "%dasfprof_compare before/0 before/1 after",
        "%dasfprof_compare before nowhere",
    ]
    script = tmp_path / "cells.ipy"
    script.write_text("\n".join(f"get_ipython().run_cell({line!r})" for line in lines))
    done = subprocess.run(
        [sys.executable, "-m", "IPython", "--quick", "--colors=nocolor", str(script)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    told = " ".join((done.stdout + done.stderr).split())  # lines are wrapped
    assert "one run each: differences below" in told
    assert "RunComparison of 1 run and 1 run: slower" in told
    assert "3 clean" in told
    assert told.count("takes two sources, or several for each side with --") == 2
    assert "no trace file, directory, pattern or run 'nowhere'" in told
