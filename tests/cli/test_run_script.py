"""``dasfprof run``: its effects on a script, and on the script's clusters."""

import signal
import struct
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import msgpack
import pytest
from clusters import new_client, wait_until
from distributed import LocalCluster
from shell import BIN, DEADLINE, environment, invoke, shell

from dasfprof import TraceAnalyser
from dasfprof.database.multi import find_runs
from dasfprof.database.reader import TraceFile
from dasfprof.database.runs import TraceFiles

pytestmark = pytest.mark.whole_program

FACTS = """
import sys, os
print(sys.argv, sys.path[0], __name__, __file__, __package__, __spec__ and __spec__.name)
print(sys.modules["__main__"].__dict__ is globals(), type(__loader__).__name__, __doc__)
"""
SURROUNDINGS = """
import atexit, pickle, sibling
print(sibling.value)
x: int = 1
print(__annotations__)
def f(a: int): 1
print(f.__annotations__)
atexit.register(lambda: print(__name__, sys.argv))
class C: pass
print(type(pickle.loads(pickle.dumps(C()))) is C)
os.environ['DASK_FROM__SCRIPT'] = '3'
import dask
print(dask.config.get('from.script'))
"""

SCRIPTS = {
    "surroundings": FACTS + SURROUNDINGS,
    "exit with text": "import sys; sys.exit('no input')",
    "chained error": "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise OSError from e",
    "syntax error": "print(1)\nprint(1",
    "interrupted": "raise KeyboardInterrupt",
    "hook": "import sys; sys.excepthook = lambda *a: print('mine', a[0].__name__)\n1 / 0",
}


def both(
    args: list[str], cwd: Path
) -> tuple[subprocess.CompletedProcess[str], subprocess.CompletedProcess[str]]:
    plain = shell("python", *args, cwd=cwd)
    ours = shell("dasfprof", "run", *args, cwd=cwd)
    return plain, ours


@pytest.mark.parametrize("case", SCRIPTS)
def test_a_script_runs_as_under_python(case: str, tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    (place / "my script.py").write_text(SCRIPTS[case])
    (place / "sibling.py").write_text("value = 3")
    plain, ours = both(["place/my script.py", "-a", "--head", "--", "b c"], tmp_path)
    assert (ours.stdout, ours.returncode) == (plain.stdout, plain.returncode)
    assert ours.stderr.startswith(plain.stderr)


def test_modules_packages_and_directories(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "module.py").write_text(FACTS)
    (package / "__main__.py").write_text(FACTS)
    for args in (["-m", "package.module", "-m", "x"], ["-m", "package"], [str(package), "--name"]):
        plain, ours = both(args, tmp_path)
        assert (ours.stdout, ours.returncode) == (plain.stdout, 0), args
    plain, ours = both(["-m", "package.none"], tmp_path)
    assert ours.returncode == plain.returncode == 1
    assert "No module named package.none" in ours.stderr


def test_a_script_that_computes_nothing(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("import dask; print(dask.delayed(sum)([1, 2]).key[:3])")
    done = shell("dasfprof", "run", "script.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "sum\n")
    assert "script.py computed nothing with Dask in its own" in " ".join(done.stderr.split())
    assert find_runs(tmp_path) == []


EVERY_COLLECTION = """
import dask, dask.array as da, dask.bag as db, dask.dataframe as dd, pandas as pd
if __name__ == "__main__":
    print(dask.delayed(pow)(2, 3).compute(scheduler="sync"))
    print(db.range(6, npartitions=2).map(abs).sum().compute(num_workers=2))
    print(int(da.ones((40, 40), chunks=10).sum().compute()))
    frame = dd.from_pandas(pd.DataFrame({"x": [1, 2, 3, 4]}), npartitions=2)
    print(frame.x.sum().compute(scheduler="threads"))
    try:
        dask.delayed(int)("none").compute()
    except ValueError as error:
        print(error)
"""


def test_every_collection_without_a_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All are recorded, shown and exported, and results are the same as without the profiler."""
    (tmp_path / "script.py").write_text(EVERY_COLLECTION)
    plain = shell("python", "script.py", cwd=tmp_path)
    ours = shell("dasfprof", "run", "-d", "traces", "script.py", cwd=tmp_path)
    assert (ours.returncode, ours.stdout) == (plain.returncode, plain.stdout)
    (run,) = find_runs(tmp_path / "traces")
    analyser = TraceAnalyser(str(tmp_path / "traces"))
    assert analyser.trace.surroundings.local == ("processes", "sync", "threads")
    assert analyser.trace.tasks["state"].value_counts()["erred"] == 1
    assert len(analyser.per_function_bottleneck())
    source = f"traces/{run.name}"
    monkeypatch.chdir(tmp_path)
    assert invoke("report", source, "-o", "page.html").exit_code == 0
    for form in ("perfetto", "csv", "parquet"):
        assert invoke("export", source, "--to", form, "-o", form).exit_code == 0
        assert (tmp_path / form).exists()


BUILT_BEFORE = """
import dask, dask.array as da
@dask.delayed
def load(number):
    return number
if __name__ == "__main__":
    parts = [load(number) for number in range(3)]
    total = dask.delayed(sum)(parts)
    array = da.ones(4, chunks=2) + 1
    print(total.compute(scheduler="threads"), array.sum().compute(scheduler="sync"))
"""


def test_lines_of_what_was_built_before_the_first_compute(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(BUILT_BEFORE)
    done = shell("dasfprof", "run", "-d", "traces", "script.py", cwd=tmp_path)
    assert done.stdout == "3 8.0\n"
    tasks = TraceAnalyser(str(tmp_path / "traces")).trace.tasks
    lines = {(task["function"], task["line"]) for task in tasks.to_dict("records")}
    assert {("load", "script.py:7"), ("sum", "script.py:8")} <= lines
    # Also for the array, whose creation and sum were fused.
    assert "script.py:9, 10" in tasks["line"].tolist()


#: Client that is not recorded, in scripts with various starts.
UNSEEN = """
import dask, multiprocessing
from distributed import Client
def work():
    with Client(n_workers=1, processes=False, dashboard_address=None) as client:
        print(client.submit(sum, [1, 2]).result())
if __name__ == "__main__":
"""
IN_ANOTHER_PROCESS = """
    process = multiprocessing.get_context("spawn").Process(target=work)
    process.start()
    process.join()
"""
CONFIGURED = """
    with dask.config.set({{"distributed.{}": [{}]}}):
        work()
"""


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (IN_ANOTHER_PROCESS, "Work in other processes"),
        (
            CONFIGURED.format("client.preload", ""),
            "or it replaced distributed.client.preload in Dask's config",
        ),
        # Recording is refused. The script had a client, so threads are not mentioned.
        (CONFIGURED.format("scheduler.blocked-handlers", "'run_function'"), "was not recorded"),
    ],
    ids=["another process", "no preload", "blocked"],
)
def test_a_client_that_was_not_recorded_is_not_denied(
    script: str, words: str, tmp_path: Path
) -> None:
    (tmp_path / "script.py").write_text(UNSEEN + script)
    done = shell("dasfprof", "run", "script.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "3\n")
    assert words in " ".join(done.stderr.split())
    assert words != "was not recorded" or "threaded" not in done.stderr
    assert find_runs(tmp_path) == []


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["nothing.py"], "there is no script 'nothing.py'"),
        (["--name", "a/b", "script.py"], "a path separator or a null"),
        (["--directory", "script.py", "script.py"], "is a file"),
        (["--head", "0", "script.py"], "--head"),
        (["--heads", "script.py"], "such option"),
        ([], "SCRIPT"),
    ],
)
def test_wrong_usage(
    args: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "script.py").write_text("print('ran')")
    monkeypatch.chdir(tmp_path)
    done = invoke("run", *args)
    assert (done.exit_code, done.stdout) == (2, "")
    assert message in done.stderr


def computed(run: TraceFiles) -> Counter[str]:
    """Return the number of task runs by function in a run's complete files."""
    counts: Counter[str] = Counter()
    for path in run.files:
        file = TraceFile(path)
        for batch in file.batches():
            if batch.name == "Compute":
                counts.update(batch.args["name"].to_list())
        assert file.end is not None, f"{path} was closed"
        assert (file.dropped, file.errors, bool(file.damage)) == (0, 0, False)
    return counts


CLUSTERS = """
import sys
from distributed import Client, LocalCluster, get_client

def inc(x):
    return x + 1

def with_worker_client(x):
    return get_client().submit(inc, x, pure=False).result()

def with_own_client(address):
    with Client(address, set_as_default=False) as client:
        return client.submit(inc, 1, pure=False).result()

if __name__ == "__main__":
    with LocalCluster(n_workers=1, threads_per_worker=2, dashboard_address=None) as cluster:
        with Client(cluster) as client:
            print(sum(client.gather(client.map(inc, range(20), pure=False))))
        with Client(cluster) as client, Client(cluster) as other:
            print(sum(other.gather(other.map(inc, range(10), pure=False))))
            print(client.submit(with_worker_client, 1).result())
            print(client.submit(with_own_client, cluster.scheduler_address).result())
    client = Client(processes=False, n_workers=1, dashboard_address=None)
    print(client.submit(inc, 1, pure=False).result())
    sys.exit(7)
"""


def test_each_cluster_of_a_script_is_a_run(tmp_path: Path) -> None:
    (tmp_path / "pipeline.py").write_text(CLUSTERS)
    done = shell(
        "dasfprof", "run", "--directory", "traces/new", "pipeline.py", cwd=tmp_path, COLUMNS=80
    )
    assert done.returncode == 7, done.stderr
    assert done.stdout.split() == ["210", "55", "2", "2", "2"]
    second, first = find_runs(tmp_path / "traces" / "new")
    assert first.name.startswith("pipeline-")
    assert second.name.startswith("pipeline-2-")
    assert computed(first) == {"inc": 32, "with_worker_client": 1, "with_own_client": 1}
    assert computed(second) == {"inc": 1}
    # Its report is on standard error, fits, and has no messages of Dask's preloads.
    for run in (first, second):
        source = tmp_path / "traces" / "new" / run.name
        assert f"dasfprof recorded {source}: {len(run.files)} trace files" in done.stderr
    assert done.stderr.count("Functions that took the most time, by worker") == 2
    assert "preload" not in done.stderr
    assert "Traceback" not in done.stderr


ASYNCHRONOUS = """
import asyncio
from distributed import Client, LocalCluster

async def main():
    async with LocalCluster(
        n_workers=1, processes=False, asynchronous=True, dashboard_address=None
    ) as cluster:
        async with Client(cluster, asynchronous=True) as client:
            print(sum(await client.gather(client.map(abs, range(5), pure=False))))

asyncio.run(main())
"""


def test_an_asynchronous_script_where_dasf_has_written_too(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(ASYNCHRONOUS)
    event = msgpack.packb({"name": "n", "timestamp": 1.0, "phase": "I", "args": {}})
    (tmp_path / "dasf.msgpack").write_bytes(struct.pack(">Q", len(event)) + event)
    done = shell("dasfprof", "run", "--name", "mine", "script.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "10\n"), done.stderr
    assert "dasfprof recorded" in done.stderr
    assert "neither" not in done.stderr
    run, _ = find_runs(tmp_path)
    assert run.name.startswith("mine-")
    assert computed(run) == {"abs": 5}


def test_ctrl_c_ends_the_script_and_keeps_the_record(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import time, pathlib\nfrom distributed import Client\n"
        "client = Client(processes=False, n_workers=1, dashboard_address=None)\n"
        "client.submit(abs, -1).result()\n"
        "pathlib.Path('there').touch()\ntime.sleep(600)"
    )
    command = [str(BIN / "dasfprof"), "run", "script.py"]
    options = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=tmp_path, env=environment(), **options) as process:
        wait_until((tmp_path / "there").exists)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=DEADLINE)
    assert process.returncode == -signal.SIGINT
    # Dask may have warned of a busy host before.
    assert "Traceback (most recent call last):\n  File " in stderr
    assert "dasfprof/cli" not in stderr
    (run,) = find_runs(tmp_path)
    assert computed(run) == {"abs": 1}
    assert f"dasfprof recorded {tmp_path / run.name}" in stderr


VISITOR = """
import sys
from distributed import Client
with Client(sys.argv[1]) as client:
    print(client.submit(abs, -3, pure=False).result())
"""


#: Script that connects to a cluster of another process.
VISITED: dict[str, Any] = {"n_workers": 1, "processes": False, "protocol": "tcp"}


def plugins(cluster: LocalCluster) -> list[str]:
    scheduler = cluster.scheduler
    names = [*scheduler.plugins, *scheduler.worker_plugins]
    names += [name for worker in cluster.workers.values() for name in worker.plugins]
    return [name for name in names if name.startswith("dasfprof-")]


def test_a_cluster_of_others_is_left_as_it_was(tmp_path: Path) -> None:
    """This includes a cluster that cannot be recorded."""
    spoil = "import os; os.rmdir('traces'); open('traces', 'w').close()\n"
    (tmp_path / "visitor.py").write_text(VISITOR)
    (tmp_path / "spoiler.py").write_text(spoil + VISITOR)
    with new_client(**VISITED) as client:
        address = client.cluster.scheduler_address
        done = shell("dasfprof", "run", "visitor.py", address, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (0, "3\n"), done.stderr
        assert plugins(client.cluster) == []
        (run,) = find_runs(tmp_path)
        assert computed(run) == {"abs": 1}
        args = ("--directory", "traces", "spoiler.py", address)
        done = shell("dasfprof", "run", *args, cwd=tmp_path)
        assert plugins(client.cluster) == []
    assert (done.returncode, done.stdout) == (0, "3\n")
    assert "was not recorded" in done.stderr
    assert "cannot be written" in done.stderr
    assert "Traceback" not in done.stderr
