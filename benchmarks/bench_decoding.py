"""Speed of decoding blocks to arrays, compared with `numpy.fromfile` on the same bytes."""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
from measure import Result, interleave, ratios, spread
from synthetic import write_runs

from dasfprof import FileDatabase


def main(arguments: list[str] | None = None) -> list[Result]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--events", type=int, default=1_000_000)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as directory:
        size = write_runs(Path(directory), options.events, workers=1)
        (path,) = Path(directory).glob("*.msgpack")

        def decode() -> float:
            begin = time.perf_counter()
            rows = sum(batch.rows for batch in FileDatabase(path).batches())
            assert rows == options.events
            return time.perf_counter() - begin

        def read() -> float:
            begin = time.perf_counter()
            np.fromfile(path, dtype="u1").sum()
            return time.perf_counter() - begin

        measured = interleave({"numpy.fromfile": read, "decode": decode}, options.rounds)
    ratio = ratios(measured, "numpy.fromfile")["decode"]
    columns = ["variant", "GB/s (quartiles)", "times as long as numpy.fromfile"]
    result = Result("Decoding", columns, figures={"seconds": measured, "bytes": size})
    for name, values in measured.items():
        speeds = "{:.2f} ({:.2f} to {:.2f})".format(*spread([size / s / 1e9 for s in values]))
        times = "{:.2f} ({:.2f} to {:.2f})".format(*spread(ratio)) if name == "decode" else "1"
        result.rows.append([name, speeds, times])
    print(result.show(), flush=True)
    return [result]


if __name__ == "__main__":
    main()
