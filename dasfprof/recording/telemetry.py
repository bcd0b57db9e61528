"""Metrics of a run on Dask's own ``/metrics`` of the scheduler, for Prometheus.

Dask answers there with whatever `prometheus_client`'s registry has. What the scheduler knows is
read as it is asked. What an analysis tells, findings and where the time went, is that of the run's
files by a process of its own, which runs at most once a minute and a tenth of the time, and only
while somebody asks.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dasfprof import system
from dasfprof.database import FileDatabase
from dasfprof.recording.dask_internals.inspection.views import UNFINISHED, task_counts
from dasfprof.recording.settings import RunSettings

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

logger = logging.getLogger(__name__)

#: Seconds between two analyses at least, and how many times as long as the last one took; and the
#: most that one may take.
_INTERVAL, _TIMES, _LONGEST = 60.0, 10.0, 1800.0
#: The most functions whose open tasks have a series of their own, and what the others are called.
_MOST_FUNCTIONS, _OTHERS = 50, "(other functions)"

#: The metrics by name: what each is, and its labels besides ``run``. All are gauges, as an analysis
#: tells of the run so far, and may correct what the one before it told.
METRICS = {
    "dasfprof_open_tasks": (
        "Tasks that have not ended, by function and Dask's state.",
        ("function", "state"),
    ),
    "dasfprof_findings": (
        "Findings so far, as last analysed.",
        ("rule", "severity"),
    ),
    "dasfprof_finding_seconds": (
        "Seconds that findings so far put at stake, as far as they can tell.",
        ("rule",),
    ),
    "dasfprof_thread_seconds": (
        "Seconds of all threads of workers so far, by what became of them, as last analysed.",
        ("class",),
    ),
    "dasfprof_begin_timestamp_seconds": ("When the recording began, Unix seconds.", ()),
    "dasfprof_analysed_timestamp_seconds": ("When the run was last analysed, Unix seconds.", ()),
    "dasfprof_analysis_duration_seconds": ("How long the last analysis took.", ()),
    "dasfprof_lost_facts": ("Facts that the scheduler's recorder could not write.", ()),
}

#: A metric's name, the values of its labels, and its value.
Sample = tuple[str, tuple[str, ...], float]


class RunMetrics:
    """The metrics of a run.

    Parameters
    ----------
    scheduler
        The scheduler; only read, on its event loop.
    settings
        The run.
    module
        What a process runs that analyses the run, see `dasfprof.handles.live`.
    database
        The file of the scheduler's plugin.
    """

    def __init__(
        self, scheduler: Any, settings: RunSettings, module: str, database: FileDatabase
    ) -> None:
        self._scheduler, self._settings, self._database = scheduler, settings, database
        self._command = [sys.executable, "-m", module, "metrics"]
        self._analysed: list[Sample] = []
        self._due = 0.0
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._ended = False

    @property
    def run(self) -> str:
        """The run's name."""
        return self._settings.name

    def samples(self) -> Iterator[Sample]:
        """Yield what is known now; have the run analysed if that is due."""
        self._analyse_if_due()
        yield "dasfprof_begin_timestamp_seconds", (), self._settings.created
        losses = self._database.writer.losses
        yield "dasfprof_lost_facts", (), float(sum(losses.by_cause.values()))
        yield from self._open_tasks()
        yield from self._analysed

    def _open_tasks(self) -> Iterator[Sample]:
        """Yield the open tasks of the functions that have most of them, and of all others."""
        counts: dict[str, dict[str, int]] = {}
        for function, states in task_counts(self._scheduler)[0].items():
            kept = {state: states[state] for state in UNFINISHED if states.get(state)}
            if kept:
                counts[function] = kept
        most = sorted(counts, key=lambda name: -sum(counts[name].values()))[:_MOST_FUNCTIONS]
        rest: dict[str, int] = {}
        for function, states in counts.items():
            for state, number in states.items():
                if function in most:
                    yield "dasfprof_open_tasks", (function, state), float(number)
                else:
                    rest[state] = rest.get(state, 0) + number
        for state, number in rest.items():
            yield "dasfprof_open_tasks", (_OTHERS, state), float(number)

    def _analyse_if_due(self) -> None:
        with self._lock:
            if self._ended or time.monotonic() < self._due:
                return
            self._due = time.monotonic() + _LONGEST
        threading.Thread(target=self._analyse, name="dasfprof-metrics", daemon=True).start()

    def _analyse(self) -> None:
        began = time.monotonic()
        try:
            document = self._document()
            took = time.monotonic() - began
            if document is not None:
                self._analysed = [
                    ("dasfprof_analysed_timestamp_seconds", (), time.time()),
                    ("dasfprof_analysis_duration_seconds", (), took),
                    *_samples_of(document),
                ]
        except Exception:
            logger.debug("a run could not be analysed for its metrics", exc_info=True)
        now = time.monotonic()
        self._due = now + max(_INTERVAL, _TIMES * (now - began))

    def _document(self) -> dict[str, Any] | None:
        """Return what an analysis tells of the run so far; None: nothing yet."""
        source = Path(self._settings.directory, self._settings.name)
        with self._lock:
            if self._ended:
                return None
            self._process = process = subprocess.Popen(
                [*self._command, str(source)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the scheduler
            )
        system.lower_priority(process.pid, 19)
        try:
            text, _ = process.communicate(timeout=_LONGEST)
        finally:
            self._kill()
        return json.loads(text) if process.returncode == 0 else None

    def _kill(self) -> None:
        with self._lock:
            process, self._process = self._process, None
        if process is not None and process.poll() is None:
            process.kill()
            process.communicate()

    def end(self) -> None:
        """End, with an analysis that goes on."""
        self._ended = True
        self._kill()


def _samples_of(document: dict[str, Any]) -> Iterator[Sample]:
    """Yield what an analysis tells."""
    counts: dict[tuple[str, str], int] = {}
    seconds: dict[str, float] = {}
    for finding in document.get("findings", ()):
        rule = str(finding["Rule"])
        counts[rule, str(finding["Severity"])] = counts.get((rule, finding["Severity"]), 0) + 1
        at_stake = finding.get("Seconds at stake (s)")
        if at_stake is not None:
            seconds[rule] = seconds.get(rule, 0.0) + float(at_stake)
    for (rule, severity), number in counts.items():
        yield "dasfprof_findings", (rule, severity), float(number)
    for rule, at_stake in seconds.items():
        yield "dasfprof_finding_seconds", (rule,), at_stake
    for row in document.get("time_accounting", ()):
        if row["Thread Time (s)"] is not None:
            labels = (str(row["Class"]),)
            yield "dasfprof_thread_seconds", labels, float(row["Thread Time (s)"])


class _Collector:
    """What the registry of this process asks: one for the runs of all its schedulers."""

    def __init__(self) -> None:
        self.runs: tuple[RunMetrics, ...] = ()

    def describe(self) -> list[Metric]:
        """Return nothing: the registry need not collect to know the names."""
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
                    families[name].add_metric([metrics.run, *labels], value)
            except Exception:
                logger.debug("metrics of a run could not be read", exc_info=True)
        yield from families.values()


_collector = _Collector()
_lock = threading.Lock()


def add_metrics(
    scheduler: Any, settings: RunSettings, module: str, database: FileDatabase
) -> Callable[[], object]:
    """Show the metrics of a run, if it was asked for them and the library is there.

    Parameters
    ----------
    scheduler, settings, module, database
        See `RunMetrics`.

    Returns
    -------
    callable
        Takes them off again.
    """
    if not settings.prometheus:
        return lambda: None
    try:
        from prometheus_client import REGISTRY
    except ImportError:
        logger.warning(
            "prometheus=True: there are no metrics, as prometheus_client is not installed where "
            "the scheduler runs: pip install 'dasfprof[prometheus]'. All else is recorded."
        )
        return lambda: None
    metrics = RunMetrics(scheduler, settings, module, database)
    with _lock:
        if not _collector.runs:
            REGISTRY.register(_collector)
        _collector.runs = (*_collector.runs, metrics)

    def end() -> None:
        metrics.end()
        with _lock:
            _collector.runs = tuple(one for one in _collector.runs if one is not metrics)
            if not _collector.runs:
                REGISTRY.unregister(_collector)

    return end
