"""``dasfprof analyse --patch`` prints a diff that applies, or the reason why there is none."""

import subprocess
from pathlib import Path

import pytest
from shell import invoke
from traces import Plugin, row

from dasfprof.analysis.diagnosis.registry import Edit
from dasfprof.cli.patches import patch_of
from dasfprof.schema.steps import LINE
from dasfprof.schema.tasks import COMPUTE

TEXT = "x = f(\n    chunks=5,\n)\ny = g(npartitions=9)"


def test_a_diff_that_git_applies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This includes the last line of a file without a line break."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "program.py"
    file.write_text(TEXT)
    edits = [
        Edit(str(file), 2, "chunks=5,", "chunks=50,"),
        Edit(str(file), 4, "y = g(npartitions=9)", "y = g(npartitions=3)"),
    ]
    diff, obstacles = patch_of(edits)

    assert obstacles == []
    assert file.read_text() == TEXT
    subprocess.run(["git", "apply"], input=diff.encode(), check=True)
    assert file.read_text() == TEXT.replace("5", "50").replace("9", "3")


def test_files_that_are_not_as_they_were(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(TEXT)
    edits = [Edit(str(file), 1, "chunks=5,", "chunks=50,"), Edit("<cell>", 1, "a", "b")]
    diff, obstacles = patch_of(edits)
    assert diff == ""
    assert obstacles == [
        f"{file}:1 has changed since the run.",
        "<cell> cannot be read on this computer.",
    ]


T = 1.7e9


def write_run(directory: Path, text: str) -> Path:
    """Write a run of 64 short tasks, and the line of a program that may have built them."""
    program = directory / "program.py"
    program.write_text(f"import dask\n{text}\n")
    rows = []
    for n in range(64):
        begin = T + n // 2 * 0.02
        times = {"received": begin, "ready": begin, "executing": begin, "done": begin + 0.009}
        facts = {"state": "memory", "duration": 0.001, "thread": str(n % 2), "cpu": 0.001}
        sizes = {"size": 25_000, "type": "list", "disk_read": 0.0, "deserialize": 0.0}
        key = {"key": ("load", n), "run_id": n, "timestamp": begin + 0.004}
        rows.append(row(COMPUTE, **key, **times, **facts, **sizes))
    Plugin(directory / "run").write((COMPUTE, rows))
    line = row(LINE, timestamp=T - 3, id=1, file=str(program), line=2, code="f", text=text)
    Plugin(directory / "run", "StepRecorder").write((LINE, [line]))
    return program


@pytest.mark.parametrize(
    ("text", "added"),
    [
        ("b = db.from_sequence(x, npartitions=64)", "+b = db.from_sequence(x, npartitions="),
        ("f = dd.read_csv(x, blocksize='25kB')", "+f = dd.read_csv(x, blocksize='"),
        # The number is a variable, or not that of the small partitions.
        ("b = db.from_sequence(x, npartitions=count)", ""),
        ("b = db.from_sequence(x, npartitions=63)", ""),
    ],
)
def test_only_a_number_that_set_the_chunks_is_edited(text: str, added: str, tmp_path: Path) -> None:
    program = write_run(tmp_path, text)
    done = invoke("analyse", "--patch", tmp_path / "run")

    lines = [line for line in done.stdout.splitlines() if line.startswith("+") and "=" in line]
    assert program.read_text() == f"import dask\n{text}\n"
    if added:
        assert (done.exit_code, len(lines)) == (0, 1), done.stderr
        assert lines[0].startswith(added)
    else:
        assert (done.exit_code, done.stdout) == (1, "")
        assert "No finding suggests an edit of one line" in done.stderr


def test_wrong_usage(tmp_path: Path) -> None:
    done = invoke("analyse", "--patch", "--json", tmp_path)
    assert (done.exit_code, "only be combined with --finding" in done.stderr) == (2, True)
