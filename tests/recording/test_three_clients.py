"""Three clients at once on a cluster of Dask's commands: a healthy one, and two whose tasks fail.

Expected is what the scripts did. What a client records is its own work: no text of the others is in
its files. What the scheduler's preload records, one client's part of it names the same.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from dask_processes import Processes

from dasfprof import TraceAnalyser, open_run

pytestmark = [pytest.mark.dask_internals, pytest.mark.whole_program]

SCRIPT = """
import os, sys, time
from pathlib import Path
from distributed import Client, wait
import dasfprof

NAMES = ("ann", "bob", "eve")

def healthy_of_ann(x):
    time.sleep(0.02)
    return x

def sound_of_bob(x):
    return x

def parse_of_bob(x):
    raise ValueError("text of bob")

def sound_of_eve(x):
    return x

def kill_of_eve(x):
    os.kill(os.getpid(), 9)

def meet(place, name, what):
    (place / f"{name}.{what}").touch()
    while not all((place / f"{each}.{what}").exists() for each in NAMES):
        time.sleep(0.05)

def main(name, address, place):
    with Client(scheduler_file=address, name=name, timeout=120) as client:
        run = dasfprof.register_default_profiler(client, directory=place / name)
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
        print(*(future.status for future in futures), flush=True)
        meet(place, name, "done")
        run.stop()

main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
"""
#: The functions of each client.
FUNCTIONS = {
    "ann": {"healthy_of_ann"},
    "bob": {"sound_of_bob", "parse_of_bob"},
    "eve": {"sound_of_eve", "kill_of_eve"},
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run the three; ``preload`` has what the scheduler's preload recorded."""
    place = tmp_path_factory.mktemp("three")
    (place / "script.py").write_text(SCRIPT)
    processes = Processes(place)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES", "0")
        patch.setenv("DASK_DASFPROF__DIRECTORY", str(place / "preload"))
        try:
            scheduler = processes.scheduler("--preload", "dasfprof.preload")
            for _ in range(2):
                processes.worker(nanny=True)
            address = str(processes.scheduler_file)
            clients = {
                name: processes.start("script.py", name, address, str(place)) for name in FUNCTIONS
            }
            for name, process in clients.items():
                output, _ = process.communicate(timeout=500)
                assert process.returncode == 0, name
                (place / f"{name}.statuses").write_bytes(output)
            scheduler.terminate()
            scheduler.wait(timeout=120)
        finally:
            processes.end()
    return place


def recorded(place: Path, name: str, source: str) -> TraceAnalyser:
    """Open a client's own run, or its part of the preload's."""
    if source == "own":
        return TraceAnalyser(place / name, progress=False)
    return TraceAnalyser(place / "preload", client=name, progress=False)


@pytest.mark.parametrize("source", ["own", "preload"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_client_has_its_task_runs_errors_and_deaths(name: str, source: str, place: Path) -> None:
    analyser = recorded(place, name, source)
    attempts = analyser.processed_tasks()
    assert set(attempts["Function"]) == FUNCTIONS[name]
    statuses = Counter((place / f"{name}.statuses").read_text().split())
    last = attempts.groupby("Task")["Status"].last()
    assert len(last) == statuses.total()
    assert int((last == "erred").sum()) == statuses["error"]
    errors = attempts.groupby("Function")["Error Category"].agg(lambda each: set(each.dropna()))
    assert ("ValueError" in set().union(*errors)) == (name == "bob")
    assert (name == "eve") == ("kill_of_eve" in errors and bool(errors["kill_of_eve"]))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_text_of_others_is_in_what_a_client_records(name: str, place: Path) -> None:
    texts = repr([(event.name, event.args) for event in open_run(place / name)])
    others = [other for other in FUNCTIONS if other != name]
    assert f"_of_{name}" in texts
    assert not any(f"of_{other}" in texts or f"of {other}" in texts for other in others)


@pytest.mark.parametrize("source", ["own", "preload"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_hours_add_up_with_those_of_others(name: str, source: str, place: Path) -> None:
    analyser = recorded(place, name, source)
    cost = analyser.cost("client").set_index("Client")["Worker Hours"]
    assert cost.sum() == pytest.approx(analyser.cost("worker")["Worker Hours"].sum())
    assert cost["(other clients)"] > 0
    assert "(no client)" not in cost
    assert set(cost.index) - {"(other clients)", "(waiting)", "(idle)"} == {name}


def test_the_first_finding_of_the_healthy_client_is_no_error_of_others(place: Path) -> None:
    findings = recorded(place, "ann", "own").diagnose()
    texts = " ".join(findings["Finding"] + findings["Evidence"])
    assert "failed-tasks" not in set(findings["Rule"])
    assert "of_bob" not in texts and "of_eve" not in texts


def test_each_client_has_its_part_of_the_preloads_hours(place: Path) -> None:
    analyser = TraceAnalyser(place / "preload", progress=False)
    names = set(analyser.cost("client")["Client"])
    assert names - {"(waiting)", "(idle)"} == set(FUNCTIONS)
    assert {"Client"} <= set(analyser.processed_tasks().columns)
