"""``dasfprof try --patch`` and ``--with``: only a copy changes, and no gain is claimed by chance.

Tasks sleep, so that other programs hardly matter.
"""

import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from shell import document_of, invoke

from dasfprof.errors import TrialError
from dasfprof.handles.trial.code import with_patch
from dasfprof.handles.trial.process import Program
from dasfprof.handles.trial.results import compare_outputs, files_below, written_since

PROGRAM = """\
import sys
from pathlib import Path
from distributed import Client
from lib import fetch
if __name__ == "__main__":
    with Client(
        n_workers=1, threads_per_worker=4, processes=False, dashboard_address=None
    ) as client:
        numbers = []
        for number in range(12):
            numbers.append(client.submit(fetch, number).result())
        total = sum(numbers)
        print(total)
        Path("mean.txt").write_text(f"{total / 7}")
"""
LIBRARY = """\
import time
def fetch(number):
    time.sleep(0.3)
    return number
"""
#: Program that submits all tasks together: 0.9 s instead of 3.6 s.
FIX = """\
--- a/program.py
+++ b/program.py
@@ -7,7 +7,5 @@
         n_workers=1, threads_per_worker=4, processes=False, dashboard_address=None
     ) as client:
-        numbers = []
-        for number in range(12):
-            numbers.append(client.submit(fetch, number).result())
+        numbers = client.gather(client.map(fetch, range(12)))
         total = sum(numbers)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A git work tree with a program, a module, and data that git ignores."""
    directory = tmp_path / "project"
    directory.mkdir()
    subprocess.run(["git", "init", "-q", str(directory)], check=True)
    (directory / "program.py").write_text(PROGRAM)
    (directory / "lib.py").write_text(LIBRARY)
    (directory / ".gitignore").write_text("data/\n*.log\n")
    (directory / "data").mkdir()
    (directory / "data" / "x.csv").write_text("1\n")
    (directory / "old.log").write_text("old\n")
    (directory / "fix.diff").write_text(FIX)
    return directory


def contents(directory: Path) -> dict[str, bytes]:
    """Return the files below a directory, without copies and files of Git and Python."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and not {".git", "__pycache__", "work"} & set(path.parts)
    }


def patched(project: Path, *command: str) -> tuple[Program, Program]:
    """Return a program, and the program that ``fix.diff`` makes from it."""
    return with_patch(Program("program", command), Path("fix.diff"), project.parent / "work")


def test_a_patch_changes_only_one_of_two_copies(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    had = contents(project)
    outside = project.parent / "in.csv"
    outside.touch()
    plain, changed = patched(project, "program.py", "--in", "data", "../in.csv", "../none.csv")

    assert contents(project) == had
    assert Path(plain.command[0]).read_text() == PROGRAM
    fixed = Path(changed.command[0])
    assert "client.map(fetch" in fixed.read_text()
    assert changed.patched == ("program.py",)
    # Paths to existing files outside the copy are adjusted.
    *same, moved, absent = changed.command[1:]
    assert (same, absent) == (["--in", "data"], "../none.csv")
    assert Path(moved).resolve() == outside.resolve()
    copy = Path(changed.directory)
    assert (copy, changed.moved) == (fixed.parent, (str(project), str(fixed.parent)))
    # A large directory that git ignores is not copied, but can be read.
    assert (copy / "data").is_symlink()
    assert (copy / "data" / "x.csv").read_text() == "1\n"
    assert not (copy / "old.log").is_symlink()
    assert not (copy / ".git").exists()


def test_a_directory_that_is_no_git_work_tree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names of files in the patch may be relative to the script's directory, without a prefix."""
    (tmp_path / "scripts" / "venv").mkdir(parents=True)
    (tmp_path / "scripts" / "venv" / "pyvenv.cfg").touch()
    (tmp_path / "scripts" / "program.py").write_text(PROGRAM)
    (tmp_path / "fix.diff").write_text(FIX.replace("a/", "").replace("b/", ""))
    (tmp_path / "in.csv").touch()
    monkeypatch.chdir(tmp_path)
    _, changed = patched(tmp_path / "scripts", "scripts/program.py", "in.csv")

    copy = Path(changed.command[0]).parent
    assert [path.name for path in copy.iterdir()] == ["program.py"]
    assert changed.patched == ("program.py",)
    # The working directory is not part of the copy, so the program runs there.
    assert (changed.directory, changed.command[1:]) == ("", ("in.csv",))


def test_the_working_directory_is_never_patched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A patch with names that are relative to it does not apply, if it is not copied."""
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "program.py").write_text(PROGRAM)
    (tmp_path / "fix.diff").write_text(FIX.replace("/program.py", "/scripts/program.py"))
    monkeypatch.chdir(tmp_path)
    had = contents(tmp_path)
    with pytest.raises(TrialError, match="does not apply"):
        patched(tmp_path / "scripts", "scripts/program.py")
    assert contents(tmp_path) == had


def test_what_is_only_linked_is_never_patched(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "fix.diff").write_text("--- a/data/x.csv\n+++ b/data/x.csv\n@@ -1 +1 @@\n-1\n+2\n")
    monkeypatch.chdir(project)
    names = project, ["program.py", "data"]
    monkeypatch.setattr("dasfprof.handles.trial.code._files_of", lambda *_: names)
    with pytest.raises(TrialError, match="does not apply"):
        patched(project, "program.py")
    assert (project / "data" / "x.csv").read_text() == "1\n"


@pytest.mark.parametrize(
    ("patch", "words"),
    [
        (FIX.replace("numbers = []", "numbers = [0]"), "program.py"),
        ("no patch at all\n", ""),
        (FIX.replace("/program.py", "/../program.py"), ""),
    ],
    ids=["other lines", "no patch", "outside"],
)
def test_a_patch_that_does_not_apply(
    patch: str, words: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    (project / "fix.diff").write_text(patch)
    had = contents(project.parent)
    with pytest.raises(TrialError, match=f"^The patch does not apply: .*{words}"):
        patched(project, "program.py")
    assert contents(project.parent) == had


def test_only_files_that_were_written_count(tmp_path: Path) -> None:
    for name in ("same.txt", "traces/a.msgpack", "__pycache__/x.pyc", ".hidden/x"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    before = files_below(tmp_path)
    (tmp_path / "traces" / "b.msgpack").write_text("x")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "new.txt").write_text("1.5")
    np.save(tmp_path / "new.npy", np.arange(3.0))
    pd.DataFrame({"x": [1.0]}).to_parquet(tmp_path / "new.parquet")
    (tmp_path / "new.bin").write_bytes(b"\xff\xfe")
    written = written_since(before, tmp_path, tmp_path / "traces")

    assert written is not None
    assert written.keys() == {"out/new.txt", "new.npy", "new.parquet", "new.bin"}
    assert written["out/new.txt"] == ["1.5"]
    assert isinstance(written["new.bin"][0], bytes)


FIRST: dict[str, Any] = {"a.txt": "x 0.5", "b.npy": np.arange(3.0), "c.bin": b"1"}


SECOND = {**FIRST, "c.bin": b"3"}
#: Files with a different name in each run.
FIRST_NAMES, LAST_NAMES = ([{f"{at}.txt": ""} for at in pair] for pair in ((0, 1), (2, 3)))


@pytest.mark.parametrize(
    ("plain", "changed", "kind"),
    [
        ([FIRST, FIRST], [FIRST] * 2, "equal"),
        ([FIRST], [{**FIRST, "a.txt": "x 0.50000000001"}] * 2, "equal"),
        ([FIRST], [{**FIRST, "b.npy": np.arange(3.0) * (1 + 1e-9)}] * 2, "equal"),
        ([FIRST], [{**FIRST, "a.txt": "x 0.51"}] * 2, "differ"),
        ([FIRST], [{**FIRST, "b.npy": np.arange(4.0)}] * 2, "differ"),
        ([FIRST], [{**FIRST, "c.bin": b"2"}] * 2, "differ"),
        ([FIRST], [{"a.txt": "x 0.5"}] * 2, "differ"),
        ([FIRST], [{**FIRST, "d.txt": ""}] * 2, "differ"),
        ([FIRST, SECOND], [{**FIRST, "c.bin": b"2"}] * 2, "in part"),
        ([FIRST, SECOND], [{**FIRST, "a.txt": "y"}] * 2, "differ"),
        (FIRST_NAMES, LAST_NAMES, "not comparable"),
        # Files that only one run has may belong to another program.
        ([{"": "1"}] * 3, [{"": "1", "x.log": "a"}, {"": "1"}], "in part"),
    ],
)
def test_files_of_both_sides(
    plain: list[dict[str, Any]], changed: list[dict[str, Any]], kind: str
) -> None:
    sides = [
        [{name: [value] for name, value in files.items()} for files in side]
        for side in (plain, changed)
    ]
    assert compare_outputs(*sides, 1e-6).kind == kind


def tried(*arguments: str, cwd: Path, code: int = 0) -> dict[str, Any]:
    """Try other code of a program, and return the trial in the document."""
    document, _ = document_of("try", *arguments, cwd=cwd, code=code)
    (trial,) = document["tried"]
    return dict(trial)


@pytest.mark.whole_program
def test_a_patch_that_gains_answers_its_finding(project: Path) -> None:
    had = contents(project)
    trial = tried("--patch", "fix.diff", "program.py", cwd=project)

    assert contents(project) == had
    assert trial["change"] == {"patch": "fix.diff"}
    assert (trial["verdict"], trial["results"]["kind"]) == ("gained", "equal")
    assert "mean.txt" in trial["results"]["text"]
    # Twelve tasks of 0.3 s, one by one and four in parallel: 3.6 s and 0.9 s.
    assert trial["rule"] == "sequential-submission"
    assert trial["promised"] == pytest.approx(trial["gain"]["seconds"], rel=0.3)
    (answered,) = [one for one in trial["findings"] if one["rule"] == trial["rule"]]
    assert answered["status"] == "gone"


@pytest.mark.whole_program
def test_another_script_that_fails(project: Path) -> None:
    (project / "lib.py").write_text(LIBRARY.replace("0.3", "0.1"))
    (project / "other.py").write_text(PROGRAM.replace("print(total)", "sys.exit(3)"))
    trial = tried("--with", "other.py", "program.py", cwd=project, code=1)

    assert trial["change"] == {"script": "other.py"}
    assert (trial["verdict"], trial["rule"], trial["promised"]) == ("no result", None, None)
    assert "other.py" in trial["sentences"][0]
    assert "the program fails (exit code 3)" in trial["sentences"][0]


@pytest.mark.whole_program
def test_a_patch_that_changes_the_result(project: Path) -> None:
    (project / "lib.py").write_text(LIBRARY.replace("0.3", "0.1"))
    (project / "fix.diff").write_text(FIX.replace("range(12)))", "range(11)))"))
    trial = tried("--patch", "fix.diff", "program.py", cwd=project, code=1)

    assert (trial["verdict"], trial["results"]["kind"]) == ("results differ", "differ")
    assert trial["sentences"][0].startswith("With the change, the program prints '55' where it")
    assert (trial["rule"], trial["promised"]) == (None, None)


@pytest.mark.whole_program
def test_a_patch_of_a_module_that_is_imported_from_elsewhere(project: Path) -> None:
    original = os.fspath(project)
    program = PROGRAM.replace("import sys", f"import sys; sys.path.insert(0, {original!r})", 1)
    (project / "program.py").write_text(program)
    head = "--- a/lib.py\n+++ b/lib.py\n@@ -2,3 +2,3 @@\n def fetch(number):\n"
    lines = "-    time.sleep(0.3)\n+    time.sleep(0.01)\n     return number\n"
    (project / "fix.diff").write_text(head + lines)
    trial = tried("--patch", "fix.diff", "program.py", cwd=project, code=1)
    assert trial["obstacle"].startswith("The patch had no effect, because the program imports ")


def test_wrong_usage(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "fix.diff").write_text(FIX.replace("numbers = []", "numbers = [0]"))
    trial = tried("--patch", "fix.diff", "program.py", cwd=project, code=1)
    assert trial["verdict"] == "no result"
    assert trial["sentences"] == ["The patch does not apply: patch failed: program.py:7"]
    both = ("--patch", "fix.diff", "--with", "lib.py")
    monkeypatch.chdir(project)
    done = invoke("try", *both, "program.py")
    assert (done.exit_code, "cannot be combined" in done.stderr) == (2, True)
    assert invoke("try", "--patch", "no.diff", "program.py").exit_code == 2
