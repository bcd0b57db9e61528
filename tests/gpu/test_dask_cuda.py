"""dask-cuda's clusters and device memory, with the stand-in driver and without a GPU.

dask-cuda pins Dask's version, so these tests are skipped if it is not installed.
"""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from stand_ins import HERE, Driver, device, uuid_of

import dasfprof
from dasfprof.recording.probes.gpu import DeviceMemoryProbe

MEGABYTE = 1_000_000

pytest.importorskip(
    "dask_cuda", reason="needs dask-cuda[cu12] or [cu13], and so its Dask", exc_type=ImportError
)

TWO = device("a", "3b", "utilization 40\nmemory_used 4000000000") + device(
    "b", "41", "utilization 70\nmemory_used 7000000000"
)


def run_program(name: str, driver: Driver, directory: Path, **environment: str) -> Path:
    """Run one of the programs, and return the directory of its traces."""
    driver.answer(TWO)
    variables = {**os.environ, **driver.environment, **environment}
    if "CUDA_VISIBLE_DEVICES" not in environment:
        variables.pop("CUDA_VISIBLE_DEVICES", None)
    directory = directory / "traces"
    directory.mkdir()
    run = subprocess.run(
        [sys.executable, str(HERE / "cuda_programs.py"), name, str(directory)],
        env=variables,
        capture_output=True,
        text=True,
        timeout=360,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert "dasfprof could not" not in run.stderr
    return directory


def events(directory: Path, name: str) -> list[Any]:
    traces = dasfprof.open_run(directory).get_traces()
    return [event for event in traces if event.name == name]


def test_workers_are_profiled_with_their_own_devices(driver: Driver, tmp_path: Path) -> None:
    traces = run_program("local_cluster", driver, tmp_path)
    table = dasfprof.TraceAnalyser(traces).per_function_bottleneck().sort_values("GPU")
    assert table["GPU"].tolist() == [0, 1]
    assert table["Num Tasks (chunks)"].sum() == 8
    assert table["Mean GPU Utilization (%)"].tolist() == [40.0, 70.0]
    assert table["Mean GPU Memory Used (GB)"].tolist() == [4.0, 7.0]
    labels = {event.args["uuid"]: event.thread_id for event in events(traces, "GPU Devices")}
    # Workers are named after their device's number.
    assert labels[uuid_of("a")].endswith("-0")
    assert labels[uuid_of("b")].endswith("-1")


def test_arrays_on_the_device_are_described_without_a_copy(driver: Driver, tmp_path: Path) -> None:
    traces = run_program("arrays", driver, tmp_path)
    described = {
        (event.args["type"], event.args["shape"], event.args["dtype"])
        for event in events(traces, "Compute")
    }
    assert described == {("cupy._core.core.ndarray", (500, 250), "float64")}
    sizes = {event.args["size"] for event in events(traces, "Compute")}
    assert all(MEGABYTE <= size <= MEGABYTE + 100 for size in sizes)  # plus overhead of Python
    assert not (traces / "copies").exists()


def test_spill_from_the_device_is_in_the_trace(driver: Driver, tmp_path: Path) -> None:
    traces = run_program("spill", driver, tmp_path)
    samples = [event.args for event in events(traces, "Device Memory")]
    last = [args for args in samples if args["device_to_host_count"]][-1]
    assert last["device_to_host_count"] >= 5
    assert last["device_to_host_size"] >= 5 * MEGABYTE
    assert 0 < last["device_to_host"] < 10
    assert max(args["host_to_device_count"] for args in samples) >= 5
    # At the end: three arrays, and the shapes, which are not on a device.
    assert last["device_tasks"] == 3
    assert 3 * MEGABYTE <= last["device_size"] <= 3.01 * MEGABYTE
    assert last["host_tasks"] >= 5
    assert int((traces / "copied-so-far").read_text()) == last["device_to_host_count"]


def test_every_move_is_counted_and_the_functions_are_put_back(
    driver: Driver, tmp_path: Path
) -> None:
    traces = run_program("buffers", driver, tmp_path)
    (event,) = dasfprof.EventProfiler(traces / "buffers.msgpack").get_traces()
    held = event.args
    assert held["device_tasks"] + held["host_tasks"] + held["disk_tasks"] == 8
    assert (held["device_tasks"], held["host_tasks"]) == (2, 2)
    for move in ("device_to_host", "host_to_device", "host_to_disk", "disk_to_host"):
        assert held[f"{move}_count"] >= 4, move
        size = held[f"{move}_size"] / held[f"{move}_count"]
        assert MEGABYTE <= size <= 1.01 * MEGABYTE, move
        assert held[move] > 0, move


def test_other_workers_have_no_device_memory() -> None:
    probe = DeviceMemoryProbe(SimpleNamespace(data={}))
    assert list(probe.sample(True)) == []
    probe.close()
