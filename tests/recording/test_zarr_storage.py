"""Recorded reads of Zarr 3 and asynchronous file systems equal those of their stores."""

import asyncio
import gzip
import os
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
from clusters import client_of, new_client
from distributed import Client
from refuters import refute
from s3_server import BUCKET, S3Server
from s3_server import server as s3  # noqa: F401  (a fixture)
from test_storage_calls import heard_of, left_behind

import dasfprof
from dasfprof import TraceAnalyser

slow_store = pytest.importorskip("slow_store")  # needs fsspec

DELAY, CHUNKS, VALUES = 0.1, 24, 5_000


client = client_of(1, 2, processes=False)


@pytest.fixture(scope="module", autouse=True)
def needs_zarr() -> None:
    """Skip without Zarr. It takes long to import, so processes that only collect tests do not."""
    pytest.importorskip("zarr", minversion="3")


def stores(directory: Path) -> dict[str, tuple[Any, str]]:
    """Return stores, with their names in tables."""
    from zarr.storage import FsspecStore, LocalStore, ObjectStore

    slow_store.OBJECTS.clear()
    system = slow_store.SlowSystem(asynchronous=True)
    files = FsspecStore.from_url(f"file://{directory}/files", {"auto_mkdir": True})
    found = {
        "local": (LocalStore(directory / "local"), "file"),
        "fsspec": (FsspecStore(system, path="root"), "slow"),
        # As Dask opens the path of a directory.
        "files": (files, "file"),
    }
    try:
        from obstore.store import LocalStore as Objects
    except ImportError:
        return found
    (directory / "objects").mkdir()
    return found | {"obstore": (ObjectStore(Objects(directory / "objects")), "file")}


def sizes_of(store: Any) -> list[int]:
    async def read() -> list[int]:
        return [await store.getsize(key) async for key in store.list() if "c/" in key]

    return asyncio.run(read())


def new_array(store: Any, **options: Any) -> Any:
    import zarr

    options = {"chunks": (1, VALUES), "compressors": None, **options}
    array = zarr.create_array(store, name="data", shape=(CHUNKS, VALUES), dtype="f8", **options)
    array[:] = np.arange(CHUNKS * VALUES, dtype=float).reshape(CHUNKS, VALUES)
    return array


def profiled(client: Client, directory: Path, program: Callable[[], Any]) -> TraceAnalyser:
    with dasfprof.profile(client, directory=directory):
        program()
    analyser = TraceAnalyser(directory, progress=False)
    assert not refute(directory, analyser.findings())
    return analyser


def moved(analyser: TraceAnalyser) -> dict[str, Any]:
    """Return the requests, summed over functions."""
    table = analyser.storage()
    table = table[table["Storage"] != "disk"]
    names = ["Task Runs", "Reads", "Read (MB)", "Writes", "Written (MB)", "Unsized Calls"]
    return {"Storage": set(table["Storage"]), **table[names].astype(float).sum().to_dict()}


def read_some(array: Any) -> None:
    """Read 13 values of 4 chunks."""
    assert array[0, :10].tolist() == list(range(10))
    assert array.oindex[[1, 2], 0].tolist() == [VALUES, 2 * VALUES]
    assert array.vindex[[3], [1]].tolist() == [3 * VALUES + 1]


@pytest.mark.parametrize("kind", ["local", "files", "obstore"])
def test_requests_and_bytes_of_chunks(client: Client, tmp_path: Path, kind: str) -> None:
    import zarr

    if kind not in (found := stores(tmp_path)):
        pytest.skip("obstore is not installed")
    store, name = found[kind]
    array = new_array(store)
    expected = float(np.sum(array[:]))
    opened = zarr.open_array(store, path="data", mode="r")
    (row,) = heard_of(lambda: read_some(opened)).close()
    assert (row["protocol"], row["reads"], row["read_size"]) == (name, 4, 4 * VALUES * 8)
    assert row["used"] == (10 + 2 + 1) * 8
    analyser = profiled(client, tmp_path / "read", lambda: da.from_zarr(array).sum().compute())
    read, nbytes = moved(analyser), sum(sizes_of(store))
    assert nbytes == CHUNKS * VALUES * 8
    assert (read["Storage"], read["Task Runs"]) == ({name}, CHUNKS)
    assert (read["Reads"], read["Writes"], read["Unsized Calls"]) == (CHUNKS, 0, 0)
    assert read["Read (MB)"] == pytest.approx(nbytes / 1e6)
    copy = zarr.create_array(store, name="copy", shape=array.shape, chunks=array.chunks, dtype="f8")
    copied = da.from_zarr(array).map_blocks(lambda block: block + 1)
    analyser = profiled(client, tmp_path / "write", lambda: da.store(copied, copy, lock=False))
    written = moved(analyser)
    assert (written["Reads"], written["Writes"]) == (CHUNKS, CHUNKS)
    assert written["Written (MB)"] == pytest.approx(sum(sizes_of(store)) / 1e6 - nbytes / 1e6)
    assert float(np.sum(copy[:])) == expected + CHUNKS * VALUES
    assert left_behind(zarr.abc.store.Store) == []


@pytest.mark.whole_program
def test_samples_show_that_arrow_reads(
    client: Client,
    tmp_path: Path,
    s3: S3Server,  # noqa: F811
) -> None:
    """Requests of Arrow's file systems cannot be counted."""
    import pyarrow
    from pyarrow import fs, parquet

    s3.make_bucket()
    with s3.files().open(f"{BUCKET}/a.parquet", "wb") as file:
        parquet.write_table(pyarrow.table({"a": range(1000)}), file)

    def read(_: int, port: int) -> int:
        server = {"endpoint_override": f"127.0.0.1:{port}", "scheme": "http"}
        keys = {"access_key": "key", "secret_key": "secret", "region": "us-east-1"}
        files = fs.S3FileSystem(**server, **keys)
        return parquet.read_table(f"{BUCKET}/a.parquet", filesystem=files).num_rows

    def program() -> None:
        assert client.gather(client.map(read, range(20), port=s3.port, pure=False)) == [1000] * 20

    s3.delay = 0.2
    try:
        analyser = profiled(client, tmp_path, program)
    finally:
        s3.delay = 0.0
    (finding,) = [each for each in analyser.findings() if each.rule == "io-bound"]
    assert finding.to_dict()["Figures"]["sampled"]["value"] > 0.5
    assert set(analyser.storage()["Storage"]) <= {"disk"}


def test_requests_side_by_side_are_waited_for_once(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import zarr

    store, _ = stores(tmp_path)["fsspec"]
    array = new_array(store)
    monkeypatch.setattr(slow_store.SlowSystem, "delay", DELAY)
    with zarr.config.set({"async.concurrency": CHUNKS}):
        analyser = profiled(
            client, tmp_path / "a", lambda: client.submit(np.asarray, array, pure=False).result()
        )
    (row,) = analyser.storage().to_dict("records")
    spent = analyser.per_function_bottleneck().set_index("Function").loc["asarray"]
    assert (row["Reads"], row["Task Runs"]) == (CHUNKS, 1)
    assert row["Mean Read (MB)"] == pytest.approx(VALUES * 8 / 1e6)
    assert row["Reading (s)"] >= CHUNKS * DELAY
    assert DELAY <= spent["Waiting for storage (s)"] <= spent["Duration (s)"]
    assert row["Reading (s)"] > 2 * spent["Waiting for storage (s)"]


def test_small_slow_requests_are_found_and_the_advice_works(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, _ = stores(tmp_path)["fsspec"]
    array = new_array(store)
    monkeypatch.setattr(slow_store.SlowSystem, "delay", 0.25)
    analyser = profiled(client, tmp_path / "a", lambda: da.from_zarr(array).sum().compute())
    (finding,) = [each for each in analyser.findings() if each.rule == "small-requests"]
    assert finding.cause is None
    figures = finding.to_dict()["Figures"]
    assert figures["requests"]["value"] == CHUNKS
    assert figures["size"]["value"] == pytest.approx(VALUES * 8)
    assert figures["each"]["value"] >= 0.25
    # Each of two threads makes three rounds of requests.
    assert (figures["times"]["value"], figures["more"]["value"]) == (6.0, 6.0)
    assert "blocked-tasks" not in {each.rule for each in analyser.findings()}
    (function,) = set(analyser.storage()["Function"])
    spent = analyser.per_function_bottleneck().set_index("Function").loc[function]
    advised = da.from_zarr(array, chunks=(6, VALUES)).sum()
    advised = profiled(client, tmp_path / "b", advised.compute)
    assert moved(advised)["Reads"] == CHUNKS
    before, after = (
        each.time_accounting().set_index("Class").loc["Waiting for storage", "Thread Time (s)"]
        for each in (analyser, advised)
    )
    assert before >= CHUNKS * 0.25
    assert spent["Waiting for storage (s)"] == pytest.approx(before)
    assert spent["Blocked (s)"] <= spent["Duration (s)"] - CHUNKS * 0.25
    assert after < before / 2


def test_chunks_that_do_not_match_the_stored_ones(client: Client, tmp_path: Path) -> None:
    store, _ = stores(tmp_path)["local"]
    array = new_array(store, chunks=(4, VALUES), compressors="auto")
    halves = da.from_zarr(array, chunks=(2, VALUES // 2))
    analyser = profiled(client, tmp_path / "a", lambda: halves.sum().compute())
    # Each of six stored chunks is read in two by two parts.
    assert moved(analyser)["Reads"] == 24
    run = analyser.run
    items = [each for text in run.storage["items"] for each in str(text).split()]
    assert sorted(map(items.count, set(items))) == [4] * 6


@pytest.mark.parametrize("way", slow_store.WAYS)
def test_requests_count_however_they_are_called(way: Callable[..., list[bytes]]) -> None:
    slow_store.OBJECTS.update({f"p/{number}": bytes(number) for number in range(1, 6)})
    # Its methods were looked up before the hooks wrapped them.
    system, paths = slow_store.SlowSystem(), [f"p/{number}" for number in range(1, 6)]
    heard = heard_of(lambda: [way(system, paths)])
    assert sorted(heard.calls) == [("slow", False, number) for number in range(1, 6)]
    (row,) = heard.close()
    assert (row["reads"], row["read_size"], row["unsized"]) == (5, 15, 0)
    assert len(set(row["items"].split())) == 5
    again = heard_of(lambda: [way(slow_store.SlowSystem(), paths)])
    assert sorted(again.calls) == sorted(heard.calls)


def test_another_thread_s_requests_are_no_task_s() -> None:
    slow_store.OBJECTS["p/1"] = b"x"
    system = slow_store.SlowSystem()

    def in_thread() -> None:
        thread = threading.Thread(target=lambda: system.cat_file("p/1"))
        thread.start()
        thread.join()

    assert heard_of(in_thread).calls == []


def test_threads_that_decompress_compute(client: Client, tmp_path: Path) -> None:
    import zarr
    from zarr.codecs import GzipCodec
    from zarr.storage import LocalStore

    rows, values = 6, 400_000
    data = np.round(np.random.default_rng(0).normal(size=(rows, values)), 2)
    store = LocalStore(tmp_path / "data")
    options: dict[str, Any] = {"chunks": (1, values), "compressors": GzipCodec(level=1)}
    array = zarr.create_array(store, shape=data.shape, dtype="f8", **options)
    array[:] = data
    begin = time.thread_time()
    for row in range(rows):
        gzip.decompress((tmp_path / "data" / "c" / str(row) / "0").read_bytes())
    alone = time.thread_time() - begin
    analyser = profiled(client, tmp_path / "a", lambda: da.from_zarr(array).sum().compute())
    spent = analyser.per_function_bottleneck().set_index("Function")
    (function,) = set(analyser.storage()["Function"])
    assert spent.loc[function, "CPU (s)"] >= 0.5 * alone
    # CPU wait of its threads counts as CPU wait.
    used = spent.loc[function, ["CPU (s)", "Waiting for CPU (s)"]].sum()
    assert used > spent.loc[function, "Waiting for storage (s)"]


def read_object(path: str) -> bytes:
    return slow_store.SlowSystem().cat_file(path)


def read_chunk(path: str) -> Any:
    import zarr
    from zarr.storage import FsspecStore

    store = FsspecStore(slow_store.SlowSystem(asynchronous=True), path="root")
    array = zarr.create_array(store, name=path, shape=(4,), chunks=(2,), dtype="i4")
    if path == slow_store.ENDLESS:
        return zarr.core.sync.sync(array._async_array.getitem(slice(None)), timeout=0.2)
    return array[:].tolist()


def read_in_own_loop(path: str) -> Any:
    async def read() -> bytes:
        return await asyncio.wait_for(slow_store.SlowSystem()._cat_file(path), 0.1)

    return asyncio.run(read())


def leave_behind(path: str) -> str:
    """Start a request in an event loop that is closed while it is in progress."""
    loop = asyncio.new_event_loop()
    request = loop.create_task(slow_store.SlowSystem()._cat_file(path))
    loop.run_until_complete(asyncio.sleep(0.01))
    request.cancel()
    loop.run_until_complete(asyncio.gather(request, return_exceptions=True))
    loop.close()
    return str(request.cancelled())


def outcome(client: Client, function: Callable[..., Any], path: str) -> str:
    try:
        return repr(client.submit(function, path, pure=False).result(timeout=60))
    except Exception as error:
        # Texts of coroutines contain addresses.
        return f"{type(error).__qualname__}: {re.sub('0x[0-9a-f]+', '', str(error))}"


def test_results_and_errors_are_those_without(client: Client, tmp_path: Path) -> None:
    calls = [(read_object, "p/denied"), (read_object, "p/missing"), (read_chunk, "fine")]
    calls += [(read_chunk, "denied"), (read_chunk, "endless")]
    calls += [(read_in_own_loop, "p/endless"), (leave_behind, "p/endless")]
    slow_store.OBJECTS.clear()
    before = [outcome(client, *call) for call in calls]
    slow_store.OBJECTS.clear()
    with dasfprof.profile(client, directory=tmp_path):
        assert [outcome(client, *call) for call in calls] == before
    analyser = TraceAnalyser(tmp_path, progress=False)
    table = analyser.storage()
    unsized = table.groupby("Function")["Unsized Calls"].sum()
    assert unsized.index.tolist() == [
        "leave_behind",
        "read_chunk",
        "read_in_own_loop",
        "read_object",
    ]
    assert (unsized >= [1, 2, 1, 2]).all()
    assert analyser.per_task_bottleneck()["Duration (s)"].max() >= table["Reading (s)"].max() / 4


def die_in_request(path: str) -> None:
    threading.Timer(0.3, os._exit, (9,)).start()
    read_object(path)


@pytest.mark.whole_program
def test_a_process_dies_in_a_request(tmp_path: Path) -> None:
    from distributed import KilledWorker

    with (
        new_client(n_workers=1, threads_per_worker=1) as client,
        dasfprof.profile(client, directory=tmp_path),
    ):
        future = client.submit(die_in_request, "p/endless", pure=False)
        with pytest.raises(KilledWorker):
            future.result(timeout=240)
        assert client.submit(sum, [1, 2]).result(timeout=120) == 3
    table = TraceAnalyser(tmp_path, progress=False).processed_tasks("function")
    assert "die_in_request" in set(table["Function"])
