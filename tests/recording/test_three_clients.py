"""Three clients at once on a cluster of Dask's commands: a healthy one, and two whose tasks fail.

All connections are encrypted, and each process of the cluster has a separate disk. The expected
values are what the scripts did and printed. A client records only its own work, and its files
contain no texts of other clients. Its part of the preload's run has the same task runs.
"""

from pathlib import Path

import pytest
from dask_processes import Processes, may_mount, tls_variables

from dasfprof import FileDatabase, TraceAnalyser, open_run

pytestmark = pytest.mark.whole_program

SCRIPT = """
import os, sys, time
from pathlib import Path
from distributed import Client, wait
import dasfprof

NAMES = ("ann", "bob", "eve")

def healthy_of_ann(x): time.sleep(0.02)
def sound_of_bob(x): return x
def parse_of_bob(x): raise ValueError("text of bob")
def sound_of_eve(x): return x
def kill_of_eve(x): os.kill(os.getpid(), 9)

def meet(place, name, what):
    (place / f"{name}.{what}").touch()
    while not all((place / f"{each}.{what}").exists() for each in NAMES):
        time.sleep(0.05)

def main(name, address, place):
    with Client(scheduler_file=address, name=name, timeout=120) as client:
        assert client.scheduler.address.startswith("tls://")
        run = dasfprof.register_default_profiler(client, directory=place / "traces" / name)
        meet(place, name, "ready")
        if name == "ann":
            futures = client.map(healthy_of_ann, range(30))
        elif name == "bob":
            futures = [*client.map(sound_of_bob, range(10)), client.submit(parse_of_bob, 1)]
        else:
            futures = client.map(sound_of_eve, range(10))
            wait(futures)
            futures += [client.submit(kill_of_eve, 1)]
        wait(futures)
        for future in futures:
            error = future.exception() if future.status == "error" else None
            print(future.key, future.status, type(error).__name__, flush=True)
        client.wait_for_workers(2, timeout=120)
        meet(place, name, "done")
        run.stop()

main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
"""
FUNCTIONS = {
    "ann": {"healthy_of_ann"},
    "bob": {"sound_of_bob", "parse_of_bob"},
    "eve": {"sound_of_eve", "kill_of_eve"},
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run the three clients. The scheduler's disk has the preload's run."""
    place = tmp_path_factory.mktemp("three")
    (place / "script.py").write_text(SCRIPT)
    traces = place / "traces"
    traces.mkdir()
    if not may_mount(traces):
        pytest.skip("this user may not mount disks")

    def disk(name: str) -> dict[str, Path]:
        (place / name).mkdir()
        return {"disk": traces, "stored": place / name}

    variables = {
        "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "0",
        "DASK_DASFPROF__DIRECTORY": str(traces / "preload"),
    }
    processes = Processes(place, variables | tls_variables(place))
    try:
        preload = ("--preload", "dasfprof.preload")
        scheduler = processes.scheduler(*preload, **disk("scheduler"))
        for number in range(2):
            processes.worker(nanny=True, **disk(f"worker{number}"))
        address = str(processes.scheduler_file)
        clients = {
            name: processes.start("script.py", name, address, str(place)) for name in FUNCTIONS
        }
        for name, process in clients.items():
            output, _ = process.communicate(timeout=500)
            assert process.returncode == 0, name
            (place / f"{name}.printed").write_bytes(output)
        scheduler.terminate()
        scheduler.wait(timeout=120)
    finally:
        processes.end()
    return place


def directory_of(place: Path, name: str, source: str) -> Path:
    return place / "traces" / name if source == "own" else place / "scheduler" / "preload"


def printed(place: Path, name: str) -> dict[str, list[str]]:
    """Return status and error type of each task, as the script printed them."""
    lines = (place / f"{name}.printed").read_text().splitlines()
    return {key: outcome for key, *outcome in map(str.split, lines)}


def recorded(place: Path, name: str, source: str) -> TraceAnalyser:
    """Open a client's run, or its part of the preload's run."""
    client = None if source == "own" else name
    return TraceAnalyser(directory_of(place, name, source), client=client, progress=False)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_both_sources_have_the_task_runs_and_errors(name: str, place: Path) -> None:
    expected = printed(place, name)
    failed = {key: error for key, (status, error) in expected.items() if status == "error"}
    # A task of another client that was on the killed worker fails too.
    is_hit = "KilledWorker" in failed.values()
    assert is_hit or name != "eve"
    attempts = []
    for source in ("own", "preload"):
        analyser = recorded(place, name, source)
        table = analyser.processed_tasks()
        assert set(table["Function"]) == FUNCTIONS[name]
        last = table.groupby("Task")["Status"].last()
        assert set(last.index) == set(expected)
        assert set(last.index[last == "erred"]) == set(failed)
        errors = table.groupby("Task")["Error Category"].last()[list(failed)]
        assert errors.replace("worker lost", "KilledWorker").to_dict() == failed
        assert analyser.workers()["Ended"].str.contains("SIGKILL").sum() == 1
        assert ("killed-worker-errors" in set(analyser.diagnose()["Rule"])) == is_hit
        attempts.append({task: sorted(rows) for task, rows in table.groupby("Task")["Status"]})
    assert attempts[0] == attempts[1]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_text_of_others_is_in_what_a_client_records(name: str, place: Path) -> None:
    run = open_run(directory_of(place, name, "own"))
    texts = repr([(event.name, event.args) for event in run])
    others = [other for other in FUNCTIONS if other != name]
    assert f"_of_{name}" in texts
    assert not any(f"of_{other}" in texts or f"of {other}" in texts for other in others)
    if name == "ann":  # Its tasks are healthy.
        assert "failed-tasks" not in set(recorded(place, name, "own").diagnose()["Rule"])


def seconds_of_workers(directory: Path) -> float:
    """Return the seconds for which the workers of a run existed, according to its files' events."""
    spans: dict[str, tuple[float, float]] = {}
    left: dict[str, float] = {}
    for database in open_run(directory).databases:
        assert isinstance(database, FileDatabase)
        address = database.trace_file().read_header().get("worker", {}).get("address")
        for event in database.get_traces():
            if event.name == "Worker Removed":
                left[event.args["worker"]] = event.timestamp
            joined = event.args["worker"] if event.name == "Worker Added" else None
            if worker := address or joined:
                begin, end = spans.get(worker, (event.timestamp, event.timestamp))
                last = event.timestamp + getattr(event, "duration", 0.0)
                spans[worker] = min(begin, event.timestamp), max(end, last)
    return sum(left.get(worker, end) - begin for worker, (begin, end) in spans.items())


@pytest.mark.parametrize("source", ["own", "preload"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_hours_add_up_with_those_of_others(name: str, source: str, place: Path) -> None:
    analyser = recorded(place, name, source)
    cost = analyser.cost("client").set_index("Client")["Worker Hours"]
    assert cost.sum() == pytest.approx(analyser.cost("function")["Worker Hours"].sum())
    seconds = seconds_of_workers(directory_of(place, name, source))
    assert cost.sum() * 3600 == pytest.approx(seconds, rel=0.02)
    assert cost["(other clients)"] > 0
    assert "(no client)" not in cost
    assert set(cost.index) - {"(other clients)", "(waiting)", "(idle)"} == {name}
    analyser = TraceAnalyser(directory_of(place, "", "preload"), progress=False)
    names = set(analyser.cost("client")["Client"])
    assert names - {"(waiting)", "(idle)"} == set(FUNCTIONS)
    assert {"Client"} <= set(analyser.processed_tasks().columns)
