"""`dasfprof stuck`: the planted cause comes first, and healthy clusters have no cause."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import hung_programs as hung
import planted_faults as faults
import pytest
from clusters import is_written, new_client, wait_until
from distributed import Client, Nanny, Scheduler, SpecCluster
from shell import BIN, environment, invoke, shell

import dasfprof
from dasfprof.handles.inspection import look_at

pytestmark = pytest.mark.whole_program

#: Time limit (s) per process, for a busy machine.
LIMIT = 12.0
#: By the function of a task: kind of the first cause that names it, and its text.
PLANTED = {
    hung.wait_for_event: ("signal-wait", "Event 'never-set'", "it has not been set"),
    hung.read_queue: ("signal-wait", "Queue (get) 'nobody-fills'", "0 items in it"),
    faults.puts_into_queue: ("signal-wait", "Queue (put) 'never-read'", "1 item in it"),
    hung.read_variable: ("signal-wait", "Variable 'nobody-sets'", "it has not been set"),
    hung.wait_for_lock: ("lock-wait", "Lock 'held-forever'", "held by"),
    hung.wait_for_semaphore: ("lock-wait", "Semaphore 'one-lease'", "held by"),
    faults.wants_multi_lock: ("lock-wait", "MultiLock"),
    hung.lock_of_process: ("sleeping", "sleeps", "lock_of_process"),
    hung.silent_socket: ("sleeping", "sleeps", "silent_socket"),
    faults.runs_subprocess: ("sleeping", "sleeps", "runs_subprocess"),
    hung.sleep_long: ("sleeping", "sleeps", "sleep_long"),
    faults.pauses_without_gil: ("sleeping", "sleeps", "pauses_without_gil"),
    faults.awaits: ("sleeping", "sleeps", "awaits"),
    faults.loops: ("running", "runs", "loops"),
}
#: The same for functions whose task is the only one of a worker that does not answer.
SILENT = {
    hung.hold_gil: ("likely", "all its threads sleep"),
    faults.computes_with_gil: ("likely", "one thread computes and no other runs"),
    faults.is_frozen: ("certain", "its process is stopped (SIGSTOP"),
}


def key_of(function: Any, number: int = 0) -> str:
    return f"{function.__name__}-{number}"


def plant(client: Client, function: Any, *args: Any, number: int = 0, **options: Any) -> Any:
    return client.submit(function, *args, key=key_of(function, number), pure=False, **options)


HOLDERS = (hung.hold_lock, faults.holds_semaphore, faults.holds_multi_lock)
#: Seconds without a heartbeat after which a worker that does not answer is a likely cause.
SILENCE = 11.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[SpecCluster]:
    """Start a cluster with all faults that can be combined."""
    threads = {"many": 20, "crossed": 2, "gil": 1, "busy": 1, "frozen": 1}
    workers = {
        name: {"cls": Nanny, "options": {"nthreads": number, "memory_limit": 0}}
        for name, number in threads.items()
    }
    scheduler = {"cls": Scheduler, "options": {"dashboard": False, "host": "127.0.0.1"}}
    with (
        # Nannies close workers that hang, late on a busy machine.
        contextlib.suppress(TimeoutError),
        SpecCluster(workers=workers, scheduler=scheduler) as cluster,
        Client(cluster) as client,
    ):
        client.wait_for_workers(len(workers), timeout=240)
        futures = plant_faults(client, cluster)
        yield cluster
        del futures


def plant_faults(client: Client, cluster: SpecCluster) -> list[Any]:
    """Plant all faults, and wait until they have an effect."""
    states = {state.name: state for state in cluster.scheduler.workers.values()}
    extensions = cluster.scheduler.extensions
    futures = [plant(client, function, workers="many") for function in HOLDERS]
    wait_until(lambda: sum(map(bool, extensions["semaphores"].leases.values())) == 2)
    wait_until(lambda: extensions["multi_locks"].locks)
    futures += [plant(client, function, workers="many") for function in PLANTED]
    futures += [
        plant(client, faults.takes_both, *names, workers="crossed", number=number)
        for number, names in enumerate([("a", "b"), ("b", "a")])
    ]
    wait_until(lambda: len(states["many"].executing) == len(PLANTED) + len(HOLDERS))
    silent = ("gil", "busy", "frozen")
    futures += [
        plant(client, function, workers=worker)
        for function, worker in zip(SILENT, silent, strict=True)
    ]
    wait_until(lambda: states["frozen"].executing)
    os.kill(states["frozen"].pid, signal.SIGSTOP)
    wait_until(lambda: time.time() - max(states[name].last_seen for name in silent) > SILENCE)
    return futures


@pytest.fixture(scope="module")
def document(cluster: SpecCluster, tmp_path_factory: pytest.TempPathFactory) -> Any:
    done = shell(
        *("dasfprof", "stuck", cluster.scheduler_address, "--json", "--limit", LIMIT),
        cwd=tmp_path_factory.mktemp("stuck"),
    )
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def first_cause(document: Any, function: Any, number: int = 0) -> Any:
    key = key_of(function, number)
    return next(cause for cause in document["causes"] if key in cause["keys"])


@pytest.mark.parametrize("function", PLANTED, ids=lambda function: function.__name__)
def test_the_planted_cause_is_named_first(document: Any, function: Any) -> None:
    kind, *words = PLANTED[function]
    cause = first_cause(document, function)
    assert (cause["kind"], cause["certainty"]) == (kind, "possible")
    for word in words:
        assert word in cause["text"]
    assert cause["line"].startswith(function.__code__.co_filename)
    assert cause["line"].endswith(f" {function.__name__}")
    assert cause["suggestion"] and cause["evidence"]
    assert 1 < cause["seconds"] < 600


@pytest.mark.parametrize("function", SILENT, ids=lambda function: function.__name__)
def test_a_worker_that_does_not_answer(document: Any, function: Any) -> None:
    certainty, words = SILENT[function]
    cause = first_cause(document, function)
    assert (cause["kind"], cause["certainty"], cause["waiting"]) == ("worker-silent", certainty, 1)
    assert words in cause["text"]
    assert cause["seconds"] > SILENCE


def test_crossed_locks_are_the_cycle(document: Any) -> None:
    cause = first_cause(document, faults.takes_both)
    assert cause["kind"] == "lock-cycle"
    assert cause["certainty"] == ("certain" if sys.version_info >= (3, 13) else "likely")
    assert set(cause["keys"]) == {key_of(faults.takes_both, 0), key_of(faults.takes_both, 1)}
    holds = "holds" if cause["certainty"] == "certain" else "may hold"
    for words in ("a and waits for Lock b", "b and waits for Lock a"):
        assert f"{holds} {words}" in cause["evidence"]

    # Causes are sorted by the number of waiting tasks.
    ranks = [(cause["certainty"] == "possible", -cause["waiting"]) for cause in document["causes"]]
    assert ranks == sorted(ranks)


def test_nothing_is_left_behind(cluster: SpecCluster) -> None:
    """The inspection does not register a client, task or plugin, or import modules on workers."""
    scheduler = cluster.scheduler
    before = [*scheduler.clients], [*scheduler.tasks], [*scheduler.plugins]
    asyncio.run(look_at(cluster.scheduler_address, limit=3.0))
    assert ([*scheduler.clients], [*scheduler.tasks], [*scheduler.plugins]) == before
    with Client(cluster) as client:
        many = next(w.address for w in scheduler.workers.values() if w.name == "many")
        (loaded,) = client.run(faults.loaded_modules, workers=[many]).values()
    assert loaded == []


def test_what_is_printed(cluster: SpecCluster, tmp_path: Path) -> None:
    done = shell(*("dasfprof", "stuck", cluster.scheduler_address, "--limit", LIMIT), cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"{cluster.scheduler_address}\n")
    text = " ".join(done.stdout.split())
    assert "5 workers with 25 threads, 3 of which do not answer" in text
    assert "wait for each other's locks, so none of them can continue." in text
    assert f"waits in Event never-set at {hung.__file__}" in text


def in_process(**options: Any) -> contextlib.AbstractContextManager[Client]:
    settings = {"n_workers": 1, "threads_per_worker": 1, "protocol": "tcp", **options}
    return new_client(processes=False, **settings)


def causes_of(client: Client) -> list[dict[str, Any]]:
    return dasfprof.stuck(client, limit=LIMIT).to_dict("records")


def test_parents_that_hold_all_threads() -> None:
    with new_client(n_workers=1, threads_per_worker=2) as client:
        parents = [plant(client, hung.parent, n, number=n) for n in range(2)]
        tasks = client.cluster.scheduler.tasks
        wait_until(lambda: len(tasks) == 8)
        # Waits of less than some seconds are not reported.
        first = wait_until(lambda: causes_of(client))[0]
        del parents
    assert (first["Kind"], first["Certainty"]) == ("threads-held-by-parents", "likely")
    assert first["Waiting Tasks"] == 8
    assert "occupy all 2 threads of the cluster" in first["Cause"]
    assert "worker_client()" in first["Suggestion"]
    assert first["Line"].endswith(" parent")


def test_restrictions_that_no_worker_meets() -> None:
    async def ask(address: str) -> Any:
        async with Client(address, asynchronous=True) as other:
            return await dasfprof.stuck(other, limit=LIMIT)

    with in_process() as client:
        futures = [
            plant(client, len, "", number=0, resources={"GPU": 2}),
            plant(client, abs, 1, number=0, workers="tcp://10.1.2.3:4", allow_other_workers=False),
            plant(client, int, "1", number=0, workers="no-such-host", allow_other_workers=False),
        ]
        wait_until(lambda: len(client.cluster.scheduler.unrunnable) == 3)
        found = {cause["Function"]: cause for cause in causes_of(client)}
        awaited = asyncio.run(ask(client.cluster.scheduler_address))
        del futures
    assert found.keys() == set(awaited["Function"])
    assert {cause["Certainty"] for cause in found.values()} == {"certain"}
    assert "no worker has GPU=2, and the maximum is 0" in found["len"]["Cause"]
    assert "no worker tcp://10.1.2.3:4" in found["abs"]["Cause"]
    assert "no worker on no-such-host" in found["int"]["Cause"]


def test_all_workers_are_paused() -> None:
    memory = {"pause": 0.01, "target": False, "spill": False, "terminate": False}
    settings = {f"distributed.worker.memory.{name}": value for name, value in memory.items()}
    with dask.config.set(settings), in_process(memory_limit="100 MB") as client:
        workers = client.cluster.scheduler.workers
        wait_until(lambda: all(worker.status.name == "paused" for worker in workers.values()))
        future = plant(client, len, "")
        wait_until(lambda: client.cluster.scheduler.unrunnable)
        first = causes_of(client)[0]
        del future
    assert (first["Kind"], first["Certainty"]) == ("all-paused", "certain")
    assert first["Waiting Tasks"] == 1
    assert "of 100 MB" in first["Evidence"]


def test_the_scheduler_waits_for_a_task_that_its_worker_does_not_know() -> None:
    with in_process() as client:
        running, waiting = plant(client, faults.waits_for_release), plant(client, len, "")
        (worker,) = client.cluster.workers.values()
        wait_until(lambda: worker.state.tasks.get("len-0") and worker.state.ready)
        client.run(faults.forget, "len-0")
        wait_until(lambda: "len-0" not in worker.state.tasks)
        first = causes_of(client)[0]
        faults.RELEASE.set()
        del running, waiting
    assert (first["Kind"], first["Certainty"]) == ("views-differ", "likely")
    assert first["Waiting Tasks"] == 1
    assert "On the scheduler, len-0 has the state processing" in first["Evidence"]


def test_an_error_and_what_never_ran() -> None:
    with in_process() as client:
        failed = plant(client, hung.fail, 3)
        after = [plant(client, hung.sleep_long, failed, number=number) for number in range(3)]
        wait_until(lambda: all(future.status == "error" for future in after))
        first = causes_of(client)[0]
    assert (first["Kind"], first["Function"]) == ("error", "fail")
    assert "3 tasks that depend on it never ran" in first["Cause"]
    assert "no 3" in first["Evidence"]


def test_healthy_clusters_are_not_accused() -> None:
    with new_client(n_workers=2, threads_per_worker=2) as client:
        assert causes_of(client) == []
        futures = [plant(client, faults.honest, 20.0, number=n) for n in range(2)]
        futures += [plant(client, faults.honest_lock, 3.0, number=n) for n in range(6)]
        futures += client.map(faults.honest, [0.01] * 500, pure=False)
        looks = 0
        while not all(future.done() for future in futures):
            assert [cause for cause in causes_of(client) if cause["Certainty"] != "possible"] == []
            looks += 1
        assert looks > 0
        # The finding about this program some seconds later: it holds its results.
        others = [cause for cause in causes_of(client) if cause["Kind"] != "client-elsewhere"]
        assert others == []


def test_an_idle_cluster_at_the_configured_address(tmp_path: Path) -> None:
    command = ("dasfprof", "stuck", "--limit", LIMIT)
    with in_process() as client:
        address = client.scheduler.address
        done = shell(*command, cwd=tmp_path, DASK_SCHEDULER_ADDRESS=address)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[0] == address
    assert "There are no unfinished tasks" in done.stdout


def test_watch_looks_again_until_ctrl_c(tmp_path: Path) -> None:
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    options |= {"cwd": tmp_path, "env": environment()}
    command = [BIN / "dasfprof", "stuck", "--watch", "--json"]
    with (
        in_process() as client,
        subprocess.Popen([*command, client.scheduler.address], **options) as process,
    ):
        documents = [json.loads(process.stdout.readline()) for _ in range(2)]
        process.send_signal(signal.SIGINT)
        assert process.wait(240) == 0
        assert process.stderr.read() == ""
    assert documents[1]["state"]["time"] - documents[0]["state"]["time"] >= 2


@pytest.mark.parametrize(
    ("address", "words"),
    [
        (["127.0.0.1:1"], "nothing listens at tcp://127.0.0.1:1"),
        (["carrier-pigeon://127.0.0.1:1"], "carrier-pigeon"),
        (["tcp://127.0.0.1"], "has no port"),
        (["no-such-host.invalid:8786"], "nothing listens at tcp://no-such-host.invalid:8786"),
        ([], "Pass the scheduler's address"),
    ],
)
def test_a_bad_address(address: list[str], words: str) -> None:
    done = invoke("stuck", *address)
    assert (done.exit_code, done.stdout) == (2, "")
    assert words in " ".join(done.stderr.split())


def test_a_stopped_scheduler_is_the_finding(tmp_path: Path) -> None:
    scheduler = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--no-dashboard"]
    with subprocess.Popen(
        [*scheduler, "--port", "0", "--scheduler-file", "s.json", "--host", "127.0.0.1"],
        stderr=subprocess.DEVNULL,
        cwd=tmp_path,
    ) as process:
        wait_until(lambda: is_written(tmp_path / "s.json"))
        os.kill(process.pid, signal.SIGSTOP)
        done = shell("dasfprof", "stuck", "s.json", "--json", cwd=tmp_path)
        process.kill()
    assert (done.returncode, done.stderr) == (0, "")
    (cause,) = json.loads(done.stdout)["causes"]
    assert (cause["kind"], cause["certainty"]) == ("scheduler-silent", "certain")
    assert "its process is stopped (SIGSTOP" in cause["text"]


def test_a_silent_scheduler_of_which_nothing_is_known_is_not_certain(tmp_path: Path) -> None:
    listens = (
        "import socket, sys; server = socket.create_server(('127.0.0.1', 0)); "
        "print(server.getsockname()[1], flush=True); sys.stdin.read()"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", listens], **pipes) as process:
        port = process.stdout.readline().strip()
        address = f"tcp://127.0.0.1:{port}"
        done = shell("dasfprof", "stuck", address, "--json", cwd=tmp_path)
        process.stdin.close()
    (cause,) = json.loads(done.stdout)["causes"]
    assert (cause["kind"], cause["certainty"]) == ("scheduler-silent", "likely")
    assert "Make sure that the address is the scheduler's" in cause["suggestion"]
