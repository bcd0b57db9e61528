"""``dasfprof tune`` on real programs: the best settings for a host, or a clear message.

Tasks sleep, so that other programs hardly matter.
"""

from pathlib import Path
from typing import Any

import pytest
import yaml
from shell import document_of, invoke, shell

import dasfprof

pytestmark = pytest.mark.whole_program

PROGRAM = """
import os, sys, time
from distributed import Client
def fetch(before, size):
    time.sleep(0.2 if {in_turn} else 0.2 * size)
    return before + size if {in_turn} else size
if __name__ == "__main__":
    size = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    with {client} as client:
        sizes = [size] * (12 // size)
        if {in_turn}:
            total = 0
            for size in sizes:
                total = client.submit(fetch, total, size)
            total = total.result()
        else:
            total = sum(client.gather(client.map(fetch, range(len(sizes)), sizes)))
        {end}
"""
#: Client whose cluster is in the program's process, so that it starts quickly.
CLIENT = "Client(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None)"
ONE_OR_SIX = ("--parameter", "n_workers=1", "--parameter", "threads_per_worker=1,6")


def program(
    directory: Path, *, end: str = "print(total)", client: str = CLIENT, in_turn: bool = False
) -> None:
    """Write a program of twelve sleeping pieces; its argument is the number of pieces per task.

    With `in_turn`, each task depends on the previous one, and its duration does not depend on the
    number of pieces.
    """
    text = PROGRAM.format(client=client, end=end, in_turn=in_turn)
    (directory / "program.py").write_text(text)


def tuned(*arguments: str, cwd: Path, code: int = 0) -> dict[str, Any]:
    return document_of("tune", *arguments, cwd=cwd, code=code)[0]


def test_threads_that_a_replay_foretells_and_the_next_run_has(tmp_path: Path) -> None:
    program(tmp_path)
    found = tuned(*ONE_OR_SIX, "program.py", cwd=tmp_path)

    assert found["verdict"] == "tuned"
    assert found["line"].startswith("LocalCluster(n_workers=1, threads_per_worker=")
    assert "processes=False" in found["line"]
    best = found["points"][0]
    assert best["change"] == found["settings"]
    # Twelve tasks of 200 ms, one by one, and at least six in parallel.
    assert found["as_it_is"]["seconds"] > 2.4 > best["measured"]
    six = next(one for one in found["points"] if one["change"]["threads_per_worker"] == 6)
    assert six["predicted"] < 1.5
    assert best["trial"]["results"]["kind"] == "equal"

    profile = yaml.safe_load((tmp_path / found["profile"]).read_text())
    assert profile["dasfprof"]["tuned"] == found["settings"]
    threads = found["settings"]["threads_per_worker"]
    ways: dict[str, Any] = {"flag": ["--config", "tuned.yaml"], "variable": []}
    for way, flags in ways.items():
        command = ("dasfprof", "run", "-d", way, *flags, "program.py")
        variables = {} if flags else {"DASK_CONFIG": "tuned.yaml"}
        assert shell(*command, cwd=tmp_path, **variables).returncode == 0
        recorded = dasfprof.TraceAnalyser(tmp_path / way, progress=False).trace
        assert recorded.workers["nthreads"].dropna().tolist() == [threads]


def test_an_argument_of_the_script(tmp_path: Path) -> None:
    """The largest size is best, and more threads do not help."""
    program(tmp_path, in_turn=True)
    sizes = ("--parameter", "n_workers=1", "--parameter", "threads_per_worker=1")
    sizes += ("--parameter", "--size=1,6")
    found = tuned(*sizes, "program.py", "--size", "2", cwd=tmp_path)

    assert (found["verdict"], found["settings"]) == ("tuned", {"--size": "6"})
    assert found["line"] is None
    done = shell("dasfprof", "run", "--config", "tuned.yaml", "program.py", cwd=tmp_path)
    assert done.stdout == "12\n"
    assert "2 task runs" in done.stderr or "2 tasks" in done.stderr


def test_nothing_is_advised_where_results_differ(tmp_path: Path) -> None:
    program(tmp_path, end="print(sum(client.nthreads().values()))")
    found = tuned(*ONE_OR_SIX, "program.py", cwd=tmp_path, code=1)

    assert (found["verdict"], found["settings"], found["line"]) == ("results differ", {}, None)
    assert found["sentences"][0] == "Nothing is advised."
    assert not (tmp_path / "tuned.yaml").exists()


def test_wrong_usage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    program(tmp_path)
    (tmp_path / "mine.yaml").write_text("array:\n  chunk-size: 1GiB\n")
    for arguments, words in (
        (("-o", "mine.yaml"), "mine.yaml exists and is not a resource profile"),
        (("--parameter", "threads=2"), "there is no setting 'threads'"),
        (("--parameter", "n_workers=2,more"), "n_workers=more: expected numbers"),
        (("--parameter", f"--size={','.join(map(str, range(1, 20)))}"), "The maximum is 12"),
    ):
        arguments = ["tune", *arguments, "program.py"]
        done = invoke(*arguments)
        assert (done.exit_code, done.stdout) == (2, "")
        assert words in " ".join(done.stderr.replace("│", "").split())
