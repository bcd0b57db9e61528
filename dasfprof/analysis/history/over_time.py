"""`history`: the runs of a directory as a table, and the trend of their wall time."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd

from dasfprof.analysis.diagnosis.registry import SEVERITIES
from dasfprof.analysis.history.summary import (
    file_states,
    keep,
    read_kept,
    read_trace,
    stays,
    summarise_run,
)
from dasfprof.analysis.numeric.groups import ratio
from dasfprof.analysis.numeric.significance import CERTAIN, FEWEST, kendall_p, slope_of
from dasfprof.analysis.run import Run
from dasfprof.analysis.tables.columns import utc
from dasfprof.analysis.trace.progress import is_wanted, track
from dasfprof.config import setting
from dasfprof.config.kinds import Price
from dasfprof.database import find_runs
from dasfprof.errors import InvalidArgumentError, SourceNotFoundError
from dasfprof.text import count_of, format_duration

By = Literal["name", "graph"]

#: How it is called that a run did not end, or has not yet.
NOT_ENDED, GOES_ON = "did not end", "goes on"
_PACKAGES = ("dasfprof", "dask", "distributed", "python")


def history(
    directory: str | os.PathLike[str] = ".",
    *,
    by: By = "name",
    price: float | str | None = None,
    progress: bool | None = None,
) -> pd.DataFrame:
    """List the runs of a directory, and of the directories in it, over time.

    Parameters
    ----------
    directory
        Where the runs are.
    by
        What makes runs those of one pipeline: ``"name"`` (without the time that registration adds
        to it) or ``"graph"`` (the same functions, each with as many tasks).
    price
        What a worker costs for an hour, see `TraceAnalyser.cost`; None: the setting
        ``dasfprof.price``.
    progress
        See `TraceAnalyser`.

    Returns
    -------
    DataFrame
        A row a run, pipeline by pipeline, the oldest first: ``Pipeline``, ``Run``,
        ``Began (UTC)``, ``Wall Time (s)`` (from the first submission to the last finish),
        ``Efficiency (%)`` (share of the threads' time in which functions ran), ``Task Runs``,
        ``Failed``, ``Findings`` (their number by severity), ``Versions``, and ``Change``:
        ``did not end``, or ``goes on`` and what is left, as far as that is known; ``other graph``
        than the run before; else empty. ``Directory``: where its files are. With a price also
        ``Worker Hours``, ``Idle (%)`` of them and ``Cost``; ``attrs["paid"]`` then has for each row
        worker-hours and cost by client, idle ones among them, and ``attrs["currency"]`` the price's
        label. ``attrs["trends"]`` has a dict for each pipeline, see Notes.

    Raises
    ------
    SourceNotFoundError
        If there is no such directory, or no run in it.

    Notes
    -----
    The trend of a pipeline is that of the wall times of its runs since the graph last changed:
    ``Pipeline``, ``Runs`` (all of them), ``Compared Runs`` (that ended, of one graph),
    ``Slope (%)`` (change per run by Theil and Sen, relative to the median wall time), ``p-Value``
    (of the test by Mann and Kendall, NaN below eight compared runs) and ``Trend``: ``slower`` or
    ``faster`` if the p-value is below 0.01, else ``none``, or ``unknown`` below eight runs.

    Summaries are kept in the file
    ``.dasfprof-history.json`` of each directory, so that only new runs are read; ``dasfprof run``
    writes that of its run.
    """
    if by not in get_args(By):
        raise InvalidArgumentError(f"by={by!r}: give one of {', '.join(get_args(By))}.")
    root = Path(directory)
    if not root.is_dir():
        raise SourceNotFoundError(f"there is no directory {os.fspath(directory)!r}.")
    shown = is_wanted(progress)
    places = [root, *sorted(path for path in root.iterdir() if path.is_dir())]
    runs = [
        {**summary, "directory": os.fspath(place)}
        for place in places
        for summary in _summaries(place, progress=shown)
    ]
    if not runs:
        raise SourceNotFoundError(f"there is no run in {os.fspath(directory)!r}.")
    runs.sort(key=lambda run: (str(run["pipeline"]), run["begin"] or 0.0))
    pipelines: dict[str, list[dict[str, Any]]] = {}
    for run in runs:
        pipelines.setdefault(run["shape"] if by == "graph" else run["pipeline"], []).append(run)
    ordered, changes, trends = [], [], []
    for members in pipelines.values():
        members.sort(key=lambda run: run["begin"] or 0.0)
        ordered += members
        changes += _changes_of(members)
        trends.append(_trend_of(members))
    table = _table(ordered, changes)
    table.attrs["trends"] = trends
    declared: Price | None = setting("price", price)
    return table if declared is None else _priced(table, ordered, declared)


def _priced(table: pd.DataFrame, runs: list[dict[str, Any]], price: Price) -> pd.DataFrame:
    """Add what runs cost, and who paid for that."""
    none = (0.0, 0.0)
    paid: list[dict[str, tuple[float, float]]] = []
    for run in runs:
        idle = {f"({name})": run["hours"].get(name, none) for name in ("waiting", "idle")}
        spent = {**run["clients"], **idle}
        paid.append({name: (each[0], price.of_hours(*each)) for name, each in spent.items()})
    whole = [run["hours"].get("whole", none) for run in runs]
    hours = np.array([workers for workers, _ in whole], dtype=float)
    unused = np.array([own["(waiting)"][0] + own["(idle)"][0] for own in paid], dtype=float)
    place = table.columns.tolist().index("Task Runs")
    cost = [price.of_hours(*each) for each in whole]
    table.insert(place, "Worker Hours", pd.Series(hours))
    table.insert(place + 1, "Idle (%)", pd.Series(ratio(unused, hours) * 100))
    table.insert(place + 2, "Cost", pd.Series(cost, dtype=float))
    table.attrs |= {"paid": paid, "currency": price.label}
    return table


def paid_by_client(table: pd.DataFrame) -> pd.DataFrame:
    """Sum up what the runs of a history cost by client, the dearest first; idle hours come last.

    Parameters
    ----------
    table
        What `history` gives with a price.

    Returns
    -------
    DataFrame
        ``Client``, ``Runs``, ``Worker Hours``, ``Cost``.
    """
    sums: dict[str, list[float]] = {}
    for run in table.attrs["paid"]:
        for name, (hours, cost) in run.items():
            own = sums.setdefault(name, [0, 0.0, 0.0])
            own[0], own[1], own[2] = own[0] + 1, own[1] + hours, own[2] + cost
    idle = ("(waiting)", "(idle)")
    names = sorted(sums, key=lambda name: (name in idle, -sums[name][2], name))
    return pd.DataFrame(
        {
            "Client": pd.Series(names, dtype=object),
            "Runs": [int(sums[name][0]) for name in names],
            "Worker Hours": [sums[name][1] for name in names],
            "Cost": [sums[name][2] for name in names],
        }
    )


def _summaries(directory: Path, *, progress: bool) -> list[dict[str, Any]]:
    """Sum up the runs in a directory, of which those that are known are not read."""
    try:
        states = file_states(directory)
    except OSError:
        return []
    kept = read_kept(directory, states)
    known = {name for files, _ in kept for name in files}
    new = [directory / name for name in states if name not in known]
    runs = find_runs(directory, new) if new else []
    going_on = []
    for run in track(runs, "Summing up runs", shown=progress, total=len(runs), unit="run"):
        trace = read_trace(run)
        summary = summarise_run(run, trace)
        if stays(trace):
            kept.append(({path.name: states[path.name] for path in run.files}, summary))
        else:
            going_on.append(summary)
    if len(runs) > len(going_on):
        keep(directory, kept)
    return [summary for _, summary in kept] + going_on


def keep_summary(files: list[Path], trace: Run) -> None:
    """Keep the summary of a run that has just been analysed, as `history` does.

    Parameters
    ----------
    files
        All files of the run. Of one in several directories, no summary is kept.
    trace
        What is in them.
    """
    directories = {path.parent for path in files}
    if len(directories) == 1 and stays(trace):
        (directory,) = directories
        states = file_states(directory)
        (run,) = find_runs(directory, files)
        own = {path.name: states[path.name] for path in run.files}
        others = [kept for kept in read_kept(directory, states) if not kept[0].keys() & own.keys()]
        keep(directory, [*others, (own, summarise_run(run, trace))])


def kept_runs(directory: Path) -> list[dict[str, Any]]:
    """Return the summaries that are kept in a directory, the oldest first; no run is read."""
    try:
        kept = read_kept(directory, file_states(directory))
    except OSError:
        return []
    return sorted((summary for _, summary in kept), key=lambda run: run["begin"] or 0.0)


def _changes_of(runs: list[dict[str, Any]]) -> list[str]:
    """Return for each run of a pipeline what ``Change`` of `history` says of it."""
    changes, shape = [], None
    for run in runs:
        if not _counts(run):
            changes.append(_unended(run))
            continue
        changes.append("other graph" if shape not in (None, run["shape"]) else "")
        shape = run["shape"]
    return changes


def _trend_of(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the trend of the wall times since the graph last changed; see `history`."""
    complete = [run for run in runs if _counts(run)]
    same = len(complete)
    while same and complete[same - 1]["shape"] == complete[-1]["shape"]:
        same -= 1
    walls = np.array([run["seconds"] for run in complete[same:]], dtype=float)
    p_value = kendall_p(walls)
    slope = slope_of(walls) / float(np.median(walls)) * 100 if len(walls) > 1 else np.nan
    trend = "unknown" if len(walls) < FEWEST else "none"
    if p_value < CERTAIN:
        trend = "slower" if slope > 0 else "faster"
    return {
        "Pipeline": runs[0]["pipeline"],
        "Runs": len(runs),
        "Compared Runs": len(walls),
        "Slope (%)": slope,
        "p-Value": p_value,
        "Trend": trend,
    }


def _counts(run: dict[str, Any]) -> bool:
    """Return whether a run's wall time is that of a whole run."""
    return run["ended"] and not run["goes_on"] and run["seconds"] is not None


def _unended(run: dict[str, Any]) -> str:
    if not run["goes_on"]:
        return "" if run["ended"] else NOT_ENDED
    left = run["left"]
    if left is None:
        return GOES_ON
    known = left["seconds"] is not None
    bound = "at least" if left["unknown"] else "about"
    until = f", {bound} {format_duration(left['seconds'])}" if known else ""
    return f"{GOES_ON}: {count_of(left['tasks'], 'task')} left{until}"


def _table(runs: list[dict[str, Any]], changes: list[str]) -> pd.DataFrame:
    def numbers(name: str) -> np.ndarray:
        return np.array([np.nan if run[name] is None else run[name] for run in runs], dtype=float)

    def texts(values: list[Any]) -> pd.Series:
        return pd.Series(values, dtype=object)

    versions = [run["versions"] for run in runs]
    return pd.DataFrame(
        {
            "Pipeline": texts([run["pipeline"] for run in runs]),
            "Run": texts([run["run"] for run in runs]),
            "Began (UTC)": utc(numbers("begin")),
            "Wall Time (s)": numbers("seconds"),
            "Efficiency (%)": numbers("efficiency") * 100,
            "Task Runs": [int(run["tasks"]) for run in runs],
            "Failed": [int(run["failed"]) for run in runs],
            "Findings": texts([_findings(run["findings"]) for run in runs]),
            "Versions": texts(
                [", ".join(f"{p} {each[p]}" for p in _PACKAGES if p in each) for each in versions]
            ),
            "Change": texts(changes),
            "Directory": texts([run["directory"] for run in runs]),
        }
    )


def _findings(counts: dict[str, int]) -> str:
    named = [f"{counts[name]} {name}" for name in SEVERITIES if counts.get(name)]
    return ", ".join(named) or "none"
