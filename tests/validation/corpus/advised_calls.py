"""All calls that rules can advise, and small programs that follow this advice.

``advised_calls.py [NAME ...]`` runs each program unchanged and as advised. It prints the rule, the
call, and the program's duration and the potential savings in the rule's finding, before and after.
`advised_calls` extracts the calls from the texts of the rules. Each call is in `PROGRAMS` or in
`WITHOUT`.
"""

import argparse
import ast
import importlib
import inspect
import logging
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from io import StringIO
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import dask
import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import fsspec
import joblib
import numpy as np
import pandas as pd
import xarray as xr
from dateutil import parser as dates
from distributed import Client, LocalCluster, as_completed
from distributed import wait as wait_for
from fsspec.spec import AbstractBufferedFile
from scipy.ndimage import generic_filter, maximum_filter
from tried import counts_in_python, locked, total
from tried import wait as pause

import dasfprof
from dasfprof import TraceAnalyser
from dasfprof.analysis import diagnosis
from dasfprof.analysis.diagnosis import chunk_arguments, registry, run_figures, task_figures
from dasfprof.analysis.diagnosis.ranking import RULES

#: A call or an argument in a text.
_CALL = re.compile(r"(?<![\w{])([A-Za-z_][\w.]*)\(|(?<![\w{.(])([a-z_]\w*)=(?=[\w\"'{\[(,. ]|$)")
#: Modules whose texts do not belong to a rule.
_SHARED = {module.__name__ for module in (registry, run_figures, task_figures)}
#: Other calls in texts: functions of the program, and calls that it should avoid.
_NO_ADVICE = {
    *("f()", "b()", "acquire()", "apply()", "iterrows()", "__import__()", "compute()", "wait()"),
    *(
        "from_pandas()",
        "from_sequence()",
        "groupby()",
        "merge()",
        "rejoin()",
        "GridSearchCV()",
        "Parallel()",
    ),
    "ctypes.CDLL()",
}


def advised_calls() -> dict[str, set[str]]:
    """Return the calls and arguments that each rule can advise."""
    analyses = {name for name in dir(TraceAnalyser) if not name.startswith("_")}
    found = {}
    for slug, rule in RULES.items():
        texts = _texts(sys.modules[rule.find.__module__], rule.find.__name__, set())
        calls = {
            f"{call}()" if call else f"{argument}="
            for text in texts
            for call, argument in _CALL.findall(text)
            if call not in analyses
        }
        found[slug] = calls - _NO_ADVICE
    arguments = {f"{name}=" for name in chunk_arguments._ARGUMENTS}
    found["tasks-too-small"] |= arguments
    return {slug: calls for slug, calls in found.items() if calls}


def _texts(module: ModuleType, name: str, seen: set[tuple[str, str]]) -> Iterator[str]:
    """Return the texts of a function or constant, and of those in `diagnosis` that it uses."""
    value = getattr(module, name, None)
    owner = getattr(value, "__module__", module.__name__) if callable(value) else module.__name__
    if owner in _SHARED or (owner, name) in seen or not owner.startswith(diagnosis.__name__):
        return
    seen.add((owner, name))
    home = importlib.import_module(owner)
    for node in ast.parse(inspect.getsource(home)).body:
        if name not in _defined(node):
            continue
        doc = ast.get_docstring(node, clean=False) if isinstance(node, ast.FunctionDef) else None
        for part in ast.walk(node):
            if isinstance(part, ast.Constant) and isinstance(part.value, str) and part.value != doc:
                yield part.value
            if isinstance(part, ast.Name) and part.id != name:
                yield from _texts(home, part.id, seen)


def _defined(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.FunctionDef):
        return {node.name}
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return {target.id for target in targets if isinstance(target, ast.Name)}


class Program(NamedTuple):
    """Program for one or more calls that a rule advises; `run` returns a result."""

    rule: str
    calls: tuple[str, ...]
    run: Callable[[Client, bool], Any]
    #: Numbers of workers and of threads per worker, unchanged and as advised.
    cluster: tuple[int, int] = (2, 1)
    advised: tuple[int, int] | None = None


PROGRAMS: dict[str, Program] = {}


def follows(
    rule: str,
    *calls: str,
    cluster: tuple[int, int] = (2, 1),
    advised: tuple[int, int] | None = None,
) -> Callable[[Callable[[Client, bool], Any]], Callable[[Client, bool], Any]]:
    def register(run: Callable[[Client, bool], Any]) -> Callable[[Client, bool], Any]:
        PROGRAMS[run.__name__] = Program(rule, calls, run, cluster, advised)
        return run

    return register


def slow_load(block: Any) -> Any:
    time.sleep(0.1)
    return block + 1


def _blocks() -> Any:
    return da.ones((20, 1000), chunks=(1, 1000)).map_blocks(slow_load)


@follows("recomputation", "persist()")
def two_uses_of_blocks(_: Client, advised: bool) -> Any:
    blocks = _blocks().persist() if advised else _blocks()
    return [float(blocks.sum().compute()), float(blocks.max().compute())]


@follows("recomputation", "dask.compute()")
def two_results_of_blocks(_: Client, advised: bool) -> Any:
    results = _blocks().sum(), _blocks().max()
    together = dask.compute(*results) if advised else [each.compute() for each in results]
    return list(map(float, together))


@follows("sequential-submission", "dask.compute()")
def computes_in_a_loop(_: Client, advised: bool) -> Any:
    parts = [dask.delayed(pause)(number) for number in range(24)]
    return list(dask.compute(*parts)) if advised else [part.compute() for part in parts]


@follows("sequential-submission", "pre_dispatch=")
def dispatches_one(_: Client, advised: bool) -> Any:
    dispatch = {} if advised else {"pre_dispatch": 1}
    with joblib.parallel_backend("dask"):
        return joblib.Parallel(**dispatch)(joblib.delayed(pause)(n, 0.15) for n in range(24))


@follows("transfer-bound", "foldby()")
def bag_by_key(_: Client, advised: bool) -> Any:
    items = db.range(60_000, npartitions=8).map(lambda number: (str(number % 50), number))
    if advised:
        sums = items.foldby(lambda item: item[0], lambda a, b: a + b[1], 0, int.__add__, 0)
    else:
        sums = items.groupby(lambda item: item[0]).map(lambda g: (g[0], sum(n for _, n in g[1])))
    return sorted(sums.compute())


@follows("repeated-gathers", "client.gather()")
def results_one_by_one(client: Client, advised: bool) -> Any:
    futures = client.map(pause, range(1200), seconds=0.0)
    wait_for(futures)
    return client.gather(futures) if advised else [future.result() for future in futures]


@follows("repeated-gathers", "as_completed()", "batches()")
def results_in_batches(client: Client, advised: bool) -> Any:
    futures = client.map(pause, range(1200), seconds=0.0)
    wait_for(futures)
    if not advised:
        return sorted(future.result() for future in futures)
    batches = as_completed(futures, with_results=True).batches()
    return sorted(result for batch in batches for _, result in batch)


@follows("slow-tokenization", "submit()", "pure=")
def submits_arrays(client: Client, advised: bool) -> Any:
    arrays = [np.full(10_000_000, float(n)) for n in range(6)]
    pure = {"pure": False} if advised else {}
    return client.gather([client.submit(total, array, **pure) for array in arrays])


@follows("slow-tokenization", "map()", "pure=")
def maps_arrays(client: Client, advised: bool) -> Any:
    arrays = [np.full(10_000_000, float(n)) for n in range(6)]
    pure = {"pure": False} if advised else {}
    return client.gather(client.map(total, arrays, **pure))


@follows("slow-tokenization", "from_array()", "name=")
def cuts_an_array(_: Client, advised: bool) -> Any:
    values = np.ones((8, 10_000_000))
    name = {"name": False} if advised else {}
    return float(da.from_array(values, chunks=(1, 10_000_000), **name)[:, :10].sum().compute())


@follows("slow-tokenization", "scatter()", "hash=")
def scatters_arrays(client: Client, advised: bool) -> Any:
    arrays = [np.full(10_000_000, float(n)) for n in range(6)]
    given = {"hash": False} if advised else {}
    return client.gather(client.map(total, client.scatter(arrays, **given)))


@follows("slow-tokenization", "delayed()", "dask_key_name=")
def delays_arrays(_: Client, advised: bool) -> Any:
    arrays = [np.full(10_000_000, float(n)) for n in range(6)]
    parts = [
        dask.delayed(total, pure=True)(
            array, **({"dask_key_name": f"total-{n}"} if advised else {})
        )
        for n, array in enumerate(arrays)
    ]
    return list(dask.compute(*parts))


@follows("large-objects-in-graph", "client.scatter()", "broadcast=", "hash=")
def sends_a_table(client: Client, advised: bool) -> Any:
    table: Any = np.arange(3_000_000.0)
    if advised:
        table = client.scatter([table], broadcast=True, hash=False)[0]
    return client.gather([client.submit(picked, table, n, pure=False) for n in range(30)])


@follows("large-objects-in-graph", "pickle.dumps()", "pickle.loads()")
def sends_a_dict(client: Client, advised: bool) -> Any:
    import pickle

    table: Any = {number: str(number) for number in range(100_000)}
    if advised:
        table = client.scatter(pickle.dumps(table), broadcast=True)
    return client.gather([client.submit(looked_up, table, n, pure=False) for n in range(20)])


def picked(table: Any, number: int) -> float:
    return float(table[number])


def looked_up(table: Any, number: int) -> str:
    """Return an item of a dict that may be pickled."""
    import pickle

    return (pickle.loads(table) if isinstance(table, bytes) else table)[number]


@follows("tasks-too-small", "chunks=")
def small_chunks(_: Client, advised: bool) -> Any:
    side = 2000 if advised else 50
    values = da.ones((2000, 2000), chunks=(side, side))
    return float((values + values.T).sum().compute())


@follows("tasks-too-small", "npartitions=")
def small_partitions(_: Client, advised: bool) -> Any:
    partitions = {"npartitions": 8 if advised else 1500}
    return db.from_sequence(range(6000), **partitions).map(pause, seconds=0.0).sum().compute()


@follows("tasks-too-small", "partition_size=")
def partitions_of_items(_: Client, advised: bool) -> Any:
    size = {"partition_size": 700 if advised else 4}
    return db.from_sequence(range(6000), **size).map(pause, seconds=0.0).sum().compute()


@follows("tasks-too-small", "blocksize=")
def small_blocks(_: Client, advised: bool) -> Any:
    with tempfile.TemporaryDirectory() as directory:
        path = str(Path(directory, "x.csv"))
        pd.DataFrame({"a": range(400_000), "b": 1}).to_csv(path, index=False)
        table = dd.read_csv(path, blocksize="2MB" if advised else "8kB")
        return int(table["a"].sum().compute())


@follows("no-workers", "client.wait_for_workers()", cluster=(0, 1))
def submits_before_workers(client: Client, advised: bool) -> Any:
    if advised:
        client.cluster.scale(2)
        client.wait_for_workers(2)
    futures = client.map(pause, range(20))
    if not advised:
        time.sleep(1.0)
        client.cluster.scale(2)
    return client.gather(futures)


@follows("row-wise", "numpy.where()")
def applies_by_row(_: Client, advised: bool) -> Any:
    table = dd.from_pandas(pd.DataFrame({"a": np.arange(450_000) % 7, "b": 2.0}), npartitions=6)
    if advised:
        values = table.map_partitions(by_column, meta=("x", "f8"))
    else:
        values = table.apply(by_row, axis=1, meta=("x", "f8"))
    return float(values.sum().compute())


def by_row(row: Any) -> float:
    return row["a"] * row["b"] if row["a"] > 3 else 0.0


def by_column(table: Any) -> Any:
    return pd.Series(np.where(table["a"] > 3, table["a"] * table["b"], 0.0), table.index)


@follows("row-wise", "Series.map()")
def labels_by_row(_: Client, advised: bool) -> Any:
    table = dd.from_pandas(pd.DataFrame({"a": np.arange(150_000) % 7}), npartitions=6)
    if advised:
        labels = table["a"].map({number: number * 10 for number in range(7)}, meta=("x", "i8"))
    else:
        labels = table.map_partitions(labelled, meta=("x", "i8"))
    return int(labels.sum().compute())


def labelled(table: Any) -> Any:
    return pd.Series([row["a"] * 10 for _, row in table.iterrows()], table.index)


@follows("row-wise", "dd.to_datetime()", "Series.apply()")
def dates_by_value(_: Client, advised: bool) -> Any:
    dates = dd.from_map(dates_as_text, range(6))
    if advised:
        return int(dd.to_datetime(dates, format=_DATE).dt.year.sum().compute())
    return int(dates.map(year_of, meta=("x", "i8")).sum().compute())


_DATE = "%Y-%m-%d"


def dates_as_text(_: int) -> Any:
    return pd.Series(pd.date_range("1900-01-01", periods=40_000)).dt.strftime(_DATE)


def year_of(date: str) -> int:
    return datetime.strptime(date, _DATE).year


@follows("row-wise", "pd.to_datetime()", "format=")
def dates_by_library(client: Client, advised: bool) -> Any:
    parts = client.map(parsed_dates, range(6), advised=advised)
    return sum(client.gather(parts))


def parsed_dates(seed: int, advised: bool) -> int:
    texts = [f"{1 + n % 28} Mar {2000 + n % 20} 12:{n % 60:02}" for n in range(seed, 6000)]
    if advised:
        return int(pd.to_datetime(texts, format="%d %b %Y %H:%M").year.to_numpy().sum())
    return sum(dates.parse(text).year for text in texts)


@follows("row-wise", "read_csv()", "sep=", "engine=")
def reads_csv_in_python(client: Client, advised: bool) -> Any:
    engine = {} if advised else {"engine": "python"}
    return round(sum(client.gather(client.map(total_of_csv, range(6), engine=engine))), 6)


def total_of_csv(seed: int, engine: dict[str, Any]) -> float:
    lines = (f"{n % 7};{n % 11};{n * seed % 13}" for n in range(180_000))
    text = "a;b;c\n" + "\n".join(lines)
    return float(pd.read_csv(StringIO(text), sep=";", **engine).c.mean())


@follows("row-wise")
def filters_by_window(_: Client, advised: bool) -> Any:
    image = da.from_array(np.random.default_rng(0).random((900, 1200)), chunks=(900, 200))
    filtered = image.map_overlap(maximum_of_windows, advised=advised, depth=1)
    return round(float(filtered.sum().compute()), 6)


def maximum_of_windows(block: Any, advised: bool) -> Any:
    """Return the maximum of each window of three by three pixels."""
    return maximum_filter(block, 3) if advised else generic_filter(block, largest, 3)


def largest(window: Any) -> float:
    return float(window.max())


@follows("row-wise")
def smooths_in_loops(_: Client, advised: bool) -> Any:
    image = da.from_array(np.random.default_rng(0).random((1600, 2000)), chunks=(400, 1000))
    smoothed = image.map_blocks(smooth, advised=advised)
    return round(float(smoothed.sum().compute()), 6)


def smooth(block: Any, advised: bool) -> Any:
    """Return the mean of each value and its left neighbour."""
    if advised:
        return (block + np.roll(block, 1, axis=1)) / 2
    means = np.empty_like(block)
    for row in range(block.shape[0]):
        for column in range(block.shape[1]):
            means[row, column] = (block[row, column] + block[row, column - 1]) / 2
    return means


@follows("row-wise", "apply_ufunc()", "vectorize=")
def slopes_by_pixel(_: Client, advised: bool) -> Any:
    values = da.from_array(np.random.default_rng(0).random((6000, 200, 30)), chunks=(1500, 100, 30))
    slopes = xr.apply_ufunc(
        slope,
        xr.DataArray(values, dims=("y", "x", "time")),
        input_core_dims=[["time"]],
        vectorize=not advised,
        dask="parallelized",
        output_dtypes=["f8"],
    )
    return round(float(slopes.sum().compute()), 6)


def slope(series: Any) -> Any:
    return (series[..., -1] - series[..., 0]) / (series.shape[-1] - 1)


@follows("gil-contention", "threads_per_worker=", cluster=(1, 2), advised=(2, 1))
def python_in_threads(client: Client, _: bool) -> Any:
    return client.gather(client.map(counts_in_python, range(24), pure=False))


@follows("blocked-tasks", "threads_per_worker=", cluster=(2, 1), advised=(2, 10))
def waits_for_a_service(client: Client, _: bool) -> Any:
    return client.gather(client.map(pause, range(40), seconds=0.15))


@follows("io-bound", "cache_type=", "block_size=", "fs.open()")
def reads_pieces_of_files(client: Client, advised: bool) -> Any:
    options = {"cache_type": "blockcache", "block_size": 2**16} if advised else {}
    return client.gather(client.map(sum_of_pieces, range(8), options=options))


class SlowSystem(fsspec.AbstractFileSystem):
    """File system with files of 60 MB, a latency of 0.03 s, and a bandwidth of 100 MB/s."""

    protocol = "slow-pieces"

    def _open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        return SlowFile(self, path, mode, size=60_000_000, **options)


class SlowFile(AbstractBufferedFile):
    def _fetch_range(self, start: int, end: int) -> bytes:
        time.sleep(0.03 + (end - start) / 100e6)
        return bytes(end - start)


def sum_of_pieces(number: int, options: dict[str, Any]) -> int:
    """Read distant pieces of a file, alternating between both ends."""
    total = number
    fsspec.register_implementation("slow-pieces", SlowSystem, clobber=True)
    system, path = fsspec.url_to_fs("slow-pieces://x")
    with system.open(path, **options) as file:
        for place in range(0, 30_000_000, 3_000_000):
            for start in (place, 59_000_000 - place):
                file.seek(start)
                total += sum(file.read(1000))
    return total


@follows("data-skew", "repartition()", "how=")
def merges_a_hot_key(_: Client, advised: bool) -> Any:
    random, rows = np.random.default_rng(0), 1_500_000
    keys = np.where(random.random(rows) < 0.8, 7, random.integers(0, 1000, rows))
    others = {f"c{number}": random.normal(size=rows) for number in range(6)}
    sales = dd.from_pandas(pd.DataFrame({"key": keys, **others}), npartitions=16)
    rates = dd.from_pandas(pd.DataFrame({"key": range(1000), "rate": 2}), npartitions=4)
    merged = sales.merge(rates.repartition(npartitions=1) if advised else rates, on="key")
    return int(merged["rate"].sum().compute())


@follows("transfer-bound", "repartition()", "npartitions=")
def merges_a_small_table(_: Client, advised: bool) -> Any:
    sales = dd.from_map(large_table, range(40))
    rates = dd.from_map(small_table, range(20))
    merged = sales.merge(rates.repartition(npartitions=1) if advised else rates, on="key")
    return round(merged["rate"].sum().compute())


def large_table(number: int) -> pd.DataFrame:
    random = np.random.default_rng(number)
    return pd.DataFrame({"key": random.integers(0, 50_000, 300_000), "x": random.random(300_000)})


def small_table(number: int) -> pd.DataFrame:
    keys = np.arange(number, 50_000, 20)
    return pd.DataFrame({"key": keys, "rate": keys / 3})


@follows("per-process-lock", "threads_per_worker=", cluster=(2, 3), advised=(6, 1))
def takes_a_lock(client: Client, _: bool) -> Any:
    return client.gather(client.map(locked, range(30)))


@follows("poor-placement", "workers=")
def pins_to_one_worker(client: Client, advised: bool) -> Any:
    workers = {} if advised else {"workers": [min(client.nthreads())]}
    return client.gather(client.map(pause, range(40), **workers))


@follows("client-bound", "dask.compute()")
def works_between_results(_: Client, advised: bool) -> Any:
    rounds = [[dask.delayed(pause)(4 * n + k, 0.05) for k in range(4)] for n in range(6)]
    if advised:
        return list(dask.compute(*[dask.delayed(slow_sum)(parts) for parts in rounds]))
    return [slow_sum(dask.compute(*parts)) for parts in rounds]


def slow_sum(numbers: Any) -> int:
    time.sleep(0.4)
    return sum(numbers)


@follows("large-gathers", "persist()", "gather()")
def fetches_blocks(client: Client, advised: bool) -> Any:
    blocks = da.ones((12, 6_000_000), chunks=(1, 6_000_000))
    blocks = client.persist(blocks) if advised else blocks.compute()
    return float(blocks.sum().compute() if advised else blocks.sum())


@follows("slow-startup", "dask.delayed()", "traverse=")
def delays_a_dict(_: Client, advised: bool) -> Any:
    names: Any = {number: str(number) for number in range(60_000)}
    if advised:
        names = dask.delayed(names, traverse=False)
    return list(dask.compute(*[dask.delayed(looked_up)(names, n) for n in range(12)]))


#: Calls without a program.
WITHOUT: dict[str, set[str]] = {
    "cancelled-tasks": {"cancel()", "client.restart()"},
    "unfinished-run": {"fire_and_forget()", "client.call_stack()"},
    "retried-tasks": {"retries="},
    "failed-tasks": {"retries="},
    "slow-startup": {"client.scatter()", "map()", "persist()", "submit()"},
    "stragglers": {"client.run()"},
    "warm-up": {"cache=", "client.run()", "wait="},
    "repeated-gathers": {"dask.compute()"},
    "large-gathers": {"to_parquet()", "to_zarr()"},
    "slow-tokenization": {"db.read_text()", "dd.from_map()", "dd.read_parquet()"},
    "missing-secede": {"distributed.secede()", "worker_client()"},
    "resource-limit": {"resources="},
    "tasks-too-small": {"pickle.dumps()", "scatter()"},
    "slow-dispatch": {"client.scatter()"},
    "client-bound": {
        "chunks=",
        "client.scatter()",
        "open_dataset()",
        "persist()",
        "pre_dispatch=",
        "xarray.open_zarr()",
    },
    "work-outside-tasks": {
        "client.map()",
        "client.run()",
        "client.submit()",
        "dask.config.set()",
        "map_blocks()",
        "map_partitions()",
        "scheduler=",
    },
    "no-workers": {"cluster.adapt()"},
    "data-skew": {
        "client.run()",
        "agg()",
        "array.rechunk()",
        "read_csv()",
        "read_parquet()",
        "split_row_groups=",
    },
    "slow-worker": {"client.retire_workers()"},
    "load-imbalance": {"scatter()", "client.rebalance()", "workers="},
    "poor-placement": {
        "allow_other_workers=",
        "client.rebalance()",
        "client.replicate()",
        "resources=",
    },
    "memory-growth": {"CDLL()", "client.cancel()", "client.run()", "malloc_trim()"},
    "transfer-bound": {"client.replicate()", "pickle.dumps()", "scatter()"},
    "serial-chain": {"agg()", "drop_duplicates()", "split_every=", "split_out=", "value_counts()"},
    "row-wise": {"datetime.strptime()", "numpy.loadtxt()", "pandas.read_csv()"},
    "gil-contention": {"nogil="},
    "cpu-oversubscribed": {
        "n_jobs=",
        "threadpoolctl.threadpool_limits()",
        "torch.set_num_threads()",
    },
    "garbage-collection": {"client.run()"},
    "chunk-mismatch": {"chunks=", "rechunk()", "to_zarr()"},
    "small-requests": {"block_size=", "cache_type=", "chunks=", "fs.open()"},
    # These two share their function with io-bound.
    "blocked-tasks": {"block_size=", "cache_type=", "fs.open()"},
    "shared-bottleneck": {"block_size=", "cache_type=", "fs.open()"},
    "cpu-quota": {"threads_per_worker="},
    "exploding-join": {"on="},
    "filter-without-effect": {"drop_duplicates()"},
    "unused-columns": {"columns=", "persist()", "read_csv()", "read_parquet()", "usecols="},
    "gpu-idle": {"dask.config.set()"},
    "gpu-memory-full": {"enable_cudf_spill="},
    "incomplete-trace": {"run.collect()", "run.stop()"},
}


class Run(NamedTuple):
    """Run of a program: its duration, potential savings in the rule's finding, and result."""

    seconds: float
    at_stake: float
    found: bool
    result: Any


def run(program: Program, advised: bool, directory: Path) -> Run:
    workers, threads = (advised and program.advised) or program.cluster
    with (
        LocalCluster(
            n_workers=workers,
            threads_per_worker=threads,
            dashboard_address=None,
            silence_logs=logging.CRITICAL,
        ) as cluster,
        Client(cluster) as client,
    ):
        if workers:
            client.wait_for_workers(workers)
            client.run(pause, 0, 0.0)  # loads this module before the measurement
        with dasfprof.profile(client, directory=directory):
            begin = time.perf_counter()
            result = program.run(client, advised)
            seconds = time.perf_counter() - begin
    findings = TraceAnalyser(directory, progress=False).diagnose()
    matches = findings[findings["Rule"] == program.rule]["Seconds at stake (s)"]
    return Run(seconds, float(matches.fillna(0.0).sum()), len(matches) > 0, result)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("programs", nargs="*", metavar="NAME")
    options = parser.parse_args(arguments)
    print(f"{'rule':24}{'program':26}{'seconds':>15}{'at stake':>15}  calls")
    for name in options.programs or PROGRAMS:
        with tempfile.TemporaryDirectory() as directory:
            runs = [run(PROGRAMS[name], each, Path(directory, str(each))) for each in (False, True)]
        print(line_of(name, *runs), flush=True)
    for slug, calls in WITHOUT.items():
        print(f"{slug:24}no program for {', '.join(sorted(calls))}")


def line_of(name: str, before: Run, after: Run) -> str:
    program = PROGRAMS[name]
    seconds = f"{before.seconds:7.2f}{after.seconds:8.2f}"
    stake = "".join(
        f"{run.at_stake:7.2f}" if run.found else f"{'none':>7}" for run in (before, after)
    )
    same = "" if before.result == after.result else "  OTHER RESULT"
    return f"{program.rule:24}{name:26}{seconds}{stake}  {', '.join(program.calls)}{same}"


if __name__ == "__main__":
    # Import this file as a module, so that workers find its functions by name.
    from advised_calls import main as main_by_name

    main_by_name()
