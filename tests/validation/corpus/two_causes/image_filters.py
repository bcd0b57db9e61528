"""dask.array: a Python function for each window of an image (arrays), in small chunks (chunks)."""

import sys

import dask.array as da
import numpy as np
from distributed import Client
from scipy import ndimage

REMEDIES = sys.argv[1:]


def spread(window):
    return window.max() - window.min()


def local_range(block):
    if "arrays" in REMEDIES:
        return ndimage.maximum_filter(block, 5) - ndimage.minimum_filter(block, 5)
    return ndimage.generic_filter(block, spread, 5)


if __name__ == "__main__":
    image = np.random.default_rng(0).random((1200, 1200))
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0"):
        side = 600 if "chunks" in REMEDIES else 40
        tiles = da.from_array(image, chunks=(side, side))
        ranges = tiles.map_overlap(local_range, depth=2, boundary="reflect", dtype="f8")
        print(round(float(ranges.mean().compute()), 6))
