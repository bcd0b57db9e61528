"""Metrics of a run for Prometheus, on the page ``/metrics`` of Dask's scheduler.

Dask serves the contents of `prometheus_client`'s registry on that page. The numbers of unfinished
tasks are read from the scheduler at each request. Findings and thread times come from an analysis
of the run's files in a separate process. The analysis runs only while requests arrive, at most once
per minute and for at most a tenth of the time.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dasfprof.config.options import setting
from dasfprof.database import FileDatabase
from dasfprof.recording.dask_internals.inspection.views import task_counts
from dasfprof.recording.settings import RunSettings
from dasfprof.recording.side_process import SideProcess
from dasfprof.schema.under_way import UNFINISHED

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

logger = logging.getLogger(__name__)

#: Minimum pause between two analyses, in seconds and as a multiple of the duration of the last
#: analysis, and time limit for an analysis (seconds).
_INTERVAL, _TIMES, _LONGEST = 60.0, 10.0, 1800.0
#: Maximum number of functions that get a separate series of unfinished tasks, and label under which
#: the tasks of all other functions are counted.
_MOST_FUNCTIONS, _OTHERS = 50, "(other functions)"

#: The metrics by name, each with its meaning and its labels. All have the label ``run`` in
#: addition. All are gauges, because an analysis covers the run so far and may correct the results
#: of an earlier analysis.
METRICS = {
    "dasfprof_open_tasks": (
        "Unfinished tasks, by function and Dask's state.",
        ("function", "state"),
    ),
    "dasfprof_findings": (
        "Findings of the last analysis. client is empty unless several are known.",
        ("rule", "severity", "client"),
    ),
    "dasfprof_finding_seconds": (
        "Potential savings of the findings in seconds, if known.",
        ("rule",),
    ),
    "dasfprof_thread_seconds": (
        "Thread time of all workers by category, from the last analysis.",
        ("class",),
    ),
    "dasfprof_begin_timestamp_seconds": ("Start of the recording in Unix seconds.", ()),
    "dasfprof_analysed_timestamp_seconds": ("Time of the last analysis in Unix seconds.", ()),
    "dasfprof_analysis_duration_seconds": ("Duration of the last analysis in seconds.", ()),
    "dasfprof_lost_facts": ("Dropped events of the scheduler's file.", ()),
}

#: A metric's name, the values of its labels, and its value.
Sample = tuple[str, tuple[str, ...], float]


class RunMetrics:
    """The metrics of one run.

    Parameters
    ----------
    scheduler
        The scheduler. Its state is read on its event loop and not changed.
    module
        The module that a separate process executes to analyse the run. See `dasfprof.handles.live`.
    database
        The database of the scheduler's plugin.
    """

    def __init__(
        self, scheduler: Any, settings: RunSettings, module: str, database: FileDatabase
    ) -> None:
        self._scheduler, self.settings, self._database = scheduler, settings, database
        self._most_functions = 0 if setting("dashboard") == "counts" else _MOST_FUNCTIONS
        self._process = SideProcess(module, 19, _LONGEST)
        self._was_analysed = False

    def samples(self) -> Iterator[Sample]:
        """Yield the current values of the metrics, and start an analysis of the run if due."""
        process = self._process
        pause = max(_INTERVAL, _TIMES * process.seconds) if self._was_analysed else 0.0
        if not process.is_running() and time.monotonic() - process.since >= pause:
            self._was_analysed = True
            process.begin("metrics", str(Path(self.settings.directory, self.settings.name)))
        yield "dasfprof_begin_timestamp_seconds", (), self.settings.created
        losses = self._database.writer.losses
        yield "dasfprof_lost_facts", (), float(losses.dropped)
        yield from self._open_tasks()
        if process.result is not None:
            yield from _samples_of(process.result)

    def _open_tasks(self) -> Iterator[Sample]:
        """Yield the number of unfinished tasks for each function and state.

        Functions with few unfinished tasks are counted together.
        """
        counts: Counter[tuple[str, str]] = Counter()
        by_function = {
            function: Counter({state: states.get(state, 0) for state in UNFINISHED})
            for function, states in task_counts(self._scheduler)[0].items()
        }
        order = sorted(by_function, key=lambda name: -by_function[name].total())
        for position, function in enumerate(order):
            label = function if position < self._most_functions else _OTHERS
            for state, number in (+by_function[function]).items():
                counts[label, state] += number
        for labels, number in counts.items():
            yield "dasfprof_open_tasks", labels, float(number)

    def end(self) -> None:
        """End the analysis, if it is running."""
        self._process.close()


def _samples_of(document: dict[str, Any]) -> Iterator[Sample]:
    """Yield the values of metrics that come from an analysis.

    `document` is the JSON object that ``python -m dasfprof.handles.live metrics`` prints.
    """
    yield "dasfprof_analysed_timestamp_seconds", (), document["analysed"]
    yield "dasfprof_analysis_duration_seconds", (), document["seconds"]
    counts: Counter[tuple[str, ...]] = Counter()
    savings: dict[str, float] = {}
    for finding in document.get("findings", ()):
        rule = str(finding["Rule"])
        counts[rule, str(finding["Severity"]), str(finding.get("Client") or "")] += 1
        seconds = finding.get("Seconds at stake (s)")
        if seconds is not None:
            savings[rule] = savings.get(rule, 0.0) + float(seconds)
    for labels, number in counts.items():
        yield "dasfprof_findings", labels, float(number)
    for rule, seconds in savings.items():
        yield "dasfprof_finding_seconds", (rule,), seconds
    for row in document.get("time_accounting", ()):
        if row["Thread Time (s)"] is not None:
            yield "dasfprof_thread_seconds", (str(row["Class"]),), float(row["Thread Time (s)"])


class _Collector:
    """The collector that this process registers with Prometheus, for all runs of the process."""

    def __init__(self) -> None:
        self.runs: tuple[RunMetrics, ...] = ()

    def describe(self) -> list[Metric]:
        """Return an empty list."""
        # Without this method, registering would collect all metrics once.
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of all runs."""
        from prometheus_client.core import GaugeMetricFamily

        families = {
            name: GaugeMetricFamily(name, about, labels=["run", *labels])
            for name, (about, labels) in METRICS.items()
        }
        for metrics in self.runs:
            try:
                for name, labels, value in metrics.samples():
                    families[name].add_metric([metrics.settings.name, *labels], value)
            except Exception:
                logger.debug("metrics of a run could not be read", exc_info=True)
        yield from families.values()


_collector = _Collector()
_lock = threading.Lock()


def add_metrics(
    scheduler: Any, settings: RunSettings, module: str, database: FileDatabase
) -> Callable[[], object]:
    """Add the metrics of a run to the scheduler's page ``/metrics``, if possible.

    Return a function that removes the metrics. For the parameters, see `RunMetrics`.
    """
    if not settings.prometheus:
        return lambda: None
    try:
        from prometheus_client import REGISTRY
    except ImportError:
        logger.warning(
            "prometheus=True: there are no metrics, because prometheus_client is not installed in "
            "the scheduler's environment. Install it with `pip install 'dasfprof[prometheus]'`. "
            "Everything else is recorded."
        )
        return lambda: None
    metrics = RunMetrics(scheduler, settings, module, database)
    with _lock:
        if not _collector.runs:
            REGISTRY.register(_collector)
        _collector.runs = (*_collector.runs, metrics)

    def end() -> None:
        with _lock:
            _collector.runs = tuple(run for run in _collector.runs if run is not metrics)
            if not _collector.runs:
                REGISTRY.unregister(_collector)
        metrics.end()

    return end
