"""Displays of runs, comparisons and databases in notebooks."""

import shutil
from pathlib import Path

import pytest
from clusters import client_of
from distributed import Client
from executed_cells import Elements

import dasfprof
from dasfprof import MultiEventDatabase, jupyter
from dasfprof.jupyter import show
from dasfprof.text import format_size

client = client_of(1, processes=False)


@pytest.fixture
def run(client: Client, tmp_path: Path) -> dasfprof.ProfiledRun:
    options = {"directory": tmp_path / "traces", "add_time_suffix": False}
    with dasfprof.profile(client, "few", **options) as it:
        client.submit(abs, -1, pure=False).result()
    return it


def test_the_handle(client: Client, tmp_path: Path) -> None:
    run = dasfprof.register_default_profiler(client, "on <b>", directory=tmp_path)
    assert "recording" in repr(run)
    run.stop()
    files = run.files()
    size = sum(path.stat().st_size for path in files)
    assert size < 100_000
    told = f"'{run.name}': stopped, {len(files)} files, {format_size(size)} in {tmp_path}"
    assert repr(run) == f"<ProfiledRun {told}>"

    assert repr(MultiEventDatabase(files[:1])) == "MultiEventDatabase with 1 database"
    shutil.rmtree(run.directory)
    assert "stopped, 0 files, 0 B in" in repr(run)


def test_a_large_report_is_linked(
    run: dasfprof.ProfiledRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = show(run)
    assert shown.report == run.directory / "few.html"
    assert "<iframe" in shown._repr_html_()
    monkeypatch.setattr(jupyter, "INLINE_BYTES", 10_000)
    page = Elements(shown._repr_html_())
    assert "iframe" not in page.tags
    assert "too large to be shown here" in page.text
    assert page.value("a", "href").endswith("/few.html")
    shown.report.unlink()
    assert "such file or directory" in shown._repr_html_()


def test_any_run_can_be_shown(
    run: dasfprof.ProfiledRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for source in (run.directory, run.database(), run.analyser()):
        shown = show(source)
        assert shown.report.read_bytes().startswith(b"<!doctype html>")
        assert "1 task run of 1 function" in repr(shown)
