"""Workers that cannot record join a recorded cluster, work, and log the reason once."""

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from clusters import new_client, wait_until
from dask_processes import NOT_INSTALLED
from distributed import Client
from distributed.protocol.pickle import dumps
from recorded_facts import assert_whole, computed

import dasfprof
from dasfprof.errors import RegistrationError
from dasfprof.recording.cluster.by_value import by_value
from dasfprof.recording.plugins.nvtx import GPUAnnotationPlugin
from dasfprof.recording.plugins.resources import ResourceMonitor
from dasfprof.recording.plugins.tasks import WorkerTaskPlugin
from dasfprof.recording.plugins.worker_profiler import WorkerProfiler
from dasfprof.recording.settings import make_settings

WARNING = "This worker is not recorded by the profiler, and works as usual"


@contextmanager
def bare_worker(address: str, directory: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run `dask worker` with the name "bare", without dasfprof."""
    (directory / "bare").mkdir()
    (directory / "bare" / "sitecustomize.py").write_text(NOT_INSTALLED)
    environment = {**os.environ, "PYTHONPATH": str(directory / "bare")}
    command = [sys.executable, "-m", "distributed.cli.dask_worker", address, "--name", "bare"]
    command += ["--nthreads", "1", "--no-dashboard", *options]
    with (directory / "bare.log").open("wb") as log:
        outputs: dict[str, Any] = {"stdout": log, "stderr": subprocess.STDOUT}
        process = subprocess.Popen(
            command, env=environment, cwd=directory, start_new_session=True, **outputs
        )
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


TCP: dict[str, Any] = {
    **{"n_workers": 1, "threads_per_worker": 1, "processes": False},
    **{"protocol": "tcp", "host": "127.0.0.1"},
}


def address_of(client: Client, name: str | int) -> str | None:
    workers = client.sync(client.scheduler.identity)["workers"]
    return next((address for address, facts in workers.items() if facts["name"] == name), None)


def dasfprof_plugins(client: Client, address: str | None) -> list[str]:
    names = client.run(lambda dask_worker: list(dask_worker.plugins), workers=[address])
    return [name for name in names[address] if "dasfprof-" in name]


@pytest.mark.whole_program
def test_a_worker_without_dasfprof_joins(tmp_path: Path) -> None:
    traces = tmp_path / "traces"
    with new_client(**TCP) as client:
        run = dasfprof.register_default_profiler(client, directory=traces, enable_nvtx=True)
        with bare_worker(client.scheduler.address, tmp_path, "--nanny"):
            wait_until(lambda: address_of(client, "bare"))
            bare, here = address_of(client, "bare"), address_of(client, 0)
            assert client.submit(abs, -1, key="there", workers=[bare]).result() == 1
            assert client.submit(abs, -2, key="here", workers=[here]).result() == 2
            run.flush()
            client.restart_workers([bare], timeout=240)
            bare = address_of(client, "bare")
            assert client.submit(abs, -3, key="there-again", workers=[bare]).result() == 3
            assert len(dasfprof_plugins(client, bare)) == 1
            run.collect(tmp_path / "collected")
            run.stop()
            assert dasfprof_plugins(client, bare) == []
            log = (tmp_path / "bare.log").read_text()
    assert log.count(WARNING) == 2  # once for each process
    assert 'pip install "dasfprof"' in log
    assert "Traceback" not in log
    assert_whole(run)
    assert [row["key"] for row in computed(run)] == ["here"]


def test_registering_names_workers_without_dasfprof(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        new_client(**TCP) as client,
        bare_worker(client.scheduler.address, tmp_path, "--no-nanny"),
    ):
        wait_until(lambda: address_of(client, "bare"))
        bare = address_of(client, "bare")
        run = dasfprof.register_default_profiler(client, directory=tmp_path / "traces")
        (told,) = (r.getMessage() for r in caplog.records if "not be recorded" in r.message)
        assert told.startswith("1 of 2 workers will not be recorded, and work as usual.")
        assert str(bare) in told
        assert "dasfprof is not installed there" in told
        assert client.submit(abs, -1, workers=[bare]).result() == 1
        run.stop()
        client.retire_workers([address_of(client, 0)])
        with pytest.raises(RegistrationError, match="1 of 2 processes cannot record") as caught:
            dasfprof.register_default_profiler(client, directory=tmp_path / "traces")
        assert "dasfprof is not installed there" in str(caught.value)
        assert dasfprof_plugins(client, bare) == []


def test_a_worker_that_cannot_write_is_not_recorded(tmp_path: Path) -> None:
    """Its directory is a file, because permissions do not apply to root."""
    taken = tmp_path / "taken"
    with new_client(**TCP) as client:
        run = dasfprof.register_default_profiler(client, directory=taken)
        for path in run.files():
            path.unlink()
        taken.rename(tmp_path / "moved")
        taken.write_text("no directory")
        client.cluster.scale(2)
        client.wait_for_workers(2, timeout=120)
        late = address_of(client, 1)
        assert client.submit(abs, -1, key="unwritten", workers=[late]).result() == 1
        (logs,) = client.get_worker_logs(workers=[late]).values()
        warnings = [text for _, text in logs if WARNING in text and "cannot be written" in text]
        assert len(warnings) == 1
        (worker,) = (each for each in client.cluster.workers.values() if each.address == late)
        plugins = [plugin for name, plugin in worker.plugins.items() if "WorkerProfiler" in name]
        assert [plugin.recorder._received for plugin in plugins] == [{}]
        taken.unlink()
        run.stop()


def test_the_plugin_travels_as_source_text(tmp_path: Path) -> None:
    settings = make_settings(name="r", directory=tmp_path, enable_nvtx=True)
    plugin = WorkerProfiler(settings)
    for shipped in (pickle.dumps(plugin), dumps(plugin)):
        back = pickle.loads(shipped)
        assert type(back) is WorkerProfiler
        assert (back.name, back.settings) == (plugin.name, settings)
        parts = [type(part) for part in back.parts]
        assert parts == [WorkerTaskPlugin, ResourceMonitor, GPUAnnotationPlugin]
        # This is read without dasfprof, so it must not be bytecode, which depends on the Python
        # version.
        assert b"CodeType" not in shipped
        assert b"_make_function" not in shipped


def test_functions_by_value_are_functions_there() -> None:
    from dasfprof.recording.cluster import calls as cluster_calls

    for name in ("check_process", "commit_plugins", "list_with_profiles", "read_chunk"):
        function = getattr(cluster_calls, name)
        assert by_value(function) is function
        back = pickle.loads(dumps(function))
        assert type(back).__name__ == "function"
        assert back.__code__.co_varnames == function.__wrapped__.__code__.co_varnames
