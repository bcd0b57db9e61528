"""Recorded storage reads and writes of functions equal those that the server counts.

Complete reads of CSV and Parquet files by tasks are recorded, and repeated reads are found.
"""

import asyncio
import http.server
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pandas as pd
import pytest
from clusters import new_client
from refuters import refute
from s3_server import BUCKET, S3Server
from s3_server import server as s3  # noqa: F401  (a fixture)

import dasfprof
from dasfprof import TraceAnalyser
from dasfprof.recording.dask_internals.patch import Patch
from dasfprof.recording.guard import HookGuard
from dasfprof.recording.task_runs.run_storage import RunStorage, StorageRequest
from dasfprof.recording.task_runs.storage_calls import listen
from dasfprof.recording.task_runs.storage_requests import family

pytest.importorskip("fsspec")

DELAY = 0.05
BLOCK, SIZE = 100_000, 1_000_000


class Server(http.server.ThreadingHTTPServer):
    """Slow server of one file with ranges, which counts the bytes of its responses."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.sent = 0
        self.lock = threading.Lock()
        self.content = os.urandom(SIZE)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/file"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def log_message(self, *_: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self._head(200, SIZE)

    def do_GET(self) -> None:
        if self.path.endswith("missing"):
            self.send_error(404)
            return
        content, asked = self.server.content, self.headers.get("Range")
        if asked is not None:
            first, last = map(int, asked.removeprefix("bytes=").split("-"))
            content = content[first : last + 1]
        time.sleep(DELAY)
        with self.server.lock:  # before the client can have them and compare
            self.server.sent += len(content)
        self._head(200 if asked is None else 206, len(content))
        self.wfile.write(content)

    def _head(self, status: int, length: int) -> None:
        self.send_response(status)
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(length))
        self.end_headers()


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        yield server
        server.shutdown()


def blocks(url: str) -> float:
    """Read the file in blocks without a cache, and return the seconds of reading."""
    import fsspec

    with fsspec.open(url, block_size=BLOCK, cache_type="none") as file:
        begin = time.perf_counter()
        while file.read(BLOCK):
            pass
        return time.perf_counter() - begin


def whole(url: str) -> int:
    import fsspec

    return len(fsspec.filesystem("http").cat_file(url))


def missing(url: str) -> int:
    return whole(f"{url}-missing")


def slow_system() -> Any:
    """Return a synchronous file system whose calls take a known time."""
    from fsspec import AbstractFileSystem
    from fsspec.spec import AbstractBufferedFile

    class SlowFile(AbstractBufferedFile):
        def _fetch_range(self, start: int, end: int) -> bytes:
            time.sleep(0.1)
            return bytes(end - start)

        def _initiate_upload(self) -> None:
            pass

        def _upload_chunk(self, final: bool = False) -> bool:
            time.sleep(0.1)
            return True

    class SlowSystem(AbstractFileSystem):
        protocol = "slow"

        def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
            return {"name": path, "size": 300_000, "type": "file"}

        def _open(self, path: str, mode: str = "rb", **kwargs: Any) -> Any:
            return SlowFile(self, path, mode, block_size=100_000, cache_type="none", size=300_000)

        def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kw: Any) -> None:
            time.sleep(0.1)

    return SlowSystem(skip_instance_cache=True)


def slowly() -> None:
    system = slow_system()
    with system.open("a") as file:  # two blocks of 100 kB
        file.read(100_000)
        file.read(100_000)
    with system.open("b", "wb") as file:  # two blocks, and the remainder when it is closed
        for _ in range(2):
            file.write(bytes(100_000))
        file.write(bytes(50_000))
    system.pipe_file("c", bytes(7_000))
    assert len(system.cat_file("d")) == 300_000  # one call, whatever its size


def computes() -> int:
    end, number = time.perf_counter() + 0.02, 0
    while time.perf_counter() < end:
        number += 1
    return number


def writes(directory: str) -> None:
    path = Path(directory, f"{threading.get_ident()}-{time.time_ns()}")
    path.write_bytes(os.urandom(2_000_000))
    time.sleep(0.002)
    path.unlink()


def rows_of(directory: Path) -> dict[tuple[str, str], Any]:
    table = TraceAnalyser(directory, progress=False).storage()
    assert not table.duplicated(["Function", "Storage"]).any()
    return {(row["Function"], row["Storage"]): row for row in table.to_dict("records")}


@pytest.mark.whole_program
def test_bytes_and_seconds_of_functions(tmp_path: Path, server: Server) -> None:
    """Worker processes have not imported fsspec when recording starts."""
    traces = tmp_path / "traces"
    spawned = {"distributed.worker.multiprocessing-method": "spawn"}
    with dask.config.set(spawned), new_client(n_workers=1, threads_per_worker=2) as client:
        (imported,) = client.run(lambda: "fsspec.spec" in sys.modules).values()
        assert not imported
        with dasfprof.profile(client, directory=traces):
            # These tasks import fsspec, so that one thread waits for the other.
            sizes = client.gather(client.map(whole, [server.url] * 4, pure=False))
            by_file, server.sent = server.sent, 0
            spent = client.gather(client.map(blocks, [server.url] * 3, pure=False))
            by_blocks = server.sent
            with pytest.raises(FileNotFoundError):
                client.submit(missing, server.url).result()
            client.submit(slowly).result()
            client.submit(computes).result()
            client.gather(client.map(writes, [str(tmp_path)] * 3, pure=False))
        assert [*client.run(left_behind).values()] == [[]]
    rows = rows_of(traces)
    blocked = rows["blocks", "http"]
    assert by_blocks == 3 * SIZE
    assert (blocked["Reads"], blocked["Writes"], blocked["Task Runs"]) == (30, 0, 3)
    assert blocked["Read (MB)"] == pytest.approx(3 * SIZE / 1e6)
    assert 30 * DELAY <= blocked["Reading (s)"] <= sum(spent)
    assert sum(spent) - blocked["Reading (s)"] < 0.5 * sum(spent)
    assert by_file == sum(sizes) == 4 * SIZE
    file = rows["whole", "http"]
    assert (file["Reads"], file["Read (MB)"]) == (4, pytest.approx(4 * SIZE / 1e6))
    assert file["Reading (s)"] >= 4 * DELAY
    failed = rows["missing", "http"]
    assert (failed["Reads"], failed["Read (MB)"], failed["Unsized Calls"]) == (1, 0.0, 1)
    slow = rows["slowly", "slow"]
    assert (slow["Reads"], slow["Read (MB)"]) == (3, pytest.approx(0.5))
    assert slow["Reading (s)"] >= 0.3
    assert (slow["Written (MB)"], slow["Unsized Calls"]) == (pytest.approx(0.257), 0)
    assert slow["Writing (s)"] >= 0.1 * slow["Writes"]
    assert not [name for name, _ in rows if name == "computes"]
    if _counts_disks(tmp_path):
        disk = rows["writes", "disk"]
        assert disk["Task Runs"] == 3
        assert 6.0 <= disk["Written (MB)"] <= 6.6
        assert pd.isna(disk["Writes"])
    functions = TraceAnalyser(traces, progress=False).per_function_bottleneck()
    busy = functions.set_index("Function").loc["blocks"]
    # The server sleeps for these seconds. Computing in the calls is not included.
    assert 30 * DELAY <= busy["Waiting for storage (s)"] <= blocked["Reading (s)"]
    assert busy["Blocked (s)"] <= sum(spent) - 30 * DELAY + 0.5
    assert functions.set_index("Function").loc["computes", "Waiting for storage (s)"] == 0
    accounts = TraceAnalyser(traces, progress=False).time_accounting("function")
    waited = accounts.set_index(["Function", "Class"])["Thread Time (s)"]
    assert waited["blocks", "Waiting for storage"] == pytest.approx(busy["Waiting for storage (s)"])


def left_behind(*classes: type) -> list[str]:
    """Return the names of hooks that remain in fsspec, asyncio and classes in this process."""
    from fsspec import asyn, spec

    owners = [asyncio, asyn, type(spec.AbstractFileSystem)]
    for each in (spec.AbstractFileSystem, spec.AbstractBufferedFile, *classes):
        owners += family(each)
    left = [
        f"{owner}.{name}"
        for owner in owners
        for name, value in vars(owner).items()
        if isinstance(getattr(value, "__dict__", {}).get("_dasfprof_patch"), Patch)
    ]
    return left + [str(each) for each in sys.meta_path if "dasfprof" in type(each).__module__]


def _counts_disks(directory: Path) -> bool:
    """Return whether the kernel counts what is written to this directory."""
    program = (
        "import sys, pathlib; pathlib.Path(sys.argv[1], 'x').write_bytes(bytes(5_000_000)); "
        "words = open('/proc/thread-self/io').read().split(); "
        "sys.exit(int(words[words.index('write_bytes:') + 1]) < 5_000_000)"
    )
    return not subprocess.run([sys.executable, "-c", program, str(directory)]).returncode


class Heard(RunStorage):
    """Store, kind and bytes of all requests of a thread, and of threads that it starts."""

    def __init__(self) -> None:
        super().__init__(HookGuard(), threading.local())
        self.calls: list[tuple[str, bool, int | None]] = []

    def end(self, request: StorageRequest, size: int | None) -> None:
        super().end(request, size)
        self.calls.append((request.store, request.is_write, size))


def heard_of(function: Callable[[], object]) -> Heard:
    """Return the requests of a function, which is called in this thread like a task."""
    heard, thread = Heard(), threading.get_ident()
    leave = listen(lambda each: heard if each == thread else None)
    try:
        function()
    finally:
        leave()
    return heard


def calls_of(function: Callable[[], object]) -> list[tuple[str, bool, int | None]]:
    return heard_of(function).calls


def test_nothing_is_heard_once_nobody_listens() -> None:
    system = slow_system()  # a class that existed before the hooks
    with_file = [system.open("a")]  # not recorded, because it was opened before

    def read() -> None:
        with_file.append(system.open("a"))
        for file in with_file:
            file.read(100_000)

    heard = heard_of(read)
    assert heard.calls == [("slow", False, 100_000)]
    (row,) = heard.close()
    assert row["reading"] >= row["waiting"] >= 0.1 - 0.05
    for file in with_file:
        file.read(100_000)
    assert len(heard.calls) == 1
    assert left_behind() == []


def test_files_of_this_host_caches_and_copies(tmp_path: Path, server: Server) -> None:
    """Files of this host are not storage. For a cache, reads of its source count."""
    import fsspec

    a, b, cache = (str(tmp_path / name) for name in ("a", "b", "cache"))
    files = fsspec.filesystem("file")

    def use_this_host() -> None:
        files.pipe_file(a, b"x")
        files.cat_file(a)
        fsspec.filesystem("memory").pipe_file("/a", b"x")
        fsspec.filesystem("dir", path=str(tmp_path), fs=files).cat_file("a")

    def use_cache() -> None:
        url, options = f"simplecache::{server.url}", {"cache_storage": cache}
        for _ in range(3):
            with fsspec.open(url, simplecache=options) as file:
                assert file.read() == server.content

    def copy() -> None:
        fsspec.filesystem("http").get(server.url, a)
        fsspec.filesystem("http").get_file(server.url, b)
        assert Path(a).read_bytes() == Path(b).read_bytes() == server.content

    assert calls_of(use_this_host) == []
    assert calls_of(use_cache) == [("http", False, SIZE)]
    assert calls_of(copy) == [("http", False, SIZE)] * 2


@pytest.mark.whole_program
def test_an_object_store_is_given_what_is_heard(s3: S3Server) -> None:  # noqa: F811
    import fsspec

    s3.make_bucket()
    system = fsspec.filesystem("s3", skip_instance_cache=True)

    def write() -> None:
        with system.open(f"{BUCKET}/parts", "wb", block_size=5 * 2**20) as file:
            for _ in range(12):
                file.write(bytes(1_000_000))
        with system.open(f"{BUCKET}/small", "wb") as file:
            file.write(bytes(1000))
        system.pipe_file(f"{BUCKET}/whole", bytes(20_000))

    def read() -> None:
        with system.open(f"{BUCKET}/parts", "rb", cache_type="none") as file:
            while file.read(3_000_000):
                pass
        system.cat_file(f"{BUCKET}/whole")
        system.cat_ranges([f"{BUCKET}/whole"] * 3, [0, 10, 20], [5, 15, 25])

    written, were_read = calls_of(write), calls_of(read)
    stored = [system.size(f"{BUCKET}/{name}") for name in ("parts", "small", "whole")]
    assert {call[:2] for call in written} == {("s3", True)}
    assert sum(call[2] or 0 for call in written) == sum(stored) == 12_021_000
    assert {call[:2] for call in were_read} == {("s3", False)}
    assert sum(call[2] or 0 for call in were_read) == 12_000_000 + 20_000 + 15


FAILING_IMPORT = """import sys
from dasfprof.recording.dask_internals.patch import WhenImported
heard = []
waits = WhenImported(('email.mime.text', 'no.such'), lambda: heard.append(1))
waits.start()
try:
    import no.such
except ModuleNotFoundError as error:
    assert 'no' in str(error)
import email.mime.text
assert heard == [1]
assert 'exec_module' not in vars(email.mime.text.__spec__.loader)
waits.stop()
waits.stop()
assert waits not in sys.meta_path
"""


def test_an_import_that_fails_fails_as_before() -> None:
    subprocess.run([sys.executable, "-c", FAILING_IMPORT], check=True)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("pyarrow")
    directory = tmp_path_factory.mktemp("tables")
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(40_000, 10)))
    frame.columns = [f"c{number}" for number in range(10)]
    frame.to_csv(directory / "a.csv")
    frame.to_parquet(directory / "a.parquet")
    return directory


def test_files_that_are_read_completely(files: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    csv, table = files / "a.csv", files / "a.parquet"
    for read, complete in (
        (lambda: pd.read_csv(csv), True),
        (lambda: pd.read_csv(csv, nrows=5), False),
        (lambda: pd.read_csv(csv, usecols=["c1"]), False),
        (lambda: pd.read_parquet(table), True),
        (lambda: pd.read_parquet(table, filters=[("c1", ">", 1)]), False),
        (lambda: parquet.read_table(table), True),
    ):
        heard = heard_of(lambda read=read: [read(), read()])
        assert heard.calls == []
        items = " ".join(row["items"] for row in heard.close()).split()
        assert [item[0] for item in items] == ["w"] * complete


def sum_of(path: str, number: int) -> float:
    frame = pd.read_csv(path)
    return float(frame.c1[number::20].sum())


def test_tasks_that_each_read_the_same_file(files: Path, tmp_path: Path) -> None:
    with (
        new_client(n_workers=1, threads_per_worker=2, processes=False) as client,
        dasfprof.profile(client, directory=tmp_path),
    ):
        client.gather(client.map(sum_of, [str(files / "a.csv")] * 40, range(40)))
    analyser = TraceAnalyser(tmp_path, progress=False)
    assert not refute(tmp_path, analyser.findings())
    assert not len(analyser.storage().query("Storage != 'disk'"))
    (finding,) = (each for each in analyser.findings() if each.rule == "repeated-reads")
    figures = finding.to_dict()["Figures"]
    assert (figures["sources"]["value"], figures["times"]["value"]) == (1, 40)
