"""Rules about what the client calls and sends, and about the time before the first task."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pandas as pd

from dasfprof.analysis.diagnosis.registry import Finding, rule
from dasfprof.analysis.diagnosis.run_figures import GAP, RunFigures
from dasfprof.analysis.model.client_time import (
    LARGE,
    ClientTime,
    Stage,
    find_calls,
    find_carried,
    find_first_task,
    meanwhile,
    single_calls,
)
from dasfprof.analysis.model.critical_path import SegmentKind
from dasfprof.analysis.model.thread_time import ThreadTime
from dasfprof.analysis.numeric.intervals import union
from dasfprof.analysis.stack_samples.places import (
    BUILDS,
    IMPORTS,
    IMPORTS_DASK,
    client_fraction,
    client_line,
    client_meanwhile,
    library_of,
    traversing,
)
from dasfprof.analysis.under_way.state import Frame, is_of_user, write_frame
from dasfprof.analysis.wording import Bytes, Count, Seconds, Share
from dasfprof.text import elide

#: Threshold (fraction of wall time): a problem is reported if the client spends this much on it.
_SHARE = 0.05
#: Minimum total bytes of large results.
_MUCH = 50_000_000
#: Types whose items scatter() sends separately.
_BY_ITEM = ("builtins.dict", "builtins.list", "builtins.tuple", "builtins.set")


@rule(
    "repeated-gathers",
    explains="client-bound scheduler-bound",
    causes="tasks-too-small slow-dispatch too-few-tasks serial-chain load-imbalance",
)
def repeated_gathers(run: RunFigures) -> Iterator[Finding]:
    """Find a program that fetches its results one at a time."""
    calls = single_calls(run.trace)
    seconds = float(calls["in_vain"].sum())
    if not len(calls) or not seconds > _SHARE * run.wall:
        return
    # The event loop that fetches results in the client also sends the graphs.
    sends = bool(run.sent_large)
    call = str(calls["call"].iloc[0])
    sending = (
        "The client's event loop, which receives the results, also sends graphs with large values. "
        "How long it took to send the graphs is not recorded. "
    )
    yield Finding.of(
        "The client fetches results one at a time: {calls:call} to {call} took {receiving}, not "
        "counting the wait for results to be computed.",
        "Each call took {each} on average. Most were made at {line}. The wait for results to be "
        f"computed took {{waiting}}. {sending if sends else ''}See client_calls().",
        "Pass all collections to one dask.compute(...): their tasks then run in parallel, and "
        "intermediate results that several of them need are computed only once."
        if call == "compute"
        else "Fetch many results in one call with client.gather(list of futures), or in batches as "
        "they finish with as_completed(futures).batches(). Submit all tasks before you fetch the "
        "first result.",
        calls=Count(calls["calls"].sum()),
        call=call,
        line=line_of(run, calls),
        receiving=Seconds(calls["receiving"].sum()),
        waiting=Seconds(calls["waiting"].sum()),
        each=Seconds(calls["receiving"].sum() / calls["calls"].sum()),
        seconds=float("nan") if sends else run.fetched_singly[1],
        costs=seconds,
        of_client=True,
    )


@rule("large-gathers", explains="client-bound", causes="slow-dispatch too-few-tasks load-imbalance")
def large_gathers(run: RunFigures) -> Iterator[Finding]:
    """Find a program that fetches a lot of data from the cluster."""
    calls = find_calls(run.trace).sort_values("receiving", ascending=False, kind="stable")
    calls = calls[(calls["receiving"] > 0) & (calls["received"] >= LARGE * calls["calls"])]
    seconds, received = float(calls["receiving"].sum()), float(calls["received"].sum())
    if received < _MUCH or not seconds > _SHARE * run.wall:
        return
    yield Finding.of(
        "The client fetches {received} of results and waits {receiving} for them after they have "
        "been computed.",
        "{calls:call} fetched these results, mostly at {line}. See client_calls().",
        "Keep large results on the cluster (persist() instead of compute(), futures instead of "
        "gather()), reduce them there, or write them to storage in tasks, with to_zarr() or "
        "to_parquet().",
        received=Bytes(received),
        receiving=Seconds(seconds),
        calls=Count(calls["calls"].sum()),
        line=line_of(run, calls),
        seconds=seconds,
        of_client=True,
    )


@rule(
    "slow-tokenization",
    explains="client-bound slow-startup",
    causes="too-few-tasks serial-chain load-imbalance",
)
def slow_tokenization(run: RunFigures) -> Iterator[Finding]:
    """Find a program that hashes large objects to generate task keys."""
    calls = find_calls(run.trace).sort_values("tokenising", ascending=False, kind="stable")
    seconds = float(calls["tokenising"].sum())
    if not seconds > _SHARE * run.wall:
        return
    longest = calls.iloc[:1]
    call = str(longest["call"].iloc[0])
    what, by = _sent_at(run, longest), _handed_by(run, longest)
    yield Finding.of(
        "The client spends {hashing} hashing large objects to generate task keys.",
        "{there} of this time was spent at "
        f"{{line}}{'' if call == 'tokenising' else ', in {call}'}."
        f"{' {what} was sent from this line.' if what else ''} See client_calls().",
        _SPARED.get(by, _SPARED_BY_ANY),
        hashing=Seconds(seconds),
        line=line_of(run, longest),
        call=call,
        there=Seconds(longest["tokenising"].iloc[0]),
        what=what,
        by=by,
        seconds=_not_beside_tasks(run, calls),
        of_client=True,
    )


def _not_beside_tasks(run: RunFigures, calls: pd.DataFrame) -> float:
    """Estimate for how many seconds `calls` hashed values while the cluster had no task."""
    begin = run.trace.begin + run.begin
    end, seconds = begin + run.wall, calls["tokenising"].to_numpy(dtype=float)
    start, stop = (calls[name].to_numpy(dtype=float) for name in ("time", "stop"))
    within = np.clip(np.fmin(stop, end) - np.fmax(start, begin), 0.0, None)
    inside = float((seconds * within / np.fmax(stop - start, 1e-9)).sum())
    idle = run.seconds_of(ThreadTime.NOTHING_SUBMITTED, ThreadTime.NO_RUNNABLE_TASK)
    return float(seconds.sum()) - inside + min(inside, idle)


_OR_ONCE = ". If several tasks use the same value, you can also scatter it once with hash=False."
#: Advice about hashing, by the name of the function that receives the value.
_SPARED = {
    "from_pandas": "Read the table in tasks (dd.read_parquet(), dd.from_map()) instead of "
    "passing it to from_pandas(), which hashes and sends it each time.",
    "from_sequence": "Read the items in tasks (db.read_text(), or map() over a list of file names) "
    "instead of passing them to from_sequence(), which hashes and sends them.",
    "from_array": "Pass name=False to from_array(), which then does not hash the array.",
    "scatter": "Pass hash=False to scatter(), which then does not hash the value.",
    **dict.fromkeys(("submit", "map"), f"Pass pure=False to submit() and map(){_OR_ONCE}"),
    "delayed": "Pass dask_key_name= when you call a delayed function, or name= to "
    f"delayed(value){_OR_ONCE}",
}
_SPARED_BY_ANY = (
    "Set the keys yourself so that Dask does not hash values: name=False in from_array(), "
    "pure=False in submit() and map(), dask_key_name= for delayed functions. Read large tables in "
    f"tasks{_OR_ONCE}"
)
_HANDS = re.compile(rf"\b({'|'.join(_SPARED)})\(")


def _handed_by(run: RunFigures, calls: pd.DataFrame) -> str:
    """Return the Dask function that received the values that were hashed in the first of `calls`.

    The result is empty if the source line of the call names no such function, or several.
    """
    first, lines = calls.iloc[0], run.trace.lines
    if first["call"] in _SPARED:
        return str(first["call"])
    there = (lines["file"].astype(object) == first["file"]) & (lines["number"] == first["line"])
    texts = [text for text in lines["text"][there.to_numpy(dtype=bool)] if isinstance(text, str)]
    names = {name for text in texts for name in _HANDS.findall(text)}
    if names & {"from_pandas", "from_sequence", "from_array"}:
        names.discard("map")  # This is the collection's method, not Client.map.
    return names.pop() if len(names) == 1 else ""


@rule(
    "large-objects-in-graph",
    explains="slow-dispatch scheduler-bound repeated-gathers",
    causes="tasks-too-small slow-startup client-bound too-few-tasks load-imbalance "
    "slow-tokenization",
)
def large_objects_in_graph(run: RunFigures) -> Iterator[Finding]:
    """Find large functions and arguments that are embedded in each of many tasks."""
    table, (seconds, pickling, hashing, transit) = find_carried(run.trace), costs_of_carrying(run)
    if not len(table) or not seconds > _SHARE * run.wall:
        return
    largest = table.iloc[0]
    a_function, held = largest["kind"] == "function", str(largest["held"] or "")
    if a_function:
        what, where = (
            "The function {name} is embedded in the graph ({why})",
            " The function holds {held}.",
        )
        advice = (
            "Scatter the large object once and pass it as an argument: held = "
            "client.scatter([object], broadcast=True, hash=False)[0], then f(x, held). "
            "Alternatively, load it in the tasks. A function in a module that workers can import "
            "is sent by name only."
        )
    else:
        what, where = "Arguments of {name} are embedded in the graph", " The arguments are {held}."
        advice = (
            "Load the objects in the tasks. If several tasks use the same object, send it only "
            "once, as bytes: client.scatter(pickle.dumps(object), broadcast=True), then "
            "pickle.loads() in the tasks. Scattering a dict or list itself does not help, because "
            "Dask sends its items one by one."
            if held in _BY_ITEM
            else "Load the objects in the tasks. If several tasks use the same object, scatter it "
            "once and pass its future: client.scatter([object], broadcast=True, hash=False)[0]."
        )
    yield Finding.of(
        f"{what}: {{size}} in each of {{tasks:task}}. In total, {{bytes}} are pickled and "
        "unpickled, separately for each task.",
        f"The graph was sent at {{line}}.{where if held or not a_function else ''} Handling these "
        "tasks takes up to {handling} longer than handling tasks without large values. Pickling "
        "graphs in the client takes {pickling}, and hashing takes {hashing}. For {transit}, the "
        "cluster had no tasks while such graphs were in transit. See sent_values().",
        advice,
        name=str(largest["name"]),
        kind=str(largest["kind"]),
        size=Bytes(largest["size"]),
        tasks=Count(largest["tasks"]),
        bytes=Bytes(largest["size"] * largest["tasks"]),
        why=str(largest["why"]),
        held=held,
        line=line_of(run, table),
        handling=Seconds(run.carrying_on_path),
        pickling=Seconds(pickling),
        hashing=Seconds(hashing),
        transit=Seconds(transit),
        seconds=seconds,
        of_client=True,
    )


def costs_of_carrying(run: RunFigures) -> tuple[float, float, float, float]:
    """Return the wall seconds that large objects in graphs cost.

    The first value is the total, which includes the handling of tasks. The other values are the
    seconds of pickling, of hashing and of sending.
    """
    table = find_carried(run.trace)
    calls = find_calls(run.trace).merge(table[["file", "line"]].drop_duplicates())
    transit = _in_transit(run, int(table["graphs"].sum())) if len(table) else 0.0
    parts = float(calls["pickling"].sum()), _not_beside_tasks(run, calls), transit
    first = find_first_task(run.trace)
    before = 0.0 if first is None else first.late
    # The three parts and the handling of tasks may overlap. Together, they cost at most the time
    # before the first task, and the time of the critical path in which no function runs.
    limit = before + max(run.wall - run.path_seconds(SegmentKind.COMPUTE), 0.0)
    return min(run.carrying_on_path + sum(parts), limit), *parts


def _in_transit(run: RunFigures, graphs: int) -> float:
    """Estimate for how many seconds the cluster had no tasks while large graphs were in transit.

    `graphs` is the number of graphs with large values.
    """
    path = run.path_segments
    gaps = np.flatnonzero((path.kind == SegmentKind.CLIENT) & (path.length >= GAP))
    begins = run.trace.begin + path.begin[gaps]
    spans = union(begins, begins + path.length[gaps])
    # The waits are for all graphs. So they are multiplied by the fraction of large graphs.
    share, by_class = min(graphs / max(len(run.trace.graphs), 1), 1.0), meanwhile(run.trace, *spans)
    if by_class:
        return share * by_class[ClientTime.WAITING]
    # Rows that sum up many calls do not show what the client did in each gap, but its samples do.
    waiting = client_fraction(run.trace, *spans, phase="waiting")
    return share * waiting * float((spans[1] - spans[0]).sum())


def line_of(run: RunFigures, calls: pd.DataFrame) -> str:
    """Return the user's line that made the first of `calls`, or the library's line if unknown."""
    first = calls.iloc[0]
    if not isinstance(first["file"], str):
        return "an unknown line"
    frame = Frame(str(first["code"]), first["file"], int(first["line"]))
    if not is_of_user(frame) and {"time", "stop"} <= {*calls.columns}:
        above = client_line(run.trace, float(first["time"]), float(first["stop"]))
        if above is not None:
            return f"{write_frame(above)}, in {library_of(frame.file)}"
    return write_frame(frame)


def _sent_at(run: RunFigures, calls: pd.DataFrame) -> str:
    """Describe the largest value that was sent from the line of the first call, or return ""."""
    first, values = calls.iloc[0], run.trace.sent_values
    there = (values["file"].astype(object) == first["file"]) & (values["line"] == first["line"])
    sent_here = values[there.to_numpy(dtype=bool)].sort_values("size", kind="stable")
    largest = sent_here.tail(1).to_dict("records")
    return "".join(f"A {value['held']} of {Bytes(value['size'])}" for value in largest)


#: Threshold: delay of the first task, as a fraction of the time from the start of recording to the
#: end of the last task.
_LATE = 0.1
#: Threshold (fraction of the delay): time in which delayed() traverses the items of values.
_TRAVERSED = 0.3
#: Threshold (bytes): values in the first graph that are reported.
_LARGE_VALUES = 10_000_000

#: Advice by the stage that takes most of the time.
_CHANGES = {
    Stage.PROGRAM: "Start with the work that is ready: submit it with persist() or submit(). Then "
    "read, import and build everything else while the cluster works. Read inputs in tasks instead "
    "of in your script. See client_activity() for the lines.",
    Stage.OPTIMISING: "Reduce the number of partitions and layers that Dask has to optimize: use "
    "larger chunks and fewer columns, and call persist() once on collections that several "
    "computations share.",
    Stage.PICKLING: "Keep large objects out of the graph: load them in tasks, or client.scatter() "
    "them once.",
    Stage.SENDING: "Keep large objects out of the graph (client.scatter() them once), and check "
    "what blocks the event loops of the client and the scheduler.",
    Stage.SCHEDULER: "Give the scheduler a smaller graph: larger chunks make fewer tasks. Keep "
    "large objects out of it, because the scheduler unpickles them.",
}
#: Advice if samples show that the script was building graphs during the delay.
_BUILDING = (
    "Build a smaller graph with fewer, larger calls: use one delayed function for a batch of "
    "inputs or for several steps, and map() instead of a loop. Call persist() on parts as you "
    "build them, because each Dask call may traverse the complete graph that it is given. See "
    "client_activity() for the lines."
)

#: Advice if samples show that the script was importing during the delay.
_IMPORTING = (
    "Import libraries inside the functions that need them, after the first tasks have been "
    "submitted. This is worthwhile only if your runs are as short as this one: a program imports "
    "once, so this cost does not grow with the length of the run."
)


#: Advice if the script built graphs, and delayed() mostly traversed the items of values.
_TRAVERSING = (
    "Wrap large lists and dicts once, with dask.delayed(value, traverse=False), before the calls "
    "that share them: each call of a delayed function goes over all items of its arguments. Most "
    "of this time is spent at {at}."
)


@rule("slow-startup")
def slow_startup(run: RunFigures) -> Iterator[Finding]:
    """Find a long delay before the first task reaches the scheduler."""
    first_task = find_first_task(run.trace)
    if first_task is None:
        return
    total = run.wall + first_task.late
    if not first_task.late > _LATE * total:
        return
    first = float(run.trace.graphs["time"].min())
    client = client_meanwhile(run.trace, np.array([first - first_task.late]), np.array([first]))
    longest = max(
        (stage for stage in _CHANGES if np.isfinite(first_task.stages[stage])),
        key=lambda stage: first_task.stages[stage],
        default=Stage.PROGRAM,
    )
    if longest is Stage.PROGRAM and IMPORTS_DASK in client:
        return  # A program cannot use Dask before it is imported.
    builds = longest is Stage.PROGRAM and BUILDS in client
    imports = longest is Stage.PROGRAM and IMPORTS in client
    over_items = traversing(run.trace, first - first_task.late, first) if builds else 0.0
    over_items = over_items if over_items >= _TRAVERSED * first_task.late else 0.0
    build = _TRAVERSING if over_items else _BUILDING
    at = client_line(run.trace, first - first_task.late, first)
    change, value = _IMPORTING if imports else build if builds else _CHANGES[longest], ""
    sent = run.trace.sent_values
    sent = sent[sent["time"].to_numpy(dtype=float) <= first]
    size = (sent["size"] * sent["tasks"]).to_numpy(dtype=float)
    carries = bool(size.sum() >= _LARGE_VALUES)
    if carries:
        value = (
            "The first graph contains {by_value} of embedded values, most of them in {holds}: see "
            "sent_values(). "
        )
        # Wrapped values are embedded in a single task, so nothing large is left to scatter.
        # Other stages than these do not handle the values.
        if builds and not over_items:
            change = f"{_CHANGES[Stage.PICKLING]} {change}"
    parts = ", ".join(f"{stage.value} {Seconds(first_task.stages[stage])}" for stage in _CHANGES)
    yield Finding.of(
        "The first task reaches the scheduler only after {late}, which is {share} of the time "
        f"until the {'last task finishes' if run.end is None else 'run ends'}.",
        f"Times that the client measured: {parts}. {{client}}{value}See time_to_first_task().",
        change,
        late=Seconds(first_task.late),
        share=Share(first_task.late / total),
        ended=run.end is None,
        stages={stage.value: Seconds(first_task.stages[stage]) for stage in _CHANGES},
        client=client,
        by_value=Bytes(size.sum()) if carries else None,
        holds=elide(str(sent["name"].iloc[size.argmax()]), 60) if carries else None,
        at="several lines" if at is None else write_frame(at),
        seconds=over_items or float("nan"),
        costs=first_task.late,
        of_client=bool(over_items),
        at_most="low" if imports else "high" if over_items else "medium",
    )
