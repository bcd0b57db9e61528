"""Recording where others start the cluster: dask-gateway, dask-mpi."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from clusters import wait_until
from dask_processes import PATHS
from slurm import free_port

import dasfprof
from dasfprof import TraceAnalyser

pytestmark = pytest.mark.whole_program


def slow(number: int) -> int:
    time.sleep(0.05)
    return number


# --- dask-gateway --------------------------------------------------------------------------------

#: The file that its server reads. Dask has no command dask-scheduler any more.
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


@pytest.fixture
def gateway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    pytest.importorskip("dask_gateway_server.backends.local")
    client = pytest.importorskip("dask_gateway")
    monkeypatch.setenv("PYTHONPATH", PATHS)
    api, web, tcp = (free_port() for _ in range(3))
    config = tmp_path / "gateway.py"
    dask = Path(sys.executable).with_name("dask")
    config.write_text(GATEWAY.format(api=api, web=web, tcp=tcp, place=tmp_path, dask=dask))
    with (tmp_path / "server.log").open("wb") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "dask_gateway_server", "--config", str(config)],
            **{"cwd": tmp_path, "stdout": log, "stderr": log},
        )
        try:
            with client.Gateway(
                f"http://127.0.0.1:{web}",
                proxy_address=f"tls://127.0.0.1:{tcp}",
                auth=client.BasicAuth("somebody"),
            ) as connected:
                wait_until(lambda: answers(connected), every=0.5)
                yield connected
        finally:
            server.terminate()
            server.wait()


def answers(gateway: Any) -> bool:
    try:
        gateway.list_clusters()
    except Exception:  # of its proxy's, and of those that its HTTP library raises
        return False
    return True


def test_gateway(gateway: Any, tmp_path: Path) -> None:
    with gateway.new_cluster() as cluster:
        run = dasfprof.register_default_profiler(cluster, directory=tmp_path / "traces")
        cluster.scale(2)
        with cluster.get_client() as client:
            client.wait_for_workers(2, timeout=300)
            assert client.gather(client.map(slow, range(20))) == list(range(20))
        run.stop()
        assert "stopped" in repr(run)
        name = cluster.name
    # As the server's own preload records by itself, beside the client's run.
    for directory in ("traces", "by-preload"):
        table = TraceAnalyser(tmp_path / directory, progress=False).workers()
        assert table["Job"].tolist() == [f"DASK_GATEWAY_CLUSTER_NAME {name}"] * 2, directory
        assert table["Task Runs"].sum() == 20, directory


# --- dask-mpi ------------------------------------------------------------------------------------

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


def mpi(directory: Path, *program: str) -> str:
    """Run a program on four ranks; gives what they print to stderr."""
    if shutil.which("mpirun") is None:
        pytest.skip("needs Debian's openmpi-bin")
    pytest.importorskip("dask_mpi")
    ran = subprocess.run(
        [*MPIRUN, sys.executable, *program],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": PATHS, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    return ran.stderr


def test_mpi_from_its_client(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    begin = 'run = dasfprof.register_default_profiler(client, directory="traces")'
    program.write_text(textwrap.dedent(PROGRAM.format(before=begin, after="run.stop()")))
    mpi(tmp_path, str(program))
    assert ran_on_two_workers(tmp_path / "traces")


def test_mpi_with_the_command(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM.format(before="", after="")))
    told = mpi(tmp_path, "-m", "dasfprof", "run", "--directory", "traces", str(program))
    assert ran_on_two_workers(tmp_path / "traces")
    # The other ranks become the scheduler and workers: none says that nothing was recorded.
    told = " ".join(told.split())
    assert "nothing was recorded" not in told
    assert (
        "did not connect a distributed.Client. If another rank did, it has recorded the run" in told
    )


def ran_on_two_workers(traces: Path) -> bool:
    table = TraceAnalyser(traces, progress=False).workers()
    return len(table) == 2 and table["Task Runs"].sum() == 20
