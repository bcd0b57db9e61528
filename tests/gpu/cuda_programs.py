"""Programs that use dask-cuda, each run in a new process with the stand-in driver.

``python cuda_programs.py NAME DIRECTORY`` records the program's run into that directory. The
driver's library must be found when a process starts, and dask-cuda also calls it in the client.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from distributed import Client, wait

import dasfprof

MEGABYTE = 1_000_000


class Array:
    """Stand-in for a cupy array. Each copy to the host is recorded in a file."""

    __slots__ = ("copies", "dtype", "shape")

    def __init__(self, copies: Path) -> None:
        self.copies, self.shape, self.dtype = copies, (500, 250), "float64"

    def __sizeof__(self) -> int:
        return MEGABYTE

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"shape": self.shape, "typestr": "<f8", "data": (1, False), "version": 3}

    def get(self) -> bytearray:
        with self.copies.open("a") as file:
            file.write("copied\n")
        return bytearray(MEGABYTE)

    def __array__(self, *args: Any, **options: Any) -> Any:
        return self.get()

    def __reduce__(self) -> tuple[Any, ...]:
        return restore, (self.copies, self.get())


class CupyArray(Array):
    """Stand-in with cupy's module name: dasfprof reads the shape only of known types.

    Dask would let the real cupy serialize it, so it must not be spilled.
    """

    __slots__ = ("dtype", "shape")
    __module__ = "cupy._core.core"
    __qualname__ = "ndarray"


def restore(copies: Path, data: bytearray) -> Array:
    assert len(data) == MEGABYTE
    return Array(copies)


def make(kind: str, copies: Path) -> Any:
    import cuda_programs  # pickled by name, because a class pickled with its code loses its slots

    return getattr(cuda_programs, kind)(copies)


@contextmanager
def new_cluster(**options: Any) -> Iterator[Client]:
    from dask_cuda import LocalCUDACluster

    with LocalCUDACluster(dashboard_address=None, **options) as cluster, Client(cluster) as client:
        yield client


def slowly(i: int) -> int:
    time.sleep(0.2)
    return i + 1


def local_cluster(directory: Path) -> None:
    with (
        new_cluster(memory_limit=0) as client,
        dasfprof.profile(client, directory=directory, sample_interval=0.02),
    ):
        assert client.gather(client.map(slowly, range(8))) == list(range(1, 9))


def arrays(directory: Path) -> None:
    """Compute arrays that fit on their devices, so they must not be copied."""
    with new_cluster(memory_limit=0) as client, dasfprof.profile(client, directory=directory):
        made = client.map(make, ["CupyArray"] * 4, copies=directory / "copies", pure=False)
        wait(made)


def spill(directory: Path) -> None:
    """Compute eight arrays on a device with memory for three."""
    with (
        new_cluster(device_memory_limit=3.5 * MEGABYTE, memory_limit=0) as client,
        dasfprof.profile(client, directory=directory, sample_interval=0.02),
    ):
        worker = next(iter(client.nthreads()))
        here = {"pure": False, "workers": [worker]}
        made = client.map(make, ["Array"] * 8, copies=directory / "copies", **here)
        wait(made)
        shapes = client.map(lambda array: array.shape, made, **here)
        assert client.gather(shapes) == [(500, 250)] * 8
        # The cluster copies more of them when it closes and a worker transfers its results.
        copied = (directory / "copies").read_text().count("copied")
        (directory / "copied-so-far").write_text(str(copied))


def buffers(directory: Path) -> None:
    """Use a `DeviceHostFile` with memory for two arrays on the device and two on the host."""
    from types import SimpleNamespace

    from dask_cuda.device_host_file import DeviceHostFile

    from dasfprof.recording.probes.gpu import DeviceMemoryProbe

    limits = {"device_memory_limit": 2.5 * MEGABYTE, "memory_limit": 2.5 * MEGABYTE}
    data = DeviceHostFile(str(directory / "spilled"), **limits)
    functions = data.device_host_func, data.disk_func
    before = [(func.dump, func.load) for func in functions]
    probe = DeviceMemoryProbe(SimpleNamespace(data=data))
    for i in range(8):
        data[f"x-{i}"] = Array(directory / "copies")
    for i in range(8):
        assert data[f"x-{i}"].shape == (500, 250)
    ((schema, row),) = probe.sample(False)
    probe.close()
    assert [(func.dump, func.load) for func in functions] == before
    profiler = dasfprof.EventProfiler(directory / "buffers.msgpack")
    args = dict(zip((name for name, _ in schema.args), row[1:], strict=True))
    profiler.record_instant_event(schema.name, row[0], args=args)
    profiler.close()


if __name__ == "__main__":
    globals()[sys.argv[1]](Path(sys.argv[2]))
