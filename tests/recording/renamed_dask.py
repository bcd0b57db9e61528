"""Program that records a small run on a Dask with one renamed private name.

``python renamed_dask.py DIRECTORY NAME...`` forks a child for each name. The child renames it in
Dask's modules and in the code of all of Dask's functions, so that Dask works as before, like a new
release. For a name with the prefix ``-``, only our list is changed. Then the child imports the
recorder, records, and prints one line of JSON.
"""

import gc
import importlib
import json
import os
import sys
import traceback
import types
from collections import Counter
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import dask.dataframe as dd
import networkx  # noqa: F401  (once, and not in each child)
import pandas as pd
from distributed import Client

LATER = "_of_tomorrow"
#: Maximum number of parallel children.
AT_A_TIME = 3


def is_dask(module: Any) -> bool:
    name = module if isinstance(module, str) else ""  # it is a descriptor in some types
    return name.partition(".")[0] in ("dask", "distributed")


def renamed_code(code: types.CodeType, old: str, new: str) -> types.CodeType:
    """Rename an attribute or a global in a function's code, and in nested functions."""
    constants = tuple(
        renamed_code(item, old, new) if isinstance(item, types.CodeType) else item
        for item in code.co_consts
    )
    names = tuple(new if name == old else name for name in code.co_names)
    return code.replace(co_names=names, co_consts=constants)


def uses(code: types.CodeType, name: str) -> bool:
    inner = (item for item in code.co_consts if isinstance(item, types.CodeType))
    return name in code.co_names or any(uses(item, name) for item in inner)


FUNCTIONS: list[types.FunctionType] = []
CLASSES: list[type] = []


def find_code() -> None:
    for one in gc.get_objects():
        if isinstance(one, types.FunctionType | type) and is_dask(one.__module__):
            (CLASSES if isinstance(one, type) else FUNCTIONS).append(one)


def rename(path: str) -> None:
    module, _, names = path.partition(":")
    owner = importlib.import_module(module)
    old = names.rpartition(".")[2]
    new = old + LATER
    for function in FUNCTIONS:
        if uses(function.__code__, old):
            function.__code__ = renamed_code(function.__code__, old, new)
    if "." in names:
        for one in CLASSES:
            if old in vars(one):
                setattr(one, new, vars(one)[old])
                delattr(one, old)
            annotations = vars(one).get("__annotations__", {})
            if old in annotations:
                annotations[new] = annotations.pop(old)
        return
    for name, one in list(sys.modules.items()):
        if is_dask(name) and old in vars(one):
            vars(one)[new] = vars(one)[old]
    del vars(owner)[old]


def forget(path: str) -> None:
    """Rename a name in our list instead, for names that other code also uses."""
    from dasfprof.recording.dask_internals import names

    (group,) = (one for one in names.NAMES if path in one.paths)
    group.paths = tuple(one + LATER * (one == path) for one in group.paths)


def work(client: Any, step: Any) -> list[Any]:
    with step("build"):
        array = da.ones((20, 20), chunks=10)
        frame = dd.from_pandas(pd.DataFrame({"x": range(20)}), npartitions=2)
    with step("compute"):
        results = [float((array + 1).sum().compute()), int((frame.x + 1).sum().compute())]
    first, second = client.nthreads()
    moved = client.submit(bytes, 1000, workers=[first])
    results.append(client.submit(len, moved, workers=[second]).result())
    bad = client.submit(lambda: 1 / 0)
    return [*results, type(bad.exception()).__name__]


def record(path: str, directory: Path, forgotten: bool) -> dict[str, Any]:
    assert not any(name.startswith("dasfprof") for name in sys.modules)
    if not forgotten:
        rename(path)
    import dasfprof

    if forgotten:
        forget(path)
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": False}
    with Client(**options, dashboard_address=None) as client:
        run = dasfprof.register_default_profiler(client, directory=directory)
        results = work(client, dasfprof.step)
        run.stop()
        left = [name for worker in client.cluster.workers.values() for name in worker.plugins]
        left += [*client.cluster.scheduler.plugins]
    missing: dict[str, list[str]] = {}
    counts: Counter[str] = Counter()
    errors = 0
    for file in run.database().databases:
        trace_file = file.trace_file()
        for batch in trace_file.batches():
            counts[batch.name] += batch.rows
        errors += trace_file.errors
        plugin = trace_file.header["plugin"]
        missing.setdefault(plugin, sorted(trace_file.header.get("missing", {})))
    left = [name for name in left if "dasfprof" in name]
    recorded = {"missing": missing, "counts": counts, "errors": errors}
    return {"results": results, "left": left, **recorded}


def start(path: str, directory: Path, forgotten: bool) -> tuple[int, int]:
    """Record in a child, and return its PID and the file with its result."""
    reader, writer = os.pipe()
    child = os.fork()
    if child:
        os.close(writer)
        return child, reader
    try:
        told = record(path, directory, forgotten)
    except BaseException:
        told = {"failed": traceback.format_exc()}
    os.write(writer, json.dumps(told).encode())
    os._exit(0)


def main(directory: Path, names: list[str]) -> None:
    waiting, running = list(enumerate(names)), []
    while waiting or running:
        while waiting and len(running) < AT_A_TIME:
            number, name = waiting.pop(0)
            path = name.removeprefix("-")
            running.append((path, *start(path, directory / str(number), name != path)))
        path, child, reader = running.pop(0)
        with open(reader, "rb") as answer:
            text = answer.read()
        os.waitpid(child, 0)
        print(json.dumps({"name": path, **json.loads(text)}), flush=True)


if __name__ == "__main__":
    find_code()
    with dask.config.set({"dataframe.convert-string": False}):
        main(Path(sys.argv[1]), sys.argv[2:])
