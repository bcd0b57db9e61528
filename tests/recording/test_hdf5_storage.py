"""Reads and writes of HDF5 files by tasks, and stored chunks that are read repeatedly."""

from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
from clusters import new_client
from refuters import refute
from test_storage_calls import BLOCK, SIZE, Server, heard_of, server  # noqa: F401

import dasfprof
from dasfprof import TraceAnalyser

h5py = pytest.importorskip("h5py")
fsspec = pytest.importorskip("fsspec")

#: Dataset with 4 x 4 stored chunks of 8 MB, whose numbers are slow to decompress.
SHAPE, STORED = (256, 256, 256), (256, 64, 64)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hdf5") / "data.h5"
    data = np.random.default_rng(0).integers(0, 1000, SHAPE).astype("f8")
    with h5py.File(path, "w") as opened:
        opened.create_dataset("x", data=data, chunks=STORED, compression="gzip", compression_opts=1)
    return path


@pytest.mark.parametrize(("chunks", "again"), [((32, 256, 256), 8), ((256, 128, 64), 1)])
def test_chunks_read_often(file: Path, chunks: tuple[int, ...], again: int, tmp_path: Path) -> None:
    """Each of eight slabs reads all stored chunks, and each of eight columns reads two."""
    with (
        new_client(n_workers=1, threads_per_worker=2, processes=False) as client,
        h5py.File(file) as opened,
        dasfprof.profile(client, directory=tmp_path),
    ):
        da.from_array(opened["x"], chunks=chunks).sum().compute()
    analyser = TraceAnalyser(tmp_path, progress=False)
    assert not refute(tmp_path, analyser.findings())
    (row,) = analyser.storage().query("Storage == 'hdf5'").to_dict("records")
    assert (row["Reads"], row["Read (MB)"]) == (8, pytest.approx(np.prod(SHAPE) * 8 / 1e6))
    mismatches = [each.to_dict() for each in analyser.findings() if each.rule == "chunk-mismatch"]
    figures = [each["Figures"] for each in mismatches]
    expected = [(16, again)] if again > 1 else []
    assert [(each["chunks"]["value"], each["times"]["value"]) for each in figures] == expected


@pytest.mark.parametrize(
    ("selection", "cache", "stored"),
    [
        (np.s_[:, 64:128, 60:70], 0, 2),
        (np.s_[3, -1], 0, 4),
        (np.s_[..., 0], 0, 0),  # selections with an ellipsis are not analysed
        *((selection, 2**23, 1) for selection in (np.s_[:], np.s_[...], np.s_[()])),  # all of it
        (np.s_[::2], 2**23, 16),
        (np.s_[:, :64, :64], 2**23, 0),  # HDF5 can cache this chunk
        (np.s_[:, :65, :64], 2**23, 2),
    ],
)
def test_stored_chunks_of_a_selection(file: Path, selection: Any, cache: int, stored: int) -> None:
    with h5py.File(file, rdcc_nbytes=cache) as opened:
        heard = heard_of(lambda: opened["x"][selection])
        assert heard.calls == [("hdf5", False, opened["x"][selection].nbytes)]
    (row,) = heard.close()
    assert len(row["items"].split()) == stored


def test_writes_are_counted(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "new.h5", "w") as opened:
        dataset = opened.create_dataset("x", (10, 10), "f8")
        heard = heard_of(lambda: dataset.__setitem__(slice(0, 4), np.ones((4, 10))))
    assert heard.calls == [("hdf5", True, 320)]


def test_requests_of_a_python_file_are_counted(tmp_path: Path, server: Server) -> None:  # noqa: F811
    """They replace the bytes of the selection."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as opened:
        opened.create_dataset("x", data=np.random.default_rng(0).normal(size=100_000))
    server.content, server.sent = path.read_bytes().ljust(SIZE, b"\0"), 0

    def read() -> None:
        with fsspec.open(server.url, block_size=BLOCK) as remote, h5py.File(remote) as opened:
            opened["x"][:]

    heard = heard_of(read)
    assert {(store, is_write) for store, is_write, _ in heard.calls} == {("http", False)}
    assert sum(size or 0 for _, _, size in heard.calls) == server.sent >= 800_000


def test_bytes_that_a_python_file_returns(tmp_path: Path, server: Server) -> None:  # noqa: F811
    """Used bytes do not depend on the file's blocks, and are unknown for reads without a file."""
    server.content = np.arange(SIZE // 8).tobytes()

    def read(places: list[int], other: bool = False) -> None:
        with fsspec.open(server.url, block_size=BLOCK) as remote:
            for place in places:
                remote.seek(place)
                assert remote.read(80) == server.content[place : place + 80]
        if other:
            fsspec.filesystem("http").cat_file(server.url, 0, 100)

    (row,) = heard_of(lambda: read([0, 500_000, 8])).close()
    assert (row["used"], row["read_size"]) == (240, server.sent)
    assert row["read_size"] > 3 * BLOCK
    (row,) = heard_of(lambda: read([0], other=True)).close()
    assert row["used"] == -1

    def fail() -> None:
        with fsspec.open(server.url, block_size=BLOCK) as remote:
            remote.read(80)
            remote.close()
            with pytest.raises(ValueError):
                remote.read(80)

    (row,) = heard_of(fail).close()
    assert row["used"] == -1
