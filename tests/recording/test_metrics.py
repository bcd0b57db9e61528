"""Metrics on Dask's /metrics: names, values, and none if they are off."""

import json
import logging
import re
import sys
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from clusters import client_of, wait_for, wait_until
from distributed import Client, Event

import dasfprof
from dasfprof import system
from dasfprof.handles.registration import PRELOAD, start_run
from dasfprof.recording import telemetry
from dasfprof.recording.settings import make_settings
from dasfprof.recording.telemetry import METRICS

parser = pytest.importorskip("prometheus_client.parser")

DASHBOARD = Path(__file__).parents[2] / "docs" / "_static" / "grafana-dasfprof.json"


client = client_of(1, 1, processes=False, dashboard_address=":0")


def scraped(client: Client) -> dict[str, list[tuple[dict[str, str], float]]]:
    """Return the scheduler's metrics by name, read like Prometheus does."""
    link = client.dashboard_link.rpartition("/")[0]
    with urlopen(f"{link}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in parser.text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def test_metrics_of_a_run(client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with dasfprof.profile(client, directory=tmp_path / "unasked"):
        names = scraped(client)
    assert "dask_scheduler_workers" in names
    assert not [name for name in names if name.startswith("dasfprof")]
    # The analysis is slow on a busy machine, because its process has a low priority.
    monkeypatch.setattr(system, "lower_priority", lambda *_: None)
    monkeypatch.setattr(telemetry, "_INTERVAL", 1.0)
    monkeypatch.setattr(telemetry, "_TIMES", 0)
    with dasfprof.profile(client, directory=tmp_path / "shown", prometheus=True) as run:
        futures = client.map(wait_for, [f"event-{n}" for n in range(3)], pure=False)
        wait_until(lambda: sum(open_tasks(scraped(client)).values()) == 3)
        assert open_tasks(scraped(client))["processing"] >= 1
        for number in range(3):
            Event(f"event-{number}", client=client).set()
        assert client.gather(futures) == [f"event-{n}" for n in range(3)]
        run.flush()
        wait_until(lambda: "dasfprof_thread_seconds" in scraped(client), 300, every=0.5)
        found = scraped(client)
        absent = {"dasfprof_open_tasks", "dasfprof_findings", "dasfprof_finding_seconds"}
        assert found.keys() >= {*METRICS} - absent
        labels = {sample["run"] for name in METRICS for sample, _ in found.get(name, ())}
        assert labels == {run.name}
        assert found["dasfprof_lost_facts"] == [({"run": run.name}, 0.0)]
        classes = {sample["class"] for sample, _ in found["dasfprof_thread_seconds"]}
        assert classes >= {"Computing", "Blocked"}
    assert not [name for name in scraped(client) if name.startswith("dasfprof")]


def open_tasks(found: dict[str, Any]) -> dict[str, float]:
    return {
        labels["state"]: value
        for labels, value in found.get("dasfprof_open_tasks", ())
        if labels["function"] == "wait_for"
    }


def test_findings_become_metrics(tmp_path: Path) -> None:
    """The JSON output of an analysis becomes metrics."""
    ann = {"Rule": "a", "Severity": "high", "Client": "ann"}
    document = {
        "findings": [
            {**ann, "Seconds at stake (s)": 2.5},
            {**ann, "Seconds at stake (s)": 0.5},
            {"Rule": "b", "Severity": "low", "Seconds at stake (s)": None},
        ],
        "time_accounting": [{"Class": "Computing", "Thread Time (s)": 4.0}],
        "analysed": 1.7e9,
        "seconds": 5.0,
    }
    assert list(telemetry._samples_of(document)) == [
        ("dasfprof_analysed_timestamp_seconds", (), 1.7e9),
        ("dasfprof_analysis_duration_seconds", (), 5.0),
        ("dasfprof_findings", ("a", "high", "ann"), 2.0),
        ("dasfprof_findings", ("b", "low", ""), 1.0),
        ("dasfprof_finding_seconds", ("a",), 3.0),
        ("dasfprof_thread_seconds", ("Computing",), 4.0),
    ]


def test_two_runs_are_shown_beside_each_other(client: Client, tmp_path: Path) -> None:
    options: dict[str, Any] = {"directory": tmp_path, "prometheus": True}
    with Client(client.cluster, set_as_default=False) as other:
        first = dasfprof.register_default_profiler(client, name="first", **options)
        # A run of another owner: a preload.
        settings = make_settings(name="second", **options)
        second = start_run(other, settings.__class__(**{**vars(settings), "owner": PRELOAD}))
        for shown in ({first.name, second.name}, {first.name}):
            begun = scraped(client)["dasfprof_begin_timestamp_seconds"]
            assert {labels["run"] for labels, _ in begun} == shown
            second.stop()
        first.stop()


def test_without_the_library_a_run_is_recorded_all_the_same(
    client: Client,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with (
        caplog.at_level(logging.WARNING),
        dasfprof.profile(client, directory=tmp_path, prometheus=True) as run,
    ):
        assert client.submit(pow, 2, 3).result() == 8
    assert "pip install 'dasfprof[prometheus]'" in caplog.text
    assert len(run.analyser().trace.tasks) == 1


def test_the_dashboard_asks_for_metrics_that_exist() -> None:
    document = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    asked = [target["expr"] for panel in document["panels"] for target in panel.get("targets", ())]
    named = {name for expr in asked for name in re.findall(r"dasfprof_\w+", expr)}
    assert named == {*METRICS}
    for expr in asked:
        for name, selector in re.findall(r"(dasfprof_\w+)\{([^}]*)\}", expr):
            known = {"run", *METRICS[name][1]}
            assert set(re.findall(r"(\w+)\s*=~?", selector)) <= known
    assert document["templating"]["list"][-1]["query"]["query"].startswith("label_values(dasfprof_")
