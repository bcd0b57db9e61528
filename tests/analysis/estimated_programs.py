"""Programs for estimates: healthy ones, and ones with a planted explosion of tasks or memory."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import numpy as np
import pandas as pd

Program = Callable[[Path], Any]


def random(rows: int = 1600, chunk: int = 400) -> Any:
    return da.random.random((rows, rows), chunks=chunk)


def table(place: Path) -> Any:
    """Read eight files with one row group each: `k` repeats, `v` is random, `w` counts up."""
    files = place / "table"
    if not files.exists():
        count = np.arange(200_000)
        values = np.random.default_rng(0).random(len(count))
        frame = pd.DataFrame({"k": count % 50, "v": values, "w": count * 1.0})
        dd.from_pandas(frame, npartitions=8).to_parquet(files)
    return dd.read_parquet(files)


def labelled(_: Path) -> Any:
    import xarray as xr

    values = da.random.random((120, 200, 200), chunks=(10, 200, 200))
    x = xr.DataArray(values, dims=("t", "y", "x"))
    return (x - x.mean("t")).max("t")


def looked_up(place: Path) -> Any:
    names = pd.DataFrame({"k": range(50), "name": [str(number) for number in range(50)]})
    return table(place).merge(dd.from_pandas(names, npartitions=2), on="k").groupby("name").v.sum()


def delayed(_: Path) -> Any:
    load = dask.delayed(np.ones)
    return dask.delayed(len)([load(number * 1000) for number in range(8)])


SANE: dict[str, Program] = {
    "mean": lambda _: random().mean(axis=0),
    "rechunked": lambda _: (random() + 1).rechunk((1600, 200)).sum(axis=0),
    "matrix_product": lambda _: (x := random(1200, 300)) @ x.T,
    "centred": lambda _: (((x := random()) - x.mean(axis=0)) ** 2).sum(),
    "cast": lambda _: da.where((x := random()) > 0.5, x, 0).astype("f4"),
    "sliced": lambda _: random()[::2, 100:1500].sum(),
    "assigned": lambda place: table(place).assign(z=lambda frame: frame.v + frame.w).z.sum(),
    "grouped": lambda place: (x := table(place))[x.v > 0.5].groupby("k").w.mean(),
    "looked_up": looked_up,
    "bag": lambda _: db.from_sequence(range(1000), npartitions=10).map(str).frequencies(),
    "delayed": delayed,
}


def cells(rows: int = 240, size: int = 60, chunk: int = 10) -> Any:
    """Return daily values on a grid, chunked in time, with coordinates."""
    import xarray as xr

    values = da.random.random((rows, size, size), chunks=(chunk, size, size))
    times = pd.date_range("2001-01-01", periods=rows)
    return xr.DataArray(values, {"t": times, "y": range(size), "x": range(size)}, name="v")


def raster() -> Any:
    return da.random.random((2000, 2000), chunks=500)


def masked(_: Path) -> Any:
    """Select a part of an array, and then every second row by a mask."""
    part = da.random.random((250, 8, 40, 40), chunks=(1, 8, 40, 40))[100:180]
    return part[np.arange(80) % 2 == 0].sum()


def anomaly(_: Path) -> Any:
    x = cells()
    return (x.groupby("t.month") - x.groupby("t.month").mean("t")).std("t")


def focal(_: Path) -> Any:
    """Compute the mean of each cell's neighbours, with borders from neighbouring chunks."""
    from scipy.ndimage import uniform_filter

    return raster().map_overlap(uniform_filter, depth=2, size=5).max()


def basins(_: Path) -> Any:
    """Scale many small datasets in one graph that also computes the scales."""
    import xarray as xr

    x = xr.concat([cells(120, 20, 30) for _ in range(12)], "basin")
    return (x - x.mean(["basin", "t"])) / x.std(["basin", "t"])


def stacked(_: Path) -> Any:
    """Loop over the slices of an array, and stack the results."""
    x = da.random.random((60, 200, 200), chunks=(10, 200, 200))
    return da.stack([np.sqrt(x[number]) for number in range(60)]).mean(axis=0)


def words(_: Path) -> Any:
    lines = db.from_sequence(["to be or not to be"] * 4000, npartitions=16)
    return lines.map(str.split).flatten().frequencies().topk(3, key=1)


REPORTED: dict[str, Program] = {
    "masked": masked,
    # A grid with four times as many cells.
    "reindexed": lambda _: cells().reindex(y=range(120), x=range(120)).mean("t"),
    "climatology": lambda _: cells().groupby("t.month").mean("t"),
    "anomaly": anomaly,
    # A function that cannot work with parts of a raster.
    "particles": lambda _: raster().rechunk(-1).map_blocks(np.sqrt),
    "focal": focal,
    "basins": basins,
    "stacked": stacked,
    # The filter comes after the read.
    "catalogue": lambda place: table(place).query("k == 3")[["k", "v", "w"]],
    "words": words,
}


class Stored:
    """Array in a file with chunks of 100 rows, like those of Zarr and h5py."""

    shape, dtype, ndim, chunks = (1000, 1000), np.dtype("f8"), 2, (100, 1000)

    def __getitem__(self, index: Any) -> Any:
        raise AssertionError("nothing is read")


def fetch(name: str) -> str:
    return name


def large_chunk(_: Path) -> Any:
    x = da.ones((40_000, 40_000), chunks=20_000)
    return (x + 1).sum()  # planted


def outer_product(_: Path) -> Any:
    x = da.random.random(40_000, chunks=20_000)
    return (x[:, None] * x[None, :]).sum()  # planted


def many_tasks(_: Path) -> Any:
    x = da.random.random((40_000, 4), chunks=(400, 4))
    across = np.arange(40_000).reshape(100, 400).T.ravel()
    return x[across].sum()  # planted


def tiny_chunks(_: Path) -> Any:
    x = da.ones((400, 400), chunks=200)
    return x.rechunk(10).sum()  # planted


def embedded(_: Path) -> Any:
    values = np.zeros(400_000)
    return da.from_array(values, chunks=200_000) + 1  # planted


def misaligned(_: Path) -> Any:
    return da.from_array(Stored(), chunks=(50, 500)).sum()  # planted


def late_filter(place: Path) -> Any:
    frame = table(place)
    return frame[frame.w > 180_000].v.sum()  # planted


def late_columns(place: Path) -> Any:
    return table(place).sample(frac=0.5).v.sum()  # planted


def product(place: Path) -> Any:
    frame = table(place)
    return frame.merge(frame[["k", "w"]], on="k").v.sum()  # planted


def called_twice(_: Path) -> Any:
    load = dask.delayed(fetch)
    first = load("a")  # planted
    return dask.delayed(max)(first, load("a"))


#: Programs with a planted explosion, and a part of the finding.
PLANTED: dict[str, tuple[Program, str]] = {
    "large_chunk": (large_chunk, "A chunk of 'add' has 3.2 GB"),
    "outer_product": (outer_product, "20,000 times as many values"),
    "many_tasks": (many_tasks, "tasks for 100 chunks"),
    "tiny_chunks": (tiny_chunks, "makes 1,600 chunks of 4"),
    "embedded": (embedded, "embeds 3.2 MB of objects of type ndarray"),
    "misaligned": (misaligned, "reads 40 times from 10 stored chunks"),
    "late_filter": (late_filter, "needs 1 of 8 row groups"),
    "late_columns": (late_columns, "All 3 columns are read by read_parquet"),
    "product": (product, "A merge of 200,000 and 200,000 rows has at most 50 different keys."),
    "called_twice": (called_twice, "'fetch' is called with the same arguments"),
}
