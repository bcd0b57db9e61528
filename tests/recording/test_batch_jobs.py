"""Jobs of batch systems, dask-gateway and dask-mpi are recorded, with their ids."""

import os
import shutil
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from clusters import wait_until
from dask_processes import PATHS, Processes
from distributed import Client
from slurm import free_port, is_there, slurm

import dasfprof
from dasfprof import TraceAnalyser
from dasfprof.analysis.run.worker_exits import departure
from dasfprof.cli.main import cli
from dasfprof.recording.probes.process import job_of_process


def slow(number: int) -> int:
    time.sleep(0.1)
    return number


def test_the_job_by_the_environment() -> None:
    """Pods are identified by host name. An index without an array is left out."""
    pod = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "HOSTNAME": "dask-worker-7"}
    assert job_of_process(pod) == {"POD_NAME": "dask-worker-7"}
    assert job_of_process({**pod, "POD_NAME": "own"}) == {"POD_NAME": "own"}
    assert job_of_process({"HOSTNAME": "login1"}) == {}
    assert job_of_process({"JOB_ID": "17", "SGE_TASK_ID": "undefined"}) == {"JOB_ID": "17"}
    assert job_of_process({"LSB_JOBID": "17", "LSB_JOBINDEX": "0"}) == {"LSB_JOBID": "17"}
    assert job_of_process({"SLURM_JOB_ID": ""}) == {}


#: Environment variables that each worker has in addition.
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
    array = "SLURM_JOB_ID 4712, SLURM_ARRAY_JOB_ID 4711, SLURM_ARRAY_TASK_ID 3"
    assert sorted(table["Job"]) == ["", "PBS_JOBID 88.head", array]
    assert table["Task Runs"].sum() == 6
    shown = " ".join(CliRunner().invoke(cli, ["info", str(traces)]).output.split())
    assert "job PBS_JOBID 88.head: 1 worker" in shown
    assert "job SLURM_JOB_ID 4700: client" in shown
    whole = b"".join(path.read_bytes() for path in traces.iterdir())
    assert b"88.head" in whole
    assert b"do-not-keep" not in whole


#: Options of all clusters of dask-jobqueue.
OPTIONS: dict[str, Any] = {
    **{"cores": 1, "processes": 1, "memory": "1GB"},
    "scheduler_options": {"dashboard_address": None},
}


@pytest.mark.whole_program
def test_a_local_cluster_of_jobqueue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    local = pytest.importorskip("dask_jobqueue.local")
    monkeypatch.setenv("PYTHONPATH", PATHS)
    monkeypatch.setenv("JOB_ID", "17")
    traces = tmp_path / "traces"
    with local.LocalCluster(**OPTIONS) as cluster, Client(cluster) as client:
        run = dasfprof.register_default_profiler(client, directory=traces)
        cluster.scale(jobs=2)  # the workers join after recording started
        client.wait_for_workers(2, timeout=300)
        assert client.gather(client.map(slow, range(20))) == list(range(20))
        run.stop()
    table = TraceAnalyser(traces, progress=False).workers()
    assert table["Job"].tolist() == ["JOB_ID 17"] * 2
    assert table["Task Runs"].sum() == 20


@pytest.mark.whole_program
@pytest.mark.skipif(not is_there(), reason="needs root and Debian's slurm-wlm and munge")
def test_a_job_of_slurm_that_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jobqueue = pytest.importorskip("dask_jobqueue")
    traces = tmp_path / "traces"
    options = {**OPTIONS, "interface": "lo", "job_directives_skip": ["--mem"]}
    monkeypatch.chdir(tmp_path)  # jobs run there and write their output
    with slurm(tmp_path / "slurm") as environment:
        for name, value in {**environment, "PYTHONPATH": PATHS}.items():
            monkeypatch.setenv(name, value)
        with jobqueue.SLURMCluster(**options) as cluster, Client(cluster) as client:
            run = dasfprof.register_default_profiler(client, directory=traces, flush_interval=0.2)
            cluster.scale(jobs=1)
            client.wait_for_workers(1, timeout=300)
            futures = client.map(slow, range(400))
            assert client.gather(futures[:20]) == list(range(20))
            (job,) = (worker.job_id for worker in cluster.workers.values())
            run.flush()
            # The end of the walltime and preemption send SIGTERM to all processes of the job.
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
    assert f"its job was SLURM_JOB_ID {job}, " in departure(analyser.trace, life).evidence


#: Configuration of dask-gateway's server. Dask no longer has a command dask-scheduler.
GATEWAY = """
c.DaskGateway.backend_class = "dask_gateway_server.backends.local.UnsafeLocalBackend"
c.DaskGateway.address = "127.0.0.1:{api}"
c.Proxy.address = "127.0.0.1:{web}"
c.Proxy.tcp_address = "127.0.0.1:{tcp}"
c.UnsafeLocalBackend.clusters_directory = "{place}/clusters"
c.ClusterConfig.scheduler_cmd = ["{dask}", "scheduler", "--preload", "dasfprof.preload"]
c.ClusterConfig.worker_cmd = ["{dask}", "worker"]
c.ClusterConfig.environment = {{"DASK_DASFPROF__DIRECTORY": "{place}/by-preload"}}
"""


def answers(gateway: Any) -> bool:
    try:
        gateway.list_clusters()
    except Exception:  # exceptions of its proxy and its HTTP library
        return False
    return True


@contextmanager
def gateway(place: Path) -> Iterator[Any]:
    pytest.importorskip("dask_gateway_server.backends.local")
    client = pytest.importorskip("dask_gateway")
    api, web, tcp = (free_port() for _ in range(3))
    dask = Path(sys.executable).with_name("dask")
    config = GATEWAY.format(api=api, web=web, tcp=tcp, place=place, dask=dask)
    (place / "gateway.py").write_text(config)
    command = [sys.executable, "-m", "dask_gateway_server", "--config", "gateway.py"]
    web, tcp = f"http://127.0.0.1:{web}", f"tls://127.0.0.1:{tcp}"
    with (place / "server.log").open("wb") as log:
        server = subprocess.Popen(command, cwd=place, stdout=log, stderr=log)
        try:
            user = client.BasicAuth("somebody")
            with client.Gateway(web, proxy_address=tcp, auth=user) as connected:
                wait_until(lambda: answers(connected), every=0.5)
                yield connected
        finally:
            server.terminate()
            server.wait()


@pytest.mark.whole_program
def test_gateway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", PATHS)
    with gateway(tmp_path) as connected, connected.new_cluster() as cluster:
        run = dasfprof.register_default_profiler(cluster, directory=tmp_path / "traces")
        cluster.scale(2)
        with cluster.get_client() as client:
            client.wait_for_workers(2, timeout=300)
            assert client.gather(client.map(slow, range(20))) == list(range(20))
        run.stop()
        assert "stopped" in repr(run)
        name = cluster.name
    # The server's preload records a separate run, in addition to the client's.
    for directory in ("traces", "by-preload"):
        table = TraceAnalyser(tmp_path / directory, progress=False).workers()
        assert table["Job"].tolist() == [f"DASK_GATEWAY_CLUSTER_NAME {name}"] * 2, directory
        assert table["Task Runs"].sum() == 20, directory


MPIRUN = ("mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "4")

PROGRAM = """
    import dasfprof
    from dask_mpi import initialize
    from distributed import Client

    if __name__ == "__main__":
        initialize(nthreads=1, dashboard=False)
        with Client() as client:
            {before}
            client.wait_for_workers(2)
            assert client.gather(client.map(pow, range(20), [2] * 20)) == [n**2 for n in range(20)]
            {after}
"""


@pytest.mark.whole_program
@pytest.mark.parametrize("by_command", [False, True])
def test_mpi(by_command: bool, tmp_path: Path) -> None:
    if shutil.which("mpirun") is None:
        pytest.skip("needs Debian's openmpi-bin")
    pytest.importorskip("dask_mpi")
    before = 'run = dasfprof.register_default_profiler(client, directory="traces")'
    lines = ("", "") if by_command else (before, "run.stop()")
    program = PROGRAM.format(before=lines[0], after=lines[1])
    (tmp_path / "program.py").write_text(textwrap.dedent(program))
    command = ("-m", "dasfprof", "run", "--directory", "traces") if by_command else ()
    ran = subprocess.run(
        [*MPIRUN, sys.executable, *command, "program.py"],
        **{"cwd": tmp_path, "env": {**os.environ, "PYTHONPATH": PATHS, "COLUMNS": "200"}},
        **{"capture_output": True, "text": True, "timeout": 500},
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    table = TraceAnalyser(tmp_path / "traces", progress=False).workers()
    assert (len(table), table["Task Runs"].sum()) == (2, 20)
    # The other ranks become the scheduler and workers, and none reports that nothing was recorded.
    said = " ".join(ran.stderr.split())
    assert "nothing was recorded" not in said
    expected = "did not connect a distributed.Client. If another rank did, it has recorded the run"
    assert (expected in said) == by_command
