"""``dasfprof try`` on real programs: it finds existing gains, no others, and has clear messages.

Tasks sleep, so that other programs hardly matter.
"""

import os
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from distributed import Client, LocalCluster
from shell import document_of, invoke, shell

import dasfprof
from dasfprof.errors import TrialError
from dasfprof.handles.trial import runs as runs_module
from dasfprof.handles.trial.process import Done, Program, run_program
from dasfprof.handles.trial.settings import Settings, read_change

pytestmark = pytest.mark.whole_program

#: Client whose cluster is in the program's process, so that it starts quickly.
CLIENT = (
    "Client(n_workers=1, threads_per_worker={threads}, processes=False, dashboard_address=None)"
)
PROGRAM = """
import random, sys, time
from distributed import Client
def fetch(number):
    time.sleep({seconds})
    return number
if __name__ == "__main__":
    with {client} as client:
        total = sum(client.gather(client.map(fetch, range({count}))))
        {end}
"""


def program(
    directory: Path,
    *,
    threads: int = 1,
    count: int = 12,
    seconds: float = 0.15,
    end: str = "print(total)",
    client: str = CLIENT,
) -> None:
    client = client.format(threads=threads)
    text = PROGRAM.format(client=client, count=count, seconds=seconds, end=end)
    (directory / "program.py").write_text(text)


def tried(
    *arguments: str, cwd: Path, code: int = 0
) -> tuple[list[dict[str, Any]], subprocess.CompletedProcess[str]]:
    document, done = document_of("try", *arguments, cwd=cwd, code=code)
    return document["tried"], done


def test_the_gain_of_what_a_finding_says(tmp_path: Path) -> None:
    program(tmp_path, count=20)
    arguments = ("--stack-frequency", "50", "-d", "kept", "program.py")
    (trial,), done = tried(*arguments, cwd=tmp_path)

    assert (trial["rule"], trial["change"]) == ("blocked-tasks", {"threads_per_worker": 10})
    assert (trial["verdict"], trial["results"]["kind"]) == ("gained", "equal")
    # Twenty tasks of 150 ms, one by one and ten in parallel: 3 s and 0.3 s. A busy host delays each
    # of the tasks that run one by one, so that the gain can be larger.
    gain = trial["gain"]
    assert trial["promised"] == pytest.approx(2.7, rel=0.3)
    assert gain["seconds"] >= 0.7 * trial["promised"]
    assert gain["low"] < gain["seconds"] < min(gain["high"], gain["before"])
    sides = [run["changed"] for run in trial["runs"]]
    assert sides.count(True) == sides.count(False) == gain["pairs"] >= 3
    # The compared runs can be analysed; the first run is not among them.
    traces = tmp_path / "kept" / "program"
    counts = {"changed": gain["pairs"], "as-it-is": gain["pairs"], "first": 1}
    assert {name: len(list((traces / name).iterdir())) for name in counts} == counts
    compared = dasfprof.compare(traces / "as-it-is", traces / "changed")
    assert compared.verdict.kind == "faster"
    assert "run 1, unchanged: " in done.stderr
    for place in range(gain["pairs"]):
        turn = f"(turn {place + 1} of at most 9), "
        assert f"{turn}unchanged: " in done.stderr
        assert f"{turn}with threads_per_worker=10: " in done.stderr


def test_no_gain_is_claimed_where_there_is_none(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Four tasks run on four threads. The program also writes a file and listens on a port."""
    port = "scheduler_port=28786, dashboard_address=None)"
    client = CLIENT.replace("dashboard_address=None)", port)
    end = "print(total); open('out.txt', 'a').write('x')"
    program(tmp_path, threads=4, count=4, seconds=1.5, client=client, end=end)
    changes = ("--change", "threads_per_worker=8", "--change", "array.chunk-size=8MiB")
    (trial,), _ = tried(*changes, "program.py", cwd=tmp_path)

    # On a busy machine, the runs may vary too much for a verdict.
    unclear = set() if request.config.getoption("--long") else {"cannot tell"}
    assert trial["verdict"] in {"nothing", *unclear}
    notes = " ".join(trial["notes"])
    assert "The number of tasks did not change (4). The program probably sets its chunks" in notes
    runs = len(trial["runs"]) + 1
    assert (tmp_path / "out.txt").read_text() == "x" * runs
    assert f"out.txt. The program ran {runs} times" in notes


def test_programs_that_fail(tmp_path: Path) -> None:
    for end, words in (
        ("raise ValueError('no such file')", r"fails without a change .exit code 1.*no such file"),
        ("print(total, flush=True); __import__('os')._exit(0)", "ended its own process"),
    ):
        program(tmp_path, count=1, end=end)
        done = shell("dasfprof", "try", "program.py", cwd=tmp_path)
        assert done.returncode == 1
        assert re.search(words, done.stderr, re.DOTALL), done.stderr

    marker = f"3600.{os.getpid()}"
    behind = f"__import__('subprocess').Popen(['sleep', '{marker}'])"
    fails = "sys.exit(3 if sum(client.nthreads().values()) > 1 else 0)"
    program(tmp_path, count=1, end=f"{behind}; {fails}")
    change = ("--change", "threads_per_worker=2", "program.py")
    (trial,), _ = tried(*change, cwd=tmp_path, code=1)
    assert trial["verdict"] == "no result"
    assert "With threads_per_worker=2 the program fails (exit code 3)" in trial["obstacle"]
    commands = [process.info["cmdline"] for process in psutil.process_iter(["cmdline"])]
    assert ["sleep", marker] not in commands, "each run ends what it left running"

    program(tmp_path, count=1, end="open('made', 'x').close()")
    (trial,), _ = tried(*change, cwd=tmp_path, code=1)
    assert "without a change failed (exit code 1), but had not failed" in trial["obstacle"]
    assert "Its last output: FileExistsError" in trial["obstacle"]


@pytest.mark.parametrize(
    ("end", "limit", "words"),
    [
        ("time.sleep(3600)", "10s", "did not end within 10 s and was stopped"),
        pytest.param(
            "__import__('threading').Thread(target=time.sleep, args=[3600]).start()",
            "25s",
            "but its process was still running at the time limit of 25 s and was stopped",
            marks=pytest.mark.slow,
        ),
    ],
    ids=["program", "thread"],
)
def test_a_program_that_never_ends(end: str, limit: str, words: str, tmp_path: Path) -> None:
    program(tmp_path, end=f"print(total); {end}")
    done = shell("dasfprof", "try", "--time-limit", limit, "program.py", cwd=tmp_path)

    assert done.returncode == 1
    assert words in done.stderr


def test_changes_that_never_reach_a_cluster(tmp_path: Path) -> None:
    with LocalCluster(n_workers=1, processes=False, dashboard_address=None, protocol="tcp") as here:
        program(tmp_path, count=1, client=f"Client({here.scheduler_address!r})")
        arguments = ("--change", "threads_per_worker=6", "program.py")
        (trial,), _ = tried(*arguments, cwd=tmp_path, code=1)
    assert trial["verdict"] == "no result"
    assert trial["obstacle"].startswith("The change had no effect: the program creates no")

    client = f"__import__('os').environ.update(OMP_NUM_THREADS='4') or {CLIENT}"
    program(tmp_path, count=1, client=client)
    arguments = ("--change", "OMP_NUM_THREADS=1", "program.py")
    (trial,), _ = tried(*arguments, cwd=tmp_path, code=1)
    assert "had no effect: the program sets OMP_NUM_THREADS" in trial["obstacle"]


def test_the_environment_and_the_config_reach_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = "(__import__('os').environ['MY_THREADS'], dask.config.get('my.size'))"
    (tmp_path / "program.py").write_text(
        "import dask, os\n"
        "from distributed import Client\n"
        "def ask(_):\n"
        f"    return {told}\n"
        "os.environ.setdefault('MY_THREADS', '0')\n"
        "dask.config.update_defaults({'my': {'size': 1}})\n"
        "if __name__ == '__main__':\n"
        "    with Client(n_workers=1, threads_per_worker=1, dashboard_address=None) as client:\n"
        "        print(client.submit(ask, 0).result())\n"
    )
    monkeypatch.chdir(tmp_path)
    settings = Settings.of(dict(map(read_change, ("MY_THREADS=7", "my.size=3"))))
    script = Program("program", ("program.py",))
    done = run_program(script, settings, tmp_path / "work", tmp_path / "traces", 120.0)

    assert (done.printed, done.missed_config) == ("('7', 3)\n", [])


def test_nothing_to_try(tmp_path: Path) -> None:
    program(tmp_path, threads=4, count=4, seconds=0.3)
    done = shell("dasfprof", "try", "program.py", cwd=tmp_path)

    assert done.returncode == 0
    assert "setting that can be tested" in done.stdout or "nothing to test" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--change", "threads=2", "program.py"), "there is no setting 'threads'. Pass one of"),
        (("--time-limit", "soon", "program.py"), "--time-limit"),
        (("no.py",), "no.py"),
        (("--parameter", "rows", "program.py"), "not a parameter of a program"),
    ],
)
def test_wrong_usage(
    arguments: tuple[str, ...], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path)
    monkeypatch.chdir(tmp_path)
    done = invoke("try", *arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert words in " ".join(done.stderr.replace("│", "").split())


def fetches(client: Client) -> Any:
    return client.gather(client.map(abs, range(12)))


def waits_beside_another(client: Client) -> int:
    """End if tasks run one by one, and wait forever if there are two threads."""
    time.sleep(0.2 if sum(client.nthreads().values()) == 1 else 3600)
    return client.submit(int, "3").result()


ONE_THREAD = {"n_workers": 1, "threads_per_worker": 1, "processes": False}


def test_a_function_that_never_ends_with_the_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs_module, "_PATIENCE_SECONDS", 5.0)
    trial = dasfprof.try_(waits_beside_another, {"threads_per_worker": 2}, cluster=ONE_THREAD)

    assert trial.kind == "no result"
    assert trial.obstacle.startswith("With threads_per_worker=2 the program did not end in time")


def test_time_that_is_up_after_the_first_run(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = runs_module.ProgramRuns.begin

    def begin_late(runs: runs_module.ProgramRuns) -> Done:
        done = begin(runs)
        runs._deadline = 0.0
        return done

    monkeypatch.setattr(runs_module.ProgramRuns, "begin", begin_late)
    trial = dasfprof.try_(fetches, {"threads_per_worker": 6}, cluster=ONE_THREAD)

    assert trial.kind == "no result"
    assert trial.obstacle.startswith("The time limit was reached without a result")


def test_a_function_that_raises() -> None:
    def fails(client: Client) -> None:
        raise ValueError("no such file")

    with pytest.raises(TrialError, match=r"fails without a change.*no such file"):
        dasfprof.try_(fails, {"n_workers": 1}, cluster=ONE_THREAD)
