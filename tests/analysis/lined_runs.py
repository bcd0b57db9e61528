"""Runs with known lines of the program, as files of their plugins."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from traces import Plugin, T, row
from traces.hung import ADDRESS

from dasfprof import TraceAnalyser
from dasfprof.schema.profiles import TASK_SAMPLE
from dasfprof.schema.steps import CLIENT_CALLS, GRAPH_SENT, LINE, LINE_GRAPH, LINE_LAYER
from dasfprof.schema.tasks import COMPUTE, GRAPH, TASK_RUN, WORKER_ADDED
from dasfprof.schema.under_way import STACK

LOAD, SCALE, SUM, OTHER = (
    f"{name}-{digit * 32}"
    for name, digit in (("load", "a"), ("scale", "b"), ("sum", "c"), ("x", "d"))
)
FIRST, SECOND = "update-graph-1", "update-graph-2"
FILE = "/home/me/pipeline.py"
DASK = "/x/site-packages/dask/_task_spec.py"
SIZE = 1_000_000

#: Task run: key, dependencies, start, seconds, graph.
Run = tuple[Any, Sequence[Any], float, float, str]


def frames_of(function: str) -> list[list[Any]]:
    """Return the frames of a stack from a text such as ``Task.__call__ > load > read``."""
    names = function.split(" > ")
    return [[name, DASK if name == "Task.__call__" else FILE, 1] for name in names]


def write_run(
    directory: Path,
    runs: Sequence[Run],
    client: str = "c",
    kind: str | None = None,
    shape: tuple[int, ...] | None = None,
    uuid: str = "1",
    samples: Sequence[tuple[float, str]] = (),
    step: tuple[str, ...] = (),
    **more: Any,
) -> None:
    """Write the files of a worker and the scheduler for task runs of two graphs.

    The first task run has a result of `SIZE` bytes, the second of twice as many, and so on. Stack
    samples are given by time and function, or by functions that begin with Dask's call. The first
    graph is submitted in `step` if given; ``more`` has facts about all task runs.
    """
    worker = [
        row(COMPUTE, timestamp=T + start, duration=seconds, key=key, run_id=n, state="memory",
            executing=T + start, done=T + start + seconds, dependencies=list(needed),
            size=SIZE * (n + 1), type=kind, shape=shape, thread=1, **more)
        for n, (key, needed, start, seconds, _) in enumerate(runs)
    ]  # fmt: skip
    scheduler = [
        row(TASK_RUN, timestamp=T + start, duration=seconds, key=key, run_id=n, worker=ADDRESS,
            state="memory", waiting=T + start, start=T + start, stop=T + start + seconds,
            graph=graph, cause=graph, end_cause=f"task-finished-{n}")
        for n, (key, _, start, seconds, graph) in enumerate(runs)
    ]  # fmt: skip
    graphs = [
        row(GRAPH, timestamp=T + when, client=client, tasks=1, stimulus=stimulus, step=of)
        for when, stimulus, of in ((0, FIRST, step or None), (5, SECOND, None))
    ]
    functions = [*dict.fromkeys(name for _, name in samples)]
    sampled = [
        row(TASK_SAMPLE, timestamp=T + at, thread="1", stack=functions.index(name), interval=0.1,
            activity="running", cpu=0.1, run_queue=0.0)
        for at, name in samples
    ]  # fmt: skip
    Plugin(directory, run_uuid=uuid).write(
        (COMPUTE, worker),
        (STACK, [(T, n, frames_of(name), -1) for n, name in enumerate(functions)]),
        (TASK_SAMPLE, sampled),
    )
    Plugin(directory, "SchedulerPlugin", run_uuid=uuid).write(
        (TASK_RUN, scheduler),
        (GRAPH, graphs),
        (WORKER_ADDED, [row(WORKER_ADDED, timestamp=T, worker=ADDRESS, nthreads=2)]),
    )


def write_lines(
    directory: Path,
    layers: Sequence[tuple[float, int, str, list[str]]],
    graphs: Sequence[tuple[float, int, Any]] = (),
    files: Sequence[str] = (FILE,) * 4,
    uuid: str = "1",
) -> None:
    """Write the client's file about lines 1 to 4, whose ids are ten times their numbers."""
    lines = [
        row(LINE, timestamp=T - 3, id=10 * n, file=file, line=n, code="main", text=f"text {n}")
        for n, file in enumerate(files, 1)
    ]
    Plugin(directory, "StepRecorder", run_uuid=uuid).write(
        (LINE, lines),
        (LINE_LAYER, [(T + when, line, layer, inner) for when, line, layer, inner in layers]),
        (LINE_GRAPH, [(T + when, line, key) for when, line, key in graphs]),
        (GRAPH_SENT, [row(GRAPH_SENT, timestamp=T - 0.1, client="c", host="node1")]),
        (
            CLIENT_CALLS,
            [
                row(CLIENT_CALLS, timestamp=T, call="compute", file=FILE, line=number, code="main",
                    main=1, calls=1, stop=T + 1, seconds=1.0, longest=1.0, waiting=0.75)
                for number in (4, 9)
            ],
        ),
    )  # fmt: skip


def opened(
    directory: Path, runs: Sequence[Run], layers: Any = None, graphs: Any = (), **more: Any
) -> TraceAnalyser:
    write_run(directory, runs, **more)
    if layers is not None:
        write_lines(directory, layers, graphs)
    return TraceAnalyser(directory, progress=False)
