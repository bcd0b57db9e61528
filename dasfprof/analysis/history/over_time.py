"""`history`: a table of the runs in a directory, and the trend of their wall times."""

from __future__ import annotations

import os
from itertools import chain, groupby, takewhile
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dasfprof.analysis.diagnosis.registry import SEVERITIES
from dasfprof.analysis.history.summary import file_states, keep, read_stored, summarise_run
from dasfprof.analysis.numeric.groups import ratio
from dasfprof.analysis.numeric.significance import CERTAIN, FEWEST, kendall_p, slope_of
from dasfprof.analysis.run import Run
from dasfprof.analysis.tables.columns import text, utc
from dasfprof.analysis.trace.progress import is_wanted, track
from dasfprof.config.kinds import Price
from dasfprof.config.options import setting
from dasfprof.database import MultiEventDatabase, find_runs
from dasfprof.errors import SourceNotFoundError

_PACKAGES = ("dasfprof", "dask", "distributed", "python")


def history(
    directory: str | os.PathLike[str] = ".",
    *,
    price: float | str | None = None,
    progress: bool | None = None,
) -> pd.DataFrame:
    """List the runs in a directory and in its direct subdirectories over time.

    Parameters
    ----------
    directory
        The directory with the runs.
    price
        Price of a worker per hour (see `TraceAnalyser.cost`). None uses the setting
        ``dasfprof.price``.
    progress
        See `TraceAnalyser`.

    Returns
    -------
    DataFrame
        One row per run, sorted by pipeline and start. Runs with the same name belong to the same
        pipeline. If a name ends with the Unix time of the run's creation, this suffix is ignored.
        The columns are ``Pipeline``, ``Run``, ``Began (UTC)``, ``Wall Time (s)`` (from the first
        submission to the last finish), ``Efficiency (%)`` (percentage of thread time in which
        functions ran), ``Task Runs``, ``Failed``, ``Findings`` (number by severity), ``Versions``,
        ``Change`` and ``Directory``. ``Change`` is ``did not end``, ``still running``, ``other
        graph`` (if the graph differs from that of the run before), or empty. If there is a price,
        the table also has ``Worker Hours``, ``Idle (%)`` (percentage of these hours), and ``Cost``,
        and ``attrs["currency"]`` contains the price's label. ``attrs["trends"]`` contains a dict
        for each pipeline (see Notes).

    Raises
    ------
    SourceNotFoundError
        If the directory does not exist or contains no run.

    Notes
    -----
    The trend of a pipeline describes the wall times of its runs since the graph last changed. The
    dict has the entries ``Pipeline``, ``Runs`` (number of all runs), ``Compared Runs`` (number of
    runs that ended and have the latest graph), ``Slope (%)`` (change per run by Theil and Sen,
    relative to the median wall time), ``p-Value`` (of the test by Mann and Kendall, NaN for fewer
    than eight compared runs) and ``Trend``. The trend is ``slower`` or ``faster`` if the p-value is
    below 0.01, ``unknown`` for fewer than eight compared runs, and otherwise ``none``.

    Each directory has a file ``.dasfprof-history.json`` with summaries of its runs, so that only
    new runs are read.
    """
    root = Path(directory)
    if not root.is_dir():
        raise SourceNotFoundError(f"directory {os.fspath(directory)!r} does not exist.")
    inner = sorted(path for path in root.iterdir() if path.is_dir())
    runs = [
        {**summary, "directory": os.fspath(path)}
        for path in [root, *inner]
        for summary in _summaries(path, progress=is_wanted(progress))
    ]
    if not runs:
        raise SourceNotFoundError(f"there is no run in {os.fspath(directory)!r}.")
    runs.sort(key=lambda run: (str(run["pipeline"]), run["begin"] or 0.0))
    pipelines = [list(members) for _, members in groupby(runs, key=itemgetter("pipeline"))]
    table = _table(runs, list(chain.from_iterable(map(_changes_of, pipelines))))
    table.attrs["trends"] = list(map(_trend_of, pipelines))
    declared: Price | None = setting("price", price)
    return table if declared is None else _priced(table, runs, declared)


def _priced(table: pd.DataFrame, runs: list[dict[str, Any]], price: Price) -> pd.DataFrame:
    """Add the columns about cost to the table of runs."""
    hours, idle = (np.array([run[name] for run in runs]) for name in ("hours", "idle"))
    index = table.columns.tolist().index("Task Runs")
    table.insert(index, "Worker Hours", hours[:, 0])
    table.insert(index + 1, "Idle (%)", ratio(idle[:, 0], hours[:, 0]) * 100)
    table.insert(index + 2, "Cost", [price.of_hours(*each) for each in hours.tolist()])
    table.attrs["currency"] = price.label
    return table


def _summaries(directory: Path, *, progress: bool) -> list[dict[str, Any]]:
    """Return the summaries of the runs in a directory."""
    try:
        states = file_states(directory)
    except OSError:
        return []
    stored = read_stored(directory, states)
    known = {name for files, _ in stored for name in files}
    # Only runs with new or changed files are read.
    new = [directory / name for name in states if name not in known]
    runs = find_runs(directory, new) if new else []
    going_on = []
    for run in track(runs, "Summarizing runs", shown=progress, total=len(runs), unit="run"):
        trace = Run.from_database(MultiEventDatabase(run.files), progress=False)
        summary = summarise_run(run, trace)
        if summary["goes_on"]:
            going_on.append(summary)
        else:
            stored.append(({path.name: states[path.name] for path in run.files}, summary))
    if len(runs) > len(going_on):
        keep(directory, stored)
    return [summary for _, summary in stored] + going_on


def _changes_of(runs: list[dict[str, Any]]) -> list[str]:
    """Return the value of ``Change`` in `history` for each run of a pipeline."""
    changes, shape = [], None
    for run in runs:
        if not _counts(run):
            changes.append(
                "still running" if run["goes_on"] else "" if run["ended"] else "did not end"
            )
            continue
        changes.append("other graph" if shape not in (None, run["shape"]) else "")
        shape = run["shape"]
    return changes


def _trend_of(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the trend of wall times since the pipeline's graph last changed. See `history`."""
    complete = [run for run in runs if _counts(run)]
    same = takewhile(lambda run: run["shape"] == complete[-1]["shape"], reversed(complete))
    walls = np.array([run["seconds"] for run in same], dtype=float)[::-1]
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
    """Return whether a run is complete, so that its wall time can be compared."""
    return run["ended"] and not run["goes_on"] and run["seconds"] is not None


def _table(runs: list[dict[str, Any]], changes: list[str]) -> pd.DataFrame:
    facts = pd.DataFrame(runs, dtype=object)
    versions = [
        ", ".join(f"{name} {each[name]}" for name in _PACKAGES if name in each)
        for each in facts["versions"]
    ]
    findings = [
        ", ".join(f"{counts[name]} {name}" for name in SEVERITIES if counts.get(name)) or "none"
        for counts in facts["findings"]
    ]
    return pd.DataFrame(
        {
            "Pipeline": text(facts["pipeline"]),
            "Run": text(facts["run"]),
            "Began (UTC)": utc(facts["begin"].to_numpy(dtype=float)),
            "Wall Time (s)": facts["seconds"].astype(float),
            "Efficiency (%)": facts["efficiency"].astype(float) * 100,
            "Task Runs": facts["tasks"].astype(int),
            "Failed": facts["failed"].astype(int),
            "Findings": text(findings),
            "Versions": text(versions),
            "Change": text(changes),
            "Directory": text(facts["directory"]),
        }
    )
