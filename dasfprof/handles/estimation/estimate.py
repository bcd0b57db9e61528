"""`estimate`: the expected cost of a graph, before anything is computed."""

from __future__ import annotations

import gc
import pickle
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from math import nan
from typing import TYPE_CHECKING, Any

import dask
import numpy as np

from dasfprof.analysis.comparison.runs import Sources, open_side
from dasfprof.analysis.history.summary import Experience
from dasfprof.analysis.run.memory_thresholds import MemoryThresholds
from dasfprof.analysis.simulation.inputs import inputs_before_a_run
from dasfprof.analysis.simulation.memory import peak_before_run
from dasfprof.errors import DoesNotFit, InvalidArgumentError
from dasfprof.handles.estimation.assumed_cluster import AssumedCluster, assumed_cluster
from dasfprof.handles.estimation.facts import LayerFacts, inputs_first, layer_facts, line_text
from dasfprof.handles.estimation.warned import Warned, find_warnings
from dasfprof.recording.dask_internals.captured_graphs import (
    NeedsComputingError,
    capture_graph,
    optimised_expression,
)
from dasfprof.recording.dask_internals.graphs import place_hooks, remove_hooks, watch_collections
from dasfprof.recording.dask_internals.layer_sizes import built_layers
from dasfprof.recording.dask_internals.sent_graphs import SentGraph, sent_graph
from dasfprof.text import count_of, escape, format_duration, format_size

if TYPE_CHECKING:
    import pandas as pd

#: Maximum number of tasks in a graph that is replayed, and that is pickled to find its size.
MOST_REPLAYED = 100_000
#: Columns of `Estimate.layers` that only programs need.
_FOR_PROGRAMS = ["Layer", "Takes", "Unknown"]


def estimate(
    collection: object,
    *,
    workers: int | Sequence[int] | None = None,
    memory_limit: int | float | str | None = None,
    history: Sources | None = None,
) -> Estimate:
    """Estimate the cost of a graph without computing anything.

    Dask optimizes a copy of the graph as ``collection.compute()`` would. Only the footers of
    Parquet files and the metadata of stored arrays are read.

    Parameters
    ----------
    collection
        An array, a dataframe, a bag, a delayed function, or an object of another library such as
        xarray. To get the source lines of layers, pass a function that builds and returns such a
        collection, or build the collection while this process records a run.
    workers
        Number of workers, or a list with the threads of each. The default is the workers of the
        current client or, without a client, one worker with a thread per core.
    memory_limit
        Memory of each worker, in bytes or as a text such as ``"4 GiB"``. The default is the memory
        of the current client's workers, which is used only for warnings.
    history
        Earlier runs from which the seconds of each layer are estimated (``Expected (s)``). Pass a
        directory of runs, a `TraceAnalyser`, any source that `open_run` accepts, or a list of
        these.

    Returns
    -------
    Estimate
        The layers and tasks of the graph, its peak memory, and warnings.

    Raises
    ------
    DoesNotFit
        If `memory_limit` is given, and a worker would certainly need more for results alone. If
        sizes are unknown, nothing is raised, and `Estimate.peak_unknown` says why.
    InvalidArgumentError
        If there is no collection, or an argument has another type.
    SourceNotFoundError, NotATraceError
        If `history` is missing or not a trace.

    Examples
    --------
    >>> dasfprof.estimate(array.sum(), workers=4, memory_limit="8 GiB")  # doctest: +SKIP
    """
    experience = None
    if isinstance(history, Sequence) and not history:
        raise InvalidArgumentError(
            f"history={history!r} contains no run. Pass a directory with runs."
        )
    if history is not None:
        experience = Experience(run.trace for run in open_side(history))
    cluster = assumed_cluster(workers, memory_limit)
    if callable(collection) and not dask.is_dask_collection(collection):
        place_hooks()
        try:
            watch_collections()
            result = _of_collection(collection(), cluster, experience)
        finally:
            remove_hooks()
    else:
        result = _of_collection(collection, cluster, experience)
    if memory_limit is not None:
        check_memory(result)
    return result


@dataclass(eq=False)
class Estimate:
    """The expected tasks, bytes and peak memory of a graph, with warnings. See `estimate`."""

    #: One row per layer of the optimized graph, inputs first: ``Layer`` (NA if its keys are text),
    #: ``Function``, ``Line`` that built it, ``Tasks``, ``Chunks``, ``Largest Chunk`` and ``Bytes``,
    #: ``Growth`` (ratio of its bytes to its largest input's), ``Takes`` (rows of its inputs),
    #: ``Unknown`` (why bytes are NA). With history: ``Expected (s)`` (thread seconds), ``Rests
    #: On`` (``line``, ``function`` or ``nothing recorded``), ``Runs`` and ``Task Runs``.
    layers: pd.DataFrame
    #: One row per warning: ``Severity``, ``Finding``, ``Suggestion``, ``Line``.
    warnings: pd.DataFrame
    #: Number of tasks that Dask would send to the scheduler, or None if unknown.
    tasks: int | None
    #: Bounds of the peak bytes of results on the worker with most results, or None if unknown.
    peak_bytes: tuple[float, float] | None
    #: Why the tasks or the peak are unknown, or an empty text.
    peak_unknown: str
    #: Assumed workers: number of threads of each, and memory in bytes (None if unknown).
    threads: list[int]
    memory_limit: float | None
    #: Free bytes on the disk to which the current client's workers spill, or None if unknown.
    free_disk: int | None = None
    #: Maximum bytes of results that the fullest worker spills to disk with Dask's default
    #: thresholds. None if this or the memory of workers is unknown.
    spilled_bytes: float | None = None
    #: Bytes of the graph as it is sent, and seconds that Dask needed to optimize it, or None if
    #: unknown.
    graph_bytes: int | None = None
    optimize_seconds: float | None = None
    #: Reason why the graph certainly does not fit into memory, with layer and line, or None.
    _excess: tuple[str, str, str | None] | None = None

    def to_dict(self) -> dict[str, object]:
        """Return the estimate as dicts and lists. ``dasfprof estimate --json`` prints them."""
        from dasfprof.report.documents import plain, records, schema_of

        tables = {"layers": records(self.layers), "warnings": records(self.warnings)}
        names = ("tasks", "peak_unknown", "threads", "memory_limit", "spilled_bytes", "free_disk")
        figures = {
            name: getattr(self, name) for name in (*names, "graph_bytes", "optimize_seconds")
        }
        bounds = self.peak_bytes and dict(zip(("least", "most"), self.peak_bytes, strict=True))
        return dict(
            plain({"schema": schema_of("estimate"), "peak_bytes": bounds, **figures, **tables})
        )

    def _sentences(self) -> list[str]:
        if self.tasks is None:
            return [f"The graph cannot be estimated: {self.peak_unknown}."]
        tasks, layers = count_of(self.tasks, "task"), count_of(len(self.layers), "layer")
        size = "" if self.graph_bytes is None else f", {format_size(self.graph_bytes)} as sent"
        sentences = [f"{tasks} in {layers}{size}."]
        if self.optimize_seconds is not None:
            seconds = format_duration(self.optimize_seconds)
            sentences.append(f"Dask optimized the graph in {seconds}.")
        if self.peak_bytes is None:
            return [*sentences, f"The peak of memory is unknown: {self.peak_unknown}."]
        low, high = map(format_size, self.peak_bytes)
        threads = count_of(sum(self.threads), "thread")
        sentences += [
            f"On {count_of(len(self.threads), 'worker')} with {threads} in total, the fullest "
            f"worker holds {low} to {high} of results at a time.",
            "The process itself, and running tasks, need additional memory.",
        ]
        if self.spilled_bytes:
            size = format_size(self.spilled_bytes)
            sentences.append(f"It spills up to {size} of these results to its local disk.")
        return sentences

    def __repr__(self) -> str:
        from dasfprof.report.terminal.tables import format_table

        lines = self._sentences()
        for severity, finding, suggestion, line in self.warnings.itertuples(index=False):
            lines.append(f"{severity}: {line or 'line unknown'}: {finding} {suggestion}")
        return "\n".join([*lines, format_table(self._shown(), 100) if len(self.layers) else ""])

    def _repr_html_(self) -> str:
        text = "".join(f"<p>{escape(sentence)}</p>" for sentence in self._sentences())
        tables = [table for table in (self.warnings, self._shown()) if len(table)]
        return text + "".join(table.to_html(index=False, na_rep="") for table in tables)

    def _shown(self) -> pd.DataFrame:
        """Return the table of layers to print, with sizes as text, and without `_FOR_PROGRAMS`."""
        sizes = self.layers[["Largest Chunk", "Bytes"]].map(
            lambda size: None if np.isnan(size) else format_size(size)
        )
        return self.layers.assign(**sizes).drop(columns=_FOR_PROGRAMS)


def check_memory(estimated: Estimate) -> None:
    """Raise `DoesNotFit` if a graph certainly needs more memory than its workers have."""
    if estimated._excess is not None:
        what, layer, line = estimated._excess
        at = "" if line is None else f" (built at {line})"
        limit = format_size(estimated.memory_limit or 0)
        raise DoesNotFit(f"{what}{at}, and each worker has {limit} of memory.", layer, line)


def _of_collection(
    collection: Any, cluster: AssumedCluster, experience: Experience | None
) -> Estimate:
    if not dask.is_dask_collection(collection):
        raise InvalidArgumentError(
            f"{collection!r} of type {type(collection).__name__} is not a collection of Dask. "
            "Pass an array, a dataframe, a bag or a delayed function that has not been computed."
        )
    try:
        graph, keys, seconds = capture_graph(collection)
        source = optimised_expression(collection)
    except NeedsComputingError as error:
        reason = f"Dask computes {str(error)!r} before it can build the graph"
        return Estimate(
            *(_layers_table([], None), _warnings_table([]), None, None, reason),
            **asdict(cluster),
        )
    source = collection.__dask_graph__() if source is None else source
    result = estimate_graph(graph, keys, [graph, source], cluster, experience)
    result.optimize_seconds = seconds
    return result


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Pause Python's garbage collector, which would traverse all tasks of a graph many times."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@_without_garbage_collection()
def estimate_graph(
    graph: Any,
    keys: Any,
    sources: Sequence[Any],
    cluster: AssumedCluster,
    experience: Experience | None = None,
) -> Estimate:
    """Estimate the cost of a graph that Dask would send.

    Parameters
    ----------
    graph, keys
        The graph that Dask would send, and the requested keys.
    sources
        Graphs and expressions from which the layers and the sizes of their chunks are read, such as
        the optimized expression of a dataframe.
    experience
        Durations from earlier runs.
    """
    built = built_layers(sources)
    # Dask pickles the graph without its single tasks.
    is_small = sum(layer.tasks for layer in built.values()) <= MOST_REPLAYED
    size = _graph_bytes(graph) if is_small else None
    sent = sent_graph(graph, keys)
    facts, low, high = layer_facts(sent, built)
    peak, unknown, heaviest = _peak(sent, facts, (low, high), cluster.threads)
    limit = cluster.memory_limit
    spilled = None
    if peak is not None and limit is not None:
        spilled = max(peak[1] - MemoryThresholds.target * limit, 0.0)
    warned = find_warnings(built, facts, sent, cluster.threads, limit)
    if spilled and cluster.free_disk is not None and spilled > cluster.free_disk:
        warned.append(_short_disk(spilled, cluster.free_disk))
    return Estimate(
        _layers_table(facts, experience),
        _warnings_table(warned),
        len(sent),
        peak,
        unknown,
        **asdict(cluster),
        spilled_bytes=spilled,
        graph_bytes=size,
        _excess=_excess(facts, peak, heaviest, limit),
    )


def _short_disk(spilled: float, free: int) -> Warned:
    """Return the warning that a worker may spill more data than fits on its disk."""
    return Warned(
        "medium",
        f"A worker spills up to {format_size(spilled)}, and its disk has {format_size(free)} free.",
        'Use more workers or memory, or set "temporary-directory" of Dask to a larger disk.',
        None,
    )


def _graph_bytes(graph: Any) -> int | None:
    """Return the size of a graph in bytes when it is sent, or None if it cannot be pickled."""
    from distributed.protocol.pickle import dumps

    buffers: list[pickle.PickleBuffer] = []
    try:
        text = dumps(graph, buffer_callback=buffers.append)
        return len(text) + sum(buffer.raw().nbytes for buffer in buffers)
    except Exception:  # Objects in the graph may raise any error.
        return None


def _peak(
    sent: SentGraph,
    facts: list[LayerFacts],
    bounds: tuple[np.ndarray, np.ndarray],
    threads: list[int],
) -> tuple[tuple[float, float] | None, str, int]:
    """Return three facts about the peak bytes of results on a worker.

    The first fact is a pair of bounds of the peak, or None if they are unknown. The second is the
    reason why they are unknown, or an empty text. The third is the index of the layer that has the
    most bytes at the peak, or -1 if the bounds are unknown.
    """
    if len(sent) > MOST_REPLAYED:
        return None, f"graphs of more than {MOST_REPLAYED:,} tasks are not replayed", -1
    unknown = np.flatnonzero(~np.isfinite(bounds[1]))
    if len(unknown):
        fact = facts[int(sent.layer_of[unknown[-1]])]
        at = "" if fact.place is None else f" ({line_text(fact.place)})"
        return None, f"the size of the results of {fact.function!r}{at} is unknown", -1
    functions = [fact.function for fact in facts]
    graph = (sent.input_offsets, sent.inputs, sent.priorities(), sent.layer_of)
    inputs = inputs_before_a_run(*graph, functions)
    low, high, layer = peak_before_run(inputs, *bounds, sent.wanted, np.array(threads))
    return (low, high), "", layer


def _excess(
    facts: list[LayerFacts],
    peak: tuple[float, float] | None,
    heaviest: int,
    limit: float | None,
) -> tuple[str, str, str | None] | None:
    """Return why a graph certainly exceeds the memory limit of a worker, with layer and line.

    Return None if this is not certain. `heaviest` is the index of the layer that has the most bytes
    at the peak.
    """
    if limit is None:
        return None
    for fact in (facts[number] for number in inputs_first(facts)):
        if fact.most > limit:
            what = f"a chunk of {fact.made_by!r} has {format_size(fact.most)}"
            return what, fact.made_by, fact.made_at
    if peak is None or peak[0] <= limit:
        return None
    fact = facts[heaviest]
    what = f"a worker holds at least {format_size(peak[0])} of results at a time, most of them of"
    return f"{what} {fact.function!r}", fact.name or fact.function, line_text(fact.place)


def _layers_table(facts: list[LayerFacts], experience: Experience | None) -> pd.DataFrame:
    import pandas as pd

    order = inputs_first(facts)
    row_of = {number: row for row, number in enumerate(order)}
    rows: list[dict[str, Any]] = []
    for fact in (facts[number] for number in order):
        # A node without a name is not a collection. For example, it may be the store of the chunks.
        inputs = [facts[number] for number in fact.takes]
        before = max((each.total for each in inputs if each.name is not None), default=nan)
        row = {
            "Layer": fact.name,
            "Function": fact.function,
            "Line": line_text(fact.place),
            "Tasks": fact.tasks,
            "Chunks": None if fact.name is None else fact.tasks,
            "Largest Chunk": fact.largest,
            "Bytes": fact.total,
            "Growth": fact.total / before if before > 0 else nan,
            "Takes": ", ".join(str(row_of[number]) for number in fact.takes),
            "Unknown": fact.unknown,
        }
        if experience is not None:
            expected = experience.expect(
                fact.function, None if fact.place is None else fact.place[:2]
            )
            row["Expected (s)"] = (
                None if expected.seconds is None else expected.seconds * fact.tasks
            )
            row |= {"Rests On": expected.basis, "Runs": expected.runs, "Task Runs": expected.tasks}
        rows.append(row)
    table = pd.DataFrame(rows, columns=None if rows else _COLUMNS, dtype=object)
    numbers = {name: float for name in (*_SIZES, "Expected (s)") if name in table}
    counts = {name: int for name in ("Tasks", "Runs", "Task Runs") if name in table}
    return table.astype({**numbers, **counts, "Chunks": "Int64"})


_SIZES = ("Largest Chunk", "Bytes", "Growth")
_COLUMNS = ["Layer", "Function", "Line", "Tasks", "Chunks", *_SIZES, "Takes", "Unknown"]


def _warnings_table(warned: Sequence[Warned]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(warned, columns=["Severity", "Finding", "Suggestion", "Line"], dtype=object)
