"""The script that creates the README's picture."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.whole_program

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
PNG = b"\x89PNG\r\n\x1a\n"


def test_the_readme_shows_small_pictures() -> None:
    readme = NOTEBOOKS.with_name("README.md").read_text(encoding="utf-8")
    assert "(notebooks/report.png)" in readme and "(notebooks/watch.svg)" in readme
    content = (NOTEBOOKS / "report.png").read_bytes()
    assert content.startswith(PNG) and len(content) < 300_000
    text = (NOTEBOOKS / "watch.svg").read_text(encoding="utf-8")
    assert "pipeline.py" in text and len(text) < 50_000
    assert str(NOTEBOOKS.parent) not in text


@pytest.mark.slow
def test_it_takes_a_picture(tmp_path: Path) -> None:
    pytest.importorskip("playwright", reason="needs Playwright: pip install 'dasfprof[test]'")
    if shutil.which("chromium") is None:
        pytest.skip("needs a Chromium browser: apt-get install chromium")
    picture = tmp_path / "report.png"
    command = [sys.executable, NOTEBOOKS / "make_picture.py", picture, "--size", "small"]
    options = {"cwd": tmp_path, "stdout": subprocess.PIPE, "text": True, "timeout": 500}
    done = subprocess.run(command, check=True, **options)
    content = picture.read_bytes()
    assert content.startswith(PNG)
    # An empty page of this size has about 10 kB.
    assert 50_000 < len(content) < 300_000
    assert done.stdout.splitlines()[-1] == f"{picture}: {len(content) / 1e3:.0f} kB"
