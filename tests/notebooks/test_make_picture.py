"""The script that takes the README's picture."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.whole_program

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
PNG = b"\x89PNG\r\n\x1a\n"


def test_the_readme_shows_a_small_picture() -> None:
    readme = NOTEBOOKS.with_name("README.md").read_text(encoding="utf-8")
    assert "(notebooks/report.png)" in readme
    content = (NOTEBOOKS / "report.png").read_bytes()
    assert content.startswith(PNG)
    assert len(content) < 300_000


def test_the_readme_shows_watch() -> None:
    readme = NOTEBOOKS.with_name("README.md").read_text(encoding="utf-8")
    assert "(notebooks/watch.svg)" in readme
    content = (NOTEBOOKS / "watch.svg").read_text(encoding="utf-8")
    assert "pipeline.py" in content
    assert str(NOTEBOOKS.parent) not in content
    assert len(content) < 50_000


@pytest.mark.slow
def test_it_takes_a_picture(tmp_path: Path) -> None:
    pytest.importorskip("playwright", reason="needs Playwright: pip install 'dasfprof[test]'")
    if shutil.which("chromium") is None:
        pytest.skip("needs a Chromium browser: apt-get install chromium")
    picture = tmp_path / "report.png"
    script = NOTEBOOKS / "make_picture.py"
    done = subprocess.run(
        [sys.executable, script, picture, "--size", "small"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=500,
        check=True,
    )
    content = picture.read_bytes()
    assert content.startswith(PNG)
    # An empty page of this size takes some 10 kB.
    assert 50_000 < len(content) < 300_000
    assert done.stdout.splitlines()[-1] == f"{picture}: {len(content) / 1e3:.0f} kB"
