"""The program in the headers of a client's files: its name, and never its arguments."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from dasfprof.analysis.trace.gaps import Surroundings

PROGRAM = """import json
from dasfprof.recording.cluster.program import program_facts
print(json.dumps(program_facts()))
"""


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (["deep/train.py", "--password", "hunter2"], "python train.py"),
        (["-m", "deep.train", "--password=hunter2"], "python -m deep.train"),
        (["-m", "deep", "hunter2"], "python -m deep"),
        (["-c", PROGRAM, "hunter2"], "python -c"),
        (["deep/train", "hunter2"], "train"),
    ],
)
def test_program(tmp_path: Path, arguments: list[str], command: str) -> None:
    package = tmp_path / "deep"
    package.mkdir()
    for name in ("__init__.py", "__main__.py", "train.py", "train"):
        (package / name).write_text(PROGRAM if name != "__init__.py" else "")
    done = subprocess.run(
        [sys.executable, *arguments], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "hunter2" not in done.stdout
    found = json.loads(done.stdout)
    behind = 2 if arguments[0] in ("-m", "-c") else 1
    assert found == {"command": command, "command_arguments": len(arguments) - behind}


def test_surroundings_of_headers() -> None:
    headers = [
        {"host": "one", "cores": 4, "versions": {"dask": "2026.8.0", "numpy": None}},
        {"host": "two", "cores": 2, "versions": {"dask": "2026.7.1"}, "settings": {"a": "1"}},
        {"host": "one", "cores": 2, "command": "python train.py", "command_arguments": 2},
        {"host": "one", "command": ["no text"], "versions": "damaged", "cores": "many"},
        {},
    ]
    found = Surroundings.from_headers(headers)
    assert found.versions["dask"] == "2026.7.1 / 2026.8.0"
    assert found.settings == {"a": "1"}
    assert found.cores == {"one": 4, "two": 2}
    assert found.command == "python train.py (2 arguments, not recorded)"
    assert Surroundings.from_headers([]) == Surroundings()


CORES = """import os, sys
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
from dasfprof import InstantEvent
from dasfprof.recording.settings import make_settings
settings = make_settings(name="run", directory=sys.argv[1])
with settings.open_database("Any", "worker", {}) as database:
    database.record(InstantEvent("here", 1.0))
    print(database.trace_file().read_header()["cores"])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="no other system lets a process choose cores")
def test_the_header_tells_the_cores_that_the_process_may_use(tmp_path: Path) -> None:
    command = [sys.executable, "-c", CORES, tmp_path]
    assert subprocess.run(command, capture_output=True, check=True).stdout == b"1\n"
