"""The pipeline of ``dasfprof demo``: k-means and a shuffle.

Points are read from files in chunks, normalised, and clustered by Lloyd's iterations. Then they are
moved to the partition of their cluster, and summed up in it. Real pipelines have such steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import dask.array as da
    import dask.dataframe as dd
    import pandas as pd

Points = np.ndarray[Any, Any]

CENTRES = np.array([(-6.0, -6.0), (0.0, 0.0), (9.0, 1.0)])
_SPREAD = 2.0
_SEED = 42
_TOLERANCE = 1e-4
_MAX_ITERATIONS = 40


class DemoSize(NamedTuple):
    """The amount of work of the demo."""

    files: int
    points_per_file: int


SIZES = {
    "small": DemoSize(8, 25_000),
    "medium": DemoSize(20, 100_000),
}


def write_points(directory: Path, size: DemoSize) -> list[Path]:
    """Write files with points around three centres, as float64 of shape (points_per_file, 2)."""
    directory.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(_SEED)
    paths = []
    for number in range(size.files):
        blobs = random.integers(len(CENTRES), size=size.points_per_file)
        points = random.normal(CENTRES[blobs], _SPREAD)
        paths.append(directory / f"points-{number:03d}.npy")
        np.save(paths[-1], points)
    return paths


def read_points(paths: list[Path], size: DemoSize) -> da.Array:
    """Read the files on the workers, one chunk per file."""
    import dask.array as da
    from dask import delayed

    read = delayed(load_chunk, pure=True)
    shape = (size.points_per_file, 2)
    return da.concatenate(
        [da.from_delayed(read(str(path.absolute())), shape, np.float64) for path in paths]
    )


def load_chunk(path: str) -> Points:
    """Read one file."""
    return np.load(path)


def normalise(points: da.Array) -> da.Array:
    """Scale each dimension to mean 0 and standard deviation 1."""
    return (points - points.mean(axis=0)) / points.std(axis=0)


def k_means(points: da.Array, clusters: int) -> Iterator[tuple[Points, float]]:
    """Find clusters by Lloyd's iterations, until the centres hardly move.

    Yield the centres, and the largest distance by which a centre moved.
    """
    centres = _far_apart(points[:1000].compute(), clusters)
    for _ in range(_MAX_ITERATIONS):
        chunks = ((1,) * points.numblocks[0], clusters, 3)
        sums = points.map_blocks(sum_by_nearest, centres, chunks=chunks, new_axis=2, dtype=float)
        totals = sums.compute().sum(axis=0)
        moved = totals[:, :2] / np.maximum(totals[:, 2:], 1)
        distance = float(np.abs(moved - centres).max())
        centres = moved
        yield centres, distance
        if distance < _TOLERANCE:
            return


def _far_apart(points: Points, count: int) -> Points:
    """Choose points one at a time, each as far as possible from the points chosen before."""
    chosen = [points[0]]
    while len(chosen) < count:
        distances = np.min([np.sum((points - point) ** 2, axis=1) for point in chosen], axis=0)
        chosen.append(points[int(distances.argmax())])
    return np.array(chosen)


def sum_by_nearest(points: Points, centres: Points) -> Points:
    """Return the sum and the number of points of each cluster, with shape (1, clusters, 3)."""
    nearest = nearest_centre(points, centres)
    count = len(centres)
    sums = [np.bincount(nearest, weights=column, minlength=count) for column in points.T]
    return np.column_stack([*sums, np.bincount(nearest, minlength=count)])[None]


def nearest_centre(points: Points, centres: Points) -> Points:
    """Return, for each point, the index of the nearest centre."""
    distances = ((points[:, None, :] - centres[None, :, :]) ** 2).sum(axis=2)
    return distances.argmin(axis=1)


def summarise(points: da.Array, centres: Points) -> pd.DataFrame:
    """Move each point to the partition of its cluster, and describe the clusters.

    Returns
    -------
    DataFrame
        One row per cluster, with the number of its points and the mean of each coordinate.
    """
    import dask.dataframe as dd

    labels = points.map_blocks(nearest_centre, centres, drop_axis=1, dtype=np.int64)
    frame: dd.DataFrame = dd.concat(
        [
            dd.from_dask_array(points, columns=["x", "y"]),
            dd.from_dask_array(labels, columns="cluster"),
        ],
        axis=1,
    )
    shuffled = frame.shuffle("cluster", npartitions=len(centres))
    grouped: pd.DataFrame = (
        shuffled.groupby("cluster").agg({"x": ["count", "mean"], "y": "mean"}).compute()
    )
    return grouped.sort_index()
