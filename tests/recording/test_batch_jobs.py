"""Jobs of batch systems: their ids are in the trace, and recording goes into and out of them."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from clusters import wait_until
from dask_processes import PATHS, Processes
from distributed import Client
from slurm import is_there, slurm

import dasfprof
from dasfprof import TraceAnalyser
from dasfprof.analysis.run.worker_exits import departure
from dasfprof.cli.main import cli
from dasfprof.recording.probes.process import job_of_process


def slow(number: int, seconds: float = 0.1) -> int:
    time.sleep(seconds)
    return number


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    started = Processes(tmp_path)
    yield started
    started.end()


# --- the id of a job -----------------------------------------------------------------------------


def test_a_pod_is_named_by_its_host_name() -> None:
    pod = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "HOSTNAME": "dask-worker-7"}
    assert job_of_process(pod) == {"POD_NAME": "dask-worker-7"}
    assert job_of_process({**pod, "POD_NAME": "own"}) == {"POD_NAME": "own"}
    assert job_of_process({"HOSTNAME": "login1"}) == {}


def test_what_systems_set_in_jobs_without_an_array_tells_nothing() -> None:
    assert job_of_process({"JOB_ID": "17", "SGE_TASK_ID": "undefined"}) == {"JOB_ID": "17"}
    assert job_of_process({"LSB_JOBID": "17", "LSB_JOBINDEX": "0"}) == {"LSB_JOBID": "17"}
    assert job_of_process({"SLURM_JOB_ID": ""}) == {}


#: What each worker has in its environment beyond the others.
JOBS = (
    {"SLURM_JOB_ID": "4712", "SLURM_ARRAY_JOB_ID": "4711", "SLURM_ARRAY_TASK_ID": "3"},
    {"PBS_JOBID": "88.head", "OAR_JOB_ID": ""},
    {},
)
SECRETS = {"AWS_SECRET_ACCESS_KEY": "do-not-keep-1", "COILED_AUTH_TOKEN": "do-not-keep-2"}


@pytest.mark.whole_program
def test_each_process_tells_its_job_and_nothing_else_of_its_environment(
    processes: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    processes.scheduler()
    for job in JOBS:
        with monkeypatch.context() as own:
            for name, value in job.items():
                own.setenv(name, value)
            processes.worker(nanny=job == JOBS[0])
    traces = tmp_path / "traces"
    monkeypatch.setenv("SLURM_JOB_ID", "4700")  # of the client
    with processes.client() as client:
        client.wait_for_workers(3)
        run = dasfprof.register_default_profiler(client, directory=traces)
        assert client.gather(client.map(slow, range(6))) == list(range(6))
        run.stop()
    lives = TraceAnalyser(traces, progress=False)
    told = {frozenset(job.items()) for job in lives.trace.workers["job"] if job is not None}
    expected = [{name: value for name, value in job.items() if value} for job in JOBS]
    assert told == {frozenset(job.items()) for job in expected if job}
    table = lives.workers()
    assert sorted(table["Job"]) == [
        "",
        "PBS_JOBID 88.head",
        "SLURM_JOB_ID 4712, SLURM_ARRAY_JOB_ID 4711, SLURM_ARRAY_TASK_ID 3",
    ]
    assert table["Task Runs"].sum() == 6
    shown = " ".join(CliRunner().invoke(cli, ["info", str(traces)]).output.split())
    assert "job PBS_JOBID 88.head: 1 worker" in shown
    assert "job SLURM_JOB_ID 4700: client" in shown
    whole = b"".join(path.read_bytes() for path in traces.iterdir())
    assert b"88.head" in whole
    assert b"do-not-keep" not in whole


# --- dask-jobqueue -------------------------------------------------------------------------------

#: Lines that make the workers of any of its clusters record by themselves.
RECORDING: dict[str, Any] = {
    "worker_extra_args": ["--preload", "dasfprof.preload"],
    "job_script_prologue": ["export DASK_DASFPROF__DIRECTORY=/scratch/traces"],
}
OPTIONS: dict[str, Any] = {
    **{"cores": 1, "processes": 1, "memory": "1GB"},
    "scheduler_options": {"dashboard_address": None},
}


@pytest.mark.parametrize("system", ["SLURM", "PBS", "LSF", "SGE", "OAR", "Moab", "HTCondor"])
@pytest.mark.filterwarnings("ignore:OAR Job memory")
def test_job_scripts_turn_recording_on(system: str) -> None:
    jobqueue = pytest.importorskip("dask_jobqueue")
    more = {"disk": "1GB"} if system == "HTCondor" else {}
    with getattr(jobqueue, f"{system}Cluster")(**OPTIONS, **RECORDING, **more) as cluster:
        script = cluster.job_script()
    directory, worker = (script.index(part) for part in ("export DASK_DASF", "dask_worker"))
    assert directory < worker < script.index("--preload dasfprof.preload")


@pytest.mark.whole_program
def test_a_local_cluster_of_jobqueue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    local = pytest.importorskip("dask_jobqueue.local")
    monkeypatch.setenv("PYTHONPATH", PATHS)
    monkeypatch.setenv("JOB_ID", "17")
    traces = tmp_path / "traces"
    with local.LocalCluster(**OPTIONS) as cluster, Client(cluster) as client:
        run = dasfprof.register_default_profiler(client, directory=traces)
        cluster.scale(jobs=2)  # they join after recording began
        client.wait_for_workers(2, timeout=300)
        assert client.gather(client.map(slow, range(20))) == list(range(20))
        run.stop()
    table = TraceAnalyser(traces, progress=False).workers()
    assert table["Job"].tolist() == ["JOB_ID 17"] * 2
    assert table["Task Runs"].sum() == 20


# --- a real Slurm --------------------------------------------------------------------------------

with_slurm = [
    pytest.mark.whole_program,
    pytest.mark.skipif(not is_there(), reason="needs root and Debian's slurm-wlm and munge"),
]


@pytest.fixture(scope="module")
def batch_system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with slurm(tmp_path_factory.mktemp("slurm")) as environment:
        yield environment


@pytest.fixture
def in_slurm(
    batch_system: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> dict[str, Any]:
    """Options of a cluster whose jobs this Slurm takes."""
    pytest.importorskip("dask_jobqueue")
    for name, value in {**batch_system, "PYTHONPATH": PATHS}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)  # jobs run there, and leave their output
    return {**OPTIONS, "interface": "lo", "job_directives_skip": ["--mem"]}


@pytest.mark.usefixtures("in_slurm")
class TestSlurm:
    pytestmark = with_slurm

    def test_a_job_that_is_ended(self, in_slurm: dict[str, Any], tmp_path: Path) -> None:
        from dask_jobqueue import SLURMCluster

        traces = tmp_path / "traces"
        with SLURMCluster(**in_slurm) as cluster, Client(cluster) as client:
            run = dasfprof.register_default_profiler(client, directory=traces, flush_interval=0.2)
            cluster.scale(jobs=1)
            client.wait_for_workers(1, timeout=300)
            futures = client.map(slow, range(400))
            early = futures[:20]
            assert client.gather(early) == list(range(20))
            (job,) = (worker.job_id for worker in cluster.workers.values())
            run.flush()
            # What a walltime's end and a preemption send: SIGTERM to all processes of the job.
            subprocess.run(["scancel", job], check=True)
            wait_until(lambda: not client.nthreads(), seconds=300)
            client.cancel(futures)
            run.stop()
        analyser = TraceAnalyser(traces, progress=False)
        (row,) = analyser.workers().to_dict("records")
        assert row["Job"] == f"SLURM_JOB_ID {job}"
        assert row["Left (s)"] > row["Joined (s)"]
        assert row["Task Runs"] >= 20
        (life,) = analyser.trace.workers.query("kind == 'worker'").index
        assert f"its job was SLURM_JOB_ID {job}: " in departure(analyser.trace, life).evidence
